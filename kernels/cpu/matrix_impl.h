/* Inner kernels of the matrix ops. A dot product has one form for every shape: 16 partial sums, lane l
 * taking elements l, l + 16, l + 32, ... in ascending order, then the tree of vf_sum. A register tile only
 * groups dot products that share loads. */
#include "kernels/cpu/math_impl.h"
#include "kernels/cpu/unroll.h"

/* A register tile has TILE_X rows of x and TILE_W rows of w, or one of x and ONE_ROW_W of w: so many sums,
 * and the loads that feed them, fit the registers. */
#if defined(QW_TIER_AVX512)
enum { TILE_W = 4, TILE_X = 6, ONE_ROW_W = 8 };
#elif defined(QW_TIER_AVX2)
enum { TILE_W = 2, TILE_X = 2, ONE_ROW_W = 4 };
#else
enum { TILE_W = 2, TILE_X = 1, ONE_ROW_W = 2 };
#endif

QW_INLINE vf load_weight(int dtype, const char *p)
{
    return dtype == QW_BF16 ? vf_load_bf16(p) : dtype == QW_F16 ? vf_load_f16(p) : vf_load(p);
}
QW_INLINE vf load_weight_n(int dtype, const char *p, int64_t n)
{
    return dtype == QW_BF16 ? vf_load_bf16_n(p, n) : dtype == QW_F16 ? vf_load_f16_n(p, n) : vf_load_n(p, n);
}

/* sums[c][r] = the dot product of w[c] and x[r]. */
QW_INLINE void dot_tile(int dtype, int columns, int rows, int ahead, const char *const *w,
                        const char *const *x, const char *next, int64_t k, vf (*sum)[TILE_X])
{
    const int64_t size = dtype == QW_F32 ? 4 : 2;
    QW_UNROLL
    for (int c = 0; c < columns; c++) {
        QW_UNROLL
        for (int r = 0; r < rows; r++)
            sum[c][r] = vf_zero();
    }
    int64_t i = 0;
    for (; i + VF_LANES <= k; i += VF_LANES) {
        QW_UNROLL
        for (int line = 0; line < (ahead * VF_LANES * (int)size + 63) / 64; line++)
            __builtin_prefetch(next + i * ahead * size + line * 64, 0, 2);
        vf weight[ONE_ROW_W > TILE_W ? ONE_ROW_W : TILE_W];
        QW_UNROLL
        for (int c = 0; c < columns; c++)
            weight[c] = load_weight(dtype, w[c] + i * size);
        QW_UNROLL
        for (int r = 0; r < rows; r++) {
            vf value = vf_load(x[r] + i * 4);
            QW_UNROLL
            for (int c = 0; c < columns; c++)
                sum[c][r] = vf_fma(weight[c], value, sum[c][r]);
        }
    }
    if (i < k) {
        QW_UNROLL
        for (int c = 0; c < columns; c++) {
            vf weight = load_weight_n(dtype, w[c] + i * size, k - i);
            QW_UNROLL
            for (int r = 0; r < rows; r++)
                sum[c][r] = vf_fma(weight, vf_load_n(x[r] + i * 4, k - i), sum[c][r]);
        }
    }
}

#include "kernels/cpu/dot_block_impl.h"

static void dot_f32(const qw_dot_block *block)
{
    dot_block(QW_F32, block);
}
static void dot_bf16(const qw_dot_block *block)
{
    dot_block(QW_BF16, block);
}
static void dot_f16(const qw_dot_block *block)
{
    dot_block(QW_F16, block);
}

/* ---- rows ------------------------------------------------------------------------------------------ */

QW_INLINE void widen(int dtype, const char *from, float *to, int64_t n)
{
    const int64_t size = dtype == QW_F32 ? 4 : 2;
    int64_t i = 0;
    for (; i + VF_LANES <= n; i += VF_LANES)
        vf_store(to + i, load_weight(dtype, from + i * size));
    vf_store_n(to + i, load_weight_n(dtype, from + i * size, n - i), n - i);
}
static void widen_f32(const void *from, float *to, int64_t n)
{
    widen(QW_F32, from, to, n);
}
static void widen_bf16(const void *from, float *to, int64_t n)
{
    widen(QW_BF16, from, to, n);
}
static void widen_f16(const void *from, float *to, int64_t n)
{
    widen(QW_F16, from, to, n);
}

static void narrow_bf16(const float *from, uint16_t *to, int64_t n)
{
    int64_t i = 0;
    for (; i + VF_LANES <= n; i += VF_LANES)
        vf_store_bf16(to + i, vf_load(from + i));
    vf_store_bf16_n(to + i, vf_load_n(from + i, n - i), n - i);
}

static void silu_mul(const float *gate, const float *up, float *y, int64_t n)
{
    for (int64_t i = 0; i < n; i += VF_LANES) {
        const int64_t some = QW_MIN(n - i, VF_LANES);
        vf product = vf_mul(vf_silu(vf_load_n(gate + i, some)), vf_load_n(up + i, some));
        vf_store_n(y + i, product, some);
    }
}

static void combine(const float *const *from, const float *weight, int32_t terms, float *y, int64_t n)
{
    for (int64_t i = 0; i < n; i += VF_LANES) {
        const int64_t some = QW_MIN(n - i, VF_LANES);
        vf sum = vf_zero();
        for (int32_t j = 0; j < terms; j++)
            sum = vf_fma(vf_set1(weight[j]), vf_load_n(from[j] + i, some), sum);
        vf_store_n(y + i, sum, some);
    }
}

static void gate_rows(const float *value, const float *gate, int32_t accumulate, float *y, int64_t n)
{
    const vf factor = gate != NULL ? vf_sigmoid(vf_set1(*gate)) : vf_set1(1.0f);
    for (int64_t i = 0; i < n; i += VF_LANES) {
        const int64_t some = QW_MIN(n - i, VF_LANES);
        vf product = vf_mul(vf_load_n(value + i, some), factor);
        if (accumulate)
            product = vf_add(vf_load_n(y + i, some), product);
        vf_store_n(y + i, product, some);
    }
}
