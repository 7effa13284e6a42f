/* Attention by matrix instructions over a cache of BF16 or of 8-bit integers: 16 x TILES pairs a block of 4
 * warps. Queries and weights are rounded to BF16; scores, sums and accumulators are float32. Integers are
 * numbers of BF16, and become so on their way into shared memory: their scales stay outside the products. The
 * scale of a value enters its weight, and it is that product which is rounded; l adds what the rounded
 * product is a weight of, so that numerator and denominator hold the same weights.
 *
 * A pair has the same operations for every TILES. A warp forms the scores of 16 tokens with all pairs, and
 * the accumulators of a quarter of the dimensions of all pairs. K of the next block is on its way while V is
 * used. Shared memory: q [pairs, hd], K and V [64, hd] and weights [pairs, 64] in BF16, scores [pairs, 64] in
 * float32; each row is 16 bytes longer than that, so that the 8 rows which an instruction reads together lie
 * in different banks. */
#ifndef QW_CUDA_ATTENTION_MATRIX_H
#define QW_CUDA_ATTENTION_MATRIX_H

#include "kernels/cuda/attention.h"

#if QW_WARP_WIDTH == 32

enum {
    QW_MATRIX_ATTENTION_THREADS = 128,
    QW_WEIGHT_PITCH = 72,
    QW_SCORE_PITCH = 68,
    QW_MOST_COLUMN_TILES = 8
};

template <int TILES> struct qw_matrix_block {
    qw_shared<qw_bf16> q, k, v, weights;
    qw_shared<float> scores, m, l, f;
    int pitch; /* of q, k, v */
};

/* K or V of a block on its way, zeros beyond the tokens: a weight of zero must meet a number. Visible to all
 * after qw_copy_wait and a barrier. */
QW_DEVICE void qw_matrix_load_block(qw_shared<qw_bf16> to, int pitch, const qw_bf16 *from, int head_dim,
                                    int tokens)
{
    const int chunks = head_dim / 8;
    for (int i = qw_thread(); i < QW_KV_BLOCK * chunks; i += QW_MATRIX_ATTENTION_THREADS) {
        const int t = i / chunks, d = i % chunks * 8;
        qw_copy_async_16(to, t * pitch + d, from + t * head_dim + d, t < tokens);
    }
    qw_copy_commit();
}

/* Bytes `first` and first + 1 of a word as numbers of BF16, exactly. */
QW_DEVICE uint32_t qw_pair_of_int8(uint32_t word, int first)
{
    const uint32_t low = qw_float_bits(qw_to_float(static_cast<int8_t>(word >> 8 * first & 255)));
    const uint32_t high = qw_float_bits(qw_to_float(static_cast<int8_t>(word >> (8 * first + 8) & 255)));
    return low >> 16 | (high & 0xFFFF0000U);
}

QW_DEVICE void qw_matrix_load_block(qw_shared<qw_bf16> to, int pitch, const int8_t *from, int head_dim,
                                    int tokens)
{
    const int chunks = head_dim / 16;
    for (int i = qw_thread(); i < QW_KV_BLOCK * chunks; i += QW_MATRIX_ATTENTION_THREADS) {
        const int t = i / chunks, d = i % chunks * 16;
        const uint4 nothing = {0, 0, 0, 0};
        const uint4 bytes = t < tokens ? *reinterpret_cast<const uint4 *>(from + t * head_dim + d) : nothing;
        const uint4 low = {qw_pair_of_int8(bytes.x, 0), qw_pair_of_int8(bytes.x, 2),
                           qw_pair_of_int8(bytes.y, 0), qw_pair_of_int8(bytes.y, 2)};
        const uint4 high = {qw_pair_of_int8(bytes.z, 0), qw_pair_of_int8(bytes.z, 2),
                            qw_pair_of_int8(bytes.w, 0), qw_pair_of_int8(bytes.w, 2)};
        to.store(t * pitch + d, low);
        to.store(t * pitch + d + 8, high);
    }
    qw_copy_commit(); /* the groups are counted alike for both types */
}

