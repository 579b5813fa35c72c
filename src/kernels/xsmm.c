/* Fast matrix products: linear, linear_dx, linear_dw and what is fused with them, equal to product.k.c bit for bit: the rows.
 *
 * Every tile is C[64 x n] = A[64 x k] B[k x n]: 64 features of a packed panel, n <= 6 lines of the other operand. 64 x 6 accumulators are what
 * fits the registers of AVX-512, and one width for everything means one order of sums for everything. Inside a tile the contraction runs
 * ascending in one chain per element and K segment, and an open chain is kept as f32, so neither the cut into chunks (which keeps a panel's
 * chunk in L2) nor the cut into lines, panels or threads changes a bit.
 *
 *   AVX-512, f32; AVX512_BF16, bf16   own tiles: chain.h, xsmm_forward.c, chain_weights.c
 *   AVX2; bf16 on AVX-512 without it  libxsmm's: xsmm_tile.h, xsmm_forward.c, xsmm_weights.c
 *
 * libxsmm is column-major: from there lines are columns, as they lie (ldb = their length), C in place. What must be kept away from libxsmm
 * 1.17, because bits or memory suffer:
 *   m mod 64 in 1..16   selects tiles that split the contraction over several accumulators: formats pad panels to 64, and the
 *                       last panel goes through a scratch tile of 64 columns
 *   bf16, odd k or ldb  refused or silently wrong: such nodes are not accepted and stay with the reference
 *   bf16 C, beta = 1    would round between chunks: longer sums are kept in f32 scratch and rounded once
 *   n = 0, k = 0        returns a tile that must not be called
 *   prefetch = NULL     may change the signature: always NONE
 * Its bf16 tiles need AVX512_BF16: below it libxsmm emulates in another order. There bf16 operands are widened into cache, the
 * odd element of each pair before the even one, and f32 tiles run with subnormals as zeros (FTZ and DAZ of MXCSR): the chain of
 * VDPBF16PS, as product.k.c has it. Weights are packed as for the bf16 tiles, so formats do not depend on the instruction set.
 *
 * Third-party state: libxsmm keeps one target for the process and one registry of tiles, keyed by shape and not by target. The
 * target is set to what the row asked for; a shape made for AVX-512 earlier in the process is found again by a later AVX2
 * plan. The bits are the same.
 */
#include "kernels/xsmm.h"

#include "kernels/xsmm_tile.h"

#ifndef TT_NO_X86

enum { MANY = 1024 }; /* lines from which on a weight stays plain and its panels are packed in the call */

static bool forward_accepts_f32(const tt_kernel_case *c) { return tt_xsmm_forward_accepts(c, TT_F32); }
static bool forward_accepts_bf16(const tt_kernel_case *c) { return tt_xsmm_forward_accepts(c, TT_BF16); }
static bool weights_accepts_f32(const tt_kernel_case *c) { return tt_xsmm_weights_accepts(c, TT_F32); }
static bool weights_accepts_bf16(const tt_kernel_case *c) { return tt_xsmm_weights_accepts(c, TT_BF16); }

/* Many lines: to pack in the call costs 2% of the product at 2,048 lines, 3.4% at 1,024, 4.5% at 512, 10% at 256 (one core, AVX-512); no copy of
 * the weight is kept for either direction, nor made by PREP. */
static bool forward_accepts_many(const tt_kernel_case *c) { return tt_xsmm_forward_accepts(c, TT_F32) && c->in[0]->dim[0].n >= MANY; }

/* Rows know their level; the functions of a row are told only the case. */
#define FORWARD_AT(level, plain, suffix)                                                                               \
	static size_t forward_scratch_##suffix(const tt_kernel_case *c) { return tt_xsmm_forward_scratch(c, level, plain); } \
	static tt_status forward_plan_##suffix(const tt_kernel_case *c, tt_arena *a, const void **out)                 \
	{                                                                                                              \
		TT_TRY(tt_xsmm_forward_plan(c, a, level, plain, out));                                                 \
		return TT_OK;                                                                                          \
	}
#define WEIGHTS_AT(level, suffix)                                                                                      \
	static size_t weights_scratch_##suffix(const tt_kernel_case *c) { return tt_xsmm_weights_scratch(c, level); }  \
	static tt_status weights_plan_##suffix(const tt_kernel_case *c, tt_arena *a, const void **out)                 \
	{                                                                                                              \
		TT_TRY(tt_xsmm_weights_plan(c, a, level, out));                                                        \
		return TT_OK;                                                                                          \
	}
