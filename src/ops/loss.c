/* loss.c: cross-entropy over a vocabulary that may be sharded, and never gathered.
 *
 *   m = max_v x;  s = sum_v exp(x - m);  lse = m + log s;  target = x[label];  nll = lse - target.
 *
 * m, s and target are statistics: they carry no gradient of their own. The whole derivative, dx = (softmax(x) - onehot) dnll, is nll's.
 */
#include "ops/internal.h"

static tt_v sample_logits(tt_graph *g)
{
	return tt_sample_xy(g, "x", tt_stat_dtype(g), tokens(6), dim(TT_VOCAB, 12, 1));
}

static bool row_max_spmd(const tt_typing *t)
{
	if (t->tin[0].type == TT_S && t->tin[0].dim == 1) {
		t->tout[0] = (tt_axis_type){ .type = TT_M };
		return true;
	}
	return tt_spmd_by_labels(t);
}

static bool row_max_sample(tt_graph *g, int which)
{
	if (which > 0)
		return false;
	tt_v x = sample_logits(g);
	tt_node_add(g, &tt_op_row_max, NULL, 1, &x, NULL);
	return true;
}

const tt_op tt_op_row_max = {
	.name = "row_max", .doc = "the largest of each line; a maximum over a sharded dim is M",
	.cls = TT_CLASS_META, .nin = 1, .nout = 1, .labels = "tv->t", .outs = (const char *const[]){ "max" }, .infer = tt_infer_stat,
	.spmd = row_max_spmd, .sample = row_max_sample,
};

/* What of each segment lies in this piece; blocks are counted anew from a cut. */
static void sum_exp_local(void *attr, tt_arena *a, const tt_piece *const *in, const tt_piece *const *out)
{
	(void)out;
	tt_segments_local(&((tt_attr_sum_exp *)attr)->segments, a, &in[0][1]);
}

static bool sum_exp_sample(tt_graph *g, int which)
{
	if (which > 0)
		return false;
	int64_t edges[9];
	tt_v x = sample_logits(g);
	tt_segments_deal(&tt_value_get(g, x)->dim[1], edges);
	tt_attr_sum_exp a = { { 9, edges } };
	tt_v in[] = { x, tt_node_add(g, &tt_op_row_max, NULL, 1, &x, NULL) };
	tt_node_add(g, &tt_op_sum_exp, &a, 2, in, NULL);
	return true;
}

const tt_op tt_op_sum_exp = {
	.name = "sum_exp", .doc = "sum of exp(x - m) of each line, in blocks of 256 from the start of each of 8 segments",
	.cls = TT_CLASS_META, .flags = TT_OP_ACC_SUM, .nin = 2, .nout = 1, .labels = "tv,t->t", .outs = (const char *const[]){ "sum_exp" },
	.attr_size = sizeof(tt_attr_sum_exp),
	.attrs = (const tt_attr[]){ { "segments", TT_ATTR_INTS, offsetof(tt_attr_sum_exp, segments) }, TT_ATTRS_END },
	.infer = tt_infer_acc, .localise = sum_exp_local, .sample = sum_exp_sample,
};

/* Of pick, nll and nll_dx: the ids of this shard. */
static void vocab_local(void *attr, tt_arena *a, const tt_piece *const *in, const tt_piece *const *out)
{
	(void)a, (void)out;
	*(tt_attr_vocab *)attr = (tt_attr_vocab){ in[0][1].start, in[0][1].n };
}

static bool pick_sample(tt_graph *g, int which)
{
	if (which > 0)
		return false;
	tt_attr_vocab a = { 0, 12 };
	tt_v in[] = { sample_logits(g), tt_sample_ids(g, "labels", 6, TT_FILL_LABELS) };
	tt_node_add(g, &tt_op_pick, &a, 2, in, NULL);
	return true;
}

const tt_op tt_op_pick = {
	.name = "pick", .doc = "x[label] of each line; 0 where the label is ignored or lies in another shard",
	.cls = TT_CLASS_META, .flags = TT_OP_ACC_SUM, .nin = 2, .nout = 1, .labels = "tv,_t->t", .outs = (const char *const[]){ "target" },
	.attr_size = sizeof(tt_attr_vocab),
	.attrs = (const tt_attr[]){ { "first", TT_ATTR_INT, offsetof(tt_attr_vocab, first) }, { "n", TT_ATTR_INT, offsetof(tt_attr_vocab, n) }, TT_ATTRS_END },
	.infer = tt_infer_acc, .localise = vocab_local, .sample = pick_sample,
};

