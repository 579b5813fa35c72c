/* job.c: a process of an MPI job from its launch to its end: MPI_Init, who is who, the rank's work, and how all come to end when one has an error. */
#define _GNU_SOURCE
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "base/machine.h"
#include "comm/mpi.h"

/* MPI can be opened once in a process: third-party state. NULL: it is not. */
static tt_mpi_world *opened;
static bool was_open; /* now or before */
/* SIGTERM of a launcher that ends the job because a rank has died, before a command's own handler stands. */
static volatile sig_atomic_t terminated;

static void on_term(int number)
{
	if (terminated)
		signal(number, SIG_DFL), raise(number);
	terminated = 1;
}

/* Who is who. A program of another version is refused: its exchanges may differ in ways that no check sees. */
static tt_status greet(tt_mpi_world *w, tt_comm_group *g)
{
	tt_comm *c = &w->comm;
	tt_mpi_hello *all = TT_NEWN(w->arena, tt_mpi_hello, c->size), mine;
	tt_mpi_hello_fill(&mine);
	TT_TRY(tt_comm_all_gather(g, "hello", &mine, sizeof mine, all));
	pthread_mutex_lock(&w->lock);
	for (int i = 0; i < c->size; i++) {
		w->peers[i].hello = all[i];
		w->peers[i].heard = tt_now();
		w->programs[i] = all[i].program;
		w->machines[i] = all[i].machine;
		c->neighbours += all[i].machine == mine.machine && all[i].cores == mine.cores;
	}
	c->programs = w->programs;
	c->machines = w->machines;
	if (c->neighbours > tt_machine_threads())
		c->spin_us = 0; /* a rank that spins keeps another from working */
	pthread_mutex_unlock(&w->lock);
	w->near = tt_mpi_all_near(w);
	for (int i = 0; i < c->size; i++)
		if (strcmp(all[i].version, all[0].version))
			TT_FAIL(TT_ERR_USAGE, "rank %d, on %s, is titan %s, and rank 0, on %s, is titan %s: all must be one", i, all[i].host, all[i].version, all[0].host,
				all[0].version);
	return TT_OK;
}

static tt_status listen_to_all(tt_mpi_world *w)
{
	tt_block e = tt_mpi_flat(&w->end_in, sizeof w->end_in), b = tt_mpi_flat(&w->beat_in, sizeof w->beat_in);
	pthread_mutex_lock(&w->lock);
	int r = w->api->recv(TT_MPI_ABORT, -1, 0, &e, &w->end_request);
	if (!r)
		r = w->api->recv(TT_MPI_BEAT, -1, 0, &b, &w->beat_request);
	pthread_mutex_unlock(&w->lock);
	return r ? tt_mpi_error(w, r, "listening to all ranks") : TT_OK;
}

static tt_status start(tt_mpi_world *w, const tt_comm_launch *l)
{
	int rank, size;
	TT_TRY(tt_mpi_open(l, &w->api));
	TT_TRY(tt_mpi_beater_start(w));
	tt_mpi_fault_read(w);
	(void)!tt_mpi_fault_at(w, "init", "");
	int r = w->api->init(&rank, &size, &w->tag_most);
	if (r)
		TT_FAIL(TT_ERR_COMM, "MPI_Init of %s failed (%d)", w->api->name, r);
	opened = w;
	was_open = true;
	if (rank != l->rank || size != l->size)
		TT_FAIL(TT_ERR_USAGE, "%s started rank %d of %d, its MPI, %s, says rank %d of %d: they are not of one MPI (TITAN_MPI=openmpi or mpich says which plug-in to take)",
			l->by, l->rank, l->size, w->api->version(), rank, size);
	TT_TRY(listen_to_all(w));
	atomic_store(&w->up, true);
	return TT_OK;
}

/* MPIs set handlers of their own, as they are opened and in MPI_Init: MPICH one of SIGUSR1, its transport (UCX) one of SIGHUP, that makes it say more. Neither is
 * wanted, so what stood before stands again, and what came meanwhile comes then, whichever thread would have had it. MPICH's launcher sends SIGUSR1 when a
 * rank has died: that is no reason to die, too; and MPICH's handler has each rank ask the launcher for the dead, one of whom it tries to answer, at which it
 * breaks down (hydra 4.0) and takes what ranks have yet to say with it. */
static tt_status start_with_our_signals(tt_mpi_world *w, const tt_comm_launch *l)
{
	static const int taken[] = { SIGUSR1, SIGHUP };
	struct sigaction ours[TT_COUNT(taken)];
	sigset_t held, before;
	sigemptyset(&held);
	for (int i = 0; i < TT_COUNT(taken); i++) {
		sigaddset(&held, taken[i]);
		sigaction(taken[i], NULL, &ours[i]);
	}
	if (ours[0].sa_handler == SIG_DFL)
		ours[0] = (struct sigaction){ .sa_handler = SIG_IGN };
	pthread_sigmask(SIG_BLOCK, &held, &before);
	tt_status s = start(w, l);
	for (int i = 0; i < TT_COUNT(taken); i++)
		sigaction(taken[i], &ours[i], NULL);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	return s;
}

