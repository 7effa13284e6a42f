/* The worker pool: threads - 1 workers and the calling thread share the items of one loop at a time.
 * Each begins with a run of neighbouring items and then takes over what others have not begun, so the cost
 * of items may differ; which worker gets which is not defined, and results must not depend on it. */
#ifndef QW_CPU_POOL_H
#define QW_CPU_POOL_H

#include "lib/base/base.h"

typedef struct qw_pool qw_pool;
/* `worker` is 0 .. threads - 1 and distinct among the calls that run at the same time. */
typedef void qw_pool_task(void *argument, int64_t item, int32_t worker);

/* A pool of one has no threads. */
qwen36_status qw_pool_create(const qw_allocator *allocator, int32_t threads, qw_pool **out,
                             qwen36_error *error);
void qw_pool_destroy(qw_pool *pool);
int32_t qw_pool_threads(const qw_pool *pool);

/* Calls task(argument, i, worker) for every 0 <= i < items and returns when all have returned. One caller
 * at a time; never from within a task. Allocates nothing and cannot fail. */
void qw_pool_run(qw_pool *pool, qw_pool_task *task, void *argument, int64_t items);

#endif
