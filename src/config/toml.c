/* A recursive-descent parser of TOML 1.0 over one buffer.
 *
 * The text is checked to be UTF-8 before anything else, so that the parser may treat bytes above 0x7f as letters of
 * comments and strings. It keeps nothing but the place it stands at: lines and columns are counted from places when a
 * node or an error needs them, by a cursor that only walks forward (each byte is counted once).
 */
#include <stdio.h>

#include "config/toml_scalar.h"

typedef struct cursor {
	size_t at;
	int line, column;
} cursor;

/* One slot of the index from (table, key) to child: a table of many keys must not cost a walk per key. */
typedef struct slot {
	const tt_toml_node *table;
	tt_toml_node *child;
	uint64_t hash;
} slot;

typedef struct parser {
	tt_arena *arena;
	const char *file;
	const char *s; /* the text */
	size_t n, at;  /* its bytes; where the parser stands */
	cursor cursor;
	slot *slots; /* open addressing, a power of two, at most half full */
	size_t slot_n, slot_cap;
	int sections; /* headers and inline tables seen so far: names the section that dotted keys belong to */
} parser;

typedef struct text {
	const char *s;
	size_t n;
} text;

typedef struct key_part {
	text name;
	size_t at; /* where it stands */
	int line, column;
} key_part;

typedef struct key_path {
	key_part parts[TT_TOML_MAX_DEPTH];
	int n;
} key_path;

/* ---- places and errors ----------------------------------------------------------------------------------------- */

static void cursor_walk(const parser *p, cursor *c, size_t at)
{
	if (at < c->at)
		*c = (cursor){0, 1, 1};
	while (c->at < at) {
		unsigned char ch = (unsigned char)p->s[c->at++];
		if (ch == '\n') {
			c->line++;
			c->column = 1;
		} else if ((ch & 0xc0) != 0x80) {
			c->column++; /* continuation bytes belong to the character before */
		}
	}
}

__attribute__((format(printf, 5, 6))) TT_CHECKED static tt_status fail_at(parser *p, size_t at, const char *file,
									    int line, const char *fmt, ...)
{
	char msg[400];
	va_list ap;
	va_start(ap, fmt);
	vsnprintf(msg, sizeof msg, fmt, ap);
	va_end(ap);
	cursor c = {0, 1, 1};
	cursor_walk(p, &c, at);
	return tt_error_set(TT_ERR_FORMAT, file, line, "%s:%d:%d: %s", p->file, c.line, c.column, msg);
}
#define FAIL_AT(p, at, ...) return fail_at((p), (at), __FILE__, __LINE__, __VA_ARGS__)

/* Text fit for a message: at most 40 bytes, whole characters, control characters as '?'. */
static const char *shown_text(parser *p, const char *s, size_t n)
{
	bool cut = n > 40;
	if (cut) {
		n = 40;
		while (n > 0 && ((unsigned char)s[n] & 0xc0) == 0x80)
			n--;
	}
	char *t = tt_arena_alloc(p->arena, n + 4);
	for (size_t i = 0; i < n; i++) {
		unsigned char c = (unsigned char)s[i];
		t[i] = (char)(c < 0x20 || c == 0x7f ? '?' : c);
	}
	if (cut)
		memcpy(t + n, "...", 3);
	return t;
}

static const char *shown(parser *p, size_t from, size_t to)
{
	return shown_text(p, p->s + from, to - from);
}

/* The character at a place, for a message: "end of file", "end of line", "'x'", "character U+0007". */
static const char *shown_char(parser *p, size_t at)
{
	if (at >= p->n)
		return "the end of the file";
	unsigned char c = (unsigned char)p->s[at];
	if (c == '\n' || (c == '\r' && at + 1 < p->n && p->s[at + 1] == '\n'))
		return "the end of the line";
	if (c < 0x20 || c == 0x7f)
		return tt_arena_printf(p->arena, "control character U+%04X", c);
	size_t end = at + 1;
	while (end < p->n && ((unsigned char)p->s[end] & 0xc0) == 0x80)
		end++;
	return tt_arena_printf(p->arena, "'%.*s'", (int)(end - at), p->s + at);
}

/* ---- characters ---------------------------------------------------------------------------------------------------- */

/* Bytes of the UTF-8 sequence at s (n left), 0 if malformed: overlong forms, surrogates and values above U+10FFFF
 * included (The Unicode Standard, table 3-7). */
