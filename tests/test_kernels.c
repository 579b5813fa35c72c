/* Every kernel of the families elementwise, norm, rope, loss, optim, init and embed, called as the executor would:
 *   - against its formula, written here naively in double;
 *   - the same bits from every instruction set, with one thread and two, in place and not;
 *   - f32, bf16 and f64; extents 0, 1 and odd; lines apart from each other, nothing written between them;
 *   - in `exact`: limbs do not depend on the order or the split of a sum; what cannot be proven raises the flag.
 * Each kind of check is also run on a kernel made wrong on purpose. */
#include "test.h"

#include "kernels/exact.h"
#include "kernels/random.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

/* ---- operands ------------------------------------------------------------------------------------------------------------- */

typedef enum kind { VAL, STAT, ACC, INT } kind; /* VAL: the case's dtype; STAT: f32, f64 in the f64 set */

enum { MAX_ARGS = 10, GAP = 3, CANARY = 0xa5 };

typedef struct operand {
	kind kind;
	int ndim;
	int64_t n[2];
	double *v;   /* an input's values as stored; an output's as wanted */
	double *mag; /* an output's magnitude of error: what the tolerance is times of */
	bool bits;   /* an output that must be equal, not near */
} operand;

typedef struct sample {
	tt_test *t;
	const char *op;
	const void *attr;
	tt_dtype val;
	bool f64, exact;
	uint64_t random;
	int nin, nout;
	operand in[MAX_ARGS], out[MAX_ARGS];
	bool first;
	int64_t step;
	bool ranged; /* exact: a value was out of bounds */
} sample;

static double unit(sample *s)
{
	s->random = s->random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
	return (double)(s->random >> 33) * 0x1p-31;
}
static double normalish(sample *s) { return (unit(s) + unit(s) + unit(s) - 1.5) * 2; }

static tt_dtype dtype_of(const sample *s, kind k)
{
	switch (k) {
	case VAL: return s->f64 ? TT_F64 : s->val;
	case STAT: return s->f64 ? TT_F64 : TT_F32;
	case ACC: return TT_ACC;
	case INT: return TT_I32;
	}
	return TT_NODTYPE;
}
static double rounded(tt_dtype d, bool f64, double x)
{
	if (d == TT_BF16)
		return (double)tt_bf16_to_f32(tt_f32_to_bf16((float)x));
	return d == TT_F64 || d == TT_I32 || f64 ? x : (double)(float)x;
}
static int64_t count(const operand *o) { return o->ndim == 0 ? 1 : o->ndim == 1 ? o->n[0] : o->n[0] * o->n[1]; }

static operand *operand_new(sample *s, operand *list, int *n, kind k, int ndim, int64_t n0, int64_t n1)
{
	operand *o = &list[(*n)++];
	*o = (operand){.kind = k, .ndim = ndim, .n = {n0, n1}};
	o->v = TT_NEWN(s->t->arena, double, count(o) + 1);
	o->mag = TT_NEWN(s->t->arena, double, count(o) + 1);
	return o;
}
/* An input of values around 0, as the dtype can hold them. */
static double *input(sample *s, kind k, int ndim, int64_t n0, int64_t n1)
{
	operand *o = operand_new(s, s->in, &s->nin, k, ndim, n0, n1);
	for (int64_t i = 0; i < count(o); i++)
		o->v[i] = rounded(dtype_of(s, k), s->f64, normalish(s));
	return o->v;
}
static double *ids(sample *s, int64_t n, int64_t below)
{
	double *v = input(s, INT, 1, n, 1);
	for (int64_t i = 0; i < n; i++)
		v[i] = floor(unit(s) * (double)below);
	return v;
}
static operand *output(sample *s, kind k, int ndim, int64_t n0, int64_t n1)
{
	return operand_new(s, s->out, &s->nout, k, ndim, n0, n1);
}
static void want(operand *o, int64_t i, double v, double mag)
{
	o->v[i] = v;
	o->mag[i] = mag;
}

/* An operand in memory: lines GAP elements apart, everything else CANARY. */
typedef struct stored { tt_arg arg; uint8_t *bytes; size_t n; } stored;

static size_t element(const sample *s, kind k)
{
	switch (k) {
	case VAL: return s->f64 ? 8 : s->val == TT_BF16 ? 2 : 4;
	case STAT: return s->f64 ? 8 : 4;
	case ACC: return s->f64 || s->exact ? 8 : 4;
	case INT: return 4;
	}
	return 0;
}
static stored store(const sample *s, const operand *o, bool fill)
{
	size_t size = element(s, o->kind);
	int64_t width = o->ndim == 2 ? o->n[1] : count(o), lines = o->ndim == 2 ? o->n[0] : 1;
	int64_t ld = o->ndim == 2 ? width + GAP : 1, plane = (int64_t)size * (lines * (width + GAP) + GAP);
	bool limbs = o->kind == ACC && s->exact;
	stored m = {.n = (size_t)plane * (limbs ? 3 : 1)};
	m.bytes = tt_arena_alloc(s->t->arena, m.n);
	memset(m.bytes, CANARY, m.n);
	m.arg = (tt_arg){.p = m.bytes, .dtype = dtype_of(s, o->kind), .ndim = o->ndim, .n = {o->n[0], o->n[1]}, .ld = ld,
		.plane = limbs ? plane : 0};
	for (int64_t i = 0; fill && i < lines * width; i++) {
		uint8_t *p = m.bytes + (size_t)(i / width * (width + GAP) + i % width) * size;
		float f = (float)o->v[i];
		tt_bf16 b = tt_f32_to_bf16(f);
		int32_t k = (int32_t)o->v[i];
		exact_sum sum = {{0}};
		if (limbs) {
			exact_add_term(&sum, o->v[i]);
			for (int j = 0; j < 3; j++)
				memcpy(p + j * plane, &sum.k[j], 8);
		} else if (o->kind == INT) {
			memcpy(p, &k, 4);
		} else if (size == 8) {
			memcpy(p, &o->v[i], 8);
		} else if (size == 4) {
			memcpy(p, &f, 4);
		} else {
			memcpy(p, &b, 2);
		}
	}
	return m;
}
static double value_at(const sample *s, const operand *o, const stored *m, int64_t i)
{
	int64_t width = o->ndim == 2 ? o->n[1] : count(o);
	size_t size = element(s, o->kind);
	const uint8_t *p = m->bytes + (size_t)(i / width * (width + GAP) + i % width) * size;
	if (o->kind == ACC && s->exact) {
		exact_sum sum;
		for (int j = 0; j < 3; j++)
			memcpy(&sum.k[j], p + j * m->arg.plane, 8);
		return (double)exact_round(&sum);
	}
	if (size == 8) {
		double d;
		memcpy(&d, p, 8);
		return d;
	}
	if (size == 2) {
		tt_bf16 b;
		memcpy(&b, p, 2);
		return (double)tt_bf16_to_f32(b);
	}
	float f;
	memcpy(&f, p, 4);
	return (double)f;
}
/* True if the bytes between the lines are as they were. */
static bool gaps_clean(const sample *s, const operand *o, const stored *m)
{
	int64_t width = o->ndim == 2 ? o->n[1] : count(o), lines = o->ndim == 2 ? o->n[0] : 1;
	size_t size = element(s, o->kind), line = (size_t)(width + GAP) * size;
	size_t plane = m->arg.plane ? (size_t)m->arg.plane : m->n;
	for (size_t i = 0; i < m->n; i++) {
		size_t at = i % plane;
		if (at / line < (size_t)lines && at % line < (size_t)width * size)
			continue;
		if (m->bytes[i] != CANARY)
			return false;
	}
	return true;
}

