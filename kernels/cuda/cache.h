/* The KV cache of one layer on the device, as lib/backend.h lays it out (qw_kv_view), and its 8-bit rows. */
#ifndef QW_CUDA_CACHE_H
#define QW_CUDA_CACHE_H

#include "kernels/cuda/common.h"
#include "kernels/cuda/cuda.h"

struct qw_device_cache {
    char *base;
    int64_t block_stride; /* bytes */
    int32_t kv_heads, head_dim;
};

static inline qw_device_cache qw_cache_on_device(const qw_kv_view &cache, const qw_dims &dims)
{
    return {static_cast<char *>(cache.buffer->base) + cache.layer_offset, cache.block_stride, dims.kv_heads,
            dims.head_dim};
}

/* K (kind 0) or V (kind 1) of a block's 64 tokens, [64, hd] of one KV head. */
template <typename C>
QW_DEVICE C *qw_cache_rows(const qw_device_cache &c, int64_t block, int kind, int kv_head)
{
    C *begin = reinterpret_cast<C *>(c.base + block * c.block_stride);
    return begin + (int64_t{kind} * c.kv_heads + kv_head) * QW_KV_BLOCK * c.head_dim;
}

/* Their scales [64], behind the elements of all heads; 8-bit caches only. */
QW_DEVICE float *qw_cache_scales(const qw_device_cache &c, int64_t block, int kind, int kv_head)
{
    char *begin = c.base + block * c.block_stride + int64_t{2} * c.kv_heads * QW_KV_BLOCK * c.head_dim;
    return reinterpret_cast<float *>(begin) + (int64_t{kind} * c.kv_heads + kv_head) * QW_KV_BLOCK;
}

/* x / scale to nearest even; 0 where the scale is 0 or NaN. Only a scale below the normal numbers lets the
 * quotient leave the range. */
QW_DEVICE int8_t qw_to_int8(float x, float scale)
{
    return scale > 0 ? static_cast<int8_t>(rintf(fmaxf(-127.0F, fminf(127.0F, x / scale)))) : int8_t{0};
}

#endif
