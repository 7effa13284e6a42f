#include "lib/model/weights.h"

#include "lib/os/file.h"

#include <stdio.h>
#include <string.h>

/* --- The list of tensors --------------------------------------------------------------------------- */

/* Sizes that shapes are made of; the letters of lib/model/dims.h. */
enum size { ONE, V, H, QG, Q, KV, HD, QKV, LV, NV, DV, WIDTH, I, E, IM, IM2, S, SIZES };

/* Which tensors exist: by the kind of the layer, of the MLP, and of the storage of the experts. */
enum scope { OUTSIDE, HEAD, EVERY_LAYER, LINEAR, FULL, DENSE, MOE, FUSED, APART };

#define OF_MODEL(field) offsetof(qw_weights, field)
#define OF_LAYER(field) offsetof(qw_layer_weights, field)
#define OF_EXPERT(field) offsetof(qw_expert_weights, field)

/* Names follow the prefix, in a layer "layers.N.", of an expert "mlp.experts.E."; the head has no prefix. */
static const struct row {
    uint8_t scope;
    uint8_t rank;
    uint8_t shape[3];
    size_t field;
    const char *name;
} rows[] = {
    {OUTSIDE, 2, {V, H}, OF_MODEL(embed), "embed_tokens.weight"},
    {OUTSIDE, 1, {H}, OF_MODEL(norm), "norm.weight"},
    {HEAD, 2, {V, H}, OF_MODEL(head), "lm_head.weight"},

    {EVERY_LAYER, 1, {H}, OF_LAYER(input_norm), "input_layernorm.weight"},
    {EVERY_LAYER, 1, {H}, OF_LAYER(post_norm), "post_attention_layernorm.weight"},

    {LINEAR, 2, {QKV, H}, OF_LAYER(in_qkv), "linear_attn.in_proj_qkv.weight"},
    {LINEAR, 2, {LV, H}, OF_LAYER(in_z), "linear_attn.in_proj_z.weight"},
    {LINEAR, 2, {NV, H}, OF_LAYER(in_b), "linear_attn.in_proj_b.weight"},
    {LINEAR, 2, {NV, H}, OF_LAYER(in_a), "linear_attn.in_proj_a.weight"},
    {LINEAR, 3, {QKV, ONE, WIDTH}, OF_LAYER(conv), "linear_attn.conv1d.weight"},
    {LINEAR, 1, {NV}, OF_LAYER(a_log), "linear_attn.A_log"},
    {LINEAR, 1, {NV}, OF_LAYER(dt_bias), "linear_attn.dt_bias"},
    {LINEAR, 1, {DV}, OF_LAYER(lin_norm), "linear_attn.norm.weight"},
    {LINEAR, 2, {H, LV}, OF_LAYER(out), "linear_attn.out_proj.weight"},

    {FULL, 2, {QG, H}, OF_LAYER(q), "self_attn.q_proj.weight"},
    {FULL, 2, {KV, H}, OF_LAYER(k), "self_attn.k_proj.weight"},
    {FULL, 2, {KV, H}, OF_LAYER(v), "self_attn.v_proj.weight"},
    {FULL, 2, {H, Q}, OF_LAYER(o), "self_attn.o_proj.weight"},
    {FULL, 1, {HD}, OF_LAYER(q_norm), "self_attn.q_norm.weight"},
    {FULL, 1, {HD}, OF_LAYER(k_norm), "self_attn.k_norm.weight"},

    {DENSE, 2, {I, H}, OF_LAYER(gate), "mlp.gate_proj.weight"},
    {DENSE, 2, {I, H}, OF_LAYER(up), "mlp.up_proj.weight"},
    {DENSE, 2, {H, I}, OF_LAYER(down), "mlp.down_proj.weight"},

    {MOE, 2, {E, H}, OF_LAYER(router), "mlp.gate.weight"},
    {MOE, 2, {S, H}, OF_LAYER(shared_gate_proj), "mlp.shared_expert.gate_proj.weight"},
    {MOE, 2, {S, H}, OF_LAYER(shared_up_proj), "mlp.shared_expert.up_proj.weight"},
    {MOE, 2, {H, S}, OF_LAYER(shared_down_proj), "mlp.shared_expert.down_proj.weight"},
    {MOE, 2, {ONE, H}, OF_LAYER(shared_gate), "mlp.shared_expert_gate.weight"},
    {FUSED, 3, {E, IM2, H}, OF_LAYER(fused_gate_up), "mlp.experts.gate_up_proj"},
    {FUSED, 3, {E, H, IM}, OF_LAYER(fused_down), "mlp.experts.down_proj"},

    {APART, 2, {IM, H}, OF_EXPERT(gate), "gate_proj.weight"},
    {APART, 2, {IM, H}, OF_EXPERT(up), "up_proj.weight"},
    {APART, 2, {H, IM}, OF_EXPERT(down), "down_proj.weight"},
};

