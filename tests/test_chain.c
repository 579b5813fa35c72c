/* chain: products that add to what is there (linear_dw_acc, linear_dx_add), and weight gradients whose tokens, lines or panels take several turns,
 * on all sets of this CPU against the reference, bit for bit; and how columns are packed for them. Operands and scratch end at pages without access.
 */
#define _GNU_SOURCE
#include <sys/mman.h>

#include "kernels/kernels.h"
#include "kernels/panel.h"
#include "test.h"

static float value(uint64_t *s)
{
	*s += UINT64_C(0x9e3779b97f4a7c15);
	return (float)((double)(int64_t)(tt_mix64(*s) >> 11) * 0x1p-52 - 1.0);
}

static int64_t bytes_of(tt_dtype dt) { return dt == TT_BF16 ? 2 : 4; }

/* Room for n elements that ends (to 2 bytes) where a page without access begins; every float in it is NaN. */
static void *guarded(int64_t n, tt_dtype dt)
{
	enum { PAGE = 4096 };
	int64_t bytes = n * bytes_of(dt), inside = tt_round_up(TT_MAX(bytes, (int64_t)1), PAGE);
	uint8_t *p = mmap(NULL, (size_t)(inside + PAGE), PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	TT_ASSERT(p != MAP_FAILED && !mprotect(p, (size_t)inside, PROT_READ | PROT_WRITE));
	memset(p, 0xff, (size_t)inside);
	return p + inside - bytes;
}

static void *filled(uint64_t *s, int64_t n, tt_dtype dt)
{
	void *p = guarded(n, dt);
	for (int64_t i = 0; i < n; i++)
		if (dt == TT_BF16)
			((tt_bf16 *)p)[i] = tt_f32_to_bf16(value(s));
		else
			((float *)p)[i] = value(s);
	return p;
}

/* ---- products ------------------------------------------------------------------------------------------------------------------------------------ */

typedef struct product {
	const char *op;
	tt_dtype dt, out;
	int64_t t, o, k;
	bool first; /* of linear_dw_acc: nothing is there yet */
} product;

enum { MOST = 3 };

static bool is_dw(const product *p) { return p->op[7] == 'd' && p->op[8] == 'w'; }
static bool has_sum(const product *p) { return strlen(p->op) > 9; } /* _acc, _add */

/* Operands in the op's order; returns how many. n[MOST] is the output. */
static int extents(const product *p, int64_t n[MOST + 1][2], tt_dtype dt[MOST + 1])
{
	const int64_t T = p->t, O = p->o, K = p->k;
	const int64_t dw[MOST + 1][2] = { { O, K }, { T, O }, { T, K }, { O, K } }, dx[MOST + 1][2] = { { T, O }, { O, K }, { T, K }, { T, K } };
	int skip = is_dw(p) && !has_sum(p); /* linear_dw has no sum before its operands */
	for (int i = 0; i <= MOST; i++) {
		int j = i < MOST ? TT_MIN(i + skip, MOST - 1) : MOST;
		memcpy(n[i], is_dw(p) ? dw[j] : dx[j], sizeof n[i]);
		dt[i] = i == MOST ? p->out : has_sum(p) && i == (is_dw(p) ? 0 : 2) ? TT_ACC : p->dt;
	}
	return has_sum(p) ? 3 : 2;
}

static void call(const product *p, tt_kernel_fn *fn, void *const in[MOST], void *out, const void *plan, void *scratch, tt_pool *pool, tt_format format)
{
	int64_t n[MOST + 1][2];
	tt_dtype dt[MOST + 1];
	int nin = extents(p, n, dt);
	tt_arg a[MOST + 1] = { { 0 } };
	for (int i = 0; i <= MOST; i++)
		a[i] = (tt_arg){ .p = i < MOST ? in[i] : out, .dtype = dt[i], .ndim = 2, .n = { n[i][0], n[i][1] }, .ld = n[i][1] };
	if (!is_dw(p))
		a[1].format = format;
	tt_attr_accumulate acc = { .first = true };
	tt_attr_linear_dx dx = { .dtype = p->out };
	tt_env env = { .pool = pool, .threads = tt_pool_threads(pool), .numerics = TT_FAST, .first = p->first };
	tt_call c = { .in = a, .out = &a[MOST], .nin = nin, .nout = 1, .attr = is_dw(p) ? (const void *)&acc : &dx, .plan = plan, .scratch = scratch, .env = &env };
	fn(&c);
}

static void *packed(const product *p, void *w, tt_format format)
{
	void *out = guarded(tt_format_count(format, p->dt, p->o, p->k), p->dt);
	tt_attr_pack at = { p->dt, format };
	tt_arg in = { .p = w, .dtype = p->dt, .ndim = 2, .n = { p->o, p->k }, .ld = p->k }, y = in;
	y.p = out;
	y.format = format;
	tt_env env = { .threads = 1 };
	tt_call c = { .in = &in, .out = &y, .nin = 1, .nout = 1, .attr = &at, .env = &env };
	tt_kernel_ref("pack", tt_isa_detect(), false)->run(&c);
	return out;
}

/* On `isa` with `threads`, against the reference. */
static void check(tt_test *t, const product *p, tt_isa isa, int threads)
{
	int64_t n[MOST + 1][2];
	tt_dtype dt[MOST + 1];
	uint64_t s = t->seed + (uint64_t)(p->t * 7 + p->o * 3 + p->k);
	int nin = extents(p, n, dt);
	void *in[MOST] = { NULL };
	tt_value v[MOST + 1] = { { 0 } };
	const tt_value *vin[MOST], *vout = &v[MOST];
	for (int i = 0; i <= MOST; i++) {
		v[i].dtype = dt[i];
		v[i].ndim = 2;
		v[i].dim[0].n = n[i][0];
		v[i].dim[1].n = n[i][1];
		if (i < MOST)
			vin[i] = &v[i];
		if (i < nin)
			in[i] = filled(&s, n[i][0] * n[i][1], dt[i]);
	}
	if (!is_dw(p))
		v[1].format = TT_PACK_DX;
	tt_attr_accumulate acc = { .first = true };
	tt_attr_linear_dx dx = { .dtype = p->out };
	tt_kernel_case c = { .op = p->op, .attr = is_dw(p) ? (const void *)&acc : &dx, .nin = nin, .nout = 1, .in = vin, .out = &vout, .threads = threads };
	const char *what = tt_arena_printf(t->arena, "%s %s->%s t %lld o %lld k %lld%s, %s, %d threads", p->op, tt_dtype_name(p->dt), tt_dtype_name(p->out),
					   (long long)p->t, (long long)p->o, (long long)p->k, p->first ? " first" : "", tt_isa_name(isa), threads);
	const tt_override *o = tt_override_lying(&c, isa);
	if (!TT_CHECK_MSG(t, o != NULL, "%s: no override", what))
		return;
	const void *plan = NULL;
	tt_pool *pool = NULL;
	if (!TT_CHECK_OK(t, o->plan(&c, t->arena, &plan)) || !TT_CHECK_OK(t, tt_pool_create(threads, 20, &pool)))
		return;
	int64_t count = n[MOST][0] * n[MOST][1];
	void *want = guarded(count, p->out), *got = guarded(count, p->out);
	call(p, tt_kernel_ref(p->op, isa, false)->run, in, want, NULL, NULL, pool, TT_PLAIN);
	void *scratch = guarded(tt_round_up((int64_t)o->scratch(&c), 64) / 4, TT_F32);
	if (!is_dw(p))
		in[1] = packed(p, in[1], TT_PACK_DX);
	/* An accumulator is its own state, as the planner has it. */
	if (is_dw(p) && has_sum(p)) {
		memcpy(got, in[0], (size_t)(count * 4));
		in[0] = got;
	}
	call(p, o->run, in, got, plan, scratch, pool, TT_PACK_DX);
	int64_t bad = 0;
	for (int64_t i = 0; i < count; i++)
		bad += memcmp((char *)got + i * bytes_of(p->out), (char *)want + i * bytes_of(p->out), (size_t)bytes_of(p->out)) != 0;
	TT_CHECK_MSG(t, bad == 0, "%s (%s): %lld of %lld differ", what, o->name, (long long)bad, (long long)count);
	tt_pool_destroy(pool);
}

static void check_all(tt_test *t, product p, int threads)
{
	for (int isa = TT_ISA_AVX2; isa <= (int)tt_isa_detect(); isa++)
		for (int d = 0; d < 2; d++) {
			p.dt = d ? TT_BF16 : TT_F32;
			check(t, &p, (tt_isa)isa, threads);
		}
}

/* Tokens of no chunk, of part of one, of some and an odd one; features that fill no panel; more threads than sixes of lines. */
static void sums(tt_test *t)
{
	static const int64_t shapes[][3] = { { 0, 5, 7 }, { 1, 64, 64 }, { 2, 6, 64 }, { 5, 5, 65 }, { 6, 7, 128 }, { 7, 13, 200 }, { 64, 1, 3 }, { 65, 70, 64 },
					     { 513, 12, 64 }, { 1025, 20, 70 }, { 1540, 8, 129 } };
	for (int i = 0; i < TT_COUNT(shapes); i++) {
		product p = { .op = "linear_dw_acc", .out = TT_ACC, .t = shapes[i][0], .o = shapes[i][1], .k = shapes[i][2] };
		check_all(t, p, 1 + i % 3);
		p.first = true;
		check_all(t, p, 1 + (i + 1) % 3);
		product q = { .op = "linear_dx_add", .out = i % 2 ? TT_BF16 : TT_ACC, .t = shapes[i][0], .o = shapes[i][1] + shapes[i][1] % 2, .k = shapes[i][2] };
		check_all(t, q, 1 + i % 2);
	}
}

/* More than one packing of columns, more panels than a task packs, more lines than may stay open, over one chunk of tokens and two. */
static void turns(tt_test *t)
{
	static const int64_t shapes[][3] = { { 40, 800, 70 }, { 530, 400, 66 }, { 514, 9, 1100 }, { 1030, 1545, 10 } };
	for (int i = 0; i < TT_COUNT(shapes); i++) {
		product p = { .op = i % 2 ? "linear_dw_acc" : "linear_dw", .out = TT_ACC, .t = shapes[i][0], .o = shapes[i][1], .k = shapes[i][2] };
		for (int threads = 1; threads <= 3; threads += 2)
			check_all(t, p, threads);
	}
}

/* ---- signs of zero ------------------------------------------------------------------------------------------------------------------------------- */

/* Every product underflows to -0, and so does a segment; a segment with nothing in it is +0, and so is every sum with one. */
static void signs(tt_test *t)
{
	enum { T = 7, O = 70, K = 32 };
	static const int64_t full[9] = { 0, 4, 8, 12, 16, 20, 24, 28, 32 }, holes[9] = { 0, 0, 8, 8, 16, 24, 32, 32, 32 }, one[9] = { 0, 0, 0, 0, 0, 0, 32, 32, 32 };
	const struct { const int64_t *edges; bool bias, negative; } rows[] = { { full, false, true }, { holes, false, false }, { one, false, false },
									       { full, true, true }, { holes, true, false } };
	for (int isa = TT_ISA_AVX2; isa <= (int)tt_isa_detect(); isa++)
		for (int i = 0; i < TT_COUNT(rows) * 4; i++) {
			tt_dtype dt = i & 1 ? TT_BF16 : TT_F32, out = i & 2 ? TT_BF16 : TT_ACC;
			int r = i / 4;
			tt_value v[4] = { { .dtype = dt, .ndim = 2 }, { .dtype = dt, .ndim = 2, .format = TT_PACK_FWD }, { .dtype = TT_F32, .ndim = 1 }, { .dtype = out, .ndim = 2 } };
			const int64_t n[4][2] = { { T, K }, { O, K }, { O, 0 }, { T, O } };
			tt_arg a[4] = { { 0 } };
			for (int j = 0; j < 4; j++) {
				v[j].dim[0].n = n[j][0];
				v[j].dim[1].n = n[j][1];
				int64_t count = n[j][0] * TT_MAX(n[j][1], (int64_t)1);
				a[j] = (tt_arg){ .p = guarded(count, v[j].dtype), .dtype = v[j].dtype, .ndim = v[j].ndim, .n = { n[j][0], n[j][1] }, .ld = n[j][1] };
				const float with[] = { -0x1p-100f, 0x1p-100f, -0.0f };
				for (int64_t k = 0; j < 3 && k < count; k++)
					if (v[j].dtype == TT_BF16)
						((tt_bf16 *)a[j].p)[k] = tt_f32_to_bf16(with[j]);
					else
						((float *)a[j].p)[k] = with[j];
			}
			const tt_value *in[] = { &v[0], &v[1], &v[2] }, *y = &v[3];
			tt_attr_linear at = { out, { 9, rows[r].edges }, false };
			tt_kernel_case c = { .op = "linear", .attr = &at, .nin = rows[r].bias ? 3 : 2, .nout = 1, .in = in, .out = &y, .threads = 1 };
			const tt_override *o = tt_override_lying(&c, (tt_isa)isa);
			const void *plan = NULL;
			if (!TT_CHECK(t, o != NULL) || !TT_CHECK_OK(t, o->plan(&c, t->arena, &plan)))
				return;
			product p = { .dt = dt, .o = O, .k = K };
			a[1].p = packed(&p, a[1].p, TT_PACK_FWD);
			a[1].format = TT_PACK_FWD;
			tt_env env = { .threads = 1 };
			tt_call call = { .in = a, .out = &a[3], .nin = c.nin, .nout = 1, .attr = &at, .plan = plan, .env = &env };
			call.scratch = guarded(tt_round_up((int64_t)o->scratch(&c), 64) / 4, TT_F32);
			o->run(&call);
			int64_t bad = 0;
			for (int64_t k = 0; k < T * O; k++) {
				float f = out == TT_BF16 ? tt_bf16_to_f32(((tt_bf16 *)a[3].p)[k]) : ((float *)a[3].p)[k];
				bad += f != 0 || !!__builtin_signbit(f) != rows[r].negative;
			}
			TT_CHECK_MSG(t, bad == 0, "row %d, %s->%s (%s): %lld of %d are not %c0", r, tt_dtype_name(dt), tt_dtype_name(out), o->name, (long long)bad, T * O,
				     rows[r].negative ? '-' : '+');
		}
}

/* ---- columns in sixes -------------------------------------------------------------------------------------------------------------------------- */

static void sixes(tt_test *t)
{
#ifndef TT_NO_X86
	if (tt_isa_detect() < TT_ISA_AVX2)
		TT_SKIP(t, "needs AVX2");
	uint64_t s = t->seed;
	static const int64_t shapes[][3] = { { 1, 1, 1 }, { 3, 6, 6 }, { 8, 7, 9 }, { 17, 20, 20 }, { 40, 14, 30 }, { 33, 100, 100 } }; /* lines, columns, of a line */
	for (int i = 0; i < TT_COUNT(shapes); i++)
		for (int d = 0; d < 2; d++) {
			int64_t n = shapes[i][0], no = shapes[i][1], ld = shapes[i][2], pair = d + 1, words = tt_ceil_div(n, pair), run = 6 * words + 2;
			int64_t runs = tt_ceil_div(no, 6), bad = 0;
			tt_dtype dt = d ? TT_BF16 : TT_F32;
			void *all = filled(&s, n * ld, dt), *got = guarded(runs * run * pair, dt);
			const char *dy = (const char *)all + (ld - no) * bytes_of(dt); /* the last columns: what ends at the page */
			if (d)
				tt_lines_six_bf16((const tt_bf16 *)dy, ld, n, no, run, got);
			else
				tt_lines_six_f32((const float *)dy, ld, n, no, run, got);
			for (int64_t o = 0; o < no; o++)
				for (int64_t j = 0; j < words * pair; j++) {
					int64_t at = (o / 6 * run + j / pair * 6 + o % 6) * pair + j % pair;
					if (d)
						bad += ((tt_bf16 *)got)[at] != (j < n ? ((const tt_bf16 *)dy)[j * ld + o] : 0);
					else
						bad += ((float *)got)[at] != ((const float *)dy)[j * ld + o];
				}
			TT_CHECK_MSG(t, bad == 0, "%s, %lld lines of %lld columns: %lld differ", tt_dtype_name(dt), (long long)n, (long long)no, (long long)bad);
		}
#else
	TT_SKIP(t, "no x86");
#endif
}

const tt_case tt_suite_chain[] = {
	{ "sums", sums, TT_TIER_QUICK },
	{ "turns", turns, TT_TIER_QUICK },
	{ "signs", signs, TT_TIER_QUICK },
	{ "sixes", sixes, TT_TIER_QUICK },
	{ 0 },
};
