/* exact: sums that no order, split or merge can change (EXACT.md).
 *
 * A sum is three int64 limbs on the grids 2^-26, 2^-66, 2^-106; its value is k0*2^-26 + k1*2^-66 + k2*2^-106. A term x,
 * |x| < 2^25, is cut into multiples of the grids: t = x + C with C = 1.5*2^52*grid rounds x to the grid, and as a binary64
 * number's bits are linear in its mantissa, bits(t) = bits(C) + round(x/grid). So `limb += bits(t)` is an integer
 * addition of round(x/grid), once n*bits(C) is taken off for n terms. x - (t - C) is exact and goes to the next grid.
 * What is below 2^-106 rounds to nearest even term by term: a function of the term alone, so still of no order.
 *
 * A product of two fp32 values is exact in double (24 + 24 <= 53 bits, no exponent out of range), so
 * exact_add_raw(..., (double)a * b) has the bits of fma(a, b, C) and needs no fma.
 *
 * Bounds: |term| < 2^25 makes |round(x/2^-26)| <= 2^51, all that a mantissa can take. At most EXACT_TERMS terms between
 * carries: |round(r/2^-66)| <= 2^39 each. |sum| < 2^37 would fit limb 0; kernels flag 2^36, so that two sums
 * in memory can always be added and the result checked. All additions are modulo 2^64 and unsigned, so what lies between
 * may wrap; a sum outside its bounds raises the call's flag, and its limbs mean nothing.
 *
 * acc values in memory are always canonical: k1, k2 in [-2^39, 2^39), and then the limbs are a function of the value.
 */
#ifndef TT_KERNELS_EXACT_H
#define TT_KERNELS_EXACT_H

#include "kernels/real.h"

enum { EXACT_LIMBS = 3, EXACT_SHIFT = 40 }; /* ratio of neighbouring grids: 2^40 */
#define EXACT_TERMS (((int64_t)1 << 24) - 2)
#define EXACT_TERM_LIMIT 0x1p25
#define EXACT_SUM_LIMIT 0x1p36
#define EXACT_C0 0x1.8p26
#define EXACT_C1 0x1.8p-14
#define EXACT_C2 0x1.8p-54
#define EXACT_B0 UINT64_C(0x4198000000000000) /* bits(EXACT_C0) */
#define EXACT_B1 UINT64_C(0x3f18000000000000)
#define EXACT_B2 UINT64_C(0x3c98000000000000)

static inline uint64_t exact_bits(double t)
{
	uint64_t b;
	memcpy(&b, &t, 8);
	return b;
}
static inline double exact_from_bits(uint64_t b)
{
	double t;
	memcpy(&t, &b, 8);
	return t;
}

/* ---- one sum -------------------------------------------------------------------------------------------------------- */

/* Adds x with the offsets bits(C) left in. After n of them exact_finish(.., n). */
static inline void exact_add_raw(uint64_t *k0, uint64_t *k1, uint64_t *k2, double x)
{
	double t0 = x + EXACT_C0, r0 = x - (t0 - EXACT_C0);
	double t1 = r0 + EXACT_C1, r1 = r0 - (t1 - EXACT_C1);
	double t2 = r1 + EXACT_C2;
	*k0 += exact_bits(t0);
	*k1 += exact_bits(t1);
	*k2 += exact_bits(t2);
}

/* Moves what is outside [-2^39, 2^39) up, by logical shifts since these vectorise everywhere. */
static inline void exact_carry(uint64_t *k0, uint64_t *k1, uint64_t *k2)
{
	const uint64_t bias = (UINT64_C(1) << 63) + (UINT64_C(1) << 39), off = UINT64_C(1) << 23;
	uint64_t c = ((*k2 + bias) >> EXACT_SHIFT) - off;
	*k2 -= c << EXACT_SHIFT;
	*k1 += c;
	c = ((*k1 + bias) >> EXACT_SHIFT) - off;
	*k1 -= c << EXACT_SHIFT;
	*k0 += c;
}

