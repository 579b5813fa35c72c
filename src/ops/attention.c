/* attention.c: rotary positions and causal attention within sequences (Vaswani 2017; Su 2021; the blockwise recurrence after
 * Dao 2022, written down in EXACT.md). Heads lie side by side in the feature dim: q [t, H*K], k [s, G*K], v [s, G*K'].
 */
#include "kernels/attention.h"
#include "ops/attention.h"

/* ---- rope ----------------------------------------------------------------------------------------------------------------------- */

static bool table_infer(tt_graph *g, const tt_op *op, const void *attr, int nin, const tt_value *const *in, int nout, tt_value *out)
{
	(void)op, (void)nin, (void)nout;
	const tt_attr_rope_table *a = attr;
	out[0].ndim = 2;
	out[0].dim[0] = in[0]->dim[0];
	out[0].dim[1] = tt_dim_of(TT_HEAD_DIM, 2 * a->inv_freq.n, 1);
	out[0].dtype = tt_stat_dtype(g);
	return true;
}

static bool table_spmd(const tt_typing *t)
{
	t->tout[0] = t->tin[0];
	if (t->tin[0].type != TT_R && (t->tin[0].type != TT_S || t->tin[0].dim != 0))
		return tt_typing_reject(t, 0, "needs R, or S(0) where tokens are sharded");
	return true;
}

tt_v tt_rope_table(tt_graph *g, tt_v positions, const double *inv_freq, int64_t n, double scale)
{
	tt_attr_rope_table a = { { n, inv_freq }, scale };
	return tt_node_add(g, &tt_op_rope_table, &a, 1, &positions, NULL);
}

static bool table_sample(tt_graph *g, int which)
{
	if (which > 0)
		return false;
	const double f[] = { 1, 0.1, 0.01 };
	tt_rope_table(g, tt_sample_ids(g, "positions", 6, TT_FILL_POSITIONS), f, 3, 1.25);
	return true;
}

const tt_op tt_op_rope_table = {
	.name = "rope_table", .doc = "cos and sin of position * inv_freq, times scale: [cos K/2, sin K/2] for each token",
	.cls = TT_CLASS_META, .nin = 1, .nout = 1, .outs = (const char *const[]){ "rope" }, .attr_size = sizeof(tt_attr_rope_table),
	.attrs = (const tt_attr[]){ { "inv_freq", TT_ATTR_REALS, offsetof(tt_attr_rope_table, inv_freq) },
				    { "scale", TT_ATTR_REAL, offsetof(tt_attr_rope_table, scale) }, TT_ATTRS_END },
	.infer = table_infer, .spmd = table_spmd, .sample = table_sample,
};

static bool rope_infer(tt_graph *g, const tt_op *op, const void *attr, int nin, const tt_value *const *in, int nout, tt_value *out)
{
	(void)nin, (void)nout;
	const tt_attr_rope *a = attr;
	if (in[0]->dim[1].n % a->head_dim || in[1]->dim[1].n != a->head_dim) {
		tt_graph_fail(g, "rope: %s has %lld features, the table is for heads of %lld", in[0]->name, (long long)in[0]->dim[1].n,
			      (long long)in[1]->dim[1].n);
		return false;
	}
	out[0].dtype = out[0].gdtype = in[0]->dtype;
	return tt_infer_val(g, op, in[0]);
}

static tt_v build_rope(tt_graph *g, tt_v x, tt_v table, int64_t head_dim, bool inverse, const char *role)
{
	tt_attr_rope a = { head_dim, inverse };
	tt_v in[] = { x, table };
	return tt_node_add(g, &tt_op_rope, &a, 2, in, role);
}

tt_v tt_rope(tt_graph *g, tt_v x, tt_v table, int64_t head_dim, const char *role)
{
	return build_rope(g, x, table, head_dim, false, role);
}

static void rope_vjp(tt_vjp *v)
{
	const tt_attr_rope *a = v->node->attr;
	v->din[0] = build_rope(v->g, v->dout[0], v->node->in[1], a->head_dim, !a->inverse, "dx");
}

static bool rope_sample(tt_graph *g, int which)
{
	if (which > 0)
		return false;
	const double f[] = { 1, 0.1 };
	tt_v table = tt_rope_table(g, tt_sample_ids(g, "positions", 6, TT_FILL_POSITIONS), f, 2, 1);
	tt_rope(g, tt_sample_xy(g, "x", sample_val(g), tokens(6), dim(TT_HEADS, 24, 4)), table, 4, NULL);
	return true;
}

