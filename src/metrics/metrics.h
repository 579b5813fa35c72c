/* metrics: what a run tells about itself. A step's numbers go to the console, to metrics.jsonl and to event files that TensorBoard opens.
 *
 * Nothing here can stop a run: what cannot be written is warned about once and then left out. After the first step no call allocates.
 * One thread hands records in; log lines of other threads may come at any time.
 */
#ifndef TT_METRICS_METRICS_H
#define TT_METRICS_METRICS_H

#include "base/base.h"

enum { TT_METRICS_SCHEMA = 1 }; /* of metrics.jsonl; goes up when a key changes its meaning */

typedef struct tt_metrics_scalar { const char *name; double value; } tt_metrics_scalar;

/* One step. NaN (for integers: -1) stands for "not known" in every field but loss, grad_norm and lr, and is left out; elsewhere NaN and
 * infinities are written as null and the line says "nonfinite":true. */
typedef struct tt_metrics_step {
	int64_t step;         /* from 1 */
	double loss;          /* nats per token, mean over the step's valid tokens */
	double loss_max;      /* nats per token, the worst row's mean */
	double grad_norm;     /* before clipping */
	double lr;
	int64_t tokens;       /* of the step, padding and masked ones included */
	int64_t valid_tokens; /* those with a target */
	int64_t tokens_seen;  /* `tokens` of all steps since the run's first, resumes included */
	double tokens_per_s;
	double flops_per_s;   /* of the model: what the mathematics needs, recomputation not counted */
	double mfu;           /* percent of the measured peak */
	/* Seconds since the last step was handed in, or since the loop began: saves and validations in between count here. */
	double seconds;
	double data_seconds, forward_seconds, backward_seconds, optimizer_seconds, save_seconds, validate_seconds; /* parts of it */
	double comm_exposed, comm_hidden; /* seconds of exchanges with other ranks: waited for, and beside computation; for the log, 0: none */
	int64_t memory_planned, memory_resident; /* bytes */
	bool skipped;         /* no update was made */
	const tt_metrics_scalar *extra; /* more, by name: norms of parameter groups */
	int nextra;
} tt_metrics_step;

typedef struct tt_metrics_validation {
	int64_t step;
	double loss;           /* nats per token */
	double bits_per_token;
	int64_t tokens;        /* that were predicted */
	double seconds;
} tt_metrics_validation;

/* Where a live line goes. tt_cli_console (cli/cli.h) makes the one of the standard error. */
typedef struct tt_metrics_console {
	void *ctx;
	void (*write)(void *ctx, const char *bytes, size_t n); /* NULL: no live line */
	int (*width)(void *ctx);                               /* columns at this moment; <= 0 or NULL: 80 */
	bool tty;                                              /* somebody watches */
	bool dumb;                                             /* no cursor motion (TERM=dumb) */
} tt_metrics_console;

typedef struct tt_metrics_clock {
	void *ctx;
	double (*now)(void *ctx);  /* seconds, never goes back; NULL: the system's */
	double (*wall)(void *ctx); /* seconds since 1970; NULL: the system's */
} tt_metrics_clock;

typedef enum tt_metrics_mode {
	TT_METRICS_AUTO,  /* live on a terminal, else plain */
	TT_METRICS_LIVE,  /* also where no terminal is seen; a dumb one stays plain */
	TT_METRICS_PLAIN, /* a line every log_freq steps */
	TT_METRICS_OFF,   /* no lines of steps and validations */
} tt_metrics_mode;

typedef struct tt_metrics_options {
	const char *folder;   /* of the run; made if missing */
	int64_t resume_step;  /* last step that the loaded state has seen; 0: a new run */
	const char *run;      /* a name of letters and digits, the same in all starts of a run: the first line of each start has it; NULL: none */
	bool run_new;         /* a resumed run that had no name before: its file has none either */
	bool revalidate;      /* the validation of resume_step is made again: a line of it goes */
	int64_t steps;        /* the last step; 0: not known */
	int64_t log_freq;     /* steps between permanent lines */
	tt_metrics_mode mode;
	bool jsonl;           /* FOLDER/metrics.jsonl */
	bool tensorboard;     /* FOLDER/tb/events.out.tfevents.* */
	tt_metrics_console console;
	tt_metrics_clock clock;
} tt_metrics_options;

typedef struct tt_metrics tt_metrics;

/* Strings and the console are borrowed until close. A live console takes the log sink for its life, so that log lines do not land in the
 * live line, and gives the default one back. A resumed run's metrics.jsonl is continued after its last line of step resume_step. One that
 * is not this run's stays as metrics.N.jsonl, with the lowest free N from 1 on, and the log names it. */
tt_metrics *tt_metrics_open(const tt_metrics_options *o);
/* Writes the last step's permanent line if it is due, clears the live line. Accepts NULL, as all below do. */
void tt_metrics_close(tt_metrics *m);
void tt_metrics_log_step(tt_metrics *m, const tt_metrics_step *s);
void tt_metrics_log_validation(tt_metrics *m, const tt_metrics_validation *v);
/* For metrics.jsonl alone: what happened, in a word ("start", "resume", "save") and in a line, with numbers where there are some. */
void tt_metrics_log_event(tt_metrics *m, int64_t step, const char *what, const char *text, const tt_metrics_scalar *extra, int nextra);
/* Clears the live line until the next step, so that something else can be printed. */
void tt_metrics_pause(tt_metrics *m);
bool tt_metrics_live(const tt_metrics *m);

/* ---- reading, for plots ---------------------------------------------------------------------------------------------------------- */

/* A run's lines as columns. values[i] belongs to the i-th metric asked for; NaN where a line does not have it. */
typedef struct tt_metrics_points {
	int64_t n, cap;
	double *step, *tokens, *seconds; /* of the run so far; of a validation: those of the last step before it */
	double **values;
} tt_metrics_points;

typedef struct tt_metrics_run {
	const char *name; /* for people: the path's last part */
	const char *path; /* of the file */
	tt_metrics_points steps, validations;
	const char **names; /* every number that the steps have, in order of first sight */
	int64_t nnames, cap_names;
} tt_metrics_run;

/* `path` is a run's folder or the file itself. A last line without its end (a killed run) is passed over; any other that is no JSON
 * object is an error with its number. Where steps go back, as after a resume, the later lines count. */
tt_status tt_metrics_read(tt_arena *a, const char *path, const char *const *metrics, int nmetrics, tt_metrics_run *out) TT_CHECKED;

/* ---- drawing --------------------------------------------------------------------------------------------------------------------- */

typedef enum tt_plot_x { TT_PLOT_STEP, TT_PLOT_TOKENS, TT_PLOT_TIME } tt_plot_x;
typedef struct tt_plot_options {
	tt_plot_x x;
	int64_t smooth; /* mean over this many steps up to each; 0, 1: none */
	bool log;       /* logarithmic values; those <= 0 are gaps */
} tt_plot_options;

/* One panel per metric, all runs in each, as an SVG file. The runs must have been read with these metrics. */
void tt_plot_svg(const tt_metrics_run *runs, int nruns, const char *const *metrics, int nmetrics, const tt_plot_options *o, tt_buf *b);
/* The metric if it is a key of step lines or some run has it; else NULL and the nearest name, or NULL, in *near. */
const char *tt_metrics_known(const tt_metrics_run *runs, int nruns, const char *metric, const char **near);

#endif
