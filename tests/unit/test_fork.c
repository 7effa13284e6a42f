/* Forks of sessions: what they take over, what they refuse, and that neither twin sees what the other does.
 */
#include "lib/api/api.h"
#include "tests/harness.h"
#include "tests/unit/checkpoint.h"
#include "tests/unit/row_judge.h"

enum { CONTEXT = 200, VOCAB = 512 };

static int32_t tokens[CONTEXT + 1];

static qwen36_model_options options_for(int32_t sessions)
{
    qwen36_model_options options = test_model_options();
    options.context_length = CONTEXT;
    options.max_sessions = sessions;
    for (int32_t i = 0; i <= CONTEXT; i++)
        tokens[i] = (11 * i + i * i % 17) % VOCAB;
    return options;
}

static qwen36_model *open_model(int32_t sessions)
{
    qwen36_model_options options = options_for(sessions);
    return test_model(test_checkpoint("dense_untied"), &options);
}

static void append(qwen36_session *session, int32_t begin, int32_t count)
{
    CHECK_INT(qwen36_session_append(session, tokens + begin, (size_t)count, QWEN36_LOGITS_LAST, NULL),
              QWEN36_OK);
}

static qwen36_session *reader(qwen36_model *model, int32_t count)
{
    qwen36_session *session = test_session(model);
    append(session, 0, count);
    test_compute(session);
    return session;
}

static qwen36_session *fork_of(const qwen36_session *session)
{
    qwen36_session *fork = NULL;
    qwen36_error error = QWEN36_ERROR_INIT;
    CHECK_MSG(qwen36_session_fork(session, NULL, &fork, &error) == QWEN36_OK, "%s", error.message);
    CHECK(qw_sessions_check(session->model));
    return fork;
}

/* Pools and sessions, to see that a failing call took nothing. */
static int32_t free_things(const qwen36_model *model)
{
    const qw_cache *c = &model->cache;
    return c->blocks.free_count + 1000 * c->slots.free_count + 100000 * c->rows.free_count -
           model->session_count;
}

static void end(qwen36_model *model)
{
    CHECK(qw_sessions_check(model));
    CHECK_INT(model->session_count, 0);
    qw_prefix_clear(&model->cache.prefix);
    CHECK_INT(model->cache.blocks.free_count, model->cache.blocks.capacity);
    CHECK_INT(model->cache.slots.free_count, model->cache.slots.capacity);
    CHECK_INT(model->cache.rows.free_count, model->cache.rows.capacity);
    qwen36_model_release(model);
}

static void set_choice(qwen36_session *session, int32_t token, float bias)
{
    static uint32_t words[VOCAB / 32];
    memset(words, 0xff, sizeof words);
    words[0] &= ~3U; /* neither 0 nor 1 */
    const qwen36_sampling greedy = qw_sampling_plain();
    CHECK_INT(qwen36_session_set_sampling(session, &greedy, NULL), QWEN36_OK);
    CHECK_INT(qwen36_session_set_bitmask(session, words, VOCAB / 32, NULL), QWEN36_OK);
    CHECK_INT(qwen36_session_set_bias(session, &token, &bias, 1, NULL), QWEN36_OK);
}

TEST(fork, takes_biases_and_bitmask_over)
{
    int32_t drawn[2], forbidden = 1;
    float bias = 1e6F;
    qwen36_model *model = open_model(3);
    qwen36_session *session = reader(model, 70);
    set_choice(session, 333, 1e6F);
    qwen36_session *fork = fork_of(session), *both[2] = {session, fork};
    CHECK_INT(qwen36_sample(both, 2, drawn, NULL, NULL), QWEN36_OK);
    CHECK(drawn[0] == 333 && drawn[1] == 333);
    /* from here on each has its own */
    CHECK_INT(qwen36_session_rewind(session, 70, NULL), QWEN36_OK);
    CHECK_INT(qwen36_session_rewind(fork, 70, NULL), QWEN36_OK);
    set_choice(session, 44, 1e6F);
    CHECK_INT(qwen36_sample(both, 2, drawn, NULL, NULL), QWEN36_OK);
    CHECK(drawn[0] == 44 && drawn[1] == 333);
    CHECK_INT(qwen36_session_rewind(fork, 70, NULL), QWEN36_OK);
    CHECK_INT(qwen36_session_set_bias(fork, &forbidden, &bias, 1, NULL),
              QWEN36_OK); /* the mask is stronger */
    qwen36_session_destroy(session);
    CHECK_INT(qwen36_sample(&fork, 1, drawn, NULL, NULL), QWEN36_OK);
    CHECK(drawn[0] > 1);
    qwen36_session_destroy(fork);
    end(model);
}

