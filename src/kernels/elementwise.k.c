/* Elementwise kernels: rounds, casts, sums of two, SwiGLU, copies. Legend: T tokens, f hidden.
 * acc is one `real` in `fast`, three limbs in `exact` (EXACT.md); only round, add, accumulate and the copies take it. */
#include "kernels/exact.h"
#include "kernels/math.h"

/* ---- round, cast --------------------------------------------------------------------------------------------------- */

/* acc -> fp32 -> dtype. x + 0 turns -0 into +0 and changes nothing else. */
static void round_lines(const tt_call *c, int64_t begin, int64_t end)
{
	const tt_arg *in = &c->in[0], *out = &c->out[0];
	int64_t width = arg_width(in);
	real buf[PIECE], tmp[PIECE];
	FOR_PIECES(line, at, n, begin, end, width) {
		const real *x = span_load(buf, in, line, at, n);
		real *y = span_out(tmp, out, line, at);
		INPLACE_LOOP
		for (int64_t i = 0; i < n; i++)
			y[i] = x[i] + (real)0;
		span_store(out, line, at, y, n);
	}
}
static void round_fast(const tt_call *c)
{
	tt_lines(c, arg_lines(&c->in[0]), lines_block(arg_width(&c->in[0])), round_lines);
}

static void round_exact_lines(const tt_call *c, int64_t begin, int64_t end)
{
	const tt_arg *in = &c->in[0], *out = &c->out[0];
	int64_t width = arg_width(in);
	real tmp[PIECE];
	FOR_PIECES(line, at, n, begin, end, width) {
		exact_line_round(tmp, exact_line_at(in, line, at), n);
		span_store(out, line, at, tmp, n);
	}
}
static void round_exact(const tt_call *c)
{
	tt_lines(c, arg_lines(&c->in[0]), lines_block(arg_width(&c->in[0])), round_exact_lines);
}

static void cast_lines(const tt_call *c, int64_t begin, int64_t end)
{
	const tt_arg *in = &c->in[0], *out = &c->out[0];
	int64_t width = arg_width(in);
	real buf[PIECE];
	FOR_PIECES(line, at, n, begin, end, width)
		span_store(out, line, at, span_load(buf, in, line, at, n), n);
}
static void cast(const tt_call *c) { tt_lines(c, arg_lines(&c->in[0]), lines_block(arg_width(&c->in[0])), cast_lines); }

/* ---- add, accumulate, broadcast -------------------------------------------------------------------------------------- */

/* Values: the fp32 sum, rounded. acc in `fast`: the fp32 sum. out may be a or b. */
static void add_lines(const tt_call *c, int64_t begin, int64_t end)
{
	const tt_arg *out = &c->out[0];
	int64_t width = arg_width(out);
	real abuf[PIECE], bbuf[PIECE], tmp[PIECE];
	FOR_PIECES(line, at, n, begin, end, width) {
		const real *a = span_load(abuf, &c->in[0], line, at, n), *b = span_load(bbuf, &c->in[1], line, at, n);
		real *y = span_out(tmp, out, line, at);
		INPLACE_LOOP
		for (int64_t i = 0; i < n; i++)
			y[i] = a[i] + b[i];
		span_store(out, line, at, y, n);
	}
}
static void add_fast(const tt_call *c)
{
	tt_lines(c, arg_lines(&c->out[0]), lines_block(arg_width(&c->out[0])), add_lines);
}

static void add_acc_lines(const tt_call *c, int64_t begin, int64_t end)
{
	const tt_arg *out = &c->out[0];
	int64_t width = arg_width(out);
	FOR_PIECES(line, at, n, begin, end, width)
		if (!exact_line_sum(exact_line_at(out, line, at), exact_line_at(&c->in[0], line, at),
				exact_line_at(&c->in[1], line, at), n))
			exact_raise(c);
}
static void add_exact(const tt_call *c)
{
	bool acc = c->out[0].dtype == TT_ACC;
	tt_lines(c, arg_lines(&c->out[0]), lines_block(arg_width(&c->out[0])), acc ? add_acc_lines : add_lines);
}

/* Copies lines [begin, end) of `from`, lines of `to` counted from `shift` on. Bytes only: any dtype, acc as it is. A value
 * of one dim is a line of tokens: there begin, end and shift count elements. */
static void copy_lines(const tt_env *env, const tt_arg *to, int64_t to_first, const tt_arg *from, int64_t from_first,
	int64_t count)
{
	int64_t size = tt_dtype_size(from->dtype, env->numerics, env->f64), planes = 1;
	if (from->dtype == TT_ACC && env->numerics == TT_EXACT) {
		size = sizeof(int64_t);
		planes = EXACT_LIMBS;
	}
	for (int64_t j = 0; j < planes; j++) {
		char *t = (char *)to->p + j * to->plane;
		const char *f = (const char *)from->p + j * from->plane;
		if (from->ndim < 2) {
			if (count > 0)
				memmove(t + to_first * size, f + from_first * size, (size_t)(count * size));
			continue;
		}
		int64_t width = arg_width(from);
		for (int64_t i = 0; i < count && width; i++)
			memmove(t + (to_first + i) * to->ld * size, f + (from_first + i) * from->ld * size, (size_t)(width * size));
	}
}
static int64_t arg_tokens(const tt_arg *a) { return a->ndim ? a->n[0] : 1; }

