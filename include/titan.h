/* titan.h: titan as a library. A session is a run of one config: open it, step, evaluate, score, save, close.
 *
 *	titan_session *s;
 *	titan_step_info info;
 *	info.struct_size = sizeof info;
 *	if (titan_session_open("run.toml", 0, NULL, &s) != TITAN_OK)
 *		return fail(titan_error());
 *	while (titan_step(s, &info) == TITAN_OK)
 *		printf("%lld %f\n", (long long)info.step, info.loss);
 *	titan_session_close(s);
 *
 * C99 and C++. Link with what `pkg-config --libs titan` says (`--static` for libtitan.a).
 *
 * Errors. What can fail returns a titan_status; outputs are written only on TITAN_OK. titan_error() is the text of this thread's
 * last failure. Wrong arguments are TITAN_ERR_USAGE, never a crash; a broken invariant inside the library prints and aborts.
 *
 * Threads. A session may move between threads but belongs to one call at a time: a second one at the same time, also one made from
 * inside the log sink, is refused with TITAN_ERR_USAGE. Different sessions are independent and may run at the same time; they share
 * the cores, so give each its part (--hardware.threads=N). A session makes threads of its own and has none left after its close. No
 * session survives fork().
 *
 * The caller's floating-point environment and locale neither change a result nor are changed: every call runs in the default ones.
 * No signal handler is installed and nothing is printed to standard output.
 *
 * Ownership. Strings and arrays that are passed in are borrowed for the call. Strings that are returned belong to the library;
 * how long they live is said at each. Files of a run are written where its config says (job.dump_folder).
 *
 * ABI. The library's major version is in its soname. A struct begins with struct_size, set by the caller to its sizeof; new members
 * are only ever added at the end, and a library writes no more than the caller's size. New functions and new status codes may come;
 * none goes and no number changes its meaning within a major version.
 */
#ifndef TITAN_H
#define TITAN_H

#include <stddef.h>
#include <stdint.h>

#define TITAN_VERSION "0.1.0" /* of this header; titan_version() is the library's */

#ifdef __cplusplus
extern "C" {
#endif

typedef enum titan_status {
	TITAN_OK = 0,
	TITAN_ERR_USAGE = 1,   /* an argument, a key or a value of the config is wrong      */
	TITAN_ERR_IO = 2,      /* the operating system refused a file operation             */
	TITAN_ERR_FORMAT = 3,  /* a file's content is not what its format says              */
	TITAN_ERR_TYPE = 4,    /* shapes or layouts that do not fit                         */
	TITAN_ERR_MEMORY = 5,  /* a limit or the machine's memory is exhausted              */
	TITAN_ERR_NUMERIC = 6, /* a value that is not finite                                */
	TITAN_ERR_COMM = 7,    /* another rank is late, gone or different                   */
	TITAN_END = 8          /* no fault: all steps are done, or the text has ended       */
} titan_status;

/* "usage", "io"... in words; "unknown" for a number that is none. Lives forever. */
const char *titan_status_name(titan_status s);

/* Text of the last failure in this thread, one line; "" if there was none. Lives until the thread's next failure. */
const char *titan_error(void);

/* "MAJOR.MINOR.PATCH" of the library. Lives forever. */
const char *titan_version(void);

/* ---- log: process-wide ------------------------------------------------------------------------------------------------------- */

typedef enum titan_log_level { TITAN_LOG_DEBUG = 0, TITAN_LOG_INFO = 1, TITAN_LOG_WARN = 2, TITAN_LOG_ERROR = 3 } titan_log_level;

/* One finished line without a newline, one at a time, from any thread of any session. It must not call titan_log_to or a session
 * that is in a call. */
typedef void titan_log_fn(void *ctx, titan_log_level level, const char *line);

/* Where the lines of all sessions go from now on, from level `least` up. fn NULL: standard error, the default. Once this returns,
 * the earlier sink is not called any more. */
titan_status titan_log_to(titan_log_fn *fn, void *ctx, titan_log_level least);

/* ---- sessions ---------------------------------------------------------------------------------------------------------------- */

typedef struct titan_session titan_session;

/* Reads a config, builds the model, opens the data and continues from the newest checkpoint if there is one. config_path NULL: the
 * defaults. flags: "--section.key=value", as on the command line; each stands above the file, the last of a key wins; may be NULL
 * if nflags is 0. Relative paths are relative to the process's working directory, which has to stay while the session is open. */
titan_status titan_session_open(const char *config_path, int nflags, const char *const *flags, titan_session **out);

/* Waits for a save in progress and frees everything; does not save by itself. NULL is accepted. Fails, and closes nothing, only
 * while another call runs on the session. */
titan_status titan_session_close(titan_session *s);

typedef struct titan_step_info {
	size_t struct_size;
	int64_t step;             /* this one's number, from 1                                       */
	double loss;              /* mean over its valid tokens, in nats                             */
	double loss_max;          /* mean of its worst row                                           */
	double grad_norm;         /* global, before clipping                                         */
	double learning_rate;
	int64_t tokens;           /* processed                                                       */
	int64_t valid_tokens;     /* that count in the loss                                          */
	double seconds;           /* of the step; the parts below are in it                          */
	double data_seconds, forward_seconds, backward_seconds, optimizer_seconds;
	int32_t skipped;          /* 1: nothing was updated (no valid token, or a gradient not finite) */
	int32_t reserved;         /* 0 */
} titan_step_info;

/* One optimizer step, its metrics, and the validation and save that the config makes due. info may be NULL. TITAN_END: all
 * training.steps are done, or the text has ended; nothing was changed. */
titan_status titan_step(titan_session *s, titan_step_info *info);

/* Mean loss in nats over the held-out text (its first validation.steps batches, or all of it by default) and how many tokens it is
 * the mean of. Both may be NULL. TITAN_ERR_USAGE if nothing is held out. Trains nothing. */
titan_status titan_evaluate(titan_session *s, double *loss, int64_t *tokens);

/* Log-probability, in nats, of ids[1..n) after ids[0], as one sequence by itself: the sum over its n - 1 predictions. n is from 2 to
 * training.context_length + 1, ids are below the vocabulary's size. */
titan_status titan_score(titan_session *s, int64_t n, const int32_t *ids, double *logprob);

/* Saves a checkpoint now and returns when it is whole on disk. Needs checkpoint.enable. */
titan_status titan_save(titan_session *s);

/* Steps done so far, those before a resume included; steps of the whole run; trainable parameters; -1 for a session NULL. These three
 * may be called at any time between open and close, from any thread. */
int64_t titan_steps_done(const titan_session *s);
int64_t titan_steps_total(const titan_session *s);
int64_t titan_params(const titan_session *s);

#ifdef __cplusplus
}
#endif

#endif
