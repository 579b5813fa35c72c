/* explain.c: what more there is to say of a rejected typing where a plan made the layouts: which row put the value there, and which row would help.
 * A row that is offered was tried: with it before all others the model is partitioned again, and differentiated. The one with which that goes
 * furthest is shown, as a config has it and as a model's table has it. Slow, and only on the way to an error. */
#include "ops/ops.h"
#include "pass/internal.h"

#include <stdio.h>

enum { MOST_ROWS = 6, MOST_STEPS = 16, MOST_WAYS = 96 };

/* Rows that might help where a plan is rejected. */
typedef struct step {
	int n;
	tt_layout_row rows[2];
} step;

/* Rows before all others, and an own row taken out: how far the model gets that way, and which steps might take it on. */
typedef struct way {
	int n;
	tt_layout_row rows[MOST_ROWS];
	int without;     /* number of the own row, -1: none */
	double far;      /* 0 .. 1: share of the forward; 1: the backward fails; 2: nothing does */
	char next[384];  /* what fails then */
	int nsteps;
	step steps[MOST_STEPS];
	bool done;       /* its steps were taken */
} way;

typedef struct talk {
	const tt_graph *g;
	const tt_origin *o;
	const tt_rejection *r;
	tt_arena *a;     /* outlives the graph */
	way *w;          /* that is rejected */
} talk;

/* ---- which row put a value where it is ----------------------------------------------------------------------------------------------- */

/* The node that a conversion was made for: the first that takes it, behind further conversions. */
static bool taker_of(const talk *t, tt_v v, tt_taker *out)
{
	const tt_graph *g = t->g;
	for (int64_t i = g->values[v].def + 1; i < g->nnodes; i++)
		for (int k = 0; k < g->nodes[i].nin; k++) {
			if (g->nodes[i].in[k] != v)
				continue;
			*out = (tt_taker){ g->nodes[i].op->name, g->values[g->nodes[i].out[0]].name };
			return g->nodes[i].op != &tt_op_convert || taker_of(t, g->nodes[i].out[0], out);
		}
	*out = (tt_taker){ t->r->op ? t->r->op->name : "", t->r->makes };
	return true;
}

/* Number of the row from which v, an input, a state or a conversion, has its type on the axis; -1: none. */
static int row_of(const talk *t, tt_v v)
{
	const tt_plan *plan = &t->o->plan;
	const tt_value *x = &t->g->values[v];
	int ax = t->r->axis, row;
	if (x->def < 0) {
		row = tt_plan_find(plan, TT_PLACE_STORE, x->name, NULL, ax);
		bool param = x->kind == TT_STATE && t->g->states[x->state].trainable;
		return row < 0 && param ? tt_plan_find(plan, TT_PLACE_PARAM, x->name, NULL, ax) : row;
	}
	const char *name = t->g->values[tt_value_written(t->g, v)].name;
	tt_axis_type has = x->layout.ax[ax];
	tt_taker by;
	row = tt_plan_find(plan, TT_PLACE_MAKE, name, NULL, ax);
	if (row >= 0 && (int)tt_plan_row(plan, row)->type == (int)has.type)
		return row;
	return taker_of(t, v, &by) ? tt_plan_find(plan, TT_PLACE_USE, name, &by, ax) : -1;
}

static void say_row(const talk *t, tt_v v, tt_buf *b)
{
	tt_v from = tt_layout_origin(t->g, v, t->r->axis);
	int row = row_of(t, from);
	const char *name = t->g->values[from].name;
	if (row >= 0) {
		tt_buf_printf(b, "\n  %s: ", tt_plan_where(t->a, &t->o->plan, row));
		tt_layout_row_line(tt_plan_row(&t->o->plan, row), b);
	} else if (t->g->values[from].def < 0) {
		tt_buf_printf(b, "\n  no row speaks of %s on axis %s, so it is R", name, t->g->mesh.ax[t->r->axis].name);
	}
}

/* ---- steps ------------------------------------------------------------------------------------------------------------------------------ */

static void add_step(talk *t, int n, const tt_layout_row *rows)
{
	if (t->w->nsteps == MOST_STEPS)
		return;
	step *s = &t->w->steps[t->w->nsteps++];
	s->n = n;
	for (int i = 0; i < n; i++)
		s->rows[i] = rows[i];
}

