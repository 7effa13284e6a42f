/* m = down (silu(gate x) * (up x)), times sigmoid(row_gate . x) where there is one; stored in y or added to
 * it. Two loops over the pool: the hidden layer h with the row gates, then the down product. */
#include "kernels/cpu/matrix.h"

enum { BLOCK = QW_BLOCK_ROWS * QW_BLOCK_COLUMNS };

typedef struct job {
    const qw_cpu *cpu;
    const qw_mlp_args *args;
    int64_t first_row; /* of the slab */
    qw_rows x, h;
    char *h_data;
    int64_t h_stride; /* bytes */
    bool narrow_h;
    float *row_gate; /* [slab rows] row_gate . x */
    float *buffer;   /* [threads][2 * BLOCK] */
    qw_matrix_cut hidden, down, gate;
} job;

static void hidden_item(void *argument, int64_t item, int32_t worker)
{
    const job *j = argument;
    qw_matrix_tile tile = {.w = &j->args->row_gate, .x = &j->x};
    const int64_t hidden_items = qw_matrix_cut_items(&j->hidden);
    if (item >= hidden_items) {
        qw_matrix_cut_item(&j->gate, item - hidden_items, &tile);
        qw_matrix_product(j->cpu, &tile, j->row_gate + tile.row, 1);
        return;
    }
    qw_matrix_cut_item(&j->hidden, item, &tile);
    tile.next = qw_matrix_next(&j->args->gate, &j->hidden, &tile);
    qw_matrix_hidden(j->cpu, &j->args->gate, &j->args->up, &tile, j->h_data + tile.row * j->h_stride,
                     j->h_stride, j->narrow_h, j->buffer + (int64_t)worker * 2 * BLOCK);
}

static void down_item(void *argument, int64_t item, int32_t worker)
{
    const job *j = argument;
    const qw_mlp_args *args = j->args;
    qw_matrix_tile tile = {.w = &args->down, .x = &j->h};
    qw_matrix_cut_item(&j->down, item, &tile);
    tile.next = qw_matrix_next(tile.w, &j->down, &tile);
    float *block = j->buffer + (int64_t)worker * 2 * BLOCK;
    qw_matrix_product(j->cpu, &tile, block, QW_BLOCK_COLUMNS);
    for (int64_t i = 0; i < tile.count; i++) {
        const float *gate = args->row_gate.buffer != NULL ? &j->row_gate[tile.row + i] : NULL;
        float *y = qw_view_row(&args->y, j->first_row + tile.row + i) + tile.column;
        j->cpu->kernels->gate_rows(block + i * QW_BLOCK_COLUMNS, gate, args->accumulate, y, tile.columns);
    }
}

static void mlp_slab(job *j, qw_cpu *cpu, int64_t first, int64_t count)
{
    const qw_mlp_args *args = j->args;
    j->first_row = first;
    j->x.wide = (const char *)qw_view_row(&args->x, first);
    if (qw_matrix_is_narrow(cpu, args->gate.dtype) || qw_matrix_is_narrow(cpu, args->up.dtype) ||
        (args->row_gate.buffer != NULL && qw_matrix_is_narrow(cpu, args->row_gate.dtype)))
        qw_matrix_narrow_rows(cpu, &j->x, args->x.shape[1], count);
    j->hidden = qw_matrix_cut_for(&args->gate, count);
    j->down = qw_matrix_cut_for(&args->down, count);
    int64_t items = qw_matrix_cut_items(&j->hidden);
    if (args->row_gate.buffer != NULL) {
        j->gate = qw_matrix_cut_for(&args->row_gate, count);
        items += qw_matrix_cut_items(&j->gate);
    }
    qw_pool_run(cpu->pool, hidden_item, j, items);
    qw_pool_run(cpu->pool, down_item, j, qw_matrix_cut_items(&j->down));
}

qwen36_status qw_cpu_mlp(qw_backend *backend, const qw_mlp_args *args)
{
    qw_cpu *cpu = qw_cpu_of(backend);
    const int64_t rows = args->x.shape[0], k = args->x.shape[1], width = args->gate.shape[0];
    const int64_t slab = QW_MIN(rows, QW_SLAB_ROWS);
    const bool narrow_h = qw_matrix_is_narrow(cpu, args->down.dtype);
    job j = {.cpu = cpu,
             .args = args,
             .narrow_h = narrow_h,
             .h_stride = qw_matrix_stride(width, narrow_h ? 2 : 4)};
    qw_scratch scratch = qw_scratch_begin(cpu);
    j.x = (qw_rows){.wide_stride = args->x.stride[0] * 4, .narrow_stride = qw_matrix_stride(k, 2)};
    j.x.narrow = qw_scratch_take(&scratch, (uint64_t)(slab * j.x.narrow_stride));
    j.h_data = qw_scratch_take(&scratch, (uint64_t)(slab * j.h_stride));
    j.row_gate = qw_scratch_take(&scratch, (uint64_t)slab * sizeof *j.row_gate);
    j.buffer = qw_scratch_take(&scratch, (uint64_t)cpu->config.threads * QW_HIDDEN_BUFFER);
    if (j.x.narrow == NULL || j.h_data == NULL || j.row_gate == NULL || j.buffer == NULL)
        return QWEN36_ERROR_INTERNAL;
    j.h = (qw_rows){j.h_data, j.h_stride, j.h_data, j.h_stride};
    for (int64_t first = 0; first < rows; first += QW_SLAB_ROWS)
        mlp_slab(&j, cpu, first, QW_MIN(rows - first, QW_SLAB_ROWS));
    return QWEN36_OK;
}

uint64_t qw_cpu_mlp_scratch_bytes(const qw_backend_config *config)
{
    const qw_dims *d = config->dims;
    const uint64_t rows = (uint64_t)QW_MIN(config->max_rows, QW_SLAB_ROWS);
    const int64_t width = QW_MAX(d->intermediate, d->shared_size);
    return qw_scratch_round(rows * (uint64_t)qw_matrix_stride(d->hidden, 2)) +
           qw_scratch_round(rows * (uint64_t)qw_matrix_stride(width, 4)) +
           qw_scratch_round(rows * sizeof(float)) + (uint64_t)config->threads * QW_HIDDEN_BUFFER;
}
