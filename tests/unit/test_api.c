/* The door: NULL and wrong struct_size on every exported call give a status and one line, and change nothing;
 * structs of other versions are adopted as qwen36.h says. */
#include "lib/api/api.h"
#include "tests/harness.h"
#include "tests/unit/checkpoint.h"

#include <math.h>

static qwen36_error error;

static void expect(qwen36_status actual, qwen36_status wanted, int line)
{
    CHECK_MSG(actual == wanted, "line %d: %s, expected %s", line, qwen36_status_name(actual),
              qwen36_status_name(wanted));
    CHECK_INT(error.status, actual);
    CHECK_MSG(strlen(error.message) > 5 && strchr(error.message, '\n') == NULL, "line %d: '%s'", line,
              error.message);
}

#define REFUSED(call)                                                                                        \
    do {                                                                                                     \
        error = (qwen36_error)QWEN36_ERROR_INIT;                                                             \
        expect(call, QWEN36_ERROR_ARGUMENT, __LINE__);                                                       \
    } while (0)
#define WRONG_SIZE(call)                                                                                     \
    do {                                                                                                     \
        error = (qwen36_error)QWEN36_ERROR_INIT;                                                             \
        expect(call, QWEN36_ERROR_STRUCT_SIZE, __LINE__);                                                    \
    } while (0)

TEST(api, null_models)
{
    size_t count;
    qwen36_model *model = NULL;
    qwen36_session *session = NULL;
    qwen36_memory_estimate estimate = {.struct_size = sizeof estimate};
    qwen36_model_info info = {.struct_size = sizeof info};
    REFUSED(qwen36_model_load(NULL, NULL, &model, &error));
    REFUSED(qwen36_model_load(".", NULL, NULL, &error));
    REFUSED(qwen36_memory_estimate_read(NULL, NULL, &estimate, &error));
    REFUSED(qwen36_memory_estimate_read(".", NULL, NULL, &error));
    REFUSED(qwen36_model_get_info(NULL, &info, &error));
    REFUSED(qwen36_model_end_tokens(NULL, NULL, 0, &count, &error));
    REFUSED(qwen36_session_create(NULL, NULL, &session, &error));
    CHECK_INT(qwen36_session_options_init(NULL, NULL, 8), QWEN36_ERROR_ARGUMENT);
    CHECK_INT(qwen36_step_options_init(NULL, NULL, 8), QWEN36_ERROR_ARGUMENT);
    CHECK_INT(qwen36_sampling_init(NULL, NULL, 8), QWEN36_ERROR_ARGUMENT);
    CHECK(qwen36_model_tokenizer(NULL) == NULL);
    CHECK(qwen36_model_retain(NULL) == NULL);
    qwen36_model_release(NULL);
    qwen36_session_destroy(NULL);
    qwen36_tokenizer_destroy(NULL);
    qwen36_decoder_destroy(NULL);
    qwen36_model_options_init(NULL, 10);
    qwen36_generate_options_init(NULL, 10);
    qwen36_decoder_options_init(NULL, 10);
}

TEST(api, null_sessions)
{
    int32_t token = 0;
    float value;
    size_t count;
    uint32_t word = 0;
    const float *logits;
    qwen36_session *none = NULL;
    qwen36_sampling sampling = {.struct_size = sizeof sampling};
    REFUSED(qwen36_session_append(NULL, &token, 1, 0, &error));
    REFUSED(qwen36_session_sync(NULL, &token, 1, NULL, &error));
    REFUSED(qwen36_session_rewind(NULL, 0, &error));
    REFUSED(qwen36_session_reset(NULL, &error));
    REFUSED(qwen36_session_tokens(NULL, 0, 0, &token, &error));
    REFUSED(qwen36_session_logits(NULL, &logits, NULL, &error));
    REFUSED(qwen36_session_score(NULL, &token, 1, &value, &error));
    REFUSED(qwen36_session_set_sampling(NULL, &sampling, &error));
    REFUSED(qwen36_session_get_sampling(NULL, &sampling, &error));
    REFUSED(qwen36_session_set_bias(NULL, &token, &value, 1, &error));
    REFUSED(qwen36_session_set_bitmask(NULL, &word, 1, &error));
    REFUSED(qwen36_session_logprobs(NULL, &value, &token, &value, 1, &count, &error));
    REFUSED(qwen36_step(NULL, 1, NULL, NULL, &error));
    REFUSED(qwen36_step(&none, 1, NULL, NULL, &error));
    REFUSED(qwen36_sample(&none, 1, &token, NULL, &error));
    REFUSED(qwen36_generate(NULL, NULL, NULL, &error));
    CHECK_INT(qwen36_session_length(NULL), 0);
    CHECK_INT(qwen36_session_computed(NULL), 0);
    CHECK_INT(qwen36_session_capacity(NULL), 0);
}

