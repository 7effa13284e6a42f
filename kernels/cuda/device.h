/* The one place where kernels meet an architecture: qualifiers, barriers, warp collectives, shared memory,
 * matrix and copy instructions. Everything else in kernels/cuda is written in these terms, for any warp
 * width.
 *
 * Three implementations: nvcc's below (instructions where the architecture has them, device_portable.h where
 * it has not), and another header that QW_DEVICE_SHIM names, by which the host's compiler builds the same
 * kernels.
 *
 * QW_WARP_WIDTH is the number of lanes (32; 64 on other vendors' devices). Lane masks are qw_lanes, never
 * literals.
 */
#ifndef QW_CUDA_DEVICE_H
#define QW_CUDA_DEVICE_H

#include <stddef.h>
#include <stdint.h>

#if !defined(QW_WARP_WIDTH)
#define QW_WARP_WIDTH 32
#endif
static_assert(QW_WARP_WIDTH == 32 || QW_WARP_WIDTH == 64, "a warp has 32 or 64 lanes");

enum { QW_WARP = QW_WARP_WIDTH };
#if QW_WARP_WIDTH == 64
typedef uint64_t qw_lanes;
#define QW_ALL_LANES UINT64_MAX
#else
typedef uint32_t qw_lanes;
#define QW_ALL_LANES UINT32_MAX
#endif

/* Storage formats, as bits: no type of a vendor's header is needed to move them. */
struct alignas(2) qw_bf16 {
    uint16_t bits;
};
struct alignas(2) qw_f16 {
    uint16_t bits;
};

#if defined(QW_DEVICE_SHIM)
#include QW_DEVICE_SHIM
#else

#include <cuda_fp16.h>
#include <cuda_runtime.h>

#define QW_KERNEL __global__ void
#define QW_DEVICE __device__ __forceinline__
#define QW_HOST_DEVICE __host__ __device__ __forceinline__
#define QW_CONSTANT static __constant__ const /* a table for all threads */
#define QW_UNROLL _Pragma("unroll")

/* Whether this compilation has the matrix and asynchronous copy instructions of sm_80. */
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800 && QW_WARP_WIDTH == 32 && !defined(QW_GENERAL_ONLY)
#define QW_HAS_SM80 1
#else
#define QW_HAS_SM80 0
#endif

/* ---- barriers and warp collectives ------------------------------------------------------------------- */

#define qw_block_sync() __syncthreads()
#define qw_block_sync_or(predicate) __syncthreads_or(predicate)
#define qw_block_sync_and(predicate) __syncthreads_and(predicate)
#define qw_block_sync_count(predicate) __syncthreads_count(predicate)
#define qw_warp_sync() __syncwarp(QW_ALL_LANES)
#define qw_shuffle(lanes, value, from) __shfl_sync(lanes, value, from, QW_WARP)
#define qw_shuffle_up(lanes, value, by) __shfl_up_sync(lanes, value, by, QW_WARP)
#define qw_shuffle_down(lanes, value, by) __shfl_down_sync(lanes, value, by, QW_WARP)
#define qw_shuffle_xor(lanes, value, mask) __shfl_xor_sync(lanes, value, mask, QW_WARP)
#define qw_ballot(lanes, predicate) __ballot_sync(lanes, predicate)
#define qw_any(lanes, predicate) __any_sync(lanes, predicate)
#define qw_all(lanes, predicate) __all_sync(lanes, predicate)
#define qw_active_lanes() __activemask()

QW_DEVICE int qw_count_lanes(qw_lanes lanes)
{
    return sizeof lanes == 8 ? __popcll(lanes) : __popc(static_cast<unsigned>(lanes));
}

/* ---- global memory ----------------------------------------------------------------------------------- */

template <typename T> QW_DEVICE T qw_load_constant(const T *from)
{
    return *from; /* const and restrict pointers let the compiler choose the read-only path */
}

template <> QW_DEVICE float4 qw_load_constant(const float4 *from)
{
    return __ldg(from);
}

template <> QW_DEVICE uint4 qw_load_constant(const uint4 *from)
{
    return __ldg(from);
}

template <typename T> QW_DEVICE T qw_atomic_add(T *at, T value)
{
    return atomicAdd(at, value);
}

template <typename T> QW_DEVICE T qw_atomic_max(T *at, T value)
{
    return atomicMax(at, value);
}

template <typename T> QW_DEVICE T qw_atomic_cas(T *at, T expected, T value)
{
    return atomicCAS(at, expected, value);
}

/* ---- number formats ---------------------------------------------------------------------------------- */

QW_DEVICE float qw_to_float(qw_f16 x)
{
    return __half2float(__ushort_as_half(x.bits));
}

QW_DEVICE float qw_bits_float(uint32_t bits)
{
    return __uint_as_float(bits);
}

QW_DEVICE uint32_t qw_float_bits(float x)
{
    return __float_as_uint(x);
}

/* A product that is rounded, whatever is done with it next: no fused multiply-add. */
QW_DEVICE float qw_product_rounded(float a, float b)
{
    return __fmul_rn(a, b);
}

QW_DEVICE qw_f16 qw_to_f16(float x)
{
    return qw_f16{__half_as_ushort(__float2half_rn(x))};
}

/* ---- shared memory ----------------------------------------------------------------------------------- */

/* A part of the block's shared memory. Elements are read and written by [], several at once by load and store
 * of a vector type, which must be aligned. */
