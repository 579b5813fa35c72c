/* reject.c: the text of a rejected typing. What the rule says comes first; then where the value has its type from, and which change of one or two
 * inputs the rule itself accepts: found by asking it. Who made the layouts says which row did it and which would help (pass/explain.c). */
#include "ir/ir.h"

#include <stdio.h>

#include "ir/internal.h"

/* ---- where a type comes from ------------------------------------------------------------------------------------------------------------ */

static bool converts(const tt_node *n) { return !strcmp(n->op->name, "convert"); }

tt_v tt_value_written(const tt_graph *g, tt_v v)
{
	while (g->values[v].def >= 0 && converts(&g->nodes[g->values[v].def]))
		v = g->nodes[g->values[v].def].in[0];
	return v;
}

/* The input that an output's type follows: of its type, one that carries a gradient before others. 0: the node opened a sum. */
static tt_v followed(const tt_graph *g, const tt_node *n, int axis, tt_axis_type type)
{
	tt_v any = 0;
	for (int pass = 0; pass < 2; pass++)
		for (int i = 0; i < n->nin; i++) {
			const tt_value *x = n->in[i] ? &g->values[n->in[i]] : NULL;
			if (!x || (pass == 0 && x->gdtype == TT_NODTYPE))
				continue;
			if (x->layout.ax[axis].type == type.type)
				return n->in[i];
			if (type.type != TT_P && !any)
				any = n->in[i];
		}
	return type.type == TT_P || type.type == TT_M ? 0 : any;
}

tt_v tt_layout_origin(const tt_graph *g, tt_v v, int axis)
{
	for (;;) {
		const tt_value *x = &g->values[v];
		if (x->def < 0)
			return v;
		const tt_node *n = &g->nodes[x->def];
		tt_axis_type type = x->layout.ax[axis];
		if (converts(n) && !tt_axis_type_eq(g->values[n->in[0]].layout.ax[axis], type))
			return v;
		tt_v from = followed(g, n, axis, type);
		if (!from)
			return v;
		v = from;
	}
}

static void say_type(tt_buf *b, tt_axis_type t) { tt_axis_type_print(t, b); }

static void say_maker(const tt_graph *g, tt_v v, tt_buf *b)
{
	const tt_value *x = &g->values[v];
	if (x->kind == TT_STATE)
		tt_buf_str(b, g->states[x->state].trainable ? "a parameter" : "a state");
	else if (x->kind == TT_INPUT)
		tt_buf_str(b, "an input");
	else if (converts(&g->nodes[x->def]))
		tt_buf_printf(b, "a conversion of %s", g->values[g->nodes[x->def].in[0]].name);
	else
		tt_buf_printf(b, "made by %s%s%s", g->nodes[x->def].op->name, g->nodes[x->def].scope[0] ? " in " : "", g->nodes[x->def].scope);
}

/* "h is made by add in layers.0, and has I from h>tp.I, a conversion of embedding" */
static void say_origin(const tt_graph *g, tt_v v, int axis, tt_buf *b)
{
	tt_v from = tt_layout_origin(g, v, axis);
	tt_buf_printf(b, "\n  %s is ", g->values[v].name);
	say_maker(g, v, b);
	if (from == v)
		return;
	tt_buf_str(b, ", and has ");
	say_type(b, g->values[v].layout.ax[axis]);
	tt_buf_printf(b, " from %s, ", g->values[from].name);
	say_maker(g, from, b);
}

/* ---- what would do: the rule is asked ---------------------------------------------------------------------------------------------------- */

typedef struct asked {
	const tt_typing *t;
	tt_axis_type in[TT_MAX_IO], out[TT_MAX_IO];
	int culprit;
	bool open; /* an output would be R where its gradient is no sum: the backward would refuse it */
} asked;

static bool ask(asked *q)
{
	char why[256];
	tt_typing u = *q->t;
	u.tin = q->in;
	u.tout = q->out;
	u.why = why;
	u.why_cap = sizeof why;
	u.culprit = &q->culprit;
	for (int i = 0; i < u.nout; i++)
		q->out[i] = (tt_axis_type){ .type = TT_R };
	q->culprit = 0;
	if (!(u.op->spmd ? u.op->spmd(&u) : tt_spmd_by_labels(&u)))
		return false;
	q->open = false;
	for (int i = 0; i < u.nout; i++)
		q->open |= q->out[i].type == TT_R && u.out[i]->gdtype != TT_NODTYPE && u.out[i]->gdtype != TT_ACC;
	return true;
}

/* Types that a value can be brought to from `has`. */
static int reachable(const tt_value *x, tt_axis_type has, tt_axis_type *to)
{
	int n = 0;
	bool maximum = has.type == TT_M;
	for (int d = 0; d < x->ndim && !maximum; d++)
		if (x->dim[d].role != TT_ONE && x->dim[d].role != TT_SEQS)
			to[n++] = (tt_axis_type){ .type = TT_S, .dim = (int8_t)d };
	to[n++] = (tt_axis_type){ .type = TT_I };
	to[n++] = (tt_axis_type){ .type = TT_R };
	if (!maximum && has.type != TT_P && (x->dtype == TT_ACC || x->gdtype == TT_ACC))
		to[n++] = (tt_axis_type){ .type = TT_P };
	int kept = 0;
	for (int i = 0; i < n; i++)
		if (to[i].type != has.type || (has.type == TT_S && to[i].dim != has.dim))
			to[kept++] = to[i];
	return kept;
}