template <typename C, int TILES>
QW_DEVICE void qw_matrix_scores(const qw_matrix_block<TILES> &b, const qw_attention &a,
                                const qw_attention_place &p, int block)
{
    const float *scales = qw_attention_scales<C>(a, p, block, 0);
    const int lane = qw_lane(), first = qw_warp() * 16;
    float sum[TILES][2][4] = {};
    for (int d = 0; d < a.head_dim; d += 16) {
        uint32_t keys[4];
        qw_load_matrix_4(keys, b.k, (first + lane / 16 * 8 + lane % 8) * b.pitch + d + lane / 8 % 2 * 8);
        QW_UNROLL
        for (int i = 0; i < TILES; i++) {
            uint32_t queries[4];
            qw_load_matrix_4(queries, b.q, (i * 16 + lane % 16) * b.pitch + d + lane / 16 * 8);
            const uint32_t low[2] = {keys[0], keys[1]}, high[2] = {keys[2], keys[3]};
            qw_matrix_bf16(sum[i][0], queries, low);
            qw_matrix_bf16(sum[i][1], queries, high);
        }
    }
    QW_UNROLL
    for (int i = 0; i < TILES; i++)
        QW_UNROLL
    for (int n = 0; n < 2; n++)
        QW_UNROLL
    for (int e = 0; e < 4; e++) {
        const int pair = i * 16 + e / 2 * 8 + lane / 4, t = first + n * 8 + lane % 4 * 2 + e % 2;
        const bool seen = block * QW_KV_BLOCK + t <= qw_attention_last(a, p, pair);
        const float scale = scales != nullptr ? scales[t] * a.scale : a.scale;
        b.scores[pair * QW_SCORE_PITCH + t] = seen ? sum[i][n][e] * scale : -QW_INFINITY;
    }
}

/* Where weight x scale falls below the normal numbers, what it adds to acc is nothing beside the rest, and
 * rounding it says nothing about the weight: that counts in l as it is. So also for a row of zeros, whose
 * scale is 0. */
template <typename C, int TILES>
QW_DEVICE void qw_matrix_weigh(const qw_matrix_block<TILES> &b, const qw_attention &a,
                               const qw_attention_place &p, int block)
{
    const float *scales = qw_attention_scales<C>(a, p, block, 1), smallest = 0x1p-126F;
    for (int i = qw_warp(); i < TILES * 16; i += QW_MATRIX_ATTENTION_THREADS / QW_WARP) {
        const qw_shared<qw_bf16> weights = b.weights.at(i * QW_WEIGHT_PITCH);
        qw_attention_weigh(b.scores.at(i * QW_SCORE_PITCH), scales, b.m, b.l, b.f, i,
                           [&](int t, float weight, float scale) {
                               const float product = weight * scale;
                               const qw_bf16 rounded = qw_to_bf16(product);
                               weights[t] = rounded;
                               if (sizeof(C) == 1)
                                   return product < smallest ? weight : qw_to_float(rounded) / scale;
                               return qw_to_float(rounded);
                           });
    }
}

/* acc = f acc + weights V for the warp's quarter of the dimensions. */
template <int TILES>
QW_DEVICE void qw_matrix_values(float (&acc)[TILES][QW_MOST_COLUMN_TILES][4], const qw_matrix_block<TILES> &b,
                                int head_dim)
{
    const int lane = qw_lane(), tiles = head_dim / 32, first = qw_warp() * tiles * 8;
    QW_UNROLL
    for (int i = 0; i < TILES; i++) {
        const float top = b.f[i * 16 + lane / 4], bottom = b.f[i * 16 + 8 + lane / 4];
        QW_UNROLL
        for (int n = 0; n < QW_MOST_COLUMN_TILES; n++)
            QW_UNROLL
        for (int e = 0; e < 4; e++)
            acc[i][n][e] *= e < 2 ? top : bottom;
    }
    QW_UNROLL
    for (int t = 0; t < QW_KV_BLOCK; t += 16) {
        uint32_t weights[TILES][4];
        QW_UNROLL
        for (int i = 0; i < TILES; i++)
            qw_load_matrix_4(weights[i], b.weights,
                             (i * 16 + lane % 16) * QW_WEIGHT_PITCH + t + lane / 16 * 8);
        QW_UNROLL
        for (int n = 0; n < QW_MOST_COLUMN_TILES; n++) {
            if (n >= tiles)
                break;
            uint32_t values[2];
            qw_load_matrix_2_transposed(values, b.v, (t + lane % 16) * b.pitch + first + n * 8);
            QW_UNROLL
            for (int i = 0; i < TILES; i++)
                qw_matrix_bf16(acc[i][n], weights[i], values);
        }
    }
}

