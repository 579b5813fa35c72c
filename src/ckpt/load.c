/* load.c: finding a checkpoint, checking it, reading its tensors. */
#include <stdlib.h>

#include "ckpt/internal.h"

struct tt_ckpt {
	tt_arena *arena;
	const tt_fs *fs;
	const char *dir;
	const char *folder; /* of the run; NULL: not known */
	ckpt_manifest m;
	tt_st *headers;
};

const tt_ckpt_state *tt_ckpt_get_state(const tt_ckpt *c) { return &c->m.state; }
const char *tt_ckpt_dir(const tt_ckpt *c) { return c->dir; }
bool tt_ckpt_model_only(const tt_ckpt *c) { return c->m.model_only; }
const tt_st *tt_ckpt_headers(const tt_ckpt *c) { return c->headers; }

tt_st_dtype tt_ckpt_imported(const tt_ckpt *c, const char *name, tt_st_dtype otherwise)
{
	for (int64_t i = 0; i < c->m.nimported; i++)
		if (!strcmp(c->m.imported[i].name, name))
			return c->m.imported[i].dtype;
	return otherwise;
}

tt_status tt_ckpt_parts(const char *const *names, int n, unsigned *out)
{
	static const char *const words[] = { "model", "optimizer", "lr_scheduler", "dataloader", "train_state" };
	unsigned bits = 0;
	for (int i = 0; i < n; i++) {
		int k = 0;
		while (k < TT_COUNT(words) && strcmp(words[k], names[i]))
			k++;
		if (k == TT_COUNT(words)) {
			const char *near = tt_nearest(names[i], words, TT_COUNT(words));
			TT_FAIL(TT_ERR_USAGE, "checkpoint.exclude_from_loading: \"%s\" is no part of a checkpoint%s%s%s (model, optimizer, lr_scheduler, dataloader, train_state)",
				names[i], near ? "; did you mean \"" : "", near ? near : "", near ? "\"?" : "");
		}
		bits |= 1u << k;
	}
	*out = bits;
	return TT_OK;
}

/* ---- blocks ------------------------------------------------------------------------------------------------------------------ */

static const char *path_of(const tt_ckpt *c, const ckpt_listed *f) { return tt_arena_printf(c->arena, "%s/%s", c->dir, f->name); }

/* Reads block b into the buffer, TT_CKPT_BLOCK bytes, and holds it against its checksum. */
static tt_status block_read(const tt_ckpt *c, const ckpt_listed *f, int fd, const char *path, int64_t b, uint8_t *buffer)
{
	int64_t lo = b * TT_CKPT_BLOCK, hi = TT_MIN(f->bytes, lo + TT_CKPT_BLOCK);
	TT_TRY(tt_fs_pread_block(c->fs, fd, path, buffer, (size_t)(hi - lo), lo));
	if (tt_hash64(buffer, (size_t)(hi - lo), 0) != f->sums[b])
		TT_FAIL(TT_ERR_FORMAT, "%s: bytes %lld to %lld do not match their checksum: the file is damaged, or another's", path, (long long)lo, (long long)hi);
	return TT_OK;
}

static uint8_t *buffer_new(void)
{
	uint8_t *p = aligned_alloc(4096, (size_t)TT_CKPT_BLOCK);
	TT_ASSERT(p, "checkpoint: out of memory");
	return p;
}

/* Blocks [0, n) of a file; n < 0: all. */
static tt_status blocks_check(const tt_ckpt *c, const ckpt_listed *f, int64_t n, uint8_t *buffer)
{
	const char *path = path_of(c, f);
	int fd;
	TT_TRY(tt_fs_open_read(c->fs, path, &fd));
	tt_status s = TT_OK;
	for (int64_t b = 0; b < (n < 0 ? f->nblocks : TT_MIN(n, f->nblocks)) && s == TT_OK; b++)
		s = block_read(c, f, fd, path, b, buffer);
	tt_fs_close(c->fs, fd);
	TT_TRY(s);
	return TT_OK;
}

/* ---- opening ----------------------------------------------------------------------------------------------------------------- */

static bool is_tensors(const char *name)
{
	size_t n = strlen(name), k = strlen(".safetensors");
	return n > k && !strcmp(name + n - k, ".safetensors");
}

bool ckpt_is_optim_file(const char *path)
{
	const char *slash = strrchr(path, '/');
	return !strcmp(slash ? slash + 1 : path, CKPT_OPTIM);
}

