#!/usr/bin/env bash
# make install into a folder, then uses what is there as somebody else would: header, pkg-config, both libraries, pages, completions.
#   tests/install_test.sh FOLDER     FOLDER: an empty one
# Exits 1 at the first thing that is wrong. What needs a tool that is not here says so and is left out.
set -euo pipefail
export LC_ALL=C
cd "$(dirname "$0")/.."
tmp=$(cd "${1:?an empty folder}" && pwd)
root=$tmp/root
at=$root/opt/titan
unset MAKEFLAGS MAKELEVEL

fail() { echo "install_test: $*"; exit 1; }
have() { type -P "$1" >/dev/null || { echo "install_test: no $1 here: left out"; return 1; }; }
same() { # what, wanted file, got file
	diff -u "$2" "$3" || fail "$1: see above (- wanted, + got)"
}

make -s install DESTDIR="$root" prefix=/opt/titan >"$tmp/make.log" 2>&1 || { cat "$tmp/make.log"; fail "make install"; }
titan=$at/bin/titan
version=$(sed -n 's/.*define TITAN_VERSION "\([0-9.]*\)".*/\1/p' include/titan.h)

# ---- the tree: exactly this
{
	echo bin/titan
	echo include/titan.h
	echo lib/libtitan.a
	echo "lib/libtitan.so -> libtitan.so.${version%%.*}"
	echo "lib/libtitan.so.${version%%.*} -> libtitan.so.$version"
	echo "lib/libtitan.so.$version"
	echo lib/pkgconfig/titan.pc
	for mpi in openmpi mpich; do ! type -P "mpicc.$mpi" >/dev/null || echo "lib/titan/titan-mpi-$mpi.so"; done
	echo share/bash-completion/completions/titan
	echo share/fish/vendor_completions.d/titan.fish
	echo share/zsh/site-functions/_titan
	echo share/doc/titan/LICENSE
	echo share/doc/titan/README.md
	for f in docs/*.md; do echo "share/doc/titan/${f#docs/}"; done
	for f in configs/*.toml examples/*; do echo "share/doc/titan/examples/${f#*/}"; done
	echo share/man/man1/titan.1
	"$titan" help | sed -n 's|^  titan \([a-z]*\) .*|share/man/man1/titan-\1.1|p'
	echo share/man/man5/titan.toml.5
} | sort -u >"$tmp/tree.want"
(cd "$root/opt/titan" && find . \( -type f -o -type l \) \( -type l -printf '%P -> %l\n' -o -printf '%P\n' \)) | sort >"$tmp/tree.got"
same "installed files" "$tmp/tree.want" "$tmp/tree.got"
[ "$(find "$root" -mindepth 1 -maxdepth 2 | sort | tr '\n' ' ')" = "$root/opt $root/opt/titan " ] || fail "something lies outside the prefix"
[ -z "$(find "$root" -type f -empty)" ] || fail "empty: $(find "$root" -type f -empty)"

# ---- names: the header's, the libraries'
declared() { sed -n 's/^[a-z].*[ *]\(titan_[a-z_]*\)(.*/\1/p' "$1" | grep -v '_fn$' | sort; }
declared "$at/include/titan.h" >"$tmp/names.want"
[ "$(wc -l <"$tmp/names.want")" -ge 13 ] || fail "only $(wc -l <"$tmp/names.want") functions found in titan.h"
nm -D --defined-only "$at/lib/libtitan.so" | awk '$2 != "A" { sub(/@.*/, "", $3); print $3 }' | sort >"$tmp/names.so"
nm -g --defined-only "$at/lib/libtitan.a" | awk 'NF == 3 { print $3 }' | sort >"$tmp/names.a"
same "names of libtitan.so" "$tmp/names.want" "$tmp/names.so"
same "names of libtitan.a" "$tmp/names.want" "$tmp/names.a"
# The search itself: a function that is declared and not there is seen.
{ cat "$at/include/titan.h"; echo 'titan_status titan_missing(void);'; } >"$tmp/more.h"
! diff -q <(declared "$tmp/more.h") "$tmp/names.so" >/dev/null || fail "a function missing in the library is not noticed"
objdump -p "$at/lib/libtitan.so" | grep -c "SONAME *libtitan.so.${version%%.*}\$" >/dev/null || fail "soname"
objdump -t "$at/lib/libtitan.so" | grep -c TEXTREL >/dev/null && fail "libtitan.so has text relocations"

