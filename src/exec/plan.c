/* plan.c: a region and an offset for every storage.
 *
 * States, inputs, outputs and what F leaves for B lie one after another, 64-byte aligned, in the order in which the graphs brought them. The
 * temporaries of a program are packed by lifetime: largest first, each into the smallest gap that is free during [first, last], else behind
 * all that is live with it (greedy by size: Pisarchyk and Lee, "Efficient memory management for deep neural net inference", 2020, algorithm 3).
 * Programs never run at once, so their work lies over each other.
 */
#include "exec/internal.h"

#include <stdlib.h>

static int by_size(const void *x, const void *y)
{
	const store *a = *(store *const *)x, *b = *(store *const *)y;
	if (a->bytes != b->bytes)
		return a->bytes > b->bytes ? -1 : 1;
	if (a->first != b->first)
		return a->first < b->first ? -1 : 1;
	return a < b ? -1 : a > b;
}

/* What is placed already, to be found by lifetime: a segment tree over a program's nodes (Bentley, "Solutions to Klee's rectangle problems",
 * 1977). A storage hangs on the O(log n) tree nodes that make up its lifetime, so that placing is n log n plus what truly overlaps. */
typedef struct hook { store *s; int64_t next; } hook; /* next: of the same tree node, -1 */
typedef struct lifetimes {
	tt_arena *a;
	int64_t base, size; /* the program's first node; leaves, a power of two */
	int64_t *head;      /* [2 size] first hook of a tree node, -1 */
	int64_t *below;     /* [2 size] hooks on it and on all below it */
	hook *hooks;
	int64_t nhooks, cap_hooks;
	store **found;      /* those of the last search, room for all */
	int64_t nfound;
} lifetimes;

static lifetimes lifetimes_new(tt_arena *a, store *const *s, int64_t n)
{
	int64_t least = INT64_MAX, most = -1;
	for (int64_t i = 0; i < n; i++) {
		least = TT_MIN(least, s[i]->first);
		most = TT_MAX(most, s[i]->last);
	}
	lifetimes t = {.a = a, .base = least, .size = 1, .found = TT_NEWN(a, store *, n)};
	while (n && t.size < most - least + 1)
		t.size *= 2;
	t.head = TT_NEWN(a, int64_t, 2 * t.size);
	t.below = TT_NEWN(a, int64_t, 2 * t.size);
	for (int64_t i = 0; i < 2 * t.size; i++)
		t.head[i] = -1;
	return t;
}

static void hang(lifetimes *t, int64_t node, store *s)
{
	hook h = {s, t->head[node]};
	t->head[node] = t->nhooks;
	TT_PUSH(t->a, t->hooks, t->nhooks, t->cap_hooks, h);
	for (; node; node /= 2)
		t->below[node]++;
}

static void lifetimes_add(lifetimes *t, store *s)
{
	for (int64_t lo = s->first - t->base + t->size, hi = s->last - t->base + t->size + 1; lo < hi; lo /= 2, hi /= 2) {
		if (lo & 1)
			hang(t, lo++, s);
		if (hi & 1)
			hang(t, --hi, s);
	}
}

/* All that live at some node of `s`'s lifetime: a tree node that meets it, of leaves [lo, lo + n), lies within the lifetime of whatever
 * hangs on it. `found` keeps each from being taken twice. */
static void lifetimes_search(lifetimes *t, const store *s, int64_t node, int64_t lo, int64_t n)
{
	if (!t->below[node] || s->last < lo || lo + n <= s->first)
		return;
	for (int64_t h = t->head[node]; h >= 0; h = t->hooks[h].next) {
		store *x = t->hooks[h].s;
		if (!x->found)
			t->found[t->nfound++] = x;
		x->found = true;
	}
	if (n == 1)
		return;
	lifetimes_search(t, s, 2 * node, lo, n / 2);
	lifetimes_search(t, s, 2 * node + 1, lo + n / 2, n / 2);
}

/* By offset; of one offset, what was placed first. */
static int by_place(const void *x, const void *y)
{
	const store *a = *(store *const *)x, *b = *(store *const *)y;
	if (a->offset != b->offset)
		return a->offset < b->offset ? -1 : 1;
	return (a->order > b->order) - (a->order < b->order);
}

static void place(lifetimes *t, store *s)
{
	t->nfound = 0;
	lifetimes_search(t, s, 1, t->base, t->size);
	qsort(t->found, (size_t)t->nfound, sizeof *t->found, by_place);
	int64_t end = 0, best = -1, best_gap = INT64_MAX;
	for (int64_t i = 0; i < t->nfound; i++) {
		store *p = t->found[i];
		int64_t gap = p->offset - end;
		if (gap >= s->bytes && gap < best_gap) {
			best = end;
			best_gap = gap;
		}
		end = TT_MAX(end, tt_round_up(p->offset + p->bytes, ALIGN));
		p->found = false;
	}
	s->offset = best >= 0 ? best : end;
}

