/* Sessions through the public interface: timelines, statuses, capacity, the pool, callbacks. */
#include "lib/api/api.h"
#include "tests/harness.h"
#include "tests/unit/checkpoint.h"
#include "tests/unit/law_table.h"

#include <math.h>
#include <sys/wait.h>
#include <unistd.h>

static const int32_t TOKENS[] = {5, 17, 300, 2, 9, 44, 101, 250, 7, 8, 1, 0, 66, 499, 3, 12};
enum { COUNT = 16 };

static qwen36_model *small_model(int32_t context, int32_t sessions, int32_t rows)
{
    qwen36_model_options options = test_model_options();
    options.context_length = context;
    options.max_sessions = sessions;
    options.max_batch_tokens = rows;
    return test_model(test_checkpoint("moe"), &options);
}

static qwen36_session *session_with(qwen36_model *model, size_t count)
{
    qwen36_session *session = test_session(model);
    CHECK_INT(qwen36_session_append(session, TOKENS, count, QWEN36_LOGITS_LAST, NULL), QWEN36_OK);
    return session;
}

static void check_pools(qwen36_model *model)
{
    CHECK(qw_sessions_check(model));
}

static void check_all_free(qwen36_model *model)
{
    check_pools(model);
    CHECK_INT(model->cache.blocks.free_count + model->cache.prefix.idle, model->cache.blocks.capacity);
    CHECK_INT(model->cache.slots.free_count + model->cache.prefix.snapshots, model->cache.slots.capacity);
    CHECK_INT(model->cache.rows.free_count, model->cache.rows.capacity);
    CHECK_INT(model->session_count, 0);
}

static void copy_logits(const qwen36_session *session, float *row)
{
    const float *logits = NULL;
    int32_t vocab_size = 0;
    CHECK_INT(qwen36_session_logits(session, &logits, &vocab_size, NULL), QWEN36_OK);
    CHECK(vocab_size <= 1024);
    memcpy(row, logits, sizeof(float) * (size_t)vocab_size);
}

/* Two ways of computing the same tokens in other cuts. */
static bool same_logits(const float *a, const float *b)
{
    const qwen36_model_options options = test_model_options();
    return law_rows_agree(a, b, 512, law_bound("cut", &options));
}

TEST(session, timeline)
{
    int32_t read[COUNT];
    const float *logits = NULL;
    qwen36_error error = QWEN36_ERROR_INIT;
    qwen36_model *model = small_model(64, 2, 64);
    qwen36_session *session = session_with(model, 10);
    CHECK_INT(qwen36_session_length(session), 10);
    CHECK_INT(qwen36_session_computed(session), 0);
    CHECK_INT(qwen36_session_capacity(session), 64);
    CHECK_INT(qwen36_session_logits(session, &logits, NULL, &error), QWEN36_ERROR_NO_LOGITS);
    test_compute(session);
    CHECK_INT(qwen36_session_computed(session), 10);
    CHECK_INT(qwen36_session_logits(session, &logits, NULL, &error), QWEN36_OK);
    CHECK_INT(error.status, QWEN36_OK);
    CHECK_INT(qwen36_session_tokens(session, 3, 7, read, NULL), QWEN36_OK);
    CHECK(memcmp(read, TOKENS + 3, 7 * sizeof *read) == 0);
    CHECK_INT(qwen36_session_tokens(session, 4, 7, read, &error), QWEN36_ERROR_ARGUMENT);
    CHECK_INT(qwen36_session_append(session, TOKENS, 1, QWEN36_LOGITS_NONE, NULL), QWEN36_OK);
    test_compute(session);
    CHECK_INT(qwen36_session_logits(session, &logits, NULL, &error), QWEN36_ERROR_NO_LOGITS);
    CHECK_INT(qwen36_session_reset(session, NULL), QWEN36_OK);
    CHECK_INT(qwen36_session_length(session), 0);
    CHECK_INT(model->cache.blocks.free_count + model->cache.prefix.idle, model->cache.blocks.capacity);
    qwen36_session_destroy(session);
    check_all_free(model);
    qwen36_model_release(model);
}

