/* THE SEAM between the model and the machine: buffers, views, one step's rows, and the op table.
 *
 * lib/model/forward.c calls these ops in the order of the architecture; a backend (kernels/cpu,
 * kernels/cuda) implements them. Ops are *model* operations: each has one argument struct of named
 * views. An op never allocates, never synchronises and decides no policy: scratch is sized when the
 * backend is opened, from qw_backend_config. Ops run in order on one stream, and may return before they have
 * run; only those with results on the host (read, logprob, sample), step_end and pace wait. The table is
 * interposable: a test wraps it to trace, to poison outputs, or to make the n-th op fail.
 *
 * Letters used in shapes, here and in the kernels:
 *   R rows of the step     H hidden          V vocabulary rows      I dense MLP width
 *   nh query heads         nkv KV heads      hd head dim            T tokens of context
 *   nk, nv linear key/value heads            dk, dv their dims      C = 2*nk*dk + nv*dv conv channels
 *   E experts              k experts per token                      Im, S expert / shared expert width
 *
 * Exactness (CPU): an output element is a function of its own inputs alone, in one fixed order of
 * additions, whatever R, the segments, the threads. Activations are float32 in every view; a backend
 * with `fast` numerics may round them inside an op, per row, never per tile.
 */
#ifndef QW_BACKEND_H
#define QW_BACKEND_H

#include "lib/base/base.h"
#include "lib/model/dims.h"
#include "lib/weights/dtype.h"

enum { QW_KV_BLOCK = 64 }; /* tokens of a KV block: also the chunk of the chunked DeltaNet form */

/* ---- memory ---------------------------------------------------------------------------------- */

enum { QW_SPACE_HOST = 0, QW_SPACE_DEVICE = 1 };
enum { QW_BUFFER_ALIGNMENT = 256 }; /* of a buffer's begin on a device */

typedef struct qw_buffer {
    void *base; /* an address in the memory space; only the backend dereferences it unless space is HOST */
    uint64_t bytes;
    int32_t space;
    int32_t owned; /* the backend frees it on buffer_destroy; imported memory is borrowed */
} qw_buffer;

/* A tensor in a buffer. Strides in elements; the last dimension is contiguous (stride 1). */
typedef struct qw_view {
    const qw_buffer *buffer; /* NULL: absent (an optional argument) */
    int64_t offset;          /* bytes */
    int32_t dtype;           /* QW_F32, QW_BF16, QW_F16 (lib/weights/dtype.h), QW_I32 */
    int32_t rank;
    int64_t shape[3];
    int64_t stride[3];
} qw_view;

static inline void *qw_view_data(const qw_view *view)
{
    return (char *)view->buffer->base + view->offset;
}

/* The KV cache of one full-attention layer. Element (block b, kind 0 K / 1 V, head h, token t, dim d):
 * base + layer_offset + b * block_stride + (((kind * nkv + h) * 64 + t) * hd + d) * element size.
 *
 * QW_I8: behind these 2 * nkv * 64 * hd bytes of the layer stand float32 scales [K,V][nkv][64], one for each
 * row of hd elements x, a token of a head (K after norm and rotation):
 *   scale = max|x| / 127;  element = x / scale to nearest even;  read back as element * scale.
 * One scale per row, so that it is a factor of a score or of a probability and no element needs its own. A
 * row of zeros has scale 0; a row with a NaN or an infinity has scale NaN, so all that is made of it is NaN.
 */
typedef struct qw_kv_view {
    const qw_buffer *buffer;
    int64_t layer_offset; /* bytes */
    int64_t block_stride; /* bytes */
    int32_t dtype;        /* QW_F32, QW_BF16 or QW_I8 */
} qw_kv_view;

/* Bytes of one row of the cache, its scale included: 2 * nkv * 64 rows are a layer's part of a block, always
 * a multiple of 128 bytes. */
static inline int64_t qw_kv_row_bytes(int32_t dtype, int64_t hd)
{
    return hd * qw_dtype_size(dtype) + (dtype == QW_I8 ? (int64_t)sizeof(float) : 0);
}

