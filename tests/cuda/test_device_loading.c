/* Loading onto a device: every allocation that fails, the memory that it takes meanwhile, progress. */
#include "tests/cuda/device.h"

#include <unistd.h>

static qwen36_status load(const char *directory, const qwen36_model_options *options, qwen36_model **model,
                          qwen36_error *error)
{
    *error = (qwen36_error)QWEN36_ERROR_INIT;
    return qwen36_model_load(directory, options, model, error);
}

static bool has_digit(const char *text)
{
    return strpbrk(text, "0123456789") != NULL;
}

/* ---- memory that is refused ---------------------------------------------------------------------------- */

/* Every allocation of device and pinned memory in its turn; their number. */
static int64_t fail_each(const char *config, const qwen36_model_options *options)
{
    for (int64_t n = 1;; n++) {
        qwen36_error error;
        qwen36_model *model = NULL;
        simt_fail_allocation(n);
        const int64_t before = simt_allocations();
        const qwen36_status status = load(test_checkpoint(config), options, &model, &error);
        simt_fail_allocation(0);
        if (simt_allocations() - before < n) { /* the n-th was not needed */
            CHECK_INT(status, QWEN36_OK);
            qwen36_model_release(model);
            device_check_nothing_left();
            return n - 1;
        }
        CHECK_MSG(status == QWEN36_ERROR_OUT_OF_MEMORY && error.status == status && model == NULL,
                  "allocation %" PRId64 ": %d %s", n, status, error.message);
        CHECK_MSG(has_digit(error.message) && strstr(error.message, "bytes") != NULL, "%" PRId64 ": %s", n,
                  error.message);
        device_check_nothing_left();
        CHECK_INT(simt_current_device(), 0);
    }
}

TEST(device_loading, every_allocation_fails)
{
    device_begin();
    qwen36_model_options options = device_options();
    simt_library(1);
    const int64_t all = fail_each("moe", &options);
    options.device_tier = QWEN36_DEVICE_TIER_GENERAL; /* nothing is tried, and no library opened */
    const int64_t fewest = fail_each("moe", &options);
    CHECK_MSG(fewest >= 4 && all > fewest, "%" PRId64 " %" PRId64, all, fewest);
    simt_library(0);
}

/* Every allocation of the host fails in its turn, those of the backend among them. */
static void *fail_allocate(void *user, size_t size, size_t alignment)
{
    int64_t *left = user;
    return *left > 0 && --*left == 0 ? NULL : device_hooks.allocate(device_hooks.user, size, alignment);
}

static void fail_release(void *user, void *memory)
{
    (void)user;
    device_hooks.release(device_hooks.user, memory);
}

TEST(device_loading, every_allocation_of_the_host_fails)
{
    device_begin();
    int64_t left = 0, n = 0;
    const qwen36_allocator hooks = {sizeof hooks, 0, fail_allocate, fail_release, &left};
    qwen36_model_options options = device_options();
    options.allocator = &hooks;
    simt_library(1);
    qwen36_status status;
    do {
        qwen36_error error;
        qwen36_model *model = NULL;
        left = ++n;
        status = load(test_checkpoint("moe"), &options, &model, &error);
        CHECK_MSG(status == (left == 0 ? QWEN36_ERROR_OUT_OF_MEMORY : QWEN36_OK), "%" PRId64 ": %s", n,
                  error.message);
        qwen36_model_release(model);
        device_check_nothing_left();
    } while (status != QWEN36_OK);
    CHECK(n > 30);
    simt_library(0);
}

