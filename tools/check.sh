#!/usr/bin/env bash
# What the compilers do not check. Prints each violation as file:line: text and exits 1 if there is one.
#   tools/check.sh [OBJECTS]     OBJECTS: folder of compiled objects, for the search for mutable globals
#   tools/check.sh --self-test   plants one violation of each kind in a copy and demands that each is found
#
#   a  includes point only downwards (order of folders below), written relative to src/
#   b  no source file over 1,000 lines
#   c  every header compiles alone
#   d  calls that libraries must not make
#   e  no mutable globals, from the objects' symbol tables
#   f  tensor bytes are touched only where they may be. A search for the usual spellings, not a proof: a cast of a
#      tensor pointer (x->p, x.p) that is dereferenced or indexed, a typed pointer set from in[..].p or out[..].p,
#      and memcpy, memset, memmove, memcmp on one
#   g  nothing speaks of the machine it was written on
set -eu
export LC_ALL=C
cd "$(dirname "$0")/.."

# a: a folder may include itself, and folders of a lower height; peers of one height do not know each other.
HEIGHTS="base:0 ir:1 kernels:2 ops:3 pass:4 exec:5 model:6 ckpt:7 data:7 gen:7 plan:7 metrics:7 train:8 rl:9 cli:10 api:10"
# These know only base. Name and the least height that may include them.
SIDE="comm:2 config:6 tok:7"

# d: places where a call is right. file-glob, name.
ALLOW_CALLS="
src/base/log.c abort
src/base/log.c fprintf_stderr
src/comm/peers.c exit
src/comm/keeper.c exit
src/cli/* *
tests/* *
"
# e: object, symbol, reason
ALLOW_GLOBALS="
src/base/error.o record      the error record, one per thread
src/base/log.o self          who this thread is
src/base/log.o sink_lock     the log sink: one stderr for all ranks
src/base/log.o sink_fn       same
src/base/log.o sink_ctx      same
src/base/log.o sink_level    same
src/cli/signals.o stop_signal    the one flag a signal handler may write
src/cli/signals.o again          with it: was that INT or TERM?
src/cli/signals.o ends           with it: what is said then
src/comm/job.o opened         MPI, which a process has once
src/comm/job.o was_open       that it has been opened
src/comm/job.o terminated     what a signal handler writes before the command's own stands
src/comm/keeper.o launcher     what started the process that keeps this one
"
# f: folders searched, and files in them that are the allocator
BYTES_FOLDERS="ops pass exec model train plan gen metrics rl cli"
ALLOW_BYTES="src/exec/tensor.c"

tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
found=$tmp/found
: >"$found"

sources() { find src tests include examples -type f \( -name '*.c' -o -name '*.h' -o -name '*.def' \) 2>/dev/null | sort; }

# Prints file:line:code with comments and the content of strings blanked, for all files given.
stripped() {
	awk '
	FNR == 1 { inside = 0 }
	{
		out = ""; s = $0; n = length(s)
		# Lines without any of these need no walk.
		if (!inside && s !~ /["\047]|\/[*\/]/) { print FILENAME ":" FNR ":" s; next }
		for (i = 1; i <= n; i++) {
			c = substr(s, i, 1); d = substr(s, i, 2)
			if (inside) { if (d == "*/") { inside = 0; i++; out = out " " } continue }
			if (d == "/*") { inside = 1; i++; continue }
			if (d == "//") break
			if (c == "\"" || c == "\047") {
				out = out c
				for (i++; i <= n; i++) {
					e = substr(s, i, 1)
					if (e == "\\") { i++; continue }
					if (e == c) break
				}
				out = out c
				continue
			}
			out = out c
		}
		print FILENAME ":" FNR ":" out
	}' "$@"
}