static int utf8_sequence(const unsigned char *s, size_t n)
{
	if (s[0] < 0x80)
		return 1;
	if (s[0] < 0xc2 || s[0] > 0xf4)
		return 0;
	int len = s[0] < 0xe0 ? 2 : s[0] < 0xf0 ? 3 : 4;
	if ((size_t)len > n)
		return 0;
	for (int i = 1; i < len; i++)
		if ((s[i] & 0xc0) != 0x80)
			return 0;
	if ((s[0] == 0xe0 && s[1] < 0xa0) || (s[0] == 0xed && s[1] > 0x9f) || (s[0] == 0xf0 && s[1] < 0x90) ||
	    (s[0] == 0xf4 && s[1] > 0x8f))
		return 0;
	return len;
}

static tt_status check_utf8(parser *p)
{
	for (size_t i = 0; i < p->n;) {
		int len = utf8_sequence((const unsigned char *)p->s + i, p->n - i);
		if (len == 0)
			FAIL_AT(p, i, "byte 0x%02x is not valid UTF-8 here", (unsigned char)p->s[i]);
		i += (size_t)len;
	}
	return TT_OK;
}

bool tt_toml_is_utf8(const char *s, size_t n)
{
	int len = 1;
	for (size_t i = 0; i < n && len > 0; i += (size_t)len)
		len = utf8_sequence((const unsigned char *)s + i, n - i);
	return len > 0;
}

static void utf8_write(tt_buf *b, uint32_t c)
{
	char t[4];
	int n;
	if (c < 0x80) {
		t[0] = (char)c;
		n = 1;
	} else if (c < 0x800) {
		t[0] = (char)(0xc0 | c >> 6);
		n = 2;
	} else if (c < 0x10000) {
		t[0] = (char)(0xe0 | c >> 12);
		n = 3;
	} else {
		t[0] = (char)(0xf0 | c >> 18);
		n = 4;
	}
	for (int i = 1; i < n; i++)
		t[i] = (char)(0x80 | (c >> (6 * (n - 1 - i)) & 0x3f));
	tt_buf_add(b, t, (size_t)n);
}

static bool is_digit(char c)
{
	return c >= '0' && c <= '9';
}

static bool is_bare(char c)
{
	return is_digit(c) || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || c == '_' || c == '-';
}

/* Control characters that neither comments nor strings may hold: all but tab. CR and LF are handled before. */
static bool is_forbidden(char c)
{
	return ((unsigned char)c < 0x20 && c != '\t') || c == 0x7f;
}

static char peek(const parser *p, size_t ahead)
{
	return p->at + ahead < p->n ? p->s[p->at + ahead] : '\0';
}

static bool looking_at(const parser *p, const char *word)
{
	size_t n = strlen(word);
	return p->n - p->at >= n && memcmp(p->s + p->at, word, n) == 0;
}

/* Bytes of the newline at the parser's place: 0, 1 (LF) or 2 (CR LF). */
static size_t newline_here(const parser *p)
{
	return peek(p, 0) == '\n' ? 1 : peek(p, 0) == '\r' && peek(p, 1) == '\n' ? 2 : 0;
}

static void skip_blanks(parser *p)
{
	while (p->at < p->n && (p->s[p->at] == ' ' || p->s[p->at] == '\t'))
		p->at++;
}

static tt_status skip_comment(parser *p)
{
	if (p->at >= p->n || p->s[p->at] != '#')
		return TT_OK;
	while (p->at < p->n && newline_here(p) == 0) {
		if (is_forbidden(p->s[p->at]))
			FAIL_AT(p, p->at, "%s in a comment", shown_char(p, p->at));
		p->at++;
	}
	return TT_OK;
}

/* Blanks, comments and newlines: what may stand between the elements of an array. */
static tt_status skip_lines(parser *p)
{
	for (;;) {
		skip_blanks(p);
		TT_TRY(skip_comment(p));
		size_t nl = newline_here(p);
		if (nl == 0)
			return TT_OK;
		p->at += nl;
	}
}

/* What must follow a header or a value: the end of its line. */
static tt_status expect_line_end(parser *p, const char *after)
{
	skip_blanks(p);
	TT_TRY(skip_comment(p));
	size_t nl = newline_here(p);
	if (p->at < p->n && nl == 0)
		FAIL_AT(p, p->at, "expected the end of the line after %s, got %s", after, shown_char(p, p->at));
	p->at += nl;
	return TT_OK;
}

