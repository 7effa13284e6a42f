/* The network: every weight as a view of memory that the backend reads, plus the rope table.
 *
 * lib/model/weights.c finds the tensors in the files; here each is imported into the backend (a CPU
 * aliases the mapping, a device uploads) and described by a view. Immutable after load.
 */
#ifndef QW_MODEL_NETWORK_H
#define QW_MODEL_NETWORK_H

#include "lib/backend.h"
#include "lib/model/weights.h"

typedef struct qw_layer {
    int32_t kind;       /* QW_LAYER_LINEAR or QW_LAYER_FULL */
    int32_t kind_index; /* position among the layers of its kind: index of its KV or state */
    qw_view input_norm, post_norm;
    /* linear attention */
    qw_view in_qkv, in_z, in_b, in_a, conv, a_log, dt_bias, lin_norm, out;
    /* full attention */
    qw_view q, k, v, o, q_norm, k_norm;
    /* dense MLP, or the shared expert of a MoE layer */
    qw_view gate, up, down;
    /* MoE */
    qw_view router, shared_gate;
    qw_expert_view *experts; /* [E] */
} qw_layer;

typedef struct qw_network {
    qw_view embed; /* [V,H] */
    qw_view norm;  /* [H] */
    qw_view head;  /* [V,H]; the embedding when tied */
    qw_layer *layers;
    float *inv_freq; /* [rotary_dim / 2] */
    uint8_t *axis;   /* [rotary_dim / 2] */
    float rope_scale;
    qw_buffer *buffers; /* one per imported tensor */
    size_t buffer_count;
} qw_network;

/* Progress counts bytes, where importing them takes time (a device). */
typedef struct qw_import_progress {
    qwen36_progress_fn function; /* NULL: nobody asks */
    void *user;
    uint64_t total;
} qw_import_progress;

qwen36_status qw_network_create(qw_network *network, const qw_allocator *a, const qw_dims *dims,
                                const qw_weights *weights, const qw_import_progress *progress,
                                qw_backend *backend, qwen36_error *error);
/* What the imports of so many bytes of weights take at most, each rounded up to QW_BUFFER_ALIGNMENT. */
uint64_t qw_network_device_bytes(const qw_dims *dims, uint64_t weight_bytes);
void qw_network_destroy(qw_network *network, const qw_allocator *a, qw_backend *backend);

#endif
