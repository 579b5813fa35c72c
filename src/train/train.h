/* train: one run of one config. Graphs are built, compiled and planned once; then a step is
 *
 *   data -> for each microbatch: F, B -> REDUCE -> (finite?) -> OPT, PREP
 *
 * Batches are global: tokens_per_step defines the math. A loss is the sum of token losses over the step's valid tokens; gradients are
 * sums; the microbatch size is memory only.
 */
#ifndef TT_TRAIN_H
#define TT_TRAIN_H

#include <signal.h>

#include "comm/comm.h"
#include "config/config.h"
#include "data/data.h"
#include "exec/exec.h"
#include "metrics/hashes.h"
#include "model/model.h"
#include "pass/pass.h"

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

/* The mesh of a run: ranks per axis, outermost first. All 1: one rank, and `comm` may be NULL. */
enum { TT_DP_REPLICATE, TT_DP_SHARD, TT_CP, TT_TP, TT_RUN_AXES };
typedef struct tt_run_mesh {
	int size[TT_RUN_AXES];
	bool sp;          /* sequence parallel beside tensor parallel */
	tt_cp_method cp_method;
	tt_balance cp_balance;
	tt_comm *comm;    /* this rank's; borrowed */
	double timeout_s; /* of exchanges after the start; 0: for ever */
	int64_t delay_us; /* for whoever makes the ranks (comm.delay_us) */
	bool led;         /* rank 0's trainer leads: what is asked of it is done by all; the others are in tt_trainer_follow */
} tt_run_mesh;

struct tt_run_options;
/* The mesh and the table of layouts of a run. */
void tt_run_plan(const struct tt_run_options *o, tt_plan *out);
/* The run's table of layouts as text (pass.h, tt_plan_layouts_print): what `titan plan --layouts` says. */
tt_status tt_run_layouts_print(tt_arena *a, const struct tt_run_options *o, tt_buf *b) TT_CHECKED;
/* Why the mesh cannot run this model: both numbers and the nearest degrees that can; NULL: it is legal. In `a`. */
const char *tt_mesh_illegal(tt_arena *a, const tt_llama_config *m, int64_t context, const int *size);
/* The same of sizes and context parallel method together. */
const char *tt_run_mesh_illegal(tt_arena *a, const tt_llama_config *m, int64_t context, const tt_run_mesh *mesh);

/* Traces of steps: of each `freq` the last `active`. Written as FOLDER/iteration_STEP/rankR_trace.json. */
typedef struct tt_run_trace {
	const char *folder; /* NULL: none */
	int64_t freq, active;
} tt_run_trace;

struct tt_trainer;
struct tt_step_report;
typedef struct tt_run_options {
	tt_run_mesh mesh;      /* all zero: one rank */
	tt_layouts layouts;    /* rows before the model's */
	tt_llama_config model;
	tt_dtype compute;      /* f32, bf16; f64: everything in double */
	int loss_chunks;
	tt_recompute recompute;
	tt_gathered gathered;  /* what B finds of the parameters that F gathered */
	tt_overlap overlap;
	bool overlap_off;      /* exchanges run where the plan declares them, one by one */
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
	tt_strings fuse_off;   /* patterns that the pass `fuse` leaves alone */
	tt_strings dump_after; /* passes whose result is printed into *dump_out */
	tt_buf *dump_out;
	tt_hashes_options record; /* hashes of what the run computes, for `titan diff` */
	tt_run_trace trace;
	const char *config;    /* the resolved config, TOML; NULL: there was none */
	tt_strings warnings;   /* tt_config_resolve's */
	const struct tt_tamper *tamper; /* NULL: nothing is made wrong on purpose */
	/* Told of every step on the rank that made it, followers' included. NULL: nobody. */
	tt_status (*after_step)(void *ctx, struct tt_trainer *t, const struct tt_step_report *r);
	void *after_step_ctx;
} tt_run_options;

