/* The gated delta rule in chunks of up to 64 rows (WY form; kernels/reference/delta_chunked.c has it in plain
 * loops). With G_i = g_1 + ... + g_i inside a chunk and D_ij = e^(G_i - G_j):
 *
 *   delta_solve, all chunks at once:
 *     A_ij = beta_i (k_i k_j) D_ij, j < i;   P_ij = (q_i k_j) D_ij, j <= i
 *     (I + A) U = diag(beta) V;   (I + A) W = diag(beta e^G) K
 *   delta_chunks, one after another:
 *     V' = U - W S;   O_i = e^G_i q_i S + sum_j P_ij V'_j;   S = e^G_n S + sum_j e^(G_n - G_j) k_j V'_j^T
 *
 * Exponents are differences before they are raised. Chunks end at absolute multiples of 64 tokens, where a
 * state is stored, and with the segment: a cut of a prompt at such a multiple changes nothing, and a
 * segment's result follows from its own rows, its own cut and its state. */
#ifndef QW_CUDA_DELTA_CHUNKED_H
#define QW_CUDA_DELTA_CHUNKED_H

#include "kernels/cuda/state.h"

enum {
    QW_DELTA_CHUNK = QW_KV_BLOCK,
    QW_DELTA_CHUNKED_FROM = 16, /* rows of a segment; below, the steps are fewer than the chunk's work */
    QW_DELTA_THREADS = 256,
    QW_DELTA_COLUMNS = 32, /* of S, in a block of delta_chunks */
    QW_DELTA_DEPTH = 32,   /* of dk, or of j, in a tile of shared memory */
    QW_DELTA_PITCH = 33,
    QW_DELTA_A_PITCH = 65
};

struct delta_job {
    const float *c; /* q [nk,dk] ‖ k [nk,dk] ‖ v [nv,dv] */
    float *o;
    int64_t c_stride, o_stride;
    int32_t nk, nv, dk, dv;
    int32_t chunked_from;
    qw_device_state state;
    const qw_segment *segment;
    const qw_state_write *write;
    float2 *norm; /* [R,nk] factors of q and of k */
    float2 *gate; /* [R,nv] g and beta */
    float *u, *w; /* [R,nv,dv], [R,nv,dk] */
    float *p;     /* [R,nv,64] */
};

QW_DEVICE bool qw_delta_is_chunked(const delta_job &j, const qw_segment &s)
{
    return s.row_count >= j.chunked_from;
}

static inline int64_t qw_delta_solve_shared()
{
    return 4 * (2 * QW_DELTA_CHUNK * QW_DELTA_PITCH + QW_DELTA_CHUNK * QW_DELTA_A_PITCH + 2 * QW_DELTA_CHUNK);
}

static inline int64_t qw_delta_chunks_shared(int64_t dk)
{
    return 4 * (dk * QW_DELTA_COLUMNS + QW_DELTA_CHUNK * (QW_DELTA_COLUMNS + QW_DELTA_PITCH + 1));
}

/* G of a chunk's rows in order; that of the last row beyond them. By one thread: 64 additions in one order.
 */
QW_DEVICE void qw_delta_sum_gates(const delta_job &j, int row, int count, int head, qw_shared<float> g)
{
    if (qw_thread() != 0)
        return;
    float sum = 0;
    for (int i = 0; i < QW_DELTA_CHUNK; i++) {
        if (i < count)
            sum += j.gate[(row + i) * j.nv + head].x;
        g[i] = sum;
    }
}

/* tile[i][d] = scale_i * from[i][first + d] for a chunk's rows, zeros outside. */
template <typename F>
QW_DEVICE void qw_delta_load(qw_shared<float> tile, int count, int first, int width, F element)
{
    for (int i = qw_thread(); i < QW_DELTA_CHUNK * QW_DELTA_DEPTH; i += QW_DELTA_THREADS) {
        const int r = i / QW_DELTA_DEPTH, d = i % QW_DELTA_DEPTH;
        tile[r * QW_DELTA_PITCH + d] = r < count && first + d < width ? element(r, first + d) : 0.0F;
    }
}

