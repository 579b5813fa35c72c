/* count.c: one rank's step: instructions, their talk, and how long they might take on the lanes of compute and communication. */
#include "plan/plan.h"

/* A talk's kind as people call it. */
static const char *kind_name(int64_t kind)
{
	switch ((tt_exchange_kind)kind) {
	case TT_EX_GATHER: return "all-gather";
	case TT_EX_SCATTER: return "reduce-scatter";
	case TT_EX_REDUCE: return "all-reduce";
	case TT_EX_MAX: return "all-reduce max";
	case TT_EX_SLICE: return "slice";
	case TT_EX_PAD: return "pad";
	case TT_EX_ONCE: return "once";
	case TT_EX_SWAP: return "all-to-all";
	case TT_EX_SHIFT: return "shift";
	}
	return "?";
}

static tt_plan_talk *talk_of(tt_arena *a, tt_plan_rank *r, uint32_t axes, const char *kind)
{
	for (int64_t i = 0; i < r->ntalk; i++)
		if (r->talk[i].axes == axes && !strcmp(r->talk[i].kind, kind))
			return &r->talk[i];
	tt_plan_talk t = { .axes = axes, .kind = kind };
	TT_PUSH(a, r->talk, r->ntalk, r->cap_talk, t);
	return &r->talk[r->ntalk - 1];
}

void tt_plan_talk_add(tt_arena *a, tt_plan_rank *r, uint32_t axes, const char *kind, int64_t calls, int64_t bytes)
{
	tt_plan_talk *t = talk_of(a, r, axes, kind);
	t->calls += calls;
	t->bytes += bytes;
}

enum { INSIDE, OUTSIDE, LINKS }; /* of a node */

typedef struct walk {
	tt_arena *a;
	tt_exec *e;
	const tt_plan_asked *q;
	tt_plan_rank *out;
	double *began, *ended; /* [instructions of the program] */
	int32_t *talk;   /* [instructions] of an exchange of a communication lane, its entry; else -1 */
	int *lane_of;    /* [instructions] */
	double lane[TT_LANES], link[LINKS]; /* when each is free */
	double exposed;  /* of this run: talk on the compute lane, and its waits for the others */
	double near[1 << TT_MESH_AXES]; /* by axes: share of the other members that are of this rank's node; < 0: not known yet */
	int *ranks;      /* room for all */
	int run;         /* index of the entry */
	bool first_f;    /* the first of F */
} walk;

/* ---- time ------------------------------------------------------------------------------------------------------------------------------ */

static double share_near(walk *w, uint32_t axes)
{
	const tt_hardware *h = w->q->hardware;
	if (w->near[axes] >= 0)
		return w->near[axes];
	int n = tt_mesh_ranks(w->q->naxes, w->q->size, axes, w->q->rank, w->ranks), near = 0;
	for (int i = 0; i < n; i++)
		near += !h->node || w->ranks[i] / h->node == w->q->rank / h->node;
	return w->near[axes] = n > 1 ? (double)(near - 1) / (n - 1) : 1;
}

/* What an instruction takes; of it, an exchange: before it needs a link, and how long it needs each, both at once. */
typedef struct took { double seconds, latency, link[LINKS]; } took;

static void talk_time(walk *w, const tt_attr_exchange *at, const tt_exec_talks *t, took *x)
{
	const tt_hardware *h = w->q->hardware;
	double near = share_near(w, (uint32_t)at->axes), bytes = (double)t->bytes;
	x->latency = (double)t->calls * h->latency;
	x->link[INSIDE] = bytes * near / (h->link * h->link_share);
	x->link[OUTSIDE] = bytes * (1 - near) / (h->network * h->link_share);
	x->seconds = TT_MAX(x->seconds, x->latency + TT_MAX(x->link[INSIDE], x->link[OUTSIDE]));
}

static double work_seconds(const walk *w, const tt_exec_instr *x, const tt_cost *c)
{
	const tt_hardware *h = w->q->hardware;
	double peak = x->node->nin && x->node->in[0] && x->in[0].dtype == TT_BF16 ? h->bf16 : h->f32;
	return h->issue + TT_MAX(c->flops / (peak * h->product_share), c->bytes / (h->bandwidth * h->memory_share));
}

