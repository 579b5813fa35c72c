/* exec: plans and programs, on ops made here, so that a fault is the executor's. */
#include "exec/exec.h"
#include "test.h"

#include <math.h>
#include <signal.h>
#include <stdio.h>

/* ---- ops: f32 lines, elementwise ------------------------------------------------------------------------------------ */

static int64_t elements(const tt_arg *a) { return a->ndim ? a->n[0] * a->ld : 1; }

static bool like_input(tt_graph *g, const tt_op *op, const void *attr, int nin, const tt_value *const *in, int nout, tt_value *out)
{
	(void)g, (void)op, (void)attr, (void)nin;
	for (int o = 0; o < nout; o++) {
		out[o].dtype = in[0]->dtype;
		out[o].gdtype = TT_NODTYPE;
		out[o].ndim = in[0]->ndim;
		memcpy(out[o].dim, in[0]->dim, sizeof out[o].dim);
	}
	return true;
}

/* out = 1.5 in + 1 */
static void run_scale(const tt_call *c)
{
	const float *x = c->in[0].p;
	float *y = c->out[0].p;
	for (int64_t i = 0; i < elements(&c->out[0]); i++)
		y[i] = 1.5f * x[i] + 1;
}

/* out = 0.5 a - 0.25 b, last element first: wrong if out lies on a shifted input */
static void run_mix(const tt_call *c)
{
	const float *a = c->in[0].p, *b = c->in[1].p;
	float *y = c->out[0].p;
	for (int64_t i = elements(&c->out[0]) - 1; i >= 0; i--)
		y[i] = 0.5f * a[i] - 0.25f * b[i];
}

/* out = a + reversed b: may lie on a, but then b may not */
static void run_add(const tt_call *c)
{
	const float *a = c->in[0].p, *b = c->in[1].p;
	float *y = c->out[0].p;
	for (int64_t i = 0; i < elements(&c->out[0]); i++)
		y[i] = a[i] + b[elements(&c->out[0]) - 1 - i];
}

/* Lines of width w to lines of 3 w, and back: sizes that do not fit each other's gaps. */
static void run_widen(const tt_call *c)
{
	const float *x = c->in[0].p;
	float *y = c->out[0].p;
	for (int64_t i = 0; i < elements(&c->out[0]); i++)
		y[i] = x[i / 3] + (float)(i % 3);
}

static void run_narrow(const tt_call *c)
{
	const float *x = c->in[0].p;
	float *y = c->out[0].p;
	for (int64_t i = 0; i < elements(&c->out[0]); i++)
		y[i] = x[3 * i + 2] - 0.5f * x[3 * i];
}

static bool infer_widen(tt_graph *g, const tt_op *op, const void *attr, int nin, const tt_value *const *in, int nout, tt_value *out)
{
	like_input(g, op, attr, nin, in, nout, out);
	out->dim[1].n *= 3;
	return true;
}

static bool infer_narrow(tt_graph *g, const tt_op *op, const void *attr, int nin, const tt_value *const *in, int nout, tt_value *out)
{
	like_input(g, op, attr, nin, in, nout, out);
	out->dim[1].n /= 3;
	return true;
}

/* Writes nothing. */
static void run_lazy(const tt_call *c) { (void)c; }

static void run_join(const tt_call *c)
{
	float *y = c->out[0].p;
	for (int i = 0; i < c->nin; i++) {
		if (elements(&c->in[i]))
			memcpy(y, c->in[i].p, (size_t)elements(&c->in[i]) * sizeof *y);
		y += elements(&c->in[i]);
	}
}

/* Sum over its scratch, into which it copies the input: [1] */
static bool infer_sum(tt_graph *g, const tt_op *op, const void *attr, int nin, const tt_value *const *in, int nout, tt_value *out)
{
	like_input(g, op, attr, nin, in, nout, out);
	out->ndim = 1;
	out->dim[0] = tt_dim_of(TT_ONE, 1, 1);
	return true;
}

static size_t scratch_sum(const void *attr, int nin, const tt_value *const *in, int nout, const tt_value *const *out, const tt_env *env)
{
	(void)attr, (void)nin, (void)nout, (void)out, (void)env;
	return (size_t)tt_value_count(in[0]) * sizeof(float);
}

static void run_sum(const tt_call *c)
{
	const float *x = c->in[0].p;
	float *s = c->scratch, sum = 0;
	for (int64_t i = 0; i < elements(&c->in[0]); i++)
		s[i] = x[i];
	for (int64_t i = 0; i < elements(&c->in[0]); i++)
		sum += s[i];
	*(float *)c->out[0].p = sum;
}

/* Three chunks of tokens. */
static bool infer_split(tt_graph *g, const tt_op *op, const void *attr, int nin, const tt_value *const *in, int nout, tt_value *out)
{
	like_input(g, op, attr, nin, in, nout, out);
	for (int o = 0; o < nout; o++) {
		int64_t lo = tt_deal(in[0]->dim[0].n, o, nout), hi = tt_deal(in[0]->dim[0].n, o + 1, nout);
		out[o].dim[0].base += lo;
		out[o].dim[0].n = hi - lo;
	}
	return true;
}

/* The last of the three alone. */
static bool infer_tail(tt_graph *g, const tt_op *op, const void *attr, int nin, const tt_value *const *in, int nout, tt_value *out)
{
	like_input(g, op, attr, nin, in, nout, out);
	out->dim[0].base += tt_deal(in[0]->dim[0].n, 2, 3);
	out->dim[0].n -= tt_deal(in[0]->dim[0].n, 2, 3);
	return true;
}

static bool infer_join(tt_graph *g, const tt_op *op, const void *attr, int nin, const tt_value *const *in, int nout, tt_value *out)
{
	like_input(g, op, attr, nin, in, nout, out);
	for (int i = 1; i < nin; i++)
		out->dim[0].n += in[i]->dim[0].n;
	return true;
}

/* Entries of a table: the extent that came with the cell. */
static void run_entries(const tt_call *c) { *(float *)c->out[0].p = (float)c->in[0].n[0]; }
static bool infer_entries(tt_graph *g, const tt_op *op, const void *attr, int nin, const tt_value *const *in, int nout, tt_value *out)
{
	infer_sum(g, op, attr, nin, in, nout, out);
	out->dtype = TT_F32;
	return true;
}

static void run_flag(const tt_call *c)
{
	run_scale(c);
	atomic_store(c->flag, 1);
}

/* f32 -> acc: limb j of element i is 10 j + x[i] */
static bool infer_lift(tt_graph *g, const tt_op *op, const void *attr, int nin, const tt_value *const *in, int nout, tt_value *out)
{
	like_input(g, op, attr, nin, in, nout, out);
	out->dtype = TT_ACC;
	return true;
}