/* All that the device has is less than the model wants: the line says both. */
TEST(device_loading, the_device_is_too_small)
{
    device_begin();
    qwen36_error error;
    qwen36_model *model = NULL;
    qwen36_memory_estimate e = {.struct_size = sizeof e};
    qwen36_model_options options = device_options();
    CHECK_INT(qwen36_memory_estimate_read(test_checkpoint("moe"), &options, &e, &error), QWEN36_OK);
    const uint64_t sizes[] = {1000, e.weight_bytes, e.total_bytes - 4096};
    for (size_t i = 0; i < QW_COUNT_OF(sizes); i++) {
        char free_bytes[64];
        snprintf(free_bytes, sizeof free_bytes, "device 0 has %" PRIu64 " bytes free, but ", sizes[i]);
        simt_set_free_memory(sizes[i]);
        CHECK_INT(load(test_checkpoint("moe"), &options, &model, &error), QWEN36_ERROR_OUT_OF_MEMORY);
        CHECK_MSG(strncmp(error.message, free_bytes, strlen(free_bytes)) == 0, "%s", error.message);
        device_check_nothing_left();
    }
    simt_set_free_memory(2 * e.total_bytes + ((uint64_t)4 << 20));
    CHECK_INT(load(test_checkpoint("moe"), &options, &model, &error), QWEN36_OK);
    qwen36_model_release(model);
    options.context_length = 4096; /* the most that one can ask for */
    options.max_batch_tokens = 65536;
    options.max_sessions = 65536;
    CHECK_INT(load(test_checkpoint("moe"), &options, &model, &error), QWEN36_ERROR_OUT_OF_MEMORY);
    CHECK(has_digit(error.message));
    device_check_nothing_left();
    options.snapshot_bytes = UINT64_MAX - 1;
    options.cache_bytes = UINT64_MAX;
    CHECK_INT(load(test_checkpoint("moe"), &options, &model, &error), QWEN36_ERROR_OUT_OF_MEMORY);
    CHECK(has_digit(error.message));
    device_check_nothing_left();
}

/* ---- memory that is taken ------------------------------------------------------------------------------ */

/* Weights of many mebibytes: a copy of them would show. */
enum { WIDE_VOCABULARY = 200000 };

static const char *wide_checkpoint(void)
{
    static char directory[300];
    char config[400], command[1000];
    const char *build = getenv("QWEN36_BUILD"), *parent = test_directory();
    build = build != NULL ? build : QW_TEST_BUILD;
    snprintf(config, sizeof config, "%s/wide.json", parent);
    snprintf(directory, sizeof directory, "%s/wide", parent);
    size_t size = 0;
    char *text = test_read_file("tests/golden/configs/dense_untied.json", &size);
    char *found = text != NULL ? strstr(text, "\"vocab_size\": 512") : NULL;
    CHECK(found != NULL);
    char *changed = malloc(size + 32);
    CHECK(changed != NULL);
    const int length = snprintf(changed, size + 32, "%.*s\"vocab_size\": %d%s", (int)(found - text), text,
                                (int)WIDE_VOCABULARY, found + strlen("\"vocab_size\": 512"));
    test_write_file(config, changed, (size_t)length);
    free(changed);
    free(text);
    snprintf(command, sizeof command, "%s/examples/make-model --config %s --seed 7 -o %s >/dev/null", build,
             config, directory);
    CHECK_MSG(system(command) == 0, "%s", command);
    return directory;
}

/* The host's own memory in and after a load: allocated by us, and pinned. */
typedef struct host_use {
    int64_t most, after, weights;
} host_use;

static host_use measure(const char *directory, int32_t access)
{
    qwen36_model_options options = device_options();
    qwen36_error error;
    qwen36_model *model = NULL;
    options.weights_access = access;
    options.max_batch_tokens = 8;
    device_host_memory.most_bytes = 0;
    (void)simt_most_pinned();
    CHECK_INT(load(directory, &options, &model, &error), QWEN36_OK);
    qwen36_model_info info = {.struct_size = sizeof info};
    CHECK_INT(qwen36_model_get_info(model, &info, NULL), QWEN36_OK);
    const host_use use = {device_host_memory.most_bytes + simt_most_pinned(), device_host_memory.bytes,
                          (int64_t)info.weight_bytes};
    qwen36_model_release(model);
    device_check_nothing_left();
    return use;
}

