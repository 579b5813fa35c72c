/* config: the TOML parser, the keys and what they may be, flags, aliases, the printed config and its reference. */
#define _GNU_SOURCE
#include "test.h"

#include <dirent.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "config/keys.h"

/* ---- TOML ---------------------------------------------------------------------------------------------------------- */

static void toml_values(tt_test *t)
{
	static const struct {
		const char *text, *json;
	} CASES[] = {
		{"", "{}"},
		{"\xef\xbb\xbf" "a = 1", "{\"a\": {\"type\": \"integer\", \"value\": \"1\"}}"},
		{"a.b = -0x", NULL},
		{"a = 0x7fffffffffffffff", "{\"a\": {\"type\": \"integer\", \"value\": \"9223372036854775807\"}}"},
		{"a = -9223372036854775808", "{\"a\": {\"type\": \"integer\", \"value\": \"-9223372036854775808\"}}"},
		{"a = 1_000.5e-1", "{\"a\": {\"type\": \"float\", \"value\": \"100.05\"}}"},
		{"a = -inf", "{\"a\": {\"type\": \"float\", \"value\": \"-inf\"}}"},
		{"a = \"\"\"\r\nx \\ \n\n  y\"\"\"\"\"", "{\"a\": {\"type\": \"string\", \"value\": \"x y\\\"\\\"\"}}"},
		{"a = '\\u00e9'", "{\"a\": {\"type\": \"string\", \"value\": \"\\\\u00e9\"}}"},
		{"a = \"\\u00e9\\U0001F600\\u0000\"",
		 "{\"a\": {\"type\": \"string\", \"value\": \"\xc3\xa9\xf0\x9f\x98\x80\\u0000\"}}"},
		{"a = [1, [true,], # c\n]", "{\"a\": [{\"type\": \"integer\", \"value\": \"1\"}, "
					     "[{\"type\": \"bool\", \"value\": \"true\"}]]}"},
		{"a = {b.c = 1, b.d = 07:32:00.5}",
		 "{\"a\": {\"b\": {\"c\": {\"type\": \"integer\", \"value\": \"1\"}, "
		 "\"d\": {\"type\": \"time-local\", \"value\": \"07:32:00.5\"}}}}"},
		{"a = 2024-02-29 23:59:60-01:30",
		 "{\"a\": {\"type\": \"datetime\", \"value\": \"2024-02-29T23:59:60-01:30\"}}"},
		{"a = 2023-02-29", NULL},
		{"a = 1900-02-29", NULL},
		{"a = 2000-02-29", "{\"a\": {\"type\": \"date-local\", \"value\": \"2000-02-29\"}}"},
		{"[a.b]\n[a]\n[[a.c]]\n[a.c.d]\n[[a.c]]", "{\"a\": {\"b\": {}, \"c\": [{\"d\": {}}, {}]}}"},
		{"[a]\nb.c = 1\n[a.b.d]", "{\"a\": {\"b\": {\"c\": {\"type\": \"integer\", \"value\": \"1\"}, \"d\": {}}}}"},
	};
	for (int i = 0; i < TT_COUNT(CASES); i++) {
		tt_toml_node *root;
		tt_status s = tt_toml_parse(t->arena, "t", CASES[i].text, strlen(CASES[i].text), &root);
		if (CASES[i].json == NULL) {
			TT_CHECK_MSG(t, s == TT_ERR_FORMAT, "accepted: %s", CASES[i].text);
			continue;
		}
		if (!TT_CHECK_OK(t, s))
			continue;
		tt_buf b = {0};
		tt_toml_to_test_json(root, &b);
		TT_CHECK_STR(t, b.s, CASES[i].json);
		tt_buf_fini(&b);
	}
}

static void toml_errors(tt_test *t)
{
	static const struct {
		const char *text, *error;
	} CASES[] = {
		{"a = 1\nb = 'x", "t:2:5: this string is never closed"},
		{"a = \"x\nb = 1", "t:1:5: this string is not closed on its line"},
		{"a = \"\"\"x\n", "t:1:5: this string is never closed"},
		{"a = yes", "t:1:5: invalid value: yes (strings need quotes)"},
		{"a = ", "t:1:5: expected a value, got the end of the file"},
		{"a 1", "t:1:3: expected '=' after the key a, got '1'"},
		{"\xc3\xa4 = 1", "t:1:1: expected a key, got '\xc3\xa4'"},
		{"\"\xc3\xa4\" = 1 x", "t:1:9: expected the end of the line after the value, got 'x'"},
		{"a = \"\\q\"", "t:1:6: unknown escape: backslash and 'q' (for a backslash itself write two)"},
		{"a = \"\\ud800\"", "t:1:6: the escape \\ud800 is no Unicode character"},
		{"a = \"\x01\"", "t:1:6: control character U+0001 in a string: write it as an escape in a \"...\" string"},
		{"# \x7f", "t:1:3: control character U+007F in a comment"},
		{"a = 1\n\xed\xa0\x80", "t:2:1: byte 0xed is not valid UTF-8 here"},
		{"a = 9223372036854775808", "t:1:5: 9223372036854775808 does not fit an integer of 64 bits"},
		{"a = 1e999", "t:1:5: 1e999 does not fit a double"},
		{"a = 0_1", "t:1:5: invalid value: 0_1 has a leading zero"},
		{"a = 2024-13-01", "t:1:5: invalid date or time: 2024-13-01"},
		{"a = 1\na = 2", "t:2:1: a is already defined (line 1)"},
		{"[a]\n[a]", "t:2:1: a is already defined (line 1)"},
		{"a = {b = 1}\n[a.c]", "t:2:1: a is an inline table given in full (line 1); a header cannot add to it"},
		{"a = []\n[[a]]", "t:2:1: a is already defined as an array (line 1), not as an array of [[tables]]"},
		{"[a.b]\n[a]\nb.c = 1", "t:3:1: the table b is already defined (line 1); dotted keys cannot add to it"},
		{"a = {b = 1,}", "t:1:12: expected a key, got '}'"},
		{"a = {b = 1\n}", "t:1:11: expected ',' or '}' in the inline table, got the end of the line (an inline "
				  "table stays on one line)"},
		{"a = [1 2]", "t:1:8: expected ',' or ']' in the array, got '2'"},
		{"[a", "t:1:3: expected ']' to close the header, got the end of the file"},
		{"a = 1\r", "t:1:6: expected the end of the line after the value, got control character U+000D"},
	};
	for (int i = 0; i < TT_COUNT(CASES); i++) {
		tt_toml_node *root = NULL;
		tt_status s = tt_toml_parse(t->arena, "t", CASES[i].text, strlen(CASES[i].text), &root);
		TT_CHECK_MSG(t, s == TT_ERR_FORMAT && root == NULL, "status %d for %s", s, CASES[i].text);
		TT_CHECK_STR(t, tt_error_text(), CASES[i].error);
	}
}