/* ---- running ---------------------------------------------------------------------------------------------------------------- */

typedef struct result { stored out[MAX_ARGS]; int flag; } result;

static result run_kernel(const sample *s, tt_kernel_fn *fn, tt_pool *pool, int in_place)
{
	stored in[MAX_ARGS] = {0};
	tt_arg ain[MAX_ARGS], aout[MAX_ARGS];
	result r = {0};
	_Atomic int flag = 0;
	tt_env env = {.pool = pool, .threads = tt_pool_threads(pool), .numerics = s->exact ? TT_EXACT : TT_FAST, .f64 = s->f64,
		.first = s->first, .step = s->step, .seed = 42, .flags = &flag};
	for (int i = 0; i < s->nin; i++) {
		in[i] = store(s, &s->in[i], true);
		ain[i] = in[i].arg;
	}
	for (int i = 0; i < s->nout; i++) {
		r.out[i] = i < in_place ? in[i] : store(s, &s->out[i], false);
		aout[i] = r.out[i].arg;
	}
	tt_call call = {.in = ain, .out = aout, .nin = s->nin, .nout = s->nout, .attr = s->attr, .env = &env, .flag = &flag};
	fn(&call);
	r.flag = atomic_load(&flag);
	return r;
}

/* NULL if the outputs are near what is wanted and nothing else was written. */
static const char *against_formula(const sample *s, const result *r)
{
	for (int k = 0; k < s->nout; k++) {
		const operand *o = &s->out[k];
		double eps = s->f64 ? 0x1p-48 : 0x1p-20, last = dtype_of(s, o->kind) == TT_BF16 ? 0x1p-8 : 0;
		if (!gaps_clean(s, o, &r->out[k]))
			return tt_arena_printf(s->t->arena, "output %d: written outside of its lines", k);
		for (int64_t i = 0; i < count(o); i++) {
			double got = value_at(s, o, &r->out[k], i), w = o->v[i];
			double off = fabs(got - w), may = o->bits ? 0 : eps * (fabs(w) + o->mag[i]) + last * fabs(w);
			if (o->bits && signbit(got) != signbit(w) && !isnan(w))
				off = INFINITY;
			if (isnan(w) ? !isnan(got) : isinf(w) ? got != w : !(off <= may))
				return tt_arena_printf(s->t->arena, "output %d element %lld: %.9g, want %.9g (off %.2g, may %.2g)", k,
					(long long)i, got, w, off, may);
		}
	}
	return NULL;
}
static const char *against_bits(const sample *s, const result *a, const result *b)
{
	for (int k = 0; k < s->nout; k++)
		if (memcmp(a->out[k].bytes, b->out[k].bytes, a->out[k].n))
			return tt_arena_printf(s->t->arena, "output %d: other bits", k);
	return NULL;
}

typedef struct machine { tt_pool *two; tt_isa best; } machine;

static tt_kernel_fn *kernel_of(const sample *s, tt_isa isa)
{
	const tt_kernel *k = tt_kernel_ref(s->op, isa, s->f64);
	if (!k)
		return NULL;
	return s->exact && k->exact ? k->exact : k->run;
}

/* How many outputs may lie on inputs of the same place, for the ops that allow it. */
static int in_place_of(const sample *s)
{
	static const struct { const char *op; int outputs; } known[] = { { "add", 1 }, { "accumulate", 1 }, { "rope", 1 }, { "silu_mul", 1 },
		{ "silu_mul_bwd", 2 }, { "rms_norm_dx", 1 }, { "adamw", 3 }, { "sgd", 2 } };
	if (!strcmp(s->op, "round"))
		return element(s, ACC) == element(s, VAL) && !s->exact;
	for (int i = 0; i < TT_COUNT(known); i++)
		if (!strcmp(known[i].op, s->op))
			return known[i].outputs;
	return 0;
}

/* All checks of one sample. */
static void check_sample(sample *s, const machine *m)
{
	tt_mark mark = tt_arena_push(s->t->arena);
	const char *what = tt_arena_printf(s->t->arena, "%s [%lld,%lld] %s%s", s->op, (long long)s->in[0].n[0],
		(long long)s->in[0].n[1], s->f64 ? "f64" : tt_dtype_name(s->val), s->exact ? " exact" : "");
	tt_kernel_fn *ref = kernel_of(s, TT_ISA_REF);
	if (!TT_CHECK_MSG(s->t, ref, "%s: no kernel", what))
		return;
	result one = run_kernel(s, ref, NULL, 0);
	const char *why = against_formula(s, &one);
	TT_CHECK_MSG(s->t, !why, "%s: %s", what, why);
	TT_CHECK_MSG(s->t, one.flag == s->ranged, "%s: flag %d", what, one.flag);
	for (tt_isa isa = TT_ISA_REF; isa <= TT_MIN(m->best, TT_ISA_AVX512) && !(s->f64 && isa); isa++) {
		for (int threads = 1; threads <= 2; threads++) {
			result other = run_kernel(s, kernel_of(s, isa), threads == 2 ? m->two : NULL, 0);
			why = against_bits(s, &one, &other);
			TT_CHECK_MSG(s->t, !why, "%s, %s, %d threads: %s", what, tt_isa_name(isa), threads, why);
			TT_CHECK_INT(s->t, other.flag, one.flag);
		}
		if (in_place_of(s)) {
			result there = run_kernel(s, kernel_of(s, isa), m->two, in_place_of(s));
			why = against_bits(s, &one, &there);
			TT_CHECK_MSG(s->t, !why, "%s, %s, in place: %s", what, tt_isa_name(isa), why);
		}
	}
	tt_arena_pop(s->t->arena, mark);
}

/* ---- samples: inputs, and the formula in double --------------------------------------------------------------------------------
 * Each makes the operands of its op for T lines of width n. */

