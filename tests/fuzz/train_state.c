/* train_state.c: a whole checkpoint, opened, verified and loaded out of a file system that lives in memory.
 *
 * Parts: options (a byte), train_state.json, the headers of model.safetensors and optimizer.safetensors, config.json, `latest`. The text of
 * the state may say $B0 to $B2 for the bytes of the last three's files and $S0 to $S2 for their checksums, and the marker is made to fit:
 * else no mutation would ever get past the checks. Blocks are 4 KiB here (fuzz.mk), so that small files have several.
 */
#include "fuzz.h"

#include "ckpt/internal.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#define RUN "run"
#define DIR RUN "/step-00000010"
enum { FILES = 6 };

typedef struct file { const char *path; const char *bytes; size_t n; } file;
typedef struct memory {
	tt_fs fs;
	bool direct; /* blocks may be read past the cache */
	file files[FILES];
} memory;

/* ---- the file system ---------------------------------------------------------------------------------------------------------------- */

static const file *find(const tt_fs *fs, const char *path)
{
	const memory *m = (const memory *)(const void *)fs;
	for (int i = 0; i < FILES; i++)
		if (m->files[i].bytes && !strcmp(m->files[i].path, path))
			return &m->files[i];
	errno = ENOENT;
	return NULL;
}

static int mem_open(const tt_fs *fs, const char *path, int flags, int mode)
{
	(void)flags, (void)mode;
	const file *f = find(fs, path);
	return f ? (int)(f - ((const memory *)(const void *)fs)->files) : -1;
}

static ssize_t mem_pread(const tt_fs *fs, int fd, void *p, size_t n, int64_t at)
{
	const file *f = &((const memory *)(const void *)fs)->files[fd];
	size_t from = TT_MIN((size_t)at, f->n), k = TT_MIN(n, f->n - from);
	if (k)
		memcpy(p, f->bytes + from, k);
	return (ssize_t)k;
}

static int mem_direct(const tt_fs *fs, int fd, bool on)
{
	(void)fd;
	errno = EINVAL;
	return on && !((const memory *)(const void *)fs)->direct ? -1 : 0;
}

static int mem_close(const tt_fs *fs, int fd)
{
	(void)fs, (void)fd;
	return 0;
}

static int mem_stat(const tt_fs *fs, const char *path, struct stat *out)
{
	*out = (struct stat){ .st_mode = S_IFDIR };
	if (!strcmp(path, RUN) || !strcmp(path, DIR))
		return 0;
	const file *f = find(fs, path);
	if (!f)
		return -1;
	*out = (struct stat){ .st_mode = S_IFREG, .st_size = (off_t)f->n };
	return 0;
}

static int mem_list(const tt_fs *fs, const char *path, void (*each)(void *ctx, const char *name), void *ctx)
{
	(void)fs;
	if (strcmp(path, RUN)) {
		errno = ENOENT;
		return -1;
	}
	each(ctx, "latest");
	each(ctx, "step-00000010");
	return 0;
}

/* ---- the image ---------------------------------------------------------------------------------------------------------------------- */

static void put_sums(tt_buf *b, const file *f)
{
	tt_buf_str(b, "[");
	for (size_t at = 0; at < f->n; at += (size_t)TT_CKPT_BLOCK) {
		size_t n = TT_MIN((size_t)TT_CKPT_BLOCK, f->n - at);
		tt_buf_printf(b, "%s\"%016llx\"", at ? "," : "", (unsigned long long)tt_hash64(f->bytes + at, n, 0));
	}
	tt_buf_str(b, "]");
}

/* The state's text with $B and $S filled in. */
static void put_state(tt_buf *b, fuzz_part text, const file *files)
{
	for (size_t i = 0; i < text.n; i++) {
		int k = i + 2 < text.n && text.p[i] == '$' ? text.p[i + 2] - '0' : -1;
		if (k >= 0 && k < 3 && text.p[i + 1] == 'B')
			tt_buf_printf(b, "%zu", files[k].n);
		else if (k >= 0 && k < 3 && text.p[i + 1] == 'S')
			put_sums(b, &files[k]);
		else
			k = -1, tt_buf_add(b, text.p + i, 1);
		i += k >= 0 ? 2 : 0;
	}
}

/* ---- the checks --------------------------------------------------------------------------------------------------------------------- */

typedef struct program {
	const tt_ckpt_tensor *t;
	int64_t *got, n;
} program;

static int64_t count_of(const tt_ckpt_tensor *t)
{
	int64_t n = 1;
	for (int d = 0; d < t->ndim; d++)
		n *= t->dim[d];
	return n;
}

static tt_status receive(void *ctx, int64_t i, int64_t at, int64_t n, const void *src)
{
	program *p = ctx;
	FUZZ_CHECK(i >= 0 && i < p->n && n >= 0 && at == p->got[i] && n <= count_of(&p->t[i]) - at, "tensor %lld: %lld elements at %lld", (long long)i,
		   (long long)n, (long long)at);
	fuzz_touch(src, (size_t)(n * tt_st_dtype_size(p->t[i].dtype)));
	p->got[i] += n;
	return TT_OK;
}