static tt_layout_row row_for(const talk *t, tt_place place, tt_v v, const char *by, tt_axis_type to)
{
	const tt_value *x = &t->g->values[tt_value_written(t->g, v)];
	return (tt_layout_row){ place, tt_layout_pattern(t->a, x->name), place == TT_PLACE_USE ? by : NULL, t->g->mesh.ax[t->r->axis].name, (tt_type)to.type,
				to.type == TT_S ? to.dim : 0, NULL };
}

/* Places where a row could bring v to a type, likeliest first. */
static int places(const talk *t, tt_v v, tt_axis_type to, tt_place *out)
{
	const tt_value *x = &t->g->values[tt_value_written(t->g, v)];
	bool param = x->kind == TT_STATE && t->g->states[x->state].trainable;
	if (x->kind == TT_INPUT || (x->kind == TT_STATE && !param)) {
		out[0] = TT_PLACE_STORE;
		return 1;
	}
	bool used = to.type == TT_R || to.type == TT_P; /* a weight is stored in pieces, and gathered where it is used */
	out[0] = param ? used ? TT_PLACE_USE : TT_PLACE_STORE : TT_PLACE_MAKE;
	out[1] = param && used ? TT_PLACE_STORE : TT_PLACE_USE;
	return 2;
}

/* The changes that the rule would accept, as rows. */
static void steps_forward(talk *t)
{
	const tt_rejection *r = t->r;
	const char *by = tt_layout_pattern(t->a, r->makes);
	/* A parameter that is stored in pieces for the sake of memory alone is gathered like all of them. */
	int row = r->value && t->g->values[r->value].kind == TT_STATE ? row_of(t, r->value) : -1;
	if (row >= 0 && tt_plan_row(&t->o->plan, row)->place == TT_PLACE_PARAM)
		add_step(t, 1, (tt_layout_row[]){ { TT_PLACE_USE, "*.weight|*.bias", NULL, tt_plan_row(&t->o->plan, row)->axis, TT_R, 0, NULL } });
	for (int i = 0; i < r->nfixes; i++) {
		tt_place where[2];
		int n = places(t, r->fix[i].change[0].value, r->fix[i].change[0].to, where);
		for (int p = 0; p < n; p++) {
			tt_layout_row rows[2];
			for (int k = 0; k < r->fix[i].n; k++) {
				tt_place other[2];
				int m = places(t, r->fix[i].change[k].value, r->fix[i].change[k].to, other);
				rows[k] = row_for(t, other[TT_MIN(p, m - 1)], r->fix[i].change[k].value, by, r->fix[i].change[k].to);
			}
			add_step(t, r->fix[i].n, rows);
		}
	}
}

/* A conversion of a dim that further axes shard: those first, by rows of the same kind. */
static void steps_order(talk *t)
{
	const tt_rejection *r = t->r;
	const tt_value *x = &t->g->values[r->value];
	for (int ax = 0; ax < t->g->mesh.naxes; ax++) {
		tt_axis_type y = x->layout.ax[ax];
		if (ax == r->axis || t->g->mesh.ax[ax].size == 1 || y.type != TT_S || r->has.type != TT_S || y.dim != r->has.dim || y.order < r->has.order)
			continue;
		tt_layout_row row = row_for(t, TT_PLACE_USE, r->value, NULL, (tt_axis_type){ .type = TT_R });
		row.axis = t->g->mesh.ax[ax].name;
		add_step(t, 1, &row);
	}
}

