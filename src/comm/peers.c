/* peers.c: who of an MPI job's ranks lives, and what each did last.
 *
 * MPI says nothing of a process that died or was stopped: who waits for it waits for ever. So every rank has a thread that sleeps most of the time
 * and sends all others a sign of life with the newest line of its flight recorder; and ranks of one machine look each other's processes up.
 * The same thread ends a process whose MPI_Init does not return, and one that was told of an abort and does not come to see it. */
#define _GNU_SOURCE
#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "base/machine.h"
#include "base/version.h"
#include "comm/mpi.h"

void tt_mpi_sleep(double s)
{
	struct timespec t = { (time_t)s, (long)(1e9 * (s - (double)(time_t)s)) };
	while (nanosleep(&t, &t) && errno == EINTR)
		;
}

/* ---- processes of this machine ------------------------------------------------------------------------------------------------------ */

static uint64_t hash_file(const char *path)
{
	tt_map m;
	if (tt_map_open(path, &m) != TT_OK)
		return 0;
	uint64_t h = tt_hash64(m.p, m.n, 0);
	tt_map_close(&m);
	return h;
}

void tt_mpi_hello_fill(tt_mpi_hello *h)
{
	memset(h, 0, sizeof *h);
	strncpy(h->version, TT_VERSION, sizeof h->version - 1);
	gethostname(h->host, sizeof h->host - 1);
	char text[512] = "";
	FILE *f = fopen("/proc/sys/kernel/random/boot_id", "re");
	size_t n = f ? fread(text, 1, 64, f) : 0;
	if (f)
		fclose(f);
	ssize_t k = readlink("/proc/self/ns/pid", text + n, sizeof text - n - 1);
	h->machine = tt_hash64(text, n + (size_t)TT_MAX(k, (ssize_t)0), 0);
	cpu_set_t cores;
	CPU_ZERO(&cores);
	(void)sched_getaffinity(0, sizeof cores, &cores);
	h->cores = tt_hash64(&cores, sizeof cores, h->machine);
	h->program = hash_file("/proc/self/exe");
	h->pid = getpid();
	(void)tt_process_state(h->pid, &h->born);
}

/* ---- before MPI_Init has returned ----------------------------------------------------------------------------------------------------- */

/* Ranks of a node are children of one process. Each listens at a name made of that, and a rank that waits in vain sees who does. */
static socklen_t place(struct sockaddr_un *a, int rank)
{
	memset(a, 0, sizeof *a);
	a->sun_family = AF_UNIX;
	int n = snprintf(a->sun_path + 1, sizeof a->sun_path - 1, "titan-rank-%d-%d", tt_mpi_launcher(), rank);
	return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)n);
}

static int listen_at(int rank)
{
	struct sockaddr_un a;
	socklen_t n = place(&a, rank);
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (fd >= 0 && (bind(fd, (struct sockaddr *)&a, n) || listen(fd, 4096))) {
		close(fd);
		fd = -1;
	}
	return fd;
}

int64_t tt_mpi_who_listens(int rank)
{
	struct sockaddr_un a;
	socklen_t n = place(&a, rank);
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	struct ucred u = { 0 };
	socklen_t len = sizeof u;
	bool there = fd >= 0 && connect(fd, (struct sockaddr *)&a, n) == 0 && getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &u, &len) == 0;
	if (fd >= 0)
		close(fd);
	return there ? u.pid : 0;
}

tt_mpi_life tt_mpi_life_of(const tt_mpi_world *w, int rank)
{
	const tt_mpi_hello *h = &w->peers[rank].hello;
	if (!h->pid) { /* not greeted yet */
		int64_t pid = tt_mpi_who_listens(rank), born;
		char state = pid ? tt_process_state(pid, &born) : 0;
		return state == 'T' ? TT_MPI_STOPPED : state ? TT_MPI_LIVES : TT_MPI_UNSEEN;
	}
	if (h->machine != w->peers[w->comm.rank].hello.machine)
		return TT_MPI_UNSEEN;
	int64_t born = 0;
	char state = tt_process_state(h->pid, &born);
	if (!state || state == 'Z' || state == 'X' || born != h->born)
		return TT_MPI_GONE;
	return state == 'T' || state == 't' ? TT_MPI_STOPPED : TT_MPI_LIVES;
}

