/* Vectors of 16 floats for attention_fast_SET.c: one zmm, or two ymm. AF_AVX512 says which.
 * Everything here is per element the operation of the reference, and inlined into the target of the including file. */
#ifndef TT_KERNELS_ATTENTION_FAST_VEC_H
#define TT_KERNELS_ATTENTION_FAST_VEC_H

#include "kernels/attention_fast.h"

#ifdef AF_AVX512 /* set by the including file, which has the target and the intrinsics */

#define AF_INLINE static inline __attribute__((always_inline, unused))

/* Columns of a micro tile, in vectors: with AF_MICRO rows all accumulators stay in registers. */
#if AF_AVX512
enum { AF_WIDE = 4 };
#else
enum { AF_WIDE = 1 };
#endif

#if AF_AVX512

typedef __m512 vec;
typedef __mmask16 vmask;

AF_INLINE vec v_set(float x) { return _mm512_set1_ps(x); }
AF_INLINE vec v_load(const float *p) { return _mm512_loadu_ps(p); }
AF_INLINE void v_store(float *p, vec x) { _mm512_storeu_ps(p, x); }
AF_INLINE vec v_add(vec a, vec b) { return _mm512_add_ps(a, b); }
AF_INLINE vec v_sub(vec a, vec b) { return _mm512_sub_ps(a, b); }
AF_INLINE vec v_mul(vec a, vec b) { return _mm512_mul_ps(a, b); }
AF_INLINE vec v_div(vec a, vec b) { return _mm512_div_ps(a, b); }
AF_INLINE vec v_fma(vec a, vec b, vec c) { return _mm512_fmadd_ps(a, b, c); }
/* a > b ? a : b and a < b ? a : b, so b where one is NaN. */
AF_INLINE vec v_max(vec a, vec b) { return _mm512_max_ps(a, b); }
AF_INLINE vec v_min(vec a, vec b) { return _mm512_min_ps(a, b); }
AF_INLINE vmask v_mask(uint64_t bits) { return (vmask)bits; }
AF_INLINE vec v_keep(vmask m, vec x) { return _mm512_maskz_mov_ps(m, x); } /* +0 elsewhere */
AF_INLINE vec v_pick(vmask m, vec x, vec other) { return _mm512_mask_mov_ps(other, m, x); }
AF_INLINE vec v_pick_equal(vec a, vec b, vec x, vec other)
{
	return _mm512_mask_mov_ps(other, _mm512_cmp_ps_mask(a, b, _CMP_EQ_OQ), x);
}

/* 16 bf16 as floats. */
AF_INLINE vec v_load_bf16(const void *p)
{
	return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_loadu_si256(p)), 16));
}

/* To bf16, to nearest even, NaN stays; as a float, and stored. */
AF_INLINE vec v_round(vec x)
{
	const __m512i u = _mm512_castps_si512(x), odd = _mm512_and_si512(_mm512_srli_epi32(u, 16), _mm512_set1_epi32(1));
	const __m512i r = _mm512_add_epi32(_mm512_add_epi32(u, _mm512_set1_epi32(0x7fff)), odd);
	const __m512i n = _mm512_or_si512(u, _mm512_set1_epi32(0x400000));
	const __m512i y = _mm512_mask_mov_epi32(r, _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q), n);
	return _mm512_castsi512_ps(_mm512_and_si512(y, _mm512_set1_epi32((int)0xffff0000)));
}
AF_INLINE void v_store_bf16(void *p, vec x)
{
	_mm256_storeu_si256(p, _mm512_cvtepi32_epi16(_mm512_srli_epi32(_mm512_castps_si512(v_round(x)), 16)));
}

/* exp_f32 of math.h, operation by operation: y 2^k is rounded once in either form. */
AF_INLINE vec v_exp(vec x, bool may_be_large)
{
	const vec magic = v_set(0x1.8p23f);
	x = v_max(v_set(-104.0f), x);
	if (may_be_large)
		x = v_min(v_set(89.0f), x);
	const vec n = v_sub(v_fma(x, v_set(0x1.715476p+0f), magic), magic);
	vec r = v_fma(n, v_set(-0x1.62e430p-1f), x);
	r = v_fma(n, v_set(0x1.05c610p-29f), r);
	vec p = v_set(0.0013814599553094666f);
	p = v_fma(p, r, v_set(0.0083687168752623599f));
	p = v_fma(p, r, v_set(0.041668388031037609f));
	p = v_fma(p, r, v_set(0.16666520631773323f));
	p = v_fma(p, r, v_set(0.4999999344783835f));
	return _mm512_scalef_ps(v_add(v_set(1.0f), v_fma(v_mul(r, r), p, r)), n);
}

