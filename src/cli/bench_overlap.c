/* bench_overlap.c: `titan bench overlap`: how much of a slow network computation hides. Every exchange ends `delay` after its last rank has come, asleep;
 * steps with and without that, and with and without overlap, run in turn in one world of threads, and the least of each counts. What a step grows by is
 * set against the sum of the delays of what could be hidden (pass/hide.c): a fact of the program, which `titan plan` shows too.
 */
#include <stdlib.h>
#include <strings.h>

#include "cli/bench.h"
#include "cli/cli.h"
#include "base/machine.h"
#include "train/train.h"

enum { WARM_UP = 2, AXES = 4, WAYS = 4 };

/* Degrees: 0 stands for all ranks, -2 for half of them. */
typedef struct mesh { const char *name; int degree[AXES]; const char *flag; } mesh;

static const mesh meshes[] = {
	{ "FSDP", { 1, 0, 1, 1 }, NULL },
	{ "HSDP", { 2, -2, 1, 1 }, NULL },
	{ "DDP", { 0, 1, 1, 1 }, NULL },
	{ "TP", { 1, 1, 1, 0 }, NULL },
	{ "CP gather", { 1, 1, 0, 1 }, "--parallelism.context_parallel_method=gather" },
	{ "CP head_swap", { 1, 1, 0, 1 }, "--parallelism.context_parallel_method=head_swap" },
	{ "CP ring", { 1, 1, 0, 1 }, "--parallelism.context_parallel_method=ring" },
};

/* With overlap, without; each at full speed, and delayed. */
typedef struct timed { double least; tt_step_report r; } timed; /* r: of the least */

typedef struct world {
	const tt_run_options *run;
	const tt_bench_options *o;
	int64_t delay_us;
	timed of[WAYS];
} world;

static int64_t sum_calls(const tt_step_report *r, bool hideable)
{
	int64_t n = 0;
	for (int i = 0; i < r->ncomm; i++)
		n += hideable ? r->comm[i].hideable_calls : r->comm[i].calls;
	return n;
}

/* Half of the computation for each exchange that could be hidden: a delay longer than what there is cannot be. */
static int64_t fitting_delay(const timed *t)
{
	int64_t n = sum_calls(&t->r, true);
	double each = t->least / (double)(n ? n : TT_MAX(sum_calls(&t->r, false), (int64_t)1));
	return TT_MAX((int64_t)(0.5e6 * each), (int64_t)1);
}

static tt_status one_step(world *w, tt_comm_group *all, tt_comm *c, tt_trainer *t, int way, int64_t delay_us)
{
	tt_step_report r;
	tt_comm_set_delay(c, 0);
	TT_TRY(tt_comm_barrier(all, "before a step"));
	tt_comm_set_delay(c, delay_us);
	TT_TRY(tt_trainer_step(t, &r));
	timed *x = &w->of[way];
	if (tt_comm_rank(c) == 0 && (!x->least || r.seconds < x->least))
		*x = (timed){ r.seconds, r };
	return TT_OK;
}

static tt_status rounds(world *w, tt_comm_group *all, tt_comm *c, tt_trainer *const *t)
{
	int64_t delay = 0;
	for (int i = 0; i < WARM_UP; i++)
		for (int k = 0; k < 2; k++)
			TT_TRY(one_step(w, all, c, t[k], 2 * k, 0));
	if (tt_comm_rank(c) == 0) {
		delay = w->o->delay_us ? w->o->delay_us : fitting_delay(&w->of[0]);
		w->delay_us = delay;
	}
	tt_comm_set_delay(c, 0);
	TT_TRY(tt_comm_broadcast(all, "delay", 0, &delay, sizeof delay));
	for (int64_t i = 0; i < w->o->steps; i++)
		for (int way = 0; way < WAYS; way++)
			TT_TRY(one_step(w, all, c, t[way / 2], way, way % 2 ? delay : 0));
	return TT_OK;
}

static tt_status rank_main(tt_comm *c, void *ctx)
{
	world *w = ctx;
	tt_comm_group *all;
	tt_status s = TT_OK;
	TT_TRY(tt_comm_group_all(c, "bench", &all));
	tt_trainer *t[2] = { NULL, NULL };
	for (int k = 0; k < 2 && !s; k++) {
		tt_run_options o = *w->run;
		o.mesh.comm = c;
		o.overlap_off |= k == 1;
		s = tt_trainer_create(&o, &t[k]);
	}
	if (!s)
		s = rounds(w, all, c, t);
	for (int k = 0; k < 2; k++)
		tt_trainer_destroy(t[k]);
	TT_TRY(s);
	return TT_OK;
}