/* The rope table meets x along tokens; its second dim is whole on every rank whatever heads x has. */
const tt_op tt_op_rope = {
	.name = "rope", .doc = "rotates the halves (a, b) of every head by the token's angle: (a cos - b sin, b cos + a sin)",
	.cls = TT_CLASS_FORWARD, .flags = TT_OP_INPLACE, .nin = 2, .nout = 1, .labels = "th,_tK->th", .outs = (const char *const[]){ "rope" },
	.attr_size = sizeof(tt_attr_rope),
	.attrs = (const tt_attr[]){ { "head_dim", TT_ATTR_INT, offsetof(tt_attr_rope, head_dim) },
				    { "inverse", TT_ATTR_BOOL, offsetof(tt_attr_rope, inverse) }, TT_ATTRS_END },
	.infer = rope_infer, .vjp = rope_vjp, .sample = rope_sample,
};

/* ---- attention -------------------------------------------------------------------------------------------------------------------- */

bool tt_heads_agree(tt_graph *g, const tt_attr_attention *a, const tt_value *q, const tt_value *k, const tt_value *v)
{
	if (q->ndim != 2 || k->ndim != 2 || v->ndim != 2 || k->dim[0].n != v->dim[0].n) {
		tt_graph_fail(g, "attention: q, k and v must be [tokens, features], k and v of the same tokens");
		return false;
	}
	int64_t kv = k->dim[1].n / a->head_dim;
	if (k->dim[1].n % a->head_dim || q->dim[1].n != kv * a->group * a->head_dim || v->dim[1].n != kv * a->v_head_dim) {
		tt_graph_fail(g, "attention: q has %lld features, k %lld, v %lld; needs %lld q heads of %lld for each kv head", (long long)q->dim[1].n,
			      (long long)k->dim[1].n, (long long)v->dim[1].n, (long long)a->group, (long long)a->head_dim);
		return false;
	}
	return true;
}

/* A position and a sequence for each token of q, a line for each of k; round a ring, lines of all ranks. */
bool tt_tables_agree(tt_graph *g, const tt_attr_attention *a, const tt_value *const *in, const tt_value *const *table)
{
	for (int i = 0; i < 4; i++) {
		const tt_value *like = in[i == 3];
		if (table[i]->ndim == 1 && (i == 2 || (i == 3 && a->parts) || table[i]->dim[0].n == like->dim[0].n))
			continue;
		tt_graph_fail(g, "attention: %s does not have an entry for each of the %lld tokens of %s", table[i]->name, (long long)like->dim[0].n,
			      like->name);
		return false;
	}
	return true;
}

static bool attention_infer(tt_graph *g, const tt_op *op, const void *attr, int nin, const tt_value *const *in, int nout, tt_value *out)
{
	(void)nin, (void)nout;
	const tt_attr_attention *a = attr;
	if (!tt_heads_agree(g, a, in[0], in[1], in[2]) || !tt_infer_val(g, op, in[0]))
		return false;
	int64_t heads = in[0]->dim[1].n / a->head_dim;
	if (!tt_tables_agree(g, a, in, in + 3))
		return false;
	for (int i = 0; i < 2; i++) {
		out[i].ndim = 2;
		out[i].dim[0] = in[0]->dim[0];
		out[i].dim[1] = tt_dim_of(TT_HEADS, i ? heads : heads * a->v_head_dim, i ? 1 : a->v_head_dim);
		out[i].dim[1].group = a->group;
	}
	out[0].dtype = out[0].gdtype = in[0]->dtype;
	out[1].dtype = tt_stat_dtype(g);
	return true;
}

/* q's heads are sharded along this axis among ranks that share one kv head: k and v are R, one head of them after all other axes. */
static bool shares_kv_head(const tt_typing *t, int nkv)
{
	const tt_attr_attention *a = t->attr;
	if (t->tin[0].type != TT_S || t->tin[0].dim != 1 || t->tin[1].type != TT_R || t->tin[nkv].type != TT_R)
		return false;
	int64_t heads = t->in[1]->dim[1].n / a->head_dim;
	for (int i = 0; i < t->g->mesh.naxes; i++) {
		tt_axis_type k = t->in[1]->layout.ax[i];
		if (&t->g->mesh.ax[i] != t->axis && t->g->mesh.ax[i].size > 1 && k.type == TT_S && k.dim == 1)
			heads = tt_ceil_div(heads, t->g->mesh.ax[i].size);
	}
	return heads == 1 && a->group % t->axis->size == 0;
}

