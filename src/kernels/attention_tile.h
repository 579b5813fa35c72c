/* attention_tile: what attention.k.c and attention_bwd.k.c share: a call's operands by name, blocks gathered from lines, the
 * matrix tile that all six products run on, and sums in limbs. Included by kernel files only, once per kernel set. */
#ifndef TT_KERNELS_ATTENTION_TILE_H
#define TT_KERNELS_ATTENTION_TILE_H

#include "kernels/attention.h"
#include "kernels/exact.h"
#include "kernels/math.h"
#include "kernels/real.h"

#if defined(__SSE2__) && !defined(TT_NO_X86)
#include <xmmintrin.h>
#define ATT_MXCSR 1
#else
#define ATT_MXCSR 0
#endif

enum { B = TT_ATTENTION_BLOCK };

/* ---- a call ------------------------------------------------------------------------------------------------------ */

/* Legend: T query tokens, H q heads, G kv heads, K head dim of q and k, V of v; Kp, Vp: K, V padded to 16 with zeros; `len` the
 * positions of a sequence, B = 64 of them a block. */
typedef struct att {
	const tt_call *call;
	const tt_arg *q, *k, *v;                     /* [T,H*K] [S,G*K] [S,G*V] */
	const int32_t *positions, *seq_ids, *table, *lines;
	int64_t T, N, H, G, group, K, V, Kp, Vp;
	real scale;
	int64_t window;
	int64_t line0, line1;                        /* K and V are lines [line0, line1) of all: round a ring, those of one rank */
	bool pairs;                                  /* bf16 operands: chains of VDPBF16PS */
	int32_t *ints;                               /* shared scratch */
	uint8_t *own;                                /* each lane's scratch, `stride` bytes apart */
	size_t stride;
} att;

static att att_of(const tt_call *c, int tables)
{
	const tt_attr_attention *at = c->attr;
	att a = {.call = c, .q = &c->in[0], .k = &c->in[1], .v = tables > 2 ? &c->in[2] : NULL, .positions = c->in[tables].p,
		 .seq_ids = c->in[tables + 1].p, .table = c->in[tables + 2].p, .lines = c->in[tables + 3].p};
	a.T = a.q->n[0];
	a.N = c->in[tables + 2].n[0] - 1;
	a.K = at->head_dim;
	a.V = at->v_head_dim;
	a.Kp = tt_round_up(a.K, 16);
	a.Vp = tt_round_up(a.V, 16);
	a.H = a.q->n[1] / a.K;
	a.G = a.k->n[1] / a.K;
	a.group = at->group;
	TT_ASSERT(a.H == a.G * a.group, "%lld q heads, %lld kv heads, group %lld", (long long)a.H, (long long)a.G,
		  (long long)a.group);
	TT_ASSERT(!a.v || a.v->n[1] == a.G * a.V, "v has %lld columns, %lld kv heads of %lld", (long long)(a.v ? a.v->n[1] : 0), (long long)a.G,
		  (long long)a.V);
	a.scale = (real)at->scale;
	a.window = at->window;
	a.line1 = c->in[tables + 3].n[0];
	if (at->parts) {
		a.line0 = tt_deal(c->in[tables + 3].n[0], at->part, at->parts);
		a.line1 = tt_deal(c->in[tables + 3].n[0], at->part + 1, at->parts);
	}
	a.pairs = a.q->dtype == TT_BF16;
	a.ints = c->scratch;
	a.own = (uint8_t *)c->scratch + tt_round_up(4 * (a.T + 1 + 4 * c->in[tables + 3].n[0]), 64);
	a.stride = tt_attention_lane_scratch(at);
	return a;
}

/* The next n reals of a lane's scratch. */
static real *take(real **at, int64_t n)
{
	real *p = *at;
	*at += n;
	return p;
}

/* First position that a query at `p` sees; it sees [first, p]. */
static int64_t first_seen(const att *a, int64_t p) { return a->window && p >= a->window ? p - a->window + 1 : 0; }

/* Columns [col, col+n) of a line to d[np], zeros from d[n] on. */
static void load_padded(real *restrict d, int64_t n, int64_t np, const tt_arg *s, int64_t line, int64_t col)
{
	const real *x = span_load(d, s, line, col, n);
	if (x != d)
		memcpy(d, x, (size_t)n * sizeof(real));
	memset(d + n, 0, (size_t)(np - n) * sizeof(real));
}

/* Where position p of sequence `seq` lies in K and V; -1: not here. */
static int64_t line_of(const att *a, int64_t seq, int64_t p)
{
	const int64_t line = a->lines[a->table[seq] + p];
	return line >= a->line0 && line < a->line1 ? line - a->line0 : -1;
}

/* Which of positions [64*block, +64) below `end` lie here, as bits. */
static uint64_t here(const att *a, int64_t seq, int64_t block, int64_t end)
{
	uint64_t bits = 0;
	for (int64_t j = 0; j < TT_MIN(B, end - block * B); j++)
		bits |= (uint64_t)(line_of(a, seq, block * B + j) >= 0) << j;
	return bits;
}

/* K or V of positions [64*block, +64) of sequence `seq` and kv head g: d[64][np]; positions from `end` on, and those that are not here, are zeros. */
static void gather_block(real *restrict d, int64_t n, int64_t np, const att *a, const tt_arg *s, int64_t seq, int64_t block,
			 int64_t end, int64_t g)
{
	for (int64_t j = 0; j < B; j++) {
		int64_t p = block * B + j, line = p < end ? line_of(a, seq, p) : -1;
		if (line >= 0)
			load_padded(d + j * np, n, np, s, line, g * n);
		else
			memset(d + j * np, 0, (size_t)np * sizeof(real));
	}
}

