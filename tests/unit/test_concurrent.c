/* Several threads on one model: each with sessions of its own; results as if alone. */
#include "lib/api/api.h"
#include "tests/harness.h"
#include "tests/unit/checkpoint.h"
#include "tests/unit/law_table.h"

#include <pthread.h>
#include <stdatomic.h>

enum { THREADS = 3, ROUNDS = 6, PROMPT = 20, DECODED = 4 };

typedef struct worker {
    pthread_t thread;
    qwen36_model *model;
    const int32_t *tokens;
    float logits[1024];
    bool failed;
} worker;

static bool compute(qwen36_session *session)
{
    qwen36_status status;
    do {
        status = qwen36_step(&session, 1, NULL, NULL, NULL);
    } while (status == QWEN36_PENDING);
    return status == QWEN36_OK;
}

/* Prompt and a few decoded tokens; the last logits are kept. */
static bool run_once(worker *w)
{
    const float *logits = NULL;
    int32_t vocab_size = 0;
    qwen36_session *session = NULL;
    bool good = qwen36_session_create(w->model, NULL, &session, NULL) == QWEN36_OK &&
                qwen36_session_append(session, w->tokens, PROMPT, QWEN36_LOGITS_LAST, NULL) == QWEN36_OK;
    good = good && compute(session);
    for (int32_t i = 0; i < DECODED && good; i++)
        good = qwen36_session_append(session, w->tokens + PROMPT + i, 1, QWEN36_LOGITS_LAST, NULL) ==
                   QWEN36_OK &&
               compute(session);
    good =
        good && qwen36_session_logits(session, &logits, &vocab_size, NULL) == QWEN36_OK && vocab_size <= 1024;
    if (good)
        memcpy(w->logits, logits, sizeof(float) * (size_t)vocab_size);
    qwen36_session_destroy(session);
    return good;
}

static void *work(void *user)
{
    worker *w = user;
    for (int32_t i = 0; i < ROUNDS / (int32_t)test_stride() && !w->failed; i++)
        w->failed = !run_once(w);
    return NULL;
}

TEST(concurrent, threads_on_one_model)
{
    static worker workers[THREADS], alone[THREADS];
    test_golden golden = test_golden_load("moe");
    qwen36_model_options options = test_model_options();
    options.threads = 2;
    options.max_batch_tokens = 8;
    qwen36_model *model = test_model(test_checkpoint("moe"), &options);
    for (int32_t i = 0; i < THREADS; i++) {
        alone[i] = (worker){.model = model, .tokens = golden.tokens + 5 * i};
        CHECK(run_once(&alone[i]));
        workers[i] = (worker){.model = model, .tokens = golden.tokens + 5 * i};
        CHECK(pthread_create(&workers[i].thread, NULL, work, &workers[i]) == 0);
    }
    for (int32_t i = 0; i < THREADS; i++)
        pthread_join(workers[i].thread, NULL);
    for (int32_t i = 0; i < THREADS; i++) {
        CHECK(!workers[i].failed);
        CHECK(memcmp(workers[i].logits, alone[i].logits, sizeof(float) * (size_t)golden.vocab_size) == 0);
    }
    CHECK(qw_index_pool_check(&model->cache.blocks) && qw_index_pool_check(&model->cache.slots));
    CHECK_INT(model->session_count, 0);
    qwen36_model_release(model);
    test_golden_free(&golden);
}

/* One thread computes a timeline of several blocks again and again, another watches and forgets what is kept
 * of it. */
enum { LONG_PROMPT = 200 };

typedef struct watched {
    pthread_t thread;
    qwen36_model *model;
    int32_t tokens[LONG_PROMPT];
    _Atomic int32_t over;
    bool failed;
} watched;

