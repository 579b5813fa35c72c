/* table.c: the commands. Help, exit codes and docs/cli.md follow from it. */
#include "cli/cli.h"

const tt_command tt_commands[] = {
	{ "train", "titan train CONFIG [FLAGS]", "train as the config says", tt_cmd_train },
	{ "demo", "titan demo [CONFIG] [FLAGS]", "train on the C headers of this machine, then compare with gzip and xz on held-out ones", tt_cmd_demo },
	{ "config", "titan config [CONFIG] [FLAGS] | titan config --doc", "print the resolved config, or the reference of all keys", tt_cmd_config },
	{ "plot", "titan plot RUN... [--out=FILE.svg] [--x=step|tokens|time] [--metric=loss,tokens_per_s] [--smooth=N] [--log]", "draw curves of runs' metrics.jsonl, overlaid, as SVG", tt_cmd_plot },
	{ "doctor", "titan doctor [CONFIG] [--json] [--measure] [FLAGS]", "processor, kernels, measured peaks and libraries, and limits of this machine that will hurt a run, each with its remedy; exits with 0 whatever it finds", tt_cmd_doctor },
	{ "ckpt", "titan ckpt inspect DIR [--hash] | verify DIR | export DIR OUT [--dtype=float32|bfloat16|float16|imported]",
	  "look into a checkpoint, check every byte of it, write it as a plain Hugging Face folder", tt_cmd_ckpt },
	{ "diff", "titan diff RUN_A RUN_B [--all] [--limit=N]", "the first value, op and step at which two runs part, from what debug.record_hashes wrote; exit code 0 equal, 1 different", tt_cmd_diff },
	{ "ops", "titan ops", "print the op table", tt_cmd_ops },
	{ NULL, NULL, NULL, NULL },
};

/* Flags that everybody types have a short spelling. */
const tt_short_flag tt_short_flags[] = {
	{ "--dump=", "--debug.dump=", "graph, program, memory: print it before the first step" },
	{ "--kernels=", "--debug.kernels=", "fast or ref" },
	{ "--isa=", "--debug.isa=", "auto, avx512, avx2, ref" },
	{ "--numerics=", "--debug.numerics=", "fast or exact" },
	{ "--threads=", "--hardware.threads=", "compute threads; never changes a bit" },
	{ NULL, NULL, NULL },
};

const tt_exit_code tt_exit_codes[] = {
	{ 0, "done" }, { 1, "failed" }, { 2, "wrong usage or config" }, { 3, "stopped when asked to" },
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

void tt_cli_help(tt_buf *b)
{
	tt_buf_str(b, "titan: train language models\n\n");
	for (const tt_command *c = tt_commands; c->name; c++)
		tt_buf_printf(b, "  %-52s %s\n", c->usage, c->doc);
	tt_buf_str(b, "\nFLAGS are --section.key=value for any config key (titan config --doc lists them), or in short\n\n");
	for (const tt_short_flag *f = tt_short_flags; f->shorthand; f++)
		tt_buf_printf(b, "  %-12s for %-20s %s\n", f->shorthand, f->key, f->doc);
	tt_buf_str(b, "\nExit codes:");
	for (const tt_exit_code *e = tt_exit_codes; e->doc; e++)
		tt_buf_printf(b, "%s %d %s", e == tt_exit_codes ? "" : ",", e->code, e->doc);
	tt_buf_str(b, ".\n");
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
	tt_buf_str(b, "\n`FLAGS` are `--section.key=value` for any key of [config.md](config.md); the last one wins. In short:\n\n| flag | for | |\n|---|---|---|\n");
	for (const tt_short_flag *f = tt_short_flags; f->shorthand; f++)
		tt_buf_printf(b, "| `%s` | `%s` | %s |\n", f->shorthand, f->key, f->doc);
	tt_buf_str(b, "\n| exit code | |\n|---|---|\n");
	for (const tt_exit_code *e = tt_exit_codes; e->doc; e++)
		tt_buf_printf(b, "| %d | %s |\n", e->code, e->doc);
	tt_buf_str(b, "\nErrors go to standard error in one line; with `TITAN_TRAIL` in the environment, the source lines they passed follow.\n");
}
