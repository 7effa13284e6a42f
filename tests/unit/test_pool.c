/* The worker pool: every item exactly once, nothing of a loop left behind when it returns. */
#include "kernels/cpu/pool.h"
#include "tests/harness.h"

#include <signal.h>
#include <stdatomic.h>
#include <time.h>

enum { MOST = 1000 };

typedef struct record {
    qw_pool *pool;
    _Atomic int32_t seen[MOST];
    _Atomic int32_t busy[8]; /* workers inside a task */
    _Atomic int32_t wrong;
    int64_t plain[MOST]; /* written without atomics: the loop's end must order it */
    int64_t round;
} record;

static void note(void *argument, int64_t item, int32_t worker)
{
    record *r = argument;
    if (worker < 0 || worker >= qw_pool_threads(r->pool) || atomic_fetch_add(&r->busy[worker], 1) != 0)
        atomic_fetch_add(&r->wrong, 1);
    atomic_fetch_add(&r->seen[item], 1);
    r->plain[item] = r->round + item;
    atomic_fetch_sub(&r->busy[worker], 1);
}

static qw_pool *create(const qw_allocator *allocator, int32_t threads)
{
    qw_pool *pool = NULL;
    qwen36_error error = QWEN36_ERROR_INIT;
    const qwen36_status status = qw_pool_create(allocator, threads, &pool, &error);
    CHECK_MSG(status == QWEN36_OK, "%s", error.message);
    CHECK_INT(qw_pool_threads(pool), threads);
    return pool;
}

TEST(pool, every_item_once)
{
    static const int64_t counts[] = {0, 1, 2, 3, 7, 64, MOST};
    const qw_allocator allocator = qw_allocator_default();
    record *r = calloc(1, sizeof *r);
    for (int32_t threads = 1; threads <= 5; threads++) {
        r->pool = create(&allocator, threads);
        for (int64_t round = 0; round < 200; round++) {
            const int64_t items = counts[(size_t)round % QW_COUNT_OF(counts)];
            r->round = round;
            for (int64_t i = 0; i < MOST; i++)
                atomic_store(&r->seen[i], 0);
            qw_pool_run(r->pool, note, r, items);
            for (int64_t i = 0; i < MOST; i++) {
                CHECK_INT(atomic_load(&r->seen[i]), i < items);
                CHECK(i >= items || r->plain[i] == round + i);
            }
        }
        CHECK_INT(atomic_load(&r->wrong), 0);
        qw_pool_destroy(r->pool);
    }
    free(r);
}

static void sleep_a_little(void *argument, int64_t item, int32_t worker)
{
    (void)worker;
    if (item % 50 == 0) {
        const struct timespec pause = {0, 300000};
        nanosleep(&pause, NULL);
    }
    atomic_fetch_add((_Atomic int64_t *)argument, item);
}

/* Uneven items, and pauses long enough that workers go to sleep between and within loops. */
TEST(pool, workers_that_sleep)
{
    const qw_allocator allocator = qw_allocator_default();
    qw_pool *pool = create(&allocator, 3);
    for (int32_t round = 0; round < 30; round++) {
        _Atomic int64_t sum = 0;
        qw_pool_run(pool, sleep_a_little, &sum, 101);
        CHECK_INT(atomic_load(&sum), 5050);
        const struct timespec pause = {0, 500000};
        nanosleep(&pause, NULL);
    }
    qw_pool_destroy(pool);
}

static void check_signals(void *argument, int64_t item, int32_t worker)
{
    (void)item;
    if (worker == 0)
        return;
    sigset_t blocked;
    pthread_sigmask(SIG_BLOCK, NULL, &blocked);
    if (sigismember(&blocked, SIGTERM) != 1 || sigismember(&blocked, SIGUSR1) != 1)
        atomic_fetch_add((_Atomic int32_t *)argument, 1);
}

TEST(pool, workers_block_signals)
{
    const qw_allocator allocator = qw_allocator_default();
    qw_pool *pool = create(&allocator, 2);
    _Atomic int32_t wrong = 0;
    for (int32_t round = 0; round < 100; round++)
        qw_pool_run(pool, check_signals, &wrong, 64);
    CHECK_INT(atomic_load(&wrong), 0);
    qw_pool_destroy(pool);
}

TEST(pool, allocations_that_fail)
{
    qw_pool_destroy(NULL);
    for (long k = 1;; k++) {
        test_allocator counting = {.fail_at = k};
        const qw_allocator hooks = {test_allocate, test_release, &counting};
        qw_pool *pool = NULL;
        const qwen36_status status = qw_pool_create(&hooks, 3, &pool, NULL);
        CHECK((status == QWEN36_OK) == (pool != NULL));
        qw_pool_destroy(pool);
        CHECK_INT(counting.outstanding, 0);
        if (status == QWEN36_OK)
            break;
        CHECK_INT(status, QWEN36_ERROR_OUT_OF_MEMORY);
    }
}
