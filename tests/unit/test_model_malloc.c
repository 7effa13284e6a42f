/* Every allocation fails once, ours through the hooks and third parties' through malloc: each call gives
 * OUT_OF_MEMORY (or succeeds), nothing leaks, and objects made before go on. */
#include "lib/api/api.h"
#include "tests/harness.h"
#include "tests/unit/checkpoint.h"
#include "tests/unit/malloc_wrap.h"

#include <cjson/cJSON.h>

static test_allocator state;
static const qwen36_allocator HOOKS = {sizeof HOOKS, 0, test_allocate, test_release, &state};

/* ---- a session's whole life, the k-th allocation of it failing ----------------------------------------- */

static const int32_t IDS[] = {5, 9, 17, 33, 2, 8};

static qwen36_model_options hooked_options(void)
{
    qwen36_model_options options = test_model_options();
    options.allocator = &HOOKS;
    options.context_length = 64;
    options.max_batch_tokens = 32;
    options.threads = 2;
    return options;
}

static bool out_of_memory(qwen36_status status, const qwen36_error *error)
{
    CHECK_MSG(status == QWEN36_OK || status == QWEN36_ERROR_OUT_OF_MEMORY, "%s: %s",
              qwen36_status_name(status), error->message);
    CHECK(status == QWEN36_OK || strlen(error->message) > 0);
    return status != QWEN36_OK;
}

/* Returns the first failure. */
static qwen36_status use_session(qwen36_model *model, qwen36_error *error)
{
    float bias[2] = {1, -1}, scores[3];
    uint32_t words[256];
    int32_t token, tokens[2] = {3, 4};
    qwen36_session *session = NULL;
    qwen36_generate_options options;
    qwen36_generate_options_init(&options, sizeof options);
    options.max_tokens = 3;
    memset(words, 0xff, sizeof words);
    qwen36_status status = qwen36_session_create(model, NULL, &session, error);
    if (status == QWEN36_OK)
        status = qwen36_session_append(session, IDS, 6, QWEN36_LOGITS_LAST, error);
    if (status == QWEN36_OK)
        status = qwen36_session_set_bias(session, tokens, bias, 2, error);
    if (status == QWEN36_OK)
        status =
            qwen36_session_set_bitmask(session, words, (size_t)(model->dims.vocab_size + 31) / 32, error);
    if (status == QWEN36_OK)
        status = qwen36_step(&session, 1, NULL, NULL, error);
    if (status == QWEN36_OK)
        status = qwen36_sample(&session, 1, &token, NULL, error);
    if (status == QWEN36_OK)
        status = qwen36_session_score(session, IDS, 3, scores, error);
    if (status == QWEN36_OK)
        status = qwen36_generate(session, &options, NULL, error);
    qwen36_session_destroy(session);
    return status;
}

TEST(model_malloc, loading)
{
    const char *const directories[] = {"examples/demo-model", test_checkpoint("dense_tied")};
    qwen36_model_options options = hooked_options();
    for (size_t d = 0; d < QW_COUNT_OF(directories); d++) {
        bool failed = true;
        for (long k = 1; failed; k++) {
            qwen36_error error = QWEN36_ERROR_INIT;
            qwen36_model *model = NULL;
            state = (test_allocator){.fail_at = k};
            failed = out_of_memory(qwen36_model_load(directories[d], &options, &model, &error), &error);
            CHECK(failed == (model == NULL));
            qwen36_model_release(model);
            CHECK_MSG(state.outstanding == 0, "%ld allocations leak after the %ldth failed",
                      state.outstanding, k);
            CHECK_MSG(failed == (state.allocations >= k), "allocation %ld failed unnoticed", k);
        }
    }
}

TEST(model_malloc, estimate)
{
    qwen36_model_options options = hooked_options();
    const char *directory = test_checkpoint("moe");
    bool failed = true;
    for (long k = 1; failed; k++) {
        qwen36_error error = QWEN36_ERROR_INIT;
        qwen36_memory_estimate estimate = {.struct_size = sizeof estimate};
        state = (test_allocator){.fail_at = k};
        failed = out_of_memory(qwen36_memory_estimate_read(directory, &options, &estimate, &error), &error);
        CHECK(failed == (estimate.total_bytes == 0));
        CHECK_INT(state.outstanding, 0);
        CHECK(failed == (state.allocations >= k));
    }
}

TEST(model_malloc, sessions)
{
    qwen36_error error = QWEN36_ERROR_INIT;
    qwen36_model *model = NULL;
    qwen36_model_options options = hooked_options();
    state = (test_allocator){0};
    CHECK_INT(qwen36_model_load("examples/demo-model", &options, &model, &error), QWEN36_OK);
    long base = state.outstanding;
    bool failed = true;
    for (long k = 1; failed; k++) {
        state.allocations = 0;
        state.fail_at = k;
        failed = out_of_memory(use_session(model, &error), &error);
        CHECK_INT(state.outstanding, base);
        CHECK_INT(model->session_count, 0);
        CHECK_INT(model->cache.slots.free_count + model->cache.prefix.snapshots, model->cache.slots.capacity);
    }
    state.fail_at = 0;
    CHECK_INT(use_session(model, &error), QWEN36_OK);
    qwen36_model_release(model);
    CHECK_INT(state.outstanding, 0);
}

/* A step allocates nothing at all, nor does sampling. */
TEST(model_malloc, steps_allocate_nothing)
{
    int32_t token;
    qwen36_model *model = NULL;
    qwen36_model_options options = hooked_options();
    state = (test_allocator){0};
    CHECK_INT(qwen36_model_load("examples/demo-model", &options, &model, NULL), QWEN36_OK);
    qwen36_session *session = test_session(model);
    CHECK_INT(qwen36_session_append(session, IDS, 6, QWEN36_LOGITS_LAST, NULL), QWEN36_OK);
    long before = state.allocations;
    direct_calls = 0;
    counting = true;
    for (int i = 0; i < 8; i++) {
        CHECK_INT(qwen36_step(&session, 1, NULL, NULL, NULL), QWEN36_OK);
        CHECK_INT(qwen36_sample(&session, 1, &token, NULL, NULL), QWEN36_OK);
    }
    counting = false;
    CHECK_INT(direct_calls, 0);
    CHECK_INT(state.allocations, before);
    qwen36_session_destroy(session);
    qwen36_model_release(model);
}

TEST(model_malloc, json_parser)
{
    cJSON_Hooks hooks = {parser_malloc, free};
    qwen36_model_options options = hooked_options();
    bool reached = true;
    cJSON_InitHooks(&hooks);
    for (long k = 1; reached; k += k < 200 ? 1 : 97) {
        qwen36_error error = QWEN36_ERROR_INIT;
        qwen36_model *model = NULL;
        state = (test_allocator){0};
        parser.calls = 0;
        parser.fail_at = k;
        qwen36_status status = qwen36_model_load("examples/demo-model", &options, &model, &error);
        reached = parser.calls >= k;
        CHECK_MSG(reached == (status == QWEN36_ERROR_OUT_OF_MEMORY), "allocation %ld of the parser: %s: %s",
                  k, qwen36_status_name(status), error.message);
        qwen36_model_release(model);
        CHECK_INT(state.outstanding, 0);
    }
    cJSON_InitHooks(NULL);
    CHECK(parser.calls > 200);
}
