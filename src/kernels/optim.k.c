/* Gradient norm, clipping, updates. Everything is elementwise in one order of operations, with scalars rounded once from
 * double: the same bits on every instruction set and however a parameter is sharded. */
#include "kernels/exact.h"
#include "kernels/math.h"

/* A gradient that comes as acc is rounded as `round` does it, in a buffer: round_square_sum, round_adamw, round_sgd. */
static const real *gradient_load(const tt_call *c, real *buf, const tt_arg *g, int64_t line, int64_t at, int64_t n)
{
	if (g->dtype != TT_ACC)
		return span_load(buf, g, line, at, n);
	if (c->env->numerics == TT_EXACT && !c->env->f64) {
		exact_line_round(buf, exact_line_at(g, line, at), n);
		return buf;
	}
	const real *restrict x = arg_real(g, line, at);
	for (int64_t i = 0; i < n; i++)
		buf[i] = x[i] + (real)0;
	return buf;
}

/* ---- sum of squares --------------------------------------------------------------------------------------------------------
 * Blocks of SQUARE_BLOCK elements of the tensor read line by line. `fast`: lane sums, blocks joined ascending. A block's sum
 * goes to its place in `part`; GROUP blocks are summed by the pool at a time, then joined by the caller. */

enum { SQUARE_BLOCK = 4096, GROUP = 256 };

typedef struct square_job {
	const tt_call *call;
	int64_t first; /* block of part[0] */
	union {
		real fast[GROUP];
		exact_sum exact[GROUP];
	} part;
} square_job;

/* Elements [from, from+n) of the tensor read line by line, across lines: lanes count from the block's start. */
static void load_flat(const tt_call *c, real *buf, const tt_arg *a, int64_t from, int64_t n)
{
	int64_t width = arg_width(a);
	while (n) {
		int64_t line = from / width, at = from % width, k = TT_MIN(n, width - at);
		const real *x = gradient_load(c, buf, a, line, at, k);
		if (x != buf)
			memcpy(buf, x, sizeof(real) * (size_t)k);
		buf += k;
		from += k;
		n -= k;
	}
}
/* The square of a zero does not know its sign, so acc of `fast` is read as it lies. */
static const real *flat(const tt_call *c, real *buf, const tt_arg *a, int64_t from, int64_t n)
{
	bool limbs = a->dtype == TT_ACC && c->env->numerics == TT_EXACT && !c->env->f64;
	if (arg_is_real(a) && !limbs && (a->ndim < 2 || a->ld == arg_width(a)))
		return (const real *)a->p + from;
	load_flat(c, buf, a, from, n);
	return buf;
}

static void square_block(void *ctx, int64_t k, int lane)
{
	(void)lane;
	square_job *j = ctx;
	const tt_arg *g = &j->call->in[0];
	int64_t from = (j->first + k) * SQUARE_BLOCK, end = TT_MIN(arg_count(g), from + SQUARE_BLOCK);
	real buf[SPAN];
	lanes sum = {{0}};
	for (int64_t n; from < end; from += n) {
		n = TT_MIN((int64_t)SPAN, end - from);
		const real *x = flat(j->call, buf, g, from, n);
		lanes_add_products(&sum, x, x, n);
	}
	j->part.fast[k] = lanes_join(&sum);
}
static void square_sum(const tt_call *c)
{
	int64_t blocks = tt_ceil_div(arg_count(&c->in[0]), SQUARE_BLOCK);
	square_job j = {.call = c};
	real sum = 0;
	for (j.first = 0; j.first < blocks; j.first += GROUP) {
		int64_t n = TT_MIN((int64_t)GROUP, blocks - j.first);
		tt_pool_run(c->env->pool, n, square_block, &j);
		for (int64_t k = 0; k < n; k++)
			sum += j.part.fast[k];
	}
	scalar_store(&c->out[0], 0, 0, sum);
}

