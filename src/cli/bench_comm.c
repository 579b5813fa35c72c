/* bench_comm.c: `titan bench comm`: all-gathers, all-to-alls and reduce-scatters of 1, 16 and 64 MiB, beside the least that they could cost: a copy, and a
 * loop of sums, by each rank at the same time, in the same memory. Under mpiexec also beside what the MPI itself takes to make the same of the same.
 *
 * Contestants run in turn, the best round of each counts; a round is from the moment a rank knows that all are there until it has its result, and as long
 * as that of the slowest rank. What an exchange makes must be what MPI makes.
 *
 * What a round costs depends on where the one before it has left the memory: the same call of MPICH made twice in a row took 6.9 times as long the first time
 * at 1 MiB, after a call by which the other rank had read what it writes, and 1.1 to 1.5 times at 16 MiB. So each begins with the same memory in the
 * caches, and who follows whom is another one in each round. */
#include <stdlib.h>

#include "base/machine.h"
#include "cli/bench.h"
#include "comm/comm.h"

typedef enum what { COPY, GATHER, RAW_GATHER, TO_ALL, RAW_TO_ALL, SUM, SCATTER, RAW_SCATTER, CONTESTANTS } what;
static const struct { const char *name; what floor, of; /* ours: what MPI takes is told beside it */ } contestants[] = {
	[COPY] = { "copy", COPY, COPY }, [GATHER] = { "all_gather", COPY, RAW_GATHER }, [RAW_GATHER] = { "mpi_allgather", COPY, RAW_GATHER },
	[TO_ALL] = { "all_to_all", COPY, RAW_TO_ALL }, [RAW_TO_ALL] = { "mpi_alltoall", COPY, RAW_TO_ALL }, [SUM] = { "sum", SUM, SUM },
	[SCATTER] = { "reduce_scatter", SUM, RAW_SCATTER }, [RAW_SCATTER] = { "mpi_reduce_scatter", SUM, RAW_SCATTER },
};
/* MiB that a rank has once all is gathered, or gives to all; and rounds. */
static const struct { int mib, rounds; } sizes[] = { { 1, 100 }, { 16, 40 }, { 64, 16 } };
enum { MOST = 64 << 20 };
_Static_assert(CONTESTANTS == 8, "each odd stride visits all of them");

static bool is_raw(int w) { return w == RAW_GATHER || w == RAW_TO_ALL || w == RAW_SCATTER; }

typedef struct bench {
	tt_comm_group *g;
	int n, me;
	int64_t part;           /* floats of a rank's part of the whole */
	float *mine, *whole, *terms, *sum;
	float *scratch;
	tt_block *give, *take;
	double *each;           /* [n] seconds of a round */
	double best[CONTESTANTS];
} bench;

static void add(float *restrict out, const float *restrict a, const float *restrict b, int64_t n)
{
	for (int64_t i = 0; i < n; i++)
		out[i] = a[i] + b[i];
}

/* Ascending, as the reductions of a step. */
static void use_sum(void *ctx, const tt_block *take, int n)
{
	bench *b = ctx;
	enum { SPAN = 2048 };
	for (int64_t at = 0; at < b->part; at += SPAN) {
		int64_t k = TT_MIN((int64_t)SPAN, b->part - at);
		const float *x = (const float *)(const void *)take[0].p + at;
		for (int i = 1; i < n; i++, x = b->sum + at)
			add(b->sum + at, x, (const float *)(const void *)take[i].p + at, k);
	}
}

static void use_copy(void *ctx, const tt_block *take, int n)
{
	bench *b = ctx;
	for (int i = 0; i < n; i++)
		if (take[i].p != (const uint8_t *)(b->whole + i * b->part))
			memcpy(b->whole + i * b->part, take[i].p, (size_t)take[i].bytes);
}

