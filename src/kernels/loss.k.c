/* Cross entropy in pieces, so that a vocabulary may be sharded: row maximum, sum of exponentials, the label's logit,
 * log-sum-exp, loss, gradient. Legend: T tokens, V vocabulary (of this shard). A negative label (-100) is ignored. */
#include "kernels/exact.h"
#include "kernels/math.h"

static int64_t vocab_first(const tt_call *c)
{
	const tt_attr_vocab *attr = c->attr;
	return attr ? attr->first : 0;
}

/* Runs fn over tokens, V being the width of input 0. */
static void run_tokens(const tt_call *c, lines_fn *fn)
{
	tt_lines(c, arg_lines(&c->in[0]), lines_block(arg_width(&c->in[0])), fn);
}

/* Greatest of a line, NaN passed over (the sum of exponentials finds it); +0 for -0. */
static real row_max_of(const tt_arg *x_tv, int64_t t)
{
	int64_t width = arg_width(x_tv);
	real buf[SPAN], m[LANES];
	for (int l = 0; l < LANES; l++)
		m[l] = -(real)INFINITY;
	FOR_SPANS(line, at, n, t, t + 1, width) {
		const real *x = span_load(buf, x_tv, line, at, n);
		int64_t full = n & ~(int64_t)(LANES - 1);
		for (int64_t i = 0; i < full; i += LANES)
			for (int l = 0; l < LANES; l++)
				m[l] = x[i + l] > m[l] ? x[i + l] : m[l];
		for (int64_t i = full; i < n; i++)
			m[i - full] = x[i] > m[i - full] ? x[i] : m[i - full];
	}
	for (int l = 1; l < LANES; l++)
		m[0] = m[l] > m[0] ? m[l] : m[0];
	return m[0] + (real)0;
}
static void row_max_lines(const tt_call *c, int64_t begin, int64_t end)
{
	for (int64_t t = begin; t < end; t++)
		scalar_store(&c->out[0], 0, t, row_max_of(&c->in[0], t));
}
static void row_max(const tt_call *c) { run_tokens(c, row_max_lines); }

/* sum of exp(x - m). `fast`: 8 segments of the vocabulary, each in blocks of 256 from its start, lane sums, blocks joined
 * ascending, segments by a tree: so vocabulary shards of 1, 2, 4 or 8 parts continue the same tree. */
enum { SEGMENTS = 8, EXP_BLOCK = 256 };

/* edges: [SEGMENTS + 1] of the segments in this shard; NULL: they are dealt anew, as in a whole vocabulary. */
static real sum_exp_of(const tt_arg *x_tv, int64_t t, real m, const int64_t *edges)
{
	int64_t width = arg_width(x_tv);
	real buf[EXP_BLOCK], e[EXP_BLOCK], s[SEGMENTS];
	for (int g = 0; g < SEGMENTS; g++) {
		int64_t stop = edges ? edges[g + 1] : tt_deal(width, g + 1, SEGMENTS);
		s[g] = 0;
		for (int64_t at = edges ? edges[g] : tt_deal(width, g, SEGMENTS); at < stop; at += EXP_BLOCK) {
			int64_t n = TT_MIN((int64_t)EXP_BLOCK, stop - at);
			const real *x = span_load(buf, x_tv, t, at, n);
			for (int64_t i = 0; i < n; i++)
				e[i] = real_exp(x[i] - m);
			lanes sum = {{0}};
			lanes_add(&sum, e, n);
			s[g] += lanes_join(&sum);
		}
	}
	for (int w = 1; w < SEGMENTS; w *= 2)
		for (int g = 0; g < SEGMENTS; g += 2 * w)
			s[g] += s[g + w];
	return s[0];
}
static void sum_exp_lines(const tt_call *c, int64_t begin, int64_t end)
{
	const tt_attr_sum_exp *at = c->attr;
	bool listed = at && at->segments.n == SEGMENTS + 1 && at->segments.v[SEGMENTS] == arg_width(&c->in[0]);
	for (int64_t t = begin; t < end; t++)
		scalar_store(&c->out[0], 0, t, sum_exp_of(&c->in[0], t, scalar_load(&c->in[1], 0, t), listed ? at->segments.v : NULL));
}
static void sum_exp(const tt_call *c) { run_tokens(c, sum_exp_lines); }

static void sum_exp_exact_lines(const tt_call *c, int64_t begin, int64_t end)
{
	int64_t width = arg_width(&c->in[0]);
	real buf[SPAN], e[SPAN];
	real_bits max = 0;
	for (int64_t t = begin; t < end; t++) {
		real m = scalar_load(&c->in[1], 0, t);
		exact_lanes sum = {{{0}}};
		FOR_SPANS(line, at, n, t, t + 1, width) {
			const real *x = span_load(buf, &c->in[0], line, at, n);
			for (int64_t i = 0; i < n; i++)
				e[i] = real_exp(x[i] - m);
			max = TT_MAX(max, exact_max_bits(e, n));
			EXACT_LANES_ADD(&sum, n, (double)e[i]);
		}
		exact_sum s = exact_lanes_join(&sum, width);
		exact_store(&c->out[0], 0, t, &s);
	}
	exact_check(c, exact_max_value(max), width);
}
static void sum_exp_exact(const tt_call *c) { run_tokens(c, sum_exp_exact_lines); }

