/* attention_fast: `attention`, `attention_part` and `attention_bwd` in `fast`, faster than attention.k.c and equal to it bit for bit. Its head
 * comments are the contract; this family has the same chains in registers.
 *
 *   attention_fast.c         the rows of the override table: what is accepted, how much scratch
 *   attention_fast_SET.c     one instruction set each: a target, and what attention_fast_set.h makes for it
 *   attention_fast_vec.h     vectors of 16 floats, words, exp
 *   attention_fast_tile.h    the matrix tile and packing
 *   attention_fast_fwd.h, attention_fast_bwd.h
 *
 * A word is what one step of a chain takes of an operand: a float, or two neighbouring bf16 of the contraction (VDPBF16PS). Every
 * product is C[m][n] = sum over words x of A(i,x) B[x][n]: A is broadcast word by word, B is packed with n side by side. With
 * scores as [query][position] all six products find their operands so: q, dO, P and DS lie right as A; of K, V, q and dO a block
 * is packed as B, once for all heads of the group and all queries of a unit; DS and P as A of dk and dv are read down their columns.
 */
#ifndef TT_KERNELS_ATTENTION_FAST_H
#define TT_KERNELS_ATTENTION_FAST_H

#include "kernels/attention.h"
#include "kernels/math.h"

enum {
	AF_BLOCK = TT_ATTENTION_BLOCK,
	AF_HEADS = 4,      /* q heads of a forward unit, which share packed K and V */
	AF_ROWS = 288,     /* most rows (queries times heads) of a forward unit */
	AF_TILE = 48,      /* rows whose scores are in work at a time: whole micro tiles, and whole vectors of rows */
	AF_MICRO = 6,      /* rows of a micro tile */
	AF_MAX_DIM = 256,  /* of K and V */
	AF_CLEAR = 64,     /* lines that one task of the backward prepares */
};

/* Queries of one head in a forward unit: at most AF_ROWS rows together. */
static inline int64_t af_chunk(int64_t heads) { return heads == 1 ? 192 : heads <= 3 ? 96 : 48; }

/* Bytes of a lane's scratch, shared by both directions. A float per word is the most that any variant needs. */
static inline size_t af_lane_scratch(const tt_attr_attention *a)
{
	const int64_t b = AF_BLOCK, k = a->head_dim, v = a->v_head_dim, r = AF_ROWS;
	/* q, o, m, l; K^T, V; scores, P, row maxima and sums, factors */
	const int64_t fwd = r * (k + v) + 2 * r + b * (k + v) + AF_TILE * (2 * b + 16) + 3 * AF_TILE;
	/* K^T, V^T, K, dk, dv; q and dO as A and B, dq; P, DS, DS by pairs of rows; scores and dP of a micro tile */
	const int64_t bwd = b * (3 * k + 2 * v) + b * (3 * k + 2 * v) + 3 * b * b + 2 * 8 * b;
	return (size_t)tt_round_up(TT_MAX(fwd, bwd) * 4, 64);
}

/* Scratch before the lanes': the forward's chunks, or the backward's maps (as attention_bwd.h) and D [T,H]. */
static inline size_t af_shared_scratch(int64_t T, int64_t S, int64_t H)
{
	return (size_t)(tt_round_up(4 * (T + 1 + 5 * S), 64) + tt_round_up(4 * T * H, 64));
}

/* One call's operands by name. Legend: T query tokens, N sequences, H q heads, G kv heads, K and V their dims. */
typedef struct af_call {
	const tt_call *call;
	const tt_arg *q, *k, *v;
	const int32_t *positions, *seq_ids, *table, *lines;
	int64_t T, N, H, G, group, K, V, window;
	int64_t line0, line1; /* K and V are lines [line0, line1) of all */
	bool ring;     /* not all lines are here */
	int64_t esize; /* bytes of an element of q, k, v, o, dO */
	float scale;
	int32_t *ints; /* shared scratch */
	float *D;
	uint8_t *own;  /* each lane's scratch, `stride` bytes apart */
	size_t stride;
} af_call;

