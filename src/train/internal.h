/* What the files of train/ share. */
#ifndef TT_TRAIN_INTERNAL_H
#define TT_TRAIN_INTERNAL_H

#include "ckpt/ckpt.h"
#include "metrics/metrics.h"
#include "train/train.h"

const char *tt_decay_name(tt_decay d); /* the config's word */

/* ---- mesh.c --------------------------------------------------------------------------------------------------------------------------- */

/* Degrees and layouts of [parallelism]; warnings are added to out->warnings. out->model and out->data are there already. */
tt_status tt_mesh_options(tt_arena *a, const tt_config *cfg, tt_run_options *out) TT_CHECKED;

/* The model that a config names, its keys over the flavor or config.json. */
tt_status tt_model_from_config(tt_arena *a, const tt_config *cfg, tt_llama_config *out) TT_CHECKED;

/* ---- saved.c ------------------------------------------------------------------------------------------------------------------------ */

/* The tensors of a checkpoint, bound to the program's states. */
typedef struct tt_saved {
	tt_trainer *trainer;
	tt_ckpt_tensor *tensors;
	int64_t n;
} tt_saved;
tt_status tt_saved_new(tt_arena *a, tt_trainer *t, tt_saved **out) TT_CHECKED;
tt_ckpt_read_fn tt_saved_read;   /* ctx: the tt_saved */
tt_ckpt_write_fn tt_saved_write;

int64_t tt_fit_bytes(tt_trainer *t); /* of its plan, all regions */
/* The plan of `o` does not fit (that is the error set so far): the error again, with the cheapest ways that would make it fit. */
tt_status tt_fit_refuse(tt_arena *a, const tt_run_options *o, int64_t limit) TT_CHECKED;

/* Sum of squares of a parameter, or of its accumulated gradient, in double. */
double tt_state_square_sum(tt_trainer *t, const char *param, bool grad);

/* ---- a run: run.c, its checkpoints in checkpoint.c, resume.c and differences.c --------------------------------------------------------- */

struct tt_run {
	tt_arena *arena;
	const tt_config *cfg;
	tt_run_io io;
	tt_run_options o;
	tt_trainer *trainer;
	tt_metrics *metrics;
	tt_ckpt_writer *writer;   /* NULL: nothing is saved */
	tt_saved *saved;          /* the tensors of a checkpoint, bound to the program */
	int64_t tokens_seen, planned;
	int64_t last_saved;       /* step of the newest checkpoint, -1: none */
	bool last_model_only;     /* it holds the model alone */
	bool saving_model_only;   /* the save in progress */
	bool ending;              /* no step comes after the save at hand */
	bool unvalidated;         /* the last step's validation was given up for a signal; a run that resumes from here makes up for it */
	double last_save_time, last_step_end;
	double save_seconds, validate_seconds; /* since the last step's record */
	double peak;                           /* FLOP/s of this machine, measured; NaN: not known (yet) */
	double started;                        /* when the first step began */
	tt_run_summary sum;
	int lock;                 /* descriptor of the folder's lock, -1: none */
};

/* Resumes if there is a checkpoint, and gets ready to save. */
tt_status tt_run_open_checkpoints(tt_run *r) TT_CHECKED;
/* Before the first step: can there be a save? What to do if not is checkpoint.on_error's to say. */
tt_status tt_run_try_checkpoints(tt_run *r) TT_CHECKED;
/* Ends the save in progress if it is over, or waits for it. A failed one is an error only if checkpoint.on_error says so, or if the run is ending. */
tt_status tt_run_poll_save(tt_run *r, bool wait) TT_CHECKED;
/* After a step: begins to save if a save is due by count, by time, or as the first. */
tt_status tt_run_save_due(tt_run *r) TT_CHECKED;
/* The checkpoint after the last step, waited for. */
tt_status tt_run_save_last(tt_run *r, bool model_only) TT_CHECKED;
/* Waits for the save in progress and logs how it ended: another error is being told. */
void tt_run_drop_save(tt_run *r);

/* How a resumed run's config differs from its checkpoint's: a model that computes something else is an error, other differences that matter are
 * warnings. */
typedef struct tt_differences { const char *data; } tt_differences; /* "; data.seed is 1, was 0": for an error about the data */
tt_status tt_run_compare(tt_run *r, const tt_ckpt *c, unsigned exclude, tt_differences *out) TT_CHECKED;

/* Restores the newest checkpoint in `folder` (or checkpoint.load_step) if there is one. */
tt_status tt_run_resume(tt_run *r, const char *folder) TT_CHECKED;

#endif
