/* The dot product of AVX-512 BF16: both operands BF16 (x rounded once per op), pairs of products added to 16
 * float32 sums: lane l takes elements 2l, 2l + 1, then those 32 further on, and so forth. The instruction
 * rounds to nearest even and flushes subnormals whatever MXCSR says. */
#define QW_TIER_AVX512 1
#include "kernels/cpu/kernels.h"
#include "kernels/cpu/simd.h"
#include "kernels/cpu/unroll.h"

enum { TILE_W = 4, TILE_X = 6, ONE_ROW_W = 8, PAIRS = 2 * VF_LANES };

QW_INLINE __m512bh load_pairs(const char *p)
{
    __m512i bits = _mm512_loadu_si512(p);
    __m512bh pairs;
    memcpy(&pairs, &bits, sizeof pairs);
    return pairs;
}
QW_INLINE __m512bh load_pairs_n(const char *p, int64_t n)
{
    __m512i bits = _mm512_maskz_loadu_epi16((__mmask32)((1u << n) - 1u), p);
    __m512bh pairs;
    memcpy(&pairs, &bits, sizeof pairs);
    return pairs;
}

QW_INLINE void dot_tile(int dtype, int columns, int rows, int ahead, const char *const *w,
                        const char *const *x, const char *next, int64_t k, vf (*sum)[TILE_X])
{
    (void)dtype;
    QW_UNROLL
    for (int c = 0; c < columns; c++) {
        QW_UNROLL
        for (int r = 0; r < rows; r++)
            sum[c][r] = vf_zero();
    }
    int64_t i = 0;
    for (; i + PAIRS <= k; i += PAIRS) {
        QW_UNROLL
        for (int line = 0; line < (ahead * PAIRS * 2 + 63) / 64; line++)
            __builtin_prefetch(next + i * ahead * 2 + line * 64, 0, 2);
        __m512bh weight[ONE_ROW_W > TILE_W ? ONE_ROW_W : TILE_W];
        QW_UNROLL
        for (int c = 0; c < columns; c++)
            weight[c] = load_pairs(w[c] + i * 2);
        QW_UNROLL
        for (int r = 0; r < rows; r++) {
            __m512bh value = load_pairs(x[r] + i * 2);
            QW_UNROLL
            for (int c = 0; c < columns; c++)
                sum[c][r] = _mm512_dpbf16_ps(sum[c][r], weight[c], value);
        }
    }
    if (i < k) {
        QW_UNROLL
        for (int c = 0; c < columns; c++) {
            __m512bh weight = load_pairs_n(w[c] + i * 2, k - i);
            QW_UNROLL
            for (int r = 0; r < rows; r++)
                sum[c][r] = _mm512_dpbf16_ps(sum[c][r], weight, load_pairs_n(x[r] + i * 2, k - i));
        }
    }
}

#include "kernels/cpu/dot_block_impl.h"

void qw_dot_bf16_avx512bf16(const qw_dot_block *block)
{
    dot_block(QW_BF16, block);
}