/* From the layer's part of a block to the scale of (kind, head, token), in bytes; QW_I8 only. */
static inline int64_t qw_kv_scale_offset(int64_t nkv, int64_t hd, int64_t kind, int64_t head, int64_t token)
{
    return 2 * nkv * QW_KV_BLOCK * hd + ((kind * nkv + head) * QW_KV_BLOCK + token) * (int64_t)sizeof(float);
}

/* The states of one linear layer: slot s begins at base + layer_offset + s * slot_stride (bytes).
 * delta: float32 [nv][dk][dv]. conv: float32 [width-1][C], oldest first, raw inputs. */
typedef struct qw_state_view {
    const qw_buffer *buffer;
    int64_t layer_offset;
    int64_t slot_stride;
} qw_state_view;

/* ---- one step's rows --------------------------------------------------------------------------- */

/* Consecutive rows of one sequence. */
typedef struct qw_segment {
    int32_t row_begin, row_count;
    int32_t position;    /* tokens of the sequence before row_begin; row i is token position + i */
    int32_t table;       /* its KV blocks: block_table[table + t / 64] holds token t */
    int32_t state_read;  /* state slot before the segment; -1: the zero state */
    int32_t write_begin; /* state_write[write_begin .. + write_count): rows ascending; the last one is */
    int32_t write_count; /*   always the segment's last row */
    int32_t reserved;
} qw_segment;

/* After computing `row`, the state is stored in `slot`. A slot is never read and written in one step. */
typedef struct qw_state_write {
    int32_t row, slot;
} qw_state_write;

/* All int32 arrays of a step lie in one block, so that a device backend copies it once. An array's
 * device copy stands at the same offset from `device` as the array from `host`. */
typedef struct qw_batch {
    int32_t rows, segments, writes, blocks;
    const int32_t *ids;                /* [R] token id */
    const int32_t *positions;          /* [3][R] T, H, W */
    const int32_t *kv_index;           /* [R] where K and V go: block * 64 + token % 64 */
    const qw_segment *segment;         /* [segments], rows ascending, without gaps */
    const qw_state_write *state_write; /* [writes] */
    const int32_t *block_table;        /* [blocks] */
    const int32_t *host;               /* begin of the block */
    uint64_t bytes;                    /* its size */
    const qw_buffer *device;
} qw_batch;

/* ---- op arguments ------------------------------------------------------------------------------ */

/* x[r] = table[ids[r]], widened to float32. */
typedef struct qw_embed_args {
    const qw_batch *batch;
    qw_view table; /* [V,H] */
    qw_view x;     /* out [R,H] */
} qw_embed_args;

/* x += add (if present; the residual add belongs to the next norm); then
 * y = x * (mean(x^2) + eps)^(-1/2) * (1 + weight), row by row; y absent: only the add. */
typedef struct qw_norm_args {
    qw_view x;      /* in/out [R,H] */
    qw_view add;    /* optional [R,H] */
    qw_view weight; /* [H] */
    qw_view y;      /* out [R,H] */
    float eps;
} qw_norm_args;

/* y[p] = x * w[p]^T for several weights over the same input. */
enum { QW_LINEAR_PARTS = 4 };
typedef struct qw_linear_args {
    qw_view x; /* [R,K] */
    int32_t parts;
    qw_view w[QW_LINEAR_PARTS]; /* [N_p,K] */
    qw_view y[QW_LINEAR_PARTS]; /* out [R,N_p] */
} qw_linear_args;

/* Per head: q = rms1(q part of qg, q_norm), k = rms1(k, k_norm); rotation of the first rotary_dim dims
 * (pairs j, j + rotary_dim/2; angle = position[axis[j]] * inv_freq[j] in float32; cos and sin times
 * rope_scale); k and v go to the cache in its dtype. */
