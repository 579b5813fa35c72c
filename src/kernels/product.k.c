/* Matrix products, the reference: linear, linear_dx, linear_dw.
 *
 * All three are C[m][n] = sum over k of A(m,k) * B(n,k), told apart by the strides of A and B alone:
 *
 *   op         C        A             B             m  n  k
 *   linear     y[T,o]   x[T,k]        w[o,k]        T  o  k
 *   linear_dx  dx[T,k]  dy[T,o]       w^T           T  k  o
 *   linear_dw  dw[o,k]  dy^T          x^T           o  k  T
 *
 * linear_dx_add adds dx to a sum of other products' dx; linear_dw_acc adds dw to an accumulator, or stores it there. linear_silu_mul and
 * linear_rope are products, then the kernel of their rest (tail.h).
 *
 * `fast`: one ascending chain per output and K segment, acc = fma(a, b, acc) from +0. Where both operands are bf16 the chain
 * runs over pairs of k, the odd element first and then the even one, the missing partner of an odd end being zero, and every
 * input and result that is subnormal counts as a signed zero: what VDPBF16PS computes, bit for bit. The order inside pairs is
 * made while a block is packed, the zeros by MXCSR (FTZ and DAZ), so one loop serves both. FTZ is not the same as zeroing a
 * subnormal fmaf result: a sum just below 2^-126 that rounds up to it is flushed by the hardware, which looks at the result
 * rounded to 24 bits with no bound on the exponent. Where there is no MXCSR, fma_flush spells that out.
 *
 * Eight K segments (attr.segments) have a chain each and join as ((0+1)+(2+3))+((4+5)+(6+7)); an empty one is +0.
 *
 * `exact`: every product, exact in double, goes into the three integer limbs of exact.h, whose sums know no order. The offsets
 * of all terms are taken off and the limbs carried once, when a tile is done.
 *
 * The chains of one tile of C are independent; the loops below run 64 of them side by side, so that the compiler can use
 * whatever vectors the set allows without changing a bit.
 */
#include "kernels/exact.h"
#include "kernels/tail.h"

#if defined(__SSE2__) && !defined(TT_NO_X86)
#include <xmmintrin.h>
#define HAVE_MXCSR 1
#else
#define HAVE_MXCSR 0
#endif

/* A tile of C is MB x NB; operands are packed KC of the contraction at a time. KC is even: pairs stay whole. */
enum { MB = 64, NB = 64, KC = 256, KX = 128, LEVELS = 4 };

typedef struct operand {
	const void *p;
	tt_dtype dtype;
	int64_t n, sn, sk; /* lines; elements between lines and between neighbours in k */
} operand;

typedef struct job {
	const tt_call *call;
	operand a, b;
	int64_t k;
	int64_t edges[9];
	int nseg;        /* 1 or 8 */
	bool pairs;      /* both bf16: the chain of VDPBF16PS */
	bool rounded;    /* a `round` was folded in: a zero is +0 */
	const tt_arg *bias, *out; /* bias NULL: none */
	const tt_arg *state;      /* the sum is added to it, acc; NULL: none */
	const tt_arg *x, *y;      /* the operands */
	int64_t ntiles;  /* tiles of C along n */
} job;

/* ---- packing a block of an operand ------------------------------------------------------------------------------- */

#define LOAD(type, conv)                                                                                               \
	do {                                                                                                           \
		const type *s = (const type *)o->p + n0 * o->sn + k0 * o->sk;                                          \
		if (o->sk == 1) {                                                                                      \
			for (int64_t i = 0; i < nn; i++)                                                               \
				for (int64_t p = 0; p < nk; p++)                                                       \
					d[i * dn + (p ^ flip) * dk] = conv(s[i * o->sn + p]);                          \
		} else {                                                                                               \
			for (int64_t p = 0; p < nk; p++)                                                               \
				for (int64_t i = 0; i < nn; i++)                                                       \
					d[i * dn + (p ^ flip) * dk] = conv(s[i * o->sn + p * o->sk]);                  \
		}                                                                                                      \
	} while (0)
#define SAME(x) (x)