static tt_status ignore(void *ctx, int64_t i, int64_t at, int64_t n, const void *src)
{
	const program *p = ctx;
	(void)at;
	fuzz_touch(src, (size_t)(n * tt_st_dtype_size(p->t[i].dtype)));
	return TT_OK;
}

/* Programs that have others: one tensor less, of another dtype, of another shape, of another name. */
static void load_other(tt_ckpt *c, tt_ckpt_tensor *t, int64_t n, unsigned exclude)
{
	if (!n)
		return;
	tt_ckpt_tensor *last = &t[n - 1], was = *last;
	unsigned part = last->optim ? TT_CKPT_OPTIMIZER : TT_CKPT_MODEL;
	for (int way = 0; way < 4; way++) {
		*last = was;
		if (way == 1)
			last->dtype = was.dtype == TT_ST_I64 ? TT_ST_I32 : TT_ST_I64;
		if (way == 2)
			last->dim[last->ndim ? last->ndim - 1 : last->ndim++]++;
		if (way == 3)
			last->name = "no such tensor";
		program p = { t, NULL, n };
		FUZZ_CHECK(tt_ckpt_load(c, t, n - (way == 0), exclude, ignore, &p) != TT_OK || exclude & part, "%s: another program was loaded (%d)", was.name,
			   way);
	}
	*last = was;
}

/* A program that has the very tensors of the checkpoint, in float or double where they are floats. */
static void load(tt_arena *a, const tt_fs *fs, tt_ckpt *c, int options)
{
	const tt_st *st = tt_ckpt_headers(c);
	int64_t n = tt_st_count(st);
	tt_ckpt_tensor *t = TT_NEWN(a, tt_ckpt_tensor, n + 1);
	for (int64_t i = 0; i < n; i++) {
		const tt_st_tensor *s = tt_st_at(st, i);
		t[i] = (tt_ckpt_tensor){ .name = s->name, .optim = ckpt_is_optim_file(s->file), .dtype = s->dtype, .imported = s->dtype, .ndim = s->ndim };
		memcpy(t[i].dim, s->dim, sizeof t[i].dim);
		if (ckpt_is_float(s->dtype))
			t[i].dtype = options & 1 ? TT_ST_F64 : options & 2 ? TT_ST_BF16 : TT_ST_F32;
		uint64_t hash;
		FUZZ_CHECK(tt_ckpt_hash(fs, s, &hash) == TT_OK, "%s: no hash: %s", s->name, tt_error_text());
		FUZZ_CHECK(tt_ckpt_imported(c, s->name, s->dtype) < TT_ST_NDTYPES, "%s: imported from no dtype", s->name);
	}
	program p = { t, TT_NEWN(a, int64_t, n + 1), n };
	unsigned exclude = (unsigned)options >> 3 & 3;
	if (tt_ckpt_load(c, t, n, exclude, receive, &p) == TT_OK)
		for (int64_t i = 0; i < n; i++)
			FUZZ_CHECK(exclude & (t[i].optim ? TT_CKPT_OPTIMIZER : TT_CKPT_MODEL) || p.got[i] == count_of(&t[i]), "%s: %lld of %lld elements came",
				   t[i].name, (long long)p.got[i], (long long)count_of(&t[i]));
	load_other(c, t, n, exclude);
}

static void check_manifest(tt_arena *a, const char *text, size_t n)
{
	ckpt_manifest m, again;
	if (ckpt_manifest_parse(a, "state", text, n, &m) != TT_OK)
		return;
	tt_buf one = { 0 }, two = { 0 };
	FUZZ_CHECK(ckpt_manifest_print(&m, &one) == TT_OK, "%s", tt_error_text());
	FUZZ_CHECK(ckpt_manifest_parse(a, "printed", one.s, one.n, &again) == TT_OK, "%s\n%s", tt_error_text(), one.s);
	FUZZ_CHECK(ckpt_manifest_print(&again, &two) == TT_OK && one.n == two.n && !memcmp(one.s, two.s, one.n), "printed\n%sand again\n%s", one.s, two.s);
	tt_buf_fini(&one);
	tt_buf_fini(&two);
}

