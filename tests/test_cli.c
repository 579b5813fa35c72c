/* test_cli.c: the command line as a user meets it: the binary itself, its exit codes and messages, and the generated pages. */
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>

#include "cli/cli.h"
#include "test.h"

/* Runs a shell line; its standard output and error end up in `out`. */
static int shell(tt_test *t, const char *line, tt_buf *out)
{
	char *cmd = tt_arena_printf(t->arena, "{ %s ; } 2>&1", line);
	FILE *p = popen(cmd, "r");
	TT_CHECK(t, p != NULL);
	char b[4096];
	for (size_t n; p && (n = fread(b, 1, sizeof b, p)) > 0;)
		tt_buf_add(out, b, n);
	tt_buf_add(out, "", 0);
	int s = p ? pclose(p) : -1;
	return WIFEXITED(s) ? WEXITSTATUS(s) : 128;
}

static void check_run(tt_test *t, const char *line, int code, const char *part)
{
	tt_buf b = { 0 };
	int got = shell(t, line, &b);
	TT_CHECK_MSG(t, got == code, "%s: exit code %d, want %d: %s", line, got, code, b.s ? b.s : "");
	TT_CHECK_MSG(t, b.s && strstr(b.s, part), "%s: no \"%s\" in: %s", line, part, b.s ? b.s : "");
	tt_buf_fini(&b);
}

/* `titan train configs/debug.toml` with more arguments, in a folder of this case: cases run side by side. */
static void check_train(tt_test *t, const char *arguments, int code, const char *part)
{
	check_run(t, tt_arena_printf(t->arena, "build/titan train configs/debug.toml --job.dump_folder=%s %s", tt_test_path(t, "run"), arguments),
		code, part);
}

static void messages(tt_test *t)
{
	check_run(t, "build/titan", 2, "FLAGS");
	check_run(t, "build/titan --help", 0, "titan train CONFIG");
	check_run(t, "build/titan train --help", 0, "titan train CONFIG");
	check_run(t, "build/titan trian", 2, "did you mean train?");
	check_run(t, "build/titan train nowhere.toml", 1, "nowhere.toml: cannot open");
	check_run(t, "build/titan train configs/debug.toml configs/demo.toml", 2, "two config files");
	check_train(t, "--training.stesp=3", 2, "did you mean training.steps?");
	check_train(t, "--data.paths=/nowhere", 1, "/nowhere");
	check_train(t, "--model.flavor=8b", 2, "8B");
	check_train(t, "--training.context_length=100", 2, "training.context_length");
	check_run(t, "build/titan ops extra", 2, "takes no arguments");
	check_run(t, "build/titan ops > /dev/full", 1, "cannot write to standard output");
	check_run(t, "build/titan ops", 0, "attention_bwd");
	check_run(t, "build/titan config configs/debug.toml --steps", 2, "--section.key=value");
}

static void trains(tt_test *t)
{
	check_train(t, "--training.steps=2 --threads=1", 0, "step      2");
	check_train(t, "--training.steps=1 --dump=memory", 0, "frame:");
	check_train(t, "--training.steps=1 --dump=program", 0, "linear");
	check_train(t, "--training.steps=1 --debug.dump_after=model", 0, "# after model");
}

/* docs/cli.md is what the table says. */
static void doc_up_to_date(tt_test *t)
{
	tt_buf b = { 0 };
	char *text;
	size_t n;
	tt_cli_doc(&b);
	TT_CHECK_OK(t, tt_file_read(t->arena, "docs/cli.md", &text, &n));
	TT_CHECK_MSG(t, n == b.n && !memcmp(text, b.s, n), "docs/cli.md is out of date: build/titan help --doc > docs/cli.md");
	tt_buf_fini(&b);
}

/* The page on adding an op, done on a copy of the tree. */
static void adding_an_op(tt_test *t)
{
	check_run(t, "tools/doc_test.sh docs/adding-an-op.md", 0, "adding an op works as written, and a wrong gradient is noticed");
}

const tt_case tt_suite_cli[] = {
	{ "messages", messages, TT_TIER_QUICK },
	{ "trains", trains, TT_TIER_QUICK },
	{ "doc_up_to_date", doc_up_to_date, TT_TIER_QUICK },
	{ "adding_an_op", adding_an_op, TT_TIER_CI },
	{ 0 },
};
