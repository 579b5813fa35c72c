/* One variant's matrix tile, words and packing. Included once per variant (no guard): AF_KIND says what a word is, AF_NAME(x)
 * names the variant's functions. */
#ifdef AF_NAME

/* AF_F32: a float. AF_WIDENED: one bf16 as a float, chains with the odd one of a pair first and subnormals as zeros (FTZ and DAZ
 * around every product). AF_PAIRS: two bf16, VDPBF16PS. */
#ifndef AF_F32
#define AF_F32 0
#define AF_WIDENED 1
#define AF_PAIRS 2
#define AF_FTZ_DAZ 0x8040u /* of MXCSR */

typedef struct af_mm {
	const float *a;  /* words (i,x): a[i*ar + x], or a[i + x*64] where A is read down its columns */
	int64_t ar;
	const float *b;  /* words b[x*ldb + n] */
	int64_t ldb;
	float *c;        /* c[i*ldc + n] */
	int64_t ldc;
	int64_t kw;      /* words of the contraction, even */
	const float *r;  /* AF_SCALE: what line i of C is multiplied by before */
	float scale;     /* AF_SCORE: C is multiplied by it after, */
	float *part;     /* and the lanes' maxima go to part[i][16]: */
	const uint64_t *seen; /* AF_SCORE_SEEN: of the visible alone (line i, columns as bits) */
	int first;       /* the bit of column 0 */
} af_mm;

/* What a product does with C: begins at +0, or goes on, every zero made +0 after; is rescaled, goes on; begins at +0 and makes scores, of which
 * all or some are visible. */
typedef enum af_mode { AF_BEGIN, AF_GO_ON, AF_SCALE, AF_SCORE, AF_SCORE_SEEN } af_mode;
#endif

#if AF_KIND == AF_PAIRS
enum { AF_NAME(WORD) = 2 };
#else
enum { AF_NAME(WORD) = 1 };
#endif

/* ---- words ---------------------------------------------------------------------------------------------------------- */

#if AF_KIND == AF_PAIRS
typedef __m512bh AF_NAME(words);
AF_INLINE __m512bh AF_NAME(load)(const float *p) { return (__m512bh)_mm512_loadu_si512(p); }
AF_INLINE __m512bh AF_NAME(one)(const float *p)
{
	int w;
	memcpy(&w, p, 4);
	return (__m512bh)_mm512_set1_epi32(w);
}
AF_INLINE vec AF_NAME(step)(vec c, __m512bh a, __m512bh b) { return _mm512_dpbf16_ps(c, a, b); }

/* VCVTNE2PS2BF16 takes subnormals as zeros. So do the chains with what it makes; all that is lost is a subnormal that rounds
 * up to 2^-126: half a bf16 unit more puts it, and it alone, on the normal side. */
