/* The CPU backend: opening, memory, and the table of its ops. Memory is the host's own: buffers are
 * allocated through the caller's hooks, imports are aliases, and every op has finished when it returns. */
#include "kernels/cpu/cpu.h"

#include <stdio.h>
#include <string.h>

/* ---- memory -------------------------------------------------------------------------------------- */

static qwen36_status buffer_create(qw_backend *backend, uint64_t bytes, int32_t space, qw_buffer *out)
{
    *out = (qw_buffer){NULL, bytes, space, 1};
    out->base = qw_alloc_raw(qw_cpu_of(backend)->allocator, bytes, 1);
    return out->base == NULL ? QWEN36_ERROR_OUT_OF_MEMORY : QWEN36_OK;
}

static void buffer_destroy(qw_backend *backend, qw_buffer *buffer)
{
    if (buffer->owned != 0)
        qw_free(qw_cpu_of(backend)->allocator, buffer->base);
    *buffer = (qw_buffer){NULL, 0, 0, 0};
}

static qwen36_status import(qw_backend *backend, const void *host, uint64_t bytes, qw_buffer *out)
{
    (void)backend;
    *out = (qw_buffer){NULL, bytes, QW_SPACE_HOST, 0};
    memcpy(&out->base, &host, sizeof host); /* weights are only read; a buffer has no const form */
    return QWEN36_OK;
}

static qwen36_status read_buffer(qw_backend *backend, const qw_buffer *buffer, uint64_t offset, void *host,
                                 uint64_t bytes)
{
    (void)backend;
    memcpy(host, (const char *)buffer->base + offset, bytes);
    return QWEN36_OK;
}

static qwen36_status write_buffer(qw_backend *backend, const qw_buffer *buffer, uint64_t offset,
                                  const void *host, uint64_t bytes)
{
    (void)backend;
    memcpy((char *)buffer->base + offset, host, bytes);
    return QWEN36_OK;
}

static qwen36_status copy(qw_backend *backend, const qw_copy_args *args)
{
    (void)backend;
    char *base = args->buffer->base;
    for (int32_t i = 0; i < args->count; i++)
        memcpy(base + args->copy[i].to, base + args->copy[i].from, args->copy[i].bytes);
    return QWEN36_OK;
}

static qwen36_status step_begin(qw_backend *backend, const qw_batch *batch)
{
    (void)backend;
    (void)batch;
    return QWEN36_OK;
}

static qwen36_status step_end(qw_backend *backend)
{
    (void)backend;
    return QWEN36_OK;
}

/* Every operation has finished when it returns. */
static qwen36_status pace(qw_backend *backend)
{
    (void)backend;
    return QWEN36_OK;
}

static void destroy(qw_backend *backend)
{
    qw_cpu *cpu = backend->self;
    if (cpu == NULL)
        return;
    qw_pool_destroy(cpu->pool);
    qw_free(cpu->allocator, cpu->scratch);
    qw_free(cpu->allocator, cpu);
    *backend = (qw_backend){0};
}

/* ---- the tables ------------------------------------------------------------------------------------ */

static const qw_ops cpu_ops = {
    .buffer_create = buffer_create,
    .buffer_destroy = buffer_destroy,
    .import = import,
    .step_begin = step_begin,
    .step_end = step_end,
    .pace = pace,
    .read = read_buffer,
    .write = write_buffer,
    .copy = copy,
    .embed = qw_cpu_embed,
    .norm = qw_cpu_norm,
    .linear = qw_cpu_linear,
    .attn_prepare = qw_cpu_attn_prepare,
    .attention = qw_cpu_attention,
    .conv = qw_cpu_conv,
    .delta = qw_cpu_delta,
    .gated_norm = qw_cpu_gated_norm,
    .route = qw_cpu_route,
    .experts = qw_cpu_experts,
    .mlp = qw_cpu_mlp,
    .head = qw_cpu_head,
    .logprob = qw_cpu_logprob,
    .sample = qw_cpu_sample,
    .destroy = destroy,
};

