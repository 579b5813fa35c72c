/* RMS norm and sums over tokens. Legend: T tokens, D width of the normed dim (a model width or a head).
 * Zhang and Sennrich, "Root mean square layer normalization", 2019. */
#include "kernels/exact.h"
#include "kernels/math.h"
#include "kernels/rotate.h"

/* ---- forward: y = (x*rstd)*w, rstd = 1/sqrt(sum(x^2)/D + eps) ----------------------------------------------------------- */

static void norm_lines(const tt_call *c, const tt_arg *x_td, const tt_arg *w_d, const tt_arg *y_td, const tt_arg *rstd_t, int64_t begin, int64_t end)
{
	const tt_attr_norm *attr = c->attr;
	int64_t width = arg_width(x_td);
	real eps = (real)attr->eps, xbuf[SPAN], wbuf[SPAN], tmp[SPAN];
	const real *x = NULL, *w = NULL; /* a line that is one span is loaded once */
	for (int64_t t = begin; t < end; t++) {
		lanes sum = {{0}};
		FOR_SPANS(line, at, n, t, t + 1, width) {
			x = span_load(xbuf, x_td, line, at, n);
			lanes_add_products(&sum, x, x, n);
		}
		real rstd = real_rsqrt(lanes_join(&sum) / (real)width + eps);
		scalar_store(rstd_t, 0, t, rstd);
		FOR_SPANS(line, at, n, t, t + 1, width) {
			if (width > SPAN)
				x = span_load(xbuf, x_td, line, at, n);
			if (width > SPAN || !w)
				w = span_load(wbuf, w_d, 0, at, n);
			real *y = span_out(tmp, y_td, line, at);
			INPLACE_LOOP
			for (int64_t i = 0; i < n; i++)
				y[i] = x[i] * rstd * w[i];
			span_store(y_td, line, at, y, n);
		}
	}
}
static void rms_norm_lines(const tt_call *c, int64_t begin, int64_t end)
{
	norm_lines(c, &c->in[0], &c->in[1], &c->out[0], &c->out[1], begin, end);
}
static void rms_norm(const tt_call *c)
{
	tt_lines(c, arg_lines(&c->in[0]), lines_block(arg_width(&c->in[0])), rms_norm_lines);
}

/* x, w, table -> the norm's lines, rotated in their place while they are in cache (queries and keys that are normed), rstd. */
static void rms_norm_rope_lines(const tt_call *c, int64_t begin, int64_t end)
{
	norm_lines(c, &c->in[0], &c->in[1], &c->out[0], &c->out[1], begin, end);
	rotate_lines(&c->out[0], &c->in[2], &c->out[0], arg_width(&c->in[2]), false, begin, end);
}
static void rms_norm_rope(const tt_call *c)
{
	tt_lines(c, arg_lines(&c->in[0]), lines_block(arg_width(&c->in[0])), rms_norm_rope_lines);
}

/* h = a + b, rounded as it is stored, and its norm while the lines are in cache. Outputs h, y, rstd. */
static void add_lines(const tt_arg *a_td, const tt_arg *b_td, const tt_arg *h_td, int64_t begin, int64_t end)
{
	int64_t width = arg_width(h_td);
	real abuf[PIECE], bbuf[PIECE], tmp[PIECE];
	FOR_PIECES(line, at, n, begin, end, width) {
		const real *a = span_load(abuf, a_td, line, at, n), *b = span_load(bbuf, b_td, line, at, n);
		real *h = span_out(tmp, h_td, line, at);
		INPLACE_LOOP
		for (int64_t i = 0; i < n; i++)
			h[i] = a[i] + b[i];
		span_store(h_td, line, at, h, n);
	}
}
static void add_rms_norm_lines(const tt_call *c, int64_t begin, int64_t end)
{
	/* All sums of the block first: a line read right after it was written waits for each of its stores. */
	add_lines(&c->in[0], &c->in[1], &c->out[0], begin, end);
	norm_lines(c, &c->out[0], &c->in[2], &c->out[1], &c->out[2], begin, end);
}
static void add_rms_norm(const tt_call *c)
{
	tt_lines(c, arg_lines(&c->in[0]), lines_block(arg_width(&c->in[0])), add_rms_norm_lines);
}

