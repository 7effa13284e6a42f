/* The backend's state: opening and closing it, and what a step's batch becomes on the device. */
#include "kernels/cuda/cuda.h"

#include <string.h>

/* ---- integers through kernel arguments -------------------------------------------------------------- */

enum { PUT_INTS = 256 };
struct put_block {
    int32_t value[PUT_INTS];
};

static QW_KERNEL write_ints(int32_t *to, put_block block, int32_t count)
{
    if (static_cast<int>(threadIdx.x) < count)
        to[threadIdx.x] = block.value[threadIdx.x];
}

qwen36_status qw_cuda_put_ints(qw_cuda *cuda, int32_t *to, const int32_t *from, int64_t count)
{
    qwen36_status status = QWEN36_OK;
    for (int64_t begin = 0; begin < count && status == QWEN36_OK; begin += PUT_INTS) {
        const int64_t part = QW_MIN(int64_t{PUT_INTS}, count - begin);
        put_block block = {};
        memcpy(block.value, from + begin, static_cast<size_t>(part) * sizeof *from);
        status = qw_launch(cuda->stream, write_ints, dim3(1), PUT_INTS, 0, to + begin, block,
                           static_cast<int32_t>(part));
    }
    return status;
}

/* ---- rows out of use -------------------------------------------------------------------------------- */

/* The log is the caller's function: it finds its own device current. */
void qw_cuda_disable(qw_cuda *cuda, uint32_t row, const char *why)
{
    if ((cuda->profile.disabled & row) == 0) {
        qw_runtime_leave(cuda->outside);
        qw_log_write(cuda->config.log, QWEN36_LOG_WARNING, "%s is out of use on this device: %s",
                     qw_plan_bit_name(row), why);
        (void)qw_runtime_enter(cuda->config.device);
    }
    cuda->profile.disabled |= row;
}

void qw_cuda_refused(qw_cuda *cuda, uint32_t row)
{
    cuda->refusals++;
    qw_cuda_disable(cuda, row, "it was refused");
}

uint32_t qw_cuda_disabled(const qw_backend *backend)
{
    return static_cast<const qw_cuda *>(backend->self)->profile.disabled;
}

uint64_t qw_cuda_refusals(const qw_backend *backend)
{
    return static_cast<const qw_cuda *>(backend->self)->refusals;
}

/* ---- opening ---------------------------------------------------------------------------------------- */

static uint64_t (*const scratch_needs[])(const qw_backend_config *) = {
    qw_cuda_linear_scratch_bytes,  qw_cuda_mlp_scratch_bytes,    qw_cuda_head_scratch_bytes,
    qw_cuda_experts_scratch_bytes, qw_cuda_delta_scratch_bytes,  qw_cuda_attention_scratch_bytes,
    qw_cuda_logprob_scratch_bytes, qw_cuda_sample_scratch_bytes,
};

uint64_t qw_cuda_scratch_bytes(const qw_backend_config *config)
{
    uint64_t most = QW_CUDA_ALIGNMENT;
    for (size_t i = 0; i < QW_COUNT_OF(scratch_needs); i++)
        most = QW_MAX(most, scratch_needs[i](config));
    return most;
}

static uint64_t tile_bytes(const qw_backend_config *config)
{
    return 2 * static_cast<uint64_t>(config->max_rows) * sizeof(qw_tile);
}

uint64_t qw_cuda_own_bytes(const qw_backend_config *config)
{
    return qw_cuda_round_up(qw_cuda_scratch_bytes(config)) + qw_cuda_round_up(tile_bytes(config)) +
           qw_cuda_round_up(qw_cuda_expert_table_bytes(config));
}

/* Not where a row must not depend on the rows beside it: the library cuts its sums by the shape. Nor where it
 * is out of use from the start, as it is where only what every device can run is asked for. */
static qwen36_status open_library(qw_cuda *cuda)
{
    qwen36_status status = QWEN36_OK;
    const uint32_t row = qw_plan_bit(QW_PLAN_PRODUCTS, QW_PRODUCT_LIBRARY);
    if (cuda->config.batch_invariant == 0 && (cuda->profile.disabled & row) == 0)
        status = qw_blas_open(cuda->allocator, &cuda->blas);
    cuda->profile.library = cuda->blas != nullptr;
    return status;
}