/* Adds x with the offsets taken off at once, for sums whose number of terms nobody counts; exact_finish(.., 0). */
static inline void exact_add_net(uint64_t *k0, uint64_t *k1, uint64_t *k2, double x)
{
	exact_add_raw(k0, k1, k2, x);
	*k0 -= EXACT_B0;
	*k1 -= EXACT_B1;
	*k2 -= EXACT_B2;
}

/* Takes the offsets of n raw terms off and carries. */
static inline void exact_finish(uint64_t *k0, uint64_t *k1, uint64_t *k2, int64_t n)
{
	*k0 -= (uint64_t)n * EXACT_B0;
	*k1 -= (uint64_t)n * EXACT_B1;
	*k2 -= (uint64_t)n * EXACT_B2;
	exact_carry(k0, k1, k2);
}

/* The simple form: one sum in canonical limbs. */
typedef struct exact_sum { uint64_t k[EXACT_LIMBS]; } exact_sum;
static inline void exact_add_term(exact_sum *s, double x)
{
	exact_add_raw(&s->k[0], &s->k[1], &s->k[2], x);
	exact_finish(&s->k[0], &s->k[1], &s->k[2], 1);
}
/* a and b as exact as fp32 values are: at most 26 significant bits each. */
static inline void exact_add_product(exact_sum *s, double a, double b) { exact_add_term(s, a * b); }
static inline void exact_add_sum(exact_sum *s, const exact_sum *o)
{
	for (int j = 0; j < EXACT_LIMBS; j++)
		s->k[j] += o->k[j];
	exact_carry(&s->k[0], &s->k[1], &s->k[2]);
}

/* Canonical limbs to fp32, to nearest even, from all three limbs; zero is +0. The smallest nonzero value is 2^-106, the
 * largest below 2^38: no subnormals, no overflow. In 128 bits the value is whole unless limb 0 is large; then limb 2 is
 * far below the last bit of a float and only says on which side of a tie the value is. */
static inline float exact_round_wide(int64_t k0, int64_t k1, int64_t k2)
{
	if (k0 < (INT64_C(1) << 46) && k0 > -(INT64_C(1) << 46)) {
		__int128 v = ((__int128)k0 * (INT64_C(1) << 40) + k1) * (INT64_C(1) << 40) + k2;
		return (float)v * 0x1p-106f;
	}
	__int128 v = ((__int128)k0 * (INT64_C(1) << 40) + k1) * 2 + (k2 > 0) - (k2 < 0);
	return (float)v * 0x1p-67f;
}

/* The same for |k0| < 2^51, in doubles without branches. The limbs are exact doubles d0, d1, d2. s + t + u is their sum
 * without error, s the double nearest to s + t; rounding s to odd where t + u is not zero makes the rounding to float
 * right (53 >= 24 + 2). */
static inline float exact_round_narrow(uint64_t k0, uint64_t k1, uint64_t k2)
{
	double d0 = exact_from_bits(EXACT_B0 + k0) - EXACT_C0;
	double d1 = exact_from_bits(EXACT_B1 + k1) - EXACT_C1;
	double d2 = exact_from_bits(EXACT_B2 + k2) - EXACT_C2;
	double a = d0 + d1, back = a - d0, b = (d0 - (a - back)) + (d1 - back);
	double c = b + d2;
	back = c - b;
	double u = (b - (c - back)) + (d2 - back);
	double s = a + c;
	back = s - a;
	double t = (a - (s - back)) + (c - back);
	double e = t + u;
	uint64_t bits = exact_bits(s), magnitude = exact_bits(e) << 1, down = (bits ^ exact_bits(e)) >> 63;
	uint64_t step = (magnitude | (0 - magnitude)) >> 63 & ~bits & 1;
	bits += (step ^ (0 - down)) + down; /* +step or -step */
	return (float)exact_from_bits(bits);
}

static inline float exact_round(const exact_sum *s)
{
	return exact_round_wide((int64_t)s->k[0], (int64_t)s->k[1], (int64_t)s->k[2]);
}

/* ---- flags ------------------------------------------------------------------------------------------------------------ */

static inline void exact_raise(const tt_call *c)
{
	if (c->flag)
		atomic_store_explicit(c->flag, 1, memory_order_relaxed);
}