typedef void sample_fn(sample *s, int64_t T, int64_t n);

#define ATTR(s, type, ...)                                                                                             \
	do {                                                                                                           \
		type *attr_ = TT_NEW((s)->t->arena, type);                                                             \
		*attr_ = (type)__VA_ARGS__;                                                                            \
		(s)->attr = attr_;                                                                                     \
	} while (0)

static void make_round(sample *s, int64_t T, int64_t n)
{
	const double *x = input(s, ACC, 2, T, n);
	operand *y = output(s, VAL, 2, T, n);
	if (T && n)
		s->in[0].v[0] = -0.0;
	for (int64_t i = 0; i < T * n; i++)
		want(y, i, rounded(dtype_of(s, VAL), s->f64, x[i]) + 0.0, 0); /* -0 becomes +0 */
	y->bits = true;
	ATTR(s, tt_attr_dtype, {dtype_of(s, VAL)});
}
static void make_cast(sample *s, int64_t T, int64_t n)
{
	double *x = input(s, STAT, 2, T, n);
	operand *y = output(s, VAL, 2, T, n);
	/* Ties of bf16 below and above an even one, what rounds up to infinity, the rest of what there is. */
	const double hard[] = {1 + 0x1p-8, 1 + 0x1.8p-7, -1 - 0x1p-8, 0x1.fffp127, INFINITY, -INFINITY, NAN, -0.0, 0x1p-149, 0x1.01p-126};
	for (int64_t i = 0; i < T * n && i < TT_COUNT(hard); i++)
		x[i] = hard[i];
	for (int64_t i = 0; i < T * n; i++)
		want(y, i, rounded(dtype_of(s, VAL), s->f64, x[i]), 0);
	y->bits = true;
	ATTR(s, tt_attr_dtype, {dtype_of(s, VAL)});
}
static void make_widen(sample *s, int64_t T, int64_t n)
{
	s->op = "cast";
	const double *x = input(s, VAL, 2, T, n);
	operand *y = output(s, STAT, 2, T, n);
	for (int64_t i = 0; i < T * n; i++)
		want(y, i, x[i], 0);
	y->bits = true;
}
static void make_sum(sample *s, int64_t T, int64_t n, kind k)
{
	const double *a = input(s, k, 2, T, n), *b = input(s, k, 2, T, n);
	operand *y = output(s, k, 2, T, n);
	for (int64_t i = 0; i < T * n; i++)
		want(y, i, a[i] + b[i], 0);
}
static void make_add(sample *s, int64_t T, int64_t n) { make_sum(s, T, n, VAL); }
static void make_add_acc(sample *s, int64_t T, int64_t n)
{
	s->op = "add";
	make_sum(s, T, n, ACC);
}
static void make_accumulate(sample *s, int64_t T, int64_t n)
{
	make_sum(s, T, n, ACC);
	ATTR(s, tt_attr_accumulate, {false});
	s->first = true;
}
static void make_accumulate_first(sample *s, int64_t T, int64_t n)
{
	s->op = "accumulate";
	make_sum(s, T, n, ACC);
	for (int64_t i = 0; i < T * n; i++)
		want(&s->out[0], i, s->in[1].v[i], 0);
	s->out[0].bits = true;
	ATTR(s, tt_attr_accumulate, {true});
	s->first = true;
}
static void make_split(sample *s, int64_t T, int64_t n)
{
	s->op = "split_tokens";
	const double *x = input(s, ACC, 2, T, n);
	for (int k = 0, at = 0; k < 3; k++) {
		int64_t part = tt_deal(T, k + 1, 3) - tt_deal(T, k, 3);
		operand *y = output(s, ACC, 2, part, n);
		for (int64_t i = 0; i < part * n; i++)
			want(y, i, x[at + i], 0);
		y->bits = true;
		at += (int)(part * n);
	}
}
static void make_concat(sample *s, int64_t T, int64_t n)
{
	s->op = "concat_tokens";
	(void)n;
	
	for (int k = 0; k < 3; k++)
		input(s, STAT, 1, tt_deal(T, k + 1, 3) - tt_deal(T, k, 3), 1);
	operand *y = output(s, STAT, 1, T, 1);
	for (int64_t k = 0, at = 0; k < 3; k++)
		for (int64_t i = 0; i < s->in[k].n[0]; i++)
			want(y, at++, s->in[k].v[i], 0);
	y->bits = true;
}
static void make_broadcast(sample *s, int64_t T, int64_t n)
{
	(void)n;
	const double *x = input(s, STAT, 1, 1, 1);
	input(s, STAT, 1, T, 1);
	operand *y = output(s, STAT, 1, T, 1);
	for (int64_t i = 0; i < T; i++)
		want(y, i, x[0], 0);
	y->bits = true;
}
static double sigmoid(double x) { return 1 / (1 + exp(-x)); }
static void make_silu_mul(sample *s, int64_t T, int64_t n)
{
	double *g = input(s, VAL, 2, T, n);
	const double *u = input(s, VAL, 2, T, n);
	operand *y = output(s, VAL, 2, T, n);
	if (T && n)
		g[0] = rounded(dtype_of(s, VAL), s->f64, -60);
	for (int64_t i = 0; i < T * n; i++)
		want(y, i, g[i] * sigmoid(g[i]) * u[i], 0);
}
static void make_silu_mul_bwd(sample *s, int64_t T, int64_t n)
{
	const double *g = input(s, VAL, 2, T, n), *u = input(s, VAL, 2, T, n), *dy = input(s, VAL, 2, T, n);
	operand *dg = output(s, VAL, 2, T, n), *du = output(s, VAL, 2, T, n);
	for (int64_t i = 0; i < T * n; i++) {
		double h = 1e-4, up = (g[i] + h) * sigmoid(g[i] + h), down = (g[i] - h) * sigmoid(g[i] - h);
		double sg = sigmoid(g[i]), slope = sg * (1 + g[i] * (1 - sg));
		TT_CHECK(s->t, fabs((up - down) / (2 * h) - slope) < 1e-7); /* the formula is the derivative */
		want(dg, i, dy[i] * u[i] * slope, fabs(dy[i] * u[i]));
		want(du, i, dy[i] * g[i] * sg, 0);
	}
}
static void make_rms_norm(sample *s, int64_t T, int64_t n)
{
	const double *x = input(s, VAL, 2, T, n), *w = input(s, VAL, 1, n, 1), eps = 1e-3;
	operand *y = output(s, VAL, 2, T, n), *rstd = output(s, STAT, 1, T, 1);
	ATTR(s, tt_attr_norm, {eps});
	for (int64_t t = 0; t < T; t++) {
		double sum = 0;
		for (int64_t i = 0; i < n; i++)
			sum += x[t * n + i] * x[t * n + i];
		double r = 1 / sqrt(sum / (double)n + eps);
		want(rstd, t, n ? r : NAN, 0);
		for (int64_t i = 0; i < n; i++)
			want(y, t * n + i, x[t * n + i] * r * w[i], 0);
	}
}
static void make_rms_norm_dx(sample *s, int64_t T, int64_t n)
{
	const double *dy = input(s, VAL, 2, T, n), *x = input(s, VAL, 2, T, n), *w = input(s, VAL, 1, n, 1);
	const double *rstd = input(s, STAT, 1, T, 1);
	operand *dx = output(s, VAL, 2, T, n);
	for (int64_t t = 0; t < T; t++) {
		double sum = 0, all = 0;
		for (int64_t i = 0; i < n; i++) {
			sum += dy[t * n + i] * w[i] * x[t * n + i];
			all += fabs(dy[t * n + i] * w[i] * x[t * n + i]);
		}
		double r = rstd[t], c = r * r / (double)n;
		for (int64_t i = 0; i < n; i++)
			want(dx, t * n + i, r * (dy[t * n + i] * w[i] - x[t * n + i] * sum * c),
				fabs(r) * (fabs(dy[t * n + i] * w[i]) + fabs(x[t * n + i] * all * c)));
	}
}
static void make_rms_norm_dw(sample *s, int64_t T, int64_t n)
{
	const double *dy = input(s, VAL, 2, T, n), *x = input(s, VAL, 2, T, n), *rstd = input(s, STAT, 1, T, 1);
	operand *dw = output(s, ACC, 1, n, 1);
	for (int64_t i = 0; i < n; i++)
		for (int64_t t = 0; t < T; t++) {
			dw->v[i] += dy[t * n + i] * x[t * n + i] * rstd[t];
			dw->mag[i] += fabs(dy[t * n + i] * x[t * n + i] * rstd[t]);
		}
}
static void make_sum_tokens(sample *s, int64_t T, int64_t n)
{
	const double *x = input(s, VAL, 2, T, n);
	operand *y = output(s, ACC, 1, n, 1);
	for (int64_t i = 0; i < n; i++)
		for (int64_t t = 0; t < T; t++) {
			y->v[i] += x[t * n + i];
			y->mag[i] += fabs(x[t * n + i]);
		}
}
static void make_total(sample *s, int64_t T, int64_t n)
{
	const double *x = input(s, STAT, 1, T * n, 1);
	operand *y = output(s, ACC, 1, 1, 1);
	for (int64_t i = 0; i < T * n; i++) {
		y->v[0] += x[i];
		y->mag[0] += fabs(x[i]);
	}
}
static void make_rope_table(sample *s, int64_t T, int64_t n)
{
	double *p = ids(s, T, 3000000), *freq = TT_NEWN(s->t->arena, double, n + 1), scale = 1.25;
	operand *y = output(s, STAT, 2, T, 2 * n);
	for (int64_t i = 0; i < n; i++)
		freq[i] = pow(10000, -(double)i / (double)n);
	ATTR(s, tt_attr_rope_table, {{n, freq}, scale});
	for (int64_t t = 0; t < T; t++)
		for (int64_t i = 0; i < n; i++) {
			double angle = s->f64 ? p[t] * (double)(float)freq[i] : (double)((float)p[t] * (float)freq[i]);
			want(y, t * 2 * n + i, cos(angle) * scale, 0);
			want(y, t * 2 * n + n + i, sin(angle) * scale, s->f64 ? 1 : 0);
		}
}
static void make_turn(sample *s, int64_t T, int64_t n, bool inverse)
{
	int64_t K = 6, half = 3, heads = n;
	s->op = "rope";
	const double *x = input(s, VAL, 2, T, heads * K), *table = input(s, STAT, 2, T, K);
	operand *y = output(s, VAL, 2, T, heads * K);
	ATTR(s, tt_attr_rope, {K, inverse});
	for (int64_t t = 0; t < T; t++)
		for (int64_t h = 0; h < heads; h++)
			for (int64_t i = 0; i < half; i++) {
				int64_t at = (t * heads + h) * K + i;
				double a = x[at], b = x[at + half], c = table[t * K + i], d = table[t * K + half + i] * (inverse ? -1 : 1);
				want(y, at, a * c - b * d, fabs(a * c) + fabs(b * d));
				want(y, at + half, b * c + a * d, fabs(b * c) + fabs(a * d));
			}
}
static void make_rope(sample *s, int64_t T, int64_t n) { make_turn(s, T, n, false); }
static void make_rope_inverse(sample *s, int64_t T, int64_t n) { make_turn(s, T, n, true); }

