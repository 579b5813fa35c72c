/* Initial values. The index of an element is its place in the whole tensor, line by line. */
#include "kernels/random.h"

/* random_truncated for many draws at once, step by step over arrays, which vectorises where one expression per draw does not. Same
 * operations, same bits. */
enum { DRAWS = 256 };

/* u[i] = random_uniform(s, first + i) */
static void uniforms(const random_stream *s, uint64_t first, int64_t n, double *restrict u)
{
	uint32_t w[4][DRAWS], key0 = (uint32_t)s->seed, key1 = (uint32_t)(s->seed >> 32);
	for (int64_t i = 0; i < n; i++) {
		w[0][i] = (uint32_t)(first + (uint64_t)i);
		w[1][i] = (uint32_t)((first + (uint64_t)i) >> 32);
		w[2][i] = s->step;
		w[3][i] = s->stream;
	}
	for (int round = 0; round < 10; round++) {
		for (int64_t i = 0; i < n; i++) {
			uint64_t a = UINT64_C(0xd2511f53) * w[0][i], b = UINT64_C(0xcd9e8d57) * w[2][i];
			w[0][i] = (uint32_t)(b >> 32) ^ w[1][i] ^ key0;
			w[1][i] = (uint32_t)b;
			w[2][i] = (uint32_t)(a >> 32) ^ w[3][i] ^ key1;
			w[3][i] = (uint32_t)a;
		}
		key0 += 0x9e3779b9u;
		key1 += 0xbb67ae85u;
	}
	for (int64_t i = 0; i < n; i++)
		u[i] = random_unit(w[0][i], w[1][i]);
}

/* The quantile's center, then, gathered, its tails: a seventh of the draws. */
static void truncated(const random_stream *s, uint64_t first, int64_t n, double half_mass, double *restrict x)
{
	double q[DRAWS], r[DRAWS], far[DRAWS];
	int32_t at[DRAWS];
	uniforms(s, first, n, q);
	for (int64_t i = 0; i < n; i++) {
		q[i] = (2.0 * q[i] - 1.0) * half_mass;
		x[i] = quantile_center(q[i]);
	}
	int64_t tails = 0;
	for (int64_t i = 0; i < n; i++) {
		at[tails] = (int32_t)i;
		r[tails] = q[i];
		tails += !(__builtin_fabs(q[i]) <= 0.425);
	}
	for (int64_t i = 0; i < tails; i++)
		far[i] = __builtin_sqrt(-log_f64(0.5 - __builtin_fabs(r[i])));
	for (int64_t i = 0; i < tails; i++) {
		double y = quantile_tail(far[i]);
		r[i] = r[i] < 0 ? -y : y;
	}
	for (int64_t i = 0; i < tails; i++)
		x[at[i]] = far[i] <= 5.0 ? r[i] : normal_quantile(q[at[i]]);
}

static void fill_normal_lines(const tt_call *c, int64_t begin, int64_t end)
{
	const tt_attr_init *attr = c->attr;
	const tt_arg *out = &c->out[0];
	int64_t width = arg_width(out), whole = attr->width ? attr->width : width;
	random_stream s = random_stream_of(c->env->seed, 0, attr->name, "init");
	double mean = attr->mean, std = attr->std, half_mass = attr->cut > 0 ? normal_half_mass(attr->cut) : 0, x[DRAWS];
	real tmp[SPAN];
	FOR_SPANS(line, at, n, begin, end, width) {
		uint64_t index = (uint64_t)((attr->line + line) * whole + attr->column + at);
		for (int64_t i0 = 0; attr->cut > 0 && i0 < n; i0 += DRAWS) {
			int64_t m = TT_MIN(DRAWS, n - i0);
			truncated(&s, index + (uint64_t)i0, m, half_mass, x);
			for (int64_t i = 0; i < m; i++)
				tmp[i0 + i] = (real)(mean + std * x[i]);
		}
		for (int64_t i = 0; !(attr->cut > 0) && i < n; i++)
			tmp[i] = (real)(mean + std * random_normal(&s, index + (uint64_t)i));
		span_store(out, line, at, tmp, n);
	}
}
static void fill_normal(const tt_call *c)
{
	tt_lines(c, arg_lines(&c->out[0]), lines_block(arg_width(&c->out[0])), fill_normal_lines);
}

static void fill_const_lines(const tt_call *c, int64_t begin, int64_t end)
{
	const tt_attr_init *attr = c->attr;
	const tt_arg *out = &c->out[0];
	int64_t width = arg_width(out);
	real tmp[SPAN];
	for (int64_t i = 0; i < SPAN; i++)
		tmp[i] = (real)attr->mean;
	FOR_SPANS(line, at, n, begin, end, width)
		span_store(out, line, at, tmp, n);
}
static void fill_const(const tt_call *c)
{
	tt_lines(c, arg_lines(&c->out[0]), lines_block(arg_width(&c->out[0])), fill_const_lines);
}

const tt_kernel TT_KERNEL_TABLE[] = {
	{"fill_normal", fill_normal, NULL},
	{"fill_const", fill_const, NULL},
	{0},
};