/* ---- nodes ------------------------------------------------------------------------------------------------------------ */

static tt_toml_node *node_new(parser *p, tt_toml_kind kind, size_t at, int depth)
{
	tt_toml_node *v = TT_NEW(p->arena, tt_toml_node);
	v->kind = kind;
	v->file = p->file;
	v->depth = depth;
	cursor_walk(p, &p->cursor, at);
	v->line = p->cursor.line;
	v->column = p->cursor.column;
	return v;
}

/* A table made by a key or header. Its place is the key's: the cursor stands beyond it already. */
static tt_toml_node *table_new(parser *p, const key_part *part, int depth)
{
	tt_toml_node *v = TT_NEW(p->arena, tt_toml_node);
	*v = (tt_toml_node){.kind = TT_TOML_TABLE, .file = p->file, .depth = depth, .line = part->line,
			    .column = part->column};
	return v;
}

static uint64_t slot_hash(const tt_toml_node *table, text key)
{
	return tt_hash64(key.s, key.n, (uint64_t)(uintptr_t)table);
}

static tt_toml_node *child_get(const parser *p, const tt_toml_node *table, text key)
{
	if (p->slot_cap == 0)
		return NULL;
	uint64_t h = slot_hash(table, key);
	for (size_t i = h & (p->slot_cap - 1);; i = (i + 1) & (p->slot_cap - 1)) {
		const slot *s = &p->slots[i];
		if (s->child == NULL)
			return NULL;
		if (s->hash == h && s->table == table && s->child->key_n == key.n &&
		    memcmp(s->child->key, key.s, key.n) == 0)
			return s->child;
	}
}

static void slot_put(slot *slots, size_t cap, slot s)
{
	size_t i = s.hash & (cap - 1);
	while (slots[i].child != NULL)
		i = (i + 1) & (cap - 1);
	slots[i] = s;
}

static void list_append(tt_toml_node *list, tt_toml_node *child)
{
	if (list->as.list.last != NULL)
		list->as.list.last->next = child;
	else
		list->as.list.first = child;
	list->as.list.last = child;
	list->as.list.n++;
}

static void child_put(parser *p, tt_toml_node *table, const key_part *part, tt_toml_node *child)
{
	child->key = part->name.s;
	child->key_n = part->name.n;
	child->key_line = part->line;
	child->key_column = part->column;
	if (2 * (p->slot_n + 1) > p->slot_cap) {
		size_t cap = p->slot_cap == 0 ? 64 : 2 * p->slot_cap;
		slot *slots = TT_NEWN(p->arena, slot, cap);
		for (size_t i = 0; i < p->slot_cap; i++)
			if (p->slots[i].child != NULL)
				slot_put(slots, cap, p->slots[i]);
		p->slots = slots;
		p->slot_cap = cap;
	}
	slot_put(p->slots, p->slot_cap, (slot){table, child, slot_hash(table, part->name)});
	p->slot_n++;
	list_append(table, child);
}

/* ---- strings -------------------------------------------------------------------------------------------------------- */

/* \uXXXX, \UXXXXXXXX: `digits` of them after the letter. */
static tt_status parse_unicode_escape(parser *p, int digits, tt_buf *b)
{
	size_t at = p->at;
	uint32_t c = 0;
	for (int i = 0; i < digits; i++) {
		char d = peek(p, 2 + (size_t)i);
		uint32_t v;
		if (is_digit(d))
			v = (uint32_t)(d - '0');
		else if (d >= 'a' && d <= 'f')
			v = (uint32_t)(d - 'a' + 10);
		else if (d >= 'A' && d <= 'F')
			v = (uint32_t)(d - 'A' + 10);
		else
			FAIL_AT(p, at, "the escape \\%c needs %d hexadecimal digits", p->s[at + 1], digits);
		c = c << 4 | v;
	}
	if (c > 0x10ffff || (c >= 0xd800 && c <= 0xdfff))
		FAIL_AT(p, at, "the escape %s is no Unicode character", shown(p, at, at + 2 + (size_t)digits));
	utf8_write(b, c);
	p->at += 2 + (size_t)digits;
	return TT_OK;
}

