/* print.c: a mesh's plan as text. What follows from the programs first, then what is only estimated. */
#include "plan/plan.h"

void tt_plan_axes_name(uint32_t axes, tt_buf *b)
{
	bool any = false;
	for (int i = 0; i < TT_PLAN_AXES; i++)
		if (axes & 1u << i) {
			tt_buf_printf(b, "%s%s", any ? "*" : "", tt_plan_axes[i]);
			any = true;
		}
}

static const char *axes_name(tt_arena *a, uint32_t axes)
{
	tt_buf b = { 0 };
	tt_plan_axes_name(axes, &b);
	const char *s = tt_arena_strdup(a, b.s ? b.s : "");
	tt_buf_fini(&b);
	return s;
}

/* "1.23 PFLOP", for any size. */
static const char *si(tt_arena *a, double v, const char *unit)
{
	static const char *const prefix[] = { "", "k", "M", "G", "T", "P", "E", "Z", "Y" };
	int i = 0;
	while (v >= 999.5 && i + 1 < TT_COUNT(prefix)) {
		v /= 1000;
		i++;
	}
	return tt_arena_printf(a, "%.3g %s%s", v, prefix[i], unit);
}

static const char *seconds(tt_arena *a, double s)
{
	return s >= 1 ? tt_arena_printf(a, "%.3g s", s) : s >= 1e-3 ? tt_arena_printf(a, "%.3g ms", 1e3 * s) : tt_arena_printf(a, "%.3g us", 1e6 * s);
}

/* Who is in rank 0's groups: the axis, its size, and from rank to rank. */
static void print_groups(tt_arena *a, const tt_plan_mesh *m, tt_buf *b)
{
	int *ranks = TT_NEWN(a, int, m->ranks);
	tt_buf_printf(b, "\n  %-14s %5s %7s  ranks of rank 0's group\n", "axis", "size", "stride");
	for (int i = 0; i < m->naxes; i++) {
		if (m->size[i] == 1)
			continue;
		int n = tt_mesh_ranks(m->naxes, m->size, 1u << i, 0, ranks);
		tt_buf_printf(b, "  %-14s %5d %7d  ", tt_plan_axes[i], n, ranks[1] - ranks[0]);
		for (int k = 0; k < n; k++) {
			bool gap = n > 8 && k == 6;
			tt_buf_printf(b, "%s%s%d", k ? ", " : "", gap ? "... " : "", ranks[gap ? n - 1 : k]);
			k = gap ? n : k;
		}
		tt_buf_str(b, "\n");
	}
}

static void print_memory(const tt_plan_mesh *m, tt_buf *b)
{
	const tt_plan_rank *r = &m->rank[m->worst];
	tt_buf_printf(b, "\nmemory of rank %d%s\n", r->rank, m->nclasses > 1 ? ", which needs most" : m->ranks > 1 ? ", as of every rank" : "");
	for (int i = 0; i < TT_EXEC_NREGIONS; i++)
		if (r->region[i])
			tt_buf_printf(b, "  %-10s %10s  %16lld bytes\n", tt_exec_region_name(i), tt_scale_bytes(r->region[i]).s, (long long)r->region[i]);
	tt_buf_printf(b, "  %-10s %10s  %16lld bytes", "total", tt_scale_bytes(r->memory).s, (long long)r->memory);
	if (m->limit)
		tt_buf_printf(b, ", %.0f%% of the %s a rank may have", 100 * (double)r->memory / (double)m->limit, tt_scale_bytes(m->limit).s);
	tt_buf_str(b, "\n");
}

static void print_classes(const tt_plan_mesh *m, tt_buf *b)
{
	if (m->nclasses == 1)
		return;
	tt_buf_printf(b, "\n%lld classes of ranks with equal programs%s\n  %10s %8s %10s %14s\n", (long long)m->nclasses,
		      m->nrank < m->nclasses ? "; rank 0's and the heaviest were compiled" : "", "first rank", "ranks", "memory", "FLOPs a step");
	for (int64_t i = 0; i < m->nrank; i++)
		tt_buf_printf(b, "  %10d %8lld %10s %14.4g\n", m->rank[i].rank, (long long)m->rank[i].alike, tt_scale_bytes(m->rank[i].memory).s, m->rank[i].flops);
}

