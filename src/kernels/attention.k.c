/* Attention forward, the reference. This comment is the contract that faster kernels keep bit for bit.
 *
 * A query at position p of its sequence, q head h, kv head h / group, sees positions [first, p], first = 0 or, with a window w,
 * max(0, p-w+1). K/V blocks are the 64 positions [64 b, 64 b + 64) counted from the sequence's start. Blocks in which it sees
 * nothing are skipped. From m = -inf, l = 0, o = +0, for each block that it sees, ascending:
 *
 *   s_j = scale * chain over K of q*k_j              one rounding after the chain; the chain starts at +0
 *   m'  = max(m, s_j)                                over the visible j; a NaN is passed over
 *   r   = exp(m - m')                                exp(-inf) = +0
 *   p_j = exp(s_j - m'), +0 where masked
 *   l   = fma(l, r, sum of p_j)                      unrounded p; lane sum: 16 lanes over the block's 64, joined 8, 4, 2, 1
 *   o   = chain over j of P_j*v_j, from o*r          P_j is p_j rounded to the value dtype; o*r is rounded before the chain
 *   m   = m'
 *
 * and at the end o = round(o / l) (fp32 quotient, then the value dtype, zero is +0) and lse = m + log(l). As a query always
 * sees itself, l > 0. f32: a chain is fma(a, b, acc), ascending. bf16: pairs anchored at the start of the contraction (for
 * P*V: of the sequence), odd element first, then even, a missing partner is zero, subnormal inputs and results are zeros.
 *
 * Masked positions of a visible block may be left out or computed as terms of +0: for finite k and v only signs of zeros can
 * differ, and those do not outlive the last line. So a token's result depends on its sequence alone: on no other query of the
 * call, no offset in the stream, no page behind its position, no number of threads.
 *
 * `exact`: s and m as above, m over all visible positions first (max knows no order); p_j = exp(s_j - m); l the limb sum of
 * p_j, o the limb sums of P_j*v_j (EXACT.md); o = round(fp32(o) / fp32(l)), lse = m + log(fp32(l)).
 *
 * Work is dealt as (chunk of at most 64 neighbouring queries of one sequence) x (kv head) x (at most 4 of its q heads). Scores
 * lie transposed, [64 positions][queries], so that chains of neighbouring queries run side by side and K is read as it lies.
 */
#include "kernels/attention_tile.h"

typedef struct unit {
	const att *a;
	int64_t t0, n, R;    /* queries [t0, t0+n); lines of a buffer, n padded to 16 */
	int64_t seq, g, h0;  /* kv head, first q head */
	int heads;
	int64_t b0, b1, end; /* blocks [b0, b1) are seen by some query; positions from `end` on by none */
	int32_t lo[B], hi[B]; /* query i sees positions [lo, hi) */
	uint64_t here;        /* of the block at hand: which positions K and V hold */
	real *q;             /* [heads][Kp][R] */
	real *o;             /* [heads][R][Vp] */
	real *m, *l;         /* [heads][R] */
	real *k, *v;         /* [64][Kp] [64][Vp] */
	real *s;             /* [64][R] */
	real *lane16;        /* [16][R] */
	real *r;             /* [R] */
	uint64_t *limbs;     /* [3][R][Vp+1], the last column is l */
} unit;

typedef struct job {
	att a;
	int64_t chunks, parts; /* parts of a group of q heads */
	uint64_t vmax;
} job;

