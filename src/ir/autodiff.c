/* autodiff.c: the reverse walk over the (local) graph.
 *
 * Every node's vjp emits ordinary nodes; nothing here knows an op except add, round and accumulate, which come from above.
 *
 * How the cotangents of one value meet (EXACT.md): terms that are sums over a splittable role arrive as `acc` and are added as acc,
 * in ascending order of the consuming node; the sum is rounded once, at the value the model wrote down (never at a conversion
 * or view of it, which hand acc through); then the terms that arrived rounded are added in ascending order of their consumer.
 *
 * A loss chunk's backward follows its forward at once, so logits never outlive their chunk. What a chunk adds to a value made
 * outside of it is settled when the chunk ends: parameters into their accumulator state, other values into one pending term. So
 * never more than two of the chunks' weight gradients are alive.
 */
#include "ir/ir.h"

#include <stdio.h>

#include "ir/internal.h"

typedef struct term {
	struct term *next;
	tt_v grad;
	int64_t consumer; /* index of the consuming node in the new graph: its order among the terms */
} term;

typedef struct walk {
	const tt_autodiff_ops *ops;
	tt_copy copy;
	tt_graph *g;
	tt_arena *a;
	term **terms;     /* [cap_values] by value id of the new graph */
	int64_t cap_terms;
	bool *needs;      /* [from->nvalues] by id of the old graph: a gradient is wanted and can flow */
	tt_v *acc;        /* [nstates] latest version of the accumulator of a parameter, 0 = none yet */
	int32_t *touched; /* parameters (states) with terms not yet in their accumulators, rising */
	int64_t ntouched;
} walk;

static term **terms_of(walk *w, tt_v v)
{
	if (v >= w->cap_terms) {
		int64_t cap = TT_MAX(2 * w->cap_terms, (int64_t)v + 64);
		term **t = TT_NEWN(w->a, term *, cap);
		if (w->cap_terms)
			memcpy(t, w->terms, (size_t)w->cap_terms * sizeof *t);
		w->terms = t;
		w->cap_terms = cap;
	}
	return &w->terms[v];
}

/* Inserts in ascending order of consumer; equal consumers keep the order of arrival. */
static void push_term(walk *w, tt_v v, tt_v grad, int64_t consumer)
{
	term **at = terms_of(w, v);
	int32_t state = w->g->values[v].state;
	if (!*at && state >= 0 && w->g->states[state].trainable) {
		int64_t k = w->ntouched++;
		for (; k > 0 && w->touched[k - 1] > state; k--)
			w->touched[k] = w->touched[k - 1];
		w->touched[k] = state;
	}
	while (*at && (*at)->consumer <= consumer)
		at = &(*at)->next;
	term *t = TT_NEW(w->a, term);
	*t = (term){ .next = *at, .grad = grad, .consumer = consumer };
	*at = t;
}

/* The value the model wrote down, behind any conversions: names of gradients do not depend on the plan. */
static const tt_value *written(const tt_graph *g, tt_v v)
{
	while (g->values[v].def >= 0 && !strcmp(g->nodes[g->values[v].def].op->name, "convert"))
		v = g->nodes[g->values[v].def].in[0];
	return &g->values[v];
}

static const char *grad_name(walk *w, tt_v v, const char *suffix)
{
	return tt_arena_printf(w->a, "=d(%s)%s", written(w->g, v)->name, suffix);
}

static bool is_acc(const walk *w, tt_v v)
{
	return w->g->values[v].dtype == TT_ACC;
}

/* Sum of the terms of `v` with the wanted accness, in ascending order; 0 if none. Terms taken are unlinked. */
static tt_v take_sum(walk *w, tt_v v, bool acc, int64_t *consumer)
{
	tt_v sum = 0;
	for (term **at = terms_of(w, v); *at;) {
		term *t = *at;
		if (is_acc(w, t->grad) != acc) {
			at = &t->next;
			continue;
		}
		*at = t->next;
		if (!sum)
			*consumer = t->consumer;
		sum = sum ? w->ops->add(w->g, sum, t->grad, grad_name(w, v, ".sum")) : t->grad;
	}
	return sum;
}

