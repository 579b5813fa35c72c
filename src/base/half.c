/* IEEE 754 binary16 in plain integers: it also runs where there is no F16C, and every path gives the same bits. */
#include "base/base.h"

float tt_f16_to_f32(uint16_t h)
{
	uint32_t sign = (uint32_t)(h & 0x8000u) << 16, e = (h >> 10) & 31u, m = h & 0x3ffu, u;
	if (e == 31) {
		/* NaN keeps its payload and becomes quiet, as in hardware. */
		u = sign | 0x7f800000u | m << 13 | (m ? 0x400000u : 0u);
	} else if (e) {
		u = sign | (e + 112u) << 23 | m << 13;
	} else if (m) {
		/* Subnormal m * 2^-24: shift the highest one to the hidden bit's place. */
		uint32_t shift = (uint32_t)__builtin_clz(m) - 21u;
		u = sign | (113u - shift) << 23 | (m << shift & 0x3ffu) << 13;
	} else {
		u = sign;
	}
	float f;
	memcpy(&f, &u, 4);
	return f;
}

uint16_t tt_f32_to_f16(float f)
{
	uint32_t u;
	memcpy(&u, &f, 4);
	uint32_t sign = u >> 16 & 0x8000u, a = u & 0x7fffffffu;
	if (a > 0x7f800000u)
		return (uint16_t)(sign | 0x7e00u | (a >> 13 & 0x3ffu));
	if (a >= 0x47800000u) /* 65536 and above, infinity */
		return (uint16_t)(sign | 0x7c00u);
	if (a >= 0x38800000u) { /* normal: rebias, round to nearest even; a carry goes into the exponent as it should */
		uint32_t v = a - (112u << 23);
		return (uint16_t)(sign | (v + 0xfffu + (v >> 13 & 1u)) >> 13);
	}
	/* Subnormal: the integer nearest to |f| * 2^24, ties to even. Below 2^-25 (and at it, a tie) that is 0. */
	if (a <= 0x33000000u)
		return (uint16_t)sign;
	uint32_t m = (a & 0x7fffffu) | 0x800000u, shift = 126u - (a >> 23); /* 14..24 */
	uint32_t q = m >> shift, rest = m & ((1u << shift) - 1), half = 1u << (shift - 1);
	q += rest > half || (rest == half && (q & 1u));
	return (uint16_t)(sign | q);
}
