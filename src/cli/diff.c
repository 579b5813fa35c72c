/* diff.c: `titan diff`: the first value, op and step at which two runs part, from the hashes they recorded (metrics/hashes.h).
 *
 * Program runs are matched by step, program and microbatch, values by name: runs with other kernels or other fusions compare where names
 * are common. "First" goes by the order in which the first run computed. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>

#include "cli/cli.h"
#include "metrics/hashes.h"

/* ---- settings ------------------------------------------------------------------------------------------------------------------------ */

typedef struct setting { const char *key, *value; int repeat; } setting; /* "section.key"; which of several of that name */
typedef struct settings { setting *items; int64_t n, cap; } settings;

static settings parse_settings(tt_arena *a, const char *text)
{
	settings out = { 0 };
	const char *section = "";
	for (const char *line = text, *end; *line; line = *end ? end + 1 : end) {
		end = line + strcspn(line, "\n");
		size_t n = (size_t)(end - line);
		const char *eq = memmem(line, n, " = ", 3);
		if (*line == '[' && !eq) {
			size_t open = strspn(line, "[");
			section = tt_arena_strndup(a, line + open, strcspn(line + open, "]\n"));
		} else if (eq && *line != '#') {
			setting s = { tt_arena_printf(a, "%s.%.*s", section, (int)(eq - line), line), tt_arena_strndup(a, eq + 3, (size_t)(end - eq - 3)), 0 };
			for (int64_t i = 0; i < out.n; i++)
				s.repeat += !strcmp(out.items[i].key, s.key);
			TT_PUSH(a, out.items, out.n, out.cap, s);
		}
	}
	return out;
}

static const char *setting_of(const settings *s, const char *key, int repeat)
{
	for (int64_t i = 0; i < s->n; i++)
		if (!strcmp(s->items[i].key, key) && s->items[i].repeat == repeat)
			return s->items[i].value;
	return NULL;
}

/* Settings of what is written and shown, which no value depends on. */
static bool is_of_no_effect(const char *key)
{
	return tt_pattern_match("job.*|metrics.*|profiling.*|checkpoint.*|debug.record_*|debug.dump*", key);
}

static bool same_text(const char *a, const char *b) { return a == b || (a && b && !strcmp(a, b)); }

/* ---- matching -------------------------------------------------------------------------------------------------------------------------- */

/* Values that two programs of one segment have in common: a[i] and b[i] are their places, in the first one's order. */
typedef struct common {
	const tt_hashes_program *pa, *pb;
	int64_t n, *a, *b;
	int64_t only_a, only_b, other_form; /* values of one alone; of another dtype or format */
	const char *example_a, *example_b, *example_form;
} common;

typedef struct found { const tt_hashes_cell *a, *b; int64_t value; } found; /* value: in a's program */

typedef struct diff {
	tt_arena *arena;
	tt_hashes_file fa, fb;
	settings sa, sb;
	const tt_hashes_cell **sorted_a, **sorted_b;
	common *commons;
	int64_t ncommons, cap_commons;
	bool other_acc;              /* `acc` is a float in one run, limbs in the other */
	bool by_step;                /* microbatches differ: programs that run on one are left out */
	int64_t left_out;            /* program runs of `by_step` */
	int64_t compared, differing; /* values */
	int64_t cells, cells_differing, steps;
	int64_t only_a, only_b;      /* program runs */
	int64_t first_step, last_step, last_differing;
	found first[TT_HASHES_NSEGS], *list;
	int64_t nlist, cap_list, limit; /* limit -1: none */
	found start;                 /* the very first difference */
} diff;

static int by_key(const void *x, const void *y)
{
	const tt_hashes_cell_head *a = &(*(const tt_hashes_cell *const *)x)->head, *b = &(*(const tt_hashes_cell *const *)y)->head;
	if (a->step != b->step)
		return a->step < b->step ? -1 : 1;
	if (a->segment != b->segment)
		return a->segment < b->segment ? -1 : 1;
	return (a->index > b->index) - (a->index < b->index);
}

static const tt_hashes_cell **sort_cells(tt_arena *a, const tt_hashes_file *f)
{
	const tt_hashes_cell **s = TT_NEWN(a, const tt_hashes_cell *, f->ncells + 1);
	for (int64_t i = 0; i < f->ncells; i++)
		s[i] = &f->cells[i];
	qsort(s, (size_t)f->ncells, sizeof *s, by_key);
	return s;
}

