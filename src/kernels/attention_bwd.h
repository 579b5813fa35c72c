/* Attention backward, the reference: the part of attention.k.c that makes dq, dk and dv. The contract:
 *
 *   D_i   = lane sum over V of do_i*o_i                  the products rounded
 *   s_ij  = scale * chain over K of q_i*k_j              as forward
 *   p_ij  = exp(s_ij - lse_i), +0 where masked
 *   dp_ij = chain over V of do_i*v_j
 *   ds_ij = ((p_ij * (dp_ij - D_i)) * scale), +0 where masked
 *   dq_i  = chain over K/V positions j of DS_ij*k_j      ascending from +0
 *   dv_j  = chain over (q heads of the group, query positions i) of P_ij*do_i
 *   dk_j  = the same chain of DS_ij*q_i                  heads ascending outside, positions ascending inside, one chain from +0
 *
 * P and DS are p and ds rounded to the value dtype. Chains as forward; bf16 pairs are positions 2m and 2m+1 of the sequence,
 * of keys in dq and of queries in dk and dv; a position that is masked, or has no query in this call, is a zero partner.
 * Blocks without a visible pair are left out; a zero of a result is +0. Lines that belong to no sequence get zeros.
 *
 * `exact`: the same P and DS (from lse and o as saved); dq, dk and dv are limb sums of the same products.
 *
 * A K/V line belongs to at most one position of one sequence, and a position to at most one query.
 *
 * Work is dealt as (block of 64 keys) x (kv head), which own their lines of dk and dv. With at least a sequence and kv head for
 * every thread one lane walks all blocks of such a pair, and continues dq on the way: five products. With less, dq is made by
 * (block of 64 queries) x (kv head) in a pass of its own, which makes scores and dp again: seven. The bits are the same.
 */
#ifndef TT_KERNELS_ATTENTION_BWD_H
#define TT_KERNELS_ATTENTION_BWD_H

#include "kernels/attention_tile.h"

typedef struct bwd_job {
	att a;
	const tt_arg *o, *lse, *dout, *dq, *dk, *dv; /* dout: the cotangent of o */
	int32_t *query;    /* [table[N]] by table[s]+p: the query at position p of sequence s, -1 */
	int32_t *blocks;   /* [nblocks][2] sequence, block */
	int64_t nblocks;
	int32_t *runs;     /* [nruns+1] blocks [runs[r], runs[r+1]) are one sequence's */
	int64_t nruns;
	bool exact;
} bwd_job;

/* What one lane holds. */
typedef struct bwd_lane {
	real *k, *kt, *vt;      /* [64][Kp] [Kp][64] [Vp][64], the block of keys */
	real *dk, *dv;          /* [64][Kp] [64][Vp] */
	real *q, *dout;         /* [64][Kp] [64][Vp], the block of queries; zeros where there is none */
	real *dq;               /* [64][Kp] */
	real *p, *ds;           /* [64 queries][64 keys] */
	real *lse, *D;          /* [64] */
	real *line;             /* [2][Vp] */
	int32_t query[B];       /* token of each position of the block of queries, -1 */
	int32_t lo[B], hi[B];   /* keys [lo, hi) of the block of keys that it sees */
	uint64_t here;          /* which keys of the block K and V hold */
	real_bits pmax, dsmax, kmax, qmax, domax; /* exact: greatest magnitudes met */
} bwd_lane;

static bwd_lane bwd_lane_of(const bwd_job *g, int lane)
{
	const att *a = &g->a;
	real *at = (real *)(void *)(a->own + (size_t)lane * a->stride);
	bwd_lane w = {0};
	w.k = take(&at, B * a->Kp);
	w.kt = take(&at, B * a->Kp);
	w.dk = take(&at, B * a->Kp);
	w.q = take(&at, B * a->Kp);
	w.dq = take(&at, B * a->Kp);
	w.vt = take(&at, B * a->Vp);
	w.dv = take(&at, B * a->Vp);
	w.dout = take(&at, B * a->Vp);
	w.p = take(&at, B * B);
	w.ds = take(&at, B * B);
	w.lse = take(&at, B);
	w.D = take(&at, B);
	w.line = take(&at, 2 * a->Vp);
	return w;
}

static int64_t seq_len(const att *a, int64_t s) { return a->table[s + 1] - a->table[s]; }

/* x[n] of 64 lines, transposed to t[n][64], in squares that stay in registers. */
static void transpose(real *restrict t, const real *restrict x, int64_t n)
{
	for (int64_t i = 0; i < n; i += 16)
		for (int64_t j = 0; j < B; j += 16)
			for (int64_t y = i; y < i + 16; y++)
				for (int64_t z = j; z < j + 16; z++)
					t[y * B + z] = x[z * n + y];
}

