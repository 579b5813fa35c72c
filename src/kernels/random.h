/* Random numbers that depend on nothing but their place: Philox4x32-10 (Salmon, Moraes, Dror and Shaw, "Parallel random
 * numbers: as easy as 1, 2, 3", SC 2011). key = seed; counter = (global index, 64 bits; step; hash of name and purpose).
 * One index is one draw, so a tensor can be made in any order, in any pieces, on any mesh. All in double, then rounded:
 * fp32 and fp64 tensors start from the same values. */
#ifndef TT_KERNELS_RANDOM_H
#define TT_KERNELS_RANDOM_H

#include "kernels/math.h"

typedef struct philox { uint32_t v[4]; } philox;

static inline philox philox4x32(philox ctr, uint32_t key0, uint32_t key1)
{
	for (int round = 0; round < 10; round++) {
		uint64_t a = UINT64_C(0xd2511f53) * ctr.v[0], b = UINT64_C(0xcd9e8d57) * ctr.v[2];
		ctr = (philox){{(uint32_t)(b >> 32) ^ ctr.v[1] ^ key0, (uint32_t)b, (uint32_t)(a >> 32) ^ ctr.v[3] ^ key1,
			(uint32_t)a}};
		key0 += 0x9e3779b9u;
		key1 += 0xbb67ae85u;
	}
	return ctr;
}

/* Which stream of draws: what is drawn, for what ("init"), in which step. */
typedef struct random_stream {
	uint64_t seed;
	uint32_t step, stream;
} random_stream;
static inline random_stream random_stream_of(uint64_t seed, int64_t step, const char *name, const char *purpose)
{
	/* Of the two hashes rather than of one text: names have any length, and nothing is formatted here. */
	return (random_stream){seed, (uint32_t)step, tt_hash32(name) * 0x9e3779b1u + tt_hash32(purpose)};
}
static inline philox random_draw(const random_stream *s, uint64_t index)
{
	philox ctr = {{(uint32_t)index, (uint32_t)(index >> 32), s->step, s->stream}};
	return philox4x32(ctr, (uint32_t)s->seed, (uint32_t)(s->seed >> 32));
}

/* 52 bits of two words as the middle of one of 2^52 cells of (0, 1): never 0 or 1, symmetric around 1/2. */
static inline double random_unit(uint32_t lo, uint32_t hi)
{
	uint64_t cell = ((uint64_t)hi << 32 | lo) >> 12;
	return (f64_from_bits(cell | UINT64_C(0x3ff0000000000000)) - 1.0) + 0x1p-53;
}
static inline double random_uniform(const random_stream *s, uint64_t index)
{
	philox d = random_draw(s, index);
	return random_unit(d.v[0], d.v[1]);
}

/* Box and Muller, 1958; only the cosine is used, so that one index is one draw. */
static inline double random_normal(const random_stream *s, uint64_t index)
{
	philox d = random_draw(s, index);
	double sine, cosine, r = __builtin_sqrt(-2.0 * log_f64(random_unit(d.v[0], d.v[1])));
	sincos_f64(6.283185307179586476925 * random_unit(d.v[2], d.v[3]), &sine, &cosine);
	return r * cosine;
}

/* The normal distribution's quantile of 1/2 + q, |q| < 1/2: algorithm AS 241, PPND16 (Wichura, "The percentage points of the
 * normal distribution", Applied Statistics 37, 1988): three rational functions, relative error about 1e-16. */
static inline double quantile_center(double q)
{
	double r = 0.180625 - q * q;
	double num = ((((((2.5090809287301226727e3 * r + 3.3430575583588128105e4) * r + 6.7265770927008700853e4) * r +
		4.5921953931549871457e4) * r + 1.3731693765509461125e4) * r + 1.9715909503065514427e3) * r +
		1.3314166789178437745e2) * r + 3.3871328727963666080e0;
	double den = ((((((5.2264952788528545610e3 * r + 2.8729085735721942674e4) * r + 3.9307895800092710610e4) * r +
		2.1213794301586595867e4) * r + 5.3941960214247511077e3) * r + 6.8718700749205790830e2) * r +
		4.2313330701600911252e1) * r + 1.0;
	return q * num / den;
}
/* r = sqrt(-log(1/2 - |q|)), which is at most 5 but for one draw in 10^11. */
static inline double quantile_tail(double r)
{
	r -= 1.6;
	double num = ((((((7.74545014278341407640e-4 * r + 2.27238449892691845833e-2) * r + 2.41780725177450611770e-1) *
		r + 1.27045825245236838258e0) * r + 3.64784832476320460504e0) * r + 5.76949722146069140550e0) * r +
		4.63033784615654529590e0) * r + 1.42343711074968357734e0;
	double den = ((((((1.05075007164441684324e-9 * r + 5.47593808499534494600e-4) * r + 1.51986665636164571966e-2) *
		r + 1.48103976427480074590e-1) * r + 6.89767334985100004550e-1) * r + 1.67638483018380384940e0) * r +
		2.05319162663775882187e0) * r + 1.0;
	return num / den;
}
static inline double quantile_far(double r)
{
	r -= 5.0;
	double num = ((((((2.01033439929228813265e-7 * r + 2.71155556874348757815e-5) * r + 1.24266094738807843860e-3) *
		r + 2.65321895265761230930e-2) * r + 2.96560571828504891230e-1) * r + 1.78482653991729133580e0) * r +
		5.46378491116411436990e0) * r + 6.65790464350110377720e0;
	double den = ((((((2.04426310338993978564e-15 * r + 1.42151175831644588870e-7) * r + 1.84631831751005468180e-5) *
		r + 7.86869131145613259100e-4) * r + 1.48753612908506148525e-2) * r + 1.36929880922735805310e-1) * r +
		5.99832206555887937690e-1) * r + 1.0;
	return num / den;
}
static inline double normal_quantile(double q)
{
	if (__builtin_fabs(q) <= 0.425)
		return quantile_center(q);
	double r = __builtin_sqrt(-log_f64(0.5 - __builtin_fabs(q))), x = r <= 5.0 ? quantile_tail(r) : quantile_far(r);
	return q < 0 ? -x : x;
}

/* Half the mass of the standard normal distribution within `cut` of 0: erf(cut/sqrt 2)/2, by the series
 * phi(c) (c + c^3/3 + c^5/(3*5) + ...), whose terms are all positive. 1/2 from 9 on, where the rest is below 2^-60. */
static inline double normal_half_mass(double cut)
{
	if (!(cut < 9.0))
		return 0.5;
	double term = cut, sum = cut;
	for (int k = 3; k < 400 && term > sum * 0x1p-60; k += 2) {
		term *= cut * cut / k;
		sum += term;
	}
	return sum * exp_f64(-0.5 * cut * cut) * 0.398942280401432677940;
}

/* A standard normal cut to [-c, c] by the inverse of the cut distribution; half_mass = normal_half_mass(c). */
static inline double random_truncated(const random_stream *s, uint64_t index, double half_mass)
{
	return normal_quantile((2.0 * random_uniform(s, index) - 1.0) * half_mass);
}

#endif
