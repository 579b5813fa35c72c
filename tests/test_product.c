/* product: linear, linear_dx, linear_dw and pack.
 *
 * Three links of one chain: VDPBF16PS equals the scalar model below; the reference kernels of every set equal the model;
 * the libxsmm kernels equal the reference. Always bit for bit. JIT code is invisible to the sanitizers, so every operand ends
 * at a page that must not be touched, and begins after one where it fills its pages.
 */
#define _GNU_SOURCE
#include "kernels/exact.h"
#include "kernels/panel.h"
#include "test.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

#ifndef TT_NO_X86
#include <immintrin.h>
#endif

/* ---- inputs --------------------------------------------------------------------------------------------------------- */

static uint64_t rnd(uint64_t *s)
{
	uint64_t z = (*s += UINT64_C(0x9e3779b97f4a7c15));
	z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
	z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
	return z ^ (z >> 31);
}

static float from_bits(uint32_t u)
{
	float f;
	memcpy(&f, &u, 4);
	return f;
}

typedef enum fill { FILL_PLAIN, FILL_TINY, FILL_HUGE } fill;

/* FILL_PLAIN: all 24 bits, in (-1, 1). FILL_TINY: exponents whose products lie around the smallest normal number, with zeros and
 * subnormals among them. FILL_HUGE: of which one product in some hundreds overflows, so that sums end as infinities of both signs,
 * as NaN (an infinity less another: the NaN of the hardware, one pattern) and as numbers. */
static float value(uint64_t *s, fill f)
{
	uint64_t r = rnd(s);
	if (f == FILL_PLAIN)
		return (float)((double)(int64_t)(r >> 11) * 0x1p-52 - 1.0);
	uint32_t sign = (uint32_t)(r & 1) << 31, mantissa = (uint32_t)(r >> 8) & 0x7fffffu;
	if (f == FILL_HUGE)
		return from_bits(sign | (uint32_t)((r >> 1 & 31) ? 100 + (r >> 40) % 40 : 192) << 23 | mantissa);
	switch (r >> 1 & 7) {
	case 0: return from_bits(sign);
	case 1: return from_bits(sign | mantissa);
	case 2: return from_bits(sign | (uint32_t)(1 + (r >> 40) % 8) << 23 | mantissa);
	default: return from_bits(sign | (uint32_t)(50 + (r >> 40) % 19) << 23 | mantissa);
	}
}

static int64_t bytes_of(tt_dtype dt) { return dt == TT_BF16 ? 2 : dt == TT_F64 ? 8 : 4; }

static float get(const void *p, tt_dtype dt, int64_t i)
{
	return dt == TT_BF16 ? tt_bf16_to_f32(((const tt_bf16 *)p)[i]) : ((const float *)p)[i];
}

static void set(void *p, tt_dtype dt, int64_t i, float v)
{
	if (dt == TT_BF16)
		((tt_bf16 *)p)[i] = tt_f32_to_bf16(v);
	else
		((float *)p)[i] = v;
}

