/* Own functions against the C library, random numbers against published vectors and moments, exact sums against a model
 * in 192-bit integers. These headers are compiled here for the baseline CPU, so fma is the emulated one. */
#include "test.h"

#include "kernels/exact.h"
#include "kernels/random.h"

#include <stdio.h>
#include <stdlib.h>

static uint64_t next_u64(uint64_t *s)
{
	uint64_t z = *s += UINT64_C(0x9e3779b97f4a7c15);
	z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
	z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
	return z ^ z >> 31;
}
static double next_unit(uint64_t *s) { return (double)(next_u64(s) >> 11) * 0x1p-53; }

/* ---- functions of one float --------------------------------------------------------------------------------------------- */

/* |got - want| in units in the last place of the float nearest to want. Both infinite or both NaN is no error. */
static double ulps_f32(float got, double want)
{
	if (isnan(want) || isnan(got))
		return isnan(want) && isnan(got) ? 0 : INFINITY;
	if ((float)want == got)
		return fabs(want) <= 0x1.fffffep127 ? fabs((double)got - want) / ldexp(1, TT_MAX(ilogb(want ? want : 0x1p-149), -126) - 23) : 0;
	if (isinf(got) || isinf(want))
		return fabs(want) > 0x1.fffffcp127 || (isinf(got) && fabs(want) > 0x1.fffffep127) ? 1 : INFINITY;
	return fabs((double)got - want) / ldexp(1, TT_MAX(ilogb(want ? want : 0x1p-149), -126) - 23);
}
static double ulps_f64(double got, long double want)
{
	if (isnan(want) || isnan(got))
		return isnan(want) && isnan(got) ? 0 : INFINITY;
	if ((double)want == got && !isfinite(got))
		return 0;
	return (double)(fabsl((long double)got - want) / ldexpl(1, TT_MAX(ilogbl(want != 0 ? want : 0x1p-1074L), -1022) - 52));
}

static float sin_f32(float x) { double s, c; sincos_f64((double)x, &s, &c); return (float)s; }
static float cos_f32(float x) { double s, c; sincos_f64((double)x, &s, &c); return (float)c; }
static double sin_f64(double x) { double s, c; sincos_f64(x, &s, &c); return s; }
static double cos_f64(double x) { double s, c; sincos_f64(x, &s, &c); return c; }
static double sigmoid_f64(double x) { return 1 / (1 + exp(-x)); }
static float exp_with_short_ln2(float x) /* broken: ln 2 in one part */
{
	float n = rintf(x * 1.44269504f), r = x - n * 0.693147181f;
	return (float)exp((double)r) * ldexpf(1, (int)n);
}

typedef struct unary {
	const char *name;
	float (*got)(float);
	double (*want)(double);
	float low, high; /* tested inside */
	double bound;    /* ulp */
} unary;

static const unary functions[] = {
	{"exp", exp_f32, exp, -INFINITY, INFINITY, 1.01},
	{"log", log_f32, log, -INFINITY, INFINITY, 0.501},
	{"sin", sin_f32, sin, -0x1p20f, 0x1p20f, 0.501},
	{"cos", cos_f32, cos, -0x1p20f, 0x1p20f, 0.501},
	{"sigmoid", real_sigmoid, sigmoid_f64, -87, INFINITY, 2.5}, /* below -87, exp overflows and the result is 0 */
};

/* Greatest error over every `stride`-th float. */
static double worst(const unary *f, uint32_t stride, float *where)
{
	double most = 0;
	for (uint64_t b = 0; b <= UINT32_MAX; b += stride) {
		float x = f32_from_bits((uint32_t)b);
		if (x < f->low || x > f->high)
			continue;
		double u = ulps_f32(f->got(x), f->want((double)x));
		if (u > most) {
			most = u;
			*where = x;
		}
	}
	return most;
}

static void check_floats(tt_test *t, uint32_t stride)
{
	for (int i = 0; i < TT_COUNT(functions); i++) {
		float where = 0;
		double most = worst(&functions[i], stride, &where);
		TT_CHECK_MSG(t, most <= functions[i].bound, "%s: %.3f ulp at %a, bound %.3f", functions[i].name, most, (double)where,
			functions[i].bound);
	}
}
static void every_float(tt_test *t) { check_floats(t, 1); }
static void float_functions(tt_test *t)
{
	check_floats(t, t->tier == TT_TIER_QUICK ? 2003 : 211);
	const unary broken = {"broken", exp_with_short_ln2, exp, -80, 80, 1.0};
	float where = 0;
	TT_CHECK(t, worst(&broken, 2003, &where) > broken.bound);
}