qwen36_status qw_cuda_fail_opening(qwen36_error *error, qwen36_status status, uint64_t bytes)
{
    if (status == QWEN36_ERROR_OUT_OF_MEMORY)
        return qw_fail_memory(error, bytes);
    return qw_fail(error, status, "the device fails while it is opened");
}

static qwen36_status open_parts(qw_cuda *cuda, qwen36_error *error)
{
    void *staging;
    qwen36_status status = qw_runtime_stream_create(&cuda->stream);
    if (status != QWEN36_OK)
        return qw_fail(error, status, "the device gives no stream");
    status = qw_cuda_memory_open(cuda, error);
    if (status != QWEN36_OK)
        return status;
    cuda->scratch = static_cast<unsigned char *>(qw_cuda_take(cuda, cuda->scratch_bytes));
    cuda->device_tiles = static_cast<qw_tile *>(qw_cuda_take(cuda, tile_bytes(&cuda->config)));
    status = qw_runtime_allocate(QW_SPACE_HOST, tile_bytes(&cuda->config), &staging);
    if (status != QWEN36_OK)
        return qw_cuda_fail_opening(error, status, tile_bytes(&cuda->config));
    cuda->staging = static_cast<qw_tile *>(staging);
    status = qw_cuda_experts_open(cuda);
    if (status == QWEN36_OK)
        status = open_library(cuda);
    return status == QWEN36_OK ? status : qw_cuda_fail_opening(error, status, QW_BLAS_WORKSPACE);
}

void qw_cuda_destroy(qw_backend *backend)
{
    qw_cuda *cuda = qw_cuda_of(backend);
    if (cuda == nullptr)
        return;
    if (cuda->stream != nullptr)
        (void)qw_runtime_wait(cuda->stream); /* nothing is under way in what is freed */
    qw_blas_close(cuda->blas);
    qw_cuda_experts_close(cuda);
    qw_runtime_free(QW_SPACE_HOST, cuda->staging);
    qw_cuda_memory_close(cuda);
    qw_runtime_stream_destroy(cuda->stream);
    qw_free(cuda->allocator, cuda);
    *backend = {};
}

qwen36_status qw_cuda_create(const qw_backend_config *config, const qw_device_profile *profile,
                             qw_backend *out, qwen36_error *error)
{
    *out = {};
    if (profile->warp_width != QW_WARP)
        return qw_fail(error, QWEN36_ERROR_DEVICE, "the device has warps of %d lanes, this build is for %d",
                       profile->warp_width, static_cast<int>(QW_WARP));
    qw_cuda *cuda = static_cast<qw_cuda *>(qw_alloc(config->allocator, 1, sizeof *cuda));
    if (cuda == nullptr)
        return qw_fail_memory(error, sizeof *cuda);
    cuda->allocator = config->allocator;
    cuda->config = *config;
    cuda->outside = -1;
    cuda->dims = *config->dims;
    cuda->profile = *profile;
    if (config->device_tier == QWEN36_DEVICE_TIER_GENERAL)
        cuda->profile.disabled |= qw_plan_special_rows();
    cuda->scratch_bytes = qw_cuda_scratch_bytes(config);
    out->self = cuda;
    const qwen36_status status = open_parts(cuda, error);
    if (status != QWEN36_OK)
        qw_cuda_destroy(out);
    return status;
}

/* ---- a step ----------------------------------------------------------------------------------------- */

/* Cuts a segment's rows into tiles of at most `most` rows. */
static int32_t cut_rows(qw_tile *out, int32_t segment, const qw_segment *s, int32_t most)
{
    int32_t count = 0;
    for (int32_t begin = 0; begin < s->row_count; begin += most) {
        const int32_t rows = QW_MIN(most, s->row_count - begin);
        out[count++] = {segment, s->row_begin + begin, rows, begin + rows == s->row_count};
    }
    return count;
}

