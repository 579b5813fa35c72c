/* layouts.c: the rows of a plan: which one speaks for a value, their words, and whether a config's own rows say anything. */
#include "pass/internal.h"

#include <stdio.h>
#include <stdlib.h>

const char *const tt_plan_axes[TT_PLAN_AXES] = { "dp_replicate", "dp_shard", "cp", "tp", "tp_rep" };
const char *const tt_plan_row_axes[] = { "dp_replicate", "dp_shard", "cp", "tp", "tp_rep", "fsdp", "data", NULL };

const char *tt_cp_method_name(tt_cp_method m)
{
	static const char *const names[] = { "gather", "head_swap", "ring" };
	return names[m];
}

/* ---- rows ------------------------------------------------------------------------------------------------------------------------------- */

int tt_plan_rows(const tt_plan *plan)
{
	int n = plan->own.n;
	for (const tt_layout_row *r = plan->rows; r && r->value; r++)
		n++;
	return n;
}

const tt_layout_row *tt_plan_row(const tt_plan *plan, int i) { return i < plan->own.n ? &plan->own.rows[i] : &plan->rows[i - plan->own.n]; }

const char *tt_plan_where(tt_arena *a, const tt_plan *plan, int i)
{
	return i < plan->own.n ? plan->own.where[i] : tt_arena_printf(a, "row %d of the model's table", i - plan->own.n + 1);
}

static bool on_axis(const char *row, const char *axis)
{
	if (!strcmp(row, axis))
		return true;
	bool fsdp = !strcmp(axis, "dp_shard") || !strcmp(axis, "cp");
	return (!strcmp(row, "tp") && !strcmp(axis, "tp_rep")) || (!strcmp(row, "fsdp") && fsdp) || (!strcmp(row, "data") && (fsdp || !strcmp(axis, "dp_replicate")));
}

static bool applies(const tt_layout_row *r, const tt_plan *plan)
{
	if (!r->when)
		return true;
	if (!strcmp(r->when, "sp") || !strcmp(r->when, "!sp"))
		return plan->sp == (r->when[0] != '!');
	return !strcmp(r->when, tt_cp_method_name(plan->cp_method));
}

static bool taken_by(const char *pattern, const tt_taker *by) { return tt_pattern_match(pattern, by->op) || tt_pattern_match(pattern, by->makes); }

/* Of a derived state its master's name. */
static const char *base_name(const char *value, char *room, size_t cap)
{
	const char *colon = strchr(value, ':');
	if (!colon)
		return value;
	snprintf(room, cap, "%.*s", (int)(colon - value), value);
	return room;
}

int tt_plan_find(const tt_plan *plan, tt_place place, const char *value, const tt_taker *by, int ax)
{
	char room[320];
	const char *base = base_name(value, room, sizeof room);
	int n = tt_plan_rows(plan);
	for (int i = 0; i < n; i++) {
		const tt_layout_row *r = tt_plan_row(plan, i);
		if (r->place == place && applies(r, plan) && on_axis(r->axis, plan->mesh.ax[ax].name) && tt_pattern_match(r->value, base) && (!r->by || (by && taken_by(r->by, by))))
			return i;
	}
	return -1;
}

/* ---- words ------------------------------------------------------------------------------------------------------------------------------ */

const char *tt_place_name(tt_place p)
{
	static const char *const names[] = { "store", "param", "make", "use" };
	return names[p];
}

bool tt_layout_type_parse(const char *s, tt_type *type, int *dim)
{
	char *end = NULL;
	long d = s[0] == 'S' && s[1] == '(' && s[2] >= '0' && s[2] <= '9' ? strtol(s + 2, &end, 10) : -1;
	*dim = 0;
	if (end && !strcmp(end, ")") && d < TT_MAX_DIMS) {
		*type = TT_S;
		*dim = (int)d;
		return true;
	}
	*type = s[0] == 'R' ? TT_R : s[0] == 'I' ? TT_I : TT_P;
	return (s[0] == 'R' || s[0] == 'I' || s[0] == 'P') && !s[1];
}

