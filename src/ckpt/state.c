/* state.c: train_state.json and the marker. 64-bit words that may exceed 2^63 are written as hexadecimal strings: JSON readers know no
 * such numbers. */
#include <stdio.h>
#include <stdlib.h>

#include "ckpt/internal.h"

enum { VERSION = 1 };
static const char format_name[] = "titan checkpoint";

static json_t *hex(uint64_t v)
{
	char s[17];
	snprintf(s, sizeof s, "%016llx", (unsigned long long)v);
	return json_string(s);
}

static json_t *files_json(const ckpt_manifest *m)
{
	json_t *files = json_object();
	for (int64_t i = 0; i < m->nfiles; i++) {
		json_t *sums = json_array();
		for (int64_t k = 0; k < m->files[i].nblocks; k++)
			json_array_append_new(sums, hex(m->files[i].sums[k]));
		json_object_set_new(files, m->files[i].name, json_pack("{s:I, s:o}", "bytes", (json_int_t)m->files[i].bytes, "xxh3", sums));
	}
	return files;
}

static json_t *data_json(const tt_ckpt_state *s)
{
	json_t *data = json_pack("{s:I, s:I, s:I, s:o}", "step", (json_int_t)s->data.step, "context_length", (json_int_t)s->data.context_length,
				 "tokens_per_step", (json_int_t)s->data.tokens_per_step, "fingerprint", hex(s->data.fingerprint));
	if (s->files) {
		json_object_set_new(data, "files_every", json_integer((json_int_t)s->files_every));
		json_object_set_new(data, "files", json_string(s->files));
	}
	if (s->held) {
		json_object_set_new(data, "held_every", json_integer((json_int_t)s->held_every));
		json_object_set_new(data, "held", json_string(s->held));
	}
	return data;
}

tt_status ckpt_manifest_print(const ckpt_manifest *m, tt_buf *out)
{
	const tt_ckpt_state *s = &m->state;
	json_t *imported = json_object();
	for (int64_t i = 0; i < m->nimported; i++)
		json_object_set_new(imported, m->imported[i].name, json_string(tt_st_dtype_name(m->imported[i].dtype)));
	json_error_t why;
	json_t *root = json_pack_ex(&why, 0, "{s:s, s:i, s:s, s:I, s:I, s:I, s:I, s:o, s:b, s:o, s:{s:I, s:I, s:I, s:s, s:f}, s:s, s:I, s:o, s:o}",
		"format", format_name, "version", VERSION, "kind", m->model_only ? "model" : "full", "step", (json_int_t)s->step, "updates",
		(json_int_t)s->updates, "tokens_seen", (json_int_t)s->tokens_seen, "skips", (json_int_t)s->skips, "seed", hex(s->seed), "unvalidated", (int)s->unvalidated,
		"data", data_json(s), "schedule", "warmup", (json_int_t)s->schedule.warmup, "total", (json_int_t)s->schedule.total, "decay",
		(json_int_t)s->schedule.decay, "type", s->schedule.type ? s->schedule.type : "", "min_factor", s->schedule.min_factor, "config",
		s->config ? s->config : "", "block", (json_int_t)TT_CKPT_BLOCK, "imported", imported, "files", files_json(m));
	if (!root)
		TT_FAIL(TT_ERR_FORMAT, "%s: cannot be written: %s (is the config not UTF-8?)", CKPT_STATE, why.text);
	if (s->run)
		json_object_set_new(root, "run", json_string(s->run));
	char *text = json_dumps(root, JSON_INDENT(1) | JSON_REAL_PRECISION(17));
	json_decref(root);
	TT_ASSERT(text, "%s: out of memory", CKPT_STATE);
	tt_buf_str(out, text);
	tt_buf_str(out, "\n");
	free(text);
	return TT_OK;
}

/* ---- reading --------------------------------------------------------------------------------------------------------- */

typedef struct reader {
	tt_arena *a;
	const char *path;
} reader;

static tt_status get_int(const reader *r, const json_t *o, const char *key, int64_t *out)
{
	const json_t *v = json_object_get(o, key);
	if (!json_is_integer(v) || json_integer_value(v) < 0)
		TT_FAIL(TT_ERR_FORMAT, "%s: %s is missing or not a whole number from 0 up", r->path, key);
	*out = json_integer_value(v);
	return TT_OK;
}

