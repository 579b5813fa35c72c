/* Own exp, log, sine and cosine: a libm chooses its code by CPU, and its bits with it. Here every function is one
 * expression without branches, the same operations on every instruction set and in full and tail lanes; loops over them
 * vectorise. From the C library only sqrt and fma are used, which IEEE 754 fixes to the bit.
 *
 * Greatest errors measured, in units in the last place, against the C library's double (float: exp at every input, the others at
 * 44 million of all magnitudes) and binary128 (double: 3 million). tests/test_math.c checks them; its proof tier takes
 * every float.
 *     float   exp 1.01   log 0.50   sine, cosine 0.50 (|x| <= 2^20)   sigmoid 2.3
 *     double  exp 0.95   log 1.94   sine, cosine 2.24 (|x| <= 2^20)
 */
#ifndef TT_KERNELS_MATH_H
#define TT_KERNELS_MATH_H

#include "kernels/real.h"

static inline uint32_t f32_bits(float x)
{
	uint32_t b;
	memcpy(&b, &x, 4);
	return b;
}
static inline float f32_from_bits(uint32_t b)
{
	float x;
	memcpy(&x, &b, 4);
	return x;
}
static inline uint64_t f64_bits(double x)
{
	uint64_t b;
	memcpy(&b, &x, 8);
	return b;
}
static inline double f64_from_bits(uint64_t b)
{
	double x;
	memcpy(&x, &b, 8);
	return x;
}

/* e^x = 2^k e^r, r = x - k ln 2 in [-ln2/2, ln2/2], ln 2 in two parts (Cody and Waite); e^r = 1 + r + r^2 P(r), P of degree
 * 4, minimax for the relative error of e^r: 2^-28.3. Outside [-104, 89] the result is 0 or infinity. 2^k is applied in two
 * factors, so that a subnormal result is rounded once and the greatest results do not overflow early: 2^h and 2^(k-h), h = k/2 down.
 * The range is tested last, since a compiler that sees constants go into the polynomial makes two of it. */
static inline float exp_f32(float x)
{
	/* Adding it rounds to an integer, which then stands in the low bits, both exponents' bias of 127 on it already. */
	const float magic = 0x1.8p23f + 254.0f;
	float t = fma_f32(x, 0x1.715476p+0f, magic), n = t - magic;
	float r = fma_f32(n, -0x1.62e430p-1f, x);
	r = fma_f32(n, 0x1.05c610p-29f, r);
	float p = 0.0013814599553094666f;
	p = fma_f32(p, r, 0.0083687168752623599f);
	p = fma_f32(p, r, 0.041668388031037609f);
	p = fma_f32(p, r, 0.16666520631773323f);
	p = fma_f32(p, r, 0.4999999344783835f);
	float y = 1.0f + fma_f32(r * r, p, r);
	uint32_t k = f32_bits(t), half = k << 22 & 0xff800000u, rest = (k << 23) - half; /* as exponents */
	y = y * f32_from_bits(half) * f32_from_bits(rest);
	y = x < -104.0f ? 0.0f : y; /* NaN stays: it compares false */
	return x > 89.0f ? __builtin_inff() : y;
}

/* The same in double: ln 2 with a high part of 32 bits, so that k times it is exact without an fma; Taylor's series to
 * r^13, its rest below 2^-57. */
static inline double exp_f64(double x)
{
	const double magic = 0x1.8p52;
	x = x < -746.0 ? -746.0 : x;
	x = x > 710.0 ? 710.0 : x;
	double t = x * 0x1.71547652b82fep+0 + magic, n = t - magic;
	double r = (x - n * 0x1.62e42feep-1) - n * 0x1.a39ef35793c76p-33;
	double p = 1.0 / 6227020800.0;
	p = p * r + 1.0 / 479001600.0;
	p = p * r + 1.0 / 39916800.0;
	p = p * r + 1.0 / 3628800.0;
	p = p * r + 1.0 / 362880.0;
	p = p * r + 1.0 / 40320.0;
	p = p * r + 1.0 / 5040.0;
	p = p * r + 1.0 / 720.0;
	p = p * r + 1.0 / 120.0;
	p = p * r + 1.0 / 24.0;
	p = p * r + 1.0 / 6.0;
	p = p * r + 0.5;
	double y = 1.0 + (r + r * r * p);
	/* k + 2048 > 0: a logical shift is a floored division, and vectorises everywhere. */
	uint64_t k = f64_bits(t) - f64_bits(magic) + 2048, half = k >> 1;
	return y * f64_from_bits((half - 1024 + 1023) << 52) * f64_from_bits((k - half - 1024 + 1023) << 52);
}

