/* attention: what the op table needs to know of the kernels in attention.k.c and attention_bwd.k.c. */
#ifndef TT_KERNELS_ATTENTION_H
#define TT_KERNELS_ATTENTION_H

#include "kernels/attrs.h"

/* Positions in a K/V block and in a page of the K/V cache (EXACT.md); q heads that share one gathered block. */
enum { TT_ATTENTION_BLOCK = 64, TT_ATTENTION_HEADS = 4 };

/* Bytes of scratch that one lane works in, for either direction and the widest real. */
static inline size_t tt_attention_lane_scratch(const tt_attr_attention *a)
{
	const int64_t b = TT_ATTENTION_BLOCK, k = tt_round_up(a->head_dim, 16), v = tt_round_up(a->v_head_dim, 16);
	const int64_t heads = TT_MIN(TT_MAX(a->group, 1), TT_ATTENTION_HEADS);
	/* per head: q transposed, o, m, l; K and V; scores; lanes; factors; three limbs of o and of l */
	const int64_t fwd = heads * b * (k + v + 2) + b * (k + v) + b * b + 16 * b + b + 3 * b * (v + 1);
	/* K, K^T, dK, q, dq; V^T, dV, dO; P, dS; lse, D; one line of V and O */
	const int64_t bwd = b * (5 * k + 3 * v) + 2 * b * b + 2 * b + 2 * v;
	return (size_t)TT_MAX(fwd, bwd) * 8;
}

/* Bytes of scratch of `attention` and `attention_bwd` for T queries, S lines of K and V, and a pool of `threads` lanes. */
static inline size_t tt_attention_scratch(const tt_attr_attention *a, int64_t T, int64_t S, int threads)
{
	return (size_t)tt_round_up(4 * (T + 1 + 4 * S), 64) + (size_t)threads * tt_attention_lane_scratch(a);
}

#endif
