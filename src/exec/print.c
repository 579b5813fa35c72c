/* print.c: what the executor says about itself. Stable text: no addresses, no times except in the profile. */
#include "exec/internal.h"

#include <stdlib.h>

static void print_extent(const tt_dim *d, tt_buf *b)
{
	if (d->role == TT_SEQS)
		tt_buf_printf(b, "min(S+1,%lld)", (long long)d->n);
	else if (d->role == TT_TOKENS && d->base == 0)
		tt_buf_printf(b, "min(T,%lld)", (long long)d->n);
	else if (d->role == TT_TOKENS)
		tt_buf_printf(b, "clamp(T-%lld,0,%lld)", (long long)d->base, (long long)d->n);
	else
		tt_buf_printf(b, "%lld", (long long)d->n);
}

/* name = region+offset dtype[extents] */
static void print_operand(const tt_exec *e, const program *p, tt_v v, tt_buf *b)
{
	if (!v) {
		tt_buf_str(b, "-");
		return;
	}
	const tt_value *x = &p->g->values[v];
	int64_t at = p->at[v];
	const store *s = &e->stores[store_root(e, p->store[v], &at)];
	tt_buf_printf(b, "%s %s%s+%lld %s", x->name, tt_exec_region_name(s->region), s->per_frame ? "/cell" : "",
		(long long)(s->offset + at * s->esize - (s->per_frame ? e->frame_at[s->region] : 0)), tt_dtype_name(x->dtype));
	if (x->format != TT_PLAIN)
		tt_buf_printf(b, ":%s", tt_format_name(x->format));
	tt_buf_str(b, "[");
	for (int d = 0; d < x->ndim; d++) {
		tt_buf_str(b, d ? "," : "");
		print_extent(&x->dim[d], b);
	}
	tt_buf_str(b, "]");
}

void tt_exec_print_program(const tt_exec *e, tt_segment seg, tt_buf *b)
{
	const program *p = &e->prog[seg];
	TT_ASSERT(e->is_planned, "programs are printed after plan");
	if (!p->g) {
		tt_buf_printf(b, "program %s: none\n", tt_segment_name(seg));
		return;
	}
	tt_buf_printf(b, "program %s: %lld instructions, %lld nodes without one, work %lld, scratch %lld\n", tt_segment_name(seg),
		(long long)p->ninstrs, (long long)(p->nlines - p->ninstrs), (long long)p->work, (long long)p->scratch);
	for (int64_t i = 0; i < p->nlines; i++) {
		const tt_node *n = p->lines[i].node;
		const instr *in = p->lines[i].instr >= 0 ? &p->instrs[p->lines[i].instr] : NULL;
		if (in)
			tt_buf_printf(b, "%5lld %s [%s]", (long long)p->lines[i].instr, n->op->name, in->kernel);
		else
			tt_buf_printf(b, "    . %s [%s]", n->op->name, n->op->flags & TT_OP_VIEW ? "view" : "in place");
		if (in && in->scratch)
			tt_buf_printf(b, " scratch %zu", in->scratch);
		for (int k = 0; k < TT_COMM_LANES && in; k++)
			if (in->wait[k] >= 0)
				tt_buf_printf(b, ", waits for %lld", (long long)in->wait[k]);
		tt_buf_str(b, "\n");
		for (int o = 0; o < n->nout; o++) {
			tt_buf_str(b, "        -> ");
			print_operand(e, p, n->out[o], b);
			tt_buf_str(b, "\n");
		}
		for (int j = 0; j < n->nin; j++) {
			tt_buf_str(b, "        <- ");
			print_operand(e, p, n->in[j], b);
			tt_buf_str(b, "\n");
		}
	}
}

/* ---- memory -------------------------------------------------------------------------------------------------------------- */

/* Storages whose names differ in a number alone (a layer's, a chunk's) are one line. */
typedef struct group { const char *name; int64_t bytes, n; } group;

