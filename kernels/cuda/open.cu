/* This build opens the CUDA backend. */
#include "kernels/cuda/cuda.h"

/* Not for buffers: the code of kernels, which CUDA loads when each is first launched, the workspace of a
 * library of products, the check of kernels. */
enum { RESERVE = 192 << 20 };

extern "C" {

qwen36_status qw_backend_open(const qw_backend_config *config, qw_backend *out, qwen36_error *error)
{
    return qw_cuda_backend_open(config, out, error);
}

qwen36_status qw_backend_free_bytes(int32_t device, uint64_t *bytes, qwen36_error *error)
{
    const qwen36_status status = qw_runtime_free_memory(device, bytes, error);
    if (status == QWEN36_OK)
        *bytes = *bytes > RESERVE ? *bytes - RESERVE : 1;
    return status;
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
