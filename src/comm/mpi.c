/* mpi.c: ranks are processes of an MPI job.
 *
 * An exchange sends each member a head, which says what exchange this is and how large the block that follows, and the block: within the head if it
 * is small, else in messages of its own. A rank takes a block only after its head was right, so that one which came with another exchange or shape is
 * found out by words, not by MPI. It has arrived when all blocks are there, and may leave when MPI has taken all that it gave.
 *
 * MPI never waits here: requests are looked at, and between looks a rank that finds nothing sleeps, longer and longer up to some milliseconds, so that
 * ranks may be more than cores. While it waits it also takes the text of an abort, sees who has died or has left, and watches the time: MPI does none
 * of this. After an error nothing of MPI is called any more but its abort (tt_comm_leave): what was given may be gone from memory. */
#define _GNU_SOURCE
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "comm/mpi.h"

typedef struct head {
	uint64_t group; /* hash of its name and ranks */
	int64_t seq, planes, lines, bytes; /* shape of the first part */
	char kind[32], name[96];
	int64_t begun; /* exchanges of that rank */
	int64_t total;    /* bytes of all parts */
	uint32_t parts, shapes; /* how many; hash of all shapes */
} head;
enum { SMALL = 1024, SLOT = sizeof(head) + SMALL, TAG_FIRST = 16 };
_Static_assert(sizeof(head) % 64 == 0, "blocks within heads are aligned to 64");

typedef struct member {
	uint8_t *in, *out; /* [SLOT] */
	tt_mpi_request head_in, head_out;
	int64_t place;       /* in the scratch: where its blocks go */
	int first_in, nin;   /* of own.requests: of its blocks; nin -1: the head is not there yet */
	int first_out, nout;
} member;

typedef struct own {
	uint64_t hash;
	int tag;
	member *m;      /* [n] */
	tt_mpi_request *requests;
	int n, cap;
} own;

static tt_mpi_world *world_of(const tt_comm_group *g) { return g->comm->world; }

/* A thread beside the rank's own says nothing to the user. */
static void knows(const tt_comm_group *g)
{
	if (!g->beside)
		atomic_store(&world_of(g)->adopted, true);
}

static tt_status adopt(const tt_comm_group *g)
{
	const tt_mpi_world *w = world_of(g);
	knows(g);
	TT_FAIL((tt_status)w->end.code, "%s", w->end.text);
}

static void enter(tt_mpi_world *w)
{
	if (pthread_mutex_trylock(&w->lock) == 0)
		return;
	atomic_fetch_add(&w->wanting, 1);
	pthread_mutex_lock(&w->lock);
	atomic_fetch_sub(&w->wanting, 1);
}

/* Who looks again and again has the lock back before one that was woken for it runs: a large block would keep the small ones of other threads waiting. */
static void leave_to_others(tt_mpi_world *w)
{
	enum { TURNS = 64 };
	pthread_mutex_unlock(&w->lock);
	for (int i = 0; i < TURNS && atomic_load_explicit(&w->wanting, memory_order_relaxed); i++)
		sched_yield();
}

/* ---- the end ----------------------------------------------------------------------------------------------------------------------------- */

void tt_mpi_over(tt_mpi_world *w, tt_status code, int culprit, const char *text)
{
	if (atomic_load(&w->aborted))
		return;
	w->end.code = (int32_t)code;
	w->end.culprit = culprit;
	snprintf(w->end.text, sizeof w->end.text, "%s", text);
	atomic_store(&w->aborted, true);
}

static void mpi_abort(tt_comm *c, tt_status code, const char *text)
{
	enum { PATIENCE = 1 };
	tt_mpi_world *w = c->world;
	pthread_mutex_lock(&w->lock);
	if (!atomic_load(&w->aborted))
		tt_mpi_look(w); /* somebody else's text may be there already: then that is everybody's */
	if (!atomic_load(&w->aborted)) {
		tt_mpi_over(w, code, c->rank, text);
		w->end_out = w->end;
		tt_block b = tt_mpi_flat(&w->end_out, sizeof w->end_out);
		tt_mpi_request *r = calloc((size_t)c->size, sizeof *r);
		for (int i = 0; r && i < c->size; i++)
			if (i != c->rank)
				(void)!w->api->send(TT_MPI_ABORT, i, 0, &b, &r[i]);
		/* To who is stopped or dead it never goes. */
		double until = tt_now() + PATIENCE;
		for (bool all = false; r && !all && tt_now() < until; tt_mpi_sleep(1e-4)) {
			all = true;
			for (int i = 0; i < c->size; i++) {
				if (r[i].word[1])
					(void)!w->api->test(&r[i]);
				all &= !r[i].word[1];
			}
		}
		free(r);
	}
	pthread_mutex_unlock(&w->lock);
}

