/* Matrix products on libxsmm tiles: linear, linear_dx, linear_dw, equal to product.k.c bit for bit.
 *
 * libxsmm is column-major. Seen from there every tile is C[64 x n] = A[64 x k] B[k x n]: 64 features of a packed panel, n <= 6
 * lines of the other operand as they lie (ldb = its line length), C in place. 64 x 6 accumulators are what fits the registers
 * of AVX-512, and one width for everything means one order of sums for everything. Inside a tile the contraction runs ascending
 * in one chain per element, beta = 1 continues a chain held in f32 C, so neither the cut into chunks (which keeps a panel's
 * chunk in L2) nor the cut into lines, panels or threads changes a bit.
 *
 * What must be kept away from libxsmm 1.17, because bits or memory suffer:
 *   m mod 64 in 1..16   selects tiles that split the contraction over several accumulators: formats pad panels to 64, and the
 *                       last panel goes through a scratch tile of 64 columns
 *   bf16, odd k or ldb  refused or silently wrong: such nodes are not accepted and stay with the reference
 *   bf16 C, beta = 1    would round between chunks: longer sums are kept in f32 scratch and rounded once
 *   n = 0, k = 0        returns a tile that must not be called
 *   prefetch = NULL     may change the signature: always NONE
 * The bf16 tiles need AVX512_BF16: below it libxsmm emulates in another order. There bf16 operands are widened into cache, the
 * odd element of each pair before the even one, and f32 tiles run with subnormals as zeros (FTZ and DAZ of MXCSR): the chain of
 * VDPBF16PS, as product.k.c has it. Weights are packed as for the bf16 tiles, so formats do not depend on the instruction set.
 *
 * Third-party state: libxsmm keeps one target for the process and one registry of tiles, keyed by shape and not by target. The
 * target is set here to what the row asked for; a shape made for AVX-512 earlier in the process is found again by a later AVX2
 * plan. The bits are the same.
 */
#include "kernels/xsmm.h"

#include "kernels/panel.h"
#include "kernels/tail.h"

#ifndef TT_NO_X86

#include <immintrin.h>
#include <libxsmm.h>

/* Every row needs AVX2, so the code around the tiles may use it. */
#define WIDER __attribute__((target("avx2,fma")))

enum {
	WIDE = 64,          /* features of a panel */
	LINES = 6,          /* lines of a tile */
	SUB = 48,           /* lines that share scratch tiles */
	SEGMENTS = 8,       /* scratch tiles that are joined */
	BLOCK = 576,        /* most lines of a task: they stay in cache across the panels */
	CHUNK_F32 = 1024,   /* contraction of one call, so that 64 columns of a panel take 256 KiB */
	CHUNK_BF16 = 2048,
	CHUNK_WIDENED = 256,
	CHUNK_FEW = 64,     /* where lines are few, weights are widened into the first cache for one call */
	WIDENED = 393216,   /* most elements of X that a task widens at once, above SUB lines */
	MANY = 1024,        /* lines from which on a weight stays plain and its panels are packed in the call */
	LEAST = 512,        /* fewest lines of a task that packs its panels */
	PACKED = 6,         /* most panels that a task packs at once: lines come from far once for all of them */
	TURN = 144,         /* lines that go through them in turn */
};

typedef libxsmm_xmmfunction tile;
typedef enum tile_kind { TILE_F32, TILE_BF16_F32, TILE_BF16 } tile_kind; /* operands, then C where it differs */

/* The instruction set of the tiles, and whether bf16 operands are widened for them. */
typedef enum level { AVX2, AVX512, AVX512_BF16 } level;

/* How operands reach the tiles. */
typedef struct form {
	bool bf16;     /* in memory */
	bool widened;  /* bf16 in memory, f32 in the tiles */
	bool plain;    /* the weight lies plain; a task packs its panels */
	int64_t from, to; /* bytes of an element in memory, in the tiles */
	int64_t pair;  /* what the contraction comes in */
	int64_t chunk; /* the most of it for one call */
	tile_kind kind; /* with f32 C */
} form;

static form form_of(const tt_value *x, level at)
{
	form m = {.bf16 = x->dtype == TT_BF16};
	m.widened = m.bf16 && at < AVX512_BF16;
	m.from = m.bf16 ? 2 : 4;
	m.to = m.widened ? 4 : m.from;
	m.pair = m.bf16 ? 2 : 1;
	m.chunk = m.to == 2 ? CHUNK_BF16 : CHUNK_F32;
	m.kind = m.to == 2 ? TILE_BF16_F32 : TILE_F32;
	return m;
}

/* Around the tiles of widened operands, and nothing else: what they do with subnormals. Returns what to restore. */
static unsigned begin_tiles(const form *m)
{
	enum { FTZ = 0x8000, DAZ = 0x0040 };
	unsigned csr = _mm_getcsr();
	if (m->widened)
		_mm_setcsr(csr | FTZ | DAZ);
	return csr;
}

static void end_tiles(const form *m, unsigned csr)
{
	if (m->widened)
		_mm_setcsr(csr);
}

static void set_target(level at)
{
	/* CPX is the level that knows AVX512_BF16; f32 tiles are the same from SKX on. */
	int want = LIBXSMM_X86_AVX2;
	if (at >= AVX512)
		want = __builtin_cpu_supports("avx512bf16") ? LIBXSMM_X86_AVX512_CPX : LIBXSMM_X86_AVX512_CORE;
	libxsmm_init();
	if (libxsmm_get_target_archid() != want)
		libxsmm_set_target_archid(want);
}

static tt_status make_tile(const char *op, tile_kind kind, int64_t n, int64_t k, int64_t ldb, int64_t ldc, bool more, tile *out)
{
	libxsmm_blasint a = WIDE, b = (libxsmm_blasint)ldb, c = (libxsmm_blasint)ldc, nn = (libxsmm_blasint)n,
			kk = (libxsmm_blasint)k;
	float one = 1, beta = more ? 1 : 0;
	int none = LIBXSMM_GEMM_PREFETCH_NONE, plain = LIBXSMM_GEMM_FLAG_NONE, pairs = LIBXSMM_GEMM_FLAG_VNNI_A;
	tile t = {0};
	switch (kind) {
	case TILE_F32: t.smm = libxsmm_smmdispatch(WIDE, nn, kk, &a, &b, &c, &one, &beta, &plain, &none); break;
	case TILE_BF16_F32: t.bsmm = libxsmm_bsmmdispatch(WIDE, nn, kk, &a, &b, &c, &one, &beta, &pairs, &none); break;
	case TILE_BF16: t.bmm = libxsmm_bmmdispatch(WIDE, nn, kk, &a, &b, &c, &one, &beta, &pairs, &none); break;
	}
	if (!t.xmm)
		TT_FAIL(TT_ERR_USAGE,
			"%s: libxsmm made no %s tile of 64x%d over %d (ldb %d, ldc %d, beta %g, target %s); --kernels=ref runs without it",
			op, kind == TILE_F32 ? "f32" : "bf16", nn, kk, b, c, (double)beta, libxsmm_get_target_arch());
	*out = t;
	return TT_OK;
}