static void reject_gradient(walk *w, tt_v v, tt_v grad, int axis, tt_axis_type want, bool has)
{
	tt_graph *g = w->g;
	tt_rejection r = { .value = v, .axis = axis, .has = g->values[v].layout.ax[axis], .makes = g->values[grad].name };
	tt_buf b = { 0 };
	if (has) {
		tt_buf_str(&b, "so its gradient needs ");
		tt_axis_type_print(want, &b);
		tt_buf_printf(&b, ", and %s has ", g->values[grad].name);
		tt_axis_type_print(g->values[grad].layout.ax[axis], &b);
		tt_buf_str(&b, ": declare the conversion where it is used");
	} else {
		tt_buf_printf(&b, "and can have no gradient (%s): a maximum is taken before anything follows from it", g->values[grad].name);
	}
	snprintf(r.why, sizeof r.why, "%s", b.s);
	tt_buf_fini(&b);
	g->reversing = v;
	tt_reject(g, &r);
}

/* The cotangent must have the dual type on every axis. */
static bool check_dual(walk *w, tt_v v, tt_v grad)
{
	tt_graph *g = w->g;
	if (g->status != TT_OK)
		return false;
	for (int i = 0; i < g->mesh.naxes; i++) {
		if (g->mesh.ax[i].size == 1)
			continue;
		bool has;
		tt_axis_type want = tt_axis_type_dual(g->values[v].layout.ax[i], &has);
		tt_axis_type got = g->values[grad].layout.ax[i];
		if (has && got.type == want.type && (want.type != TT_S || (got.dim == want.dim && got.fine == want.fine && got.shift == want.shift)))
			continue;
		reject_gradient(w, v, grad, i, want, has);
		return false;
	}
	return true;
}

/* The whole cotangent of `v`, rounded as EXACT.md says; 0 if nothing reached it. */
static tt_v cotangent(walk *w, tt_v v)
{
	tt_graph *g = w->g;
	int64_t c;
	g->reversing = v;
	tt_v acc = take_sum(w, v, true, &c);
	tt_dtype gdt = g->values[v].gdtype;
	if (acc && gdt != TT_ACC)
		acc = w->ops->round(g, acc, gdt, grad_name(w, v, ""));
	if (acc) /* first of all, before what arrived rounded */
		push_term(w, v, acc, -1);
	tt_v d = take_sum(w, v, gdt == TT_ACC, &c);
	g->reversing = 0;
	if (d && check_dual(w, v, d))
		return d;
	return 0;
}

static void run_vjp(walk *w, const tt_node *n, const tt_v *dout, int64_t index)
{
	tt_graph *g = w->g;
	tt_v din[TT_MAX_IO] = { 0 };
	tt_vjp v = { .g = g, .node = n, .dout = dout, .din = din };
	g->reversing = n->out[0];
	memcpy(g->scope, n->scope, strlen(n->scope) + 1);
	TT_ASSERT(n->op->vjp, "%s (%s) is on the way of a gradient and has no vjp", n->op->name, g->values[n->out[0]].name);
	n->op->vjp(&v);
	g->scope[0] = 0;
	g->reversing = 0;
	if (g->status != TT_OK)
		return;
	for (int i = 0; i < n->nin; i++)
		if (n->in[i] && din[i] && g->values[n->in[i]].gdtype != TT_NODTYPE)
			push_term(w, n->in[i], din[i], index);
}

