/* pack: a plain weight [o,k] into the panels that matrix products read, cast on the way.
 *
 * A panel holds 64 features (outputs o for TT_PACK_FWD, inputs k for TT_PACK_DX) over the whole contraction c (k, or o):
 *
 *   f32   [panel][c][64]         bf16   [panel][c/2][64][2]
 *
 * so that feature f at contraction c is at ((c / pair) * 64 + f) * pair + c % pair of its panel. Features beyond the last and
 * the missing partner of an odd contraction are zero: formats pad, so that no tile has a tail (a tail of 1-16 features would
 * select tiles that split the contraction, and so change bits).
 */
#include "kernels/kernels.h"

/* PAD keeps a column of the buffer from falling into few sets of the cache. */
enum { WIDE = 64, DEEP = 512, BLOCK = 128, PAD = 4, AHEAD = 4 };

typedef struct job {
	const uint8_t *from;
	uint8_t *to;
	tt_dtype dfrom, dto;
	int64_t features, depth; /* of the whole matrix; depth is the contraction's length */
	int64_t sf, sc;          /* elements between features, and between steps of the contraction, in `from` */
	int64_t cuts;            /* tasks per panel, DEEP of the contraction each */
} job;

#define SAME(x) (x)

/* What the fast formats move: an f32, or a pair of bf16. */
typedef uint32_t words4 __attribute__((vector_size(16)));

/* Words s[64][ld] as d[n][64], in squares of 4 by 4. */
static void turn_words(const uint8_t *s, int64_t ld, int64_t n, uint8_t *d)
{
	enum { SIZE = 4, LINE = WIDE * SIZE };
	int64_t c = 0;
	for (; c + 4 <= n; c += 4)
		for (int64_t f = 0; f < WIDE; f += 4) {
			words4 r[4];
			for (int i = 0; i < 4; i++)
				memcpy(&r[i], s + ((f + i) * ld + c) * SIZE, sizeof r[i]);
			words4 a = __builtin_shufflevector(r[0], r[1], 0, 4, 1, 5), b = __builtin_shufflevector(r[2], r[3], 0, 4, 1, 5);
			words4 g = __builtin_shufflevector(r[0], r[1], 2, 6, 3, 7), h = __builtin_shufflevector(r[2], r[3], 2, 6, 3, 7);
			r[0] = __builtin_shufflevector(a, b, 0, 1, 4, 5);
			r[1] = __builtin_shufflevector(a, b, 2, 3, 6, 7);
			r[2] = __builtin_shufflevector(g, h, 0, 1, 4, 5);
			r[3] = __builtin_shufflevector(g, h, 2, 3, 6, 7);
			for (int i = 0; i < 4; i++)
				memcpy(d + (c + i) * LINE + f * SIZE, &r[i], sizeof r[i]);
		}
	for (; c < n; c++)
		for (int64_t f = 0; f < WIDE; f++)
			memcpy(d + c * LINE + f * SIZE, s + (f * ld + c) * SIZE, SIZE);
}