static tt_status exchange(bench *b, what w)
{
	int64_t bytes = b->part * (int64_t)sizeof(float);
	for (int i = 0; i < b->n; i++) {
		b->give[i] = tt_block_flat(w == GATHER ? b->mine : b->terms + i * b->part, bytes);
		b->take[i] = tt_block_flat(b->whole + i * b->part, bytes);
	}
	static const char *const kinds[] = { [GATHER] = "all-gather", [TO_ALL] = "all-to-all", [SCATTER] = "reduce-scatter" };
	tt_exchange x = { .kind = kinds[w], .name = "bench", .give = b->give, .take = b->take, .lands = w != SCATTER, .use = w == SCATTER ? use_sum : use_copy,
			  .scratch = b->scratch, .ctx = b };
	TT_TRY(tt_comm_exchange(b->g, &x));
	return TT_OK;
}

static tt_status run_one(tt_comm *c, bench *b, what w)
{
	switch (w) {
	case COPY:
		for (int i = 0; i < b->n; i++)
			memcpy(b->whole + i * b->part, i == b->me ? b->mine : b->terms + i * b->part, (size_t)b->part * sizeof(float));
		return TT_OK;
	case SUM:
		for (int i = 1; i < b->n; i++)
			add(b->sum, i == 1 ? b->terms : b->sum, b->terms + i * b->part, b->part);
		return TT_OK;
	case GATHER:
	case TO_ALL:
	case SCATTER:
		return exchange(b, w);
	case RAW_GATHER:
		return tt_comm_raw(c, TT_RAW_ALL_GATHER, b->mine, b->whole, (int)b->part);
	case RAW_TO_ALL:
		return tt_comm_raw(c, TT_RAW_ALL_TO_ALL, b->terms, b->whole, (int)b->part);
	case RAW_SCATTER:
		return tt_comm_raw(c, TT_RAW_REDUCE_SCATTER, b->terms, b->sum, (int)b->part);
	case CONTESTANTS:
		break;
	}
	return TT_OK;
}

static uint64_t result(const bench *b, int w)
{
	size_t n = (size_t)b->part * sizeof(float);
	return w >= SUM ? tt_hash64(b->sum, n, 1) : tt_hash64(b->whole, n * (size_t)b->n, 1);
}

/* What contestants write was written last by this rank, then what they read was read by it. */
static void settle(bench *b, int r)
{
	size_t part = (size_t)b->part, all = part * (size_t)b->n;
	memset(b->sum, r, part * sizeof(float));
	memset(b->whole, r, all * sizeof(float));
	volatile float seen = 0;
	for (size_t i = 0; i < all; i += 16)
		seen = b->terms[i];
	for (size_t i = 0; i < part; i += 16)
		seen = b->mine[i];
	(void)seen;
}

static tt_status rounds(tt_comm *c, bench *b, int most)
{
	uint64_t made = 0;
	memset(b->best, 0, sizeof b->best);
	for (int r = 0; r < most + 1; r++)
		for (int k = 0; k < CONTESTANTS; k++) {
			int w = (k * (2 * r + 1) + r / 4) % CONTESTANTS;
			if (tt_comm_sees_memory(c) && is_raw(w))
				continue;
			settle(b, r);
			TT_TRY(tt_comm_barrier(b->g, contestants[w].name));
			double t0 = tt_now();
			TT_TRY(run_one(c, b, (what)w));
			double t = tt_now() - t0;
			if (!r) { /* the first touches memory */
				if (is_raw(w) && made != result(b, w))
					TT_FAIL(TT_ERR_NUMERIC, "%s of %lld floats makes other bytes than the exchange", contestants[w].name, (long long)b->part);
				made = result(b, w);
				continue;
			}
			TT_TRY(tt_comm_all_gather(b->g, "seconds", &t, sizeof t, b->each));
			for (int i = 0; i < b->n; i++)
				t = TT_MAX(t, b->each[i]);
			if (r == 1 || t < b->best[w])
				b->best[w] = t;
		}
	return TT_OK;
}

static json_t *report(const bench *b, int mib)
{
	json_t *j = json_pack("{s:i}", "mib", mib);
	for (int w = 0; w < CONTESTANTS; w++)
		if (b->best[w] > 0)
			json_object_set_new(j, contestants[w].name, json_real(b->best[w]));
	return j;
}

