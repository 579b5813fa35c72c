/* comm: exchanges between ranks, and what happens when one of them is late, gone, different or in trouble. */
#include "comm/comm.h"
#include "test.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static void nap(double s)
{
	struct timespec t = { (time_t)s, (long)(1e9 * (s - (double)(time_t)s)) };
	nanosleep(&t, NULL);
}

typedef struct job {
	tt_test *t;
	int n, rounds;
	int bad;      /* the rank that misbehaves */
	int how;
	_Atomic int wrong, named;
	const char *part; /* that every rank's error must contain */
	char text[8][512]; /* of each, where a case asks for it */
} job;

static tt_status world_group(tt_comm *c, tt_comm_group **g) { return tt_comm_group_all(c, "world", g); }

/* ---- what is exchanged arrives ------------------------------------------------------------------------------------------- */

enum { LINES = 3 };
static int64_t width(int from, int to) { return (from * 7 + to * 3) % 5; } /* uneven, and none for some */
static uint8_t content(int from, int to, int64_t line, int64_t b, int round) { return (uint8_t)(from * 31 + to * 17 + line * 5 + b + round); }

typedef struct all_to_all { job *j; int me, round; } all_to_all;

static void compare(void *ctx, const tt_block *take, int n)
{
	all_to_all *a = ctx;
	for (int i = 0; i < n; i++)
		for (int64_t l = 0; l < take[i].lines; l++)
			for (int64_t b = 0; b < take[i].bytes; b++)
				if (take[i].p[l * take[i].ld + b] != content(i, a->me, l, b, a->round))
					a->j->wrong++;
}

static tt_status exchange_on(tt_comm_group *g, job *j)
{
	int n = tt_comm_group_size(g), me = tt_comm_group_index(g);
	tt_arena *a = tt_arena_create("test");
	uint8_t *mine = tt_arena_alloc(a, (size_t)(n * LINES * 8));
	tt_block *give = TT_NEWN(a, tt_block, n), *take = TT_NEWN(a, tt_block, n);
	tt_status s = TT_OK;
	for (int r = 0; r < j->rounds && !s; r++) {
		for (int i = 0; i < n; i++) {
			uint8_t *p = mine + i * LINES * 8;
			for (int64_t l = 0; l < LINES; l++)
				for (int64_t b = 0; b < 8; b++)
					p[l * 8 + b] = content(me, i, l, b, r);
			give[i] = (tt_block){ p, 1, LINES, width(me, i), LINES * 8, 8 };
			take[i] = (tt_block){ NULL, 1, LINES, width(i, me), 0, 0 };
		}
		all_to_all x = { j, me, r };
		s = tt_comm_exchange(g, &(tt_exchange){ .kind = "all-to-all", .name = "x", .give = give, .take = take, .use = compare, .ctx = &x });
	}
	tt_comm_count k = tt_comm_group_count(g);
	int64_t bytes = 0;
	for (int i = 0; i < n; i++)
		bytes += i == me ? 0 : LINES * width(i, me);
	if (!s && (k.calls != j->rounds || k.bytes != bytes * j->rounds))
		j->wrong++;
	tt_arena_destroy(a);
	return s;
}

static tt_status exchange_rank(tt_comm *c, void *ctx)
{
	tt_comm_group *g;
	TT_TRY(world_group(c, &g));
	return exchange_on(g, ctx);
}

static void exchange(tt_test *t)
{
	static const int sizes[] = { 1, 2, 3, 8, 64 };
	for (int i = 0; i < TT_COUNT(sizes); i++) {
		job j = { .t = t, .n = sizes[i], .rounds = sizes[i] == 64 ? 5 : 200 };
		TT_CHECK_OK(t, tt_comm_threads(sizes[i], &(tt_comm_options){ .init_timeout_s = 60 }, exchange_rank, &j));
		TT_CHECK_INT(t, j.wrong, 0);
	}
	job j = { .t = t, .n = 2, .rounds = 200 };
	TT_CHECK_OK(t, tt_comm_threads(2, &(tt_comm_options){ .init_timeout_s = 60, .spin_us = 20 }, exchange_rank, &j));
	TT_CHECK_INT(t, j.wrong, 0);
}