static void put_span(walk *w, const tt_exec_instr *x, int lane, double begin, double end)
{
	const tt_attr_exchange *at = !strncmp(x->node->op->name, "exchange", 8) ? x->node->attr : NULL;
	tt_plan_span s = { lane, w->run, x->node->op->name, tt_arena_strdup(w->a, x->graph->values[x->node->out[0]].name), at ? at->axis : NULL, begin, end };
	TT_PUSH(w->a, w->out->span, w->out->nspan, w->out->cap_span, s);
}

/* The compute lane waits until `to` for exchanges of a lane, up to instruction `last`. */
static void wait_for(walk *w, int lane, int64_t last, double to, double times)
{
	double *compute = &w->lane[TT_LANE_COMPUTE], from = *compute;
	if (to <= from)
		return;
	w->exposed += to - from;
	*compute = to;
	/* Each from the end of the one before it on: between the two it waits for a link. */
	tt_plan_talk *of = NULL;
	for (int64_t i = last; i >= 0 && to > from; i--) {
		if (w->talk[i] < 0 || w->lane_of[i] != lane)
			continue;
		double since = TT_MAX(TT_MIN(w->ended[i], to), from);
		if (of) {
			of->exposed += times * (to - since);
			to = since;
		}
		of = &w->out->talk[w->talk[i]];
	}
	if (of)
		of->exposed += times * (to - from);
}

/* When an exchange begins whose lane is free at `begin`. A link carries one after another, in the order in which the compute lane came to them. */
static double begin_of(walk *w, double begin, const took *x)
{
	for (int k = 0; k < LINKS; k++)
		if (x->link[k] > 0)
			begin = TT_MAX(begin, w->link[k] - x->latency);
	for (int k = 0; k < LINKS; k++)
		if (x->link[k] > 0)
			w->link[k] = begin + x->latency + x->link[k];
	return begin;
}

/* An instruction begins when its lane is free: an exchange of a communication lane not before the compute lane came to it, and none before the exchanges
 * that it waits for have ended. */
static void pass_time(walk *w, int64_t index, const tt_exec_instr *x, tt_plan_talk *talks, const took *t, double times)
{
	int lane = x->lane ? TT_LANE_COMM + x->lane - 1 : TT_LANE_COMPUTE;
	for (int k = 0; k < TT_COMM_LANES; k++)
		if (x->waits[k] >= 0)
			wait_for(w, TT_LANE_COMM + k, x->waits[k], w->ended[x->waits[k]], times);
	double begin = begin_of(w, TT_MAX(w->lane[lane], w->lane[TT_LANE_COMPUTE]), t), end = begin + t->seconds;
	w->lane[lane] = w->ended[index] = end;
	w->began[index] = begin;
	w->lane_of[index] = lane;
	w->talk[index] = talks && x->lane ? (int32_t)(talks - w->out->talk) : -1;
	if (talks && !x->lane) {
		w->exposed += t->seconds;
		talks->exposed += times * t->seconds;
	}
	if (w->q->spans && t->seconds > 0)
		put_span(w, x, talks && !x->lane ? TT_LANE_COMM : lane, begin, end); /* talk on the compute lane is drawn below it all the same */
}

/* ---- counts ---------------------------------------------------------------------------------------------------------------------------- */

static tt_status add(int64_t *sum, int64_t x, int64_t times)
{
	int64_t product;
	if (__builtin_mul_overflow(x, times, &product) || __builtin_add_overflow(*sum, product, sum))
		TT_FAIL(TT_ERR_MEMORY, "the bytes of a step are more than can be counted (training.tokens_per_step, training.tokens_per_microbatch)");
	return TT_OK;
}

