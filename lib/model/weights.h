/* The weights of the text model: views into the mapped files, by their place in the model. The list of all
 * tensors (name, shape, destination) is the table in weights.c; it is both the manifest that a checkpoint is
 * checked against and the way the views are filled.
 */
#ifndef QW_WEIGHTS_H
#define QW_WEIGHTS_H

#include "lib/model/dims.h"
#include "lib/weights/checkpoint.h"
#include "lib/weights/dtype.h"

/* A row-major tensor. data is aligned to its element, not more (64 bytes with WEIGHTS_READ). NULL: absent. */
typedef struct qw_weight {
    const void *data;
    int32_t dtype; /* QW_F32, QW_BF16 or QW_F16 */
    int32_t rank;
    int64_t shape[3];
} qw_weight;

typedef struct qw_expert_weights {
    qw_weight gate, up; /* [Im,H] */
    qw_weight down;     /* [H,Im] */
} qw_expert_weights;

typedef struct qw_layer_weights {
    qw_weight input_norm, post_norm; /* [H] */

    /* linear attention */
    qw_weight in_qkv;     /* [2 nk dk + nv dv, H] */
    qw_weight in_z;       /* [nv dv, H] */
    qw_weight in_b, in_a; /* [nv,H] */
    qw_weight conv;       /* [2 nk dk + nv dv, width] */
    qw_weight a_log;      /* [nv] */
    qw_weight dt_bias;    /* [nv] */
    qw_weight lin_norm;   /* [dv] */
    qw_weight out;        /* [H, nv dv] */

    /* full attention */
    qw_weight q;              /* [2 nh hd, H]: per head query, gate */
    qw_weight k, v;           /* [nkv hd, H] */
    qw_weight o;              /* [H, nh hd] */
    qw_weight q_norm, k_norm; /* [hd] */

    /* dense MLP */
    qw_weight gate, up; /* [I,H] */
    qw_weight down;     /* [H,I] */

    /* mixture of experts */
    qw_weight router;                           /* [E,H] */
    qw_weight shared_gate_proj, shared_up_proj; /* [S,H] */
    qw_weight shared_down_proj;                 /* [H,S] */
    qw_weight shared_gate;                      /* [1,H] */
    qw_expert_weights *experts;                 /* [E] */
    qw_weight fused_gate_up, fused_down;        /* what the experts point into, if the files have them so */
} qw_layer_weights;

typedef struct qw_region {
    const void *memory;
    size_t size;
    bool mapped; /* else allocated */
} qw_region;

typedef struct qw_weights {
    qw_weight embed;          /* [V,H] */
    qw_weight norm;           /* [H] */
    qw_weight head;           /* [V,H]; the same view as embed if tied */
    qw_layer_weights *layers; /* [L] */

    qw_allocator allocator;
    qw_expert_weights *experts; /* of all layers */
    qw_region *regions;
    size_t region_count, region_capacity;
} qw_weights;

/* Maps the page ranges of the bound tensors (QWEN36_WEIGHTS_MAP), or reads the tensors into memory
 * (QWEN36_WEIGHTS_READ), and fills the views. With MAP, a tensor whose data is not aligned to its element is
 * read into memory instead. A file that changed since it was opened is FILE_CHANGED. Progress counts bytes.
 * On failure *out is empty. */
qwen36_status qw_weights_bind(const qw_allocator *allocator, const qw_checkpoint *checkpoint, int32_t access,
                              qwen36_progress_fn progress, void *user, qw_weights *out, qwen36_error *error);
void qw_weights_release(qw_weights *weights);

/* Bytes that binding maps or reads. */
uint64_t qw_weights_bytes(const qw_checkpoint *checkpoint);

/* --- The list of tensors --------------------------------------------------------------------------- */

enum { QW_WEIGHT_NAME_MAX = 128 };

typedef struct qw_weight_spec {
    char name[QW_WEIGHT_NAME_MAX];
    int32_t rank; /* as stored */
    int64_t shape[3];
    int32_t layer;  /* -1: outside the layers */
    int32_t expert; /* -1: not of one expert */
    size_t field;   /* offset of its qw_weight in qw_weights, qw_layer_weights or qw_expert_weights */
} qw_weight_spec;

typedef qwen36_status (*qw_weight_visit)(void *user, const qw_weight_spec *spec);

/* Calls `visit` for every tensor that a model of these dimensions binds, in a fixed order; stops at the
 * first failure and returns it. */
qwen36_status qw_weights_visit(const qw_dims *dims, const char *prefix, bool fused_experts,
                               qw_weight_visit visit, void *user);

#endif