TEST(api, null_tokenizers)
{
    int32_t id = 0;
    size_t count = 0;
    char text[8];
    const char *piece = NULL;
    qwen36_tokenizer *tokenizer = NULL;
    qwen36_decoder *decoder = NULL;
    REFUSED(qwen36_tokenizer_load(NULL, NULL, &tokenizer, &error));
    REFUSED(qwen36_tokenizer_load(".", NULL, NULL, &error));
    REFUSED(qwen36_tokenizer_encode(NULL, "a", 1, 0, &id, 1, &count, &error));
    REFUSED(qwen36_tokenizer_decode(NULL, &id, 1, 0, text, 8, &count, &error));
    REFUSED(qwen36_decoder_create(NULL, NULL, &decoder, &error));
    REFUSED(qwen36_decoder_push(NULL, 0, &piece, &count, &error));
    REFUSED(qwen36_decoder_finish(NULL, &piece, &count, &error));
    CHECK_INT(qwen36_tokenizer_size(NULL), 0);
    CHECK(qwen36_tokenizer_bytes(NULL, 0, &count) == NULL);
    CHECK_INT(qwen36_tokenizer_id(NULL, "a", 1), -1);
    CHECK_INT(qwen36_tokenizer_is_special(NULL, 0), 0);
}

TEST(api, null_buffers)
{
    size_t count = 0;
    float value = 0;
    int32_t id = 0;
    qwen36_model_options options = test_model_options();
    qwen36_model *model = test_model("examples/demo-model", &options);
    const qwen36_tokenizer *tokenizer = qwen36_model_tokenizer(model);
    qwen36_session *session = test_session(model);
    REFUSED(qwen36_model_get_info(model, NULL, &error));
    REFUSED(qwen36_model_end_tokens(model, NULL, 4, &count, &error));
    REFUSED(qwen36_model_end_tokens(model, &id, 1, NULL, &error));
    REFUSED(qwen36_session_create(model, NULL, NULL, &error));
    REFUSED(qwen36_session_append(session, NULL, 1, 0, &error));
    REFUSED(qwen36_session_sync(session, NULL, 1, NULL, &error));
    REFUSED(qwen36_session_tokens(session, 0, 1, NULL, &error));
    REFUSED(qwen36_session_logits(session, NULL, NULL, &error));
    REFUSED(qwen36_session_score(session, &id, 1, NULL, &error));
    REFUSED(qwen36_session_set_sampling(session, NULL, &error));
    REFUSED(qwen36_session_get_sampling(session, NULL, &error));
    REFUSED(qwen36_session_set_bias(session, NULL, &value, 1, &error));
    REFUSED(qwen36_session_set_bitmask(session, NULL, 1, &error));
    REFUSED(qwen36_session_logprobs(session, &value, NULL, NULL, 1, &count, &error));
    REFUSED(qwen36_tokenizer_encode(tokenizer, NULL, 1, 0, &id, 1, &count, &error));
    REFUSED(qwen36_tokenizer_encode(tokenizer, "a", 1, 0, NULL, 1, &count, &error));
    REFUSED(qwen36_tokenizer_encode(tokenizer, "a", 1, 0, &id, 1, NULL, &error));
    REFUSED(qwen36_tokenizer_encode(tokenizer, "a", 1, 0x80, &id, 1, &count, &error));
    REFUSED(qwen36_tokenizer_decode(tokenizer, NULL, 1, 0, NULL, 0, &count, &error));
    REFUSED(qwen36_decoder_create(tokenizer, NULL, NULL, &error));
    error = (qwen36_error)QWEN36_ERROR_INIT;
    expect(qwen36_session_logprobs(session, &value, NULL, NULL, 0, &count, &error), QWEN36_ERROR_NO_LOGITS,
           __LINE__);
    CHECK_INT(qwen36_session_length(session), 0);
    qwen36_session_destroy(session);
    qwen36_model_release(model);
}

