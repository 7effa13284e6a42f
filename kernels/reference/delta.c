/* Linear attention: causal convolution and the gated delta rule, with their states. */
#include "kernels/reference/internal.h"

#include <math.h>
#include <string.h>

float *qw_ref_slot(const qw_state_view *state, int32_t slot)
{
    return (float *)((char *)state->buffer->base + state->layer_offset + slot * state->slot_stride);
}

/* ---- convolution ---- */

/* Input `i` rows after the segment's first; what lies before it comes from the state read. */
static float conv_input(const qw_conv_args *args, const qw_segment *segment, int64_t i, int64_t channel)
{
    const int64_t before = args->weight.shape[args->weight.rank - 1] - 1;
    if (i >= 0)
        return qw_ref_row(&args->u, segment->row_begin + i)[channel];
    if (segment->state_read < 0)
        return 0;
    return qw_ref_slot(&args->state, segment->state_read)[(before + i) * args->u.shape[1] + channel];
}

/* c_t = silu(sum_j w[j] * u_{t - width + 1 + j}) */
static void convolve_row(const qw_conv_args *args, const qw_segment *segment, int64_t i)
{
    const int64_t width = args->weight.shape[args->weight.rank - 1];
    float *c = qw_ref_row(&args->c, segment->row_begin + i);
    for (int64_t ch = 0; ch < args->u.shape[1]; ch++) {
        double sum = 0;
        for (int64_t j = 0; j < width; j++)
            sum += (double)qw_ref_get(&args->weight, ch, j) *
                   (double)conv_input(args, segment, i - width + 1 + j, ch);
        c[ch] = (float)qw_ref_silu(sum);
    }
}

/* The last width - 1 inputs, oldest first. */
static void store_inputs(const qw_conv_args *args, const qw_segment *segment, const qw_state_write *write)
{
    const int64_t before = args->weight.shape[args->weight.rank - 1] - 1, channels = args->u.shape[1];
    const int64_t first = write->row - segment->row_begin - before + 1;
    float *out = qw_ref_slot(&args->state, write->slot);
    for (int64_t j = 0; j < before; j++)
        for (int64_t ch = 0; ch < channels; ch++)
            out[j * channels + ch] = conv_input(args, segment, first + j, ch);
}

qwen36_status qw_ref_conv(qw_backend *backend, const qw_conv_args *args)
{
    (void)backend;
    for (int32_t s = 0; s < args->batch->segments; s++) {
        const qw_segment *segment = &args->batch->segment[s];
        for (int32_t w = 0; w < segment->write_count; w++)
            store_inputs(args, segment, &args->batch->state_write[segment->write_begin + w]);
        for (int32_t i = 0; i < segment->row_count; i++)
            convolve_row(args, segment, i);
    }
    return QWEN36_OK;
}

/* ---- delta rule ---- */

void qw_ref_unit(const float *x, int64_t count, double scale, double *out)
{
    double squares = 0;
    for (int64_t i = 0; i < count; i++)
        squares += (double)x[i] * (double)x[i];
    for (int64_t i = 0; i < count; i++)
        out[i] = (double)x[i] / sqrt(squares + 1e-6) * scale;
}

/* One token: S = e^g S; r = S^T k; S = S + k (beta (v - r))^T; o = S^T q. The state is rounded to float32
 * once per token, so that cutting a sequence anywhere changes nothing. */
static void delta_token(qw_reference *self, const double *q, const double *k, const float *v, double decay,
                        double beta, float *o)
{
    const int32_t dk = self->dims.lin_k_dim, dv = self->dims.lin_v_dim;
    for (int32_t j = 0; j < dv; j++) {
        double r = 0, read = 0;
        for (int32_t i = 0; i < dk; i++)
            r += decay * (double)self->state[i * dv + j] * k[i];
        const double change = beta * ((double)v[j] - r);
        for (int32_t i = 0; i < dk; i++) {
            float *element = &self->state[i * dv + j];
            *element = (float)(decay * (double)*element + k[i] * change);
            read += (double)*element * q[i];
        }
        o[j] = (float)read;
    }
}

/* Value head `head` of one row. */
static void delta_row(qw_reference *self, const qw_delta_args *args, int64_t row, int64_t head)
{
    const qw_dims *dims = &self->dims;
    const int64_t nk = dims->lin_k_heads, dk = dims->lin_k_dim, dv = dims->lin_v_dim;
    const int64_t key_head = head / (dims->lin_v_heads / nk);
    const float *c = qw_ref_row(&args->c, row);
    const double a = (double)qw_ref_get(&args->a, row, head), b = (double)qw_ref_get(&args->b, row, head);
    const double g = -exp((double)qw_ref_get(&args->a_log, 0, head)) *
                     qw_ref_softplus(a + (double)qw_ref_get(&args->dt_bias, 0, head));
    qw_ref_unit(c + key_head * dk, dk, 1 / sqrt((double)dk), self->line);
    qw_ref_unit(c + (nk + key_head) * dk, dk, 1, self->other);
    delta_token(self, self->line, self->other, c + 2 * nk * dk + head * dv, exp(g), qw_ref_sigmoid(b),
                qw_ref_row(&args->o, row) + head * dv);
}

static void delta_segment(qw_reference *self, const qw_delta_args *args, const qw_segment *segment,
                          int64_t head)
{
    const size_t size = (size_t)self->dims.lin_k_dim * (size_t)self->dims.lin_v_dim;
    const size_t begin = (size_t)head * size;
    const qw_state_write *write = args->batch->state_write + segment->write_begin;
    const qw_state_write *end = write + segment->write_count;
    if (segment->state_read >= 0)
        memcpy(self->state, qw_ref_slot(&args->state, segment->state_read) + begin, size * sizeof(float));
    else
        memset(self->state, 0, size * sizeof(float));
    for (int32_t i = 0; i < segment->row_count; i++) {
        delta_row(self, args, segment->row_begin + i, head);
        for (; write < end && write->row == segment->row_begin + i; write++)
            memcpy(qw_ref_slot(&args->state, write->slot) + begin, self->state, size * sizeof(float));
    }
}

qwen36_status qw_ref_delta(qw_backend *backend, const qw_delta_args *args)
{
    qw_reference *self = qw_ref_self(backend);
    for (int32_t s = 0; s < args->batch->segments; s++)
        for (int32_t h = 0; h < self->dims.lin_v_heads; h++)
            delta_segment(self, args, &args->batch->segment[s], h);
    return QWEN36_OK;
}
