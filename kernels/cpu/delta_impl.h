/* The gated delta rule of one value head over the rows of one segment, token by token:
 *     r = e^g S^T k;  d = beta (v - r);  o = e^g S^T q + (k q) d;  S = e^g S + k d^T
 * which is the contract's rule with the decay taken out of the sums: so one sweep over the state updates it
 * for a token and sums r and S^T q of the next one. Sums run over dk in ascending order, for each column of S
 * by itself: neither the number of columns in a sweep nor the cut of a sequence changes a bit.
 *
 * The state [dk][dv] lies in float32. Rows pass in chunks of QW_DELTA_CHUNK, and inside a chunk columns pass
 * in blocks that stay in the first cache for the whole chunk. The first row reads the state that the segment
 * found and the last row writes the state that it leaves, so one row costs one read and one write of it.
 */
#ifndef QW_CPU_DELTA_IMPL_H
#define QW_CPU_DELTA_IMPL_H

#include "kernels/cpu/kernels.h"
#include "kernels/cpu/load_impl.h"
#include "kernels/cpu/math_impl.h"
#include "kernels/cpu/unroll.h"

#if defined(QW_TIER_AVX512)
enum { DELTA_VECTORS = 2 }; /* columns of a block, in vectors */
#else
enum { DELTA_VECTORS = 1 };
#endif

/* What the rows of a chunk need beside the state. */
typedef struct delta_chunk {
    float decay[QW_DELTA_CHUNK], beta[QW_DELTA_CHUNK], kq[QW_DELTA_CHUNK];
    const float *q, *k; /* [rows][width], normalised, in the head's workspace */
    int64_t width;
} delta_chunk;

/* A block of columns of a state: `stride` floats from one row to the next. */
typedef struct delta_block {
    float *at;
    int64_t stride;
} delta_block;

QW_INLINE void delta_normalise(const float *x, float factor, float *out, int64_t n)
{
    const vf scale = vf_set1(inverse_root(dot_lanes(x, x, n), 1.0f, 1e-6f) * factor);
    for (int64_t i = 0; i < n; i += VF_LANES)
        store_lanes(out + i, vf_mul(load_lanes(x + i, n - i), scale), n - i);
}

/* decay = e^(-e^a_log softplus(a + dt_bias)), beta = sigmoid(b), and unit q / sqrt(dk), unit k. */
static inline void delta_prepare(const qw_delta_head *h, int64_t row, int64_t rows, float *work,
                                 delta_chunk *chunk)
{
    const float scale = inverse_root((float)h->dk, 1.0f, 0.0f);
    chunk->width = (h->dk + VF_LANES - 1) / VF_LANES * VF_LANES;
    chunk->q = work;
    chunk->k = work + QW_DELTA_CHUNK * chunk->width;
    for (int64_t i = 0; i < QW_DELTA_CHUNK; i++) {
        const int64_t from = row + (i < rows ? i : 0);
        chunk->decay[i] = h->a[from * h->a_stride] + h->dt_bias;
        chunk->beta[i] = h->b[from * h->b_stride];
    }
    const vf rate = vf_neg(vf_exp(vf_set1(h->a_log)));
    for (int64_t i = 0; i < QW_DELTA_CHUNK; i += VF_LANES) {
        vf g = vf_mul(rate, vf_softplus(vf_load(chunk->decay + i)));
        vf_store(chunk->decay + i, vf_exp(g));
        vf_store(chunk->beta + i, vf_sigmoid(vf_load(chunk->beta + i)));
    }
    for (int64_t i = 0; i < rows; i++) {
        float *q = work + i * chunk->width, *k = q + QW_DELTA_CHUNK * chunk->width;
        delta_normalise(h->q + (row + i) * h->c_stride, scale, q, h->dk);
        delta_normalise(h->k + (row + i) * h->c_stride, 1.0f, k, h->dk);
        chunk->kq[i] = dot_lanes(q, k, h->dk);
    }
}