TEST(session, sync_reuses_what_is_computed)
{
    float fresh[1024], synced[1024];
    size_t reused = 99;
    qwen36_model *model = small_model(64, 2, 64);
    qwen36_session *session = session_with(model, 6), *other = test_session(model);
    test_compute(session);
    CHECK_INT(qwen36_session_sync(session, TOKENS, 12, &reused, NULL), QWEN36_OK);
    CHECK_INT(reused, 6);
    test_compute(session);
    copy_logits(session, synced);
    CHECK_INT(qwen36_session_sync(other, TOKENS, 12, &reused, NULL), QWEN36_OK);
    CHECK_INT(reused, 0);
    test_compute(other);
    copy_logits(other, fresh);
    CHECK(same_logits(fresh, synced));
    /* the same again costs nothing; a shorter or different list is computed anew */
    CHECK_INT(qwen36_session_sync(session, TOKENS, 12, &reused, NULL), QWEN36_OK);
    CHECK_INT(reused, 12);
    CHECK_INT(qwen36_session_sync(session, TOKENS, 11, &reused, NULL), QWEN36_OK);
    CHECK_INT(reused, 0);
    test_compute(session);
    CHECK_INT(qwen36_session_append(session, TOKENS + 11, 1, QWEN36_LOGITS_LAST, NULL), QWEN36_OK);
    test_compute(session);
    copy_logits(session, synced);
    CHECK(same_logits(fresh, synced));
    CHECK_INT(qwen36_session_sync(session, TOKENS, 0, &reused, NULL), QWEN36_OK);
    CHECK_INT(qwen36_session_length(session), 0);
    qwen36_session_destroy(session);
    qwen36_session_destroy(other);
    check_all_free(model);
    qwen36_model_release(model);
}

TEST(session, sampled_tokens_belong_to_the_history)
{
    int32_t token = -1, ids[COUNT + 1];
    size_t reused = 0;
    qwen36_model *model = small_model(64, 1, 64);
    qwen36_session *session = session_with(model, 8);
    test_compute(session);
    CHECK_INT(qwen36_sample(&session, 1, &token, NULL, NULL), QWEN36_OK);
    CHECK_INT(qwen36_session_length(session), 9);
    CHECK_INT(qwen36_session_computed(session), 8);
    int32_t again = -1; /* a token is pending: nothing to sample from */
    CHECK_INT(qwen36_sample(&session, 1, &again, NULL, NULL), QWEN36_ERROR_NO_LOGITS);
    CHECK_INT(again, -1);
    CHECK_INT(qwen36_session_rewind(session, 8, NULL), QWEN36_OK); /* over the pending token: same draw */
    CHECK_INT(qwen36_sample(&session, 1, &again, NULL, NULL), QWEN36_OK);
    CHECK_INT(again, token);
    test_compute(session);
    memcpy(ids, TOKENS, 8 * sizeof *ids);
    ids[8] = token;
    ids[9] = 11;
    CHECK_INT(qwen36_session_sync(session, ids, 10, &reused, NULL), QWEN36_OK);
    CHECK_INT(reused, 9);
    qwen36_session_destroy(session);
    qwen36_model_release(model);
}

TEST(session, capacity_is_exact)
{
    int32_t token;
    qwen36_error error = QWEN36_ERROR_INIT;
    qwen36_model *model = small_model(16, 1, 64);
    qwen36_session *session = session_with(model, 15);
    CHECK_INT(qwen36_session_append(session, TOKENS, 2, QWEN36_LOGITS_LAST, &error),
              QWEN36_ERROR_CONTEXT_FULL);
    CHECK(strlen(error.message) > 0);
    CHECK_INT(qwen36_session_length(session), 15);
    test_compute(session);
    CHECK_INT(qwen36_sample(&session, 1, &token, NULL, NULL), QWEN36_OK);
    test_compute(session);
    CHECK_INT(qwen36_session_computed(session), 16);
    CHECK_INT(qwen36_sample(&session, 1, &token, NULL, &error), QWEN36_ERROR_CONTEXT_FULL);
    CHECK_INT(qwen36_session_length(session), 16);
    CHECK_INT(qwen36_session_sync(session, TOKENS, 16, NULL, NULL), QWEN36_OK);
    test_compute(session);
    qwen36_session_destroy(session);
    qwen36_model_release(model);
}

