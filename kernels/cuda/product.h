/* The matrix product that linear, mlp, head and experts share:
 *     y[y_row(r)][n] = scale[r] * sum_k x[x_row(r)][k] w[n][k]        (or added to y, or gated by it)
 * and its dual form, y = silu(x w^T) * (x up^T), which reads x once for both. Rows, from special to general:
 *
 *     few     up to 8 rows: a warp forms the dot products of one row of w with all rows of x, in float32
 *     matrix  blocks of 64 x 64 by BF16 matrix instructions; x is rounded to BF16, sums are float32
 *     tiled   blocks of 64 x 64 in float32, for every type and size
 *
 * Grouped: each block of rows belongs to an expert, whose weights it reads (experts.cu makes the list).
 * An element is summed in one order, whatever the number of rows served by the same row of the table. */
#ifndef QW_CUDA_PRODUCT_H
#define QW_CUDA_PRODUCT_H

#include "kernels/cuda/common.h"
#include "kernels/cuda/cuda.h"

enum { QW_TILE_ROWS = 64, QW_TILE_COLUMNS = 64 };

/* A block's rows: first and count among the sorted slots, and their expert. */
struct qw_row_tile {
    int32_t expert, begin, count;
};

struct qw_groups {
    const qw_row_tile *tile; /* null: not grouped */
    const int32_t *tiles;    /* how many there are; more blocks than these were launched */
    const qw_expert_weights *expert;
    int32_t part;  /* QW_PART_*: which weight of the expert; a dual product takes gate and up */
    int32_t dtype; /* of the weights that this launch serves; blocks of other experts return */
};

enum { QW_PART_GATE = 0, QW_PART_UP, QW_PART_DOWN, QW_PARTS };
/* What becomes of a product p: y = p;  y = y + p;  y = silu(y) * p. */
enum { QW_UPDATE_SET = 0, QW_UPDATE_ADD, QW_UPDATE_GATE };

struct qw_product {
    const float *x;
    float *y;
    const int32_t *x_row, *y_row;         /* null: the row itself */
    const float *scale;                   /* null: 1 */
    int64_t x_stride, y_stride, w_stride; /* w_stride: of w and up; grouped: the expert's instead */
    int32_t rows, depth, columns;
    int32_t update;  /* QW_UPDATE_* */
    int32_t aligned; /* rows of x and w begin at multiples of 16 bytes */
};

/* What a block works on: rows begin .. begin + rows, columns from `column`, and its weights. */
template <typename W> struct qw_product_block {
    const W *w, *up;
    int64_t w_stride;
    int begin, rows, column;
};

/* False: there is nothing for this block. Uniform over the block. */
template <typename W>
QW_DEVICE bool qw_product_place(const qw_product &p, const qw_groups &groups, const W *w, const W *up,
                                qw_product_block<W> *out)
{
    out->column = static_cast<int>(blockIdx.x) * QW_TILE_COLUMNS;
    const int tile = static_cast<int>(blockIdx.y);
    if (groups.tile == nullptr) {
        const int begin = tile * QW_TILE_ROWS, left = p.rows - begin;
        *out = {w, up, p.w_stride, begin, left < QW_TILE_ROWS ? left : int{QW_TILE_ROWS}, out->column};
        return true;
    }
    if (tile >= *groups.tiles)
        return false;
    const qw_row_tile t = groups.tile[tile];
    const qw_expert_weights &e = groups.expert[t.expert];
    const qw_expert_weight weight = groups.part == QW_PART_DOWN ? e.down
                                    : groups.part == QW_PART_UP ? e.up
                                                                : e.gate;
    if (weight.dtype != groups.dtype)
        return false;
    out->w = static_cast<const W *>(weight.data);
    out->up = static_cast<const W *>(e.up.data);
    out->w_stride = weight.stride;
    out->begin = t.begin;
    out->rows = t.count;
    return true;
}

QW_DEVICE const float *qw_product_x(const qw_product &p, int row)
{
    return p.x + (p.x_row != nullptr ? p.x_row[row] : row) * p.x_stride;
}

QW_DEVICE void qw_product_store(const qw_product &p, int row, int column, float value)
{
    float *y = p.y + (p.y_row != nullptr ? p.y_row[row] : row) * p.y_stride + column;
    if (p.scale != nullptr)
        value *= p.scale[row];
    if (p.update == QW_UPDATE_ADD)
        value += *y;
    else if (p.update == QW_UPDATE_GATE)
        value *= qw_silu(*y);
    *y = value;
}