/* x[labels[t]], 0 where the label is ignored or in another shard. */
static real picked(const tt_call *c, int64_t t, int64_t first, int64_t width)
{
	int64_t label = arg_i32(&c->in[1])[t], at = label - first;
	return label >= 0 && at >= 0 && at < width ? scalar_load(&c->in[0], t, at) : (real)0;
}
static void pick(const tt_call *c)
{
	int64_t first = vocab_first(c), width = arg_width(&c->in[0]);
	for (int64_t t = 0; t < arg_lines(&c->in[0]); t++)
		scalar_store(&c->out[0], 0, t, picked(c, t, first, width));
}
static void pick_exact(const tt_call *c)
{
	int64_t first = vocab_first(c), width = arg_width(&c->in[0]);
	for (int64_t t = 0; t < arg_lines(&c->in[0]); t++) {
		real x = picked(c, t, first, width);
		exact_sum s = {{0}};
		exact_add_term(&s, (double)x);
		exact_check(c, __builtin_fabs((double)x), 1);
		exact_store(&c->out[0], 0, t, &s);
	}
}

/* m + log(s) */
static void lse(const tt_call *c)
{
	for (int64_t t = 0; t < arg_count(&c->in[0]); t++)
		scalar_store(&c->out[0], 0, t, scalar_load(&c->in[0], 0, t) + real_log(scalar_load(&c->in[1], 0, t)));
}

/* lse - the label's logit */
static void nll(const tt_call *c)
{
	const int32_t *label = arg_i32(&c->in[1]);
	for (int64_t t = 0; t < arg_count(&c->in[2]); t++)
		scalar_store(&c->out[0], 0, t,
			label[t] < 0 ? (real)0 : scalar_load(&c->in[2], 0, t) - scalar_load(&c->in[3], 0, t));
}

/* (exp(x - lse) - onehot)*dy, zeros where ignored */
static void nll_dx_line(const tt_call *c, int64_t t, real shift, real dy, const tt_arg *out)
{
	int64_t width = arg_width(&c->in[0]), label = arg_i32(&c->in[1])[t], hot = label - vocab_first(c);
	real buf[SPAN], tmp[SPAN];
	FOR_SPANS(line, at, n, t, t + 1, width) {
		const real *x = span_load(buf, &c->in[0], line, at, n);
		if (label < 0) {
			memset(tmp, 0, sizeof(real) * (size_t)n);
		} else {
			real saved = hot >= at && hot < at + n ? x[hot - at] : (real)0;
			for (int64_t i = 0; i < n; i++)
				tmp[i] = real_exp(x[i] - shift) * dy;
			if (hot >= at && hot < at + n)
				tmp[hot - at] = (real_exp(saved - shift) - (real)1) * dy;
		}
		span_store(out, line, at, tmp, n);
	}
}
static void nll_dx_lines(const tt_call *c, int64_t begin, int64_t end)
{
	for (int64_t t = begin; t < end; t++)
		nll_dx_line(c, t, scalar_load(&c->in[2], 0, t), scalar_load(&c->in[3], 0, t), &c->out[0]);
}
static void nll_dx(const tt_call *c) { run_tokens(c, nll_dx_lines); }

/* ---- all of it by line, while the line is in cache: x, labels, (dy[1]) -> (dx), nll -------------------------------------------- */

static void cross_entropy_lines(const tt_call *c, int64_t begin, int64_t end)
{
	int64_t first = vocab_first(c), width = arg_width(&c->in[0]);
	for (int64_t t = begin; t < end; t++) {
		real m = row_max_of(&c->in[0], t), s = sum_exp_of(&c->in[0], t, m, NULL) + (real)0, target = picked(c, t, first, width) + (real)0;
		real shift = m + real_log(s);
		scalar_store(&c->out[c->nout - 1], 0, t, arg_i32(&c->in[1])[t] < 0 ? (real)0 : shift - target);
		if (c->nout > 1)
			nll_dx_line(c, t, shift, scalar_load(&c->in[2], 0, 0), &c->out[0]);
	}
}
static void cross_entropy(const tt_call *c) { run_tokens(c, cross_entropy_lines); }

const tt_kernel TT_KERNEL_TABLE[] = {
	{"row_max", row_max, NULL},
	{"sum_exp", sum_exp, TT_EXACT(sum_exp_exact)},
	{"pick", pick, TT_EXACT(pick_exact)},
	{"lse", lse, NULL},
	{"nll", nll, NULL},
	{"nll_dx", nll_dx, NULL},
	{"cross_entropy", cross_entropy, NULL},
	{"cross_entropy_bwd", cross_entropy, NULL},
	{0},
};