static void not_up(const tt_mpi_world *w, double seconds)
{
	tt_buf b = { 0 };
	for (int r = 0; r < w->comm.size; r++) {
		int64_t pid = r == w->comm.rank ? getpid() : tt_mpi_who_listens(r), born;
		char state = pid ? tt_process_state(pid, &born) : 0;
		if (!state)
			tt_buf_printf(&b, "; rank %d has not come, as far as this machine knows", r);
		else if (state == 'T')
			tt_buf_printf(&b, "; rank %d is there, and its process %lld is stopped", r, (long long)pid);
	}
	tt_log(TT_LOG_ERROR, "comm: rank %d waits in MPI_Init for %.1f s (comm.init_timeout_seconds)%s", w->comm.rank, seconds,
	       b.n ? b.s : "; the ranks of this machine have all come to it");
	tt_buf_fini(&b);
}

/* A launcher may wait for them for ever. */
static void kill_stopped(const tt_mpi_world *w)
{
	for (int r = 0; r < w->comm.size; r++) {
		int64_t pid = r == w->comm.rank ? 0 : tt_mpi_who_listens(r), born;
		if (pid && tt_process_state(pid, &born) == 'T')
			kill((pid_t)pid, SIGKILL);
	}
}

/* ---- signs of life ------------------------------------------------------------------------------------------------------------------------ */

tt_block tt_mpi_flat(const void *p, size_t n) { return tt_block_flat(p, (int64_t)n); }

void tt_mpi_look(tt_mpi_world *w)
{
	if (atomic_load(&w->aborted))
		return;
	if (w->end_request.word[1] && w->api->test(&w->end_request) == 0 && !w->end_request.word[1]) {
		w->end_in.text[TT_MPI_TEXT - 1] = 0;
		tt_mpi_over(w, (tt_status)w->end_in.code, w->end_in.culprit, w->end_in.text);
		return;
	}
	while (w->beat_request.word[1] && w->api->test(&w->beat_request) == 0 && !w->beat_request.word[1]) {
		tt_mpi_beat *b = &w->beat_in;
		if (b->rank >= 0 && b->rank < w->comm.size) {
			w->byes += b->last && !w->peers[b->rank].beat.last;
			if (b->now.n < w->peers[b->rank].beat.now.n) /* heads were faster */
				b->now = w->peers[b->rank].beat.now;
			w->peers[b->rank].beat = *b;
			w->peers[b->rank].heard = tt_now();
		}
		tt_block in = tt_mpi_flat(b, sizeof *b);
		if (w->api->recv(TT_MPI_BEAT, -1, 0, &in, &w->beat_request))
			break;
	}
}

static void beat(tt_mpi_world *w, bool last)
{
	tt_mpi_beat b = { .rank = w->comm.rank, .ended = atomic_load(&w->ended), .last = last, .waits_for = atomic_load(&w->waits_for), .asked = w->asked ? (int32_t)*w->asked : 0 };
	tt_recorder_last(&w->recorder, &b.now);
	for (int i = 0; i < w->comm.size; i++) {
		tt_mpi_peer *p = &w->peers[i];
		if (i == w->comm.rank)
			continue;
		for (double until = tt_now() + (last ? 1 : 0); p->sending.word[1];) {
			(void)!w->api->test(&p->sending);
			if (!p->sending.word[1] || tt_now() >= until)
				break;
			sched_yield();
		}
		if (p->sending.word[1])
			continue; /* the last one has not left yet: it is enough */
		p->out = b;
		tt_block out = tt_mpi_flat(&p->out, sizeof p->out);
		(void)!w->api->send(TT_MPI_BEAT, i, 0, &out, &p->sending);
	}
}

void tt_mpi_part(tt_mpi_world *w)
{
	enum { PATIENCE = 5 };
	double began = tt_now();
	pthread_mutex_lock(&w->lock);
	beat(w, true);
	bool sent = false;
	while ((w->byes < w->comm.size - 1 || !sent) && tt_now() - began < PATIENCE) {
		tt_mpi_look(w);
		sent = true;
		for (int i = 0; i < w->comm.size; i++) {
			if (w->peers[i].sending.word[1])
				(void)!w->api->test(&w->peers[i].sending);
			sent &= !w->peers[i].sending.word[1];
		}
		tt_mpi_sleep(1e-4);
	}
	w->api->cancel(&w->end_request);
	w->api->cancel(&w->beat_request);
	pthread_mutex_unlock(&w->lock);
}

/* An abort was told, and this rank's own thread computes, or writes: it may not see it before the launcher kills it. */
static void last_words(tt_mpi_world *w)
{
	for (int i = 0; i < 20 && !atomic_load(&w->adopted); i++)
		tt_mpi_sleep(0.025);
	if (!atomic_load(&w->adopted))
		tt_log(TT_LOG_ERROR, "rank %d ends all: %s", w->end.culprit, w->end.text);
	tt_mpi_unlisten(w);
}

