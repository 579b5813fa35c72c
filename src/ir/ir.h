/* ir: the graph. Values, nodes, layout types, the op table's type, and the reverse walk.
 *
 * A graph is append-only: builders and passes add values and nodes, never change them; a pass reads a `const` graph and
 * returns a new one. A value is a small id (tt_v, 0 = absent). Building is sticky: a builder returns a value, never a
 * status; the first error stays in the graph with its scope path and tt_graph_check returns it once at the end.
 *
 * The legend of dims used everywhere: t tokens, d model width, h heads*head_dim, g kv heads*head_dim, f ffn, v vocabulary.
 */
#ifndef TT_IR_H
#define TT_IR_H

#include "base/base.h"

/* ---- dtypes, formats, dims ------------------------------------------------------------------------------------- */

typedef enum tt_dtype {
	TT_NODTYPE,
	TT_F32,
	TT_BF16,
	TT_F64, /* the tests' and golden files' dtype: kernels compiled for double, acc is a double */
	TT_I32,
	TT_I64,
	TT_ACC, /* a sum over a splittable role, not yet rounded: one fp32 in `fast`, three int64 limbs in `exact` */
} tt_dtype;

typedef enum tt_numerics { TT_FAST, TT_EXACT } tt_numerics;

/* What one graph is compiled for: which dtype `acc` and `real` values have. Size of one element in bytes. */
int tt_dtype_size(tt_dtype dt, tt_numerics n, bool f64);
const char *tt_dtype_name(tt_dtype dt);

/* How a matrix [o,k] lies in memory. Packing changes neither shape nor name nor gradient. */
typedef enum tt_format {
	TT_PLAIN,    /* row-major lines                                                                       */
	TT_PACK_FWD, /* panels of 64 output features for Y = X W^T: [o/64][k][64] f32, [o/64][k/2][64][2] bf16  */
	TT_PACK_DX,  /* panels of 64 input features for dX = dY W:   [k/64][o][64] f32, [k/64][o/2][64][2] bf16  */
} tt_format;
const char *tt_format_name(tt_format f);

typedef enum tt_role { TT_ONE, TT_TOKENS, TT_SEQS, TT_D, TT_HEADS, TT_KV_HEADS, TT_HEAD_DIM, TT_FFN, TT_VOCAB, TT_EXPERTS } tt_role;
const char *tt_role_name(tt_role r);
/* Splittable roles may be sharded where they are contracted, so such a contraction yields TT_ACC. */
bool tt_role_splittable(tt_role r);

/* One dim. `n` is its size, for TT_TOKENS and TT_SEQS the bound it is planned for; `unit` the smallest piece of a shard in
 * elements (a head, 1). A tokens dim covers tokens [base, base+n) of the cell: its extent now is clamp(T-base, 0, n). */
typedef struct tt_dim {
	int64_t n, unit, base;
	int64_t group; /* units that are dealt together where they can be: q heads of one kv head; else 1 */
	/* On one rank, of tokens: the part-th of `parts` shares of the cell's, and of that a share again; parts 0: all. `n` bounds the share. */
	struct { int16_t part, parts; } share[3];
	tt_role role;
} tt_dim;

/* Tokens of a share when the cell has T. */
static inline int64_t tt_dim_tokens(const tt_dim *d, int64_t T)
{
	for (int i = 0; i < 3 && d->share[i].parts; i++)
		T = tt_deal(T, d->share[i].part + 1, d->share[i].parts) - tt_deal(T, d->share[i].part, d->share[i].parts);
	return T;
}

#define TT_MAX_DIMS 4
#define TT_MAX_AXES 8

/* ---- layouts: parallelism is types (LAYOUTS.md) ------------------------------------------------------------------- */

typedef enum tt_type { TT_R, TT_I, TT_V, TT_S, TT_P, TT_M } tt_type;
/* Type of a value on one mesh axis; `dim` only for TT_S. Of the axes that shard a dim each has its own unit: tp deals whole heads, and of what a rank
 * of it has fsdp deals lines. */
