/* runtime.h over the CUDA runtime. Nothing here changes what belongs to the process or the device as a whole:
 * no flags, no reset, no waiting for a device, no default stream. */
#include "kernels/cuda/runtime.h"

/* ---- errors ------------------------------------------------------------------------------------------- */

/* What the runtime answers before it does anything: of arguments, of a kernel that this device has no code
 * for or no room for, and of a stream that the caller's own threads are capturing. */
static bool is_refusal(cudaError_t error)
{
    switch (error) {
    case cudaErrorInvalidValue:
    case cudaErrorInvalidConfiguration:
    case cudaErrorInvalidDeviceFunction:
    case cudaErrorInvalidKernelImage:
    case cudaErrorNoKernelImageForDevice:
    case cudaErrorInvalidPtx:
    case cudaErrorUnsupportedPtxVersion:
    case cudaErrorJitCompilerNotFound:
    case cudaErrorJitCompilationDisabled:
    case cudaErrorSymbolNotFound:
    case cudaErrorSharedObjectSymbolNotFound:
    case cudaErrorSharedObjectInitFailed:
    case cudaErrorFunctionNotLoaded:
    case cudaErrorLaunchOutOfResources:
    case cudaErrorUnsupportedLimit:
    case cudaErrorNotPermitted:
    case cudaErrorNotSupported:
    case cudaErrorStreamCaptureUnsupported:
    case cudaErrorStreamCaptureImplicit:
    case cudaErrorNoDevice:
    case cudaErrorInvalidDevice:
    case cudaErrorDevicesUnavailable:
    case cudaErrorInsufficientDriver:
        return true;
    default:
        return false;
    }
}

qwen36_status qw_runtime_status(cudaError_t error)
{
    if (error == cudaSuccess)
        return QWEN36_OK;
    (void)cudaGetLastError(); /* the thread's next reader of it would take ours for its own */
    if (error == cudaErrorMemoryAllocation)
        return QWEN36_ERROR_OUT_OF_MEMORY;
    return is_refusal(error) ? QWEN36_ERROR_DEVICE : QWEN36_ERROR_DEVICE_LOST;
}

/* ---- devices ------------------------------------------------------------------------------------------ */

static qwen36_status fail_device(cudaError_t error, int32_t device, qwen36_error *out)
{
    (void)qw_runtime_status(error);
    return qw_fail(out, QWEN36_ERROR_DEVICE, "CUDA device %d: %s", device, cudaGetErrorString(error));
}

/* Why no device can be counted. Without a driver its version reads 0. */
static qwen36_status fail_driver(cudaError_t error, qwen36_error *out)
{
    int driver = 0, build = 0;
    (void)qw_runtime_status(error);
    (void)qw_runtime_status(cudaDriverGetVersion(&driver));
    (void)qw_runtime_status(cudaRuntimeGetVersion(&build));
    if (driver == 0)
        return qw_fail(out, QWEN36_ERROR_DEVICE, "no CUDA driver is installed");
    if (error == cudaErrorInsufficientDriver)
        return qw_fail(out, QWEN36_ERROR_DEVICE,
                       "the CUDA driver is too old: it is for CUDA %d.%d, this build for CUDA %d.%d",
                       driver / 1000, driver % 1000 / 10, build / 1000, build % 1000 / 10);
    if (error == cudaErrorNoDevice)
        return qw_fail(out, QWEN36_ERROR_DEVICE, "the CUDA driver has no device");
    return qw_fail(out, QWEN36_ERROR_DEVICE, "the CUDA driver does not answer: %s",
                   cudaGetErrorString(error));
}

static qwen36_status find_device(int32_t device, qwen36_error *error)
{
    int count = 0;
    const cudaError_t answer = cudaGetDeviceCount(&count);
    if (answer != cudaSuccess)
        return fail_driver(answer, error);
    if (device < 0 || device >= count)
        return qw_fail(error, QWEN36_ERROR_DEVICE, "no CUDA device %d: there are %d", device, count);
    return QWEN36_OK;
}

