/* threads.c: ranks are threads of one process. They meet, look into each other's memory, and part.
 *
 * A meet is one group's meeting place. A member posts its exchange in its slot and arrives; the last one to arrive opens the meet
 * by storing the exchange's number in `open`, the word the others sleep on. They read what they take where it lies, then leave
 * likewise: the last one closes. So nobody changes what others still read, and nobody begins the next exchange before all have ended
 * this one: counters and slots need no second copy.
 *
 * Abort and the end of a rank flip POKE in both words of every meet, so that a sleeper whose last look came before sees the word
 * changed and looks again. A rank that leaves after an abort first waits for those who are reading: its memory may go next.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "comm/internal.h"

enum { LINE = 64 };
#define POKE (1u << 31)
#define SEQ (POKE - 1)

typedef struct slot {
	_Alignas(LINE) _Atomic uint32_t arrived, left; /* number of the last exchange it has posted, and left */
	_Atomic(const tt_exchange *) x;
} slot;

typedef struct meet {
	struct meet *next;
	const char *name;
	int n;
	int *ranks;
	slot *slots;                                   /* [n] */
	_Alignas(LINE) _Atomic uint32_t open, closed; /* numbers, and POKE */
	_Atomic int arrived, left;                     /* members so far */
	_Atomic int reading;                           /* members that look at others' memory */
} meet;

typedef struct world {
	int n;
	tt_comm *comms;         /* [n] */
	_Atomic bool *ended;    /* [n] */
	tt_recorder *recorders; /* [n] */
	tt_arena *arena;        /* of meets; under `lock` */
	pthread_mutex_t lock;
	meet *meets;
	_Atomic bool aborted; /* set once, after the fields below */
	tt_status code;
	int culprit;
	char text[4096];
	tt_rank_fn *fn;
	void *ctx;
} world;

static void poke(_Atomic uint32_t *word)
{
	atomic_fetch_xor(word, POKE);
	(void)syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
}

static void poke_all(world *w)
{
	pthread_mutex_lock(&w->lock);
	for (meet *m = w->meets; m; m = m->next) {
		poke(&m->open);
		poke(&m->closed);
	}
	pthread_mutex_unlock(&w->lock);
}

static void threads_abort(tt_comm *c, tt_status code, const char *text)
{
	world *w = c->world;
	pthread_mutex_lock(&w->lock);
	bool first = !atomic_load(&w->aborted);
	if (first) {
		w->code = code;
		w->culprit = c->rank;
		strncpy(w->text, text, sizeof w->text - 1);
		atomic_store(&w->aborted, true);
	}
	pthread_mutex_unlock(&w->lock);
	if (first)
		poke_all(w);
}

static tt_status adopt(const world *w) { TT_FAIL(w->code, "%s", w->text); }

static tt_status threads_open(tt_comm_group *g)
{
	world *w = g->comm->world;
	pthread_mutex_lock(&w->lock);
	meet *m = w->meets;
	while (m && !(m->n == g->n && !strcmp(m->name, g->name) && !memcmp(m->ranks, g->ranks, sizeof *g->ranks * (size_t)g->n)))
		m = m->next;
	if (!m) {
		/* the arena aligns to 16; whole lines for what many look at */
		m = (meet *)tt_round_up((int64_t)(uintptr_t)tt_arena_alloc(w->arena, sizeof *m + LINE), LINE);
		m->name = tt_arena_strdup(w->arena, g->name);
		m->n = g->n;
		m->ranks = TT_NEWN(w->arena, int, g->n);
		memcpy(m->ranks, g->ranks, sizeof *g->ranks * (size_t)g->n);
		m->slots = (slot *)tt_round_up((int64_t)(uintptr_t)tt_arena_alloc(w->arena, sizeof *m->slots * (size_t)g->n + LINE), LINE);
		m->next = w->meets;
		w->meets = m;
	}
	pthread_mutex_unlock(&w->lock);
	g->own = m;
	return TT_OK;
}

/* Those whom this rank waits for: they have not posted (or, `leaving`, not left) exchange number `seq`. */
static tt_status late(const tt_comm_group *g, uint32_t seq, bool leaving, const tt_exchange *x, double waited, bool ended)
{
	const world *w = g->comm->world;
	const meet *m = g->own;
	tt_buf b = { 0 };
	tt_buf_printf(&b, "rank %d waits in %s #%lld of %s \"%s\"", g->comm->rank, x->kind, (long long)g->seq, g->name, x->name);
	if (!ended)
		tt_buf_printf(&b, " for %.1f s (comm.train_timeout_seconds, comm.init_timeout_seconds)", waited);
	for (int i = 0; i < g->n; i++) {
		uint32_t at = leaving ? atomic_load(&m->slots[i].left) : atomic_load(&m->slots[i].arrived);
		if (at == seq)
			continue;
		int r = g->ranks[i];
		tt_buf_printf(&b, "; rank %d %s, its last exchange was ", r, atomic_load(&w->ended[r]) ? "has ended" : leaving ? "still reads" : "has not come");
		tt_recorder_newest(&w->recorders[r], &b);
	}
	tt_error_set(TT_ERR_COMM, __FILE__, __LINE__, "%s", b.s);
	tt_buf_fini(&b);
	return TT_ERR_COMM;
}

