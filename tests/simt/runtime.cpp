/* kernels/cuda/runtime.h for the SIMT machine: device memory is the host's, and a stream has nothing in
 * flight. Allocations carry a guard on both sides: a kernel that writes beyond one is found when it is freed.
 * Faults are planted by the functions of simt_memory.h. */
#include "kernels/cuda/runtime.h"

#include "tests/simt/internal.h"
#include "tests/simt/simt_memory.h"

#include <atomic>
#include <cstdlib>
#include <cstring>

enum { GUARD = 256, GUARD_BYTE = 0xA5 };

struct qw_stream_state {
    int32_t device;
};
struct qw_event_state {
    int32_t unused;
};

static std::atomic<int64_t> outstanding, broken, allocations, calls, waits, event_waits, pinned, most_pinned;
static std::atomic<uint64_t> device_bytes;
static thread_local int32_t current;
static qw_stream_state streams[SIMT_DEVICES] = {{0}, {1}};
static qw_event_state event;

/* ---- what a test says of the devices ------------------------------------------------------------------ */

static const qw_device_profile usual = {.capability = QW_WARP == 32 ? 80 : 70,
                                        .multiprocessors = QW_WARP == 32 ? 108 : 16,
                                        .warp_width = QW_WARP,
                                        .matrix_bf16 = QW_WARP == 32,
                                        .async_copy = QW_WARP == 32,
                                        .library = 0,
                                        .disabled = 0,
                                        .reserved = 0,
                                        .shared_bytes = QW_WARP == 32 ? 163 * 1024 : 48 * 1024,
                                        .l2_bytes = 4 << 20,
                                        .bandwidth = 900000000000};
static qw_device_profile profile = usual;
static bool absent;
static uint64_t free_memory = SIMT_FREE_MEMORY;
/* Calls until the planted fault; 0: none. */
static std::atomic<int64_t> allocations_left, calls_left;
static std::atomic<bool> lost[SIMT_DEVICES];

/* ---- what tests of operations ask for ------------------------------------------------------------------ */

int32_t simt_plants(void)
{
    return 1;
}

int32_t simt_profiles(void)
{
    return QW_WARP == 32 ? 2 : 1;
}

/* Few multiprocessors, so that small shapes fill the device. */
void simt_profile(int32_t device, qw_device_profile *out)
{
    *out = usual;
    out->capability = device == 0 ? 70 : 80;
    out->multiprocessors = 16;
    out->matrix_bf16 = out->async_copy = device;
    out->shared_bytes = device == 0 ? 48 * 1024 : 160 * 1024;
    out->bandwidth = 1000000000000;
}

void *simt_array_create(size_t bytes)
{
    return aligned_alloc(64, (bytes + 127) / 64 * 64);
}

void simt_array_destroy(void *array)
{
    free(array);
}

int64_t simt_memory_outstanding(void)
{
    return outstanding;
}

int64_t simt_memory_broken(void)
{
    return broken;
}

void simt_set_profile(const qw_device_profile *said)
{
    profile = said != nullptr ? *said : usual;
}

void simt_no_device(int32_t on)
{
    absent = on != 0;
}

void simt_set_free_memory(uint64_t bytes)
{
    free_memory = bytes != 0 ? bytes : uint64_t{SIMT_FREE_MEMORY};
}

int32_t simt_current_device(void)
{
    return current;
}

void simt_set_current_device(int32_t device)
{
    current = device;
}

void simt_fail_allocation(int64_t n)
{
    allocations_left = n;
}

void simt_lose_device(int64_t n)
{
    calls_left = n;
}

void simt_revive_device(void)
{
    calls_left = 0;
    for (std::atomic<bool> &device : lost)
        device = false;
}

int64_t simt_allocations(void)
{
    return allocations;
}

int64_t simt_calls(void)
{
    return calls;
}

int64_t simt_waits(void)
{
    return waits;
}

int64_t simt_event_waits(void)
{
    return event_waits;
}

int64_t simt_most_pinned(void)
{
    const int64_t most = most_pinned;
    most_pinned = pinned.load();
    return most;
}

/* Whether this is the call that a countdown was for. */
static bool comes_to_end(std::atomic<int64_t> &left)
{
    return left > 0 && --left == 0;
}

/* Whether what this call wants of the device can be had. */
static qwen36_status call(qw_stream stream)
{
    const bool known = current >= 0 && current < SIMT_DEVICES;
    calls++;
    if (comes_to_end(calls_left) && known)
        lost[current] = true;
    const bool elsewhere = !known || (stream != nullptr && stream->device != current);
    return elsewhere || lost[current] || simt_fault()[0] != 0 ? QWEN36_ERROR_DEVICE_LOST : QWEN36_OK;
}

qwen36_status simt_runtime_call(qw_stream stream)
{
    return call(stream);
}

qwen36_status simt_runtime_launch(qw_stream stream, dim3 grid, unsigned threads, size_t shared_bytes,
                                  void (*body)(void *), void *closure)
{
    const qwen36_status status = call(stream);
    if (status != QWEN36_OK)
        return status;
    if (simt::launch(grid, threads, shared_bytes, body, closure))
        return QWEN36_OK;
    return simt_fault()[0] != 0 ? QWEN36_ERROR_DEVICE_LOST : QWEN36_ERROR_DEVICE;
}

/* ---- devices ------------------------------------------------------------------------------------------ */

