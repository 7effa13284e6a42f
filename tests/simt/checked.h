/* What the files of the checked machine share: the block that is running, and where each of its threads is.
 */
#ifndef QW_TESTS_SIMT_CHECKED_H
#define QW_TESTS_SIMT_CHECKED_H

#include "kernels/cuda/device.h"
#include "tests/simt/internal.h"

namespace simt
{

enum thread_state { READY, AT_BLOCK_BARRIER, AT_COLLECTIVE, EXITED };

/* What a lane brought to a collective, and after it what it takes away. */
struct collective {
    site where;
    collective_kind kind;
    uint64_t mask;
    uint32_t argument;
    uint32_t words[COLLECTIVE_WORDS];
};

struct thread {
    fiber context;
    thread_state state;
    site where; /* of the block barrier */
    barrier_kind kind;
    collective met;
};

struct block {
    unsigned threads;
    thread *all;
    thread *running;
    unsigned exited, at_barrier;
    int votes, result;    /* of the block barrier */
    uint32_t epoch;       /* block barriers passed, counted over all blocks and launches */
    uint32_t *warp_epoch; /* [warps] warp barriers passed, likewise */
};
extern block current;

inline unsigned thread_number()
{
    return static_cast<unsigned>(current.running - current.all);
}

/* Gives the processor to the scheduler until someone makes this thread READY. */
void wait_as(thread_state state);

/* The results of a collective whose lanes have all come: first lane of the warp, lanes of the mask. */
void complete_collective(thread *lanes, unsigned width);

/* A new block begins. */
void shared_begin(size_t dynamic_bytes);

} // namespace simt

#endif
