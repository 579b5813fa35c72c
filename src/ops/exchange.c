/* exchange.c: conversions of layout as one rank runs them: the only op that talks to other ranks. Made by the localise pass. */
#include "comm/comm.h"
#include "ops/internal.h"

static bool exchange_infer(tt_graph *g, const tt_op *op, const void *attr, int nin, const tt_value *const *in, int nout, tt_value *out)
{
	const tt_attr_exchange *a = attr;
	if (!tt_infer_same(g, op, attr, nin, in, nout, out))
		return false;
	if (a->dims.n != in[0]->ndim || (a->edges.n && a->edges.n != a->members + 1) || a->dim < 0 || a->dim >= TT_MAX(in[0]->ndim, 1)) {
		tt_graph_fail(g, "exchange: %s has %d dims, the attributes speak of %lld", in[0]->name, in[0]->ndim, (long long)a->dims.n);
		return false;
	}
	const tt_dim *cut = &in[0]->dim[a->dim];
	bool joins = a->kind == TT_EX_GATHER || a->kind == TT_EX_PAD, cuts = a->kind == TT_EX_SCATTER || a->kind == TT_EX_SLICE;
	if (in[0]->ndim && cut->role == TT_TOKENS && ((joins && !cut->share[0].parts) || (cuts && cut->share[2].parts))) {
		tt_graph_fail(g, "exchange: tokens of %s are %s", in[0]->name, joins ? "no share" : "a share of a share already");
		return false;
	}
	out[0].ndim = in[0]->ndim;
	for (int d = 0; d < in[0]->ndim; d++) {
		out[0].dim[d] = in[0]->dim[d];
		bool tokens = in[0]->dim[d].role == TT_TOKENS, changes = (joins || cuts) && d == a->dim;
		if (!tokens || changes)
			out[0].dim[d].n = a->dims.v[d]; /* else chunks of tokens, which follow from this rank's own */
		if (!tokens || !changes)
			continue;
		tt_dim *o = &out[0].dim[d];
		int level = 0;
		while (level < TT_COUNT(o->share) && o->share[level].parts)
			level++;
		if (a->kind == TT_EX_SCATTER || a->kind == TT_EX_SLICE) {
			o->share[level].part = (int16_t)a->index;
			o->share[level].parts = (int16_t)a->members;
		} else if (a->kind == TT_EX_GATHER || a->kind == TT_EX_PAD) {
			memset(&o->share[level - 1], 0, sizeof o->share[0]);
		}
	}
	return true;
}

/* What a conversion became: it has no type any more, and stands in graphs of one rank alone. */
static bool exchange_spmd(const tt_typing *t)
{
	return tt_typing_reject(t, 0, "but needs no type, as an exchange is one rank's: the localise pass makes it of a conversion");
}

/* Blocks given and taken. */
static size_t exchange_scratch(const void *attr, int nin, const tt_value *const *in, int nout, const tt_value *const *out, const tt_env *env)
{
	(void)nin, (void)in, (void)nout, (void)out, (void)env;
	return 2 * sizeof(tt_block) * (size_t)((const tt_attr_exchange *)attr)->members;
}

static bool exchange_sample(tt_graph *g, int which)
{
	static const int64_t edges[] = { 0, 2, 5 };
	if (which > 2)
		return false;
	int64_t dims[] = { which == 1 ? 5 : 3, 4 };
	tt_attr_exchange a = { .kind = which == 0 ? TT_EX_SLICE : which == 1 ? TT_EX_PAD : TT_EX_ONCE, .axis = "tp", .name = "x", .axes = 1, .members = 2, .index = 1, .edges = { 3, edges },
			       .dims = { 2, dims } };
	tt_v x = tt_sample_xy(g, "x", sample_val(g), dim(TT_FFN, which == 0 ? 5 : 3, 1), dim(TT_D, 4, 1));
	tt_node_add(g, &tt_op_exchange, &a, 1, &x, NULL);
	return true;
}

const tt_op tt_op_exchange = {
	.name = "exchange", .doc = "a conversion on one rank: gather, scatter or sum over the ranks of mesh axes, or a slice or padding without talk",
	.cls = TT_CLASS_META, .nin = 1, .nout = 1, .outs = (const char *const[]){ "exchange" }, .attr_size = sizeof(tt_attr_exchange),
	.attrs = (const tt_attr[]){ { "kind", TT_ATTR_INT, offsetof(tt_attr_exchange, kind) }, { "axis", TT_ATTR_STR, offsetof(tt_attr_exchange, axis) },
				    { "name", TT_ATTR_STR, offsetof(tt_attr_exchange, name) },
				    { "axes", TT_ATTR_INT, offsetof(tt_attr_exchange, axes) }, { "members", TT_ATTR_INT, offsetof(tt_attr_exchange, members) },
				    { "index", TT_ATTR_INT, offsetof(tt_attr_exchange, index) },
				    { "dim", TT_ATTR_INT, offsetof(tt_attr_exchange, dim) }, { "edges", TT_ATTR_INTS, offsetof(tt_attr_exchange, edges) },
				    { "dims", TT_ATTR_INTS, offsetof(tt_attr_exchange, dims) }, { "tree", TT_ATTR_BOOL, offsetof(tt_attr_exchange, tree) }, TT_ATTRS_END },
	.infer = exchange_infer, .spmd = exchange_spmd, .scratch = exchange_scratch, .sample = exchange_sample,
};
