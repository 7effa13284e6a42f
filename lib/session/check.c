/* Invariants of what sessions share, for tests: docs/state.md lists them. */
#include "lib/session/session.h"

static bool check_session(const qwen36_session *s)
{
    const qw_cache *cache = &s->model->cache;
    int32_t whole = s->computed / QW_KV_BLOCK, blocks = (s->computed + QW_KV_BLOCK - 1) / QW_KV_BLOCK;
    bool sound = s->computed <= s->length && s->length <= s->capacity && s->block_count == blocks &&
                 s->indexed == (cache->prefix.enabled ? whole : 0) && (s->slot >= 0) == (s->computed > 0);
    for (int32_t i = 0; sound && i < s->indexed; i++)
        sound = cache->prefix.node[s->blocks[i]].present &&
                cache->prefix.node[s->blocks[i]].parent == (i > 0 ? s->blocks[i - 1] : -1);
    return sound;
}

/* Holders of number `index` of a pool, as far as sessions go. `kind` 0: blocks, 1: slots, 2: rows. */
static int32_t holders(const qwen36_model *m, int kind, int32_t index)
{
    int32_t count = 0;
    for (const qwen36_session *s = m->sessions; s != NULL; s = s->next) {
        for (int32_t i = 0; kind == 0 && i < s->block_count; i++)
            count += s->blocks[i] == index;
        count += (kind == 1 && s->slot == index) + (kind == 2 && s->row == index);
    }
    return count;
}

static int32_t snapshots_on(const qw_prefix *p, int32_t slot)
{
    int32_t count = 0;
    for (int32_t i = p->oldest_snapshot; i >= 0; i = p->node[i].after)
        count += p->node[i].slot == slot;
    return count;
}

static bool check_counts(const qwen36_model *m)
{
    const qw_cache *c = &m->cache;
    for (int32_t i = 0; i < c->blocks.capacity; i++)
        if (c->blocks.count[i] != holders(m, 0, i) + (c->prefix.enabled && c->prefix.node[i].present))
            return false;
    for (int32_t i = 0; i < c->slots.capacity; i++)
        if (c->slots.count[i] != holders(m, 1, i) + snapshots_on(&c->prefix, i))
            return false;
    for (int32_t i = 0; i < c->rows.capacity; i++)
        if (c->rows.count[i] != holders(m, 2, i))
            return false;
    return true;
}

bool qw_sessions_check(qwen36_model *m)
{
    qw_mutex_lock(&m->lock);
    const qw_cache *c = &m->cache;
    bool sound = qw_index_pool_check(&c->blocks) && qw_index_pool_check(&c->slots) &&
                 qw_index_pool_check(&c->rows) && qw_prefix_check(&c->prefix) && check_counts(m);
    int32_t sessions = 0;
    for (const qwen36_session *s = m->sessions; s != NULL && sound; s = s->next, sessions++)
        sound = check_session(s);
    sound = sound && sessions == m->session_count;
    qw_mutex_unlock(&m->lock);
    return sound;
}
