/* The rest of a fused op that begins with products of one X (linear_silu_mul, linear_rope): its reference kernel on a block of what the
 * products made, in the block's place in memory and while it is in cache. */
#ifndef TT_KERNELS_TAIL_H
#define TT_KERNELS_TAIL_H

#include "kernels/kernels.h"

typedef struct tt_tail {
	tt_kernel_fn *run; /* NULL: a product alone */
	int products;      /* inputs X, as many weights, then what only the rest reads by lines; outputs in the order of the weights */
} tt_tail;

tt_tail tt_tail_of(const char *op, tt_isa isa, bool f64);
/* On lines [m0, m0+lines), columns [n0, n0+n) of the outputs. With `alone` in this thread: inside a task of the pool. */
void tt_tail_run(const tt_tail *t, const tt_call *c, bool alone, int64_t m0, int64_t lines, int64_t n0, int64_t n);

#endif
