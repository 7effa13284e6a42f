/* The CUDA backend's own state, and what its operations share on the host side. Every operation is a function
 * qw_cuda_<op> of the seam's arguments that issues launches on one stream and returns; kernels are beside it
 * in <op>.cu. */
#ifndef QW_CUDA_CUDA_H
#define QW_CUDA_CUDA_H

#include "kernels/cuda/runtime.h"

extern "C" {
#include "lib/plan/plan.h"
}

/* A run of one sequence's rows that a block takes: of attention, convolution, or one chunk of the delta rule.
 */
struct qw_tile {
    int32_t segment, row_begin, row_count, last; /* last: 1 for the last tile of its segment */
};

/* Where the tables lie that step_begin makes of a batch: device addresses. */
struct qw_cuda_tables {
    qw_attention_plan attention;
    int32_t attention_tiles, chunks;
    const qw_tile *attention_tile; /* rows of one block of attention */
    const qw_tile *chunk; /* rows up to a multiple of 64, to a stored state, or to the segment's end */
};

/* Weights of one expert on the device. */
struct qw_expert_weight {
    const void *data;
    int64_t stride; /* elements */
    int32_t dtype, reserved;
};
struct qw_expert_weights {
    qw_expert_weight gate, up, down;
};

/* The expert tables of all layers, each uploaded when it is first seen. A table is known by its views'
 * contents. */
struct qw_expert_tables {
    int32_t most, used, next;  /* next: which one is given up when there are more layers than tables */
    qw_expert_weights *host;   /* pinned [most][E] */
    qw_expert_weights *device; /* [most][E] */
};

/* Weights travel through two pieces of pinned memory: one is on its way while the other is filled. */
enum { QW_STAGES = 2, QW_STAGE_BYTES = 8 << 20 };
struct qw_cuda_staging {
    unsigned char *memory; /* pinned [QW_STAGES][QW_STAGE_BYTES] */
    qw_event sent[QW_STAGES];
    int32_t next;
};

/* How far the host may be ahead of the device: an event per layer, the oldest is waited for. */
enum { QW_LAYERS_AHEAD = 4 };
struct qw_cuda_pace {
    qw_event passed[QW_LAYERS_AHEAD];
    uint32_t layers; /* since the step began */
};

struct qw_cuda {
    const qw_allocator *allocator;
    qw_backend_config config;
    qw_dims dims;
    int32_t outside;           /* what qw_runtime_enter found in the calling thread; -1: unknown */
    qw_device_profile profile; /* its `disabled` grows while the backend lives */
    uint32_t named_for;        /* the `disabled` of the backend's name */
    uint64_t refusals;         /* launches and products that were refused, another row having served */
    qw_stream stream;
    unsigned char *arena; /* all device memory: scratch first, then what buffers and imports took */
    uint64_t arena_bytes, arena_used;
    qw_blas *blas;          /* null: products are all our own */
    unsigned char *scratch; /* on the device: shared by the ops, which run one after another */
    uint64_t scratch_bytes;
    qw_cuda_staging staged;
    qw_cuda_pace pace;
    qw_tile *staging;      /* pinned host memory [2 max_rows]: the tables on their way */
    qw_tile *device_tiles; /* [2 max_rows] */
    qw_cuda_tables tables;
    qw_expert_tables experts;
};

static inline qw_cuda *qw_cuda_of(qw_backend *backend)
{
    return static_cast<qw_cuda *>(backend->self);
}

/* ---- views ------------------------------------------------------------------------------------------- */

template <typename T> static inline T *qw_data(const qw_view &view)
{
    return static_cast<T *>(qw_view_data(&view));
}

static inline bool qw_present(const qw_view &view)
{
    return view.buffer != nullptr;
}

/* The device's copy of an array of the batch. */
template <typename T> static inline const T *qw_on_device(const qw_batch *batch, const T *array)
{
    const char *base = static_cast<const char *>(batch->device->base);
    return reinterpret_cast<const T *>(
        base + (reinterpret_cast<const char *>(array) - reinterpret_cast<const char *>(batch->host)));
}

/* Names a weight's element type to a generic function: f(qw_weight_type<W>()) sees decltype(type)::element.
 */
template <typename W> struct qw_weight_type {
    typedef W element;
};

template <typename F> static inline qwen36_status qw_with_weight(int32_t dtype, F f)
{
    switch (dtype) {
    case QW_BF16:
        return f(qw_weight_type<qw_bf16>());
    case QW_F16:
        return f(qw_weight_type<qw_f16>());
    default:
        return f(qw_weight_type<float>());
    }
}

static inline unsigned qw_blocks(int64_t count, int64_t per_block)
{
    return static_cast<unsigned>((count + per_block - 1) / per_block);
}

static inline uint64_t qw_cuda_round_up(uint64_t bytes)
{
    return (bytes + QW_BUFFER_ALIGNMENT - 1) / QW_BUFFER_ALIGNMENT * QW_BUFFER_ALIGNMENT;
}

/* ---- scratch ----------------------------------------------------------------------------------------- */

enum { QW_CUDA_ALIGNMENT = 256 };

/* Carves the scratch of an op; with base null it counts. */
struct qw_cuda_scratch {
    unsigned char *base;
    uint64_t used;

    template <typename T> T *take(int64_t count)
    {
        T *begin = reinterpret_cast<T *>(base + used);
        const uint64_t bytes = static_cast<uint64_t>(count) * sizeof(T);
        used += (bytes + QW_CUDA_ALIGNMENT - 1) / QW_CUDA_ALIGNMENT * QW_CUDA_ALIGNMENT;
        return begin;
    }
};

/* ---- operations -------------------------------------------------------------------------------------- */

