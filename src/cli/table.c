/* table.c: the commands. Help, exit codes, docs/cli.md, manual pages and completions follow from it. */
#include "base/version.h"
#include "cli/pages.h"
#include "kernels/kernels.h"

#define CONFIG_ARGUMENT { "CONFIG", "a TOML file (configs/ has examples); without one, all keys have their defaults" }

const tt_command tt_commands[] = {
	{ "train", "titan train CONFIG [FLAGS]", "train as the config says", tt_cmd_train, { CONFIG_ARGUMENT },
	  { "titan train configs/debug.toml", "titan train configs/demo.toml --training.steps=1000 --dump=memory" } },
	{ "demo", "titan demo [CONFIG] [FLAGS]", "train on the C headers of this machine, then compare with gzip and xz on held-out ones", tt_cmd_demo,
	  { { "CONFIG", "a TOML file instead of configs/demo.toml" } }, { "titan demo", "titan demo --training.steps=100 --job.dump_folder=/tmp/demo" } },
	{ "config", "titan config [CONFIG] [FLAGS] | titan config --doc", "print the resolved config, or the reference of all keys", tt_cmd_config,
	  { CONFIG_ARGUMENT, { "--doc", "print the reference of all keys, in Markdown" } },
	  { "titan config configs/debug.toml > whole.toml", "titan config --model.flavor=8B" } },
	{ "plot", "titan plot RUN... [--out=FILE.svg] [--x=step|tokens|time] [--metric=loss,tokens_per_s] [--smooth=N] [--log]",
	  "draw curves of runs' metrics.jsonl, overlaid, as SVG", tt_cmd_plot,
	  { { "RUN...", "folders of runs (job.dump_folder), or their metrics.jsonl" },
	    { "--out=FILE.svg", "where to; `-` is the standard output; plot.svg if not given" },
	    { "--x=step|tokens|time", "what lies along the axis; step if not given" },
	    { "--metric=loss,tokens_per_s", "names of numbers in metrics.jsonl, one plot each; these two if not given" },
	    { "--smooth=N", "mean over N steps" },
	    { "--log", "logarithmic axis upwards" } },
	  { "titan plot outputs", "titan plot a b --metric=loss,grad_norm --x=tokens --smooth=20 --out=both.svg" } },
	{ "doctor", "titan doctor [CONFIG] [--json] [--measure] [FLAGS]",
	  "processor, kernels, measured peaks and libraries, and limits of this machine that will hurt a run, each with its remedy; with CONFIG, whether its plan fits: memory by region, checkpoints on disk, slow kernels; exits with 0 whatever it finds",
	  tt_cmd_doctor,
	  { { "CONFIG", "a TOML file: its plan is compiled and compared with this machine, nothing is run" }, { "--json", "print JSON" }, { "--measure", "measure peaks again, also if they are cached" } },
	  { "titan doctor", "titan doctor run.toml --measure --json" } },
	{ "plan", "titan plan CONFIG [--memory=GiB] [--json] [--timeline=FILE.svg] [--layouts] [FLAGS]",
	  "what a run on its mesh would need and do, of which nothing is run: memory of the worst rank, communication by group, FLOPs, a first guess at time (docs/plan.md); exit code 1 if it does not fit",
	  tt_cmd_plan,
	  { CONFIG_ARGUMENT,
	    { "--memory=GiB", "what a rank may have; of hardware.table if not given" },
	    { "--json", "print JSON" },
	    { "--timeline=FILE.svg", "draw a step of the estimate: what computes and what communicates when" },
	    { "--layouts", "print the table of layouts alone: its rows and what they match, where every value lies on the mesh, what is converted (docs/layout-types.md)" } },
	  { "titan plan configs/llama3-405b.toml", "titan plan run.toml --ranks=64 --parallelism.tensor_parallel_degree=8 --hardware.table=h100" } },
	{ "ckpt", "titan ckpt inspect DIR [--hash] | verify DIR | export DIR OUT [--dtype=float32|bfloat16|float16|imported]",
	  "look into a checkpoint, check every byte of it, write it as a plain Hugging Face folder", tt_cmd_ckpt,
	  { { "DIR", "a checkpoint, a run's folder or the one of its checkpoints (the latest is taken, verify takes all), or a Hugging Face model" },
	    { "OUT", "the folder to write" },
	    { "--hash", "inspect: a hash of every tensor's bytes too" },
	    { "--dtype=float32|bfloat16|float16|imported", "export: of the tensors; `imported`, the default: as they came" } },
	  { "titan ckpt verify outputs/checkpoint", "titan ckpt export outputs/checkpoint model --dtype=bfloat16" } },
	{ "diff", "titan diff RUN_A RUN_B [--all] [--limit=N]",
	  "the first value, op and step at which two runs part, from what debug.record_hashes wrote; exit code 0 equal, 1 different", tt_cmd_diff,
	  { { "RUN_A, RUN_B", "folders of runs (job.dump_folder), or their hashes.bin" },
	    { "--all", "list all values that differ" },
	    { "--limit=N", "list at most N values that differ; 10 if not given" } },
	  { "titan diff a b", "titan diff a/hashes.bin b/hashes.bin --limit=3" } },
	{ "bench",
	  "titan bench train [--preset=dense-20m|dense-100m|debug] [--dtype=bf16|f32] [--steps=N] [--threads=N] [--json] [FLAGS] | gemm [--quick] | attention [--quick] | "
	  "startup [--runs=N] | comm [--ranks=N] | overlap [CONFIG] [--ranks=N] [--mesh=NAME] [--delay=US] [FLAGS] | passes [FLAGS] | report DIR",
	  "measure this machine's speed: training steps, matrix products, attention, start-up, talk between ranks, what of it computation hides, what optional passes (or any flags) bring; join results (docs/bench.md)", tt_cmd_bench,
	  { { "DIR", "report: the folder of results that `make bench` made" },
	    { "--preset=dense-20m|dense-100m|debug", "train, overlap, passes: the model; dense-20m if not given" },
	    { "--dtype=bf16|f32", "train, overlap, passes: of weights in use and activations; bf16 if not given" },
	    { "--steps=N", "train, passes: steps that are timed, after two that warm up; overlap: rounds of four; 8 if not given" },
	    { "--threads=N", "compute threads; as many as may run at once if not given" },
	    { "--quick", "gemm, attention: a few shapes" },
	    { "--runs=N", "startup: processes of each kind; 10 if not given" },
	    { "--ranks=N", "comm, overlap: threads, 2 if not given; comm under mpiexec: its processes" },
	    { "--mesh=NAME", "overlap: FSDP, HSDP, DDP, TP, CP gather, CP head_swap, CP ring; all that the ranks make if not given" },
	    { "--delay=US", "overlap: how long an exchange takes; as long as the computation for each has room for if not given" },
	    { "--json", "print JSON" } },
	  { "titan bench train --preset dense-100m --dtype f32", "titan bench gemm --json" } },
	{ "verify", "titan verify CONFIG [--ranks=N | --mesh=AXIS=DEGREE,... | --meshes=all|LIST] [--steps=N] [--numerics=exact|fast] [--backend=threads|mpi] [--full] [FLAGS]",
	  "prove parallel plans: every legal mesh gives the bits of one rank, saved and resumed from mesh to mesh; else the first value that differs, the conversion "
	  "and the row of the plan; exit code 1 if one does not", tt_cmd_verify,
	  { CONFIG_ARGUMENT,
	    { "--ranks=N", "meshes of 2 to N ranks; 8, or as many as a launcher started, if not given" },
	    { "--meshes=all|LIST", "these meshes alone, separated by \";\": \"dp_shard=2,tp=2,nosp; cp=4,ring,cost\"; axes are dp_replicate, dp_shard, cp, tp; beside tp sp or nosp, beside cp a method and a balancer, else as the config says" },
	    { "--mesh=AXIS=DEGREE,...", "one mesh alone" },
	    { "--steps=N", "steps of training before the save, two more come after the resume; 3 if not given" },
	    { "--numerics=exact|fast", "exact: all bits of training (if not given); fast: what that promises, the forward's bits" },
	    { "--backend=threads|mpi", "ranks as threads, or as the processes that mpiexec or srun started; as it was started if not given" },
	    { "--full", "the model and the data as they are; else the smallest model of the same divisibility on made-up rows" } },
	  { "titan verify configs/debug.toml --ranks=4", "titan verify run.toml --meshes=\"dp_shard=2,tp=2; cp=4\" --full" } },
	{ "ops", "titan ops", "print the op table", tt_cmd_ops, { { 0 } }, { "titan ops", "titan ops | grep attention" } },
	{ 0 },
};