tt_status tt_mpi_error(const tt_mpi_world *w, int code, const char *where)
{
	char text[512];
	w->api->error(code, text, sizeof text);
	TT_FAIL(TT_ERR_COMM, "%s: %s", where, text);
}

static tt_status mpi_error(const tt_comm_group *g, const tt_exchange *x, int code)
{
	char where[512];
	snprintf(where, sizeof where, "rank %d, %s #%lld of %s \"%s\"", g->comm->rank, x->kind, (long long)g->seq, g->name, x->name);
	return tt_mpi_error(world_of(g), code, where);
}

/* ---- groups ---------------------------------------------------------------------------------------------------------------------------------- */

static tt_status mpi_open(tt_comm_group *g)
{
	tt_mpi_world *w = world_of(g);
	tt_arena *a = w->arena;
	own *o = TT_NEW(a, own);
	o->hash = tt_hash64(g->ranks, sizeof *g->ranks * (size_t)g->n, tt_hash64(g->name, strlen(g->name), 0));
	o->tag = TAG_FIRST + (int)(o->hash % (uint64_t)(w->tag_most - TAG_FIRST));
	for (const tt_comm_group *k = g->comm->groups; k; k = k->next)
		if (((const own *)k->own)->tag == o->tag)
			TT_FAIL(TT_ERR_COMM, "groups %s and %s have one tag in this MPI, whose tags end at %d", k->name, g->name, w->tag_most);
	o->m = TT_NEWN(a, member, g->n);
	uint8_t *slots = (uint8_t *)tt_round_up((int64_t)(uintptr_t)tt_arena_alloc(a, 2 * SLOT * (size_t)g->n + 64), 64);
	for (int i = 0; i < g->n; i++) {
		o->m[i].in = slots + (size_t)(2 * i) * SLOT;
		o->m[i].out = slots + (size_t)(2 * i + 1) * SLOT;
	}
	o->cap = 4 * g->n;
	o->requests = malloc(sizeof *o->requests * (size_t)o->cap);
	TT_ASSERT(o->requests, "out of memory");
	g->own = o;
	return TT_OK;
}

void tt_mpi_group_close(tt_comm_group *g) { free(((own *)g->own)->requests); }

/* ---- messages of a block ------------------------------------------------------------------------------------------------------------------------ */

static tt_mpi_request *request(own *o)
{
	if (o->n == o->cap) { /* blocks beyond TT_MPI_MOST: rare, and kept */
		o->cap *= 2;
		o->requests = realloc(o->requests, sizeof *o->requests * (size_t)o->cap);
		TT_ASSERT(o->requests, "out of memory");
	}
	tt_mpi_request *r = &o->requests[o->n++];
	memset(r, 0, sizeof *r);
	return r;
}

static int post(tt_comm_group *g, int peer, bool send, const tt_block *b)
{
	own *o = g->own;
	const tt_mpi_api *api = world_of(g)->api;
	return (send ? api->send : api->recv)(TT_MPI_DATA, g->ranks[peer], o->tag, b, request(o));
}