/* One panel's contraction [c0, c1), c0 even. One of the strides is 1: the inner loop follows it. */
#define DEFINE_PANEL(name, src, dst, pair, conv)                                                                       \
	static void name(const job *g, int64_t panel, int64_t c0, int64_t c1)                                          \
	{                                                                                                              \
		int64_t nf = TT_MIN(WIDE, g->features - panel * WIDE);                                                 \
		const src *s = (const src *)g->from + panel * WIDE * g->sf;                                            \
		dst *d = (dst *)g->to + panel * WIDE * tt_round_up(g->depth, pair);                                    \
		int64_t end = tt_round_up(c1, pair);                                                                   \
		if (g->sf == 1) {                                                                                      \
			if (nf < WIDE || end > c1)                                                                     \
				memset(d + c0 * WIDE, 0, (size_t)((end - c0) * WIDE) * sizeof(dst));                   \
			int64_t c = c0;                                                                                \
			for (; c + pair <= c1; c += pair) {                                                            \
				const src *restrict a = s + c * g->sc, *restrict b = a + (pair - 1) * g->sc;           \
				dst *restrict e = d + c * WIDE;                                                        \
				for (int64_t f = 0; f < nf; f++) {                                                     \
					e[f * pair] = conv(a[f]);                                                      \
					if (pair == 2)                                                                 \
						e[f * pair + 1] = conv(b[f]);                                          \
				}                                                                                      \
			}                                                                                              \
			if (c < c1)                                                                                    \
				for (int64_t f = 0; f < nf; f++)                                                       \
					d[c * WIDE + f * pair] = conv(s[c * g->sc + f]);                               \
			return;                                                                                        \
		}                                                                                                      \
		/* Lines of the source are read in runs, the next ones asked for early, and turned in a buffer. */     \
		dst buf[WIDE][BLOCK + PAD];                                                                            \
		if (nf < WIDE)                                                                                         \
			memset(buf, 0, sizeof buf);                                                                    \
		for (int64_t b0 = c0; b0 < c1; b0 += BLOCK) {                                                          \
			int64_t n = TT_MIN(BLOCK, c1 - b0);                                                            \
			for (int64_t f = 0; f < nf; f++) {                                                             \
				const src *restrict a = s + f * g->sf + b0;                                            \
				const src *next = f + AHEAD < nf ? a + AHEAD * g->sf : s + (f + AHEAD - nf) * g->sf + b0 + n;  \
				for (int64_t c = 0; c < n; c += 64 / (int64_t)sizeof(src))                             \
					__builtin_prefetch(next + c);                                                  \
				for (int64_t c = 0; c < n * (int64_t)sizeof(dst); c += 64)                             \
					__builtin_prefetch((char *)(d + b0 * WIDE) + f * n * (int64_t)sizeof(dst) + c, 1); \
				for (int64_t c = 0; c < n; c++)                                                        \
					buf[f][c] = conv(a[c]);                                                        \
				if (n % pair)                                                                          \
					buf[f][n] = 0;                                                                 \
			}                                                                                              \
			if (pair * sizeof(dst) == sizeof(uint32_t)) {                                                  \
				turn_words((const uint8_t *)buf, (BLOCK + PAD) / pair, tt_ceil_div(n, pair),           \
					   (uint8_t *)(d + b0 * WIDE));                                                \
				continue;                                                                              \
			}                                                                                              \
			for (int64_t c = 0; c < n; c++)                                                                \
				for (int64_t f = 0; f < WIDE; f++)                                                     \
					d[(b0 + c) * WIDE + f] = buf[f][c];                                            \
		}                                                                                                      \
	}
DEFINE_PANEL(panel_f32_f32, float, float, 1, SAME)
DEFINE_PANEL(panel_f32_bf16, float, tt_bf16, 2, tt_f32_to_bf16)
DEFINE_PANEL(panel_bf16_bf16, tt_bf16, tt_bf16, 2, SAME)
DEFINE_PANEL(panel_bf16_f32, tt_bf16, float, 1, tt_bf16_to_f32)
DEFINE_PANEL(panel_f64_f64, double, double, 1, SAME)

static void pack_task(void *ctx, int64_t task, int lane)
{
	(void)lane;
	const job *g = ctx;
	int64_t panel = task / g->cuts, c0 = task % g->cuts * DEEP, c1 = TT_MIN(g->depth, c0 + DEEP);
	if (g->dfrom == TT_F64)
		panel_f64_f64(g, panel, c0, c1);
	else if (g->dfrom == TT_BF16)
		(g->dto == TT_BF16 ? panel_bf16_bf16 : panel_bf16_f32)(g, panel, c0, c1);
	else
		(g->dto == TT_BF16 ? panel_f32_bf16 : panel_f32_f32)(g, panel, c0, c1);
}

/* ---- from TT_PACK_FWD to TT_PACK_DX: of a gathered weight, of which there is no plain form ------------------------------------------ */

typedef struct turn_job { const tt_arg *w; void *to; } turn_job;