/* The tree 8, 4, 2, 1 of 16 lines of lanes at once: each step takes two vectors and leaves one, with the joined lanes of both, so that
 * 15 steps make the vector of results. What is where: after JOIN8 line a in lanes [0,8) and b in [8,16); after JOIN4 four lines of
 * 4 lanes; JOIN2 leaves in each 128 bits 2 lanes of a before 2 of b, JOIN1 one lane of each. Lane 4x + y of the result is then the x-th
 * line of the four that came with operand y, which is line 4x + y if operand y brings lines y, 4 + y, 8 + y, 12 + y. */
#define AF_JOIN8(op, a, b) op(_mm512_shuffle_f32x4(a, b, 0x44), _mm512_shuffle_f32x4(a, b, 0xee))
#define AF_JOIN4(op, a, b) op(_mm512_shuffle_f32x4(a, b, 0x88), _mm512_shuffle_f32x4(a, b, 0xdd))
#define AF_JOIN2(op, a, b) op(_mm512_shuffle_ps(a, b, 0x44), _mm512_shuffle_ps(a, b, 0xee))
#define AF_JOIN1(op, a, b) op(_mm512_shuffle_ps(a, b, 0x88), _mm512_shuffle_ps(a, b, 0xdd))
#define AF_JOIN_ROWS(op, p)                                                                                            \
	do {                                                                                                           \
		vec four[4];                                                                                           \
		for (int y = 0; y < 4; y++) {                                                                          \
			const vec a = AF_JOIN8(op, v_load((p) + 16 * y), v_load((p) + 16 * (4 + y)));                  \
			const vec b = AF_JOIN8(op, v_load((p) + 16 * (8 + y)), v_load((p) + 16 * (12 + y)));           \
			four[y] = AF_JOIN4(op, a, b);                                                                  \
		}                                                                                                      \
		const vec c = AF_JOIN2(op, four[0], four[1]), d = AF_JOIN2(op, four[2], four[3]);                      \
		return AF_JOIN1(op, c, d);                                                                             \
	} while (0)
AF_INLINE vec v_sum_rows(const float *p) { AF_JOIN_ROWS(v_add, p); } /* p[16][16]: the lane sum of each line */
AF_INLINE vec v_max_rows(const float *p) { AF_JOIN_ROWS(v_max, p); } /* no NaN among them */

/* t[16][ld] = the transpose of 16 vectors. */
AF_INLINE void v_transpose(const vec in[16], float *t, int64_t ld, int lines)
{
	vec a[16], b[16];
	for (int i = 0; i < 16; i += 2) {
		a[i] = _mm512_unpacklo_ps(in[i], in[i + 1]);
		a[i + 1] = _mm512_unpackhi_ps(in[i], in[i + 1]);
	}
	for (int i = 0; i < 16; i += 4)
		for (int h = 0; h < 2; h++) {
			b[i + 2 * h] = _mm512_shuffle_ps(a[i + h], a[i + 2 + h], 0x44);
			b[i + 2 * h + 1] = _mm512_shuffle_ps(a[i + h], a[i + 2 + h], 0xee);
		}
	/* b[4g + y]: in its 128-bit part x column 4x + y of rows 4g..4g+3 */
	for (int y = 0; y < 4; y++) {
		const vec l0 = _mm512_shuffle_f32x4(b[y], b[4 + y], 0x88), h0 = _mm512_shuffle_f32x4(b[y], b[4 + y], 0xdd);
		const vec l1 = _mm512_shuffle_f32x4(b[8 + y], b[12 + y], 0x88), h1 = _mm512_shuffle_f32x4(b[8 + y], b[12 + y], 0xdd);
		v_store(t + y * ld, _mm512_shuffle_f32x4(l0, l1, 0x88));
		v_store(t + (4 + y) * ld, _mm512_shuffle_f32x4(h0, h1, 0x88));
		if (lines == 16) {
			v_store(t + (8 + y) * ld, _mm512_shuffle_f32x4(l0, l1, 0xdd));
			v_store(t + (12 + y) * ld, _mm512_shuffle_f32x4(h0, h1, 0xdd));
		}
	}
}

#else

typedef struct vec { __m256 a, b; } vec;
typedef vec vmask; /* all bits of an element, or none */

