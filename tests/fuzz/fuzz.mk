# Fuzz targets: tests/fuzz/NAME.c into build/fuzz/NAME, with clang's libFuzzer and sanitizers. docs/fuzzing.md.
# Kernels and programs that run are not in them: only what reads.

FUZZ_SECONDS ?= 60
FUZZ := $(filter-out common,$(patsubst tests/fuzz/%.c,%,$(wildcard tests/fuzz/*.c)))
FUZZ_SAN := address,undefined,float-cast-overflow
FUZZ_SRC := $(wildcard src/base/*.c src/config/*.c src/ckpt/*.c src/metrics/*.c src/ir/*.c) src/model/hf.c src/cli/diff.c
# Blocks of checkpoints are small, so that small files have several; every allocation has a gap behind it.
FUZZ_CFLAGS := -std=gnu17 -O1 -g $(MATH) $(WARN) -Isrc -Iinclude -Itests/fuzz -pthread -fsanitize=fuzzer-no-link,$(FUZZ_SAN) \
	-fno-sanitize-recover=all -fno-omit-frame-pointer -DTT_ARENA_GAP=16 -D'TT_CKPT_BLOCK=((int64_t)4096)'
FUZZ_OBJ := build/obj/fuzz
FUZZ_LIB := $(FUZZ_OBJ)/readers.a
FUZZ_OBJS := $(FUZZ_SRC:%.c=$(FUZZ_OBJ)/%.o) $(FUZZ:%=$(FUZZ_OBJ)/tests/fuzz/%.o) $(FUZZ_OBJ)/tests/fuzz/common.o

.PHONY: fuzz fuzz-build

fuzz:
	@tools/deps.sh lint
	@$(BUILD) fuzz-build
	@tests/fuzz/run.sh $(FUZZ_SECONDS) $(FUZZ)

fuzz-build: $(FUZZ:%=build/fuzz/%)
	@:

build/fuzz/%: $(FUZZ_OBJ)/tests/fuzz/%.o $(FUZZ_OBJ)/tests/fuzz/common.o $(FUZZ_LIB)
	@mkdir -p $(@D)
	@echo "link  $@"
	@clang -fsanitize=fuzzer,$(FUZZ_SAN) -Wl,--wrap=mmap,--wrap=munmap -o $@ $^ -ljansson -lxxhash -lpthread -lm

$(FUZZ_LIB): $(FUZZ_SRC:%.c=$(FUZZ_OBJ)/%.o)
	@rm -f $@
	@ar rcs $@ $^

$(FUZZ_OBJ)/%.o: %.c tests/fuzz/fuzz.mk
	@mkdir -p $(@D)
	@echo "cc    $< (fuzz)"
	@clang $(FUZZ_CFLAGS) -MMD -MP -c -o $@ $<

# `make lint` reads these files as all others.
ifeq ($(PARTS),)
objects: $(FUZZ:%=$(OBJ)/tests/fuzz/%.o) $(OBJ)/tests/fuzz/common.o
syntax: $(FUZZ:%=$(OBJ)/tests/fuzz/%.syntax) $(OBJ)/tests/fuzz/common.syntax
endif

.SECONDARY: $(FUZZ_OBJS)
-include $(FUZZ_OBJS:.o=.d)