TEST(session, context_of_one_token)
{
    int32_t token;
    qwen36_model *model = small_model(1, 1, 1);
    qwen36_session *session = session_with(model, 1);
    test_compute(session);
    CHECK_INT(qwen36_sample(&session, 1, &token, NULL, NULL), QWEN36_ERROR_CONTEXT_FULL);
    qwen36_generate_result result = {.struct_size = sizeof result};
    CHECK_INT(qwen36_generate(session, NULL, &result, NULL), QWEN36_OK);
    CHECK_INT(result.finish, QWEN36_FINISH_CONTEXT_FULL);
    CHECK_INT(result.output_tokens, 0);
    qwen36_session_destroy(session);
    qwen36_model_release(model);
}

/* No option leads past the positions that the rotation was made for. */
TEST(session, positions_end_where_the_model_ends)
{
    qwen36_error error = QWEN36_ERROR_INIT;
    qwen36_model_info info = {.struct_size = sizeof info};
    qwen36_session_options options;
    qwen36_session *session = NULL;
    qwen36_model_options model_options = test_model_options();
    model_options.context_length = 1 << 20;
    model_options.max_sessions = 1;
    model_options.cache_bytes = 1 << 20;
    qwen36_model *model = test_model(test_checkpoint("odd"), &model_options);
    CHECK_INT(qwen36_model_get_info(model, &info, NULL), QWEN36_OK);
    CHECK(info.max_positions < 1 << 20);
    CHECK_INT(info.context_length, info.max_positions);
    CHECK_INT(qwen36_session_options_init(model, &options, sizeof options), QWEN36_OK);
    options.context_length = info.max_positions + 1;
    CHECK_INT(qwen36_session_create(model, &options, &session, &error), QWEN36_ERROR_ARGUMENT);
    session = test_session(model);
    int32_t *tokens = calloc((size_t)info.max_positions + 1, sizeof *tokens);
    CHECK_INT(
        qwen36_session_append(session, tokens, (size_t)info.max_positions + 1, QWEN36_LOGITS_LAST, &error),
        QWEN36_ERROR_CONTEXT_FULL);
    free(tokens);
    qwen36_session_destroy(session);
    qwen36_model_release(model);
}

/* Two blocks for three sessions: the one that finds none fails alone, and goes on when one is free. */
TEST(session, exhausted_pool_fails_one_session)
{
    qwen36_error error = QWEN36_ERROR_INIT;
    qwen36_model_info info = {.struct_size = sizeof info};
    qwen36_model_options options = test_model_options();
    qwen36_model *model = small_model(64, 3, 64);
    CHECK_INT(qwen36_model_get_info(model, &info, NULL), QWEN36_OK);
    qwen36_model_release(model);
    options.max_sessions = 3;
    options.context_length = 64;
    options.cache_bytes = 2 * 64 * info.kv_token_bytes + 5;
    model = test_model(test_checkpoint("moe"), &options);
    CHECK_INT(model->cache.blocks.capacity, 2);
    qwen36_session *all[3] = {session_with(model, 3), session_with(model, 4), session_with(model, 5)};
    qwen36_status statuses[3];
    CHECK_INT(qwen36_step(all, 3, NULL, statuses, &error), QWEN36_ERROR_CACHE_FULL);
    CHECK_INT(statuses[0], QWEN36_OK);
    CHECK_INT(statuses[1], QWEN36_OK);
    CHECK_INT(statuses[2], QWEN36_ERROR_CACHE_FULL);
    CHECK_INT(qwen36_session_computed(all[2]), 0);
    check_pools(model);
    qwen36_session_destroy(all[0]);
    CHECK_INT(qwen36_step(all + 1, 2, NULL, statuses, NULL), QWEN36_OK);
    CHECK_INT(qwen36_session_computed(all[2]), 5);
    qwen36_session_destroy(all[1]);
    qwen36_session_destroy(all[2]);
    check_all_free(model);
    qwen36_model_release(model);
}

