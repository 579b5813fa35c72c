/* The table of keys, made from keys.def, and the conversions between TOML values and members of tt_config. */
#include <stdio.h>
#include <stdlib.h>

#include "config/keys.h"

/* ---- tables ------------------------------------------------------------------------------------------------------ */

#define TT_CHOICES(type) static const char *const type##_words[] = {
#define TT_CHOICE(constant, word) [constant] = word,
#define TT_CHOICES_END(type) };
#include "config/choices.def"

#define TT_CHOICES(type)                                                                                               \
	_Static_assert(sizeof(type) == sizeof(int), "enum keys are stored as int");                                    \
	const char *type##_word(type v)                                                                                \
	{                                                                                                              \
		TT_ASSERT((unsigned)v < (unsigned)TT_COUNT(type##_words), "value %d", (int)v);                         \
		return type##_words[v];                                                                                \
	}
#define TT_CHOICE(constant, word)
#define TT_CHOICES_END(type)
#include "config/choices.def"

#define ROW(sec, k, t, d) .section = #sec, .name = #k, .full = #sec "." #k, .doc = d, .type = t, .offset = AT(sec, k)
#define WORDS(t) .choices = {t##_words, TT_COUNT(t##_words)}
#define TT_SECTION(sec, d)
#define TT_SECTION_END(sec)
#define TT_BOOL(sec, k, d, text) {ROW(sec, k, TT_KEY_BOOL, text), .def.b = d},
#define TT_BOOL_ONLY(sec, k, d, y, text) {ROW(sec, k, TT_KEY_BOOL, text), .def.b = d, .why = y},
#define TT_TRI(sec, k, text) {ROW(sec, k, TT_KEY_TRI, text), .def.i = TT_TRI_AUTO, WORDS(tt_tri)},
#define TT_INT(sec, k, d, lo, hi, text) TT_INT_WHY(sec, k, d, lo, hi, NULL, text)
#define TT_INT_WHY(sec, k, d, lo, hi, y, text)                                                                           \
	{ROW(sec, k, TT_KEY_INT, text), .def.i = d, .i_least = lo, .i_most = hi, .why = y},
#define TT_FLOAT(sec, k, d, open, lo, hi, close, text)                                                                   \
	{ROW(sec, k, TT_KEY_FLOAT, text), .def.f = d, .f_open = open, .f_least = lo, .f_most = hi, .f_close = close},
#define TT_STRING(sec, k, d, text) {ROW(sec, k, TT_KEY_STRING, text), .def.s = d},
#define TT_STRINGS(sec, k, text) {ROW(sec, k, TT_KEY_STRINGS, text)},
#define TT_STRINGS_OF(sec, k, t, text) {ROW(sec, k, TT_KEY_STRINGS, text), WORDS(t)},
#define TT_ENUM(sec, k, t, d, text) {ROW(sec, k, TT_KEY_ENUM, text), .def.i = d, WORDS(t)},
#define TT_ENUM_ONLY(sec, k, t, d, y, text) {ROW(sec, k, TT_KEY_ENUM, text), .def.i = d, .why = y, WORDS(t)},
#define TT_TABLES(sec, k, t, rows, text)                                                                                 \
	{ROW(sec, k, TT_KEY_TABLES, text), .sub = rows##_keys, .sub_n = TT_COUNT(rows##_keys), .sub_size = sizeof(t)},

#define AT(sec, k) offsetof(tt_param_group, k)
static const tt_key param_group_keys[] = {
#define TT_KEYS_PARAM_GROUP
#include "config/keys.def"
#undef TT_KEYS_PARAM_GROUP
};
#undef AT
#define AT(sec, k) offsetof(tt_layout_entry, k)
static const tt_key layout_keys[] = {
#define TT_KEYS_LAYOUT
#include "config/keys.def"
#undef TT_KEYS_LAYOUT
};
#undef AT
#define AT(sec, k) offsetof(tt_config, sec.k)
const tt_key tt_keys[] = {
#define TT_KEYS_CONFIG
#include "config/keys.def"
};
const int tt_keys_n = TT_COUNT(tt_keys);

#include "config/keys_end.def"
#define TT_SECTION(sec, d) {#sec, d},
#define TT_SECTION_END(...)
#define TT_BOOL(...)
#define TT_BOOL_ONLY(...)
#define TT_TRI(...)
#define TT_INT(...)
#define TT_INT_WHY(...)
#define TT_FLOAT(...)
#define TT_STRING(...)
#define TT_STRINGS(...)
#define TT_STRINGS_OF(...)
#define TT_ENUM(...)
#define TT_ENUM_ONLY(...)
#define TT_TABLES(...)
const tt_key_section tt_key_sections[] = {
#include "config/keys.def"
#undef TT_KEYS_CONFIG
};
const int tt_key_sections_n = TT_COUNT(tt_key_sections);

int tt_key_find(const char *section, const char *name)
{
	for (int i = 0; i < tt_keys_n; i++)
		if (strcmp(tt_keys[i].section, section) == 0 && strcmp(tt_keys[i].name, name) == 0)
			return i;
	return -1;
}

/* ---- members -------------------------------------------------------------------------------------------------------- */

/* What TT_TABLES declares, with the entries' type forgotten. Pointers to any struct look the same on our machines. */
typedef struct table_list {
	void *items;
	int n;
} table_list;

static void put(const tt_key *k, void *base, const void *value, size_t n)
{
	memcpy((char *)base + k->offset, value, n);
}

static void get(const tt_key *k, const void *base, void *value, size_t n)
{
	memcpy(value, (const char *)base + k->offset, n);
}

void tt_key_set_default(const tt_key *k, void *base)
{
	switch (k->type) {
	case TT_KEY_BOOL: put(k, base, &k->def.b, sizeof k->def.b); return;
	case TT_KEY_INT: put(k, base, &k->def.i, sizeof k->def.i); return;
	case TT_KEY_FLOAT: put(k, base, &k->def.f, sizeof k->def.f); return;
	case TT_KEY_STRING: put(k, base, &k->def.s, sizeof k->def.s); return;
	case TT_KEY_STRINGS: put(k, base, &(tt_strings){0}, sizeof(tt_strings)); return;
	case TT_KEY_TABLES: put(k, base, &(table_list){0}, sizeof(table_list)); return;
	case TT_KEY_TRI:
	case TT_KEY_ENUM: {
		int word = (int)k->def.i;
		put(k, base, &word, sizeof word);
		return;
	}
	}
}

/* ---- text of values and ranges -------------------------------------------------------------------------------------- */

/* The shortest decimal that reads back as the same double, with a point or exponent so that TOML reads a float. */
static void print_float(tt_buf *b, double f)
{
	char t[40];
	for (int digits = 1; digits <= 17; digits++) {
		snprintf(t, sizeof t, "%.*g", digits, tt_plain_nan(f));
		if (strtod(t, NULL) == f)
			break;
	}
	tt_buf_str(b, t);
	if (strpbrk(t, ".en") == NULL)
		tt_buf_str(b, ".0");
}

static void print_string(tt_buf *b, const char *s)
{
	tt_toml_quote(b, s, strlen(s));
}

void tt_key_print_value(const tt_key *k, const void *base, tt_buf *b)
{
	switch (k->type) {
	case TT_KEY_BOOL: {
		bool v;
		get(k, base, &v, sizeof v);
		tt_buf_str(b, v ? "true" : "false");
		return;
	}
	case TT_KEY_INT: {
		int64_t v;
		get(k, base, &v, sizeof v);
		tt_buf_printf(b, "%lld", (long long)v);
		return;
	}
	case TT_KEY_FLOAT: {
		double v;
		get(k, base, &v, sizeof v);
		print_float(b, v);
		return;
	}
	case TT_KEY_STRING: {
		const char *v;
		get(k, base, &v, sizeof v);
		print_string(b, v);
		return;
	}
	case TT_KEY_STRINGS: {
		tt_strings v;
		get(k, base, &v, sizeof v);
		tt_buf_str(b, "[");
		for (int i = 0; i < v.n; i++) {
			tt_buf_str(b, i == 0 ? "" : ", ");
			print_string(b, v.items[i]);
		}
		tt_buf_str(b, "]");
		return;
	}
	case TT_KEY_TRI:
	case TT_KEY_ENUM: {
		int v;
		get(k, base, &v, sizeof v);
		if (k->type == TT_KEY_TRI && v != TT_TRI_AUTO)
			tt_buf_str(b, k->choices.words[v]);
		else
			print_string(b, k->choices.words[v]);
		return;
	}
	case TT_KEY_TABLES: {
		table_list v;
		get(k, base, &v, sizeof v);
		tt_buf_str(b, "[");
		for (int i = 0; i < v.n; i++) {
			tt_buf_str(b, i == 0 ? "{" : ", {");
			for (int j = 0; j < k->sub_n; j++) {
				tt_buf_printf(b, "%s%s = ", j == 0 ? "" : ", ", k->sub[j].name);
				tt_key_print_value(&k->sub[j], (const char *)v.items + (size_t)i * k->sub_size, b);
			}
			tt_buf_str(b, "}");
		}
		tt_buf_str(b, "]");
		return;
	}
	}
}

bool tt_key_same(const tt_key *k, const void *x, const void *y)
{
	tt_buf a = {0}, b = {0};
	tt_key_print_value(k, x, &a);
	tt_key_print_value(k, y, &b);
	bool same = strcmp(a.s, b.s) == 0;
	tt_buf_fini(&a);
	tt_buf_fini(&b);
	return same;
}

static void print_words(tt_buf *b, const tt_choices *c)
{
	int n = 0; /* the empty word is the default of what may not be left out */
	for (int i = 0; i < c->n; i++) {
		if (!c->words[i][0])
			continue;
		tt_buf_str(b, n++ == 0 ? "" : ", ");
		print_string(b, c->words[i]);
	}
}

void tt_key_print_range(const tt_key *k, tt_buf *b)
{
	if (k->type == TT_KEY_INT) {
		if (k->i_least == k->i_most)
			tt_buf_printf(b, "%lld only", (long long)k->i_least);
		else if (k->i_most == INT64_MAX) /* no integer is above it */
			tt_buf_printf(b, "at least %lld", (long long)k->i_least);
		else
			tt_buf_printf(b, "%lld to %lld", (long long)k->i_least, (long long)k->i_most);
		if (k->def.i < k->i_least || k->def.i > k->i_most)
			tt_buf_printf(b, " (or %lld)", (long long)k->def.i);
	} else if (k->type == TT_KEY_FLOAT) {
		tt_buf_printf(b, "in %c", k->f_open);
		print_float(b, k->f_least);
		tt_buf_str(b, ", ");
		print_float(b, k->f_most);
		tt_buf_printf(b, "%c", k->f_close);
		if (k->def.f < k->f_least || (k->def.f == k->f_least && k->f_open == '(')) {
			tt_buf_str(b, " (or ");
			print_float(b, k->def.f);
			tt_buf_str(b, ")");
		}
	} else if (k->choices.n > 0 && k->type != TT_KEY_TRI) {
		tt_buf_str(b, k->type == TT_KEY_STRINGS ? "of " : "");
		print_words(b, &k->choices);
	}
}

void tt_key_print_takes(const tt_key *k, tt_buf *b)
{
	tt_buf range = {0};
	tt_buf_str(b, tt_key_type_name(k));
	tt_key_print_range(k, &range);
	if (range.n > 0)
		tt_buf_printf(b, "%s%s", k->type == TT_KEY_STRINGS ? " " : ": ", range.s);
	tt_buf_fini(&range);
	if (k->why != NULL)
		tt_buf_printf(b, "; %s%s", k->type == TT_KEY_INT ? "" : "only the default: ", k->why);
}

void tt_key_walk(void (*visit)(void *ctx, const tt_key_group *g), void *ctx)
{
	tt_arena *a = tt_arena_create("keys");
	tt_config *defaults = TT_NEW(a, tt_config);
	for (int i = 0; i < tt_keys_n; i++)
		tt_key_set_default(&tt_keys[i], defaults);
	int row = 0;
	for (int s = 0; s < tt_key_sections_n; s++) {
		const tt_key_section *section = &tt_key_sections[s];
		int first = row;
		while (row < tt_keys_n && strcmp(tt_keys[row].section, section->name) == 0)
			row++;
		visit(ctx, &(tt_key_group){section, NULL, &tt_keys[first], row - first, defaults});
		for (int i = first; i < row; i++) {
			const tt_key *k = &tt_keys[i];
			if (k->type != TT_KEY_TABLES)
				continue;
			void *entry = tt_arena_alloc(a, k->sub_size);
			for (int j = 0; j < k->sub_n; j++)
				tt_key_set_default(&k->sub[j], entry);
			visit(ctx, &(tt_key_group){section, k, k->sub, k->sub_n, entry});
		}
	}
	TT_ASSERT(row == tt_keys_n, "keys.def: section %s stands in two places", tt_keys[row].section);
	tt_arena_destroy(a);
}

const char *tt_key_type_name(const tt_key *k)
{
	switch (k->type) {
	case TT_KEY_BOOL: return "a boolean";
	case TT_KEY_TRI: return "a boolean or \"auto\"";
	case TT_KEY_INT: return "an integer";
	case TT_KEY_FLOAT: return "a float";
	case TT_KEY_STRING:
	case TT_KEY_ENUM: return "a string";
	case TT_KEY_STRINGS: return "an array of strings";
	case TT_KEY_TABLES: return "an array of tables";
	}
	return "nothing";
}

const char *tt_toml_where(tt_arena *a, const tt_toml_node *v)
{
	return tt_arena_printf(a, "%s:%d:%d", v->file, v->line, v->column);
}

const char *tt_toml_where_key(tt_arena *a, const tt_toml_node *v)
{
	return tt_arena_printf(a, "%s:%d:%d", v->file, v->key_line, v->key_column);
}

/* ---- from TOML --------------------------------------------------------------------------------------------------------- */

/* Where a value stands, what it is for: passed down to the message. */
typedef struct place {
	tt_arena *arena;
	const char *where, *label;
} place;

/* A value in a message: the kind, and the text of short ones. */
static const char *shown_value(tt_arena *a, const tt_toml_node *v)
{
	tt_buf b = {0};
	tt_buf_str(&b, tt_toml_kind_name(v->kind));
	if (v->kind == TT_TOML_STRING && v->as.string.n <= 60) {
		tt_buf_str(&b, " ");
		tt_toml_quote(&b, v->as.string.s, v->as.string.n);
	} else if (v->kind == TT_TOML_INTEGER) {
		tt_buf_printf(&b, " (%lld)", (long long)v->as.integer);
	} else if (v->kind == TT_TOML_FLOAT) {
		tt_buf_str(&b, " (");
		print_float(&b, v->as.real);
		tt_buf_str(&b, ")");
	} else if (v->kind == TT_TOML_BOOL) {
		tt_buf_str(&b, v->as.boolean ? " (true)" : " (false)");
	}
	char *s = tt_arena_strndup(a, b.s, b.n);
	tt_buf_fini(&b);
	return s;
}

static tt_status fail_type(const place *p, const char *wants, const tt_toml_node *v)
{
	TT_FAIL(TT_ERR_USAGE, "%s: %s wants %s, got %s", p->where, p->label, wants, shown_value(p->arena, v));
}

static tt_status fail_range(const place *p, const tt_key *k, const char *value)
{
	tt_buf b = {0};
	tt_key_print_range(k, &b);
	const char *range = tt_arena_strndup(p->arena, b.s, b.n);
	tt_buf_fini(&b);
	TT_FAIL(TT_ERR_USAGE, "%s: %s = %s is out of range: %s%s%s", p->where, p->label, value, range,
		k->why == NULL ? "" : "; ", k->why == NULL ? "" : k->why);
}

static tt_status read_string(const place *p, const char *wants, const tt_toml_node *v, const char **out)
{
	if (v->kind != TT_TOML_STRING)
		return fail_type(p, wants, v);
	if (memchr(v->as.string.s, '\0', v->as.string.n) != NULL)
		TT_FAIL(TT_ERR_USAGE, "%s: %s may not hold a NUL character", p->where, p->label);
	*out = v->as.string.s;
	return TT_OK;
}

/* A name or word of the user's, fit for a message: short, and quoted if it holds anything odd. */
const char *tt_key_shown(tt_arena *a, const char *s, bool quoted)
{
	size_t n = strlen(s);
	static const char PLAIN[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-";
	if (!quoted && n > 0 && n <= 60 && strspn(s, PLAIN) == n)
		return s;
	bool cut = n > 60;
	if (cut)
		for (n = 60; n > 0 && ((unsigned char)s[n] & 0xc0) == 0x80;)
			n--;
	tt_buf b = {0};
	tt_toml_quote(&b, s, n);
	const char *text = tt_arena_printf(a, "%s%s", b.s, cut ? "..." : "");
	tt_buf_fini(&b);
	return text;
}

static tt_status read_word(const place *p, const tt_choices *c, const char *word, int *out)
{
	for (int i = 0; i < c->n; i++) {
		if (strcmp(c->words[i], word) == 0) {
			*out = i;
			return TT_OK;
		}
	}
	tt_buf b = {0};
	print_words(&b, c);
	const char *near = tt_nearest(word, c->words, c->n), *advice = tt_value_advice(p->label, word);
	if (advice != NULL)
		tt_buf_printf(&b, "; %s", advice);
	else if (near != NULL)
		tt_buf_printf(&b, "; did you mean \"%s\"?", near);
	const char *text = tt_arena_strndup(p->arena, b.s, b.n);
	tt_buf_fini(&b);
	TT_FAIL(TT_ERR_USAGE, "%s: %s = %s is none of %s", p->where, p->label, tt_key_shown(p->arena, word, true), text);
}

static tt_status set_int(const place *p, const tt_key *k, void *base, const tt_toml_node *v)
{
	if (v->kind != TT_TOML_INTEGER)
		return fail_type(p, tt_key_type_name(k), v);
	int64_t i = v->as.integer;
	if ((i < k->i_least || i > k->i_most) && i != k->def.i)
		return fail_range(p, k, tt_arena_printf(p->arena, "%lld", (long long)i));
	put(k, base, &i, sizeof i);
	return TT_OK;
}

static tt_status set_float(const place *p, const tt_key *k, void *base, const tt_toml_node *v)
{
	if (v->kind != TT_TOML_FLOAT && v->kind != TT_TOML_INTEGER)
		return fail_type(p, tt_key_type_name(k), v);
	double f = v->kind == TT_TOML_FLOAT ? v->as.real : (double)v->as.integer;
	bool in = (f > k->f_least || (f == k->f_least && k->f_open == '[')) &&
		  (f < k->f_most || (f == k->f_most && k->f_close == ']'));
	if (!in && f != k->def.f) {
		tt_buf b = {0};
		print_float(&b, f);
		const char *text = tt_arena_strndup(p->arena, b.s, b.n);
		tt_buf_fini(&b);
		return fail_range(p, k, text);
	}
	put(k, base, &f, sizeof f);
	return TT_OK;
}

static tt_status set_strings(const place *p, const tt_key *k, void *base, const tt_toml_node *v)
{
	if (v->kind != TT_TOML_ARRAY)
		return fail_type(p, tt_key_type_name(k), v);
	const char **items = TT_NEWN(p->arena, const char *, v->as.list.n + 1);
	int n = 0;
	for (const tt_toml_node *c = v->as.list.first; c != NULL; c = c->next) {
		place inner = {p->arena, p->where, tt_arena_printf(p->arena, "%s[%d]", p->label, n)};
		TT_TRY(read_string(&inner, "a string", c, &items[n]));
		int word = 0;
		if (k->choices.n > 0)
			TT_TRY(read_word(&inner, &k->choices, items[n], &word));
		n++;
	}
	put(k, base, &(tt_strings){items, n}, sizeof(tt_strings));
	return TT_OK;
}

static tt_status set_entry(const place *p, const tt_key *k, void *entry, const tt_toml_node *table)
{
	const char *where = tt_arena_strdup(p->arena, p->where);
	memcpy(entry, &where, sizeof where); /* every entry begins with it */
	for (int j = 0; j < k->sub_n; j++)
		tt_key_set_default(&k->sub[j], entry);
	for (const tt_toml_node *c = table->as.list.first; c != NULL; c = c->next) {
		const tt_key *sub = NULL;
		const char **names = TT_NEWN(p->arena, const char *, k->sub_n);
		for (int j = 0; j < k->sub_n; j++) {
			names[j] = k->sub[j].name;
			if (c->key_n == strlen(names[j]) && memcmp(names[j], c->key, c->key_n) == 0)
				sub = &k->sub[j];
		}
		const char *label =
			tt_arena_printf(p->arena, "%s.%s", p->label, tt_key_shown(p->arena, c->key, false));
		if (sub == NULL) {
			const char *near = tt_nearest(c->key, names, k->sub_n);
			TT_FAIL(TT_ERR_USAGE, "%s: unknown key %s%s%s%s", p->where, label,
				near == NULL ? "" : "; did you mean ", near == NULL ? "" : near,
				near == NULL ? "" : "?");
		}
		TT_TRY(tt_key_set(p->arena, sub, entry, c, p->where, label));
	}
	return TT_OK;
}

/* [[section.key]], or an array of inline tables. */
static tt_status set_tables(const place *p, const tt_key *k, void *base, const tt_toml_node *v)
{
	if (v->kind != TT_TOML_ARRAY)
		return fail_type(p, tt_key_type_name(k), v);
	table_list list = {tt_arena_alloc(p->arena, (size_t)v->as.list.n * k->sub_size + 1), 0};
	for (const tt_toml_node *c = v->as.list.first; c != NULL; c = c->next) {
		place inner = *p;
		inner.label = tt_arena_printf(p->arena, "%s[%d]", p->label, list.n);
		/* Entries of a file stand on lines of their own; of a flag, which is one text, they are told by number. */
		inner.where = strncmp(p->where, "--", 2) != 0 ? tt_toml_where(p->arena, c) : tt_arena_printf(p->arena, "--%s", inner.label);
		if (c->kind != TT_TOML_TABLE)
			return fail_type(&inner, "a table", c);
		TT_TRY(set_entry(&inner, k, (char *)list.items + (size_t)list.n * k->sub_size, c));
		list.n++;
	}
	put(k, base, &list, sizeof list);
	return TT_OK;
}

tt_status tt_key_set(tt_arena *a, const tt_key *k, void *base, const tt_toml_node *v, const char *where,
		     const char *label)
{
	place p = {a, where, label};
	switch (k->type) {
	case TT_KEY_BOOL:
		if (v->kind != TT_TOML_BOOL)
			return fail_type(&p, tt_key_type_name(k), v);
		if (k->why != NULL && v->as.boolean != k->def.b)
			TT_FAIL(TT_ERR_USAGE, "%s: %s = %s is not possible: %s", where, label,
				v->as.boolean ? "true" : "false", k->why);
		put(k, base, &v->as.boolean, sizeof(bool));
		return TT_OK;
	case TT_KEY_INT: return set_int(&p, k, base, v);
	case TT_KEY_FLOAT: return set_float(&p, k, base, v);
	case TT_KEY_STRINGS: return set_strings(&p, k, base, v);
	case TT_KEY_TABLES: return set_tables(&p, k, base, v);
	case TT_KEY_STRING: {
		const char *s = "";
		TT_TRY(read_string(&p, tt_key_type_name(k), v, &s));
		put(k, base, &s, sizeof s);
		return TT_OK;
	}
	case TT_KEY_TRI:
	case TT_KEY_ENUM: {
		int word = 0;
		const char *s = "";
		if (k->type == TT_KEY_TRI && v->kind == TT_TOML_BOOL) {
			word = v->as.boolean ? TT_TRI_TRUE : TT_TRI_FALSE;
		} else {
			TT_TRY(read_string(&p, tt_key_type_name(k), v, &s));
			TT_TRY(read_word(&p, &k->choices, s, &word));
		}
		if (k->why != NULL && word != k->def.i)
			TT_FAIL(TT_ERR_USAGE, "%s: %s = \"%s\" is not possible: %s", where, label,
				k->choices.words[word], k->why);
		put(k, base, &word, sizeof word);
		return TT_OK;
	}
	}
	return TT_OK;
}
