#include "lib/model/workspace.h"

/* Carves views out of one buffer; with base NULL it only counts. */
typedef struct carver {
    const qw_buffer *buffer;
    int64_t rows;
    uint64_t offset, highest;
    bool overflow;
} carver;

static qw_view carve_as(carver *c, int64_t columns, int32_t dtype)
{
    qw_view view = {c->buffer, (int64_t)c->offset, dtype, 2, {c->rows, columns, 1}, {columns, 1, 1}};
    uint64_t elements = 0, bytes = 0;
    if (!qw_mul((uint64_t)c->rows, (uint64_t)columns, &elements) || !qw_mul(elements, 4, &bytes) ||
        bytes > (uint64_t)INT64_MAX / 2 || c->offset > (uint64_t)INT64_MAX / 2) {
        c->overflow = true;
        return view;
    }
    c->offset += (bytes + QW_ALIGNMENT - 1) / QW_ALIGNMENT * QW_ALIGNMENT;
    c->highest = QW_MAX(c->highest, c->offset);
    return view;
}

static qw_view carve(carver *c, int64_t columns)
{
    return carve_as(c, columns, QW_F32);
}

static void carve_linear(carver *c, qw_workspace *w, const qw_dims *d)
{
    int64_t values = (int64_t)d->lin_v_heads * d->lin_v_dim;
    int64_t channels = qw_dims_conv_channels(d);
    w->u = carve(c, channels);
    w->c = carve(c, channels);
    w->z = carve(c, values);
    w->core = carve(c, values);
    w->a = carve(c, d->lin_v_heads);
    w->b = carve(c, d->lin_v_heads);
}

static void carve_full(carver *c, qw_workspace *w, const qw_dims *d)
{
    int64_t queries = (int64_t)d->heads * d->head_dim, keys = (int64_t)d->kv_heads * d->head_dim;
    w->qg = carve(c, 2 * queries);
    w->k = carve(c, keys);
    w->v = carve(c, keys);
    w->q = carve(c, queries);
    w->heads = carve(c, queries);
}

static void carve_moe(carver *c, qw_workspace *w, const qw_dims *d)
{
    if (!d->is_moe)
        return;
    w->router_logits = carve(c, d->experts);
    w->expert_ids = carve_as(c, d->top_k, QW_I32);
    w->expert_weights = carve(c, d->top_k);
}

static void carve_all(carver *c, qw_workspace *w, const qw_dims *d)
{
    w->x = carve(c, d->hidden);
    w->n = carve(c, d->hidden);
    w->m = carve(c, d->hidden);
    uint64_t shared = c->offset;
    carve_linear(c, w, d);
    c->offset = shared;
    carve_full(c, w, d);
    c->offset = shared;
    carve_moe(c, w, d);
}

uint64_t qw_workspace_bytes(const qw_dims *dims, int64_t rows)
{
    qw_workspace unused = {0};
    carver c = {.rows = rows};
    carve_all(&c, &unused, dims);
    return c.overflow ? UINT64_MAX : c.highest;
}

qwen36_status qw_workspace_create(qw_workspace *workspace, const qw_dims *dims, int64_t rows,
                                  qw_backend *backend)
{
    *workspace = (qw_workspace){0};
    uint64_t bytes = qw_workspace_bytes(dims, rows);
    qwen36_status status = backend->ops->buffer_create(backend, bytes, QW_SPACE_DEVICE, &workspace->buffer);
    if (status != QWEN36_OK)
        return status;
    carver c = {.buffer = &workspace->buffer, .rows = rows};
    carve_all(&c, workspace, dims);
    return QWEN36_OK;
}

void qw_workspace_destroy(qw_workspace *workspace, qw_backend *backend)
{
    if (workspace->buffer.base != NULL)
        backend->ops->buffer_destroy(backend, &workspace->buffer);
    *workspace = (qw_workspace){0};
}
