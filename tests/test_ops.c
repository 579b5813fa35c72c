/* ops: what every op of the table owes, whatever it computes. Complete entries, gradients that finite differences confirm,
 * precisions that agree, kernel sets, threads and executor that agree bit for bit, and operands touched only where they are.
 *
 * Each kind of check is a function of an op, so that a broken op made here proves that it can fail.
 */
#include <math.h>
#include <signal.h>
#include <stdio.h>

#include "op_run.h"

enum { MAX_SAMPLES = 8 };

/* ---- complete entries -------------------------------------------------------------------------------------------------- */

static size_t attr_bytes(tt_attr_kind k)
{
	switch (k) {
	case TT_ATTR_INT: return sizeof(int64_t);
	case TT_ATTR_BOOL: return sizeof(bool);
	case TT_ATTR_REAL: return sizeof(double);
	case TT_ATTR_DTYPE: return sizeof(tt_dtype);
	case TT_ATTR_INTS: return sizeof(tt_ints);
	case TT_ATTR_REALS: return sizeof(tt_reals);
	case TT_ATTR_STR: return sizeof(const char *);
	}
	return 0;
}

static void missing_attrs(const tt_op *op, tt_buf *b)
{
	if ((op->attr_size != 0) != (op->attrs && op->attrs[0].name))
		tt_buf_str(b, " attrs");
	for (const tt_attr *f = op->attrs; f && f->name; f++) {
		if (f->offset + attr_bytes(f->kind) > op->attr_size)
			tt_buf_printf(b, " attr_size(%s)", f->name);
		for (const tt_attr *h = op->attrs; h != f; h++)
			if (!strcmp(h->name, f->name) || h->offset == f->offset)
				tt_buf_printf(b, " attr(%s twice)", f->name);
	}
}

static void missing_kernels(const tt_op *op, tt_buf *b)
{
	if (op->cls == TT_CLASS_MOVE || op->kernel)
		return;
	const tt_isa have = tt_isa_detect();
	for (tt_isa isa = TT_ISA_REF; isa <= have; isa++) {
		const tt_kernel *k = tt_kernel_ref(op->name, isa, false);
		if (!k || !k->run)
			tt_buf_printf(b, " kernel(%s)", tt_isa_name(isa));
		else if ((op->flags & TT_OP_ACC_SUM) && !k->exact)
			tt_buf_printf(b, " exact(%s)", tt_isa_name(isa));
	}
	if (!tt_kernel_ref(op->name, TT_ISA_REF, true))
		tt_buf_str(b, " kernel(f64)");
}

/* The node of the sample that is there for `op`: the last of its name. */
static const tt_node *node_of(const tt_graph *g, const tt_op *op)
{
	for (int64_t i = g->nnodes - 1; i >= 0; i--)
		if (!strcmp(g->nodes[i].op->name, op->name))
			return &g->nodes[i];
	return NULL;
}

static void missing_samples(tt_arena *a, const tt_op *op, tt_buf *b)
{
	if (!op->sample) {
		tt_buf_str(b, " sample");
		return;
	}
	for (int which = 0; which < MAX_SAMPLES; which++) {
		tt_graph *g = op_sample(a, op, which, false);
		if (!g && which)
			return;
		if (!g || tt_graph_verify(g, "sample") != TT_OK) {
			tt_buf_printf(b, " sample(%d: %s)", which, g ? tt_error_text() : "there is none");
			return;
		}
		const tt_node *n = node_of(g, op);
		if (!n)
			tt_buf_printf(b, " sample(%d has no %s)", which, op->name);
		bool grad = false;
		for (int i = 0; n && i < n->nin; i++)
			grad |= n->in[i] && g->values[n->in[i]].gdtype != TT_NODTYPE;
		if (op->cls == TT_CLASS_FORWARD && !grad)
			tt_buf_printf(b, " sample(%d: nothing to differentiate)", which);
	}
	tt_buf_printf(b, " sample(more than %d)", MAX_SAMPLES - 1);
}

/* What the entry lacks, by member; empty if nothing. */
static const char *missing(tt_arena *a, const tt_op *op)
{
	tt_buf b = {0};
	if (!op->name || !op->name[0])
		return "name";
	if (!op->doc || strlen(op->doc) < 10)
		tt_buf_str(&b, " doc");
	if (!op->nout || !op->outs || !op->outs[0])
		tt_buf_str(&b, " outs");
	if (!op->infer)
		tt_buf_str(&b, " infer");
	if (!op->labels && !(op->infer && op->spmd))
		tt_buf_str(&b, " labels");
	bool differentiated = op->cls == TT_CLASS_FORWARD || op->cls == TT_CLASS_MOVE;
	if (differentiated != (op->vjp != NULL) && op->cls != TT_CLASS_STATE)
		tt_buf_str(&b, " vjp");
	missing_attrs(op, &b);
	missing_kernels(op, &b);
	missing_samples(a, op, &b);
	const char *out = b.s ? tt_arena_strdup(a, b.s) : "";
	tt_buf_fini(&b);
	return out;
}

static void complete(tt_test *t)
{
	int n = 0;
	for (const tt_op *const *op = tt_ops; *op; op++, n++) {
		TT_CHECK_STR(t, missing(t->arena, *op), "");
		TT_CHECK_MSG(t, tt_op_find((*op)->name) == *op, "%s: two ops of this name", (*op)->name);
	}
	TT_CHECK(t, n > 30);
}