static tt_status parse_escape(parser *p, bool multiline, tt_buf *b)
{
	size_t at = p->at;
	char c = peek(p, 1);
	static const char LETTERS[] = "btnfre\"\\", MEANINGS[] = "\b\t\n\f\r\x1b\"\\";
	const char *letter = c == '\0' ? NULL : strchr(LETTERS, c);
	if (letter != NULL) {
		tt_buf_add(b, &MEANINGS[letter - LETTERS], 1);
		p->at += 2;
		return TT_OK;
	}
	if (c == 'u' || c == 'U')
		return parse_unicode_escape(p, c == 'u' ? 4 : 8, b);
	if (multiline) {
		/* A backslash at a line's end eats the newline and all blanks and newlines after it. */
		p->at++;
		skip_blanks(p);
		if (newline_here(p) > 0) {
			size_t nl;
			while ((nl = newline_here(p)) > 0) {
				p->at += nl;
				skip_blanks(p);
			}
			return TT_OK;
		}
	}
	FAIL_AT(p, at, "unknown escape: backslash and %s (for a backslash itself write two)", shown_char(p, at + 1));
}

/* A string of any of the four forms; the parser stands at its first quote. `b` receives the content. */
static tt_status parse_string_into(parser *p, bool may_be_multiline, tt_buf *b)
{
	size_t start = p->at;
	char q = p->s[p->at];
	bool multiline = peek(p, 1) == q && peek(p, 2) == q;
	if (multiline && !may_be_multiline)
		FAIL_AT(p, start, "a key may not be a multi-line string");
	p->at += multiline ? 3 : 1;
	if (multiline)
		p->at += newline_here(p); /* one right after the opening quotes is trimmed */
	for (;;) {
		if (p->at >= p->n)
			FAIL_AT(p, start, "this string is never closed");
		char c = p->s[p->at];
		size_t nl = newline_here(p);
		if (c == q && !multiline) {
			p->at++;
			return TT_OK;
		}
		if (c == q && peek(p, 1) == q && peek(p, 2) == q) {
			/* Up to two quotes may stand right before the closing three. */
			size_t run = 3;
			while (run < 5 && peek(p, run) == q)
				run++;
			tt_buf_add(b, p->s + p->at, run - 3);
			p->at += run;
			return TT_OK;
		}
		if (nl > 0) {
			if (!multiline)
				FAIL_AT(p, start, "this string is not closed on its line");
			tt_buf_add(b, p->s + p->at, nl);
			p->at += nl;
		} else if (c == '\\' && q == '"') {
			TT_TRY(parse_escape(p, multiline, b));
		} else if (is_forbidden(c)) {
			FAIL_AT(p, p->at, "%s in a string: write it as an escape in a \"...\" string",
				shown_char(p, p->at));
		} else {
			tt_buf_add(b, &c, 1);
			p->at++;
		}
	}
}

static tt_status parse_string(parser *p, bool may_be_multiline, text *out)
{
	tt_buf b = {0};
	tt_status st = parse_string_into(p, may_be_multiline, &b);
	if (st == TT_OK)
		*out = (text){tt_arena_strndup(p->arena, b.n > 0 ? b.s : "", b.n), b.n};
	tt_buf_fini(&b);
	return st;
}

/* ---- keys --------------------------------------------------------------------------------------------------------------- */

static tt_status parse_key_part(parser *p, key_part *out)
{
	*out = (key_part){.at = p->at};
	cursor_walk(p, &p->cursor, p->at);
	out->line = p->cursor.line;
	out->column = p->cursor.column;
	char c = peek(p, 0);
	if (c == '"' || c == '\'')
		return parse_string(p, false, &out->name);
	size_t end = p->at;
	while (end < p->n && is_bare(p->s[end]))
		end++;
	if (end == p->at)
		FAIL_AT(p, p->at, "expected a key, got %s", shown_char(p, p->at));
	out->name = (text){tt_arena_strndup(p->arena, p->s + p->at, end - p->at), end - p->at};
	p->at = end;
	return TT_OK;
}

/* a.b."c d": the parser ends after blanks behind the last part. */
static tt_status parse_key_path(parser *p, key_path *path)
{
	path->n = 0;
	for (;;) {
		skip_blanks(p);
		if (path->n == TT_TOML_MAX_DEPTH)
			FAIL_AT(p, p->at, "nested deeper than %d levels", TT_TOML_MAX_DEPTH);
		TT_TRY(parse_key_part(p, &path->parts[path->n++]));
		skip_blanks(p);
		if (peek(p, 0) != '.')
			return TT_OK;
		p->at++;
	}
}

