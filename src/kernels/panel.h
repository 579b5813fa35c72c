/* Operands brought to where tiles read them: panels, 64 features wide, zero beyond the last feature (the layouts of pack.k.c), and lines turned
 * into columns. For kernels that run on AVX2 or better.
 *
 * bf16 goes in pairs of the contraction, [n/2][64][2]. "Widened": as floats, the odd one of each pair before the even one. The partner of an
 * odd last one is zero.
 */
#ifndef TT_KERNELS_PANEL_H
#define TT_KERNELS_PANEL_H

#include "base/base.h"

/* ---- panels of a plain matrix ------------------------------------------------------------------------------------------ */

/* Features are lines of w (TT_PACK_FWD of f32): nf <= 64 lines, `ld` apart, of n elements, to [n][64]. */
void tt_panel_turn(const float *w, int64_t ld, int64_t nf, int64_t n, float *to);
/* Features are columns of w (TT_PACK_DX; X of dW): n lines, `ld` apart, of nf <= 64 elements, to [n][64]. */
void tt_panel_copy(const float *w, int64_t ld, int64_t nf, int64_t n, float *to);
void tt_panel_pair(const tt_bf16 *x, int64_t ld, int64_t nf, int64_t n, tt_bf16 *to);
void tt_panel_widen(const tt_bf16 *x, int64_t ld, int64_t nf, int64_t n, float *to);

/* ---- lines turned into columns: dy[n][no], lines `lds` apart, to [no][ld] --------------------------------------------- */

void tt_lines_turn_f32(const float *dy, int64_t lds, int64_t n, int64_t no, int64_t ld, float *to);
void tt_lines_turn_bf16(const tt_bf16 *dy, int64_t lds, int64_t n, int64_t no, int64_t ld, tt_bf16 *to);
void tt_lines_turn_widen(const tt_bf16 *dy, int64_t lds, int64_t n, int64_t no, int64_t ld, float *to);

/* ---- columns in sixes: dy[n][no], lines `lds` apart, to [no/6][n][6], `run` words apart ----------------------------------- */

/* Words are floats or pairs of lines. At least 6 n + 2 words from one six to the next and after the last; what is not asked for is not
 * written, or is with anything. */
void tt_lines_six_f32(const float *dy, int64_t lds, int64_t n, int64_t no, int64_t run, float *to);
void tt_lines_six_bf16(const tt_bf16 *dy, int64_t lds, int64_t n, int64_t no, int64_t run, tt_bf16 *to);

/* ---- bf16 widened as it lies --------------------------------------------------------------------------------------------- */

/* n pairs of bf16, each as two floats: the odd one, then the even one. */
void tt_widen_along(const tt_bf16 *from, int64_t n, float *to);
/* n lines of pairs [n][64][2] as [2n][64] floats: a line of odd ones, then one of even ones. */
void tt_widen_panel(const tt_bf16 *from, int64_t n, float *to);

#endif
