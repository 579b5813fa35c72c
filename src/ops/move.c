/* move.c: ops that move or rename values and compute nothing: token chunks, and declared changes of layout. */
#include <stdio.h>

#include "ops/internal.h"

/* ---- token chunks: chunk i of n is tokens [i*c, min(T, (i+1)*c)), c = ceil(T_max/n): the i-th part of a rank's tokens ---------------- */

static bool split_infer(tt_graph *g, const tt_op *op, const void *attr, int nin, const tt_value *const *in, int nout, tt_value *out)
{
	(void)attr, (void)nin, (void)op;
	if (in[0]->dim[0].role != TT_TOKENS || in[0]->dim[0].base) {
		tt_graph_fail(g, "split_tokens: %s does not begin with all tokens of the cell", in[0]->name);
		return false;
	}
	int64_t t = in[0]->dim[0].n, c = tt_ceil_div(t, nout);
	for (int i = 0; i < nout; i++) {
		out[i].dtype = in[0]->dtype;
		out[i].gdtype = in[0]->gdtype;
		out[i].dim[0].base = TT_MIN(i * c, t);
		out[i].dim[0].n = TT_MIN(c, t - out[i].dim[0].base);
	}
	return true;
}

tt_v tt_split_tokens(tt_graph *g, tt_v x, int n, const char *role)
{
	return tt_node_add_n(g, &tt_op_split_tokens, NULL, 1, &x, n, role);
}

static void split_vjp(tt_vjp *v)
{
	tt_v parts[128];
	int n = v->node->nout;
	TT_ASSERT(n <= TT_COUNT(parts), "%d chunks", n);
	for (int i = 0; i < n; i++) {
		parts[i] = v->dout[i];
		if (!parts[i])
			return; /* either every chunk has a gradient or none */
	}
	v->din[0] = tt_concat_tokens(v->g, n, parts, "concat");
}

static bool split_sample(tt_graph *g, int which)
{
	if (which > 0)
		return false;
	tt_split_tokens(g, tt_sample_xy(g, "x", sample_val(g), tokens(8), dim(TT_D, 4, 1)), 2, NULL);
	return true;
}

const tt_op tt_op_split_tokens = {
	.name = "split_tokens", .doc = "views of consecutive tokens",
	.cls = TT_CLASS_MOVE, .flags = TT_OP_VIEW | TT_OP_ACC_LINEAR, .nin = 1, .nout = -1, .labels = "*->*", .outs = (const char *const[]){ "chunk" },
	.infer = split_infer, .vjp = split_vjp, .sample = split_sample,
};

static bool concat_infer(tt_graph *g, const tt_op *op, const void *attr, int nin, const tt_value *const *in, int nout, tt_value *out)
{
	(void)attr, (void)nout, (void)op;
	int64_t n = 0;
	for (int i = 0; i < nin; i++) {
		if (in[i]->dtype != in[0]->dtype || in[i]->dim[0].base != n) {
			tt_graph_fail(g, "concat_tokens: %s does not follow the chunk before it", in[i]->name);
			return false;
		}
		n += in[i]->dim[0].n;
	}
	out[0].dtype = in[0]->dtype;
	out[0].gdtype = in[0]->gdtype;
	out[0].dim[0].n = n;
	return true;
}

tt_v tt_concat_tokens(tt_graph *g, int n, const tt_v *parts, const char *role)
{
	return tt_node_add(g, &tt_op_concat_tokens, NULL, n, parts, role);
}

static void concat_vjp(tt_vjp *v)
{
	tt_v first = tt_split_tokens(v->g, v->dout[0], v->node->nin, NULL);
	for (int i = 0; i < v->node->nin; i++)
		v->din[i] = tt_out(first, i);
}

static bool concat_sample(tt_graph *g, int which)
{
	if (which > 0)
		return false;
	tt_v first = tt_split_tokens(g, tt_sample_xy(g, "x", sample_val(g), tokens(8), dim(TT_D, 4, 1)), 2, NULL);
	tt_v parts[] = { first, tt_out(first, 1) };
	tt_concat_tokens(g, 2, parts, NULL);
	return true;
}

