/* Preparation and attention over sequences in steps, cut and batched in different ways, against the
 * reference: both cache types, every row of the plan's table, one pass and many partitions. Cache blocks hold
 * NaN until written. */
#include "tests/simt/batches.h"

typedef struct world {
    pair p;
    const mix_plan *plan;
    int32_t offset[MIX_SEQUENCES], kv_dtype, weight_dtype;
    int64_t block_bytes;
    float inv_freq[64], *qg, *k, *v, *o, *judge_o;
    uint8_t axis[64];
    void *q_norm, *k_norm, *cache, *judge_cache;
    int32_t seen[QW_ATTENTION_ROWS], most_partitions; /* which rows of the table served */
    int32_t device;
} world;

static void world_open(world *w, const qw_dims *dims, const mix_plan *plan, int32_t device, int32_t kv_dtype)
{
    const size_t rows = (size_t)mix_rows(plan), nh = (size_t)dims->heads, hd = (size_t)dims->head_dim;
    const size_t keys = (size_t)dims->kv_heads * hd;
    *w = (world){.plan = plan, .kv_dtype = kv_dtype, .weight_dtype = QW_BF16, .device = device};
    pair_open(&w->p, dims, device, mix_rows(plan), mix_rows(plan) + 1, kv_dtype);
    for (int32_t s = 1; s < plan->sequences; s++)
        w->offset[s] = w->offset[s - 1] + plan->length[s - 1];
    for (int32_t j = 0; j < dims->rotary_dim / 2; j++) {
        w->inv_freq[j] = (float)pow(1e4, -2.0 * j / dims->rotary_dim);
        w->axis[j] = (uint8_t)(j % 3);
    }
    w->qg = floats(rows * nh * 2 * hd, 1);
    w->k = floats(rows * keys, 2);
    w->v = floats(rows * keys, 3);
    w->q_norm = numbers(QW_BF16, hd, 4, 0);
    w->k_norm = numbers(QW_BF16, hd, 5, 0);
    w->block_bytes = (int64_t)(2 * keys * QW_KV_BLOCK) * qw_dtype_size(kv_dtype);
    const size_t cache = (size_t)w->block_bytes * (size_t)mix_blocks(plan, plan->sequences);
    w->cache = blank(cache / 4);
    w->judge_cache = blank(cache / 4);
    memset(w->cache, 0xFF, cache);
    memset(w->judge_cache, 0xFF, cache);
    w->o = blank(rows * nh * hd);
    w->judge_o = blank(rows * nh * hd);
}

static void world_close(world *w)
{
    void *all[] = {w->qg, w->k, w->v, w->q_norm, w->k_norm, w->cache, w->judge_cache, w->o, w->judge_o};
    for (size_t i = 0; i < QW_COUNT_OF(all); i++)
        free(all[i]);
    pair_close(&w->p);
}

static float *gather(const world *w, const mix_row *row, int32_t rows, const float *from, int64_t width)
{
    float *to = blank((size_t)(rows * width));
    for (int32_t r = 0; r < rows; r++)
        memcpy(to + r * width, from + (w->offset[row[r].sequence] + row[r].token) * width, (size_t)width * 4);
    return to;
}

/* Which row serves is for the plan to say: asked here again, to know what was tested. */
static void note_plan(world *w, const qw_batch *batch)
{
    const qw_device_profile profile = profile_of(w->device);
    qw_attention_shape shape = {.rows = batch->rows,
                                .sequences = batch->segments,
                                .heads = w->p.dims.heads,
                                .kv_heads = w->p.dims.kv_heads,
                                .head_dim = w->p.dims.head_dim,
                                .partial_bytes = 1 << 24,
                                .kv_dtype = w->kv_dtype};
    for (int32_t s = 0; s < batch->segments; s++) {
        shape.longest = QW_MAX(shape.longest, batch->segment[s].position + batch->segment[s].row_count);
        shape.longest_rows = QW_MAX(shape.longest_rows, batch->segment[s].row_count);
    }
    const qw_attention_plan plan = qw_plan_attention(&profile, &shape);
    w->seen[plan.row]++;
    w->most_partitions = QW_MAX(w->most_partitions, plan.partitions);
}

static void run_step(world *w, int32_t judge, const qw_batch *batch, const mix_row *row)
{
    const qw_dims *d = &w->p.dims;
    const int64_t rows = batch->rows, queries = d->heads * d->head_dim, keys = d->kv_heads * d->head_dim;
    float *qg = gather(w, row, batch->rows, w->qg, 2 * queries), *q = blank((size_t)(rows * queries));
    float *k = gather(w, row, batch->rows, w->k, keys), *v = gather(w, row, batch->rows, w->v, keys);
    float *o = blank((size_t)(rows * queries));
    qw_buffer b[8], buffer = {judge ? w->judge_cache : w->cache, 0, QW_SPACE_DEVICE, 0};
    const qw_attn_prepare_args prepare = {.batch = batch,
                                          .qg = test_view(&b[0], qg, rows, 2 * queries),
                                          .k = test_view(&b[1], k, rows, keys),
                                          .v = test_view(&b[2], v, rows, keys),
                                          .q_norm = test_view_of(&b[3], w->q_norm, QW_BF16, 0, d->head_dim),
                                          .k_norm = test_view_of(&b[4], w->k_norm, QW_BF16, 0, d->head_dim),
                                          .q = test_view(&b[5], q, rows, queries),
                                          .cache = {&buffer, 0, w->block_bytes, w->kv_dtype},
                                          .inv_freq = w->inv_freq,
                                          .axis = w->axis,
                                          .rope_scale = 1.1F,
                                          .eps = 1e-6F};
    const qw_attention_args attention = {batch, prepare.q, prepare.qg, prepare.cache,
                                         test_view(&b[6], o, rows, queries)};
    if (judge) {
        CHECK_INT(w->p.judge.ops->attn_prepare(&w->p.judge, &prepare), QWEN36_OK);
        CHECK_INT(w->p.judge.ops->attention(&w->p.judge, &attention), QWEN36_OK);
    } else {
        CHECK_RAN(qw_cuda_step_begin(&w->p.cuda, batch));
        CHECK_RAN(qw_cuda_attn_prepare(&w->p.cuda, &prepare));
        CHECK_RAN(qw_cuda_attention(&w->p.cuda, &attention));
        note_plan(w, batch);
    }
    for (int32_t r = 0; r < batch->rows; r++)
        memcpy((judge ? w->judge_o : w->o) + (w->offset[row[r].sequence] + row[r].token) * queries,
               o + r * queries, (size_t)queries * 4);
    free(qg), free(q), free(k), free(v), free(o);
}

