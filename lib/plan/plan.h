/* Plans: which kernel serves an op, and how its work is cut. Pure functions of the device's profile and of
 * shapes, each with one table of rows from special to general; the last row accepts everything. Called by
 * kernels/cuda when an op is issued; tests/unit/test_plan.c asks them about devices that nobody has at hand.
 */
#ifndef QW_PLAN_PLAN_H
#define QW_PLAN_PLAN_H

#include "lib/plan/profile.h"

#include <stddef.h>

/* ---- rows out of use -------------------------------------------------------------------------------- */

/* A row of a table as a bit of qw_device_profile.disabled: 1 << (the table's begin + row). The last row of a
 * table is never out of use. */
enum { QW_PLAN_PRODUCTS = 0, QW_PLAN_EXPERTS = 8, QW_PLAN_ATTENTION = 16 };

static inline uint32_t qw_plan_bit(int32_t table, int32_t row)
{
    return (uint32_t)1 << (table + row);
}

/* All rows that need more than every device has. */
uint32_t qw_plan_special_rows(void);
/* The name of one of them, for logs: "matrix-wide attention". */
const char *qw_plan_bit_name(uint32_t bit);

/* ---- matrix products: y [rows, columns] = x [rows, depth] * w [columns, depth]^T -------------------- */

enum { QW_PRODUCT_FEW = 0, QW_PRODUCT_LIBRARY, QW_PRODUCT_MATRIX, QW_PRODUCT_TILED, QW_PRODUCT_ROWS };
/* Rows up to which weights are read once for all of them, by dot products. */
enum { QW_PRODUCT_FEW_ROWS = 8 };

typedef struct qw_product_shape {
    int64_t rows, depth, columns;
    int32_t weight_dtype; /* lib/weights/dtype.h */
    int32_t aligned;      /* 1: the rows of x and w begin at multiples of 16 bytes */
    int32_t plain;        /* 1: one weight, all rows of x in order, y only stored */
    int32_t invariant;    /* 1: the choice must not depend on the rows */
} qw_product_shape;

int32_t qw_plan_product(const qw_device_profile *profile, const qw_product_shape *shape);
/* Shared memory of a block of that row; `dual`: two weights at once (gate and up). */
int64_t qw_plan_product_shared(int32_t row, int32_t dual);

/* ---- experts ---------------------------------------------------------------------------------------- */

enum { QW_EXPERTS_DIRECT = 0, QW_EXPERTS_MATRIX, QW_EXPERTS_TILED, QW_EXPERTS_ROWS };

typedef struct qw_experts_shape {
    int64_t rows, top_k, experts, hidden, width;
    int32_t weight_dtype;
    int32_t aligned;
    int32_t invariant;
    int32_t mixed; /* 1: weights of several formats or strides */
} qw_experts_shape;

/* DIRECT: each (row, choice) reads its expert by itself. The others sort by expert first; TILED takes mixed
 * weights. */
int32_t qw_plan_experts(const qw_device_profile *profile, const qw_experts_shape *shape);

/* ---- attention -------------------------------------------------------------------------------------- */

enum { QW_ATTENTION_MATRIX_WIDE = 0, QW_ATTENTION_MATRIX, QW_ATTENTION_GENERAL, QW_ATTENTION_ROWS };
/* (row, query head) pairs of a block of these rows. */
enum { QW_ATTENTION_WIDE_PAIRS = 64, QW_ATTENTION_PAIRS = 16 };
/* Of an invariant plan: KV blocks of a partition at least, and partitions of a sequence at most. */
enum { QW_ATTENTION_FIXED_PARTITION = 8, QW_ATTENTION_FIXED_PARTITIONS = 64 };

typedef struct qw_attention_shape {
    int64_t rows;         /* of the step */
    int64_t sequences;    /* of the step */
    int64_t longest_rows; /* of one sequence */
    int64_t longest;      /* tokens of the longest context, this step's included */
    int64_t heads, kv_heads, head_dim;
    int64_t partial_bytes; /* room for partial results */
    int32_t kv_dtype;
    int32_t invariant; /* 1: partitions follow from `context` alone, and rows are cut to fit the room */
    int64_t context;   /* tokens that a sequence may ever have */
} qw_attention_shape;

typedef struct qw_attention_plan {
    int32_t row;
    int32_t rows;       /* of one sequence in a block, with the query heads that share a KV head */
    int32_t partition;  /* KV blocks of a partition */
    int32_t partitions; /* 1: a single pass; more: partial results, then a merge */
} qw_attention_plan;

qw_attention_plan qw_plan_attention(const qw_device_profile *profile, const qw_attention_shape *shape);
/* KV blocks of a partition in batch-invariant mode, for sequences of at most `context` tokens. */
int64_t qw_plan_attention_fixed(int64_t context);
int64_t qw_plan_attention_shared(int32_t row, int64_t head_dim);
/* Rows of one sequence that a block of that row of the table takes, with `group` query heads each. */
int32_t qw_plan_attention_rows(int32_t row, int64_t group);
/* Bytes of one (row, head, partition) partial: maximum, sum, accumulator. */
int64_t qw_plan_attention_partial_bytes(int64_t head_dim);

/* The name of a row, for logs and tests. */
const char *qw_plan_product_name(int32_t row);
const char *qw_plan_experts_name(int32_t row);
const char *qw_plan_attention_name(int32_t row);

#endif
