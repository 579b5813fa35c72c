/* op_run.c: see op_run.h. */
#define _GNU_SOURCE
#include "op_run.h"

#include <math.h>
#include <stdio.h>
#include <sys/mman.h>

#include "kernels/exact.h"

tt_isa op_isa(const tt_test *t)
{
	tt_isa isa = tt_isa_detect();
	if (t->isa[0] && tt_isa_parse(t->isa, &isa) != TT_OK)
		TT_ASSERT(false, "%s", tt_error_text());
	return isa;
}

/* ---- contents --------------------------------------------------------------------------------------------------------- */

op_tensor *op_tensor_new(tt_arena *a, const tt_value *type, const op_env *e)
{
	op_tensor *x = TT_NEW(a, op_tensor);
	x->val = *type;
	bool limbs = type->dtype == TT_ACC && e->numerics == TT_EXACT && !e->f64;
	x->planes = limbs ? EXACT_LIMBS : 1;
	x->esize = limbs ? (int)sizeof(int64_t) : tt_dtype_size(type->dtype, e->numerics, e->f64);
	x->count = type->format == TT_PLAIN ? tt_value_count(type) : tt_format_count(type->format, type->dtype, type->dim[0].n, type->dim[1].n);
	x->bytes = tt_arena_alloc(a, (size_t)TT_MAX(x->count * x->esize * x->planes, (int64_t)1));
	return x;
}

double op_get(const op_tensor *x, int64_t i)
{
	const void *p = x->bytes;
	switch (x->val.dtype) {
	case TT_F32: return (double)((const float *)p)[i];
	case TT_BF16: return (double)tt_bf16_to_f32(((const tt_bf16 *)p)[i]);
	case TT_F64: return ((const double *)p)[i];
	case TT_I32: return (double)((const int32_t *)p)[i];
	case TT_I64: return (double)((const int64_t *)p)[i];
	case TT_ACC: {
		const int64_t *k = p;
		if (x->planes == EXACT_LIMBS)
			return (double)k[i] * 0x1p-26 + ((double)k[x->count + i] * 0x1p-66 + (double)k[2 * x->count + i] * 0x1p-106);
		return x->esize == 8 ? ((const double *)p)[i] : (double)((const float *)p)[i];
	}
	case TT_NODTYPE: break;
	}
	TT_ASSERT(false, "%s has no dtype", x->val.name);
	return 0;
}

void op_set(op_tensor *x, int64_t i, double v)
{
	void *p = x->bytes;
	switch (x->val.dtype) {
	case TT_F32: ((float *)p)[i] = (float)v; return;
	case TT_BF16: ((tt_bf16 *)p)[i] = tt_f32_to_bf16((float)v); return;
	case TT_F64: ((double *)p)[i] = v; return;
	case TT_I32: ((int32_t *)p)[i] = (int32_t)v; return;
	case TT_I64: ((int64_t *)p)[i] = (int64_t)v; return;
	case TT_ACC:
		if (x->planes == EXACT_LIMBS) {
			exact_sum s = {{0}};
			exact_add_term(&s, (double)(float)v);
			for (int j = 0; j < EXACT_LIMBS; j++)
				((uint64_t *)p)[j * x->count + i] = s.k[j];
		} else if (x->esize == 8) {
			((double *)p)[i] = v;
		} else {
			((float *)p)[i] = (float)v;
		}
		return;
	case TT_NODTYPE: break;
	}
	TT_ASSERT(false, "%s has no dtype", x->val.name);
}

op_tensor *op_copy(tt_arena *a, const op_tensor *x)
{
	op_tensor *y = TT_NEW(a, op_tensor);
	*y = *x;
	size_t n = (size_t)(x->count * x->esize * x->planes);
	y->bytes = tt_arena_alloc(a, TT_MAX(n, (size_t)1));
	memcpy(y->bytes, x->bytes, n);
	return y;
}

op_tensor *op_convert(tt_arena *a, const op_tensor *x, tt_dtype dt, const op_env *e)
{
	tt_value type = x->val;
	type.dtype = dt;
	type.gdtype = type.gdtype == TT_NODTYPE ? TT_NODTYPE : dt;
	op_tensor *y = op_tensor_new(a, &type, e);
	for (int64_t i = 0; i < x->count; i++)
		op_set(y, i, op_get(x, i));
	return y;
}

