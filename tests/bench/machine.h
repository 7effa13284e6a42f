/* The physical limits of the machine, measured in the same run as what is compared with them: read
 * bandwidth, float32 multiply-add and BF16 dot rates, all with a given number of threads. */
#ifndef QW_BENCH_MACHINE_H
#define QW_BENCH_MACHINE_H

#include <stdint.h>

typedef struct machine machine;

/* Allocates `bytes` to read from, which should be many times the last-level cache. NULL on failure. */
machine *machine_create(int32_t threads, uint64_t bytes);
void machine_destroy(machine *m);

/* Each is the best of `tries` measurements of some ten milliseconds. */
double machine_read_bandwidth(machine *m, int32_t tries); /* bytes per second */
double machine_f32_rate(machine *m, int32_t tries);       /* operations per second, two per multiply-add */
double machine_bf16_rate(machine *m, int32_t tries);      /* 0 when the processor has no such instruction */

#endif