/* A function, since TT_MAX would compute an argument twice. */
static inline real_bits most(real_bits a, real_bits b) { return a > b ? a : b; }

/* As an operand of a product: rounded to the value's dtype. */
static inline real rounded(real x, bool bf16)
{
#ifdef TT_REAL_F64
	(void)bf16;
	return x;
#else
	return bf16 ? tt_bf16_to_f32(tt_f32_to_bf16(x)) : x;
#endif
}

/* ---- the tile ---------------------------------------------------------------------------------------------------- */

/* Chains of a register tile, chosen so that its accumulators stay in registers; no bit depends on it. */
#if defined(__AVX512F__)
enum { MT = 8, NT = 32 };
#elif defined(__AVX2__)
enum { MT = 4, NT = 16 };
#else
enum { MT = 2, NT = 16 };
#endif

/* c[i][j] continues through a[i][x]*b[x][j], x in [0, k), two at a time; `flip` 1 takes the odd one of each pair first. */
static inline __attribute__((always_inline)) void tile(int nt, real *restrict c, int64_t ldc, const real *restrict a, int64_t sm,
						       int64_t sk, const real *restrict b, int64_t ldb, int64_t k, int64_t flip)
{
	real acc[MT][NT];
	for (int i = 0; i < MT; i++)
		for (int j = 0; j < nt; j++)
			acc[i][j] = c[i * ldc + j];
	for (int64_t x = 0; x < k; x++) {
		const real *w = a + (x ^ flip) * sk, *r = b + (x ^ flip) * ldb;
#pragma GCC unroll 8
		for (int i = 0; i < MT; i++)
			for (int j = 0; j < nt; j++)
				acc[i][j] = REAL_FMA(w[i * sm], r[j], acc[i][j]);
	}
	for (int i = 0; i < MT; i++)
		for (int j = 0; j < nt; j++)
			c[i * ldc + j] = acc[i][j];
}

/* c[m][n] (lines ldc apart) += chains over k of a(i,x) = a[i*sm + x*sk] and b[x][n]. m and n are multiples of 16, k is even.
 * Not inlined, so that nothing moves across the changes of MXCSR around it. */
static __attribute__((noinline)) void chains(real *restrict c, int64_t ldc, const real *restrict a, int64_t sm, int64_t sk,
					     const real *restrict b, int64_t ldb, int64_t m, int64_t n, int64_t k, int64_t flip)
{
	for (int64_t i = 0; i < m; i += MT) {
		int64_t j = 0;
		for (; j + NT <= n; j += NT)
			tile(NT, c + i * ldc + j, ldc, a + i * sm, sm, sk, b + j, ldb, k, flip);
		for (; j < n; j += 16)
			tile(16, c + i * ldc + j, ldc, a + i * sm, sm, sk, b + j, ldb, k, flip);
	}
}

#if !ATT_MXCSR
static real flushed(real x) { return __builtin_fabs((double)x) < 0x1p-126 ? (real)__builtin_copysign(0, (double)x) : x; }

/* fma of bf16 values a and b with subnormals as zeros. A result of exactly 2^-126 is flushed too if the exact sum was below
 * 2^-126 - 2^-151: hardware looks at the sum rounded with no bound on the exponent. a*b is exact in double; s + e is the sum. */
static real fma_flush(real a, real b, real c)
{
	a = flushed(a), b = flushed(b), c = flushed(c);
	real r = REAL_FMA(a, b, c);
	if (__builtin_fabs((double)r) != 0x1p-126)
		return flushed(r);
	double p = (double)a * (double)b, s = p + (double)c, t = s - p;
	double e = (p - (s - t)) + ((double)c - t), edge = 0x1p-126 - 0x1p-151;
	if (r < 0)
		s = -s, e = -e;
	return s < edge || (s == edge && e < 0) ? (real)__builtin_copysign(0, (double)r) : r;
}
#endif

/* c += a*b as the dtype of the call has it: f32 one ascending fma chain; bf16 pairs, the odd element first, subnormal inputs
 * and results as zeros (VDPBF16PS). An odd k goes on with a zero partner, which every buffer holds. */
static void product(const att *t, real *c, int64_t ldc, const real *a, int64_t sm, int64_t sk, const real *b, int64_t ldb,
		    int64_t m, int64_t n, int64_t k)
{
	k += k & 1;
	if (!t->pairs) {
		chains(c, ldc, a, sm, sk, b, ldb, m, n, k, 0);
		return;
	}
#if ATT_MXCSR
	enum { FTZ = 0x8000, DAZ = 0x0040 };
	unsigned csr = _mm_getcsr();
	_mm_setcsr(csr | FTZ | DAZ);
	chains(c, ldc, a, sm, sk, b, ldb, m, n, k, 1);
	_mm_setcsr(csr);
#else
	for (int64_t i = 0; i < m; i++)
		for (int64_t x = 0; x < k; x++)
			for (int64_t j = 0; j < n; j++)
				c[i * ldc + j] = fma_flush(a[i * sm + (x ^ 1) * sk], b[(x ^ 1) * ldb + j], c[i * ldc + j]);
#endif
}

/* Every zero becomes +0: masked terms may leave either, and a result must not tell which path made it. */
static void plus_zero(real *x, int64_t n)
{
	for (int64_t i = 0; i < n; i++)
		x[i] += (real)0;
}

#endif