static void type_text(const tt_layout_row *r, tt_buf *b) { tt_axis_type_print((tt_axis_type){ .type = (uint8_t)r->type, .dim = (int8_t)r->dim }, b); }

void tt_layout_row_line(const tt_layout_row *r, tt_buf *b)
{
	tt_buf_printf(b, "%s \"%s\"", tt_place_name(r->place), r->value);
	if (r->by)
		tt_buf_printf(b, " by \"%s\"", r->by);
	tt_buf_printf(b, " on %s as ", r->axis);
	type_text(r, b);
	if (r->when)
		tt_buf_printf(b, " when %s", r->when);
}

void tt_layout_row_toml(const tt_layout_row *r, const char *indent, tt_buf *b)
{
	tt_buf_printf(b, "%s[[parallelism.layouts]]\n%splace = \"%s\"\n%svalue = \"%s\"\n", indent, indent, tt_place_name(r->place), indent, r->value);
	if (r->by)
		tt_buf_printf(b, "%sby = \"%s\"\n", indent, r->by);
	tt_buf_printf(b, "%saxis = \"%s\"\n%stype = \"", indent, r->axis, indent);
	type_text(r, b);
	tt_buf_str(b, "\"");
	if (r->when)
		tt_buf_printf(b, "\n%swhen = \"%s\"", indent, r->when);
}

static void c_string(const char *s, tt_buf *b)
{
	if (s)
		tt_buf_printf(b, "\"%s\", ", s);
	else
		tt_buf_str(b, "NULL, ");
}

void tt_layout_row_c(const tt_layout_row *r, tt_buf *b)
{
	static const char *const places[] = { "STORE", "PARAM", "MAKE", "USE" }, *const types[] = { "R", "I", "V", "S", "P", "M" };
	tt_buf_printf(b, "{ TT_PLACE_%s, ", places[r->place]);
	c_string(r->value, b);
	c_string(r->by, b);
	c_string(r->axis, b);
	tt_buf_printf(b, "TT_%s, %d, ", types[r->type], r->dim);
	if (r->when)
		tt_buf_printf(b, "\"%s\" },", r->when);
	else
		tt_buf_str(b, "NULL },");
}

const char *tt_layout_pattern(tt_arena *a, const char *value)
{
	char room[320];
	value = base_name(value, room, sizeof room);
	const char *layer = strstr(value, "layers."), *rest = layer ? layer + 7 + strspn(layer + 7, "0123456789") : NULL;
	if (rest && rest > layer + 7 && *rest == '.') {
		if (strchr(rest + 1, '.'))
			return tt_arena_printf(a, "*%s", rest);
		/* The layer's own "y": a star would take those of all its parts too. */
		int n = (int)(layer + 7 - value);
		return tt_arena_printf(a, "%.*s?%s|%.*s??%s|%.*s???%s", n, value, rest, n, value, rest, n, value, rest);
	}
	if (strncmp(value, "loss.", 5))
		return tt_arena_strdup(a, value);
	const char *number = strpbrk(value, "0123456789"), *after = number ? number + strspn(number, "0123456789") : NULL;
	return number ? tt_arena_printf(a, "%.*s*%s", (int)(number - value), value, after) : tt_arena_strdup(a, value);
}

/* ---- a config's rows against a model ------------------------------------------------------------------------------------------------------ */

/* Whether the row speaks of this value, whatever the mesh. `taken`: by whom; NULL: nobody in particular. */
bool tt_row_speaks_of(const tt_layout_row *r, const tt_graph *g, tt_v v)
{
	const tt_value *x = &g->values[v];
	char room[320];
	bool param = x->kind == TT_STATE && g->states[x->state].trainable;
	if (x->kind == TT_TEMP && g->nodes[x->def].seg == TT_SEG_PREP) /* casts and packs: they lie as their masters */
		return false;
	if (r->place == TT_PLACE_MAKE ? x->kind != TT_TEMP : r->place == TT_PLACE_PARAM ? !param : r->place == TT_PLACE_STORE ? x->kind == TT_TEMP : false)
		return false;
	return tt_pattern_match(r->value, base_name(x->name, room, sizeof room));
}