/* ---- tiled: 256 threads, 4 x 4 elements each -------------------------------------------------------- */

enum { QW_TILED_THREADS = 256, QW_TILED_DEPTH = 16, QW_TILED_PITCH = 68 };

/* 64 rows x 16 of k into shared memory, k-major, zeros outside: a thread brings 4 of k of one row. */
template <typename T>
QW_DEVICE void qw_tiled_load(qw_shared<float> to, const T *row, bool live, int k, int depth)
{
    const int r = qw_thread() / 4, first = qw_thread() % 4 * 4;
    for (int i = 0; i < 4; i++) {
        const bool inside = live && k + first + i < depth;
        to[(first + i) * QW_TILED_PITCH + r] = inside ? qw_to_float(row[k + first + i]) : 0.0F;
    }
}

QW_DEVICE void qw_tiled_multiply(float (&sum)[4][4], qw_shared<float> x, qw_shared<float> w, int k)
{
    const int r = qw_thread() / 16 * 4, c = qw_thread() % 16 * 4;
    const float4 a = x.load<float4>(k * QW_TILED_PITCH + r), b = w.load<float4>(k * QW_TILED_PITCH + c);
    const float rows[4] = {a.x, a.y, a.z, a.w}, columns[4] = {b.x, b.y, b.z, b.w};
    QW_UNROLL
    for (int i = 0; i < 4; i++)
        QW_UNROLL
    for (int j = 0; j < 4; j++)
        sum[i][j] += rows[i] * columns[j];
}

template <typename W, bool DUAL>
static QW_KERNEL qw_product_tiled(qw_product p, qw_groups groups, const W *w, const W *up)
{
    qw_product_block<W> block;
    if (!qw_product_place(p, groups, w, up, &block))
        return;
    qw_shared_arena arena;
    const int tile = QW_TILED_DEPTH * QW_TILED_PITCH;
    const qw_shared<float> xs = arena.take<float>(tile), ws = arena.take<float>(tile);
    const qw_shared<float> us = DUAL ? arena.take<float>(tile) : ws;
    const int r = qw_thread() / 4, n = block.column + r;
    const bool row_live = r < block.rows, column_live = n < p.columns;
    const float *x = row_live ? qw_product_x(p, block.begin + r) : p.x;
    float sum[4][4] = {}, sum_up[4][4] = {};
    for (int k = 0; k < p.depth; k += QW_TILED_DEPTH) {
        qw_block_sync(); /* the tiles before have been read */
        qw_tiled_load(xs, x, row_live, k, p.depth);
        qw_tiled_load(ws, block.w + n * block.w_stride, column_live, k, p.depth);
        if (DUAL)
            qw_tiled_load(us, block.up + n * block.w_stride, column_live, k, p.depth);
        qw_block_sync();
        for (int i = 0; i < QW_TILED_DEPTH; i++) {
            qw_tiled_multiply(sum, xs, ws, i);
            if (DUAL)
                qw_tiled_multiply(sum_up, xs, us, i);
        }
    }
    /* Unrolled, or the sums would lie in memory, for an index to find them. */
    QW_UNROLL
    for (int all = 0; all < 16; all++) {
        const int i = all / 4, j = all % 4;
        const int row = qw_thread() / 16 * 4 + i, column = block.column + qw_thread() % 16 * 4 + j;
        if (row < block.rows && column < p.columns)
            qw_product_store(p, block.begin + row, column,
                             DUAL ? qw_silu(sum[i][j]) * sum_up[i][j] : sum[i][j]);
    }
}

/* ---- matrix: 4 warps, each 32 x 32 elements; two stages of 32 of k in shared memory ----------------- */

#if QW_WARP_WIDTH == 32

enum { QW_MATRIX_THREADS = 128, QW_MATRIX_DEPTH = 32, QW_MATRIX_PITCH = 40 };
static_assert(QW_MATRIX_PITCH * 2 % 16 == 0, "rows of a stage are read by 16 bytes");

