#!/usr/bin/env bash
# Matrix products alone, and against oneDNN where it is: bench/gemm.sh [--quick] [--busy]. Results and bench.md in build/bench-gemm.
#   --quick   a few shapes
#   --busy    for a machine that others use: against oneDNN only, one thread, by the thread's own time
set -euo pipefail
cd "$(dirname "$0")/.."
quick= busy=
for flag; do
	case $flag in
	--quick) quick=--quick ;;
	--busy) busy=--busy ;;
	*) echo "bench/gemm.sh: $flag is no flag: [--quick] [--busy]" >&2; exit 2 ;;
	esac
done
out=build/bench-gemm
mkdir -p "$out"
rm -f "$out"/*.json
make --no-print-directory -j2 build/titan
[ -n "$busy" ] || build/titan bench gemm $quick --json >"$out/gemm.json"
if make --no-print-directory build/bench/onednn_gemm; then
	build/bench/onednn_gemm $quick $busy >"$out/onednn.json"
else
	echo "bench: oneDNN is not there (Debian: libdnnl-dev), left out"
fi
build/titan bench report "$out"
cat "$out/bench.md"