static void special_values(tt_test *t)
{
	const float inf = INFINITY, none = NAN;
	TT_CHECK(t, exp_f32(inf) == inf && exp_f32(-inf) == 0 && isnan(exp_f32(none)) && exp_f32(0) == 1 && exp_f32(-0.0f) == 1);
	TT_CHECK(t, exp_f64(INFINITY) == INFINITY && exp_f64(-INFINITY) == 0 && isnan(exp_f64(NAN)) && exp_f64(0) == 1);
	TT_CHECK(t, log_f64(0) == -INFINITY && log_f64(-0.0) == -INFINITY && isnan(log_f64(-1)) && log_f64(INFINITY) == INFINITY);
	TT_CHECK(t, isnan(log_f64(NAN)) && isnan(log_f64(-INFINITY)) && log_f64(1) == 0);
	TT_CHECK(t, ulps_f64(log_f64(0x1p-1074), logl(0x1p-1074L)) < 2.5);
	TT_CHECK(t, isnan(sin_f64(INFINITY)) && isnan(cos_f64(NAN)) && isnan(sin_f64(0x1p30)) && sin_f64(0) == 0 && cos_f64(0) == 1);
	TT_CHECK(t, real_sigmoid(inf) == 1 && real_sigmoid(-inf) == 0 && real_sigmoid(0) == 0.5f && isnan(real_sigmoid(none)));
	TT_CHECK(t, real_rsqrt(4) == 0.5f && real_rsqrt(0) == inf);
}

static void check_doubles(tt_test *t, int n)
{
	uint64_t s = t->seed;
	double most[4] = {0};
	for (int i = 0; i < n; i++) {
		double x = (next_unit(&s) - 0.5) * 1410;
		most[0] = fmax(most[0], ulps_f64(exp_f64(x), expl((long double)x)));
		x = exp2((next_unit(&s) - 0.5) * (i & 1 ? 2040 : 2));
		most[1] = fmax(most[1], ulps_f64(log_f64(x), logl((long double)x)));
		x = (next_unit(&s) - 0.5) * exp2(next_unit(&s) * 21);
		most[2] = fmax(most[2], ulps_f64(sin_f64(x), sinl((long double)x)));
		most[3] = fmax(most[3], ulps_f64(cos_f64(x), cosl((long double)x)));
	}
	/* Near a zero of sine or cosine the error is absolute, 2^-53 of pi/4: millions of samples find 2.3 ulp, more find more. */
	const double bound[4] = {1.2, 2.2, 4, 4};
	for (int i = 0; i < 4; i++)
		TT_CHECK_MSG(t, most[i] <= bound[i], "function %d: %.3f ulp", i, most[i]);
}
static void double_functions(tt_test *t) { check_doubles(t, 200000); }
static void many_doubles(tt_test *t) { check_doubles(t, 20000000); }

/* The emulated fma against the real one, also where a*b + c is next to halfway between two floats, or subnormal. */
static float fma_twice_rounded(float a, float b, float c) { return (float)((double)a * (double)b + (double)c); }
static int64_t fma_differences(float (*f)(float, float, float), uint64_t seed, int n)
{
	int64_t bad = 0;
	for (int i = 0; i < n; i++) {
		uint64_t r = next_u64(&seed), q = next_u64(&seed);
		float a = f32_from_bits((uint32_t)r), b = f32_from_bits((uint32_t)(r >> 32)), c = f32_from_bits((uint32_t)q);
		if (i & 1) { /* near values: few bits in a and b, so that a*b is often halfway and c decides */
			a = f32_from_bits(0x3f800000u | ((uint32_t)r & 0x7ffe00u));
			b = f32_from_bits(0x3f800000u | ((uint32_t)(r >> 32) & 0x7fff00u));
			c = ldexpf(f32_from_bits(0x3f800000u | ((uint32_t)q & 0x7fffffu)), (int)(q >> 32 & 127) - 96);
			if (q >> 63)
				c = -c;
		}
		float got = f(a, b, c), want = fmaf(a, b, c);
		bad += isnan(want) ? !isnan(got) : f32_bits(got) != f32_bits(want);
	}
	return bad;
}
static void emulated_fma(tt_test *t)
{
	const int n = 4000000;
	TT_CHECK_INT(t, fma_differences(fma_f32, t->seed, n), 0);
	TT_CHECK(t, fma_differences(fma_twice_rounded, t->seed, n) > 0);
	TT_CHECK(t, fma_f32(INFINITY, 1, 1) == INFINITY && isnan(fma_f32(INFINITY, 0, 1)) && isnan(fma_f32(INFINITY, 1, -INFINITY)));
	TT_CHECK(t, fma_f32(0x1p-149f, 0.5f, 0) == 0 && fma_f32(0x1p100f, 0x1p100f, 0) == INFINITY);
	TT_CHECK(t, signbit(fma_f32(-0.0f, 1, -0.0f)) && !signbit(fma_f32(1, 1, -1)));
}

