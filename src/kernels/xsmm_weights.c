/* xsmm_weights.c: linear_dw: dW[o,k] = dY^T[o,T] X[T,k]. xsmm.c says what holds for all products.
 *
 * The contraction runs over tokens, in chunks: of X a chunk is packed into panels, of dY a chunk of DY features at a time is
 * transposed, both into a thread's own scratch (sharing the packing behind a barrier was slower). Threads own parts of dW.
 * T is known only when it runs: what a full chunk leaves over is taken by tiles of halving powers of two with beta = 1.
 *
 * linear_dw_acc adds to an accumulator: the chain is from zero all the same, so its tile is kept apart, in cache, until its last chunk
 * is done. Where tokens take more than one chunk, tiles of OPEN lines at a time stay open. */
#include "kernels/panel.h"
#include "kernels/xsmm_tile.h"

#ifndef TT_NO_X86

enum { DY = 384, GROUP = 16, PIECES = 12, OPEN = 4 * DY };

typedef struct weights {
	int64_t o, k;
	form form;
	int threads;
	int64_t chunk;   /* tokens; all that were planned if they fit */
	int64_t ld;      /* of transposed dY; past a power of two, which would fill few sets of the cache */
	int npieces;
	bool adds;       /* linear_dw_acc */
	int64_t piece[PIECES];               /* the chunk, then the powers of two below it, down to 1 (bf16: 2) */
	tile fresh[2][LINES + 1];            /* beta 0, a full chunk; [0] C in place, [1] C in a scratch tile */
	tile more[2][PIECES][LINES + 1];     /* beta 1 */
	int64_t groups, group;               /* panels of a task */
	int64_t open;                        /* floats of a lane's open tiles, [panel][lines][64] */
	int64_t lane_bytes;
} weights;

typedef struct weights_job {
	const weights *f;
	tt_weights_data d;
	int64_t parts, part; /* cuts of o; lines of each */
} weights_job;

bool tt_xsmm_weights_accepts(const tt_kernel_case *c, tt_dtype dt)
{
	const tt_value *const *in = c->in + tt_weights_adds(c);
	return tt_xsmm_fits(in[0], in[1]) && in[0]->dtype == dt &&
	       (c->out[0]->dtype == TT_ACC || c->out[0]->dtype == TT_F32);
}

/* Sizes that both `scratch` and `plan` need. */
static weights weights_of(const tt_kernel_case *c, level at)
{
	const tt_value *const *in = c->in + tt_weights_adds(c);
	weights f = {.o = in[0]->dim[1].n, .k = in[1]->dim[1].n, .form = tt_xsmm_form(in[0], at), .adds = tt_weights_adds(c)};
	f.threads = TT_MAX(c->threads, 1);
	int64_t tokens = in[0]->dim[0].n;
	f.chunk = f.piece[f.npieces++] = TT_MIN(f.form.chunk, TT_MAX(2, tt_round_up(tokens, 2)));
	f.ld = f.chunk + 32;
	for (int64_t n = f.form.chunk / 2; n >= f.form.pair; n /= 2)
		if (n < f.chunk)
			f.piece[f.npieces++] = n;
	int64_t panels = tt_ceil_div(f.k, WIDE);
	f.groups = tt_round_up(tt_ceil_div(panels, GROUP), TT_MIN(panels, f.threads));
	f.group = tt_ceil_div(panels, TT_MIN(f.groups, panels));
	f.groups = tt_ceil_div(panels, f.group);
	int64_t esize = f.form.to;
	if (f.adds && tokens > f.chunk)
		f.open = f.group * TT_MIN(OPEN, tt_round_up(f.o, LINES)) * WIDE;
	f.lane_bytes = tt_round_up(f.group * f.chunk * WIDE * esize + DY * f.ld * esize + (LINES * WIDE + f.open) * 4, 64);
	return f;
}

size_t tt_xsmm_weights_scratch(const tt_kernel_case *c, level at)
{
	weights f = weights_of(c, at);
	return (size_t)(f.lane_bytes * f.threads);
}