/* Tiles of 1..LINES lines into t[1..LINES]. */
static tt_status make_tiles(const char *op, tile_kind kind, int64_t k, int64_t ldb, int64_t ldc, bool more, tile *t)
{
	for (int n = 1; n <= LINES; n++)
		TT_TRY(make_tile(op, kind, n, k, ldb, ldc, more, &t[n]));
	return TT_OK;
}

static inline void call_tile(tile_kind kind, tile t, const void *a, const void *b, void *c)
{
	switch (kind) {
	case TILE_F32: t.smm(a, b, c); break;
	case TILE_BF16_F32: t.bsmm(a, b, c); break;
	case TILE_BF16: t.bmm(a, b, c); break;
	}
}

/* ---- linear, linear_dx: Y[T,n] = X[T,k] times a packed matrix of n features -------------------------------------------- */

/* A piece of the contraction that one call takes. */
typedef struct span {
	int64_t k0, n;
	int segment;
	bool begin;  /* first of its segment */
	tile direct[LINES + 1], scratch[LINES + 1];
} span;

typedef struct forward {
	int64_t k, n;
	form form;
	bool rounded;    /* a `round` was folded in: a zero is +0 */
	bool adds, bias; /* linear_dx_add; linear with a bias */
	tt_tail tail;    /* run on what a task made */
	int64_t unit;    /* panels of a head, if that is more than one: a task has whole heads */
	tt_dtype out;
	tt_format format;
	bool columns;          /* linear_dx: features are columns of the weight, else lines */
	tile_kind kind_direct; /* of the tiles that write Y; those that write scratch have form.kind */
	bool direct;     /* full panels are written straight to Y */
	int threads;
	int nseg; /* 1 or SEGMENTS */
	int nspans;
	span *spans;
	int64_t chunk; /* most of the contraction in a span */
	int64_t block; /* most lines of a task; plain: lines that go through its panels in turn */
	int64_t packed; /* plain: most panels of a task */
	int64_t lane_bytes;
} forward;

/* What a task works with. */
typedef struct forward_lane {
	float *tiles;     /* [SEGMENTS][SUB][64] */
	float *w;         /* a panel that was widened, [k][64], or panels that were packed, [packed][k][64]; else NULL. A span at a time if `once` */
	bool once;        /* a panel is used for one run of lines */
	const uint8_t *x; /* the task's lines as the tiles read them, from line m0 */
	int64_t m0;
} forward_lane;

typedef struct forward_job {
	const forward *f;
	const tt_call *call;
	const uint8_t *x;
	const tt_arg *bias;
	const float *state; /* [lines][n] that Y is added to; NULL: none */
	uint8_t *scratch;
	int64_t lines, block, panels; /* lines; of a task; panels */
	int64_t groups;               /* of panels: a task has one */
} forward_job;

/* What a tile may be asked for: both operands of one dtype, libxsmm's 32-bit sizes. Tokens may be none. */
static bool operands_fit(const tt_value *a, const tt_value *b)
{
	if (a->ndim != 2 || b->ndim != 2 || a->dtype != b->dtype || (a->dtype != TT_F32 && a->dtype != TT_BF16))
		return false;
	for (int i = 0; i < 2; i++)
		if (a->dim[i].n < i || b->dim[i].n < i || a->dim[i].n > 1 << 28 || b->dim[i].n > 1 << 28)
			return false;
	return true;
}

static bool output_fits(const tt_value *y) { return y->dtype == TT_F32 || y->dtype == TT_BF16 || y->dtype == TT_ACC; }

static bool is_dx(const tt_kernel_case *c) { return !strncmp(c->op, "linear_dx", 9); } /* and linear_dx_add */

/* Of `linear` itself, the one that may have segments and a bias. */
static const tt_attr_linear *linear_attr(const tt_kernel_case *c) { return strcmp(c->op, "linear") ? NULL : c->attr; }

/* What a tail takes the columns in. */
static int64_t head_dim(const tt_kernel_case *c)
{
	return strcmp(c->op, "linear_rope") ? 1 : ((const tt_attr_linear_rope *)c->attr)->rope.head_dim;
}

static bool tail_accepts(const tt_kernel_case *c)
{
	return c->nout > 1 ? operands_fit(c->in[0], c->in[2]) : !(WIDE % head_dim(c)) || !(head_dim(c) % WIDE);
}

static bool forward_accepts(const tt_kernel_case *c, tt_dtype dt)
{
	if (!operands_fit(c->in[0], c->in[1]) || c->in[0]->dtype != dt || c->in[1]->dim[0].n < 1 || !output_fits(c->out[0]))
		return false;
	bool pairs = dt == TT_BF16;
	if (pairs && c->in[0]->dim[1].n % 2)
		return false;
	if (is_dx(c))
		return true;
	if (!linear_attr(c))
		return tail_accepts(c);
	if (c->nin > 2 && c->in[2] && c->in[2]->dtype != TT_F32 && c->in[2]->dtype != TT_BF16)
		return false;
	const tt_ints *s = &linear_attr(c)->segments;
	if (s->n != 0 && s->n != 9)
		return false;
	for (int i = 0; i < s->n; i++)
		if (pairs && s->v[i] % 2)
			return false;
	return true;
}

static bool forward_accepts_f32(const tt_kernel_case *c) { return forward_accepts(c, TT_F32); }
static bool forward_accepts_bf16(const tt_kernel_case *c) { return forward_accepts(c, TT_BF16); }