static void many_fmas(tt_test *t) { TT_CHECK_INT(t, fma_differences(fma_f32, t->seed + 1, 400000000), 0); }

/* ---- random numbers -------------------------------------------------------------------------------------------------------- */

static bool philox_is(philox ctr, uint32_t k0, uint32_t k1, uint32_t a, uint32_t b, uint32_t c, uint32_t d)
{
	philox r = philox4x32(ctr, k0, k1);
	return r.v[0] == a && r.v[1] == b && r.v[2] == c && r.v[3] == d;
}
/* The known answers published with the authors' code (Random123, kat_vectors). */
static void philox_vectors(tt_test *t)
{
	TT_CHECK(t, philox_is((philox){{0}}, 0, 0, 0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8));
	TT_CHECK(t, philox_is((philox){{0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}}, 0xffffffff, 0xffffffff, 0x408f276d,
				0x41c83b0e, 0xa20bc7c6, 0x6d5451fd));
	TT_CHECK(t, philox_is((philox){{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}}, 0xa4093822, 0x299f31d0, 0xd16cfe09,
				0x94fdcceb, 0x5001e420, 0x24126ea1));
	TT_CHECK(t, !philox_is((philox){{1}}, 0, 0, 0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8));
}

typedef struct moments { double mean, variance, fourth, least, most; } moments;
static moments moments_of(const random_stream *s, double cut, int n)
{
	moments m = {.least = INFINITY, .most = -INFINITY};
	double half = cut > 0 ? normal_half_mass(cut) : 0;
	for (int i = 0; i < n; i++) {
		double x = cut > 0 ? random_truncated(s, (uint64_t)i, half) : random_normal(s, (uint64_t)i);
		m.mean += x / n;
		m.variance += x * x / n;
		m.fourth += x * x * x * x / n;
		m.least = fmin(m.least, x);
		m.most = fmax(m.most, x);
	}
	return m;
}
static void normal_moments(tt_test *t)
{
	const int n = 400000;
	const double se = 1 / sqrt(n); /* standard error of the mean; sqrt 2 of the variance; sqrt 96 of the fourth moment */
	random_stream s = random_stream_of(t->seed, 0, "w", "init");
	moments m = moments_of(&s, 0, n);
	TT_CHECK_MSG(t, fabs(m.mean) < 5 * se, "mean %g", m.mean);
	TT_CHECK_MSG(t, fabs(m.variance - 1) < 5 * sqrt(2) * se, "variance %g", m.variance);
	TT_CHECK_MSG(t, fabs(m.fourth - 3) < 5 * sqrt(96) * se, "fourth moment %g", m.fourth);
	TT_CHECK_MSG(t, m.most > 4 && m.least < -4, "extremes %g %g", m.least, m.most);
	const double cuts[] = {0.5, 2, 3, 100};
	for (int i = 0; i < TT_COUNT(cuts); i++) {
		double c = cuts[i], mass = erf(c / sqrt(2)), want = 1 - 2 * c * exp(-c * c / 2) / sqrt(2 * M_PI) / mass;
		m = moments_of(&s, c, n);
		TT_CHECK_MSG(t, fabs(m.mean) < 5 * se, "cut %g: mean %g", c, m.mean);
		TT_CHECK_MSG(t, fabs(m.variance - want) < 5 * sqrt(2) * se, "cut %g: variance %g, want %g", c, m.variance, want);
		TT_CHECK_MSG(t, m.most <= c && m.least >= -c && m.most > fmin(c, 4) * 0.9, "cut %g: extremes %g %g", c, m.least, m.most);
		TT_CHECK_MSG(t, fabs(normal_half_mass(c) - mass / 2) < 1e-15, "cut %g: mass", c);
	}
	/* Quantiles, from the middle to the far tail. */
	for (double tail = 0.4999; tail > 1e-15; tail *= 0.7) {
		double q = 0.5 - tail, exactly = 0.5 - q, x = normal_quantile(-q), p = 0.5 * erfc(-x / sqrt(2));
		TT_CHECK_MSG(t, fabs(p / exactly - 1) < 5e-14, "quantile of %g: off by %g", tail, p / exactly - 1);
		TT_CHECK(t, normal_quantile(q) == -x);
	}
	/* Streams and indexes differ. */
	random_stream other = random_stream_of(t->seed, 0, "v", "init"), later = random_stream_of(t->seed, 1, "w", "init");
	random_stream purpose = random_stream_of(t->seed, 0, "w", "noise");
	TT_CHECK(t, random_uniform(&s, 7) == random_uniform(&s, 7) && random_uniform(&s, 7) != random_uniform(&s, 8));
	TT_CHECK(t, random_uniform(&s, 7) != random_uniform(&other, 7) && random_uniform(&s, 7) != random_uniform(&later, 7));
	TT_CHECK(t, random_uniform(&s, 7) != random_uniform(&purpose, 7) && random_uniform(&s, 7) != random_uniform(&s, UINT64_C(7) << 32));
}

