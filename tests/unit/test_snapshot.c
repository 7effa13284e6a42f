/* Saving and restoring sessions, and the directory of prefixes. The law "restore" of test_laws.c says that
 * what follows has equal bits; here is everything around it. */
#include "lib/api/api.h"
#include "lib/session/disk.h"
#include "tests/harness.h"
#include "tests/unit/checkpoint.h"

#include <dirent.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { COUNT = 150 };

static int32_t TOKENS[COUNT];
static qwen36_error error = QWEN36_ERROR_INIT;

static qwen36_model_options small_options(void)
{
    qwen36_model_options options = test_model_options();
    options.context_length = 256;
    for (int32_t i = 0; i < COUNT; i++)
        TOKENS[i] = (i * 37 + 11) % 200;
    return options;
}

static qwen36_model *small_model(void)
{
    qwen36_model_options options = small_options();
    return test_model(test_checkpoint("moe"), &options);
}

static qwen36_session *computed_session(qwen36_model *model, size_t count)
{
    qwen36_session *session = test_session(model);
    CHECK_INT(qwen36_session_append(session, TOKENS, count, QWEN36_LOGITS_LAST, NULL), QWEN36_OK);
    test_compute(session);
    return session;
}

static char *saved(const qwen36_session *session, size_t *size)
{
    CHECK_INT(qwen36_session_save_memory(session, NULL, 0, size, NULL), QWEN36_ERROR_BUFFER_TOO_SMALL);
    char *memory = malloc(*size);
    CHECK_INT(qwen36_session_save_memory(session, memory, *size, size, &error), QWEN36_OK);
    return memory;
}

static const char *inside(const char *directory, const char *name)
{
    static char path[512];
    snprintf(path, sizeof path, "%s/%s", directory, name);
    return path;
}

/* In a fresh directory. */
static const char *in_directory(const char *name)
{
    return inside(test_directory(), name);
}

/* ---- what comes back ----------------------------------------------------------------------------------- */

static void sample_five(qwen36_session *session, int32_t *tokens)
{
    for (int32_t i = 0; i < 5; i++) {
        CHECK_INT(qwen36_sample(&session, 1, &tokens[i], NULL, &error), QWEN36_OK);
        CHECK_INT(qwen36_step(&session, 1, NULL, NULL, &error), QWEN36_OK);
    }
}

TEST(snapshot, everything_comes_back)
{
    int32_t expected[5], actual[5], banned[2] = {7, 9};
    float bias[2] = {-1.5f, 2.5f}, chosen = 0, again = 0;
    qwen36_model *model = small_model(), *other = small_model();
    qwen36_session *session = computed_session(model, 100), *restored = NULL;
    qwen36_sampling sampling = {.struct_size = sizeof sampling};
    CHECK_INT(qwen36_session_get_sampling(session, &sampling, NULL), QWEN36_OK);
    sampling.temperature = 0.9f;
    sampling.seed = 77;
    sampling.stream = 3;
    sampling.presence_penalty = 0.5f;
    sampling.logprobs = 2;
    CHECK_INT(qwen36_session_set_sampling(session, &sampling, NULL), QWEN36_OK);
    CHECK_INT(qwen36_session_set_bias(session, banned, bias, 2, NULL), QWEN36_OK);
    uint32_t words[1024];
    memset(words, 0xff, sizeof words);
    words[0] = 0xfffffff0u;
    CHECK_INT(qwen36_session_set_bitmask(session, words, ((size_t)model->dims.vocab_size + 31) / 32, NULL),
              QWEN36_OK);
    int32_t first;
    CHECK_INT(qwen36_sample(&session, 1, &first, NULL, NULL), QWEN36_OK);
    test_compute(session);
    const char *path = in_directory("session.qw36");
    CHECK_INT(qwen36_session_save(session, path, &error), QWEN36_OK);
    struct stat status;
    CHECK_INT(stat(path, &status), 0);
    CHECK_INT(status.st_mode & 0777, 0600);
    CHECK_INT(qwen36_session_restore(other, path, NULL, &restored, &error), QWEN36_OK);
    CHECK(qw_sessions_check(other));
    CHECK_INT(qwen36_session_length(restored), 101);
    CHECK_INT(qwen36_session_logprobs(session, &chosen, expected, bias, 2, &(size_t){0}, NULL), QWEN36_OK);
    CHECK_INT(qwen36_session_logprobs(restored, &again, actual, bias, 2, &(size_t){0}, NULL), QWEN36_OK);
    CHECK(chosen == again && memcmp(expected, actual, 2 * sizeof *actual) == 0);
    sample_five(session, expected);
    sample_five(restored, actual);
    CHECK(memcmp(expected, actual, sizeof actual) == 0);
    qwen36_session_destroy(session);
    qwen36_session_destroy(restored);
    qwen36_model_release(model);
    qwen36_model_release(other);
}