static void sizes_of(const qw_dims *d, int64_t sizes[SIZES])
{
    sizes[ONE] = 1;
    sizes[V] = d->vocab_size;
    sizes[H] = d->hidden;
    sizes[QG] = 2 * (int64_t)d->heads * d->head_dim;
    sizes[Q] = (int64_t)d->heads * d->head_dim;
    sizes[KV] = (int64_t)d->kv_heads * d->head_dim;
    sizes[HD] = d->head_dim;
    sizes[QKV] = qw_dims_conv_channels(d);
    sizes[LV] = (int64_t)d->lin_v_heads * d->lin_v_dim;
    sizes[NV] = d->lin_v_heads;
    sizes[DV] = d->lin_v_dim;
    sizes[WIDTH] = d->conv_width;
    sizes[I] = d->intermediate;
    sizes[E] = d->experts;
    sizes[IM] = d->expert_size;
    sizes[IM2] = 2 * (int64_t)d->expert_size;
    sizes[S] = d->shared_size;
}

typedef struct visitor {
    const qw_dims *dims;
    const char *prefix;
    bool fused_experts;
    qw_weight_visit visit;
    void *user;
    int64_t sizes[SIZES];
} visitor;

static qwen36_status visit_row(const visitor *v, const struct row *row, int32_t layer, int32_t expert)
{
    qw_weight_spec spec = {.rank = row->rank, .layer = layer, .expert = expert, .field = row->field};
    for (int32_t i = 0; i < row->rank; i++)
        spec.shape[i] = v->sizes[row->shape[i]];
    if (row->scope == HEAD)
        snprintf(spec.name, sizeof spec.name, "%s", row->name);
    else if (layer < 0)
        snprintf(spec.name, sizeof spec.name, "%s%s", v->prefix, row->name);
    else if (expert < 0)
        snprintf(spec.name, sizeof spec.name, "%slayers.%d.%s", v->prefix, layer, row->name);
    else
        snprintf(spec.name, sizeof spec.name, "%slayers.%d.mlp.experts.%d.%s", v->prefix, layer, expert,
                 row->name);
    return v->visit(v->user, &spec);
}

static bool applies(const visitor *v, const struct row *row, int32_t layer)
{
    const qw_dims *d = v->dims;
    switch (row->scope) {
    case OUTSIDE:
        return layer < 0;
    case HEAD:
        return layer < 0 && !d->tied_head;
    case EVERY_LAYER:
        return layer >= 0;
    case LINEAR:
        return layer >= 0 && d->layer_kind[layer] == QW_LAYER_LINEAR;
    case FULL:
        return layer >= 0 && d->layer_kind[layer] == QW_LAYER_FULL;
    case DENSE:
        return layer >= 0 && !d->is_moe;
    case MOE:
        return layer >= 0 && d->is_moe;
    case FUSED:
        return layer >= 0 && d->is_moe && v->fused_experts;
    default: /* APART */
        return layer >= 0 && d->is_moe && !v->fused_experts;
    }
}

/* Layer -1 is what stands outside the layers. */
static qwen36_status visit_layer(const visitor *v, int32_t layer)
{
    qwen36_status status = QWEN36_OK;
    for (size_t i = 0; i < QW_COUNT_OF(rows) && status == QWEN36_OK; i++) {
        if (!applies(v, &rows[i], layer))
            continue;
        if (rows[i].scope != APART)
            status = visit_row(v, &rows[i], layer, -1);
        for (int32_t e = 0; rows[i].scope == APART && e < v->dims->experts && status == QWEN36_OK; e++)
            status = visit_row(v, &rows[i], layer, e);
    }
    return status;
}