extern "C" {

/* The backend: state, memory and table for config->device (backend.cu). */
qwen36_status qw_cuda_backend_open(const qw_backend_config *config, qw_backend *out, qwen36_error *error);
/* Opens the state alone, for a device with this profile; destroy accepts what failed half way. */
qwen36_status qw_cuda_create(const qw_backend_config *config, const qw_device_profile *profile,
                             qw_backend *out, qwen36_error *error);
void qw_cuda_destroy(qw_backend *backend);
uint64_t qw_cuda_scratch_bytes(const qw_backend_config *config);
/* Device memory for all but buffers, imports and a library's workspace. */
uint64_t qw_cuda_own_bytes(const qw_backend_config *config);

/* Memory (memory.cu): pieces of the arena, pinned host memory; copies. */
qwen36_status qw_cuda_memory_open(qw_cuda *cuda, qwen36_error *error);
void qw_cuda_memory_close(qw_cuda *cuda);
/* What a failure to get `bytes` while opening says. */
qwen36_status qw_cuda_fail_opening(qwen36_error *error, qwen36_status status, uint64_t bytes);
/* A piece of the arena, aligned to QW_BUFFER_ALIGNMENT; null when it is used up. */
void *qw_cuda_take(qw_cuda *cuda, uint64_t bytes);
qwen36_status qw_cuda_buffer_create(qw_backend *, uint64_t bytes, int32_t space, qw_buffer *out);
void qw_cuda_buffer_destroy(qw_backend *, qw_buffer *);
qwen36_status qw_cuda_import(qw_backend *, const void *host, uint64_t bytes, qw_buffer *out);
qwen36_status qw_cuda_read(qw_backend *, const qw_buffer *, uint64_t offset, void *host, uint64_t bytes);
qwen36_status qw_cuda_write(qw_backend *, const qw_buffer *, uint64_t offset, const void *host,
                            uint64_t bytes);
qwen36_status qw_cuda_copy(qw_backend *, const qw_copy_args *);
/* Tries every row that the profile enables beside the portable ones, for this model's heads and cache,
 * against the general row on small data; one that is refused or does not agree is logged and out of use.
 * Before the first step. QWEN36_ERROR_OUT_OF_MEMORY, QWEN36_ERROR_DEVICE_LOST; anything else is a reason to
 * disable a row. */
qwen36_status qw_cuda_probe(qw_cuda *cuda);
/* The rows out of use, as bits (qw_plan_bit), and how many launches, and products of the library, were
 * refused so far. */
uint32_t qw_cuda_disabled(const qw_backend *backend);
uint64_t qw_cuda_refusals(const qw_backend *backend);

/* The batch's arrays and the tables made of them reach the device. */
qwen36_status qw_cuda_step_begin(qw_backend *, const qw_batch *);
qwen36_status qw_cuda_step_end(qw_backend *);
qwen36_status qw_cuda_pace_layer(qw_backend *);

qwen36_status qw_cuda_embed(qw_backend *, const qw_embed_args *);
qwen36_status qw_cuda_norm(qw_backend *, const qw_norm_args *);
qwen36_status qw_cuda_gated_norm(qw_backend *, const qw_gated_norm_args *);
qwen36_status qw_cuda_linear(qw_backend *, const qw_linear_args *);
qwen36_status qw_cuda_mlp(qw_backend *, const qw_mlp_args *);
qwen36_status qw_cuda_head(qw_backend *, const qw_head_args *);
qwen36_status qw_cuda_route(qw_backend *, const qw_route_args *);
qwen36_status qw_cuda_experts(qw_backend *, const qw_experts_args *);
qwen36_status qw_cuda_conv(qw_backend *, const qw_conv_args *);
qwen36_status qw_cuda_delta(qw_backend *, const qw_delta_args *);
qwen36_status qw_cuda_attn_prepare(qw_backend *, const qw_attn_prepare_args *);
qwen36_status qw_cuda_attention(qw_backend *, const qw_attention_args *);
/* These two wait: their results are the host's. */
qwen36_status qw_cuda_logprob(qw_backend *, const qw_logprob_args *);
qwen36_status qw_cuda_sample(qw_backend *, qw_sample_args *);
}

/* Bytes of scratch that an op may need with this configuration. */
uint64_t qw_cuda_linear_scratch_bytes(const qw_backend_config *config);
uint64_t qw_cuda_mlp_scratch_bytes(const qw_backend_config *config);
uint64_t qw_cuda_head_scratch_bytes(const qw_backend_config *config);
uint64_t qw_cuda_experts_scratch_bytes(const qw_backend_config *config);
uint64_t qw_cuda_delta_scratch_bytes(const qw_backend_config *config);
uint64_t qw_cuda_attention_scratch_bytes(const qw_backend_config *config);
uint64_t qw_cuda_logprob_scratch_bytes(const qw_backend_config *config);
uint64_t qw_cuda_sample_scratch_bytes(const qw_backend_config *config);

/* Takes a row of a plan's table out of use from the next plan on, with a line in the log the first time. */
void qw_cuda_disable(qw_cuda *cuda, uint32_t row, const char *why);
/* The same for a launch that was refused, which is counted. */
void qw_cuda_refused(qw_cuda *cuda, uint32_t row);

uint64_t qw_cuda_expert_table_bytes(const qw_backend_config *config);

/* Memory for the expert tables; close accepts what was never opened. */
qwen36_status qw_cuda_experts_open(qw_cuda *cuda);
void qw_cuda_experts_close(qw_cuda *cuda);

/* Copies host integers to the device in stream order, through kernel arguments: no staging buffer to wait
 * for. */
qwen36_status qw_cuda_put_ints(qw_cuda *cuda, int32_t *to, const int32_t *from, int64_t count);

#endif
