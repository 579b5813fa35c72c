/* trace.c: when each instruction of a step ran. Two clock reads and one entry of a ring that was made before; text is made of it between steps. */
#include "comm/comm.h"
#include "exec/internal.h"

#include <stdio.h>

void tt_trace_room(tt_trace *t, tt_arena *a, int64_t cap)
{
	t->cap = cap;
	t->events = TT_NEWN(a, tt_trace_event, cap);
	memset(t->events, 0, sizeof *t->events * (size_t)cap); /* touched now, not in the step */
}

/* All lanes write: each takes a place of its own. What finds the ring full is counted and dropped. */
static void put(tt_trace *t, const tt_trace_event *x)
{
	int64_t at = atomic_fetch_add_explicit(&t->n, 1, memory_order_relaxed);
	if (at < t->cap)
		t->events[at] = *x;
}

void tt_trace_span(tt_trace *t, const char *name, double begin, double end)
{
	if (t && t->on)
		put(t, &(tt_trace_event){.name = name, .instr = -1, .begin = begin, .end = end});
}

/* Seconds that this rank has waited for others in the group that an instruction talks to. */
static double waited(const tt_exec *e, const instr *in)
{
	const tt_attr_exchange *at = exchange_of(in->node);
	const tt_comm_group *g = at && e->o.axes ? e->o.axes->group[at->lane][at->axes] : NULL;
	return g ? tt_comm_group_count(g).wait_s : 0;
}

void run_timed(const tt_exec *e, tt_segment seg, const program *p, instr *in)
{
	tt_trace *t = e->o.trace && e->o.trace->on ? e->o.trace : NULL;
	double before = t ? waited(e, in) : 0, begin = tt_now();
	in->run(&in->call);
	double end = tt_now();
	in->seconds += end - begin;
	if (t)
		put(t, &(tt_trace_event){.seg = (int16_t)seg, .lane = TT_TRACE_COMPUTE, .instr = (int32_t)(in - p->instrs), .begin = begin, .end = end, .wait = waited(e, in) - before});
}

void run_on_lane(const tt_exec *e, instr *in)
{
	tt_trace *t = e->o.trace && e->o.trace->on ? e->o.trace : NULL;
	const tt_comm_group *g = e->o.axes->group[in->lane][in->axes];
	tt_comm_count before = tt_comm_group_count(g), after;
	in->began = tt_now();
	in->run(&in->call);
	in->ended = tt_now();
	after = tt_comm_group_count(g);
	in->talked = after.calls - before.calls;
	in->took = after.bytes - before.bytes;
	if (t)
		put(t, &(tt_trace_event){.seg = (int16_t)in->node->seg, .lane = (int16_t)(TT_TRACE_COMM + in->lane), .instr = (int32_t)(in - e->prog[in->node->seg].instrs), .begin = in->began,
					 .end = in->ended, .wait = after.wait_s - before.wait_s});
}

/* ---- Chrome's trace event format, which Perfetto reads --------------------------------------------------------------------------------------- */

static void put_name(tt_buf *b, const char *s)
{
	for (; *s; s++)
		if (*s == '"' || *s == '\\')
			tt_buf_printf(b, "\\%c", *s);
		else if ((unsigned char)*s < 32)
			tt_buf_str(b, " ");
		else
			tt_buf_add(b, s, 1);
}

static void put_event(const tt_exec *e, const tt_trace_event *x, int rank, tt_buf *b)
{
	double us = 1e6;
	const program *p = x->instr >= 0 ? &e->prog[x->seg] : NULL;
	const instr *in = p ? &p->instrs[x->instr] : NULL;
	tt_buf_str(b, ",\n{\"ph\":\"X\",\"name\":\"");
	if (in) {
		put_name(b, in->node->op->name);
		tt_buf_str(b, " ");
		put_name(b, p->g->values[in->node->out[0]].name);
	} else {
		put_name(b, x->name);
	}
	tt_buf_printf(b, "\",\"cat\":\"%s\",\"ts\":%.3f,\"dur\":%.3f,\"pid\":%d,\"tid\":%d", in ? tt_segment_name((tt_segment)x->seg) : "step", us * x->begin, us * (x->end - x->begin),
		      rank, in ? 1 + x->lane : 0);
	if (in)
		tt_buf_printf(b, ",\"args\":{\"segment\":\"%s\",\"instruction\":%d,\"kernel\":\"%s\",\"waits_us\":%.3f}", tt_segment_name((tt_segment)x->seg), x->instr, in->kernel,
			      us * x->wait);
	tt_buf_str(b, "}");
}

void tt_exec_print_trace(const tt_exec *e, const tt_trace *t, int rank, tt_buf *b)
{
	static const char *const lanes[] = {"step", "compute lane", "communication lane", "communication lane, parameters", "communication lane, gradients"};
	_Static_assert(TT_COUNT(lanes) == 1 + TT_TRACE_COMM + TT_COMM_LANES, "the step, and every lane");
	int64_t n = atomic_load_explicit(&t->n, memory_order_acquire), kept = TT_MIN(n, t->cap);
	tt_buf_printf(b, "{\"displayTimeUnit\":\"ms\",\"dropped\":%lld,\"traceEvents\":[\n{\"ph\":\"M\",\"name\":\"process_name\",\"pid\":%d,\"args\":{\"name\":\"rank %d\"}}",
		      (long long)(n - kept), rank, rank);
	for (int i = 0; i < TT_COUNT(lanes); i++)
		tt_buf_printf(b, ",\n{\"ph\":\"M\",\"name\":\"thread_name\",\"pid\":%d,\"tid\":%d,\"args\":{\"name\":\"%s\"}}", rank, i, lanes[i]);
	for (int64_t i = 0; i < kept; i++)
		put_event(e, &t->events[i], rank, b);
	tt_buf_str(b, "\n]}\n");
}