/* ---- backward to x: u = dy*w, s = sum(u*x)*rstd^2/D, dx = rstd*(u - x*s) -------------------------------------------------- */

/* One line t of dx; with `res` it is added to dx as dx is rounded, and what the line adds to dw goes to part[D]. w: a line that is one span,
 * loaded before, else NULL. `out` may lie on dy. */
static inline __attribute__((always_inline)) void norm_dx_line(const tt_arg *dy_td, const tt_arg *x_td, const tt_arg *w_d, const real *w_line,
	const tt_arg *out, const tt_arg *res_td, real *part, real rstd, int64_t t)
{
	int64_t width = arg_width(x_td);
	real dybuf[SPAN], xbuf[SPAN], wbuf[SPAN], rbuf[SPAN], d[SPAN];
	const real *dy = NULL, *x = NULL, *w = w_line; /* a line that is one span is loaded once */
	lanes sum = {{0}};
	FOR_SPANS(line, at, n, t, t + 1, width) {
		dy = span_load(dybuf, dy_td, line, at, n);
		x = span_load(xbuf, x_td, line, at, n);
		if (!w_line)
			w = span_load(wbuf, w_d, 0, at, n);
		LANES_ADD(&sum, n, dy[i] * w[i] * x[i]);
	}
	real s = lanes_join(&sum) * (rstd * rstd) / (real)width;
	FOR_SPANS(line, at, n, t, t + 1, width) {
		if (width > SPAN) {
			dy = span_load(dybuf, dy_td, line, at, n);
			x = span_load(xbuf, x_td, line, at, n);
			w = span_load(wbuf, w_d, 0, at, n);
		}
		if (!res_td) {
			real *dx = span_out(d, out, line, at);
			INPLACE_LOOP
			for (int64_t i = 0; i < n; i++)
				dx[i] = rstd * (dy[i] * w[i] - x[i] * s);
			span_store(out, line, at, dx, n);
			continue;
		}
		const real *res = span_load(rbuf, res_td, line, at, n);
		real *restrict sums = part + at;
		for (int64_t i = 0; i < n; i++) {
			sums[i] += dy[i] * (x[i] * rstd);
			d[i] = rstd * (dy[i] * w[i] - x[i] * s);
		}
		for (int64_t i = 0; out->dtype == TT_BF16 && i < n; i++)
			d[i] = real_round_bf16(d[i]);
		for (int64_t i = 0; i < n; i++)
			d[i] += res[i];
		span_store(out, line, at, d, n);
	}
}
/* w if a line is one span, else NULL. */
static const real *norm_weight(real buf[SPAN], const tt_arg *w_d)
{
	return arg_width(w_d) > SPAN ? NULL : span_load(buf, w_d, 0, 0, arg_width(w_d));
}

static void rms_norm_dx_lines(const tt_call *c, int64_t begin, int64_t end)
{
	real wbuf[SPAN];
	const real *w = norm_weight(wbuf, &c->in[2]);
	for (int64_t t = begin; t < end; t++)
		norm_dx_line(&c->in[0], &c->in[1], &c->in[2], w, &c->out[0], NULL, NULL, scalar_load(&c->in[3], 0, t), t);
}
static void rms_norm_dx(const tt_call *c)
{
	tt_lines(c, arg_lines(&c->in[1]), lines_block(arg_width(&c->in[1])), rms_norm_dx_lines);
}

/* ---- sums over tokens ------------------------------------------------------------------------------------------------------
 * Each thread takes a range of columns through all tokens, so that no partial sums need memory. Two kinds of term:
 * a value (sum_tokens), and dy*(x*rstd) rounded to fp32 (rms_norm_dw), in both modes. */

/* Terms of token t for columns [at, at+n): a pointer to them, made in buf[0] if need be. */
typedef const real *terms_fn(const tt_call *c, real buf[][SPAN], int64_t t, int64_t at, int64_t n);

