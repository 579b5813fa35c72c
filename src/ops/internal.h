/* What the family files share: sample inputs, dtype checks, costs. */
#ifndef TT_OPS_INTERNAL_H
#define TT_OPS_INTERNAL_H

#include "ops/ops.h"

/* Inputs of samples. `x` a float input of graph precision (val) that carries a gradient unless gdtype says otherwise. */
static inline tt_dim tokens(int64_t n) { return tt_dim_of(TT_TOKENS, n, 1); }
static inline tt_dim dim(tt_role r, int64_t n, int64_t unit) { return tt_dim_of(r, n, unit); }
static inline tt_dtype sample_val(const tt_graph *g) { return g->f64 ? TT_F64 : TT_F32; }
tt_v tt_sample_x(tt_graph *g, const char *name, tt_dtype dt, tt_dim a);
tt_v tt_sample_xy(tt_graph *g, const char *name, tt_dtype dt, tt_dim a, tt_dim b);
tt_v tt_sample_ids(tt_graph *g, const char *name, int64_t n, tt_fill f);
tt_seqs tt_sample_seqs(tt_graph *g, int64_t n); /* positions, seq_ids, seq_table, lines for n tokens */

/* in[0] must be a float dtype; writes it. false after tt_graph_fail. */
bool tt_infer_val(tt_graph *g, const tt_op *op, const tt_value *x);
bool tt_infer_same(tt_graph *g, const tt_op *op, const void *attr, int nin, const tt_value *const *in, int nout, tt_value *out); /* outputs like input 0 */
bool tt_infer_acc(tt_graph *g, const tt_op *op, const void *attr, int nin, const tt_value *const *in, int nout, tt_value *out);  /* outputs acc, no gradient */
bool tt_infer_stat(tt_graph *g, const tt_op *op, const void *attr, int nin, const tt_value *const *in, int nout, tt_value *out); /* outputs stat, no gradient */
bool tt_typing_reject(const tt_typing *t, int i, const char *fmt, ...) __attribute__((format(printf, 3, 4)));

/* Attributes that a fused op takes over from one of its parts. */
extern const tt_attr tt_dtype_attrs[], tt_linear_dx_attrs[], tt_norm_attrs[], tt_adamw_attrs[], tt_sgd_attrs[], tt_vocab_attrs[], tt_nll_dx_attrs[];

#define TT_ATTRS_END { NULL, TT_ATTR_INT, 0 }

#endif
