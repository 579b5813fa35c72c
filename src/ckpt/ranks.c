/* ranks.c: one checkpoint by the ranks that hold its tensors.
 *
 * Each block of a file has a rank that writes it: the one that holds most of its bytes, as long as that has no more blocks than its share. Blocks go
 * in rounds, one of each rank: every rank packs what it gives to the writers of the round, they exchange, and each puts its block together,
 * checksums it and writes it. Who gives what to whom follows from the layouts, so all know it without asking; where several ranks hold the same
 * elements the writer takes its own, or those of the rank that is placed as it is.
 *
 * It all happens in a thread beside training, in a group beside training's. On a communication lane, which runs its exchanges in one order on all
 * ranks, training would wait for disks; and a rank that exchanged in one go would need room for its share of the state. So what an update
 * must wait for is this rank's own packing: what is not packed yet it packs itself, aside, a copy in memory that asks no other rank.
 *
 * A rank that cannot write says so in the next round, and all stop after that one.
 */
#define _GNU_SOURCE
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "ckpt/internal.h"

enum { ALIGN = 64, DATA = 0, STATUS = 1, PARTS = 2 };

struct ckpt_share {
	ckpt_pack *p;
	const tt_ckpt_ranks *r;
	void *ctx;
	int n, me;
	int64_t rounds;
	const int64_t *block; /* [n, rounds] the block that a rank writes in a round, -1: none */
	int64_t *first;      /* [nfiles + 1] number of a file's first block */
	int64_t *gives, *at; /* [rounds] bytes that this rank gives; where they lie in the staging */
	int64_t most;        /* of them */
	uint8_t *given, *taken, *buffer; /* what is packed for a round; what arrives; a block */
	int *fd;             /* [nfiles] -1: none of its blocks is this rank's */
	uint64_t *sum;       /* [rounds] of this rank's blocks */
	tt_block *give, *take; /* [PARTS, n] */
	int64_t now;         /* the round at hand */
	int32_t status, *statuses; /* this rank's; [n] all after a round */
	const char *text;    /* of its error */
	tt_status copy_status; /* of a copy that an update made, and its text: before p->failed */
	char copy_text[1024];
};

bool ckpt_share_leads(const tt_ckpt_ranks *r) { return tt_comm_group_index(r->group) == 0; }

/* ---- agreement -------------------------------------------------------------------------------------------------------------------- */

typedef struct report { /* small enough for the head of a message */
	int32_t code, leads;
	ckpt_agreed x;
	char host[64], text[920];
} report;

typedef struct agreement { const report *first; int others; ckpt_agreed x; int rank; report worst; } agreement;

static void hear(void *ctx, const tt_block *take, int n)
{
	agreement *g = ctx;
	for (int i = 0; i < n; i++) {
		report r;
		memcpy(&r, take[i].p, sizeof r);
		if (i == 0)
			g->x.word = r.x.word;
		g->x.stall = TT_MAX(g->x.stall, r.x.stall);
		if (r.code && g->rank >= 0)
			g->others++;
		if (r.code && g->rank < 0) {
			g->rank = i;
			g->worst = r;
		}
	}
}

tt_status ckpt_share_agree(const tt_ckpt_ranks *r, tt_arena *a, const char *name, tt_status mine, ckpt_agreed *x)
{
	int n = tt_comm_group_size(r->group);
	report *me = TT_NEW(a, report);
	me->code = (int32_t)mine;
	me->x = *x;
	gethostname(me->host, sizeof me->host - 1);
	if (mine)
		strncpy(me->text, tt_error_text(), sizeof me->text - 1);
	tt_block *give = TT_NEWN(a, tt_block, 2 * n), *take = give + n;
	for (int i = 0; i < n; i++) {
		give[i] = tt_block_flat(me, sizeof *me);
		take[i] = tt_block_flat(NULL, sizeof *me);
	}
	agreement g = { .rank = -1 };
	tt_exchange e = { .kind = "save", .name = name, .give = give, .take = take, .use = hear, .ctx = &g };
	e.scratch = tt_arena_alloc(a, (size_t)tt_exchange_scratch(r->group, &e));
	TT_TRY(tt_comm_exchange(r->group, &e));
	*x = g.x;
	if (g.rank < 0)
		return TT_OK;
	g.worst.host[sizeof g.worst.host - 1] = g.worst.text[sizeof g.worst.text - 1] = 0;
	const char *others = g.others ? tt_arena_printf(a, "; %d more rank%s failed, too", g.others, g.others == 1 ? "" : "s") : "";
	if (g.rank == 0) /* who leads speaks for itself */
		TT_FAIL((tt_status)g.worst.code, "%s%s", g.worst.text, others);
	TT_FAIL((tt_status)g.worst.code, "rank %d on %s: %s%s", tt_comm_group_rank(r->group, g.rank), g.worst.host, g.worst.text, others);
}

