/* kernels/cuda/runtime.h for the SIMT machine: device memory is the host's, and a stream has nothing in
 * flight. Allocations carry a guard on both sides: a kernel that writes beyond one is found when it is freed.
 */
#include "kernels/cuda/runtime.h"

#include "tests/simt/simt_memory.h"

#include <cstdlib>
#include <cstring>

enum { GUARD = 256, GUARD_BYTE = 0xA5 };

static int64_t outstanding, broken;

int64_t simt_memory_outstanding(void)
{
    return outstanding;
}

int64_t simt_memory_broken(void)
{
    return broken;
}

qwen36_status qw_runtime_stream_create(qw_stream *out)
{
    *out = nullptr;
    return QWEN36_OK;
}

void qw_runtime_stream_destroy(qw_stream)
{
}

qwen36_status qw_runtime_allocate(int32_t, uint64_t bytes, void **out)
{
    *out = nullptr;
    char *memory = static_cast<char *>(aligned_alloc(GUARD, (bytes + GUARD - 1) / GUARD * GUARD + 2 * GUARD));
    if (memory == nullptr)
        return QWEN36_ERROR_OUT_OF_MEMORY;
    memcpy(memory, &bytes, sizeof bytes);
    memset(memory + sizeof bytes, GUARD_BYTE, GUARD - sizeof bytes);
    memset(memory + GUARD, 0xFF, bytes); /* NaN, if read as numbers */
    memset(memory + GUARD + bytes, GUARD_BYTE, GUARD);
    outstanding++;
    *out = memory + GUARD;
    return QWEN36_OK;
}

void qw_runtime_free(int32_t, void *memory)
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
    free(begin);
}

qwen36_status qw_runtime_upload(qw_stream, void *device, const void *host, uint64_t bytes)
{
    memcpy(device, host, bytes);
    return QWEN36_OK;
}

qwen36_status qw_runtime_download(qw_stream, void *host, const void *device, uint64_t bytes)
{
    memcpy(host, device, bytes);
    return QWEN36_OK;
}

qwen36_status qw_runtime_wait(qw_stream)
{
    return QWEN36_OK;
}
