/* panel.c: operands to what tiles read, at the speed of the cache they come from. */
#include "kernels/panel.h"

#include <string.h>

#ifndef TT_NO_X86

#include <immintrin.h>

#define WIDER __attribute__((target("avx2,fma")))

enum { WIDE = 64, DEEP = 64 };

/* 8 lines of 8 to their transpose at d (lines ldd apart). */
static WIDER inline void turn8(__m256 r[8], float *d, int64_t ldd)
{
	__m256 u[8];
	for (int i = 0; i < 4; i++) {
		u[2 * i] = _mm256_unpacklo_ps(r[2 * i], r[2 * i + 1]);
		u[2 * i + 1] = _mm256_unpackhi_ps(r[2 * i], r[2 * i + 1]);
	}
	for (int h = 0; h < 8; h += 4)
		for (int i = 0; i < 2; i++) {
			r[h + 2 * i] = _mm256_shuffle_ps(u[h + i], u[h + 2 + i], 0x44);
			r[h + 2 * i + 1] = _mm256_shuffle_ps(u[h + i], u[h + 2 + i], 0xee);
		}
	for (int i = 0; i < 4; i++) {
		_mm256_storeu_ps(d + i * ldd, _mm256_permute2f128_ps(r[i], r[i + 4], 0x20));
		_mm256_storeu_ps(d + (i + 4) * ldd, _mm256_permute2f128_ps(r[i], r[i + 4], 0x31));
	}
}

/* 8 x 8 of s (lines lds apart) to its transpose at d. */
static WIDER inline void transpose8_f32(const float *s, int64_t lds, float *d, int64_t ldd)
{
	__m256 r[8];
	for (int i = 0; i < 8; i++)
		r[i] = _mm256_loadu_ps(s + i * lds);
	turn8(r, d, ldd);
}

/* DEEP columns of all lines at a time: 16 KiB of `to`, which stay in L1 while each line is read in one run of 4 cache lines. */
WIDER void tt_panel_turn(const float *w, int64_t ld, int64_t nf, int64_t n, float *to)
{
	if (nf < WIDE)
		memset(to, 0, (size_t)(n * WIDE) * sizeof *to);
	for (int64_t c0 = 0; c0 < n; c0 += DEEP) {
		int64_t c1 = c0 + DEEP < n ? c0 + DEEP : n, f = 0;
		for (; f + 8 <= nf; f += 8) {
			int64_t c = c0;
			if (c1 + DEEP <= n)
				for (int64_t i = 0; i < 8; i++)
					for (int64_t j = 0; j < DEEP; j += 16)
						__builtin_prefetch(w + (f + i) * ld + c1 + j);
			for (; c + 8 <= c1; c += 8)
				transpose8_f32(w + f * ld + c, ld, to + c * WIDE + f, WIDE);
			for (; c < c1; c++)
				for (int64_t i = f; i < f + 8; i++)
					to[c * WIDE + i] = w[i * ld + c];
		}
		for (; f < nf; f++)
			for (int64_t c = c0; c < c1; c++)
				to[c * WIDE + f] = w[f * ld + c];
	}
}

WIDER void tt_panel_copy(const float *w, int64_t ld, int64_t nf, int64_t n, float *to)
{
	enum { AHEAD = 8 };
	for (int64_t i = 0; i < n; i++, w += ld, to += WIDE) {
		if (i + AHEAD < n)
			for (int64_t j = 0; j < nf; j += 16)
				__builtin_prefetch(w + AHEAD * ld + j);
		if (nf == WIDE) {
			for (int j = 0; j < WIDE; j += 8)
				_mm256_store_ps(to + j, _mm256_loadu_ps(w + j));
		} else {
			memset(to, 0, WIDE * sizeof *to);
			memcpy(to, w, (size_t)nf * sizeof *w);
		}
	}
}

static WIDER void interleave(const tt_bf16 *restrict a, const tt_bf16 *restrict b, tt_bf16 *restrict to)
{
	for (int j = 0; j < WIDE; j += 16) {
		__m256i u = _mm256_loadu_si256((const __m256i *)(a + j)), v = _mm256_loadu_si256((const __m256i *)(b + j));
		__m256i lo = _mm256_unpacklo_epi16(u, v), hi = _mm256_unpackhi_epi16(u, v);
		_mm256_storeu_si256((__m256i *)(to + 2 * j), _mm256_permute2x128_si256(lo, hi, 0x20));
		_mm256_storeu_si256((__m256i *)(to + 2 * j + 16), _mm256_permute2x128_si256(lo, hi, 0x31));
	}
}

