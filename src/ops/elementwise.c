/* elementwise.c: sums, roundings, the gated activation. */
#include "ops/internal.h"

static bool silu_infer(tt_graph *g, const tt_op *op, const void *attr, int nin, const tt_value *const *in, int nout, tt_value *out)
{
	(void)attr, (void)nin;
	for (int i = 0; i < nout; i++) {
		out[i].dtype = in[0]->dtype;
		out[i].gdtype = op->cls == TT_CLASS_FORWARD ? in[0]->dtype : TT_NODTYPE;
	}
	return tt_infer_val(g, op, in[0]) && tt_infer_val(g, op, in[1]);
}

tt_v tt_silu_mul(tt_graph *g, tt_v gate, tt_v up, const char *role)
{
	tt_v in[] = { gate, up };
	return tt_node_add(g, &tt_op_silu_mul, NULL, 2, in, role);
}

static void silu_mul_vjp(tt_vjp *v)
{
	tt_v in[] = { v->node->in[0], v->node->in[1], v->dout[0] };
	tt_v first = tt_node_add(v->g, &tt_op_silu_mul_bwd, NULL, 3, in, NULL);
	v->din[0] = first;
	v->din[1] = tt_out(first, 1);
}

static tt_v sample_tf(tt_graph *g, const char *name)
{
	return tt_sample_xy(g, name, sample_val(g), tokens(6), dim(TT_FFN, 12, 1));
}

static bool silu_sample(tt_graph *g, int which)
{
	if (which > 0)
		return false;
	tt_silu_mul(g, sample_tf(g, "gate"), sample_tf(g, "up"), NULL);
	return true;
}

const tt_op tt_op_silu_mul = {
	.name = "silu_mul", .doc = "gate * sigmoid(gate) * up, one rounding (SwiGLU, Shazeer 2020)",
	.cls = TT_CLASS_FORWARD, .flags = TT_OP_INPLACE, .nin = 2, .nout = 1, .labels = "tf,tf->tf", .outs = (const char *const[]){ "silu_mul" },
	.infer = silu_infer, .vjp = silu_mul_vjp, .sample = silu_sample,
};

static bool silu_bwd_sample(tt_graph *g, int which)
{
	if (which > 0)
		return false;
	tt_v in[] = { sample_tf(g, "gate"), sample_tf(g, "up"), sample_tf(g, "dy") };
	tt_node_add(g, &tt_op_silu_mul_bwd, NULL, 3, in, NULL);
	return true;
}

const tt_op tt_op_silu_mul_bwd = {
	.name = "silu_mul_bwd", .doc = "s = sigmoid(gate): dgate = dy*up*s*(1 + gate*(1-s)), dup = dy*gate*s",
	.cls = TT_CLASS_BACKWARD, .flags = TT_OP_INPLACE, .nin = 3, .nout = 2, .labels = "tf,tf,tf->tf,tf",
	.outs = (const char *const[]){ "dgate", "dup" },
	.infer = silu_infer, .sample = silu_bwd_sample,
};

/* ---- add -------------------------------------------------------------------------------------------------------------------------- */

static bool add_infer(tt_graph *g, const tt_op *op, const void *attr, int nin, const tt_value *const *in, int nout, tt_value *out)
{
	(void)attr, (void)nin, (void)nout, (void)op;
	if (in[0]->dtype != in[1]->dtype || in[0]->ndim != in[1]->ndim || tt_value_count(in[0]) != tt_value_count(in[1])) {
		tt_graph_fail(g, "add: %s and %s differ in shape or dtype (%s, %s)", in[0]->name, in[1]->name, tt_dtype_name(in[0]->dtype),
			      tt_dtype_name(in[1]->dtype));
		return false;
	}
	out[0].dtype = in[0]->dtype;
	out[0].gdtype = in[0]->gdtype;
	return true;
}

/* P + P only while the sum is open, that is as acc or integers. */
static bool add_spmd(const tt_typing *t)
{
	for (int i = 0; i < 2; i++)
		if (t->tin[i].type == TT_P && t->in[i]->dtype != TT_ACC && t->in[i]->dtype != TT_I64)
			return tt_typing_reject(t, i, "needs acc: a sum not yet taken exists only as acc or as integers");
	return tt_spmd_by_labels(t);
}

tt_v tt_add(tt_graph *g, tt_v a, tt_v b, const char *role)
{
	tt_v in[] = { a, b };
	return tt_node_add(g, &tt_op_add, NULL, 2, in, role);
}

static void add_vjp(tt_vjp *v)
{
	v->din[0] = v->din[1] = v->dout[0];
}

static bool add_sample(tt_graph *g, int which)
{
	tt_dtype dt = sample_val(g);
	if (which == 0)
		tt_add(g, tt_sample_xy(g, "a", dt, tokens(6), dim(TT_D, 6, 1)), tt_sample_xy(g, "b", dt, tokens(6), dim(TT_D, 6, 1)), NULL);
	else if (which == 1)
		tt_add(g, tt_sample_xy(g, "a", TT_ACC, tokens(6), dim(TT_D, 6, 1)), tt_sample_xy(g, "b", TT_ACC, tokens(6), dim(TT_D, 6, 1)), NULL);
	return which < 2;
}

const tt_op tt_op_add = {
	.name = "add", .doc = "a + b, rounded to their dtype; acc stays acc",
	.cls = TT_CLASS_FORWARD, .flags = TT_OP_ACC_LINEAR | TT_OP_INPLACE, .nin = 2, .nout = 1, .labels = "*,*->*",
	.outs = (const char *const[]){ "sum" }, .infer = add_infer, .spmd = add_spmd, .vjp = add_vjp, .sample = add_sample,
};

