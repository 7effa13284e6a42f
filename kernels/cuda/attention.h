/* What the attention kernels share. A block serves a tile, or a part of one: a few rows of one sequence with
 * the query heads that share a KV head, as pairs; it goes over the KV blocks of its partition of the context
 * with a running maximum:
 *
 *     s = q K^T / sqrt(hd), masked;   m' = max(m, max s);   p = e^(s - m');   f = e^(m - m')
 *     l = f l + sum p;   acc = f acc + p V;   m = m'
 *
 * In an 8-bit cache the scale of a key multiplies its score, that of a value its p on the way into acc. A
 * single pass writes o = acc / l * sigmoid(gate). With more partitions each writes (m, l, acc), and
 * attention_merge adds them with weights e^(m - largest m); one that saw no token has l = 0 and no part in
 * it.
 *
 * Whatever stands beside a pair in its block, and whichever blocks the tile reaches beyond the pair's last
 * token, the pair's own operations are the same: a block that is masked for it has f = 1 and adds zeros. */
#ifndef QW_CUDA_ATTENTION_H
#define QW_CUDA_ATTENTION_H

#include "kernels/cuda/cache.h"

struct qw_attention {
    const float *q, *qg;
    float *o;
    float *partial;        /* [rows, nh, partitions][m, l, acc [hd]]; null: a single pass */
    int32_t partial_begin; /* the row that partial begins with */
    int64_t q_stride, qg_stride, o_stride;
    qw_device_cache cache;
    int32_t heads, kv_heads, head_dim;
    int32_t group;       /* query heads of a KV head */
    int32_t block_heads; /* of them, in a block */
    int32_t block_rows;  /* rows of a tile in a block: a tile may be cut for a block that holds more */
    int32_t tile_parts;  /* blocks that a tile takes */
    int32_t partition, partitions;
    float scale; /* hd^(-1/2) */
    const qw_segment *segment;
    const int32_t *table;
    const qw_tile *tile;
};

/* A block's place. Grid: (tiles x their parts), (KV heads x parts of the group), partitions. */
struct qw_attention_place {
    qw_tile tile;
    int position; /* of the tile's first row */
    const int32_t *table;
    int kv_head, first_head; /* the first query head */
    int pairs;               /* live ones: row-major (row, head) */
    int begin, end;          /* KV blocks */
    int tokens;              /* of the context that the last row sees */
};

QW_DEVICE qw_attention_place qw_attention_find(const qw_attention &a)
{
    qw_attention_place p;
    p.tile = a.tile[static_cast<int>(blockIdx.x) / a.tile_parts];
    const qw_segment s = a.segment[p.tile.segment];
    const int skipped = static_cast<int>(blockIdx.x) % a.tile_parts * a.block_rows;
    p.tile.row_begin += skipped;
    p.tile.row_count -= skipped;
    p.tile.row_count = p.tile.row_count < a.block_rows ? p.tile.row_count : a.block_rows;
    const int parts = (a.group + a.block_heads - 1) / a.block_heads,
              part = static_cast<int>(blockIdx.y) % parts;
    p.position = s.position + p.tile.row_begin - s.row_begin;
    p.table = a.table + s.table;
    p.kv_head = static_cast<int>(blockIdx.y) / parts;
    p.first_head = p.kv_head * a.group + part * a.block_heads;
    p.pairs = p.tile.row_count * a.block_heads;
    p.tokens = p.position + p.tile.row_count;
    const int blocks = (p.tokens + QW_KV_BLOCK - 1) / QW_KV_BLOCK;
    p.begin = static_cast<int>(blockIdx.z) * a.partition;
    p.end = p.begin + a.partition < blocks ? p.begin + a.partition : blocks;
    return p;
}

/* The row and query head of a pair; false: there is none. */
QW_DEVICE bool qw_attention_pair(const qw_attention &a, const qw_attention_place &p, int pair, int *row,
                                 int *head)
{
    *row = p.tile.row_begin + pair / a.block_heads;
    *head = p.first_head + pair % a.block_heads;
    return pair < p.pairs && *head < (p.kv_head + 1) * a.group;
}

/* The last token that a pair's row sees. */
QW_DEVICE int qw_attention_last(const qw_attention &a, const qw_attention_place &p, int pair)
{
    return p.position + pair / a.block_heads;
}

/* K (kind 0) or V (kind 1) of a KV block, [64, hd]. */
template <typename C>
QW_DEVICE const C *qw_attention_block(const qw_attention &a, const qw_attention_place &p, int block, int kind)
{
    return qw_cache_rows<const C>(a.cache, p.table[block], kind, p.kv_head);
}

/* The scales of its rows [64], null where the cache's type has none. */
template <typename C>
QW_DEVICE const float *qw_attention_scales(const qw_attention &a, const qw_attention_place &p, int block,
                                           int kind)
{
    return sizeof(C) == 1 ? qw_cache_scales(a.cache, p.table[block], kind, p.kv_head) : nullptr;
}

/* One dimension of a pair's result, by whoever holds the accumulator. */
QW_DEVICE void qw_attention_store(const qw_attention &a, int row, int head, int d, float m, float l,
                                  float value)
{
    if (a.partial == nullptr) {
        const float gate = a.qg[row * a.qg_stride + head * 2 * a.head_dim + a.head_dim + d];
        a.o[row * a.o_stride + head * a.head_dim + d] = value / l * qw_sigmoid(gate);
        return;
    }
    const int64_t place = (int64_t{row} - a.partial_begin) * a.heads + head;
    float *to = a.partial + (place * a.partitions + blockIdx.z) * (a.head_dim + 2);
    to[2 + d] = value;
    if (d == 0) {
        to[0] = m;
        to[1] = l;
    }
}

/* A warp turns one pair's 64 scores into weights and moves its maximum and sum on: statistics m, l, f at
 * [pair]. `weigh` keeps weight x scale, and returns the weight as it will be used. `scales` of V [64], or
 * null: 1; those of tokens that are not seen may be anything. No sum here is a fused multiply-add, so that
 * every kernel rounds it alike. */
template <typename F>
QW_DEVICE void qw_attention_weigh(qw_shared<float> scores, const float *scales, qw_shared<float> m,
                                  qw_shared<float> l, qw_shared<float> f, int pair, F weigh)
{
    float largest = -QW_INFINITY, sum = 0;
    for (int t = qw_lane(); t < QW_KV_BLOCK; t += QW_WARP)
        largest = fmaxf(largest, scores[t]);
    const float before = m[pair], now = fmaxf(before, qw_warp_max(largest));
    /* Nothing seen so far: no difference of infinities. */
    const float factor = before == -QW_INFINITY ? 0.0F : expf(before - now);
    for (int t = qw_lane(); t < QW_KV_BLOCK; t += QW_WARP) {
        const float s = scores[t];
        const bool seen = s != -QW_INFINITY;
        sum += weigh(t, seen ? expf(s - now) : 0.0F, seen && scales != nullptr ? scales[t] : 1.0F);
    }
    sum = qw_warp_sum(sum);
    qw_warp_sync(); /* all lanes have read m */
    if (qw_lane() == 0) {
        m[pair] = now;
        f[pair] = factor;
        l[pair] = qw_product_rounded(l[pair], factor) + sum;
    }
}

#endif
