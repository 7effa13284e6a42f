#include "lib/session/cache.h"

#include <string.h>

static uint64_t round_up(uint64_t bytes)
{
    return (bytes + QW_ALIGNMENT - 1) / QW_ALIGNMENT * QW_ALIGNMENT;
}

static qwen36_status too_large(qwen36_error *error)
{
    return qw_fail(error, QWEN36_ERROR_OUT_OF_MEMORY,
                   "the cache that these options ask for exceeds 2^62 bytes");
}

/* a * b below 2^62, so that sums of a few such products cannot overflow. */
static bool times(uint64_t a, uint64_t b, uint64_t *out)
{
    return qw_mul(a, b, out) && *out < (uint64_t)1 << 62;
}

enum { AUTO_SNAPSHOTS = 8 }; /* and one more for each of the first so many sessions */

static qwen36_status plan_snapshots(qw_cache_plan *plan, const qw_cache_request *r, qwen36_error *error)
{
    uint64_t snapshots = QW_MIN((uint64_t)r->max_sessions, AUTO_SNAPSHOTS) + AUTO_SNAPSHOTS;
    if (r->snapshot_bytes != QWEN36_BYTES_AUTO)
        snapshots = r->snapshot_bytes / QW_MAX(plan->slot_bytes, 1);
    if (r->snapshot_bytes > 0 && snapshots == 0)
        return qw_fail(error, QWEN36_ERROR_ARGUMENT,
                       "snapshot_bytes is %llu, but one snapshot takes %llu bytes",
                       (unsigned long long)r->snapshot_bytes, (unsigned long long)plan->slot_bytes);
    plan->snapshots = (int32_t)QW_MIN(snapshots, INT32_MAX / 4);
    plan->slots = 2 * r->max_sessions + plan->snapshots;
    return times(plan->slot_bytes, (uint64_t)plan->slots, &plan->state_bytes) ? QWEN36_OK : too_large(error);
}

static qwen36_status plan_blocks(qw_cache_plan *plan, const qw_cache_request *r, qwen36_error *error)
{
    uint64_t per_session = ((uint64_t)r->context + QW_KV_BLOCK - 1) / QW_KV_BLOCK;
    uint64_t wanted = per_session * (uint64_t)r->max_sessions, bytes = r->cache_bytes;
    if (r->memory_bytes > 0)
        bytes = r->memory_bytes > plan->state_bytes ? r->memory_bytes - plan->state_bytes : 1;
    if (bytes > 0 && plan->block_bytes > 0)
        wanted = bytes / plan->block_bytes;
    if (wanted == 0)
        return qw_fail(error, QWEN36_ERROR_ARGUMENT,
                       "%llu bytes are left for KV blocks, but one block of %d tokens takes %llu bytes",
                       (unsigned long long)bytes, QW_KV_BLOCK, (unsigned long long)plan->block_bytes);
    if (wanted > INT32_MAX / QW_KV_BLOCK && bytes == 0)
        return too_large(error);
    plan->blocks = (int32_t)QW_MIN(wanted, INT32_MAX / QW_KV_BLOCK);
    return times((uint64_t)plan->blocks, plan->block_bytes, &plan->kv_bytes) ? QWEN36_OK : too_large(error);
}

qwen36_status qw_cache_plan_make(const qw_dims *d, const qw_cache_request *r, qw_cache_plan *plan,
                                 qwen36_error *error)
{
    *plan = (qw_cache_plan){
        .kv_dtype = r->kv_dtype, .full_layers = d->full_layers, .linear_layers = d->linear_layers};
    uint64_t keys = 0, state = 0, channels = 0;
    if (!times((uint64_t)d->kv_heads, (uint64_t)qw_kv_row_bytes(r->kv_dtype, d->head_dim), &keys) ||
        !times(keys, 2 * (uint64_t)plan->full_layers, &plan->kv_token_bytes) ||
        !times(plan->kv_token_bytes, QW_KV_BLOCK, &plan->block_bytes) ||
        !times((uint64_t)d->lin_k_dim * (uint64_t)d->lin_v_dim, 4 * (uint64_t)d->lin_v_heads, &state))
        return too_large(error);
    channels = (uint64_t)qw_dims_conv_channels(d);
    plan->recurrent_bytes = round_up(state);
    plan->conv_bytes = round_up(channels * (uint64_t)(d->conv_width - 1) * 4);
    plan->logit_rows = 2 * r->max_sessions;
    if (!times(plan->recurrent_bytes + plan->conv_bytes, (uint64_t)plan->linear_layers, &plan->slot_bytes) ||
        !times((uint64_t)d->vocab_size * 4, (uint64_t)plan->logit_rows + QW_LOGITS_TILE, &plan->logits_bytes))
        return too_large(error);
    qwen36_status status = plan_snapshots(plan, r, error);
    return status == QWEN36_OK ? plan_blocks(plan, r, error) : status;
}

