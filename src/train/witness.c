/* witness.c: the values of one rank's step, kept by name, and the comparison of a mesh's with them. */
#include "train/witness.h"

#include <stdio.h>
#include <stdlib.h>

enum { SLOTS = 1 << 14, LIMB_BITS = 40 };

typedef struct entry {
	const char *key;
	int class;
	int64_t lines, width, planes, size; /* of the whole; lines of a value with tokens: all of the step's */
	uint8_t *bytes;                     /* [planes, lines, width] */
} entry;

struct tt_witness {
	tt_arena *a;
	int64_t tokens, left;
	bool forward;
	entry *slot; /* [SLOTS] */
	tt_witness_rank own;
};

/* What is known of a value of the running graph. */
typedef struct tt_witness_place {
	const char *key; /* of its counterpart; NULL: it has none */
	tt_v typed;      /* in the mesh's typed graph */
	bool tokens;     /* dim 0 */
	bool open;       /* what this rank has is a term of it */
	bool complete;   /* only once all cells are done */
	tt_piece line, column;
} tt_witness_place;

/* A rank's term of an open sum. */
typedef struct tt_witness_term {
	tt_v typed;
	int64_t seen;
	const char *key;
	int class;
	const char *text, *rows; /* how it would be told */
	tt_mesh mesh;
	bool counts;        /* ranks that have the same term count once */
	tt_probe_bytes size;
	int64_t *to;        /* [lines] of the whole */
	int64_t column;
	int64_t *limbs;     /* [3, lines, width] */
} tt_witness_term;

/* ---- names ------------------------------------------------------------------------------------------------------------------------------------ */

/* Chunks of the loss are parts of a rank's own tokens: what they make is one value of all tokens, "loss.*.nll". */
static const char *without_chunk(tt_arena *a, const char *name)
{
	char *s = tt_arena_strdup(a, name), *at = strstr(s, "loss.");
	if (!at || at[5] < '0' || at[5] > '9')
		return s;
	size_t digits = strspn(at + 5, "0123456789");
	memmove(at + 6, at + 5 + digits, strlen(at + 5 + digits) + 1);
	at[5] = '*';
	return s;
}

/* What is made again has the name of what it was. */
static const char *without_again(tt_arena *a, const char *name)
{
	char *s = tt_arena_strdup(a, name), *at;
	while ((at = strstr(s, ".again")))
		memmove(at, at + 6, strlen(at + 6) + 1);
	return s;
}

static tt_v unconverted(const tt_graph *g, tt_v v)
{
	while (g->values[v].def >= 0 && !strcmp(g->nodes[g->values[v].def].op->name, "convert"))
		v = g->nodes[g->values[v].def].in[0];
	return v;
}

/* Values that are not the same in every cell of a step: what comes of its inputs, and sums that are not complete. */
static bool *of_cell(const tt_graph *g, tt_arena *a)
{
	bool *is = TT_NEWN(a, bool, g->nvalues);
	for (tt_v v = 1; v < g->nvalues; v++) {
		const tt_value *x = &g->values[v];
		if (x->kind == TT_INPUT)
			is[v] = strcmp(x->name, "inv_valid") && strcmp(x->name, "hyper");
		else if (x->kind == TT_STATE)
			is[v] = g->states[x->state].region == TT_REGION_GRAD;
		else
			for (int i = 0; i < g->nodes[x->def].nin; i++)
				is[v] |= g->nodes[x->def].in[i] && is[g->nodes[x->def].in[i]];
	}
	return is;
}

static bool is_open(const tt_graph *g, const tt_value *v)
{
	for (int ax = 0; ax < g->mesh.naxes; ax++)
		if (g->mesh.ax[ax].size > 1 && v->layout.ax[ax].type == TT_P)
			return true;
	return false;
}

static bool has_none(const tt_graph *g, const tt_value *v)
{
	for (int ax = 0; ax < g->mesh.naxes; ax++)
		if (g->mesh.ax[ax].size > 1 && (v->layout.ax[ax].type == TT_M || v->layout.ax[ax].type == TT_V))
			return true;
	return v->format != TT_PLAIN || v->ndim > 2;
}

