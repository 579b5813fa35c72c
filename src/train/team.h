/* team: what the files of train/ need of team.c. */
#ifndef TT_TEAM_H
#define TT_TEAM_H

#include "train/train.h"

typedef enum tt_team_what { TT_TEAM_END, TT_TEAM_STEP, TT_TEAM_VALIDATE, TT_TEAM_RESUME, TT_TEAM_READ, TT_TEAM_WRITE, TT_TEAM_SQUARES, TT_TEAM_SAVE } tt_team_what;
typedef struct tt_team_order { int64_t what, a, b, c; } tt_team_order; /* the call's arguments */

typedef struct tt_team {
	tt_comm *comm;
	tt_comm_group *all;
	int n;
	double timeout_s;
	tt_trainer **peers; /* [n] where ranks see each other's memory; else NULL */
	uint8_t *buffer;    /* what pieces of a tensor are packed into */
	int64_t cap;
	tt_block *give, *take; /* [n] */
} tt_team;

/* All ranks call it once their trainers are made. */
tt_status tt_team_open(tt_team *m, tt_arena *a, tt_comm *c, tt_trainer *self, double timeout_s) TT_CHECKED;
void tt_team_close(tt_team *m);
tt_status tt_team_tell(tt_team *m, tt_team_order o) TT_CHECKED;
tt_status tt_team_hear(tt_team *m, tt_team_order *o) TT_CHECKED;
/* Elements [at, at+n) of a whole state into rank 0's `out`, or from its `in` to all that hold them. Ranks that see each other's memory leave it to
 * rank 0, from any thread; else all call it, on rank 0 with its order told to the others before. */
tt_status tt_team_copy(tt_team *m, tt_trainer *t, bool reads, const char *name, int64_t at, int64_t n, void *out, const void *in) TT_CHECKED;
/* Copies what this rank holds of elements [at, at+n) of a whole state into `out`, or from `in`. */
tt_status tt_team_piece(tt_trainer *t, const char *name, int64_t at, int64_t n, uint8_t *out, const uint8_t *in) TT_CHECKED;
/* Sum of squares of a parameter, or of the gradient that the last update was made of, over what this rank holds and no rank before it does. */
tt_status tt_team_squares(tt_trainer *t, const char *param, bool grad, double *out) TT_CHECKED;
/* Of elements of whole state `name` (v: its typed value), those that `rank` gives to `to`: to whoever is placed as it is but for the axes that shard it. How many lie before
 * `at`; the first run of them in [at, end), *n long, `end` where there is none. */
int64_t tt_team_before(const tt_trainer *t, int rank, int to, const tt_value *v, int64_t at);
int64_t tt_team_run(const tt_trainer *t, int rank, int to, const tt_value *v, int64_t at, int64_t end, int64_t *n);
/* tt_team_piece with what is held one run behind the other. */
tt_status tt_team_pack(tt_trainer *t, const char *name, int64_t at, int64_t n, uint8_t *out) TT_CHECKED;
/* Before states change. `saving`: a save is in progress, whose disks others may wait for. */
tt_status tt_team_before_update(tt_team *m, bool saving) TT_CHECKED;
/* Is `rank` the first of those that hold the same piece? */
bool tt_trainer_owns(const tt_trainer *t, int rank, const char *name);

/* Are all ranks of one config? And once programs are made: of one model, and of one set of kernels? The error names the rank and what differs. Ranks that
 * are threads of one process are. `made`: whether this rank's was; else it returns that error, and all others do, too: the world stays whole. */
tt_status tt_team_agree_config(tt_comm *c, const char *config) TT_CHECKED;
tt_status tt_team_agree_programs(tt_comm *c, tt_status made, uint64_t graph, const tt_exec_options *e) TT_CHECKED;
/* Hash of each state over all ranks, and whether it can be told (record.c). Sums not yet taken cannot. All ranks call it. */
tt_status tt_mesh_hashes(tt_trainer *t, tt_comm_group *all, tt_arena *a, uint64_t **hash, bool **kept) TT_CHECKED;

#endif
