/* partition.c: the model's graph becomes a typed one. Walks the nodes once; before a node its inputs are converted as USE rows say, after it
 * its outputs as MAKE rows say. The rules of the ops then accept the types or say what is missing. */
#include "ops/ops.h"
#include "pass/internal.h"

#include <stdio.h>

typedef struct part {
	tt_origin *origin;
	const tt_plan *plan;
	tt_copy c;
	tt_graph *g;
} part;

/* The row for a value on an axis; NULL: it stays as it is. */
static const tt_layout_row *find(const tt_plan *plan, tt_place place, const char *value, const tt_taker *by, int ax)
{
	int row = tt_plan_find(plan, place, value, by, ax);
	return row < 0 ? NULL : tt_plan_row(plan, row);
}

/* Layout of an input or a state. Axes shard a dim in their own order, outermost first, but a parameter along tp and tp_rep before all: a column
 * weight is (tp, tp_rep, fsdp). Only products need whole heads, and what tp dealt: behind it a parameter lies in lines, that are gathered before use. */
static void place(part *p, tt_v v)
{
	const tt_value *x = &p->g->values[v];
	bool param = x->state >= 0 && p->g->states[x->state].trainable;
	tt_layout l = tt_layout_all(TT_R);
	int n = p->plan->mesh.naxes;
	for (int i = 0; i < n; i++) {
		int ax = param ? (i + TT_PLAN_TP) % n : i;
		if (p->plan->mesh.ax[ax].size == 1)
			continue;
		const tt_layout_row *r = find(p->plan, TT_PLACE_STORE, x->name, NULL, ax);
		if (!r && param)
			r = find(p->plan, TT_PLACE_PARAM, x->name, NULL, ax);
		if (!r)
			continue;
		if (r->type == TT_S && r->dim >= x->ndim) {
			tt_graph_fail(p->g, "%s: a row says S(%d) on axis %s, it has %d dims", x->name, r->dim, p->plan->mesh.ax[ax].name, x->ndim);
			return;
		}
		if (r->type == TT_P && x->dtype != TT_ACC && x->dtype != TT_I64) {
			tt_graph_fail(p->g, "%s: a row says P on axis %s, it is %s: only sums and counts are stored as terms", x->name, p->plan->mesh.ax[ax].name, tt_dtype_name(x->dtype));
			return;
		}
		int order = 0;
		for (int o = 0; o < p->plan->mesh.naxes; o++)
			order += l.ax[o].type == TT_S && r->type == TT_S && l.ax[o].dim == r->dim;
		l.ax[ax] = (tt_axis_type){ .type = (uint8_t)r->type, .dim = (int8_t)(r->type == TT_S ? r->dim : 0), .order = (int8_t)order,
					   .fine = param && ax < TT_PLAN_TP && r->type == TT_S && tt_dim_coarse(&x->dim[r->dim]) };
	}
	tt_value_set_layout(p->g, v, l);
}

/* Converts v as the rows say, innermost axis of a dim first. */
static tt_v converted(part *p, tt_v v, tt_place place_, const char *name, const tt_taker *by)
{
	const tt_mesh *m = &p->plan->mesh;
	for (int order = m->naxes - 1; order >= 0; order--)
		for (int ax = m->naxes - 1; ax >= 0; ax--) {
			tt_axis_type has = p->g->values[v].layout.ax[ax];
			if (m->ax[ax].size == 1 || (has.type == TT_S ? has.order : 0) != order)
				continue;
			int row = tt_plan_find(p->plan, place_, name, by, ax);
			const tt_layout_row *r = row < 0 ? NULL : tt_plan_row(p->plan, row);
			p->origin->asking = row;
			if (r && (has.type != r->type || (r->type == TT_S && has.dim != r->dim)))
				v = tt_convert(p->g, v, m->ax[ax].name, r->type, r->dim);
			if (!v)
				return 0;
			p->origin->asking = -1;
		}
	return v;
}

/* Attention round a ring: the one node that is not copied. */
static void ring(part *p, const tt_node *n, const tt_axis *cp)
{
	tt_v in[7];
	for (int k = 0; k < n->nin; k++)
		in[k] = p->c.map[n->in[k]];
	tt_v o = tt_attention_ring(p->g, in, n->attr, cp->name, cp->size, p->plan->exact, p->c.from->values[n->out[0]].name);
	p->c.map[n->out[0]] = o;
	p->c.map[n->out[1]] = tt_out(o, 1);
}

static void node(part *p, const tt_node *n)
{
	tt_v saved[80];
	const tt_graph *from = p->c.from;
	TT_ASSERT(n->nin <= TT_COUNT(saved), "%s: too many inputs", n->op->name);
	p->g->seg = n->seg;
	p->g->group = n->group;
	snprintf(p->g->scope, sizeof p->g->scope, "%s", n->scope);
	tt_taker by = { n->op->name, from->values[n->out[0]].name };
	bool uses = n->seg != TT_SEG_PREP; /* PREP works on what is stored */
	for (int k = 0; k < n->nin; k++) {
		saved[k] = n->in[k] ? p->c.map[n->in[k]] : 0;
		if (n->in[k] && saved[k] && uses)
			p->c.map[n->in[k]] = converted(p, saved[k], TT_PLACE_USE, from->values[n->in[k]].name, &by);
	}
	const tt_axis *cp = &p->plan->mesh.ax[TT_PLAN_CP];
	if (p->g->status == TT_OK && n->op == &tt_op_attention && p->plan->cp_method == TT_CP_RING && cp->size > 1)
		ring(p, n, cp);
	else if (p->g->status == TT_OK)
		tt_copy_node(&p->c, n);
	for (int k = n->nin - 1; k >= 0; k--)
		if (n->in[k])
			p->c.map[n->in[k]] = saved[k];
	p->g->seg = n->seg;
	p->g->group = n->group;
	snprintf(p->g->scope, sizeof p->g->scope, "%s", n->scope); /* conversions are of the layer: recompute makes them again with it */
	for (int k = 0; k < n->nout && uses && p->g->status == TT_OK; k++)
		p->c.map[n->out[k]] = converted(p, p->c.map[n->out[k]], TT_PLACE_MAKE, from->values[n->out[k]].name, NULL);
}

tt_status tt_partition(tt_origin *origin, tt_explain_fn *explain, tt_arena *a, tt_graph **out, double *far)
{
	const tt_graph *g = origin->model;
	part p = { .origin = origin, .plan = &origin->plan, .c = tt_copy_begin(g, a) };
	p.g = p.c.to;
	p.g->mesh = origin->plan.mesh;
	p.g->explain = explain;
	p.g->explain_ctx = origin;
	int64_t i = 0;
	for (tt_v v = 1; v < p.g->nvalues && p.g->status == TT_OK; v++)
		place(&p, v);
	for (; i < g->nnodes && p.g->status == TT_OK; i++)
		node(&p, &g->nodes[i]);
	*far = (double)i / (double)(g->nnodes + 1);
	p.g->scope[0] = 0;
	TT_TRY(tt_graph_check(p.g));
	tt_copy_end(&p.c);
	TT_TRY(tt_graph_verify(p.g, "partition"));
	*out = p.g;
	return TT_OK;
}

tt_status tt_pass_partition(const tt_graph *g, const tt_plan *plan, tt_arena *a, tt_graph **out)
{
	double far;
	tt_origin *origin = TT_NEW(a, tt_origin);
	*origin = (tt_origin){ .model = g, .plan = *plan, .asking = -1 };
	return tt_partition(origin, tt_plan_explain, a, out, &far);
}