/* Lines [n0, n0+nn), contraction [k0, k0+nk) of `o` to d[i*dn + place*dk]; `flip` 1 swaps the two of each pair. */
#define DEFINE_LOAD(name, elem)                                                                                        \
	static void name(const operand *o, int64_t n0, int64_t nn, int64_t k0, int64_t nk, int64_t flip, elem *restrict d, \
			 int64_t dn, int64_t dk)                                                                       \
	{                                                                                                              \
		if (o->dtype == TT_BF16)                                                                               \
			LOAD(tt_bf16, tt_bf16_to_f32);                                                                    \
		else if (o->dtype == TT_F64)                                                                           \
			LOAD(double, (elem));                                                                          \
		else                                                                                                   \
			LOAD(float, SAME);                                                                             \
	}
DEFINE_LOAD(load_real, real)
#ifndef TT_REAL_F64
DEFINE_LOAD(load_double, double)
#endif

/* ---- fast: chains ------------------------------------------------------------------------------------------------- */

#if HAVE_MXCSR
enum { FTZ = 0x8000, DAZ = 0x0040 };
#else
static real flushed(real x) { return __builtin_fabs((double)x) < 0x1p-126 ? (real)__builtin_copysign(0, (double)x) : x; }

/* fma with inputs and result flushed as VDPBF16PS does. a and b hold bf16 values, so a*b is exact in double. */
static real fma_flush(real a, real b, real c)
{
	a = flushed(a), b = flushed(b);
	real r = REAL_FMA(a, b, c);
	if (__builtin_fabs((double)r) != 0x1p-126)
		return flushed(r);
	/* 2^-126 itself: flushed if the exact sum was below 2^-126 - 2^-151. s + e is that sum, e its rounding error. */
	double p = (double)a * (double)b, s = p + (double)c, t = s - p;
	double e = (p - (s - t)) + ((double)c - t), edge = 0x1p-126 - 0x1p-151;
	if (r < 0)
		s = -s, e = -e;
	return s < edge || (s == edge && e < 0) ? (real)__builtin_copysign(0, (double)r) : r;
}
#endif

/* acc[i][j] continues through x[i][0..np) and w[0..np)[j], in place order. x lines are `dx` apart. Not inlined, so that
 * nothing moves across the changes of MXCSR around it. */
static __attribute__((noinline)) void chain_tile(int64_t rows, int64_t np, const real *restrict x, int64_t dx,
						 const real *restrict w, real *restrict acc)
{
	int64_t i = 0;
	for (; i + 2 <= rows; i += 2) {
		const real *x0 = x + i * dx, *x1 = x0 + dx;
		real *c0 = acc + i * NB, *c1 = c0 + NB;
		int64_t p = 0;
		for (; p + 8 <= np; p += 8) {
			const real *v = w + p * NB;
			for (int j = 0; j < NB; j++) {
				real s = c0[j], t = c1[j];
				for (int q = 0; q < 8; q++) {
					s = REAL_FMA(x0[p + q], v[q * NB + j], s);
					t = REAL_FMA(x1[p + q], v[q * NB + j], t);
				}
				c0[j] = s;
				c1[j] = t;
			}
		}
		for (; p < np; p++)
			for (int j = 0; j < NB; j++) {
				c0[j] = REAL_FMA(x0[p], w[p * NB + j], c0[j]);
				c1[j] = REAL_FMA(x1[p], w[p * NB + j], c1[j]);
			}
	}
	for (; i < rows; i++) {
		const real *x0 = x + i * dx;
		real *c0 = acc + i * NB;
		int64_t p = 0;
		for (; p + 8 <= np; p += 8) {
			const real *v = w + p * NB;
			for (int j = 0; j < NB; j++) {
				real s = c0[j];
				for (int q = 0; q < 8; q++)
					s = REAL_FMA(x0[p + q], v[q * NB + j], s);
				c0[j] = s;
			}
		}
		for (; p < np; p++)
			for (int j = 0; j < NB; j++)
				c0[j] = REAL_FMA(x0[p], w[p * NB + j], c0[j]);
	}
}

static void chain_tile_flush(int64_t rows, int64_t np, const real *x, int64_t dx, const real *w, real *acc)
{
#if HAVE_MXCSR
	unsigned csr = _mm_getcsr();
	_mm_setcsr(csr | FTZ | DAZ);
	chain_tile(rows, np, x, dx, w, acc);
	_mm_setcsr(csr);
#else
	for (int64_t i = 0; i < rows; i++)
		for (int64_t p = 0; p < np; p++)
			for (int j = 0; j < NB; j++)
				acc[i * NB + j] = fma_flush(x[i * dx + p], w[p * NB + j], acc[i * NB + j]);
#endif
}