AF_INLINE vec normal_side(vec x)
{
	const __m512i u = _mm512_castps_si512(x);
	return _mm512_castsi512_ps(_mm512_mask_add_epi32(u, _mm512_fpclass_ps_mask(x, 0x20), u, _mm512_set1_epi32(0x8000)));
}
/* 32 neighbours of one line as 16 words. */
AF_INLINE __m512i words_along(vec a, vec b) { return (__m512i)_mm512_cvtne2ps_pbh(b, a); }
/* 16 elements of two lines as 16 words. */
AF_INLINE __m512i words_across(vec even, vec odd)
{
	const __m512i order = _mm512_set_epi16(31, 15, 30, 14, 29, 13, 28, 12, 27, 11, 26, 10, 25, 9, 24, 8, 23, 7, 22, 6, 21, 5, 20,
					       4, 19, 3, 18, 2, 17, 1, 16, 0);
	return _mm512_permutexvar_epi16(order, words_along(even, odd));
}
/* Elements [x, x+16) or, where they are there, [x, x+32) of two stored lines as words. */
AF_INLINE void AF_NAME(across)(float *t, const uint8_t *even, const uint8_t *odd, int64_t x, bool both)
{
	const __m512i low = _mm512_set_epi16(47, 15, 46, 14, 45, 13, 44, 12, 43, 11, 42, 10, 41, 9, 40, 8, 39, 7, 38, 6, 37, 5, 36, 4, 35,
					     3, 34, 2, 33, 1, 32, 0);
	const __m512i high = _mm512_add_epi16(low, _mm512_set1_epi16(16));
	const __mmask32 there = both ? 0xffffffff : 0xffff;
	const __m512i a = _mm512_maskz_loadu_epi16(there, even + 2 * x), b = _mm512_maskz_loadu_epi16(there, odd + 2 * x);
	_mm512_storeu_si512(t + x, _mm512_permutex2var_epi16(a, low, b));
	if (both)
		_mm512_storeu_si512(t + x + 16, _mm512_permutex2var_epi16(a, high, b));
}
/* Words [x, x+n) of a stored line, n 8 or 16. */
AF_INLINE vec AF_NAME(along)(const uint8_t *line, int64_t x, int64_t n)
{
	return _mm512_maskz_loadu_ps(n == 16 ? 0xffff : 0xff, line + 4 * x);
}
AF_INLINE vec AF_NAME(load_real)(const uint8_t *line, int64_t x) { return v_load_bf16(line + 2 * x); }
AF_INLINE void AF_NAME(store_real)(uint8_t *line, int64_t x, vec y) { v_store_bf16(line + 2 * x, y); }
#else
typedef vec AF_NAME(words);
AF_INLINE vec AF_NAME(load)(const float *p) { return v_load(p); }
AF_INLINE vec AF_NAME(one)(const float *p) { return v_set(*p); }
AF_INLINE vec AF_NAME(step)(vec c, vec a, vec b) { return v_fma(a, b, c); }
#if AF_KIND == AF_WIDENED
AF_INLINE vec AF_NAME(load_real)(const uint8_t *line, int64_t x) { return v_load_bf16(line + 2 * x); }
AF_INLINE void AF_NAME(store_real)(uint8_t *line, int64_t x, vec y) { v_store_bf16(line + 2 * x, y); }
AF_INLINE vec AF_NAME(as_value)(vec x) { return v_round(x); }
#else
AF_INLINE vec AF_NAME(load_real)(const uint8_t *line, int64_t x) { return v_load((const float *)(const void *)line + x); }
AF_INLINE void AF_NAME(store_real)(uint8_t *line, int64_t x, vec y) { v_store((float *)(void *)line + x, y); }
AF_INLINE vec AF_NAME(as_value)(vec x) { return x; }
#endif
AF_INLINE vec AF_NAME(along)(const uint8_t *line, int64_t x, int64_t n)
{
	(void)n;
	return AF_NAME(load_real)(line, x);
}
#endif

/* ---- the tile ------------------------------------------------------------------------------------------------------- */

/* R lines by N vectors of C at (i, 16 n); all of R, N, mode, down are constants where this is inlined. */
AF_INLINE void AF_NAME(tile)(const af_mode mode, const int R, const int N, const bool down, const af_mm *g, int64_t i, int64_t n)
{
	const int64_t sm = down ? 1 : g->ar, sk = down ? AF_BLOCK : 1, ldb = g->ldb, ldc = g->ldc, kw = g->kw;
	const float *a = g->a + i * sm, *b = g->b + 16 * n;
	float *c = g->c + i * ldc + 16 * n;
	vec acc[AF_MICRO][AF_WIDE];
	for (int y = 0; y < R; y++)
		for (int z = 0; z < N; z++)
			if (mode == AF_BEGIN || mode >= AF_SCORE)
				acc[y][z] = v_set(0);
			else if (mode == AF_SCALE)
				acc[y][z] = v_mul(v_load(c + y * ldc + 16 * z), v_set(g->r[i + y]));
			else
				acc[y][z] = v_load(c + y * ldc + 16 * z);
	for (int64_t x = 0; x < kw; x += 2)
#pragma GCC unroll 2
		for (int e = 0; e < 2; e++) {
			const int64_t at = x + (AF_KIND == AF_WIDENED ? 1 - e : e);
			AF_NAME(words) w[AF_WIDE];
			for (int z = 0; z < N; z++)
				w[z] = AF_NAME(load)(b + at * ldb + 16 * z);
#pragma GCC unroll 6
			for (int y = 0; y < R; y++) {
				const AF_NAME(words) u = AF_NAME(one)(a + y * sm + at * sk);
#pragma GCC unroll 4
				for (int z = 0; z < N; z++)
					acc[y][z] = AF_NAME(step)(acc[y][z], u, w[z]);
			}
		}
	if (mode < AF_SCORE) {
		for (int y = 0; y < R; y++)
			for (int z = 0; z < N; z++)
				v_store(c + y * ldc + 16 * z, mode == AF_SCALE ? acc[y][z] : v_add(acc[y][z], v_set(0)));
		return;
	}
	/* In one piece and without branches, or the accumulators would go through memory. */
	const vec scale = v_set(g->scale), none = v_set(-INFINITY);
	const uint64_t *seen = g->seen + i;
	const int64_t first = g->first + 16 * n;
	float *part = g->part + 16 * i;
#pragma GCC unroll 6
	for (int y = 0; y < R; y++) {
		vec most = n ? v_load(part + 16 * y) : none;
#pragma GCC unroll 4
		for (int z = 0; z < N; z++) {
			const vec s = v_mul(acc[y][z], scale);
			v_store(c + y * ldc + 16 * z, s);
			most = v_max(mode == AF_SCORE_SEEN ? v_pick(v_mask(seen[y] >> (first + 16 * z)), s, none) : s, most);
		}
		v_store(part + 16 * y, most);
	}
}

