#include "kernels/cpu/pool.h"

#include "lib/os/process.h"
#include "lib/os/threads.h"

#include <stdatomic.h>

/* One word says everything about the loop in progress: whether workers may still join it (OPEN), how many
 * are inside (the low bits), and its number (the high bits), so that none joins twice. The other fields
 * of a loop are written only while the word says closed and nobody inside.
 *
 * The caller closes the loop when the items have run out and then waits for those inside. A worker that
 * was still asleep has missed it, which costs nothing. */
enum { INSIDE = 0xffff, OPEN = 0x10000, SPINS = 1000 };
#define NUMBER_ONE ((uint64_t)1 << 32)
#define NUMBER(word) ((word) >> 32)

typedef struct worker {
    qw_pool *pool;
    qw_thread thread;
    int32_t index;
} worker;

/* A worker's share of the items: those from next to end - 1 are still to be done, by whoever takes them. */
typedef struct share {
    _Alignas(64) _Atomic int64_t next;
    int64_t end;
} share;

struct qw_pool {
    const qw_allocator *allocator;
    int32_t threads;
    int32_t started; /* workers that exist */
    int64_t process;
    worker *workers;

    _Alignas(64) _Atomic uint64_t word;
    qw_pool_task *task;
    void *argument;
    share *shares; /* [threads] */

    _Alignas(64) _Atomic int32_t sleepers; /* workers on `wake` */
    _Atomic int32_t waiting;               /* the caller is on `done` */
    _Atomic int32_t stop;
    qw_mutex mutex;
    qw_cond wake, done;
};

