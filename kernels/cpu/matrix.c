#include "kernels/cpu/matrix.h"

/* ---- preparing rows -------------------------------------------------------------------------------- */

typedef struct narrow_job {
    const qw_cpu *cpu;
    const qw_rows *rows;
    int64_t k, count;
} narrow_job;

enum { NARROW_ROWS = 8 }; /* of one item */

static void narrow_item(void *argument, int64_t item, int32_t worker)
{
    (void)worker;
    const narrow_job *job = argument;
    const qw_rows *rows = job->rows;
    const int64_t end = QW_MIN(job->count, (item + 1) * NARROW_ROWS);
    for (int64_t r = item * NARROW_ROWS; r < end; r++)
        job->cpu->kernels->narrow_bf16((const float *)(const void *)(rows->wide + r * rows->wide_stride),
                                       (uint16_t *)(void *)(rows->narrow + r * rows->narrow_stride), job->k);
}

void qw_matrix_narrow_rows(qw_cpu *cpu, const qw_rows *rows, int64_t k, int64_t count)
{
    narrow_job job = {cpu, rows, k, count};
    qw_pool_run(cpu->pool, narrow_item, &job, (count + NARROW_ROWS - 1) / NARROW_ROWS);
}

/* ---- weights --------------------------------------------------------------------------------------- */

static int64_t row_bytes(const qw_view *w)
{
    return w->stride[0] * qw_dtype_size(w->dtype);
}

static const char *row_of(const qw_view *w, int64_t row)
{
    return (const char *)qw_view_data(w) + row * row_bytes(w);
}

const char *qw_matrix_next(const qw_view *w, const qw_matrix_cut *cut, const qw_matrix_tile *tile)
{
    const int64_t column = tile->column + tile->columns;
    const bool is_last_of_column = tile->row + tile->count == cut->rows;
    return is_last_of_column && column < cut->columns ? row_of(w, column) : NULL;
}

/* ---- products -------------------------------------------------------------------------------------- */

void qw_matrix_product(const qw_cpu *cpu, const qw_matrix_tile *tile, float *y, int64_t y_stride)
{
    const qw_view *w = tile->w;
    const bool narrow = qw_matrix_is_narrow(cpu, w->dtype);
    const int64_t w_stride = row_bytes(w);
    const int64_t x_stride = narrow ? tile->x->narrow_stride : tile->x->wide_stride;
    const char *x = narrow ? tile->x->narrow : tile->x->wide;
    const qw_dot_block block = {
        .w = row_of(w, tile->column),
        .w_stride = w_stride,
        .w_next = tile->next,
        .x = tile->index != NULL ? x : x + tile->row * x_stride,
        .x_stride = x_stride,
        .x_row = tile->index,
        .y = y,
        .y_stride = y_stride,
        .k = w->shape[1],
        .columns = tile->columns,
        .rows = tile->count,
    };
    (narrow ? cpu->dot_bf16 : cpu->kernels->dot[w->dtype])(&block);
}

void qw_matrix_hidden(const qw_cpu *cpu, const qw_view *gate, const qw_view *up, const qw_matrix_tile *tile,
                      char *h, int64_t h_stride, bool narrow, float *buffer)
{
    float *g = buffer, *u = buffer + QW_BLOCK_ROWS * QW_BLOCK_COLUMNS;
    qw_matrix_tile part = *tile;
    part.w = gate;
    part.next = row_of(up, tile->column);
    qw_matrix_product(cpu, &part, g, QW_BLOCK_COLUMNS);
    part.w = up;
    part.next = tile->next;
    qw_matrix_product(cpu, &part, u, QW_BLOCK_COLUMNS);
    for (int64_t i = 0; i < tile->count; i++) {
        float *g_row = g + i * QW_BLOCK_COLUMNS, *u_row = u + i * QW_BLOCK_COLUMNS;
        void *h_row = h + i * h_stride + tile->column * (narrow ? 2 : 4);
        cpu->kernels->silu_mul(g_row, u_row, narrow ? g_row : h_row, tile->columns);
        if (narrow)
            cpu->kernels->narrow_bf16(g_row, h_row, tile->columns);
    }
}

/* ---- cutting ----------------------------------------------------------------------------------------- */

qw_matrix_cut qw_matrix_cut_for(const qw_view *w, int64_t rows)
{
    enum { GROUP = 8 }; /* whole register tiles */
    int64_t columns = QW_BLOCK_BYTES / QW_MAX(row_bytes(w), 1) / GROUP * GROUP;
    columns = QW_MIN(QW_MAX(columns, GROUP), QW_BLOCK_COLUMNS);
    return (qw_matrix_cut){
        .columns = w->shape[0],
        .rows = rows,
        .block_columns = columns,
        .block_rows = QW_BLOCK_ROWS,
        .across = (w->shape[0] + columns - 1) / columns,
        .down = (rows + QW_BLOCK_ROWS - 1) / QW_BLOCK_ROWS,
    };
}

void qw_matrix_cut_item(const qw_matrix_cut *cut, int64_t item, qw_matrix_tile *tile)
{
    /* Rows vary fastest: neighbours in time share the weights. */
    tile->row = item % cut->down * cut->block_rows;
    tile->column = item / cut->down * cut->block_columns;
    tile->count = QW_MIN(cut->rows - tile->row, cut->block_rows);
    tile->columns = QW_MIN(cut->columns - tile->column, cut->block_columns);
}
