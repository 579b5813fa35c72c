/* xsmm_forward.c: linear, linear_dx: Y[T,n] = X[T,k] times a packed matrix of n features. xsmm.c says what holds for all products. */
#include "kernels/chain.h"
#include "kernels/panel.h"
#include "kernels/tail.h"
#include "kernels/xsmm_tile.h"

#ifndef TT_NO_X86

enum {
	SUB = 48,           /* lines that share scratch tiles */
	SEGMENTS = 8,       /* scratch tiles that are joined */
	BLOCK = 576,        /* most lines of a task: they stay in cache across the panels */
	CHUNK_OWN = 2048,   /* words: 512 KiB of a panel */
	CHUNK_WIDENED = 256,
	CHUNK_FEW = 64,     /* where lines are few, weights are widened into the first cache for one call */
	WIDENED = 393216,   /* most elements of X that a task widens at once, above SUB lines */
	LEAST = 512,        /* fewest lines of a task that packs its panels */
	PACKED = 6,         /* most panels that a task packs at once: lines come from far once for all of them */
	TURN = 144,         /* lines that go through them in turn */
};

/* A piece of the contraction that one call takes. */
typedef struct span {
	int64_t k0, n;
	int segment;
	bool begin;  /* first of its segment */
	tile direct[LINES + 1], scratch[LINES + 1];
} span;

/* Steps of a tile of chain.h: what of them runs before the next tile, so that their piece of a panel stays in cache. */
typedef struct run {
	tt_chain_step *step;
	int64_t nsteps;
	int64_t k0, n; /* elements */
	int depth;     /* open sums at its start */
} run;

typedef struct forward {
	int64_t k, n;
	form form;
	bool rounded;    /* a `round` was folded in: a zero is +0 */
	bool adds, bias; /* linear_dx_add; linear with a bias */
	tt_tail tail;    /* run on what a task made */
	int64_t unit;    /* panels of a head, if that is more than one: a task has whole heads */
	tt_dtype out;
	tt_format format;
	bool columns;          /* linear_dx: features are columns of the weight, else lines */
	tile_kind kind_direct; /* of the tiles that write Y; those that write scratch have form.kind */
	bool direct;     /* full panels are written straight to Y */
	int threads;
	int nseg; /* 1 or SEGMENTS */
	int nspans;
	span *spans;
	int64_t chunk; /* most of the contraction in a span or run */
	bool own;        /* AVX-512: tiles of chain.h, else libxsmm's */
	bool plus;       /* own: a segment is empty: its +0 is added at the end, which is the same */
	int nruns;
	run *runs;
	int64_t block; /* most lines of a task; plain: lines that go through its panels in turn */
	int64_t packed; /* plain: most panels of a task */
	int64_t lane_bytes;
} forward;

/* What a task works with. */
typedef struct forward_lane {
	float *tiles;     /* [SEGMENTS][SUB][64]; own: open sums of SUB lines */
	float *w;         /* a panel that was widened, [k][64], or panels that were packed, [packed][k][64]; else NULL. A span at a time if `once` */
	bool once;        /* a panel is used for one run of lines */
	const uint8_t *x; /* the task's lines as the tiles read them, from line m0 */
	int64_t m0;
} forward_lane;

typedef struct forward_job {
	const forward *f;
	const tt_call *call;
	const uint8_t *x;
	const tt_arg *bias;
	const float *state; /* [lines][n] that Y is added to; NULL: none */
	uint8_t *scratch;
	int64_t lines, block, panels; /* lines; of a task; panels */
	int64_t groups;               /* of panels: a task has one */
} forward_job;

static bool output_fits(const tt_value *y) { return y->dtype == TT_F32 || y->dtype == TT_BF16 || y->dtype == TT_ACC; }

static bool is_dx(const tt_kernel_case *c) { return !strncmp(c->op, "linear_dx", 9); } /* and linear_dx_add */

/* Of `linear` itself, the one that may have segments and a bias. */
static const tt_attr_linear *linear_attr(const tt_kernel_case *c) { return strcmp(c->op, "linear") ? NULL : c->attr; }

/* What a tail takes the columns in. */
static int64_t head_dim(const tt_kernel_case *c)
{
	return strcmp(c->op, "linear_rope") ? 1 : ((const tt_attr_linear_rope *)c->attr)->rope.head_dim;
}

