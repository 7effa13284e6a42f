/* The device is lost at the n-th call of the runtime, in everything that a caller may do: that call says so,
 * and from then on every call on the model and its sessions; what was computed before still reads as before,
 * nothing leaks, models on other devices go on, and a new model works once the machine has revived the
 * device, which on hardware takes a new process. */
#include "lib/session/session.h"
#include "tests/cuda/device.h"

#include <dirent.h>
#include <unistd.h>

/* What a scenario works with. Two sessions: `session` stands on PREFILL tokens with logits, `other` is empty.
 */
enum { PREFILL = 70 };
typedef struct stage {
    qwen36_model *model;
    qwen36_session *session, *other;
    const void *saved; /* `session` in memory */
    size_t saved_bytes;
    char path[512];
} stage;

/* ---- everything says so -------------------------------------------------------------------------------- */

/* The functions of lib/exports.list that no lost device can reach:
 *   without a model or a session: version_number, version_string, backend_name, features, status_name,
 *     model_options_init, memory_estimate_read (of a directory), restore_options_init, generate_options_init,
 *     decoder_*, tokenizer_*, chat_*;
 *   that return no status: model_retain, model_release, model_tokenizer, session_destroy, session_length,
 *     session_computed, session_capacity, session_interrupt.
 * All others are called here. */
static void check_model_says_so(stage *st)
{
    const qwen36_status lost = QWEN36_ERROR_DEVICE_LOST;
    qwen36_model *m = st->model;
    qwen36_error error = QWEN36_ERROR_INIT;
    qwen36_model_info info = {.struct_size = sizeof info};
    qwen36_stats stats = {.struct_size = sizeof stats};
    qwen36_session_options session_options;
    qwen36_step_options step_options;
    qwen36_sampling sampling;
    qwen36_session *made = (qwen36_session *)&error;
    int32_t id;
    size_t count;
    CHECK_INT(qwen36_model_get_info(m, &info, &error), lost);
    CHECK_TEXT(error.message,
               "the device of this model is lost: its sessions and the model can only be given back");
    CHECK_INT(qwen36_model_get_stats(m, &stats, NULL), lost);
    CHECK_INT(qwen36_model_end_tokens(m, &id, 1, &count, NULL), lost);
    CHECK_INT(qwen36_model_flush_prefixes(m, NULL), lost);
    CHECK_INT(qwen36_model_clear_cache(m, NULL), lost);
    CHECK_INT(qwen36_session_options_init(m, &session_options, sizeof session_options), lost);
    CHECK_INT(qwen36_step_options_init(m, &step_options, sizeof step_options), lost);
    CHECK_INT(qwen36_sampling_init(m, &sampling, sizeof sampling), lost);
    CHECK_INT(qwen36_session_create(m, NULL, &made, NULL), lost);
    CHECK(made == NULL);
    CHECK_INT(qwen36_session_restore(m, st->path, NULL, &made, NULL), lost);
    CHECK_INT(qwen36_session_restore_memory(m, st->saved, st->saved_bytes, NULL, &made, NULL), lost);
    CHECK(made == NULL);
}

static void check_timeline_says_so(stage *st, qwen36_session *s)
{
    const qwen36_status lost = QWEN36_ERROR_DEVICE_LOST;
    qwen36_session *fork = NULL;
    int32_t ids[4] = {1, 2, 3, 4};
    size_t size = 0;
    CHECK_INT(qwen36_session_append(s, ids, 1, QWEN36_LOGITS_LAST, NULL), lost);
    CHECK_INT(qwen36_session_sync(s, ids, 4, &size, NULL), lost);
    CHECK_INT(qwen36_session_rewind(s, 0, NULL), lost);
    CHECK_INT(qwen36_session_reset(s, NULL), lost);
    CHECK_INT(qwen36_session_fork(s, NULL, &fork, NULL), lost);
    CHECK_INT(qwen36_session_save(s, st->path, NULL), lost);
    CHECK_INT(qwen36_session_save_memory(s, NULL, 0, &size, NULL), lost);
    CHECK_INT(qwen36_session_tokens(s, 0, 0, ids, NULL), lost);
    CHECK(fork == NULL);
}

