/* A SIMT machine on the CPU, for tests: runs the grids of kernels/cuda compiled by the host's C++ compiler.
 *
 * Blocks run one after another; the threads of a block are fibers that switch at barriers and warp
 * collectives. Shared memory is reached through views (device_checked.h), so every access is checked:
 *   - beyond a view, or beyond what the launch asked for;
 *   - read before it was written (an asynchronous copy counts once it was waited for);
 *   - two threads at the same place between two barriers, one of them writing;
 *   - a thread missing at a block barrier, lanes missing or elsewhere at a warp collective.
 * The first fault ends the launch; simt_fault() tells it. One launch runs at a time in a process.
 *
 * With QW_SIMT_UNCHECKED the same kernels run for speed: shared memory is plain memory (device_plain.h),
 * threads switch straight to one another, and the one fault left is that nobody can go on.
 */
#ifndef QW_TESTS_SIMT_H
#define QW_TESTS_SIMT_H

#include "tests/simt/simt_control.h"

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus

struct uint3 {
    unsigned x, y, z;
};
struct dim3 {
    unsigned x, y, z;
    constexpr dim3(unsigned x_ = 1, unsigned y_ = 1, unsigned z_ = 1) : x(x_), y(y_), z(z_)
    {
    }
};
extern uint3 threadIdx, blockIdx;
extern dim3 blockDim, gridDim;

namespace simt
{

enum { WARP = QW_WARP_WIDTH, MAX_THREADS = 1024, MAX_SHARED = 227 * 1024 };

/* Where in a source a barrier or collective stands: lanes must meet at the same one. */
#if defined(QW_SIMT_UNCHECKED)
struct site {
};
#define QW_SITE                                                                                              \
    simt::site                                                                                               \
    {                                                                                                        \
    }
#else
struct site {
    const char *file;
    int line;
};
#define QW_SITE                                                                                              \
    simt::site                                                                                               \
    {                                                                                                        \
        __FILE__, __LINE__                                                                                   \
    }
#endif

/* Runs body(argument) for every thread of the grid. False: refused, or a fault. */
bool launch(dim3 grid, unsigned threads, size_t shared_bytes, void (*body)(void *), void *argument);

/* Ends the launch with a fault, formatted as by printf; does not return. */
[[noreturn]] void fail(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* ---- block barriers ---- */

enum barrier_kind { BARRIER_PLAIN, BARRIER_OR, BARRIER_AND, BARRIER_COUNT };
int block_barrier(site where, barrier_kind kind, int predicate);

/* ---- warp collectives ---- */

enum collective_kind {
    WARP_BARRIER,
    SHUFFLE,
    SHUFFLE_UP,
    SHUFFLE_DOWN,
    SHUFFLE_XOR,
    BALLOT,
    MATRIX_BF16,
    MATRIX_F16,
    LOAD_MATRIX_2,
    LOAD_MATRIX_4,
    LOAD_MATRIX_2_TRANSPOSED,
    LOAD_MATRIX_4_TRANSPOSED
};
uint64_t active_lanes();

} // namespace simt
#endif

#endif