static tt_status small_rank(tt_comm *c, void *ctx)
{
	job *j = ctx;
	tt_comm_group *g;
	TT_TRY(world_group(c, &g));
	int n = tt_comm_size(c), me = tt_comm_rank(c);
	int64_t mine[2] = { me, me * me }, all[2 * 128];
	TT_TRY(tt_comm_all_gather(g, "pairs", mine, sizeof mine, all));
	for (int i = 0; i < n; i++)
		if (all[2 * i] != i || all[2 * i + 1] != i * i)
			j->wrong++;
	for (int root = 0; root < n; root++) {
		int64_t v = me == root ? 1000 + root : -1;
		TT_TRY(tt_comm_broadcast(g, "one", root, &v, sizeof v));
		if (v != 1000 + root)
			j->wrong++;
	}
	return tt_comm_barrier(g, "end");
}

static void small(tt_test *t)
{
	for (int n = 1; n <= 80; n += n < 4 ? 1 : 38) {
		job j = { .t = t, .n = n };
		TT_CHECK_OK(t, tt_comm_threads(n, &(tt_comm_options){ .init_timeout_s = 60 }, small_rank, &j));
		TT_CHECK_INT(t, j.wrong, 0);
	}
}

/* ---- the mesh ------------------------------------------------------------------------------------------------------------------ */

static void mesh(tt_test *t)
{
	const int size[] = { 2, 3, 1, 4 };
	int n = 24;
	for (uint32_t axes = 0; axes < 16; axes++)
		for (int rank = 0; rank < n; rank++) {
			int got[24], k = tt_mesh_ranks(4, size, axes, rank, got), want = 0;
			for (int r = 0; r < n; r++) {
				bool same = true;
				for (int x = 0; x < 4; x++)
					if (!(axes & 1u << x) && tt_mesh_coord(4, size, x, r) != tt_mesh_coord(4, size, x, rank))
						same = false;
				if (!same)
					continue;
				TT_CHECK_MSG(t, want < k && got[want] == r, "axes %x rank %d: entry %d is not rank %d", axes, rank, want, r);
				want++;
			}
			TT_CHECK_INT(t, k, want);
		}
	TT_CHECK_INT(t, tt_mesh_coord(4, size, 0, 12), 1);
	TT_CHECK_INT(t, tt_mesh_coord(4, size, 3, 7), 3);
}

/* Two axes of a mesh of 2 x 3: each rank talks along both in turn, so groups overlap. */
static tt_status axes_rank(tt_comm *c, void *ctx)
{
	job *j = ctx;
	const int size[] = { 2, 3 };
	int me = tt_comm_rank(c), ranks[6];
	tt_comm_group *along[3];
	for (uint32_t axes = 1; axes < 4; axes++) {
		int n = tt_mesh_ranks(2, size, axes, me, ranks);
		TT_TRY(tt_comm_group_open(c, axes == 1 ? "a" : axes == 2 ? "b" : "a*b", n, ranks, &along[axes - 1]));
	}
	tt_comm_group *again;
	TT_TRY(tt_comm_group_open(c, "a*b", 6, ranks, &again));
	j->wrong += again != along[2];
	TT_TRY(tt_comm_group_all(c, "a*b", &again)); /* which are all, in order */
	j->wrong += again != along[2];
	for (int r = 0; r < 100; r++)
		for (int a = 0; a < 3; a++) {
			int all[6];
			TT_TRY(tt_comm_all_gather(along[a], "who", &me, sizeof me, all));
			for (int i = 0; i < tt_comm_group_size(along[a]); i++)
				if (all[i] != tt_comm_group_rank(along[a], i))
					j->wrong++;
		}
	return TT_OK;
}

static void groups(tt_test *t)
{
	job j = { .t = t, .n = 6 };
	TT_CHECK_OK(t, tt_comm_threads(6, &(tt_comm_options){ .init_timeout_s = 60 }, axes_rank, &j));
	TT_CHECK_INT(t, j.wrong, 0);
}

/* ---- trouble --------------------------------------------------------------------------------------------------------------------- */

enum { LATE, ENDS, FAILS, OTHER_NAME, OTHER_KIND, OTHER_SHAPE, FAILS_LATER };