/* ---- round, cast, pack ---------------------------------------------------------------------------------------------------------------- */

static bool round_infer(tt_graph *g, const tt_op *op, const void *attr, int nin, const tt_value *const *in, int nout, tt_value *out)
{
	(void)nin, (void)nout, (void)op;
	if (in[0]->dtype != TT_ACC) {
		tt_graph_fail(g, "round: %s is %s, needs acc", in[0]->name, tt_dtype_name(in[0]->dtype));
		return false;
	}
	out[0].dtype = ((const tt_attr_dtype *)attr)->dtype;
	out[0].gdtype = in[0]->gdtype;
	return true;
}

tt_v tt_round(tt_graph *g, tt_v acc, tt_dtype to, const char *role)
{
	tt_attr_dtype a = { to };
	return tt_node_add(g, &tt_op_round, &a, 1, &acc, role);
}

static void identity_vjp(tt_vjp *v)
{
	v->din[0] = v->dout[0];
}

const tt_attr tt_dtype_attrs[] = { { "dtype", TT_ATTR_DTYPE, offsetof(tt_attr_dtype, dtype) }, TT_ATTRS_END };

static bool round_sample(tt_graph *g, int which)
{
	if (which > 0)
		return false;
	tt_round(g, tt_sample_xy(g, "acc", TT_ACC, tokens(6), dim(TT_D, 6, 1)), sample_val(g), NULL);
	return true;
}

const tt_op tt_op_round = {
	.name = "round", .doc = "acc to fp32 to the value dtype, each to nearest even; zero is +0. Its vjp is the identity",
	.cls = TT_CLASS_FORWARD, .flags = TT_OP_INPLACE, .nin = 1, .nout = 1, .labels = "*->*", .outs = (const char *const[]){ "y" },
	.attrs = tt_dtype_attrs, .attr_size = sizeof(tt_attr_dtype), .infer = round_infer, .vjp = identity_vjp, .sample = round_sample,
};

static bool cast_infer(tt_graph *g, const tt_op *op, const void *attr, int nin, const tt_value *const *in, int nout, tt_value *out)
{
	(void)nin, (void)nout;
	out[0].dtype = ((const tt_attr_dtype *)attr)->dtype;
	out[0].gdtype = in[0]->gdtype;
	return tt_infer_val(g, op, in[0]);
}

tt_v tt_cast(tt_graph *g, tt_v x, tt_dtype to, const char *role)
{
	tt_attr_dtype a = { to };
	return tt_node_add(g, &tt_op_cast, &a, 1, &x, role);
}

static bool cast_sample(tt_graph *g, int which)
{
	if (which > 0)
		return false;
	tt_cast(g, tt_sample_xy(g, "x", sample_val(g), dim(TT_FFN, 6, 1), dim(TT_D, 6, 1)), sample_val(g), NULL);
	return true;
}

const tt_op tt_op_cast = {
	.name = "cast", .doc = "storage cast, to nearest even (PREP); a use's gradient dtype is its own",
	.cls = TT_CLASS_STATE, .nin = 1, .nout = 1, .labels = "*->*", .outs = (const char *const[]){ "cast" }, .attrs = tt_dtype_attrs,
	.attr_size = sizeof(tt_attr_dtype), .infer = cast_infer, .vjp = identity_vjp, .sample = cast_sample,
};

static bool pack_infer(tt_graph *g, const tt_op *op, const void *attr, int nin, const tt_value *const *in, int nout, tt_value *out)
{
	(void)nin, (void)nout;
	const tt_attr_pack *a = attr;
	out[0].dtype = a->dtype;
	out[0].gdtype = in[0]->gdtype;
	out[0].format = (tt_format)a->format;
	if (in[0]->format != TT_PLAIN && (in[0]->format != TT_PACK_FWD || a->format != TT_PACK_DX || a->dtype != in[0]->dtype || a->dtype == TT_F64)) {
		tt_graph_fail(g, "pack: %s is %s already", in[0]->name, tt_format_name(in[0]->format));
		return false;
	}
	return tt_infer_val(g, op, in[0]);
}

tt_v tt_pack(tt_graph *g, tt_v x, tt_dtype to, tt_format f, const char *role)
{
	tt_attr_pack a = { to, f };
	return tt_node_add(g, &tt_op_pack, &a, 1, &x, role);
}

static bool pack_sample(tt_graph *g, int which)
{
	if (which > 2 || g->f64)
		return false;
	tt_v w = tt_sample_xy(g, "w", sample_val(g), dim(TT_FFN, 70, 1), dim(TT_D, 9, 1));
	tt_pack(g, which == 2 ? tt_pack(g, w, sample_val(g), TT_PACK_FWD, "fwd") : w, sample_val(g), which ? TT_PACK_DX : TT_PACK_FWD, NULL);
	return true;
}

/* Shards are packed each for itself, so a packed value is sharded as its source; the vjp is the identity. */
const tt_op tt_op_pack = {
	.name = "pack", .doc = "a weight in the panels its kernel reads, cast on the way (PREP)",
	.cls = TT_CLASS_STATE, .nin = 1, .nout = 1, .labels = "*->*", .outs = (const char *const[]){ "pack" },
	.attrs = (const tt_attr[]){ { "dtype", TT_ATTR_DTYPE, offsetof(tt_attr_pack, dtype) },
				    { "format", TT_ATTR_INT, offsetof(tt_attr_pack, format) }, TT_ATTRS_END },
	.attr_size = sizeof(tt_attr_pack), .infer = pack_infer, .vjp = identity_vjp, .sample = pack_sample,
};