static tt_status rank_main(tt_comm *c, void *ctx)
{
	tt_arena *a = tt_arena_create("bench.comm");
	int n = tt_comm_size(c);
	bench b = { .n = n, .me = tt_comm_rank(c), .give = TT_NEWN(a, tt_block, n), .take = TT_NEWN(a, tt_block, n), .each = TT_NEWN(a, double, n) };
	tt_region mem = { 0 };
	size_t part = (size_t)tt_round_up(MOST / (int64_t)sizeof(float) / n, 1024), all = (3 * (size_t)n + 2) * part;
	tt_status s = tt_region_open("bench.comm", all * sizeof(float), &mem);
	json_t *list = NULL;
	if (!s) {
		b.mine = (float *)(void *)mem.p;
		b.sum = b.mine + part;
		b.whole = b.sum + part;
		b.terms = b.whole + part * (size_t)n;
		b.scratch = b.terms + part * (size_t)n;
		for (size_t i = 0; i < all; i++)
			b.mine[i] = (float)(i * (size_t)(b.me + 3) % 7);
		s = tt_comm_group_all(c, "bench", &b.g);
	}
	if (!s && b.me == 0)
		list = json_array();
	for (int i = 0; i < TT_COUNT(sizes) && !s; i++) {
		b.part = ((int64_t)sizes[i].mib << 20) / (int64_t)sizeof(float) / n;
		s = rounds(c, &b, sizes[i].rounds);
		if (!s && list)
			json_array_append_new(list, report(&b, sizes[i].mib));
	}
	if (!s && list)
		*(json_t **)ctx = json_pack("{s:s, s:i, s:i, s:O}", "backend", tt_comm_backend_name(c), "ranks", n, "cores", tt_machine_threads(), "sizes", list);
	json_decref(list);
	tt_region_close(&mem);
	tt_arena_destroy(a);
	return s;
}

tt_status tt_bench_comm(tt_arena *a, const tt_bench_options *o, json_t **out)
{
	(void)a;
	tt_comm_launch l;
	json_t *j = NULL;
	TT_TRY(tt_comm_launched(&l));
	int ranks = l.size > 1 ? l.size : o->ranks ? o->ranks : 2;
	if (l.size > 1 && o->ranks && o->ranks != l.size)
		TT_FAIL(TT_ERR_USAGE, "--ranks=%d, and %s started %d processes", o->ranks, l.by, l.size);
	tt_comm_options c = { .init_timeout_s = 60, .spin_us = l.size > 1 || ranks <= tt_machine_threads() ? 20 : 0 };
	TT_TRY(l.size > 1 ? tt_comm_mpi(&c, rank_main, &j) : tt_comm_threads(ranks, &c, rank_main, &j));
	*out = j;
	return TT_OK;
}

void tt_bench_md_comm(const json_t *j, tt_buf *b)
{
	if (!j)
		return;
	tt_buf_printf(b, "%lld ranks (%s) on %lld cores: milliseconds, how many times the copy's or the sum's, and how many times the MPI's own\n\n"
			 "| MiB | what | ms | GiB/s | of the floor | of MPI's |\n|---:|---|---:|---:|---:|---:|\n",
		      (long long)json_integer_value(json_object_get(j, "ranks")), json_string_value(json_object_get(j, "backend")),
		      (long long)json_integer_value(json_object_get(j, "cores")));
	size_t at;
	const json_t *of;
	json_array_foreach(json_object_get(j, "sizes"), at, of) {
		long long mib = (long long)json_integer_value(json_object_get(of, "mib"));
		double s[CONTESTANTS];
		for (int w = 0; w < CONTESTANTS; w++)
			s[w] = json_real_value(json_object_get(of, contestants[w].name));
		for (int w = 0; w < CONTESTANTS; w++) {
			if (!(s[w] > 0))
				continue;
			tt_buf_printf(b, "| %lld | %s | %.3f | %.1f | %.2f | ", mib, contestants[w].name, 1e3 * s[w], (double)mib / 1024 / s[w], s[w] / s[contestants[w].floor]);
			if (contestants[w].of != (what)w && s[contestants[w].of] > 0)
				tt_buf_printf(b, "%.2f |\n", s[w] / s[contestants[w].of]);
			else
				tt_buf_str(b, "|\n");
		}
	}
}