/* Small files whole, of the others the blocks that the header is in: what is parsed has been checked. */
static tt_status file_check(const tt_ckpt *c, const ckpt_listed *f, uint8_t *buffer)
{
	const char *path = path_of(c, f);
	struct stat st;
	if (c->fs->stat(c->fs, path, &st))
		TT_FAIL(TT_ERR_IO, "%s: is missing: %m", path);
	if (tt_fs_not_file(&st))
		TT_FAIL(TT_ERR_FORMAT, "%s: is %s, a file is needed", path, tt_fs_not_file(&st));
	if (st.st_size != f->bytes)
		TT_FAIL(TT_ERR_FORMAT, "%s: %lld bytes, %lld were written: the file is cut short, or another's", path, (long long)st.st_size,
			(long long)f->bytes);
	if (!is_tensors(f->name)) {
		TT_TRY(blocks_check(c, f, -1, buffer));
		return TT_OK;
	}
	if (f->bytes < 8)
		TT_FAIL(TT_ERR_FORMAT, "%s: %lld bytes are no safetensors file", path, (long long)f->bytes);
	TT_TRY(blocks_check(c, f, 1, buffer));
	uint64_t header;
	memcpy(&header, buffer, 8);
	if (header <= (uint64_t)TT_ST_MAX_HEADER && (int64_t)header + 8 > TT_CKPT_BLOCK)
		TT_TRY(blocks_check(c, f, tt_ceil_div((int64_t)header + 8, TT_CKPT_BLOCK), buffer));
	return TT_OK;
}

static tt_status open_checked(tt_ckpt *c, uint8_t *buffer)
{
	tt_arena *a = c->arena;
	char *state, *marker;
	size_t n, nmarker;
	const char *state_path = tt_arena_printf(a, "%s/%s", c->dir, CKPT_STATE), *marker_path = tt_arena_printf(a, "%s/%s", c->dir, CKPT_COMPLETE);
	if (!tt_fs_exists(c->fs, c->dir))
		TT_FAIL(TT_ERR_IO, "%s: there is no such folder", c->dir);
	if (!tt_fs_exists(c->fs, marker_path))
		TT_FAIL(TT_ERR_FORMAT, "%s: is not a complete checkpoint: it has no file %s", c->dir, CKPT_COMPLETE);
	TT_TRY(tt_fs_read_file(a, c->fs, marker_path, 4096, &marker, &nmarker));
	TT_TRY(tt_fs_read_file(a, c->fs, state_path, (size_t)TT_GIB, &state, &n));
	const char *want = ckpt_marker(a, state, n);
	if (nmarker != strlen(want) || memcmp(marker, want, nmarker))
		TT_FAIL(TT_ERR_FORMAT, "%s: does not match the checksum in %s: one of the two is damaged, or another's", state_path, CKPT_COMPLETE);
	TT_TRY(ckpt_manifest_parse(a, state_path, state, n, &c->m));
	const char **paths = TT_NEWN(a, const char *, c->m.nfiles);
	int64_t npaths = 0;
	for (int64_t i = 0; i < c->m.nfiles; i++) {
		TT_TRY(file_check(c, &c->m.files[i], buffer));
		if (is_tensors(c->m.files[i].name))
			paths[npaths++] = path_of(c, &c->m.files[i]);
	}
	TT_TRY(tt_st_open_headers(a, c->fs, c->dir, paths, npaths, &c->headers));
	return TT_OK;
}

tt_status tt_ckpt_open_dir(tt_arena *a, const tt_fs *fs, const char *dir, tt_ckpt **out)
{
	tt_ckpt *c = TT_NEW(a, tt_ckpt);
	size_t n = strlen(dir);
	while (n > 1 && dir[n - 1] == '/')
		n--;
	*c = (tt_ckpt){ .arena = a, .fs = fs ? fs : &tt_fs_posix, .dir = tt_arena_strndup(a, dir, n) };
	uint8_t *buffer = buffer_new();
	tt_status s = open_checked(c, buffer);
	free(buffer);
	TT_TRY(s);
	*out = c;
	return TT_OK;
}

/* Adds to the error at hand the newest checkpoint below `step` of which every byte is right. Only where something is damaged:
 * it reads them. */
