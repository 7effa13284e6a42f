/* The prefix index: finds KV blocks and state snapshots again by the tokens that made them.
 *
 * A node stands for a KV block whose 64 tokens are known and complete, and for everything before it: its
 * parent is the node of the block before. So a node is a prefix of a timeline, and its number is that of
 * its block. Nodes are found by a chained content hash; a hit compares namespace, parent and the tokens
 * themselves. A node may carry a snapshot: the state slot after its last token. A prefix can be reused up to
 * a node with a snapshot and no further: a missing snapshot is a miss.
 *
 * The index holds one reference on a node's block and one on its snapshot's slot. While nobody else holds
 * the block, the node is *idle* and may be evicted. Who holds a block holds all blocks before it, and drops
 * the later ones first; so in the order of becoming idle every node stands before its parent, and evicting
 * from the old end never leaves a node without its parent.
 *
 * Nothing is allocated after create. The caller holds the model's lock.
 */
#ifndef QW_SESSION_PREFIX_H
#define QW_SESSION_PREFIX_H

#include "lib/backend.h"
#include "lib/base/hash.h"
#include "lib/session/index_pool.h"

typedef struct qw_prefix_node {
    qw_hash128 hash;       /* of everything from the begin through this block */
    uint64_t space;        /* the caller's namespace */
    int32_t parent;        /* -1: the block is a timeline's first */
    int32_t next;          /* in its bucket; -1 */
    int32_t slot;          /* the snapshot; -1 */
    int32_t older, newer;  /* among the idle; -1 */
    int32_t before, after; /* among the snapshots, by last use; -1 */
    uint64_t flushed;      /* stamp of the last flush that looked at the snapshot */
    bool present, idle;
    bool passing; /* the snapshot of a decoding session's last block: replaced by the next one */
} qw_prefix_node;

typedef struct qw_prefix {
    bool enabled;
    qw_index_pool *blocks, *slots;
    qw_prefix_node *node; /* [blocks] */
    int32_t *tokens;      /* [blocks][64] */
    int32_t *bucket;      /* [bucket_mask + 1]: first node; -1 */
    uint32_t bucket_mask;
    qw_hash128 root; /* what the model, the arithmetic and the format put into every hash */
    int32_t oldest_idle, newest_idle;
    int32_t oldest_snapshot, newest_snapshot;
    int32_t nodes, idle, snapshots;
    uint64_t block_evictions, snapshot_evictions;
    uint64_t version; /* counts new snapshots: whether looking again can find more */
} qw_prefix;

qwen36_status qw_prefix_create(qw_prefix *prefix, const qw_allocator *a, qw_index_pool *blocks,
                               qw_index_pool *slots, bool enabled);
uint64_t qw_prefix_bytes(int32_t blocks); /* what create allocates */
void qw_prefix_destroy(qw_prefix *prefix, const qw_allocator *a);

/* The node of 64 tokens behind `parent` (-1: at the begin); -1 if there is none. */
int32_t qw_prefix_find(const qw_prefix *prefix, uint64_t space, int32_t parent, const int32_t *tokens);
/* Makes `block` the node of these tokens, unless there is one; returns that node. */
int32_t qw_prefix_insert(qw_prefix *prefix, uint64_t space, int32_t parent, const int32_t *tokens,
                         int32_t block);

/* The longest prefix of tokens[0, count) that ends in a snapshot, looked for from node `from` (-1: the
 * begin), which covers `depth` blocks, on. Returns its depth in blocks and its last node; 0 if none is longer
 * than `depth`. */
int32_t qw_prefix_match(const qw_prefix *prefix, uint64_t space, int32_t from, int32_t depth,
                        const int32_t *tokens, int32_t count, int32_t *last);

/* Gives a node a snapshot (the index takes the caller's reference on the slot); with one already, the new
 * one is dropped. Touch marks it as just used. */
void qw_prefix_set_snapshot(qw_prefix *prefix, int32_t node, int32_t slot, bool passing);
void qw_prefix_drop_snapshot(qw_prefix *prefix, int32_t node);
void qw_prefix_touch_snapshot(qw_prefix *prefix, int32_t node);

/* A holder came or went: keeps the order of the idle. */
void qw_prefix_block_held(qw_prefix *prefix, int32_t block);
void qw_prefix_block_dropped(qw_prefix *prefix, int32_t block);

/* Frees one block, one slot; false if nothing can be evicted. */
bool qw_prefix_evict_block(qw_prefix *prefix);
bool qw_prefix_evict_slot(qw_prefix *prefix);
/* Evicts everything that is idle, and every snapshot. */
void qw_prefix_clear(qw_prefix *prefix);

/* Whether lists, buckets, parents and counts agree: for tests, after every operation. */
bool qw_prefix_check(const qw_prefix *prefix);

#endif
