/* safetensors: reading what is right, refusing what is not. */
#define _GNU_SOURCE
#include "test.h"

#include "ckpt/safetensors.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

/* A new file each time: writing over one makes some file systems flush it first. */
static void rewrite(tt_test *t, const char *path, const void *bytes, size_t n)
{
	unlink(path);
	TT_CHECK_OK(t, tt_file_write(path, bytes, n));
}

/* ---- files made by hand --------------------------------------------------------------------------------------------- */

/* A file of this header and these bytes; the length field is the header's own unless `len` is not -1. */
static const char *make(tt_test *t, const char *name, const char *header, int64_t len, const void *data, size_t n)
{
	const char *path = tt_test_path(t, name);
	tt_buf b = {0};
	uint64_t hn = len < 0 ? strlen(header) : (uint64_t)len;
	tt_buf_add(&b, &hn, 8);
	tt_buf_str(&b, header);
	tt_buf_add(&b, data, n);
	rewrite(t, path, b.s, b.n);
	tt_buf_fini(&b);
	return path;
}

static tt_status open_path(tt_test *t, const char *path, tt_st **out) { return tt_st_open(t->arena, path, out); }

/* The error of a header over `n` bytes of data. */
static void refuses(tt_test *t, const char *header, size_t n, const char *part)
{
	static const uint8_t data[64];
	tt_st *st = NULL;
	if (!TT_CHECK_FAILS(t, open_path(t, make(t, "bad.safetensors", header, -1, data, n), &st), TT_ERR_FORMAT, part))
		TT_CHECK_MSG(t, false, "header was %s", header);
	TT_CHECK(t, st == NULL);
}

static const float F32[6] = {1.5f, -0.0f, 3e38f, 1e-45f, INFINITY, -2.25f};

