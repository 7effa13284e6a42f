/* linear, mlp and head: products of all rows with one weight each (product.h). Those of linear may be a
 * library's (runtime.h). */
#include "kernels/cuda/product.h"

static bool aligned_16(const void *base, int64_t stride_bytes)
{
    return reinterpret_cast<uintptr_t>(base) % 16 == 0 && stride_bytes % 16 == 0;
}

static qw_product product_of(const qw_view &x, const qw_view &w, const qw_view &y)
{
    const int32_t size = qw_dtype_size(w.dtype);
    qw_product p = {};
    p.x = qw_data<const float>(x);
    p.y = qw_data<float>(y);
    p.x_stride = x.stride[0];
    p.y_stride = y.stride[0];
    p.w_stride = w.stride[0];
    p.rows = static_cast<int32_t>(x.shape[0]);
    p.depth = static_cast<int32_t>(w.shape[1]);
    p.columns = static_cast<int32_t>(w.shape[0]);
    p.aligned = aligned_16(p.x, p.x_stride * 4) && aligned_16(qw_data<const char>(w), p.w_stride * size);
    return p;
}

template <typename W, bool DUAL>
static qwen36_status issue(qw_cuda *cuda, const qw_product &p, const qw_view &w, const qw_view *up)
{
    const qw_product_shape shape = {
        p.rows, p.depth, p.columns, w.dtype, p.aligned, 0, cuda->config.batch_invariant};
    const int32_t row = qw_plan_product(&cuda->profile, &shape);
    const W *weight = qw_data<const W>(w), *second = DUAL ? qw_data<const W>(*up) : nullptr;
    const unsigned tiles = qw_blocks(p.rows, QW_TILE_ROWS);
    if (row == QW_PRODUCT_FEW)
        return qw_launch_few<W, DUAL>(cuda->stream, p, weight, second);
    const uint32_t bit = qw_plan_bit(QW_PLAN_PRODUCTS, QW_PRODUCT_MATRIX);
    return qw_launch_many<W, DUAL>(cuda, row == QW_PRODUCT_MATRIX, bit, p, {}, tiles, weight, second);
}

static qwen36_status multiply(qw_cuda *cuda, const qw_product &p, const qw_view &w)
{
    return qw_with_weight(w.dtype, [=](auto type) {
        typedef typename decltype(type)::element W;
        return issue<W, false>(cuda, p, w, nullptr);
    });
}

/* y = silu(x gate^T) * (x up^T), at once where the two weights lie alike, else one after the other. */
static qwen36_status multiply_dual(qw_cuda *cuda, const qw_product &p, const qw_view &gate, const qw_view &up)
{
    const int64_t up_bytes = up.stride[0] * qw_dtype_size(up.dtype);
    qw_product both = p;
    both.aligned = p.aligned && aligned_16(qw_data<const char>(up), up_bytes);
    if (up.dtype != gate.dtype || up.stride[0] != gate.stride[0]) {
        const qwen36_status status = multiply(cuda, p, gate);
        qw_product second = p;
        second.w_stride = up.stride[0];
        second.update = QW_UPDATE_GATE;
        second.aligned = aligned_16(p.x, p.x_stride * 4) && aligned_16(qw_data<const char>(up), up_bytes);
        return status != QWEN36_OK ? status : multiply(cuda, second, up);
    }
    return qw_with_weight(gate.dtype, [&](auto type) {
        typedef typename decltype(type)::element W;
        return issue<W, true>(cuda, both, gate, &up);
    });
}

/* ---- linear -------------------------------------------------------------------------------------------- */

/* x in the format of a library's weights: made for the first weight, used by all of that format. */
struct narrow_x {
    int32_t dtype; /* QW_BF16, QW_F16; QW_F32: not made */
    void *x;       /* [R,K] */
    float *scale;  /* [R]: what the product is multiplied by; F16 */
};

/* The power of two that brings a row's largest magnitude into [2^9, 2^10): far from the end of F16's range,
 * and what is 2^-23 of it still has all its bits. Within the range of float32, with its inverse. */