/* sk = S^T k, sq = S^T q over `vectors` x 16 columns, of the last vector `lanes`. */
QW_INLINE void delta_read(delta_block s, const float *k, const float *q, int64_t dk, vf *sk, vf *sq,
                          int64_t lanes, const int vectors)
{
    vf sum_k[4], sum_q[4];
    QW_UNROLL
    for (int c = 0; c < vectors; c++)
        sum_k[c] = sum_q[c] = vf_zero();
    for (int64_t i = 0; i < dk; i++) {
        const vf ki = vf_set1(k[i]), qi = vf_set1(q[i]);
        QW_UNROLL
        for (int c = 0; c < vectors; c++) {
            vf x = load_lanes(s.at + i * s.stride + c * VF_LANES, lanes);
            sum_k[c] = vf_fma(x, ki, sum_k[c]);
            sum_q[c] = vf_fma(x, qi, sum_q[c]);
        }
    }
    QW_UNROLL
    for (int c = 0; c < vectors; c++) {
        sk[c] = sum_k[c];
        sq[c] = sum_q[c];
    }
}

/* to = decay from + k d^T, with vf_stream or without. */
QW_INLINE void delta_update(delta_block from, delta_block to, const float *k, float decay, const vf *d,
                            int64_t dk, int64_t lanes, bool stream, const int vectors)
{
    const vf factor = vf_set1(decay);
    for (int64_t i = 0; i < dk; i++) {
        const vf ki = vf_set1(k[i]);
        QW_UNROLL
        for (int c = 0; c < vectors; c++) {
            vf x = load_lanes(from.at + i * from.stride + c * VF_LANES, lanes);
            x = vf_fma(ki, d[c], vf_mul(x, factor));
            if (stream)
                vf_stream(to.at + i * to.stride + c * VF_LANES, x);
            else
                store_lanes(to.at + i * to.stride + c * VF_LANES, x, lanes);
        }
    }
}

/* Both: the update for one token, and on the way the sums of the next one. */
QW_INLINE void delta_sweep(delta_block from, delta_block to, const float *k, float decay, const vf *d,
                           const float *next_k, const float *next_q, int64_t dk, vf *sk, vf *sq,
                           int64_t lanes, const int vectors)
{
    const vf factor = vf_set1(decay);
    vf sum_k[4], sum_q[4];
    QW_UNROLL
    for (int c = 0; c < vectors; c++)
        sum_k[c] = sum_q[c] = vf_zero();
    for (int64_t i = 0; i < dk; i++) {
        const vf ki = vf_set1(k[i]), next_ki = vf_set1(next_k[i]), next_qi = vf_set1(next_q[i]);
        QW_UNROLL
        for (int c = 0; c < vectors; c++) {
            vf x = load_lanes(from.at + i * from.stride + c * VF_LANES, lanes);
            x = vf_fma(ki, d[c], vf_mul(x, factor));
            store_lanes(to.at + i * to.stride + c * VF_LANES, x, lanes);
            sum_k[c] = vf_fma(x, next_ki, sum_k[c]);
            sum_q[c] = vf_fma(x, next_qi, sum_q[c]);
        }
    }
    QW_UNROLL
    for (int c = 0; c < vectors; c++) {
        sk[c] = sum_k[c];
        sq[c] = sum_q[c];
    }
}

/* d and the output of one row from its sums; sk becomes d. */
QW_INLINE void delta_output(const qw_delta_head *h, const delta_chunk *chunk, int64_t row, int64_t i,
                            int64_t column, vf *sk, const vf *sq, int64_t lanes, const int vectors)
{
    const vf decay = vf_set1(chunk->decay[i]), beta = vf_set1(chunk->beta[i]), kq = vf_set1(chunk->kq[i]);
    const float *v = h->v + (row + i) * h->c_stride + column;
    float *o = h->o + (row + i) * h->o_stride + column;
    QW_UNROLL
    for (int c = 0; c < vectors; c++) {
        vf r = vf_mul(decay, sk[c]);
        sk[c] = vf_mul(beta, vf_sub(load_lanes(v + c * VF_LANES, lanes), r));
        store_lanes(o + c * VF_LANES, vf_fma(kq, sk[c], vf_mul(decay, sq[c])), lanes);
    }
}

static inline float *delta_slot(const qw_delta_head *h, int64_t write, int64_t column)
{
    return (float *)(h->state_base + h->write[write].slot * h->slot_stride) + column;
}

/* States to be stored inside a segment: the block's columns, after relative row `row`. */
static inline void delta_store(const qw_delta_head *h, int64_t row, delta_block s, int64_t column,
                               int64_t columns)
{
    for (int64_t w = 0; w < h->writes; w++) {
        if (h->write[w].row - h->first_row != row)
            continue;
        float *to = delta_slot(h, w, column);
        for (int64_t i = 0; i < h->dk && to + i * h->dv != s.at + i * s.stride; i++)
            memcpy(to + i * h->dv, s.at + i * s.stride, (size_t)columns * sizeof(float));
    }
}

