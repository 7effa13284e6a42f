/* The inner kernels of a tier: single-threaded functions over plain pointers, one table per instruction
 * set. An op (`<op>.c`) splits its work over the pool and calls these; `<op>_impl.h` defines them once in
 * terms of simd.h, and each tier_<tier>.c compiles all of them with the flags of that tier. A table is
 * complete: no op changes its instruction family with the number of rows. */
#ifndef QW_CPU_KERNELS_H
#define QW_CPU_KERNELS_H

#include "lib/base/base.h"
#include "lib/weights/dtype.h"

/* A block of dot products: y[r][n] = sum over i < k of w[n][i] * x[row(r)][i], for r < rows and n < columns,
 * where row(r) is x_row[r], or r when x_row is NULL. Partial sums in lanes, i ascending by a whole vector
 * per step, then one tree: the value does not depend on what else is in the block. */
typedef struct qw_dot_block {
    const char *w; /* any address */
    int64_t w_stride;
    const char *x;
    int64_t x_stride; /* bytes, as w_stride */
    const int32_t *x_row;
    float *y;
    int64_t y_stride; /* elements */
    int64_t k, columns, rows;
} qw_dot_block;
typedef void qw_dot_fn(const qw_dot_block *block);

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