static bool tail_accepts(const tt_kernel_case *c)
{
	return c->nout > 1 ? tt_xsmm_fits(c->in[0], c->in[2]) : !(WIDE % head_dim(c)) || !(head_dim(c) % WIDE);
}

bool tt_xsmm_forward_accepts(const tt_kernel_case *c, tt_dtype dt)
{
	if (!tt_xsmm_fits(c->in[0], c->in[1]) || c->in[0]->dtype != dt || c->in[1]->dim[0].n < 1 || !output_fits(c->out[0]))
		return false;
	bool pairs = dt == TT_BF16;
	if (pairs && c->in[0]->dim[1].n % 2)
		return false;
	if (is_dx(c))
		return true;
	if (!linear_attr(c))
		return tail_accepts(c);
	if (c->nin > 2 && c->in[2] && c->in[2]->dtype != TT_F32 && c->in[2]->dtype != TT_BF16)
		return false;
	const tt_ints *s = &linear_attr(c)->segments;
	if (s->n != 0 && s->n != 9)
		return false;
	for (int i = 0; i < s->n; i++)
		if (pairs && s->v[i] % 2)
			return false;
	return true;
}

tt_format tt_xsmm_forward_format(const tt_kernel_case *c, int i)
{
	if (i < 1 || i > tt_tail_of(c->op, TT_ISA_REF, false).products)
		return TT_PLAIN;
	return is_dx(c) ? TT_PACK_DX : TT_PACK_FWD;
}

/* Sizes that both `scratch` and `plan` need. */
static forward forward_of(const tt_kernel_case *c, level at, bool plain)
{
	forward f = {.k = c->in[0]->dim[1].n, .n = c->in[1]->dim[is_dx(c) ? 1 : 0].n, .form = tt_xsmm_form(c->in[0], at)};
	f.form.plain = plain;
	f.format = plain ? TT_PLAIN : tt_xsmm_forward_format(c, 1);
	f.columns = is_dx(c);
	f.tail = tt_tail_of(c->op, at == AVX2 ? TT_ISA_AVX2 : TT_ISA_AVX512, false);
	f.unit = TT_MAX(1, head_dim(c) / WIDE);
	f.threads = TT_MAX(c->threads, 1);
	f.own = at >= AVX512 && !f.form.widened;
	f.chunk = f.own ? CHUNK_OWN * f.form.pair : !f.form.widened ? f.form.chunk : c->in[0]->dim[0].n > SUB ? CHUNK_WIDENED : CHUNK_FEW;
	f.block = BLOCK;
	f.lane_bytes = SEGMENTS * SUB * WIDE * (int64_t)sizeof(float);
	if (f.form.widened) {
		f.block = TT_MIN(BLOCK, TT_MAX(SUB, WIDENED / f.k / SUB * SUB));
		f.lane_bytes += tt_round_up((WIDE + f.block) * f.k * f.form.to, 64);
	}
	if (plain) {
		int64_t panels = tt_ceil_div(f.n, WIDE);
		f.block = TURN;
		f.packed = tt_ceil_div(panels, TT_MIN(panels, tt_round_up(tt_ceil_div(panels, PACKED), f.threads)));
		f.lane_bytes += f.packed * WIDE * f.k * f.form.to;
	}
	return f;
}

size_t tt_xsmm_forward_scratch(const tt_kernel_case *c, level at, bool plain)
{
	forward f = forward_of(c, at, plain);
	return (size_t)(f.threads * f.lane_bytes);
}

/* The tree over segments [lo, hi) as steps: a segment with something in it is one, and joins what lies left of it where it closes a pair.
 * Returns whether there is anything. An empty side's +0 changes nothing but a -0, which a sum that has a +0 anywhere never is. */
static bool tree(const int64_t *edge, int lo, int hi, int64_t pair, tt_chain_step *steps, int *n)
{
	if (hi - lo > 1) {
		int mid = (lo + hi) / 2;
		bool left = tree(edge, lo, mid, pair, steps, n), right = tree(edge, mid, hi, pair, steps, n);
		if (left && right)
			steps[*n - 1].joins++;
		return left || right;
	}
	if (edge[lo] < edge[hi])
		steps[(*n)++] = (tt_chain_step){.at = edge[lo] / pair, .n = (edge[hi] - edge[lo]) / pair};
	return edge[lo] < edge[hi];
}

