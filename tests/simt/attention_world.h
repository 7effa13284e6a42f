/* Preparation and attention over sequences in steps, cut and batched as a plan of tests/mixing.h says: the
 * material, the caches and outputs of the kernels and of the reference. Cache blocks hold NaN until written.
 */
#ifndef QW_TESTS_SIMT_ATTENTION_WORLD_H
#define QW_TESTS_SIMT_ATTENTION_WORLD_H

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
    int32_t attend_from; /* rows of earlier tokens only reach the cache */
} world;

static inline void world_open(world *w, const qw_dims *dims, const mix_plan *plan, int32_t device,
                              int32_t kv_dtype, pair_options options)
{
    const size_t rows = (size_t)mix_rows(plan), nh = (size_t)dims->heads, hd = (size_t)dims->head_dim;
    const size_t keys = (size_t)dims->kv_heads * hd;
    *w = (world){.plan = plan, .kv_dtype = kv_dtype, .weight_dtype = QW_BF16, .device = device};
    pair_open_as(&w->p, dims, device, mix_rows(plan), mix_rows(plan) + 1, kv_dtype, options);
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
    w->block_bytes = 2 * dims->kv_heads * QW_KV_BLOCK * qw_kv_row_bytes(kv_dtype, dims->head_dim);
    const size_t cache = (size_t)w->block_bytes * (size_t)mix_blocks(plan, plan->sequences);
    w->cache = blank(cache / 4);
    w->judge_cache = blank(cache / 4);
    memset(w->cache, 0xFF, cache);
    memset(w->judge_cache, 0xFF, cache);
    w->o = blank(rows * nh * hd);
    w->judge_o = blank(rows * nh * hd);
}

static inline void world_close(world *w)
{
    void *all[] = {w->qg, w->k, w->v, w->q_norm, w->k_norm, w->cache, w->judge_cache, w->o, w->judge_o};
    for (size_t i = 0; i < QW_COUNT_OF(all); i++)
        drop(all[i]);
    pair_close(&w->p);
}

static inline float *world_gather(const world *w, const mix_row *row, int32_t rows, const float *from,
                                  int64_t width)
{
    float *to = blank((size_t)(rows * width));
    for (int32_t r = 0; r < rows; r++)
        memcpy(to + r * width, from + (w->offset[row[r].sequence] + row[r].token) * width, (size_t)width * 4);
    return to;
}

/* Which row serves is for the plan to say: asked here again, to know what was tested. */
static inline void world_note_plan(world *w, const qw_batch *batch)
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

static inline void world_run_step(world *w, int32_t judge, const qw_batch *batch, const mix_row *row)
{
    const qw_dims *d = &w->p.dims;
    const int64_t rows = batch->rows, queries = d->heads * d->head_dim, keys = d->kv_heads * d->head_dim;
    float *qg = world_gather(w, row, batch->rows, w->qg, 2 * queries), *q = blank((size_t)(rows * queries));
    float *k = world_gather(w, row, batch->rows, w->k, keys),
          *v = world_gather(w, row, batch->rows, w->v, keys);
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
        int attended = 0;
        for (int32_t r = 0; r < batch->rows; r++)
            attended |= row[r].token >= w->attend_from;
        if (attended)
            CHECK_RAN(qw_cuda_attention(&w->p.cuda, &attention));
        world_note_plan(w, batch);
    }
    for (int32_t r = 0; r < batch->rows; r++)
        memcpy((judge ? w->judge_o : w->o) + (w->offset[row[r].sequence] + row[r].token) * queries,
               o + r * queries, (size_t)queries * 4);
    drop(qg), drop(q), drop(k), drop(v), drop(o);
}

/* A step of both backends. */
static inline void world_step(void *test, const qw_batch *batch, const mix_row *row)
{
    packed_batch packed;
    pack_batch(&packed, batch);
    world_run_step(test, 0, &packed.batch, row);
    world_run_step(test, 1, &packed.batch, row);
    packed_free(&packed);
}

/* A step of the kernels alone. */
static inline void world_step_alone(void *test, const qw_batch *batch, const mix_row *row)
{
    packed_batch packed;
    pack_batch(&packed, batch);
    world_run_step(test, 0, &packed.batch, row);
    packed_free(&packed);
}

#endif
