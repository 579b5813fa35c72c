/* pass: rewritings of the graph. Each reads a const graph, returns a new verified one, and changes no bit of any result.
 *
 * Order for training: [model] -> partition -> autodiff -> optimizer -> recompute -> localise -> exchanges ->
 * fold_rounds -> formats -> fuse (these three `fast`) -> overlap -> exec.
 */
#ifndef TT_PASS_H
#define TT_PASS_H

#include "kernels/kernels.h"

/* ---- layouts: a plan is a table of rows, first match wins (LAYOUTS.md) ---------------------------------------------------------- */

typedef enum tt_place {
	TT_PLACE_STORE, /* a state or an input lies so                                                */
	TT_PLACE_PARAM, /* likewise, of parameters alone: the part that is the plan's, not the model's */
	TT_PLACE_MAKE,  /* what a node makes is converted to this at once                              */
	TT_PLACE_USE,   /* what a node takes is converted to this for it alone                         */
} tt_place;

/* `value` and `by` are patterns (tt_pattern_match): the value's name, of a derived state its master's; by: the op that takes it, or the
 * first value that this makes; NULL any. `axis`: a mesh axis, "fsdp" (dp_shard and cp), "data" (dp_replicate, dp_shard, cp);
 * rows for tp are for tp_rep too, unless an earlier one names it. */
typedef struct tt_layout_row {
	tt_place place;
	const char *value, *by, *axis;
	tt_type type;
	int dim;          /* of S */
	const char *when; /* "sp", "!sp": with or without sequence parallel; "gather", "head_swap", "ring": that context parallel method; NULL: always */
} tt_layout_row;

/* Tensor parallel ranks that are more than kv heads share them: tp then has a rank for each kv head, tp_rep those that share one. */
enum { TT_PLAN_DP_REPLICATE, TT_PLAN_DP_SHARD, TT_PLAN_CP, TT_PLAN_TP, TT_PLAN_TP_REP, TT_PLAN_AXES };
extern const char *const tt_plan_axes[TT_PLAN_AXES]; /* their names */

/* How queries meet the keys and values of other ranks under context parallelism: each rank gathers them all; tokens are swapped for heads around
 * attention; or they pass round the axis. */
typedef enum tt_cp_method { TT_CP_GATHER, TT_CP_HEAD_SWAP, TT_CP_RING } tt_cp_method;
const char *tt_cp_method_name(tt_cp_method m); /* the word of `when` and of the config */

/* Rows that a config adds: they stand before the model's. */
typedef struct tt_layouts {
	const tt_layout_row *rows; /* [n] */
	const char *const *where;  /* [n] "f.toml:3:1" */
	int n;
} tt_layouts;

typedef struct tt_plan {
	tt_mesh mesh; /* TT_PLAN_AXES, outermost first */
	bool sp;
	tt_cp_method cp_method;
	bool exact; /* numerics: a ring takes two turns */
	tt_layouts own;
	const tt_layout_row *rows; /* the model's; ends with a NULL value */
} tt_plan;

/* ---- layouts.c: rows by number, own ones first, as text, and by name ---- */

int tt_plan_rows(const tt_plan *plan);
const tt_layout_row *tt_plan_row(const tt_plan *plan, int i);
/* "c.toml:3:1", "row 7 of the model's table" */
const char *tt_plan_where(tt_arena *a, const tt_plan *plan, int i);
/* Who takes a value: the op's name, and that of the first value it makes. */
typedef struct tt_taker { const char *op, *makes; } tt_taker;
/* The first row for a value on axis number ax; -1: there is none, and it stays as it is. `by` NULL: no row with a `by`. */
int tt_plan_find(const tt_plan *plan, tt_place place, const char *value, const tt_taker *by, int ax);
/* Words of rows. tt_axis_type_parse: "R", "I", "P", "S(1)"; false: none of them. */
const char *tt_place_name(tt_place p);
bool tt_layout_type_parse(const char *s, tt_type *type, int *dim);
extern const char *const tt_plan_row_axes[]; /* what a row may call an axis; ended by NULL */
/* A pattern for all values that differ from this one in the number of a layer or of a loss chunk, and no others: "*.self_attn.q". */
const char *tt_layout_pattern(tt_arena *a, const char *value);
void tt_layout_row_line(const tt_layout_row *r, tt_buf *b); /* make "*norm.y" on tp as R */
void tt_layout_row_toml(const tt_layout_row *r, const char *indent, tt_buf *b); /* as a config has it */
void tt_layout_row_c(const tt_layout_row *r, tt_buf *b);    /* as a model's table has it */
/* Rows of the config against the graphs that will be partitioned (train, eval): TT_ERR_USAGE where one matches no value, with the nearest names, or
 * cannot be what it says. *warnings: rows without effect here, in `a`. */
tt_status tt_plan_check(tt_arena *a, const tt_plan *plan, const tt_graph *const *graphs, int ngraphs, const char *const **warnings, int *nwarnings) TT_CHECKED;
/* show.c: the table: every row, where it is from, what it matches in the model's graph, and, with the typed graph (NULL: none), each value's layout and the
 * conversions, layers that are alike written once. */
void tt_plan_layouts_print(const tt_plan *plan, const tt_graph *model, const tt_graph *typed, tt_buf *b);

/* The typed graph: a graph of global shapes on `plan->mesh`, where values lie as the rows say, with the conversions they ask for and no others.
 * The same on every rank. */
tt_status tt_pass_partition(const tt_graph *g, const tt_plan *plan, tt_arena *a, tt_graph **out) TT_CHECKED;

