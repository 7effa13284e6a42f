/* The activations of one step: named views, allocated once for max_batch_tokens rows.
 *
 * A layer is either linear or full attention, and the buffers of the two kinds share memory; so do the
 * mixers' and the MoE router's. All float32 but expert_ids. R rows at most; letters as in lib/backend.h.
 */
#ifndef QW_MODEL_WORKSPACE_H
#define QW_MODEL_WORKSPACE_H

#include "lib/backend.h"

typedef struct qw_workspace {
    qw_buffer buffer;
    qw_view x; /* [R,H] residual stream */
    qw_view n; /* [R,H] normalised input of a mixer or MLP; after the last layer the head's input */
    qw_view m; /* [R,H] output of a mixer or MLP, not yet added to x */
    /* linear attention */
    qw_view u, c;    /* [R,C] before and after the convolution */
    qw_view z, core; /* [R,nv*dv] gate, delta rule output */
    qw_view a, b;    /* [R,nv] */
    /* full attention */
    qw_view qg;       /* [R,nh*2*hd] */
    qw_view k, v;     /* [R,nkv*hd] */
    qw_view q, heads; /* [R,nh*hd] rotated queries, attention output */
    /* MoE */
    qw_view router_logits;  /* [R,E] */
    qw_view expert_ids;     /* int32 [R,k] */
    qw_view expert_weights; /* [R,k] */
} qw_workspace;

/* Bytes that `rows` rows take. */
uint64_t qw_workspace_bytes(const qw_dims *dims, int64_t rows);
qwen36_status qw_workspace_create(qw_workspace *workspace, const qw_dims *dims, int64_t rows,
                                  qw_backend *backend);
void qw_workspace_destroy(qw_workspace *workspace, qw_backend *backend);

/* The first `rows` rows of an activation. */
static inline qw_view qw_rows(qw_view view, int64_t rows)
{
    view.shape[0] = rows;
    return view;
}

#endif