/* The steps cut into equal runs of at most a chunk. */
static void plan_runs(forward *f, const int64_t *edge, int nseg, tt_arena *a)
{
	tt_chain_step steps[SEGMENTS];
	int n = 0, depth = 0;
	(void)tree(edge, 0, nseg, f->form.pair, steps, &n);
	f->plus = n < nseg;
	int64_t pair = f->form.pair, words = f->k / pair;
	f->nruns = (int)tt_ceil_div(f->k, f->chunk);
	f->runs = TT_NEWN(a, run, f->nruns);
	const tt_chain_step *s = steps;
	for (int i = 0; i < f->nruns; i++) {
		int64_t lo = tt_deal(words, i, f->nruns), hi = tt_deal(words, i + 1, f->nruns), cap = 0;
		run *r = &f->runs[i];
		*r = (run){.k0 = lo * pair, .n = (hi - lo) * pair, .depth = depth};
		for (; s < steps + n && s->at < hi; s++) {
			int64_t from = TT_MAX(s->at, lo), to = TT_MIN(s->at + s->n, hi);
			tt_chain_step p = {.at = from, .n = to - from, .goes_on = from > s->at, .joins = to == s->at + s->n ? s->joins : 0};
			TT_PUSH(a, r->step, r->nsteps, cap, p);
			depth += 1 - p.goes_on - p.joins;
			if (to < s->at + s->n)
				break;
		}
	}
	TT_ASSERT(depth == 1, "%d sums are left of a tree", depth);
}

tt_status tt_xsmm_forward_plan(const tt_kernel_case *c, tt_arena *a, level at, bool plain, const void **out)
{
	bool dx = is_dx(c);
	const tt_attr_linear *linear = linear_attr(c);
	forward *f = TT_NEW(a, forward);
	*f = forward_of(c, at, plain);
	f->rounded = dx ? ((const tt_attr_linear_dx *)c->attr)->rounded : linear && linear->rounded;
	f->bias = linear && c->nin > 2 && c->in[2];
	f->adds = dx && c->nin > 2;
	f->out = c->out[0]->dtype;
	f->kind_direct = f->form.kind;

	const int64_t whole[2] = {0, f->k};
	const tt_ints *s = linear ? &linear->segments : NULL;
	int nseg = f->nseg = s && s->n ? SEGMENTS : 1;
	const int64_t *edge = nseg == SEGMENTS ? s->v : whole;
	*out = f;
	if (f->own) {
		plan_runs(f, edge, nseg, a);
		return TT_OK;
	}
	tt_xsmm_target(at);
	int64_t most = f->chunk, pair = f->form.pair, nspans = 0, cap = 0;
	for (int i = 0; i < nseg; i++) {
		/* Equal chunks, in whole pairs; an empty segment is one empty span. */
		int64_t units = (edge[i + 1] - edge[i]) / pair, cuts = TT_MAX(1, tt_ceil_div(units * pair, most));
		for (int64_t j = 0; j < cuts; j++) {
			span p = {.segment = i, .begin = j == 0};
			p.k0 = edge[i] + tt_deal(units, j, cuts) * pair;
			p.n = edge[i] + tt_deal(units, j + 1, cuts) * pair - p.k0;
			TT_PUSH(a, f->spans, nspans, cap, p);
		}
	}
	f->nspans = (int)nspans;
	if (f->out != TT_BF16) {
		f->direct = nseg == 1 && !f->adds;
	} else if (f->form.to == 2 && nspans == 1 && !f->bias && !f->adds) {
		f->direct = true;
		f->kind_direct = TILE_BF16;
	}
	for (int i = 0; i < f->nspans; i++) {
		span *p = &f->spans[i];
		if (p->n == 0)
			continue;
		if (f->direct && f->n >= WIDE)
			TT_TRY(tt_xsmm_tiles(c->op, f->kind_direct, p->n, f->k, f->n, !p->begin, p->direct));
		if (!f->direct || f->n % WIDE)
			TT_TRY(tt_xsmm_tiles(c->op, f->form.kind, p->n, f->k, WIDE, !p->begin, p->scratch));
	}
	return TT_OK;
}
static WIDER void load_bias(const tt_arg *bias, int64_t n0, int64_t nn, float *restrict b)
{
	if (bias->dtype == TT_BF16)
		for (int64_t j = 0; j < nn; j++)
			b[j] = tt_bf16_to_f32(((const tt_bf16 *)bias->p)[n0 + j]);
	else
		memcpy(b, (const float *)bias->p + n0, (size_t)nn * sizeof(float));
}

