/* The trace: every operation of a step is reported once, in order, within its layer and phase; on the calling
 * thread; also when operations fail; and nothing at all without a trace function. */
#include "lib/api/api.h"
#include "tests/harness.h"
#include "tests/unit/checkpoint.h"
#include "tests/unit/interpose.h"

enum { MOST = 4096, TOKENS = 100 };

typedef struct event {
    const char *category, *name;
    int32_t layer, rows;
    uint64_t begin, end;
} event;

static event events[MOST];
static size_t count;
static bool on_another_thread;
static qw_thread caller;
static qwen36_session *to_interrupt; /* when a layer with this number is over */
static int32_t interrupt_layer;

static void record(void *user, const char *category, const char *name, int32_t layer, int32_t rows,
                   uint64_t begin, uint64_t duration)
{
    on_another_thread |= user != events || !qw_thread_is_current(caller);
    if (count < MOST)
        events[count++] = (event){category, name, layer, rows, begin, begin + duration};
    if (to_interrupt != NULL && strcmp(category, "layer") == 0 && layer == interrupt_layer)
        qwen36_session_interrupt(to_interrupt);
}

static void forget(void)
{
    count = 0;
    on_another_thread = false;
    caller = qw_thread_current();
    to_interrupt = NULL;
}

static qwen36_model_options traced_options(void)
{
    qwen36_model_options options = test_model_options();
    options.trace = record;
    options.trace_user = events;
    forget();
    return options;
}

static qwen36_model *traced_model(const char *name, int32_t threads)
{
    qwen36_model_options options = traced_options();
    options.threads = threads;
    qwen36_model *model = test_model(test_checkpoint(name), &options);
    CHECK_INT(count, 0); /* loading is no step */
    return model;
}

static void append(qwen36_session *session, int32_t length)
{
    int32_t tokens[TOKENS];
    for (int32_t i = 0; i < length; i++)
        tokens[i] = 11 * i % 500;
    CHECK_INT(qwen36_session_append(session, tokens, (size_t)length, QWEN36_LOGITS_LAST, NULL), QWEN36_OK);
}

/* ---- what must hold of any trace ----------------------------------------------------------------------- */

static bool is(const event *e, const char *category)
{
    return strcmp(e->category, category) == 0;
}

static size_t count_of(const char *category, const char *name)
{
    size_t found = 0;
    for (size_t i = 0; i < count; i++)
        found += is(&events[i], category) && (name == NULL || strcmp(events[i].name, name) == 0);
    return found;
}

/* What is over first is reported first: the event around another comes later, and the next one of its
 * category is the one. NULL if that one lies elsewhere. */
static const event *around(size_t index, const char *category)
{
    for (size_t i = index + 1; i < count; i++)
        if (is(&events[i], category))
            return events[i].begin <= events[index].begin && events[index].end <= events[i].end ? &events[i]
                                                                                                : NULL;
    return NULL;
}

static void check_place(size_t i)
{
    const event *e = &events[i];
    CHECK_MSG(e->begin <= e->end, "%s %s", e->category, e->name);
    const event *phase = around(i, "phase"), *layer = around(i, "layer");
    if (is(e, "op") && e->layer >= 0)
        CHECK_MSG(layer != NULL && layer->layer == e->layer, "%s of layer %d", e->name, e->layer);
    if (is(e, "layer"))
        CHECK_MSG(phase != NULL && strcmp(phase->name, "forward") == 0, "layer %d", e->layer);
    if (is(e, "op"))
        CHECK_MSG(phase != NULL, "%s is in no phase", e->name);
    if (is(e, "phase") && strcmp(e->name, "sample") != 0)
        CHECK_MSG(around(i, "step") != NULL, "%s is in no step", e->name);
    if (!is(e, "op") && !is(e, "layer"))
        CHECK_INT(e->layer, -1);
}

/* Nothing of the same category overlaps, so the parts of a whole add up to no more than it. */
static void check_trace(void)
{
    static const char *const categories[] = {"op", "layer", "phase", "step"};
    CHECK(count < MOST && !on_another_thread);
    for (size_t i = 0; i < count; i++)
        check_place(i);
    for (size_t c = 0; c < QW_COUNT_OF(categories); c++) {
        uint64_t end = 0;
        for (size_t i = 0; i < count; i++) {
            if (!is(&events[i], categories[c]))
                continue;
            CHECK_MSG(events[i].begin >= end, "%s overlaps the one before", events[i].name);
            end = events[i].end;
        }
    }
}

/* ---- tests --------------------------------------------------------------------------------------------- */

/* The interposer sees the same operations from outside. */
static void check_operations(const interposer *between)
{
    size_t seen = 0;
    for (size_t i = 0; i < count; i++) {
        if (!is(&events[i], "op"))
            continue;
        CHECK(seen < between->trace_count);
        CHECK_TEXT(events[i].name, between->trace[seen++]);
    }
    CHECK_INT(seen, between->trace_count);
}