/* ---- exact sums: the model ------------------------------------------------------------------------------------------------- */

/* An integer of 192 bits, two's complement, in units of 2^-106. */
typedef struct wide { uint64_t w[3]; } wide;
static wide wide_add(wide a, wide b)
{
	wide r;
	unsigned __int128 c = 0;
	for (int i = 0; i < 3; i++) {
		c += (unsigned __int128)a.w[i] + b.w[i];
		r.w[i] = (uint64_t)c;
		c >>= 64;
	}
	return r;
}
static wide wide_neg(wide a)
{
	for (int i = 0; i < 3; i++)
		a.w[i] = ~a.w[i];
	return wide_add(a, (wide){{1, 0, 0}});
}
static wide wide_shifted(int64_t v, int shift)
{
	bool negative = v < 0;
	uint64_t m = negative ? 0 - (uint64_t)v : (uint64_t)v;
	wide r = {{0}};
	int word = shift / 64, bit = shift % 64;
	r.w[word] = m << bit;
	if (bit && word < 2)
		r.w[word + 1] = m >> (64 - bit);
	return negative ? wide_neg(r) : r;
}
static wide wide_of_double(double x)
{
	if (fabs(x) < 0x1p-53) /* whole or rounded, to nearest even, in units of 2^-106: at most 53 bits */
		return wide_shifted((int64_t)rint(x * 0x1p106), 0);
	int e;
	double m = frexp(x, &e);
	return wide_shifted((int64_t)(m * 0x1p53), e - 53 + 106);
}
static wide wide_of_limbs(const exact_sum *s)
{
	return wide_add(wide_add(wide_shifted((int64_t)s->k[0], 80), wide_shifted((int64_t)s->k[1], 40)),
		wide_shifted((int64_t)s->k[2], 0));
}
static float wide_round(wide v)
{
	bool negative = v.w[2] >> 63;
	if (negative)
		v = wide_neg(v);
	int top = 191;
	while (top >= 0 && !(v.w[top / 64] >> (top % 64) & 1))
		top--;
	if (top < 0)
		return 0;
	uint64_t mantissa = 0;
	bool half = false, rest = false;
	for (int b = top; b >= 0; b--) {
		bool bit = v.w[b / 64] >> (b % 64) & 1;
		if (b > top - 24)
			mantissa = mantissa << 1 | bit;
		else if (b == top - 24)
			half = bit;
		else
			rest |= bit;
	}
	int exponent = TT_MAX(top - 23, 0);
	mantissa += half && (rest || (mantissa & 1));
	double r = ldexp((double)mantissa, exponent - 106);
	return (float)(negative ? -r : r);
}
static bool canonical(const exact_sum *s)
{
	const int64_t half = INT64_C(1) << 39;
	int64_t k1 = (int64_t)s->k[1], k2 = (int64_t)s->k[2];
	return k1 >= -half && k1 < half && k2 >= -half && k2 < half;
}

