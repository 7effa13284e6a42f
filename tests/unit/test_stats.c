/* Statistics: what sessions did adds up to what the model did, and the pools to what stands in them. */
#include "lib/api/api.h"
#include "lib/os/process.h"
#include "tests/harness.h"
#include "tests/unit/checkpoint.h"

enum { TOKENS = 200, BLOCK = QW_KV_BLOCK };

static qwen36_model *model_with(int32_t sessions, int32_t rows, int32_t prefix_reuse, uint64_t cache_bytes)
{
    qwen36_model_options options = test_model_options();
    options.max_sessions = sessions;
    options.max_batch_tokens = rows;
    options.prefix_reuse = prefix_reuse;
    options.cache_bytes = cache_bytes;
    return test_model(test_checkpoint("moe"), &options);
}

static void append(qwen36_session *session, int32_t first, int32_t count)
{
    int32_t tokens[TOKENS];
    CHECK(count <= TOKENS);
    for (int32_t i = 0; i < count; i++)
        tokens[i] = (first + 7 * i) % 500;
    CHECK_INT(qwen36_session_append(session, tokens, (size_t)count, QWEN36_LOGITS_LAST, NULL), QWEN36_OK);
}

static qwen36_stats of_model(qwen36_model *model)
{
    qwen36_stats stats = {.struct_size = sizeof stats};
    CHECK_INT(qwen36_model_get_stats(model, &stats, NULL), QWEN36_OK);
    CHECK(stats.held_blocks + stats.cached_blocks <= stats.blocks);
    CHECK_INT(stats.kv_bytes, (stats.held_blocks + stats.cached_blocks) * model->cache.plan.block_bytes);
    CHECK_INT(stats.state_bytes % model->cache.plan.slot_bytes, 0);
    CHECK_INT(stats.disk_hits + stats.disk_writes + stats.disk_refusals, 0);
    CHECK(qw_sessions_check(model));
    return stats;
}

static qwen36_stats of_session(const qwen36_session *session)
{
    qwen36_stats stats = {.struct_size = sizeof stats};
    CHECK_INT(qwen36_session_get_stats(session, &stats, NULL), QWEN36_OK);
    CHECK_INT(stats.sessions, 1);
    CHECK_INT(stats.blocks + stats.cached_blocks + stats.snapshots + stats.snapshot_room, 0);
    CHECK_INT(stats.block_evictions + stats.snapshot_evictions, 0);
    CHECK(stats.schedule_seconds + stats.compute_seconds + stats.commit_seconds + stats.sample_seconds <= 0);
    return stats;
}

static void check_sum(qwen36_model *model, const qwen36_session *a, const qwen36_session *b)
{
    qwen36_stats all = of_model(model), first = of_session(a), second = of_session(b);
    CHECK_INT(all.computed_tokens, first.computed_tokens + second.computed_tokens);
    CHECK_INT(all.reused_tokens, first.reused_tokens + second.reused_tokens);
    CHECK_INT(all.sampled_tokens, first.sampled_tokens + second.sampled_tokens);
    CHECK_INT(all.copied_blocks, first.copied_blocks + second.copied_blocks);
}