TEST(session, too_many_sessions)
{
    qwen36_error error = QWEN36_ERROR_INIT;
    qwen36_session *third = (qwen36_session *)&error;
    qwen36_model *model = small_model(64, 2, 64);
    qwen36_session *a = test_session(model), *b = test_session(model);
    CHECK_INT(qwen36_session_create(model, NULL, &third, &error), QWEN36_ERROR_SESSIONS_FULL);
    CHECK(third == NULL);
    qwen36_session_destroy(a);
    a = test_session(model);
    qwen36_session_destroy(a);
    qwen36_model_release(model); /* the session keeps the model alive */
    CHECK_INT(qwen36_session_append(b, TOKENS, 3, QWEN36_LOGITS_LAST, NULL), QWEN36_OK);
    test_compute(b);
    qwen36_session_destroy(b);
}

TEST(session, interrupt_while_idle)
{
    float before[1024], after[1024];
    qwen36_model *model = small_model(64, 2, 64);
    qwen36_session *session = session_with(model, 5), *other = session_with(model, 6);
    qwen36_session *both[2] = {session, other};
    qwen36_status statuses[2];
    test_compute(session);
    copy_logits(session, before);
    CHECK_INT(qwen36_session_append(session, TOKENS, 3, QWEN36_LOGITS_LAST, NULL), QWEN36_OK);
    qwen36_session_interrupt(session);
    CHECK_INT(qwen36_step(both, 2, NULL, statuses, NULL), QWEN36_INTERRUPTED);
    CHECK_INT(statuses[0], QWEN36_INTERRUPTED);
    CHECK_INT(statuses[1], QWEN36_OK);
    CHECK_INT(qwen36_session_computed(session), 5);
    copy_logits(session, after);
    CHECK(memcmp(before, after, sizeof(float) * 512) == 0);
    CHECK_INT(qwen36_step(both, 2, NULL, statuses, NULL), QWEN36_OK);
    CHECK_INT(qwen36_session_computed(session), 8);
    qwen36_session_interrupt(NULL);
    qwen36_session_destroy(session);
    qwen36_session_destroy(other);
    qwen36_model_release(model);
}

TEST(session, arrays_of_sessions_are_checked)
{
    qwen36_error error = QWEN36_ERROR_INIT;
    int32_t tokens[2];
    qwen36_model *model = small_model(64, 2, 64), *second = small_model(64, 1, 64);
    qwen36_session *a = session_with(model, 3), *stranger = session_with(second, 3);
    qwen36_session *twice[2] = {a, a}, *mixed[2] = {a, stranger}, *hole[2] = {a, NULL};
    CHECK_INT(qwen36_step(twice, 2, NULL, NULL, &error), QWEN36_ERROR_ARGUMENT);
    CHECK(strstr(error.message, "twice") != NULL);
    CHECK_INT(qwen36_step(mixed, 2, NULL, NULL, &error), QWEN36_ERROR_ARGUMENT);
    CHECK_INT(qwen36_step(hole, 2, NULL, NULL, &error), QWEN36_ERROR_ARGUMENT);
    CHECK_INT(qwen36_sample(hole, 2, tokens, NULL, &error), QWEN36_ERROR_ARGUMENT);
    CHECK_INT(qwen36_step(&a, 0, NULL, NULL, &error), QWEN36_ERROR_ARGUMENT);
    CHECK_INT(qwen36_step(NULL, 1, NULL, NULL, &error), QWEN36_ERROR_ARGUMENT);
    CHECK_INT(qwen36_sample(&a, 1, NULL, NULL, &error), QWEN36_ERROR_ARGUMENT);
    test_compute(a); /* none of this marked it */
    qwen36_session_destroy(a);
    qwen36_session_destroy(stranger);
    qwen36_model_release(model);
    qwen36_model_release(second);
}