static unit unit_of(const job *g, int64_t i, int lane)
{
	const att *a = &g->a;
	unit u = {.a = a};
	int64_t part = i % g->parts, chunk = i / g->parts / a->G;
	u.g = i / g->parts % a->G;
	u.h0 = u.g * a->group + part * TT_ATTENTION_HEADS;
	u.heads = (int)TT_MIN(TT_ATTENTION_HEADS, a->group - part * TT_ATTENTION_HEADS);
	u.t0 = a->ints[chunk];
	u.n = a->ints[chunk + 1] - u.t0;
	u.R = tt_round_up(u.n, 16);
	u.seq = a->seq_ids[u.t0];
	int64_t lo = INT64_MAX;
	for (int64_t r = 0; r < u.R; r++) {
		u.lo[r] = u.hi[r] = 0;
		if (r >= u.n)
			continue;
		int64_t p = a->positions[u.t0 + r];
		u.lo[r] = (int32_t)first_seen(a, p);
		u.hi[r] = (int32_t)p + 1;
		lo = TT_MIN(lo, u.lo[r]);
		u.end = TT_MAX(u.end, p + 1);
	}
	TT_ASSERT(u.end <= a->table[u.seq + 1] - a->table[u.seq], "query at position %lld of sequence %lld, which has %d",
		  (long long)u.end - 1, (long long)u.seq, (int)(a->table[u.seq + 1] - a->table[u.seq]));
	u.b0 = lo / B;
	u.b1 = tt_ceil_div(u.end, B);
	real *at = (real *)(a->own + (size_t)lane * a->stride);
	u.q = take(&at, u.heads * a->Kp * u.R);
	u.o = take(&at, u.heads * u.R * a->Vp);
	u.k = take(&at, B * a->Kp);
	u.v = take(&at, B * a->Vp);
	u.s = take(&at, B * u.R);
	u.lane16 = take(&at, 16 * u.R);
	u.m = take(&at, u.heads * u.R);
	u.l = take(&at, u.heads * u.R);
	u.r = take(&at, u.R);
	u.limbs = (uint64_t *)at; /* all lengths before are multiples of 16 */
	memset(u.q, 0, (size_t)(u.heads * a->Kp * u.R) * sizeof(real));
	for (int h = 0; h < u.heads; h++)
		for (int64_t r = 0; r < u.n; r++) {
			load_padded(u.k, a->K, a->Kp, a->q, u.t0 + r, (u.h0 + h) * a->K);
			for (int64_t x = 0; x < a->K; x++)
				u.q[(h * a->Kp + x) * u.R + r] = u.k[x];
		}
	for (int64_t r = 0; r < u.heads * u.R; r++)
		u.m[r] = -(real)INFINITY;
	return u;
}

/* Block b comes to hand: the part of it that some query sees, out to whole tiles: [*j0, *j1). False: there is none. */
static bool next_block(unit *u, int64_t b, int64_t *j0, int64_t *j1)
{
	int64_t lo = B, hi = 0;
	u->here = here(u->a, u->seq, b, u->end);
	for (int64_t i = 0; i < u->n && u->here; i++)
		if (u->lo[i] < (b + 1) * B && u->hi[i] > b * B) {
			lo = TT_MIN(lo, TT_MAX(u->lo[i] - b * B, 0));
			hi = TT_MAX(hi, TT_MIN(u->hi[i] - b * B, B));
		}
	*j0 = lo / 16 * 16;
	*j1 = tt_round_up(hi, 16);
	return *j0 < *j1;
}

/* s[j][i] of head h, block b (K gathered), and m[i] over what is visible of it too. */
static void scores(const unit *u, int h, int64_t b, int64_t j0, int64_t j1, real *restrict m)
{
	const att *a = u->a;
	const int64_t R = u->R;
	memset(u->s + j0 * R, 0, (size_t)((j1 - j0) * R) * sizeof(real));
	product(a, u->s + j0 * R, R, u->k + j0 * a->Kp, a->Kp, 1, u->q + h * a->Kp * R, R, j1 - j0, R, a->K);
	for (int64_t j = j0; j < j1; j++) {
		real *restrict s = u->s + j * R;
		const int32_t p = u->here >> j & 1 ? (int32_t)(b * B + j) : -1;
		for (int64_t i = 0; i < R; i++) {
			s[i] *= a->scale;
			real seen = p >= u->lo[i] && p < u->hi[i] ? s[i] : m[i];
			m[i] = seen > m[i] ? seen : m[i];
		}
	}
}

