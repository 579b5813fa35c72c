/* pass: rewritings of the graph. Each reads a const graph, returns a new verified one, and changes no bit of any result.
 *
 * Order for training: [model] -> partition -> autodiff -> optimizer -> fold_rounds (`fast`) -> formats -> exec.
 */
#ifndef TT_PASS_H
#define TT_PASS_H

#include "kernels/kernels.h"

/* The typed local graph of a rank, from a model graph of global shapes. Every axis has size 1 in this version: the copy is the graph
 * itself on `mesh`; a larger axis is refused by name. */
tt_status tt_pass_partition(const tt_graph *g, const tt_mesh *mesh, tt_arena *a, tt_graph **out) TT_CHECKED;

/* `fast` only, where acc is one fp32: a product whose acc result is only rounded rounds it in registers. */
tt_status tt_pass_fold_rounds(const tt_graph *g, tt_arena *a, tt_graph **out) TT_CHECKED;

/* Gives each product the weight format its chosen kernel reads: derived states "NAME:fwd", "NAME:dx" packed in PREP. Casts that nothing
 * reads any more are dropped. threads: as the kernels will be run. */
tt_status tt_pass_formats(const tt_graph *g, tt_isa isa, int threads, tt_arena *a, tt_graph **out) TT_CHECKED;

/* Forward graph to its own program: every node of F and B moves to EVAL; roots are dropped. */
tt_status tt_pass_eval(const tt_graph *g, tt_arena *a, tt_graph **out) TT_CHECKED;

#endif
