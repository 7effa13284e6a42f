/* What the files of the reference backend share: element access through views, and scratch.
 *
 * Inputs of any float dtype are read one element at a time (qw_ref_get); outputs of operations are
 * float32 and written through qw_ref_row.
 */
#ifndef QW_REFERENCE_INTERNAL_H
#define QW_REFERENCE_INTERNAL_H

#include "kernels/reference/reference.h"

/* A token under consideration by the sampler. */
typedef struct qw_ref_token {
    float logit; /* after mask, bias and penalties */
    int32_t id;
    double weight; /* exp((logit - largest) / temperature) */
} qw_ref_token;

typedef struct qw_reference {
    qw_allocator allocator;
    qw_dims dims;
    int32_t max_context;
    double *line, *other; /* [width] each: one row of anything */
    float *state;         /* [dk,dv]: the state of one value head */
    qw_ref_token *tokens; /* [V] */
    int32_t *seen;        /* [V]: occurrences of a token; zero between calls */
} qw_reference;

static inline qw_reference *qw_ref_self(const qw_backend *backend)
{
    return backend->self;
}

/* ---- views (views.c) ---- */

float qw_ref_load(const void *base, int32_t dtype, int64_t index);
void qw_ref_store(void *base, int32_t dtype, int64_t index, float value);
/* Element (row, column); a view of rank 1 has row 0 only. */
float qw_ref_get(const qw_view *view, int64_t row, int64_t column);
/* Row of a float32 view. */
float *qw_ref_row(const qw_view *view, int64_t row);
int32_t *qw_ref_row_int(const qw_view *view, int64_t row);
static inline bool qw_ref_present(const qw_view *view)
{
    return view->buffer != NULL;
}
/* sum_i matrix[row][i] * x[i] */
double qw_ref_dot(const qw_view *matrix, int64_t row, const float *x, int64_t count);

/* ---- functions of one number (views.c) ---- */

double qw_ref_sigmoid(double x);
double qw_ref_silu(double x);
double qw_ref_softplus(double x);

/* ---- states (delta.c) ---- */

float *qw_ref_slot(const qw_state_view *state, int32_t slot);
/* out = x / sqrt(sum x^2 + 1e-6) * scale */
void qw_ref_unit(const float *x, int64_t count, double scale, double *out);

/* ---- operations ---- */

qwen36_status qw_ref_embed(qw_backend *backend, const qw_embed_args *args);
qwen36_status qw_ref_norm(qw_backend *backend, const qw_norm_args *args);
qwen36_status qw_ref_gated_norm(qw_backend *backend, const qw_gated_norm_args *args);
qwen36_status qw_ref_linear(qw_backend *backend, const qw_linear_args *args);
qwen36_status qw_ref_mlp(qw_backend *backend, const qw_mlp_args *args);
qwen36_status qw_ref_route(qw_backend *backend, const qw_route_args *args);
qwen36_status qw_ref_experts(qw_backend *backend, const qw_experts_args *args);
qwen36_status qw_ref_head(qw_backend *backend, const qw_head_args *args);
qwen36_status qw_ref_attn_prepare(qw_backend *backend, const qw_attn_prepare_args *args);
qwen36_status qw_ref_attention(qw_backend *backend, const qw_attention_args *args);
qwen36_status qw_ref_conv(qw_backend *backend, const qw_conv_args *args);
qwen36_status qw_ref_delta(qw_backend *backend, const qw_delta_args *args);
qwen36_status qw_ref_logprob(qw_backend *backend, const qw_logprob_args *args);
qwen36_status qw_ref_sample(qw_backend *backend, qw_sample_args *args);

#endif
