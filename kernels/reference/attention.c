/* Full attention: preparation of q, k, v, and the causal softmax with its output gate. */
#include "kernels/reference/internal.h"

#include <math.h>
#include <string.h>

/* Element (block, kind, head, token, dim) of the cache. */
static void *cache_block(const qw_kv_view *cache, int64_t block)
{
    return (char *)cache->buffer->base + cache->layer_offset + block * cache->block_stride;
}

static int64_t cache_index(const qw_dims *dims, int64_t kind, int64_t head, int64_t token, int64_t dim)
{
    return ((kind * dims->kv_heads + head) * QW_KV_BLOCK + token) * dims->head_dim + dim;
}

/* out = x * (mean(x^2) + eps)^(-1/2) * (1 + weight) */
static void norm_head(const float *x, const qw_view *weight, int64_t count, double eps, double *out)
{
    double squares = 0;
    for (int64_t i = 0; i < count; i++)
        squares += (double)x[i] * (double)x[i];
    const double scale = 1 / sqrt(squares / (double)count + eps);
    for (int64_t i = 0; i < count; i++)
        out[i] = (double)x[i] * scale * (1 + (double)qw_ref_get(weight, 0, i));
}

/* For each pair (j, j + half): x[j] = x[j] c - x[j + half] s; x[j + half] = x[j + half] c + x[j] s, with
 * angle = position[axis[j]] * inv_freq[j], a float32 product. */
static void rotate_head(const qw_attn_prepare_args *args, int32_t row, int32_t rotary_dim, double *x)
{
    const int32_t half = rotary_dim / 2;
    for (int32_t j = 0; j < half; j++) {
        int32_t position = args->batch->positions[args->axis[j] * args->batch->rows + row];
        float angle = (float)position * args->inv_freq[j];
        double c = cos((double)angle) * (double)args->rope_scale;
        double s = sin((double)angle) * (double)args->rope_scale;
        double low = x[j], high = x[j + half];
        x[j] = low * c - high * s;
        x[j + half] = high * c + low * s;
    }
}

static void prepare_query(qw_reference *self, const qw_attn_prepare_args *args, int32_t row, int32_t head)
{
    const int32_t hd = self->dims.head_dim;
    norm_head(qw_ref_row(&args->qg, row) + (int64_t)head * 2 * hd, &args->q_norm, hd, (double)args->eps,
              self->line);
    rotate_head(args, row, self->dims.rotary_dim, self->line);
    for (int32_t d = 0; d < hd; d++)
        qw_ref_row(&args->q, row)[(int64_t)head * hd + d] = (float)self->line[d];
}

/* The scale of a row of 8-bit integers, NaN if an element is not finite. */
static float row_scale(const double *x, int64_t count)
{
    float largest = 0;
    for (int64_t d = 0; d < count; d++) {
        if (!isfinite((float)x[d]))
            return NAN;
        largest = fmaxf(largest, fabsf((float)x[d]));
    }
    return largest / 127;
}

/* Rounds K or V of one token and head into the cache's format. */
static void store_row(const qw_attn_prepare_args *args, const qw_dims *dims, void *block, int64_t kind,
                      int64_t head, int64_t token, const double *x)
{
    const int32_t dtype = args->cache.dtype;
    const float scale = dtype == QW_I8 ? row_scale(x, dims->head_dim) : 1;
    for (int64_t d = 0; d < dims->head_dim; d++)
        qw_ref_store(block, dtype, cache_index(dims, kind, head, token, d),
                     dtype != QW_I8 || scale > 0 ? (float)x[d] / scale : 0);
    if (dtype == QW_I8)
        memcpy((char *)block + qw_kv_scale_offset(dims->kv_heads, dims->head_dim, kind, head, token), &scale,
               sizeof scale);
}

static void prepare_key_value(qw_reference *self, const qw_attn_prepare_args *args, int32_t row, int32_t head)
{
    const int32_t hd = self->dims.head_dim, index = args->batch->kv_index[row];
    void *block = cache_block(&args->cache, index / QW_KV_BLOCK);
    const int32_t token = index % QW_KV_BLOCK;
    norm_head(qw_ref_row(&args->k, row) + (int64_t)head * hd, &args->k_norm, hd, (double)args->eps,
              self->line);
    rotate_head(args, row, self->dims.rotary_dim, self->line);
    store_row(args, &self->dims, block, 0, head, token, self->line);
    for (int32_t d = 0; d < hd; d++)
        self->line[d] = (double)qw_ref_row(&args->v, row)[(int64_t)head * hd + d];
    store_row(args, &self->dims, block, 1, head, token, self->line);
}

