/* Exchanges beside computation: whenever they run, in whatever buckets, however far ahead, the bits are those of a run in which each stands where the plan
 * declared it. And memory that is given away while an exchange is under way is found out. */
#include "ops/ops.h"
#include "tiny.h"

#include <stdio.h>

enum { STEPS = 3, RANKS = 8 };

typedef struct mesh { const char *name; int size[TT_RUN_AXES]; bool sp; tt_cp_method method; } mesh;
static const mesh MESHES[] = {
	{ "dp_shard 2", { 1, 2, 1, 1 }, false, TT_CP_GATHER },
	{ "dp_replicate 2, dp_shard 2", { 2, 2, 1, 1 }, false, TT_CP_GATHER },
	{ "dp_shard 2, cp 2", { 1, 2, 2, 1 }, false, TT_CP_GATHER },
	{ "dp_shard 2, tp 2", { 1, 2, 1, 2 }, true, TT_CP_GATHER },
	{ "dp_replicate 2", { 2, 1, 1, 1 }, false, TT_CP_GATHER },
	{ "tp 2", { 1, 1, 1, 2 }, false, TT_CP_GATHER },
	{ "dp_replicate 2, dp_shard 2, tp 2", { 2, 2, 1, 2 }, true, TT_CP_GATHER },
	{ "cp 2, head_swap", { 1, 1, 2, 1 }, false, TT_CP_HEAD_SWAP },
	{ "cp 2, ring", { 1, 1, 2, 1 }, false, TT_CP_RING },
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
	int between; /* steps: 1 validation runs, 2 a weight is written */
	bool prep;   /* there is a program PREP */
	int64_t early, ahead, calls; /* of rank 0: exchanges of REDUCE that start in B, of F that start in PREP; calls of a step */
	int64_t could[TT_NSEGS][TT_EX_SHIFT + 1], all[TT_NSEGS][TT_EX_SHIFT + 1]; /* of it: exchanges by kind, those that could be hidden */
} runs;

/* What lies between two steps: another program in the same memory; a parameter that F gathers as it is. */
static tt_status come_between(tt_trainer *tr, int what)
{
	if (what == 1)
		return tt_exec_run(tt_trainer_exec(tr), TT_SEG_EVAL, &(tt_cell){ .T = CONTEXT, .nseqs = 1, .first = true });
	float x[4] = { 0.5f, 2, -1, 3 };
	return tt_trainer_write(tr, "model.layers.0.input_layernorm.weight", 0, x, TT_COUNT(x));
}

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
		if (r->between && !s)
			s = come_between(tr, r->between);
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
	for (int64_t i = 0; tt_comm_rank(c) == 0 && tt_exec_instr_at(tt_trainer_exec(tr), TT_SEG_F, i, &in); i++)
		r->ahead += in.early;
	if (tt_comm_rank(c) == 0)
		r->prep = tt_exec_has(tt_trainer_exec(tr), TT_SEG_PREP);
	for (tt_segment seg = 0; tt_comm_rank(c) == 0 && seg < TT_NSEGS; seg++)
		for (int64_t i = 0; tt_exec_instr_at(tt_trainer_exec(tr), seg, i, &in); i++)
			if (in.lane) {
				const tt_attr_exchange *a = in.node->attr;
				r->all[seg][a->kind]++;
				r->could[seg][a->kind] += in.hides != TT_HIDES_NOT;
			}
	tt_trainer_destroy(tr);
	return s;
}

