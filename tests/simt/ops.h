/* What the tests of CUDA operations share: a pair of backends, one of them on the SIMT machine or on a GPU
 * (tests/cuda/device.cu), with a device profile that decides which rows of the tables serve; material;
 * comparison. */
#ifndef QW_TESTS_SIMT_OPS_H
#define QW_TESTS_SIMT_OPS_H

#include "lib/plan/plan.h"
#include "tests/mixing.h"
#include "tests/simt/simt.h"
#include "tests/simt/simt_memory.h"

qwen36_status qw_cuda_create(const qw_backend_config *config, const qw_device_profile *profile,
                             qw_backend *out, qwen36_error *error);
void qw_cuda_destroy(qw_backend *backend);
qwen36_status qw_cuda_probe(void *self);
uint32_t qw_cuda_disabled(const qw_backend *backend);
uint64_t qw_cuda_refusals(const qw_backend *backend);
qwen36_status qw_cuda_step_begin(qw_backend *, const qw_batch *);
qwen36_status qw_cuda_step_end(qw_backend *);
qwen36_status qw_cuda_embed(qw_backend *, const qw_embed_args *);
qwen36_status qw_cuda_norm(qw_backend *, const qw_norm_args *);
qwen36_status qw_cuda_linear(qw_backend *, const qw_linear_args *);
qwen36_status qw_cuda_attn_prepare(qw_backend *, const qw_attn_prepare_args *);
qwen36_status qw_cuda_attention(qw_backend *, const qw_attention_args *);
qwen36_status qw_cuda_conv(qw_backend *, const qw_conv_args *);
qwen36_status qw_cuda_delta(qw_backend *, const qw_delta_args *);
qwen36_status qw_cuda_gated_norm(qw_backend *, const qw_gated_norm_args *);
qwen36_status qw_cuda_route(qw_backend *, const qw_route_args *);
qwen36_status qw_cuda_experts(qw_backend *, const qw_experts_args *);
qwen36_status qw_cuda_mlp(qw_backend *, const qw_mlp_args *);
qwen36_status qw_cuda_head(qw_backend *, const qw_head_args *);
qwen36_status qw_cuda_logprob(qw_backend *, const qw_logprob_args *);
qwen36_status qw_cuda_sample(qw_backend *, qw_sample_args *);

/* Device 0 serves by general rows alone; device 1 has matrix units (only where warps have 32 lanes). */
static inline int32_t devices(void)
{
    return simt_profiles();
}

static inline qw_device_profile profile_of(int32_t device)
{
    qw_device_profile profile;
    simt_profile(device, &profile);
    return profile;
}

typedef struct pair {
    qw_dims dims;
    qw_allocator allocator;
    qw_backend cuda, judge;
} pair;

/* What most tests leave as it is. */
typedef struct pair_options {
    int32_t batch_invariant, device_tier;
    const qw_log *log;
} pair_options;

static inline void pair_open_as(pair *p, const qw_dims *dims, int32_t device, int32_t rows, int32_t context,
                                int32_t kv_dtype, pair_options options)
{
    p->dims = *dims;
    p->allocator = qw_allocator_default();
    const qw_backend_config config = {.allocator = &p->allocator,
                                      .dims = &p->dims,
                                      .kv_dtype = kv_dtype,
                                      .threads = 1,
                                      .max_rows = rows,
                                      .max_segments = 8,
                                      .max_head_rows = rows,
                                      .max_context = context,
                                      .log = options.log,
                                      .device_tier = options.device_tier,
                                      .batch_invariant = options.batch_invariant};
    const qw_device_profile profile = profile_of(device);
    qwen36_error error = QWEN36_ERROR_INIT;
    simt_clear_fault();
    CHECK_MSG(qw_cuda_create(&config, &profile, &p->cuda, &error) == QWEN36_OK, "%s", error.message);
    CHECK_INT(qw_reference_backend_open(&config, &p->judge, &error), QWEN36_OK);
}

static inline void pair_open(pair *p, const qw_dims *dims, int32_t device, int32_t rows, int32_t context,
                             int32_t kv_dtype)
{
    pair_open_as(p, dims, device, rows, context, kv_dtype, (pair_options){0});
}

static inline void pair_close(pair *p)
{
    qw_cuda_destroy(&p->cuda);
    p->judge.ops->destroy(&p->judge);
    CHECK_INT(simt_memory_outstanding(), 0);
    CHECK_INT(simt_memory_broken(), 0);
}

/* A fault looks like a refused launch, for which another row of the table may have served. */
#define CHECK_RAN(status)                                                                                    \
    do {                                                                                                     \
        const qwen36_status ran_ = (status);                                                                 \
        CHECK_MSG(ran_ == QWEN36_OK && simt_fault()[0] == 0, "status %d, fault: %s", ran_, simt_fault());    \
    } while (0)

/* Where no fault and no refusal can be planted, on a real device, tests that need them are skipped. */
#define NEEDS_PLANTING()                                                                                     \
    do {                                                                                                     \
        if (!simt_plants())                                                                                  \
            test_skip("a real device does not fail when asked to");                                          \
    } while (0)

/* ---- arrays, which kernels and the host both reach --------------------------------------------------- */

/* Zeros; 64-byte aligned. */
static inline void *array_of(size_t bytes)
{
    void *array = simt_array_create(bytes);
    CHECK(array != NULL);
    memset(array, 0, bytes);
    return array;
}

static inline void drop(void *array)
{
    simt_array_destroy(array);
}

static inline int32_t *ints(size_t count)
{
    return array_of(count * sizeof(int32_t));
}

/* Random float32 in [-1, 1), and the same stored in another format; 64-byte aligned. `skew` elements lie
 * before. */
static inline void *numbers(int32_t dtype, size_t count, uint64_t seed, size_t skew)
{
    float *x = mix_random(count, seed);
    const size_t size = (size_t)qw_dtype_size(dtype);
    char *out = (char *)array_of((count + skew) * size) + skew * size;
    for (size_t i = 0; i < count; i++) {
        uint32_t bits;
        memcpy(&bits, &x[i], 4);
        const uint16_t bf16 = (uint16_t)(bits >> 16);
        const uint16_t f16 =
            (bits >> 23 & 255) < 113
                ? 0
                : (uint16_t)((bits >> 16 & 0x8000) | ((bits >> 23 & 255) - 112) << 10 | (bits >> 13 & 1023));
        if (dtype == QW_F32)
            memcpy(out + i * size, &x[i], size);
        else
            memcpy(out + i * size, dtype == QW_BF16 ? &bf16 : &f16, size);
    }
    free(x);
    return out;
}

static inline float *floats(size_t count, uint64_t seed)
{
    return numbers(QW_F32, count, seed, 0);
}

static inline float *blank(size_t count)
{
    float *x = array_of(count * sizeof *x);
    for (size_t i = 0; i < count; i++)
        x[i] = NAN;
    return x;
}

static inline void check_close(const float *actual, const float *expected, size_t count, double bound,
                               const char *what)
{
    const double distance = mix_distance(actual, expected, count);
    CHECK_MSG(distance <= bound, "%s: distance %g, bound %g", what, distance, bound);
}

#endif