static const real *value_terms(const tt_call *c, real buf[][SPAN], int64_t t, int64_t at, int64_t n)
{
	return span_load(buf[0], &c->in[0], t, at, n);
}
static const real *norm_terms(const tt_call *c, real buf[][SPAN], int64_t t, int64_t at, int64_t n)
{
	const real *dy = span_load(buf[1], &c->in[0], t, at, n), *x = span_load(buf[2], &c->in[1], t, at, n);
	real rstd = scalar_load(&c->in[2], 0, t), *restrict term = buf[0];
	for (int64_t i = 0; i < n; i++)
		term[i] = dy[i] * (x[i] * rstd);
	return term;
}

/* Columns [at, at+n) of token t of the inputs [T,D], which lie a line apart from those of token t - 1. */
enum { AHEAD = 8 };
static void fetch_tokens(const tt_call *c, int64_t t, int64_t at, int64_t n)
{
	for (int i = 0; i < c->nin && t < arg_lines(&c->in[0]); i++)
		if (c->in[i].ndim == 2) {
			int64_t size = c->in[i].dtype == TT_BF16 ? (int64_t)sizeof(tt_bf16) : (int64_t)sizeof(real);
			const char *p = (const char *)c->in[i].p + arg_at(&c->in[i], t, at) * size;
			for (int64_t j = 0; j < n * size; j += 64)
				__builtin_prefetch(p + j);
		}
}

static inline __attribute__((always_inline)) void sum_columns(const tt_call *c, int64_t at, int64_t end, terms_fn *terms)
{
	int64_t n = end - at, tokens = arg_lines(&c->in[0]);
	real buf[3][SPAN], part[SPAN], total[SPAN];
	memset(total, 0, sizeof(real) * (size_t)n);
	for (int64_t b = 0; b < tokens; b += TOKEN_BLOCK) {
		memset(part, 0, sizeof(real) * (size_t)n);
		for (int64_t t = b; t < TT_MIN(tokens, b + TOKEN_BLOCK); t++) {
			fetch_tokens(c, t + AHEAD, at, n);
			const real *restrict x = terms(c, buf, t, at, n);
			for (int64_t i = 0; i < n; i++)
				part[i] += x[i];
		}
		for (int64_t i = 0; i < n; i++)
			total[i] += part[i];
	}
	span_store(&c->out[0], 0, at, total, n);
}

static inline __attribute__((always_inline)) void sum_columns_exact(const tt_call *c, int64_t at, int64_t end,
	terms_fn *terms)
{
	int64_t n = end - at, tokens = arg_lines(&c->in[0]);
	real buf[3][SPAN];
	real_bits max = 0;
	exact_line sum = exact_line_at(&c->out[0], 0, at);
	exact_line_clear(sum, n);
	for (int64_t t = 0; t < tokens; t++) {
		const real *x = terms(c, buf, t, at, n);
		max = TT_MAX(max, exact_max_bits(x, n));
		exact_line_add(sum, x, n);
	}
	exact_line_finish(sum, n, tokens);
	exact_check(c, exact_max_value(max), tokens);
}

static void sum_tokens_part(const tt_call *c, int64_t at, int64_t end) { sum_columns(c, at, end, value_terms); }
static void sum_tokens_exact_part(const tt_call *c, int64_t at, int64_t end) { sum_columns_exact(c, at, end, value_terms); }
static void norm_dw_part(const tt_call *c, int64_t at, int64_t end) { sum_columns(c, at, end, norm_terms); }
static void norm_dw_exact_part(const tt_call *c, int64_t at, int64_t end) { sum_columns_exact(c, at, end, norm_terms); }

static void run_columns(const tt_call *c, lines_fn *fn)
{
	int64_t width = arg_width(&c->in[0]);
	tt_lines(c, width, columns_block(c, width), fn);
}
static void sum_tokens(const tt_call *c) { run_columns(c, sum_tokens_part); }
static void sum_tokens_exact(const tt_call *c) { run_columns(c, sum_tokens_exact_part); }
static void rms_norm_dw(const tt_call *c) { run_columns(c, norm_dw_part); }
static void rms_norm_dw_exact(const tt_call *c) { run_columns(c, norm_dw_exact_part); }

/* ---- rms_norm_bwd: dx + res, and dw, in one read of dy and x ------------------------------------------------------------------
 * Inputs dy, x, w, rstd, res; outputs dx + res (dx rounded to its dtype first), dw. A thread takes a block of tokens, whose terms of dw go
 * to a line of scratch [blocks][D]; they are joined ascending, as rms_norm_dw does it. */