/* What an attribute is for when the driver does not know it: 0, which no plan needs to be otherwise. */
static int optional_attribute(int32_t device, cudaDeviceAttr attribute)
{
    int value = 0;
    return qw_runtime_status(cudaDeviceGetAttribute(&value, attribute, device)) == QWEN36_OK ? value : 0;
}

/* Attributes are the driver's to tell: no context comes to be, and no memory is taken. */
qwen36_status qw_runtime_profile(int32_t device, qw_device_profile *out, qwen36_error *error)
{
    int major = 0, minor = 0, multiprocessors = 0, warp = 0, shared = 0;
    const struct {
        cudaDeviceAttr attribute;
        int *value;
    } needed[] = {
        {cudaDevAttrComputeCapabilityMajor, &major},        {cudaDevAttrComputeCapabilityMinor, &minor},
        {cudaDevAttrMultiProcessorCount, &multiprocessors}, {cudaDevAttrWarpSize, &warp},
        {cudaDevAttrMaxSharedMemoryPerBlockOptin, &shared},
    };
    *out = {};
    const qwen36_status status = find_device(device, error);
    if (status != QWEN36_OK)
        return status;
    for (size_t i = 0; i < QW_COUNT_OF(needed); i++) {
        const cudaError_t answer = cudaDeviceGetAttribute(needed[i].value, needed[i].attribute, device);
        if (answer != cudaSuccess)
            return fail_device(answer, device, error);
    }
    out->capability = 10 * major + minor;
    out->multiprocessors = multiprocessors;
    out->warp_width = warp;
    out->matrix_bf16 = out->async_copy = out->capability >= 80;
    out->shared_bytes = shared;
    out->l2_bytes = optional_attribute(device, cudaDevAttrL2CacheSize);
    /* Two transfers a clock (in kHz) over so many bits. */
    out->bandwidth = int64_t{optional_attribute(device, cudaDevAttrMemoryClockRate)} * 2000 *
                     (optional_attribute(device, cudaDevAttrGlobalMemoryBusWidth) / 8);
    return QWEN36_OK;
}

qwen36_status qw_runtime_free_memory(int32_t device, uint64_t *bytes, qwen36_error *error)
{
    size_t unused = 0, total = 0;
    *bytes = 0;
    const qwen36_status status = find_device(device, error);
    if (status != QWEN36_OK)
        return status;
    const int32_t before = qw_runtime_enter(device);
    int now = -1;
    cudaError_t answer = cudaGetDevice(&now);
    if (answer == cudaSuccess)
        answer = now == device ? cudaMemGetInfo(&unused, &total) : cudaErrorDevicesUnavailable;
    qw_runtime_leave(before);
    if (answer != cudaSuccess) {
        const qwen36_status why = qw_runtime_status(answer);
        return qw_fail(error, why, "CUDA device %d: %s", device, cudaGetErrorString(answer));
    }
    *bytes = unused;
    return QWEN36_OK;
}

/* What enter returns: a device in the low bits, the thread's mode of capture above. */
enum { DEVICE_BITS = 16, NO_DEVICE = (1 << DEVICE_BITS) - 1 };

/* While some thread of the process captures a stream in the global mode, allocations and waits of all threads
 * are refused, and end that capture, unless they say that they have nothing to do with it. */
static int exchange_capture_mode(int wanted)
{
    cudaStreamCaptureMode mode = static_cast<cudaStreamCaptureMode>(wanted);
    (void)qw_runtime_status(cudaThreadExchangeStreamCaptureMode(&mode));
    return static_cast<int>(mode);
}

/* A device is set only when it is another one, for setting it makes its primary context (hundreds of
 * megabytes) if there is none. A thread that has never used CUDA is told device 0, though nothing exists
 * there: when 0 is the device meant, it is left to our first call to make the context; when another is,
 * leave() sets 0, whose context then comes to be. That costs memory there, but the thread finds itself where
 * it was. Contexts that a caller made by the driver's interface are not seen here: the thread must not have
 * one current. A device that cannot be entered is told by qw_runtime_free_memory, the first to be asked of
 * one. */