static const tt_hashes_cell *find_cell(const tt_hashes_file *f, const tt_hashes_cell **sorted, int64_t step, int segment, int index)
{
	tt_hashes_cell want = { .head = { .step = step, .segment = segment, .index = index } };
	const tt_hashes_cell *key = &want, **hit = bsearch(&key, sorted, (size_t)f->ncells, sizeof *sorted, by_key);
	return hit ? *hit : NULL;
}

static bool differs(const diff *d, const char *key) { return !same_text(setting_of(&d->sa, key, 0), setting_of(&d->sb, key, 0)); }

static bool same_form(const diff *d, const tt_hashes_value *a, const tt_hashes_value *b)
{
	return !strcmp(a->dtype, b->dtype) && !strcmp(a->format, b->format) && !(d->other_acc && !strcmp(a->dtype, "acc"));
}

static const common *common_of(diff *d, const tt_hashes_program *pa, const tt_hashes_program *pb)
{
	for (int64_t i = 0; i < d->ncommons; i++)
		if (d->commons[i].pa == pa && d->commons[i].pb == pb)
			return &d->commons[i];
	common c = { .pa = pa, .pb = pb, .a = TT_NEWN(d->arena, int64_t, pa->nvalues + 1), .b = TT_NEWN(d->arena, int64_t, pa->nvalues + 1) };
	for (int64_t i = 0; i < pa->nvalues; i++) {
		int64_t j = tt_hashes_find(pb, pa->values[i].name);
		if (j < 0) {
			c.example_a = c.only_a++ ? c.example_a : pa->values[i].name;
		} else if (!same_form(d, &pa->values[i], &pb->values[j])) {
			c.example_form = c.other_form++ ? c.example_form : pa->values[i].name;
		} else {
			c.a[c.n] = i;
			c.b[c.n++] = j;
		}
	}
	for (int64_t j = 0; j < pb->nvalues; j++)
		if (tt_hashes_find(pa, pb->values[j].name) < 0)
			c.example_b = c.only_b++ ? c.example_b : pb->values[j].name;
	TT_PUSH(d->arena, d->commons, d->ncommons, d->cap_commons, c);
	return &d->commons[d->ncommons - 1];
}

static void compare_cells(diff *d, const tt_hashes_cell *a, const tt_hashes_cell *b)
{
	const common *c = common_of(d, a->program, b->program);
	int64_t before = d->differing;
	for (int64_t i = 0; i < c->n; i++) {
		if (a->hash[c->a[i]] == b->hash[c->b[i]])
			continue;
		found f = { a, b, c->a[i] };
		d->differing++;
		d->last_differing = TT_MAX(d->last_differing, a->head.step);
		if (!d->start.a)
			d->start = f;
		if (!d->first[a->head.segment].a)
			d->first[a->head.segment] = f;
		if (d->limit < 0 || d->nlist < d->limit)
			TT_PUSH(d->arena, d->list, d->nlist, d->cap_list, f);
	}
	d->compared += c->n;
	d->cells++;
	d->cells_differing += d->differing > before;
}

static bool runs_on_microbatch(int segment) { return segment == TT_SEG_F || segment == TT_SEG_B || segment == TT_SEG_EVAL; }

static void compare(diff *d)
{
	static const char *const shapes[] = { "run.tokens_per_microbatch", "run.tokens_per_step", "run.context_length" };
	for (int i = 0; i < TT_COUNT(shapes); i++)
		d->by_step |= differs(d, shapes[i]);
	d->other_acc = differs(d, "run.numerics");
	d->sorted_a = sort_cells(d->arena, &d->fa);
	d->sorted_b = sort_cells(d->arena, &d->fb);
	int64_t step = -1;
	for (int64_t i = 0; i < d->fa.ncells; i++) {
		const tt_hashes_cell *a = &d->fa.cells[i];
		if (d->by_step && runs_on_microbatch(a->head.segment)) {
			d->left_out++;
			continue;
		}
		const tt_hashes_cell *b = find_cell(&d->fb, d->sorted_b, a->head.step, a->head.segment, a->head.index);
		if (!b) {
			d->only_a++;
			continue;
		}
		if (a->head.step != step)
			d->steps += a->head.step > 0;
		if (!d->first_step)
			d->first_step = a->head.step;
		step = d->last_step = a->head.step;
		compare_cells(d, a, b);
	}
	for (int64_t i = 0; i < d->fb.ncells; i++) {
		const tt_hashes_cell_head *b = &d->fb.cells[i].head;
		if (d->by_step && runs_on_microbatch(b->segment))
			continue;
		d->only_b += !find_cell(&d->fa, d->sorted_a, b->step, b->segment, b->index);
	}
}