/* The logprobs of the last draw belong to the point at which the session stands. */
TEST(fork, takes_the_sampler_as_it_stands)
{
    int32_t drawn, top[2][3];
    float chosen[2], values[2][3];
    size_t count[2] = {0, 0};
    qwen36_sampling sampling = qw_sampling_plain();
    qwen36_model *model = open_model(2);
    qwen36_session *session = reader(model, 70);
    sampling.logprobs = 3;
    CHECK_INT(qwen36_session_set_sampling(session, &sampling, NULL), QWEN36_OK);
    CHECK_INT(qwen36_sample(&session, 1, &drawn, NULL, NULL), QWEN36_OK);
    qwen36_session *both[2] = {session, fork_of(session)};
    for (int32_t i = 0; i < 2; i++)
        CHECK_INT(qwen36_session_logprobs(both[i], &chosen[i], top[i], values[i], 3, &count[i], NULL),
                  QWEN36_OK);
    CHECK(chosen[0] == chosen[1] && count[0] == 3 && count[1] == 3);
    CHECK(memcmp(top[0], top[1], sizeof top[0]) == 0 && memcmp(values[0], values[1], sizeof values[0]) == 0);
    CHECK_INT(both[0]->output_begin, both[1]->output_begin);
    qwen36_session_destroy(both[0]);
    qwen36_session_destroy(both[1]);
    end(model);
}

/* Each allocation of a fork fails once; nothing stays behind. */
TEST(fork, each_allocation_fails)
{
    test_allocator memory = {0};
    const qwen36_allocator hooks = {sizeof hooks, 0, test_allocate, test_release, &memory};
    qwen36_model_options options = options_for(2);
    options.allocator = &hooks;
    qwen36_model *model = test_model(test_checkpoint("dense_untied"), &options);
    qwen36_session *session = reader(model, 100), *fork = NULL;
    set_choice(session, 333, 5);
    qwen36_status status = QWEN36_ERROR_OUT_OF_MEMORY;
    long k = 0;
    for (; status != QWEN36_OK; k++) {
        qwen36_error error = QWEN36_ERROR_INIT;
        long outstanding = memory.outstanding;
        int32_t before = free_things(model);
        memory.fail_at = memory.allocations + k + 1;
        fork = (qwen36_session *)&error;
        status = qwen36_session_fork(session, NULL, &fork, &error);
        memory.fail_at = 0;
        CHECK(qw_sessions_check(model));
        if (status == QWEN36_OK)
            break;
        CHECK_INT(status, QWEN36_ERROR_OUT_OF_MEMORY);
        CHECK(fork == NULL && error.message[0] != '\0');
        CHECK_INT(memory.outstanding, outstanding);
        CHECK_INT(free_things(model), before);
        CHECK_INT(qwen36_session_computed(session), 100);
    }
    CHECK(k >= 7); /* the session, tokens, wants, blocks, bitmask, and two arrays of biases */
    qwen36_session_destroy(session);
    qwen36_session_destroy(fork);
    end(model);
    CHECK_INT(memory.outstanding, 0);
}

TEST(fork, is_refused_when_sessions_are_full)
{
    qwen36_error error = QWEN36_ERROR_INIT;
    qwen36_model *model = open_model(2);
    qwen36_session *session = reader(model, 100), *fork = fork_of(session), *third = fork;
    int32_t before = free_things(model);
    CHECK_INT(qwen36_session_fork(session, NULL, &third, &error), QWEN36_ERROR_SESSIONS_FULL);
    CHECK(third == NULL && strstr(error.message, "2 sessions") != NULL);
    CHECK_INT(free_things(model), before);
    CHECK(qw_sessions_check(model));
    qwen36_session_destroy(fork);
    third = fork_of(session);
    qwen36_session_destroy(session);
    qwen36_session_destroy(third);
    end(model);
}

