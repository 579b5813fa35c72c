/* What xsmm_forward.c and xsmm_weights.c share: libxsmm's tiles, how operands reach them, and what they may be asked for. */
#ifndef TT_KERNELS_XSMM_TILE_H
#define TT_KERNELS_XSMM_TILE_H

#include "kernels/kernels.h"

#ifndef TT_NO_X86

#include <immintrin.h>
#include <libxsmm.h>

/* Every row needs AVX2, so the code around the tiles may use it. */
#define WIDER __attribute__((target("avx2,fma")))

enum {
	WIDE = 64,          /* features of a panel */
	LINES = 6,          /* lines of a tile */
	CHUNK_F32 = 1024,   /* contraction of one call, so that 64 columns of a panel take 256 KiB */
	CHUNK_BF16 = 2048,
};

typedef libxsmm_xmmfunction tile;
typedef enum tile_kind { TILE_F32, TILE_BF16_F32, TILE_BF16 } tile_kind; /* operands, then C where it differs */

/* The instruction set of the tiles, and whether bf16 operands are widened for them. */
typedef enum level { AVX2, AVX512, AVX512_BF16 } level;

/* How operands reach the tiles. */
typedef struct form {
	bool bf16;     /* in memory */
	bool widened;  /* bf16 in memory, f32 in the tiles */
	bool plain;    /* the weight lies plain; a task packs its panels */
	int64_t from, to; /* bytes of an element in memory, in the tiles */
	int64_t pair;  /* what the contraction comes in */
	int64_t chunk; /* the most of it for one call */
	tile_kind kind; /* with f32 C */
} form;
form tt_xsmm_form(const tt_value *x, level at);

/* The level of the tiles made from now on, process-wide. */
void tt_xsmm_target(level at);
/* Tiles of 1..LINES lines, C[64 x n] (+)= A[64 x k] B[k x n], into t[1..LINES]; `more`: C is continued. */
tt_status tt_xsmm_tiles(const char *op, tile_kind kind, int64_t k, int64_t ldb, int64_t ldc, bool more, tile *t) TT_CHECKED;

/* What a tile may be asked for: both operands of one dtype, libxsmm's 32-bit sizes. Tokens may be none. */
bool tt_xsmm_fits(const tt_value *a, const tt_value *b);

static inline void call_tile(tile_kind kind, tile t, const void *a, const void *b, void *c)
{
	switch (kind) {
	case TILE_F32: t.smm(a, b, c); break;
	case TILE_BF16_F32: t.bsmm(a, b, c); break;
	case TILE_BF16: t.bmm(a, b, c); break;
	}
}

/* Around the tiles of widened operands, and nothing else: what they do with subnormals. Returns what to restore. */
static inline unsigned begin_tiles(const form *m)
{
	enum { FTZ = 0x8000, DAZ = 0x0040 };
	unsigned csr = _mm_getcsr();
	if (m->widened)
		_mm_setcsr(csr | FTZ | DAZ);
	return csr;
}

static inline void end_tiles(const form *m, unsigned csr)
{
	if (m->widened)
		_mm_setcsr(csr);
}

/* linear, linear_dx, linear_dx_add, and with tails (xsmm_forward.c). `plain`: on a weight that lies plain, f32. */
bool tt_xsmm_forward_accepts(const tt_kernel_case *c, tt_dtype dt);
tt_format tt_xsmm_forward_format(const tt_kernel_case *c, int i);
size_t tt_xsmm_forward_scratch(const tt_kernel_case *c, level at, bool plain);
tt_status tt_xsmm_forward_plan(const tt_kernel_case *c, tt_arena *a, level at, bool plain, const void **out) TT_CHECKED;
void tt_xsmm_forward_run(const tt_call *c);

/* What a gradient of a weight is made of, whoever's tiles run: dW[o,k] = dY^T[o,T] X[T,k], (+ state). */
typedef struct tt_weights_data {
	const uint8_t *x, *dy;
	float *dw;
	const float *state; /* what the sums are added to; NULL: they are stored */
	uint8_t *scratch;
	int64_t tokens;
} tt_weights_data;
/* Of a call of linear_dw, or of linear_dw_acc (`adds`), planned for `threads`, o and k. False: there are no tokens, and dW is done. */
bool tt_weights_begin(const tt_call *c, bool adds, int threads, int64_t o, int64_t k, tt_weights_data *out);
static inline bool tt_weights_adds(const tt_kernel_case *c) { return !strcmp(c->op, "linear_dw_acc"); }

/* linear_dw, linear_dw_acc (xsmm_weights.c). */
bool tt_xsmm_weights_accepts(const tt_kernel_case *c, tt_dtype dt);
size_t tt_xsmm_weights_scratch(const tt_kernel_case *c, level at);
tt_status tt_xsmm_weights_plan(const tt_kernel_case *c, tt_arena *a, level at, const void **out) TT_CHECKED;
void tt_xsmm_weights_run(const tt_call *c);
/* The same on AVX-512 where operands are not widened (chain_weights.c). */
size_t tt_chain_weights_scratch(const tt_kernel_case *c);
tt_status tt_chain_weights_plan(const tt_kernel_case *c, tt_arena *a, const void **out) TT_CHECKED;
void tt_chain_weights_run(const tt_call *c);

#endif
#endif