/* "; row: use \"*.weight|*.bias\" on fsdp as R" for each row of the plan that speaks of value v of a typed graph, or of what it is the gradient or a
 * version of: those of axis `ax`, which a conversion that made v changes, or (-1) of all axes that have ranks. */
void tt_plan_rows_print(const tt_plan *plan, const tt_graph *typed, tt_v v, int ax, tt_buf *b);

/* The graph of the rank at `coord`: local dims and attributes, conversions as exchanges; no mesh, as any graph of one rank. */
tt_status tt_pass_localise(const tt_graph *g, const int *coord, tt_arena *a, tt_graph **out) TT_CHECKED;

/* Gathers, scatters and sums of one rank's graph without repetition (exchanges.c). Right after localise, of graphs for training and for validation. */
typedef enum tt_gathered {
	TT_GATHERED_BY_LAYER, /* B gathers parameters of layers again, others it finds */
	TT_GATHERED_AGAIN,    /* B gathers every parameter again                        */
	TT_GATHERED_KEPT,     /* B finds what F gathered                                */
} tt_gathered;
tt_status tt_pass_exchanges(const tt_graph *g, tt_gathered mode, tt_arena *a, tt_graph **out) TT_CHECKED;

/* What B finds kept by F, and what it makes again (recompute.c). Layers are told by scope path ("model.layers.3"); what is made outside of layers,
 * and their inputs, are always kept. */
typedef enum tt_recompute_mode { TT_RECOMPUTE_NONE, TT_RECOMPUTE_SELECTIVE, TT_RECOMPUTE_FULL, TT_RECOMPUTE_BUDGET } tt_recompute_mode;
typedef struct tt_recompute {
	tt_recompute_mode mode;
	int64_t every;        /* selective: 0: by the op table (tt_keep); n: the n-th, 2n-th.. layer makes all again */
	double budget;        /* budget: share of the bytes that `none` keeps */
	int64_t budget_bytes; /* budget: the bytes themselves, if not 0 */
} tt_recompute;
typedef struct tt_recompute_report {
	int64_t none, kept;    /* bytes of one frame without and with it */
	int64_t nodes;         /* made again */
	double forward, again; /* cost of F, and of what is made again, by the op table, in FLOPs */
} tt_recompute_report;
/* Values of F that B wants and that are not kept are made again in B, as "NAME.again", right before their first reader. TT_ERR_USAGE if the budget
 * is under the least possible. `said` may be NULL. */
tt_status tt_pass_recompute(const tt_graph *g, const tt_recompute *o, tt_arena *a, tt_graph **out, tt_recompute_report *said) TT_CHECKED;
/* What the pass would say: no graph is made. */
tt_status tt_recompute_measure(const tt_graph *g, const tt_recompute *o, tt_arena *a, tt_recompute_report *out) TT_CHECKED;

/* `fast` only, where acc is one fp32: a product whose acc result is only rounded rounds it in registers. */
tt_status tt_pass_fold_rounds(const tt_graph *g, tt_arena *a, tt_graph **out) TT_CHECKED;

/* Gives each product the weight format its chosen kernel reads: derived states "NAME:fwd", "NAME:dx" packed in PREP. Casts that nothing
 * reads any more are dropped. threads: as the kernels will be run. `made`: a graph after this pass that shares the weights and whose PREP
 * is the one that runs, or NULL; what it does not pack stays plain. */
tt_status tt_pass_formats(const tt_graph *g, tt_isa isa, int threads, const tt_graph *made, tt_arena *a, tt_graph **out) TT_CHECKED;

/* `fast` only. Several nodes become one that reads and writes less (fuse.c has the table of patterns). After formats, so that a fused node
 * meets weights as they lie. off[noff]: names of patterns to leave alone. */
typedef struct tt_fuse_options {
	tt_isa isa;
	bool kernels_ref;
	int threads;
	const char *const *off;
	int noff;
} tt_fuse_options;
/* Words of debug.passes to names of patterns: "-fuse" is all of them, "-fuse.NAME" one; and to *overlap_off: "-overlap". */
tt_status tt_passes_off(tt_arena *a, const char *const *words, int n, const char *const **off, int *noff, bool *overlap_off) TT_CHECKED;
tt_status tt_pass_fuse(const tt_graph *g, const tt_fuse_options *o, tt_arena *a, tt_graph **out) TT_CHECKED;
const char *tt_fuse_pattern(int i, const char **doc); /* name of pattern i, NULL past the last; doc may be NULL */

/* Where exchanges stand, so that they run beside computation, and several at once (overlap.c). The last pass, of one rank's graph. */
typedef struct tt_overlap {
	int ahead;            /* gathers of parameters stand so many layers before their own */
	int64_t bucket_bytes; /* exchanges of a layer are one up to so many; 0: each is one */
	bool mixed;           /* for tests: exchanges take the lanes in turn */
} tt_overlap;
tt_status tt_pass_overlap(const tt_graph *g, const tt_overlap *o, tt_arena *a, tt_graph **out) TT_CHECKED;

/* Forward graph to its own program: every node of F and B moves to EVAL; roots are dropped. */
tt_status tt_pass_eval(const tt_graph *g, tt_arena *a, tt_graph **out) TT_CHECKED;

/* ---- for passes -------------------------------------------------------------------------------------------------------------------- */

/* How often each value is used as an input, as a state's next version, as an output or a root: [g->nvalues], in `a`. */
int32_t *tt_count_uses(const tt_graph *g, tt_arena *a);
/* Length of a scope path or a name up to its first component that is a number ("model.layers.3"); 0: there is none. */
size_t tt_layer_path(const char *scope);

#endif
