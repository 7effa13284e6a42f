/* The interposer: on a backend of the test's own it does what its header says; between a model and the
 * library's backend, with the reference backend as the judge, every operation of every tier is compared on
 * the very arguments that the model gives it. */
#include "kernels/reference/reference.h"
#include "tests/harness.h"
#include "tests/unit/checkpoint.h"
#include "tests/unit/interpose.h"
#include "tests/views.h"

#include <math.h>

/* ---- on its own ---- */

static const qw_dims small_dims = {.hidden = 2, .vocab_size = 4};

static qw_backend open_reference(const qw_dims *dims, int32_t max_context)
{
    const qw_allocator allocator = qw_allocator_default();
    const qw_backend_config config = {
        .allocator = &allocator, .dims = dims, .threads = 1, .max_context = max_context};
    qw_backend backend;
    CHECK_INT(qw_reference_backend_open(&config, &backend, NULL), QWEN36_OK);
    return backend;
}

typedef struct norm_case {
    float x[4], weight[2], y[4];
    qw_buffer buffers[3];
    qw_norm_args args;
} norm_case;

static void norm_setup(norm_case *c)
{
    *c = (norm_case){.x = {1, 2, 3, 4}, .weight = {0, 1}};
    c->args = (qw_norm_args){.x = test_view(&c->buffers[0], c->x, 2, 2),
                             .weight = test_view(&c->buffers[1], c->weight, 0, 2),
                             .y = test_view(&c->buffers[2], c->y, 2, 2),
                             .eps = 1e-6F};
}

TEST(interpose, traces_and_passes_on)
{
    qw_backend backend = open_reference(&small_dims, 8);
    const qw_ops *ops = backend.ops;
    interposer between;
    norm_case c;
    norm_setup(&c);
    interpose(&between, &backend, &small_dims);
    between.tracing = true;
    CHECK_INT(backend.ops->step_begin(&backend, NULL), QWEN36_OK);
    CHECK_INT(backend.ops->norm(&backend, &c.args), QWEN36_OK);
    CHECK_INT(backend.ops->step_end(&backend), QWEN36_OK);
    CHECK_INT(between.trace_count, 3);
    CHECK_TEXT(between.trace[0], "step_begin");
    CHECK_TEXT(between.trace[1], "norm");
    CHECK_TEXT(between.trace[2], "step_end");
    CHECK(fabs((double)c.y[0] - 1 / sqrt(2.5)) < 1e-6);
    interpose_end(&between, &backend);
    CHECK(backend.ops == ops);
    backend.ops->destroy(&backend);
}

TEST(interpose, fails_the_nth_operation)
{
    qw_backend backend = open_reference(&small_dims, 8);
    interposer between;
    norm_case c;
    norm_setup(&c);
    interpose(&between, &backend, &small_dims);
    between.fail_at = 2;
    between.poison = true;
    CHECK_INT(backend.ops->norm(&backend, &c.args), QWEN36_OK);
    CHECK(isfinite(c.y[0]));
    CHECK_INT(backend.ops->norm(&backend, &c.args), QWEN36_ERROR_DEVICE);
    CHECK(isnan(c.y[0]) && isnan(c.y[3]));
    CHECK(c.x[0] == 1); /* updated, so not poisoned */
    CHECK_INT(backend.ops->norm(&backend, &c.args), QWEN36_OK);
    between.fail_at = 4;
    between.fail_forever = true;
    for (int i = 0; i < 3; i++)
        CHECK_INT(backend.ops->norm(&backend, &c.args), QWEN36_ERROR_DEVICE);
    backend.ops->destroy(&backend);
    interpose_end(&between, &backend);
}

static qwen36_status wrong_norm(qw_backend *backend, const qw_norm_args *args)
{
    (void)backend;
    float *y = qw_view_data(&args->y);
    y[2] *= 1.001F;
    return QWEN36_OK;
}

TEST(interpose, judge_sees_a_wrong_row)
{
    qw_backend backend = open_reference(&small_dims, 8), judge = open_reference(&small_dims, 8);
    const qw_ops *right = backend.ops;
    qw_ops wrong = *right;
    interposer between;
    norm_case c;
    norm_setup(&c);
    interpose(&between, &backend, &small_dims);
    between.judge = &judge;
    CHECK_INT(backend.ops->norm(&backend, &c.args), QWEN36_OK);
    CHECK_INT(between.differences, 0);
    wrong.norm = wrong_norm; /* leaves the results of the call before, but for one */
    between.inner.ops = &wrong;
    CHECK_INT(backend.ops->norm(&backend, &c.args), QWEN36_OK);
    CHECK_INT(between.differences, 1);
    CHECK_TEXT(between.worst_name, "norm");
    CHECK_MSG(strstr(between.message, "norm: output 1, row 1") != NULL, "%s", between.message);
    CHECK(c.x[0] == 1 && c.x[3] == 4); /* what the judge changed is undone */
    between.inner.ops = right;
    interpose_end(&between, &backend);
    backend.ops->destroy(&backend);
    judge.ops->destroy(&judge);
}

