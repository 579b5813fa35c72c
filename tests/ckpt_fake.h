/* A program made of numbers, for suites that save and load: its tensors, its state at any step, and file layers that fail. */
#ifndef TT_CKPT_FAKE_H
#define TT_CKPT_FAKE_H

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "ckpt/ckpt.h"
#include "test.h"

enum { FAKE_MAX = 16 };

typedef struct fake {
	tt_ckpt_tensor t[FAKE_MAX];
	float *p[FAKE_MAX];
	int64_t n;
	tt_llama_config model;
	tt_status fails; /* what reading returns */
} fake;

static inline int64_t fake_count(const tt_ckpt_tensor *t)
{
	int64_t n = 1;
	for (int d = 0; d < t->ndim; d++)
		n *= t->dim[d];
	return n;
}

/* Element e of tensor i at step `step`: finite, exact in bf16 where `step` is a multiple of 100. */
static inline float fake_value(int64_t step, int64_t i, int64_t e)
{
	uint64_t h = tt_mix64((uint64_t)(step * 131 + i) * 0x9e3779b97f4a7c15u + (uint64_t)e);
	float f = (float)((double)(int64_t)(h >> 11) * 0x1p-53 - 0.5);
	return step % 100 ? f : tt_bf16_to_f32(tt_f32_to_bf16(f));
}

static inline void fake_set(fake *f, int64_t step)
{
	for (int64_t i = 0; i < f->n; i++)
		for (int64_t e = 0; e < fake_count(&f->t[i]); e++)
			f->p[i][e] = step < 0 ? -7 : fake_value(step, i, e);
}

/* The first tensor that is not as at `step`, -1: none. */
static inline int64_t fake_differs(const fake *f, int64_t step, bool optim)
{
	for (int64_t i = 0; i < f->n; i++)
		for (int64_t e = 0; e < fake_count(&f->t[i]) && f->t[i].optim <= optim; e++) {
			float want = fake_value(step, i, e);
			if (memcmp(&want, &f->p[i][e], 4))
				return i;
		}
	return -1;
}

static inline void fake_add(tt_test *t, fake *f, const char *name, bool optim, int64_t d0, int64_t d1)
{
	tt_ckpt_tensor *x = &f->t[f->n];
	*x = (tt_ckpt_tensor){ .name = name, .optim = optim, .dtype = TT_ST_F32, .imported = TT_ST_BF16, .ndim = d1 ? 2 : 1, .dim = { d0, d1 } };
	f->p[f->n++] = TT_NEWN(t->arena, float, fake_count(x));
}

/* `rows` of 64: the embedding of a model that is otherwise tiny. */
static inline fake *fake_new(tt_test *t, int64_t rows)
{
	fake *f = TT_NEW(t->arena, fake);
	f->model = (tt_llama_config){
		.architecture = "LlamaForCausalLM", .vocab_size = rows, .hidden_size = 64, .num_hidden_layers = 2, .num_attention_heads = 4,
		.num_key_value_heads = 2, .head_dim = 16, .intermediate_size = 96, .max_position_embeddings = 512, .rms_norm_eps = 1e-5,
		.rope_theta = 10000, .initializer_range = 0.02, .bos = -1,
	};
	fake_add(t, f, "model.norm.weight", false, 7, 0); /* odd, so that others begin at odd places */
	fake_add(t, f, "model.embed_tokens.weight", false, rows, 64);
	fake_add(t, f, "lm_head.weight", false, 33, 64);
	fake_add(t, f, "optim.exp_avg.model.embed_tokens.weight", true, rows, 64);
	fake_add(t, f, "optim.exp_avg.model.norm.weight", true, 7, 0);
	fake_add(t, f, "optim.exp_avg.lm_head.weight", true, 33, 64);
	return f;
}

static inline tt_status fake_read(void *ctx, int64_t i, int64_t at, int64_t n, void *dst)
{
	const fake *f = ctx;
	if (f->fails != TT_OK)
		TT_FAIL(f->fails, "%s: reading was to fail", f->t[i].name);
	memcpy(dst, f->p[i] + at, (size_t)n * 4);
	return TT_OK;
}

