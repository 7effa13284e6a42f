/* delta: the gated delta rule. An item owns one value head of a segment, all its rows in order. */
#include "kernels/cpu/cpu.h"

typedef struct delta_task {
    const qw_delta_args *args;
    const qw_cpu *cpu;
    float *work; /* per worker `stride` floats: see delta_head */
    int64_t stride;
} delta_task;

/* Element i of a vector of weights. */
static float element_of(const qw_cpu_kernels *kernels, const qw_view *view, int64_t i)
{
    float value;
    kernels->widen[view->dtype]((const char *)qw_view_data(view) + i * qw_dtype_size(view->dtype), &value, 1);
    return value;
}

static void delta_item(void *argument, int64_t item, int32_t worker)
{
    const delta_task *task = argument;
    const qw_delta_args *a = task->args;
    const qw_dims *dims = task->cpu->dims;
    const qw_segment *segment = &a->batch->segment[item / dims->lin_v_heads];
    const int64_t head = item % dims->lin_v_heads, key_head = head / (dims->lin_v_heads / dims->lin_k_heads);
    const int64_t nk = dims->lin_k_heads, dk = dims->lin_k_dim, dv = dims->lin_v_dim;
    const float *c = qw_view_row(&a->c, segment->row_begin);
    char *state = (char *)a->state.buffer->base + a->state.layer_offset + head * dk * dv * 4;
    const qw_delta_head work = {
        .q = c + key_head * dk,
        .k = c + (nk + key_head) * dk,
        .v = c + 2 * nk * dk + head * dv,
        .a = qw_view_row(&a->a, segment->row_begin) + head,
        .b = qw_view_row(&a->b, segment->row_begin) + head,
        .o = qw_view_row(&a->o, segment->row_begin) + head * dv,
        .c_stride = a->c.stride[0],
        .a_stride = a->a.stride[0],
        .b_stride = a->b.stride[0],
        .o_stride = a->o.stride[0],
        .rows = segment->row_count,
        .a_log = element_of(task->cpu->kernels, &a->a_log, head),
        .dt_bias = element_of(task->cpu->kernels, &a->dt_bias, head),
        .dk = dk,
        .dv = dv,
        .state = segment->state_read < 0
                     ? NULL
                     : (const float *)(state + segment->state_read * a->state.slot_stride),
        .state_base = state,
        .slot_stride = a->state.slot_stride,
        .write = a->batch->state_write + segment->write_begin,
        .writes = segment->write_count,
        .first_row = segment->row_begin,
    };
    task->cpu->kernels->delta_head(&work, task->work + worker * task->stride);
}

static int64_t vectors_of(int64_t n)
{
    return (n + 15) / 16 * 16;
}

static int64_t worker_floats(const qw_dims *dims)
{
    return 2 * QW_DELTA_CHUNK * vectors_of(dims->lin_k_dim) + dims->lin_k_dim * vectors_of(dims->lin_v_dim);
}

uint64_t qw_cpu_delta_scratch_bytes(const qw_backend_config *config)
{
    return (uint64_t)config->threads * (uint64_t)worker_floats(config->dims) * sizeof(float);
}

qwen36_status qw_cpu_delta(qw_backend *backend, const qw_delta_args *args)
{
    qw_cpu *cpu = qw_cpu_of(backend);
    qw_scratch scratch = qw_scratch_begin(cpu);
    delta_task task = {args, cpu, NULL, worker_floats(cpu->dims)};
    task.work = qw_scratch_take(&scratch, qw_cpu_delta_scratch_bytes(&cpu->config));
    if (task.work == NULL)
        return QWEN36_ERROR_INTERNAL;
    qw_pool_run(cpu->pool, delta_item, &task, args->batch->segments * cpu->dims->lin_v_heads);
    return QWEN36_OK;
}
