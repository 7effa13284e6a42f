/* Launches and device memory, as the backend's host code sees them. runtime.cu implements the functions with
 * the CUDA runtime; the SIMT machine of the tests has its own. */
#ifndef QW_CUDA_RUNTIME_H
#define QW_CUDA_RUNTIME_H

#include "kernels/cuda/device.h"

extern "C" {
#include "lib/backend.h"
#include "lib/plan/profile.h"
}

/* Keeps a parameter out of template argument deduction. */
template <typename T> struct qw_same {
    typedef T type;
};

#if defined(QW_DEVICE_SHIM)

struct qw_stream_state;
typedef qw_stream_state *qw_stream;

/* QWEN36_ERROR_DEVICE: refused, nothing ran, another row of the op's table may be tried. */
qwen36_status simt_runtime_launch(qw_stream stream, dim3 grid, unsigned threads, size_t shared_bytes,
                                  void (*body)(void *), void *closure);

template <typename... P>
qwen36_status qw_launch(qw_stream stream, void (*kernel)(P...), dim3 grid, unsigned threads,
                        size_t shared_bytes, typename qw_same<P>::type... arguments)
{
    auto call = [=] { kernel(arguments...); };
    auto body = [](void *closure) { (*static_cast<decltype(call) *>(closure))(); };
    return simt_runtime_launch(stream, grid, threads, shared_bytes, body, &call);
}

#else

typedef cudaStream_t qw_stream;

/* The status that an answer of the runtime is. An error is taken out of the calling thread. */
extern "C" qwen36_status qw_runtime_status(cudaError_t error);

/* Shared memory beyond this must be asked for by an attribute of the kernel. */
enum { QW_PLAIN_SHARED_BYTES = 48 * 1024 };

/* A refusal means that nothing ran: another row of the op's table may be tried. */
template <typename... P>
qwen36_status qw_launch(qw_stream stream, void (*kernel)(P...), dim3 grid, unsigned threads,
                        size_t shared_bytes, typename qw_same<P>::type... arguments)
{
    const void *function = reinterpret_cast<const void *>(kernel);
    cudaError_t error = cudaSuccess;
    if (shared_bytes > QW_PLAIN_SHARED_BYTES)
        error = cudaFuncSetAttribute(function, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                     static_cast<int>(shared_bytes));
    void *pointers[] = {const_cast<void *>(static_cast<const void *>(&arguments))...};
    if (error == cudaSuccess)
        error = cudaLaunchKernel(function, grid, dim3(threads), pointers, shared_bytes, stream);
    return qw_runtime_status(error);
}

#endif

/* An event of a stream: what was issued before it. */
#if defined(QW_DEVICE_SHIM)
typedef struct qw_event_state *qw_event;
#else
typedef cudaEvent_t qw_event;
#endif

/* Statuses of all of these: QWEN36_ERROR_DEVICE: refused, nothing was done and the device is well;
 * QWEN36_ERROR_OUT_OF_MEMORY likewise; QWEN36_ERROR_DEVICE_LOST: a fault of an earlier launch or of the
 * device itself, after which the runtime answers nothing else. No error of ours stays behind in the calling
 * thread. */
extern "C" {

/* ---- devices ------------------------------------------------------------------------------------------ */

/* Fails, and says why, where there is no driver, one too old for this build, or no such device. */
qwen36_status qw_runtime_profile(int32_t device, qw_device_profile *out, qwen36_error *error);
/* Of the device's memory, what nobody has taken. */
qwen36_status qw_runtime_free_memory(int32_t device, uint64_t *bytes, qwen36_error *error);
/* Makes a device this thread's current one, and what this thread calls no matter of a graph that another one
 * captures. Returns what was, for leave to put back (-1: nothing). Every other function wants the device of
 * its stream entered. */
int32_t qw_runtime_enter(int32_t device);
void qw_runtime_leave(int32_t before);

/* ---- memory, streams ---------------------------------------------------------------------------------- */

/* A stream of our own, which does not wait for the default one; all work of a backend is ordered on it. */
qwen36_status qw_runtime_stream_create(qw_stream *out);
void qw_runtime_stream_destroy(qw_stream stream);
/* QW_SPACE_DEVICE, or QW_SPACE_HOST: pinned, so that copies run beside the host. */
qwen36_status qw_runtime_allocate(int32_t space, uint64_t bytes, void **out);
void qw_runtime_free(int32_t space, void *memory);
/* In stream order; pinned host memory must stay as it is until then. */
qwen36_status qw_runtime_upload(qw_stream stream, void *device, const void *host, uint64_t bytes);
qwen36_status qw_runtime_download(qw_stream stream, void *host, const void *device, uint64_t bytes);
/* Between two places of the device that do not overlap. */
qwen36_status qw_runtime_copy(qw_stream stream, void *to, const void *from, uint64_t bytes);
/* Until everything issued has finished; a fault of the device appears here at the latest. Never refused: OK
 * or QWEN36_ERROR_DEVICE_LOST. */
qwen36_status qw_runtime_wait(qw_stream stream);

/* ---- events ------------------------------------------------------------------------------------------- */

qwen36_status qw_runtime_event_create(qw_event *out);
void qw_runtime_event_destroy(qw_event event);
qwen36_status qw_runtime_event_record(qw_event event, qw_stream stream);
/* Until what was issued before the last record has finished; at once if there was none. */
qwen36_status qw_runtime_event_wait(qw_event event);

/* ---- products by a library ---------------------------------------------------------------------------- */

/* cuBLASLt where it can be loaded, else null: not a failure. It is of the device entered; its workspace is
 * allocated here. */
struct qw_blas;
enum { QW_BLAS_WORKSPACE = 32 << 20 }; /* bytes */
qwen36_status qw_blas_open(const qw_allocator *allocator, qw_blas **out);
void qw_blas_close(qw_blas *blas);
/* Another version may add in another order. */
uint64_t qw_blas_version(const qw_blas *blas);
/* y [rows, columns] float32 = x [rows, depth] * w [columns, depth]^T, sums in float32. x and w are both BF16
 * or both F16 (dtype), strides in elements. QWEN36_ERROR_DEVICE: it has no way for this shape.
 * QWEN36_ERROR_SYSTEM: it had one, and failed. y may hold anything after either. */
struct qw_blas_product {
    const void *x, *w;
    float *y;
    int64_t x_stride, w_stride, y_stride;
    int64_t rows, depth, columns;
    int32_t dtype; /* of x and w */
};
qwen36_status qw_blas_multiply(qw_blas *blas, qw_stream stream, const qw_blas_product *product);
}

#endif