/* For tests of what must notice: a plan, a program or what it is given, made wrong. Members may be NULL. */
typedef enum tt_moment { TT_BEFORE_STEP, TT_BEFORE_CELL, TT_BEFORE_REDUCE, TT_BEFORE_UPDATE } tt_moment; /* BEFORE_CELL: its inputs are written */
typedef struct tt_tamper {
	const tt_layout_row *rows; /* instead of the model's table */
	/* `after`: "optimizer" (typed, the same on all ranks), "localise", "init" (this rank's). May change g or return another. */
	tt_status (*graph)(void *ctx, const char *after, const int *coord, tt_graph *g, tt_arena *a, tt_graph **out);
	tt_status (*moment)(void *ctx, struct tt_trainer *t, tt_moment m);
	void *ctx;
} tt_tamper;

/* `cfg` with each value of [model] that it leaves to the flavor or to the config.json, noted as such: it gives the same run. Its warnings
 * are what only the whole model and the machine show: those of cfg are not repeated. */
tt_status tt_config_resolve(tt_arena *a, const tt_config *cfg, tt_config *out) TT_CHECKED;
/* Reads a config into run options: flavor or config.json, overrides, data, everything. Checks what needs several keys at once. */
tt_status tt_run_options_from_config(tt_arena *a, const tt_config *cfg, tt_run_options *out) TT_CHECKED;
/* `cfg` as `titan plan` and `titan doctor` take it, who run nothing: it needs no data, and where hardware.ranks is not set it has as many ranks as its
 * degrees make (a data_parallel_shard_degree of -1 counts 1), of which *note says so; NULL: there is nothing to say. Shares all texts of cfg. */
tt_status tt_config_to_plan(tt_arena *a, const tt_config *cfg, tt_config *out, const char **note) TT_CHECKED;
/* `cfg` as `titan verify` takes it, which has meshes of its own: neither its degrees nor its ranks count. Nor does it need data, but for `full`. */
tt_config tt_config_to_verify(const tt_config *cfg, bool full);

/* ---- trainer ------------------------------------------------------------------------------------------------------------------------ */

/* A step's exchanges over one set of mesh axes, of one rank: bytes that it takes from others, seconds in which it waited for them, and seconds in which
 * they ran beside computation. */
typedef struct tt_step_comm {
	const char *axes;
	int64_t calls, bytes;
	double exposed, hidden;
	int64_t hideable_calls, hideable_bytes; /* of these, of exchanges that could be hidden (pass/hide.c) */
} tt_step_comm;
enum { TT_STEP_COMMS = 16 };

typedef struct tt_step_report {
	int64_t step;      /* from 1 */
	double loss;       /* mean over valid tokens */
	double loss_max;   /* the worst row's mean */
	double grad_norm;  /* before clipping */
	double lr;
	int64_t tokens, valid;
	double pairs;      /* attended (query, key) pairs */
	double seconds, data_seconds, forward_seconds, backward_seconds, optim_seconds;
	bool skipped;      /* no valid token, or a gradient that is not finite */
	tt_step_comm comm[TT_STEP_COMMS]; /* by axes that were used */
	int ncomm;
} tt_step_report;

/* Seconds of start-up, by part; kept for the trace that every run logs. */
typedef struct tt_startup { double data, build, compile, jit, allocate, init; } tt_startup;

typedef struct tt_trainer tt_trainer;
tt_status tt_trainer_create(const tt_run_options *o, tt_trainer **out) TT_CHECKED;
/* Only the part of it that needs no memory for tensors: graphs, programs, the memory plan. Data are not looked at, and what does not fit this
 * machine is planned all the same: to be looked at (tt_trainer_exec, tt_trainer_checkpoint_bytes), not to be run. */
tt_status tt_trainer_plan(const tt_run_options *o, tt_trainer **out) TT_CHECKED;
/* The plan of the rank that `c` is an end of (a fake world's), of the mesh that `of`, a plan too, is of; both must outlive it. */
tt_status tt_trainer_plan_rank(const tt_trainer *of, tt_comm *c, tt_trainer **out) TT_CHECKED;
void tt_trainer_destroy(tt_trainer *t); /* accepts NULL; a leader's ends the others' tt_trainer_follow */
/* Of the other ranks of a led mesh: does what rank 0's trainer is asked, until that is destroyed. */
tt_status tt_trainer_follow(tt_trainer *t) TT_CHECKED;
/* Elements [at, at + n) of a whole parameter or optimizer state, over all ranks; one rank: tt_exec_read and tt_exec_write. A
 * led mesh's other ranks must be in tt_trainer_follow, or in a program that only reads what is written. */
