#include "kernels/cpu/cpu.h"

enum { ITEM_ROWS = 16 };

typedef struct job {
    const qw_cpu *cpu;
    const qw_embed_args *args;
} job;

static void embed_item(void *argument, int64_t item, int32_t worker)
{
    (void)worker;
    const job *j = argument;
    const qw_view *table = &j->args->table;
    const int64_t row_bytes = table->stride[0] * qw_dtype_size(table->dtype);
    const int64_t end = QW_MIN(j->args->x.shape[0], (item + 1) * ITEM_ROWS);
    for (int64_t r = item * ITEM_ROWS; r < end; r++) {
        const char *from = (const char *)qw_view_data(table) + j->args->batch->ids[r] * row_bytes;
        j->cpu->kernels->widen[table->dtype](from, qw_view_row(&j->args->x, r), table->shape[1]);
    }
}

qwen36_status qw_cpu_embed(qw_backend *backend, const qw_embed_args *args)
{
    qw_cpu *cpu = qw_cpu_of(backend);
    job j = {cpu, args};
    qw_pool_run(cpu->pool, embed_item, &j, (args->x.shape[0] + ITEM_ROWS - 1) / ITEM_ROWS);
    return QWEN36_OK;
}