/* v[nseg][SUB][64] to Y at `y`: segments joined, bias added, or all of it to `state`; rounded once. */
static WIDER void store_scratch(const forward *f, int64_t lines, int64_t nn, const float *restrict v, const float *restrict bias,
				const float *restrict state, void *restrict y)
{
	enum { S = SUB * WIDE };
	for (int64_t i = 0; i < lines; i++, v += WIDE) {
		float t[WIDE];
		for (int j = 0; j < WIDE; j++)
			t[j] = v[j];
		if (f->nseg == SEGMENTS)
			for (int j = 0; j < WIDE; j++)
				t[j] = ((v[j] + v[j + S]) + (v[j + 2 * S] + v[j + 3 * S])) +
				       ((v[j + 4 * S] + v[j + 5 * S]) + (v[j + 6 * S] + v[j + 7 * S]));
		for (int j = 0; bias && j < WIDE; j++)
			t[j] += bias[j];
		for (int j = 0; state && j < nn; j++)
			t[j] = state[i * f->n + j] + t[j];
		for (int j = 0; f->rounded && j < WIDE; j++)
			t[j] += 0;
		if (f->out == TT_BF16) {
			tt_bf16 h[WIDE];
			for (int j = 0; j < WIDE; j++)
				h[j] = tt_f32_to_bf16(t[j]);
			memcpy((tt_bf16 *)y + i * f->n, h, (size_t)nn * sizeof *h);
		} else {
			memcpy((float *)y + i * f->n, t, (size_t)nn * sizeof *t);
		}
	}
}

/* What is left to do where tiles wrote Y itself. A bf16 -0 is always an f32 -0 here: sums of bf16 products are never
 * subnormal, and no normal f32 is so small that bf16 would make it zero. */
static WIDER void finish_direct(const forward *f, int64_t lines, const float *restrict bias, void *y)
{
	for (int64_t i = 0; i < lines; i++) {
		float *restrict v = (float *)y + i * f->n;
		tt_bf16 *restrict h = (tt_bf16 *)y + i * f->n;
		if (f->out == TT_BF16) {
			for (int j = 0; f->rounded && j < WIDE; j++)
				h[j] = h[j] == 0x8000 ? 0 : h[j];
			continue;
		}
		for (int j = 0; bias && j < WIDE; j++)
			v[j] += bias[j];
		for (int j = 0; f->rounded && j < WIDE; j++)
			v[j] += 0;
	}
}

/* A span of a panel as f32, from a weight that lies otherwise, into the task's own [k][64] at w. */
static const uint8_t *make_panel(const forward_job *g, const void *weight, int64_t panel, int64_t k0, int64_t n, int64_t m0,
				 const forward_lane *own, float *w)
{
	const forward *f = g->f;
	bool fresh = m0 == own->m0;
	float *to = w + (own->once ? 0 : k0 * WIDE);
	int64_t nf = TT_MIN(WIDE, f->n - panel * WIDE);
	if (fresh && f->form.widened)
		tt_widen_panel((const tt_bf16 *)weight + (panel * f->k + k0) * WIDE, n / 2, to);
	else if (fresh && f->columns)
		tt_panel_copy((const float *)weight + k0 * f->n + panel * WIDE, f->n, nf, n, to);
	else if (fresh)
		tt_panel_turn((const float *)weight + panel * WIDE * f->k + k0, f->k, nf, n, to);
	return (const uint8_t *)to;
}

/* Lines [m0, m0+lines), lines <= SUB, of one panel of product j. The task's first lines make the panel, just ahead of its use, where it does
 * not lie ready. */
