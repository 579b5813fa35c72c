/* The tile of one kind of word; included once for each by chain.c (no guard). CHAIN_DOT: words are pairs of bf16. */
#ifdef CHAIN_NAME

/* Before the loops over a tile: gcc keeps the sums in registers where they are unrolled early, clang where it is left alone. */
#ifdef __clang__
#define TILE_UNROLL
#else
#define TILE_UNROLL _Pragma("GCC unroll 8")
#endif
#define CHAIN_INLINE CHAIN_TARGET static inline __attribute__((always_inline))

/* One word of A and of L lines of X. */
CHAIN_INLINE void CHAIN_NAME(word)(const int L, const bool along, const __m512 a[4], const char *x, const char *x3, int64_t ldx, __m512 c[LINES][4])
{
	TILE_UNROLL
	for (int i = 0; i < L; i++) {
		float word;
		memcpy(&word, !along ? x + 4 * i : i < 3 ? x + i * ldx : x3 + (i - 3) * ldx, 4);
		const __m512 b = _mm512_set1_ps(word);
		TILE_UNROLL
		for (int j = 0; j < 4; j++)
#if CHAIN_DOT
			c[i][j] = _mm512_dpbf16_ps(c[i][j], (__m512bh)a[j], (__m512bh)b);
#else
			c[i][j] = _mm512_fmadd_ps(a[j], b, c[i][j]);
#endif
	}
}

/* L lines of n words. The accumulators and one word of A and of one line of B: 29 registers. */
CHAIN_INLINE void CHAIN_NAME(chain)(const int L, const bool along, const char *w, const char *x, int64_t ldx, int64_t n,
				    const char *soon, int64_t soon_ld, __m512 c[LINES][4])
{
	const char *x3 = x + 3 * ldx;
	for (; n > 0; n--, w += 256) {
		__m512 a[4];
		if (!along) {
			__builtin_prefetch(soon, 0, 2);
			soon += soon_ld;
		}
		TILE_UNROLL
		for (int j = 0; j < 4; j++)
			a[j] = _mm512_loadu_ps(w + 64 * j);
		CHAIN_NAME(word)(L, along, a, x, x3, ldx, c);
		x += along ? 4 : 4 * LINES;
		x3 += 4;
	}
}

/* Six lines of n words, the panel's not there yet: they are read where they lie and put there. */
CHAIN_INLINE void CHAIN_NAME(first)(const tt_chain *g, char *w, const char *x, int64_t n, __m512 c[LINES][4])
{
	const int64_t ld = g->plain_ld;
	const char *from = g->plain;
	for (; n > 0; n--, w += 256, x += 4 * LINES, from += ld * (CHAIN_DOT ? 2 : 1)) {
		__m512 a[4];
		TILE_UNROLL
		for (int j = 0; j < 4; j++) {
			__builtin_prefetch(from + 4 * ld + 64 * j);
#if CHAIN_DOT
			const __m512i even = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)(from + 32 * j)));
			const __m512i odd = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)(from + ld + 32 * j)));
			a[j] = _mm512_castsi512_ps(_mm512_or_si512(even, _mm512_slli_epi32(odd, 16)));
#else
			a[j] = _mm512_loadu_ps(from + 64 * j);
#endif
			_mm256_storeu_ps((float *)(void *)(w + 64 * j), _mm512_castps512_ps256(a[j]));
			_mm256_storeu_ps((float *)(void *)(w + 64 * j + 32), _mm512_extractf32x8_ps(a[j], 1));
		}
		CHAIN_NAME(word)(LINES, false, a, x, x, 0, c);
	}
}

/* In halves: on Zen 4 a store of 64 bytes takes two cycles from the multipliers, two of 32 bytes next to none (bf16, 8 segments of 32: 214
 * against 204 GFLOP/s). */
CHAIN_INLINE void CHAIN_NAME(push)(const int L, __m512 c[LINES][4], float *p)
{
	TILE_UNROLL
	for (int i = 0; i < L; i++)
		TILE_UNROLL
		for (int j = 0; j < 4; j++) {
			_mm256_store_ps(p + i * 64 + j * 16, _mm512_castps512_ps256(c[i][j]));
			_mm256_store_ps(p + i * 64 + j * 16 + 8, _mm512_extractf32x8_ps(c[i][j], 1));
		}
}

CHAIN_INLINE void CHAIN_NAME(add)(const int L, __m512 c[LINES][4], const float *p, int64_t ld)
{
	TILE_UNROLL
	for (int i = 0; i < L; i++)
		TILE_UNROLL
		for (int j = 0; j < 4; j++)
			c[i][j] = _mm512_add_ps(_mm512_loadu_ps(p + i * ld + j * 16), c[i][j]);
}

CHAIN_INLINE void CHAIN_NAME(plus_zero)(const int L, __m512 c[LINES][4])
{
	TILE_UNROLL
	for (int i = 0; i < L; i++)
		TILE_UNROLL
		for (int j = 0; j < 4; j++)
			c[i][j] = _mm512_add_ps(c[i][j], _mm512_setzero_ps());
}

