/* The kernels with AVX2, FMA and F16C. */
#define QW_TIER_AVX2 1
#define QW_TIER QWEN36_CPU_AVX2
#define QW_TIER_TABLE qw_cpu_kernels_avx2
#include "kernels/cpu/tier_impl.h"