TEST(session, bad_tokens_change_nothing)
{
    qwen36_error error = QWEN36_ERROR_INIT;
    int32_t bad[3] = {1, 512, 2}, negative[2] = {1, -1};
    qwen36_model *model = small_model(64, 1, 64);
    qwen36_session *session = session_with(model, 3);
    CHECK_INT(qwen36_session_append(session, bad, 3, QWEN36_LOGITS_LAST, &error), QWEN36_ERROR_TOKEN_ID);
    CHECK_INT(qwen36_session_sync(session, negative, 2, NULL, &error), QWEN36_ERROR_TOKEN_ID);
    CHECK_INT(qwen36_session_append(session, TOKENS, 3, 7, &error), QWEN36_ERROR_ARGUMENT);
    CHECK_INT(qwen36_session_rewind(session, 4, &error), QWEN36_ERROR_ARGUMENT);
    CHECK_INT(qwen36_session_length(session), 3);
    qwen36_session_destroy(session);
    qwen36_model_release(model);
}

/* Scores equal what log softmax of the logits says, however the timeline was cut before. */
TEST(session, score)
{
    float scored[COUNT], row[1024];
    qwen36_model *model = small_model(64, 2, 64);
    qwen36_session *session = test_session(model), *plain = test_session(model);
    CHECK_INT(qwen36_session_score(session, TOKENS, 1, scored, NULL), QWEN36_OK);
    CHECK(scored[0] == 0);
    CHECK_INT(qwen36_session_score(session, TOKENS + 1, 9, scored + 1, NULL), QWEN36_OK);
    CHECK_INT(qwen36_session_append(session, TOKENS + 10, 2, QWEN36_LOGITS_NONE, NULL), QWEN36_OK);
    CHECK_INT(qwen36_session_score(session, TOKENS + 12, 2, scored + 12, NULL),
              QWEN36_OK); /* pending before */
    CHECK_INT(qwen36_session_append(session, TOKENS + 14, 1, QWEN36_LOGITS_NONE, NULL), QWEN36_OK);
    test_compute(session);
    CHECK_INT(qwen36_session_score(session, TOKENS + 15, 1, scored + 15, NULL),
              QWEN36_OK); /* no logits before */
    for (int32_t i = 0; i < COUNT; i++) {
        if (i > 0 && i != 10 && i != 11 && i != 14) {
            double largest = -INFINITY, sum = 0;
            copy_logits(plain, row);
            for (int32_t v = 0; v < 512; v++)
                largest = fmax(largest, (double)row[v]);
            for (int32_t v = 0; v < 512; v++)
                sum += exp((double)row[v] - largest);
            double expected = (double)row[TOKENS[i]] - largest - log(sum);
            CHECK_MSG(fabs(expected - (double)scored[i]) < 1e-5, "token %d: %g, expected %g", i,
                      (double)scored[i], expected);
        }
        CHECK_INT(qwen36_session_append(plain, TOKENS + i, 1, QWEN36_LOGITS_LAST, NULL), QWEN36_OK);
        test_compute(plain);
    }
    CHECK_INT(qwen36_session_length(session), COUNT);
    qwen36_session_destroy(session);
    qwen36_session_destroy(plain);
    qwen36_model_release(model);
}

TEST(session, interrupted_score_keeps_what_was_computed)
{
    float scored[COUNT];
    qwen36_model *model = small_model(64, 1, 4);
    qwen36_session *session = session_with(model, 3);
    test_compute(session);
    qwen36_session_interrupt(session);
    CHECK_INT(qwen36_session_score(session, TOKENS, COUNT, scored, NULL), QWEN36_INTERRUPTED);
    CHECK_INT(qwen36_session_length(session), 3);
    CHECK_INT(qwen36_session_score(session, TOKENS, COUNT, scored, NULL), QWEN36_OK);
    CHECK_INT(qwen36_session_length(session), 3 + COUNT);
    qwen36_session_destroy(session);
    qwen36_model_release(model);
}

/* ---- callbacks ----------------------------------------------------------------------------------------- */

static qwen36_status seen[5];