/* A signal to another rank is meant for the run. A launcher signals all of them: then rank 0 has one of its own, a moment later at most. Under `lock`. */
static void hear_of_others(tt_mpi_world *w, double now)
{
	enum { GRACE = 1 };
	if (!w->hear || !w->asked || *w->asked || w->comm.rank || atomic_load(&w->ended))
		return;
	for (int i = 1; i < w->comm.size; i++) {
		int number = w->peers[i].beat.asked;
		if (number && !w->others_asked)
			w->others_asked = now;
		if (number && now - w->others_asked > GRACE) {
			w->hear(number, i);
			return;
		}
	}
}

/* Before MPI_Init has returned: this process is to end. By INT or TERM, that is: of USR1 and HUP the run hears once it has come to its first step. */
static bool told_to_end(const tt_mpi_world *w)
{
	int number = w->asked ? (int)*w->asked : 0;
	return *w->terminated || number == SIGTERM || number == SIGINT;
}

static void *beater_main(void *arg)
{
	tt_mpi_world *w = arg;
	tt_thread_set(w->comm.rank, "signs of life");
	enum { ALL_COME_MS = 400 }; /* after such a signal MPI_Init may yet return, and the run ends in order; Open MPI's launcher kills 1 s after its TERM */
	double began = tt_now(), last = began, ends = 0;
	bool told = false;
	pthread_mutex_lock(&w->lock);
	while (!w->quit) {
		double now = tt_now(), pause = atomic_load(&w->up) ? w->period : 0.05;
		if (!ends && told_to_end(w))
			ends = now;
		if (!atomic_load(&w->up) && ((ends > 0 && now - ends > ALL_COME_MS / 1e3) || (w->init_timeout_s > 0 && now - began > w->init_timeout_s))) {
			not_up(w, now - began);
			tt_mpi_sleep(0.5); /* the others say it, too, before the launcher ends them */
			kill_stopped(w);
			_exit(1);
		}
		if (now - last > pause + 1) { /* this process, or this machine, was stopped: so the others are not late */
			for (int i = 0; i < w->comm.size && w->peers; i++)
				w->peers[i].heard = now;
			began += now - last;
		}
		last = now;
		if (atomic_load(&w->up) && !atomic_load(&w->aborted)) {
			tt_mpi_look(w);
			if (!atomic_load(&w->aborted)) {
				beat(w, false);
				hear_of_others(w, now);
			}
		}
		if (atomic_load(&w->aborted) && !told) {
			told = true;
			pthread_mutex_unlock(&w->lock);
			last_words(w);
			pthread_mutex_lock(&w->lock);
			continue;
		}
		struct timespec t;
		clock_gettime(CLOCK_REALTIME, &t);
		int64_t ns = t.tv_nsec + (int64_t)(pause * 1e9);
		t.tv_sec += ns / 1000000000;
		t.tv_nsec = ns % 1000000000;
		pthread_cond_timedwait(&w->wake, &w->lock, &t);
	}
	pthread_mutex_unlock(&w->lock);
	return NULL;
}

tt_status tt_mpi_beater_start(tt_mpi_world *w)
{
	w->listens = listen_at(w->comm.rank);
	sigset_t all, was; /* signals are for the program's own thread */
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &was);
	int r = pthread_create(&w->beater, NULL, beater_main, w);
	pthread_sigmask(SIG_SETMASK, &was, NULL);
	if (r)
		TT_FAIL(TT_ERR_MEMORY, "the system refused a thread: %s", strerror(r));
	w->beating = true;
	return TT_OK;
}

void tt_mpi_beater_stop(tt_mpi_world *w)
{
	if (!w->beating)
		return;
	pthread_mutex_lock(&w->lock);
	w->quit = true;
	pthread_cond_signal(&w->wake);
	pthread_mutex_unlock(&w->lock);
	pthread_join(w->beater, NULL);
	w->beating = false;
	tt_mpi_unlisten(w);
}

void tt_mpi_unlisten(tt_mpi_world *w)
{
	if (w->listens >= 0)
		close(w->listens);
	w->listens = -1;
}

bool tt_mpi_others_speak(const tt_mpi_world *w)
{
	for (int i = 0; i < w->comm.size; i++) {
		int64_t pid = i == w->comm.rank ? 0 : tt_mpi_who_listens(i), known = w->peers[i].hello.pid;
		if (pid && (pid == known || !known) && tt_mpi_life_of(w, i) == TT_MPI_LIVES) /* also one that has not greeted */
			return true;
	}
	return false;
}

bool tt_mpi_all_near(const tt_mpi_world *w)
{
	for (int i = 0; i < w->comm.size; i++)
		if (i != w->comm.rank && tt_mpi_who_listens(i) != w->peers[i].hello.pid)
			return false;
	return true;
}