static tt_status trouble_steps(tt_comm *c, job *j)
{
	tt_comm_group *g;
	TT_TRY(world_group(c, &g));
	bool bad = tt_comm_rank(c) == j->bad;
	int64_t v = 1, all[128 * 2];
	TT_TRY(tt_comm_all_gather(g, "first", &v, sizeof v, all));
	tt_comm_set_timeout(c, j->how == LATE ? 0.2 : 30);
	for (int i = 0; bad && j->how == LATE && !j->named && i < 3000; i++) /* until another has said so, or half a minute */
		nap(0.01);
	if (bad && j->how == ENDS)
		return TT_OK;
	if (bad && j->how == FAILS)
		TT_FAIL(TT_ERR_NUMERIC, "loss is nan");
	if (bad && j->how == OTHER_KIND)
		return tt_comm_barrier(g, "second");
	TT_TRY(tt_comm_all_gather(g, bad && j->how == OTHER_NAME ? "another" : "second", all, bad && j->how == OTHER_SHAPE ? 16 : 8, all + 8));
	if (bad)
		TT_FAIL(TT_ERR_IO, "no space left"); /* FAILS_LATER: the others sleep in the third */
	return tt_comm_barrier(g, "third");
}

static tt_status trouble_rank(tt_comm *c, void *ctx)
{
	job *j = ctx;
	tt_status s = trouble_steps(c, j);
	if (s)
		snprintf(j->text[tt_comm_rank(c)], sizeof j->text[0], "%s", tt_error_text());
	if (s && strstr(tt_error_text(), j->part))
		j->named++;
	return s;
}

static void trouble(tt_test *t)
{
	static const struct { int how; tt_status code; const char *part; int fewer; } cases[] = {
		{ LATE, TT_ERR_COMM, "rank 2 has not come, its last exchange was all-gather #1 of world \"first\"", 0 },
		{ ENDS, TT_ERR_COMM, "rank 2 has ended, its last exchange was all-gather #1 of world \"first\"", 1 },
		{ FAILS, TT_ERR_NUMERIC, "loss is nan", 0 },
		{ OTHER_NAME, TT_ERR_COMM, "their programs differ", 0 },
		{ OTHER_KIND, TT_ERR_COMM, "their programs differ", 0 },
		{ OTHER_SHAPE, TT_ERR_COMM, "it expects", 0 },
		{ FAILS_LATER, TT_ERR_IO, "no space left", 0 },
	};
	for (int i = 0; i < TT_COUNT(cases); i++)
		for (int n = 3; n <= 5; n += 2) {
			job j = { .t = t, .n = n, .bad = 2, .how = cases[i].how, .part = cases[i].part };
			tt_comm_options o = { .init_timeout_s = 30 };
			TT_CHECK_FAILS(t, tt_comm_threads(n, &o, trouble_rank, &j), cases[i].code, cases[i].part);
			for (int r = 1; r < n; r++) /* one text for all */
				TT_CHECK_MSG(t, !strcmp(j.text[r], j.text[0]) || (r == j.bad && cases[i].fewer), "trouble %d with %d ranks: rank 0 says \"%s\", rank %d \"%s\"", i, n, j.text[0], r, j.text[r]);
			TT_CHECK_MSG(t, j.named == n - cases[i].fewer, "trouble %d with %d ranks: %d of them know: %s", i, n, (int)j.named, tt_error_text());
		}
}

/* A rank is told late while others read from it: the world ends only when nobody reads. */
static void slow_use(void *ctx, const tt_block *take, int n)
{
	job *j = ctx;
	nap(0.05);
	int64_t sum = 0;
	for (int i = 0; i < n; i++)
		for (int64_t b = 0; b < take[i].bytes; b++)
			sum += take[i].p[b];
	if (sum != 4096ll * n)
		j->wrong++;
}

static tt_status reading_rank(tt_comm *c, void *ctx)
{
	job *j = ctx;
	tt_comm_group *g;
	TT_TRY(world_group(c, &g));
	if (tt_comm_rank(c) == j->bad) {
		/* in no exchange of the others' group, it fails while they read */
		nap(0.02);
		TT_FAIL(TT_ERR_IO, "gone");
	}
	int two[2] = { 0, 1 };
	tt_comm_group *pair;
	TT_TRY(tt_comm_group_open(c, "pair", 2, two, &pair));
	uint8_t *p = malloc(4096);
	memset(p, 1, 4096);
	tt_block give[2] = { tt_block_flat(p, 4096), tt_block_flat(p, 4096) }, take[2] = { give[0], give[1] };
	tt_status s = tt_comm_exchange(pair, &(tt_exchange){ .kind = "all-gather", .name = "x", .give = give, .take = take, .use = slow_use, .ctx = j });
	memset(p, 2, 4096);
	free(p);
	TT_TRY(s);
	return tt_comm_barrier(g, "end");
}