typedef struct tt_axis_type {
	uint8_t type; /* tt_type */
	int8_t dim;
	int8_t order; /* among the axes that shard one dim: 0 outermost */
	bool fine;    /* of S: single elements are dealt, else the dim's units; never where the dim has none (tt_dim_coarse) */
	int16_t shift; /* of S: rank r of k holds the piece of rank (r + shift) mod k */
} tt_axis_type;
typedef struct tt_layout { tt_axis_type ax[TT_MAX_AXES]; } tt_layout;

typedef struct tt_axis {
	const char *name;
	int size;
	bool rows; /* the tokens dim is dealt in whole rows (data axes), so sequences never leave a rank */
} tt_axis;
typedef struct tt_mesh {
	int naxes;
	tt_axis ax[TT_MAX_AXES];
} tt_mesh;

/* A dim on one rank: elements [start, start + n) of `whole`; for the innermost axis that cuts it, the part-th of `parts` (0: none does). */
typedef struct tt_piece { int64_t start, n, whole; int part, parts; } tt_piece;

tt_axis_type tt_axis_type_dual(tt_axis_type t, bool *has); /* *has false for M */
bool tt_axis_type_eq(tt_axis_type a, tt_axis_type b);
void tt_axis_type_print(tt_axis_type t, tt_buf *b); /* "R", "S(0)", fine "S(0)/1", shifted "S(0)+1" */
void tt_layout_print(const tt_mesh *m, const tt_layout *l, tt_buf *b); /* "tp=S(0)"; axes of size 1 not printed */

/* ---- values, state, nodes ------------------------------------------------------------------------------------------ */

typedef int32_t tt_v; /* value id; 0 = absent */

typedef enum tt_value_kind {
	TT_TEMP,   /* made by a node                                                     */
	TT_INPUT,  /* written by the loader or the loop before a program runs             */
	TT_STATE,  /* what a state holds when the program starts                          */
} tt_value_kind;

/* How tests fill an input of a sample. Not part of the graph's text. */
typedef enum tt_fill { TT_FILL_NORMAL, TT_FILL_POSITIVE, TT_FILL_IDS, TT_FILL_LABELS, TT_FILL_POSITIONS, TT_FILL_SEQ_IDS,
		       TT_FILL_SEQ_TABLE, TT_FILL_LINES, TT_FILL_ONE_STEP } tt_fill;

typedef struct tt_value {
	const char *name; /* scope path and role; unique in its graph */
	tt_dtype dtype;
	tt_dtype gdtype; /* of its gradient, TT_NODTYPE = carries none (ids, masks, statistics) */
	tt_format format;
	tt_value_kind kind;
	tt_fill fill;
	int ndim;
	tt_dim dim[TT_MAX_DIMS];
	tt_layout layout;
	int32_t def;   /* node that makes it, -1 */
	int32_t state; /* for TT_STATE: index of its state; else -1 */
} tt_value;

typedef enum tt_segment { TT_SEG_INIT, TT_SEG_PREP, TT_SEG_F, TT_SEG_B, TT_SEG_REDUCE, TT_SEG_OPT, TT_SEG_EVAL, TT_NSEGS } tt_segment;
const char *tt_segment_name(tt_segment s);

typedef enum tt_region_kind { TT_REGION_PARAM, TT_REGION_GRAD, TT_REGION_OPTIM, TT_REGION_IO, TT_REGION_FRAME, TT_REGION_WORK, TT_NREGIONS } tt_region_kind;
const char *tt_region_kind_name(tt_region_kind r);

/* A state: read at the start of a program (`value`), one new version written by its end (`next`, 0 = unchanged here).
 * States are matched by name across the graphs of one session. */
typedef struct tt_state {
	const char *name;
	tt_region_kind region;
	tt_v value;
	tt_v next;
	int32_t source;  /* the state this one is derived from in PREP (cast, pack); -1: a state of its own, checkpointed */
	bool trainable;  /* a parameter whose gradient is wanted */
	tt_v within;     /* of one rank's graph: the state in whose bytes this one lies, as its first program reads that one last; 0: its own */
} tt_state;

