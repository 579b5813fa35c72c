/* config.c: a whole config: a TOML text, and after a line "%%" flags, one a line. What loads must print as a text that loads to the same. */
#include "fuzz.h"

#include "config/keys.h"

enum { FLAGS = 16 };

static const char **flags_of(tt_arena *a, fuzz_part part, int *n)
{
	const char **flags = TT_NEWN(a, const char *, FLAGS), *text = fuzz_text(a, part);
	int k = 0;
	for (const char *end; *text && k < FLAGS; text = *end ? end + 1 : end) {
		end = text + strcspn(text, "\n");
		flags[k++] = tt_arena_strndup(a, text, (size_t)(end - text));
	}
	*n = k;
	return flags;
}

void fuzz_one(const uint8_t *p, size_t n)
{
	tt_arena *a = tt_arena_create("fuzz");
	fuzz_part parts[2];
	fuzz_split(p, n, parts, 2);
	int nflags;
	const char **flags = flags_of(a, parts[1], &nflags);
	tt_config *cfg, *again;
	tt_buf text = { 0 }, twice = { 0 };
	if (tt_config_load_text(a, "f.toml", (const char *)parts[0].p, parts[0].n, nflags, flags, &cfg) == TT_OK) {
		tt_config_log_warnings(cfg);
		for (int i = 0; i < tt_keys_n; i++)
			if (tt_config_source(cfg, tt_keys[i].full))
				fuzz_touch(tt_config_source(cfg, tt_keys[i].full), 1);
		tt_config_print(cfg, &text);
		FUZZ_CHECK(tt_config_load_text(a, "printed", text.s, text.n, 0, NULL, &again) == TT_OK, "%s\n%s", tt_error_text(), text.s);
		tt_config_print(again, &twice);
		FUZZ_CHECK(text.n == twice.n && !memcmp(text.s, twice.s, text.n), "printed:\n%s\nread and printed again:\n%s", text.s, twice.s);
		FUZZ_CHECK(tt_config_hash(cfg) == tt_config_hash(again), "the hash differs after printing and reading:\n%s", text.s);
	} else {
		FUZZ_CHECK(*tt_error_text(), "an error without a text");
	}
	tt_buf_fini(&text);
	tt_buf_fini(&twice);
	tt_arena_destroy(a);
}

void fuzz_seeds(void)
{
	tt_arena *a = tt_arena_create("seeds");
	tt_config *cfg;
	tt_buf b = { 0 };
	FUZZ_CHECK(tt_config_load(a, NULL, 0, NULL, &cfg) == TT_OK, "%s", tt_error_text());
	tt_config_print(cfg, &b);
	fuzz_seed(b.s, b.n);
	tt_buf_fini(&b);
	fuzz_seed_files("", "configs/*.toml", 8192);
	fuzz_seed_text("[training]\nsteps = 5\nseq_len = 64\n" FUZZ_CUT "--training.steps=7\n--data.shuffle\n--data.paths=a,b\n--optimizer.lr=1e-3\n"
		       "--model.rope_scaling=yarn\n--data.exclude=[\"x\", 'y']");
	fuzz_seed_text("[optimizer]\nname = \"SGD\"\n[[optimizer.param_groups]]\npattern = \"*norm*|*.bias\"\nweight_decay = 0.0\n" FUZZ_CUT
		       "--checkpoint.enable\n--checkpoint.interval=10\n--validation.enable\n--validation.fraction=0.1");
	fuzz_word(FUZZ_CUT);
	int n;
	for (int i = 0; i < tt_keys_n; i++) {
		const tt_key *k = &tt_keys[i];
		fuzz_word(k->name);
		fuzz_word(tt_arena_printf(a, "--%s=", k->full));
		for (int w = 0; w < k->choices.n; w++)
			fuzz_word(tt_arena_printf(a, "\"%s\"", k->choices.words[w]));
		for (int s = 0; s < k->sub_n; s++)
			fuzz_word(tt_arena_printf(a, "\n%s = ", k->sub[s].name));
	}
	for (int i = 0; i < tt_key_sections_n; i++)
		fuzz_word(tt_arena_printf(a, "\n[%s]\n", tt_key_sections[i].name));
	const tt_alias *alias = tt_alias_list(&n);
	for (int i = 0; i < n; i++)
		fuzz_word(alias[i].old);
	tt_arena_destroy(a);
}