qwen36_status qw_weights_visit(const qw_dims *dims, const char *prefix, bool fused_experts,
                               qw_weight_visit visit, void *user)
{
    visitor v = {
        .dims = dims, .prefix = prefix, .fused_experts = fused_experts, .visit = visit, .user = user};
    qwen36_status status = QWEN36_OK;
    sizes_of(dims, v.sizes);
    for (int32_t layer = -1; layer < dims->layers && status == QWEN36_OK; layer++)
        status = visit_layer(&v, layer);
    return status;
}

/* --- The views ------------------------------------------------------------------------------------- */

static qw_weight *destination(qw_weights *w, const qw_weight_spec *spec)
{
    char *base = (char *)w;
    if (spec->layer >= 0)
        base = (char *)&w->layers[spec->layer];
    if (spec->expert >= 0)
        base = (char *)&w->layers[spec->layer].experts[spec->expert];
    return (qw_weight *)(void *)(base + spec->field);
}

/* Rows [first, first + count) of matrix `matrix` of a three-dimensional weight. */
static qw_weight matrix_rows(const qw_weight *fused, int64_t matrix, int64_t first, int64_t count)
{
    const int64_t row = matrix * fused->shape[1] + first;
    const int64_t bytes = row * fused->shape[2] * qw_dtype_size(fused->dtype);
    return (qw_weight){(const char *)fused->data + bytes, fused->dtype, 2, {count, fused->shape[2], 0}};
}

static void split_experts(const qw_dims *d, qw_layer_weights *layer)
{
    for (int32_t e = 0; e < d->experts; e++) {
        layer->experts[e].gate = matrix_rows(&layer->fused_gate_up, e, 0, d->expert_size);
        layer->experts[e].up = matrix_rows(&layer->fused_gate_up, e, d->expert_size, d->expert_size);
        layer->experts[e].down = matrix_rows(&layer->fused_down, e, 0, d->hidden);
    }
}

static void finish_views(const qw_checkpoint *checkpoint, qw_weights *w)
{
    const qw_dims *d = &checkpoint->dims;
    if (d->tied_head)
        w->head = w->embed;
    for (int32_t i = 0; i < d->layers; i++) {
        qw_weight *conv = &w->layers[i].conv;
        if (conv->data != NULL) /* [C,1,width] as stored: one group per channel */
            *conv = (qw_weight){conv->data, conv->dtype, 2, {conv->shape[0], conv->shape[2], 0}};
        if (d->is_moe && checkpoint->fused_experts)
            split_experts(d, &w->layers[i]);
    }
}

/* --- Binding --------------------------------------------------------------------------------------- */

/* A bound tensor and where its view goes. */
typedef struct item {
    const qw_tensor *tensor;
    qw_weight *view;
} item;

typedef struct binder {
    const qw_checkpoint *checkpoint;
    qw_weights *weights;
    int32_t access;
    qwen36_progress_fn progress;
    void *user;
    qwen36_error *error;
    uint64_t done;
    item *items; /* in the order of the table of tensors: by shard, then by offset */
    size_t count;
} binder;

static qwen36_status advance(binder *b, uint64_t bytes)
{
    b->done += bytes;
    if (b->progress != NULL && b->progress(b->user, b->done, b->checkpoint->weight_bytes) != 0)
        return qw_fail(b->error, QWEN36_ERROR_CANCELLED, "cancelled while loading weights");
    return QWEN36_OK;
}

/* Only so many bytes are read between two calls of the progress hook. */
#define READ_CHUNK ((size_t)32 << 20)

static qwen36_status read_tensor(binder *b, const qw_file *file, const char *path, const item *it,
                                 char *memory)
{
    for (uint64_t done = 0; done < it->tensor->bytes;) {
        const size_t size = (size_t)QW_MIN(it->tensor->bytes - done, READ_CHUNK);
        qwen36_status status =
            qw_file_read(file, path, it->tensor->offset + done, memory + done, size, b->error);
        if (status == QWEN36_OK)
            status = advance(b, size);
        if (status != QWEN36_OK)
            return status;
        done += size;
    }
    it->view->data = memory;
    return QWEN36_OK;
}

static bool is_copied(const binder *b, const item *it)
{
    return b->access == QWEN36_WEIGHTS_READ ||
           it->tensor->offset % (uint64_t)qw_dtype_size(it->view->dtype) != 0;
}