static void make_row_max(sample *s, int64_t T, int64_t n)
{
	const double *x = input(s, STAT, 2, T, n);
	operand *m = output(s, STAT, 1, T, 1);
	for (int64_t t = 0; t < T; t++) {
		want(m, t, -INFINITY, 0);
		for (int64_t i = 0; i < n; i++)
			m->v[t] = fmax(m->v[t], x[t * n + i]);
	}
	m->bits = true;
}
static void make_sum_exp(sample *s, int64_t T, int64_t n)
{
	const double *x = input(s, STAT, 2, T, n), *m = input(s, STAT, 1, T, 1);
	operand *y = output(s, ACC, 1, T, 1);
	for (int64_t t = 0; t < T; t++)
		for (int64_t i = 0; i < n; i++)
			y->v[t] += exp(rounded(s->f64 ? TT_F64 : TT_F32, s->f64, x[t * n + i] - m[t]));
}
static double *labels_for(sample *s, int64_t T, int64_t n)
{
	double *label = ids(s, T, n + 9); /* some in other shards: this one has [4, 4+n) */
	for (int64_t t = 0; t < T; t += 5)
		label[t] = -100;
	ATTR(s, tt_attr_vocab, {4, n});
	return label;
}
static void make_pick(sample *s, int64_t T, int64_t n)
{
	const double *x = input(s, STAT, 2, T, n), *label = labels_for(s, T, n);
	operand *y = output(s, ACC, 1, T, 1);
	for (int64_t t = 0; t < T; t++)
		want(y, t, label[t] >= 4 && label[t] < 4 + (double)n ? x[t * n + (int64_t)label[t] - 4] : 0, 0);
	y->bits = true;
}
static void make_lse(sample *s, int64_t T, int64_t n)
{
	(void)n;
	const double *m = input(s, STAT, 1, T, 1);
	double *sum = input(s, STAT, 1, T, 1);
	operand *y = output(s, STAT, 1, T, 1);
	for (int64_t t = 0; t < T; t++) {
		sum[t] = rounded(s->f64 ? TT_F64 : TT_F32, s->f64, fabs(sum[t]) + 0.1);
		want(y, t, m[t] + log(sum[t]), fabs(m[t]) + 1);
	}
}
static void make_nll(sample *s, int64_t T, int64_t n)
{
	input(s, STAT, 2, T, n);
	const double *label = labels_for(s, T, n), *l = input(s, STAT, 1, T, 1), *target = input(s, STAT, 1, T, 1);
	operand *y = output(s, STAT, 1, T, 1);
	for (int64_t t = 0; t < T; t++)
		want(y, t, label[t] < 0 ? 0 : l[t] - target[t], 0);
}
static void make_nll_dx(sample *s, int64_t T, int64_t n)
{
	const double *x = input(s, STAT, 2, T, n), *label = labels_for(s, T, n), *l = input(s, STAT, 1, T, 1);
	const double *dy = input(s, STAT, 1, T, 1);
	operand *dx = output(s, VAL, 2, T, n);
	for (int64_t t = 0; t < T; t++)
		for (int64_t i = 0; i < n; i++) {
			double p = exp(rounded(s->f64 ? TT_F64 : TT_F32, s->f64, x[t * n + i] - l[t]));
			double v = (p - (label[t] == (double)(i + 4))) * dy[t];
			want(dx, t * n + i, label[t] < 0 ? 0 : v, (p + 1) * fabs(dy[t]));
		}
}
static void make_square_sum(sample *s, int64_t T, int64_t n)
{
	const double *x = input(s, STAT, 2, T, n);
	operand *y = output(s, ACC, 1, 1, 1);
	for (int64_t i = 0; i < T * n; i++)
		y->v[0] += x[i] * x[i];
	y->mag[0] = y->v[0];
}
static void make_norm_clip(sample *s, int64_t T, int64_t n)
{
	double *x = input(s, STAT, 1, 1, 1), max_norm = n > 1 ? 1.5 : 0;
	operand *norm = output(s, STAT, 1, 1, 1), *coef = output(s, STAT, 1, 1, 1);
	x[0] = T <= 1 ? INFINITY : n == 0 ? NAN : T == 2 ? 0.5 : (double)T * 4;
	want(norm, 0, sqrt(x[0]), 0);
	want(coef, 0, !isfinite(x[0]) ? 0 : max_norm > 0 ? fmin(1, max_norm / (sqrt(x[0]) + 1e-6)) : 1, 0);
	ATTR(s, tt_attr_clip, {max_norm});
}
static void hyper(sample *s, double lr, double c1, double c2, double skip)
{
	double *h = input(s, STAT, 1, 4, 1), v[4] = {lr, c1, c2, skip};
	for (int i = 0; i < 4; i++)
		h[i] = rounded(s->f64 ? TT_F64 : TT_F32, s->f64, v[i]);
}
static void make_adamw_step(sample *s, int64_t T, int64_t n, bool skip)
{
	s->op = "adamw";
	const double *p = input(s, STAT, 2, T, n), *m = input(s, STAT, 2, T, n);
	double *v = input(s, STAT, 2, T, n), *g = input(s, STAT, 2, T, n), coef = input(s, STAT, 1, 1, 1)[0];
	const double b1 = 0.9, b2 = 0.95, lr = 0.01, c1 = 1 - b1 * b1, c2 = 1 - b2 * b2, eps = 1e-3, wd = 0.1, scale = 2;
	hyper(s, lr, c1, c2, skip);
	ATTR(s, tt_attr_adamw, {b1, b2, eps, wd, scale});
	for (int k = 0; k < 3; k++)
		output(s, STAT, 2, T, n);
	for (int64_t i = 0; i < T * n; i++) {
		v[i] = fabs(v[i]);
		if (skip && i % 7 == 0)
			g[i] = NAN;
		double gi = g[i] * coef, mi = b1 * m[i] + (1 - b1) * gi, vi = b2 * v[i] + (1 - b2) * gi * gi;
		double step = lr * scale * (mi / c1) / (sqrt(vi / c2) + eps);
		want(&s->out[0], i, skip ? p[i] : p[i] * (1 - lr * scale * wd) - step, fabs(step) * 50);
		want(&s->out[1], i, skip ? m[i] : mi, fabs(m[i]) + fabs(gi));
		want(&s->out[2], i, skip ? v[i] : vi, 0);
	}
	for (int k = 0; k < 3; k++)
		s->out[k].bits = skip;
}
static void make_adamw(sample *s, int64_t T, int64_t n) { make_adamw_step(s, T, n, false); }
static void make_adamw_skip(sample *s, int64_t T, int64_t n) { make_adamw_step(s, T, n, true); }
static void make_sgd_step(sample *s, int64_t T, int64_t n, int64_t step, bool nesterov, bool skip)
{
	s->op = "sgd";
	const double *p = input(s, STAT, 2, T, n), *b = input(s, STAT, 2, T, n), *g = input(s, STAT, 2, T, n);
	const double coef = input(s, STAT, 1, 1, 1)[0], lr = 0.1, momentum = 0.9, wd = 0.01, scale = 0.5;
	hyper(s, lr, 1, 1, skip);
	ATTR(s, tt_attr_sgd, {momentum, wd, scale, nesterov});
	s->step = step;
	operand *np = output(s, STAT, 2, T, n), *nb = output(s, STAT, 2, T, n);
	for (int64_t i = 0; i < T * n; i++) {
		double gi = g[i] * coef + wd * p[i], bi = step == 1 ? gi : momentum * b[i] + gi, d = nesterov ? gi + momentum * bi : bi;
		want(np, i, skip ? p[i] : p[i] - lr * scale * d, 10);
		want(nb, i, skip ? b[i] : bi, 10);
	}
}
static void make_sgd(sample *s, int64_t T, int64_t n) { make_sgd_step(s, T, n, 2, false, false); }
static void make_sgd_first(sample *s, int64_t T, int64_t n) { make_sgd_step(s, T, n, 1, true, false); }
static void make_sgd_nesterov(sample *s, int64_t T, int64_t n) { make_sgd_step(s, T, n, 3, true, false); }
static void make_sgd_skip(sample *s, int64_t T, int64_t n) { make_sgd_step(s, T, n, 3, true, true); }

