/* Inside cli/: pages and completions that are made from the tables of commands and of config keys, and what a usage line says. */
#ifndef TT_CLI_PAGES_H
#define TT_CLI_PAGES_H

#include "cli/cli.h"
#include "config/config.h"

/* One way of calling a command. "titan config [CONFIG] [FLAGS] | titan config --doc" has two; in "titan ckpt inspect DIR | verify DIR"
 * the command's name is understood in all but the first. */
typedef struct tt_usage {
	const char *text; /* whole: "titan ckpt verify DIR" */
	const char *verb; /* "verify"; NULL: none */
} tt_usage;
enum { TT_USAGES = 10, TT_USAGE_FLAGS = TT_ARGUMENTS, TT_USAGE_WORDS = 12 };
/* Usages of a command, at most TT_USAGES. */
int tt_usage_split(tt_arena *a, const tt_command *c, tt_usage *out);

/* A flag that only this command has, out of its arguments: "--x=step|tokens|time". */
typedef struct tt_usage_flag {
	const char *name;  /* "--x" */
	const char *doc;
	bool value;        /* takes =VALUE */
	bool file;         /* VALUE is a file, by its name: FILE.svg, DIR */
	tt_strings words;  /* step, tokens, time; none: free */
} tt_usage_flag;
/* Flags of a command, at most TT_USAGE_FLAGS. */
int tt_usage_flags(tt_arena *a, const tt_command *c, tt_usage_flag *out);
/* Does it take --section.key=value of the config? */
bool tt_usage_takes_config(const tt_command *c);

tt_status tt_completion(const char *shell, tt_buf *b) TT_CHECKED;

#endif
