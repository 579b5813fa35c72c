/* ring.c: attention where keys and values pass round the ranks of an axis (Liu 2023, ring attention). One rank's shard of them at a time meets
 * this rank's queries; conversions S(0)+i to S(0)+(i+1) pass them on, so that no op hides a loop of communication. The kernels' contract is in
 * kernels/attention.k.c.
 *
 * The states of the turns carry no gradient: they are joined by attention_join, which has q and this rank's k and v as inputs beside them, and whose
 * backward goes round once more, the other way: at each turn attention_bwd of one shard from the joined o and lse, as on one rank, while dk and dv
 * travel home with the shard that they belong to.
 */
#include "ops/attention.h"

/* o [t, H*K'], m and l [t, H]: statistics, or where they are sums acc. */
static bool state_infer(tt_graph *g, const tt_op *op, const tt_attr_attention *a, const tt_value *q, int nout, tt_value *out, bool maxima, tt_dtype sums)
{
	if (!tt_infer_val(g, op, q))
		return false;
	int64_t heads = q->dim[1].n / a->head_dim;
	for (int i = 0; i < nout; i++) {
		bool o = nout > 1 && i == 0;
		out[i].ndim = 2;
		out[i].dim[0] = q->dim[0];
		out[i].dim[1] = tt_dim_of(TT_HEADS, o ? heads * a->v_head_dim : heads, o ? a->v_head_dim : 1);
		out[i].dim[1].group = a->group;
		out[i].dtype = maxima && i == nout - 1 - (nout > 1) ? tt_stat_dtype(g) : sums;
		out[i].gdtype = TT_NODTYPE;
	}
	return true;
}

static tt_cost turn_cost(const tt_attr_attention *a, const tt_value *const *in, int tables, double features)
{
	double heads = (double)(in[0]->dim[1].n / a->head_dim);
	return (tt_cost){ .flops = 2 * heads * tt_attention_pairs(a, in[0], in[1], in[tables + 2], in[tables + 3]) * features };
}

/* ---- one turn: `fast` --------------------------------------------------------------------------------------------------------------- */

static bool part_infer(tt_graph *g, const tt_op *op, const void *attr, int nin, const tt_value *const *in, int nout, tt_value *out)
{
	(void)nin;
	const tt_attr_attention *a = attr;
	return tt_heads_agree(g, a, in[0], in[1], in[2]) && tt_tables_agree(g, a, in, in + 3) &&
	       state_infer(g, op, a, in[0], nout, out, true, tt_stat_dtype(g));
}

static bool part_spmd(const tt_typing *t) { return tt_attention_typing(t, 2, 3, false); }

static tt_cost part_cost(const void *attr, int nin, const tt_value *const *in, int nout, const tt_value *const *out)
{
	(void)nout, (void)out;
	const tt_attr_attention *a = attr;
	return turn_cost(a, in, nin - 4, (double)(a->head_dim + a->v_head_dim));
}

static tt_v sample_part(tt_graph *g, int which, tt_v in[7])
{
	tt_attention_sample_inputs(g, which, in);
	return tt_node_add(g, &tt_op_attention_part, &tt_attention_sample_attr[which], 7, in, NULL);
}

static bool part_sample(tt_graph *g, int which)
{
	tt_v in[7];
	if (which < 2)
		sample_part(g, which, in);
	return which < 2;
}

const tt_op tt_op_attention_part = {
	.name = "attention_part", .doc = "attention over the keys of one rank, not finished: o before the quotient, the row maximum m and the row sum l",
	.cls = TT_CLASS_META, .nin = 7, .nout = 3, .outs = (const char *const[]){ "part_o", "part_m", "part_l" }, .attrs = tt_attention_ring_attrs,
	.attr_size = sizeof(tt_attr_attention), .infer = part_infer, .spmd = part_spmd, .localise = tt_attention_local, .cost = part_cost,
	.scratch = tt_attention_op_scratch, .sample = part_sample,
};

