/* The config as text: resolved TOML, its hash, and the reference of all keys. */
#include "config/keys.h"

void tt_config_print(const tt_config *cfg, tt_buf *b)
{
	int row = 0;
	for (int s = 0; s < tt_key_sections_n; s++) {
		tt_buf_printf(b, "%s[%s]\n", s == 0 ? "" : "\n", tt_key_sections[s].name);
		for (; row < tt_keys_n && strcmp(tt_keys[row].section, tt_key_sections[s].name) == 0; row++) {
			tt_buf_printf(b, "%s = ", tt_keys[row].name);
			tt_key_print_value(&tt_keys[row], cfg, b);
			tt_buf_str(b, "\n");
		}
	}
	TT_ASSERT(row == tt_keys_n, "keys.def: section %s stands in two places", tt_keys[row].section);
}

uint64_t tt_config_hash(const tt_config *cfg)
{
	tt_buf b = {0};
	tt_config_print(cfg, &b);
	uint64_t h = tt_hash64(b.s, b.n, 0);
	tt_buf_fini(&b);
	return h;
}

/* Text for a cell of a Markdown table. */
static void cell(tt_buf *b, const char *s)
{
	for (; *s != '\0'; s++) {
		if (*s == '|')
			tt_buf_str(b, "\\|");
		else
			tt_buf_add(b, s, 1);
	}
}

static void doc_rows(tt_buf *b, const tt_key *keys, int n, const void *defaults)
{
	tt_buf_str(b, "| key | default | takes | meaning |\n|---|---|---|---|\n");
	for (int i = 0; i < n; i++) {
		const tt_key *k = &keys[i];
		tt_buf_printf(b, "| `%s` | `", k->name);
		tt_buf text = {0};
		tt_key_print_value(k, defaults, &text);
		cell(b, text.s);
		text.n = 0;
		tt_buf_printf(b, "` | %s", tt_key_type_name(k));
		tt_key_print_range(k, &text);
		if (text.n > 0) {
			tt_buf_str(b, k->type == TT_KEY_STRINGS ? " " : ": ");
			cell(b, text.s);
		}
		tt_buf_fini(&text);
		if (k->why != NULL)
			tt_buf_printf(b, "; %s%s", k->type == TT_KEY_INT ? "" : "only the default: ", k->why);
		tt_buf_str(b, " | ");
		cell(b, k->doc);
		tt_buf_str(b, " |\n");
	}
}

void tt_config_doc(tt_buf *b)
{
	tt_arena *a = tt_arena_create("config reference");
	tt_config *defaults = TT_NEW(a, tt_config);
	for (int i = 0; i < tt_keys_n; i++)
		tt_key_set_default(&tt_keys[i], defaults);
	tt_buf_str(b, "# Config reference\n\n"
		      "Made by `titan config --doc` from `src/config/keys.def`; a test keeps it up to date.\n\n"
		      "A config is a TOML 1.0 file. Every key is a flag too: `--training.steps=20`; a boolean alone, "
		      "`--validation.enable`, is true; a list is `--data.paths=a,b`. Flags stand above the file, the "
		      "last of a key wins. An unknown key, a wrong type or a value out of range is an error that "
		      "names file, line and column; a key without effect is a warning. `titan config FILE` prints "
		      "the resolved config.\n");
	int row = 0;
	for (int s = 0; s < tt_key_sections_n; s++) {
		const char *section = tt_key_sections[s].name;
		tt_buf_printf(b, "\n## [%s]\n\n%s\n", section, tt_key_sections[s].doc);
		int first = row;
		while (row < tt_keys_n && strcmp(tt_keys[row].section, section) == 0)
			row++;
		if (row > first) {
			tt_buf_str(b, "\n");
			doc_rows(b, &tt_keys[first], row - first, defaults);
		}
		for (int i = first; i < row; i++) {
			const tt_key *k = &tt_keys[i];
			if (k->type != TT_KEY_TABLES)
				continue;
			void *entry = tt_arena_alloc(a, k->sub_size);
			for (int j = 0; j < k->sub_n; j++)
				tt_key_set_default(&k->sub[j], entry);
			tt_buf_printf(b, "\nEach `[[%s]]`:\n\n", k->full);
			doc_rows(b, k->sub, k->sub_n, entry);
		}
	}
	tt_buf_str(b, "\n## TorchTitan's spellings\n\nAccepted with a warning:\n\n| TorchTitan | here |\n|---|---|\n");
	int n;
	const tt_alias *list = tt_alias_list(&n);
	for (int i = 0; i < n; i++)
		if (list[i].now != NULL)
			tt_buf_printf(b, "| `%s` | `%s` |\n", list[i].old, list[i].now);
	tt_buf_str(b, "\nRefused, with what to write instead:\n\n| TorchTitan | here |\n|---|---|\n");
	for (int i = 0; i < n; i++)
		if (list[i].now == NULL)
			tt_buf_printf(b, "| `%s` | %s |\n", list[i].old, list[i].advice);
	tt_arena_destroy(a);
}
