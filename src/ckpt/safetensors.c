/* The reader of safetensors files and of folders of shards. */
#include "ckpt/safetensors.h"

#include <jansson.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "the files are little endian and read in place");

typedef struct st_file {
	const char *path;
	tt_map map;
} st_file;

typedef struct st_pair { const char *key, *value; } st_pair;

struct tt_st {
	const char *path;
	st_file *files;
	int64_t nfiles, cap_files;
	tt_st_tensor *tensors; /* by name, once open */
	int64_t ntensors, cap_tensors;
	st_pair *metadata;
	int64_t nmetadata, cap_metadata;
};

static const struct { const char *name; int size; } DTYPES[TT_ST_NDTYPES] = {
	[TT_ST_BOOL] = {"BOOL", 1},       [TT_ST_U8] = {"U8", 1},           [TT_ST_I8] = {"I8", 1},
	[TT_ST_F8_E5M2] = {"F8_E5M2", 1}, [TT_ST_F8_E4M3] = {"F8_E4M3", 1}, [TT_ST_F8_E8M0] = {"F8_E8M0", 1},
	[TT_ST_I16] = {"I16", 2},         [TT_ST_U16] = {"U16", 2},         [TT_ST_F16] = {"F16", 2},
	[TT_ST_BF16] = {"BF16", 2},       [TT_ST_I32] = {"I32", 4},         [TT_ST_U32] = {"U32", 4},
	[TT_ST_F32] = {"F32", 4},         [TT_ST_I64] = {"I64", 8},         [TT_ST_U64] = {"U64", 8},
	[TT_ST_F64] = {"F64", 8},
};

const char *tt_st_dtype_name(tt_st_dtype d) { return DTYPES[d].name; }
int tt_st_dtype_size(tt_st_dtype d) { return DTYPES[d].size; }

/* ---- one tensor's entry ----------------------------------------------------------------------------------------- */

/* Names in messages are cut to 200 bytes: a broken header may hold anything. */
#define NAME "%.200s"

static tt_status entry_read(const char *path, const char *name, json_t *e, int64_t data_bytes, tt_st_tensor *out,
			    int64_t *begin_out)
{
	if (!json_is_object(e))
		TT_FAIL(TT_ERR_FORMAT, "%s: tensor " NAME ": its entry is not an object", path, name);
	const char *key;
	json_t *v;
	json_object_foreach(e, key, v)
		if (strcmp(key, "dtype") && strcmp(key, "shape") && strcmp(key, "data_offsets"))
			TT_FAIL(TT_ERR_FORMAT, "%s: tensor " NAME ": unknown key \"" NAME "\" in its entry", path, name, key);
	json_t *dtype = json_object_get(e, "dtype"), *shape = json_object_get(e, "shape");
	json_t *offsets = json_object_get(e, "data_offsets");
	if (!json_is_string(dtype))
		TT_FAIL(TT_ERR_FORMAT, "%s: tensor " NAME ": dtype is missing or not a string", path, name);
	if (!json_is_array(shape))
		TT_FAIL(TT_ERR_FORMAT, "%s: tensor " NAME ": shape is missing or not an array", path, name);
	if (json_array_size(offsets) != 2 || !json_is_integer(json_array_get(offsets, 0)) ||
	    !json_is_integer(json_array_get(offsets, 1)))
		TT_FAIL(TT_ERR_FORMAT, "%s: tensor " NAME ": data_offsets is missing or not two whole numbers", path, name);
	tt_st_tensor t = {.name = name, .file = path, .dtype = TT_ST_NDTYPES, .count = 1};
	for (int i = 0; i < TT_ST_NDTYPES; i++)
		if (strcmp(DTYPES[i].name, json_string_value(dtype)) == 0)
			t.dtype = (tt_st_dtype)i;
	if (t.dtype == TT_ST_NDTYPES)
		TT_FAIL(TT_ERR_FORMAT, "%s: tensor " NAME ": unknown dtype \"" NAME "\"", path, name, json_string_value(dtype));
	if (json_array_size(shape) > TT_ST_MAX_DIMS)
		TT_FAIL(TT_ERR_FORMAT, "%s: tensor " NAME ": %zu dims, at most %d are read", path, name, json_array_size(shape),
			TT_ST_MAX_DIMS);
	t.ndim = (int)json_array_size(shape);
	bool empty = false, over = false;
	for (int i = 0; i < t.ndim; i++) {
		json_t *d = json_array_get(shape, (size_t)i);
		if (!json_is_integer(d) || json_integer_value(d) < 0)
			TT_FAIL(TT_ERR_FORMAT, "%s: tensor " NAME ": dim %d of its shape is not a whole number from 0 up", path, name, i);
		t.dim[i] = json_integer_value(d);
		empty |= t.dim[i] == 0;
		/* A zero dim must not hide an overflow behind it or before it. */
		over |= t.dim[i] && __builtin_mul_overflow(t.count, t.dim[i], &t.count);
	}
	int size = DTYPES[t.dtype].size;
	if (over || __builtin_mul_overflow(t.count, (int64_t)size, &t.bytes))
		TT_FAIL(TT_ERR_FORMAT, "%s: tensor " NAME ": the product of its dims overflows", path, name);
	if (empty)
		t.count = t.bytes = 0;
	int64_t begin = json_integer_value(json_array_get(offsets, 0)), end = json_integer_value(json_array_get(offsets, 1));
	if (begin < 0 || end < begin || end > data_bytes)
		TT_FAIL(TT_ERR_FORMAT, "%s: tensor " NAME ": data_offsets [%lld, %lld] leave the file's %lld bytes of data", path, name,
			(long long)begin, (long long)end, (long long)data_bytes);
	if (end - begin != t.bytes)
		TT_FAIL(TT_ERR_FORMAT,
			"%s: tensor " NAME ": data_offsets [%lld, %lld] span %lld bytes, its shape in %s takes %lld", path, name,
			(long long)begin, (long long)end, (long long)(end - begin), DTYPES[t.dtype].name, (long long)t.bytes);
	*out = t;
	*begin_out = begin;
	return TT_OK;
}

