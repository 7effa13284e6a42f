/* Gated DeltaNet: project, short convolution, delta rule over the recurrent state, gated norm, project
 * back. */
#include "lib/model/forward.h"

static qwen36_status project(const qw_forward_context *f, int64_t rows, const qw_layer *layer)
{
    const qw_workspace *w = f->work;
    qw_linear_args args = {
        .x = qw_rows(w->n, rows),
        .parts = 4,
        .w = {layer->in_qkv, layer->in_z, layer->in_b, layer->in_a},
        .y = {qw_rows(w->u, rows), qw_rows(w->z, rows), qw_rows(w->b, rows), qw_rows(w->a, rows)}};
    return f->backend->ops->linear(f->backend, &args);
}

static qwen36_status convolve(const qw_forward_context *f, const qw_batch *batch, const qw_layer *layer)
{
    const qw_workspace *w = f->work;
    qw_conv_args args = {batch, qw_rows(w->u, batch->rows), layer->conv,
                         qw_cache_conv(f->cache, layer->kind_index), qw_rows(w->c, batch->rows)};
    return f->backend->ops->conv(f->backend, &args);
}

static qwen36_status delta(const qw_forward_context *f, const qw_batch *batch, const qw_layer *layer)
{
    const qw_workspace *w = f->work;
    qw_delta_args args = {.batch = batch,
                          .c = qw_rows(w->c, batch->rows),
                          .a = qw_rows(w->a, batch->rows),
                          .b = qw_rows(w->b, batch->rows),
                          .a_log = layer->a_log,
                          .dt_bias = layer->dt_bias,
                          .state = qw_cache_recurrent(f->cache, layer->kind_index),
                          .o = qw_rows(w->core, batch->rows)};
    return f->backend->ops->delta(f->backend, &args);
}

static qwen36_status gate(const qw_forward_context *f, int64_t rows, const qw_layer *layer)
{
    const qw_workspace *w = f->work;
    qw_gated_norm_args args = {qw_rows(w->core, rows), qw_rows(w->z, rows), layer->lin_norm,
                               qw_rows(w->core, rows), f->dims->norm_eps};
    return f->backend->ops->gated_norm(f->backend, &args);
}

qwen36_status qw_linear_attention(const qw_forward_context *f, const qw_batch *batch, const qw_layer *layer)
{
    qwen36_status status = project(f, batch->rows, layer);
    if (status == QWEN36_OK)
        status = convolve(f, batch, layer);
    if (status == QWEN36_OK)
        status = delta(f, batch, layer);
    if (status == QWEN36_OK)
        status = gate(f, batch->rows, layer);
    if (status != QWEN36_OK)
        return status;
    qw_linear_args back = {.x = qw_rows(f->work->core, batch->rows),
                           .parts = 1,
                           .w = {layer->out},
                           .y = {qw_rows(f->work->m, batch->rows)}};
    return f->backend->ops->linear(f->backend, &back);
}