static void square_block_exact(void *ctx, int64_t k, int lane)
{
	(void)lane;
	square_job *j = ctx;
	const tt_arg *g = &j->call->in[0];
	int64_t from = (j->first + k) * SQUARE_BLOCK, end = TT_MIN(arg_count(g), from + SQUARE_BLOCK), terms = end - from;
	real buf[SPAN];
	real_bits max = 0;
	exact_lanes sum = {{{0}}};
	for (int64_t n; from < end; from += n) {
		n = TT_MIN((int64_t)SPAN, end - from);
		const real *x = flat(j->call, buf, g, from, n);
		max = TT_MAX(max, exact_max_bits(x, n));
		EXACT_LANES_ADD(&sum, n, (double)x[i] * (double)x[i]);
	}
	exact_check(j->call, exact_max_value(max) * exact_max_value(max), terms);
	j->part.exact[k] = exact_lanes_join(&sum, terms);
}
static void square_sum_exact(const tt_call *c)
{
	int64_t blocks = tt_ceil_div(arg_count(&c->in[0]), SQUARE_BLOCK);
	square_job j = {.call = c};
	exact_sum sum = {{0}};
	for (j.first = 0; j.first < blocks; j.first += GROUP) {
		int64_t n = TT_MIN((int64_t)GROUP, blocks - j.first);
		tt_pool_run(c->env->pool, n, square_block_exact, &j);
		for (int64_t k = 0; k < n; k++)
			if (!exact_line_sum(exact_line_of(&sum), exact_line_of(&sum), exact_line_of(&j.part.exact[k]), 1))
				exact_raise(c);
	}
	exact_store(&c->out[0], 0, 0, &sum);
}

/* sum of squares -> norm, coef = min(1, max_norm/(norm + 1e-6)), the formula of torch.nn.utils.clip_grad_norm_. max_norm 0:
 * no clipping. coef is 0 if the norm is not finite, and the update is skipped or the run stops. */
static void norm_clip(const tt_call *c)
{
	const tt_attr_clip *attr = c->attr;
	bool limbs = c->in[0].dtype == TT_ACC && c->env->numerics == TT_EXACT;
	exact_sum s = {{0}};
	if (limbs)
		s = exact_load(&c->in[0], 0, 0);
	real norm = real_sqrt(limbs ? (real)exact_round(&s) : scalar_load(&c->in[0], 0, 0)), coef = 1;
	if (attr->max_norm > 0) {
		coef = (real)attr->max_norm / (norm + (real)1e-6);
		coef = coef < 1 ? coef : 1;
	}
	if (!(norm < (real)INFINITY))
		coef = 0;
	scalar_store(&c->out[0], 0, 0, norm);
	scalar_store(&c->out[1], 0, 0, coef);
}

/* ---- updates -----------------------------------------------------------------------------------------------------------------
 * Inputs p, states, g, coef[1], hyper[4] = {lr, 1 - beta1^t, 1 - beta2^t, skip}. Outputs may lie on the inputs. Where hyper's
 * last is not 0 the outputs are the inputs: g may hold anything then. */

static void copy_states(const tt_call *c, int64_t line, int64_t at, int64_t n)
{
	real buf[SPAN];
	for (int i = 0; i < c->nout; i++)
		span_store(&c->out[i], line, at, span_load(buf, &c->in[i], line, at, n), n);
}

/* AdamW (Loshchilov and Hutter, "Decoupled weight decay regularization", 2019), the order of torch.optim.AdamW on one tensor:
 *   g = g*coef
 *   p = p - (lr*wd)*p
 *   m = beta1*m + (1-beta1)*g
 *   v = beta2*v + (1-beta2)*(g*g)
 *   p = p - lr*((m/c1) / (sqrt(v/c2) + eps))
 * with lr = lr*lr_scale, every operation rounded. */
