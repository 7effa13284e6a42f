/* Attention of a tile of queries over KV blocks of 64 tokens:
 *     s_j = q k_j / sqrt(hd);  m = max s_j;  p_j = e^(s_j - m);  l = sum p_j;  acc = sum p_j v_j
 * per block, over the tokens that the query sees, j ascending; then merges in the order of the context, first
 * the blocks of a span, then the spans:
 *     m' = max(m1, m2);  l' = l1 e^(m1-m') + l2 e^(m2-m');  acc' likewise.
 *
 * A tile is some queries (rows x heads of one KV head), row by row in scratch, padded with zeros to whole
 * vectors. Register tiles share loads of K between queries and loads of V between queries; an element's order
 * of additions is the same in each of them: scores sum over dims in lanes and one tree, accumulators sum over
 * tokens. K and V of tokens that a query does not see are never multiplied into its result.
 *
 * 8-bit elements enter the products as the integers they are; the scale of a key is a factor of its score,
 * that of a value a factor of p_j where it weighs v_j, but not in l.
 */
#ifndef QW_CPU_ATTENTION_IMPL_H
#define QW_CPU_ATTENTION_IMPL_H

#include "kernels/cpu/kernels.h"
#include "kernels/cpu/load_impl.h"
#include "kernels/cpu/math_impl.h"
#include "kernels/cpu/unroll.h"

/* Register tiles, as many accumulators as the registers hold: queries x 4 keys, some of these at a time;
 * queries x vectors of V. */
#if defined(QW_TIER_AVX512)
enum { ATTN_KEY_QUERIES = 4, ATTN_KEYS = 4, ATTN_VALUE_QUERIES = 4, ATTN_VECTORS = 4 };
#elif defined(QW_TIER_AVX2)
enum { ATTN_KEY_QUERIES = 1, ATTN_KEYS = 4, ATTN_VALUE_QUERIES = 2, ATTN_VECTORS = 2 };
#else
enum { ATTN_KEY_QUERIES = 1, ATTN_KEYS = 1, ATTN_VALUE_QUERIES = 2, ATTN_VECTORS = 1 };
#endif
enum {
    ATTN_FEW = 16, /* queries of a tile that waits for memory, not for arithmetic: it fetches ahead */
#if defined(QW_TIER_AVX512) || defined(QW_TIER_AVX2)
    ATTN_FEW_I8 = ATTN_FEW
#else
    ATTN_FEW_I8 = 1 /* widening 8 bits takes more instructions than a product */
#endif
};

/* Whether so many queries share K and V that are widened once; fewer widen them in registers, each register
 * tile anew. */
QW_INLINE bool attn_widens(int32_t dtype, int64_t queries)
{
    return dtype != QW_F32 && queries > (dtype == QW_I8 ? ATTN_FEW_I8 : ATTN_FEW);
}

/* Asks for `bytes` bytes from p on; NULL: for nothing. */
QW_INLINE void fetch_ahead(const char *p, int64_t bytes)
{
    for (int64_t i = 0; p != NULL && i < bytes; i += 64)
        __builtin_prefetch(p + i, 0, 2);
}

static float attn_scale(int64_t hd)
{
    return inverse_root((float)hd, 1.0f, 0.0f);
}

/* sum[i][j] += q_i k_j in lanes, over the whole vectors of hd, for the keys begin .. begin + keys. */
QW_INLINE void score_lanes(const float *q, int64_t q_stride, const char *k, int64_t row, int64_t hd,
                           int32_t dtype, vf (*sum)[4], const int queries, const int begin, const int keys)
{
    for (int64_t d = 0; d + VF_LANES <= hd; d += VF_LANES) {
        vf key[4];
        QW_UNROLL
        for (int j = 0; j < keys; j++)
            key[j] = load_as(k + (begin + j) * row, dtype, d, VF_LANES);
        QW_UNROLL
        for (int i = 0; i < queries; i++) {
            const vf query = vf_load(q + i * q_stride + d);
            QW_UNROLL
            for (int j = 0; j < keys; j++)
                sum[i][begin + j] = vf_fma(query, key[j], sum[i][begin + j]);
        }
    }
}