/* As two lines of floats, the odd token's first. */
static WIDER void widen_two(const tt_bf16 *restrict a, const tt_bf16 *restrict b, float *restrict to)
{
	for (int j = 0; j < WIDE; j++) {
		to[j] = tt_bf16_to_f32(b[j]);
		to[j + WIDE] = tt_bf16_to_f32(a[j]);
	}
}

#define DEFINE_PAIRS(name, dst, two)										       \
	WIDER void name(const tt_bf16 *x, int64_t ld, int64_t nf, int64_t n, dst *restrict to)			       \
	{													       \
		enum { AHEAD = 8 };										       \
		static const tt_bf16 zero[WIDE];								       \
		for (int64_t t = 0; t < n; t += 2, to += 2 * WIDE) {						       \
			const tt_bf16 *a = x + t * ld, *b = t + 1 < n ? a + ld : zero;				       \
			if (t + AHEAD + 1 < n)									       \
				for (int j = 0; j < nf; j += 32) {						       \
					__builtin_prefetch(a + AHEAD * ld + j);					       \
					__builtin_prefetch(b + AHEAD * ld + j);					       \
				}										       \
			if (nf == WIDE) {									       \
				two(a, b, to);									       \
			} else {										       \
				tt_bf16 ta[WIDE] = {0}, tb[WIDE] = {0};						       \
				memcpy(ta, a, (size_t)nf * sizeof *a);						       \
				memcpy(tb, b, (size_t)nf * sizeof *b);						       \
				two(ta, tb, to);								       \
			}											       \
		}												       \
	}
DEFINE_PAIRS(tt_panel_pair, tt_bf16, interleave)
DEFINE_PAIRS(tt_panel_widen, float, widen_two)

/* The odd line of each pair first. */
static WIDER void transpose8_widened(const tt_bf16 *s, int64_t lds, float *d, int64_t ldd)
{
	__m256 r[8];
	for (int i = 0; i < 8; i++) {
		__m128i h = _mm_loadu_si128((const __m128i *)(s + (i ^ 1) * lds));
		r[i] = _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(h), 16));
	}
	turn8(r, d, ldd);
}

static WIDER void transpose8_bf16(const tt_bf16 *s, int64_t lds, tt_bf16 *d, int64_t ldd)
{
	__m128i r[8], u[8];
	for (int i = 0; i < 8; i++)
		r[i] = _mm_loadu_si128((const __m128i *)(s + i * lds));
	for (int i = 0; i < 4; i++) {
		u[i] = _mm_unpacklo_epi16(r[2 * i], r[2 * i + 1]);     /* columns 0..3 of lines 2i, 2i+1 */
		u[i + 4] = _mm_unpackhi_epi16(r[2 * i], r[2 * i + 1]); /* columns 4..7 */
	}
	for (int h = 0; h < 8; h += 4) {
		r[h] = _mm_unpacklo_epi32(u[h], u[h + 1]);
		r[h + 1] = _mm_unpackhi_epi32(u[h], u[h + 1]);
		r[h + 2] = _mm_unpacklo_epi32(u[h + 2], u[h + 3]);
		r[h + 3] = _mm_unpackhi_epi32(u[h + 2], u[h + 3]);
		for (int i = 0; i < 2; i++) {
			_mm_storeu_si128((__m128i *)(d + (h + 2 * i) * ldd), _mm_unpacklo_epi64(r[h + i], r[h + 2 + i]));
			_mm_storeu_si128((__m128i *)(d + (h + 2 * i + 1) * ldd), _mm_unpackhi_epi64(r[h + i], r[h + 2 + i]));
		}
	}
}

#define DEFINE_TURN(name, src, dst, eight, conv, line, pairs, flip)						       \
	WIDER void name(const src *dy, int64_t lds, int64_t n, int64_t no, int64_t ld, dst *restrict to)	       \
	{													       \
		enum { AHEAD = 32 };										       \
		int64_t t = 0;											       \
		for (; t + 8 <= n; t += 8) {									       \
			int64_t o = 0;										       \
			for (; o + 8 <= no; o += 8) {								       \
				if (o % (line) == 0 && t + AHEAD + 8 <= n)					       \
					for (int i = 0; i < 8; i++)						       \
						__builtin_prefetch(dy + (t + AHEAD + i) * lds + o);		       \
				eight(dy + t * lds + o, lds, to + o * ld + t, ld);				       \
			}											       \
			for (; o < no; o++)									       \
				for (int64_t i = t; i < t + 8; i++)						       \
					to[o * ld + (i ^ (flip))] = conv(dy[i * lds + o]);			       \
		}												       \
		for (; t < n; t++)										       \
			for (int64_t o = 0; o < no; o++)							       \
				to[o * ld + (t ^ (flip))] = conv(dy[t * lds + o]);				       \
		if ((pairs) && n % 2)										       \
			for (int64_t o = 0; o < no; o++)							       \
				to[o * ld + (n ^ (flip))] = 0;							       \
	}
