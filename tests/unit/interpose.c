#include "tests/unit/interpose.h"

#include "lib/weights/dtype.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- regions ---------------------------------------------------------------------------------------- */

static void *grown(void *memory, size_t bytes)
{
    memory = realloc(memory, bytes);
    if (memory == NULL)
        abort();
    return memory;
}

static interpose_region *add_region(interposer *self, char *base, int64_t rows, int64_t columns,
                                    int64_t stride, int32_t dtype)
{
    if (self->region_count == self->region_capacity) {
        self->region_capacity = 2 * self->region_capacity + 16;
        self->regions = grown(self->regions, self->region_capacity * sizeof *self->regions);
    }
    interpose_region *region = &self->regions[self->region_count++];
    *region = (interpose_region){base, rows, columns, stride, dtype, false};
    return region;
}

static interpose_region *add_view(interposer *self, const qw_view *view)
{
    const int64_t size = qw_dtype_size(view->dtype);
    return add_region(self, qw_view_data(view), view->shape[0], view->shape[1], view->stride[0] * size,
                      view->dtype);
}

static bool same_place(const qw_view *a, const qw_view *b)
{
    return a->buffer->base == b->buffer->base && a->offset == b->offset;
}

static size_t row_bytes(const interpose_region *region)
{
    return (size_t)region->columns * (size_t)qw_dtype_size(region->dtype);
}

/* Packs all regions into `packed`, or unpacks it into them. */
static void copy_regions(interposer *self, char *packed, bool pack)
{
    for (size_t i = 0; i < self->region_count; i++)
        for (int64_t r = 0; r < self->regions[i].rows; r++) {
            const size_t bytes = row_bytes(&self->regions[i]);
            char *row = self->regions[i].base + r * self->regions[i].stride;
            memcpy(pack ? packed : row, pack ? row : packed, bytes);
            packed += bytes;
        }
}

static void reserve_packed(interposer *self)
{
    size_t total = 0;
    for (size_t i = 0; i < self->region_count; i++)
        total += (size_t)self->regions[i].rows * row_bytes(&self->regions[i]);
    if (total <= self->packed_capacity)
        return;
    self->packed_capacity = 2 * total;
    self->saved = grown(self->saved, self->packed_capacity);
    self->judged = grown(self->judged, self->packed_capacity);
}

/* With `poison`. All bits one: a NaN in each float format, -1 as an integer. */
static void poison_regions(interposer *self)
{
    for (size_t i = 0; i < self->region_count; i++)
        for (int64_t r = 0; r < self->regions[i].rows && self->poison && !self->regions[i].updated; r++)
            memset(self->regions[i].base + r * self->regions[i].stride, 0xFF, row_bytes(&self->regions[i]));
}

/* ---- comparison -------------------------------------------------------------------------------------- */

static double element(const char *row, int32_t dtype, int64_t index)
{
    if (dtype == QW_I32)
        return ((const int32_t *)(const void *)row)[index];
    if (dtype == QW_F32)
        return (double)((const float *)(const void *)row)[index];
    if (dtype == QW_I8)
        return (double)((const int8_t *)(const void *)row)[index];
    uint32_t bits = (uint32_t)((const uint16_t *)(const void *)row)[index] << 16;
    float value;
    memcpy(&value, &bits, sizeof value);
    return (double)value;
}

/* How far a row may be from the judge's: rounded to fewer bits, an element may go the other way. */
static double bound_of(const interposer *self, int32_t dtype)
{
    switch (dtype) {
    case QW_I32:
        return 0;
    case QW_BF16:
        return fmax(self->bound, 0x1p-7);
    case QW_I8:
        return 1.0 / 127;
    default:
        return self->bound;
    }
}

/* max |a - b| / max |b|; infinite where only one is not finite, or where they are different infinities. */
static double row_difference(const char *a, const char *b, const interpose_region *region)
{
    double most = 0, scale = 0;
    for (int64_t i = 0; i < region->columns; i++) {
        const double x = element(a, region->dtype, i), y = element(b, region->dtype, i);
        if (x == y || (isnan(x) && isnan(y)))
            continue;
        if (!isfinite(x) || !isfinite(y))
            return (double)INFINITY;
        most = fmax(most, fabs(x - y));
    }
    for (int64_t i = 0; i < region->columns; i++)
        if (isfinite(element(b, region->dtype, i)))
            scale = fmax(scale, fabs(element(b, region->dtype, i)));
    return most == 0 ? 0 : most / scale;
}