/* Lines o0 .. o0+63 of the weight, in squares of 64: [k/2][64 o][2] or [k][64 o] to lines, and from there to [o/2][64 k][2] or [o][64 k]. */
static void turn_task(void *ctx, int64_t task, int lane)
{
	(void)lane;
	const turn_job *g = ctx;
	bool half = g->w->dtype == TT_BF16;
	int64_t pair = half ? 2 : 1, o = g->w->n[0], k = g->w->n[1], o0 = task * WIDE, no = TT_MIN((int64_t)WIDE, o - o0);
	for (int64_t k0 = 0; k0 < k; k0 += WIDE) {
		int64_t nk = TT_MIN((int64_t)WIDE, k - k0), n = tt_ceil_div(nk, pair);
		const uint32_t *s = (const uint32_t *)g->w->p + (o0 * tt_round_up(k, pair) + k0 * WIDE) / pair;
		uint32_t *d = (uint32_t *)g->to + (k0 * tt_round_up(o, pair) + o0 * WIDE) / pair, line[WIDE][WIDE + PAD];
		if (nk < WIDE)
			memset(line, 0, sizeof line);
		for (int64_t c = 0; c < n; c++)
			for (int64_t i = 0; i < WIDE; i++)
				line[i][c] = s[c * WIDE + i];
		for (int64_t i = 0; i < no; i += pair) {
			if (!half) {
				memcpy(d + i * WIDE, line[i], sizeof *d * WIDE);
				continue;
			}
			const uint16_t *a = (const uint16_t *)(const void *)line[i], *b = (const uint16_t *)(const void *)line[i + 1];
			for (int64_t c = 0; c < WIDE; c++)
				d[i / 2 * WIDE + c] = a[c] | (uint32_t)b[c] << 16;
		}
	}
}

static void pack(const tt_call *c)
{
	const tt_attr_pack *at = c->attr;
	const tt_arg *w = &c->in[0];
	if (w->format == TT_PACK_FWD && at->format == TT_PACK_DX) {
		TT_ASSERT(w->dtype == at->dtype && w->dtype != TT_F64, "pack turns no %s into %s", tt_dtype_name(w->dtype), tt_dtype_name(at->dtype));
		turn_job t = {w, c->out[0].p};
		tt_pool_run(c->env->pool, tt_ceil_div(w->n[0], WIDE), turn_task, &t);
		return;
	}
	TT_ASSERT(w->format == TT_PLAIN && at->format != TT_PLAIN, "pack goes from plain to packed, not %d to %d", (int)w->format,
		  (int)at->format);
	TT_ASSERT((w->dtype == TT_F64) == (at->dtype == TT_F64), "pack does not cast %s to %s", tt_dtype_name(w->dtype),
		  tt_dtype_name(at->dtype));
	job g = {.from = w->p, .to = c->out[0].p, .dfrom = w->dtype, .dto = at->dtype};
	if (at->format == TT_PACK_FWD)
		g.features = w->n[0], g.depth = w->n[1], g.sf = w->ld, g.sc = 1;
	else
		g.features = w->n[1], g.depth = w->n[0], g.sf = 1, g.sc = w->ld;
	g.cuts = tt_ceil_div(g.depth, DEEP);
	tt_pool_run(c->env->pool, tt_ceil_div(g.features, WIDE) * g.cuts, pack_task, &g);
}

/* ---- both formats of one weight from one read: a block of 64 x 64 is cast into a buffer, and goes to both from there -------------- */

typedef struct pair_job {
	const tt_arg *w;
	void *fwd, *dx;
	tt_dtype to;
} pair_job;