/* Chunks end at absolute multiples of 64 tokens, where a state is stored, and with the segment. */
static int32_t cut_chunks(qw_tile *out, int32_t segment, const qw_segment *s, const qw_state_write *write)
{
    int32_t count = 0, next = s->write_begin;
    const int32_t writes_end = s->write_begin + s->write_count;
    for (int32_t begin = 0, rows; begin < s->row_count; begin += rows) {
        rows = QW_MIN(int32_t{QW_KV_BLOCK} - (s->position + begin) % QW_KV_BLOCK, s->row_count - begin);
        while (next < writes_end && write[next].row < s->row_begin + begin)
            next++;
        if (next < writes_end)
            rows = QW_MIN(rows, write[next].row + 1 - s->row_begin - begin);
        out[count++] = {segment, s->row_begin + begin, rows, begin + rows == s->row_count};
    }
    return count;
}

static qw_attention_plan plan_attention(const qw_cuda *cuda, const qw_batch *batch)
{
    qw_attention_shape shape = {};
    shape.rows = batch->rows;
    shape.sequences = batch->segments;
    shape.heads = cuda->dims.heads;
    shape.kv_heads = cuda->dims.kv_heads;
    shape.head_dim = cuda->dims.head_dim;
    shape.kv_dtype = cuda->config.kv_dtype;
    shape.invariant = cuda->config.batch_invariant;
    shape.context = cuda->config.max_context;
    shape.partial_bytes = static_cast<int64_t>(qw_cuda_attention_scratch_bytes(&cuda->config));
    for (int32_t s = 0; s < batch->segments; s++) {
        const qw_segment *segment = &batch->segment[s];
        shape.longest = QW_MAX(shape.longest, int64_t{segment->position} + segment->row_count);
        shape.longest_rows = QW_MAX(shape.longest_rows, segment->row_count);
    }
    return qw_plan_attention(&cuda->profile, &shape);
}

qwen36_status qw_cuda_step_begin(qw_backend *backend, const qw_batch *batch)
{
    qw_cuda *cuda = qw_cuda_of(backend);
    qw_cuda_tables *t = &cuda->tables;
    *t = {};
    if (batch->rows > cuda->config.max_rows)
        return QWEN36_ERROR_INTERNAL;
    t->attention = plan_attention(cuda, batch);
    qw_tile *next = cuda->staging; /* one list behind the other: what is copied is what the step has */
    for (int32_t s = 0; s < batch->segments; s++)
        next += cut_rows(next, s, &batch->segment[s], t->attention.rows);
    t->attention_tiles = static_cast<int32_t>(next - cuda->staging);
    for (int32_t s = 0; s < batch->segments; s++)
        next += cut_chunks(next, s, &batch->segment[s], batch->state_write);
    t->chunks = static_cast<int32_t>(next - cuda->staging) - t->attention_tiles;
    t->attention_tile = cuda->device_tiles;
    t->chunk = cuda->device_tiles + t->attention_tiles;
    qwen36_status status = qw_runtime_upload(cuda->stream, cuda->device_tiles, cuda->staging,
                                             static_cast<uint64_t>(next - cuda->staging) * sizeof *next);
    if (status == QWEN36_OK && batch->device->base != batch->host)
        status = qw_runtime_upload(cuda->stream, batch->device->base, batch->host, batch->bytes);
    return status;
}

qwen36_status qw_cuda_step_end(qw_backend *backend)
{
    return qw_runtime_wait(qw_cuda_of(backend)->stream);
}

/* An event is taken again after QW_LAYERS_AHEAD layers: by then the device has passed it. */
qwen36_status qw_cuda_pace_layer(qw_backend *backend)
{
    qw_cuda *cuda = qw_cuda_of(backend);
    const qw_event event = cuda->pace.passed[cuda->pace.layers++ % QW_LAYERS_AHEAD];
    const qwen36_status status = qw_runtime_event_wait(event);
    return status == QWEN36_OK ? qw_runtime_event_record(event, cuda->stream) : status;
}