/* ---- delta_solve: a block per chunk and value head -------------------------------------------------- */

/* One column of U or W by forward substitution, the column in registers. */
template <typename F>
QW_DEVICE void qw_delta_substitute(qw_shared<float> a, int count, F right_side, float *out, int64_t stride)
{
    float x[QW_DELTA_CHUNK];
    QW_UNROLL
    for (int i = 0; i < QW_DELTA_CHUNK; i++) {
        if (i < count) {
            float value = right_side(i);
            QW_UNROLL
            for (int j = 0; j < i; j++)
                value -= static_cast<float>(a[i * QW_DELTA_A_PITCH + j]) * x[j];
            x[i] = value;
            out[i * stride] = value;
        }
    }
}

/* A block's chunk: its rows from `row` on, and the scaled q and k of them. */
struct qw_delta_solved {
    qw_shared<float> qs, ks, a, g, beta; /* tiles of q and k, A [64][64], [64], [64] */
    int row, count, head, key_head;
};

QW_DEVICE float qw_delta_q(const delta_job &j, const qw_delta_solved &b, int i, int d)
{
    return j.c[(b.row + i) * j.c_stride + b.key_head * j.dk + d] * j.norm[(b.row + i) * j.nk + b.key_head].x;
}

QW_DEVICE float qw_delta_k(const delta_job &j, const qw_delta_solved &b, int i, int d)
{
    return j.c[(b.row + i) * j.c_stride + (j.nk + b.key_head) * j.dk + d] *
           j.norm[(b.row + i) * j.nk + b.key_head].y;
}

/* kk = K K^T and qk = Q K^T for a thread's rows r .. r + 4 and columns s .. s + 4. */
QW_DEVICE void qw_delta_gram(const delta_job &j, const qw_delta_solved &b, int r, int s, float (&kk)[4][4],
                             float (&qk)[4][4])
{
    for (int first = 0; first < j.dk; first += QW_DELTA_DEPTH) {
        qw_block_sync();
        qw_delta_load(b.qs, b.count, first, j.dk, [&](int i, int d) { return qw_delta_q(j, b, i, d); });
        qw_delta_load(b.ks, b.count, first, j.dk, [&](int i, int d) { return qw_delta_k(j, b, i, d); });
        qw_block_sync();
        for (int d = 0; d < QW_DELTA_DEPTH; d++) {
            float right[4];
            for (int m = 0; m < 4; m++)
                right[m] = b.ks[(s + m) * QW_DELTA_PITCH + d];
            for (int i = 0; i < 4; i++) {
                const float k = b.ks[(r + i) * QW_DELTA_PITCH + d], q = b.qs[(r + i) * QW_DELTA_PITCH + d];
                for (int m = 0; m < 4; m++) {
                    kk[i][m] += k * right[m];
                    qk[i][m] += q * right[m];
                }
            }
        }
    }
}

/* A into shared memory, P to where delta_chunks reads it. */
QW_DEVICE void qw_delta_decayed(const delta_job &j, const qw_delta_solved &b)
{
    const int r = qw_thread() / 16 * 4, s = qw_thread() % 16 * 4;
    float kk[4][4] = {}, qk[4][4] = {};
    qw_delta_gram(j, b, r, s, kk, qk);
    for (int i = 0; i < 4; i++)
        for (int m = 0; m < 4; m++) {
            const int at = r + i, before = s + m;
            const float decay =
                before <= at ? expf(static_cast<float>(b.g[at]) - static_cast<float>(b.g[before])) : 0.0F;
            b.a[at * QW_DELTA_A_PITCH + before] =
                before < at ? static_cast<float>(b.beta[at]) * kk[i][m] * decay : 0.0F;
            if (at < b.count)
                j.p[((b.row + at) * int64_t{j.nv} + b.head) * QW_DELTA_CHUNK + before] = qk[i][m] * decay;
        }
}