static void add_tile(int64_t rows, real *restrict a, const real *restrict b)
{
	for (int64_t i = 0; i < rows * NB; i++)
		a[i] += b[i];
}

/* One line of a finished tile, bias added, rounded once. */
static void store_line(const job *g, int64_t line, int64_t n0, int64_t nn, real *v)
{
	if (g->bias) {
		real buf[NB];
		const real *b = span_load(buf, g->bias, 0, n0, nn);
		for (int64_t j = 0; j < nn; j++)
			v[j] += b[j];
	}
	if (g->state) {
		const real *s = arg_real(g->state, line, n0);
		for (int64_t j = 0; j < nn; j++)
			v[j] = s[j] + v[j];
	}
	if (g->rounded)
		for (int64_t j = 0; j < nn; j++)
			v[j] += 0;
	span_store(g->out, line, n0, v, nn);
}

static void fast_tile(void *ctx, int64_t tile, int lane)
{
	(void)lane;
	const job *g = ctx;
	int64_t m0 = tile / g->ntiles * MB, n0 = tile % g->ntiles * NB;
	int64_t rows = TT_MIN(MB, g->a.n - m0), cols = TT_MIN(NB, g->b.n - n0);
	_Alignas(64) real x[MB * KC];            /* [rows][KC] */
	_Alignas(64) real w[KC * NB];            /* [KC][NB], columns past `cols` zero */
	_Alignas(64) real acc[LEVELS][MB * NB];  /* open sums of the tree, outermost first */
	if (cols < NB)
		memset(w, 0, sizeof w);
	int level = 0;
	for (int s = 0; s < g->nseg; s++) {
		real *c = acc[level++];
		memset(c, 0, (size_t)rows * NB * sizeof(real));
		for (int64_t k0 = g->edges[s]; k0 < g->edges[s + 1]; k0 += KC) {
			int64_t nk = TT_MIN(KC, g->edges[s + 1] - k0), np = nk;
			load_real(&g->a, m0, rows, k0, nk, g->pairs, x, KC, 1);
			load_real(&g->b, n0, cols, k0, nk, g->pairs, w, 1, NB);
			if (g->pairs && nk & 1) {
				np = nk + 1;
				for (int64_t i = 0; i < rows; i++)
					x[i * KC + nk - 1] = 0;
				memset(w + (nk - 1) * NB, 0, NB * sizeof(real));
			}
			if (g->pairs)
				chain_tile_flush(rows, np, x, KC, w, c);
			else
				chain_tile(rows, np, x, KC, w, c);
		}
		/* Segment s closes as many levels of the tree as it has trailing ones. */
		for (int up = s; up & 1; up >>= 1, level--)
			add_tile(rows, acc[level - 2], acc[level - 1]);
	}
	for (int64_t i = 0; i < rows; i++)
		store_line(g, m0 + i, n0, cols, acc[0] + i * NB);
}

static void run_fast(const job *g)
{
	tt_pool_run(g->call->env->pool, tt_ceil_div(g->a.n, MB) * g->ntiles, fast_tile, (void *)g);
}

/* ---- exact: limbs ------------------------------------------------------------------------------------------------- */

#ifndef TT_REAL_F64

/* l0, l1, l2 [NB]: limbs of the sums over np of x[p]*w[p][j] are added, offsets left in. Four terms at a time, so that limbs
 * are loaded and stored once for them. */
static void exact_line_products(int64_t np, const double *restrict x, const double *restrict w, uint64_t *restrict l0,
				uint64_t *restrict l1, uint64_t *restrict l2)
{
	int64_t p = 0;
	for (; p + 4 <= np; p += 4)
		for (int j = 0; j < NB; j++) {
			const double *v = w + p * NB + j;
			uint64_t a = l0[j], b = l1[j], c = l2[j];
			exact_add_raw(&a, &b, &c, x[p] * v[0]);
			exact_add_raw(&a, &b, &c, x[p + 1] * v[NB]);
			exact_add_raw(&a, &b, &c, x[p + 2] * v[2 * NB]);
			exact_add_raw(&a, &b, &c, x[p + 3] * v[3 * NB]);
			l0[j] = a;
			l1[j] = b;
			l2[j] = c;
		}
	for (; p < np; p++)
		for (int j = 0; j < NB; j++)
			exact_add_raw(&l0[j], &l1[j], &l2[j], x[p] * w[p * NB + j]);
}

