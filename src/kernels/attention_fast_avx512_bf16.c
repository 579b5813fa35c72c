/* Attention on AVX512_BF16: bf16 in pairs. */
#define AF_SET avx512_bf16
#define AF_TARGET "avx512f,avx512bw,avx512dq,avx512vl,avx512bf16,avx2,fma"
#define AF_AVX512 1
#define AF_DOT 1
#include "kernels/attention_fast_set.h"