static void call_from_inside(void *user, qwen36_session *session, int32_t position, const float *logits,
                             int32_t vocab_size)
{
    (void)position;
    (void)logits;
    (void)vocab_size;
    qwen36_session *other = user, *made = NULL;
    seen[0] = qwen36_step(&session, 1, NULL, NULL, NULL);
    seen[1] = qwen36_session_rewind(session, 0, NULL);
    seen[2] = qwen36_session_append(other, TOKENS, 1, QWEN36_LOGITS_NONE, NULL);
    seen[3] = qwen36_step(&other, 1, NULL, NULL, NULL);
    seen[4] = qwen36_session_create(session->model, NULL, &made, NULL);
    qwen36_session_interrupt(other);
    qwen36_session_destroy(session); /* refused */
}

TEST(session, calls_out_of_a_callback_are_refused)
{
    qwen36_session_options options;
    qwen36_session *session = NULL;
    qwen36_model *model = small_model(64, 3, 64);
    qwen36_session *other = session_with(model, 2);
    CHECK_INT(qwen36_session_options_init(model, &options, sizeof options), QWEN36_OK);
    options.on_logits = call_from_inside;
    options.user = other;
    CHECK_INT(qwen36_session_create(model, &options, &session, NULL), QWEN36_OK);
    CHECK_INT(qwen36_session_append(session, TOKENS, 2, QWEN36_LOGITS_ALL, NULL), QWEN36_OK);
    test_compute(session);
    for (int i = 0; i < 5; i++)
        CHECK_INT(seen[i], QWEN36_ERROR_BUSY);
    CHECK_INT(qwen36_session_computed(session), 2);
    CHECK_INT(qwen36_step(&other, 1, NULL, NULL, NULL), QWEN36_INTERRUPTED);
    qwen36_session_destroy(session);
    qwen36_session_destroy(other);
    check_all_free(model);
    qwen36_model_release(model);
}

/* ---- generate ------------------------------------------------------------------------------------------ */

typedef struct heard {
    int32_t tokens, ends;
    int32_t stop_after;
    qwen36_session *interrupt;
} heard;

static int32_t listen(void *user, int32_t token, const char *text, size_t length)
{
    heard *h = user;
    CHECK(text != NULL && text[length] == '\0');
    if (token < 0)
        h->ends++;
    else
        h->tokens++;
    if (h->interrupt != NULL)
        qwen36_session_interrupt(h->interrupt);
    return h->stop_after > 0 && h->tokens >= h->stop_after;
}

TEST(session, generate_says_why_it_ended)
{
    heard h = {0};
    qwen36_generate_options options;
    qwen36_generate_result result = {.struct_size = sizeof result};
    qwen36_error error = QWEN36_ERROR_INIT;
    qwen36_model_options model_options = test_model_options();
    model_options.context_length = 64;
    qwen36_model *model = test_model("examples/demo-model", &model_options);
    qwen36_session *session = test_session(model);
    qwen36_generate_options_init(&options, sizeof options);
    options.on_text = listen;
    options.user = &h;
    CHECK_INT(qwen36_generate(session, &options, &result, &error), QWEN36_ERROR_NO_LOGITS); /* empty */
    CHECK_INT(result.finish, QWEN36_FINISH_ERROR);
    CHECK_INT(qwen36_session_append(session, TOKENS, 8, QWEN36_LOGITS_NONE, NULL), QWEN36_OK);
    options.max_tokens = 5;
    options.ignore_end_tokens = 1;
    CHECK_INT(qwen36_generate(session, &options, &result, &error), QWEN36_OK);
    CHECK_INT(result.finish, QWEN36_FINISH_LENGTH);
    CHECK_INT(result.prompt_tokens, 8);
    CHECK_INT(result.output_tokens, 5);
    CHECK_INT(h.tokens, 5);
    CHECK_INT(qwen36_session_length(session), 13);
    h = (heard){.stop_after = 3};
    CHECK_INT(qwen36_generate(session, &options, &result, &error), QWEN36_OK);
    CHECK_INT(result.finish, QWEN36_FINISH_CALLBACK);
    CHECK_INT(h.tokens, 3);
    h = (heard){.interrupt = session};
    CHECK_INT(qwen36_generate(session, &options, &result, &error), QWEN36_INTERRUPTED);
    CHECK_INT(result.finish, QWEN36_FINISH_INTERRUPTED);
    CHECK_INT(h.tokens, 1);
    h = (heard){0};
    options.max_tokens = 1000;
    qwen36_session_interrupt(session); /* the tail's text may have set it again: clear it by a step */
    CHECK_INT(qwen36_step(&session, 1, NULL, NULL, NULL), QWEN36_INTERRUPTED);
    CHECK_INT(qwen36_generate(session, &options, &result, &error), QWEN36_OK);
    CHECK_INT(result.finish, QWEN36_FINISH_CONTEXT_FULL);
    CHECK_INT(qwen36_session_length(session), 64);
    options.max_tokens = -1;
    CHECK_INT(qwen36_generate(session, &options, &result, &error), QWEN36_ERROR_ARGUMENT);
    qwen36_session_destroy(session);
    qwen36_model_release(model);
}