static void load_keys(const bwd_job *g, bwd_lane *w, int64_t s, int64_t kb, int64_t head)
{
	const att *a = &g->a;
	w->here = here(a, s, kb, seq_len(a, s));
	gather_block(w->dv, a->V, a->Vp, a, a->v, s, kb, seq_len(a, s), head);
	transpose(w->vt, w->dv, a->Vp);
	gather_block(w->k, a->K, a->Kp, a, a->k, s, kb, seq_len(a, s), head);
	transpose(w->kt, w->k, a->Kp);
	if (g->exact)
		w->kmax = most(w->kmax, exact_max_bits(w->k, B * a->Kp));
}

/* Queries of block qb, q head h, and which keys of block kb they see; false if none sees any. */
static bool load_queries(const bwd_job *g, bwd_lane *w, int64_t s, int64_t qb, int64_t kb, int64_t h)
{
	const att *a = &g->a;
	const int64_t len = seq_len(a, s);
	bool any = false;
	for (int64_t i = 0; i < B; i++) {
		int64_t p = qb * B + i;
		w->query[i] = p < len ? g->query[a->table[s] + p] : -1;
		int64_t lo = TT_MAX(first_seen(a, p) - kb * B, 0), hi = TT_MIN(p + 1 - kb * B, B);
		if (w->query[i] < 0 || lo >= hi)
			lo = hi = 0;
		w->lo[i] = (int32_t)lo;
		w->hi[i] = (int32_t)hi;
		any |= lo < hi;
	}
	if (!any)
		return false;
	for (int64_t i = 0; i < B; i++) {
		const int32_t t = w->query[i];
		if (t < 0) {
			memset(w->q + i * a->Kp, 0, (size_t)a->Kp * sizeof(real));
			memset(w->dout + i * a->Vp, 0, (size_t)a->Vp * sizeof(real));
			w->lse[i] = w->D[i] = 0;
			continue;
		}
		load_padded(w->q + i * a->Kp, a->K, a->Kp, a->q, t, h * a->K);
		load_padded(w->dout + i * a->Vp, a->V, a->Vp, g->dout, t, h * a->V);
		w->lse[i] = scalar_load(g->lse, t, h);
		lanes sum = {0};
		lanes_add_products(&sum, w->dout + i * a->Vp, span_load(w->line, g->o, t, h * a->V, a->V), a->V);
		w->D[i] = lanes_join(&sum);
	}
	return true;
}

/* P and DS of the two blocks loaded. */
static void weights(const bwd_job *g, bwd_lane *w)
{
	const att *a = &g->a;
	memset(w->p, 0, B * B * sizeof(real));
	memset(w->ds, 0, B * B * sizeof(real));
	product(a, w->p, B, w->q, a->Kp, 1, w->kt, B, B, B, a->K);
	product(a, w->ds, B, w->dout, a->Vp, 1, w->vt, B, B, B, a->V);
	for (int64_t i = 0; i < B; i++) {
		real *restrict p = w->p + i * B, *restrict ds = w->ds + i * B;
		const real lse = w->lse[i], D = w->D[i];
		const int32_t lo = w->lo[i], hi = w->hi[i];
		for (int32_t j = 0; j < B; j++) {
			bool seen = j >= lo && j < hi && (w->here >> j & 1);
			real e = real_exp(p[j] * a->scale - lse);
			real d = e * (ds[j] - D) * a->scale;
			p[j] = rounded(seen ? e : 0, a->pairs);
			ds[j] = rounded(seen ? d : 0, a->pairs);
		}
	}
	if (g->exact) {
		w->pmax = most(w->pmax, exact_max_bits(w->p, B * B));
		w->dsmax = most(w->dsmax, exact_max_bits(w->ds, B * B));
		w->qmax = most(w->qmax, exact_max_bits(w->q, B * a->Kp));
		w->domax = most(w->domax, exact_max_bits(w->dout, B * a->Vp));
	}
}

/* dq goes on through the block of keys. */
static void add_dq(const bwd_job *g, bwd_lane *w, int64_t h)
{
	const att *a = &g->a;
#ifndef TT_REAL_F64
	if (g->exact) {
		for (int64_t i = 0; i < B; i++) {
			if (w->lo[i] == w->hi[i])
				continue;
			const exact_line dq = exact_line_at(g->dq, w->query[i], h * a->K);
			int64_t terms = 0;
			for (int64_t j = w->lo[i]; j < w->hi[i]; j++) {
				if (!(w->here >> j & 1))
					continue;
				exact_line_add_scaled(dq, (double)w->ds[i * B + j], w->k + j * a->Kp, a->K);
				terms++;
			}
			exact_line_finish(dq, a->K, terms);
		}
		return;
	}
#endif
	for (int64_t i = 0; i < B; i++)
		if (w->query[i] >= 0)
			load_padded(w->dq + i * a->Kp, a->K, a->Kp, g->dq, w->query[i], h * a->K);
		else
			memset(w->dq + i * a->Kp, 0, (size_t)a->Kp * sizeof(real));
	product(a, w->dq, a->Kp, w->ds, B, 1, w->k, a->Kp, B, a->Kp, B);
	plus_zero(w->dq, B * a->Kp);
	for (int64_t i = 0; i < B; i++)
		if (w->query[i] >= 0)
			span_store(g->dq, w->query[i], h * a->K, w->dq + i * a->Kp, a->K);
}

