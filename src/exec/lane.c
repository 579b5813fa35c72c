/* lane.c: a rank's communication lanes. Exchanges of a lane are posted in program order and run in that order, one at a time, by whoever has the lane's
 * token: its thread, asleep while there is nothing to do, or the compute lane where it has to wait for one and finds the token free. So each group of
 * comm sees one thread at a time and the same order on all ranks, and an exchange that is waited for at once costs no switch of threads. Lanes have groups
 * of their own (comm/comm.h), and no order among each other but what the compute lane makes by its waits: it posts an exchange when those of other
 * lanes that it depends on have ended.
 *
 * `posted` and `done` count exchanges since the start; a ticket is the value of `posted` after a post. The lane's thread sleeps on `kick`, the compute
 * lane on `done`; who sleeps has said so before it looked for the last time, who changes a word looks for sleepers after that (sequentially
 * consistent, as in base/pool.c).
 */
#define _GNU_SOURCE
#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "comm/comm.h"
#include "exec/internal.h"

enum { LINE = 64 };

struct lane {
	tt_exec *e;
	tt_comm_lane which;
	pthread_t thread;
	bool started;
	int rank;
	instr **ring;
	uint32_t cap;          /* a power of two, more than are ever outstanding */
	uint32_t accounted;    /* exchanges whose time has been counted; the compute lane's */
	char text[4096];       /* of the first error: written before `failed`, never again */
	_Atomic int failed;    /* its code. Not tt_comm_axes.status, which an exchange under way may write */
	_Alignas(LINE) _Atomic uint32_t posted, kick;
	_Atomic bool lane_sleeps, stop;
	_Alignas(LINE) _Atomic uint32_t done;
	_Atomic bool compute_sleeps;
	_Alignas(LINE) _Atomic bool token;
};

static void sleep_on(_Atomic uint32_t *word, uint32_t seen) { (void)syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, seen, NULL, NULL, 0); }
static void wake(_Atomic uint32_t *word) { (void)syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0); }

static void kick(lane *l)
{
	atomic_fetch_add(&l->kick, 1);
	if (atomic_load(&l->lane_sleeps))
		wake(&l->kick);
}

static void run_one(lane *l, uint32_t at)
{
	instr *in = l->ring[at & (l->cap - 1)];
	tt_exec *e = l->e;
	tt_status before = e->o.axes->status[l->which], after;
	if (in == &e->beside.in) {
		in->began = tt_now();
		after = e->beside.said = before ? before : e->beside.fn(e->beside.ctx);
		in->ended = tt_now();
	} else {
		run_on_lane(e, in);
		after = e->o.axes->status[l->which];
	}
	if (before || !after || atomic_load(&l->failed))
		return;
	snprintf(l->text, sizeof l->text, "%s", tt_error_text());
	atomic_store(&l->failed, (int)after);
}

/* With the token: runs what is posted until `done` has come to `end`, or, if `all`, to all that is posted meanwhile. */
static void run_until(lane *l, uint32_t end, bool all)
{
	uint32_t at = atomic_load(&l->done);
	while (at != (all ? atomic_load(&l->posted) : end)) {
		run_one(l, at);
		atomic_store(&l->done, ++at);
		if (atomic_load(&l->compute_sleeps))
			wake(&l->done);
	}
}

static bool take_token(lane *l) { return !atomic_load(&l->token) && !atomic_exchange(&l->token, true); }

static void *lane_main(void *arg)
{
	lane *l = arg;
	tt_thread_set(l->rank, NULL);
	static const char *const called[TT_COMM_LANES] = { [TT_COMM_WANTED] = "tt-comm", [TT_COMM_PARAMS] = "tt-comm-params", [TT_COMM_GRADS] = "tt-comm-grads" };
	(void)pthread_setname_np(pthread_self(), called[l->which]);
	for (;;) {
		uint32_t seen = atomic_load(&l->kick);
		if (atomic_load(&l->posted) != atomic_load(&l->done) && take_token(l)) {
			run_until(l, 0, true);
			atomic_store(&l->token, false);
			continue;
		}
		if (atomic_load(&l->stop))
			return NULL;
		atomic_store(&l->lane_sleeps, true);
		if (atomic_load(&l->kick) == seen)
			sleep_on(&l->kick, seen);
		atomic_store(&l->lane_sleeps, false);
	}
}

/* `most`: exchanges outstanding. */
static tt_status lane_open(tt_exec *e, tt_comm_lane which, int64_t most)
{
	lane *l = aligned_alloc(LINE, (size_t)tt_round_up(sizeof *l, LINE));
	TT_ASSERT(l, "out of memory");
	memset(l, 0, sizeof *l);
	l->e = e;
	l->which = which;
	const char *scope;
	tt_thread_get(&l->rank, &scope);
	l->cap = 1;
	while (l->cap <= most)
		l->cap *= 2;
	l->ring = TT_NEWN(e->arena, instr *, l->cap);
	e->lane[which] = l;
	if (e->o.lane != TT_LANE_THREAD)
		return TT_OK;
	int refused = pthread_create(&l->thread, NULL, lane_main, l);
	if (refused)
		TT_FAIL(TT_ERR_MEMORY, "the system refused the thread of a communication lane: error %d", refused);
	l->started = true;
	return TT_OK;
}

