/* Launches that the device refuses, each of a prefill and of a decode step in its turn: another kernel serves
 * in the same step, or the step fails, changes nothing and can be repeated. What a backend that computes
 * otherwise from then on means for prefixes and saved states. */
#include "lib/session/session.h"
#include "tests/cuda/device.h"

#include <math.h>

enum { PROMPT = 9, SHARED = 2 * QW_KV_BLOCK + 2 };

/* FAST against FAST with other kernels is compared with FAST against REFERENCE on the same tokens: what
 * rounding activations for a product makes of this model's logits, which are noise. A divergence grows with
 * the square of a difference: twice as far is 4 times as much. No FAST is farther away than FAR nats. */
#define NEAR 4
#define FAR 1e-2

/* From softmax(p) to softmax(q). */
static double divergence(const float *p, const float *q, int32_t count)
{
    double sum_p = 0, sum_q = 0, sum = 0;
    for (int32_t i = 0; i < count; i++) {
        sum_p += exp((double)p[i]);
        sum_q += exp((double)q[i]);
    }
    for (int32_t i = 0; i < count; i++)
        sum += exp((double)p[i]) / sum_p * ((double)p[i] - (double)q[i]);
    return sum + log(sum_q) - log(sum_p);
}

/* ---- the log ------------------------------------------------------------------------------------------- */

typedef struct lines {
    int32_t out_of_use, computes_as;
} lines;

static void read_log(void *user, int32_t level, const char *message)
{
    lines *seen = user;
    seen->out_of_use +=
        level == QWEN36_LOG_WARNING && strstr(message, "is out of use on this device") != NULL;
    seen->computes_as +=
        level == QWEN36_LOG_WARNING && strstr(message, "the backend computes as cuda/") != NULL;
}

static qwen36_model *load(const char *config, lines *seen)
{
    qwen36_model_options options = device_options();
    *seen = (lines){0};
    options.log = read_log;
    options.log_user = seen;
    return test_model(test_checkpoint(config), &options);
}

/* ---- every launch of a step ---------------------------------------------------------------------------- */

/* A step that computes what is pending of `session`, launch n of it refused. False: it has fewer. */
static bool refuse(qwen36_session *session, int64_t n, qwen36_status *status, qwen36_error *error)
{
    const uint64_t before = simt_launches();
    *error = (qwen36_error)QWEN36_ERROR_INIT;
    simt_refuse_launch(n);
    *status = qwen36_step(&session, 1, NULL, NULL, error);
    simt_refuse_launch(0);
    return simt_launches() - before >= (uint64_t)n;
}

/* Another kernel served, and the model says once that it computes otherwise from now on. */
static void check_served(const qwen36_model *model, const char *name, const lines *seen)
{
    CHECK_INT(model->backend.revision, 1);
    CHECK(strcmp(model->backend.name, name) != 0);
    CHECK_INT(seen->out_of_use, 1);
    CHECK_INT(seen->computes_as, 1);
}

/* A step of `pending` tokens behind `prefilled` ones, and what it gives undisturbed. */
typedef struct trial {
    const char *config;
    size_t prefilled, pending;
    qwen36_model *model;
    qwen36_session *base; /* the prefilled tokens */
    float *expected;
    double reach; /* of REFERENCE from them, in nats */
    lines seen;
    char name[48];
} trial;

static void open_trial(trial *t)
{
    t->model = load(t->config, &t->seen);
    snprintf(t->name, sizeof t->name, "%s", t->model->backend.name);
    t->base = test_session(t->model);
    if (t->prefilled == 0)
        return;
    device_append(t->base, 0, t->prefilled);
    test_compute(t->base);
}

static void close_trial(trial *t)
{
    qwen36_session_destroy(t->base);
    qwen36_model_release(t->model);
}