static void make_embedding(sample *s, int64_t T, int64_t n)
{
	int64_t V = 11;
	const double *id = ids(s, T, V + 9), *w = input(s, VAL, 2, V, n);
	operand *y = output(s, ACC, 2, T, n);
	ATTR(s, tt_attr_vocab, {4, V});
	for (int64_t t = 0; t < T; t++)
		for (int64_t i = 0; i < n; i++)
			want(y, t * n + i, id[t] >= 4 && id[t] < 4 + (double)V ? w[((int64_t)id[t] - 4) * n + i] : 0, 0);
	y->bits = true;
}
static void make_embedding_dw(sample *s, int64_t T, int64_t n)
{
	int64_t V = 11;
	const double *id = ids(s, T, V + 9), *dy = input(s, VAL, 2, T, n);
	operand *dw = output(s, ACC, 2, V, n);
	ATTR(s, tt_attr_vocab, {4, V});
	for (int64_t t = 0; t < T; t++)
		for (int64_t i = 0; i < n; i++)
			if (id[t] >= 4 && id[t] < 4 + (double)V) {
				dw->v[((int64_t)id[t] - 4) * n + i] += dy[t * n + i];
				dw->mag[((int64_t)id[t] - 4) * n + i] += fabs(dy[t * n + i]);
			}
}
static void make_fill(sample *s, int64_t T, int64_t n, double cut)
{
	s->op = "fill_normal";
	operand *y = output(s, STAT, 2, T, n);
	random_stream r = random_stream_of(42, 0, "layers.0.w", "init");
	ATTR(s, tt_attr_init, {0.5, 0.02, cut, "layers.0.w", 0, 0, 0});
	for (int64_t i = 0; i < T * n; i++)
		want(y, i, 0.5 + 0.02 * (cut > 0 ? random_truncated(&r, (uint64_t)i, normal_half_mass(cut)) : random_normal(&r, (uint64_t)i)), 0);
}
static void make_fill_normal(sample *s, int64_t T, int64_t n) { make_fill(s, T, n, 0); }
static void make_fill_truncated(sample *s, int64_t T, int64_t n) { make_fill(s, T, n, 2); }
static void make_fill_const(sample *s, int64_t T, int64_t n)
{
	operand *y = output(s, STAT, 2, T, n);
	ATTR(s, tt_attr_init, {0.25, 0, 0, "w", 0, 0, 0});
	for (int64_t i = 0; i < T * n; i++)
		want(y, i, 0.25, 0);
	y->bits = true;
}

