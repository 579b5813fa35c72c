/* Conversions of layout on one rank: gathers, sums and maxima over the members of a group, by exchange of blocks; slices and padding alone.
 *
 * Sums are taken in the order of the members, or (attr.tree) as a binary tree over them, whoever takes them: so every backend and every cut
 * of the work gives the same bits. In `exact` they are integer sums of limbs, and order does not matter. */
#include "comm/comm.h"
#include "kernels/exact.h"

/* The all-reduce of fewer bytes is one exchange, everybody sums everything; of more it is a scatter of the sum and a gather. */
enum { WHOLE = 16384 };

typedef struct place { /* lines of an operand, bytes of each */
	const tt_arg *a;
	int64_t line, lines, at, width; /* elements */
} place;

static int64_t element(const tt_call *c, const tt_arg *a)
{
	return a->dtype == TT_ACC && c->env->numerics == TT_EXACT && !c->env->f64 ? (int64_t)sizeof(int64_t) :
		tt_dtype_size(a->dtype, c->env->numerics, c->env->f64);
}

static int64_t planes(const tt_call *c, const tt_arg *a) { return a->dtype == TT_ACC && c->env->numerics == TT_EXACT && !c->env->f64 ? EXACT_LIMBS : 1; }

/* Elements [begin, end) along dim d; all of it where the operand has but that. */
static place cut(const tt_arg *a, int64_t d, int64_t begin, int64_t end)
{
	if (a->ndim < 2)
		return (place){a, 0, 1, begin, end - begin};
	if (d == 0)
		return (place){a, begin, end - begin, 0, arg_width(a)};
	int64_t inner = arg_width(a) / TT_MAX(a->n[1], (int64_t)1);
	TT_ASSERT(d == 1 && (a->ndim == 2 || inner >= 0), "exchange: dim %lld of %d", (long long)d, a->ndim);
	return (place){a, 0, a->n[0], begin * inner, (end - begin) * inner};
}

static tt_block block(const tt_call *c, place p)
{
	int64_t size = element(c, p.a);
	tt_block b = {.p = (const uint8_t *)p.a->p + (p.line * (p.a->ndim < 2 ? 0 : p.a->ld) + p.at) * size, .planes = planes(c, p.a), .lines = p.lines,
		      .bytes = p.width * size, .plane = p.a->plane, .ld = p.a->ndim < 2 ? p.width * size : p.a->ld * size};
	return b;
}

static int64_t edge(const tt_attr_exchange *at, const tt_arg *whole, int64_t i)
{
	return at->edges.n ? at->edges.v[i] : tt_deal(whole->ndim ? whole->n[at->dim] : 1, i, at->members);
}

static void copy_block(uint8_t *to, int64_t to_plane, int64_t to_ld, const tt_block *from)
{
	for (int64_t j = 0; j < from->planes; j++)
		for (int64_t l = 0; l < from->lines && from->bytes; l++)
			memcpy(to + j * to_plane + l * to_ld, from->p + j * from->plane + l * from->ld, (size_t)from->bytes);
}

static void copy_to(const tt_call *c, place to, const tt_block *from)
{
	tt_block b = block(c, to);
	if (b.p != from->p)
		copy_block((uint8_t *)(uintptr_t)b.p, b.plane, b.ld, from);
}

/* ---- sums and maxima ---------------------------------------------------------------------------------------------------- */

typedef struct job {
	const tt_call *c;
	const tt_attr_exchange *at;
	bool max;
	place to;      /* of a sum */
	bool by_lines; /* a gather of the parts of a sum */
	bool wide;     /* a limb overflowed */
} job;

static const real *term(const tt_block *b, int64_t line, int64_t at) { return (const real *)(const void *)(b->p + line * b->ld) + at; }

/* Terms lo .. hi-1 of n elements. */
static void join_tree(real *restrict out, const tt_block *take, int lo, int hi, int64_t line, int64_t at, int64_t n)
{
	if (hi - lo == 1) {
		memcpy(out, term(&take[lo], line, at), (size_t)n * sizeof *out);
		return;
	}
	real right[SPAN];
	int mid = (lo + hi) / 2;
	join_tree(out, take, lo, mid, line, at, n);
	join_tree(right, take, mid, hi, line, at, n);
	for (int64_t i = 0; i < n; i++)
		out[i] += right[i];
}