static void toml_places(tt_test *t)
{
	const char *text = "x = 1\n'\xc3\xa4' . b = [ 1,\n\t{c = \"\xe2\x82\xac\", d = 2}]\n";
	tt_toml_node *root;
	if (!TT_CHECK_OK(t, tt_toml_parse(t->arena, "t", text, strlen(text), &root)))
		return;
	const tt_toml_node *b = tt_toml_get(tt_toml_get(root, "\xc3\xa4"), "b");
	TT_CHECK_STR(t, tt_toml_where_key(t->arena, b), "t:2:7");
	TT_CHECK_STR(t, tt_toml_where(t->arena, b), "t:2:11");
	const tt_toml_node *c = b->as.list.last;
	TT_CHECK_STR(t, tt_toml_where(t->arena, c), "t:3:2");
	TT_CHECK_STR(t, tt_toml_where_key(t->arena, tt_toml_get(c, "d")), "t:3:12");
	TT_CHECK_STR(t, tt_toml_where(t->arena, tt_toml_get(c, "d")), "t:3:16");
	TT_CHECK(t, tt_toml_get(c, "e") == NULL);
}

static tt_status parse_nested(tt_test *t, const char *before, const char *piece, const char *after, int n)
{
	tt_buf b = {0};
	tt_buf_str(&b, before);
	for (int i = 0; i < n; i++)
		tt_buf_str(&b, piece);
	tt_buf_str(&b, after);
	tt_toml_node *root;
	tt_status s = tt_toml_parse(t->arena, "t", b.s, b.n, &root);
	tt_buf_fini(&b);
	return s;
}

static void toml_limits(tt_test *t)
{
	/* The value of a is at depth 1, each bracket adds one; unclosed, so the deepest legal one fails later. */
	TT_CHECK_FAILS(t, parse_nested(t, "a = ", "[", "", 100), TT_ERR_FORMAT, "this array is never closed");
	TT_CHECK_FAILS(t, parse_nested(t, "a = ", "[", "", 101), TT_ERR_FORMAT, "t:1:105: nested deeper than 100 levels");
	TT_CHECK_FAILS(t, parse_nested(t, "a = ", "{a=", "", 5000), TT_ERR_FORMAT, "nested deeper than 100 levels");
	TT_CHECK_OK(t, parse_nested(t, "", "a.", "a = 1", 99));
	TT_CHECK_FAILS(t, parse_nested(t, "", "a.", "a = 1", 100), TT_ERR_FORMAT, "nested deeper than 100 levels");
	TT_CHECK_FAILS(t, parse_nested(t, "[", "a.", "a]\nb.c = 1", 99), TT_ERR_FORMAT, "nested deeper than 100 levels");
	TT_CHECK_FAILS(t, parse_nested(t, "[", "a.", "a]\n[[x]]\nb.c = {d.e = [1,2,[3]]", 99), TT_ERR_FORMAT, "'}'");
	/* Many keys of one table: time in proportion. */
	tt_buf b = {0};
	for (int i = 0; i < 50000; i++)
		tt_buf_printf(&b, "k%d = %d\n", i, i);
	tt_buf_str(&b, "k49999 = 1\n");
	tt_toml_node *root;
	TT_CHECK_FAILS(t, tt_toml_parse(t->arena, "t", b.s, b.n, &root), TT_ERR_FORMAT,
		       "t:50001:1: k49999 is already defined (line 50000)");
	tt_buf_fini(&b);
}

/* ---- the public suite ------------------------------------------------------------------------------------------------- */

#define SUITE_FOLDER "/usr/share/gocode/src/github.com/BurntSushi/toml/internal/toml-test/tests"

/* A time without trailing zeros of its fraction, +00:00 as Z. */
static const char *plain_time(tt_arena *a, const char *s)
{
	char *out = tt_arena_strdup(a, s);
	char *dot = strchr(out, '.');
	if (dot != NULL) {
		char *end = dot + 1 + strspn(dot + 1, "0123456789"), *last = end;
		while (last[-1] == '0')
			last--;
		if (last[-1] == '.')
			last--;
		memmove(last, end, strlen(end) + 1);
	}
	size_t n = strlen(out);
	if (n > 6 && strcmp(out + n - 6, "+00:00") == 0)
		memcpy(out + n - 6, "Z", 2);
	return out;
}

static bool same_json(tt_arena *a, const json_t *got, const json_t *want)
{
	if (json_typeof(got) != json_typeof(want))
		return false;
	if (json_is_array(got)) {
		bool same = json_array_size(got) == json_array_size(want);
		for (size_t i = 0; same && i < json_array_size(got); i++)
			same = same_json(a, json_array_get(got, i), json_array_get(want, i));
		return same;
	}
	if (!json_is_object(got))
		return json_equal(got, want);
	const char *type = json_string_value(json_object_get(want, "type"));
	const char *value = json_string_value(json_object_get(want, "value"));
	if (type != NULL && value != NULL && json_object_size(want) == 2) {
		const char *mine = json_string_value(json_object_get(got, "value"));
		if (mine == NULL || !json_equal(json_object_get(got, "type"), json_object_get(want, "type")))
			return false;
		if (strcmp(type, "float") == 0) {
			double x = strtod(mine, NULL), y = strtod(value, NULL);
			return x == y || (isnan(x) && isnan(y));
		}
		if (strncmp(type, "datetime", 8) == 0 || strncmp(type, "time", 4) == 0)
			return strcmp(plain_time(a, mine), plain_time(a, value)) == 0;
		return json_equal(got, want);
	}
	bool same = json_object_size(got) == json_object_size(want);
	const char *key;
	json_t *child;
	json_object_foreach((json_t *)got, key, child) {
		const json_t *other = json_object_get(want, key);
		same = same && other != NULL && same_json(a, child, other);
	}
	return same;
}

typedef struct score {
	int valid, valid_right, invalid, invalid_right;
} score;

static bool valid_case_right(tt_test *t, const char *path, const tt_toml_node *root)
{
	tt_buf b = {0};
	tt_toml_to_test_json(root, &b);
	json_t *got = json_loadb(b.s, b.n, JSON_ALLOW_NUL, NULL);
	json_t *want = json_load_file(tt_arena_printf(t->arena, "%.*sjson", (int)strlen(path) - 4, path),
				      JSON_ALLOW_NUL, NULL);
	bool right = got != NULL && want != NULL && same_json(t->arena, got, want);
	json_decref(got);
	json_decref(want);
	tt_buf_fini(&b);
	return right;
}