/* ---- who gives what ---------------------------------------------------------------------------------------------------------------- */

/* The file of a block, and its bytes. */
static ckpt_file *file_of(const ckpt_share *s, int64_t b, int64_t *lo, int64_t *hi)
{
	int64_t f = 0;
	while (s->first[f + 1] <= b)
		f++;
	*lo = (b - s->first[f]) * TT_CKPT_BLOCK;
	*hi = TT_MIN(s->p->files[f].bytes, *lo + TT_CKPT_BLOCK);
	return &s->p->files[f];
}

/* Elements of piece p within bytes [lo, hi) of its file; false: none. */
static bool elements(const ckpt_piece *p, int64_t lo, int64_t hi, int64_t *at, int64_t *end)
{
	int64_t size = tt_st_dtype_size(p->out), from = TT_MAX(lo, p->at), to = TT_MIN(hi, p->at + p->bytes);
	if (from >= to)
		return false;
	*at = (from - p->at) / size;
	*end = (to - p->at) / size;
	return true;
}

static int64_t gives(const ckpt_share *s, int rank, int to, int64_t i, int64_t at, int64_t end)
{
	return s->r->before(s->ctx, rank, to, i, end) - s->r->before(s->ctx, rank, to, i, at);
}

/* Bytes of block b that `rank` gives to `to`. */
static int64_t bytes_of(const ckpt_share *s, int rank, int to, int64_t b)
{
	if (b < 0)
		return 0;
	int64_t lo, hi, at, end, n = 0;
	const ckpt_file *f = file_of(s, b, &lo, &hi);
	for (int64_t k = ckpt_file_first(f, lo); k < f->npieces && f->pieces[k].at < hi; k++)
		if (elements(&f->pieces[k], lo, hi, &at, &end))
			n += tt_st_dtype_size(f->pieces[k].out) * gives(s, rank, to, f->pieces[k].index, at, end);
	return n;
}

static int64_t block_of(const ckpt_share *s, int rank, int64_t round) { return s->block[rank * s->rounds + round]; }

/* The rank that holds most of it, of those who may have more; of equals the one that has fewest. */
static void deal(ckpt_share *s, int64_t *block)
{
	memset(block, 0xff, sizeof *block * (size_t)(s->n * s->rounds));
	tt_mark m = tt_arena_push(s->p->arena);
	int64_t *has = TT_NEWN(s->p->arena, int64_t, s->n);
	for (int64_t b = 0; b < s->p->nblocks; b++) {
		int best = -1;
		int64_t held = -1;
		for (int i = 0; i < s->n; i++) {
			int64_t n = has[i] < s->rounds ? bytes_of(s, i, i, b) : -1;
			if (n > held || (n == held && n >= 0 && has[i] < has[best])) {
				best = i;
				held = n;
			}
		}
		block[best * s->rounds + has[best]++] = b;
	}
	tt_arena_pop(s->p->arena, m);
}

ckpt_share *ckpt_share_new(ckpt_pack *p, const tt_ckpt_ranks *r, void *ctx, const int64_t *dealt)
{
	tt_arena *a = p->arena;
	ckpt_share *s = TT_NEW(a, ckpt_share);
	*s = (ckpt_share){ .p = p, .r = r, .ctx = ctx, .n = tt_comm_group_size(r->group), .me = tt_comm_group_index(r->group) };
	s->rounds = tt_ceil_div(p->nblocks, s->n);
	s->first = TT_NEWN(a, int64_t, p->nfiles + 1);
	s->gives = TT_NEWN(a, int64_t, s->rounds);
	s->at = TT_NEWN(a, int64_t, s->rounds);
	s->sum = TT_NEWN(a, uint64_t, s->rounds);
	s->fd = TT_NEWN(a, int, p->nfiles);
	s->give = TT_NEWN(a, tt_block, PARTS * s->n);
	s->take = TT_NEWN(a, tt_block, PARTS * s->n);
	s->statuses = TT_NEWN(a, int32_t, s->n);
	for (int64_t f = 0; f < p->nfiles; f++) {
		s->first[f + 1] = s->first[f] + p->files[f].nblocks;
		s->fd[f] = -1;
	}
	int64_t *block = dealt ? NULL : TT_NEWN(a, int64_t, s->n * s->rounds);
	if (block)
		deal(s, block);
	s->block = dealt ? dealt : block;
	for (int64_t k = 0; k < s->rounds; k++) {
		for (int i = 0; i < s->n; i++)
			s->gives[k] += bytes_of(s, s->me, i, block_of(s, i, k));
		s->most = TT_MAX(s->most, s->gives[k]);
	}
	atomic_store(&p->unread, s->rounds);
	return s;
}