static tt_status get_string(const reader *r, const json_t *o, const char *key, const char **out)
{
	const json_t *v = json_object_get(o, key);
	if (!json_is_string(v))
		TT_FAIL(TT_ERR_FORMAT, "%s: %s is missing or not a string", r->path, key);
	*out = tt_arena_strdup(r->a, json_string_value(v));
	return TT_OK;
}

static tt_status hex_value(const reader *r, const json_t *v, const char *key, uint64_t *out)
{
	const char *s = json_string_value(v);
	uint64_t x = 0;
	int n = 0;
	for (; s && s[n] && n < 17; n++) {
		int d = s[n] >= '0' && s[n] <= '9' ? s[n] - '0' : s[n] >= 'a' && s[n] <= 'f' ? s[n] - 'a' + 10 : -1;
		if (d < 0)
			break;
		x = x << 4 | (uint64_t)d;
	}
	if (!s || n != 16 || s[n])
		TT_FAIL(TT_ERR_FORMAT, "%s: %s needs a string of 16 hexadecimal digits", r->path, key);
	*out = x;
	return TT_OK;
}

static tt_status read_files(const reader *r, json_t *files, ckpt_manifest *m)
{
	if (!json_is_object(files))
		TT_FAIL(TT_ERR_FORMAT, "%s: files is missing or not an object", r->path);
	m->files = TT_NEWN(r->a, ckpt_listed, json_object_size(files));
	const char *name;
	json_t *v;
	json_object_foreach(files, name, v) {
		ckpt_listed f = { .name = tt_arena_strdup(r->a, name) };
		if (!*name || strchr(name, '/') || !strcmp(name, ".."))
			TT_FAIL(TT_ERR_FORMAT, "%s: files: \"%.200s\" is not the name of a file in this folder", r->path, name);
		TT_TRY(get_int(r, v, "bytes", &f.bytes));
		const json_t *sums = json_object_get(v, "xxh3");
		f.nblocks = (int64_t)json_array_size(sums);
		if (!json_is_array(sums) || f.bytes / TT_CKPT_BLOCK + (f.bytes % TT_CKPT_BLOCK != 0) != f.nblocks)
			TT_FAIL(TT_ERR_FORMAT, "%s: files: %.200s: %lld bytes, and %lld checksums of blocks of %lld", r->path, name, (long long)f.bytes,
				(long long)f.nblocks, (long long)TT_CKPT_BLOCK);
		uint64_t *s = TT_NEWN(r->a, uint64_t, f.nblocks);
		for (int64_t i = 0; i < f.nblocks; i++)
			TT_TRY(hex_value(r, json_array_get(sums, (size_t)i), "a checksum", &s[i]));
		f.sums = s;
		m->files[m->nfiles++] = f;
	}
	return TT_OK;
}

static tt_status read_imported(const reader *r, json_t *o, ckpt_manifest *m)
{
	if (!json_is_object(o))
		TT_FAIL(TT_ERR_FORMAT, "%s: imported is missing or not an object", r->path);
	m->imported = TT_NEWN(r->a, ckpt_imported, json_object_size(o));
	const char *name;
	json_t *v;
	json_object_foreach(o, name, v) {
		const char *word = json_string_value(v);
		int d = 0;
		while (word && d < TT_ST_NDTYPES && strcmp(tt_st_dtype_name((tt_st_dtype)d), word))
			d++;
		if (!word || d == TT_ST_NDTYPES)
			TT_FAIL(TT_ERR_FORMAT, "%s: imported: %.200s: not a dtype", r->path, name);
		m->imported[m->nimported++] = (ckpt_imported){ tt_arena_strdup(r->a, name), (tt_st_dtype)d };
	}
	return TT_OK;
}