/* Whole lines of 64, in registers. The instruction that rounds to bf16 takes a subnormal sum as zero: then rounding is left. */
CHAIN_INLINE end CHAIN_NAME(store)(const int L, const tt_chain *g, int64_t m, __m512 c[LINES][4])
{
	if (g->features != 64 || (g->y_bf16 && !CHAIN_DOT))
		return END_LEFT;
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
		if (g->nsteps > 1 || g->depth || g->bias || g->state) { /* one chain flushes its sums itself */
			unsigned subnormal = 0;
			TILE_UNROLL
			for (int i = 0; i < L; i++)
				TILE_UNROLL
				for (int j = 0; j < 4; j++)
					subnormal |= _mm512_fpclass_ps_mask(c[i][j], 0x20);
			if (__builtin_expect(subnormal != 0, 0))
				return END_ROUND;
		}
		TILE_UNROLL
		for (int i = 0; i < L; i++)
			TILE_UNROLL
			for (int j = 0; j < 4; j += 2)
				_mm512_storeu_si512(y + i * g->ldy + j * 32, (__m512i)_mm512_cvtne2ps_pbh(c[i][j + 1], c[i][j]));
		return END_DONE;
	}
#endif
	TILE_UNROLL
	for (int i = 0; i < L; i++)
		TILE_UNROLL
		for (int j = 0; j < 4; j++)
			_mm512_storeu_ps(y + i * g->ldy + j * 64, c[i][j]);
	return END_DONE;
}

/* Lines [m, m+L). Nothing of the job is written within a run of tiles: an address that comes out of a store waits for the multipliers. */
CHAIN_INLINE void CHAIN_NAME(tile)(const int L, const bool along, const bool first, const tt_chain *g, const char *x, int64_t m, int64_t lines)
{
	const tt_chain_step *s = g->step, *stop = s + g->nsteps;
	const int64_t ldx = along ? g->ldx : 0;
	float *p = g->part + m / LINES * g->part_step + g->depth * TILE;
	const char *w = g->w, *soon = w;
	int64_t soon_ld = 0, later = along ? 0 : (lines - m - 1) / LINES;
	if (!along && later < g->soon_n) {
		soon = (const char *)g->soon + (CHAIN_DOT ? later / 2 * 64 + later % 2 * g->soon_ld : later * 64);
		soon_ld = g->soon_ld * (CHAIN_DOT ? 2 : 1);
	}
	__m512 c[LINES][4];
	for (;; s++, p += TILE) {
		if (s->goes_on) {
			p -= TILE;
			TILE_UNROLL
			for (int i = 0; i < L; i++)
				TILE_UNROLL
				for (int j = 0; j < 4; j++)
					c[i][j] = _mm512_load_ps(p + i * 64 + j * 16);
		} else {
			TILE_UNROLL
			for (int i = 0; i < L; i++)
				TILE_UNROLL
				for (int j = 0; j < 4; j++)
					c[i][j] = _mm512_setzero_ps();
		}
		if (first)
			CHAIN_NAME(first)(g, (char *)(uintptr_t)w, x, s->n, c);
		else
			CHAIN_NAME(chain)(L, along, w + s->at * 256, x + s->at * (along ? 4 : 4 * LINES), ldx, s->n, soon, soon_ld, c);
		for (int j = s->joins; j > 0; j--) {
			p -= TILE;
			CHAIN_NAME(add)(L, c, p, 64);
		}
		if (s + 1 == stop)
			break;
		CHAIN_NAME(push)(L, c, p);
	}
	end left = g->open ? END_DONE : CHAIN_NAME(store)(L, g, m, c);
	if (left == END_DONE && !g->open)
		return;
	CHAIN_NAME(push)(L, c, p);
	if (left != END_DONE)
		finish(g, m, L, p, left);
}

/* The compiler keeps the sums in registers only where the loop over tiles is not around them. */
#define TILES(L)                                                                                                       \
	CHAIN_TARGET static __attribute__((noinline)) void CHAIN_NAME(along_##L)(const tt_chain *g, const char *x, int64_t m, int64_t lines) \
	{                                                                                                              \
		CHAIN_NAME(tile)(L, true, false, g, x, m, lines);                                                      \
	}                                                                                                              \
	CHAIN_TARGET static __attribute__((noinline)) void CHAIN_NAME(across_##L)(const tt_chain *g, const char *x, int64_t m, int64_t lines) \
	{                                                                                                              \
		CHAIN_NAME(tile)(L, false, false, g, x, m, lines);                                                     \
	}
TILES(1) TILES(2) TILES(3) TILES(4) TILES(5) TILES(6)
#undef TILES
CHAIN_TARGET static __attribute__((noinline)) void CHAIN_NAME(first_six)(const tt_chain *g, const char *x, int64_t m, int64_t lines)
{
	CHAIN_NAME(tile)(LINES, false, true, g, x, m, lines);
}

void CHAIN_NAME(tt_chain)(const tt_chain *g, const void *x, int64_t lines)
{
	typedef void tile_fn(const tt_chain *g, const char *x, int64_t m, int64_t lines);
#define ALL(way) NULL, CHAIN_NAME(way##_1), CHAIN_NAME(way##_2), CHAIN_NAME(way##_3), CHAIN_NAME(way##_4), CHAIN_NAME(way##_5), CHAIN_NAME(way##_6)
	static tile_fn *const tiles[2][LINES + 1] = { { ALL(across) }, { ALL(along) } };
#undef ALL
	tile_fn *const *of = tiles[!g->across];
	const char *from = x;
	for (int64_t m = 0, next = g->across ? g->ldx : LINES * g->ldx; m < lines; m += LINES, from += next)
		(g->plain && m == 0 ? CHAIN_NAME(first_six) : of[TT_MIN((int64_t)LINES, lines - m)])(g, from, m, lines);
}

#undef CHAIN_INLINE
#undef TILE_UNROLL
#endif
