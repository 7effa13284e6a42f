/* Which kernels this processor can run. */
#include "kernels/cpu/kernels.h"

#if defined(__x86_64__)
#include <cpuid.h>

enum { STATE_AVX = 0x06, STATE_AVX512 = 0xe6 }; /* register files that the system saves, of XCR0 */

static uint32_t saved_state(void)
{
    uint32_t low = 0, high = 0;
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return low;
}

typedef struct features {
    bool avx2, avx512, bf16_dot;
} features;

static features query(void)
{
    features has = {false, false, false};
    uint32_t a = 0, b = 0, c = 0, d = 0, unused = 0;
    const uint32_t need1 = bit_FMA | bit_AVX | bit_F16C | bit_OSXSAVE;
    if (__get_cpuid(1, &a, &b, &c, &d) == 0 || (c & need1) != need1)
        return has;
    const uint32_t state = saved_state();
    uint32_t leaf7 = 0;
    if (__get_cpuid_count(7, 0, &a, &leaf7, &c, &d) == 0)
        return has;
    const uint32_t need2 = bit_AVX2 | bit_BMI2;
    const uint32_t need512 = bit_AVX512F | bit_AVX512BW | bit_AVX512DQ | bit_AVX512VL | bit_AVX512CD;
    has.avx2 = (leaf7 & need2) == need2 && (state & STATE_AVX) == STATE_AVX;
    has.avx512 = has.avx2 && (leaf7 & need512) == need512 && (state & STATE_AVX512) == STATE_AVX512;
    const bool vnni = (c & bit_AVX512VNNI) != 0;
    if (has.avx512 && vnni && __get_cpuid_count(7, 1, &a, &unused, &c, &d) != 0)
        has.bf16_dot = (a & bit_AVX512BF16) != 0;
    return has;
}
#endif

bool qw_cpu_has_bf16_dot(void)
{
#if defined(QW_HAVE_AVX512BF16)
    return query().bf16_dot;
#else
    return false;
#endif
}

/* From special to general; the last row runs everywhere. */
const qw_cpu_kernels *qw_cpu_kernels_choose(int32_t tier)
{
#if defined(QW_HAVE_AVX512)
    if ((tier == QWEN36_CPU_AUTO || tier == QWEN36_CPU_AVX512) && query().avx512)
        return &qw_cpu_kernels_avx512;
#endif
#if defined(QW_HAVE_AVX2)
    if ((tier == QWEN36_CPU_AUTO || tier == QWEN36_CPU_AVX2) && query().avx2)
        return &qw_cpu_kernels_avx2;
#endif
    if (tier == QWEN36_CPU_AUTO || tier == QWEN36_CPU_PORTABLE)
        return &qw_cpu_kernels_portable;
    return NULL;
}
