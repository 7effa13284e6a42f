/* The inner kernels of a tier: single-threaded functions over plain pointers, one table per instruction
 * set. An op (`<op>.c`) splits its work over the pool and calls these; `<op>_impl.h` defines them once in
 * terms of simd.h, and each tier_<tier>.c compiles all of them with the flags of that tier. A table is
 * complete: no op changes its instruction family with the number of rows. */
#ifndef QW_CPU_KERNELS_H
#define QW_CPU_KERNELS_H

#include "kernels/cpu/mixer.h"
#include "lib/backend.h"

/* A block of dot products: y[r][n] = sum over i < k of w[n][i] * x[row(r)][i], for r < rows and n < columns,
 * where row(r) is x_row[r], or r when x_row is NULL. Partial sums in lanes, i ascending by a whole vector
 * per step, then one tree: the value does not depend on what else is in the block. */
typedef struct qw_dot_block {
    const char *w; /* any address */
    int64_t w_stride;
    const char *w_next; /* rows, stride w_stride, that will be read next: fetched towards the end; or NULL */
    const char *x;
    int64_t x_stride; /* bytes, as w_stride */
    const int32_t *x_row;
    float *y;
    int64_t y_stride; /* elements */
    int64_t k, columns, rows;
} qw_dot_block;
typedef void qw_dot_fn(const qw_dot_block *block);

/* Columns of logits whose largest value is noted; a multiple of the vector length. */
enum { QW_ROW_BLOCK = 128 };

typedef struct qw_cpu_kernels {
    int32_t tier; /* QWEN36_CPU_* */

    /* matrix_impl.h */
    qw_dot_fn *dot[3]; /* x float32; by dtype of w: QW_F32, QW_BF16, QW_F16 */
    void (*widen[3])(const void *from, float *to, int64_t n);
    void (*narrow_bf16)(const float *from, uint16_t *to, int64_t n);
    /* y = silu(gate) * up */
    void (*silu_mul)(const float *gate, const float *up, float *y, int64_t n);
    /* y = sum over j < terms of weight[j] * from[j], j ascending, beginning with zero */
    void (*combine)(const float *const *from, const float *weight, int32_t terms, float *y, int64_t n);
    /* y = value * sigmoid(gate), or y += value * sigmoid(gate) */
    void (*gate_rows)(const float *value, const float *gate, int32_t accumulate, float *y, int64_t n);

    /* sample_impl.h: passes over a row of logits, whose blocks of QW_ROW_BLOCK columns have peaks */
    bool (*row_peaks)(const float *x, int64_t n, float *peaks, float *largest);
    void (*row_mask)(const float *x, const uint32_t *allowed, int64_t n, float *y);
    void (*row_weights)(const float *x, int64_t n, float largest, float temperature, float *w, float *peaks);
    float (*row_log_sum)(const float *x, int64_t n, float largest);

    /* norm_impl.h: y = rms1(x += add); add and y may be NULL */
    void (*norm_row)(float *x, const float *add, const void *weight, int32_t dtype, float *y, int64_t n,
                     float eps);
    void (*gated_norm_head)(const float *o, const float *z, const void *weight, int32_t dtype, float *y,
                            int64_t n, float eps);

    /* attn_prepare_impl.h */
    void (*rope_table)(const qw_rope_row *rope, float *cosine, float *sine);
    void (*rope_head)(const qw_rope_head *head, const float *x, float *out);
    void (*store_cache)(const float *from, void *to, int32_t dtype, int64_t n);
    float (*store_cache_i8)(const float *from, void *to, int64_t n); /* returns the scale */

    /* attention_impl.h; attn_span by dtype of the cache: QW_F32, QW_BF16, QW_I8 */
    float (*attn_scale)(int64_t hd); /* 1 / sqrt(hd) */
    void (*attn_span[QW_I8 + 1])(const qw_attn_tile *tile, int64_t span);
    void (*attn_merge)(const qw_attn_tile *tile, qw_attn_partial into, qw_attn_partial from, int64_t span);
    void (*attn_finish)(const float *acc, float sum, const float *gate, float *o, int64_t hd);

    /* conv_impl.h, delta_impl.h, route_impl.h */
    void (*conv_rows)(const qw_conv_range *range, float *taps);
    void (*conv_store)(const qw_conv_range *range, int64_t row, float *state);
    void (*delta_head)(const qw_delta_head *head, float *work);
    void (*route_row)(const float *logits, int64_t experts, int64_t k, int32_t *id, float *weight);

    /* math_impl.h, for the tests: y[i] = f(x[i]) */
    void (*math)(int32_t function, const float *x, float *y, int64_t n);

    /* the other ops follow here, one group per <op>_impl.h */
} qw_cpu_kernels;

extern const qw_cpu_kernels qw_cpu_kernels_portable;
#if defined(QW_HAVE_AVX2)
extern const qw_cpu_kernels qw_cpu_kernels_avx2;
#endif
#if defined(QW_HAVE_AVX512)
extern const qw_cpu_kernels qw_cpu_kernels_avx512;
#endif
#if defined(QW_HAVE_AVX512BF16)
/* Both operands BF16, accumulation in float32 two products at a time. */
qw_dot_fn qw_dot_bf16_avx512bf16;
#endif

/* The table for QWEN36_CPU_*, AUTO giving the best; NULL when the processor lacks it. */
const qw_cpu_kernels *qw_cpu_kernels_choose(int32_t tier);
/* Whether the processor multiplies BF16 vectors (qw_dot_bf16_avx512bf16). */
bool qw_cpu_has_bf16_dot(void);

#endif
