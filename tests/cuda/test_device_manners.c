/* A guest in the host process: the calling thread keeps its device, also in callbacks; models on two devices
 * serve one thread or two; an interrupt stops a step between layers; a step takes no memory and waits once.
 */
#include "tests/cuda/device.h"

#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

enum { ELSEWHERE = 0, DEVICE = 1 }; /* the thread's own device, and the model's */

/* ---- the thread's device ----------------------------------------------------------------------------------
 */

/* How often each callback came, and how often it found another device than the caller's. */
typedef struct visits {
    int32_t progress, log, trace, logits, text, strays;
} visits;

static void count_visit(visits *v, int32_t *of)
{
    ++*of;
    v->strays += simt_current_device() != ELSEWHERE;
}

static int32_t on_progress(void *user, uint64_t done, uint64_t total)
{
    visits *v = user;
    count_visit(v, &v->progress);
    return done > total;
}

static void on_log(void *user, int32_t level, const char *message)
{
    (void)level, (void)message;
    visits *v = user;
    count_visit(v, &v->log);
}

static void on_trace(void *user, const char *category, const char *name, int32_t layer, int32_t rows,
                     uint64_t begin, uint64_t duration)
{
    (void)category, (void)name, (void)layer, (void)rows, (void)begin, (void)duration;
    visits *v = user;
    count_visit(v, &v->trace);
}

static void on_logits(void *user, qwen36_session *session, int32_t position, const float *logits,
                      int32_t vocab)
{
    (void)session, (void)position, (void)logits, (void)vocab;
    visits *v = user;
    count_visit(v, &v->logits);
}

static int32_t on_text(void *user, int32_t token, const char *text, size_t length)
{
    (void)token, (void)text, (void)length;
    visits *v = user;
    count_visit(v, &v->text);
    return 0;
}

/* The call, and that the thread's device is still its own. */
#define KEEPS(call)                                                                                          \
    do {                                                                                                     \
        CHECK_INT(call, QWEN36_OK);                                                                          \
        CHECK_INT(simt_current_device(), ELSEWHERE);                                                         \
    } while (0)

static qwen36_model *visited_model(visits *v, const char *directory)
{
    qwen36_model_options options = device_options();
    qwen36_model *model = NULL;
    options.device = DEVICE;
    options.progress = on_progress;
    options.progress_user = v;
    options.log = on_log;
    options.log_user = v;
    options.trace = on_trace;
    options.trace_user = v;
    options.prefix_directory = directory;
    KEEPS(qwen36_model_load(test_checkpoint("moe"), &options, &model, NULL));
    return model;
}

static void step_and_sample(qwen36_session *session)
{
    int32_t token;
    float scores[3];
    const float *logits;
    KEEPS(qwen36_step(&session, 1, NULL, NULL, NULL));
    KEEPS(qwen36_sample(&session, 1, &token, NULL, NULL));
    KEEPS(qwen36_session_score(session, device_tokens(90), 3, scores, NULL));
    KEEPS(qwen36_session_logits(session, &logits, NULL, NULL));
}

static void generate(qwen36_session *session, visits *v)
{
    qwen36_generate_options options;
    qwen36_generate_options_init(&options, sizeof options);
    options.max_tokens = 2;
    options.ignore_end_tokens = 1;
    options.on_text = on_text;
    options.user = v;
    KEEPS(qwen36_generate(session, &options, NULL, NULL));
}

static void save_and_restore(qwen36_model *model, qwen36_session *session, const char *directory)
{
    char path[600];
    size_t bytes = 0, reused = 0;
    qwen36_session *twin = NULL;
    snprintf(path, sizeof path, "%s/session", directory);
    KEEPS(qwen36_session_save(session, path, NULL));
    KEEPS(qwen36_session_restore(model, path, NULL, &twin, NULL));
    CHECK_INT(qwen36_session_save_memory(twin, NULL, 0, &bytes, NULL), QWEN36_ERROR_BUFFER_TOO_SMALL);
    unlink(path);
    KEEPS(qwen36_session_sync(twin, device_tokens(0), 70, &reused, NULL));
    KEEPS(qwen36_session_rewind(twin, 3, NULL));
    KEEPS(qwen36_session_reset(twin, NULL));
    qwen36_session_destroy(twin);
    KEEPS(qwen36_session_fork(session, NULL, &twin, NULL));
    qwen36_session_destroy(twin);
    KEEPS(qwen36_model_flush_prefixes(model, NULL));
    KEEPS(qwen36_model_clear_cache(model, NULL));
    KEEPS(qwen36_session_sync(session, device_tokens(0), 66, &reused, NULL));
    CHECK_INT(reused, QW_KV_BLOCK); /* from the disk */
}