const tt_command *tt_command_find(const char *name, const char **near)
{
	const char *names[64] = { "help", "--help", "--version" };
	int n = 3;
	for (const tt_command *c = tt_commands; c->name; c++) {
		if (!strcmp(c->name, name))
			return c;
		TT_ASSERT(n < TT_COUNT(names), "%d commands", n);
		names[n++] = c->name;
	}
	*near = tt_nearest(name, names, n);
	return NULL;
}

/* Flags that everybody types have a short spelling. */
const tt_short_flag tt_short_flags[] = {
	{ "--dump=", "--debug.dump=", "graph, program, memory: print it before the first step" },
	{ "--kernels=", "--debug.kernels=", "fast or ref" },
	{ "--passes=", "--debug.passes=", "-fuse: leave that pass out" },
	{ "--isa=", "--debug.isa=", "auto, avx512, avx2, ref" },
	{ "--numerics=", "--debug.numerics=", "fast or exact" },
	{ "--threads=", "--hardware.threads=", "compute threads of a rank; never changes a bit" },
	{ "--ranks=", "--hardware.ranks=", "ranks of the mesh, as threads of this process" },
	{ NULL, NULL, NULL },
};

const tt_exit_code tt_exit_codes[] = {
	{ 0, "done" },
	{ 1, "failed: a file, the data, memory, a number that is not finite" },
	{ 2, "the command line or the config is wrong; a config file that is not there, or is no TOML, counts as wrong" },
	{ 3, "stopped when asked to, by a signal" },
	{ 0, NULL },
};