tt_status tt_trainer_read(tt_trainer *t, const char *name, int64_t at, void *dst, int64_t n) TT_CHECKED;
tt_status tt_trainer_write(tt_trainer *t, const char *name, int64_t at, const void *src, int64_t n) TT_CHECKED;
/* Sum of squares of a parameter, or of the gradient that the last update was made of, over all ranks, in double. All ranks call it, or are in
 * tt_trainer_follow. */
tt_status tt_trainer_square_sum(tt_trainer *t, const char *param, bool grad, double *out) TT_CHECKED;
int64_t tt_trainer_checkpoint_bytes(tt_trainer *t); /* tensors of a full checkpoint */
tt_status tt_trainer_step(tt_trainer *t, tt_step_report *out) TT_CHECKED;
int64_t tt_trainer_steps(const tt_trainer *t); /* done so far */
/* After the states were written from outside: steps done and updates made so far; makes what is derived from the parameters. */
tt_status tt_trainer_resume(tt_trainer *t, int64_t steps, int64_t updates, int64_t skips) TT_CHECKED;
int64_t tt_trainer_updates(const tt_trainer *t); /* what Adam's bias correction counts: steps that were not skipped */
int64_t tt_trainer_skips(const tt_trainer *t);   /* in a row */
/* Called right before any state changes, on the trainer's thread; true: a save is in progress. NULL: nothing. */
void tt_trainer_set_before_update(tt_trainer *t, bool (*fn)(void *ctx), void *ctx);
/* A save that ranks which are processes make together: rank 0's trainer calls the others' `fn`, within tt_trainer_follow, with what it is given; those of
 * threads, and one rank, are not called. step -1: it is only tried. */
void tt_trainer_set_save(tt_trainer *t, tt_status (*fn)(void *ctx, int64_t step, int64_t kind, int64_t dtype), void *ctx);
tt_status tt_trainer_save(tt_trainer *t, int64_t step, int64_t kind, int64_t dtype) TT_CHECKED;
/* Validation looks at *stop before each batch, and ends with TT_ERR_STOP if it is set. NULL: nothing. */
void tt_trainer_set_stop(tt_trainer *t, const volatile sig_atomic_t *stop);
/* dtype (a tt_st_dtype) in which parameter i of tt_trainer_params' order was imported; -1: it was not. By name. */
int tt_trainer_imported(const tt_trainer *t, const char *name);
/* Whether safetensors hold a model's parameters, each with its shape, and nothing that it does not use. */
struct tt_st;
tt_status tt_weights_check(const tt_builder *model, const tt_llama_config *c, const struct tt_st *st) TT_CHECKED;
/* Sum of token losses and number of valid tokens over the first `max_rows` validation rows (0: all). TT_ERR_STOP: tt_trainer_set_stop. */
tt_status tt_trainer_validate(tt_trainer *t, int64_t max_rows, double *loss_sum, int64_t *valid) TT_CHECKED;
/* One evaluation cell on given tokens (at most eval_tokens): sum of losses. With output_logits, logits and token losses are the outputs
 * "loss.I.logits", "loss.I.nll" of EVAL, chunk I of loss_chunks. */
tt_status tt_trainer_forward(tt_trainer *t, const tt_batch *b, double *loss_sum) TT_CHECKED;
/* Forward and backward of the whole of step `step` without an update: gradients stay in "grad.NAME". */
tt_status tt_trainer_gradients(tt_trainer *t, int64_t step, double *loss) TT_CHECKED;

