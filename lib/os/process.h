/* The process and the clock. */
#ifndef QW_OS_PROCESS_H
#define QW_OS_PROCESS_H

#include <stdint.h>

/* Identifies the process: differs in a child after fork(). */
int64_t qw_process_id(void);
/* A monotonic clock. */
uint64_t qw_clock_nanoseconds(void);
double qw_clock_seconds(void);

#endif