static void suite_folder(tt_test *t, const char *folder, score *sc)
{
	struct dirent **names;
	int n = scandir(folder, &names, NULL, alphasort);
	for (int i = 0; i < n; i++) {
		const char *name = names[i]->d_name;
		const char *path = tt_arena_printf(t->arena, "%s/%s", folder, name);
		struct stat st;
		size_t len = strlen(path);
		if (name[0] != '.' && stat(path, &st) == 0 && S_ISDIR(st.st_mode)) {
			suite_folder(t, path, sc);
		} else if (len > 5 && strcmp(path + len - 5, ".toml") == 0) {
			bool valid = strncmp(path, SUITE_FOLDER "/valid/", strlen(SUITE_FOLDER "/valid/")) == 0;
			char *text;
			size_t bytes;
			tt_toml_node *root;
			if (!TT_CHECK_OK(t, tt_file_read(t->arena, path, &text, &bytes)))
				continue;
			tt_status s = tt_toml_parse(t->arena, path, text, bytes, &root);
			bool right = valid ? s == TT_OK && valid_case_right(t, path, root) : s == TT_ERR_FORMAT;
			*(valid ? &sc->valid : &sc->invalid) += 1;
			*(valid ? &sc->valid_right : &sc->invalid_right) += right;
			TT_CHECK_MSG(t, right, "%s: %s", path, s == TT_OK ? "accepted, with another value" : tt_error_text());
		}
		free(names[i]);
	}
	if (n >= 0)
		free(names);
}

static void toml_suite(tt_test *t)
{
	struct stat st;
	if (stat(SUITE_FOLDER, &st) != 0)
		TT_SKIP(t, "the public cases are not installed (package golang-github-burntsushi-toml-dev)");
	score sc = {0};
	suite_folder(t, SUITE_FOLDER, &sc);
	printf("toml-test: %d of %d valid cases, %d of %d invalid cases\n", sc.valid_right, sc.valid, sc.invalid_right,
	       sc.invalid);
	TT_CHECK(t, sc.valid > 0 && sc.invalid > 0);
	/* The comparison itself must see a difference. */
	json_t *a = json_loads("{\"x\": {\"type\": \"float\", \"value\": \"1.5\"}}", 0, NULL);
	json_t *b = json_loads("{\"x\": {\"type\": \"float\", \"value\": \"1.50\"}}", 0, NULL);
	json_t *c = json_loads("{\"x\": {\"type\": \"float\", \"value\": \"1.6\"}}", 0, NULL);
	json_t *d = json_loads("{\"x\": {\"type\": \"float\", \"value\": \"1.5\"}, \"y\": {}}", 0, NULL);
	TT_CHECK(t, same_json(t->arena, a, b) && !same_json(t->arena, a, c) && !same_json(t->arena, a, d));
	json_decref(a);
	json_decref(b);
	json_decref(c);
	json_decref(d);
}

/* ---- random bytes ------------------------------------------------------------------------------------------------------- */

static uint64_t next_random(uint64_t *s)
{
	*s ^= *s << 13;
	*s ^= *s >> 7;
	*s ^= *s << 17;
	return *s;
}

/* Valid texts that reach every rule; mutations start here. */
static const char *const SEEDS[] = {
	"a.\"b c\".'d' = [1, 0x1f, 0b1, 0o7, +1_0.5e-1_0, inf, -nan] # \xc3\xa4\r\n[t.u]\nx = {y = {z.w = 'l'}}\n[[q]]\n[[q.r]]\n",
	"s = \"\\t\\u00e9\\U0001F600\\e\"\nm = \"\"\"\nx \\\n  y\"\"\"\"\"\nl = '''\n'q' '''\n",
	"a = 1979-05-27T07:32:00.999-07:00\nb = 1979-05-27 07:32:00\nc = 1979-05-27\nd = 07:32:00.5\ne = 2024-02-29\n",
	"[training]\nsteps = 20\n[data]\npaths = [\"a\", \"b\"]\n[[optimizer.param_groups]]\npattern = \"x\"\n[validator]\nfreq = 3\n",
};

/* Changes a few bytes: overwrites, removes, doubles or splices. The result is on the heap. */
static tt_buf mutate(uint64_t *rng)
{
	const char *seed = SEEDS[next_random(rng) % (unsigned)TT_COUNT(SEEDS)];
	tt_buf b = {0};
	tt_buf_str(&b, seed);
	static const char LIKELY[] = "[]{}\"'=.,#\\\n\r\t 0123456789-+_:eETZxobu\x00\x7f\x80\xc3\xe2\xf0\xff";
	for (uint64_t i = 0, n = 1 + next_random(rng) % 3; i < n && b.n > 0; i++) {
		size_t at = next_random(rng) % b.n, len = next_random(rng) % 8;
		size_t most = TT_MIN(len, b.n - at);
		switch (next_random(rng) % 4) {
		case 0: b.s[at] = LIKELY[next_random(rng) % (sizeof LIKELY - 1)]; break;
		case 1: b.s[at] = (char)next_random(rng); break;
		case 2:
			memmove(b.s + at, b.s + at + most, b.n - at - most);
			b.n -= most;
			break;
		case 3: tt_buf_add(&b, seed + next_random(rng) % (strlen(seed) - 8), len); break;
		}
	}
	return b;
}

static void toml_fuzz(tt_test *t)
{
	uint64_t rng = t->seed | 1;
	int accepted = 0, rejected = 0, n = t->tier == TT_TIER_QUICK ? 100000 : 1000000;
	for (int i = 0; i < n; i++) {
		tt_mark m = tt_arena_push(t->arena);
		tt_buf b = mutate(&rng);
		/* Exactly as long as the text, so that a sanitizer sees the first byte read beyond it. */
		char *text = malloc(b.n > 0 ? b.n : 1);
		memcpy(text, b.s != NULL ? b.s : "", b.n);
		tt_toml_node *root;
		tt_status s = tt_toml_parse(t->arena, "t", text, b.n, &root);
		int line, column, end = 0;
		if (s == TT_OK) {
			accepted++;
			tt_buf json = {0};
			tt_toml_to_test_json(root, &json);
			json_t *j = json_loadb(json.s, json.n, JSON_ALLOW_NUL, NULL);
			TT_CHECK_MSG(t, j != NULL, "no JSON: %s", json.s);
			json_decref(j);
			tt_buf_fini(&json);
			tt_config *cfg;
			s = tt_config_load_text(t->arena, "t", text, b.n, 0, NULL, &cfg);
			TT_CHECK(t, s == TT_OK || s == TT_ERR_USAGE);
		} else {
			rejected++;
			TT_CHECK_MSG(t, s == TT_ERR_FORMAT && sscanf(tt_error_text(), "t:%d:%d: %n", &line, &column, &end) == 2 &&
					    end > 0, "error \"%s\"", tt_error_text());
		}
		for (const char *e = s == TT_OK ? "" : tt_error_text(); *e != '\0'; e++)
			TT_CHECK_MSG(t, ((unsigned char)*e >= 0x20 && *e != 0x7f) || !strncmp(e, "\n  ", 3), /* of a list */ "byte %d in an error", *e);
		free(text);
		tt_buf_fini(&b);
		tt_arena_pop(t->arena, m);
		if (t->failures > 10)
			return;
	}
	/* Both ways must be walked often, or the mutations are too tame or too wild. */
	TT_CHECK_MSG(t, accepted > n / 20 && rejected > n / 4, "%d accepted, %d rejected", accepted, rejected);
}

