/* RMS norm and sums over tokens. Legend: T tokens, D width of the normed dim (a model width or a head).
 * Zhang and Sennrich, "Root mean square layer normalization", 2019. */
#include "kernels/exact.h"
#include "kernels/math.h"

/* ---- forward: y = (x*rstd)*w, rstd = 1/sqrt(sum(x^2)/D + eps) ----------------------------------------------------------- */

static void rms_norm_lines(const tt_call *c, int64_t begin, int64_t end)
{
	const tt_attr_norm *attr = c->attr;
	const tt_arg *x_td = &c->in[0], *w_d = &c->in[1], *y_td = &c->out[0];
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
		scalar_store(&c->out[1], 0, t, rstd);
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
static void rms_norm(const tt_call *c)
{
	tt_lines(c, arg_lines(&c->in[0]), lines_block(arg_width(&c->in[0])), rms_norm_lines);
}

/* ---- backward to x: u = dy*w, s = sum(u*x)*rstd^2/D, dx = rstd*(u - x*s) -------------------------------------------------- */

static void rms_norm_dx_lines(const tt_call *c, int64_t begin, int64_t end)
{
	const tt_arg *dy_td = &c->in[0], *x_td = &c->in[1], *w_d = &c->in[2], *dx_td = &c->out[0];
	int64_t width = arg_width(x_td);
	real dybuf[SPAN], xbuf[SPAN], wbuf[SPAN], tmp[SPAN];
	const real *dy = NULL, *x = NULL, *w = NULL; /* a line that is one span is loaded once */
	for (int64_t t = begin; t < end; t++) {
		real rstd = scalar_load(&c->in[3], 0, t);
		lanes sum = {{0}};
		FOR_SPANS(line, at, n, t, t + 1, width) {
			dy = span_load(dybuf, dy_td, line, at, n);
			x = span_load(xbuf, x_td, line, at, n);
			if (width > SPAN || !w)
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
			real *dx = span_out(tmp, dx_td, line, at);
			INPLACE_LOOP
			for (int64_t i = 0; i < n; i++)
				dx[i] = rstd * (dy[i] * w[i] - x[i] * s);
			span_store(dx_td, line, at, dx, n);
		}
	}
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
	{"rms_norm_dx", rms_norm_dx, NULL},
	{"rms_norm_dw", rms_norm_dw, TT_EXACT(rms_norm_dw_exact)},
	{"sum_tokens", sum_tokens, TT_EXACT(sum_tokens_exact)},
	{"total", total, TT_EXACT(total_exact)},
	{0},
};
