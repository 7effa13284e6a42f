#include "lib/model/trace.h"

#include "lib/os/process.h"

#include <string.h>

uint64_t qw_trace_clock(const qw_trace *trace)
{
    return trace == NULL ? 0 : qw_clock_nanoseconds();
}

void qw_trace_set_rows(qw_trace *trace, int32_t rows)
{
    if (trace != NULL)
        trace->rows = rows;
}

void qw_trace_set_layer(qw_trace *trace, int32_t layer)
{
    if (trace != NULL)
        trace->layer = layer;
}

void qw_trace_report(const qw_trace *trace, const char *category, const char *name, uint64_t begin,
                     uint64_t end)
{
    if (trace != NULL)
        trace->function(trace->user, category, name, trace->layer, trace->rows, begin, end - begin);
}

/* ---- the wrapper ------------------------------------------------------------------------------------ */

#define OPERATION(name, arguments)                                                                           \
    static qwen36_status name(qw_backend *backend, arguments *args)                                          \
    {                                                                                                        \
        qw_trace *trace = backend->self;                                                                     \
        uint64_t begin = qw_clock_nanoseconds();                                                             \
        qwen36_status status = trace->inner.ops->name(&trace->inner, args);                                  \
        qw_trace_report(trace, "op", #name, begin, qw_clock_nanoseconds());                                  \
        return status;                                                                                       \
    }

OPERATION(step_begin, const qw_batch)
OPERATION(copy, const qw_copy_args)
OPERATION(embed, const qw_embed_args)
OPERATION(norm, const qw_norm_args)
OPERATION(linear, const qw_linear_args)
OPERATION(attn_prepare, const qw_attn_prepare_args)
OPERATION(attention, const qw_attention_args)
OPERATION(conv, const qw_conv_args)
OPERATION(delta, const qw_delta_args)
OPERATION(gated_norm, const qw_gated_norm_args)
OPERATION(route, const qw_route_args)
OPERATION(experts, const qw_experts_args)
OPERATION(mlp, const qw_mlp_args)
OPERATION(head, const qw_head_args)
OPERATION(logprob, const qw_logprob_args)
OPERATION(sample, qw_sample_args)

static qwen36_status step_end(qw_backend *backend)
{
    qw_trace *trace = backend->self;
    uint64_t begin = qw_clock_nanoseconds();
    qwen36_status status = trace->inner.ops->step_end(&trace->inner);
    qw_trace_report(trace, "op", "step_end", begin, qw_clock_nanoseconds());
    backend->revision = trace->inner.revision;
    memcpy(backend->name, trace->inner.name, sizeof backend->name);
    return status;
}

/* The rest is handed on. */

static qw_backend *inner_of(qw_backend *backend)
{
    qw_trace *trace = backend->self;
    return &trace->inner;
}

static qwen36_status buffer_create(qw_backend *backend, uint64_t bytes, int32_t space, qw_buffer *out)
{
    return inner_of(backend)->ops->buffer_create(inner_of(backend), bytes, space, out);
}

static void buffer_destroy(qw_backend *backend, qw_buffer *buffer)
{
    inner_of(backend)->ops->buffer_destroy(inner_of(backend), buffer);
}

static qwen36_status import(qw_backend *backend, const void *host, uint64_t bytes, qw_buffer *out)
{
    return inner_of(backend)->ops->import(inner_of(backend), host, bytes, out);
}

static qwen36_status read_buffer(qw_backend *backend, const qw_buffer *buffer, uint64_t offset, void *host,
                                 uint64_t bytes)
{
    return inner_of(backend)->ops->read(inner_of(backend), buffer, offset, host, bytes);
}

static qwen36_status write_buffer(qw_backend *backend, const qw_buffer *buffer, uint64_t offset,
                                  const void *host, uint64_t bytes)
{
    return inner_of(backend)->ops->write(inner_of(backend), buffer, offset, host, bytes);
}

static qwen36_status pace(qw_backend *backend)
{
    return inner_of(backend)->ops->pace(inner_of(backend));
}

static void destroy(qw_backend *backend)
{
    qw_backend *inner = inner_of(backend);
    inner->ops->destroy(inner);
    *backend = (qw_backend){0};
}

void qw_trace_wrap(qw_trace *trace, qwen36_trace_fn function, void *user, qw_backend *backend)
{
    static const qw_ops traced = {
        .buffer_create = buffer_create,
        .buffer_destroy = buffer_destroy,
        .import = import,
        .step_begin = step_begin,
        .step_end = step_end,
        .pace = pace,
        .read = read_buffer,
        .write = write_buffer,
        .copy = copy,
        .embed = embed,
        .norm = norm,
        .linear = linear,
        .attn_prepare = attn_prepare,
        .attention = attention,
        .conv = conv,
        .delta = delta,
        .gated_norm = gated_norm,
        .route = route,
        .experts = experts,
        .mlp = mlp,
        .head = head,
        .logprob = logprob,
        .sample = sample,
        .destroy = destroy,
    };
    *trace = (qw_trace){.function = function, .user = user, .inner = *backend, .layer = -1};
    backend->ops = &traced;
    backend->self = trace;
}