static void adamw_lines(const tt_call *c, int64_t begin, int64_t end)
{
	const tt_attr_adamw *attr = c->attr;
	const tt_arg *hyper = &c->in[5];
	real lr = scalar_load(hyper, 0, 0) * (real)attr->lr_scale, c1 = scalar_load(hyper, 0, 1), c2 = scalar_load(hyper, 0, 2);
	bool skip = scalar_load(hyper, 0, 3) != 0;
	real coef = scalar_load(&c->in[4], 0, 0), decay = lr * (real)attr->weight_decay, eps = (real)attr->eps;
	real b1 = (real)attr->beta1, b2 = (real)attr->beta2, a1 = (real)(1.0 - attr->beta1), a2 = (real)(1.0 - attr->beta2);
	int64_t width = arg_width(&c->in[0]);
	real buf[4][SPAN], tmp[3][SPAN];
	FOR_SPANS(line, at, n, begin, end, width) {
		if (skip) {
			copy_states(c, line, at, n);
			continue;
		}
		const real *p = span_load(buf[0], &c->in[0], line, at, n), *m = span_load(buf[1], &c->in[1], line, at, n);
		const real *v = span_load(buf[2], &c->in[2], line, at, n), *g = gradient_load(c, buf[3], &c->in[3], line, at, n);
		real *np = span_out(tmp[0], &c->out[0], line, at), *nm = span_out(tmp[1], &c->out[1], line, at);
		real *nv = span_out(tmp[2], &c->out[2], line, at);
		INPLACE_LOOP
		for (int64_t i = 0; i < n; i++) {
			real gi = g[i] * coef, pi = p[i] - decay * p[i];
			real mi = b1 * m[i] + a1 * gi, vi = b2 * v[i] + a2 * (gi * gi);
			np[i] = pi - lr * ((mi / c1) / (real_sqrt(vi / c2) + eps));
			nm[i] = mi;
			nv[i] = vi;
		}
		span_store(&c->out[0], line, at, np, n);
		span_store(&c->out[1], line, at, nm, n);
		span_store(&c->out[2], line, at, nv, n);
	}
}
static void adamw(const tt_call *c)
{
	tt_lines(c, arg_lines(&c->in[0]), lines_block(arg_width(&c->in[0])), adamw_lines);
}

/* SGD as torch.optim.SGD has it (dampening 0):
 *   g = g*coef + wd*p
 *   b = g in step 1, else momentum*b + g
 *   p = p - lr*(nesterov ? g + momentum*b : b)                                     lr = lr*lr_scale */
static void sgd_lines(const tt_call *c, int64_t begin, int64_t end)
{
	const tt_attr_sgd *attr = c->attr;
	const tt_arg *hyper = &c->in[4];
	real lr = scalar_load(hyper, 0, 0) * (real)attr->lr_scale, coef = scalar_load(&c->in[3], 0, 0);
	bool skip = scalar_load(hyper, 0, 3) != 0, fresh = c->env->step <= 1, nesterov = attr->nesterov;
	real momentum = (real)attr->momentum, decay = (real)attr->weight_decay;
	int64_t width = arg_width(&c->in[0]);
	real buf[3][SPAN], tmp[2][SPAN];
	FOR_SPANS(line, at, n, begin, end, width) {
		if (skip) {
			copy_states(c, line, at, n);
			continue;
		}
		const real *p = span_load(buf[0], &c->in[0], line, at, n), *b = span_load(buf[1], &c->in[1], line, at, n);
		const real *g = gradient_load(c, buf[2], &c->in[2], line, at, n);
		real *np = span_out(tmp[0], &c->out[0], line, at), *nb = span_out(tmp[1], &c->out[1], line, at);
		INPLACE_LOOP
		for (int64_t i = 0; i < n; i++) {
			real gi = g[i] * coef + decay * p[i];
			real bi = fresh ? gi : momentum * b[i] + gi;
			np[i] = p[i] - lr * (nesterov ? gi + momentum * bi : bi);
			nb[i] = bi;
		}
		span_store(&c->out[0], line, at, np, n);
		span_store(&c->out[1], line, at, nb, n);
	}
}
static void sgd(const tt_call *c) { tt_lines(c, arg_lines(&c->in[0]), lines_block(arg_width(&c->in[0])), sgd_lines); }

const tt_kernel TT_KERNEL_TABLE[] = {
	{"square_sum", square_sum, TT_EXACT(square_sum_exact)},
	{"round_square_sum", square_sum, TT_EXACT(square_sum_exact)},
	{"norm_clip", norm_clip, NULL},
	{"adamw", adamw, NULL},
	{"round_adamw", adamw, NULL},
	{"sgd", sgd, NULL},
	{"round_sgd", sgd, NULL},
	{0},
};