static inline tt_status fake_write(void *ctx, int64_t i, int64_t at, int64_t n, const void *src)
{
	fake *f = ctx;
	TT_ASSERT(at >= 0 && n >= 0 && at + n <= fake_count(&f->t[i]));
	memcpy(f->p[i] + at, src, (size_t)n * 4);
	return TT_OK;
}

static inline tt_ckpt_state fake_state(int64_t step)
{
	return (tt_ckpt_state){ .step = step, .tokens_seen = step * 4096, .skips = step % 3, .seed = 0xfedcba9876543210u,
				.data = { step, 64, 4096, 0x8000000000000001u }, .schedule = { 2, 1000, 500, "cosine", 0.1 },
				.config = "[training]\nsteps = 10 # \"über\"\n" };
}

static inline tt_ckpt_options fake_options(fake *f, const char *folder, const tt_fs *fs)
{
	return (tt_ckpt_options){ .fs = fs, .folder = folder, .keep_latest_k = 2, .model = &f->model, .tensors = f->t, .ntensors = f->n, .read = fake_read,
				  .ctx = f };
}

/* One save of `step` from beginning to end. */
static inline tt_status fake_save(fake *f, const tt_ckpt_options *o, int64_t step, tt_ckpt_kind kind, tt_st_dtype dtype)
{
	tt_ckpt_writer *w;
	TT_TRY(tt_ckpt_writer_create(o, &w));
	fake_set(f, step);
	tt_ckpt_state st = fake_state(step);
	tt_status s = tt_ckpt_save_begin(w, &st, kind, dtype);
	tt_ckpt_result r;
	bool done;
	if (s == TT_OK) {
		tt_ckpt_before_update(w);
		fake_set(f, -1);
		s = tt_ckpt_wait(w, &done, &r);
	}
	tt_ckpt_writer_destroy(w);
	TT_TRY(s);
	return TT_OK;
}

/* A test kills processes, not machines: nothing is brought to the disk, which may be slow. */
static inline int no_sync(const tt_fs *fs, int fd)
{
	(void)fs, (void)fd;
	return 0;
}

/* ---- file layers that fail ---------------------------------------------------------------------------------------------- */

typedef enum fault_mode { FAULT_EIO, FAULT_ENOSPC, FAULT_SHORT, FAULT_CRASH, FAULT_MODES } fault_mode;

typedef struct fault_counts {
	int64_t calls, fail_at; /* fail_at 0: never */
	int64_t room;           /* bytes that may still be written; -1: any */
	fault_mode mode;
	bool hit;
} fault_counts;

typedef struct fault_fs {
	tt_fs fs;
	fault_counts *c;
} fault_fs;

static inline fault_counts *fault_of(const tt_fs *fs) { return ((const fault_fs *)(const void *)fs)->c; }

static inline bool fault_trips(const tt_fs *fs)
{
	fault_counts *c = fault_of(fs);
	if (++c->calls != c->fail_at)
		return false;
	c->hit = true;
	if (c->mode == FAULT_CRASH)
		_exit(99);
	errno = c->mode == FAULT_ENOSPC ? ENOSPC : EIO;
	return c->mode != FAULT_SHORT;
}

#define FAULT_CALL(type, name, params, args)                                                                           \
	static inline type fault_##name params                                                                         \
	{                                                                                                              \
		if (fault_trips(fs))                                                                                   \
			return -1;                                                                                     \
		return tt_fs_posix.name args;                                                                          \
	}