/* Inputs say who has which token; those that count from the cell's first token differ from rank to rank. */
static bool has_counterpart(const tt_graph *g, tt_v v, const bool *cell, bool *complete)
{
	const tt_value *x = &g->values[v];
	*complete = false;
	if (x->kind == TT_INPUT)
		return !strcmp(x->name, "ids") || !strcmp(x->name, "labels") || !strcmp(x->name, "positions") || !strcmp(x->name, "inv_valid") || !strcmp(x->name, "hyper");
	if (has_none(g, x))
		return false;
	*complete = x->kind == TT_STATE && g->states[x->state].region == TT_REGION_GRAD;
	bool tokens = x->ndim > 0 && x->dim[0].role == TT_TOKENS, once = x->def >= 0 && (g->nodes[x->def].seg == TT_SEG_REDUCE || g->nodes[x->def].seg == TT_SEG_OPT);
	return tokens || once || *complete || !cell[v];
}

static tt_witness_place *places(const tt_trainer *t, const tt_graph *g, tt_arena *a)
{
	const tt_graph *typed = tt_trainer_typed(t);
	tt_witness_place *p = TT_NEWN(a, tt_witness_place, g->nvalues);
	bool *cell = of_cell(typed, a), complete;
	for (tt_v v = 1; v < g->nvalues; v++) {
		const tt_value *x = &g->values[v];
		tt_v at = tt_value_find(typed, without_again(a, x->name));
		if (!at || x->ndim > 2 || !has_counterpart(typed, at, cell, &complete))
			continue;
		const tt_value *whole = &typed->values[at];
		p[v] = (tt_witness_place){ .key = without_chunk(a, typed->values[unconverted(typed, at)].name), .typed = at, .open = is_open(typed, whole), .complete = complete,
					   .tokens = whole->ndim > 0 && whole->dim[0].role == TT_TOKENS, .line = { .n = 1, .whole = 1 }, .column = { .n = 1, .whole = 1 } };
		if (whole->ndim > 0)
			p[v].line = tt_value_piece(typed, whole, 0, tt_trainer_coord(t), -1);
		if (whole->ndim > 1)
			p[v].column = tt_value_piece(typed, whole, 1, tt_trainer_coord(t), -1);
	}
	return p;
}

/* What F made may be made again in B; what OPT and PREP find may be of before the update or after it. */
static int class_of(tt_segment seg) { return seg == TT_SEG_F || seg == TT_SEG_B ? 0 : (int)seg; }

static bool skipped(const tt_witness_rank *r, const tt_witness_place *p)
{
	if (!p->key || (p->complete && class_of(r->seg) == 0))
		return true;
	return r->w->forward && r->seg != TT_SEG_F && !(r->seg == TT_SEG_B && tt_pattern_match("loss.*.logits|loss.*.lse|loss.*.nll", p->key));
}

/* ---- elements --------------------------------------------------------------------------------------------------------------------------------- */

/* Limbs of one sum have one canonical form: the lower ones in 0 .. 2^40 - 1. */
static void canonical(int64_t *k)
{
	for (int j = 2; j > 0; j--) {
		k[j - 1] += k[j] >> LIMB_BITS;
		k[j] &= ((int64_t)1 << LIMB_BITS) - 1;
	}
}

static void make_canonical(uint8_t *bytes, const tt_probe_bytes *b)
{
	int64_t n = b->lines * b->width, *x = (int64_t *)(void *)bytes;
	for (int64_t i = 0; b->planes == 3 && i < n; i++) {
		int64_t k[3] = { x[i], x[n + i], x[2 * n + i] };
		canonical(k);
		for (int j = 0; j < 3; j++)
			x[j * n + i] = k[j];
	}
}

static double number(const uint8_t *p, int64_t planes, int64_t plane, int64_t size, tt_dtype dt)
{
	if (planes == 3) {
		int64_t k[3];
		for (int j = 0; j < 3; j++)
			memcpy(&k[j], p + j * plane, 8);
		return ((double)k[2] * 0x1p-106 + (double)k[1] * 0x1p-66) + (double)k[0] * 0x1p-26;
	}
	if (dt == TT_I32) {
		int32_t i;
		memcpy(&i, p, 4);
		return i;
	}
	if (size == 8) {
		double d;
		memcpy(&d, p, 8);
		return d;
	}
	uint32_t bits = 0;
	memcpy(&bits, p, (size_t)size);
	bits <<= size == 2 ? 16 : 0;
	float f;
	memcpy(&f, &bits, 4);
	return (double)f;
}