/* Backward of one node of the new graph. */
static void reverse_node(walk *w, int64_t index)
{
	tt_graph *g = w->g;
	tt_node n = g->nodes[index]; /* by value: emission moves the array; ids and attr stay */
	tt_v dout[TT_MAX_IO] = { 0 };
	bool any = false;
	for (int i = 0; i < n.nout; i++)
		any |= *terms_of(w, n.out[i]) != NULL;
	if (!any || g->status != TT_OK)
		return;
	if (n.op->cls == TT_CLASS_MOVE) { /* hands acc and rounded terms through apart: the rounding belongs to the source */
		for (int acc = 1; acc >= 0; acc--) {
			bool some = false;
			int64_t c = index;
			for (int i = 0; i < n.nout; i++) {
				dout[i] = take_sum(w, n.out[i], acc, &c);
				if (dout[i] && !check_dual(w, n.out[i], dout[i]))
					return;
				some |= dout[i] != 0;
			}
			if (some)
				run_vjp(w, &n, dout, index);
		}
		return;
	}
	for (int i = 0; i < n.nout; i++)
		dout[i] = *terms_of(w, n.out[i]) ? cotangent(w, n.out[i]) : 0;
	if (g->status == TT_OK)
		run_vjp(w, &n, dout, index);
}

/* The accumulator "grad.NAME" of a parameter: acc, of the dual layout. */
static tt_v accumulator(walk *w, tt_v param)
{
	tt_graph *g = w->g;
	tt_value v = g->values[param];
	const char *name = tt_arena_printf(w->a, "grad.%s", v.name);
	tt_v s = tt_state_new(g, name, TT_REGION_GRAD, TT_ACC, v.ndim, v.dim, false);
	if (!s)
		return 0;
	tt_layout l = v.layout;
	for (int i = 0; i < TT_MAX_AXES; i++) {
		bool has;
		l.ax[i] = i < g->mesh.naxes && g->mesh.ax[i].size > 1 ? tt_axis_type_dual(l.ax[i], &has) : l.ax[i];
	}
	tt_value_set_layout(g, s, l);
	return s;
}

/* After a group: parameters' terms go into their accumulators, other values keep one pending acc term. */
static void settle(walk *w, int64_t group_first)
{
	tt_graph *g = w->g;
	for (int64_t k = 0; k < w->ntouched && g->status == TT_OK; k++) {
		int32_t i = w->touched[k];
		tt_v v = g->states[i].value;
		int32_t master = g->states[i].source >= 0 ? g->states[i].source : i;
		for (term *t = *terms_of(w, v); t; t = t->next) {
			if (!is_acc(w, t->grad)) {
				tt_graph_fail(g, "%s: gradient term %s is %s, needs acc", g->values[v].name, g->values[t->grad].name,
					      tt_dtype_name(g->values[t->grad].dtype));
				return;
			}
			if (!check_dual(w, v, t->grad))
				return;
			bool first = !w->acc[master];
			if (first) {
				w->acc[master] = accumulator(w, g->states[master].value);
				if (!w->acc[master])
					return;
			}
			tt_v state = tt_value_find(g, tt_arena_printf(w->a, "grad.%s", g->values[g->states[master].value].name));
			w->acc[master] = w->ops->accumulate(g, w->acc[master], t->grad, first);
			tt_state_set(g, state, w->acc[master]);
		}
		*terms_of(w, v) = NULL;
	}
	w->ntouched = 0;
	for (tt_v v = 1; group_first && v < w->cap_terms && g->status == TT_OK; v++) {
		term *t = w->terms[v];
		if (!t || !t->next || g->values[v].def >= group_first)
			continue;
		int64_t c = 0;
		tt_v sum = take_sum(w, v, true, &c);
		if (sum)
			push_term(w, v, sum, c);
	}
}