static bool used_by(const tt_layout_row *r, const tt_graph *g, const tt_node *n, tt_v v)
{
	tt_taker by = { n->op->name, g->values[n->out[0]].name };
	for (int i = 0; i < n->nin; i++)
		if (n->in[i] == v)
			return !r->by || taken_by(r->by, &by);
	return false;
}

bool tt_row_used(const tt_layout_row *r, const tt_graph *g, tt_v v)
{
	bool used = r->place != TT_PLACE_USE;
	for (int64_t i = 0; i < g->nnodes && !used; i++)
		used = used_by(r, g, &g->nodes[i], v);
	return used;
}

typedef struct found {
	int64_t values, used; /* that the pattern matches; of them, taken by whom the row says */
	const tt_value *first;
	const tt_value *flat; /* the first that it is the row of and that has no dim of its number; NULL: all have */
} found;

/* Whether no earlier row speaks for the value on each of the row's axes. */
static bool speaks_first(const tt_plan *plan, int row, const char *value)
{
	const tt_layout_row *r = tt_plan_row(plan, row);
	bool first = r->place == TT_PLACE_USE; /* of each taker another row may be the first */
	for (int ax = 0; ax < plan->mesh.naxes && !first; ax++)
		first = tt_plan_find(plan, r->place, value, NULL, ax) == row;
	return first;
}

static found look_for(const tt_plan *plan, int row, const tt_graph *const *graphs, int n)
{
	found f = { 0 };
	const tt_layout_row *r = tt_plan_row(plan, row);
	for (int k = 0; k < n; k++) {
		const tt_graph *g = graphs[k];
		for (tt_v v = 1; v < g->nvalues; v++) {
			if (!tt_row_speaks_of(r, g, v))
				continue;
			const tt_value *x = &g->values[v];
			f.first = f.first ? f.first : x;
			f.flat = f.flat || r->type != TT_S || r->dim < x->ndim || !speaks_first(plan, row, x->name) ? f.flat : x;
			f.values++;
			f.used += tt_row_used(r, g, v);
		}
	}
	return f;
}

/* The last parts of a name, as many as the pattern has behind "*.": what a pattern of a layer's values says of it. */
static const char *tail_like(const char *pattern, const char *name)
{
	int dots = 0;
	for (const char *p = pattern; *p; p++)
		dots += *p == '.';
	const char *at = name + strlen(name);
	while (at > name && (at[-1] != '.' || --dots >= 0))
		at--;
	return at;
}

static int64_t distance(const char *pattern, const char *name)
{
	bool open = pattern[0] == '*' && pattern[1] == '.';
	return open ? tt_edit_distance(pattern + 2, tail_like(pattern + 2, name)) : tt_edit_distance(pattern, name);
}

/* Up to three values with names near the pattern's, of the kind that the place speaks of. */
static const char *near_names(tt_arena *a, const tt_layout_row *r, const tt_graph *const *graphs, int n)
{
	enum { MOST = 3 };
	const char *best[MOST] = { 0 };
	int64_t far[MOST] = { 0 };
	tt_layout_row any = *r;
	any.value = "*";
	for (int k = 0; k < n; k++)
		for (tt_v v = 1; v < graphs[k]->nvalues; v++) {
			if (!tt_row_speaks_of(&any, graphs[k], v))
				continue;
			const char *name = tt_layout_pattern(a, graphs[k]->values[v].name);
			int64_t d = distance(r->value, name);
			bool known = false;
			for (int i = 0; i < MOST; i++)
				known |= best[i] && !strcmp(best[i], name);
			for (int i = 0; i < MOST && !known; i++)
				if (!best[i] || d < far[i]) {
					for (int m = MOST - 1; m > i; m--)
						best[m] = best[m - 1], far[m] = far[m - 1];
					best[i] = name, far[i] = d;
					break;
				}
		}
	tt_buf b = { 0 };
	for (int i = 0; i < MOST && best[i]; i++)
		tt_buf_printf(&b, "%s\"%s\"", i ? ", " : "", best[i]);
	const char *s = tt_arena_strdup(a, b.s ? b.s : "none");
	tt_buf_fini(&b);
	return s;
}