AF_INLINE vec v_set(float x) { return (vec){_mm256_set1_ps(x), _mm256_set1_ps(x)}; }
AF_INLINE vec v_load(const float *p) { return (vec){_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)}; }
AF_INLINE void v_store(float *p, vec x)
{
	_mm256_storeu_ps(p, x.a);
	_mm256_storeu_ps(p + 8, x.b);
}
AF_INLINE vec v_add(vec a, vec b) { return (vec){_mm256_add_ps(a.a, b.a), _mm256_add_ps(a.b, b.b)}; }
AF_INLINE vec v_sub(vec a, vec b) { return (vec){_mm256_sub_ps(a.a, b.a), _mm256_sub_ps(a.b, b.b)}; }
AF_INLINE vec v_mul(vec a, vec b) { return (vec){_mm256_mul_ps(a.a, b.a), _mm256_mul_ps(a.b, b.b)}; }
AF_INLINE vec v_div(vec a, vec b) { return (vec){_mm256_div_ps(a.a, b.a), _mm256_div_ps(a.b, b.b)}; }
AF_INLINE vec v_fma(vec a, vec b, vec c) { return (vec){_mm256_fmadd_ps(a.a, b.a, c.a), _mm256_fmadd_ps(a.b, b.b, c.b)}; }
/* a > b ? a : b and a < b ? a : b, so b where one is NaN. */
AF_INLINE vec v_max(vec a, vec b) { return (vec){_mm256_max_ps(a.a, b.a), _mm256_max_ps(a.b, b.b)}; }
AF_INLINE vec v_min(vec a, vec b) { return (vec){_mm256_min_ps(a.a, b.a), _mm256_min_ps(a.b, b.b)}; }
AF_INLINE vmask v_mask(uint64_t bits)
{
	const __m256i all = _mm256_set1_epi32((int)(bits & 0xffff)), lane = _mm256_setr_epi32(1, 2, 4, 8, 16, 32, 64, 128);
	const __m256i high = _mm256_slli_epi32(lane, 8);
	return (vec){_mm256_castsi256_ps(_mm256_cmpeq_epi32(_mm256_and_si256(all, lane), lane)),
		     _mm256_castsi256_ps(_mm256_cmpeq_epi32(_mm256_and_si256(all, high), high))};
}
AF_INLINE vec v_keep(vmask m, vec x) { return (vec){_mm256_and_ps(m.a, x.a), _mm256_and_ps(m.b, x.b)}; } /* +0 elsewhere */
AF_INLINE vec v_pick(vmask m, vec x, vec other)
{
	return (vec){_mm256_blendv_ps(other.a, x.a, m.a), _mm256_blendv_ps(other.b, x.b, m.b)};
}
AF_INLINE vec v_pick_equal(vec a, vec b, vec x, vec other)
{
	return v_pick((vec){_mm256_cmp_ps(a.a, b.a, _CMP_EQ_OQ), _mm256_cmp_ps(a.b, b.b, _CMP_EQ_OQ)}, x, other);
}

/* 16 bf16 as floats. */
AF_INLINE vec v_load_bf16(const void *p)
{
	const __m128i *h = p;
	return (vec){_mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm_loadu_si128(h)), 16)),
		     _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm_loadu_si128(h + 1)), 16))};
}

/* To bf16, to nearest even, NaN stays; as a float, and stored. */
AF_INLINE __m256 half_round(__m256 x)
{
	const __m256i u = _mm256_castps_si256(x), odd = _mm256_and_si256(_mm256_srli_epi32(u, 16), _mm256_set1_epi32(1));
	const __m256i r = _mm256_add_epi32(_mm256_add_epi32(u, _mm256_set1_epi32(0x7fff)), odd);
	const __m256i n = _mm256_or_si256(u, _mm256_set1_epi32(0x400000));
	const __m256i nan = _mm256_castps_si256(_mm256_cmp_ps(x, x, _CMP_UNORD_Q));
	return _mm256_castsi256_ps(_mm256_and_si256(_mm256_blendv_epi8(r, n, nan), _mm256_set1_epi32((int)0xffff0000)));
}
AF_INLINE vec v_round(vec x) { return (vec){half_round(x.a), half_round(x.b)}; }
AF_INLINE void v_store_bf16(void *p, vec x)
{
	const __m256i a = _mm256_srli_epi32(_mm256_castps_si256(half_round(x.a)), 16);
	const __m256i b = _mm256_srli_epi32(_mm256_castps_si256(half_round(x.b)), 16);
	_mm256_storeu_si256(p, _mm256_permute4x64_epi64(_mm256_packus_epi32(a, b), 0xd8));
}