const int64_t *ckpt_share_dealt(const ckpt_share *s, int64_t *n)
{
	*n = s->n * s->rounds;
	return s->block;
}

void ckpt_share_free(ckpt_share *s)
{
	free(s->given);
	free(s->taken);
	free(s->buffer);
}

int64_t ckpt_share_gives(const ckpt_share *s)
{
	int64_t n = 0;
	for (int64_t k = 0; k < s->rounds; k++)
		n += tt_round_up(s->gives[k], ALIGN);
	return n;
}

/* ---- packing ----------------------------------------------------------------------------------------------------------------------- */

static tt_status piece_pack(const ckpt_share *s, const ckpt_piece *p, int to, int64_t at, int64_t end, uint8_t **dst)
{
	double part[CKPT_CHUNK]; /* room for the widest */
	int64_t step = p->in == p->out ? end - at : CKPT_CHUNK;
	for (; at < end; at += step) {
		int64_t m = TT_MIN(step, end - at), n = gives(s, s->me, to, p->index, at, at + m);
		if (!n)
			continue;
		TT_TRY(s->r->pack(s->ctx, p->index, at, m, p->in == p->out ? (void *)*dst : part));
		if (p->in != p->out)
			ckpt_convert(*dst, p->out, part, p->in, n);
		*dst += n * tt_st_dtype_size(p->out);
	}
	return TT_OK;
}

/* What this rank gives in a round, to one rank after the other. */
static tt_status round_pack(const ckpt_share *s, int64_t round, uint8_t *dst)
{
	for (int i = 0; i < s->n; i++) {
		int64_t b = block_of(s, i, round), lo, hi, at, end;
		if (b < 0)
			continue;
		const ckpt_file *f = file_of(s, b, &lo, &hi);
		for (int64_t k = ckpt_file_first(f, lo); k < f->npieces && f->pieces[k].at < hi; k++)
			if (elements(&f->pieces[k], lo, hi, &at, &end))
				TT_TRY(piece_pack(s, &f->pieces[k], i, at, end, &dst));
	}
	return TT_OK;
}

tt_status ckpt_share_stage(ckpt_share *s, int64_t bytes, int64_t *staged)
{
	ckpt_pack *p = s->p;
	int64_t used = 0;
	for (int64_t k = s->rounds - 1; k >= 0; k--) {
		uint8_t was = BLOCK_PENDING;
		if (used + s->gives[k] > bytes || atomic_load(&p->failed))
			break;
		if (!atomic_compare_exchange_strong(&p->block[k], &was, BLOCK_TAKEN))
			break; /* the writer's front */
		s->copy_status = round_pack(s, k, p->staging + used);
		if (s->copy_status)
			snprintf(s->copy_text, sizeof s->copy_text, "%s", tt_error_text());
		TT_TRY(s->copy_status);
		s->at[k] = used;
		used += tt_round_up(s->gives[k], ALIGN);
		*staged += s->gives[k];
		atomic_store(&p->block[k], BLOCK_STAGED);
		atomic_fetch_sub(&p->unread, 1);
	}
	return TT_OK;
}

/* The same for the writer: packed now, or where it was staged. */
static tt_status round_get(ckpt_share *s, int64_t round, const uint8_t **out)
{
	ckpt_pack *p = s->p;
	uint8_t was = BLOCK_PENDING;
	*out = s->given;
	if (!atomic_load(&p->failed) && atomic_compare_exchange_strong(&p->block[round], &was, BLOCK_TAKEN)) {
		TT_TRY(round_pack(s, round, s->given));
		atomic_store(&p->block[round], BLOCK_READ);
		atomic_fetch_sub(&p->unread, 1);
		p->progress(p->progress_ctx);
		return TT_OK;
	}
	while (atomic_load(&p->block[round]) == BLOCK_TAKEN && !atomic_load(&p->failed))
		sched_yield();
	if (atomic_load(&p->failed)) /* the copy has */
		TT_FAIL(s->copy_status, "%s", s->copy_text);
	*out = p->staging + s->at[round];
	return TT_OK;
}