tt_exec *tt_trainer_exec(tt_trainer *t);
/* The graph on the mesh: global dims and the layout of every value. */
const tt_graph *tt_trainer_typed(const tt_trainer *t);
/* Where dim d of state `name` lies on this rank. */
tt_piece tt_trainer_piece(const tt_trainer *t, const char *name, int d);
const int *tt_trainer_coord(const tt_trainer *t); /* on the axes of tt_plan_axes */
/* Which tokens of its step the training cell at hand has: [first, first + T); in the order in which a context parallel group holds them, or order NULL. */
typedef struct tt_cell_tokens { int64_t first, T; const int32_t *order; } tt_cell_tokens;
tt_cell_tokens tt_trainer_cell(const tt_trainer *t);
/* The rows that say how values lie on its mesh. */
const tt_plan *tt_trainer_layouts(const tt_trainer *t);
tt_piece tt_trainer_piece_of(const tt_trainer *t, int rank, const char *name, int d); /* on another */
int tt_trainer_rank(const tt_trainer *t);
tt_data *tt_trainer_data(tt_trainer *t);
const tt_graph *tt_trainer_graph(const tt_trainer *t); /* as compiled for training */
const tt_graph *tt_trainer_model(const tt_trainer *t); /* as the model wrote it */
const tt_recompute_report *tt_trainer_recompute(const tt_trainer *t); /* zeros in mode none */
const tt_startup *tt_trainer_startup(const tt_trainer *t);
int64_t tt_trainer_params(const tt_trainer *t);

/* The graph with REDUCE (loss, norm, clip) and OPT (update) appended; `hyper` inputs are written by the loop. */
tt_status tt_optim_build(const tt_graph *g, const tt_optim_options *o, tt_arena *a, tt_graph **out) TT_CHECKED;

/* ---- a run: a trainer with its log, metrics and checkpoints ------------------------------------------------------------------------ */

struct tt_metrics_console;
typedef struct tt_run_io {
	void (*print)(const char *text); /* dumps and profiles; NULL: dropped */
	double parse_seconds;            /* that reading the config took, for the start-up trace */
	bool valid_whole;                /* the last validation takes all held-out files, whatever validation.steps says */
	const struct tt_metrics_console *console; /* of a live line; NULL: plain lines */
	/* A signal's number once the run is asked to save and end; polled once a step, and at each batch of a validation, which the run that resumes
	 * makes up for when it opens. NULL: never. */
	const volatile sig_atomic_t *stop;
	tt_comm *comm;                   /* rank 0's where the config has ranks, the others are in tt_run_follow. NULL: one rank */
} tt_run_io;

typedef struct tt_run_summary {
	int64_t steps, tokens;
	double loss;            /* of the last step */
	double valid_bits;      /* that all predicted held-out tokens cost at the last validation; NaN: there was none */
	int64_t valid_predicted, valid_tokens, valid_documents;
} tt_run_summary;

typedef struct tt_run tt_run;
/* Builds the trainer, resumes from the latest checkpoint if there is one, opens metrics. `cfg` and what `io` points to are borrowed. */
tt_status tt_run_open(const tt_config *cfg, const tt_run_io *io, tt_run **out) TT_CHECKED;
void tt_run_close(tt_run *r); /* waits for a save in progress; accepts NULL */
/* One step, its log and metrics, and the save and validation that are due. TT_ERR_STOP: the text has ended. */
tt_status tt_run_step(tt_run *r, tt_step_report *out) TT_CHECKED;
/* Mean loss over the first validation.steps batches, or over all that is held out. */
tt_status tt_run_validate(tt_run *r, bool whole, double *loss, int64_t *valid) TT_CHECKED;
/* Saves now and waits for it. Its error is returned, whatever checkpoint.on_error says. Needs checkpoint.enable. */
tt_status tt_run_save(tt_run *r) TT_CHECKED;
/* Steps until training.steps, the text's end, or a signal (TT_ERR_STOP, after a save). */
tt_status tt_run_loop(tt_run *r, tt_run_summary *out) TT_CHECKED;
tt_trainer *tt_run_trainer(tt_run *r);
/* What the ranks above 0 of a run do: they have no log, no metrics and no checkpoints of their own. */
tt_status tt_run_follow(const tt_config *cfg, tt_comm *c) TT_CHECKED;

#endif
