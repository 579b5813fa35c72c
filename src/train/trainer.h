/* trainer.h: a trainer as trainer.c, which makes it, and step.c, which runs it, see it. */
#ifndef TT_TRAIN_TRAINER_H
#define TT_TRAIN_TRAINER_H

#include "train/internal.h"
#include "train/team.h"

struct tt_trainer {
	tt_arena *arena;
	tt_run_options o;
	tt_builder *model, *eval_model;
	tt_graph *typed;       /* on the mesh, before it became this rank's */
	struct { tt_graph *init, *train, *eval; } mesh; /* the same on every rank: what ranks' graphs are made of */
	tt_graph *train, *eval;
	tt_plan plan;          /* how values lie on the mesh */
	int ranks;
	tt_comm_axes axes;
	tt_team team;          /* of a led mesh */
	tt_comm_group *sharers; /* ranks that have other tokens of the step; NULL: none */
	tt_comm_group *all;     /* ranks of the mesh; NULL: one */
	int coord[TT_PLAN_AXES];
	tt_exec *exec;
	tt_hashes *hashes;     /* NULL: nothing is recorded */
	tt_trace *trace;       /* NULL: none is written */
	tt_data *data;
	tt_step *step_rows, *valid_rows;
	tt_batch *batch;
	int64_t step;          /* steps done */
	int64_t updates;       /* of them, not skipped */
	int64_t skips;         /* skipped in a row */
	int64_t empty;         /* steps without a valid token, as long as there was no other; -1 from then on */
	int *imported;         /* [nparams] tt_st_dtype, -1 */
	tt_slot *nll;          /* [loss_chunks] token losses of B */
	float *nll_values;     /* [t_max] */
	double *nll_doubles;
	tt_share *share;       /* of the batch, under context parallelism; else NULL: who holds which is order [tokens of a batch] */
	tt_dealer *dealer;
	int32_t *order;
	int64_t cell_first;    /* first token in the step of the cell at hand */
	double *rows;          /* [2, rows of a step] token losses and valid tokens of each row, of this rank */
	double *all_rows;      /* [ranks that share the step, 2, rows of a step] */
	const volatile sig_atomic_t *stop; /* NULL: nothing stops a validation */
	bool (*before_update)(void *ctx);
	void *before_ctx;
	tt_status (*save)(void *ctx, int64_t step, int64_t kind, int64_t dtype); /* of a follower */
	void *save_ctx;
	int64_t rows_per_mb;
	tt_recompute_report recompute; /* zeros in mode none */
	tt_startup startup;
};

static inline bool leads(const tt_trainer *t) { return t->o.mesh.led && tt_comm_rank(t->o.mesh.comm) == 0; }
static inline bool speaks(const tt_trainer *t) { return !t->o.mesh.comm || tt_comm_rank(t->o.mesh.comm) == 0; } /* ranks say the same: one is enough */
static inline bool many_ranks(const tt_trainer *t) { return t->ranks > 1; }

/* Which of how many data ranks this one is: rows are dealt to them. */
static inline int64_t data_ranks(const tt_trainer *t) { return t->o.mesh.size[TT_DP_REPLICATE] * t->o.mesh.size[TT_DP_SHARD]; }
static inline int64_t data_rank(const tt_trainer *t) { return t->coord[TT_DP_REPLICATE] * t->o.mesh.size[TT_DP_SHARD] + t->coord[TT_DP_SHARD]; }

/* Token losses and valid tokens of each row. */
static inline int64_t row_bytes(int64_t rows) { return 2 * rows * (int64_t)sizeof(double); }

/* Debug's records of a step, and a test's hand in it. */
tt_status tt_trainer_record_state(tt_trainer *t, const tt_step_report *r) TT_CHECKED;
tt_status tt_trainer_tamper_at(tt_trainer *t, tt_moment m) TT_CHECKED;

#endif