static void check_rest_says_so(qwen36_session *s)
{
    const qwen36_status lost = QWEN36_ERROR_DEVICE_LOST;
    qwen36_sampling sampling = {.struct_size = sizeof sampling};
    qwen36_stats stats = {.struct_size = sizeof stats};
    qwen36_generate_result result = {.struct_size = sizeof result};
    const float *logits = NULL;
    float values[4];
    int32_t ids[4] = {1, 2, 3, 4}, vocab;
    uint32_t word = 1;
    size_t count = 0;
    CHECK_INT(qwen36_session_logits(s, &logits, &vocab, NULL), lost);
    CHECK_INT(qwen36_session_score(s, ids, 4, values, NULL), lost);
    CHECK_INT(qwen36_step(&s, 1, NULL, NULL, NULL), lost);
    CHECK_INT(qwen36_sample(&s, 1, ids, NULL, NULL), lost);
    CHECK_INT(qwen36_session_get_sampling(s, &sampling, NULL), lost);
    CHECK_INT(qwen36_session_set_sampling(s, &sampling, NULL), lost);
    CHECK_INT(qwen36_session_set_bias(s, ids, values, 0, NULL), lost);
    CHECK_INT(qwen36_session_set_bitmask(s, &word, 0, NULL), lost);
    CHECK_INT(qwen36_session_logprobs(s, values, ids, values, 4, &count, NULL), lost);
    CHECK_INT(qwen36_session_get_stats(s, &stats, NULL), lost);
    CHECK_INT(qwen36_generate(s, NULL, &result, NULL), lost);
    CHECK_INT(result.finish, QWEN36_FINISH_ERROR);
}

static void check_everything_says_so(stage *st)
{
    const size_t length = qwen36_session_length(st->session), computed = qwen36_session_computed(st->session);
    const int64_t calls = simt_calls();
    check_model_says_so(st);
    qwen36_session *sessions[] = {st->session, st->other};
    for (size_t i = 0; i < QW_COUNT_OF(sessions); i++) {
        check_timeline_says_so(st, sessions[i]);
        check_rest_says_so(sessions[i]);
    }
    CHECK_INT(qwen36_step(sessions, 2, NULL, NULL, NULL), QWEN36_ERROR_DEVICE_LOST);
    CHECK_INT(simt_calls(), calls); /* the device is left in peace */
    CHECK_INT(qwen36_session_length(st->session), length);
    CHECK_INT(qwen36_session_computed(st->session), computed);
    CHECK(qwen36_model_tokenizer(st->model) == NULL);
    qwen36_session_interrupt(st->session);
    CHECK(qwen36_model_retain(st->model) == st->model);
    qwen36_model_release(st->model);
    CHECK(qw_sessions_check(st->model));
}

/* A function that is new in the list has to be called above, or named among those that cannot say so. */
TEST(device_lost, all_functions_are_here)
{
    size_t size = 0, names = 0;
    char *list = test_read_file("lib/exports.list", &size), *rest = NULL;
    char *source = test_read_file("tests/cuda/test_device_lost.c", &size);
    CHECK(list != NULL && source != NULL);
    for (char *name = strtok_r(list, "\n", &rest); name != NULL;
         name = strtok_r(NULL, "\n", &rest), names++) {
        const char *bare = name + strlen("qwen36_");
        const bool apart = strncmp(bare, "decoder_", 8) == 0 || strncmp(bare, "tokenizer_", 10) == 0 ||
                           strncmp(bare, "chat_", 5) == 0;
        CHECK_MSG(apart || strstr(source, bare) != NULL, "%s", name);
    }
    CHECK(names > 50);
    free(source);
    free(list);
}

/* ---- the scenarios ------------------------------------------------------------------------------------- */

static qwen36_status compute(qwen36_session *session, qwen36_error *error)
{
    qwen36_status status;
    do {
        status = qwen36_step(&session, 1, NULL, NULL, error);
    } while (status == QWEN36_PENDING);
    return status;
}