QW_DEVICE int narrow_shift(float most)
{
    const int exponent = static_cast<int>(qw_float_bits(most) >> 23) - 127;
    return exponent < 9 - 126 ? 126 : 9 - exponent;
}

QW_DEVICE float power_of_two(int exponent)
{
    return qw_bits_float(static_cast<uint32_t>(exponent + 127) << 23);
}

QW_DEVICE uint32_t narrow_pair(float low, float high, qw_bf16)
{
    return qw_pair_bf16(low, high);
}

QW_DEVICE uint32_t narrow_pair(float low, float high, qw_f16)
{
    return qw_to_f16(low).bits | static_cast<uint32_t>(qw_to_f16(high).bits) << 16;
}

/* A block per row; `depth` is a multiple of 8, rows are aligned to 16 bytes. BF16 has the range of float32
 * and no scale; to[r] = x[r] / scale[r] in F16. */
template <typename W>
static QW_KERNEL narrow_rows(const float *x, int64_t stride, int32_t depth, W *to, float *scale)
{
    const float *row = x + blockIdx.x * stride;
    float factor = 1;
    if (scale != nullptr) {
        float most = 0;
        for (int k = qw_thread(); k < depth; k += qw_threads())
            most = fmaxf(most, fabsf(row[k]));
        const int shift = narrow_shift(qw_block_max(most));
        factor = power_of_two(shift);
        if (qw_thread() == 0)
            scale[blockIdx.x] = power_of_two(-shift);
    }
    for (int k = 4 * qw_thread(); k < depth; k += 4 * qw_threads()) {
        const float4 v = *reinterpret_cast<const float4 *>(row + k);
        const uint2 pairs = {narrow_pair(v.x * factor, v.y * factor, W()),
                             narrow_pair(v.z * factor, v.w * factor, W())};
        *reinterpret_cast<uint2 *>(to + blockIdx.x * static_cast<int64_t>(depth) + k) = pairs;
    }
}

/* y[r] *= scale[r]: a block for 1024 columns of a row. */
enum { SCALED_COLUMNS = 1024 };
static QW_KERNEL scale_rows(float *y, int64_t stride, int32_t columns, const float *scale)
{
    const int begin = static_cast<int>(blockIdx.y) * SCALED_COLUMNS;
    const int end = columns - begin < SCALED_COLUMNS ? columns : begin + SCALED_COLUMNS;
    for (int c = begin + qw_thread(); c < end; c += qw_threads())
        y[blockIdx.x * stride + c] *= scale[blockIdx.x];
}

static qwen36_status make_narrow(const qw_cuda *cuda, const qw_product &p, int32_t dtype, narrow_x *narrow)
{
    const dim3 grid(static_cast<unsigned>(p.rows));
    if (narrow->dtype == dtype)
        return QWEN36_OK;
    narrow->dtype = QW_F32;
    const qwen36_status status =
        dtype == QW_BF16 ? qw_launch(cuda->stream, narrow_rows<qw_bf16>, grid, QW_FEW_THREADS, 0, p.x,
                                     p.x_stride, p.depth, static_cast<qw_bf16 *>(narrow->x), nullptr)
                         : qw_launch(cuda->stream, narrow_rows<qw_f16>, grid, QW_FEW_THREADS, 0, p.x,
                                     p.x_stride, p.depth, static_cast<qw_f16 *>(narrow->x), narrow->scale);
    if (status == QWEN36_OK)
        narrow->dtype = dtype;
    return status;
}

/* y = x w^T, with the row's power of two taken out of x before and put back after: exact but at the ends of
 * float32. */
static qwen36_status multiply_by_library(const qw_cuda *cuda, const qw_product &p, const qw_view &w,
                                         narrow_x *narrow)
{
    qwen36_status status = make_narrow(cuda, p, w.dtype, narrow);
    if (status != QWEN36_OK)
        return status;
    qw_blas_product product = {};
    product.x = narrow->x;
    product.x_stride = p.depth;
    product.w = qw_data<const void>(w);
    product.w_stride = p.w_stride;
    product.y = p.y;
    product.y_stride = p.y_stride;
    product.rows = p.rows;
    product.depth = p.depth;
    product.columns = p.columns;
    product.dtype = w.dtype;
    status = qw_blas_multiply(cuda->blas, cuda->stream, &product);
    if (status != QWEN36_OK || w.dtype != QW_F16)
        return status;
    const dim3 grid(static_cast<unsigned>(p.rows), qw_blocks(p.columns, SCALED_COLUMNS));
    return qw_launch(cuda->stream, scale_rows, grid, QW_FEW_THREADS, 0, p.y, p.y_stride, p.columns,
                     narrow->scale);
}

