/* safetensors.c: one file. An input that begins with 'R' is the file's bytes after it; any other is a header, to which length and data are
 * made. Every tensor is read whole and in part, in every conversion; the reader without a mapping must see the same tensors. */
#include "fuzz.h"

#include "ckpt/safetensors.h"

#include <stdlib.h>

/* Conversions into arrays of exactly n: allowed or refused, never beyond. */
static void read_tensor(const tt_st_tensor *t, int64_t first, int64_t n)
{
	size_t room = n > 0 && n <= t->count ? (size_t)n : 1;
	float *f = malloc(room * sizeof *f);
	double *d = malloc(room * sizeof *d);
	int32_t *i = malloc(room * sizeof *i);
	bool inside = first >= 0 && n >= 0 && first <= t->count && n <= t->count - first;
	tt_status sf = tt_st_read_f32(t, first, n, f), sd = tt_st_read_f64(t, first, n, d), si = tt_st_read_i32(t, first, n, i);
	FUZZ_CHECK(inside || (sf != TT_OK && si != TT_OK && (n < 0 || sd != TT_OK)), "%s: elements outside were read", t->name);
	FUZZ_CHECK(n == 0 || sf == sd, "%s: as f32 %s, as f64 %s", t->name, tt_status_name(sf), tt_status_name(sd));
	FUZZ_CHECK(n == 0 || sf != TT_OK || si != TT_OK, "%s: floats and whole numbers at once", t->name);
	free(f);
	free(d);
	free(i);
}

static void check_file(const tt_st *st, const tt_st *headers)
{
	FUZZ_CHECK(tt_st_count(st) == tt_st_count(headers), "%lld tensors mapped, %lld read", (long long)tt_st_count(st), (long long)tt_st_count(headers));
	for (int64_t i = 0; i < tt_st_count(st); i++) {
		const tt_st_tensor *t = tt_st_at(st, i), *u = tt_st_at(headers, i), *found = NULL;
		FUZZ_CHECK(!strcmp(t->name, u->name) && t->dtype == u->dtype && t->at == u->at && t->bytes == u->bytes && t->count == u->count,
			   "%s differs between the two readers", t->name);
		FUZZ_CHECK(tt_st_get(st, t->name, &found) == TT_OK && found == t, "%s is not found", t->name);
		FUZZ_CHECK(t->bytes == t->count * tt_st_dtype_size(t->dtype), "%s: %lld bytes for %lld elements", t->name, (long long)t->bytes,
			   (long long)t->count);
		FUZZ_CHECK(tt_st_expect(t, u->ndim, u->dim) == TT_OK, "%s: %s", t->name, tt_error_text());
		int64_t other[TT_ST_MAX_DIMS] = { -1, INT64_MIN, INT64_MAX };
		FUZZ_CHECK(tt_st_expect(t, TT_ST_MAX_DIMS, other) != TT_OK, "%s has a negative dim", t->name);
		fuzz_touch(t->p, (size_t)t->bytes);
		const int64_t ranges[][2] = { { 0, t->count }, { t->count / 2, t->count - t->count / 2 }, { t->count, 0 }, { 0, t->count + 1 },
					      { -1, 1 }, { t->count, INT64_MAX }, { 1, -1 } };
		for (int r = 0; r < TT_COUNT(ranges); r++)
			read_tensor(t, ranges[r][0], ranges[r][1]);
	}
	const tt_st_tensor *none = NULL;
	if (!tt_st_find(st, "no such tensor"))
		FUZZ_CHECK(tt_st_get(st, "no such tensor", &none) != TT_OK && !none, "a tensor that is not there was got");
	if (tt_st_metadata(st, "format"))
		fuzz_touch(tt_st_metadata(st, "format"), strlen(tt_st_metadata(st, "format")));
}

void fuzz_one(const uint8_t *p, size_t n)
{
	tt_arena *a = tt_arena_create("fuzz");
	tt_buf b = { 0 };
	bool raw = n && p[0] == 'R';
	if (raw)
		tt_buf_add(&b, p + 1, n - 1);
	else
		fuzz_safetensors(&b, (fuzz_part){ p, n });
	const char *path = fuzz_file(0, b.n ? b.s : "", b.n);
	tt_st *st = NULL, *headers = NULL;
	tt_status mapped = tt_st_open(a, path, &st), read = tt_st_open_headers(a, &tt_fs_posix, "f", &path, 1, &headers);
	FUZZ_CHECK(mapped == read, "mapped %s, read %s", tt_status_name(mapped), tt_status_name(read));
	FUZZ_CHECK(mapped != TT_OK || st, "no file and no error");
	if (st)
		check_file(st, headers);
	tt_st_close(st);
	tt_st_close(headers);
	tt_buf_fini(&b);
	tt_arena_destroy(a);
}

void fuzz_seeds(void)
{
	tt_arena *a = tt_arena_create("seeds");
	tt_buf all = { 0 };
	int64_t at = 0;
	tt_buf_str(&all, "{\"__metadata__\":{\"format\":\"pt\"}");
	for (int d = 0; d < TT_ST_NDTYPES; d++) {
		const char *name = tt_st_dtype_name((tt_st_dtype)d);
		int64_t bytes = 6 * tt_st_dtype_size((tt_st_dtype)d);
		tt_buf_printf(&all, ",\"t.%s\":{\"dtype\":\"%s\",\"shape\":[2,3],\"data_offsets\":[%lld,%lld]}", name, name, (long long)at,
			      (long long)(at + bytes));
		at += bytes;
		fuzz_seed_text(tt_arena_printf(a, "{\"x\":{\"dtype\":\"%s\",\"shape\":[6],\"data_offsets\":[0,%lld]}}", name, (long long)bytes));
		fuzz_word(tt_arena_printf(a, "\"%s\"", name));
	}
	tt_buf_str(&all, "}");
	fuzz_seed(all.s, all.n);
	tt_buf file = { 0 };
	tt_buf_str(&file, "R");
	fuzz_safetensors(&file, (fuzz_part){ (const uint8_t *)all.s, all.n });
	fuzz_seed(file.s, file.n);
	tt_buf_fini(&file);
	tt_buf_fini(&all);
	fuzz_seed_text("{\"s\":{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[0,4]},\"e\":{\"dtype\":\"F64\",\"shape\":[0,7],\"data_offsets\":[4,4]}}");
	fuzz_seed_text("{}");
	fuzz_seed_text("-{\"x\":{\"dtype\":\"F32\",\"shape\":[6],\"data_offsets\":[0,24]}}");
	static const char *const words[] = { "\"__metadata__\":{", "\"dtype\":", "\"shape\":[", "\"data_offsets\":[", "9223372036854775807", "4294967296",
					     "-1", "[]", "{}", "null", "\\u0000", "1e3", ",0]", "]}" };
	for (int i = 0; i < TT_COUNT(words); i++)
		fuzz_word(words[i]);
	tt_arena_destroy(a);
}