FAULT_CALL(int, open, (const tt_fs *fs, const char *p, int flags, int mode), (fs, p, flags, mode))
FAULT_CALL(int, writeback, (const tt_fs *fs, int fd, int64_t at, int64_t n), (fs, fd, at, n))
FAULT_CALL(int, direct, (const tt_fs *fs, int fd, bool on), (fs, fd, on))
FAULT_CALL(int, rename, (const tt_fs *fs, const char *a, const char *b), (fs, a, b))
FAULT_CALL(int, exchange, (const tt_fs *fs, const char *a, const char *b), (fs, a, b))
FAULT_CALL(int, unlink, (const tt_fs *fs, const char *p), (fs, p))
FAULT_CALL(int, mkdir, (const tt_fs *fs, const char *p), (fs, p))
FAULT_CALL(int, rmdir, (const tt_fs *fs, const char *p), (fs, p))
FAULT_CALL(int, stat, (const tt_fs *fs, const char *p, struct stat *st), (fs, p, st))
FAULT_CALL(int, list, (const tt_fs *fs, const char *p, void (*each)(void *, const char *), void *ctx), (fs, p, each, ctx))
FAULT_CALL(int64_t, space, (const tt_fs *fs, const char *p), (fs, p))

static inline int fault_fsync(const tt_fs *fs, int fd) { return fault_trips(fs) ? -1 : no_sync(fs, fd); }

static inline int fault_close(const tt_fs *fs, int fd)
{
	bool trips = fault_trips(fs);
	int r = tt_fs_posix.close(fs, fd); /* a close that fails has closed all the same */
	return trips ? -1 : r;
}

static inline ssize_t fault_pread(const tt_fs *fs, int fd, void *p, size_t n, int64_t at)
{
	fault_counts *c = fault_of(fs);
	if (fault_trips(fs))
		return -1;
	bool cut = c->mode == FAULT_SHORT && c->calls == c->fail_at && n > 1;
	return tt_fs_posix.pread(fs, fd, p, cut ? n / 2 : n, at);
}

static inline ssize_t fault_pwrite(const tt_fs *fs, int fd, const void *p, size_t n, int64_t at)
{
	fault_counts *c = fault_of(fs);
	if (fault_trips(fs))
		return -1;
	bool cut = c->mode == FAULT_SHORT && c->calls == c->fail_at && n > 1;
	if (c->room >= 0 && (int64_t)n > c->room) {
		errno = ENOSPC;
		if (!c->room)
			return -1;
		n = (size_t)c->room;
	}
	ssize_t w = tt_fs_posix.pwrite(fs, fd, p, cut ? n / 2 : n, at);
	if (c->room >= 0 && w > 0)
		c->room -= w;
	return w;
}

static inline fault_fs fault_new(fault_counts *c)
{
	return (fault_fs){ { .open = fault_open, .pread = fault_pread, .pwrite = fault_pwrite, .writeback = fault_writeback, .direct = fault_direct, .fsync = fault_fsync,
			     .close = fault_close, .rename = fault_rename, .exchange = fault_exchange, .unlink = fault_unlink, .mkdir = fault_mkdir,
			     .rmdir = fault_rmdir, .stat = fault_stat, .list = fault_list, .space = fault_space },
			   c };
}

/* Entries of a folder that begin with ".tmp-". */
static inline int64_t fake_remains(tt_test *t, const char *folder)
{
	char **names;
	int64_t n, k = 0;
	if (!TT_CHECK_OK(t, tt_fs_names(t->arena, &tt_fs_posix, folder, &names, &n)))
		return -1;
	for (int64_t i = 0; i < n; i++)
		k += strncmp(names[i], ".tmp-", 5) == 0;
	return k;
}

/* A folder of checkpoints and everything in it, gone. */
static inline void fake_wipe(tt_test *t, const char *folder)
{
	char **names;
	int64_t n;
	if (!tt_fs_exists(&tt_fs_posix, folder) || !TT_CHECK_OK(t, tt_fs_names(t->arena, &tt_fs_posix, folder, &names, &n)))
		return;
	for (int64_t i = 0; i < n; i++) {
		const char *path = tt_arena_printf(t->arena, "%s/%s", folder, names[i]);
		if (unlink(path) && tt_fs_remove_folder(&tt_fs_posix, path) != TT_OK)
			TT_CHECK_MSG(t, false, "%s", tt_error_text());
	}
	rmdir(folder);
}

#endif
