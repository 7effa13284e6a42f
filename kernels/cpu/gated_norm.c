/* gated_norm: RMS norm of each value head, times silu(z). An item owns a row. */
#include "kernels/cpu/cpu.h"

typedef struct gated_norm_task {
    const qw_gated_norm_args *args;
    const qw_cpu_kernels *kernels;
} gated_norm_task;

static void gated_norm_row(void *argument, int64_t row, int32_t worker)
{
    (void)worker;
    const gated_norm_task *task = argument;
    const qw_gated_norm_args *a = task->args;
    const int64_t dv = a->weight.shape[0];
    const float *o = qw_view_row(&a->o, row), *z = qw_view_row(&a->z, row);
    float *y = qw_view_row(&a->y, row);
    for (int64_t i = 0; i + dv <= a->o.shape[1]; i += dv)
        task->kernels->gated_norm_head(o + i, z + i, qw_view_data(&a->weight), a->weight.dtype, y + i, dv,
                                       a->eps);
}

uint64_t qw_cpu_gated_norm_scratch_bytes(const qw_backend_config *config)
{
    (void)config;
    return 0;
}

qwen36_status qw_cpu_gated_norm(qw_backend *backend, const qw_gated_norm_args *args)
{
    qw_cpu *cpu = qw_cpu_of(backend);
    gated_norm_task task = {args, cpu->kernels};
    qw_pool_run(cpu->pool, gated_norm_row, &task, args->o.shape[0]);
    return QWEN36_OK;
}