/* A stage of a weight: 64 rows x 32 of k, 2 asynchronous copies a thread. */
QW_DEVICE void qw_matrix_load_weight(qw_shared<qw_bf16> to, const qw_bf16 *w, int64_t stride, int column,
                                     int columns, int k, int depth)
{
    for (int i = qw_thread(); i < QW_TILE_COLUMNS * 4; i += QW_MATRIX_THREADS) {
        const int n = i / 4, at = k + i % 4 * 8;
        const bool live = column + n < columns && at < depth;
        qw_copy_async_16(to, n * QW_MATRIX_PITCH + i % 4 * 8, live ? w + (column + n) * stride + at : w,
                         live);
    }
}

/* A thread brings 16 of k of one row of x: from memory into registers, and later as BF16 into shared memory.
 */
QW_DEVICE void qw_matrix_load_x(float4 (&to)[4], const float *row, bool live, int k, int depth)
{
    QW_UNROLL
    for (int i = 0; i < 4; i++) {
        const int at = k + qw_thread() % 2 * 16 + i * 4;
        to[i] = live && at < depth ? *reinterpret_cast<const float4 *>(row + at) : float4{0, 0, 0, 0};
    }
}

QW_DEVICE void qw_matrix_store_x(qw_shared<qw_bf16> to, const float4 (&from)[4])
{
    const int at = qw_thread() / 2 * QW_MATRIX_PITCH + qw_thread() % 2 * 16;
    QW_UNROLL
    for (int i = 0; i < 4; i++) {
        const uint2 pairs = {qw_pair_bf16(from[i].x, from[i].y), qw_pair_bf16(from[i].z, from[i].w)};
        to.store(at + i * 4, pairs);
    }
}

/* The warp's 32 x 32 part of one stage. */
QW_DEVICE void qw_matrix_multiply(float (&sum)[2][4][4], qw_shared<qw_bf16> x, qw_shared<qw_bf16> w)
{
    const int lane = qw_lane(), row = qw_warp() / 2 * 32, column = qw_warp() % 2 * 32;
    QW_UNROLL
    for (int k = 0; k < QW_MATRIX_DEPTH; k += 16) {
        uint32_t a[2][4], b[2][4];
        QW_UNROLL
        for (int i = 0; i < 2; i++) {
            qw_load_matrix_4(a[i], x, (row + i * 16 + lane % 16) * QW_MATRIX_PITCH + k + lane / 16 * 8);
            qw_load_matrix_4(b[i], w,
                             (column + i * 16 + lane / 16 * 8 + lane % 8) * QW_MATRIX_PITCH + k +
                                 lane / 8 % 2 * 8);
        }
        QW_UNROLL
        for (int i = 0; i < 2; i++)
            QW_UNROLL
        for (int j = 0; j < 4; j++) {
            const uint32_t pair[2] = {b[j / 2][j % 2 * 2], b[j / 2][j % 2 * 2 + 1]};
            qw_matrix_bf16(sum[i][j], a[i], pair);
        }
    }
}