static void plan_work(tt_exec *e, tt_segment seg)
{
	tt_mark mark = tt_arena_push(e->arena);
	store **mine = TT_NEWN(e->arena, store *, e->nstores);
	int64_t n = 0;
	for (int64_t i = 0; i < e->nstores; i++) {
		store *s = &e->stores[i];
		if (s->kind == STORE_TEMP && s->region == TT_REGION_WORK && s->parent < 0 && !s->dead && s->seg == seg && s->last >= s->first)
			mine[n++] = s;
	}
	qsort(mine, (size_t)n, sizeof *mine, by_size);
	program *p = &e->prog[seg];
	lifetimes placed = lifetimes_new(e->arena, mine, n);
	for (int64_t i = 0; i < n; i++) {
		mine[i]->order = i;
		if (e->o.no_alias) {
			mine[i]->offset = tt_round_up(p->work, ALIGN);
		} else {
			place(&placed, mine[i]);
			lifetimes_add(&placed, mine[i]);
		}
		p->work = TT_MAX(p->work, mine[i]->offset + mine[i]->bytes);
	}
	tt_arena_pop(e->arena, mark);
}

/* Every storage outside of work that somebody uses, one after another. */
static void plan_fixed(tt_exec *e, bool per_frame, int64_t *end)
{
	for (int64_t i = 0; i < e->nstores; i++) {
		store *s = &e->stores[i];
		bool used = s->kind != STORE_TEMP || (s->region != TT_REGION_WORK && !s->dead && s->last >= s->first);
		if (s->parent >= 0 || !used || s->per_frame != per_frame)
			continue;
		s->offset = tt_round_up(end[s->region], ALIGN);
		end[s->region] = s->offset + s->bytes;
	}
}

static void set_slot(const tt_exec *e, tt_slot *slot)
{
	int64_t at = slot->at;
	const store *s = &e->stores[store_root(e, slot->store, &at)];
	slot->region = s->region;
	slot->offset = s->offset + at * s->esize;
	slot->frame_stride = s->per_frame ? e->frame_stride[s->region] : 0;
	slot->plane = s->planes > 1 ? s->plane : 0;
	slot->count = slot->format == TT_PLAIN ? 1 : s->count;
	for (int d = 0; d < slot->ndim && slot->format == TT_PLAIN; d++)
		slot->count *= slot->dim[d].n;
}

tt_status tt_exec_plan(tt_exec *e)
{
	TT_ASSERT(!e->is_planned, "plan once");
	plan_fixed(e, false, e->planned);
	for (int r = 0; r < TT_EXEC_NREGIONS; r++)
		e->frame_at[r] = tt_round_up(e->planned[r], ALIGN);
	int64_t end[TT_EXEC_NREGIONS];
	memcpy(end, e->frame_at, sizeof end);
	plan_fixed(e, true, end);
	for (int r = 0; r < TT_EXEC_NREGIONS; r++) {
		if (end[r] == e->frame_at[r])
			continue;
		e->frame_stride[r] = tt_round_up(end[r] - e->frame_at[r], ALIGN);
		e->planned[r] = end[r] + (e->o.nframes - 1) * e->frame_stride[r];
	}
	for (int seg = 0; seg < TT_NSEGS; seg++) {
		plan_work(e, (tt_segment)seg);
		e->planned[TT_REGION_WORK] = TT_MAX(e->planned[TT_REGION_WORK], e->prog[seg].work);
		e->planned[TT_REGION_SCRATCH] = TT_MAX(e->planned[TT_REGION_SCRATCH], e->prog[seg].scratch);
	}
	for (int k = 0; k < TT_COMM_LANES; k++) {
		int64_t behind = 0;
		for (int seg = 0; seg < TT_NSEGS; seg++)
			behind = TT_MAX(behind, e->prog[seg].lane_scratch[k]);
		if (!behind)
			continue;
		e->lane_scratch_at[k] = tt_round_up(e->planned[TT_REGION_SCRATCH], ALIGN);
		e->planned[TT_REGION_SCRATCH] = e->lane_scratch_at[k] + behind;
	}
	for (int64_t i = 0; i < e->nstates; i++)
		set_slot(e, &e->states[i]);
	for (int64_t i = 0; i < e->ninputs; i++)
		set_slot(e, &e->inputs[i]);
	for (int64_t i = 0; i < e->noutputs; i++)
		set_slot(e, &e->outputs[i]);
	find_starts(e);
	e->is_planned = true;
	return tt_arena_ok(e->arena);
}
