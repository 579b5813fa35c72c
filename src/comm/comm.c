/* comm.c: what every backend shares: groups, the exchange with its counters and recorder, and the small collectives. */
#include "comm/internal.h"

#include <time.h>

int tt_comm_rank(const tt_comm *c) { return c->rank; }
int tt_comm_size(const tt_comm *c) { return c->size; }
const char *tt_comm_backend_name(const tt_comm *c) { return c->backend->name; }
bool tt_comm_sees_memory(const tt_comm *c) { return c->backend->sees_memory; }
int tt_comm_neighbours(const tt_comm *c) { return c->neighbours; }
uint64_t tt_comm_machine(const tt_comm *c, int rank) { return c->machines ? c->machines[rank] : 0; }
uint64_t tt_comm_program(const tt_comm *c, int rank) { return c->programs ? c->programs[rank] : 0; }

void tt_comm_set_timeout(tt_comm *c, double seconds)
{
	tt_comm *w = c->whole ? c->whole : c;
	w->timeout_s = seconds;
	if (seconds > 0 && w->silence_s != seconds) /* which threads beside this one read */
		w->silence_s = seconds;
}

void tt_comm_set_delay(tt_comm *c, int64_t us) { (c->whole ? c->whole : c)->delay_us = us; }

void tt_comm_abort(tt_comm *c, tt_status code) { c->backend->abort(c, code, tt_error_text()); }

int tt_comm_group_size(const tt_comm_group *g) { return g->n; }
int tt_comm_group_index(const tt_comm_group *g) { return g->index; }
int tt_comm_group_rank(const tt_comm_group *g, int i) { return g->ranks[i]; }
const char *tt_comm_group_name(const tt_comm_group *g) { return g->name; }
bool tt_comm_group_sees_memory(const tt_comm_group *g) { return g->comm->backend->sees_memory; }
tt_comm_count tt_comm_group_count(const tt_comm_group *g) { return g->count; }

static tt_status group_open(tt_comm *c, const char *name, int n, const int *ranks, bool beside, tt_comm_group **out)
{
	if (c->whole) {
		for (int i = 0; i < n; i++)
			TT_ASSERT(ranks[i] < c->size, "group %s: rank %d of %d", name, ranks[i], c->size);
		c = c->whole;
	}
	for (tt_comm_group *g = c->groups; g; g = g->next)
		if (g->n == n && !strcmp(g->name, name) && !memcmp(g->ranks, ranks, sizeof *ranks * (size_t)n)) {
			TT_ASSERT(g->beside == beside, "group %s: beside and not", name);
			*out = g;
			return TT_OK;
		}
	tt_comm_group *g = TT_NEW(c->arena, tt_comm_group);
	g->comm = c;
	g->name = tt_arena_strdup(c->arena, name);
	g->beside = beside;
	g->n = n;
	g->ranks = TT_NEWN(c->arena, int, n);
	g->index = -1;
	for (int i = 0; i < n; i++) {
		TT_ASSERT(ranks[i] >= 0 && ranks[i] < c->size, "group %s: rank %d of %d", name, ranks[i], c->size);
		g->ranks[i] = ranks[i];
		if (ranks[i] == c->rank)
			g->index = i;
	}
	TT_ASSERT(g->index >= 0, "group %s: rank %d is no member", name, c->rank);
	TT_TRY(c->backend->open(g));
	g->next = c->groups;
	c->groups = g;
	*out = g;
	return TT_OK;
}

tt_status tt_comm_group_open(tt_comm *c, const char *name, int n, const int *ranks, tt_comm_group **out) { return group_open(c, name, n, ranks, false, out); }
tt_status tt_comm_group_open_beside(tt_comm *c, const char *name, int n, const int *ranks, tt_comm_group **out) { return group_open(c, name, n, ranks, true, out); }

static const int *all_ranks(const tt_comm *c)
{
	int *ranks = TT_NEWN(c->arena, int, c->size);
	for (int i = 0; i < c->size; i++)
		ranks[i] = i;
	return ranks;
}

tt_status tt_comm_group_all(tt_comm *c, const char *name, tt_comm_group **out) { return group_open(c, name, c->size, all_ranks(c), false, out); }
tt_status tt_comm_group_all_beside(tt_comm *c, const char *name, tt_comm_group **out) { return group_open(c, name, c->size, all_ranks(c), true, out); }