static uint64_t linear_scratch(unsigned char *base, int64_t rows, int64_t depth, narrow_x *narrow)
{
    qw_cuda_scratch scratch = {base, 0};
    narrow->dtype = QW_F32;
    narrow->x = scratch.take<uint16_t>(rows * depth);
    narrow->scale = scratch.take<float>(rows);
    return scratch.used;
}

/* The inputs of linear: the residual stream, and what attention and the delta rule give. */
uint64_t qw_cuda_linear_scratch_bytes(const qw_backend_config *config)
{
    const qw_dims *d = config->dims;
    const int64_t attention = int64_t{d->heads} * d->head_dim, delta = int64_t{d->lin_v_heads} * d->lin_v_dim;
    narrow_x narrow;
    return linear_scratch(nullptr, config->max_rows, QW_MAX(int64_t{d->hidden}, QW_MAX(attention, delta)),
                          &narrow);
}

/* One part: a refusal of the library is answered by a row of our own. It is of this shape, and says nothing
 * of others. */
static qwen36_status multiply_part(qw_cuda *cuda, const qw_product &p, const qw_view &w, narrow_x *narrow)
{
    const qw_product_shape shape = {
        p.rows, p.depth, p.columns, w.dtype, p.aligned, 1, cuda->config.batch_invariant};
    if (qw_plan_product(&cuda->profile, &shape) == QW_PRODUCT_LIBRARY) {
        const qwen36_status status = multiply_by_library(cuda, p, w, narrow);
        if (status != QWEN36_ERROR_DEVICE && status != QWEN36_ERROR_SYSTEM)
            return status;
        if (status == QWEN36_ERROR_SYSTEM) /* the bits of this shape change: no silent half-way */
            qw_cuda_refused(cuda, qw_plan_bit(QW_PLAN_PRODUCTS, QW_PRODUCT_LIBRARY));
        else
            cuda->refusals++;
    }
    return multiply(cuda, p, w);
}

qwen36_status qw_cuda_linear(qw_backend *backend, const qw_linear_args *args)
{
    qw_cuda *cuda = qw_cuda_of(backend);
    narrow_x narrow;
    if (linear_scratch(cuda->scratch, args->x.shape[0], args->x.shape[1], &narrow) > cuda->scratch_bytes)
        return QWEN36_ERROR_INTERNAL;
    qwen36_status status = QWEN36_OK;
    for (int32_t p = 0; p < args->parts && status == QWEN36_OK; p++)
        status = multiply_part(cuda, product_of(args->x, args->w[p], args->y[p]), args->w[p], &narrow);
    return status;
}

/* ---- mlp ----------------------------------------------------------------------------------------------- */

/* scale[r] = sigmoid(w x[r]): a block per row. */
template <typename W>
static QW_KERNEL gate_rows(const float *x, int64_t x_stride, const W *w, int32_t depth, float *scale)
{
    float sum = 0;
    for (int k = qw_thread(); k < depth; k += qw_threads())
        sum += qw_to_float(w[k]) * x[blockIdx.x * x_stride + k];
    sum = qw_block_sum(sum);
    if (qw_thread() == 0)
        scale[blockIdx.x] = qw_sigmoid(sum);
}

static qwen36_status issue_row_gate(const qw_cuda *cuda, const qw_mlp_args *args, float *scale)
{
    const qw_stream stream = cuda->stream;
    return qw_with_weight(args->row_gate.dtype, [=](auto type) {
        typedef typename decltype(type)::element W;
        return qw_launch(stream, gate_rows<W>, dim3(static_cast<unsigned>(args->x.shape[0])), QW_FEW_THREADS,
                         0, qw_data<const float>(args->x), args->x.stride[0],
                         qw_data<const W>(args->row_gate), static_cast<int32_t>(args->x.shape[1]), scale);
    });
}

