/* What the files of pass/ share. */
#ifndef TT_PASS_INTERNAL_H
#define TT_PASS_INTERNAL_H

#include "pass/pass.h"

/* Where the layouts of a typed graph come from. */
typedef struct tt_origin {
	const tt_graph *model;
	tt_plan plan;
	int asking;               /* number of the row whose conversion is being made, -1: none */
	const struct trial *trial; /* explain.c's own */
} tt_origin;

/* tt_pass_partition; `origin` lives as long as the graph. *far: the share of the model's nodes that were typed, whatever comes of it. */
tt_status tt_partition(tt_origin *origin, tt_explain_fn *explain, tt_arena *a, tt_graph **out, double *far) TT_CHECKED;
/* Whether a row speaks of value v of a model's graph, whatever the mesh, and, of place USE, whether anybody takes it whom the row means. */
bool tt_row_speaks_of(const tt_layout_row *r, const tt_graph *g, tt_v v);
bool tt_row_used(const tt_layout_row *r, const tt_graph *g, tt_v v);
/* Why row i changes nothing on this mesh; NULL: it may. */
const char *tt_row_idle(tt_arena *a, const tt_plan *plan, int i);
tt_explain_fn tt_plan_explain; /* ctx: a tt_origin */

/* Of REDUCE: whether a sum, or what it sums, stays for OPT in the bytes of the accumulator, as do sums of it: those can start in B (exec.c). */
bool tt_sum_kept(const tt_graph *g, tt_v v);

/* What exchanges in a row, or parts of buckets, have made v of. */
tt_v tt_exchanged_root(const tt_graph *g, tt_v v);
/* defer.c: gradients of weights go behind the start of exchanges that are wanted at once, `wanted` [nnodes], of B; needed: of each of those, the
 * first node that computes with what it makes, -1: none. */
tt_status tt_overlap_defer(const tt_graph *g, const bool *wanted, const int64_t *needed, tt_arena *a, tt_graph **out) TT_CHECKED;
/* hide.c: sets `hides` of every exchange of a graph in which exchanges have their places. */
void tt_overlap_hides(tt_graph *g, tt_arena *a);

#endif