/* A tensor of x's kind with n elements along dim. */
static op_tensor *resized(tt_arena *a, const op_tensor *x, int dim, int64_t n)
{
	TT_ASSERT(x->val.format == TT_PLAIN && dim < x->val.ndim, "%s: dim %d of %d", x->val.name, dim, x->val.ndim);
	op_tensor *y = TT_NEW(a, op_tensor);
	*y = *x;
	y->val.dim[dim].n = n;
	y->count = tt_value_count(&y->val);
	y->bytes = tt_arena_alloc(a, (size_t)TT_MAX(y->count * y->esize * y->planes, (int64_t)1));
	return y;
}

/* Copies index `from` of dim of x to index `to` of dim of y. */
static void move_index(op_tensor *y, int64_t to, const op_tensor *x, int64_t from, int dim)
{
	int64_t outer = 1, inner = x->esize;
	for (int d = 0; d < dim; d++)
		outer *= x->val.dim[d].n;
	for (int d = dim + 1; d < x->val.ndim; d++)
		inner *= x->val.dim[d].n;
	for (int j = 0; j < x->planes; j++)
		for (int64_t o = 0; o < outer; o++)
			memcpy((char *)y->bytes + j * y->count * y->esize + (o * y->val.dim[dim].n + to) * inner,
				(const char *)x->bytes + j * x->count * x->esize + (o * x->val.dim[dim].n + from) * inner, (size_t)inner);
}

op_tensor *op_slice(tt_arena *a, const op_tensor *x, int dim, int64_t first, int64_t n)
{
	TT_ASSERT(first >= 0 && n >= 0 && first + n <= x->val.dim[dim].n, "%s: %lld of %lld", x->val.name, (long long)(first + n),
		(long long)x->val.dim[dim].n);
	op_tensor *y = resized(a, x, dim, n);
	for (int64_t i = 0; i < n; i++)
		move_index(y, i, x, first + i, dim);
	return y;
}

op_tensor *op_permute(tt_arena *a, const op_tensor *x, int dim, const int64_t *perm)
{
	op_tensor *y = resized(a, x, dim, x->val.dim[dim].n);
	for (int64_t i = 0; i < x->val.dim[dim].n; i++)
		move_index(y, i, x, perm[i], dim);
	return y;
}

op_tensor *op_concat(tt_arena *a, int n, const op_tensor *const *parts, int dim)
{
	int64_t all = 0, at = 0;
	for (int i = 0; i < n; i++)
		all += parts[i]->val.dim[dim].n;
	op_tensor *y = resized(a, parts[0], dim, all);
	for (int i = 0; i < n; i++)
		for (int64_t k = 0; k < parts[i]->val.dim[dim].n; k++)
			move_index(y, at++, parts[i], k, dim);
	return y;
}

op_tensor *op_sum(tt_arena *a, const op_tensor *x, const op_tensor *y)
{
	TT_ASSERT(x->count == y->count && x->planes == y->planes, "%s and %s differ", x->val.name, y->val.name);
	op_tensor *z = op_copy(a, x);
	for (int64_t i = 0; i < x->count; i++) {
		if (x->planes == 1) {
			op_set(z, i, op_get(x, i) + op_get(y, i));
			continue;
		}
		uint64_t *zk = z->bytes;
		const uint64_t *yk = y->bytes;
		for (int j = 0; j < EXACT_LIMBS; j++)
			zk[j * x->count + i] += yk[j * x->count + i];
		exact_carry(&zk[i], &zk[x->count + i], &zk[2 * x->count + i]);
	}
	return z;
}

bool op_same(const op_tensor *x, const op_tensor *y)
{
	bool same = x->val.ndim == y->val.ndim && x->count == y->count && x->esize == y->esize && x->planes == y->planes;
	for (int d = 0; same && d < x->val.ndim; d++)
		same = x->val.dim[d].n == y->val.dim[d].n;
	return same && !memcmp(x->bytes, y->bytes, (size_t)(x->count * x->esize * x->planes));
}

double op_distance(const op_tensor *x, const op_tensor *y)
{
	TT_ASSERT(x->count == y->count, "%s and %s: %lld and %lld elements", x->val.name, y->val.name, (long long)x->count, (long long)y->count);
	double diff = 0, norm = 0;
	for (int64_t i = 0; i < x->count; i++) {
		double u = op_get(x, i), v = op_get(y, i);
		if (!isfinite(u) || !isfinite(v))
			return (double)NAN;
		diff += (u - v) * (u - v);
		norm += v * v;
	}
	return diff == 0 ? 0 : sqrt(diff / norm);
}