/* `sum`: over tokens or the line, so a case of its own in `exact`, with a test of order and split. */
static const struct maker {
	const char *op;
	sample_fn *make;
	bool acc; /* has an `exact` kernel of its own */
} makers[] = {
	{"round", make_round, true}, {"cast", make_cast, false}, {"widen", make_widen, false}, {"add", make_add, false},
	{"add_acc", make_add_acc, true}, {"accumulate", make_accumulate, true},
	{"accumulate_first", make_accumulate_first, true}, {"split", make_split, true}, {"concat", make_concat, false},
	{"broadcast", make_broadcast, false}, {"silu_mul", make_silu_mul, false}, {"silu_mul_bwd", make_silu_mul_bwd, false},
	{"rms_norm", make_rms_norm, false}, {"rms_norm_dx", make_rms_norm_dx, false}, {"rms_norm_dw", make_rms_norm_dw, true},
	{"sum_tokens", make_sum_tokens, true}, {"total", make_total, true}, {"rope_table", make_rope_table, false},
	{"rope", make_rope, false}, {"rope_inverse", make_rope_inverse, false}, {"row_max", make_row_max, false},
	{"sum_exp", make_sum_exp, true}, {"pick", make_pick, true}, {"lse", make_lse, false}, {"nll", make_nll, false},
	{"nll_dx", make_nll_dx, false}, {"square_sum", make_square_sum, true}, {"norm_clip", make_norm_clip, false},
	{"adamw", make_adamw, false}, {"adamw_skip", make_adamw_skip, false}, {"sgd", make_sgd, false},
	{"sgd_first", make_sgd_first, false}, {"sgd_nesterov", make_sgd_nesterov, false}, {"sgd_skip", make_sgd_skip, false},
	{"embedding", make_embedding, true}, {"embedding_dw", make_embedding_dw, true}, {"fill_normal", make_fill_normal, false},
	{"fill_truncated", make_fill_truncated, false}, {"fill_const", make_fill_const, false},
};

static sample sample_begin(tt_test *t, const struct maker *m, tt_dtype val, bool exact, int64_t T, int64_t n)
{
	sample s = {.t = t, .op = m->op, .val = val, .f64 = val == TT_F64, .exact = exact,
		.random = t->seed + (uint64_t)(T * 1000 + n), .step = 1};
	m->make(&s, T, n);
	return s;
}

static machine machine_open(tt_test *t)
{
	machine m = {.best = tt_isa_detect()};
	tt_isa asked;
	if (t->isa[0] && TT_CHECK_OK(t, tt_isa_parse(t->isa, &asked)))
		m.best = asked;
	TT_CHECK_OK(t, tt_pool_create(2, 20, &m.two));
	return m;
}

/* ---- cases -------------------------------------------------------------------------------------------------------------------- */

static const int64_t extents[][2] = {{0, 5}, {1, 1}, {3, 0}, {2, 16}, {7, 33}, {131, 5}, {300, 65}, {5, 2063}};

static void all_extents(tt_test *t, tt_dtype val, bool exact)
{
	machine m = machine_open(t);
	for (int k = 0; k < TT_COUNT(makers); k++)
		for (int e = 0; e < TT_COUNT(extents); e++) {
			if (exact && !makers[k].acc)
				continue;
			sample s = sample_begin(t, &makers[k], val, exact, extents[e][0], extents[e][1]);
			check_sample(&s, &m);
		}
	tt_pool_destroy(m.two);
}
static void in_f32(tt_test *t) { all_extents(t, TT_F32, false); }
static void in_bf16(tt_test *t) { all_extents(t, TT_BF16, false); }
static void in_f64(tt_test *t) { all_extents(t, TT_F64, false); }
static void in_exact(tt_test *t) { all_extents(t, TT_F32, true); }
static void in_exact_bf16(tt_test *t) { all_extents(t, TT_BF16, true); }

/* Sums in `exact`: the tokens permuted, and in two parts joined by `add`, give the same limbs. Half of the tokens cancel
 * the other half but for a few. */