TEST(fork, arguments)
{
    qwen36_error error = QWEN36_ERROR_INIT;
    qwen36_model *model = open_model(2);
    qwen36_session *session = test_session(model), *fork = session;
    qwen36_session_options options = {.struct_size = sizeof options, .context_length = CONTEXT + 1};
    CHECK_INT(qwen36_session_fork(NULL, NULL, &fork, &error), QWEN36_ERROR_ARGUMENT);
    CHECK(fork == NULL);
    CHECK_INT(qwen36_session_fork(session, NULL, NULL, &error), QWEN36_ERROR_ARGUMENT);
    CHECK_INT(qwen36_session_fork(session, &options, &fork, &error), QWEN36_ERROR_ARGUMENT);
    options.struct_size = 3;
    CHECK_INT(qwen36_session_fork(session, &options, &fork, &error), QWEN36_ERROR_STRUCT_SIZE);
    CHECK(fork == NULL);
    fork = fork_of(session); /* of nothing */
    CHECK_INT(qwen36_session_length(fork), 0);
    append(fork, 0, 3);
    test_compute(fork);
    qwen36_session_interrupt(session);
    qwen36_session_destroy(fork);
    fork = fork_of(session); /* an interrupt was meant for the other one */
    CHECK_INT(qwen36_step(&fork, 1, NULL, NULL, NULL), QWEN36_OK);
    CHECK_INT(qwen36_step(&session, 1, NULL, NULL, NULL), QWEN36_INTERRUPTED);
    qwen36_session_destroy(session);
    qwen36_session_destroy(fork);
    end(model);
}

TEST(fork, may_hold_less)
{
    qwen36_model *model = open_model(3);
    qwen36_session *session = reader(model, 100), *fork = NULL, *again = NULL;
    qwen36_session_options options = {.struct_size = sizeof options, .context_length = 99};
    CHECK_INT(qwen36_session_fork(session, &options, &fork, NULL), QWEN36_ERROR_CONTEXT_FULL);
    options.context_length = 100;
    CHECK_INT(qwen36_session_fork(session, &options, &fork, NULL), QWEN36_OK);
    CHECK_INT(qwen36_session_capacity(fork), 100);
    CHECK_INT(qwen36_session_append(fork, tokens, 1, QWEN36_LOGITS_LAST, NULL), QWEN36_ERROR_CONTEXT_FULL);
    options.context_length = CONTEXT;
    CHECK_INT(qwen36_session_fork(fork, &options, &again, NULL), QWEN36_OK); /* and more again */
    qwen36_session_destroy(fork);
    append(again, 100, 100);
    test_compute(again);
    CHECK(qw_sessions_check(model));
    qwen36_session_destroy(session);
    qwen36_session_destroy(again);
    end(model);
}

typedef struct heard {
    int32_t next, count;
    row_judge *judge;
} heard;

static void hear(void *user, qwen36_session *session, int32_t position, const float *logits,
                 int32_t vocab_size)
{
    heard *h = user;
    (void)session;
    (void)vocab_size;
    CHECK_INT(position, h->next);
    h->next++;
    h->count++;
    CHECK(row_judge_agrees(h->judge, tokens, position + 1, logits));
}

/* What is pending, and which rows are wanted of it, is the fork's too; each twin gets its own rows. */
TEST(fork, of_pending_tokens)
{
    static const int32_t budgets[] = {64, 7, 1, 200};
    row_judge judge;
    qwen36_model_options judged = options_for(1);
    row_judge_open(&judge, test_checkpoint("dense_untied"), &judged);
    for (size_t i = 0; i < QW_COUNT_OF(budgets); i += test_stride()) {
        heard h[2] = {{70, 0, &judge}, {70, 0, &judge}};
        qwen36_model *model = open_model(2);
        qwen36_session *both[2] = {NULL, NULL};
        qwen36_session_options options = {sizeof options, CONTEXT, hear, &h[0], 0};
        qwen36_step_options step = {sizeof step, budgets[i]};
        CHECK_INT(qwen36_session_create(model, &options, &both[0], NULL), QWEN36_OK);
        append(both[0], 0, 70);
        test_compute(both[0]);
        CHECK_INT(qwen36_session_append(both[0], tokens + 70, 60, QWEN36_LOGITS_ALL, NULL), QWEN36_OK);
        options.user = &h[1];
        CHECK_INT(qwen36_session_fork(both[0], &options, &both[1], NULL), QWEN36_OK);
        qwen36_status status;
        do {
            status = qwen36_step(both, 2, &step, NULL, NULL);
            CHECK(qw_sessions_check(model));
        } while (status == QWEN36_PENDING);
        CHECK_INT(status, QWEN36_OK);
        CHECK_INT(h[0].count, 60);
        CHECK_INT(h[1].count, 60);
        CHECK_INT(model->counters.computed, 70 + 2 * 60);
        qwen36_session_destroy(both[0]);
        qwen36_session_destroy(both[1]);
        end(model);
    }
    row_judge_close(&judge);
}