static void exact_tile(void *ctx, int64_t tile, int lane)
{
	(void)lane;
	const job *g = ctx;
	int64_t m0 = tile / g->ntiles * MB, n0 = tile % g->ntiles * NB;
	int64_t rows = TT_MIN(MB, g->a.n - m0), cols = TT_MIN(NB, g->b.n - n0);
	_Alignas(64) double x[MB * KX], w[KX * NB];
	_Alignas(64) uint64_t l[EXACT_LIMBS][MB][NB];
	memset(w, 0, sizeof w);
	memset(l, 0, sizeof l);
	for (int64_t k0 = 0; k0 < g->k; k0 += KX) {
		int64_t nk = TT_MIN(KX, g->k - k0);
		load_double(&g->a, m0, rows, k0, nk, 0, x, KX, 1);
		load_double(&g->b, n0, cols, k0, nk, 0, w, 1, NB);
		for (int64_t i = 0; i < rows; i++)
			exact_line_products(nk, x + i * KX, w, l[0][i], l[1][i], l[2][i]);
	}
	real buf[NB];
	const real *bias = g->bias ? span_load(buf, g->bias, 0, n0, cols) : NULL;
	for (int64_t i = 0; i < rows; i++) {
		exact_line sums = {{l[0][i], l[1][i], l[2][i]}}, to = exact_line_at(g->out, m0 + i, n0);
		if (bias)
			exact_line_add(sums, bias, cols);
		exact_line_finish(sums, cols, g->k + (bias != NULL));
		if (g->state) {
			if (!exact_line_sum(to, exact_line_at(g->state, m0 + i, n0), sums, cols))
				exact_raise(g->call);
			continue;
		}
		for (int j = 0; j < EXACT_LIMBS; j++)
			memcpy(to.k[j], sums.k[j], (size_t)cols * sizeof(uint64_t));
	}
}

/* The largest magnitude of an operand; Inf or NaN if it holds one. As integers: above 0 the order of bits is that of numbers. */
static double magnitude(const tt_arg *a)
{
	uint32_t most = 0;
	for (int64_t i = 0; i < arg_lines(a); i++) {
		int64_t n = arg_width(a);
		if (a->dtype == TT_BF16) {
			const tt_bf16 *s = (const tt_bf16 *)a->p + arg_at(a, i, 0);
			uint32_t u = 0;
			for (int64_t j = 0; j < n; j++)
				u = TT_MAX(u, s[j] & 0x7fffu);
			most = TT_MAX(most, u << 16);
		} else {
			most = TT_MAX(most, exact_max_bits(arg_real(a, i, 0), n));
		}
	}
	return exact_max_value(most);
}

static void run_exact(const job *g)
{
	/* |term| of products and of the bias at once, a little too strict where there is a bias. Inf*0 and NaN do not fit. */
	double most = magnitude(g->x) * magnitude(g->y);
	if (g->bias)
		most += magnitude(g->bias);
	exact_check(g->call, most, g->k + (g->bias != NULL));
	tt_pool_run(g->call->env->pool, tt_ceil_div(g->a.n, MB) * g->ntiles, exact_tile, (void *)g);
}

#endif

/* ---- the ops ------------------------------------------------------------------------------------------------------ */

static operand lines_of(const tt_arg *a) { return (operand){a->p, a->dtype, a->n[0], a->ld, 1}; }
static operand columns_of(const tt_arg *a) { return (operand){a->p, a->dtype, a->n[1], 1, a->ld}; }

static job job_of(const tt_call *c, const tt_arg *x, const tt_arg *y, operand a, operand b, int64_t k)
{
	TT_ASSERT(x->format == TT_PLAIN && y->format == TT_PLAIN, "an operand is packed; the reference reads plain matrices");
	job g = {.call = c, .a = a, .b = b, .k = k, .nseg = 1, .out = &c->out[0], .x = x, .y = y};
	g.edges[1] = k;
	g.pairs = a.dtype == TT_BF16 && b.dtype == TT_BF16;
	g.ntiles = tt_ceil_div(b.n, NB);
	return g;
}