/* All ranks of a mesh; false after a failed check. */
static bool run(tt_test *t, const tt_run_options *base, const mesh *m, runs *out)
{
	tt_run_options o = *base;
	memcpy(o.mesh.size, m->size, sizeof m->size);
	o.mesh.sp = m->sp;
	o.mesh.cp_method = m->method;
	int ranks = m->size[0] * m->size[1] * m->size[2] * m->size[3];
	*out = (runs){ .t = t, .o = &o, .between = out->between };
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
	{ "thread", TT_LANE_THREAD, { 1, 25 << 20, false }, TT_GATHERED_BY_LAYER, .fill_nan = true },
	{ "late", TT_LANE_LATE, { 1, 25 << 20, false }, TT_GATHERED_AGAIN, .fill_nan = false },
	{ "early", TT_LANE_EARLY, { 3, 25 << 20, false }, TT_GATHERED_AGAIN, .protect = true },
	{ "late, no buckets", TT_LANE_LATE, { 2, 0, false }, TT_GATHERED_BY_LAYER, .fill_nan = true },
	{ "thread, kept", TT_LANE_THREAD, { 0, 100 << 10, false }, TT_GATHERED_KEPT, .no_alias = true },
	{ "late, kept, recomputed", TT_LANE_LATE, { 1, 100 << 10, false }, TT_GATHERED_KEPT, .fill_nan = true, .recompute = true },
	{ "early, references", TT_LANE_EARLY, { 1, 25 << 20, false }, TT_GATHERED_BY_LAYER, .kernels_ref = true },
	{ "thread, lanes in turn", TT_LANE_THREAD, { 1, 25 << 20, .mixed = true }, TT_GATHERED_AGAIN, .fill_nan = true },
	{ "late, lanes in turn", TT_LANE_LATE, { 1, 0, .mixed = true }, TT_GATHERED_BY_LAYER, .fill_nan = true },
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
	o.overlap = (tt_overlap){ 1, 25 << 20, false };
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
	o.overlap = (tt_overlap){ 1, 0, false };
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

/* Queries, keys and values change hands in one exchange, forward and backward; so do keys and values round a ring. */
static void swaps(tt_test *t)
{
	tt_run_options o = options(t, TT_BF16);
	runs *want = TT_NEW(t->arena, runs), *got = TT_NEW(t->arena, runs);
	for (int m = 7; m < 9; m++) {
		tt_exchange_kind kind = m == 7 ? TT_EX_SWAP : TT_EX_SHIFT;
		int64_t layers = o.model.num_hidden_layers;
		o.overlap_off = true;
		if (!run(t, &o, &MESHES[m], want))
			return;
		tt_run_options x = along(&o, &WAYS[1]);
		x.overlap_off = false;
		if (!run(t, &x, &MESHES[m], got))
			return;
		const char *d = differs(t, &MESHES[m], want, got);
		TT_CHECK_MSG(t, !d, "%s: %s", MESHES[m].name, d);
		TT_CHECK_INT(t, got->all[TT_SEG_F][kind], (kind == TT_EX_SWAP ? 2 : 1) * layers); /* q, k, v; o */
		TT_CHECK_INT(t, got->all[TT_SEG_B][kind], 2 * layers);
	}
}

/* F's first gathers have been made when it begins, in memory that nobody else uses; unless somebody did, or wrote what they gathered. */
static void ahead(tt_test *t)
{
	runs *want = TT_NEW(t->arena, runs), *got = TT_NEW(t->arena, runs);
	for (int between = 0; between < 3; between++)
		for (int late = 0; late < 2; late++) {
			tt_run_options o = options(t, TT_F32);
			o.tokens_per_microbatch = 2 * CONTEXT; /* a step is one cell */
			o.overlap_off = true;
			want->between = got->between = between;
			if (!late && !run(t, &o, &MESHES[0], want))
				return;
			o.overlap_off = false;
			o.overlap = (tt_overlap){ 1, 25 << 20, false };
			o.exec.lane = late ? TT_LANE_LATE : TT_LANE_THREAD;
			if (!run(t, &o, &MESHES[0], got))
				return;
			const char *d = differs(t, &MESHES[0], want, got);
			TT_CHECK_MSG(t, !d, "%s: %s", between == 1 ? "a validation between steps" : between ? "a write between steps" : "nothing between steps", d);
			TT_CHECK_INT(t, got->ahead, got->prep); /* the embedding and layer 0; references pack nothing */
		}
}

/* Which exchanges can be hidden, by hand: [mesh][F, B, REDUCE] of a kind, all and those that can. 3 layers; one bucket of each. */
static void hideable(tt_test *t)
{
	static const struct { int mesh; tt_segment seg; tt_exchange_kind kind; int all, could; } facts[] = {
		{ 0, TT_SEG_F, TT_EX_GATHER, 4, 4 },  /* embedding with layer 0, layers, and the last norm with the head */
		{ 0, TT_SEG_B, TT_EX_GATHER, 3, 3 },  /* layers again */
		{ 0, TT_SEG_B, TT_EX_SCATTER, 5, 4 }, /* head, layers; what is left of layer 0, and the embedding: nothing is computed after it */
		{ 0, TT_SEG_REDUCE, TT_EX_REDUCE, 1, 0 }, /* the norm, with the loss: the update needs it */
		{ 4, TT_SEG_REDUCE, TT_EX_REDUCE, 6, 5 }, /* head and norm, layers, embedding: in the backward, or behind others' squares; not the norm's with the loss */
		{ 5, TT_SEG_F, TT_EX_REDUCE, 7, 0 },  /* embedding, two a layer: each is needed at once */
		{ 5, TT_SEG_B, TT_EX_REDUCE, 9, 6 },  /* two a layer, before gradients of weights; of both chunks of the loss the sums of exponentials with the labels' logits; the head's input */
	};
	tt_run_options o = options(t, TT_BF16);
	o.overlap = (tt_overlap){ 1, 25 << 20, false };
	runs *r = TT_NEW(t->arena, runs);
	for (int i = 0, last = -1; i < TT_COUNT(facts); last = facts[i++].mesh) {
		if (facts[i].mesh != last && !run(t, &o, &MESHES[facts[i].mesh], r))
			return;
		int64_t all = r->all[facts[i].seg][facts[i].kind], could = r->could[facts[i].seg][facts[i].kind];
		TT_CHECK_MSG(t, all == facts[i].all && could == facts[i].could, "%s, %s, kind %d: %lld exchanges, %lld could be hidden; want %d and %d", MESHES[facts[i].mesh].name,
			     tt_segment_name(facts[i].seg), facts[i].kind, (long long)all, (long long)could, facts[i].all, facts[i].could);
	}
}

/* ---- no two that may run at once touch the same bytes, where one of them writes ------------------------------------------------------------------------- */

typedef struct span { const uint8_t *from, *to; bool writes; } span;
typedef struct touched { tt_exec_instr in; int64_t at; span *span; int n; } touched;

static span span_of(const tt_arg *a, bool writes)
{
	int64_t size = a->dtype == TT_ACC && a->plane ? 8 : tt_dtype_size(a->dtype, TT_FAST, false), n = 1;
	for (int d = 0; d < a->ndim; d++)
		n *= a->n[d];
	if (a->format != TT_PLAIN)
		n = tt_format_count(a->format, a->dtype, a->n[0], a->n[1]);
	const uint8_t *p = a->p;
	return (span){ p, p + 2 * a->plane + n * size, writes };
}

static touched touched_by(tt_arena *a, const tt_exec_instr *in, int64_t at)
{
	touched x = { .in = *in, .at = at, .span = TT_NEWN(a, span, in->node->nin + in->node->nout + 1) };
	for (int k = 0; k < in->node->nin; k++)
		if (in->node->in[k])
			x.span[x.n++] = span_of(&in->in[k], false);
	for (int k = 0; k < in->node->nout; k++)
		if (in->node->out[k])
			x.span[x.n++] = span_of(&in->out[k], true);
	const uint8_t *scratch = in->call->scratch;
	if (in->scratch)
		x.span[x.n++] = (span){ scratch, scratch + in->scratch, true };
	return x;
}

static bool clash(const touched *x, const touched *y)
{
	for (int i = 0; i < x->n; i++)
		for (int k = 0; k < y->n; k++)
			if ((x->span[i].writes || y->span[k].writes) && x->span[i].from < y->span[k].to && y->span[k].from < x->span[i].to)
				return true;
	return false;
}

/* Of one program: pairs that clash, and how many exchanges of other lanes were under way when one was started. */
typedef struct races { tt_test *t; const tt_run_options *o; const char *mesh; int clashes; int64_t beside; } races;

static void races_of(races *r, tt_exec *e, tt_segment seg)
{
	tt_arena *a = tt_arena_create("races");
	touched *under = NULL;
	int64_t n = 0, cap = 0;
	tt_exec_instr in;
	for (int64_t i = 0; tt_exec_instr_at(e, seg, i, &in); i++) {
		int64_t left = 0;
		for (int64_t k = 0; k < n; k++)
			if (under[k].at > in.waits[under[k].in.lane - 1])
				under[left++] = under[k];
		n = left;
		touched x = touched_by(a, &in, i);
		for (int64_t k = 0; k < n; k++) {
			if (under[k].in.lane == in.lane)
				continue;
			r->beside += in.lane != 0;
			if (clash(&x, &under[k]) && r->clashes++ < 3)
				fprintf(stderr, "%s, %s: %lld %s of %s clashes with %lld %s of %s, which is under way\n", r->mesh, tt_segment_name(seg), (long long)i, in.node->op->name,
					in.graph->values[in.node->out[0]].name, (long long)under[k].at, under[k].in.node->op->name, under[k].in.graph->values[under[k].in.node->out[0]].name);
		}
		if (in.lane)
			TT_PUSH(a, under, n, cap, x);
	}
	tt_arena_destroy(a);
}

static tt_status races_main(tt_comm *c, void *ctx)
{
	races *r = ctx;
	tt_run_options o = *r->o;
	o.mesh.comm = c;
	tt_trainer *tr;
	TT_TRY(tt_trainer_create(&o, &tr));
	for (tt_segment seg = 0; seg < TT_NSEGS && tt_comm_rank(c) == 0; seg++)
		races_of(r, tt_trainer_exec(tr), seg);
	tt_trainer_destroy(tr);
	return TT_OK;
}

static void no_races(tt_test *t)
{
	tt_run_options o = options(t, TT_BF16);
	int64_t beside = 0;
	for (int m = 0; m < TT_COUNT(MESHES); m++)
		for (int w = 0; w < TT_COUNT(WAYS); w += 2) {
			tt_run_options x = along(&o, &WAYS[w]);
			memcpy(x.mesh.size, MESHES[m].size, sizeof x.mesh.size);
			x.mesh.sp = MESHES[m].sp;
			x.mesh.cp_method = MESHES[m].method;
			races r = { .t = t, .o = &x, .mesh = MESHES[m].name };
			tt_comm_options c = { .init_timeout_s = 120 };
			int ranks = x.mesh.size[0] * x.mesh.size[1] * x.mesh.size[2] * x.mesh.size[3];
			if (!TT_CHECK_OK(t, tt_comm_threads(ranks, &c, races_main, &r)))
				return;
			TT_CHECK_MSG(t, !r.clashes, "%s, %s: %d pairs of instructions that may run at once touch the same bytes", MESHES[m].name, WAYS[w].name, r.clashes);
			beside += r.beside;
		}
	TT_CHECK(t, beside > 100); /* pairs that were looked at, of exchanges */
}

const tt_case tt_suite_overlap[] = {
	{ "bf16", bf16, TT_TIER_QUICK },
	{ "f32", f32, TT_TIER_QUICK },
	{ "exact", exact, TT_TIER_QUICK },
	{ "eight", eight, TT_TIER_QUICK },
	{ "faults", faults, TT_TIER_QUICK },
	{ "order", order, TT_TIER_QUICK },
	{ "swaps", swaps, TT_TIER_QUICK },
	{ "ahead", ahead, TT_TIER_QUICK },
	{ "hideable", hideable, TT_TIER_QUICK },
	{ "no_races", no_races, TT_TIER_QUICK },
	{ "every", every, TT_TIER_PROOF },
	{ 0 },
};