static bool merge_infer(tt_graph *g, const tt_op *op, const void *attr, int nin, const tt_value *const *in, int nout, tt_value *out)
{
	(void)op, (void)attr, (void)nin;
	for (int i = 0; i < nout; i++) {
		if (in[i]->dtype != tt_stat_dtype(g) || in[i + 3]->dtype != in[i]->dtype || in[i]->ndim != 2 || in[i + 3]->ndim != 2 ||
		    in[i]->dim[0].n != in[i + 3]->dim[0].n || in[i]->dim[1].n != in[i + 3]->dim[1].n) {
			tt_graph_fail(g, "attention_merge: %s and %s are no states of the same queries", in[i]->name, in[i + 3]->name);
			return false;
		}
		out[i].ndim = 2;
		memcpy(out[i].dim, in[i]->dim, sizeof out[i].dim);
		out[i].dtype = in[i]->dtype;
		out[i].gdtype = TT_NODTYPE;
	}
	return true;
}

/* All alike. */
static bool merge_spmd(const tt_typing *t)
{
	for (int i = 0; i < t->nin; i++) {
		if (t->tin[i].type == TT_P || t->tin[i].type == TT_M)
			return tt_typing_reject(t, i, "a reduction not yet taken: convert it before attention_merge");
		if (!tt_typing_coarse(t, i)) /* a head is an element of m and many of o */
			return false;
		if (!tt_axis_type_eq(t->tin[i], t->tin[0]))
			return tt_typing_reject(t, i, "needs the type of %s", t->in[0]->name);
	}
	for (int i = 0; i < t->nout; i++)
		t->tout[i] = t->tin[0];
	return true;
}

static bool merge_sample(tt_graph *g, int which)
{
	if (which > 0)
		return false;
	tt_dim o = dim(TT_HEADS, 12, 3), h = dim(TT_HEADS, 4, 1);
	tt_v in[6];
	for (int i = 0; i < 6; i++) {
		static const char *const names[] = { "oa", "ma", "la", "ob", "mb", "lb" };
		tt_dim d[] = { tokens(6), i % 3 ? h : o };
		in[i] = tt_input(g, names[i], tt_stat_dtype(g), TT_NODTYPE, 2, d);
		if (i % 3 == 2)
			tt_value_set_fill(g, in[i], TT_FILL_POSITIVE);
	}
	tt_node_add(g, &tt_op_attention_merge, NULL, 6, in, NULL);
	return true;
}

const tt_op tt_op_attention_merge = {
	.name = "attention_merge", .doc = "two states (o, m, l) of the same queries over different keys as one",
	.cls = TT_CLASS_META, .nin = 6, .nout = 3, .outs = (const char *const[]){ "ring_o", "ring_m", "ring_l" }, .infer = merge_infer,
	.spmd = merge_spmd, .sample = merge_sample,
};

/* ---- two turns: `exact` -------------------------------------------------------------------------------------------------------------- */

static bool max_infer(tt_graph *g, const tt_op *op, const void *attr, int nin, const tt_value *const *in, int nout, tt_value *out)
{
	const tt_attr_attention *a = attr;
	int64_t kv = in[1]->dim[1].n / a->head_dim;
	if (in[0]->ndim != 2 || in[1]->ndim != 2 || in[1]->dim[1].n % a->head_dim || in[0]->dim[1].n != kv * a->group * a->head_dim) {
		tt_graph_fail(g, "attention_max: q has %lld features, k %lld; needs %lld q heads of %lld for each kv head", (long long)in[0]->dim[1].n,
			      (long long)in[1]->dim[1].n, (long long)a->group, (long long)a->head_dim);
		return false;
	}
	if (!tt_tables_agree(g, a, in, in + 2) || !state_infer(g, op, a, in[0], nout, out, true, tt_stat_dtype(g)))
		return false;
	if (nin > 6 && in[6] && (in[6]->dim[1].n != out[0].dim[1].n || in[6]->dtype != out[0].dtype)) {
		tt_graph_fail(g, "attention_max: %s are no maxima of the same queries", in[6]->name);
		return false;
	}
	return true;
}

