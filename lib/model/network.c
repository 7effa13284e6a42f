#include "lib/model/network.h"

/* Imports tensors one after the other; the first failure sticks. */
typedef struct importer {
    qw_backend *backend;
    qw_network *network;
    size_t capacity; /* of network->buffers */
    const qw_import_progress *progress;
    uint64_t done; /* bytes */
    qwen36_status status;
} importer;

static int64_t element_count(const qw_weight *weight)
{
    int64_t count = 1;
    for (int32_t i = 0; i < weight->rank; i++)
        count *= weight->shape[i];
    return count;
}

static qw_view describe(const qw_weight *weight, const qw_buffer *buffer, int64_t offset)
{
    qw_view view = {buffer, offset, weight->dtype, weight->rank, {1, 1, 1}, {1, 1, 1}};
    int64_t stride = 1;
    for (int32_t i = weight->rank - 1; i >= 0; i--) {
        view.shape[i] = weight->shape[i];
        view.stride[i] = stride;
        stride *= weight->shape[i];
    }
    return view;
}

/* Where weights are aliased there is nothing to wait for. */
static void report(importer *in, uint64_t bytes)
{
    const qw_import_progress *p = in->progress;
    in->done += bytes;
    if (p->function != NULL && in->backend->space == QW_SPACE_DEVICE &&
        p->function(p->user, QW_MIN(in->done, p->total), p->total) != 0)
        in->status = QWEN36_ERROR_CANCELLED;
}

/* An absent tensor gives an absent view. */
static qw_view import(importer *in, const qw_weight *weight)
{
    if (weight->data == NULL || in->status != QWEN36_OK)
        return (qw_view){0};
    if (in->network->buffer_count == in->capacity) {
        in->status = QWEN36_ERROR_INTERNAL;
        return (qw_view){0};
    }
    qw_buffer *buffer = &in->network->buffers[in->network->buffer_count];
    uint64_t bytes = (uint64_t)element_count(weight) * (uint64_t)qw_dtype_size(weight->dtype);
    in->status = in->backend->ops->import(in->backend, weight->data, bytes, buffer);
    if (in->status != QWEN36_OK)
        return (qw_view){0};
    in->network->buffer_count++;
    report(in, bytes);
    return describe(weight, buffer, 0);
}

/* Expert matrices lie within a fused tensor that was imported once, or are tensors of their own. */
static qw_view import_part(importer *in, const qw_weight *part, const qw_weight *whole,
                           const qw_view *imported)
{
    if (whole->data == NULL)
        return import(in, part);
    return describe(part, imported->buffer, (const char *)part->data - (const char *)whole->data);
}

static void import_experts(importer *in, const qw_layer_weights *from, int32_t count, qw_layer *to)
{
    qw_view gate_up = import(in, &from->fused_gate_up), down = import(in, &from->fused_down);
    for (int32_t e = 0; e < count && in->status == QWEN36_OK; e++) {
        const qw_expert_weights *expert = &from->experts[e];
        to->experts[e] = (qw_expert_view){import_part(in, &expert->gate, &from->fused_gate_up, &gate_up),
                                          import_part(in, &expert->up, &from->fused_gate_up, &gate_up),
                                          import_part(in, &expert->down, &from->fused_down, &down)};
    }
}

static void import_mixer(importer *in, const qw_layer_weights *from, qw_layer *to)
{
    to->in_qkv = import(in, &from->in_qkv);
    to->in_z = import(in, &from->in_z);
    to->in_b = import(in, &from->in_b);
    to->in_a = import(in, &from->in_a);
    to->conv = import(in, &from->conv);
    to->a_log = import(in, &from->a_log);
    to->dt_bias = import(in, &from->dt_bias);
    to->lin_norm = import(in, &from->lin_norm);
    to->out = import(in, &from->out);
    to->q = import(in, &from->q);
    to->k = import(in, &from->k);
    to->v = import(in, &from->v);
    to->o = import(in, &from->o);
    to->q_norm = import(in, &from->q_norm);
    to->k_norm = import(in, &from->k_norm);
}