static void check_step(const qwen36_model *model, int32_t rows)
{
    int32_t layer = 0;
    check_trace();
    CHECK_INT(count_of("step", NULL), 1);
    CHECK_INT(count_of("phase", NULL), 4);
    CHECK_TEXT(events[0].name, "schedule");
    CHECK_TEXT(events[count - 2].name, "commit");
    CHECK_INT(count_of("layer", NULL), model->dims.layers);
    CHECK_INT(count_of("layer", "full_attention"), model->dims.full_layers);
    CHECK_INT(count_of("op", "step_begin"), 1);
    CHECK_INT(count_of("op", "step_end"), 1);
    for (size_t i = 0; i < count; i++) {
        CHECK_INT(events[i].rows, rows);
        if (is(&events[i], "layer"))
            CHECK_INT(events[i].layer, layer++);
    }
}

static void run_steps(const char *name)
{
    int32_t token;
    interposer between;
    qwen36_model *model = traced_model(name, 2);
    qwen36_session *session = test_session(model);
    interpose(&between, &model->backend, &model->dims);
    between.tracing = true;
    append(session, TOKENS);
    test_compute(session);
    check_step(model, TOKENS);
    check_operations(&between);
    CHECK_INT(count_of("op", "head"), 1);

    forget();
    interpose_forget(&between);
    CHECK_INT(qwen36_sample(&session, 1, &token, NULL, NULL), QWEN36_OK);
    check_trace();
    CHECK_INT(count, 2);
    CHECK_TEXT(events[0].name, "sample");
    CHECK(is(&events[0], "op") && is(&events[1], "phase"));
    CHECK_INT(events[1].rows, 1);

    forget();
    interpose_forget(&between);
    test_compute(session);
    check_step(model, 1);
    check_operations(&between);
    interpose_end(&between, &model->backend);
    qwen36_session_destroy(session);
    qwen36_model_release(model);
}

TEST(trace, every_operation_of_a_step_once)
{
    run_steps("moe");
    run_steps("dense_tied");
}

TEST(trace, nothing_is_computed)
{
    qwen36_model *model = traced_model("moe", 1);
    qwen36_session *session = test_session(model);
    test_compute(session);
    check_trace();
    CHECK_INT(count, 3);
    CHECK_TEXT(events[0].name, "schedule");
    CHECK_TEXT(events[1].name, "commit");
    CHECK_TEXT(events[2].name, "step");
    qwen36_session_destroy(session);
    qwen36_model_release(model);
}

TEST(trace, none_when_off)
{
    qwen36_model_options options = traced_options();
    options.trace = NULL;
    qwen36_model *model = test_model(test_checkpoint("moe"), &options);
    qwen36_session *session = test_session(model);
    append(session, 10);
    test_compute(session);
    CHECK_INT(count, 0);
    CHECK(model->trace == NULL);
    qwen36_session_destroy(session);
    qwen36_model_release(model);
}

TEST(trace, changes_no_bit)
{
    qwen36_model_options options = traced_options();
    qwen36_model *traced = test_model(test_checkpoint("moe"), &options);
    options.trace = NULL;
    qwen36_model *plain = test_model(test_checkpoint("moe"), &options);
    qwen36_session *both[2] = {test_session(traced), test_session(plain)};
    const float *logits[2];
    int32_t vocab_size = 0;
    for (int32_t i = 0; i < 2; i++) {
        append(both[i], TOKENS);
        test_compute(both[i]);
        CHECK_INT(qwen36_session_logits(both[i], &logits[i], &vocab_size, NULL), QWEN36_OK);
    }
    CHECK(memcmp(logits[0], logits[1], sizeof(float) * (size_t)vocab_size) == 0);
    CHECK_TEXT(traced->backend.name, plain->backend.name);
    for (int32_t i = 0; i < 2; i++)
        qwen36_session_destroy(both[i]);
    qwen36_model_release(traced);
    qwen36_model_release(plain);
}

TEST(trace, a_shared_block_is_copied)
{
    qwen36_session *fork = NULL;
    qwen36_model *model = traced_model("moe", 1);
    qwen36_session *session = test_session(model);
    append(session, TOKENS);
    test_compute(session);
    CHECK_INT(count_of("op", "copy"), 0);
    CHECK_INT(qwen36_session_fork(session, NULL, &fork, NULL), QWEN36_OK);
    append(fork, 1);
    forget();
    test_compute(fork);
    check_step(model, 1);
    CHECK_INT(count_of("op", "copy"), 1);
    qwen36_session_destroy(session);
    qwen36_session_destroy(fork);
    qwen36_model_release(model);
}