/* Token of the step in line `at`: of the cell's order, of that this rank's share, of that a chunk. */
static int64_t token_of(const tt_cell_tokens *c, const tt_dim *d, int64_t at)
{
	int64_t n = c->T;
	at += d->base;
	for (int i = 0; i < TT_COUNT(d->share) && d->share[i].parts; i++) {
		int64_t first = tt_deal(n, d->share[i].part, d->share[i].parts);
		n = tt_deal(n, d->share[i].part + 1, d->share[i].parts) - first;
		at += first;
	}
	TT_ASSERT(at >= 0 && at < c->T, "token %lld of %lld", (long long)at, (long long)c->T);
	return c->first + (c->order ? c->order[at] : at);
}

/* ---- keeping ---------------------------------------------------------------------------------------------------------------------------------- */

static entry *slot_of(const tt_witness *w, const char *key, int class)
{
	uint64_t h = tt_hash64(key, strlen(key), (uint64_t)class);
	while (w->slot[h % SLOTS].key && (w->slot[h % SLOTS].class != class || strcmp(w->slot[h % SLOTS].key, key)))
		h++;
	return &w->slot[h % SLOTS];
}

tt_witness *tt_witness_new(tt_arena *a, int64_t tokens, int64_t limit, bool forward)
{
	tt_witness *w = TT_NEW(a, tt_witness);
	*w = (tt_witness){ .a = a, .tokens = tokens, .left = limit, .forward = forward, .slot = TT_NEWN(a, entry, SLOTS), .own = { .w = w, .a = a } };
	return w;
}

void tt_witness_keep(tt_witness *w, tt_trainer *t) { w->own.t = t; }

static bool begin(void *ctx, tt_segment seg, const tt_graph *g, const struct tt_cell *cell)
{
	tt_witness_rank *r = ctx;
	(void)cell;
	if (!r->t || r->at >= 0 || seg == TT_SEG_INIT || seg == TT_SEG_EVAL || (seg == TT_SEG_PREP && !r->cells[TT_SEG_F])) /* PREP: of a resume */
		return false;
	if (r->g != g) {
		r->place = places(r->t, g, r->a);
		r->g = g;
	}
	r->seg = seg;
	r->cells[seg]++;
	return true;
}

static void end(void *ctx) { (void)ctx; }

static void keep(void *ctx, const tt_probe_value *v)
{
	tt_witness_rank *r = ctx;
	tt_witness *w = (tt_witness *)(uintptr_t)r->w;
	const tt_witness_place *p = &r->place[v->value];
	if (skipped(r, p) || !v->count)
		return;
	tt_exec *x = tt_trainer_exec(r->t);
	tt_probe_bytes b = tt_probe_read(x, v->arg, NULL);
	entry *e = slot_of(w, p->key, class_of(r->seg));
	int64_t lines = p->tokens ? w->tokens : b.lines;
	if (!e->key) {
		int64_t bytes = b.planes * lines * b.width * b.size;
		if (bytes > w->left)
			return;
		w->left -= bytes;
		*e = (entry){ p->key, class_of(r->seg), lines, b.width, b.planes, b.size, TT_NEWN(w->a, uint8_t, bytes) };
	} else if (v->instr < 0 && !p->tokens) {
		return; /* as the program before it left it; of tokens each microbatch has others */
	}
	tt_mark m = tt_arena_push(w->a);
	uint8_t *tmp = TT_NEWN(w->a, uint8_t, b.planes * b.lines * b.width * b.size);
	tt_probe_read(x, v->arg, tmp);
	make_canonical(tmp, &b);
	tt_cell_tokens cell = tt_trainer_cell(r->t);
	int64_t row = b.width * b.size;
	for (int64_t j = 0; j < b.planes; j++)
		for (int64_t l = 0; l < b.lines; l++)
			memcpy(e->bytes + (j * e->lines + (p->tokens ? token_of(&cell, &r->g->values[v->value].dim[0], l) : l)) * row, tmp + (j * b.lines + l) * row, (size_t)row);
	tt_arena_pop(w->a, m);
}

tt_probe tt_witness_probe(tt_witness *w)
{
	w->own.at = -1;
	return (tt_probe){ &w->own, begin, keep, end, true };
}

/* ---- comparing -------------------------------------------------------------------------------------------------------------------------------- */

