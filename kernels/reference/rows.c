/* Operations on single rows: embedding, RMS norm, gated RMS norm. */
#include "kernels/reference/internal.h"

#include <math.h>

/* (mean(x^2) + eps)^(-1/2) */
static double inverse_rms(const float *x, int64_t count, double eps)
{
    double squares = 0;
    for (int64_t i = 0; i < count; i++)
        squares += (double)x[i] * (double)x[i];
    return 1 / sqrt(squares / (double)count + eps);
}

/* x[r] = table[ids[r]] */
qwen36_status qw_ref_embed(qw_backend *backend, const qw_embed_args *args)
{
    (void)backend;
    for (int32_t r = 0; r < args->batch->rows; r++) {
        float *x = qw_ref_row(&args->x, r);
        for (int64_t i = 0; i < args->table.shape[1]; i++)
            x[i] = qw_ref_get(&args->table, args->batch->ids[r], i);
    }
    return QWEN36_OK;
}

/* x += add; y = x * (mean(x^2) + eps)^(-1/2) * (1 + weight) */
qwen36_status qw_ref_norm(qw_backend *backend, const qw_norm_args *args)
{
    (void)backend;
    const int64_t width = args->x.shape[1];
    for (int64_t r = 0; r < args->x.shape[0]; r++) {
        float *x = qw_ref_row(&args->x, r);
        if (qw_ref_present(&args->add))
            for (int64_t i = 0; i < width; i++)
                x[i] += qw_ref_get(&args->add, r, i);
        if (!qw_ref_present(&args->y))
            continue;
        float *y = qw_ref_row(&args->y, r);
        const double scale = inverse_rms(x, width, (double)args->eps);
        for (int64_t i = 0; i < width; i++)
            y[i] = (float)((double)x[i] * scale * (1 + (double)qw_ref_get(&args->weight, 0, i)));
    }
    return QWEN36_OK;
}

/* y = weight * o * (mean(o^2) + eps)^(-1/2) * silu(z), over the dv values of each head */
qwen36_status qw_ref_gated_norm(qw_backend *backend, const qw_gated_norm_args *args)
{
    (void)backend;
    const int64_t dv = args->weight.shape[0];
    for (int64_t r = 0; r < args->o.shape[0]; r++)
        for (int64_t begin = 0; begin < args->o.shape[1]; begin += dv) {
            const float *o = qw_ref_row(&args->o, r) + begin;
            const float *z = qw_ref_row(&args->z, r) + begin;
            float *y = qw_ref_row(&args->y, r) + begin;
            const double scale = inverse_rms(o, dv, (double)args->eps);
            for (int64_t i = 0; i < dv; i++) {
                double w = (double)qw_ref_get(&args->weight, 0, i);
                y[i] = (float)(w * (double)o[i] * scale * qw_ref_silu((double)z[i]));
            }
        }
    return QWEN36_OK;
}