/* A block in messages of at most so many bytes, cut by its shape, which both sides know: whole, by lines of one plane, by bytes of one line. */
static int post_block(tt_comm_group *g, int peer, bool send, const tt_block *b)
{
	int64_t most = world_of(g)->message_bytes;
	if (tt_block_bytes(b) <= most)
		return post(g, peer, send, b);
	int64_t lines = TT_MAX(most / b->bytes, (int64_t)1), bytes = TT_MIN(b->bytes, most);
	for (int64_t p = 0; p < b->planes; p++)
		for (int64_t l = 0; l < b->lines; l += lines)
			for (int64_t at = 0; at < b->bytes; at += bytes) {
				tt_block part = { b->p + p * b->plane + l * b->ld + at, 1, TT_MIN(lines, b->lines - l), TT_MIN(bytes, b->bytes - at), 0, b->ld };
				int e = post(g, peer, send, &part);
				if (e)
					return e;
			}
	return 0;
}

static void copy(uint8_t *to, int64_t to_plane, int64_t to_ld, const tt_block *from)
{
	for (int64_t p = 0; p < from->planes; p++)
		for (int64_t l = 0; l < from->lines && from->bytes; l++)
			memcpy(to + p * to_plane + l * to_ld, from->p + p * from->plane + l * from->ld, (size_t)from->bytes);
}

/* ---- waiting ------------------------------------------------------------------------------------------------------------------------------------ */

typedef struct patience {
	double began, looked, nap, waited;
	double here; /* since when all members have come, and blocks are on their way; 0: not yet */
	double soon; /* how long from then on they are looked at all the time */
	int looks;   /* since then */
	bool grieved;
} patience;

static bool waits_for(const tt_comm_group *g, int i, bool leaving)
{
	const own *o = g->own;
	const member *m = &o->m[i];
	if (i == g->index)
		return false;
	bool open = leaving ? m->head_out.word[1] : m->nin < 0;
	int first = leaving ? m->first_out : m->first_in, n = leaving ? m->nout : m->nin;
	for (int k = 0; k < n; k++)
		open |= o->requests[first + k].word[1] != 0;
	return open;
}

static void whereabouts(const tt_mpi_world *w, int r, double now, tt_buf *b)
{
	const tt_mpi_peer *p = &w->peers[r];
	int64_t pid = p->hello.pid ? p->hello.pid : tt_mpi_who_listens(r);
	switch (tt_mpi_life_of(w, r)) {
	case TT_MPI_GONE:
		tt_buf_printf(b, ", and its process %lld is gone (killed, or it crashed)", (long long)pid);
		return;
	case TT_MPI_STOPPED:
		tt_buf_printf(b, ", and its process %lld is stopped", (long long)pid);
		return;
	case TT_MPI_LIVES:
	case TT_MPI_UNSEEN:
		if (p->heard > 0 && now - p->heard > 2 + 2 * w->period)
			tt_buf_printf(b, ", and it has given no sign of life for %.1f s", now - p->heard);
		if (p->hello.host[0] && p->hello.machine != w->peers[w->comm.rank].hello.machine)
			tt_buf_printf(b, " (process %lld of %s)", (long long)p->hello.pid, p->hello.host);
	}
}

static void one_late(const tt_mpi_world *w, int r, const char *what, double now, tt_buf *b)
{
	const tt_mpi_beat *last = &w->peers[r].beat;
	tt_buf_printf(b, "; rank %d %s", r, last->ended ? "has ended" : what);
	if (last->now.n) {
		tt_buf_str(b, ", its last exchange known here was ");
		tt_last_print(&last->now, b);
	}
	whereabouts(w, r, now, b);
}

/* Under `lock`. */
static void late_text(const tt_comm_group *g, bool leaving, const tt_exchange *x, double waited, tt_buf *b)
{
	enum { MOST = 8 };
	const tt_mpi_world *w = world_of(g);
	double now = tt_now();
	tt_buf_printf(b, "rank %d waits in %s #%lld of %s \"%s\"", g->comm->rank, x->kind, (long long)g->seq, g->name, x->name);
	if (waited > 0)
		tt_buf_printf(b, " for %.1f s (comm.train_timeout_seconds, comm.init_timeout_seconds)", waited);
	int n = 0, named[MOST + 1];
	for (int i = 0; i < g->n; i++)
		if (waits_for(g, i, leaving) && n++ < MOST)
			one_late(w, named[n - 1] = g->ranks[i], leaving ? "still takes" : "has not come", now, b);
	/* Those may wait themselves: at the end of the chain is who is to blame. */
	int known = TT_MIN(n, (int)MOST);
	for (int k = 0; k < known && known < MOST; k++) {
		int next = w->peers[named[k]].beat.waits_for;
		for (int j = 0; j < known && next >= 0; j++)
			next = named[j] == next ? -1 : next;
		if (next < 0 || next >= w->comm.size || next == w->comm.rank)
			continue;
		tt_buf_printf(b, "; rank %d waits for rank %d itself", named[k], next);
		one_late(w, named[known++] = next, "has not come", now, b);
	}
	if (n > MOST)
		tt_buf_printf(b, "; and %d more", n - MOST);
}

