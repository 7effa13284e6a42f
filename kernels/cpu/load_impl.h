/* Loading weights and cache elements in the number format they are stored in, on 16 lanes, and small sums
 * that several kernels share. */
#ifndef QW_CPU_LOAD_IMPL_H
#define QW_CPU_LOAD_IMPL_H

#include "kernels/cpu/simd.h"
#include "lib/backend.h"

/* Elements i .. i + 15 of an array of float32, BF16, F16 or 8-bit integers; only the first n lanes, the
 * others zero. Where dtype and n are constants, one instruction or two remain. */
static inline vf load_as(const void *base, int32_t dtype, int64_t i, int64_t n)
{
    const char *p = (const char *)base + i * qw_dtype_size(dtype);
    if (dtype == QW_F32)
        return n >= VF_LANES ? vf_load(p) : vf_load_n(p, n);
    if (dtype == QW_BF16)
        return n >= VF_LANES ? vf_load_bf16(p) : vf_load_bf16_n(p, n);
    if (dtype == QW_I8)
        return n >= VF_LANES ? vf_load_i8(p) : vf_load_i8_n(p, n);
    return n >= VF_LANES ? vf_load_f16(p) : vf_load_f16_n(p, n);
}

static inline vf load_lanes(const float *p, int64_t n)
{
    return n >= VF_LANES ? vf_load(p) : vf_load_n(p, n);
}

static inline void store_lanes(float *p, vf x, int64_t n)
{
    if (n >= VF_LANES)
        vf_store(p, x);
    else
        vf_store_n(p, x, n);
}

/* sum of a[i] b[i]: i ascending by 16 lanes, then one tree. */
static inline float dot_lanes(const float *a, const float *b, int64_t n)
{
    vf sum = vf_zero();
    for (int64_t i = 0; i < n; i += VF_LANES)
        sum = vf_fma(load_lanes(a + i, n - i), load_lanes(b + i, n - i), sum);
    return vf_sum(sum);
}

/* (square / n + eps)^(-1/2) */
static inline float inverse_root(float square, float n, float eps)
{
    float lanes[VF_LANES];
    vf root = vf_sqrt(vf_set1(square / n + eps));
    vf_store(lanes, vf_div(vf_set1(1.0f), root));
    return lanes[0];
}

#endif