static qwen36_status create_pools(qw_cache *cache, const qw_allocator *a)
{
    qwen36_status status = qw_index_pool_create(&cache->blocks, a, cache->plan.blocks);
    if (status == QWEN36_OK)
        status = qw_index_pool_create(&cache->slots, a, cache->plan.slots);
    if (status == QWEN36_OK)
        status = qw_index_pool_create(&cache->rows, a, cache->plan.logit_rows);
    if (status == QWEN36_OK)
        status =
            qw_prefix_create(&cache->prefix, a, &cache->blocks, &cache->slots, cache->plan.snapshots > 0);
    return status;
}

static uint64_t row_bytes(const qw_cache *cache)
{
    return (uint64_t)cache->logits_view.shape[1] * sizeof(float);
}

/* For qw_cache_pass_row and qw_cache_show_row. */
static qwen36_status create_host_rows(qw_cache *cache, const qw_allocator *a)
{
    cache->passing = qw_alloc_raw(a, row_bytes(cache), 1);
    cache->host_row = qw_alloc(a, (size_t)cache->plan.logit_rows, sizeof *cache->host_row);
    return cache->passing != NULL && cache->host_row != NULL ? QWEN36_OK : QWEN36_ERROR_OUT_OF_MEMORY;
}

static void destroy_host_rows(qw_cache *cache, const qw_allocator *a)
{
    for (int32_t i = 0; cache->host_row != NULL && i < cache->plan.logit_rows; i++)
        qw_free(a, cache->host_row[i].logits);
    qw_free(a, cache->host_row);
    qw_free(a, cache->passing);
}

qwen36_status qw_cache_create(qw_cache *cache, const qw_allocator *a, const qw_cache_plan *plan,
                              int32_t vocab_size, qw_backend *backend)
{
    *cache = (qw_cache){.plan = *plan};
    const qw_ops *ops = backend->ops;
    qwen36_status status = create_pools(cache, a);
    if (status == QWEN36_OK)
        status = ops->buffer_create(backend, plan->kv_bytes, QW_SPACE_DEVICE, &cache->kv);
    if (status == QWEN36_OK)
        status = ops->buffer_create(backend, plan->state_bytes, QW_SPACE_DEVICE, &cache->states);
    if (status == QWEN36_OK)
        status = ops->buffer_create(backend, plan->logits_bytes, QW_SPACE_DEVICE, &cache->logits);
    cache->logits_view = (qw_view){
        &cache->logits, 0, QW_F32, 2, {plan->logit_rows + QW_LOGITS_TILE, vocab_size, 1}, {vocab_size, 1, 1}};
    if (status == QWEN36_OK && backend->space == QW_SPACE_DEVICE)
        status = create_host_rows(cache, a);
    if (status != QWEN36_OK)
        qw_cache_destroy(cache, a, backend);
    return status;
}

static void destroy_buffer(qw_backend *backend, qw_buffer *buffer)
{
    if (buffer->base != NULL)
        backend->ops->buffer_destroy(backend, buffer);
}

void qw_cache_destroy(qw_cache *cache, const qw_allocator *a, qw_backend *backend)
{
    destroy_buffer(backend, &cache->kv);
    destroy_buffer(backend, &cache->states);
    destroy_buffer(backend, &cache->logits);
    destroy_host_rows(cache, a);
    qw_prefix_destroy(&cache->prefix, a);
    qw_index_pool_destroy(&cache->blocks, a);
    qw_index_pool_destroy(&cache->slots, a);
    qw_index_pool_destroy(&cache->rows, a);
    *cache = (qw_cache){0};
}

/* ---- taking and dropping ------------------------------------------------------------------------------ */

int32_t qw_cache_take_block(qw_cache *cache)
{
    int32_t block = qw_index_pool_acquire(&cache->blocks);
    if (block < 0 && qw_prefix_evict_block(&cache->prefix))
        block = qw_index_pool_acquire(&cache->blocks);
    return block;
}

void qw_cache_hold_block(qw_cache *cache, int32_t block)
{
    qw_index_pool_retain(&cache->blocks, block);
    qw_prefix_block_held(&cache->prefix, block);
}

void qw_cache_drop_block(qw_cache *cache, int32_t block)
{
    if (block < 0)
        return;
    qw_index_pool_release(&cache->blocks, block);
    qw_prefix_block_dropped(&cache->prefix, block);
}

int32_t qw_cache_take_slot(qw_cache *cache)
{
    int32_t slot = qw_index_pool_acquire(&cache->slots);
    if (slot < 0 && qw_prefix_evict_slot(&cache->prefix))
        slot = qw_index_pool_acquire(&cache->slots);
    return slot;
}