int tt_cli_exit_code(tt_status s)
{
	switch (s) {
	case TT_OK:
		return 0;
	case TT_ERR_USAGE:
		return 2;
	case TT_ERR_STOP:
		return 3;
	case TT_ERR_IO:
	case TT_ERR_FORMAT:
	case TT_ERR_TYPE:
	case TT_ERR_MEMORY:
	case TT_ERR_NUMERIC:
	case TT_ERR_COMM:
		return 1;
	}
	return 1;
}

static void short_flags(tt_buf *b)
{
	for (const tt_short_flag *f = tt_short_flags; f->shorthand; f++)
		tt_buf_printf(b, "  %-12s for %-20s %s\n", f->shorthand, f->key, f->doc);
}

void tt_cli_help(tt_buf *b)
{
	tt_buf_str(b, "titan: train language models\n\n");
	for (const tt_command *c = tt_commands; c->name; c++)
		tt_buf_printf(b, "  %-52s %s\n", c->usage, c->doc);
	tt_buf_str(b, "\ntitan COMMAND --help says more of one, titan --version what this is.\n"
		      "FLAGS are --section.key=value for any config key (titan config --doc lists them), or in short\n\n");
	short_flags(b);
	tt_buf_str(b, "\nExit codes\n\n");
	for (const tt_exit_code *e = tt_exit_codes; e->doc; e++)
		tt_buf_printf(b, "  %d  %s\n", e->code, e->doc);
}

/* The arguments of a command that are flags, or those that are none. */
static void arguments(const tt_command *c, bool flags, tt_buf *b)
{
	for (const tt_argument *arg = c->arguments; arg->name; arg++)
		if (flags == !strncmp(arg->name, "--", 2)) /* what is too long for its column stands on a line of its own */
			tt_buf_printf(b, "  %-28s%s%s\n", arg->name, strlen(arg->name) > 28 ? "\n                               " : " ", arg->doc);
}

void tt_command_help(const tt_command *c, tt_buf *b)
{
	tt_arena *a = tt_arena_create("help");
	tt_usage u[TT_USAGES];
	int n = tt_usage_split(a, c, u);
	bool config = tt_usage_takes_config(c);
	for (int i = 0; i < n; i++)
		tt_buf_printf(b, "%s\n", u[i].text);
	tt_buf_printf(b, "\n  %s\n\n", c->doc);
	arguments(c, false, b);
	arguments(c, true, b);
	if (config) {
		tt_buf_printf(b, "  %-28s %s\n", "--section.key=value", "any key of the config, above the file; the last of a key wins; in short:");
		short_flags(b);
	}
	tt_buf_printf(b, "%sExamples\n\n", c->arguments[0].name || config ? "\n" : "");
	for (int i = 0; i < TT_EXAMPLES; i++)
		tt_buf_printf(b, "  %s\n", c->examples[i]);
	tt_buf_str(b, "\nAll config keys: titan config --doc, docs/config.md, man titan.toml\n");
	tt_arena_destroy(a);
}

void tt_cli_version(tt_buf *b)
{
	tt_buf_printf(b, "titan %s\ncompiled by %s\nkernel sets %s; this machine runs %s\n", TT_VERSION, TT_COMPILER, tt_kernel_sets(),
		      tt_isa_name(tt_isa_detect()));
}

void tt_cli_doc(tt_buf *b)
{
	tt_buf_str(b, "# Commands\n\nMade by `titan help --doc`.\n\n| command | what it does |\n|---|---|\n");
	for (const tt_command *c = tt_commands; c->name; c++) {
		tt_buf_str(b, "| `");
		for (const char *s = c->usage; *s; s++)
			tt_buf_printf(b, "%s%c", *s == '|' ? "\\" : "", *s);
		tt_buf_printf(b, "` | %s |\n", c->doc);
	}
	tt_buf_str(b, "\n`titan COMMAND --help` prints arguments, flags and examples, `titan --version` the version, the compiler and the kernel sets.\n");
	tt_buf_str(b, "\n`FLAGS` are `--section.key=value` for any key of [config.md](config.md); the last one wins. In short:\n\n| flag | for | |\n|---|---|---|\n");
	for (const tt_short_flag *f = tt_short_flags; f->shorthand; f++)
		tt_buf_printf(b, "| `%s` | `%s` | %s |\n", f->shorthand, f->key, f->doc);
	tt_buf_str(b, "\n| exit code | means |\n|---|---|\n");
	for (const tt_exit_code *e = tt_exit_codes; e->doc; e++)
		tt_buf_printf(b, "| %d | %s |\n", e->code, e->doc);
	tt_buf_str(b, "\nErrors go to standard error in one line; with `TITAN_TRAIL` in the environment, the source lines they passed follow.\n");
}