# ---- the header alone
! grep '#include "' "$at/include/titan.h" || fail "titan.h includes a header of ours"
${CC:-gcc} -std=c99 -pedantic -Wall -Wextra -Wstrict-prototypes -Werror -fsyntax-only -x c "$at/include/titan.h" || fail "titan.h in C99"
if have g++; then g++ -std=c++98 -pedantic -Wno-long-long -Wall -Wextra -Werror -fsyntax-only -x c++ "$at/include/titan.h" || fail "titan.h in C++"; fi

# ---- ranks as processes: the plug-ins are found
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
for mpi in openmpi mpich; do
	[ -e "$at/lib/titan/titan-mpi-$mpi.so" ] && have "mpiexec.$mpi" || continue
	flags=() && [ $mpi = mpich ] || flags=(--oversubscribe)
	"mpiexec.$mpi" "${flags[@]}" -n 2 "$titan" train configs/debug.toml --training.steps=1 --checkpoint.enable=false --job.dump_folder="$tmp/run.$mpi" \
		>"$tmp/mpi.log" 2>&1 || { cat "$tmp/mpi.log"; fail "two ranks under $mpi"; }
done

# ---- the example, against what is installed
runs() { # program, environment
	local out
	out=$(env "${@:2}" "$1" configs/debug.toml --training.steps=3 --validation.fraction=0.2 --checkpoint.enable \
		--job.dump_folder="$tmp/run.$(basename "$1")" --hardware.threads=1 2>"$tmp/example.log") || { cat "$tmp/example.log"; fail "$1 fails"; }
	for part in 'titan 0' 'step 3  loss' 'held out: loss' 'log p(' 'saved'; do
		[[ $out == *"$part"* ]] || { echo "$out"; fail "$1 does not print: $part"; }
	done
	[ -e "$tmp/run.$(basename "$1")/checkpoint/step-00000003/COMPLETE" ] || fail "$1 leaves no checkpoint"
}
# What pkg-config says; where there is none, what it would say.
pc() {
	if type -P pkg-config >/dev/null; then
		PKG_CONFIG_PATH=$at/lib/pkgconfig PKG_CONFIG_SYSROOT_DIR=$root pkg-config "$@" titan
	else
		local only='Cflags|Libs'
		[ "$1" != --static ] || only='Cflags|Libs|Libs.private'
		sed -nE "s/^($only): //p" "$at/lib/pkgconfig/titan.pc" | sed "s|\${includedir}|$at/include|; s|\${libdir}|$at/lib|" | tr '\n' ' '
	fi
}
if have pkg-config; then [ "$(pc --modversion)" = "$version" ] || fail "titan.pc has another version"; fi
[[ "$(pc --libs)" != *xsmm* ]] || fail "titan.pc: a shared link does not need what libtitan.so stands on"
# shellcheck disable=SC2046
${CC:-gcc} -std=c99 -Wall -Wextra -Werror "$at/share/doc/titan/examples/train.c" -o "$tmp/shared" $(pc --cflags --libs) || fail "shared link"
# shellcheck disable=SC2046
${CC:-gcc} -std=c99 "$at/share/doc/titan/examples/train.c" -o "$tmp/static" $(pc --static --cflags --libs | sed 's/-ltitan/-l:libtitan.a/') || fail "static link"
[[ "$(ldd "$tmp/shared")" == *"libtitan.so.${version%%.*} => not found"* ]] || fail "the shared program does not ask for libtitan.so.${version%%.*}"
! ldd "$tmp/static" | grep -c libtitan >/dev/null || fail "the static program asks for libtitan.so"
runs "$tmp/shared" "LD_LIBRARY_PATH=$at/lib"
runs "$tmp/static" A=a
"$titan" config "$at/share/doc/titan/examples/debug.toml" >"$tmp/config" || fail "the installed titan"

