#!/bin/sh
# Proves plans of several models and prints what was proven as docs/proof.md: tools/proof.sh [BIN] > docs/proof.md
set -u
bin=${1:-build}
log=$(mktemp -d)
trap 'rm -rf "$log"' EXIT

# NAME | verify's flags
models() {
	cat <<'END'
grouped heads (4 over 2), bf16 | 
vocabulary 61, biases, untied, float32 | --model.vocab_size=61 --model.attention_bias=true --model.mlp_bias=true --training.mixed_precision_param=float32
tied, one kv head for 8, a window, bf16 | --model.num_attention_heads=8 --model.head_dim=8 --model.num_key_value_heads=1 --model.tie_word_embeddings=true --model.sliding_window=40
8 heads of their own, vocabulary 61, tied, bf16 | --model.num_attention_heads=8 --model.head_dim=8 --model.num_key_value_heads=8 --model.vocab_size=61 --model.tie_word_embeddings=true
6 heads over 3, biases, SGD, float32 | --model.num_attention_heads=6 --model.head_dim=16 --model.num_key_value_heads=3 --model.attention_bias=true --model.mlp_bias=true --optimizer.name=SGD --training.mixed_precision_param=float32
END
}

# One row of a table: the model, what was said at the end. `launcher` stands before the program.
launcher=
row() {
	name=$1
	shift
	out=$log/$(echo "$launcher $name $*" | cksum | cut -d' ' -f1)
	$launcher "$bin/titan" verify configs/debug.toml --data.source=synthetic "$@" > "$out" 2>&1 </dev/null || touch "$log/failed"
	sed -n 's/^\([0-9]*\) mesh[es]* proven[^:]*:\(.*\); \([0-9]*\) differ[s]*; \([0-9]*\) [a-z]* not legal; \([0-9.]*\) s$/\1 | \3 | \4 | \5/p' "$out" | sed "s/^/| $name | /; s/\$/ |/"
	grep -aq "mesh[es]* proven" "$out" || { touch "$log/failed"; echo "| $name | failed: $(tail -n 1 "$out") | | | |"; }
	grep -a -A1 -e DIFFERS -e FAILED -e REFUSED "$out" >&2
}

head='| model | meshes proven | that differ | not legal | seconds |
|---|---|---|---|---|'

echo '# What was proven'
echo
echo "Made by \`tools/proof.sh\` (\`make proof\`) on $(date -u +%Y-%m-%d), version $("$bin/titan" --version | head -n 1), $(nproc) CPUs."
echo
echo 'Each row is every way to write 2 to 8 ranks as dp_replicate x dp_shard x cp x tp, tp with and without sequence parallel, cp by gather, head swap and ring, ranks as'
echo 'threads where nothing else is said, against one rank on the same rows: documents of uneven length, one label in seven ignored and one row without any, microbatches of 1 to 3 rows, all kept or all made again,'
echo 'parameters gathered once, by layer or always, with and without overlap.'
echo
echo '## Exact numerics: training'
echo
echo 'Three steps from the start, a save, two steps from the save that the mesh before made; at last one rank goes on from the last mesh. After each step the loss,'
echo 'the gradient norm and every bit of every parameter and optimizer state are those of one rank, and in step 1 every value of every program; the mesh'\''s graph without'
echo 'its conversions is the graph of one rank, text for text.'
echo
echo "$head"
models | while IFS='|' read -r name flags; do
	row "$(echo "$name" | sed 's/ *$//')" $flags
done
row '64 ranks: dp_shard 4, cp 4, tp 4, sequence parallel' --model.num_attention_heads=8 --model.head_dim=8 --model.num_key_value_heads=4 --meshes=dp_shard=4,cp=4,tp=4,sp --steps=2
echo
echo '## Exact numerics: ranks as processes'
echo
echo 'The same over MPI: one job of 8 ranks on these CPUs, a mesh of fewer being its first ranks; saves and resumes go from mesh to mesh as above.'
echo
echo "$head"
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
for m in openmpi mpich; do
	[ $m = openmpi ] && by='Open MPI' flags=--oversubscribe || by=MPICH flags=
	if ! command -v mpiexec.$m >/dev/null || [ ! -r "$bin/titan-mpi-$m.so" ]; then
		echo "| $by is not installed | | | | |"
		continue
	fi
	launcher="mpiexec.$m $flags -n 8"
	models | while IFS='|' read -r name flags; do
		row "$by: $(echo "$name" | sed 's/ *$//')" $flags --backend=mpi
	done
done
launcher=
echo
echo '## Fast numerics: the forward'
echo
echo 'Each token'\''s hidden states and loss have the bits of one rank, for tp 1, 2, 4, 8 and any dp and cp: reductions over tp go on with the tree in which one rank joins'
echo 'its segments. Gradients are not promised.'
echo
echo "$head"
models | while IFS='|' read -r name flags; do
	row "$(echo "$name" | sed 's/ *$//')" $flags --numerics=fast
done
echo
echo '## That it can fail'
echo
echo 'Faults made on purpose, each at a drawn layer and rank; the report must name the value, the axis, the rank or the row. What it said, cut short:'
echo
echo '| fault | said |'
echo '|---|---|'
"$bin/titan-test" --tier=proof --no-fork verify_faults.all > "$log/faults" 2>&1 || touch "$log/failed"
grep -a ': ' "$log/faults" | grep -v -e '^run ' -e '^FAIL' -e ' cases in ' | awk -F': ' '!seen[$1]++ { said = substr($0, length($1) + 3); sub(/; so after step.*/, "", said); gsub(/\|/, "\\|", said); printf "| %s | %s |\n", $1, substr(said, 1, 230) }'
echo
tail -n 1 "$log/faults"
[ ! -e "$log/failed" ]
