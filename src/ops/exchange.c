/* exchange.c: conversions of layout as one rank runs them: the only op that talks to other ranks. Made by the localise pass. */
#include "comm/comm.h"
#include "ops/internal.h"

int64_t tt_exchange_axes(const tt_node *n)
{
	const tt_attr_exchange *one = n->op == &tt_op_exchange ? n->attr : NULL;
	const tt_attr_bucket *many = n->op == &tt_op_exchange_bucket ? n->attr : NULL;
	if (!one && !many)
		return 0;
	int64_t kind = one ? one->kind : many->kind;
	bool alone = kind == TT_EX_SLICE || kind == TT_EX_PAD || kind == TT_EX_ONCE;
	return alone ? 0 : one ? one->axes : many->axes;
}

bool tt_exchange_in_place(const tt_node *n)
{
	bool exchange = n->op == &tt_op_exchange || n->op == &tt_op_exchange_bucket;
	int64_t kind = exchange ? *(const int64_t *)n->attr : TT_EX_GATHER; /* both attributes begin with it */
	return kind != TT_EX_SWAP && kind != TT_EX_SHIFT;
}

/* Packed weights are gathered as they lie, if every piece begins where a panel, or a pair, does. */
bool tt_exchange_packs(const tt_attr_exchange *a, tt_format f, tt_dtype dt)
{
	int64_t unit = f == TT_PACK_FWD ? 64 : dt == TT_BF16 ? 2 : 1;
	bool fits = a->kind == TT_EX_GATHER && a->dim == 0 && a->edges.n;
	for (int64_t i = 0; fits && i + 1 < a->edges.n; i++)
		fits = a->edges.v[i] % unit == 0;
	return fits;
}

static bool infer_one(tt_graph *g, const tt_attr_exchange *a, const tt_value *const *in, tt_value *out)
{
	if (in[0]->format != TT_PLAIN && !tt_exchange_packs(a, in[0]->format, in[0]->dtype)) {
		tt_graph_fail(g, "exchange: pieces of %s, %s, do not begin where its panels do", in[0]->name, tt_format_name(in[0]->format));
		return false;
	}
	if (a->dims.n != in[0]->ndim || (a->edges.n && a->edges.n != a->members + 1) || (a->cuts.n && a->cuts.n != a->members + 1) || a->dim < 0 ||
	    a->dim >= TT_MAX(in[0]->ndim, 1) || a->to < 0 || a->to >= TT_MAX(in[0]->ndim, 1)) {
		tt_graph_fail(g, "exchange: %s has %d dims, the attributes speak of %lld", in[0]->name, in[0]->ndim, (long long)a->dims.n);
		return false;
	}
	bool swap = a->kind == TT_EX_SWAP, shift = a->kind == TT_EX_SHIFT;
	/* Dims that are whole afterwards, or were before. */
	int64_t joined = swap || a->kind == TT_EX_GATHER || a->kind == TT_EX_PAD ? a->dim : -1;
	int64_t parted = swap ? a->to : a->kind == TT_EX_SCATTER || a->kind == TT_EX_SLICE ? a->dim : -1;
	out[0].ndim = in[0]->ndim;
	for (int d = 0; d < in[0]->ndim; d++) {
		bool joins = d == joined, parts = d == parted, moves = shift && d == a->dim;
		bool tokens = in[0]->dim[d].role == TT_TOKENS, changes = joins || parts || moves;
		if (tokens && (((joins || moves) && !in[0]->dim[d].share[0].parts) || (parts && in[0]->dim[d].share[2].parts))) {
			tt_graph_fail(g, "exchange: tokens of %s are %s", in[0]->name, parts ? "a share of a share already" : "no share");
			return false;
		}
		out[0].dim[d] = in[0]->dim[d];
		if (!tokens || changes)
			out[0].dim[d].n = a->dims.v[d]; /* else chunks of tokens, which follow from this rank's own */
		if (!tokens || !changes)
			continue;
		tt_dim *o = &out[0].dim[d];
		int level = 0;
		while (level < TT_COUNT(o->share) && o->share[level].parts)
			level++;
		if (parts) {
			o->share[level].part = (int16_t)a->index;
			o->share[level].parts = (int16_t)a->members;
		} else if (joins) {
			memset(&o->share[level - 1], 0, sizeof o->share[0]);
		} else {
			o->share[level - 1].part = (int16_t)((o->share[level - 1].part + a->shift) % a->members);
		}
	}
	return true;
}

static bool exchange_infer(tt_graph *g, const tt_op *op, const void *attr, int nin, const tt_value *const *in, int nout, tt_value *out)
{
	return tt_infer_same(g, op, attr, nin, in, nout, out) && infer_one(g, attr, in, out);
}

