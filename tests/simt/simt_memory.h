/* What became of the memory that runtime.cpp gave out. */
#ifndef QW_TESTS_SIMT_MEMORY_H
#define QW_TESTS_SIMT_MEMORY_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

int64_t simt_memory_outstanding(void);
int64_t simt_memory_broken(void); /* allocations freed with damaged guards */

#ifdef __cplusplus
}
#endif

#endif