static bool max_spmd(const tt_typing *t) { return tt_attention_typing(t, 1, 2, false); }

static tt_cost max_cost(const void *attr, int nin, const tt_value *const *in, int nout, const tt_value *const *out)
{
	(void)nin, (void)nout, (void)out;
	return turn_cost(attr, in, 2, (double)((const tt_attr_attention *)attr)->head_dim);
}

static tt_v build_max(tt_graph *g, const tt_attr_attention *a, tt_v q, tt_v k, const tt_v tables[4], tt_v before)
{
	tt_v in[] = { q, k, tables[0], tables[1], tables[2], tables[3], before };
	return tt_node_add(g, &tt_op_attention_max, a, before ? 7 : 6, in, NULL);
}

static bool max_sample(tt_graph *g, int which)
{
	if (which > 1)
		return false;
	tt_v in[7];
	tt_attention_sample_inputs(g, which, in);
	tt_dim d[] = { tokens(12), dim(TT_HEADS, 6 * tt_attention_sample_attr[which].group, 1) };
	d[1].group = tt_attention_sample_attr[which].group;
	build_max(g, &tt_attention_sample_attr[which], in[0], in[1], in + 3, which ? tt_input(g, "m", tt_stat_dtype(g), TT_NODTYPE, 2, d) : 0);
	return true;
}

const tt_op tt_op_attention_max = {
	.name = "attention_max", .doc = "the greatest score of each query over the keys of one rank, and before",
	.cls = TT_CLASS_META, .nin = 6, .nin_max = 7, .nout = 1, .outs = (const char *const[]){ "ring_m" }, .attrs = tt_attention_ring_attrs,
	.attr_size = sizeof(tt_attr_attention), .infer = max_infer, .spmd = max_spmd, .localise = tt_attention_local, .cost = max_cost,
	.scratch = tt_attention_op_scratch, .sample = max_sample,
};

static bool sum_infer(tt_graph *g, const tt_op *op, const void *attr, int nin, const tt_value *const *in, int nout, tt_value *out)
{
	(void)nin;
	const tt_attr_attention *a = attr;
	return tt_heads_agree(g, a, in[0], in[1], in[2]) && tt_tables_agree(g, a, in, in + 4) && state_infer(g, op, a, in[0], nout, out, false, TT_ACC);
}

static bool sum_spmd(const tt_typing *t) { return tt_attention_typing(t, 2, 4, false); }

static tt_v build_sum(tt_graph *g, const tt_attr_attention *a, tt_v q, tt_v k, tt_v v, tt_v m, const tt_v tables[4])
{
	tt_v in[] = { q, k, v, m, tables[0], tables[1], tables[2], tables[3] };
	return tt_node_add(g, &tt_op_attention_sum, a, 8, in, NULL);
}

static bool sum_sample(tt_graph *g, int which)
{
	if (which > 1)
		return false;
	tt_v in[7];
	tt_attention_sample_inputs(g, which, in);
	const tt_attr_attention *a = &tt_attention_sample_attr[which];
	build_sum(g, a, in[0], in[1], in[2], build_max(g, a, in[0], in[1], in + 3, 0), in + 3);
	return true;
}

const tt_op tt_op_attention_sum = {
	.name = "attention_sum", .doc = "sums over the keys of one rank, given the maxima over all: o of p*v, l of p",
	.cls = TT_CLASS_META, .nin = 8, .nout = 2, .outs = (const char *const[]){ "ring_o", "ring_l" }, .attrs = tt_attention_ring_attrs,
	.attr_size = sizeof(tt_attr_attention), .infer = sum_infer, .spmd = sum_spmd, .localise = tt_attention_local, .cost = part_cost,
	.scratch = tt_attention_op_scratch, .sample = sum_sample,
};

/* ---- the result ------------------------------------------------------------------------------------------------------------------------ */

