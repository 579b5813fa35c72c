#!/usr/bin/env bash
# Does what a page of docs/ says on a copy of the tree, builds it and runs the op tests: doc_test.sh docs/adding-an-op.md
#   ```append:PATH   the block is appended to PATH        ```file:PATH   the block is PATH, which must not exist yet
set -eu
page=$(realpath "$1")
root=$(cd "$(dirname "$0")/.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$work/build"
cp -a "$root/src" "$root/tests" "$root/tools" "$root/configs" "$root/docs" "$root/include" "$root/examples" "$root/Makefile" "$work/"
[ -d "$root/build/obj" ] && cp -a "$root/build/obj" "$work/build/"
cd "$work"
awk '
	/^```append:/ { out = substr($0, 11); mode = "append"; next }
	/^```file:/ { out = substr($0, 9); if ((getline line < out) >= 0) { print out ": exists already" > "/dev/stderr"; exit 1 }; mode = "file"; next }
	/^```/ { out = ""; next }
	out != "" { if (mode == "append") print >> out; else print > out; n++ }
	END { if (!n) { print "no blocks found" > "/dev/stderr"; exit 1 } }
' "$page"
make -s -j2 build/titan build/titan-test
./build/titan ops | grep -q '^relu2 ' || { echo "titan ops does not list the new op"; exit 1; }
./build/titan-test ops sums layout > out.txt 2>&1 || { tail -n 40 out.txt; exit 1; }
tail -n 1 out.txt
# A test that cannot fail is none: with a wrong gradient the same run must fail.
sed -i 's/2 \* x \* dy/3 * x * dy/' src/ops/relu2.c
make -s -j2 build/titan-test
if ./build/titan-test ops > out.txt 2>&1; then
	echo "a wrong gradient of the new op was not noticed"
	exit 1
fi
echo "adding an op works as written, and a wrong gradient is noticed"