/* Rows are refused on the way, so that the log hears of it inside an operation. */
static void refuse_some(qwen36_model *model)
{
    for (int64_t n = 1; model->backend.revision == 0; n++) {
        qwen36_session *session = test_session(model);
        simt_refuse_launch(n);
        device_append(session, 400, 12);
        (void)qwen36_step(&session, 1, NULL, NULL, NULL);
        CHECK_INT(simt_current_device(), ELSEWHERE);
        simt_refuse_launch(0);
        qwen36_session_destroy(session);
    }
}

TEST(device_manners, the_thread_keeps_its_device)
{
    device_begin();
    visits v = {0};
    const char *directory = test_directory();
    simt_spoil_matrix(1); /* the log hears of that while the model opens */
    qwen36_model *model = visited_model(&v, directory);
    simt_spoil_matrix(0);
    CHECK(v.log >= 4 && v.progress > 10);
    qwen36_model_release(model);
    model = visited_model(&v, directory);
    qwen36_session_options options;
    qwen36_session *session = NULL;
    CHECK_INT(qwen36_session_options_init(model, &options, sizeof options), QWEN36_OK);
    options.on_logits = on_logits;
    options.user = &v;
    KEEPS(qwen36_session_create(model, &options, &session, NULL));
    KEEPS(qwen36_session_append(session, device_tokens(0), 70, QWEN36_LOGITS_ALL, NULL));
    step_and_sample(session);
    generate(session, &v);
    save_and_restore(model, session, directory);
    const int32_t before = v.log;
    refuse_some(model);
    CHECK(v.log >= before + 2);
    qwen36_session_destroy(session);
    CHECK_INT(simt_current_device(), ELSEWHERE);
    qwen36_model_release(model);
    CHECK_INT(simt_current_device(), ELSEWHERE);
    CHECK(v.trace > 100 && v.text >= 2);
    CHECK_INT(v.logits, 70);
    CHECK_INT(v.strays, 0);
    device_check_nothing_left();
}

/* ---- two devices ------------------------------------------------------------------------------------------
 */

static qwen36_model *model_on(int32_t device)
{
    qwen36_model_options options = device_options();
    options.device = device;
    options.device_tier = QWEN36_DEVICE_TIER_GENERAL;
    return test_model(test_checkpoint("dense_tied"), &options);
}

enum { TURNS = 12 };

static void one_turn(qwen36_session *session, int32_t *token)
{
    test_compute(session);
    CHECK_INT(qwen36_sample(&session, 1, token, NULL, NULL), QWEN36_OK);
}

TEST(device_manners, two_devices_by_turns)
{
    device_begin();
    qwen36_model *model[2] = {model_on(0), model_on(1)};
    qwen36_session *session[2] = {device_prefilled(model[0], 9), device_prefilled(model[1], 9)};
    for (int32_t i = 0; i < TURNS; i++) {
        int32_t token[2];
        simt_set_current_device(i % 2);
        for (int32_t d = 0; d < 2; d++) {
            one_turn(session[d], &token[d]);
            CHECK_INT(simt_current_device(), i % 2);
        }
        CHECK_INT(token[0], token[1]);
    }
    for (int32_t d = 0; d < 2; d++) {
        qwen36_session_destroy(session[d]);
        qwen36_model_release(model[d]);
    }
    simt_set_current_device(0);
    device_check_nothing_left();
}

/* What a thread does with a model of its own or of both; tokens are compared afterwards. */
typedef struct work {
    qwen36_model *model;
    int32_t own; /* the thread's device */
    int32_t tokens[TURNS];
    bool moved;
    qwen36_status status;
} work;

