/* Arguments of the inner kernels of attention, convolution and delta rule: one task each, over plain
 * pointers. Strides are in elements unless they say bytes. */
#ifndef QW_CPU_MIXER_H
#define QW_CPU_MIXER_H

#include "lib/backend.h"

/* ---- attn_prepare ---- */

/* The angles of one row: position[axis[j]] * inv_freq[j], j < half. */
typedef struct qw_rope_row {
    int32_t position[3];
    const float *inv_freq;
    const uint8_t *axis;
    float scale; /* on cosine and sine */
    int64_t half;
} qw_rope_row;

typedef struct qw_rope_head {
    const void *weight; /* [hd], of the norm */
    int32_t weight_dtype;
    float eps;
    const float *cosine, *sine; /* [half] */
    int64_t half, hd;
} qw_rope_head;

/* ---- attention ---- */

enum {
    QW_ATTN_SPAN = 4,     /* blocks that merge into one partial result */
    QW_ATTN_KEYS = 16,    /* whose rows stay in the first cache while all queries of a tile pass */
    QW_ATTN_PANEL = 64,   /* columns of V that do so, at most */
    QW_ATTN_QUERIES = 64, /* of a tile; more only where one row has more heads per KV head */
};

/* max and sum per query, acc [queries][width] */
typedef struct qw_attn_partial {
    float *max, *sum, *acc;
} qw_attn_partial;

/* Queries of one sequence and one KV head, rows ascending, with their working memory. */
typedef struct qw_attn_tile {
    const float *q;       /* [queries][width], zero from hd on */
    const int32_t *limit; /* [queries] tokens that each one sees */
    int64_t queries, hd, width;
    float scale;
    const char *cache;                  /* K of the head in block 0; V stands value_offset bytes behind K */
    int64_t value_offset, block_stride; /* bytes */
    int64_t key_scales, value_scales;   /* QW_I8: bytes from K of the head to the scales of its K and V */
    const int32_t *table;               /* block of the cache that holds tokens 64 i .. */
    float *scores;                      /* [queries][64] */
    float *panel;                       /* [16][width] of K or [64][QW_ATTN_PANEL] of V */
    qw_attn_partial block, span;
} qw_attn_tile;

/* ---- conv ---- */

enum { QW_CONV_CHANNELS = 256, QW_CONV_WIDTH = 64 }; /* the most of a task */

/* Channels of one segment; every pointer is to the first of them. */
typedef struct qw_conv_range {
    const float *u; /* inputs of the segment's rows */
    float *c;
    int64_t u_stride, c_stride, rows;
    const float *before; /* the state that the segment found, or NULL */
    int64_t before_stride;
    const void *weight; /* [channels][width] */
    int32_t weight_dtype;
    int64_t channels, width;
} qw_conv_range;

/* ---- delta ---- */

enum { QW_DELTA_CHUNK = 16 }; /* rows that are prepared together; a multiple of the vector length */

/* One value head over the rows of one segment. */
typedef struct qw_delta_head {
    const float *q, *k, *v; /* of the first row; c_stride from row to row */
    const float *a, *b;
    float *o;
    int64_t c_stride, a_stride, b_stride, o_stride, rows;
    float a_log, dt_bias;
    int64_t dk, dv;
    const float *state; /* [dk][dv] before the segment, or NULL for zero */
    char *state_base;   /* the head's state in slot 0; slot_stride bytes from slot to slot */
    int64_t slot_stride;
    const qw_state_write *write;
    int64_t writes, first_row; /* first_row: of the batch */
} qw_delta_head;

/* ---- elementary functions, as numbered for qw_cpu_kernels.math ---- */

enum {
    QW_MATH_EXP,
    QW_MATH_LOG,
    QW_MATH_LOG1P,
    QW_MATH_SIGMOID,
    QW_MATH_SILU,
    QW_MATH_SOFTPLUS,
    QW_MATH_SINE,
    QW_MATH_COSINE,
    QW_MATH_FUNCTIONS
};

#endif