static tt_status offer(const tt_fs *fs, const char *folder, int64_t step, tt_status s)
{
	tt_arena *a = tt_arena_create("offer");
	const char *text = tt_arena_strdup(a, tt_error_text());
	int64_t *steps, n = 0, bytes;
	if (tt_ckpt_list(a, fs, folder, &steps, &n) != TT_OK)
		n = 0;
	int64_t good = -1;
	for (int64_t i = n - 1; i >= 0 && good < 0; i--) {
		tt_ckpt *c;
		if (steps[i] < step && tt_ckpt_open_dir(a, fs, tt_arena_printf(a, "%s/%s", folder, ckpt_step_name(a, steps[i])), &c) == TT_OK &&
		    tt_ckpt_verify(c, &bytes) == TT_OK)
			good = steps[i];
	}
	if (good >= 0)
		tt_error_set(s, __FILE__, __LINE__, "%s; the newest whole one before it is step %lld (checkpoint.load_step=%lld)", text, (long long)good,
			     (long long)good);
	else
		tt_error_set(s, __FILE__, __LINE__, "%s; there is no whole one before it in %s", text, folder);
	tt_arena_destroy(a);
	return s;
}

static const char *steps_text(tt_arena *a, const int64_t *steps, int64_t n)
{
	tt_buf b = { 0 };
	int64_t first = TT_MAX((int64_t)0, n - 8);
	tt_buf_str(&b, n ? first ? "there are ..., " : "there are " : "there is none");
	for (int64_t i = first; i < n; i++)
		tt_buf_printf(&b, "%s%lld", i > first ? ", " : "", (long long)steps[i]);
	const char *text = tt_arena_strdup(a, b.s);
	tt_buf_fini(&b);
	return text;
}

static tt_status choose(tt_arena *a, const tt_fs *fs, const char *folder, int64_t *step)
{
	int64_t *steps, n, latest;
	TT_TRY(ckpt_latest_read(a, fs, folder, &latest));
	if (latest >= 0 && tt_fs_exists(fs, tt_arena_printf(a, "%s/%s", folder, ckpt_step_name(a, latest)))) {
		*step = latest;
		return TT_OK;
	}
	TT_TRY(tt_ckpt_list(a, fs, folder, &steps, &n));
	*step = n ? steps[n - 1] : -1;
	if (n)
		tt_log(TT_LOG_WARN, "%s/%s %s; taking the newest complete checkpoint, step %lld", folder, CKPT_LATEST,
		       latest == -1 ? "is missing" : latest == -2 ? "names no checkpoint" : "names one that is not there", (long long)*step);
	else if (latest != -1)
		TT_FAIL(TT_ERR_FORMAT, "%s/%s names %s, and there is no other complete checkpoint", folder, CKPT_LATEST,
			latest == -2 ? "no checkpoint" : "one that is not there");
	return TT_OK;
}

tt_status tt_ckpt_open(tt_arena *a, const tt_fs *fs, const char *folder, int64_t step, tt_ckpt **out)
{
	fs = fs ? fs : &tt_fs_posix;
	if (step < 0) {
		TT_TRY(choose(a, fs, folder, &step));
		if (step < 0) {
			*out = NULL;
			return TT_OK;
		}
	} else if (!tt_fs_exists(fs, tt_arena_printf(a, "%s/%s", folder, ckpt_step_name(a, step)))) {
		int64_t *steps, n;
		TT_TRY(tt_ckpt_list(a, fs, folder, &steps, &n));
		TT_FAIL(TT_ERR_USAGE, "checkpoint.load_step: %s has no checkpoint of step %lld; %s", folder, (long long)step, steps_text(a, steps, n));
	}
	tt_status s = tt_ckpt_open_dir(a, fs, tt_arena_printf(a, "%s/%s", folder, ckpt_step_name(a, step)), out);
	if (s != TT_OK)
		return offer(fs, folder, step, s);
	(*out)->folder = tt_arena_strdup(a, folder);
	return TT_OK;
}

tt_status tt_ckpt_verify(tt_ckpt *c, int64_t *bytes)
{
	uint8_t *buffer = buffer_new();
	tt_status s = TT_OK;
	int64_t sum = 0;
	for (int64_t i = 0; i < c->m.nfiles && s == TT_OK; i++) {
		s = blocks_check(c, &c->m.files[i], -1, buffer);
		sum += c->m.files[i].bytes;
	}
	free(buffer);
	TT_TRY(s);
	*bytes = sum;
	return TT_OK;
}

/* ---- tensors ------------------------------------------------------------------------------------------------------------------ */