static qwen36_session *pending_session(const trial *t)
{
    qwen36_session *session = NULL;
    CHECK_INT(qwen36_session_fork(t->base, NULL, &session, NULL), QWEN36_OK);
    device_append(session, t->prefilled, t->pending);
    return session;
}

static double distance_of(const trial *t, const qwen36_session *session, bool *equal)
{
    float *logits = device_logits(session);
    const int32_t vocab = device_vocabulary(t->model);
    const double distance = divergence(t->expected, logits, vocab);
    *equal = memcmp(logits, t->expected, (size_t)vocab * sizeof *logits) == 0;
    free(logits);
    return distance;
}

/* The step failed: nothing is changed, and it gives the bits of an undisturbed one when it is repeated. */
static void check_failed(const trial *t, qwen36_session *session, const qwen36_error *error)
{
    CHECK_INT(error->status, QWEN36_ERROR_DEVICE);
    CHECK_MSG(strstr(error->message, "the step failed in the backend (cuda/") == error->message, "%s",
              error->message);
    CHECK_INT(t->model->backend.revision, 0);
    CHECK_INT(qwen36_session_computed(session), t->prefilled);
    CHECK_INT(qwen36_session_length(session), t->prefilled + t->pending);
    CHECK(qw_sessions_check(t->model));
    test_compute(session);
    bool equal;
    (void)distance_of(t, session, &equal);
    CHECK(equal);
}

typedef struct tally {
    int64_t launches, served;
} tally;

/* False: the step has fewer than n launches. */
static bool try_launch(trial *t, int64_t n, tally *count)
{
    qwen36_error error;
    qwen36_status status;
    qwen36_session *session = pending_session(t);
    const bool there = refuse(session, n, &status, &error), served = there && status == QWEN36_OK;
    if (served)
        check_served(t->model, t->name, &t->seen);
    if (status == QWEN36_OK) {
        bool equal;
        const double distance = distance_of(t, session, &equal);
        CHECK_MSG(served ? distance < NEAR * t->reach : equal, "launch %" PRId64 ": %g, %g", n, distance,
                  t->reach);
    } else {
        check_failed(t, session, &error);
    }
    CHECK(qw_sessions_check(t->model));
    qwen36_session_destroy(session);
    count->launches += there;
    count->served += served;
    if (served) { /* the next one begins with all kernels again */
        close_trial(t);
        open_trial(t);
    }
    return there;
}

/* How far REFERENCE is from FAST, after `count` tokens. */
static double reach_of(const char *config, size_t count, const float *fast)
{
    qwen36_model_options options = device_options();
    options.numerics = QWEN36_NUMERICS_REFERENCE;
    qwen36_model *model = test_model(test_checkpoint(config), &options);
    qwen36_session *session = device_prefilled(model, count);
    float *exact = device_logits(session);
    const double reach = divergence(fast, exact, device_vocabulary(model));
    free(exact);
    qwen36_session_destroy(session);
    qwen36_model_release(model);
    CHECK_MSG(reach > 0 && reach < FAR, "%g", reach);
    return reach;
}

static tally refuse_each(const char *config, size_t prefilled, size_t pending)
{
    trial t = {.config = config, .prefilled = prefilled, .pending = pending};
    tally count = {0};
    open_trial(&t);
    qwen36_session *undisturbed = pending_session(&t);
    test_compute(undisturbed);
    t.expected = device_logits(undisturbed);
    qwen36_session_destroy(undisturbed);
    t.reach = reach_of(config, prefilled + pending, t.expected);
    for (int64_t n = 1; try_launch(&t, n, &count); n++)
        ;
    close_trial(&t);
    free(t.expected);
    device_check_nothing_left();
    return count;
}

TEST(device_refused, every_launch_of_a_prefill)
{
    device_begin();
    const tally count = refuse_each("dense_tied", 0, PROMPT);
    CHECK_MSG(count.launches > 80 && count.served > 10, "%" PRId64 " of %" PRId64, count.served,
              count.launches);
}