/* The end token stops, stays in the timeline, and gives no text. */
TEST(session, generate_stops_at_an_end_token)
{
    int32_t ends[16];
    size_t count = 0;
    heard h = {0};
    qwen36_generate_options options;
    qwen36_generate_result result = {.struct_size = sizeof result};
    qwen36_model_options model_options = test_model_options();
    qwen36_model *model = test_model("examples/demo-model", &model_options);
    qwen36_session *session = session_with(model, 4);
    CHECK_INT(qwen36_model_end_tokens(model, ends, 16, &count, NULL), QWEN36_OK);
    CHECK(count >= 1);
    float bias = 1000;
    CHECK_INT(qwen36_session_set_bias(session, ends, &bias, 1, NULL), QWEN36_OK);
    qwen36_generate_options_init(&options, sizeof options);
    options.on_text = listen;
    options.user = &h;
    CHECK_INT(qwen36_generate(session, &options, &result, NULL), QWEN36_OK);
    CHECK_INT(result.finish, QWEN36_FINISH_END_TOKEN);
    CHECK_INT(result.output_tokens, 1);
    int32_t last = -1;
    CHECK_INT(qwen36_session_tokens(session, qwen36_session_length(session) - 1, 1, &last, NULL), QWEN36_OK);
    CHECK_INT(last, ends[0]);
    qwen36_session_destroy(session);
    qwen36_model_release(model);
}

/* ---- a forked child ------------------------------------------------------------------------------------ */

static int child_verdict(qwen36_model *model, qwen36_session *session)
{
    int32_t token;
    size_t count = 0;
    qwen36_session *made = NULL;
    qwen36_model_info info = {.struct_size = sizeof info};
    int32_t ids[4];
    bool refused = qwen36_step(&session, 1, NULL, NULL, NULL) == QWEN36_ERROR_FORKED &&
                   qwen36_sample(&session, 1, &token, NULL, NULL) == QWEN36_ERROR_FORKED &&
                   qwen36_session_append(session, TOKENS, 1, 0, NULL) == QWEN36_ERROR_FORKED &&
                   qwen36_session_create(model, NULL, &made, NULL) == QWEN36_ERROR_FORKED &&
                   qwen36_model_get_info(model, &info, NULL) == QWEN36_ERROR_FORKED &&
                   qwen36_generate(session, NULL, NULL, NULL) == QWEN36_ERROR_FORKED &&
                   qwen36_tokenizer_encode(qwen36_model_tokenizer(model), "a", 1, 0, ids, 4, &count, NULL) ==
                       QWEN36_ERROR_FORKED;
    qwen36_session_destroy(session);
    qwen36_model_release(model);
    return refused ? 0 : 1;
}

TEST(session, child_process)
{
    int status = -1;
    qwen36_model_options options = test_model_options();
    options.threads = 2;
    qwen36_model *model = test_model("examples/demo-model", &options);
    qwen36_session *session = session_with(model, 4);
    test_compute(session);
    fflush(NULL);
    pid_t child = fork();
    if (child == 0)
        _exit(child_verdict(model, session));
    CHECK(child > 0 && waitpid(child, &status, 0) == child);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    CHECK_INT(qwen36_session_append(session, TOKENS, 1, QWEN36_LOGITS_LAST, NULL), QWEN36_OK);
    test_compute(session);
    qwen36_session_destroy(session);
    qwen36_model_release(model);
}