/* ---- between a model and its backend ---- */

static void append(qwen36_session *session, const int32_t *tokens, size_t count)
{
    CHECK_INT(qwen36_session_append(session, tokens, count, QWEN36_LOGITS_LAST, NULL), QWEN36_OK);
    test_compute(session);
}

static void set_sampling(qwen36_session *session)
{
    qwen36_sampling sampling = {.struct_size = sizeof sampling,
                                .top_k = 20,
                                .temperature = 0.8F,
                                .top_p = 0.95F,
                                .repetition_penalty = 1.1F,
                                .presence_penalty = 0.5F,
                                .logprobs = 5,
                                .seed = 7};
    CHECK_INT(qwen36_session_set_sampling(session, &sampling, NULL), QWEN36_OK);
}

/* A prefill that crosses KV blocks, decode and sampling. */
static void run_session(qwen36_model *model, const test_golden *golden)
{
    qwen36_session *session = test_session(model);
    float logprobs[10];
    int32_t token = -1;
    set_sampling(session);
    append(session, golden->tokens, (size_t)QW_MIN(golden->count, 100));
    for (int i = 0; i < 6; i++) {
        CHECK_INT(qwen36_sample(&session, 1, &token, NULL, NULL), QWEN36_OK);
        test_compute(session);
    }
    CHECK_INT(qwen36_session_score(session, golden->tokens, 10, logprobs, NULL), QWEN36_OK);
    qwen36_session_destroy(session);
}

static void judge_model(const char *name, int32_t numerics, int32_t tier, int32_t kv_dtype)
{
    qwen36_model_options options = test_model_options();
    options.numerics = numerics;
    options.cpu_tier = tier;
    options.kv_dtype = kv_dtype;
    qwen36_model *model = test_model(test_checkpoint(name), &options);
    test_golden golden = test_golden_load(name);
    qw_backend judge = open_reference(&model->dims, 1024);
    interposer between;
    interpose(&between, &model->backend, &model->dims);
    between.judge = &judge;
    between.poison = true;
    between.bound = numerics == QWEN36_NUMERICS_FAST ? 0x1p-6 : 2e-5;
    run_session(model, &golden);
    CHECK_MSG(between.differences == 0, "%s, numerics %d, tier %d: %ld; %s", name, (int)numerics, (int)tier,
              between.differences, between.message);
    fprintf(stderr, "%s, numerics %d, kv %d: at most %.2g, %s\n", name, (int)numerics, (int)kv_dtype,
            between.worst, between.worst_name);
    CHECK(between.worst > 0); /* it did look */
    interpose_end(&between, &model->backend);
    judge.ops->destroy(&judge);
    test_golden_free(&golden);
    qwen36_model_release(model);
}

TEST(interpose, every_operation_in_lock_step_with_the_reference)
{
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    static const char *const names[] = {"moe", "odd"}; /* the same code, ten times slower */
#else
    static const char *const names[] = {"moe", "dense_tied", "odd", "dense_real_heads", "moe_real_heads"};
#endif
    int32_t tiers[4], count = test_tiers(tiers);
    for (size_t n = 0; n < QW_COUNT_OF(names); n += test_stride())
        for (int32_t t = 0; t < count; t++)
            for (int32_t kv = QWEN36_KV_F32; kv <= QWEN36_KV_I8; kv++)
                judge_model(names[n], QWEN36_NUMERICS_REFERENCE, tiers[t], kv);
}

/* A device's special rows round what they multiply to BF16. The CPU's fast products have tests of their own.
 */
TEST(interpose, every_operation_of_fast_numerics_on_a_device)
{
    static const char *const names[] = {"moe", "odd", "dense_tied", "dense_real_heads", "moe_real_heads"};
    if (strcmp(qwen36_backend_name(), "cpu") == 0)
        return;
    for (size_t n = 0; n < QW_COUNT_OF(names); n += test_stride())
        for (int32_t kv = QWEN36_KV_BF16; kv <= QWEN36_KV_I8; kv++)
            judge_model(names[n], QWEN36_NUMERICS_FAST, QWEN36_CPU_AUTO, kv);
}
