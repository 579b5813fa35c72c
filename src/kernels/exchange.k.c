/* Conversions of layout on one rank: gathers, sums and maxima over the members of a group, by exchange of blocks; slices and padding alone.
 *
 * Sums are taken in the order of the members, or (attr.tree) as a binary tree over them, whoever takes them: so every backend and every cut
 * of the work gives the same bits. In `exact` they are integer sums of limbs, and order does not matter. */
#include "comm/comm.h"
#include "kernels/exact.h"


typedef struct place { /* lines of an operand, bytes of each */
	const tt_arg *a;
	int64_t at, lines, width, ld; /* elements */
} place;

static int64_t element(const tt_call *c, const tt_arg *a)
{
	return a->dtype == TT_ACC && c->env->numerics == TT_EXACT && !c->env->f64 ? (int64_t)sizeof(int64_t) :
		tt_dtype_size(a->dtype, c->env->numerics, c->env->f64);
}

static int64_t planes(const tt_call *c, const tt_arg *a) { return a->dtype == TT_ACC && c->env->numerics == TT_EXACT && !c->env->f64 ? EXACT_LIMBS : 1; }

/* Lines [begin, end) of a packed weight [o,k], `begin` where a panel (TT_PACK_FWD), a pair (TT_PACK_DX) begins; the last are padded. */
static place cut_packed(const tt_arg *a, int64_t begin, int64_t end)
{
	int64_t pair = a->dtype == TT_BF16 ? 2 : 1, o = a->n[0], k = a->n[1];
	if (a->format == TT_PACK_FWD) /* [o/64][k][64]: panels in a row */
		return (place){a, begin * tt_round_up(k, pair), 1, (tt_round_up(end, 64) - begin) * tt_round_up(k, pair), 0};
	return (place){a, begin * 64, tt_ceil_div(k, 64), (tt_round_up(end, pair) - begin) * 64, tt_round_up(o, pair) * 64}; /* [k/64][o][64] */
}

/* Elements [begin, end) along dim d; all of it where the operand has but that. */
static place cut(const tt_arg *a, int64_t d, int64_t begin, int64_t end)
{
	if (a->format != TT_PLAIN)
		return cut_packed(a, begin, end);
	if (a->ndim < 2)
		return (place){a, begin, 1, end - begin, end - begin};
	if (d == 0)
		return (place){a, begin * a->ld, end - begin, arg_width(a), a->ld};
	int64_t inner = arg_width(a) / TT_MAX(a->n[1], (int64_t)1);
	TT_ASSERT(d == 1 && (a->ndim == 2 || inner >= 0), "exchange: dim %lld of %d", (long long)d, a->ndim);
	return (place){a, begin * inner, a->n[0], (end - begin) * inner, a->ld};
}

static place whole(const tt_arg *a) { return cut(a, 0, 0, a->format == TT_PLAIN && a->ndim < 2 ? arg_width(a) : a->n[0]); }

static tt_block block(const tt_call *c, place p)
{
	int64_t size = element(c, p.a);
	return (tt_block){.p = (const uint8_t *)p.a->p + p.at * size, .planes = planes(c, p.a), .lines = p.lines, .bytes = p.width * size, .plane = p.a->plane,
			  .ld = p.ld * size};
}

static int64_t edge(const tt_attr_exchange *at, const tt_arg *a, int64_t i)
{
	return at->edges.n ? at->edges.v[i] : tt_deal(a->ndim ? a->n[at->dim] : 1, i, at->members);
}

/* Of the dim that a swap cuts; `a` has it whole. */
static int64_t swap_edge(const tt_attr_exchange *at, const tt_arg *a, int64_t i)
{
	return at->cuts.n ? at->cuts.v[i] : tt_deal(a->n[at->to], i, at->members);
}

/* Lines without a gap are one. */
static bool dense(const tt_block *b) { return b->lines == 1 || b->ld == b->bytes; }

