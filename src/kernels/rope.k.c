/* Rotary position embedding (Su et al., "RoFormer", 2021), in the layout of Llama: a head's first half is paired with its
 * second. Legend: T tokens, h heads*K, K head dim. */
#include "kernels/math.h"
#include "kernels/rotate.h"

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

static void rope_lines(const tt_call *c, int64_t begin, int64_t end)
{
	const tt_attr_rope *attr = c->attr;
	rotate_lines(&c->in[0], &c->in[1], &c->out[0], attr->head_dim, attr->inverse, begin, end);
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
