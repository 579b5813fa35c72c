/* show.c: the table of layouts as text: rows, what they match, where every value lies, and what is converted. Values that differ in the number of their
 * layer or loss chunk alone, and lie alike, are one line. */
#include "ops/ops.h"
#include "pass/internal.h"

#include <stdio.h>

enum { NAMES = 3, NAME_WIDTH = 44 };

/* "*.self_attn.q", "layers.N.y", "loss.N.max" */
static const char *shown(tt_arena *a, const char *name)
{
	const char *p = tt_layout_pattern(a, name);
	if (!strchr(p, '|'))
		return p;
	const char *end = strchr(p, '|'), *mark = memchr(p, '?', (size_t)(end - p));
	return tt_arena_printf(a, "%.*sN%.*s", (int)(mark - p), p, (int)(end - mark - 1), mark + 1);
}

/* ---- rows ------------------------------------------------------------------------------------------------------------------------------- */

/* How many values, and the first names. */
static void say_matches(tt_arena *a, const tt_layout_row *r, const tt_graph *g, tt_buf *b)
{
	const char *names[NAMES];
	int64_t values = 0;
	int n = 0;
	bool more = false;
	for (tt_v v = 1; v < g->nvalues; v++) {
		if (!tt_row_speaks_of(r, g, v) || !tt_row_used(r, g, v) || strchr(g->values[v].name, ':'))
			continue;
		const char *name = shown(a, g->values[v].name);
		bool known = false;
		for (int i = 0; i < n; i++)
			known |= !strcmp(names[i], name);
		values++;
		if (known)
			continue;
		if (n < NAMES)
			names[n++] = name;
		else
			more = true;
	}
	if (!values)
		tt_buf_str(b, "nothing here");
	for (int i = 0; i < n; i++)
		tt_buf_printf(b, "%s%s", i ? ", " : tt_arena_printf(a, "%lld: ", (long long)values), names[i]);
	if (more)
		tt_buf_str(b, ", ..");
}

static void print_rows(tt_arena *a, const tt_plan *plan, const tt_graph *model, tt_buf *b)
{
	int n = tt_plan_rows(plan);
	for (int i = 0; i < n; i++) {
		const tt_layout_row *r = tt_plan_row(plan, i);
		tt_buf line = { 0 };
		tt_layout_row_line(r, &line);
		if (i < plan->own.n) /* named by its place; the model's have numbers, the same with own rows and without (tt_plan_where) */
			tt_buf_printf(b, " own  %s (%s)\n", line.s, plan->own.where[i]);
		else
			tt_buf_printf(b, "%4d  %s\n", i - plan->own.n + 1, line.s);
		tt_buf_fini(&line);
		const char *idle = tt_row_idle(a, plan, i);
		tt_buf_str(b, "        ");
		if (idle)
			tt_buf_printf(b, "no effect: %s", idle);
		else
			say_matches(a, r, model, b);
		tt_buf_str(b, "\n");
	}
}

/* ---- values ------------------------------------------------------------------------------------------------------------------------------ */

typedef struct line { const char *name, *rest; int64_t n; bool layered; } line;
typedef struct lines {
	tt_arena *a;
	line *items;
	int64_t n, cap;
} lines;

static void add_line(lines *l, const char *name, const char *rest)
{
	const char *s = shown(l->a, name);
	for (int64_t i = l->n - 1; i >= 0; i--)
		if (!strcmp(l->items[i].name, s) && !strcmp(l->items[i].rest, rest)) {
			l->items[i].n++;
			return;
		}
	line x = { s, rest, 1, strcmp(s, name) != 0 };
	TT_PUSH(l->a, l->items, l->n, l->cap, x);
}

static void print_lines(const lines *l, tt_buf *b)
{
	for (int64_t i = 0; i < l->n; i++) {
		const line *x = &l->items[i];
		char count[24] = "";
		if (x->layered)
			snprintf(count, sizeof count, " x%lld", (long long)x->n);
		tt_buf_printf(b, "  %-*s %s\n", NAME_WIDTH, tt_arena_printf(l->a, "%s%s", x->name, count), x->rest);
	}
}

static const char *layout_text(tt_arena *a, const tt_graph *g, const tt_value *v)
{
	tt_buf b = { 0 };
	for (int ax = 0; ax < g->mesh.naxes; ax++) {
		if (g->mesh.ax[ax].size == 1)
			continue;
		tt_buf_printf(&b, "%s%s=", b.n ? " " : "", g->mesh.ax[ax].name);
		tt_axis_type_print(v->layout.ax[ax], &b);
	}
	tt_buf_printf(&b, "%*s", b.n < 44 ? (int)(46 - b.n) : 2, "");
	for (int d = 0; d < v->ndim; d++) {
		tt_buf_printf(&b, "%s%s", d ? " x " : "", tt_role_name(v->dim[d].role));
		if (v->dim[d].role != TT_TOKENS && v->dim[d].role != TT_SEQS)
			tt_buf_printf(&b, v->dim[d].unit > 1 ? " %lld/%lld" : " %lld", (long long)v->dim[d].n, (long long)v->dim[d].unit);
	}
	const char *s = tt_arena_strdup(a, b.s);
	tt_buf_fini(&b);
	return s;
}