static void forward_sub(const forward_job *g, int j, int64_t panel, int64_t m0, int64_t lines, const float *bias, const forward_lane *own,
			float *own_w)
{
	const forward *f = g->f;
	const form *m = &f->form;
	int64_t ysize = f->out == TT_BF16 ? 2 : 4, nn = TT_MIN(WIDE, f->n - panel * WIDE);
	bool direct = f->direct && nn == WIDE;
	const uint8_t *weight = g->call->in[1 + j].p, *w = weight + panel * WIDE * f->k * m->from;
	const uint8_t *x = own->x + (m0 - own->m0) * f->k * m->to;
	uint8_t *y = (uint8_t *)g->call->out[j].p + (m0 * f->n + panel * WIDE) * ysize;
	tile_kind kind = direct ? f->kind_direct : m->kind;
	int64_t step = direct ? f->n * ysize : WIDE * (int64_t)sizeof(float);
	unsigned csr = begin_tiles(m);
	for (int s = 0; s < f->nspans; s++) {
		const span *p = &f->spans[s];
		const tile *tiles = direct ? p->direct : p->scratch;
		uint8_t *to = direct ? y : (uint8_t *)(own->tiles + p->segment * SUB * WIDE);
		const uint8_t *panel_w = w + p->k0 * WIDE * m->from, *line_x = x + p->k0 * m->to;
		if (own_w)
			panel_w = make_panel(g, weight, panel, p->k0, p->n, m0, own, own_w);
		if (p->n == 0)
			memset(to, 0, (size_t)(lines * WIDE) * sizeof(float));
		else
			for (int64_t i = 0; i < lines; i += LINES)
				call_tile(kind, tiles[TT_MIN(LINES, lines - i)], panel_w, line_x + i * f->k * m->to, to + i * step);
	}
	end_tiles(m, csr);
	if (!direct)
		store_scratch(f, lines, nn, own->tiles, bias, g->state ? g->state + m0 * f->n + panel * WIDE : NULL, y);
	else if (bias || f->rounded)
		finish_direct(f, lines, bias, y);
}

/* Likewise on tiles of chain.h. One run takes any number of lines, more take SUB at most. */
static void forward_own(const forward_job *g, int j, int64_t panel, int64_t m0, int64_t lines, const float *bias, const forward_lane *own, float *own_w)
{
	const forward *f = g->f;
	const form *m = &f->form;
	int64_t ysize = f->out == TT_BF16 ? 2 : 4, at = m0 * f->n + panel * WIDE;
	const uint8_t *weight = g->call->in[1 + j].p;
	tt_chain c = {.ldx = f->k * m->to, .part = own->tiles, .part_step = f->nruns > 1 ? TT_CHAIN_DEPTH * TT_CHAIN_TILE : 0, .plus = f->plus,
		      .rounded = f->rounded, .bias = bias, .state = g->state ? g->state + at : NULL, .lds = f->n,
		      .y = (uint8_t *)g->call->out[j].p + at * ysize, .ldy = f->n * ysize, .features = TT_MIN(WIDE, f->n - panel * WIDE),
		      .y_bf16 = f->out == TT_BF16};
	for (int i = 0; i < f->nruns; i++) {
		const run *r = &f->runs[i];
		c.w = weight + panel * WIDE * f->k * m->from;
		if (own_w)
			c.w = make_panel(g, weight, panel, r->k0, r->n, m0, own, own_w) - r->k0 * WIDE * m->to;
		c.step = r->step;
		c.nsteps = (int)r->nsteps;
		c.depth = r->depth;
		c.open = i + 1 < f->nruns;
		(m->to == 2 ? tt_chain_bf16 : tt_chain_f32)(&c, own->x + (m0 - own->m0) * f->k * m->to, lines);
	}
}

