/* real: what the reference kernels are written in. `real` is float, or double in the f64 set.
 *
 * Everything is static inline: a kernel file is compiled once per set, and each set gets its own copy. Numerics that all
 * sets share bit for bit: stored values become `real` on load, are rounded once on store (to nearest even), every fma is
 * written REAL_FMA, and sums over a line are lane sums.
 *
 * An operand of one dim is one contiguous line; of two or more, n[0] lines of `ld` elements, contiguous inside a line.
 */
#ifndef TT_KERNELS_REAL_H
#define TT_KERNELS_REAL_H

#include "kernels/kernels.h"

#include <math.h>

#ifdef TT_REAL_F64
typedef double real;
typedef uint64_t real_bits;
#define TT_STORED_REAL TT_F64
#else
typedef float real;
typedef uint32_t real_bits;
#define TT_STORED_REAL TT_F32
#endif

/* Elements converted at a time where a line is not stored as `real`. Multiples of 16, so that lane sums go on. PIECE: where several
 * operands are in work at once, so that all of them stay in the first cache. */
enum { SPAN = 1024, PIECE = 256, LANES = 16 };

/* ---- fma --------------------------------------------------------------------------------------------------------- */

#if defined(__FMA__) || !defined(__x86_64__)
static inline float fma_f32(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
#else
/* The same value without the instruction and without a call, so that loops vectorise. a*b is exact in double; the sum
 * s + e = a*b + c is exact (Knuth's TwoSum); rounding s to odd where e is not zero makes the second rounding, to float,
 * right (Boldo and Melquiond 2008: 53 >= 24 + 2). Conditions are integer arithmetic: baseline vectors have no 64-bit
 * comparisons, and branches on the bits of a sum are mispredicted half the time. */
static inline float fma_f32(float a, float b, float c)
{
	double p = (double)a * (double)b, z = (double)c;
	double s = p + z, back = s - p, e = (p - (s - back)) + (z - back);
	uint64_t bits, ebits;
	memcpy(&bits, &s, 8);
	memcpy(&ebits, &e, 8);
	uint64_t magnitude = ebits << 1, inexact = (magnitude | (0 - magnitude)) >> 63;
	uint64_t special = ((bits & UINT64_C(0x7ff0000000000000)) + (UINT64_C(1) << 52)) >> 63; /* Inf, NaN stay */
	uint64_t step = inexact & ~special & ~bits & 1, down = (bits ^ ebits) >> 63;
	bits += (step ^ (0 - down)) + down; /* +step or -step */
	memcpy(&s, &bits, 8);
	return (float)s;
}
#endif
static inline double fma_f64(double a, double b, double c) { return __builtin_fma(a, b, c); }

#ifdef TT_REAL_F64
#define REAL_FMA(a, b, c) fma_f64((a), (b), (c))
static inline real real_sqrt(real x) { return __builtin_sqrt(x); }
static inline real real_abs(real x) { return __builtin_fabs(x); }
#else
#define REAL_FMA(a, b, c) fma_f32((a), (b), (c))
static inline real real_sqrt(real x) { return __builtin_sqrtf(x); }
static inline real real_abs(real x) { return __builtin_fabsf(x); }
#endif

static inline real_bits real_to_bits(real x)
{
	real_bits b;
	memcpy(&b, &x, sizeof b);
	return b;
}

/* ---- operands ------------------------------------------------------------------------------------------------------ */

static inline int64_t arg_lines(const tt_arg *a) { return a->ndim >= 2 ? a->n[0] : 1; }
static inline int64_t arg_width(const tt_arg *a) /* elements of a line */
{
	int64_t n = 1;
	for (int d = a->ndim >= 2; d < a->ndim; d++)
		n *= a->n[d];
	return n;
}
static inline int64_t arg_count(const tt_arg *a) { return arg_lines(a) * arg_width(a); }
static inline int64_t arg_at(const tt_arg *a, int64_t line, int64_t at) { return (a->ndim >= 2 ? line * a->ld : 0) + at; }

/* True if the operand's bytes are `real`: f32 (f64 in the f64 set), or acc outside of `exact`. */
static inline bool arg_is_real(const tt_arg *a) { return a->dtype == TT_STORED_REAL || a->dtype == TT_ACC; }
static inline real *arg_real(const tt_arg *a, int64_t line, int64_t at)
{
	TT_DCHECK(arg_is_real(a));
	return (real *)a->p + arg_at(a, line, at);
}
static inline const int32_t *arg_i32(const tt_arg *a)
{
	TT_DCHECK(a->dtype == TT_I32);
	return a->p;
}

static inline void bf16_to_real(real *restrict out, const tt_bf16 *restrict in, int64_t n)
{
	for (int64_t i = 0; i < n; i++) {
		uint32_t u = (uint32_t)in[i] << 16;
		float f;
		memcpy(&f, &u, 4);
		out[i] = (real)f;
	}
}

/* To nearest even; NaN stays NaN. A double is rounded to float first, as torch does. Not inlined: where the compiler loses sight of
 * `restrict` it guards the vectors with a test of overlap that fails for an output behind its buffer. */
static __attribute__((noinline, unused)) void real_to_bf16(tt_bf16 *restrict out, const real *restrict in, int64_t n)
{
	for (int64_t i = 0; i < n; i++) {
		float f = (float)in[i];
		uint32_t u;
		memcpy(&u, &f, 4);
		uint32_t rounded = u + 0x7fffu + (u >> 16 & 1u), nan = u | 0x400000u;
		out[i] = (tt_bf16)((f != f ? nan : rounded) >> 16);
	}
}

/* What is left of x once it was stored in bf16. */
static inline real real_round_bf16(real x)
{
	float f = (float)x;
	uint32_t u;
	memcpy(&u, &f, 4);
	uint32_t rounded = u + 0x7fffu + ((u >> 16) & 1u), nan = u | 0x400000u;
	u = ((u & 0x7fffffffu) > 0x7f800000u ? nan : rounded) & 0xffff0000u;
	memcpy(&f, &u, 4);
	return (real)f;
}

/* Elements [at, at+n) of a line as `real`: a pointer into the operand if it is stored so, else converted into buf[n]. */
static inline const real *span_load(real *buf, const tt_arg *a, int64_t line, int64_t at, int64_t n)
{
	if (arg_is_real(a))
		return arg_real(a, line, at);
	if (a->dtype == TT_BF16) {
		bf16_to_real(buf, (const tt_bf16 *)a->p + arg_at(a, line, at), n);
		return buf;
	}
	TT_ASSERT(a->dtype == TT_F32, "a kernel compiled for %d-byte reals got dtype %d", (int)sizeof(real), (int)a->dtype);
	const float *p = (const float *)a->p + arg_at(a, line, at);
	for (int64_t i = 0; i < n; i++)
		buf[i] = (real)p[i];
	return buf;
}

/* Where to compute elements [at, at+n) of an output: the operand itself if it is stored as `real`, else buf[n]. Then
 * span_store with the same arguments. */
static inline real *span_out(real *buf, const tt_arg *a, int64_t line, int64_t at)
{
	return arg_is_real(a) ? arg_real(a, line, at) : buf;
}

/* Rounds x[n] to the stored dtype. Nothing to do if x already lies there. */
static inline void span_store(const tt_arg *a, int64_t line, int64_t at, const real *x, int64_t n)
{
	if (arg_is_real(a)) {
		real *p = arg_real(a, line, at);
		if (p != x)
			memmove(p, x, sizeof(real) * (size_t)n);
		return;
	}
	if (a->dtype == TT_BF16) {
		real_to_bf16((tt_bf16 *)a->p + arg_at(a, line, at), x, n);
		return;
	}
	TT_ASSERT(a->dtype == TT_F32, "a kernel compiled for %d-byte reals got dtype %d", (int)sizeof(real), (int)a->dtype);
	float *p = (float *)a->p + arg_at(a, line, at);
	for (int64_t i = 0; i < n; i++)
		p[i] = (float)x[i];
}

/* Whole lines; buf holds arg_width(a) elements. */
static inline const real *line_load(real *buf, const tt_arg *a, int64_t line) { return span_load(buf, a, line, 0, arg_width(a)); }
static inline real *line_out(real *buf, const tt_arg *a, int64_t line) { return span_out(buf, a, line, 0); }
static inline void line_store(const tt_arg *a, int64_t line, const real *x) { span_store(a, line, 0, x, arg_width(a)); }

static inline real scalar_load(const tt_arg *a, int64_t line, int64_t at)
{
	real x;
	return *span_load(&x, a, line, at, 1);
}
static inline void scalar_store(const tt_arg *a, int64_t line, int64_t at, real x) { span_store(a, line, at, &x, 1); }

/* Lines [begin, end) in parts of at most SPAN, or PIECE, elements: variables line, at, n. */
#define FOR_PARTS(line, at, n, begin, end, width, part)                                                                \
	for (int64_t line = (begin); line < (end); line++)                                                             \
		for (int64_t at = 0, n; at < (width) && (n = TT_MIN((int64_t)(part), (width) - at)) > 0; at += (part))
#define FOR_SPANS(line, at, n, begin, end, width) FOR_PARTS(line, at, n, begin, end, width, SPAN)
#define FOR_PIECES(line, at, n, begin, end, width) FOR_PARTS(line, at, n, begin, end, width, PIECE)

/* Before a loop whose outputs may lie on its inputs, element on element: that is no reason not to vectorise. */
#ifdef __clang__
#define INPLACE_LOOP
#else
#define INPLACE_LOOP _Pragma("GCC ivdep")
#endif

/* ---- lane sums -------------------------------------------------------------------------------------------------------
 * Element i goes to lane i mod 16, ascending, one chain per lane from +0; lanes join 8, 4, 2, 1. A line may be given in
 * pieces, all but the last a multiple of 16 long. (A lane is never -0, so absent elements need no addition of +0.) */

typedef struct lanes { real v[LANES]; } lanes;

/* Adds EXPR, an expression of index i, for i in [0, n) to the lanes of *sum. A macro, since the sixteen chains stay in
 * registers only if the loop is in one piece; the copy to a local is what lets them. */
#define LANES_ADD(sum, n, EXPR)                                                                                        \
	do {                                                                                                           \
		const int64_t lanes_n_ = (n), lanes_full_ = lanes_n_ & ~(int64_t)(LANES - 1);                          \
		real lanes_v_[LANES];                                                                                  \
		for (int lanes_l_ = 0; lanes_l_ < LANES; lanes_l_++)                                                   \
			lanes_v_[lanes_l_] = (sum)->v[lanes_l_];                                                       \
		for (int64_t lanes_i_ = 0; lanes_i_ < lanes_full_; lanes_i_ += LANES)                                  \
			for (int lanes_l_ = 0; lanes_l_ < LANES; lanes_l_++) {                                         \
				const int64_t i = lanes_i_ + lanes_l_;                                                 \
				lanes_v_[lanes_l_] += (EXPR);                                                          \
			}                                                                                              \
		for (int lanes_l_ = 0; lanes_l_ < LANES; lanes_l_++)                                                   \
			(sum)->v[lanes_l_] = lanes_v_[lanes_l_];                                                       \
		for (int64_t i = lanes_full_; i < lanes_n_; i++)                                                       \
			(sum)->v[i - lanes_full_] += (EXPR);                                                           \
	} while (0)

static inline void lanes_add(lanes *sum, const real *restrict x, int64_t n) { LANES_ADD(sum, n, x[i]); }
static inline void lanes_add_products(lanes *sum, const real *restrict x, const real *restrict y, int64_t n)
{
	LANES_ADD(sum, n, x[i] * y[i]); /* the product rounded, then added */
}

static inline real lanes_join(const lanes *sum)
{
	real v[LANES];
	memcpy(v, sum->v, sizeof v);
	for (int w = LANES / 2; w; w /= 2)
		for (int l = 0; l < w; l++)
			v[l] += v[l + w];
	return v[0];
}

/* ---- work ---------------------------------------------------------------------------------------------------------------
 * Blocks are fixed by the extents alone where a block's edge could show in a sum; elsewhere any cut is right. */

typedef void lines_fn(const tt_call *c, int64_t begin, int64_t end);
typedef struct lines_job {
	const tt_call *call;
	lines_fn *fn;
	int64_t n, block;
} lines_job;

static inline void lines_run(void *ctx, int64_t i, int lane)
{
	(void)lane;
	const lines_job *j = ctx;
	j->fn(j->call, i * j->block, TT_MIN(j->n, (i + 1) * j->block));
}

/* fn(call, begin, end) over [0, n) in blocks of `block`, on the call's pool. */
static inline void tt_lines(const tt_call *c, int64_t n, int64_t block, lines_fn *fn)
{
	if (n <= 0)
		return;
	lines_job j = {c, fn, n, TT_MAX(block, 1)};
	if (n <= j.block)
		fn(c, 0, n);
	else
		tt_pool_run(c->env->pool, tt_ceil_div(n, j.block), lines_run, &j);
}

/* Lines of `width` elements worth handing to a thread at once. */
static inline int64_t lines_block(int64_t width) { return width >= 8192 ? 1 : 8192 / TT_MAX(width, 1); }

/* The `exact` member of a table row. Double precision has no `exact`: its sums are doubles in both modes. (The conditional
 * is for the compiler's list of unused functions.) */
#ifdef TT_REAL_F64
#define TT_EXACT(fn) (0 ? fn : NULL)
#else
#define TT_EXACT(fn) fn
#endif

/* Sums over tokens in `fast`: fixed blocks, each one ascending chain from zero; blocks joined ascending. */
enum { TOKEN_BLOCK = 128 };

/* Column ranges for sums over lines: a multiple of 16, at most SPAN, enough of them for every thread. The cut of columns
 * shows in no sum. */
static inline int64_t columns_block(const tt_call *c, int64_t width)
{
	int64_t parts = 2 * TT_MAX(tt_pool_threads(c->env->pool), 1);
	return TT_MIN(SPAN, tt_round_up(TT_MAX(tt_ceil_div(width, parts), LANES), LANES));
}

#endif
