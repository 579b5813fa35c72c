/* Inside config/: the rows of keys.def as data, and the way from a TOML value to a member and back. */
#ifndef TT_CONFIG_KEYS_H
#define TT_CONFIG_KEYS_H

#include "config/config.h"
#include "config/toml.h"

typedef enum tt_key_type {
	TT_KEY_BOOL,
	TT_KEY_TRI,
	TT_KEY_INT,
	TT_KEY_FLOAT,
	TT_KEY_STRING,
	TT_KEY_STRINGS,
	TT_KEY_ENUM,
	TT_KEY_TABLES,
} tt_key_type;

typedef struct tt_choices {
	const char *const *words; /* by enum value */
	int n;
} tt_choices;

typedef struct tt_key tt_key;
struct tt_key {
	const char *section, *name, *full; /* "training", "steps", "training.steps" */
	const char *doc;
	tt_key_type type;
	size_t offset; /* of the member in tt_config, or in the entry of an array of tables */
	struct {
		bool b;
		int64_t i; /* enum values too */
		double f;
		const char *s;
	} def;
	int64_t i_least, i_most;
	double f_least, f_most;
	char f_open, f_close;   /* '[' '(' and ']' ')' */
	const char *why;        /* why the range is what it is; in a boolean or enum: why the default alone is legal */
	tt_choices choices;     /* of an enum, or of the words of a list */
	const tt_key *sub;      /* rows of an array of tables */
	int sub_n;
	size_t sub_size;        /* bytes of an entry */
};

typedef struct tt_key_section {
	const char *name, *doc;
} tt_key_section;

extern const tt_key tt_keys[]; /* in the order of keys.def: sections stay together */
extern const int tt_keys_n;
extern const tt_key_section tt_key_sections[];
extern const int tt_key_sections_n;

/* Row of section.name; -1 if there is none. */
int tt_key_find(const char *section, const char *name);
void tt_key_set_default(const tt_key *k, void *base);
/* Stores a value after checking type and range. `where` opens the message, `label` names the key in it. Strings and
 * lists live in the arena. */
tt_status tt_key_set(tt_arena *a, const tt_key *k, void *base, const tt_toml_node *v, const char *where,
		     const char *label) TT_CHECKED;
void tt_key_print_value(const tt_key *k, const void *base, tt_buf *b); /* as TOML */
bool tt_key_same(const tt_key *k, const void *x, const void *y);
void tt_key_print_range(const tt_key *k, tt_buf *b);                   /* "1 to 64", "\"a\", \"b\""; nothing if free */
void tt_key_print_takes(const tt_key *k, tt_buf *b);                   /* type, range, and why: "an integer: 1 to 64" */
const char *tt_key_type_name(const tt_key *k);                         /* "an integer" */
/* All keys as the reference shows them: the rows of each section, then those of each array of tables in it, whose row is
 * `tables` (else NULL). `defaults` are what the rows' offsets point into. */
typedef struct tt_key_group {
	const tt_key_section *section;
	const tt_key *tables;
	const tt_key *keys;
	int n;
	const void *defaults;
} tt_key_group;
void tt_key_walk(void (*visit)(void *ctx, const tt_key_group *g), void *ctx);
/* A word of the user's, fit for a message: short, quoted if asked or if it holds anything odd. */
const char *tt_key_shown(tt_arena *a, const char *s, bool quoted);
/* "file:line:column" of a value, or of its key. */
const char *tt_toml_where(tt_arena *a, const tt_toml_node *v);
const char *tt_toml_where_key(tt_arena *a, const tt_toml_node *v);

/* ---- rules.c: what keys mean beyond their own values ------------------------------------------------------------ */

typedef struct tt_alias {
	const char *old; /* "section.key", or "section.*" for a section that was renamed */
	const char *now; /* "section.key" or "section.*"; NULL: nothing takes its place, and `advice` says what to do */
	const char *advice;
} tt_alias;
/* The alias of section.name; NULL if there is none. */
const tt_alias *tt_alias_find(const char *section, const char *name);
/* Any alias of this section? */
bool tt_alias_section(const char *section);
/* Is the whole section one that nothing takes the place of? */
bool tt_alias_refuses(const char *section);
const tt_alias *tt_alias_list(int *n);
/* What to write in place of a value of another program's; NULL: nothing is known. */
const char *tt_value_advice(const char *key, const char *value);

/* Fills in what depends on other keys, then checks the keys against each other. `warn` is told what has no effect. */
tt_status tt_config_check(tt_arena *a, tt_config *cfg, void (*warn)(void *ctx, const char *text), void *ctx) TT_CHECKED;

#endif
