/* Ranks as processes of an MPI job: exchanges, runs that end with the bytes of ranks as threads, and every kind of trouble with its text on every rank.
 * Each case is once per MPI that is installed. Where ranks are this program, a case finds itself under a launcher and is a rank. */
#define _GNU_SOURCE
#include "base/fs.h"
#include "launch.h"

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>

/* ---- the exchange ------------------------------------------------------------------------------------------------------------------------------------ */

enum { RANKS = 3, PLANES = 3, LINES = 5, PARTS = 3 };

/* Byte of the block that `from` gives `to`: its part, plane, line and place in the line. */
static uint8_t byte_of(int round, int from, int to, int part, int64_t plane, int64_t line, int64_t at)
{
	return (uint8_t)(round + 31 * from + 7 * to + 3 * part + 101 * plane + 13 * line + at);
}

/* Blocks of many sizes, none among them, and each between its own gaps. */
static int64_t width(int round, int from, int to, int part) { return (int64_t)((from * 5 + to * 3 + part * 2 + round) % 4) * (round % 7 == 6 ? 3000 : 17); }

typedef struct check { int round, me, wrong, calls; bool lands; uint8_t *place; } check;

static void look(void *ctx, const tt_block *take, int n)
{
	check *c = ctx;
	c->calls++;
	for (int p = 0; p < PARTS; p++)
		for (int i = 0; i < n; i++) {
			const tt_block *b = &take[p * n + i];
			int64_t w = width(c->round, i, c->me, p);
			if (w && (b->planes != PLANES || b->lines != LINES || b->bytes != w)) {
				c->wrong++;
				continue;
			}
			for (int64_t k = 0; w && k < PLANES * LINES * w; k++) {
				int64_t plane = k / (LINES * w), line = k / w % LINES, at = k % w;
				c->wrong += b->p[plane * b->plane + line * b->ld + at] != byte_of(c->round, i, c->me, p, plane, line, at);
			}
		}
}

/* One exchange with strided planes of lines; `lands`: into places with gaps of their own. */
static tt_status one_exchange(tt_comm_group *g, int round, bool lands, int *wrong)
{
	int me = tt_comm_group_index(g), n = tt_comm_group_size(g);
	tt_arena *a = tt_arena_create("exchange");
	tt_block *give = TT_NEWN(a, tt_block, PARTS * n), *take = TT_NEWN(a, tt_block, PARTS * n);
	for (int p = 0; p < PARTS; p++)
		for (int i = 0; i < n; i++) {
			int64_t w = width(round, me, i, p), v = width(round, i, me, p), gap = 1 + round % 3;
			uint8_t *bytes = tt_arena_alloc(a, (size_t)(PLANES * (LINES * (w + gap) + gap) + 1));
			for (int64_t k = 0; k < PLANES * LINES * w; k++) {
				int64_t plane = k / (LINES * w), line = k / w % LINES, at = k % w;
				bytes[plane * (LINES * (w + gap) + gap) + line * (w + gap) + at] = byte_of(round, me, i, p, plane, line, at);
			}
			give[p * n + i] = (tt_block){ bytes, w ? PLANES : 0, LINES, w, LINES * (w + gap) + gap, w + gap };
			uint8_t *to = lands ? tt_arena_alloc(a, (size_t)(PLANES * (LINES * (v + 9) + 5) + 1)) : NULL;
			take[p * n + i] = (tt_block){ to, v ? PLANES : 0, LINES, v, LINES * (v + 9) + 5, v + 9 };
		}
	check c = { .round = round, .me = me, .lands = lands };
	tt_exchange x = { .kind = "test", .name = lands ? "lands" : "blocks", .give = give, .take = take, .parts = PARTS, .lands = lands, .use = look, .ctx = &c };
	int64_t room = tt_exchange_scratch(g, &x);
	x.scratch = (void *)(uintptr_t)tt_round_up((int64_t)(uintptr_t)tt_arena_alloc(a, (size_t)room + 64), 64);
	memset(x.scratch, 0xa5, (size_t)room);
	tt_status s = tt_comm_exchange(g, &x);
	*wrong += c.wrong + (s == TT_OK && c.calls != 1);
	for (int i = 0; i < PARTS * n && !s && lands; i++) /* in their places, but this rank's own, which it has */
		*wrong += i % n != me && tt_block_bytes(&take[i]) && ((uintptr_t)take[i].p < 4096 || take[i].ld != take[i].bytes + 9);
	tt_arena_destroy(a);
	return s;
}

/* Another thread of the rank, in a group beside. */
typedef struct other { tt_comm_group *g; int wrong; tt_status s; } other;

static void *other_main(void *arg)
{
	other *o = arg;
	for (int round = 0; round < 60 && !o->s; round++)
		o->s = one_exchange(o->g, round, round % 2, &o->wrong);
	return NULL;
}

static tt_status exchange_rank(tt_comm *c, void *ctx)
{
	int *wrong = ctx, ranks[RANKS] = { 0, 1, 2 }, me = tt_comm_rank(c), n = tt_comm_size(c);
	tt_comm_group *all, *pair = NULL, *back;
	TT_TRY(tt_comm_group_open(c, "all ranks", n, ranks, &all));
	if (me < 2)
		TT_TRY(tt_comm_group_open(c, "pair", 2, ranks, &pair));
	TT_TRY(tt_comm_group_open(c, "back", n, (int[]){ 2, 1, 0 }, &back));
	other o = { 0 };
	pthread_t thread;
	TT_TRY(tt_comm_group_open_beside(c, "beside", n, ranks, &o.g));
	if (pthread_create(&thread, NULL, other_main, &o))
		TT_FAIL(TT_ERR_MEMORY, "no thread");
	for (int round = 0; round < 40; round++) {
		TT_TRY(one_exchange(all, round, false, wrong));
		if (pair)
			TT_TRY(one_exchange(pair, round + 1, round % 2, wrong));
		TT_TRY(one_exchange(back, round, true, wrong));
		int64_t mine[2] = { me, me * me }, each[2 * RANKS], v = me == round % n ? 1000 + round : -1;
		TT_TRY(tt_comm_all_gather(back, "pairs", mine, sizeof mine, each));
		for (int i = 0; i < n; i++)
			*wrong += each[2 * i] != n - 1 - i || each[2 * i + 1] != (n - 1 - i) * (n - 1 - i);
		TT_TRY(tt_comm_broadcast(all, "one", round % n, &v, sizeof v));
		*wrong += v != 1000 + round;
	}
	pthread_join(thread, NULL);
	*wrong += o.wrong + (o.s != TT_OK);
	/* A world of fewer, whose groups are those of the whole. */
	tt_comm *two;
	if (me < 2) {
		TT_TRY(tt_comm_sub(c, 2, &two));
		*wrong += tt_comm_size(two) != 2;
		TT_TRY(tt_comm_group_open(two, "pair", 2, ranks, &back));
		*wrong += back != pair;
		TT_TRY(one_exchange(back, 5, false, wrong));
	}
	tt_buf b = { 0 };
	tt_comm_record_print(c, &b);
	*wrong += !b.s || !strstr(b.s, "lands");
	tt_buf_fini(&b);
	return tt_comm_barrier(all, "end");
}