/* ---- structs of other versions ------------------------------------------------------------------------- */

/* A model options struct as a later version would have it: two more fields. */
typedef struct longer_options {
    qwen36_model_options known;
    uint64_t more[2];
} longer_options;

TEST(api, model_options_of_other_sizes)
{
    qwen36_model *model = NULL;
    longer_options options;
    memset(&options, 0xff, sizeof options);
    qwen36_model_options_init(&options.known, sizeof options);
    CHECK_INT(options.known.struct_size, sizeof options);
    CHECK_INT(options.more[1], 0);
    CHECK_INT(options.known.max_sessions, 4);
    CHECK_INT(options.known.context_length, 4096);
    options.known.context_length = 32;
    error = (qwen36_error)QWEN36_ERROR_INIT;
    CHECK_INT(qwen36_model_load("examples/demo-model", &options.known, &model, &error), QWEN36_OK);
    qwen36_model_release(model);
    options.more[1] = 1;
    WRONG_SIZE(qwen36_model_load("examples/demo-model", &options.known, &model, &error));
    CHECK(model == NULL);
    options.known.struct_size = 4;
    WRONG_SIZE(qwen36_model_load("examples/demo-model", &options.known, &model, &error));
    options.known.struct_size = 0;
    WRONG_SIZE(qwen36_model_load("examples/demo-model", &options.known, &model, &error));
    options.known.struct_size = UINT32_MAX;
    WRONG_SIZE(qwen36_model_load("examples/demo-model", &options.known, &model, &error));
}

TEST(api, model_options_out_of_range)
{
    static const struct {
        size_t offset;
        int32_t value;
    } wrong[] = {
        {offsetof(qwen36_model_options, numerics), 0},
        {offsetof(qwen36_model_options, numerics), 3},
        {offsetof(qwen36_model_options, kv_dtype), 4},
        {offsetof(qwen36_model_options, weights_access), 0},
        {offsetof(qwen36_model_options, cpu_tier), 99},
        {offsetof(qwen36_model_options, threads), 0},
        {offsetof(qwen36_model_options, threads), 1025},
        {offsetof(qwen36_model_options, max_sessions), 0},
        {offsetof(qwen36_model_options, context_length), 0},
        {offsetof(qwen36_model_options, max_batch_tokens), -1},
        {offsetof(qwen36_model_options, prefix_reuse), 2},
        {offsetof(qwen36_model_options, device), -1},
        {offsetof(qwen36_model_options, device_tier), 2},
        {offsetof(qwen36_model_options, batch_invariant), 2},
    };
    for (size_t i = 0; i < QW_COUNT_OF(wrong); i++) {
        qwen36_model *model = NULL;
        qwen36_model_options options;
        qwen36_model_options_init(&options, sizeof options);
        memcpy((char *)&options + wrong[i].offset, &wrong[i].value, sizeof wrong[i].value);
        REFUSED(qwen36_model_load("examples/demo-model", &options, &model, &error));
        CHECK(model == NULL);
    }
}

