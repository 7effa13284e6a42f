/* Device functions over a row of logits by one block: largest value, selection by radix, ordered ties, the
 * draw.
 *
 * Selection goes down the order-preserving integer image of a float in digits of 11, 11 and 10 bits. An
 * element counts 1, or its weight in fixed point (2^-44 of the largest), so that sums are integers: the same
 * in any order, and exact. For what needs the order of ids each warp owns a run of the row. */
#ifndef QW_CUDA_SELECT_H
#define QW_CUDA_SELECT_H

#include "kernels/cuda/common.h"

enum { QW_ROW_THREADS = 512, QW_ROW_WARPS = QW_ROW_THREADS / QW_WARP, QW_BINS = 2048, QW_MASS_BITS = 44 };

typedef unsigned long long qw_mass; /* the type that atomic additions of 64 bits take */

/* Keeps values with a larger image, and of those with this image the first `ties`. */
struct qw_cut {
    uint32_t image;
    qw_mass ties;
};

/* a < b exactly if image(a) < image(b); -0 equals 0. */
QW_DEVICE uint32_t qw_image(float value)
{
    const uint32_t bits = qw_float_bits(value + 0.0F);
    return (bits & 0x80000000U) != 0 ? ~bits : bits | 0x80000000U;
}

QW_DEVICE float qw_image_value(uint32_t image)
{
    return qw_bits_float((image & 0x80000000U) != 0 ? image & 0x7FFFFFFFU : ~image);
}

/* A weight of 0 .. 1 in fixed point. */
QW_DEVICE qw_mass qw_mass_of(float weight)
{
    return static_cast<qw_mass>(
        static_cast<double>(weight) * static_cast<double>(qw_mass{1} << QW_MASS_BITS) + 0.5);
}

/* Largest value; *bad: a NaN or +infinity is among them. */
QW_DEVICE float qw_row_max(const float *x, int count, bool *bad)
{
    float largest = -QW_INFINITY;
    int wrong = 0;
    for (int i = qw_thread(); i < count; i += QW_ROW_THREADS) {
        largest = fmaxf(largest, x[i]);
        wrong |= !(x[i] < QW_INFINITY);
    }
    largest = qw_block_max(largest);
    *bad = qw_block_sync_or(wrong) != 0;
    return largest;
}

/* log(sum exp(x - largest)), sums in double in a fixed order. */
QW_DEVICE float qw_row_log_sum(const float *x, int count, float largest)
{
    double sum = 0;
    for (int i = qw_thread(); i < count; i += QW_ROW_THREADS)
        sum += static_cast<double>(expf(x[i] - largest));
    return static_cast<float>(log(qw_block_sum(sum)));
}

QW_DEVICE qw_mass qw_row_mass(const float *weight, int count)
{
    qw_mass sum = 0;
    for (int i = qw_thread(); i < count; i += QW_ROW_THREADS)
        sum += qw_mass_of(weight[i]);
    return qw_block_sum(sum);
}

/* ---- radix select ----------------------------------------------------------------------------------- */

/* Amounts of the values whose leading bits are `prefix`, by their next digit. */
QW_DEVICE void qw_fill_bins(qw_shared<qw_mass> bins, const float *x, int count, bool by_mass, uint32_t prefix,
                            int low, int shift)
{
    const uint32_t digit = (1U << (low - shift)) - 1;
    qw_block_sync(); /* the digit before has been read */
    for (int b = qw_thread(); b < QW_BINS; b += QW_ROW_THREADS)
        bins[b] = 0;
    qw_block_sync();
    for (int i = qw_thread(); i < count; i += QW_ROW_THREADS) {
        const uint32_t image = qw_image(x[i]);
        if (low == 32 || image >> low == prefix)
            bins.atomic_add(static_cast<int>(image >> shift & digit),
                            by_mass ? qw_mass_of(x[i]) : qw_mass{1});
    }
    qw_block_sync();
}

/* The cut that leaves the fewest values, largest first, whose amounts reach `target`; all if they do not. */
QW_DEVICE qw_cut qw_select(qw_shared<qw_mass> bins, const float *x, int count, qw_mass target, bool by_mass)
{
    QW_SHARED(uint32_t, found_prefix, 1);
    QW_SHARED(qw_mass, found_above, 1);
    uint32_t prefix = 0;
    qw_mass above = 0;
    for (int low = 32; low > 0;) {
        const int shift = low == 32 ? 21 : low == 21 ? 10 : 0;
        qw_fill_bins(bins, x, count, by_mass, prefix, low, shift);
        if (qw_thread() == 0) {
            int bin = -1;
            qw_mass sum = above, before = above;
            for (int b = (1 << (low - shift)) - 1; b >= 0; b--) {
                const qw_mass amount = bins[b];
                if (amount == 0)
                    continue;
                bin = b;
                before = sum;
                sum += amount;
                if (sum >= target)
                    break;
            }
            found_prefix[0] =
                (low == 32 ? 0U : prefix << (low - shift)) | static_cast<uint32_t>(bin < 0 ? 0 : bin);
            found_above[0] = before;
        }
        qw_block_sync();
        prefix = found_prefix[0];
        above = found_above[0];
        low = shift;
    }
    const qw_mass unit = by_mass ? qw_mass_of(qw_image_value(prefix)) : qw_mass{1};
    const qw_mass missing = target > above ? target - above : 0;
    return {prefix, unit == 0 ? static_cast<qw_mass>(count) : (missing + unit - 1) / unit};
}