typedef struct want {
	const tt_st_tensor *t;
	int64_t index;
	tt_st_dtype dtype; /* of the program */
} want;

static int want_order(const void *a, const void *b)
{
	const want *x = a, *y = b;
	int f = strcmp(x->t->file, y->t->file);
	return f ? f : x->t->at != y->t->at ? (x->t->at < y->t->at ? -1 : 1) : (x->t->bytes > y->t->bytes) - (x->t->bytes < y->t->bytes);
}

/* The list against the files: everything there, of the right shape, and nothing else. */
static tt_status wants_match(const tt_ckpt *c, const tt_ckpt_tensor *tensors, int64_t n, unsigned exclude, want *out, int64_t *nout)
{
	int64_t k = 0, matched = 0;
	for (int64_t i = 0; i < n; i++) {
		const tt_ckpt_tensor *x = &tensors[i];
		const tt_st_tensor *t = tt_st_find(c->headers, x->name);
		bool skip = exclude & (x->optim ? TT_CKPT_OPTIMIZER : TT_CKPT_MODEL);
		if (t && ckpt_is_optim_file(t->file) == x->optim)
			matched++;
		if (skip)
			continue;
		if (!t && x->optim && c->m.model_only)
			TT_FAIL(TT_ERR_FORMAT, "%s holds the model alone, no optimizer state (checkpoint.exclude_from_loading = [\"optimizer\"] starts with a fresh one; "
				"checkpoint.last_save_model_only made it)", c->dir);
		if (!t && x->optim)
			TT_FAIL(TT_ERR_FORMAT, "%s has no %s: another optimizer made it (optimizer.name, optimizer.momentum; checkpoint.exclude_from_loading = [\"optimizer\"] "
				"starts with fresh states)", c->dir, x->name);
		if (!t)
			TT_TRY(tt_st_get(c->headers, x->name, &t));
		TT_TRY(tt_st_expect(t, x->ndim, x->dim));
		if (t->dtype != x->dtype && !(ckpt_is_float(t->dtype) && ckpt_is_float(x->dtype)))
			TT_FAIL(TT_ERR_FORMAT, "%s: tensor %s is %s, the program has %s", t->file, x->name, tt_st_dtype_name(t->dtype), tt_st_dtype_name(x->dtype));
		out[k++] = (want){ t, i, x->dtype };
	}
	if (matched < tt_st_count(c->headers)) {
		tt_arena *a = c->arena;
		bool *known = TT_NEWN(a, bool, tt_st_count(c->headers));
		for (int64_t i = 0; i < n; i++) {
			const tt_st_tensor *t = tt_st_find(c->headers, tensors[i].name);
			if (t)
				known[t - tt_st_at(c->headers, 0)] = true;
		}
		for (int64_t i = 0; i < tt_st_count(c->headers); i++) {
			const tt_st_tensor *t = tt_st_at(c->headers, i);
			bool optim = ckpt_is_optim_file(t->file);
			if (!known[i] && !(exclude & (optim ? TT_CKPT_OPTIMIZER : TT_CKPT_MODEL)))
				TT_FAIL(TT_ERR_FORMAT, "%s: tensor %s has no place in this run's %s%s", t->file, t->name, optim ? "optimizer" : "model",
					optim ? " (checkpoint.exclude_from_loading = [\"optimizer\"] leaves it out)" : "");
		}
	}
	if (k)
		qsort(out, (size_t)k, sizeof *out, want_order);
	*nout = k;
	return TT_OK;
}

static tt_status deliver(const want *w, int64_t lo, int64_t hi, const uint8_t *block, tt_ckpt_write_fn *write, void *ctx)
{
	const tt_st_tensor *t = w->t;
	int64_t from = TT_MAX(lo, t->at), to = TT_MIN(hi, t->at + t->bytes), size = tt_st_dtype_size(t->dtype);
	if ((from - t->at) % size || (to - t->at) % size)
		TT_FAIL(TT_ERR_FORMAT, "%s: tensor %s: an element lies across byte %lld, the edge of a block", t->file, t->name, (long long)hi);
	int64_t first = (from - t->at) / size, n = (to - from) / size;
	const uint8_t *src = block + (from - lo);
	enum { CHUNK = 2048 };
	double part[CHUNK];
	/* The block is aligned, the tensor within it need not be; a program's dtype wants to be. */
	bool straight = w->dtype == t->dtype && (uintptr_t)src % 8 == 0;
	for (int64_t i = 0; i < n; i += straight ? n : CHUNK) {
		int64_t m = straight ? n : TT_MIN((int64_t)CHUNK, n - i);
		if (!straight)
			ckpt_convert(part, w->dtype, src + i * size, t->dtype, m);
		TT_TRY(write(ctx, w->index, first + i, m, straight ? (const void *)src : part));
	}
	return TT_OK;
}