static bool lse_sample(tt_graph *g, int which)
{
	if (which > 0)
		return false;
	tt_v in[] = { tt_sample_x(g, "m", tt_stat_dtype(g), tokens(6)), tt_sample_x(g, "s", tt_stat_dtype(g), tokens(6)) };
	tt_value_set_fill(g, in[1], TT_FILL_POSITIVE);
	tt_node_add(g, &tt_op_lse, NULL, 2, in, NULL);
	return true;
}

const tt_op tt_op_lse = {
	.name = "lse", .doc = "m + log(s)",
	.cls = TT_CLASS_META, .nin = 2, .nout = 1, .labels = "t,t->t", .outs = (const char *const[]){ "lse" }, .infer = tt_infer_stat, .sample = lse_sample,
};

/* ---- nll ----------------------------------------------------------------------------------------------------------------------------- */

static bool nll_infer(tt_graph *g, const tt_op *op, const void *attr, int nin, const tt_value *const *in, int nout, tt_value *out)
{
	(void)op, (void)attr, (void)nin, (void)nout, (void)in;
	out[0].dtype = out[0].gdtype = tt_stat_dtype(g);
	return true;
}

/* x may be sharded by vocabulary if the statistics are whole and the loss is the same work on every rank: I. */
static bool nll_spmd(const tt_typing *t)
{
	bool backward = t->op == &tt_op_nll_dx;
	if (t->tin[0].type == TT_S && t->tin[0].dim == 1) {
		if (t->tin[1].type != TT_R)
			return tt_typing_reject(t, 1, "needs R beside logits sharded by vocabulary");
		for (int i = 2; i < 4; i++)
			if (t->tin[i].type != TT_I)
				return tt_typing_reject(t, i, "needs I beside logits sharded by vocabulary");
		t->tout[0] = backward ? t->tin[0] : (tt_axis_type){ .type = TT_I };
		return true;
	}
	return tt_spmd_by_labels(t);
}

static void nll_vjp(tt_vjp *v)
{
	const tt_v *in = v->node->in;
	tt_attr_vocab a = *(const tt_attr_vocab *)v->node->attr;
	tt_v x[] = { in[0], in[1], in[2], v->dout[0] };
	tt_dtype gdt = tt_value_get(v->g, in[0])->gdtype;
	tt_attr_nll_dx attr = { a, gdt };
	v->din[0] = tt_node_add(v->g, &tt_op_nll_dx, &attr, 4, x, NULL);
}

tt_v tt_token_loss(tt_graph *g, tt_v logits, tt_v labels)
{
	if (!logits || !labels)
		return 0;
	int64_t edges[9];
	tt_segments_deal(&tt_value_get(g, logits)->dim[1], edges);
	tt_attr_sum_exp se = { { 9, edges } };
	tt_attr_vocab vocab = { 0, tt_value_get(g, logits)->dim[1].n };
	tt_dtype stat = tt_stat_dtype(g);
	tt_v max[] = { logits, tt_node_add(g, &tt_op_row_max, NULL, 1, &logits, NULL) };
	tt_v s = tt_round(g, tt_node_add(g, &tt_op_sum_exp, &se, 2, max, NULL), stat, "sum_exp.y");
	tt_v at[] = { logits, labels };
	tt_v target = tt_round(g, tt_node_add(g, &tt_op_pick, &vocab, 2, at, NULL), stat, "target.y");
	tt_v l[] = { max[1], s };
	tt_v lse = tt_node_add(g, &tt_op_lse, NULL, 2, l, NULL);
	tt_v in[] = { logits, labels, lse, target };
	return tt_node_add(g, &tt_op_nll, &vocab, 4, in, NULL);
}

static bool nll_sample(tt_graph *g, int which)
{
	if (which > 0)
		return false;
	tt_token_loss(g, sample_logits(g), tt_sample_ids(g, "labels", 6, TT_FILL_LABELS));
	return true;
}

const tt_attr tt_vocab_attrs[] = { { "first", TT_ATTR_INT, offsetof(tt_attr_vocab, first) }, { "n", TT_ATTR_INT, offsetof(tt_attr_vocab, n) }, TT_ATTRS_END };

const tt_op tt_op_nll = {
	.name = "nll", .doc = "negative log-likelihood of each label, lse - target; 0 where the label is ignored",
	.cls = TT_CLASS_FORWARD, .nin = 4, .nout = 1, .labels = "tv,_t,t,t->t", .outs = (const char *const[]){ "nll" },
	.attr_size = sizeof(tt_attr_vocab), .attrs = tt_vocab_attrs, .infer = nll_infer, .spmd = nll_spmd, .vjp = nll_vjp,
	.localise = vocab_local, .sample = nll_sample,
};

