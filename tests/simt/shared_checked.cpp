/* The shared memory of the running block, with a shadow that knows who touched what since which barrier. */
#include "tests/simt/checked.h"

#include <cstring>
#include <vector>

namespace simt
{

/* Two bytes: the smallest element that kernels keep in shared memory. */
enum { UNIT = 2, UNITS = MAX_SHARED / UNIT, NOBODY = -1, SEVERAL = -2 };

/* The last writer and the readers since then. Epochs grow for ever, so what an earlier block left never
 * counts. */
struct shadow {
    uint32_t block; /* in which it was initialised */
    uint32_t write_epoch, write_warp_epoch, read_epoch, read_warp_epoch;
    int16_t writer, reader, reader_warp;
    bool atomic;
};

struct async_copy {
    uint32_t offset, bytes, valid_bytes;
    const void *from;
};

/* A thread's copies in flight, and where its groups end among them. */
struct async_queue {
    std::vector<async_copy> copies;
    std::vector<size_t> groups;
};

struct static_variable {
    const void *key;
    uint32_t offset, bytes;
};

alignas(128) static unsigned char memory[MAX_SHARED];
static shadow shadows[UNITS];
static async_queue queues[MAX_THREADS];
static std::vector<static_variable> variables;
static uint32_t block_number;
static size_t dynamic_bytes_now;
static uint32_t static_end;

void shared_begin(size_t dynamic_bytes)
{
    block_number++;
    dynamic_bytes_now = dynamic_bytes;
    variables.clear();
    static_end = static_cast<uint32_t>((dynamic_bytes + 127) / 128 * 128);
    for (unsigned t = 0; t < current.threads; t++) {
        queues[t].copies.clear();
        queues[t].groups.clear();
    }
}

unsigned char *shared_memory()
{
    return memory;
}

size_t shared_dynamic_bytes()
{
    return dynamic_bytes_now;
}

uint32_t shared_static(const void *key, uint32_t bytes)
{
    for (const static_variable &v : variables)
        if (v.key == key)
            return v.offset;
    const uint32_t offset = static_end;
    static_end += (bytes + 127) / 128 * 128;
    if (static_end > MAX_SHARED)
        fail("the static shared memory of a block exceeds the machine's");
    variables.push_back({key, offset, bytes});
    return offset;
}

/* Whether an access by thread `other` (NOBODY: none, SEVERAL: in `warp`) in the same block epoch is not
 * ordered before one by this thread. */
static bool unordered(int other, int warp, uint32_t warp_epoch, int me)
{
    const int my_warp = me / WARP;
    if (other == NOBODY || other == me)
        return false;
    return warp != my_warp || warp_epoch == current.warp_epoch[my_warp];
}

[[noreturn]] static void fail_race(uint32_t offset, const char *what, int other)
{
    if (other == SEVERAL)
        fail("race: %s at byte %u of shared memory, which other threads read since the last barrier", what,
             offset);
    fail("race: %s at byte %u of shared memory, which thread %d touched since the last barrier", what, offset,
         other);
}

static void check_read(const shadow *s, uint32_t offset, int me, bool atomic)
{
    if (s->block != block_number)
        fail("reads byte %u of shared memory, which nobody has written", offset);
    if (s->write_epoch == current.epoch && !(atomic && s->atomic) &&
        unordered(s->writer, s->writer / WARP, s->write_warp_epoch, me))
        fail_race(offset, "a read", s->writer);
}

static void check_write(const shadow *s, uint32_t offset, int me, bool atomic)
{
    if (s->block != block_number)
        return;
    if (s->write_epoch == current.epoch && !(atomic && s->atomic) &&
        unordered(s->writer, s->writer / WARP, s->write_warp_epoch, me))
        fail_race(offset, "a write", s->writer);
    if (s->read_epoch == current.epoch && unordered(s->reader, s->reader_warp, s->read_warp_epoch, me))
        fail_race(offset, "a write", s->reader);
}

static void note_read(shadow *s, int me)
{
    const int warp = me / WARP;
    if (s->read_epoch != current.epoch || s->reader == NOBODY) {
        s->reader = static_cast<int16_t>(me);
        s->reader_warp = static_cast<int16_t>(warp);
    } else {
        if (s->reader != me)
            s->reader = SEVERAL;
        if (s->reader_warp != warp)
            s->reader_warp = SEVERAL;
    }
    s->read_epoch = current.epoch;
    s->read_warp_epoch = current.warp_epoch[warp];
}

static void note_write(shadow *s, int me, bool atomic)
{
    s->block = block_number;
    s->write_epoch = current.epoch;
    s->write_warp_epoch = current.warp_epoch[me / WARP];
    s->writer = static_cast<int16_t>(me);
    s->atomic = atomic;
    s->reader = NOBODY;
}

void shared_access(uint32_t offset, uint32_t bytes, access_kind kind)
{
    const int me = static_cast<int>(thread_number());
    for (uint32_t unit = offset / UNIT; unit < (offset + bytes + UNIT - 1) / UNIT; unit++) {
        shadow *s = &shadows[unit];
        if (kind != WRITE)
            check_read(s, unit * UNIT, me, kind == ATOMIC);
        if (kind != READ)
            check_write(s, unit * UNIT, me, kind == ATOMIC);
        if (kind == READ)
            note_read(s, me);
        else
            note_write(s, me, kind == ATOMIC);
    }
}

/* ---- asynchronous copies ----------------------------------------------------------------------------- */

/* A copy writes at some moment between its issue and the wait: both are checked, and in between nobody may
 * read. */
void shared_copy_async(uint32_t offset, const void *from, uint32_t bytes, uint32_t valid_bytes)
{
    if (offset % bytes != 0 || reinterpret_cast<uintptr_t>(from) % bytes != 0)
        fail("an asynchronous copy of %u bytes is not aligned", bytes);
    shared_access(offset, bytes, WRITE);
    for (uint32_t unit = offset / UNIT; unit < (offset + bytes) / UNIT; unit++)
        shadows[unit].block = 0;
    queues[thread_number()].copies.push_back({offset, bytes, valid_bytes, from});
}

void shared_copy_commit()
{
    async_queue *q = &queues[thread_number()];
    q->groups.push_back(q->copies.size());
}

void shared_copy_wait(unsigned groups_left)
{
    async_queue *q = &queues[thread_number()];
    if (q->groups.size() <= groups_left)
        return;
    const size_t groups = q->groups.size() - groups_left, end = q->groups[groups - 1];
    for (size_t i = 0; i < end; i++) {
        const async_copy &c = q->copies[i];
        shared_access(c.offset, c.bytes, WRITE);
        memset(memory + c.offset, 0, c.bytes);
        memcpy(memory + c.offset, c.from, c.valid_bytes);
    }
    q->copies.erase(q->copies.begin(), q->copies.begin() + static_cast<std::ptrdiff_t>(end));
    q->groups.erase(q->groups.begin(), q->groups.begin() + static_cast<std::ptrdiff_t>(groups));
    for (size_t &group : q->groups)
        group -= end;
}

} // namespace simt
