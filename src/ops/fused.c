/* fused.c: what the pass `fuse` makes of several nodes. Each computes what they would, every `round` in registers; none has a vjp, since
 * fusion comes after the reverse walk. The patterns are a table in pass/fuse.c. */
#include "ops/internal.h"

/* The rule of one of the parts, on the operands that are its own. */
static bool part_typing(const tt_typing *t, const tt_op *op, int first, int nin)
{
	int culprit = 0;
	tt_typing u = *t;
	u.op = op;
	u.in += first;
	u.tin += first;
	u.nin = nin;
	u.culprit = &culprit;
	if (op->spmd ? op->spmd(&u) : tt_spmd_by_labels(&u))
		return true;
	*t->culprit = first + culprit;
	return false;
}

/* ---- linear_dw, accumulate ---------------------------------------------------------------------------------------------------------------- */

static bool dw_acc_infer(tt_graph *g, const tt_op *op, const void *attr, int nin, const tt_value *const *in, int nout, tt_value *out)
{
	(void)attr, (void)nin, (void)nout;
	if (in[0]->dtype != TT_ACC) {
		tt_graph_fail(g, "%s: %s is %s, needs acc", op->name, in[0]->name, tt_dtype_name(in[0]->dtype));
		return false;
	}
	out[0].dtype = TT_ACC;
	return tt_infer_val(g, op, in[1]) && tt_infer_val(g, op, in[2]);
}

static bool dw_acc_spmd(const tt_typing *t)
{
	if (!part_typing(t, &tt_op_linear_dw, 1, 2))
		return false;
	if (!tt_axis_type_eq(t->tin[0], t->tout[0]))
		return tt_typing_reject(t, 0, "needs the type of the gradient it meets");
	return true;
}

static tt_cost dw_acc_cost(const void *attr, int nin, const tt_value *const *in, int nout, const tt_value *const *out)
{
	return tt_op_linear_dw.cost(attr, nin - 1, in + 1, nout, out);
}

static bool dw_acc_sample(tt_graph *g, int which)
{
	if (which > 1)
		return false;
	tt_dtype dt = sample_val(g);
	tt_dim o = dim(TT_FFN, 6, 1), k = dim(TT_D, 5, 1);
	tt_attr_accumulate a = { which };
	tt_v in[] = { tt_sample_xy(g, "state", TT_ACC, o, k), tt_sample_xy(g, "dy", dt, tokens(6), o), tt_sample_xy(g, "x", dt, tokens(6), k) };
	tt_node_add(g, &tt_op_linear_dw_acc, &a, 3, in, NULL);
	return true;
}

const tt_op tt_op_linear_dw_acc = {
	.name = "linear_dw_acc", .doc = "linear_dw, accumulate: state + dy^T x; in the step's first cell the first term of a chain is stored",
	.cls = TT_CLASS_FUSED, .flags = TT_OP_ACC_SUM | TT_OP_INPLACE, .nin = 3, .nout = 1, .labels = "ok,to,tk->ok",
	.outs = (const char *const[]){ "acc" }, .attr_size = sizeof(tt_attr_accumulate),
	.attrs = (const tt_attr[]){ { "first", TT_ATTR_BOOL, offsetof(tt_attr_accumulate, first) }, TT_ATTRS_END },
	.infer = dw_acc_infer, .spmd = dw_acc_spmd, .cost = dw_acc_cost, .sample = dw_acc_sample,
};

/* ---- round, then what reads a gradient: attributes and labels are those of the reader ------------------------------------------------------- */

static tt_v sample_grad(tt_graph *g)
{
	return tt_sample_xy(g, "acc", TT_ACC, dim(TT_FFN, 6, 1), dim(TT_D, 6, 1));
}

static tt_v sample_state(tt_graph *g, const char *name)
{
	return tt_sample_xy(g, name, tt_stat_dtype(g), dim(TT_FFN, 6, 1), dim(TT_D, 6, 1));
}

/* coef and hyper */
static void sample_step(tt_graph *g, tt_v out[2])
{
	out[0] = tt_sample_x(g, "coef", tt_stat_dtype(g), dim(TT_ONE, 1, 1));
	out[1] = tt_sample_x(g, "hyper", tt_stat_dtype(g), dim(TT_ONE, 4, 1));
	tt_value_set_fill(g, out[1], TT_FILL_ONE_STEP);
}

static bool round_square_sum_sample(tt_graph *g, int which)
{
	if (which > 0)
		return false;
	tt_v x = sample_grad(g);
	tt_node_add(g, &tt_op_round_square_sum, NULL, 1, &x, NULL);
	return true;
}

const tt_op tt_op_round_square_sum = {
	.name = "round_square_sum", .doc = "round, square_sum: sum of squares of all elements, each rounded",
	.cls = TT_CLASS_FUSED, .flags = TT_OP_ACC_SUM, .nin = 1, .nout = 1, .labels = "*->1", .outs = (const char *const[]){ "square_sum" },
	.infer = tt_infer_acc, .sample = round_square_sum_sample,
};

/* States come first, and each has its new version as the output of its place. */
static bool states_infer(tt_graph *g, const tt_op *op, const void *attr, int nin, const tt_value *const *in, int nout, tt_value *out)
{
	(void)attr, (void)nin, (void)g, (void)op;
	for (int i = 0; i < nout; i++)
		out[i].dtype = in[i]->dtype;
	return true;
}

static bool round_adamw_sample(tt_graph *g, int which)
{
	if (which > 0)
		return false;
	tt_attr_adamw a = { 0.9, 0.95, 1e-8, 0.1, 1 };
	tt_v in[6] = { sample_state(g, "p"), sample_state(g, "m"), sample_state(g, "v"), sample_grad(g) };
	tt_value_set_fill(g, in[2], TT_FILL_POSITIVE);
	sample_step(g, in + 4);
	tt_node_add(g, &tt_op_round_adamw, &a, 6, in, NULL);
	return true;
}

const tt_op tt_op_round_adamw = {
	.name = "round_adamw", .doc = "round, adamw: the update reads the gradient's accumulator",
	.cls = TT_CLASS_FUSED, .flags = TT_OP_INPLACE, .nin = 6, .nout = 3, .labels = "*,*,*,*,1,_->*,*,*",
	.outs = (const char *const[]){ "p", "m", "v" }, .attr_size = sizeof(tt_attr_adamw), .attrs = tt_adamw_attrs, .infer = states_infer,
	.sample = round_adamw_sample,
};

static bool round_sgd_sample(tt_graph *g, int which)
{
	if (which > 1)
		return false;
	tt_attr_sgd a = { .momentum = which ? 0.9 : 0, .weight_decay = 0.1, .lr_scale = 1, .nesterov = which };
	tt_v in[5] = { sample_state(g, "p"), sample_state(g, "mom"), sample_grad(g) };
	sample_step(g, in + 3);
	tt_node_add(g, &tt_op_round_sgd, &a, 5, in, NULL);
	return true;
}

const tt_op tt_op_round_sgd = {
	.name = "round_sgd", .doc = "round, sgd: the update reads the gradient's accumulator",
	.cls = TT_CLASS_FUSED, .flags = TT_OP_INPLACE, .nin = 5, .nout = 2, .labels = "*,*,*,1,_->*,*", .outs = (const char *const[]){ "p", "mom" },
	.attr_size = sizeof(tt_attr_sgd), .attrs = tt_sgd_attrs, .infer = states_infer, .sample = round_sgd_sample,
};