template <bool DUAL>
static QW_KERNEL qw_product_matrix(qw_product p, qw_groups groups, const qw_bf16 *w, const qw_bf16 *up)
{
    qw_product_block<qw_bf16> block;
    if (!qw_product_place(p, groups, w, up, &block))
        return;
    qw_shared_arena arena;
    const int stage = QW_TILE_ROWS * QW_MATRIX_PITCH;
    const qw_shared<qw_bf16> xs = arena.take<qw_bf16>(2 * stage), ws = arena.take<qw_bf16>(2 * stage);
    const qw_shared<qw_bf16> us = DUAL ? arena.take<qw_bf16>(2 * stage) : ws;
    const bool live = qw_thread() / 2 < block.rows;
    const float *x = live ? qw_product_x(p, block.begin + qw_thread() / 2) : p.x;
    float sum[2][4][4] = {}, sum_up[2][4][4] = {};
    float4 ahead[4];
    auto issue = [&](int k, int to) {
        qw_matrix_load_weight(ws.at(to * stage), block.w, block.w_stride, block.column, p.columns, k,
                              p.depth);
        if (DUAL)
            qw_matrix_load_weight(us.at(to * stage), block.up, block.w_stride, block.column, p.columns, k,
                                  p.depth);
        qw_copy_commit();
        qw_matrix_load_x(ahead, x, live, k, p.depth);
    };
    issue(0, 0);
    qw_matrix_store_x(xs, ahead);
    int now = 0;
    for (int k = 0; k < p.depth; k += QW_MATRIX_DEPTH, now = 1 - now) {
        const bool more = k + QW_MATRIX_DEPTH < p.depth;
        qw_copy_wait<0>();
        qw_block_sync(); /* this stage has arrived, the other has been read */
        if (more)
            issue(k + QW_MATRIX_DEPTH, 1 - now);
        qw_matrix_multiply(sum, xs.at(now * stage), ws.at(now * stage));
        if (DUAL)
            qw_matrix_multiply(sum_up, xs.at(now * stage), us.at(now * stage));
        if (more)
            qw_matrix_store_x(xs.at((1 - now) * stage), ahead);
    }
    /* Unrolled, or the sums would lie in memory, for an index to find them. */
    QW_UNROLL
    for (int all = 0; all < 32; all++) {
        const int i = all / 16, j = all / 4 % 4, e = all % 4;
        const int row = qw_warp() / 2 * 32 + i * 16 + e / 2 * 8 + qw_lane() / 4;
        const int column = block.column + qw_warp() % 2 * 32 + j * 8 + qw_lane() % 4 * 2 + e % 2;
        if (row < block.rows && column < p.columns)
            qw_product_store(p, block.begin + row, column,
                             DUAL ? qw_silu(sum[i][j][e]) * sum_up[i][j][e] : sum[i][j][e]);
    }
}

#endif

/* ---- few: a warp per column ------------------------------------------------------------------------- */

enum { QW_FEW_THREADS = 256 };

/* 16 bytes of weights as float32. */
QW_DEVICE void qw_unpack(const uint4 &bits, float (&out)[8], qw_bf16)
{
    const uint32_t words[4] = {bits.x, bits.y, bits.z, bits.w};
    QW_UNROLL
    for (int i = 0; i < 4; i++) {
        out[2 * i] = qw_pair_low<qw_bf16>(words[i]);
        out[2 * i + 1] = qw_pair_high<qw_bf16>(words[i]);
    }
}

QW_DEVICE void qw_unpack(const uint4 &bits, float (&out)[8], qw_f16)
{
    const uint32_t words[4] = {bits.x, bits.y, bits.z, bits.w};
    QW_UNROLL
    for (int i = 0; i < 4; i++) {
        out[2 * i] = qw_pair_low<qw_f16>(words[i]);
        out[2 * i + 1] = qw_pair_high<qw_f16>(words[i]);
    }
}

QW_DEVICE void qw_unpack(const uint4 &bits, float (&out)[4], float)
{
    out[0] = qw_bits_float(bits.x);
    out[1] = qw_bits_float(bits.y);
    out[2] = qw_bits_float(bits.z);
    out[3] = qw_bits_float(bits.w);
}

/* The lane's part of the dot products of w with ROWS rows of x, x_row[r] null beyond the last. */
template <typename W, int ROWS>
QW_DEVICE void qw_dot_rows(float (&sum)[ROWS], const W *w, const float *const (&x)[ROWS], int depth,
                           bool aligned)
{
    enum { STEP = 16 / sizeof(W) };
    int k = 0;
    if (aligned)
        for (k = qw_lane() * STEP; k + STEP <= depth; k += QW_WARP * STEP) {
            float part[STEP];
            qw_unpack(qw_load_constant(reinterpret_cast<const uint4 *>(w + k)), part, W());
            QW_UNROLL
            for (int r = 0; r < ROWS; r++)
                if (x[r] != nullptr)
                    QW_UNROLL
            for (int i = 0; i < STEP; i += 4) {
                const float4 v = *reinterpret_cast<const float4 *>(x[r] + k + i);
                sum[r] += part[i] * v.x + part[i + 1] * v.y + part[i + 2] * v.z + part[i + 3] * v.w;
            }
        }
    const int tail = aligned ? depth / STEP * STEP : 0;
    for (k = tail + qw_lane(); k < depth; k += QW_WARP)
        for (int r = 0; r < ROWS; r++)
            if (x[r] != nullptr)
                sum[r] += qw_to_float(w[k]) * x[r][k];
}