static void check_bytes(int32_t kv_dtype)
{
    size_t size = 0, other_size = 0;
    qwen36_model_options options = small_options();
    options.kv_dtype = kv_dtype;
    qwen36_model *model = test_model(test_checkpoint("moe"), &options);
    qwen36_session *session = computed_session(model, 100), *fork = NULL;
    char *expected = saved(session, &size);
    CHECK_INT(qwen36_session_rewind(session, 0, NULL), QWEN36_OK);
    CHECK_INT(qwen36_session_append(session, TOKENS + 40, 110, QWEN36_LOGITS_NONE, NULL), QWEN36_OK);
    test_compute(session);
    CHECK_INT(qwen36_session_fork(session, NULL, &fork, NULL), QWEN36_OK);
    CHECK_INT(qwen36_session_sync(session, TOKENS, 100, NULL, NULL), QWEN36_OK);
    test_compute(session);
    char *actual = saved(session, &other_size);
    CHECK_INT(size, other_size);
    CHECK(memcmp(expected, actual, size) == 0);
    free(expected);
    free(actual);
    qwen36_session_destroy(fork);
    qwen36_session_destroy(session);
    qwen36_model_release(model);
}

TEST(snapshot, the_bytes_depend_on_the_tokens_alone)
{
    check_bytes(QWEN36_KV_F32);
    check_bytes(QWEN36_KV_BF16);
    check_bytes(QWEN36_KV_I8);
}

TEST(snapshot, empty_and_pending_sessions)
{
    size_t size = 0;
    qwen36_model *model = small_model();
    qwen36_session *session = test_session(model), *restored = NULL;
    char *memory = saved(session, &size);
    CHECK_INT(qwen36_session_restore_memory(model, memory, size, NULL, &restored, &error), QWEN36_OK);
    CHECK_INT(qwen36_session_length(restored), 0);
    qwen36_session_destroy(restored);
    free(memory);
    CHECK_INT(qwen36_session_append(session, TOKENS, 9, QWEN36_LOGITS_LAST, NULL), QWEN36_OK);
    memory = saved(session, &size);
    CHECK_INT(qwen36_session_restore_memory(model, memory, size, NULL, &restored, &error), QWEN36_OK);
    CHECK_INT(qwen36_session_length(restored), 9);
    CHECK_INT(qwen36_session_computed(restored), 0);
    test_compute(restored);
    CHECK_INT(qwen36_session_logits(restored, &(const float *){NULL}, NULL, NULL), QWEN36_OK);
    qwen36_session_destroy(restored);
    qwen36_session_destroy(session);
    free(memory);
    qwen36_model_release(model);
}

/* ---- what is refused ----------------------------------------------------------------------------------- */

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { FLIP_STRIDE = 97 };
#else
enum { FLIP_STRIDE = 1 };
#endif