static void exchange(tt_test *t, int m, const char *name)
{
	char *said;
	int wrong = 0;
	if (as_rank(t, exchange_rank, &wrong, 4096)) { /* blocks of this test are cut in every way */
		TT_CHECK_INT(t, wrong, 0);
		return;
	}
	NEEDS(t, m);
	int status = launch(t, m, RANKS, "", self(t, tt_arena_printf(t->arena, "mpi.%s", name)), &said);
	TT_CHECK_MSG(t, status == 0, "%s: status %x\n%s", mpis[m].exec, (unsigned)status, said);
}

static void exchange_openmpi(tt_test *t) { exchange(t, 0, "exchange_openmpi"); }
static void exchange_mpich(tt_test *t) { exchange(t, 1, "exchange_mpich"); }

static int count(const char *said, const char *what);

/* ---- lanes -------------------------------------------------------------------------------------------------------------------------------------------- */

enum { LANES = 3, LARGEST = 2 << 20, LANE_ROUNDS = 40 };
static const int64_t lane_bytes[] = { 8, LARGEST, 1024, 64, 70016, 1032, 0, 524288 };

static int64_t lane_size(int lane, int round) { return lane_bytes[(round * (2 * lane + 1) + lane) % TT_COUNT(lane_bytes)]; }
static uint64_t lane_word(int lane, int round, int from, int to, int64_t at) { return (uint64_t)at * 0x9e3779b97f4a7c15 + (uint64_t)(((lane * 64 + round) * 8 + from) * 8 + to); }

typedef struct lane_run {
	tt_comm_group *g;
	int lane, round, wrong;
	uint64_t *give, *take;
	tt_status s;
	char text[512];
} lane_run;

static void lane_look(void *ctx, const tt_block *take, int n)
{
	lane_run *r = ctx;
	int64_t words = lane_size(r->lane, r->round) / 8;
	for (int i = 0; i < n; i++)
		for (int64_t k = 0; k < words; k++)
			r->wrong += ((const uint64_t *)(const void *)take[i].p)[k] != lane_word(r->lane, r->round, i, tt_comm_group_index(r->g), k);
}

/* Blocks of words that name lane, round, giver and taker: small ones of one lane between large ones of the others. */
static tt_status lane_exchange(lane_run *r)
{
	tt_block give[RANKS], take[RANKS];
	int n = tt_comm_group_size(r->g), me = tt_comm_group_index(r->g);
	int64_t bytes = lane_size(r->lane, r->round);
	for (int i = 0; i < n; i++) {
		uint64_t *out = r->give + i * LARGEST / 8;
		for (int64_t k = 0; k < bytes / 8; k++)
			out[k] = lane_word(r->lane, r->round, me, i, k);
		give[i] = tt_block_flat(out, bytes);
		take[i] = tt_block_flat(r->take + i * LARGEST / 8, bytes);
	}
	tt_exchange x = { .kind = "test", .name = tt_comm_group_name(r->g), .give = give, .take = take, .lands = r->round % 2, .scratch = r->take, .use = lane_look, .ctx = r };
	return tt_comm_exchange(r->g, &x);
}

static void *lane_main(void *arg)
{
	lane_run *r = arg;
	for (r->round = 0; r->round < LANE_ROUNDS && !r->s; r->round++)
		r->s = r->round % 4 == 3 ? one_exchange(r->g, r->round, r->round % 8 == 3, &r->wrong) : lane_exchange(r);
	if (r->s)
		snprintf(r->text, sizeof r->text, "%s", tt_error_text());
	return NULL;
}

/* Three threads of the rank's own and one beside it, each with a group of its own, and no order among them. */
static tt_status lanes_rank(tt_comm *c, void *ctx)
{
	static const int orders[LANES + 1][RANKS] = { { 0, 1, 2 }, { 2, 0, 1 }, { 1, 2, 0 }, { 0, 2, 1 } };
	int *wrong = ctx, n = tt_comm_size(c);
	lane_run runs[LANES + 1] = { 0 };
	pthread_t threads[LANES + 1];
	uint64_t *room = malloc((size_t)(LANES + 1) * 2 * RANKS * LARGEST);
	for (int i = 0; i <= LANES; i++) {
		lane_run *r = &runs[i];
		char name[32];
		snprintf(name, sizeof name, i < LANES ? "lane %d" : "beside", i);
		r->lane = i;
		r->give = room + (int64_t)i * 2 * RANKS * LARGEST / 8;
		r->take = r->give + RANKS * LARGEST / 8;
		TT_TRY((i < LANES ? tt_comm_group_open : tt_comm_group_open_beside)(c, name, n, orders[i], &r->g));
	}
	for (int i = 1; i <= LANES; i++)
		TT_ASSERT(!pthread_create(&threads[i], NULL, lane_main, &runs[i]), "no thread");
	lane_main(&runs[0]);
	for (int i = 1; i <= LANES; i++)
		pthread_join(threads[i], NULL);
	for (int i = 0; i <= LANES; i++) {
		*wrong += runs[i].wrong;
		if (strcmp(runs[i].text, runs[0].text)) /* all of them end with one text */
			TT_FAIL(TT_ERR_COMM, "lane %d ends with \"%s\", lane 0 with \"%s\"", i, runs[i].text, runs[0].text);
	}
	if (runs[0].s) {
		fprintf(stderr, "all threads of rank %d end with: %s\n", tt_comm_rank(c), runs[0].text); /* its program ends before the checks are told */
		TT_FAIL(runs[0].s, "%s", runs[0].text);
	}
	free(room);
	return TT_OK;
}

