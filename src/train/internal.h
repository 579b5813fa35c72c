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

/* How a step's rows are dealt: to data rank `rank` rows [first, end), in n cells of at most `per` rows. Every data rank runs as many cells as the one
 * with most rows; those who have none left run them on no token. */
typedef struct tt_cells { int64_t first, end, per, n; } tt_cells;
static inline tt_cells tt_cells_of(int64_t rows, int64_t per, int64_t rank, int64_t ranks)
{
	return (tt_cells){ tt_deal(rows, rank, ranks), tt_deal(rows, rank + 1, ranks), per, tt_ceil_div(tt_ceil_div(rows, ranks), per) };
}
/* Cell i begins with this row. */
static inline int64_t tt_cells_row(const tt_cells *c, int64_t i) { return TT_MIN(c->first + i * c->per, c->end); }

/* ---- traces.c ----------------------------------------------------------------------------------------------------------------------- */

bool tt_traces_due(const tt_run_trace *o, int64_t step); /* is the step after `step` steps traced? */
/* Room for all instructions of `steps` steps of `cells` cells each, within a bound. */
void tt_traces_room(tt_arena *a, const tt_exec *e, int64_t cells, int64_t steps, tt_trace *t);
/* What there is, as this rank's file of step `step`, and empties it. Between steps nothing waits for this. */
tt_status tt_traces_write(tt_arena *a, const tt_exec *e, const tt_run_trace *o, int64_t step, int rank, tt_trace *t) TT_CHECKED;

/* What debug.dump prints: "graph", "program" or "memory". */
void tt_trainer_dump(tt_trainer *t, const char *what, tt_buf *b);

/* What a mesh's plan looks at: graphs that are the same on every rank, and where this rank is. */
typedef struct tt_on_mesh { const tt_graph *typed, *eval; const int *coord; int ranks; } tt_on_mesh;
tt_on_mesh tt_trainer_on_mesh(const tt_trainer *t);
/* Bytes that this rank takes in the loop's own exchange of a step of `rows` rows, over `axes` (0: there is none), beside those of the programs. */
int64_t tt_loop_talk(const tt_trainer *t, int64_t rows, uint32_t *axes);

/* ---- saved.c ------------------------------------------------------------------------------------------------------------------------ */

/* The tensors of a checkpoint, bound to the program's states. */
typedef struct tt_saved {
	tt_trainer *trainer;
	tt_ckpt_tensor *tensors;
	const tt_value **value; /* [n] typed */
	int64_t n;
	tt_ckpt_ranks ranks;    /* comm NULL: one process has all */
} tt_saved;
tt_status tt_saved_new(tt_arena *a, tt_trainer *t, tt_saved **out) TT_CHECKED;
tt_ckpt_read_fn tt_saved_read;   /* ctx: the tt_saved */
tt_ckpt_write_fn tt_saved_write;
/* How ranks that are processes save together; of others nothing. Before the first step. */
tt_status tt_saved_share(tt_saved *s, tt_comm *c) TT_CHECKED;

int64_t tt_fit_bytes(tt_trainer *t); /* of its plan, all regions */
/* The plan of `o` does not fit (that is the error set so far): the error again, with the cheapest ways that would make it fit. more_ranks: others than
 * there are may be had, each with `limit` of its own. */
tt_status tt_fit_refuse(tt_arena *a, const tt_run_options *o, int64_t limit, bool more_ranks) TT_CHECKED;

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
	char run[17];             /* its name, in checkpoints and metrics.jsonl */
	bool run_new;             /* made by this start */
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
/* Of a rank that follows, where ranks are processes: its part in saves. *out NULL: there are none. */
tt_status tt_follow_checkpoints(tt_arena *a, const tt_config *cfg, const tt_run_options *o, tt_trainer *t, tt_ckpt_writer **out) TT_CHECKED;
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