/* scores[i][0 .. 4) = q_i k_j for a constant number of queries and the four keys at k. */
QW_INLINE void score_tile(const float *q, int64_t q_stride, const char *k, int64_t row, int64_t hd,
                          int32_t dtype, float *scores, const int queries)
{
    vf sum[4][4];
    const int64_t whole = hd / VF_LANES * VF_LANES;
    QW_UNROLL
    for (int i = 0; i < queries; i++)
        sum[i][0] = sum[i][1] = sum[i][2] = sum[i][3] = vf_zero();
    QW_UNROLL
    for (int j = 0; j < 4; j += ATTN_KEYS)
        score_lanes(q, q_stride, k, row, hd, dtype, sum, queries, j, ATTN_KEYS);
    QW_UNROLL
    for (int j = 0; j < 4 && whole < hd; j++) {
        const vf key = load_as(k + j * row, dtype, whole, hd - whole);
        QW_UNROLL
        for (int i = 0; i < queries; i++)
            sum[i][j] = vf_fma(vf_load(q + i * q_stride + whole), key, sum[i][j]);
    }
    QW_UNROLL
    for (int i = 0; i < queries; i++)
        vf_sum4(sum[i][0], sum[i][1], sum[i][2], sum[i][3], scores + i * QW_KV_BLOCK);
}

/* Rows of a block as float32 in t->panel: `columns` elements from column d on, `stride` floats apart.
 * Meanwhile as much is fetched at `ahead`. */
QW_INLINE void attn_pack(const qw_attn_tile *t, const char *from, int64_t rows, int64_t d, int64_t columns,
                         int64_t stride, int32_t dtype, const char *ahead)
{
    const int64_t step = columns * qw_dtype_size(dtype);
    for (int64_t j = 0; j < rows; j++) {
        fetch_ahead(ahead == NULL ? NULL : ahead + j * step, step);
        for (int64_t c = 0; c < columns; c += VF_LANES)
            vf_store(t->panel + j * stride + c, load_as(from, dtype, j * t->hd + d + c, columns - c));
    }
}

/* Scores of the queries first .. end and some keys from `key` on, which lie at k. Meanwhile as much is
 * fetched at `ahead`. */
QW_INLINE void score_queries(const qw_attn_tile *t, int64_t first, int64_t end, const char *k, int64_t key,
                             int64_t keys, int64_t row, int32_t dtype, const char *ahead)
{
    float *scores = t->scores + key;
    int64_t i = first;
    for (; i + ATTN_KEY_QUERIES <= end; i += ATTN_KEY_QUERIES, ahead = NULL)
        for (int64_t j = 0; j < keys; j += 4) {
            fetch_ahead(ahead == NULL ? NULL : ahead + j * row, 4 * row);
            score_tile(t->q + i * t->width, t->width, k + j * row, row, t->hd, dtype,
                       scores + i * QW_KV_BLOCK + j, ATTN_KEY_QUERIES);
        }
    for (; i < end; i++, ahead = NULL)
        for (int64_t j = 0; j < keys; j += 4) {
            fetch_ahead(ahead == NULL ? NULL : ahead + j * row, 4 * row);
            score_tile(t->q + i * t->width, t->width, k + j * row, row, t->hd, dtype,
                       scores + i * QW_KV_BLOCK + j, 1);
        }
}

/* Scores of `queries` queries and the first `keys` keys of a block, keys rounded up to a multiple of 4. For
 * many queries, keys are widened once. As much as they are is fetched at `ahead`. */