static QW_KERNEL delta_solve(delta_job j, const qw_tile *chunks)
{
    const qw_tile chunk = chunks[blockIdx.x];
    if (!qw_delta_is_chunked(j, j.segment[chunk.segment]))
        return;
    const int head = static_cast<int>(blockIdx.y), row = chunk.row_begin, count = chunk.row_count;
    const int tile = QW_DELTA_CHUNK * QW_DELTA_PITCH;
    qw_shared_arena arena;
    const qw_delta_solved b = {arena.take<float>(tile),
                               arena.take<float>(tile),
                               arena.take<float>(QW_DELTA_CHUNK * QW_DELTA_A_PITCH),
                               arena.take<float>(QW_DELTA_CHUNK),
                               arena.take<float>(QW_DELTA_CHUNK),
                               row,
                               count,
                               head,
                               head / (j.nv / j.nk)};
    qw_delta_sum_gates(j, row, count, head, b.g);
    for (int i = qw_thread(); i < QW_DELTA_CHUNK; i += QW_DELTA_THREADS)
        b.beta[i] = i < count ? j.gate[(row + i) * j.nv + head].y : 0.0F;
    qw_delta_decayed(j, b);
    qw_block_sync();
    const int64_t at = row * int64_t{j.nv} + head;
    auto value = [&](int i, int column) {
        return b.beta[i] * j.c[(row + i) * j.c_stride + 2 * j.nk * j.dk + head * j.dv + column];
    };
    for (int column = qw_thread(); column < j.dv; column += QW_DELTA_THREADS)
        qw_delta_substitute(
            b.a, count, [&](int i) { return value(i, column); }, j.u + at * j.dv + column,
            int64_t{j.nv} * j.dv);
    /* The threads that the columns of U leave free begin with those of W. */
    const int me = (qw_thread() + QW_DELTA_THREADS - j.dv % QW_DELTA_THREADS) % QW_DELTA_THREADS;
    for (int column = me; column < j.dk; column += QW_DELTA_THREADS)
        qw_delta_substitute(
            b.a, count, [&](int i) { return b.beta[i] * expf(b.g[i]) * qw_delta_k(j, b, i, column); },
            j.w + at * j.dk + column, int64_t{j.nv} * j.dk);
}

/* ---- delta_chunks: a block per 32 columns of S, value head and segment ------------------------------ */

/* A thread's sums for its column and 8 rows, one in 8: sum[m] += tile[row][d] * right[d][column]. */
enum { QW_DELTA_ROWS = QW_DELTA_CHUNK * QW_DELTA_COLUMNS / QW_DELTA_THREADS, QW_DELTA_ROW_STEP = 8 };
static_assert(QW_DELTA_ROWS == 8 && QW_DELTA_THREADS / QW_DELTA_COLUMNS == QW_DELTA_ROW_STEP,
              "rows of a thread");

QW_DEVICE void qw_delta_accumulate(float (&sum)[QW_DELTA_ROWS], qw_shared<float> tile, qw_shared<float> right,
                                   int depth)
{
    const int column = qw_thread() % QW_DELTA_COLUMNS, row = qw_thread() / QW_DELTA_COLUMNS;
    for (int d = 0; d < depth; d++) {
        const float x = right[d * QW_DELTA_COLUMNS + column];
        QW_UNROLL
        for (int m = 0; m < QW_DELTA_ROWS; m++)
            sum[m] += tile[(row + m * QW_DELTA_ROW_STEP) * QW_DELTA_PITCH + d] * x;
    }
}