static int degree(const mesh *m, int axis, int ranks) { return m->degree[axis] > 0 ? m->degree[axis] : m->degree[axis] ? ranks / -m->degree[axis] : ranks; }

/* The preset, or what the user's config says; a rank has one thread; the user's flags stand last. */
static tt_status options_of(tt_arena *a, const tt_bench_options *o, const mesh *m, int ranks, tt_run_options *out)
{
	static const char *const keys[AXES] = { "data_parallel_replicate_degree", "data_parallel_shard_degree", "context_parallel_degree", "tensor_parallel_degree" };
	const tt_bench_preset *p;
	const char **base, **all;
	int n = 0, k = 0;
	bool config = false;
	TT_TRY(tt_bench_preset_find(o->preset, &p));
	tt_bench_preset_flags(a, p, o->dtype, WARM_UP + o->steps, TT_MAX(o->threads, 1), &base, &n);
	all = TT_NEWN(a, const char *, n + o->nflags + AXES + 4);
	for (int i = 0; i < o->nflags; i++)
		if (strncmp(o->flags[i], "--", 2)) {
			all[k++] = o->flags[i];
			config = true;
		}
	for (int i = 0; i < n && !config; i++)
		all[k++] = base[i];
	if (config)
		all[k++] = tt_arena_printf(a, "--hardware.threads=%d", TT_MAX(o->threads, 1));
	all[k++] = tt_arena_printf(a, "--hardware.ranks=%d", ranks);
	for (int i = 0; i < AXES; i++)
		all[k++] = tt_arena_printf(a, "--parallelism.%s=%d", keys[i], degree(m, i, ranks));
	if (m->flag)
		all[k++] = m->flag;
	for (int i = 0; i < o->nflags; i++)
		if (!strncmp(o->flags[i], "--", 2))
			all[k++] = o->flags[i];
	tt_config *cfg;
	TT_TRY(tt_cli_config(a, k, all, NULL, &cfg));
	TT_TRY(tt_run_options_from_config(a, cfg, out));
	out->trace.folder = NULL;
	return TT_OK;
}

static json_t *row_of(const mesh *m, const world *w)
{
	const timed *x = w->of;
	int64_t could = sum_calls(&x[0].r, true);
	double delay = 1e-6 * (double)w->delay_us, exposed = 0, hidden = 0, grown = x[1].least - x[0].least;
	for (int i = 0; i < x[1].r.ncomm; i++) {
		exposed += x[1].r.comm[i].exposed;
		hidden += x[1].r.comm[i].hidden;
	}
	json_t *o = json_pack("{s:s, s:I, s:I, s:f, s:f, s:f, s:f, s:f, s:f, s:I, s:f, s:f}", "mesh", m->name, "calls", (json_int_t)sum_calls(&x[0].r, false), "hideable", (json_int_t)could,
			      "delay_s", delay, "step_s", x[0].least, "step_delayed_s", x[1].least, "grown_s", grown, "exposed_s", exposed, "hidden_s", hidden, "calls_without",
			      (json_int_t)sum_calls(&x[2].r, false), "step_without_s", x[2].least, "step_delayed_without_s", x[3].least);
	if (could) {
		json_object_set_new(o, "compute_each_s", json_real(x[0].least / (double)could));
		json_object_set_new(o, "of_hideable", json_real(grown / ((double)could * delay)));
		json_object_set_new(o, "of_hideable_alone", json_real((grown - (double)(sum_calls(&x[0].r, false) - could) * delay) / ((double)could * delay)));
		json_object_set_new(o, "of_hideable_without", json_real((x[3].least - x[2].least) / ((double)could * delay)));
	}
	return o;
}

