#!/usr/bin/env bash
# Installs what titan.c is built with, on Debian and its relatives. Does nothing where all is there.
#   tools/deps.sh         to build, test and run the demo
#   tools/deps.sh demo    also what `make demo` compares with and learns
#   tools/deps.sh mpi     MPIs, whose tests are skipped without: says what is missing, installs it where it may, and never fails
#   tools/deps.sh lint    also what `make lint` and the sanitizers use
set -eu

# package            why
BUILD="\
gcc                  the compiler
libc6-dev            the C library's headers
make                 the build
libxsmm-dev          matrix products compiled at run time
libjansson-dev       JSON: config.json, safetensors headers
libxxhash-dev        checksums"
DEMO="\
gzip                 a size to compare the demo's model with
xz-utils             another
linux-libc-dev       the headers under /usr/include/linux that it learns"
LINT="\
clang                the second compiler
cppcheck             static checks
pkg-config           the test of the installed library
groff                the test of the man pages
g++                  the test that titan.h is C++ too
libclang-rt-14-dev   clang's sanitizers"
MPI="\
libopenmpi-dev       ranks as processes under Open MPI: the plug-in
openmpi-bin          its mpiexec
libmpich-dev         the same under MPICH
mpich                its mpiexec
iproute2             the test of ranks in two network namespaces"
# By hand only: golang-github-burntsushi-toml-dev carries the public toml-test cases.

list=$BUILD
case "${1-}" in
"") ;;
demo) list="$BUILD"$'\n'"$DEMO" ;;
lint) list="$BUILD"$'\n'"$LINT" ;;
mpi) list=$MPI ;;
*) echo "tools/deps.sh: unknown argument '$1'; there are: demo, mpi, lint" >&2; exit 2 ;;
esac

# Says whether a package is there by a file of it, which costs no process and also sees what was installed by other means.
has() {
	case $1 in
	gcc | g++ | make | clang | cppcheck | gzip | groff | pkg-config) type -P "$1" >/dev/null ;;
	libc6-dev) have_header stdlib.h ;;
	libxsmm-dev) have_header libxsmm.h ;;
	libjansson-dev) have_header jansson.h ;;
	libxxhash-dev) have_header xxhash.h ;;
	xz-utils) type -P xz >/dev/null ;;
	linux-libc-dev) have_header linux/version.h ;;
	libopenmpi-dev) type -P mpicc.openmpi >/dev/null ;;
	openmpi-bin) type -P mpiexec.openmpi >/dev/null ;;
	libmpich-dev) type -P mpicc.mpich >/dev/null ;;
	mpich) type -P mpiexec.mpich >/dev/null ;;
	iproute2) type -P ip >/dev/null ;;
	libclang-rt-14-dev) compgen -G '/usr/lib/llvm-*/lib/clang/*/lib/linux/libclang_rt.asan-*.a' >/dev/null ;;
	*) dpkg-query -W -f '${Status}' "$1" 2>/dev/null | grep -q '^install ok installed$' ;;
	esac
}
have_header() { [ -e "/usr/include/$1" ] || [ -e "/usr/local/include/$1" ]; }

missing=() reasons=
while read -r name why; do
	if ! has "$name"; then
		missing+=("$name")
		reasons+=$(printf '    %-20s %s' "$name" "$why")$'\n'
	fi
done <<<"$list"
[ ${#missing[@]} -gt 0 ] || exit 0
optional=
if [ "${1-}" = mpi ]; then
	optional=1
	if ! type -P apt-get >/dev/null || [ "$(id -u)" != 0 ]; then
		printf 'Not installed, so the tests that use it are skipped (sudo apt-get install %s):\n%s' "${missing[*]}" "$reasons"
		exit 0
	fi
fi

if ! type -P apt-get >/dev/null; then
	printf 'titan.c needs what Debian calls: %s\nThis system has no apt-get. Install the same libraries by its own means:\n%s' \
		"${missing[*]}" "$reasons" >&2
	exit 1
fi
if [ "$(id -u)" != 0 ]; then
	printf 'titan.c needs packages that are not installed:\n%sInstalling them needs root:  sudo apt-get install %s\n' \
		"$reasons" "${missing[*]}" >&2
	exit 1
fi
printf 'Installing with apt-get:\n%s' "$reasons"

# Package lists may be absent (a fresh container) or name versions that are gone: fetched only then.
export DEBIAN_FRONTEND=noninteractive
log=$(mktemp)
trap 'rm -f "$log"' EXIT
install() { apt-get install -y -q --no-install-recommends "${missing[@]}" >"$log" 2>&1; }
if ! install; then
	echo "Fetching the package lists first (apt-get update)"
	if ! apt-get update -q >"$log" 2>&1 || ! install; then
		if [ -n "$optional" ]; then
			echo "apt-get could not install ${missing[*]}: the tests that use it are skipped"
			exit 0
		fi
		cat "$log" >&2
		echo "tools/deps.sh: apt-get could not install: ${missing[*]}" >&2
		exit 1
	fi
fi