typedef struct difference {
	int64_t wrong, of, line, column; /* of the whole, of the first */
	double got, want, ratio;         /* NaN: not constant */
} difference;

static int axis_of(const tt_graph *g, const char *name)
{
	int ax = 0;
	while (strcmp(g->mesh.ax[ax].name, name))
		ax++;
	return ax;
}

static const char *moment(const tt_witness_rank *r, tt_arena *a)
{
	switch (r->seg) {
	case TT_SEG_F:
		return tt_arena_printf(a, "forward of microbatch %lld", (long long)r->cells[TT_SEG_F]);
	case TT_SEG_B:
		return tt_arena_printf(a, "backward of microbatch %lld", (long long)r->cells[TT_SEG_B]);
	case TT_SEG_REDUCE:
		return "gradients and norm";
	case TT_SEG_OPT:
		return "update";
	case TT_SEG_PREP:
		return "weights prepared for use";
	case TT_SEG_INIT:
	case TT_SEG_EVAL:
	case TT_NSEGS:
		break;
	}
	return "";
}

static void say_ratio(tt_buf *b, const tt_mesh *m, double ratio)
{
	if (ratio != ratio)
		return;
	tt_buf_printf(b, "; all are %.6g times one rank's", ratio);
	for (int ax = 0; ax < m->naxes; ax++)
		if (m->ax[ax].size > 1 && __builtin_fabs(ratio - m->ax[ax].size) < 1e-6 * ratio)
			tt_buf_printf(b, ": summed once too often over %s?", m->ax[ax].name);
		else if (m->ax[ax].size > 1 && __builtin_fabs(ratio * m->ax[ax].size - 1) < 1e-6)
			tt_buf_printf(b, ": a mean for a sum over %s?", m->ax[ax].name);
}

static void say_inputs(tt_buf *b, const tt_graph *g, const tt_node *n, const bool *cell)
{
	const char *blank = " of ";
	for (int i = 0; i < n->nin; i++) {
		if (!n->in[i])
			continue;
		tt_buf_printf(b, "%s%s", blank, g->values[n->in[i]].name);
		blank = ", ";
	}
	bool all = true, complete;
	for (int i = 0; i < n->nin; i++)
		all &= !n->in[i] || (has_counterpart(g, n->in[i], cell, &complete) && !complete);
	tt_buf_str(b, all ? ", which are one rank's" : "");
}

/* Inputs that this rank's program takes instead of those of the typed graph. */
static void say_others(tt_witness_rank *r, tt_buf *b, const tt_node *n, tt_v made)
{
	const tt_graph *typed = tt_trainer_typed(r->t);
	const tt_node *own = &r->g->nodes[r->g->values[made].def];
	for (int i = 0; i < n->nin && i < own->nin && own->op == n->op; i++) {
		tt_v x = own->in[i] ? tt_value_find(typed, without_again(r->a, r->g->values[own->in[i]].name)) : 0;
		if (x && n->in[i] && unconverted(typed, x) != unconverted(typed, n->in[i]))
			tt_buf_printf(b, " (the program takes %s for %s)", typed->values[x].name, typed->values[n->in[i]].name);
	}
}

/* The value, how it came to be: how a finding begins. */
static void say_value(tt_witness_rank *r, const tt_probe_value *v, tt_buf *b)
{
	const tt_graph *g = tt_trainer_typed(r->t);
	const tt_value *x = &g->values[r->place[v->value].typed];
	const tt_node *n = x->def >= 0 ? &g->nodes[x->def] : NULL;
	const tt_attr_convert *c = n && !strcmp(n->op->name, "convert") ? n->attr : NULL;
	tt_buf_printf(b, "%s: %s", moment(r, r->a), x->name);
	if (c) {
		int ax = axis_of(g, c->axis);
		tt_buf_str(b, ", the conversion ");
		tt_axis_type_print(g->values[n->in[0]].layout.ax[ax], b);
		tt_buf_str(b, " to ");
		tt_axis_type_print(x->layout.ax[ax], b);
		tt_buf_printf(b, " on axis %s of %s", c->axis, g->values[n->in[0]].name);
	} else if (n && v->instr >= 0) {
		tt_buf_printf(b, ", %s", n->op->name);
		say_inputs(b, g, n, of_cell(g, r->a));
		say_others(r, b, n, v->value);
	} else {
		tt_buf_str(b, x->kind == TT_INPUT ? ", as the loader gives it" : ", as the program finds it");
	}
}

