/* Passes over a row of logits, for sampling and log-probabilities. Blocks of QW_ROW_BLOCK columns have
 * their largest value noted, so that later passes skip the blocks that hold nothing of interest. */
#ifndef QW_CPU_SAMPLE_IMPL_H
#define QW_CPU_SAMPLE_IMPL_H

#include "kernels/cpu/math_impl.h"

/* The vector at x[i], with -infinity from x[n] on. */
static inline vf row_vector(const float *x, int64_t i, int64_t n)
{
    if (n - i >= VF_LANES)
        return vf_load(x + i);
    return vf_select(vm_first(n - i), vf_load_n(x + i, n - i), vf_set1(-MATH_INFINITY));
}

/* peaks[b] = the largest of block b (a NaN counts as -infinity), *largest that of the row; whether all of
 * x is below +infinity and no NaN. */
static bool row_peaks(const float *x, int64_t n, float *peaks, float *largest)
{
    const vf infinity = vf_set1(MATH_INFINITY);
    vm bad = vm_first(0);
    *largest = -MATH_INFINITY;
    for (int64_t begin = 0; begin < n; begin += QW_ROW_BLOCK) {
        const int64_t end = QW_MIN(n, begin + QW_ROW_BLOCK);
        vf peak = vf_neg(infinity);
        for (int64_t i = begin; i < end; i += VF_LANES) {
            vf v = row_vector(x, i, n);
            bad = vm_or(bad, vm_not(vf_lt(v, infinity)));
            peak = vf_max(v, peak);
        }
        peaks[begin / QW_ROW_BLOCK] = vf_hmax(peak);
        *largest = QW_MAX(*largest, peaks[begin / QW_ROW_BLOCK]);
    }
    return !vm_any(bad);
}

/* y = x where bit i of `allowed` is 1, -infinity elsewhere. */
static void row_mask(const float *x, const uint32_t *allowed, int64_t n, float *y)
{
    static const int32_t bits[VF_LANES] = {1,       1 << 1,  1 << 2,  1 << 3, 1 << 4,  1 << 5,
                                           1 << 6,  1 << 7,  1 << 8,  1 << 9, 1 << 10, 1 << 11,
                                           1 << 12, 1 << 13, 1 << 14, 1 << 15};
    const vi bit = vi_load(bits), none = vi_set1(0);
    for (int64_t i = 0; i < n; i += VF_LANES) {
        const vi word = vi_set1((int32_t)(allowed[i / 32] >> (i % 32)));
        const vm forbidden = vi_eq(vi_and(word, bit), none);
        const vf v = vf_select(forbidden, vf_set1(-MATH_INFINITY), row_vector(x, i, n));
        vf_store_n(y + i, v, QW_MIN(VF_LANES, n - i));
    }
}

/* w = exp((x - largest) / temperature), and the peaks of w. w may be x. */
static void row_weights(const float *x, int64_t n, float largest, float temperature, float *w, float *peaks)
{
    const vf shift = vf_set1(largest), divisor = vf_set1(temperature);
    for (int64_t begin = 0; begin < n; begin += QW_ROW_BLOCK) {
        const int64_t end = QW_MIN(n, begin + QW_ROW_BLOCK);
        vf peak = vf_zero();
        for (int64_t i = begin; i < end; i += VF_LANES) {
            vf v = vf_exp(vf_div(vf_sub(row_vector(x, i, n), shift), divisor));
            vf_store_n(w + i, v, QW_MIN(VF_LANES, n - i));
            peak = vf_max(v, peak);
        }
        peaks[begin / QW_ROW_BLOCK] = vf_hmax(peak);
    }
}

/* log(sum exp(x - largest)): blocks in float32 lanes, the sum of blocks in double. */
static float row_log_sum(const float *x, int64_t n, float largest)
{
    double sum = 0;
    for (int64_t begin = 0; begin < n; begin += QW_ROW_BLOCK) {
        const int64_t end = QW_MIN(n, begin + QW_ROW_BLOCK);
        vf block = vf_zero();
        for (int64_t i = begin; i < end; i += VF_LANES)
            block = vf_add(block, vf_exp(vf_sub(row_vector(x, i, n), vf_set1(largest))));
        sum += (double)vf_sum(block);
    }
    return math_log((float)sum);
}

#endif
