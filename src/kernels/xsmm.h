/* Matrix products on libxsmm's JIT tiles: rows for the override table, ended by a NULL op. Empty where there is no x86. */
#ifndef TT_KERNELS_XSMM_H
#define TT_KERNELS_XSMM_H

#include "kernels/kernels.h"

extern const tt_override tt_overrides_xsmm[];

#endif