static inline void relax(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

/* The own share first, in ascending order, so that a worker walks through memory; then what the others have
 * not begun. */
static void work(qw_pool *pool, int32_t index)
{
    for (int32_t i = 0; i < pool->threads; i++) {
        const int32_t owner = index + i < pool->threads ? index + i : index + i - pool->threads;
        share *from = &pool->shares[owner];
        int64_t item = atomic_fetch_add_explicit(&from->next, 1, memory_order_relaxed);
        for (; item < from->end; item = atomic_fetch_add_explicit(&from->next, 1, memory_order_relaxed))
            pool->task(pool->argument, item, index);
    }
}

/* ---- a worker ------------------------------------------------------------------------------------- */

static bool is_news(qw_pool *pool, uint64_t seen)
{
    uint64_t word = atomic_load(&pool->word);
    return ((word & OPEN) != 0 && NUMBER(word) != seen) || atomic_load(&pool->stop) != 0;
}

/* Returns when there is a loop other than `seen`, or the end. */
static void await_news(qw_pool *pool, uint64_t seen)
{
    for (int i = 0; i < SPINS; i++) {
        if (is_news(pool, seen))
            return;
        relax();
    }
    qw_mutex_lock(&pool->mutex);
    atomic_fetch_add(&pool->sleepers, 1); /* before looking again: see publish */
    while (!is_news(pool, seen))
        qw_cond_wait(&pool->wake, &pool->mutex);
    atomic_fetch_sub(&pool->sleepers, 1);
    qw_mutex_unlock(&pool->mutex);
}

/* Joins the open loop, if there is still one; gives its number. */
static bool join(qw_pool *pool, uint64_t *number)
{
    uint64_t word = atomic_load(&pool->word);
    do {
        if ((word & OPEN) == 0 || NUMBER(word) == *number)
            return false;
    } while (!atomic_compare_exchange_weak(&pool->word, &word, word + 1));
    *number = NUMBER(word);
    return true;
}

static void leave(qw_pool *pool)
{
    uint64_t before = atomic_fetch_sub(&pool->word, 1);
    if ((before & OPEN) == 0 && (before & INSIDE) == 1 && atomic_load(&pool->waiting) != 0) {
        qw_mutex_lock(&pool->mutex);
        qw_cond_signal(&pool->done);
        qw_mutex_unlock(&pool->mutex);
    }
}

static void *worker_body(void *argument)
{
    worker *self = argument;
    qw_pool *pool = self->pool;
    uint64_t seen = 0;
    qw_fp_enter();
    for (;;) {
        await_news(pool, seen);
        if (atomic_load(&pool->stop) != 0)
            return NULL;
        if (join(pool, &seen)) {
            work(pool, self->index);
            leave(pool);
        }
    }
}

/* ---- the caller ------------------------------------------------------------------------------------ */

/* A worker counts itself among the sleepers before it looks at the word for the last time, and this looks
 * at the sleepers after writing the word: one of the two sees the other. */
static void publish(qw_pool *pool)
{
    uint64_t word = atomic_load(&pool->word);
    atomic_store(&pool->word, (NUMBER(word) + 1) * NUMBER_ONE | OPEN);
    if (atomic_load(&pool->sleepers) > 0) {
        qw_mutex_lock(&pool->mutex);
        qw_cond_broadcast(&pool->wake);
        qw_mutex_unlock(&pool->mutex);
    }
}

static bool is_empty(qw_pool *pool)
{
    return (atomic_load(&pool->word) & INSIDE) == 0;
}

static void await_empty(qw_pool *pool)
{
    for (int i = 0; i < SPINS; i++) {
        if (is_empty(pool))
            return;
        relax();
    }
    qw_mutex_lock(&pool->mutex);
    atomic_store(&pool->waiting, 1); /* before looking again: see leave */
    while (!is_empty(pool))
        qw_cond_wait(&pool->done, &pool->mutex);
    atomic_store(&pool->waiting, 0);
    qw_mutex_unlock(&pool->mutex);
}

void qw_pool_run(qw_pool *pool, qw_pool_task *task, void *argument, int64_t items)
{
    if (pool->started == 0 || items <= 1) {
        for (int64_t i = 0; i < items; i++)
            task(argument, i, 0);
        return;
    }
    pool->task = task;
    pool->argument = argument;
    for (int32_t i = 0; i < pool->threads; i++) {
        atomic_store_explicit(&pool->shares[i].next, items * i / pool->threads, memory_order_relaxed);
        pool->shares[i].end = items * (i + 1) / pool->threads;
    }
    publish(pool);
    work(pool, 0);
    atomic_fetch_and(&pool->word, ~(uint64_t)OPEN);
    await_empty(pool);
}

int32_t qw_pool_threads(const qw_pool *pool)
{
    return pool->threads;
}

/* ---- life ------------------------------------------------------------------------------------------- */

static qwen36_status init_locks(qw_pool *pool)
{
    if (qw_mutex_init(&pool->mutex) != QWEN36_OK)
        return QWEN36_ERROR_SYSTEM;
    if (qw_cond_init(&pool->wake) == QWEN36_OK) {
        if (qw_cond_init(&pool->done) == QWEN36_OK)
            return QWEN36_OK;
        qw_cond_destroy(&pool->wake);
    }
    qw_mutex_destroy(&pool->mutex);
    return QWEN36_ERROR_SYSTEM;
}

static qwen36_status start_workers(qw_pool *pool)
{
    for (int32_t i = 0; i < pool->threads - 1; i++) {
        worker *w = &pool->workers[i];
        w->pool = pool;
        w->index = i + 1;
        qwen36_status status = qw_thread_start(&w->thread, worker_body, w);
        if (status != QWEN36_OK)
            return status;
        pool->started++;
    }
    return QWEN36_OK;
}

qwen36_status qw_pool_create(const qw_allocator *allocator, int32_t threads, qw_pool **out,
                             qwen36_error *error)
{
    *out = NULL;
    qw_pool *pool = qw_alloc(allocator, 1, sizeof *pool);
    if (pool == NULL)
        return qw_fail_memory(error, sizeof *pool);
    pool->allocator = allocator;
    pool->threads = threads;
    pool->process = qw_process_id();
    if (init_locks(pool) != QWEN36_OK) {
        qw_free(allocator, pool);
        return qw_fail(error, QWEN36_ERROR_SYSTEM, "the system refused a lock for the worker pool");
    }
    qwen36_status status = QWEN36_OK;
    pool->workers = qw_alloc(allocator, (size_t)threads, sizeof *pool->workers);
    pool->shares = qw_alloc(allocator, (size_t)threads, sizeof *pool->shares);
    if (pool->workers == NULL || pool->shares == NULL)
        status = qw_fail_memory(error, (uint64_t)threads * (sizeof *pool->workers + sizeof *pool->shares));
    else if (start_workers(pool) != QWEN36_OK)
        status = qw_fail(error, QWEN36_ERROR_SYSTEM, "the system refused worker thread %d of %d",
                         pool->started + 1, threads - 1);
    if (status != QWEN36_OK)
        qw_pool_destroy(pool);
    else
        *out = pool;
    return status;
}

static void stop_workers(qw_pool *pool)
{
    qw_mutex_lock(&pool->mutex);
    atomic_store(&pool->stop, 1);
    qw_cond_broadcast(&pool->wake);
    qw_mutex_unlock(&pool->mutex);
    for (int32_t i = 0; i < pool->started; i++)
        qw_thread_join(pool->workers[i].thread);
}

void qw_pool_destroy(qw_pool *pool)
{
    if (pool == NULL)
        return;
    const qw_allocator *allocator = pool->allocator;
    /* The threads exist only in the process that started them; a child frees the memory alone. */
    if (pool->process == qw_process_id()) {
        stop_workers(pool);
        qw_cond_destroy(&pool->done);
        qw_cond_destroy(&pool->wake);
        qw_mutex_destroy(&pool->mutex);
    }
    qw_free(allocator, pool->shares);
    qw_free(allocator, pool->workers);
    qw_free(allocator, pool);
}