/* The first `n` parts for a message: a.b.c */
static const char *shown_path(parser *p, const key_path *path, int n)
{
	tt_buf b = {0};
	for (int i = 0; i < n; i++) {
		const key_part *k = &path->parts[i];
		const char *q = k->name.n == 0 ? "\"\"" : shown_text(p, k->name.s, k->name.n);
		tt_buf_printf(&b, "%s%s", i == 0 ? "" : ".", q);
	}
	const char *s = tt_arena_strndup(p->arena, b.s, b.n);
	tt_buf_fini(&b);
	return s;
}

static tt_status check_depth(parser *p, int depth, size_t at)
{
	if (depth > TT_TOML_MAX_DEPTH)
		FAIL_AT(p, at, "nested deeper than %d levels", TT_TOML_MAX_DEPTH);
	return TT_OK;
}

static tt_status parse_value(parser *p, int depth, tt_toml_node **out) TT_CHECKED;

/* key = value into `table`. Dotted keys make the tables between; they may enter tables that headers made in passing
 * ([a.b] makes a) and those dotted keys of this very section made, and no others: a table is defined in one place. */
static tt_status parse_key_value(parser *p, tt_toml_node *table, int section)
{
	key_path path;
	TT_TRY(parse_key_path(p, &path));
	if (peek(p, 0) != '=' || p->at >= p->n)
		FAIL_AT(p, p->at, "expected '=' after the key %s, got %s", shown_path(p, &path, path.n),
			shown_char(p, p->at));
	p->at++;
	for (int i = 0; i + 1 < path.n; i++) {
		const key_part *part = &path.parts[i];
		tt_toml_node *t = child_get(p, table, part->name);
		if (t == NULL) {
			TT_TRY(check_depth(p, table->depth + 1, part->at));
			t = table_new(p, part, table->depth + 1);
			child_put(p, table, part, t);
		} else if (t->kind != TT_TOML_TABLE) {
			FAIL_AT(p, part->at, "%s is %s (line %d) and cannot hold keys", shown_path(p, &path, i + 1),
				tt_toml_kind_name(t->kind), t->line);
		} else if (t->origin.closed || t->origin.by_header ||
			   (t->origin.dotted_in != 0 && t->origin.dotted_in != section)) {
			FAIL_AT(p, part->at, "the table %s is already defined (line %d); dotted keys cannot add to it",
				shown_path(p, &path, i + 1), t->line);
		}
		t->origin.dotted_in = section;
		table = t;
	}
	const key_part *last = &path.parts[path.n - 1];
	const tt_toml_node *old = child_get(p, table, last->name);
	if (old != NULL)
		FAIL_AT(p, path.parts[0].at, "%s is already defined (line %d)", shown_path(p, &path, path.n),
			old->key_line);
	skip_blanks(p);
	tt_toml_node *value;
	TT_TRY(parse_value(p, table->depth + 1, &value));
	child_put(p, table, last, value);
	return TT_OK;
}