void qw_cache_drop_slot(qw_cache *cache, int32_t slot)
{
    qw_index_pool_release(&cache->slots, slot);
}

int32_t qw_cache_take_row(qw_cache *cache)
{
    int32_t row = qw_index_pool_acquire(&cache->rows);
    if (row >= 0 && cache->host_row != NULL)
        cache->host_row[row].current = false;
    return row;
}

/* ---- views -------------------------------------------------------------------------------------------- */

qw_kv_view qw_cache_kv(const qw_cache *cache, int32_t full_index)
{
    int64_t layer_bytes = (int64_t)cache->plan.block_bytes / QW_MAX(cache->plan.full_layers, 1);
    return (qw_kv_view){&cache->kv, full_index * layer_bytes, (int64_t)cache->plan.block_bytes,
                        cache->plan.kv_dtype};
}

qw_state_view qw_cache_recurrent(const qw_cache *cache, int32_t linear_index)
{
    int64_t layer_bytes = (int64_t)(cache->plan.recurrent_bytes + cache->plan.conv_bytes);
    return (qw_state_view){&cache->states, linear_index * layer_bytes, (int64_t)cache->plan.slot_bytes};
}

qw_state_view qw_cache_conv(const qw_cache *cache, int32_t linear_index)
{
    qw_state_view view = qw_cache_recurrent(cache, linear_index);
    view.layer_offset += (int64_t)cache->plan.recurrent_bytes;
    return view;
}

/* ---- logits on the host -------------------------------------------------------------------------------- */

static const float *host_logits(const qw_cache *cache, int32_t row)
{
    return (const float *)qw_view_data(&cache->logits_view) + (int64_t)row * cache->logits_view.shape[1];
}

static qwen36_status read_row(const qw_cache *cache, qw_backend *backend, int32_t row, float *to)
{
    uint64_t bytes = row_bytes(cache);
    return backend->ops->read(backend, &cache->logits, (uint64_t)row * bytes, to, bytes);
}

qwen36_status qw_cache_pass_row(const qw_cache *cache, qw_backend *backend, int32_t row, const float **logits)
{
    *logits = cache->passing != NULL ? cache->passing : host_logits(cache, row);
    return cache->passing != NULL ? read_row(cache, backend, row, cache->passing) : QWEN36_OK;
}

qwen36_status qw_cache_show_row(qw_cache *cache, const qw_allocator *a, qw_backend *backend, int32_t row,
                                const float **logits)
{
    if (cache->passing == NULL) {
        *logits = host_logits(cache, row);
        return QWEN36_OK;
    }
    qw_host_row *copy = &cache->host_row[row];
    if (copy->logits == NULL)
        copy->logits = qw_alloc_raw(a, row_bytes(cache), 1);
    if (copy->logits == NULL)
        return QWEN36_ERROR_OUT_OF_MEMORY;
    qwen36_status status = copy->current ? QWEN36_OK : read_row(cache, backend, row, copy->logits);
    copy->current = status == QWEN36_OK;
    *logits = copy->logits;
    return status;
}

/* ---- content of a block ---------------------------------------------------------------------------- */

/* Rows of equal size stand one behind the other, 64 tokens' worth again and again: zeroes those of the tokens
 * from `tokens` on, as far as they lie in data = [offset, offset + bytes) of the rows. */
static void blank_rows(uint64_t row, uint64_t offset, unsigned char *data, uint64_t bytes, int32_t tokens)
{
    for (uint64_t part; bytes > 0; offset += part, data += part, bytes -= part) {
        part = QW_MIN(row - offset % row, bytes);
        if (offset / row % QW_KV_BLOCK >= (uint64_t)tokens)
            memset(data, 0, part);
    }
}

/* A layer's part of a block: rows of elements, then with QW_I8 their scales. */
void qw_cache_blank(const qw_cache_plan *plan, const qw_dims *d, uint64_t offset, unsigned char *data,
                    uint64_t bytes, int32_t tokens)
{
    uint64_t row = (uint64_t)(d->head_dim * qw_dtype_size(plan->kv_dtype));
    uint64_t layer = plan->block_bytes / (uint64_t)QW_MAX(plan->full_layers, 1);
    uint64_t elements = 2 * (uint64_t)d->kv_heads * QW_KV_BLOCK * row;
    for (uint64_t part; bytes > 0; offset += part, data += part, bytes -= part) {
        uint64_t at = offset % layer;
        bool scales = at >= elements;
        part = QW_MIN((scales ? layer : elements) - at, bytes);
        blank_rows(scales ? sizeof(float) : row, scales ? at - elements : at, data, part, tokens);
    }
}
