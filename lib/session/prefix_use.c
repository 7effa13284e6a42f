/* What a session does with the prefix index: it stands on what is known, and makes known what it computes. */
#include "lib/session/session.h"

#include <string.h>

/* ---- standing on a known prefix ------------------------------------------------------------------------ */

/* The new blocks are held before the old ones are dropped: they may be the same. Under the model's lock. */
static void stand_on(qwen36_session *s, int32_t depth, int32_t node)
{
    qw_cache *cache = &s->model->cache;
    for (int32_t i = node; i >= 0; i = cache->prefix.node[i].parent)
        qw_cache_hold_block(cache, i);
    while (s->block_count > 0)
        qw_cache_drop_block(cache, s->blocks[--s->block_count]);
    for (int32_t i = node, at = depth; i >= 0; i = cache->prefix.node[i].parent)
        s->blocks[--at] = i;
    qw_index_pool_retain(&cache->slots, cache->prefix.node[node].slot);
    qw_cache_drop_slot(cache, s->slot);
    qw_index_pool_release(&cache->rows, s->row);
    s->slot = cache->prefix.node[node].slot;
    cache->prefix.node[node].passing = false;
    qw_prefix_touch_snapshot(&cache->prefix, node);
    s->block_count = s->indexed = depth;
    s->computed = depth * QW_KV_BLOCK;
    s->row = s->passing = -1;
}

bool qw_session_adopt(qwen36_session *s, const int32_t *tokens, int32_t count, int32_t beyond)
{
    qwen36_model *m = s->model;
    if (!m->cache.prefix.enabled || count < QW_KV_BLOCK)
        return false;
    int32_t node = -1, tokens_kept;
    qw_mutex_lock(&m->lock);
    int32_t depth = qw_prefix_match(&m->cache.prefix, s->space, -1, 0, tokens, count, &node);
    tokens_kept = depth * QW_KV_BLOCK;
    bool found = depth > 0 && tokens_kept > beyond;
    if (found)
        stand_on(s, depth, node);
    qw_mutex_unlock(&m->lock);
    if (found && tokens != s->tokens) {
        memcpy(s->tokens, tokens, (size_t)tokens_kept * sizeof *tokens);
        memset(s->wants, 0, (size_t)tokens_kept);
    }
    return found;
}

int32_t qw_session_skippable(const qwen36_session *s)
{
    int32_t end = s->length - 1;
    for (int32_t i = s->computed; i < end; i++)
        if ((s->wants[i] & (QW_WANT_ROW | QW_WANT_SCORE)) != 0)
            return i;
    return end;
}

void qw_session_adopt_pending(qwen36_session *s)
{
    qwen36_model *m = s->model;
    qw_prefix *prefix = &m->cache.prefix;
    if (!prefix->enabled || s->length - s->computed <= QW_KV_BLOCK)
        return;
    int32_t from = s->indexed > 0 ? s->blocks[s->indexed - 1] : -1, node = -1, before = s->computed,
            depth = 0;
    qw_mutex_lock(&m->lock);
    if (s->seen != prefix->version)
        depth =
            qw_prefix_match(prefix, s->space, from, s->indexed, s->tokens, qw_session_skippable(s), &node);
    s->seen = prefix->version;
    if (depth * QW_KV_BLOCK > before) {
        stand_on(s, depth, node);
        m->counters.reused += (uint64_t)(s->computed - before);
        s->counters.reused += (uint64_t)(s->computed - before);
    }
    qw_mutex_unlock(&m->lock);
}

/* ---- where a snapshot is worth its memory ----------------------------------------------------------- */

static int32_t block_floor(int32_t position)
{
    return position / QW_KV_BLOCK * QW_KV_BLOCK;
}

/* Turns begin with a token of their own; a user's carries the word "user" behind it. */
static void mark_turns(qwen36_session *s, int32_t from)
{
    const qwen36_model *m = s->model;
    s->marks[QW_MARK_USER] = s->marks[QW_MARK_FIRST_TURN] = 0;
    for (int32_t i = QW_MAX(from, 1); m->turn_token >= 0 && i + 1 < s->length; i++) {
        if (s->tokens[i] != m->turn_token)
            continue;
        if (s->marks[QW_MARK_FIRST_TURN] == 0)
            s->marks[QW_MARK_FIRST_TURN] = block_floor(i);
        if (s->tokens[i + 1] == m->user_token)
            s->marks[QW_MARK_USER] = block_floor(i);
    }
}

void qw_session_mark_prompt(qwen36_session *s, int32_t from)
{
    s->marks[QW_MARK_END] = block_floor(s->length);
    s->marks[QW_MARK_BEFORE_END] = s->length > 0 ? block_floor(s->length - 1) : 0;
    s->marks[QW_MARK_SIBLING] = 0;
    mark_turns(s, from);
}

/* Beside the marks, 64, 128, 256, 512 ...: an edit anywhere finds at least half of what stands before it. */
bool qw_session_keeps(const qwen36_session *s, int32_t position)
{
    int32_t blocks = position / QW_KV_BLOCK;
    if (position == 0 || position % QW_KV_BLOCK != 0)
        return false;
    if ((blocks & (blocks - 1)) == 0)
        return true;
    for (int32_t i = 0; i < QW_MARKS; i++)
        if (s->marks[i] == position)
            return true;
    return false;
}

/* ---- making known ----------------------------------------------------------------------------------- */

/* Equal blocks become one. On the CPU they have equal bits; on a device, the bits of the cuts at which they
 * were first computed (docs/numerics.md). */
static void index_blocks(qwen36_session *s)
{
    qw_cache *cache = &s->model->cache;
    while (s->indexed < s->computed / QW_KV_BLOCK) {
        int32_t i = s->indexed++, parent = i > 0 ? s->blocks[i - 1] : -1;
        int32_t node = qw_prefix_insert(&cache->prefix, s->space, parent,
                                        s->tokens + (int64_t)i * QW_KV_BLOCK, s->blocks[i]);
        if (node == s->blocks[i])
            continue;
        qw_cache_hold_block(cache, node);
        qw_cache_drop_block(cache, s->blocks[i]);
        s->blocks[i] = node;
    }
}

/* The state where the session stands costs nothing to keep: slots are immutable. One that is kept only
 * because the session has just passed there gives way to the next. */
static void keep_current(qwen36_session *s)
{
    qw_prefix *prefix = &s->model->cache.prefix;
    if (s->computed == 0 || s->computed % QW_KV_BLOCK != 0)
        return;
    int32_t node = s->blocks[s->indexed - 1];
    qw_index_pool_retain(&s->model->cache.slots, s->slot);
    qw_prefix_set_snapshot(prefix, node, s->slot, !qw_session_keeps(s, s->computed));
    if (s->passing >= 0 && s->passing != node && prefix->node[s->passing].passing)
        qw_prefix_drop_snapshot(prefix, s->passing);
    s->passing = node;
}

void qw_session_index(qwen36_session *s)
{
    qwen36_model *m = s->model;
    if (!m->cache.prefix.enabled)
        return;
    index_blocks(s);
    for (int32_t i = 0; i < s->step.saves; i++) {
        const qw_state_save *save = &m->saves[s->step.save_begin + i];
        qw_prefix_set_snapshot(&m->cache.prefix, s->blocks[save->position / QW_KV_BLOCK - 1], save->slot,
                               false);
    }
    keep_current(s);
}