static job job_linear(const tt_call *c)
{
	const tt_attr_linear *at = c->attr;
	job g = job_of(c, &c->in[0], &c->in[1], lines_of(&c->in[0]), lines_of(&c->in[1]), c->in[0].n[1]);
	g.bias = c->nin > 2 && c->in[2].p ? &c->in[2] : NULL;
	g.rounded = at->rounded;
	if (at->segments.n) {
		TT_ASSERT(at->segments.n == 9 && at->segments.v[0] == 0 && at->segments.v[8] == g.k,
			  "segments do not cover the contraction of %lld", (long long)g.k);
		g.nseg = 8;
		memcpy(g.edges, at->segments.v, sizeof g.edges);
	}
	return g;
}

static job job_dx(const tt_call *c)
{
	job g = job_of(c, &c->in[0], &c->in[1], lines_of(&c->in[0]), columns_of(&c->in[1]), c->in[0].n[1]);
	g.rounded = ((const tt_attr_linear_dx *)c->attr)->rounded;
	g.state = c->nin > 2 ? &c->in[2] : NULL;
	return g;
}

static job job_of_dw(const tt_call *c, const tt_arg *dy, const tt_arg *x)
{
	return job_of(c, dy, x, columns_of(dy), columns_of(x), dy->n[0]);
}
static job job_dw(const tt_call *c) { return job_of_dw(c, &c->in[0], &c->in[1]); }
static job job_dw_acc(const tt_call *c)
{
	const tt_attr_accumulate *at = c->attr;
	job g = job_of_dw(c, &c->in[1], &c->in[2]);
	if (!at->first || !c->env->first)
		g.state = &c->in[0];
	return g;
}

static void linear(const tt_call *c)
{
	job g = job_linear(c);
	run_fast(&g);
}

static void linear_dx(const tt_call *c)
{
	job g = job_dx(c);
	run_fast(&g);
}

static void linear_dw(const tt_call *c)
{
	job g = job_dw(c);
	run_fast(&g);
}

static void linear_dw_acc(const tt_call *c)
{
	job g = job_dw_acc(c);
	run_fast(&g);
}

/* Products of one X, each with a weight, then the rest on all of them. */
static void with_tail(const tt_call *c, const char *op)
{
#if defined(TT_SET_AVX512)
	tt_tail t = tt_tail_of(op, TT_ISA_AVX512, false);
#elif defined(TT_SET_AVX2)
	tt_tail t = tt_tail_of(op, TT_ISA_AVX2, false);
#else
	tt_tail t = tt_tail_of(op, TT_ISA_REF, TT_STORED_REAL == TT_F64);
#endif
	for (int i = 0; i < t.products; i++) {
		job g = job_of(c, &c->in[0], &c->in[1 + i], lines_of(&c->in[0]), lines_of(&c->in[1 + i]), c->in[0].n[1]);
		g.out = &c->out[i];
		run_fast(&g);
	}
	tt_tail_run(&t, c, false, 0, c->out[0].n[0], 0, c->out[0].n[1]);
}
static void linear_silu_mul(const tt_call *c) { with_tail(c, "linear_silu_mul"); }
static void linear_rope(const tt_call *c) { with_tail(c, "linear_rope"); }

#ifdef TT_REAL_F64
/* double stands for acc and needs no limbs */
#define EXACT(name) NULL
#else
#define EXACT(name) name##_exact

/* Outputs that are not acc contract what is never split: the same chain in both modes. */
static void run_exact_or_fast(const job *g)
{
	if (g->out->dtype == TT_ACC)
		run_exact(g);
	else
		run_fast(g);
}

static void linear_exact(const tt_call *c)
{
	job g = job_linear(c);
	run_exact_or_fast(&g);
}

static void linear_dx_exact(const tt_call *c)
{
	job g = job_dx(c);
	run_exact_or_fast(&g);
}

static void linear_dw_exact(const tt_call *c)
{
	job g = job_dw(c);
	run_exact_or_fast(&g);
}

static void linear_dw_acc_exact(const tt_call *c)
{
	job g = job_dw_acc(c);
	run_exact(&g);
}
#endif

const tt_kernel TT_KERNEL_TABLE[] = {
	{"linear", linear, EXACT(linear)},
	{"linear_dx", linear_dx, EXACT(linear_dx)},
	{"linear_dx_add", linear_dx, EXACT(linear_dx)},
	{"linear_silu_mul", linear_silu_mul, NULL},
	{"linear_rope", linear_rope, NULL},
	{"linear_dw", linear_dw, EXACT(linear_dw)},
	{"linear_dw_acc", linear_dw_acc, EXACT(linear_dw_acc)},
	{NULL, NULL, NULL},
};