/* exp_f32 of math.h, operation by operation. */
AF_INLINE __m256 half_exp(__m256 x)
{
	const __m256 magic = _mm256_set1_ps(0x1.8p23f + 254.0f);
	x = _mm256_min_ps(_mm256_set1_ps(89.0f), _mm256_max_ps(_mm256_set1_ps(-104.0f), x));
	const __m256 t = _mm256_fmadd_ps(x, _mm256_set1_ps(0x1.715476p+0f), magic), n = _mm256_sub_ps(t, magic);
	__m256 r = _mm256_fmadd_ps(n, _mm256_set1_ps(-0x1.62e430p-1f), x);
	r = _mm256_fmadd_ps(n, _mm256_set1_ps(0x1.05c610p-29f), r);
	__m256 p = _mm256_set1_ps(0.0013814599553094666f);
	p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(0.0083687168752623599f));
	p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(0.041668388031037609f));
	p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(0.16666520631773323f));
	p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(0.4999999344783835f));
	const __m256 y = _mm256_add_ps(_mm256_set1_ps(1.0f), _mm256_fmadd_ps(_mm256_mul_ps(r, r), p, r));
	const __m256i k = _mm256_castps_si256(t), half = _mm256_and_si256(_mm256_slli_epi32(k, 22), _mm256_set1_epi32(0xff << 23));
	const __m256i rest = _mm256_sub_epi32(_mm256_slli_epi32(k, 23), half);
	return _mm256_mul_ps(_mm256_mul_ps(y, _mm256_castsi256_ps(half)), _mm256_castsi256_ps(rest));
}
AF_INLINE vec v_exp(vec x, bool may_be_large)
{
	(void)may_be_large;
	return (vec){half_exp(x.a), half_exp(x.b)};
}

/* p[16][16]: lanes of each line joined 8, 4, 2, 1. Eight lines at a time: 8 in a line's halves, 4 across 128 bits, 2 and 1 within. */
#define AF_JOIN_ROWS(op, p)                                                                                            \
	do {                                                                                                           \
		__m256 half[2];                                                                                        \
		for (int h = 0; h < 2; h++) {                                                                          \
			__m256 four[4];                                                                                \
			for (int y = 0; y < 4; y++) {                                                                  \
				const vec l = v_load((p) + 16 * (8 * h + y)), m = v_load((p) + 16 * (8 * h + 4 + y));  \
				const __m256 a = op(l.a, l.b), b = op(m.a, m.b);                                       \
				four[y] = op(_mm256_permute2f128_ps(a, b, 0x20), _mm256_permute2f128_ps(a, b, 0x31));  \
			}                                                                                              \
			const __m256 c = op(_mm256_shuffle_ps(four[0], four[1], 0x44), _mm256_shuffle_ps(four[0], four[1], 0xee)); \
			const __m256 d = op(_mm256_shuffle_ps(four[2], four[3], 0x44), _mm256_shuffle_ps(four[2], four[3], 0xee)); \
			half[h] = op(_mm256_shuffle_ps(c, d, 0x88), _mm256_shuffle_ps(c, d, 0xdd));                    \
		}                                                                                                      \
		return (vec){half[0], half[1]};                                                                        \
	} while (0)
AF_INLINE vec v_sum_rows(const float *p) { AF_JOIN_ROWS(_mm256_add_ps, p); }
AF_INLINE vec v_max_rows(const float *p) { AF_JOIN_ROWS(_mm256_max_ps, p); } /* no NaN among them */

/* t[lines][ld] = the transpose of 16 vectors, in squares of 8. */
AF_INLINE void half_transpose(const __m256 in[8], float *t, int64_t ld)
{
	__m256 a[8], b[8];
	for (int i = 0; i < 8; i += 2) {
		a[i] = _mm256_unpacklo_ps(in[i], in[i + 1]);
		a[i + 1] = _mm256_unpackhi_ps(in[i], in[i + 1]);
	}
	for (int i = 0; i < 8; i += 4)
		for (int h = 0; h < 2; h++) {
			b[i + 2 * h] = _mm256_shuffle_ps(a[i + h], a[i + 2 + h], 0x44);
			b[i + 2 * h + 1] = _mm256_shuffle_ps(a[i + h], a[i + 2 + h], 0xee);
		}
	for (int y = 0; y < 4; y++) {
		_mm256_storeu_ps(t + y * ld, _mm256_permute2f128_ps(b[y], b[4 + y], 0x20));
		_mm256_storeu_ps(t + (4 + y) * ld, _mm256_permute2f128_ps(b[y], b[4 + y], 0x31));
	}
}
AF_INLINE void v_transpose(const vec in[16], float *t, int64_t ld, int lines)
{
	for (int h = 0; h < 16; h += 8) {
		__m256 x[8];
		for (int i = 0; i < 8; i++)
			x[i] = in[h + i].a;
		half_transpose(x, t + h, ld);
		for (int i = 0; i < 8; i++)
			x[i] = in[h + i].b;
		if (lines == 16)
			half_transpose(x, t + 8 * ld + h, ld);
	}
}

#endif

/* The lane sum of one vector. */
AF_INLINE float v_sum(vec x)
{
	float v[16];
	v_store(v, x);
	for (int w = 8; w; w /= 2)
		for (int i = 0; i < w; i++)
			v[i] += v[i + w];
	return v[0];
}

#endif

#endif