/* ---- one file --------------------------------------------------------------------------------------------------- */

typedef struct span { int64_t begin, end; const char *name; } span;

static int span_order(const void *a, const void *b)
{
	const span *x = a, *y = b;
	if (x->begin != y->begin)
		return x->begin < y->begin ? -1 : 1;
	return (x->end > y->end) - (x->end < y->end);
}

/* The tensors of one file must cover [0, data_bytes) edge to edge: what the header does not name is not data, and what two
 * tensors share would change under one by writing the other. */
static tt_status spans_check(const char *path, span *s, int64_t n, int64_t data_bytes)
{
	qsort(s, (size_t)n, sizeof *s, span_order);
	int64_t at = 0;
	for (int64_t i = 0; i < n; i++) {
		if (s[i].begin < at)
			TT_FAIL(TT_ERR_FORMAT, "%s: tensors " NAME " and " NAME " overlap: one ends at byte %lld, the other begins at %lld",
				path, s[i - 1].name, s[i].name, (long long)at, (long long)s[i].begin);
		if (s[i].begin > at)
			TT_FAIL(TT_ERR_FORMAT, "%s: bytes %lld to %lld of the data, before tensor " NAME ", belong to no tensor", path,
				(long long)at, (long long)s[i].begin, s[i].name);
		at = s[i].end;
	}
	if (at != data_bytes)
		TT_FAIL(TT_ERR_FORMAT, "%s: the tensors end at byte %lld of the data, the file has %lld", path, (long long)at,
			(long long)data_bytes);
	return TT_OK;
}

static tt_status metadata_read(tt_arena *a, tt_st *st, const char *path, json_t *m)
{
	if (!json_is_object(m))
		TT_FAIL(TT_ERR_FORMAT, "%s: __metadata__ is not an object", path);
	const char *key;
	json_t *v;
	json_object_foreach(m, key, v) {
		if (!json_is_string(v))
			TT_FAIL(TT_ERR_FORMAT, "%s: __metadata__: " NAME " is not a string", path, key);
		st_pair p = {tt_arena_strdup(a, key), tt_arena_strdup(a, json_string_value(v))};
		TT_PUSH(a, st->metadata, st->nmetadata, st->cap_metadata, p);
	}
	return TT_OK;
}