static void *compute_again_and_again(void *user)
{
    watched *w = user;
    qwen36_session *session = NULL;
    w->failed = qwen36_session_create(w->model, NULL, &session, NULL) != QWEN36_OK;
    for (int32_t i = 0; i < 4 * ROUNDS / (int32_t)test_stride() && !w->failed; i++)
        w->failed =
            qwen36_session_sync(session, w->tokens, LONG_PROMPT - (size_t)i, NULL, NULL) != QWEN36_OK ||
            !compute(session);
    qwen36_session_destroy(session);
    atomic_store(&w->over, 1);
    return NULL;
}

TEST(concurrent, watching_and_clearing)
{
    static watched w;
    qwen36_stats stats = {.struct_size = sizeof stats};
    qwen36_model_options options = test_model_options();
    options.max_batch_tokens = 64;
    w = (watched){.model = test_model(test_checkpoint("moe"), &options)};
    for (int32_t i = 0; i < LONG_PROMPT; i++)
        w.tokens[i] = 3 * i % 500;
    uint64_t computed = 0;
    CHECK(pthread_create(&w.thread, NULL, compute_again_and_again, &w) == 0);
    while (atomic_load(&w.over) == 0) {
        CHECK_INT(qwen36_model_get_stats(w.model, &stats, NULL), QWEN36_OK);
        CHECK(stats.computed_tokens >= computed && stats.held_blocks + stats.cached_blocks <= stats.blocks);
        computed = stats.computed_tokens;
        if (computed % 3 == 0)
            CHECK_INT(qwen36_model_clear_cache(w.model, NULL), QWEN36_OK);
    }
    pthread_join(w.thread, NULL);
    CHECK(!w.failed && qw_sessions_check(w.model));
    CHECK_INT(qwen36_model_clear_cache(w.model, NULL), QWEN36_OK);
    CHECK_INT(w.model->cache.blocks.free_count, w.model->cache.blocks.capacity);
    CHECK_INT(w.model->cache.slots.free_count, w.model->cache.slots.capacity);
    qwen36_model_release(w.model);
}

/* Who asked first goes first: a thread that steps in a loop does not overtake those that wait. */
typedef struct asker {
    pthread_t thread;
    qwen36_model *model;
    int32_t *order, *count; /* guarded by the turn */
    int32_t name;
} asker;

static void *ask(void *user)
{
    asker *a = user;
    qw_model_take_turn(a->model, NULL);
    a->order[(*a->count)++] = a->name;
    qw_model_give_turn(a->model);
    return NULL;
}

static void wait_for_tickets(qwen36_model *model, uint64_t tickets)
{
    bool reached = false;
    while (!reached) {
        qw_mutex_lock(&model->lock);
        reached = model->next_ticket == tickets;
        qw_mutex_unlock(&model->lock);
    }
}

TEST(concurrent, turns_go_in_the_order_of_asking)
{
    int32_t order[THREADS + 1], count = 0;
    asker askers[THREADS];
    qwen36_model_options options = test_model_options();
    qwen36_model *model = test_model(test_checkpoint("moe"), &options);
    CHECK_INT(qw_model_take_turn(model, NULL), QWEN36_OK);
    CHECK_INT(qw_model_take_turn(model, NULL), QWEN36_ERROR_BUSY);
    uint64_t tickets = model->next_ticket;
    for (int32_t i = 0; i < THREADS; i++) {
        askers[i] = (asker){.model = model, .order = order, .count = &count, .name = i};
        CHECK(pthread_create(&askers[i].thread, NULL, ask, &askers[i]) == 0);
        wait_for_tickets(model, ++tickets);
    }
    qw_model_give_turn(model);
    CHECK_INT(qw_model_take_turn(model, NULL), QWEN36_OK);
    order[count++] = THREADS;
    qw_model_give_turn(model);
    for (int32_t i = 0; i < THREADS; i++)
        pthread_join(askers[i].thread, NULL);
    for (int32_t i = 0; i <= THREADS; i++)
        CHECK_INT(order[i], i);
    qwen36_model_release(model);
}

/* ---- sharing ------------------------------------------------------------------------------------------- */

enum { SHARERS = 2, SHARED = 130, OWN = 5, SHARE_ROUNDS = 8 };