tt_status tt_xsmm_weights_plan(const tt_kernel_case *c, tt_arena *a, level at, const void **out)
{
	tt_xsmm_target(at);
	weights *f = TT_NEW(a, weights);
	*f = weights_of(c, at);
	for (int s = 0; s < 2; s++) {
		if (s == 0 ? f->k < WIDE : f->k % WIDE == 0 && !f->adds)
			continue;
		int64_t ldc = s ? WIDE : f->k;
		TT_TRY(tt_xsmm_tiles(c->op, f->form.kind, f->chunk, f->ld, ldc, false, f->fresh[s]));
		for (int i = 0; i < f->npieces; i++)
			TT_TRY(tt_xsmm_tiles(c->op, f->form.kind, f->piece[i], f->ld, ldc, true, f->more[s][i]));
	}
	*out = f;
	return TT_OK;
}
/* One tile of dW over a chunk of n tokens (whole pairs in bf16). c[lines][ldc]; `first`: from +0. */
static void weights_tile(const weights *f, int s, int64_t n, bool first, int64_t lines, const uint8_t *a, const uint8_t *b, float *c,
			 int64_t ldc)
{
	int64_t esize = f->form.to;
	if (n == f->chunk) {
		call_tile(f->form.kind, (first ? f->fresh[s] : f->more[s][0])[lines], a, b, c);
		return;
	}
	if (first)
		for (int64_t i = 0; i < lines; i++)
			memset(c + i * ldc, 0, WIDE * sizeof *c);
	for (int i = 1; i < f->npieces; i++)
		if (n & f->piece[i]) {
			call_tile(f->form.kind, f->more[s][i][lines], a, b, c);
			a += f->piece[i] * WIDE * esize;
			b += f->piece[i] * esize;
		}
}

static void copy_lines(int64_t lines, int64_t n, float *to, int64_t ldt, const float *from, int64_t ldf)
{
	for (int64_t i = 0; i < lines; i++)
		memcpy(to + i * ldt, from + i * ldf, (size_t)n * sizeof *to);
}

static WIDER void add_lines(int64_t lines, int64_t n, float *to, const float *state, int64_t ld, const float *sums)
{
	for (int64_t i = 0; i < lines; i++, to += ld, state += ld, sums += WIDE)
		for (int64_t j = 0; j < n; j++)
			to[j] = state[j] + sums[j];
}

/* A panel of dW over one chunk of n tokens. */
typedef struct weights_chunk {
	int64_t n;
	bool first, last;
	const uint8_t *x;   /* the panel's, packed */
	const uint8_t *dyt; /* of the lines, transposed */
	float *edge;        /* a tile */
	float *open;        /* the lines' open tiles; NULL: there is one chunk, and the edge does */
} weights_chunk;

/* Lines [o0, o0+no) of it. */
static void weights_panel(const weights_job *g, int64_t panel, int64_t o0, int64_t no, const weights_chunk *h)
{
	const weights *f = g->f;
	int64_t esize = f->form.to, nf = TT_MIN(WIDE, f->k - panel * WIDE);
	unsigned csr = begin_tiles(&f->form);
	for (int64_t i = 0; i < no; i += LINES) {
		int64_t lines = TT_MIN(LINES, no - i), at = (o0 + i) * f->k + panel * WIDE;
		float *c = g->d.dw + at;
		const uint8_t *dyt = h->dyt + i * f->ld * esize;
		if (g->d.state) {
			float *sums = h->open ? h->open + i * WIDE : h->edge;
			weights_tile(f, 1, h->n, h->first, lines, h->x, dyt, sums, WIDE);
			if (h->last) {
				end_tiles(&f->form, csr);
				add_lines(lines, nf, c, g->d.state + at, f->k, sums);
				csr = begin_tiles(&f->form);
			}
			continue;
		}
		if (nf == WIDE) {
			weights_tile(f, 0, h->n, h->first, lines, h->x, dyt, c, f->k);
			continue;
		}
		if (!h->first) {
			memset(h->edge, 0, LINES * WIDE * sizeof *h->edge);
			copy_lines(lines, nf, h->edge, WIDE, c, f->k);
		}
		weights_tile(f, 1, h->n, h->first, lines, h->x, dyt, h->edge, WIDE);
		copy_lines(lines, nf, c, f->k, h->edge, WIDE);
	}
	end_tiles(&f->form, csr);
}

