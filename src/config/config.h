/* The config: keys of TOML files and --section.key=value flags as one struct, cfg->training.steps.
 *
 * keys.def has one row per key, choices.def the words of enum keys; everything here follows from them.
 */
#ifndef TT_CONFIG_CONFIG_H
#define TT_CONFIG_CONFIG_H

#include <math.h>

#include "base/base.h"

/* Enum types of choices.def: TT_AC_NONE, TT_OPT_ADAMW... */
#define TT_CHOICES(type) typedef enum type {
#define TT_CHOICE(constant, word) constant,
#define TT_CHOICES_END(type) } type;
#include "config/choices.def"

typedef struct tt_strings {
	const char *const *items;
	int n;
} tt_strings;

#define TT_SECTION(s, doc) struct {
#define TT_SECTION_END(s) } s;
#define TT_BOOL(s, k, def, doc) bool k;
#define TT_BOOL_ONLY(s, k, def, why, doc) bool k;
#define TT_TRI(s, k, doc) tt_tri k;
#define TT_INT(s, k, def, lo, hi, doc) int64_t k;
#define TT_INT_WHY(s, k, def, lo, hi, why, doc) int64_t k;
#define TT_FLOAT(s, k, def, open, lo, hi, close, doc) double k;
#define TT_STRING(s, k, def, doc) const char *k;
#define TT_STRINGS(s, k, doc) tt_strings k;
#define TT_STRINGS_OF(s, k, type, doc) tt_strings k;
#define TT_ENUM(s, k, type, def, doc) type k;
#define TT_ENUM_ONLY(s, k, type, def, why, doc) type k;
#define TT_TABLES(s, k, type, rows, doc)                                                                               \
	struct {                                                                                                       \
		type *items;                                                                                           \
		int n;                                                                                                 \
	} k;

/* Entries of arrays of tables begin with where they stand: "f.toml:3:1", or the flag. */

/* An entry of [[optimizer.param_groups]]. */
typedef struct tt_param_group {
	const char *where;
#define TT_KEYS_PARAM_GROUP
#include "config/keys.def"
#undef TT_KEYS_PARAM_GROUP
} tt_param_group;

/* An entry of [[parallelism.layouts]]. */
typedef struct tt_layout_entry {
	const char *where;
#define TT_KEYS_LAYOUT
#include "config/keys.def"
#undef TT_KEYS_LAYOUT
} tt_layout_entry;

typedef struct tt_config {
#define TT_KEYS_CONFIG
#include "config/keys.def"
#undef TT_KEYS_CONFIG
	/* What the loader noticed: aliases used, keys without effect. One line each. */
	tt_strings warnings;
	/* By row of keys.def: where the value was set ("f.toml:3:1", "--training.steps=5"); NULL for a default. */
	const char *const *sources;
	/* By row: a comment for the printed config, NULL for none; tt_config_note makes them. */
	const char *const *notes;
} tt_config;

#include "config/keys_end.def"

/* Defaults, then the file (NULL: none), then the flags in order, the last of a key wins. A flag is
 * "--section.key=value", or "--section.key" alone for a boolean that becomes true. Strings need no quotes in flags,
 * lists are "a,b" or "[...]" as in TOML. Everything lives in the arena. Errors: TT_ERR_IO if the file cannot be read,
 * TT_ERR_FORMAT if it is no TOML, TT_ERR_USAGE for everything said about keys and values. */
tt_status tt_config_load(tt_arena *a, const char *path, int nflags, const char *const *flags,
			 tt_config **out) TT_CHECKED;
/* The same from text; `name` stands for the path in messages. */
tt_status tt_config_load_text(tt_arena *a, const char *name, const char *text, size_t n, int nflags,
			      const char *const *flags, tt_config **out) TT_CHECKED;
/* Where "section.key" was set; NULL if it has its default. The key must exist. */
const char *tt_config_source(const tt_config *cfg, const char *key);
/* Where a message about two keys stands: "--training.steps=5: ". A flag comes before a file, `key` before `other` (which may be
 * NULL); "" if neither was set. */
const char *tt_config_at(tt_arena *a, const tt_config *cfg, const char *key, const char *other);
/* The flags that set keys of a section, blanks between; "" if there is none. */
const char *tt_config_flags(tt_arena *a, const tt_config *cfg, const char *section);
/* Logs each warning at level WARN. */
void tt_config_log_warnings(const tt_config *cfg);
/* Gives each value of `now` that differs from its value in `was` a comment. */
void tt_config_note(tt_arena *a, tt_config *now, const tt_config *was, const char *note);
/* All keys and values as TOML that loads back to the same config, with the notes as comments. */
void tt_config_print(const tt_config *cfg, tt_buf *b);
/* Of all keys and values; equal configs have equal hashes, wherever their values were set. */
uint64_t tt_config_hash(const tt_config *cfg);
/* Calls fn for every key whose values differ, in the order of keys.def, with both as TOML. */
void tt_config_diff(const tt_config *a, const tt_config *b, void (*fn)(void *ctx, const char *key, const char *in_a, const char *in_b), void *ctx);
/* The reference of all keys, in Markdown (docs/config.md). */
void tt_config_doc(tt_buf *b);
/* The word of an enum value: tt_ac_mode_word(TT_AC_NONE) is "none". One function per type of choices.def. */
#define TT_CHOICES(type) const char *type##_word(type v);
#define TT_CHOICE(constant, word)
#define TT_CHOICES_END(type)
#include "config/choices.def"

#endif