static void *run_work(void *user)
{
    work *w = user;
    qwen36_session *session = NULL;
    simt_set_current_device(w->own);
    w->status = qwen36_session_create(w->model, NULL, &session, NULL);
    if (w->status == QWEN36_OK)
        w->status = qwen36_session_append(session, device_tokens(0), 9, QWEN36_LOGITS_LAST, NULL);
    for (int32_t i = 0; i < TURNS && w->status == QWEN36_OK; i++) {
        w->status = qwen36_step(&session, 1, NULL, NULL, NULL);
        if (w->status == QWEN36_OK)
            w->status = qwen36_sample(&session, 1, &w->tokens[i], NULL, NULL);
        w->moved |= simt_current_device() != w->own;
    }
    qwen36_session_destroy(session);
    w->moved |= simt_current_device() != w->own;
    return NULL;
}

/* Four threads, two for each model, half of them at home elsewhere. */
TEST(device_manners, two_devices_at_once)
{
    device_begin();
    (void)device_tokens(0); /* the text is written before threads read it */
    qwen36_model *model[2] = {model_on(0), model_on(1)};
    work w[4] = {{0}};
    pthread_t thread[4];
    for (int32_t i = 0; i < 4; i++) {
        w[i].model = model[i % 2];
        w[i].own = i / 2;
        CHECK_INT(pthread_create(&thread[i], NULL, run_work, &w[i]), 0);
    }
    for (int32_t i = 0; i < 4; i++)
        CHECK_INT(pthread_join(thread[i], NULL), 0);
    for (int32_t i = 0; i < 4; i++) {
        CHECK_INT(w[i].status, QWEN36_OK);
        CHECK(!w[i].moved);
        CHECK(memcmp(w[i].tokens, w[0].tokens, sizeof w[i].tokens) == 0);
    }
    qwen36_model_release(model[0]);
    qwen36_model_release(model[1]);
    device_check_nothing_left();
}

/* ---- interrupts -------------------------------------------------------------------------------------------
 */

/* Interrupts when the layer is over, or lets another thread do it. */
typedef struct breaker {
    qwen36_session *session; /* NULL: idle */
    int32_t layer;
    bool by_thread;
} breaker;

static void *interrupt(void *session)
{
    qwen36_session_interrupt(session);
    return NULL;
}

static void break_off(void *user, const char *category, const char *name, int32_t layer, int32_t rows,
                      uint64_t begin, uint64_t duration)
{
    (void)name, (void)rows, (void)begin, (void)duration;
    breaker *b = user;
    pthread_t thread;
    if (b->session == NULL || strcmp(category, "layer") != 0 || layer != b->layer)
        return;
    if (!b->by_thread)
        qwen36_session_interrupt(b->session);
    else if (pthread_create(&thread, NULL, interrupt, b->session) == 0)
        pthread_join(thread, NULL);
}

static uint64_t launches_of(qwen36_session *session, qwen36_status expected)
{
    const uint64_t before = simt_launches();
    CHECK_INT(qwen36_step(&session, 1, NULL, NULL, NULL), expected);
    return simt_launches() - before;
}

static void interrupt_after(qwen36_model *model, breaker *b, int32_t layer, uint64_t whole,
                            const float *expected, uint64_t *launches)
{
    qwen36_session *session = test_session(model);
    device_append(session, 0, 9);
    b->layer = layer;
    b->session = session;
    *launches = launches_of(session, QWEN36_INTERRUPTED);
    b->session = NULL;
    CHECK(*launches < whole);
    CHECK_INT(qwen36_session_computed(session), 0);
    CHECK_INT(qwen36_session_length(session), 9);
    CHECK_INT(launches_of(session, QWEN36_OK), whole);
    float *logits = device_logits(session);
    CHECK(memcmp(logits, expected, (size_t)device_vocabulary(model) * sizeof *logits) == 0);
    free(logits);
    qwen36_session_destroy(session);
}