template <typename W, bool DUAL, int ROWS>
static QW_KERNEL qw_product_few(qw_product p, const W *w, const W *up)
{
    const int column = static_cast<int>(blockIdx.x) * (qw_threads() / QW_WARP) + qw_warp();
    if (column >= p.columns)
        return; /* a whole warp, and nobody waits for it */
    const float *x[ROWS];
    for (int r = 0; r < ROWS; r++)
        x[r] = r < p.rows ? qw_product_x(p, r) : nullptr;
    float sum[ROWS] = {}, sum_up[ROWS] = {};
    qw_dot_rows<W, ROWS>(sum, w + column * p.w_stride, x, p.depth, p.aligned != 0);
    if (DUAL)
        qw_dot_rows<W, ROWS>(sum_up, up + column * p.w_stride, x, p.depth, p.aligned != 0);
    for (int r = 0; r < ROWS; r++) {
        const float total = qw_warp_sum(sum[r]), total_up = DUAL ? qw_warp_sum(sum_up[r]) : 0.0F;
        if (qw_lane() == 0 && r < p.rows)
            qw_product_store(p, r, column, DUAL ? qw_silu(total) * total_up : total);
    }
}

/* ---- launches --------------------------------------------------------------------------------------- */

/* Blocks of 64 x 64, `tiles` of them along the rows. */
template <typename W, bool DUAL>
qwen36_status qw_launch_tiles(qw_stream stream, const qw_product &p, const qw_groups &groups, unsigned tiles,
                              const W *w, const W *up)
{
    const dim3 grid(qw_blocks(p.columns, QW_TILE_COLUMNS), tiles);
    const size_t shared = static_cast<size_t>(qw_plan_product_shared(QW_PRODUCT_TILED, DUAL));
    return qw_launch(stream, qw_product_tiled<W, DUAL>, grid, QW_TILED_THREADS, shared, p, groups, w, up);
}

template <bool DUAL>
qwen36_status qw_launch_matrix(qw_stream stream, const qw_product &p, const qw_groups &groups, unsigned tiles,
                               const qw_bf16 *w, const qw_bf16 *up)
{
#if QW_WARP_WIDTH == 32
    const dim3 grid(qw_blocks(p.columns, QW_TILE_COLUMNS), tiles);
    const size_t shared = static_cast<size_t>(qw_plan_product_shared(QW_PRODUCT_MATRIX, DUAL));
    return qw_launch(stream, qw_product_matrix<DUAL>, grid, QW_MATRIX_THREADS, shared, p, groups, w, up);
#else
    (void)stream, (void)p, (void)groups, (void)tiles, (void)w, (void)up;
    return QWEN36_ERROR_DEVICE;
#endif
}

/* For many rows: the matrix row if it is wanted and in use (`bit`; W is BF16 then), else, and where the
 * device refuses it, the tiled one. */
template <typename W, bool DUAL>
qwen36_status qw_launch_many(qw_cuda *cuda, bool matrix, uint32_t bit, const qw_product &p,
                             const qw_groups &groups, unsigned tiles, const W *w, const W *up)
{
    qwen36_status status = QWEN36_ERROR_DEVICE;
    if (matrix && (cuda->profile.disabled & bit) == 0) {
        status = qw_launch_matrix<DUAL>(cuda->stream, p, groups, tiles, reinterpret_cast<const qw_bf16 *>(w),
                                        reinterpret_cast<const qw_bf16 *>(up));
        if (status == QWEN36_ERROR_DEVICE)
            qw_cuda_refused(cuda, bit);
    }
    if (status == QWEN36_ERROR_DEVICE)
        status = qw_launch_tiles<W, DUAL>(cuda->stream, p, groups, tiles, w, up);
    return status;
}

template <typename W, bool DUAL>
qwen36_status qw_launch_few(qw_stream stream, const qw_product &p, const W *w, const W *up)
{
    const dim3 grid(qw_blocks(p.columns, QW_FEW_THREADS / QW_WARP));
    if (p.rows == 1)
        return qw_launch(stream, qw_product_few<W, DUAL, 1>, grid, QW_FEW_THREADS, 0, p, w, up);
    if (p.rows <= 4)
        return qw_launch(stream, qw_product_few<W, DUAL, 4>, grid, QW_FEW_THREADS, 0, p, w, up);
    return qw_launch(stream, qw_product_few<W, DUAL, 8>, grid, QW_FEW_THREADS, 0, p, w, up);
}

#endif