TEST(snapshot, every_flipped_byte_is_refused)
{
    size_t size = 0;
    qwen36_model *model = small_model();
    qwen36_session *session = computed_session(model, 5), *restored = NULL;
    char *memory = saved(session, &size);
    for (size_t i = 0; i < size; i += FLIP_STRIDE) {
        memory[i] = (char)(memory[i] ^ (1 << (i % 8)));
        CHECK_INT(qwen36_session_restore_memory(model, memory, size, NULL, &restored, &error),
                  QWEN36_ERROR_SNAPSHOT);
        CHECK(restored == NULL);
        memory[i] = (char)(memory[i] ^ (1 << (i % 8)));
    }
    for (size_t cut = 0; cut < size; cut = cut < 512 ? cut + 1 : cut + 1 + size / 300)
        CHECK_INT(qwen36_session_restore_memory(model, memory, cut, NULL, &restored, &error),
                  QWEN36_ERROR_SNAPSHOT);
    CHECK_INT(qwen36_session_restore_memory(model, memory, size, NULL, &restored, &error), QWEN36_OK);
    qwen36_session_destroy(restored);
    qwen36_session_destroy(session);
    CHECK(qw_sessions_check(model));
    free(memory);
    qwen36_model_release(model);
}

static qwen36_status restore_with(const char *checkpoint, const qwen36_model_options *options,
                                  bool any_numerics, const char *memory, size_t size)
{
    qwen36_model *model = test_model(test_checkpoint(checkpoint), options);
    qwen36_session *restored = NULL;
    qwen36_restore_options how;
    qwen36_restore_options_init(&how, sizeof how);
    how.any_numerics = any_numerics;
    error = (qwen36_error)QWEN36_ERROR_INIT;
    qwen36_status status = qwen36_session_restore_memory(model, memory, size, &how, &restored, &error);
    CHECK_INT(error.status, status);
    CHECK((status == QWEN36_OK) == (restored != NULL));
    qwen36_session_destroy(restored);
    qwen36_model_release(model);
    return status;
}

TEST(snapshot, another_model_or_arithmetic)
{
    size_t size = 0;
    qwen36_model_options options = small_options(), fast = options, narrow = options;
    fast.numerics = QWEN36_NUMERICS_FAST;
    fast.kv_dtype = QWEN36_KV_F32;
    narrow.kv_dtype = QWEN36_KV_BF16;
    qwen36_model *model = small_model();
    qwen36_session *session = computed_session(model, 70);
    char *memory = saved(session, &size);
    CHECK_INT(restore_with("dense_tied", &options, true, memory, size), QWEN36_ERROR_SNAPSHOT_MISMATCH);
    CHECK_INT(restore_with("moe", &fast, false, memory, size), QWEN36_ERROR_SNAPSHOT_MISMATCH);
    CHECK_INT(restore_with("moe", &fast, true, memory, size), QWEN36_OK);
    CHECK_INT(restore_with("moe", &narrow, true, memory, size), QWEN36_ERROR_SNAPSHOT_MISMATCH);
    CHECK_INT(restore_with("moe", &options, false, memory, size), QWEN36_OK);
    options.context_length = 69;
    CHECK_INT(restore_with("moe", &options, false, memory, size), QWEN36_ERROR_CONTEXT_FULL);
    options.context_length = 256;
    options.cache_bytes = session->model->cache.plan.block_bytes;
    CHECK_INT(restore_with("moe", &options, false, memory, size), QWEN36_ERROR_CACHE_FULL);
    qwen36_session_destroy(session);
    free(memory);
    qwen36_model_release(model);
}

TEST(snapshot, bad_arguments)
{
    size_t size = 0;
    qwen36_model *model = small_model();
    qwen36_session *session = computed_session(model, 5), *restored = NULL;
    qwen36_restore_options how;
    qwen36_restore_options_init(&how, sizeof how);
    how.any_numerics = 2;
    CHECK_INT(qwen36_session_save(session, NULL, &error), QWEN36_ERROR_ARGUMENT);
    CHECK_INT(qwen36_session_save(NULL, "x", &error), QWEN36_ERROR_ARGUMENT);
    CHECK_INT(qwen36_session_save(session, in_directory("missing/x"), &error), QWEN36_ERROR_FILE_WRITE);
    CHECK_INT(qwen36_session_save_memory(session, NULL, 10, &size, &error), QWEN36_ERROR_ARGUMENT);
    CHECK_INT(qwen36_session_save_memory(session, NULL, 0, NULL, &error), QWEN36_ERROR_ARGUMENT);
    CHECK_INT(qwen36_session_restore(model, in_directory("nothing"), NULL, &restored, &error),
              QWEN36_ERROR_FILE_NOT_FOUND);
    CHECK_INT(qwen36_session_restore(model, NULL, NULL, &restored, &error), QWEN36_ERROR_ARGUMENT);
    CHECK_INT(qwen36_session_restore(model, "x", NULL, NULL, &error), QWEN36_ERROR_ARGUMENT);
    CHECK_INT(qwen36_session_restore(model, "x", &how, &restored, &error), QWEN36_ERROR_ARGUMENT);
    CHECK_INT(qwen36_session_restore_memory(model, NULL, 0, NULL, &restored, &error), QWEN36_ERROR_ARGUMENT);
    qwen36_session_destroy(session);
    qwen36_model_release(model);
}