/* ---- filling ------------------------------------------------------------------------------------------------------------ */

static uint64_t next(uint64_t *s)
{
	uint64_t z = (*s += UINT64_C(0x9e3779b97f4a7c15)); /* SplitMix64 */
	z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
	z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
	return z ^ (z >> 31);
}
static double uniform(uint64_t *s) { return ((double)(next(s) >> 11) + 0.5) * 0x1p-53; }
static double normal(uint64_t *s)
{
	double u = uniform(s);
	return sqrt(-2 * log(u)) * cos(2 * 3.14159265358979323846 * uniform(s));
}

int64_t op_nseqs(int64_t T) { return T >= 6 ? 3 : T > 0; }
static int64_t seq_start(int64_t T, int64_t s)
{
	const int64_t at[] = {0, T * 5 / 12, T / 2, T};
	return s >= op_nseqs(T) ? T : at[s];
}
static int64_t seq_of(int64_t T, int64_t t)
{
	int64_t s = 0;
	while (s + 1 < op_nseqs(T) && t >= seq_start(T, s + 1))
		s++;
	return s;
}

static int64_t vocab_of(const tt_graph *g)
{
	for (tt_v v = 1; v < g->nvalues; v++)
		for (int d = 0; d < g->values[v].ndim; d++)
			if (g->values[v].dim[d].role == TT_VOCAB)
				return g->values[v].dim[d].n;
	return 12;
}

static double filled(tt_fill f, int64_t i, int64_t T, int64_t vocab, uint64_t *s)
{
	static const double hyper[] = {1e-2, 0.19, 0.0975, 0}; /* lr, 1 - 0.9^2, 1 - 0.95^2, do not skip */
	switch (f) {
	case TT_FILL_NORMAL: return normal(s);
	case TT_FILL_POSITIVE: return 0.5 + 1.5 * uniform(s);
	case TT_FILL_IDS: return (double)(next(s) % (uint64_t)vocab);
	case TT_FILL_LABELS: return next(s) % 4 == 0 || i == 1 ? -100 : (double)(next(s) % (uint64_t)vocab);
	case TT_FILL_POSITIONS: return (double)(i - seq_start(T, seq_of(T, i)));
	case TT_FILL_SEQ_IDS: return (double)seq_of(T, i);
	case TT_FILL_SEQ_TABLE: return (double)seq_start(T, i);
	case TT_FILL_LINES: return (double)i;
	case TT_FILL_ONE_STEP: return hyper[i % 4];
	}
	return 0;
}

/* Extents of `v` with T tokens in a cell. */
static tt_value shrunk(const tt_value *v, int64_t T)
{
	tt_value x = *v;
	for (int d = 0; d < v->ndim; d++)
		if (v->dim[d].role == TT_TOKENS && T >= 0)
			x.dim[d].n = TT_MAX((int64_t)0, TT_MIN(T - v->dim[d].base, v->dim[d].n));
	return x;
}

static int64_t planned_tokens(const tt_graph *g)
{
	int64_t T = 0;
	for (tt_v v = 1; v < g->nvalues; v++)
		for (int d = 0; d < g->values[v].ndim; d++)
			if (g->values[v].dim[d].role == TT_TOKENS)
				T = TT_MAX(T, g->values[v].dim[d].base + g->values[v].dim[d].n);
	return T;
}

op_tensor **op_inputs(tt_arena *a, const tt_graph *g, const op_env *e, int64_t T, uint64_t seed)
{
	op_tensor **out = TT_NEWN(a, op_tensor *, g->nvalues);
	if (T < 0)
		T = planned_tokens(g);
	for (tt_v v = 1; v < g->nvalues; v++) {
		const tt_value *x = &g->values[v];
		if (x->kind == TT_TEMP)
			continue;
		tt_value type = shrunk(x, T);
		if (x->fill == TT_FILL_SEQ_TABLE)
			type.dim[0].n = op_nseqs(T) + 1;
		out[v] = op_tensor_new(a, &type, e);
		uint64_t s = tt_hash64(x->name, strlen(x->name), seed);
		for (int64_t i = 0; i < out[v]->count; i++)
			op_set(out[v], i, filled(x->fill, i, T, vocab_of(g), &s));
	}
	return out;
}

tt_graph *op_sample(tt_arena *a, const tt_op *op, int which, bool f64)
{
	tt_graph *g = tt_graph_new(a, &(tt_mesh){0}, f64);
	return op->sample && op->sample(g, which) ? g : NULL;
}