static bool bucket_infer(tt_graph *g, const tt_op *op, const void *attr, int nin, const tt_value *const *in, int nout, tt_value *out)
{
	const tt_attr_bucket *a = attr;
	(void)op;
	if (nin != nout || a->dim.n != nin || a->ndim.n != nin || a->dims.n != nin * TT_MAX_DIMS || (a->edges.n && a->edges.n != nin * (a->members + 1)) ||
	    (a->cuts.n && a->cuts.n != nin * (a->members + 1))) {
		tt_graph_fail(g, "exchange_bucket: %d operands, %d results, the attributes speak of %lld of kind %lld", nin, nout, (long long)a->dim.n,
			      (long long)a->kind);
		return false;
	}
	for (int i = 0; i < nin; i++) {
		tt_attr_exchange one = tt_bucket_part(a, i);
		out[i].dtype = in[i]->dtype;
		out[i].gdtype = in[i]->gdtype;
		out[i].format = in[i]->format;
		if (!infer_one(g, &one, &in[i], &out[i]))
			return false;
	}
	return true;
}

/* What a conversion became: it has no type any more, and stands in graphs of one rank alone. */
static bool exchange_spmd(const tt_typing *t)
{
	return tt_typing_reject(t, 0, "but needs no type, as an exchange is one rank's: the localise pass makes it of a conversion");
}

/* Small sums in place are made aside (exchange.k.c). */
static size_t aside(const tt_value *in, int64_t kind, const tt_env *env)
{
	if (kind != TT_EX_REDUCE && kind != TT_EX_MAX)
		return 0;
	bool limbs = in->dtype == TT_ACC && env->numerics == TT_EXACT && !env->f64;
	int64_t bytes = tt_value_count(in) * (limbs ? 8 : tt_dtype_size(in->dtype, env->numerics, env->f64));
	return (size_t)(TT_MIN(bytes, (int64_t)TT_EXCHANGE_WHOLE) * (limbs ? 3 : 1) + 64);
}

/* Bytes that arrive from k members, where ranks do not see each other's memory. What is gathered arrives in its place. */
static size_t arrivals(const tt_value *in, const tt_value *out, int64_t kind, int64_t axes, int64_t k, const tt_env *env)
{
	const tt_comm_group *g = env->axes ? env->axes->group[TT_COMM_WANTED][axes] : NULL;
	if (!g || tt_comm_group_sees_memory(g))
		return 0;
	bool limbs = in->dtype == TT_ACC && env->numerics == TT_EXACT && !env->f64;
	int64_t planes = limbs ? 3 : 1, size = limbs ? 24 : tt_dtype_size(in->dtype, env->numerics, env->f64), whole = tt_value_count(in) * size;
	int64_t line = in->ndim > 1 && in->dim[0].n > 0 ? whole / in->dim[0].n : size;
	if (kind == TT_EX_SCATTER)
		return (size_t)(64 + k * tt_round_up(tt_value_count(out) * size, 64));
	if (kind == TT_EX_SWAP || kind == TT_EX_SHIFT)
		return (size_t)(64 + tt_value_count(out) * size + k * 64);
	if (kind != TT_EX_REDUCE && kind != TT_EX_MAX)
		return 0;
	/* Whole from each, or parts of whole lines. */
	int64_t small = k * tt_round_up(TT_MIN(whole, planes * TT_EXCHANGE_WHOLE), 64), parts = whole > planes * TT_EXCHANGE_WHOLE ? whole + k * (line + 64) : 0;
	return (size_t)(64 + TT_MAX(small, parts));
}

/* Blocks given and taken. */
static size_t exchange_scratch(const void *attr, int nin, const tt_value *const *in, int nout, const tt_value *const *out, const tt_env *env)
{
	(void)nin, (void)nout;
	const tt_attr_exchange *a = attr;
	return 2 * sizeof(tt_block) * (size_t)a->members + aside(in[0], a->kind, env) + arrivals(in[0], out[0], a->kind, a->axes, a->members, env);
}

