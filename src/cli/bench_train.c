/* bench_train.c: `titan bench train`: training steps on made-up rows, counted as bench/peers/torch_train.py counts its own; and `titan bench
 * passes`: what a pass that may be left out, or a mode of recomputation, does to them.
 */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "base/machine.h"
#include "base/version.h"
#include "cli/bench.h"
#include "cli/cli.h"
#include "config/keys.h"
#include "train/train.h"

enum { WARM_UP = 2 };

/* ---- presets ------------------------------------------------------------------------------------------------------------------------------- */

const tt_bench_preset tt_bench_presets[] = {
	{ "dense-20m", 256, 8, 8, 4, 768, 8192, 256, 8 },
	{ "dense-100m", 768, 12, 12, 4, 2048, 32768, 512, 4 },
	{ "debug", 64, 2, 4, 2, 192, 256, 128, 8 }, /* the shape of configs/debug.toml: no bench, a try */
	{ 0 },
};

tt_status tt_bench_preset_find(const char *name, const tt_bench_preset **out)
{
	const char *names[8];
	int n = 0;
	for (const tt_bench_preset *p = tt_bench_presets; p->name; p++) {
		if (!strcmp(p->name, name)) {
			*out = p;
			return TT_OK;
		}
		names[n++] = p->name;
	}
	const char *near = tt_nearest(name, names, n);
	TT_FAIL(TT_ERR_USAGE, "--preset=%s: there are dense-20m, dense-100m and debug%s%s%s", name, near ? ": did you mean " : "", near ? near : "",
		near ? "?" : "");
}

void tt_bench_preset_flags(tt_arena *a, const tt_bench_preset *p, tt_dtype dt, int64_t steps, int threads, const char ***flags, int *n)
{
	enum { ROOM = 32 };
	const char **f = TT_NEWN(a, const char *, ROOM);
	int k = 0;
#define FLAG(...) f[k++] = tt_arena_printf(a, "--" __VA_ARGS__)
	FLAG("model.vocab_size=%lld", (long long)p->vocab);
	FLAG("model.hidden_size=%lld", (long long)p->dim);
	FLAG("model.num_hidden_layers=%lld", (long long)p->layers);
	FLAG("model.num_attention_heads=%lld", (long long)p->heads);
	FLAG("model.num_key_value_heads=%lld", (long long)p->kv_heads);
	FLAG("model.head_dim=%lld", (long long)(p->dim / p->heads));
	FLAG("model.intermediate_size=%lld", (long long)p->ffn);
	FLAG("model.rms_norm_eps=1e-5");
	FLAG("model.rope_theta=500000.0");
	FLAG("model.rope_scaling=none");
	FLAG("model.tie_word_embeddings=false");
	FLAG("training.context_length=%lld", (long long)p->context);
	FLAG("training.tokens_per_step=%lld", (long long)(p->context * p->rows));
	FLAG("training.steps=%lld", (long long)steps);
	FLAG("training.mixed_precision_param=%s", dt == TT_BF16 ? "bfloat16" : "float32");
	FLAG("training.max_norm=1.0");
	FLAG("optimizer.lr=3e-4");
	FLAG("optimizer.beta1=0.9");
	FLAG("optimizer.beta2=0.95");
	FLAG("optimizer.weight_decay=0.1");
	FLAG("optimizer.decay_only_matrices=false");
	FLAG("lr_scheduler.warmup_steps=0");
	FLAG("lr_scheduler.decay_ratio=0.0");
	FLAG("data.source=synthetic");
	if (threads)
		FLAG("hardware.threads=%d", threads);
#undef FLAG
	TT_ASSERT(k <= ROOM);
	*flags = f;
	*n = k;
}

/* The preset, and flags above it. */
static tt_status run_options(tt_arena *a, const tt_bench_preset *p, const tt_bench_options *o, const char *const *flags, int nflags, tt_run_options *out)
{
	const char **base, **all;
	int n, k = 0;
	tt_bench_preset_flags(a, p, o->dtype, o->steps + WARM_UP, o->threads, &base, &n);
	all = TT_NEWN(a, const char *, n + nflags);
	for (int i = 0; i < n; i++)
		all[k++] = base[i];
	for (int i = 0; i < nflags; i++)
		all[k++] = flags[i];
	tt_config *cfg;
	TT_TRY(tt_cli_config(a, k, all, NULL, &cfg));
	return tt_run_options_from_config(a, cfg, out);
}