/* ---- through the executor -------------------------------------------------------------------------------------------------- */

static tt_status run_exec(tt_exec *e, tt_arena *a, tt_graph *g, const op_env *env, int64_t T, op_tensor **v)
{
	TT_TRY(tt_exec_add_graph(e, g));
	TT_TRY(tt_exec_plan(e));
	TT_TRY(tt_exec_reserve(e));
	for (tt_v i = 1; i < g->nvalues; i++)
		if (g->values[i].kind != TT_TEMP)
			TT_TRY(tt_exec_write(e, g->values[i].name, 0, v[i]->bytes, v[i]->count));
	tt_cell cell = {.T = T, .nseqs = op_nseqs(T), .first = env->first, .step = 1};
	TT_TRY(tt_exec_run(e, TT_SEG_F, &cell));
	for (int64_t n = 0; n < g->nnodes; n++)
		for (int k = 0; k < g->nodes[n].nout; k++) {
			tt_v o = g->nodes[n].out[k];
			tt_value type = shrunk(&g->values[o], T);
			v[o] = op_tensor_new(a, &type, env);
			TT_TRY(tt_exec_read(e, g->values[o].name, 0, v[o]->bytes, v[o]->count));
		}
	return TT_OK;
}

tt_status op_exec(tt_arena *a, tt_graph *g, const op_env *env, int64_t T, op_tensor **v)
{
	if (!g->noutputs)
		for (int64_t n = 0; n < g->nnodes; n++)
			for (int k = 0; k < g->nodes[n].nout; k++)
				tt_graph_output(g, g->nodes[n].out[k]);
	tt_exec_options o = {.numerics = env->numerics, .f64 = env->f64, .isa = env->isa, .kernels_ref = !env->kernels_fast,
		.threads = env->threads, .seed = env->seed, .fill_nan = true, .protect = true, .no_alias = env->no_alias};
	tt_exec *e = NULL;
	TT_TRY(tt_exec_create(&o, &e));
	tt_status s = run_exec(e, a, g, env, T < 0 ? planned_tokens(g) : T, v);
	tt_exec_destroy(e);
	return s;
}

/* ---- one kernel between guard pages ------------------------------------------------------------------------------------------- */

enum { PAGE = 4096, PLANE_ALIGN = 64 };

/* `bytes` that end where a page without access begins; what is mapped before them is red. All is filled with `fill`. */
typedef struct guard { uint8_t *map, *p; int64_t inside, bytes; uint8_t fill; } guard;

