/* Memory of the backend: one arena on the device, taken at once and never grown; staging for weights; copies
 * between steps. */
#include "kernels/cuda/cuda.h"

#include <string.h>

/* ---- opening ---------------------------------------------------------------------------------------- */

static qwen36_status open_arena(qw_cuda *cuda, qwen36_error *error)
{
    void *arena;
    cuda->arena_bytes = qw_cuda_own_bytes(&cuda->config) + cuda->config.device_bytes;
    if (cuda->arena_bytes < cuda->config.device_bytes)
        return qw_fail_memory(error, cuda->config.device_bytes);
    const qwen36_status status = qw_runtime_allocate(QW_SPACE_DEVICE, cuda->arena_bytes, &arena);
    if (status == QWEN36_ERROR_OUT_OF_MEMORY) {
        uint64_t left = 0;
        qw_runtime_free_memory(cuda->config.device, &left, nullptr);
        return qw_fail(error, status,
                       "device %d has %llu bytes free, but %llu are needed for weights, cache, states and "
                       "workspace: fewer sessions, a shorter context or cache_bytes ask for less",
                       cuda->config.device, static_cast<unsigned long long>(left),
                       static_cast<unsigned long long>(cuda->arena_bytes));
    }
    if (status != QWEN36_OK)
        return qw_fail(error, status, "device %d gives no memory", cuda->config.device);
    cuda->arena = static_cast<unsigned char *>(arena);
    return QWEN36_OK;
}

static qwen36_status open_events(qw_cuda *cuda, qwen36_error *error)
{
    qwen36_status status = QWEN36_OK;
    for (int i = 0; i < QW_STAGES && status == QWEN36_OK; i++)
        status = qw_runtime_event_create(&cuda->staged.sent[i]);
    for (int i = 0; i < QW_LAYERS_AHEAD && status == QWEN36_OK; i++)
        status = qw_runtime_event_create(&cuda->pace.passed[i]);
    return status == QWEN36_OK ? status : qw_fail(error, status, "the device gives no events");
}

qwen36_status qw_cuda_memory_open(qw_cuda *cuda, qwen36_error *error)
{
    void *staging;
    qwen36_status status = open_arena(cuda, error);
    if (status == QWEN36_OK)
        status = open_events(cuda, error);
    if (status != QWEN36_OK || cuda->config.device_bytes == 0) /* then nothing will be imported */
        return status;
    status = qw_runtime_allocate(QW_SPACE_HOST, uint64_t{QW_STAGES} * QW_STAGE_BYTES, &staging);
    if (status != QWEN36_OK)
        return qw_cuda_fail_opening(error, status, uint64_t{QW_STAGES} * QW_STAGE_BYTES);
    cuda->staged.memory = static_cast<unsigned char *>(staging);
    return QWEN36_OK;
}

void qw_cuda_memory_close(qw_cuda *cuda)
{
    qw_runtime_free(QW_SPACE_HOST, cuda->staged.memory);
    for (int i = 0; i < QW_STAGES; i++)
        qw_runtime_event_destroy(cuda->staged.sent[i]);
    for (int i = 0; i < QW_LAYERS_AHEAD; i++)
        qw_runtime_event_destroy(cuda->pace.passed[i]);
    qw_runtime_free(QW_SPACE_DEVICE, cuda->arena);
}

/* ---- buffers ---------------------------------------------------------------------------------------- */

/* Pieces are taken in order and given back with the whole arena: all of them live as long as the model. */
void *qw_cuda_take(qw_cuda *cuda, uint64_t bytes)
{
    const uint64_t begin = cuda->arena_used, taken = qw_cuda_round_up(bytes);
    if (taken < bytes || taken > cuda->arena_bytes - begin)
        return nullptr;
    cuda->arena_used += taken;
    return cuda->arena + begin;
}