/* dk and dv of block kb of sequence s go on through the block of queries. */
static void add_dkv(const bwd_job *g, bwd_lane *w, int64_t s, int64_t kb, int64_t head)
{
	const att *a = &g->a;
#ifndef TT_REAL_F64
	if (g->exact) {
		int64_t keys = TT_MIN(B, seq_len(a, s) - kb * B);
		for (int64_t j = 0; j < keys; j++) {
			const int64_t line = line_of(a, s, kb * B + j);
			if (line < 0)
				continue;
			const exact_line dk = exact_line_at(g->dk, line, head * a->K), dv = exact_line_at(g->dv, line, head * a->V);
			int64_t terms = 0;
			for (int64_t i = 0; i < B; i++) {
				if (j < w->lo[i] || j >= w->hi[i])
					continue;
				exact_line_add_scaled(dk, (double)w->ds[i * B + j], w->q + i * a->Kp, a->K);
				exact_line_add_scaled(dv, (double)w->p[i * B + j], w->dout + i * a->Vp, a->V);
				terms++;
			}
			exact_line_finish(dk, a->K, terms);
			exact_line_finish(dv, a->V, terms);
		}
		return;
	}
#else
	(void)s, (void)kb, (void)head;
#endif
	product(a, w->dv, a->Vp, w->p, 1, B, w->dout, a->Vp, B, a->Vp, B);
	product(a, w->dk, a->Kp, w->ds, 1, B, w->q, a->Kp, B, a->Kp, B);
}

/* dk and dv of one block of keys; dq continued if `dq`. */
static void key_unit(const bwd_job *g, bwd_lane *w, int64_t s, int64_t kb, int64_t head, bool dq)
{
	const att *a = &g->a;
	const int64_t len = seq_len(a, s);
	load_keys(g, w, s, kb, head);
	if (!w->here)
		return;
	memset(w->dk, 0, (size_t)(B * a->Kp) * sizeof(real));
	memset(w->dv, 0, (size_t)(B * a->Vp) * sizeof(real));
	/* The last query that sees a key of the block is at position kb*64+63 + window-1. */
	const int64_t last = a->window ? TT_MIN(len, kb * B + B - 1 + a->window) : len;
	for (int64_t h = head * a->group; h < (head + 1) * a->group; h++)
		for (int64_t qb = kb; qb * B < last; qb++) {
			if (!load_queries(g, w, s, qb, kb, h))
				continue;
			weights(g, w);
			add_dkv(g, w, s, kb, head);
			if (dq)
				add_dq(g, w, h);
		}
	if (g->exact)
		return;
	plus_zero(w->dk, B * a->Kp);
	plus_zero(w->dv, B * a->Vp);
	for (int64_t j = 0; j < TT_MIN(B, len - kb * B); j++) {
		const int64_t line = line_of(a, s, kb * B + j);
		if (line < 0)
			continue;
		span_store(g->dk, line, head * a->K, w->dk + j * a->Kp, a->K);
		span_store(g->dv, line, head * a->V, w->dv + j * a->Vp, a->V);
	}
}

/* The bounds of the limb sums, from what this lane has met; `terms` of the longest sum. */
static void prove(const bwd_job *g, const bwd_lane *w, int64_t terms)
{
	if (!g->exact)
		return;
	const tt_call *c = g->a.call;
	double p = exact_max_value(w->pmax), ds = exact_max_value(w->dsmax);
	exact_check(c, p * exact_max_value(w->domax), terms);
	exact_check(c, ds * exact_max_value(w->qmax), terms);
	exact_check(c, ds * exact_max_value(w->kmax), terms);
}

static void keys_only(void *ctx, int64_t index, int lane)
{
	const bwd_job *g = ctx;
	const int64_t block = index / g->a.G, head = index % g->a.G;
	const int64_t s = g->blocks[2 * block];
	bwd_lane w = bwd_lane_of(g, lane);
	key_unit(g, &w, s, g->blocks[2 * block + 1], head, false);
	prove(g, &w, g->a.group * seq_len(&g->a, s));
}

