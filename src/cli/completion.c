/* completion.c: what a shell may fill in, from the tables: commands, their flags, --section.key=, and the words of choices. */
#include "cli/pages.h"
#include "config/keys.h"

/* ---- what a key's value may be, said once for the three shells --------------------------------------------------------------------- */

typedef struct value_kind {
	const char *const *words; /* [n] */
	int n;
	bool list;                /* several, with commas between */
	bool file;                /* free text, which may be a path */
} value_kind;

static value_kind kind_of(const tt_key *k)
{
	static const char *const boolean[] = { "true", "false" }, *const tri[] = { "true", "false", "auto" };
	switch (k->type) {
	case TT_KEY_BOOL: return (value_kind){ .words = boolean, .n = 2 };
	case TT_KEY_TRI: return (value_kind){ .words = tri, .n = 3 };
	case TT_KEY_ENUM: return (value_kind){ .words = k->choices.words, .n = k->choices.n };
	case TT_KEY_STRINGS: return (value_kind){ .words = k->choices.words, .n = k->choices.n, .list = true, .file = !k->choices.n };
	case TT_KEY_STRING: return (value_kind){ .file = true };
	case TT_KEY_INT:
	case TT_KEY_FLOAT:
	case TT_KEY_TABLES: break;
	}
	return (value_kind){ 0 };
}

/* The key that a short flag stands for. */
static const tt_key *key_of(const tt_short_flag *f)
{
	for (int i = 0; i < tt_keys_n; i++) {
		size_t n = strlen(tt_keys[i].full);
		if (!strncmp(f->key + 2, tt_keys[i].full, n) && f->key[2 + n] == '=')
			return &tt_keys[i];
	}
	TT_ASSERT(false, "%s is no key", f->key);
	return NULL;
}

static void add_words(tt_buf *b, const char *const *words, int n)
{
	for (int i = 0; i < n; i++)
		tt_buf_printf(b, "%s%s", i ? " " : "", words[i]);
}

/* Text inside single quotes of a shell; `special` are characters that also want a backslash. */
static void quoted(tt_buf *b, const char *s, const char *quote, const char *special)
{
	for (; *s; s++)
		if (*s == '\'')
			tt_buf_str(b, quote);
		else
			tt_buf_printf(b, "%s%c", strchr(special, *s) ? "\\" : "", *s);
}

/* ---- bash ------------------------------------------------------------------------------------------------------------------------------ */

/* A value's case: "--a.b=|--c=) words='x y'". */
static void bash_value(tt_buf *b, const char *flag, value_kind v)
{
	if (!v.n && !v.file)
		return;
	tt_buf_printf(b, "\t\t%s) %s", flag, v.list ? "list=1 " : "");
	if (v.file) {
		tt_buf_str(b, "files=1 ;;\n");
		return;
	}
	tt_buf_str(b, "words='");
	add_words(b, v.words, v.n);
	tt_buf_str(b, "' ;;\n");
}

/* The words of a case of `case $command in`: verbs and flags. */
static void bash_command(tt_arena *a, tt_buf *b, const tt_command *c)
{
	tt_usage u[TT_USAGES];
	tt_usage_flag f[TT_USAGE_FLAGS];
	int nu = tt_usage_split(a, c, u), nf = tt_usage_flags(a, c, f);
	tt_buf_printf(b, "\t%s) verbs='", c->name);
	for (int i = 0; i < nu; i++)
		if (u[i].verb)
			tt_buf_printf(b, "%s ", u[i].verb);
	tt_buf_str(b, "' flags=\"");
	for (int i = 0; i < nf; i++)
		tt_buf_printf(b, "%s%s ", f[i].name, f[i].value ? "=" : "");
	tt_buf_printf(b, "%s\" ;;\n", tt_usage_takes_config(c) ? "$config" : "");
}

