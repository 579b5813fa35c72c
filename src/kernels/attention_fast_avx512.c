/* Attention on AVX-512: f32, and bf16 widened to f32. */
#define AF_SET avx512
#define AF_TARGET "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma"
#define AF_AVX512 1
#define AF_DOT 0
#include "kernels/attention_fast_set.h"
