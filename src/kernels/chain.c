/* chain.c: the tiles of chain.h for both kinds of words, and what is rare about their ends. */
#include "kernels/chain.h"

#include <string.h>

#ifndef TT_NO_X86

#include <immintrin.h>

enum { LINES = TT_CHAIN_LINES, TILE = TT_CHAIN_TILE };

/* What is left to do with a finished sum: nothing, all of it, or only to round to bf16. */
typedef enum end { END_DONE, END_LEFT, END_ROUND } end;

/* v[lines][64] to Y: where features are missing, or the registers' way of rounding would not do. */
static void finish(const tt_chain *g, int64_t m, int64_t lines, float *v, end left)
{
	int64_t n = g->features;
	for (int64_t i = m; i < m + lines; i++, v += 64) {
		bool all = left == END_LEFT;
		for (int j = 0; all && g->plus && j < n; j++)
			v[j] += 0;
		for (int j = 0; all && g->bias && j < n; j++)
			v[j] += g->bias[j];
		for (int j = 0; all && g->state && j < n; j++)
			v[j] = g->state[i * g->lds + j] + v[j];
		for (int j = 0; all && g->rounded && j < n; j++)
			v[j] += 0;
		char *y = (char *)g->y + i * g->ldy;
		if (g->y_bf16)
			for (int j = 0; j < n; j++)
				((tt_bf16 *)y)[j] = tt_f32_to_bf16(v[j]);
		else
			memcpy(y, v, (size_t)n * sizeof *v);
	}
}

#define CHAIN_TARGET __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")))
#define CHAIN_NAME(x) x##_f32
#define CHAIN_DOT 0
#include "kernels/chain_tile.h"
#undef CHAIN_TARGET
#undef CHAIN_NAME
#undef CHAIN_DOT

#define CHAIN_TARGET __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx512bf16,avx2,fma")))
#define CHAIN_NAME(x) x##_bf16
#define CHAIN_DOT 1
#include "kernels/chain_tile.h"

#endif