static void reads(tt_test *t)
{
	struct __attribute__((packed)) {
		uint8_t odd[3]; /* so that what follows is not aligned */
		float f32[6];
		double f64[2];
		uint16_t bf16[2], f16[3];
		int64_t i64[3];
		int32_t i32[2];
		uint64_t u64;
		int16_t i16;
		int8_t i8[2];
	} d = {{0, 1, 255}, {0}, {1.0 / 3, 1e300}, {0x3fc0, 0xff80}, {0x3c00, 0x0001, 0xfc00}, {-5, INT32_MAX, (int64_t)INT32_MAX + 1},
	       {INT32_MIN, 7}, UINT64_MAX, -3, {-128, 127}};
	memcpy(d.f32, F32, sizeof F32);
	const char *header =
		"{\"__metadata__\":{\"format\":\"pt\"},\"u8\":{\"dtype\":\"U8\",\"shape\":[3],\"data_offsets\":[0,3]},"
		"\"z.f32\":{\"shape\":[2,3],\"dtype\":\"F32\",\"data_offsets\":[3,27]},"
		"\"f64\":{\"dtype\":\"F64\",\"shape\":[2],\"data_offsets\":[27,43]},"
		"\"bf16\":{\"dtype\":\"BF16\",\"shape\":[1,2],\"data_offsets\":[43,47]},"
		"\"f16\":{\"dtype\":\"F16\",\"shape\":[3],\"data_offsets\":[47,53]},"
		"\"i64\":{\"dtype\":\"I64\",\"shape\":[3],\"data_offsets\":[53,77]},"
		"\"i32\":{\"dtype\":\"I32\",\"shape\":[2],\"data_offsets\":[77,85]},"
		"\"none\":{\"dtype\":\"F32\",\"shape\":[4,0],\"data_offsets\":[85,85]},"
		"\"scalar\":{\"dtype\":\"U64\",\"shape\":[],\"data_offsets\":[85,93]},"
		"\"i16\":{\"dtype\":\"I16\",\"shape\":[1],\"data_offsets\":[93,95]},"
		"\"i8\":{\"dtype\":\"I8\",\"shape\":[2],\"data_offsets\":[95,97]}}   ";
	tt_st *st = NULL;
	const char *path = make(t, "m.safetensors", header, -1, &d, sizeof d);
	if (!TT_CHECK_OK(t, open_path(t, path, &st)))
		return;
	TT_CHECK_STR(t, tt_st_path(st), path);
	TT_CHECK_INT(t, tt_st_count(st), 11);
	TT_CHECK_STR(t, tt_st_at(st, 0)->name, "bf16");
	TT_CHECK_STR(t, tt_st_at(st, 10)->name, "z.f32");
	TT_CHECK_STR(t, tt_st_metadata(st, "format"), "pt");
	TT_CHECK(t, tt_st_metadata(st, "x") == NULL && tt_st_find(st, "z.f") == NULL);
	const tt_st_tensor *x = tt_st_find(st, "z.f32");
	TT_CHECK(t, x && x->ndim == 2 && x->dim[0] == 2 && x->dim[1] == 3 && x->count == 6 && x->bytes == 24 && x->dtype == TT_ST_F32);
	float f[8];
	double g[8];
	int32_t i[8];
	TT_CHECK_OK(t, tt_st_read_f32(x, 0, 6, f));
	TT_CHECK(t, memcmp(f, F32, sizeof F32) == 0);
	TT_CHECK_OK(t, tt_st_read_f32(x, 4, 2, f));
	TT_CHECK(t, f[0] == INFINITY && f[1] == -2.25f);
	TT_CHECK_OK(t, tt_st_read_f64(x, 1, 5, g));
	TT_CHECK(t, g[0] == 0 && signbit(g[0]) && g[2] == (double)1e-45f);
	x = tt_st_find(st, "f64");
	TT_CHECK_OK(t, tt_st_read_f64(x, 0, 2, g));
	TT_CHECK(t, g[0] == 1.0 / 3 && g[1] == 1e300);
	TT_CHECK_OK(t, tt_st_read_f32(x, 0, 2, f));
	TT_CHECK(t, f[0] == (float)(1.0 / 3) && f[1] == INFINITY);
	TT_CHECK_OK(t, tt_st_read_f32(tt_st_find(st, "bf16"), 0, 2, f));
	TT_CHECK(t, f[0] == 1.5f && f[1] == -INFINITY);
	TT_CHECK_OK(t, tt_st_read_f64(tt_st_find(st, "f16"), 0, 3, g));
	TT_CHECK(t, g[0] == 1 && g[1] == 0x1p-24 && g[2] == -INFINITY);
	TT_CHECK_OK(t, tt_st_read_i32(tt_st_find(st, "u8"), 0, 3, i));
	TT_CHECK(t, i[0] == 0 && i[1] == 1 && i[2] == 255);
	TT_CHECK_OK(t, tt_st_read_i32(tt_st_find(st, "i32"), 0, 2, i));
	TT_CHECK(t, i[0] == INT32_MIN && i[1] == 7);
	TT_CHECK_OK(t, tt_st_read_i32(tt_st_find(st, "i64"), 0, 2, i));
	TT_CHECK(t, i[0] == -5 && i[1] == INT32_MAX);
	TT_CHECK_OK(t, tt_st_read_i32(tt_st_find(st, "i16"), 0, 1, i));
	TT_CHECK(t, i[0] == -3 && i[1] == INT32_MAX);
	TT_CHECK_OK(t, tt_st_read_i32(tt_st_find(st, "i8"), 0, 2, i));
	TT_CHECK(t, i[0] == -128 && i[1] == 127);
	TT_CHECK_OK(t, tt_st_read_f32(tt_st_find(st, "none"), 0, 0, f));
	TT_CHECK_INT(t, tt_st_find(st, "scalar")->count, 1);
	/* What cannot be read says why and writes nothing. */
	i[0] = i[1] = 1234;
	TT_CHECK_FAILS(t, tt_st_read_i32(tt_st_find(st, "i64"), 1, 2, i), TT_ERR_FORMAT, "tensor i64: element 2 does not fit into 32 bits");
	TT_CHECK_INT(t, i[0], 1234);
	TT_CHECK_FAILS(t, tt_st_read_i32(tt_st_find(st, "scalar"), 0, 1, i), TT_ERR_FORMAT, "does not fit");
	TT_CHECK_FAILS(t, tt_st_read_i32(tt_st_find(st, "f16"), 0, 1, i), TT_ERR_FORMAT, "tensor f16 is F16, whole numbers are needed");
	TT_CHECK_FAILS(t, tt_st_read_f32(tt_st_find(st, "i32"), 0, 1, f), TT_ERR_FORMAT, "tensor i32 is I32, F64, F32");
	TT_CHECK_FAILS(t, tt_st_read_f64(tt_st_find(st, "u8"), 0, 1, g), TT_ERR_FORMAT, "tensor u8 is U8");
	x = tt_st_find(st, "z.f32");
	TT_CHECK_FAILS(t, tt_st_read_f32(x, 3, 4, f), TT_ERR_USAGE, "4 elements from 3 on asked for, it has 6");
	TT_CHECK_FAILS(t, tt_st_read_f64(x, -1, 2, g), TT_ERR_USAGE, "it has 6");
	TT_CHECK_FAILS(t, tt_st_read_i32(x, INT64_MAX, 2, i), TT_ERR_USAGE, "it has 6");
	TT_CHECK_OK(t, tt_st_expect(x, 2, (int64_t[]){2, 3}));
	TT_CHECK_FAILS(t, tt_st_expect(x, 2, (int64_t[]){3, 2}), TT_ERR_FORMAT, "tensor z.f32 has shape [2, 3], the model needs [3, 2]");
	TT_CHECK_FAILS(t, tt_st_expect(x, 1, (int64_t[]){6}), TT_ERR_FORMAT, "has shape [2, 3], the model needs [6]");
	TT_CHECK_FAILS(t, tt_st_get(st, "z.f33", &x), TT_ERR_FORMAT, "no tensor z.f33 among 11; the nearest is z.f32");
	TT_CHECK_STR(t, x->name, "z.f32");
	tt_st_close(st);
	tt_st_close(NULL);
}

