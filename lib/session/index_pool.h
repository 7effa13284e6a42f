/* A pool of numbered things (KV blocks, state slots, logits rows) with reference counts.
 *
 * Knows nothing of what lies behind a number. acquire gives a free number with count 1, retain adds a
 * holder, release drops one; at 0 the number is free again. No call allocates after create. The caller
 * holds the model's lock.
 */
#ifndef QW_SESSION_INDEX_POOL_H
#define QW_SESSION_INDEX_POOL_H

#include "lib/base/base.h"

typedef struct qw_index_pool {
    int32_t capacity;
    int32_t free_count;
    int32_t *free;  /* [capacity] a stack: free[0 .. free_count) */
    int32_t *count; /* [capacity] holders of each number */
} qw_index_pool;

qwen36_status qw_index_pool_create(qw_index_pool *pool, const qw_allocator *a, int32_t capacity);
void qw_index_pool_destroy(qw_index_pool *pool, const qw_allocator *a);
/* A free number, or -1. */
int32_t qw_index_pool_acquire(qw_index_pool *pool);
void qw_index_pool_retain(qw_index_pool *pool, int32_t index);
/* -1 is accepted and ignored. */
void qw_index_pool_release(qw_index_pool *pool, int32_t index);
/* Whether counts and free list agree: for tests, after every operation. */
bool qw_index_pool_check(const qw_index_pool *pool);

#endif