static tt_status late(const tt_comm_group *g, bool leaving, const tt_exchange *x, double waited)
{
	tt_mpi_world *w = world_of(g);
	tt_buf b = { 0 };
	pthread_mutex_lock(&w->lock);
	late_text(g, leaving, x, waited, &b);
	pthread_mutex_unlock(&w->lock);
	tt_error_set(TT_ERR_COMM, __FILE__, __LINE__, "%s", b.s);
	tt_buf_fini(&b);
	return TT_ERR_COMM;
}

/* How long a wait must last to be told of once the run is asked to end. Steps and saves of others may be long: at once only where one of them is stopped
 * or silent, or at the start. */
static double long_wait(const tt_comm_group *g, bool trouble)
{
	if (trouble)
		return 0.25;
	return g->beside ? 10 : tt_group_timeout(g) > 0 ? 5 : __builtin_inf();
}

/* The launcher, or a user, asks the run to end, and this rank cannot go on: it may be killed soon, so it says for whom it waits. */
static void tell(const tt_comm_group *g, bool leaving, const tt_exchange *x, double waited)
{
	tt_buf b = { 0 };
	late_text(g, leaving, x, waited, &b);
	tt_log(TT_LOG_ERROR, "asked to end: %s", b.s);
	tt_buf_fini(&b);
}

/* Has one whom it waits for died, ended, or been silent for too long where there is no timeout? */
static tt_status look_around(const tt_comm_group *g, bool leaving, const tt_exchange *x, patience *p)
{
	tt_mpi_world *w = world_of(g);
	double now = tt_now(), silence = tt_group_timeout(g) > 0 ? 0 : g->comm->silence_s + 1 + 4 * w->period; /* who has a timeout knows better */
	bool gone = false, silent = false, trouble = false;
	int first = -1;
	pthread_mutex_lock(&w->lock);
	for (int i = 0; i < g->n; i++) {
		int r = g->ranks[i];
		if (!waits_for(g, i, leaving))
			continue;
		first = first < 0 ? r : first;
		if (!g->beside) {
			atomic_store(&w->waiter, g);
			atomic_store(&w->waits_for, first);
		}
		tt_mpi_life life = tt_mpi_life_of(w, r);
		gone |= (w->peers[r].beat.ended && !leaving) || life == TT_MPI_GONE;
		trouble |= life == TT_MPI_STOPPED || !w->peers[r].hello.pid /* not greeted: nothing takes long yet */ || (w->peers[r].heard > 0 && now - w->peers[r].heard > 2 + 2 * w->period);
		silent |= silence > 0 && w->peers[r].heard > 0 && now - w->peers[r].heard > silence;
	}
	if ((*w->terminated || (w->asked && *w->asked)) && p->waited > long_wait(g, trouble) && !w->told && !gone) {
		w->told = true;
		tell(g, leaving, x, p->waited);
	}
	pthread_mutex_unlock(&w->lock);
	if ((gone || silent) && !p->grieved) { /* one of all that see it says it: the first ranks first */
		p->grieved = true;
		p->looked = now + TT_MIN(0.01 * g->comm->rank, 0.3) - 0.05;
		return TT_OK;
	}
	return gone || silent ? late(g, leaving, x, gone ? 0 : p->waited) : TT_OK;
}

