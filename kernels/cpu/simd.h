/* The vector layer: every tier computes with `vf`, 16 float32 lanes, so that a kernel is written once and
 * the order of additions is the same in each of them.
 *
 *   vf  16 x float32      vi  16 x int32      vm  16 x one bit (a comparison's result)
 *
 * The including file has defined QW_TIER_AVX512, QW_TIER_AVX2 or neither (portable) and is compiled with
 * the flags of that tier. Everything is static inline. Loads and stores need no alignment; `_n` forms
 * touch the first n lanes only, 0 <= n <= 16, and fill the others with zero: they never read past n.
 *
 *   vf_zero vf_set1 vf_load vf_load_n vf_store vf_store_n
 *   vf_stream                                   a store to 64-byte aligned memory that shall not enter the
 *                                               caches; vf_stream_end() before another thread reads it
 *   vf_add vf_sub vf_mul vf_div vf_sqrt         IEEE, one rounding
 *   vf_fma(a, b, c)                             a * b + c; one rounding with AVX2 and AVX-512, two portable
 *   vf_max(a, b) = a > b ? a : b                vf_min(a, b) = a < b ? a : b   (so b when one is a NaN)
 *   vf_abs vf_neg                               by sign bit
 *   vf_round                                    to the nearest integer, ties to even; |a| < 2^22
 *   vf_sum vf_sum4 vf_hmax                      across lanes, in one fixed tree: i + (i + 8), then 4, 2, 1
 *   vf_lt vf_le vf_eq vf_is_nan -> vm           vf_select(m, a, b) = m ? a : b
 *   vm_first(n) vm_and vm_or vm_not vm_any      vi_select vi_eq vi_gt
 *   vi_set1 vi_load vi_load_n vi_store vi_store_n vi_add vi_sub vi_and vi_or vi_xor
 *   vi_shl vi_shr vi_sar (by a constant)        vi_to_vf; vf_to_vi: nearest even, |a| < 2^22
 *   vf_bits, vi_float                           reinterpret
 *   vf_load_bf16[_n] vf_load_f16[_n]            widening; the source may stand at any address
 *   vf_store_bf16[_n]                           round to nearest even; a NaN stays a NaN
 *   vf_load_i8[_n] vf_store_i8[_n]              8-bit integers; stored to nearest even, |a| <= 127
 */
#ifndef QW_CPU_SIMD_H
#define QW_CPU_SIMD_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

enum { VF_LANES = 16 };

#if defined(QW_TIER_AVX512)
#include "kernels/cpu/simd_avx512.h"
#elif defined(QW_TIER_AVX2)
#include "kernels/cpu/simd_avx2.h"
#else
#include "kernels/cpu/simd_portable.h"
#endif

static inline vf vf_neg(vf a)
{
    return vi_float(vi_xor(vf_bits(a), vi_set1(INT32_MIN)));
}

static inline vf vf_abs(vf a)
{
    return vi_float(vi_and(vf_bits(a), vi_set1(INT32_MAX)));
}

/* The 16 high halves after rounding to BF16, in the low halves of the lanes. */
static inline vi vf_round_bf16(vf a)
{
    vi bits = vf_bits(a);
    vi odd = vi_and(vi_shr(bits, 16), vi_set1(1));
    vi rounded = vi_shr(vi_add(bits, vi_add(odd, vi_set1(0x7fff))), 16);
    vi quiet = vi_or(vi_shr(bits, 16), vi_set1(0x40));
    return vi_select(vf_is_nan(a), quiet, rounded);
}

static inline void vf_store_bf16(void *p, vf a)
{
    vi_store_low16(p, vf_round_bf16(a));
}

static inline void vf_store_bf16_n(void *p, vf a, int64_t n)
{
    uint16_t lanes[VF_LANES];
    vi_store_low16(lanes, vf_round_bf16(a));
    memcpy(p, lanes, (size_t)n * sizeof lanes[0]);
}

static inline void vf_store_i8(void *p, vf a)
{
    vi_store_low8(p, vf_to_vi(a));
}

static inline void vf_store_i8_n(void *p, vf a, int64_t n)
{
    int8_t lanes[VF_LANES];
    vi_store_low8(lanes, vf_to_vi(a));
    memcpy(p, lanes, (size_t)n);
}

#endif