/* Scratch: hidden [R,I], scale [R]. */
static uint64_t mlp_scratch(unsigned char *base, int64_t rows, int64_t width, float **hidden, float **scale)
{
    qw_cuda_scratch scratch = {base, 0};
    *hidden = scratch.take<float>(rows * ((width + 3) / 4 * 4));
    *scale = scratch.take<float>(rows);
    return scratch.used;
}

uint64_t qw_cuda_mlp_scratch_bytes(const qw_backend_config *config)
{
    float *hidden, *scale;
    const int32_t width = QW_MAX(config->dims->intermediate, config->dims->shared_size);
    return mlp_scratch(nullptr, config->max_rows, width, &hidden, &scale);
}

qwen36_status qw_cuda_mlp(qw_backend *backend, const qw_mlp_args *args)
{
    qw_cuda *cuda = qw_cuda_of(backend);
    const int64_t rows = args->x.shape[0], width = args->gate.shape[0], pitch = (width + 3) / 4 * 4;
    float *hidden, *scale;
    if (mlp_scratch(cuda->scratch, rows, width, &hidden, &scale) > cuda->scratch_bytes)
        return QWEN36_ERROR_INTERNAL;
    const qw_buffer buffer = {hidden, 0, QW_SPACE_DEVICE, 0};
    const qw_view h = {&buffer, 0, QW_F32, 2, {rows, width, 1}, {pitch, 1, 1}};
    qwen36_status status = multiply_dual(cuda, product_of(args->x, args->gate, h), args->gate, args->up);
    if (status == QWEN36_OK && qw_present(args->row_gate))
        status = issue_row_gate(cuda, args, scale);
    if (status != QWEN36_OK)
        return status;
    qw_product down = product_of(h, args->down, args->y);
    down.scale = qw_present(args->row_gate) ? scale : nullptr;
    down.update = args->accumulate ? QW_UPDATE_ADD : QW_UPDATE_SET;
    return multiply(cuda, down, args->down);
}

/* ---- head ---------------------------------------------------------------------------------------------- */

/* -infinity from column `live` on, in the rows written. */
static QW_KERNEL fill_dead(float *y, int64_t stride, const int32_t *row, int32_t live, int32_t columns)
{
    float *to = y + row[blockIdx.x] * stride;
    for (int c = live + qw_thread(); c < columns; c += qw_threads())
        to[c] = -QW_INFINITY;
}

uint64_t qw_cuda_head_scratch_bytes(const qw_backend_config *config)
{
    return 2 * (static_cast<uint64_t>(config->max_head_rows) * sizeof(int32_t) + QW_CUDA_ALIGNMENT);
}

qwen36_status qw_cuda_head(qw_backend *backend, const qw_head_args *args)
{
    qw_cuda *cuda = qw_cuda_of(backend);
    if (args->count > cuda->config.max_head_rows)
        return QWEN36_ERROR_INTERNAL;
    if (args->count == 0)
        return QWEN36_OK;
    qw_cuda_scratch scratch = {cuda->scratch, 0};
    int32_t *in = scratch.take<int32_t>(args->count), *out = scratch.take<int32_t>(args->count);
    qwen36_status status = qw_cuda_put_ints(cuda, in, args->in_row, args->count);
    if (status == QWEN36_OK)
        status = qw_cuda_put_ints(cuda, out, args->out_row, args->count);
    if (status != QWEN36_OK)
        return status;
    qw_product p = product_of(args->x, args->w, args->logits);
    p.x_row = in;
    p.y_row = out;
    p.rows = args->count;
    p.columns = args->live;
    status = multiply(cuda, p, args->w);
    const int32_t columns = static_cast<int32_t>(args->logits.shape[1]);
    if (status != QWEN36_OK || args->live == columns)
        return status;
    return qw_launch(cuda->stream, fill_dead, dim3(static_cast<unsigned>(args->count)), QW_FEW_THREADS, 0,
                     p.y, p.y_stride, out, args->live, columns);
}
