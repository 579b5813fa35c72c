/* product.c: dense products and their gradients. Y[t,o] = sum_k X[t,k] W[o,k] (+ b[o]); dX = dY W; dW = dY^T X. */
#include "ops/internal.h"

void tt_segments_local(tt_ints *segments, tt_arena *a, const tt_piece *piece)
{
	int64_t *v = TT_NEWN(a, int64_t, segments->n);
	for (int64_t i = 0; i < segments->n; i++)
		v[i] = TT_MIN(TT_MAX(segments->v[i] - piece->start, (int64_t)0), piece->n);
	segments->v = v;
}

void tt_segments_deal(const tt_dim *d, int64_t edges[9])
{
	/* Heads follow their kv head: where 1, 2 or 4 kv heads are fewer than 8, a segment splits a group as tp ranks that share the kv head
	 * would; otherwise segments are dealt in whole kv groups. So every tp in {1,2,4,8} cuts at segment edges. */
	int64_t group = d->group, groups = d->n / d->unit / group;
	for (int64_t i = 0; i <= 8; i++) {
		int64_t at;
		if (groups < 8 && 8 % groups == 0) {
			int64_t per = 8 / groups;
			at = i / per * group + tt_deal(group, i % per, per);
		} else {
			at = tt_deal(groups, i, 8) * group;
		}
		edges[i] = at * d->unit;
	}
}

/* A contraction that may be split over ranks yields terms of a sum, unless it is rounded here. */
static bool yields(tt_graph *g, const tt_op *op, const tt_dim *contracted, tt_dtype dtype, bool rounded)
{
	bool splittable = tt_role_splittable(contracted->role);
	if ((splittable && !rounded) == (dtype == TT_ACC))
		return true;
	tt_graph_fail(g, "%s: a contraction over %s yields %s", op->name, tt_role_name(contracted->role), splittable ? "acc" : "a value, not acc");
	return false;
}

static bool linear_infer(tt_graph *g, const tt_op *op, const void *attr, int nin, const tt_value *const *in, int nout, tt_value *out)
{
	(void)nin, (void)nout;
	const tt_attr_linear *a = attr;
	if (!tt_infer_val(g, op, in[0]))
		return false;
	if (in[1]->dtype != in[0]->dtype) {
		tt_graph_fail(g, "%s: x %s is %s, weight %s is %s", op->name, in[0]->name, tt_dtype_name(in[0]->dtype), in[1]->name,
			      tt_dtype_name(in[1]->dtype));
		return false;
	}
	if (!yields(g, op, &in[0]->dim[1], a->dtype, a->rounded))
		return false;
	out[0].dtype = a->dtype;
	out[0].gdtype = in[0]->dtype; /* activation gradients are in the compute dtype, logits' too */
	return true;
}

static void linear_local(void *attr, tt_arena *a, const tt_piece *const *in, const tt_piece *const *out)
{
	(void)out;
	tt_segments_local(&((tt_attr_linear *)attr)->segments, a, &in[0][1]);
}

/* A bias beside a sharded contraction counts once: it must be P (zero but on one rank). */
static bool linear_spmd(const tt_typing *t)
{
	if (t->nin > 2 && t->in[2] && t->tin[0].type == TT_S && t->tin[0].dim == 1) {
		if (t->tin[2].type != TT_P)
			return tt_typing_reject(t, 2, "needs P beside a sharded contraction (convert it: R to P), else it is added once per rank");
		tt_typing u = *t;
		u.nin = 2;
		return tt_spmd_by_labels(&u);
	}
	return tt_spmd_by_labels(t);
}

static void linear_vjp(tt_vjp *v)
{
	tt_graph *g = v->g;
	const tt_value *x = tt_value_get(g, v->node->in[0]), *y = tt_value_get(g, v->node->out[0]);
	tt_v x_id = v->node->in[0], w = v->node->in[1], b = v->node->nin > 2 ? v->node->in[2] : 0, dy = v->dout[0];
	if (x->gdtype != TT_NODTYPE) {
		tt_attr_linear_dx a = { .dtype = tt_role_splittable(y->dim[1].role) ? TT_ACC : x->dtype };
		tt_v in[] = { dy, w };
		v->din[0] = tt_node_add(g, &tt_op_linear_dx, &a, 2, in, NULL);
	}
	tt_v in[] = { dy, x_id };
	v->din[1] = tt_node_add(g, &tt_op_linear_dw, NULL, 2, in, NULL);
	if (b)
		v->din[2] = tt_node_add(g, &tt_op_sum_tokens, NULL, 1, &dy, "db");
}