/* ---- was it the op, or what it read? ---------------------------------------------------------------------------------------------------- */

typedef enum verdict { EQUAL, DIFFERENT, UNKNOWN } verdict;
/* Views of views that are followed, and values that are asked about for one: more than any graph has, few enough for a file that means harm. */
enum { DEPTH = 8, VISITS = 128 };

static const tt_hashes_node *maker_of(const tt_hashes_program *p, const char *name)
{
	for (int64_t i = 0; i < p->nnodes; i++)
		for (int o = 0; o < p->nodes[i].nout; o++)
			if (!strcmp(p->nodes[i].out[o], name))
				return &p->nodes[i];
	return NULL;
}

/* Of a value that the program run `a`, `b` reads. What is recorded in neither it nor, for B, its F, is a view or a join: as equal as what
 * that was made of. */
static verdict judge(const diff *d, const tt_hashes_cell *a, const tt_hashes_cell *b, const char *name, int depth, int *visits)
{
	int64_t i = tt_hashes_find(a->program, name), j = tt_hashes_find(b->program, name);
	if (i >= 0 && j >= 0 && same_form(d, &a->program->values[i], &b->program->values[j]))
		return a->hash[i] == b->hash[j] ? EQUAL : DIFFERENT;
	if (depth == 0 || (*visits)-- <= 0)
		return UNKNOWN;
	const tt_hashes_node *n = maker_of(a->program, name);
	if (n && n->nin > 0 && i < 0) {
		verdict all = EQUAL;
		for (int k = 0; k < n->nin && all != DIFFERENT && *visits > 0; k++) {
			verdict v = judge(d, a, b, n->in[k], depth - 1, visits);
			all = v == EQUAL ? all : v;
		}
		return *visits > 0 || all == DIFFERENT ? all : UNKNOWN;
	}
	if (!n && a->head.segment == TT_SEG_B) {
		const tt_hashes_cell *fa = find_cell(&d->fa, d->sorted_a, a->head.step, TT_SEG_F, a->head.index);
		const tt_hashes_cell *fb = find_cell(&d->fb, d->sorted_b, a->head.step, TT_SEG_F, a->head.index);
		return fa && fb ? judge(d, fa, fb, name, depth - 1, visits) : UNKNOWN;
	}
	return UNKNOWN;
}

static verdict judge_input(const diff *d, const found *f, const char *name)
{
	int visits = VISITS;
	return judge(d, f->a, f->b, name, DEPTH, &visits);
}

/* ---- the report --------------------------------------------------------------------------------------------------------------------------- */

static void say_place(tt_buf *b, const tt_hashes_cell *c)
{
	if (c->head.step == 0)
		tt_buf_printf(b, "before step 1, %s", tt_hashes_segment_name(c->head.segment));
	else if (runs_on_microbatch(c->head.segment))
		tt_buf_printf(b, "step %lld, microbatch %d, %s", (long long)c->head.step, (int)c->head.index, tt_hashes_segment_name(c->head.segment));
	else
		tt_buf_printf(b, "step %lld, %s", (long long)c->head.step, tt_hashes_segment_name(c->head.segment));
}

static void say_value(tt_buf *b, const found *f)
{
	const tt_hashes_value *v = &f->a->program->values[f->value];
	tt_buf_printf(b, "%s (%s", v->name, v->op);
	if (strcmp(v->dtype, "-"))
		tt_buf_printf(b, ", %s%s%s", v->dtype, strcmp(v->format, "plain") ? " " : "", strcmp(v->format, "plain") ? v->format : "");
	tt_buf_str(b, ")");
}