static void lanes(tt_test *t, int m, const char *name)
{
	char *said;
	int wrong = 0;
	if (as_rank(t, lanes_rank, &wrong, 300000)) {
		TT_CHECK_INT(t, wrong, 0);
		return;
	}
	NEEDS(t, m);
	const char *program = self(t, tt_arena_printf(t->arena, "mpi.%s", name));
	int status = launch(t, m, RANKS, "", program, &said);
	TT_CHECK_MSG(t, status == 0, "%s: status %x\n%s", mpis[m].exec, (unsigned)status, said);
	/* An error in one thread ends the waits of all threads of all ranks. */
	status = launch(t, m, RANKS, "TITAN_FAULT='fail:1:lane 2:9'", program, &said);
	TT_CHECK_MSG(t, status != 0 && count(said, " end with: a fault of a test") == RANKS, "%s: status %x\n%s", mpis[m].exec, (unsigned)status, said);
}

static void lanes_openmpi(tt_test *t) { lanes(t, 0, "lanes_openmpi"); }
static void lanes_mpich(tt_test *t) { lanes(t, 1, "lanes_mpich"); }

/* ---- runs ------------------------------------------------------------------------------------------------------------------------------------------------ */

static const char RUN[] = "train configs/debug.toml --debug.numerics=exact --checkpoint.enable --checkpoint.interval=2 --checkpoint.last_save_model_only=false "
			  "--lr_scheduler.total_steps=20 --training.tokens_per_step=512 --training.tokens_per_microbatch=256 --training.context_length=64 "
			  "--validation.enable --validation.fraction=0.1 --validation.freq=1 --validation.steps=2 --comm.init_timeout_seconds=30 --comm.train_timeout_seconds=30 ";

static void same_files(tt_test *t, const char *a, const char *b, int step)
{
	static const char *const files[] = { "model.safetensors", "optimizer.safetensors" };
	for (int i = 0; i < TT_COUNT(files); i++) {
		char *x = NULL, *y = NULL;
		size_t nx = 0, ny = 1;
		const char *in_a = tt_arena_printf(t->arena, "%s/checkpoint/step-%08d/%s", a, step, files[i]);
		const char *in_b = tt_arena_printf(t->arena, "%s/checkpoint/step-%08d/%s", b, step, files[i]);
		if (TT_CHECK_OK(t, tt_file_read(t->arena, in_a, &x, &nx)) && TT_CHECK_OK(t, tt_file_read(t->arena, in_b, &y, &ny)))
			TT_CHECK_MSG(t, nx == ny && !memcmp(x, y, nx), "%s and %s are not the same bytes", in_a, in_b);
	}
}

/* Four ranks train and save, two others go on: the bytes of one rank that never stopped. */
static void train(tt_test *t, int m)
{
	NEEDS(t, m);
	char *said;
	const char *titan = beside(t, "titan"), *one = tt_test_path(t, "one"), *many = tt_test_path(t, "many");
	int status = shell(t, tt_arena_printf(t->arena, "%s %s --training.steps=4 --job.dump_folder=%s", titan, RUN, one), &said);
	TT_CHECK_MSG(t, status == 0, "%s", said);
	status = launch(t, m, 4, "", tt_arena_printf(t->arena, "%s %s --training.steps=2 --job.dump_folder=%s --parallelism.data_parallel_shard_degree=2 "
						     "--parallelism.tensor_parallel_degree=2", titan, RUN, many), &said);
	TT_CHECK_MSG(t, status == 0 && strstr(said, "mesh: 4 ranks, processes of an MPI job") && !strstr(said, "rank 1"), "%s", said);
	same_files(t, one, many, 2);
	status = launch(t, m, 2, "", tt_arena_printf(t->arena, "%s %s --training.steps=4 --job.dump_folder=%s --parallelism.context_parallel_degree=2", titan, RUN, many), &said);
	TT_CHECK_MSG(t, status == 0 && strstr(said, "resumed from"), "%s", said);
	same_files(t, one, many, 4);
}

static void train_openmpi(tt_test *t) { train(t, 0); }
static void train_mpich(tt_test *t) { train(t, 1); }

static void verify(tt_test *t)
{
	for (int m = 0; m < TT_COUNT(mpis); m++) {
		NEEDS(t, m);
		char *said;
		int status = launch(t, m, 4, "", tt_arena_printf(t->arena, "%s verify configs/debug.toml --data.source=synthetic --model.num_attention_heads=8 --model.head_dim=8 "
			"--model.num_key_value_heads=8 --model.vocab_size=61 --model.tie_word_embeddings=true --backend=mpi", beside(t, "titan")), &said); /* heads that can be swapped under tp */
		TT_CHECK_MSG(t, status == 0 && strstr(said, "35 meshes proven") && strstr(said, "ranks as processes of an MPI job"), "%s: %s", mpis[m].exec, said);
	}
}

/* In `fast`, where the order of sums shows: threads, both MPIs, the same bytes. */
static void fast_bits(tt_test *t)
{
	static const char *const meshes[] = { "--parallelism.data_parallel_shard_degree=2 --parallelism.tensor_parallel_degree=2", "--parallelism.tensor_parallel_degree=4",
		"--parallelism.data_parallel_replicate_degree=2 --parallelism.context_parallel_degree=2" };
	for (int m = 0; m < TT_COUNT(mpis); m++)
		NEEDS(t, m);
	const char *titan = beside(t, "titan");
	for (int k = 0; k < TT_COUNT(meshes); k++) {
		char *said;
		const char *folder[3];
		for (int i = 0; i < 3; i++) {
			folder[i] = tt_test_path(t, tt_arena_printf(t->arena, "run-%d-%d", k, i));
			const char *args = tt_arena_printf(t->arena, "%s %s %s --debug.numerics=fast --training.steps=2 --job.dump_folder=%s", titan, RUN, meshes[k], folder[i]);
			int status = i == 2 ? shell(t, tt_arena_printf(t->arena, "%s --ranks=4", args), &said) : launch(t, i, 4, "", args, &said);
			TT_CHECK_MSG(t, status == 0, "%s", said);
		}
		same_files(t, folder[2], folder[0], 2);
		same_files(t, folder[2], folder[1], 2);
	}
}