#define DEFINE_BLOCK(name, src, dst, pair, conv)                                                                       \
	static void name(const pair_job *g, int64_t o0, int64_t k0)                                                    \
	{                                                                                                              \
		int64_t o = g->w->n[0], k = g->w->n[1], no = TT_MIN(WIDE, o - o0), nk = TT_MIN(WIDE, k - k0);          \
		dst *restrict f = (dst *)g->fwd + o0 * tt_round_up(k, pair) + k0 * WIDE;                               \
		dst *restrict d = (dst *)g->dx + k0 * tt_round_up(o, pair) + o0 * WIDE;                                \
		dst buf[WIDE][WIDE + PAD];                                                                             \
		if (no < WIDE || nk < WIDE)                                                                            \
			memset(buf, 0, sizeof buf);                                                                    \
		for (int64_t i = 0; i < no; i++) {                                                                     \
			const src *restrict a = (const src *)g->w->p + (o0 + i) * g->w->ld + k0;                       \
			for (int64_t c = 0; c < WIDE; c += 64 / (int64_t)sizeof(src))                                  \
				__builtin_prefetch(a + WIDE + c); /* the next block's */                               \
			for (int64_t c = 0; c < WIDE; c += 64 / (int64_t)sizeof(dst)) {                                \
				__builtin_prefetch(f + i * WIDE + c, 1);                                               \
				__builtin_prefetch(d + i * WIDE + c, 1);                                               \
			}                                                                                              \
			for (int64_t c = 0; c < nk; c++)                                                               \
				buf[i][c] = conv(a[c]);                                                                \
		}                                                                                                      \
		if (pair * sizeof(dst) == sizeof(uint32_t))                                                            \
			turn_words((const uint8_t *)buf, (WIDE + PAD) / pair, tt_ceil_div(nk, pair), (uint8_t *)f);    \
		for (int64_t c = 0; pair * sizeof(dst) != sizeof(uint32_t) && c < nk; c++)                             \
			for (int64_t i = 0; i < WIDE; i++)                                                             \
				f[c * WIDE + i] = buf[i][c];                                                           \
		for (int64_t i = 0; i < no; i += pair)                                                                 \
			for (int64_t c = 0; c < WIDE; c++)                                                             \
				for (int64_t j = 0; j < pair; j++)                                                     \
					d[i * WIDE + c * pair + j] = buf[i + j][c];                                    \
	}
DEFINE_BLOCK(block_f32_f32, float, float, 1, SAME)
DEFINE_BLOCK(block_f32_bf16, float, tt_bf16, 2, tt_f32_to_bf16)
DEFINE_BLOCK(block_bf16_bf16, tt_bf16, tt_bf16, 2, SAME)
DEFINE_BLOCK(block_bf16_f32, tt_bf16, float, 1, tt_bf16_to_f32)
DEFINE_BLOCK(block_f64_f64, double, double, 1, SAME)

static void pair_task(void *ctx, int64_t task, int lane)
{
	(void)lane;
	const pair_job *g = ctx;
	tt_dtype from = g->w->dtype;
	for (int64_t k0 = 0; k0 < g->w->n[1]; k0 += WIDE)
		if (from == TT_F64)
			block_f64_f64(g, task * WIDE, k0);
		else if (from == TT_BF16)
			(g->to == TT_BF16 ? block_bf16_bf16 : block_bf16_f32)(g, task * WIDE, k0);
		else
			(g->to == TT_BF16 ? block_f32_bf16 : block_f32_f32)(g, task * WIDE, k0);
}

static void pack_pair(const tt_call *c)
{
	const tt_arg *w = &c->in[0];
	pair_job g = {.w = w, .fwd = c->out[0].p, .dx = c->out[1].p, .to = ((const tt_attr_dtype *)c->attr)->dtype};
	TT_ASSERT(w->format == TT_PLAIN && (w->dtype == TT_F64) == (g.to == TT_F64), "pack_pair does not make %s of %s", tt_dtype_name(g.to),
		  tt_dtype_name(w->dtype));
	tt_pool_run(c->env->pool, tt_ceil_div(w->n[0], WIDE), pair_task, &g);
}

const tt_kernel TT_KERNEL_TABLE[] = {
	{"pack", pack, NULL},
	{"pack_pair", pack_pair, NULL},
	{NULL, NULL, NULL},
};