typedef struct qw_attn_prepare_args {
    const qw_batch *batch;
    qw_view qg;             /* [R, nh * 2 * hd]: per head query ‖ gate */
    qw_view k, v;           /* [R, nkv * hd] */
    qw_view q_norm, k_norm; /* [hd] */
    qw_view q;              /* out [R, nh * hd] */
    qw_kv_view cache;       /* out */
    const float *inv_freq;  /* host [rotary_dim / 2] */
    const uint8_t *axis;    /* host [rotary_dim / 2]: 0 T, 1 H, 2 W */
    float rope_scale;
    float eps;
} qw_attn_prepare_args;

/* o = softmax(q K^T / sqrt(hd)) V * sigmoid(gate), causal: row at position p sees tokens 0..p of its
 * sequence, K and V read from the cache (also those of rows of this step). Query head h reads KV head
 * h / (nh / nkv). Every 64-token block forms (max, sum, accumulator) with its own maximum; the merge has
 * one fixed order, whatever the rows and threads. */
typedef struct qw_attention_args {
    const qw_batch *batch;
    qw_view q;  /* [R, nh * hd] */
    qw_view qg; /* [R, nh * 2 * hd]: the gate halves are read */
    qw_kv_view cache;
    qw_view o; /* out [R, nh * hd] */
} qw_attention_args;

/* Causal depthwise convolution with SiLU over the sequence, the state giving what lies before the
 * segment: c_t = silu(sum_j w[ch][j] * u_{t-width+1+j}), j ascending. Writes the last width-1 inputs at
 * each state_write. */
typedef struct qw_conv_args {
    const qw_batch *batch;
    qw_view u;      /* [R,C] */
    qw_view weight; /* [C,width] */
    qw_state_view state;
    qw_view c; /* out [R,C] */
} qw_conv_args;

/* Gated delta rule, token by token in order, float32 (value head h uses key head h / (nv / nk)):
 *   beta = sigmoid(b); g = -exp(a_log) * softplus(a + dt_bias)
 *   q = q / sqrt(sum q^2 + 1e-6) / sqrt(dk); k = k / sqrt(sum k^2 + 1e-6)
 *   S = e^g S; r = S^T k; d = beta (v - r); S = S + k d^T; o = S^T q */
typedef struct qw_delta_args {
    const qw_batch *batch;
    qw_view c;              /* [R,C]: q [nk,dk] ‖ k [nk,dk] ‖ v [nv,dv] */
    qw_view a, b;           /* [R,nv] */
    qw_view a_log, dt_bias; /* [nv] */
    qw_state_view state;
    qw_view o; /* out [R, nv * dv] */
} qw_delta_args;

/* y = weight * o * (mean(o^2) + eps)^(-1/2) * silu(z), per value head over dv. */
typedef struct qw_gated_norm_args {
    qw_view o;      /* [R, nv * dv] */
    qw_view z;      /* [R, nv * dv] */
    qw_view weight; /* [dv] */
    qw_view y;      /* out [R, nv * dv]; may be o */
    float eps;
} qw_gated_norm_args;

/* softmax over E, the k largest (ties: lowest expert), renormalised to sum 1, descending. */
typedef struct qw_route_args {
    qw_view logits;  /* [R,E] */
    qw_view ids;     /* out int32 [R,k] */
    qw_view weights; /* out [R,k] */
} qw_route_args;

typedef struct qw_expert_view {
    qw_view gate, up; /* [Im,H] */
    qw_view down;     /* [H,Im] */
} qw_expert_view;

/* y[r] = sum over j (in the router's order) of weights[r][j] * mlp_{ids[r][j]}(x[r]). */
typedef struct qw_experts_args {
    qw_view x;       /* [R,H] */
    qw_view ids;     /* int32 [R,k] */
    qw_view weights; /* [R,k] */
    int32_t experts;
    const qw_expert_view *expert; /* host [E] */
    qw_view y;                    /* out [R,H] */
} qw_experts_args;

/* m = down * (silu(gate * x) * (up * x)); with row_gate: m *= sigmoid(row_gate * x);
 * accumulate: y += m, else y = m. */