# a
check_includes() {
	grep -nE '^[ 	]*#[ 	]*include[ 	]*"' $(sources | grep '^src/') /dev/null |
		awk -F: -v heights="$HEIGHTS" -v side="$SIDE" '
		BEGIN {
			n = split(heights, a, /[ :]/); for (i = 1; i < n; i += 2) height[a[i]] = a[i + 1]
			n = split(side, a, /[ :]/); for (i = 1; i < n; i += 2) { least[a[i]] = a[i + 1]; height[a[i]] = 0.5 }
		}
		{
			split($1, from, "/"); f = from[2]
			split($3, q, "\""); path = q[2]
			slash = index(path, "/"); t = substr(path, 1, slash - 1)
			where = $1 ":" $2 ": "
			if (!(f in height)) print where "folder src/" f " has no place in the order of folders (tools/check.sh)"
			else if (!slash || path ~ /\.\./) print where "include \"" path "\" is not written relative to src/"
			else if (!(t in height)) print where "include \"" path "\" names a folder that has no place in the order"
			else if (t == f) next
			else if (t in least) {
				if (height[f] < least[t]) print where "src/" f " may not include " t "/: only folders above may"
			} else if (f in least) {
				if (t != "base") print where "src/" f " may include base/ only, not " t "/"
			} else if (height[t] >= height[f]) print where "src/" f " may not include " t "/: includes point downwards"
		}'
}

# b
check_sizes() {
	wc -l $(sources) | awk '$2 != "total" && $1 > 1000 { print $2 ":" 1001 ": file has " $1 " lines, 1,000 are allowed" }'
}

# c
check_headers() {
	sources | grep '\.h$' | xargs -r -P 2 -I{} sh -c '
		gcc -std=gnu17 -fsyntax-only -Isrc -Itests -x c "$1" 2>"$2/$(echo "$1" | tr / _).log" && exit 0
		line=$(sed -n "s/^[^:]*:\([0-9]*\):[0-9]*: .*error: .*/\1/p" "$2/$(echo "$1" | tr / _).log" | head -1)
		text=$(sed -n "s/.*error: //p" "$2/$(echo "$1" | tr / _).log" | head -1)
		echo "$1:${line:-1}: header does not compile alone: $text"' sh {} "$tmp"
}

# d. $1 name for the allow list, $2 extended expression searched in the stripped code, $3 text, $4 folders
forbid() {
	local name=$1 expr=$2 text=$3 where=${4-.}
	grep -E "^$where" "$tmp/code" | grep -E "^[^:]*:[0-9]*:(.*[^A-Za-z0-9_.>])?$expr" |
		while IFS=: read -r file line code; do
			allowed=
			while read -r glob what; do
				[ -n "$glob" ] || continue
				# shellcheck disable=SC2053
				if [[ $file == $glob && ($what == '*' || $what == "$name") ]]; then allowed=1; fi
			done <<<"$ALLOW_CALLS"
			[ -n "$allowed" ] || echo "$file:$line: $text"
		done
}

check_calls() {
	forbid exit '(exit|_exit|_Exit|quick_exit)[ ]*\(' 'exit in a library: return a status (only src/cli may end the program)' src/
	forbid abort 'abort[ ]*\(' 'abort in a library: use TT_ASSERT or tt_panic' src/
	forbid printf '(printf|puts|putchar|vprintf)[ ]*\(' 'prints to stdout: only src/cli may' src/
	forbid printf '(fprintf|vfprintf|fputs|fputc|fwrite|putc)[ ]*\(([^;]*,)?[ ]*stdout' 'prints to stdout: only src/cli may' src/
	forbid fprintf_stderr '(fprintf|vfprintf|fputs|fputc|fwrite|putc)[ ]*\(([^;]*,)?[ ]*stderr' 'prints to stderr: use tt_log' src/
	forbid fprintf_stderr 'perror[ ]*\(' 'prints to stderr: use tt_log' src/
	# Of no use anywhere, tests and the command line included.
	grep -E '^[^:]*:[0-9]*:(.*[^A-Za-z0-9_.>])?(strcpy|strcat|sprintf|vsprintf|gets|atoi|atol|atof)[ ]*\(' "$tmp/code" |
		sed -E 's/^([^:]*:[0-9]*):.*/\1: strcpy, strcat, sprintf, gets, atoi: no bound or no error/'
	grep -E '^[^:]*:[0-9]*:(.*[^A-Za-z0-9_.>])?(rand|srand|random|drand48)[ ]*\(' "$tmp/code" |
		sed -E 's/^([^:]*:[0-9]*):.*/\1: rand: its numbers are not the same everywhere, use Philox/'
	local libm='(exp|exp2|exp10|expm1|log|log2|log10|log1p|sin|cos|tan|asin|acos|atan|atan2|sinh|cosh|tanh|pow|cbrt|erf|erfc|tgamma|lgamma|hypot|sincos)(f|l)?[ ]*\('
	forbid libm "$libm" 'libm in a step: its bits differ between machines, use our own function' 'src/(kernels|ops|exec|train)/'
	forbid malloc '(malloc|calloc|realloc|free|aligned_alloc|posix_memalign)[ ]*\(' 'malloc in a kernel: ask for scratch' src/kernels/
}