static inline af_call af_call_of(const tt_call *c, int tables)
{
	const tt_attr_attention *at = c->attr;
	af_call a = {.call = c, .q = &c->in[0], .k = &c->in[1], .v = &c->in[2], .positions = c->in[tables].p,
		     .seq_ids = c->in[tables + 1].p, .table = c->in[tables + 2].p, .lines = c->in[tables + 3].p};
	const int64_t S = c->in[tables + 3].n[0];
	a.T = a.q->n[0];
	a.N = c->in[tables + 2].n[0] - 1;
	a.K = at->head_dim;
	a.V = at->v_head_dim;
	a.H = a.q->n[1] / a.K;
	a.G = a.k->n[1] / a.K;
	a.group = at->group;
	a.window = at->window;
	a.esize = a.q->dtype == TT_BF16 ? 2 : 4;
	a.scale = (float)at->scale;
	a.ring = at->parts > 0;
	a.line0 = a.ring ? tt_deal(S, at->part, at->parts) : 0;
	a.line1 = a.ring ? tt_deal(S, at->part + 1, at->parts) : S;
	TT_ASSERT(a.H == a.G * a.group && a.v->n[1] == a.G * a.V, "%lld q heads, %lld kv heads, group %lld, v has %lld columns",
		  (long long)a.H, (long long)a.G, (long long)a.group, (long long)a.v->n[1]);
	TT_ASSERT(a.K % 16 == 0 && a.V % 16 == 0 && TT_MAX(a.K, a.V) <= AF_MAX_DIM, "head dims %lld and %lld", (long long)a.K,
		  (long long)a.V);
	a.ints = c->scratch;
	a.D = (float *)(void *)((uint8_t *)c->scratch + tt_round_up(4 * (a.T + 1 + 5 * S), 64));
	a.own = (uint8_t *)c->scratch + af_shared_scratch(a.T, S, a.H);
	a.stride = af_lane_scratch(at);
	return a;
}

/* What a line that is not there points to. */
static const float af_zeros[AF_MAX_DIM] = {0};
#define AF_ZEROS ((const uint8_t *)af_zeros)

static inline const uint8_t *af_line(const af_call *a, const tt_arg *x, int64_t line, int64_t col)
{
	return (const uint8_t *)x->p + (line * x->ld + col) * a->esize;
}

/* First position that a query at `p` sees; it sees [first, p]. */
static inline int64_t af_first(const af_call *a, int64_t p) { return a->window && p >= a->window ? p - a->window + 1 : 0; }
static inline int64_t af_len(const af_call *a, int64_t s) { return a->table[s + 1] - a->table[s]; }

/* Where position p of sequence s lies in K and V; -1: not here. */
static inline int64_t af_line_of(const af_call *a, int64_t s, int64_t p)
{
	const int64_t line = a->lines[a->table[s] + p];
	return line >= a->line0 && line < a->line1 ? line - a->line0 : -1;
}

/* Which of positions [p, p + n) lie here, n <= 64, as bits. */
static inline uint64_t af_here(const af_call *a, int64_t s, int64_t p, int64_t n)
{
	if (!a->ring)
		return ~UINT64_C(0);
	uint64_t bits = 0;
	for (int64_t j = 0; j < n; j++)
		bits |= (uint64_t)(af_line_of(a, s, p + j) >= 0) << j;
	return bits;
}

/* Positions [lo, hi) of a block as bits. */
static inline uint64_t af_bits(int64_t lo, int64_t hi)
{
	lo = TT_MAX(lo, 0);
	hi = TT_MIN(hi, AF_BLOCK);
	return lo >= hi ? 0 : (~UINT64_C(0) << lo) & (~UINT64_C(0) >> (AF_BLOCK - hi));
}

/* Runs of neighbouring queries of one sequence, of at most af_chunk: where they start goes to ints[0..chunks]. */
typedef struct af_fwd_job {
	af_call a;
	int64_t chunks, parts, units; /* parts of a group of q heads; units = chunks * kv heads * parts */
	bool state; /* not finished: attention_part */
} af_fwd_job;

static inline af_fwd_job af_fwd_job_of(const tt_call *c)
{
	af_fwd_job g = {.a = af_call_of(c, 3)};
	af_call *a = &g.a;
	const int64_t most = af_chunk(TT_MIN(a->group, AF_HEADS));
	for (int64_t t = 0; t < a->T; t++)
		if (t == 0 || a->seq_ids[t] != a->seq_ids[t - 1] || t - a->ints[g.chunks - 1] == most)
			a->ints[g.chunks++] = (int32_t)t;
	a->ints[g.chunks] = (int32_t)a->T;
	g.parts = tt_ceil_div(a->group, AF_HEADS);
	g.units = g.chunks * a->G * g.parts;
	return g;
}

/* The next n words of a lane's scratch. */
static inline float *af_take(float **at, int64_t n)
{
	float *p = *at;
	*at += tt_round_up(n, 16);
	return p;
}

typedef struct af_bwd_job {
	af_call a;
	const tt_arg *o, *lse, *dout, *dq, *dk, *dv; /* dout: the cotangent of o */
	int32_t *query;    /* [table[N]] by table[s]+p: the query at position p of sequence s, -1 */
	int32_t *blocks;   /* [nblocks][2] sequence, block */
	int64_t nblocks;
	int32_t *longest;  /* [nlongest] sequences that are not empty, the longest first */
	int64_t nlongest;
	bool split;        /* dq in a pass of its own: by blocks, not by sequences */
	bool all_queries;  /* every position has a query, which sees position 0: dq begins with block 0 */
	bool all_lines;    /* every line has a position */
} af_bwd_job;