/* `data`: what comes after the header, NULL if it is not mapped; it begins at byte `data_at`. */
static tt_status header_walk(tt_arena *a, tt_st *st, const char *path, json_t *header, const uint8_t *data, int64_t data_at,
			     int64_t data_bytes)
{
	span *spans = TT_NEWN(a, span, json_object_size(header) + 1);
	int64_t n = 0;
	const char *key;
	json_t *v;
	json_object_foreach(header, key, v) {
		if (strcmp(key, "__metadata__") == 0) {
			TT_TRY(metadata_read(a, st, path, v));
			continue;
		}
		tt_st_tensor t;
		int64_t begin;
		TT_TRY(entry_read(path, tt_arena_strdup(a, key), v, data_bytes, &t, &begin));
		t.p = data ? data + begin : NULL;
		t.at = data_at + begin;
		spans[n++] = (span){begin, begin + t.bytes, t.name};
		TT_PUSH(a, st->tensors, st->ntensors, st->cap_tensors, t);
	}
	TT_TRY(spans_check(path, spans, n, data_bytes));
	return TT_OK;
}

/* The header's length from the file's first 8 bytes; `n` is the file's. */
static tt_status length_read(const char *path, const uint8_t *first, size_t n, uint64_t *out)
{
	if (n < 8)
		TT_FAIL(TT_ERR_FORMAT, "%s: %zu bytes, a safetensors file begins with 8 bytes of header length", path, n);
	uint64_t len;
	memcpy(&len, first, 8);
	if (len > TT_ST_MAX_HEADER)
		TT_FAIL(TT_ERR_FORMAT, "%s: header of %llu bytes, the format allows %d: not a safetensors file?", path,
			(unsigned long long)len, TT_ST_MAX_HEADER);
	if (len > n - 8)
		TT_FAIL(TT_ERR_FORMAT, "%s: header of %llu bytes in a file of %zu: the file is cut short", path,
			(unsigned long long)len, n);
	*out = len;
	return TT_OK;
}

/* `text`: the header's `len` bytes; `n`: all of the file's. */
static tt_status header_read(tt_arena *a, tt_st *st, const char *path, const uint8_t *text, uint64_t len, const uint8_t *data, size_t n)
{
	if (len == 0 || text[0] != '{')
		TT_FAIL(TT_ERR_FORMAT, "%s: the header does not begin with '{': not a safetensors file", path);
	json_error_t why;
	json_t *header = json_loadb((const char *)text, (size_t)len, JSON_REJECT_DUPLICATES, &why);
	if (!header)
		TT_FAIL(TT_ERR_FORMAT, "%s: header, byte %d: %s", path, why.position, why.text);
	tt_status s = header_walk(a, st, path, header, data, (int64_t)(8 + len), (int64_t)(n - 8 - len));
	json_decref(header);
	TT_TRY(s);
	return TT_OK;
}

static tt_status file_open(tt_arena *a, tt_st *st, const char *path)
{
	st_file f = {.path = path};
	TT_TRY(tt_map_open(path, &f.map));
	TT_PUSH(a, st->files, st->nfiles, st->cap_files, f);
	uint64_t len;
	TT_TRY(length_read(path, f.map.p, f.map.n, &len));
	TT_TRY(header_read(a, st, path, f.map.p + 8, len, f.map.p + 8 + len, f.map.n));
	return TT_OK;
}

static tt_status fd_read(tt_arena *a, tt_st *st, const tt_fs *fs, int fd, const char *path, size_t n)
{
	uint8_t first[8] = {0};
	uint64_t len;
	if (n >= 8)
		TT_TRY(tt_fs_pread(fs, fd, path, first, 8, 0));
	TT_TRY(length_read(path, first, n, &len));
	/* On the heap: the text is of no use once the names are in the arena. */
	uint8_t *text = malloc((size_t)len + 1);
	TT_ASSERT(text, "%s: the machine has no %llu bytes left", path, (unsigned long long)len);
	tt_status s = tt_fs_pread(fs, fd, path, text, (size_t)len, 8);
	if (s == TT_OK)
		s = header_read(a, st, path, text, len, NULL, n);
	free(text);
	TT_TRY(s);
	return TT_OK;
}

static tt_status headers_open(tt_arena *a, tt_st *st, const tt_fs *fs, const char *path)
{
	struct stat info;
	if (fs->stat(fs, path, &info) != 0)
		TT_FAIL(TT_ERR_IO, "%s: cannot open: %m", path);
	int fd;
	TT_TRY(tt_fs_open_read(fs, path, &fd));
	tt_status s = fd_read(a, st, fs, fd, path, (size_t)info.st_size);
	tt_fs_close(fs, fd);
	TT_TRY(s);
	return TT_OK;
}

/* ---- a folder of shards ----------------------------------------------------------------------------------------- */

static int name_order(const void *a, const void *b)
{
	return strcmp(((const tt_st_tensor *)a)->name, ((const tt_st_tensor *)b)->name);
}

