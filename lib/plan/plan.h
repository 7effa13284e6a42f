/* Plans: which kernel serves an op, and how its work is cut. Pure functions of the device's profile and of
 * shapes, each with one table of rows from special to general; the last row accepts everything. Called by
 * kernels/cuda when an op is issued; tests/unit/test_plan.c asks them about devices that nobody has at hand.
 */
#ifndef QW_PLAN_PLAN_H
#define QW_PLAN_PLAN_H

#include "lib/plan/profile.h"

#include <stddef.h>

/* ---- matrix products: y [rows, columns] = x [rows, depth] * w [columns, depth]^T -------------------- */

enum { QW_PRODUCT_FEW = 0, QW_PRODUCT_LIBRARY, QW_PRODUCT_MATRIX, QW_PRODUCT_TILED, QW_PRODUCT_ROWS };
/* Rows up to which weights are read once for all of them, by dot products. */
enum { QW_PRODUCT_FEW_ROWS = 8 };

typedef struct qw_product_shape {
    int64_t rows, depth, columns;
    int32_t weight_dtype; /* lib/weights/dtype.h */
    int32_t aligned;      /* 1: the rows of x and w begin at multiples of 16 bytes */
    int32_t plain;        /* 1: one weight, all rows of x in order, y only stored */
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
} qw_experts_shape;

/* DIRECT: each (row, choice) reads its expert by itself. The others sort by expert first. */
int32_t qw_plan_experts(const qw_device_profile *profile, const qw_experts_shape *shape);

/* ---- attention -------------------------------------------------------------------------------------- */

enum { QW_ATTENTION_MATRIX_WIDE = 0, QW_ATTENTION_MATRIX, QW_ATTENTION_GENERAL, QW_ATTENTION_ROWS };
/* (row, query head) pairs of a block of these rows. */
enum { QW_ATTENTION_WIDE_PAIRS = 64, QW_ATTENTION_PAIRS = 16 };

typedef struct qw_attention_shape {
    int64_t rows;         /* of the step */
    int64_t sequences;    /* of the step */
    int64_t longest_rows; /* of one sequence */
    int64_t longest;      /* tokens of the longest context, this step's included */
    int64_t heads, kv_heads, head_dim;
    int64_t partial_bytes; /* room for partial results */
    int32_t kv_dtype;
} qw_attention_shape;

typedef struct qw_attention_plan {
    int32_t row;
    int32_t rows;       /* of one sequence in a block, with the query heads that share a KV head */
    int32_t partition;  /* KV blocks of a partition */
    int32_t partitions; /* 1: a single pass; more: partial results, then a merge */
} qw_attention_plan;

qw_attention_plan qw_plan_attention(const qw_device_profile *profile, const qw_attention_shape *shape);
int64_t qw_plan_attention_shared(int32_t row, int64_t head_dim);
/* Bytes of one (row, head, partition) partial: maximum, sum, accumulator. */
int64_t qw_plan_attention_partial_bytes(int64_t head_dim);

/* The name of a row, for logs and tests. */
const char *qw_plan_product_name(int32_t row);
const char *qw_plan_experts_name(int32_t row);
const char *qw_plan_attention_name(int32_t row);

#endif