struct tt_op;
typedef struct tt_node {
	const struct tt_op *op;
	const void *attr; /* the op's attribute struct, in the graph's arena */
	const char *scope;
	tt_segment seg;
	int32_t group;  /* 0, or 1 + chunk of the loss: its backward follows its forward at once */
	int32_t nin, nout;
	const tt_v *in;
	tt_v *out;
} tt_node;

/* A scalar sum that the reverse walk starts from, with the value (an f32 scalar input) that seeds it. */
typedef struct tt_root { tt_v value, seed; } tt_root;

/* A typing that a rule rejects: what the text of the error is made of (reject.c). */
typedef struct tt_change { int input; tt_v value; tt_axis_type to; } tt_change;
typedef struct tt_fix { int n; tt_change change[2]; } tt_fix; /* inputs of other types, with which the rule accepts */
enum { TT_MAX_FIXES = 8 };
typedef struct tt_rejection {
	const struct tt_op *op; /* whose rule it is; NULL: a gradient is not of its value's dual type */
	const char *makes;      /* the name that its first output would have */
	char why[256];          /* what the rule says, after "has X, " */
	tt_v value;             /* the input to blame */
	int input, axis;
	tt_axis_type has;
	tt_v forward;           /* in backward: the forward value whose gradient is at fault, 0: none */
	int nfixes;             /* likeliest first */
	tt_fix fix[TT_MAX_FIXES];
} tt_rejection;
struct tt_graph;
/* Adds lines, each after a newline, to the text of a rejection in `g`. */
typedef void tt_explain_fn(const struct tt_graph *g, const void *ctx, const tt_rejection *r, tt_buf *b);

typedef struct tt_graph {
	tt_arena *arena;
	tt_mesh mesh;
	bool f64;
	tt_value *values; /* [0] is unused */
	int64_t nvalues, cap_values;
	tt_node *nodes;
	int64_t nnodes, cap_nodes;
	tt_state *states;
	int64_t nstates, cap_states;
	tt_root *roots;
	int64_t nroots, cap_roots;
	tt_v *outputs; /* values the caller reads after a program: kept to its end */
	int64_t noutputs, cap_outputs;
	/* where a builder stands */
	char scope[256];
	tt_segment seg;
	int32_t group;
	tt_v reversing; /* autodiff: the forward value whose gradient is at hand; 0: none */
	/* Who made the layouts, and can say more about one that is rejected (pass/explain.c); NULL: nobody. Copies of the graph keep it. */
	tt_explain_fn *explain;
	const void *explain_ctx;
	/* sticky error */
	tt_status status;
	char *error;
	struct tt_names *names;
} tt_graph;