/* ---- measuring ------------------------------------------------------------------------------------------------------------------------------ */

/* Seconds since the kernel started this process, to a clock tick; NaN where it does not say. Field 22 of /proc/self/stat. */
static double process_age(void)
{
	char text[1024];
	FILE *f = fopen("/proc/self/stat", "re");
	size_t n = f ? fread(text, 1, sizeof text - 1, f) : 0;
	if (f)
		fclose(f);
	text[n] = 0;
	char *s = strrchr(text, ')'); /* the name may hold blanks; field 3 follows it */
	for (int field = 2; s && field < 22; field++)
		s = strchr(s + 1, ' ');
	struct timespec now;
	if (!s || clock_gettime(CLOCK_BOOTTIME, &now))
		return __builtin_nan("");
	return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec - strtod(s, NULL) / (double)sysconf(_SC_CLK_TCK);
}

static double round_to(double v, int digits)
{
	char text[64];
	snprintf(text, sizeof text, "%.*f", digits, v);
	return strtod(text, NULL);
}

/* Best rate that this machine has shown: what is cached, or now. A better one is cached. */
static double peak_flops(tt_exec *e, tt_isa isa, tt_dtype dt)
{
	tt_peak_source source;
	tt_peaks p;
	tt_pool *pool = tt_exec_pool(e);
	int threads = tt_pool_threads(pool);
	tt_figure f = tt_figure_of(isa, dt);
	tt_peak_source_init(&source);
	(void)tt_peak_load(&source, threads, &p);
	double now = source.measure(source.ctx, pool, f, threads, source.seconds);
	if (now > p.of[f].all) {
		p.of[f].all = now;
		p.of[f].at = source.clock(source.ctx);
		(void)tt_peak_store(&source, &p);
	}
	return p.of[f].all;
}

/* What rank 0 waited for others, and what of exchanges nobody waited for, in a step. */
static json_t *exchanges(const tt_step_report *r)
{
	json_t *all = json_array();
	for (int i = 0; i < r->ncomm; i++)
		json_array_append_new(all, json_pack("{s:s, s:I, s:I, s:f, s:f}", "axes", r->comm[i].axes, "calls", (json_int_t)r->comm[i].calls, "bytes",
						     (json_int_t)r->comm[i].bytes, "exposed_s", round_to(r->comm[i].exposed, 6), "hidden_s",
						     round_to(r->comm[i].hidden, 6)));
	return all;
}