static void fast_block(const unit *u, int h, int64_t b, int64_t j0, int64_t j1)
{
	const att *a = u->a;
	const int64_t R = u->R;
	real *restrict m = u->m + h * R, *restrict l = u->l + h * R, *restrict r = u->r, *restrict lane16 = u->lane16;
	memcpy(r, m, (size_t)R * sizeof(real));
	scores(u, h, b, j0, j1, m);
	for (int64_t i = 0; i < R; i++) {
		real e = real_exp(r[i] - m[i]);
		r[i] = r[i] == m[i] ? 1 : e; /* also where a query has seen nothing yet: -inf - -inf */
	}
	memset(lane16, 0, (size_t)(16 * R) * sizeof(real));
	for (int64_t j = j0; j < j1; j++) {
		real *restrict s = u->s + j * R, *restrict lane = lane16 + j % 16 * R;
		const int32_t p = u->here >> j & 1 ? (int32_t)(b * B + j) : -1;
		for (int64_t i = 0; i < R; i++) {
			real e = real_exp(s[i] - m[i]);
			e = p >= u->lo[i] && p < u->hi[i] ? e : 0;
			lane[i] += e;
			s[i] = rounded(e, a->pairs);
		}
	}
	for (int w = 8; w; w /= 2)
		for (int64_t i = 0; i < w * R; i++)
			lane16[i] += lane16[i + w * R];
	real *o = u->o + h * R * a->Vp;
	for (int64_t i = 0; i < R; i++) {
		l[i] = REAL_FMA(l[i], r[i], lane16[i]);
		for (int64_t d = 0; d < a->Vp; d++)
			o[i * a->Vp + d] *= r[i];
	}
	product(a, o, a->Vp, u->s + j0 * R, 1, R, u->v + j0 * a->Vp, a->Vp, R, a->Vp, j1 - j0);
}

/* One finished query of head h: o [V] is divided by l. */
static void finish(const unit *u, int h, int64_t i, real *o, real m, real l)
{
	const att *a = u->a;
	for (int64_t d = 0; d < a->V; d++)
		o[d] = rounded(o[d] / l, a->pairs);
	plus_zero(o, a->V); /* after rounding, which may make a -0 */
	span_store(&a->call->out[0], u->t0 + i, (u->h0 + h) * a->V, o, a->V);
	scalar_store(&a->call->out[1], u->t0 + i, u->h0 + h, m + real_log(l));
}

/* o and l over all blocks that the unit sees, from u->m on: -inf, or maxima known before. */
static void fast_blocks(unit *u)
{
	const att *a = u->a;
	memset(u->o, 0, (size_t)(u->heads * u->R * a->Vp) * sizeof(real));
	memset(u->l, 0, (size_t)(u->heads * u->R) * sizeof(real));
	for (int64_t b = u->b0; b < u->b1; b++) {
		int64_t j0, j1;
		if (!next_block(u, b, &j0, &j1))
			continue;
		gather_block(u->k, a->K, a->Kp, a, a->k, u->seq, b, u->end, u->g);
		gather_block(u->v, a->V, a->Vp, a, a->v, u->seq, b, u->end, u->g);
		for (int h = 0; h < u->heads; h++)
			fast_block(u, h, b, j0, j1);
	}
}

static void fast_unit(void *ctx, int64_t index, int lane)
{
	unit u = unit_of(ctx, index, lane);
	const att *a = u.a;
	fast_blocks(&u);
	for (int h = 0; h < u.heads; h++)
		for (int64_t i = 0; i < u.n; i++)
			finish(&u, h, i, u.o + (h * u.R + i) * a->Vp, u.m[h * u.R + i], u.l[h * u.R + i]);
}

