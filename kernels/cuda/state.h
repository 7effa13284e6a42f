/* The states of a linear layer on the device, and where a segment's stored states go. */
#ifndef QW_CUDA_STATE_H
#define QW_CUDA_STATE_H

#include "kernels/cuda/common.h"
#include "kernels/cuda/cuda.h"

struct qw_device_state {
    char *base;
    int64_t slot_stride; /* bytes */
};

static inline qw_device_state qw_state_on_device(const qw_state_view &state)
{
    return {static_cast<char *>(state.buffer->base) + state.layer_offset, state.slot_stride};
}

QW_DEVICE float *qw_slot(const qw_device_state &state, int32_t slot)
{
    return reinterpret_cast<float *>(state.base + slot * state.slot_stride);
}

#endif