typedef struct qw_mlp_args {
    qw_view x;        /* [R,H] */
    qw_view gate, up; /* [I,H] */
    qw_view down;     /* [H,I] */
    qw_view row_gate; /* optional [1,H] */
    int32_t accumulate;
    qw_view y; /* [R,H] */
} qw_mlp_args;

/* logits[out_row[i]] = w * x[in_row[i]]; columns >= live are -infinity. */
typedef struct qw_head_args {
    qw_view x; /* [R,H] */
    qw_view w; /* [V,H] */
    int32_t count;
    const int32_t *in_row;  /* host [count] */
    const int32_t *out_row; /* host [count] */
    int32_t live;           /* columns with a token */
    qw_view logits;         /* out [..,V] */
} qw_head_args;

/* Row statuses of logprob and sample: QWEN36_OK, NON_FINITE (a NaN or +infinity among the logits, or
 * nothing finite), NO_CANDIDATE. */

/* logprob[i] = log softmax(logits[row[i]])[token[i]]; results on the host. */
typedef struct qw_logprob_args {
    qw_view logits; /* [..,V] */
    int32_t count;
    const int32_t *row;   /* host [count] */
    const int32_t *token; /* host [count] */
    float *logprob;       /* host out [count] */
    int32_t *status;      /* host out [count] */
} qw_logprob_args;

/* One row to sample; every pointer is to host memory. */
typedef struct qw_sample_row {
    int32_t row; /* of logits */
    int32_t top_k;
    float temperature, top_p, min_p;
    float repetition, presence, frequency;
    int32_t logprobs; /* -1 none, 0 the chosen token's, n also the n largest */
    int32_t biases;
    double uniform;        /* the draw, in [0, 1) */
    const int32_t *tokens; /* the timeline, for the penalties */
    int64_t token_count;
    int64_t output_begin;      /* tokens from here on are "output" */
    const uint32_t *bitmask;   /* [ceil(V/32)] or NULL */
    const int32_t *bias_token; /* [biases] */
    const float *bias;         /* [biases] */
    /* results */
    int32_t status;
    int32_t token;
    float logprob;
    int32_t *top_token; /* [logprobs] */
    float *top_logprob; /* [logprobs] */
    int32_t top_count;
} qw_sample_row;

/* The order of qwen36.h section 9: bitmask, bias, penalties, temperature, top_k, top_p, min_p, draw.
 * temperature 0 or top_k 1: the largest (ties: lowest id). The draw walks the kept tokens in ascending
 * id. Log-probs are of the unmodified logits. */
typedef struct qw_sample_args {
    qw_view logits; /* [..,V] */
    int32_t live;   /* columns with a token */
    int32_t count;
    qw_sample_row *row; /* host [count] */
} qw_sample_args;

/* Copies between places of one buffer that do not overlap: KV blocks that become private. */
typedef struct qw_copy {
    uint64_t from, to, bytes;
} qw_copy;

typedef struct qw_copy_args {
    const qw_buffer *buffer;
    int32_t count;
    const qw_copy *copy; /* host [count] */
} qw_copy_args;

/* ---- the table ----------------------------------------------------------------------------------- */

typedef struct qw_backend qw_backend;