/* Runs of neighbouring queries of one sequence, at most 64 long: where they start goes to ints[0..chunks]. */
static job job_of(const tt_call *c, int tables)
{
	job g = {.a = att_of(c, tables)};
	att *a = &g.a;
	for (int64_t t = 0; t < a->T; t++)
		if (t == 0 || a->seq_ids[t] != a->seq_ids[t - 1] || t - a->ints[g.chunks - 1] == B)
			a->ints[g.chunks++] = (int32_t)t;
	a->ints[g.chunks] = (int32_t)a->T;
	g.parts = tt_ceil_div(a->group, TT_ATTENTION_HEADS);
	return g;
}

static void attention(const tt_call *c)
{
	job g = job_of(c, 3);
	tt_pool_run(c->env->pool, g.chunks * g.a.G * g.parts, fast_unit, &g);
}

/* Row maxima of the scores of every head here and in u->m before. */
static void block_maxima(unit *u)
{
	const att *a = u->a;
	for (int64_t b = u->b0; b < u->b1; b++) {
		int64_t j0, j1;
		if (!next_block(u, b, &j0, &j1))
			continue;
		gather_block(u->k, a->K, a->Kp, a, a->k, u->seq, b, u->end, u->g);
		for (int h = 0; h < u->heads; h++)
			scores(u, h, b, j0, j1, u->m + h * u->R);
	}
}

#ifndef TT_REAL_F64
/* The sums of query i: V of P*v, then that of p. */
static exact_line exact_unit_line(const unit *u, int64_t i)
{
	const int64_t W = u->a->Vp + 1;
	uint64_t *k = u->limbs + i * W;
	return (exact_line){{k, k + u->R * W, k + 2 * u->R * W}};
}

/* Terms of block b to the limbs of every query that sees it; returns the greatest p, NaN if there is one. */
static real_bits exact_block(const unit *u, int h, int64_t b, int64_t j0, int64_t j1)
{
	const att *a = u->a;
	const int64_t R = u->R;
	const real *m = u->m + h * R;
	memcpy(u->r, m, (size_t)R * sizeof(real));
	scores(u, h, b, j0, j1, u->r);
	for (int64_t j = j0; j < j1; j++) {
		real *restrict s = u->s + j * R;
		const int32_t p = u->here >> j & 1 ? (int32_t)(b * B + j) : -1;
		for (int64_t i = 0; i < R; i++) {
			real e = real_exp(s[i] - m[i]);
			s[i] = p >= u->lo[i] && p < u->hi[i] ? e : 0;
		}
	}
	for (int64_t i = 0; i < u->n; i++) {
		const exact_line o = exact_unit_line(u, i);
		int64_t first = TT_MAX(u->lo[i] - b * B, j0), end = TT_MIN(u->hi[i] - b * B, j1);
		for (int64_t j = first; j < end; j++) {
			if (!(u->here >> j & 1))
				continue;
			real p = u->s[j * R + i];
			exact_add_raw(&o.k[0][a->V], &o.k[1][a->V], &o.k[2][a->V], (double)p);
			exact_line_add_scaled(o, (double)rounded(p, a->pairs), u->v + j * a->Vp, a->V);
		}
	}
	return exact_max_bits(u->s + j0 * R, (j1 - j0) * R);
}

/* The greatest magnitudes seen, as bits: what bounds the terms. */
typedef struct exact_seen { real_bits qk, p, v; } exact_seen;