const tt_op tt_op_concat_tokens = {
	.name = "concat_tokens", .doc = "consecutive chunks as one value",
	.cls = TT_CLASS_MOVE, .flags = TT_OP_JOIN | TT_OP_ACC_LINEAR, .nin = 1, .nin_max = -1, .nout = 1, .labels = "*->*",
	.outs = (const char *const[]){ "concat" }, .infer = concat_infer, .vjp = concat_vjp, .sample = concat_sample,
};

/* ---- conversions (LAYOUTS.md) ---------------------------------------------------------------------------------------------------------- */

static bool convert_infer(tt_graph *g, const tt_op *op, const void *attr, int nin, const tt_value *const *in, int nout, tt_value *out)
{
	const tt_attr_convert *a = attr;
	if (a->to == TT_S && (a->dim < 0 || a->dim >= in[0]->ndim || a->shift < 0)) {
		tt_graph_fail(g, "convert: %s has no dim %lld", in[0]->name, (long long)a->dim);
		return false;
	}
	return tt_infer_same(g, op, attr, nin, in, nout, out);
}

/* Forward conversions and, by their duals, all that the reverse walk can ask for. */
static bool convertible(tt_axis_type from, tt_axis_type to)
{
	switch ((tt_type)from.type) {
	case TT_R:
		return to.type == TT_I || (to.type == TT_S && !to.shift) || to.type == TT_P;
	case TT_I:
		return to.type == TT_R || (to.type == TT_S && !to.shift) || to.type == TT_P;
	case TT_V:
		return to.type == TT_R || to.type == TT_I;
	case TT_S: /* pieces that lie elsewhere are brought home before they become something else */
		if (to.type == TT_S && to.dim == from.dim)
			return to.shift != from.shift;
		return !from.shift && !to.shift && (to.type == TT_R || to.type == TT_I || to.type == TT_P || to.type == TT_S);
	case TT_P:
		return to.type == TT_R || to.type == TT_I || (to.type == TT_S && !to.shift);
	case TT_M:
		return to.type == TT_R || to.type == TT_I;
	}
	return false;
}

static bool convert_spmd(const tt_typing *t)
{
	const tt_attr_convert *a = t->attr;
	t->tout[0] = t->tin[0];
	if (strcmp(a->axis, t->axis->name))
		return true;
	/* Only the innermost of the axes that shard a dim changes. */
	const tt_layout *l = &t->in[0]->layout;
	int inner = 0, mine = t->tin[0].type == TT_S ? t->tin[0].order : -1;
	bool same = a->to == TT_S && mine >= 0 && a->dim == t->tin[0].dim; /* passed on as it is */
	for (int i = 0; i < t->g->mesh.naxes; i++) {
		const tt_axis_type *x = &l->ax[i];
		if (&t->g->mesh.ax[i] == t->axis || t->g->mesh.ax[i].size == 1 || x->type != TT_S)
			continue;
		if (mine >= 0 && x->dim == t->tin[0].dim && x->order > mine)
			return tt_typing_reject(t, 0, "but dim %d is sharded further along %s: convert that first", x->dim, t->g->mesh.ax[i].name);
		if (a->to != TT_S || x->dim != a->dim)
			continue;
		inner++;
		if (x->fine && !a->fine && !same)
			return tt_typing_reject(t, 0, "but %s cuts the units of dim %d: convert that first", t->g->mesh.ax[i].name, x->dim);
	}
	tt_axis_type to = { .type = (uint8_t)a->to, .dim = (int8_t)(a->to == TT_S ? a->dim : 0), .order = (int8_t)(a->to == TT_S ? inner : 0) };
	to.fine = to.type == TT_S && (same ? t->tin[0].fine : a->fine && tt_dim_coarse(&t->in[0]->dim[to.dim]));
	if (a->shift >= t->axis->size)
		return tt_typing_reject(t, 0, "and a shift of %lld needs more ranks than %d", (long long)a->shift, t->axis->size);
	to.shift = (int16_t)a->shift;
	if (to.type == TT_P && t->in[0]->dtype != TT_ACC && t->in[0]->dtype != TT_I64 && t->in[0]->gdtype == TT_NODTYPE)
		return tt_typing_reject(t, 0, "needs acc: a sum not yet taken exists only as acc or as integers");
	if (!convertible(t->tin[0], to))
		return tt_typing_reject(t, 0, "there is no such conversion: needs another way to the wanted type");
	t->tout[0] = to;
	return true;
}

