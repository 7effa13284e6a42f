/* What the matrix ops (linear, mlp, experts, head) share: which inner kernel a product uses, how its input
 * rows are prepared for it, and how the work is cut. Cuts are free: a dot product does not depend on them. */
#ifndef QW_CPU_MATRIX_H
#define QW_CPU_MATRIX_H

#include "kernels/cpu/cpu.h"

enum {
    QW_SLAB_ROWS = 1024,        /* rows that an op takes at a time: bounds its scratch */
    QW_BLOCK_ROWS = 96,         /* rows of x in one work item: with the weights of the item they fit L2 */
    QW_BLOCK_COLUMNS = 128,     /* at most */
    QW_BLOCK_BYTES = 128 * 1024 /* weights of one work item, about */
};

/* Rows of a product's input: float32, and (FAST numerics on BF16 hardware) the same rows rounded to BF16. */
typedef struct qw_rows {
    const char *wide;
    int64_t wide_stride; /* bytes */
    char *narrow;        /* NULL: no product reads BF16 */
    int64_t narrow_stride;
} qw_rows;

/* Bytes from row to row of scratch: rows begin on cache lines, and not at multiples of 4096, which would all
 * compete for the same few lines of the first-level cache. */
static inline int64_t qw_matrix_stride(int64_t elements, int64_t size)
{
    return (elements * size + QW_ALIGNMENT - 1) / QW_ALIGNMENT * QW_ALIGNMENT + QW_ALIGNMENT;
}

/* Whether a product with weights of this type reads BF16 rows. */
static inline bool qw_matrix_is_narrow(const qw_cpu *cpu, int32_t weight_dtype)
{
    return cpu->dot_bf16 != NULL && weight_dtype == QW_BF16;
}

/* Rounds `count` rows of k elements from rows->wide to rows->narrow, using the pool. */
void qw_matrix_narrow_rows(qw_cpu *cpu, const qw_rows *rows, int64_t k, int64_t count);

/* y[i][c] = w[column + c] . x[row of i], for i < count and c < columns; the row of i is index[i], or
 * row + i without an index. y_stride in elements. */
typedef struct qw_matrix_tile {
    const qw_view *w;
    int64_t column, columns;
    const char *next; /* rows of weights that will probably be read next; or NULL */
    const qw_rows *x;
    const int32_t *index;
    int64_t row, count;
} qw_matrix_tile;
void qw_matrix_product(const qw_cpu *cpu, const qw_matrix_tile *tile, float *y, int64_t y_stride);

/* The cut of [count, columns] outputs into work items: item i covers a range of columns and of rows. */
typedef struct qw_matrix_cut {
    int64_t columns, rows;             /* in all */
    int64_t block_columns, block_rows; /* of one item */
    int64_t across, down;              /* items along columns and rows */
} qw_matrix_cut;
qw_matrix_cut qw_matrix_cut_for(const qw_view *w, int64_t rows);
static inline int64_t qw_matrix_cut_items(const qw_matrix_cut *cut)
{
    return cut->across * cut->down;
}
/* The ranges of item `item`, into column, columns, row and count of the tile. */
void qw_matrix_cut_item(const qw_matrix_cut *cut, int64_t item, qw_matrix_tile *tile);
/* The first row of w that the item after this one reads, when it is not one of this item's; else NULL. */
const char *qw_matrix_next(const qw_view *w, const qw_matrix_cut *cut, const qw_matrix_tile *tile);

/* h[i][column + c] = silu(gate . x) * (up . x) for a tile of both matrices: the hidden layer of an MLP. h is
 * float32, or BF16 when `narrow`; `buffer` holds QW_HIDDEN_BUFFER bytes of the worker's own. */
enum { QW_HIDDEN_BUFFER = 2 * QW_BLOCK_ROWS * QW_BLOCK_COLUMNS * 4 };
void qw_matrix_hidden(const qw_cpu *cpu, const qw_view *gate, const qw_view *up, const qw_matrix_tile *tile,
                      char *h, int64_t h_stride, bool narrow, float *buffer);

#endif