/* *stopped: a rank's `fn` was asked to end, TT_ERR_STOP, and all have come to their end. */
static tt_status live(tt_mpi_world *w, tt_rank_fn *fn, void *ctx, bool *stopped)
{
	tt_comm_group *g;
	TT_TRY(tt_comm_group_all(&w->comm, "world", &g));
	TT_TRY(greet(w, g));
	tt_status mine = fn(&w->comm, ctx);
	if (mine != TT_ERR_STOP) /* which is no error: its run was asked to end, and has ended on all ranks */
		TT_TRY(mine);
	char *text = tt_arena_strdup(w->arena, mine ? tt_error_text() : "");
	atomic_store(&w->ended, true);
	tt_comm_set_timeout(&w->comm, 0); /* rank 0 may be long with its last file */
	int32_t how = mine, *all = TT_NEWN(w->arena, int32_t, w->comm.size);
	TT_TRY(tt_comm_all_gather(g, "end", &how, sizeof how, all));
	for (int i = 0; i < w->comm.size; i++)
		*stopped |= all[i] == TT_ERR_STOP;
	if (*stopped) /* who knows why says it */
		tt_error_set(TT_ERR_STOP, __FILE__, __LINE__, "%s", text);
	return TT_OK;
}

tt_status tt_comm_mpi(const tt_comm_options *o, tt_rank_fn *fn, void *ctx)
{
	tt_comm_launch l;
	TT_TRY(tt_comm_launched(&l));
	TT_ASSERT(l.size > 1 && !opened, "%d ranks, MPI is %s", l.size, opened ? "open" : "not open");
	tt_arena *a = tt_arena_create("comm");
	tt_mpi_world *w = TT_NEW(a, tt_mpi_world);
	*w = (tt_mpi_world){ .arena = a, .asked = o->asked, .hear = o->hear, .peers = TT_NEWN(a, tt_mpi_peer, l.size), .programs = TT_NEWN(a, uint64_t, l.size), .machines = TT_NEWN(a, uint64_t, l.size),
			     .init_timeout_s = o->init_timeout_s, .listens = -1, .waits_for = -1, .terminated = &terminated, .period = TT_MAX(0.5, l.size / 64.0) };
	w->message_bytes = o->message_bytes ? o->message_bytes : TT_MPI_MOST;
	w->comm = (tt_comm){ .backend = &tt_mpi_backend, .world = w, .rank = l.rank, .size = l.size, .timeout_s = o->init_timeout_s, .silence_s = o->init_timeout_s,
			     .delay_us = o->delay_us, .spin_us = o->spin_us, .arena = tt_arena_create("comm.rank"), .recorder = &w->recorder };
	pthread_mutex_init(&w->lock, NULL);
	pthread_cond_init(&w->wake, NULL);
	for (int i = 0; i < l.size; i++)
		w->peers[i].beat.waits_for = -1;
	tt_thread_set(l.rank, NULL);
	(void)prctl(PR_SET_TIMERSLACK, 1000UL, 0, 0, 0); /* ns, of this thread and those it makes: a nap of 20 us would be one of 75 */
	struct sigaction was, term = { .sa_handler = on_term, .sa_flags = SA_RESTART };
	if (sigaction(SIGTERM, NULL, &was) == 0 && was.sa_handler == SIG_DFL)
		sigaction(SIGTERM, &term, NULL);
	tt_status s = start_with_our_signals(w, &l);
	if (s) { /* each rank finds out alone */
		atomic_store(&w->adopted, true);
		tt_mpi_over(w, s, l.rank, tt_error_text());
		return s;
	}
	bool stopped = false;
	s = live(w, fn, ctx, &stopped);
	if (s) {
		tt_mpi_backend.abort(&w->comm, s, tt_error_text());
		atomic_store(&w->adopted, true);
		s = (tt_status)w->end.code;
		if (s != TT_ERR_COMM && s != TT_ERR_USAGE) /* those name ranks themselves; these are the same on all */
			tt_error_set(s, __FILE__, __LINE__, "rank %d: %s", w->end.culprit, w->end.text);
		else
			tt_error_set(s, __FILE__, __LINE__, "%s", w->end.text);
		return s; /* the world stays, for tt_comm_leave */
	}
	tt_mpi_beater_stop(w);
	tt_mpi_part(w);
	w->api->finish();
	opened = NULL;
	for (tt_comm_group *g = w->comm.groups; g; g = g->next)
		tt_mpi_group_close(g);
	tt_arena_destroy(w->comm.arena);
	pthread_mutex_destroy(&w->lock);
	pthread_cond_destroy(&w->wake);
	tt_arena_destroy(a);
	return stopped ? TT_ERR_STOP : TT_OK;
}

bool tt_comm_given_up(const tt_comm *c)
{
	return c->backend == &tt_mpi_backend && atomic_load(&((const tt_mpi_world *)c->world)->aborted);
}

void tt_comm_leave(int code)
{
	if (!opened) {
		if (code && !was_open) /* others may wait for this rank in MPI_Init */
			tt_mpi_end_job(code);
		return;
	}
	/* Once one has gone the launcher ends the others, at once, and they want to say their text, too. */
	enum { PATIENCE = 3 };
	double until = tt_now() + PATIENCE;
	tt_mpi_unlisten(opened);
	if (!opened->near)
		tt_mpi_sleep(0.6);
	while (tt_now() < until && tt_mpi_others_speak(opened))
		tt_mpi_sleep(0.05);
	tt_mpi_sleep(0.25); /* what was written is still on its way through the launcher, which drops it when it aborts */
	opened->api->abort(code);
}

tt_status tt_comm_raw(tt_comm *c, tt_comm_raw_what what, const float *in, float *out, int n)
{
	if (c->backend != &tt_mpi_backend)
		TT_FAIL(TT_ERR_USAGE, "ranks are %s: there is no MPI to compare with", c->backend->name);
	tt_mpi_world *w = c->world;
	pthread_mutex_lock(&w->lock);
	int (*const call[])(const float *, float *, int) = { w->api->raw_all_gather, w->api->raw_reduce_scatter, w->api->raw_all_to_all };
	int r = call[what](in, out, n);
	pthread_mutex_unlock(&w->lock);
	return r ? tt_mpi_error(w, r, "a collective of the MPI's own") : TT_OK;
}