static uint64_t (*const scratch_needs[])(const qw_backend_config *) = {
    qw_cpu_norm_scratch_bytes,       qw_cpu_linear_scratch_bytes, qw_cpu_attn_prepare_scratch_bytes,
    qw_cpu_attention_scratch_bytes,  qw_cpu_conv_scratch_bytes,   qw_cpu_delta_scratch_bytes,
    qw_cpu_gated_norm_scratch_bytes, qw_cpu_route_scratch_bytes,  qw_cpu_experts_scratch_bytes,
    qw_cpu_mlp_scratch_bytes,        qw_cpu_head_scratch_bytes,   qw_cpu_logprob_scratch_bytes,
    qw_cpu_sample_scratch_bytes,
};

uint64_t qw_cpu_backend_scratch_bytes(const qw_backend_config *config)
{
    uint64_t most = QW_ALIGNMENT;
    for (size_t i = 0; i < QW_COUNT_OF(scratch_needs); i++)
        most = QW_MAX(most, scratch_needs[i](config));
    return most;
}

/* ---- opening --------------------------------------------------------------------------------------- */

static const char *tier_name(int32_t tier)
{
    switch (tier) {
    case QWEN36_CPU_PORTABLE:
        return "portable";
    case QWEN36_CPU_AVX2:
        return "avx2";
    case QWEN36_CPU_AVX512:
        return "avx512";
    default:
        return "unknown";
    }
}

/* BF16 products belong to the AVX-512 family: FAST numerics use them where the processor has them. */
static qw_dot_fn *choose_bf16_dot(const qw_backend_config *config, const qw_cpu_kernels *kernels)
{
#if defined(QW_HAVE_AVX512BF16)
    if (config->numerics == QWEN36_NUMERICS_FAST && kernels->tier == QWEN36_CPU_AVX512 &&
        qw_cpu_has_bf16_dot())
        return qw_dot_bf16_avx512bf16;
#endif
    (void)config;
    (void)kernels;
    return NULL;
}

static qwen36_status open_parts(qw_cpu *cpu, const qw_backend_config *config, qwen36_error *error)
{
    cpu->dot_bf16 = choose_bf16_dot(config, cpu->kernels);
    cpu->scratch_bytes = qw_cpu_backend_scratch_bytes(config);
    cpu->scratch = qw_alloc_raw(cpu->allocator, cpu->scratch_bytes, 1);
    if (cpu->scratch == NULL)
        return qw_fail_memory(error, cpu->scratch_bytes);
    return qw_pool_create(cpu->allocator, config->threads, &cpu->pool, error);
}

qwen36_status qw_cpu_backend_open(const qw_backend_config *config, qw_backend *out, qwen36_error *error)
{
    *out = (qw_backend){0};
    if (config->device != 0)
        return qw_fail(error, QWEN36_ERROR_DEVICE, "there is no device %d: the processor is device 0",
                       config->device);
    const qw_cpu_kernels *kernels = qw_cpu_kernels_choose(config->cpu_tier);
    if (kernels == NULL)
        return qw_fail(error, QWEN36_ERROR_ARGUMENT, "this processor or build lacks the CPU tier %s (%d)",
                       tier_name(config->cpu_tier), config->cpu_tier);
    qw_cpu *cpu = qw_alloc(config->allocator, 1, sizeof *cpu);
    if (cpu == NULL)
        return qw_fail_memory(error, sizeof *cpu);
    *cpu =
        (qw_cpu){.allocator = config->allocator, .dims = config->dims, .kernels = kernels, .config = *config};
    out->ops = &cpu_ops;
    out->self = cpu;
    qwen36_status status = open_parts(cpu, config, error);
    if (status != QWEN36_OK) {
        destroy(out);
        return status;
    }
    out->cpu_tier = kernels->tier;
    out->threads = config->threads;
    out->scratch_bytes = cpu->scratch_bytes;
    const char *numerics = config->numerics == QWEN36_NUMERICS_FAST ? "fast" : "reference";
    snprintf(out->name, sizeof out->name, "cpu/%s%s/%s", tier_name(kernels->tier),
             cpu->dot_bf16 != NULL ? "-bf16" : "", numerics);
    return QWEN36_OK;
}
