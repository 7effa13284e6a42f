/* The CUDA backend: opening it on a device, and the table of its ops. Whatever is called through the table
 * runs with the backend's device current, and leaves the calling thread's device as it was. */
#include "kernels/cuda/cuda.h"

#include <stdio.h>

/* ---- the table -------------------------------------------------------------------------------------- */

/* The backend's device is current while this lives. */
struct device_scope {
    int32_t before;

    explicit device_scope(qw_cuda *cuda) : before(qw_runtime_enter(cuda->config.device))
    {
        cuda->outside = before;
    }
    device_scope(const device_scope &) = delete;
    ~device_scope()
    {
        qw_runtime_leave(before);
    }
};

/* on_device<qw_cuda_norm>::call is qw_cuda_norm with the device entered. */
template <auto operation> struct on_device;
template <typename R, typename... A, R (*operation)(qw_backend *, A...)> struct on_device<operation> {
    static R call(qw_backend *backend, A... arguments)
    {
        const device_scope scope(qw_cuda_of(backend));
        return operation(backend, arguments...);
    }
};

/* How attention cuts a context: by the number of multiprocessors, or (+bi) into so many KV blocks. */
static void name_cut(const qw_cuda *cuda, char *out, size_t size)
{
    const bool invariant = cuda->config.batch_invariant != 0;
    snprintf(out, size, invariant ? "+bi%d" : "x%d",
             invariant ? static_cast<int>(qw_plan_attention_fixed(cuda->config.max_context))
                       : cuda->profile.multiprocessors);
}

/* Says all that changes the bits of results: it is part of the numerics id. */
static void name_backend(const qw_cuda *cuda, qw_backend *out)
{
    char cut[16], library[16] = "", disabled[12] = "";
    name_cut(cuda, cut, sizeof cut);
    if (cuda->profile.library != 0)
        snprintf(library, sizeof library, "+lt%u", static_cast<unsigned>(qw_blas_version(cuda->blas)));
    if (cuda->profile.disabled != 0)
        snprintf(disabled, sizeof disabled, "-%x", static_cast<unsigned>(cuda->profile.disabled));
    snprintf(out->name, sizeof out->name, "cuda/sm%d%s%s%s/%s", cuda->profile.capability, cut, library,
             disabled, cuda->config.numerics == QWEN36_NUMERICS_FAST ? "fast" : "reference");
}

/* A row that was refused since the last step changes the bits from now on. */
static qwen36_status step_end(qw_backend *backend)
{
    qw_cuda *cuda = qw_cuda_of(backend);
    const qwen36_status status = qw_cuda_step_end(backend);
    if (cuda->named_for != cuda->profile.disabled) {
        cuda->named_for = cuda->profile.disabled;
        backend->revision++;
        name_backend(cuda, backend);
    }
    return status;
}

static void destroy(qw_backend *backend)
{
    if (qw_cuda_of(backend) == nullptr)
        return;
    const device_scope scope(qw_cuda_of(backend));
    qw_cuda_destroy(backend);
}

static const qw_ops cuda_ops = {
    /* in the order of qw_ops: C++ before 2020 has no designators */
    on_device<qw_cuda_buffer_create>::call,
    on_device<qw_cuda_buffer_destroy>::call,
    on_device<qw_cuda_import>::call,
    on_device<qw_cuda_step_begin>::call,
    on_device<step_end>::call,
    on_device<qw_cuda_pace_layer>::call,
    on_device<qw_cuda_read>::call,
    on_device<qw_cuda_write>::call,
    on_device<qw_cuda_copy>::call,
    on_device<qw_cuda_embed>::call,
    on_device<qw_cuda_norm>::call,
    on_device<qw_cuda_linear>::call,
    on_device<qw_cuda_attn_prepare>::call,
    on_device<qw_cuda_attention>::call,
    on_device<qw_cuda_conv>::call,
    on_device<qw_cuda_delta>::call,
    on_device<qw_cuda_gated_norm>::call,
    on_device<qw_cuda_route>::call,
    on_device<qw_cuda_experts>::call,
    on_device<qw_cuda_mlp>::call,
    on_device<qw_cuda_head>::call,
    on_device<qw_cuda_logprob>::call,
    on_device<qw_cuda_sample>::call,
    destroy,
};

/* ---- opening ---------------------------------------------------------------------------------------- */

/* The special rows round activations: where float32 was asked for, the general ones serve. */
static qw_backend_config tier_of(const qw_backend_config *config)
{
    qw_backend_config adopted = *config;
    if (config->numerics == QWEN36_NUMERICS_REFERENCE)
        adopted.device_tier = QWEN36_DEVICE_TIER_GENERAL;
    return adopted;
}

/* The bytes free are told because that is what a check that finds no memory lacks. */
static qwen36_status fail_check(const qw_backend_config *config, qwen36_status status, qwen36_error *error)
{
    uint64_t left = 0;
    if (status != QWEN36_ERROR_OUT_OF_MEMORY)
        return qw_fail(error, status, "device %d fails the check of its kernels", config->device);
    qw_runtime_free_memory(config->device, &left, nullptr);
    return qw_fail(error, status,
                   "no memory for the check of kernels: device %d has %llu bytes free, %llu are the model's",
                   config->device, static_cast<unsigned long long>(left),
                   static_cast<unsigned long long>(config->device_bytes));
}

/* `outside`: the thread's own device. */
static qwen36_status open_on(const qw_backend_config *config, int32_t outside, qw_backend *out,
                             qwen36_error *error)
{
    qw_device_profile profile;
    qwen36_status status = qw_runtime_profile(config->device, &profile, error);
    if (status != QWEN36_OK)
        return status;
    const qw_backend_config adopted = tier_of(config);
    status = qw_cuda_create(&adopted, &profile, out, error);
    if (status != QWEN36_OK)
        return status;
    qw_cuda *cuda = qw_cuda_of(out);
    cuda->outside = outside;
    status = qw_cuda_probe(cuda);
    if (status != QWEN36_OK) {
        qw_cuda_destroy(out);
        return fail_check(config, status, error);
    }
    out->ops = &cuda_ops;
    out->space = QW_SPACE_DEVICE;
    out->threads = config->threads;
    out->scratch_bytes = cuda->scratch_bytes;
    cuda->named_for = cuda->profile.disabled;
    name_backend(cuda, out);
    return QWEN36_OK;
}

qwen36_status qw_cuda_backend_open(const qw_backend_config *config, qw_backend *out, qwen36_error *error)
{
    *out = {};
    const int32_t before = qw_runtime_enter(config->device);
    const qwen36_status status = open_on(config, before, out, error);
    qw_runtime_leave(before);
    return status;
}
