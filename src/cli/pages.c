/* pages.c: titan help: a command's usage, and manual pages made from the tables of commands and config keys. */
#include <ctype.h>

#include "base/version.h"
#include "cli/pages.h"
#include "config/keys.h"

/* ---- what a usage line says --------------------------------------------------------------------------------------------------------- */

static bool is_verb(const char *s, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (!islower((unsigned char)s[i]) && s[i] != '-')
			return false;
	return n > 0 && s[0] != '-';
}

/* Where one usage ends: at a " | " that stands in no brackets. */
static const char *usage_end(const char *s)
{
	int open = 0;
	for (; *s && (open || strncmp(s, " | ", 3)); s++)
		open += (*s == '[') - (*s == ']');
	return *s ? s : NULL;
}

int tt_usage_split(tt_arena *a, const tt_command *c, tt_usage *out)
{
	char *head = tt_arena_printf(a, "titan %s", c->name);
	size_t nhead = strlen(head);
	int n = 0;
	for (const char *s = c->usage; s;) {
		const char *end = usage_end(s);
		char *text = tt_arena_strndup(a, s, end ? (size_t)(end - s) : strlen(s));
		if (strncmp(text, "titan ", 6))
			text = tt_arena_printf(a, "%s %s", head, text);
		TT_ASSERT(n < TT_USAGES && !strncmp(text, head, nhead), "usage of %s", c->name);
		const char *rest = text + nhead + (text[nhead] == ' ');
		size_t word = strcspn(rest, " ");
		out[n++] = (tt_usage){ text, is_verb(rest, word) ? tt_arena_strndup(a, rest, word) : NULL };
		s = end ? end + 3 : NULL;
	}
	return n;
}

/* "a|b|c" into words; nothing if it is no choice of plain words. */
static tt_strings choices_of(tt_arena *a, const char *s, size_t n)
{
	tt_strings out = { 0 };
	if (!memchr(s, '|', n))
		return out;
	const char **items = TT_NEWN(a, const char *, TT_USAGE_WORDS);
	for (size_t i = 0; i <= n; i++) {
		size_t start = i;
		while (i < n && s[i] != '|')
			i++;
		TT_ASSERT(out.n < TT_USAGE_WORDS, "%s", s);
		items[out.n++] = tt_arena_strndup(a, s + start, i - start);
	}
	out.items = items;
	return out;
}

int tt_usage_flags(tt_arena *a, const tt_command *c, tt_usage_flag *out)
{
	int n = 0;
	for (const tt_argument *arg = c->arguments; arg->name; arg++) {
		if (strncmp(arg->name, "--", 2))
			continue;
		const char *value = strchr(arg->name, '=');
		tt_usage_flag f = { .name = arg->name, .doc = arg->doc, .value = value != NULL };
		if (value) {
			f.name = tt_arena_strndup(a, arg->name, (size_t)(value - arg->name));
			f.words = choices_of(a, value + 1, strlen(value + 1));
			f.file = !strncmp(value + 1, "FILE", 4);
		}
		out[n++] = f;
	}
	return n;
}

bool tt_usage_takes_config(const tt_command *c) { return strstr(c->usage, "[FLAGS]") != NULL; }

/* ---- roff ------------------------------------------------------------------------------------------------------------------------------ */

/* Text into a line of roff. What stands in backticks is set bold. Never begins a line with a request. */
static void roff(tt_buf *b, const char *s)
{
	bool bold = false;
	if (*s == '.' || *s == '\'')
		tt_buf_str(b, "\\&");
	for (; *s; s++)
		switch (*s) {
		case '`': tt_buf_str(b, bold ? "\\fR" : "\\fB"); bold = !bold; break;
		case '-': tt_buf_str(b, "\\-"); break;
		case '\\': tt_buf_str(b, "\\e"); break;
		case '\'': tt_buf_str(b, "\\(aq"); break;
		case '^': tt_buf_str(b, "\\(ha"); break;
		case '~': tt_buf_str(b, "\\(ti"); break;
		case '\n': tt_buf_str(b, " "); break;
		default: tt_buf_add(b, s, 1); break;
		}
	if (bold)
		tt_buf_str(b, "\\fR");
}

static void roff_line(tt_buf *b, const char *s)
{
	roff(b, s);
	tt_buf_str(b, "\n");
}

static void heading(tt_buf *b, const char *name, const char *section, const char *what)
{
	tt_buf_str(b, ".TH \"");
	for (const char *s = name; *s; s++)
		tt_buf_printf(b, "%c", toupper((unsigned char)*s));
	tt_buf_printf(b, "\" \"%s\" \"\" \"titan %s\" \"titan manual\"\n.SH NAME\n%s \\- ", section, TT_VERSION, name);
	roff_line(b, what);
}

