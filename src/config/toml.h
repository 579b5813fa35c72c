/* TOML 1.0: text to a tree of nodes.
 *
 * The whole of https://toml.io/en/v1.0.0 and one thing more: the escape \e (TOML 1.1), because the public test cases
 * count it valid. Nothing here knows what a config key is.
 *
 * Limits, each an error that says so: TT_TOML_MAX_BYTES of text, TT_TOML_MAX_DEPTH levels of nesting (tables, dotted
 * keys, arrays and inline tables together), and a float too large for a double.
 */
#ifndef TT_CONFIG_TOML_H
#define TT_CONFIG_TOML_H

#include "base/base.h"

#define TT_TOML_MAX_BYTES (64 * TT_MIB)
#define TT_TOML_MAX_DEPTH 100

typedef enum tt_toml_kind {
	TT_TOML_TABLE,
	TT_TOML_ARRAY,
	TT_TOML_STRING,
	TT_TOML_INTEGER,
	TT_TOML_FLOAT,
	TT_TOML_BOOL,
	TT_TOML_OFFSET_DATETIME,
	TT_TOML_LOCAL_DATETIME,
	TT_TOML_LOCAL_DATE,
	TT_TOML_LOCAL_TIME,
} tt_toml_kind;

typedef struct tt_toml_time {
	int year, month, day;     /* not of a local time                                       */
	int hour, minute, second; /* not of a local date; second 60 is a leap second           */
	int nanosecond;           /* further digits of the fraction are cut, as the spec says  */
	int offset_minutes;       /* east of UTC; of an offset datetime only                   */
} tt_toml_time;

typedef struct tt_toml_node tt_toml_node;
struct tt_toml_node {
	tt_toml_kind kind;
	int depth;            /* of the root: 0 */
	const char *file;     /* as handed to the parser */
	int line, column;     /* of the value, from 1; columns count characters (code points) */
	const char *key;      /* in a table: its name there, NUL-terminated; NULL in an array and for the root */
	size_t key_n;         /* bytes of `key`: a quoted key may hold NUL bytes */
	int key_line, key_column;
	union {
		struct {
			const char *s; /* NUL-terminated after n bytes, which may hold NUL bytes too */
			size_t n;
		} string;
		int64_t integer;
		double real;
		bool boolean;
		tt_toml_time time;
		struct {
			tt_toml_node *first, *last; /* children of a table or array, in the order of the text */
			int64_t n;
		} list;
	} as;
	tt_toml_node *next; /* sibling */
	/* How a table or array came to be; decides what may still be added to it. For the parser. */
	struct {
		bool by_header; /* [name] or an element of [[name]]                       */
		int dotted_in;  /* number of the section whose dotted keys made it; 0 none */
		bool closed;    /* an inline table or a value array: complete              */
	} origin;
};

/* Parses `n` bytes of text (need not be NUL-terminated; kept by nobody). `file` names it in errors, which read
 * "file:line:column: text" (TT_ERR_FORMAT), and is borrowed by the nodes: keep it as long as the arena. */
tt_status tt_toml_parse(tt_arena *a, const char *file, const char *text, size_t n, tt_toml_node **out) TT_CHECKED;
/* The same for a text that is one value and nothing else: 12, "a", [1, 2]. */
tt_status tt_toml_parse_value(tt_arena *a, const char *file, const char *text, size_t n,
			      tt_toml_node **out) TT_CHECKED;
/* Child of a table by name; NULL if there is none. Borrowed. */
const tt_toml_node *tt_toml_get(const tt_toml_node *table, const char *key);
/* "a string", "an integer": with its article, for messages. */
const char *tt_toml_kind_name(tt_toml_kind k);
/* Whether the bytes are UTF-8, as all strings of TOML are. */
bool tt_toml_is_utf8(const char *s, size_t n);
/* A string in TOML syntax, quoted and escaped. It must be UTF-8. */
void tt_toml_quote(tt_buf *b, const char *s, size_t n);
/* The tree as the tagged JSON of the public toml-test suite: {"type": "integer", "value": "1"}. */
void tt_toml_to_test_json(const tt_toml_node *node, tt_buf *b);

#endif
