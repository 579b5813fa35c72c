/* The worker pool. One run at a time is open; lanes take chunks of its indexes from a shared counter.
 *
 * `state` says who may touch the job: OPEN while lanes may join, and how many workers are inside. A worker joins only
 * by a compare-and-swap on an open state, and the caller returns only once the state is closed and empty. So the job's
 * fields, written while nobody is inside, need no atomics, and a worker that wakes late joins a later run or none: the
 * caller never waits for a worker that has not started.
 *
 * `epoch` counts runs; workers sleep on it. A worker announces itself in `sleepers` before it sleeps, the caller counts
 * the epoch up before it looks at `sleepers`, both sequentially consistent: either the caller sees the sleeper, or the
 * sleeper sees the epoch.
 */
#define _GNU_SOURCE
#include "base/base.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { MAX_THREADS = 1024, CHUNKS_PER_LANE = 8, LINE = 64 };
enum { OPEN = 1u << 31, WAITING = 1u << 30, INSIDE = WAITING - 1 };

typedef struct worker {
	tt_pool *pool;
	pthread_t thread;
	int lane;
} worker;

struct tt_pool {
	int threads, spin_us;
	worker *workers; /* [threads - 1]; lanes 1.. */
	/* the job */
	tt_pool_fn *fn;
	void *ctx;
	int64_t n, chunk;
	int rank;
	const char *scope;
	/* One cache line each: the counter is hit by all lanes all the time. */
	_Alignas(LINE) _Atomic int64_t next;
	_Alignas(LINE) _Atomic uint32_t state;
	_Alignas(LINE) _Atomic uint32_t epoch;
	_Atomic uint32_t sleepers;
	_Atomic bool stop;
};

static void futex_wait(_Atomic uint32_t *word, uint32_t seen)
{
	(void)syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, seen, NULL, NULL, 0);
}

static void futex_wake(_Atomic uint32_t *word, int count)
{
	(void)syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, count, NULL, NULL, 0);
}

static void relax(void)
{
#if defined(__x86_64__)
	__builtin_ia32_pause();
#elif defined(__aarch64__)
	__asm__ volatile("yield");
#endif
}

/* Spins until word & mask differs from `seen` (true) or spin_us is over (false). */
static bool spin_change(_Atomic uint32_t *word, uint32_t mask, uint32_t seen, int spin_us)
{
	if (spin_us <= 0)
		return (atomic_load(word) & mask) != seen;
	double end = tt_now() + 1e-6 * spin_us;
	do {
		for (int i = 0; i < 32; i++) {
			if ((atomic_load_explicit(word, memory_order_acquire) & mask) != seen)
				return true;
			relax();
		}
	} while (tt_now() < end);
	return false;
}

static void drain(tt_pool *p, int lane)
{
	int64_t n = p->n, chunk = p->chunk;
	for (;;) {
		int64_t i = atomic_fetch_add_explicit(&p->next, chunk, memory_order_relaxed);
		if (i >= n)
			return;
		int64_t end = TT_MIN(i + chunk, n);
		for (; i < end; i++)
			p->fn(p->ctx, i, lane);
	}
}

static bool join_run(tt_pool *p)
{
	uint32_t s = atomic_load_explicit(&p->state, memory_order_relaxed);
	while (s & OPEN)
		if (atomic_compare_exchange_weak_explicit(&p->state, &s, s + 1, memory_order_acq_rel, memory_order_relaxed))
			return true;
	return false;
}

static void leave_run(tt_pool *p)
{
	uint32_t left = atomic_fetch_sub_explicit(&p->state, 1, memory_order_acq_rel) - 1;
	if (left == WAITING)
		futex_wake(&p->state, 1);
}