/* sum[m] += sum_d element(row, d) * right[d][column], by tiles of 32 of d. */
template <typename F>
QW_DEVICE void qw_delta_product(float (&sum)[QW_DELTA_ROWS], qw_shared<float> tile, qw_shared<float> right,
                                int count, int width, F element)
{
    for (int first = 0; first < width; first += QW_DELTA_DEPTH) {
        const int depth = width - first < QW_DELTA_DEPTH ? width - first : int{QW_DELTA_DEPTH};
        qw_block_sync();
        qw_delta_load(tile, count, first, width, element);
        qw_block_sync();
        qw_delta_accumulate(sum, tile, right.at(first * QW_DELTA_COLUMNS), depth);
    }
}

/* A block's place. A thread owns the rows first_row, first_row + 8, ... of its column. */
struct qw_delta_place {
    qw_shared<float> state, change, tile, g; /* [dk][32], [64][32], a tile, [64] */
    int head, key_head;
    int local, column, first_row;
    bool live;     /* there is such a column */
    int64_t begin; /* of the column in a stored state */
};

/* Blocks of a (segment, head). */
QW_DEVICE int qw_delta_groups(const delta_job &j)
{
    return (j.dv + QW_DELTA_COLUMNS - 1) / QW_DELTA_COLUMNS;
}

QW_DEVICE qw_delta_place qw_delta_find(const delta_job &j)
{
    qw_shared_arena arena;
    qw_delta_place p = {arena.take<float>(j.dk * QW_DELTA_COLUMNS),
                        arena.take<float>(QW_DELTA_CHUNK * QW_DELTA_COLUMNS),
                        arena.take<float>(QW_DELTA_CHUNK * QW_DELTA_PITCH),
                        arena.take<float>(QW_DELTA_CHUNK),
                        0,
                        0,
                        0,
                        0,
                        0,
                        false,
                        0};
    p.head = static_cast<int>(blockIdx.y);
    p.key_head = p.head / (j.nv / j.nk);
    p.local = qw_thread() % QW_DELTA_COLUMNS;
    p.column = static_cast<int>(blockIdx.x) % qw_delta_groups(j) * QW_DELTA_COLUMNS + p.local;
    p.first_row = qw_thread() / QW_DELTA_COLUMNS;
    p.live = p.column < j.dv;
    p.begin = int64_t{p.head} * j.dk * j.dv + p.column;
    return p;
}

/* Rows of the chunk that begins `done` rows into the segment; write `next` is the first not yet made. */
QW_DEVICE int qw_delta_count(const delta_job &j, const qw_segment &s, int done, int next)
{
    const int left = s.row_count - done;
    int count = QW_DELTA_CHUNK - (s.position + done) % QW_DELTA_CHUNK;
    count = count < left ? count : left;
    if (next < s.write_begin + s.write_count) {
        const int stored = j.write[next].row + 1 - s.row_begin - done;
        count = stored < count ? stored : count;
    }
    return count;
}

/* change = V' = U - W S, zeros beyond the chunk's rows. */
QW_DEVICE void qw_delta_changes(const delta_job &j, const qw_delta_place &p, int row, int count)
{
    const int64_t at = row * int64_t{j.nv} + p.head;
    float sum[QW_DELTA_ROWS] = {};
    qw_delta_product(sum, p.tile, p.state, count, j.dk,
                     [&](int i, int d) { return j.w[(at + int64_t{i} * j.nv) * j.dk + d]; });
    QW_UNROLL
    for (int m = 0; m < QW_DELTA_ROWS; m++) {
        const int i = p.first_row + m * QW_DELTA_ROW_STEP;
        const float u = i < count && p.live ? j.u[(at + int64_t{i} * j.nv) * j.dv + p.column] : 0.0F;
        p.change[i * QW_DELTA_COLUMNS + p.local] = i < count ? u - sum[m] : 0.0F;
    }
}