TEST(stats, steps_and_samples_add_up)
{
    int32_t tokens[2];
    qwen36_model *model = model_with(2, 64, 0, 0);
    qwen36_session *both[2] = {test_session(model), test_session(model)};
    qwen36_stats stats = of_model(model);
    CHECK_INT(stats.sessions, 2);
    CHECK_INT(stats.blocks, 2 * 5);
    CHECK_INT(stats.snapshot_room, 0);
    CHECK_INT(stats.steps + stats.computed_tokens + stats.held_blocks + stats.kv_bytes + stats.state_bytes,
              0);
    append(both[0], 1, 130);
    append(both[1], 2, 10);
    test_compute(both[0]); /* 64 + 64 + 2 rows */
    test_compute(both[1]);
    CHECK_INT(qwen36_sample(both, 2, tokens, NULL, NULL), QWEN36_OK);
    CHECK_INT(qwen36_step(both, 2, NULL, NULL, NULL), QWEN36_OK);
    CHECK_INT(qwen36_step(both, 2, NULL, NULL, NULL), QWEN36_OK); /* nothing is pending: no step */
    check_sum(model, both[0], both[1]);
    stats = of_model(model);
    CHECK_INT(stats.steps, 5);
    CHECK_INT(stats.computed_tokens, 142);
    CHECK_INT(stats.sampled_tokens, 2);
    CHECK_INT(stats.reused_tokens + stats.cached_blocks + stats.snapshots, 0);
    CHECK_INT(stats.held_blocks, 4);
    CHECK_INT(stats.state_bytes, 2 * model->cache.plan.slot_bytes);
    stats = of_session(both[0]);
    CHECK_INT(stats.steps, 4);
    CHECK_INT(stats.held_blocks, 3);
    CHECK_INT(stats.kv_bytes, 3 * model->cache.plan.block_bytes);
    CHECK_INT(stats.state_bytes, model->cache.plan.slot_bytes);
    qwen36_session_destroy(both[0]);
    qwen36_session_destroy(both[1]);
    CHECK_INT(of_model(model).kv_bytes + of_model(model).state_bytes, 0);
    CHECK_INT(of_model(model).sessions, 0);
    qwen36_model_release(model);
}

TEST(stats, seconds_are_those_of_the_calls)
{
    int32_t token;
    qwen36_model *model = model_with(1, 64, 1, 0);
    qwen36_session *session = test_session(model);
    append(session, 1, TOKENS);
    double begin = qw_clock_seconds();
    test_compute(session);
    CHECK_INT(qwen36_sample(&session, 1, &token, NULL, NULL), QWEN36_OK);
    double wall = qw_clock_seconds() - begin;
    qwen36_stats stats = of_model(model);
    double sum = stats.schedule_seconds + stats.compute_seconds + stats.commit_seconds + stats.sample_seconds;
    CHECK(stats.schedule_seconds > 0 && stats.compute_seconds > 0 && stats.commit_seconds > 0 &&
          stats.sample_seconds > 0);
    CHECK_MSG(sum < wall, "%g of %g seconds", sum, wall);
    qwen36_session_destroy(session);
    qwen36_model_release(model);
}

/* Two sessions on the same three blocks; the one that goes on gets the last of them for itself. */
TEST(stats, a_fork_shares_and_a_write_copies)
{
    qwen36_session *fork = NULL;
    qwen36_model *model = model_with(2, 320, 1, 0);
    qwen36_session *session = test_session(model);
    append(session, 1, 2 * BLOCK + 10);
    test_compute(session);
    CHECK_INT(qwen36_session_fork(session, NULL, &fork, NULL), QWEN36_OK);
    CHECK_INT(of_model(model).held_blocks, 3);
    CHECK_INT(of_session(session).held_blocks, 3);
    CHECK_INT(of_session(fork).held_blocks, 3);
    CHECK_INT(of_session(fork).computed_tokens, 0);
    append(fork, 3, 1);
    test_compute(fork);
    CHECK_INT(of_model(model).held_blocks, 4);
    CHECK_INT(of_session(fork).copied_blocks, 1);
    CHECK_INT(of_session(session).copied_blocks, 0);
    check_sum(model, session, fork);
    qwen36_session_destroy(session);
    qwen36_session_destroy(fork);
    qwen36_model_release(model);
}