static void *work(void *arg)
{
	worker *w = arg;
	tt_pool *p = w->pool;
	char name[16];
	snprintf(name, sizeof name, "tt-lane-%d", w->lane);
	(void)pthread_setname_np(pthread_self(), name);
	uint32_t seen = 0;
	for (;;) {
		if (!spin_change(&p->epoch, UINT32_MAX, seen, p->spin_us)) {
			atomic_fetch_add(&p->sleepers, 1);
			while (atomic_load(&p->epoch) == seen)
				futex_wait(&p->epoch, seen);
			atomic_fetch_sub(&p->sleepers, 1);
		}
		seen = atomic_load(&p->epoch);
		if (atomic_load(&p->stop))
			return NULL;
		if (!join_run(p))
			continue;
		tt_thread_set(p->rank, p->scope);
		drain(p, w->lane);
		leave_run(p);
	}
}

/* Ends the first `started` workers. */
static void stop_workers(tt_pool *p, int started)
{
	atomic_store(&p->stop, true);
	atomic_fetch_add(&p->epoch, 1);
	futex_wake(&p->epoch, INT_MAX);
	for (int i = 0; i < started; i++)
		pthread_join(p->workers[i].thread, NULL);
	free(p->workers);
	free(p);
}

tt_status tt_pool_create(int threads, int spin_us, tt_pool **out)
{
	if (threads < 1 || threads > MAX_THREADS)
		TT_FAIL(TT_ERR_USAGE, "worker pool: %d threads asked for, 1 to %d can be had (hardware.threads)", threads,
			MAX_THREADS);
	tt_pool *p = aligned_alloc(LINE, sizeof *p);
	worker *workers = calloc((size_t)threads, sizeof *workers);
	TT_ASSERT(p && workers, "the machine has no memory left for a pool of %d threads", threads);
	memset(p, 0, sizeof *p);
	p->threads = threads;
	p->spin_us = spin_us;
	p->workers = workers;
	for (int i = 0; i < threads - 1; i++) {
		workers[i] = (worker){.pool = p, .lane = i + 1};
		int e = pthread_create(&workers[i].thread, NULL, work, &workers[i]);
		if (e) {
			stop_workers(p, i);
			errno = e;
			TT_FAIL(TT_ERR_MEMORY, "worker pool: the system refused thread %d of %d (hardware.threads): %m", i + 1, threads);
		}
	}
	*out = p;
	return TT_OK;
}

void tt_pool_destroy(tt_pool *p)
{
	if (p)
		stop_workers(p, p->threads - 1);
}

int tt_pool_threads(const tt_pool *p) { return p ? p->threads : 1; }

void tt_pool_run(tt_pool *p, int64_t n, tt_pool_fn *fn, void *ctx)
{
	if (!p || p->threads == 1 || n <= 1) {
		for (int64_t i = 0; i < n; i++)
			fn(ctx, i, 0);
		return;
	}
	TT_ASSERT(atomic_load_explicit(&p->state, memory_order_acquire) == 0, "a worker pool runs one job at a time");
	p->fn = fn;
	p->ctx = ctx;
	p->n = n;
	p->chunk = TT_MAX(n / ((int64_t)p->threads * CHUNKS_PER_LANE), (int64_t)1);
	tt_thread_get(&p->rank, &p->scope);
	atomic_store_explicit(&p->next, 0, memory_order_relaxed);
	atomic_store_explicit(&p->state, (uint32_t)OPEN, memory_order_release);
	atomic_fetch_add(&p->epoch, 1);
	if (atomic_load(&p->sleepers))
		futex_wake(&p->epoch, (int)TT_MIN(n - 1, (int64_t)p->threads - 1));
	drain(p, 0);
	/* Close; then wait for those inside, first spinning, then asleep with WAITING set for the last one to see. */
	uint32_t s = atomic_fetch_and_explicit(&p->state, ~(uint32_t)OPEN, memory_order_acq_rel) & ~(uint32_t)OPEN;
	double end = s ? tt_now() + 1e-6 * p->spin_us : 0;
	while (s & INSIDE) {
		if (!(s & WAITING) && tt_now() >= end) {
			if (!atomic_compare_exchange_weak(&p->state, &s, s | WAITING))
				continue;
			s |= WAITING;
		}
		if (s & WAITING)
			futex_wait(&p->state, s);
		else
			relax();
		s = atomic_load_explicit(&p->state, memory_order_acquire);
	}
	atomic_store_explicit(&p->state, 0, memory_order_relaxed);
}
