/* Attention in float32, for every cache type and head size: 16 pairs a block. Shared memory: queries and
 * accumulators [16, hd], scores [16, 64], a tile of K or V [64, 32]. A thread has one pair; in scores 4
 * tokens of it, one in 16, in accumulators one dimension in 16. */
#ifndef QW_CUDA_ATTENTION_GENERAL_H
#define QW_CUDA_ATTENTION_GENERAL_H

#include "kernels/cuda/attention.h"

enum {
    QW_GENERAL_PAIRS = QW_ATTENTION_PAIRS,
    QW_GENERAL_THREADS = 256,
    QW_GENERAL_SHARE = QW_GENERAL_THREADS / QW_GENERAL_PAIRS, /* threads of a pair */
    QW_GENERAL_DEPTH = 32,
    QW_GENERAL_PITCH = 33
};

struct qw_general_block {
    qw_shared<float> q, acc, scores, tile, m, l, f;
};

template <typename C>
QW_DEVICE void qw_general_load(const qw_general_block &b, const qw_attention &a, const C *from, int first,
                               int tokens)
{
    for (int i = qw_thread(); i < QW_KV_BLOCK * QW_GENERAL_DEPTH; i += QW_GENERAL_THREADS) {
        const int t = i / QW_GENERAL_DEPTH, d = first + i % QW_GENERAL_DEPTH;
        const bool live = t < tokens && d < a.head_dim;
        b.tile[t * QW_GENERAL_PITCH + i % QW_GENERAL_DEPTH] =
            live ? qw_to_float(from[t * a.head_dim + d]) : 0.0F;
    }
}

/* Tokens beyond those of the tile's last row are no token of anyone: zeros, and masked, whatever their scale.
 */
template <typename C>
QW_DEVICE void qw_general_scores(const qw_general_block &b, const qw_attention &a,
                                 const qw_attention_place &p, int block)
{
    enum { EACH = QW_KV_BLOCK / QW_GENERAL_SHARE };
    const C *keys = qw_attention_block<C>(a, p, block, 0);
    const float *scales = qw_attention_scales<C>(a, p, block, 0);
    const int pair = qw_thread() / QW_GENERAL_SHARE, mine = qw_thread() % QW_GENERAL_SHARE;
    const int first_token = block * QW_KV_BLOCK, last = qw_attention_last(a, p, pair);
    float sum[EACH] = {};
    for (int first = 0; first < a.head_dim; first += QW_GENERAL_DEPTH) {
        const int depth = a.head_dim - first < QW_GENERAL_DEPTH ? a.head_dim - first : int{QW_GENERAL_DEPTH};
        qw_block_sync();
        qw_general_load(b, a, keys, first, p.tokens - first_token);
        qw_block_sync();
        for (int d = 0; d < depth; d++) {
            const float q = b.q[pair * a.head_dim + first + d];
            for (int i = 0; i < EACH; i++)
                sum[i] += q * b.tile[(mine + i * QW_GENERAL_SHARE) * QW_GENERAL_PITCH + d];
        }
    }
    for (int i = 0; i < EACH; i++) {
        const int t = mine + i * QW_GENERAL_SHARE;
        const float scale = scales != nullptr ? scales[t] * a.scale : a.scale;
        b.scores[pair * QW_KV_BLOCK + t] = first_token + t <= last ? sum[i] * scale : -QW_INFINITY;
    }
}

template <typename C>
QW_DEVICE void qw_general_values(const qw_general_block &b, const qw_attention &a,
                                 const qw_attention_place &p, int block)
{
    const C *values = qw_attention_block<C>(a, p, block, 1);
    const int pair = qw_thread() / QW_GENERAL_SHARE, mine = qw_thread() % QW_GENERAL_SHARE;
    for (int first = 0; first < a.head_dim; first += QW_GENERAL_DEPTH) {
        qw_block_sync();
        qw_general_load(b, a, values, first, p.tokens - block * QW_KV_BLOCK);
        qw_block_sync();
        for (int d = mine; d < QW_GENERAL_DEPTH && first + d < a.head_dim; d += QW_GENERAL_SHARE) {
            float sum = b.acc[pair * a.head_dim + first + d] * b.f[pair];
            for (int t = 0; t < QW_KV_BLOCK; t++)
                sum += b.scores[pair * QW_KV_BLOCK + t] * b.tile[t * QW_GENERAL_PITCH + d];
            b.acc[pair * a.head_dim + first + d] = sum;
        }
    }
}

template <typename C> static QW_KERNEL attention_general(qw_attention a)
{
    const qw_attention_place p = qw_attention_find(a);
    if (p.tile.row_count <= 0)
        return;
    const int hd = a.head_dim, pair = qw_thread() / QW_GENERAL_SHARE, mine = qw_thread() % QW_GENERAL_SHARE;
    qw_shared_arena arena;
    const qw_general_block b = {arena.take<float>(QW_GENERAL_PAIRS * hd),
                                arena.take<float>(QW_GENERAL_PAIRS * hd),
                                arena.take<float>(QW_GENERAL_PAIRS * QW_KV_BLOCK),
                                arena.take<float>(QW_KV_BLOCK * QW_GENERAL_PITCH),
                                arena.take<float>(QW_GENERAL_PAIRS),
                                arena.take<float>(QW_GENERAL_PAIRS),
                                arena.take<float>(QW_GENERAL_PAIRS)};
    int row, head;
    const bool live = qw_attention_pair(a, p, pair, &row, &head);
    for (int d = mine; d < hd; d += QW_GENERAL_SHARE) {
        b.q[pair * hd + d] = live ? a.q[row * a.q_stride + head * hd + d] : 0.0F;
        b.acc[pair * hd + d] = 0.0F;
    }
    if (mine == 0) {
        b.m[pair] = -QW_INFINITY;
        b.l[pair] = 0.0F;
    }
    for (int block = p.begin; block < p.end; block++) {
        qw_general_scores<C>(b, a, p, block);
        qw_block_sync();
        for (int i = qw_warp(); i < QW_GENERAL_PAIRS; i += QW_GENERAL_THREADS / QW_WARP) {
            const qw_shared<float> scores = b.scores.at(i * QW_KV_BLOCK);
            qw_attention_weigh(scores, qw_attention_scales<C>(a, p, block, 1), b.m, b.l, b.f, i,
                               [&](int t, float weight, float scale) {
                                   scores[t] = weight * scale;
                                   return weight;
                               });
        }
        qw_general_values<C>(b, a, p, block);
        qw_block_sync();
    }
    qw_block_sync();
    for (int d = mine; live && d < hd; d += QW_GENERAL_SHARE)
        qw_attention_store(a, row, head, d, b.m[pair], b.l[pair], b.acc[pair * hd + d]);
}

#endif