static bool nll_dx_infer(tt_graph *g, const tt_op *op, const void *attr, int nin, const tt_value *const *in, int nout, tt_value *out)
{
	(void)g, (void)op, (void)nin, (void)nout, (void)in;
	out[0].dtype = ((const tt_attr_nll_dx *)attr)->dtype;
	return true;
}

static bool nll_dx_sample(tt_graph *g, int which)
{
	if (which > 0)
		return false;
	tt_attr_nll_dx a = { { 0, 12 }, sample_val(g) };
	tt_v in[] = { sample_logits(g), tt_sample_ids(g, "labels", 6, TT_FILL_LABELS), tt_sample_x(g, "lse", tt_stat_dtype(g), tokens(6)),
		      tt_sample_x(g, "dy", tt_stat_dtype(g), tokens(6)) };
	tt_node_add(g, &tt_op_nll_dx, &a, 4, in, NULL);
	return true;
}

const tt_attr tt_nll_dx_attrs[] = { { "first", TT_ATTR_INT, offsetof(tt_attr_nll_dx, vocab.first) }, { "n", TT_ATTR_INT, offsetof(tt_attr_nll_dx, vocab.n) },
				    { "dtype", TT_ATTR_DTYPE, offsetof(tt_attr_nll_dx, dtype) }, TT_ATTRS_END };

const tt_op tt_op_nll_dx = {
	.name = "nll_dx", .doc = "dx = (exp(x - lse) - onehot(label)) dnll; 0 where the label is ignored",
	.cls = TT_CLASS_BACKWARD, .nin = 4, .nout = 1, .labels = "tv,_t,t,t->tv", .outs = (const char *const[]){ "dx" },
	.attr_size = sizeof(tt_attr_nll_dx),
	.attrs = tt_nll_dx_attrs,
	.infer = nll_dx_infer, .spmd = nll_spmd, .localise = vocab_local, .sample = nll_dx_sample,
};

/* ---- the sum over tokens, and its gradient ------------------------------------------------------------------------------------------------ */

static bool total_infer(tt_graph *g, const tt_op *op, const void *attr, int nin, const tt_value *const *in, int nout, tt_value *out)
{
	(void)g, (void)op, (void)attr, (void)nin, (void)nout;
	out[0].dtype = TT_ACC;
	out[0].gdtype = in[0]->gdtype;
	return true;
}

tt_v tt_total(tt_graph *g, tt_v x, const char *role)
{
	return tt_node_add(g, &tt_op_total, NULL, 1, &x, role);
}

static void total_vjp(tt_vjp *v)
{
	tt_v in[] = { v->dout[0], v->node->in[0] };
	v->din[0] = tt_node_add(v->g, &tt_op_broadcast, NULL, 2, in, NULL);
}

static bool total_sample(tt_graph *g, int which)
{
	if (which > 0)
		return false;
	tt_total(g, tt_sample_x(g, "x", tt_stat_dtype(g), tokens(6)), NULL);
	return true;
}

const tt_op tt_op_total = {
	.name = "total", .doc = "sum over tokens, in fixed blocks of 128",
	.cls = TT_CLASS_FORWARD, .flags = TT_OP_ACC_SUM, .nin = 1, .nout = 1, .labels = "t->1", .outs = (const char *const[]){ "total" },
	.infer = total_infer, .vjp = total_vjp, .sample = total_sample,
};

/* `like` gives extents and layout; its content is not read. */
static bool broadcast_spmd(const tt_typing *t)
{
	tt_axis_type s = t->tin[0], like = t->tin[1];
	bool ok = like.type == TT_I ? s.type == TT_I : s.type == TT_R;
	if (like.type == TT_P || like.type == TT_M)
		return tt_typing_reject(t, 1, "a reduction not yet taken: convert it to R, I or S");
	if (!ok)
		return tt_typing_reject(t, 0, "needs %s beside %s", like.type == TT_I ? "I" : "R", t->in[1]->name);
	t->tout[0] = like;
	return true;
}

static bool broadcast_sample(tt_graph *g, int which)
{
	if (which > 0)
		return false;
	tt_v in[] = { tt_sample_x(g, "s", tt_stat_dtype(g), dim(TT_ONE, 1, 1)), tt_sample_x(g, "like", tt_stat_dtype(g), tokens(6)) };
	tt_node_add(g, &tt_op_broadcast, NULL, 2, in, NULL);
	return true;
}

const tt_op tt_op_broadcast = {
	.name = "broadcast", .doc = "one number for every token",
	.cls = TT_CLASS_BACKWARD, .nin = 2, .nout = 1, .labels = "1,t->t", .outs = (const char *const[]){ "broadcast" }, .infer = tt_infer_stat,
	.spmd = broadcast_spmd, .sample = broadcast_sample,
};