static bool join_infer(tt_graph *g, const tt_op *op, const void *attr, int nin, const tt_value *const *in, int nout, tt_value *out)
{
	(void)nin, (void)nout;
	const tt_attr_attention *a = attr;
	const tt_value *o = in[7], *m = in[8], *l = in[9];
	if (!tt_heads_agree(g, a, in[0], in[1], in[2]) || !tt_tables_agree(g, a, in, in + 3) || !tt_infer_val(g, op, in[0]))
		return false;
	int64_t heads = in[0]->dim[1].n / a->head_dim;
	if (o->dim[1].n != heads * a->v_head_dim || m->dim[1].n != heads || l->dim[1].n != heads || o->dtype != l->dtype || m->dtype != tt_stat_dtype(g)) {
		tt_graph_fail(g, "attention_join: %s, %s and %s are no state of the %lld heads of %s", o->name, m->name, l->name, (long long)heads, in[0]->name);
		return false;
	}
	for (int i = 0; i < 2; i++) {
		out[i].ndim = 2;
		memcpy(out[i].dim, in[7 + i]->dim, sizeof out[i].dim);
	}
	out[0].dtype = out[0].gdtype = in[0]->dtype;
	out[1].dtype = tt_stat_dtype(g);
	return true;
}

static bool join_spmd(const tt_typing *t) { return tt_attention_typing(t, 2, 3, false); }

/* The axis round which k passes. */
static const tt_axis *ring_axis(const tt_graph *g, tt_v k)
{
	const tt_layout *l = &tt_value_get(g, k)->layout;
	for (int i = 0; i < g->mesh.naxes; i++)
		if (g->mesh.ax[i].size > 1 && !g->mesh.ax[i].rows && l->ax[i].type == TT_S && l->ax[i].dim == 0)
			return &g->mesh.ax[i];
	return NULL;
}

/* Keys of the rank before this one first; from turn to turn all move one rank further on, with their gradients, which are home after the last. What
 * is passed on for the next turn stands before this turn's work, so that it may be under way beside it. */
static void join_vjp(tt_vjp *v)
{
	tt_graph *g = v->g;
	const tt_v *n = v->node->in;
	tt_attr_attention a = *(const tt_attr_attention *)v->node->attr;
	const tt_axis *axis = a.parts ? ring_axis(g, n[1]) : NULL;
	tt_v kv[2] = { n[1], n[2] }, next[2] = { 0 }, d[2] = { 0 };
	int last = axis ? axis->size - 1 : 0;
	for (int e = 0; e < 2 && axis; e++)
		kv[e] = tt_shift(g, kv[e], axis->name, 0, last);
	for (int i = last; i >= 0; i--) {
		int scope = axis ? tt_scope_push(g, "ring.%d", i) : -1; /* what a turn makes is not what one rank makes */
		for (int e = 0; e < 2 && i; e++)
			next[e] = i > 1 ? tt_shift(g, kv[e], axis->name, 0, i - 1) : n[1 + e];
		a.shift = i;
		tt_v in[] = { n[0], kv[0], kv[1], v->node->out[0], v->node->out[1], v->dout[0], n[3], n[4], n[5], n[6] };
		tt_v made = tt_node_add(g, &tt_op_attention_bwd, &a, 10, in, NULL);
		v->din[0] = v->din[0] ? tt_add(g, v->din[0], made, NULL) : made;
		for (int e = 0; e < 2; e++) {
			d[e] = d[e] ? tt_add(g, d[e], tt_out(made, 1 + e), NULL) : tt_out(made, 1 + e);
			if (i)
				d[e] = tt_shift(g, d[e], axis->name, 0, i - 1);
			kv[e] = next[e];
		}
		if (scope >= 0)
			tt_scope_pop(g, scope);
	}
	v->din[1] = d[0];
	v->din[2] = d[1];
}