static uint64_t round_up(uint64_t value, uint64_t unit)
{
    return (value + unit - 1) / unit * unit;
}

static bool reserve_region(qw_weights *w)
{
    void *regions = w->regions;
    bool grown =
        qw_grow(&w->allocator, &regions, &w->region_capacity, w->region_count + 1, sizeof *w->regions);
    w->regions = regions;
    return grown;
}

/* The tensors of one file that are not used where they lie: one block of memory, each at 64 bytes. */
static qwen36_status copy_items(binder *b, const qw_file *file, const char *path, const item *items,
                                size_t count)
{
    uint64_t total = 0, at = 0;
    for (size_t i = 0; i < count; i++)
        if (is_copied(b, &items[i]))
            total += round_up(items[i].tensor->bytes, QW_ALIGNMENT);
    if (total == 0)
        return QWEN36_OK;
    char *block = reserve_region(b->weights) ? qw_alloc_raw(&b->weights->allocator, total, 1) : NULL;
    if (block == NULL)
        return qw_fail_memory(b->error, total);
    b->weights->regions[b->weights->region_count++] = (qw_region){block, total, false};
    for (size_t i = 0; i < count; i++) {
        if (!is_copied(b, &items[i]))
            continue;
        qwen36_status status = read_tensor(b, file, path, &items[i], block + at);
        if (status != QWEN36_OK)
            return status;
        at += round_up(items[i].tensor->bytes, QW_ALIGNMENT);
    }
    return QWEN36_OK;
}

static qwen36_status map_run(binder *b, const qw_file *file, const char *path, uint64_t begin, uint64_t end,
                             const item *items, size_t count)
{
    const void *memory = NULL;
    uint64_t bytes = 0;
    if (!reserve_region(b->weights))
        return qw_fail_memory(b->error, sizeof(qw_region));
    qwen36_status status = qw_file_map(file, path, begin, (size_t)(end - begin), &memory, b->error);
    if (status != QWEN36_OK)
        return status;
    b->weights->regions[b->weights->region_count++] = (qw_region){memory, (size_t)(end - begin), true};
    for (size_t i = 0; i < count; i++) {
        if (is_copied(b, &items[i]))
            continue;
        items[i].view->data = (const char *)memory + (items[i].tensor->offset - begin);
        bytes += items[i].tensor->bytes;
    }
    return advance(b, bytes);
}

/* Maps the pages of the others: one map per run of tensors whose pages touch. What lies between runs (MTP and
 * vision tensors) stays unmapped. */
static qwen36_status map_items(binder *b, const qw_file *file, const char *path, const item *items,
                               size_t count)
{
    const uint64_t page = qw_page_size();
    for (size_t first = 0, next = 0; first < count; first = next) {
        next = first + 1;
        if (is_copied(b, &items[first]))
            continue;
        const uint64_t begin = items[first].tensor->offset / page * page;
        uint64_t end = items[first].tensor->offset + items[first].tensor->bytes;
        for (; next < count && items[next].tensor->offset / page * page <= end; next++)
            if (!is_copied(b, &items[next]))
                end = items[next].tensor->offset + items[next].tensor->bytes;
        qwen36_status status = map_run(b, file, path, begin, end, items + first, next - first);
        if (status != QWEN36_OK)
            return status;
    }
    return QWEN36_OK;
}

/* The stamp is looked at before and after: what was mapped or read is the file whose header was checked. */
static qwen36_status bind_shard(binder *b, const qw_shard *shard, const item *items, size_t count)
{
    qw_file file = {.descriptor = -1};
    char *path = qw_checkpoint_path(b->checkpoint, shard->file);
    if (path == NULL)
        return qw_fail_memory(b->error, strlen(shard->file));
    qwen36_status status = qw_file_open(path, &file, b->error);
    if (status == QWEN36_OK)
        status = qw_file_check(&file, path, &shard->stamp, b->error);
    if (status == QWEN36_OK)
        status = copy_items(b, &file, path, items, count);
    if (status == QWEN36_OK)
        status = map_items(b, &file, path, items, count);
    if (status == QWEN36_OK)
        status = qw_file_check(&file, path, &shard->stamp, b->error);
    qw_file_close(&file);
    qw_free(&b->checkpoint->allocator, path);
    return status;
}