tt_status tt_comm_sub(tt_comm *c, int n, tt_comm **out)
{
	TT_ASSERT(c->rank < n && n <= c->size && !c->whole, "rank %d of the first %d of %d", c->rank, n, c->size);
	tt_comm *s = TT_NEW(c->arena, tt_comm);
	*s = *c;
	s->size = n;
	s->whole = c;
	s->groups = NULL;
	*out = s;
	return TT_OK;
}

int64_t tt_exchange_scratch(const tt_comm_group *g, const tt_exchange *x)
{
	int64_t n = 0;
	if (!g->comm->backend->sees_memory && !x->lands)
		for (int i = 0; i < g->n * tt_exchange_parts(x); i++)
			n += tt_round_up(tt_block_bytes(&x->take[i]), 64);
	return n;
}

static void asleep(int64_t us)
{
	struct timespec t = { us / 1000000, us % 1000000 * 1000 };
	while (nanosleep(&t, &t))
		;
}

enum { NAME = 12 * 8 };

static void put_name(tt_record *r, const char *name)
{
	char text[NAME] = "";
	strncpy(text, name, NAME - 1);
	uint64_t words[NAME / 8];
	memcpy(words, text, NAME);
	for (int i = 0; i < NAME / 8; i++)
		atomic_store_explicit(&r->name[i], words[i], memory_order_relaxed);
}

static void get_name(const tt_record *r, char out[NAME])
{
	for (int i = 0; i < NAME / 8; i++) {
		uint64_t word = atomic_load_explicit(&r->name[i], memory_order_relaxed);
		memcpy(out + 8 * i, &word, 8);
	}
	out[NAME - 1] = 0;
}

tt_status tt_comm_exchange(tt_comm_group *g, tt_exchange *x)
{
	tt_comm *c = g->comm;
	int64_t bytes = 0;
	for (int i = 0; i < g->n * tt_exchange_parts(x); i++)
		bytes += i % g->n == g->index ? 0 : tt_block_bytes(&x->take[i]);
	g->seq++;
	double began = tt_now();
	tt_recorder *rec = c->recorder;
	int64_t at = atomic_fetch_add_explicit(&rec->claimed, 1, memory_order_relaxed), begun = at;
	tt_record *r = &rec->ring[at % TT_RECORD];
	atomic_store_explicit(&r->kind, x->kind, memory_order_relaxed);
	put_name(r, x->name);
	atomic_store_explicit(&r->group, g->name, memory_order_relaxed);
	atomic_store_explicit(&r->seq, g->seq, memory_order_relaxed);
	atomic_store_explicit(&r->bytes, bytes, memory_order_relaxed);
	atomic_store_explicit(&r->at, began, memory_order_relaxed);
	atomic_store_explicit(&r->state, TT_REC_WAITS, memory_order_relaxed);
	while (begun <= at && !atomic_compare_exchange_weak_explicit(&rec->n, &begun, at + 1, memory_order_release, memory_order_relaxed))
		; /* a later one may be there already */

	TT_TRY(c->backend->arrive(g, x));
	if (c->delay_us && g->n > 1)
		asleep(c->delay_us);
	double there = tt_now();
	atomic_store_explicit(&r->state, TT_REC_USES, memory_order_relaxed);
	if (x->use && !c->backend->records_only)
		x->use(x->ctx, x->take, g->n);
	double used = tt_now();
	atomic_store_explicit(&r->state, TT_REC_LEAVES, memory_order_relaxed);
	TT_TRY(c->backend->leave(g, x));
	atomic_store_explicit(&r->state, TT_REC_DONE, memory_order_relaxed);
	g->count.calls++;
	g->count.bytes += bytes;
	g->count.wait_s += there - began + (tt_now() - used);
	g->count.use_s += used - there;
	return TT_OK;
}

/* ---- small collectives. Their blocks live on the stack: up to MEMBERS of them, else in the rank's arena ----------------------------- */

enum { MEMBERS = 64 };
typedef struct blocks {
	tt_block stack[2 * MEMBERS];
	tt_block *give, *take;
	tt_mark mark;
} blocks;

static void blocks_init(blocks *b, const tt_comm_group *g)
{
	TT_ASSERT(!g->beside, "group %s: the arena is another thread's", g->name);
	b->mark = tt_arena_push(g->comm->arena);
	b->give = g->n <= MEMBERS ? b->stack : TT_NEWN(g->comm->arena, tt_block, 2 * (int64_t)g->n);
	b->take = b->give + g->n;
	memset(b->give, 0, sizeof *b->give * (size_t)g->n * 2);
}