/* [a.b] or [[a.b]]: `*table` becomes the table that the following lines fill. */
static tt_status parse_header(parser *p, tt_toml_node *root, tt_toml_node **table)
{
	size_t start = p->at;
	bool many = peek(p, 1) == '[';
	p->at += many ? 2 : 1;
	key_path path;
	TT_TRY(parse_key_path(p, &path));
	const char *close = many ? "]]" : "]";
	if (!looking_at(p, close))
		FAIL_AT(p, p->at, "expected '%s' to close the header, got %s", close, shown_char(p, p->at));
	p->at += strlen(close);
	tt_toml_node *t = root;
	for (int i = 0; i + 1 < path.n; i++) {
		const key_part *part = &path.parts[i];
		tt_toml_node *next = child_get(p, t, part->name);
		if (next == NULL) {
			TT_TRY(check_depth(p, t->depth + 1, part->at));
			next = table_new(p, part, t->depth + 1);
			child_put(p, t, part, next);
		}
		if (next->origin.closed)
			FAIL_AT(p, start, "%s is %s given in full (line %d); a header cannot add to it",
				shown_path(p, &path, i + 1),
				next->kind == TT_TOML_ARRAY ? "an array" : "an inline table", next->line);
		if (next->kind == TT_TOML_ARRAY)
			next = next->as.list.last; /* an array of tables: never empty */
		if (next->kind != TT_TOML_TABLE)
			FAIL_AT(p, start, "%s is %s (line %d), not a table", shown_path(p, &path, i + 1),
				tt_toml_kind_name(next->kind), next->line);
		t = next;
	}
	const key_part *last = &path.parts[path.n - 1];
	tt_toml_node *old = child_get(p, t, last->name);
	TT_TRY(check_depth(p, t->depth + (many ? 2 : 1), last->at));
	if (many) {
		if (old == NULL) {
			old = table_new(p, last, t->depth + 1);
			old->kind = TT_TOML_ARRAY;
			child_put(p, t, last, old);
		} else if (old->kind != TT_TOML_ARRAY || old->origin.closed) {
			FAIL_AT(p, start, "%s is already defined as %s (line %d), not as an array of [[tables]]",
				shown_path(p, &path, path.n), tt_toml_kind_name(old->kind), old->line);
		}
		tt_toml_node *element = table_new(p, last, old->depth + 1);
		list_append(old, element);
		old = element;
	} else if (old == NULL) {
		old = table_new(p, last, t->depth + 1);
		child_put(p, t, last, old);
	} else if (old->kind != TT_TOML_TABLE || old->origin.by_header || old->origin.closed ||
		   old->origin.dotted_in != 0) {
		FAIL_AT(p, start, "%s is already defined (line %d)", shown_path(p, &path, path.n), old->line);
	}
	old->origin.by_header = true;
	*table = old;
	return expect_line_end(p, "the header");
}

/* ---- arrays and inline tables ---------------------------------------------------------------------------------------- */

static tt_status parse_array(parser *p, tt_toml_node *array)
{
	size_t start = p->at++;
	for (;;) {
		TT_TRY(skip_lines(p));
		if (p->at >= p->n)
			FAIL_AT(p, start, "this array is never closed");
		if (p->s[p->at] == ']')
			break;
		tt_toml_node *value;
		TT_TRY(parse_value(p, array->depth + 1, &value));
		list_append(array, value);
		TT_TRY(skip_lines(p));
		if (p->at >= p->n)
			FAIL_AT(p, start, "this array is never closed");
		if (p->s[p->at] == ']')
			break;
		if (p->s[p->at] != ',')
			FAIL_AT(p, p->at, "expected ',' or ']' in the array, got %s", shown_char(p, p->at));
		p->at++;
	}
	p->at++;
	array->origin.closed = true;
	return TT_OK;
}

/* On one line, without a comma after the last pair. */
static tt_status parse_inline_table(parser *p, tt_toml_node *table)
{
	int section = ++p->sections;
	p->at++;
	skip_blanks(p);
	while (peek(p, 0) != '}' || table->as.list.n > 0) {
		TT_TRY(parse_key_value(p, table, section));
		skip_blanks(p);
		if (peek(p, 0) == '}')
			break;
		if (peek(p, 0) != ',')
			FAIL_AT(p, p->at, "expected ',' or '}' in the inline table, got %s%s", shown_char(p, p->at),
				newline_here(p) > 0 ? " (an inline table stays on one line)" : "");
		p->at++;
		skip_blanks(p);
	}
	p->at++;
	table->origin.closed = true;
	return TT_OK;
}

/* ---- values ------------------------------------------------------------------------------------------------------ */

static tt_status parse_scalar(parser *p, tt_toml_node *v)
{
	size_t start = p->at, end = p->at;
	while (end < p->n && (is_bare(p->s[end]) || strchr("+.:", p->s[end]) != NULL) && p->s[end] != '\0')
		end++;
	/* A date and a time may be split by one space. */
	if (end - start == 10 && p->s[start + 4] == '-' && end + 3 < p->n && p->s[end] == ' ' &&
	    is_digit(p->s[end + 1]) && is_digit(p->s[end + 2]) && p->s[end + 3] == ':') {
		end++;
		while (end < p->n && (is_digit(p->s[end]) || (p->s[end] != '\0' && strchr("+-.:Zz", p->s[end]))))
			end++;
	}
	if (end == start)
		FAIL_AT(p, start, "expected a value, got %s", shown_char(p, start));
	const char *s = tt_arena_strndup(p->arena, p->s + start, end - start);
	p->at = end;
	tt_toml_complaint c;
	if (!tt_toml_read_scalar(s, tt_arena_alloc(p->arena, end - start + 1), v, &c))
		FAIL_AT(p, start, "%s%s%s", c.before, shown(p, start, end), c.after);
	return TT_OK;
}