/* Between two looks that found nothing. A process that is stopped, or a machine that sleeps, is not late: a nap counts half a second at most. */
static tt_status patient(const tt_comm_group *g, bool leaving, const tt_exchange *x, patience *p)
{
	enum { LOOK_MS = 50, LOOKS = 16 };
	tt_mpi_world *w = world_of(g);
	double now = tt_now();
	if (atomic_load(&w->aborted))
		return adopt(g);
	if (!p->began)
		*p = (patience){ .began = now, .looked = now, .nap = 20e-6, .here = p->here, .soon = p->soon, .looks = p->looks };
	if (now - p->began < 1e-6 * g->comm->spin_us)
		return TT_OK;
	if (now - p->looked > 1e-3 * LOOK_MS) {
		p->looked = now;
		TT_TRY(look_around(g, leaving, x, p));
	}
	/* MPI moves large blocks in fragments, some at each look: who gave its core away after each would wait for it again as many times. */
	if (p->here > 0 && now - p->here < p->soon) {
		if (++p->looks % LOOKS)
			return TT_OK;
		if (g->comm->spin_us)
			sched_yield();
		else
			tt_mpi_sleep(50e-6);
		return TT_OK;
	}
	/* The first ranks are impatient first: the others then say the same. */
	if (tt_group_timeout(g) > 0 && p->waited >= tt_group_timeout(g) + TT_MIN(0.02 * g->comm->rank, 0.5))
		return late(g, leaving, x, p->waited);
	tt_mpi_sleep(p->nap);
	p->waited += TT_MIN(tt_now() - now, 0.5);
	p->nap = TT_MIN(1.5 * p->nap, TT_MIN(TT_MAX(1e-3, 0.01 * p->waited), 1e-2)); /* who waits long does not look often: ranks may be more than cores */
	return TT_OK;
}

/* ---- the exchange -------------------------------------------------------------------------------------------------------------------------------- */

/* What is exchanged with member i: its part p. */
static tt_block *part_of(const tt_comm_group *g, const tt_block *blocks, int i, int p) { return (tt_block *)(uintptr_t)&blocks[p * g->n + i]; }

/* Bytes of all parts; *room: with each from a multiple of 64 on; *shapes: a hash of all shapes, those without bytes being one. */
static int64_t sum_up(const tt_comm_group *g, const tt_exchange *x, const tt_block *blocks, int i, int64_t *room, uint32_t *shapes)
{
	int64_t sum = 0;
	uint64_t h = 0;
	*room = 0;
	for (int p = 0; p < tt_exchange_parts(x); p++) {
		const tt_block *b = part_of(g, blocks, i, p);
		int64_t bytes = tt_block_bytes(b);
		sum += bytes;
		*room += tt_round_up(bytes, 64);
		h = tt_mix64(h ^ (uint64_t)bytes);
		if (bytes)
			h = tt_mix64(tt_mix64(h ^ (uint64_t)b->planes) ^ (uint64_t)b->lines);
	}
	*shapes = (uint32_t)h;
	return sum;
}

static tt_status check_head(const tt_comm_group *g, const tt_exchange *x, int i, const head *h)
{
	const own *o = g->own;
	const tt_block *to = &x->take[i];
	int64_t room;
	uint32_t shapes;
	int64_t total = sum_up(g, x, x->take, i, &room, &shapes);
	if (h->group != o->hash || h->seq != g->seq)
		TT_FAIL(TT_ERR_COMM, "rank %d comes with exchange #%lld of %s, %s \"%s\", where rank %d has #%lld, %s \"%s\": their programs differ", g->ranks[i],
			(long long)h->seq, h->group == o->hash ? g->name : "another group", h->kind, h->name, g->comm->rank, (long long)g->seq, x->kind, x->name);
	if (strncmp(h->kind, x->kind, sizeof h->kind - 1) || strncmp(h->name, x->name, sizeof h->name - 1))
		TT_FAIL(TT_ERR_COMM, "exchange #%lld of %s: rank %d comes with %s \"%s\", rank %d with %s \"%s\": their programs differ", (long long)g->seq, g->name,
			g->comm->rank, x->kind, x->name, g->ranks[i], h->kind, h->name);
	if (tt_exchange_parts(x) > 1 && (h->total != total || h->shapes != shapes || (int)h->parts != tt_exchange_parts(x)))
		TT_FAIL(TT_ERR_COMM, "%s #%lld of %s \"%s\": rank %d gives rank %d %lld bytes in %u parts, it expects %lld in %d%s", x->kind, (long long)g->seq, g->name,
			x->name, g->ranks[i], g->comm->rank, (long long)h->total, h->parts, (long long)total, tt_exchange_parts(x),
			h->total == total ? ", of other shapes" : "");
	if (h->total != total || h->shapes != shapes || (int)h->parts != tt_exchange_parts(x))
		TT_FAIL(TT_ERR_COMM, "%s #%lld of %s \"%s\": rank %d gives rank %d %lld x %lld lines of %lld bytes, it expects %lld x %lld of %lld", x->kind,
			(long long)g->seq, g->name, x->name, g->ranks[i], g->comm->rank, (long long)h->planes, (long long)h->lines, (long long)h->bytes,
			(long long)to->planes, (long long)to->lines, (long long)to->bytes);
	return TT_OK;
}