/* A forward value whose gradient nobody takes: what makes it works on other types, and what it makes is converted after. */
static void steps_backward(talk *t)
{
	const tt_graph *g = t->g;
	tt_v v = tt_value_written(g, t->r->forward);
	const tt_value *x = &g->values[v];
	static const tt_axis_type types[] = { { .type = TT_S }, { .type = TT_I }, { .type = TT_S, .dim = 1 }, { .type = TT_R } };
	const char *by = tt_layout_pattern(t->a, x->name);
	tt_layout_row rows[2];
	tt_v seed = tt_value_find(g, t->r->makes);
	if (!t->r->op && seed && g->values[seed].kind == TT_INPUT) { /* what a loss is seeded with */
		bool has;
		rows[0] = row_for(t, TT_PLACE_STORE, seed, NULL, tt_axis_type_dual(t->r->has, &has));
		add_step(t, 1, rows);
	}
	if (x->def < 0) {
		for (int i = 0; i < TT_COUNT(types); i++) {
			rows[0] = row_for(t, TT_PLACE_STORE, v, NULL, types[i]);
			if (types[i].type != TT_S || types[i].dim < x->ndim)
				add_step(t, 1, rows);
		}
		return;
	}
	const tt_node *n = &g->nodes[x->def];
	rows[0] = row_for(t, TT_PLACE_MAKE, v, NULL, x->layout.ax[t->r->axis]);
	for (int i = 0; i < TT_COUNT(types); i++) {
		add_step(t, 1, (tt_layout_row[]){ row_for(t, TT_PLACE_MAKE, v, NULL, types[i]) });
		for (int k = 0; k < n->nin; k++) {
			const tt_value *y = n->in[k] ? &g->values[n->in[k]] : NULL;
			if (!y || y->gdtype == TT_NODTYPE || (types[i].type == TT_S && types[i].dim >= y->ndim))
				continue;
			rows[1] = row_for(t, TT_PLACE_USE, n->in[k], by, types[i]);
			add_step(t, 1, &rows[1]);
			add_step(t, 2, rows);
		}
	}
}

static void find_steps(talk *t)
{
	if (t->r->op == &tt_op_convert && !t->r->forward)
		steps_order(t);
	if (t->r->forward)
		steps_backward(t);
	steps_forward(t);
}

/* ---- ways: tried ------------------------------------------------------------------------------------------------------------------------ */

typedef struct trial {
	const tt_origin *o;
	tt_arena *a;
	way *w;
} trial;

/* Of a trial's rejection only what may come next is kept. */
static void note_rejection(const tt_graph *g, const void *ctx, const tt_rejection *r, tt_buf *b)
{
	(void)b;
	const trial *x = ((const tt_origin *)ctx)->trial;
	talk t = { .g = g, .o = x->o, .r = r, .a = x->a, .w = x->w };
	find_steps(&t);
}

static void try_way(const tt_origin *o, tt_arena *keep, way *w)
{
	const tt_plan *plan = &o->plan;
	tt_arena *a = tt_arena_create("explain");
	tt_layout_row *rows = TT_NEWN(a, tt_layout_row, w->n + plan->own.n + 1);
	const char **where = TT_NEWN(a, const char *, w->n + plan->own.n + 1);
	tt_plan p = *plan;
	int n = 0;
	for (int i = 0; i < w->n; i++) {
		rows[n] = w->rows[i];
		where[n++] = "a row that is tried";
	}
	for (int i = 0; i < plan->own.n; i++)
		if (i != w->without) {
			rows[n] = plan->own.rows[i];
			where[n++] = plan->own.where[i];
		}
	p.own = (tt_layouts){ rows, where, n };
	trial x = { o, keep, w };
	tt_origin origin = { .model = o->model, .plan = p, .asking = -1, .trial = &x };
	tt_graph *g, *back;
	tt_status s = tt_partition(&origin, note_rejection, a, &g, &w->far);
	if (s == TT_OK) {
		w->far = 1;
		s = tt_autodiff(g, &tt_autodiff_builders, a, &back);
	}
	if (s == TT_OK) {
		w->far = 2;
	} else {
		const char *text = tt_error_text();
		snprintf(w->next, sizeof w->next, "%.*s", (int)strcspn(text, "\n"), text);
	}
	tt_arena_destroy(a);
}

static bool beyond(const way *w, const way *other)
{
	return w->far > other->far || (w->far == 1 && other->far == 1 && strcmp(w->next, other->next));
}