static qwen36_status prefill(stage *st, qwen36_error *error)
{
    device_append(st->other, 300, PREFILL);
    return compute(st->other, error);
}

static qwen36_status decode(stage *st, qwen36_error *error)
{
    device_append(st->session, 10, 1);
    return compute(st->session, error);
}

static void nothing(void *user, qwen36_session *session, int32_t position, const float *logits, int32_t vocab)
{
    (void)user, (void)session, (void)position, (void)logits, (void)vocab;
}

/* Two sessions in one step, one with rows for its callback; a block that a fork shares is copied. */
static qwen36_status step_of_two(stage *st, qwen36_error *error)
{
    qwen36_session_options options;
    qwen36_session *fork = NULL;
    CHECK_INT(qwen36_session_options_init(st->model, &options, sizeof options), QWEN36_OK);
    options.on_logits = nothing;
    CHECK_INT(qwen36_session_fork(st->session, &options, &fork, NULL), QWEN36_OK);
    CHECK_INT(qwen36_session_append(fork, device_tokens(0), 3, QWEN36_LOGITS_ALL, NULL), QWEN36_OK);
    device_append(st->other, 20, 5);
    qwen36_session *both[] = {fork, st->other};
    const qwen36_status status = qwen36_step(both, 2, NULL, NULL, error);
    qwen36_session_destroy(fork);
    return status;
}

static qwen36_status sample(stage *st, qwen36_error *error)
{
    int32_t token = 0;
    qwen36_sampling sampling = {.struct_size = sizeof sampling};
    const int32_t ids[] = {3, 4};
    const float bias[] = {1, -1};
    CHECK_INT(qwen36_session_get_sampling(st->session, &sampling, NULL), QWEN36_OK);
    sampling.temperature = 0.8F;
    sampling.repetition_penalty = 1.1F;
    sampling.logprobs = 3;
    CHECK_INT(qwen36_session_set_sampling(st->session, &sampling, NULL), QWEN36_OK);
    CHECK_INT(qwen36_session_set_bias(st->session, ids, bias, 2, NULL), QWEN36_OK);
    const qwen36_status status = qwen36_sample(&st->session, 1, &token, NULL, error);
    CHECK((status == QWEN36_OK) == (token >= 0));
    return status;
}

/* The first token by the logits that stand, the others by rows of a step. */
static qwen36_status score(stage *st, qwen36_error *error)
{
    float scores[6];
    return qwen36_session_score(st->session, device_tokens(50), 6, scores, error);
}

static qwen36_status logits(stage *st, qwen36_error *error)
{
    const float *row = NULL;
    const qwen36_status status = qwen36_session_logits(st->session, &row, NULL, error);
    CHECK((status == QWEN36_OK) == (row != NULL));
    return status;
}

static qwen36_status generate(stage *st, qwen36_error *error)
{
    qwen36_generate_options options;
    qwen36_generate_options_init(&options, sizeof options);
    options.max_tokens = 2;
    options.ignore_end_tokens = 1;
    return qwen36_generate(st->session, &options, NULL, error);
}

static qwen36_status save(stage *st, qwen36_error *error)
{
    const qwen36_status status = qwen36_session_save(st->session, st->path, error);
    CHECK((status == QWEN36_OK) == (access(st->path, F_OK) == 0)); /* whole, or not there */
    unlink(st->path);
    return status;
}

static qwen36_status save_to_memory(stage *st, qwen36_error *error)
{
    size_t size = 0;
    void *memory = malloc(st->saved_bytes);
    const qwen36_status status =
        qwen36_session_save_memory(st->session, memory, st->saved_bytes, &size, error);
    CHECK(status != QWEN36_OK || (size == st->saved_bytes && memcmp(memory, st->saved, size) == 0));
    free(memory);
    return status;
}