static void note_difference(interposer *self, const char *name, size_t region, int64_t row, double difference)
{
    if (self->differences++ == 0)
        snprintf(self->message, sizeof self->message, "call %ld, %s: output %zu, row %lld differs by %g",
                 self->calls, name, region, (long long)row, difference);
}

static void compare_regions(interposer *self, const char *name)
{
    const char *expected = self->judged;
    for (size_t i = 0; i < self->region_count; i++) {
        const interpose_region *region = &self->regions[i];
        for (int64_t r = 0; r < region->rows; r++) {
            const double difference = row_difference(region->base + r * region->stride, expected, region);
            const double bound = bound_of(self, region->dtype);
            if (difference > self->worst && region->dtype != QW_BF16 && region->dtype != QW_I8) {
                self->worst = difference;
                self->worst_name = name;
            }
            if (!(difference <= bound))
                note_difference(self, name, i, r, difference);
            expected += row_bytes(region);
        }
    }
}

/* ---- what each operation writes ------------------------------------------------------------------------ */

static void outputs_embed(interposer *self, const qw_embed_args *args)
{
    add_view(self, &args->x);
}

static void outputs_norm(interposer *self, const qw_norm_args *args)
{
    add_view(self, &args->x)->updated = true;
    if (args->y.buffer != NULL)
        add_view(self, &args->y)->updated = same_place(&args->x, &args->y);
}

static void outputs_copy(interposer *self, const qw_copy_args *args)
{
    for (int32_t i = 0; i < args->count; i++)
        add_region(self, (char *)args->buffer->base + args->copy[i].to, 1, (int64_t)args->copy[i].bytes / 4,
                   (int64_t)args->copy[i].bytes, QW_I32);
}

static void outputs_linear(interposer *self, const qw_linear_args *args)
{
    for (int32_t p = 0; p < args->parts; p++)
        add_view(self, &args->y[p]);
}

static void outputs_attn_prepare(interposer *self, const qw_attn_prepare_args *args)
{
    const int64_t hd = self->dims.head_dim, heads = self->dims.kv_heads;
    const int64_t size = qw_dtype_size(args->cache.dtype);
    add_view(self, &args->q);
    for (int32_t r = 0; r < args->batch->rows; r++) {
        const int64_t block = args->batch->kv_index[r] / QW_KV_BLOCK,
                      token = args->batch->kv_index[r] % QW_KV_BLOCK;
        char *base =
            (char *)args->cache.buffer->base + args->cache.layer_offset + block * args->cache.block_stride;
        add_region(self, base + token * hd * size, 2 * heads, hd, QW_KV_BLOCK * hd * size, args->cache.dtype);
        if (args->cache.dtype == QW_I8)
            add_region(self, base + qw_kv_scale_offset(heads, hd, 0, 0, token), 2 * heads, 1,
                       QW_KV_BLOCK * (int64_t)sizeof(float), QW_F32);
    }
}

static void outputs_attention(interposer *self, const qw_attention_args *args)
{
    add_view(self, &args->o);
}

/* One region of `rows` x `columns` floats per state written. */
static void outputs_states(interposer *self, const qw_batch *batch, const qw_state_view *state, int64_t rows,
                           int64_t columns)
{
    for (int32_t i = 0; i < batch->writes; i++)
        add_region(self,
                   (char *)state->buffer->base + state->layer_offset +
                       batch->state_write[i].slot * state->slot_stride,
                   rows, columns, columns * (int64_t)sizeof(float), QW_F32);
}

static void outputs_conv(interposer *self, const qw_conv_args *args)
{
    add_view(self, &args->c);
    outputs_states(self, args->batch, &args->state, self->dims.conv_width - 1, args->u.shape[1]);
}

/* A state is compared head by head. */
static void outputs_delta(interposer *self, const qw_delta_args *args)
{
    const qw_dims *d = &self->dims;
    add_view(self, &args->o);
    outputs_states(self, args->batch, &args->state, d->lin_v_heads, (int64_t)d->lin_k_dim * d->lin_v_dim);
}

