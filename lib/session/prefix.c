#include "lib/session/prefix.h"

#include <string.h>

static size_t bucket_count(int32_t blocks)
{
    size_t buckets = 16;
    while (buckets < (size_t)blocks)
        buckets *= 2;
    return buckets;
}

uint64_t qw_prefix_bytes(int32_t blocks)
{
    return (uint64_t)blocks * (sizeof(qw_prefix_node) + QW_KV_BLOCK * sizeof(int32_t)) +
           bucket_count(blocks) * sizeof(int32_t);
}

qwen36_status qw_prefix_create(qw_prefix *p, const qw_allocator *a, qw_index_pool *blocks,
                               qw_index_pool *slots, bool enabled)
{
    *p = (qw_prefix){.enabled = enabled,
                     .blocks = blocks,
                     .slots = slots,
                     .oldest_idle = -1,
                     .newest_idle = -1,
                     .oldest_snapshot = -1,
                     .newest_snapshot = -1};
    if (!enabled)
        return QWEN36_OK;
    size_t buckets = bucket_count(blocks->capacity);
    p->node = qw_alloc(a, (size_t)blocks->capacity, sizeof *p->node);
    p->tokens = qw_alloc(a, (size_t)blocks->capacity, QW_KV_BLOCK * sizeof *p->tokens);
    p->bucket = qw_alloc_raw(a, buckets, sizeof *p->bucket);
    if (p->node == NULL || p->tokens == NULL || p->bucket == NULL) {
        qw_prefix_destroy(p, a);
        return QWEN36_ERROR_OUT_OF_MEMORY;
    }
    memset(p->bucket, 0xff, buckets * sizeof *p->bucket);
    p->bucket_mask = (uint32_t)buckets - 1;
    return QWEN36_OK;
}

void qw_prefix_destroy(qw_prefix *p, const qw_allocator *a)
{
    qw_free(a, p->node);
    qw_free(a, p->tokens);
    qw_free(a, p->bucket);
    *p = (qw_prefix){0};
}

/* ---- finding ------------------------------------------------------------------------------------------- */

static qw_hash128 hash_of(const qw_prefix *p, uint64_t space, int32_t parent, const int32_t *tokens)
{
    qw_hash128 before = parent >= 0 ? p->node[parent].hash : qw_hash_chain(p->root, &space, sizeof space);
    return qw_hash_chain(before, tokens, QW_KV_BLOCK * sizeof *tokens);
}

static int32_t *bucket_of(const qw_prefix *p, qw_hash128 hash)
{
    return &p->bucket[hash.low & p->bucket_mask];
}

static bool is_node(const qw_prefix *p, int32_t i, uint64_t space, int32_t parent, const int32_t *tokens)
{
    return p->node[i].parent == parent && p->node[i].space == space &&
           memcmp(p->tokens + (int64_t)i * QW_KV_BLOCK, tokens, QW_KV_BLOCK * sizeof *tokens) == 0;
}

static int32_t find_hashed(const qw_prefix *p, qw_hash128 hash, uint64_t space, int32_t parent,
                           const int32_t *tokens)
{
    int32_t i = *bucket_of(p, hash);
    while (i >= 0 && !(qw_hash_equal(p->node[i].hash, hash) && is_node(p, i, space, parent, tokens)))
        i = p->node[i].next;
    return i;
}

int32_t qw_prefix_find(const qw_prefix *p, uint64_t space, int32_t parent, const int32_t *tokens)
{
    return p->enabled ? find_hashed(p, hash_of(p, space, parent, tokens), space, parent, tokens) : -1;
}

int32_t qw_prefix_match(const qw_prefix *p, uint64_t space, int32_t from, int32_t depth,
                        const int32_t *tokens, int32_t count, int32_t *last)
{
    int32_t found = 0, node = from;
    *last = -1;
    for (int32_t i = depth; (i + 1) * QW_KV_BLOCK <= count; i++) {
        node = qw_prefix_find(p, space, node, tokens + (int64_t)i * QW_KV_BLOCK);
        if (node < 0)
            break;
        if (p->node[node].slot >= 0) {
            found = i + 1;
            *last = node;
        }
    }
    return found;
}