static tt_status names_sort(tt_st *st)
{
	if (st->ntensors)
		qsort(st->tensors, (size_t)st->ntensors, sizeof *st->tensors, name_order);
	for (int64_t i = 1; i < st->ntensors; i++)
		if (strcmp(st->tensors[i - 1].name, st->tensors[i].name) == 0)
			TT_FAIL(TT_ERR_FORMAT, "tensor " NAME " stands in two files: %s and %s", st->tensors[i].name,
				st->tensors[i - 1].file, st->tensors[i].file);
	return TT_OK;
}

/* Opens each file that the map names once, then holds the map against what the files have. */
static tt_status index_walk(tt_arena *a, tt_st *st, const char *folder, const char *index, json_t *root)
{
	json_t *map = json_object_get(root, "weight_map");
	if (!json_is_object(map))
		TT_FAIL(TT_ERR_FORMAT, "%s: weight_map is missing or not an object", index);
	const char *name;
	json_t *v;
	json_object_foreach(map, name, v) {
		const char *shard = json_string_value(v);
		/* A name that leaves the folder would make a downloaded index read any file of this machine. */
		if (!shard || !*shard || strchr(shard, '/') || strcmp(shard, "..") == 0)
			TT_FAIL(TT_ERR_FORMAT, "%s: weight_map: " NAME ": needs the name of a file in this folder, has \"" NAME "\"", index,
				name, shard ? shard : "");
		const char *path = tt_arena_printf(a, "%s/%s", folder, shard);
		bool open = false;
		for (int64_t i = 0; i < st->nfiles && !open; i++)
			open = strcmp(st->files[i].path, path) == 0;
		if (!open)
			TT_TRY(file_open(a, st, path));
	}
	TT_TRY(names_sort(st));
	json_object_foreach(map, name, v) {
		const tt_st_tensor *t = tt_st_find(st, name);
		if (!t)
			TT_FAIL(TT_ERR_FORMAT, "%s: weight_map: tensor " NAME " is not in %s/%s", index, name, folder,
				json_string_value(v));
		if (strcmp(t->file + strlen(folder) + 1, json_string_value(v)))
			TT_FAIL(TT_ERR_FORMAT, "%s: weight_map: tensor " NAME " is said to be in %s, it is in %s", index, name,
				json_string_value(v), t->file);
	}
	if (st->ntensors > (int64_t)json_object_size(map))
		tt_log(TT_LOG_WARN, "%s: the shards hold %lld tensors more than weight_map names", index,
		       (long long)(st->ntensors - (int64_t)json_object_size(map)));
	return TT_OK;
}

static tt_status index_read(tt_arena *a, tt_st *st, const char *folder, const char *index)
{
	char *text;
	size_t n;
	TT_TRY(tt_file_read(a, index, &text, &n));
	json_error_t why;
	json_t *root = json_loadb(text, n, JSON_REJECT_DUPLICATES, &why);
	if (!root)
		TT_FAIL(TT_ERR_FORMAT, "%s: line %d: %s", index, why.line, why.text);
	tt_status s = index_walk(a, st, folder, index, root);
	json_decref(root);
	TT_TRY(s);
	return TT_OK;
}

static tt_status any_open(tt_arena *a, tt_st *st)
{
	struct stat info;
	if (stat(st->path, &info) != 0)
		TT_FAIL(TT_ERR_IO, "%s: cannot open: %m", st->path);
	if (!S_ISDIR(info.st_mode)) {
		TT_TRY(file_open(a, st, st->path));
		TT_TRY(names_sort(st));
		return TT_OK;
	}
	const char *one = tt_arena_printf(a, "%s/model.safetensors", st->path);
	const char *index = tt_arena_printf(a, "%s/model.safetensors.index.json", st->path);
	if (stat(one, &info) == 0) {
		TT_TRY(file_open(a, st, one));
		TT_TRY(names_sort(st));
		return TT_OK;
	}
	if (stat(index, &info) != 0)
		TT_FAIL(TT_ERR_IO, "%s: the folder has neither model.safetensors nor model.safetensors.index.json", st->path);
	TT_TRY(index_read(a, st, st->path, index));
	return TT_OK;
}

tt_status tt_st_open(tt_arena *a, const char *path, tt_st **out)
{
	tt_st *st = TT_NEW(a, tt_st);
	size_t n = strlen(path);
	while (n > 1 && path[n - 1] == '/')
		n--;
	st->path = tt_arena_strndup(a, path, n);
	tt_status s = any_open(a, st);
	if (s != TT_OK)
		tt_st_close(st);
	TT_TRY(s);
	*out = st;
	return TT_OK;
}