TEST(stats, a_known_prefix_is_reused_until_the_cache_is_cleared)
{
    int32_t tokens[TOKENS];
    size_t reused = 0;
    qwen36_model *model = model_with(2, 320, 1, 0);
    qwen36_session *first = test_session(model), *second = test_session(model);
    append(first, 1, TOKENS);
    test_compute(first);
    CHECK_INT(qwen36_session_tokens(first, 0, TOKENS, tokens, NULL), QWEN36_OK);
    CHECK(of_model(model).snapshots > 0);
    CHECK_INT(of_model(model).snapshot_room, model->cache.plan.snapshots);
    CHECK_INT(qwen36_session_sync(second, tokens, TOKENS, &reused, NULL), QWEN36_OK);
    CHECK_INT(reused, 3 * BLOCK);
    test_compute(second);
    CHECK_INT(of_session(second).reused_tokens, reused);
    CHECK_INT(of_session(second).computed_tokens, TOKENS - reused);
    check_sum(model, first, second);

    CHECK_INT(qwen36_session_reset(first, NULL), QWEN36_OK);
    CHECK_INT(of_model(model).cached_blocks, 0); /* the second stands on them */
    CHECK_INT(qwen36_session_reset(second, NULL), QWEN36_OK);
    qwen36_stats stats = of_model(model);
    CHECK_INT(stats.held_blocks, 0);
    CHECK_INT(stats.cached_blocks, 3);
    CHECK_INT(stats.state_bytes, stats.snapshots * model->cache.plan.slot_bytes);
    CHECK_INT(qwen36_model_clear_cache(model, NULL), QWEN36_OK);
    stats = of_model(model);
    CHECK_INT(stats.cached_blocks + stats.snapshots + stats.kv_bytes + stats.state_bytes, 0);
    CHECK_INT(stats.block_evictions + stats.snapshot_evictions, 0); /* asked for, not for want of room */
    CHECK_INT(qwen36_session_sync(second, tokens, TOKENS, &reused, NULL), QWEN36_OK);
    CHECK_INT(reused, 0);
    qwen36_session_destroy(first);
    qwen36_session_destroy(second);
    qwen36_model_release(model);
}

/* What a session stands on survives, and it goes on as if nothing had been. */
TEST(stats, clearing_changes_no_result)
{
    int32_t token[2];
    qwen36_model *model = model_with(2, 64, 1, 0);
    qwen36_session *both[2] = {test_session(model), test_session(model)};
    for (int32_t i = 0; i < 2; i++) {
        qwen36_sampling sampling;
        CHECK_INT(qwen36_sampling_init(model, &sampling, sizeof sampling), QWEN36_OK);
        sampling.temperature = 1;
        CHECK_INT(qwen36_session_set_sampling(both[i], &sampling, NULL), QWEN36_OK);
        append(both[i], 1, TOKENS);
        test_compute(both[i]);
        CHECK_INT(qwen36_model_clear_cache(model, NULL), QWEN36_OK);
        CHECK_INT(of_model(model).snapshots, 0);
        append(both[i], 9, 70);
        test_compute(both[i]);
    }
    CHECK_INT(qwen36_sample(both, 2, token, NULL, NULL), QWEN36_OK);
    CHECK_INT(token[0], token[1]);
    qwen36_session_destroy(both[0]);
    qwen36_session_destroy(both[1]);
    qwen36_model_release(model);
}

TEST(stats, evictions_are_counted)
{
    qwen36_model *model = model_with(1, 320, 1, 0);
    uint64_t bytes = 4 * model->cache.plan.block_bytes;
    qwen36_model_release(model);
    model = model_with(1, 320, 1, bytes);
    qwen36_session *session = test_session(model);
    append(session, 1, TOKENS);
    test_compute(session);
    CHECK_INT(qwen36_session_reset(session, NULL), QWEN36_OK);
    CHECK_INT(of_model(model).cached_blocks, 3);
    CHECK_INT(of_model(model).block_evictions, 0);
    append(session, 2, TOKENS); /* four blocks: the one that is free and all three others */
    test_compute(session);
    qwen36_stats stats = of_model(model);
    CHECK_INT(stats.block_evictions, 3);
    CHECK(stats.snapshot_evictions > 0);
    CHECK_INT(stats.held_blocks, 4);
    CHECK_INT(stats.cached_blocks, 0);
    qwen36_session_destroy(session);
    qwen36_model_release(model);
}

/* ---- the door ------------------------------------------------------------------------------------------ */