TEST(device_manners, an_interrupt_stops_between_layers)
{
    device_begin();
    breaker b = {0};
    qwen36_model_options options = device_options();
    options.trace = break_off;
    options.trace_user = &b;
    options.prefix_reuse = 0;
    qwen36_model *model = test_model(test_checkpoint("dense_tied"), &options);
    qwen36_session *undisturbed = test_session(model);
    device_append(undisturbed, 0, 9);
    const uint64_t whole = launches_of(undisturbed, QWEN36_OK);
    float *expected = device_logits(undisturbed);
    for (int32_t way = 0; way < 2; way++) {
        uint64_t fewer = 0, launches = 0;
        b.by_thread = way != 0;
        for (int32_t layer = 0; layer + 1 < model->dims.layers; layer++, fewer = launches) {
            interrupt_after(model, &b, layer, whole, expected, &launches);
            CHECK(launches > fewer + 5); /* a layer more */
        }
        CHECK(launches + 5 < whole);
    }
    free(expected);
    qwen36_session_destroy(undisturbed);
    qwen36_model_release(model);
    device_check_nothing_left();
}

/* Out of the callback of a session of the same step: the other's rows are dropped. And set while it is idle,
 * a step returns at once, with nothing launched. */
static void interrupt_other(void *user, qwen36_session *session, int32_t position, const float *logits,
                            int32_t vocab)
{
    (void)session, (void)position, (void)logits, (void)vocab;
    qwen36_session_interrupt(user);
}

TEST(device_manners, interrupted_by_a_neighbour)
{
    device_begin();
    qwen36_model *model = model_on(0);
    qwen36_session_options options;
    qwen36_session *victim = test_session(model), *neighbour = NULL;
    CHECK_INT(qwen36_session_options_init(model, &options, sizeof options), QWEN36_OK);
    options.on_logits = interrupt_other;
    options.user = victim;
    CHECK_INT(qwen36_session_create(model, &options, &neighbour, NULL), QWEN36_OK);
    CHECK_INT(qwen36_session_append(neighbour, device_tokens(0), 2, QWEN36_LOGITS_ALL, NULL), QWEN36_OK);
    device_append(victim, 0, 5);
    qwen36_session *both[] = {neighbour, victim};
    qwen36_status statuses[2];
    CHECK_INT(qwen36_step(both, 2, NULL, statuses, NULL), QWEN36_INTERRUPTED);
    CHECK_INT(statuses[0], QWEN36_OK); /* the rows of the one that goes on stay */
    CHECK_INT(statuses[1], QWEN36_INTERRUPTED);
    CHECK_INT(qwen36_session_computed(neighbour), 2);
    CHECK_INT(qwen36_session_computed(victim), 0);
    qwen36_session_interrupt(victim);
    CHECK_INT(launches_of(victim, QWEN36_INTERRUPTED), 0);
    CHECK(launches_of(victim, QWEN36_OK) > 0);
    qwen36_session_destroy(neighbour);
    qwen36_session_destroy(victim);
    qwen36_model_release(model);
    device_check_nothing_left();
}

/* ---- memory and waits -------------------------------------------------------------------------------------
 */

typedef struct counts {
    int64_t allocations, waits, event_waits;
} counts;

static counts count_now(void)
{
    return (counts){simt_allocations(), simt_waits(), simt_event_waits()};
}

static counts since(counts before)
{
    const counts now = count_now();
    return (counts){now.allocations - before.allocations, now.waits - before.waits,
                    now.event_waits - before.event_waits};
}

static void sampled(qwen36_session *session, float temperature)
{
    int32_t token;
    qwen36_sampling sampling = {.struct_size = sizeof sampling};
    CHECK_INT(qwen36_session_get_sampling(session, &sampling, NULL), QWEN36_OK);
    sampling.temperature = temperature;
    sampling.repetition_penalty = 1.1F;
    sampling.logprobs = 5;
    CHECK_INT(qwen36_session_set_sampling(session, &sampling, NULL), QWEN36_OK);
    CHECK_INT(qwen36_sample(&session, 1, &token, NULL, NULL), QWEN36_OK);
}