/* `f`: TT_FAULT_NAME and TT_FAULT_SHAPE make a head wrong. */
static tt_status send_all(tt_comm_group *g, const tt_exchange *x, tt_mpi_fault_what f)
{
	own *o = g->own;
	const tt_mpi_api *api = world_of(g)->api;
	int64_t place = 0, room;
	uint32_t shapes;
	o->n = 0;
	for (int i = 0; i < g->n; i++, place += room) {
		o->m[i].place = place;
		(void)sum_up(g, x, x->take, i, &room, &shapes);
	}
	for (int k = 1; k < g->n; k++) { /* from the next one round, so that not all send to the first at once */
		int i = (g->index + k) % g->n, e;
		member *m = &o->m[i];
		tt_block in = tt_mpi_flat(m->in, SLOT);
		m->nin = -1;
		if ((e = api->recv(TT_MPI_DATA, g->ranks[i], o->tag, &in, &m->head_in)))
			return mpi_error(g, x, e);
	}
	for (int k = 1; k < g->n; k++) {
		int i = (g->index + k) % g->n, e;
		member *m = &o->m[i];
		const tt_block *b = &x->give[i];
		int64_t bytes = sum_up(g, x, x->give, i, &room, &shapes);
		head h = { .group = o->hash, .seq = g->seq, .begun = atomic_load(&g->comm->recorder->n), .planes = b->planes, .lines = b->lines, .bytes = b->bytes, .total = bytes,
			   .shapes = shapes, .parts = (uint32_t)tt_exchange_parts(x) };
		strncpy(h.kind, x->kind, sizeof h.kind - 1);
		strncpy(h.name, f == TT_FAULT_NAME ? "another" : x->name, sizeof h.name - 1);
		h.lines += f == TT_FAULT_SHAPE;
		h.shapes += f == TT_FAULT_SHAPE;
		memcpy(m->out, &h, sizeof h);
		bool small = room <= SMALL;
		uint8_t *at = m->out + sizeof h;
		for (int p = 0; p < tt_exchange_parts(x) && small; p++) {
			const tt_block *one = part_of(g, x->give, i, p);
			copy(at, one->lines * one->bytes, one->bytes, one);
			at += tt_round_up(tt_block_bytes(one), 64);
		}
		tt_block out = tt_mpi_flat(m->out, sizeof h + (small ? (size_t)room : 0));
		if ((e = api->send(TT_MPI_DATA, g->ranks[i], o->tag, &out, &m->head_out)))
			return mpi_error(g, x, e);
		m->first_out = o->n;
		for (int p = 0; p < tt_exchange_parts(x) && !small; p++) {
			const tt_block *one = part_of(g, x->give, i, p);
			if (tt_block_bytes(one) && (e = post_block(g, i, true, one)))
				return mpi_error(g, x, e);
		}
		m->nout = o->n - m->first_out;
	}
	return TT_OK;
}

/* A head is a sign of life, newer than the last one mostly. */
static void heard_of(const tt_comm_group *g, int rank, const head *h)
{
	tt_mpi_peer *p = &world_of(g)->peers[rank];
	p->heard = tt_now();
	if (h->begun <= p->beat.now.n)
		return;
	p->beat.now.n = h->begun;
	p->beat.now.seq = h->seq;
	strncpy(p->beat.now.group, g->name, sizeof p->beat.now.group - 1);
	memcpy(p->beat.now.kind, h->kind, sizeof p->beat.now.kind - 1);
	memcpy(p->beat.now.name, h->name, sizeof p->beat.now.name);
}

