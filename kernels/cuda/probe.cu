/* Probes: before the first step, every row that needs more than the general ones computes small generated
 * data beside the general row. One that is refused, or whose numbers differ by more than rounding its inputs
 * to BF16 explains, is out of use for this model.
 *
 * The operations run as they will later, but on a state of their own (qw_cuda_create with small dimensions,
 * the model's heads and cache), so that neither the model's scratch nor its limits matter. Sizes are no
 * multiples of a kernel's tiles. */
#include "kernels/cuda/cuda.h"

#include <math.h>
#include <string.h>

enum {
    ROWS = 70,
    WIDTH = 72,  /* H */
    INNER = 88,  /* I and Im */
    EXPERTS = 3, /* expert 0 is everybody's choice: more slots than a tile has */
    CHOICES = 2,
    TABLE = ROWS / QW_KV_BLOCK + 1,
    INTS = 5 * ROWS + TABLE + static_cast<int>(sizeof(qw_segment) / sizeof(int32_t))
};

/* Of a product of two roundings, and of attention: relative to the largest element. */
#define PRODUCT_BOUND 0x1p-6F
#define ATTENTION_BOUND 0x1p-5F

struct lab {
    qw_dims dims;
    qw_backend_config config;
    qw_backend backend;
    unsigned char *memory; /* of the device: what stands below it, one after another */
    float *input;          /* numbers for every float argument */
    qw_bf16 *weight;
    float *q, *y[2];
    unsigned char *cache;
    int32_t *ints;
    float *host; /* as much as the largest of these */
    int64_t inputs, weights, outputs;
    uint64_t cache_bytes;
};

static qw_cuda *cuda_of(lab *l)
{
    return qw_cuda_of(&l->backend);
}

/* ---- material ---------------------------------------------------------------------------------------- */

static void set_dims(lab *l, const qw_cuda *model)
{
    const qw_dims *d = &model->dims;
    l->dims.layers = 1;
    l->dims.hidden = WIDTH;
    l->dims.intermediate = l->dims.expert_size = INNER;
    l->dims.experts = EXPERTS;
    l->dims.top_k = CHOICES;
    l->dims.kv_heads = QW_MIN(2, d->kv_heads);
    l->dims.heads = l->dims.kv_heads * (d->heads / QW_MAX(1, d->kv_heads));
    l->dims.head_dim = d->head_dim;
    l->config = model->config;
    l->config.dims = &l->dims;
    l->config.log = nullptr;
    l->config.max_rows = ROWS;
    l->config.max_segments = l->config.max_head_rows = 1;
    l->config.max_context = 2 * QW_KV_BLOCK;
    l->config.device_bytes = 0;
    const int64_t head_floats = int64_t{l->dims.heads} * d->head_dim;
    l->inputs = ROWS * QW_MAX(int64_t{WIDTH}, 2 * head_floats);
    l->weights = QW_MAX(int64_t{EXPERTS} * 3 * INNER * WIDTH, int64_t{d->head_dim});
    l->outputs = ROWS * QW_MAX(int64_t{WIDTH}, head_floats);
    l->cache_bytes = static_cast<uint64_t>(TABLE * 2 * QW_KV_BLOCK * l->dims.kv_heads) *
                     static_cast<uint64_t>(qw_kv_row_bytes(l->config.kv_dtype, d->head_dim));
}

static uint64_t carve(lab *l, unsigned char *base)
{
    qw_cuda_scratch scratch = {base, 0};
    l->input = scratch.take<float>(l->inputs);
    l->weight = scratch.take<qw_bf16>(l->weights);
    l->q = scratch.take<float>(l->outputs);
    l->y[0] = scratch.take<float>(l->outputs);
    l->y[1] = scratch.take<float>(l->outputs);
    l->cache = scratch.take<unsigned char>(static_cast<int64_t>(l->cache_bytes));
    l->ints = scratch.take<int32_t>(INTS);
    return scratch.used;
}

/* Numbers of [-1, 1) with 7 bits: of BF16, whether they are stored so or not. */
static float number(uint32_t *state)
{
    *state = *state * 1664525U + 1013904223U;
    return static_cast<float>(static_cast<int32_t>(*state >> 24) - 128) / 128.0F;
}