tt_status tt_st_open_headers(tt_arena *a, const tt_fs *fs, const char *name, const char *const *paths, int64_t n, tt_st **out)
{
	tt_st *st = TT_NEW(a, tt_st);
	st->path = tt_arena_strdup(a, name);
	for (int64_t i = 0; i < n; i++)
		TT_TRY(headers_open(a, st, fs, tt_arena_strdup(a, paths[i])));
	TT_TRY(names_sort(st));
	*out = st;
	return TT_OK;
}

void tt_st_close(tt_st *st)
{
	for (int64_t i = 0; st && i < st->nfiles; i++)
		tt_map_close(&st->files[i].map);
	if (st)
		st->nfiles = st->ntensors = 0;
}

/* ---- look-up ---------------------------------------------------------------------------------------------------- */

const char *tt_st_path(const tt_st *st) { return st->path; }
int64_t tt_st_count(const tt_st *st) { return st->ntensors; }

const tt_st_tensor *tt_st_at(const tt_st *st, int64_t i)
{
	TT_ASSERT(i >= 0 && i < st->ntensors, "tensor %lld of %lld", (long long)i, (long long)st->ntensors);
	return &st->tensors[i];
}

const tt_st_tensor *tt_st_find(const tt_st *st, const char *name)
{
	tt_st_tensor key = {.name = name};
	return st->ntensors ? bsearch(&key, st->tensors, (size_t)st->ntensors, sizeof key, name_order) : NULL;
}

const char *tt_st_metadata(const tt_st *st, const char *key)
{
	for (int64_t i = 0; i < st->nmetadata; i++)
		if (strcmp(st->metadata[i].key, key) == 0)
			return st->metadata[i].value;
	return NULL;
}

tt_status tt_st_get(const tt_st *st, const char *name, const tt_st_tensor **out)
{
	const tt_st_tensor *t = tt_st_find(st, name);
	if (t) {
		*out = t;
		return TT_OK;
	}
	const char *near = NULL;
	int best = INT_MAX;
	for (int64_t i = 0; i < st->ntensors; i++) {
		int d = tt_edit_distance(name, st->tensors[i].name);
		if (d < best) {
			best = d;
			near = st->tensors[i].name;
		}
	}
	TT_FAIL(TT_ERR_FORMAT, "%s: no tensor %s among %lld%s%s", st->path, name, (long long)st->ntensors,
		near ? "; the nearest is " : "", near ? near : "");
}

static void dims_print(int ndim, const int64_t *dim, char *text, size_t cap)
{
	size_t n = 0;
	text[n++] = '[';
	for (int i = 0; i < ndim && n < cap; i++)
		n += (size_t)snprintf(text + n, cap - n, "%s%lld", i ? ", " : "", (long long)dim[i]);
	if (n < cap)
		snprintf(text + n, cap - n, "]");
}

tt_status tt_st_expect(const tt_st_tensor *t, int ndim, const int64_t *dim)
{
	if (t->ndim == ndim && (ndim == 0 || memcmp(t->dim, dim, sizeof *dim * (size_t)ndim) == 0))
		return TT_OK;
	char has[TT_ST_MAX_DIMS * 22 + 4], needs[sizeof has];
	dims_print(t->ndim, t->dim, has, sizeof has);
	dims_print(TT_MIN(ndim, TT_ST_MAX_DIMS), dim, needs, sizeof needs);
	TT_FAIL(TT_ERR_FORMAT, "%s: tensor %s has shape %s, the model needs %s", t->file, t->name, has, needs);
}

/* ---- elements --------------------------------------------------------------------------------------------------- */

static tt_status range_check(const tt_st_tensor *t, int64_t first, int64_t n)
{
	if (first < 0 || n < 0 || first > t->count || n > t->count - first)
		TT_FAIL(TT_ERR_USAGE, "%s: tensor %s: %lld elements from %lld on asked for, it has %lld", t->file, t->name, (long long)n,
			(long long)first, (long long)t->count);
	return TT_OK;
}

/* Data may lie at any alignment: elements are copied out. */
#define LOAD(type, p, i)                                                                                               \
	({                                                                                                             \
		type load_;                                                                                            \
		memcpy(&load_, (p) + (size_t)(i) * sizeof load_, sizeof load_);                                        \
		load_;                                                                                                 \
	})

