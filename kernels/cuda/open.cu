/* This build opens the CUDA backend. */
#include "kernels/cuda/cuda.h"

extern "C" {

qwen36_status qw_backend_open(const qw_backend_config *config, qw_backend *out, qwen36_error *error)
{
    return qw_cuda_backend_open(config, out, error);
}

qwen36_status qw_backend_free_bytes(int32_t device, uint64_t *bytes, qwen36_error *error)
{
    return qw_runtime_free_memory(device, bytes, error);
}

uint64_t qw_backend_scratch_bytes(const qw_backend_config *config)
{
    return qw_cuda_own_bytes(config);
}

const char *qw_backend_name(void)
{
    return "cuda";
}
}
