#include "kernels/cpu/cpu.h"

uint64_t qw_cpu_delta_scratch_bytes(const qw_backend_config *config)
{
    (void)config;
    return 0;
}

qwen36_status qw_cpu_delta(qw_backend *backend, const qw_delta_args *args)
{
    (void)backend;
    (void)args;
    return QWEN36_ERROR_INTERNAL;
}
