/* Query and key heads before attention: RMS norm over the head, rotation of its first dims, and the rounding
 * into the cache's format. One call owns one head of one row. */
#ifndef QW_CPU_ATTN_PREPARE_IMPL_H
#define QW_CPU_ATTN_PREPARE_IMPL_H

#include "kernels/cpu/kernels.h"
#include "kernels/cpu/norm_impl.h"

/* cosine and sine of position[axis[j]] * inv_freq[j], both times scale. */
static void rope_table(const qw_rope_row *rope, float *cosine, float *sine)
{
    for (int64_t j = 0; j < rope->half; j++) {
        float s, c;
        math_sincos((float)rope->position[rope->axis[j]] * rope->inv_freq[j], &s, &c);
        cosine[j] = c * rope->scale;
        sine[j] = s * rope->scale;
    }
}

/* x[j], x[j + half] = x[j] c - x[j + half] s, x[j + half] c + x[j] s */
static inline void rotate_pairs(float *x, const float *cosine, const float *sine, int64_t half)
{
    for (int64_t j = 0; j < half; j += VF_LANES) {
        const int64_t n = half - j;
        vf low = load_lanes(x + j, n), high = load_lanes(x + half + j, n);
        vf c = load_lanes(cosine + j, n), s = load_lanes(sine + j, n);
        store_lanes(x + j, vf_sub(vf_mul(low, c), vf_mul(high, s)), n);
        store_lanes(x + half + j, vf_add(vf_mul(high, c), vf_mul(low, s)), n);
    }
}

/* out = rotated(x * (mean(x^2) + eps)^(-1/2) * (1 + weight)), hd floats */
static void rope_head(const qw_rope_head *head, const float *x, float *out)
{
    float scale = inverse_root(dot_lanes(x, x, head->hd), (float)head->hd, head->eps);
    scale_rms1(x, scale, head->weight, head->weight_dtype, out, head->hd);
    rotate_pairs(out, head->cosine, head->sine, head->half);
}

/* n floats into a float format of the cache. */
static void store_cache(const float *from, void *to, int32_t dtype, int64_t n)
{
    for (int64_t i = 0; i < n; i += VF_LANES) {
        vf x = load_lanes(from + i, n - i);
        if (dtype == QW_F32)
            store_lanes((float *)to + i, x, n - i);
        else if (n - i >= VF_LANES)
            vf_store_bf16((uint16_t *)to + i, x);
        else
            vf_store_bf16_n((uint16_t *)to + i, x, n - i);
    }
}

/* n floats as 8-bit integers and their scale (qw_kv_view). A product with zero is NaN for what is not finite,
 * and zero for all else. The clamp matters where max|x| is so small that the scale has lost its digits. */
static float store_cache_i8(const float *from, void *to, int64_t n)
{
    const vf most = vf_set1(127.0f);
    vf largest = vf_zero(), spoilt = vf_zero();
    for (int64_t i = 0; i < n; i += VF_LANES) {
        vf x = load_lanes(from + i, n - i);
        largest = vf_max(vf_abs(x), largest);
        spoilt = vf_fma(x, vf_zero(), spoilt);
    }
    const float scale = vf_hmax(largest) / 127.0f + vf_sum(spoilt);
    const vf divisor = vf_set1(scale);
    const vm sound = vf_lt(vf_zero(), divisor);
    for (int64_t i = 0; i < n; i += VF_LANES) {
        vf x = vf_select(sound, vf_div(load_lanes(from + i, n - i), divisor), vf_zero());
        x = vf_max(vf_neg(most), vf_min(most, x));
        if (n - i >= VF_LANES)
            vf_store_i8((int8_t *)to + i, x);
        else
            vf_store_i8_n((int8_t *)to + i, x, n - i);
    }
    return scale;
}

#endif