/* ---- what a failing call must not leave behind --------------------------------------------------------- */

enum { DRAWN = 20 };

/* Greedy tokens under a presence penalty; returns whether one of them came twice. */
static bool draw_greedily(qwen36_session *session, float presence, bool after_interrupted_score,
                          int32_t *tokens)
{
    float scored[COUNT];
    bool repeats = false;
    qwen36_sampling sampling = {.struct_size = sizeof sampling};
    CHECK_INT(qwen36_session_get_sampling(session, &sampling, NULL), QWEN36_OK);
    sampling.temperature = 0;
    sampling.presence_penalty = presence;
    CHECK_INT(qwen36_session_set_sampling(session, &sampling, NULL), QWEN36_OK);
    test_compute(session);
    if (after_interrupted_score) {
        qwen36_session_interrupt(session);
        CHECK_INT(qwen36_session_score(session, TOKENS, COUNT, scored, NULL), QWEN36_INTERRUPTED);
    }
    for (int i = 0; i < DRAWN; i++) {
        CHECK_INT(qwen36_sample(&session, 1, &tokens[i], NULL, NULL), QWEN36_OK);
        for (int j = 0; j < i; j++)
            repeats = repeats || tokens[i] == tokens[j];
        test_compute(session);
    }
    return repeats;
}

/* The penalties look at the output, so it shows where the library thinks that it begins. */
TEST(session, interrupted_score_leaves_the_output_where_it_was)
{
    int32_t tokens[3][DRAWN];
    qwen36_model_options options = test_model_options();
    qwen36_model *model = test_model("examples/demo-model", &options);
    for (int pass = 0; pass < 3; pass++) {
        qwen36_session *session = session_with(model, 5);
        bool repeats = draw_greedily(session, pass == 0 ? 0 : 1000, pass == 2, tokens[pass]);
        CHECK_INT(repeats, pass == 0);
        qwen36_session_destroy(session);
    }
    CHECK(memcmp(tokens[1], tokens[2], sizeof tokens[1]) == 0);
    qwen36_model_release(model);
}

TEST(session, score_of_nothing_computes_what_is_pending)
{
    qwen36_model *model = small_model(64, 1, 64);
    qwen36_session *session = session_with(model, 5);
    CHECK_INT(qwen36_session_score(session, NULL, 0, NULL, NULL), QWEN36_OK);
    CHECK_INT(qwen36_session_computed(session), 5);
    qwen36_session_destroy(session);
    qwen36_model_release(model);
}

TEST(session, rewinding_among_pending_tokens_wants_the_last)
{
    int32_t token;
    qwen36_model *model = small_model(64, 1, 64);
    qwen36_session *session = session_with(model, 10);
    CHECK_INT(qwen36_session_rewind(session, 5, NULL), QWEN36_OK);
    test_compute(session);
    CHECK_INT(qwen36_sample(&session, 1, &token, NULL, NULL), QWEN36_OK);
    qwen36_session_destroy(session);
    qwen36_model_release(model);
}

TEST(session, generate_checks_before_it_computes)
{
    const char *const empty[] = {""};
    qwen36_generate_options options;
    qwen36_generate_result result = {.struct_size = 2};
    qwen36_model_options model_options = test_model_options();
    qwen36_model *model = test_model("examples/demo-model", &model_options);
    qwen36_session *session = test_session(model);
    CHECK_INT(qwen36_session_append(session, TOKENS, 6, QWEN36_LOGITS_NONE, NULL), QWEN36_OK);
    test_compute(session);
    CHECK_INT(qwen36_generate(session, NULL, &result, NULL), QWEN36_ERROR_STRUCT_SIZE);
    CHECK_INT(qwen36_session_length(session), 6);
    qwen36_generate_options_init(&options, sizeof options);
    options.stops = empty;
    options.stop_count = 1;
    CHECK_INT(qwen36_generate(session, &options, NULL, NULL), QWEN36_ERROR_ARGUMENT);
    CHECK_INT(qwen36_session_computed(session), 6);
    qwen36_session_destroy(session);
    qwen36_model_release(model);
}
