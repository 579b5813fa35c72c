/* partition.c: the model's graph becomes a typed one. Walks the nodes once; before a node its inputs are converted as USE rows say, after it
 * its outputs as MAKE rows say. The rules of the ops then accept the types or say what is missing. */
#include "ops/ops.h"
#include "pass/pass.h"

#include <stdio.h>

const char *const tt_plan_axes[TT_PLAN_AXES] = { "dp_replicate", "dp_shard", "cp", "tp", "tp_rep" };

/* Who takes a value: the op's name, and that of the first value it makes. */
typedef struct taker { const char *op, *makes; } taker;

typedef struct part {
	const tt_plan *plan;
	tt_copy c;
	tt_graph *g;
} part;

static bool on_axis(const char *row, const char *axis)
{
	if (!strcmp(row, axis))
		return true;
	bool fsdp = !strcmp(axis, "dp_shard") || !strcmp(axis, "cp");
	return (!strcmp(row, "tp") && !strcmp(axis, "tp_rep")) || (!strcmp(row, "fsdp") && fsdp) || (!strcmp(row, "data") && (fsdp || !strcmp(axis, "dp_replicate")));
}

static bool applies(const tt_layout_row *r, const tt_plan *plan)
{
	return !r->when || (r->when[0] == '!' ? !plan->sp : plan->sp);
}

static bool taken_by(const char *pattern, const taker *by) { return tt_pattern_match(pattern, by->op) || tt_pattern_match(pattern, by->makes); }

/* The row for a value on an axis; NULL: it stays as it is. */
static const tt_layout_row *find(const tt_plan *plan, tt_place place, const char *value, const taker *by, int ax)
{
	const char *colon = strchr(value, ':');
	char base[320];
	snprintf(base, sizeof base, "%.*s", colon ? (int)(colon - value) : (int)strlen(value), value);
	for (const tt_layout_row *r = plan->rows; r && r->value; r++)
		if (r->place == place && applies(r, plan) && on_axis(r->axis, plan->mesh.ax[ax].name) && tt_pattern_match(r->value, base) &&
		    (!r->by || (by && taken_by(r->by, by))))
			return r;
	return NULL;
}

/* Layout of an input or a state. Axes shard a dim in their own order, outermost first, but a parameter along tp and tp_rep before all: a column
 * weight is (tp, tp_rep, fsdp). */
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
		int order = 0;
		for (int o = 0; o < p->plan->mesh.naxes; o++)
			order += l.ax[o].type == TT_S && r->type == TT_S && l.ax[o].dim == r->dim;
		l.ax[ax] = (tt_axis_type){ .type = (uint8_t)r->type, .dim = (int8_t)(r->type == TT_S ? r->dim : 0), .order = (int8_t)order };
	}
	tt_value_set_layout(p->g, v, l);
}

/* Converts v as the rows say, innermost axis of a dim first. */
static tt_v converted(part *p, tt_v v, tt_place place_, const char *name, const taker *by)
{
	const tt_mesh *m = &p->plan->mesh;
	for (int order = m->naxes - 1; order >= 0; order--)
		for (int ax = m->naxes - 1; ax >= 0; ax--) {
			tt_axis_type has = p->g->values[v].layout.ax[ax];
			if (m->ax[ax].size == 1 || (has.type == TT_S ? has.order : 0) != order)
				continue;
			const tt_layout_row *r = find(p->plan, place_, name, by, ax);
			if (r && (has.type != r->type || (r->type == TT_S && has.dim != r->dim)))
				v = tt_convert(p->g, v, m->ax[ax].name, r->type, r->dim);
			if (!v)
				return 0;
		}
	return v;
}

static void node(part *p, const tt_node *n)
{
	tt_v saved[80];
	const tt_graph *from = p->c.from;
	TT_ASSERT(n->nin <= TT_COUNT(saved), "%s: too many inputs", n->op->name);
	p->g->seg = n->seg;
	p->g->group = n->group;
	snprintf(p->g->scope, sizeof p->g->scope, "%s", n->scope);
	taker by = { n->op->name, from->values[n->out[0]].name };
	bool uses = n->seg != TT_SEG_PREP; /* PREP works on what is stored */
	for (int k = 0; k < n->nin; k++) {
		saved[k] = n->in[k] ? p->c.map[n->in[k]] : 0;
		if (n->in[k] && saved[k] && uses)
			p->c.map[n->in[k]] = converted(p, saved[k], TT_PLACE_USE, from->values[n->in[k]].name, &by);
	}
	if (p->g->status == TT_OK)
		tt_copy_node(&p->c, n);
	for (int k = n->nin - 1; k >= 0; k--)
		if (n->in[k])
			p->c.map[n->in[k]] = saved[k];
	p->g->seg = n->seg;
	p->g->group = n->group;
	for (int k = 0; k < n->nout && p->g->status == TT_OK; k++)
		p->c.map[n->out[k]] = converted(p, p->c.map[n->out[k]], TT_PLACE_MAKE, from->values[n->out[k]].name, NULL);
}

tt_status tt_pass_partition(const tt_graph *g, const tt_plan *plan, tt_arena *a, tt_graph **out)
{
	part p = { .plan = plan, .c = tt_copy_begin(g, a) };
	p.g = p.c.to;
	p.g->mesh = plan->mesh;
	for (tt_v v = 1; v < p.g->nvalues; v++)
		place(&p, v);
	for (int64_t i = 0; i < g->nnodes && p.g->status == TT_OK; i++)
		node(&p, &g->nodes[i]);
	p.g->scope[0] = 0;
	TT_TRY(tt_graph_check(p.g));
	tt_copy_end(&p.c);
	TT_TRY(tt_graph_verify(p.g, "partition"));
	*out = p.g;
	return TT_OK;
}
