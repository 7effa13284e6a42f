/* The CPU backend's own state, and what its ops share. Each op is one file, `<op>.c`, with
 *     qwen36_status qw_cpu_<op>(qw_backend *, const qw_<op>_args *);
 *     uint64_t qw_cpu_<op>_scratch_bytes(const qw_backend_config *);   if it needs scratch
 * and is entered in the tables of backend.c.
 *
 * Scratch: ops run one after another, so all of them use the same block, whose size is the largest need.
 * An op carves it anew in each call with qw_scratch_take, in the order in which its _scratch_bytes counted
 * (qw_scratch_round for each piece). Nothing in it survives the call. */
#ifndef QW_CPU_H
#define QW_CPU_H

#include "kernels/cpu/kernels.h"
#include "kernels/cpu/pool.h"
#include "lib/backend.h"

typedef struct qw_cpu {
    const qw_allocator *allocator;
    const qw_dims *dims;
    const qw_cpu_kernels *kernels;
    qw_dot_fn *dot_bf16; /* FAST numerics on a processor with BF16 products, else NULL */
    qw_pool *pool;
    void *scratch;
    uint64_t scratch_bytes;
    qw_backend_config config;
} qw_cpu;

static inline qw_cpu *qw_cpu_of(qw_backend *backend)
{
    return backend->self;
}

/* ---- scratch ------------------------------------------------------------------------------------- */

static inline uint64_t qw_scratch_round(uint64_t bytes)
{
    return (bytes + QW_ALIGNMENT - 1) / QW_ALIGNMENT * QW_ALIGNMENT;
}

typedef struct qw_scratch {
    char *next;
    uint64_t left;
} qw_scratch;

static inline qw_scratch qw_scratch_begin(const qw_cpu *cpu)
{
    return (qw_scratch){cpu->scratch, cpu->scratch_bytes};
}
/* NULL when the op asks for more than its _scratch_bytes announced. */
static inline void *qw_scratch_take(qw_scratch *scratch, uint64_t bytes)
{
    uint64_t rounded = qw_scratch_round(bytes);
    if (rounded > scratch->left)
        return NULL;
    void *piece = scratch->next;
    scratch->next += rounded;
    scratch->left -= rounded;
    return piece;
}

/* ---- views --------------------------------------------------------------------------------------- */

/* Row `row` of a float32 view, and of an int32 view. */
static inline float *qw_view_row(const qw_view *view, int64_t row)
{
    return (float *)qw_view_data(view) + row * view->stride[0];
}
static inline int32_t *qw_view_row_i32(const qw_view *view, int64_t row)
{
    return (int32_t *)qw_view_data(view) + row * view->stride[0];
}

/* ---- ops ----------------------------------------------------------------------------------------- */

qwen36_status qw_cpu_embed(qw_backend *, const qw_embed_args *);
qwen36_status qw_cpu_norm(qw_backend *, const qw_norm_args *);
qwen36_status qw_cpu_linear(qw_backend *, const qw_linear_args *);
qwen36_status qw_cpu_attn_prepare(qw_backend *, const qw_attn_prepare_args *);
qwen36_status qw_cpu_attention(qw_backend *, const qw_attention_args *);
qwen36_status qw_cpu_conv(qw_backend *, const qw_conv_args *);
qwen36_status qw_cpu_delta(qw_backend *, const qw_delta_args *);
qwen36_status qw_cpu_gated_norm(qw_backend *, const qw_gated_norm_args *);
qwen36_status qw_cpu_route(qw_backend *, const qw_route_args *);
qwen36_status qw_cpu_experts(qw_backend *, const qw_experts_args *);
qwen36_status qw_cpu_mlp(qw_backend *, const qw_mlp_args *);
qwen36_status qw_cpu_head(qw_backend *, const qw_head_args *);
qwen36_status qw_cpu_logprob(qw_backend *, const qw_logprob_args *);
qwen36_status qw_cpu_sample(qw_backend *, qw_sample_args *);

/* Bytes of the shared scratch that an op may need with this configuration. */
uint64_t qw_cpu_norm_scratch_bytes(const qw_backend_config *config);
uint64_t qw_cpu_linear_scratch_bytes(const qw_backend_config *config);
uint64_t qw_cpu_attn_prepare_scratch_bytes(const qw_backend_config *config);
uint64_t qw_cpu_attention_scratch_bytes(const qw_backend_config *config);
uint64_t qw_cpu_conv_scratch_bytes(const qw_backend_config *config);
uint64_t qw_cpu_delta_scratch_bytes(const qw_backend_config *config);
uint64_t qw_cpu_gated_norm_scratch_bytes(const qw_backend_config *config);
uint64_t qw_cpu_route_scratch_bytes(const qw_backend_config *config);
uint64_t qw_cpu_experts_scratch_bytes(const qw_backend_config *config);
uint64_t qw_cpu_mlp_scratch_bytes(const qw_backend_config *config);
uint64_t qw_cpu_head_scratch_bytes(const qw_backend_config *config);
uint64_t qw_cpu_logprob_scratch_bytes(const qw_backend_config *config);
uint64_t qw_cpu_sample_scratch_bytes(const qw_backend_config *config);

#endif
