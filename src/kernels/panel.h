/* Panels of a plain f32 weight [o,k], made where a product needs them: the layout of pack.k.c, [depth][64], 64 features wide, zero beyond
 * the last feature. For kernels that run on AVX2 or better. */
#ifndef TT_KERNELS_PANEL_H
#define TT_KERNELS_PANEL_H

#include <stdint.h>

/* Features are lines of w (TT_PACK_FWD): nf <= 64 lines, `ld` apart, of n elements, to [n][64]. */
void tt_panel_turn(const float *w, int64_t ld, int64_t nf, int64_t n, float *to);
/* Features are columns of w (TT_PACK_DX): n lines, `ld` apart, of nf <= 64 elements, to [n][64]. */
void tt_panel_copy(const float *w, int64_t ld, int64_t nf, int64_t n, float *to);

#endif
