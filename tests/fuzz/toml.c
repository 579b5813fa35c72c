/* toml.c: the TOML parser, on any bytes. A tree that it gives is walked whole; strings must survive being quoted and read again. */
#include "fuzz.h"

#include "config/toml.h"

static void check_string(tt_arena *a, const char *s, size_t n)
{
	FUZZ_CHECK(s[n] == 0, "a string of %zu bytes is not NUL-terminated", n);
	tt_buf b = { 0 };
	tt_toml_quote(&b, s, n);
	tt_toml_node *v;
	FUZZ_CHECK(tt_toml_parse_value(a, "quoted", b.s, b.n, &v) == TT_OK, "%s: %s", b.s, tt_error_text());
	FUZZ_CHECK(v->kind == TT_TOML_STRING && v->as.string.n == n && !memcmp(v->as.string.s, s, n), "%s is read as another string", b.s);
	tt_buf_fini(&b);
}

static void walk(tt_arena *a, const tt_toml_node *v)
{
	FUZZ_CHECK(v->depth <= TT_TOML_MAX_DEPTH && v->line >= 1 && v->column >= 1, "depth %d at %d:%d", v->depth, v->line, v->column);
	if (v->kind == TT_TOML_STRING)
		check_string(a, v->as.string.s, v->as.string.n);
	if (v->kind != TT_TOML_TABLE && v->kind != TT_TOML_ARRAY)
		return;
	int64_t n = 0;
	for (const tt_toml_node *c = v->as.list.first; c; c = c->next, n++) {
		FUZZ_CHECK((c->key != NULL) == (v->kind == TT_TOML_TABLE), "a key in an array, or none in a table");
		FUZZ_CHECK(c->depth == v->depth + 1, "depth %d below %d", c->depth, v->depth);
		FUZZ_CHECK(c->next || c == v->as.list.last, "the last child is another");
		if (c->key) {
			check_string(a, c->key, c->key_n);
			FUZZ_CHECK(strlen(c->key) != c->key_n || tt_toml_get(v, c->key) == c, "two keys \"%s\", or one that is not found", c->key);
		}
		walk(a, c);
	}
	FUZZ_CHECK(n == v->as.list.n, "%lld children, counted %lld", (long long)v->as.list.n, (long long)n);
}

void fuzz_one(const uint8_t *p, size_t n)
{
	tt_arena *a = tt_arena_create("fuzz");
	tt_toml_node *root;
	if (tt_toml_parse(a, "f.toml", (const char *)p, n, &root) == TT_OK) {
		tt_buf json = { 0 };
		tt_toml_to_test_json(root, &json);
		tt_buf_fini(&json);
		walk(a, root);
	} else {
		FUZZ_CHECK(!strncmp(tt_error_text(), "f.toml:", 7), "an error without its place: %s", tt_error_text());
	}
	if (tt_toml_parse_value(a, "f.toml", (const char *)p, n, &root) == TT_OK)
		walk(a, root);
	tt_arena_destroy(a);
}

void fuzz_seeds(void)
{
	static const char *const texts[] = {
		"a = 1\nb.c.d = 0x1F\n\"q k\".'x' = 0o17\n[t]\nx = 0b101\n[t.u]\ny = -1_000\n[[arr]]\nn = 1\n[[arr]]\nn = 2\n[arr.sub]\nz = +99\n",
		"f = [1.0, 1e10, -1.5E-3, inf, -inf, nan, 1_0.0_1]\ns = \"\\u00e9\\U0001F600\\t\\e\\\\\"\nl = 'c:\\x'\n",
		"m = \"\"\"\nfirst \\\n   second\n\"\"\\\"\"\"\"\"\nr = '''\nraw ''here'''''\n",
		"d = [1979-05-27T07:32:00Z, 1979-05-27 00:32:00.999999-07:00, 1979-05-27T07:32:00, 1979-05-27, 07:32:00.5]\n",
		"i = {a = 1, b = {c = [1, {d = 2}]}, \"e f\".g = true}\nn = [[1, 2], [\"a\", false], # comment\n]\r\n",
		"[a.b.c]\n[a]\nd = 1\n[a.b]\ne = 2\n\"\" = \"empty\"\n\"\\u0000\" = '\t'\n",
		"[1, [2, 'x'], {a = nan}]", "1979-05-27T07:32:00.123456789012Z", "9223372036854775807", "-9223372036854775808",
	};
	static const char *const words[] = {
		"[[", "]]", "\"\"\"", "'''", "\\u0041", "\\U00010FFFF", "\\\n", "\r\n", "0x", "0o", "0b", "inf", "nan", "true", "false", "1e308",
		"2024-02-29", "23:59:60", "T00:00:00", "+23:59", ".999999999", "\xef\xbb\xbf", "\xf4\x8f\xbf\xbf", " = ", "{a=1}", "[a.b]\n", "_",
	};
	for (int i = 0; i < TT_COUNT(texts); i++)
		fuzz_seed_text(texts[i]);
	for (int i = 0; i < TT_COUNT(words); i++)
		fuzz_word(words[i]);
	fuzz_seed_files("", "configs/*.toml", 8192);
}
