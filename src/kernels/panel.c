/* panel.c: pieces of plain weights to panels, at the speed of the cache they come from. */
#include "kernels/panel.h"

#include <string.h>

#ifndef TT_NO_X86

#include <immintrin.h>

#define WIDER __attribute__((target("avx2,fma")))

enum { WIDE = 64, DEEP = 64 };

/* 8 x 8 of s (lines lds apart) to its transpose at d (lines of 64). */
static WIDER inline void turn8(const float *s, int64_t lds, float *d)
{
	__m256 r[8], u[8];
	for (int i = 0; i < 8; i++)
		r[i] = _mm256_loadu_ps(s + i * lds);
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
		_mm256_storeu_ps(d + i * WIDE, _mm256_permute2f128_ps(r[i], r[i + 4], 0x20));
		_mm256_storeu_ps(d + (i + 4) * WIDE, _mm256_permute2f128_ps(r[i], r[i + 4], 0x31));
	}
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
				turn8(w + f * ld + c, ld, to + c * WIDE + f);
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

#endif
