/* Launches and device memory, as the backend's host code sees them. runtime.cu implements the functions with
 * the CUDA runtime; the SIMT machine of the tests has its own. */
#ifndef QW_CUDA_RUNTIME_H
#define QW_CUDA_RUNTIME_H

#include "kernels/cuda/device.h"

extern "C" {
#include "lib/backend.h"
}

/* Keeps a parameter out of template argument deduction. */
template <typename T> struct qw_same {
    typedef T type;
};

#if defined(QW_DEVICE_SHIM)

struct qw_stream_state;
typedef qw_stream_state *qw_stream;

/* A refusal means that nothing ran: another row of the op's table may be tried. */
template <typename... P>
qwen36_status qw_launch(qw_stream, void (*kernel)(P...), dim3 grid, unsigned threads, size_t shared_bytes,
                        typename qw_same<P>::type... arguments)
{
    auto call = [=] { kernel(arguments...); };
    auto body = [](void *closure) { (*static_cast<decltype(call) *>(closure))(); };
    return simt::launch(grid, threads, shared_bytes, body, &call) ? QWEN36_OK : QWEN36_ERROR_DEVICE;
}

#else

typedef cudaStream_t qw_stream;

/* Shared memory beyond this must be asked for by an attribute of the kernel. */
enum { QW_PLAIN_SHARED_BYTES = 48 * 1024 };

/* A refusal means that nothing ran: another row of the op's table may be tried. */
template <typename... P>
qwen36_status qw_launch(qw_stream stream, void (*kernel)(P...), dim3 grid, unsigned threads,
                        size_t shared_bytes, typename qw_same<P>::type... arguments)
{
    const void *function = reinterpret_cast<const void *>(kernel);
    if (shared_bytes > QW_PLAIN_SHARED_BYTES &&
        cudaFuncSetAttribute(function, cudaFuncAttributeMaxDynamicSharedMemorySize,
                             static_cast<int>(shared_bytes)) != cudaSuccess)
        return QWEN36_ERROR_DEVICE;
    void *pointers[] = {const_cast<void *>(static_cast<const void *>(&arguments))...};
    const cudaError_t error = cudaLaunchKernel(function, grid, dim3(threads), pointers, shared_bytes, stream);
    return error == cudaSuccess ? QWEN36_OK : QWEN36_ERROR_DEVICE;
}

#endif

extern "C" {

/* A stream of our own; all work of a backend is ordered on it. */
qwen36_status qw_runtime_stream_create(qw_stream *out);
void qw_runtime_stream_destroy(qw_stream stream);
/* QW_SPACE_DEVICE, or QW_SPACE_HOST: pinned, so that copies run beside the host. */
qwen36_status qw_runtime_allocate(int32_t space, uint64_t bytes, void **out);
void qw_runtime_free(int32_t space, void *memory);
/* In stream order; pinned host memory must stay as it is until then. */
qwen36_status qw_runtime_upload(qw_stream stream, void *device, const void *host, uint64_t bytes);
qwen36_status qw_runtime_download(qw_stream stream, void *host, const void *device, uint64_t bytes);
/* Until everything issued has finished; a fault of the device appears here at the latest. */
qwen36_status qw_runtime_wait(qw_stream stream);
}

#endif
