#include "lib/session/cache.h"

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

static qwen36_status plan_blocks(qw_cache_plan *plan, int32_t max_sessions, int32_t context,
                                 uint64_t cache_bytes, qwen36_error *error)
{
    uint64_t per_session = ((uint64_t)context + QW_KV_BLOCK - 1) / QW_KV_BLOCK;
    uint64_t wanted = per_session * (uint64_t)max_sessions;
    if (cache_bytes > 0 && plan->block_bytes > 0)
        wanted = cache_bytes / plan->block_bytes;
    if (wanted == 0)
        return qw_fail(error, QWEN36_ERROR_ARGUMENT,
                       "cache_bytes is %llu, but one block of %d tokens takes %llu bytes",
                       (unsigned long long)cache_bytes, QW_KV_BLOCK, (unsigned long long)plan->block_bytes);
    if (wanted > INT32_MAX / QW_KV_BLOCK && cache_bytes == 0)
        return too_large(error);
    plan->blocks = (int32_t)QW_MIN(wanted, INT32_MAX / QW_KV_BLOCK);
    return times((uint64_t)plan->blocks, plan->block_bytes, &plan->kv_bytes) ? QWEN36_OK : too_large(error);
}

qwen36_status qw_cache_plan_make(const qw_dims *d, int32_t kv_dtype, int32_t max_sessions, int32_t context,
                                 uint64_t cache_bytes, qw_cache_plan *plan, qwen36_error *error)
{
    *plan = (qw_cache_plan){
        .kv_dtype = kv_dtype, .full_layers = d->full_layers, .linear_layers = d->linear_layers};
    uint64_t keys = 0, state = 0, channels = 0;
    if (!times((uint64_t)d->kv_heads, (uint64_t)qw_kv_row_bytes(kv_dtype, d->head_dim), &keys) ||
        !times(keys, 2 * (uint64_t)plan->full_layers, &plan->kv_token_bytes) ||
        !times(plan->kv_token_bytes, QW_KV_BLOCK, &plan->block_bytes) ||
        !times((uint64_t)d->lin_k_dim * (uint64_t)d->lin_v_dim, 4 * (uint64_t)d->lin_v_heads, &state))
        return too_large(error);
    channels = (uint64_t)qw_dims_conv_channels(d);
    plan->recurrent_bytes = round_up(state);
    plan->conv_bytes = round_up(channels * (uint64_t)(d->conv_width - 1) * 4);
    plan->slots = 2 * max_sessions;
    plan->logit_rows = 2 * max_sessions;
    if (!times(plan->recurrent_bytes + plan->conv_bytes, (uint64_t)plan->linear_layers, &plan->slot_bytes) ||
        !times(plan->slot_bytes, (uint64_t)plan->slots, &plan->state_bytes) ||
        !times((uint64_t)d->vocab_size * 4, (uint64_t)plan->logit_rows + QW_LOGITS_TILE, &plan->logits_bytes))
        return too_large(error);
    return plan_blocks(plan, max_sessions, context, cache_bytes, error);
}

static qwen36_status create_pools(qw_cache *cache, const qw_allocator *a)
{
    qwen36_status status = qw_index_pool_create(&cache->blocks, a, cache->plan.blocks);
    if (status == QWEN36_OK)
        status = qw_index_pool_create(&cache->slots, a, cache->plan.slots);
    if (status == QWEN36_OK)
        status = qw_index_pool_create(&cache->rows, a, cache->plan.logit_rows);
    return status;
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
        status = ops->buffer_create(backend, plan->logits_bytes, QW_SPACE_HOST, &cache->logits);
    if (status != QWEN36_OK) {
        qw_cache_destroy(cache, a, backend);
        return status;
    }
    cache->logits_view = (qw_view){
        &cache->logits, 0, QW_F32, 2, {plan->logit_rows + QW_LOGITS_TILE, vocab_size, 1}, {vocab_size, 1, 1}};
    return QWEN36_OK;
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
    qw_index_pool_destroy(&cache->blocks, a);
    qw_index_pool_destroy(&cache->slots, a);
    qw_index_pool_destroy(&cache->rows, a);
    *cache = (qw_cache){0};
}

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

const float *qw_cache_logits(const qw_cache *cache, int32_t row)
{
    return (const float *)qw_view_data(&cache->logits_view) + (int64_t)row * cache->logits_view.shape[1];
}
