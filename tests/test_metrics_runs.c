/* Which run a metrics.jsonl is of: what a start in a folder with files of other runs, or of none, keeps and goes on with. */
#include "test.h"

#include <math.h>
#include <sys/stat.h>
#include <unistd.h>

#include "metrics/metrics.h"

static double five(void *ctx)
{
	(void)ctx;
	return 5;
}

static const char *content(tt_test *t, const char *path)
{
	char *s;
	size_t n;
	return TT_CHECK_OK(t, tt_file_read(t->arena, path, &s, &n)) ? s : "";
}

static void collect(void *ctx, tt_log_level level, const char *line) { tt_buf_printf(ctx, "%d %s\n", (int)level, line); }

static const char *line_of(tt_test *t, int step, const char *run)
{
	return tt_arena_printf(t->arena, "{\"step\":%d,\"type\":\"step\",\"time\":5,\"run\":\"%s\",\"schema\":1,\"loss\":1,\"grad_norm\":1,\"lr\":0.5,\"skipped\":false}\n", step, run);
}

/* One start of the run `name` that goes on after `resume` and makes one step. */
static void start_of(tt_test *t, const char *name, int64_t resume, bool is_new)
{
	tt_metrics_options o = { .folder = tt_test_path(t, "run"), .mode = TT_METRICS_OFF, .clock = { NULL, five, five }, .jsonl = true, .run = name, .run_new = is_new,
				 .resume_step = resume };
	tt_metrics *m = tt_metrics_open(&o);
	tt_metrics_step s = { .step = resume + 1, .loss = 1, .loss_max = NAN, .grad_norm = 1, .lr = 0.5, .tokens = -1, .valid_tokens = -1, .tokens_seen = -1,
		.tokens_per_s = NAN, .flops_per_s = NAN, .mfu = NAN, .seconds = NAN, .data_seconds = NAN, .forward_seconds = NAN, .backward_seconds = NAN,
		.optimizer_seconds = NAN, .save_seconds = NAN, .validate_seconds = NAN, .memory_planned = -1, .memory_resident = -1 };
	tt_metrics_log_step(m, &s);
	tt_metrics_close(m);
}

/* No line of a run goes that another one in its folder wrote, and none is added to another run's. */
static void jsonl_runs(tt_test *t)
{
	const char *path = tt_test_path(t, "run/metrics.jsonl"), *one = tt_test_path(t, "run/metrics.1.jsonl"), *two = tt_test_path(t, "run/metrics.2.jsonl");
	tt_buf log = { 0 };
	tt_log_set_sink(collect, &log);
	start_of(t, "aa", 0, true);
	start_of(t, "bb", 0, true); /* in its folder, from the start */
	TT_CHECK_STR(t, content(t, one), line_of(t, 1, "aa"));
	start_of(t, "aa", 1, false); /* resumed: its own goes on */
	TT_CHECK_STR(t, content(t, path), tt_arena_printf(t->arena, "%s%s", line_of(t, 1, "aa"), line_of(t, 2, "aa")));
	TT_CHECK_STR(t, content(t, two), line_of(t, 1, "bb"));
	start_of(t, "cc", 0, true); /* the lowest that is free */
	start_of(t, "dd", 0, true);
	TT_CHECK(t, strstr(content(t, one), "aa") && strstr(content(t, two), "bb") && strstr(content(t, tt_test_path(t, "run/metrics.3.jsonl")), "cc"));
	TT_CHECK(t, log.s && strstr(log.s, "run/metrics.jsonl is of an earlier run: it is kept as metrics.1.jsonl") &&
		    strstr(log.s, "run/metrics.jsonl is of another run than the checkpoint: it is kept as metrics.2.jsonl") &&
		    strstr(log.s, "run/metrics.1.jsonl is of the run that is resumed: it is metrics.jsonl again"));
	/* Bytes that are no lines; a file from before runs had names. */
	static const char noise[] = "\x01\xfe\n\0\x7f{\"st";
	TT_CHECK_OK(t, tt_file_write(path, noise, sizeof noise));
	start_of(t, "ee", 4, true);
	TT_CHECK_STR(t, content(t, path), line_of(t, 5, "ee"));
	TT_CHECK(t, strstr(log.s, "run/metrics.jsonl has no lines of a run: it is kept as metrics.4.jsonl"));
	static const char old[] = "{\"step\":1,\"type\":\"step\",\"loss\":1}\n";
	TT_CHECK_OK(t, tt_file_write(path, old, sizeof old - 1));
	start_of(t, "ff", 1, true);
	TT_CHECK_STR(t, content(t, path), tt_arena_printf(t->arena, "%s%s", old, line_of(t, 2, "ff")));
	tt_log_set_sink(NULL, NULL);
	tt_buf_fini(&log);
}

/* Nobody reads from it, and nobody waits for that. */
static void jsonl_fifo(tt_test *t)
{
	const char *path = tt_test_path(t, "run/metrics.jsonl");
	tt_buf log = { 0 };
	TT_CHECK(t, mkdir(tt_test_path(t, "run"), 0755) == 0 && mkfifo(path, 0600) == 0);
	tt_log_set_sink(collect, &log);
	start_of(t, "aa", 0, false);
	tt_log_set_sink(NULL, NULL);
	TT_CHECK_STR(t, log.s, tt_arena_printf(t->arena, "%d metrics: %s: is a FIFO, a file is needed; the run goes on without this file\n", TT_LOG_WARN, path));
	tt_buf_fini(&log);
}

const tt_case tt_suite_metrics_runs[] = {
	{ "jsonl", jsonl_runs, TT_TIER_QUICK },
	{ "fifo", jsonl_fifo, TT_TIER_QUICK },
	{ 0 },
};