/* The head of member i is there: where its blocks go, and the blocks themselves or the wish for them. */
static tt_status head_there(tt_comm_group *g, tt_exchange *x, int i)
{
	own *o = g->own;
	member *m = &o->m[i];
	head h;
	memcpy(&h, m->in, sizeof h);
	h.kind[sizeof h.kind - 1] = h.name[sizeof h.name - 1] = 0;
	TT_TRY(check_head(g, x, i, &h));
	heard_of(g, g->ranks[i], &h);
	int64_t room;
	uint32_t shapes;
	(void)sum_up(g, x, x->take, i, &room, &shapes);
	bool small = room <= SMALL;
	uint8_t *at = small ? m->in + sizeof h : (uint8_t *)x->scratch + m->place;
	m->first_in = o->n;
	for (int p = 0; p < tt_exchange_parts(x); p++) {
		tt_block *b = part_of(g, x->take, i, p);
		int64_t bytes = tt_block_bytes(b);
		if (!bytes)
			continue;
		tt_block in = { at, b->planes, b->lines, b->bytes, b->lines * b->bytes, b->bytes };
		at += tt_round_up(bytes, 64);
		if (!x->lands)
			*b = in;
		else if (small)
			copy((uint8_t *)(uintptr_t)b->p, b->plane, b->ld, &in);
		int e = small ? 0 : post_block(g, i, false, b);
		if (e)
			return mpi_error(g, x, e);
	}
	m->nin = o->n - m->first_in;
	return TT_OK;
}

static tt_status look_at(tt_comm_group *g, const tt_exchange *x, tt_mpi_request *r, bool *open, bool *moved)
{
	if (!r->word[1])
		return TT_OK;
	int e = world_of(g)->api->test(r);
	if (e)
		return mpi_error(g, x, e);
	*moved |= !r->word[1];
	*open |= r->word[1] != 0;
	return TT_OK;
}

/* One look at what is under way. *open: some of it still is; *moved: some of it is not any more. */
static tt_status take(tt_comm_group *g, tt_exchange *x, bool *open, bool *moved)
{
	own *o = g->own;
	const tt_mpi_api *api = world_of(g)->api;
	for (int i = 0; i < g->n; i++) {
		member *m = &o->m[i];
		if (i == g->index)
			continue;
		if (m->nin < 0) {
			int e = api->test(&m->head_in);
			if (e)
				return mpi_error(g, x, e);
			if (!m->head_in.word[1]) {
				*moved = true;
				TT_TRY(head_there(g, x, i));
			}
		}
		*open |= m->nin < 0;
		for (int k = 0; k < m->nin; k++)
			TT_TRY(look_at(g, x, &o->requests[m->first_in + k], open, moved));
	}
	return TT_OK;
}

static tt_status let_go(tt_comm_group *g, tt_exchange *x, bool *open, bool *moved)
{
	own *o = g->own;
	for (int i = 0; i < g->n; i++) {
		member *m = &o->m[i];
		for (int k = -1; i != g->index && k < m->nout; k++) {
			tt_mpi_request *r = k < 0 ? &m->head_out : &o->requests[m->first_out + k];
			TT_TRY(look_at(g, x, r, open, moved));
		}
	}
	return TT_OK;
}

static bool all_here(const tt_comm_group *g)
{
	const own *o = g->own;
	for (int i = 0; i < g->n; i++)
		if (i != g->index && o->m[i].nin < 0)
			return false;
	return true;
}

/* That others give this rank, or it gives them. */
static double bytes_of(const tt_comm_group *g, const tt_exchange *x, bool leaving)
{
	double sum = 0;
	for (int i = 0; i < g->n * tt_exchange_parts(x); i++)
		sum += i % g->n == g->index ? 0 : (double)tt_block_bytes(leaving ? &x->give[i] : &x->take[i]);
	return sum;
}