static void check_no_memory_is_taken(const char *config, int32_t invariant)
{
    qwen36_model_options options = device_options();
    options.batch_invariant = invariant;
    qwen36_model *model = test_model(test_checkpoint(config), &options);
    const int64_t before = simt_allocations();
    float scores[5];
    const float *logits;
    qwen36_session *session = device_prefilled(model, 130), *fork = NULL; /* two chunks */
    sampled(session, 0);
    test_compute(session);
    CHECK_INT(qwen36_session_score(session, device_tokens(200), 5, scores, NULL), QWEN36_OK);
    CHECK_INT(qwen36_session_logits(session, &logits, NULL, NULL), QWEN36_OK);
    CHECK_INT(qwen36_session_fork(session, NULL, &fork, NULL), QWEN36_OK);
    device_append(fork, 7, 3);
    device_append(session, 8, 20);
    qwen36_session *both[] = {session, fork};
    CHECK_INT(qwen36_step(both, 2, NULL, NULL, NULL), QWEN36_OK);
    sampled(fork, 0.7F);
    CHECK_INT(qwen36_session_rewind(session, 64, NULL), QWEN36_OK);
    test_compute(session);
    CHECK_INT(simt_allocations(), before);
    qwen36_session_destroy(fork);
    qwen36_session_destroy(session);
    qwen36_model_release(model);
    device_check_nothing_left();
}

TEST(device_manners, no_memory_is_taken_after_loading)
{
    device_begin();
    check_no_memory_is_taken("moe", 0);
    check_no_memory_is_taken("dense_tied", 1);
    simt_library(1);
    check_no_memory_is_taken("dense_tied", 0);
    simt_library(0);
}

/* One wait for the stream; the host keeps its distance from the device by one event per layer. */
TEST(device_manners, a_decode_step_waits_once)
{
    device_begin();
    const char *const configs[] = {"dense_tied", "moe"};
    for (size_t i = 0; i < QW_COUNT_OF(configs); i++) {
        qwen36_model_options options = device_options();
        qwen36_model *model = test_model(test_checkpoint(configs[i]), &options);
        qwen36_session *session = device_prefilled(model, 9);
        for (int32_t step = 0; step < 3; step++) {
            counts before = count_now();
            device_append(session, 40, 1);
            test_compute(session);
            counts in_step = since(before);
            CHECK_INT(in_step.waits, 1);
            CHECK_INT(in_step.event_waits, model->dims.layers);
            before = count_now();
            sampled(session, 0.5F);
            test_compute(session);
            in_step = since(before);
            CHECK_INT(in_step.waits, 2); /* the sample's result, and the step that computes its token */
        }
        const counts before = count_now();
        device_append(session, 40, 20); /* a prefill too */
        test_compute(session);
        CHECK_INT(since(before).waits, 1);
        qwen36_session_destroy(session);
        qwen36_model_release(model);
    }
    device_check_nothing_left();
}

/* ---- a child process --------------------------------------------------------------------------------------
 */

/* What the child may do with the parent's objects: nothing but give them back, which leaves them alone. */
static int child(qwen36_model *model, qwen36_session *session)
{
    int32_t token = 0;
    qwen36_model *copy = NULL;
    qwen36_error error = QWEN36_ERROR_INIT;
    const int64_t calls = simt_calls(), outstanding = simt_memory_outstanding();
    bool right = qwen36_step(&session, 1, NULL, NULL, &error) == QWEN36_ERROR_FORKED &&
                 qwen36_sample(&session, 1, &token, NULL, &error) == QWEN36_ERROR_FORKED &&
                 qwen36_model_flush_prefixes(model, &error) == QWEN36_ERROR_FORKED;
    qwen36_session_destroy(session);
    qwen36_model_release(model);
    right = right && simt_calls() == calls && simt_memory_outstanding() == outstanding;
    simt_no_device(1); /* as the driver is, after a fork of a process that has used it */
    qwen36_model_options options = device_options();
    right = right && qwen36_model_load("examples/demo-model", &options, &copy, &error) == QWEN36_ERROR_DEVICE;
    return right ? 0 : 1;
}

TEST(device_manners, a_child_leaves_the_device_alone)
{
    device_begin();
    qwen36_model *model = model_on(0);
    qwen36_session *session = device_prefilled(model, 5);
    fflush(NULL);
    const pid_t process = fork();
    if (process == 0)
        _exit(child(model, session));
    int status = -1;
    CHECK(process > 0 && waitpid(process, &status, 0) == process);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    device_append(session, 5, 1);
    test_compute(session);
    qwen36_session_destroy(session);
    qwen36_model_release(model);
    device_check_nothing_left();
}
