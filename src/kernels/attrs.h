/* Attribute structs of the ops whose kernels live in this folder. One struct per op, filled by the builders in ops/, read by
 * kernels; printed through the op's attribute table.
 *
 * Legend: T tokens, D model, F hidden, H heads, G kv heads, K head dim, V vocabulary. All matrices are row-major [lines, n]. */
#ifndef TT_KERNELS_ATTRS_H
#define TT_KERNELS_ATTRS_H

#include "ir/ir.h"

/* The 8 fixed K segments of a forward contraction over heads, ffn or vocabulary: segment i is [at[i], at[i+1]); n = 9 edges, or
 * n = 0: one chain. */
typedef struct tt_attr_linear {
	tt_dtype dtype;   /* of y; TT_ACC for a splittable contraction */
	tt_ints segments;
	bool rounded;     /* `fast`: a `round` of the acc result was folded in, dtype is the rounded one */
} tt_attr_linear;
typedef struct tt_attr_linear_dx { tt_dtype dtype; bool rounded; } tt_attr_linear_dx;
typedef struct tt_attr_dtype { tt_dtype dtype; } tt_attr_dtype;                      /* round, cast */
typedef struct tt_attr_pack { tt_dtype dtype; int64_t format; } tt_attr_pack;        /* tt_format */
typedef struct tt_attr_vocab { int64_t first, n; } tt_attr_vocab;                    /* the shard's first id; its ids (embedding_dw) */
typedef struct tt_attr_nll_dx { tt_attr_vocab vocab; tt_dtype dtype; } tt_attr_nll_dx; /* dtype of dx */
typedef struct tt_attr_norm { double eps; } tt_attr_norm;
typedef struct tt_attr_sum_exp { tt_ints segments; } tt_attr_sum_exp;               /* 9 edges in ids, as tt_attr_linear's */
typedef struct tt_attr_rope_table { tt_reals inv_freq; double scale; } tt_attr_rope_table; /* rounded to fp32; cos, sin *= scale */
typedef struct tt_attr_rope { int64_t head_dim; bool inverse; } tt_attr_rope;
typedef struct tt_attr_attention {
	int64_t head_dim, v_head_dim, group; /* K of q and k; of v; q heads per kv head */
	double scale;                        /* of q.k */
	int64_t window;                      /* 0: none; else a query sees its own and window-1 earlier positions */
} tt_attr_attention;
typedef struct tt_attr_accumulate { bool first; } tt_attr_accumulate; /* may store instead of add in the step's first cell */
typedef struct tt_attr_clip { double max_norm; } tt_attr_clip;
typedef struct tt_attr_adamw { double beta1, beta2, eps, weight_decay, lr_scale; } tt_attr_adamw;
typedef struct tt_attr_sgd { double momentum, weight_decay, lr_scale; bool nesterov; } tt_attr_sgd;
typedef struct tt_attr_init { double mean, std, cut; const char *name; } tt_attr_init; /* cut 0: no truncation, else in stds */

#endif