static void bash(tt_arena *a, tt_buf *b)
{
	tt_buf_str(b, "# bash completion of titan, made by: titan help --completion=bash\n"
		      "_titan()\n{\n"
		      "\t# The line is split here, at blanks only: readline also splits at the characters of COMP_WORDBREAKS, such as '='.\n"
		      "\tlocal line=${COMP_LINE:0:COMP_POINT} current command verbs= flags= words= files= list= key value kept=\n"
		      "\tlocal -a before\n"
		      "\tcurrent=${line##*[[:space:]]}\n"
		      "\tread -ra before <<<\"${line%\"$current\"}\"\n"
		      "\tCOMPREPLY=()\n"
		      "\tif ((${#before[@]} <= 1)); then\n\t\tCOMPREPLY=($(compgen -W '");
	for (const tt_command *c = tt_commands; c->name; c++)
		tt_buf_printf(b, "%s ", c->name);
	tt_buf_str(b, "help' -- \"$current\"))\n\t\treturn\n\tfi\n\tcommand=${before[1]}\n\tlocal config='");
	for (const tt_short_flag *f = tt_short_flags; f->shorthand; f++)
		tt_buf_printf(b, "%s ", f->shorthand);
	for (int i = 0; i < tt_keys_n; i++)
		if (tt_keys[i].type != TT_KEY_TABLES)
			tt_buf_printf(b, "\n\t\t--%s=", tt_keys[i].full);
	tt_buf_str(b, "'\n\tcase $command in\n\thelp) verbs='");
	for (const tt_command *c = tt_commands; c->name; c++)
		tt_buf_printf(b, "%s ", c->name);
	tt_buf_str(b, "' flags='--doc --man --completion=' ;;\n");
	for (const tt_command *c = tt_commands; c->name; c++)
		bash_command(a, b, c);
	tt_buf_str(b, "\tesac\n\tcase $current in\n\t--*=*)\n\t\tkey=${current%%=*} value=${current#*=}\n\t\tcase $command$key in\n"
		      "\t\thelp--completion) words='bash zsh fish' ;;\n");
	for (const tt_command *c = tt_commands; c->name; c++) {
		tt_usage_flag f[TT_USAGE_FLAGS];
		int nf = tt_usage_flags(a, c, f);
		for (int i = 0; i < nf; i++)
			if (f[i].value)
				bash_value(b, tt_arena_printf(a, "%s%s", c->name, f[i].name), (value_kind){ f[i].words.items, f[i].words.n, false, f[i].file });
	}
	for (const tt_short_flag *f = tt_short_flags; f->shorthand; f++)
		bash_value(b, tt_arena_printf(a, "*%.*s", (int)strlen(f->shorthand) - 1, f->shorthand), kind_of(key_of(f)));
	for (int i = 0; i < tt_keys_n; i++)
		bash_value(b, tt_arena_printf(a, "*--%s", tt_keys[i].full), kind_of(&tt_keys[i]));
	tt_buf_str(b, "\t\tesac\n"
		      "\t\t[[ -z $list ]] || { kept=${value%\"${value##*,}\"} value=${value##*,}; }\n"
		      "\t\t[[ $COMP_WORDBREAKS == *=* ]] || kept=$key=$kept\n"
		      "\t\tif [[ -n $files ]]; then\n"
		      "\t\t\tcompopt -o filenames 2>/dev/null\n"
		      "\t\t\tmapfile -t COMPREPLY < <(compgen -P \"$kept\" -f -- \"$value\")\n"
		      "\t\telse\n"
		      "\t\t\tCOMPREPLY=($(compgen -P \"$kept\" -W \"$words\" -- \"$value\"))\n"
		      "\t\tfi ;;\n"
		      "\t-*)\n"
		      "\t\tCOMPREPLY=($(compgen -W \"$flags\" -- \"$current\"))\n"
		      "\t\t[[ ${COMPREPLY[0]} != *= ]] || compopt -o nospace 2>/dev/null ;;\n"
		      "\t*)\n"
		      "\t\tif [[ -n ${verbs// } ]] && ((${#before[@]} == 2)); then\n"
		      "\t\t\tCOMPREPLY=($(compgen -W \"$verbs\" -- \"$current\"))\n"
		      "\t\telse\n"
		      "\t\t\tcompopt -o filenames 2>/dev/null\n"
		      "\t\t\tmapfile -t COMPREPLY < <(compgen -f -- \"$current\")\n"
		      "\t\tfi ;;\n"
		      "\tesac\n}\ncomplete -F _titan titan\n");
}

