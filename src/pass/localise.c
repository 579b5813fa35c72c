/* localise.c: the typed graph as one rank runs it. Dims and attributes become those of its shards; conversions become exchanges, or nothing
 * where the bytes are the same. What comes out is an ordinary graph without a mesh. */
#include "ops/ops.h"
#include "pass/pass.h"

#include <stdio.h>

typedef struct local {
	const tt_graph *from;
	const int *coord;
	tt_arena *a;
	tt_copy c;
} local;

static void local_dims(const local *p, const tt_value *v, tt_dim *dim)
{
	for (int d = 0; d < v->ndim; d++) {
		dim[d] = v->dim[d];
		dim[d].n = tt_value_piece(p->from, v, d, p->coord, -1).n;
		int level = 0;
		for (int order = 0; dim[d].role == TT_TOKENS && order < TT_MAX_AXES; order++)
			for (int ax = 0; ax < p->from->mesh.naxes; ax++) {
				const tt_axis *x = &p->from->mesh.ax[ax];
				tt_axis_type t = v->layout.ax[ax];
				if (x->size == 1 || x->rows || t.type != TT_S || t.dim != d || t.order != order)
					continue;
				if (!level)
					dim[d].n = v->dim[d].n;
				dim[d].n = tt_ceil_div(dim[d].n, x->size); /* their number is the cell's: the largest share is planned */
				dim[d].share[level].part = (int16_t)((p->coord[ax] + t.shift) % x->size);
				dim[d].share[level++].parts = (int16_t)x->size;
			}
	}
}

static const tt_piece *pieces(const local *p, const tt_value *v)
{
	tt_piece *x = TT_NEWN(p->a, tt_piece, TT_MAX_DIMS);
	for (int d = 0; d < v->ndim; d++)
		x[d] = tt_value_piece(p->from, v, d, p->coord, -1);
	return x;
}

/* The node's attributes on this rank. */
static const void *local_attr(const local *p, const tt_node *n)
{
	if (!n->op->localise || !n->attr)
		return n->attr;
	char *attr = tt_arena_alloc(p->a, n->op->attr_size);
	memcpy(attr, n->attr, n->op->attr_size);
	const tt_piece **io = TT_NEWN(p->a, const tt_piece *, n->nin + n->nout);
	for (int i = 0; i < n->nin + n->nout; i++) {
		tt_v v = i < n->nin ? n->in[i] : n->out[i - n->nin];
		io[i] = v ? pieces(p, &p->from->values[v]) : NULL;
	}
	n->op->localise(attr, p->a, io, io + n->nin);
	return attr;
}

/* What a conversion is where its bytes change; false: it changes none. */
static bool kind_of(tt_axis_type has, tt_axis_type wants, tt_exchange_kind *out)
{
	tt_type from = (tt_type)has.type, to = (tt_type)wants.type;
	bool whole = to == TT_R || to == TT_I;
	if ((from == TT_S || from == TT_V) && whole)
		*out = TT_EX_GATHER;
	else if (from == TT_S && to == TT_S)
		*out = has.dim == wants.dim ? TT_EX_SHIFT : TT_EX_SWAP;
	else if (from == TT_P && to == TT_S)
		*out = TT_EX_SCATTER;
	else if (from == TT_P && whole)
		*out = TT_EX_REDUCE;
	else if (from == TT_M && whole)
		*out = TT_EX_MAX;
	else if (to == TT_S && (from == TT_R || from == TT_I))
		*out = TT_EX_SLICE;
	else if (from == TT_S && to == TT_P)
		*out = TT_EX_PAD;
	else if (to == TT_P && (from == TT_R || from == TT_I))
		*out = TT_EX_ONCE;
	else
		return false;
	return true;
}

/* Edges of the pieces of dim d of v, which axis ax cuts; none of tokens: their number is the cell's. */
static tt_ints edges_of(const local *p, const tt_value *v, int d, int ax, int members)
{
	int64_t *edges = TT_NEWN(p->a, int64_t, members + 1), whole = tt_value_piece(p->from, v, d, p->coord, ax).n;
	for (int i = 0; i <= members; i++)
		edges[i] = tt_dim_edge(&v->dim[d], v->layout.ax[ax].fine, whole, i, members);
	return v->dim[d].role == TT_TOKENS ? (tt_ints){ 0 } : (tt_ints){ members + 1, edges };
}

static void conversion(local *p, const tt_node *n)
{
	const tt_attr_convert *c = n->attr;
	const tt_value *x = &p->from->values[n->in[0]], *y = &p->from->values[n->out[0]];
	int ax = 0;
	while (strcmp(p->from->mesh.ax[ax].name, c->axis))
		ax++;
	tt_axis_type from = x->layout.ax[ax], to = y->layout.ax[ax];
	tt_exchange_kind kind;
	if (!kind_of(from, to, &kind)) {
		p->c.map[n->out[0]] = p->c.map[n->in[0]];
		return;
	}
	int members = p->from->mesh.ax[ax].size;
	tt_attr_exchange e = { .kind = kind, .axis = c->axis, .name = y->name, .axes = 1 << ax, .members = members, .index = p->coord[ax],
			       .tree = !strncmp(c->axis, "tp", 2) };
	tt_dim dim[TT_MAX_DIMS];
	local_dims(p, y, dim);
	int64_t dims[TT_MAX_DIMS];
	for (int d = 0; d < y->ndim; d++)
		dims[d] = dim[d].n;
	e.dims = (tt_ints){ y->ndim, dims };
	if (from.type == TT_S || to.type == TT_S) {
		e.dim = from.type == TT_S ? from.dim : to.dim;
		e.edges = edges_of(p, from.type == TT_S ? x : y, (int)e.dim, ax, members);
		e.fine = from.type == TT_S ? from.fine : to.fine;
	}
	if (kind == TT_EX_SWAP) {
		e.to = to.dim;
		e.cuts = edges_of(p, y, to.dim, ax, members);
	}
	if (kind == TT_EX_SHIFT)
		e.shift = (to.shift - from.shift + members) % members;
	tt_graph *g = p->c.to;
	g->seg = n->seg;
	g->group = n->group;
	g->scope[0] = 0;
	p->c.map[n->out[0]] = tt_node_add(g, &tt_op_exchange, &e, 1, &p->c.map[n->in[0]], tt_arena_printf(p->a, "=%s", y->name));
}

tt_status tt_pass_localise(const tt_graph *g, const int *coord, tt_arena *a, tt_graph **out)
{
	local p = { .from = g, .coord = coord, .a = a, .c = tt_copy_begin(g, a) };
	tt_graph *to = p.c.to;
	to->mesh = (tt_mesh){ 0 };
	for (tt_v v = 1; v < g->nvalues; v++) {
		tt_v at = p.c.map[v];
		if (!at)
			continue;
		local_dims(&p, &g->values[v], to->values[at].dim);
		to->values[at].layout = tt_layout_all(TT_R);
	}
	for (int64_t i = 0; i < g->nnodes && to->status == TT_OK; i++) {
		tt_node n = g->nodes[i];
		if (n.op == &tt_op_convert) {
			conversion(&p, &n);
			continue;
		}
		n.attr = local_attr(&p, &n);
		tt_copy_node(&p.c, &n);
	}
	TT_TRY(tt_graph_check(to));
	tt_copy_end(&p.c);
	TT_TRY(tt_graph_verify(to, "localise"));
	*out = to;
	return TT_OK;
}