/* Inputs have more bits than BF16 holds. */
static qwen36_status fill(lab *l)
{
    const qw_stream stream = cuda_of(l)->stream;
    uint32_t state = 1;
    for (int64_t i = 0; i < l->inputs; i++)
        l->host[i] = number(&state) + number(&state) / 256.0F;
    qwen36_status status =
        qw_runtime_upload(stream, l->input, l->host, static_cast<uint64_t>(l->inputs) * sizeof(float));
    if (status == QWEN36_OK)
        status = qw_runtime_wait(stream);
    qw_bf16 *weight = reinterpret_cast<qw_bf16 *>(l->host);
    for (int64_t i = 0; i < l->weights; i++) {
        const float value = number(&state);
        uint32_t bits;
        memcpy(&bits, &value, sizeof bits);
        weight[i].bits = static_cast<uint16_t>(bits >> 16);
    }
    if (status == QWEN36_OK)
        status =
            qw_runtime_upload(stream, l->weight, weight, static_cast<uint64_t>(l->weights) * sizeof *weight);
    return status != QWEN36_OK ? status : qw_runtime_wait(stream);
}

static qwen36_status open_lab(lab *l, const qw_cuda *model)
{
    set_dims(l, model);
    const int64_t floats = QW_MAX(l->inputs, QW_MAX(2 * l->outputs, l->weights));
    const uint64_t bytes = carve(l, nullptr);
    qwen36_status status = qw_cuda_create(&l->config, &model->profile, &l->backend, nullptr);
    if (status != QWEN36_OK)
        return status;
    l->host = static_cast<float *>(qw_alloc(model->allocator, static_cast<size_t>(floats), sizeof *l->host));
    if (l->host == nullptr)
        return QWEN36_ERROR_OUT_OF_MEMORY;
    void *memory;
    status = qw_runtime_allocate(QW_SPACE_DEVICE, bytes, &memory);
    if (status != QWEN36_OK)
        return status;
    l->memory = static_cast<unsigned char *>(memory);
    carve(l, l->memory);
    return fill(l);
}

static void close_lab(lab *l, const qw_cuda *model)
{
    if (l->backend.self != nullptr)
        (void)qw_runtime_wait(cuda_of(l)->stream); /* nothing is under way in what is freed */
    qw_runtime_free(QW_SPACE_DEVICE, l->memory);
    qw_free(model->allocator, l->host);
    qw_cuda_destroy(&l->backend);
}

/* ---- the operations ------------------------------------------------------------------------------------ */

/* A view of an array and the buffer it needs. */
struct array {
    qw_buffer buffer;
    qw_view view;

    array(void *base, int32_t dtype, int64_t rows, int64_t columns)
        : buffer{base, 0, QW_SPACE_DEVICE, 0}, view{&buffer, 0, dtype, 2, {rows, columns, 1}, {columns, 1, 1}}
    {
    }
    array(const array &) = delete;
};

/* gate and up at once, then down: both forms of the product. */
static qwen36_status run_mlp(lab *l, float *y)
{
    const array x(l->input, QW_F32, ROWS, WIDTH), out(y, QW_F32, ROWS, ROWS);
    const array gate(l->weight, QW_BF16, INNER, WIDTH), up(l->weight + INNER * WIDTH, QW_BF16, INNER, WIDTH);
    const array down(l->weight + 2 * INNER * WIDTH, QW_BF16, ROWS, INNER);
    static_assert(ROWS <= WIDTH, "rows of down, as many as outputs have room for");
    qw_mlp_args args = {};
    args.x = x.view;
    args.gate = gate.view;
    args.up = up.view;
    args.down = down.view;
    args.y = out.view;
    return qw_cuda_mlp(&l->backend, &args);
}