qwen36_status qw_ref_attn_prepare(qw_backend *backend, const qw_attn_prepare_args *args)
{
    qw_reference *self = qw_ref_self(backend);
    for (int32_t r = 0; r < args->batch->rows; r++) {
        for (int32_t h = 0; h < self->dims.heads; h++)
            prepare_query(self, args, r, h);
        for (int32_t h = 0; h < self->dims.kv_heads; h++)
            prepare_key_value(self, args, r, h);
    }
    return QWEN36_OK;
}

/* One row and one query head. */
typedef struct head_task {
    const qw_attention_args *args;
    const qw_dims *dims;
    const int32_t *table; /* the sequence's KV blocks */
    int64_t row, head, tokens;
} head_task;

/* Element `dim` of the K (kind 0) or V (kind 1) that belongs to the task's head. */
static double cached(const head_task *task, int64_t kind, int64_t token, int64_t dim)
{
    const qw_kv_view *cache = &task->args->cache;
    const int64_t kv_head = task->head / (task->dims->heads / task->dims->kv_heads);
    const int64_t index = cache_index(task->dims, kind, kv_head, token % QW_KV_BLOCK, dim);
    const char *block = cache_block(cache, task->table[token / QW_KV_BLOCK]);
    float scale = 1;
    if (cache->dtype == QW_I8)
        memcpy(&scale,
               block + qw_kv_scale_offset(task->dims->kv_heads, task->dims->head_dim, kind, kv_head,
                                          token % QW_KV_BLOCK),
               sizeof scale);
    return (double)qw_ref_load(block, cache->dtype, index) * (double)scale;
}

/* p = softmax over the tokens of q k / sqrt(hd) */
static void probabilities(const head_task *task, double *p)
{
    const int64_t hd = task->dims->head_dim;
    const float *q = qw_ref_row(&task->args->q, task->row) + task->head * hd;
    double largest = -(double)INFINITY, sum = 0;
    for (int64_t t = 0; t < task->tokens; t++) {
        p[t] = 0;
        for (int64_t d = 0; d < hd; d++)
            p[t] += (double)q[d] * cached(task, 0, t, d);
        p[t] /= sqrt((double)hd);
        largest = fmax(largest, p[t]);
    }
    for (int64_t t = 0; t < task->tokens; t++)
        sum += p[t] = exp(p[t] - largest);
    for (int64_t t = 0; t < task->tokens; t++)
        p[t] /= sum;
}

/* o = (sum_t p[t] v[t]) * sigmoid(gate) */
static void attend(const head_task *task, double *p)
{
    const int64_t hd = task->dims->head_dim;
    const float *gate = qw_ref_row(&task->args->qg, task->row) + task->head * 2 * hd + hd;
    float *o = qw_ref_row(&task->args->o, task->row) + task->head * hd;
    probabilities(task, p);
    for (int64_t d = 0; d < hd; d++) {
        double sum = 0;
        for (int64_t t = 0; t < task->tokens; t++)
            sum += p[t] * cached(task, 1, t, d);
        o[d] = (float)(sum * qw_ref_sigmoid((double)gate[d]));
    }
}

qwen36_status qw_ref_attention(qw_backend *backend, const qw_attention_args *args)
{
    qw_reference *self = qw_ref_self(backend);
    for (int32_t s = 0; s < args->batch->segments; s++) {
        const qw_segment *segment = &args->batch->segment[s];
        if (segment->position + segment->row_count > self->max_context)
            return QWEN36_ERROR_ARGUMENT;
        for (int32_t i = 0; i < segment->row_count; i++)
            for (int32_t h = 0; h < self->dims.heads; h++) {
                head_task task = {args,
                                  &self->dims,
                                  args->batch->block_table + segment->table,
                                  segment->row_begin + i,
                                  h,
                                  (int64_t)segment->position + i + 1};
                attend(&task, self->line);
            }
    }
    return QWEN36_OK;
}