/* MAP: nothing but the pieces on their way, whatever the size of the weights. READ: a copy until they are on
 * the device. (The rows of logits that pass through the host take a few hundred kilobytes more.) */
TEST(device_loading, memory_of_the_host)
{
    device_begin();
    const int64_t mebibyte = 1 << 20;
    const char *wide = wide_checkpoint();
    const host_use map = measure(wide, QWEN36_WEIGHTS_MAP), copy = measure(wide, QWEN36_WEIGHTS_READ);
    const host_use small = measure(test_checkpoint("dense_untied"), QWEN36_WEIGHTS_MAP);
    CHECK(copy.weights > 40 * mebibyte);
    CHECK_MSG(map.most < 24 * mebibyte && map.most < small.most + 4 * mebibyte, "%" PRId64 " %" PRId64,
              map.most, small.most);
    CHECK_MSG(copy.most >= copy.weights && copy.most < map.most + copy.weights + 8 * mebibyte, "%" PRId64,
              copy.most);
    CHECK_MSG(copy.after < 4 * mebibyte && map.after < 4 * mebibyte, "%" PRId64 " %" PRId64, copy.after,
              map.after);
}

/* ---- progress ------------------------------------------------------------------------------------------ */

typedef struct watcher {
    int64_t calls, cancel_at;
    uint64_t done, total;
    bool disorder;
} watcher;

static int32_t watch(void *user, uint64_t done, uint64_t total)
{
    watcher *w = user;
    w->calls++;
    w->disorder |= done <= w->done || done > total || (w->total != 0 && total != w->total);
    w->disorder |= simt_current_device() != 0;
    w->done = done;
    w->total = total;
    return w->calls == w->cancel_at;
}

TEST(device_loading, progress)
{
    device_begin();
    const char *const configs[] = {"dense_tied", "dense_untied", "moe"};
    for (size_t i = 0; i < QW_COUNT_OF(configs); i++)
        for (int32_t access = QWEN36_WEIGHTS_MAP; access <= QWEN36_WEIGHTS_READ; access++) {
            watcher w = {0};
            qwen36_error error;
            qwen36_model *model = NULL;
            qwen36_model_options options = device_options();
            options.progress = watch;
            options.progress_user = &w;
            options.weights_access = access;
            options.device = 1;
            CHECK_INT(load(test_checkpoint(configs[i]), &options, &model, &error), QWEN36_OK);
            qwen36_model_info info = {.struct_size = sizeof info};
            CHECK_INT(qwen36_model_get_info(model, &info, NULL), QWEN36_OK);
            CHECK(w.calls > 10 && !w.disorder);
            CHECK_MSG(w.done == w.total && w.total == info.weight_bytes, "%s: %" PRIu64 " of %" PRIu64,
                      configs[i], w.done, w.total);
            qwen36_model_release(model);
            device_check_nothing_left();
        }
}

/* Each of the calls cancels once. */
TEST(device_loading, cancelled)
{
    device_begin();
    qwen36_model_options options = device_options();
    options.progress = watch;
    qwen36_status status = QWEN36_ERROR_CANCELLED;
    int64_t n = 0;
    while (status == QWEN36_ERROR_CANCELLED) {
        watcher w = {.cancel_at = ++n};
        qwen36_error error;
        qwen36_model *model = NULL;
        options.progress_user = &w;
        options.weights_access = n % 2 == 0 ? QWEN36_WEIGHTS_READ : QWEN36_WEIGHTS_MAP;
        status = load(test_checkpoint("dense_tied"), &options, &model, &error);
        if (status == QWEN36_ERROR_CANCELLED) {
            CHECK_INT(w.calls, n);
            CHECK_TEXT(error.message, "loading was cancelled by the progress callback");
            CHECK(model == NULL);
        }
        qwen36_model_release(model);
        device_check_nothing_left();
    }
    CHECK_INT(status, QWEN36_OK);
    CHECK(n > 10);
}
