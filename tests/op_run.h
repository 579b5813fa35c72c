/* What tests of single ops share: contents of values, and two ways to run a graph of sample ops.
 *
 *   op_exec    through tt_exec: planner, views, joins, overrides, fewer tokens than planned
 *   op_direct  kernel by kernel, reference kernels only. Operands end where a page without access begins, outputs and scratch
 *              hold garbage before the call, what lies before an operand must not change, inputs neither.
 *
 * Both take and fill contents by value id. Not a way to run models: every call allocates.
 */
#ifndef TT_TESTS_OP_RUN_H
#define TT_TESTS_OP_RUN_H

#include "exec/exec.h"
#include "ops/ops.h"
#include "test.h"

typedef struct op_env {
	tt_numerics numerics;
	bool f64;
	tt_isa isa;         /* kernel set; zero is TT_ISA_REF */
	bool kernels_fast;  /* op_exec: the override table too */
	bool no_alias;      /* op_exec: nothing shares bytes, joins copy */
	int threads;        /* 0 = 1 */
	bool first;         /* first cell of its step */
	uint64_t seed;      /* of random fills */
	bool in_place;      /* op_direct: output i of an op that may work in place lies on input i */
	uint8_t garbage;    /* op_direct: the byte that outputs and scratch are full of before a call */
} op_env;

/* Content of one value, row-major without gaps, as stored. Limbs of `acc` in `exact` are three planes of `count` int64. */
typedef struct op_tensor {
	tt_value val;       /* its type; dim[].n are the extents of `bytes`, not the planned ones */
	int64_t count;      /* elements, padding of a packed format included */
	int esize, planes;
	void *bytes;
} op_tensor;

tt_isa op_isa(const tt_test *t); /* of the run */

/* ---- contents: results are new, in the arena ------------------------------------------------------------------------ */

op_tensor *op_tensor_new(tt_arena *a, const tt_value *type, const op_env *e); /* zeros; extents from type->dim[].n */
double op_get(const op_tensor *x, int64_t i);
void op_set(op_tensor *x, int64_t i, double v);         /* rounded to the dtype; acc: to fp32, then exactly */
op_tensor *op_copy(tt_arena *a, const op_tensor *x);
op_tensor *op_convert(tt_arena *a, const op_tensor *x, tt_dtype dt, const op_env *e); /* the same numbers in another dtype */
op_tensor *op_slice(tt_arena *a, const op_tensor *x, int dim, int64_t first, int64_t n);
op_tensor *op_permute(tt_arena *a, const op_tensor *x, int dim, const int64_t *perm); /* index i of dim gets index perm[i] of x */
op_tensor *op_concat(tt_arena *a, int n, const op_tensor *const *parts, int dim);
op_tensor *op_sum(tt_arena *a, const op_tensor *x, const op_tensor *y); /* acc in `exact`: canonical limbs; else rounded sums */
bool op_same(const op_tensor *x, const op_tensor *y);   /* extents and bytes */
double op_distance(const op_tensor *x, const op_tensor *y); /* |x - y| / |y| in the 2-norm; 0/0 is 0; NaN if one is not finite */

/* ---- graphs ----------------------------------------------------------------------------------------------------------- */

/* Sample `which` of the op on a mesh without axes; NULL: no such sample. */
tt_graph *op_sample(tt_arena *a, const tt_op *op, int which, bool f64);

/* Contents of all inputs by their fill, for T tokens (-1: as many as planned), [nvalues]; NULL for what nodes make. The same seed gives
 * the same numbers in each dtype, up to rounding. Sequences of T >= 6 tokens end at 5/12, 1/2 and all of T; K/V lines are tokens. */
op_tensor **op_inputs(tt_arena *a, const tt_graph *g, const op_env *e, int64_t T, uint64_t seed);
int64_t op_nseqs(int64_t T);

/* Run all nodes of segment F for T tokens (-1: as planned) and fill in what they make. `g` gets its values as outputs. */
tt_status op_exec(tt_arena *a, tt_graph *g, const op_env *e, int64_t T, op_tensor **v) TT_CHECKED;
tt_status op_direct(tt_arena *a, const tt_graph *g, const op_env *e, op_tensor **v) TT_CHECKED;

/* One op on contents of any extents: in[i] NULL where optional; out[nout] are new. TT_ERR_NUMERIC if the kernel raised its flag,
 * TT_ERR_TYPE if `infer` refuses or bytes changed that must not. Moves have no kernel here. */
tt_status op_call(tt_arena *a, const tt_op *op, const void *attr, int nin, op_tensor *const *in, int nout, const op_env *e,
	op_tensor **out) TT_CHECKED;

/* Attributes: a copy to change, and an attribute of it by name (NULL if there is none or no attributes at all). */
void *op_attr_copy(tt_arena *a, const tt_op *op, const void *attr);
void *op_attr_at(const tt_op *op, void *attr, const char *name);

#endif