static void say_difference(tt_buf *b, const difference *d, bool tokens, const tt_mesh *m)
{
	tt_buf_printf(b, ": %lld of %lld numbers differ", (long long)d->wrong, (long long)d->of);
	if (d->wrong)
		tt_buf_printf(b, ", first %s %lld, %lld: %.9g instead of %.9g", tokens ? "token" : "line", (long long)d->line, (long long)d->column, d->got, d->want);
	say_ratio(b, m, d->ratio);
}

/* How it lies, and the rows of the plan that say so. */
static void say_rows(tt_witness_rank *r, tt_v typed, tt_buf *b)
{
	const tt_graph *g = tt_trainer_typed(r->t);
	const tt_value *x = &g->values[typed];
	const tt_node *n = x->def >= 0 ? &g->nodes[x->def] : NULL;
	tt_buf_str(b, "; it lies ");
	size_t before = b->n;
	tt_layout_print(&g->mesh, &x->layout, b);
	if (b->n == before)
		tt_buf_str(b, "whole");
	tt_plan_rows_print(tt_trainer_layouts(r->t), g, typed, n && !strcmp(n->op->name, "convert") ? axis_of(g, ((const tt_attr_convert *)n->attr)->axis) : -1, b);
}

static bool fits(const tt_witness_place *p, const entry *e, const tt_probe_bytes *b)
{
	return b->width == p->column.n && e->width == p->column.whole && e->planes == b->planes && e->size == b->size && (p->tokens || b->lines == p->line.n);
}

static void lines_of(tt_witness_rank *r, const tt_probe_value *v, int64_t n, int64_t *to)
{
	const tt_witness_place *p = &r->place[v->value];
	tt_cell_tokens cell = tt_trainer_cell(r->t);
	for (int64_t l = 0; l < n; l++)
		to[l] = p->tokens ? token_of(&cell, &r->g->values[v->value].dim[0], l) : p->line.start + l;
}

static void count(difference *d, int64_t line, int64_t column, double got, double want)
{
	double ratio = got / want;
	if (!d->wrong++)
		*d = (difference){ d->wrong, d->of, line, column, got, want, ratio };
	else if (!(__builtin_fabs(ratio - d->ratio) <= 1e-3 * __builtin_fabs(d->ratio)))
		d->ratio = __builtin_nan("");
}

/* A term is kept for tt_witness_terms, with how it would be told. */
static void keep_term(tt_witness_rank *r, const tt_probe_value *v, const entry *e, tt_probe_bytes b)
{
	const tt_witness_place *p = &r->place[v->value];
	const tt_graph *g = tt_trainer_typed(r->t);
	bool reals = b.planes == 1 && b.size == 4 && r->g->values[v->value].dtype != TT_ACC; /* acc in `fast`: rounded sums */
	if ((b.planes != 3 && !reals) || !fits(p, e, &b))
		return;
	tt_witness_term t = { .typed = p->typed, .seen = r->seen, .key = p->key, .class = class_of(r->seg), .counts = true, .size = b, .column = p->column.start };
	for (int ax = 0; ax < g->mesh.naxes; ax++) {
		tt_type x = (tt_type)g->values[p->typed].layout.ax[ax].type;
		t.counts &= g->mesh.ax[ax].size == 1 || (x != TT_R && x != TT_I) || tt_trainer_coord(r->t)[ax] == 0;
	}
	t.to = TT_NEWN(r->a, int64_t, b.lines);
	t.limbs = TT_NEWN(r->a, int64_t, 3 * b.lines * b.width);
	lines_of(r, v, b.lines, t.to);
	tt_probe_read(tt_trainer_exec(r->t), v->arg, t.limbs);
	for (int64_t i = reals ? b.lines * b.width : 0; i-- > 0;) { /* the only real among zeroes, as a rule: exact as a double */
		double x = number((uint8_t *)t.limbs + 4 * i, 1, 0, 4, TT_F32);
		memcpy(&t.limbs[i], &x, sizeof x);
	}
	tt_buf s = { 0 };
	say_value(r, v, &s);
	t.text = tt_arena_strdup(r->a, s.s);
	s.n = 0;
	say_rows(r, p->typed, &s);
	t.rows = tt_arena_strdup(r->a, s.s);
	t.mesh = g->mesh;
	tt_buf_fini(&s);
	TT_PUSH(r->a, r->term, r->nterms, r->cap_terms, t);
}

