/* export.c: a checkpoint, or any Hugging Face folder, as a plain Hugging Face folder in other dtypes. */
#include <stdlib.h>
#include <unistd.h>

#include "ckpt/internal.h"

/* Tensors of the source, read through descriptors; the file of the last read stays open, since tensors come in order. */
typedef struct source {
	const tt_fs *fs;
	const tt_st_tensor **tensors;
	const char *open;
	int fd;
} source;

static tt_status source_read(void *ctx, int64_t i, int64_t at, int64_t n, void *dst)
{
	source *s = ctx;
	const tt_st_tensor *t = s->tensors[i];
	int64_t size = tt_st_dtype_size(t->dtype);
	if (s->open != t->file) {
		tt_fs_close(s->fs, s->fd);
		s->open = NULL;
		s->fd = -1;
		TT_TRY(tt_fs_open_read(s->fs, t->file, &s->fd));
		s->open = t->file;
	}
	return tt_fs_pread(s->fs, s->fd, t->file, dst, (size_t)(n * size), t->at + at * size);
}

/* dtype of most bytes: what config.json says of the whole. */
static const char *main_dtype(const ckpt_piece *p, int64_t n)
{
	int64_t bytes[TT_ST_NDTYPES] = { 0 };
	int best = TT_ST_F32;
	for (int64_t i = 0; i < n; i++)
		bytes[p[i].out] += p[i].bytes;
	for (int d = 0; d < TT_ST_NDTYPES; d++)
		if (ckpt_torch_dtype((tt_st_dtype)d) && bytes[d] > bytes[best])
			best = d;
	return ckpt_torch_dtype((tt_st_dtype)best);
}

static tt_status smalls(tt_arena *a, const tt_fs *fs, const char *dir, const char *dtype, const char *index, ckpt_pack *p)
{
	ckpt_small *list;
	int64_t n;
	TT_TRY(ckpt_carry_read(a, fs, dir, &list, &n, NULL));
	p->small = TT_NEWN(a, ckpt_small, n + 1);
	for (int64_t i = 0; i < n; i++) {
		ckpt_small f = list[i];
		if (!strcmp(f.name, "config.json")) {
			tt_buf b = { 0 };
			tt_status s = ckpt_config_dtype(f.bytes, f.n, dtype, &b);
			if (s == TT_OK)
				f = (ckpt_small){ f.name, tt_arena_strndup(a, b.s, b.n), b.n };
			tt_buf_fini(&b);
			TT_TRY(s);
		}
		p->small[p->nsmall++] = f;
	}
	if (index)
		p->small[p->nsmall++] = (ckpt_small){ "model.safetensors.index.json", index, strlen(index) };
	return TT_OK;
}

static tt_status folder_make(const tt_fs *fs, const char *tmp, const char *out, ckpt_pack *p)
{
	if (fs->mkdir(fs, tmp))
		TT_FAIL(TT_ERR_IO, "%s: cannot create folder: %m", tmp);
	tt_status s = ckpt_pack_write(p);
	if (s == TT_OK)
		s = tt_fs_sync_folder(fs, tmp);
	if (s == TT_OK)
		s = tt_fs_rename(fs, tmp, out);
	if (s != TT_OK) {
		char text[2048];
		memcpy(text, tt_error_text(), strlen(tt_error_text()) + 1);
		if (tt_fs_remove_folder(fs, tmp) != TT_OK)
			tt_log(TT_LOG_WARN, "%s", tt_error_text());
		TT_FAIL(s, "%s", text);
	}
	return TT_OK;
}

static tt_status export_from(tt_arena *a, const tt_fs *fs, const char *dir, const char *out, tt_st_dtype dtype, int64_t shard_bytes,
			     const tt_st *st, const tt_ckpt *c)
{
	int64_t n = 0;
	const tt_st_tensor **from = TT_NEWN(a, const tt_st_tensor *, tt_st_count(st));
	tt_ckpt_tensor *list = TT_NEWN(a, tt_ckpt_tensor, tt_st_count(st));
	for (int64_t i = 0; i < tt_st_count(st); i++) {
		const tt_st_tensor *t = tt_st_at(st, i);
		if (c && ckpt_is_optim_file(t->file))
			continue;
		from[n] = t;
		list[n] = (tt_ckpt_tensor){ .name = t->name, .dtype = t->dtype, .imported = t->dtype, .ndim = t->ndim };
		if (c && ckpt_is_float(t->dtype))
			list[n].imported = tt_ckpt_imported(c, t->name, t->dtype);
		memcpy(list[n++].dim, t->dim, sizeof t->dim);
	}
	source src = { .fs = fs, .tensors = from, .fd = -1 };
	ckpt_pack p = { .arena = a, .fs = fs, .read = source_read, .ctx = &src };
	p.dir = tt_arena_printf(a, "%s.tmp-%d", out, (int)getpid());
	const char *index = NULL;
	int64_t npieces;
	ckpt_piece *pieces = ckpt_pieces(a, list, n, false, dtype, &npieces);
	ckpt_files_plan(a, "model", pieces, npieces, shard_bytes ? shard_bytes : TT_CKPT_SHARD, &p.files, &p.nfiles, &p.cap_files, &index);
	TT_TRY(smalls(a, fs, dir, main_dtype(pieces, npieces), index, &p));
	ckpt_pack_init(&p);
	tt_status s = folder_make(fs, p.dir, out, &p);
	tt_fs_close(fs, src.fd);
	TT_TRY(s);
	return TT_OK;
}

tt_status tt_ckpt_export(const tt_fs *fs, const char *dir, const char *out, tt_st_dtype dtype, int64_t shard_bytes)
{
	fs = fs ? fs : &tt_fs_posix;
	size_t n = strlen(out);
	while (n > 1 && out[n - 1] == '/')
		n--;
	tt_arena *a = tt_arena_create("export");
	out = tt_arena_strndup(a, out, n);
	tt_ckpt *c = NULL;
	tt_st *st = NULL;
	int64_t bytes;
	tt_status s = TT_OK;
	if (tt_fs_exists(fs, out))
		s = tt_error_set(TT_ERR_USAGE, __FILE__, __LINE__, "%s: is there already; an export makes its folder", out);
	else if (!tt_fs_exists(fs, tt_arena_printf(a, "%s/%s", dir, CKPT_COMPLETE)))
		s = tt_st_open(a, dir, &st);
	else if ((s = tt_ckpt_open_dir(a, fs, dir, &c)) == TT_OK)
		s = tt_ckpt_verify(c, &bytes);
	if (s == TT_OK)
		s = export_from(a, fs, dir, out, dtype, shard_bytes, c ? tt_ckpt_headers(c) : st, c);
	tt_st_close(st);
	tt_arena_destroy(a);
	TT_TRY(s);
	return TT_OK;
}