/* ---- what needs the order of ids -------------------------------------------------------------------- */

struct qw_run {
    int begin, end;
};

/* The part of the row that this warp owns. */
QW_DEVICE qw_run qw_warp_run(int count)
{
    const int each = (count + QW_ROW_WARPS - 1) / QW_ROW_WARPS, begin = qw_warp() * each;
    return {begin < count ? begin : count, begin + each < count ? begin + each : count};
}

/* amounts[w] of each warp becomes the sum of those before it; returns the sum of all. */
QW_DEVICE qw_mass qw_scan_warps(qw_shared<qw_mass> amounts, qw_mass mine)
{
    qw_block_sync();
    if (qw_lane() == 0)
        amounts[qw_warp()] = mine;
    qw_block_sync();
    qw_mass before = 0, total = 0;
    for (int w = 0; w < QW_ROW_WARPS; w++) {
        before += w < qw_warp() ? static_cast<qw_mass>(amounts[w]) : qw_mass{0};
        total += amounts[w];
    }
    qw_block_sync();
    if (qw_lane() == 0)
        amounts[qw_warp()] = before;
    qw_block_sync();
    return total;
}

/* Calls keep(i, value kept?) for every element, in whatever order; each by one thread. */
template <typename F>
QW_DEVICE void qw_apply_cut(qw_shared<qw_mass> amounts, const float *x, int count, qw_cut cut, F keep)
{
    const qw_run run = qw_warp_run(count);
    qw_mass equal = 0;
    for (int i = run.begin + qw_lane(); i < run.end; i += QW_WARP)
        equal += qw_image(x[i]) == cut.image ? 1 : 0;
    qw_scan_warps(amounts, qw_warp_sum(equal));
    qw_mass rank = amounts[qw_warp()];
    for (int base = run.begin; base < run.end; base += QW_WARP) {
        const int i = base + qw_lane();
        const uint32_t image = i < run.end ? qw_image(x[i]) : 0U;
        const bool tie = i < run.end && image == cut.image;
        const qw_lanes ties = qw_ballot(QW_ALL_LANES, tie), lower = (qw_lanes{1} << qw_lane()) - 1;
        const qw_mass mine = rank + static_cast<qw_mass>(qw_count_lanes(ties & lower));
        if (i < run.end)
            keep(i, image > cut.image || (tie && mine < cut.ties));
        rank += static_cast<qw_mass>(qw_count_lanes(ties));
    }
}

QW_DEVICE qw_mass qw_scan_lanes(qw_mass value)
{
    for (int by = 1; by < QW_WARP; by *= 2) {
        const qw_mass other = qw_shuffle_up(QW_ALL_LANES, value, by);
        value += qw_lane() >= by ? other : qw_mass{0};
    }
    return value;
}

/* The first id at which the sum of weights exceeds uniform * their total; by one warp, the one whose run
 * holds it. */
QW_DEVICE int qw_draw(qw_shared<qw_mass> amounts, const float *weight, int count, double uniform)
{
    QW_SHARED(int, chosen, 1);
    const qw_run run = qw_warp_run(count);
    qw_mass mine = 0;
    for (int i = run.begin + qw_lane(); i < run.end; i += QW_WARP)
        mine += qw_mass_of(weight[i]);
    mine = qw_warp_sum(mine);
    const qw_mass total = qw_scan_warps(amounts, mine);
    const double target = uniform * static_cast<double>(total);
    qw_mass sum = amounts[qw_warp()];
    if (qw_thread() == 0)
        chosen[0] = -1;
    qw_block_sync();
    /* By rounding of the target none may exceed it: then the last that has any weight. */
    const bool last = mine > 0 && sum + mine == total;
    const bool here =
        static_cast<double>(sum) <= target && (static_cast<double>(sum + mine) > target || last) && mine > 0;
    int found = -1;
    for (int base = run.begin; here && base < run.end && found < 0; base += QW_WARP) {
        const int i = base + qw_lane();
        const qw_mass own = i < run.end ? qw_mass_of(weight[i]) : qw_mass{0},
                      up_to = sum + qw_scan_lanes(own);
        const bool exceeds = own > 0 && (static_cast<double>(up_to) > target || (last && up_to == total));
        const qw_lanes hits = qw_ballot(QW_ALL_LANES, exceeds);
        for (int lane = QW_WARP - 1; lane >= 0; lane--)
            if ((hits >> lane & 1) != 0)
                found = base + lane;
        sum = qw_shuffle(QW_ALL_LANES, up_to, QW_WARP - 1);
    }
    if (found >= 0 && qw_lane() == 0)
        chosen[0] = found;
    qw_block_sync();
    return chosen[0];
}

#endif
