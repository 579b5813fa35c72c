/* train: one run of one config. Graphs are built, compiled and planned once; then a step is
 *
 *   data -> for each microbatch: F, B -> REDUCE -> (finite?) -> OPT, PREP
 *
 * Batches are global: tokens_per_step defines the math. A loss is the sum of token losses over the step's valid tokens; gradients are
 * sums; the microbatch size is memory only.
 */
#ifndef TT_TRAIN_H
#define TT_TRAIN_H

#include "config/config.h"
#include "data/data.h"
#include "exec/exec.h"
#include "model/model.h"

/* ---- options: what a run is, free of where it was written ------------------------------------------------------------------------- */

/* Exceptions for parameters by name; the first pattern that matches wins. weight_decay < 0: the optimizer's own. */
typedef struct tt_group { const char *pattern; double lr_scale, weight_decay; } tt_group;

typedef struct tt_optim_options {
	bool sgd; /* else AdamW */
	double lr, beta1, beta2, eps, weight_decay, momentum;
	bool nesterov, decay_only_matrices;
	const tt_group *groups;
	int ngroups;
	double max_norm; /* 0: no clipping */
} tt_optim_options;

typedef enum tt_decay { TT_WSD_LINEAR, TT_WSD_SQRT, TT_WSD_COSINE } tt_decay;
typedef struct tt_schedule { int64_t warmup, total, decay; tt_decay type; double min_factor; } tt_schedule;
/* Factor of the learning rate at step s (from 0): warmup, stable, decay, with TorchTitan's formulas. No libm. */
double tt_schedule_factor(const tt_schedule *c, int64_t s);

typedef struct tt_run_options {
	tt_llama_config model;
	tt_dtype compute;      /* f32, bf16; f64: everything in double */
	int loss_chunks;
	int64_t tokens_per_microbatch; /* whole rows */
	int64_t eval_tokens;   /* tokens of a validation cell at most; 0: as a microbatch */
	bool output_logits;    /* of validation and tt_trainer_forward */
	tt_data_options data;
	tt_optim_options optim;
	tt_schedule schedule;
	bool skip_nonfinite;
	int64_t nonfinite_max_skips;
	tt_exec_options exec;
	const char *weights;   /* safetensors to start from; NULL: initial values by rule */
	tt_strings dump_after; /* passes whose result is printed into *dump_out */
	tt_buf *dump_out;
} tt_run_options;

/* Reads a config into run options: flavor or config.json, overrides, data, everything. Checks what needs several keys at once. */
tt_status tt_run_options_from_config(tt_arena *a, const tt_config *cfg, tt_run_options *out) TT_CHECKED;

/* ---- trainer ------------------------------------------------------------------------------------------------------------------------ */

typedef struct tt_step_report {
	int64_t step;      /* from 1 */
	double loss;       /* mean over valid tokens */
	double grad_norm;  /* before clipping */
	double lr;
	int64_t tokens, valid;
	double pairs;      /* attended (query, key) pairs */
	double seconds, data_seconds, forward_seconds, backward_seconds, optim_seconds;
	bool skipped;      /* no valid token, or a gradient that is not finite */
} tt_step_report;

/* Seconds of start-up, by part; kept for the trace that every run logs. */
typedef struct tt_startup { double data, build, compile, jit, allocate, init; } tt_startup;

typedef struct tt_trainer tt_trainer;
tt_status tt_trainer_create(const tt_run_options *o, tt_trainer **out) TT_CHECKED;
void tt_trainer_destroy(tt_trainer *t);
tt_status tt_trainer_step(tt_trainer *t, tt_step_report *out) TT_CHECKED;
/* Sum of token losses and number of valid tokens over the first `max_rows` validation rows (0: all). */
tt_status tt_trainer_validate(tt_trainer *t, int64_t max_rows, double *loss_sum, int64_t *valid) TT_CHECKED;
/* One evaluation cell on given tokens (at most eval_tokens): sum of losses. With output_logits, logits and token losses are the outputs
 * "loss.I.logits", "loss.I.nll" of EVAL, chunk I of loss_chunks. */
tt_status tt_trainer_forward(tt_trainer *t, const tt_batch *b, double *loss_sum) TT_CHECKED;
/* Forward and backward of the whole of step `step` without an update: gradients stay in "grad.NAME". */
tt_status tt_trainer_gradients(tt_trainer *t, int64_t step, double *loss) TT_CHECKED;

tt_exec *tt_trainer_exec(tt_trainer *t);
tt_data *tt_trainer_data(tt_trainer *t);
const tt_graph *tt_trainer_graph(const tt_trainer *t); /* as compiled for training */
const tt_graph *tt_trainer_model(const tt_trainer *t); /* as the model wrote it */
const tt_startup *tt_trainer_startup(const tt_trainer *t);
int64_t tt_trainer_params(const tt_trainer *t);

/* The graph with REDUCE (loss, norm, clip) and OPT (update) appended; `hyper` inputs are written by the loop. */
tt_status tt_optim_build(const tt_graph *g, const tt_optim_options *o, tt_arena *a, tt_graph **out) TT_CHECKED;

/* The whole run of a config with its log: start-up trace, steps, validations. What debug.dump asks for goes to `print`. `parse_seconds`:
 * what reading the config took. */
typedef struct tt_train_io {
	void (*print)(const char *text);
	double parse_seconds;
	bool valid_whole;            /* the last validation takes all held-out files, whatever validation.steps says */
	/* out: of the last validation; NaN, 0: there was none */
	double valid_bits;           /* that all predicted tokens cost */
	int64_t valid_predicted, valid_tokens, valid_documents;
} tt_train_io;
tt_status tt_train_run(const tt_config *cfg, tt_train_io *io) TT_CHECKED;

#endif
