/* verify: one rank against meshes of ranks, bit for bit (`exact`).
 *
 * The config's model is shrunk to the smallest dims of the same divisibility (as far as degrees up to 8 can see), so that a plan for a large
 * model is proven in seconds: every extent keeps its greatest common divisor with 840 = lcm(1..8). */
#ifndef TT_VERIFY_H
#define TT_VERIFY_H

#include "train/train.h"

typedef struct tt_verify_options {
	int ranks;    /* meshes of 2 .. ranks ranks */
	int steps;
	bool full;    /* the model and data as they are */
	int size[TT_RUN_AXES]; /* this mesh alone; all 0: every legal one */
	/* For tests of the test: changes a rank's options before its trainer is made. NULL: nothing. */
	void (*fault)(void *ctx, tt_run_options *o);
	void *fault_ctx;
} tt_verify_options;

typedef struct tt_verify_mesh {
	int size[TT_RUN_AXES];
	bool sp;
	int64_t rows;        /* of a microbatch */
	bool recompute;      /* all of it, where the one rank keeps everything */
	const char *illegal; /* why it was not run; NULL: it was */
	const char *finding; /* what differs first, or the error; NULL: every bit is that of one rank */
	int64_t values;      /* of step 1 that rank 0 compared, and terms of open sums; 0: with `full` */
	double seconds;
} tt_verify_mesh;

typedef struct tt_verify_result {
	tt_verify_mesh *meshes;
	int64_t n, proven, failed, illegal;
	int64_t states, numbers; /* compared after each step of each mesh */
	int resumed;             /* steps after the resume */
	tt_llama_config model;   /* as it was run */
} tt_verify_result;

/* "dp_shard 2, tp 2, sp" */
const char *tt_verify_mesh_name(tt_arena *a, const tt_verify_mesh *m);

/* Each mesh makes its steps, saves, and goes on from the save of the mesh before it (the first from one rank's, at last one rank from the last mesh's).
 * `seen`, if given, is called after each mesh. A mesh that differs is a finding, not an error. */
tt_status tt_verify(tt_arena *a, const tt_run_options *o, const tt_verify_options *v, void (*seen)(void *ctx, const tt_verify_mesh *m), void *ctx,
	tt_verify_result *out) TT_CHECKED;

#endif