#define T4(name, shape, from, to) "\"" name "\":{\"dtype\":\"F32\",\"shape\":" shape ",\"data_offsets\":[" from "," to "]}"

static void refusals(tt_test *t)
{
	tt_st *st = NULL;
	TT_CHECK_OK(t, open_path(t, make(t, "ok.safetensors", "{}", -1, "", 0), &st));
	TT_CHECK_INT(t, tt_st_count(st), 0);
	TT_CHECK(t, tt_st_find(st, "a") == NULL);
	tt_st_close(st);
	refuses(t, "{" T4("a", "[2]", "0", "8") "}", 12, "bad.safetensors: the tensors end at byte 8 of the data, the file has 12");
	refuses(t, "{" T4("a", "[2]", "0", "8") "}", 7, "tensor a: data_offsets [0, 8] leave the file's 7 bytes");
	refuses(t, "{" T4("a", "[2]", "4", "12") "}", 12, "bytes 0 to 4 of the data, before tensor a, belong to no tensor");
	refuses(t, "{" T4("a", "[2]", "0", "8") "," T4("b", "[2]", "4", "12") "}", 12, "tensors a and b overlap: one ends at byte 8, the other begins at 4");
	refuses(t, "{" T4("a", "[2]", "0", "8") "," T4("b", "[2]", "0", "8") "}", 8, "overlap");
	refuses(t, "{" T4("a", "[3]", "0", "8") "}", 8, "tensor a: data_offsets [0, 8] span 8 bytes, its shape in F32 takes 12");
	refuses(t, "{" T4("a", "[2]", "8", "0") "}", 8, "tensor a: data_offsets [8, 0] leave");
	refuses(t, "{" T4("a", "[2]", "-8", "0") "}", 8, "tensor a: data_offsets [-8, 0] leave");
	refuses(t, "{" T4("a", "[-2]", "0", "8") "}", 8, "tensor a: dim 0 of its shape");
	refuses(t, "{" T4("a", "[2.0]", "0", "8") "}", 8, "tensor a: dim 0 of its shape");
	refuses(t, "{" T4("a", "[2]", "0", "8.0") "}", 8, "tensor a: data_offsets is missing or not two whole numbers");
	refuses(t, "{" T4("a", "[2]", "0", "8,8") "}", 8, "two whole numbers");
	refuses(t, "{" T4("a", "[4611686018427387904,4]", "0", "0") "}", 0, "tensor a: the product of its dims overflows");
	refuses(t, "{" T4("a", "[0,4611686018427387904,4]", "0", "0") "}", 0, "overflows");
	refuses(t, "{" T4("a", "[4611686018427387904,4,0]", "0", "0") "}", 0, "overflows");
	refuses(t, "{" T4("a", "[2305843009213693952]", "0", "0") "}", 0, "overflows");
	refuses(t, "{" T4("a", "[99999999999999999999]", "0", "0") "}", 0, "too big integer");
	refuses(t, "{" T4("a", "[1,1,1,1,1,1,1,1,1]", "0", "4") "}", 4, "9 dims, at most 8");
	refuses(t, "{" T4("a", "2", "0", "8") "}", 8, "tensor a: shape is missing or not an array");
	refuses(t, "{" T4("a", "[2]", "0", "8") "," T4("a", "[2]", "8", "16") "}", 16, "duplicate object key");
	refuses(t, "{\"a\":{\"dtype\":\"F31\",\"shape\":[],\"data_offsets\":[0,4]}}", 4, "tensor a: unknown dtype \"F31\"");
	refuses(t, "{\"a\":{\"dtype\":7,\"shape\":[],\"data_offsets\":[0,4]}}", 4, "tensor a: dtype is missing or not a string");
	refuses(t, "{\"a\":{\"shape\":[],\"data_offsets\":[0,4]}}", 4, "tensor a: dtype is missing");
	refuses(t, "{\"a\":{\"dtype\":\"F32\",\"shape\":[]}}", 4, "tensor a: data_offsets is missing");
	refuses(t, "{\"a\":{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[0,4],\"more\":1}}", 4, "tensor a: unknown key \"more\"");
	refuses(t, "{\"a\":7}", 0, "tensor a: its entry is not an object");
	refuses(t, "{\"__metadata__\":7}", 0, "__metadata__ is not an object");
	refuses(t, "{\"__metadata__\":{\"a\":7}}", 0, "__metadata__: a is not a string");
	refuses(t, "[]", 0, "the header does not begin with '{'");
	refuses(t, " {}", 0, "the header does not begin with '{'");
	refuses(t, "", 0, "the header does not begin with '{'");
	refuses(t, "{\"a\":", 0, "bad.safetensors: header, byte 5: ");
	refuses(t, "{} x", 0, "header, byte ");
	const int64_t lens[] = {3, 100, TT_ST_MAX_HEADER, TT_ST_MAX_HEADER + 1, INT64_MAX, INT64_MIN, INT64_MIN + 8};
	for (int i = 0; i < TT_COUNT(lens); i++) {
		const char *path = make(t, "len.safetensors", "{}", lens[i] < 0 ? INT64_MAX : lens[i], "", 0);
		TT_CHECK_FAILS(t, open_path(t, path, &st), TT_ERR_FORMAT, "len.safetensors: header of ");
	}
	TT_CHECK_OK(t, tt_file_write(tt_test_path(t, "short"), "\2\0\0\0\0\0\0", 7));
	TT_CHECK_FAILS(t, open_path(t, tt_test_path(t, "short"), &st), TT_ERR_FORMAT, "short: 7 bytes");
	TT_CHECK_FAILS(t, open_path(t, tt_test_path(t, "none"), &st), TT_ERR_IO, "none: cannot open: No such file");
}

