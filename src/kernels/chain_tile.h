/* The tile of one kind of word; included once for each by chain.c (no guard). CHAIN_DOT: words are pairs of bf16. */
#ifdef CHAIN_NAME

#define CHAIN_INLINE CHAIN_TARGET static inline __attribute__((always_inline))

/* L lines of n words. The accumulators and one word of A and of one line of B: 29 registers. */
CHAIN_INLINE void CHAIN_NAME(chain)(const int L, const bool along, const char *w, const char *x, int64_t ldx, int64_t n, __m512 c[LINES][4])
{
	const char *x3 = x + 3 * ldx;
	for (; n > 0; n--, w += 256) {
		__m512 a[4];
		for (int j = 0; j < 4; j++)
			a[j] = _mm512_loadu_ps(w + 64 * j);
		for (int i = 0; i < L; i++) {
			float word;
			memcpy(&word, !along ? x + 4 * i : i < 3 ? x + i * ldx : x3 + (i - 3) * ldx, 4);
			const __m512 b = _mm512_set1_ps(word);
			for (int j = 0; j < 4; j++)
#if CHAIN_DOT
				c[i][j] = _mm512_dpbf16_ps(c[i][j], (__m512bh)a[j], (__m512bh)b);
#else
				c[i][j] = _mm512_fmadd_ps(a[j], b, c[i][j]);
#endif
		}
		x += along ? 4 : 4 * LINES;
		x3 += 4;
	}
}

/* In halves: on Zen 4 a store of 64 bytes takes two cycles from the multipliers, two of 32 bytes next to none (bf16, 8 segments of 32: 214
 * against 204 GFLOP/s). */
CHAIN_INLINE void CHAIN_NAME(push)(const int L, __m512 c[LINES][4], float *p)
{
	for (int i = 0; i < L; i++)
		for (int j = 0; j < 4; j++) {
			_mm256_store_ps(p + i * 64 + j * 16, _mm512_castps512_ps256(c[i][j]));
			_mm256_store_ps(p + i * 64 + j * 16 + 8, _mm512_extractf32x8_ps(c[i][j], 1));
		}
}

CHAIN_INLINE void CHAIN_NAME(add)(const int L, __m512 c[LINES][4], const float *p, int64_t ld)
{
	for (int i = 0; i < L; i++)
		for (int j = 0; j < 4; j++)
			c[i][j] = _mm512_add_ps(_mm512_loadu_ps(p + i * ld + j * 16), c[i][j]);
}

CHAIN_INLINE void CHAIN_NAME(plus_zero)(const int L, __m512 c[LINES][4])
{
	for (int i = 0; i < L; i++)
		for (int j = 0; j < 4; j++)
			c[i][j] = _mm512_add_ps(c[i][j], _mm512_setzero_ps());
}

/* Whole lines of 64, in registers; false: not these. The instruction that rounds to bf16 takes a subnormal sum as zero. */
CHAIN_INLINE bool CHAIN_NAME(store)(const int L, const tt_chain *g, int64_t m, __m512 c[LINES][4])
{
	if (g->features != 64 || (g->y_bf16 && !CHAIN_DOT))
		return false;
	if (g->plus)
		CHAIN_NAME(plus_zero)(L, c);
	if (g->bias)
		CHAIN_NAME(add)(L, c, g->bias, 0);
	if (g->state)
		CHAIN_NAME(add)(L, c, g->state + m * g->lds, g->lds);
	if (g->rounded)
		CHAIN_NAME(plus_zero)(L, c);
	char *y = (char *)g->y + m * g->ldy;
#if CHAIN_DOT
	if (g->y_bf16) {
		unsigned subnormal = 0;
		for (int i = 0; i < L; i++)
			for (int j = 0; j < 4; j++)
				subnormal |= _mm512_fpclass_ps_mask(c[i][j], 0x20);
		for (int i = 0; i < L; i++)
			for (int j = 0; j < 4; j += 2)
				_mm512_storeu_si512(y + i * g->ldy + j * 32, (__m512i)_mm512_cvtne2ps_pbh(c[i][j + 1], c[i][j]));
		if (__builtin_expect(subnormal != 0, 0))
			for (int i = 0; i < L; i++) {
				float v[64];
				for (int j = 0; j < 4; j++)
					_mm512_storeu_ps(v + 16 * j, c[i][j]);
				for (int j = 0; j < 64; j++)
					((tt_bf16 *)(y + i * g->ldy))[j] = tt_f32_to_bf16(v[j]);
			}
		return true;
	}
#endif
	for (int i = 0; i < L; i++)
		for (int j = 0; j < 4; j++)
			_mm512_storeu_ps(y + i * g->ldy + j * 64, c[i][j]);
	return true;
}

