/* The kernels with AVX-512 F, BW, DQ, VL. */
#define QW_TIER_AVX512 1
#define QW_TIER QWEN36_CPU_AVX512
#define QW_TIER_TABLE qw_cpu_kernels_avx512
#include "kernels/cpu/tier_impl.h"