static qwen36_status find_device(int32_t device, qwen36_error *error)
{
    if (absent)
        return qw_fail(error, QWEN36_ERROR_DEVICE, "no CUDA driver is installed");
    if (device < 0 || device >= SIMT_DEVICES)
        return qw_fail(error, QWEN36_ERROR_DEVICE, "no CUDA device %d: there are %d", device,
                       static_cast<int>(SIMT_DEVICES));
    return QWEN36_OK;
}

qwen36_status qw_runtime_profile(int32_t device, qw_device_profile *out, qwen36_error *error)
{
    *out = {};
    const qwen36_status status = find_device(device, error);
    if (status == QWEN36_OK)
        *out = profile;
    return status;
}

qwen36_status qw_runtime_free_memory(int32_t device, uint64_t *bytes, qwen36_error *error)
{
    *bytes = 0;
    qwen36_status status = find_device(device, error);
    if (status != QWEN36_OK)
        return status;
    status = call(nullptr);
    if (status != QWEN36_OK)
        return qw_fail(error, status, "CUDA device %d: lost", device);
    *bytes = free_memory - QW_MIN(free_memory, device_bytes.load());
    return QWEN36_OK;
}

int32_t qw_runtime_enter(int32_t device)
{
    const int32_t before = current;
    current = device;
    return before;
}

void qw_runtime_leave(int32_t before)
{
    if (before >= 0)
        current = before;
}

/* ---- memory, streams ---------------------------------------------------------------------------------- */

qwen36_status qw_runtime_stream_create(qw_stream *out)
{
    *out = nullptr;
    const qwen36_status status = call(nullptr);
    if (status == QWEN36_OK)
        *out = &streams[current];
    return status;
}

void qw_runtime_stream_destroy(qw_stream)
{
}

static void count_pinned(int32_t space, int64_t bytes)
{
    if (space != QW_SPACE_HOST)
        return;
    const int64_t now = pinned += bytes;
    if (now > most_pinned)
        most_pinned = now;
}

qwen36_status qw_runtime_allocate(int32_t space, uint64_t bytes, void **out)
{
    *out = nullptr;
    const qwen36_status status = call(nullptr);
    if (status != QWEN36_OK)
        return status;
    allocations++;
    if (comes_to_end(allocations_left) || (space == QW_SPACE_DEVICE && bytes > free_memory))
        return QWEN36_ERROR_OUT_OF_MEMORY;
    char *memory = static_cast<char *>(aligned_alloc(GUARD, (bytes + GUARD - 1) / GUARD * GUARD + 2 * GUARD));
    if (memory == nullptr)
        return QWEN36_ERROR_OUT_OF_MEMORY;
    memcpy(memory, &bytes, sizeof bytes);
    memset(memory + sizeof bytes, GUARD_BYTE, GUARD - sizeof bytes);
    memset(memory + GUARD, 0xFF, bytes); /* NaN, if read as numbers */
    memset(memory + GUARD + bytes, GUARD_BYTE, GUARD);
    outstanding++;
    count_pinned(space, static_cast<int64_t>(bytes));
    device_bytes += space == QW_SPACE_DEVICE ? bytes : 0;
    *out = memory + GUARD;
    return QWEN36_OK;
}

void qw_runtime_free(int32_t space, void *memory)
{
    if (memory == nullptr)
        return;
    char *begin = static_cast<char *>(memory) - GUARD;
    uint64_t bytes;
    memcpy(&bytes, begin, sizeof bytes);
    int damaged = 0;
    for (uint64_t i = sizeof bytes; i < GUARD; i++)
        damaged += static_cast<unsigned char>(begin[i]) != GUARD_BYTE;
    for (uint64_t i = 0; i < GUARD; i++)
        damaged += static_cast<unsigned char>(begin[GUARD + bytes + i]) != GUARD_BYTE;
    broken += damaged > 0;
    outstanding--;
    count_pinned(space, -static_cast<int64_t>(bytes));
    device_bytes -= space == QW_SPACE_DEVICE ? bytes : 0;
    free(begin);
}

static qwen36_status move(qw_stream stream, void *to, const void *from, uint64_t bytes)
{
    const qwen36_status status = call(stream);
    if (status == QWEN36_OK)
        memcpy(to, from, bytes);
    return status;
}

qwen36_status qw_runtime_upload(qw_stream stream, void *device, const void *host, uint64_t bytes)
{
    return move(stream, device, host, bytes);
}

qwen36_status qw_runtime_download(qw_stream stream, void *host, const void *device, uint64_t bytes)
{
    return move(stream, host, device, bytes);
}

qwen36_status qw_runtime_copy(qw_stream stream, void *to, const void *from, uint64_t bytes)
{
    return move(stream, to, from, bytes);
}

qwen36_status qw_runtime_wait(qw_stream stream)
{
    waits++;
    return call(stream);
}

/* ---- events ------------------------------------------------------------------------------------------- */

qwen36_status qw_runtime_event_create(qw_event *out)
{
    const qwen36_status status = call(nullptr);
    *out = status == QWEN36_OK ? &event : nullptr;
    return status;
}

void qw_runtime_event_destroy(qw_event)
{
}

qwen36_status qw_runtime_event_record(qw_event, qw_stream stream)
{
    return call(stream);
}

qwen36_status qw_runtime_event_wait(qw_event)
{
    event_waits++;
    return call(nullptr);
}
