/* The forward pass against transformers in float32: logits of every position and the output of every layer,
 * for the reference backend, for every CPU tier of this machine, and for the backend that the library opens.
 */
#include "kernels/reference/reference.h"
#include "lib/api/api.h"
#include "tests/harness.h"
#include "tests/unit/checkpoint.h"

static const double LIMIT = 1e-4;
/* Sanitizers look at the same code, ten times slower: two models are enough for them. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
static const char *const NAMES[] = {"moe", "odd"};
#else
static const char *const NAMES[] = {"moe", "dense_untied",   "dense_tied",
                                    "odd", "moe_real_heads", "dense_real_heads"};
#endif

/* Catches the residual stream after each layer: the norm that adds a layer's MLP output has it in x. */
static struct {
    qw_ops ops;
    const qw_ops *inner;
    qw_backend_opener open;
    const test_golden *golden;
    int32_t norms; /* calls so far in this pass */
    double worst;
} tap;

static qwen36_status tapped_norm(qw_backend *backend, const qw_norm_args *args)
{
    qwen36_status status = tap.inner->norm(backend, args);
    int32_t layer = tap.norms / 2 - 1;
    bool after_layer = tap.norms % 2 == 0 && layer >= 0;
    tap.norms++;
    if (!after_layer)
        return status;
    for (int32_t i = 0; i < tap.golden->positions && status == QWEN36_OK; i++) {
        int64_t hidden = tap.golden->hidden, row = (int64_t)layer * tap.golden->positions + i;
        float x[4096];
        CHECK(hidden <= (int64_t)QW_COUNT_OF(x));
        const int64_t offset = args->x.offset + tap.golden->position[i] * hidden * (int64_t)sizeof *x;
        status = tap.inner->read(backend, args->x.buffer, (uint64_t)offset, x, (uint64_t)hidden * sizeof *x);
        double d = test_deviation(x, tap.golden->layer_rows + row * hidden, hidden);
        tap.worst = d > tap.worst || d != d ? d : tap.worst;
    }
    return status;
}

typedef struct rows {
    const test_golden *golden;
    int32_t next;
    double worst;
} rows;

static void compare_row(void *user, qwen36_session *session, int32_t position, const float *logits,
                        int32_t vocab_size)
{
    (void)session;
    rows *r = user;
    CHECK_INT(position, r->next);
    CHECK_INT(vocab_size, r->golden->vocab_size);
    r->next++;
    double d = test_deviation(logits, r->golden->logits + (int64_t)position * vocab_size, vocab_size);
    r->worst = d > r->worst || d != d ? d : r->worst;
}

static void check_all_rows(qwen36_model *model, const test_golden *golden, const char *name)
{
    rows r = {.golden = golden};
    qwen36_session_options options;
    qwen36_session *session = NULL;
    CHECK_INT(qwen36_session_options_init(model, &options, sizeof options), QWEN36_OK);
    options.on_logits = compare_row;
    options.user = &r;
    CHECK_INT(qwen36_session_create(model, &options, &session, NULL), QWEN36_OK);
    CHECK_INT(qwen36_session_append(session, golden->tokens, (size_t)golden->count, QWEN36_LOGITS_ALL, NULL),
              QWEN36_OK);
    test_compute(session);
    CHECK_INT(r.next, golden->count);
    CHECK_MSG(r.worst <= LIMIT, "%s (%s): logits deviate by %g", name, model->backend.name, r.worst);
    CHECK_MSG(tap.worst <= LIMIT, "%s (%s): layers deviate by %g", name, model->backend.name, tap.worst);
    fprintf(stderr, "%s %s: logits %.2g layers %.2g\n", name, model->backend.name, r.worst, tap.worst);
    qwen36_session_destroy(session);
}

static void check_prompts(qwen36_model *model, const test_golden *golden)
{
    static const size_t lengths[] = {1, 2, 3, 4, 63, 64, 65, 127, 128, 129, 300};
    for (size_t i = 0; i < QW_COUNT_OF(lengths); i += test_stride()) {
        qwen36_session *session = test_session(model);
        const float *logits = NULL;
        CHECK_INT(qwen36_session_append(session, golden->tokens, lengths[i], QWEN36_LOGITS_LAST, NULL),
                  QWEN36_OK);
        test_compute(session);
        CHECK_INT(qwen36_session_logits(session, &logits, NULL, NULL), QWEN36_OK);
        double d = test_deviation(logits, golden->logits + (int64_t)(lengths[i] - 1) * golden->vocab_size,
                                  golden->vocab_size);
        CHECK_MSG(d <= LIMIT, "prompt of %zu tokens deviates by %g", lengths[i], d);
        qwen36_session_destroy(session);
    }
}

static qwen36_status open_tapped(const qw_backend_config *config, qw_backend *out, qwen36_error *error)
{
    qwen36_status status = tap.open(config, out, error);
    if (status != QWEN36_OK)
        return status;
    tap.inner = out->ops;
    tap.ops = *out->ops;
    tap.ops.norm = tapped_norm;
    out->ops = &tap.ops;
    return status;
}

static void check_golden(const char *name, qw_backend_opener open, int32_t tier)
{
    qwen36_error error = QWEN36_ERROR_INIT;
    qwen36_model *model = NULL;
    qwen36_model_options options = test_model_options();
    options.cpu_tier = tier;
    test_golden golden = test_golden_load(name);
    memset(&tap, 0, sizeof tap);
    tap.golden = &golden;
    tap.open = open;
    qwen36_status status = qw_model_open(test_checkpoint(name), &options, open_tapped, &model, &error);
    CHECK_MSG(status == QWEN36_OK, "%s: %s", name, error.message);
    check_all_rows(model, &golden, name);
    tap.ops.norm = tap.inner->norm;
    check_prompts(model, &golden);
    qwen36_model_release(model);
    test_golden_free(&golden);
}

TEST(golden, reference_backend)
{
    for (size_t i = 0; i < QW_COUNT_OF(NAMES); i++)
        check_golden(NAMES[i], qw_reference_backend_open, QWEN36_CPU_AUTO);
}

static void check_tier(int32_t wanted)
{
    int32_t tiers[4], count = test_tiers(tiers);
    for (int32_t t = 0; t < count; t++)
        for (size_t i = 0; i < QW_COUNT_OF(NAMES) && tiers[t] == wanted; i++)
            check_golden(NAMES[i], qw_cpu_backend_open, wanted);
}

TEST(golden, cpu_portable)
{
    check_tier(QWEN36_CPU_PORTABLE);
}

TEST(golden, cpu_avx2)
{
    check_tier(QWEN36_CPU_AVX2);
}

TEST(golden, cpu_avx512)
{
    check_tier(QWEN36_CPU_AVX512);
}

TEST(golden, library)
{
    for (size_t i = 0; i < QW_COUNT_OF(NAMES); i++)
        check_golden(NAMES[i], qw_backend_open, QWEN36_CPU_AUTO);
}