void fuzz_one(const uint8_t *p, size_t n)
{
	tt_arena *a = tt_arena_create("fuzz");
	fuzz_part parts[6];
	fuzz_split(p, n, parts, 6);
	int options = parts[0].n ? parts[0].p[0] : 0;
	tt_buf image[3] = { { 0 } };
	memory m = { .fs = { .open = mem_open, .pread = mem_pread, .direct = mem_direct, .close = mem_close, .stat = mem_stat, .list = mem_list }, .direct = options & 1 };
	static const char *const paths[FILES] = { DIR "/model.safetensors", DIR "/optimizer.safetensors", DIR "/config.json", RUN "/latest",
						  DIR "/train_state.json", DIR "/COMPLETE" };
	for (int i = 0; i < FILES; i++)
		m.files[i].path = paths[i];
	for (int i = 0; i < 2; i++) {
		if (parts[2 + i].n)
			fuzz_safetensors(&image[i], parts[2 + i]);
		m.files[i].bytes = parts[2 + i].n ? image[i].s : NULL;
		m.files[i].n = image[i].n;
	}
	for (int i = 2; i < 4; i++) {
		m.files[i].bytes = parts[2 + i].n ? (const char *)parts[2 + i].p : NULL;
		m.files[i].n = parts[2 + i].n;
	}
	put_state(&image[2], parts[1], m.files);
	m.files[4].bytes = image[2].n ? image[2].s : "";
	m.files[4].n = image[2].n;
	m.files[5].bytes = options & 4 ? "titan checkpoint 1 0000000000000000\n" : ckpt_marker(a, m.files[4].bytes, m.files[4].n);
	m.files[5].n = strlen(m.files[5].bytes);
	check_manifest(a, m.files[4].bytes, m.files[4].n);
	tt_ckpt *c = NULL;
	if (tt_ckpt_open(a, &m.fs, RUN, options & 32 ? 10 : -1, &c) == TT_OK && c) {
		int64_t bytes;
		FUZZ_CHECK(tt_ckpt_get_state(c)->step >= 0 && tt_ckpt_get_state(c)->config, "a state that was not read");
		if (tt_ckpt_verify(c, &bytes) != TT_OK)
			FUZZ_CHECK(*tt_error_text(), "an error without a text");
		load(a, &m.fs, c, options);
	}
	for (int i = 0; i < 3; i++)
		tt_buf_fini(&image[i]);
	tt_arena_destroy(a);
}

/* ---- seeds -------------------------------------------------------------------------------------------------------------------------- */

static int padded(const char *header) { return (int)tt_round_up((int64_t)strlen(header), 8); }

void fuzz_seeds(void)
{
	static const char state[] =
		"{\"format\":\"titan checkpoint\",\"version\":1,\"kind\":\"full\",\"step\":10,\"updates\":9,\"tokens_seen\":40960,\"skips\":1,"
		"\"seed\":\"fedcba9876543210\",\"data\":{\"step\":10,\"context_length\":64,\"tokens_per_step\":4096,\"fingerprint\":\"8000000000000001\","
		"\"files_every\":2,\"files\":\"0123456789abcdef\"},\"unvalidated\":true,"
		"\"schedule\":{\"warmup\":2,\"total\":1000,\"decay\":500,\"type\":\"cosine\",\"min_factor\":0.1},\"config\":\"[training]\\nsteps = 10\\n\","
		"\"block\":4096,\"imported\":{\"w\":\"BF16\"},\"files\":{\"model.safetensors\":{\"bytes\":$B0,\"xxh3\":$S0},"
		"\"optimizer.safetensors\":{\"bytes\":$B1,\"xxh3\":$S1},\"config.json\":{\"bytes\":$B2,\"xxh3\":$S2}}}";
	static const char model[] = "{\"w\":{\"dtype\":\"F32\",\"shape\":[1500],\"data_offsets\":[0,6000]},\"v\":{\"dtype\":\"BF16\",\"shape\":[3,500],"
				    "\"data_offsets\":[6000,9000]},\"i\":{\"dtype\":\"I64\",\"shape\":[],\"data_offsets\":[9000,9008]}}";
	static const char optim[] = "{\"optim.w\":{\"dtype\":\"F64\",\"shape\":[600],\"data_offsets\":[0,4800]}}";
	tt_arena *a = tt_arena_create("seeds");
	/* Padded as the writer does, that no element lies across the edge of a block; and once not. */
	for (int options = 0; options < 128; options = options ? options * 2 : 1)
		fuzz_seed_text(tt_arena_printf(a, "%c%s%s%s%-*s%s%-*s%s%s%s%s", 64 + options % 64, FUZZ_CUT, state, FUZZ_CUT, options < 64 ? padded(model) : 0,
					       model, FUZZ_CUT, padded(optim), optim, FUZZ_CUT,
					       "{\"model_type\":\"llama\"}", FUZZ_CUT, "step-00000010\n"));
	static const char *const words[] = {
		FUZZ_CUT, "$B0", "$B1", "$B2", "$S0", "$S1", "$S2", "\"bytes\":", "\"xxh3\":", "\"files\":{", "\"imported\":{", "\"model.safetensors\"",
		"\"optimizer.safetensors\"", "\"config.json\"", "\"COMPLETE\"", "\"train_state.json\"", "\"full\"", "\"model\"", "\"kind\":", "\"step\":",
		"\"0123456789abcdef\"", "\"min_factor\":", "\"files\":", "\"files_every\":", "\"unvalidated\":",
		"9223372036854775807", "-1", "1e300", "null", "\"..\"", "\"a/b\"", "step-0000001", "{\"w\":{\"dtype\":",
		"\"F16\"", "\"BF16\"", "\"F64\"", "\"I32\"", "\"BOOL\"", "\"shape\":[", "\"data_offsets\":[", "4096", "8192", "0",
	};
	for (int i = 0; i < TT_COUNT(words); i++)
		fuzz_word(words[i]);
	tt_arena_destroy(a);
}