static void say_settings(const diff *d, tt_buf *b)
{
	int n = 0;
	for (int side = 0; side < 2; side++) {
		const settings *mine = side ? &d->sb : &d->sa, *other = side ? &d->sa : &d->sb;
		for (int64_t i = 0; i < mine->n; i++) {
			const setting *s = &mine->items[i];
			const char *v = setting_of(other, s->key, s->repeat);
			if (is_of_no_effect(s->key) || (side && v) || same_text(s->value, v))
				continue;
			if (!n++)
				tt_buf_str(b, "\nSettings that differ (A | B):\n");
			tt_buf_printf(b, "  %-36s %s | %s\n", s->key, side ? "-" : s->value, side ? s->value : v ? v : "-");
		}
	}
	if (!n)
		tt_buf_str(b, "\nNo setting differs that a value could depend on.\n");
}

/* What is known about settings (EXACT.md: which of them may change bits, and in which numerics). */
static void explain(const diff *d, tt_buf *b)
{
	bool microbatch = differs(d, "run.tokens_per_microbatch"), compute = differs(d, "run.compute"), context = differs(d, "run.context_length");
	const char *numerics = setting_of(&d->sa, "run.numerics", 0);
	bool exact = numerics && !d->other_acc && !strcmp(numerics, "\"exact\"");
	int said = 0;
	/* The graph's text holds its bounds and dtypes too. */
	if (differs(d, "run.model_graph") && !microbatch && !compute && !context)
		said++, tt_buf_str(b, "They are not the same model: only what happens to have one name was compared.\n");
	if (differs(d, "run.seed"))
		said++, tt_buf_str(b, "Another seed: other initial weights.\n");
	if (differs(d, "run.data_seed") || differs(d, "run.tokens_per_step") || context)
		said++, tt_buf_str(b, "Other rows in each step (data.seed, training.tokens_per_step, training.context_length).\n");
	if (compute)
		said++, tt_buf_str(b, "Another dtype rounds elsewhere (training.mixed_precision_param, training.dtype).\n");
	if (d->other_acc)
		said++, tt_buf_str(b, "`fast` and `exact` numerics round at different places and are not meant to be equal (debug.numerics).\n");
	if (microbatch && !exact)
		said++, tt_buf_str(b, "In `fast` numerics a weight gradient is summed per microbatch, so another microbatch size changes its last bits; in `exact` it "
				      "does not (debug.numerics).\n");
	if (!said && (differs(d, "run.kernels") || differs(d, "run.isa") || differs(d, "run.threads") || microbatch))
		tt_buf_printf(b, "Kernels, instruction set and threads%s never change a bit by design: unless another setting explains it, this is a bug.\n",
			      exact ? ", and in `exact` the microbatch size," : "");
}

static void say_start(const diff *d, tt_buf *b)
{
	const found *f = &d->start;
	const tt_hashes_program *pa = f->a->program, *pb = f->b->program;
	const tt_hashes_value *va = &pa->values[f->value], *vb = &pb->values[tt_hashes_find(pb, va->name)];
	const char *seg = tt_hashes_segment_name(f->a->head.segment);
	tt_buf_str(b, "\nThe runs part at ");
	say_place(b, f->a);
	tt_buf_str(b, ":\n  ");
	say_value(b, f);
	tt_buf_str(b, "\n");
	if (f->a->head.T != f->b->head.T || f->a->head.nseqs != f->b->head.nseqs)
		tt_buf_printf(b, "  The microbatches differ: %lld tokens in %lld sequences in A, %lld in %lld in B.\n", (long long)f->a->head.T,
			      (long long)f->a->head.nseqs, (long long)f->b->head.T, (long long)f->b->head.nseqs);
	if (f->a->head.segment == TT_HASHES_STATE) {
		tt_buf_str(b, "  Kept once a step, so the op is not known: record \"values\" too (debug.record_hashes), for this step alone (debug.record_steps).\n");
	} else if (!strcmp(va->op, "state") && d->by_step) {
		tt_buf_printf(b, "  A state, as %s found it: made by programs that run on microbatches, which were not compared, or written between programs.\n", seg);
	} else if (!strcmp(va->op, "state")) {
		tt_buf_printf(b, "  A state, as %s found it: it was written between programs, or in a step that is not recorded.\n", seg);
	} else if (!strcmp(va->op, "input")) {
		tt_buf_printf(b, "  An input of %s, written by the loader or the loop.\n", seg);
	} else {
		const tt_hashes_node *n = maker_of(pa, va->name);
		int count[3] = { 0 };
		for (int i = 0; n && i < n->nin; i++)
			count[judge_input(d, f, n->in[i])]++;
		if (n && !count[DIFFERENT] && !count[UNKNOWN])
			tt_buf_printf(b, "  All that it reads is equal (%d of %d): the op itself parts.\n", count[EQUAL], n->nin);
		else if (n)
			for (int i = 0; i < n->nin; i++) {
				verdict v = judge_input(d, f, n->in[i]);
				tt_buf_printf(b, "  reads %s: %s\n", n->in[i], v == EQUAL ? "equal" : v == DIFFERENT ? "different" : "not recorded in both");
			}
		if (strcmp(va->kernel, vb->kernel) || strcmp(va->op, vb->op))
			tt_buf_printf(b, "  Computed by %s [%s] in A, %s [%s] in B.\n", va->op, va->kernel, vb->op, vb->kernel);
		else
			tt_buf_printf(b, "  Computed by %s [%s].\n", va->op, va->kernel);
	}
}