static tt_status instruction(walk *w, const tt_plan_run *r, int64_t index, const tt_exec_instr *x)
{
	tt_plan_rank *o = w->out;
	double times = (double)r->times;
	took time = { 0 };
	tt_cost c = tt_exec_instr_cost(w->e, x);
	tt_exec_talks t = { 0 };
	tt_plan_talk *k = NULL;
	o->flops += times * c.flops;
	o->bytes += times * c.bytes;
	if (w->q->hardware)
		time.seconds = work_seconds(w, x, &c);
	if (tt_exec_instr_talks(w->e, x, &t) && t.calls) {
		const tt_attr_exchange *at = x->node->attr;
		k = talk_of(w->a, o, (uint32_t)at->axes, kind_name(at->kind));
		TT_TRY(add(&k->calls, t.calls, r->times));
		TT_TRY(add(&k->bytes, t.bytes, r->times));
		/* What hides behind PREP is of a step's first cell. */
		int64_t could = x->hides == TT_HIDES ? r->times : x->hides == TT_HIDES_AHEAD && x->early && w->first_f ? 1 : 0;
		k->hideable_calls += could * t.calls;
		k->hideable_bytes += could * t.bytes;
		if (w->q->hardware)
			talk_time(w, at, &t, &time);
		k->seconds += times * time.seconds;
		o->comm_s += times * time.seconds;
	} else {
		o->compute_s += times * time.seconds;
	}
	if (w->q->hardware)
		pass_time(w, index, x, k, &time, times);
	return TT_OK;
}

static tt_status program(walk *w, const tt_plan_run *r)
{
	tt_cell cell = { .T = r->T, .nseqs = r->nseqs };
	TT_TRY(tt_exec_shape(w->e, r->seg, &cell));
	tt_exec_instr x;
	memset(w->lane, 0, sizeof w->lane);
	memset(w->link, 0, sizeof w->link);
	w->exposed = 0;
	int64_t n = 0;
	for (; tt_exec_instr_at(w->e, r->seg, n, &x); n++)
		TT_TRY(instruction(w, r, n, &x));
	double times = (double)r->times;
	for (int lane = TT_LANE_COMM; lane < TT_LANES; lane++)
		wait_for(w, lane, n - 1, w->lane[lane], times);
	w->out->exposed_s += times * w->exposed;
	w->out->segment_s[r->seg] += times * w->lane[TT_LANE_COMPUTE];
	w->out->seconds += times * w->lane[TT_LANE_COMPUTE];
	return TT_OK;
}

tt_status tt_plan_count(tt_arena *a, tt_exec *e, const tt_plan_asked *q, tt_plan_rank *out)
{
	walk w = { .a = a, .e = e, .q = q, .out = out };
	int64_t most = 1, ranks = 1;
	tt_exec_instr x;
	for (int i = 0; i < TT_EXEC_NREGIONS; i++) {
		out->region[i] = tt_exec_planned(e, i);
		TT_TRY(add(&out->memory, out->region[i], 1));
	}
	for (int seg = 0; seg < TT_NSEGS; seg++)
		for (int64_t i = 0; tt_exec_instr_at(e, (tt_segment)seg, i, &x); i++, out->instructions++)
			most = TT_MAX(most, i + 1);
	for (int i = 0; i < q->naxes; i++)
		ranks *= q->size[i];
	for (int i = 0; i < TT_COUNT(w.near); i++)
		w.near[i] = -1;
	w.began = TT_NEWN(a, double, most);
	w.ended = TT_NEWN(a, double, most);
	w.talk = TT_NEWN(a, int32_t, most);
	w.lane_of = TT_NEWN(a, int, most);
	w.ranks = TT_NEWN(a, int, ranks);
	TT_ASSERT(q->nruns <= TT_COUNT(out->run), "%d entries", q->nruns);
	memcpy(out->run, q->runs, sizeof *q->runs * (size_t)q->nruns);
	out->nruns = q->nruns;
	for (int i = 0; i < q->nruns; i++) {
		w.run = i;
		w.first_f = q->runs[i].seg == TT_SEG_F;
		for (int k = 0; k < i; k++)
			w.first_f &= q->runs[k].seg != TT_SEG_F;
		if (q->runs[i].times && tt_exec_has(e, q->runs[i].seg))
			TT_TRY(program(&w, &q->runs[i]));
	}
	return TT_OK;
}