/* ---- the idle, oldest first ---------------------------------------------------------------------------- */

static void push_idle(qw_prefix *p, int32_t i)
{
    p->node[i].idle = true;
    p->node[i].older = p->newest_idle;
    p->node[i].newer = -1;
    if (p->newest_idle >= 0)
        p->node[p->newest_idle].newer = i;
    else
        p->oldest_idle = i;
    p->newest_idle = i;
    p->idle++;
}

static void pull_idle(qw_prefix *p, int32_t i)
{
    qw_prefix_node *n = &p->node[i];
    if (n->older >= 0)
        p->node[n->older].newer = n->newer;
    else
        p->oldest_idle = n->newer;
    if (n->newer >= 0)
        p->node[n->newer].older = n->older;
    else
        p->newest_idle = n->older;
    n->idle = false;
    p->idle--;
}

void qw_prefix_block_held(qw_prefix *p, int32_t block)
{
    if (p->enabled && p->node[block].idle)
        pull_idle(p, block);
}

void qw_prefix_block_dropped(qw_prefix *p, int32_t block)
{
    if (p->enabled && p->node[block].present && p->blocks->count[block] == 1)
        push_idle(p, block);
}

/* ---- snapshots, least recently used first -------------------------------------------------------------- */

static void link_snapshot(qw_prefix *p, int32_t i)
{
    p->node[i].before = p->newest_snapshot;
    p->node[i].after = -1;
    if (p->newest_snapshot >= 0)
        p->node[p->newest_snapshot].after = i;
    else
        p->oldest_snapshot = i;
    p->newest_snapshot = i;
}

static void unlink_snapshot(qw_prefix *p, int32_t i)
{
    qw_prefix_node *n = &p->node[i];
    if (n->before >= 0)
        p->node[n->before].after = n->after;
    else
        p->oldest_snapshot = n->after;
    if (n->after >= 0)
        p->node[n->after].before = n->before;
    else
        p->newest_snapshot = n->before;
}

void qw_prefix_set_snapshot(qw_prefix *p, int32_t node, int32_t slot, bool passing)
{
    qw_prefix_node *n = &p->node[node];
    if (n->slot >= 0) {
        qw_index_pool_release(p->slots, slot);
        n->passing = n->passing && passing;
        qw_prefix_touch_snapshot(p, node);
        return;
    }
    n->slot = slot;
    n->passing = passing;
    n->flushed = 0;
    link_snapshot(p, node);
    p->snapshots++;
    p->version++;
}

void qw_prefix_drop_snapshot(qw_prefix *p, int32_t node)
{
    qw_prefix_node *n = &p->node[node];
    if (n->slot < 0)
        return;
    unlink_snapshot(p, node);
    qw_index_pool_release(p->slots, n->slot);
    n->slot = -1;
    n->passing = false;
    p->snapshots--;
}

void qw_prefix_touch_snapshot(qw_prefix *p, int32_t node)
{
    unlink_snapshot(p, node);
    link_snapshot(p, node);
}

/* ---- coming and going ---------------------------------------------------------------------------------- */

int32_t qw_prefix_insert(qw_prefix *p, uint64_t space, int32_t parent, const int32_t *tokens, int32_t block)
{
    qw_hash128 hash = hash_of(p, space, parent, tokens);
    int32_t found = find_hashed(p, hash, space, parent, tokens), *bucket = bucket_of(p, hash);
    if (found >= 0)
        return found;
    p->node[block] = (qw_prefix_node){.hash = hash,
                                      .space = space,
                                      .parent = parent,
                                      .next = *bucket,
                                      .slot = -1,
                                      .older = -1,
                                      .newer = -1,
                                      .before = -1,
                                      .after = -1,
                                      .present = true};
    memcpy(p->tokens + (int64_t)block * QW_KV_BLOCK, tokens, QW_KV_BLOCK * sizeof *tokens);
    *bucket = block;
    qw_index_pool_retain(p->blocks, block);
    p->nodes++;
    return block;
}

