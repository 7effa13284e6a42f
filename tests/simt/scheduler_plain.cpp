/* The threads of a block without checks. A thread that has to wait switches straight to the next that can
 * run, a lane of its own warp if there is one; the last to come to a barrier or collective goes on without a
 * switch. A thread begins when nobody else of its warp can run, on the stack of one that has ended where
 * possible: a kernel without barriers runs from its first block to its last on one stack. */
#include "kernels/cuda/device.h"

#include "tests/simt/internal.h"

int32_t simt_checks(void)
{
    return 0;
}

namespace simt
{

alignas(128) unsigned char dynamic_shared[MAX_SHARED];

warp *here;
unsigned here_lane;

static warp warps[MAX_THREADS / WARP];
static unsigned warp_count;
static fiber *here_fiber; /* on which the running thread runs */
static unsigned at_barrier;
static int barrier_votes, barrier_result;

/* Fibers that have a stack; of these, those whose thread has ended, the last one on top. */
static fiber fibers[MAX_THREADS];
static fiber *idle[MAX_THREADS];
static unsigned fiber_count, idle_count;

/* ---- who is next -------------------------------------------------------------------------------------- */

void leave_grid()
{
    fiber abandoned;
    fiber_count = idle_count = 0;
    for (;;)
        fiber_switch(&abandoned, &running_launch.home);
}

/* The next warp round the block, this one last; null: nobody can run. */
static warp *next_ready_warp()
{
    warp *w = here;
    do {
        w = w + 1 < warps + warp_count ? w + 1 : warps;
        if (w->ready != 0)
            return w;
    } while (w != here);
    return nullptr;
}

/* Names the next thread as the one that runs: the ready lane after this one, else of the next warp. */
static bool choose_next()
{
    uint64_t after = here->ready & (~uint64_t{0} << here_lane << 1), ready = here->ready;
    if (ready == 0) {
        warp *next = next_ready_warp();
        if (next == nullptr)
            return false;
        here = next;
        after = ready = next->ready;
    }
    here_lane = static_cast<unsigned>(__builtin_ctzll(after != 0 ? after : ready));
    threadIdx.x = here->first + here_lane;
    return true;
}

static void fiber_entry();

static fiber *take_fiber()
{
    if (idle_count > 0)
        return idle[--idle_count];
    fiber *made = &fibers[fiber_count];
    fiber_prepare(made, fiber_count++, fiber_entry);
    return made;
}

static void begin_chosen(fiber *on)
{
    here->begun |= bit(here_lane);
    here->context[here_lane] = on;
}

/* Switches from `from`, which may be idle by then, to the thread chosen. */
static inline void run_chosen(fiber *from)
{
    if ((here->begun & bit(here_lane)) == 0)
        begin_chosen(take_fiber());
    here_fiber = here->context[here_lane];
    switch_count++;
    fiber_switch(from, here_fiber);
}

void wait()
{
    fiber *mine = here_fiber;
    here->ready &= ~bit(here_lane);
    if (!choose_next())
        fail("waits for ever, as all other threads do");
    run_chosen(mine);
}

/* ---- barriers and collectives ------------------------------------------------------------------------- */

int block_barrier(site, barrier_kind kind, int predicate)
{
    barrier_votes += predicate != 0;
    if (++at_barrier < running_launch.threads) {
        wait();
        return barrier_result;
    }
    barrier_result = tally(kind, barrier_votes, static_cast<int>(running_launch.threads));
    barrier_votes = 0;
    at_barrier = 0;
    for (warp *w = warps; w < warps + warp_count; w++)
        w->ready = w->all;
    return barrier_result;
}

static void meet_some(warp *w, uint64_t mask)
{
    if (completes(w, mask))
        release(w, mask);
    else
        wait();
}

/* Of some lanes: all meet again when they have read, so that nobody overwrites. */
uint64_t exchange_some(uint64_t mask, uint64_t word, unsigned source)
{
    warp *w = here;
    w->part[here_lane] = word;
    meet_some(w, mask);
    word = w->part[source];
    meet_some(w, mask);
    return word;
}

uint64_t vote_of_some(uint64_t mask)
{
    warp *w = here;
    meet_some(w, mask);
    const uint64_t votes = w->votes & mask;
    meet_some(w, mask);
    return votes;
}

uint64_t active_lanes()
{
    return here->live;
}

/* ---- running ------------------------------------------------------------------------------------------ */

/* Thread 0 of a block is named as the one that runs. */
static void begin_block()
{
    warp_count = (running_launch.threads + WARP - 1) / WARP;
    at_barrier = 0;
    barrier_votes = 0;
    for (unsigned i = 0; i < warp_count; i++) {
        warp *w = &warps[i];
        const unsigned left = running_launch.threads - i * WARP;
        w->first = i * WARP;
        w->all = left < WARP ? bit(left) - 1 : static_cast<qw_lanes>(QW_ALL_LANES);
        w->live = w->ready = w->all;
        w->begun = w->waiting = w->votes = 0;
        w->turn = 0;
    }
    here = warps;
    here_lane = 0;
    threadIdx.x = 0;
}

static bool block_has_ended()
{
    for (unsigned i = 0; i < warp_count; i++)
        if (warps[i].live != 0)
            return false;
    return true;
}

/* Returns when this fiber is to run the body of the thread that is named by then. */
static void end_thread()
{
    here->live &= ~bit(here_lane);
    here->ready &= ~bit(here_lane);
    if (!choose_next()) {
        if (!block_has_ended())
            fail("has ended, while all that are left wait for ever");
        if (!next_block()) {
            idle[idle_count++] = here_fiber;
            fiber_switch(here_fiber, &running_launch.home);
            return;
        }
        begin_block();
    }
    if ((here->begun & bit(here_lane)) == 0) {
        begin_chosen(here_fiber);
        return;
    }
    idle[idle_count++] = here_fiber;
    run_chosen(here_fiber);
}

static void fiber_entry()
{
    for (;;) {
        running_launch.body(running_launch.argument);
        end_thread();
    }
}

void run_grid()
{
    begin_block();
    run_chosen(&running_launch.home);
}

} // namespace simt