/* ---- broken copies ---------------------------------------------------------------------------------------------------- */

static const char SMALL_HEADER[] = "{\"__metadata__\":{\"k\":\"v\"}," T4("w.a", "[2,2]", "0", "16") "," T4("w.b", "[3]", "16", "28") "}";

/* Opens, and if that succeeds touches every byte of every tensor, so that a sanitizer sees what leaves the file. */
static tt_status open_and_touch(tt_test *t, const char *path)
{
	tt_mark m = tt_arena_push(t->arena);
	tt_st *st;
	tt_status s = tt_st_open(t->arena, path, &st);
	if (s == TT_OK) {
		uint64_t sum = 0;
		for (int64_t i = 0; i < tt_st_count(st); i++) {
			const tt_st_tensor *x = tt_st_at(st, i);
			for (int64_t k = 0; k < x->bytes; k++)
				sum += x->p[k];
		}
		TT_CHECK(t, sum < UINT64_MAX);
		tt_st_close(st);
	}
	tt_arena_pop(t->arena, m);
	return s;
}

static void truncations(tt_test *t)
{
	char *bytes;
	size_t n;
	float data[7] = {0};
	TT_CHECK_OK(t, tt_file_read(t->arena, make(t, "w", SMALL_HEADER, -1, data, sizeof data), &bytes, &n));
	const char *path = tt_test_path(t, "cut");
	for (size_t i = 0; i <= n; i++) {
		rewrite(t, path, bytes, i);
		if (i == n)
			TT_CHECK_OK(t, open_and_touch(t, path));
		else
			TT_CHECK_FAILS(t, open_and_touch(t, path), TT_ERR_FORMAT, "/cut: ");
	}
	/* One byte too many is as wrong. */
	char *more = tt_arena_alloc(t->arena, n + 1);
	memcpy(more, bytes, n);
	rewrite(t, path, more, n + 1);
	TT_CHECK_FAILS(t, open_and_touch(t, path), TT_ERR_FORMAT, "the file has 29");
}

