/* commands.c: train, config, ops. */
#include <signal.h>
#include <stdio.h>

#include "cli/cli.h"
#include "metrics/metrics.h"
#include "ops/ops.h"
#include "train/train.h"

void tt_cli_print(const char *text)
{
	fputs(text, stdout);
}

/* One optional path, then flags; short spellings of the debug keys that everybody types. */
static tt_status split_args(tt_arena *a, int argc, const char *const *argv, const char **path, int *nflags, const char ***flags)
{
	*path = NULL;
	*nflags = 0;
	*flags = TT_NEWN(a, const char *, argc + 1);
	for (int i = 0; i < argc; i++) {
		const char *s = argv[i];
		if (strncmp(s, "--", 2)) {
			if (*path)
				TT_FAIL(TT_ERR_USAGE, "two config files: %s and %s (one is read; flags change single keys)", *path, s);
			*path = s;
			continue;
		}
		for (const tt_short_flag *f = tt_short_flags; f->shorthand; f++)
			if (!strncmp(s, f->shorthand, strlen(f->shorthand))) {
				s = tt_arena_printf(a, "%s%s", f->key, s + strlen(f->shorthand));
				break;
			}
		(*flags)[(*nflags)++] = s;
	}
	return TT_OK;
}

tt_status tt_cli_config(tt_arena *a, int argc, const char *const *argv, const char *fallback, tt_config **out)
{
	const char *path, **flags;
	int n;
	TT_TRY(split_args(a, argc, argv, &path, &n, &flags));
	tt_status s = tt_config_load(a, path ? path : fallback, n, flags, out);
	if (s == TT_ERR_IO || s == TT_ERR_FORMAT)
		TT_FAIL(TT_ERR_USAGE, "%s", tt_arena_strdup(a, tt_error_text()));
	return s;
}

/* Set by the handler below, polled by the run: the one flag that a signal may write. */
static volatile sig_atomic_t stop_signal;

static void on_signal(int number)
{
	if (stop_signal) { /* asked twice: at once, as if there were no handler */
		signal(number, SIG_DFL);
		raise(number);
	}
	stop_signal = number;
}

tt_status tt_cli_run(const struct tt_config *cfg, double parse_seconds, bool valid_whole, struct tt_run_summary *sum)
{
	struct sigaction act = { .sa_handler = on_signal, .sa_flags = SA_RESTART };
	sigaction(SIGTERM, &act, NULL);
	sigaction(SIGINT, &act, NULL);
	tt_metrics_console console;
	tt_cli_console(&console);
	tt_run_io io = { .print = tt_cli_print, .parse_seconds = parse_seconds, .valid_whole = valid_whole, .console = &console, .stop = &stop_signal };
	tt_run *r;
	TT_TRY(tt_run_open(cfg, &io, &r));
	tt_status s = tt_run_loop(r, sum);
	tt_run_close(r);
	TT_TRY(s);
	return TT_OK;
}

/* Its warnings are the caller's: a run logs them itself. */
static tt_status print_resolved(tt_arena *a, const tt_config *cfg, tt_config *out)
{
	tt_buf b = { 0 };
	TT_TRY(tt_config_resolve(a, cfg, out));
	tt_config_print(out, &b);
	tt_cli_print(b.s);
	tt_buf_fini(&b);
	return TT_OK;
}

tt_status tt_cmd_train(int argc, const char *const *argv)
{
	tt_arena *a = tt_arena_create("cli");
	double t0 = tt_now();
	tt_config *cfg, resolved;
	tt_run_summary sum;
	tt_status s = tt_cli_config(a, argc, argv, NULL, &cfg);
	if (s == TT_OK) {
		tt_config_log_warnings(cfg);
		if (cfg->job.print_config)
			s = print_resolved(a, cfg, &resolved);
	}
	if (s == TT_OK)
		s = tt_cli_run(cfg, tt_now() - t0, false, &sum);
	tt_arena_destroy(a);
	return s;
}

static tt_status config(tt_arena *a, int argc, const char *const *argv)
{
	tt_config *cfg, resolved;
	if (argc == 1 && !strcmp(argv[0], "--doc")) {
		tt_buf b = { 0 };
		tt_config_doc(&b);
		tt_cli_print(b.s);
		tt_buf_fini(&b);
		return TT_OK;
	}
	TT_TRY(tt_cli_config(a, argc, argv, NULL, &cfg));
	tt_config_log_warnings(cfg);
	TT_TRY(print_resolved(a, cfg, &resolved));
	tt_config_log_warnings(&resolved);
	return TT_OK;
}

tt_status tt_cmd_config(int argc, const char *const *argv)
{
	tt_arena *a = tt_arena_create("cli");
	tt_status s = config(a, argc, argv);
	tt_arena_destroy(a);
	return s;
}

tt_status tt_cmd_ops(int argc, const char *const *argv)
{
	if (argc)
		TT_FAIL(TT_ERR_USAGE, "titan ops takes no arguments, got %s", argv[0]);
	printf("%-14s %-9s %-11s %-22s %s\n", "op", "class", "family", "dims", "what it computes");
	for (int i = 0; tt_ops[i]; i++)
		printf("%-14s %-9s %-11s %-22s %s\n", tt_ops[i]->name, tt_class_name(tt_ops[i]->cls), tt_op_family(tt_ops[i]->name),
		       tt_ops[i]->labels ? tt_ops[i]->labels : "", tt_ops[i]->doc);
	return TT_OK;
}