static void say_later(const diff *d, tt_buf *b)
{
	tt_buf_printf(b, "\n%lld of %lld values differ, in %lld of %lld program runs, the last at step %lld. First in each program:\n", (long long)d->differing,
		      (long long)d->compared, (long long)d->cells_differing, (long long)d->cells, (long long)d->last_differing);
	for (int s = 0; s < TT_HASHES_NSEGS; s++) {
		if (!d->first[s].a)
			continue;
		tt_buf_str(b, "  ");
		say_place(b, d->first[s].a);
		tt_buf_str(b, ": ");
		say_value(b, &d->first[s]);
		tt_buf_str(b, "\n");
	}
	if (!d->nlist)
		return;
	if (d->nlist < d->differing)
		tt_buf_printf(b, "\nThe first %lld values that differ (--all, --limit=N):\n", (long long)d->nlist);
	else
		tt_buf_str(b, "\nAll values that differ:\n");
	const tt_hashes_cell *last = NULL;
	for (int64_t i = 0; i < d->nlist; i++) {
		if (d->list[i].a != last) {
			tt_buf_str(b, "  ");
			say_place(b, d->list[i].a);
			tt_buf_str(b, "\n");
		}
		last = d->list[i].a;
		tt_buf_str(b, "    ");
		say_value(b, &d->list[i]);
		tt_buf_str(b, "\n");
	}
}

static void say_cut(const tt_hashes_file *f, const char *name, tt_buf *b)
{
	if (f->cut)
		tt_buf_printf(b, "  the last record of %s, which is not whole: it begins at byte %lld, the file ends at byte %lld\n", name, (long long)f->cut_at,
			      (long long)f->map.n);
}

static void say_not_compared(const diff *d, tt_buf *b)
{
	int64_t only_a = 0, only_b = 0, form = 0;
	const char *example[3] = { NULL, NULL, NULL };
	for (int64_t i = 0; i < d->ncommons; i++) {
		const common *c = &d->commons[i];
		only_a += c->only_a;
		only_b += c->only_b;
		form += c->other_form;
		example[0] = example[0] ? example[0] : c->example_a;
		example[1] = example[1] ? example[1] : c->example_b;
		example[2] = example[2] ? example[2] : c->example_form;
	}
	tt_buf n = { 0 };
	if (d->by_step)
		tt_buf_printf(&n, "  %lld runs of F, B and EVAL: the microbatches are not the same, so only what is computed once a step was\n", (long long)d->left_out);
	if (d->only_a)
		tt_buf_printf(&n, "  %lld program runs that only A has\n", (long long)d->only_a);
	if (d->only_b)
		tt_buf_printf(&n, "  %lld program runs that only B has\n", (long long)d->only_b);
	if (only_a)
		tt_buf_printf(&n, "  %lld values that only A has, such as %s\n", (long long)only_a, example[0]);
	if (only_b)
		tt_buf_printf(&n, "  %lld values that only B has, such as %s\n", (long long)only_b, example[1]);
	if (form)
		tt_buf_printf(&n, "  %lld values of another dtype or format, such as %s\n", (long long)form, example[2]);
	say_cut(&d->fa, "A", &n);
	say_cut(&d->fb, "B", &n);
	if (n.n)
		tt_buf_printf(b, "\nNot compared:\n%s", n.s);
	tt_buf_fini(&n);
}