static bool join_sample(tt_graph *g, int which)
{
	if (which > 1)
		return false;
	tt_v in[7];
	tt_v s = sample_part(g, which, in);
	tt_v all[] = { in[0], in[1], in[2], in[3], in[4], in[5], in[6], s, tt_out(s, 1), tt_out(s, 2) };
	tt_node_add(g, &tt_op_attention_join, &tt_attention_sample_attr[which], 10, all, NULL);
	return true;
}

const tt_op tt_op_attention_join = {
	.name = "attention_join", .doc = "attention from its state over all keys: o / l, rounded, and lse = m + log l; its backward passes q's and all keys' gradients",
	.cls = TT_CLASS_FORWARD, .keep = TT_KEEP_YES, .nin = 10, .nout = 2, .outs = (const char *const[]){ "o", "lse" }, .attrs = tt_attention_ring_attrs,
	.attr_size = sizeof(tt_attr_attention), .infer = join_infer, .spmd = join_spmd, .localise = tt_attention_local, .vjp = join_vjp, .sample = join_sample,
};

/* ---- the ring -------------------------------------------------------------------------------------------------------------------------- */

typedef struct turns {
	tt_graph *g;
	const tt_v *in;
	tt_attr_attention a;
	const char *axis;
} turns;

/* Keys (or values) of the rank i + 1 places further on, from those at hand: asked for before turn i begins, so that they may come meanwhile. */
static tt_v pass_on(const turns *r, tt_v x, int i, int k) { return i + 1 < k ? tt_shift(r->g, x, r->axis, 0, i + 1) : 0; }

static void one_turn(turns *r, int k, tt_v state[3])
{
	tt_v key = r->in[1], val = r->in[2];
	for (int i = 0; i < k; i++) {
		tt_v next_key = pass_on(r, key, i, k), next_val = pass_on(r, val, i, k);
		r->a.shift = i;
		tt_v in[] = { r->in[0], key, val, r->in[3], r->in[4], r->in[5], r->in[6] };
		tt_v s = tt_node_add(r->g, &tt_op_attention_part, &r->a, 7, in, NULL);
		if (i) {
			tt_v both[] = { state[0], state[1], state[2], s, tt_out(s, 1), tt_out(s, 2) };
			s = tt_node_add(r->g, &tt_op_attention_merge, NULL, 6, both, NULL);
		}
		for (int e = 0; e < 3; e++)
			state[e] = tt_out(s, e);
		key = next_key;
		val = next_val;
	}
}

static void two_turns(turns *r, int k, tt_v state[3])
{
	tt_v key = r->in[1], val = r->in[2];
	for (int i = 0; i < k; i++) {
		tt_v next = pass_on(r, key, i, k);
		r->a.shift = i;
		state[1] = build_max(r->g, &r->a, r->in[0], key, r->in + 3, i ? state[1] : 0);
		key = next;
	}
	key = r->in[1];
	for (int i = 0; i < k; i++) {
		tt_v next_key = pass_on(r, key, i, k), next_val = pass_on(r, val, i, k);
		r->a.shift = i;
		tt_v s = build_sum(r->g, &r->a, r->in[0], key, val, state[1], r->in + 3);
		state[0] = i ? tt_add(r->g, state[0], s, "ring_o") : s;
		state[2] = i ? tt_add(r->g, state[2], tt_out(s, 1), "ring_l") : tt_out(s, 1);
		key = next_key;
		val = next_val;
	}
}

tt_v tt_attention_ring(tt_graph *g, const tt_v in[7], const tt_attr_attention *a, const char *axis, int k, bool exact, const char *name)
{
	turns r = { .g = g, .in = in, .a = *a, .axis = axis };
	r.a.parts = k;
	tt_v state[3] = { 0 };
	if (exact)
		two_turns(&r, k, state);
	else
		one_turn(&r, k, state);
	r.a.shift = 0;
	tt_v all[] = { in[0], in[1], in[2], in[3], in[4], in[5], in[6], state[0], state[1], state[2] };
	return tt_node_add(g, &tt_op_attention_join, &r.a, 10, all, tt_arena_printf(g->arena, "=%s", name));
}
