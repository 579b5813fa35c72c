/* Loading: defaults, then a TOML file, then flags, then the rules between keys. */
#include "config/keys.h"

typedef struct loader {
	tt_arena *arena;
	tt_config *cfg;
	const char **sources; /* by row; the config's own array while it is being made */
	bool *in_file;        /* by row: set by the file */
	const char **warnings;
	int64_t warnings_n, warnings_cap;
	const char **wrong; /* all that is wrong with keys, so that a file of another program's is not mended key by key */
	int64_t wrong_n, wrong_cap;
} loader;

static void warn(void *ctx, const char *text)
{
	loader *l = ctx;
	TT_PUSH(l->arena, l->warnings, l->warnings_n, l->warnings_cap, text);
}

/* Notes an error of a key; others are looked at all the same. */
static tt_status note(loader *l, tt_status s)
{
	if (s != TT_ERR_USAGE)
		return s;
	const char *text = tt_arena_strdup(l->arena, tt_error_text());
	TT_PUSH(l->arena, l->wrong, l->wrong_n, l->wrong_cap, text);
	return TT_OK;
}

static tt_status fail_noted(const loader *l)
{
	enum { MOST = 30, BYTES = 3600 }; /* of an error's text there is room for 4096 */
	if (l->wrong_n == 0)
		return TT_OK;
	if (l->wrong_n == 1)
		TT_FAIL(TT_ERR_USAGE, "%s", l->wrong[0]);
	const char *all = tt_arena_printf(l->arena, "%lld keys are wrong:", (long long)l->wrong_n);
	int64_t i = 0;
	for (; i < l->wrong_n && i < MOST && (i == 0 || strlen(all) + strlen(l->wrong[i]) < BYTES); i++)
		all = tt_arena_printf(l->arena, "%s\n  %s", all, l->wrong[i]);
	TT_FAIL(TT_ERR_USAGE, "%s%s", all, i < l->wrong_n ? tt_arena_printf(l->arena, "\n  and %lld more", (long long)(l->wrong_n - i)) : "");
}

/* ---- names that are no keys ------------------------------------------------------------------------------------- */

/* The nearest key for a message: the very name in another section, else a similar one in this section, else a similar
 * one anywhere. */
static const char *nearest_key(tt_arena *a, const char *section, const char *name)
{
	const char **words = TT_NEWN(a, const char *, tt_keys_n);
	int n = 0;
	for (int i = 0; i < tt_keys_n; i++) {
		if (strcmp(tt_keys[i].name, name) == 0)
			return tt_keys[i].full;
		if (strcmp(tt_keys[i].section, section) == 0)
			words[n++] = tt_keys[i].name;
	}
	const char *near = tt_nearest(name, words, n);
	if (near != NULL)
		return tt_keys[tt_key_find(section, near)].full;
	for (int i = 0; i < tt_keys_n; i++)
		words[i] = tt_keys[i].name;
	near = tt_nearest(name, words, tt_keys_n);
	for (int i = 0; i < tt_keys_n && near != NULL; i++)
		if (strcmp(tt_keys[i].name, near) == 0)
			return tt_keys[i].full;
	return NULL;
}

static bool section_exists(const char *name)
{
	for (int i = 0; i < tt_key_sections_n; i++)
		if (strcmp(tt_key_sections[i].name, name) == 0)
			return true;
	return false;
}

static const char *nearest_section(tt_arena *a, const char *name)
{
	const char **words = TT_NEWN(a, const char *, tt_key_sections_n);
	for (int i = 0; i < tt_key_sections_n; i++)
		words[i] = tt_key_sections[i].name;
	return tt_nearest(name, words, tt_key_sections_n);
}

static tt_status fail_unknown_key(loader *l, const char *where, const char *section, const char *name)
{
	bool none = section_exists(section);
	for (int i = 0; i < tt_keys_n && none; i++)
		none = strcmp(tt_keys[i].section, section) != 0;
	const char *near = nearest_key(l->arena, section, name);
	section = tt_key_shown(l->arena, section, false);
	name = tt_key_shown(l->arena, name, false);
	if (none)
		TT_FAIL(TT_ERR_USAGE, "%s: unknown key %s.%s: [%s] has no keys in this version", where, section, name, section);
	if (near != NULL)
		TT_FAIL(TT_ERR_USAGE, "%s: unknown key %s.%s; did you mean %s?", where, section, name, near);
	TT_FAIL(TT_ERR_USAGE, "%s: unknown key %s.%s (`titan config --doc` lists all)", where, section, name);
}