template <int TILES>
QW_DEVICE void qw_matrix_begin(const qw_matrix_block<TILES> &b, const qw_attention &a,
                               const qw_attention_place &p)
{
    const int half = a.head_dim / 2;
    for (int i = qw_thread(); i < TILES * 16 * half; i += QW_MATRIX_ATTENTION_THREADS) {
        const int pair = i / half, d = i % half * 2;
        int row, head;
        const bool live = qw_attention_pair(a, p, pair, &row, &head);
        const float *q = a.q + row * a.q_stride + head * a.head_dim + d;
        b.q.store(pair * b.pitch + d, live ? qw_pair_bf16(q[0], q[1]) : 0U);
    }
    for (int i = qw_thread(); i < TILES * 16; i += QW_MATRIX_ATTENTION_THREADS) {
        b.m[i] = -QW_INFINITY;
        b.l[i] = 0.0F;
    }
}

template <int TILES>
QW_DEVICE void qw_matrix_end(const float (&acc)[TILES][QW_MOST_COLUMN_TILES][4],
                             const qw_matrix_block<TILES> &b, const qw_attention &a,
                             const qw_attention_place &p)
{
    const int lane = qw_lane(), tiles = a.head_dim / 32, first = qw_warp() * tiles * 8;
    QW_UNROLL
    for (int i = 0; i < TILES; i++)
        QW_UNROLL
    for (int n = 0; n < QW_MOST_COLUMN_TILES; n++)
        QW_UNROLL
    for (int e = 0; e < 4; e++) {
        const int pair = i * 16 + e / 2 * 8 + lane / 4, d = first + n * 8 + lane % 4 * 2 + e % 2;
        int row, head;
        if (n < tiles && qw_attention_pair(a, p, pair, &row, &head))
            qw_attention_store(a, row, head, d, b.m[pair], b.l[pair], acc[i][n][e]);
    }
}

template <int TILES> QW_DEVICE qw_matrix_block<TILES> qw_matrix_take(int head_dim)
{
    enum { PAIRS = TILES * 16 };
    const int pitch = head_dim + 8;
    qw_shared_arena arena;
    return {arena.take<qw_bf16>(PAIRS * pitch),
            arena.take<qw_bf16>(QW_KV_BLOCK * pitch),
            arena.take<qw_bf16>(QW_KV_BLOCK * pitch),
            arena.take<qw_bf16>(PAIRS * QW_WEIGHT_PITCH),
            arena.take<float>(PAIRS * QW_SCORE_PITCH),
            arena.take<float>(PAIRS),
            arena.take<float>(PAIRS),
            arena.take<float>(PAIRS),
            pitch};
}

template <typename C, int TILES> static QW_KERNEL attention_matrix(qw_attention a)
{
    const qw_attention_place p = qw_attention_find(a);
    if (p.tile.row_count <= 0)
        return;
    const qw_matrix_block<TILES> b = qw_matrix_take<TILES>(a.head_dim);
    auto issue = [&](qw_shared<qw_bf16> to, int block, int kind) {
        qw_matrix_load_block(to, b.pitch, qw_attention_block<C>(a, p, block, kind), a.head_dim,
                             p.tokens - block * QW_KV_BLOCK);
    };
    float acc[TILES][QW_MOST_COLUMN_TILES][4] = {};
    if (p.begin < p.end)
        issue(b.k, p.begin, 0);
    qw_matrix_begin(b, a, p);
    for (int block = p.begin; block < p.end; block++) {
        const bool more = block + 1 < p.end;
        issue(b.v, block, 1);
        qw_copy_wait<1>();
        qw_block_sync(); /* K has arrived, for all */
        qw_matrix_scores<C>(b, a, p, block);
        qw_block_sync(); /* K has been used */
        if (more)
            issue(b.k, block + 1, 0);
        qw_matrix_weigh<C>(b, a, p, block);
        if (more)
            qw_copy_wait<1>();
        else
            qw_copy_wait<0>();
        qw_block_sync(); /* V and the weights are there */
        qw_matrix_values<TILES>(acc, b, a.head_dim);
        qw_block_sync(); /* V has been used */
    }
    qw_block_sync();
    qw_matrix_end(acc, b, a, p);
}

#endif

#endif