# ---- manual pages: no warning, and every key of the config is there
groff=
if have groff; then groff=yes; fi
for page in "$at"/share/man/man?/*; do
	if [ -n "$groff" ]; then
		groff -man -ww -z -Tutf8 "$page" 2>"$tmp/groff.log" || fail "groff fails on $page"
		[ ! -s "$tmp/groff.log" ] || { cat "$tmp/groff.log"; fail "groff warns about $page"; }
	fi
	if type -P mandoc >/dev/null; then
		! mandoc -Tlint -Wwarning "$page" | grep -v 'missing date' || fail "mandoc warns about $page"
	fi
done
awk '/^\[/ { s = substr($1, 2, length($1) - 2); next } / = / { print s "." $1 }' "$tmp/config" | sort >"$tmp/keys.want"
sed -n 's/^\\fB\([a-z_0-9]*\.[a-z_0-9]*\)\\fR = .*/\1/p' "$at/share/man/man5/titan.toml.5" | sort >"$tmp/keys.got"
same "keys in titan.toml.5" "$tmp/keys.want" "$tmp/keys.got"

# ---- completions
bash -n "$at/share/bash-completion/completions/titan" || fail "the bash completion is no bash"
cat >"$tmp/complete.sh" <<'END'
. "$1"
line=$2
[ $# = 2 ] || COMP_WORDBREAKS=$3
COMP_LINE=$line COMP_POINT=${#line}
_titan
printf '%s\n' "${COMPREPLY[*]-}"
END
completes() { # line, what is offered
	local got
	got=$(bash "$tmp/complete.sh" "$at/share/bash-completion/completions/titan" "$1" $' \t\n"\'><=;|&(:')
	[ "$got" = "$2" ] || fail "\"$1\" is completed to \"$got\", wanted \"$2\""
}
completes 'titan tr' train
completes 'titan train --training.st' --training.steps=
completes 'titan train --training.context' --training.context_length=
completes 'titan train run.toml --training.dtype=' 'float32 float64'
completes 'titan train --training.dtype=float6' float64
completes 'titan train --checkpoint.enable=t' true
completes 'titan train --dump=graph,pro' graph,program
completes 'titan train --data.paths=configs/deb' configs/debug.toml
completes 'titan train configs/deb' configs/debug.toml
completes 'titan train --thr' --threads=
completes 'titan train --kernels=' 'fast ref'
completes 'titan plot a b --x=to' tokens
completes 'titan ckpt ver' verify
completes 'titan ops --tr' ''
completes 'titan help --completion=z' zsh
got=$(bash "$tmp/complete.sh" "$at/share/bash-completion/completions/titan" 'titan train --training.dtype=float6' $' \t\n')
[ "$got" = --training.dtype=float64 ] || fail "without = in COMP_WORDBREAKS: $got"
if type -P zsh >/dev/null; then zsh -n "$at/share/zsh/site-functions/_titan" || fail "the zsh completion is no zsh"; fi
if type -P fish >/dev/null; then
	fish -n "$at/share/fish/vendor_completions.d/titan.fish" || fail "the fish completion is no fish"
	fish_says() { fish --no-config -c "source $at/share/fish/vendor_completions.d/titan.fish; complete -C '$1'" | cut -f1 | tr '\n' ' '; }
	[ "$(fish_says 'titan tr')" = 'train ' ] || fail "fish: titan tr: $(fish_says 'titan tr')"
	[[ "$(fish_says 'titan train --training.st')" == '--training.steps'* ]] || fail "fish: $(fish_says 'titan train --training.st')"
	[[ "$(fish_says 'titan train --training.dtype=')" == *float64* ]] || fail "fish: $(fish_says 'titan train --training.dtype=')"
fi

# ---- folders of one's own, and away again
make -s install DESTDIR="$tmp/other" prefix=/usr libdir=/usr/lib/there mandir=/usr/man >"$tmp/make.log" 2>&1 || fail "make install libdir="
for f in lib/there/libtitan.so lib/there/pkgconfig/titan.pc man/man1/titan.1; do
	[ -e "$tmp/other/usr/$f" ] || fail "libdir= or mandir= is not obeyed: no /usr/$f"
done
grep -q '^libdir=/usr/lib/there$' "$tmp/other/usr/lib/there/pkgconfig/titan.pc" || fail "titan.pc names another libdir"
touch "$at/lib/not-ours" "$at/share/doc/titan/not-ours"
make -s uninstall DESTDIR="$root" prefix=/opt/titan || fail "make uninstall"
[ "$(find "$root" ! -type d | sort | tr '\n' ' ')" = "$at/lib/not-ours $at/share/doc/titan/not-ours " ] || fail "after uninstall: $(find "$root" ! -type d)"
echo "install_test: all as it should be"