static tt_status steps(tt_trainer *t, const tt_bench_preset *p, const tt_run_options *o, const tt_bench_options *b, int ranks, json_t **out)
{
	double *seconds = calloc((size_t)b->steps, sizeof *seconds), first = 0;
	TT_ASSERT(seconds, "out of memory");
	tt_step_report r = { 0 };
	double loss_first = 0;
	tt_status s = TT_OK;
	tt_bench_load from = { 0 };
	for (int64_t i = 0; i < b->steps + WARM_UP && s == TT_OK; i++) {
		if (i == WARM_UP)
			from = tt_bench_load_now();
		s = tt_trainer_step(t, &r);
		if (i == 0) {
			first = process_age();
			loss_first = r.loss;
		}
		if (i >= WARM_UP)
			seconds[i - WARM_UP] = r.seconds;
	}
	if (s == TT_OK) {
		tt_bench_load to = tt_bench_load_now();
		struct rusage u;
		getrusage(RUSAGE_SELF, &u); /* before the peak is measured */
		double others = tt_bench_load_others(&from, &to), med = tt_bench_median(seconds, b->steps), tokens = (double)r.tokens;
		double peak = peak_flops(tt_trainer_exec(t), o->exec.isa, o->compute) * TT_MIN(ranks, TT_MAX(tt_machine_threads() / TT_MAX(o->exec.threads, 1), 1));
		/* The peer's count: 6 N + 6 L T D a token, N without the embedding. Ours, for mfu, counts products and attended pairs. */
		double active = (double)(tt_trainer_params(t) - p->vocab * p->dim);
		double theirs = tokens * (6 * active + 6 * (double)(p->layers * p->context * p->dim));
		double ours = 3 * tt_llama_forward_flops(&o->model, tokens, r.pairs);
		*out = json_pack("{s:s, s:s, s:n, s:s, s:i, s:I, s:I, s:f, s:f, s:f, s:f, s:f, s:I, s:f, s:f, s:f, s:f, s:b}", "peer", "titan.c " TT_VERSION,
				 "preset", p->name, "moe", "dtype", b->dtype == TT_BF16 ? "bf16" : "f32", "threads", o->exec.threads, "params",
				 (json_int_t)tt_trainer_params(t), "tokens_per_step", (json_int_t)r.tokens, "tokens_per_s", round_to(tokens / med, 1),
				 "step_s", round_to(med, 4), "gflops", round_to(theirs / med / 1e9, 1), "mfu", round_to(100 * ours / med / peak, 1),
				 "peak_gflops", round_to(peak / 1e9, 1), "peak_rss_mib", (json_int_t)(u.ru_maxrss / 1024), "first_step_s",
				 round_to(first, 2), "loss_first", round_to(loss_first, 4), "loss_last", round_to(r.loss, 4), "others",
				 round_to(others, 2), "noisy", others > tt_race_of(1).quiet);
		if (ranks > 1) {
			json_object_set_new(*out, "ranks", json_integer(ranks));
			json_object_set_new(*out, "exchanges", exchanges(&r));
		}
	}
	free(seconds);
	return s;
}

typedef struct bench_ranks {
	const tt_bench_preset *p;
	const tt_run_options *run;
	const tt_bench_options *o;
	json_t **out;
} bench_ranks;

static tt_status bench_rank(tt_comm *c, void *ctx)
{
	const bench_ranks *x = ctx;
	tt_run_options run = *x->run;
	run.mesh.comm = c;
	tt_trainer *t;
	TT_TRY(tt_trainer_create(&run, &t));
	tt_step_report r;
	tt_status s = TT_OK;
	if (tt_comm_rank(c) == 0)
		s = steps(t, x->p, &run, x->o, tt_comm_size(c), x->out);
	else
		for (int64_t i = 0; i < x->o->steps + WARM_UP && s == TT_OK; i++)
			s = tt_trainer_step(t, &r);
	tt_trainer_destroy(t);
	TT_TRY(s);
	return TT_OK;
}

tt_status tt_bench_train(tt_arena *a, const tt_bench_options *o, json_t **out)
{
	const tt_bench_preset *p;
	tt_run_options run;
	tt_trainer *t;
	TT_TRY(tt_bench_preset_find(o->preset, &p));
	TT_TRY(run_options(a, p, o, o->flags, o->nflags, &run));
	int ranks = 1;
	for (int i = 0; i < TT_RUN_AXES; i++)
		ranks *= TT_MAX(run.mesh.size[i], 1);
	if (ranks > 1) {
		bench_ranks x = { p, &run, o, out };
		tt_comm_options c = { .init_timeout_s = 300, .spin_us = ranks <= tt_machine_threads() ? 20 : 0, .delay_us = run.mesh.delay_us };
		return tt_comm_threads(ranks, &c, bench_rank, &x);
	}
	TT_TRY(tt_trainer_create(&run, &t));
	tt_status s = steps(t, p, &run, o, 1, out);
	tt_trainer_destroy(t);
	TT_TRY(s);
	return TT_OK;
}

/* ---- passes ---------------------------------------------------------------------------------------------------------------------------------- */

/* Flags that may make a step faster or slower: each pass that debug.passes lets be left out, each other mode of recomputation. They come from
 * the table of keys, so that a new word there is a new line here; what a config then refuses is no choice. */