/* Longer sequences first, equal ones in their order: a heap sort in place. */
static inline void af_sift(const af_call *a, int32_t *x, int64_t i, int64_t n)
{
#define AF_BEFORE(p, q) (af_len(a, p) > af_len(a, q) || (af_len(a, p) == af_len(a, q) && (p) < (q)))
	for (int64_t child; (child = 2 * i + 1) < n; i = child) {
		if (child + 1 < n && AF_BEFORE(x[child], x[child + 1]))
			child++;
		if (!AF_BEFORE(x[i], x[child]))
			return;
		const int32_t swap = x[i];
		x[i] = x[child];
		x[child] = swap;
	}
#undef AF_BEFORE
}

static inline af_bwd_job af_bwd_job_of(const tt_call *c)
{
	af_bwd_job g = {.a = af_call_of(c, 6), .o = &c->in[3], .lse = &c->in[4], .dout = &c->in[5], .dq = &c->out[0],
			.dk = &c->out[1], .dv = &c->out[2]};
	const af_call *a = &g.a;
	const int64_t positions = a->N > 0 ? a->table[a->N] : 0;
	TT_ASSERT(positions <= c->in[9].n[0], "%lld positions, %lld lines", (long long)positions, (long long)c->in[9].n[0]);
	g.all_queries = !a->window && positions == a->T && !a->ring;
	g.all_lines = positions == c->in[9].n[0];
	/* No more blocks than positions, no more sequences that are not empty than blocks: at most 4 positions ints. */
	g.query = a->ints;
	g.blocks = g.query + positions;
	memset(g.query, 0xff, (size_t)positions * sizeof(int32_t));
	for (int64_t t = 0; t < a->T; t++) {
		TT_ASSERT(a->positions[t] < af_len(a, a->seq_ids[t]), "query at position %d of sequence %d, which has %lld",
			  (int)a->positions[t], (int)a->seq_ids[t], (long long)af_len(a, a->seq_ids[t]));
		g.query[a->table[a->seq_ids[t]] + a->positions[t]] = (int32_t)t;
	}
	for (int64_t s = 0; s < a->N; s++)
		for (int64_t b = 0; b * AF_BLOCK < af_len(a, s); b++) {
			g.blocks[2 * g.nblocks] = (int32_t)s;
			g.blocks[2 * g.nblocks + 1] = (int32_t)b;
			g.nblocks++;
		}
	g.longest = g.blocks + 2 * g.nblocks;
	double most = 0, all = 0; /* pairs of blocks */
	for (int64_t s = 0; s < a->N; s++) {
		const int64_t n = tt_ceil_div(af_len(a, s), AF_BLOCK), reach = a->window ? a->window / AF_BLOCK + 2 : n;
		if (n == 0)
			continue;
		g.longest[g.nlongest++] = (int32_t)s;
		const double pairs = (double)n * (double)TT_MIN(n + 1, 2 * reach);
		most = TT_MAX(most, pairs);
		all += pairs;
	}
	for (int64_t i = g.nlongest / 2 - 1; i >= 0; i--)
		af_sift(a, g.longest, i, g.nlongest);
	for (int64_t n = g.nlongest - 1; n > 0; n--) {
		const int32_t swap = g.longest[0];
		g.longest[0] = g.longest[n];
		g.longest[n] = swap;
		af_sift(a, g.longest, 0, n);
	}
	/* By sequences the last thread is done after the greater of its share and the longest task, in whole tasks where they are equal;
	 * by blocks after 7/5 of its share. */
	const double threads = tt_pool_threads(c->env->pool), tasks = all * (double)a->G / TT_MAX(most, 1);
	const double rounds = (double)tt_ceil_div((int64_t)(tasks + 0.999), (int64_t)threads);
	g.split = rounds * threads > 1.4 * tasks && threads > 1;
	return g;
}

/* What there is, best instruction set first: dtype, set, what it needs. */
#define AF_VARIANTS(X)                                                                                                 \
	X(bf16, avx512_bf16, TT_ISA_AVX512_BF16)                                                                       \
	X(f32, avx512, TT_ISA_AVX512)                                                                                  \
	X(bf16, avx512, TT_ISA_AVX512)                                                                                 \
	X(f32, avx2, TT_ISA_AVX2)                                                                                      \
	X(bf16, avx2, TT_ISA_AVX2)
#define AF_DECLARE(dt, set, isa) tt_kernel_fn tt_attention_##dt##_##set, tt_attention_part_##dt##_##set, tt_attention_bwd_##dt##_##set;
AF_VARIANTS(AF_DECLARE)

#endif
