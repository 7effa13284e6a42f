/* RMS norms: norm, gated_norm, and the per-head norm of attn_prepare. One call owns one row or head. */
#ifndef QW_CPU_NORM_IMPL_H
#define QW_CPU_NORM_IMPL_H

#include "kernels/cpu/load_impl.h"
#include "kernels/cpu/math_impl.h"

/* y = x * scale * (1 + weight); y may be x. */
static inline void scale_rms1(const float *x, float scale, const void *weight, int32_t dtype, float *y,
                              int64_t n)
{
    const vf one = vf_set1(1.0f), s = vf_set1(scale);
    for (int64_t i = 0; i < n; i += VF_LANES) {
        vf factor = vf_add(one, load_as(weight, dtype, i, n - i));
        store_lanes(y + i, vf_mul(vf_mul(load_lanes(x + i, n - i), s), factor), n - i);
    }
}

/* x += add, unless add is NULL; y = x * (mean(x^2) + eps)^(-1/2) * (1 + weight), unless y is NULL. */
static void norm_row(float *x, const float *add, const void *weight, int32_t dtype, float *y, int64_t n,
                     float eps)
{
    vf square = vf_zero();
    for (int64_t i = 0; i < n; i += VF_LANES) {
        vf v = load_lanes(x + i, n - i);
        if (add != NULL) {
            v = vf_add(v, load_lanes(add + i, n - i));
            store_lanes(x + i, v, n - i);
        }
        square = vf_fma(v, v, square);
    }
    if (y != NULL)
        scale_rms1(x, inverse_root(vf_sum(square), (float)n, eps), weight, dtype, y, n);
}

/* y = weight * o * (mean(o^2) + eps)^(-1/2) * silu(z); y may be o. */
static void gated_norm_head(const float *o, const float *z, const void *weight, int32_t dtype, float *y,
                            int64_t n, float eps)
{
    const vf scale = vf_set1(inverse_root(dot_lanes(o, o, n), (float)n, eps));
    for (int64_t i = 0; i < n; i += VF_LANES) {
        vf normed = vf_mul(vf_mul(load_lanes(o + i, n - i), scale), load_as(weight, dtype, i, n - i));
        store_lanes(y + i, vf_mul(normed, vf_silu(load_lanes(z + i, n - i))), n - i);
    }
}

#endif
