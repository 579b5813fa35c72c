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

/* ---- embedding_dw, accumulate: no table of zeros and sums between them ------------------------------------------------------------------------ */

static bool embedding_acc_infer(tt_graph *g, const tt_op *op, const void *attr, int nin, const tt_value *const *in, int nout, tt_value *out)
{
	(void)attr, (void)nin, (void)nout;
	if (in[0]->dtype != TT_ACC) {
		tt_graph_fail(g, "%s: %s is %s, needs acc", op->name, in[0]->name, tt_dtype_name(in[0]->dtype));
		return false;
	}
	out[0].dtype = TT_ACC;
	return tt_infer_val(g, op, in[2]);
}

static bool embedding_acc_spmd(const tt_typing *t)
{
	if (!part_typing(t, &tt_op_embedding_dw, 1, 3))
		return false;
	if (!tt_axis_type_eq(t->tin[0], t->tout[0]))
		return tt_typing_reject(t, 0, "needs the type of the gradient it meets");
	return true;
}

static void embedding_acc_local(void *attr, tt_arena *a, const tt_piece *const *in, const tt_piece *const *out)
{
	(void)a, (void)out;
	((tt_attr_embedding_acc *)attr)->vocab = (tt_attr_vocab){ in[3][0].start, in[3][0].n };
}

/* Tokens by id: where each id's begin, [ids + 1], and the tokens, [T]. */
static size_t embedding_acc_scratch(const void *attr, int nin, const tt_value *const *in, int nout, const tt_value *const *out, const tt_env *env)
{
	(void)attr, (void)nin, (void)nout, (void)out, (void)env;
	return (size_t)(in[0]->dim[0].n + 2 + in[2]->dim[0].n) * sizeof(int32_t);
}

static bool embedding_acc_sample(tt_graph *g, int which)
{
	if (which > 1)
		return false;
	tt_dtype dt = sample_val(g);
	tt_dim v = dim(TT_VOCAB, 12, 1), d = dim(TT_D, 5, 1);
	tt_attr_embedding_acc a = { { 0, 12 }, which };
	tt_v in[] = { tt_sample_xy(g, "state", TT_ACC, v, d), tt_sample_ids(g, "ids", 6, TT_FILL_IDS), tt_sample_xy(g, "dy", dt, tokens(6), d),
		      tt_sample_xy(g, "w", dt, v, d) };
	tt_node_add(g, &tt_op_embedding_dw_acc, &a, 4, in, NULL);
	return true;
}

const tt_op tt_op_embedding_dw_acc = {
	.name = "embedding_dw_acc", .doc = "embedding_dw, accumulate: each id's sum is made, then added to its line of the state, or stored there",
	.cls = TT_CLASS_FUSED, .flags = TT_OP_ACC_SUM | TT_OP_INPLACE, .nin = 4, .nout = 1, .labels = "vd,_t,td,vd->vd",
	.outs = (const char *const[]){ "acc" }, .attr_size = sizeof(tt_attr_embedding_acc),
	.attrs = (const tt_attr[]){ { "first", TT_ATTR_INT, offsetof(tt_attr_embedding_acc, vocab.first) },
				    { "n", TT_ATTR_INT, offsetof(tt_attr_embedding_acc, vocab.n) },
				    { "store", TT_ATTR_BOOL, offsetof(tt_attr_embedding_acc, first) }, TT_ATTRS_END },
	.infer = embedding_acc_infer, .spmd = embedding_acc_spmd, .localise = embedding_acc_local, .scratch = embedding_acc_scratch,
	.sample = embedding_acc_sample,
};

/* ---- linear_dx, add, and a round if there is one --------------------------------------------------------------------------------------------- */

static bool dx_add_infer(tt_graph *g, const tt_op *op, const void *attr, int nin, const tt_value *const *in, int nout, tt_value *out)
{
	(void)nin, (void)nout;
	if (in[2]->dtype != TT_ACC) {
		tt_graph_fail(g, "%s: %s is %s, needs acc", op->name, in[2]->name, tt_dtype_name(in[2]->dtype));
		return false;
	}
	out[0].dtype = ((const tt_attr_linear_dx *)attr)->dtype;
	return tt_infer_val(g, op, in[0]) && tt_infer_val(g, op, in[1]);
}

