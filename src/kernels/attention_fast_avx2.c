/* Attention on AVX2: f32, and bf16 widened to f32. */
#define AF_SET avx2
#define AF_TARGET "avx2,fma"
#define AF_AVX512 0
#define AF_DOT 0
#include "kernels/attention_fast_set.h"
