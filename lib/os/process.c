#include "lib/os/process.h"

#include <time.h>
#include <unistd.h>

int64_t qw_process_id(void)
{
    return (int64_t)getpid();
}

uint64_t qw_clock_nanoseconds(void)
{
    struct timespec now = {0, 0};
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

double qw_clock_seconds(void)
{
    return 1e-9 * (double)qw_clock_nanoseconds();
}
