/* Gated full attention: project, normalise and rotate, write KV, attend, gate, project back. */
#include "lib/model/forward.h"

static qwen36_status project(const qw_forward_context *f, int64_t rows, const qw_layer *layer)
{
    const qw_workspace *w = f->work;
    qw_linear_args args = {.x = qw_rows(w->n, rows),
                           .parts = 3,
                           .w = {layer->q, layer->k, layer->v},
                           .y = {qw_rows(w->qg, rows), qw_rows(w->k, rows), qw_rows(w->v, rows)}};
    return f->backend->ops->linear(f->backend, &args);
}

static qwen36_status prepare(const qw_forward_context *f, const qw_batch *batch, const qw_layer *layer,
                             qw_kv_view cache)
{
    const qw_workspace *w = f->work;
    qw_attn_prepare_args args = {.batch = batch,
                                 .qg = qw_rows(w->qg, batch->rows),
                                 .k = qw_rows(w->k, batch->rows),
                                 .v = qw_rows(w->v, batch->rows),
                                 .q_norm = layer->q_norm,
                                 .k_norm = layer->k_norm,
                                 .q = qw_rows(w->q, batch->rows),
                                 .cache = cache,
                                 .inv_freq = f->network->inv_freq,
                                 .axis = f->network->axis,
                                 .rope_scale = f->network->rope_scale,
                                 .eps = f->dims->norm_eps};
    return f->backend->ops->attn_prepare(f->backend, &args);
}

static qwen36_status attend(const qw_forward_context *f, const qw_batch *batch, qw_kv_view cache)
{
    const qw_workspace *w = f->work;
    qw_attention_args args = {batch, qw_rows(w->q, batch->rows), qw_rows(w->qg, batch->rows), cache,
                              qw_rows(w->heads, batch->rows)};
    return f->backend->ops->attention(f->backend, &args);
}

qwen36_status qw_full_attention(const qw_forward_context *f, const qw_batch *batch, const qw_layer *layer)
{
    qw_kv_view cache = qw_cache_kv(f->cache, layer->kind_index);
    qwen36_status status = project(f, batch->rows, layer);
    if (status == QWEN36_OK)
        status = prepare(f, batch, layer, cache);
    if (status == QWEN36_OK)
        status = attend(f, batch, cache);
    if (status != QWEN36_OK)
        return status;
    qw_linear_args back = {.x = qw_rows(f->work->heads, batch->rows),
                           .parts = 1,
                           .w = {layer->o},
                           .y = {qw_rows(f->work->m, batch->rows)}};
    return f->backend->ops->linear(f->backend, &back);
}
