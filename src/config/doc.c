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
			const char *note = cfg->notes != NULL ? cfg->notes[row] : NULL;
			tt_buf_printf(b, "%s%s\n", note != NULL ? " # " : "", note != NULL ? note : "");
		}
	}
}

uint64_t tt_config_hash(const tt_config *cfg)
{
	tt_buf b = {0};
	tt_config plain = *cfg;
	plain.notes = NULL;
	tt_config_print(&plain, &b);
	uint64_t h = tt_hash64(b.s, b.n, 0);
	tt_buf_fini(&b);
	return h;
}

void tt_config_diff(const tt_config *a, const tt_config *b, void (*fn)(void *ctx, const char *key, const char *in_a, const char *in_b), void *ctx)
{
	tt_buf x = {0}, y = {0};
	for (int i = 0; i < tt_keys_n; i++) {
		x.n = y.n = 0;
		tt_key_print_value(&tt_keys[i], a, &x);
		tt_key_print_value(&tt_keys[i], b, &y);
		if (strcmp(x.s, y.s) != 0)
			fn(ctx, tt_keys[i].full, x.s, y.s);
	}
	tt_buf_fini(&x);
	tt_buf_fini(&y);
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

static void doc_group(void *ctx, const tt_key_group *g)
{
	tt_buf *b = ctx;
	if (g->tables != NULL)
		tt_buf_printf(b, "\nEach `[[%s]]`:\n", g->tables->full);
	else
		tt_buf_printf(b, "\n## [%s]\n\n%s\n", g->section->name, g->section->doc);
	if (g->n > 0)
		tt_buf_str(b, "\n| key | default | takes | meaning |\n|---|---|---|---|\n");
	for (int i = 0; i < g->n; i++) {
		const tt_key *k = &g->keys[i];
		tt_buf value = {0}, takes = {0};
		tt_key_print_value(k, g->defaults, &value);
		tt_key_print_takes(k, &takes);
		tt_buf_printf(b, "| `%s` | `", k->name);
		cell(b, value.s);
		tt_buf_str(b, "` | ");
		cell(b, takes.s);
		tt_buf_str(b, " | ");
		cell(b, k->doc);
		tt_buf_str(b, " |\n");
		tt_buf_fini(&value);
		tt_buf_fini(&takes);
	}
}

void tt_config_doc(tt_buf *b)
{
	tt_buf_str(b, "# Config reference\n\n"
		      "Made by `titan config --doc` from `src/config/keys.def`; a test keeps it up to date.\n\n"
		      "A config is a TOML 1.0 file. Every key is a flag too: `--training.steps=20`; a boolean alone, "
		      "`--validation.enable`, is true; a list is `--data.paths=a,b`. Flags stand above the file, the "
		      "last of a key wins. An unknown key, a wrong type or a value out of range is an error that "
		      "names the flag, or file, line and column; a key without effect is a warning. `titan config "
		      "FILE` prints the resolved config, with what a flavor or a Hugging Face config says filled in and "
		      "marked: fed back, it gives the same run.\n");
	tt_key_walk(doc_group, b);
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
}
