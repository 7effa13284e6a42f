/* The threads of a block: who runs, who waits for whom, and what is wrong when nobody can go on. */
#include "tests/simt/checked.h"

#include <cstring>

int32_t simt_checks(void)
{
    return 1;
}

namespace simt
{

block current;

static thread threads[MAX_THREADS];
static uint32_t warp_epochs[MAX_THREADS];

void leave_grid()
{
    for (;;)
        fiber_switch(&current.running->context, &running_launch.home);
}

void wait_as(thread_state state)
{
    current.running->state = state;
    fiber_switch(&current.running->context, &running_launch.home);
}

/* ---- block barriers ---------------------------------------------------------------------------------- */

static bool same(site a, site b)
{
    return a.line == b.line && strcmp(a.file, b.file) == 0;
}

static void check_barrier(site where, barrier_kind kind)
{
    if (current.exited > 0)
        fail("waits at the block barrier %s:%d, but %u threads have ended", where.file, where.line,
             current.exited);
    for (unsigned t = 0; t < current.threads; t++) {
        const thread *other = &current.all[t];
        if (other->state == AT_BLOCK_BARRIER && (!same(other->where, where) || other->kind != kind))
            fail("is at the block barrier %s:%d, thread %u at another one, %s:%d", where.file, where.line, t,
                 other->where.file, other->where.line);
        if (other->state == AT_BLOCK_BARRIER)
            return; /* the one that came first was compared with all who came since */
    }
}

int block_barrier(site where, barrier_kind kind, int predicate)
{
    check_barrier(where, kind);
    current.running->where = where;
    current.running->kind = kind;
    current.votes += predicate != 0;
    if (++current.at_barrier < current.threads) {
        wait_as(AT_BLOCK_BARRIER);
        return current.result;
    }
    current.result = tally(kind, current.votes, static_cast<int>(current.threads));
    current.votes = 0;
    current.at_barrier = 0;
    current.epoch++;
    for (unsigned t = 0; t < current.threads; t++)
        current.all[t].state = READY;
    return current.result;
}

/* ---- warp collectives -------------------------------------------------------------------------------- */

/* Whether all lanes of the mask are here; a fault when one can never be. */
static bool all_lanes_met(const thread *lanes, unsigned width, const collective *mine)
{
    bool complete = true;
    for (unsigned l = 0; l < width; l++) {
        if ((mine->mask >> l & 1) == 0)
            continue;
        const thread *lane = &lanes[l];
        const char *file = mine->where.file;
        const int line = mine->where.line;
        if (lane->state == EXITED)
            fail("needs lane %u at %s:%d, which has ended", l, file, line);
        if (lane->state == AT_BLOCK_BARRIER)
            fail("needs lane %u at %s:%d, which waits at the block barrier %s:%d", l, file, line,
                 lane->where.file, lane->where.line);
        const collective *other = &lane->met;
        if (lane->state == AT_COLLECTIVE &&
            (!same(other->where, mine->where) || other->kind != mine->kind || other->mask != mine->mask))
            fail("needs lane %u at %s:%d, which is at %s:%d or names other lanes", l, file, line,
                 other->where.file, other->where.line);
        complete = complete && lane->state == AT_COLLECTIVE;
    }
    return complete;
}

static void note_warp_barrier(unsigned warp)
{
    current.warp_epoch[warp]++;
}

void warp_collective(site where, collective_kind kind, uint64_t mask, uint32_t argument,
                     uint32_t words[COLLECTIVE_WORDS])
{
    const unsigned me = thread_number(), lane = me % WARP, warp = me / WARP;
    thread *lanes = &current.all[warp * WARP];
    const unsigned left = current.threads - warp * WARP, width = left < WARP ? left : unsigned{WARP};
    thread *self = current.running;
    if (width < 64 && mask >> width != 0)
        mask &= (uint64_t{1} << width) - 1; /* a full mask in the last, narrower warp */
    if ((mask >> lane & 1) == 0)
        fail("is not among the lanes that it names at %s:%d", where.file, where.line);
    self->met = {where, kind, mask, argument, {}};
    memcpy(self->met.words, words, sizeof self->met.words);
    self->state = AT_COLLECTIVE;
    if (all_lanes_met(lanes, width, &self->met)) {
        complete_collective(lanes, width);
        if (kind == WARP_BARRIER)
            note_warp_barrier(warp);
        for (unsigned l = 0; l < width; l++)
            if (mask >> l & 1)
                lanes[l].state = READY;
    } else {
        wait_as(AT_COLLECTIVE);
    }
    memcpy(words, self->met.words, sizeof self->met.words);
}

uint64_t active_lanes()
{
    const unsigned warp = thread_number() / WARP;
    uint64_t mask = 0;
    for (unsigned l = 0; l < WARP && warp * WARP + l < current.threads; l++)
        if (current.all[warp * WARP + l].state != EXITED)
            mask |= uint64_t{1} << l;
    return mask;
}

/* ---- running ----------------------------------------------------------------------------------------- */

static void fiber_entry()
{
    running_launch.body(running_launch.argument);
    shared_copy_wait(0);
    current.exited++;
    if (current.at_barrier > 0)
        fail("ended, while %u threads wait at a block barrier", current.at_barrier);
    wait_as(EXITED);
}

static void run_thread(unsigned t)
{
    current.running = &current.all[t];
    threadIdx.x = t;
    switch_count++;
    fiber_switch(&running_launch.home, &current.running->context);
}

/* One turn for each thread that can run; whether there was one. A warp goes on as long as it can. */
static bool run_warp(unsigned first, unsigned end)
{
    bool progress = false, again = true;
    while (again && !running_launch.failed) {
        again = false;
        for (unsigned t = first; t < end && !running_launch.failed; t++)
            if (current.all[t].state == READY) {
                run_thread(t);
                progress = again = true;
            }
    }
    return progress;
}

static void run_block()
{
    shared_begin(running_launch.shared_bytes);
    current.exited = current.at_barrier = 0;
    current.votes = 0;
    current.epoch++;
    for (unsigned t = 0; t < current.threads; t++) {
        current.all[t].state = READY;
        fiber_prepare(&current.all[t].context, t, fiber_entry);
    }
    bool progress = true;
    while (progress && !running_launch.failed && current.exited < current.threads) {
        progress = false;
        for (unsigned t = 0; t < current.threads; t += WARP) {
            const unsigned end = t + WARP < current.threads ? t + WARP : current.threads;
            progress = run_warp(t, end) || progress;
        }
    }
    if (running_launch.failed || current.exited == current.threads)
        return;
    running_launch.failed = true;
    for (unsigned t = 0; t < current.threads; t++)
        if (current.all[t].state == AT_COLLECTIVE) {
            threadIdx.x = t;
            note_fault("waits for ever at %s:%d", current.all[t].met.where.file,
                       current.all[t].met.where.line);
        }
}

void run_grid()
{
    current.threads = running_launch.threads;
    current.all = threads;
    current.warp_epoch = warp_epochs;
    do
        run_block();
    while (!running_launch.failed && next_block());
}

} // namespace simt