static void compare(void *ctx, const tt_probe_value *v)
{
	tt_witness_rank *r = ctx;
	const tt_witness_place *p = &r->place[v->value];
	r->seen++;
	if (skipped(r, p) || r->at >= 0)
		return;
	const entry *e = slot_of(r->w, p->key, class_of(r->seg));
	tt_exec *x = tt_trainer_exec(r->t);
	tt_probe_bytes b = tt_probe_read(x, v->arg, NULL);
	if (!e->key || !b.lines || !b.width)
		return;
	r->compared++;
	if (p->open) {
		keep_term(r, v, e, b);
		return;
	}
	difference d = { .of = b.lines * b.width, .ratio = __builtin_nan("") };
	bool fit = fits(p, e, &b);
	tt_mark m = tt_arena_push(r->a);
	uint8_t *tmp = TT_NEWN(r->a, uint8_t, b.planes * d.of * b.size);
	int64_t *to = TT_NEWN(r->a, int64_t, b.lines);
	if (fit) {
		tt_probe_read(x, v->arg, tmp);
		make_canonical(tmp, &b);
		lines_of(r, v, b.lines, to);
	}
	tt_dtype dt = r->g->values[v->value].dtype;
	int64_t mine = d.of * b.size, theirs = e->lines * e->width * e->size;
	for (int64_t l = 0; l < b.lines && fit; l++)
		for (int64_t k = 0; k < b.width; k++) {
			const uint8_t *got = tmp + (l * b.width + k) * b.size, *want = e->bytes + (to[l] * e->width + p->column.start + k) * b.size;
			bool same = true;
			for (int64_t j = 0; j < b.planes; j++)
				same &= !memcmp(got + j * mine, want + j * theirs, (size_t)b.size);
			if (!same)
				count(&d, to[l], p->column.start + k, number(got, b.planes, mine, b.size, dt), number(want, b.planes, theirs, b.size, dt));
		}
	tt_arena_pop(r->a, m);
	if (fit && !d.wrong)
		return;
	r->at = r->seen;
	tt_buf s = { 0 };
	say_value(r, v, &s);
	bool given = r->g->values[v->value].kind == TT_INPUT;
	say_difference(&s, &d, p->tokens, given ? &(tt_mesh){ 0 } : &tt_trainer_typed(r->t)->mesh);
	say_rows(r, p->typed, &s);
	r->text = tt_arena_strdup(r->a, s.s);
	tt_buf_fini(&s);
}

/* ---- open sums, once all ranks' terms are together --------------------------------------------------------------------------------------------- */

/* Some lines of the whole of an open sum. What the ranks' terms of it add up to is a word that is not 0 where a rank has no such term, the sums
 * [planes, lines, width], and bytes [lines, width] that are 1 where there is a term: a cell has not all tokens. */
typedef struct window { int64_t seen, typed, from, lines, width, planes; } window;
enum { WINDOW_BYTES = 1 << 20 };

static int64_t window_count(const window *w) { return w->lines * w->width; }
static int64_t window_bytes(const window *w) { return 8 + 8 * w->planes * window_count(w) + tt_round_up(window_count(w), 8); }
static int64_t *sums_of(uint8_t *at) { return (int64_t *)(void *)(at + 8); }
static uint8_t *has_of(const window *w, uint8_t *at) { return at + 8 + 8 * w->planes * window_count(w); }

static void add_real(int64_t *sum, int64_t term)
{
	double x, y;
	memcpy(&x, sum, sizeof x);
	memcpy(&y, &term, sizeof y);
	x += y;
	memcpy(sum, &x, sizeof x);
}

static void add(const window *w, int64_t *sum, int64_t term)
{
	if (w->planes == 1)
		add_real(sum, term);
	else
		*sum += term;
}