static void join_reals(const job *j, const tt_block *take, int k)
{
	bool tree = j->at->tree && !(k & (k - 1));
	real sum[SPAN];
	for (int64_t l = 0; l < j->to.lines; l++)
		for (int64_t at = 0; at < j->to.width; at += SPAN) {
			int64_t n = TT_MIN((int64_t)SPAN, j->to.width - at);
			if (j->max) {
				memcpy(sum, term(&take[0], l, at), (size_t)n * sizeof *sum);
				for (int i = 1; i < k; i++) {
					const real *x = term(&take[i], l, at);
					for (int64_t e = 0; e < n; e++)
						sum[e] = x[e] > sum[e] || x[e] != x[e] ? x[e] : sum[e];
				}
			} else if (tree) {
				join_tree(sum, take, 0, k, l, at, n);
			} else {
				memcpy(sum, term(&take[0], l, at), (size_t)n * sizeof *sum);
				for (int i = 1; i < k; i++) {
					const real *x = term(&take[i], l, at);
					for (int64_t e = 0; e < n; e++)
						sum[e] += x[e];
				}
			}
			memcpy((real *)j->to.a->p + (j->to.a->ndim < 2 ? 0 : (j->to.line + l) * j->to.a->ld) + j->to.at + at, sum, (size_t)n * sizeof *sum);
		}
}

static exact_line limbs(const tt_block *b, int64_t line)
{
	exact_line l;
	for (int j = 0; j < EXACT_LIMBS; j++)
		l.k[j] = (uint64_t *)(void *)(uintptr_t)(b->p + j * b->plane + line * b->ld);
	return l;
}

static void join_limbs(job *j, const tt_block *take, int k)
{
	tt_block to = block(j->c, j->to);
	for (int64_t l = 0; l < j->to.lines; l++) {
		exact_line sum = limbs(&to, l);
		for (int i = 0; i < EXACT_LIMBS; i++)
			memcpy(sum.k[i], limbs(&take[0], l).k[i], 8 * (size_t)j->to.width);
		for (int i = 1; i < k; i++)
			j->wide |= !exact_line_sum(sum, sum, limbs(&take[i], l), j->to.width);
	}
}

static void use_sum(void *ctx, const tt_block *take, int k)
{
	job *j = ctx;
	if (j->to.lines <= 0 || j->to.width <= 0)
		return;
	if (planes(j->c, j->to.a) > 1)
		join_limbs(j, take, k);
	else
		join_reals(j, take, k);
}

static int64_t part(const job *j, const tt_arg *a, int64_t i)
{
	return j->by_lines ? tt_deal(a->ndim < 2 ? arg_width(a) : a->n[0], i, j->at->members) : edge(j->at, a, i);
}

static void use_gather(void *ctx, const tt_block *take, int k)
{
	job *j = ctx;
	const tt_arg *out = &j->c->out[0];
	for (int i = 0; i < k; i++)
		copy_to(j->c, cut(out, j->by_lines ? 0 : j->at->dim, part(j, out, i), part(j, out, i + 1)), &take[i]);
}

/* ---- the op ----------------------------------------------------------------------------------------------------------------- */

static void talk(const tt_call *c, const char *kind, tt_block *give, tt_block *take, void (*use)(void *, const tt_block *, int), job *j)
{
	tt_comm_axes *axes = c->env->axes;
	TT_ASSERT(axes && axes->group[j->at->axes], "exchange over %s without ranks", j->at->axis);
	if (axes->status)
		return;
	tt_exchange x = {.kind = kind, .name = j->at->name, .give = give, .take = take, .use = use, .ctx = j};
	axes->status = tt_comm_exchange(axes->group[j->at->axes], &x);
	if (j->wide)
		exact_raise(c);
}

