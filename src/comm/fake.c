/* fake.c: one end of a world without others: exchanges are counted and give nothing. For plans, which run nothing. */
#include "comm/internal.h"

typedef struct fake {
	tt_comm comm; /* first: a tt_comm is the fake */
	tt_recorder recorder;
	tt_arena *arena;
} fake;

static tt_status fake_open(tt_comm_group *g)
{
	(void)g;
	return TT_OK;
}

static tt_status fake_meet(tt_comm_group *g, tt_exchange *x)
{
	(void)g, (void)x;
	return TT_OK;
}

static void fake_abort(tt_comm *c, tt_status code, const char *text) { (void)c, (void)code, (void)text; }

static void fake_record(const tt_comm *c, tt_buf *b) { tt_recorder_print(c->recorder, c->rank, TT_RECORD, b); }

static const tt_comm_backend backend = {
	.name = "fake", .sees_memory = true, .records_only = true, .open = fake_open, .arrive = fake_meet, .leave = fake_meet, .abort = fake_abort,
	.record = fake_record,
};

tt_comm *tt_comm_fake_create(int rank, int size)
{
	TT_ASSERT(rank >= 0 && rank < size, "rank %d of %d", rank, size);
	tt_arena *a = tt_arena_create("comm.fake");
	fake *f = TT_NEW(a, fake);
	f->arena = a;
	f->comm = (tt_comm){ .backend = &backend, .rank = rank, .size = size, .neighbours = 1, .arena = a, .recorder = &f->recorder };
	return &f->comm;
}

void tt_comm_fake_destroy(tt_comm *c)
{
	if (c)
		tt_arena_destroy(((fake *)c)->arena);
}