/* log x = e ln 2 + log m, x = 2^e m, m in [sqrt(1/2), sqrt 2); log m = 2 (s + s^3/3 + s^5/5 + ...), s = (m-1)/(m+1),
 * |s| < 0.1716: the rest after s^21/21 is below 2^-57. 0 gives -infinity, below 0 NaN. */
static inline double log_f64(double x)
{
	const double tiny = 0x1p-1022, inf = __builtin_inf();
	const uint64_t root = UINT64_C(0x3fe6a09e667f3bcd); /* bits of sqrt(1/2) */
	double scaled = x < tiny ? x * 0x1p54 : x;
	uint64_t shift = x < tiny ? 54 : 0;
	uint64_t bits = f64_bits(scaled);
	uint64_t e = ((bits - root + (UINT64_C(1024) << 52)) >> 52) - 1024;
	double m = f64_from_bits(bits - (e << 52));
	double n = f64_from_bits(f64_bits(0x1.8p52) + (e - shift)) - 0x1.8p52;
	double s = (m - 1.0) / (m + 1.0), z = s * s;
	double p = 1.0 / 21.0;
	p = p * z + 1.0 / 19.0;
	p = p * z + 1.0 / 17.0;
	p = p * z + 1.0 / 15.0;
	p = p * z + 1.0 / 13.0;
	p = p * z + 1.0 / 11.0;
	p = p * z + 1.0 / 9.0;
	p = p * z + 1.0 / 7.0;
	p = p * z + 1.0 / 5.0;
	p = p * z + 1.0 / 3.0;
	double y = 2.0 * s + (2.0 * s * z * p + n * 0x1.a39ef35793c76p-33);
	y = n * 0x1.62e42feep-1 + y;
	y = x < inf ? y : x; /* infinity, and NaN */
	y = x < 0.0 ? __builtin_nan("") : y;
	return x == 0.0 ? -inf : y;
}
static inline float log_f32(float x) { return (float)log_f64((double)x); } /* off the hot path: right but for ties */

/* Sine and cosine: r = x - n pi/2, pi/2 in parts of 24, 24, 24 and 53 bits, so that n times each of the first three is
 * exact for n < 2^29; then Taylor's series on [-pi/4, pi/4] to r^17 and r^16, the rest below 2^-57. The quadrant is in the
 * low bits of n. |x| above 2^29 gives NaN: an angle there has no meaning that fp32 positions could have had. */
static inline void sincos_f64(double x, double *sine, double *cosine)
{
	const double magic = 0x1.8p52;
	x = __builtin_fabs(x) <= 0x1p29 ? x : __builtin_nan("");
	double t = x * 0x1.45f306dc9c883p-1 + magic, n = t - magic;
	double r = (((x - n * 0x1.921fb4p+0) - n * 0x1.4442dp-24) - n * 0x1.846988p-48) - n * 0x1.8cc51701b839ap-72;
	double z = r * r;
	double p = 1.0 / 355687428096000.0;
	p = p * z - 1.0 / 1307674368000.0;
	p = p * z + 1.0 / 6227020800.0;
	p = p * z - 1.0 / 39916800.0;
	p = p * z + 1.0 / 362880.0;
	p = p * z - 1.0 / 5040.0;
	p = p * z + 1.0 / 120.0;
	p = p * z - 1.0 / 6.0;
	double s = r + r * z * p;
	double q = 1.0 / 20922789888000.0;
	q = q * z - 1.0 / 87178291200.0;
	q = q * z + 1.0 / 479001600.0;
	q = q * z - 1.0 / 3628800.0;
	q = q * z + 1.0 / 40320.0;
	q = q * z - 1.0 / 720.0;
	q = q * z + 1.0 / 24.0;
	double c = 1.0 + (z * z * q - 0.5 * z);
	uint64_t k = f64_bits(t);
	uint64_t swap = 0 - (k & 1), a = f64_bits(s), b = f64_bits(c), both = (a ^ b) & swap;
	*sine = f64_from_bits((a ^ both) ^ ((k & 2) << 62));
	*cosine = f64_from_bits((b ^ both) ^ (((k + 1) & 2) << 62));
}

#ifdef TT_REAL_F64
static inline real real_exp(real x) { return exp_f64(x); }
static inline real real_log(real x) { return log_f64(x); }
#else
static inline real real_exp(real x) { return exp_f32(x); }
static inline real real_log(real x) { return log_f32(x); }
#endif
static inline void real_sincos(real x, real *sine, real *cosine)
{
	double s, c;
	sincos_f64((double)x, &s, &c);
	*sine = (real)s;
	*cosine = (real)c;
}
static inline real real_rsqrt(real x) { return (real)1 / real_sqrt(x); }
static inline real real_sigmoid(real x) { return (real)1 / ((real)1 + real_exp(-x)); }

#endif
