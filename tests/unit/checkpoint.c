#define _GNU_SOURCE
#include "tests/unit/checkpoint.h"
#include "tests/harness.h"

#include <cjson/cJSON.h>
#include <math.h>
#include <sys/stat.h>
#include <unistd.h>

static const char *build_directory(void)
{
    const char *build = getenv("QWEN36_BUILD");
    return build != NULL ? build : QW_TEST_BUILD;
}

/* Made under a name of this process and renamed, so that tests may run side by side. */
static void make_checkpoint(const char *config, const char *directory, const char *options)
{
    char command[1000], temporary[300];
    snprintf(temporary, sizeof temporary, "%s.%ld", directory, (long)getpid());
    snprintf(command, sizeof command, "%s/examples/make-model --config %s --seed 7 %s -o %s >/dev/null",
             build_directory(), config, options, temporary);
    CHECK_MSG(system(command) == 0, "%s", command);
    if (rename(temporary, directory) != 0) {
        CHECK_MSG(access(directory, R_OK) == 0, "%s", directory);
        snprintf(command, sizeof command, "rm -rf %s", temporary);
        CHECK(system(command) == 0);
    }
}

const char *test_checkpoint_variant(const char *name, const char *variant, const char *options)
{
    static char directory[256];
    char config[256];
    mkdir("build", 0777);
    mkdir("build/checkpoints", 0777);
    snprintf(directory, sizeof directory, "build/checkpoints/%s%s", name, variant);
    snprintf(config, sizeof config, "tests/golden/configs/%s.json", name);
    if (access(directory, R_OK) != 0)
        make_checkpoint(config, directory, options);
    return directory;
}

const char *test_checkpoint(const char *name)
{
    return test_checkpoint_variant(name, "", "");
}

/* ---- golden data --------------------------------------------------------------------------------------- */

static const void *find(const cJSON *header, const char *data, const char *name, int rank, int32_t *shape)
{
    const cJSON *entry = cJSON_GetObjectItemCaseSensitive(header, name);
    const cJSON *dims = cJSON_GetObjectItemCaseSensitive(entry, "shape");
    CHECK_MSG(cJSON_GetArraySize(dims) == rank, "%s", name);
    for (int i = 0; i < rank; i++)
        shape[i] = cJSON_GetArrayItem(dims, i)->valueint;
    const cJSON *offsets = cJSON_GetObjectItemCaseSensitive(entry, "data_offsets");
    return data + (size_t)cJSON_GetArrayItem(offsets, 0)->valuedouble;
}

test_golden test_golden_load(const char *name)
{
    test_golden golden = {0};
    char path[256];
    size_t size = 0;
    uint64_t header_size = 0;
    int32_t shape[3];
    snprintf(path, sizeof path, "tests/golden/%s.golden", name);
    char *file = test_read_file(path, &size);
    CHECK_MSG(file != NULL && size > 8, "%s", path);
    golden.memory = file;
    memcpy(&header_size, file, 8);
    cJSON *header = cJSON_ParseWithLength(file + 8, header_size);
    CHECK(header != NULL);
    const char *data = file + 8 + header_size;
    golden.tokens = find(header, data, "tokens", 1, &golden.count);
    golden.position = find(header, data, "positions", 1, &golden.positions);
    golden.logits = find(header, data, "logits", 2, shape);
    CHECK_INT(shape[0], golden.count);
    golden.vocab_size = shape[1];
    golden.layer_rows = find(header, data, "layers", 3, shape);
    golden.layers = shape[0];
    CHECK_INT(shape[1], golden.positions);
    golden.hidden = shape[2];
    cJSON_Delete(header);
    return golden;
}

void test_golden_free(test_golden *golden)
{
    free(golden->memory);
    *golden = (test_golden){0};
}

double test_deviation(const float *a, const float *b, int64_t count)
{
    double difference = 0, largest = 0;
    for (int64_t i = 0; i < count; i++) {
        double d = fabs((double)a[i] - (double)b[i]);
        if (!(d <= difference)) /* a NaN shows */
            difference = d;
        largest = fmax(largest, fabs((double)b[i]));
    }
    return difference / largest;
}

/* ---- models and sessions ------------------------------------------------------------------------------- */

qwen36_model_options test_model_options(void)
{
    qwen36_model_options options;
    qwen36_model_options_init(&options, sizeof options);
    options.numerics = QWEN36_NUMERICS_REFERENCE;
    options.context_length = 320;
    options.max_batch_tokens = 320;
    options.threads = 1;
    return options;
}

qwen36_model *test_model(const char *directory, const qwen36_model_options *options)
{
    qwen36_error error = QWEN36_ERROR_INIT;
    qwen36_model *model = NULL;
    qwen36_status status = qwen36_model_load(directory, options, &model, &error);
    CHECK_MSG(status == QWEN36_OK, "%s: %s: %s", directory, qwen36_status_name(status), error.message);
    return model;
}

qwen36_session *test_session(qwen36_model *model)
{
    qwen36_error error = QWEN36_ERROR_INIT;
    qwen36_session *session = NULL;
    qwen36_status status = qwen36_session_create(model, NULL, &session, &error);
    CHECK_MSG(status == QWEN36_OK, "%s", error.message);
    return session;
}

void test_compute(qwen36_session *session)
{
    qwen36_error error = QWEN36_ERROR_INIT;
    qwen36_status status;
    do {
        status = qwen36_step(&session, 1, NULL, NULL, &error);
    } while (status == QWEN36_PENDING);
    CHECK_MSG(status == QWEN36_OK, "%s", error.message);
}

int32_t test_tiers(int32_t tiers[4])
{
    int32_t count = 0;
    if (strcmp(qwen36_backend_name(), "cpu") != 0) {
        tiers[0] = QWEN36_CPU_AUTO;
        return 1;
    }
    tiers[count++] = QWEN36_CPU_PORTABLE;
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
        tiers[count++] = QWEN36_CPU_AVX2;
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl"))
        tiers[count++] = QWEN36_CPU_AVX512;
#endif
    return count;
}

bool test_is_slow_backend(void)
{
    return strstr(QW_TEST_BUILD, "simt") != NULL;
}

size_t test_stride(void)
{
    return test_is_slow_backend() ? 3 : 1;
}
