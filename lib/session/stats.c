/* Statistics: the counters of a model or a session, and how its pools stand, in one picture. */
#include "lib/session/session.h"

/* In use are the blocks and slots that are not free: sessions hold them, or the prefix index does. */
static void watch_memory(const qw_cache *cache, qwen36_stats *stats)
{
    const qw_prefix *prefix = &cache->prefix;
    int32_t blocks = cache->blocks.capacity - cache->blocks.free_count;
    int32_t slots = cache->slots.capacity - cache->slots.free_count;
    stats->blocks = (uint64_t)cache->blocks.capacity;
    stats->held_blocks = (uint64_t)(blocks - prefix->idle);
    stats->cached_blocks = (uint64_t)prefix->idle;
    stats->block_evictions = prefix->block_evictions;
    stats->snapshots = (uint64_t)prefix->snapshots;
    stats->snapshot_room = (uint64_t)cache->plan.snapshots;
    stats->snapshot_evictions = prefix->snapshot_evictions;
    stats->kv_bytes = (uint64_t)blocks * cache->plan.block_bytes;
    stats->state_bytes = (uint64_t)slots * cache->plan.slot_bytes;
}

static void watch_counters(const qw_model_counters *counters, qwen36_stats *stats)
{
    stats->steps = counters->steps;
    stats->computed_tokens = counters->computed;
    stats->reused_tokens = counters->reused;
    stats->sampled_tokens = counters->sampled;
    stats->copied_blocks = counters->copies;
    stats->disk_hits = counters->disk_hits;
    stats->disk_writes = counters->disk_writes;
    stats->disk_refusals = counters->disk_refusals;
    stats->schedule_seconds = counters->schedule_seconds;
    stats->compute_seconds = counters->compute_seconds;
    stats->commit_seconds = counters->commit_seconds;
    stats->sample_seconds = counters->sample_seconds;
}

void qw_model_watch(qwen36_model *model, qwen36_stats *stats)
{
    qw_mutex_lock(&model->lock);
    stats->sessions = model->session_count;
    watch_memory(&model->cache, stats);
    watch_counters(&model->counters, stats);
    qw_mutex_unlock(&model->lock);
}

void qw_session_watch(const qwen36_session *s, qwen36_stats *stats)
{
    const qw_cache_plan *plan = &s->model->cache.plan;
    qw_mutex_lock(&s->model->lock);
    stats->sessions = 1;
    stats->steps = s->counters.steps;
    stats->computed_tokens = s->counters.computed;
    stats->reused_tokens = s->counters.reused;
    stats->sampled_tokens = s->counters.sampled;
    stats->copied_blocks = s->counters.copies;
    stats->held_blocks = (uint64_t)s->block_count;
    stats->kv_bytes = (uint64_t)s->block_count * plan->block_bytes;
    stats->state_bytes = s->slot >= 0 ? plan->slot_bytes : 0;
    qw_mutex_unlock(&s->model->lock);
}