TEST(snapshot, failing_allocations)
{
    test_allocator state = {0};
    qwen36_allocator hooks = {sizeof hooks, 0, test_allocate, test_release, &state};
    qwen36_model_options options = small_options();
    options.allocator = &hooks;
    qwen36_model *model = test_model(test_checkpoint("moe"), &options);
    qwen36_session *session = computed_session(model, 100), *restored = NULL;
    int32_t token = 3;
    float bias = 1;
    CHECK_INT(qwen36_session_set_bias(session, &token, &bias, 1, NULL), QWEN36_OK);
    const char *path = in_directory("session.qw36");
    for (int operation = 0; operation < 3; operation++) {
        qwen36_status status = QWEN36_ERROR_OUT_OF_MEMORY;
        long k = 0;
        while (status != QWEN36_OK) {
            state.allocations = 0;
            state.fail_at = ++k;
            long outstanding = state.outstanding;
            status = operation == 0   ? qwen36_session_save(session, path, &error)
                     : operation == 1 ? qwen36_session_restore(model, path, NULL, &restored, &error)
                                      : qwen36_session_fork(session, NULL, &restored, &error);
            CHECK(status == QWEN36_OK || status == QWEN36_ERROR_OUT_OF_MEMORY);
            CHECK(status == QWEN36_OK || state.outstanding == outstanding);
            CHECK(qw_sessions_check(model));
        }
        CHECK_MSG(k > 2, "operation %d allocates only %ld times", operation, k);
        qwen36_session_destroy(restored);
        restored = NULL;
    }
    state.fail_at = 0;
    qwen36_session_destroy(session);
    qwen36_model_release(model);
    CHECK_INT(state.outstanding, 0);
}

/* ---- the directory of prefixes ---------------------------------------------------------------------- */

static qwen36_model *model_on(const char *directory, uint64_t bytes, int32_t numerics)
{
    qwen36_model_options options = small_options();
    options.prefix_directory = directory;
    options.prefix_directory_bytes = bytes;
    options.numerics = numerics;
    return test_model(test_checkpoint("moe"), &options);
}

static int32_t file_count(const char *directory, uint64_t *bytes)
{
    int32_t count = 0;
    DIR *open = opendir(directory);
    CHECK(open != NULL);
    *bytes = 0;
    for (struct dirent *item; (item = readdir(open)) != NULL;) {
        struct stat status;
        char path[1024];
        snprintf(path, sizeof path, "%s/%s", directory, item->d_name);
        if (item->d_name[0] == '.' || stat(path, &status) != 0)
            continue;
        count++;
        *bytes += (uint64_t)status.st_size;
    }
    closedir(open);
    return count;
}

/* Syncs to the first `count` tokens; returns what was reused, and the logits. */
static size_t sync_to(qwen36_model *model, uint64_t space, size_t count, float *logits)
{
    size_t reused = 0;
    const float *row = NULL;
    qwen36_session *session = NULL;
    qwen36_session_options options;
    CHECK_INT(qwen36_session_options_init(model, &options, sizeof options), QWEN36_OK);
    options.prefix_space = space;
    CHECK_INT(qwen36_session_create(model, &options, &session, NULL), QWEN36_OK);
    CHECK_INT(qwen36_session_sync(session, TOKENS, count, &reused, &error), QWEN36_OK);
    test_compute(session);
    CHECK_INT(qwen36_session_logits(session, &row, NULL, NULL), QWEN36_OK);
    memcpy(logits, row, (size_t)model->dims.vocab_size * sizeof *row);
    CHECK(qw_sessions_check(model));
    qwen36_session_destroy(session);
    return reused;
}