/* ---- zsh ------------------------------------------------------------------------------------------------------------------------------- */

/* One argument of _arguments: '--flag=-[doc]:value:(a b)'. The name is free of special characters. */
static void zsh_flag(tt_buf *b, const char *flag, const char *doc, bool takes, value_kind v)
{
	tt_buf_printf(b, "\t\t'%s%s[", flag, takes ? "=-" : "");
	quoted(b, doc, "'\\''", "[]:\\");
	tt_buf_str(b, "]");
	if (takes && v.n && v.list) {
		tt_buf_str(b, ":words:_sequence compadd - ");
		add_words(b, v.words, v.n);
	} else if (takes && v.n) {
		tt_buf_str(b, ":value:(");
		add_words(b, v.words, v.n);
		tt_buf_str(b, ")");
	} else if (takes) {
		tt_buf_str(b, v.file ? ":value:_files" : ":value: ");
	}
	tt_buf_str(b, "'\n");
}

static void zsh(tt_arena *a, tt_buf *b)
{
	tt_buf_str(b, "#compdef titan\n# made by: titan help --completion=zsh\n_titan() {\n\tlocal -a commands config own\n\tcommands=(\n");
	for (const tt_command *c = tt_commands; c->name; c++) {
		tt_buf_printf(b, "\t\t'%s:", c->name);
		quoted(b, c->doc, "'\\''", "");
		tt_buf_str(b, "'\n");
	}
	tt_buf_str(b, "\t\t'help:usage of a command'\n\t)\n\tif (( CURRENT == 2 )); then\n\t\t_describe command commands\n\t\treturn\n\tfi\n\tconfig=(\n");
	for (const tt_short_flag *f = tt_short_flags; f->shorthand; f++)
		zsh_flag(b, tt_arena_printf(a, "%.*s", (int)strlen(f->shorthand) - 1, f->shorthand), f->doc, true, kind_of(key_of(f)));
	for (int i = 0; i < tt_keys_n; i++)
		if (tt_keys[i].type != TT_KEY_TABLES)
			zsh_flag(b, tt_arena_printf(a, "--%s", tt_keys[i].full), tt_keys[i].doc, true, kind_of(&tt_keys[i]));
	tt_buf_str(b, "\t)\n\tlocal command=$words[2]\n\tshift words\n\t(( CURRENT-- ))\n\tcase $command in\n");
	for (const tt_command *c = tt_commands; c->name; c++) {
		tt_usage u[TT_USAGES];
		tt_usage_flag f[TT_USAGE_FLAGS];
		int nu = tt_usage_split(a, c, u), nf = tt_usage_flags(a, c, f);
		tt_buf_printf(b, "\t%s) own=(\n", c->name);
		for (int i = 0; i < nf; i++)
			zsh_flag(b, f[i].name, f[i].doc, f[i].value, (value_kind){ f[i].words.items, f[i].words.n, false, f[i].file });
		bool verbs = false;
		for (int i = 0; i < nu; i++) {
			if (u[i].verb)
				tt_buf_printf(b, "%s%s", verbs ? " " : "\t\t'1:what:(", u[i].verb);
			verbs = verbs || u[i].verb;
		}
		tt_buf_printf(b, "%s\t\t%s'*:file:_files'\n\t\t) ;;\n", verbs ? ")'\n" : "", tt_usage_takes_config(c) ? "$config " : "");
	}
	tt_buf_str(b, "\thelp) own=('1:command:((${(j: :)${(q)commands}}))' '--doc[docs/cli.md]' '--man=-[a manual page]:page: '"
		      " '--completion=-[for a shell]:shell:(bash zsh fish)') ;;\n"
		      "\tesac\n\t_arguments $own\n}\n_titan \"$@\"\n");
}

