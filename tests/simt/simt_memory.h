/* The pretended devices under the SIMT machine (runtime.cpp): their memory, what they are, and the faults
 * that a test plants. There are two of them, alike. */
#ifndef QW_TESTS_SIMT_MEMORY_H
#define QW_TESTS_SIMT_MEMORY_H

#include "lib/plan/profile.h"

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { SIMT_DEVICES = 2 };

int64_t simt_memory_outstanding(void);
int64_t simt_memory_broken(void); /* allocations freed with damaged guards */

/* Null: the default again, a device of sm_80 (warps of 32 lanes) or one of 16 multiprocessors and 48 KiB
 * (64). */
void simt_set_profile(const qw_device_profile *profile);
/* 1: as without a driver. */
void simt_no_device(int32_t on);
/* What qw_runtime_free_memory answers while nothing is allocated on a device; default 8 GiB. */
void simt_set_free_memory(uint64_t bytes);
/* Of the calling thread. Allocations and streams are of this device; what is issued to a stream of another
 * one finds the device lost. */
int32_t simt_current_device(void);
void simt_set_current_device(int32_t device);

/* The n-th allocation from now (1: the next) finds no memory; 0: none. */
void simt_fail_allocation(int64_t n);
/* From the n-th launch, copy, wait, allocation, or call for a stream, event or product from now on, each of
 * them answers that the device is lost. So they do also behind a fault of a kernel, until simt_clear_fault.
 */
void simt_lose_device(int64_t n);
void simt_revive_device(void);

/* 1: qw_blas_open finds a library (blas.cpp). Default 0. */
void simt_library(int32_t on);
/* The n-th product of the library from now is refused, with rubbish in y; 0: none. */
void simt_refuse_library(int64_t n);
int64_t simt_library_products(void); /* made so far */

#ifdef __cplusplus
}
#endif

#endif