static void import_layer(importer *in, const qw_dims *dims, const qw_layer_weights *from, qw_layer *to)
{
    to->input_norm = import(in, &from->input_norm);
    to->post_norm = import(in, &from->post_norm);
    import_mixer(in, from, to);
    to->gate = import(in, dims->is_moe ? &from->shared_gate_proj : &from->gate);
    to->up = import(in, dims->is_moe ? &from->shared_up_proj : &from->up);
    to->down = import(in, dims->is_moe ? &from->shared_down_proj : &from->down);
    to->router = import(in, &from->router);
    to->shared_gate = import(in, &from->shared_gate);
    if (dims->is_moe)
        import_experts(in, from, dims->experts, to);
}

/* Tensors that a layer may have at most: 23 of its own, two fused ones or three per expert. */
static size_t tensor_bound(const qw_dims *dims)
{
    return 3 + (size_t)dims->layers * (25 + 3 * (size_t)dims->experts);
}

uint64_t qw_network_device_bytes(const qw_dims *dims, uint64_t weight_bytes)
{
    return weight_bytes + (uint64_t)tensor_bound(dims) * QW_BUFFER_ALIGNMENT;
}

static bool allocate(qw_network *network, const qw_allocator *a, const qw_dims *dims)
{
    size_t layers = (size_t)dims->layers, half = (size_t)dims->rotary_dim / 2;
    network->layers = qw_alloc(a, layers, sizeof *network->layers);
    network->inv_freq = qw_alloc(a, half, sizeof *network->inv_freq);
    network->axis = qw_alloc(a, half, sizeof *network->axis);
    network->buffers = qw_alloc(a, tensor_bound(dims), sizeof *network->buffers);
    if (network->layers == NULL || network->inv_freq == NULL || network->axis == NULL ||
        network->buffers == NULL)
        return false;
    if (!dims->is_moe)
        return true;
    qw_expert_view *experts = qw_alloc(a, layers * (size_t)dims->experts, sizeof *experts);
    if (experts == NULL)
        return false;
    for (size_t i = 0; i < layers; i++)
        network->layers[i].experts = experts + i * (size_t)dims->experts;
    return true;
}

qwen36_status qw_network_create(qw_network *network, const qw_allocator *a, const qw_dims *dims,
                                const qw_weights *weights, const qw_import_progress *progress,
                                qw_backend *backend, qwen36_error *error)
{
    *network = (qw_network){0};
    if (!allocate(network, a, dims)) {
        qw_network_destroy(network, a, backend);
        return qw_fail_memory(error, tensor_bound(dims) * sizeof *network->buffers);
    }
    importer in = {backend, network, tensor_bound(dims), progress, 0, QWEN36_OK};
    network->embed = import(&in, &weights->embed);
    network->norm = import(&in, &weights->norm);
    network->head = dims->tied_head ? network->embed : import(&in, &weights->head);
    for (int32_t i = 0; i < dims->layers; i++) {
        network->layers[i].kind = dims->layer_kind[i];
        network->layers[i].kind_index = dims->layer_index[i];
        import_layer(&in, dims, &weights->layers[i], &network->layers[i]);
    }
    qw_dims_rope_table(dims, network->inv_freq, network->axis, &network->rope_scale);
    if (in.status != QWEN36_OK) {
        qw_network_destroy(network, a, backend);
        return qw_fail(error, in.status,
                       in.status == QWEN36_ERROR_CANCELLED ? "loading was cancelled by the progress callback"
                                                           : "the backend could not take the weights");
    }
    return QWEN36_OK;
}

void qw_network_destroy(qw_network *network, const qw_allocator *a, qw_backend *backend)
{
    for (size_t i = 0; i < network->buffer_count; i++)
        backend->ops->buffer_destroy(backend, &network->buffers[i]);
    if (network->layers != NULL)
        qw_free(a, network->layers[0].experts);
    qw_free(a, network->layers);
    qw_free(a, network->inv_freq);
    qw_free(a, network->axis);
    qw_free(a, network->buffers);
    *network = (qw_network){0};
}