QW_INLINE void score_block(const qw_attn_tile *t, const char *k, int64_t first, int64_t queries, int64_t keys,
                           int32_t dtype, const char *ahead)
{
    const int64_t row = t->hd * qw_dtype_size(dtype), end = first + queries;
    for (int64_t j = 0; j < keys; j += QW_ATTN_KEYS) {
        const int64_t n = keys - j < QW_ATTN_KEYS ? keys - j : QW_ATTN_KEYS;
        const char *next = ahead == NULL ? NULL : ahead + j * row;
        if (attn_widens(dtype, queries)) {
            attn_pack(t, k + j * row, (n + 3) / 4 * 4, 0, t->hd, t->width, dtype, next);
            score_queries(t, first, end, (const char *)t->panel, j, n, t->width * 4, QW_F32, NULL);
        } else {
            score_queries(t, first, end, k + j * row, j, n, row, dtype, next);
        }
    }
}

/* Scores of one query into p; its maximum and sum. Lanes from `keys` on count for nothing. With scales of K
 * and V, 64 each, a score is multiplied by its key's, and p at the end by its value's. */
QW_INLINE void softmax_block(float *scores, int64_t keys, float scale, const char *key_scales,
                             const char *value_scales, float *max, float *sum)
{
    enum { SCALES = VF_LANES * sizeof(float) };
    vf x[4];
    const vf lowest = vf_set1(-MATH_INFINITY), factor = vf_set1(scale);
    QW_UNROLL
    for (int i = 0; i < 4; i++) {
        int64_t n = keys - i * VF_LANES;
        n = n < 0 ? 0 : n > VF_LANES ? VF_LANES : n;
        vf score = vf_mul(vf_load(scores + i * VF_LANES), factor);
        if (key_scales != NULL)
            score = vf_mul(score, vf_load(key_scales + i * SCALES));
        x[i] = vf_select(vm_first(n), score, lowest);
    }
    *max = vf_hmax(vf_max(vf_max(x[0], x[1]), vf_max(x[2], x[3])));
    const vf m = vf_set1(*max);
    QW_UNROLL
    for (int i = 0; i < 4; i++) {
        int64_t n = keys - i * VF_LANES;
        n = n < 0 ? 0 : n > VF_LANES ? VF_LANES : n;
        x[i] = vf_select(vm_first(n), vf_exp(vf_sub(x[i], m)), vf_zero());
        vf_store(scores + i * VF_LANES,
                 value_scales == NULL ? x[i] : vf_mul(x[i], vf_load(value_scales + i * SCALES)));
    }
    *sum = vf_sum(vf_add(vf_add(x[0], x[1]), vf_add(x[2], x[3])));
}

/* acc[i][0 .. vectors) = sum over j < keys of p[i][j] v[j]; rows of V are `row` bytes apart, and the last
 * vector has `lanes` elements. Meanwhile as much is fetched at `ahead`. */
QW_INLINE void value_tile(const float *p, const char *v, int64_t row, int64_t keys, int32_t dtype, float *acc,
                          int64_t width, int64_t lanes, const char *ahead, const int queries,
                          const int vectors)
{
    vf sum[4][4];
    const int64_t step = vectors * VF_LANES * qw_dtype_size(dtype);
    QW_UNROLL
    for (int i = 0; i < queries; i++)
        QW_UNROLL
    for (int c = 0; c < vectors; c++)
        sum[i][c] = vf_zero();
    for (int64_t j = 0; j < keys; j++) {
        vf value[4];
        QW_UNROLL
        for (int c = 0; c < vectors; c++)
            value[c] = load_as(v + j * row, dtype, c * VF_LANES, lanes);
        if (ahead != NULL)
            fetch_ahead(ahead + j * step, step);
        QW_UNROLL
        for (int i = 0; i < queries; i++) {
            const vf weight = vf_set1(p[i * QW_KV_BLOCK + j]);
            QW_UNROLL
            for (int c = 0; c < vectors; c++)
                sum[i][c] = vf_fma(weight, value[c], sum[i][c]);
        }
    }
    QW_UNROLL
    for (int i = 0; i < queries; i++)
        QW_UNROLL
    for (int c = 0; c < vectors; c++)
        vf_store(acc + i * width + c * VF_LANES, sum[i][c]);
}

