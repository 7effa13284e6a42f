/* What the backend's host code relies on of runtime.h, and what it makes of its failures: a lost device stays
 * lost, an allocation that fails is told as such, a thread finds its device again. */
#include "tests/simt/ops.h"
#include "tests/simt/shim_kernels.h"

typedef struct qw_stream_state *stream;
qwen36_status qw_runtime_profile(int32_t device, qw_device_profile *out, qwen36_error *error);
qwen36_status qw_runtime_free_memory(int32_t device, uint64_t *bytes, qwen36_error *error);
int32_t qw_runtime_enter(int32_t device);
void qw_runtime_leave(int32_t before);
qwen36_status qw_runtime_stream_create(stream *out);
void qw_runtime_stream_destroy(stream stream);
qwen36_status qw_runtime_allocate(int32_t space, uint64_t bytes, void **out);
void qw_runtime_free(int32_t space, void *memory);
qwen36_status qw_runtime_copy(stream stream, void *to, const void *from, uint64_t bytes);
qwen36_status qw_runtime_wait(stream stream);

TEST(cuda_runtime, devices)
{
    qw_device_profile profile;
    uint64_t bytes;
    qwen36_error error = QWEN36_ERROR_INIT;
    CHECK_INT(qw_runtime_profile(1, &profile, &error), QWEN36_OK);
    CHECK_INT(profile.warp_width, simt_warp_width());
    simt_set_free_memory(12345);
    CHECK_INT(qw_runtime_free_memory(1, &bytes, &error), QWEN36_OK);
    CHECK_INT(bytes, 12345);
    simt_set_free_memory(0);
    CHECK_INT(qw_runtime_profile(2, &profile, &error), QWEN36_ERROR_DEVICE);
    CHECK_TEXT(error.message, "no CUDA device 2: there are 2");
    qw_error_clear(&error);
    simt_no_device(1);
    CHECK_INT(qw_runtime_profile(0, &profile, &error), QWEN36_ERROR_DEVICE);
    CHECK_TEXT(error.message, "no CUDA driver is installed");
    CHECK_INT(qw_runtime_free_memory(0, &bytes, NULL), QWEN36_ERROR_DEVICE);
    simt_no_device(0);
}

/* Work for a stream is issued from its own device, and a thread is put back on the one it had. */
TEST(cuda_runtime, enter_and_leave)
{
    stream other;
    simt_set_current_device(0);
    const int32_t before = qw_runtime_enter(1), inner = qw_runtime_enter(1);
    CHECK_INT(simt_current_device(), 1);
    CHECK_INT(qw_runtime_stream_create(&other), QWEN36_OK);
    CHECK_INT(qw_runtime_wait(other), QWEN36_OK);
    qw_runtime_leave(inner);
    CHECK_INT(simt_current_device(), 1);
    qw_runtime_leave(before);
    CHECK_INT(simt_current_device(), 0);
    CHECK_INT(qw_runtime_wait(other), QWEN36_ERROR_DEVICE_LOST);
    qw_runtime_leave(-1);
    CHECK_INT(simt_current_device(), 0);
    qw_runtime_stream_destroy(other);
}

TEST(cuda_runtime, lost_device_stays_lost)
{
    void *a, *b;
    char text[8] = "lost";
    CHECK_INT(qw_runtime_allocate(QW_SPACE_DEVICE, 8, &a), QWEN36_OK);
    simt_lose_device(2);
    CHECK_INT(qw_runtime_copy(NULL, a, text, 8), QWEN36_OK);
    CHECK_INT(qw_runtime_copy(NULL, a, "other", 6), QWEN36_ERROR_DEVICE_LOST);
    CHECK_TEXT((char *)a, "lost");
    CHECK_INT(qw_runtime_wait(NULL), QWEN36_ERROR_DEVICE_LOST);
    CHECK_INT(qw_runtime_allocate(QW_SPACE_HOST, 8, &b), QWEN36_ERROR_DEVICE_LOST);
    CHECK(b == NULL && !shim_right_warp_barrier());
    qw_runtime_free(QW_SPACE_DEVICE, a);
    CHECK_INT(simt_memory_outstanding(), 0);
    simt_revive_device();
    CHECK(shim_right_warp_barrier());
}

TEST(cuda_runtime, fault_of_a_kernel_loses_the_device)
{
    CHECK(!shim_fault_early_exit()); /* the one kind that the unchecked machine sees too */
    CHECK_INT(qw_runtime_wait(NULL), QWEN36_ERROR_DEVICE_LOST);
    CHECK(!shim_right_warp_barrier());
    simt_clear_fault();
    CHECK_INT(qw_runtime_wait(NULL), QWEN36_OK);
}

/* Opens a state with every part that there is. */
static qwen36_status open_all(qw_backend *backend, int32_t batch_invariant, int32_t tier)
{
    const qw_dims dims = {.hidden = 64, .layers = 2, .experts = 4, .top_k = 2, .vocab_size = 100};
    const qw_allocator allocator = qw_allocator_default();
    const qw_backend_config config = {.allocator = &allocator,
                                      .dims = &dims,
                                      .kv_dtype = QW_F32,
                                      .max_rows = 16,
                                      .max_segments = 2,
                                      .max_head_rows = 2,
                                      .max_context = 64,
                                      .device_tier = tier,
                                      .batch_invariant = batch_invariant};
    const qw_device_profile profile = profile_of(0);
    qwen36_error error = QWEN36_ERROR_INIT;
    const qwen36_status status = qw_cuda_create(&config, &profile, backend, &error);
    CHECK_INT(error.status, status);
    if (status == QWEN36_OK)
        qw_cuda_destroy(backend);
    CHECK_INT(simt_memory_outstanding(), 0);
    CHECK(backend->self == NULL);
    return status;
}

/* Each allocation and each call of an opening in its turn; the count of allocations. */
static int64_t fail_everywhere(int32_t batch_invariant, int32_t tier)
{
    qw_backend backend;
    qwen36_status status;
    int64_t allocations = 0, calls = 0;
    do {
        simt_fail_allocation(++allocations);
        status = open_all(&backend, batch_invariant, tier);
        CHECK(status == QWEN36_OK || status == QWEN36_ERROR_OUT_OF_MEMORY);
    } while (status != QWEN36_OK);
    simt_fail_allocation(0);
    do {
        simt_lose_device(++calls);
        status = open_all(&backend, batch_invariant, tier);
        CHECK(status == QWEN36_OK || status == QWEN36_ERROR_DEVICE_LOST);
        simt_revive_device();
    } while (status != QWEN36_OK);
    CHECK(calls > allocations);
    return allocations - 1;
}

/* The library's workspace is one of them, unless rows shall not depend on each other, or only the general
 * kernels are asked for. */
TEST(cuda_runtime, opening_fails_at_every_point)
{
    simt_library(1);
    const int64_t all = fail_everywhere(0, QWEN36_DEVICE_TIER_AUTO);
    CHECK_INT(fail_everywhere(1, QWEN36_DEVICE_TIER_AUTO), all - 1);
    CHECK_INT(fail_everywhere(0, QWEN36_DEVICE_TIER_GENERAL), all - 1);
    simt_library(0);
}
