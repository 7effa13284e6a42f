/* Opening a model on a device: which one, with which kernels, and what is said where there is none. */
#include "lib/plan/plan.h"
#include "tests/cuda/device.h"

static const char *const CONFIGS[] = {"dense_tied", "moe"};

/* ---- no device --------------------------------------------------------------------------------------------
 */

/* The load fails with DEVICE and this one line, and leaves nothing. */
static void check_refused(const qwen36_model_options *options, const char *line)
{
    qwen36_error error = QWEN36_ERROR_INIT;
    qwen36_model *model = (qwen36_model *)&error;
    CHECK_INT(qwen36_model_load(test_checkpoint("dense_tied"), options, &model, &error), QWEN36_ERROR_DEVICE);
    CHECK(model == NULL);
    CHECK_INT(error.status, QWEN36_ERROR_DEVICE);
    CHECK_TEXT(error.message, line);
    device_check_nothing_left();
}

static qwen36_status estimate(const qwen36_model_options *options, qwen36_memory_estimate *e,
                              qwen36_error *error)
{
    *e = (qwen36_memory_estimate){.struct_size = sizeof *e};
    *error = (qwen36_error)QWEN36_ERROR_INIT;
    return qwen36_memory_estimate_read(test_checkpoint("dense_tied"), options, e, error);
}

TEST(device_open, no_driver)
{
    device_begin();
    qwen36_model_options options = device_options();
    qwen36_memory_estimate with, without;
    qwen36_error error;
    CHECK_INT(estimate(&options, &with, &error), QWEN36_OK);
    simt_set_free_memory((uint64_t)512 << 20);
    simt_no_device(1);
    check_refused(&options, "no CUDA driver is installed");
    CHECK_INT(estimate(&options, &without, &error), QWEN36_OK);
    CHECK(memcmp(&with, &without, sizeof with) == 0 && with.total_bytes > with.weight_bytes);
    options.memory_share = 0.5F;
    CHECK_INT(estimate(&options, &without, &error), QWEN36_ERROR_DEVICE);
    CHECK_TEXT(error.message, "no CUDA driver is installed");
    CHECK_INT(without.total_bytes, 0);
    check_refused(&options, "no CUDA driver is installed");
    simt_no_device(0); /* the process goes on: the driver came back */
    CHECK_INT(estimate(&options, &with, &error), QWEN36_OK);
    qwen36_model_release(test_model(test_checkpoint("dense_tied"), &options));
    device_check_nothing_left();
}

TEST(device_open, index_beyond_the_devices)
{
    device_begin();
    qwen36_model_options options = device_options();
    options.device = SIMT_DEVICES;
    check_refused(&options, "no CUDA device 2: there are 2");
    CHECK_INT(simt_current_device(), 0);
    options.device = 1;
    qwen36_model_release(test_model(test_checkpoint("dense_tied"), &options));
    CHECK_INT(simt_current_device(), 0);
    device_check_nothing_left();
}

/* A share is of what is free on the device beside all else that the model takes. */
TEST(device_open, share_of_the_memory)
{
    device_begin();
    qwen36_model_options options = device_options();
    qwen36_memory_estimate all, half;
    qwen36_error error;
    simt_set_free_memory((uint64_t)512 << 20);
    options.memory_share = 0.5F;
    CHECK_INT(estimate(&options, &half, &error), QWEN36_OK);
    options.memory_share = 1;
    CHECK_INT(estimate(&options, &all, &error), QWEN36_OK);
    const uint64_t cache = all.cache_bytes + all.state_bytes,
                   half_cache = half.cache_bytes + half.state_bytes;
    CHECK(all.weight_bytes + all.workspace_bytes + cache <= (uint64_t)512 << 20);
    CHECK(cache > (uint64_t)256 << 20);
    uint64_t room = 0; /* without what the device needs besides */
    CHECK_INT(qw_backend_free_bytes(0, &room, NULL), QWEN36_OK);
    CHECK(all.weight_bytes + all.workspace_bytes + cache <= room);
    CHECK(half_cache <= cache / 2 + ((uint64_t)1 << 20) && half_cache > cache / 2 - ((uint64_t)1 << 20));
    /* All of it fits: something is left for what is beside the cache. */
    qwen36_model_release(test_model(test_checkpoint("dense_tied"), &options));
    simt_set_free_memory(all.weight_bytes / 2);
    CHECK(estimate(&options, &half, &error) != QWEN36_OK && error.message[0] != '\0');
    device_check_nothing_left();
}

