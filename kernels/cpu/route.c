/* route: the router's choice of experts. An item owns a few rows. */
#include "kernels/cpu/cpu.h"

enum { ROUTE_ROWS = 4 };

typedef struct route_task {
    const qw_route_args *args;
    const qw_cpu_kernels *kernels;
} route_task;

static void route_rows(void *argument, int64_t item, int32_t worker)
{
    (void)worker;
    const route_task *task = argument;
    const qw_route_args *a = task->args;
    const int64_t end = QW_MIN((item + 1) * ROUTE_ROWS, a->logits.shape[0]);
    for (int64_t row = item * ROUTE_ROWS; row < end; row++)
        task->kernels->route_row(qw_view_row(&a->logits, row), a->logits.shape[1], a->ids.shape[1],
                                 qw_view_row_i32(&a->ids, row), qw_view_row(&a->weights, row));
}

uint64_t qw_cpu_route_scratch_bytes(const qw_backend_config *config)
{
    (void)config;
    return 0;
}

qwen36_status qw_cpu_route(qw_backend *backend, const qw_route_args *args)
{
    qw_cpu *cpu = qw_cpu_of(backend);
    route_task task = {args, cpu->kernels};
    qw_pool_run(cpu->pool, route_rows, &task, (args->logits.shape[0] + ROUTE_ROWS - 1) / ROUTE_ROWS);
    return QWEN36_OK;
}