/* ---- exact sums: against the model ----------------------------------------------------------------------------------------- */

enum { TERMS = 512 };

/* Terms of all sizes whose sum nearly cancels: pairs x, -x shuffled apart, with a few small ones without a mate. */
static void make_terms(uint64_t *s, double *x)
{
	for (int i = 0; i < TERMS; i++) {
		float a = (float)ldexp(next_unit(s) - 0.5, (int)(next_u64(s) % 40) - 24);
		float b = (float)ldexp(next_unit(s) - 0.5, (int)(next_u64(s) % 48) - 40);
		x[i] = (double)a * (double)b;
		if (i % 16 == 15)
			x[i] *= 0x1p-40;
		else if (i & 1)
			x[i] = -x[i - 1];
	}
	for (int i = TERMS - 1; i > 0; i--) {
		int j = (int)(next_u64(s) % (uint64_t)(i + 1));
		double y = x[i];
		x[i] = x[j];
		x[j] = y;
	}
}

/* Sums in `parts` parts, each raw, joined. */
static exact_sum sum_in_parts(const double *x, int parts)
{
	exact_sum total = {{0}};
	for (int p = 0; p < parts; p++) {
		exact_sum part = {{0}};
		int64_t from = tt_deal(TERMS, p, parts), to = tt_deal(TERMS, p + 1, parts);
		for (int64_t i = from; i < to; i++)
			exact_add_raw(&part.k[0], &part.k[1], &part.k[2], x[i]);
		exact_finish(&part.k[0], &part.k[1], &part.k[2], to - from);
		exact_add_sum(&total, &part);
	}
	return total;
}

static void exact_order_free(tt_test *t)
{
	uint64_t s = t->seed;
	int doubles_differ = 0;
	for (int round = 0; round < 200; round++) {
		double x[TERMS], model_order = 0, other_order = 0;
		make_terms(&s, x);
		wide model = {{0}};
		exact_sum simple = {{0}}, net = {{0}};
		for (int i = 0; i < TERMS; i++) {
			model = wide_add(model, wide_of_double(x[i]));
			exact_add_term(&simple, x[i]);
			exact_add_net(&net.k[0], &net.k[1], &net.k[2], x[TERMS - 1 - i]);
			model_order += x[i];
			other_order += x[TERMS - 1 - i];
		}
		exact_finish(&net.k[0], &net.k[1], &net.k[2], 0);
		exact_lanes lanes16 = {{{0}}};
		EXACT_LANES_ADD(&lanes16, TERMS - 5, x[i]);
		EXACT_LANES_ADD(&lanes16, 5, x[TERMS - 5 + i]);
		exact_sum joined = exact_lanes_join(&lanes16, TERMS);
		wide limbs = wide_of_limbs(&simple);
		TT_CHECK(t, !memcmp(&limbs, &model, sizeof model));
		TT_CHECK(t, canonical(&simple));
		TT_CHECK(t, !memcmp(&net, &simple, sizeof net));
		TT_CHECK(t, !memcmp(&joined, &simple, sizeof joined));
		for (int parts = 1; parts <= 9; parts += 2) {
			exact_sum split = sum_in_parts(x, parts);
			TT_CHECK(t, !memcmp(&split, &simple, sizeof split));
		}
		TT_CHECK(t, exact_round(&simple) == wide_round(model));
		doubles_differ += model_order != other_order;
	}
	TT_CHECK(t, doubles_differ > 100); /* the terms are such that sums in doubles depend on the order */
}