static tt_status parse_value(parser *p, int depth, tt_toml_node **out)
{
	TT_TRY(check_depth(p, depth, p->at));
	tt_toml_node *v = node_new(p, TT_TOML_STRING, p->at, depth);
	char c = peek(p, 0);
	if (c == '"' || c == '\'') {
		text t;
		TT_TRY(parse_string(p, true, &t));
		v->as.string.s = t.s;
		v->as.string.n = t.n;
	} else if (c == '[') {
		v->kind = TT_TOML_ARRAY;
		TT_TRY(parse_array(p, v));
	} else if (c == '{') {
		v->kind = TT_TOML_TABLE;
		TT_TRY(parse_inline_table(p, v));
	} else {
		TT_TRY(parse_scalar(p, v));
	}
	*out = v;
	return TT_OK;
}

/* ---- the whole ------------------------------------------------------------------------------------------------------------ */

static tt_status parser_init(parser *p, tt_arena *a, const char *file, const char *s, size_t n)
{
	*p = (parser){.arena = a, .file = file, .s = s, .n = n, .cursor = {0, 1, 1}};
	if (n > (size_t)TT_TOML_MAX_BYTES)
		TT_FAIL(TT_ERR_FORMAT, "%s: %zu bytes; a TOML text may have %lld", file, n,
			(long long)TT_TOML_MAX_BYTES);
	return check_utf8(p);
}

tt_status tt_toml_parse(tt_arena *a, const char *file, const char *s, size_t n, tt_toml_node **out)
{
	parser p;
	if (n >= 3 && memcmp(s, "\xef\xbb\xbf", 3) == 0) { /* a byte order mark, at the start only */
		s += 3;
		n -= 3;
	}
	TT_TRY(parser_init(&p, a, file, s, n));
	tt_toml_node *root = node_new(&p, TT_TOML_TABLE, 0, 0);
	root->origin.by_header = true;
	tt_toml_node *table = root;
	p.sections = 1;
	int section = 1;
	for (;;) {
		TT_TRY(skip_lines(&p));
		if (p.at >= p.n)
			break;
		if (p.s[p.at] == '[') {
			TT_TRY(parse_header(&p, root, &table));
			section = ++p.sections;
		} else {
			TT_TRY(parse_key_value(&p, table, section));
			TT_TRY(expect_line_end(&p, "the value"));
		}
	}
	*out = root;
	return TT_OK;
}

tt_status tt_toml_parse_value(tt_arena *a, const char *file, const char *s, size_t n, tt_toml_node **out)
{
	parser p;
	TT_TRY(parser_init(&p, a, file, s, n));
	tt_toml_node *v;
	skip_blanks(&p);
	TT_TRY(parse_value(&p, 1, &v));
	skip_blanks(&p);
	if (p.at < p.n)
		FAIL_AT(&p, p.at, "expected nothing after the value, got %s", shown_char(&p, p.at));
	*out = v;
	return TT_OK;
}

const tt_toml_node *tt_toml_get(const tt_toml_node *table, const char *key)
{
	size_t n = strlen(key);
	for (const tt_toml_node *v = table->as.list.first; v != NULL; v = v->next)
		if (v->key_n == n && memcmp(v->key, key, n) == 0)
			return v;
	return NULL;
}

const char *tt_toml_kind_name(tt_toml_kind k)
{
	switch (k) {
	case TT_TOML_TABLE: return "a table";
	case TT_TOML_ARRAY: return "an array";
	case TT_TOML_STRING: return "a string";
	case TT_TOML_INTEGER: return "an integer";
	case TT_TOML_FLOAT: return "a float";
	case TT_TOML_BOOL: return "a boolean";
	case TT_TOML_OFFSET_DATETIME: return "a date and time";
	case TT_TOML_LOCAL_DATETIME: return "a local date and time";
	case TT_TOML_LOCAL_DATE: return "a date";
	case TT_TOML_LOCAL_TIME: return "a time";
	}
	return "nothing";
}