/* The limb sums of p and of P*v over the positions of head h that are here, to u->limbs, finished. */
static void exact_sums(unit *u, int h, exact_seen *seen)
{
	const att *a = u->a;
	const int64_t W = a->Vp + 1;
	int64_t terms[B] = {0};
	memset(u->limbs, 0, (size_t)(3 * u->R * W) * sizeof(uint64_t));
	for (int64_t b = u->b0; b < u->b1; b++) {
		int64_t j0, j1;
		if (!next_block(u, b, &j0, &j1))
			continue;
		gather_block(u->k, a->K, a->Kp, a, a->k, u->seq, b, u->end, u->g);
		gather_block(u->v, a->V, a->Vp, a, a->v, u->seq, b, u->end, u->g);
		seen->qk = most(seen->qk, exact_max_bits(u->k, B * a->Kp));
		seen->v = most(seen->v, exact_max_bits(u->v, B * a->Vp));
		seen->p = most(seen->p, exact_block(u, h, b, j0, j1));
		for (int64_t i = 0; i < u->n; i++)
			for (int64_t j = TT_MAX(u->lo[i] - b * B, j0); j < TT_MIN(u->hi[i] - b * B, j1); j++)
				terms[i] += u->here >> j & 1;
	}
	for (int64_t i = 0; i < u->n; i++)
		exact_line_finish(exact_unit_line(u, i), a->V + 1, terms[i]);
}

/* No p exceeds 1, so V alone bounds the terms. A NaN among p, an infinity in q or k: nothing is proven. */
static void exact_seen_check(const unit *u, const exact_seen *seen)
{
	exact_check(u->a->call, exact_max_value(seen->v), u->end);
	exact_check(u->a->call, exact_max_value(seen->p), 1);
	if (!(exact_max_value(seen->qk) < (double)INFINITY))
		exact_raise(u->a->call);
}

static void exact_unit(void *ctx, int64_t index, int lane)
{
	const job *g = ctx;
	const att *a = &g->a;
	unit u = unit_of(g, index, lane);
	exact_seen seen = {.qk = exact_max_bits(u.q, u.heads * a->Kp * u.R)};
	block_maxima(&u);
	for (int h = 0; h < u.heads; h++) {
		exact_sums(&u, h, &seen);
		for (int64_t i = 0; i < u.n; i++) {
			exact_line_round(u.s, exact_unit_line(&u, i), a->V + 1);
			finish(&u, h, i, u.s, u.m[h * u.R + i], u.s[a->V]);
		}
	}
	exact_seen_check(&u, &seen);
}

static void attention_exact(const tt_call *c)
{
	job g = job_of(c, 3);
	tt_pool_run(c->env->pool, g.chunks * g.a.G * g.parts, exact_unit, &g);
}
#endif

#include "kernels/attention_bwd.h"

/* ---- round a ring ------------------------------------------------------------------------------------------------------------------------ */

/* The K and V of one rank at a time. The contract:
 *
 * `fast`, one turn. attention_part is attention over the positions that are here, not finished: o (before the quotient), m and l as they stand, of
 * a query that sees nothing here 0, -inf and 0. attention_merge joins two such states:
 *
 *   m = max(ma, mb);  ea = exp(ma - m), 1 where they are equal;  l = fma(la, ea, lb*eb);  o likewise
 *
 * `exact`, two turns. attention_max: m, the greatest score here and before. attention_sum: with that m, the limb sums l of p_j = exp(s_j - m) and
 * o of P_j*v_j over the positions here; limbs of all ranks are added. (In `fast` and in double: the same sums in ascending order of positions,
 * each block's as attention has them.)
 *
 * attention_join, both: o = round(o / l), lse = m + log(l).
 */
static void run_units(const tt_call *c, int tables, void (*fn)(void *ctx, int64_t index, int lane))
{
	job g = job_of(c, tables);
	tt_pool_run(c->env->pool, g.chunks * g.a.G * g.parts, fn, &g);
}

static void part_unit(void *ctx, int64_t index, int lane)
{
	unit u = unit_of(ctx, index, lane);
	const att *a = u.a;
	fast_blocks(&u);
	const tt_arg *out = a->call->out;
	for (int h = 0; h < u.heads; h++)
		for (int64_t i = 0; i < u.n; i++) {
			span_store(&out[0], u.t0 + i, (u.h0 + h) * a->V, u.o + (h * u.R + i) * a->Vp, a->V);
			scalar_store(&out[1], u.t0 + i, u.h0 + h, u.m[h * u.R + i]);
			scalar_store(&out[2], u.t0 + i, u.h0 + h, u.l[h * u.R + i]);
		}
}

