/* The unchecked machine's shared memory and collectives, for simt_device.h: plain memory, copies done at once. */
#ifndef QW_TESTS_SIMT_DEVICE_PLAIN_H
#define QW_TESTS_SIMT_DEVICE_PLAIN_H

#include "tests/simt/meaning.h"

/* ---- warp collectives ---- */

namespace simt
{

/* Waits until all lanes of the mask are here; returns the word that lane `source` brought. */
uint64_t exchange(uint64_t mask, uint64_t word, unsigned source);
/* The lanes of the mask that voted yes. */
uint64_t vote(uint64_t mask, bool predicate);
/* By a full warp of 32. */
void multiply_together(float d[4], const uint32_t a[4], const uint32_t b[2], bool bf16);
/* The addresses that all lanes of a full warp brought; they stay until the warp's next collective but one. */
const uint64_t *exchange_all(uint64_t word);

inline void warp_barrier(site)
{
    vote(QW_ALL_LANES, false);
}

template <typename T> T shuffle(site, collective_kind kind, uint64_t lanes, T value, int parameter)
{
    static_assert(sizeof(T) == 4 || sizeof(T) == 8, "shuffles move 4 or 8 bytes");
    uint64_t word = 0;
    memcpy(&word, &value, sizeof value);
    word = exchange(lanes, word,
                    source_lane(kind, threadIdx.x % WARP, static_cast<uint32_t>(parameter), WARP));
    memcpy(&value, &word, sizeof value);
    return value;
}

inline uint64_t ballot(site, uint64_t lanes, bool predicate)
{
    return vote(lanes, predicate);
}

} // namespace simt

/* ---- shared memory ---- */

template <typename T> struct qw_shared {
    T *base;

    T &operator[](int i) const
    {
        return base[i];
    }
    qw_shared at(int i) const
    {
        return {base + i};
    }
    template <typename V> V load(int i) const
    {
        V value;
        memcpy(&value, base + i, sizeof value);
        return value;
    }
    template <typename V> void store(int i, V value) const
    {
        memcpy(static_cast<void *>(base + i), &value, sizeof value);
    }
    T atomic_add(int i, T value) const
    {
        return qw_atomic_add(base + i, value);
    }
    T atomic_max(int i, T value) const
    {
        return qw_atomic_max(base + i, value);
    }
};

namespace simt
{
extern unsigned char dynamic_shared[MAX_SHARED];
}

struct qw_shared_arena {
    unsigned char *next = simt::dynamic_shared;

    template <typename T> qw_shared<T> take(int count)
    {
        const qw_shared<T> view = {reinterpret_cast<T *>(next)};
        next += (static_cast<size_t>(count) * sizeof(T) + 15) / 16 * 16;
        return view;
    }
};

/* Blocks run one after another: a static variable is what their threads share. */
#define QW_SHARED(T, name, count)                                                                            \
    alignas(16) static T name##_storage[count];                                                              \
    const qw_shared<T> name = {name##_storage}

/* ---- matrix and copy instructions ---- */

namespace simt
{

inline void matrix(site, collective_kind kind, float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2])
{
    multiply_together(d, a, b, kind == MATRIX_BF16);
}

template <int COUNT, typename T>
void load_matrix(site, collective_kind kind, uint32_t (&r)[COUNT], const qw_shared<T> &view, int i)
{
    const bool transposed = kind == LOAD_MATRIX_2_TRANSPOSED || kind == LOAD_MATRIX_4_TRANSPOSED;
    const uint64_t *rows = exchange_all(reinterpret_cast<uintptr_t>(view.base + i));
    for (int m = 0; m < COUNT; m++)
        r[m] = matrix_pair(rows + m * 8, threadIdx.x % WARP, transposed);
}

} // namespace simt

template <typename T> void qw_copy_async_16(qw_shared<T> to, int i, const void *from, bool valid)
{
    if (valid)
        memcpy(static_cast<void *>(to.base + i), from, 16);
    else
        memset(static_cast<void *>(to.base + i), 0, 16);
}

inline void qw_copy_commit()
{
}

template <int LEFT> void qw_copy_wait()
{
}

#endif
