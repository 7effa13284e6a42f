/* Operations on single rows, one block each: embedding, RMS norm, gated RMS norm. Portable: one tier. */
#include "kernels/cuda/common.h"
#include "kernels/cuda/cuda.h"

enum { ROW_THREADS = 256, HEAD_THREADS = 128 };

/* ---- embed: x[r] = table[ids[r]] ---------------------------------------------------------------------- */

template <typename W>
static QW_KERNEL embed_rows(const int32_t *ids, const W *table, int64_t table_stride, float *x,
                            int64_t x_stride, int32_t width)
{
    const W *from = table + ids[blockIdx.x] * table_stride;
    float *to = x + blockIdx.x * x_stride;
    for (int i = qw_thread(); i < width; i += qw_threads())
        to[i] = qw_to_float(from[i]);
}

qwen36_status qw_cuda_embed(qw_backend *backend, const qw_embed_args *args)
{
    const qw_stream stream = qw_cuda_of(backend)->stream;
    return qw_with_weight(args->table.dtype, [=](auto type) {
        typedef typename decltype(type)::element W;
        return qw_launch(stream, embed_rows<W>, dim3(static_cast<unsigned>(args->batch->rows)), ROW_THREADS,
                         0, qw_on_device(args->batch, args->batch->ids), qw_data<const W>(args->table),
                         args->table.stride[0], qw_data<float>(args->x), args->x.stride[0],
                         static_cast<int32_t>(args->table.shape[1]));
    });
}

/* ---- norm: x += add; y = x * (mean(x^2) + eps)^(-1/2) * (1 + weight) ----------------------------------- */

struct norm_rows_args {
    float *x;
    const float *add; /* or null */
    float *y;         /* or null */
    int64_t x_stride, add_stride, y_stride;
    int32_t width;
    float eps;
};

/* A thread meets the same columns in both passes, so what it added it reads back itself. */
template <typename W> static QW_KERNEL norm_rows(norm_rows_args a, const W *weight)
{
    float *x = a.x + blockIdx.x * a.x_stride;
    float squares = 0;
    for (int i = qw_thread(); i < a.width; i += qw_threads()) {
        float value = x[i];
        if (a.add != nullptr)
            x[i] = value += a.add[blockIdx.x * a.add_stride + i];
        squares += value * value;
    }
    if (a.y == nullptr)
        return;
    const float scale = 1.0F / sqrtf(qw_block_sum(squares) / static_cast<float>(a.width) + a.eps);
    float *y = a.y + blockIdx.x * a.y_stride;
    for (int i = qw_thread(); i < a.width; i += qw_threads())
        y[i] = x[i] * scale * (1.0F + qw_to_float(weight[i]));
}

qwen36_status qw_cuda_norm(qw_backend *backend, const qw_norm_args *args)
{
    const qw_stream stream = qw_cuda_of(backend)->stream;
    const bool add = qw_present(args->add), out = qw_present(args->y);
    const norm_rows_args a = {qw_data<float>(args->x),
                              add ? qw_data<const float>(args->add) : nullptr,
                              out ? qw_data<float>(args->y) : nullptr,
                              args->x.stride[0],
                              add ? args->add.stride[0] : 0,
                              out ? args->y.stride[0] : 0,
                              static_cast<int32_t>(args->x.shape[1]),
                              args->eps};
    return qw_with_weight(args->weight.dtype, [=](auto type) {
        typedef typename decltype(type)::element W;
        return qw_launch(stream, norm_rows<W>, dim3(static_cast<unsigned>(args->x.shape[0])), ROW_THREADS, 0,
                         a, out ? qw_data<const W>(args->weight) : nullptr);
    });
}

/* ---- gated_norm: y = weight * o * (mean(o^2) + eps)^(-1/2) * silu(z), a block per row and head ------ */

struct gated_norm_args {
    const float *o, *z;
    float *y; /* may be o */
    int64_t o_stride, z_stride, y_stride;
    int32_t width; /* of a head */
    float eps;
};

template <typename W> static QW_KERNEL gated_norm_heads(gated_norm_args a, const W *weight)
{
    const int begin = static_cast<int>(blockIdx.y) * a.width;
    const float *o = a.o + blockIdx.x * a.o_stride + begin, *z = a.z + blockIdx.x * a.z_stride + begin;
    float *y = a.y + blockIdx.x * a.y_stride + begin;
    float squares = 0;
    for (int i = qw_thread(); i < a.width; i += qw_threads())
        squares += o[i] * o[i];
    const float scale = 1.0F / sqrtf(qw_block_sum(squares) / static_cast<float>(a.width) + a.eps);
    for (int i = qw_thread(); i < a.width; i += qw_threads())
        y[i] = qw_to_float(weight[i]) * (o[i] * scale) * qw_silu(z[i]);
}

qwen36_status qw_cuda_gated_norm(qw_backend *backend, const qw_gated_norm_args *args)
{
    const qw_stream stream = qw_cuda_of(backend)->stream;
    const int64_t width = args->weight.shape[0];
    const gated_norm_args a = {qw_data<const float>(args->o),
                               qw_data<const float>(args->z),
                               qw_data<float>(args->y),
                               args->o.stride[0],
                               args->z.stride[0],
                               args->y.stride[0],
                               static_cast<int32_t>(width),
                               args->eps};
    const dim3 grid(static_cast<unsigned>(args->o.shape[0]), static_cast<unsigned>(args->o.shape[1] / width));
    return qw_with_weight(args->weight.dtype, [=](auto type) {
        typedef typename decltype(type)::element W;
        return qw_launch(stream, gated_norm_heads<W>, grid, HEAD_THREADS, 0, a,
                         qw_data<const W>(args->weight));
    });
}