tt_v tt_shift(tt_graph *g, tt_v x, const char *axis, int d, int shift)
{
	if (!x)
		return 0;
	tt_attr_convert a = { axis, TT_S, d, shift, false };
	return tt_node_add(g, &tt_op_convert, &a, 1, &x, tt_arena_printf(g->arena, "=%s>%s+%d", tt_value_get(g, x)->name, axis, shift));
}

static tt_v convert(tt_graph *g, tt_v x, const char *axis, tt_type to, int d, bool fine)
{
	if (!x)
		return 0;
	static const char *const names[] = { "R", "I", "V", "S", "P", "M" };
	tt_attr_convert a = { axis, to, d, 0, fine };
	char role[320];
	snprintf(role, sizeof role, "=%s>%s.%s%.0d", tt_value_get(g, x)->name, axis, names[to], to == TT_S ? d : 0);
	return tt_node_add(g, &tt_op_convert, &a, 1, &x, role);
}

tt_v tt_convert(tt_graph *g, tt_v x, const char *axis, tt_type to, int d) { return convert(g, x, axis, to, d, false); }

/* The dual: forward X -> Y has backward dual(Y) -> dual(X). */
static void convert_vjp(tt_vjp *v)
{
	const tt_attr_convert *a = v->node->attr;
	tt_graph *g = v->g;
	int ax = 0;
	while (ax < g->mesh.naxes && strcmp(g->mesh.ax[ax].name, a->axis))
		ax++;
	bool has;
	tt_axis_type want = tt_axis_type_dual(tt_value_get(g, v->node->in[0])->layout.ax[ax], &has);
	if (!has)
		return;
	if (tt_axis_type_eq(want, tt_value_get(g, v->dout[0])->layout.ax[ax]))
		v->din[0] = v->dout[0];
	else if (want.type == TT_S && a->to == TT_S && want.dim == a->dim)
		v->din[0] = tt_shift(g, v->dout[0], a->axis, want.dim, want.shift);
	else
		v->din[0] = convert(g, v->dout[0], a->axis, (tt_type)want.type, want.dim, want.fine);
}

static bool convert_sample(tt_graph *g, int which)
{
	if (which > 0)
		return false;
	tt_convert(g, tt_sample_xy(g, "x", sample_val(g), tokens(6), dim(TT_D, 4, 1)), "tp", TT_R, 0);
	return true;
}

const tt_op tt_op_convert = {
	.name = "convert", .doc = "a declared change of layout on one mesh axis: the only op that communicates",
	.cls = TT_CLASS_MOVE, .flags = TT_OP_VIEW | TT_OP_ACC_LINEAR, .nin = 1, .nout = 1, .labels = "*->*", .outs = (const char *const[]){ "convert" },
	.attr_size = sizeof(tt_attr_convert),
	.attrs = (const tt_attr[]){ { "axis", TT_ATTR_STR, offsetof(tt_attr_convert, axis) }, { "to", TT_ATTR_INT, offsetof(tt_attr_convert, to) },
				    { "dim", TT_ATTR_INT, offsetof(tt_attr_convert, dim) }, { "shift", TT_ATTR_INT, offsetof(tt_attr_convert, shift) },
				    { "fine", TT_ATTR_BOOL, offsetof(tt_attr_convert, fine) }, TT_ATTRS_END },
	.infer = convert_infer, .spmd = convert_spmd, .vjp = convert_vjp, .sample = convert_sample,
};