/* The furthest way first: its steps are taken, one more row or two each, until a plan is right or the ways are many. NULL: none leads further. */
static const way *rows_that_help(const tt_origin *o, tt_arena *a, const way *as_is)
{
	int n = 1, most = (int)TT_MIN(TT_MAX(200000 / o->model->nnodes, (int64_t)8), (int64_t)MOST_WAYS); /* a large model takes its time */
	way *ways = TT_NEWN(a, way, most);
	ways[0] = *as_is;
	for (;;) {
		way *from = NULL;
		for (int i = 0; i < n; i++)
			if (!ways[i].done && (!from || ways[i].far > from->far))
				from = &ways[i];
		if (!from)
			break;
		from->done = true;
		for (int i = 0; i < from->nsteps && n < most; i++) {
			const step *s = &from->steps[i];
			if (from->n + s->n > MOST_ROWS)
				continue;
			way *w = &ways[n];
			*w = (way){ .n = from->n + s->n, .without = -1 };
			memcpy(w->rows, s->rows, sizeof *s->rows * (size_t)s->n);
			memcpy(w->rows + s->n, from->rows, sizeof *from->rows * (size_t)from->n);
			try_way(o, a, w);
			if (w->far == 2)
				return w;
			n += beyond(w, from);
		}
	}
	const way *best = NULL;
	for (int i = 1; i < n; i++)
		if (beyond(&ways[i], as_is) && (!best || ways[i].far > best->far))
			best = &ways[i];
	return best;
}

/* Most mistakes are a config's own rows. */
static const way *row_too_many(const tt_origin *o, tt_arena *a, const way *as_is)
{
	const way *best = NULL;
	for (int i = 0; i < o->plan.own.n; i++) {
		way *w = TT_NEW(a, way);
		w->without = i;
		try_way(o, a, w);
		if (beyond(w, as_is) && (!best || w->far > best->far))
			best = w;
	}
	return best;
}

/* ---- the text --------------------------------------------------------------------------------------------------------------------------- */

static void say_way(const talk *t, const way *w, const char *or, tt_buf *b)
{
	tt_buf_printf(b, "\n  %s%s %s, ", or, w->without >= 0 ? "without" : "with", w->without >= 0 ? tt_plan_where(t->a, &t->o->plan, w->without) : w->n > 1 ? "these rows" : "this row");
	if (w->far == 2)
		tt_buf_str(b, "every type is right, forward and backward");
	else
		tt_buf_printf(b, "it goes on, to %s", w->next);
	for (int i = 0; i < w->n; i++) {
		tt_buf_str(b, "\n");
		tt_layout_row_toml(&w->rows[i], "    ", b);
	}
	for (int i = 0; i < w->n; i++) {
		tt_buf_str(b, i ? "\n                  " : "\n  in the table: ");
		tt_layout_row_c(&w->rows[i], b);
	}
}

/* Types that the rule would take, in words, where no row was found that helps. */
static void say_types(const talk *t, tt_buf *b)
{
	const tt_rejection *r = t->r;
	for (int i = 0; i < r->nfixes; i++)
		for (int k = 0; k < r->fix[i].n; k++) {
			tt_buf_printf(b, "%s%s as ", k ? " and " : i ? ", or " : "\n  the rule takes ", t->g->values[r->fix[i].change[k].value].name);
			tt_axis_type_print(r->fix[i].change[k].to, b);
		}
}

void tt_plan_explain(const tt_graph *g, const void *ctx, const tt_rejection *r, tt_buf *b)
{
	tt_arena *a = tt_arena_create("explain");
	talk t = { .g = g, .o = ctx, .r = r, .a = a };
	tt_v about = r->forward ? r->forward : r->value;
	if (about)
		say_row(&t, about, b);
	if (t.o->asking >= 0 && r->op == &tt_op_convert && !r->forward) {
		tt_buf_printf(b, "\n  the conversion is asked for by %s: ", tt_plan_where(a, &t.o->plan, t.o->asking));
		tt_layout_row_line(tt_plan_row(&t.o->plan, t.o->asking), b);
	}
	way *as_is = TT_NEW(a, way);
	as_is->without = -1;
	try_way(t.o, a, as_is);
	const way *out = row_too_many(t.o, a, as_is), *in = rows_that_help(t.o, a, as_is);
	if (out && in && (in->far < out->far || in->n > 1))
		in = NULL;
	if (out && in && out->far < in->far)
		out = NULL;
	if (out)
		say_way(&t, out, "", b);
	if (in)
		say_way(&t, in, out ? "or " : "", b);
	if (!out && !in)
		say_types(&t, b);
	tt_arena_destroy(a);
}
