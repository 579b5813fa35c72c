/* traces.c: which steps are traced, and where their traces are written. */
#include "train/internal.h"

bool tt_traces_due(const tt_run_trace *o, int64_t step) { return step % o->freq >= o->freq - o->active; }

void tt_traces_room(tt_arena *a, const tt_exec *e, int64_t cells, int64_t steps, tt_trace *t)
{
	enum { MOST = 1 << 20, SPANS = 4 }; /* 56 MiB */
	static const tt_segment segs[] = { TT_SEG_F, TT_SEG_B, TT_SEG_REDUCE, TT_SEG_OPT, TT_SEG_PREP };
	int64_t n = 0;
	for (int i = 0; i < TT_COUNT(segs); i++) {
		tt_exec_instr x;
		int64_t k = 0;
		while (tt_exec_instr_at(e, segs[i], k, &x))
			k++;
		n += (segs[i] == TT_SEG_F || segs[i] == TT_SEG_B ? cells : 1) * k;
	}
	tt_trace_room(t, a, TT_MIN((n + SPANS * cells + SPANS) * steps, (int64_t)MOST));
}

tt_status tt_traces_write(tt_arena *a, const tt_exec *e, const tt_run_trace *o, int64_t step, int rank, tt_trace *t)
{
	int64_t lost = atomic_load(&t->n) - t->cap;
	tt_mark mark = tt_arena_push(a);
	const char *folder = tt_arena_printf(a, "%s/iteration_%lld", o->folder, (long long)step);
	tt_buf b = { 0 };
	tt_exec_print_trace(e, t, rank, &b);
	tt_status s = tt_mkdirs(folder);
	if (s == TT_OK)
		s = tt_file_write(tt_arena_printf(a, "%s/rank%d_trace.json", folder, rank), b.s, b.n);
	tt_buf_fini(&b);
	if (s == TT_OK && lost > 0)
		tt_log(TT_LOG_WARN, "trace of step %lld: %s; %lld events found no room (profiling.profiler_active, more tokens in a microbatch)", (long long)step, folder, (long long)lost);
	else if (s == TT_OK && !rank)
		tt_log(TT_LOG_INFO, "trace of step %lld: %s", (long long)step, folder);
	tt_arena_pop(a, mark);
	atomic_store(&t->n, 0);
	TT_TRY(s);
	return TT_OK;
}