static tt_cost product_cost(const void *attr, int nin, const tt_value *const *in, int nout, const tt_value *const *out)
{
	(void)attr, (void)nin, (void)nout;
	/* one multiply and one add for each pair of an output element and a contracted one */
	double a = (double)tt_value_count(in[0]), b = (double)tt_value_count(in[1]), y = (double)tt_value_count(out[0]);
	return (tt_cost){ .flops = 2 * __builtin_sqrt(a * b * y) };
}

static tt_v build_linear(tt_graph *g, tt_v x, tt_v w, tt_v b, tt_dtype dt, const char *role)
{
	if (!x || !w)
		return 0;
	int64_t edges[9];
	tt_attr_linear a = { .dtype = dt };
	const tt_value *vx = tt_value_get(g, x);
	if (dt == TT_ACC && vx->ndim == 2) {
		tt_segments_deal(&vx->dim[1], edges);
		a.segments = (tt_ints){ 9, edges };
	}
	tt_v in[] = { x, w, b };
	return tt_node_add(g, &tt_op_linear, &a, 3, in, role);
}

tt_v tt_linear_acc(tt_graph *g, tt_v x, tt_v w, tt_v b, const char *role)
{
	return build_linear(g, x, w, b, TT_ACC, role);
}

tt_v tt_linear(tt_graph *g, tt_v x, tt_v w, tt_v b, const char *role)
{
	if (!x || !w)
		return 0;
	const tt_value *v = tt_value_get(g, x);
	tt_dtype dt = v->dtype;
	if (v->ndim == 2 && tt_role_splittable(v->dim[1].role))
		return tt_round(g, build_linear(g, x, w, b, TT_ACC, "acc"), dt, role ? role : "y");
	return build_linear(g, x, w, b, dt, role);
}

tt_v tt_linear_stat(tt_graph *g, tt_v x, tt_v w, const char *role)
{
	return build_linear(g, x, w, 0, tt_stat_dtype(g), role);
}

static bool linear_sample(tt_graph *g, int which)
{
	tt_dtype dt = sample_val(g);
	tt_v x, w, b = 0;
	switch (which) {
	case 0: /* column product: D contracted */
		x = tt_sample_xy(g, "x", dt, tokens(6), dim(TT_D, 5, 1));
		w = tt_sample_xy(g, "w", dt, dim(TT_FFN, 12, 1), dim(TT_D, 5, 1));
		break;
	case 1: /* row product: ffn contracted, acc */
		x = tt_sample_xy(g, "x", dt, tokens(6), dim(TT_FFN, 12, 1));
		w = tt_sample_xy(g, "w", dt, dim(TT_D, 5, 1), dim(TT_FFN, 12, 1));
		break;
	case 2:
		x = tt_sample_xy(g, "x", dt, tokens(6), dim(TT_D, 5, 1));
		w = tt_sample_xy(g, "w", dt, dim(TT_HEADS, 12, 2), dim(TT_D, 5, 1));
		b = tt_sample_x(g, "b", dt, dim(TT_HEADS, 12, 2));
		break;
	case 3:
		x = tt_sample_xy(g, "x", dt, tokens(6), dim(TT_HEADS, 12, 2));
		w = tt_sample_xy(g, "w", dt, dim(TT_D, 4, 1), dim(TT_HEADS, 12, 2));
		b = tt_sample_x(g, "b", dt, dim(TT_D, 4, 1));
		break;
	default:
		return false;
	}
	build_linear(g, x, w, b, which & 1 ? TT_ACC : dt, NULL);
	return true;
}