typedef struct qw_ops {
    /* memory */
    qwen36_status (*buffer_create)(qw_backend *, uint64_t bytes, int32_t space, qw_buffer *out);
    void (*buffer_destroy)(qw_backend *, qw_buffer *);
    /* Host memory that stays valid while the buffer lives (weights): aliased or uploaded. */
    qwen36_status (*import)(qw_backend *, const void *host, uint64_t bytes, qw_buffer *out);
    qwen36_status (*step_begin)(qw_backend *, const qw_batch *); /* the batch's arrays reach the device */
    qwen36_status (*step_end)(qw_backend *);                     /* everything issued has finished */
    /* A layer is about to be issued. The host may be ahead of a device by a few layers, not by a whole step,
     * so that an interrupt finds something not yet issued: this waits for one of the layers before. */
    qwen36_status (*pace)(qw_backend *);
    /* Host memory from and to a place of a buffer, after all that was issued before; done when it returns. */
    qwen36_status (*read)(qw_backend *, const qw_buffer *, uint64_t offset, void *host, uint64_t bytes);
    qwen36_status (*write)(qw_backend *, const qw_buffer *, uint64_t offset, const void *host,
                           uint64_t bytes);
    /* operations */
    qwen36_status (*copy)(qw_backend *, const qw_copy_args *);
    qwen36_status (*embed)(qw_backend *, const qw_embed_args *);
    qwen36_status (*norm)(qw_backend *, const qw_norm_args *);
    qwen36_status (*linear)(qw_backend *, const qw_linear_args *);
    qwen36_status (*attn_prepare)(qw_backend *, const qw_attn_prepare_args *);
    qwen36_status (*attention)(qw_backend *, const qw_attention_args *);
    qwen36_status (*conv)(qw_backend *, const qw_conv_args *);
    qwen36_status (*delta)(qw_backend *, const qw_delta_args *);
    qwen36_status (*gated_norm)(qw_backend *, const qw_gated_norm_args *);
    qwen36_status (*route)(qw_backend *, const qw_route_args *);
    qwen36_status (*experts)(qw_backend *, const qw_experts_args *);
    qwen36_status (*mlp)(qw_backend *, const qw_mlp_args *);
    qwen36_status (*head)(qw_backend *, const qw_head_args *);
    qwen36_status (*logprob)(qw_backend *, const qw_logprob_args *);
    qwen36_status (*sample)(qw_backend *, qw_sample_args *);
    void (*destroy)(qw_backend *); /* accepts a half-opened backend */
} qw_ops;

struct qw_backend {
    const qw_ops *ops;
    void *self;        /* the backend's own state */
    int32_t space;     /* of its buffers: HOST where device memory is the host's */
    uint32_t revision; /* grows when results may differ from now on: a kernel was refused, another serves;
                          `name` has changed then too */
    int32_t cpu_tier;  /* QWEN36_CPU_* in force; 0 for another backend */
    int32_t threads;
    uint64_t scratch_bytes;
    char name[48]; /* e.g. "cpu/avx512/fast": part of the numerics id */
};

typedef struct qw_backend_config {
    const qw_allocator *allocator;
    const qw_log *log;
    const qw_dims *dims;
    int32_t numerics;      /* QWEN36_NUMERICS_* */
    int32_t kv_dtype;      /* QW_F32, QW_BF16 or QW_I8 */
    int32_t cpu_tier;      /* QWEN36_CPU_*; AUTO: the best */
    int32_t threads;       /* workers including the caller */
    int32_t max_rows;      /* R of one step */
    int32_t max_segments;  /* segments of one step */
    int32_t max_head_rows; /* count of head, logprob and sample */
    int32_t max_context;   /* tokens of one sequence */
    int32_t device;
    int32_t device_tier;     /* QWEN36_DEVICE_TIER_* */
    int32_t batch_invariant; /* 1: no row's result depends on the rows beside it */
    uint64_t device_bytes;   /* all buffers and imports that will be asked for, each rounded up to
                                QW_BUFFER_ALIGNMENT: taken at once when the backend is opened */
} qw_backend_config;

/* Backends are constructors with distinct names; the build decides which one the library opens. On
 * failure nothing stays allocated. scratch_bytes(config) is what open would allocate. */
qwen36_status qw_cpu_backend_open(const qw_backend_config *config, qw_backend *out, qwen36_error *error);
uint64_t qw_cpu_backend_scratch_bytes(const qw_backend_config *config);

/* The one that this build opens (kernels/<backend>/). */
qwen36_status qw_backend_open(const qw_backend_config *config, qw_backend *out, qwen36_error *error);
/* What buffers and scratch may take of the memory that nobody has taken, at least 1; 0: they come from the
 * process's own. */
qwen36_status qw_backend_free_bytes(int32_t device, uint64_t *bytes, qwen36_error *error);
uint64_t qw_backend_scratch_bytes(const qw_backend_config *config);
const char *qw_backend_name(void);

#endif
