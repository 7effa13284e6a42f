/* The CUDA backend: opening it on a device, and the table of its ops. Whatever is called through the table
 * runs with the backend's device current, and leaves the calling thread's device as it was. */
#include "kernels/cuda/cuda.h"

#include <stdio.h>

/* ---- the table -------------------------------------------------------------------------------------- */

/* The backend's device is current while this lives. */
struct device_scope {
    int32_t before;

    explicit device_scope(const qw_cuda *cuda) : before(qw_runtime_enter(cuda->config.device))
    {
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

static void destroy(qw_backend *backend)
{
    if (qw_cuda_of(backend) == nullptr)
        return;
    const device_scope scope(qw_cuda_of(backend));
    qw_cuda_destroy(backend);
}

static const qw_ops cuda_ops = {
    /* in the order of qw_ops: C++ before 2020 has no designators */
    on_device<qw_cuda_buffer_create>::call, on_device<qw_cuda_buffer_destroy>::call,
    on_device<qw_cuda_import>::call,        on_device<qw_cuda_step_begin>::call,
    on_device<qw_cuda_step_end>::call,      on_device<qw_cuda_pace_layer>::call,
    on_device<qw_cuda_read>::call,          on_device<qw_cuda_write>::call,
    on_device<qw_cuda_copy>::call,          on_device<qw_cuda_embed>::call,
    on_device<qw_cuda_norm>::call,          on_device<qw_cuda_linear>::call,
    on_device<qw_cuda_attn_prepare>::call,  on_device<qw_cuda_attention>::call,
    on_device<qw_cuda_conv>::call,          on_device<qw_cuda_delta>::call,
    on_device<qw_cuda_gated_norm>::call,    on_device<qw_cuda_route>::call,
    on_device<qw_cuda_experts>::call,       on_device<qw_cuda_mlp>::call,
    on_device<qw_cuda_head>::call,          on_device<qw_cuda_logprob>::call,
    on_device<qw_cuda_sample>::call,        destroy,
};

/* ---- opening ---------------------------------------------------------------------------------------- */

/* Float32 rows only, where float32 was asked for. */
static void restrict_profile(const qw_backend_config *config, qw_device_profile *profile)
{
    if (config->numerics == QWEN36_NUMERICS_REFERENCE || config->device_tier == QWEN36_DEVICE_TIER_GENERAL)
        profile->matrix_bf16 = 0;
}

static void name_backend(const qw_cuda *cuda, qw_backend *out)
{
    const char *tier = cuda->profile.matrix_bf16 != 0 ? "matrix" : "general";
    const char *numerics = cuda->config.numerics == QWEN36_NUMERICS_FAST ? "fast" : "reference";
    snprintf(out->name, sizeof out->name, "cuda/sm%d/%s/%s%s", cuda->profile.capability, tier, numerics,
             cuda->config.batch_invariant != 0 ? "/bi" : "");
}

static qwen36_status open_on(const qw_backend_config *config, qw_backend *out, qwen36_error *error)
{
    qw_device_profile profile;
    qwen36_status status = qw_runtime_profile(config->device, &profile, error);
    if (status != QWEN36_OK)
        return status;
    restrict_profile(config, &profile);
    status = qw_cuda_create(config, &profile, out, error);
    if (status != QWEN36_OK)
        return status;
    const qw_cuda *cuda = qw_cuda_of(out);
    out->ops = &cuda_ops;
    out->space = QW_SPACE_DEVICE;
    out->threads = config->threads;
    out->scratch_bytes = cuda->scratch_bytes;
    name_backend(cuda, out);
    return QWEN36_OK;
}

qwen36_status qw_cuda_backend_open(const qw_backend_config *config, qw_backend *out, qwen36_error *error)
{
    *out = {};
    const int32_t before = qw_runtime_enter(config->device);
    const qwen36_status status = open_on(config, out, error);
    qw_runtime_leave(before);
    return status;
}
