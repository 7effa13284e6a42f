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
#define QW_SITE                                                                                              \
    simt::site                                                                                               \
    {                                                                                                        \
        __FILE__, __LINE__                                                                                   \
    }

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

namespace simt
{

inline void warp_barrier(site where)
{
    uint32_t words[COLLECTIVE_WORDS] = {};
    warp_collective(where, WARP_BARRIER, QW_ALL_LANES, 0, words);
}

template <typename T> T shuffle(site where, collective_kind kind, uint64_t lanes, T value, int parameter)
{
    static_assert(sizeof(T) == 4 || sizeof(T) == 8, "shuffles move 4 or 8 bytes");
    uint32_t words[COLLECTIVE_WORDS] = {};
    memcpy(words, &value, sizeof value);
    words[2] = static_cast<uint32_t>(parameter);
    warp_collective(where, kind, lanes, WARP, words);
    memcpy(&value, words, sizeof value);
    return value;
}

inline uint64_t ballot(site where, uint64_t lanes, bool predicate)
{
    uint32_t words[COLLECTIVE_WORDS] = {predicate};
    warp_collective(where, BALLOT, lanes, 0, words);
    return words[0] | uint64_t{words[1]} << 32;
}

} // namespace simt

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

inline float qw_to_float(qw_f16 x)
{
    const int exponent = x.bits >> 10 & 31, mantissa = x.bits & 1023;
    float magnitude;
    if (exponent == 31)
        magnitude = mantissa != 0 ? NAN : INFINITY;
    else if (exponent == 0)
        magnitude = std::ldexp(static_cast<float>(mantissa), -24);
    else
        magnitude = std::ldexp(static_cast<float>(1024 + mantissa), exponent - 25);
    return (x.bits & 0x8000) != 0 ? -magnitude : magnitude;
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

/* ---- shared memory ---- */

/* An element: what an operator of it does is checked. */
template <typename T> struct simt_element {
    uint32_t offset;

    operator T() const
    {
        simt::shared_access(offset, sizeof(T), simt::READ);
        T value;
        memcpy(&value, simt::shared_memory() + offset, sizeof value);
        return value;
    }
    const simt_element &operator=(const T &value) const
    {
        simt::shared_access(offset, sizeof(T), simt::WRITE);
        memcpy(simt::shared_memory() + offset, &value, sizeof value);
        return *this;
    }
    const simt_element &operator=(const simt_element &other) const
    {
        return *this = static_cast<T>(other);
    }
    simt_element(const simt_element &) = default;
    explicit simt_element(uint32_t offset_) : offset(offset_)
    {
    }
    const simt_element &operator+=(T value) const
    {
        return *this = static_cast<T>(*this) + value;
    }
    const simt_element &operator-=(T value) const
    {
        return *this = static_cast<T>(*this) - value;
    }
    const simt_element &operator*=(T value) const
    {
        return *this = static_cast<T>(*this) * value;
    }
};

template <typename T> struct qw_shared {
    uint32_t begin;
    int count;

    uint32_t offset_of(int i, size_t bytes, size_t alignment) const
    {
        const int64_t end = int64_t{i} * int64_t{sizeof(T)} + static_cast<int64_t>(bytes);
        if (i < 0 || end > int64_t{count} * int64_t{sizeof(T)})
            simt::fail("element %d lies beyond a shared array of %d", i, count);
        const uint32_t offset = begin + static_cast<uint32_t>(i) * uint32_t{sizeof(T)};
        if (offset % alignment != 0)
            simt::fail("element %d of a shared array is not aligned to %zu bytes", i, alignment);
        return offset;
    }
    simt_element<T> operator[](int i) const
    {
        return simt_element<T>(offset_of(i, sizeof(T), alignof(T)));
    }
    qw_shared at(int i) const
    {
        if (i < 0 || i > count)
            simt::fail("element %d lies beyond a shared array of %d", i, count);
        return {begin + static_cast<uint32_t>(i) * uint32_t{sizeof(T)}, count - i};
    }
    template <typename V> V load(int i) const
    {
        return simt_element<V>(offset_of(i, sizeof(V), alignof(V)));
    }
    template <typename V> void store(int i, V value) const
    {
        simt_element<V>(offset_of(i, sizeof(V), alignof(V))) = value;
    }
    T *atomic(int i) const
    {
        const uint32_t offset = offset_of(i, sizeof(T), alignof(T));
        simt::shared_access(offset, sizeof(T), simt::ATOMIC);
        return reinterpret_cast<T *>(simt::shared_memory() + offset);
    }
    T atomic_add(int i, T value) const
    {
        return qw_atomic_add(atomic(i), value);
    }
    T atomic_max(int i, T value) const
    {
        return qw_atomic_max(atomic(i), value);
    }
};

struct qw_shared_arena {
    uint32_t next = 0;

    template <typename T> qw_shared<T> take(int count)
    {
        const qw_shared<T> view = {next, count};
        next += (static_cast<uint32_t>(count) * uint32_t{sizeof(T)} + 15) / 16 * 16;
        if (next > simt::shared_dynamic_bytes())
            simt::fail("takes %u bytes of shared memory, %zu were asked for at launch", next,
                       simt::shared_dynamic_bytes());
        return view;
    }
};

#define QW_SHARED(T, name, count)                                                                            \
    static const char name##_key = 0;                                                                        \
    const qw_shared<T> name = {simt::shared_static(&name##_key, (count) * sizeof(T)), count}

/* ---- matrix and copy instructions ---- */

namespace simt
{

inline void matrix(site where, collective_kind kind, float (&d)[4], const uint32_t (&a)[4],
                   const uint32_t (&b)[2])
{
    uint32_t words[COLLECTIVE_WORDS];
    memcpy(words, d, sizeof d);
    memcpy(words + 4, a, sizeof a);
    memcpy(words + 8, b, sizeof b);
    warp_collective(where, kind, QW_ALL_LANES, 0, words);
    memcpy(d, words, sizeof d);
}

template <int COUNT> void load_matrix(site where, collective_kind kind, uint32_t (&r)[COUNT], uint32_t offset)
{
    uint32_t words[COLLECTIVE_WORDS] = {offset};
    warp_collective(where, kind, QW_ALL_LANES, 0, words);
    memcpy(r, words, sizeof r);
}

/* The row that a lane names must lie in the view, if the instruction reads it. */
template <int COUNT, typename T> uint32_t row_offset(const qw_shared<T> &view, int i)
{
    static_assert(sizeof(T) == 2, "matrices of 16-bit elements");
    return threadIdx.x % WARP < COUNT * 8 ? view.offset_of(i, 16, 16) : 0;
}

} // namespace simt

#define qw_matrix_bf16(d, a, b) simt::matrix(QW_SITE, simt::MATRIX_BF16, d, a, b)
#define qw_matrix_f16(d, a, b) simt::matrix(QW_SITE, simt::MATRIX_F16, d, a, b)
#define qw_load_matrix_4(r, view, i)                                                                         \
    simt::load_matrix<4>(QW_SITE, simt::LOAD_MATRIX_4, r, simt::row_offset<4>(view, i))
#define qw_load_matrix_2(r, view, i)                                                                         \
    simt::load_matrix<2>(QW_SITE, simt::LOAD_MATRIX_2, r, simt::row_offset<2>(view, i))
#define qw_load_matrix_4_transposed(r, view, i)                                                              \
    simt::load_matrix<4>(QW_SITE, simt::LOAD_MATRIX_4_TRANSPOSED, r, simt::row_offset<4>(view, i))
#define qw_load_matrix_2_transposed(r, view, i)                                                              \
    simt::load_matrix<2>(QW_SITE, simt::LOAD_MATRIX_2_TRANSPOSED, r, simt::row_offset<2>(view, i))

template <typename T> void qw_copy_async_16(qw_shared<T> to, int i, const void *from, bool valid)
{
    simt::shared_copy_async(to.offset_of(i, 16, 16), from, 16, valid ? 16 : 0);
}

inline void qw_copy_commit()
{
    simt::shared_copy_commit();
}

template <int LEFT> void qw_copy_wait()
{
    simt::shared_copy_wait(LEFT);
}

#endif