tt_status tt_st_read_f32(const tt_st_tensor *t, int64_t first, int64_t n, float *out)
{
	TT_TRY(range_check(t, first, n));
	if (n == 0)
		return TT_OK;
	const uint8_t *p = t->p + first * DTYPES[t->dtype].size;
	switch (t->dtype) {
	case TT_ST_F32:
		memcpy(out, p, (size_t)n * 4);
		return TT_OK;
	case TT_ST_BF16:
		for (int64_t i = 0; i < n; i++)
			out[i] = tt_bf16_to_f32(LOAD(uint16_t, p, i));
		return TT_OK;
	case TT_ST_F16:
		for (int64_t i = 0; i < n; i++)
			out[i] = tt_f16_to_f32(LOAD(uint16_t, p, i));
		return TT_OK;
	case TT_ST_F64:
		for (int64_t i = 0; i < n; i++)
			out[i] = (float)LOAD(double, p, i);
		return TT_OK;
	case TT_ST_BOOL: case TT_ST_U8: case TT_ST_I8: case TT_ST_F8_E5M2: case TT_ST_F8_E4M3: case TT_ST_F8_E8M0: case TT_ST_I16:
	case TT_ST_U16: case TT_ST_I32: case TT_ST_U32: case TT_ST_I64: case TT_ST_U64: case TT_ST_NDTYPES:
		break;
	}
	TT_FAIL(TT_ERR_FORMAT, "%s: tensor %s is %s, F64, F32, F16 or BF16 is needed", t->file, t->name, DTYPES[t->dtype].name);
}

tt_status tt_st_read_f64(const tt_st_tensor *t, int64_t first, int64_t n, double *out)
{
	TT_TRY(range_check(t, first, n));
	if (n && t->dtype == TT_ST_F64) {
		memcpy(out, t->p + first * 8, (size_t)n * 8);
		return TT_OK;
	}
	/* Every narrower float fits into a float exactly. */
	enum { CHUNK = 1024 };
	float part[CHUNK];
	for (int64_t i = 0; i < n; i += CHUNK) {
		int64_t m = TT_MIN((int64_t)CHUNK, n - i);
		TT_TRY(tt_st_read_f32(t, first + i, m, part));
		for (int64_t j = 0; j < m; j++)
			out[i + j] = part[j];
	}
	return TT_OK;
}

tt_status tt_st_read_i32(const tt_st_tensor *t, int64_t first, int64_t n, int32_t *out)
{
	TT_TRY(range_check(t, first, n));
	if (n == 0)
		return TT_OK;
	const uint8_t *p = t->p + first * DTYPES[t->dtype].size;
	/* Two passes where values may not fit, so that nothing is written unless all do. */
	for (int pass = 0; pass < 2; pass++)
		for (int64_t i = 0; i < n; i++) {
			int64_t v = 0;
			bool fits = true;
			switch (t->dtype) {
			case TT_ST_BOOL:
			case TT_ST_U8: v = p[i]; break;
			case TT_ST_I8: v = LOAD(int8_t, p, i); break;
			case TT_ST_I16: v = LOAD(int16_t, p, i); break;
			case TT_ST_U16: v = LOAD(uint16_t, p, i); break;
			case TT_ST_I32: v = LOAD(int32_t, p, i); break;
			case TT_ST_U32: v = LOAD(uint32_t, p, i); break;
			case TT_ST_I64: v = LOAD(int64_t, p, i); break;
			case TT_ST_U64: {
				uint64_t u = LOAD(uint64_t, p, i);
				fits = u <= INT32_MAX;
				v = fits ? (int64_t)u : INT64_MAX;
				break;
			}
			case TT_ST_F8_E5M2: case TT_ST_F8_E4M3: case TT_ST_F8_E8M0: case TT_ST_F16: case TT_ST_BF16: case TT_ST_F32:
			case TT_ST_F64: case TT_ST_NDTYPES:
				TT_FAIL(TT_ERR_FORMAT, "%s: tensor %s is %s, whole numbers are needed", t->file, t->name,
					DTYPES[t->dtype].name);
			}
			if (!fits || v < INT32_MIN || v > INT32_MAX)
				TT_FAIL(TT_ERR_FORMAT, "%s: tensor %s: element %lld does not fit into 32 bits", t->file, t->name,
					(long long)(first + i));
			if (pass)
				out[i] = (int32_t)v;
		}
	return TT_OK;
}