static void run_lift(const tt_call *c)
{
	const float *x = c->in[0].p;
	for (int64_t i = 0; i < elements(&c->in[0]); i++)
		for (int j = 0; j < 3; j++)
			((int64_t *)((char *)c->out[0].p + j * c->out[0].plane))[i] = 10 * j + (int64_t)x[i];
}

static void run_limbs(const tt_call *c) /* acc + acc, or acc copied */
{
	for (int j = 0; j < 3; j++)
		for (int i = 0; i < c->nin; i++) {
			const int64_t *a = (const int64_t *)((const char *)c->in[i].p + j * c->in[i].plane);
			int64_t *y = (int64_t *)((char *)c->out[0].p + j * c->out[0].plane);
			for (int64_t k = 0; k < elements(&c->out[0]); k++)
				y[k] = i ? y[k] + a[k] : a[k];
		}
}

static void run_pool_job(void *ctx, int64_t i, int lane)
{
	(void)lane;
	const tt_call *c = ctx;
	int64_t ld = c->out[0].ld;
	for (int64_t k = i * ld; k < (i + 1) * ld; k++)
		((float *)c->out[0].p)[k] = 1.5f * ((const float *)c->in[0].p)[k] + 1;
}
static void run_pooled(const tt_call *c) { tt_pool_run(c->env->pool, c->out[0].n[0], run_pool_job, (void *)(uintptr_t)c); }