/* ---- signals ---------------------------------------------------------------------------------------------------------------------------------------------- */

/* Signal `number` to the launcher, or, where `rank` is not -1, to that rank: the run saves and all end in order, at the first word, though a step takes longer than a wait
 * that would be told of where a rank is in trouble. The launcher is told within step 1, and a rank after it: before it there is nothing to save. */
static void stopped(tt_test *t, int m, const char *number, int rank)
{
	NEEDS(t, m);
	char *said;
	const char *folder = tt_test_path(t, tt_arena_printf(t->arena, "stopped-%s-%s%d", mpis[m].mpi, number, rank)), *log = tt_arena_printf(t->arena, "%s.log", folder);
	const char *to = rank < 0 ? "$p" : tt_arena_printf(t->arena, "$(for c in $(pgrep -f '[%c]%s'); do tr '\\0' '\\n' </proc/$c/environ | grep -qx '%s=%d' && echo $c && break; done)",
							   folder[0], folder + 1, m ? "PMI_RANK" : "OMPI_COMM_WORLD_RANK", rank);
	int status = shell(t, tt_arena_printf(t->arena, "%s %s %s -n 2 %s %s --training.steps=100000 --validation.enable=false --checkpoint.interval=100000 --job.dump_folder=%s >%s 2>&1 & p=$!; "
		"until grep -q '%s' %s; do kill -0 $p || break; sleep 0.02; done; to=%s; echo to $to; kill -%s $to; "
		"for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do kill -0 $p 2>/dev/null || break; sleep 1; done; kill -KILL $p 2>/dev/null; wait $p; r=$?; cat %s; exit $r",
		rank < 0 ? "TITAN_FAULT='slow:1:losses of rows:1'" : "", mpis[m].exec, mpis[m].flags, beside(t, "titan"), RUN, folder, log, rank < 0 ? "rank 1 is slow at losses of rows" : "step      1", log, to, number, log), &said);
	TT_CHECK_MSG(t, WIFEXITED(status) && WEXITSTATUS(status) == 3 && strstr(said, "stopped by signal ") && strstr(said, ", saved\n") && strstr(said, "stopping after this step") &&
		     !strstr(said, "MPI_ABORT") && !strstr(said, "asked to end: rank"), "%s, %s: status %x\n%s", mpis[m].exec, number, (unsigned)status, said);
	TT_CHECK_MSG(t, m == 1 || strstr(said, "to end this run without losing steps: kill -USR1"), "%s", said);
	TT_CHECK_MSG(t, rank < 1 || strstr(said, tt_arena_printf(t->arena, "rank %d was asked to end by signal", rank)), "%s", said);
}

/* A rank is asked before its MPI_Init has returned, in which MPIs set handlers of their own: the run hears of it once it runs. */
static void stopped_early(tt_test *t)
{
	for (int m = 0; m < TT_COUNT(mpis); m++) {
		NEEDS(t, m);
		for (int rank = 0; rank < 2; rank++) {
			char *said;
			int status = launch(t, m, 2, tt_arena_printf(t->arena, "TITAN_FAULT='ask:%d:init:1'", rank), tt_arena_printf(t->arena, "%s %s --training.steps=1000 "
				"--validation.enable=false --job.dump_folder=%s", beside(t, "titan"), RUN, tt_test_path(t, tt_arena_printf(t->arena, "early-%d-%d", m, rank))), &said);
			TT_CHECK_MSG(t, WIFEXITED(status) && WEXITSTATUS(status) == 3 && strstr(said, "stopped by signal 1 "), "%s, rank %d: status %x\n%s", mpis[m].exec, rank, (unsigned)status, said);
		}
	}
}

static void stopped_quick(tt_test *t) { stopped(t, 0, "USR1", -1); }

static void stopped_all(tt_test *t)
{
	stopped(t, 0, "INT", 1);
	stopped(t, 1, "USR1", -1);
	stopped(t, 1, "INT", 1);
}

/* ---- saves ------------------------------------------------------------------------------------------------------------------------------------------------ */

static const char SAVE[] = "train configs/debug.toml --checkpoint.enable --checkpoint.interval=1 --checkpoint.last_save_model_only=false --checkpoint.keep_latest_k=0 "
			   "--lr_scheduler.total_steps=20 --training.tokens_per_step=256 --training.tokens_per_microbatch=128 --training.context_length=64 "
			   "--parallelism.data_parallel_shard_degree=2 --parallelism.tensor_parallel_degree=2 ";
/* 28 MB of states: eight blocks, in two files. */
static const char LARGER[] = "--model.hidden_size=256 --model.head_dim=64 --model.intermediate_size=768 --model.num_hidden_layers=3";

/* No process of a run in `folder`, also none that was stopped: what a launcher has killed may take a moment to go. */
static void nobody_left(tt_test *t, const char *folder)
{
	char *left;
	const char *pattern = tt_arena_printf(t->arena, "[%c]%s", folder[1], folder + 2); /* which does not find itself */
	TT_CHECK_MSG(t, shell(t, tt_arena_printf(t->arena, "for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do pgrep -f '%s' >/dev/null || exit 0; sleep 0.25; done; "
				"pgrep -af '%s'; exit 1", pattern, pattern), &left) == 0, "still there: %s", left);
}

/* The newest whole checkpoint is of `step`, every byte of it, and nothing unfinished is left. */
static void newest(tt_test *t, const char *folder, int step, bool clean)
{
	char *said;
	int status = shell(t, tt_arena_printf(t->arena, "%s ckpt verify %s && ls -a %s/checkpoint", beside(t, "titan"), folder, folder), &said);
	TT_CHECK_MSG(t, status == 0 && strstr(said, tt_arena_printf(t->arena, "latest: step %d", step)) && !(clean && strstr(said, ".tmp-")), "%s: %s", folder, said);
}