tt_graph *tt_graph_new(tt_arena *a, const tt_mesh *mesh, bool f64);
tt_status tt_graph_check(const tt_graph *g) TT_CHECKED; /* the sticky error, with its scope path */
/* Records the first error; returns 0 so that builders can `return tt_graph_fail(...)`. */
tt_v tt_graph_fail(tt_graph *g, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* Invariants: ids defined before use, one definition each, dtypes and dims as `infer` says, segments in order, states of one
 * new version, unique names, types accepted by every rule. Run after every pass. `after` names the pass in the error. */
tt_status tt_graph_verify(const tt_graph *g, const char *after) TT_CHECKED;

/* Scope: "model.layers.3" + ".self_attn". `len = tt_scope_push(g, "layers.%d", i); ... tt_scope_pop(g, len)`. */
int tt_scope_push(tt_graph *g, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void tt_scope_pop(tt_graph *g, int len);

static inline const tt_value *tt_value_get(const tt_graph *g, tt_v v) { return &g->values[v]; }
int64_t tt_value_count(const tt_value *v); /* planned elements: product of dim sizes */
tt_v tt_value_find(const tt_graph *g, const char *name); /* 0 if none */

tt_dim tt_dim_of(tt_role role, int64_t n, int64_t unit);
tt_layout tt_layout_all(tt_type t);

/* New input or state values; `dims` copied. Their layout is R on every axis unless set by tt_value_set_layout right after. */
tt_v tt_input(tt_graph *g, const char *name, tt_dtype dt, tt_dtype gdtype, int ndim, const tt_dim *dims);
tt_v tt_state_new(tt_graph *g, const char *name, tt_region_kind region, tt_dtype dt, int ndim, const tt_dim *dims, bool trainable);
/* A derived state "NAME:SUFFIX" of `master`, in dtype and format; its PREP node is made by the caller. Found if it exists. */
tt_v tt_state_derived(tt_graph *g, tt_v master, const char *suffix, tt_dtype dt, tt_format f);
void tt_state_set(tt_graph *g, tt_v state_value, tt_v next); /* declares the new version */
void tt_value_set_layout(tt_graph *g, tt_v v, tt_layout l);
void tt_value_set_fill(tt_graph *g, tt_v v, tt_fill f);
void tt_graph_root(tt_graph *g, tt_v value, tt_v seed);
void tt_graph_output(tt_graph *g, tt_v value);

/* Where dim `d` of v lies on the rank at `coord` [naxes]. `but`: an axis that is left out of account, -1 none. Tokens dealt by the loader (axes
 * with `rows`) have the bound of every rank: there a piece is the dim. */
tt_piece tt_value_piece(const tt_graph *g, const tt_value *v, int d, const int *coord, int but);
/* First element of the piece of the i-th of k ranks when a dim of n elements is dealt in its units, or `fine`: edges of all pieces, i = 0 .. k. */
int64_t tt_dim_edge(const tt_dim *dim, bool fine, int64_t n, int64_t i, int64_t k);
/* Its pieces cannot begin anywhere: units are more than one element, or stay together in groups. */
static inline bool tt_dim_coarse(const tt_dim *d) { return d->unit > 1 || d->group > 1; }

/* Adds a node: runs `infer` and the op's layout rule, names outputs "scope.role" (roles: the op's output names, or `role` for
 * output 0, "=NAME" as it is; "#2" makes a repeat unique). `attr` is copied. Returns the first output, 0 after an error. */
tt_v tt_node_add(tt_graph *g, const struct tt_op *op, const void *attr, int nin, const tt_v *in, const char *role);
tt_v tt_node_add_n(tt_graph *g, const struct tt_op *op, const void *attr, int nin, const tt_v *in, int nout, const char *role);
static inline tt_v tt_out(tt_v first, int i) { return first ? first + i : 0; } /* output i: outputs are consecutive ids */

/* Text of the graph: stable, one line per state, input and node. `locals` also prints local dims and layouts. */
void tt_graph_print(const tt_graph *g, tt_buf *b);
uint64_t tt_graph_hash(const tt_graph *g);
/* A copy with every `convert` node erased (each use of its result becomes a use of its input) and mesh axes of size 1. Its
 * text must equal the one-rank graph's. */
tt_graph *tt_graph_erase(const tt_graph *g, tt_arena *a);

/* ---- the op table's type ---------------------------------------------------------------------------------------------- */

typedef enum tt_class { TT_CLASS_FORWARD, TT_CLASS_BACKWARD, TT_CLASS_FUSED, TT_CLASS_MOVE, TT_CLASS_STATE, TT_CLASS_META } tt_class;
const char *tt_class_name(tt_class c);

typedef enum tt_attr_kind { TT_ATTR_INT, TT_ATTR_BOOL, TT_ATTR_REAL, TT_ATTR_DTYPE, TT_ATTR_INTS, TT_ATTR_REALS, TT_ATTR_STR } tt_attr_kind;
/* One typed attribute: TT_ATTR_INT int64_t, BOOL bool, REAL double, DTYPE tt_dtype, INTS/REALS a tt_ints / tt_reals, STR const char*. */
typedef struct tt_attr { const char *name; tt_attr_kind kind; size_t offset; } tt_attr;
typedef struct tt_ints { int64_t n; const int64_t *v; } tt_ints;
typedef struct tt_reals { int64_t n; const double *v; } tt_reals;

/* One operand of a running kernel. Extents are those of this call (T resolved); `ld` elements between lines of dim 0.
 * `acc` values in `exact` are three planes of int64 limbs: plane j starts at p + j*plane bytes. */
typedef struct tt_arg {
	void *p;
	tt_dtype dtype; /* as stored: TT_ACC stays TT_ACC */
	tt_format format;
	int ndim;
	int64_t n[TT_MAX_DIMS];
	int64_t ld;
	int64_t plane;
} tt_arg;

/* What is the same for every kernel of a program run. */
typedef struct tt_env {
	tt_pool *pool;
	int threads;
	tt_numerics numerics;
	bool f64;
	bool first;           /* first microbatch of its step: accumulate stores instead of adding */
	int64_t step;         /* counts from 1 in OPT */
	uint64_t seed;
	struct tt_comm_axes *axes; /* groups of this rank by mesh axes, for ops that communicate; NULL: one rank */
	_Atomic int *flags;   /* one int per program instruction; a kernel raises its own (tt_call.flag): exact cannot prove */
} tt_env;

typedef struct tt_call {
	const tt_arg *in;
	const tt_arg *out;
	int nin, nout;
	const void *attr;
	const void *plan;  /* what the kernel's `plan` made at compile time (JIT kernels, blocking); may be NULL */
	void *scratch;     /* as many bytes as `scratch` asked for, 64-byte aligned, unspecified content */
	size_t room;       /* so many; 0: nobody has said it */
	const tt_env *env;
	_Atomic int *flag;
} tt_call;
typedef void tt_kernel_fn(const tt_call *c);

/* Graph being differentiated: what a vjp is given. `dout[i]` cotangent of output i (0 = none); writes din[i], 0 = none. */
typedef struct tt_vjp {
	tt_graph *g;          /* where nodes are emitted */
	const tt_node *node;  /* forward node; its in[]/out[] are ids in g */
	const tt_v *dout;
	tt_v *din;
} tt_vjp;

/* Per-axis typing: in[i] the input's type on this axis, out[i] to be written. On rejection returns false and writes the text
 * after "has ..., " into `why` (the conversion that would do). */
typedef struct tt_typing {
	const tt_graph *g;
	const struct tt_op *op;
	const void *attr;
	const tt_axis *axis;
	int nin, nout;
	const tt_value *const *in;
	const tt_value *const *out; /* dims and dtypes inferred; layouts not yet */
	const tt_axis_type *tin;
	tt_axis_type *tout;
	char *why;
	size_t why_cap;
	int *culprit; /* index of the input to blame */
} tt_typing;

typedef struct tt_cost { double flops, bytes; } tt_cost;

enum {
	TT_OP_VIEW = 1,        /* outputs are lines of input 0: no kernel runs                                          */
	TT_OP_JOIN = 2,        /* inputs become lines of output 0: no kernel runs if the planner can place them there     */
	TT_OP_ACC_LINEAR = 4,  /* keeps acc: add, moves, conversions                                                     */
	TT_OP_INPLACE = 8,     /* output i may lie on input i                                                            */
	TT_OP_ACC_SUM = 16,    /* its acc output is a sum over a contracted, splittable label                             */
};

/* What recompute does with an op's outputs where a backward wants them (pass/recompute.c). */
typedef enum tt_keep {
	TT_KEEP_NO,     /* cheap to make again                                                                            */
	TT_KEEP_SECOND, /* `selective` keeps the first, third.. of a layer: products, that cost much and hold much        */
	TT_KEEP_YES,    /* `selective` keeps them                                                                         */
	TT_KEEP_ALWAYS, /* every mode keeps them: choices that must not be made twice                                     */
} tt_keep;

typedef struct tt_op {
	const char *name, *doc;
	tt_class cls;
	int flags;
	tt_keep keep;
	int nin, nin_max;      /* arity; the inputs beyond nin are optional (0 = absent); nin_max -1: variadic */
	int nout;              /* -1: given by the builder */
	/* Dim labels, einsum style: "tk,ok,o->to". A letter is the same extent wherever it stands. An upper-case letter is never
	 * sharded inside the op (a sum or a mate lives on it). "_" marks a meta input (no gradient, any type). A letter missing from an output
	 * is contracted. Shapes, typing, and the permute-and-split test come from it. NULL: infer and spmd say everything. */
	const char *labels;
	const char *const *outs; /* roles of outputs */
	const tt_attr *attrs;    /* ends with a NULL name */
	size_t attr_size;
	/* Dims, dtype, gdtype of outputs (names and layouts are not its business). On error tt_graph_fail and return false. */
	bool (*infer)(tt_graph *g, const struct tt_op *op, const void *attr, int nin, const tt_value *const *in, int nout, tt_value *out);
	bool (*spmd)(const tt_typing *t); /* NULL: by labels */
	void (*vjp)(tt_vjp *v);
	tt_cost (*cost)(const void *attr, int nin, const tt_value *const *in, int nout, const tt_value *const *out);
	size_t (*scratch)(const void *attr, int nin, const tt_value *const *in, int nout, const tt_value *const *out, const tt_env *env);
	tt_kernel_fn *kernel; /* the reference, if it is not in the kernel sets of kernels/ under the op's name */
	/* Attributes of one rank's node, from those of the whole: offsets into shards. in[i][d] is the piece of dim d of input i (in[i] NULL: absent).
	 * Lists are made in `a`. NULL: no attribute knows of places. */
	void (*localise)(void *attr, tt_arena *a, const tt_piece *const *in, const tt_piece *const *out);
	bool (*sample)(tt_graph *g, int which); /* builds sample number `which`; false: no such */
} tt_op;

/* Typing by labels (spmd.c). */
bool tt_spmd_by_labels(const tt_typing *t);
/* Rejects input i if it is fine: for rules of ops that know heads. */
bool tt_typing_coarse(const tt_typing *t, int i);
/* Where the type of v on an axis comes from: the input, state or conversion that has it first, or the node that opened the sum (reject.c). */
tt_v tt_layout_origin(const tt_graph *g, tt_v v, int axis);
/* The value that the model wrote down, behind any conversions of it. */
tt_v tt_value_written(const tt_graph *g, tt_v v);

/* ---- the reverse walk (autodiff.c) -------------------------------------------------------------------------------------- */

/* What autodiff needs from above: the few ops it emits itself. */
typedef struct tt_autodiff_ops {
	tt_v (*add)(tt_graph *g, tt_v a, tt_v b, const char *name);
	tt_v (*round)(tt_graph *g, tt_v acc, tt_dtype to, const char *name);
	tt_v (*accumulate)(tt_graph *g, tt_v acc_state, tt_v term, bool first); /* returns the new version */
} tt_autodiff_ops;

/* Forward + backward: copies `fwd`, then for each loss chunk its backward, then the backward of the rest, all in segment B, with
 * one gradient accumulator state "grad.NAME" (acc) per trainable parameter. Gradient types must be the duals; names "d(NAME)". */
tt_status tt_autodiff(const tt_graph *fwd, const tt_autodiff_ops *ops, tt_arena *a, tt_graph **out) TT_CHECKED;

/* Copies graph `from` into a new one, node by node: the tool passes are written with. */
typedef struct tt_copy {
	const tt_graph *from;
	tt_graph *to;
	tt_v *map; /* [from->nvalues] id in `to`, 0 = not yet */
	const char *suffix; /* of the names of what is copied next; NULL: none */
} tt_copy;
tt_copy tt_copy_begin(const tt_graph *from, tt_arena *a); /* copies inputs and states; outputs and roots come with tt_copy_end */
void tt_copy_node(tt_copy *c, const tt_node *n);
void tt_copy_end(tt_copy *c);

#endif