static void copy_term(const tt_call *c, int64_t begin, int64_t end)
{
	copy_lines(c->env, &c->out[0], begin, &c->in[1], begin, end - begin);
}
/* state + term; the first microbatch of a step stores the term instead, where the op allows it, so that nobody has to
 * zero the state. out may be state. */
static bool accumulate_first(const tt_call *c)
{
	const tt_attr_accumulate *attr = c->attr;
	if (!attr->first || !c->env->first)
		return false;
	tt_lines(c, arg_tokens(&c->out[0]), lines_block(c->out[0].ndim < 2 ? 1 : arg_width(&c->out[0])), copy_term);
	return true;
}
static void accumulate_fast(const tt_call *c)
{
	if (!accumulate_first(c))
		add_fast(c);
}
static void accumulate_exact(const tt_call *c)
{
	if (!accumulate_first(c))
		add_exact(c);
}

static void split_tokens(const tt_call *c)
{
	int64_t first = 0;
	for (int i = 0; i < c->nout; i++) {
		copy_lines(c->env, &c->out[i], 0, &c->in[0], first, arg_tokens(&c->out[i]));
		first += arg_tokens(&c->out[i]);
	}
}
static void concat_tokens(const tt_call *c)
{
	int64_t first = 0;
	for (int i = 0; i < c->nin; i++) {
		copy_lines(c->env, &c->out[0], first, &c->in[i], 0, arg_tokens(&c->in[i]));
		first += arg_tokens(&c->in[i]);
	}
}

static void broadcast(const tt_call *c)
{
	const tt_arg *out = &c->out[0];
	int64_t width = arg_width(out);
	real s = scalar_load(&c->in[0], 0, 0), tmp[PIECE];
	for (int64_t i = 0; i < PIECE; i++)
		tmp[i] = s;
	FOR_PIECES(line, at, n, 0, arg_lines(out), width)
		span_store(out, line, at, tmp, n);
}

/* ---- SwiGLU ------------------------------------------------------------------------------------------------------------
 * y = (g*sigmoid(g))*u (Shazeer, "GLU variants improve transformer", 2020), all in fp32, rounded once. */

static void silu_lines(const tt_call *c, int64_t begin, int64_t end)
{
	const tt_arg *out = &c->out[0];
	int64_t width = arg_width(out);
	real gbuf[PIECE], ubuf[PIECE], tmp[PIECE];
	FOR_PIECES(line, at, n, begin, end, width) {
		const real *g = span_load(gbuf, &c->in[0], line, at, n), *u = span_load(ubuf, &c->in[1], line, at, n);
		real *y = span_out(tmp, out, line, at);
		INPLACE_LOOP
		for (int64_t i = 0; i < n; i++)
			y[i] = g[i] * real_sigmoid(g[i]) * u[i];
		span_store(out, line, at, y, n);
	}
}
static void silu_mul(const tt_call *c)
{
	tt_lines(c, arg_lines(&c->out[0]), lines_block(arg_width(&c->out[0])), silu_lines);
}

/* s = sigmoid(g): dg = (dy*u) * (s * (1 + g*(1 - s))), du = dy * (g*s). */
static void silu_bwd_lines(const tt_call *c, int64_t begin, int64_t end)
{
	int64_t width = arg_width(&c->out[0]);
	real gbuf[PIECE], ubuf[PIECE], dybuf[PIECE], dg[PIECE], du[PIECE];
	FOR_PIECES(line, at, n, begin, end, width) {
		const real *g = span_load(gbuf, &c->in[0], line, at, n), *u = span_load(ubuf, &c->in[1], line, at, n);
		const real *dy = span_load(dybuf, &c->in[2], line, at, n);
		for (int64_t i = 0; i < n; i++) {
			real s = real_sigmoid(g[i]);
			dg[i] = (dy[i] * u[i]) * (s * ((real)1 + g[i] * ((real)1 - s)));
			du[i] = dy[i] * (g[i] * s);
		}
		span_store(&c->out[0], line, at, dg, n);
		span_store(&c->out[1], line, at, du, n);
	}
}
static void silu_mul_bwd(const tt_call *c)
{
	tt_lines(c, arg_lines(&c->out[0]), lines_block(arg_width(&c->out[0])), silu_bwd_lines);
}

const tt_kernel TT_KERNEL_TABLE[] = {
	{"round", round_fast, TT_EXACT(round_exact)},
	{"cast", cast, NULL},
	{"add", add_fast, TT_EXACT(add_exact)},
	{"accumulate", accumulate_fast, TT_EXACT(accumulate_exact)},
	{"split_tokens", split_tokens, NULL},
	{"concat_tokens", concat_tokens, NULL},
	{"broadcast", broadcast, NULL},
	{"silu_mul", silu_mul, NULL},
	{"silu_mul_bwd", silu_mul_bwd, NULL},
	{0},
};
