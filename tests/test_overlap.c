/* Exchanges beside computation: whenever they run, in whatever buckets, however far ahead, the bits are those of a run in which each stands where the plan
 * declared it. And memory that is given away while an exchange is under way is found out. */
#include "ops/ops.h"
#include "tiny.h"

enum { STEPS = 3, RANKS = 8 };

typedef struct mesh { const char *name; int size[TT_RUN_AXES]; bool sp; } mesh;
static const mesh MESHES[] = {
	{ "dp_shard 2", { 1, 2, 1, 1 }, false },
	{ "dp_replicate 2, dp_shard 2", { 2, 2, 1, 1 }, false },
	{ "dp_shard 2, cp 2", { 1, 2, 2, 1 }, false },
	{ "dp_shard 2, tp 2", { 1, 2, 1, 2 }, true },
	{ "dp_replicate 2", { 2, 1, 1, 1 }, false },
	{ "tp 2", { 1, 1, 1, 2 }, false },
	{ "dp_replicate 2, dp_shard 2, tp 2", { 2, 2, 1, 2 }, true },
};

/* Vocabulary, ffn and hidden are whole panels of 64 on each of 2 ranks: packed weights are gathered as they lie. */
static tt_run_options options(tt_test *t, tt_dtype compute)
{
	tt_llama_config m = tiny_model(128);
	m.hidden_size = 128;
	m.intermediate_size = 256;
	m.num_hidden_layers = 3;
	tt_run_options o = tiny_options(m, tiny_rows(t->arena, 2 * STEPS, CONTEXT, 128, 3), CONTEXT, 4);
	o.tokens_per_microbatch = CONTEXT; /* several a step */
	o.compute = compute;
	o.exec.kernels_ref = false;
	o.exec.isa = tiny_isa(t);
	return o;
}

typedef struct runs {
	tt_test *t;
	const tt_run_options *o;
	tiny_end end[RANKS];
	int64_t early, calls; /* of rank 0: exchanges of REDUCE that start in B; calls of a step */
} runs;

static tt_status rank_main(tt_comm *c, void *ctx)
{
	runs *r = ctx;
	tt_run_options o = *r->o;
	o.mesh.comm = c;
	tiny_end *end = &r->end[tt_comm_rank(c)];
	*end = (tiny_end){ .steps = STEPS };
	tt_trainer *tr;
	TT_TRY(tt_trainer_create(&o, &tr));
	tt_status s = TT_OK;
	for (int i = 0; i < STEPS && !s; i++) {
		tt_step_report rep;
		s = tt_trainer_step(tr, &rep);
		end->loss[i] = rep.loss;
		end->norm[i] = rep.grad_norm;
		if (tt_comm_rank(c) == 0)
			r->calls = 0;
		for (int k = 0; k < rep.ncomm && tt_comm_rank(c) == 0; k++)
			r->calls += rep.comm[k].calls;
	}
	int64_t n;
	const tt_slot *slots = tt_exec_states(tt_trainer_exec(tr), &n);
	for (int64_t i = 0; i < n && !s; i++) {
		if (slots[i].source >= 0 || slots[i].region == TT_REGION_GRAD)
			continue;
		end->state[end->n].name = ""; /* in the trainer's memory */
		s = tt_tensor_hash(tt_trainer_exec(tr), &slots[i], 0, slots[i].count, &end->state[end->n++].hash);
	}
	tt_exec_instr in;
	for (int64_t i = 0; tt_comm_rank(c) == 0 && tt_exec_instr_at(tt_trainer_exec(tr), TT_SEG_REDUCE, i, &in); i++)
		r->early += in.early;
	tt_trainer_destroy(tr);
	return s;
}

/* All ranks of a mesh; false after a failed check. */
static bool run(tt_test *t, const tt_run_options *base, const mesh *m, runs *out)
{
	tt_run_options o = *base;
	memcpy(o.mesh.size, m->size, sizeof m->size);
	o.mesh.sp = m->sp;
	int ranks = m->size[0] * m->size[1] * m->size[2] * m->size[3];
	*out = (runs){ .t = t, .o = &o };
	tt_comm_options c = { .init_timeout_s = 120 };
	return TT_CHECK_OK(t, tt_comm_threads(ranks, &c, rank_main, out));
}

static const char *differs(tt_test *t, const mesh *m, const runs *x, const runs *y)
{
	for (int i = 0; i < m->size[0] * m->size[1] * m->size[2] * m->size[3]; i++) {
		const char *d = tiny_differs(t->arena, &x->end[i], &y->end[i]);
		if (d)
			return tt_arena_printf(t->arena, "rank %d: %s", i, d);
	}
	return NULL;
}

typedef struct way {
	const char *name;
	tt_lane_mode lane;
	tt_overlap overlap;
	tt_gathered gathered;
	bool fill_nan, protect, no_alias, kernels_ref, recompute;
} way;

static const way WAYS[] = {
	{ "thread", TT_LANE_THREAD, { 1, 25 << 20 }, TT_GATHERED_BY_LAYER, .fill_nan = true },
	{ "late", TT_LANE_LATE, { 1, 25 << 20 }, TT_GATHERED_AGAIN, .fill_nan = false },
	{ "early", TT_LANE_EARLY, { 3, 25 << 20 }, TT_GATHERED_AGAIN, .protect = true },
	{ "late, no buckets", TT_LANE_LATE, { 2, 0 }, TT_GATHERED_BY_LAYER, .fill_nan = true },
	{ "thread, kept", TT_LANE_THREAD, { 0, 100 << 10 }, TT_GATHERED_KEPT, .no_alias = true },
	{ "late, kept, recomputed", TT_LANE_LATE, { 1, 100 << 10 }, TT_GATHERED_KEPT, .fill_nan = true, .recompute = true },
	{ "early, references", TT_LANE_EARLY, { 1, 25 << 20 }, TT_GATHERED_BY_LAYER, .kernels_ref = true },
};

