/* Matrix products: linear, the gated MLP, router, experts, and the head. */
#include "kernels/reference/internal.h"

#include <math.h>

/* y[p] = x * w[p]^T */
qwen36_status qw_ref_linear(qw_backend *backend, const qw_linear_args *args)
{
    (void)backend;
    const int64_t depth = args->x.shape[1];
    for (int32_t p = 0; p < args->parts; p++)
        for (int64_t r = 0; r < args->x.shape[0]; r++)
            for (int64_t n = 0; n < args->w[p].shape[0]; n++)
                qw_ref_row(&args->y[p], r)[n] =
                    (float)qw_ref_dot(&args->w[p], n, qw_ref_row(&args->x, r), depth);
    return QWEN36_OK;
}

/* inner[i] = silu(gate[i] * x) * (up[i] * x); sum[c] += scale * (down[c] * inner) */
static void add_mlp(qw_reference *self, const qw_expert_view *w, const float *x, double scale, double *sum)
{
    double *inner = self->line;
    const int64_t width = w->gate.shape[0], hidden = w->down.shape[0];
    for (int64_t i = 0; i < width; i++)
        inner[i] = qw_ref_silu(qw_ref_dot(&w->gate, i, x, hidden)) * qw_ref_dot(&w->up, i, x, hidden);
    for (int64_t c = 0; c < hidden; c++) {
        double total = 0;
        for (int64_t i = 0; i < width; i++)
            total += (double)qw_ref_get(&w->down, c, i) * inner[i];
        sum[c] += scale * total;
    }
}

/* m = down * (silu(gate * x) * (up * x)) * sigmoid(row_gate * x); y = m or y += m */
qwen36_status qw_ref_mlp(qw_backend *backend, const qw_mlp_args *args)
{
    qw_reference *self = qw_ref_self(backend);
    const qw_expert_view w = {args->gate, args->up, args->down};
    const int64_t hidden = args->x.shape[1];
    for (int64_t r = 0; r < args->x.shape[0]; r++) {
        const float *x = qw_ref_row(&args->x, r);
        float *y = qw_ref_row(&args->y, r);
        double scale = 1;
        if (qw_ref_present(&args->row_gate))
            scale = qw_ref_sigmoid(qw_ref_dot(&args->row_gate, 0, x, hidden));
        for (int64_t c = 0; c < hidden; c++)
            self->other[c] = args->accumulate ? (double)y[c] : 0;
        add_mlp(self, &w, x, scale, self->other);
        for (int64_t c = 0; c < hidden; c++)
            y[c] = (float)self->other[c];
    }
    return QWEN36_OK;
}

/* The largest logit not yet taken (ties: lowest expert). */
static int32_t best_expert(const float *logits, int64_t experts, const int32_t *taken, int64_t count)
{
    int32_t best = -1;
    for (int32_t e = 0; e < experts; e++) {
        bool free = true;
        for (int64_t j = 0; j < count; j++)
            free = free && taken[j] != e;
        if (free && (best < 0 || logits[e] > logits[best]))
            best = e;
    }
    return best;
}

/* p = softmax(logits); the k largest; weights[j] = p[ids[j]] / sum of those p */
qwen36_status qw_ref_route(qw_backend *backend, const qw_route_args *args)
{
    (void)backend;
    const int64_t experts = args->logits.shape[1], k = args->ids.shape[1];
    for (int64_t r = 0; r < args->logits.shape[0]; r++) {
        const float *logits = qw_ref_row(&args->logits, r);
        int32_t *ids = qw_ref_row_int(&args->ids, r);
        float *weights = qw_ref_row(&args->weights, r);
        for (int64_t j = 0; j < k; j++)
            ids[j] = best_expert(logits, experts, ids, j);
        double sum = 0;
        for (int64_t j = 0; j < k; j++)
            sum += exp((double)logits[ids[j]] - (double)logits[ids[0]]);
        for (int64_t j = 0; j < k; j++)
            weights[j] = (float)(exp((double)logits[ids[j]] - (double)logits[ids[0]]) / sum);
    }
    return QWEN36_OK;
}

/* y = sum over j of weights[j] * mlp_{ids[j]}(x) */
qwen36_status qw_ref_experts(qw_backend *backend, const qw_experts_args *args)
{
    qw_reference *self = qw_ref_self(backend);
    const int64_t hidden = args->x.shape[1];
    for (int64_t r = 0; r < args->x.shape[0]; r++) {
        const int32_t *ids = qw_ref_row_int(&args->ids, r);
        for (int64_t c = 0; c < hidden; c++)
            self->other[c] = 0;
        for (int64_t j = 0; j < args->ids.shape[1]; j++) {
            if (ids[j] < 0 || ids[j] >= args->experts)
                return QWEN36_ERROR_ARGUMENT;
            add_mlp(self, &args->expert[ids[j]], qw_ref_row(&args->x, r),
                    (double)qw_ref_row(&args->weights, r)[j], self->other);
        }
        for (int64_t c = 0; c < hidden; c++)
            qw_ref_row(&args->y, r)[c] = (float)self->other[c];
    }
    return QWEN36_OK;
}

/* logits[out_row[i]] = w * x[in_row[i]]; -infinity from column `live` on */
qwen36_status qw_ref_head(qw_backend *backend, const qw_head_args *args)
{
    (void)backend;
    for (int32_t i = 0; i < args->count; i++) {
        const float *x = qw_ref_row(&args->x, args->in_row[i]);
        float *logits = qw_ref_row(&args->logits, args->out_row[i]);
        for (int64_t v = 0; v < args->logits.shape[1]; v++)
            logits[v] = v < args->live ? (float)qw_ref_dot(&args->w, v, x, args->x.shape[1]) : -INFINITY;
    }
    return QWEN36_OK;
}
