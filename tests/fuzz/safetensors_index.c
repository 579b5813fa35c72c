/* safetensors_index.c: a folder of shards. Parts: the text of model.safetensors.index.json, then the headers of a.safetensors,
 * b.safetensors and c.safetensors; an empty one is a shard that is missing. */
#include "fuzz.h"

#include "ckpt/safetensors.h"

enum { FILES = 4 };
static const char *const names[FILES] = { "model.safetensors.index.json", "a.safetensors", "b.safetensors", "c.safetensors" };

void fuzz_one(const uint8_t *p, size_t n)
{
	tt_arena *a = tt_arena_create("fuzz");
	fuzz_part parts[FILES];
	fuzz_split(p, n, parts, FILES);
	fuzz_folder_file(names[0], parts[0].n ? parts[0].p : NULL, parts[0].n);
	for (int i = 1; i < FILES; i++) {
		tt_buf b = { 0 };
		if (parts[i].n)
			fuzz_safetensors(&b, parts[i]);
		fuzz_folder_file(names[i], b.s, b.n);
		tt_buf_fini(&b);
	}
	tt_st *st;
	if (tt_st_open(a, fuzz_folder(), &st) == TT_OK) {
		for (int64_t i = 0; i < tt_st_count(st); i++) {
			const tt_st_tensor *t = tt_st_at(st, i);
			FUZZ_CHECK(!i || strcmp(tt_st_at(st, i - 1)->name, t->name) < 0, "%s: not in order, or twice", t->name);
			FUZZ_CHECK(!strncmp(t->file, fuzz_folder(), strlen(fuzz_folder())) && !strchr(t->file + strlen(fuzz_folder()) + 1, '/'), "%s left the folder",
				   t->file);
			fuzz_touch(t->p, (size_t)t->bytes);
		}
		tt_st_close(st);
	}
	tt_arena_destroy(a);
}

#define TENSOR(name, at, end) "\"" name "\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[" #at "," #end "]}"

void fuzz_seeds(void)
{
	fuzz_seed_text("{\"metadata\":{\"total_size\":24},\"weight_map\":{\"x\":\"a.safetensors\",\"y\":\"a.safetensors\",\"z\":\"b.safetensors\"}}" FUZZ_CUT
		       "{" TENSOR("x", 0, 8) "," TENSOR("y", 8, 16) "}" FUZZ_CUT "{" TENSOR("z", 0, 8) "}");
	fuzz_seed_text("{\"weight_map\":{\"z\":\"c.safetensors\"}}" FUZZ_CUT FUZZ_CUT FUZZ_CUT "{" TENSOR("z", 0, 8) "," TENSOR("more", 8, 16)
		       ",\"__metadata__\":{\"format\":\"pt\"}}");
	fuzz_seed_text("{\"weight_map\":{}}");
	fuzz_seed_text("{\"weight_map\":{\"x\":\"./a.safetensors\"}}" FUZZ_CUT "{" TENSOR("x", 0, 8) "}");
	fuzz_seed_text("{\"weight_map\":{\"x\":\"a.safetensors\"}}" FUZZ_CUT "{" TENSOR("x", 0, 8) "}");
	static const char *const words[] = { FUZZ_CUT, "\"weight_map\":{", "\"metadata\":{", "\"a.safetensors\"", "\"b.safetensors\"", "\"c.safetensors\"",
					     "\"..\"", "\"../a\"", "\".\"", "./", "/", "\"model.safetensors.index.json\"", "\"x\":", "\"y\":", "\"z\":", "null", "[]",
					     "\"dtype\":\"F32\"", "\"data_offsets\":[", "\"shape\":[", "{", "}" };
	for (int i = 0; i < TT_COUNT(words); i++)
		fuzz_word(words[i]);
}