TEST(api, a_share_of_memory)
{
    qwen36_model *model = NULL;
    qwen36_memory_estimate estimate = {.struct_size = sizeof estimate};
    qwen36_model_options options = test_model_options();
    const char *directory = test_checkpoint("moe");
    options.context_length = 4096;
    options.memory_share = 0.001f;
    CHECK_INT(qwen36_memory_estimate_read(directory, &options, &estimate, &error), QWEN36_OK);
    uint64_t whole = 0;
    CHECK_INT(qw_backend_free_bytes(options.device, &whole, NULL), QWEN36_OK);
    whole =
        whole == 0 ? qw_memory_bytes() : whole - estimate.weight_bytes; /* of the process, or of a device */
    double bytes = (double)whole * (double)options.memory_share;
    double taken = (double)(estimate.cache_bytes + estimate.state_bytes);
    CHECK_MSG(taken <= bytes && taken > 0.9 * bytes, "%.0f of %.0f bytes", taken, bytes);
    CHECK_INT(qwen36_model_load(directory, &options, &model, &error), QWEN36_OK);
    qwen36_model_release(model);
    const float wrong[] = {-0.5f, 1.5f, NAN};
    for (size_t i = 0; i < QW_COUNT_OF(wrong); i++) {
        options.memory_share = wrong[i];
        REFUSED(qwen36_model_load(directory, &options, &model, &error));
    }
    options.memory_share = 0.5f;
    options.cache_bytes = 1 << 20;
    REFUSED(qwen36_model_load(directory, &options, &model, &error));
    options.memory_share = 1e-9f; /* less than the states take */
    options.cache_bytes = 0;
    REFUSED(qwen36_model_load(directory, &options, &model, &error));
}

TEST(api, other_structs_of_wrong_size)
{
    int32_t ids[2] = {1, 2};
    qwen36_model_options options = test_model_options();
    qwen36_model *model = test_model("examples/demo-model", &options);
    qwen36_session *session = test_session(model), *made = NULL;
    qwen36_session_options session_options;
    qwen36_step_options step_options;
    qwen36_sampling sampling;
    qwen36_generate_options generate_options;
    qwen36_model_info info = {0};
    qwen36_memory_estimate estimate = {0};
    CHECK_INT(qwen36_session_options_init(model, &session_options, sizeof session_options), QWEN36_OK);
    CHECK_INT(qwen36_step_options_init(model, &step_options, sizeof step_options), QWEN36_OK);
    CHECK_INT(qwen36_sampling_init(model, &sampling, sizeof sampling), QWEN36_OK);
    qwen36_generate_options_init(&generate_options, sizeof generate_options);
    session_options.struct_size = 3;
    step_options.struct_size = 0;
    sampling.struct_size = 8;
    generate_options.struct_size = 5;
    WRONG_SIZE(qwen36_session_create(model, &session_options, &made, &error));
    CHECK(made == NULL);
    CHECK_INT(qwen36_session_append(session, ids, 2, QWEN36_LOGITS_LAST, NULL), QWEN36_OK);
    WRONG_SIZE(qwen36_step(&session, 1, &step_options, NULL, &error));
    WRONG_SIZE(qwen36_session_set_sampling(session, &sampling, &error));
    WRONG_SIZE(qwen36_session_get_sampling(session, &(qwen36_sampling){0}, &error));
    WRONG_SIZE(qwen36_generate(session, &generate_options, NULL, &error));
    WRONG_SIZE(qwen36_model_get_info(model, &info, &error));
    WRONG_SIZE(qwen36_memory_estimate_read("examples/demo-model", NULL, &estimate, &error));
    CHECK_INT(qwen36_session_computed(session), 0);
    test_compute(session);
    qwen36_session_destroy(session);
    qwen36_model_release(model);
}