static bool dx_add_spmd(const tt_typing *t)
{
	if (!part_typing(t, &tt_op_linear_dx, 0, 2))
		return false;
	if (!tt_axis_type_eq(t->tin[2], t->tout[0]))
		return tt_typing_reject(t, 2, "needs the type of the gradient it meets");
	return true;
}

static tt_cost dx_add_cost(const void *attr, int nin, const tt_value *const *in, int nout, const tt_value *const *out)
{
	return tt_op_linear_dx.cost(attr, nin - 1, in, nout, out);
}

static bool dx_add_sample(tt_graph *g, int which)
{
	if (which > 0)
		return false;
	tt_dtype dt = sample_val(g);
	tt_dim o = dim(TT_FFN, 12, 1), k = dim(TT_D, 5, 1);
	tt_attr_linear_dx a = { .dtype = TT_ACC };
	tt_v in[] = { tt_sample_xy(g, "dy", dt, tokens(6), o), tt_sample_xy(g, "w", dt, o, k), tt_sample_xy(g, "sum", TT_ACC, tokens(6), k) };
	tt_node_add(g, &tt_op_linear_dx_add, &a, 3, in, NULL);
	return true;
}

const tt_op tt_op_linear_dx_add = {
	.name = "linear_dx_add", .doc = "linear_dx, add, (round): sum + dy w, where several products have one input",
	.cls = TT_CLASS_FUSED, .flags = TT_OP_ACC_SUM, .nin = 3, .nout = 1, .labels = "to,ok,tk->tk", .outs = (const char *const[]){ "dx" },
	.attr_size = sizeof(tt_attr_linear_dx), .attrs = tt_linear_dx_attrs, .infer = dx_add_infer, .spmd = dx_add_spmd, .cost = dx_add_cost,
	.sample = dx_add_sample,
};

/* ---- products of one x over D, which is never split, and what is done with them by lines ---------------------------------------------------- */

static bool linear_silu_infer(tt_graph *g, const tt_op *op, const void *attr, int nin, const tt_value *const *in, int nout, tt_value *out)
{
	(void)nin;
	for (int i = 0; i < nout; i++) {
		out[i].dtype = ((const tt_attr_dtype *)attr)->dtype;
		out[i].gdtype = in[0]->dtype;
	}
	return tt_infer_val(g, op, in[0]) && tt_infer_val(g, op, in[1]) && tt_infer_val(g, op, in[2]);
}

static tt_cost linear_silu_cost(const void *attr, int nin, const tt_value *const *in, int nout, const tt_value *const *out)
{
	(void)nin;
	return (tt_cost){ .flops = 2 * tt_op_linear.cost(attr, 2, in, nout, out).flops };
}

static bool linear_silu_sample(tt_graph *g, int which)
{
	if (which > 0)
		return false;
	tt_dtype dt = sample_val(g);
	tt_dim f = dim(TT_FFN, 12, 1), d = dim(TT_D, 5, 1);
	tt_attr_dtype a = { dt };
	tt_v in[] = { tt_sample_xy(g, "x", dt, tokens(6), d), tt_sample_xy(g, "gate_w", dt, f, d), tt_sample_xy(g, "up_w", dt, f, d) };
	tt_node_add(g, &tt_op_linear_silu_mul, &a, 3, in, NULL);
	return true;
}

const tt_op tt_op_linear_silu_mul = {
	.name = "linear_silu_mul", .doc = "linear, linear, silu_mul: gate and up are rounded and kept, their product is made while they are in cache",
	.cls = TT_CLASS_FUSED, .nin = 3, .nout = 3, .labels = "tD,fD,fD->tf,tf,tf", .outs = (const char *const[]){ "gate", "up", "act" },
	.attr_size = sizeof(tt_attr_dtype), .attrs = tt_dtype_attrs, .infer = linear_silu_infer, .cost = linear_silu_cost, .sample = linear_silu_sample,
};

