/* The table of tokenizers, and "bytes": id = byte. */
#include "tok/tok.h"

/* ---- bytes ------------------------------------------------------------------------------------------------------ */

static tt_status bytes_open(tt_arena *a, const char *path, tt_tok *t)
{
	(void)a;
	if (path)
		TT_FAIL(TT_ERR_USAGE, "tokenizer \"bytes\" has no file, one was given: %s", path);
	t->vocab_size = 256;
	t->byte_exact = true;
	return TT_OK;
}

static tt_status bytes_encode(const tt_tok *t, const void *bytes, int64_t n, int32_t *ids, int64_t cap, int64_t *count)
{
	(void)t;
	if (n > cap)
		TT_FAIL(TT_ERR_USAGE, "tokenizer \"bytes\": %lld bytes give as many ids, there is room for %lld", (long long)n,
			(long long)cap);
	const uint8_t *b = bytes;
	for (int64_t i = 0; i < n; i++)
		ids[i] = b[i];
	*count = n;
	return TT_OK;
}

static tt_status bytes_decode(const tt_tok *t, const int32_t *ids, int64_t n, tt_buf *out)
{
	(void)t;
	for (int64_t i = 0; i < n; i++)
		tt_buf_add(out, &(uint8_t){(uint8_t)ids[i]}, 1);
	return TT_OK;
}

/* ---- the table -------------------------------------------------------------------------------------------------- */

const tt_tok_kind tt_tok_kinds[] = {
	{"bytes", "256 ids, one a byte, no special tokens", bytes_open, bytes_encode, bytes_decode},
	{0},
};

tt_status tt_tok_open(tt_arena *a, const char *name, const char *path, const tt_tok **out)
{
	const char *names[TT_COUNT(tt_tok_kinds)];
	int n = 0;
	for (const tt_tok_kind *k = tt_tok_kinds; k->name; k++) {
		if (strcmp(k->name, name) == 0) {
			tt_tok *t = TT_NEW(a, tt_tok);
			*t = (tt_tok){.kind = k, .bos = -1, .eos = -1};
			TT_TRY(k->open(a, path, t));
			*out = t;
			return TT_OK;
		}
		names[n++] = k->name;
	}
	tt_buf all = {0};
	for (int i = 0; i < n; i++)
		tt_buf_printf(&all, "%s%s", i ? ", " : "", names[i]);
	const char *list = tt_arena_strdup(a, all.s);
	tt_buf_fini(&all);
	const char *near = tt_nearest(name, names, n);
	TT_FAIL(TT_ERR_USAGE, "unknown tokenizer \"%s\"%s%s%s; there are: %s", name, near ? ", did you mean \"" : "",
		near ? near : "", near ? "\"?" : "", list);
}

tt_status tt_tok_encode(const tt_tok *t, const void *bytes, int64_t n, int32_t *ids, int64_t cap, int64_t *count)
{
	TT_TRY(t->kind->encode(t, bytes, n, ids, cap, count));
	return TT_OK;
}

tt_status tt_tok_decode(const tt_tok *t, const int32_t *ids, int64_t n, tt_buf *out)
{
	for (int64_t i = 0; i < n; i++)
		if (ids[i] < 0 || ids[i] >= t->vocab_size)
			TT_FAIL(TT_ERR_USAGE, "tokenizer \"%s\": id %d at %lld is outside its vocabulary of %d", t->kind->name, ids[i],
				(long long)i, t->vocab_size);
	TT_TRY(t->kind->decode(t, ids, n, out));
	return TT_OK;
}
