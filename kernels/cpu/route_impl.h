/* The router's choice for one row: softmax over the experts, the k largest, renormalised. */
#ifndef QW_CPU_ROUTE_IMPL_H
#define QW_CPU_ROUTE_IMPL_H

#include "kernels/cpu/load_impl.h"
#include "kernels/cpu/math_impl.h"

/* Keeps the k largest of what was offered, descending; a later equal one comes after. Returns the new count.
 */
static inline int64_t route_offer(float *value, int32_t *id, int64_t count, int64_t k, float x, int32_t e)
{
    if (count == k && !(x > value[k - 1]))
        return count;
    int64_t at = count < k ? count : k - 1;
    for (; at > 0 && x > value[at - 1]; at--) {
        value[at] = value[at - 1];
        id[at] = id[at - 1];
    }
    value[at] = x;
    id[at] = e;
    return count < k ? count + 1 : k;
}

/* weight = e^(value - largest) / sum; the sum of the softmax over all experts cancels. */
static inline void route_weights(float *weight, int64_t k)
{
    const vf largest = vf_set1(weight[0]);
    float sum = 0.0f;
    for (int64_t i = 0; i < k; i += VF_LANES)
        store_lanes(weight + i, vf_exp(vf_sub(load_lanes(weight + i, k - i), largest)), k - i);
    for (int64_t i = 0; i < k; i++)
        sum += weight[i];
    for (int64_t i = 0; i < k; i++)
        weight[i] /= sum;
}

/* Experts are compared by their logits, which order them as the probabilities do, only finer. A logit that
 * is NaN or +infinity makes all weights NaN (the ids stay valid), so that it cannot go unnoticed. */
static void route_row(const float *logits, int64_t experts, int64_t k, int32_t *id, float *weight)
{
    int64_t count = 0;
    int bad = 0;
    const vf infinity = vf_set1(MATH_INFINITY), lowest = vf_neg(infinity);
    for (int64_t e = 0; e < experts; e += VF_LANES) {
        const int64_t n = experts - e < VF_LANES ? experts - e : VF_LANES;
        vf x = vf_select(vm_first(n), load_lanes(logits + e, n), lowest);
        bad |= vm_any(vm_or(vf_is_nan(x), vf_eq(x, infinity)));
        if (count == k && !vm_any(vf_lt(vf_set1(weight[k - 1]), x)))
            continue;
        for (int64_t i = 0; i < n; i++)
            count = route_offer(weight, id, count, k, logits[e + i], (int32_t)(e + i));
    }
    route_weights(weight, k);
    for (int64_t i = 0; bad && i < k; i++)
        weight[i] = MATH_INFINITY - MATH_INFINITY;
}

#endif
