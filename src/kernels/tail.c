#include "kernels/tail.h"

tt_tail tt_tail_of(const char *op, tt_isa isa, bool f64)
{
	static const struct { const char *op, *rest; int products; } known[] = { { "linear_silu_mul", "silu_mul", 2 }, { "linear_rope", "rope", 1 } };
	for (int i = 0; i < TT_COUNT(known); i++)
		if (!strcmp(known[i].op, op))
			return (tt_tail){ tt_kernel_ref(known[i].rest, isa, f64)->run, known[i].products };
	return (tt_tail){ NULL, 1 };
}

static tt_arg block(const tt_call *c, const tt_arg *a, int64_t m0, int64_t lines, int64_t n0, int64_t n)
{
	tt_arg b = *a;
	b.p = (char *)a->p + (m0 * a->ld + n0) * tt_dtype_size(a->dtype, c->env->numerics, c->env->f64);
	b.n[0] = lines;
	b.n[1] = n;
	return b;
}

void tt_tail_run(const tt_tail *t, const tt_call *c, bool alone, int64_t m0, int64_t lines, int64_t n0, int64_t n)
{
	enum { MOST = 4 };
	tt_arg in[MOST], out = block(c, &c->out[c->nout - 1], m0, lines, n0, n);
	tt_env env = *c->env;
	tt_call rest = { .in = in, .out = &out, .nout = 1, .attr = c->attr, .env = &env, .flag = c->flag };
	if (alone)
		env.pool = NULL;
	for (int i = 0; i < t->products; i++)
		in[rest.nin++] = block(c, &c->out[i], m0, lines, n0, n);
	for (int i = 1 + t->products; i < c->nin; i++)
		in[rest.nin++] = block(c, &c->in[i], m0, lines, 0, c->in[i].n[1]);
	t->run(&rest);
}
