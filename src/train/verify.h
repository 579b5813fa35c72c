/* verify: one rank against meshes of ranks, bit for bit (`exact`).
 *
 * The config's model is shrunk to the smallest dims that a degree up to the number of ranks divides as it divides the config's, so that a plan for a
 * large model is proven in seconds: heads that tp does not divide, fewer kv heads than tp and an uneven vocabulary stay what they are. */
#ifndef TT_VERIFY_H
#define TT_VERIFY_H

#include "train/train.h"

enum { TT_VERIFY_RANKS = 64 }; /* at most */

typedef struct tt_verify_options {
	int ranks;    /* meshes of 2 .. ranks ranks; with a list, the most that one of them has */
	int steps;
	bool full;    /* the model and data as they are */
	bool fast;    /* in `fast`, what that promises: each token's forward has the same bits for tp 1, 2, 4, 8 and any dp and cp. No backward, no resume */
	bool methods; /* every method of context parallelism, each with one of the balancers; else that of the options alone */
	const struct tt_verify_mesh *list; /* these meshes alone, size, sp, method, balancer, rows and recompute of them; NULL: every legal one */
	int64_t nlist;
	const char *folder; /* of saves: it is there, and the caller removes it. NULL: one of its own */
	const volatile sig_atomic_t *stop; /* a signal's number once the proof is to end, after the mesh at hand. Any process's is all processes'. NULL: never */
	tt_comm *comm; /* this rank's of a world of processes, at least `ranks` of them: all call tt_verify, and all have the result. NULL: ranks as threads */
	/* For tests of the test: changes a rank's options before its trainer is made. NULL: nothing. */
	void (*fault)(void *ctx, tt_run_options *o);
	void *fault_ctx;
} tt_verify_options;

typedef struct tt_verify_mesh {
	int size[TT_RUN_AXES];
	bool sp;
	tt_cp_method cp_method;
	tt_balance cp_balance;
	int64_t rows;        /* of a microbatch; 0: as the config has it, or with the shrunk model one by one */
	bool recompute;      /* all of it, where the one rank keeps everything */
	tt_gathered gathered; /* parameters that B gathers again */
	bool in_turn;        /* exchanges one by one where the plan declares them: no overlap */
	const char *illegal; /* why it was not run; NULL: it was */
	const char *finding; /* what differs first, or the error; NULL: every bit is that of one rank */
	tt_status error;     /* whose text `finding` is: it was not compared. TT_ERR_TYPE, TT_ERR_USAGE: its plan is refused; else its run failed. TT_OK: it differs */
	int64_t values;      /* of step 1 that rank 0 compared, and terms of open sums; 0: with `full` */
	double seconds;
} tt_verify_mesh;

typedef struct tt_verify_result {
	tt_verify_mesh *meshes;
	int64_t n, proven, failed, illegal; /* failed: with a finding, */
	int64_t refused, broken;            /* of them with an error: in their plan, in their run */
	int64_t listed;          /* meshes; n of them were looked at, fewer where it was stopped */
	int stopped;             /* by this signal; 0: it was not */
	int64_t states, numbers; /* compared after each step of each mesh */
	int resumed;             /* steps after the resume */
	tt_llama_config model;   /* as it was run */
} tt_verify_result;

/* The smallest model that every degree up to `ranks` divides as it does `m`. `fast`: of widths that fast kernels take, so that they are what is compared. */
tt_llama_config tt_verify_small(tt_llama_config m, int ranks, bool fast);
static inline bool tt_verify_refused(const tt_verify_mesh *m) { return m->error == TT_ERR_TYPE || m->error == TT_ERR_USAGE; }
/* "dp_shard 2, tp 2, sp" */
const char *tt_verify_mesh_name(tt_arena *a, const tt_verify_mesh *m);

/* Each mesh makes its steps, saves, and goes on from the save of the mesh before it (the first from one rank's, at last one rank from the last mesh's).
 * `seen`, if given, is called after each mesh. A mesh that differs, and with ranks as threads one that fails, is a finding, not an error. */
tt_status tt_verify(tt_arena *a, const tt_run_options *o, const tt_verify_options *v, void (*seen)(void *ctx, const tt_verify_mesh *m), void *ctx,
	tt_verify_result *out) TT_CHECKED;

#endif
