#include "lib/session/index_pool.h"

qwen36_status qw_index_pool_create(qw_index_pool *pool, const qw_allocator *a, int32_t capacity)
{
    *pool = (qw_index_pool){.capacity = capacity, .free_count = capacity};
    pool->free = qw_alloc(a, (size_t)capacity, sizeof *pool->free);
    pool->count = qw_alloc(a, (size_t)capacity, sizeof *pool->count);
    if (pool->free == NULL || pool->count == NULL) {
        qw_index_pool_destroy(pool, a);
        return QWEN36_ERROR_OUT_OF_MEMORY;
    }
    for (int32_t i = 0; i < capacity; i++) /* the lowest number is on top: small pools stay compact */
        pool->free[i] = capacity - 1 - i;
    return QWEN36_OK;
}

void qw_index_pool_destroy(qw_index_pool *pool, const qw_allocator *a)
{
    qw_free(a, pool->free);
    qw_free(a, pool->count);
    *pool = (qw_index_pool){0};
}

int32_t qw_index_pool_acquire(qw_index_pool *pool)
{
    if (pool->free_count == 0)
        return -1;
    int32_t index = pool->free[--pool->free_count];
    pool->count[index] = 1;
    return index;
}

void qw_index_pool_retain(qw_index_pool *pool, int32_t index)
{
    pool->count[index]++;
}

void qw_index_pool_release(qw_index_pool *pool, int32_t index)
{
    if (index < 0 || --pool->count[index] > 0)
        return;
    pool->free[pool->free_count++] = index;
}

bool qw_index_pool_check(const qw_index_pool *pool)
{
    int32_t unused = 0;
    for (int32_t i = 0; i < pool->capacity; i++) {
        if (pool->count[i] < 0)
            return false;
        unused += pool->count[i] == 0;
    }
    for (int32_t i = 0; i < pool->free_count; i++)
        if (pool->free[i] < 0 || pool->free[i] >= pool->capacity || pool->count[pool->free[i]] != 0)
            return false;
    return unused == pool->free_count;
}
