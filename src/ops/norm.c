/* norm.c: RMSNorm. y = x * rstd * w, rstd = 1/sqrt(mean(x^2) + eps) (Zhang and Sennrich 2019). Sums over D are lane sums. */
#include "ops/internal.h"

static bool rms_norm_infer(tt_graph *g, const tt_op *op, const void *attr, int nin, const tt_value *const *in, int nout, tt_value *out)
{
	(void)attr, (void)nin, (void)nout;
	if (!tt_infer_val(g, op, in[0]) || !tt_infer_val(g, op, in[1]))
		return false;
	out[0].dtype = out[0].gdtype = in[0]->dtype;
	out[1].dtype = tt_stat_dtype(g);
	return true;
}

static void rms_norm_vjp(tt_vjp *v)
{
	tt_graph *g = v->g;
	const tt_v *in = v->node->in;
	tt_v dx[] = { v->dout[0], in[0], in[1], v->node->out[1] }, dw[] = { v->dout[0], in[0], v->node->out[1] };
	if (tt_value_get(g, in[0])->gdtype != TT_NODTYPE)
		v->din[0] = tt_node_add(g, &tt_op_rms_norm_dx, NULL, 4, dx, NULL);
	v->din[1] = tt_node_add(g, &tt_op_rms_norm_dw, NULL, 3, dw, NULL);
}

tt_v tt_rms_norm(tt_graph *g, tt_v x, tt_v w, double eps, const char *role)
{
	tt_attr_norm a = { .eps = eps };
	tt_v in[] = { x, w };
	return tt_node_add(g, &tt_op_rms_norm, &a, 2, in, role);
}

static bool rms_norm_sample(tt_graph *g, int which)
{
	if (which > 0)
		return false;
	tt_dtype dt = sample_val(g);
	tt_rms_norm(g, tt_sample_xy(g, "x", dt, tokens(6), dim(TT_D, 20, 1)), tt_sample_x(g, "w", dt, dim(TT_D, 20, 1)), 1e-5, NULL);
	return true;
}

const tt_attr tt_norm_attrs[] = { { "eps", TT_ATTR_REAL, offsetof(tt_attr_norm, eps) }, TT_ATTRS_END };

const tt_op tt_op_rms_norm = {
	.name = "rms_norm", .doc = "y = x * rstd * w, one rounding; rstd is kept for the backward",
	.cls = TT_CLASS_FORWARD, .nin = 2, .nout = 2, .labels = "tD,D->tD,t", .outs = (const char *const[]){ "y", "rstd" },
	.attr_size = sizeof(tt_attr_norm), .attrs = tt_norm_attrs,
	.infer = rms_norm_infer, .vjp = rms_norm_vjp, .sample = rms_norm_sample,
};

static bool dx_infer(tt_graph *g, const tt_op *op, const void *attr, int nin, const tt_value *const *in, int nout, tt_value *out)
{
	(void)attr, (void)nin, (void)nout;
	out[0].dtype = in[1]->dtype;
	return tt_infer_val(g, op, in[0]) && tt_infer_val(g, op, in[1]);
}

static bool dx_sample(tt_graph *g, int which)
{
	if (which > 0)
		return false;
	tt_dtype dt = sample_val(g);
	tt_v in[] = { tt_sample_xy(g, "dy", dt, tokens(6), dim(TT_D, 20, 1)), tt_sample_xy(g, "x", dt, tokens(6), dim(TT_D, 20, 1)),
		      tt_sample_x(g, "w", dt, dim(TT_D, 20, 1)), tt_sample_x(g, "rstd", tt_stat_dtype(g), tokens(6)) };
	tt_value_set_fill(g, in[3], TT_FILL_POSITIVE);
	tt_node_add(g, &tt_op_rms_norm_dx, NULL, 4, in, NULL);
	return true;
}

const tt_op tt_op_rms_norm_dx = {
	.name = "rms_norm_dx", .doc = "u = dy*w; dx = rstd*(u - x * sum(u*x)*rstd^2/D)",
	.cls = TT_CLASS_BACKWARD, .flags = TT_OP_INPLACE, .nin = 4, .nout = 1, .labels = "tD,tD,D,t->tD", .outs = (const char *const[]){ "dx" },
	.infer = dx_infer, .sample = dx_sample,
};

static bool dw_sample(tt_graph *g, int which)
{
	if (which > 0)
		return false;
	tt_dtype dt = sample_val(g);
	tt_v in[] = { tt_sample_xy(g, "dy", dt, tokens(6), dim(TT_D, 20, 1)), tt_sample_xy(g, "x", dt, tokens(6), dim(TT_D, 20, 1)),
		      tt_sample_x(g, "rstd", tt_stat_dtype(g), tokens(6)) };
	tt_value_set_fill(g, in[2], TT_FILL_POSITIVE);
	tt_node_add(g, &tt_op_rms_norm_dw, NULL, 3, in, NULL);
	return true;
}

const tt_op tt_op_rms_norm_dw = {
	.name = "rms_norm_dw", .doc = "dw = sum over tokens of dy * x * rstd, in fixed blocks of 128 tokens",
	.cls = TT_CLASS_BACKWARD, .flags = TT_OP_ACC_SUM, .nin = 3, .nout = 1, .labels = "tD,tD,t->D", .outs = (const char *const[]){ "dw" },
	.infer = tt_infer_acc, .sample = dw_sample,
};