int32_t qw_runtime_enter(int32_t device)
{
    int before = NO_DEVICE;
    if (qw_runtime_status(cudaGetDevice(&before)) != QWEN36_OK)
        before = NO_DEVICE;
    if (before != device)
        (void)qw_runtime_status(cudaSetDevice(device));
    return before | exchange_capture_mode(cudaStreamCaptureModeRelaxed) << DEVICE_BITS;
}

void qw_runtime_leave(int32_t before)
{
    int now = -1;
    if (before < 0)
        return;
    (void)exchange_capture_mode(before >> DEVICE_BITS);
    before &= NO_DEVICE;
    if (before == NO_DEVICE || qw_runtime_status(cudaGetDevice(&now)) != QWEN36_OK || now == before)
        return;
    (void)qw_runtime_status(cudaSetDevice(before));
}

/* ---- memory, streams ---------------------------------------------------------------------------------- */

qwen36_status qw_runtime_stream_create(qw_stream *out)
{
    *out = nullptr;
    return qw_runtime_status(cudaStreamCreateWithFlags(out, cudaStreamNonBlocking));
}

void qw_runtime_stream_destroy(qw_stream stream)
{
    if (stream != nullptr)
        (void)qw_runtime_status(cudaStreamDestroy(stream));
}

/* Pinned memory is portable, so that it is pinned for every device and may be freed whichever is current. */
qwen36_status qw_runtime_allocate(int32_t space, uint64_t bytes, void **out)
{
    *out = nullptr;
    return qw_runtime_status(space == QW_SPACE_HOST ? cudaHostAlloc(out, bytes, cudaHostAllocPortable)
                                                    : cudaMalloc(out, bytes));
}

void qw_runtime_free(int32_t space, void *memory)
{
    if (memory != nullptr)
        (void)qw_runtime_status(space == QW_SPACE_HOST ? cudaFreeHost(memory) : cudaFree(memory));
}

qwen36_status qw_runtime_upload(qw_stream stream, void *device, const void *host, uint64_t bytes)
{
    return qw_runtime_status(cudaMemcpyAsync(device, host, bytes, cudaMemcpyHostToDevice, stream));
}

qwen36_status qw_runtime_download(qw_stream stream, void *host, const void *device, uint64_t bytes)
{
    return qw_runtime_status(cudaMemcpyAsync(host, device, bytes, cudaMemcpyDeviceToHost, stream));
}

qwen36_status qw_runtime_copy(qw_stream stream, void *to, const void *from, uint64_t bytes)
{
    return qw_runtime_status(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, stream));
}

/* Work that cannot be waited for may go on for ever in memory that its owner takes for free. */
qwen36_status qw_runtime_wait(qw_stream stream)
{
    const qwen36_status status = qw_runtime_status(cudaStreamSynchronize(stream));
    return status == QWEN36_OK ? status : QWEN36_ERROR_DEVICE_LOST;
}

/* ---- events ------------------------------------------------------------------------------------------- */

/* A wait sleeps: how threads wait for a stream is a flag of the whole device, which is not ours, so a wait
 * that shall not spin goes by an event. Nobody reads its time. */
qwen36_status qw_runtime_event_create(qw_event *out)
{
    *out = nullptr;
    return qw_runtime_status(cudaEventCreateWithFlags(out, cudaEventDisableTiming | cudaEventBlockingSync));
}

void qw_runtime_event_destroy(qw_event event)
{
    if (event != nullptr)
        (void)qw_runtime_status(cudaEventDestroy(event));
}

qwen36_status qw_runtime_event_record(qw_event event, qw_stream stream)
{
    return qw_runtime_status(cudaEventRecord(event, stream));
}

qwen36_status qw_runtime_event_wait(qw_event event)
{
    return qw_runtime_status(cudaEventSynchronize(event));
}
