/* Opening the reference backend: its memory, its scratch and its table. */
#include "kernels/reference/internal.h"

#include <stdio.h>
#include <string.h>

static qwen36_status buffer_create(qw_backend *backend, uint64_t bytes, int32_t space, qw_buffer *out)
{
    *out = (qw_buffer){0};
    void *base = qw_alloc(&qw_ref_self(backend)->allocator, bytes, 1);
    if (base == NULL)
        return QWEN36_ERROR_OUT_OF_MEMORY;
    *out = (qw_buffer){base, bytes, space, 1};
    return QWEN36_OK;
}

static void buffer_destroy(qw_backend *backend, qw_buffer *buffer)
{
    if (buffer->owned)
        qw_free(&qw_ref_self(backend)->allocator, buffer->base);
    *buffer = (qw_buffer){0};
}

static qwen36_status import(qw_backend *backend, const void *host, uint64_t bytes, qw_buffer *out)
{
    (void)backend;
    *out = (qw_buffer){(void *)(uintptr_t)host, bytes, QW_SPACE_HOST, 0};
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
    qw_reference *self = qw_ref_self(backend);
    if (self != NULL) {
        const qw_allocator allocator = self->allocator;
        qw_free(&allocator, self->line);
        qw_free(&allocator, self->other);
        qw_free(&allocator, self->state);
        qw_free(&allocator, self->tokens);
        qw_free(&allocator, self->seen);
        qw_free(&allocator, self);
    }
    memset(backend, 0, sizeof *backend);
}

static const qw_ops reference_ops = {
    .buffer_create = buffer_create,
    .buffer_destroy = buffer_destroy,
    .import = import,
    .step_begin = step_begin,
    .step_end = step_end,
    .pace = pace,
    .read = read_buffer,
    .write = write_buffer,
    .copy = copy,
    .embed = qw_ref_embed,
    .norm = qw_ref_norm,
    .linear = qw_ref_linear,
    .attn_prepare = qw_ref_attn_prepare,
    .attention = qw_ref_attention,
    .conv = qw_ref_conv,
    .delta = qw_ref_delta,
    .gated_norm = qw_ref_gated_norm,
    .route = qw_ref_route,
    .experts = qw_ref_experts,
    .mlp = qw_ref_mlp,
    .head = qw_ref_head,
    .logprob = qw_ref_logprob,
    .sample = qw_ref_sample,
    .destroy = destroy,
};

/* The widest row that any operation needs at a time. */
static size_t line_width(const qw_backend_config *config)
{
    const qw_dims *d = config->dims;
    const int32_t widths[] = {d->hidden,     d->intermediate,    d->expert_size, d->shared_size,
                              d->head_dim,   d->lin_k_dim,       d->lin_v_dim,   d->experts,
                              d->vocab_size, config->max_context};
    int32_t widest = 1;
    for (size_t i = 0; i < QW_COUNT_OF(widths); i++)
        widest = QW_MAX(widest, widths[i]);
    return (size_t)widest;
}

static bool allocate_scratch(qw_reference *self, size_t width)
{
    const qw_dims *d = &self->dims;
    self->line = qw_alloc(&self->allocator, width, sizeof *self->line);
    self->other = qw_alloc(&self->allocator, width, sizeof *self->other);
    self->state =
        qw_alloc(&self->allocator, (size_t)d->lin_k_dim * (size_t)d->lin_v_dim, sizeof *self->state);
    self->tokens = qw_alloc(&self->allocator, (size_t)d->vocab_size, sizeof *self->tokens);
    self->seen = qw_alloc(&self->allocator, (size_t)d->vocab_size, sizeof *self->seen);
    return self->line != NULL && self->other != NULL && self->state != NULL && self->tokens != NULL &&
           self->seen != NULL;
}

qwen36_status qw_reference_backend_open(const qw_backend_config *config, qw_backend *out, qwen36_error *error)
{
    memset(out, 0, sizeof *out);
    qw_reference *self = qw_alloc(config->allocator, 1, sizeof *self);
    if (self == NULL)
        return qw_fail_memory(error, sizeof *self);
    self->allocator = *config->allocator;
    self->dims = *config->dims;
    self->max_context = config->max_context;
    out->ops = &reference_ops;
    out->self = self;
    out->threads = 1;
    snprintf(out->name, sizeof out->name, "reference");
    if (!allocate_scratch(self, line_width(config))) {
        destroy(out);
        return qw_fail_memory(error, line_width(config) * sizeof(double));
    }
    return QWEN36_OK;
}