static void print_talk(tt_arena *a, const tt_plan_mesh *m, tt_buf *b)
{
	const tt_plan_rank *r = &m->rank[m->slowest];
	if (!r->ntalk)
		return;
	bool timed = m->hardware.name != NULL;
	tt_buf_printf(b, "\ncommunication of rank %d in a step: what it takes from others\n  %-14s %-16s %8s %10s %18s %9s %10s%s\n", r->rank, "group", "kind", "calls", "", "bytes",
		      "hideable", "", timed ? "   estimate  not hidden" : "");
	int64_t calls = 0, bytes = 0, could = 0, could_bytes = 0;
	for (uint32_t axes = 1; axes < 1u << TT_PLAN_AXES; axes++)
		for (int64_t i = 0; i < r->ntalk; i++) {
			const tt_plan_talk *t = &r->talk[i];
			if (t->axes != axes)
				continue;
			tt_buf_printf(b, "  %-14s %-16s %8lld %10s %18lld %9lld %10s", axes_name(a, axes), t->kind, (long long)t->calls, tt_scale_bytes(t->bytes).s, (long long)t->bytes,
				      (long long)t->hideable_calls, tt_scale_bytes(t->hideable_bytes).s);
			if (timed) /* what the loop itself exchanges is not estimated */
				tt_buf_printf(b, " %10s  %10s", t->seconds > 0 ? seconds(a, t->seconds) : "-", t->seconds > 0 ? seconds(a, t->exposed) : "-");
			tt_buf_str(b, "\n");
			calls += t->calls;
			bytes += t->bytes;
			could += t->hideable_calls;
			could_bytes += t->hideable_bytes;
		}
	tt_buf_printf(b, "  %-14s %-16s %8lld %10s %18lld %9lld %10s\n", "all", "", (long long)calls, tt_scale_bytes(bytes).s, (long long)bytes, (long long)could,
		      tt_scale_bytes(could_bytes).s);
}

static void print_time(tt_arena *a, const tt_plan_mesh *m, tt_buf *b)
{
	const tt_plan_rank *r = &m->rank[m->slowest];
	const tt_hardware *h = &m->hardware;
	if (!h->name)
		return;
	tt_buf_printf(b, "\nestimate on %s: a first guess, no measurement\n", h->title);
	tt_buf_printf(b, "  a rank         %s bf16, %s f32, %s of memory at %s; link %s", si(a, h->bf16, "FLOP/s"), si(a, h->f32, "FLOP/s"),
		      tt_scale_bytes((int64_t)h->memory).s, si(a, h->bandwidth, "B/s"), si(a, h->link, "B/s"));
	if (h->node)
		tt_buf_printf(b, " within %d ranks, %s beyond", h->node, si(a, h->network, "B/s"));
	tt_buf_printf(b, "\n  assumed        %.0f%% of it in products, %.0f%% of memory's, %.0f%% of links'; %s\n", 100 * h->product_share, 100 * h->memory_share,
		      100 * h->link_share, h->source);
	tt_buf_printf(b, "  step           %s:", seconds(a, r->seconds));
	bool any = false;
	for (int i = 0; i < TT_NSEGS; i++)
		if (r->segment_s[i] > 0) {
			tt_buf_printf(b, "%s %s %s", any ? "," : "", tt_segment_name((tt_segment)i), seconds(a, r->segment_s[i]));
			any = true;
		}
	tt_buf_printf(b, "\n  of it          computing %s, communication %s, of which %s is not hidden by computing\n", seconds(a, r->compute_s), seconds(a, r->comm_s),
		      seconds(a, r->exposed_s));
	double peak = h->bf16 * (double)m->ranks;
	if (r->seconds > 0)
		tt_buf_printf(b, "  that is        %s tokens/s, %.1f%% of the bf16 peak in model FLOPs\n", si(a, m->tokens / r->seconds, ""), 100 * m->model_flops / (r->seconds * peak));
}

void tt_plan_print(tt_arena *a, const tt_plan_mesh *m, tt_buf *b)
{
	const tt_plan_rank *r = &m->rank[m->slowest];
	tt_buf_printf(b, "plan of %s: %s parameters on %lld rank%s%s", m->name, tt_scale_count(m->params).s, (long long)m->ranks, m->ranks == 1 ? "" : "s", m->ranks > 1 ? ":" : "");
	for (int i = 0; i < m->naxes; i++)
		if (m->size[i] > 1)
			tt_buf_printf(b, " %s %d", tt_plan_axes[i], m->size[i]);
	tt_buf_printf(b, "%s\nstep: %lld row%s of %lld tokens on %lld data rank%s, %lld microbatch%s each\n", m->sp ? ", sequence parallel" : "", (long long)m->rows, m->rows == 1 ? "" : "s",
		      (long long)(m->tokens / (double)m->rows), (long long)m->data_ranks, m->data_ranks == 1 ? "" : "s", (long long)m->cells, m->cells == 1 ? "" : "es");
	if (m->ranks > 1)
		print_groups(a, m, b);
	print_memory(m, b);
	print_classes(m, b);
	print_talk(a, m, b);
	tt_buf_printf(b, "\ncomputing of rank %d in a step: %s, %s of operands; the model's FLOPs over all ranks are %s\n", r->rank, si(a, r->flops, "FLOP"), si(a, r->bytes, "B"),
		      si(a, m->model_flops, "FLOP"));
	print_time(a, m, b);
}
