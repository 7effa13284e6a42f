/* The two MLPs: dense, and mixture of experts with a gated shared expert. */
#include "lib/model/forward.h"

static qwen36_status mlp(const qw_forward_context *f, int64_t rows, const qw_layer *layer, qw_view row_gate,
                         int32_t accumulate)
{
    qw_mlp_args args = {.x = qw_rows(f->work->n, rows),
                        .gate = layer->gate,
                        .up = layer->up,
                        .down = layer->down,
                        .row_gate = row_gate,
                        .accumulate = accumulate,
                        .y = qw_rows(f->work->m, rows)};
    return f->backend->ops->mlp(f->backend, &args);
}

qwen36_status qw_dense_mlp(const qw_forward_context *f, const qw_batch *batch, const qw_layer *layer)
{
    return mlp(f, batch->rows, layer, (qw_view){0}, 0);
}

static qwen36_status route(const qw_forward_context *f, int64_t rows, const qw_layer *layer)
{
    const qw_workspace *w = f->work;
    qw_linear_args logits = {
        .x = qw_rows(w->n, rows), .parts = 1, .w = {layer->router}, .y = {qw_rows(w->router_logits, rows)}};
    qwen36_status status = f->backend->ops->linear(f->backend, &logits);
    if (status != QWEN36_OK)
        return status;
    qw_route_args args = {qw_rows(w->router_logits, rows), qw_rows(w->expert_ids, rows),
                          qw_rows(w->expert_weights, rows)};
    return f->backend->ops->route(f->backend, &args);
}

/* m = sum of the routed experts + sigmoid(shared_gate . n) * shared expert. */
qwen36_status qw_moe(const qw_forward_context *f, const qw_batch *batch, const qw_layer *layer)
{
    const qw_workspace *w = f->work;
    qwen36_status status = route(f, batch->rows, layer);
    if (status != QWEN36_OK)
        return status;
    qw_experts_args experts = {.x = qw_rows(w->n, batch->rows),
                               .ids = qw_rows(w->expert_ids, batch->rows),
                               .weights = qw_rows(w->expert_weights, batch->rows),
                               .experts = f->dims->experts,
                               .expert = layer->experts,
                               .y = qw_rows(w->m, batch->rows)};
    status = f->backend->ops->experts(f->backend, &experts);
    if (status != QWEN36_OK)
        return status;
    return mlp(f, batch->rows, layer, layer->shared_gate, 1);
}