/* The same for the queries first .. end; `acc` is that of query 0. */
QW_INLINE void value_queries(const qw_attn_tile *t, int64_t first, int64_t end, const char *v, int64_t row,
                             int64_t keys, int32_t dtype, float *acc, int64_t lanes, const char *ahead,
                             const int vectors)
{
    const float *p = t->scores;
    int64_t i = first;
    for (; i + ATTN_VALUE_QUERIES <= end; i += ATTN_VALUE_QUERIES, ahead = NULL)
        value_tile(p + i * QW_KV_BLOCK, v, row, keys, dtype, acc + i * t->width, t->width, lanes, ahead,
                   ATTN_VALUE_QUERIES, vectors);
    for (; i < end; i++, ahead = NULL)
        value_tile(p + i * QW_KV_BLOCK, v, row, keys, dtype, acc + i * t->width, t->width, lanes, ahead, 1,
                   vectors);
}

/* acc = sum over j < keys of p_j v_j for `queries` queries, some columns of V at a time. For many queries
 * these columns are moved together and widened once. Meanwhile a block is fetched at `ahead`. */
QW_INLINE void value_block(const qw_attn_tile *t, const char *v, int64_t first, int64_t queries, int64_t keys,
                           int32_t dtype, float *acc, const char *ahead)
{
    enum { COLUMNS = ATTN_VECTORS * VF_LANES };
    const int64_t size = qw_dtype_size(dtype), end = first + queries;
    const char *packed = (const char *)t->panel;
    int64_t d = 0;
    for (; d + COLUMNS <= t->hd; d += COLUMNS) {
        const char *next = ahead == NULL ? NULL : ahead + d * QW_KV_BLOCK * size;
        if (attn_widens(dtype, queries)) {
            attn_pack(t, v, keys, d, COLUMNS, COLUMNS, dtype, next);
            value_queries(t, first, end, packed, COLUMNS * 4, keys, QW_F32, acc + d, VF_LANES, NULL,
                          ATTN_VECTORS);
        } else {
            value_queries(t, first, end, v + d * size, t->hd * size, keys, dtype, acc + d, VF_LANES, next,
                          ATTN_VECTORS);
        }
    }
    for (; d < t->hd; d += VF_LANES)
        value_queries(t, first, end, v + d * size, t->hd * size, keys, dtype, acc + d, t->hd - d, NULL, 1);
}

/* (max, sum, acc) of query i: `into` takes in `from`, which comes later in the context. */
static inline void attn_merge_one(qw_attn_partial into, qw_attn_partial from, int64_t i, int64_t width)
{
    const float a = into.max[i], b = from.max[i];
    const float lesser = math_exp(a > b ? b - a : a - b); /* the greater has weight 1 */
    const float wa = a > b ? 1.0f : lesser, wb = a > b ? lesser : 1.0f;
    into.max[i] = a > b ? a : b;
    into.sum[i] = into.sum[i] * wa + from.sum[i] * wb;
    float *acc = into.acc + i * width;
    const float *add = from.acc + i * width;
    for (int64_t d = 0; d < width; d += VF_LANES)
        vf_store(acc + d, vf_fma(vf_load(add + d), vf_set1(wb), vf_mul(vf_load(acc + d), vf_set1(wa))));
}

/* K of the block after `block` if some query sees it and the tile has few queries, else NULL. */
static inline const char *attn_next(const qw_attn_tile *t, int64_t block)
{
    const bool seen = t->limit[t->queries - 1] > (block + 1) * QW_KV_BLOCK;
    return seen && t->queries <= ATTN_FEW ? t->cache + t->table[block + 1] * t->block_stride : NULL;
}