static qwen36_status run_experts(lab *l, float *y)
{
    int32_t choice[ROWS * CHOICES];
    for (int32_t i = 0; i < ROWS * CHOICES; i++)
        choice[i] = i % CHOICES == 0 ? 0 : 1 + i / CHOICES % (EXPERTS - 1);
    static_assert(ROWS * CHOICES <= INTS, "choices have room");
    const qwen36_status status = qw_cuda_put_ints(cuda_of(l), l->ints, choice, ROWS * CHOICES);
    if (status != QWEN36_OK)
        return status;
    const array x(l->input, QW_F32, ROWS, WIDTH), out(y, QW_F32, ROWS, WIDTH);
    const array ids(l->ints, QW_I32, ROWS, CHOICES), shares(l->input + WIDTH, QW_F32, ROWS, CHOICES);
    const array weights(l->weight, QW_BF16, INNER, WIDTH), back(l->weight, QW_BF16, WIDTH, INNER);
    const int64_t one = INNER * WIDTH * static_cast<int64_t>(sizeof(qw_bf16));
    qw_expert_view expert[EXPERTS];
    for (int64_t e = 0; e < EXPERTS; e++) {
        expert[e] = {weights.view, weights.view, back.view};
        expert[e].gate.offset = 3 * e * one;
        expert[e].up.offset = (3 * e + 1) * one;
        expert[e].down.offset = (3 * e + 2) * one;
    }
    const qw_experts_args args = {x.view, ids.view, shares.view, EXPERTS, expert, out.view};
    return qw_cuda_experts(&l->backend, &args);
}

/* A step of `rows` rows of one sequence from `position` on; y null: they only reach the cache. */
static qwen36_status run_step(lab *l, int32_t position, int32_t rows, float *y)
{
    int32_t host[INTS] = {};
    int32_t *positions = host, *kv_index = host + 3 * rows, *table = kv_index + rows;
    qw_segment *segment = reinterpret_cast<qw_segment *>(table + TABLE);
    *segment = {0, rows, position, 0, -1, 0, 0, 0};
    for (int32_t i = 0; i < rows; i++)
        kv_index[i] = position + i;
    for (int32_t i = 0; i < TABLE; i++)
        table[i] = i;
    const qw_buffer device = {l->ints, sizeof host, QW_SPACE_DEVICE, 0};
    const qw_buffer cache = {l->cache, l->cache_bytes, QW_SPACE_DEVICE, 0};
    const qw_batch batch = {rows,    1,       0,     TABLE, nullptr,     positions, kv_index,
                            segment, nullptr, table, host,  sizeof host, &device};
    const int64_t hd = l->dims.head_dim, queries = l->dims.heads * hd, keys = l->dims.kv_heads * hd;
    const float inv_freq = 0;
    const uint8_t axis = 0;
    const array qg(l->input, QW_F32, rows, 2 * queries), q(l->q, QW_F32, rows, queries);
    const array k(l->input + hd, QW_F32, rows, keys), v(l->input + 3 * hd, QW_F32, rows, keys);
    const array norm(l->weight, QW_BF16, 1, hd), out(y, QW_F32, rows, queries);
    const int64_t block = static_cast<int64_t>(l->cache_bytes) / TABLE;
    const qw_kv_view kv = {&cache, 0, block, l->config.kv_dtype};
    const qw_attn_prepare_args prepare = {&batch, qg.view, k.view,    v.view, norm.view, norm.view,
                                          q.view, kv,      &inv_freq, &axis,  1.0F,      1e-6F};
    const qw_attention_args attention = {&batch, q.view, qg.view, kv, out.view};
    qwen36_status status = qw_cuda_step_begin(&l->backend, &batch);
    if (status == QWEN36_OK)
        status = qw_cuda_attn_prepare(&l->backend, &prepare);
    if (status == QWEN36_OK && y != nullptr)
        status = qw_cuda_attention(&l->backend, &attention);
    const qwen36_status end = qw_cuda_step_end(&l->backend); /* `host` is on its way until then */
    return status != QWEN36_OK ? status : end;
}

/* Rows enough for wide blocks where those serve. */
static qwen36_status run_prefill(lab *l, float *y)
{
    return run_step(l, 0, ROWS, y);
}

static qwen36_status run_decode(lab *l, float *y)
{
    const qwen36_status status = run_step(l, 0, ROWS, nullptr);
    return status != QWEN36_OK ? status : run_step(l, ROWS, 1, y);
}

/* ---- comparison ---------------------------------------------------------------------------------------- */

