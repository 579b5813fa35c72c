/* Products of a packed panel of 64 features with lines of another operand, on AVX-512 registers: 64 x 6 sums at a time, from their first term to
 * Y. A sum is one ascending chain, or several that join as a tree: what product.k.c computes, bit for bit.
 *
 * The contraction is counted in words: an f32, or a pair of bf16 (then VDPBF16PS). A word of a panel is 64 features wide, 256 bytes.
 *
 * What runs is a list of steps on a stack of open sums, each step a run of words. So a tree of K segments, and a contraction that is cut to
 * keep a panel's piece in cache, need no pass of their own and no tile of memory per segment: open sums are at most four tiles deep, in the
 * first cache. libxsmm (xsmm_tile.h) keeps pace on one chain; with 8 calls for 8 segments and a pass that joins them it reaches 0.73 of that
 * (bf16, K 256, Zen 4), this 0.89.
 */
#ifndef TT_KERNELS_CHAIN_H
#define TT_KERNELS_CHAIN_H

#include "base/base.h"

enum {
	TT_CHAIN_LINES = 6,
	TT_CHAIN_TILE = TT_CHAIN_LINES * 64, /* floats of an open sum */
	TT_CHAIN_DEPTH = 4,                  /* open sums of a tile at most: three of the tree and one that is cut */
};

typedef struct tt_chain_step {
	int64_t at, n; /* words */
	bool goes_on;  /* from the sum on top of the stack; else from +0 */
	int joins;     /* then sums that are taken from the stack, each the left hand of an addition */
} tt_chain_step;

typedef struct tt_chain {
	const void *w;             /* the panel, word 0; written if `plain` */
	const tt_chain_step *step;
	int nsteps;
	/* Bytes between lines of X, whose words are adjacent; `across`: between runs of six lines, each [words][6]. */
	int64_t ldx;
	bool across;
	/* Across: not NULL: the panel is not there yet. The first six lines read 64 columns here, lines `plain_ld` bytes apart, and put them to w, in
	 * the shade of their multiplications. One step, six lines at least, whole pairs of bf16. */
	const void *plain;
	int64_t plain_ld;
	/* Across: what is wanted after this call is fetched into the second cache meanwhile, one cache line a word: of lines `soon_ld` bytes apart
	 * 64 bytes by each of the last soon_n tiles; of bf16, whose words take two lines, by two of them. */
	const void *soon;
	int64_t soon_ld, soon_n;
	/* Open sums: of tile i from part + i * part_step, `depth` of them at the start. 64-byte aligned; room for one more than are open. */
	float *part;
	int64_t part_step;
	int depth;
	/* After the last step sums are pushed (open), or finished: +0 added (plus), bias added, added to state, zeros made +0 (rounded), stored. */
	bool open, plus, rounded;
	const float *bias;         /* [64] or NULL */
	const float *state;        /* line 0, `lds` floats apart; NULL: none */
	int64_t lds;
	void *y;                   /* line 0, f32 or bf16, `ldy` bytes apart */
	int64_t ldy;
	int64_t features;          /* of Y, at most 64 */
	bool y_bf16;
} tt_chain;

#ifndef TT_NO_X86
/* Lines [0, lines) of X. f32 needs AVX512F, BW, DQ and VL; bf16 AVX512_BF16 too. */
void tt_chain_f32(const tt_chain *c, const void *x, int64_t lines);
void tt_chain_bf16(const tt_chain *c, const void *x, int64_t lines);
#endif

#endif