static tt_status fail_unknown_section(loader *l, const char *where, const char *name)
{
	const char *near = nearest_section(l->arena, name);
	name = tt_key_shown(l->arena, name, false);
	if (near != NULL)
		TT_FAIL(TT_ERR_USAGE, "%s: unknown section [%s]; did you mean [%s]?", where, name, near);
	TT_FAIL(TT_ERR_USAGE, "%s: unknown section [%s] (`titan config --doc` lists all)", where, name);
}

/* Row of section.name after aliases, which warn. `*row` is -1 if there is no such key at all. */
static tt_status resolve(loader *l, const char *where, const char *section, const char *name, int *row)
{
	*row = tt_key_find(section, name);
	if (*row >= 0)
		return TT_OK;
	const tt_alias *alias = tt_alias_find(section, name);
	if (alias == NULL)
		return TT_OK;
	if (alias->now == NULL)
		TT_FAIL(TT_ERR_USAGE, "%s: there is no %s.%s here: %s", where, section, name, alias->advice);
	const char *dot = strchr(alias->now, '.');
	const char *now_section = tt_arena_strndup(l->arena, alias->now, (size_t)(dot - alias->now));
	const char *now_name = strcmp(dot + 1, "*") == 0 ? name : dot + 1;
	*row = tt_key_find(now_section, now_name);
	if (*row < 0)
		return fail_unknown_key(l, where, now_section, now_name);
	warn(l, tt_arena_printf(l->arena, "%s: %s.%s is spelled %s here", where, section, name, tt_keys[*row].full));
	return TT_OK;
}

/* ---- file ---------------------------------------------------------------------------------------------------------- */

/* Names are C strings from here on. */
static tt_status check_name(const char *where, const tt_toml_node *v)
{
	if (strlen(v->key) != v->key_n)
		TT_FAIL(TT_ERR_USAGE, "%s: a key may not hold a NUL character", where);
	return TT_OK;
}

static tt_status load_key(loader *l, const char *section, const tt_toml_node *v)
{
	const char *where = tt_toml_where_key(l->arena, v);
	TT_TRY(check_name(where, v));
	int row;
	TT_TRY(resolve(l, where, section, v->key, &row));
	if (row < 0)
		return fail_unknown_key(l, where, section, v->key);
	const tt_key *k = &tt_keys[row];
	if (l->in_file[row])
		TT_FAIL(TT_ERR_USAGE, "%s: %s.%s and the key at %s are one, %s; keep one of them", where, section,
			v->key, l->sources[row], k->full);
	TT_TRY(tt_key_set(l->arena, k, l->cfg, v, tt_toml_where(l->arena, v), k->full));
	l->in_file[row] = true;
	l->sources[row] = where;
	return TT_OK;
}

static tt_status check_section(loader *l, const tt_toml_node *s)
{
	const char *where = tt_toml_where_key(l->arena, s);
	TT_TRY(check_name(where, s));
	bool exists = section_exists(s->key);
	if (!exists && s->kind != TT_TOML_TABLE) {
		const char *near = nearest_key(l->arena, "", s->key);
		TT_FAIL(TT_ERR_USAGE, "%s: the key %s stands outside any section%s%s%s", where,
			tt_key_shown(l->arena, s->key, false),
			near == NULL ? "" : "; did you mean ", near == NULL ? "" : near,
			near == NULL ? "" : "?");
	}
	if (s->kind != TT_TOML_TABLE)
		TT_FAIL(TT_ERR_USAGE, "%s: %s wants to be a section, [%s], got %s", where, s->key, s->key,
			tt_toml_kind_name(s->kind));
	if (!exists && !tt_alias_section(s->key))
		return fail_unknown_section(l, where, s->key);
	return TT_OK;
}

/* What is wrong with one key, or a section, is noted, and the others are looked at. */
static tt_status load_file(loader *l, const tt_toml_node *root)
{
	for (const tt_toml_node *s = root->as.list.first; s != NULL; s = s->next) {
		int64_t before = l->wrong_n;
		TT_TRY(note(l, check_section(l, s)));
		if (l->wrong_n > before)
			continue;
		for (const tt_toml_node *v = s->as.list.first; v != NULL; v = v->next) {
			before = l->wrong_n;
			TT_TRY(note(l, load_key(l, s->key, v)));
			if (l->wrong_n > before && tt_alias_refuses(s->key)) /* the whole section: said once */
				break;
		}
	}
	return TT_OK;
}