static void print_values(tt_arena *a, const tt_graph *g, bool made, tt_buf *b)
{
	lines l = { .a = a };
	for (tt_v v = 1; v < g->nvalues; v++) {
		const tt_value *x = &g->values[v];
		bool derived = x->state >= 0 && g->states[x->state].source >= 0;
		if (derived || (x->kind == TT_TEMP) != made)
			continue;
		if (made && (g->nodes[x->def].op == &tt_op_convert || g->nodes[x->def].seg == TT_SEG_PREP))
			continue;
		if (strchr(x->name, '#')) /* a later version of a state */
			continue;
		add_line(&l, x->name, layout_text(a, g, x));
	}
	print_lines(&l, b);
}

/* ---- conversions -------------------------------------------------------------------------------------------------------------------------- */

/* What moves between ranks (LAYOUTS.md's table); "nothing" where no byte does. */
static const char *moves(tt_axis_type from, tt_axis_type to)
{
	bool whole = to.type == TT_R || to.type == TT_I;
	if ((from.type == TT_S || from.type == TT_V) && whole)
		return "all-gather";
	if (from.type == TT_S && to.type == TT_S)
		return "all-to-all";
	if (from.type == TT_P && whole)
		return "all-reduce";
	if (from.type == TT_M)
		return "all-reduce of maxima";
	return from.type == TT_P && to.type == TT_S ? "reduce-scatter" : "nothing";
}

/* Who takes it: the first values that they make, behind further conversions. */
static void say_takers(tt_arena *a, const tt_graph *g, tt_v v, int depth, tt_buf *b)
{
	for (int64_t i = g->values[v].def + 1; i < g->nnodes; i++)
		for (int k = 0; k < g->nodes[i].nin; k++) {
			if (g->nodes[i].in[k] != v)
				continue;
			if (g->nodes[i].op == &tt_op_convert && depth < TT_MAX_AXES) {
				say_takers(a, g, g->nodes[i].out[0], depth + 1, b);
				continue;
			}
			const char *name = shown(a, g->values[g->nodes[i].out[0]].name);
			if (b->n < 100 && !(b->s && strstr(b->s, name)))
				tt_buf_printf(b, "%s%s", b->n ? ", " : "", name);
		}
}

static void print_conversions(tt_arena *a, const tt_graph *g, tt_buf *b)
{
	lines l = { .a = a };
	for (int64_t i = 0; i < g->nnodes; i++) {
		const tt_node *n = &g->nodes[i];
		if (n->op != &tt_op_convert)
			continue;
		const tt_value *x = &g->values[n->in[0]], *y = &g->values[n->out[0]];
		const char *axis = ((const tt_attr_convert *)n->attr)->axis;
		int ax = 0;
		while (strcmp(g->mesh.ax[ax].name, axis))
			ax++;
		tt_axis_type from = x->layout.ax[ax], to = y->layout.ax[ax];
		tt_buf t = { 0 }, who = { 0 };
		tt_buf_printf(&t, "%-12s ", axis);
		tt_axis_type_print(from, &t);
		tt_buf_str(&t, " to ");
		tt_axis_type_print(to, &t);
		tt_buf_printf(&t, "%*s%s", t.n < 24 ? (int)(26 - t.n) : 2, "", moves(from, to));
		bool has, had;
		tt_axis_type back_from = tt_axis_type_dual(to, &has), back_to = tt_axis_type_dual(from, &had);
		if (has && had && y->gdtype != TT_NODTYPE)
			tt_buf_printf(&t, "; backward %s", tt_axis_type_eq(back_from, back_to) ? "nothing" : moves(back_from, back_to));
		say_takers(a, g, n->out[0], 0, &who);
		tt_buf_printf(&t, ", for %s", who.s ? who.s : "nobody");
		char base[320];
		const char *name = g->values[tt_value_written(g, n->in[0])].name, *colon = strchr(name, ':');
		snprintf(base, sizeof base, "%.*s", colon ? (int)(colon - name) : (int)strlen(name), name);
		add_line(&l, base, tt_arena_strdup(a, t.s));
		tt_buf_fini(&t);
		tt_buf_fini(&who);
	}
	print_lines(&l, b);
}

void tt_plan_layouts_print(const tt_plan *plan, const tt_graph *model, const tt_graph *typed, tt_buf *b)
{
	tt_arena *a = tt_arena_create("show");
	tt_buf mesh = { 0 };
	for (int ax = 0; ax < plan->mesh.naxes; ax++)
		if (plan->mesh.ax[ax].size > 1)
			tt_buf_printf(&mesh, "%s%s %d", mesh.n ? ", " : "", plan->mesh.ax[ax].name, plan->mesh.ax[ax].size);
	tt_buf_printf(b, "rows, first match wins: %d of the config, %d of the model's table; mesh: %s%s\n", plan->own.n, tt_plan_rows(plan) - plan->own.n, mesh.s ? mesh.s : "one rank",
		      plan->sp ? ", sequence parallel" : "");
	print_rows(a, plan, model, b);
	if (typed && mesh.s) {
		tt_buf_str(b, "\nparameters, states and inputs, as they are stored; S(d)/1: dealt in lines, not in whole heads (heads 512/64)\n");
		print_values(a, typed, false, b);
		tt_buf_str(b, "\nvalues, as they are made\n");
		print_values(a, typed, true, b);
		tt_buf_str(b, "\nconversions\n");
		print_conversions(a, typed, b);
	}
	tt_buf_fini(&mesh);
	tt_arena_destroy(a);
}