/* A file without a program run: what it is that was found. */
static tt_status check_filled(const tt_hashes_file *f)
{
	static const char again[] = "record the run again (debug.record_hashes; before its first step has ended a run has written nothing)";
	if (f->ncells)
		return TT_OK;
	if (!f->map.n)
		TT_FAIL(TT_ERR_FORMAT, "%s: is empty: %s", f->path, again);
	if (f->cut)
		TT_FAIL(TT_ERR_FORMAT, "%s: cut off: it ends at byte %lld, within the record that begins at byte %lld, and no program run is before it: %s", f->path,
			(long long)f->map.n, (long long)f->cut_at, again);
	TT_FAIL(TT_ERR_FORMAT, "%s: no program run is among its %lld bytes: %s", f->path, (long long)f->map.n, again);
}

static tt_status run_diff(diff *d, const char *a, const char *b, tt_buf *out)
{
	TT_TRY(tt_hashes_read(d->arena, a, &d->fa));
	TT_TRY(tt_hashes_read(d->arena, b, &d->fb));
	TT_TRY(check_filled(&d->fa));
	TT_TRY(check_filled(&d->fb));
	d->sa = parse_settings(d->arena, d->fa.settings);
	d->sb = parse_settings(d->arena, d->fb.settings);
	compare(d);
	if (!d->compared)
		TT_FAIL(TT_ERR_USAGE, "%s has %lld program runs, %s %lld, and no value in common: record the same kind (debug.record_hashes) and steps "
				      "(debug.record_steps)%s", d->fa.path, (long long)d->fa.ncells, d->fb.path, (long long)d->fb.ncells,
			d->by_step ? "; with other microbatches, \"state\"" : "");
	tt_buf_printf(out, "A  %s\nB  %s\n", d->fa.path, d->fb.path);
	say_settings(d, out);
	if (d->differing) {
		say_start(d, out);
		explain(d, out);
		say_later(d, out);
	} else {
		tt_buf_printf(out, "\nEqual: %lld values of %lld steps, %lld to %lld.\n", (long long)d->compared, (long long)d->steps, (long long)d->first_step,
			      (long long)d->last_step);
	}
	say_not_compared(d, out);
	return TT_OK;
}

tt_status tt_cli_diff(const char *a, const char *b, int64_t limit, tt_buf *out, bool *equal)
{
	diff d = { .arena = tt_arena_create("diff"), .limit = limit };
	tt_status s = run_diff(&d, a, b, out);
	if (s == TT_OK)
		*equal = !d.differing;
	tt_hashes_file_close(&d.fa);
	tt_hashes_file_close(&d.fb);
	tt_arena_destroy(d.arena);
	return s;
}

tt_status tt_cmd_diff(int argc, const char *const *argv)
{
	const char *runs[2] = { NULL, NULL };
	int n = 0;
	int64_t limit = 10;
	for (int i = 0; i < argc; i++) {
		if (!strcmp(argv[i], "--all")) {
			limit = -1;
		} else if (!strncmp(argv[i], "--limit=", 8)) {
			char *end;
			limit = strtoll(argv[i] + 8, &end, 10);
			if (end == argv[i] + 8 || *end || limit < 0)
				TT_FAIL(TT_ERR_USAGE, "%s: a number from 0 is needed", argv[i]);
		} else {
			if (n == 2)
				TT_FAIL(TT_ERR_USAGE, "titan diff compares two runs, %s is a third", argv[i]);
			runs[n++] = argv[i];
		}
	}
	if (n < 2)
		TT_FAIL(TT_ERR_USAGE, "titan diff needs two runs: folders (job.dump_folder) or their hashes.bin");
	tt_buf out = { 0 };
	bool equal = true;
	tt_status s = tt_cli_diff(runs[0], runs[1], limit, &out, &equal);
	if (s == TT_OK)
		tt_cli_print(out.s);
	tt_buf_fini(&out);
	TT_TRY(s);
	/* The exit code of every failure that is not the user's; what there is to say was printed. */
	return equal ? TT_OK : tt_error_set(TT_ERR_NUMERIC, __FILE__, __LINE__, "%s", "");
}