/* Who takes the values, for a `by` that nobody answers to. */
static const char *takers(tt_arena *a, const tt_layout_row *r, const tt_graph *const *graphs, int n)
{
	tt_buf b = { 0 };
	tt_layout_row any = *r;
	any.by = NULL;
	for (int k = 0; k < n; k++)
		for (int64_t i = 0; i < graphs[k]->nnodes && b.n < 160; i++) {
			const tt_node *x = &graphs[k]->nodes[i];
			for (int j = 0; j < x->nin; j++) {
				if (!x->in[j] || !tt_row_speaks_of(&any, graphs[k], x->in[j]))
					continue;
				const char *name = tt_arena_printf(a, "%s, which makes \"%s\"", x->op->name, tt_layout_pattern(a, graphs[k]->values[x->out[0]].name));
				if (!b.s || !strstr(b.s, name))
					tt_buf_printf(&b, "%s%s", b.n ? "; " : "", name);
			}
		}
	const char *s = tt_arena_strdup(a, b.s ? b.s : "nobody");
	tt_buf_fini(&b);
	return s;
}

static const char *row_line(tt_arena *a, const tt_layout_row *r)
{
	tt_buf b = { 0 };
	tt_layout_row_line(r, &b);
	const char *s = tt_arena_strdup(a, b.s);
	tt_buf_fini(&b);
	return s;
}

/* Why the row changes nothing on this mesh; NULL: it does. */
const char *tt_row_idle(tt_arena *a, const tt_plan *plan, int row)
{
	const tt_layout_row *r = tt_plan_row(plan, row);
	if (!applies(r, plan) && strcmp(r->when, "sp") && strcmp(r->when, "!sp"))
		return tt_arena_printf(a, "context parallelism is by %s (parallelism.context_parallel_method)", tt_cp_method_name(plan->cp_method));
	if (!applies(r, plan))
		return r->when[0] == '!' ? "sequence parallelism is on (parallelism.enable_sequence_parallel)"
					 : "sequence parallelism is off (parallelism.enable_sequence_parallel, parallelism.tensor_parallel_degree)";
	bool ranks = false;
	for (int ax = 0; ax < plan->mesh.naxes; ax++)
		ranks |= plan->mesh.ax[ax].size > 1 && on_axis(r->axis, plan->mesh.ax[ax].name);
	if (!ranks)
		return tt_arena_printf(a, "%s has one rank", r->axis);
	for (int i = 0; i < row; i++) {
		const tt_layout_row *e = tt_plan_row(plan, i);
		bool covers = e->place == r->place && applies(e, plan) && (!strcmp(e->axis, r->axis) || on_axis(e->axis, r->axis)) && (!e->by || (r->by && !strcmp(e->by, r->by))) &&
			      !strcmp(e->value, r->value);
		if (covers)
			return tt_arena_printf(a, "%s has said it before: %s", tt_plan_where(a, plan, i), row_line(a, e));
	}
	return NULL;
}