static bool somebody_ended(const tt_comm_group *g, uint32_t seq)
{
	const world *w = g->comm->world;
	const meet *m = g->own;
	for (int i = 0; i < g->n; i++)
		if (atomic_load(&m->slots[i].arrived) != seq && atomic_load(&w->ended[g->ranks[i]]))
			return true;
	return false;
}

/* Sleeps until `word` says `seq`. */
static tt_status wait_for(const tt_comm_group *g, _Atomic uint32_t *word, uint32_t seq, bool leaving, const tt_exchange *x)
{
	const tt_comm *c = g->comm;
	const world *w = c->world;
	/* A process that is stopped, or a machine that sleeps, is not late: a nap that took longer than asked counts as long as it was asked for. */
	enum { NAP = 1 };
	double began = tt_now(), spin = began + 1e-6 * c->spin_us, waited = 0, most = tt_group_timeout(g);
	while (c->spin_us > 0 && tt_now() < spin)
		for (int i = 0; i < 32; i++)
			if ((atomic_load_explicit(word, memory_order_acquire) & SEQ) == seq)
				return TT_OK;
	for (;;) {
		uint32_t v = atomic_load(word);
		if ((v & SEQ) == seq)
			return TT_OK;
		if (atomic_load(&w->aborted))
			return adopt(w);
		if (!leaving && somebody_ended(g, seq))
			return late(g, seq, leaving, x, 0, true);
		double rest = most > 0 ? most - waited : NAP, nap = TT_MIN(rest, (double)NAP), slept = tt_now();
		if (rest <= 0)
			return late(g, seq, leaving, x, most, false);
		struct timespec t = { (time_t)nap, (long)(1e9 * (nap - (double)(time_t)nap)) };
		(void)syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, v, &t, NULL, 0);
		waited += TT_MIN(tt_now() - slept, nap);
	}
}

/* The last member stores the number and wakes the others. */
static tt_status step(tt_comm_group *g, _Atomic int *count, _Atomic uint32_t *word, uint32_t seq, bool leaving, const tt_exchange *x)
{
	if (atomic_fetch_add(count, 1) + 1 < g->n)
		return wait_for(g, word, seq, leaving, x);
	atomic_store(count, 0);
	atomic_store(word, seq);
	(void)syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
	return TT_OK;
}

/* After an abort: until nobody reads any more. A reader does not block, so this is short. */
static void wait_for_readers(meet *m)
{
	while (atomic_load(&m->reading))
		(void)sched_yield();
}

/* Of several whose waits are over at once one was the first: its text is everybody's. The others may see that it has ended, and take that for the cause. */
static tt_status ended(tt_comm_group *g, tt_status s)
{
	const world *w = g->comm->world;
	threads_abort(g->comm, s, tt_error_text());
	wait_for_readers(g->own);
	return w->culprit == g->comm->rank ? s : adopt(w);
}

static bool same_shape(const tt_block *a, const tt_block *b)
{
	if (!tt_block_bytes(a) || !tt_block_bytes(b))
		return tt_block_bytes(a) == tt_block_bytes(b);
	return a->planes == b->planes && a->lines == b->lines && a->bytes == b->bytes;
}

/* One block from member i. */
static tt_status look_at(const tt_comm_group *g, const tt_exchange *x, int i, const tt_block *from, tt_block *to)
{
	if (!same_shape(from, to))
		TT_FAIL(TT_ERR_COMM, "%s #%lld of %s \"%s\": rank %d gives rank %d %lld x %lld lines of %lld bytes, it expects %lld x %lld of %lld",
			x->kind, (long long)g->seq, g->name, x->name, g->ranks[i], g->comm->rank, (long long)from->planes,
			(long long)from->lines, (long long)from->bytes, (long long)to->planes, (long long)to->lines, (long long)to->bytes);
	to->p = from->p;
	to->plane = from->plane;
	to->ld = from->ld;
	return TT_OK;
}

/* Fills x->take from what the others have posted, or says who came with something else. */
static tt_status look(tt_comm_group *g, tt_exchange *x)
{
	meet *m = g->own;
	for (int i = 0; i < g->n; i++) {
		const tt_exchange *o = atomic_load_explicit(&m->slots[i].x, memory_order_relaxed);
		if (strcmp(o->kind, x->kind) || strcmp(o->name, x->name))
			TT_FAIL(TT_ERR_COMM, "exchange #%lld of %s: rank %d comes with %s \"%s\", rank %d with %s \"%s\": their programs differ",
				(long long)g->seq, g->name, g->comm->rank, x->kind, x->name, g->ranks[i], o->kind, o->name);
		if (tt_exchange_parts(o) != tt_exchange_parts(x))
			TT_FAIL(TT_ERR_COMM, "%s #%lld of %s \"%s\": rank %d gives %d parts, rank %d expects %d", x->kind, (long long)g->seq, g->name, x->name,
				g->ranks[i], tt_exchange_parts(o), g->comm->rank, tt_exchange_parts(x));
		for (int p = 0; p < tt_exchange_parts(x); p++)
			TT_TRY(look_at(g, x, i, &o->give[p * g->n + g->index], &x->take[p * g->n + i]));
	}
	return TT_OK;
}

