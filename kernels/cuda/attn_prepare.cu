/* attn_prepare: per head q and k are normalised, their first rotary_dim dims rotated, k and v stored in the
 * cache, there each row by itself. A block per row and head: first the query heads, then the KV heads. */
#include "kernels/cuda/cache.h"

#include <string.h>

enum { PREPARE_THREADS = 128, MAX_HALF = 256 };

/* The rotation travels with the launch. */
struct rotation {
    float inv_freq[MAX_HALF];
    uint8_t axis[MAX_HALF];
    int32_t half;
    float scale;
};

struct prepare_args {
    const float *qg, *k, *v;
    float *q;
    int64_t qg_stride, k_stride, v_stride, q_stride;
    int32_t rows, heads, kv_heads, head_dim;
    float eps;
    const int32_t *positions, *kv_index;
    qw_device_cache cache;
};

static QW_DEVICE float to_cached(float value, float)
{
    return value;
}

static QW_DEVICE qw_bf16 to_cached(float value, qw_bf16)
{
    return qw_to_bf16(value);
}

/* x(d) for every d of a row into the cache, whose type the last argument names; `token` within its block. */
template <typename C, typename F>
static QW_DEVICE void store_row(const prepare_args &a, int64_t block, int kind, int kv_head, int token, F x,
                                C)
{
    C *to = qw_cache_rows<C>(a.cache, block, kind, kv_head) + token * a.head_dim;
    for (int d = qw_thread(); d < a.head_dim; d += PREPARE_THREADS)
        to[d] = to_cached(x(d), C());
}

/* max |x| / 127, NaN if an element is not finite: no maximum would show a NaN. */
template <typename F> static QW_DEVICE float row_scale(int count, F x)
{
    float largest = 0;
    int broken = 0;
    for (int d = qw_thread(); d < count; d += PREPARE_THREADS) {
        largest = fmaxf(largest, fabsf(x(d)));
        broken |= !(fabsf(x(d)) < QW_INFINITY);
    }
    largest = qw_block_max(largest);
    return qw_block_sync_or(broken) ? qw_bits_float(0x7FC00000) : largest / 127.0F;
}

template <typename F>
static QW_DEVICE void store_row(const prepare_args &a, int64_t block, int kind, int kv_head, int token, F x,
                                int8_t)
{
    const float scale = row_scale(a.head_dim, x);
    int8_t *to = qw_cache_rows<int8_t>(a.cache, block, kind, kv_head) + token * a.head_dim;
    for (int d = qw_thread(); d < a.head_dim; d += PREPARE_THREADS)
        to[d] = qw_to_int8(x(d), scale);
    if (qw_thread() == 0)
        qw_cache_scales(a.cache, block, kind, kv_head)[token] = scale;
}

/* x[d] = x[d] * (mean(x^2) + eps)^(-1/2) * (1 + weight[d]), then the pairs (j, j + half) turn. */
template <typename W>
static QW_DEVICE void normalise_and_rotate(qw_shared<float> x, const float *from, const W *weight,
                                           const prepare_args &a, const rotation &turn)
{
    float squares = 0;
    for (int d = qw_thread(); d < a.head_dim; d += PREPARE_THREADS)
        squares += from[d] * from[d];
    const float scale = 1.0F / sqrtf(qw_block_sum(squares) / static_cast<float>(a.head_dim) + a.eps);
    for (int d = qw_thread(); d < a.head_dim; d += PREPARE_THREADS)
        x[d] = from[d] * scale * (1.0F + qw_to_float(weight[d]));
    qw_block_sync();
    for (int j = qw_thread(); j < turn.half; j += PREPARE_THREADS) {
        const int position = a.positions[turn.axis[j] * a.rows + static_cast<int>(blockIdx.x)];
        const float angle = static_cast<float>(position) * turn.inv_freq[j];
        const float c = cosf(angle) * turn.scale, s = sinf(angle) * turn.scale;
        const float low = x[j], high = x[j + turn.half];
        x[j] = low * c - high * s;
        x[j + turn.half] = high * c + low * s;
    }
    qw_block_sync();
}