static void reading(tt_test *t)
{
	job j = { .t = t, .n = 3, .bad = 2 };
	TT_CHECK_FAILS(t, tt_comm_threads(3, &(tt_comm_options){ .init_timeout_s = 30 }, reading_rank, &j), TT_ERR_IO, "rank 2: gone");
	TT_CHECK_INT(t, j.wrong, 0);
}

/* ---- another thread of the rank ------------------------------------------------------------------------------------------------------ */

typedef struct other { tt_comm_group *g; job *j; double late; tt_status s; } other;

static void *other_main(void *arg)
{
	other *o = arg;
	nap(o->late);
	o->s = exchange_on(o->g, o->j);
	return NULL;
}

enum { BESIDE, BESIDE_LATE, BESIDE_ENDS };

static tt_status beside_rank(tt_comm *c, void *ctx)
{
	job *j = ctx;
	tt_comm_group *g;
	int ranks[8], me = tt_comm_rank(c);
	for (int i = 0; i < j->n; i++)
		ranks[i] = i;
	other o = { .j = j, .late = j->how == BESIDE_LATE && me == 1 ? 0.5 : 0 };
	TT_TRY(world_group(c, &g));
	TT_TRY(tt_comm_group_open_beside(c, "beside", j->n, ranks, &o.g));
	if (j->how == BESIDE_ENDS && me == 1)
		TT_FAIL(TT_ERR_NUMERIC, "it ends");
	pthread_t thread;
	if (pthread_create(&thread, NULL, other_main, &o))
		TT_FAIL(TT_ERR_MEMORY, "no thread");
	tt_status s = j->how == BESIDE ? exchange_on(g, j) : TT_OK;
	pthread_join(thread, NULL);
	if ((o.s != TT_OK) != (j->how == BESIDE_ENDS))
		j->wrong++;
	return s;
}

/* Two threads of each rank exchange at once, each in its order; no timeout ends the other's wait, the end of a rank does. */
static void beside(tt_test *t)
{
	job j = { .t = t, .n = 4, .rounds = 300 };
	TT_CHECK_OK(t, tt_comm_threads(4, &(tt_comm_options){ .init_timeout_s = 60 }, beside_rank, &j));
	j.how = BESIDE_LATE;
	TT_CHECK_OK(t, tt_comm_threads(4, &(tt_comm_options){ .init_timeout_s = 0.1 }, beside_rank, &j));
	j.how = BESIDE_ENDS;
	TT_CHECK_FAILS(t, tt_comm_threads(4, &(tt_comm_options){ .init_timeout_s = 60 }, beside_rank, &j), TT_ERR_NUMERIC, "rank 1: it ends");
	TT_CHECK_INT(t, j.wrong, 0);
}

/* ---- delay and the recorder ---------------------------------------------------------------------------------------------------------- */

static tt_status delay_rank(tt_comm *c, void *ctx)
{
	job *j = ctx;
	tt_comm_group *g;
	TT_TRY(world_group(c, &g));
	for (int i = 0; i < 70; i++)
		TT_TRY(tt_comm_barrier(g, i < 69 ? "before" : "last"));
	if (tt_comm_group_count(g).wait_s < 70 * 0.001)
		j->wrong++;
	if (tt_comm_rank(c) == 0) {
		tt_buf b = { 0 };
		tt_comm_record_print(c, &b);
		int lines = 0;
		for (size_t i = 0; i < b.n; i++)
			lines += b.s[i] == '\n';
		if (lines != 128 || !strstr(b.s, "last") || !strstr(b.s, "#70"))
			j->wrong++;
		tt_buf_fini(&b);
	}
	return tt_comm_barrier(g, "end");
}

static void recorder(tt_test *t)
{
	job j = { .t = t, .n = 2 };
	TT_CHECK_OK(t, tt_comm_threads(2, &(tt_comm_options){ .init_timeout_s = 30, .delay_us = 1000 }, delay_rank, &j));
	TT_CHECK_INT(t, j.wrong, 0);
}

const tt_case tt_suite_comm[] = {
	{ "exchange", exchange, TT_TIER_QUICK },
	{ "small", small, TT_TIER_QUICK },
	{ "mesh", mesh, TT_TIER_QUICK },
	{ "groups", groups, TT_TIER_QUICK },
	{ "trouble", trouble, TT_TIER_QUICK },
	{ "reading", reading, TT_TIER_QUICK },
	{ "beside", beside, TT_TIER_QUICK },
	{ "recorder", recorder, TT_TIER_QUICK },
	{ 0 },
};