/* "model.layers.11.mlp.act" as "model.layers.*.mlp.act" */
static const char *starred(tt_arena *a, const char *name)
{
	char *out = tt_arena_strdup(a, name), *to = out;
	for (const char *s = name; *s;) {
		size_t n = strcspn(s, "."), digits = strspn(s, "0123456789");
		if (n > 0 && digits == n)
			*to++ = '*';
		else
			to = (char *)memcpy(to, s, n) + n;
		s += n;
		if (*s)
			*to++ = *s++;
	}
	*to = 0;
	return out;
}

static int by_bytes(const void *x, const void *y)
{
	const group *a = x, *b = y;
	if (a->bytes != b->bytes)
		return a->bytes > b->bytes ? -1 : 1;
	return strcmp(a->name, b->name);
}

/* The `most` largest groups; the rest is one line. */
static void print_stores(tt_arena *a, const store *const *list, int64_t n, int64_t most, tt_buf *b)
{
	group *g = TT_NEWN(a, group, n);
	names known = {0};
	int64_t ngroups = 0, bytes = 0, count = 0;
	for (int64_t i = 0; i < n; i++) {
		const char *name = starred(a, list[i]->name);
		int32_t k = names_find(&known, name);
		if (k < 0) {
			k = (int32_t)ngroups++;
			g[k].name = name;
			names_add(&known, a, name, k);
		}
		g[k].bytes += list[i]->bytes;
		g[k].n++;
	}
	qsort(g, (size_t)ngroups, sizeof *g, by_bytes);
	for (int64_t i = 0; i < ngroups; i++) {
		if (i >= most) {
			bytes += g[i].bytes;
			count += g[i].n;
			continue;
		}
		tt_buf_printf(b, "  %14lld  %s", (long long)g[i].bytes, g[i].name);
		if (g[i].n > 1)
			tt_buf_printf(b, " (%lld)", (long long)g[i].n);
		tt_buf_str(b, "\n");
	}
	if (count)
		tt_buf_printf(b, "  %14lld  in %lld smaller ones\n", (long long)bytes, (long long)count);
}

/* The node during which most bytes of a program's work are live. */
static int64_t peak_of(const store *const *mine, int64_t n, int64_t nnodes, int64_t *change, int64_t *bytes)
{
	int64_t live = 0, at = 0;
	for (int64_t i = 0; i < n; i++) {
		change[mine[i]->first] += mine[i]->bytes;
		change[mine[i]->last + 1] -= mine[i]->bytes;
	}
	*bytes = 0;
	for (int64_t i = 0; i < nnodes; i++) {
		live += change[i];
		if (live > *bytes) {
			*bytes = live;
			at = i;
		}
	}
	return at;
}

static void print_peak(const tt_exec *e, tt_segment seg, tt_buf *b)
{
	const program *p = &e->prog[seg];
	tt_mark mark = tt_arena_push(e->arena);
	const store **mine = TT_NEWN(e->arena, const store *, e->nstores);
	int64_t n = 0, bytes = 0, live = 0;
	for (int64_t i = 0; i < e->nstores; i++) {
		const store *s = &e->stores[i];
		if (s->kind == STORE_TEMP && s->region == TT_REGION_WORK && s->parent < 0 && !s->dead && s->seg == seg && s->last >= s->first)
			mine[n++] = s;
	}
	int64_t at = peak_of(mine, n, p->g->nnodes, TT_NEWN(e->arena, int64_t, p->g->nnodes + 1), &bytes);
	if (n) {
		const tt_node *node = &p->g->nodes[at];
		tt_buf_printf(b, "work of %s: %lld bytes, %lld live at its peak, %s of %s\n", tt_segment_name(seg), (long long)p->work,
			(long long)bytes, node->op->name, p->g->values[node->out[0]].name);
		for (int64_t i = 0; i < n; i++)
			if (mine[i]->first <= at && mine[i]->last >= at)
				mine[live++] = mine[i];
		print_stores(e->arena, mine, live, 24, b);
	}
	tt_arena_pop(e->arena, mark);
}