static void attention_part(const tt_call *c) { run_units(c, 3, part_unit); }

/* ---- two turns ------------------------------------------------------------------------------------------------------------------------------ */

/* Row maxima from those of input `m`, absent: -inf, to u.m. */
static void load_maxima(unit *u, const tt_arg *m)
{
	for (int h = 0; h < u->heads; h++)
		for (int64_t i = 0; m && i < u->n; i++)
			u->m[h * u->R + i] = scalar_load(m, u->t0 + i, u->h0 + h);
}

static void max_unit(void *ctx, int64_t index, int lane)
{
	const job *g = ctx;
	const att *a = &g->a;
	unit u = unit_of(g, index, lane);
	load_maxima(&u, a->call->nin > 6 && a->call->in[6].p ? &a->call->in[6] : NULL);
	block_maxima(&u);
	for (int h = 0; h < u.heads; h++)
		for (int64_t i = 0; i < u.n; i++)
			scalar_store(&a->call->out[0], u.t0 + i, u.h0 + h, u.m[h * u.R + i]);
}

static void attention_max(const tt_call *c) { run_units(c, 2, max_unit); }

/* With the maxima known from the start every r is 1. */
static void sum_unit(void *ctx, int64_t index, int lane)
{
	const job *g = ctx;
	const att *a = &g->a;
	const tt_arg *out = a->call->out;
	unit u = unit_of(g, index, lane);
	load_maxima(&u, &a->call->in[3]);
	fast_blocks(&u);
	for (int h = 0; h < u.heads; h++)
		for (int64_t i = 0; i < u.n; i++) {
			span_store(&out[0], u.t0 + i, (u.h0 + h) * a->V, u.o + (h * u.R + i) * a->Vp, a->V);
			scalar_store(&out[1], u.t0 + i, u.h0 + h, u.l[h * u.R + i]);
		}
}

static void attention_sum(const tt_call *c) { run_units(c, 4, sum_unit); }

#ifndef TT_REAL_F64
static void sum_unit_exact(void *ctx, int64_t index, int lane)
{
	const job *g = ctx;
	const att *a = &g->a;
	const tt_arg *out = a->call->out;
	unit u = unit_of(g, index, lane);
	exact_seen seen = {.qk = exact_max_bits(u.q, u.heads * a->Kp * u.R)};
	load_maxima(&u, &a->call->in[3]);
	for (int h = 0; h < u.heads; h++) {
		exact_sums(&u, h, &seen);
		for (int64_t i = 0; i < u.n; i++) {
			const exact_line sum = exact_unit_line(&u, i);
			const exact_line o = exact_line_at(&out[0], u.t0 + i, (u.h0 + h) * a->V), l = exact_line_at(&out[1], u.t0 + i, u.h0 + h);
			for (int j = 0; j < EXACT_LIMBS; j++) {
				memcpy(o.k[j], sum.k[j], 8 * (size_t)a->V);
				*l.k[j] = sum.k[j][a->V];
			}
		}
	}
	exact_seen_check(&u, &seen);
}

static void attention_sum_exact(const tt_call *c) { run_units(c, 4, sum_unit_exact); }
#endif

/* ---- states joined, and the result ------------------------------------------------------------------------------------------------------------ */

enum { RING_LINES = 64 }; /* of one task */