static void complete_can_fail(tt_test *t)
{
	tt_op o = tt_op_linear;
	TT_CHECK_STR(t, missing(t->arena, &o), "");
#define WITHOUT(member, text)                                                                                          \
	do {                                                                                                           \
		o = tt_op_linear;                                                                                      \
		o.member = 0;                                                                                          \
		TT_CHECK_MSG(t, strstr(missing(t->arena, &o), text), #member " is not missed: %s", missing(t->arena, &o)); \
	} while (0)
	WITHOUT(doc, "doc");
	WITHOUT(outs, "outs");
	WITHOUT(vjp, "vjp");
	WITHOUT(attrs, "attrs");
	WITHOUT(attr_size, "attr");
	WITHOUT(sample, "sample");
	WITHOUT(infer, "infer");
	o = tt_op_attention;
	o.spmd = NULL;
	TT_CHECK(t, strstr(missing(t->arena, &o), "labels"));
	o = tt_op_linear;
	o.name = "no_such_kernel";
	TT_CHECK(t, strstr(missing(t->arena, &o), "kernel(f64)") && strstr(missing(t->arena, &o), "sample(0 has no"));
	o = tt_op_add; /* add keeps acc, it does not sum: its entry in the kernel sets would do, an op without one would not */
	o.name = "nll";
	o.flags = TT_OP_ACC_SUM;
	TT_CHECK(t, strstr(missing(t->arena, &o), "exact(ref)"));
}

/* ---- the reverse of a sample ----------------------------------------------------------------------------------------------- */

typedef void vjp_fn(tt_vjp *v);

/* Cotangent inputs "cot.NAME" for the last node's outputs, then vjps backwards. cot[v] cotangent of value v. `instead` replaces the vjp
 * of `op`. */
static void reverse(tt_graph *g, const tt_op *op, vjp_fn *instead, tt_v *cot, int64_t cap)
{
	int64_t last = g->nnodes - 1;
	for (int k = 0; k < g->nodes[last].nout; k++) {
		tt_v o = g->nodes[last].out[k];
		tt_value x = g->values[o];
		if (x.gdtype != TT_NODTYPE)
			cot[o] = tt_input(g, tt_arena_printf(g->arena, "cot.%s", x.name), x.gdtype, TT_NODTYPE, x.ndim, x.dim);
	}
	for (int64_t i = last; i >= 0; i--) {
		tt_node n = g->nodes[i];
		tt_v dout[80] = {0}, din[80] = {0};
		bool any = false;
		for (int k = 0; k < n.nout; k++)
			any |= (dout[k] = cot[n.out[k]]) != 0;
		if (!any)
			continue;
		tt_vjp v = {.g = g, .node = &n, .dout = dout, .din = din};
		(n.op == op && instead ? instead : n.op->vjp)(&v);
		for (int k = 0; k < n.nin; k++) {
			if (!n.in[k] || !din[k] || g->values[n.in[k]].gdtype == TT_NODTYPE)
				continue;
			TT_ASSERT(n.in[k] < cap);
			tt_v d = din[k];
			if (g->values[d].dtype == TT_ACC && g->values[n.in[k]].gdtype != TT_ACC && g->values[n.in[k]].kind == TT_TEMP)
				d = tt_round(g, d, g->values[n.in[k]].gdtype, NULL);
			cot[n.in[k]] = cot[n.in[k]] ? tt_add(g, cot[n.in[k]], d, NULL) : d;
		}
	}
}

/* ---- a graph of larger shapes: a block and the loss, with its reverse ------------------------------------------------------------ */

/* T tokens, model width D; widths that are no multiple of vectors, tiles or panels. Every op of forward and backward is in it. `packed`:
 * weights go through `pack`, so D must be even in bf16. */
static tt_graph *large(tt_arena *a, tt_dtype dt, bool packed, int64_t T, int64_t D)
{
	tt_graph *g = tt_graph_new(a, &(tt_mesh){0}, dt == TT_F64);
	tt_dim d = tt_dim_of(TT_D, D, 1), f = tt_dim_of(TT_FFN, 150, 2), v = tt_dim_of(TT_VOCAB, 90, 1);
	tt_dim h = tt_dim_of(TT_HEADS, 60, 10), k = tt_dim_of(TT_KV_HEADS, 30, 10);
	h.group = 2;
#define INPUT(name, ...)                                                                                               \
	({                                                                                                             \
		tt_dim dims_[] = {__VA_ARGS__};                                                                        \
		tt_input(g, name, dt, dt, TT_COUNT(dims_), dims_);                                                     \
	})
#define IDS(name, n, how)                                                                                              \
	({                                                                                                             \
		tt_dim dim_ = how == TT_FILL_SEQ_TABLE ? tt_dim_of(TT_SEQS, n, 1) : tt_dim_of(TT_TOKENS, n, 1);        \
		tt_v ids_ = tt_input(g, name, TT_I32, TT_NODTYPE, 1, &dim_);                                           \
		tt_value_set_fill(g, ids_, how);                                                                       \
		ids_;                                                                                                  \
	})
#define WEIGHT(name, o, i)                                                                                             \
	({                                                                                                             \
		tt_v w_ = INPUT(name, o, i);                                                                           \
		packed ? tt_pack(g, w_, dt, TT_PACK_FWD, name ".fwd") : w_;                                            \
	})
	tt_seqs s = {IDS("positions", T, TT_FILL_POSITIONS), IDS("seq_ids", T, TT_FILL_SEQ_IDS), IDS("seq_table", T + 1, TT_FILL_SEQ_TABLE),
		IDS("lines", T, TT_FILL_LINES)};
	tt_v x = tt_embedding(g, IDS("ids", T, TT_FILL_IDS), INPUT("embed", v, d), "x");
	tt_v n = tt_rms_norm(g, x, INPUT("norm", d), 1e-5, "n");
	const double freq[] = {1, 0.5, 0.25, 0.125, 0.0625};
	tt_v table = tt_rope_table(g, s.positions, freq, 5, 1.5);
	tt_v q = tt_rope(g, tt_linear(g, n, WEIGHT("wq", h, d), INPUT("bq", h), "q"), table, 10, "q.r");
	tt_v key = tt_rope(g, tt_linear(g, n, WEIGHT("wk", k, d), 0, "k"), table, 10, "k.r");
	tt_attr_attention at = {.head_dim = 10, .v_head_dim = 10, .group = 2, .scale = 0.05, .window = 100};
	tt_v o = tt_attention(g, q, key, tt_linear(g, n, WEIGHT("wv", k, d), 0, "v"), &s, &at, "o");
	tt_v y = tt_add(g, x, tt_linear(g, o, WEIGHT("wo", d, h), INPUT("bo", d), "wo.y"), "y");
	tt_v m = tt_rms_norm(g, y, INPUT("norm2", d), 1e-5, "m");
	tt_v up = tt_silu_mul(g, tt_linear(g, m, WEIGHT("w1", f, d), 0, "w1.y"), tt_linear(g, m, WEIGHT("w3", f, d), 0, "w3.y"), "act");
	tt_v z = tt_add(g, y, tt_linear(g, up, WEIGHT("w2", d, f), 0, "w2.y"), "z");
	tt_v logits = tt_linear_stat(g, z, WEIGHT("head", v, d), "logits");
	tt_total(g, tt_token_loss(g, logits, IDS("labels", T, TT_FILL_LABELS)), "loss");
	return g;
}

static void large_reverse(tt_arena *a, tt_graph *g)
{
	tt_v *cot = TT_NEWN(a, tt_v, g->nvalues);
	reverse(g, NULL, NULL, cot, g->nvalues);
}

/* Weights of a size that keeps activations near 1: else exp of logits shows what rounding did far above. */
static void tame(const tt_graph *g, op_tensor **v)
{
	for (tt_v x = 1; x < g->nvalues; x++) {
		const tt_value *w = &g->values[x];
		for (int64_t i = 0; w->kind == TT_INPUT && w->ndim == 2 && w->dim[0].role != TT_TOKENS && i < v[x]->count; i++)
			op_set(v[x], i, op_get(v[x], i) / sqrt((double)w->dim[1].n));
	}
}

/* What kernels are compared on: all samples of all ops, then the large graph in f32 (or f64) and in bf16. */
typedef struct op_case { const tt_op *op; int which; tt_dtype large; const char *name; } op_case;

static op_case *all_cases(tt_arena *a, bool f64, int *n)
{
	op_case *out = NULL;
	int64_t count = 0, cap = 0;
	for (const tt_op *const *op = tt_ops; *op; op++)
		for (int which = 0; op_sample(a, *op, which, f64); which++) {
			op_case c = {*op, which, TT_NODTYPE, tt_arena_printf(a, "%s, sample %d", (*op)->name, which)};
			TT_PUSH(a, out, count, cap, c);
		}
	const op_case large[] = {{NULL, 0, f64 ? TT_F64 : TT_F32, "large"}, {NULL, 0, TT_BF16, "large, bf16"}};
	for (int i = 0; i < (f64 ? 1 : 2); i++)
		TT_PUSH(a, out, count, cap, large[i]);
	*n = (int)count;
	return out;
}

static tt_graph *case_graph(tt_arena *a, const op_case *c, bool f64)
{
	if (c->op)
		return op_sample(a, c->op, c->which, f64);
	tt_graph *g = large(a, f64 ? TT_F64 : c->large, false, 300, 71);
	large_reverse(a, g);
	return g;
}

/* ---- gradients against finite differences ------------------------------------------------------------------------------------- */

/* Sum over the cotangents' values of cotangent * value, in the forward part `f` of graph `g`. */
static double objective(const tt_graph *f, op_tensor *const *at, const tt_v *cot, op_tensor *const *with)
{
	double sum = 0;
	const tt_node *last = &f->nodes[f->nnodes - 1];
	for (int k = 0; k < last->nout; k++) {
		tt_v o = last->out[k];
		if (!cot[o])
			continue;
		for (int64_t i = 0; i < at[o]->count; i++)
			sum += op_get(at[o], i) * op_get(with[cot[o]], i);
	}
	return sum;
}

static double random_unit(uint64_t *s)
{
	*s = tt_hash64(s, sizeof *s, 1);
	return (double)(int64_t)*s * 0x1p-63;
}

/* Relative error of the gradient of input x along a random direction. */
static tt_status direction_error(tt_arena *a, const tt_graph *f, const op_env *e, op_tensor **v, tt_v x, const tt_v *cot, uint64_t seed, double *out)
{
	const double h = 1e-5;
	op_tensor *at = v[x], **moved = TT_NEWN(a, op_tensor *, f->nvalues), *sides[2] = {op_copy(a, at), op_copy(a, at)};
	double along = 0, size = 0, value[2];
	for (int64_t i = 0; i < at->count; i++) {
		double r = random_unit(&seed), d = cot[x] ? op_get(v[cot[x]], i) : 0;
		along += r * d;
		size += r * r * d * d;
		op_set(sides[0], i, op_get(at, i) + h * r);
		op_set(sides[1], i, op_get(at, i) - h * r);
	}
	for (int k = 0; k < 2; k++) {
		memcpy(moved, v, sizeof *moved * (size_t)f->nvalues);
		moved[x] = sides[k];
		TT_TRY(op_direct(a, f, e, moved));
		value[k] = objective(f, moved, cot, v);
	}
	double measured = (value[0] - value[1]) / (2 * h);
	*out = fabs(measured - along) / TT_MAX(sqrt(size) + fabs(along), 1e-3 * fabs(measured) + 1e-9);
	return TT_OK;
}

/* The largest error over the differentiable inputs of `f`; `g` is the same graph, to which its reverse is added. */
static tt_status gradient_error(tt_arena *a, const tt_graph *f, tt_graph *g, const tt_op *op, vjp_fn *instead, uint64_t seed, double *out)
{
	const op_env e = {.f64 = true, .garbage = 0xff};
	tt_v *cot = TT_NEWN(a, tt_v, f->nvalues);
	reverse(g, op, instead, cot, f->nvalues);
	TT_TRY(tt_graph_verify(g, "reverse"));
	op_tensor **v = op_inputs(a, g, &e, -1, seed);
	tame(g, v);
	TT_TRY(op_direct(a, g, &e, v));
	*out = 0;
	for (tt_v x = 1; x < f->nvalues; x++) {
		if (f->values[x].kind != TT_INPUT || f->values[x].gdtype == TT_NODTYPE)
			continue;
		if (cot[x] && (v[cot[x]]->count != v[x]->count || g->values[cot[x]].ndim != g->values[x].ndim))
			TT_FAIL(TT_ERR_TYPE, "the gradient of %s has another shape", f->values[x].name);
		for (uint64_t k = 0; k < 3; k++) {
			double error;
			TT_TRY(direction_error(a, f, &e, v, x, cot, seed + 100 * k, &error));
			*out = isnan(error) ? INFINITY : TT_MAX(*out, error);
		}
	}
	return TT_OK;
}

/* The same of a sample; -1: there is no such sample. */
static tt_status sample_error(tt_test *t, const tt_op *op, int which, vjp_fn *instead, double *out)
{
	tt_graph *f = op_sample(t->arena, op, which, true), *g = op_sample(t->arena, op, which, true);
	*out = -1;
	return f ? gradient_error(t->arena, f, g, op, instead, t->seed + (uint64_t)which, out) : TT_OK;
}

static void gradients(tt_test *t)
{
	int checked = 0;
	for (const tt_op *const *op = tt_ops; *op; op++) {
		for (int which = 0; (*op)->vjp && which < MAX_SAMPLES; which++) {
			double error;
			if (!TT_CHECK_OK(t, sample_error(t, *op, which, NULL, &error)) || (error < 0 && which))
				break;
			bool packed = *op == &tt_op_pack || *op == &tt_op_pack_pair; /* no double packs; its vjp is the identity, as cast's */
			if (error < 0 && packed)
				break;
			TT_CHECK_MSG(t, error >= 0 && error < 1e-6, "%s, sample %d: finite differences differ by %.2g", (*op)->name, which, error);
			checked++;
		}
	}
	TT_CHECK(t, checked >= 15);
}

/* The whole block: attention over several blocks of keys, both uses of a value, everything in one chain. */
static void gradients_large(tt_test *t)
{
	double error;
	tt_graph *f = large(t->arena, TT_F64, false, 140, 19), *g = large(t->arena, TT_F64, false, 140, 19);
	if (TT_CHECK_OK(t, gradient_error(t->arena, f, g, NULL, NULL, t->seed, &error)))
		TT_CHECK_MSG(t, error < 1e-6, "finite differences differ by %.2g", error);
}

static void vjp_swapped(tt_vjp *v)
{
	tt_op_silu_mul.vjp(v);
	tt_v d = v->din[0];
	v->din[0] = v->din[1];
	v->din[1] = d;
}
static void vjp_forgetful(tt_vjp *v)
{
	tt_op_linear.vjp(v);
	v->din[2] = 0;
}
/* The gradient of rms_norm without the part that goes through rstd. */
static void vjp_partial(tt_vjp *v)
{
	tt_op_rms_norm.vjp(v);
	v->din[0] = v->dout[0];
}

static void gradients_can_fail(tt_test *t)
{
	double error;
	TT_CHECK_OK(t, sample_error(t, &tt_op_silu_mul, 0, vjp_swapped, &error));
	TT_CHECK(t, error > 1e-3);
	TT_CHECK_OK(t, sample_error(t, &tt_op_linear, 2, vjp_forgetful, &error));
	TT_CHECK(t, error > 1e-3);
	TT_CHECK_OK(t, sample_error(t, &tt_op_rms_norm, 0, vjp_partial, &error));
	TT_CHECK(t, error > 1e-3);
}

/* ---- precisions ------------------------------------------------------------------------------------------------------------------ */

/* Contents of graph `to` (double) from those of the same graph in another precision. */
static op_tensor **in_double(tt_arena *a, const tt_graph *from, op_tensor *const *v, const tt_graph *to)
{
	const op_env e = {.f64 = true};
	op_tensor **out = TT_NEWN(a, op_tensor *, to->nvalues);
	for (tt_v x = 1; x < to->nvalues; x++) {
		if (to->values[x].kind == TT_TEMP)
			continue;
		out[x] = op_convert(a, v[tt_value_find(from, to->values[x].name)], to->values[x].dtype, &e);
	}
	return out;
}

/* The value that differs most from its double twin. */
static tt_status double_distance(tt_arena *a, const tt_graph *g, const tt_graph *g64, const op_env *e, uint64_t seed, double *out, const char **where)
{
	const op_env e64 = {.f64 = true, .first = e->first, .seed = e->seed};
	op_tensor **v = op_inputs(a, g, e, -1, seed);
	tame(g, v);
	op_tensor **v64 = in_double(a, g, v, g64);
	TT_TRY(op_direct(a, g, e, v));
	TT_TRY(op_direct(a, g64, &e64, v64));
	*out = 0;
	for (int64_t i = 0; i < g64->nnodes; i++)
		for (int k = 0; k < g64->nodes[i].nout; k++) {
			tt_v x64 = g64->nodes[i].out[k], x = tt_value_find(g, g64->values[x64].name);
			double d = op_distance(v[x], v64[x64]);
			if (d <= *out)
				continue;
			*out = isnan(d) ? INFINITY : d;
			*where = g->values[x].name;
		}
	return TT_OK;
}

static void precisions(tt_test *t)
{
	int n;
	const op_case *c = all_cases(t->arena, false, &n);
	for (int exact = 0; exact < 2; exact++)
		for (int i = 0; i < n; i++) {
			if (c[i].op == &tt_op_pack || c[i].op == &tt_op_pack_pair || c[i].large == TT_BF16)
				continue; /* no double packs; bf16 is the next case's */
			tt_arena *a = tt_arena_create("precisions");
			const op_env e = {.numerics = exact ? TT_EXACT : TT_FAST, .isa = op_isa(t), .first = true};
			const char *where = "";
			double d = 0;
			if (TT_CHECK_OK(t, double_distance(a, case_graph(a, &c[i], false), case_graph(a, &c[i], true), &e, t->seed, &d, &where)))
				TT_CHECK_MSG(t, d < 1e-5, "%s: %s differs from double by %.2g", c[i].name, where, d);
			tt_arena_destroy(a);
		}
}

/* The block in bf16: activations, weights and gradients are rounded to 8 bits at every step, so what is asked is one or two percent. */
static void precisions_bf16(tt_test *t)
{
	tt_arena *a = t->arena;
	for (int exact = 0; exact < 2; exact++) {
		op_env e = {.numerics = exact ? TT_EXACT : TT_FAST, .isa = op_isa(t)};
		tt_graph *g = large(a, TT_BF16, false, 100, 71), *g64 = large(a, TT_F64, false, 100, 71);
		double d = 0;
		const char *where = "";
		TT_CHECK_OK(t, double_distance(a, g, g64, &e, t->seed, &d, &where));
		TT_CHECK_MSG(t, d > 1e-4 && d < 0.04, "%s differs from double by %.2g", where, d);
	}
}

/* Every op that takes bf16, alone: inputs are the same numbers, so only the result's rounding and, in attention, that of P differ. */
static void bf16_inputs(tt_test *t)
{
	static const struct { const tt_op *op; unsigned val; double bound; } ops[] = {
		{&tt_op_embedding, 2, 0}, {&tt_op_embedding_dw, 6, 1e-6}, {&tt_op_linear, 7, 1e-6}, {&tt_op_linear_dx, 3, 1e-6},
		{&tt_op_linear_dw, 3, 1e-6}, {&tt_op_sum_tokens, 1, 1e-6}, {&tt_op_rms_norm, 3, 4e-3}, {&tt_op_rms_norm_dx, 7, 4e-3},
		{&tt_op_rms_norm_dw, 3, 1e-6}, {&tt_op_rope, 1, 4e-3}, {&tt_op_attention, 7, 8e-3}, {&tt_op_attention_bwd, 0x2f, 8e-3},
		{&tt_op_silu_mul, 3, 4e-3}, {&tt_op_silu_mul_bwd, 7, 4e-3}, {&tt_op_add, 3, 4e-3}};
	tt_arena *a = t->arena;
	for (int i = 0; i < TT_COUNT(ops); i++)
		for (int exact = 0; exact < 2; exact++) {
			const op_env e = {.numerics = exact ? TT_EXACT : TT_FAST, .isa = op_isa(t)}, e64 = {.f64 = true};
			tt_graph *g = op_sample(a, ops[i].op, 0, false), *g64 = op_sample(a, ops[i].op, 0, true);
			op_tensor **v = op_inputs(a, g, &e, -1, t->seed), *in[16] = {0}, *in64[16] = {0}, *out[4], *out64[4];
			if (!TT_CHECK_OK(t, op_direct(a, g, &e, v)))
				continue;
			const tt_node *n = node_of(g, ops[i].op), *n64 = node_of(g64, ops[i].op);
			for (int k = 0; k < n->nin; k++) {
				op_tensor *x = v[n->in[k]];
				in[k] = ops[i].val >> k & 1 ? op_convert(a, x, TT_BF16, &e) : x;
				in64[k] = x->val.dtype == TT_I32 ? x : op_convert(a, in[k], TT_F64, &e64);
			}
			if (!TT_CHECK_OK(t, op_call(a, n->op, n->attr, n->nin, in, n->nout, &e, out)) ||
				!TT_CHECK_OK(t, op_call(a, n64->op, n64->attr, n64->nin, in64, n64->nout, &e64, out64)))
				continue;
			for (int k = 0; k < n->nout; k++) {
				double d = op_distance(out[k], out64[k]);
				TT_CHECK_MSG(t, d <= ops[i].bound, "%s, output %d (%s): %.2g from double, %.2g allowed", n->op->name, k,
					tt_dtype_name(out[k]->val.dtype), d, ops[i].bound);
			}
		}
}

static void precisions_can_fail(tt_test *t)
{
	tt_arena *a = t->arena;
	tt_graph *g = large(a, TT_F32, false, 20, 71), *g64 = large(a, TT_F64, false, 20, 71);
	for (int64_t i = 0; i < g64->nnodes; i++)
		if (g64->nodes[i].op == &tt_op_rms_norm) {
			tt_attr_norm *attr = op_attr_copy(a, &tt_op_rms_norm, g64->nodes[i].attr);
			attr->eps = 1e-4; /* for 1e-5 */
			g64->nodes[i].attr = attr;
			break;
		}
	double d = 0;
	const char *where;
	TT_CHECK_OK(t, double_distance(a, g, g64, &(op_env){0}, t->seed, &d, &where));
	TT_CHECK(t, d > 1e-5);
}

/* ---- the same bits ------------------------------------------------------------------------------------------------------------------ */

/* Empty if all that nodes make is the same, else the name of the first that differs. */
static const char *first_difference(const tt_graph *g, op_tensor *const *x, op_tensor *const *y)
{
	for (int64_t i = 0; i < g->nnodes; i++)
		for (int k = 0; k < g->nodes[i].nout; k++)
			if (!op_same(x[g->nodes[i].out[k]], y[g->nodes[i].out[k]]))
				return g->values[g->nodes[i].out[k]].name;
	return "";
}

/* One more run of the graph that has to come out as `want`. */
static bool same_again(tt_test *t, tt_arena *a, tt_graph *g, const op_env *e, int64_t T, bool direct, op_tensor *const *want, const char *name,
	const char *what)
{
	op_tensor **v = TT_NEWN(a, op_tensor *, g->nvalues);
	memcpy(v, want, sizeof *v * (size_t)g->nvalues);
	tt_status s = direct ? op_direct(a, g, e, v) : op_exec(a, g, e, T, v);
	if (s != TT_OK)
		return TT_CHECK_MSG(t, false, "%s, T = %lld, %s: %s", name, (long long)T, what, tt_error_text());
	const char *d = first_difference(g, want, v);
	return TT_CHECK_MSG(t, !d[0], "%s, T = %lld, %s: %s differs", name, (long long)T, what, d);
}

/* Everything that may not change a bit, in one precision, for T tokens. */
static void compare_case(tt_test *t, const op_case *c, const op_env *e, int64_t T)
{
	tt_arena *a = tt_arena_create("kernels");
	tt_graph *g = case_graph(a, c, e->f64);
	op_tensor **v = op_inputs(a, g, e, T, t->seed);
	tt_status s = op_direct(a, g, e, v);
	if (TT_CHECK_MSG(t, s == TT_OK, "%s, T = %lld: %s", c->name, (long long)T, tt_error_text())) {
		op_env o = *e;
		o.garbage = 0x5a;
		same_again(t, a, g, &o, T, true, v, c->name, "other garbage in outputs and scratch");
		o.in_place = true;
		same_again(t, a, g, &o, T, true, v, c->name, "in place");
		o.in_place = false;
		o.threads = 2;
		if (T < 0)
			same_again(t, a, g, &o, T, true, v, c->name, "2 threads");
		o = *e;
		for (o.isa = TT_ISA_REF; !e->f64 && o.isa < e->isa; o.isa++)
			same_again(t, a, g, &o, T, true, v, c->name, tt_isa_name(o.isa));
		o = *e;
		same_again(t, a, g, &o, T, false, v, c->name, "executor");
		o.no_alias = true;
		same_again(t, a, g, &o, T, false, v, c->name, "executor without aliases");
		o.kernels_fast = true;
		o.threads = T < 0 ? 2 : 1;
		same_again(t, a, g, &o, T, false, v, c->name, "executor with overrides, and threads");
	}
	tt_arena_destroy(a);
}

static void compare_kernels(tt_test *t, bool f64, tt_numerics numerics)
{
	const int64_t tokens[] = {-1, 5, 1, 0, 130};
	int n;
	const op_case *c = all_cases(t->arena, f64, &n);
	for (int i = 0; i < n; i++)
		for (int k = 0; k < TT_COUNT(tokens); k++) {
			const op_env e = {.f64 = f64, .numerics = numerics, .isa = op_isa(t), .garbage = 0xff, .first = i & 1};
			if (tokens[k] <= 5 || c[i].large) /* samples have up to 12 */
				compare_case(t, &c[i], &e, tokens[k]);
		}
}

static void same_bits_fast(tt_test *t) { compare_kernels(t, false, TT_FAST); }
static void same_bits_exact(tt_test *t) { compare_kernels(t, false, TT_EXACT); }
static void same_bits_f64(tt_test *t) { compare_kernels(t, true, TT_FAST); }

/* Products with packed weights, as training runs them: libxsmm tiles where the CPU has them. */
static void packed_weights(tt_test *t)
{
	const tt_dtype dts[] = {TT_F32, TT_BF16};
	for (int k = 0; k < 2; k++)
		for (int threads = 1; threads <= 2; threads++) {
			tt_arena *a = t->arena;
			const op_env e = {.isa = op_isa(t), .kernels_fast = true, .threads = threads}, ref = {.isa = e.isa};
			if (e.isa < (dts[k] == TT_BF16 ? TT_ISA_AVX512_BF16 : TT_ISA_AVX2))
				continue; /* references do not read packed weights, and nobody packs for them */
			tt_graph *plain = large(a, dts[k], false, 300, 70), *fast = large(a, dts[k], true, 300, 70);
			op_tensor **want = op_inputs(a, plain, &ref, -1, t->seed), **got = op_inputs(a, fast, &e, -1, t->seed);
			if (!TT_CHECK_OK(t, op_direct(a, plain, &ref, want)))
				continue;
			if (!TT_CHECK_OK(t, op_exec(a, fast, &e, -1, got)))
				continue;
			for (tt_v x = 1; x < plain->nvalues; x++) {
				tt_v y = tt_value_find(fast, plain->values[x].name);
				TT_CHECK_MSG(t, op_same(want[x], got[y]), "%s, %s, %d threads: %s differs", tt_dtype_name(dts[k]), tt_isa_name(e.isa),
					threads, plain->values[x].name);
			}
		}
}

/* ---- can fail ---------------------------------------------------------------------------------------------------------------------- */

static bool toy_infer(tt_graph *g, const tt_op *op, const void *attr, int nin, const tt_value *const *in, int nout, tt_value *out)
{
	(void)g, (void)op, (void)attr, (void)nin, (void)nout;
	out[0].dtype = in[0]->dtype;
	return true;
}
static int64_t toy_count(const tt_call *c) { return c->in[0].n[0] * c->in[0].ld; }
static void toy_copy(const tt_call *c) { memcpy(c->out[0].p, c->in[0].p, sizeof(float) * (size_t)toy_count(c)); }
static void toy_short(const tt_call *c) { memcpy(c->out[0].p, c->in[0].p, sizeof(float) * (size_t)(toy_count(c) - 1)); }
static void toy_before(const tt_call *c)
{
	toy_copy(c);
	((float *)c->out[0].p)[-1] = 1;
}
static void toy_input(const tt_call *c)
{
	toy_copy(c);
	((float *)c->in[0].p)[0] += 1;
}
static void toy_reads_on(const tt_call *c)
{
	toy_copy(c);
	((float *)c->out[0].p)[0] = ((volatile float *)c->in[0].p)[toy_count(c)];
}
static void toy_threads(const tt_call *c)
{
	toy_copy(c);
	((float *)c->out[0].p)[0] = (float)c->env->threads;
}

/* Reads what it may have overwritten. */
static void toy_reversed(const tt_call *c)
{
	for (int64_t i = 0, n = toy_count(c); i < n; i++)
		((float *)c->out[0].p)[i] = ((const float *)c->in[0].p)[n - 1 - i];
}

static tt_status run_toy(tt_arena *a, tt_kernel_fn *kernel, const op_env *e, op_tensor **out)
{
	tt_op op = {.name = "toy", .flags = TT_OP_INPLACE, .nin = 1, .nout = 1, .labels = "*->*", .infer = toy_infer, .kernel = kernel};
	tt_graph *g = op_sample(a, &tt_op_cast, 0, false);
	op_tensor **v = op_inputs(a, g, e, -1, 1);
	return op_call(a, &op, NULL, 1, &v[1], 1, e, out);
}

static void reads_on(void *ctx)
{
	op_tensor *out[1];
	fprintf(stderr, "about to read on\n");
	if (run_toy(ctx, toy_reads_on, &(op_env){0}, out) != TT_OK)
		return;
}

static void same_bits_can_fail(tt_test *t)
{
	tt_arena *a = t->arena;
	op_tensor *x[1], *y[1];
	const op_env one = {.garbage = 0xff}, other = {.garbage = 0x5a}, two = {.threads = 2};
	TT_CHECK_OK(t, run_toy(a, toy_copy, &one, x));
	TT_CHECK_OK(t, run_toy(a, toy_copy, &other, y));
	TT_CHECK(t, op_same(x[0], y[0]));
	TT_CHECK_OK(t, run_toy(a, toy_short, &one, x));
	TT_CHECK_OK(t, run_toy(a, toy_short, &other, y));
	TT_CHECK(t, !op_same(x[0], y[0]));
	TT_CHECK_OK(t, run_toy(a, toy_threads, &one, x));
	TT_CHECK_OK(t, run_toy(a, toy_threads, &two, y));
	TT_CHECK(t, !op_same(x[0], y[0]));
	TT_CHECK_OK(t, run_toy(a, toy_reversed, &one, x));
	TT_CHECK_OK(t, run_toy(a, toy_reversed, &(op_env){.in_place = true}, y));
	TT_CHECK(t, !op_same(x[0], y[0]));
	TT_CHECK_FAILS(t, run_toy(a, toy_before, &one, x), TT_ERR_TYPE, "wrote beside its output 0");
	TT_CHECK_FAILS(t, run_toy(a, toy_input, &one, x), TT_ERR_TYPE, "wrote its input 0");
#ifndef __SANITIZE_ADDRESS__
	TT_CHECK(t, tt_test_dies(t, reads_on, a, SIGSEGV, "about to read on"));
#else
	(void)reads_on;
#endif
}

/* ---- accumulation ------------------------------------------------------------------------------------------------------------------ */

/* Forward and backward of a small model twice into the same accumulators: the second time doubles them, or overwrites them where it is the
 * first cell of a step. Doubling is exact in every precision. */
static void accumulates(tt_test *t)
{
	for (int mode = 0; mode < 3; mode++) {
		tt_arena *a = t->arena;
		const op_env e = {.f64 = mode == 2, .numerics = mode == 1 ? TT_EXACT : TT_FAST};
		tt_graph *f = tt_graph_new(a, &(tt_mesh){0}, e.f64), *g = NULL;
		tt_dtype dt = e.f64 ? TT_F64 : TT_F32;
		tt_dim n = tt_dim_of(TT_TOKENS, 9, 1), one = tt_dim_of(TT_ONE, 1, 1);
		tt_dim head[] = {tt_dim_of(TT_VOCAB, 12, 1), tt_dim_of(TT_D, 6, 1)};
		tt_v ids = tt_input(f, "ids", TT_I32, TT_NODTYPE, 1, &n), labels = tt_input(f, "labels", TT_I32, TT_NODTYPE, 1, &n);
		tt_v seed = tt_input(f, "seed", dt, TT_NODTYPE, 1, &one), w = tt_state_new(f, "w", TT_REGION_PARAM, dt, 2, head, true);
		tt_v norm = tt_state_new(f, "norm", TT_REGION_PARAM, dt, 1, &head[1], true);
		tt_v x = tt_rms_norm(f, tt_embedding(f, ids, w, "x"), norm, 1e-5, "n"); /* tied: two terms for w */
		tt_graph_root(f, tt_total(f, tt_token_loss(f, tt_linear_stat(f, x, w, "logits"), labels), "loss"), seed);
		if (!TT_CHECK_OK(t, tt_autodiff(f, &tt_autodiff_builders, a, &g)))
			return;
		tt_value_set_fill(g, tt_value_find(g, "ids"), TT_FILL_IDS);
		tt_value_set_fill(g, tt_value_find(g, "labels"), TT_FILL_LABELS);
		op_tensor **v = op_inputs(a, g, &e, -1, t->seed);
		tt_exec_options o = {.numerics = e.numerics, .f64 = e.f64, .kernels_ref = true, .fill_nan = true};
		tt_exec *ex = NULL;
		if (!TT_CHECK_OK(t, tt_exec_create(&o, &ex)) || !TT_CHECK_OK(t, tt_exec_add_graph(ex, g)) || !TT_CHECK_OK(t, tt_exec_plan(ex)) ||
			!TT_CHECK_OK(t, tt_exec_reserve(ex)))
			return;
		const char *const params[] = {"w", "norm"};
		for (tt_v i = 1; i < g->nvalues; i++) {
			bool grad = !strncmp(g->values[i].name, "grad.", 5);
			if (grad && g->values[i].kind == TT_STATE) /* never read before it is stored */
				memset(v[i]->bytes, 0xff, (size_t)(v[i]->count * v[i]->esize * v[i]->planes));
			if (g->values[i].kind != TT_TEMP)
				TT_CHECK_OK(t, tt_exec_write(ex, g->values[i].name, 0, v[i]->bytes, v[i]->count));
		}
		op_tensor *got[3][2];
		for (int run = 0; run < 3; run++) { /* first, second, first of the next step */
			tt_cell cell = {.T = 9, .nseqs = 1, .first = run != 1, .step = 1};
			TT_CHECK_OK(t, tt_exec_run(ex, TT_SEG_F, &cell));
			TT_CHECK_OK(t, tt_exec_run(ex, TT_SEG_B, &cell));
			for (int p = 0; p < 2; p++) {
				const char *name = tt_arena_printf(a, "grad.%s", params[p]);
				got[run][p] = op_copy(a, v[tt_value_find(g, name)]);
				TT_CHECK_OK(t, tt_exec_read(ex, name, 0, got[run][p]->bytes, got[run][p]->count));
			}
		}
		for (int p = 0; p < 2; p++) {
			double size = 0;
			for (int64_t i = 0; i < got[0][p]->count; i++) {
				double once = op_get(got[0][p], i), twice = op_get(got[1][p], i);
				size += fabs(once);
				/* w: two terms are added one after the other, (a + b + a) + b: not twice (a + b) to the last bit in `fast` */
				double bound = e.numerics == TT_EXACT || p ? 0 : e.f64 ? 1e-14 : 1e-5;
				TT_CHECK_MSG(t, fabs(twice - 2 * once) <= bound, "%s[%lld]: %.9g, then %.9g", params[p], (long long)i, once, twice);
			}
			TT_CHECK(t, size > 0.01);
			TT_CHECK_MSG(t, op_same(got[0][p], got[2][p]), "%s: a new step starts with what the last one left", params[p]);
		}
		tt_exec_destroy(ex);
	}
}

/* `accumulate` alone: adds; stores only where its attribute and the cell both say first. */
static void accumulate_op(tt_test *t)
{
	for (int mode = 0; mode < 3; mode++)
		for (int which = 0; which < 2; which++)
			for (int first = 0; first < 2; first++) {
				const op_env e = {.f64 = mode == 2, .numerics = mode == 1 ? TT_EXACT : TT_FAST, .first = first};
				tt_graph *g = op_sample(t->arena, &tt_op_accumulate, which, e.f64);
				op_tensor **v = op_inputs(t->arena, g, &e, -1, t->seed);
				if (!TT_CHECK_OK(t, op_direct(t->arena, g, &e, v)))
					return;
				const tt_node *n = node_of(g, &tt_op_accumulate);
				const op_tensor *state = v[n->in[0]], *term = v[n->in[1]];
				TT_CHECK(t, op_same(v[n->out[0]], which && first ? term : op_sum(t->arena, state, term)));
			}
}

const tt_case tt_suite_ops[] = {
	{"complete", complete, TT_TIER_QUICK},
	{"complete_can_fail", complete_can_fail, TT_TIER_QUICK},
	{"gradients", gradients, TT_TIER_QUICK},
	{"gradients_large", gradients_large, TT_TIER_QUICK},
	{"gradients_can_fail", gradients_can_fail, TT_TIER_QUICK},
	{"precisions", precisions, TT_TIER_QUICK},
	{"precisions_bf16", precisions_bf16, TT_TIER_QUICK},
	{"bf16_inputs", bf16_inputs, TT_TIER_QUICK},
	{"precisions_can_fail", precisions_can_fail, TT_TIER_QUICK},
	{"same_bits_fast", same_bits_fast, TT_TIER_QUICK},
	{"same_bits_exact", same_bits_exact, TT_TIER_QUICK},
	{"same_bits_f64", same_bits_f64, TT_TIER_QUICK},
	{"packed_weights", packed_weights, TT_TIER_QUICK},
	{"same_bits_can_fail", same_bits_can_fail, TT_TIER_QUICK},
	{"accumulates", accumulates, TT_TIER_QUICK},
	{"accumulate_op", accumulate_op, TT_TIER_QUICK},
	{0},
};