TEST(stats, structs_of_other_sizes)
{
    struct {
        qwen36_stats known;
        uint64_t more;
    } longer;
    qwen36_stats shorter;
    qwen36_model *model = model_with(1, 64, 1, 0);
    qwen36_session *session = test_session(model);
    append(session, 1, 64);
    test_compute(session);
    memset(&longer, 0xff, sizeof longer);
    longer.known.struct_size = sizeof longer;
    CHECK_INT(qwen36_model_get_stats(model, &longer.known, NULL), QWEN36_OK);
    CHECK_INT(longer.known.struct_size, sizeof longer);
    CHECK_INT(longer.known.computed_tokens, 64);
    CHECK_INT(longer.more, 0);
    memset(&shorter, 0xff, sizeof shorter);
    shorter.struct_size = offsetof(qwen36_stats, reused_tokens);
    CHECK_INT(qwen36_session_get_stats(session, &shorter, NULL), QWEN36_OK);
    CHECK_INT(shorter.computed_tokens, 64);
    CHECK(shorter.reused_tokens == UINT64_MAX);
    qwen36_session_destroy(session);
    qwen36_model_release(model);
}

TEST(stats, wrong_use)
{
    qwen36_error error = QWEN36_ERROR_INIT;
    qwen36_stats stats = {.struct_size = sizeof stats};
    qwen36_model *model = model_with(1, 64, 1, 0);
    qwen36_session *session = test_session(model);
    CHECK_INT(qwen36_model_get_stats(NULL, &stats, &error), QWEN36_ERROR_ARGUMENT);
    CHECK_INT(qwen36_session_get_stats(NULL, &stats, &error), QWEN36_ERROR_ARGUMENT);
    CHECK_INT(qwen36_model_clear_cache(NULL, &error), QWEN36_ERROR_ARGUMENT);
    CHECK_INT(qwen36_model_get_stats(model, NULL, &error), QWEN36_ERROR_ARGUMENT);
    CHECK_INT(qwen36_session_get_stats(session, NULL, &error), QWEN36_ERROR_ARGUMENT);
    stats.struct_size = 3;
    CHECK_INT(qwen36_model_get_stats(model, &stats, &error), QWEN36_ERROR_STRUCT_SIZE);
    CHECK_INT(qwen36_session_get_stats(session, &stats, &error), QWEN36_ERROR_STRUCT_SIZE);
    CHECK(strlen(error.message) > 5);
    qwen36_session_destroy(session);
    qwen36_model_release(model);
}

typedef struct seen {
    qwen36_model *model;
    uint64_t computed;
    int32_t calls;
} seen;

static void look(void *user, qwen36_session *session, int32_t position, const float *logits,
                 int32_t vocab_size)
{
    seen *s = user;
    qwen36_stats stats = {.struct_size = sizeof stats};
    (void)position;
    (void)logits;
    (void)vocab_size;
    CHECK_INT(qwen36_model_get_stats(s->model, &stats, NULL), QWEN36_OK);
    CHECK_INT(stats.computed_tokens, s->computed); /* the step that runs is not committed */
    CHECK_INT(qwen36_session_get_stats(session, &stats, NULL), QWEN36_ERROR_BUSY);
    CHECK_INT(qwen36_model_clear_cache(s->model, NULL), QWEN36_OK);
    s->calls++;
}

TEST(stats, a_callback_may_look_and_clear)
{
    int32_t tokens[100];
    qwen36_session_options options;
    qwen36_session *session = NULL;
    qwen36_model *model = model_with(1, 320, 1, 0);
    seen state = {model, 0, 0};
    for (int32_t i = 0; i < 100; i++)
        tokens[i] = 3 * i;
    CHECK_INT(qwen36_session_options_init(model, &options, sizeof options), QWEN36_OK);
    options.on_logits = look;
    options.user = &state;
    CHECK_INT(qwen36_session_create(model, &options, &session, NULL), QWEN36_OK);
    CHECK_INT(qwen36_session_append(session, tokens, 100, QWEN36_LOGITS_ALL, NULL), QWEN36_OK);
    test_compute(session);
    CHECK_INT(state.calls, 100);
    CHECK_INT(of_model(model).computed_tokens, 100);
    qwen36_session_destroy(session);
    qwen36_model_release(model);
}