static qwen36_status refused[2];

static void fork_inside(void *user, qwen36_session *session, int32_t position, const float *logits,
                        int32_t vocab_size)
{
    qwen36_session *fork = session;
    (void)position;
    (void)logits;
    (void)vocab_size;
    refused[0] = qwen36_session_fork(session, NULL, &fork, NULL);
    CHECK(fork == NULL);
    refused[1] = qwen36_session_fork(user, NULL, &fork, NULL);
    CHECK(fork == NULL);
}

TEST(fork, is_refused_inside_a_step)
{
    qwen36_model *model = open_model(4);
    qwen36_session *other = reader(model, 10), *session = NULL;
    qwen36_session_options options = {sizeof options, CONTEXT, fork_inside, other, 0};
    CHECK_INT(qwen36_session_create(model, &options, &session, NULL), QWEN36_OK);
    CHECK_INT(qwen36_session_append(session, tokens, 3, QWEN36_LOGITS_ALL, NULL), QWEN36_OK);
    test_compute(session);
    CHECK_INT(refused[0], QWEN36_ERROR_BUSY);
    CHECK_INT(refused[1], QWEN36_ERROR_BUSY);
    CHECK_INT(model->session_count, 2);
    qwen36_session_destroy(session);
    qwen36_session_destroy(other);
    end(model);
}

/* A fork belongs to the namespace of its twin, whatever the options say: what it computes is found there
 * only. */
TEST(fork, stays_in_its_prefix_space)
{
    size_t reused = 0;
    qwen36_model *model = open_model(4);
    qwen36_session_options options = {
        .struct_size = sizeof options, .context_length = CONTEXT, .prefix_space = 1};
    qwen36_session *session = NULL, *fork = NULL, *friend = NULL, *stranger = NULL;
    CHECK_INT(qwen36_session_create(model, &options, &session, NULL), QWEN36_OK);
    CHECK_INT(qwen36_session_create(model, &options, &friend, NULL), QWEN36_OK);
    options.prefix_space = 2;
    CHECK_INT(qwen36_session_create(model, &options, &stranger, NULL), QWEN36_OK);
    append(session, 0, 70);
    test_compute(session);
    CHECK_INT(qwen36_session_fork(session, &options, &fork, NULL), QWEN36_OK);
    append(fork, 70, 100);
    test_compute(fork);
    CHECK(qw_sessions_check(model));
    CHECK_INT(qwen36_session_sync(stranger, tokens, 170, &reused, NULL), QWEN36_OK);
    CHECK_INT(reused, 0);
    CHECK_INT(qwen36_session_sync(friend, tokens, 170, &reused, NULL), QWEN36_OK);
    CHECK_INT(reused, 128);
    qwen36_session_destroy(session);
    qwen36_session_destroy(fork);
    qwen36_session_destroy(friend);
    qwen36_session_destroy(stranger);
    end(model);
}

/* A family that lives on one timeline shares all of it; the last one leaves nothing behind, whoever goes
 * first. */
TEST(fork, families)
{
    enum { FAMILY = 8 };
    qwen36_model_options options = options_for(FAMILY);
    qwen36_model *model = open_model(1);
    options.cache_bytes = 5 * model->cache.plan.block_bytes;
    qwen36_model_release(model);
    model = test_model(test_checkpoint("dense_untied"), &options);
    for (int32_t first = 0; first < FAMILY; first++) {
        qwen36_session *all[FAMILY] = {reader(model, 150)};
        for (int32_t i = 1; i < FAMILY; i++)
            all[i] = fork_of(all[i / 2]);
        CHECK_INT(model->cache.slots.capacity - model->cache.slots.free_count - model->cache.prefix.snapshots,
                  1);
        for (int32_t i = 0; i < FAMILY; i++) {
            append(all[(first + i) % FAMILY], i, 1);
            test_compute(all[(first + i) % FAMILY]);
            CHECK(qw_sessions_check(model));
            qwen36_session_destroy(all[(first + i) % FAMILY]);
            CHECK(qw_sessions_check(model));
        }
    }
    CHECK(model->counters.copies > 0);
    end(model);
}
