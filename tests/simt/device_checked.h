/* The checked machine's shared memory and collectives, for simt_device.h. */
#ifndef QW_TESTS_SIMT_DEVICE_CHECKED_H
#define QW_TESTS_SIMT_DEVICE_CHECKED_H

/* ---- warp collectives: each lane of the mask gives its words and gets its own back ---- */

namespace simt
{

enum { COLLECTIVE_WORDS = 10 };
void warp_collective(site where, collective_kind kind, uint64_t mask, uint32_t argument,
                     uint32_t words[COLLECTIVE_WORDS]);

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

/* ---- shared memory ---- */

namespace simt
{

/* Offsets are in bytes from the begin of the block's. */

enum access_kind { READ, WRITE, ATOMIC };
unsigned char *shared_memory();
size_t shared_dynamic_bytes();
void shared_access(uint32_t offset, uint32_t bytes, access_kind kind);
/* The same variable of a kernel (its key) is the same memory for all threads of the block. */
uint32_t shared_static(const void *key, uint32_t bytes);
void shared_copy_async(uint32_t offset, const void *from, uint32_t bytes, uint32_t valid_bytes);
void shared_copy_commit();
void shared_copy_wait(unsigned groups_left);

} // namespace simt

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

/* The row that a lane names must lie in the view, if the instruction reads it. */
template <int COUNT, typename T> uint32_t row_offset(const qw_shared<T> &view, int i)
{
    static_assert(sizeof(T) == 2, "matrices of 16-bit elements");
    return threadIdx.x % WARP < COUNT * 8 ? view.offset_of(i, 16, 16) : 0;
}

template <int COUNT, typename T>
void load_matrix(site where, collective_kind kind, uint32_t (&r)[COUNT], const qw_shared<T> &view, int i)
{
    uint32_t words[COLLECTIVE_WORDS] = {row_offset<COUNT>(view, i)};
    warp_collective(where, kind, QW_ALL_LANES, 0, words);
    memcpy(r, words, sizeof r);
}

} // namespace simt

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