static size_t bucket_scratch(const void *attr, int nin, const tt_value *const *in, int nout, const tt_value *const *out, const tt_env *env)
{
	(void)nout;
	const tt_attr_bucket *a = attr;
	size_t n = (size_t)nin * (2 * sizeof(tt_block) * (size_t)a->members + sizeof(tt_attr_exchange) + TT_BUCKET_JOB);
	for (int i = 0; i < nin; i++)
		n += aside(in[i], a->kind, env) + arrivals(in[i], out[i], a->kind, a->axes, a->members, env);
	return n;
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

static bool bucket_sample(tt_graph *g, int which)
{
	static const int64_t edges[] = { 0, 2, 5, 0, 1, 3 }, two[] = { 2, 2 }, zeros[] = { 0, 0 }, dims[] = { 3, 4, 0, 0, 2, 4, 0, 0 };
	if (which > 0)
		return false;
	tt_attr_bucket a = { .kind = TT_EX_SLICE, .axis = "tp", .name = "x", .axes = 1, .members = 2, .index = 1, .dim = { 2, zeros }, .ndim = { 2, two },
			     .edges = { 6, edges }, .dims = { 8, dims } };
	tt_v in[] = { tt_sample_xy(g, "x", sample_val(g), dim(TT_FFN, 5, 1), dim(TT_D, 4, 1)), tt_sample_xy(g, "y", sample_val(g), dim(TT_FFN, 3, 1), dim(TT_D, 4, 1)) };
	tt_node_add_n(g, &tt_op_exchange_bucket, &a, 2, in, 2, NULL);
	return true;
}

const tt_op tt_op_exchange = {
	.name = "exchange", .doc = "a conversion on one rank: gather, scatter, sum, swap or shift over the ranks of mesh axes, or a slice or padding without talk",
	.cls = TT_CLASS_META, .flags = TT_OP_INPLACE, .nin = 1, .nout = 1, .outs = (const char *const[]){ "exchange" }, .attr_size = sizeof(tt_attr_exchange),
	.attrs = (const tt_attr[]){ { "kind", TT_ATTR_INT, offsetof(tt_attr_exchange, kind) }, { "axis", TT_ATTR_STR, offsetof(tt_attr_exchange, axis) },
				    { "name", TT_ATTR_STR, offsetof(tt_attr_exchange, name) },
				    { "axes", TT_ATTR_INT, offsetof(tt_attr_exchange, axes) }, { "members", TT_ATTR_INT, offsetof(tt_attr_exchange, members) },
				    { "index", TT_ATTR_INT, offsetof(tt_attr_exchange, index) },
				    { "dim", TT_ATTR_INT, offsetof(tt_attr_exchange, dim) }, { "edges", TT_ATTR_INTS, offsetof(tt_attr_exchange, edges) },
				    { "fine", TT_ATTR_BOOL, offsetof(tt_attr_exchange, fine) },
				    { "dims", TT_ATTR_INTS, offsetof(tt_attr_exchange, dims) }, { "tree", TT_ATTR_BOOL, offsetof(tt_attr_exchange, tree) },
				    { "to", TT_ATTR_INT, offsetof(tt_attr_exchange, to) }, { "cuts", TT_ATTR_INTS, offsetof(tt_attr_exchange, cuts) },
				    { "shift", TT_ATTR_INT, offsetof(tt_attr_exchange, shift) }, { "hides", TT_ATTR_INT, offsetof(tt_attr_exchange, hides) },
				    { "lane", TT_ATTR_INT, offsetof(tt_attr_exchange, lane) }, TT_ATTRS_END },
	.infer = exchange_infer, .spmd = exchange_spmd, .scratch = exchange_scratch, .sample = exchange_sample,
};

const tt_op tt_op_exchange_bucket = {
	.name = "exchange_bucket", .doc = "several gathers, scatters, sums, swaps or shifts over the same ranks as one exchange",
	.cls = TT_CLASS_META, .flags = TT_OP_INPLACE, .nin = 1, .nin_max = -1, .nout = -1, .outs = (const char *const[]){ "exchange" },
	.attr_size = sizeof(tt_attr_bucket),
	.attrs = (const tt_attr[]){ { "kind", TT_ATTR_INT, offsetof(tt_attr_bucket, kind) }, { "axis", TT_ATTR_STR, offsetof(tt_attr_bucket, axis) },
				    { "name", TT_ATTR_STR, offsetof(tt_attr_bucket, name) }, { "axes", TT_ATTR_INT, offsetof(tt_attr_bucket, axes) },
				    { "members", TT_ATTR_INT, offsetof(tt_attr_bucket, members) }, { "index", TT_ATTR_INT, offsetof(tt_attr_bucket, index) },
				    { "dim", TT_ATTR_INTS, offsetof(tt_attr_bucket, dim) }, { "ndim", TT_ATTR_INTS, offsetof(tt_attr_bucket, ndim) },
				    { "edges", TT_ATTR_INTS, offsetof(tt_attr_bucket, edges) }, { "dims", TT_ATTR_INTS, offsetof(tt_attr_bucket, dims) },
				    { "tree", TT_ATTR_BOOL, offsetof(tt_attr_bucket, tree) }, { "to", TT_ATTR_INT, offsetof(tt_attr_bucket, to) },
				    { "cuts", TT_ATTR_INTS, offsetof(tt_attr_bucket, cuts) }, { "shift", TT_ATTR_INT, offsetof(tt_attr_bucket, shift) },
				    { "hides", TT_ATTR_INT, offsetof(tt_attr_bucket, hides) }, { "lane", TT_ATTR_INT, offsetof(tt_attr_bucket, lane) }, TT_ATTRS_END },
	.infer = bucket_infer, .spmd = exchange_spmd, .scratch = bucket_scratch, .sample = bucket_sample,
};
