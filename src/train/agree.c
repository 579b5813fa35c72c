/* agree.c: before anything is exchanged that depends on it: have all ranks the same config, model and kernels? Processes read their own files and run
 * on their own machines. */
#include <stdio.h>

#include "train/internal.h"
#include "train/team.h"

/* ---- the config ----------------------------------------------------------------------------------------------------------------------------- */

/* What a rank may have for itself: it changes no bit, or is looked at with the programs. */
static bool own_key(const char *section, const char *line)
{
	static const struct { const char *section, *key; } own[] = { { "hardware", "threads" }, { "debug", "isa" }, { "debug", "kernels" } };
	size_t n = strcspn(line, " =");
	for (int i = 0; i < TT_COUNT(own); i++)
		if (!strcmp(section, own[i].section) && strlen(own[i].key) == n && !strncmp(line, own[i].key, n))
			return true;
	return false;
}

typedef struct text { const char *at; char section[64]; } text;

/* The next line that counts, cut to `cap`; false: there is none. */
static bool line_next(text *t, char *line, size_t cap)
{
	while (*t->at) {
		size_t n = strcspn(t->at, "\n"), k = TT_MIN(n, cap - 1);
		memcpy(line, t->at, k);
		line[k] = 0;
		t->at += n + (t->at[n] == '\n');
		if (line[0] == '[' && line[1] != '[') {
			size_t m = strcspn(line + 1, "]");
			snprintf(t->section, sizeof t->section, "%.*s", (int)m, line + 1);
			continue;
		}
		if (line[0] && line[0] != '#' && !own_key(t->section, line))
			return true;
	}
	return false;
}

enum { LINE = 512 };

static uint64_t text_hash(const char *s)
{
	text t = { .at = s };
	char line[LINE];
	uint64_t h = 0;
	while (line_next(&t, line, sizeof line))
		h = tt_hash64(line, strlen(line), tt_hash64(t.section, strlen(t.section), h));
	return h;
}

static tt_status differs(tt_comm *c, const char *theirs, const char *mine)
{
	text a = { .at = theirs }, b = { .at = mine };
	char x[LINE] = "", y[LINE] = "";
	for (;;) {
		bool in_a = line_next(&a, x, sizeof x), in_b = line_next(&b, y, sizeof y);
		if (!in_a || !in_b || strcmp(x, y) || strcmp(a.section, b.section)) {
			TT_FAIL(TT_ERR_USAGE, "rank %d has another config than rank 0: %s.%s, and rank 0 has %s.%s (all ranks need the same file and flags)", tt_comm_rank(c),
				b.section, in_b ? y : "(nothing)", a.section, in_a ? x : "(nothing)");
		}
	}
}

tt_status tt_team_agree_config(tt_comm *c, const char *config)
{
	if (tt_comm_sees_memory(c) || tt_comm_size(c) == 1)
		return TT_OK;
	tt_arena *a = tt_arena_create("agree");
	int n = tt_comm_size(c);
	struct { uint64_t hash; int64_t bytes; } mine = { config ? text_hash(config) : 0, config ? (int64_t)strlen(config) : 0 }, *all = tt_arena_alloc(a, sizeof *all * (size_t)n);
	tt_comm_group *g;
	tt_status s = tt_comm_group_all(c, "agreement", &g);
	if (!s)
		s = tt_comm_all_gather(g, "config", &mine, sizeof mine, all);
	bool same = true;
	for (int i = 0; i < n && !s; i++)
		same &= all[i].hash == all[0].hash;
	if (!s && !same) {
		char *theirs = tt_arena_alloc(a, (size_t)all[0].bytes + 1);
		if (tt_comm_rank(c) == 0 && config)
			memcpy(theirs, config, (size_t)mine.bytes);
		s = tt_comm_broadcast(g, "config of rank 0", 0, theirs, all[0].bytes);
		if (!s && mine.hash != all[0].hash)
			s = differs(c, theirs, config ? config : "");
		if (!s)
			s = tt_comm_barrier(g, "a config that differs"); /* which names it */
	}
	tt_arena_destroy(a);
	return s;
}

/* ---- programs ---------------------------------------------------------------------------------------------------------------------------------- */

enum { REASON = 2048 };
typedef struct facts { uint64_t graph, program; int32_t isa, numerics, f64, ref, made; } facts;

static const char *set_name(const facts *f) { return f->ref ? "reference" : "fast"; }

/* A rank that could not make its program says so to all, so that none waits for it and the world stays whole. */
static tt_status not_made(tt_comm_group *g, int rank, const facts *all, int n)
{
	int first = 0;
	char why[REASON] = "";
	while (first < n && !all[first].made)
		first++;
	if (first == n)
		return TT_OK;
	if (rank == first)
		snprintf(why, sizeof why, "%s", tt_error_text());
	TT_TRY(tt_comm_broadcast(g, "why there is no program", first, why, sizeof why));
	if (!all[rank].made)
		TT_FAIL((tt_status)all[first].made, "rank %d: %s", first, why);
	return (tt_status)all[rank].made;
}

tt_status tt_team_agree_programs(tt_comm *c, tt_status made, uint64_t graph, const tt_exec_options *e)
{
	if (tt_comm_sees_memory(c) || tt_comm_size(c) == 1)
		return made;
	tt_arena *a = tt_arena_create("agree");
	int n = tt_comm_size(c);
	facts mine = { graph, tt_comm_program(c, tt_comm_rank(c)), (int32_t)e->isa, (int32_t)e->numerics, e->f64, e->kernels_ref, (int32_t)made }, *all = TT_NEWN(a, facts, n);
	tt_comm_group *g;
	tt_status s = tt_comm_group_all(c, "agreement", &g);
	if (!s)
		s = tt_comm_all_gather(g, "programs", &mine, sizeof mine, all);
	if (!s)
		s = not_made(g, tt_comm_rank(c), all, n);
	for (int i = 1; i < n && !s; i++) {
		const facts *f = &all[i], *z = &all[0];
		if (f->graph != z->graph)
			s = tt_error_set(TT_ERR_USAGE, __FILE__, __LINE__, "rank %d has another model graph than rank 0: %016llx, %016llx (titan train --dump=graph prints it)", i,
					 (unsigned long long)f->graph, (unsigned long long)z->graph);
		else if (f->numerics != z->numerics || f->f64 != z->f64)
			s = tt_error_set(TT_ERR_USAGE, __FILE__, __LINE__, "rank %d has other numerics than rank 0 (debug.numerics, training.dtype)", i);
		else if (e->numerics == TT_FAST && (f->isa != z->isa || f->ref != z->ref))
			s = tt_error_set(TT_ERR_USAGE, __FILE__, __LINE__, "rank %d has %s kernels for %s, rank 0 %s ones for %s: their bits may differ (--isa=%s on all "
					 "ranks, or debug.numerics = \"exact\", which allows it)", i, set_name(f), tt_isa_name((tt_isa)f->isa), set_name(z), tt_isa_name((tt_isa)z->isa),
					 tt_isa_name((tt_isa)TT_MIN(f->isa, z->isa)));
		else if (e->numerics == TT_FAST && f->program != z->program)
			s = tt_error_set(TT_ERR_USAGE, __FILE__, __LINE__, "rank %d runs another build of titan than rank 0 (%016llx, %016llx): its kernels may differ in their bits (the "
					 "same file on all ranks, or debug.numerics = \"exact\", which allows it)", i, (unsigned long long)f->program,
					 (unsigned long long)z->program);
	}
	tt_arena_destroy(a);
	return s;
}
