/* y[p] = x w[p]^T. All parts share the rounding of x (FAST) and one loop over the pool. */
#include "kernels/cpu/matrix.h"

typedef struct job {
    const qw_cpu *cpu;
    const qw_linear_args *args;
    const qw_rows *x;
    int64_t first_row; /* of the slab */
    qw_matrix_cut cut[QW_LINEAR_PARTS];
} job;

static void linear_item(void *argument, int64_t item, int32_t worker)
{
    (void)worker;
    const job *j = argument;
    int32_t p = 0;
    while (item >= qw_matrix_cut_items(&j->cut[p]))
        item -= qw_matrix_cut_items(&j->cut[p++]);
    const qw_view *y = &j->args->y[p];
    qw_matrix_tile tile = {.w = &j->args->w[p], .x = j->x};
    qw_matrix_cut_item(&j->cut[p], item, &tile);
    tile.next = qw_matrix_next(tile.w, &j->cut[p], &tile);
    float *to = qw_view_row(y, j->first_row + tile.row) + tile.column;
    qw_matrix_product(j->cpu, &tile, to, y->stride[0]);
}

static void linear_slab(qw_cpu *cpu, const qw_linear_args *args, const qw_rows *x, int64_t first,
                        int64_t count)
{
    job j = {cpu, args, x, first, {{0}}};
    int64_t items = 0;
    for (int32_t p = 0; p < args->parts; p++) {
        j.cut[p] = qw_matrix_cut_for(&args->w[p], count);
        items += qw_matrix_cut_items(&j.cut[p]);
    }
    qw_pool_run(cpu->pool, linear_item, &j, items);
}

qwen36_status qw_cpu_linear(qw_backend *backend, const qw_linear_args *args)
{
    qw_cpu *cpu = qw_cpu_of(backend);
    const int64_t rows = args->x.shape[0], k = args->x.shape[1];
    bool narrow = false;
    for (int32_t p = 0; p < args->parts; p++)
        narrow = narrow || qw_matrix_is_narrow(cpu, args->w[p].dtype);
    qw_scratch scratch = qw_scratch_begin(cpu);
    qw_rows x = {.wide_stride = args->x.stride[0] * 4, .narrow_stride = qw_matrix_stride(k, 2)};
    if (narrow) {
        x.narrow = qw_scratch_take(&scratch, (uint64_t)(QW_MIN(rows, QW_SLAB_ROWS) * x.narrow_stride));
        if (x.narrow == NULL)
            return QWEN36_ERROR_INTERNAL;
    }
    for (int64_t first = 0; first < rows; first += QW_SLAB_ROWS) {
        const int64_t count = QW_MIN(rows - first, QW_SLAB_ROWS);
        x.wide = (const char *)qw_view_row(&args->x, first);
        if (narrow)
            qw_matrix_narrow_rows(cpu, &x, k, count);
        linear_slab(cpu, args, &x, first, count);
    }
    return QWEN36_OK;
}

/* The widest input of a linear layer: hidden, or the heads together. */
static int64_t widest_input(const qw_dims *d)
{
    const int64_t attention = (int64_t)d->heads * d->head_dim;
    const int64_t delta = (int64_t)d->lin_v_heads * d->lin_v_dim;
    return QW_MAX(d->hidden, QW_MAX(attention, delta));
}

uint64_t qw_cpu_linear_scratch_bytes(const qw_backend_config *config)
{
    const int64_t rows = QW_MIN(config->max_rows, QW_SLAB_ROWS);
    return qw_scratch_round((uint64_t)(rows * qw_matrix_stride(widest_input(config->dims), 2)));
}