static qwen36_status restore(stage *st, qwen36_error *error)
{
    qwen36_session *made = NULL;
    const qwen36_status status =
        qwen36_session_restore_memory(st->model, st->saved, st->saved_bytes, NULL, &made, error);
    CHECK((status == QWEN36_OK) == (made != NULL));
    qwen36_session_destroy(made);
    return status;
}

/* A fork touches nothing of the device until one of the two goes on. */
static qwen36_status fork_and_go_on(stage *st, qwen36_error *error)
{
    qwen36_session *fork = NULL;
    const int64_t calls = simt_calls();
    CHECK_INT(qwen36_session_fork(st->session, NULL, &fork, NULL), QWEN36_OK);
    CHECK_INT(simt_calls(), calls);
    device_append(fork, 30, 1);
    const qwen36_status status = compute(fork, error);
    qwen36_session_destroy(fork);
    return status;
}

/* The prefix lies in the directory, and in no cache. */
static qwen36_status sync_from_disk(stage *st, qwen36_error *error)
{
    size_t reused = 99;
    CHECK_INT(qwen36_session_reset(st->session, NULL), QWEN36_OK);
    CHECK_INT(qwen36_model_clear_cache(st->model, NULL), QWEN36_OK);
    const qwen36_status status = qwen36_session_sync(st->other, device_tokens(0), PREFILL, &reused, error);
    if (status != QWEN36_OK) {
        CHECK_INT(qwen36_session_length(st->other), 0);
        return status;
    }
    CHECK_INT(reused, QW_KV_BLOCK);
    return compute(st->other, error);
}

static qwen36_status flush(stage *st, qwen36_error *error)
{
    device_append(st->other, 300, QW_KV_BLOCK);
    const qwen36_status status = compute(st->other, error);
    return status != QWEN36_OK ? status : qwen36_model_flush_prefixes(st->model, error);
}

/* ---- running them -------------------------------------------------------------------------------------- */

static const struct scenario {
    const char *name;
    qwen36_status (*run)(stage *, qwen36_error *);
    int64_t least; /* calls at which the device can be lost, at least */
} scenarios[] = {
    {"prefill", prefill, 80},   {"decode", decode, 60},       {"step of two", step_of_two, 80},
    {"sample", sample, 3},      {"score", score, 60},         {"logits", logits, 2},
    {"generate", generate, 60}, {"save", save, 10},           {"save to memory", save_to_memory, 10},
    {"restore", restore, 10},   {"fork", fork_and_go_on, 60}, {"sync from disk", sync_from_disk, 10},
    {"flush", flush, 60},
};

/* A session of PREFILL tokens that stages restore, and a directory with its prefix. */
typedef struct material {
    const char *config, *directory;
    int32_t tier;
    void *saved;
    size_t bytes;
} material;

static qwen36_model *load(const material *from, qwen36_trace_fn trace, void *user)
{
    qwen36_model_options options = device_options();
    options.device_tier = from->tier;
    options.prefix_directory = from->directory;
    options.trace = trace;
    options.trace_user = user;
    return test_model(test_checkpoint(from->config), &options);
}

static material make_material(const char *config, int32_t tier)
{
    material made = {config, test_directory(), tier, NULL, 0};
    qwen36_model *model = load(&made, NULL, NULL);
    qwen36_session *session = device_prefilled(model, PREFILL);
    qwen36_session_save_memory(session, NULL, 0, &made.bytes, NULL);
    made.saved = malloc(made.bytes);
    CHECK(made.saved != NULL);
    CHECK_INT(qwen36_session_save_memory(session, made.saved, made.bytes, &made.bytes, NULL), QWEN36_OK);
    qwen36_session_destroy(session);
    qwen36_model_release(model); /* writes the prefix */
    return made;
}

static void set_stage(stage *st, const material *from, qwen36_model *model)
{
    *st = (stage){.model = model, .saved = from->saved, .saved_bytes = from->bytes};
    snprintf(st->path, sizeof st->path, "%s/session", from->directory);
    CHECK_INT(qwen36_session_restore_memory(model, from->saved, from->bytes, NULL, &st->session, NULL),
              QWEN36_OK);
    st->other = test_session(model);
}