/* Processes write what threads write, each its share, while the next steps run. A rank that cannot is named on all. */
static void saves(tt_test *t, int m)
{
	NEEDS(t, m);
	char *said;
	const char *titan = beside(t, "titan"), *threads = tt_test_path(t, "threads"), *many = tt_test_path(t, "many");
	const char *args = tt_arena_printf(t->arena, "%s %s %s --job.dump_folder=%s", titan, SAVE, LARGER, many);
	int status = shell(t, tt_arena_printf(t->arena, "%s %s %s --training.steps=2 --job.dump_folder=%s --ranks=4", titan, SAVE, LARGER, threads), &said);
	TT_CHECK_MSG(t, status == 0, "%s", said);
	/* The first save is slow: step 2 changes what it has not taken yet. */
	status = launch(t, m, 4, "TITAN_FAULT='slow:2:blocks of a save:1'", tt_arena_printf(t->arena, "%s --training.steps=2", args), &said);
	TT_CHECK_MSG(t, status == 0 && strstr(said, "saved step 2: 28.5 MiB"), "%s", said);
	same_files(t, threads, many, 1);
	same_files(t, threads, many, 2);
	newest(t, many, 2, true);
	/* All but rank 0 may write no further than the fourth block of a file: an MPI's own files are smaller. */
	status = launch(t, m, 1, "", tt_arena_printf(t->arena, "%s --training.steps=3 : -n 3 sh -c \"trap '' XFSZ; ulimit -f 24576; exec %s --training.steps=3\"", args, args), &said);
	TT_CHECK_MSG(t, status != 0 && count(said, "File too large (room and rights there; ranks write a checkpoint together") >= 4 && count(said, "optimizer.safetensors: cannot write at byte ") >= 4 &&
		     count(said, "after step 3, with step 2 as the last checkpoint") >= 4, "%s", said);
	newest(t, many, 2, true);
}

static void saves_openmpi(tt_test *t) { saves(t, 0); }
static void saves_mpich(tt_test *t) { saves(t, 1); }

/* From processes to threads to one rank to other processes: the bytes of a rank that never stopped. */
static void moves(tt_test *t)
{
	for (int m = 0; m < TT_COUNT(mpis); m++) {
		NEEDS(t, m);
		char *said;
		const char *titan = beside(t, "titan"), *one = tt_test_path(t, tt_arena_printf(t->arena, "one-%d", m)), *many = tt_test_path(t, tt_arena_printf(t->arena, "many-%d", m));
		static const struct { int processes; const char *flags; } legs[] = {
			{ 4, "--parallelism.data_parallel_shard_degree=2 --parallelism.tensor_parallel_degree=2" },
			{ 0, "--ranks=3" },
			{ 3, "--parallelism.data_parallel_replicate_degree=3 --parallelism.data_parallel_shard_degree=1" },
			{ 0, "" },
			{ 2, "--parallelism.context_parallel_degree=2 --checkpoint.async_mode=disabled" },
			{ 4, "--parallelism.tensor_parallel_degree=4 --checkpoint.staging_mib=1" },
		};
		int status = shell(t, tt_arena_printf(t->arena, "%s %s --training.steps=%d --job.dump_folder=%s", titan, RUN, TT_COUNT(legs), one), &said);
		TT_CHECK_MSG(t, status == 0, "%s", said);
		for (int i = 0; i < TT_COUNT(legs); i++) {
			const char *args = tt_arena_printf(t->arena, "%s %s --training.steps=%d --job.dump_folder=%s %s", titan, RUN, i + 1, many, legs[i].flags);
			status = legs[i].processes ? launch(t, m, legs[i].processes, "", args, &said) : shell(t, args, &said);
			TT_CHECK_MSG(t, status == 0 && (i == 0 || strstr(said, "resumed from")), "leg %d: %s", i, said);
			if (i % 2)
				same_files(t, one, many, i + 1);
		}
	}
}

/* A rank is killed at each exchange of a save of step 2: step 1 or 2 is whole, and the run goes on to the same end. */
static void killed(tt_test *t)
{
	static const struct { const char *at; int rank, count, left; /* 0: that of either step */ } kills[] = {
		{ "folder of a save", 0, 2, 1 }, { "folder of a save", 3, 2, 1 }, { "blocks of a save", 0, 3, 1 }, { "blocks of a save", 1, 4, 1 }, { "blocks written", 2, 2, 1 },
		{ "checksums of a save", 0, 2, 1 }, { "end of a save", 0, 2, 2 }, { "end of a save", 2, 2, 0 },
	};
	for (int m = 0; m < TT_COUNT(mpis); m++) {
		NEEDS(t, m);
		char *said;
		const char *straight = tt_test_path(t, tt_arena_printf(t->arena, "straight-%d", m));
		int status = launch(t, m, 4, "", tt_arena_printf(t->arena, "%s %s %s --training.steps=3 --job.dump_folder=%s", beside(t, "titan"), SAVE, LARGER, straight), &said);
		TT_CHECK_MSG(t, status == 0, "%s", said);
		for (int i = 0; i < TT_COUNT(kills); i++) {
			const char *folder = tt_test_path(t, tt_arena_printf(t->arena, "%d-%d", m, i));
			const char *args = tt_arena_printf(t->arena, "%s %s %s --training.steps=3 --job.dump_folder=%s", beside(t, "titan"), SAVE, LARGER, folder);
			status = launch(t, m, 4, tt_arena_printf(t->arena, "TITAN_FAULT='kill:%d:%s:%d'", kills[i].rank, kills[i].at, kills[i].count), args, &said);
			TT_CHECK_MSG(t, status != 0, "%s, %s: it went well: %s", mpis[m].exec, kills[i].at, said);
			nobody_left(t, folder); /* what a process that lives is writing stays */
			bool two = tt_fs_exists(&tt_fs_posix, tt_arena_printf(t->arena, "%s/checkpoint/step-00000002", folder));
			newest(t, folder, kills[i].left ? kills[i].left : two ? 2 : 1, false);
			status = launch(t, m, 4, "", args, &said);
			TT_CHECK_MSG(t, status == 0 && strstr(said, "resumed from"), "%s, %s: %s", mpis[m].exec, kills[i].at, said);
			newest(t, folder, 3, true);
			same_files(t, straight, folder, 3);
		}
	}
}