/* Those that leave nothing open stand before others; in order otherwise. */
static void keep(tt_rejection *r, bool *open, const tt_fix *f, bool is_open)
{
	int at = r->nfixes;
	while (at > 0 && open[at - 1] && !is_open)
		at--;
	if (at == TT_MAX_FIXES)
		return;
	int last = TT_MIN(r->nfixes, TT_MAX_FIXES - 1);
	for (int i = last; i > at; i--) {
		r->fix[i] = r->fix[i - 1];
		open[i] = open[i - 1];
	}
	r->fix[at] = *f;
	open[at] = is_open;
	r->nfixes = last + 1;
}

static tt_v id_of(const tt_graph *g, const tt_value *x) { return (tt_v)(x - g->values); }

/* Changes of input `first` alone, or of it and of the input that the rule blames then. */
static void search(const tt_typing *t, int first, tt_rejection *r, bool *open)
{
	tt_axis_type to[TT_MAX_DIMS + 3], next[TT_MAX_DIMS + 3];
	if (!t->in[first])
		return;
	int n = reachable(t->in[first], t->tin[first], to);
	for (int i = 0; i < n; i++) {
		asked q = { .t = t };
		memcpy(q.in, t->tin, sizeof *q.in * (size_t)t->nin);
		q.in[first] = to[i];
		tt_fix f = { 1, { { first, id_of(t->g, t->in[first]), to[i] } } };
		if (ask(&q)) {
			keep(r, open, &f, q.open);
			continue;
		}
		/* The input that is blamed then; or, where it is still this one, any other of its type. */
		int blamed = q.culprit;
		for (int second = 0; second < t->nin; second++) {
			if (second == first || (blamed != first && second != blamed) || !t->in[second] || t->tin[second].type != t->tin[first].type)
				continue;
			f.n = 2;
			int m = reachable(t->in[second], t->tin[second], next);
			for (int k = 0; k < m; k++) {
				q.in[second] = next[k];
				f.change[1] = (tt_change){ second, id_of(t->g, t->in[second]), next[k] };
				if (next[k].type == to[i].type && ask(&q))
					keep(r, open, &f, q.open);
			}
			q.in[second] = t->tin[second];
		}
	}
}

void tt_rejection_fill(const tt_typing *t, int axis, tt_rejection *r)
{
	bool open[TT_MAX_FIXES] = { false };
	int culprit = *t->culprit;
	*r = (tt_rejection){ .op = t->op, .input = culprit, .axis = axis, .has = t->tin[culprit] };
	snprintf(r->why, sizeof r->why, "%s", t->why);
	r->value = t->in[culprit] ? id_of(t->g, t->in[culprit]) : 0;
	search(t, culprit, r, open);
	for (int i = 0; i < t->nin; i++)
		if (i != culprit && t->in[i] && t->in[i]->gdtype != TT_NODTYPE)
			search(t, i, r, open);
}

/* ---- the text ---------------------------------------------------------------------------------------------------------------------------- */

static void say_fixes(const tt_graph *g, const tt_rejection *r, tt_buf *b)
{
	const char *const types[] = { "TT_R", "TT_I", "TT_V", "TT_S", "TT_P", "TT_M" };
	for (int i = 0; i < r->nfixes; i++) {
		tt_buf_str(b, i ? "\n  or: " : "\n  would do: ");
		for (int k = 0; k < r->fix[i].n; k++) {
			const tt_change *c = &r->fix[i].change[k];
			tt_buf_printf(b, "%s%s as ", k ? ", and " : "", g->values[c->value].name);
			say_type(b, c->to);
			tt_buf_printf(b, ", tt_convert(g, x, \"%s\", %s, %d)", g->mesh.ax[r->axis].name, types[c->to.type], c->to.type == TT_S ? c->to.dim : 0);
		}
	}
}

void tt_reject(tt_graph *g, const tt_rejection *rejection)
{
	if (g->status != TT_OK)
		return;
	tt_rejection r = *rejection;
	const char *axis = g->mesh.ax[r.axis].name, *name = r.value ? g->values[r.value].name : "(absent)";
	tt_buf b = { 0 };
	if (g->scope[0])
		tt_buf_printf(&b, "%s: ", g->scope);
	if (r.op)
		tt_buf_printf(&b, "%s: input %d, %s, on axis %s: has ", r.op->name, r.input, name, axis);
	else
		tt_buf_printf(&b, "%s on axis %s: has ", name, axis);
	say_type(&b, r.has);
	tt_buf_printf(&b, ", %s", r.why);
	if (g->reversing) {
		/* A value that forward made is to blame itself, else the one whose gradient this is. */
		tt_v saved = r.op && r.value && g->values[r.value].def >= 0 && g->nodes[g->values[r.value].def].seg == TT_SEG_F ? r.value : g->reversing;
		const tt_value *x = &g->values[r.forward = saved];
		bool has;
		tt_buf_str(&b, "\n  forward is right, its backward is not: ");
		tt_buf_printf(&b, "%s has ", x->name);
		say_type(&b, x->layout.ax[r.axis]);
		if (r.op) {
			tt_buf_str(&b, ", so its gradient has ");
			say_type(&b, tt_axis_type_dual(x->layout.ax[r.axis], &has));
		}
	}
	tt_v about = r.forward ? r.forward : r.value;
	if (about)
		say_origin(g, about, r.axis, &b);
	if (g->explain)
		g->explain(g, g->explain_ctx, &r, &b);
	else
		say_fixes(g, &r, &b);
	g->status = TT_ERR_TYPE;
	g->error = tt_arena_strdup(g->arena, b.s);
	tt_buf_fini(&b);
}