static qwen36_status take(qw_cuda *cuda, uint64_t bytes, qw_buffer *out)
{
    *out = {};
    void *memory = qw_cuda_take(cuda, bytes);
    if (memory == nullptr)
        return QWEN36_ERROR_OUT_OF_MEMORY;
    *out = {memory, bytes, QW_SPACE_DEVICE, 0};
    return QWEN36_OK;
}

qwen36_status qw_cuda_buffer_create(qw_backend *backend, uint64_t bytes, int32_t space, qw_buffer *out)
{
    if (space == QW_SPACE_DEVICE)
        return take(qw_cuda_of(backend), bytes, out);
    void *memory;
    *out = {};
    const qwen36_status status = qw_runtime_allocate(QW_SPACE_HOST, bytes, &memory);
    if (status == QWEN36_OK)
        *out = {memory, bytes, QW_SPACE_HOST, 1};
    return status;
}

void qw_cuda_buffer_destroy(qw_backend *, qw_buffer *buffer)
{
    if (buffer->owned != 0)
        qw_runtime_free(QW_SPACE_HOST, buffer->base);
    *buffer = {};
}

/* One piece of at most QW_STAGE_BYTES. */
static qwen36_status send(qw_cuda *cuda, unsigned char *to, const unsigned char *from, uint64_t bytes)
{
    qw_cuda_staging *s = &cuda->staged;
    const int32_t stage = s->next;
    unsigned char *pinned = s->memory + uint64_t{QW_STAGE_BYTES} * static_cast<uint64_t>(stage);
    s->next = (stage + 1) % QW_STAGES;
    qwen36_status status = qw_runtime_event_wait(s->sent[stage]);
    if (status != QWEN36_OK)
        return status;
    memcpy(pinned, from, bytes);
    status = qw_runtime_upload(cuda->stream, to, pinned, bytes);
    return status == QWEN36_OK ? qw_runtime_event_record(s->sent[stage], cuda->stream) : status;
}

qwen36_status qw_cuda_import(qw_backend *backend, const void *host, uint64_t bytes, qw_buffer *out)
{
    qw_cuda *cuda = qw_cuda_of(backend);
    const unsigned char *from = static_cast<const unsigned char *>(host);
    qwen36_status status = take(cuda, bytes, out);
    for (uint64_t done = 0; done < bytes && status == QWEN36_OK; done += QW_STAGE_BYTES)
        status = send(cuda, static_cast<unsigned char *>(out->base) + done, from + done,
                      QW_MIN(uint64_t{QW_STAGE_BYTES}, bytes - done));
    return status;
}

/* ---- copies ----------------------------------------------------------------------------------------- */

qwen36_status qw_cuda_read(qw_backend *backend, const qw_buffer *buffer, uint64_t offset, void *host,
                           uint64_t bytes)
{
    const qw_cuda *cuda = qw_cuda_of(backend);
    const char *from = static_cast<const char *>(buffer->base) + offset;
    const qwen36_status status = qw_runtime_download(cuda->stream, host, from, bytes);
    return status == QWEN36_OK ? qw_runtime_wait(cuda->stream) : status;
}

qwen36_status qw_cuda_write(qw_backend *backend, const qw_buffer *buffer, uint64_t offset, const void *host,
                            uint64_t bytes)
{
    const qw_cuda *cuda = qw_cuda_of(backend);
    char *to = static_cast<char *>(buffer->base) + offset;
    const qwen36_status status = qw_runtime_upload(cuda->stream, to, host, bytes);
    return status == QWEN36_OK ? qw_runtime_wait(cuda->stream) : status;
}

qwen36_status qw_cuda_copy(qw_backend *backend, const qw_copy_args *args)
{
    const qw_cuda *cuda = qw_cuda_of(backend);
    char *base = static_cast<char *>(args->buffer->base);
    qwen36_status status = QWEN36_OK;
    for (int32_t i = 0; i < args->count && status == QWEN36_OK; i++)
        status = qw_runtime_copy(cuda->stream, base + args->copy[i].to, base + args->copy[i].from,
                                 args->copy[i].bytes);
    return status;
}