/* Another host's folder of the same name: a mount that one rank alone has. */
static void other_folder(tt_test *t)
{
	for (int m = 0; m < TT_COUNT(mpis); m++) {
		NEEDS(t, m);
		char *said;
		const char *folder = tt_test_path(t, tt_arena_printf(t->arena, "run-%d", m));
		TT_CHECK_OK(t, tt_mkdirs(folder));
		if (!on_path(t->arena, "unshare") || shell(t, tt_arena_printf(t->arena, "unshare -m mount -t tmpfs none %s", folder), &said))
			TT_SKIP(t, "unshare is not installed (util-linux), or mounts are not permitted here");
		const char *args = tt_arena_printf(t->arena, "%s %s --training.steps=2 --job.dump_folder=%s", beside(t, "titan"), SAVE, folder);
		int status = launch(t, m, 3, "", tt_arena_printf(t->arena, "%s : -n 1 unshare -m sh -c 'mount -t tmpfs none %s; exec %s'", args, folder, args), &said);
		TT_CHECK_MSG(t, status != 0 && count(said, "rank 3 on ") >= 4 && count(said, "job.dump_folder must be one folder, which all hosts share") >= 4 && !strstr(said, "step      1"),
			     "%s: %s", mpis[m].exec, said);
	}
}

/* ---- trouble ---------------------------------------------------------------------------------------------------------------------------------------------- */

typedef struct trouble {
	const char *fault; /* TITAN_FAULT */
	const char *said;  /* by every rank that lives */
	int lives;         /* how many of four */
	const char *more;  /* flags */
} trouble;

static const trouble troubles[] = {
	{ "stop:2:init:1", "waits in MPI_Init for", 3, "" },
	{ "kill:2:init:1", "rank 2 has not come, as far as this machine knows", 3, "" },
	{ "stop:2:hello:1", "waits in all-gather #1 of world \"hello\" for ... s (comm.train_timeout_seconds, comm.init_timeout_seconds); rank 2 has not come, and its process ... is stopped", 3, "" },
	/* Who has not greeted is not known to be gone, and MPICH's launcher leaves the others 4 s: on a busy machine they are in MPI_Init then. */
	{ "kill:2:hello:1", " waits in ", 3, "--comm.init_timeout_seconds=1" },
	{ "kill:2:losses of rows:1", "; rank 2 has not come, its last exchange known here was", 3, "" },
	{ "stop:2:losses of rows:1", "; rank 2 has not come, its last exchange known here was", 3, "" },
	{ "stop:0:losses of rows:1", "; rank 0 has not come, its last exchange known here was", 3, "" },
	{ "kill:0:losses of rows:1", "; rank 0 has not come, its last exchange known here was", 3, "" },
	{ "hang:2:losses of rows:1", "; rank 2 has not come, its last exchange known here was", 4, "" },
	{ "fail:3:losses of rows:1", "rank 3: a fault of a test", 4, "" },
	{ "name:1:losses of rows:1", "\"another\": their programs differ", 4, "" },
	{ "shape:1:losses of rows:1", "1 x 2 lines of 128 bytes, it expects 1 x 1 of 128", 4, "" },
	{ "stop:2:blocks of a save:1", "; rank 2 ", 3, "" },
	{ "kill:2:blocks of a save:1", "; rank 2 ", 3, "" },
	{ "kill:0:checksums of a save:1", "; rank 0 ", 3, "" },
	{ "stop:3:end of a save:2", "in save #", 3, "" }, /* nobody has a step to make */
	{ "fail:3:blocks of a save:1", "rank 3: a fault of a test", 4, "" },
	/* Only rank 0 waits for it there; others are further, wait for both, and may be the first to say so. */
	{ "stop:2:loss of a validation:1", "; rank 2 has not come, its last exchange known here was", 3, "" },
	{ "kill:2:loss of a validation:1", "; rank 2 has not come, its last exchange known here was", 3, "" },
	{ "name:1:loss of a validation:1", "\"another\": their programs differ", 4, "" },
	{ "shape:1:loss of a validation:1", "lines of", 4, "" },
	{ "name:1:blocks of a save:1", "\"another\": their programs differ", 4, "" },
	{ "shape:1:blocks of a save:1", ", of other shapes", 4, "" },
	{ "stop:0:what to do:2", "of all \"what to do\"", 3, "" },
};

/* Does `line` go on with all of `what`? "..." there stands for a number. */
static bool goes_on(const char *line, const char *what)
{
	for (; *what && *line; what++, line++)
		if (!strncmp(what, "...", 3)) {
			if (*line < '1' || *line > '9') /* no rank is late after no time, and no process has number 0 */
				return false;
			line += strspn(line, "0123456789.") - 1;
			what += 2;
		} else if (*what != *line) {
			return false;
		}
	return !*what;
}

/* How often it is said. */
static int count(const char *said, const char *what)
{
	int n = 0;
	for (const char *at = said; *at; at++)
		n += goes_on(at, what);
	return n;
}

static const char TROUBLED[] = "--debug.numerics=fast --parallelism.data_parallel_shard_degree=2 --parallelism.tensor_parallel_degree=2";

/* How many seconds a rank may be late so that none is that is only slow: longer than a whole run takes here and now, start of the MPI and all. */
static int patience(tt_test *t, int m)
{
	char *said;
	double began = tt_now();
	int status = launch(t, m, 4, "", tt_arena_printf(t->arena, "%s %s %s --training.steps=1 --job.dump_folder=%s", beside(t, "titan"), RUN, TROUBLED,
		tt_test_path(t, tt_arena_printf(t->arena, "%s-well", mpis[m].mpi))), &said);
	TT_CHECK_MSG(t, status == 0, "%s: %s", mpis[m].exec, said);
	return 3 + (int)(tt_now() - began);
}

