/* The logits of chosen rows. Columns without a token are not computed. */
#include "kernels/cpu/matrix.h"

#include <math.h>
#include <string.h>

typedef struct job {
    const qw_cpu *cpu;
    const qw_head_args *args;
    const qw_rows *x;
    const int32_t *index; /* rows of x, NULL: x holds the chosen rows alone */
    const int32_t *out_row;
    float *block; /* [threads][QW_BLOCK_ROWS][QW_BLOCK_COLUMNS] */
    qw_matrix_cut cut;
} job;

enum { BLOCK = QW_BLOCK_ROWS * QW_BLOCK_COLUMNS };

static void head_item(void *argument, int64_t item, int32_t worker)
{
    const job *j = argument;
    qw_matrix_tile tile = {.w = &j->args->w, .x = j->x};
    qw_matrix_cut_item(&j->cut, item, &tile);
    tile.next = qw_matrix_next(tile.w, &j->cut, &tile);
    const int64_t all = tile.columns;
    const int64_t live = QW_MAX(QW_MIN(j->args->live - tile.column, all), 0);
    float *block = j->block + (int64_t)worker * BLOCK;
    tile.columns = live;
    tile.index = j->index != NULL ? j->index + tile.row : NULL;
    qw_matrix_product(j->cpu, &tile, block, QW_BLOCK_COLUMNS);
    for (int64_t i = 0; i < tile.count; i++) {
        float *to = qw_view_row(&j->args->logits, j->out_row[tile.row + i]) + tile.column;
        memcpy(to, block + i * QW_BLOCK_COLUMNS, (size_t)live * sizeof *to);
        for (int64_t c = live; c < all; c++)
            to[c] = -INFINITY;
    }
}

/* Rounds the chosen rows to BF16, one after the other. */
static void gather_narrow(const qw_cpu *cpu, const qw_head_args *args, int32_t first, int32_t count,
                          const qw_rows *x)
{
    for (int32_t i = 0; i < count; i++) {
        void *to = x->narrow + i * x->narrow_stride;
        cpu->kernels->narrow_bf16(qw_view_row(&args->x, args->in_row[first + i]), to, args->x.shape[1]);
    }
}

qwen36_status qw_cpu_head(qw_backend *backend, const qw_head_args *args)
{
    qw_cpu *cpu = qw_cpu_of(backend);
    const int64_t k = args->x.shape[1];
    const bool narrow = qw_matrix_is_narrow(cpu, args->w.dtype);
    qw_scratch scratch = qw_scratch_begin(cpu);
    qw_rows x = {.wide = qw_view_data(&args->x),
                 .wide_stride = args->x.stride[0] * 4,
                 .narrow_stride = qw_matrix_stride(k, 2)};
    float *block = qw_scratch_take(&scratch, (uint64_t)cpu->config.threads * BLOCK * sizeof *block);
    x.narrow = qw_scratch_take(&scratch, (uint64_t)(QW_MIN(args->count, QW_SLAB_ROWS) * x.narrow_stride));
    if (block == NULL || x.narrow == NULL)
        return QWEN36_ERROR_INTERNAL;
    for (int32_t first = 0; first < args->count; first += QW_SLAB_ROWS) {
        const int32_t count = QW_MIN(args->count - first, QW_SLAB_ROWS);
        if (narrow)
            gather_narrow(cpu, args, first, count, &x);
        job j = {.cpu = cpu,
                 .args = args,
                 .x = &x,
                 .index = narrow ? NULL : args->in_row + first,
                 .out_row = args->out_row + first,
                 .block = block,
                 .cut = qw_matrix_cut_for(&args->w, count)};
        qw_pool_run(cpu->pool, head_item, &j, qw_matrix_cut_items(&j.cut));
    }
    return QWEN36_OK;
}

uint64_t qw_cpu_head_scratch_bytes(const qw_backend_config *config)
{
    const int64_t rows = QW_MIN(config->max_head_rows, QW_SLAB_ROWS);
    return qw_scratch_round((uint64_t)config->threads * BLOCK * sizeof(float)) +
           qw_scratch_round((uint64_t)(rows * qw_matrix_stride(config->dims->hidden, 2)));
}