template <typename C, typename W>
static QW_KERNEL prepare_heads(prepare_args a, rotation turn, const W *q_norm, const W *k_norm)
{
    qw_shared_arena arena;
    const qw_shared<float> x = arena.take<float>(a.head_dim);
    const int row = static_cast<int>(blockIdx.x), head = static_cast<int>(blockIdx.y), hd = a.head_dim;
    if (head < a.heads) {
        normalise_and_rotate(x, a.qg + row * a.qg_stride + head * 2 * hd, q_norm, a, turn);
        for (int d = qw_thread(); d < hd; d += PREPARE_THREADS)
            a.q[row * a.q_stride + head * hd + d] = x[d];
        return;
    }
    const int kv = head - a.heads, index = a.kv_index[row], token = index % QW_KV_BLOCK;
    normalise_and_rotate(x, a.k + row * a.k_stride + kv * hd, k_norm, a, turn);
    auto key = [&](int d) { return static_cast<float>(x[d]); };
    auto value = [&](int d) { return a.v[row * a.v_stride + kv * hd + d]; };
    store_row(a, index / QW_KV_BLOCK, 0, kv, token, key, C());
    store_row(a, index / QW_KV_BLOCK, 1, kv, token, value, C());
}

template <typename C>
static qwen36_status issue(const qw_cuda *cuda, const qw_attn_prepare_args *args, const prepare_args &a,
                           const rotation &turn)
{
    const dim3 grid(static_cast<unsigned>(a.rows), static_cast<unsigned>(a.heads + a.kv_heads));
    if (args->q_norm.dtype != args->k_norm.dtype)
        return QWEN36_ERROR_INTERNAL;
    return qw_with_weight(args->q_norm.dtype, [&](auto type) {
        typedef typename decltype(type)::element W;
        return qw_launch(cuda->stream, prepare_heads<C, W>, grid, PREPARE_THREADS,
                         static_cast<size_t>(a.head_dim) * 4 + 16, a, turn, qw_data<const W>(args->q_norm),
                         qw_data<const W>(args->k_norm));
    });
}

qwen36_status qw_cuda_attn_prepare(qw_backend *backend, const qw_attn_prepare_args *args)
{
    const qw_cuda *cuda = qw_cuda_of(backend);
    const qw_dims *d = &cuda->dims;
    if (d->rotary_dim / 2 > MAX_HALF)
        return QWEN36_ERROR_INTERNAL;
    rotation turn = {};
    turn.half = d->rotary_dim / 2;
    turn.scale = args->rope_scale;
    memcpy(turn.inv_freq, args->inv_freq, static_cast<size_t>(turn.half) * sizeof *args->inv_freq);
    memcpy(turn.axis, args->axis, static_cast<size_t>(turn.half));
    prepare_args a = {};
    a.qg = qw_data<const float>(args->qg);
    a.k = qw_data<const float>(args->k);
    a.v = qw_data<const float>(args->v);
    a.q = qw_data<float>(args->q);
    a.qg_stride = args->qg.stride[0];
    a.k_stride = args->k.stride[0];
    a.v_stride = args->v.stride[0];
    a.q_stride = args->q.stride[0];
    a.rows = args->batch->rows;
    a.heads = d->heads;
    a.kv_heads = d->kv_heads;
    a.head_dim = d->head_dim;
    a.eps = args->eps;
    a.positions = qw_on_device(args->batch, args->batch->positions);
    a.kv_index = qw_on_device(args->batch, args->batch->kv_index);
    a.cache = qw_cache_on_device(args->cache, *d);
    switch (args->cache.dtype) {
    case QW_BF16:
        return issue<qw_bf16>(cuda, args, a, turn);
    case QW_I8:
        return issue<int8_t>(cuda, args, a, turn);
    default:
        return issue<float>(cuda, args, a, turn);
    }
}
