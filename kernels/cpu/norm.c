/* norm: RMS norm of rows with the residual add before it. An item owns a few rows. */
#include "kernels/cpu/cpu.h"

enum { NORM_ROWS = 4 };

typedef struct norm_task {
    const qw_norm_args *args;
    const qw_cpu_kernels *kernels;
} norm_task;

static void norm_rows(void *argument, int64_t item, int32_t worker)
{
    (void)worker;
    const norm_task *task = argument;
    const qw_norm_args *a = task->args;
    const int64_t end = QW_MIN((item + 1) * NORM_ROWS, a->x.shape[0]);
    for (int64_t row = item * NORM_ROWS; row < end; row++) {
        const float *add = a->add.buffer != NULL ? qw_view_row(&a->add, row) : NULL;
        float *y = a->y.buffer != NULL ? qw_view_row(&a->y, row) : NULL;
        const void *weight = y != NULL ? qw_view_data(&a->weight) : NULL;
        task->kernels->norm_row(qw_view_row(&a->x, row), add, weight, a->weight.dtype, y, a->x.shape[1],
                                a->eps);
    }
}

uint64_t qw_cpu_norm_scratch_bytes(const qw_backend_config *config)
{
    (void)config;
    return 0;
}

qwen36_status qw_cpu_norm(qw_backend *backend, const qw_norm_args *args)
{
    qw_cpu *cpu = qw_cpu_of(backend);
    norm_task task = {args, cpu->kernels};
    qw_pool_run(cpu->pool, norm_rows, &task, (args->x.shape[0] + NORM_ROWS - 1) / NORM_ROWS);
    return QWEN36_OK;
}
