/* cli: commands. Each takes the arguments after its name and returns a status whose text main prints. */
#ifndef TT_CLI_H
#define TT_CLI_H

#include "base/base.h"

/* An argument or a flag of a command's own, as its usage has it: "RUN...", "--x=step|tokens|time". */
typedef struct tt_argument { const char *name, *doc; } tt_argument;
enum { TT_ARGUMENTS = 12, TT_EXAMPLES = 2 };
typedef struct tt_command {
	const char *name, *usage, *doc;
	tt_status (*run)(int argc, const char *const *argv);
	tt_argument arguments[TT_ARGUMENTS + 1]; /* ended by a NULL name */
	const char *examples[TT_EXAMPLES];
} tt_command;
extern const tt_command tt_commands[]; /* ended by a NULL name */
typedef struct tt_short_flag { const char *shorthand, *key, *doc; } tt_short_flag;
extern const tt_short_flag tt_short_flags[];
typedef struct tt_exit_code { int code; const char *doc; } tt_exit_code;
extern const tt_exit_code tt_exit_codes[]; /* ended by a NULL doc */
/* NULL and the nearest name in *near (NULL: none is near) if there is no such command. */
const tt_command *tt_command_find(const char *name, const char **near);
/* Runs it after a look at its flags: one that it does not have, or one without its value. */
tt_status tt_command_run(const tt_command *c, int argc, const char *const *argv) TT_CHECKED;
void tt_cli_help(tt_buf *b); /* what titan --help prints */
void tt_command_help(const tt_command *c, tt_buf *b);
void tt_cli_version(tt_buf *b);
void tt_cli_doc(tt_buf *b);  /* docs/cli.md */

tt_status tt_cmd_train(int argc, const char *const *argv) TT_CHECKED;
tt_status tt_cmd_config(int argc, const char *const *argv) TT_CHECKED;
tt_status tt_cmd_ckpt(int argc, const char *const *argv) TT_CHECKED;
tt_status tt_cmd_ops(int argc, const char *const *argv) TT_CHECKED;
tt_status tt_cmd_demo(int argc, const char *const *argv) TT_CHECKED;
tt_status tt_cmd_plot(int argc, const char *const *argv) TT_CHECKED;
tt_status tt_cmd_diff(int argc, const char *const *argv) TT_CHECKED;
tt_status tt_cmd_verify(int argc, const char *const *argv) TT_CHECKED;
tt_status tt_cmd_plan(int argc, const char *const *argv) TT_CHECKED;
tt_status tt_cmd_bench(int argc, const char *const *argv) TT_CHECKED;

struct tt_config;
/* The second act of `titan demo`, once the run of `cfg` is over: on from one of its checkpoints on a mesh, and the proof. */
tt_status tt_demo_mesh(tt_arena *a, const struct tt_config *cfg) TT_CHECKED;

/* What `titan diff A B` prints: at most `limit` values that differ are listed, -1: all. */
tt_status tt_cli_diff(const char *a, const char *b, int64_t limit, tt_buf *out, bool *equal) TT_CHECKED;
tt_status tt_cmd_doctor(int argc, const char *const *argv) TT_CHECKED;
tt_status tt_cmd_help(int argc, const char *const *argv) TT_CHECKED; /* titan help; not in the table */

/* The config of a command line: one optional path (else `fallback`, NULL: defaults), then flags, short spellings included. A file that
 * cannot be read, or is no TOML, is TT_ERR_USAGE like all that is wrong with it. */
struct tt_config;
tt_status tt_cli_config(tt_arena *a, int argc, const char *const *argv, const char *fallback, struct tt_config **out) TT_CHECKED;
void tt_cli_print(const char *text);
/* A whole run with a live line and signals: SIGTERM, SIGINT, SIGUSR1 and SIGHUP save and end it (TT_ERR_STOP), a second of the
 * first two ends it at once. */
struct tt_run_summary;
tt_status tt_cli_run(const struct tt_config *cfg, double parse_seconds, bool valid_whole, struct tt_run_summary *sum) TT_CHECKED;
/* The standard error as a place for a live line. */
struct tt_metrics_console;
void tt_cli_console(struct tt_metrics_console *out);

int tt_cli_exit_code(tt_status s);

#endif