static bool linear_rope_infer(tt_graph *g, const tt_op *op, const void *attr, int nin, const tt_value *const *in, int nout, tt_value *out)
{
	(void)nin, (void)nout;
	out[0].dtype = ((const tt_attr_linear_rope *)attr)->dtype;
	out[0].gdtype = in[0]->dtype;
	return tt_infer_val(g, op, in[0]) && tt_infer_val(g, op, in[1]);
}

static tt_cost linear_rope_cost(const void *attr, int nin, const tt_value *const *in, int nout, const tt_value *const *out)
{
	(void)nin;
	return tt_op_linear.cost(attr, 2, in, nout, out);
}

static bool linear_rope_sample(tt_graph *g, int which)
{
	if (which > 0)
		return false;
	const double f[] = { 1, 0.1 };
	tt_dtype dt = sample_val(g);
	tt_dim d = dim(TT_D, 5, 1);
	tt_attr_linear_rope a = { { 4, false }, dt };
	tt_v in[] = { tt_sample_xy(g, "x", dt, tokens(6), d), tt_sample_xy(g, "w", dt, dim(TT_HEADS, 24, 4), d),
		      tt_rope_table(g, tt_sample_ids(g, "positions", 6, TT_FILL_POSITIONS), f, 2, 1) };
	tt_node_add(g, &tt_op_linear_rope, &a, 3, in, NULL);
	return true;
}

const tt_op tt_op_linear_rope = {
	.name = "linear_rope", .doc = "linear, rope: heads are rotated in their place while they are in cache",
	.cls = TT_CLASS_FUSED, .nin = 3, .nout = 1, .labels = "tD,hD,_tK->th", .outs = (const char *const[]){ "rope" },
	.attr_size = sizeof(tt_attr_linear_rope),
	.attrs = (const tt_attr[]){ { "head_dim", TT_ATTR_INT, offsetof(tt_attr_linear_rope, rope.head_dim) },
				    { "inverse", TT_ATTR_BOOL, offsetof(tt_attr_linear_rope, rope.inverse) },
				    { "dtype", TT_ATTR_DTYPE, offsetof(tt_attr_linear_rope, dtype) }, TT_ATTRS_END },
	.infer = linear_rope_infer, .cost = linear_rope_cost, .sample = linear_rope_sample,
};

/* ---- the residual and its norm --------------------------------------------------------------------------------------------------------------- */

static bool add_norm_infer(tt_graph *g, const tt_op *op, const void *attr, int nin, const tt_value *const *in, int nout, tt_value *out)
{
	(void)attr, (void)nin, (void)nout;
	for (int i = 0; i < 2; i++) {
		out[i].dtype = in[0]->dtype;
		out[i].gdtype = i ? in[0]->dtype : in[0]->gdtype;
	}
	out[2].dtype = tt_stat_dtype(g);
	return tt_infer_val(g, op, in[0]) && tt_infer_val(g, op, in[1]) && tt_infer_val(g, op, in[2]);
}

static tt_v sample_td(tt_graph *g, const char *name)
{
	return tt_sample_xy(g, name, sample_val(g), tokens(6), dim(TT_D, 20, 1));
}

static tt_v sample_d(tt_graph *g)
{
	return tt_sample_x(g, "w", sample_val(g), dim(TT_D, 20, 1));
}

static bool add_norm_sample(tt_graph *g, int which)
{
	if (which > 0)
		return false;
	tt_attr_norm a = { .eps = 1e-5 };
	tt_v in[] = { sample_td(g, "a"), sample_td(g, "b"), sample_d(g) };
	tt_node_add(g, &tt_op_add_rms_norm, &a, 3, in, NULL);
	return true;
}

const tt_op tt_op_add_rms_norm = {
	.name = "add_rms_norm", .doc = "add, rms_norm: the residual stream, rounded, and its norm",
	.cls = TT_CLASS_FUSED, .flags = TT_OP_INPLACE, .nin = 3, .nout = 3, .labels = "tD,tD,D->tD,tD,t",
	.outs = (const char *const[]){ "sum", "y", "rstd" }, .attr_size = sizeof(tt_attr_norm), .attrs = tt_norm_attrs, .infer = add_norm_infer,
	.sample = add_norm_sample,
};

