/* One forward pass over the rows of a step: the architecture in one screen. */
#ifndef QW_MODEL_FORWARD_H
#define QW_MODEL_FORWARD_H

#include "lib/model/network.h"
#include "lib/model/trace.h"
#include "lib/model/workspace.h"
#include "lib/session/cache.h"

/* What a pass works on. */
typedef struct qw_forward_context {
    const qw_dims *dims;
    const qw_network *network;
    const qw_cache *cache;
    const qw_workspace *work;
    qw_backend *backend;
    int32_t live; /* vocabulary rows with a token */
    /* Asked between layers; true ends the pass with QWEN36_INTERRUPTED. May be NULL. */
    bool (*stop)(void *user);
    void *user;
    qw_trace *trace; /* NULL: none */
} qw_forward_context;

/* Embeds the rows, runs all layers and the final norm: the head's input stands in work->n. KV of the
 * rows and the states of state_write are written. */
qwen36_status qw_forward(const qw_forward_context *f, const qw_batch *batch);

/* Logits of `count` rows of the last pass: row in_row[i] goes to logits row out_row[i]. */
qwen36_status qw_forward_head(const qw_forward_context *f, int32_t rows, int32_t count, const int32_t *in_row,
                              const int32_t *out_row);

/* The mixers and the MLPs, a file each: read work->n, leave their output in work->m. */
qwen36_status qw_full_attention(const qw_forward_context *f, const qw_batch *batch, const qw_layer *layer);
qwen36_status qw_linear_attention(const qw_forward_context *f, const qw_batch *batch, const qw_layer *layer);
qwen36_status qw_dense_mlp(const qw_forward_context *f, const qw_batch *batch, const qw_layer *layer);
qwen36_status qw_moe(const qw_forward_context *f, const qw_batch *batch, const qw_layer *layer);

#endif