/* ---- the options reach the backend --------------------------------------------------------------------- */

/* `name` with % in place of what is out of use where only the general kernels serve: the rows with matrix
 * instructions, and a library's if there is one. */
static void check_name(const char *config, const qwen36_model_options *options, const char *name)
{
    char expected[64];
    qwen36_model *model = test_model(test_checkpoint(config), options);
    snprintf(expected, sizeof expected, "%s", name);
    const char *place = strchr(name, '%');
    if (place != NULL)
        snprintf(expected, sizeof expected, "%.*s%x%s", (int)(place - name), name,
                 (unsigned)qw_plan_special_rows(), place + 1);
    CHECK_TEXT(model->backend.name, expected);
    CHECK_INT(model->backend.space, QW_SPACE_DEVICE);
    qwen36_session *session = device_prefilled(model, 70);
    free(device_logits(session));
    qwen36_session_destroy(session);
    CHECK_TEXT(model->backend.name, expected); /* no row was refused on the way */
    qwen36_model_release(model);
    device_check_nothing_left();
}

TEST(device_open, options_reach_the_backend)
{
    device_begin();
    for (size_t i = 0; i < QW_COUNT_OF(CONFIGS); i++) {
        qwen36_model_options options = device_options();
        check_name(CONFIGS[i], &options, "cuda/sm80x108/fast");
        simt_library(1);
        check_name(CONFIGS[i], &options, "cuda/sm80x108+lt1/fast");
        options.batch_invariant = 1;
        check_name(CONFIGS[i], &options, "cuda/sm80+bi8/fast");
        options.device_tier = QWEN36_DEVICE_TIER_GENERAL;
        check_name(CONFIGS[i], &options, "cuda/sm80+bi8-%/fast");
        options.batch_invariant = 0;
        check_name(CONFIGS[i], &options, "cuda/sm80x108-%/fast");
        options.numerics = QWEN36_NUMERICS_REFERENCE;
        check_name(CONFIGS[i], &options, "cuda/sm80x108-%/reference");
        options.device_tier = QWEN36_DEVICE_TIER_AUTO;
        check_name(CONFIGS[i], &options, "cuda/sm80x108-%/reference");
        simt_library(0);
    }
}

/* The longest name there is has room: it is part of the numerics id. */
TEST(device_open, the_longest_name)
{
    device_begin();
    const qw_device_profile profile = {.capability = 120,
                                       .multiprocessors = 170,
                                       .warp_width = 32,
                                       .matrix_bf16 = 1,
                                       .async_copy = 1,
                                       .shared_bytes = 99 * 1024,
                                       .l2_bytes = 96 << 20,
                                       .bandwidth = 1800000000000};
    qwen36_model_options options = device_options();
    options.numerics = QWEN36_NUMERICS_REFERENCE;
    options.batch_invariant = 1;
    simt_set_profile(&profile);
    check_name("dense_tied", &options, "cuda/sm120+bi8-%/reference");
    simt_set_profile(NULL);
}

/* Matrix instructions that compute something else are found by the check, told once for each row, and not
 * used. */
static void count_lines(void *user, int32_t level, const char *message)
{
    int32_t *lines = user;
    lines[level == QWEN36_LOG_WARNING && strstr(message, "is out of use on this device") != NULL]++;
}

TEST(device_open, a_device_that_computes_otherwise)
{
    device_begin();
    int32_t lines[2] = {0};
    qwen36_model_options options = device_options();
    options.log = count_lines;
    options.log_user = lines;
    simt_spoil_matrix(1);
    check_name("moe", &options, "cuda/sm80x108-30204/fast");
    simt_spoil_matrix(0);
    CHECK_INT(lines[1], 4);
}

/* Warps of another width than the kernels were compiled for. */
TEST(device_open, a_device_of_another_kind)
{
    device_begin();
    const qw_device_profile profile = {.capability = 70, .multiprocessors = 16, .warp_width = 64};
    qwen36_model_options options = device_options();
    simt_set_profile(&profile);
    check_refused(&options, "the device has warps of 64 lanes, this build is for 32");
    simt_set_profile(NULL);
}