/* Output structs: a shorter one gets what it knows, a longer one zeros behind. */
TEST(api, output_structs_of_other_sizes)
{
    struct {
        qwen36_model_info known;
        uint64_t more;
    } longer;
    qwen36_model_options options = test_model_options();
    qwen36_model *model = test_model("examples/demo-model", &options);
    memset(&longer, 0xff, sizeof longer);
    longer.known.struct_size = sizeof longer;
    CHECK_INT(qwen36_model_get_info(model, &longer.known, NULL), QWEN36_OK);
    CHECK_INT(longer.known.struct_size, sizeof longer);
    CHECK_INT(longer.more, 0);
    CHECK(longer.known.layers > 0);
    qwen36_model_info shorter;
    memset(&shorter, 0xff, sizeof shorter);
    shorter.struct_size = offsetof(qwen36_model_info, hidden_size);
    CHECK_INT(qwen36_model_get_info(model, &shorter, NULL), QWEN36_OK);
    CHECK_INT(shorter.vocab_size, longer.known.vocab_size);
    CHECK_INT(shorter.hidden_size, -1);
    qwen36_model_release(model);
}

TEST(api, errors_are_cleared_and_kept)
{
    qwen36_model *model = NULL;
    qwen36_error kept = {0}; /* struct_size 0: left alone */
    error = (qwen36_error)QWEN36_ERROR_INIT;
    CHECK_INT(qwen36_model_load("/nowhere/at/all", NULL, &model, &error), QWEN36_ERROR_FILE_NOT_FOUND);
    CHECK(strstr(error.message, "/nowhere/at/all") != NULL);
    qwen36_model_options options = test_model_options();
    CHECK_INT(qwen36_model_load("examples/demo-model", &options, &model, &error), QWEN36_OK);
    CHECK_INT(error.status, QWEN36_OK);
    CHECK_TEXT(error.message, "");
    CHECK_INT(qwen36_model_get_info(model, NULL, &kept), QWEN36_ERROR_ARGUMENT);
    CHECK_INT(kept.status, 0);
    CHECK_TEXT(kept.message, "");
    qwen36_model_release(model);
}

TEST(api, names)
{
    CHECK_TEXT(qwen36_status_name(QWEN36_OK), "OK");
    CHECK_TEXT(qwen36_status_name(QWEN36_ERROR_CONTEXT_FULL), "CONTEXT_FULL");
    CHECK_TEXT(qwen36_status_name(12345), "UNKNOWN");
    CHECK_TEXT(qwen36_version_string(), "0.1.0");
    CHECK_INT(qwen36_version_number(), QWEN36_VERSION_NUMBER);
    CHECK(strcmp(qwen36_backend_name(), "cpu") == 0 || strcmp(qwen36_backend_name(), "cuda") == 0);
    CHECK_TEXT(qwen36_backend_name(), qw_backend_name());
    CHECK(qwen36_features() & QWEN36_FEATURE_MOE);
}

/* What the estimate promises is what loading then takes from the allocator and of a device, within the small
 * change. */
static uint64_t allocated;

static void *count_bytes(void *user, size_t size, size_t alignment)
{
    allocated += size;
    return test_allocate(user, size, alignment);
}

static uint64_t free_on_device(void)
{
    uint64_t bytes = 0;
    CHECK_INT(qw_backend_free_bytes(0, &bytes, NULL), QWEN36_OK);
    return bytes;
}

