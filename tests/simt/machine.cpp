/* Launches and what is known about them, the same for the checked and the unchecked machine. */
#include "tests/simt/internal.h"

#include <cstdarg>
#include <cstdio>
#include <mutex>

uint3 threadIdx, blockIdx;
dim3 blockDim, gridDim;

namespace simt
{

launch_state running_launch;
uint64_t switch_count;

static std::mutex machine;
static char fault_text[512];
static uint64_t launch_count;
static int64_t refuse_in;

static void note_fault_of(const char *format, va_list arguments)
{
    if (fault_text[0] != 0)
        return;
    const int used = snprintf(fault_text, sizeof fault_text, "block (%u,%u,%u) thread %u: ", blockIdx.x,
                              blockIdx.y, blockIdx.z, threadIdx.x);
    vsnprintf(fault_text + used, sizeof fault_text - static_cast<size_t>(used), format, arguments);
}

void note_fault(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    note_fault_of(format, arguments);
    va_end(arguments);
    running_launch.failed = true;
}

void fail(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    note_fault_of(format, arguments);
    va_end(arguments);
    running_launch.failed = true;
    leave_grid();
}

int tally(barrier_kind kind, int count, int all)
{
    switch (kind) {
    case BARRIER_OR:
        return count > 0;
    case BARRIER_AND:
        return count == all;
    default:
        return count;
    }
}

bool next_block()
{
    if (++blockIdx.x < gridDim.x)
        return true;
    blockIdx.x = 0;
    if (++blockIdx.y < gridDim.y)
        return true;
    blockIdx.y = 0;
    return ++blockIdx.z < gridDim.z;
}

bool launch(dim3 grid, unsigned threads, size_t shared_bytes, void (*body)(void *), void *argument)
{
    std::lock_guard<std::mutex> turn(machine);
    launch_count++;
    if (refuse_in > 0 && --refuse_in == 0)
        return false;
    if (threads == 0 || threads > MAX_THREADS || shared_bytes > MAX_SHARED || grid.x == 0 || grid.y == 0 ||
        grid.z == 0 || grid.y > 65535 || grid.z > 65535 || !fiber_reserve(MAX_THREADS))
        return false;
    running_launch.threads = threads;
    running_launch.shared_bytes = shared_bytes;
    running_launch.body = body;
    running_launch.argument = argument;
    running_launch.failed = false;
    gridDim = grid;
    blockDim = dim3(threads);
    blockIdx = {0, 0, 0};
    threadIdx = {0, 0, 0};
    run_grid();
    return !running_launch.failed;
}

} // namespace simt

const char *simt_fault(void)
{
    return simt::fault_text;
}

void simt_clear_fault(void)
{
    simt::fault_text[0] = 0;
}

uint64_t simt_launches(void)
{
    return simt::launch_count;
}

uint64_t simt_switches(void)
{
    return simt::switch_count;
}

int32_t simt_warp_width(void)
{
    return simt::WARP;
}

void simt_refuse_launch(int64_t n)
{
    simt::refuse_in = n;
}