tt_status tt_plan_check(tt_arena *a, const tt_plan *plan, const tt_graph *const *graphs, int ngraphs, const char *const **warnings, int *nwarnings)
{
	const char **w = TT_NEWN(a, const char *, plan->own.n + 1);
	int n = 0;
	for (int i = 0; i < plan->own.n; i++) {
		const tt_layout_row *r = &plan->own.rows[i];
		const char *where = plan->own.where[i];
		found f = look_for(plan, i, graphs, ngraphs);
		if (!f.values)
			TT_FAIL(TT_ERR_USAGE, "%s: parallelism.layouts: %s: no %s is called so (near it: %s)", where, row_line(a, r),
				r->place == TT_PLACE_STORE ? "parameter, state or input" : r->place == TT_PLACE_PARAM ? "parameter" : r->place == TT_PLACE_MAKE ? "value that a node makes" : "value",
				near_names(a, r, graphs, ngraphs));
		if (!f.used)
			TT_FAIL(TT_ERR_USAGE, "%s: parallelism.layouts: %s: nobody of that name takes %s; who does: %s", where, row_line(a, r), f.first->name,
				takers(a, r, graphs, ngraphs));
		const tt_value *x = f.flat;
		if (x)
			TT_FAIL(TT_ERR_USAGE, "%s: parallelism.layouts: %s: %s has %d dim%s, so S(0)%s", where, row_line(a, r), x->name, x->ndim, x->ndim == 1 ? "" : "s",
				x->ndim == 1 ? " is all there is" : x->ndim == 2 ? " or S(1)" : " to its last");
		x = f.first;
		if (r->type == TT_P && (r->place == TT_PLACE_STORE || r->place == TT_PLACE_PARAM) && x->dtype != TT_ACC && x->dtype != TT_I64)
			TT_FAIL(TT_ERR_USAGE, "%s: parallelism.layouts: %s: %s is %s, and only sums and counts can be stored as terms (R, I or S(d) here; `use` with P counts a value once)",
				where, row_line(a, r), x->name, tt_dtype_name(x->dtype));
		const char *why = tt_row_idle(a, plan, i);
		if (why)
			w[n++] = tt_arena_printf(a, "%s: parallelism.layouts: %s: has no effect: %s", where, row_line(a, r), why);
	}
	*warnings = w;
	*nwarnings = n;
	return TT_OK;
}

/* ---- the way back: from a value to the rows that speak of it -------------------------------------------------------------------------------- */

/* What the model wrote: without conversions, "d(...)", "grad.", "reduce.", "optim.exp_avg." and so on. */
static void written(const tt_graph *g, tt_v v, char *out, size_t cap)
{
	static const char *const before[] = { "d(", "grad.", "reduce.", "opt.", "squares.", "square.", "optim.exp_avg_sq.", "optim.exp_avg.", "optim.momentum." };
	const char *name = g->values[tt_value_written(g, v)].name;
	bool inner = false;
	for (int i = 0; i < TT_COUNT(before); i++)
		if (!strncmp(name, before[i], strlen(before[i]))) {
			name += strlen(before[i]);
			inner |= i == 0;
			i = -1;
		}
	int n = (int)strlen(name);
	const char *end = inner ? strchr(name, ')') : strchr(name, ':');
	snprintf(out, cap, "%.*s", end ? (int)(end - name) : n, name);
	size_t len = strlen(out);
	if (len > 3 && !strcmp(out + len - 3, ".dw"))
		snprintf(out + len - 3, cap - len + 3, ".weight");
}

void tt_plan_rows_print(const tt_plan *plan, const tt_graph *typed, tt_v v, int ax, tt_buf *b)
{
	char name[320];
	written(typed, v, name, sizeof name);
	tt_v base = tt_value_find(typed, name);
	bool state = base && typed->values[base].state >= 0, input = base && typed->values[base].kind == TT_INPUT;
	for (int at = 0; at < typed->mesh.naxes; at++) {
		if (typed->mesh.ax[at].size == 1 || (ax >= 0 && at != ax))
			continue;
		bool said[TT_PLACE_USE + 1] = { false };
		for (int i = 0; i < tt_plan_rows(plan); i++) {
			const tt_layout_row *r = tt_plan_row(plan, i);
			if (r->place == TT_PLACE_PARAM ? !state : r->place == TT_PLACE_STORE ? !state && !input : false)
				continue;
			if (said[r->place] || !applies(r, plan) || !on_axis(r->axis, typed->mesh.ax[at].name) || !tt_pattern_match(r->value, name))
				continue;
			tt_buf_str(b, "; row: ");
			tt_layout_row_line(r, b);
			said[r->place] = !r->by;
		}
	}
}