static void queries_only(void *ctx, int64_t index, int lane)
{
	const bwd_job *g = ctx;
	const att *a = &g->a;
	const int64_t block = index / a->G, head = index % a->G;
	const int64_t s = g->blocks[2 * block], qb = g->blocks[2 * block + 1];
	bwd_lane w = bwd_lane_of(g, lane);
	for (int64_t kb = first_seen(a, qb * B) / B; kb <= qb; kb++) {
		load_keys(g, &w, s, kb, head);
		if (!w.here)
			continue;
		for (int64_t h = head * a->group; h < (head + 1) * a->group; h++)
			if (load_queries(g, &w, s, qb, kb, h)) {
				weights(g, &w);
				add_dq(g, &w, h);
			}
	}
	prove(g, &w, a->group * seq_len(a, s));
}

static void whole_sequence(void *ctx, int64_t index, int lane)
{
	const bwd_job *g = ctx;
	const int64_t run = index / g->a.G, head = index % g->a.G;
	bwd_lane w = bwd_lane_of(g, lane);
	for (int64_t i = g->runs[run]; i < g->runs[run + 1]; i++)
		key_unit(g, &w, g->blocks[2 * i], g->blocks[2 * i + 1], head, true);
	prove(g, &w, g->a.group * seq_len(&g->a, g->blocks[2 * g->runs[run]]));
}

static void clear_lines(const bwd_job *g, const tt_arg *o, int64_t begin, int64_t end)
{
	for (int64_t t = begin; t < TT_MIN(end, o->n[0]); t++)
		if (g->exact)
			exact_line_clear(exact_line_at(o, t, 0), o->n[1]);
		else
			memset(arg_real(o, t, 0), 0, (size_t)o->n[1] * sizeof(real));
}

enum { CLEAR = 64 };
static void clear_all(void *ctx, int64_t i, int lane)
{
	(void)lane;
	const bwd_job *g = ctx;
	clear_lines(g, g->dq, i * CLEAR, (i + 1) * CLEAR);
	clear_lines(g, g->dk, i * CLEAR, (i + 1) * CLEAR);
	clear_lines(g, g->dv, i * CLEAR, (i + 1) * CLEAR);
}

static void run_bwd(const tt_call *c, bool exact)
{
	bwd_job g = {.a = att_of(c, 6), .o = &c->in[3], .lse = &c->in[4], .dout = &c->in[5], .dq = &c->out[0], .dk = &c->out[1],
		     .dv = &c->out[2], .exact = exact};
	const att *a = &g.a;
	const int64_t positions = a->N > 0 ? a->table[a->N] : 0;
	TT_ASSERT(positions <= c->in[9].n[0], "%lld positions, %lld lines", (long long)positions, (long long)c->in[9].n[0]);
	/* No more blocks than positions and no more runs than blocks: at most 4*positions + 1 ints. */
	g.query = a->ints;
	g.blocks = g.query + positions;
	memset(g.query, 0xff, (size_t)positions * sizeof(int32_t));
	for (int64_t t = 0; t < a->T; t++) {
		TT_ASSERT(a->positions[t] < seq_len(a, a->seq_ids[t]), "query at position %d of sequence %d, which has %lld",
			  (int)a->positions[t], (int)a->seq_ids[t], (long long)seq_len(a, a->seq_ids[t]));
		g.query[a->table[a->seq_ids[t]] + a->positions[t]] = (int32_t)t;
	}
	for (int64_t s = 0; s < a->N; s++)
		for (int64_t b = 0; b * B < seq_len(a, s); b++) {
			g.blocks[2 * g.nblocks] = (int32_t)s;
			g.blocks[2 * g.nblocks + 1] = (int32_t)b;
			g.nblocks++;
		}
	g.runs = g.blocks + 2 * g.nblocks;
	for (int64_t i = 0; i < g.nblocks; i++)
		if (g.blocks[2 * i + 1] == 0)
			g.runs[g.nruns++] = (int32_t)i;
	g.runs[g.nruns] = (int32_t)g.nblocks;
	tt_pool *pool = c->env->pool;
	int64_t longest = TT_MAX(g.dq->n[0], TT_MAX(g.dk->n[0], g.dv->n[0]));
	tt_pool_run(pool, tt_ceil_div(longest, CLEAR), clear_all, &g);
	if (g.nruns * a->G >= tt_pool_threads(pool)) {
		tt_pool_run(pool, g.nruns * a->G, whole_sequence, &g);
	} else {
		tt_pool_run(pool, g.nblocks * a->G, keys_only, &g);
		tt_pool_run(pool, g.nblocks * a->G, queries_only, &g);
	}
}

static void attention_bwd(const tt_call *c) { run_bwd(c, false); }
#ifndef TT_REAL_F64
static void attention_bwd_exact(const tt_call *c) { run_bwd(c, true); }
#endif

#endif