static void flag_fuzz(tt_test *t)
{
	static const char *const FLAGS[] = {
		"--training.steps=20", "--data.paths=a,b,,c", "--data.exclude=[\"x\", 'y']", "--validation.enable",
		"--optimizer.param_groups=[{pattern = \"a\", lr_scale = 1}]", "--model.mlp_bias=auto", "--optimizer.lr=1e-3",
		"--validator.freq=5", "--debug.numerics=\"exact\"", "--training.global_batch_size=8",
	};
	uint64_t rng = t->seed | 1;
	int accepted = 0, rejected = 0, n = t->tier == TT_TIER_QUICK ? 10000 : 100000;
	for (int i = 0; i < n && t->failures <= 10; i++) {
		tt_mark m = tt_arena_push(t->arena);
		char *flag = strdup(FLAGS[next_random(&rng) % (unsigned)TT_COUNT(FLAGS)]);
		for (uint64_t k = next_random(&rng) % 3; k > 0; k--)
			flag[next_random(&rng) % strlen(flag)] = (char)(1 + next_random(&rng) % 255);
		tt_config *cfg;
		tt_status s = tt_config_load(t->arena, NULL, 1, (const char *const *)&flag, &cfg);
		TT_CHECK_MSG(t, s == TT_OK || (s == TT_ERR_USAGE && tt_error_text()[0] != '\0'), "%s: status %d", flag, s);
		*(s == TT_OK ? &accepted : &rejected) += 1;
		free(flag);
		tt_arena_pop(t->arena, m);
	}
	TT_CHECK_MSG(t, accepted > n / 10 && rejected > n / 10, "%d accepted, %d rejected", accepted, rejected);
}

/* ---- keys ------------------------------------------------------------------------------------------------------------------ */

static const char *printed(tt_arena *a, const tt_config *cfg)
{
	tt_buf b = {0};
	tt_config_print(cfg, &b);
	const char *s = tt_arena_strndup(a, b.s, b.n);
	tt_buf_fini(&b);
	return s;
}

static tt_status load_text(tt_test *t, const char *text, const char *flag, tt_config **out)
{
	return tt_config_load_text(t->arena, "f.toml", text, strlen(text), flag != NULL, &flag, out);
}

static void key_rows(tt_test *t)
{
	for (int i = 0; i < tt_keys_n; i++) {
		const tt_key *k = &tt_keys[i];
		TT_CHECK_INT(t, tt_key_find(k->section, k->name), i);
		size_t n = strlen(k->doc);
		TT_CHECK_MSG(t, n > 5 && k->doc[n - 1] == '.', "%s: its doc is no sentence", k->full);
		TT_CHECK_MSG(t, k->type != TT_KEY_INT || k->i_least <= k->i_most, "%s: empty range", k->full);
		TT_CHECK_MSG(t, k->type != TT_KEY_FLOAT || k->f_least < k->f_most, "%s: empty range", k->full);
	}
	int n;
	const tt_alias *alias = tt_alias_list(&n);
	for (int i = 0; i < n; i++) {
		const char *dot = strchr(alias[i].now != NULL ? alias[i].now : "x.*", '.');
		if (alias[i].now == NULL) {
			TT_CHECK_MSG(t, alias[i].advice != NULL, "%s has no advice", alias[i].old);
		} else if (strcmp(dot, ".*") != 0) {
			const char *section = tt_arena_strndup(t->arena, alias[i].now, (size_t)(dot - alias[i].now));
			TT_CHECK_MSG(t, tt_key_find(section, dot + 1) >= 0, "no key %s", alias[i].now);
		}
	}
}

static void defaults(tt_test *t)
{
	tt_config *cfg;
	if (!TT_CHECK_OK(t, tt_config_load(t->arena, NULL, 0, NULL, &cfg)))
		return;
	TT_CHECK_INT(t, cfg->training.steps, 10000);
	TT_CHECK(t, cfg->optimizer.lr == 8e-4 && cfg->optimizer.beta2 == 0.95 && cfg->lr_scheduler.decay_ratio == -1);
	TT_CHECK(t, cfg->activation_checkpoint.mode == TT_AC_NONE && cfg->model.tie_word_embeddings == TT_TRI_AUTO);
	TT_CHECK_STR(t, cfg->model.flavor, "debugmodel");
	TT_CHECK_STR(t, tt_cfg_rope_scaling_word(cfg->model.rope_scaling), "auto");
	TT_CHECK_INT(t, cfg->data.paths.n, 0);
	TT_CHECK_INT(t, cfg->warnings.n, 0);
	TT_CHECK(t, tt_config_source(cfg, "training.steps") == NULL);
	/* A short run: all of it is warmup. */
	const char *flag = "--training.steps=20";
	if (TT_CHECK_OK(t, tt_config_load(t->arena, NULL, 1, &flag, &cfg)))
		TT_CHECK_INT(t, cfg->lr_scheduler.warmup_steps, 20);
}

/* A file of another program's: all that is to be mended in one go, each with its line, a section that is refused once. */
static void many_errors(tt_test *t)
{
	tt_config *cfg;
	static const char text[] = "[job]\nprint_args = true\n[metrics]\nsave_tb_folder = \"tb\"\nenable_wandb = false\n[checkpoint]\nasync_mode = \"async_with_pinned_mem\"\n"
		"last_save_in_hf = false\n[float8]\nenable_fsdp_float8_all_gather = false\nrecipe = \"x\"\n[quantize.linear.float8]\nrecipe = \"x\"\n[training]\nstpes = 5\n[trainng]\nx = 1\n";
	const char *flag = "--job.config_file=x";
	TT_CHECK_FAILS(t, tt_config_load_text(t->arena, "f.toml", text, sizeof text - 1, 1, &flag, &cfg), TT_ERR_USAGE, "9 keys are wrong:\n  f.toml:4:1: there is no metrics.save_tb_folder here: ");
	static const char *const said[] = { "\n  f.toml:5:1: there is no metrics.enable_wandb here", "\n  f.toml:7:14: checkpoint.async_mode = \"async_with_pinned_mem\" is none of ", "; write \"async\"",
		"\n  f.toml:8:1: there is no checkpoint.last_save_in_hf here", "\n  f.toml:10:1: there is no float8.enable_fsdp_float8_all_gather here", "there is no quantize.linear here",
		"unknown key training.stpes; did you mean training.steps?", "unknown section [trainng]; did you mean [training]?",
		"--job.config_file=x: there is no job.config_file here: the file is the first argument: titan train FILE [FLAGS]" };
	for (int i = 0; i < TT_COUNT(said); i++)
		TT_CHECK_MSG(t, strstr(tt_error_text(), said[i]), "\"%s\" is not in: %s", said[i], tt_error_text());
	tt_buf b = { 0 };
	tt_buf_str(&b, "[training]\n");
	for (int i = 0; i < 100; i++)
		tt_buf_printf(&b, "zz%d = 1\n", i);
	TT_CHECK_FAILS(t, tt_config_load_text(t->arena, "f.toml", b.s, b.n, 0, NULL, &cfg), TT_ERR_USAGE, "100 keys are wrong:\n");
	TT_CHECK_MSG(t, strstr(tt_error_text(), "\n  and 70 more"), "%s", tt_error_text());
	tt_buf_fini(&b);
}