#define UNARY(NAME, KERNEL, ...)                                                                                       \
	static const tt_op NAME = {.name = "test." #NAME, .nin = 1, .nout = 1, .infer = like_input, .kernel = KERNEL, __VA_ARGS__}
UNARY(op_scale, run_scale, .doc = "");
UNARY(op_inc, run_scale, .flags = TT_OP_INPLACE);
UNARY(op_lazy, run_lazy, .doc = "");
UNARY(op_pooled, run_pooled, .doc = "");
UNARY(op_flag, run_flag, .doc = "");
UNARY(op_nokernel, NULL, .doc = "");
static const tt_op op_mix = {.name = "test.mix", .nin = 2, .nout = 1, .infer = like_input, .kernel = run_mix};
static const tt_op op_add = {.name = "test.add", .nin = 2, .nout = 1, .flags = TT_OP_INPLACE, .infer = like_input, .kernel = run_add};
static const tt_op op_widen = {.name = "test.widen", .nin = 1, .nout = 1, .infer = infer_widen, .kernel = run_widen};
static const tt_op op_narrow = {.name = "test.narrow", .nin = 1, .nout = 1, .infer = infer_narrow, .kernel = run_narrow};
static const tt_op op_tail = {.name = "test.tail", .nin = 1, .nout = 1, .flags = TT_OP_VIEW, .infer = infer_tail};
static const tt_op op_sum = {.name = "test.sum", .nin = 1, .nout = 1, .infer = infer_sum, .kernel = run_sum, .scratch = scratch_sum};
static const tt_op op_split = {.name = "test.split", .nin = 1, .nout = -1, .flags = TT_OP_VIEW, .infer = infer_split};
static const tt_op op_join = {.name = "test.join", .nin = 1, .nin_max = -1, .nout = 1, .flags = TT_OP_JOIN, .infer = infer_join, .kernel = run_join};
static const tt_op op_entries = {.name = "test.entries", .nin = 1, .nout = 1, .infer = infer_entries, .kernel = run_entries};
static const tt_op op_lift = {.name = "test.lift", .nin = 1, .nout = 1, .infer = infer_lift, .kernel = run_lift};
static const tt_op op_limbs = {.name = "test.limbs", .nin = 1, .nin_max = 2, .nout = 1, .flags = TT_OP_INPLACE, .infer = like_input, .kernel = run_limbs};

/* ---- graphs --------------------------------------------------------------------------------------------------------- */

static tt_graph *graph(tt_test *t) { return tt_graph_new(t->arena, &(tt_mesh){0}, false); }

static tt_v tokens(tt_graph *g, const char *name, int64_t n, int64_t width)
{
	tt_dim d[2] = {tt_dim_of(TT_TOKENS, n, 1), tt_dim_of(TT_D, width, 1)};
	return tt_input(g, name, TT_F32, TT_NODTYPE, 2, d);
}

static tt_v state(tt_graph *g, const char *name, tt_dtype dt, int64_t n)
{
	tt_dim d[1] = {tt_dim_of(TT_D, n, 1)};
	return tt_state_new(g, name, TT_REGION_PARAM, dt, 1, d, false);
}

static tt_v node1(tt_graph *g, const tt_op *op, tt_v x, const char *role) { return tt_node_add(g, op, NULL, 1, &x, role); }
static tt_v node2(tt_graph *g, const tt_op *op, tt_v x, tt_v y, const char *role)
{
	return tt_node_add(g, op, NULL, 2, (tt_v[]){x, y}, role);
}
static tt_v split3(tt_graph *g, tt_v x, const char *role) { return tt_node_add_n(g, &op_split, NULL, 1, &x, 3, role); }

/* Creates, adds one graph, plans, reserves. NULL after a failed check. */
static tt_exec *ready(tt_test *t, const tt_graph *g, tt_exec_options o)
{
	tt_exec *e = NULL;
	if (TT_CHECK_OK(t, tt_exec_create(&o, &e)) && TT_CHECK_OK(t, tt_exec_add_graph(e, g)) && TT_CHECK_OK(t, tt_exec_plan(e)) &&
		TT_CHECK_OK(t, tt_exec_reserve(e)))
		return e;
	tt_exec_destroy(e);
	return NULL;
}

static tt_cell cell(int64_t T) { return (tt_cell){.T = T, .nseqs = 1, .first = true, .step = 1}; }

static tt_status run(tt_exec *e, tt_segment s, int64_t T)
{
	tt_cell c = cell(T);
	return tt_exec_run(e, s, &c);
}

/* x[i] = i - 3 */
static void write_ramp(tt_test *t, tt_exec *e, const char *name, int64_t n)
{
	float *x = TT_NEWN(t->arena, float, n);
	for (int64_t i = 0; i < n; i++)
		x[i] = (float)(i - 3);
	TT_CHECK_OK(t, tt_exec_write(e, name, 0, x, n));
}

static const float *read_all(tt_test *t, tt_exec *e, const char *name, int64_t n)
{
	float *x = TT_NEWN(t->arena, float, TT_MAX(n, (int64_t)1));
	TT_CHECK_OK(t, tt_exec_read(e, name, 0, x, n));
	return x;
}

/* ---- cases ------------------------------------------------------------------------------------------------------------ */

/* A chain of four needs two buffers; an early value that is read late needs a third. */
static void case_lifetimes(tt_test *t)
{
	tt_graph *g = graph(t);
	tt_v x = tokens(g, "x", 16, 8);
	tt_v a = node1(g, &op_scale, x, "a"), b = node1(g, &op_scale, a, "b"), c = node1(g, &op_scale, b, "c"), d = node1(g, &op_scale, c, "d");
	tt_v s = node1(g, &op_sum, d, "s");
	tt_graph_output(g, s);
	tt_exec *e = ready(t, g, (tt_exec_options){0});
	if (!e)
		return;
	TT_CHECK_INT(t, tt_exec_planned(e, TT_REGION_WORK), 2 * 16 * 8 * 4);
	TT_CHECK_INT(t, tt_exec_planned(e, TT_REGION_SCRATCH), 16 * 8 * 4);
	TT_CHECK_INT(t, tt_exec_planned(e, TT_REGION_IO), 16 * 8 * 4 + 64);
	tt_exec_destroy(e);
	g = graph(t);
	x = tokens(g, "x", 16, 8);
	a = node1(g, &op_scale, x, "a"), b = node1(g, &op_scale, a, "b"), c = node1(g, &op_scale, b, "c"), d = node2(g, &op_mix, c, a, "d");
	tt_graph_output(g, node1(g, &op_sum, d, "s"));
	e = ready(t, g, (tt_exec_options){0});
	if (!e)
		return;
	TT_CHECK_INT(t, tt_exec_planned(e, TT_REGION_WORK), 3 * 16 * 8 * 4);
	tt_exec_destroy(e);
	e = ready(t, g, (tt_exec_options){.no_alias = true});
	if (e)
		TT_CHECK_INT(t, tt_exec_planned(e, TT_REGION_WORK), 4 * 16 * 8 * 4);
	tt_exec_destroy(e);
}

/* Three values of 260 bytes want the 832 that a dead value of 780 left below a live one: two fit, the third must go elsewhere. */
static void case_gaps(tt_test *t)
{
	tt_graph *g = graph(t);
	tt_v x = tokens(g, "x", 13, 5), low = node1(g, &op_widen, x, "low"), high = node1(g, &op_widen, x, "high");
	tt_v n = node1(g, &op_narrow, low, "n"), a[3];
	for (int k = 0; k < 3; k++)
		a[k] = node1(g, &op_scale, k ? a[k - 1] : n, "a");
	tt_v y = node2(g, &op_mix, node2(g, &op_mix, a[0], a[1], NULL), a[2], NULL);
	tt_graph_output(g, node2(g, &op_mix, y, node1(g, &op_narrow, high, NULL), "y"));
	const float *r[2];
	for (int k = 0; k < 2; k++) {
		tt_exec *e = ready(t, g, (tt_exec_options){.no_alias = k == 0});
		if (!e)
			return;
		write_ramp(t, e, "x", 65);
		TT_CHECK_OK(t, run(e, TT_SEG_F, 13));
		r[k] = read_all(t, e, "y", 65);
		TT_CHECK_INT(t, tt_exec_used(e, TT_REGION_WORK), tt_exec_planned(e, TT_REGION_WORK));
		tt_exec_destroy(e);
	}
	TT_CHECK(t, !memcmp(r[0], r[1], 65 * sizeof(float)));
}

/* ---- random graphs: sharing bytes changes no result -------------------------------------------------------------------- */

typedef struct rng { uint64_t s; } rng;
static int64_t below(rng *r, int64_t n)
{
	r->s = r->s * 6364136223846793005u + 1442695040888963407u;
	return (int64_t)((r->s >> 33) % (uint64_t)n);
}

enum { DAG_T = 13, DAG_W = 5, DAG_OUT = 6 };

static tt_v any_unary(tt_graph *g, rng *r, tt_v x) { return node1(g, below(r, 2) ? &op_scale : &op_inc, x, NULL); }

/* Values of DAG_T tokens, and chunks of them; segments F then B; two states that grow in B. */
static tt_graph *random_graph(tt_test *t, uint64_t seed)
{
	rng r = {seed};
	tt_graph *g = graph(t);
	tt_v all[128], wide[64], part[3][64];
	int n = 0, np = 0, nw = 0;
	all[n++] = tokens(g, "x", DAG_T, DAG_W);
	all[n++] = tokens(g, "y", DAG_T, DAG_W);
	tt_v st = state(g, "total", TT_F32, 1), held = st;
	int steps = 8 + (int)below(&r, 24);
	for (int i = 0; i < steps; i++) {
		g->seg = i < steps / 2 ? TT_SEG_F : TT_SEG_B;
		tt_v a = all[below(&r, n)], b = all[below(&r, n)];
		switch (below(&r, 9)) {
		case 0: all[n++] = node1(g, &op_scale, a, NULL); break;
		case 1: all[n++] = node1(g, &op_inc, a, NULL); break;
		case 2: all[n++] = node2(g, &op_mix, a, b, NULL); break;
		case 3: all[n++] = node2(g, &op_add, a, b, NULL); break;
		case 4: {
			tt_v s = split3(g, a, NULL), made[3];
			for (int k = 0; k < 3; k++) {
				made[k] = below(&r, 4) ? any_unary(g, &r, s + k) : s + k;
				part[k][np] = k == 2 && below(&r, 3) == 0 ? any_unary(g, &r, node1(g, &op_tail, a, NULL)) : made[k];
			}
			np++;
			all[n++] = tt_node_add(g, &op_join, NULL, 3, made, NULL);
			break;
		}
		case 5:
			if (np) {
				tt_v made[3];
				for (int k = 0; k < 3; k++) {
					made[k] = part[k][below(&r, np)];
					if (below(&r, 3))
						made[k] = node2(g, below(&r, 2) ? &op_mix : &op_add, made[k], part[k][below(&r, np)], NULL);
				}
				all[n++] = tt_node_add(g, &op_join, NULL, 3, made, NULL);
			}
			break;
		case 6:
			if (np && below(&r, 2))
				a = part[below(&r, 3)][below(&r, np)];
			if (g->seg == TT_SEG_B)
				held = node2(g, &op_add, held, node1(g, &op_sum, a, NULL), NULL);
			break;
		case 7: wide[nw++] = node1(g, &op_widen, a, NULL); break;
		case 8:
			if (nw)
				all[n++] = node1(g, &op_narrow, wide[below(&r, nw)], NULL);
			break;
		}
	}
	if (held != st)
		tt_state_set(g, st, held);
	for (int k = 0; k < DAG_OUT; k++)
		tt_graph_output(g, all[k < 3 ? n - 1 - below(&r, TT_MIN(n, 4)) : below(&r, n)]);
	return g;
}

/* All outputs and the state after two cells of T tokens, concatenated. */
static float *results(tt_test *t, tt_exec *e, int64_t T, int64_t *n)
{
	int64_t nout, at = 0;
	const tt_slot *out = tt_exec_outputs(e, &nout);
	float *all = TT_NEWN(t->arena, float, (nout + 1) * DAG_T * DAG_W);
	for (int k = 0; k < 2; k++) {
		float x[DAG_T * DAG_W];
		for (int i = 0; i < DAG_T * DAG_W; i++)
			x[i] = (float)((i * 7 + k) % 11) - 5;
		TT_CHECK_OK(t, tt_exec_write(e, "x", 0, x, DAG_T * DAG_W));
		TT_CHECK_OK(t, tt_exec_write(e, "y", 0, x, DAG_T * DAG_W));
		at = 0;
		for (int seg = TT_SEG_F; seg <= TT_SEG_B; seg++) {
			if (!tt_exec_has(e, (tt_segment)seg))
				continue;
			TT_CHECK_OK(t, run(e, (tt_segment)seg, T));
			for (int64_t i = 0; i < nout; i++) {
				int64_t tok = TT_MAX((int64_t)0, TT_MIN(T - out[i].dim[0].base, out[i].dim[0].n));
				if (out[i].seg != (tt_segment)seg)
					continue;
				TT_CHECK_OK(t, tt_tensor_read(e, &out[i], 0, all + at, tok * DAG_W));
				at += tok * DAG_W;
			}
		}
	}
	TT_CHECK_OK(t, tt_exec_read(e, "total", 0, all + at, 1));
	*n = at + 1;
	return all;
}

static void case_sharing(tt_test *t)
{
	int count = t->tier == TT_TIER_QUICK ? 150 : t->tier == TT_TIER_CI ? 1000 : 20000;
	int64_t shared = 0, apart = 0;
	for (int i = 0; i < count && !t->failures; i++) {
		uint64_t seed = t->seed + (uint64_t)i * 977 + 1;
		tt_mark mark = tt_arena_push(t->arena);
		tt_graph *g = random_graph(t, seed);
		TT_CHECK_OK(t, tt_graph_verify(g, "build"));
		int64_t T = i % 3 == 0 ? DAG_T : i % (DAG_T + 1);
		float *r[3];
		int64_t n[3] = {0};
		for (int k = 0; k < 3; k++) {
			tt_exec *e = ready(t, g, (tt_exec_options){.no_alias = k == 0, .fill_nan = k == 2});
			if (!e)
				return;
			r[k] = results(t, e, T, &n[k]);
			*(k ? &shared : &apart) += tt_exec_planned(e, TT_REGION_WORK);
			tt_exec_destroy(e);
		}
		for (int k = 1; k < 3; k++)
			TT_CHECK_MSG(t, n[k] == n[0] && !memcmp(r[k], r[0], (size_t)n[0] * sizeof(float)), "graph %d, T %lld: %s differs", i,
				(long long)T, k == 1 ? "sharing" : "sharing with NaN");
		tt_arena_pop(t->arena, mark);
	}
	TT_CHECK_MSG(t, shared / 2 < apart / 2, "sharing saves nothing: %lld of %lld bytes", (long long)shared / 2, (long long)apart);
}

/* ---- views, joins, in place -------------------------------------------------------------------------------------------- */

static void case_views_and_joins(tt_test *t)
{
	tt_graph *g = graph(t);
	tt_v x = tokens(g, "x", 7, 2), a = node1(g, &op_scale, x, "a"), s = split3(g, a, "part"), made[3];
	for (int k = 0; k < 3; k++)
		made[k] = node1(g, &op_scale, s + k, "made");
	tt_v whole = tt_node_add(g, &op_join, NULL, 3, made, "whole");
	tt_v twice = tt_node_add(g, &op_join, NULL, 3, (tt_v[]){s, s + 1, s + 2}, "twice");
	tt_graph_output(g, node2(g, &op_mix, whole, twice, "y"));
	tt_graph_output(g, node1(g, &op_scale, node1(g, &op_tail, a, "tail"), "last"));
	tt_exec *e = ready(t, g, (tt_exec_options){.fill_nan = true});
	if (!e)
		return;
	/* a, whole; `twice` is views of a, so its kernel copies */
	TT_CHECK_INT(t, tt_exec_planned(e, TT_REGION_WORK), 2 * 64 + 7 * 2 * 4);
	write_ramp(t, e, "x", 14);
	for (int64_t T = 0; T <= 7; T++) {
		TT_CHECK_OK(t, run(e, TT_SEG_F, T));
		const float *y = read_all(t, e, "y", T * 2), *last = read_all(t, e, "last", TT_MAX(T - 4, (int64_t)0) * 2);
		for (int64_t i = 0; i < (T - 4) * 2; i++)
			TT_CHECK(t, last[i] == 1.5f * (1.5f * (float)(i + 8 - 3) + 1) + 1);
		for (int64_t i = 0; i < T * 2; i++) {
			float av = 1.5f * (float)(i - 3) + 1, w = 1.5f * av + 1;
			TT_CHECK_MSG(t, y[i] == 0.5f * w - 0.25f * av, "T %lld, element %lld: %g", (long long)T, (long long)i, (double)y[i]);
		}
	}
	TT_CHECK_FAILS(t, run(e, TT_SEG_F, 8), TT_ERR_TYPE, "at most 7");
	TT_CHECK_INT(t, tt_exec_used(e, TT_REGION_WORK), tt_exec_planned(e, TT_REGION_WORK));
	tt_exec_destroy(e);
}

static void case_in_place(tt_test *t)
{
	tt_graph *g = graph(t);
	tt_v x = tokens(g, "x", 16, 8), a = node1(g, &op_scale, x, "a"), b = node1(g, &op_inc, a, "b"), c = node1(g, &op_inc, b, "c");
	tt_graph_output(g, node1(g, &op_sum, c, "s"));
	tt_exec *e = ready(t, g, (tt_exec_options){0});
	if (e)
		TT_CHECK_INT(t, tt_exec_planned(e, TT_REGION_WORK), 16 * 8 * 4);
	tt_exec_destroy(e);
	/* b is read again after c: c may not lie on it. The input is the caller's: nothing may lie on it either. */
	g = graph(t);
	x = tokens(g, "x", 16, 8), a = node1(g, &op_inc, x, "a"), b = node1(g, &op_inc, a, "b"), c = node1(g, &op_inc, b, "c");
	tt_graph_output(g, node1(g, &op_sum, node2(g, &op_mix, b, c, "d"), "s"));
	e = ready(t, g, (tt_exec_options){0});
	if (e)
		TT_CHECK_INT(t, tt_exec_planned(e, TT_REGION_WORK), 3 * 16 * 8 * 4);
	tt_exec_destroy(e);
}

/* ---- states -------------------------------------------------------------------------------------------------------------- */

static void case_states(tt_test *t)
{
	/* INIT of one graph, B and OPT of another, EVAL of a third, one state */
	tt_graph *init = graph(t), *train = graph(t), *eval = graph(t);
	tt_v c = tt_input(init, "start", TT_F32, TT_NODTYPE, 1, (tt_dim[]){tt_dim_of(TT_D, 4, 1)});
	init->seg = TT_SEG_INIT;
	tt_v w = state(init, "w", TT_F32, 4);
	tt_state_set(init, w, node1(init, &op_scale, c, "w0"));

	tt_v term = tt_input(train, "term", TT_F32, TT_NODTYPE, 1, (tt_dim[]){tt_dim_of(TT_D, 4, 1)});
	w = state(train, "w", TT_F32, 4);
	tt_v sum = state(train, "sum", TT_F32, 4);
	train->seg = TT_SEG_B;
	tt_v s1 = node2(train, &op_add, sum, term, "s1");
	tt_v seen = node2(train, &op_mix, s1, term, "seen"); /* between two versions */
	tt_v s2 = node2(train, &op_add, s1, node1(train, &op_scale, seen, NULL), "s2");
	tt_state_set(train, sum, s2);
	train->seg = TT_SEG_OPT;
	tt_v step = node1(train, &op_scale, sum, "step");
	tt_state_set(train, w, node2(train, &op_mix, step, step, "w1"));

	w = state(eval, "w", TT_F32, 4);
	eval->seg = TT_SEG_EVAL;
	tt_graph_output(eval, node1(eval, &op_sum, w, "loss"));

	tt_exec *e = NULL;
	tt_exec_options o = {.fill_nan = true};
	if (!TT_CHECK_OK(t, tt_exec_create(&o, &e)) || !TT_CHECK_OK(t, tt_exec_add_graph(e, train)) || !TT_CHECK_OK(t, tt_exec_add_graph(e, init)) ||
		!TT_CHECK_OK(t, tt_exec_add_graph(e, eval)) || !TT_CHECK_OK(t, tt_exec_plan(e)) || !TT_CHECK_OK(t, tt_exec_reserve(e)))
		return;
	int64_t n;
	const tt_slot *st = tt_exec_states(e, &n);
	TT_CHECK_INT(t, n, 2);
	TT_CHECK_STR(t, st[0].name, "w");
	TT_CHECK_INT(t, st[1].offset, 64);
	TT_CHECK_INT(t, tt_exec_planned(e, TT_REGION_PARAM), 64 + 16);
	write_ramp(t, e, "start", 4);
	TT_CHECK_OK(t, run(e, TT_SEG_INIT, 0));
	TT_CHECK(t, read_all(t, e, "w", 4)[0] == -3.5f);
	TT_CHECK_OK(t, run(e, TT_SEG_EVAL, 0));
	TT_CHECK(t, read_all(t, e, "loss", 1)[0] == -3.5f - 2 - 0.5f + 1);
	write_ramp(t, e, "term", 4);
	TT_CHECK_OK(t, run(e, TT_SEG_B, 0));
	float want = 0 + 1.5f * (0.5f * -3) + 1; /* term and what is added are read from the other end */
	TT_CHECK(t, read_all(t, e, "sum", 4)[0] == want);
	TT_CHECK_OK(t, run(e, TT_SEG_OPT, 0));
	TT_CHECK(t, read_all(t, e, "w", 4)[0] == 0.25f * (1.5f * want + 1));
	TT_CHECK(t, read_all(t, e, "sum", 4)[0] == want);
	for (int r = 0; r < TT_EXEC_NREGIONS; r++)
		TT_CHECK_MSG(t, tt_exec_used(e, r) == tt_exec_planned(e, r), "%s: used %lld of %lld", tt_exec_region_name(r),
			(long long)tt_exec_used(e, r), (long long)tt_exec_planned(e, r));
	tt_exec_destroy(e);
}

static tt_status add_only(tt_test *t, const tt_graph *g, const tt_graph *then)
{
	(void)t;
	tt_exec *e = NULL;
	tt_exec_options o = {0};
	tt_status s = tt_exec_create(&o, &e);
	if (s == TT_OK)
		s = tt_exec_add_graph(e, g);
	if (s == TT_OK && then)
		s = tt_exec_add_graph(e, then);
	tt_exec_destroy(e);
	return s;
}

static void case_refused(tt_test *t)
{
	/* the old version is read after the new one lies on it */
	tt_graph *g = graph(t);
	tt_v w = state(g, "w", TT_F32, 4), n1 = node1(g, &op_inc, w, "n1");
	tt_graph_output(g, node2(g, &op_mix, n1, w, "late"));
	tt_state_set(g, w, n1);
	TT_CHECK_FAILS(t, add_only(t, g, NULL), TT_ERR_TYPE, "late");
	/* an op that cannot work in place writes the state that it reads */
	g = graph(t);
	w = state(g, "w", TT_F32, 4);
	tt_state_set(g, w, node1(g, &op_scale, w, "n2"));
	TT_CHECK_FAILS(t, add_only(t, g, NULL), TT_ERR_TYPE, "in place");
	/* nor may another input of an in-place op be the state */
	g = graph(t);
	w = state(g, "w", TT_F32, 4);
	tt_state_set(g, w, node2(g, &op_add, node1(g, &op_scale, w, NULL), w, "n3"));
	TT_CHECK_FAILS(t, add_only(t, g, NULL), TT_ERR_TYPE, "n3");
	/* no kernel */
	g = graph(t);
	tt_graph_output(g, node1(g, &op_nokernel, tokens(g, "x", 4, 4), "y"));
	TT_CHECK_FAILS(t, add_only(t, g, NULL), TT_ERR_TYPE, "y: op test.op_nokernel");
	/* one name, two shapes */
	g = graph(t);
	tt_graph *h = graph(t);
	g->seg = TT_SEG_B;
	tt_graph_output(g, node1(g, &op_sum, state(g, "w", TT_F32, 4), "a"));
	h->seg = TT_SEG_EVAL;
	tt_graph_output(h, node1(h, &op_sum, state(h, "w", TT_F32, 5), "a"));
	TT_CHECK_FAILS(t, add_only(t, g, h), TT_ERR_TYPE, "state w: an earlier graph has it as f32[4], this one as f32[5]");
	/* one segment, two graphs */
	TT_CHECK_FAILS(t, add_only(t, g, g), TT_ERR_TYPE, "already");
	/* a temporary may go from F to B, and nowhere else */
	g = graph(t);
	tt_v x = node1(g, &op_scale, tokens(g, "x", 4, 4), "x1");
	g->seg = TT_SEG_OPT;
	tt_graph_output(g, node1(g, &op_sum, x, "y"));
	TT_CHECK_FAILS(t, add_only(t, g, NULL), TT_ERR_TYPE, "x1 is made in F and read in OPT");
	/* a graph for double */
	g = tt_graph_new(t->arena, &(tt_mesh){0}, true);
	TT_CHECK_FAILS(t, add_only(t, g, NULL), TT_ERR_TYPE, "double");
	/* PREP is compiled once and must do for both */
	g = graph(t), h = graph(t);
	g->seg = h->seg = TT_SEG_PREP;
	tt_state_set(g, state(g, "p", TT_F32, 4), node1(g, &op_scale, state(g, "w", TT_F32, 4), "p1"));
	tt_state_set(h, state(h, "q", TT_F32, 4), node1(h, &op_scale, state(h, "w", TT_F32, 4), "q1"));
	TT_CHECK_FAILS(t, add_only(t, g, h), TT_ERR_TYPE, "state q: PREP");
	TT_CHECK_OK(t, add_only(t, g, g));
}

static void case_limit(tt_test *t)
{
	tt_graph *g = graph(t);
	tt_graph_output(g, node1(g, &op_sum, node1(g, &op_scale, tokens(g, "x", 1024, 1024), "y"), "s"));
	tt_exec *e = NULL;
	tt_exec_options o = {.limit = 12 * TT_MIB + 63};
	TT_CHECK_OK(t, tt_exec_create(&o, &e));
	TT_CHECK_OK(t, tt_exec_add_graph(e, g));
	TT_CHECK_OK(t, tt_exec_plan(e));
	TT_CHECK_FAILS(t, tt_exec_reserve(e), TT_ERR_MEMORY, "io 4.0, frame 0.0, work 4.0, scratch 4.0");
	tt_exec_destroy(e);
	o.limit += 5; /* one float behind 12 MiB, 64 bytes aligned: exactly enough */
	TT_CHECK_OK(t, tt_exec_create(&o, &e));
	TT_CHECK_OK(t, tt_exec_add_graph(e, g));
	TT_CHECK_OK(t, tt_exec_plan(e));
	TT_CHECK_OK(t, tt_exec_reserve(e));
	tt_exec_destroy(e);
	o.t_max = 1000;
	TT_CHECK_OK(t, tt_exec_create(&o, &e));
	TT_CHECK_FAILS(t, tt_exec_add_graph(e, g), TT_ERR_TYPE, "x: its dim 0 ends at token 1024, a cell has at most 1000");
	tt_exec_destroy(e);
}

/* ---- dynamic extents and frames ------------------------------------------------------------------------------------------- */

static void case_sequences(tt_test *t)
{
	tt_graph *g = graph(t);
	tt_v table = tt_input(g, "table", TT_I32, TT_NODTYPE, 1, (tt_dim[]){tt_dim_of(TT_SEQS, 9, 1)});
	tt_graph_output(g, node1(g, &op_entries, table, "n"));
	tt_exec *e = ready(t, g, (tt_exec_options){.seqs_max = 8});
	if (!e)
		return;
	for (int64_t s = 0; s <= 8; s++) {
		tt_cell c = cell(0);
		c.nseqs = s;
		TT_CHECK_OK(t, tt_exec_run(e, TT_SEG_F, &c));
		TT_CHECK_INT(t, (int64_t)read_all(t, e, "n", 1)[0], s + 1);
	}
	tt_cell c = cell(0);
	c.nseqs = 9;
	TT_CHECK_FAILS(t, tt_exec_run(e, TT_SEG_F, &c), TT_ERR_TYPE, "at most 8");
	tt_exec_destroy(e);
}

/* Three cells are forwarded before the first goes back: each finds its own. */
static void case_frames(tt_test *t)
{
	tt_graph *g = graph(t);
	tt_v x = tokens(g, "x", 4, 3), a = node1(g, &op_scale, x, "a");
	g->seg = TT_SEG_B;
	tt_graph_output(g, node1(g, &op_sum, node2(g, &op_mix, a, x, "d"), "s"));
	tt_exec *e = ready(t, g, (tt_exec_options){.nframes = 3, .fill_nan = true});
	if (!e)
		return;
	TT_CHECK_INT(t, tt_exec_planned(e, TT_REGION_FRAME), 2 * 64 + 48);
	TT_CHECK_INT(t, tt_exec_planned(e, TT_REGION_IO), 64 + 2 * 64 + 48);
	tt_slot in;
	TT_CHECK_OK(t, tt_exec_slot(e, "x", &in));
	float v[12];
	for (int f = 0; f < 3; f++) {
		for (int i = 0; i < 12; i++)
			v[i] = (float)(f + 1);
		in.frame = f;
		TT_CHECK_OK(t, tt_tensor_write(e, &in, 0, v, 12));
		tt_cell c = cell(4);
		c.frame = f;
		TT_CHECK_OK(t, tt_exec_run(e, TT_SEG_F, &c));
	}
	for (int f = 2; f >= 0; f--) {
		tt_cell c = cell(4);
		c.frame = f;
		TT_CHECK_OK(t, tt_exec_run(e, TT_SEG_B, &c));
		float one = (float)(f + 1);
		TT_CHECK(t, read_all(t, e, "s", 1)[0] == 12 * (0.5f * (1.5f * one + 1) - 0.25f * one));
	}
	for (int r = 0; r < TT_EXEC_NREGIONS; r++)
		TT_CHECK_INT(t, tt_exec_used(e, r), tt_exec_planned(e, r));
	in.frame = 3;
	TT_CHECK_FAILS(t, tt_tensor_write(e, &in, 0, v, 12), TT_ERR_TYPE, "frame 3 of 3");
	tt_exec_destroy(e);
}

/* ---- exact -------------------------------------------------------------------------------------------------------------------- */

static void case_planes(tt_test *t)
{
	tt_graph *g = graph(t);
	tt_v acc = tt_state_new(g, "acc", TT_REGION_GRAD, TT_ACC, 1, (tt_dim[]){tt_dim_of(TT_D, 5, 1)}, false);
	tt_v in = tt_input(g, "in", TT_F32, TT_NODTYPE, 1, (tt_dim[]){tt_dim_of(TT_D, 5, 1)});
	tt_state_set(g, acc, node2(g, &op_limbs, acc, node1(g, &op_lift, in, "term"), "acc1"));
	tt_v x = tokens(g, "x", 9, 3), a = node1(g, &op_lift, x, "a"), s = split3(g, a, "part"), made[3];
	for (int k = 0; k < 3; k++)
		made[k] = node2(g, &op_limbs, s + k, s + k, "made");
	tt_graph_output(g, tt_node_add(g, &op_join, NULL, 3, made, "whole"));
	tt_exec *e = ready(t, g, (tt_exec_options){.numerics = TT_EXACT, .fill_nan = true});
	if (!e)
		return;
	TT_CHECK_INT(t, tt_exec_planned(e, TT_REGION_GRAD), 64 + 64 + 40);
	int64_t limbs[15] = {1, 2, 3, 4, 5, 100, 200, 300, 400, 500, -1, -2, -3, -4, -5}, got[81];
	TT_CHECK_OK(t, tt_exec_write(e, "acc", 0, limbs, 5));
	write_ramp(t, e, "in", 5);
	write_ramp(t, e, "x", 27);
	TT_CHECK_OK(t, run(e, TT_SEG_F, 8));
	TT_CHECK_OK(t, tt_exec_read(e, "acc", 0, got, 5));
	for (int j = 0; j < 3; j++)
		for (int i = 0; i < 5; i++)
			TT_CHECK_INT(t, got[5 * j + i], limbs[5 * j + i] + 10 * j + i - 3);
	TT_CHECK_OK(t, tt_exec_read(e, "acc", 1, got, 2));
	TT_CHECK_INT(t, got[3], 200 + 10 + 2 - 3 + 100); /* element 2 of limb 1 */
	TT_CHECK_OK(t, tt_exec_read(e, "whole", 0, got, 24));
	for (int j = 0; j < 3; j++)
		for (int i = 0; i < 24; i++)
			TT_CHECK_INT(t, got[24 * j + i], 2 * (10 * j + i - 3));
	tt_slot sl;
	TT_CHECK_OK(t, tt_exec_slot(e, "acc", &sl));
	TT_CHECK_INT(t, tt_tensor_bytes(e, &sl, 5), 120);
	tt_exec_destroy(e);
}

static void case_flag(tt_test *t)
{
	tt_graph *g = graph(t);
	tt_graph_output(g, node1(g, &op_flag, tokens(g, "x", 4, 4), "y"));
	tt_exec *e = ready(t, g, (tt_exec_options){.numerics = TT_EXACT});
	if (e)
		TT_CHECK_FAILS(t, run(e, TT_SEG_F, 4), TT_ERR_NUMERIC, "y (test.op_flag, F)");
	tt_exec_destroy(e);
}

/* ---- what tests switch on -------------------------------------------------------------------------------------------------- */

/* A kernel that leaves its output unwritten passes unseen over zeros, and is seen over NaN; so is the frame. */
static void case_nan(tt_test *t)
{
	for (int seg = TT_SEG_F; seg <= TT_SEG_B; seg++)
		for (int nan = 0; nan < 2; nan++) {
			tt_graph *g = graph(t);
			tt_v y = node1(g, &op_lazy, tokens(g, "x", 4, 4), "y");
			g->seg = (tt_segment)seg;
			tt_graph_output(g, node1(g, &op_sum, y, "s"));
			tt_exec *e = ready(t, g, (tt_exec_options){.fill_nan = nan});
			if (!e)
				return;
			TT_CHECK_OK(t, run(e, TT_SEG_F, 4));
			if (seg == TT_SEG_B)
				TT_CHECK_OK(t, run(e, TT_SEG_B, 4));
			TT_CHECK_INT(t, isnan(read_all(t, e, "s", 1)[0]) != 0, nan);
			tt_exec_destroy(e);
		}
	/* and an output that nobody wrote */
	tt_graph *g = graph(t);
	tt_graph_output(g, node1(g, &op_lazy, tokens(g, "x", 4, 4), "y"));
	tt_exec *e = ready(t, g, (tt_exec_options){.fill_nan = true});
	if (!e)
		return;
	TT_CHECK_OK(t, run(e, TT_SEG_F, 4));
	TT_CHECK(t, isnan(read_all(t, e, "y", 16)[15]));
	tt_exec_destroy(e);
}

static float *leaked; /* by run_leak: a tensor's address outside of a kernel */
static void run_leak(const tt_call *c)
{
	run_scale(c);
	leaked = c->out[0].p;
}
UNARY(op_leak, run_leak, .doc = "");

static void touch(void *ctx)
{
	signal(SIGSEGV, SIG_DFL); /* sanitizers would report and exit */
	*(volatile float *)ctx = 1;
}

static void case_protect(tt_test *t)
{
	tt_graph *g = graph(t);
	tt_graph_output(g, node1(g, &op_inc, node1(g, &op_leak, tokens(g, "x", 4, 4), "temp"), "y"));
	tt_exec *e = ready(t, g, (tt_exec_options){.no_alias = true, .protect = true, .fill_nan = true});
	if (!e)
		return;
	write_ramp(t, e, "x", 16);
	TT_CHECK_OK(t, run(e, TT_SEG_F, 4));
	TT_CHECK(t, read_all(t, e, "y", 16)[3] == 2.5f);
	tt_slot s;
	uint64_t h;
	TT_CHECK_OK(t, tt_exec_slot(e, "y", &s));
	TT_CHECK_OK(t, tt_tensor_hash(e, &s, 0, 16, &h));
	TT_CHECK(t, tt_test_dies(t, touch, leaked, SIGSEGV, NULL));
	tt_exec_destroy(e);
}

static void case_no_malloc(tt_test *t)
{
	if (!tt_malloc_count_available())
		TT_SKIP(t, "the sanitizer's allocator is not counted");
	tt_graph *g = graph(t);
	tt_v x = tokens(g, "x", 64, 8), y = x;
	for (int i = 0; i < 20; i++)
		y = node1(g, i % 2 ? &op_pooled : &op_inc, y, NULL);
	tt_graph_output(g, node1(g, &op_sum, y, "s"));
	tt_exec *e = ready(t, g, (tt_exec_options){.threads = 2, .spin_us = 20, .profile = true});
	if (!e)
		return;
	write_ramp(t, e, "x", 512);
	tt_malloc_count_begin();
	for (int64_t T = 64; T >= 0; T -= 16)
		if (run(e, TT_SEG_F, T) != TT_OK)
			break;
	TT_CHECK_INT(t, tt_malloc_count_end(), 0);
	tt_buf b = {0};
	tt_exec_print_profile(e, &b);
	TT_CHECK(t, strstr(b.s, "test.op_pooled             50 calls"));
	tt_buf_fini(&b);
	tt_exec_reset_profile(e);
	tt_exec_print_profile(e, &b);
	TT_CHECK(t, strstr(b.s, "test.op_pooled              0 calls"));
	tt_buf_fini(&b);
	tt_exec_destroy(e);
}

/* ---- values by name, hash, text ------------------------------------------------------------------------------------------- */

static void case_slots(tt_test *t)
{
	tt_graph *g = graph(t);
	tt_v w = state(g, "weight", TT_F32, 100);
	tt_v d = tt_state_derived(g, w, "fwd", TT_F32, TT_PLAIN);
	g->seg = TT_SEG_PREP;
	tt_state_set(g, d, node1(g, &op_scale, w, "packed"));
	tt_exec *e = ready(t, g, (tt_exec_options){0});
	if (!e)
		return;
	int64_t n;
	const tt_slot *st = tt_exec_states(e, &n);
	TT_CHECK_INT(t, n, 2);
	TT_CHECK_INT(t, st[0].source, -1);
	TT_CHECK_INT(t, st[1].source, 0);
	tt_slot s;
	TT_CHECK_FAILS(t, tt_exec_slot(e, "wieght", &s), TT_ERR_TYPE, "nearest: weight");
	TT_CHECK_FAILS(t, tt_exec_read(e, "weight", 90, &s, 11), TT_ERR_TYPE, "elements 90 to 101 of 100");
	write_ramp(t, e, "weight", 100);
	TT_CHECK_OK(t, run(e, TT_SEG_PREP, 0));
	TT_CHECK(t, read_all(t, e, "weight:fwd", 100)[99] == 1.5f * 96 + 1);
	/* shards add up, an element's place and bits count */
	uint64_t all, lo, hi, other;
	TT_CHECK_OK(t, tt_exec_slot(e, "weight", &s));
	TT_CHECK_OK(t, tt_tensor_hash(e, &s, 0, 100, &all));
	TT_CHECK_OK(t, tt_tensor_hash(e, &s, 0, 40, &lo));
	float x[100], tmp;
	TT_CHECK_OK(t, tt_tensor_read(e, &s, 0, x, 100));
	TT_CHECK_OK(t, tt_tensor_write(e, &s, 0, x + 40, 60));
	TT_CHECK_OK(t, tt_tensor_hash(e, &s, 40, 60, &hi));
	TT_CHECK(t, all == lo + hi);
	tmp = x[3], x[3] = x[4], x[4] = tmp;
	TT_CHECK_OK(t, tt_tensor_write(e, &s, 0, x, 100));
	TT_CHECK_OK(t, tt_tensor_hash(e, &s, 0, 100, &other));
	TT_CHECK(t, all != other);
	tt_exec_destroy(e);
}

static void case_text(tt_test *t)
{
	tt_graph *g = graph(t);
	tt_v x = tokens(g, "x", 6, 4), a = node1(g, &op_scale, x, "a"), s = split3(g, a, "part"), made[3];
	for (int k = 0; k < 3; k++)
		made[k] = node1(g, &op_inc, s + k, "made");
	tt_v whole = tt_node_add(g, &op_join, NULL, 3, made, "whole");
	tt_graph_output(g, node1(g, &op_sum, whole, "s"));
	tt_exec *e = ready(t, g, (tt_exec_options){0});
	if (!e)
		return;
	tt_buf b = {0};
	tt_exec_print_program(e, TT_SEG_F, &b);
	TT_CHECK_STR(t, b.s, 
		"program F: 5 instructions, 2 nodes without one, work 224, scratch 96\n"
		"    0 test.op_scale [op]\n"
		"        -> a work+0 f32[min(T,6),4]\n"
		"        <- x io/cell+0 f32[min(T,6),4]\n"
		"    . test.split [view]\n"
		"        -> part.0 work+0 f32[min(T,2),4]\n"
		"        -> part.1 work+32 f32[clamp(T-2,0,2),4]\n"
		"        -> part.2 work+64 f32[clamp(T-4,0,2),4]\n"
		"        <- a work+0 f32[min(T,6),4]\n"
		"    1 test.op_inc [op]\n"
		"        -> made work+128 f32[min(T,2),4]\n"
		"        <- part.0 work+0 f32[min(T,2),4]\n"
		"    2 test.op_inc [op]\n"
		"        -> made#2 work+160 f32[clamp(T-2,0,2),4]\n"
		"        <- part.1 work+32 f32[clamp(T-2,0,2),4]\n"
		"    3 test.op_inc [op]\n"
		"        -> made#3 work+192 f32[clamp(T-4,0,2),4]\n"
		"        <- part.2 work+64 f32[clamp(T-4,0,2),4]\n"
		"    . test.join [in place]\n"
		"        -> whole work+128 f32[min(T,6),4]\n"
		"        <- made work+128 f32[min(T,2),4]\n"
		"        <- made#2 work+160 f32[clamp(T-2,0,2),4]\n"
		"        <- made#3 work+192 f32[clamp(T-4,0,2),4]\n"
		"    4 test.sum [op] scratch 96\n"
		"        -> s io+0 f32[1]\n"
		"        <- whole work+128 f32[min(T,6),4]\n");
	tt_buf_fini(&b);
	tt_exec_print_memory(e, &b);
	TT_CHECK_STR(t, b.s,
		"memory: 480 bytes, 0.0 MiB\n"
		"             160  33.3%  io\n"
		"             224  46.7%  work\n"
		"              96  20.0%  scratch\n"
		"work of F: 224 bytes, 192 live at its peak, test.op_inc of made\n"
		"              96  a\n"
		"              96  whole\n");
	tt_buf_fini(&b);
	tt_exec_destroy(e);
}

const tt_case tt_suite_exec[] = {
	{"lifetimes", case_lifetimes, TT_TIER_QUICK},
	{"gaps", case_gaps, TT_TIER_QUICK},
	{"sharing", case_sharing, TT_TIER_QUICK},
	{"views_and_joins", case_views_and_joins, TT_TIER_QUICK},
	{"in_place", case_in_place, TT_TIER_QUICK},
	{"states", case_states, TT_TIER_QUICK},
	{"refused", case_refused, TT_TIER_QUICK},
	{"limit", case_limit, TT_TIER_QUICK},
	{"sequences", case_sequences, TT_TIER_QUICK},
	{"frames", case_frames, TT_TIER_QUICK},
	{"planes", case_planes, TT_TIER_QUICK},
	{"flag", case_flag, TT_TIER_QUICK},
	{"nan", case_nan, TT_TIER_QUICK},
	{"protect", case_protect, TT_TIER_QUICK},
	{"no_malloc", case_no_malloc, TT_TIER_QUICK},
	{"slots", case_slots, TT_TIER_QUICK},
	{"text", case_text, TT_TIER_QUICK},
	{0},
};
