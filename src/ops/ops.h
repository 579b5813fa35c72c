/* ops: the op table and the builders models are written with.
 *
 * A builder adds nodes to the graph at its scope, segment and chunk group and returns the (first) output; after an error every builder
 * returns 0 and the error waits in the graph. `role` names the result under the scope; NULL takes the op's own. Dtypes follow the
 * inputs: `val` is what x holds (bf16, f32; f64 in an f64 graph), `stat` is f32 (f64). Shapes: t tokens, D model, h heads*K, f ffn, v vocabulary.
 */
#ifndef TT_OPS_H
#define TT_OPS_H

#include "kernels/attrs.h"

#define TT_OP(name, family) extern const tt_op tt_op_##name;
#include "ops/ops.def"
#undef TT_OP

/* The table, in the order of ops.def, ended by NULL; an op by name, NULL if there is none. */
extern const tt_op *const tt_ops[];
const tt_op *tt_op_find(const char *name);
const char *tt_op_family(const char *name);
extern const tt_autodiff_ops tt_autodiff_builders;
tt_dtype tt_stat_dtype(const tt_graph *g); /* f32, f64 in an f64 graph */

/* forward */
tt_v tt_embedding(tt_graph *g, tt_v ids, tt_v w_vd, const char *role);                     /* val [t,D], rounded */
tt_v tt_linear(tt_graph *g, tt_v x_tk, tt_v w_ok, tt_v b_o, const char *role);             /* val [t,o]; rounds if k is splittable */
tt_v tt_linear_stat(tt_graph *g, tt_v x_tk, tt_v w_ok, const char *role);                  /* stat [t,o] (logits); gradient in val */
tt_v tt_linear_acc(tt_graph *g, tt_v x_tk, tt_v w_ok, tt_v b_o, const char *role);         /* acc [t,o], k splittable; the caller converts and rounds */
tt_v tt_rms_norm(tt_graph *g, tt_v x, tt_v w, double eps, const char *role);               /* val [t,D] (+ rstd) */
tt_v tt_rope_table(tt_graph *g, tt_v positions, const double *inv_freq, int64_t n, double scale); /* stat [t,2n] */
tt_v tt_rope(tt_graph *g, tt_v x, tt_v table, int64_t head_dim, const char *role);
typedef struct tt_seqs { tt_v positions, seq_ids, seq_table, lines; } tt_seqs;             /* inputs that place tokens in sequences */
tt_v tt_attention(tt_graph *g, tt_v q, tt_v k, tt_v v, const tt_seqs *s, const tt_attr_attention *a, const char *role); /* val [t,h'] (+ lse) */
/* The same round a ring of the k ranks of `axis`, where q, k and v lie in pieces of tokens: keys and values pass from rank to rank, each turn's state is
 * merged (`exact`: row maxima first, then sums). What attention has as inputs; `name` is the result's. */
tt_v tt_attention_ring(tt_graph *g, const tt_v in[7], const tt_attr_attention *a, const char *axis, int k, bool exact, const char *name);
tt_v tt_silu_mul(tt_graph *g, tt_v gate, tt_v up, const char *role);
tt_v tt_add(tt_graph *g, tt_v a, tt_v b, const char *role);
tt_v tt_round(tt_graph *g, tt_v acc, tt_dtype to, const char *role);
/* Token losses of one chunk: nll stat [t], 0 where the label is -100. *logits_out may be NULL. */
tt_v tt_token_loss(tt_graph *g, tt_v logits, tt_v labels);
tt_v tt_total(tt_graph *g, tt_v x_t, const char *role);                                    /* acc [1] */

/* moves */
tt_v tt_split_tokens(tt_graph *g, tt_v x, int n, const char *role);                        /* n views; the i-th is tt_out(first, i) */
tt_v tt_concat_tokens(tt_graph *g, int n, const tt_v *parts, const char *role);
/* A declared change of layout on one mesh axis; its vjp is the dual one. */
tt_v tt_convert(tt_graph *g, tt_v x, const char *axis, tt_type to, int dim);
/* Pieces of dim `d`, S(d), passed round the axis until rank r has that of rank r + shift: S(d)+shift. */
tt_v tt_shift(tt_graph *g, tt_v x, const char *axis, int d, int shift);

/* state */
tt_v tt_cast(tt_graph *g, tt_v x, tt_dtype to, const char *role);
tt_v tt_pack(tt_graph *g, tt_v x, tt_dtype to, tt_format f, const char *role);
tt_v tt_accumulate(tt_graph *g, tt_v state, tt_v term, bool first);
tt_v tt_square_sum(tt_graph *g, tt_v x, const char *role);
tt_v tt_norm_clip(tt_graph *g, tt_v sumsq, double max_norm);                               /* norm, coef */
tt_v tt_adamw(tt_graph *g, tt_v p, tt_v m, tt_v v, tt_v grad, tt_v coef, tt_v hyper, const tt_attr_adamw *a);
tt_v tt_sgd(tt_graph *g, tt_v p, tt_v mom, tt_v grad, tt_v coef, tt_v hyper, const tt_attr_sgd *a);
tt_v tt_fill_normal(tt_graph *g, tt_v state, const tt_attr_init *a);
tt_v tt_fill_const(tt_graph *g, tt_v state, double value);

/* Axes of the mesh, as bits, with whose ranks a node talks; 0: with none. */
int64_t tt_exchange_axes(const tt_node *n);
/* Whether its result may lie where its operand does: others still read that. */
bool tt_exchange_in_place(const tt_node *n);
/* Whether pieces of a weight in format `f` can be gathered as they lie. */
bool tt_exchange_packs(const tt_attr_exchange *a, tt_format f, tt_dtype dt);

/* The 8 K segments of a contraction over `dim` (DESIGN 12), in elements, dealt in its units and groups. */
void tt_segments_deal(const tt_dim *dim, int64_t edges[9]);
/* What of each segment lies in a piece, counted from its start; in `a`. No segments: none. */
void tt_segments_local(tt_ints *segments, tt_arena *a, const tt_piece *piece);

#endif