static void key_errors(tt_test *t)
{
	static const struct {
		const char *text, *flag, *error;
	} CASES[] = {
		{"[training]\nstpes = 5", NULL, "f.toml:2:1: unknown key training.stpes; did you mean training.steps?"},
		{"[optimizer]\nlr = 1\n steps = 5", NULL, "f.toml:3:2: unknown key optimizer.steps; did you mean training.steps?"},
		{"[optimizer]\nzzzzzzzzz = 5", NULL,
		 "f.toml:2:1: unknown key optimizer.zzzzzzzzz (`titan config --doc` lists all)"},
		{"[trainng]\nsteps = 5", NULL, "f.toml:1:2: unknown section [trainng]; did you mean [training]?"},
		{"[zzzzzzzzzzz]", NULL, "f.toml:1:2: unknown section [zzzzzzzzzzz] (`titan config --doc` lists all)"},
		{"[moe]\nenable = true", NULL,
		 "f.toml:2:1: unknown key moe.enable: [moe] has no keys in this version"},
		{"[x]\n[moe]", NULL, "f.toml:1:2: unknown section [x] (`titan config --doc` lists all)"},
		{"[training]\n\"a\\u0000b\" = 1", NULL, "f.toml:2:1: a key may not hold a NUL character"},
		{"[training]\n\"a\\nb\" = 1", NULL,
		 "f.toml:2:1: unknown key training.\"a\\u000ab\" (`titan config --doc` lists all)"},
		{"steps = 5", NULL, "f.toml:1:1: the key steps stands outside any section; did you mean training.steps?"},
		{"training = 5", NULL, "f.toml:1:1: training wants to be a section, [training], got an integer"},
		{"[training]\nsteps = 5.5", NULL, "f.toml:2:9: training.steps wants an integer, got a float (5.5)"},
		{"[training]\nsteps = \"5\"", NULL, "f.toml:2:9: training.steps wants an integer, got a string \"5\""},
		{"[optimizer]\nlr = true", NULL, "f.toml:2:6: optimizer.lr wants a float, got a boolean (true)"},
		{"[optimizer]\nnesterov = 1", NULL, "f.toml:2:12: optimizer.nesterov wants a boolean, got an integer (1)"},
		{"[model]\nflavor = 8", NULL, "f.toml:2:10: model.flavor wants a string, got an integer (8)"},
		{"[model]\nmlp_bias = 1", NULL, "f.toml:2:12: model.mlp_bias wants a boolean or \"auto\", got an integer (1)"},
		{"[data]\npaths = \"x\"", NULL, "f.toml:2:9: data.paths wants an array of strings, got a string \"x\""},
		{"[data]\npaths = [\"x\", 1]", NULL, "f.toml:2:9: data.paths[1] wants a string, got an integer (1)"},
		{"[model]\nflavor = \"a\\u0000b\"", NULL, "f.toml:2:10: model.flavor may not hold a NUL character"},
		{"[training]\nsteps = 0", NULL, "f.toml:2:9: training.steps = 0 is out of range: at least 1"},
		{"[hardware]\nthreads = 5000", NULL, "f.toml:2:11: hardware.threads = 5000 is out of range: 1 to 4096 (or 0)"},
		{"[training]\ncontext_length = 0", NULL,
		 "f.toml:2:18: training.context_length = 0 is out of range: 1 to 2147483647"},
		{"[training]\nloss_chunks = 65", NULL, "f.toml:2:15: training.loss_chunks = 65 is out of range: 1 to 64"},
		{"[model]\nrope_factor = 0.5", NULL,
		 "f.toml:2:15: model.rope_factor = 0.5 is out of range: in [1.0, 1e+09] (or 0.0)"},
		{"[optimizer]\nbeta1 = 1", NULL, "f.toml:2:9: optimizer.beta1 = 1.0 is out of range: in [0.0, 1.0)"},
		{"[optimizer]\nlr = nan", NULL, "f.toml:2:6: optimizer.lr = nan is out of range: in [0.0, inf)"},
		{"[optimizer]\nlr = inf", NULL, "f.toml:2:6: optimizer.lr = inf is out of range: in [0.0, inf)"},
		{"[training]\nmax_norm = 0", NULL, "f.toml:2:12: training.max_norm = 0.0 is out of range: in (0.0, inf]"},
		{"[lr_scheduler]\ndecay_ratio = -0.5", NULL,
		 "f.toml:2:15: lr_scheduler.decay_ratio = -0.5 is out of range: in [0.0, 1.0] (or -1.0)"},
		{"[checkpoint]\nfolder = \"a/../../b\"", NULL,
		 "f.toml:2:1: checkpoint.folder = \"a/../../b\" leads out of job.dump_folder, within which it lies"},
		{"[parallelism]\npipeline_parallel_degree = 2", NULL,
		 "f.toml:2:28: parallelism.pipeline_parallel_degree = 2 is out of range: 1 only; this version has no pipeline stages and no experts"},
		{"[optimizer]\nname = \"Adamw\"", NULL,
		 "f.toml:2:8: optimizer.name = \"Adamw\" is none of \"AdamW\", \"SGD\"; did you mean \"AdamW\"?"},
		{"[data]\nsequence = \"packed\"", NULL,
		 "f.toml:2:12: data.sequence = \"packed\" is none of \"document\", \"row\""},
		{"[activation_checkpoint]\nmode = \"most\"", NULL,
		 "f.toml:2:8: activation_checkpoint.mode = \"most\" is none of \"none\", \"selective\", \"full\", \"budget\""},
		{"[activation_checkpoint]\nmemory_budget = 0", NULL,
		 "f.toml:2:17: activation_checkpoint.memory_budget = 0.0 is out of range: in (0.0, 1.0]"},
		{"[[optimizer.param_groups]]\nlr_scale = 2", NULL,
		 "f.toml:1:13: optimizer.param_groups[0].pattern is missing"},
		{"[[optimizer.param_groups]]\npatern = \"x\"", NULL,
		 "f.toml:1:13: unknown key optimizer.param_groups[0].patern; did you mean pattern?"},
		{"[[optimizer.param_groups]]\npattern = \"x\"\n[[optimizer.param_groups]]\nlr_scale = -1", NULL,
		 "f.toml:3:13: optimizer.param_groups[1].lr_scale = -1.0 is out of range: in [0.0, inf)"},
		{"[training]\nmax_context_length = 5\ncontext_length = 6", NULL,
		 "f.toml:3:1: training.context_length and the key at f.toml:2:1 are one, training.context_length; keep one of "
		 "them"},
		{"[profiler]\nenable_profiling = 3", NULL, "f.toml:2:20: profiling.trace wants a boolean, got an integer (3)"},
		{"[parallelism]\nenable_async_tensor_parallel = true", NULL, "f.toml:2:1: there is no parallelism.enable_async_tensor_parallel here: exchanges run beside products "
		 "wherever nothing waits for them (--passes=-overlap: not); delete the key"},
		{"[comm]\nmode = \"fake_backend\"", NULL, "f.toml:2:1: there is no comm.mode here: titan plan runs nothing and takes any number of ranks; delete the key"},
		{"[training]\nglobal_batch_size = 8", NULL,
		 "f.toml:2:1: there is no training.global_batch_size here: write training.tokens_per_step = "
		 "global_batch_size * seq_len"},
		{"[training]\ntokens_per_step = 16384\ntokens_per_microbatch = 32768", NULL,
		 "f.toml:3:1: training.tokens_per_microbatch = 32768 is more than training.tokens_per_step = 16384"},
		{"[training]\ncontext_length = 65536", NULL,
		 "f.toml:2:1: training.tokens_per_step = 16384 is no multiple of training.context_length = 65536 (65536 would be)"},
		{"[training]\ntokens_per_step = 1000", NULL,
		 "f.toml:2:1: training.tokens_per_step = 1000 is no multiple of training.context_length = 2048 (2048 would be)"},
		{"[training]\ncontext_length = 128", "--training.tokens_per_step=1000",
		 "--training.tokens_per_step=1000: training.tokens_per_step = 1000 is no multiple of training.context_length = 128 (896 or 1024 would be)"},
		{"[training]\ntokens_per_step = 4096", "--training.context_length=100",
		 "--training.context_length=100: training.tokens_per_step = 4096 is no multiple of training.context_length = 100 (4000 or 4100 would be)"},
		{"[training]\ntokens_per_microbatch = 8192", "--training.tokens_per_step=4096",
		 "--training.tokens_per_step=4096: training.tokens_per_microbatch = 8192 is more than training.tokens_per_step = 4096"},
		{"[training]\ntokens_per_microbatch = 1024", NULL,
		 "f.toml:2:1: training.tokens_per_microbatch = 1024 is no multiple of training.context_length = 2048 (2048 would be)"},
		{"[validation]\nenable = true", NULL,
		 "f.toml:2:1: validation.enable is true, but neither validation.paths nor validation.fraction holds out a file"},
		{"[a\n", NULL, "f.toml:1:3: expected ']' to close the header, got the end of the line"},
		{"", "--training.stpes=5", "--training.stpes=5: unknown key training.stpes; did you mean training.steps?"},
		{"", "--trainng.steps=5", "--trainng.steps=5: unknown section [trainng]; did you mean [training]?"},
		{"", "--training.steps=abc",
		 "--training.steps=abc: training.steps wants an integer, got a string \"abc\""},
		{"", "--training.steps=0", "--training.steps=0: training.steps = 0 is out of range: at least 1"},
		{"", "--training.steps", "--training.steps: training.steps wants an integer: --training.steps=..."},
		{"", "--steps=5", "--steps=5: a config flag looks like --section.key=value; did you mean --training.steps=5?"},
		{"", "--zzzzzzz=5",
		 "--zzzzzzz=5: a config flag looks like --section.key=value (`titan config --doc` lists all keys)"},
		{"", "training.steps=5",
		 "training.steps=5: a config flag looks like --section.key=value (`titan config --doc` lists all keys)"},
		{"", "--data.paths=a\x9f", "--data.paths=a\x9f: the flag is not valid UTF-8"},
		{"", "--job.dump_folder=\xed\xa0\x80", "--job.dump_folder=\xed\xa0\x80: the flag is not valid UTF-8"},
		{"", "--data.paths=[1", "--data.paths=[1: the value is no TOML: --data.paths:1:1: this array is never closed"},
		{"", "--debug.dump=graph,garph",
		 "--debug.dump=graph,garph: debug.dump[1] = \"garph\" is none of \"graph\", \"program\", \"memory\"; did you mean "
		 "\"graph\"?"},
		{"", "--validator.freqq=1",
		 "--validator.freqq=1: unknown key validation.freqq; did you mean validation.freq?"},
	};
	for (int i = 0; i < TT_COUNT(CASES); i++) {
		tt_config *cfg = NULL;
		tt_status s = load_text(t, CASES[i].text, CASES[i].flag, &cfg);
		TT_CHECK_MSG(t, s == TT_ERR_USAGE || s == TT_ERR_FORMAT, "status %d for %s %s", s, CASES[i].text,
			     CASES[i].flag);
		TT_CHECK_MSG(t, cfg == NULL, "a config came out of an error");
		TT_CHECK_STR(t, tt_error_text(), CASES[i].error);
	}
	tt_config *cfg;
	TT_CHECK_FAILS(t, tt_config_load(t->arena, "/nowhere/x.toml", 0, NULL, &cfg), TT_ERR_IO, "/nowhere/x.toml");
}