static qwen36_status bind_shards(binder *b)
{
    qwen36_status status = QWEN36_OK;
    for (size_t first = 0, next = 0; first < b->count && status == QWEN36_OK; first = next) {
        const uint32_t shard = b->items[first].tensor->shard;
        for (next = first; next < b->count && b->items[next].tensor->shard == shard; next++)
            ;
        status = bind_shard(b, &b->checkpoint->shards[shard], b->items + first, next - first);
    }
    return status;
}

/* For qw_weights_visit: dtype and shape of the view, and its place among the items: items[k] belongs to
 * tensor k of the table, so that they are sorted as the table is. */
static qwen36_status place_view(void *user, const qw_weight_spec *spec)
{
    binder *b = user;
    const qw_tensor *t = qw_checkpoint_find(b->checkpoint, spec->name);
    if (t == NULL)
        return qw_fail(b->error, QWEN36_ERROR_INTERNAL, "tensor %s was there and is not", spec->name);
    qw_weight *view = destination(b->weights, spec);
    *view = (qw_weight){NULL, t->dtype, spec->rank, {spec->shape[0], spec->shape[1], spec->shape[2]}};
    b->items[t - b->checkpoint->tensors.items] = (item){t, view};
    return QWEN36_OK;
}

static qwen36_status place_views(binder *b)
{
    const qw_checkpoint *c = b->checkpoint;
    qwen36_status status = qw_weights_visit(&c->dims, c->prefix, c->fused_experts, place_view, b);
    if (status != QWEN36_OK)
        return status;
    for (size_t i = 0; i < c->tensors.count; i++)
        if (b->items[i].tensor != NULL)
            b->items[b->count++] = b->items[i];
    return QWEN36_OK;
}

static qwen36_status allocate_views(const qw_allocator *allocator, const qw_dims *d, qw_weights *out,
                                    qwen36_error *error)
{
    const size_t layers = (size_t)d->layers, experts = (size_t)d->experts;
    *out = (qw_weights){.allocator = *allocator};
    out->layers = qw_alloc(allocator, layers, sizeof *out->layers);
    if (out->layers == NULL)
        return qw_fail_memory(error, layers * sizeof *out->layers);
    if (!d->is_moe)
        return QWEN36_OK;
    out->experts = qw_alloc(allocator, layers * experts, sizeof *out->experts);
    if (out->experts == NULL)
        return qw_fail_memory(error, layers * experts * sizeof *out->experts);
    for (size_t i = 0; i < layers; i++)
        out->layers[i].experts = out->experts + i * experts;
    return QWEN36_OK;
}

qwen36_status qw_weights_bind(const qw_allocator *allocator, const qw_checkpoint *checkpoint, int32_t access,
                              qwen36_progress_fn progress, void *user, qw_weights *out, qwen36_error *error)
{
    binder b = {.checkpoint = checkpoint,
                .weights = out,
                .access = access,
                .progress = progress,
                .user = user,
                .error = error};
    qwen36_status status = allocate_views(allocator, &checkpoint->dims, out, error);
    if (status != QWEN36_OK)
        goto out;
    b.items = qw_alloc(allocator, checkpoint->tensors.count, sizeof *b.items);
    if (b.items == NULL) {
        status = qw_fail_memory(error, checkpoint->tensors.count * sizeof *b.items);
        goto out;
    }
    status = place_views(&b);
    if (status == QWEN36_OK)
        status = bind_shards(&b);
    if (status == QWEN36_OK)
        finish_views(checkpoint, out);
out:
    qw_free(allocator, b.items);
    if (status != QWEN36_OK)
        qw_weights_release(out);
    return status;
}

void qw_weights_release(qw_weights *w)
{
    for (size_t i = 0; i < w->region_count; i++) {
        if (w->regions[i].mapped)
            qw_file_unmap(w->regions[i].memory, w->regions[i].size);
        else
            qw_free(&w->allocator, w->regions[i].memory);
    }
    if (w->layers != NULL || w->regions != NULL) { /* an empty one has no allocator */
        qw_free(&w->allocator, w->regions);
        qw_free(&w->allocator, w->experts);
        qw_free(&w->allocator, w->layers);
    }
    *w = (qw_weights){0};
}

uint64_t qw_weights_bytes(const qw_checkpoint *checkpoint)
{
    return checkpoint->weight_bytes;
}