static tt_format forward_format(const tt_kernel_case *c, int i)
{
	if (i < 1 || i > tt_tail_of(c->op, TT_ISA_REF, false).products)
		return TT_PLAIN;
	return is_dx(c) ? TT_PACK_DX : TT_PACK_FWD;
}

/* Sizes that both `scratch` and `plan` need. */
static forward forward_of(const tt_kernel_case *c, level at, bool plain)
{
	forward f = {.k = c->in[0]->dim[1].n, .n = c->in[1]->dim[is_dx(c) ? 1 : 0].n, .form = form_of(c->in[0], at)};
	f.form.plain = plain;
	f.format = plain ? TT_PLAIN : forward_format(c, 1);
	f.columns = is_dx(c);
	f.tail = tt_tail_of(c->op, at == AVX2 ? TT_ISA_AVX2 : TT_ISA_AVX512, false);
	f.unit = TT_MAX(1, head_dim(c) / WIDE);
	f.threads = TT_MAX(c->threads, 1);
	f.chunk = !f.form.widened ? f.form.chunk : c->in[0]->dim[0].n > SUB ? CHUNK_WIDENED : CHUNK_FEW;
	f.block = BLOCK;
	f.lane_bytes = SEGMENTS * SUB * WIDE * (int64_t)sizeof(float);
	if (f.form.widened) {
		f.block = TT_MIN(BLOCK, TT_MAX(SUB, WIDENED / f.k / SUB * SUB));
		f.lane_bytes += tt_round_up((WIDE + f.block) * f.k * f.form.to, 64);
	}
	if (plain) {
		int64_t panels = tt_ceil_div(f.n, WIDE);
		f.block = TURN;
		f.packed = tt_ceil_div(panels, TT_MIN(panels, tt_round_up(tt_ceil_div(panels, PACKED), f.threads)));
		f.lane_bytes += f.packed * WIDE * f.k * f.form.to;
	}
	return f;
}

static size_t forward_scratch(const tt_kernel_case *c, level at, bool plain)
{
	forward f = forward_of(c, at, plain);
	return (size_t)(f.threads * f.lane_bytes);
}

static tt_status forward_plan(const tt_kernel_case *c, tt_arena *a, level at, bool plain, const void **out)
{
	set_target(at);
	bool dx = is_dx(c);
	const tt_attr_linear *linear = linear_attr(c);
	forward *f = TT_NEW(a, forward);
	*f = forward_of(c, at, plain);
	f->rounded = dx ? ((const tt_attr_linear_dx *)c->attr)->rounded : linear && linear->rounded;
	f->bias = linear && c->nin > 2 && c->in[2];
	f->adds = dx && c->nin > 2;
	f->out = c->out[0]->dtype;
	f->kind_direct = f->form.kind;

	const int64_t whole[2] = {0, f->k};
	const tt_ints *s = linear ? &linear->segments : NULL;
	int nseg = f->nseg = s && s->n ? SEGMENTS : 1;
	const int64_t *edge = nseg == SEGMENTS ? s->v : whole;
	int64_t most = f->chunk, pair = f->form.pair, nspans = 0, cap = 0;
	for (int i = 0; i < nseg; i++) {
		/* Equal chunks, in whole pairs; an empty segment is one empty span. */
		int64_t units = (edge[i + 1] - edge[i]) / pair, cuts = TT_MAX(1, tt_ceil_div(units * pair, most));
		for (int64_t j = 0; j < cuts; j++) {
			span p = {.segment = i, .begin = j == 0};
			p.k0 = edge[i] + tt_deal(units, j, cuts) * pair;
			p.n = edge[i] + tt_deal(units, j + 1, cuts) * pair - p.k0;
			TT_PUSH(a, f->spans, nspans, cap, p);
		}
	}
	f->nspans = (int)nspans;
	if (f->out != TT_BF16) {
		f->direct = nseg == 1 && !f->adds;
	} else if (f->form.to == 2 && nspans == 1 && !f->bias && !f->adds) {
		f->direct = true;
		f->kind_direct = TILE_BF16;
	}
	for (int i = 0; i < f->nspans; i++) {
		span *p = &f->spans[i];
		if (p->n == 0)
			continue;
		if (f->direct && f->n >= WIDE)
			TT_TRY(make_tiles(c->op, f->kind_direct, p->n, f->k, f->n, !p->begin, p->direct));
		if (!f->direct || f->n % WIDE)
			TT_TRY(make_tiles(c->op, f->form.kind, p->n, f->k, WIDE, !p->begin, p->scratch));
	}
	*out = f;
	return TT_OK;
}

/* n pairs of bf16, each as two floats: the odd one, then the even one. */
static WIDER void widen_along(const tt_bf16 *restrict from, int64_t n, float *restrict to)
{
	for (int64_t i = 0; i < n; i++) {
		uint32_t pair;
		memcpy(&pair, from + 2 * i, sizeof pair);
		uint64_t both = (pair & 0xffff0000u) | (uint64_t)pair << 48;
		memcpy(to + 2 * i, &both, sizeof both);
	}
}

/* n lines of pairs [n][64][2] as [2n][64] floats: a line of odd ones, then one of even ones. */
static WIDER void widen_panel(const tt_bf16 *restrict from, int64_t n, float *restrict to)
{
	const __m256i high = _mm256_set1_epi32((int)0xffff0000u);
	for (int64_t i = 0; i < n; i++, from += 2 * WIDE, to += 2 * WIDE)
		for (int j = 0; j < WIDE; j += 8) {
			__m256i pairs = _mm256_loadu_si256((const __m256i *)(from + 2 * j));
			_mm256_storeu_si256((__m256i *)(to + j), _mm256_and_si256(pairs, high));
			_mm256_storeu_si256((__m256i *)(to + WIDE + j), _mm256_slli_epi32(pairs, 16));
		}
}

static WIDER void load_bias(const tt_arg *bias, int64_t n0, int64_t nn, float *restrict b)
{
	if (bias->dtype == TT_BF16)
		for (int64_t j = 0; j < nn; j++)
			b[j] = tt_bf16_to_f32(((const tt_bf16 *)bias->p)[n0 + j]);
	else
		memcpy(b, (const float *)bias->p + n0, (size_t)nn * sizeof(float));
}

