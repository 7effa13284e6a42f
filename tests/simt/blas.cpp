/* The library of products for the SIMT machine: plain sums on the host, off unless a test asks for it. It
 * takes no more than cuBLASLt takes: rows of x and w that begin at multiples of 16 bytes. */
#include "kernels/cuda/cuda.h"

#include "tests/simt/internal.h"
#include "tests/simt/simt_memory.h"

#include <cmath>

struct qw_blas {
    const qw_allocator *allocator;
    void *workspace;
};

static bool there;
static int64_t refuse_in, break_in, products;
static int32_t spoilt = -1;

void simt_library(int32_t on)
{
    there = on != 0;
}

void simt_refuse_library(int64_t n)
{
    refuse_in = n;
}

void simt_break_library(int64_t n)
{
    break_in = n;
}

void simt_spoil_library(int32_t dtype)
{
    spoilt = dtype;
}

int64_t simt_library_products(void)
{
    return products;
}

int32_t simt_has_library(const qw_backend *backend)
{
    return static_cast<const qw_cuda *>(backend->self)->blas != nullptr;
}

uint64_t qw_blas_version(const qw_blas *)
{
    return 1;
}

qwen36_status qw_blas_open(const qw_allocator *allocator, qw_blas **out)
{
    *out = nullptr;
    if (!there)
        return QWEN36_OK;
    qw_blas *blas = static_cast<qw_blas *>(qw_alloc(allocator, 1, sizeof *blas));
    if (blas == nullptr)
        return QWEN36_ERROR_OUT_OF_MEMORY;
    blas->allocator = allocator;
    const qwen36_status status = qw_runtime_allocate(QW_SPACE_DEVICE, 256, &blas->workspace);
    if (status == QWEN36_OK)
        *out = blas;
    else
        qw_blas_close(blas);
    return status;
}

void qw_blas_close(qw_blas *blas)
{
    if (blas == nullptr)
        return;
    qw_runtime_free(QW_SPACE_DEVICE, blas->workspace);
    qw_free(blas->allocator, blas);
}

template <typename T> static void multiply(const qw_blas_product *p, const T *x, const T *w)
{
    const int64_t exchange = p->dtype == spoilt && p->columns % 2 == 0;
    for (int64_t r = 0; r < p->rows; r++)
        for (int64_t c = 0; c < p->columns; c++) {
            float sum = 0;
            for (int64_t k = 0; k < p->depth; k++)
                sum += qw_to_float(x[r * p->x_stride + k]) * qw_to_float(w[c * p->w_stride + k]);
            p->y[r * p->y_stride + (c ^ exchange)] = sum;
        }
}

static bool begins_at_16(const void *base, int64_t stride)
{
    return reinterpret_cast<uintptr_t>(base) % 16 == 0 && stride % 8 == 0;
}

qwen36_status qw_blas_multiply(qw_blas *, qw_stream stream, const qw_blas_product *p)
{
    const qwen36_status status = simt_runtime_call(stream);
    if (status != QWEN36_OK)
        return status;
    const bool refused = refuse_in > 0 && --refuse_in == 0, broken = break_in > 0 && --break_in == 0;
    for (int64_t r = 0; (refused || broken) && r < p->rows; r++)
        for (int64_t c = 0; c < p->columns; c++)
            p->y[r * p->y_stride + c] = NAN;
    if (refused || broken)
        return broken ? QWEN36_ERROR_SYSTEM : QWEN36_ERROR_DEVICE;
    if (!begins_at_16(p->x, p->x_stride) || !begins_at_16(p->w, p->w_stride) || p->depth % 8 != 0)
        return QWEN36_ERROR_DEVICE;
    if (p->dtype == QW_BF16)
        multiply(p, static_cast<const qw_bf16 *>(p->x), static_cast<const qw_bf16 *>(p->w));
    else
        multiply(p, static_cast<const qw_f16 *>(p->x), static_cast<const qw_f16 *>(p->w));
    products++;
    return QWEN36_OK;
}
