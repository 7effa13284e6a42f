/* The kernels for any machine. */
#define QW_TIER QWEN36_CPU_PORTABLE
#define QW_TIER_TABLE qw_cpu_kernels_portable
#include "kernels/cpu/tier_impl.h"