AF_INLINE void AF_NAME(columns)(const af_mode mode, const int N, const bool down, const af_mm *g, int64_t rows, int64_t n)
{
	int64_t i = 0;
	for (; i + AF_MICRO <= rows; i += AF_MICRO)
		AF_NAME(tile)(mode, AF_MICRO, N, down, g, i, n);
	if (rows - i >= 4) {
		AF_NAME(tile)(mode, 4, N, down, g, i, n);
		i += 4;
	}
	if (rows - i >= 2) {
		AF_NAME(tile)(mode, 2, N, down, g, i, n);
		i += 2;
	}
	if (rows > i)
		AF_NAME(tile)(mode, 1, N, down, g, i, n);
}

/* C[rows][16*vecs]: equal parts of at most AF_WIDE vectors. */
AF_INLINE void AF_NAME(product)(const af_mode mode, const bool down, const af_mm *g, int64_t rows, int64_t vecs)
{
	const int64_t parts = tt_ceil_div(vecs, AF_WIDE);
	for (int64_t p = 0; p < parts; p++) {
		const int64_t n = tt_deal(vecs, p, parts);
		switch (tt_deal(vecs, p + 1, parts) - n) {
#if AF_AVX512
		case 4: AF_NAME(columns)(mode, 4, down, g, rows, n); break;
		case 3: AF_NAME(columns)(mode, 3, down, g, rows, n); break;
		case 2: AF_NAME(columns)(mode, 2, down, g, rows, n); break;
#endif
		case 1: AF_NAME(columns)(mode, 1, down, g, rows, n); break;
		}
	}
}