static void step(void *test, const qw_batch *batch, const mix_row *row)
{
    packed_batch packed;
    pack_batch(&packed, batch);
    run_step(test, 0, &packed.batch, row);
    run_step(test, 1, &packed.batch, row);
    packed_free(&packed);
}

/* Cached K may differ in the last bit of BF16 where a float32 value lies near the middle of two: 2^-8 of a
 * score. */
static double bound_of(const world *w)
{
    return w->kv_dtype == QW_F32 ? 5e-6 : w->device == 0 ? 4e-3 : 1.2e-2;
}

static void run(world *w, const qw_dims *dims, const mix_plan *plan, int32_t device, int32_t kv_dtype)
{
    world_open(w, dims, plan, device, kv_dtype);
    mix_run(plan, step, w);
    char what[64];
    snprintf(what, sizeof what, "attention, device %d, cache %d", device, kv_dtype);
    check_close(w->o, w->judge_o, (size_t)(mix_rows(plan) * dims->heads * dims->head_dim), bound_of(w), what);
    world_close(w);
}

static const qw_dims small_dims = {.heads = 4, .kv_heads = 2, .head_dim = 32, .rotary_dim = 8};
static const qw_dims odd_dims = {.heads = 3, .kv_heads = 1, .head_dim = 26, .rotary_dim = 6};
static const qw_dims many_dims = {.heads = 20, .kv_heads = 1, .head_dim = 16, .rotary_dim = 16};
static const qw_dims true_dims = {.heads = 8, .kv_heads = 1, .head_dim = 256, .rotary_dim = 64};

TEST(cuda_attention, general)
{
    const mix_plan cuts = {3, {90, 1, 67}, {{40, 1, 30}, {1}, {64, 3}}, 0};
    world w;
    run(&w, &small_dims, &cuts, 0, QW_F32);
    run(&w, &odd_dims, &cuts, 0, QW_F32);
    run(&w, &many_dims, &cuts, 0, QW_F32);
    run(&w, &small_dims, &cuts, 0, QW_BF16);
    run(&w, &odd_dims, &cuts, devices() - 1, QW_BF16);
    CHECK(w.seen[QW_ATTENTION_GENERAL] > 0);
}

/* Long contexts, read by one row at a time, are cut into partitions; beside them a short one leaves
 * partitions empty. */
TEST(cuda_attention, partitions)
{
    const mix_plan plan = {2, {700, 30}, {{690, 1, 1}, {28, 1}}, 0};
    world w;
    run(&w, &odd_dims, &plan, 0, QW_F32);
    CHECK(w.most_partitions > 1);
    if (devices() == 2) {
        run(&w, &small_dims, &plan, 1, QW_BF16);
        CHECK(w.most_partitions > 1 && w.seen[QW_ATTENTION_MATRIX] > 0);
    }
}

TEST(cuda_attention, matrix)
{
    if (devices() < 2)
        return;
    const mix_plan cuts = {3, {130, 5, 67}, {{100, 1, 20}, {1}, {64, 3}}, 0};
    const mix_plan few = {3, {70, 5, 9}, {{2}, {1}, {3}}, 0};
    world w;
    run(&w, &small_dims, &cuts, 1, QW_BF16);
    CHECK(w.seen[QW_ATTENTION_MATRIX_WIDE] > 0);
    run(&w, &small_dims, &few, 1, QW_BF16);
    CHECK(w.seen[QW_ATTENTION_MATRIX] > 0);
}

TEST(cuda_attention, true_head_size)
{
    const mix_plan plan = {2, {66, 2}, {{65, 1}, {1, 1}}, 0};
    world w;
    run(&w, &true_dims, &plan, 0, QW_F32);
    if (devices() == 2) {
        run(&w, &true_dims, &plan, 1, QW_BF16);
        CHECK(w.seen[QW_ATTENTION_MATRIX] > 0 && w.seen[QW_ATTENTION_MATRIX_WIDE] > 0);
    }
}

TEST(cuda_attention, all_lengths)
{
    for (int32_t device = 0; device < devices(); device++)
        for (int32_t length = 1; length <= 129;
             length += length < 3 || (length > 62 && length < 66) ? 1 : 20) {
            const mix_plan plan = {1, {length}, {{length}}, 0};
            world w;
            run(&w, &small_dims, &plan, device, QW_BF16);
        }
}
