/* conv: causal depthwise convolution with SiLU. An item owns QW_CONV_CHANNELS channels of a segment. */
#include "kernels/cpu/cpu.h"

typedef struct conv_task {
    const qw_conv_args *args;
    const qw_cpu_kernels *kernels;
    float *taps; /* per worker [width][QW_CONV_CHANNELS] */
    int64_t channels, width, parts;
} conv_task;

static float *state_slot(const qw_state_view *state, int64_t slot)
{
    return (float *)((char *)state->buffer->base + state->layer_offset + slot * state->slot_stride);
}

static void conv_item(void *argument, int64_t item, int32_t worker)
{
    const conv_task *task = argument;
    const qw_conv_args *a = task->args;
    const qw_segment *segment = &a->batch->segment[item / task->parts];
    const int64_t first = item % task->parts * QW_CONV_CHANNELS;
    qw_conv_range range = {
        .u = qw_view_row(&a->u, segment->row_begin) + first,
        .c = qw_view_row(&a->c, segment->row_begin) + first,
        .u_stride = a->u.stride[0],
        .c_stride = a->c.stride[0],
        .rows = segment->row_count,
        .before = segment->state_read < 0 ? NULL : state_slot(&a->state, segment->state_read) + first,
        .before_stride = task->channels,
        .weight =
            (const char *)qw_view_data(&a->weight) + first * task->width * qw_dtype_size(a->weight.dtype),
        .weight_dtype = a->weight.dtype,
        .channels = QW_MIN(QW_CONV_CHANNELS, task->channels - first),
        .width = task->width,
    };
    task->kernels->conv_rows(&range, task->taps + worker * task->width * QW_CONV_CHANNELS);
    for (int32_t w = 0; w < segment->write_count; w++) {
        const qw_state_write *write = &a->batch->state_write[segment->write_begin + w];
        task->kernels->conv_store(&range, write->row - segment->row_begin,
                                  state_slot(&a->state, write->slot) + first);
    }
}

uint64_t qw_cpu_conv_scratch_bytes(const qw_backend_config *config)
{
    return (uint64_t)config->threads * (uint64_t)config->dims->conv_width * QW_CONV_CHANNELS * sizeof(float);
}

qwen36_status qw_cpu_conv(qw_backend *backend, const qw_conv_args *args)
{
    qw_cpu *cpu = qw_cpu_of(backend);
    qw_scratch scratch = qw_scratch_begin(cpu);
    const int64_t channels = args->u.shape[1];
    conv_task task = {args,     cpu->kernels,          NULL,
                      channels, cpu->dims->conv_width, (channels + QW_CONV_CHANNELS - 1) / QW_CONV_CHANNELS};
    task.taps = qw_scratch_take(&scratch, qw_cpu_conv_scratch_bytes(&cpu->config));
    if (task.taps == NULL || task.width > QW_CONV_WIDTH)
        return QWEN36_ERROR_INTERNAL;
    qw_pool_run(cpu->pool, conv_item, &task, args->batch->segments * task.parts);
    return QWEN36_OK;
}