static void reduce(const tt_call *c, const char *kind, tt_block *give, tt_block *take, job *j)
{
	const tt_arg *in = &c->in[0], *out = &c->out[0];
	int64_t k = j->at->members, me = j->at->index, n = in->ndim < 2 ? arg_width(in) : in->n[0];
	j->to = cut(out, 0, 0, n);
	if (arg_count(in) * element(c, in) <= WHOLE || k == 1) {
		for (int i = 0; i < k; i++) {
			give[i] = block(c, cut(in, 0, 0, n));
			take[i] = block(c, j->to);
		}
		talk(c, kind, give, take, use_sum, j);
		return;
	}
	j->to = cut(out, 0, tt_deal(n, me, k), tt_deal(n, me + 1, k));
	for (int i = 0; i < k; i++) {
		give[i] = block(c, cut(in, 0, tt_deal(n, i, k), tt_deal(n, i + 1, k)));
		take[i] = block(c, j->to);
	}
	talk(c, kind, give, take, use_sum, j);
	j->by_lines = true;
	for (int i = 0; i < k; i++) {
		give[i] = block(c, j->to);
		take[i] = block(c, cut(out, 0, tt_deal(n, i, k), tt_deal(n, i + 1, k)));
	}
	talk(c, "all-gather of sums", give, take, use_gather, j);
}

static void zero(const tt_call *c, const tt_arg *a)
{
	int64_t bytes = arg_lines(a) * (a->ndim < 2 ? arg_width(a) : a->ld) * element(c, a);
	for (int64_t p = 0; p < planes(c, a); p++)
		memset((char *)a->p + p * a->plane, 0, (size_t)bytes);
}

static void exchange(const tt_call *c)
{
	const tt_attr_exchange *at = c->attr;
	const tt_arg *in = &c->in[0], *out = &c->out[0];
	tt_block *give = c->scratch, *take = give + at->members;
	job j = {.c = c, .at = at};
	int64_t me = at->index, d = at->dim;
	switch ((tt_exchange_kind)at->kind) {
	case TT_EX_GATHER:
		for (int i = 0; i < at->members; i++) {
			give[i] = block(c, cut(in, d, 0, in->ndim ? in->n[d] : 1));
			take[i] = block(c, cut(out, d, edge(at, out, i), edge(at, out, i + 1)));
		}
		talk(c, "all-gather", give, take, use_gather, &j);
		return;
	case TT_EX_SCATTER:
		j.to = cut(out, d, 0, out->ndim ? out->n[d] : 1);
		for (int i = 0; i < at->members; i++) {
			give[i] = block(c, cut(in, d, edge(at, in, i), edge(at, in, i + 1)));
			take[i] = block(c, j.to);
		}
		talk(c, "reduce-scatter", give, take, use_sum, &j);
		return;
	case TT_EX_REDUCE:
		reduce(c, "all-reduce", give, take, &j);
		return;
	case TT_EX_MAX:
		j.max = true;
		reduce(c, "all-reduce max", give, take, &j);
		return;
	case TT_EX_SLICE: {
		tt_block b = block(c, cut(in, d, edge(at, in, me), edge(at, in, me + 1)));
		copy_to(c, cut(out, d, 0, out->ndim ? out->n[d] : 1), &b);
		return;
	}
	case TT_EX_PAD: {
		zero(c, out);
		tt_block b = block(c, cut(in, d, 0, in->ndim ? in->n[d] : 1));
		copy_to(c, cut(out, d, edge(at, out, me), edge(at, out, me + 1)), &b);
		return;
	}
	case TT_EX_ONCE:
		if (me == 0) {
			tt_block b = block(c, cut(in, 0, 0, in->ndim < 2 ? arg_width(in) : in->n[0]));
			copy_to(c, cut(out, 0, 0, in->ndim < 2 ? arg_width(in) : in->n[0]), &b);
		} else {
			zero(c, out);
		}
		return;
	}
}

const tt_kernel TT_KERNEL_TABLE[] = {
	{"exchange", exchange, NULL},
	{0},
};
