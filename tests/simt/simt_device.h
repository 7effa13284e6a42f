/* kernels/cuda/device.h for the SIMT machine of simt.h (QW_DEVICE_SHIM names this file). */
#ifndef QW_TESTS_SIMT_DEVICE_H
#define QW_TESTS_SIMT_DEVICE_H

#include "tests/simt/simt.h"

#include <cmath>
#include <cstring>
#include <type_traits>

#define QW_KERNEL void
#define QW_DEVICE inline
#define QW_HOST_DEVICE inline
#define QW_CONSTANT static const
#define QW_UNROLL
#define QW_HAS_SM80 (QW_WARP_WIDTH == 32)
/* ---- vector types ---- */

struct alignas(8) float2 {
    float x, y;
};
struct alignas(16) float4 {
    float x, y, z, w;
};
struct alignas(8) int2 {
    int x, y;
};
struct alignas(16) int4 {
    int x, y, z, w;
};
struct alignas(8) uint2 {
    unsigned x, y;
};
struct alignas(16) uint4 {
    unsigned x, y, z, w;
};

/* ---- barriers and warp collectives ---- */

#define qw_block_sync() ((void)simt::block_barrier(QW_SITE, simt::BARRIER_PLAIN, 0))
#define qw_block_sync_or(predicate) simt::block_barrier(QW_SITE, simt::BARRIER_OR, (predicate) != 0)
#define qw_block_sync_and(predicate) simt::block_barrier(QW_SITE, simt::BARRIER_AND, (predicate) != 0)
#define qw_block_sync_count(predicate) simt::block_barrier(QW_SITE, simt::BARRIER_COUNT, (predicate) != 0)
#define qw_warp_sync() simt::warp_barrier(QW_SITE)
#define qw_shuffle(lanes, value, from) simt::shuffle(QW_SITE, simt::SHUFFLE, lanes, value, from)
#define qw_shuffle_up(lanes, value, by) simt::shuffle(QW_SITE, simt::SHUFFLE_UP, lanes, value, by)
#define qw_shuffle_down(lanes, value, by) simt::shuffle(QW_SITE, simt::SHUFFLE_DOWN, lanes, value, by)
#define qw_shuffle_xor(lanes, value, mask) simt::shuffle(QW_SITE, simt::SHUFFLE_XOR, lanes, value, mask)
#define qw_ballot(lanes, predicate) static_cast<qw_lanes>(simt::ballot(QW_SITE, lanes, (predicate) != 0))
#define qw_any(lanes, predicate) (simt::ballot(QW_SITE, lanes, (predicate) != 0) != 0)
#define qw_all(lanes, predicate) (simt::ballot(QW_SITE, lanes, (predicate) == 0) == 0)
#define qw_active_lanes() static_cast<qw_lanes>(simt::active_lanes())

inline int qw_count_lanes(qw_lanes lanes)
{
    return __builtin_popcountll(lanes);
}

/* ---- global memory ---- */

template <typename T> T qw_load_constant(const T *from)
{
    return *from;
}

template <typename T> T qw_atomic_add(T *at, T value)
{
    const T old = *at;
    *at = static_cast<T>(old + value);
    return old;
}

template <typename T> T qw_atomic_max(T *at, T value)
{
    const T old = *at;
    *at = old < value ? value : old;
    return old;
}

template <typename T> T qw_atomic_cas(T *at, T expected, T value)
{
    const T old = *at;
    *at = old == expected ? value : old;
    return old;
}

/* ---- number formats ---- */

inline float qw_bits_float(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

inline float qw_product_rounded(float a, float b)
{
    return a * b;
}

inline uint32_t qw_float_bits(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

/* The bits moved to where float32 has them make a number 2^112 too small, subnormal ones included. */
inline float qw_to_float(qw_f16 x)
{
    const uint32_t sign = (x.bits & 0x8000U) << 16, magnitude = (x.bits & 0x7FFFU) << 13;
    if (magnitude >= 31U << 23)
        return qw_bits_float(sign | magnitude | 0x7F800000);
    return qw_bits_float(sign | qw_float_bits(qw_bits_float(magnitude) * 0x1p112F));
}

inline qw_f16 qw_to_f16(float x)
{
    const uint16_t sign = std::signbit(x) ? 0x8000 : 0;
    const float magnitude = std::fabs(x);
    if (!(magnitude < 65520.0F))
        return {static_cast<uint16_t>(sign | (x != x ? 0x7E00 : 0x7C00))};
    int exponent = magnitude > 0 ? std::ilogb(magnitude) : -15;
    exponent = exponent < -14 ? -14 : exponent;
    /* In units of the last place; a carry into the exponent is what the format wants. */
    const long units = std::lrint(std::ldexp(magnitude, 10 - exponent));
    return {static_cast<uint16_t>(sign + ((exponent + 14) << 10) + units)};
}

#if defined(QW_SIMT_UNCHECKED)
#include "tests/simt/device_plain.h"
#else
#include "tests/simt/device_checked.h"
#endif

/* ---- matrix and copy instructions ---- */

#define qw_matrix_bf16(d, a, b) simt::matrix(QW_SITE, simt::MATRIX_BF16, d, a, b)
#define qw_matrix_f16(d, a, b) simt::matrix(QW_SITE, simt::MATRIX_F16, d, a, b)
#define qw_load_matrix_4(r, view, i) simt::load_matrix<4>(QW_SITE, simt::LOAD_MATRIX_4, r, view, i)
#define qw_load_matrix_2(r, view, i) simt::load_matrix<2>(QW_SITE, simt::LOAD_MATRIX_2, r, view, i)
#define qw_load_matrix_4_transposed(r, view, i)                                                              \
    simt::load_matrix<4>(QW_SITE, simt::LOAD_MATRIX_4_TRANSPOSED, r, view, i)
#define qw_load_matrix_2_transposed(r, view, i)                                                              \
    simt::load_matrix<2>(QW_SITE, simt::LOAD_MATRIX_2_TRANSPOSED, r, view, i)

#endif