static void add_term(const tt_witness_rank *r, const window *w, uint8_t *to)
{
	const tt_witness_term *t = NULL;
	for (int64_t i = 0; i < r->nterms && !t; i++)
		if (r->term[i].seen == w->seen && r->term[i].typed == w->typed)
			t = &r->term[i];
	if (!t) {
		to[0] = 1;
		return;
	}
	int64_t *sum = sums_of(to), n = window_count(w), width = t->size.width;
	for (int64_t l = 0; t->counts && l < t->size.lines; l++) {
		int64_t line = t->to[l] - w->from;
		for (int64_t k = 0; line >= 0 && line < w->lines && k < width; k++) {
			int64_t at = line * w->width + t->column + k;
			has_of(w, to)[at] = 1;
			for (int64_t j = 0; j < w->planes; j++)
				add(w, &sum[j * n + at], t->limbs[(j * t->size.lines + l) * width + k]);
		}
	}
}

/* What another process added up. */
static void add_window(const window *w, const uint8_t *from, uint8_t *to)
{
	int64_t n = window_count(w);
	uint8_t *x = (uint8_t *)(uintptr_t)from;
	to[0] |= from[0];
	for (int64_t i = 0; i < w->planes * n; i++)
		if (has_of(w, x)[i % n])
			add(w, &sums_of(to)[i], sums_of(x)[i]);
	for (int64_t i = 0; i < n; i++)
		has_of(w, to)[i] |= has_of(w, x)[i];
}

static void judge(const window *w, const entry *e, uint8_t *sums, difference *d)
{
	int64_t n = window_count(w), whole = e->lines * e->width;
	const int64_t *sum = sums_of(sums), *want = (const int64_t *)(const void *)e->bytes;
	for (int64_t i = 0, at = w->from * w->width; i < n; i++, at++) {
		if (!has_of(w, sums)[i])
			continue;
		d->of++;
		if (w->planes == 1) {
			double got, w1 = number(e->bytes + 4 * at, 1, 0, 4, TT_F32);
			memcpy(&got, &sum[i], sizeof got);
			if (got != w1 && (got == got || w1 == w1))
				count(d, at / e->width, at % e->width, got, w1);
			continue;
		}
		int64_t k[3] = { sum[i], sum[n + i], sum[2 * n + i] };
		canonical(k);
		if (k[0] != want[at] || k[1] != want[whole + at] || k[2] != want[2 * whole + at])
			count(d, at / e->width, at % e->width, number((uint8_t *)k, 3, 8, 8, TT_ACC), number(e->bytes + 8 * at, 3, 8 * whole, 8, TT_ACC));
	}
}

/* Goes through rank 0's terms, window by window. */
typedef struct search {
	const tt_witness_rank *first;
	int64_t before, i, from; /* the term at hand, and its next line */
} search;

static const entry *entry_of(const tt_witness_rank *r, const tt_witness_term *x) { return slot_of(r->w, x->key, x->class); }

static bool next_window(search *s, window *w)
{
	const tt_witness_rank *r = s->first;
	if (s->i < r->nterms && s->from >= entry_of(r, &r->term[s->i])->lines) {
		s->i++;
		s->from = 0;
	}
	if (s->i >= r->nterms || r->term[s->i].seen >= s->before)
		return false;
	const tt_witness_term *x = &r->term[s->i];
	const entry *e = entry_of(r, x);
	int64_t lines = TT_MAX(WINDOW_BYTES / (e->width * (8 * e->planes + 1)), (int64_t)1);
	*w = (window){ x->seen, x->typed, s->from, TT_MIN(lines, e->lines - s->from), e->width, e->planes };
	s->from += w->lines;
	return true;
}

/* What the windows of one term say once the last is judged; NULL: nothing. */
typedef struct verdict { difference d; bool lacks; } verdict;

static const char *judged(const search *s, verdict *v, const window *w, uint8_t *sums, tt_arena *a)
{
	int64_t i = 0;
	while (s->first->term[i].seen != w->seen || s->first->term[i].typed != w->typed)
		i++;
	const tt_witness_term *x = &s->first->term[i];
	const entry *e = entry_of(s->first, x);
	if (w->from == 0)
		*v = (verdict){ .d = { .ratio = __builtin_nan("") } };
	v->lacks |= sums[0];
	judge(w, e, sums, &v->d);
	if (w->from + w->lines < e->lines || v->lacks || !v->d.wrong)
		return NULL;
	tt_buf b = { 0 };
	tt_buf_printf(&b, "%s, a sum still open: the ranks' terms together", x->text);
	say_difference(&b, &v->d, false, &x->mesh);
	tt_buf_str(&b, x->rows);
	const char *text = tt_arena_strdup(a, b.s);
	tt_buf_fini(&b);
	return text;
}