/* v[nseg][SUB][64] to Y at `y`: segments joined, bias added, or all of it to `state`; rounded once. */
static WIDER void store_scratch(const forward *f, int64_t lines, int64_t nn, const float *restrict v, const float *restrict bias,
				const float *restrict state, void *restrict y)
{
	enum { S = SUB * WIDE };
	for (int64_t i = 0; i < lines; i++, v += WIDE) {
		float t[WIDE];
		for (int j = 0; j < WIDE; j++)
			t[j] = v[j];
		if (f->nseg == SEGMENTS)
			for (int j = 0; j < WIDE; j++)
				t[j] = ((v[j] + v[j + S]) + (v[j + 2 * S] + v[j + 3 * S])) +
				       ((v[j + 4 * S] + v[j + 5 * S]) + (v[j + 6 * S] + v[j + 7 * S]));
		for (int j = 0; bias && j < WIDE; j++)
			t[j] += bias[j];
		for (int j = 0; state && j < nn; j++)
			t[j] = state[i * f->n + j] + t[j];
		for (int j = 0; f->rounded && j < WIDE; j++)
			t[j] += 0;
		if (f->out == TT_BF16) {
			tt_bf16 h[WIDE];
			for (int j = 0; j < WIDE; j++)
				h[j] = tt_f32_to_bf16(t[j]);
			memcpy((tt_bf16 *)y + i * f->n, h, (size_t)nn * sizeof *h);
		} else {
			memcpy((float *)y + i * f->n, t, (size_t)nn * sizeof *t);
		}
	}
}

/* What is left to do where tiles wrote Y itself. A bf16 -0 is always an f32 -0 here: sums of bf16 products are never
 * subnormal, and no normal f32 is so small that bf16 would make it zero. */
static WIDER void finish_direct(const forward *f, int64_t lines, const float *restrict bias, void *y)
{
	for (int64_t i = 0; i < lines; i++) {
		float *restrict v = (float *)y + i * f->n;
		tt_bf16 *restrict h = (tt_bf16 *)y + i * f->n;
		if (f->out == TT_BF16) {
			for (int j = 0; f->rounded && j < WIDE; j++)
				h[j] = h[j] == 0x8000 ? 0 : h[j];
			continue;
		}
		for (int j = 0; bias && j < WIDE; j++)
			v[j] += bias[j];
		for (int j = 0; f->rounded && j < WIDE; j++)
			v[j] += 0;
	}
}

/* A span of a panel as f32, from a weight that lies otherwise, into the task's own [k][64] at w. */
static const uint8_t *make_panel(const forward_job *g, const void *weight, int64_t panel, const span *p, int64_t m0, const forward_lane *own,
				 float *w)
{
	const forward *f = g->f;
	bool fresh = m0 == own->m0;
	float *to = w + (own->once ? 0 : p->k0 * WIDE);
	int64_t nf = TT_MIN(WIDE, f->n - panel * WIDE);
	if (fresh && f->form.widened)
		widen_panel((const tt_bf16 *)weight + (panel * f->k + p->k0) * WIDE, p->n / 2, to);
	else if (fresh && f->columns)
		tt_panel_copy((const float *)weight + p->k0 * f->n + panel * WIDE, f->n, nf, p->n, to);
	else if (fresh)
		tt_panel_turn((const float *)weight + panel * WIDE * f->k + p->k0, f->k, nf, p->n, to);
	return (const uint8_t *)to;
}

/* Lines [m0, m0+lines), lines <= SUB, of one panel of product j. The task's first lines make the panel, just ahead of its use, where it does
 * not lie ready. */
static void forward_sub(const forward_job *g, int j, int64_t panel, int64_t m0, int64_t lines, const float *bias, const forward_lane *own,
			float *own_w)
{
	const forward *f = g->f;
	const form *m = &f->form;
	int64_t ysize = f->out == TT_BF16 ? 2 : 4, nn = TT_MIN(WIDE, f->n - panel * WIDE);
	bool direct = f->direct && nn == WIDE;
	const uint8_t *weight = g->call->in[1 + j].p, *w = weight + panel * WIDE * f->k * m->from;
	const uint8_t *x = own->x + (m0 - own->m0) * f->k * m->to;
	uint8_t *y = (uint8_t *)g->call->out[j].p + (m0 * f->n + panel * WIDE) * ysize;
	tile_kind kind = direct ? f->kind_direct : m->kind;
	int64_t step = direct ? f->n * ysize : WIDE * (int64_t)sizeof(float);
	unsigned csr = begin_tiles(m);
	for (int s = 0; s < f->nspans; s++) {
		const span *p = &f->spans[s];
		const tile *tiles = direct ? p->direct : p->scratch;
		uint8_t *to = direct ? y : (uint8_t *)(own->tiles + p->segment * SUB * WIDE);
		const uint8_t *panel_w = w + p->k0 * WIDE * m->from, *line_x = x + p->k0 * m->to;
		if (own_w)
			panel_w = make_panel(g, weight, panel, p, m0, own, own_w);
		if (p->n == 0)
			memset(to, 0, (size_t)(lines * WIDE) * sizeof(float));
		else
			for (int64_t i = 0; i < lines; i += LINES)
				call_tile(kind, tiles[TT_MIN(LINES, lines - i)], panel_w, line_x + i * f->k * m->to, to + i * step);
	}
	end_tiles(m, csr);
	if (!direct)
		store_scratch(f, lines, nn, own->tiles, bias, g->state ? g->state + m0 * f->n + panel * WIDE : NULL, y);
	else if (bias || f->rounded)
		finish_direct(f, lines, bias, y);
}

