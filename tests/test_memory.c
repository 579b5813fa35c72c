#define _GNU_SOURCE
/* memory: pages that are not touched, and pages that are huge. */
#include "exec/exec.h"
#include "ops/ops.h"
#include "test.h"

#include <math.h>
#include <stdio.h>
#include <sys/mman.h>

/* ---- fresh memory --------------------------------------------------------------------------------------------------------- */

/* Zeros are not stored in memory that nothing has written, and are in any other. */
static tt_v state(tt_graph *g, const char *name, int64_t n)
{
	return tt_state_new(g, name, TT_REGION_PARAM, TT_F32, 1, (tt_dim[]){tt_dim_of(TT_D, n, 1)}, false);
}

static tt_status run(tt_exec *e, tt_segment seg) { return tt_exec_run(e, seg, &(tt_cell){.first = true, .step = 1}); }

static void fresh(tt_test *t)
{
	enum { MIBS = 24, N = MIBS << 18 };
	for (int k = 0; k < 4; k++) {
		tt_graph *g = tt_graph_new(t->arena, &(tt_mesh){0}, false), *update = tt_graph_new(t->arena, &(tt_mesh){0}, false);
		g->seg = TT_SEG_INIT;
		tt_v big = state(g, "big", N), one = state(g, "one", 4), minus = state(g, "minus", 4);
		tt_state_set(g, big, tt_fill_const(g, big, 0));
		tt_state_set(g, one, tt_fill_const(g, one, 1));
		tt_state_set(g, minus, tt_fill_const(g, minus, -0.0));
		update->seg = TT_SEG_OPT;
		big = state(update, "big", N);
		tt_state_set(update, big, tt_fill_const(update, big, 3));
		tt_exec *e = NULL;
		if (!TT_CHECK_OK(t, tt_exec_create(&(tt_exec_options){0}, &e)) || !TT_CHECK_OK(t, tt_exec_add_graph(e, g)) ||
			!TT_CHECK_OK(t, tt_exec_add_graph(e, update)) || !TT_CHECK_OK(t, tt_exec_plan(e)) || !TT_CHECK_OK(t, tt_exec_reserve(e)))
			return;
		int64_t before = tt_memory_resident();
		float x = 5;
		if (k == 1) /* anywhere */
			TT_CHECK_OK(t, tt_exec_write(e, "one", 0, &x, 1));
		if (k == 2)
			TT_CHECK_OK(t, tt_exec_write(e, "big", N / 2, &x, 1));
		TT_CHECK_OK(t, run(e, TT_SEG_INIT));
		int64_t grown = tt_memory_resident() - before;
		TT_CHECK_MSG(t, (grown > (MIBS - 8) * TT_MIB) == (k == 1 || k == 2), "case %d touched %.1f MiB", k, (double)grown / (double)TT_MIB);
		if (k == 3) { /* a program has written */
			TT_CHECK_OK(t, run(e, TT_SEG_OPT));
			TT_CHECK_OK(t, run(e, TT_SEG_INIT));
		}
		float y[4];
		TT_CHECK_OK(t, tt_exec_read(e, "big", N / 2, y, 4));
		TT_CHECK_MSG(t, y[0] == 0 && y[1] == 0, "case %d: %g is no zero", k, (double)y[0]);
		TT_CHECK_OK(t, tt_exec_read(e, "one", 0, y, 4));
		TT_CHECK(t, y[0] == 1 && y[3] == 1);
		TT_CHECK_OK(t, tt_exec_read(e, "minus", 0, y, 4));
		TT_CHECK(t, y[0] == 0 && signbit(y[0]) && signbit(y[3]));
		tt_exec_destroy(e);
	}
}

/* ---- huge pages ---------------------------------------------------------------------------------------------------------- */

/* Bytes of the mapping that holds `p` which lie in huge pages; -1: not listed. */
static int64_t huge_bytes(const void *p)
{
	FILE *f = fopen("/proc/self/smaps", "re");
	char line[512];
	bool inside = false;
	long long huge = -1;
	while (f && fgets(line, sizeof line, f)) {
		unsigned long long from, to, kib;
		if (sscanf(line, "%llx-%llx ", &from, &to) == 2)
			inside = (uintptr_t)p >= from && (uintptr_t)p < to;
		else if (inside && sscanf(line, "AnonHugePages: %llu kB", &kib) == 1)
			huge = (long long)kib * 1024;
	}
	if (f)
		fclose(f);
	return huge;
}

/* Where the system gives huge pages on advice, a region that is touched lies in them. */
static void huge_pages(tt_test *t)
{
	enum { HUGE = 2 << 20, SIZE = 32 << 20 };
	uint8_t *p = mmap(NULL, 2 * HUGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	TT_ASSERT(p != MAP_FAILED);
	bool advised = madvise(p, 2 * HUGE, MADV_HUGEPAGE) == 0;
	for (size_t i = 0; i < 2 * HUGE; i += 4096)
		p[i] = 1;
	int64_t given = huge_bytes(p);
	munmap(p, 2 * HUGE);
	if (!advised || given <= 0)
		TT_SKIP(t, "the system gives no huge pages");
	tt_region r;
	if (!TT_CHECK_OK(t, tt_region_open("test", SIZE + 12345, &r)))
		return;
	TT_CHECK_INT(t, (int64_t)((uintptr_t)r.p % HUGE), 0);
	for (size_t i = 0; i < r.n; i += 4096)
		r.p[i] = 1;
	int64_t huge = huge_bytes(r.p);
	tt_region_close(&r);
	TT_CHECK_MSG(t, huge >= SIZE / 2, "%lld of %d bytes lie in huge pages", (long long)huge, SIZE);
}

const tt_case tt_suite_memory[] = {
	{"fresh", fresh, TT_TIER_QUICK},
	{"huge_pages", huge_pages, TT_TIER_QUICK},
	{0},
};