static void outputs_gated_norm(interposer *self, const qw_gated_norm_args *args)
{
    add_view(self, &args->y)->updated = same_place(&args->o, &args->y);
}

static void outputs_route(interposer *self, const qw_route_args *args)
{
    add_view(self, &args->ids);
    add_view(self, &args->weights);
}

static void outputs_experts(interposer *self, const qw_experts_args *args)
{
    add_view(self, &args->y);
}

static void outputs_mlp(interposer *self, const qw_mlp_args *args)
{
    add_view(self, &args->y)->updated = args->accumulate != 0;
}

static void outputs_head(interposer *self, const qw_head_args *args)
{
    const int64_t stride = args->logits.stride[0] * (int64_t)sizeof(float);
    for (int32_t i = 0; i < args->count; i++)
        add_region(self, (char *)qw_view_data(&args->logits) + args->out_row[i] * stride, 1,
                   args->logits.shape[1], stride, QW_F32);
}

static void outputs_logprob(interposer *self, const qw_logprob_args *args)
{
    add_region(self, (char *)args->logprob, args->count, 1, sizeof(float), QW_F32);
    add_region(self, (char *)args->status, args->count, 1, sizeof(int32_t), QW_I32);
}

static void outputs_sample(interposer *self, const qw_sample_args *args)
{
    for (int32_t i = 0; i < args->count; i++) {
        qw_sample_row *row = &args->row[i];
        add_region(self, (char *)&row->status, 1, 1, sizeof(int32_t), QW_I32);
        add_region(self, (char *)&row->token, 1, 1, sizeof(int32_t), QW_I32);
        if (row->logprobs < 0)
            continue;
        add_region(self, (char *)&row->logprob, 1, 1, sizeof(float), QW_F32);
        add_region(self, (char *)row->top_token, row->logprobs, 1, sizeof(int32_t), QW_I32);
        add_region(self, (char *)row->top_logprob, row->logprobs, 1, sizeof(float), QW_F32);
    }
}

/* ---- calls --------------------------------------------------------------------------------------------- */

static interposer *self_of(qw_backend *backend)
{
    return backend->self;
}

/* Counts and traces; false if this call is to fail. */
static bool enter(interposer *self, const char *name)
{
    self->calls++;
    self->region_count = 0;
    if (self->tracing) {
        if (self->trace_count == self->trace_capacity) {
            self->trace_capacity = 2 * self->trace_capacity + 64;
            self->trace = grown(self->trace, self->trace_capacity * sizeof *self->trace);
        }
        self->trace[self->trace_count++] = name;
    }
    return self->fail_at == 0 || self->calls < self->fail_at ||
           (self->calls > self->fail_at && !self->fail_forever);
}