static int candidates(tt_arena *a, const char *out[], int cap)
{
	int n = 0, passes = tt_key_find("debug", "passes"), all = tt_key_find("debug", "dump_after"), mode = tt_key_find("activation_checkpoint", "mode");
	for (int w = 0; passes >= 0 && all >= 0 && w < tt_keys[all].choices.n && n < cap; w++)
		out[n++] = tt_arena_printf(a, "--debug.passes=-%s", tt_keys[all].choices.words[w]);
	for (int w = 0; mode >= 0 && w < tt_keys[mode].choices.n && n < cap; w++)
		if (w != (int)tt_keys[mode].def.i)
			out[n++] = tt_arena_printf(a, "--activation_checkpoint.mode=%s", tt_keys[mode].choices.words[w]);
	return n;
}

/* The user's flags, each by itself; without any, all candidates. */
static int variants(tt_arena *a, const tt_bench_preset *p, const tt_bench_options *o, const char *out[], int cap)
{
	tt_run_options run;
	int n = 0;
	for (int i = 0; i < o->nflags && n < cap; i++)
		out[n++] = o->flags[i];
	for (int i = 0, all = n ? 0 : candidates(a, out, cap); i < all; i++)
		if (run_options(a, p, o, &out[i], 1, &run) == TT_OK)
			out[n++] = out[i];
	return n;
}

typedef struct contestant { tt_trainer *t; double *seconds; int64_t planned; } contestant;

static tt_status open_contestant(tt_arena *a, const tt_bench_preset *p, const tt_bench_options *o, const char *flag, contestant *out)
{
	tt_run_options run;
	contestant c = { .seconds = TT_NEWN(a, double, o->steps) };
	TT_TRY(run_options(a, p, o, &flag, flag != NULL, &run));
	TT_TRY(tt_trainer_create(&run, &c.t));
	for (int i = 0; i < TT_EXEC_NREGIONS; i++)
		c.planned += tt_exec_planned(tt_trainer_exec(c.t), i);
	*out = c;
	return TT_OK;
}

/* Steps of both in turn; the variant against the preset as it is. */
static tt_status compare(contestant *base, contestant *with, int64_t nsteps, const char *flag, json_t *rows)
{
	tt_step_report r;
	tt_bench_load from = { 0 };
	for (int64_t i = 0; i < nsteps + WARM_UP; i++) {
		if (i == WARM_UP)
			from = tt_bench_load_now();
		for (int k = 0; k < 2; k++) {
			contestant *c = k ? with : base;
			TT_TRY(tt_trainer_step(c->t, &r));
			if (i >= WARM_UP)
				c->seconds[i - WARM_UP] = r.seconds;
		}
	}
	tt_bench_load to = tt_bench_load_now();
	double others = tt_bench_load_others(&from, &to), b = tt_bench_median(base->seconds, nsteps), w = tt_bench_median(with->seconds, nsteps);
	json_array_append_new(rows, json_pack("{s:s, s:f, s:f, s:f, s:f, s:f, s:f, s:b}", "flag", flag, "step_s", w, "step_s_without", b, "time", w / b,
					      "mib", (double)with->planned / (double)TT_MIB, "mib_without", (double)base->planned / (double)TT_MIB, "others",
					      others, "noisy", others > tt_race_of(1).quiet));
	return TT_OK;
}

tt_status tt_bench_passes(tt_arena *a, const tt_bench_options *o, json_t **out)
{
	const tt_bench_preset *p;
	const char *flags[64];
	contestant base = { 0 };
	TT_TRY(tt_bench_preset_find(o->preset, &p));
	int n = variants(a, p, o, flags, TT_COUNT(flags));
	if (n)
		TT_TRY(open_contestant(a, p, o, NULL, &base));
	json_t *rows = json_array();
	tt_status s = TT_OK;
	for (int i = 0; i < n && s == TT_OK; i++) {
		contestant with = { 0 };
		s = open_contestant(a, p, o, flags[i], &with);
		if (s == TT_OK)
			s = compare(&base, &with, o->steps, flags[i], rows);
		tt_trainer_destroy(with.t);
	}
	tt_trainer_destroy(base.t);
	if (s != TT_OK) {
		json_decref(rows);
		TT_TRY(s);
	}
	*out = json_pack("{s:s, s:s, s:s, s:s, s:o}", "bench", "passes", "peer", "titan.c " TT_VERSION, "preset", p->name, "dtype",
			 o->dtype == TT_BF16 ? "bf16" : "f32", "rows", rows);
	return TT_OK;
}