/* Greatest |x|, or NaN if there is one: the greatest bits with the sign off. Order-free. */
static inline real_bits exact_max_bits(const real *restrict x, int64_t n)
{
	real_bits m = 0;
	for (int64_t i = 0; i < n; i++) {
		real_bits b = real_to_bits(x[i]) & (real_bits)~((real_bits)1 << (8 * sizeof(real) - 1));
		m = b > m ? b : m;
	}
	return m;
}
static inline double exact_max_value(real_bits m)
{
	real x;
	memcpy(&x, &m, sizeof x);
	return (double)x;
}

/* True if `terms` terms, none above `max` in magnitude, are within the bounds. False for Inf and NaN. */
static inline bool exact_fits(double max, int64_t terms)
{
	return max < EXACT_TERM_LIMIT && max * (double)terms < EXACT_SUM_LIMIT && terms <= EXACT_TERMS;
}
/* Raises the call's flag if they are not. For products: max|a| * max|b|. */
static inline void exact_check(const tt_call *c, double max, int64_t terms)
{
	if (!exact_fits(max, terms))
		exact_raise(c);
}

/* ---- lines of sums: limb j of element i at k[j][i] ---------------------------------------------------------------------- */

typedef struct exact_line { uint64_t *k[EXACT_LIMBS]; } exact_line;

/* Elements from `at` on of a line of an acc operand. */
static inline exact_line exact_line_at(const tt_arg *a, int64_t line, int64_t at)
{
	TT_DCHECK(a->dtype == TT_ACC);
	exact_line l;
	for (int j = 0; j < EXACT_LIMBS; j++)
		l.k[j] = (uint64_t *)(void *)((char *)a->p + j * a->plane) + arg_at(a, line, at);
	return l;
}

static inline void exact_line_clear(exact_line l, int64_t n)
{
	for (int j = 0; j < EXACT_LIMBS; j++)
		memset(l.k[j], 0, 8 * (size_t)n);
}

/* Adds x[i] to sum i, offsets left in. */
static inline void exact_line_add(exact_line l, const real *restrict x, int64_t n)
{
	uint64_t *restrict k0 = l.k[0], *restrict k1 = l.k[1], *restrict k2 = l.k[2];
	for (int64_t i = 0; i < n; i++)
		exact_add_raw(&k0[i], &k1[i], &k2[i], (double)x[i]);
}

/* The same with the offsets taken off. */
static inline void exact_line_add_net(exact_line l, const real *restrict x, int64_t n)
{
	uint64_t *restrict k0 = l.k[0], *restrict k1 = l.k[1], *restrict k2 = l.k[2];
	for (int64_t i = 0; i < n; i++)
		exact_add_net(&k0[i], &k1[i], &k2[i], (double)x[i]);
}

/* Adds a*x[i] to sum i, offsets left in: a row of a product. a, x as exact as fp32. */
static inline void exact_line_add_scaled(exact_line l, double a, const real *restrict x, int64_t n)
{
	uint64_t *restrict k0 = l.k[0], *restrict k1 = l.k[1], *restrict k2 = l.k[2];
	for (int64_t i = 0; i < n; i++)
		exact_add_raw(&k0[i], &k1[i], &k2[i], a * (double)x[i]);
}

/* Takes the offsets of `terms` terms off each sum and makes it canonical. */
static inline void exact_line_finish(exact_line l, int64_t n, int64_t terms)
{
	uint64_t *restrict k0 = l.k[0], *restrict k1 = l.k[1], *restrict k2 = l.k[2];
	for (int64_t i = 0; i < n; i++)
		exact_finish(&k0[i], &k1[i], &k2[i], terms);
}

/* Sums of one term each. */
static inline void exact_line_lift(exact_line l, const real *x, int64_t n)
{
	exact_line_clear(l, n);
	exact_line_add(l, x, n);
	exact_line_finish(l, n, 1);
}