static void clear_stage(stage *st)
{
    qwen36_session_destroy(st->other);
    qwen36_session_destroy(st->session);
    qwen36_model_release(st->model);
    device_check_nothing_left();
}

/* False: the scenario makes fewer than n calls. */
static bool lose_at(const struct scenario *scenario, const material *from, int64_t n)
{
    stage st;
    qwen36_error error = QWEN36_ERROR_INIT;
    set_stage(&st, from, load(from, NULL, NULL));
    const int64_t before = simt_calls();
    simt_lose_device(n);
    const qwen36_status status = scenario->run(&st, &error);
    const bool reached = simt_calls() - before >= n;
    CHECK_MSG(status == (reached ? QWEN36_ERROR_DEVICE_LOST : QWEN36_OK) && error.status == status,
              "%s, lost at call %" PRId64 ": %s, %s", scenario->name, n, qwen36_status_name(status),
              error.message);
    if (reached) {
        CHECK(error.message[0] != '\0' && strstr(error.message, "finite") == NULL);
        check_everything_says_so(&st);
    }
    clear_stage(&st);
    simt_revive_device();
    return reached;
}

/* The first calls one by one, then some: every place in a layer comes up in some layer. */
static int64_t next_call(int64_t n)
{
    return n < 20 ? n + 1 : n + 1 + n / 6;
}

static void run_scenarios(const char *config, int32_t tier, size_t begin, size_t end)
{
    device_begin();
    material from = make_material(config, tier);
    for (size_t i = begin; i < end; i++) {
        int64_t n = 1;
        while (lose_at(&scenarios[i], &from, n))
            n = next_call(n);
        CHECK_MSG(n > scenarios[i].least, "%s has only %" PRId64 " calls", scenarios[i].name, n);
    }
    free(from.saved);
}

TEST(device_lost, in_steps)
{
    run_scenarios("moe", QWEN36_DEVICE_TIER_AUTO, 0, 3);
}

TEST(device_lost, in_what_follows_a_step)
{
    run_scenarios("dense_tied", QWEN36_DEVICE_TIER_GENERAL, 3, 7);
}

TEST(device_lost, in_what_keeps_and_brings_back)
{
    run_scenarios("dense_tied", QWEN36_DEVICE_TIER_GENERAL, 7, QW_COUNT_OF(scenarios));
}

/* The load itself fails with it. */
TEST(device_lost, in_a_load)
{
    device_begin();
    qwen36_model_options options = device_options();
    qwen36_status status;
    int64_t n = 0;
    simt_library(1);
    do {
        qwen36_error error = QWEN36_ERROR_INIT;
        qwen36_model *model = NULL;
        n = next_call(n);
        simt_lose_device(n);
        status = qwen36_model_load(test_checkpoint("dense_tied"), &options, &model, &error);
        CHECK_MSG(status == QWEN36_OK || (status == QWEN36_ERROR_DEVICE_LOST && error.status == status &&
                                          error.message[0] != '\0' && model == NULL),
                  "%" PRId64 ": %s %s", n, qwen36_status_name(status), error.message);
        simt_revive_device();
        qwen36_model_release(model);
        device_check_nothing_left();
        CHECK_INT(simt_current_device(), 0);
    } while (status != QWEN36_OK);
    CHECK(n > 100);
    simt_library(0);
}

/* The last release writes prefixes: lost meanwhile, it tells the log, leaves no part of a file and ends. */
static void count_warnings(void *user, int32_t level, const char *message)
{
    (void)message;
    *(int32_t *)user += level == QWEN36_LOG_WARNING;
}

/* The names that are no whole prefixes; all files are removed. */
static int32_t empty_directory(const char *directory)
{
    int32_t others = 0;
    DIR *open = opendir(directory);
    CHECK(open != NULL);
    for (const struct dirent *entry; (entry = readdir(open)) != NULL;) {
        char path[800];
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
            continue;
        others += strstr(entry->d_name, ".qw36") == NULL;
        snprintf(path, sizeof path, "%s/%s", directory, entry->d_name);
        CHECK_INT(unlink(path), 0);
    }
    closedir(open);
    return others;
}