static void cancel(sample *s, int input, int64_t T, int64_t n)
{
	double *x = s->in[input].v;
	for (int64_t t = 0; t + 1 < T; t += 2)
		for (int64_t i = 0; i < n; i++)
			x[(t + 1) * n + i] = t % 6 == 0 ? x[(t + 1) * n + i] * 0x1p-20 : -x[t * n + i];
}
static void take_tokens(sample *s, const sample *from, const int64_t *order, int64_t first, int64_t T_all, int64_t T)
{
	*s = *from;
	for (int k = 0; k < s->nin; k++) {
		operand *o = &s->in[k];
		if (o->n[0] != T_all)
			continue;
		int64_t n = o->ndim == 2 ? o->n[1] : 1;
		double *v = TT_NEWN(s->t->arena, double, T * n + 1);
		for (int64_t t = 0; t < T; t++)
			memcpy(v + t * n, o->v + order[first + t] * n, sizeof(double) * (size_t)n);
		o->v = v;
		o->n[0] = T;
	}
}
static int order_errors(tt_test *t, const char *op, tt_kernel_fn *fn, sample_fn *make, int cancelled)
{
	enum { TOKENS = 301 };
	int64_t n = 37, order[TOKENS], natural[TOKENS];
	sample s = {.t = t, .op = op, .val = TT_F32, .exact = true, .random = t->seed}, permuted, left, right;
	make(&s, TOKENS, n);
	cancel(&s, cancelled, TOKENS, s.in[cancelled].ndim == 2 ? s.in[cancelled].n[1] : 1);
	for (int64_t i = 0; i < TOKENS; i++) {
		natural[i] = i;
		order[i] = i * 120 % TOKENS; /* 120 and 301 have no common factor */
	}
	take_tokens(&permuted, &s, order, 0, TOKENS, TOKENS);
	take_tokens(&left, &s, order, 0, TOKENS, 100);
	take_tokens(&right, &s, natural, 0, TOKENS, 0);
	int64_t rest[TOKENS];
	for (int64_t i = 100; i < TOKENS; i++)
		rest[i - 100] = order[i];
	take_tokens(&right, &s, rest, 0, TOKENS, TOKENS - 100);
	result whole = run_kernel(&s, fn, NULL, 0), other = run_kernel(&permuted, fn, NULL, 0);
	result a = run_kernel(&left, fn, NULL, 0), b = run_kernel(&right, fn, NULL, 0);
	tt_arg both[2] = {a.out[0].arg, b.out[0].arg};
	tt_env env = {.numerics = TT_EXACT};
	_Atomic int flag = 0;
	tt_call join = {.in = both, .out = &a.out[0].arg, .nin = 2, .nout = 1, .env = &env, .flag = &flag};
	tt_kernel_ref("add", TT_ISA_REF, false)->exact(&join);
	return (against_bits(&s, &whole, &other) != NULL) + (against_bits(&s, &whole, &a) != NULL) + flag + whole.flag;
}
static tt_kernel_fn *exact_of(const char *op) { return tt_kernel_ref(op, tt_isa_detect(), false)->exact; }

/* Broken: sums in double, stored as limbs. */
static void sum_tokens_in_doubles(const tt_call *c)
{
	for (int64_t i = 0; i < c->in[0].n[1]; i++) {
		double sum = 0;
		for (int64_t t = 0; t < c->in[0].n[0]; t++)
			sum += (double)((const float *)c->in[0].p)[t * c->in[0].ld + i] * (1 + 0x1p-30);
		exact_sum s = {{0}};
		exact_add_term(&s, sum);
		exact_store(&c->out[0], 0, i, &s);
	}
}
static void make_one_total(sample *s, int64_t T, int64_t n)
{
	(void)n;
	make_total(s, T, 1);
}
static void sums_without_order(tt_test *t)
{
	TT_CHECK_INT(t, order_errors(t, "sum_tokens", exact_of("sum_tokens"), make_sum_tokens, 0), 0);
	TT_CHECK_INT(t, order_errors(t, "rms_norm_dw", exact_of("rms_norm_dw"), make_rms_norm_dw, 0), 0);
	TT_CHECK_INT(t, order_errors(t, "embedding_dw", exact_of("embedding_dw"), make_embedding_dw, 1), 0);
	TT_CHECK_INT(t, order_errors(t, "total", exact_of("total"), make_one_total, 0), 0);
	TT_CHECK_INT(t, order_errors(t, "square_sum", exact_of("square_sum"), make_square_sum, 0), 0);
	TT_CHECK(t, order_errors(t, "sum_tokens", sum_tokens_in_doubles, make_sum_tokens, 0) > 0);
}

/* A term out of bounds, Inf or NaN raises the flag; the greatest term within does not. */
static void flags(tt_test *t)
{
	const double outside[] = {0x1p25, -0x1p25, INFINITY, -INFINITY, NAN, 0x1.fffffep127};
	const struct { const char *op; sample_fn *make; int input; double inside; } ops[] = {
		{"sum_tokens", make_sum_tokens, 0, 0x1p24}, {"total", make_total, 0, 0x1p24}, {"pick", make_pick, 0, 0x1p24},
		{"embedding", make_embedding, 1, 0x1p24}, {"embedding_dw", make_embedding_dw, 1, 0x1p24},
		{"rms_norm_dw", make_rms_norm_dw, 0, 0x1p18}, {"square_sum", make_square_sum, 0, 0x1p11},
		{"sum_exp", make_sum_exp, 0, 1}};
	for (int k = 0; k < TT_COUNT(ops); k++)
		for (int v = -1; v < TT_COUNT(outside); v++) {
			sample s = {.t = t, .op = ops[k].op, .val = TT_F32, .exact = true, .random = t->seed + 1};
			ops[k].make(&s, 7, 33);
			double x = v < 0 ? ops[k].inside : outside[v];
			int32_t label = 20;
			if (!strcmp(s.op, "pick"))
				s.in[1].v[3] = label;
			if (!strcmp(s.op, "embedding") || !strcmp(s.op, "embedding_dw"))
				s.in[0].v[3] = 7;
			s.in[ops[k].input].v[3 * 33 + label - 4] = x;
			if (!strcmp(s.op, "rms_norm_dw"))
				s.in[1].v[3 * 33 + label - 4] = s.in[2].v[3] = 1;
			bool harmless = v < 0 || (!strcmp(s.op, "sum_exp") && x < 0); /* exp(-huge) is 0 */
			for (tt_isa isa = TT_ISA_REF; isa <= TT_MIN(tt_isa_detect(), TT_ISA_AVX512); isa++) {
				result r = run_kernel(&s, kernel_of(&s, isa), NULL, 0);
				TT_CHECK_MSG(t, r.flag == !harmless, "%s, %s: %g gives flag %d", s.op, tt_isa_name(isa), x, r.flag);
			}
		}
	/* Broken: no scan. */
	sample s = {.t = t, .op = "sum_tokens", .val = TT_F32, .exact = true, .random = 1};
	make_sum_tokens(&s, 7, 33);
	s.in[0].v[0] = NAN;
	TT_CHECK(t, run_kernel(&s, sum_tokens_in_doubles, NULL, 0).flag == 0);
}

/* ---- the checks themselves: kernels made wrong on purpose ------------------------------------------------------------------------ */