static tt_status threads_arrive(tt_comm_group *g, tt_exchange *x)
{
	world *w = g->comm->world;
	meet *m = g->own;
	uint32_t seq = (uint32_t)g->seq & SEQ;
	if (atomic_load(&w->aborted))
		return adopt(w);
	atomic_store_explicit(&m->slots[g->index].x, x, memory_order_relaxed);
	atomic_store(&m->slots[g->index].arrived, seq);
	tt_status s = step(g, &m->arrived, &m->open, seq, false, x);
	if (!s) {
		atomic_fetch_add(&m->reading, 1);
		s = atomic_load(&w->aborted) ? adopt(w) : look(g, x);
		if (s)
			atomic_fetch_sub(&m->reading, 1);
	}
	return s ? ended(g, s) : TT_OK;
}

static tt_status threads_leave(tt_comm_group *g, tt_exchange *x)
{
	meet *m = g->own;
	uint32_t seq = (uint32_t)g->seq & SEQ;
	atomic_fetch_sub(&m->reading, 1);
	atomic_store(&m->slots[g->index].left, seq);
	tt_status s = step(g, &m->left, &m->closed, seq, true, x);
	return s ? ended(g, s) : TT_OK;
}

static void threads_record(const tt_comm *c, tt_buf *b)
{
	const world *w = c->world;
	for (int i = 0; i < w->n; i++)
		tt_recorder_print(&w->recorders[i], i, TT_RECORD, b);
}

static const tt_comm_backend backend = {
	.name = "threads", .sees_memory = true, .open = threads_open, .arrive = threads_arrive, .leave = threads_leave, .abort = threads_abort,
	.record = threads_record,
};

/* ---- a world of threads ------------------------------------------------------------------------------------------------------------------ */

static void *rank_main(void *arg)
{
	tt_comm *c = arg;
	world *w = c->world;
	if (w->n > 1)
		tt_thread_set(c->rank, NULL);
	tt_status s = w->fn(c, w->ctx);
	if (s)
		threads_abort(c, s, tt_error_text());
	atomic_store(&w->ended[c->rank], true);
	poke_all(w);
	return NULL;
}

tt_status tt_comm_threads(int n, const tt_comm_options *o, tt_rank_fn *fn, void *ctx)
{
	TT_ASSERT(n >= 1, "%d ranks", n);
	tt_arena *a = tt_arena_create("comm");
	world *w = TT_NEW(a, world);
	*w = (world){ .n = n, .comms = TT_NEWN(a, tt_comm, n), .ended = TT_NEWN(a, _Atomic bool, n), .recorders = TT_NEWN(a, tt_recorder, n),
		      .arena = tt_arena_create("comm.meets"), .fn = fn, .ctx = ctx };
	pthread_mutex_init(&w->lock, NULL);
	for (int i = 0; i < n; i++)
		w->comms[i] = (tt_comm){ .backend = &backend, .world = w, .rank = i, .size = n, .neighbours = n, .timeout_s = o->init_timeout_s, .delay_us = o->delay_us,
					 .spin_us = o->spin_us, .arena = tt_arena_create("comm.rank"), .recorder = &w->recorders[i] };
	pthread_t *threads = TT_NEWN(a, pthread_t, n);
	int started = 1, refused = 0;
	for (; started < n && !refused; started += !refused)
		refused = pthread_create(&threads[started], NULL, rank_main, &w->comms[started]);
	if (refused) {
		errno = refused;
		tt_error_set(TT_ERR_MEMORY, __FILE__, __LINE__, "the system refused the thread of rank %d of %d: %m", started, n);
		threads_abort(&w->comms[0], TT_ERR_MEMORY, tt_error_text());
		atomic_store(&w->ended[0], true);
	} else {
		int rank;
		const char *scope;
		tt_thread_get(&rank, &scope);
		rank_main(&w->comms[0]);
		tt_thread_set(rank, scope);
	}
	for (int i = 1; i < started; i++)
		pthread_join(threads[i], NULL);
	bool failed = atomic_load(&w->aborted);
	tt_status code = w->code;
	if (failed && n > 1 && code != TT_ERR_COMM && code != TT_ERR_USAGE) /* those name ranks themselves; these are the same on all */
		tt_error_set(code, __FILE__, __LINE__, "rank %d: %s", w->culprit, w->text);
	else if (failed)
		tt_error_set(code, __FILE__, __LINE__, "%s", w->text);
	for (int i = 0; i < n; i++)
		tt_arena_destroy(w->comms[i].arena);
	tt_arena_destroy(w->arena);
	pthread_mutex_destroy(&w->lock);
	tt_arena_destroy(a);
	return failed ? code : TT_OK;
}