/* The judge works in place; then its results are put aside and the memory is as before. */
#define OPERATION(name, arguments)                                                                           \
    static qwen36_status name(qw_backend *backend, arguments *args)                                          \
    {                                                                                                        \
        interposer *self = self_of(backend);                                                                 \
        const bool works = enter(self, #name);                                                               \
        outputs_##name(self, args);                                                                          \
        qwen36_status status = QWEN36_OK;                                                                    \
        if (works && self->judge != NULL) {                                                                  \
            reserve_packed(self);                                                                            \
            copy_regions(self, self->saved, true);                                                           \
            poison_regions(self);                                                                            \
            status = self->judge->ops->name(self->judge, args);                                              \
            copy_regions(self, self->judged, true);                                                          \
            copy_regions(self, self->saved, false);                                                          \
        }                                                                                                    \
        poison_regions(self);                                                                                \
        if (!works || status != QWEN36_OK)                                                                   \
            return works ? status : QWEN36_ERROR_DEVICE;                                                     \
        status = self->inner.ops->name(&self->inner, args);                                                  \
        if (status == QWEN36_OK && self->judge != NULL)                                                      \
            compare_regions(self, #name);                                                                    \
        return status;                                                                                       \
    }

OPERATION(copy, const qw_copy_args)
OPERATION(embed, const qw_embed_args)
OPERATION(norm, const qw_norm_args)
OPERATION(linear, const qw_linear_args)
OPERATION(attn_prepare, const qw_attn_prepare_args)
OPERATION(attention, const qw_attention_args)
OPERATION(conv, const qw_conv_args)
OPERATION(delta, const qw_delta_args)
OPERATION(gated_norm, const qw_gated_norm_args)
OPERATION(route, const qw_route_args)
OPERATION(experts, const qw_experts_args)
OPERATION(mlp, const qw_mlp_args)
OPERATION(head, const qw_head_args)
OPERATION(logprob, const qw_logprob_args)
OPERATION(sample, qw_sample_args)

static qwen36_status step_begin(qw_backend *backend, const qw_batch *batch)
{
    interposer *self = self_of(backend);
    return enter(self, "step_begin") ? self->inner.ops->step_begin(&self->inner, batch) : QWEN36_ERROR_DEVICE;
}

static qwen36_status step_end(qw_backend *backend)
{
    interposer *self = self_of(backend);
    return enter(self, "step_end") ? self->inner.ops->step_end(&self->inner) : QWEN36_ERROR_DEVICE;
}

static qwen36_status buffer_create(qw_backend *backend, uint64_t bytes, int32_t space, qw_buffer *out)
{
    interposer *self = self_of(backend);
    return self->inner.ops->buffer_create(&self->inner, bytes, space, out);
}

static void buffer_destroy(qw_backend *backend, qw_buffer *buffer)
{
    interposer *self = self_of(backend);
    self->inner.ops->buffer_destroy(&self->inner, buffer);
}

static qwen36_status import(qw_backend *backend, const void *host, uint64_t bytes, qw_buffer *out)
{
    interposer *self = self_of(backend);
    return self->inner.ops->import(&self->inner, host, bytes, out);
}

static qwen36_status read_buffer(qw_backend *backend, const qw_buffer *buffer, uint64_t offset, void *host,
                                 uint64_t bytes)
{
    interposer *self = self_of(backend);
    return self->inner.ops->read(&self->inner, buffer, offset, host, bytes);
}

static qwen36_status write_buffer(qw_backend *backend, const qw_buffer *buffer, uint64_t offset,
                                  const void *host, uint64_t bytes)
{
    interposer *self = self_of(backend);
    return self->inner.ops->write(&self->inner, buffer, offset, host, bytes);
}

static void destroy(qw_backend *backend)
{
    interposer *self = self_of(backend);
    self->inner.ops->destroy(&self->inner);
    memset(&self->inner, 0, sizeof self->inner);
    memset(backend, 0, sizeof *backend);
}

/* No operation: it computes nothing, and is not counted. */
static qwen36_status pace(qw_backend *backend)
{
    interposer *self = backend->self;
    return self->inner.ops->pace(&self->inner);
}

static const qw_ops interposed_ops = {
    .buffer_create = buffer_create,
    .buffer_destroy = buffer_destroy,
    .import = import,
    .step_begin = step_begin,
    .step_end = step_end,
    .pace = pace,
    .read = read_buffer,
    .write = write_buffer,
    .copy = copy,
    .embed = embed,
    .norm = norm,
    .linear = linear,
    .attn_prepare = attn_prepare,
    .attention = attention,
    .conv = conv,
    .delta = delta,
    .gated_norm = gated_norm,
    .route = route,
    .experts = experts,
    .mlp = mlp,
    .head = head,
    .logprob = logprob,
    .sample = sample,
    .destroy = destroy,
};

/* ---- life ---------------------------------------------------------------------------------------------- */

void interpose(interposer *self, qw_backend *backend, const qw_dims *dims)
{
    memset(self, 0, sizeof *self);
    self->inner = *backend;
    self->dims = *dims;
    self->bound = 1e-4;
    backend->ops = &interposed_ops;
    backend->self = self;
}

void interpose_end(interposer *self, qw_backend *backend)
{
    if (self->inner.ops != NULL)
        *backend = self->inner;
    free(self->trace);
    free(self->regions);
    free(self->saved);
    free(self->judged);
    memset(self, 0, sizeof *self);
}

void interpose_forget(interposer *self)
{
    self->trace_count = 0;
}