static void flags(tt_test *t)
{
	const char *const all[] = {
		"--training.steps=7", "--training.steps=9", "--validation.enable", "--validation.paths=a/*.h,b",
		"--data.exclude=[\"x,y\", 'z']", "--optimizer.lr=1e-3", "--optimizer.weight_decay=0",
		"--model.flavor=bytes-5m", "--job.description=\"a \\\"b\\\"\"", "--job.dump_folder=a=b",
		"--model.mlp_bias=true", "--model.tie_word_embeddings", "--model.attention_bias=auto",
		"--training.max_norm=inf", "--debug.numerics=exact", "--data.repeat=false", "--lr_scheduler.warmup_steps=1",
		"--optimizer.param_groups=[{pattern = \"*norm*\", lr_scale = 0.5}, {pattern = \"x\"}]",
	};
	const char *text = "[training]\nsteps = 3\ncontext_length = 128\n";
	tt_config *c;
	if (!TT_CHECK_OK(t, tt_config_load_text(t->arena, "f.toml", text, strlen(text), TT_COUNT(all), all, &c)))
		return;
	TT_CHECK_INT(t, c->training.steps, 9);
	TT_CHECK_INT(t, c->training.context_length, 128);
	TT_CHECK_STR(t, tt_config_source(c, "training.steps"), "--training.steps=9");
	TT_CHECK_STR(t, tt_config_source(c, "training.context_length"), "f.toml:3:1");
	TT_CHECK(t, c->validation.enable && !c->data.repeat);
	TT_CHECK_INT(t, c->validation.paths.n, 2);
	TT_CHECK_STR(t, c->validation.paths.items[0], "a/*.h");
	TT_CHECK_STR(t, c->validation.paths.items[1], "b");
	TT_CHECK_INT(t, c->data.exclude.n, 2);
	TT_CHECK_STR(t, c->data.exclude.items[0], "x,y");
	TT_CHECK(t, c->optimizer.lr == 1e-3 && c->optimizer.weight_decay == 0 && isinf(c->training.max_norm));
	TT_CHECK_STR(t, c->model.flavor, "bytes-5m");
	TT_CHECK_STR(t, c->job.description, "a \"b\"");
	TT_CHECK_STR(t, c->job.dump_folder, "a=b");
	TT_CHECK(t, c->model.mlp_bias == TT_TRI_TRUE && c->model.tie_word_embeddings == TT_TRI_TRUE &&
			c->model.attention_bias == TT_TRI_AUTO);
	TT_CHECK(t, c->debug.numerics == TT_CFG_NUMERICS_EXACT);
	if (TT_CHECK_INT(t, c->optimizer.param_groups.n, 2)) {
		TT_CHECK_STR(t, c->optimizer.param_groups.items[0].pattern, "*norm*");
		TT_CHECK(t, c->optimizer.param_groups.items[0].lr_scale == 0.5);
		TT_CHECK(t, c->optimizer.param_groups.items[0].weight_decay == -1);
		TT_CHECK(t, c->optimizer.param_groups.items[1].lr_scale == 1);
	}
}