FORWARD_AT(AVX2, false, avx2)
FORWARD_AT(AVX2, true, avx2_plain)
FORWARD_AT(AVX512, false, avx512)
FORWARD_AT(AVX512, true, avx512_plain)
FORWARD_AT(AVX512_BF16, false, avx512_bf16)
WEIGHTS_AT(AVX2, avx2)
WEIGHTS_AT(AVX512, avx512)

/* A row is called after what runs: tiles of chain.h on AVX-512, but for bf16 that is widened to f32 there; else libxsmm's. */
#define CHAIN "chain"
#define XSMM "xsmm"
#define FORWARD(tiles, dt, accepts, format, isa, at)                                                                   \
	{"linear", tiles "-" #dt "-" #at, isa, forward_accepts_##accepts, format, forward_scratch_##at, forward_plan_##at, tt_xsmm_forward_run}, \
	{"linear_dx", tiles "-" #dt "-" #at, isa, forward_accepts_##accepts, format, forward_scratch_##at, forward_plan_##at, tt_xsmm_forward_run}, \
	{"linear_dx_add", tiles "-" #dt "-" #at, isa, forward_accepts_##accepts, format, forward_scratch_##at, forward_plan_##at, tt_xsmm_forward_run}
#define TAILS(tiles, dt, isa, at)                                                                                      \
	{"linear_silu_mul", tiles "-" #dt "-" #at, isa, forward_accepts_##dt, tt_xsmm_forward_format, forward_scratch_##at, forward_plan_##at, tt_xsmm_forward_run}, \
	{"linear_rope", tiles "-" #dt "-" #at, isa, forward_accepts_##dt, tt_xsmm_forward_format, forward_scratch_##at, forward_plan_##at, tt_xsmm_forward_run}
#define WEIGHTS_ON(name, isa, accepts, scratch, plan, run)                                                             \
	{"linear_dw", name, isa, accepts, NULL, scratch, plan, run}, {"linear_dw_acc", name, isa, accepts, NULL, scratch, plan, run}
#define WEIGHTS(dt, isa, at)                                                                                           \
	WEIGHTS_ON("xsmm-" #dt "-" #at, isa, weights_accepts_##dt, weights_scratch_##at, weights_plan_##at, tt_xsmm_weights_run)
#define WEIGHTS_OWN(dt, isa, at)                                                                                       \
	WEIGHTS_ON("chain-" #dt "-" #at, isa, weights_accepts_##dt, tt_chain_weights_scratch, tt_chain_weights_plan, tt_chain_weights_run)
/* In this order: few lines want a packed weight, but a node that finds it plain (another graph's wish) is no worse off than the
 * one that asked. No tails on plain weights: panels come first there, and lines have left the cache when a task ends. */
#define F32(tiles, isa, at)                                                                                            \
	FORWARD(tiles, f32, many, NULL, isa, at##_plain), FORWARD(tiles, f32, f32, tt_xsmm_forward_format, isa, at),   \
	FORWARD(tiles, f32, f32, NULL, isa, at##_plain), TAILS(tiles, f32, isa, at)
#define BF16(tiles, isa, at) FORWARD(tiles, bf16, bf16, tt_xsmm_forward_format, isa, at), TAILS(tiles, bf16, isa, at)

const tt_override tt_overrides_xsmm[] = {
	BF16(CHAIN, TT_ISA_AVX512_BF16, avx512_bf16), WEIGHTS_OWN(bf16, TT_ISA_AVX512_BF16, avx512_bf16),
	BF16(XSMM, TT_ISA_AVX512, avx512), WEIGHTS(bf16, TT_ISA_AVX512, avx512),
	F32(CHAIN, TT_ISA_AVX512, avx512), WEIGHTS_OWN(f32, TT_ISA_AVX512, avx512),
	BF16(XSMM, TT_ISA_AVX2, avx2), WEIGHTS(bf16, TT_ISA_AVX2, avx2),
	F32(XSMM, TT_ISA_AVX2, avx2), WEIGHTS(f32, TT_ISA_AVX2, avx2),
	{0},
};

#else

const tt_override tt_overrides_xsmm[] = {{0}};

#endif