/* `wait`: seconds after which a rank is late; told of by those alone whose fault is seen by that. */
static void one_trouble(tt_test *t, int m, const trouble *x, int wait)
{
	char *said;
	const char *folder = tt_test_path(t, tt_arena_printf(t->arena, "%s-%d", mpis[m].mpi, (int)(x - troubles)));
	bool waits = !strncmp(x->fault, "stop", 4) || !strncmp(x->fault, "hang", 4) || strstr(x->fault, ":init:");
	const char *late = waits ? tt_arena_printf(t->arena, "--comm.train_timeout_seconds=%d --comm.init_timeout_seconds=%d", wait, wait) : "";
	/* Open MPI's launcher ends the others one second after one was killed: on a busy machine some have not had a word by then. */
	const char *mercy = m == 0 && !strncmp(x->fault, "kill", 4) ? "OMPI_MCA_odls_base_sigkill_timeout=4" : "";
	int status = launch(t, m, 4, tt_arena_printf(t->arena, "TITAN_FAULT='%s' %s", x->fault, mercy),
		tt_arena_printf(t->arena, "%s %s %s --training.steps=3 --job.dump_folder=%s %s %s", beside(t, "titan"), RUN, TROUBLED, folder, late, x->more), &said);
	TT_CHECK_MSG(t, status != 0, "%s, %s: it went well\n%s", mpis[m].exec, x->fault, said);
	/* A rank that reads the killed one's memory at that moment is ended by MPICH's transport (UCX), which says so itself; and so one that reads that one's. */
	int lives = x->lives - (!strncmp(x->fault, "kill", 4) ? count(said, "process_vm_readv(") : 0);
	TT_CHECK_MSG(t, count(said, x->said) >= lives, "%s, %s: \"%s\" is said %d times, %d ranks know it\n%s", mpis[m].exec, x->fault, x->said, count(said, x->said), lives, said);
	TT_CHECK_MSG(t, !strstr(said, "Segmentation") && !strstr(said, "panic"), "%s, %s: %s", mpis[m].exec, x->fault, said);
	nobody_left(t, folder);
}

/* The two that are told quickest; the rest is of the ci tier. */
static void trouble_quick(tt_test *t)
{
	NEEDS(t, 0);
	for (int i = 0; i < TT_COUNT(troubles); i++)
		if (!strncmp(troubles[i].fault, "kill:2:losses", 13) || !strncmp(troubles[i].fault, "name:1:losses", 13))
			one_trouble(t, 0, &troubles[i], 0); /* neither is a matter of time */
}

static void trouble_all(tt_test *t, int m)
{
	NEEDS(t, m);
	int wait = patience(t, m);
	for (int i = 0; i < TT_COUNT(troubles); i++)
		one_trouble(t, m, &troubles[i], wait);
}

static void trouble_openmpi(tt_test *t) { trouble_all(t, 0); }
static void trouble_mpich(tt_test *t) { trouble_all(t, 1); }

/* One rank's program is another file: a copy with a byte more. */
static void other_build(tt_test *t, int m)
{
	static const struct { const char *numerics, *said; } cases[] = {
		{ "fast", "rank 2 runs another build of titan than rank 0" },
		{ "exact", NULL }, /* which allows it */
	};
	for (int i = 0; i < TT_COUNT(cases); i++) {
		char *said;
		const char *folder = tt_test_path(t, tt_arena_printf(t->arena, "build-%d-%d", m, i)), *copy = tt_arena_printf(t->arena, "%s/titan", folder);
		int status = shell(t, tt_arena_printf(t->arena, "mkdir %s && cp %s %s/*.so %s && printf x >>%s", folder, beside(t, "titan"), beside(t, ""), folder, copy), &said);
		TT_CHECK_MSG(t, status == 0, "%s", said);
		const char *args = tt_arena_printf(t->arena, "%s --training.steps=1 --job.dump_folder=%s/run --debug.numerics=%s", RUN, folder, cases[i].numerics);
		status = launch(t, m, 2, "", tt_arena_printf(t->arena, "%s %s : -n 1 %s %s", beside(t, "titan"), args, copy, args), &said);
		bool right = cases[i].said ? status != 0 && count(said, cases[i].said) >= 3 : status == 0;
		TT_CHECK_MSG(t, right, "%s, in %s: status %x\n%s", mpis[m].exec, cases[i].numerics, (unsigned)status, said);
	}
}

/* Ranks that were started with something else each. */
static void differ(tt_test *t)
{
	static const struct { const char *all, *other, *said; } cases[] = {
		{ "", "--optimizer.lr=0.1", "rank 2 has another config than rank 0: optimizer.lr = 0.1, and rank 0 has optimizer.lr = 0.003" },
		{ "--debug.numerics=fast", "--debug.isa=ref", "rank 2 has fast kernels for ref, rank 0 fast ones for" },
		{ "--debug.numerics=fast", "--debug.kernels=ref", "rank 2 has reference kernels for" },
		{ "", "--debug.isa=ref --hardware.threads=2", NULL }, /* exact allows it */
	};
	for (int m = 0; m < TT_COUNT(mpis); m++) {
		NEEDS(t, m);
		for (int i = 0; i < TT_COUNT(cases); i++) {
			char *said;
			const char *base = tt_arena_printf(t->arena, "%s %s --training.steps=2 --job.dump_folder=%s %s", beside(t, "titan"), RUN,
							   tt_test_path(t, tt_arena_printf(t->arena, "run-%d-%d", m, i)), cases[i].all);
			int status = launch(t, m, 2, "", tt_arena_printf(t->arena, "%s : -n 1 %s %s", base, base, cases[i].other), &said);
			if (cases[i].said)
				TT_CHECK_MSG(t, status != 0 && count(said, cases[i].said) >= 3, "%s %s: %s", mpis[m].exec, cases[i].other, said);
			else
				TT_CHECK_MSG(t, status == 0, "%s %s: %s", mpis[m].exec, cases[i].other, said);
		}
		other_build(t, m);
		char *said;
		int status = launch(t, m, 2, "", tt_arena_printf(t->arena, "%s %s : -n 1 %s train nosuch.toml", beside(t, "titan"), RUN, beside(t, "titan")), &said); /* which ends before its MPI_Init */
		TT_CHECK_MSG(t, WIFEXITED(status) && WEXITSTATUS(status) == 2 && strstr(said, "nosuch.toml"), "%s: status %x\n%s", mpis[m].exec, (unsigned)status, said);
		status = launch(t, m, 2, "", tt_arena_printf(t->arena, "%s %s --ranks=3", beside(t, "titan"), RUN), &said);
		TT_CHECK_MSG(t, status != 0 && strstr(said, "hardware.ranks is 3, and mpiexec of ") && strstr(said, "started 2 processes"), "%s", said);
	}
}

