#include "lib/os/process.h"

#include <time.h>
#include <unistd.h>

int64_t qw_process_id(void)
{
    return (int64_t)getpid();
}

double qw_clock_seconds(void)
{
    struct timespec now = {0, 0};
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}