/* The rows of a chunk for one block of columns. `from` holds the state before it, `to` takes the one after
 * it, and `home` is where the block lies in between. What the segment leaves bypasses the caches where it
 * can: it is read again after all the weights of a model. */
QW_INLINE void delta_columns(const qw_delta_head *h, const delta_chunk *chunk, int64_t row, int64_t rows,
                             int64_t column, delta_block from, delta_block home, delta_block to,
                             int64_t lanes, const int vectors)
{
    vf d[4], sq[4];
    const int64_t columns = (vectors - 1) * VF_LANES + (lanes < VF_LANES ? lanes : VF_LANES);
    const bool aligned = ((uintptr_t)to.at | (uintptr_t)to.stride * sizeof(float)) % 64 == 0;
    const bool stream = aligned && to.at != home.at && lanes >= VF_LANES;
    delta_read(from, chunk->k, chunk->q, h->dk, d, sq, lanes, vectors);
    for (int64_t i = 0; i < rows; i++) {
        const float *k = chunk->k + i * chunk->width, *q = chunk->q + i * chunk->width;
        const delta_block next = i == rows - 1 ? to : home;
        delta_output(h, chunk, row, i, column, d, sq, lanes, vectors);
        if (i == rows - 1) {
            delta_update(from, next, k, chunk->decay[i], d, h->dk, lanes, stream, vectors);
        } else {
            vf sk[4];
            delta_sweep(from, next, k, chunk->decay[i], d, k + chunk->width, q + chunk->width, h->dk, sk, sq,
                        lanes, vectors);
            QW_UNROLL
            for (int c = 0; c < vectors; c++)
                d[c] = sk[c];
        }
        delta_store(h, row + i, next, column, columns);
        from = home;
    }
}

/* Where the columns of one block lie: packed in the workspace. */
static inline delta_block delta_home(const qw_delta_head *h, float *packed, int64_t column, int64_t vectors)
{
    return (delta_block){packed + column * h->dk, vectors * VF_LANES};
}

QW_INLINE void delta_block_rows(const qw_delta_head *h, const delta_chunk *chunk, int64_t row, int64_t rows,
                                int64_t column, float *packed, int64_t lanes, const int vectors)
{
    const delta_block home = delta_home(h, packed, column, vectors);
    delta_block from = home, to = home;
    if (row == 0 && h->state != NULL) {
        from.at = (float *)(uintptr_t)h->state + column; /* read only */
        from.stride = h->dv;
    } else if (row == 0) {
        for (int64_t i = 0; i < h->dk * vectors; i++)
            vf_store(home.at + i * VF_LANES, vf_zero());
    }
    if (row + rows == h->rows && h->writes > 0) {
        to.at = delta_slot(h, h->writes - 1, column);
        to.stride = h->dv;
    }
    delta_columns(h, chunk, row, rows, column, from, home, to, lanes, vectors);
}

/* work: QW_DELTA_CHUNK x 2 x width(dk) floats for q and k, then dk x width(dv) for the packed state. */
static void delta_head(const qw_delta_head *h, float *work)
{
    delta_chunk chunk;
    for (int64_t row = 0; row < h->rows; row += QW_DELTA_CHUNK) {
        const int64_t rows = h->rows - row < QW_DELTA_CHUNK ? h->rows - row : QW_DELTA_CHUNK;
        delta_prepare(h, row, rows, work, &chunk);
        float *packed = work + 2 * QW_DELTA_CHUNK * chunk.width;
        int64_t column = 0;
        for (; column + DELTA_VECTORS * VF_LANES <= h->dv; column += DELTA_VECTORS * VF_LANES)
            delta_block_rows(h, &chunk, row, rows, column, packed, VF_LANES, DELTA_VECTORS);
        for (; column + VF_LANES <= h->dv; column += VF_LANES)
            delta_block_rows(h, &chunk, row, rows, column, packed, VF_LANES, 1);
        if (column < h->dv)
            delta_block_rows(h, &chunk, row, rows, column, packed, h->dv - column, 1);
    }
    vf_stream_end();
}

#endif