/* Queries first .. first + queries, all of which see `keys` tokens of the block. */
QW_INLINE void attn_run(const qw_attn_tile *t, int64_t block, int64_t first, int64_t queries, int64_t keys,
                        int32_t dtype)
{
    const char *k = t->cache + t->table[block] * t->block_stride, *v = k + t->value_offset;
    const char *key_scales = dtype == QW_I8 ? k + t->key_scales : NULL;
    const char *value_scales = dtype == QW_I8 ? k + t->value_scales : NULL;
    const qw_attn_partial into = block % QW_ATTN_SPAN == 0 ? t->span : t->block;
    fetch_ahead(key_scales, QW_KV_BLOCK * sizeof(float));
    fetch_ahead(value_scales, QW_KV_BLOCK * sizeof(float));
    score_block(t, k, first, queries, keys, dtype, t->queries <= ATTN_FEW ? v : NULL);
    for (int64_t i = first; i < first + queries; i++)
        softmax_block(t->scores + i * QW_KV_BLOCK, keys, t->scale, key_scales, value_scales, &into.max[i],
                      &into.sum[i]);
    value_block(t, v, first, queries, keys, dtype, into.acc, attn_next(t, block));
    for (int64_t i = first; block % QW_ATTN_SPAN != 0 && i < first + queries; i++)
        attn_merge_one(t->span, t->block, i, t->width);
}

static inline int64_t attn_visible(const qw_attn_tile *t, int64_t query, int64_t block)
{
    const int64_t n = t->limit[query] - block * QW_KV_BLOCK;
    return n < 0 ? 0 : n > QW_KV_BLOCK ? QW_KV_BLOCK : n;
}

/* One span into t->span, for the queries that see any of it. */
QW_INLINE void attn_span_as(const qw_attn_tile *t, int64_t span, int32_t dtype)
{
    for (int64_t block = span * QW_ATTN_SPAN; block < (span + 1) * QW_ATTN_SPAN; block++)
        for (int64_t first = 0, end; first < t->queries; first = end) {
            const int64_t keys = attn_visible(t, first, block);
            for (end = first + 1; end < t->queries && attn_visible(t, end, block) == keys; end++)
                ;
            if (keys > 0)
                attn_run(t, block, first, end - first, keys, dtype);
        }
}

static void attn_span_f32(const qw_attn_tile *t, int64_t span)
{
    attn_span_as(t, span, QW_F32);
}

static void attn_span_bf16(const qw_attn_tile *t, int64_t span)
{
    attn_span_as(t, span, QW_BF16);
}

static void attn_span_i8(const qw_attn_tile *t, int64_t span)
{
    attn_span_as(t, span, QW_I8);
}

/* `into` takes in the span `from` of the queries that see any of it; the first span is copied. */
static void attn_merge(const qw_attn_tile *t, qw_attn_partial into, qw_attn_partial from, int64_t span)
{
    for (int64_t i = 0; i < t->queries; i++) {
        if (t->limit[i] <= span * QW_ATTN_SPAN * QW_KV_BLOCK)
            continue;
        if (span > 0) {
            attn_merge_one(into, from, i, t->width);
            continue;
        }
        into.max[i] = from.max[i];
        into.sum[i] = from.sum[i];
        memcpy(into.acc + i * t->width, from.acc + i * t->width, (size_t)t->width * sizeof(float));
    }
}

/* o = acc / sum * sigmoid(gate), hd floats */
static void attn_finish(const float *acc, float sum, const float *gate, float *o, int64_t hd)
{
    const vf total = vf_set1(sum);
    for (int64_t d = 0; d < hd; d += VF_LANES) {
        vf mean = vf_div(vf_load(acc + d), total);
        store_lanes(o + d, vf_mul(mean, vf_sigmoid(load_lanes(gate + d, hd - d))), hd - d);
    }
}

#endif