static void check_estimate(int32_t kv_dtype)
{
    test_allocator state = {0};
    qwen36_allocator hooks = {sizeof hooks, 0, count_bytes, test_release, &state};
    qwen36_memory_estimate estimate = {.struct_size = sizeof estimate};
    qwen36_model *model = NULL;
    qwen36_model_options options = test_model_options();
    options.max_sessions = 3;
    options.context_length = 300;
    options.kv_dtype = kv_dtype;
    error = (qwen36_error)QWEN36_ERROR_INIT;
    const char *directory = test_checkpoint("moe");
    CHECK_INT(qwen36_memory_estimate_read(directory, &options, &estimate, &error), QWEN36_OK);
    CHECK_INT(estimate.total_bytes, estimate.weight_bytes + estimate.cache_bytes + estimate.state_bytes +
                                        estimate.workspace_bytes + estimate.session_bytes);
    options.allocator = &hooks;
    allocated = 0;
    const uint64_t before = free_on_device();
    CHECK_INT(qwen36_model_load(directory, &options, &model, &error), QWEN36_OK);
    const uint64_t taken = before - free_on_device(), weights = taken > 0 ? 0 : estimate.weight_bytes;
    uint64_t expected = estimate.total_bytes - weights; /* in the process they are mapped */
    CHECK_MSG(allocated + taken > expected / 2 && allocated + taken < expected + (4 << 20),
              "allocated %llu, of a device %llu, estimated %llu", (unsigned long long)allocated,
              (unsigned long long)taken, (unsigned long long)expected);
    CHECK_MSG(taken == 0 ||
                  (taken < estimate.total_bytes + (1 << 20) && taken > estimate.total_bytes / 10 * 9),
              "of a device %llu, estimated %llu", (unsigned long long)taken,
              (unsigned long long)estimate.total_bytes); /* each of many small tensors is aligned */
    qwen36_model_info info = {.struct_size = sizeof info};
    CHECK_INT(qwen36_model_get_info(model, &info, &error), QWEN36_OK);
    CHECK_INT(info.weight_bytes, estimate.weight_bytes);
    CHECK_INT(info.kv_blocks, 3 * 5);
    CHECK_INT(info.kv_dtype, kv_dtype);
    const uint64_t row_bytes[] = {[QWEN36_KV_F32] = 4 * (uint64_t)info.head_dim,
                                  [QWEN36_KV_BF16] = 2 * (uint64_t)info.head_dim,
                                  [QWEN36_KV_I8] = (uint64_t)info.head_dim + sizeof(float)};
    CHECK_INT(info.kv_token_bytes,
              (uint64_t)info.attention_layers * 2 * (uint64_t)info.kv_heads * row_bytes[kv_dtype]);
    CHECK_INT(estimate.cache_bytes, 15 * 64 * info.kv_token_bytes);
    CHECK_INT(info.snapshots, 8 + 3);
    CHECK_INT(estimate.state_bytes, (6 + (uint64_t)info.snapshots) * info.state_bytes);
    qwen36_model_release(model);
    CHECK_INT(state.outstanding, 0);
}

TEST(api, memory_estimate)
{
    for (int32_t kv_dtype = QWEN36_KV_F32; kv_dtype <= QWEN36_KV_I8; kv_dtype++)
        check_estimate(kv_dtype);
}

/* ---- hooks --------------------------------------------------------------------------------------------- */

static int32_t cancel_late(void *user, uint64_t done, uint64_t total)
{
    int32_t *calls = user;
    CHECK(done <= total);
    return ++*calls >= 2;
}

static void count_line(void *user, int32_t level, const char *message)
{
    CHECK(level >= QWEN36_LOG_DEBUG && level <= QWEN36_LOG_WARNING);
    CHECK(message != NULL && strchr(message, '\n') == NULL);
    ++*(int32_t *)user;
}

TEST(api, hooks)
{
    int32_t calls = 0, lines = 0;
    qwen36_model *model = NULL;
    qwen36_model_options options = test_model_options();
    const char *directory = test_checkpoint("moe");
    options.log = count_line;
    options.log_user = &lines;
    error = (qwen36_error)QWEN36_ERROR_INIT;
    CHECK_INT(qwen36_model_load(directory, &options, &model, &error), QWEN36_OK);
    CHECK(lines >= 1);
    qwen36_model_release(model);
    options.progress = cancel_late;
    options.progress_user = &calls;
    options.weights_access = QWEN36_WEIGHTS_READ;
    CHECK_INT(qwen36_model_load(directory, &options, &model, &error), QWEN36_ERROR_CANCELLED);
    CHECK(model == NULL && calls == 2);
    qwen36_allocator half = {sizeof half, 0, test_allocate, NULL, NULL};
    options.allocator = &half;
    REFUSED(qwen36_model_load(directory, &options, &model, &error));
    half.struct_size = 7;
    WRONG_SIZE(qwen36_model_load(directory, &options, &model, &error));
}