/* Texts and flags that load, with the one warning they give; NULL: none. */
static void warnings(tt_test *t)
{
	static const struct {
		const char *text, *flag, *warning;
	} CASES[] = {
		{"[training]\nnum_tokens_per_train_step = 4096", NULL,
		 "f.toml:2:1: training.num_tokens_per_train_step is spelled training.tokens_per_step here"},
		{"[training]\nmax_context_length = 64", NULL,
		 "f.toml:2:1: training.max_context_length is spelled training.context_length here"},
		{"[training]\nnum_tokens_per_microbatch_per_dp_rank = 4096", NULL,
		 "f.toml:2:1: training.num_tokens_per_microbatch_per_dp_rank is spelled training.tokens_per_microbatch here"},
		{"[validator]\nenable = false", NULL,
		 "f.toml:2:1: validator.enable is spelled validation.enable here"},
		{"", "--training.seq_len=64", "--training.seq_len=64: training.seq_len is spelled training.context_length here"},
		{"[optimizer]\nmomentum = 0.9", NULL,
		 "f.toml:2:1: optimizer.momentum has no effect: optimizer.name is AdamW"},
		{"[optimizer]\nmomentum = 0.9\nname = \"SGD\"", NULL, NULL},
		{"[optimizer]\nnesterov = true\nname = \"SGD\"", NULL,
		 "f.toml:2:1: optimizer.nesterov has no effect: optimizer.momentum is 0"},
		{"[optimizer]\nbeta1 = 0.5\nname = \"SGD\"", NULL,
		 "f.toml:2:1: optimizer.beta1 has no effect: optimizer.name is SGD"},
		{"[lr_scheduler]\ndecay_type = \"cosine\"\ndecay_ratio = 0", NULL,
		 "f.toml:2:1: lr_scheduler.decay_type has no effect: the run ends before any decay"},
		{"[lr_scheduler]\ndecay_type = \"cosine\"\ntotal_steps = 20000\ndecay_ratio = 0.50005", NULL,
		 "f.toml:2:1: lr_scheduler.decay_type has no effect: the run ends before any decay"},
		{"[lr_scheduler]\ndecay_type = \"cosine\"\ntotal_steps = 20000\ndecay_ratio = 0.5001", NULL, NULL},
		{"[lr_scheduler]\ndecay_type = \"cosine\"", NULL, NULL},
		{"[training]\nsteps = 5\n[lr_scheduler]\nwarmup_steps = 6", NULL,
		 "f.toml:4:1: lr_scheduler.warmup_steps is 6; the schedule has 5 steps, so all of them warm up"},
		{"[training]\nsteps = 10\n[lr_scheduler]\nwarmup_steps = 5\ndecay_ratio = 0.8", NULL,
		 "f.toml:5:1: lr_scheduler.decay_ratio = 0.8 makes 8 of 10 steps decay, and lr_scheduler.warmup_steps = 5 warm up: "
		 "only the last 5 decay"},
		{"[activation_checkpoint]\nmode = \"full\"\nselective_ac_option = \"2\"", NULL,
		 "f.toml:3:1: activation_checkpoint.selective_ac_option has no effect: activation_checkpoint.mode is not selective"},
		{"[activation_checkpoint]\nmode = \"selective\"\nselective_ac_option = \"2\"", NULL, NULL},
		{"[activation_checkpoint]\nmemory_budget_mib = 9", NULL,
		 "f.toml:2:1: activation_checkpoint.memory_budget_mib has no effect: activation_checkpoint.mode is not budget"},
		{"[activation_checkpoint]\nmode = \"budget\"\nmemory_budget = 0.25\nmemory_budget_mib = 9", NULL,
		 "f.toml:3:1: activation_checkpoint.memory_budget has no effect: activation_checkpoint.memory_budget_mib stands for it"},
		{"[validation]\nfreq = 3", NULL, "f.toml:2:1: validation.freq has no effect: validation.enable is false"},
		{"[validation]\nfreq = 10", NULL, NULL},
		{"[checkpoint]\ninterval = 3\nenable = false", NULL,
		 "f.toml:2:1: checkpoint.interval has no effect: checkpoint.enable is false"},
		{"[checkpoint]\nexport_dtype = \"bfloat16\"", NULL,
		 "f.toml:2:1: checkpoint.export_dtype has no effect: checkpoint.enable is false"},
		{"[checkpoint]\nenable_first_step_checkpoint = true", NULL,
		 "f.toml:2:1: checkpoint.enable_first_step_checkpoint has no effect: checkpoint.enable is false"},
		{"[training]\nnonfinite_max_skips = 3", NULL,
		 "f.toml:2:1: training.nonfinite_max_skips has no effect: training.nonfinite is stop"},
		{"[comm]\ntrain_timeout_seconds = 5", NULL,
		 "f.toml:2:1: comm.train_timeout_seconds has no effect: there is one rank"},
		{"[training]\nsteps = 20", NULL,
		 "lr_scheduler.warmup_steps is 200 by default; the schedule has 20 steps, so all of them warm up"},
	};
	for (int i = 0; i < TT_COUNT(CASES); i++) {
		tt_config *c;
		if (!TT_CHECK_OK(t, load_text(t, CASES[i].text, CASES[i].flag, &c)))
			continue;
		int want = CASES[i].warning != NULL;
		TT_CHECK_MSG(t, c->warnings.n == want, "%d warnings for %s", c->warnings.n, CASES[i].text);
		for (int w = 0; w < c->warnings.n; w++)
			TT_CHECK_STR(t, c->warnings.items[w], want ? CASES[i].warning : "");
	}
}