static void forward_task(void *ctx, int64_t task, int lane)
{
	const forward_job *g = ctx;
	const forward *f = g->f;
	int64_t m0 = task / g->groups * g->block, m1 = TT_MIN(g->lines, m0 + g->block);
	int64_t units = g->panels / f->unit, group = task % g->groups;
	int64_t p0 = tt_deal(units, group, g->groups) * f->unit, p1 = tt_deal(units, group + 1, g->groups) * f->unit;
	int64_t turn = f->form.plain ? f->block : m1 - m0, own_step = f->form.plain ? WIDE * f->k : 0;
	float bias[WIDE] = {0};
	forward_lane own = {.tiles = (float *)(g->scratch + lane * f->lane_bytes), .x = g->x + m0 * f->k * f->form.from, .m0 = m0};
	if (f->form.widened || f->form.plain)
		own.w = own.tiles + SEGMENTS * SUB * WIDE;
	own.once = m1 - m0 <= SUB;
	if (f->form.widened) {
		float *x = own.w + WIDE * f->k;
		widen_along((const tt_bf16 *)own.x, (m1 - m0) * f->k / 2, x);
		own.x = (const uint8_t *)x;
	}
	for (int64_t t0 = m0; t0 < m1; t0 += turn)
		for (int64_t p = p0; p < p1; p++) {
			int64_t t1 = TT_MIN(m1, t0 + turn);
			if (g->bias)
				load_bias(g->bias, p * WIDE, TT_MIN(WIDE, f->n - p * WIDE), bias);
			for (int j = 0; j < f->tail.products; j++)
				for (int64_t m = t0; m < t1; m += SUB)
					forward_sub(g, j, p, m, TT_MIN(SUB, t1 - m), g->bias ? bias : NULL, &own,
						    own.w ? own.w + (p - p0) * own_step : NULL);
		}
	if (f->tail.run)
		tt_tail_run(&f->tail, g->call, true, m0, m1 - m0, p0 * WIDE, TT_MIN(f->n, p1 * WIDE) - p0 * WIDE);
}

/* Lines first, in blocks of at least SUB; where they do not occupy every thread, panels too. */
static int64_t deal_lines(forward_job *g, int threads)
{
	int64_t cuts = TT_MAX(1, TT_MIN(threads, g->lines / SUB));
	cuts = tt_round_up(TT_MAX(cuts, tt_ceil_div(g->lines, g->f->block)), cuts);
	g->block = tt_round_up(tt_ceil_div(g->lines, cuts), LINES);
	cuts = tt_ceil_div(g->lines, g->block);
	g->groups = cuts >= threads ? 1 : TT_MIN(g->panels / g->f->unit, tt_ceil_div(4 * threads, cuts));
	return cuts * g->groups;
}

/* Panels first, each over all lines, so that it is packed once; lines too where threads would idle for more than an eighth. */
static int64_t deal_panels(forward_job *g, int threads)
{
	g->groups = tt_ceil_div(g->panels, g->f->packed);
	int64_t cuts = 1, most = g->lines / LEAST;
	while (cuts < most && 8 * (tt_round_up(g->groups * cuts, threads) - g->groups * cuts) > g->groups * cuts)
		cuts++;
	g->block = tt_round_up(tt_ceil_div(g->lines, cuts), LINES);
	return tt_ceil_div(g->lines, g->block) * g->groups;
}

static void forward_run(const tt_call *c)
{
	const forward *f = c->plan;
	const tt_arg *x = &c->in[0], *w = &c->in[1], *y = &c->out[0];
	int threads = tt_pool_threads(c->env->pool);
	TT_ASSERT(threads <= f->threads, "planned for %d threads, run with %d", f->threads, threads);
	TT_ASSERT(w->format == f->format, "weight lies as %d, planned for %d", (int)w->format, (int)f->format);
	TT_ASSERT(x->n[1] == f->k && x->ld == f->k && y->n[1] == f->n && y->ld == f->n && y->dtype == f->out,
		  "planned for k %lld, n %lld", (long long)f->k, (long long)f->n);
	forward_job g = {.f = f, .call = c, .x = x->p, .scratch = c->scratch, .lines = x->n[0]};
	g.bias = f->bias ? &c->in[2] : NULL;
	g.state = f->adds ? c->in[2].p : NULL;
	g.panels = tt_ceil_div(f->n, WIDE);
	if (g.lines == 0)
		return;
	int64_t tasks = f->form.plain ? deal_panels(&g, threads) : deal_lines(&g, threads);
	tt_pool_run(c->env->pool, tasks, forward_task, &g);
}

/* ---- linear_dw: dW[o,k] = dY^T[o,T] X[T,k] ------------------------------------------------------------------------------
 * The contraction runs over tokens, in chunks: of X a chunk is packed into panels, of dY a chunk of DY features at a time is
 * transposed, both into a thread's own scratch (sharing the packing behind a barrier was slower). Threads own parts of dW.
 * T is known only when it runs: what a full chunk leaves over is taken by tiles of halving powers of two with beta = 1.
 *
 * linear_dw_acc adds to an accumulator: the chain is from zero all the same, so its tile is kept apart, in cache, until its last chunk
 * is done. Where tokens take more than one chunk, tiles of OPEN lines at a time stay open. */

enum { DY = 384, GROUP = 16, PIECES = 12, OPEN = 4 * DY };

typedef struct weights {
	int64_t o, k;
	form form;
	int threads;
	int64_t chunk;   /* tokens; all that were planned if they fit */
	int64_t ld;      /* of transposed dY; past a power of two, which would fill few sets of the cache */
	int npieces;
	bool adds;       /* linear_dw_acc */
	int64_t piece[PIECES];               /* the chunk, then the powers of two below it, down to 1 (bf16: 2) */
	tile fresh[2][LINES + 1];            /* beta 0, a full chunk; [0] C in place, [1] C in a scratch tile */
	tile more[2][PIECES][LINES + 1];     /* beta 1 */
	int64_t groups, group;               /* panels of a task */
	int64_t open;                        /* floats of a lane's open tiles, [panel][lines][64] */
	int64_t lane_bytes;
} weights;

typedef struct weights_job {
	const weights *f;
	const uint8_t *x, *dy;
	float *dw;
	const float *state;  /* what the sums are added to; NULL: they are stored */
	uint8_t *scratch;
	int64_t tokens;
	int64_t parts, part; /* cuts of o; lines of each */
} weights_job;

static bool adds(const tt_kernel_case *c) { return !strcmp(c->op, "linear_dw_acc"); }

static bool weights_accepts(const tt_kernel_case *c, tt_dtype dt)
{
	const tt_value *const *in = c->in + adds(c);
	return operands_fit(in[0], in[1]) && in[0]->dtype == dt &&
	       (c->out[0]->dtype == TT_ACC || c->out[0]->dtype == TT_F32);
}

static bool weights_accepts_f32(const tt_kernel_case *c) { return weights_accepts(c, TT_F32); }
static bool weights_accepts_bf16(const tt_kernel_case *c) { return weights_accepts(c, TT_BF16); }

