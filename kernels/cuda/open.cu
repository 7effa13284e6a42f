/* This build opens the CUDA backend: so far it only looks for a device. */
#include "kernels/cuda/runtime.h"

extern "C" {
#include "lib/base/base.h"
}

#if !defined(QW_DEVICE_SHIM)
extern "C" {

qwen36_status qw_backend_open(const qw_backend_config *, qw_backend *, qwen36_error *error)
{
    int count = 0;
    const cudaError_t status = cudaGetDeviceCount(&count);
    return qw_fail(error, QWEN36_ERROR_DEVICE, "no usable device: %s", cudaGetErrorString(status));
}

uint64_t qw_backend_scratch_bytes(const qw_backend_config *config)
{
    return qw_cpu_backend_scratch_bytes(config);
}

const char *qw_backend_name(void)
{
    return "cuda";
}

qwen36_status qw_runtime_allocate(int32_t, uint64_t bytes, void **out)
{
    return cudaMalloc(out, bytes) == cudaSuccess ? QWEN36_OK : QWEN36_ERROR_OUT_OF_MEMORY;
}

void qw_runtime_free(int32_t, void *memory)
{
    cudaFree(memory);
}

qwen36_status qw_runtime_upload(qw_stream stream, void *device, const void *host, uint64_t bytes)
{
    const cudaError_t status = cudaMemcpyAsync(device, host, bytes, cudaMemcpyHostToDevice, stream);
    return status == cudaSuccess ? QWEN36_OK : QWEN36_ERROR_DEVICE_LOST;
}

qwen36_status qw_runtime_download(qw_stream stream, void *host, const void *device, uint64_t bytes)
{
    const cudaError_t status = cudaMemcpyAsync(host, device, bytes, cudaMemcpyDeviceToHost, stream);
    return status == cudaSuccess ? QWEN36_OK : QWEN36_ERROR_DEVICE_LOST;
}

qwen36_status qw_runtime_stream_create(qw_stream *out)
{
    const cudaError_t status = cudaStreamCreateWithFlags(out, cudaStreamNonBlocking);
    return status == cudaSuccess ? QWEN36_OK : QWEN36_ERROR_DEVICE;
}

void qw_runtime_stream_destroy(qw_stream stream)
{
    cudaStreamDestroy(stream);
}

qwen36_status qw_runtime_wait(qw_stream stream)
{
    return cudaStreamSynchronize(stream) == cudaSuccess ? QWEN36_OK : QWEN36_ERROR_DEVICE_LOST;
}
}
#endif
