/* pack.c: writing the files of one folder.
 *
 * Block by block: filled (from the program or from staging), checksummed while in cache, written past the page cache, so that the fsync
 * at the end finds little left to do. All files are written before the first is synced: an update that waits for the tensors
 * waits for writes alone.
 */
#include <sched.h>
#include <stdlib.h>

#include "ckpt/internal.h"

ckpt_piece *ckpt_pieces(tt_arena *a, const tt_ckpt_tensor *t, int64_t n, bool optim, tt_st_dtype dtype, int64_t *count)
{
	ckpt_piece *out = TT_NEWN(a, ckpt_piece, n);
	int64_t k = 0;
	for (int64_t i = 0; i < n; i++) {
		if (t[i].optim != optim)
			continue;
		ckpt_piece *p = &out[k++];
		*p = (ckpt_piece){ .name = t[i].name, .index = i, .in = t[i].dtype, .out = t[i].dtype, .ndim = t[i].ndim };
		if (!optim && ckpt_is_float(p->in))
			p->out = dtype == TT_ST_NDTYPES ? t[i].imported : dtype;
		memcpy(p->dim, t[i].dim, sizeof p->dim);
	}
	*count = k;
	return out;
}

void ckpt_pack_init(ckpt_pack *p)
{
	p->nblocks = 0;
	for (int64_t i = 0; i < p->nfiles; i++)
		p->nblocks += p->files[i].nblocks;
	p->block = tt_arena_alloc(p->arena, (size_t)p->nblocks);
	p->slot = TT_NEWN(p->arena, int32_t, p->nblocks);
	p->listed = TT_NEWN(p->arena, ckpt_listed, p->nfiles + p->nsmall);
	atomic_store(&p->unread, p->nblocks);
}

int64_t ckpt_pack_bytes(const ckpt_pack *p)
{
	int64_t n = 0;
	for (int64_t i = 0; i < p->nfiles; i++)
		n += p->files[i].bytes;
	for (int64_t i = 0; i < p->nsmall; i++)
		n += (int64_t)p->small[i].n;
	return n;
}

/* Block b as it is to be written, in `buffer` or where it was staged. */
static tt_status block_get(ckpt_pack *p, const ckpt_file *f, int64_t b, int64_t lo, int64_t hi, uint8_t *buffer, const uint8_t **out)
{
	if (atomic_load(&p->failed))
		TT_FAIL(TT_ERR_STOP, "%s: given up", p->dir);
	uint8_t was = BLOCK_PENDING;
	if (atomic_compare_exchange_strong(&p->block[b], &was, BLOCK_TAKEN)) {
		TT_TRY(ckpt_file_fill(f, lo, hi, p->read, p->ctx, buffer));
		atomic_store(&p->block[b], BLOCK_READ);
		atomic_fetch_sub(&p->unread, 1);
		if (p->progress)
			p->progress(p->progress_ctx);
		*out = buffer;
		return TT_OK;
	}
	/* The other thread is copying 4 MiB. */
	while (atomic_load(&p->block[b]) == BLOCK_TAKEN && !atomic_load(&p->failed))
		sched_yield();
	if (atomic_load(&p->failed))
		TT_FAIL(TT_ERR_STOP, "%s: given up", p->dir);
	*out = p->staging + (size_t)p->slot[b] * (size_t)TT_CKPT_BLOCK;
	return TT_OK;
}

static tt_status file_write(ckpt_pack *p, ckpt_file *f, int fd, const char *path, int64_t first, uint8_t *buffer)
{
	for (int64_t i = 0; i < f->nblocks; i++) {
		int64_t lo = i * TT_CKPT_BLOCK, hi = TT_MIN(f->bytes, lo + TT_CKPT_BLOCK);
		const uint8_t *bytes;
		TT_TRY(block_get(p, f, first + i, lo, hi, buffer, &bytes));
		f->sums[i] = tt_hash64(bytes, (size_t)(hi - lo), 0);
		TT_TRY(tt_fs_pwrite_block(p->fs, fd, path, bytes, (size_t)(hi - lo), lo));
	}
	return TT_OK;
}

static tt_status small_write(ckpt_pack *p, const ckpt_small *s)
{
	TT_TRY(tt_fs_write_file(p->fs, tt_arena_printf(p->arena, "%s/%s", p->dir, s->name), s->bytes, s->n));
	ckpt_listed l = { s->name, (int64_t)s->n, tt_ceil_div((int64_t)s->n, TT_CKPT_BLOCK), NULL };
	uint64_t *sums = TT_NEWN(p->arena, uint64_t, l.nblocks);
	for (int64_t b = 0; b < l.nblocks; b++)
		sums[b] = tt_hash64(s->bytes + b * TT_CKPT_BLOCK, (size_t)TT_MIN(TT_CKPT_BLOCK, l.bytes - b * TT_CKPT_BLOCK), 0);
	l.sums = sums;
	p->listed[p->nlisted++] = l;
	return TT_OK;
}

tt_status ckpt_pack_small(ckpt_pack *p)
{
	for (int64_t i = 0; i < p->nsmall; i++)
		TT_TRY(small_write(p, &p->small[i]));
	return TT_OK;
}

static tt_status all_write(ckpt_pack *p, int *fds, uint8_t *buffer)
{
	int64_t first = 0;
	for (int64_t i = 0; i < p->nfiles; i++) {
		ckpt_file *f = &p->files[i];
		const char *path = tt_arena_printf(p->arena, "%s/%s", p->dir, f->name);
		TT_TRY(tt_fs_open_write(p->fs, path, &fds[i]));
		TT_TRY(file_write(p, f, fds[i], path, first, buffer));
		first += f->nblocks;
		p->listed[p->nlisted++] = (ckpt_listed){ f->name, f->bytes, f->nblocks, f->sums };
	}
	for (int64_t i = 0; i < p->nfiles; i++)
		TT_TRY(tt_fs_sync(p->fs, fds[i], p->files[i].name));
	return ckpt_pack_small(p);
}

tt_status ckpt_pack_write(ckpt_pack *p)
{
	int *fds = TT_NEWN(p->arena, int, p->nfiles);
	for (int64_t i = 0; i < p->nfiles; i++)
		fds[i] = -1;
	uint8_t *buffer = aligned_alloc(4096, (size_t)TT_CKPT_BLOCK);
	TT_ASSERT(buffer, "%s: out of memory", p->dir);
	tt_status s = all_write(p, fds, buffer);
	free(buffer);
	for (int64_t i = 0; i < p->nfiles; i++)
		tt_fs_close(p->fs, fds[i]);
	TT_TRY(s);
	return TT_OK;
}
