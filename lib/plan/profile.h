/* What is known of a device: queried by its backend, or given by a test. Plans (plan.h) are functions of it.
 */
#ifndef QW_PLAN_PROFILE_H
#define QW_PLAN_PROFILE_H

#include <stdint.h>

typedef struct qw_device_profile {
    int32_t capability; /* 10 x major + minor */
    int32_t multiprocessors;
    int32_t warp_width;
    int32_t matrix_bf16; /* 1: matrix units that multiply BF16 */
    int32_t async_copy;  /* 1: copies into shared memory beside the arithmetic */
    int32_t library;     /* 1: a library of matrix products is at hand, and may be used */
    uint32_t disabled;   /* rows of the plans' tables that are out of use here (qw_plan_bit) */
    int32_t reserved;
    int64_t shared_bytes; /* of one block, the most that can be asked for */
    int64_t l2_bytes;
    int64_t bandwidth; /* bytes a second; 0: not known */
} qw_device_profile;

#endif