static tt_status until_done(tt_comm_group *g, tt_exchange *x, bool leaving)
{
	enum { SLOW = 100000000 }; /* bytes a second of a network that still is one: who naps between fragments makes it slower */
	tt_mpi_world *w = world_of(g);
	patience p = { 0 };
	for (;;) {
		bool open = false, moved = false;
		enter(w);
		tt_status s = TT_OK;
		if (!atomic_load(&w->aborted))
			s = leaving ? let_go(g, x, &open, &moved) : take(g, x, &open, &moved);
		if (open && !s)
			tt_mpi_look(w);
		leave_to_others(w);
		TT_TRY(s);
		if (atomic_load(&w->aborted))
			return adopt(g);
		if ((!open || moved) && atomic_load_explicit(&w->waiter, memory_order_relaxed) == g)
			atomic_store_explicit(&w->waits_for, -1, memory_order_relaxed);
		if (!open)
			return TT_OK;
		if (moved)
			p.began = 0; /* it goes on: nobody is late */
		if (!p.here && (leaving || all_here(g))) {
			p.here = tt_now();
			p.soon = 0.2 + bytes_of(g, x, leaving) / SLOW;
		}
		if (moved)
			continue;
		TT_TRY(patient(g, leaving, x, &p));
	}
}

static tt_status ended(tt_comm_group *g, tt_status s)
{
	if (s) {
		mpi_abort(g->comm, s, tt_error_text());
		knows(g);
		if (world_of(g)->end.culprit != g->comm->rank) /* somebody was faster: one text for all */
			return adopt(g);
	}
	return s;
}

static tt_status mpi_arrive(tt_comm_group *g, tt_exchange *x)
{
	tt_mpi_world *w = world_of(g);
	if (atomic_load(&w->aborted))
		return adopt(g);
	int64_t room, given, taken;
	uint32_t shapes;
	given = sum_up(g, x, x->give, g->index, &room, &shapes);
	taken = sum_up(g, x, x->take, g->index, &room, &shapes);
	if (given != taken)
		return ended(g, tt_error_set(TT_ERR_COMM, __FILE__, __LINE__, "%s #%lld of %s \"%s\": rank %d gives itself %lld bytes, it expects %lld", x->kind,
					     (long long)g->seq, g->name, x->name, g->comm->rank, (long long)given, (long long)taken));
	for (int p = 0; p < tt_exchange_parts(x); p++)
		*part_of(g, x->take, g->index, p) = *part_of(g, x->give, g->index, p);
	if (g->n == 1)
		return TT_OK;
	tt_mpi_fault_what f = w->fault ? tt_mpi_fault_at(w, x->kind, x->name) : TT_FAULT_NONE;
	if (f == TT_FAULT_FAIL)
		return ended(g, tt_error_set(TT_ERR_IO, __FILE__, __LINE__, "a fault of a test"));
	enter(w);
	bool over = atomic_load(&w->aborted); /* by another thread, since */
	tt_status s = over ? TT_OK : send_all(g, x, f);
	leave_to_others(w);
	return over ? adopt(g) : ended(g, s ? s : until_done(g, x, false));
}

static tt_status mpi_leave(tt_comm_group *g, tt_exchange *x) { return ended(g, g->n == 1 ? TT_OK : until_done(g, x, true)); }

static void mpi_record(const tt_comm *c, tt_buf *b)
{
	tt_mpi_world *w = c->world;
	tt_recorder_print(&w->recorder, c->rank, TT_RECORD, b);
	pthread_mutex_lock(&w->lock);
	for (int i = 0; i < w->comm.size; i++)
		if (i != c->rank && w->peers[i].heard > 0) {
			tt_buf_printf(b, "rank %d  heard of %.3f s ago: ", i, tt_now() - w->peers[i].heard);
			tt_last_print(&w->peers[i].beat.now, b);
			tt_buf_str(b, "\n");
		}
	pthread_mutex_unlock(&w->lock);
}

const tt_comm_backend tt_mpi_backend = {
	.name = "mpi", .open = mpi_open, .arrive = mpi_arrive, .leave = mpi_leave, .abort = mpi_abort, .record = mpi_record,
};