TEST(device_lost, in_the_last_release)
{
    device_begin();
    material from = make_material("dense_tied", QWEN36_DEVICE_TIER_GENERAL);
    bool reached = true;
    int64_t n = 0;
    while (reached) {
        stage st;
        int32_t warnings = 0;
        qwen36_model_options options = device_options();
        options.device_tier = from.tier;
        options.prefix_directory = from.directory;
        options.log = count_warnings;
        options.log_user = &warnings;
        CHECK_INT(empty_directory(from.directory), 0);
        set_stage(&st, &from, test_model(test_checkpoint("dense_tied"), &options));
        device_append(st.other, 300, QW_KV_BLOCK);
        test_compute(st.other);
        const int64_t before = simt_calls();
        simt_lose_device(++n);
        clear_stage(&st);
        reached = simt_calls() - before > n; /* closing the backend makes the last call */
        simt_revive_device();
        CHECK_INT(warnings, reached);
    }
    CHECK(n > 10);
    free(from.saved);
}

/* The other device's models do not notice, and this one's is as before when it is back. */
TEST(device_lost, others_go_on)
{
    device_begin();
    qwen36_model_options options = device_options();
    qwen36_model *here = test_model(test_checkpoint("moe"), &options);
    qwen36_session *lost = device_prefilled(here, PREFILL);
    float *before = device_logits(lost);
    options.device = 1;
    qwen36_model *there = test_model(test_checkpoint("moe"), &options);
    simt_lose_device(9);
    device_append(lost, 0, 2);
    CHECK_INT(qwen36_step(&lost, 1, NULL, NULL, NULL), QWEN36_ERROR_DEVICE_LOST);
    CHECK_INT(qwen36_session_length(lost), PREFILL + 2);
    CHECK_INT(qwen36_session_computed(lost), PREFILL);
    qwen36_session *well = device_prefilled(there, PREFILL);
    float *same = device_logits(well);
    CHECK(memcmp(before, same, sizeof(float) * (size_t)device_vocabulary(there)) == 0);
    simt_revive_device();
    CHECK_INT(qwen36_step(&lost, 1, NULL, NULL, NULL),
              QWEN36_ERROR_DEVICE_LOST); /* for this model it stays */
    options.device = 0;
    qwen36_model *again = test_model(test_checkpoint("moe"), &options);
    qwen36_session *fresh = device_prefilled(again, PREFILL);
    free(same);
    same = device_logits(fresh);
    CHECK(memcmp(before, same, sizeof(float) * (size_t)device_vocabulary(again)) == 0);
    qwen36_session_destroy(fresh);
    qwen36_session_destroy(well);
    qwen36_session_destroy(lost);
    qwen36_model_release(again);
    qwen36_model_release(there);
    qwen36_model_release(here);
    free(same);
    free(before);
    device_check_nothing_left();
}

/* A step that was interrupted, and whose device turns out to be lost when it ends. */
static void interrupt_it(void *user, const char *category, const char *name, int32_t layer, int32_t rows,
                         uint64_t begin, uint64_t duration)
{
    (void)name, (void)rows, (void)begin, (void)duration;
    qwen36_session **session = user;
    if (*session != NULL && strcmp(category, "layer") == 0 && layer == 1) {
        qwen36_session_interrupt(*session);
        simt_lose_device(1);
    }
}

TEST(device_lost, in_an_interrupted_step)
{
    device_begin();
    stage st;
    qwen36_session *victim = NULL;
    material from = make_material("dense_tied", QWEN36_DEVICE_TIER_GENERAL);
    set_stage(&st, &from, load(&from, interrupt_it, &victim));
    device_append(st.session, 0, 3);
    victim = st.session;
    CHECK_INT(qwen36_step(&victim, 1, NULL, NULL, NULL), QWEN36_ERROR_DEVICE_LOST);
    victim = NULL;
    check_everything_says_so(&st);
    clear_stage(&st);
    free(from.saved);
}
