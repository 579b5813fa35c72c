/* verify.c: the graph's invariants, checked after every pass. */
#include "ir/ir.h"

#include "ir/internal.h"

/* Segments a value may be read from: its own, or a later one of the same step. PREP runs before F, and again after OPT. */
static bool may_read(tt_segment def, tt_segment use)
{
	return def == use || (def == TT_SEG_F && use == TT_SEG_B);
}

static tt_status verify_node(const tt_graph *g, int64_t index, const char *after)
{
	const tt_node *n = &g->nodes[index];
	const char *name = g->values[n->out[0]].name;
	const tt_value *in[TT_MAX_IO];
	tt_value out[TT_MAX_IO];
	memset(out, 0, sizeof *out * (size_t)n->nout);
	if (n->nin < n->op->nin || (n->op->nin_max >= 0 && n->nin > TT_MAX(n->op->nin, n->op->nin_max)))
		TT_FAIL(TT_ERR_TYPE, "after %s: %s: %s has %d inputs, takes %d", after, name, n->op->name, n->nin, n->op->nin);
	for (int i = 0; i < n->nin; i++) {
		tt_v v = n->in[i];
		in[i] = v ? &g->values[v] : NULL;
		if (!v)
			continue;
		if (v < 0 || v >= g->nvalues)
			TT_FAIL(TT_ERR_TYPE, "after %s: %s: input %d is no value", after, name, i);
		if (in[i]->kind != TT_TEMP)
			continue;
		if (in[i]->def >= index)
			TT_FAIL(TT_ERR_TYPE, "after %s: %s: reads %s before it is made", after, name, in[i]->name);
		if (!may_read(g->nodes[in[i]->def].seg, n->seg))
			TT_FAIL(TT_ERR_TYPE, "after %s: %s: in %s, reads %s made in %s: only state crosses there", after, name, tt_segment_name(n->seg),
				in[i]->name, tt_segment_name(g->nodes[in[i]->def].seg));
	}
	tt_graph scratch = *g; /* a rule that fails must not stain the graph under test */
	scratch.status = TT_OK;
	tt_rejection rejection;
	if (!tt_node_infer(&scratch, n->op, n->attr, n->nin, in, n->nout, out))
		TT_FAIL(TT_ERR_TYPE, "after %s: %s", after, scratch.error);
	if (!tt_node_type(&scratch, n->op, n->attr, n->nin, in, n->nout, out, &rejection)) {
		rejection.makes = name;
		tt_reject(&scratch, &rejection);
		TT_FAIL(TT_ERR_TYPE, "after %s: %s", after, scratch.error);
	}
	for (int i = 0; i < n->nout; i++) {
		const tt_value *v = &g->values[n->out[i]];
		if (v->def != index || v->kind != TT_TEMP)
			TT_FAIL(TT_ERR_TYPE, "after %s: %s: is not made by the node that lists it", after, v->name);
		bool same = v->dtype == out[i].dtype && v->gdtype == out[i].gdtype && v->format == out[i].format && v->ndim == out[i].ndim;
		for (int d = 0; same && d < v->ndim; d++)
			same = v->dim[d].n == out[i].dim[d].n && v->dim[d].role == out[i].dim[d].role && v->dim[d].base == out[i].dim[d].base &&
			       !memcmp(v->dim[d].share, out[i].dim[d].share, sizeof v->dim[d].share);
		if (!same)
			TT_FAIL(TT_ERR_TYPE, "after %s: %s: dims or dtype are not what %s infers", after, v->name, n->op->name);
		for (int ax = 0; ax < g->mesh.naxes; ax++)
			if (!tt_axis_type_eq(v->layout.ax[ax], out[i].layout.ax[ax]))
				TT_FAIL(TT_ERR_TYPE, "after %s: %s: layout on axis %s is not what the rule of %s says", after, v->name, g->mesh.ax[ax].name,
					n->op->name);
	}
	return TT_OK;
}

/* Behind an axis that deals a dim's elements none deals its units: they are cut. */
static tt_status verify_units(const tt_graph *g, const tt_value *v, const char *after)
{
	for (int ax = 0; ax < g->mesh.naxes; ax++) {
		tt_axis_type x = v->layout.ax[ax];
		if (g->mesh.ax[ax].size == 1 || !x.fine)
			continue;
		if (x.type != TT_S || !tt_dim_coarse(&v->dim[x.dim]))
			TT_FAIL(TT_ERR_TYPE, "after %s: %s: axis %s deals elements where it cuts no units", after, v->name, g->mesh.ax[ax].name);
		for (int in = 0; in < g->mesh.naxes; in++) {
			tt_axis_type y = v->layout.ax[in];
			if (g->mesh.ax[in].size > 1 && y.type == TT_S && y.dim == x.dim && y.order > x.order && !y.fine)
				TT_FAIL(TT_ERR_TYPE, "after %s: %s: axis %s deals units that axis %s has cut", after, v->name, g->mesh.ax[in].name, g->mesh.ax[ax].name);
		}
	}
	return TT_OK;
}

tt_status tt_graph_verify(const tt_graph *g, const char *after)
{
	TT_TRY(tt_graph_check(g));
	for (tt_v v = 1; v < g->nvalues; v++) {
		if (tt_value_find(g, g->values[v].name) != v)
			TT_FAIL(TT_ERR_TYPE, "after %s: two values are named %s", after, g->values[v].name);
		TT_TRY(verify_units(g, &g->values[v], after));
	}
	for (int64_t i = 0; i < g->nnodes; i++)
		TT_TRY(verify_node(g, i, after));
	for (int64_t i = 0; i < g->nstates; i++) {
		const tt_state *s = &g->states[i];
		const tt_value *v = &g->values[s->value];
		if (v->kind != TT_STATE || v->state != i)
			TT_FAIL(TT_ERR_TYPE, "after %s: state %s: its value is not a state", after, s->name);
		if (!s->next)
			continue;
		const tt_value *x = &g->values[s->next];
		if (x->dtype != v->dtype || x->format != v->format || tt_value_count(x) != tt_value_count(v))
			TT_FAIL(TT_ERR_TYPE, "after %s: state %s: its new version %s has another shape or dtype", after, s->name, x->name);
		for (int ax = 0; ax < g->mesh.naxes; ax++)
			if (!tt_axis_type_eq(v->layout.ax[ax], x->layout.ax[ax]))
				TT_FAIL(TT_ERR_TYPE, "after %s: state %s: its new version %s has another layout on axis %s", after, s->name, x->name,
					g->mesh.ax[ax].name);
	}
	return TT_OK;
}
