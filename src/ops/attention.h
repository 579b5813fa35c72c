/* What attention.c and ring.c share. */
#ifndef TT_OPS_ATTENTION_H
#define TT_OPS_ATTENTION_H

#include "ops/internal.h"

/* Inputs of every op of the family: q [t, H*K], then nkv of k [s, G*K] and v [s, G*K'], from `tables` on positions, seq_ids, seq_table and lines;
 * all others lie along q. */
bool tt_heads_agree(tt_graph *g, const tt_attr_attention *a, const tt_value *q, const tt_value *k, const tt_value *v);
bool tt_tables_agree(tt_graph *g, const tt_attr_attention *a, const tt_value *const *in, const tt_value *const *table);
bool tt_attention_typing(const tt_typing *t, int nkv, int tables, bool backward);
void tt_attention_local(void *attr, tt_arena *arena, const tt_piece *const *in, const tt_piece *const *out);
/* (query, key) pairs, estimated from what is planned: `all` the table of all lines. */
double tt_attention_pairs(const tt_attr_attention *a, const tt_value *q, const tt_value *k, const tt_value *table, const tt_value *all);
size_t tt_attention_op_scratch(const void *attr, int nin, const tt_value *const *in, int nout, const tt_value *const *out, const tt_env *env);

extern const tt_attr tt_attention_attrs[], tt_attention_ring_attrs[];
extern const tt_attr_attention tt_attention_sample_attr[2];
void tt_attention_sample_inputs(tt_graph *g, int which, tt_v in[7]); /* q, k, v and the tables */

#endif