TEST(device_refused, every_launch_of_a_prefill_with_experts)
{
    device_begin();
    const tally count = refuse_each("moe", 0, PROMPT);
    CHECK_MSG(count.launches > 120 && count.served > 10, "%" PRId64 " of %" PRId64, count.served,
              count.launches);
}

TEST(device_refused, every_launch_of_a_decode_step)
{
    device_begin();
    const tally dense = refuse_each("dense_tied", PROMPT, 1), experts = refuse_each("moe", PROMPT, 1);
    CHECK_MSG(dense.launches > 60 && experts.launches > 80, "%" PRId64 " %" PRId64, dense.launches,
              experts.launches);
}

/* What a bound of FAR tells apart: logits after other tokens are far away. */
TEST(device_refused, the_bound_means_something)
{
    device_begin();
    lines seen;
    qwen36_model *model = load("moe", &seen);
    qwen36_session *one = device_prefilled(model, PROMPT), *other = device_prefilled(model, PROMPT + 1);
    float *a = device_logits(one), *b = device_logits(other);
    const double apart = divergence(a, b, device_vocabulary(model));
    CHECK_MSG(apart > 10 * FAR, "%g", apart);
    free(a);
    free(b);
    qwen36_session_destroy(one);
    qwen36_session_destroy(other);
    qwen36_model_release(model);
    device_check_nothing_left();
}

/* A refused product of the library is computed by our own kernels in the same step. */
TEST(device_refused, products_of_the_library)
{
    device_begin();
    lines seen;
    simt_library(1);
    qwen36_model *model = load("dense_tied", &seen);
    qwen36_session *base = test_session(model);
    qwen36_session_destroy(base);
    const int64_t before = simt_library_products();
    base = device_prefilled(model, PROMPT);
    const int64_t products = simt_library_products() - before;
    float *expected = device_logits(base);
    CHECK(products > 10);
    for (int64_t n = 1; n <= products; n += 3) {
        qwen36_session *session = test_session(model);
        simt_refuse_library(n);
        device_append(session, 0, PROMPT);
        test_compute(session);
        simt_refuse_library(0);
        float *logits = device_logits(session);
        CHECK(divergence(expected, logits, device_vocabulary(model)) < FAR);
        free(logits);
        qwen36_session_destroy(session);
    }
    free(expected);
    qwen36_session_destroy(base);
    qwen36_model_release(model);
    device_check_nothing_left();
    simt_library(0);
}

/* ---- what is shared and kept --------------------------------------------------------------------------- */

static size_t reused(qwen36_model *model)
{
    size_t count = 0;
    qwen36_session *session = test_session(model);
    CHECK_INT(qwen36_session_sync(session, device_tokens(0), SHARED, &count, NULL), QWEN36_OK);
    qwen36_session_destroy(session);
    return count;
}

static void trace_nothing(void *user, const char *category, const char *name, int32_t layer, int32_t rows,
                          uint64_t begin, uint64_t duration)
{
    (void)user, (void)category, (void)name, (void)layer, (void)rows, (void)begin, (void)duration;
}

/* Refuses launches of fresh prefills until one of them is of a kernel that another replaces. */
static void change_kernels(qwen36_model *model)
{
    for (int64_t n = 1; model->backend.revision == 0; n++) {
        qwen36_session *session = test_session(model);
        qwen36_status status;
        qwen36_error error;
        device_append(session, 500, PROMPT);
        CHECK(refuse(session, n, &status, &error));
        qwen36_session_destroy(session);
    }
}