/* Sizes that both `scratch` and `plan` need. */
static weights weights_of(const tt_kernel_case *c, level at)
{
	const tt_value *const *in = c->in + adds(c);
	weights f = {.o = in[0]->dim[1].n, .k = in[1]->dim[1].n, .form = form_of(in[0], at), .adds = adds(c)};
	f.threads = TT_MAX(c->threads, 1);
	int64_t tokens = in[0]->dim[0].n;
	f.chunk = f.piece[f.npieces++] = TT_MIN(f.form.chunk, TT_MAX(2, tt_round_up(tokens, 2)));
	f.ld = f.chunk + 32;
	for (int64_t n = f.form.chunk / 2; n >= f.form.pair; n /= 2)
		if (n < f.chunk)
			f.piece[f.npieces++] = n;
	int64_t panels = tt_ceil_div(f.k, WIDE);
	f.groups = tt_round_up(tt_ceil_div(panels, GROUP), TT_MIN(panels, f.threads));
	f.group = tt_ceil_div(panels, TT_MIN(f.groups, panels));
	f.groups = tt_ceil_div(panels, f.group);
	int64_t esize = f.form.to;
	if (f.adds && tokens > f.chunk)
		f.open = f.group * TT_MIN(OPEN, tt_round_up(f.o, LINES)) * WIDE;
	f.lane_bytes = tt_round_up(f.group * f.chunk * WIDE * esize + DY * f.ld * esize + (LINES * WIDE + f.open) * 4, 64);
	return f;
}

static size_t weights_scratch(const tt_kernel_case *c, level at)
{
	weights f = weights_of(c, at);
	return (size_t)(f.lane_bytes * f.threads);
}

static tt_status weights_plan(const tt_kernel_case *c, tt_arena *a, level at, const void **out)
{
	set_target(at);
	weights *f = TT_NEW(a, weights);
	*f = weights_of(c, at);
	for (int s = 0; s < 2; s++) {
		if (s == 0 ? f->k < WIDE : f->k % WIDE == 0 && !f->adds)
			continue;
		int64_t ldc = s ? WIDE : f->k;
		TT_TRY(make_tiles(c->op, f->form.kind, f->chunk, f->ld, ldc, false, f->fresh[s]));
		for (int i = 0; i < f->npieces; i++)
			TT_TRY(make_tiles(c->op, f->form.kind, f->piece[i], f->ld, ldc, true, f->more[s][i]));
	}
	*out = f;
	return TT_OK;
}

/* X[t0.., panel] of n tokens into [n][64], or pairs of tokens [n/2][64][2]; columns past nf and the partner of an odd last token
 * are zero. `ahead`: lines to fetch early, a panel's lines being far apart. */