/* A legal value other than the default, as a flag. NULL: there is none. */
static const char *other_value(tt_arena *a, const tt_key *k)
{
	const char *f = k->full;
	if (k->why != NULL && k->type != TT_KEY_INT)
		return NULL;
	switch (k->type) {
	case TT_KEY_BOOL: return tt_arena_printf(a, "--%s=%s", f, k->def.b ? "false" : "true");
	case TT_KEY_TRI: return tt_arena_printf(a, "--%s=false", f);
	case TT_KEY_INT:
		if (k->i_most == k->def.i && k->i_least == k->def.i)
			return NULL;
		return tt_arena_printf(a, "--%s=%lld", f, (long long)(k->i_least == k->def.i ? k->i_least + 1 : k->i_least));
	case TT_KEY_FLOAT: /* in every float's range but those that start at 1 */
		return tt_arena_printf(a, "--%s=%s", f, k->f_least == 1 ? "1.1" : "0.3333333333333333");
	case TT_KEY_STRING: return tt_arena_printf(a, "--%s=\"a\\tb \\\\ \\\" \\u00e9 \\u001f\"", f);
	case TT_KEY_STRINGS:
		return tt_arena_printf(a, "--%s=[\"%s\"]", f, k->choices.n > 0 ? k->choices.words[1] : "it's \\\" \\n");
	case TT_KEY_ENUM:
		return k->choices.n == 1 ? NULL : tt_arena_printf(a, "--%s=%s", f, k->choices.words[k->def.i == 0]);
	case TT_KEY_TABLES:
		if (!strcmp(k->name, "layouts"))
			return tt_arena_printf(a, "--%s=[{place = \"use\", value = \"a|b\", by = \"c\", axis = \"tp\", type = \"S(1)\", when = \"!sp\"}]", f);
		return tt_arena_printf(a, "--%s=[{pattern = \"a|b\", lr_scale = 0.1}, {pattern = \"c\"}]", f);
	}
	return NULL;
}

static void add_key(void *ctx, const char *key, const char *was, const char *now)
{
	tt_buf_printf(ctx, "%s %s %s\n", key, was, now);
}

/* Each key alone at another value: the printed config has it, loads back to the same, and has another hash. */
static void round_trip(tt_test *t)
{
	tt_config *base;
	if (!TT_CHECK_OK(t, tt_config_load(t->arena, NULL, 0, NULL, &base)))
		return;
	const char *base_text = printed(t->arena, base);
	uint64_t base_hash = tt_config_hash(base);
	int changed = 0;
	for (int i = 0; i < tt_keys_n; i++) {
		const char *flag = other_value(t->arena, &tt_keys[i]);
		if (flag == NULL)
			continue;
		changed++;
		const char *all[] = {flag, "--validation.paths=x", "--training.context_length=1", "--lr_scheduler.warmup_steps=0"};
		bool extra = strcmp(tt_keys[i].full, "validation.enable") == 0 || tt_keys[i].type == TT_KEY_INT;
		tt_config *c, *d;
		if (!TT_CHECK_OK(t, tt_config_load(t->arena, NULL, extra ? TT_COUNT(all) : 1, all, &c)))
			continue;
		const char *text = printed(t->arena, c);
		TT_CHECK_MSG(t, strcmp(text, base_text) != 0, "%s leaves no trace", flag);
		TT_CHECK_MSG(t, tt_config_hash(c) != base_hash, "%s leaves the hash", flag);
		if (!TT_CHECK_OK(t, load_text(t, text, NULL, &d)))
			continue;
		tt_buf keys = {0};
		tt_config_diff(c, d, add_key, &keys);
		TT_CHECK_MSG(t, !keys.n, "equal configs differ: %s", keys.s);
		tt_config_diff(base, c, add_key, &keys);
		TT_CHECK_MSG(t, keys.n && strstr(keys.s, tt_arena_printf(t->arena, "%s ", tt_keys[i].full)), "%s is not among what differs", flag);
		tt_buf_fini(&keys);
		TT_CHECK_STR(t, printed(t->arena, d), text);
		TT_CHECK(t, tt_config_hash(d) == tt_config_hash(c));
		if (tt_keys[i].type == TT_KEY_FLOAT) /* to the last bit */
			TT_CHECK_MSG(t, memcmp((char *)c + tt_keys[i].offset, (char *)d + tt_keys[i].offset, sizeof(double)) == 0,
				     "%s comes back as another", flag);
	}
	TT_CHECK_MSG(t, changed > 60, "only %d keys could be changed", changed);
	/* A whole config printed and loaded is quiet. */
	tt_config *again;
	if (TT_CHECK_OK(t, load_text(t, base_text, NULL, &again)))
		TT_CHECK_INT(t, again->warnings.n, 0);
}

static void doc_up_to_date(tt_test *t)
{
	tt_buf b = {0};
	tt_config_doc(&b);
	char *text;
	size_t n;
	if (TT_CHECK_OK(t, tt_file_read(t->arena, "docs/config.md", &text, &n)))
		TT_CHECK_MSG(t, n == b.n && memcmp(text, b.s, n) == 0,
			     "docs/config.md differs from the keys: titan config --doc > docs/config.md");
	tt_buf_fini(&b);
}

static void shipped_configs(tt_test *t)
{
	static const char *const FILES[] = {"configs/debug.toml", "configs/demo.toml"};
	for (int i = 0; i < TT_COUNT(FILES); i++) {
		tt_config *c;
		if (!TT_CHECK_OK(t, tt_config_load(t->arena, FILES[i], 0, NULL, &c)))
			continue;
		for (int w = 0; w < c->warnings.n; w++)
			TT_CHECK_STR(t, c->warnings.items[w], "");
	}
}

static void arena_limit(tt_test *t)
{
	tt_arena *a = tt_arena_create("limited");
	tt_arena_set_limit(a, 512);
	tt_config *c = NULL;
	TT_CHECK_FAILS(t, tt_config_load(a, NULL, 0, NULL, &c), TT_ERR_MEMORY, "limited");
	TT_CHECK(t, c == NULL);
	tt_arena_destroy(a);
}

const tt_case tt_suite_config[] = {
	{"toml_values", toml_values, TT_TIER_QUICK},
	{"toml_errors", toml_errors, TT_TIER_QUICK},
	{"toml_places", toml_places, TT_TIER_QUICK},
	{"toml_limits", toml_limits, TT_TIER_QUICK},
	{"toml_fuzz", toml_fuzz, TT_TIER_QUICK},
	{"flag_fuzz", flag_fuzz, TT_TIER_QUICK},
	{"toml_suite", toml_suite, TT_TIER_PROOF},
	{"key_rows", key_rows, TT_TIER_QUICK},
	{"defaults", defaults, TT_TIER_QUICK},
	{"many_errors", many_errors, TT_TIER_QUICK},
	{"key_errors", key_errors, TT_TIER_QUICK},
	{"flags", flags, TT_TIER_QUICK},
	{"warnings", warnings, TT_TIER_QUICK},
	{"round_trip", round_trip, TT_TIER_QUICK},
	{"doc_up_to_date", doc_up_to_date, TT_TIER_QUICK},
	{"shipped_configs", shipped_configs, TT_TIER_QUICK},
	{"arena_limit", arena_limit, TT_TIER_QUICK},
	{0},
};