/* ---- writing ------------------------------------------------------------------------------------------------------------------------- */

/* Runs of the block at hand, as `from` packed them, to their places. */
static void unpack(const ckpt_share *s, int from, const ckpt_file *f, int64_t lo, int64_t hi, const uint8_t *src)
{
	int64_t at, end, n;
	for (int64_t k = ckpt_file_first(f, lo); k < f->npieces && f->pieces[k].at < hi; k++) {
		const ckpt_piece *p = &f->pieces[k];
		int64_t size = tt_st_dtype_size(p->out);
		if (!elements(p, lo, hi, &at, &end))
			continue;
		while ((at = s->r->run(s->ctx, from, s->me, p->index, at, end, &n)) < end) {
			memcpy(s->buffer + (p->at + at * size - lo), src, (size_t)(n * size));
			src += n * size;
			at += n;
		}
	}
}

static void arrived(void *ctx, const tt_block *take, int n)
{
	ckpt_share *s = ctx;
	int64_t b = block_of(s, s->me, s->now), lo = 0, hi = 0;
	const ckpt_file *f = b < 0 ? NULL : file_of(s, b, &lo, &hi);
	if (f && lo < f->nhead)
		memcpy(s->buffer, f->head + lo, (size_t)(TT_MIN(hi, f->nhead) - lo));
	for (int i = 0; i < n; i++) {
		if (f && tt_block_bytes(&take[DATA * n + i]))
			unpack(s, i, f, lo, hi, take[DATA * n + i].p);
		memcpy(&s->statuses[i], take[STATUS * n + i].p, sizeof s->status);
	}
}

static void failed(ckpt_share *s, tt_status why)
{
	if (s->status || !why)
		return;
	s->status = (int32_t)why;
	s->text = tt_arena_strdup(s->p->arena, tt_error_text());
}

static tt_status exchange(ckpt_share *s, int64_t round)
{
	const uint8_t *place = s->given;
	int64_t b = block_of(s, s->me, round), lo = 0, hi = 0, sum = 0;
	failed(s, round_get(s, round, &place));
	s->now = round;
	const ckpt_file *f = b < 0 ? NULL : file_of(s, b, &lo, &hi);
	if (f && f->nhead > lo)
		sum = TT_MIN(f->nhead, hi) - lo;
	for (int i = 0; i < s->n; i++) {
		int64_t bytes = bytes_of(s, s->me, i, block_of(s, i, round));
		s->give[DATA * s->n + i] = tt_block_flat(place, bytes);
		s->take[DATA * s->n + i] = tt_block_flat(NULL, bytes_of(s, i, s->me, b));
		sum += s->take[DATA * s->n + i].bytes;
		s->give[STATUS * s->n + i] = tt_block_flat(&s->status, sizeof s->status);
		s->take[STATUS * s->n + i] = tt_block_flat(NULL, sizeof s->status);
		place += bytes;
	}
	TT_ASSERT(sum == hi - lo, "block %lld: %lld of %lld bytes are given", (long long)b, (long long)sum, (long long)(hi - lo));
	tt_exchange x = { .kind = "save", .name = "blocks of a save", .give = s->give, .take = s->take, .parts = PARTS, .scratch = s->taken, .use = arrived, .ctx = s };
	return tt_comm_exchange(s->r->group, &x);
}

static const char *path_of(const ckpt_share *s, int64_t f) { return tt_arena_printf(s->p->arena, "%s/%s", s->p->dir, s->p->files[f].name); }

static tt_status block_write(ckpt_share *s, int64_t round)
{
	int64_t b = block_of(s, s->me, round), lo, hi;
	if (b < 0)
		return TT_OK;
	int64_t f = file_of(s, b, &lo, &hi) - s->p->files;
	s->sum[round] = tt_hash64(s->buffer, (size_t)(hi - lo), 0);
	return tt_fs_pwrite_block(s->p->fs, s->fd[f], path_of(s, f), s->buffer, (size_t)(hi - lo), lo);
}