/* Ranks along all axes that cut K/V by heads; a rank without one has nothing that its q heads could meet. */
static int64_t kv_cuts(const tt_typing *t)
{
	int64_t ranks = 1;
	for (int i = 0; i < t->g->mesh.naxes; i++) {
		tt_axis_type k = t->in[1]->layout.ax[i];
		if (k.type == TT_S && k.dim == 1)
			ranks *= t->g->mesh.ax[i].size;
	}
	return ranks;
}

/* q heads of a kv head, as many as this rank has; round a ring, whose K and V it has at this turn. */
void tt_attention_local(void *attr, tt_arena *arena, const tt_piece *const *in, const tt_piece *const *out)
{
	(void)arena, (void)out;
	tt_attr_attention *a = attr;
	a->group = TT_MAX((int64_t)1, in[0][1].n / TT_MAX(in[1][1].n, (int64_t)1));
	if (a->parts) {
		TT_ASSERT(in[1][0].parts == a->parts, "a ring of %lld, K in %d pieces", (long long)a->parts, in[1][0].parts);
		a->part = in[1][0].part;
	}
}

/* Along an axis: heads sharded everywhere; or tokens: in whole rows q, k and v alike (sequences stay together), else q alone with k, v whole (then
 * dk and dv are P), or round a ring k, v in pieces too, those of the rank a->shift further on; or one type everywhere. */
bool tt_attention_typing(const tt_typing *t, int nkv, int tables, bool backward)
{
	const tt_attr_attention *a = t->attr;
	tt_axis_type q = t->tin[0];
	bool shared = shares_kv_head(t, nkv);
	for (int i = 0; i < t->nin; i++)
		if ((i < tables || i >= tables + 4) && t->in[i] && (t->tin[i].type == TT_P || t->tin[i].type == TT_M))
			return tt_typing_reject(t, i, "a reduction not yet taken: convert it before attention");
		else if (!tt_typing_coarse(t, i))
			return false;
	int64_t kv_heads = t->in[1]->dim[1].n / a->head_dim;
	if (t->tin[1].type == TT_S && t->tin[1].dim == 1 && kv_cuts(t) > kv_heads)
		return tt_typing_reject(t, 1, "needs R here: %lld kv heads are fewer than the %lld ranks that cut them", (long long)kv_heads, (long long)kv_cuts(t));
	bool tokens_split = q.type == TT_S && q.dim == 0, cut = tokens_split && !t->axis->rows, ring = cut && a->parts;
	if (ring && a->parts != t->axis->size)
		return tt_typing_reject(t, 1, "but the ring has %lld ranks, needs one of %d", (long long)a->parts, t->axis->size);
	for (int i = 0; i < t->nin; i++) {
		if (!t->in[i])
			continue;
		bool kv = i > 0 && i <= nkv;
		tt_axis_type want = q;
		if (i >= tables && i < tables + 4) { /* positions, seq_ids lie along q; the table is whole; lines lie along k */
			int m = i - tables;
			if (m == 2 || !tokens_split)
				want = (tt_axis_type){ .type = TT_R };
			else if (m == 3)
				want = t->axis->rows ? q : (tt_axis_type){ .type = TT_R };
			if (q.type == TT_V)
				continue;
		} else if (kv && ring) {
			want.shift = (int16_t)a->shift;
		} else if (kv && (cut || shared)) {
			want = (tt_axis_type){ .type = TT_R };
		}
		if (!tt_axis_type_eq(t->tin[i], want)) {
			tt_buf b = { 0 };
			tt_axis_type_print(want, &b);
			tt_typing_reject(t, i, want.type == TT_S && t->tin[i].type == TT_S && t->tin[i].dim == want.dim ? "needs %s with its axes in the order of q's, where q is %s%s" : "needs %s where q is %s%s", b.s, tokens_split ? "sharded by tokens" : q.type == TT_S ? "sharded by heads" : "of one type",
					 kv && tokens_split && !ring ? " and its sequences are cut (gather K/V)" : kv && q.type == TT_S ? ", or R where its ranks share one kv head" : "");
			tt_buf_fini(&b);
			return false;
		}
	}
	for (int i = 0; i < t->nout; i++) {
		t->tout[i] = q;
		if (backward && i > 0 && ring)
			t->tout[i].shift = (int16_t)a->shift;
		else if (backward && i > 0 && (cut || shared))
			t->tout[i] = (tt_axis_type){ .type = TT_P };
	}
	return true;
}

static bool attention_spmd(const tt_typing *t)
{
	return tt_attention_typing(t, 2, 3, false);
}

static bool attention_bwd_spmd(const tt_typing *t)
{
	return tt_attention_typing(t, 2, 6, true);
}