/* ---- flags ------------------------------------------------------------------------------------------------------------ */

static tt_toml_node *string_node(tt_arena *a, const char *s, size_t n)
{
	tt_toml_node *v = TT_NEW(a, tt_toml_node);
	v->kind = TT_TOML_STRING;
	v->as.string.s = tt_arena_strndup(a, s, n);
	v->as.string.n = n;
	return v;
}

/* A flag's value as a node. Strings are taken as they stand unless quoted, lists are split at commas unless they are
 * TOML arrays; everything else is a TOML value, and a string for the message if it is none. */
static tt_status flag_value(loader *l, const tt_key *k, const char *flag, const char *s, tt_toml_node **out)
{
	bool quoted = s[0] == '"' || s[0] == '\'';
	bool words = k->type == TT_KEY_STRING || k->type == TT_KEY_ENUM;
	if (words && !quoted) {
		*out = string_node(l->arena, s, strlen(s));
		return TT_OK;
	}
	if (k->type == TT_KEY_STRINGS && s[0] != '[') {
		tt_toml_node *list = TT_NEW(l->arena, tt_toml_node);
		list->kind = TT_TOML_ARRAY;
		while (*s != '\0') {
			size_t n = strcspn(s, ",");
			tt_toml_node *v = string_node(l->arena, s, n);
			if (list->as.list.last == NULL)
				list->as.list.first = v;
			else
				list->as.list.last->next = v;
			list->as.list.last = v;
			list->as.list.n++;
			s += n + (s[n] == ',');
		}
		*out = list;
		return TT_OK;
	}
	tt_status st = tt_toml_parse_value(l->arena, tt_arena_printf(l->arena, "--%s", k->full), s, strlen(s), out);
	bool strict = words || k->type == TT_KEY_STRINGS || k->type == TT_KEY_TABLES;
	if (st != TT_OK && k->type == TT_KEY_INT && s[0] != '\0' && s[strspn(s, "+-_0123456789")] == '\0') { /* digits: more than there is room for */
		tt_buf range = {0};
		tt_key_print_range(k, &range);
		const char *text = tt_arena_strdup(l->arena, range.s);
		tt_buf_fini(&range);
		TT_FAIL(TT_ERR_USAGE, "%s: %s = %s is out of range: %s", flag, k->full, s, text);
	}
	if (st != TT_OK && !strict) {
		*out = string_node(l->arena, s, strlen(s));
		st = TT_OK;
	}
	if (st != TT_OK)
		TT_FAIL(TT_ERR_USAGE, "%s: the value is no TOML: %s", flag, tt_error_text());
	return TT_OK;
}

/* No section: is it a key's name alone? */
static tt_status fail_no_flag(loader *l, const char *flag)
{
	const char *name = flag + strspn(flag, "-");
	const char *near = nearest_key(l->arena, "", tt_arena_strndup(l->arena, name, strcspn(name, "=")));
	if (near != NULL)
		TT_FAIL(TT_ERR_USAGE, "%s: a config flag looks like --section.key=value; did you mean --%s%s?", flag, near,
			name + strcspn(name, "="));
	TT_FAIL(TT_ERR_USAGE, "%s: a config flag looks like --section.key=value (`titan config --doc` lists all keys)", flag);
}

static tt_status load_flag(loader *l, const char *flag)
{
	const char *dot = strchr(flag, '.'), *equals = strchr(flag, '=');
	if (strncmp(flag, "--", 2) != 0 || dot == NULL || (equals != NULL && dot > equals))
		return fail_no_flag(l, flag);
	/* A config that holds anything else could not be printed, nor kept in a checkpoint. */
	if (!tt_toml_is_utf8(flag, strlen(flag)))
		TT_FAIL(TT_ERR_USAGE, "%s: the flag is not valid UTF-8", flag);
	size_t name_n = equals == NULL ? strlen(dot + 1) : (size_t)(equals - dot - 1);
	const char *section = tt_arena_strndup(l->arena, flag + 2, (size_t)(dot - flag - 2));
	const char *name = tt_arena_strndup(l->arena, dot + 1, name_n);
	if (!section_exists(section) && !tt_alias_section(section))
		return fail_unknown_section(l, flag, section);
	int row;
	TT_TRY(resolve(l, flag, section, name, &row));
	if (row < 0)
		return fail_unknown_key(l, flag, section, name);
	const tt_key *k = &tt_keys[row];
	bool yes = k->type == TT_KEY_BOOL || k->type == TT_KEY_TRI;
	if (equals == NULL && !yes)
		TT_FAIL(TT_ERR_USAGE, "%s: %s wants %s: %s=...", flag, k->full, tt_key_type_name(k), flag);
	tt_toml_node *v;
	TT_TRY(flag_value(l, k, flag, equals == NULL ? "true" : equals + 1, &v));
	TT_TRY(tt_key_set(l->arena, k, l->cfg, v, flag, k->full));
	l->sources[row] = tt_arena_strdup(l->arena, flag);
	return TT_OK;
}