enum { V = 4096 };

TEST(disk, survives_the_process)
{
    static float cold[V], warm[V];
    uint64_t bytes = 0;
    const char *directory = test_directory();
    qwen36_model *model = model_on(directory, 1 << 30, QWEN36_NUMERICS_REFERENCE);
    CHECK(model->dims.vocab_size <= V);
    CHECK_INT(sync_to(model, 0, COUNT, cold), 0);
    CHECK_INT(qwen36_model_flush_prefixes(model, &error), QWEN36_OK);
    int32_t files = file_count(directory, &bytes);
    CHECK(files >= 2);
    qwen36_model_release(model);
    CHECK_INT(file_count(directory, &bytes), files);
    model = model_on(directory, 1 << 30, QWEN36_NUMERICS_REFERENCE);
    CHECK_INT(sync_to(model, 1, COUNT, warm), 0); /* another space */
    CHECK_INT(sync_to(model, 0, COUNT, warm), 128);
    CHECK_INT(model->counters.disk_hits, 1);
    CHECK(memcmp(cold, warm, (size_t)model->dims.vocab_size * sizeof *cold) == 0);
    qwen36_model_release(model);
    model = model_on(directory, 1 << 30, QWEN36_NUMERICS_FAST);
    CHECK_INT(sync_to(model, 0, COUNT, warm), 0);
    qwen36_model_release(model);
}

TEST(disk, damaged_files_are_misses)
{
    static float logits[V];
    uint64_t bytes = 0;
    const char *directory = test_directory();
    qwen36_model *model = model_on(directory, 1 << 30, QWEN36_NUMERICS_REFERENCE);
    sync_to(model, 0, COUNT, logits);
    qwen36_model_release(model);
    int32_t files = file_count(directory, &bytes);
    DIR *open = opendir(directory);
    for (struct dirent *item; (item = readdir(open)) != NULL;) {
        char path[1024];
        size_t size = 0;
        snprintf(path, sizeof path, "%s/%s", directory, item->d_name);
        if (item->d_name[0] == '.')
            continue;
        char *content = test_read_file(path, &size);
        content[size / 2] = (char)(content[size / 2] ^ 4);
        test_write_file(path, content, size);
        free(content);
    }
    closedir(open);
    model = model_on(directory, 1 << 30, QWEN36_NUMERICS_REFERENCE);
    CHECK_INT(sync_to(model, 0, COUNT, logits), 0);
    CHECK_INT(model->counters.disk_refusals, files);
    CHECK_INT(model->counters.disk_hits, 0);
    CHECK_INT(file_count(directory, &bytes), 0);
    qwen36_model_release(model); /* and they are written anew */
    CHECK_INT(file_count(directory, &bytes), files);
}

TEST(disk, stays_within_its_limit)
{
    static float logits[V];
    uint64_t all = 0, bytes = 0;
    const char *directory = test_directory();
    qwen36_model *model = model_on(directory, 1 << 30, QWEN36_NUMERICS_REFERENCE);
    sync_to(model, 0, COUNT, logits);
    qwen36_model_release(model);
    CHECK(file_count(directory, &all) >= 2);
    test_write_file(inside(directory, "somebody-else"), "x", 1);
    model = model_on(directory, all - 1, QWEN36_NUMERICS_REFERENCE);
    CHECK_INT(qwen36_model_flush_prefixes(model, &error), QWEN36_OK);
    file_count(directory, &bytes);
    CHECK(bytes <= all); /* one byte is somebody else's */
    CHECK(access(inside(directory, "somebody-else"), F_OK) == 0);
    qwen36_model_release(model);
}

