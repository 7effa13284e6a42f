#include "kernels/cpu/select.h"

#include "kernels/cpu/kernels.h"

#include <float.h>
#include <string.h>

/* ---- images --------------------------------------------------------------------------------------- */

uint32_t qw_float_image(float value)
{
    uint32_t bits;
    value += 0.0F; /* -0 becomes 0 */
    memcpy(&bits, &value, sizeof bits);
    return (bits & 0x80000000U) != 0 ? ~bits : bits | 0x80000000U;
}

static float image_float(uint32_t image)
{
    uint32_t bits = (image & 0x80000000U) != 0 ? image & 0x7FFFFFFFU : ~image;
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* ---- radix select --------------------------------------------------------------------------------- */

/* The search has found the leading bits of the image down to bit `low`; `above` is the amount of all
 * values whose leading bits are larger. */
typedef struct search {
    const float *value;
    int64_t count;
    double target, above;
    bool by_mass;
    uint32_t prefix;
    int32_t low;
    double *bins;
} search;

/* Copies of the fields, and by_mass a constant: the loops below are all the work there is. */
static inline void add_to_bins(const float *value, int64_t count, double *bins, uint32_t prefix, int32_t low,
                               int32_t shift, bool by_mass)
{
    const uint32_t digit = (1U << (low - shift)) - 1;
    for (int64_t i = 0; i < count; i++) {
        const uint32_t image = qw_float_image(value[i]);
        if (low == 32 || image >> low == prefix)
            bins[(image >> shift) & digit] += by_mass ? (double)value[i] : 1.0;
    }
}

static void fill_bins(const search *s, int32_t shift, int32_t count)
{
    memset(s->bins, 0, (size_t)count * sizeof *s->bins);
    if (s->by_mass)
        add_to_bins(s->value, s->count, s->bins, s->prefix, s->low, shift, true);
    else
        add_to_bins(s->value, s->count, s->bins, s->prefix, s->low, shift, false);
}

/* Goes down the bins until the target is reached, or to the lowest that holds anything. */
static void refine(search *s, int32_t shift)
{
    const int32_t bins = (int32_t)(1U << (s->low - shift));
    int32_t found = -1;
    double above = s->above, before = s->above;
    fill_bins(s, shift, bins);
    for (int32_t b = bins - 1; b >= 0; b--) {
        if (s->bins[b] == 0)
            continue;
        found = b;
        before = above;
        above += s->bins[b];
        if (above >= s->target)
            break;
    }
    s->above = before;
    s->prefix = (uint32_t)((uint64_t)s->prefix << (s->low - shift)) | (uint32_t)QW_MAX(found, 0);
    s->low = shift;
}

qw_cut qw_select(const float *value, int64_t count, double target, bool by_mass, double *bins)
{
    search s = {value, count, target, 0, by_mass, 0, 32, bins};
    refine(&s, 21);
    refine(&s, 10);
    refine(&s, 0);
    const double unit = by_mass ? (double)image_float(s.prefix) : 1.0;
    const double ties = (target - s.above) / unit;
    if (!(ties < (double)count))
        return (qw_cut){s.prefix, count};
    const int64_t whole = (int64_t)ties;
    return (qw_cut){s.prefix, QW_MAX(1, whole + ((double)whole < ties))};
}

/* ---- lists ---------------------------------------------------------------------------------------- */

void qw_picks_keep(qw_picks *picks, qw_cut cut)
{
    int64_t kept = 0;
    for (int64_t i = 0; i < picks->count; i++) { /* kept <= i */
        const float value = picks->value[i];
        const uint32_t image = qw_float_image(value);
        const int tie = image == cut.image, keep = (image > cut.image) | (tie & (cut.ties > 0));
        picks->value[kept] = value;
        picks->id[kept] = picks->id[i];
        cut.ties -= tie;
        kept += keep;
    }
    picks->count = kept;
}

void qw_picks_gather(const float *x, int64_t n, const float *peaks, float bound, qw_picks *out)
{
    int64_t count = 0;
    for (int64_t begin = 0; begin < n; begin += QW_ROW_BLOCK) {
        if (!(peaks[begin / QW_ROW_BLOCK] >= bound))
            continue;
        const int64_t end = QW_MIN(n, begin + QW_ROW_BLOCK);
        for (int64_t i = begin; i < end; i++) { /* count <= i */
            const float value = x[i];
            out->value[count] = value;
            out->id[count] = (int32_t)i;
            count += value >= bound;
        }
    }
    out->count = count;
}

/* At least k values are as large as the k-th largest peak. */
void qw_picks_largest(const float *x, int64_t n, const float *peaks, int64_t k, double *bins, qw_picks *out)
{
    const int64_t blocks = (n + QW_ROW_BLOCK - 1) / QW_ROW_BLOCK;
    float bound = -FLT_MAX;
    if (k <= blocks)
        bound = QW_MAX(bound, image_float(qw_select(peaks, blocks, (double)k, false, bins).image));
    qw_picks_gather(x, n, peaks, bound, out);
    if (out->count > k)
        qw_picks_keep(out, qw_select(out->value, out->count, (double)k, false, bins));
}

/* ---- drawing -------------------------------------------------------------------------------------- */

/* Four interleaved sums. */
static double block_mass(const float *weight, int64_t count)
{
    double sum[4] = {0};
    int64_t i = 0;
    for (; i + 4 <= count; i += 4)
        for (int j = 0; j < 4; j++)
            sum[j] += (double)weight[i + j];
    for (; i < count; i++)
        sum[0] += (double)weight[i];
    return (sum[0] + sum[2]) + (sum[1] + sum[3]);
}

double qw_masses(const float *weight, int64_t count, double *mass)
{
    double total = 0;
    for (int64_t begin = 0; begin < count; begin += QW_ROW_BLOCK) {
        double *block = &mass[begin / QW_ROW_BLOCK];
        *block = block_mass(weight + begin, QW_MIN(QW_ROW_BLOCK, count - begin));
        total += *block;
    }
    return total;
}

/* The block in which the sum passes the target: by rounding it may not, then the last with any mass. */
static int64_t draw_block(const double *mass, int64_t blocks, double target, double *before)
{
    int64_t found = 0;
    double sum = 0;
    for (int64_t b = 0; b < blocks; b++) {
        if (mass[b] > 0) {
            found = b;
            *before = sum;
        }
        sum += mass[b];
        if (sum > target)
            break;
    }
    return found;
}

int64_t qw_draw_index(const float *weight, int64_t count, const double *mass, double uniform, double total)
{
    const int64_t blocks = (count + QW_ROW_BLOCK - 1) / QW_ROW_BLOCK;
    double sum = 0;
    int64_t i = draw_block(mass, blocks, uniform * total, &sum) * QW_ROW_BLOCK;
    int64_t chosen = i;
    for (const int64_t end = QW_MIN(count, i + QW_ROW_BLOCK); i < end; i++) {
        if (weight[i] > 0)
            chosen = i;
        sum += (double)weight[i];
        if (sum > uniform * total)
            break;
    }
    return chosen;
}
