/* What tests ask of the SIMT machine and tell it; on a GPU tests/gpu/device.cu answers. */
#ifndef QW_TESTS_SIMT_CONTROL_H
#define QW_TESTS_SIMT_CONTROL_H

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
/* 0: built with QW_SIMT_UNCHECKED. */
int32_t simt_checks(void);
/* The n-th launch from now (1: the next) is refused as if by the device; 0: none. */
void simt_refuse_launch(int64_t n);
/* 1: the matrix instructions exchange neighbouring columns, as a device would whose layout is another. */
void simt_spoil_matrix(int32_t on);

#ifdef __cplusplus
}
#endif

#endif