static guard guard_open(int64_t bytes, uint8_t fill)
{
	guard g = {.bytes = bytes, .fill = fill};
	g.inside = tt_round_up(bytes + PLANE_ALIGN, PAGE);
	g.map = mmap(NULL, (size_t)(g.inside + 2 * PAGE), PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	TT_ASSERT(g.map != MAP_FAILED && !mprotect(g.map + PAGE, (size_t)g.inside, PROT_READ | PROT_WRITE));
	memset(g.map + PAGE, fill, (size_t)g.inside);
	g.p = g.map + PAGE + g.inside - bytes;
	return g;
}

static void guard_close(guard *g)
{
	if (g->map)
		munmap(g->map, (size_t)(g->inside + 2 * PAGE));
	g->map = NULL;
}

static bool is_full_of(const uint8_t *p, int64_t n, uint8_t fill)
{
	for (int64_t i = 0; i < n; i++)
		if (p[i] != fill)
			return false;
	return true;
}

/* An operand as a kernel sees it. Planes of limbs are 64-byte multiples apart; the last ends at the page. */
typedef struct operand { guard g; tt_arg arg; op_tensor *x; } operand;

static operand operand_open(op_tensor *x, bool input, uint8_t garbage)
{
	int64_t plane = x->count * x->esize, step = x->planes > 1 ? tt_round_up(plane, PLANE_ALIGN) : plane;
	operand o = {.g = guard_open((x->planes - 1) * step + plane, garbage), .x = x};
	o.arg = (tt_arg){.p = o.g.p, .dtype = x->val.dtype, .format = x->val.format, .ndim = x->val.ndim, .ld = 1};
	o.arg.plane = x->planes > 1 ? step : 0;
	for (int d = 0; d < x->val.ndim; d++) {
		o.arg.n[d] = x->val.dim[d].n;
		o.arg.ld *= d ? x->val.dim[d].n : 1;
	}
	for (int j = 0; input && j < x->planes; j++)
		memcpy(o.g.p + j * step, (const char *)x->bytes + j * plane, (size_t)plane);
	return o;
}

/* What lies before and between the planes has kept its garbage; an input its content, an output's is taken. */
static tt_status operand_close(operand *o, bool input, const tt_op *op, int i)
{
	const op_tensor *x = o->x;
	int64_t plane = x->count * x->esize, step = TT_MAX(o->arg.plane, plane);
	bool red = is_full_of(o->g.map + PAGE, o->g.inside - o->g.bytes, o->g.fill), kept = true;
	for (int j = 0; j < x->planes; j++) {
		char *mine = (char *)x->bytes + j * plane;
		red = red && (j + 1 == x->planes || is_full_of(o->g.p + j * step + plane, step - plane, o->g.fill));
		if (input)
			kept = kept && !memcmp(o->g.p + j * step, mine, (size_t)plane);
		else
			memcpy(mine, o->g.p + j * step, (size_t)plane);
	}
	guard_close(&o->g);
	if (!red)
		TT_FAIL(TT_ERR_TYPE, "%s: wrote beside its %s %d", op->name, input ? "input" : "output", i);
	if (!kept)
		TT_FAIL(TT_ERR_TYPE, "%s: wrote its input %d", op->name, i);
	return TT_OK;
}

static tt_status kernel_of(const tt_op *op, const op_env *e, tt_kernel_fn **out)
{
	const tt_kernel *k = tt_kernel_ref(op->name, e->isa, e->f64);
	*out = k ? (e->numerics == TT_EXACT && !e->f64 && k->exact ? k->exact : k->run) : op->kernel;
	if (!*out)
		TT_FAIL(TT_ERR_TYPE, "%s: no reference kernel", op->name);
	return TT_OK;
}

static tt_status run_kernel(tt_kernel_fn *run, const tt_op *op, const void *attr, int nin, op_tensor *const *in, int nout,
	op_tensor **out, const op_env *e, tt_pool *pool)
{
	operand io[80];
	tt_arg args[80] = {0};
	const tt_value *types[80] = {0};
	TT_ASSERT(nin + nout <= TT_COUNT(io), "%s: %d operands", op->name, nin + nout);
	bool on[80] = {0}; /* input i has output i on it */
	for (int i = 0; i < nin + nout; i++) {
		op_tensor *x = i < nin ? in[i] : out[i - nin];
		if (!x)
			continue;
		int k = i - nin;
		if (k >= 0 && k < nin && e->in_place && (op->flags & TT_OP_INPLACE) && in[k] && in[k]->val.dtype == x->val.dtype && in[k]->count == x->count) {
			on[k] = true;
			io[i] = io[k];
			io[i].x = x;
		} else {
			io[i] = operand_open(x, i < nin, e->garbage);
		}
		args[i] = io[i].arg;
		types[i] = &x->val;
	}
	_Atomic int flag = 0;
	tt_env env = {.pool = pool, .threads = TT_MAX(e->threads, 1), .numerics = e->numerics, .f64 = e->f64, .first = e->first, .step = 1,
		.seed = e->seed};
	size_t need = op->scratch ? op->scratch(attr, nin, types, nout, types + nin, &env) : 0;
	need = (size_t)tt_round_up((int64_t)need, PLANE_ALIGN); /* aligned at its start, so its end may be short of the page */
	guard scratch = guard_open((int64_t)need, e->garbage);
	tt_call c = {.in = args, .out = args + nin, .nin = nin, .nout = nout, .attr = attr, .scratch = scratch.p, .env = &env, .flag = &flag};
	run(&c);
	bool red = is_full_of(scratch.map + PAGE, scratch.inside - scratch.bytes, scratch.fill);
	guard_close(&scratch);
	tt_status bad = TT_OK;
	for (int i = 0; i < nin + nout; i++) {
		if (!types[i] || (i < nin && on[i]))
			continue;
		tt_status s = operand_close(&io[i], i < nin, op, i < nin ? i : i - nin);
		bad = bad == TT_OK ? s : bad;
	}
	TT_TRY(bad);
	if (!red)
		TT_FAIL(TT_ERR_TYPE, "%s: wrote before its scratch", op->name);
	if (atomic_load(&flag))
		TT_FAIL(TT_ERR_NUMERIC, "%s: operands outside of what exact can sum", op->name);
	return TT_OK;
}

static tt_status call(tt_arena *a, const tt_op *op, const void *attr, int nin, op_tensor *const *in, int nout, const op_env *e, tt_pool *pool,
	op_tensor **out)
{
	/* a graph of this one node says what its outputs are */
	tt_graph *g = tt_graph_new(a, &(tt_mesh){0}, e->f64);
	tt_v v[80] = {0};
	TT_ASSERT(nin <= TT_COUNT(v), "%s: %d inputs", op->name, nin);
	for (int i = 0; i < nin; i++) {
		if (!in[i])
			continue;
		char name[16];
		snprintf(name, sizeof name, "in%d", i);
		v[i] = tt_input(g, name, in[i]->val.dtype, in[i]->val.gdtype, in[i]->val.ndim, in[i]->val.dim);
		g->values[v[i]].format = in[i]->val.format;
	}
	tt_v first = tt_node_add_n(g, op, attr, nin, v, nout, NULL);
	TT_TRY(tt_graph_check(g));
	for (int i = 0; i < nout; i++)
		out[i] = op_tensor_new(a, &g->values[first + i], e);
	tt_kernel_fn *run = NULL;
	TT_TRY(kernel_of(op, e, &run));
	return run_kernel(run, op, attr, nin, in, nout, out, e, pool);
}

tt_status op_call(tt_arena *a, const tt_op *op, const void *attr, int nin, op_tensor *const *in, int nout, const op_env *e, op_tensor **out)
{
	tt_pool *pool = NULL;
	if (e->threads > 1)
		TT_TRY(tt_pool_create(e->threads, 0, &pool));
	tt_status s = call(a, op, attr, nin, in, nout, e, pool, out);
	tt_pool_destroy(pool);
	return s;
}

/* Moves, which no kernel does: views, joins, conversions on one rank. */
static void run_move(tt_arena *a, const tt_graph *g, const tt_node *n, op_tensor **v)
{
	if (n->op->flags & TT_OP_JOIN) {
		const op_tensor **parts = TT_NEWN(a, const op_tensor *, n->nin);
		for (int i = 0; i < n->nin; i++)
			parts[i] = v[n->in[i]];
		v[n->out[0]] = op_concat(a, n->nin, parts, 0);
		v[n->out[0]]->val.dim[0].base = 0;
		return;
	}
	const op_tensor *x = v[n->in[0]];
	for (int i = 0; i < n->nout; i++) {
		const tt_value *o = &g->values[n->out[i]];
		if (n->nout == 1 && o->dim[0].base == x->val.dim[0].base) {
			v[n->out[i]] = op_copy(a, x);
			continue;
		}
		int64_t T = x->val.dim[0].n, first = TT_MIN(o->dim[0].base, T);
		v[n->out[i]] = op_slice(a, x, 0, first, TT_MIN(o->dim[0].n, T - first));
		v[n->out[i]]->val.dim[0].base = o->dim[0].base;
	}
}

static tt_status run_nodes(tt_arena *a, const tt_graph *g, const op_env *e, tt_pool *pool, op_tensor **v)
{
	for (int64_t k = 0; k < g->nnodes; k++) {
		const tt_node *n = &g->nodes[k];
		if (n->op->cls == TT_CLASS_MOVE) {
			run_move(a, g, n, v);
			continue;
		}
		op_tensor *in[80] = {0}, *out[80] = {0};
		for (int i = 0; i < n->nin; i++)
			in[i] = n->in[i] ? v[n->in[i]] : NULL;
		TT_TRY(call(a, n->op, n->attr, n->nin, in, n->nout, e, pool, out));
		for (int i = 0; i < n->nout; i++)
			v[n->out[i]] = out[i];
	}
	return TT_OK;
}

tt_status op_direct(tt_arena *a, const tt_graph *g, const op_env *e, op_tensor **v)
{
	TT_TRY(tt_graph_check(g));
	tt_pool *pool = NULL;
	if (e->threads > 1)
		TT_TRY(tt_pool_create(e->threads, 0, &pool));
	tt_status s = run_nodes(a, g, e, pool, v);
	tt_pool_destroy(pool);
	return s;
}

void *op_attr_copy(tt_arena *a, const tt_op *op, const void *attr)
{
	if (!op->attr_size || !attr)
		return NULL;
	void *c = tt_arena_alloc(a, op->attr_size);
	memcpy(c, attr, op->attr_size);
	return c;
}

void *op_attr_at(const tt_op *op, void *attr, const char *name)
{
	for (const tt_attr *f = op->attrs; attr && f && f->name; f++)
		if (!strcmp(f->name, name))
			return (char *)attr + f->offset;
	return NULL;
}