struct trial {
    int32_t table, row;
    qwen36_status (*run)(lab *, float *y);
    float bound;
};

static const trial trials[] = {
    {QW_PLAN_PRODUCTS, QW_PRODUCT_MATRIX, run_mlp, PRODUCT_BOUND},
    {QW_PLAN_EXPERTS, QW_EXPERTS_MATRIX, run_experts, PRODUCT_BOUND},
    {QW_PLAN_ATTENTION, QW_ATTENTION_MATRIX_WIDE, run_prefill, ATTENTION_BOUND},
    {QW_PLAN_ATTENTION, QW_ATTENTION_MATRIX, run_decode, ATTENTION_BOUND},
};

static int64_t outputs_of(const lab *l, const trial &t)
{
    const int64_t queries = int64_t{l->dims.heads} * l->dims.head_dim;
    if (t.table == QW_PLAN_PRODUCTS)
        return ROWS * ROWS;
    return t.table == QW_PLAN_EXPERTS ? ROWS * WIDTH : t.run == run_prefill ? ROWS * queries : queries;
}

/* A number that is no number differs from all. */
static bool close_enough(const float *a, const float *b, int64_t count, float bound)
{
    float worst = 0, largest = 0;
    for (int64_t i = 0; i < count; i++) {
        largest = QW_MAX(largest, fabsf(b[i]));
        worst = QW_MAX(worst, fabsf(a[i] - b[i]));
        if (!isfinite(a[i]) || !isfinite(b[i]))
            return false;
    }
    return worst <= bound * largest;
}

/* Both results reach the host. */
static qwen36_status run_both(lab *l, const trial &t, uint32_t disabled, int64_t count)
{
    qw_cuda *cuda = cuda_of(l);
    const uint64_t bytes = static_cast<uint64_t>(count) * sizeof(float);
    qwen36_status status = QWEN36_OK;
    for (int i = 0; i < 2 && status == QWEN36_OK; i++) {
        cuda->profile.disabled = i == 0 ? qw_plan_special_rows() : disabled;
        status = t.run(l, l->y[i]);
        if (status == QWEN36_OK)
            status = qw_runtime_download(cuda->stream, l->host + i * count, l->y[i], bytes);
    }
    const qwen36_status end = qw_runtime_wait(cuda->stream);
    return status != QWEN36_OK ? status : end;
}

static bool is_fatal(qwen36_status status)
{
    return status == QWEN36_ERROR_OUT_OF_MEMORY || status == QWEN36_ERROR_DEVICE_LOST;
}

static qwen36_status try_row(qw_cuda *model, lab *l, const trial &t)
{
    const uint32_t bit = qw_plan_bit(t.table, t.row), before = model->profile.disabled;
    const int64_t count = outputs_of(l, t);
    if ((before & bit) != 0 || count == 0) /* a model without such a layer */
        return QWEN36_OK;
    const qwen36_status status = run_both(l, t, before, count);
    if (is_fatal(status))
        return status;
    if ((cuda_of(l)->profile.disabled & ~before) != 0 && status == QWEN36_OK)
        qw_cuda_refused(model, bit);
    else if (status != QWEN36_OK)
        qw_cuda_disable(model, bit, "it could not be tried");
    else if (!close_enough(l->host + count, l->host, count, t.bound))
        qw_cuda_disable(model, bit, "its results differ from those of the general one");
    return QWEN36_OK;
}

qwen36_status qw_cuda_probe(qw_cuda *cuda)
{
    if ((cuda->profile.disabled & qw_plan_special_rows()) == qw_plan_special_rows() ||
        cuda->profile.matrix_bf16 == 0) /* which all of them need */
        return QWEN36_OK;
    lab l = {};
    qwen36_status status = open_lab(&l, cuda);
    for (size_t i = 0; i < QW_COUNT_OF(trials) && !is_fatal(status); i++) {
        if (status == QWEN36_OK)
            status = try_row(cuda, &l, trials[i]);
        else
            qw_cuda_disable(cuda, qw_plan_bit(trials[i].table, trials[i].row), "it could not be tried");
    }
    close_lab(&l, cuda);
    return is_fatal(status) ? status : QWEN36_OK;
}