template <typename T> struct qw_shared {
    T *base;

    QW_DEVICE T &operator[](int i) const
    {
        return base[i];
    }
    QW_DEVICE qw_shared at(int i) const
    {
        return qw_shared{base + i};
    }
    template <typename V> QW_DEVICE V load(int i) const
    {
        return *reinterpret_cast<const V *>(base + i);
    }
    template <typename V> QW_DEVICE void store(int i, V value) const
    {
        *reinterpret_cast<V *>(base + i) = value;
    }
    QW_DEVICE T atomic_add(int i, T value) const
    {
        return atomicAdd(base + i, value);
    }
    QW_DEVICE T atomic_max(int i, T value) const
    {
        return atomicMax(base + i, value);
    }
};

/* Hands out the dynamic shared memory of a launch, 16-byte aligned pieces in order. */
struct qw_shared_arena {
    unsigned char *next;

    QW_DEVICE qw_shared_arena()
    {
        extern __shared__ uint4 qw_dynamic_shared[];
        next = reinterpret_cast<unsigned char *>(qw_dynamic_shared);
    }
    template <typename T> QW_DEVICE qw_shared<T> take(int count)
    {
        qw_shared<T> view = {reinterpret_cast<T *>(next)};
        next += (count * static_cast<int>(sizeof(T)) + 15) / 16 * 16;
        return view;
    }
};

/* A shared array of a size known to the compiler. */
#define QW_SHARED(T, name, count)                                                                            \
    __shared__ alignas(16) T name##_storage[count];                                                          \
    const qw_shared<T> name = {name##_storage}

#endif

#include "kernels/cuda/device_portable.h"

#if !defined(QW_DEVICE_SHIM)
#if QW_HAS_SM80

/* d += a b, with d [16,8] float32, a [16,16] and b [16,8]. With g = lane / 4 and t = lane % 4 a lane holds
 *   d: (g, 2t) (g, 2t+1) (g+8, 2t) (g+8, 2t+1)
 *   a: pairs at (g, 2t) (g+8, 2t) (g, 2t+8) (g+8, 2t+8), second element one column on
 *   b: pairs at (2t, g) (2t+8, g), second element one row on */
#define QW_MATRIX_INSTRUCTION(type)                                                                          \
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32." type "." type ".f32 "                              \
                 "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"                                     \
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])                                            \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]))

QW_DEVICE void qw_matrix_bf16(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2])
{
    QW_MATRIX_INSTRUCTION("bf16");
}

QW_DEVICE void qw_matrix_f16(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2])
{
    QW_MATRIX_INSTRUCTION("f16");
}

template <typename T> QW_DEVICE uint32_t qw_shared_address(qw_shared<T> view, int i)
{
    return static_cast<uint32_t>(__cvta_generic_to_shared(view.base + i));
}

/* Two or four 8 x 8 matrices of 16-bit elements; lane l names row l % 8 of matrix l / 8 by its first element.
 */
template <typename T> QW_DEVICE void qw_load_matrix_4(uint32_t (&r)[4], qw_shared<T> view, int i)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(qw_shared_address(view, i))
                 : "memory");
}

template <typename T> QW_DEVICE void qw_load_matrix_2(uint32_t (&r)[2], qw_shared<T> view, int i)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0,%1}, [%2];"
                 : "=r"(r[0]), "=r"(r[1])
                 : "r"(qw_shared_address(view, i))
                 : "memory");
}

template <typename T> QW_DEVICE void qw_load_matrix_4_transposed(uint32_t (&r)[4], qw_shared<T> view, int i)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(qw_shared_address(view, i))
                 : "memory");
}

template <typename T> QW_DEVICE void qw_load_matrix_2_transposed(uint32_t (&r)[2], qw_shared<T> view, int i)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0,%1}, [%2];"
                 : "=r"(r[0]), "=r"(r[1])
                 : "r"(qw_shared_address(view, i))
                 : "memory");
}

/* 16 bytes into shared memory, zeros when not valid; visible to this thread after the wait, to others after a
 * barrier behind it. */
template <typename T> QW_DEVICE void qw_copy_async_16(qw_shared<T> to, int i, const void *from, bool valid)
{
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(qw_shared_address(to, i)), "l"(from),
                 "r"(valid ? 16 : 0)
                 : "memory");
}

QW_DEVICE void qw_copy_commit()
{
    asm volatile("cp.async.commit_group;" ::: "memory");
}

/* All but the last `LEFT` groups have arrived. */
template <int LEFT> QW_DEVICE void qw_copy_wait()
{
    asm volatile("cp.async.wait_group %0;" ::"n"(LEFT) : "memory");
}

#else

QW_DEVICE void qw_matrix_bf16(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2])
{
    qw_portable_matrix<qw_bf16>(d, a, b);
}

QW_DEVICE void qw_matrix_f16(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2])
{
    qw_portable_matrix<qw_f16>(d, a, b);
}

template <typename T> QW_DEVICE void qw_load_matrix_4(uint32_t (&r)[4], qw_shared<T> view, int i)
{
    qw_portable_load_matrix<4, false>(r, view, i);
}

template <typename T> QW_DEVICE void qw_load_matrix_2(uint32_t (&r)[2], qw_shared<T> view, int i)
{
    qw_portable_load_matrix<2, false>(r, view, i);
}

template <typename T> QW_DEVICE void qw_load_matrix_4_transposed(uint32_t (&r)[4], qw_shared<T> view, int i)
{
    qw_portable_load_matrix<4, true>(r, view, i);
}

template <typename T> QW_DEVICE void qw_load_matrix_2_transposed(uint32_t (&r)[2], qw_shared<T> view, int i)
{
    qw_portable_load_matrix<2, true>(r, view, i);
}

template <typename T> QW_DEVICE void qw_copy_async_16(qw_shared<T> to, int i, const void *from, bool valid)
{
    qw_portable_copy_16(to, i, from, valid);
}

QW_DEVICE void qw_copy_commit()
{
}

template <int LEFT> QW_DEVICE void qw_copy_wait()
{
}

#endif
#endif

#endif