/* O, then change_i = e^(G_n - G_i) V'_i. */
QW_DEVICE void qw_delta_outputs(const delta_job &j, const qw_delta_place &p, int row, int count)
{
    const int64_t at = row * int64_t{j.nv} + p.head;
    float sum[QW_DELTA_ROWS] = {};
    qw_delta_product(sum, p.tile, p.state, count, j.dk, [&](int i, int d) {
        return j.c[(row + i) * j.c_stride + p.key_head * j.dk + d] * j.norm[(row + i) * j.nk + p.key_head].x;
    });
    QW_UNROLL
    for (int m = 0; m < QW_DELTA_ROWS; m++)
        sum[m] *= expf(p.g[p.first_row + m * QW_DELTA_ROW_STEP]);
    qw_delta_product(sum, p.tile, p.change, count, QW_DELTA_CHUNK,
                     [&](int i, int d) { return j.p[(at + int64_t{i} * j.nv) * QW_DELTA_CHUNK + d]; });
    const float last = p.g[QW_DELTA_CHUNK - 1];
    qw_block_sync(); /* all have read the changes */
    QW_UNROLL
    for (int m = 0; m < QW_DELTA_ROWS; m++) {
        const int i = p.first_row + m * QW_DELTA_ROW_STEP;
        if (i < count && p.live)
            j.o[(row + i) * j.o_stride + p.head * j.dv + p.column] = sum[m];
        p.change[i * QW_DELTA_COLUMNS + p.local] *= expf(last - static_cast<float>(p.g[i]));
    }
}

/* S = e^G_n S + K^T change. */
QW_DEVICE void qw_delta_advance(const delta_job &j, const qw_delta_place &p, int row, int count)
{
    const float decay = expf(p.g[QW_DELTA_CHUNK - 1]);
    for (int first = 0; first < j.dk; first += QW_DELTA_DEPTH) {
        qw_block_sync();
        qw_delta_load(p.tile, count, first, j.dk, [&](int i, int d) {
            return j.c[(row + i) * j.c_stride + (j.nk + p.key_head) * j.dk + d] *
                   j.norm[(row + i) * j.nk + p.key_head].y;
        });
        qw_block_sync();
        for (int e = p.first_row; e < QW_DELTA_DEPTH && first + e < j.dk; e += QW_DELTA_ROW_STEP) {
            const int place = (first + e) * QW_DELTA_COLUMNS + p.local;
            float value = decay * p.state[place];
            for (int i = 0; i < QW_DELTA_CHUNK; i++)
                value += p.tile[i * QW_DELTA_PITCH + e] * p.change[i * QW_DELTA_COLUMNS + p.local];
            p.state[place] = value;
        }
    }
}

static QW_KERNEL delta_chunks(delta_job j)
{
    const qw_segment s = j.segment[static_cast<int>(blockIdx.x) / qw_delta_groups(j)];
    if (!qw_delta_is_chunked(j, s))
        return;
    const qw_delta_place p = qw_delta_find(j);
    for (int e = p.first_row; e < j.dk; e += QW_DELTA_ROW_STEP) /* its own elements until the next barrier */
        p.state[e * QW_DELTA_COLUMNS + p.local] =
            p.live && s.state_read >= 0 ? qw_slot(j.state, s.state_read)[p.begin + int64_t{e} * j.dv] : 0.0F;
    int next = s.write_begin;
    for (int done = 0, count; done < s.row_count; done += count) {
        const int row = s.row_begin + done;
        count = qw_delta_count(j, s, done, next);
        qw_block_sync(); /* the chunk before is done with g and change */
        qw_delta_sum_gates(j, row, count, p.head, p.g);
        qw_delta_changes(j, p, row, count);
        qw_delta_outputs(j, p, row, count);
        qw_delta_advance(j, p, row, count);
        for (; next < s.write_begin + s.write_count && j.write[next].row == row + count - 1; next++) {
            float *to = qw_slot(j.state, j.write[next].slot) + p.begin;
            for (int e = p.first_row; p.live && e < j.dk; e += QW_DELTA_ROW_STEP) /* what it wrote itself */
                to[int64_t{e} * j.dv] = p.state[e * QW_DELTA_COLUMNS + p.local];
        }
    }
}

#endif