/* ---- the whole ------------------------------------------------------------------------------------------------------------ */

static tt_status load(tt_arena *a, const tt_toml_node *root, int nflags, const char *const *flags, tt_config **out)
{
	loader l = {.arena = a};
	l.cfg = TT_NEW(a, tt_config);
	l.sources = TT_NEWN(a, const char *, tt_keys_n);
	l.in_file = TT_NEWN(a, bool, tt_keys_n);
	l.cfg->sources = l.sources;
	for (int i = 0; i < tt_keys_n; i++)
		tt_key_set_default(&tt_keys[i], l.cfg);
	if (root != NULL)
		TT_TRY(load_file(&l, root));
	for (int i = 0; i < nflags; i++)
		TT_TRY(note(&l, load_flag(&l, flags[i])));
	TT_TRY(fail_noted(&l));
	TT_TRY(tt_config_check(a, l.cfg, warn, &l));
	l.cfg->warnings = (tt_strings){l.warnings, (int)l.warnings_n};
	TT_TRY(tt_arena_ok(a));
	*out = l.cfg;
	return TT_OK;
}

tt_status tt_config_load_text(tt_arena *a, const char *name, const char *text, size_t n, int nflags,
			      const char *const *flags, tt_config **out)
{
	tt_toml_node *root;
	TT_TRY(tt_toml_parse(a, tt_arena_strdup(a, name), text, n, &root));
	return load(a, root, nflags, flags, out);
}

tt_status tt_config_load(tt_arena *a, const char *path, int nflags, const char *const *flags, tt_config **out)
{
	if (path == NULL)
		return load(a, NULL, nflags, flags, out);
	char *text;
	size_t n;
	TT_TRY(tt_file_read(a, path, &text, &n));
	return tt_config_load_text(a, path, text, n, nflags, flags, out);
}

const char *tt_config_source(const tt_config *cfg, const char *key)
{
	for (int i = 0; i < tt_keys_n; i++)
		if (strcmp(tt_keys[i].full, key) == 0)
			return cfg->sources[i];
	tt_panic(__FILE__, __LINE__, "no config key %s", key);
}

static bool by_flag(const char *source) { return source != NULL && strncmp(source, "--", 2) == 0; }

const char *tt_config_at(tt_arena *a, const tt_config *cfg, const char *key, const char *other)
{
	const char *source = tt_config_source(cfg, key), *second = other == NULL ? NULL : tt_config_source(cfg, other);
	if (source == NULL || (by_flag(second) && !by_flag(source)))
		source = second;
	return source == NULL ? "" : tt_arena_printf(a, "%s: ", source);
}

const char *tt_config_flags(tt_arena *a, const tt_config *cfg, const char *section)
{
	const char *flags = "";
	for (int i = 0; i < tt_keys_n; i++)
		if (strcmp(tt_keys[i].section, section) == 0 && by_flag(cfg->sources[i]))
			flags = tt_arena_printf(a, "%s%s%s", flags, flags[0] != '\0' ? " " : "", cfg->sources[i]);
	return flags;
}

void tt_config_note(tt_arena *a, tt_config *now, const tt_config *was, const char *note)
{
	const char **notes = TT_NEWN(a, const char *, tt_keys_n);
	for (int i = 0; i < tt_keys_n; i++)
		notes[i] = !tt_key_same(&tt_keys[i], now, was) ? note : now->notes != NULL ? now->notes[i] : NULL;
	now->notes = notes;
}

void tt_config_log_warnings(const tt_config *cfg)
{
	for (int i = 0; i < cfg->warnings.n; i++)
		tt_log(TT_LOG_WARN, "%s", cfg->warnings.items[i]);
}