/* Every single bit, then several bytes at once: an error with the file's name, or a file that is still right. */
static void flips(tt_test *t)
{
	char *bytes;
	size_t n;
	float data[7] = {0};
	TT_CHECK_OK(t, tt_file_read(t->arena, make(t, "w", SMALL_HEADER, -1, data, sizeof data), &bytes, &n));
	const char *path = tt_test_path(t, "flip");
	size_t head = 8 + strlen(SMALL_HEADER);
	int refused = 0, taken = 0;
	uint64_t r = t->seed + 1;
	int rounds = (int)head * 8 + (t->tier == TT_TIER_QUICK ? 3000 : 100000);
	for (int i = 0; i < rounds; i++) {
		char *copy = tt_arena_alloc(t->arena, 0);
		tt_mark m = tt_arena_push(t->arena);
		copy = tt_arena_alloc(t->arena, n);
		memcpy(copy, bytes, n);
		if (i < (int)head * 8)
			copy[i / 8] ^= (char)(1 << i % 8);
		for (int k = 0; i >= (int)head * 8 && k < 1 + i % 4; k++) {
			r = r * 6364136223846793005u + 1442695040888963407u;
			/* Digits, brackets and quotes make the most trouble. */
			copy[8 + (r >> 33) % (head - 8)] = "0123456789[]{},:\"-e.\\\xff\0 "[(r >> 20) % 24];
		}
		rewrite(t, path, copy, n);
		if (open_and_touch(t, path) == TT_OK)
			taken++;
		else if (TT_CHECK_MSG(t, strstr(tt_error_text(), "flip: ") || strstr(tt_error_text(), "stands in two files"), "error %d is \"%s\"", i,
				 tt_error_text()))
			refused++;
		tt_arena_pop(t->arena, m);
	}
	TT_CHECK_MSG(t, refused > rounds / 2 && taken > 0, "%d refused, %d taken", refused, taken);
}

/* ---- folders ---------------------------------------------------------------------------------------------------------- */

static void put(tt_test *t, const char *name, const char *text) { TT_CHECK_OK(t, tt_file_write(tt_test_path(t, name), text, strlen(text))); }

#define INDEX "model.safetensors.index.json"