static void merge_lines(void *ctx, int64_t index, int lane)
{
	(void)lane;
	const tt_call *c = ctx;
	const int64_t H = c->in[1].n[1], V = H ? c->in[0].n[1] / H : 0;
	for (int64_t t = index * RING_LINES; t < TT_MIN((index + 1) * RING_LINES, c->in[0].n[0]); t++)
		for (int64_t h = 0; h < H; h++) {
			const real ma = scalar_load(&c->in[1], t, h), mb = scalar_load(&c->in[4], t, h), m = mb > ma ? mb : ma;
			const real ea = ma == m ? 1 : real_exp(ma - m), eb = mb == m ? 1 : real_exp(mb - m);
			const real *oa = arg_real(&c->in[0], t, h * V), *ob = arg_real(&c->in[3], t, h * V);
			real *o = arg_real(&c->out[0], t, h * V);
			for (int64_t d = 0; d < V; d++)
				o[d] = REAL_FMA(oa[d], ea, ob[d] * eb);
			scalar_store(&c->out[1], t, h, m);
			scalar_store(&c->out[2], t, h, REAL_FMA(scalar_load(&c->in[2], t, h), ea, scalar_load(&c->in[5], t, h) * eb));
		}
}

static void attention_merge(const tt_call *c)
{
	tt_pool_run(c->env->pool, tt_ceil_div(c->in[0].n[0], RING_LINES), merge_lines, (void *)(uintptr_t)c);
}

typedef struct join_job {
	const tt_call *c;
	bool limbs;
} join_job;

static void join_lines(void *ctx, int64_t index, int lane)
{
	(void)lane;
	const join_job *g = ctx;
	const tt_call *c = g->c;
	const tt_attr_attention *at = c->attr;
	const tt_arg *po = &c->in[7], *pm = &c->in[8], *pl = &c->in[9];
	const int64_t H = pm->n[1], V = at->v_head_dim;
	const bool pairs = c->in[0].dtype == TT_BF16;
	enum { SOME = 64 };
	for (int64_t t = index * RING_LINES; t < TT_MIN((index + 1) * RING_LINES, po->n[0]); t++)
		for (int64_t h = 0; h < H; h++) {
			real l, o[SOME];
#ifndef TT_REAL_F64
			if (g->limbs)
				exact_line_round(&l, exact_line_at(pl, t, h), 1);
			else
#endif
				l = scalar_load(pl, t, h);
			for (int64_t d0 = 0; d0 < V; d0 += SOME) {
				const int64_t n = TT_MIN((int64_t)SOME, V - d0);
#ifndef TT_REAL_F64
				if (g->limbs)
					exact_line_round(o, exact_line_at(po, t, h * V + d0), n);
				else
#endif
					memcpy(o, arg_real(po, t, h * V + d0), (size_t)n * sizeof(real));
				for (int64_t d = 0; d < n; d++)
					o[d] = rounded(o[d] / l, pairs);
				plus_zero(o, n);
				span_store(&c->out[0], t, h * V + d0, o, n);
			}
			scalar_store(&c->out[1], t, h, scalar_load(pm, t, h) + real_log(l));
		}
}

static void run_join(const tt_call *c, bool limbs)
{
	join_job g = {c, limbs && c->in[7].dtype == TT_ACC};
	tt_pool_run(c->env->pool, tt_ceil_div(c->in[7].n[0], RING_LINES), join_lines, &g);
}

static void attention_join(const tt_call *c) { run_join(c, false); }
#ifndef TT_REAL_F64
static void attention_join_exact(const tt_call *c) { run_join(c, true); }
#endif

const tt_kernel TT_KERNEL_TABLE[] = {
#ifdef TT_REAL_F64
	{"attention", attention, NULL},
	{"attention_bwd", attention_bwd, NULL},
	{"attention_sum", attention_sum, NULL},
	{"attention_join", attention_join, NULL},
#else
	{"attention", attention, attention_exact},
	{"attention_bwd", attention_bwd, attention_bwd_exact},
	{"attention_sum", attention_sum, attention_sum_exact},
	{"attention_join", attention_join, attention_join_exact},
#endif
	{"attention_part", attention_part, NULL},
	{"attention_max", attention_max, NULL},
	{"attention_merge", attention_merge, NULL},
	{NULL, NULL, NULL},
};