static void check_kept(qwen36_model *model, const char *old_name, const void *saved, size_t bytes)
{
    qwen36_error error = QWEN36_ERROR_INIT;
    qwen36_session *session = NULL;
    qwen36_restore_options any;
    qwen36_restore_options_init(&any, sizeof any);
    any.any_numerics = 1;
    CHECK_INT(qwen36_session_restore_memory(model, saved, bytes, NULL, &session, &error),
              QWEN36_ERROR_SNAPSHOT_MISMATCH);
    CHECK_MSG(strstr(error.message, old_name) != NULL && strstr(error.message, model->backend.name) != NULL,
              "%s", error.message);
    CHECK_INT(qwen36_session_restore_memory(model, saved, bytes, &any, &session, &error), QWEN36_OK);
    CHECK_INT(qwen36_session_computed(session), SHARED);
    qwen36_session_destroy(session);
}

static void check_change(qwen36_trace_fn trace)
{
    lines seen = {0};
    qwen36_model_options options = device_options();
    qwen36_stats stats = {.struct_size = sizeof stats};
    size_t bytes = 0;
    options.log = read_log;
    options.log_user = &seen;
    options.trace = trace;
    qwen36_model *model = test_model(test_checkpoint("dense_tied"), &options);
    qwen36_session *first = device_prefilled(model, SHARED);
    qwen36_session_save_memory(first, NULL, 0, &bytes, NULL);
    void *saved = malloc(bytes);
    CHECK_INT(qwen36_session_save_memory(first, saved, bytes, &bytes, NULL), QWEN36_OK);
    CHECK_INT(reused(model), 2 * QW_KV_BLOCK);
    char name[sizeof model->backend.name];
    memcpy(name, model->backend.name, sizeof name);
    change_kernels(model);
    check_served(model, name, &seen);
    CHECK_INT(reused(model), 0);
    CHECK_INT(qwen36_model_get_stats(model, &stats, NULL), QWEN36_OK);
    CHECK_INT(stats.reused_tokens, 2 * QW_KV_BLOCK); /* of the look before */
    check_kept(model, name, saved, bytes);
    device_append(first, 200, 1); /* who stands on the old blocks goes on */
    test_compute(first);
    CHECK(qw_sessions_check(model));
    qwen36_session *second = device_prefilled(model, SHARED);
    CHECK_INT(reused(model), 2 * QW_KV_BLOCK); /* of the new ones */
    CHECK_INT(model->backend.revision, 1);
    CHECK_INT(seen.computes_as, 1);
    CHECK(qw_sessions_check(model));
    qwen36_session_destroy(second);
    qwen36_session_destroy(first);
    qwen36_model_release(model);
    free(saved);
    device_check_nothing_left();
}

TEST(device_refused, prefixes_and_states_begin_anew)
{
    device_begin();
    check_change(NULL);
}

/* The trace stands between the model and the backend. */
TEST(device_refused, and_so_they_do_while_traced)
{
    device_begin();
    check_change(trace_nothing);
}

/* Where only the general kernels are asked for, no matrix instruction is executed: one that would compute
 * rubbish changes nothing. */
TEST(device_refused, general_kernels_alone)
{
    device_begin();
    for (int32_t way = 0; way < 2; way++) {
        float *logits[2] = {NULL, NULL};
        int32_t vocab = 0;
        for (int32_t spoiled = 0; spoiled < 2; spoiled++) {
            qwen36_model_options options = device_options();
            options.device_tier = way == 0 ? QWEN36_DEVICE_TIER_GENERAL : QWEN36_DEVICE_TIER_AUTO;
            options.numerics = way == 0 ? QWEN36_NUMERICS_FAST : QWEN36_NUMERICS_REFERENCE;
            simt_spoil_matrix(spoiled);
            qwen36_model *model = test_model(test_checkpoint("moe"), &options);
            qwen36_session *session = device_prefilled(model, QW_KV_BLOCK + 2);
            logits[spoiled] = device_logits(session);
            vocab = device_vocabulary(model);
            qwen36_session_destroy(session);
            qwen36_model_release(model);
        }
        simt_spoil_matrix(0);
        CHECK(memcmp(logits[0], logits[1], (size_t)vocab * sizeof **logits) == 0);
        free(logits[0]);
        free(logits[1]);
    }
    device_check_nothing_left();
}