/* `bytes` that end where a page without access begins (to 2 bytes), the page before the first is without access too. */
static void *guarded(int64_t bytes)
{
	enum { PAGE = 4096 };
	int64_t inside = tt_round_up(TT_MAX(bytes, 1), PAGE);
	uint8_t *p = mmap(NULL, (size_t)(inside + 2 * PAGE), PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	TT_ASSERT(p != MAP_FAILED && !mprotect(p + PAGE, (size_t)inside, PROT_READ | PROT_WRITE));
	memset(p + PAGE, 0xff, (size_t)inside); /* NaN in every float: what is not written shows */
	return p + PAGE + (inside - bytes);
}

static void *filled(uint64_t *s, fill f, tt_dtype dt, int64_t n)
{
	void *p = guarded(n * bytes_of(dt));
	for (int64_t i = 0; i < n; i++)
		set(p, dt, i, value(s, f));
	return p;
}

/* ---- a product, its operands, its call -------------------------------------------------------------------------------- */

typedef enum op_kind { LINEAR, DX, DW, NOPS } op_kind;
static const char *const op_names[NOPS] = {"linear", "linear_dx", "linear_dw"};

typedef struct product {
	op_kind op;
	tt_dtype dt, out;
	tt_dtype bias;        /* TT_NODTYPE: none */
	int64_t t, o, k;
	const int64_t *edges; /* of 8 segments, or NULL */
	bool rounded;
	bool plain;           /* the weight lies plain where a packed one could be had (f32) */
} product;

typedef struct operands { void *in[3], *out; } operands;

/* Extents of input 0, input 1 and the output. */
static void extents(const product *p, int64_t n[3][2])
{
	const int64_t all[NOPS][3][2] = {
		{{p->t, p->k}, {p->o, p->k}, {p->t, p->o}},
		{{p->t, p->o}, {p->o, p->k}, {p->t, p->k}},
		{{p->t, p->o}, {p->t, p->k}, {p->o, p->k}},
	};
	memcpy(n, all[p->op], sizeof all[0]);
}

static int64_t out_count(const product *p)
{
	int64_t n[3][2];
	extents(p, n);
	return n[2][0] * n[2][1];
}

static operands operands_new(const product *p, uint64_t *seed, fill f)
{
	int64_t n[3][2];
	extents(p, n);
	operands a = {{NULL}, NULL};
	for (int i = 0; i < 2; i++)
		a.in[i] = filled(seed, f, p->dt, n[i][0] * n[i][1]);
	if (p->bias != TT_NODTYPE)
		a.in[2] = filled(seed, f, p->bias, p->o);
	a.out = guarded(n[2][0] * n[2][1] * bytes_of(p->out));
	return a;
}

static tt_arg arg2(void *p, tt_dtype dt, const int64_t n[2])
{
	return (tt_arg){.p = p, .dtype = dt, .ndim = 2, .n = {n[0], n[1]}, .ld = n[1]};
}

typedef struct attrs { tt_attr_linear linear; tt_attr_linear_dx dx; } attrs;
static const void *attr_of(const product *p, attrs *a)
{
	a->linear = (tt_attr_linear){p->out, {p->edges ? 9 : 0, p->edges}, p->rounded};
	a->dx = (tt_attr_linear_dx){p->out, p->rounded};
	return p->op == LINEAR ? (const void *)&a->linear : &a->dx;
}

static void call(const product *p, tt_kernel_fn *fn, const operands *a, const void *plan, tt_format format, void *scratch, tt_pool *pool,
		 int64_t plane, _Atomic int *flag)
{
	int64_t n[3][2];
	extents(p, n);
	tt_arg in[3] = {arg2(a->in[0], p->dt, n[0]), arg2(a->in[1], p->dt, n[1])}, out = arg2(a->out, p->out, n[2]);
	in[1].format = format;
	in[2] = (tt_arg){.p = a->in[2], .dtype = p->bias, .ndim = 1, .n = {p->o}, .ld = 1};
	out.plane = plane;
	attrs at;
	tt_env env = {.pool = pool, .threads = tt_pool_threads(pool), .numerics = plane ? TT_EXACT : TT_FAST, .f64 = p->dt == TT_F64};
	tt_call c = {.in = in, .out = &out, .nin = a->in[2] ? 3 : 2, .nout = 1, .attr = attr_of(p, &at), .plan = plan,
		     .scratch = scratch, .env = &env, .flag = flag};
	fn(&c);
}

static void run_ref(const product *p, tt_isa isa, tt_pool *pool, const operands *a)
{
	_Atomic int flag = 0;
	const tt_kernel *k = tt_kernel_ref(op_names[p->op], isa, p->dt == TT_F64);
	call(p, k->run, a, NULL, TT_PLAIN, NULL, pool, 0, &flag);
}

static const char *describe(tt_test *t, const product *p)
{
	return tt_arena_printf(t->arena, "%s %s->%s t %lld o %lld k %lld%s%s%s%s", op_names[p->op], tt_dtype_name(p->dt),
			       tt_dtype_name(p->out), (long long)p->t, (long long)p->o, (long long)p->k, p->edges ? " segments" : "",
			       p->bias ? " bias" : "", p->rounded ? " rounded" : "", p->plain ? " plain" : "");
}

static int64_t differences(const void *a, const void *b, int64_t n, int64_t size, int64_t *first)
{
	int64_t bad = 0;
	for (int64_t i = n - 1; i >= 0; i--)
		if (memcmp((const uint8_t *)a + i * size, (const uint8_t *)b + i * size, (size_t)size)) {
			bad++;
			*first = i;
		}
	return bad;
}

static bool check_same(tt_test *t, const void *got, const void *want, int64_t n, tt_dtype dt, const char *what)
{
	int64_t first = 0, bad = differences(got, want, n, bytes_of(dt), &first);
	if (!bad)
		return true;
	double g = dt == TT_F64 ? ((const double *)got)[first] : (double)get(got, dt, first);
	double w = dt == TT_F64 ? ((const double *)want)[first] : (double)get(want, dt, first);
	return TT_CHECK_MSG(t, false, "%s: %lld of %lld differ, first at %lld: %a, not %a", what, (long long)bad, (long long)n,
			    (long long)first, g, w);
}

static tt_pool *two_threads(tt_test *t)
{
	tt_pool *pool = NULL;
	return TT_CHECK_OK(t, tt_pool_create(2, 20, &pool)) ? pool : NULL;
}

/* ---- the scalar model ------------------------------------------------------------------------------------------------- */

static float flush(float x) { return __builtin_fabsf(x) < 0x1p-126f ? __builtin_copysignf(0, x) : x; }

/* One half of VDPBF16PS. A result counts as subnormal if it would be with 24 bits and no least exponent: below 2^-126 by more
 * than 2^-151, where fmaf rounds up to 2^-126 from 2^-150 on. 64 bits hold the sum exactly near there. */
static float dot_step(float a, float b, float c)
{
	a = flush(a), b = flush(b), c = flush(c);
	float r = __builtin_fmaf(a, b, c);
	if (__builtin_fabsf(r) == 0x1p-126f) {
		long double s = (long double)a * (long double)b + (long double)c;
		if (__builtin_fabsl(s) < 0x1p-126L - 0x1p-151L)
			return __builtin_copysignf(0, r);
	}
	return flush(r);
}

typedef struct strided { const void *p; tt_dtype dt; int64_t step; } strided;
static float at(strided s, int64_t i, int64_t end) { return i < end ? get(s.p, s.dt, i * s.step) : 0; }

static float model_chain(strided a, strided b, int64_t k0, int64_t k1, bool pairs)
{
	float c = 0;
	if (!pairs) {
		for (int64_t i = k0; i < k1; i++)
			c = __builtin_fmaf(at(a, i, k1), at(b, i, k1), c);
		return c;
	}
	for (int64_t i = k0; i < k1; i += 2) {
		c = dot_step(at(a, i + 1, k1), at(b, i + 1, k1), c);
		c = dot_step(at(a, i, k1), at(b, i, k1), c);
	}
	return c;
}

/* The whole product into out[]. */
static void model(const product *p, const operands *x, void *out)
{
	int64_t n[3][2];
	extents(p, n);
	const uint8_t *a = x->in[0], *b = x->in[1];
	int64_t size = bytes_of(p->dt);
	for (int64_t i = 0; i < n[2][0]; i++)
		for (int64_t j = 0; j < n[2][1]; j++) {
			strided sa = {a + (p->op == DW ? i : i * n[0][1]) * size, p->dt, p->op == DW ? p->o : 1};
			strided sb = {b + (p->op == LINEAR ? j * p->k : j) * size, p->dt, p->op == LINEAR ? 1 : p->k};
			int64_t depth = p->op == LINEAR ? p->k : p->op == DX ? p->o : p->t;
			float y;
			if (p->edges) {
				float s[8];
				for (int e = 0; e < 8; e++)
					s[e] = model_chain(sa, sb, p->edges[e], p->edges[e + 1], p->dt == TT_BF16);
				y = ((s[0] + s[1]) + (s[2] + s[3])) + ((s[4] + s[5]) + (s[6] + s[7]));
			} else {
				y = model_chain(sa, sb, 0, depth, p->dt == TT_BF16);
			}
			if (p->bias)
				y += get(x->in[2], p->bias, j);
			if (p->rounded && y == 0)
				y = 0;
			set(out, p->out, i * n[2][1] + j, y);
		}
}

/* ---- link 1: the instruction ---------------------------------------------------------------------------------------------- */

#ifndef TT_NO_X86
static __attribute__((target("avx512f,avx512bf16"))) float dot_instruction(uint32_t a, uint32_t b, float c)
{
	__m512 r = _mm512_dpbf16_ps(_mm512_set1_ps(c), (__m512bh)_mm512_set1_epi32((int)a), (__m512bh)_mm512_set1_epi32((int)b));
	return _mm512_cvtss_f32(r);
}

static void instruction(tt_test *t)
{
	if (tt_isa_detect() < TT_ISA_AVX512_BF16)
		TT_SKIP(t, "needs AVX512_BF16");
	uint64_t s = t->seed;
	int64_t bad = 0, even_first = 0, plain_fma = 0, n = 2000000;
	for (int64_t i = 0; i < n; i++) {
		fill f = i % 2 ? FILL_TINY : FILL_PLAIN;
		tt_bf16 a0 = tt_f32_to_bf16(value(&s, f)), a1 = tt_f32_to_bf16(value(&s, f));
		tt_bf16 b0 = tt_f32_to_bf16(value(&s, f)), b1 = tt_f32_to_bf16(value(&s, f));
		float c = f == FILL_TINY ? from_bits((uint32_t)(rnd(&s) & 0x81ffffffu)) : value(&s, f);
		if (i % 8 == 1) /* sums that start at 2^-126 end within half a last place of it */
			c = __builtin_copysignf(0x1p-126f, c);
		float e0 = tt_bf16_to_f32(a0), e1 = tt_bf16_to_f32(a1), f0 = tt_bf16_to_f32(b0), f1 = tt_bf16_to_f32(b1);
		float got = dot_instruction((uint32_t)a1 << 16 | a0, (uint32_t)b1 << 16 | b0, c);
		float want = dot_step(e0, f0, dot_step(e1, f1, c)), swapped = dot_step(e1, f1, dot_step(e0, f0, c));
		float simple = flush(__builtin_fmaf(flush(e0), flush(f0), flush(__builtin_fmaf(flush(e1), flush(f1), flush(c)))));
		bad += memcmp(&got, &want, 4) != 0;
		even_first += memcmp(&got, &swapped, 4) != 0;
		plain_fma += memcmp(&got, &simple, 4) != 0;
	}
	TT_CHECK_INT(t, bad, 0);
	/* The same comparison sees the other order, and flushing after fmaf's own rounding. */
	TT_CHECK_MSG(t, even_first > n / 20, "even element first differs in %lld only", (long long)even_first);
	TT_CHECK_MSG(t, plain_fma > 0, "flushed fmaf never differs: the corner is not reached");
}
#else
static void instruction(tt_test *t) { TT_SKIP(t, "no x86"); }
#endif

/* ---- link 2: the references ------------------------------------------------------------------------------------------------- */

static const int64_t uneven[9] = {0, 3, 3, 10, 17, 18, 29, 40, 57};   /* odd ones, an empty one */
static const int64_t even[9] = {0, 8, 8, 20, 40, 64, 66, 96, 130};
static const int64_t long_odd[9] = {0, 301, 302, 302, 600, 1113, 1200, 1201, 1300}; /* past one packed block */

/* All sets that run here, one and two threads, against the model. */
static void check_references(tt_test *t, const product *p, fill f, tt_pool *pool)
{
	uint64_t s = t->seed + (uint64_t)(p->t * 7 + p->o * 5 + p->k);
	operands a = operands_new(p, &s, f);
	int64_t n = out_count(p);
	void *want = guarded(n * bytes_of(p->out));
	model(p, &a, want);
	for (int isa = TT_ISA_REF; isa <= (int)tt_isa_detect() && isa <= TT_ISA_AVX512; isa++)
		for (int threads = 1; threads <= 2; threads++) {
			memset(a.out, 0xff, (size_t)(n * bytes_of(p->out)));
			run_ref(p, (tt_isa)isa, threads == 2 ? pool : NULL, &a);
			check_same(t, a.out, want, n, p->out,
				   tt_arena_printf(t->arena, "%s (%s)", describe(t, p), tt_isa_name((tt_isa)isa)));
		}
}

static void reference(tt_test *t)
{
	tt_pool *pool = two_threads(t);
	static const int64_t shapes[][3] = {{1, 1, 1}, {3, 5, 40}, {2, 72, 64}, {7, 1, 128}, {5, 33, 130}, {65, 66, 57}, {1, 70, 515},
					    {130, 3, 301}, {0, 4, 4}, {4, 4, 0}};
	static const tt_dtype dts[] = {TT_F32, TT_BF16}, outs[] = {TT_ACC, TT_F32, TT_BF16};
	for (int i = 0; i < TT_COUNT(shapes); i++)
		for (int op = 0; op < NOPS; op++)
			for (int d = 0; d < 2; d++)
				for (int y = 0; y < 3; y++) {
					product p = {.op = (op_kind)op, .dt = dts[d], .out = outs[y], .t = shapes[i][0], .o = shapes[i][1],
						     .k = shapes[i][2]};
					check_references(t, &p, y == 1 ? FILL_TINY : FILL_PLAIN, pool);
					p.rounded = op != DW && y > 0;
					if (p.rounded)
						check_references(t, &p, FILL_TINY, pool);
				}
	static const struct { const int64_t *edges; int64_t t, o; } cut[] = {{uneven, 9, 67}, {even, 5, 64}, {long_odd, 3, 9}};
	for (int i = 0; i < TT_COUNT(cut); i++)
		for (int d = 0; d < 2; d++)
			for (int b = 0; b < 3; b++) {
				product p = {.op = LINEAR, .dt = dts[d], .out = outs[b], .t = cut[i].t, .o = cut[i].o, .k = cut[i].edges[8],
					     .edges = cut[i].edges, .bias = b == 0 ? TT_NODTYPE : dts[b - 1]};
				check_references(t, &p, FILL_PLAIN, pool);
				check_references(t, &p, FILL_TINY, pool);
			}
	tt_pool_destroy(pool);
}

/* The f64 set: the same sums in double. */
static void reference_f64(tt_test *t)
{
	uint64_t s = t->seed;
	int64_t T = 5, O = 70, K = 57;
	double *x = guarded(T * K * 8), *w = guarded(O * K * 8), *b = guarded(O * 8), *y = guarded(T * O * 8), *want = guarded(T * O * 8);
	for (int64_t i = 0; i < T * K; i++)
		x[i] = (double)value(&s, FILL_PLAIN) * (1 + 0x1p-40);
	for (int64_t i = 0; i < O * K; i++)
		w[i] = (double)value(&s, FILL_PLAIN) * (1 - 0x1p-41);
	for (int64_t i = 0; i < O; i++)
		b[i] = (double)value(&s, FILL_PLAIN);
	for (int64_t i = 0; i < T; i++)
		for (int64_t j = 0; j < O; j++) {
			double e[8];
			for (int g = 0; g < 8; g++) {
				e[g] = 0;
				for (int64_t k = uneven[g]; k < uneven[g + 1]; k++)
					e[g] = __builtin_fma(x[i * K + k], w[j * K + k], e[g]);
			}
			want[i * O + j] = (((e[0] + e[1]) + (e[2] + e[3])) + ((e[4] + e[5]) + (e[6] + e[7]))) + b[j];
		}
	product p = {.op = LINEAR, .dt = TT_F64, .out = TT_F64, .bias = TT_F64, .t = T, .o = O, .k = K, .edges = uneven};
	operands a = {{x, w, b}, y};
	run_ref(&p, TT_ISA_REF, NULL, &a);
	check_same(t, y, want, T * O, TT_F64, "linear f64");

	/* dy = y as a gradient: dx and dw, the latter stored as acc. */
	double *dx = guarded(T * K * 8), *dw = guarded(O * K * 8);
	product px = {.op = DX, .dt = TT_F64, .out = TT_F64, .t = T, .o = O, .k = K};
	operands ax = {{y, w}, dx};
	run_ref(&px, TT_ISA_REF, NULL, &ax);
	product pw = {.op = DW, .dt = TT_F64, .out = TT_ACC, .t = T, .o = O, .k = K};
	operands aw = {{y, x}, dw};
	run_ref(&pw, TT_ISA_REF, NULL, &aw);
	for (int64_t k = 0; k < K; k++) {
		double c = 0;
		for (int64_t j = 0; j < O; j++)
			c = __builtin_fma(y[2 * O + j], w[j * K + k], c);
		TT_CHECK_MSG(t, c == dx[2 * K + k], "dx[2][%lld] is %a, not %a", (long long)k, dx[2 * K + k], c);
		c = 0;
		for (int64_t i = 0; i < T; i++)
			c = __builtin_fma(y[i * O + 3], x[i * K + k], c);
		TT_CHECK_MSG(t, c == dw[3 * K + k], "dw[3][%lld] is %a, not %a", (long long)k, dw[3 * K + k], c);
	}
}

/* ---- pack -------------------------------------------------------------------------------------------------------------------- */

static void *pack(tt_pool *pool, tt_isa isa, const void *w, tt_dtype from, tt_dtype to, int64_t o, int64_t k, tt_format format)
{
	void *out = guarded(tt_format_count(format, to, o, k) * bytes_of(to));
	const int64_t n[2] = {o, k};
	tt_attr_pack at = {to, format};
	tt_arg in = arg2((void *)(uintptr_t)w, from, n), y = arg2(out, to, n);
	y.format = format;
	tt_env env = {.pool = pool, .threads = tt_pool_threads(pool)};
	tt_call c = {.in = &in, .out = &y, .nin = 1, .nout = 1, .attr = &at, .env = &env};
	tt_kernel_ref("pack", isa, false)->run(&c);
	return out;
}

/* Panels made one by one, in two pieces, are those of the packed whole. */
static void check_panels(tt_test *t, const float *w_ok, const float *want, int64_t o, int64_t k, tt_format format)
{
#ifndef TT_NO_X86
	if (tt_isa_detect() < TT_ISA_AVX2)
		return;
	int64_t features = format == TT_PACK_FWD ? o : k, depth = format == TT_PACK_FWD ? k : o, cut = depth / 3;
	for (int64_t f = 0; f < features; f += 64) {
		float *to = guarded(depth * 64 * 4);
		for (int i = 0; i < 2; i++) {
			int64_t c0 = i ? cut : 0, n = i ? depth - cut : cut, nf = TT_MIN(64, features - f);
			if (format == TT_PACK_FWD)
				tt_panel_turn(w_ok + f * k + c0, k, nf, n, to + c0 * 64);
			else
				tt_panel_copy(w_ok + c0 * k + f, k, nf, n, to + c0 * 64);
		}
		check_same(t, to, want + f * depth, depth * 64, TT_F32, tt_arena_printf(t->arena, "panel %lld of %lldx%lld %s", (long long)f / 64,
			(long long)o, (long long)k, tt_format_name(format)));
	}
#else
	(void)t, (void)w_ok, (void)want, (void)o, (void)k, (void)format;
#endif
}

static void packing(tt_test *t)
{
	tt_pool *pool = two_threads(t);
	uint64_t s = t->seed;
	static const int64_t shapes[][2] = {{1, 1}, {64, 64}, {65, 3}, {3, 65}, {100, 97}, {200, 1100}, {1025, 70}};
	static const tt_dtype dts[] = {TT_F32, TT_BF16};
	TT_CHECK_INT(t, tt_format_count(TT_PLAIN, TT_F32, 65, 3), 195);
	TT_CHECK_INT(t, tt_format_count(TT_PACK_FWD, TT_F32, 65, 3), 128 * 3);
	TT_CHECK_INT(t, tt_format_count(TT_PACK_FWD, TT_BF16, 65, 3), 128 * 4);
	TT_CHECK_INT(t, tt_format_count(TT_PACK_DX, TT_BF16, 65, 3), 64 * 66);
	for (int i = 0; i < TT_COUNT(shapes); i++)
		for (int c = 0; c < 8; c++) {
			tt_dtype from = dts[c & 1], to = dts[c >> 1 & 1];
			tt_format format = c & 4 ? TT_PACK_DX : TT_PACK_FWD;
			int64_t o = shapes[i][0], k = shapes[i][1], pair = to == TT_BF16 ? 2 : 1;
			int64_t features = format == TT_PACK_FWD ? o : k, depth = format == TT_PACK_FWD ? k : o;
			void *w = filled(&s, FILL_PLAIN, from, o * k);
			void *got = pack(pool, tt_isa_detect(), w, from, to, o, k, format);
			int64_t count = tt_format_count(format, to, o, k), deep = tt_round_up(depth, pair);
			void *want = guarded(count * bytes_of(to));
			for (int64_t f = 0; f < tt_round_up(features, 64); f++)
				for (int64_t d = 0; d < deep; d++) {
					int64_t line = format == TT_PACK_FWD ? f : d, column = format == TT_PACK_FWD ? d : f;
					float v = f < features && d < depth ? get(w, from, line * k + column) : 0;
					set(want, to, f / 64 * 64 * deep + (d / pair * 64 + f % 64) * pair + d % pair, v);
				}
			if (from == TT_F32 && to == TT_F32)
				check_panels(t, w, want, o, k, format);
			check_same(t, got, want, count, to,
				   tt_arena_printf(t->arena, "pack %s->%s %lldx%lld %s", tt_dtype_name(from), tt_dtype_name(to),
						   (long long)o, (long long)k, tt_format_name(format)));
		}
	tt_pool_destroy(pool);
}

/* ---- link 3: libxsmm ---------------------------------------------------------------------------------------------------------- */

typedef struct fast {
	const tt_override *o;
	const void *plan;
	void *scratch;
	tt_format format;
} fast;

/* Values of a node as the compiler would hand them over. */
static tt_kernel_case case_of(tt_test *t, const product *p, int threads)
{
	int64_t n[3][2];
	extents(p, n);
	tt_value *v = TT_NEWN(t->arena, tt_value, 4);
	for (int i = 0; i < 3; i++) {
		v[i].dtype = i == 2 ? p->out : p->dt;
		v[i].ndim = 2;
		for (int d = 0; d < 2; d++)
			v[i].dim[d].n = n[i][d];
	}
	if (p->op != DW && !p->plain)
		v[1].format = p->op == LINEAR ? TT_PACK_FWD : TT_PACK_DX;
	v[3].dtype = p->bias;
	v[3].ndim = 1;
	v[3].dim[0].n = p->o;
	const tt_value **in = TT_NEWN(t->arena, const tt_value *, 4);
	in[0] = &v[0], in[1] = &v[1], in[2] = p->bias ? &v[3] : NULL, in[3] = &v[2];
	return (tt_kernel_case){.op = op_names[p->op], .attr = attr_of(p, TT_NEW(t->arena, attrs)), .nin = p->bias ? 3 : 2, .nout = 1,
				.in = in, .out = in + 3, .threads = threads};
}

/* The override for p, planned; false (after a failed check) if there is none. */
static bool fast_make(tt_test *t, const product *p, tt_isa isa, int threads, fast *f)
{
	tt_kernel_case c = case_of(t, p, threads);
	f->o = tt_override_lying(&c, isa);
	if (!TT_CHECK_MSG(t, f->o != NULL, "%s: no override", describe(t, p)))
		return false;
	f->scratch = guarded(tt_round_up((int64_t)f->o->scratch(&c), 64));
	f->format = c.in[1]->format;
	return TT_CHECK_OK(t, f->o->plan(&c, t->arena, &f->plan));
}

static void fast_run(const product *p, const fast *f, const operands *a, const void *packed, tt_pool *pool)
{
	operands b = *a;
	if (f->format != TT_PLAIN)
		b.in[1] = (void *)(uintptr_t)packed;
	call(p, f->o->run, &b, f->plan, f->format, f->scratch, pool, 0, NULL);
}

/* One and all threads of the pool against the reference. */
static void check_fast_fill(tt_test *t, const product *p, tt_isa isa, tt_pool *pool, fill fl)
{
	uint64_t s = t->seed + (uint64_t)(p->t * 3 + p->o * 11 + p->k);
	operands a = operands_new(p, &s, fl);
	int64_t n = out_count(p), bytes = n * bytes_of(p->out);
	void *want = guarded(bytes), *packed = NULL;
	run_ref(p, isa, pool, &a);
	memcpy(want, a.out, (size_t)bytes);
	for (int many = 0; many < 2; many++) {
		fast f;
		if (!fast_make(t, p, isa, tt_pool_threads(pool), &f))
			return;
		if (f.format != TT_PLAIN && !packed)
			packed = pack(pool, isa, a.in[1], p->dt, p->dt, p->o, p->k, f.format);
		memset(a.out, 0xff, (size_t)bytes);
		fast_run(p, &f, &a, packed, many ? pool : NULL);
		volatile float least = 0x1p-126f;
		TT_CHECK_MSG(t, least * 0.5f != 0, "%s leaves a thread that flushes subnormals", describe(t, p));
		check_same(t, a.out, want, n, p->out, tt_arena_printf(t->arena, "%s, %d threads (%s)", describe(t, p), many ? tt_pool_threads(pool) : 1, f.o->name));
	}
}

static void check_fast(tt_test *t, const product *p, tt_isa isa, tt_pool *pool)
{
	product q = *p;
	for (int plain = 0; plain < (p->dt == TT_F32 && p->op != DW ? 2 : 1); plain++) {
		q.plain = plain;
		check_fast_fill(t, &q, isa, pool, p->out == TT_F32 || p->rounded ? FILL_TINY : FILL_PLAIN);
	}
}

static void check_fast_shapes(tt_test *t, tt_isa isa, const int64_t (*shapes)[3], int count)
{
	tt_pool *pool = two_threads(t);
	for (int i = 0; i < count; i++)
		for (int op = 0; op < NOPS; op++)
			for (int d = 0; d < 2; d++)
				for (int y = 0; y < (op == DW ? 1 : 3); y++) {
					static const tt_dtype outs[] = {TT_ACC, TT_F32, TT_BF16};
					product p = {.op = (op_kind)op, .dt = d ? TT_BF16 : TT_F32, .out = outs[y], .t = shapes[i][0],
						     .o = shapes[i][1], .k = shapes[i][2]};
					if (d && (op == LINEAR ? p.k : op == DX ? p.o : 0) % 2)
						continue;
					check_fast(t, &p, isa, pool);
					p.rounded = op != DW && y > 0 && p.t <= 100;
					if (p.rounded)
						check_fast(t, &p, isa, pool);
				}
	tt_pool_destroy(pool);
}

static const int64_t small_shapes[][3] = {{1, 64, 64}, {7, 72, 64}, {13, 100, 96}, {6, 5, 40}, {50, 33, 130}, {3, 1, 128}, {1, 200, 257},
					  {17, 144, 1300}, {100, 80, 66}, {2, 256, 256}, {130, 128, 65}, {0, 64, 64}, {1100, 20, 70}};
static const int64_t large_shapes[][3] = {{1024, 768, 768}, {1024, 256, 256}, {300, 2048, 2048}, {1024, 100, 96}, {97, 80, 2050},
					  {200, 144, 6000}, {64, 6000, 144}, {2085, 200, 257}, {4097, 130, 96}, {2048, 320, 1300}};

static tt_isa tested_isa(tt_test *t)
{
	tt_isa isa = TT_ISA_REF;
	(void)TT_CHECK_OK(t, tt_isa_parse(*t->isa ? t->isa : "auto", &isa));
	return isa;
}

static void small(tt_test *t, tt_isa isa) { check_fast_shapes(t, isa, small_shapes, TT_COUNT(small_shapes)); }
static void large(tt_test *t, tt_isa isa) { check_fast_shapes(t, isa, large_shapes, TT_COUNT(large_shapes)); }

/* Overflow. */
static void infinities(tt_test *t, tt_isa isa)
{
	tt_pool *pool = two_threads(t);
	for (int op = 0; op < NOPS; op++)
		for (int d = 0; d < 2; d++)
			for (int y = 0; y < (op == DW ? 1 : 2); y++) {
				product p = {.op = (op_kind)op, .dt = d ? TT_BF16 : TT_F32, .out = y ? TT_BF16 : TT_ACC, .t = 62, .o = 80,
					     .k = 94};
				check_fast_fill(t, &p, isa, pool, FILL_HUGE);
			}
	tt_pool_destroy(pool);
}

/* Segments and bias, whole and in parts of the epilogue. */
static void segments(tt_test *t, tt_isa isa)
{
	tt_pool *pool = two_threads(t);
	static const int64_t wide[9] = {0, 256, 512, 512, 1024, 1280, 1536, 1792, 2048};
	static const int64_t deep[9] = {0, 2100, 2200, 2210, 2212, 2300, 2400, 2500, 2600}; /* a segment of several chunks */
	static const struct { const int64_t *edges; int64_t t, o; } cut[] = {{NULL, 50, 70}, {even, 7, 64}, {even, 49, 100}, {wide, 101, 192},
									     {deep, 10, 130}};
	static const tt_dtype outs[] = {TT_ACC, TT_F32, TT_BF16}, biases[] = {TT_NODTYPE, TT_F32, TT_BF16};
	for (int i = 0; i < TT_COUNT(cut); i++)
		for (int d = 0; d < 2; d++)
			for (int y = 0; y < 3; y++)
				for (int b = 0; b < 3; b++) {
					product p = {.op = LINEAR, .dt = d ? TT_BF16 : TT_F32, .out = outs[y], .bias = biases[b],
						     .t = cut[i].t, .o = cut[i].o, .k = cut[i].edges ? cut[i].edges[8] : 96,
						     .edges = cut[i].edges};
					p.rounded = y > 0 && i % 2;
					check_fast(t, &p, isa, pool);
				}
	/* What libxsmm has no right tile for stays with the reference. */
	product odd = {.op = LINEAR, .dt = TT_BF16, .out = TT_F32, .t = 4, .o = 64, .k = 57, .edges = uneven};
	tt_kernel_case c = case_of(t, &odd, 1);
	TT_CHECK(t, tt_override_find(&c, isa) == NULL);
	odd.k = 58;
	static const int64_t odd_inside[9] = {0, 3, 3, 10, 17, 18, 29, 40, 58};
	odd.edges = odd_inside;
	c = case_of(t, &odd, 1);
	TT_CHECK(t, tt_override_find(&c, isa) == NULL);
	product f64 = {.op = LINEAR, .dt = TT_F64, .out = TT_F64, .t = 4, .o = 64, .k = 64};
	c = case_of(t, &f64, 1);
	TT_CHECK(t, tt_override_find(&c, isa) == NULL);
	tt_pool_destroy(pool);
}

/* A weight that lies plain: more threads than panels and the other way, lines that are cut and that are not, and when it is asked for. */
static void plain(tt_test *t, tt_isa isa)
{
	static const int64_t shapes[][3] = {{1600, 70, 40}, {2600, 200, 9}, {1030, 640, 33}, {580, 900, 70}, {5, 1500, 130}};
	for (int threads = 3; threads <= 5; threads += 2) {
		tt_pool *pool = NULL;
		if (!TT_CHECK_OK(t, tt_pool_create(threads, 20, &pool)))
			return;
		for (int i = 0; i < TT_COUNT(shapes); i++)
			for (int op = LINEAR; op <= DX; op++) {
				product p = {.op = (op_kind)op, .dt = TT_F32, .out = i % 2 ? TT_F32 : TT_BF16, .plain = true, .t = shapes[i][0],
					     .o = shapes[i][op == DX ? 2 : 1], .k = shapes[i][op == DX ? 1 : 2]};
				check_fast_fill(t, &p, isa, pool, FILL_PLAIN);
			}
		tt_pool_destroy(pool);
	}
	for (int op = LINEAR; op <= DX; op++)
		for (int many = 0; many < 2; many++) {
			product p = {.op = (op_kind)op, .dt = TT_F32, .out = TT_F32, .plain = true, .t = 1023 + many, .o = 64, .k = 64};
			tt_kernel_case c = case_of(t, &p, 1);
			const tt_override *o = tt_override_find(&c, isa);
			TT_CHECK_MSG(t, o && (o->format == NULL) == many, "%s asks for another format", describe(t, &p));
		}
}

/* A line's bits depend on that line alone: parts of a batch, at any offset, equal the batch. */
static void lines(tt_test *t, tt_isa isa)
{
	tt_pool *pool = two_threads(t);
	enum { ALL = 256 };
	static const int64_t counts[] = {1, 2, 3, 7, 16, 64}, offsets[] = {0, 1, 5, 47, 48, 130, 192};
	for (int op = LINEAR; op <= DX; op++)
		for (int d = 0; d < 2; d++)
			for (int y = 0; y < 2; y++) {
				product p = {.op = (op_kind)op, .dt = d ? TT_BF16 : TT_F32, .out = y ? TT_BF16 : TT_F32, .t = ALL, .o = 198,
					     .k = 130, .edges = op == LINEAR && y ? even : NULL};
				uint64_t s = t->seed;
				operands a = operands_new(&p, &s, FILL_PLAIN);
				fast f;
				if (!fast_make(t, &p, isa, 2, &f))
					return;
				void *packed = pack(pool, isa, a.in[1], p.dt, p.dt, p.o, p.k, f.format);
				fast_run(&p, &f, &a, packed, pool);
				int64_t in = op == LINEAR ? p.k : p.o, out = op == LINEAR ? p.o : p.k;
				for (int i = 0; i < TT_COUNT(counts); i++)
					for (int j = 0; j < TT_COUNT(offsets); j++)
						for (int threads = 1; threads <= 2; threads++) {
							product q = p;
							q.t = counts[i];
							operands b = {{(uint8_t *)a.in[0] + offsets[j] * in * bytes_of(p.dt), a.in[1]},
								      guarded(q.t * out * bytes_of(p.out))};
							fast_run(&q, &f, &b, packed, threads == 2 ? pool : NULL);
							check_same(t, b.out, (uint8_t *)a.out + offsets[j] * out * bytes_of(p.out),
								   q.t * out, p.out, describe(t, &q));
						}
			}
	tt_pool_destroy(pool);
}

/* On what the tests were asked for, and on the lesser sets that this CPU has: each in a process of its own, since libxsmm finds a
 * tile of the same shape again that was made for another set. */
#define ON(name, what, want)                                                                                           \
	static void xsmm_##name(tt_test *t)                                                                            \
	{                                                                                                              \
		tt_isa isa = (want);                                                                                   \
		if (isa < TT_ISA_AVX2 || isa > tt_isa_detect())                                                        \
			TT_SKIP(t, "needs AVX2 or AVX-512");                                                           \
		what(t, isa);                                                                                          \
	}
#define ON_EACH(what)                                                                                                  \
	ON(what, what, tested_isa(t)) ON(what##_avx2, what, TT_ISA_AVX2) ON(what##_avx512, what, TT_ISA_AVX512)
ON_EACH(small)
ON_EACH(large)
ON_EACH(infinities)
ON_EACH(segments)
ON_EACH(lines)
ON_EACH(plain)

/* ---- exact ------------------------------------------------------------------------------------------------------------------ */

static int64_t *run_exact(const product *p, const operands *a, tt_isa isa, tt_pool *pool, int *flag)
{
	int64_t n = out_count(p);
	operands b = *a;
	b.out = guarded(3 * n * 8);
	_Atomic int raised = 0;
	call(p, tt_kernel_ref(op_names[p->op], isa, false)->exact, &b, NULL, TT_PLAIN, NULL, pool, n * 8, &raised);
	*flag = raised;
	return b.out;
}

/* The contraction reordered: x and w with the same permutation of k, of a linear. */
static operands permuted(const product *p, const operands *a, const int64_t *order)
{
	operands b = {{guarded(p->t * p->k * bytes_of(p->dt)), guarded(p->o * p->k * bytes_of(p->dt)), a->in[2]}, a->out};
	for (int i = 0; i < 2; i++)
		for (int64_t l = 0; l < (i ? p->o : p->t); l++)
			for (int64_t k = 0; k < p->k; k++)
				set(b.in[i], p->dt, l * p->k + k, get(a->in[i], p->dt, l * p->k + order[k]));
	return b;
}

static int64_t *random_order(tt_test *t, int64_t n, uint64_t *s)
{
	int64_t *order = TT_NEWN(t->arena, int64_t, n);
	for (int64_t i = 0; i < n; i++) {
		int64_t j = (int64_t)(rnd(s) % (uint64_t)(i + 1));
		order[i] = order[j];
		order[j] = i;
	}
	return order;
}

/* Columns [k0, k1) of a matrix. */
static void *columns(const void *p, tt_dtype dt, int64_t lines, int64_t width, int64_t k0, int64_t k1)
{
	void *out = guarded(lines * (k1 - k0) * bytes_of(dt));
	for (int64_t i = 0; i < lines; i++)
		for (int64_t k = k0; k < k1; k++)
			set(out, dt, i * (k1 - k0) + k - k0, get(p, dt, i * width + k));
	return out;
}

static bool same_limbs(const int64_t *a, const int64_t *b, int64_t n) { return !memcmp(a, b, (size_t)(3 * n * 8)); }

/* a += b, canonical. */
static void add_limbs(int64_t *a, const int64_t *b, int64_t n)
{
	for (int64_t i = 0; i < n; i++) {
		exact_sum x = {{(uint64_t)a[i], (uint64_t)a[n + i], (uint64_t)a[2 * n + i]}};
		exact_sum y = {{(uint64_t)b[i], (uint64_t)b[n + i], (uint64_t)b[2 * n + i]}};
		exact_add_sum(&x, &y);
		for (int j = 0; j < 3; j++)
			a[j * n + i] = (int64_t)x.k[j];
	}
}

static void exact_orders(tt_test *t)
{
	tt_pool *pool = two_threads(t);
	uint64_t s = t->seed;
	for (int d = 0; d < 2; d++)
		for (int f = 0; f < 2; f++) {
			product p = {.op = LINEAR, .dt = d ? TT_BF16 : TT_F32, .out = TT_ACC, .bias = TT_F32, .t = 5, .o = 70, .k = 301};
			operands a = operands_new(&p, &s, (fill)f);
			/* Terms that cancel: the second half of k is nearly the first with the sign turned. */
			for (int64_t l = 0; l < p.t; l++)
				for (int64_t k = 0; k < p.k / 2; k++)
					set(a.in[0], p.dt, l * p.k + k + p.k / 2, -get(a.in[0], p.dt, l * p.k + k));
			for (int64_t l = 0; l < p.o; l++)
				for (int64_t k = 0; k < p.k / 2; k++)
					if (k % 7)
						set(a.in[1], p.dt, l * p.k + k + p.k / 2, get(a.in[1], p.dt, l * p.k + k));
			int64_t n = out_count(&p);
			int flag = 0;
			int64_t *want = run_exact(&p, &a, TT_ISA_REF, NULL, &flag);
			TT_CHECK_INT(t, flag, 0);
			for (int isa = 0; isa <= (int)tt_isa_detect() && isa <= TT_ISA_AVX512; isa++)
				TT_CHECK_MSG(t, same_limbs(run_exact(&p, &a, (tt_isa)isa, pool, &flag), want, n), "%s on %s", describe(t, &p),
					     tt_isa_name((tt_isa)isa));
			for (int i = 0; i < 3; i++) {
				operands b = permuted(&p, &a, random_order(t, p.k, &s));
				TT_CHECK_MSG(t, same_limbs(run_exact(&p, &b, tt_isa_detect(), pool, &flag), want, n), "%s permuted",
					     describe(t, &p));
			}
			/* Halves of the contraction add up; the bias is on the first. */
			for (int64_t cut = 1; cut < p.k; cut += 97) {
				product h0 = p, h1 = p;
				h0.k = cut, h1.k = p.k - cut, h1.bias = TT_NODTYPE;
				operands b0 = {{columns(a.in[0], p.dt, p.t, p.k, 0, cut), columns(a.in[1], p.dt, p.o, p.k, 0, cut), a.in[2]}, 0};
				operands b1 = {{columns(a.in[0], p.dt, p.t, p.k, cut, p.k), columns(a.in[1], p.dt, p.o, p.k, cut, p.k), NULL}, 0};
				int64_t *sum = run_exact(&h0, &b0, tt_isa_detect(), NULL, &flag);
				add_limbs(sum, run_exact(&h1, &b1, tt_isa_detect(), NULL, &flag), n);
				TT_CHECK_MSG(t, same_limbs(sum, want, n), "%s split at %lld", describe(t, &p), (long long)cut);
			}
			/* One last bit of one weight shows. */
			uint8_t *bit = (uint8_t *)a.in[1] + (p.k + 9) * bytes_of(p.dt);
			*bit ^= 1;
			bool tiny = f == FILL_TINY && d == 0; /* there it may lie below 2^-106 */
			if (!tiny && f == FILL_PLAIN)
				TT_CHECK(t, !same_limbs(run_exact(&p, &a, tt_isa_detect(), NULL, &flag), want, n));
		}
	tt_pool_destroy(pool);
}

/* The value of the limbs, for all three ops, against 128-bit integers: inputs are multiples of 2^-30 below 2, so products are
 * multiples of 2^-60. */
static void exact_value(tt_test *t)
{
	uint64_t s = t->seed;
	for (int op = 0; op < NOPS; op++) {
		product p = {.op = (op_kind)op, .dt = TT_F32, .out = TT_ACC, .t = 9, .o = 66, .k = 133,
			     .bias = op == LINEAR ? TT_BF16 : TT_NODTYPE};
		operands a = operands_new(&p, &s, FILL_PLAIN);
		int64_t n[3][2], depth = op == LINEAR ? p.k : op == DX ? p.o : p.t;
		extents(&p, n);
		for (int i = 0; i < 2; i++)
			for (int64_t j = 0; j < n[i][0] * n[i][1]; j++)
				set(a.in[i], p.dt, j, (float)((int64_t)(rnd(&s) & 0xffffff) - 0x800000) * (j % 5 ? 0x1p-30f : 0x1p-23f));
		for (int64_t j = 0; p.bias && j < p.o; j++)
			set(a.in[2], p.bias, j, (float)((int64_t)(rnd(&s) & 0xff) - 0x80) * 0x1p-20f);
		int flag = 0;
		int64_t *got = run_exact(&p, &a, tt_isa_detect(), NULL, &flag), count = out_count(&p);
		TT_CHECK_INT(t, flag, 0);
		int64_t bad = 0;
		for (int64_t i = 0; i < count; i++) {
			int64_t r = i / n[2][1], c = i % n[2][1];
			__int128 want = 0, value = 0;
			if (p.bias)
				want = (__int128)((double)get(a.in[2], p.bias, c) * 0x1p60);
			for (int64_t k = 0; k < depth; k++) {
				double x = (double)get(a.in[0], p.dt, op == DW ? k * p.o + r : r * n[0][1] + k);
				double w = (double)get(a.in[1], p.dt, op == LINEAR ? c * p.k + k : k * p.k + c);
				want += (__int128)(int64_t)(x * 0x1p30) * (int64_t)(w * 0x1p30);
			}
			for (int j = 0; j < 3; j++)
				value = value * ((__int128)1 << 40) + got[j * count + i];
			bad += value != want * ((__int128)1 << 46);
		}
		TT_CHECK_MSG(t, bad == 0, "%s: %lld of %lld sums are wrong", describe(t, &p), (long long)bad, (long long)count);
	}
}

/* Outputs that are not acc are the same chain in both modes. */
static void exact_chain(tt_test *t)
{
	uint64_t s = t->seed;
	for (int op = LINEAR; op <= DX; op++) {
		product p = {.op = (op_kind)op, .dt = TT_BF16, .out = TT_F32, .t = 5, .o = 67, .k = 101};
		operands a = operands_new(&p, &s, FILL_PLAIN);
		int64_t n = out_count(&p);
		run_ref(&p, tt_isa_detect(), NULL, &a);
		operands b = a;
		b.out = guarded(n * 4);
		_Atomic int flag = 0;
		call(&p, tt_kernel_ref(op_names[op], tt_isa_detect(), false)->exact, &b, NULL, TT_PLAIN, NULL, NULL, 1, &flag);
		check_same(t, b.out, a.out, n, TT_F32, describe(t, &p));
	}
}

static void exact_flag(tt_test *t)
{
	static const struct { int input; float a, b; bool raised; } rows[] = {
		{0, 0x1p12f, 0x1p12f, false}, {0, 0x1p13f, 0x1p12f, true}, {1, 0x1p24f, 1, false}, {1, -0x1p25f, 1, true},
		{0, __builtin_inff(), 1, true}, {1, -__builtin_inff(), 0, true}, {0, __builtin_nanf(""), 0, true},
		{1, __builtin_nanf(""), 1, true}, {2, 0x1p24f, 1, false}, {2, 0x1p25f, 1, true}, {2, __builtin_nanf(""), 1, true}};
	uint64_t s = t->seed;
	for (int d = 0; d < 2; d++)
		for (int i = 0; i < TT_COUNT(rows); i++)
			for (int op = 0; op < NOPS; op++) {
				if (op != LINEAR && rows[i].input == 2)
					continue;
				product p = {.op = (op_kind)op, .dt = d ? TT_BF16 : TT_F32, .out = TT_ACC, .t = 5, .o = 6, .k = 7,
					     .bias = rows[i].input == 2 ? TT_F32 : TT_NODTYPE};
				operands a = operands_new(&p, &s, FILL_PLAIN);
				int64_t n[3][2];
				extents(&p, n);
				/* In the other operand nothing is above b. */
				for (int j = 0; j < 2; j++)
					for (int64_t k = 0; k < n[j][0] * n[j][1]; k++)
						set(a.in[j], p.dt, k, 0);
				set(a.in[rows[i].input], rows[i].input == 2 ? TT_F32 : p.dt, 4, rows[i].a);
				if (rows[i].input < 2)
					set(a.in[1 - rows[i].input], p.dt, 3, rows[i].b);
				int flag = 0;
				(void)run_exact(&p, &a, tt_isa_detect(), NULL, &flag);
				TT_CHECK_MSG(t, flag == rows[i].raised, "row %d, %s: flag %d", i, describe(t, &p), flag);
			}
}

/* ---- what these comparisons can see ---------------------------------------------------------------------------------------- */

/* Two elements of a chain swapped, in both operands: the same sum in another order. Every comparison above must notice. */
static void swap_is_seen(tt_test *t)
{
	uint64_t s = t->seed;
	for (int d = 0; d < 2; d++) {
		product p = {.op = LINEAR, .dt = d ? TT_BF16 : TT_F32, .out = TT_F32, .t = 16, .o = 64, .k = 64};
		operands a = operands_new(&p, &s, FILL_PLAIN);
		int64_t order[64], n = out_count(&p), first = 0;
		for (int64_t k = 0; k < p.k; k++)
			order[k] = k;
		order[40] = 41, order[41] = 40; /* the two of one pair */
		operands b = permuted(&p, &a, order);
		b.out = guarded(n * 4);
		run_ref(&p, tt_isa_detect(), NULL, &a);
		run_ref(&p, tt_isa_detect(), NULL, &b);
		TT_CHECK_MSG(t, differences(a.out, b.out, n, 4, &first) > 0, "%s: the swap shows in no sum", describe(t, &p));
		if (tt_isa_detect() < (d ? TT_ISA_AVX512_BF16 : TT_ISA_AVX2))
			continue;
		fast f;
		if (!fast_make(t, &p, tt_isa_detect(), 1, &f))
			return;
		fast_run(&p, &f, &b, pack(NULL, tt_isa_detect(), b.in[1], p.dt, p.dt, p.o, p.k, f.format), NULL);
		TT_CHECK_MSG(t, differences(a.out, b.out, n, 4, &first) > 0, "%s: the swap shows in no sum", describe(t, &p));
	}
}

static void touch_past_end(void *ctx)
{
	volatile uint8_t *p = ctx;
	p[128] = 1;
}

static void guard_is_seen(tt_test *t)
{
	TT_CHECK(t, tt_test_dies(t, touch_past_end, guarded(128), SIGSEGV, NULL));
}

#define ROWS(what, tier)                                                                                               \
	{"xsmm_" #what, xsmm_##what, tier}, {"xsmm_" #what "_avx2", xsmm_##what##_avx2, tier},                         \
	{"xsmm_" #what "_avx512", xsmm_##what##_avx512, tier}

const tt_case tt_suite_product[] = {
	{"instruction", instruction, TT_TIER_QUICK},
	{"reference", reference, TT_TIER_QUICK},
	{"reference_f64", reference_f64, TT_TIER_QUICK},
	{"packing", packing, TT_TIER_QUICK},
	ROWS(small, TT_TIER_QUICK),
	ROWS(infinities, TT_TIER_QUICK),
	ROWS(segments, TT_TIER_QUICK),
	ROWS(lines, TT_TIER_QUICK),
	ROWS(plain, TT_TIER_QUICK),
	ROWS(large, TT_TIER_CI),
	{"exact_orders", exact_orders, TT_TIER_QUICK},
	{"exact_value", exact_value, TT_TIER_QUICK},
	{"exact_chain", exact_chain, TT_TIER_QUICK},
	{"exact_flag", exact_flag, TT_TIER_QUICK},
	{"swap_is_seen", swap_is_seen, TT_TIER_QUICK},
	{"guard_is_seen", guard_is_seen, TT_TIER_QUICK},
	{0},
};