static void forward_task(void *ctx, int64_t task, int lane)
{
	const forward_job *g = ctx;
	const forward *f = g->f;
	int64_t m0 = task / g->groups * g->block, m1 = TT_MIN(g->lines, m0 + g->block);
	int64_t units = g->panels / f->unit, group = task % g->groups;
	int64_t p0 = tt_deal(units, group, g->groups) * f->unit, p1 = tt_deal(units, group + 1, g->groups) * f->unit;
	int64_t turn = f->form.plain ? f->block : m1 - m0, own_step = f->form.plain ? WIDE * f->k : 0;
	int64_t sub = f->own && f->nruns == 1 ? turn : SUB; /* lines that share a panel's piece while it is near */
	float bias[WIDE] = {0};
	forward_lane own = {.tiles = (float *)(g->scratch + lane * f->lane_bytes), .x = g->x + m0 * f->k * f->form.from, .m0 = m0};
	if (f->form.widened || f->form.plain)
		own.w = own.tiles + SEGMENTS * SUB * WIDE;
	own.once = m1 - m0 <= SUB;
	if (f->form.widened) {
		float *x = own.w + WIDE * f->k;
		tt_widen_along((const tt_bf16 *)own.x, (m1 - m0) * f->k / 2, x);
		own.x = (const uint8_t *)x;
	}
	for (int64_t t0 = m0; t0 < m1; t0 += turn)
		for (int64_t p = p0; p < p1; p++) {
			int64_t t1 = TT_MIN(m1, t0 + turn);
			if (g->bias)
				load_bias(g->bias, p * WIDE, TT_MIN(WIDE, f->n - p * WIDE), bias);
			for (int j = 0; j < f->tail.products; j++)
				for (int64_t m = t0; m < t1; m += sub)
					(f->own ? forward_own : forward_sub)(g, j, p, m, TT_MIN(sub, t1 - m), g->bias ? bias : NULL, &own,
									     own.w ? own.w + (p - p0) * own_step : NULL);
		}
	if (f->tail.run)
		tt_tail_run(&f->tail, g->call, true, m0, m1 - m0, p0 * WIDE, TT_MIN(f->n, p1 * WIDE) - p0 * WIDE);
}

/* Lines first, in blocks of at least SUB; where they do not occupy every thread, panels too. */
static int64_t deal_lines(forward_job *g, int threads)
{
	int64_t cuts = TT_MAX(1, TT_MIN(threads, g->lines / SUB));
	cuts = tt_round_up(TT_MAX(cuts, tt_ceil_div(g->lines, g->f->block)), cuts);
	g->block = tt_round_up(tt_ceil_div(g->lines, cuts), LINES);
	cuts = tt_ceil_div(g->lines, g->block);
	g->groups = cuts >= threads ? 1 : TT_MIN(g->panels / g->f->unit, tt_ceil_div(4 * threads, cuts));
	return cuts * g->groups;
}

/* Panels first, each over all lines, so that it is packed once; lines too where threads would idle for more than an eighth. */
static int64_t deal_panels(forward_job *g, int threads)
{
	g->groups = tt_ceil_div(g->panels, g->f->packed);
	int64_t cuts = 1, most = g->lines / LEAST;
	while (cuts < most && 8 * (tt_round_up(g->groups * cuts, threads) - g->groups * cuts) > g->groups * cuts)
		cuts++;
	g->block = tt_round_up(tt_ceil_div(g->lines, cuts), LINES);
	return tt_ceil_div(g->lines, g->block) * g->groups;
}

void tt_xsmm_forward_run(const tt_call *c)
{
	const forward *f = c->plan;
	const tt_arg *x = &c->in[0], *w = &c->in[1], *y = &c->out[0];
	int threads = tt_pool_threads(c->env->pool);
	TT_ASSERT(threads <= f->threads, "planned for %d threads, run with %d", f->threads, threads);
	TT_ASSERT(w->format == f->format, "weight lies as %d, planned for %d", (int)w->format, (int)f->format);
	TT_ASSERT(x->n[1] == f->k && x->ld == f->k && y->n[1] == f->n && y->ld == f->n && y->dtype == f->out,
		  "planned for k %lld, n %lld", (long long)f->k, (long long)f->n);
	forward_job g = {.f = f, .call = c, .x = x->p, .scratch = c->scratch, .lines = x->n[0]};
	g.bias = f->bias ? &c->in[2] : NULL;
	g.state = f->adds ? c->in[2].p : NULL;
	g.panels = tt_ceil_div(f->n, WIDE);
	if (g.lines == 0)
		return;
	int64_t tasks = f->form.plain ? deal_panels(&g, threads) : deal_lines(&g, threads);
	tt_pool_run(c->env->pool, tasks, forward_task, &g);
}

#endif
