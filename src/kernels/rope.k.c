/* Rotary position embedding (Su et al., "RoFormer", 2021), in the layout of Llama: a head's first half is paired with its
 * second. Legend: T tokens, h heads*K, K head dim. */
#include "kernels/math.h"

/* positions[T] -> [T,K]: cos(p*f_i) for i < K/2, then the sines, each times scale. The angle is one product of `real`s (an
 * fp32 product in fp32), of the position and inv_freq rounded to fp32. */
static void table_lines(const tt_call *c, int64_t begin, int64_t end)
{
	const tt_attr_rope_table *attr = c->attr;
	const int32_t *position = arg_i32(&c->in[0]);
	const tt_arg *out = &c->out[0];
	int64_t half = attr->inv_freq.n;
	real scale = (real)attr->scale, freq[SPAN], cosine[SPAN], sine[SPAN];
	TT_ASSERT(arg_width(out) == 2 * half, "a rope table of %lld columns for %lld frequencies", (long long)arg_width(out),
		(long long)half);
	for (int64_t at = 0; at < half; at += SPAN) {
		int64_t n = TT_MIN((int64_t)SPAN, half - at);
		for (int64_t i = 0; i < n; i++)
			freq[i] = (real)(float)attr->inv_freq.v[at + i];
		for (int64_t t = begin; t < end; t++) {
			real p = (real)position[t];
			for (int64_t i = 0; i < n; i++) {
				real s, k;
				real_sincos(p * freq[i], &s, &k);
				sine[i] = s * scale;
				cosine[i] = k * scale;
			}
			span_store(out, t, at, cosine, n);
			span_store(out, t, half + at, sine, n);
		}
	}
}
static void rope_table(const tt_call *c) { tt_lines(c, arg_lines(&c->out[0]), 32, table_lines); }

/* (a, b) -> (a cos - b sin, b cos + a sin), each product rounded; the inverse turns back: sin negated. */
static void rope_lines(const tt_call *c, int64_t begin, int64_t end)
{
	const tt_attr_rope *attr = c->attr;
	const tt_arg *x_th = &c->in[0], *table_tk = &c->in[1], *y_th = &c->out[0];
	int64_t head = attr->head_dim, half = head / 2, width = arg_width(x_th);
	TT_ASSERT(head > 0 && head % 2 == 0 && head <= SPAN && width % head == 0, "rope: head dim %lld, width %lld",
		(long long)head, (long long)width);
	int64_t step = SPAN / head * head;
	real sign = attr->inverse ? (real)-1 : (real)1, xbuf[SPAN], tmp[SPAN], tbuf[SPAN], sine[SPAN / 2];
	for (int64_t t = begin; t < end; t++) {
		const real *restrict cosine = span_load(tbuf, table_tk, t, 0, head);
		for (int64_t i = 0; i < half; i++)
			sine[i] = sign * cosine[half + i];
		for (int64_t at = 0; at < width; at += step) {
			int64_t n = TT_MIN(step, width - at);
			const real *x = span_load(xbuf, x_th, t, at, n);
			real *y = span_out(tmp, y_th, t, at);
			for (int64_t h = 0; h < n; h += head) {
				const real *a = x + h, *b = a + half;
				real *ya = y + h, *yb = ya + half;
				INPLACE_LOOP
				for (int64_t i = 0; i < half; i++) {
					real p = a[i], q = b[i];
					ya[i] = p * cosine[i] - q * sine[i];
					yb[i] = q * cosine[i] + p * sine[i];
				}
			}
			span_store(y_th, t, at, y, n);
		}
	}
}
static void rope(const tt_call *c)
{
	tt_lines(c, arg_lines(&c->in[0]), lines_block(arg_width(&c->in[0])), rope_lines);
}

const tt_kernel TT_KERNEL_TABLE[] = {
	{"rope_table", rope_table, NULL},
	{"rope", rope, NULL},
	{0},
};
