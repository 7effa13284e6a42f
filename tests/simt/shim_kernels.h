/* Kernels that try the SIMT machine: right ones, and one for each fault that it must find. */
#ifndef QW_TESTS_SIMT_SHIM_KERNELS_H
#define QW_TESTS_SIMT_SHIM_KERNELS_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* 1: the launch ran to its end. */
int32_t shim_reverse(const int32_t *in, int32_t *out, int32_t count); /* each block of 96, by shared memory */
int32_t shim_warp_sum(const float *in, float *out,
                      int32_t count); /* per warp, by shuffles; count of threads */
int32_t shim_shuffles(int32_t *out);  /* [4][2 warps]: idx, up, down, xor of the lane number */
int32_t shim_votes(int32_t *out);     /* [8] */
int32_t shim_atomics(int32_t *out);   /* [4] */
int32_t shim_vectors(const float *in, float *out, int32_t count);
int32_t shim_spin(int32_t rounds, int32_t *out); /* 256 threads, a barrier a round */

/* One warp of 32. which: 0 the machine's instruction, 1 the portable form. half: 0 BF16, 1 F16.
 * a [16][16], b [16][8] as they lie in memory, d [16][8] added to. */
int32_t shim_matrix(int32_t which, int32_t half, const uint16_t *a, const uint16_t *b, float *d);
/* The same product with a and b out of shared memory by load_matrix: b is [8][16] (transposed = 0) or
 * [16][8]. */
int32_t shim_load_matrix(int32_t which, int32_t transposed, const uint16_t *a, const uint16_t *b, float *d);
/* Two groups of copies of 32 x 16 bytes, the second not valid for odd lanes. */
int32_t shim_copies(const uint16_t *in, uint16_t *out);

/* Each of these plants a fault. */
int32_t shim_fault_beyond(void);
int32_t shim_fault_launch_bytes(void);
int32_t shim_fault_uninitialised(void);
int32_t shim_fault_uninitialised_in_next_block(void);
int32_t shim_fault_early_exit(void);
int32_t shim_fault_two_barriers(void);
int32_t shim_fault_absent_lane(void);
int32_t shim_fault_lane_at_barrier(void);
int32_t shim_fault_reads_outsider(void);
int32_t shim_fault_race_write(void);
int32_t shim_fault_race_read(void);
int32_t shim_fault_race_after_read(void);
int32_t shim_fault_race_in_warp(void);
int32_t shim_fault_race_across_warps(void);
int32_t shim_fault_race_static(void);
int32_t shim_fault_race_atomic(void);
int32_t shim_fault_copy_without_wait(void);
int32_t shim_fault_copy_without_barrier(void);
int32_t shim_fault_copy_over_readers(void);
int32_t shim_fault_alignment(void);
int32_t shim_right_warp_barrier(void); /* and this is the right form of race_in_warp */

#ifdef __cplusplus
}
#endif

#endif
