/* All of one instruction set: attention_fast_SET.c says AF_SET, AF_TARGET, AF_AVX512 (a vector is one zmm) and AF_DOT (bf16 in pairs,
 * VDPBF16PS), then includes this. Makes tt_attention_DTYPE_SET, tt_attention_part_DTYPE_SET and tt_attention_bwd_DTYPE_SET. */
#include "kernels/attention_fast.h"

#if defined(AF_SET) && !defined(TT_NO_X86)

#include <immintrin.h>

#define AF_JOIN3_(a, b, c) a##_##b##_##c
#define AF_JOIN3(a, b, c) AF_JOIN3_(a, b, c)
#define AF_PRAGMA_(x) _Pragma(#x)
#define AF_PRAGMA(x) AF_PRAGMA_(x)

#ifdef __clang__
AF_PRAGMA(clang attribute push(__attribute__((target(AF_TARGET))), apply_to = function))
#else
AF_PRAGMA(GCC push_options)
AF_PRAGMA(GCC target(AF_TARGET))
#endif

#include "kernels/attention_fast_vec.h"

#if !AF_DOT
#define AF_KIND AF_F32
#define AF_NAME(x) x##_f32
#include "kernels/attention_fast_tile.h"
#include "kernels/attention_fast_fwd.h"
#include "kernels/attention_fast_bwd.h"
#undef AF_KIND
#undef AF_NAME
#endif

#if AF_DOT
#define AF_KIND AF_PAIRS
#else
#define AF_KIND AF_WIDENED
#endif
#define AF_NAME(x) x##_bf16
#include "kernels/attention_fast_tile.h"
#include "kernels/attention_fast_fwd.h"
#include "kernels/attention_fast_bwd.h"
#undef AF_KIND
#undef AF_NAME

#ifdef __clang__
AF_PRAGMA(clang attribute pop)
#else
AF_PRAGMA(GCC pop_options)
#endif

#if !AF_DOT
void AF_JOIN3(tt_attention, f32, AF_SET)(const tt_call *c) { fwd_f32(c); }
void AF_JOIN3(tt_attention_part, f32, AF_SET)(const tt_call *c) { part_f32(c); }
void AF_JOIN3(tt_attention_bwd, f32, AF_SET)(const tt_call *c) { bwd_f32(c); }
#endif
void AF_JOIN3(tt_attention, bf16, AF_SET)(const tt_call *c) { fwd_bf16(c); }
void AF_JOIN3(tt_attention_part, bf16, AF_SET)(const tt_call *c) { part_bf16(c); }
void AF_JOIN3(tt_attention_bwd, bf16, AF_SET)(const tt_call *c) { bwd_bf16(c); }

#endif
