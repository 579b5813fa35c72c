/* mesh_plan: the plan of a run on its whole mesh, of which nothing is run. */
#ifndef TT_TRAIN_MESH_PLAN_H
#define TT_TRAIN_MESH_PLAN_H

#include "plan/plan.h"
#include "train/train.h"

typedef struct tt_mesh_plan_options {
	const char *name;            /* of the config; borrowed */
	const tt_hardware *hardware; /* NULL: no time */
	int64_t limit;               /* bytes a rank may have, for the report */
	int64_t classes;             /* compiled at most, the heaviest; 0: all */
	bool spans;                  /* for tt_plan_svg */
	tt_strings dump;             /* debug.dump's words, of rank 0, into dump_out (NULL: nothing) */
	tt_buf *dump_out;
} tt_mesh_plan_options;
/* Texts and tables lie in `a`. */
tt_status tt_mesh_plan(tt_arena *a, const tt_run_options *o, const tt_mesh_plan_options *q, tt_plan_mesh *out) TT_CHECKED;

/* Returns TT_ERR_MEMORY with what does not fit and the cheapest ways that would, each planned; TT_OK if all compiled ranks fit m->limit. */
tt_status tt_mesh_plan_fits(tt_arena *a, const tt_run_options *o, const tt_plan_mesh *m) TT_CHECKED;

#endif