static WIDER void pack_x_f32(const float *x, int64_t ld, int64_t n, int64_t nf, float *restrict to)
{
	enum { AHEAD = 8 };
	for (int64_t t = 0; t < n; t++, to += WIDE) {
		const float *restrict s = x + t * ld;
		if (t + AHEAD < n)
			for (int j = 0; j < nf; j += 16)
				__builtin_prefetch(s + AHEAD * ld + j);
		if (nf == WIDE) {
			memcpy(to, s, WIDE * sizeof *to);
		} else {
			memset(to, 0, WIDE * sizeof *to);
			memcpy(to, s, (size_t)nf * sizeof *to);
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

#define DEFINE_PACK_X(name, dst, two)                                                                                  \
	static WIDER void name(const tt_bf16 *x, int64_t ld, int64_t n, int64_t nf, dst *restrict to)                  \
	{                                                                                                              \
		enum { AHEAD = 8 };                                                                                    \
		static const tt_bf16 zero[WIDE];                                                                       \
		for (int64_t t = 0; t < n; t += 2, to += 2 * WIDE) {                                                   \
			const tt_bf16 *a = x + t * ld, *b = t + 1 < n ? a + ld : zero;                                 \
			if (t + AHEAD + 1 < n)                                                                         \
				for (int j = 0; j < nf; j += 32) {                                                     \
					__builtin_prefetch(a + AHEAD * ld + j);                                        \
					__builtin_prefetch(b + AHEAD * ld + j);                                        \
				}                                                                                      \
			if (nf == WIDE) {                                                                              \
				two(a, b, to);                                                                         \
			} else {                                                                                       \
				tt_bf16 ta[WIDE] = {0}, tb[WIDE] = {0};                                                \
				memcpy(ta, a, (size_t)nf * sizeof *a);                                                 \
				memcpy(tb, b, (size_t)nf * sizeof *b);                                                 \
				two(ta, tb, to);                                                                       \
			}                                                                                              \
		}                                                                                                      \
	}
DEFINE_PACK_X(pack_x_bf16, tt_bf16, interleave)
DEFINE_PACK_X(pack_x_widened, float, widen_two)

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

/* 8 x 8 of s (lines lds apart) likewise. */
static WIDER void transpose8_f32(const float *s, int64_t lds, float *d, int64_t ldd)
{
	__m256 r[8];
	for (int i = 0; i < 8; i++)
		r[i] = _mm256_loadu_ps(s + i * lds);
	turn8(r, d, ldd);
}

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

/* dY[n tokens][no] to [no][ld], tokens adjacent, the two of a pair swapped if `flip`. With pairs the partner of an odd last token
 * is zero. */
#define DEFINE_TRANSPOSE(name, src, dst, eight, conv, line, pairs, flip)                                               \
	static WIDER void name(const src *dy, int64_t lds, int64_t n, int64_t no, int64_t ld, dst *restrict to)        \
	{                                                                                                              \
		enum { AHEAD = 32 };                                                                                   \
		int64_t t = 0;                                                                                         \
		for (; t + 8 <= n; t += 8) {                                                                           \
			int64_t o = 0;                                                                                 \
			for (; o + 8 <= no; o += 8) {                                                                  \
				if (o % (line) == 0 && t + AHEAD + 8 <= n)                                             \
					for (int i = 0; i < 8; i++)                                                    \
						__builtin_prefetch(dy + (t + AHEAD + i) * lds + o);                    \
				eight(dy + t * lds + o, lds, to + o * ld + t, ld);                                     \
			}                                                                                              \
			for (; o < no; o++)                                                                            \
				for (int64_t i = t; i < t + 8; i++)                                                    \
					to[o * ld + (i ^ (flip))] = conv(dy[i * lds + o]);                             \
		}                                                                                                      \
		for (; t < n; t++)                                                                                     \
			for (int64_t o = 0; o < no; o++)                                                               \
				to[o * ld + (t ^ (flip))] = conv(dy[t * lds + o]);                                     \
		if ((pairs) && n % 2)                                                                                  \
			for (int64_t o = 0; o < no; o++)                                                               \
				to[o * ld + (n ^ (flip))] = 0;                                                         \
	}
#define SAME(x) (x)
DEFINE_TRANSPOSE(transpose_f32, float, float, transpose8_f32, SAME, 16, false, 0)
DEFINE_TRANSPOSE(transpose_bf16, tt_bf16, tt_bf16, transpose8_bf16, SAME, 32, true, 0)
DEFINE_TRANSPOSE(transpose_widened, tt_bf16, float, transpose8_widened, tt_bf16_to_f32, 32, true, 1)

/* One tile of dW over a chunk of n tokens (whole pairs in bf16). c[lines][ldc]; `first`: from +0. */
static void weights_tile(const weights *f, int s, int64_t n, bool first, int64_t lines, const uint8_t *a, const uint8_t *b, float *c,
			 int64_t ldc)
{
	int64_t esize = f->form.to;
	if (n == f->chunk) {
		call_tile(f->form.kind, (first ? f->fresh[s] : f->more[s][0])[lines], a, b, c);
		return;
	}
	if (first)
		for (int64_t i = 0; i < lines; i++)
			memset(c + i * ldc, 0, WIDE * sizeof *c);
	for (int i = 1; i < f->npieces; i++)
		if (n & f->piece[i]) {
			call_tile(f->form.kind, f->more[s][i][lines], a, b, c);
			a += f->piece[i] * WIDE * esize;
			b += f->piece[i] * esize;
		}
}

static void copy_lines(int64_t lines, int64_t n, float *to, int64_t ldt, const float *from, int64_t ldf)
{
	for (int64_t i = 0; i < lines; i++)
		memcpy(to + i * ldt, from + i * ldf, (size_t)n * sizeof *to);
}

static WIDER void add_lines(int64_t lines, int64_t n, float *to, const float *state, int64_t ld, const float *sums)
{
	for (int64_t i = 0; i < lines; i++, to += ld, state += ld, sums += WIDE)
		for (int64_t j = 0; j < n; j++)
			to[j] = state[j] + sums[j];
}

/* A panel of dW over one chunk of n tokens. */
typedef struct weights_chunk {
	int64_t n;
	bool first, last;
	const uint8_t *x;   /* the panel's, packed */
	const uint8_t *dyt; /* of the lines, transposed */
	float *edge;        /* a tile */
	float *open;        /* the lines' open tiles; NULL: there is one chunk, and the edge does */
} weights_chunk;

/* Lines [o0, o0+no) of it. */
static void weights_panel(const weights_job *g, int64_t panel, int64_t o0, int64_t no, const weights_chunk *h)
{
	const weights *f = g->f;
	int64_t esize = f->form.to, nf = TT_MIN(WIDE, f->k - panel * WIDE);
	unsigned csr = begin_tiles(&f->form);
	for (int64_t i = 0; i < no; i += LINES) {
		int64_t lines = TT_MIN(LINES, no - i), at = (o0 + i) * f->k + panel * WIDE;
		float *c = g->dw + at;
		const uint8_t *dyt = h->dyt + i * f->ld * esize;
		if (g->state) {
			float *sums = h->open ? h->open + i * WIDE : h->edge;
			weights_tile(f, 1, h->n, h->first, lines, h->x, dyt, sums, WIDE);
			if (h->last) {
				end_tiles(&f->form, csr);
				add_lines(lines, nf, c, g->state + at, f->k, sums);
				csr = begin_tiles(&f->form);
			}
			continue;
		}
		if (nf == WIDE) {
			weights_tile(f, 0, h->n, h->first, lines, h->x, dyt, c, f->k);
			continue;
		}
		if (!h->first) {
			memset(h->edge, 0, LINES * WIDE * sizeof *h->edge);
			copy_lines(lines, nf, h->edge, WIDE, c, f->k);
		}
		weights_tile(f, 1, h->n, h->first, lines, h->x, dyt, h->edge, WIDE);
		copy_lines(lines, nf, c, f->k, h->edge, WIDE);
	}
	end_tiles(&f->form, csr);
}

static void weights_task(void *ctx, int64_t task, int lane)
{
	const weights_job *g = ctx;
	const weights *f = g->f;
	const form *m = &f->form;
	int64_t panels = tt_ceil_div(f->k, WIDE);
	int64_t p0 = task / g->parts * f->group, p1 = TT_MIN(panels, p0 + f->group);
	int64_t o0 = task % g->parts * g->part, o1 = TT_MIN(f->o, o0 + g->part);
	uint8_t *xp = g->scratch + lane * f->lane_bytes, *dyt = xp + f->group * f->chunk * WIDE * m->to;
	weights_chunk h = {.dyt = dyt, .edge = (float *)(dyt + DY * f->ld * m->to)};
	float *open = g->state && g->tokens > f->chunk ? h.edge + LINES * WIDE : NULL;
	for (int64_t t0 = 0; t0 < g->tokens; t0 += f->chunk) {
		int64_t n = TT_MIN(f->chunk, g->tokens - t0);
		for (int64_t p = p0; p < p1; p++) {
			const void *x = g->x + (t0 * f->k + p * WIDE) * m->from;
			void *to = xp + (p - p0) * f->chunk * WIDE * m->to;
			int64_t nf = TT_MIN(WIDE, f->k - p * WIDE);
			if (m->widened)
				pack_x_widened(x, f->k, n, nf, to);
			else if (m->bf16)
				pack_x_bf16(x, f->k, n, nf, to);
			else
				pack_x_f32(x, f->k, n, nf, to);
		}
		for (int64_t o = o0; o < o1; o += DY) {
			int64_t no = TT_MIN(DY, o1 - o);
			const void *dy = g->dy + (t0 * f->o + o) * m->from;
			if (m->widened)
				transpose_widened(dy, f->o, n, no, f->ld, (float *)dyt);
			else if (m->bf16)
				transpose_bf16(dy, f->o, n, no, f->ld, (tt_bf16 *)dyt);
			else
				transpose_f32(dy, f->o, n, no, f->ld, (float *)dyt);
			h.n = tt_round_up(n, m->pair);
			h.first = t0 == 0;
			h.last = t0 + n == g->tokens;
			for (int64_t p = p0; p < p1; p++) {
				h.x = xp + (p - p0) * f->chunk * WIDE * m->to;
				h.open = open ? open + ((p - p0) * (o1 - o0) + o - o0) * WIDE : NULL;
				weights_panel(g, p, o, no, &h);
			}
		}
	}
}

static void weights_run(const tt_call *c)
{
	const weights *f = c->plan;
	const tt_arg *dy = &c->in[f->adds], *x = dy + 1, *dw = &c->out[0];
	int threads = tt_pool_threads(c->env->pool);
	TT_ASSERT(threads <= f->threads, "planned for %d threads, run with %d", f->threads, threads);
	TT_ASSERT(dy->n[1] == f->o && dy->ld == f->o && x->n[1] == f->k && x->ld == f->k && dw->ld == f->k && dy->n[0] == x->n[0],
		  "planned for o %lld, k %lld", (long long)f->o, (long long)f->k);
	weights_job g = {.f = f, .x = x->p, .dy = dy->p, .dw = dw->p, .scratch = c->scratch, .tokens = dy->n[0]};
	if (f->adds && !(c->env->first && ((const tt_attr_accumulate *)c->attr)->first))
		g.state = c->in[0].p;
	if (g.tokens == 0) {
		for (int64_t i = 0; i < f->o * f->k; i++)
			g.dw[i] = g.state ? g.state[i] + 0 : 0;
		return;
	}
	/* Panels are dealt first; where they do not occupy every thread, lines of dW too. */
	g.parts = f->groups >= threads ? 1 : TT_MIN(tt_ceil_div(threads, f->groups), tt_ceil_div(f->o, LINES));
	if (g.state && g.tokens > f->chunk)
		g.parts = TT_MAX(g.parts, tt_ceil_div(f->o, OPEN));
	g.part = tt_round_up(tt_ceil_div(f->o, g.parts), LINES);
	g.parts = tt_ceil_div(f->o, g.part);
	tt_pool_run(c->env->pool, f->groups * g.parts, weights_task, &g);
}

/* Many lines: to pack in the call costs 2% of the product at 2,048 lines, 3.4% at 1,024, 4.5% at 512, 10% at 256 (one core, AVX-512); no copy of
 * the weight is kept for either direction, nor made by PREP. */
static bool forward_accepts_many(const tt_kernel_case *c) { return forward_accepts(c, TT_F32) && c->in[0]->dim[0].n >= MANY; }

/* Rows know their level; the functions of a row are told only the case. */
#define FORWARD_AT(level, plain, suffix)                                                                               \
	static size_t forward_scratch_##suffix(const tt_kernel_case *c) { return forward_scratch(c, level, plain); }   \
	static tt_status forward_plan_##suffix(const tt_kernel_case *c, tt_arena *a, const void **out)                 \
	{                                                                                                              \
		TT_TRY(forward_plan(c, a, level, plain, out));                                                         \
		return TT_OK;                                                                                          \
	}
#define WEIGHTS_AT(level, suffix)                                                                                      \
	static size_t weights_scratch_##suffix(const tt_kernel_case *c) { return weights_scratch(c, level); }          \
	static tt_status weights_plan_##suffix(const tt_kernel_case *c, tt_arena *a, const void **out)                 \
	{                                                                                                              \
		TT_TRY(weights_plan(c, a, level, out));                                                                \
		return TT_OK;                                                                                          \
	}
FORWARD_AT(AVX2, false, avx2)
FORWARD_AT(AVX2, true, avx2_plain)
FORWARD_AT(AVX512, false, avx512)
FORWARD_AT(AVX512, true, avx512_plain)
FORWARD_AT(AVX512_BF16, false, avx512_bf16)
WEIGHTS_AT(AVX2, avx2)
WEIGHTS_AT(AVX512, avx512)
WEIGHTS_AT(AVX512_BF16, avx512_bf16)

#define FORWARD(dt, accepts, format, isa, at)                                                                          \
	{"linear", "xsmm-" #dt "-" #at, isa, forward_accepts_##accepts, format, forward_scratch_##at, forward_plan_##at, forward_run}, \
	{"linear_dx", "xsmm-" #dt "-" #at, isa, forward_accepts_##accepts, format, forward_scratch_##at, forward_plan_##at, forward_run}, \
	{"linear_dx_add", "xsmm-" #dt "-" #at, isa, forward_accepts_##accepts, format, forward_scratch_##at, forward_plan_##at, forward_run}
#define TAILS(dt, isa, at)                                                                                             \
	{"linear_silu_mul", "xsmm-" #dt "-" #at, isa, forward_accepts_##dt, forward_format, forward_scratch_##at, forward_plan_##at, forward_run}, \
	{"linear_rope", "xsmm-" #dt "-" #at, isa, forward_accepts_##dt, forward_format, forward_scratch_##at, forward_plan_##at, forward_run}
#define WEIGHTS(dt, isa, at)                                                                                           \
	{"linear_dw", "xsmm-" #dt "-" #at, isa, weights_accepts_##dt, NULL, weights_scratch_##at, weights_plan_##at, weights_run}, \
	{"linear_dw_acc", "xsmm-" #dt "-" #at, isa, weights_accepts_##dt, NULL, weights_scratch_##at, weights_plan_##at, weights_run}
/* In this order: few lines want a packed weight, but a node that finds it plain (another graph's wish) is no worse off than the
 * one that asked. No tails on plain weights: panels come first there, and lines have left the cache when a task ends. */
#define F32(isa, at)                                                                                                   \
	FORWARD(f32, many, NULL, isa, at##_plain), FORWARD(f32, f32, forward_format, isa, at),                         \
	FORWARD(f32, f32, NULL, isa, at##_plain), TAILS(f32, isa, at), WEIGHTS(f32, isa, at)
#define BF16(isa, at) FORWARD(bf16, bf16, forward_format, isa, at), TAILS(bf16, isa, at), WEIGHTS(bf16, isa, at)

const tt_override tt_overrides_xsmm[] = {
	BF16(TT_ISA_AVX512_BF16, avx512_bf16),
	BF16(TT_ISA_AVX512, avx512),
	F32(TT_ISA_AVX512, avx512),
	BF16(TT_ISA_AVX2, avx2),
	F32(TT_ISA_AVX2, avx2),
	{0},
};

#else

const tt_override tt_overrides_xsmm[] = {{0}};

#endif
