/* A SIMT machine on the CPU, for tests: runs the grids of kernels/cuda compiled by the host's C++ compiler.
 *
 * Blocks run one after another; the threads of a block are fibers that switch at barriers and warp
 * collectives. Shared memory is reached through views (simt_device.h), so every access is checked:
 *   - beyond a view, or beyond what the launch asked for;
 *   - read before it was written (an asynchronous copy counts once it was waited for);
 *   - two threads at the same place between two barriers, one of them writing;
 *   - a thread missing at a block barrier, lanes missing or elsewhere at a warp collective.
 * The first fault ends the launch; simt_fault() tells it. One launch runs at a time in a process.
 */
#ifndef QW_TESTS_SIMT_H
#define QW_TESTS_SIMT_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The text of the first fault since the last call of simt_clear_fault; "" when there is none. */
const char *simt_fault(void);
void simt_clear_fault(void);
/* Launches and fiber switches so far. */
uint64_t simt_launches(void);
uint64_t simt_switches(void);
/* Lanes of a warp in this build: 32 or 64. */
int32_t simt_warp_width(void);
/* The n-th launch from now (1: the next) is refused as if by the device; 0: none. */
void simt_refuse_launch(int64_t n);
/* 1: the matrix instructions exchange neighbouring columns, as a device would whose layout is another. */
void simt_spoil_matrix(int32_t on);

#ifdef __cplusplus
}

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
struct site {
    const char *file;
    int line;
};

/* Runs body(argument) for every thread of the grid. False: refused, or a fault. */
bool launch(dim3 grid, unsigned threads, size_t shared_bytes, void (*body)(void *), void *argument);

/* Ends the launch with a fault, formatted as by printf; does not return. */
[[noreturn]] void fail(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* ---- block barriers ---- */

enum barrier_kind { BARRIER_PLAIN, BARRIER_OR, BARRIER_AND, BARRIER_COUNT };
int block_barrier(site where, barrier_kind kind, int predicate);

/* ---- warp collectives: each lane of the mask gives its words and gets its own back ---- */

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
enum { COLLECTIVE_WORDS = 10 };
void warp_collective(site where, collective_kind kind, uint64_t mask, uint32_t argument,
                     uint32_t words[COLLECTIVE_WORDS]);
uint64_t active_lanes();

/* ---- shared memory: offsets in bytes from the begin of the block's ---- */

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
#endif

#endif
