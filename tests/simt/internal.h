/* What the checked and the unchecked machine share inside: the launch that is running, its threads' scheduler
 * (scheduler_checked.cpp or scheduler_plain.cpp, one of which is compiled), what collectives mean. */
#ifndef QW_TESTS_SIMT_INTERNAL_H
#define QW_TESTS_SIMT_INTERNAL_H

#include "tests/simt/fiber.h"
#include "tests/simt/simt.h"

namespace simt
{

struct launch_state {
    unsigned threads;
    size_t shared_bytes;
    void (*body)(void *);
    void *argument;
    fiber home; /* the caller's own context */
    bool failed;
};
extern launch_state running_launch;
extern uint64_t switch_count;

/* Makes blockIdx that of the grid's next block; false: it was the last. */
bool next_block();
/* Keeps the first text. */
void note_fault(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* ---- of the scheduler ---- */

/* All blocks, until one has failed. */
void run_grid();
/* Gives up the launch, from any of its threads. */
[[noreturn]] void leave_grid();

/* ---- meanings ---- */

/* What a barrier of this kind gives for `count` votes of `all`. */
int tally(barrier_kind kind, int count, int all);

} // namespace simt

/* runtime.cpp: what a call of the runtime begins with. */
struct qw_stream_state;
int32_t simt_runtime_call(qw_stream_state *stream);

#endif