/* A usage in the synopsis: the lower-case beginning is what one types. */
static void synopsis(tt_buf *b, const char *usage, bool first)
{
	size_t n = 0;
	while (usage[n] && (islower((unsigned char)usage[n]) || (usage[n] == ' ' && islower((unsigned char)usage[n + 1]))))
		n++;
	tt_buf_printf(b, "%s\\fB", first ? "" : ".PP\n");
	for (size_t i = 0; i < n; i++)
		tt_buf_add(b, &usage[i], 1);
	tt_buf_str(b, "\\fR");
	roff_line(b, usage + n);
}

static void exit_status(tt_buf *b)
{
	tt_buf_str(b, ".SH EXIT STATUS\n");
	for (const tt_exit_code *e = tt_exit_codes; e->doc; e++) {
		tt_buf_printf(b, ".TP\n%d\n", e->code);
		roff_line(b, e->doc);
	}
}

static void short_flags(tt_buf *b)
{
	for (const tt_short_flag *f = tt_short_flags; f->shorthand; f++) {
		tt_buf_str(b, ".TP\n\\fB");
		roff(b, f->shorthand);
		tt_buf_str(b, "\\fIvalue\\fR\nShort for \\fB");
		roff(b, f->key);
		tt_buf_str(b, "\\fR\\fIvalue\\fR: ");
		roff(b, f->doc);
		tt_buf_str(b, ".\n");
	}
}

static void config_flags(tt_buf *b)
{
	tt_buf_str(b, ".TP\n\\fB\\-\\-\\fIsection\\fB.\\fIkey\\fB=\\fIvalue\\fR\nAny key of\n.BR titan.toml (5).\n"
		      "It stands above the file; the last of a key wins. A boolean alone is true, a list is \\fIa\\fR,\\fIb\\fR.\n");
	short_flags(b);
}

/* ---- the pages -------------------------------------------------------------------------------------------------------------------------- */

static void page_titan(tt_buf *b)
{
	heading(b, "titan", "1", "train language models");
	tt_buf_str(b, ".SH SYNOPSIS\n.B titan\n.I command\n.RI [ arguments ]\n.PP\n.B titan help\n.RI [ command ]\n.PP\n.B titan \\-\\-version\n"
		      ".SH DESCRIPTION\nA run is one TOML file and flags that change single keys of it. "
		      "Everything a run writes goes to the folder \\fBjob.dump_folder\\fR.\n.SH COMMANDS\n");
	for (const tt_command *c = tt_commands; c->name; c++) {
		tt_buf_printf(b, ".TP\n.BR titan\\-%s (1)\n", c->name);
		roff(b, c->doc);
		tt_buf_str(b, ".\n");
	}
	tt_buf_str(b, ".SH FLAGS\nCommands that read a config take\n");
	config_flags(b);
	exit_status(b);
	tt_buf_str(b, ".SH ENVIRONMENT\n.TP\n.B TITAN_TRAIL\nIf set, the source lines that an error passed follow its message.\n"
		      ".SH EXAMPLES\n.nf\ntitan train run.toml \\-\\-training.steps=100\ntitan config run.toml\ntitan help \\-\\-completion=bash\n.fi\n"
		      ".SH SEE ALSO\n.BR titan.toml (5)\n");
}

static void page_command(tt_arena *a, const tt_command *c, tt_buf *b)
{
	tt_usage u[TT_USAGES];
	int n = tt_usage_split(a, c, u);
	heading(b, tt_arena_printf(a, "titan-%s", c->name), "1", c->doc);
	tt_buf_str(b, ".SH SYNOPSIS\n");
	for (int i = 0; i < n; i++)
		synopsis(b, u[i].text, i == 0);
	tt_buf_str(b, ".SH DESCRIPTION\n");
	char *doc = tt_arena_strdup(a, c->doc);
	doc[0] = (char)toupper((unsigned char)doc[0]);
	roff(b, doc);
	tt_buf_str(b, ".\n");
	bool config = tt_usage_takes_config(c);
	if (c->arguments[0].name || config)
		tt_buf_str(b, ".SH ARGUMENTS\n");
	for (const tt_argument *arg = c->arguments; arg->name; arg++) {
		tt_buf_str(b, ".TP\n\\fB");
		roff(b, arg->name);
		tt_buf_str(b, "\\fR\n");
		roff_line(b, arg->doc);
	}
	if (config)
		config_flags(b);
	exit_status(b);
	tt_buf_str(b, ".SH EXAMPLES\n.nf\n");
	for (int i = 0; i < TT_EXAMPLES; i++)
		roff_line(b, c->examples[i]);
	tt_buf_printf(b, ".fi\n.SH SEE ALSO\n.BR titan (1)%s\n", config ? ",\n.BR titan.toml (5)" : "");
}