/* Lines [m, m+L). Nothing of the job is written within a run of tiles: an address that comes out of a store waits for the multipliers. */
CHAIN_INLINE void CHAIN_NAME(tile)(const int L, const bool along, const tt_chain *g, const char *x, int64_t m)
{
	const tt_chain_step *s = g->step, *end = s + g->nsteps;
	const int64_t ldx = along ? g->ldx : 0;
	float *p = g->part + m / LINES * g->part_step + g->depth * TILE;
	const char *w = g->w;
	__m512 c[LINES][4];
	for (;; s++, p += TILE) {
		if (s->goes_on) {
			p -= TILE;
			for (int i = 0; i < L; i++)
				for (int j = 0; j < 4; j++)
					c[i][j] = _mm512_load_ps(p + i * 64 + j * 16);
		} else {
			for (int i = 0; i < L; i++)
				for (int j = 0; j < 4; j++)
					c[i][j] = _mm512_setzero_ps();
		}
		CHAIN_NAME(chain)(L, along, w + s->at * 256, x + s->at * (along ? 4 : 4 * LINES), ldx, s->n, c);
		for (int j = s->joins; j > 0; j--) {
			p -= TILE;
			CHAIN_NAME(add)(L, c, p, 64);
		}
		if (s + 1 == end)
			break;
		CHAIN_NAME(push)(L, c, p);
	}
	if (!g->open && CHAIN_NAME(store)(L, g, m, c))
		return;
	CHAIN_NAME(push)(L, c, p);
	if (!g->open)
		finish(g, m, L, p);
}

/* The compiler keeps the sums in registers only where the loop over tiles is not around them. */
#define TILES(L)                                                                                                       \
	CHAIN_TARGET static __attribute__((noinline)) void CHAIN_NAME(along_##L)(const tt_chain *g, const char *x, int64_t m) \
	{                                                                                                              \
		CHAIN_NAME(tile)(L, true, g, x, m);                                                                    \
	}                                                                                                              \
	CHAIN_TARGET static __attribute__((noinline)) void CHAIN_NAME(across_##L)(const tt_chain *g, const char *x, int64_t m) \
	{                                                                                                              \
		CHAIN_NAME(tile)(L, false, g, x, m);                                                                   \
	}
TILES(1) TILES(2) TILES(3) TILES(4) TILES(5) TILES(6)
#undef TILES

void CHAIN_NAME(tt_chain)(const tt_chain *g, const void *x, int64_t lines)
{
	typedef void tile_fn(const tt_chain *g, const char *x, int64_t m);
#define ALL(way) NULL, CHAIN_NAME(way##_1), CHAIN_NAME(way##_2), CHAIN_NAME(way##_3), CHAIN_NAME(way##_4), CHAIN_NAME(way##_5), CHAIN_NAME(way##_6)
	static tile_fn *const tiles[2][LINES + 1] = { { ALL(across) }, { ALL(along) } };
#undef ALL
	tile_fn *const *of = tiles[!g->across];
	const char *from = x;
	for (int64_t m = 0, next = g->across ? g->ldx : LINES * g->ldx; m < lines; m += LINES, from += next)
		of[TT_MIN((int64_t)LINES, lines - m)](g, from, m);
}

#undef CHAIN_INLINE
#endif
