/* This build opens the CPU backend. */
#include "lib/backend.h"

qwen36_status qw_backend_open(const qw_backend_config *config, qw_backend *out, qwen36_error *error)
{
    return qw_cpu_backend_open(config, out, error);
}

qwen36_status qw_backend_free_bytes(int32_t device, uint64_t *bytes, qwen36_error *error)
{
    (void)device;
    (void)error;
    *bytes = 0;
    return QWEN36_OK;
}

uint64_t qw_backend_scratch_bytes(const qw_backend_config *config)
{
    return qw_cpu_backend_scratch_bytes(config);
}

const char *qw_backend_name(void)
{
    return "cpu";
}
