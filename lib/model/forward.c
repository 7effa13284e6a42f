#include "lib/model/forward.h"

/* The residual add of a mixer or MLP happens in the norm that follows it, so that a collective or an
 * adapter fits between the two. `add` is absent before the first layer. */
static qwen36_status norm(const qw_forward_context *f, int64_t rows, qw_view weight, bool add)
{
    qw_norm_args args = {.x = qw_rows(f->work->x, rows),
                         .weight = weight,
                         .y = qw_rows(f->work->n, rows),
                         .eps = f->dims->norm_eps};
    if (add)
        args.add = qw_rows(f->work->m, rows);
    return f->backend->ops->norm(f->backend, &args);
}

static qwen36_status embed(const qw_forward_context *f, const qw_batch *batch)
{
    qw_embed_args args = {batch, f->network->embed, qw_rows(f->work->x, batch->rows)};
    return f->backend->ops->embed(f->backend, &args);
}

static qwen36_status run_layer(const qw_forward_context *f, const qw_batch *batch, int32_t index)
{
    const qw_layer *layer = &f->network->layers[index];
    qwen36_status status = norm(f, batch->rows, layer->input_norm, index > 0);
    if (status == QWEN36_OK)
        status = layer->kind == QW_LAYER_FULL ? qw_full_attention(f, batch, layer)
                                              : qw_linear_attention(f, batch, layer);
    if (status == QWEN36_OK)
        status = norm(f, batch->rows, layer->post_norm, true);
    if (status == QWEN36_OK)
        status = f->dims->is_moe ? qw_moe(f, batch, layer) : qw_dense_mlp(f, batch, layer);
    return status;
}

static qwen36_status run_timed(const qw_forward_context *f, const qw_batch *batch, int32_t index)
{
    bool full = f->network->layers[index].kind == QW_LAYER_FULL;
    qw_trace_set_layer(f->trace, index);
    uint64_t begin = qw_trace_clock(f->trace);
    qwen36_status status = run_layer(f, batch, index);
    qw_trace_report(f->trace, "layer", full ? "full_attention" : "linear_attention", begin,
                    qw_trace_clock(f->trace));
    qw_trace_set_layer(f->trace, -1);
    return status;
}

qwen36_status qw_forward(const qw_forward_context *f, const qw_batch *batch)
{
    qwen36_status status = embed(f, batch);
    for (int32_t i = 0; i < f->dims->layers && status == QWEN36_OK; i++) {
        if (f->stop != NULL && f->stop(f->user))
            return QWEN36_INTERRUPTED;
        status = f->backend->ops->pace(f->backend);
        if (status == QWEN36_OK)
            status = run_timed(f, batch, i);
    }
    if (status == QWEN36_OK)
        status = norm(f, batch->rows, f->network->norm, true);
    return status;
}

qwen36_status qw_forward_head(const qw_forward_context *f, int32_t rows, int32_t count, const int32_t *in_row,
                              const int32_t *out_row)
{
    qw_head_args args = {.x = qw_rows(f->work->n, rows),
                         .w = f->network->head,
                         .count = count,
                         .in_row = in_row,
                         .out_row = out_row,
                         .live = f->live,
                         .logits = f->cache->logits_view};
    return f->backend->ops->head(f->backend, &args);
}