/* The table says how wide a head is. */
static bool norm_rope_infer(tt_graph *g, const tt_op *op, const void *attr, int nin, const tt_value *const *in, int nout, tt_value *out)
{
	(void)attr, (void)nin, (void)nout;
	out[0].dtype = out[0].gdtype = in[0]->dtype;
	out[1].dtype = tt_stat_dtype(g);
	return tt_infer_val(g, op, in[0]) && tt_infer_val(g, op, in[1]);
}

static bool norm_rope_sample(tt_graph *g, int which)
{
	if (which > 0)
		return false;
	const double f[] = { 1, 0.1 };
	tt_attr_norm a = { .eps = 1e-5 };
	tt_dtype dt = sample_val(g);
	tt_dim h = dim(TT_HEADS, 24, 4);
	tt_v in[] = { tt_sample_xy(g, "x", dt, tokens(6), h), tt_sample_x(g, "w", dt, h), tt_rope_table(g, tt_sample_ids(g, "positions", 6, TT_FILL_POSITIONS), f, 2, 1) };
	tt_node_add(g, &tt_op_rms_norm_rope, &a, 3, in, NULL);
	return true;
}

const tt_op tt_op_rms_norm_rope = {
	.name = "rms_norm_rope", .doc = "rms_norm, rope: queries or keys that are normed, rotated in their place while they are in cache",
	.cls = TT_CLASS_FUSED, .flags = TT_OP_INPLACE, .nin = 3, .nout = 2, .labels = "tD,D,_tK->tD,t", .outs = (const char *const[]){ "rope", "rstd" },
	.attr_size = sizeof(tt_attr_norm), .attrs = tt_norm_attrs, .infer = norm_rope_infer, .sample = norm_rope_sample,
};

static bool norm_bwd_infer(tt_graph *g, const tt_op *op, const void *attr, int nin, const tt_value *const *in, int nout, tt_value *out)
{
	(void)attr, (void)nin, (void)nout;
	out[0].dtype = in[1]->dtype;
	out[1].dtype = TT_ACC;
	return tt_infer_val(g, op, in[0]) && tt_infer_val(g, op, in[1]) && tt_infer_val(g, op, in[4]);
}

/* [blocks of 128 tokens][D] partial sums of dw */
static size_t norm_bwd_scratch(const void *attr, int nin, const tt_value *const *in, int nout, const tt_value *const *out, const tt_env *env)
{
	(void)attr, (void)nin, (void)nout, (void)out;
	return (size_t)(tt_ceil_div(in[1]->dim[0].n, 128) * in[1]->dim[1].n) * (env->f64 ? sizeof(double) : sizeof(float));
}

static bool norm_bwd_sample(tt_graph *g, int which)
{
	if (which > 0)
		return false;
	tt_v in[] = { sample_td(g, "dy"), sample_td(g, "x"), sample_d(g), tt_sample_x(g, "rstd", tt_stat_dtype(g), tokens(6)), sample_td(g, "res") };
	tt_value_set_fill(g, in[3], TT_FILL_POSITIVE);
	tt_node_add(g, &tt_op_rms_norm_bwd, NULL, 5, in, NULL);
	return true;
}

const tt_op tt_op_rms_norm_bwd = {
	.name = "rms_norm_bwd", .doc = "rms_norm_dx, rms_norm_dw, add: dx, rounded, plus the residual's gradient; dw in blocks of 128 tokens",
	.cls = TT_CLASS_FUSED, .flags = TT_OP_ACC_SUM | TT_OP_INPLACE, .nin = 5, .nout = 2, .labels = "tD,tD,D,t,tD->tD,D",
	.outs = (const char *const[]){ "dx", "dw" }, .infer = norm_bwd_infer, .scratch = norm_bwd_scratch, .sample = norm_bwd_sample,
};

/* ---- cross-entropy of whole lines of logits: a vocabulary in shards needs the parts ------------------------------------------------------------ */