#define SAME(x) (x)
DEFINE_TURN(tt_lines_turn_f32, float, float, transpose8_f32, SAME, 16, false, 0)
DEFINE_TURN(tt_lines_turn_bf16, tt_bf16, tt_bf16, transpose8_bf16, SAME, 32, true, 0)
DEFINE_TURN(tt_lines_turn_widen, tt_bf16, float, transpose8_widened, tt_bf16_to_f32, 32, true, 1)

/* Eight columns are stored where six are wanted: the next line's come over the last two. Not where eight are not there. Eight lines at a
 * time, so that stores go to a few cache lines in turn and not to one of every six columns. */
WIDER void tt_lines_six_f32(const float *dy, int64_t lds, int64_t n, int64_t no, int64_t run, float *restrict to)
{
	enum { TURN = 8, AHEAD = 24 };
	for (int64_t t = 0; t < n; t += TURN, dy += TURN * lds) {
		int64_t lines = n - t < TURN ? n - t : TURN, o = 0;
		float *d = to + 6 * t;
		for (; o + 8 <= no; o += 6, d += run) {
			if (o % 16 < 6 && t + AHEAD + TURN <= n)
				for (int64_t i = 0; i < TURN; i++)
					__builtin_prefetch(dy + (AHEAD + i) * lds + o);
			for (int64_t i = 0; i < lines; i++)
				_mm256_storeu_ps(d + 6 * i, _mm256_loadu_ps(dy + i * lds + o));
		}
		for (; o < no; o += 6, d += run)
			for (int64_t i = 0; i < lines; i++)
				memcpy(d + 6 * i, dy + i * lds + o, (size_t)(no - o < 6 ? no - o : 6) * sizeof *d);
	}
}

WIDER void tt_lines_six_bf16(const tt_bf16 *dy, int64_t lds, int64_t n, int64_t no, int64_t run, tt_bf16 *restrict to)
{
	enum { TURN = 16, AHEAD = 32 };
	for (int64_t t = 0; t < n; t += TURN, dy += TURN * lds) {
		int64_t lines = n - t < TURN ? n - t : TURN, o = 0;
		tt_bf16 *d = to + 6 * t;
		for (; o < no; o += 6, d += 2 * run) {
			if (o % 32 < 6 && t + AHEAD + TURN <= n)
				for (int64_t i = 0; i < TURN; i++)
					__builtin_prefetch(dy + (AHEAD + i) * lds + o);
			for (int64_t i = 0; i < lines; i += 2) {
				const tt_bf16 *a = dy + i * lds + o, *b = i + 1 < lines ? a + lds : NULL;
				tt_bf16 *e = d + 6 * i;
				if (b && o + 8 <= no) {
					__m128i u = _mm_loadu_si128((const __m128i *)a), v = _mm_loadu_si128((const __m128i *)b);
					_mm_storeu_si128((__m128i *)e, _mm_unpacklo_epi16(u, v));
					_mm_storeu_si128((__m128i *)(e + 8), _mm_unpackhi_epi16(u, v));
					continue;
				}
				for (int64_t j = 0; j < 6 && o + j < no; j++) {
					e[2 * j] = a[j];
					e[2 * j + 1] = b ? b[j] : 0;
				}
			}
		}
	}
}

WIDER void tt_widen_along(const tt_bf16 *restrict from, int64_t n, float *restrict to)
{
	for (int64_t i = 0; i < n; i++) {
		uint32_t pair;
		memcpy(&pair, from + 2 * i, sizeof pair);
		uint64_t both = (pair & 0xffff0000u) | (uint64_t)pair << 48;
		memcpy(to + 2 * i, &both, sizeof both);
	}
}

WIDER void tt_widen_panel(const tt_bf16 *restrict from, int64_t n, float *restrict to)
{
	const __m256i high = _mm256_set1_epi32((int)0xffff0000u);
	for (int64_t i = 0; i < n; i++, from += 2 * WIDE, to += 2 * WIDE)
		for (int j = 0; j < WIDE; j += 8) {
			__m256i pairs = _mm256_loadu_si256((const __m256i *)(from + 2 * j));
			_mm256_storeu_si256((__m256i *)(to + j), _mm256_and_si256(pairs, high));
			_mm256_storeu_si256((__m256i *)(to + WIDE + j), _mm256_slli_epi32(pairs, 16));
		}
}

#endif
