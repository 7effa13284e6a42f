/* The unchecked machine's shared memory and collectives, for simt_device.h: plain memory, copies done at
 * once. */
#ifndef QW_TESTS_SIMT_DEVICE_PLAIN_H
#define QW_TESTS_SIMT_DEVICE_PLAIN_H

#include "tests/simt/fiber.h"
#include "tests/simt/meaning.h"

/* ---- warp collectives ---- */

namespace simt
{

/* What the lanes bring to a collective of the full warp. There are two, used in turn: a lane may come to the
 * next collective while others have not yet read what this one gave, but not to the next but one. */
struct meeting {
    uint64_t word[WARP];
    uint64_t votes;
    matrix_operands matrix;
};

struct warp {
    unsigned first;
    uint64_t all;   /* lanes that the warp has */
    uint64_t live;  /* that have not ended */
    uint64_t begun; /* that have a fiber */
    uint64_t ready; /* that can run, begun or not; the running one is among them */
    uint64_t waiting;
    uint64_t votes;
    unsigned turn; /* which meeting is next */
    fiber *context[WARP];
    meeting met[2];
    uint64_t part[WARP]; /* words of a collective of some lanes */
};

/* The warp of the running thread, and its lane. */
extern warp *here;
extern unsigned here_lane;

inline uint64_t bit(unsigned lane)
{
    return uint64_t{1} << lane;
}

/* Until someone makes this thread ready again. */
void wait();

/* Whether this lane is the last of those that the mask names. */
inline bool completes(warp *w, uint64_t mask)
{
    w->waiting |= bit(here_lane);
    return (w->waiting & mask) == mask;
}

inline void release(warp *w, uint64_t mask)
{
    w->waiting &= ~mask;
    w->ready |= mask;
}

/* The last lane of a full warp lets the others go. */
inline void release_all(warp *w)
{
    w->met[w->turn].votes = w->votes;
    w->turn ^= 1;
    release(w, w->all);
}

/* Until all lanes of the warp are here; what they brought. */
inline meeting *meet_all(warp *w)
{
    meeting *m = &w->met[w->turn];
    if (completes(w, w->all))
        release_all(w);
    else
        wait();
    return m;
}

uint64_t exchange_some(uint64_t mask, uint64_t word, unsigned source);
uint64_t vote_of_some(uint64_t mask);

/* Waits until all lanes of the mask are here; returns the word that lane `source` brought. */
inline uint64_t exchange(uint64_t mask, uint64_t word, unsigned source)
{
    warp *w = here;
    if ((mask & w->all) != w->all)
        return exchange_some(mask & w->all, word, source);
    w->met[w->turn].word[here_lane] = word;
    return meet_all(w)->word[source];
}

/* The lanes of the mask that voted yes. */
inline uint64_t vote(uint64_t mask, bool predicate)
{
    warp *w = here;
    w->votes = (w->votes & ~bit(here_lane)) | uint64_t{predicate} << here_lane;
    if ((mask & w->all) != w->all)
        return vote_of_some(mask & w->all);
    return meet_all(w)->votes;
}

inline void warp_barrier(site)
{
    vote(QW_ALL_LANES, false);
}

template <typename T> T shuffle(site, collective_kind kind, uint64_t lanes, T value, int parameter)
{
    static_assert(sizeof(T) == 4 || sizeof(T) == 8, "shuffles move 4 or 8 bytes");
    uint64_t word = 0;
    memcpy(&word, &value, sizeof value);
    word = exchange(lanes, word, source_lane(kind, here_lane, static_cast<uint32_t>(parameter), WARP));
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
    warp *w = here;
    const unsigned lane = here_lane;
    matrix_operands *m = &w->met[w->turn].matrix;
    for (int i = 0; i < 4; i++) {
        m->word[MATRIX_D + i][lane] = qw_float_bits(d[i]);
        m->word[MATRIX_A + i][lane] = a[i];
    }
    m->word[MATRIX_B][lane] = b[0];
    m->word[MATRIX_B + 1][lane] = b[1];
    if (completes(w, w->all)) {
        multiply(m, kind == MATRIX_BF16);
        release_all(w);
    } else {
        wait();
    }
    for (int i = 0; i < 4; i++)
        d[i] = qw_bits_float(m->word[MATRIX_D + i][lane]);
}

template <int COUNT, typename T>
void load_matrix(site, collective_kind kind, uint32_t (&r)[COUNT], const qw_shared<T> &view, int i)
{
    const bool transposed = kind == LOAD_MATRIX_2_TRANSPOSED || kind == LOAD_MATRIX_4_TRANSPOSED;
    here->met[here->turn].word[here_lane] = reinterpret_cast<uintptr_t>(view.base + i);
    const uint64_t *rows = meet_all(here)->word;
    for (int m = 0; m < COUNT; m++)
        r[m] = matrix_pair(rows + m * 8, here_lane, transposed);
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