static bool entropy_infer(tt_graph *g, const tt_op *op, const void *attr, int nin, const tt_value *const *in, int nout, tt_value *out)
{
	(void)op, (void)nin, (void)in;
	out[nout - 1].dtype = out[nout - 1].gdtype = tt_stat_dtype(g);
	if (nout > 1)
		out[0].dtype = ((const tt_attr_nll_dx *)attr)->dtype;
	return true;
}

static bool entropy_sample(tt_graph *g, int which)
{
	if (which > 0)
		return false;
	tt_attr_vocab a = { 0, 12 };
	tt_v in[] = { tt_sample_xy(g, "x", tt_stat_dtype(g), tokens(6), dim(TT_VOCAB, 12, 1)), tt_sample_ids(g, "labels", 6, TT_FILL_LABELS) };
	tt_node_add(g, &tt_op_cross_entropy, &a, 2, in, NULL);
	return true;
}

const tt_op tt_op_cross_entropy = {
	.name = "cross_entropy", .doc = "row_max, sum_exp, pick, lse, nll: token losses from one read of the logits",
	.cls = TT_CLASS_FUSED, .nin = 2, .nout = 1, .labels = "tV,_t->t", .outs = (const char *const[]){ "nll" },
	.attr_size = sizeof(tt_attr_vocab), .attrs = tt_vocab_attrs, .infer = entropy_infer, .sample = entropy_sample,
};

static bool entropy_bwd_sample(tt_graph *g, int which)
{
	if (which > 0)
		return false;
	tt_attr_nll_dx a = { { 0, 12 }, sample_val(g) };
	tt_v in[] = { tt_sample_xy(g, "x", tt_stat_dtype(g), tokens(6), dim(TT_VOCAB, 12, 1)), tt_sample_ids(g, "labels", 6, TT_FILL_LABELS),
		      tt_sample_x(g, "dy", tt_stat_dtype(g), dim(TT_ONE, 1, 1)) };
	tt_node_add(g, &tt_op_cross_entropy_bwd, &a, 3, in, NULL);
	return true;
}

const tt_op tt_op_cross_entropy_bwd = {
	.name = "cross_entropy_bwd", .doc = "row_max, sum_exp, pick, lse, nll, nll_dx: token losses and the logits' gradient, one number dy for every token",
	.cls = TT_CLASS_FUSED, .flags = TT_OP_INPLACE, .nin = 3, .nout = 2, .labels = "tV,_t,1->tV,t", .outs = (const char *const[]){ "dx", "nll" },
	.attr_size = sizeof(tt_attr_nll_dx), .attrs = tt_nll_dx_attrs, .infer = entropy_infer, .sample = entropy_bwd_sample,
};

/* ---- a weight in both of its formats -------------------------------------------------------------------------------------------------------- */

static bool pair_infer(tt_graph *g, const tt_op *op, const void *attr, int nin, const tt_value *const *in, int nout, tt_value *out)
{
	(void)nin;
	for (int i = 0; i < nout; i++) {
		out[i].dtype = ((const tt_attr_dtype *)attr)->dtype;
		out[i].gdtype = in[0]->gdtype;
		out[i].format = i ? TT_PACK_DX : TT_PACK_FWD;
	}
	return tt_infer_val(g, op, in[0]);
}

static bool pair_sample(tt_graph *g, int which)
{
	static const int64_t sizes[][2] = { { 70, 9 }, { 64, 131 }, { 5, 64 } };
	if (which >= TT_COUNT(sizes) || g->f64)
		return false;
	tt_attr_dtype a = { sample_val(g) };
	tt_v w = tt_sample_xy(g, "w", sample_val(g), dim(TT_FFN, sizes[which][0], 1), dim(TT_D, sizes[which][1], 1));
	tt_node_add(g, &tt_op_pack_pair, &a, 1, &w, NULL);
	return true;
}

const tt_op tt_op_pack_pair = {
	.name = "pack_pair", .doc = "pack, pack: the panels of linear and those of linear_dx, cast on the way (PREP)",
	.cls = TT_CLASS_FUSED, .nin = 1, .nout = 2, .labels = "*->*,*", .outs = (const char *const[]){ "fwd", "dx" },
	.attrs = tt_dtype_attrs, .attr_size = sizeof(tt_attr_dtype), .infer = pair_infer, .sample = pair_sample,
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