/* Both roundings against the model, for values at, just above and just below halfway. */
static int64_t rounding_errors(uint64_t seed, int n, bool ignore_last_limb)
{
	int64_t bad = 0;
	for (int i = 0; i < n; i++) {
		/* A float's 24 bits at any place, one more for the half, and -1, 0 or 1 unit far below. */
		int64_t m = (int64_t)(next_u64(&seed) >> 39 | 1u << 24) * (i & 1 ? 1 : -1);
		int shift = (int)(next_u64(&seed) % 116);
		wide v = wide_add(wide_shifted(m, shift), wide_shifted((int64_t)(next_u64(&seed) % 3) - 1, shift ? (int)(next_u64(&seed) % (unsigned)shift) : 0));
		exact_sum s = {{v.w[1] >> 16 | v.w[2] << 48, (v.w[0] >> 40 | v.w[1] << 24) & ((UINT64_C(1) << 40) - 1),
			v.w[0] & ((UINT64_C(1) << 40) - 1)}};
		exact_carry(&s.k[0], &s.k[1], &s.k[2]);
		wide back = wide_of_limbs(&s);
		bad += memcmp(&back, &v, sizeof v) != 0;
		int64_t k0 = (int64_t)s.k[0];
		uint64_t k2 = ignore_last_limb ? 0 : s.k[2];
		float want = wide_round(v);
		bad += exact_round_wide(k0, (int64_t)s.k[1], (int64_t)k2) != want;
		if (k0 < INT64_C(1) << 50 && k0 > -(INT64_C(1) << 50))
			bad += exact_round_narrow(s.k[0], s.k[1], k2) != want;
		real line;
		exact_line_round(&line, exact_line_of(&s), 1);
		bad += line != want;
	}
	return bad;
}
static void exact_rounding(tt_test *t)
{
	const int n = 200000;
	TT_CHECK_INT(t, rounding_errors(t->seed, n, false), 0);
	TT_CHECK(t, rounding_errors(t->seed, n, true) > 0);
	exact_sum zero = {{0}};
	exact_add_term(&zero, -3.25);
	exact_add_term(&zero, 3.25);
	exact_add_term(&zero, -0.0);
	TT_CHECK(t, f32_bits(exact_round(&zero)) == 0 && f32_bits(exact_round_narrow(zero.k[0], zero.k[1], zero.k[2])) == 0);
}

static void many_roundings(tt_test *t) { TT_CHECK_INT(t, rounding_errors(t->seed + 1, 20000000, false), 0); }

static void exact_bounds(tt_test *t)
{
	TT_CHECK(t, exact_fits(0x1.fffffep24, 2047) && !exact_fits(0x1p25, 1) && !exact_fits(0x1p24, 4096) && exact_fits(0x1p24, 4095));
	TT_CHECK(t, !exact_fits(INFINITY, 1) && !exact_fits(NAN, 1) && !exact_fits(1e-9, (int64_t)1 << 24) && exact_fits(0, 0));
	const real x[5] = {1, -7, 3, 0, -0.0f}, bad[3] = {1, -INFINITY, 2}, none[3] = {INFINITY, -NAN, 0};
	TT_CHECK(t, exact_max_value(exact_max_bits(x, 5)) == 7 && exact_max_value(exact_max_bits(x, 0)) == 0);
	TT_CHECK(t, isinf(exact_max_value(exact_max_bits(bad, 3))) && isnan(exact_max_value(exact_max_bits(none, 3))));
	/* The greatest terms, as many as a carry allows, still fit: limb 0 near 2^62, limbs 1 and 2 near 2^63. */
	exact_sum s = {{0}}, one = {{0}};
	double x0 = 0x1.fffffep11 + 0x1p-28;
	for (int64_t i = 0; i < 1 << 20; i++)
		exact_add_raw(&s.k[0], &s.k[1], &s.k[2], x0);
	exact_finish(&s.k[0], &s.k[1], &s.k[2], 1 << 20);
	exact_add_term(&one, x0);
	for (int i = 0; i < 20; i++) {
		exact_sum same = one;
		exact_add_sum(&one, &same);
	}
	TT_CHECK(t, !memcmp(&s, &one, sizeof s));
	/* Sums of two are checked: the bound is 2^62 units of limb 0. */
	exact_sum big = {{UINT64_C(1) << 61}}, out;
	TT_CHECK(t, !exact_line_sum(exact_line_of(&out), exact_line_of(&big), exact_line_of(&big), 1));
	big.k[0]--;
	TT_CHECK(t, exact_line_sum(exact_line_of(&out), exact_line_of(&big), exact_line_of(&big), 1));
	big.k[0] = 0 - (UINT64_C(1) << 61);
	TT_CHECK(t, exact_line_sum(exact_line_of(&out), exact_line_of(&big), exact_line_of(&big), 1));
	big.k[0]--;
	TT_CHECK(t, !exact_line_sum(exact_line_of(&out), exact_line_of(&big), exact_line_of(&big), 1));
}