static tt_status read_root(const reader *r, json_t *root, ckpt_manifest *m)
{
	const char *format, *kind;
	int64_t version, block;
	TT_TRY(get_string(r, root, "format", &format));
	if (strcmp(format, format_name))
		TT_FAIL(TT_ERR_FORMAT, "%s: format is \"%.200s\", \"%s\" is needed", r->path, format, format_name);
	TT_TRY(get_int(r, root, "version", &version));
	if (version != VERSION)
		TT_FAIL(TT_ERR_FORMAT, "%s: version %lld, this program reads %d", r->path, (long long)version, VERSION);
	TT_TRY(get_string(r, root, "kind", &kind));
	if (strcmp(kind, "full") && strcmp(kind, "model"))
		TT_FAIL(TT_ERR_FORMAT, "%s: kind is \"%.200s\", \"full\" or \"model\" is needed", r->path, kind);
	m->model_only = kind[0] == 'm';
	TT_TRY(get_int(r, root, "block", &block));
	if (block != TT_CKPT_BLOCK)
		TT_FAIL(TT_ERR_FORMAT, "%s: blocks of %lld bytes, this program reads %lld", r->path, (long long)block, (long long)TT_CKPT_BLOCK);
	tt_ckpt_state *s = &m->state;
	TT_TRY(get_int(r, root, "step", &s->step));
	TT_TRY(get_int(r, root, "updates", &s->updates));
	TT_TRY(get_int(r, root, "tokens_seen", &s->tokens_seen));
	TT_TRY(get_int(r, root, "skips", &s->skips));
	TT_TRY(hex_value(r, json_object_get(root, "seed"), "seed", &s->seed));
	json_t *data = json_object_get(root, "data"), *schedule = json_object_get(root, "schedule");
	TT_TRY(get_int(r, data, "step", &s->data.step));
	TT_TRY(get_int(r, data, "context_length", &s->data.context_length));
	TT_TRY(get_int(r, data, "tokens_per_step", &s->data.tokens_per_step));
	TT_TRY(hex_value(r, json_object_get(data, "fingerprint"), "data.fingerprint", &s->data.fingerprint));
	/* Checkpoints of older versions do not have these. */
	if (json_object_get(root, "run"))
		TT_TRY(get_string(r, root, "run", &s->run));
	s->unvalidated = json_is_true(json_object_get(root, "unvalidated"));
	if (json_object_get(data, "files")) {
		TT_TRY(get_string(r, data, "files", &s->files));
		TT_TRY(get_int(r, data, "files_every", &s->files_every));
		if (s->files_every < 1)
			TT_FAIL(TT_ERR_FORMAT, "%s: data.files_every is 0, it must be positive", r->path);
	}
	if (json_object_get(data, "held")) {
		TT_TRY(get_string(r, data, "held", &s->held));
		TT_TRY(get_int(r, data, "held_every", &s->held_every));
		if (s->held_every < 1)
			TT_FAIL(TT_ERR_FORMAT, "%s: data.held_every is 0, it must be positive", r->path);
	}
	TT_TRY(get_int(r, schedule, "warmup", &s->schedule.warmup));
	TT_TRY(get_int(r, schedule, "total", &s->schedule.total));
	TT_TRY(get_int(r, schedule, "decay", &s->schedule.decay));
	TT_TRY(get_string(r, schedule, "type", &s->schedule.type));
	if (!json_is_number(json_object_get(schedule, "min_factor")))
		TT_FAIL(TT_ERR_FORMAT, "%s: schedule.min_factor is missing or not a number", r->path);
	s->schedule.min_factor = json_number_value(json_object_get(schedule, "min_factor"));
	TT_TRY(get_string(r, root, "config", &s->config));
	TT_TRY(read_imported(r, json_object_get(root, "imported"), m));
	TT_TRY(read_files(r, json_object_get(root, "files"), m));
	return TT_OK;
}

tt_status ckpt_manifest_parse(tt_arena *a, const char *path, const char *text, size_t n, ckpt_manifest *out)
{
	json_error_t why;
	json_t *root = json_loadb(text, n, JSON_REJECT_DUPLICATES, &why);
	if (!root)
		TT_FAIL(TT_ERR_FORMAT, "%s: line %d: %s", path, why.line, why.text);
	reader r = { a, path };
	ckpt_manifest m = { 0 };
	tt_status s = read_root(&r, root, &m);
	json_decref(root);
	TT_TRY(s);
	*out = m;
	return TT_OK;
}

const char *ckpt_marker(tt_arena *a, const void *state, size_t n)
{
	return tt_arena_printf(a, "%s %d %016llx\n", format_name, VERSION, (unsigned long long)tt_hash64(state, n, 0));
}