static void copy_to(const tt_call *c, place place_, const tt_block *from)
{
	tt_block to = block(c, place_);
	if (to.p == from->p || !from->bytes)
		return;
	bool runs = dense(&to) && dense(from);
	int64_t lines = runs ? TT_MIN(from->lines, (int64_t)1) : from->lines, bytes = runs ? from->lines * from->bytes : from->bytes;
	for (int64_t j = 0; j < from->planes; j++)
		for (int64_t l = 0; l < lines; l++)
			memcpy((uint8_t *)(uintptr_t)to.p + j * to.plane + l * to.ld, from->p + j * from->plane + l * from->ld, (size_t)bytes);
}

/* ---- sums and maxima ---------------------------------------------------------------------------------------------------- */

/* One operand of an exchange. */
typedef struct job {
	const tt_call *c;
	const tt_attr_exchange *at;
	const tt_arg *in, *out;
	tt_block *give, *take; /* [members] */
	place to;      /* of a sum */
	bool small;    /* a sum that everybody takes whole */
	tt_arg aside;  /* where a small sum lies until all have read the terms, if it is taken in place of this rank's */
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

static void join_max(real *restrict sum, const tt_block *take, int k, int64_t line, int64_t at, int64_t n)
{
	memcpy(sum, term(&take[0], line, at), (size_t)n * sizeof *sum);
	for (int i = 1; i < k; i++) {
		const real *x = term(&take[i], line, at);
		for (int64_t e = 0; e < n; e++)
			sum[e] = x[e] > sum[e] || x[e] != x[e] ? x[e] : sum[e];
	}
}

static void join_row(real *restrict sum, const tt_block *take, int k, int64_t line, int64_t at, int64_t n)
{
	memcpy(sum, term(&take[0], line, at), (size_t)n * sizeof *sum);
	for (int i = 1; i < k; i++) {
		const real *x = term(&take[i], line, at);
		for (int64_t e = 0; e < n; e++)
			sum[e] += x[e];
	}
}

/* The result may lie on one of the terms. */
static void join_two(real *to, const real *x, const real *y, int64_t n)
{
	INPLACE_LOOP
	for (int64_t e = 0; e < n; e++)
		to[e] = x[e] + y[e];
}

static void join_reals(const job *j, const tt_block *take, int k)
{
	bool max = j->at->kind == TT_EX_MAX, tree = j->at->tree && !(k & (k - 1));
	tt_block to = block(j->c, j->to);
	int64_t width = to.bytes / (int64_t)sizeof(real), lines = to.lines;
	bool runs = dense(&to);
	for (int i = 0; i < k; i++)
		runs &= dense(&take[i]);
	if (runs) {
		width *= lines;
		lines = 1;
	}
	real sum[SPAN];
	for (int64_t l = 0; l < lines; l++)
		for (int64_t at = 0; at < width; at += SPAN) {
			int64_t n = TT_MIN((int64_t)SPAN, width - at);
			real *out = (real *)(void *)(uintptr_t)(to.p + l * to.ld) + at;
			if (k == 2 && !max) {
				join_two(out, term(&take[0], l, at), term(&take[1], l, at), n);
				continue;
			}
			if (max)
				join_max(sum, take, k, l, at, n);
			else if (tree)
				join_tree(sum, take, 0, k, l, at, n);
			else
				join_row(sum, take, k, l, at, n);
			memcpy(out, sum, (size_t)n * sizeof *sum);
		}
}

static exact_line limbs(const tt_block *b, int64_t line)
{
	exact_line l;
	for (int j = 0; j < EXACT_LIMBS; j++)
		l.k[j] = (uint64_t *)(void *)(uintptr_t)(b->p + j * b->plane + line * b->ld);
	return l;
}

/* Integer sums, whose order does not matter: of terms that lie where the result goes, that is the first. */
static void join_limbs(job *j, const tt_block *take, int k)
{
	tt_block to = block(j->c, j->to);
	int64_t width = to.bytes / 8;
	int first = 0;
	for (int i = 1; i < k; i++)
		if (take[i].p == to.p)
			first = i;
	for (int64_t l = 0; l < to.lines; l++) {
		exact_line sum = limbs(&to, l);
		for (int i = 0; i < EXACT_LIMBS && take[first].p != to.p; i++)
			memcpy(sum.k[i], limbs(&take[first], l).k[i], 8 * (size_t)width);
		for (int i = 0; i < k; i++)
			if (i != first)
				j->wide |= !exact_line_sum(sum, sum, limbs(&take[i], l), width);
	}
}

static void use_sum(job *j, const tt_block *take, int k)
{
	if (j->to.lines <= 0 || j->to.width <= 0)
		return;
	if (planes(j->c, j->to.a) > 1)
		join_limbs(j, take, k);
	else
		join_reals(j, take, k);
}

/* ---- the op: one operand, or a bucket of them in one exchange ---------------------------------------------------------------------------- */

typedef struct bucket {
	job *jobs;
	int n;
	char *arrives;      /* scratch for terms, where ranks do not see each other's memory */
	bool parts_of_sums; /* the second half of an all-reduce: everybody gets the parts that others have summed */
} bucket;

/* Of an all-reduce, the part that member i sums: lines, or elements of what has one. */
static place part(const job *j, const tt_arg *a, int64_t i)
{
	int64_t n = a->ndim < 2 ? arg_width(a) : a->n[0];
	return cut(a, 0, tt_deal(n, i, j->at->members), tt_deal(n, i + 1, j->at->members));
}

static void use(void *ctx, const tt_block *take, int k)
{
	bucket *b = ctx;
	for (int p = 0; p < b->n; p++, take += k) {
		job *j = &b->jobs[p];
		if (j->at->kind == TT_EX_SHIFT) {
			copy_to(j->c, whole(j->out), &take[(j->at->index + j->at->shift) % k]);
			continue;
		}
		if (j->at->kind != TT_EX_GATHER && j->at->kind != TT_EX_SWAP && !b->parts_of_sums) {
			use_sum(j, take, k);
			continue;
		}
		for (int i = 0; i < k && !j->small; i++)
			copy_to(j->c, b->parts_of_sums ? part(j, j->out, i) : cut(j->out, j->at->dim, edge(j->at, j->out, i), edge(j->at, j->out, i + 1)),
				&take[i]);
	}
}

static void talk(const tt_call *c, const char *kind, bucket *b)
{
	tt_comm_axes *axes = c->env->axes;
	const tt_attr_exchange *at = b->jobs[0].at;
	tt_comm_group *g = axes ? axes->group[at->lane][at->axes] : NULL;
	TT_ASSERT(g, "exchange over %s without ranks", at->axis);
	if (axes->status[at->lane])
		return;
	tt_exchange x = {.kind = kind, .name = at->name, .give = b->jobs[0].give, .take = b->jobs[0].take, .parts = b->n, .use = use, .ctx = b,
			 .scratch = (char *)(uintptr_t)tt_round_up((int64_t)(uintptr_t)b->arrives, 64), .lands = at->kind == TT_EX_GATHER || b->parts_of_sums};
	int64_t arrives = tt_exchange_scratch(g, &x);
	TT_ASSERT(!c->room || !arrives || (char *)x.scratch - (char *)c->scratch + arrives <= (int64_t)c->room, "%s over %s: %lld bytes arrive in a scratch of %lld", kind, at->axis,
		  (long long)arrives, (long long)c->room);
	axes->status[at->lane] = tt_comm_exchange(g, &x);
	for (int p = 0; p < b->n; p++)
		if (b->jobs[p].wide)
			exact_raise(c);
}

static void gather(const tt_call *c, bucket *b)
{
	for (int p = 0; p < b->n; p++) {
		const job *j = &b->jobs[p];
		for (int i = 0; i < j->at->members; i++) {
			j->give[i] = block(c, cut(j->in, j->at->dim, 0, j->in->ndim ? j->in->n[j->at->dim] : 1));
			j->take[i] = block(c, cut(j->out, j->at->dim, edge(j->at, j->out, i), edge(j->at, j->out, i + 1)));
		}
	}
	talk(c, "all-gather", b);
}

static void scatter(const tt_call *c, bucket *b)
{
	for (int p = 0; p < b->n; p++) {
		job *j = &b->jobs[p];
		j->to = cut(j->out, j->at->dim, 0, j->out->ndim ? j->out->n[j->at->dim] : 1);
		for (int i = 0; i < j->at->members; i++) {
			j->give[i] = block(c, cut(j->in, j->at->dim, edge(j->at, j->in, i), edge(j->at, j->in, i + 1)));
			j->take[i] = block(c, j->to);
		}
	}
	talk(c, "reduce-scatter", b);
}

/* Small operands: everybody sums everything. Of others, each member sums a part, and gives it to all then. */
static void reduce(const tt_call *c, bucket *b, char *aside)
{
	bool all_small = true;
	for (int p = 0; p < b->n; p++) {
		job *j = &b->jobs[p];
		int64_t bytes = arg_count(j->in) * element(c, j->in), k = j->at->members;
		j->small = bytes <= TT_EXCHANGE_WHOLE || k == 1;
		all_small &= j->small;
		j->to = j->small ? whole(j->out) : part(j, j->out, j->at->index);
		if (j->small && j->in->p == j->out->p) {
			j->aside = *j->out;
			j->aside.p = aside;
			j->aside.plane = bytes;
			j->to = whole(&j->aside);
			aside += tt_round_up(bytes * planes(c, j->in), 64);
		}
		for (int i = 0; i < k; i++) {
			j->give[i] = block(c, j->small ? whole(j->in) : part(j, j->in, i));
			j->take[i] = block(c, j->to);
		}
	}
	b->arrives = aside;
	talk(c, b->jobs[0].at->kind == TT_EX_MAX ? "all-reduce max" : "all-reduce", b);
	for (int p = 0; p < b->n; p++) {
		job *j = &b->jobs[p];
		if (j->to.a == &j->aside) {
			tt_block sum = block(c, j->to);
			copy_to(c, whole(j->out), &sum);
		}
		for (int i = 0; i < j->at->members; i++) {
			j->give[i] = j->small ? (tt_block){0} : block(c, j->to);
			j->take[i] = j->small ? (tt_block){0} : block(c, part(j, j->out, i));
		}
	}
	b->parts_of_sums = true;
	if (!all_small)
		talk(c, "all-gather of sums", b);
}

/* Member i is given what of its piece of dim `to` is here, and gives its part of this member's. */
static void swap(const tt_call *c, bucket *b)
{
	for (int p = 0; p < b->n; p++) {
		const job *j = &b->jobs[p];
		for (int i = 0; i < j->at->members; i++) {
			j->give[i] = block(c, cut(j->in, j->at->to, swap_edge(j->at, j->in, i), swap_edge(j->at, j->in, i + 1)));
			j->take[i] = block(c, cut(j->out, j->at->dim, edge(j->at, j->out, i), edge(j->at, j->out, i + 1)));
		}
	}
	talk(c, "all-to-all", b);
}

/* One neighbour is given all, another gives all. */
static void shift(const tt_call *c, bucket *b)
{
	for (int p = 0; p < b->n; p++) {
		const job *j = &b->jobs[p];
		const int64_t k = j->at->members, to = (j->at->index + k - j->at->shift) % k, from = (j->at->index + j->at->shift) % k;
		for (int i = 0; i < k; i++) {
			j->give[i] = i == to ? block(c, whole(j->in)) : (tt_block){0};
			j->take[i] = i == from ? block(c, whole(j->out)) : (tt_block){0};
		}
	}
	talk(c, "shift", b);
}

static void zero(const tt_call *c, const tt_arg *a)
{
	int64_t bytes = arg_lines(a) * (a->ndim < 2 ? arg_width(a) : a->ld) * element(c, a);
	for (int64_t p = 0; p < planes(c, a); p++)
		memset((char *)a->p + p * a->plane, 0, (size_t)bytes);
}

static void slice(const tt_call *c, const job *j)
{
	const tt_attr_exchange *at = j->at;
	int64_t d = at->dim;
	tt_block x = block(c, cut(j->in, d, edge(at, j->in, at->index), edge(at, j->in, at->index + 1)));
	copy_to(c, cut(j->out, d, 0, j->out->ndim ? j->out->n[d] : 1), &x);
}

static void pad(const tt_call *c, const job *j)
{
	const tt_attr_exchange *at = j->at;
	int64_t d = at->dim;
	tt_block x = block(c, cut(j->in, d, 0, j->in->ndim ? j->in->n[d] : 1));
	if (j->in->p != j->out->p || !tt_block_bytes(&x)) /* in place it is all there is, or nothing */
		zero(c, j->out);
	copy_to(c, cut(j->out, d, edge(at, j->out, at->index), edge(at, j->out, at->index + 1)), &x);
}

static void once(const tt_call *c, const job *j)
{
	if (j->at->index) {
		zero(c, j->out);
		return;
	}
	tt_block x = block(c, whole(j->in));
	copy_to(c, whole(j->out), &x);
}

static void exchange_jobs(const tt_call *c, bucket *b, char *aside)
{
	b->arrives = aside;
	switch ((tt_exchange_kind)b->jobs[0].at->kind) {
	case TT_EX_GATHER:
		gather(c, b);
		return;
	case TT_EX_SCATTER:
		scatter(c, b);
		return;
	case TT_EX_REDUCE:
	case TT_EX_MAX:
		reduce(c, b, aside);
		return;
	case TT_EX_SWAP:
		swap(c, b);
		return;
	case TT_EX_SHIFT:
		shift(c, b);
		return;
	case TT_EX_SLICE:
		for (int p = 0; p < b->n; p++)
			slice(c, &b->jobs[p]);
		return;
	case TT_EX_PAD:
		for (int p = 0; p < b->n; p++)
			pad(c, &b->jobs[p]);
		return;
	case TT_EX_ONCE:
		for (int p = 0; p < b->n; p++)
			once(c, &b->jobs[p]);
		return;
	}
}

static void exchange(const tt_call *c)
{
	const tt_attr_exchange *at = c->attr;
	tt_block *give = c->scratch;
	job j = {.c = c, .at = at, .in = &c->in[0], .out = &c->out[0], .give = give, .take = give + at->members};
	exchange_jobs(c, &(bucket){.jobs = &j, .n = 1}, (char *)(give + 2 * at->members));
}

/* Scratch: give [n][members], take [n][members], attributes [n], jobs [n], then sums set aside. */
static void exchange_bucket(const tt_call *c)
{
	const tt_attr_bucket *at = c->attr;
	int64_t n = c->nin, k = at->members;
	tt_block *give = c->scratch, *take = give + n * k;
	tt_attr_exchange *attr = (tt_attr_exchange *)(void *)(take + n * k);
	job *jobs = (job *)(void *)(attr + n);
	for (int64_t p = 0; p < n; p++) {
		attr[p] = tt_bucket_part(at, (int)p);
		jobs[p] = (job){.c = c, .at = &attr[p], .in = &c->in[p], .out = &c->out[p], .give = give + p * k, .take = take + p * k};
	}
	TT_ASSERT(sizeof *jobs <= TT_BUCKET_JOB, "a job of a bucket has %zu bytes", sizeof *jobs);
	exchange_jobs(c, &(bucket){.jobs = jobs, .n = (int)n}, (char *)attr + n * (int64_t)(sizeof *attr + TT_BUCKET_JOB));
}

const tt_kernel TT_KERNEL_TABLE[] = {
	{"exchange", exchange, NULL},
	{"exchange_bucket", exchange_bucket, NULL},
	{0},
};
