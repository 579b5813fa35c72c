# titan.c. `make demo` and `make test` are the front door; `make help` lists the rest.
#
# Variants, each in a folder of its own:   make SAN=address|thread|undefined|address,undefined
#                                          make CC=gcc|clang     make DEBUG=1     make WERROR=1
# A part alone with what it stands on:     make PARTS="base ir" SUITES="base ir" build/part/titan-test

ifeq ($(origin CC),default)
CC := gcc
endif
SAN ?=
DEBUG ?=
WERROR ?=
PARTS ?=
SUITES ?= $(PARTS)
JOBS ?= $(shell nproc 2>/dev/null || echo 2)

comma := ,
MACHINE := $(shell uname -m)
X86 := $(filter x86_64 amd64,$(MACHINE))

# ---- variant: objects in build/obj/VARIANT, binaries in build (the default) or build/VARIANT -----------------------

VARIANT := $(notdir $(CC))$(if $(SAN),-$(subst $(comma),-,$(SAN)))$(if $(DEBUG),-debug)$(if $(WERROR),-werror)$(if $(PARTS),-part)
OBJ := build/obj/$(VARIANT)
BIN := $(if $(filter gcc,$(VARIANT)),build,$(if $(filter gcc-part,$(VARIANT)),build/part,build/$(VARIANT)))

# ---- flags -------------------------------------------------------------------------------------------------------
# Numerics are part of the contract: no contraction of a*b+c (every fma is written), never -ffast-math. The two
# -fno-math-* flags only drop errno and trap bookkeeping, they change no result.

WARN := -Wall -Wextra -Wshadow -Wstrict-prototypes -Wvla -Wswitch-enum
MATH := -ffp-contract=off -fno-math-errno -fno-trapping-math
OPT := $(if $(SAN)$(DEBUG),-O1 -g,-O3 -g1)
SANFLAGS := $(if $(SAN),-fsanitize=$(SAN) -fno-sanitize-recover=all -fno-omit-frame-pointer)
CFLAGS ?=
# One set of objects for the programs and for libtitan.so. Without interposition the code is as good as without -fPIC.
PIC := -fPIC -fno-semantic-interposition
TT_CFLAGS := -std=gnu17 $(OPT) $(MATH) $(WARN) $(PIC) -Isrc -Iinclude -pthread \
	$(if $(WERROR),-Werror) $(if $(PARTS),-DTT_PART) $(if $(DEBUG),-DTT_DEBUG) $(if $(X86),,-DTT_NO_X86) $(SANFLAGS) $(CFLAGS)
LIBS := -lxsmm -lxsmmnoblas -ljansson -lxxhash -lpthread -ldl -lm

# ---- sources -----------------------------------------------------------------------------------------------------

