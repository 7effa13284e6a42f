/* The pretended devices under the SIMT machine (runtime.cpp): their memory, what they are, and the faults
 * that a test plants. There are two of them, alike. */
#ifndef QW_TESTS_SIMT_MEMORY_H
#define QW_TESTS_SIMT_MEMORY_H

#include "lib/plan/profile.h"

#include <stddef.h>
#include <stdint.h>

struct qw_backend;

#ifdef __cplusplus
extern "C" {
#endif

enum { SIMT_DEVICES = 2 };
#define SIMT_FREE_MEMORY ((uint64_t)8 << 30)

/* 1: what plants faults and refusals does so. 0: the device is a real one (tests/gpu/device.cu), on which
 * these functions do nothing, and nothing is counted. */
int32_t simt_plants(void);
/* What tests of operations open: 0, served by general rows alone, and 1, by all that it has. How many of them
 * differ: 1 or 2. */
int32_t simt_profiles(void);
void simt_profile(int32_t device, qw_device_profile *out);
/* An array that kernels and the host reach; 64-byte aligned. Null when there is no memory. */
void *simt_array_create(size_t bytes);
void simt_array_destroy(void *array);

int64_t simt_memory_outstanding(void);
int64_t simt_memory_broken(void); /* allocations freed with damaged guards */

/* So far: allocations asked for, device and pinned; calls that simt_lose_device counts; waits for a stream;
 * for an event. */
int64_t simt_allocations(void);
int64_t simt_calls(void);
int64_t simt_waits(void);
int64_t simt_event_waits(void);
/* The most bytes that were pinned at a time since it was last asked. */
int64_t simt_most_pinned(void);

/* Null: the default again, a device of sm_80 (warps of 32 lanes) or one of 16 multiprocessors and 48 KiB
 * (64). */
void simt_set_profile(const qw_device_profile *profile);
/* 1: as without a driver. */
void simt_no_device(int32_t on);
/* What qw_runtime_free_memory answers while nothing is allocated on a device, and the largest allocation that
 * a device grants; 0: the default again, SIMT_FREE_MEMORY. */
void simt_set_free_memory(uint64_t bytes);
/* Of the calling thread. Allocations and streams are of this device; what is issued to a stream of another
 * one finds the device lost. */
int32_t simt_current_device(void);
void simt_set_current_device(int32_t device);

/* The n-th allocation from now (1: the next) finds no memory; 0: none. */
void simt_fail_allocation(int64_t n);
/* At the n-th launch, copy, wait, allocation, or call for a stream, event or product from now on, the device
 * that is current then is lost: each of them answers so there. So they do also behind a fault of a kernel, on
 * every device, until simt_clear_fault. Reviving brings all devices back. */
void simt_lose_device(int64_t n);
void simt_revive_device(void);

/* 1: qw_blas_open finds a library (blas.cpp). Default 0. On a real device: simt_profile leaves it in use. */
void simt_library(int32_t on);
/* The n-th product of the library from now is refused, with rubbish in y; 0: none. */
void simt_refuse_library(int64_t n);
/* The n-th product from now fails after the library had agreed to do it; 0: none. */
void simt_break_library(int64_t n);
int64_t simt_library_products(void); /* made so far */
/* Whether a state that qw_cuda_create opened has one. */
int32_t simt_has_library(const struct qw_backend *backend);
/* Products of this format (QW_BF16, QW_F16; -1: of none) have neighbouring columns exchanged. */
void simt_spoil_library(int32_t dtype);

#ifdef __cplusplus
}
#endif

#endif