TEST(disk, nothing_without_prefix_reuse)
{
    static float logits[V];
    uint64_t bytes = 0;
    const char *directory = test_directory();
    qwen36_model *model = model_on(directory, 1 << 30, QWEN36_NUMERICS_REFERENCE);
    sync_to(model, 0, COUNT, logits);
    qwen36_model_release(model);
    int32_t files = file_count(directory, &bytes);
    qwen36_model_options options = small_options();
    options.prefix_directory = directory;
    options.prefix_reuse = 0;
    model = test_model(test_checkpoint("moe"), &options);
    CHECK_INT(sync_to(model, 0, COUNT, logits), 0);
    CHECK_INT(model->counters.disk_hits + model->counters.disk_refusals, 0);
    qwen36_model_release(model);
    CHECK_INT(file_count(directory, &bytes), files);
}

TEST(disk, refused_directories)
{
    qwen36_model *model = NULL;
    qwen36_model_options options = small_options();
    options.prefix_directory = in_directory("nothing");
    CHECK_INT(qwen36_model_load(test_checkpoint("moe"), &options, &model, &error),
              QWEN36_ERROR_FILE_NOT_FOUND);
    CHECK(model == NULL);
}

/* Two processes write, read and trim one directory at once; each must get its own bits. */
static void live_on(const char *directory, const float *expected)
{
    static float logits[V];
    for (int32_t round = 0; round < 6; round++) {
        qwen36_model *model = model_on(directory, round % 2 != 0 ? 1 : 1 << 30, QWEN36_NUMERICS_REFERENCE);
        sync_to(model, 0, COUNT, logits);
        bool equal = memcmp(logits, expected, (size_t)model->dims.vocab_size * sizeof *logits) == 0;
        qwen36_model_release(model);
        if (!equal)
            _exit(1);
    }
    _exit(0);
}

#if !defined(__SANITIZE_THREAD__)
TEST(disk, two_processes)
{
    static float expected[V];
    const char *directory = test_directory();
    qwen36_model *model = small_model();
    sync_to(model, 0, COUNT, expected);
    qwen36_model_release(model);
    pid_t children[2];
    for (int i = 0; i < 2; i++) {
        children[i] = fork();
        if (children[i] == 0)
            live_on(directory, expected);
    }
    for (int i = 0; i < 2; i++) {
        int status = 0;
        CHECK_INT(waitpid(children[i], &status, 0), children[i]);
        CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    }
}
#endif

TEST(disk, failing_allocations)
{
    static float logits[V];
    test_allocator state = {0};
    qwen36_allocator hooks = {sizeof hooks, 0, test_allocate, test_release, &state};
    qwen36_model_options options = small_options();
    options.allocator = &hooks;
    options.prefix_directory = test_directory();
    qwen36_model *model = test_model(test_checkpoint("moe"), &options);
    sync_to(model, 0, COUNT, logits);
    qwen36_status status = QWEN36_ERROR_OUT_OF_MEMORY;
    for (long k = 1; status != QWEN36_OK; k++) {
        state.allocations = 0;
        state.fail_at = k;
        status = qwen36_model_flush_prefixes(model, &error);
        CHECK(status == QWEN36_OK || status == QWEN36_ERROR_OUT_OF_MEMORY);
        CHECK(qw_sessions_check(model));
    }
    state.fail_at = 0;
    qwen36_model_release(model);
    CHECK_INT(state.outstanding, 0);
    model = test_model(test_checkpoint("moe"), &options);
    qwen36_session *session = test_session(model);
    size_t reused = 0;
    for (long k = 1; reused == 0; k++) { /* a miss for want of memory is a miss */
        state.allocations = 0;
        state.fail_at = k;
        CHECK_INT(qwen36_session_sync(session, TOKENS, COUNT, &reused, &error), QWEN36_OK);
        CHECK(qw_sessions_check(model));
        CHECK(k < 100);
    }
    state.fail_at = 0;
    qwen36_session_destroy(session);
    qwen36_model_release(model);
    CHECK_INT(state.outstanding, 0);
}