typedef struct sharer {
    pthread_t thread;
    qwen36_model *model;
    const int32_t *tokens; /* [SHARED + 2 * OWN] */
    int32_t rounds;
    float logits[2][1024]; /* of a session and of its fork */
    bool failed;
} sharer;

static bool keep(const qwen36_session *session, float *row)
{
    const float *logits = NULL;
    int32_t vocab_size = 0;
    bool good = qwen36_session_logits(session, &logits, &vocab_size, NULL) == QWEN36_OK && vocab_size <= 1024;
    if (good)
        memcpy(row, logits, sizeof(float) * (size_t)vocab_size);
    return good;
}

/* A session takes a prefix that others compute too, is forked, and the twins go separate ways in one step. */
static bool share_once(sharer *me)
{
    qwen36_session *both[2] = {NULL, NULL};
    qwen36_status status = qwen36_session_create(me->model, NULL, &both[0], NULL);
    bool good = status == QWEN36_OK &&
                qwen36_session_sync(both[0], me->tokens, SHARED, NULL, NULL) == QWEN36_OK &&
                compute(both[0]) && qwen36_session_fork(both[0], NULL, &both[1], NULL) == QWEN36_OK;
    for (int32_t i = 0; i < 2 && good; i++)
        good = qwen36_session_append(both[i], me->tokens + SHARED + i * OWN, OWN, QWEN36_LOGITS_LAST, NULL) ==
               QWEN36_OK;
    do {
        status = good ? qwen36_step(both, 2, NULL, NULL, NULL) : QWEN36_OK;
    } while (status == QWEN36_PENDING);
    good = good && status == QWEN36_OK && keep(both[0], me->logits[0]) && keep(both[1], me->logits[1]) &&
           qwen36_session_rewind(both[0], 70, NULL) == QWEN36_OK && compute(both[0]);
    qwen36_session_destroy(both[0]);
    qwen36_session_destroy(both[1]);
    return good;
}

static void *share(void *user)
{
    sharer *me = user;
    for (int32_t i = 0; i < me->rounds && !me->failed; i++)
        me->failed = !share_once(me);
    return NULL;
}

/* Few blocks and snapshots, so that what one thread has left is evicted under the eyes of the other. */
TEST(concurrent, threads_share_prefixes)
{
    static sharer sharers[SHARERS], alone;
    test_golden golden = test_golden_load("moe");
    int32_t tokens[SHARED + 2 * OWN];
    qwen36_model_options options = test_model_options();
    options.max_batch_tokens = 40;
    qwen36_model *model = test_model(test_checkpoint("moe"), &options);
    memcpy(tokens, golden.tokens, sizeof tokens);
    alone = (sharer){.model = model, .tokens = tokens};
    CHECK(share_once(&alone));
    options.max_sessions = 2 * SHARERS;
    options.cache_bytes = 14 * model->cache.plan.block_bytes;
    options.snapshot_bytes = 2 * model->cache.plan.slot_bytes;
    qwen36_model_release(model);
    model = test_model(test_checkpoint("moe"), &options);
    for (int32_t i = 0; i < SHARERS; i++) {
        sharers[i] =
            (sharer){.model = model, .tokens = tokens, .rounds = SHARE_ROUNDS / (int32_t)test_stride()};
        CHECK(pthread_create(&sharers[i].thread, NULL, share, &sharers[i]) == 0);
    }
    for (int32_t i = 0; i < SHARERS; i++)
        pthread_join(sharers[i].thread, NULL);
    for (int32_t i = 0; i < SHARERS; i++) {
        CHECK(!sharers[i].failed);
        for (int32_t twin = 0; twin < 2; twin++)
            CHECK(law_rows_agree(sharers[i].logits[twin], alone.logits[twin], golden.vocab_size,
                                 law_bound("cut", &options)));
    }
    CHECK(qw_sessions_check(model));
    CHECK(model->counters.reused > 0);
    CHECK_INT(model->session_count, 0);
    qwen36_model_release(model);
    test_golden_free(&golden);
}
