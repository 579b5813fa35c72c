/* commands.c: train, config, ops. */
#include <stdio.h>

#include "base/machine.h"
#include "cli/cli.h"
#include "cli/signals.h"
#include "metrics/metrics.h"
#include "ops/ops.h"
#include "train/train.h"

void tt_cli_print(const char *text)
{
	fputs(text, stdout);
	fflush(stdout); /* before what the log says next */
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

typedef struct cli_run {
	const tt_config *cfg;
	double parse_seconds;
	bool valid_whole;
	tt_run_summary *sum;
	const char *launched_by; /* NULL: no process of an MPI job */
} cli_run;

/* `c`: NULL where there is one rank. */
static tt_status lead(const cli_run *x, tt_comm *c)
{
	const tt_config *cfg = x->cfg;
	bool saves = cfg->checkpoint.enable && !cfg->checkpoint.load_only;
	tt_cli_stop_by_signal(saves ? TT_ENDS_SAVED : TT_ENDS_UNSAVED);
	if (saves && x->launched_by)
		tt_cli_stop_hint(x->launched_by);
	tt_metrics_console console;
	tt_cli_console(&console);
	tt_run_io io = { .print = tt_cli_print, .parse_seconds = x->parse_seconds, .valid_whole = x->valid_whole, .console = &console, .stop = tt_cli_stop(), .comm = c };
	tt_run *r;
	TT_TRY(tt_run_open(cfg, &io, &r));
	tt_status s = tt_run_loop(r, x->sum);
	tt_run_close(r);
	TT_TRY(s);
	return TT_OK;
}

static tt_status rank(tt_comm *c, void *ctx)
{
	const cli_run *x = ctx;
	if (tt_comm_rank(c) == 0)
		return lead(x, c);
	if (!tt_comm_sees_memory(c)) /* rank 0 says what is to be said */
		tt_log_set_level(TT_LOG_ERROR);
	return tt_run_follow(x->cfg, c);
}

tt_status tt_cli_run(const struct tt_config *cfg, double parse_seconds, bool valid_whole, struct tt_run_summary *sum)
{
	cli_run x = { cfg, parse_seconds, valid_whole, sum, NULL };
	if (cfg->hardware.ranks == 1)
		return lead(&x, NULL);
	tt_comm_launch l;
	TT_TRY(tt_comm_launched(&l));
	tt_comm_options o = { .init_timeout_s = (double)cfg->comm.init_timeout_seconds, .asked = tt_cli_stop(), .hear = tt_cli_stop_asked, .delay_us = cfg->comm.delay_us,
			      .spin_us = l.size > 1 || cfg->hardware.ranks <= tt_machine_threads() ? 20 : 0 };
	x.launched_by = l.size > 1 ? l.by : NULL;
	if (l.size > 1) {
		tt_cli_stop_by_signal(TT_ENDS_SILENT); /* MPI_Init may take seconds, and rank 0 then says how it ends, after a step; the launcher may send the signal to all */
		return tt_comm_mpi(&o, rank, &x);
	}
	if (cfg->hardware.ranks > 256)
		TT_FAIL(TT_ERR_USAGE, "hardware.ranks = %lld: at most 256 ranks run as threads of one process (titan plan takes any number)", (long long)cfg->hardware.ranks);
	/* What is wrong with the config is said once, and not by whichever rank comes first. */
	tt_arena *a = tt_arena_create("cli");
	tt_run_options checked;
	tt_status s = tt_run_options_from_config(a, cfg, &checked);
	tt_arena_destroy(a);
	TT_TRY(s);
	return tt_comm_threads((int)cfg->hardware.ranks, &o, rank, &x);
}

/* The config of a run: where a launcher started ranks, it says how many there are. */
static tt_status run_config(tt_arena *a, int argc, const char *const *argv, const tt_comm_launch *l, tt_config **out)
{
	TT_TRY(tt_cli_config(a, argc, argv, NULL, out));
	const char *where = tt_config_source(*out, "hardware.ranks");
	if (l->size == 1)
		return TT_OK;
	if (where && (*out)->hardware.ranks != l->size)
		TT_FAIL(TT_ERR_USAGE, "%s: hardware.ranks is %lld, and %s started %d processes, each of them a rank (leave the key out, or start %lld)", where,
			(long long)(*out)->hardware.ranks, l->by, l->size, (long long)(*out)->hardware.ranks);
	const char **more = TT_NEWN(a, const char *, argc + 1);
	if (argc)
		memcpy(more, argv, sizeof *more * (size_t)argc);
	more[argc] = tt_arena_printf(a, "--hardware.ranks=%d", l->size);
	return tt_cli_config(a, argc + 1, more, NULL, out);
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
	tt_comm_launch l;
	tt_status s = tt_comm_launched(&l);
	if (s == TT_OK)
		s = run_config(a, argc, argv, &l, &cfg);
	if (s == TT_OK && l.rank == 0) {
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