/* ---- fish ------------------------------------------------------------------------------------------------------------------------------ */

static void fish_flag(tt_buf *b, const char *seen, const char *name, const char *doc, bool takes, value_kind v)
{
	tt_buf_printf(b, "complete -c titan -n '__fish_seen_subcommand_from %s' -l %s", seen, name);
	if (takes && v.n && v.list) {
		tt_buf_str(b, " -x -a \"(__fish_complete_list , 'printf \\\"%s\\\\n\\\"");
		for (int i = 0; i < v.n; i++)
			tt_buf_printf(b, " %s", v.words[i]);
		tt_buf_str(b, "')\"");
	} else if (takes && v.n) {
		tt_buf_str(b, " -x -a '");
		add_words(b, v.words, v.n);
		tt_buf_str(b, "'");
	} else if (takes) {
		tt_buf_str(b, v.file ? " -r -F" : " -x");
	}
	tt_buf_str(b, " -d '");
	quoted(b, doc, "\\'", "\\");
	tt_buf_str(b, "'\n");
}

static void fish(tt_arena *a, tt_buf *b)
{
	tt_buf_str(b, "# fish completion of titan, made by: titan help --completion=fish\n");
	tt_buf config = { 0 };
	for (const tt_command *c = tt_commands; c->name; c++) {
		tt_usage u[TT_USAGES];
		tt_usage_flag f[TT_USAGE_FLAGS];
		int nu = tt_usage_split(a, c, u), nf = tt_usage_flags(a, c, f);
		tt_buf_printf(b, "complete -c titan -f -n __fish_use_subcommand -a %s -d '", c->name);
		quoted(b, c->doc, "\\'", "\\");
		tt_buf_str(b, "'\n");
		for (int i = 0; i < nu; i++)
			if (u[i].verb)
				tt_buf_printf(b, "complete -c titan -n '__fish_seen_subcommand_from %s' -a %s\n", c->name, u[i].verb);
		for (int i = 0; i < nf; i++)
			fish_flag(b, c->name, f[i].name + 2, f[i].doc, f[i].value, (value_kind){ f[i].words.items, f[i].words.n, false, f[i].file });
		if (tt_usage_takes_config(c))
			tt_buf_printf(&config, "%s%s", config.n ? " " : "", c->name);
	}
	tt_buf_str(b, "complete -c titan -f -n __fish_use_subcommand -a help -d 'usage of a command'\n");
	value_kind shells = { (const char *const[]){ "bash", "zsh", "fish" }, 3, false, false };
	fish_flag(b, "help", "completion", "for a shell", true, shells);
	const char *takers = config.s ? config.s : "";
	for (const tt_short_flag *f = tt_short_flags; f->shorthand; f++)
		fish_flag(b, takers, tt_arena_printf(a, "%.*s", (int)strlen(f->shorthand) - 3, f->shorthand + 2), f->doc, true, kind_of(key_of(f)));
	for (int i = 0; i < tt_keys_n; i++)
		if (tt_keys[i].type != TT_KEY_TABLES)
			fish_flag(b, takers, tt_keys[i].full, tt_keys[i].doc, true, kind_of(&tt_keys[i]));
	tt_buf_fini(&config);
}

tt_status tt_completion(const char *shell, tt_buf *b)
{
	static const struct { const char *shell; void (*make)(tt_arena *a, tt_buf *b); } makers[] = { { "bash", bash }, { "zsh", zsh }, { "fish", fish } };
	for (int i = 0; i < TT_COUNT(makers); i++)
		if (!strcmp(shell, makers[i].shell)) {
			tt_arena *a = tt_arena_create("completion");
			makers[i].make(a, b);
			tt_arena_destroy(a);
			return TT_OK;
		}
	TT_FAIL(TT_ERR_USAGE, "completions are made for bash, zsh and fish, not \"%s\"", shell);
}