/* What lies in a region from before a program to after it: states, or what F leaves for B. */
static void print_kept(const tt_exec *e, int region, int64_t most, tt_buf *b)
{
	tt_mark mark = tt_arena_push(e->arena);
	const store **list = TT_NEWN(e->arena, const store *, e->nstores);
	int64_t n = 0, frames = region == TT_REGION_FRAME ? e->o.nframes : 1;
	for (int64_t i = 0; i < e->nstores; i++)
		if (e->stores[i].region == region && e->stores[i].parent < 0 && !e->stores[i].dead)
			list[n++] = &e->stores[i];
	if (n) {
		tt_buf_printf(b, "%s: %lld bytes", tt_exec_region_name(region), (long long)(e->planned[region] / frames));
		if (frames > 1)
			tt_buf_printf(b, ", %lld of them", (long long)frames);
		tt_buf_str(b, "\n");
		print_stores(e->arena, list, n, most, b);
	}
	tt_arena_pop(e->arena, mark);
}

void tt_exec_print_memory(const tt_exec *e, tt_buf *b)
{
	TT_ASSERT(e->is_planned, "memory is printed after plan");
	int64_t sum = 0;
	for (int r = 0; r < TT_EXEC_NREGIONS; r++)
		sum += e->planned[r];
	tt_buf_printf(b, "memory: %lld bytes, %.1f MiB\n", (long long)sum, (double)sum / (double)TT_MIB);
	for (int r = 0; r < TT_EXEC_NREGIONS; r++)
		if (e->planned[r])
			tt_buf_printf(b, "  %14lld  %4.1f%%  %s\n", (long long)e->planned[r], 100 * (double)e->planned[r] / (double)sum, tt_exec_region_name(r));
	print_kept(e, TT_REGION_FRAME, 24, b);
	print_kept(e, TT_REGION_PARAM, 12, b);
	print_kept(e, TT_REGION_GRAD, 6, b);
	print_kept(e, TT_REGION_OPTIM, 6, b);
	for (int s = 0; s < TT_NSEGS; s++)
		if (e->prog[s].g)
			print_peak(e, (tt_segment)s, b);
}

/* ---- profile ------------------------------------------------------------------------------------------------------------- */

typedef struct row { const char *op; int64_t calls; double seconds; } row;

static int by_seconds(const void *x, const void *y)
{
	const row *a = x, *b = y;
	if (a->seconds < b->seconds || a->seconds > b->seconds)
		return a->seconds > b->seconds ? -1 : 1;
	return strcmp(a->op, b->op);
}

void tt_exec_print_profile(const tt_exec *e, tt_buf *b)
{
	for (int seg = 0; seg < TT_NSEGS; seg++) {
		const program *p = &e->prog[seg];
		tt_mark mark = tt_arena_push(e->arena);
		row *rows = TT_NEWN(e->arena, row, p->ninstrs);
		int64_t n = 0;
		double total = 0;
		for (int64_t i = 0; i < p->ninstrs; i++) {
			const instr *in = &p->instrs[i];
			int64_t k = 0;
			while (k < n && rows[k].op != in->node->op->name)
				k++;
			if (k == n)
				rows[n++] = (row){in->node->op->name, 0, 0};
			rows[k].calls += in->calls;
			rows[k].seconds += in->seconds;
			total += in->seconds;
		}
		qsort(rows, (size_t)n, sizeof *rows, by_seconds);
		if (n)
			tt_buf_printf(b, "%s: %.6f s\n", tt_segment_name((tt_segment)seg), total);
		for (int64_t k = 0; k < n; k++)
			tt_buf_printf(b, "  %-20s %8lld calls %12.6f s %5.1f%%\n", rows[k].op, (long long)rows[k].calls, rows[k].seconds,
				total > 0 ? 100 * rows[k].seconds / total : 0);
		tt_arena_pop(e->arena, mark);
	}
}

void tt_exec_reset_profile(tt_exec *e)
{
	for (int seg = 0; seg < TT_NSEGS; seg++)
		for (int64_t i = 0; i < e->prog[seg].ninstrs; i++) {
			e->prog[seg].instrs[i].calls = 0;
			e->prog[seg].instrs[i].seconds = 0;
		}
}