tt_v tt_attention(tt_graph *g, tt_v q, tt_v k, tt_v v, const tt_seqs *s, const tt_attr_attention *a, const char *role)
{
	tt_v in[] = { q, k, v, s->positions, s->seq_ids, s->seq_table, s->lines };
	return tt_node_add(g, &tt_op_attention, a, 7, in, role);
}

static void attention_vjp(tt_vjp *v)
{
	const tt_v *n = v->node->in;
	tt_v in[] = { n[0], n[1], n[2], v->node->out[0], v->node->out[1], v->dout[0], n[3], n[4], n[5], n[6] };
	tt_v first = tt_node_add(v->g, &tt_op_attention_bwd, v->node->attr, 10, in, NULL);
	for (int i = 0; i < 3; i++)
		v->din[i] = tt_out(first, i);
}

double tt_attention_pairs(const tt_attr_attention *a, const tt_value *q, const tt_value *k, const tt_value *table, const tt_value *all)
{
	int64_t lines = k->dim[0].n, n = table->dim[0].n - 1; /* of K/V; sequences */
	double t = (double)q->dim[0].n;
	/* Sequences of one length; a bound of as many as there are tokens says nothing, and they count as one. The queries of a share are spread evenly. */
	double length = (double)lines / (double)(n > 0 && n < lines ? n : 1), w = a->window > 0 && (double)a->window < length ? (double)a->window : length;
	double pairs = length > 0 ? t * (w * (w + 1) / 2 + (length - w) * w) / length : 0;
	return a->parts && lines == all->dim[0].n ? pairs / (double)a->parts : pairs; /* one turn of a ring, on all ranks: each has but its share of K/V */
}

static tt_cost attention_cost(const void *attr, int nin, const tt_value *const *in, int nout, const tt_value *const *out)
{
	(void)out;
	const tt_attr_attention *a = attr;
	double heads = (double)(in[0]->dim[1].n / a->head_dim), products = nout == 3 ? 5 : 2; /* S, O; backward: S, dP, dQ, dK, dV */
	return (tt_cost){ .flops = products * heads * tt_attention_pairs(a, in[0], in[1], in[nin - 2], in[nin - 1]) * (double)(a->head_dim + a->v_head_dim) };
}

size_t tt_attention_op_scratch(const void *attr, int nin, const tt_value *const *in, int nout, const tt_value *const *out, const tt_env *env)
{
	(void)nout, (void)out;
	int64_t lines = 0; /* the longest table of tokens */
	for (int i = 1; i < nin; i++)
		if (in[i] && in[i]->dtype == TT_I32 && in[i]->dim[0].role == TT_TOKENS)
			lines = TT_MAX(lines, in[i]->dim[0].n);
	return tt_attention_scratch(attr, in[0]->dim[0].n, lines, env->threads);
}

const tt_attr tt_attention_attrs[] = {
	{ "head_dim", TT_ATTR_INT, offsetof(tt_attr_attention, head_dim) }, { "v_head_dim", TT_ATTR_INT, offsetof(tt_attr_attention, v_head_dim) },
	{ "group", TT_ATTR_INT, offsetof(tt_attr_attention, group) },	    { "scale", TT_ATTR_REAL, offsetof(tt_attr_attention, scale) },
	{ "window", TT_ATTR_INT, offsetof(tt_attr_attention, window) },	    TT_ATTRS_END,
};

const tt_attr tt_attention_ring_attrs[] = {
	{ "head_dim", TT_ATTR_INT, offsetof(tt_attr_attention, head_dim) }, { "v_head_dim", TT_ATTR_INT, offsetof(tt_attr_attention, v_head_dim) },
	{ "group", TT_ATTR_INT, offsetof(tt_attr_attention, group) },	    { "scale", TT_ATTR_REAL, offsetof(tt_attr_attention, scale) },
	{ "window", TT_ATTR_INT, offsetof(tt_attr_attention, window) },	    { "parts", TT_ATTR_INT, offsetof(tt_attr_attention, parts) },
	{ "shift", TT_ATTR_INT, offsetof(tt_attr_attention, shift) },	    { "part", TT_ATTR_INT, offsetof(tt_attr_attention, part) },
	TT_ATTRS_END,
};

/* 8 q heads of 4 over 4 kv heads, so that 2 ranks can share heads. */
const tt_attr_attention tt_attention_sample_attr[2] = {
	{ .head_dim = 4, .v_head_dim = 4, .group = 2, .scale = 0.5 },
	{ .head_dim = 4, .v_head_dim = 3, .group = 1, .scale = 0.5, .window = 2 },
};

