/* Initial values. The index of an element is its place in the whole tensor, line by line. */
#include "kernels/random.h"

static void fill_normal_lines(const tt_call *c, int64_t begin, int64_t end)
{
	const tt_attr_init *attr = c->attr;
	const tt_arg *out = &c->out[0];
	int64_t width = arg_width(out), whole = attr->width ? attr->width : width;
	random_stream s = random_stream_of(c->env->seed, 0, attr->name, "init");
	double mean = attr->mean, std = attr->std, half_mass = attr->cut > 0 ? normal_half_mass(attr->cut) : 0;
	real tmp[SPAN];
	FOR_SPANS(line, at, n, begin, end, width) {
		uint64_t index = (uint64_t)((attr->line + line) * whole + attr->column + at);
		if (attr->cut > 0)
			for (int64_t i = 0; i < n; i++)
				tmp[i] = (real)(mean + std * random_truncated(&s, index + (uint64_t)i, half_mass));
		else
			for (int64_t i = 0; i < n; i++)
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