tt_status lanes_open(tt_exec *e)
{
	for (tt_comm_lane k = 0; k < TT_COMM_LANES; k++) {
		int64_t most = 0;
		for (int s = 0; s < TT_NSEGS; s++)
			for (int64_t i = 0; i < e->prog[s].ninstrs; i++)
				most += e->prog[s].instrs[i].axes && e->prog[s].instrs[i].lane == k;
		if (most)
			TT_TRY(lane_open(e, k, most));
	}
	return TT_OK;
}

static void lane_close(lane *l)
{
	if (l->started) {
		atomic_store(&l->stop, true);
		kick(l);
		pthread_join(l->thread, NULL);
	}
	free(l);
}

void lanes_close(tt_exec *e)
{
	for (int k = 0; k < TT_COMM_LANES; k++)
		if (e->lane[k])
			lane_close(e->lane[k]);
	memset(e->lane, 0, sizeof e->lane);
}

void lane_post(tt_exec *e, instr *in, bool at_once)
{
	lane *l = e->lane[in->lane];
	uint32_t at = atomic_load_explicit(&l->posted, memory_order_relaxed);
	l->ring[at & (l->cap - 1)] = in;
	in->posted = tt_now();
	in->ticket = at + 1;
	atomic_store(&l->posted, at + 1);
	if (e->lane_now == TT_LANE_EARLY) /* with the token: the lane's thread may still be awake, and would run it too */
		lane_wait(e, in->lane, at + 1);
	else if (e->lane_now == TT_LANE_THREAD && !at_once)
		kick(l);
}

/* Counts what has ended, of that what lay within the wait [from, to]. */
static void account(lane *l, double from, double to)
{
	tt_exec *e = l->e;
	for (uint32_t done = atomic_load(&l->done); l->accounted != done; l->accounted++) {
		instr *in = l->ring[l->accounted & (l->cap - 1)];
		double all = in->ended - in->began, seen = TT_MIN(in->ended, to) - TT_MAX(in->began, from);
		seen = TT_MIN(TT_MAX(seen, 0.0), all);
		in->calls++;
		in->seconds += seen;
		in->exposed = seen;
		tt_exchange_seconds *s = &e->exchange_s[in->axes];
		bool could = in->hides == TT_HIDES || (in->hides == TT_HIDES_AHEAD && in->ahead);
		s->exposed += seen;
		s->hidden += all - seen;
		s->hideable_calls += could ? in->talked : 0;
		s->hideable_bytes += could ? in->took : 0;
	}
}

static bool reached(lane *l, uint32_t ticket) { return (int32_t)(atomic_load(&l->done) - ticket) >= 0; }

void lane_wait(tt_exec *e, tt_comm_lane which, uint32_t ticket)
{
	lane *l = e->lane[which];
	double from = 0;
	while (!reached(l, ticket)) {
		if (!from)
			from = tt_now();
		if (take_token(l)) {
			if (!reached(l, ticket))
				run_until(l, ticket, false);
			atomic_store(&l->token, false);
			if (e->lane_now == TT_LANE_THREAD && atomic_load(&l->posted) != ticket)
				kick(l);
			continue;
		}
		atomic_store(&l->compute_sleeps, true);
		uint32_t seen = atomic_load(&l->done);
		if ((int32_t)(seen - ticket) < 0)
			sleep_on(&l->done, seen);
		atomic_store(&l->compute_sleeps, false);
	}
	if (l->accounted != atomic_load(&l->done))
		account(l, from, from ? tt_now() : 0);
}

void lanes_drain(tt_exec *e)
{
	for (tt_comm_lane k = 0; k < TT_COMM_LANES; k++)
		if (e->lane[k])
			lane_wait(e, k, atomic_load(&e->lane[k]->posted));
}

void tt_exec_beside(tt_exec *e, int axes, tt_status (*fn)(void *ctx), void *ctx)
{
	TT_ASSERT(!e->beside.fn, "two exchanges beside programs");
	e->beside.fn = fn;
	e->beside.ctx = ctx;
	e->beside.in = (instr){.axes = axes, .lane = TT_COMM_WANTED};
	if (!e->lane[TT_COMM_WANTED]) {
		e->beside.said = fn(ctx);
		return;
	}
	lane_post(e, &e->beside.in, false);
	e->beside.ticket = e->beside.in.ticket;
}

tt_status tt_exec_beside_end(tt_exec *e)
{
	TT_ASSERT(e->beside.fn, "no exchange beside programs");
	bool posted = e->lane[TT_COMM_WANTED] != NULL;
	if (posted)
		lane_wait(e, TT_COMM_WANTED, e->beside.ticket);
	e->beside.fn = NULL;
	if (posted && e->beside.said)
		return lanes_status(e);
	return e->beside.said;
}

tt_status lanes_status(tt_exec *e)
{
	for (int k = 0; k < TT_COMM_LANES; k++) {
		tt_status s = e->lane[k] ? (tt_status)atomic_load(&e->lane[k]->failed) : TT_OK;
		if (!s)
			continue;
		tt_error_set(s, __FILE__, __LINE__, "%s", e->lane[k]->text); /* it may have been said on the lane's thread */
		return s;
	}
	return TT_OK;
}