static void wrong_formula(const tt_call *c) /* add, but twice b */
{
	for (int64_t t = 0; t < c->out[0].n[0]; t++)
		for (int64_t i = 0; i < c->out[0].n[1]; i++)
			((float *)c->out[0].p)[t * c->out[0].ld + i] = ((const float *)c->in[0].p)[t * c->in[0].ld + i] +
				2 * ((const float *)c->in[1].p)[t * c->in[1].ld + i];
}
static void too_wide(const tt_call *c) /* add, and one element more per line */
{
	for (int64_t t = 0; t < c->out[0].n[0]; t++)
		for (int64_t i = 0; i <= c->out[0].n[1]; i++)
			((float *)c->out[0].p)[t * c->out[0].ld + i] = ((const float *)c->in[0].p)[t * c->in[0].ld + i] +
				((const float *)c->in[1].p)[t * c->in[1].ld + i];
}
static void one_chain(const tt_call *c) /* sum_tokens without blocks of 128 tokens */
{
	for (int64_t i = 0; i < c->in[0].n[1]; i++) {
		float sum = 0;
		for (int64_t t = 0; t < c->in[0].n[0]; t++)
			sum += ((const float *)c->in[0].p)[t * c->in[0].ld + i];
		((float *)c->out[0].p)[i] = sum;
	}
}
static void broken_are_caught(tt_test *t)
{
	sample s = {.t = t, .op = "add", .val = TT_F32, .random = t->seed};
	make_add(&s, 7, 33);
	result right = run_kernel(&s, kernel_of(&s, TT_ISA_REF), NULL, 0), wrong = run_kernel(&s, wrong_formula, NULL, 0);
	result wide = run_kernel(&s, too_wide, NULL, 0);
	TT_CHECK(t, !against_formula(&s, &right));
	TT_CHECK(t, against_formula(&s, &wrong));
	TT_CHECK(t, against_formula(&s, &wide) && strstr(against_formula(&s, &wide), "outside"));
	sample sum = {.t = t, .op = "sum_tokens", .val = TT_F32, .random = t->seed};
	make_sum_tokens(&sum, 300, 65);
	result blocks = run_kernel(&sum, kernel_of(&sum, TT_ISA_REF), NULL, 0), chain = run_kernel(&sum, one_chain, NULL, 0);
	TT_CHECK(t, !against_formula(&sum, &blocks) && !against_formula(&sum, &chain)); /* near enough, */
	TT_CHECK(t, against_bits(&sum, &blocks, &chain)); /* but not the same bits */
}

/* The stated orders of `fast`, spelled out once more. */
static void stated_orders(tt_test *t)
{
	sample s = {.t = t, .op = "sum_tokens", .val = TT_F32, .random = t->seed};
	make_sum_tokens(&s, 300, 3);
	result r = run_kernel(&s, kernel_of(&s, tt_isa_detect()), NULL, 0);
	for (int i = 0; i < 3; i++) {
		float sum = 0;
		for (int b = 0; b < 300; b += 128) {
			float part = 0;
			for (int k = b; k < TT_MIN(300, b + 128); k++)
				part += (float)s.in[0].v[k * 3 + i];
			sum += part;
		}
		TT_CHECK(t, value_at(&s, &s.out[0], &r.out[0], i) == (double)sum);
	}
	s = (sample){.t = t, .op = "square_sum", .val = TT_F32, .random = t->seed};
	make_square_sum(&s, 1200, 1000); /* more than the 256 blocks that are joined at a time */
	r = run_kernel(&s, kernel_of(&s, tt_isa_detect()), NULL, 0);
	float all = 0;
	for (int64_t b = 0; b < 1200000; b += 4096) {
		float v[16] = {0};
		for (int64_t i = b; i < TT_MIN(1200000, b + 4096); i++)
			v[(i - b) % 16] += (float)s.in[0].v[i] * (float)s.in[0].v[i];
		for (int w = 8; w; w /= 2)
			for (int l = 0; l < w; l++)
				v[l] += v[l + w];
		all += v[0];
	}
	TT_CHECK(t, value_at(&s, &s.out[0], &r.out[0], 0) == (double)all);
	s = (sample){.t = t, .op = "sum_exp", .val = TT_F32, .random = t->seed};
	make_sum_exp(&s, 1, 4099);
	r = run_kernel(&s, kernel_of(&s, tt_isa_detect()), NULL, 0);
	float g[8];
	for (int k = 0; k < 8; k++) {
		int64_t from = tt_deal(4099, k, 8), to = tt_deal(4099, k + 1, 8);
		g[k] = 0;
		for (int64_t b = from; b < to; b += 256) {
			float v[16] = {0};
			for (int64_t i = b; i < TT_MIN(to, b + 256); i++)
				v[(i - b) % 16] += exp_f32((float)s.in[0].v[i] - (float)s.in[1].v[0]);
			for (int w = 8; w; w /= 2)
				for (int l = 0; l < w; l++)
					v[l] += v[l + w];
			g[k] += v[0];
		}
	}
	TT_CHECK(t, value_at(&s, &s.out[0], &r.out[0], 0) ==
			(double)(((g[0] + g[1]) + (g[2] + g[3])) + ((g[4] + g[5]) + (g[6] + g[7]))));
}

static void isa_names(tt_test *t)
{
	tt_isa isa = TT_ISA_REF;
	TT_CHECK_OK(t, tt_isa_parse("auto", &isa));
	TT_CHECK_INT(t, isa, tt_isa_detect());
	TT_CHECK_OK(t, tt_isa_parse("ref", &isa));
	TT_CHECK_INT(t, isa, TT_ISA_REF);
	TT_CHECK_FAILS(t, tt_isa_parse("sse9", &isa), TT_ERR_USAGE, "unknown instruction set \"sse9\"");
	if (tt_isa_detect() < TT_ISA_AVX512)
		TT_CHECK_FAILS(t, tt_isa_parse("avx512", &isa), TT_ERR_USAGE, "this CPU has");
	TT_CHECK(t, !tt_kernel_ref("no_such_op", TT_ISA_REF, false) && tt_kernel_ref("round", TT_ISA_AVX512_BF16, false));
	TT_CHECK(t, tt_kernel_ref("round", TT_ISA_REF, true) != tt_kernel_ref("round", TT_ISA_REF, false));
}

const tt_case tt_suite_kernels[] = {
	{"f32", in_f32, TT_TIER_QUICK},
	{"bf16", in_bf16, TT_TIER_QUICK},
	{"f64", in_f64, TT_TIER_QUICK},
	{"exact", in_exact, TT_TIER_QUICK},
	{"exact_bf16", in_exact_bf16, TT_TIER_QUICK},
	{"sums_without_order", sums_without_order, TT_TIER_QUICK},
	{"flags", flags, TT_TIER_QUICK},
	{"broken_are_caught", broken_are_caught, TT_TIER_QUICK},
	{"stated_orders", stated_orders, TT_TIER_QUICK},
	{"isa_names", isa_names, TT_TIER_QUICK},
	{0},
};