const char *tt_witness_terms(tt_witness_rank *ranks, int n, int64_t before, tt_arena *a)
{
	search s = { ranks, before, 0, 0 };
	verdict v = { 0 };
	const char *text = NULL;
	for (window w; !text && next_window(&s, &w);) {
		tt_mark m = tt_arena_push(ranks[0].a);
		uint8_t *sums = TT_NEWN(ranks[0].a, uint8_t, window_bytes(&w));
		for (int r = 0; r < n; r++)
			add_term(&ranks[r], &w, sums);
		text = judged(&s, &v, &w, sums, a);
		tt_arena_pop(ranks[0].a, m);
	}
	return text;
}

/* Windows that are exchanged at once. */
enum { BATCH = 64 };
typedef struct batch { int64_t n; window w[BATCH]; } batch;
typedef struct merging { const batch *b; uint8_t *sums; } merging;

static void merge(void *ctx, const tt_block *take, int n)
{
	merging *m = ctx;
	for (int i = 1; i < n; i++) { /* its own are there */
		int64_t at = 0;
		for (int64_t k = 0; k < m->b->n && tt_block_bytes(&take[i]); at += window_bytes(&m->b->w[k]), k++)
			add_window(&m->b->w[k], take[i].p + at, m->sums + at);
	}
}

/* Adds up the batch's windows on rank 0. */
static tt_status add_up(tt_witness_rank *own, tt_comm_group *g, const batch *b, int64_t bytes, uint8_t *sums)
{
	int n = tt_comm_group_size(g), me = tt_comm_group_index(g);
	int64_t at = 0;
	for (int64_t k = 0; k < b->n; at += window_bytes(&b->w[k]), k++)
		add_term(own, &b->w[k], sums + at);
	tt_block *give = TT_NEWN(own->a, tt_block, n), *take = TT_NEWN(own->a, tt_block, n);
	if (me)
		give[0] = tt_block_flat(sums, bytes);
	for (int i = 1; i < n && !me; i++)
		take[i] = tt_block_flat(NULL, bytes);
	merging m = { b, sums };
	tt_exchange x = { .kind = "gather", .name = "terms of open sums", .give = give, .take = take, .use = me ? NULL : merge, .ctx = &m };
	int64_t room = tt_exchange_scratch(g, &x);
	x.scratch = room ? TT_NEWN(own->a, uint8_t, room) : NULL;
	TT_TRY(tt_comm_exchange(g, &x));
	return TT_OK;
}

tt_status tt_witness_terms_of(tt_witness_rank *own, tt_comm_group *g, int64_t before, tt_arena *a, const char **out)
{
	search s = { own, before, 0, 0 };
	verdict v = { 0 };
	const char *text = NULL;
	window ahead;
	bool leads = tt_comm_group_index(g) == 0, more = leads && next_window(&s, &ahead);
	for (;;) {
		tt_mark m = tt_arena_push(own->a);
		batch *b = TT_NEW(own->a, batch);
		int64_t bytes = 0;
		while (more && !text && b->n < BATCH && (!b->n || bytes + window_bytes(&ahead) <= 2 * WINDOW_BYTES)) {
			b->w[b->n++] = ahead;
			bytes += window_bytes(&ahead);
			more = next_window(&s, &ahead);
		}
		TT_TRY(tt_comm_broadcast(g, "open sums", 0, b, sizeof *b));
		bytes = 0;
		for (int64_t k = 0; k < b->n; k++)
			bytes += window_bytes(&b->w[k]);
		uint8_t *sums = TT_NEWN(own->a, uint8_t, bytes);
		if (b->n)
			TT_TRY(add_up(own, g, b, bytes, sums));
		int64_t at = 0;
		for (int64_t k = 0; k < b->n && leads && !text; at += window_bytes(&b->w[k]), k++)
			text = judged(&s, &v, &b->w[k], sums + at, a);
		bool last = b->n == 0;
		tt_arena_pop(own->a, m);
		if (last)
			break;
	}
	*out = text;
	return TT_OK;
}

tt_probe tt_witness_compare(tt_witness_rank *r)
{
	r->at = -1;
	return (tt_probe){ r, begin, compare, end, true };
}
