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
typedef struct tt_attr_linear_rope { tt_attr_rope rope; tt_dtype dtype; } tt_attr_linear_rope; /* dtype of y */
typedef struct tt_attr_attention {
	int64_t head_dim, v_head_dim, group; /* K of q and k; of v; q heads per kv head */
	double scale;                        /* of q.k */
	int64_t window;                      /* 0: none; else a query sees its own and window-1 earlier positions */
	/* Round a ring of `parts` ranks (0: no ring): K and V are the piece of the rank `shift` further on, on one rank the part-th of all lines.
	 * A query sees none of the others. */
	int64_t parts, shift, part;
} tt_attr_attention;
typedef struct tt_attr_accumulate { bool first; } tt_attr_accumulate; /* may store instead of add in the step's first cell */
typedef struct tt_attr_embedding_acc { tt_attr_vocab vocab; bool first; } tt_attr_embedding_acc;
typedef struct tt_attr_clip { double max_norm; } tt_attr_clip;
typedef struct tt_attr_adamw { double beta1, beta2, eps, weight_decay, lr_scale; } tt_attr_adamw;
typedef struct tt_attr_sgd { double momentum, weight_decay, lr_scale; bool nesterov; } tt_attr_sgd;
/* cut 0: no truncation, else in stds. A shard begins at `line`, `column` of the whole tensor, whose lines have `width` elements; 0: it is whole. */
typedef struct tt_attr_init { double mean, std, cut; const char *name; int64_t line, column, width; } tt_attr_init;
typedef struct tt_attr_convert { const char *axis; int64_t to, dim, shift; bool fine; } tt_attr_convert; /* tt_type; of S: which dim, how far round, cut anywhere */

/* A conversion on one rank of a group of `members`. Dim `dim` of the side that has it whole is cut at edges[0 .. members], one piece a member;
 * without edges it is tokens, whose number the cell says, dealt one by one. The other side has this member's piece. */
typedef enum tt_exchange_kind {
	TT_EX_GATHER,  /* S to R, I: pieces of all members                       */
	TT_EX_SCATTER, /* P to S: this member's piece of the sum of all members' */
	TT_EX_REDUCE,  /* P to R, I: the sum of all members'                     */
	TT_EX_MAX,     /* M to R, I: the largest of all members'                 */
	TT_EX_SLICE,   /* R, I to S: this member's piece; nobody talks           */
	TT_EX_PAD,     /* S to P: zero outside of this member's piece; likewise  */
	TT_EX_ONCE,    /* R, I to P: zero but on member 0; likewise              */
	TT_EX_SWAP,    /* S(dim) to S(to): every member's part of this member's piece of dim `to`, joined along `dim` */
	TT_EX_SHIFT,   /* the piece of the member `shift` places further on      */
} tt_exchange_kind;
/* Can an exchange be hidden? Behind its own program's computation; or, of F's first gathers, behind that of PREP, if F of a step's first cell follows. */
typedef enum tt_hides { TT_HIDES_NOT, TT_HIDES, TT_HIDES_AHEAD } tt_hides;
typedef struct tt_attr_exchange {
	int64_t kind;      /* tt_exchange_kind */
	const char *axis, *name; /* of the value; for people */
	int64_t axes;      /* bit i: axis i of the mesh is in the group */
	int64_t members, index;
	int64_t hides;     /* tt_hides: whether computation stands where it could run beside it; of the overlap pass */
	int64_t lane;      /* tt_comm_lane; of the same pass */
	int64_t dim;
	tt_ints edges;     /* [members + 1], or none */
	bool fine;         /* they deal single elements, not the dim's units */
	int64_t to;        /* of a swap: the dim that is cut, */
	tt_ints cuts;      /* where: as edges */
	int64_t shift;     /* 1 .. members - 1 */
	tt_ints dims;      /* extents of the result */
	bool tree;         /* terms join as the binary tree over the members, where their number is a power of 2; else in their order */
} tt_attr_exchange;

/* Several operands of one kind and group in one exchange. */
typedef struct tt_attr_bucket {
	int64_t kind;
	const char *axis, *name; /* of the first */
	int64_t axes, members, index;
	int64_t hides;
	int64_t lane;      /* all up to here as an exchange has it */
	tt_ints dim, ndim; /* [n]                            */
	tt_ints edges;     /* [n, members + 1], or none      */
	tt_ints cuts;      /* likewise                       */
	tt_ints dims;      /* [n, TT_MAX_DIMS]               */
	int64_t to, shift; /* of all                         */
	bool tree;
} tt_attr_bucket;
enum { TT_BUCKET_JOB = 512 }; /* bytes of scratch for an operand, beside its attributes and blocks */

static inline tt_attr_exchange tt_bucket_part(const tt_attr_bucket *b, int i)
{
	tt_attr_exchange x = { .kind = b->kind, .axis = b->axis, .name = b->name, .axes = b->axes, .members = b->members, .index = b->index, .lane = b->lane, .dim = b->dim.v[i],
			       .dims = { b->ndim.v[i], b->dims.v + (int64_t)i * TT_MAX_DIMS }, .to = b->to, .shift = b->shift, .tree = b->tree };
	if (b->edges.n)
		x.edges = (tt_ints){ b->members + 1, b->edges.v + i * (b->members + 1) };
	if (b->cuts.n)
		x.cuts = (tt_ints){ b->members + 1, b->cuts.v + i * (b->members + 1) };
	return x;
}

#endif