TEST(trace, scores_are_in_the_head_phase)
{
    int32_t tokens[40] = {3, 1, 4, 1, 5};
    float values[40];
    qwen36_model *model = traced_model("moe", 1);
    qwen36_session *session = test_session(model);
    CHECK_INT(qwen36_session_score(session, tokens, 40, values, NULL), QWEN36_OK);
    check_step(model, 40);
    CHECK_INT(count_of("op", "logprob"), 2); /* 39 rows, 32 at a time */
    forget();
    CHECK_INT(qwen36_session_score(session, tokens, 1, values, NULL), QWEN36_OK);
    CHECK_INT(count_of("op", "logprob"), 1); /* of the logits that stand there, before the step */
    CHECK_TEXT(events[0].name, "logprob");
    CHECK_INT(events[0].rows, 0);
    qwen36_session_destroy(session);
    qwen36_model_release(model);
}

TEST(trace, an_interrupted_step)
{
    qwen36_model *model = traced_model("moe", 1);
    qwen36_session *session = test_session(model);
    append(session, 10);
    to_interrupt = session;
    interrupt_layer = 1;
    CHECK_INT(qwen36_step(&session, 1, NULL, NULL, NULL), QWEN36_INTERRUPTED);
    check_trace();
    CHECK_INT(count_of("layer", NULL), 2);
    CHECK_INT(count_of("phase", NULL), 4);
    CHECK_INT(count_of("op", "step_end"), 1);
    qwen36_session_destroy(session);
    qwen36_model_release(model);
}

/* ---- failing operations -------------------------------------------------------------------------------- */

/* Every operation of a step fails once. `inside`: under the trace, which then reports it; else above it. */
static void fail_each(qwen36_model *model, interposer *between, bool inside)
{
    qwen36_session *session = test_session(model);
    append(session, 5);
    between->tracing = true;
    test_compute(session);
    size_t operations = between->trace_count;
    CHECK(operations > 10);
    for (size_t n = 1; n <= operations; n++) {
        CHECK_INT(qwen36_session_reset(session, NULL), QWEN36_OK);
        append(session, 5);
        forget();
        between->fail_at = between->calls + (long)n;
        CHECK_INT(qwen36_step(&session, 1, NULL, NULL, NULL), QWEN36_ERROR_DEVICE);
        check_trace();
        CHECK_INT(count_of("step", NULL), 1);
        CHECK_INT(count_of("phase", NULL), 4);
        if (n < operations) /* the failing one, if it is seen, and the end of the step */
            CHECK_INT(count_of("op", NULL), n - (inside ? 0 : 1) + 1);
        between->fail_at = 0;
        CHECK_INT(qwen36_session_computed(session), 0);
        test_compute(session);
    }
    qwen36_session_destroy(session);
}

TEST(trace, failing_operations_above)
{
    interposer between;
    qwen36_model *model = traced_model("moe", 1);
    interpose(&between, &model->backend, &model->dims);
    fail_each(model, &between, false);
    interpose_end(&between, &model->backend);
    qwen36_model_release(model);
}

static interposer inner;

static qwen36_status open_interposed(const qw_backend_config *config, qw_backend *out, qwen36_error *error)
{
    qwen36_status status = qw_backend_open(config, out, error);
    if (status == QWEN36_OK)
        interpose(&inner, out, config->dims);
    return status;
}

TEST(trace, failing_operations_below)
{
    qwen36_model *model = NULL;
    qwen36_error error = QWEN36_ERROR_INIT;
    qwen36_model_options options = traced_options(), ours;
    CHECK_INT(qw_model_options_adopt(&ours, &options, &error), QWEN36_OK);
    CHECK_INT(qw_model_open(test_checkpoint("moe"), &ours, open_interposed, &model, &error), QWEN36_OK);
    fail_each(model, &inner, true);
    qw_backend gone = {0};
    qwen36_model_release(model);
    interpose_end(&inner, &gone);
}

/* The wrapper is one allocation more, whose failure is as that of any other. */
TEST(trace, no_memory_for_it)
{
    test_allocator state = {0};
    qwen36_allocator hooks = {sizeof hooks, 0, test_allocate, test_release, &state};
    qwen36_model *model = NULL;
    qwen36_model_options options = traced_options();
    options.allocator = &hooks;
    for (long n = 1;; n++) {
        state = (test_allocator){.fail_at = n};
        qwen36_status status = qwen36_model_load(test_checkpoint("moe"), &options, &model, NULL);
        if (state.allocations < n)
            break;
        CHECK_INT(status, QWEN36_ERROR_OUT_OF_MEMORY);
        CHECK_INT(state.outstanding, 0);
    }
    CHECK(model != NULL);
    qwen36_model_release(model);
    CHECK_INT(state.outstanding, 0);
}
