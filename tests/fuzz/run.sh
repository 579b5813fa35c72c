#!/usr/bin/env bash
# Runs fuzz targets one after another: tests/fuzz/run.sh SECONDS TARGET...   The last line is "N passed, N failed".
# What was found lies in build/fuzz/findings; inputs that reached something new are kept in build/fuzz/corpus for the next time.
set -eu
export LC_ALL=C
cd "$(dirname "$0")/../.."

# Longest input, bytes: long enough for every construct, short enough for thousands of runs a second.
most() {
	case $1 in
	toml | hashes) echo 1024 ;;
	config | safetensors | safetensors_index | hf_config | metrics_jsonl) echo 2048 ;;
	*) echo 3072 ;;
	esac
}

seconds=$1 passed=0 failed=0
shift
mkdir -p build/fuzz/findings
TMPDIR=$(mktemp -d -p /dev/shm)
export TMPDIR
trap 'rm -rf "$TMPDIR"' EXIT
for name; do
	corpus=build/fuzz/corpus/$name log=build/fuzz/$name.log
	build/fuzz/"$name" --seeds="$corpus" --dict="build/fuzz/$name.dict"
	rc=0
	nice -n 19 build/fuzz/"$name" -max_total_time="$seconds" -max_len="$(most "$name")" -dict="build/fuzz/$name.dict" -timeout=20 \
		-rss_limit_mb=2048 -print_final_stats=1 -artifact_prefix="build/fuzz/findings/$name-" "$corpus" >"$log" 2>&1 || rc=$?
	awk -v name="$name" -v rc="$rc" -v log_="$log" '
		/ cov: / { for (i = 1; i < NF; i++) if ($i == "cov:") { if (first == "") first = $(i + 1); last = $(i + 1) } }
		/^stat::number_of_executed_units:/ { runs = $2 }
		/^stat::average_exec_per_sec:/ { rate = $2 }
		/Test unit written to/ { unit = $NF }
		END {
			printf "%-18s %10d runs, %6d/s, coverage %5d -> %5d: ", name, runs, rate, first, last
			if (rc == 0) print "no finding"
			else print "FINDING " unit " (" log_ ")"
		}' "$log"
	if [ "$rc" = 0 ]; then passed=$((passed + 1)); else failed=$((failed + 1)); fi
done
echo "$passed passed, $failed failed"
[ "$failed" = 0 ]