static void weights_task(void *ctx, int64_t task, int lane)
{
	const weights_job *g = ctx;
	const weights *f = g->f;
	const form *m = &f->form;
	int64_t panels = tt_ceil_div(f->k, WIDE);
	int64_t p0 = task / g->parts * f->group, p1 = TT_MIN(panels, p0 + f->group);
	int64_t o0 = task % g->parts * g->part, o1 = TT_MIN(f->o, o0 + g->part);
	uint8_t *xp = g->d.scratch + lane * f->lane_bytes, *dyt = xp + f->group * f->chunk * WIDE * m->to;
	weights_chunk h = {.dyt = dyt, .edge = (float *)(dyt + DY * f->ld * m->to)};
	float *open = g->d.state && g->d.tokens > f->chunk ? h.edge + LINES * WIDE : NULL;
	for (int64_t t0 = 0; t0 < g->d.tokens; t0 += f->chunk) {
		int64_t n = TT_MIN(f->chunk, g->d.tokens - t0);
		for (int64_t p = p0; p < p1; p++) {
			const void *x = g->d.x + (t0 * f->k + p * WIDE) * m->from;
			void *to = xp + (p - p0) * f->chunk * WIDE * m->to;
			int64_t nf = TT_MIN(WIDE, f->k - p * WIDE);
			if (m->widened)
				tt_panel_widen(x, f->k, nf, n, to);
			else if (m->bf16)
				tt_panel_pair(x, f->k, nf, n, to);
			else
				tt_panel_copy(x, f->k, nf, n, to);
		}
		for (int64_t o = o0; o < o1; o += DY) {
			int64_t no = TT_MIN(DY, o1 - o);
			const void *dy = g->d.dy + (t0 * f->o + o) * m->from;
			if (m->widened)
				tt_lines_turn_widen(dy, f->o, n, no, f->ld, (float *)dyt);
			else if (m->bf16)
				tt_lines_turn_bf16(dy, f->o, n, no, f->ld, (tt_bf16 *)dyt);
			else
				tt_lines_turn_f32(dy, f->o, n, no, f->ld, (float *)dyt);
			h.n = tt_round_up(n, m->pair);
			h.first = t0 == 0;
			h.last = t0 + n == g->d.tokens;
			for (int64_t p = p0; p < p1; p++) {
				h.x = xp + (p - p0) * f->chunk * WIDE * m->to;
				h.open = open ? open + ((p - p0) * (o1 - o0) + o - o0) * WIDE : NULL;
				weights_panel(g, p, o, no, &h);
			}
		}
	}
}

bool tt_weights_begin(const tt_call *c, bool adds, int threads, int64_t o, int64_t k, tt_weights_data *out)
{
	const tt_arg *dy = &c->in[adds], *x = dy + 1, *dw = &c->out[0];
	TT_ASSERT(tt_pool_threads(c->env->pool) <= threads, "planned for %d threads, run with %d", threads, tt_pool_threads(c->env->pool));
	TT_ASSERT(dy->n[1] == o && dy->ld == o && x->n[1] == k && x->ld == k && dw->ld == k && dy->n[0] == x->n[0], "planned for o %lld, k %lld",
		  (long long)o, (long long)k);
	*out = (tt_weights_data){.x = x->p, .dy = dy->p, .dw = dw->p, .scratch = c->scratch, .tokens = dy->n[0]};
	if (adds && !(c->env->first && ((const tt_attr_accumulate *)c->attr)->first))
		out->state = c->in[0].p;
	for (int64_t i = 0; i < o * k && out->tokens == 0; i++)
		out->dw[i] = out->state ? out->state[i] + 0 : 0;
	return out->tokens > 0;
}

void tt_xsmm_weights_run(const tt_call *c)
{
	const weights *f = c->plan;
	int threads = tt_pool_threads(c->env->pool);
	weights_job g = {.f = f};
	if (!tt_weights_begin(c, f->adds, f->threads, f->o, f->k, &g.d))
		return;
	/* Panels are dealt first; where they do not occupy every thread, lines of dW too. */
	g.parts = f->groups >= threads ? 1 : TT_MIN(tt_ceil_div(threads, f->groups), tt_ceil_div(f->o, LINES));
	if (g.d.state && g.d.tokens > f->chunk)
		g.parts = TT_MAX(g.parts, tt_ceil_div(f->o, OPEN));
	g.part = tt_round_up(tt_ceil_div(f->o, g.parts), LINES);
	g.parts = tt_ceil_div(f->o, g.part);
	tt_pool_run(c->env->pool, f->groups * g.parts, weights_task, &g);
}

#endif