tt_status tt_bench_overlap(tt_arena *a, const tt_bench_options *o, json_t **out)
{
	int ranks = o->ranks ? o->ranks : 2;
	if (ranks < 2)
		TT_FAIL(TT_ERR_USAGE, "--ranks=%d: exchanges need two ranks at least", ranks);
	json_t *rows = json_array();
	tt_bench_load from = tt_bench_load_now();
	tt_status s = TT_OK;
	for (int i = 0; i < TT_COUNT(meshes) && !s; i++) {
		tt_run_options run;
		const mesh *m = &meshes[i];
		int n = 1;
		for (int k = 0; k < AXES; k++)
			n *= degree(m, k, ranks);
		if (o->mesh && strcasecmp(o->mesh, m->name))
			continue;
		if (n != ranks || (m->degree[1] < 0 && ranks < 4))
			continue;
		s = options_of(a, o, m, ranks, &run);
		if (s == TT_ERR_USAGE && i && !o->mesh) { /* the first would refuse it too, if it were the config's fault alone */
			json_array_append_new(rows, json_pack("{s:s, s:s}", "mesh", m->name, "refused", tt_error_text()));
			s = TT_OK;
			continue;
		}
		if (s)
			break;
		world w = { .run = &run, .o = o };
		tt_comm_options c = { .init_timeout_s = 300, .spin_us = ranks <= tt_machine_threads() ? 20 : 0 };
		s = tt_comm_threads(ranks, &c, rank_main, &w);
		if (!s)
			json_array_append_new(rows, row_of(m, &w));
	}
	if (s) {
		json_decref(rows);
		TT_TRY(s);
	}
	if (!json_array_size(rows)) {
		json_decref(rows);
		TT_FAIL(TT_ERR_USAGE, "--mesh=%s: there are FSDP, HSDP (4 ranks and more), DDP, TP, CP gather, CP head_swap and CP ring", o->mesh);
	}
	tt_bench_load to = tt_bench_load_now();
	*out = json_pack("{s:s, s:i, s:i, s:I, s:f, s:o}", "bench", "overlap", "ranks", ranks, "cores", tt_machine_threads(), "rounds", (json_int_t)o->steps, "others",
			 tt_bench_load_others(&from, &to), "rows", rows);
	return TT_OK;
}

void tt_bench_md_overlap(const json_t *j, tt_buf *b)
{
	size_t i;
	json_t *r;
	tt_buf_printf(b, "%lld ranks on %lld cores, least of %lld rounds; others used %.2f cores. Milliseconds; growth as a share of the summed delays of what could be hidden\n\n"
			 "| mesh | exchanges | hideable | step | for each hideable | delay | delayed step | growth | less the others' delays | without overlap: exchanges | step | delayed | growth |\n"
			 "|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|\n",
		      (long long)json_integer_value(json_object_get(j, "ranks")), (long long)json_integer_value(json_object_get(j, "cores")),
		      (long long)json_integer_value(json_object_get(j, "rounds")), json_number_value(json_object_get(j, "others")));
	json_array_foreach(json_object_get(j, "rows"), i, r) {
		const char *name = json_string_value(json_object_get(r, "mesh")), *refused = json_string_value(json_object_get(r, "refused"));
		double ms = 1e3;
#define REAL(key) json_number_value(json_object_get(r, key))
		if (refused) {
			tt_buf_printf(b, "| %s | refused: %s |\n", name, refused);
			continue;
		}
		tt_buf_printf(b, "| %s | %.0f | %.0f | %.1f | %.2f | %.2f | %.1f | ", name, REAL("calls"), REAL("hideable"), ms * REAL("step_s"), ms * REAL("compute_each_s"),
			      ms * REAL("delay_s"), ms * REAL("step_delayed_s"));
		if (REAL("hideable") > 0)
			tt_buf_printf(b, "%.1f%% | %.1f%% | ", 100 * REAL("of_hideable"), 100 * REAL("of_hideable_alone"));
		else
			tt_buf_printf(b, "+%.1f | - | ", ms * REAL("grown_s"));
		tt_buf_printf(b, "%.0f | %.1f | %.1f | ", REAL("calls_without"), ms * REAL("step_without_s"), ms * REAL("step_delayed_without_s"));
		if (REAL("hideable") > 0)
			tt_buf_printf(b, "%.1f%% |\n", 100 * REAL("of_hideable_without"));
		else
			tt_buf_printf(b, "+%.1f |\n", ms * (REAL("step_delayed_without_s") - REAL("step_without_s")));
#undef REAL
	}
}