static tt_run_options along(const tt_run_options *o, const way *w)
{
	tt_run_options x = *o;
	x.exec.lane = w->lane;
	x.exec.fill_nan = w->fill_nan;
	x.exec.protect = w->protect;
	x.exec.no_alias = w->no_alias;
	x.exec.kernels_ref |= w->kernels_ref;
	x.overlap = w->overlap;
	x.gathered = w->gathered;
	if (w->recompute)
		x.recompute.mode = TT_RECOMPUTE_FULL;
	return x;
}

/* `every`: every way on every mesh, else in turn. */
static void same_bits(tt_test *t, tt_dtype compute, tt_numerics numerics, int meshes, bool every)
{
	tt_run_options o = options(t, compute);
	o.exec.numerics = numerics;
	o.overlap_off = true;
	runs *want = TT_NEW(t->arena, runs), *got = TT_NEW(t->arena, runs);
	for (int m = 0, turn = 0; m < meshes; m++) {
		if (!run(t, &o, &MESHES[m], want))
			return;
		for (int w = 0; w < (every ? TT_COUNT(WAYS) : 3); w++) {
			const way *how = &WAYS[every ? w : turn++ % TT_COUNT(WAYS)];
			tt_run_options x = along(&o, how);
			x.overlap_off = false;
			if (!run(t, &x, &MESHES[m], got))
				return;
			const char *d = differs(t, &MESHES[m], want, got);
			TT_CHECK_MSG(t, !d, "%s, %s: %s", MESHES[m].name, how->name, d);
		}
	}
}

static void bf16(tt_test *t) { same_bits(t, TT_BF16, TT_FAST, 5, false); }
static void f32(tt_test *t) { same_bits(t, TT_F32, TT_FAST, 3, false); }
static void exact(tt_test *t) { same_bits(t, TT_BF16, TT_EXACT, 1, false); }
/* Eight ranks, each with its lane, on three axes. */
static void eight(tt_test *t)
{
	tt_run_options o = options(t, TT_F32), x = along(&o, &WAYS[0]);
	runs *want = TT_NEW(t->arena, runs), *got = TT_NEW(t->arena, runs);
	o.overlap_off = true;
	if (!run(t, &o, &MESHES[6], want) || !run(t, &x, &MESHES[6], got))
		return;
	const char *d = differs(t, &MESHES[6], want, got);
	TT_CHECK_MSG(t, !d, "%s: %s", MESHES[6].name, d);
}

static void every(tt_test *t)
{
	same_bits(t, TT_BF16, TT_FAST, TT_COUNT(MESHES), true);
	same_bits(t, TT_F32, TT_FAST, TT_COUNT(MESHES), true);
}

/* Memory given away too early: results come out wrong where an exchange runs as late as it can. */
static void faults(tt_test *t)
{
	tt_run_options o = options(t, TT_BF16);
	runs *want = TT_NEW(t->arena, runs), *got = TT_NEW(t->arena, runs);
	o.overlap_off = true;
	if (!run(t, &o, &MESHES[0], want))
		return;
	o.overlap_off = false;
	o.overlap = (tt_overlap){ 1, 25 << 20 };
	o.exec.lane = TT_LANE_LATE;
	o.exec.short_lives = true;
	if (!run(t, &o, &MESHES[0], got))
		return;
	TT_CHECK_MSG(t, differs(t, &MESHES[0], want, got) != NULL, "a prefetch into memory that others still use changes nothing");
}

/* Buckets are fewer exchanges; sums once a step start in the last backward. */
static void order(tt_test *t)
{
	tt_run_options o = options(t, TT_BF16);
	runs *each = TT_NEW(t->arena, runs), *all = TT_NEW(t->arena, runs);
	o.overlap = (tt_overlap){ 1, 0 };
	if (!run(t, &o, &MESHES[0], each))
		return;
	o.overlap.bucket_bytes = 25 << 20;
	if (!run(t, &o, &MESHES[0], all))
		return;
	TT_CHECK_MSG(t, all->calls < each->calls / 3, "%lld calls in buckets, %lld one by one", (long long)all->calls, (long long)each->calls);
	TT_CHECK_MSG(t, !differs(t, &MESHES[0], each, all), "buckets change bits");
	TT_CHECK_INT(t, all->early, 0);
	if (run(t, &o, &MESHES[4], all))
		TT_CHECK_MSG(t, all->early > 0, "no sum of gradients over dp_replicate starts in the backward");
}

const tt_case tt_suite_overlap[] = {
	{ "bf16", bf16, TT_TIER_QUICK },
	{ "f32", f32, TT_TIER_QUICK },
	{ "exact", exact, TT_TIER_QUICK },
	{ "eight", eight, TT_TIER_QUICK },
	{ "faults", faults, TT_TIER_QUICK },
	{ "order", order, TT_TIER_QUICK },
	{ "every", every, TT_TIER_PROOF },
	{ 0 },
};