const tt_op tt_op_linear = {
	.name = "linear",
	.doc = "y = x w^T (+ b): one ascending fma chain per output, in 8 K segments joined by a tree where k is splittable (then y is acc)",
	.cls = TT_CLASS_FORWARD, .flags = TT_OP_ACC_SUM, .keep = TT_KEEP_SECOND, .nin = 2, .nin_max = 3, .nout = 1, .labels = "tk,ok,o->to",
	.outs = (const char *const[]){ "y" }, .attr_size = sizeof(tt_attr_linear),
	.attrs = (const tt_attr[]){ { "dtype", TT_ATTR_DTYPE, offsetof(tt_attr_linear, dtype) },
				    { "segments", TT_ATTR_INTS, offsetof(tt_attr_linear, segments) },
				    { "rounded", TT_ATTR_BOOL, offsetof(tt_attr_linear, rounded) }, TT_ATTRS_END },
	.infer = linear_infer, .spmd = linear_spmd, .localise = linear_local, .vjp = linear_vjp, .cost = product_cost, .sample = linear_sample,
};

static bool linear_dx_infer(tt_graph *g, const tt_op *op, const void *attr, int nin, const tt_value *const *in, int nout, tt_value *out)
{
	(void)nin, (void)nout;
	const tt_attr_linear_dx *a = attr;
	if (!tt_infer_val(g, op, in[0]))
		return false;
	if (!yields(g, op, &in[0]->dim[1], a->dtype, a->rounded))
		return false;
	out[0].dtype = a->dtype;
	return true;
}

static bool linear_dx_sample(tt_graph *g, int which)
{
	tt_dtype dt = sample_val(g);
	if (which > 1)
		return false;
	tt_dim o = which ? dim(TT_D, 5, 1) : dim(TT_FFN, 12, 1), k = which ? dim(TT_FFN, 12, 1) : dim(TT_D, 5, 1);
	tt_attr_linear_dx a = { .dtype = which ? dt : TT_ACC };
	tt_v in[] = { tt_sample_xy(g, "dy", dt, tokens(6), o), tt_sample_xy(g, "w", dt, o, k) };
	tt_node_add(g, &tt_op_linear_dx, &a, 2, in, NULL);
	return true;
}

const tt_attr tt_linear_dx_attrs[] = { { "dtype", TT_ATTR_DTYPE, offsetof(tt_attr_linear_dx, dtype) },
				       { "rounded", TT_ATTR_BOOL, offsetof(tt_attr_linear_dx, rounded) }, TT_ATTRS_END };

const tt_op tt_op_linear_dx = {
	.name = "linear_dx", .doc = "dx = dy w: one ascending chain over the output features",
	.cls = TT_CLASS_BACKWARD, .flags = TT_OP_ACC_SUM, .nin = 2, .nout = 1, .labels = "to,ok->tk", .outs = (const char *const[]){ "dx" },
	.attr_size = sizeof(tt_attr_linear_dx),
	.attrs = tt_linear_dx_attrs, .infer = linear_dx_infer, .cost = product_cost, .sample = linear_dx_sample,
};

static bool linear_dw_sample(tt_graph *g, int which)
{
	if (which > 0)
		return false;
	tt_dtype dt = sample_val(g);
	tt_v in[] = { tt_sample_xy(g, "dy", dt, tokens(6), dim(TT_FFN, 6, 1)), tt_sample_xy(g, "x", dt, tokens(6), dim(TT_D, 5, 1)) };
	tt_node_add(g, &tt_op_linear_dw, NULL, 2, in, NULL);
	return true;
}

const tt_op tt_op_linear_dw = {
	.name = "linear_dw", .doc = "dw = dy^T x: one ascending chain over the tokens of the microbatch, from zero",
	.cls = TT_CLASS_BACKWARD, .flags = TT_OP_ACC_SUM, .nin = 2, .nout = 1, .labels = "to,tk->ok", .outs = (const char *const[]){ "dw" },
	.infer = tt_infer_acc, .cost = product_cost, .sample = linear_dw_sample,
};

static bool sum_tokens_sample(tt_graph *g, int which)
{
	if (which > 0)
		return false;
	tt_v x = tt_sample_xy(g, "x", sample_val(g), tokens(6), dim(TT_HEADS, 6, 2));
	tt_node_add(g, &tt_op_sum_tokens, NULL, 1, &x, NULL);
	return true;
}

const tt_op tt_op_sum_tokens = {
	.name = "sum_tokens", .doc = "sum over tokens in fixed blocks of 128, joined ascending (bias gradients)",
	.cls = TT_CLASS_BACKWARD, .flags = TT_OP_ACC_SUM, .nin = 1, .nout = 1, .labels = "to->o", .outs = (const char *const[]){ "sum" },
	.infer = tt_infer_acc, .sample = sum_tokens_sample,
};
