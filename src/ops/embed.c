/* embed.c: the vocabulary's look-up table. The look-up is a product with one-hot lines, so it contracts the vocabulary: acc. */
#include "ops/internal.h"

static bool embedding_infer(tt_graph *g, const tt_op *op, const void *attr, int nin, const tt_value *const *in, int nout, tt_value *out)
{
	(void)attr, (void)nin, (void)nout;
	out[0].dtype = TT_ACC;
	out[0].gdtype = in[1]->dtype;
	return tt_infer_val(g, op, in[1]);
}

tt_v tt_embedding(tt_graph *g, tt_v ids, tt_v w, const char *role)
{
	if (!ids || !w)
		return 0;
	tt_attr_vocab a = { 0, tt_value_get(g, w)->dim[0].n };
	tt_v in[] = { ids, w };
	tt_dtype dt = tt_value_get(g, w)->dtype;
	return tt_round(g, tt_node_add(g, &tt_op_embedding, &a, 2, in, NULL), dt, role);
}

static void embedding_vjp(tt_vjp *v)
{
	tt_v in[] = { v->node->in[0], v->dout[0], v->node->in[1] };
	v->din[1] = tt_node_add(v->g, &tt_op_embedding_dw, v->node->attr, 3, in, NULL);
}

static const tt_attr vocab_attrs[] = { { "first", TT_ATTR_INT, offsetof(tt_attr_vocab, first) }, { "n", TT_ATTR_INT, offsetof(tt_attr_vocab, n) }, TT_ATTRS_END };

static void table_local(void *attr, const tt_piece *vocab)
{
	*(tt_attr_vocab *)attr = (tt_attr_vocab){ vocab->start, vocab->n };
}

static void embedding_local(void *attr, tt_arena *a, const tt_piece *const *in, const tt_piece *const *out)
{
	(void)a, (void)out;
	table_local(attr, &in[1][0]);
}

static bool embedding_sample(tt_graph *g, int which)
{
	if (which > 0)
		return false;
	tt_attr_vocab a = { 0, 12 };
	tt_v in[] = { tt_sample_ids(g, "ids", 6, TT_FILL_IDS), tt_sample_xy(g, "w", sample_val(g), dim(TT_VOCAB, 12, 1), dim(TT_D, 5, 1)) };
	tt_node_add(g, &tt_op_embedding, &a, 2, in, NULL);
	return true;
}

const tt_op tt_op_embedding = {
	.name = "embedding", .doc = "line ids[t] of the table; zeros where the id lies in another shard",
	.cls = TT_CLASS_FORWARD, .flags = TT_OP_ACC_SUM, .nin = 2, .nout = 1, .labels = "_t,vd->td", .outs = (const char *const[]){ "embedding" },
	.attrs = vocab_attrs, .attr_size = sizeof(tt_attr_vocab), .infer = embedding_infer, .vjp = embedding_vjp,
	.localise = embedding_local, .sample = embedding_sample,
};

/* The table itself is an input for its dims and layout alone: which lines and columns this rank's gradient has. */
static bool embedding_dw_spmd(const tt_typing *t)
{
	tt_axis_type w = t->tin[2], dy = t->tin[1], whole = { .type = TT_R };
	if (w.type == TT_S && w.dim == 0) {
		for (int i = 0; i < 2; i++)
			if (t->tin[i].type != TT_R)
				return tt_typing_reject(t, i, "needs R beside a table sharded by vocabulary");
		t->tout[0] = w;
		return true;
	}
	bool by_tokens = dy.type == TT_S && dy.dim == 0;
	if (!tt_axis_type_eq(w, by_tokens ? whole : dy))
		return tt_typing_reject(t, 2, by_tokens ? "needs R beside %s sharded by tokens" : "needs the type of %s", t->in[1]->name);
	tt_typing u = *t;
	u.nin = 2;
	return tt_spmd_by_labels(&u);
}

static bool embedding_dw_infer(tt_graph *g, const tt_op *op, const void *attr, int nin, const tt_value *const *in, int nout, tt_value *out)
{
	(void)attr, (void)nin, (void)nout;
	out[0].dtype = TT_ACC;
	return tt_infer_val(g, op, in[1]);
}

static void embedding_dw_local(void *attr, tt_arena *a, const tt_piece *const *in, const tt_piece *const *out)
{
	(void)a, (void)out;
	table_local(attr, &in[2][0]);
}

static bool embedding_dw_sample(tt_graph *g, int which)
{
	if (which > 0)
		return false;
	tt_attr_vocab a = { 0, 12 };
	tt_dtype dt = sample_val(g);
	tt_v in[] = { tt_sample_ids(g, "ids", 6, TT_FILL_IDS), tt_sample_xy(g, "dy", dt, tokens(6), dim(TT_D, 5, 1)),
		      tt_sample_xy(g, "w", dt, dim(TT_VOCAB, 12, 1), dim(TT_D, 5, 1)) };
	tt_node_add(g, &tt_op_embedding_dw, &a, 3, in, NULL);
	return true;
}

const tt_op tt_op_embedding_dw = {
	.name = "embedding_dw", .doc = "dw[ids[t]] += dy[t], in fixed blocks of 128 tokens",
	.cls = TT_CLASS_BACKWARD, .flags = TT_OP_ACC_SUM, .nin = 3, .nout = 1, .labels = "_t,td,vd->vd", .outs = (const char *const[]){ "dw" },
	.attrs = vocab_attrs, .attr_size = sizeof(tt_attr_vocab), .infer = embedding_dw_infer, .spmd = embedding_dw_spmd,
	.localise = embedding_dw_local, .sample = embedding_dw_sample,
};