static void remove_node(qw_prefix *p, int32_t i)
{
    int32_t *link = bucket_of(p, p->node[i].hash);
    while (*link != i)
        link = &p->node[*link].next;
    *link = p->node[i].next;
    qw_prefix_drop_snapshot(p, i);
    pull_idle(p, i);
    p->node[i].present = false;
    p->nodes--;
    qw_index_pool_release(p->blocks, i);
}

bool qw_prefix_evict_block(qw_prefix *p)
{
    if (!p->enabled || p->oldest_idle < 0)
        return false;
    p->snapshot_evictions += p->node[p->oldest_idle].slot >= 0;
    p->block_evictions++;
    remove_node(p, p->oldest_idle);
    return true;
}

/* A slot that a session stands on is not freed by forgetting the snapshot. */
bool qw_prefix_evict_slot(qw_prefix *p)
{
    if (!p->enabled)
        return false;
    int32_t i = p->oldest_snapshot;
    while (i >= 0 && p->slots->count[p->node[i].slot] > 1)
        i = p->node[i].after;
    if (i < 0)
        return false;
    qw_prefix_drop_snapshot(p, i);
    p->snapshot_evictions++;
    return true;
}

void qw_prefix_clear(qw_prefix *p)
{
    if (!p->enabled)
        return;
    while (p->oldest_idle >= 0)
        remove_node(p, p->oldest_idle);
    while (p->oldest_snapshot >= 0)
        qw_prefix_drop_snapshot(p, p->oldest_snapshot);
}

/* ---- invariants ---------------------------------------------------------------------------------------- */

/* A node is where its hash says, its parent is a node, and it is idle exactly when only the index holds it.
 */
static bool check_node(const qw_prefix *p, int32_t i)
{
    const qw_prefix_node *n = &p->node[i];
    const int32_t *tokens = p->tokens + (int64_t)i * QW_KV_BLOCK;
    if (n->parent >= 0 && (!p->node[n->parent].present || p->node[n->parent].space != n->space))
        return false;
    if (find_hashed(p, n->hash, n->space, n->parent, tokens) != i)
        return false;
    if (n->slot >= 0 && p->slots->count[n->slot] < 1)
        return false;
    return n->idle == (p->blocks->count[i] == 1) && (n->idle || n->parent < 0 || !p->node[n->parent].idle);
}

/* In the order of becoming idle a node stands before its parent. */
static bool check_idle(const qw_prefix *p)
{
    int32_t count = 0;
    for (int32_t i = p->oldest_idle; i >= 0; i = p->node[i].newer) {
        if (!p->node[i].present || !p->node[i].idle || ++count > p->idle)
            return false;
        for (int32_t later = p->node[i].newer, parent = p->node[i].parent; parent >= 0 && later != parent;
             later = p->node[later].newer) {
            if (!p->node[parent].idle)
                break;
            if (later < 0)
                return false;
        }
    }
    return count == p->idle;
}

bool qw_prefix_check(const qw_prefix *p)
{
    int32_t nodes = 0, snapshots = 0, listed = 0;
    for (int32_t i = 0; p->enabled && i < p->blocks->capacity; i++) {
        if (!p->node[i].present)
            continue;
        nodes++;
        snapshots += p->node[i].slot >= 0;
        if (!check_node(p, i))
            return false;
    }
    for (int32_t i = p->oldest_snapshot; i >= 0 && listed <= snapshots; i = p->node[i].after)
        listed++;
    return nodes == p->nodes && snapshots == p->snapshots && listed == snapshots && check_idle(p);
}