/* As on two machines: the bits of one rank over TCP, and trouble on the other machine, where no process can be looked up. */
static void namespaces(tt_test *t)
{
	NEEDS(t, 0);
	if (access("tests/namespaces.sh", X_OK) || !on_path(t->arena, "ip") || !on_path(t->arena, "unshare"))
		TT_SKIP(t, "ip or unshare is not installed (iproute2, util-linux), or tests/ is not here");
	char *said;
	int status = shell(t, tt_arena_printf(t->arena, "tests/namespaces.sh %s verify configs/debug.toml --mesh=dp_shard=2,tp=2", beside(t, "titan")), &said);
	if (WIFEXITED(status) && WEXITSTATUS(status) == 77)
		TT_SKIP(t, tt_arena_printf(t->arena, "network namespaces are not permitted here: %s", said));
	TT_CHECK_MSG(t, status == 0 && strstr(said, "1 mesh proven, in 2 runs"), "%s", said);
	static const struct { const char *fault, *said; int lives; } cases[] = {
		{ "stop:3:losses of rows:2", "and it has given no sign of life for", 3 }, /* said from 3 s on, the last sign may come some time after the wait has begun */
		{ "fail:3:losses of rows:2", "rank 3: a fault of a test", 4 },
		{ "kill:3:losses of rows:2", "rank 3 has not come", 1 }, /* the launcher may be faster than the words of the others */
	};
	for (int i = 0; i < TT_COUNT(cases); i++) {
		status = shell(t, tt_arena_printf(t->arena, "TITAN_FAULT='%s' tests/namespaces.sh -x TITAN_FAULT %s %s --training.steps=3 --job.dump_folder=%s "
			"--parallelism.data_parallel_shard_degree=2 --parallelism.tensor_parallel_degree=2 --comm.train_timeout_seconds=6", cases[i].fault, beside(t, "titan"), RUN,
			tt_test_path(t, tt_arena_printf(t->arena, "run-%d", i))), &said);
		TT_CHECK_MSG(t, status != 0 && count(said, cases[i].said) >= cases[i].lives, "%s: \"%s\" is not said %d times: %s", cases[i].fault, cases[i].said, cases[i].lives,
			     said);
	}
}

/* Under a Slurm of this machine's own: the MPI that speaks with it is found, the bits are one rank's, who was killed or stopped is named. */
static void under_srun(tt_test *t)
{
	static const char *const pmi[] = { "pmix", "pmi2" };
	static const struct { const char *fault, *said, *more; } cases[] = {
		{ "kill:2:losses of rows:1", "; rank 2 has not come, its last exchange known here was", "" },
		{ "stop:2:init:1", "rank 2 is there, and its process", "--comm.init_timeout_seconds=3" },
	};
	if (access("tests/slurm.sh", X_OK))
		TT_SKIP(t, "tests/ is not here");
	for (int m = 0; m < TT_COUNT(mpis); m++) {
		NEEDS(t, m);
		char *said;
		const char *srun = tt_arena_printf(t->arena, "tests/slurm.sh srun --mpi=%s -n 4 --overcommit %s", pmi[m], beside(t, "titan"));
		int status = shell(t, tt_arena_printf(t->arena, "%s verify configs/debug.toml --mesh=dp_shard=2,tp=2", srun), &said);
		if (WIFEXITED(status) && WEXITSTATUS(status) == 77)
			TT_SKIP(t, said);
		TT_CHECK_MSG(t, status == 0 && strstr(said, "1 mesh proven, in 2 runs") && strstr(said, "processes of an MPI job"), "%s: %s", pmi[m], said);
		for (int i = 0; i < TT_COUNT(cases); i++) {
			status = shell(t, tt_arena_printf(t->arena, "TITAN_FAULT='%s' %s %s --training.steps=3 --job.dump_folder=%s --parallelism.data_parallel_shard_degree=2 "
				"--parallelism.tensor_parallel_degree=2 %s", cases[i].fault, srun, RUN, tt_test_path(t, tt_arena_printf(t->arena, "srun-%d-%d", m, i)), cases[i].more), &said);
			TT_CHECK_MSG(t, status != 0 && strstr(said, cases[i].said), "%s, %s: %s", pmi[m], cases[i].fault, said);
		}
		status = shell(t, tt_arena_printf(t->arena, "TITAN_MPI=%s %s verify configs/debug.toml --mesh=dp_shard=2,tp=2", mpis[!m].mpi, srun), &said);
		TT_CHECK_MSG(t, status != 0 && (m || strstr(said, "they are not of one MPI")), "%s of another MPI: %s", pmi[m], said);
	}
}

const tt_case tt_suite_mpi[] = {
	{ "exchange_openmpi", exchange_openmpi, TT_TIER_QUICK },
	{ "exchange_mpich", exchange_mpich, TT_TIER_QUICK },
	{ "lanes_openmpi", lanes_openmpi, TT_TIER_QUICK },
	{ "lanes_mpich", lanes_mpich, TT_TIER_QUICK },
	{ "train_openmpi", train_openmpi, TT_TIER_QUICK },
	{ "train_mpich", train_mpich, TT_TIER_CI },
	{ "stopped", stopped_quick, TT_TIER_QUICK },
	{ "stopped_all", stopped_all, TT_TIER_CI },
	{ "stopped_early", stopped_early, TT_TIER_CI },
	{ "saves_openmpi", saves_openmpi, TT_TIER_QUICK },
	{ "saves_mpich", saves_mpich, TT_TIER_CI },
	{ "moves", moves, TT_TIER_CI },
	{ "killed", killed, TT_TIER_CI },
	{ "other_folder", other_folder, TT_TIER_CI },
	{ "trouble", trouble_quick, TT_TIER_QUICK },
	{ "trouble_openmpi", trouble_openmpi, TT_TIER_CI },
	{ "trouble_mpich", trouble_mpich, TT_TIER_CI },
	{ "differ", differ, TT_TIER_CI },
	{ "verify", verify, TT_TIER_CI },
	{ "namespaces", namespaces, TT_TIER_CI },
	{ "srun", under_srun, TT_TIER_CI },
	{ "fast_bits", fast_bits, TT_TIER_CI },
	{ 0 },
};