static void norm_bwd_block(void *ctx, int64_t block, int lane)
{
	(void)lane;
	const tt_call *c = ctx;
	int64_t width = arg_width(&c->in[1]), end = TT_MIN(arg_lines(&c->in[1]), (block + 1) * TOKEN_BLOCK);
	real wbuf[SPAN], *part = (real *)c->scratch + block * width;
	const real *w = norm_weight(wbuf, &c->in[2]);
	memset(part, 0, sizeof(real) * (size_t)width);
	for (int64_t t = block * TOKEN_BLOCK; t < end; t++)
		norm_dx_line(&c->in[0], &c->in[1], &c->in[2], w, &c->out[0], &c->in[4], part, scalar_load(&c->in[3], 0, t), t);
}
static void rms_norm_bwd(const tt_call *c)
{
	int64_t width = arg_width(&c->in[1]), blocks = tt_ceil_div(arg_lines(&c->in[1]), TOKEN_BLOCK);
	tt_pool_run(c->env->pool, blocks, norm_bwd_block, (void *)c);
	real *total = arg_real(&c->out[1], 0, 0);
	memset(total, 0, sizeof(real) * (size_t)width);
	for (int64_t b = 0; b < blocks; b++) {
		const real *restrict part = (const real *)c->scratch + b * width;
		for (int64_t i = 0; i < width; i++)
			total[i] += part[i];
	}
}

/* In `exact` one after the other. */
static void norm_dx_add_lines(const tt_call *c, int64_t begin, int64_t end)
{
	rms_norm_dx_lines(c, begin, end);
	add_lines(&c->out[0], &c->in[4], &c->out[0], begin, end);
}
static void rms_norm_bwd_exact(const tt_call *c)
{
	const tt_arg in[] = {c->in[0], c->in[1], c->in[3]};
	tt_call dw = *c;
	dw.in = in;
	dw.nin = 3;
	dw.out = &c->out[1];
	dw.nout = 1;
	rms_norm_dw_exact(&dw);
	tt_lines(c, arg_lines(&c->in[1]), lines_block(arg_width(&c->in[1])), norm_dx_add_lines);
}

/* x[T] -> one sum. */
static void total(const tt_call *c)
{
	int64_t tokens = arg_count(&c->in[0]);
	real buf[TOKEN_BLOCK], sum = 0;
	for (int64_t b = 0; b < tokens; b += TOKEN_BLOCK) {
		int64_t n = TT_MIN((int64_t)TOKEN_BLOCK, tokens - b);
		const real *x = span_load(buf, &c->in[0], 0, b, n);
		real part = 0;
		for (int64_t i = 0; i < n; i++)
			part += x[i];
		sum += part;
	}
	scalar_store(&c->out[0], 0, 0, sum);
}
static void total_exact(const tt_call *c)
{
	int64_t tokens = arg_count(&c->in[0]);
	real buf[SPAN];
	real_bits max = 0;
	exact_lanes sum = {{{0}}};
	FOR_SPANS(line, at, n, 0, 1, tokens) {
		const real *x = span_load(buf, &c->in[0], line, at, n);
		max = TT_MAX(max, exact_max_bits(x, n));
		EXACT_LANES_ADD(&sum, n, (double)x[i]);
	}
	exact_check(c, exact_max_value(max), tokens);
	exact_sum s = exact_lanes_join(&sum, tokens);
	exact_store(&c->out[0], 0, 0, &s);
}

const tt_kernel TT_KERNEL_TABLE[] = {
	{"rms_norm", rms_norm, NULL},
	{"add_rms_norm", add_rms_norm, NULL},
	{"rms_norm_rope", rms_norm_rope, NULL},
	{"rms_norm_dx", rms_norm_dx, NULL},
	{"rms_norm_dw", rms_norm_dw, TT_EXACT(rms_norm_dw_exact)},
	{"sum_tokens", sum_tokens, TT_EXACT(sum_tokens_exact)},
	{"rms_norm_bwd", rms_norm_bwd, TT_EXACT(rms_norm_bwd_exact)},
	{"total", total, TT_EXACT(total_exact)},
	{0},
};