/* Each a function of its own: nothing moves across the changes of MXCSR around it. */
static __attribute__((noinline)) void AF_NAME(mm_begin)(const af_mm *g, int64_t rows, int64_t vecs)
{
	AF_NAME(product)(AF_BEGIN, false, g, rows, vecs);
}
static __attribute__((noinline)) void AF_NAME(mm_go_on)(const af_mm *g, int64_t rows, int64_t vecs)
{
	AF_NAME(product)(AF_GO_ON, false, g, rows, vecs);
}
static __attribute__((noinline)) void AF_NAME(mm_down)(const af_mm *g, int64_t rows, int64_t vecs)
{
	AF_NAME(product)(AF_GO_ON, true, g, rows, vecs);
}
static __attribute__((noinline)) void AF_NAME(mm_down_begin)(const af_mm *g, int64_t rows, int64_t vecs)
{
	AF_NAME(product)(AF_BEGIN, true, g, rows, vecs);
}
#if AF_KIND != AF_WIDENED
static __attribute__((noinline)) void AF_NAME(mm_scale)(const af_mm *g, int64_t rows, int64_t vecs)
{
	AF_NAME(product)(AF_SCALE, false, g, rows, vecs);
}
static __attribute__((noinline)) void AF_NAME(mm_score)(const af_mm *g, int64_t rows, int64_t vecs)
{
	AF_NAME(product)(AF_SCORE, false, g, rows, vecs);
}
static __attribute__((noinline)) void AF_NAME(mm_score_seen)(const af_mm *g, int64_t rows, int64_t vecs)
{
	AF_NAME(product)(AF_SCORE_SEEN, false, g, rows, vecs);
}
#else
/* What stands around the chain counts subnormals, so it stays outside of the changed mode, in functions of its own too. */
static __attribute__((noinline)) void AF_NAME(rescale)(const af_mm *g, int64_t rows, int64_t vecs)
{
	for (int64_t i = 0; i < rows; i++)
		for (int64_t n = 0; n < 16 * vecs; n += 16)
			v_store(g->c + i * g->ldc + n, v_mul(v_load(g->c + i * g->ldc + n), v_set(g->r[i])));
}
static __attribute__((noinline)) void AF_NAME(score)(const af_mm *g, int64_t rows, int64_t vecs)
{
	const vec none = v_set(-INFINITY);
	for (int64_t i = 0; i < rows; i++) {
		vec most = none;
		for (int64_t n = 0; n < vecs; n++) {
			float *c = g->c + i * g->ldc + 16 * n;
			const vec s = v_mul(v_load(c), v_set(g->scale));
			v_store(c, s);
			most = v_max(g->seen ? v_pick(v_mask(g->seen[i] >> (g->first + 16 * n)), s, none) : s, most);
		}
		v_store(g->part + 16 * i, most);
	}
}
static void AF_NAME(mm_scale)(const af_mm *g, int64_t rows, int64_t vecs)
{
	AF_NAME(rescale)(g, rows, vecs);
	const unsigned csr = _mm_getcsr();
	_mm_setcsr(csr | AF_FTZ_DAZ);
	AF_NAME(mm_go_on)(g, rows, vecs);
	_mm_setcsr(csr);
}
static void AF_NAME(mm_score)(const af_mm *g, int64_t rows, int64_t vecs)
{
	const unsigned csr = _mm_getcsr();
	_mm_setcsr(csr | AF_FTZ_DAZ);
	AF_NAME(mm_begin)(g, rows, vecs);
	_mm_setcsr(csr);
	AF_NAME(score)(g, rows, vecs);
}
static void AF_NAME(mm_score_seen)(const af_mm *g, int64_t rows, int64_t vecs) { AF_NAME(mm_score)(g, rows, vecs); }
#endif

/* ---- packing ----------------------------------------------------------------------------------------------------------
 * Of stored lines; where there is none, `line` points to zeros. */

/* `lines` lines, up to whole vectors of them, of n elements, as B with the lines side by side: t[n words][64]. */
static void AF_NAME(pack_side)(float *t, const uint8_t *const line[AF_BLOCK], int64_t lines, int64_t n)
{
	const int64_t words = n / AF_NAME(WORD);
	for (int64_t j = 0; j < lines; j += 16)
		for (int64_t x = 0; x < words; x += 16) {
			const int64_t w = TT_MIN(16, words - x);
			vec in[16];
			for (int i = 0; i < 16; i++)
				in[i] = AF_NAME(along)(line[j + i], x, w);
			v_transpose(in, t + x * AF_BLOCK + j, AF_BLOCK, (int)w);
		}
}

/* Lines as B with their elements side by side: t[words of `lines`][n]. `lines` is even. */
static void AF_NAME(pack_down)(float *t, const uint8_t *const line[AF_BLOCK], int64_t lines, int64_t n)
{
	for (int64_t i = 0; i < lines; i += AF_NAME(WORD), t += n)
#if AF_KIND == AF_PAIRS
		for (int64_t x = 0; x < n; x += 32)
			AF_NAME(across)(t, line[i], line[i + 1], x, n - x >= 32);
#else
		for (int64_t x = 0; x < n; x += 16)
			v_store(t + x, AF_NAME(along)(line[i], x, 16));
#endif
}

/* Lines as A: t[lines][n words]. */
static void AF_NAME(gather)(float *t, const uint8_t *const line[AF_BLOCK], int64_t lines, int64_t n)
{
	const int64_t words = n / AF_NAME(WORD);
	for (int64_t i = 0; i < lines; i++, t += words)
#if AF_KIND == AF_PAIRS
		for (int64_t x = 0; x < words; x += 8)
			_mm256_storeu_si256((void *)(t + x), _mm256_loadu_si256((const void *)(line[i] + 4 * x)));
#else
		for (int64_t x = 0; x < words; x += 16)
			v_store(t + x, AF_NAME(along)(line[i], x, 16));
#endif
}

AF_INLINE void AF_NAME(fetch)(const uint8_t *p, int64_t bytes)
{
	for (int64_t i = 0; i < bytes; i += 64)
		_mm_prefetch((const char *)p + i, _MM_HINT_T1);
}

#endif