/* Sixteen sums side by side that end up in one: the shape in which a long sum vectorises. */
typedef struct exact_lanes { uint64_t k[EXACT_LIMBS][LANES]; } exact_lanes;
#define EXACT_LANES_ADD(sum, n, EXPR)                                                                                  \
	do {                                                                                                           \
		const int64_t lanes_n_ = (n), lanes_full_ = lanes_n_ & ~(int64_t)(LANES - 1);                          \
		exact_lanes lanes_s_ = *(sum);                                                                         \
		for (int64_t lanes_i_ = 0; lanes_i_ < lanes_full_; lanes_i_ += LANES)                                  \
			for (int lanes_l_ = 0; lanes_l_ < LANES; lanes_l_++) {                                         \
				const int64_t i = lanes_i_ + lanes_l_;                                                 \
				exact_add_raw(&lanes_s_.k[0][lanes_l_], &lanes_s_.k[1][lanes_l_],                      \
					&lanes_s_.k[2][lanes_l_], (EXPR));                                             \
			}                                                                                              \
		for (int64_t i = lanes_full_; i < lanes_n_; i++)                                                       \
			exact_add_raw(&lanes_s_.k[0][i - lanes_full_], &lanes_s_.k[1][i - lanes_full_],                \
				&lanes_s_.k[2][i - lanes_full_], (EXPR));                                              \
		*(sum) = lanes_s_;                                                                                     \
	} while (0)
/* The one sum, canonical, of `terms` terms in all. */
static inline exact_sum exact_lanes_join(const exact_lanes *l, int64_t terms)
{
	exact_sum s = {{0}};
	for (int j = 0; j < EXACT_LIMBS; j++)
		for (int i = 0; i < LANES; i++)
			s.k[j] += l->k[j][i];
	exact_finish(&s.k[0], &s.k[1], &s.k[2], terms);
	return s;
}
static inline exact_line exact_line_of(exact_sum *s) { return (exact_line){{&s->k[0], &s->k[1], &s->k[2]}}; }
static inline void exact_store(const tt_arg *a, int64_t line, int64_t at, const exact_sum *s)
{
	exact_line l = exact_line_at(a, line, at);
	for (int j = 0; j < EXACT_LIMBS; j++)
		*l.k[j] = s->k[j];
}
static inline exact_sum exact_load(const tt_arg *a, int64_t line, int64_t at)
{
	exact_line l = exact_line_at(a, line, at);
	return (exact_sum){{*l.k[0], *l.k[1], *l.k[2]}};
}

/* out = a + b, canonical; out may be a or b. The result is true if every |sum| is below 2^36, half the bound, so that
 * the next addition of two such sums cannot wrap: raise the flag if not.
 * (The bound in k0 is 2^62; adding it to a k0 within makes a number of 63 bits.) */
static inline bool exact_line_sum(exact_line out, exact_line a, exact_line b, int64_t n)
{
	uint64_t wide = 0, *o0 = out.k[0], *o1 = out.k[1], *o2 = out.k[2];
	const uint64_t *a0 = a.k[0], *a1 = a.k[1], *a2 = a.k[2], *b0 = b.k[0], *b1 = b.k[1], *b2 = b.k[2];
	INPLACE_LOOP
	for (int64_t i = 0; i < n; i++) {
		uint64_t k0 = a0[i] + b0[i], k1 = a1[i] + b1[i], k2 = a2[i] + b2[i];
		exact_carry(&k0, &k1, &k2);
		wide |= k0 + (UINT64_C(1) << 62);
		o0[i] = k0;
		o1[i] = k1;
		o2[i] = k2;
	}
	return !(wide >> 63);
}

/* Each sum rounded to fp32. */
static inline void exact_line_round(real *restrict out, exact_line l, int64_t n)
{
	enum { BLOCK = 64 };
	const uint64_t *restrict k0 = l.k[0], *restrict k1 = l.k[1], *restrict k2 = l.k[2];
	for (int64_t b = 0; b < n; b += BLOCK) {
		int64_t end = TT_MIN(n, b + BLOCK);
		uint64_t wide = 0;
		for (int64_t i = b; i < end; i++)
			wide |= k0[i] + (UINT64_C(1) << 50);
		if (wide >> 51)
			for (int64_t i = b; i < end; i++)
				out[i] = (real)exact_round_wide((int64_t)k0[i], (int64_t)k1[i], (int64_t)k2[i]);
		else
			for (int64_t i = b; i < end; i++)
				out[i] = (real)exact_round_narrow(k0[i], k1[i], k2[i]);
	}
}

#endif