static tt_status run(tt_comm_group *g, const char *kind, const char *name, blocks *b, void (*use)(void *, const tt_block *, int), void *ctx)
{
	tt_exchange x = { .kind = kind, .name = name, .lands = true, .give = b->give, .take = b->take, .use = use, .ctx = ctx };
	int64_t n = tt_exchange_scratch(g, &x);
	if (n)
		x.scratch = tt_arena_alloc(g->comm->arena, (size_t)n);
	tt_status s = tt_comm_exchange(g, &x);
	tt_arena_pop(g->comm->arena, b->mark);
	return s;
}

tt_status tt_comm_barrier(tt_comm_group *g, const char *name)
{
	blocks b;
	blocks_init(&b, g);
	return run(g, "barrier", name, &b, NULL, NULL);
}

typedef struct gathered { uint8_t *to; } gathered;

static void join(void *ctx, const tt_block *take, int n)
{
	gathered *c = ctx;
	for (int i = 0; i < n; i++) {
		int64_t bytes = tt_block_bytes(&take[i]);
		if (bytes && take[i].p != c->to)
			memcpy(c->to, take[i].p, (size_t)bytes);
		c->to += bytes;
	}
}

tt_status tt_comm_all_gather(tt_comm_group *g, const char *name, const void *mine, int64_t bytes, void *all)
{
	blocks b;
	blocks_init(&b, g);
	for (int i = 0; i < g->n; i++) {
		b.give[i] = tt_block_flat(mine, bytes);
		b.take[i] = tt_block_flat((uint8_t *)all + i * bytes, bytes);
	}
	gathered c = { all };
	return run(g, "all-gather", name, &b, join, &c);
}

tt_status tt_comm_broadcast(tt_comm_group *g, const char *name, int root, void *p, int64_t bytes)
{
	blocks b;
	blocks_init(&b, g);
	if (g->index == root) /* its own copy stays where it is: it gives to the others */
		for (int i = 0; i < g->n; i++)
			b.give[i] = i == root ? (tt_block){ 0 } : tt_block_flat(p, bytes);
	else
		b.take[root] = tt_block_flat(p, bytes);
	gathered c = { p };
	return run(g, "broadcast", name, &b, join, &c);
}

/* ---- the flight recorder --------------------------------------------------------------------------------------------------------------- */

static const char *state_name(int s)
{
	static const char *const names[] = { "?", "waits for others", "uses what arrived", "waits until others have read", "done" };
	return names[s];
}

void tt_recorder_last(const tt_recorder *r, tt_last *out)
{
	int64_t n = atomic_load_explicit(&r->n, memory_order_acquire);
	memset(out, 0, sizeof *out);
	if (!n)
		return;
	const tt_record *e = &r->ring[(n - 1) % TT_RECORD];
	out->n = n;
	out->seq = atomic_load(&e->seq);
	strncpy(out->kind, atomic_load(&e->kind), sizeof out->kind - 1);
	strncpy(out->group, atomic_load(&e->group), sizeof out->group - 1);
	get_name(e, out->name);
}

void tt_last_print(const tt_last *l, tt_buf *b)
{
	if (l->n)
		tt_buf_printf(b, "%s #%lld of %s \"%s\"", l->kind, (long long)l->seq, l->group, l->name);
	else
		tt_buf_str(b, "no exchange yet");
}

void tt_recorder_newest(const tt_recorder *r, tt_buf *b)
{
	tt_last l;
	tt_recorder_last(r, &l);
	tt_last_print(&l, b);
}

void tt_recorder_print(const tt_recorder *r, int rank, int last, tt_buf *b)
{
	int64_t n = atomic_load_explicit(&r->n, memory_order_acquire);
	double now = tt_now();
	for (int64_t i = TT_MAX(n - TT_MIN(last, TT_RECORD), (int64_t)0); i < n; i++) {
		const tt_record *e = &r->ring[i % TT_RECORD];
		if (!atomic_load(&e->group)) /* another thread is about to write it */
			continue;
		char name[NAME];
		get_name(e, name);
		tt_buf_printf(b, "rank %d  %10.3f s ago  %-16s #%-6lld %-14s %12lld bytes  %-28s %s\n", rank, now - atomic_load(&e->at),
			      atomic_load(&e->kind), (long long)atomic_load(&e->seq), atomic_load(&e->group), (long long)atomic_load(&e->bytes),
			      state_name(atomic_load(&e->state)), name);
	}
}

void tt_comm_record_print(const tt_comm *c, tt_buf *b) { c->backend->record(c, b); }
