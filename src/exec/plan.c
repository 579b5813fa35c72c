/* plan.c: a region and an offset for every storage.
 *
 * States, inputs, outputs and what F leaves for B lie one after another, 64-byte aligned, in the order in which the graphs brought them. The
 * temporaries of a program are packed by lifetime: largest first, each into the smallest gap that is free during [first, last], else behind
 * all that is live with it (greedy by size: Pisarchyk and Lee, "Efficient memory management for deep neural net inference", 2020, algorithm 3).
 * Programs never run at once, so their work lies over each other.
 */
#include "exec/internal.h"

#include <stdlib.h>

static bool overlap(const store *a, const store *b) { return a->first <= b->last && b->first <= a->last; }

static int by_size(const void *x, const void *y)
{
	const store *a = *(store *const *)x, *b = *(store *const *)y;
	if (a->bytes != b->bytes)
		return a->bytes > b->bytes ? -1 : 1;
	if (a->first != b->first)
		return a->first < b->first ? -1 : 1;
	return a < b ? -1 : a > b;
}

/* `placed`: in ascending order of offset. Returns where s goes among them. */
static int64_t place(store *const *placed, int64_t n, store *s)
{
	int64_t end = 0, best = -1, best_gap = INT64_MAX;
	for (int64_t i = 0; i < n; i++) {
		const store *p = placed[i];
		if (!overlap(p, s))
			continue;
		int64_t gap = p->offset - end;
		if (gap >= s->bytes && gap < best_gap) {
			best = end;
			best_gap = gap;
		}
		end = TT_MAX(end, tt_round_up(p->offset + p->bytes, ALIGN));
	}
	s->offset = best >= 0 ? best : end;
	int64_t at = n;
	while (at > 0 && placed[at - 1]->offset > s->offset)
		at--;
	return at;
}

static void plan_work(tt_exec *e, tt_segment seg)
{
	tt_mark mark = tt_arena_push(e->arena);
	store **mine = TT_NEWN(e->arena, store *, e->nstores), **placed = TT_NEWN(e->arena, store *, e->nstores);
	int64_t n = 0;
	for (int64_t i = 0; i < e->nstores; i++) {
		store *s = &e->stores[i];
		if (s->kind == STORE_TEMP && s->region == TT_REGION_WORK && s->parent < 0 && !s->dead && s->seg == seg && s->last >= s->first)
			mine[n++] = s;
	}
	qsort(mine, (size_t)n, sizeof *mine, by_size);
	program *p = &e->prog[seg];
	for (int64_t i = 0; i < n; i++) {
		int64_t at = i;
		if (e->o.no_alias)
			mine[i]->offset = tt_round_up(p->work, ALIGN);
		else
			at = place(placed, i, mine[i]);
		memmove(&placed[at + 1], &placed[at], sizeof *placed * (size_t)(i - at));
		placed[at] = mine[i];
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
	for (int64_t i = 0; i < e->nstates; i++)
		set_slot(e, &e->states[i]);
	for (int64_t i = 0; i < e->ninputs; i++)
		set_slot(e, &e->inputs[i]);
	for (int64_t i = 0; i < e->noutputs; i++)
		set_slot(e, &e->outputs[i]);
	e->is_planned = true;
	return tt_arena_ok(e->arena);
}