# e
check_globals() {
	local dir=$1 list=()
	while read -r o; do
		local c=${o#"$dir"/}
		c=${c%.o}
		if [ -e "$c.c" ] || [ -e "${c%.*}.k.c" ]; then list+=("$o"); fi
	done < <(find "$dir/src" -name '*.o' 2>/dev/null | sort)
	if [ ${#list[@]} = 0 ]; then
		echo "$dir:1: no objects to search for mutable globals: build first"
		return
	fi
	objdump -t "${list[@]}" | awk -F'\t' -v dir="$dir/" -v allow="$ALLOW_GLOBALS" '
		BEGIN { n = split(allow, a, "\n"); for (i = 1; i <= n; i++) { split(a[i], b, " "); ok[b[1] " " b[2]] = 1 } }
		/:     file format/ { file = $0; sub(/:     file format.*/, "", file); sub("^" dir, "", file); next }
		NF < 2 { next }
		{
			k = split($1, l, " "); section = l[k]
			split($2, r, " "); size = r[1]; name = r[2]
			if (name == ".hidden") name = r[3]
			sub(/\.[0-9]+$/, "", name)
			if (section ~ /^\.data\.rel\.ro/) next
			if (section !~ /^(\.data|\.bss|\.tdata|\.tbss|\*COM\*)/) next
			if (size ~ /^0*$/ || (file " " name) in ok) next
			source = file
			if (!sub(/\.(ref|f64|avx2|avx512)\.o$/, ".k.c", source)) sub(/\.o$/, ".c", source)
			print source ":1: mutable global " name " in " section ": pass it as an argument, or add it to tools/check.sh with a reason"
		}'
}

# f
check_bytes() {
	local folders=${BYTES_FOLDERS// /|}
	grep -E "^src/($folders)/" "$tmp/code" | awk -F: -v allow="$ALLOW_BYTES" '
		BEGIN { n = split(allow, a, " "); for (i = 1; i <= n; i++) ok[a[i]] = 1 }
		$1 != file { file = $1; ref = 0 }
		{
			code = $0; sub(/^[^:]*:[0-9]*:/, "", code)
			if (code ~ /^[A-Za-z].*[^A-Za-z0-9_]ref_[A-Za-z0-9_]+\(/ && code !~ /;[ ]*$/ && $1 ~ /^src\/ops\//) ref = 1
			if (code ~ /^}/) ref = 0
			if (ref || ($1 in ok)) next
			p = "[A-Za-z_0-9.>-]*(\\[[^]]*\\])?[A-Za-z_0-9.>-]*(->|\\.)p"
			if (code ~ "\\*[ ]*\\([^()]*\\*[^()]*\\)[ ]*\\(?" p "([^A-Za-z0-9_]|$)" ||
			    code ~ "\\(\\([^()]*\\*[^()]*\\)[ ]*\\(?" p "([^A-Za-z0-9_][^()]*)?\\)+[ ]*(\\[|->)" ||
			    code ~ "(float|double|real|tt_bf16|u?int(8|16|32|64)_t)( const)?[ ]*\\*[ ]*(const |restrict )*[A-Za-z_0-9]+ = [^;]*(in|out)(\\[[^]]*\\])(->|\\.)p([^A-Za-z0-9_]|$)" ||
			    code ~ "(memcpy|memmove|memset|memcmp)[ ]*\\([^;]*(in|out)(\\[[^]]*\\])(->|\\.)p([^A-Za-z0-9_]|$)")
				print $1 ":" $2 ": touches tensor bytes: only src/kernels, src/comm, the allocator and ref_* functions in src/ops may"
		}'
}

# g. The words are put together here so that this file does not contain them.
check_paths() {
	local words="(^|[^A-Za-z0-9_.])/(wo""rk|fa""rm)(/|[^A-Za-z0-9_-]|\$)|bash""_jobs|\\.libr""ary([^A-Za-z]|\$)"
	find . -path ./build -prune -o -path ./.git -prune -o -type f -size -4096k -print | sed 's|^\./||' | sort |
		tr '\n' '\0' | xargs -0 -r grep -nIE "$words" /dev/null |
		sed -E 's/^([^:]*:[0-9]+):.*/\1: names a path of one machine/'
}

run_checks() {
	# shellcheck disable=SC2046
	stripped $(sources) >"$tmp/code"
	{
		check_includes || true
		check_sizes || true
		check_headers || true
		check_calls || true
		check_globals "$1" || true
		check_bytes || true
		check_paths || true
	} >"$found" 2>"$tmp/errors"
	# A tool that fails must not look like a tool that found nothing.
	sed 's/^/tools\/check.sh:1: /' "$tmp/errors" >>"$found"
	sort -u -t: -k1,1 -k2,2n -k3 "$found"
	echo "check: $(sources | wc -l) files, $(sort -u "$found" | wc -l) violations"
	[ ! -s "$found" ]
}

# ---- the proof that each kind is found ------------------------------------------------------------------------------

self_test() {
	local copy=$tmp/copy bad=0 n=0
	mkdir -p "$copy/tools"
	cp -r src tests "$copy"
	cp tools/check.sh "$copy/tools"
	local wants=() clean=()
	plant() { # file, line, text expected in the report, code...
		mkdir -p "$copy/$(dirname "$1")"
		wants+=("$1:$2: .*$3")
		local file=$1
		shift 3
		printf '%s\n' "$@" >"$copy/$file"
	}
	innocent() { # file, code...: must not be reported
		mkdir -p "$copy/$(dirname "$1")"
		clean+=("$1")
		local file=$1
		shift
		printf '%s\n' "$@" >"$copy/$file"
	}
	plant src/base/p_up.c 1 'base may not include ir/' '#include "ir/ir.h"'
	plant src/ops/p_peer.c 1 'may not include pass/' '#include "pass/pass.h"'
	plant src/data/p_peer.c 1 'may not include ckpt/' '#include "ckpt/ckpt.h"'
	plant src/ir/p_comm.c 1 'may not include comm/' '#include "comm/comm.h"'
	plant src/tok/p_config.c 1 'may not include config/' '#include "config/config.h"'
	plant src/comm/p_ir.c 1 'may include base/ only' '#include "ir/ir.h"'
	plant src/exec/p_config.c 1 'may not include config/' '#include "config/config.h"'
	plant src/model/p_rel.c 1 'not written relative' '#include "other.h"'
	plant src/novel/p_new.c 1 'no place in the order' '#include "base/base.h"'
	plant src/base/p_long.c 1001 '1002 lines' "$(for ((i = 0; i < 1002; i++)); do echo '//'; done)"
	plant src/base/p_alone.h 1 'does not compile alone' 'size_t p_alone(void);'
	plant src/base/p_exit.c 2 'exit in a library' 'void f(void)' '{ exit(1); }'
	plant src/base/p_abort.c 1 'abort in a library' 'void f(void) { abort(); }'
	plant src/model/p_out.c 1 'prints to stdout' 'void f(void) { printf("x"); }'
	plant src/model/p_out2.c 1 'prints to stdout' 'void f(void) { fputs("x", stdout); }'
	plant src/model/p_err.c 1 'prints to stderr' 'void f(void) { fprintf(stderr, "x"); }'
	plant src/cli/p_copy.c 1 'no bound' 'void f(char *a, char *b) { strcpy(a, b); }'
	plant tests/p_atoi.c 1 'no bound' 'int f(char *a) { return atoi(a); }'
	plant src/data/p_rand.c 1 'Philox' 'int f(void) { return rand(); }'
	plant src/kernels/p_libm.k.c 1 'libm in a step' 'float f(float x) { return 1 + expf(x); }'
	plant src/exec/p_libm.c 1 'libm in a step' 'double f(double x) { return pow (x, 2); }'
	plant src/kernels/p_malloc.c 1 'malloc in a kernel' 'void *f(void) { return malloc(1); }'
	plant src/ops/p_deref.c 1 'tensor bytes' 'float f(const tt_arg *a) { return *(const float *)a->p; }'
	plant src/exec/p_index.c 1 'tensor bytes' 'float f(const tt_call *c) { return ((float *)c->in[0].p)[3]; }'
	plant src/pass/p_pointer.c 1 'tensor bytes' 'void f(const tt_call *c) { const float *x = c->in[0].p; }'
	plant src/train/p_copy.c 1 'tensor bytes' 'void f(const tt_call *c) { memcpy(b, c->out[1].p, 4); }'
	plant docs/p_path.md 2 'path of one machine' 'text' "see /wo""rk/main"
	plant docs/p_path2.md 1 'path of one machine' "in ba""sh_jobs"
	plant src/base/p_global.c 1 'mutable global p_count in .bss' 'int p_count;'
	plant src/base/p_static.c 1 'mutable global p_seen in .data' 'int f(void) { static int p_seen = 3; return p_seen++; }'
	plant src/base/p_tls.c 1 'mutable global p_tls in .tbss' '_Thread_local int p_tls;'
	innocent src/base/p_clean.c '#include "base/base.h"' '/* exit(1), printf("x"); rand() */' \
		'static const char *const names[] = {"exit(1)", "a \" abort()"};' \
		'int my_exit(int); // abort()' 'const char *f(int i) { return names[my_exit(i)]; }'
	innocent src/kernels/p_clean.k.c 'float f(float x) { return tt_expf(x) + sqrtf(x) + fmaf(x, x, x); }'
	innocent src/ops/p_ref.c 'static void ref_add(const tt_call *c)' '{' '	float *y = c->out[0].p;' '	*y = *(float *)c->in[0].p;' '}'
	innocent src/train/p_clean.c '#include "config/config.h"' '#include "comm/comm.h"' '#include "data/data.h"' '#include "tok/tok.h"'
	mkdir -p "$copy/obj/src/base"
	for f in p_global p_static p_tls p_clean; do
		gcc -std=gnu17 -O2 -w -I"$copy/src" -c -o "$copy/obj/src/base/$f.o" "$copy/src/base/$f.c"
	done
	if "$copy/tools/check.sh" "$copy/obj" >"$tmp/said"; then
		echo "self-test: the check passed a tree full of violations"
		bad=1
	fi
	for want in "${wants[@]}"; do
		n=$((n + 1))
		if ! grep -q "^$want" "$tmp/said"; then
			echo "self-test: not found: $want"
			bad=$((bad + 1))
		fi
	done
	for file in "${clean[@]}"; do
		n=$((n + 1))
		if grep "^$file:" "$tmp/said" | grep -v 'does not compile'; then
			echo "self-test: reported without reason: $file"
			bad=$((bad + 1))
		fi
	done
	echo "self-test: $((n - bad)) passed, $bad failed"
	[ "$bad" = 0 ]
}

case "${1-}" in
--self-test) self_test ;;
-*) echo "usage: tools/check.sh [OBJECTS] | --self-test" >&2; exit 2 ;;
*)
	objects=${1-}
	if [ -z "$objects" ]; then
		objects=build/obj/gcc
		[ ! -d build/obj/gcc-werror ] || objects=build/obj/gcc-werror
	fi
	run_checks "$objects"
	;;
esac