void tt_attention_sample_inputs(tt_graph *g, int which, tt_v in[7])
{
	tt_dtype dt = sample_val(g);
	const tt_attr_attention *a = &tt_attention_sample_attr[which];
	int64_t kv = 6;
	tt_seqs s = tt_sample_seqs(g, 12);
	tt_dim h = dim(TT_HEADS, kv * a->group * a->head_dim, a->group * a->head_dim);
	in[0] = tt_sample_xy(g, "q", dt, tokens(12), h);
	in[1] = tt_sample_xy(g, "k", dt, tokens(12), dim(TT_KV_HEADS, kv * a->head_dim, a->head_dim));
	in[2] = tt_sample_xy(g, "v", dt, tokens(12), dim(TT_KV_HEADS, kv * a->v_head_dim, a->v_head_dim));
	in[3] = s.positions;
	in[4] = s.seq_ids;
	in[5] = s.seq_table;
	in[6] = s.lines;
}

static bool attention_sample(tt_graph *g, int which)
{
	if (which >= TT_COUNT(tt_attention_sample_attr))
		return false;
	tt_v in[7];
	tt_attention_sample_inputs(g, which, in);
	tt_node_add(g, &tt_op_attention, &tt_attention_sample_attr[which], 7, in, NULL);
	return true;
}

const tt_op tt_op_attention = {
	.name = "attention",
	.doc = "causal attention within sequences over K/V blocks of 64 positions from the sequence's start; lse is the log of each row's sum",
	.cls = TT_CLASS_FORWARD, .keep = TT_KEEP_YES, .nin = 7, .nout = 2, .outs = (const char *const[]){ "o", "lse" }, .attrs = tt_attention_attrs,
	.attr_size = sizeof(tt_attr_attention), .infer = attention_infer, .spmd = attention_spmd, .localise = tt_attention_local, .vjp = attention_vjp, .cost = attention_cost,
	.scratch = tt_attention_op_scratch, .sample = attention_sample,
};

static bool attention_bwd_infer(tt_graph *g, const tt_op *op, const void *attr, int nin, const tt_value *const *in, int nout, tt_value *out)
{
	(void)nin, (void)op;
	const tt_attr_attention *a = attr;
	if (!tt_heads_agree(g, a, in[0], in[1], in[2]) || !tt_tables_agree(g, a, in, in + 6))
		return false;
	int64_t heads = in[0]->dim[1].n / a->head_dim;
	for (int i = 3; i < 6; i++) { /* o, lse, do */
		int64_t width = i == 4 ? heads : heads * a->v_head_dim;
		if (in[i]->ndim == 2 && in[i]->dim[0].n == in[0]->dim[0].n && in[i]->dim[1].n == width)
			continue;
		tt_graph_fail(g, "attention_bwd: %s must be [%lld, %lld]", in[i]->name, (long long)in[0]->dim[0].n, (long long)width);
		return false;
	}
	for (int i = 0; i < nout; i++) {
		out[i].ndim = in[i]->ndim;
		memcpy(out[i].dim, in[i]->dim, sizeof out[i].dim);
		out[i].dtype = TT_ACC;
	}
	return true;
}

static bool attention_bwd_sample(tt_graph *g, int which)
{
	if (!attention_sample(g, which))
		return false;
	tt_dtype dt = sample_val(g);
	const tt_attr_attention *a = &tt_attention_sample_attr[which];
	tt_v o = tt_value_find(g, "o");
	const tt_node *n = &g->nodes[tt_value_get(g, o)->def];
	tt_v q[7];
	memcpy(q, n->in, sizeof q);
	tt_v dy = tt_sample_xy(g, "do", dt, tokens(12), dim(TT_HEADS, 6 * a->group * a->v_head_dim, a->group * a->v_head_dim));
	tt_v in[] = { q[0], q[1], q[2], o, tt_out(o, 1), dy, q[3], q[4], q[5], q[6] };
	tt_node_add(g, &tt_op_attention_bwd, a, 10, in, NULL);
	return true;
}

const tt_op tt_op_attention_bwd = {
	.name = "attention_bwd", .doc = "dq, dk, dv from the saved log-sum-exp; p and ds are rounded to the value dtype before products",
	.cls = TT_CLASS_BACKWARD, .nin = 10, .nout = 3, .outs = (const char *const[]){ "dq", "dk", "dv" }, .attrs = tt_attention_ring_attrs,
	.attr_size = sizeof(tt_attr_attention), .infer = attention_bwd_infer, .spmd = attention_bwd_spmd, .localise = tt_attention_local, .cost = attention_cost,
	.scratch = tt_attention_op_scratch, .sample = attention_bwd_sample,
};
