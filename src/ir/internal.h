/* What the files of ir/ share and nobody else needs. */
#ifndef TT_IR_INTERNAL_H
#define TT_IR_INTERNAL_H

#include "ir/ir.h"

#define TT_MAX_IO 72 /* inputs or outputs of one node: 64 loss chunks and some */
#define TT_MAX_LABELS 16

/* Labels of one operand: `c[n]` one letter a dim; meta: "_", no gradient; any: "*", dims of input 0 whatever they are. */
typedef struct tt_label {
	bool meta, any;
	int n;
	char c[TT_MAX_DIMS];
} tt_label;
typedef struct tt_labels {
	int nin, nout;
	tt_label in[TT_MAX_LABELS], out[TT_MAX_LABELS];
} tt_labels;
tt_labels tt_labels_parse(const tt_op *op);
/* A variadic op repeats its last label. */
static inline const tt_label *tt_label_in(const tt_labels *l, int i) { return &l->in[TT_MIN(i, l->nin - 1)]; }
static inline const tt_label *tt_label_out(const tt_labels *l, int i) { return &l->out[TT_MIN(i, l->nout - 1)]; }

/* Dims, dtypes (infer) and layouts (type) of a node's outputs, as tt_node_add does them; verify does them again. */
bool tt_node_infer(tt_graph *g, const tt_op *op, const void *attr, int nin, const tt_value *const *in, int nout, tt_value *out);
/* A rejection is written to *r. */
bool tt_node_type(tt_graph *g, const tt_op *op, const void *attr, int nin, const tt_value *const *in, int nout, tt_value *out, tt_rejection *r);
void tt_rejection_fill(const tt_typing *t, int axis, tt_rejection *r);
/* The sticky error, with all that can be said of it. */
void tt_reject(tt_graph *g, const tt_rejection *r);
tt_v tt_value_push(tt_graph *g, const tt_value *v);

#endif