static void page_group(void *ctx, const tt_key_group *g)
{
	tt_buf *b = ctx;
	if (g->tables) {
		tt_buf_printf(b, ".SS \"Each [[%s]]\"\n", g->tables->full);
	} else {
		tt_buf_printf(b, ".SH \"[%s]\"\n", g->section->name);
		roff_line(b, g->section->doc);
	}
	for (int i = 0; i < g->n; i++) {
		const tt_key *k = &g->keys[i];
		tt_buf value = { 0 }, takes = { 0 };
		tt_key_print_value(k, g->defaults, &value);
		tt_key_print_takes(k, &takes);
		tt_buf_str(b, ".TP\n\\fB");
		roff(b, g->tables ? k->name : k->full);
		tt_buf_str(b, "\\fR = ");
		roff_line(b, value.s);
		roff_line(b, k->doc);
		tt_buf_str(b, "Takes ");
		roff(b, takes.s);
		tt_buf_str(b, ".\n");
		tt_buf_fini(&value);
		tt_buf_fini(&takes);
	}
}

static void page_config(tt_buf *b)
{
	heading(b, "titan.toml", "5", "config of a training run");
	tt_buf_str(b, ".SH DESCRIPTION\nA config is a TOML 1.0 file. Every key is also a flag, \\fB\\-\\-training.steps=20\\fR; flags stand above the file. "
		      "An unknown key, a wrong type or a value out of range is an error that names the flag, or file, line and column; a key without effect is a warning.\n"
		      ".PP\n\\fBtitan config\\fR \\fIfile\\fR prints all keys as resolved, with what a flavor or a Hugging Face config says filled in and marked. Below, each key stands with its default.\n");
	tt_key_walk(page_group, b);
	tt_buf_str(b, ".SH SEE ALSO\n.BR titan (1),\n.BR titan\\-config (1)\n");
}

/* Names of all pages, as files: titan.1, titan-train.1, ..., titan.toml.5. */
static void page_list(tt_buf *b)
{
	tt_buf_str(b, "titan.1\n");
	for (const tt_command *c = tt_commands; c->name; c++)
		tt_buf_printf(b, "titan-%s.1\n", c->name);
	tt_buf_str(b, "titan.toml.5\n");
}

static tt_status page(tt_arena *a, const char *name, tt_buf *b)
{
	if (!strcmp(name, "titan") || !strcmp(name, "titan.1")) {
		page_titan(b);
		return TT_OK;
	}
	if (!strcmp(name, "titan.toml") || !strcmp(name, "titan.toml.5")) {
		page_config(b);
		return TT_OK;
	}
	for (const tt_command *c = tt_commands; c->name; c++)
		if (!strcmp(name, c->name) || !strcmp(name, tt_arena_printf(a, "titan-%s", c->name)) || !strcmp(name, tt_arena_printf(a, "titan-%s.1", c->name))) {
			page_command(a, c, b);
			return TT_OK;
		}
	TT_FAIL(TT_ERR_USAGE, "no manual page is called \"%s\" (titan help --man lists them)", name);
}

/* ---- titan help --------------------------------------------------------------------------------------------------------------------------- */

static tt_status help(tt_arena *a, int argc, const char *const *argv, tt_buf *b)
{
	if (argc > 1)
		TT_FAIL(TT_ERR_USAGE, "titan help takes one argument, got %d", argc);
	const char *what = argc ? argv[0] : "";
	const char *value = strchr(what, '=') ? strchr(what, '=') + 1 : "";
	if (!*what) {
		tt_cli_help(b);
	} else if (!strcmp(what, "--doc")) {
		tt_cli_doc(b);
	} else if (!strcmp(what, "--man")) {
		page_list(b);
	} else if (!strncmp(what, "--man=", 6)) {
		return page(a, value, b);
	} else if (!strncmp(what, "--completion=", 13)) {
		return tt_completion(value, b);
	} else {
		const char *near;
		const tt_command *c = tt_command_find(what, &near);
		if (c) {
			tt_command_help(c, b);
			return TT_OK;
		}
		TT_FAIL(TT_ERR_USAGE, "titan help takes a command, --doc, --man[=PAGE] or --completion=bash|zsh|fish, got \"%s\"%s%s%s", what,
			near ? ": did you mean " : " (titan --help lists the commands)", near ? near : "", near ? "?" : "");
	}
	return TT_OK;
}

tt_status tt_cmd_help(int argc, const char *const *argv)
{
	tt_arena *a = tt_arena_create("help");
	tt_buf b = { 0 };
	tt_status s = help(a, argc, argv, &b);
	if (s == TT_OK && b.s)
		tt_cli_print(b.s);
	tt_buf_fini(&b);
	tt_arena_destroy(a);
	return s;
}