/* Which old values a gradient should reach: trainable states and what is made from them through values that carry gradients. */
static void find_needs(walk *w, const tt_graph *f)
{
	w->needs = TT_NEWN(w->a, bool, f->nvalues);
	for (int64_t i = 0; i < f->nstates; i++)
		w->needs[f->states[i].value] = f->states[i].trainable;
	for (int64_t i = 0; i < f->nnodes; i++) {
		const tt_node *n = &f->nodes[i];
		bool any = false;
		for (int k = 0; k < n->nin; k++)
			any |= n->in[k] && w->needs[n->in[k]] && f->values[n->in[k]].gdtype != TT_NODTYPE;
		for (int k = 0; k < n->nout; k++)
			w->needs[n->out[k]] = any && f->values[n->out[k]].gdtype != TT_NODTYPE;
	}
}

static bool node_needs(const walk *w, const tt_node *n)
{
	for (int k = 0; k < n->nout; k++)
		if (w->needs[n->out[k]])
			return true;
	return false;
}

tt_status tt_autodiff(const tt_graph *f, const tt_autodiff_ops *ops, tt_arena *a, tt_graph **out)
{
	TT_TRY(tt_graph_check(f));
	walk w = { .ops = ops, .copy = tt_copy_begin(f, a), .a = a };
	tt_graph *g = w.g = w.copy.to;
	w.acc = TT_NEWN(a, tt_v, f->nstates);
	w.touched = TT_NEWN(a, int32_t, f->nstates);
	find_needs(&w, f);
	int32_t ngroups = 0;
	for (int64_t i = 0; i < f->nnodes; i++)
		ngroups = TT_MAX(ngroups, f->nodes[i].group);
	int64_t *old = TT_NEWN(a, int64_t, f->nnodes); /* [index in the new graph] -> old node, for the nodes of F */
	int64_t nf = 0;
	for (int64_t i = 0; i < f->nnodes; i++)
		if (!f->nodes[i].group) {
			tt_copy_node(&w.copy, &f->nodes[i]);
			old[nf++] = i;
		}
	for (int32_t gr = 1; gr <= ngroups; gr++) {
		int64_t first = g->nnodes;
		int64_t *oldg = TT_NEWN(a, int64_t, f->nnodes);
		int64_t n = 0;
		for (int64_t i = 0; i < f->nnodes; i++)
			if (f->nodes[i].group == gr) {
				tt_copy_node(&w.copy, &f->nodes[i]);
				oldg[n++] = i;
			}
		if (g->status != TT_OK)
			break;
		g->seg = TT_SEG_B;
		g->group = gr;
		for (int64_t r = 0; r < f->nroots; r++) {
			tt_v v = w.copy.map[f->roots[r].value];
			if (v && g->values[v].def >= first)
				push_term(&w, v, w.copy.map[f->roots[r].seed], INT64_MAX);
		}
		for (int64_t i = n - 1; i >= 0; i--)
			if (node_needs(&w, &f->nodes[oldg[i]]))
				reverse_node(&w, first + i);
		settle(&w, first);
	}
	if (g->status == TT_OK) {
		g->seg = TT_SEG_B;
		g->group = 0;
		for (int64_t r = 0; r < f->nroots; r++) {
			tt_v v = w.copy.map[f->roots[r].value];
			if (v && g->values[v].def < nf)
				push_term(&w, v, w.copy.map[f->roots[r].seed], INT64_MAX);
		}
		for (int64_t i = nf - 1; i >= 0; i--) {
			const tt_node *n = &f->nodes[old[i]];
			if (n->seg != TT_SEG_F || !node_needs(&w, n))
				continue;
			/* Parameters at once: their gradients do not wait for the walk's end. But not between a node and conversions of its
			 * parameters: the order is that of the parameters whether or not they are converted. */
			if (n->op->cls != TT_CLASS_MOVE || written(g, g->nodes[i].out[0])->kind != TT_STATE)
				settle(&w, 0);
			reverse_node(&w, i);
		}
		settle(&w, 0);
	}
	tt_copy_end(&w.copy);
	TT_TRY(tt_graph_verify(g, "autodiff"));
	*out = g;
	return TT_OK;
}