FOLDERS := $(if $(PARTS),$(addprefix src/,$(PARTS)),$(wildcard src/*))
SRC := $(filter-out %.k.c,$(wildcard $(addsuffix /*.c,$(FOLDERS))))
KERNELS := $(wildcard $(filter src/kernels,$(FOLDERS))/*.k.c)
TESTS := $(if $(PARTS),tests/main.c tests/malloc_count.c $(SUITES:%=tests/test_%.c),$(wildcard tests/*.c))

# A kernel file is compiled once per set: the same C for the baseline, for wider vectors, and for double precision.
SETS := ref f64 $(if $(X86),avx2 avx512)
SET_ref := -DTT_SET_REF=1
SET_f64 := -DTT_SET_F64=1 -DTT_REAL_F64
SET_avx2 := -DTT_SET_AVX2=1 -mavx2 -mfma -mf16c -mbmi2
SET_avx512 := -DTT_SET_AVX512=1 -mavx512f -mavx512bw -mavx512dq -mavx512vl -mfma -mf16c -mbmi2 -mprefer-vector-width=512

KERNEL_OBJ := $(foreach s,$(SETS),$(KERNELS:%.k.c=$(OBJ)/%.$s.o))
SRC_OBJ := $(SRC:%.c=$(OBJ)/%.o)
TEST_OBJ := $(TESTS:%.c=$(OBJ)/%.o)
LIB_OBJ := $(filter-out $(OBJ)/src/cli/main.o,$(SRC_OBJ)) $(KERNEL_OBJ)
API_OBJ := $(filter-out $(OBJ)/src/cli/%,$(LIB_OBJ))

# A plug-in for each MPI that is here (src/comm/mpi): the program itself links none.
MPIS := openmpi mpich
MPI_HERE = $(foreach m,$(MPIS),$(if $(shell command -v mpicc.$m),$m))
PLUGINS = $(MPI_HERE:%=$(BIN)/titan-mpi-%.so)

# ---- where things are installed; DESTDIR stands above all of it ---------------------------------------------------

VERSION := $(shell sed -n 's/.*define TT_VERSION "\(.*\)"/\1/p' src/base/version.h)
SO_MAJOR := $(firstword $(subst ., ,$(VERSION)))
prefix ?= /usr/local
bindir ?= $(prefix)/bin
libdir ?= $(prefix)/lib
includedir ?= $(prefix)/include
pkgconfigdir ?= $(libdir)/pkgconfig
datadir ?= $(prefix)/share
mandir ?= $(datadir)/man
docdir ?= $(datadir)/doc/titan
bashdir ?= $(datadir)/bash-completion/completions
zshdir ?= $(datadir)/zsh/site-functions
fishdir ?= $(datadir)/fish/vendor_completions.d
export VERSION SO_MAJOR prefix bindir libdir includedir pkgconfigdir mandir docdir bashdir zshdir fishdir DESTDIR LIBS

# ---- targets -----------------------------------------------------------------------------------------------------

# Benchmarks against the peers that are there (docs/bench.md). Only this target looks for them.
BENCH_PYTHON ?= python3
BENCH_QUICK ?=
export BENCH_PYTHON BENCH_QUICK

.PHONY: all lib install uninstall demo test proof bench lint deps deps-mpi clean help objects syntax print-bin
.DELETE_ON_ERROR:

# The build is a make of its own, started once the packages are there; it uses all cores unless -j was given.
BUILD = case "$$MAKEFLAGS" in *jobserver*) j=;; *) j=-j$(JOBS);; esac; $(MAKE) --no-print-directory $$j

all: deps $(if $(filter test,$(MAKECMDGOALS)),deps-mpi)
	+@$(BUILD) $(BIN)/titan $(BIN)/titan-test $(PLUGINS)
	@for m in $(MPIS); do command -v mpicc.$$m >/dev/null || echo "mpi   no mpicc.$$m: without a plug-in for $$m, ranks are threads (lib$$m-dev)"; done

lib: deps
	+@$(BUILD) $(BIN)/libtitan.a $(BIN)/libtitan.so.$(SO_MAJOR)

# Builds first, which needs no rights; only tools/install.sh writes outside the folder.
install: deps
	+@$(BUILD) $(BIN)/titan $(BIN)/libtitan.a $(BIN)/libtitan.so.$(SO_MAJOR) $(PLUGINS)
	@tools/install.sh install $(BIN)

uninstall:
	@tools/install.sh uninstall

demo:
	@tools/deps.sh demo
	+@$(BUILD) $(BIN)/titan
	$(BIN)/titan demo

test: all
	$(BIN)/titan-test --jobs=$(JOBS)

proof: all
	$(BIN)/titan-test --tier=proof
	tools/proof.sh $(BIN) > docs/proof.md.new && mv docs/proof.md.new docs/proof.md

bench: deps
	+@$(BUILD) $(BIN)/titan
	+@if printf '#include <oneapi/dnnl/dnnl.h>\n#if DNNL_VERSION_MAJOR != 2\n#error\n#endif\n' | $(CC) -E - >/dev/null 2>&1; then \
		$(BUILD) $(BIN)/bench/onednn_gemm; else rm -f $(BIN)/bench/onednn_gemm; fi
	@BENCH_ONEDNN=$(BIN)/bench/onednn_gemm bench/run.sh $(BIN)/titan $(BIN)/bench

# gcc compiles everything with optimization, since some of its warnings need it; for clang the front end is enough.
# cppcheck: tensor memory is bytes that hold floats, log(0) is a value here, gcc finds dangling pointers better, and cppcheck
# 2.10 loses its way in compound literals.
lint:
	@tools/deps.sh lint
	+@$(BUILD) CC=gcc WERROR=1 objects
	+@$(BUILD) CC=clang WERROR=1 syntax
	@tools/check.sh build/obj/gcc-werror
	@if command -v cppcheck >/dev/null; then \
		echo "cppcheck"; \
		cppcheck --quiet --std=c11 --error-exitcode=1 --enable=warning,portability --inline-suppr -j $(JOBS) \
			--suppress=missingIncludeSystem --suppress=invalidPointerCast --suppress=invalidFunctionArg --suppress=autoVariables \
			--suppress=internalAstError -Isrc -D__x86_64__ src tests; \
	else echo "cppcheck: not installed, skipped"; fi

deps:
	@tools/deps.sh

# What the tests of ranks as processes use; without it they are skipped, and say so.
deps-mpi: deps
	@tools/deps.sh mpi

clean:
	rm -rf build

help:
	@echo "make all     build $(BIN)/titan and $(BIN)/titan-test"
	@echo "make demo    train a small model on the C headers of this machine"
	@echo "make test    the quick tests           make proof   every test, however long, and docs/proof.md"
	@echo "make bench   speed, against PyTorch and oneDNN where they are (docs/bench.md): build/bench/bench.md; BENCH_QUICK=1 BENCH_PYTHON=python3"
	@echo "make lint    both compilers without a warning, and tools/check.sh"
	@echo "make lib     build libtitan.a and libtitan.so (include/titan.h)"
	@echo "make install, uninstall       DESTDIR= prefix= bindir= libdir= includedir= mandir= pkgconfigdir= docdir="
	@echo "make fuzz    every reader of files on mutated input, FUZZ_SECONDS=60 each (docs/fuzzing.md)"
	@echo "make deps    install missing packages (says which first; needs root)"
	@echo "make clean   remove build/"

print-bin:
	@echo $(BIN)

objects: $(SRC_OBJ) $(KERNEL_OBJ) $(TEST_OBJ)
syntax: $(SRC_OBJ:.o=.syntax) $(KERNEL_OBJ:.o=.syntax) $(TEST_OBJ:.o=.syntax)

$(BIN)/titan: $(OBJ)/src/cli/main.o $(LIB_OBJ)
	@mkdir -p $(@D)
	@echo "link  $@"
	@$(CC) $(SANFLAGS) -rdynamic -o $@ $^ $(LDFLAGS) $(LIBS)

$(BIN)/titan-test: $(TEST_OBJ) $(LIB_OBJ)
	@mkdir -p $(@D)
	@echo "link  $@"
	@$(CC) $(SANFLAGS) -rdynamic -o $@ $^ $(LDFLAGS) $(LIBS)

# The MPI's compiler wrapper, with this compiler in it.
$(BIN)/titan-mpi-%.so: src/comm/mpi/plugin.c src/comm/mpi_abi.h src/comm/comm.h src/base/base.h Makefile
	@mkdir -p $(@D)
	@echo "mpicc $@"
	@OMPI_CC=$(CC) MPICH_CC=$(CC) mpicc.$* -std=gnu17 -O2 $(WARN) -fPIC -Isrc $(if $(WERROR),-Werror) -shared -DTT_MPI_NAME='"$*"' -o $@ $<

$(BIN)/bench/onednn_gemm: $(OBJ)/bench/onednn_gemm.o $(LIB_OBJ)
	@mkdir -p $(@D)
	@echo "link  $@"
	@$(CC) $(SANFLAGS) -rdynamic -o $@ $^ $(LDFLAGS) $(LIBS) -ldnnl -lgomp

# Both libraries show titan_* and nothing else: the static one by joining its objects and making all other names local.
$(BIN)/libtitan.a: $(API_OBJ)
	@mkdir -p $(@D)
	@echo "ar    $@"
	@$(CC) -nostdlib -r -o $(OBJ)/titan.joined.o $^
	@objcopy --wildcard --keep-global-symbol='titan_*' $(OBJ)/titan.joined.o $(OBJ)/titan.o
	@rm -f $@ $(OBJ)/titan.joined.o
	@ar rcsD $@ $(OBJ)/titan.o

$(BIN)/libtitan.so.$(SO_MAJOR): $(API_OBJ) src/api/titan.map
	@mkdir -p $(@D)
	@echo "link  $@"
	@$(CC) $(SANFLAGS) -shared -Wl,-soname,libtitan.so.$(SO_MAJOR) -Wl,--version-script=src/api/titan.map -Wl,-z,defs -o $@ $(API_OBJ) $(LDFLAGS) $(LIBS)

# ---- rules -------------------------------------------------------------------------------------------------------
# Objects also depend on this file: a changed flag rebuilds them.

$(OBJ)/%.o: %.c Makefile
	@mkdir -p $(@D)
	@echo "cc    $<"
	@$(CC) $(TT_CFLAGS) -MMD -MP -c -o $@ $<

$(OBJ)/%.syntax: %.c Makefile
	@mkdir -p $(@D)
	@$(CC) $(TT_CFLAGS) -MMD -MP -MT $@ -MF $(@:.syntax=.d) -fsyntax-only $<
	@touch $@

# $(1) the set. tt_kernels_NAME_SET is the table that the file defines.
define KERNEL_RULE
$$(OBJ)/%.$(1).o: %.k.c Makefile
	@mkdir -p $$(@D)
	@echo "cc    $$< ($(1))"
	@$$(CC) $$(TT_CFLAGS) $$(SET_$(1)) -DTT_KERNEL_TABLE=tt_kernels_$$(notdir $$*)_$(1) -MMD -MP -c -o $$@ $$<

$$(OBJ)/%.$(1).syntax: %.k.c Makefile
	@mkdir -p $$(@D)
	@$$(CC) $$(TT_CFLAGS) $$(SET_$(1)) -DTT_KERNEL_TABLE=tt_kernels_$$(notdir $$*)_$(1) \
		-MMD -MP -MT $$@ -MF $$(@:.syntax=.d) -fsyntax-only $$<
	@touch $$@
endef
$(foreach s,$(SETS),$(eval $(call KERNEL_RULE,$s)))

include tests/fuzz/fuzz.mk
-include $(patsubst %.o,%.d,$(SRC_OBJ) $(KERNEL_OBJ) $(TEST_OBJ)) $(OBJ)/bench/onednn_gemm.d