/* Wants [0, n) are all in file f. */
static tt_status file_load(const tt_ckpt *c, const ckpt_listed *f, const want *w, int64_t n, tt_ckpt_write_fn *write, void *ctx, uint8_t *buffer)
{
	const char *path = path_of(c, f);
	int fd;
	TT_TRY(tt_fs_open_read(c->fs, path, &fd));
	tt_status s = TT_OK;
	int64_t first = 0; /* the first want that does not end before the block */
	for (int64_t b = 0; b < f->nblocks && s == TT_OK; b++) {
		int64_t lo = b * TT_CKPT_BLOCK, hi = TT_MIN(f->bytes, lo + TT_CKPT_BLOCK);
		while (first < n && w[first].t->at + w[first].t->bytes <= lo)
			first++;
		if (first == n || w[first].t->at >= hi)
			continue;
		s = block_read(c, f, fd, path, b, buffer);
		for (int64_t i = first; i < n && w[i].t->at < hi && s == TT_OK; i++)
			if (w[i].t->bytes)
				s = deliver(&w[i], lo, hi, buffer, write, ctx);
	}
	tt_fs_close(c->fs, fd);
	TT_TRY(s);
	return TT_OK;
}

static tt_status wants_load(const tt_ckpt *c, const want *w, int64_t n, tt_ckpt_write_fn *write, void *ctx)
{
	uint8_t *buffer = buffer_new();
	tt_status s = TT_OK;
	for (int64_t i = 0; i < n && s == TT_OK;) {
		int64_t end = i;
		while (end < n && !strcmp(w[end].t->file, w[i].t->file))
			end++;
		for (int64_t k = 0; k < c->m.nfiles && s == TT_OK; k++)
			if (!strcmp(path_of(c, &c->m.files[k]), w[i].t->file))
				s = file_load(c, &c->m.files[k], w + i, end - i, write, ctx, buffer);
		i = end;
	}
	free(buffer);
	TT_TRY(s);
	return TT_OK;
}

tt_status tt_ckpt_load(tt_ckpt *c, const tt_ckpt_tensor *tensors, int64_t n, unsigned exclude, tt_ckpt_write_fn *write, void *ctx)
{
	want *w = TT_NEWN(c->arena, want, n);
	int64_t k;
	TT_TRY(wants_match(c, tensors, n, exclude, w, &k));
	tt_status s = wants_load(c, w, k, write, ctx);
	if ((s == TT_ERR_FORMAT || s == TT_ERR_IO) && c->folder)
		return offer(c->fs, c->folder, c->m.state.step, s);
	TT_TRY(s);
	return TT_OK;
}

/* ---- hashes -------------------------------------------------------------------------------------------------------------------- */

static tt_status hash_fd(const tt_fs *fs, int fd, const tt_st_tensor *t, uint8_t *buffer, uint64_t *out)
{
	int64_t size = tt_st_dtype_size(t->dtype);
	uint64_t sum = 0;
	for (int64_t at = 0; at < t->bytes; at += TT_CKPT_BLOCK) {
		int64_t n = TT_MIN(TT_CKPT_BLOCK, t->bytes - at);
		TT_TRY(tt_fs_pread(fs, fd, t->file, buffer, (size_t)n, t->at + at));
		for (int64_t i = 0; i < n; i += size) {
			uint64_t bits = 0; /* little endian: the low bytes are the element */
			memcpy(&bits, buffer + i, (size_t)size);
			sum += tt_hash_element(tt_hash_index((at + i) / size), bits);
		}
	}
	*out = sum;
	return TT_OK;
}

tt_status tt_ckpt_hash(const tt_fs *fs, const tt_st_tensor *t, uint64_t *out)
{
	fs = fs ? fs : &tt_fs_posix;
	int fd;
	TT_TRY(tt_fs_open_read(fs, t->file, &fd));
	uint8_t *buffer = buffer_new();
	tt_status s = hash_fd(fs, fd, t, buffer, out);
	free(buffer);
	tt_fs_close(fs, fd);
	TT_TRY(s);
	return TT_OK;
}