/* ---- lane sums ------------------------------------------------------------------------------------------------------------- */

static float lane_sum_naive(const float *x, int64_t n)
{
	float v[16] = {0};
	for (int64_t i = 0; i < n; i++)
		v[i % 16] += x[i];
	for (int l = 0; l < 8; l++)
		v[l] += v[l + 8];
	for (int l = 0; l < 4; l++)
		v[l] += v[l + 4];
	return (v[0] + v[2]) + (v[1] + v[3]);
}
static void lane_sums(tt_test *t)
{
	uint64_t s = t->seed;
	float x[700], one[700];
	int differs = 0;
	for (int i = 0; i < TT_COUNT(x); i++) {
		x[i] = (float)(next_unit(&s) - 0.5);
		one[i] = 1;
	}
	for (int64_t n = 0; n <= TT_COUNT(x); n++) {
		lanes whole = {{0}}, pieces = {{0}}, products = {{0}};
		lanes_add(&whole, x, n);
		for (int64_t at = 0; at < n; at += 48)
			lanes_add(&pieces, x + at, TT_MIN(48, n - at));
		lanes_add_products(&products, x, one, n);
		float want = lane_sum_naive(x, n), chain = 0;
		for (int64_t i = 0; i < n; i++)
			chain += x[i];
		TT_CHECK(t, lanes_join(&whole) == want && lanes_join(&pieces) == want && lanes_join(&products) == want);
		differs += chain != want;
	}
	TT_CHECK(t, differs > 300);
}

/* Many draws at once are the draws one by one, to the bit. */
static void fill_bits(tt_test *t)
{
	enum { LINES = 70, WIDTH = 1500 };
	float *y = TT_NEWN(t->arena, float, LINES * WIDTH);
	for (int cut = 0; cut <= 3; cut += 3)
		for (int isa = TT_ISA_REF; isa <= (int)tt_isa_detect() && isa <= TT_ISA_AVX512; isa++) {
			tt_attr_init a = {.mean = 0.25, .std = 0.02, .cut = cut, .name = "w"};
			tt_env env = {.threads = 1, .seed = t->seed};
			tt_arg out = {.p = y, .dtype = TT_F32, .ndim = 2, .n = {LINES, WIDTH}, .ld = WIDTH};
			tt_call c = {.in = &out, .out = &out, .nin = 1, .nout = 1, .attr = &a, .env = &env};
			tt_kernel_ref("fill_normal", (tt_isa)isa, false)->run(&c);
			random_stream s = random_stream_of(t->seed, 0, "w", "init");
			int64_t bad = 0;
			for (uint64_t i = 0; i < LINES * WIDTH; i++)
				bad += y[i] != (float)(a.mean + a.std * (cut ? random_truncated(&s, i, normal_half_mass(cut)) : random_normal(&s, i)));
			TT_CHECK_MSG(t, bad == 0, "cut %d (%s): %lld of %d differ", cut, tt_isa_name((tt_isa)isa), (long long)bad, LINES * WIDTH);
		}
}

const tt_case tt_suite_math[] = {
	{"float_functions", float_functions, TT_TIER_QUICK},
	{"special_values", special_values, TT_TIER_QUICK},
	{"double_functions", double_functions, TT_TIER_QUICK},
	{"emulated_fma", emulated_fma, TT_TIER_QUICK},
	{"philox_vectors", philox_vectors, TT_TIER_QUICK},
	{"normal_moments", normal_moments, TT_TIER_QUICK},
	{"fill_bits", fill_bits, TT_TIER_QUICK},
	{"exact_order_free", exact_order_free, TT_TIER_QUICK},
	{"exact_rounding", exact_rounding, TT_TIER_QUICK},
	{"exact_bounds", exact_bounds, TT_TIER_QUICK},
	{"lane_sums", lane_sums, TT_TIER_QUICK},
	{"every_float", every_float, TT_TIER_PROOF},
	{"many_doubles", many_doubles, TT_TIER_PROOF},
	{"many_fmas", many_fmas, TT_TIER_PROOF},
	{"many_roundings", many_roundings, TT_TIER_PROOF},
	{0},
};