static void shards(tt_test *t)
{
	static const float one[2] = {1, 2}, two[2] = {3, 4};
	make(t, "s1.safetensors", "{" T4("b", "[2]", "0", "8") "}", -1, one, 8);
	make(t, "s2.safetensors", "{" T4("a", "[1]", "0", "4") "," T4("c", "[1]", "4", "8") "}", -1, two, 8);
	put(t, INDEX, "{\"metadata\":{\"total_size\":16},\"weight_map\":{\"a\":\"s2.safetensors\",\"b\":\"s1.safetensors\",\"c\":\"s2.safetensors\"}}");
	const char *folder = tt_arena_printf(t->arena, "%s/", tt_test_tmp(t));
	tt_st *st = NULL;
	float f[2];
	if (!TT_CHECK_OK(t, open_path(t, folder, &st)))
		return;
	TT_CHECK_INT(t, tt_st_count(st), 3);
	TT_CHECK_OK(t, tt_st_read_f32(tt_st_find(st, "b"), 0, 2, f));
	TT_CHECK(t, f[0] == 1 && f[1] == 2);
	TT_CHECK_OK(t, tt_st_read_f32(tt_st_find(st, "c"), 0, 1, f));
	TT_CHECK(t, f[0] == 4);
	tt_st_close(st);
	st = NULL;
	const struct { const char *index, *error; } bad[] = {
		{"{\"weight_map\":{\"a\":\"s1.safetensors\",\"b\":\"s1.safetensors\",\"c\":\"s2.safetensors\"}}",
		 "tensor a is said to be in s1.safetensors, it is in "},
		{"{\"weight_map\":{\"a\":\"s2.safetensors\",\"d\":\"s1.safetensors\"}}", "weight_map: tensor d is not in "},
		{"{\"weight_map\":{\"a\":\"../s2.safetensors\"}}", "weight_map: a: needs the name of a file in this folder, has \"../s2.safetensors\""},
		{"{\"weight_map\":{\"a\":\"..\"}}", "needs the name of a file"},
		{"{\"weight_map\":{\"a\":7}}", "needs the name of a file"},
		{"{\"weight_map\":7}", "weight_map is missing or not an object"},
		{"[]", "weight_map is missing"},
		{"{\"weight_map\":{\"a\":", "index.json: line 1: "},
		{"{\"weight_map\":{\"a\":\"s2.safetensors\",\"a\":\"s1.safetensors\"}}", "duplicate object key"},
	};
	for (int i = 0; i < TT_COUNT(bad); i++) {
		put(t, INDEX, bad[i].index);
		TT_CHECK_FAILS(t, open_path(t, folder, &st), TT_ERR_FORMAT, bad[i].error);
	}
	put(t, INDEX, "{\"weight_map\":{\"a\":\"s3.safetensors\"}}");
	TT_CHECK_FAILS(t, open_path(t, folder, &st), TT_ERR_IO, "s3.safetensors: cannot open");
	make(t, "s3.safetensors", "{" T4("a", "[1]", "0", "4") "}", -1, one, 4);
	put(t, INDEX, "{\"weight_map\":{\"a\":\"s3.safetensors\",\"c\":\"s2.safetensors\"}}");
	TT_CHECK_FAILS(t, open_path(t, folder, &st), TT_ERR_FORMAT, "tensor a stands in two files: ");
	/* model.safetensors comes first; without both there is nothing to read. */
	make(t, "model.safetensors", "{" T4("only", "[1]", "0", "4") "}", -1, one, 4);
	TT_CHECK_OK(t, open_path(t, folder, &st));
	TT_CHECK(t, tt_st_count(st) == 1 && tt_st_find(st, "only"));
	tt_st_close(st);
	TT_CHECK(t, unlink(tt_test_path(t, "model.safetensors")) == 0 && unlink(tt_test_path(t, INDEX)) == 0);
	TT_CHECK_FAILS(t, open_path(t, folder, &st), TT_ERR_IO, "the folder has neither model.safetensors nor model.safetensors.index.json");
}

/* Files that another program wrote. */
static void golden(tt_test *t)
{
	const char *path = "tests/golden/packed/expect.safetensors";
	if (access(path, R_OK) != 0)
		TT_SKIP(t, "tests/golden/packed/expect.safetensors is not here");
	tt_st *st = NULL;
	const tt_st_tensor *ids = NULL, *lengths = NULL, *nll = NULL, *grad = NULL;
	if (!TT_CHECK_OK(t, tt_st_open(t->arena, path, &st)) || !TT_CHECK_OK(t, tt_st_get(st, "input_ids", &ids)) ||
	    !TT_CHECK_OK(t, tt_st_get(st, "sequence_lengths", &lengths)) || !TT_CHECK_OK(t, tt_st_get(st, "nll", &nll)) ||
	    !TT_CHECK_OK(t, tt_st_get(st, "grad.model.norm.weight", &grad)))
		return;
	TT_CHECK_OK(t, tt_st_expect(ids, 2, (int64_t[]){2, 24}));
	int32_t len[6];
	TT_CHECK_OK(t, tt_st_expect(lengths, 2, (int64_t[]){2, 3}));
	TT_CHECK_OK(t, tt_st_read_i32(lengths, 0, 6, len));
	static const int32_t want[6] = {5, 11, 8, 23, 1, 0};
	TT_CHECK(t, memcmp(len, want, sizeof want) == 0);
	TT_CHECK_STR(t, tt_st_dtype_name(nll->dtype), "F64");
	TT_CHECK_INT(t, nll->count, 48);
	TT_CHECK_STR(t, tt_st_dtype_name(grad->dtype), "F32");
	tt_st_close(st);
}

const tt_case tt_suite_safetensors[] = {
	{"reads", reads, TT_TIER_QUICK},
	{"refusals", refusals, TT_TIER_QUICK},
	{"truncations", truncations, TT_TIER_QUICK},
	{"flips", flips, TT_TIER_QUICK},
	{"shards", shards, TT_TIER_QUICK},
	{"golden", golden, TT_TIER_QUICK},
	{0},
};
