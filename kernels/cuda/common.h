/* Device functions that several kernels share: sums over warps and blocks, functions of one number. */
#ifndef QW_CUDA_COMMON_H
#define QW_CUDA_COMMON_H

#include "kernels/cuda/device.h"

#include <math.h>

#define QW_INFINITY qw_bits_float(0x7F800000)

QW_DEVICE int qw_thread()
{
    return static_cast<int>(threadIdx.x);
}

QW_DEVICE int qw_threads()
{
    return static_cast<int>(blockDim.x);
}

QW_DEVICE int qw_warp()
{
    return static_cast<int>(threadIdx.x) / QW_WARP;
}

/* The sum over a warp, in every lane; a fixed tree. */
template <typename T> QW_DEVICE T qw_warp_sum(T value)
{
    for (int mask = QW_WARP / 2; mask > 0; mask /= 2)
        value += qw_shuffle_xor(QW_ALL_LANES, value, mask);
    return value;
}

QW_DEVICE float qw_warp_max(float value)
{
    for (int mask = QW_WARP / 2; mask > 0; mask /= 2)
        value = fmaxf(value, qw_shuffle_xor(QW_ALL_LANES, value, mask));
    return value;
}

/* The sum over the block, in every thread, in a fixed order; the block is a whole number of warps. */
template <typename T> QW_DEVICE T qw_block_sum(T value)
{
    QW_SHARED(T, parts, 1024 / QW_WARP);
    value = qw_warp_sum(value);
    qw_block_sync(); /* an earlier sum has been read */
    if (qw_lane() == 0)
        parts[qw_warp()] = value;
    qw_block_sync();
    T total = 0;
    for (int w = 0; w < qw_threads() / QW_WARP; w++)
        total += static_cast<T>(parts[w]);
    return total;
}

QW_DEVICE float qw_block_max(float value)
{
    QW_SHARED(float, parts, 1024 / QW_WARP);
    value = qw_warp_max(value);
    qw_block_sync();
    if (qw_lane() == 0)
        parts[qw_warp()] = value;
    qw_block_sync();
    float most = -QW_INFINITY;
    for (int w = 0; w < qw_threads() / QW_WARP; w++)
        most = fmaxf(most, parts[w]);
    return most;
}

QW_DEVICE float qw_sigmoid(float x)
{
    return 1.0F / (1.0F + expf(-x));
}

QW_DEVICE float qw_silu(float x)
{
    return x / (1.0F + expf(-x));
}

QW_DEVICE float qw_softplus(float x)
{
    return x > 20.0F ? x : log1pf(expf(x));
}

#endif