tt_status ckpt_share_create(ckpt_share *s)
{
	for (int64_t f = 0; f < s->p->nfiles; f++) {
		int fd;
		TT_TRY(tt_fs_open_write(s->p->fs, path_of(s, f), &fd));
		tt_fs_close(s->p->fs, fd);
	}
	return TT_OK;
}

static tt_status files_open(ckpt_share *s)
{
	for (int64_t k = 0; k < s->rounds; k++) {
		int64_t b = block_of(s, s->me, k), lo, hi, f = b < 0 ? 0 : file_of(s, b, &lo, &hi) - s->p->files;
		if (b >= 0 && s->fd[f] < 0)
			TT_TRY(tt_fs_open_there(s->p->fs, path_of(s, f), &s->fd[f]));
	}
	return TT_OK;
}

static tt_status files_sync(ckpt_share *s)
{
	for (int64_t f = 0; f < s->p->nfiles; f++)
		if (s->fd[f] >= 0)
			TT_TRY(tt_fs_sync(s->p->fs, s->fd[f], path_of(s, f)));
	return TT_OK;
}

/* Round by round, until all are done or one has failed. */
static tt_status rounds_write(ckpt_share *s)
{
	failed(s, files_open(s));
	for (int64_t k = 0; k < s->rounds; k++) {
		TT_TRY(exchange(s, k));
		for (int i = 0; i < s->n; i++)
			if (s->statuses[i])
				return TT_OK;
		failed(s, block_write(s, k));
	}
	if (!s->status)
		failed(s, files_sync(s));
	return TT_OK;
}

/* The leader takes all checksums. */
static void take_sums(void *ctx, const tt_block *take, int n)
{
	ckpt_share *s = ctx;
	for (int i = 0; i < n && s->me == 0; i++)
		for (int64_t k = 0; k < s->rounds; k++) {
			int64_t b = block_of(s, i, k), lo, hi;
			if (b < 0)
				continue;
			ckpt_file *f = file_of(s, b, &lo, &hi);
			memcpy(&f->sums[lo / TT_CKPT_BLOCK], take[i].p + k * (int64_t)sizeof *s->sum, sizeof *s->sum);
		}
}

static tt_status sums_gather(ckpt_share *s)
{
	int64_t bytes = s->rounds * (int64_t)sizeof *s->sum;
	for (int i = 0; i < s->n; i++) {
		s->give[i] = tt_block_flat(s->sum, i == 0 ? bytes : 0);
		s->take[i] = tt_block_flat(NULL, s->me == 0 ? bytes : 0);
	}
	tt_exchange x = { .kind = "save", .name = "checksums of a save", .give = s->give, .take = s->take, .use = take_sums, .ctx = s };
	x.scratch = tt_arena_alloc(s->p->arena, (size_t)tt_exchange_scratch(s->r->group, &x) + ALIGN);
	TT_TRY(tt_comm_exchange(s->r->group, &x));
	for (int64_t f = 0; f < s->p->nfiles && s->me == 0; f++) {
		const ckpt_file *x_f = &s->p->files[f];
		s->p->listed[s->p->nlisted++] = (ckpt_listed){ x_f->name, x_f->bytes, x_f->nblocks, x_f->sums };
	}
	return TT_OK;
}

tt_status ckpt_share_write(ckpt_share *s)
{
	/* What a rank takes in a round is a block, each giver's part on a line of its own, and statuses. */
	s->given = malloc((size_t)TT_MAX(s->most, (int64_t)1));
	s->taken = aligned_alloc(4096, (size_t)tt_round_up(TT_CKPT_BLOCK + 2 * ALIGN * PARTS * s->n, 4096));
	s->buffer = aligned_alloc(4096, (size_t)TT_CKPT_BLOCK);
	TT_ASSERT(s->given && s->taken && s->buffer, "%s: out of memory", s->p->dir);
	tt_status done = rounds_write(s);
	for (int64_t f = 0; f < s->p->nfiles; f++)
		if (s->fd[f] >= 0)
			tt_fs_close(s->p->fs, s->fd[f]);
	TT_TRY(done);
	if (s->status)
		tt_error_set((tt_status)s->status, __FILE__, __LINE__, s->me ? "%s (room and rights there; ranks write a checkpoint together: job.dump_folder must be one folder, which "
			     "all hosts share)" : "%s", s->text);
	ckpt_agreed x = { 0 };
	TT_TRY(ckpt_share_agree(s->r, s->p->arena, "blocks written", (tt_status)s->status, &x));
	return sums_gather(s);
}
