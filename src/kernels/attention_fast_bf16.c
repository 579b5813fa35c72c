/* Attention on AVX512_BF16: bf16 in pairs. */
#include "kernels/attention_fast.h"

#ifndef TT_NO_X86

#include <immintrin.h>

#ifdef __clang__
#pragma clang attribute push(__attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx512bf16,avx2,fma"))), apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512dq,avx512vl,avx512bf16,avx2,fma")
#endif

#define AF_AVX512 1
#include "kernels/attention_fast_vec.h"

#define AF_KIND AF_PAIRS
#define AF_NAME(x) x##_bf16
#include "kernels/attention_fast_tile.h"
#include "kernels/attention_fast_fwd.h"
#include "kernels/attention_fast_bwd.h"
#undef AF_KIND
#undef AF_NAME

#ifdef __clang__
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif

void tt_attention_bf16(const tt_call *c) { fwd_bf16(c); }
void tt_attention_bwd_bf16(const tt_call *c) { bwd_bf16(c); }

#endif
