/* Preparation and attention against the reference: all cache types, every row of the plan's table, one pass
 * and many partitions; a refused launch. */
#include "tests/simt/attention_world.h"

/* Cached K may differ in the last bit of BF16 where a float32 value lies near the middle of two: 2^-8 of a
 * score. */
static double bound_of(const world *w)
{
    return w->kv_dtype == QW_F32 ? 5e-6 : w->device == 0 ? 4e-3 : 1.2e-2;
}

static void run(world *w, const qw_dims *dims, const mix_plan *plan, int32_t device, int32_t kv_dtype)
{
    world_open(w, dims, plan, device, kv_dtype, (pair_options){0});
    mix_run(plan, world_step, w);
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
        const int32_t room = profile_of(1).shared_bytes >=
                             qw_plan_attention_shared(QW_ATTENTION_MATRIX_WIDE, true_dims.head_dim);
        CHECK(w.seen[QW_ATTENTION_MATRIX] > 0 && (w.seen[QW_ATTENTION_MATRIX_WIDE] > 0) == room);
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

/* ---- the cache in 8 bits ------------------------------------------------------------------------------- */

/* Begin of a cached row and its scale; `kind` 0 K, 1 V. */
static const int8_t *cached_row(const world *w, const void *cache, int32_t s, int32_t kind, int32_t head,
                                int32_t token, float *scale)
{
    const qw_dims *d = &w->p.dims;
    const char *block = (const char *)cache + mix_block(w->plan, s, token / QW_KV_BLOCK) * w->block_bytes;
    memcpy(scale, block + qw_kv_scale_offset(d->kv_heads, d->head_dim, kind, head, token % QW_KV_BLOCK),
           sizeof *scale);
    return (const int8_t *)block +
           ((kind * d->kv_heads + head) * QW_KV_BLOCK + token % QW_KV_BLOCK) * d->head_dim;
}

/* V, whose inputs are equal: equal bytes. K has passed a norm and a rotation in float32: a step at most. */
static void check_row(const world *w, int32_t s, int32_t kind, int32_t head, int32_t token)
{
    float scale, expected_scale;
    const int8_t *x = cached_row(w, w->cache, s, kind, head, token, &scale);
    const int8_t *expected = cached_row(w, w->judge_cache, s, kind, head, token, &expected_scale);
    if (kind == 1)
        CHECK(memcmp(&scale, &expected_scale, 4) == 0 || (isnan(scale) && isnan(expected_scale)));
    else
        CHECK(isnan(expected_scale) ? isnan(scale) : fabsf(scale - expected_scale) <= 1e-6F * expected_scale);
    for (int32_t i = 0; i < w->p.dims.head_dim; i++)
        CHECK(abs(x[i] - expected[i]) <= (kind == 0));
}

static void check_cache(const world *w)
{
    for (int32_t s = 0; s < w->plan->sequences; s++)
        for (int32_t token = 0; token < w->plan->length[s]; token++)
            for (int32_t i = 0; i < 2 * w->p.dims.kv_heads; i++)
                check_row(w, s, i % 2, i / 2, token);
}

static void run_int8(world *w, const qw_dims *dims, const mix_plan *plan, int32_t device)
{
    world_open(w, dims, plan, device, QW_I8, (pair_options){0});
    const int64_t keys = dims->kv_heads * dims->head_dim;
    for (int64_t d = 0; d < dims->head_dim;
         d++) /* rows of zeros, of numbers near the smallest, and with ties */
        for (int64_t t = 1; t < 4; t++) {
            w->k[t * keys + d] = t == 1 ? 0 : w->k[t * keys + d];
            w->v[t * keys + d] = t == 1 ? 0 : t == 2 ? (float)d * 0x1p-149F : ((float)(d % 253) - 126.5F);
        }
    mix_run(plan, world_step, w);
    check_cache(w);
    check_close(w->o, w->judge_o, (size_t)(mix_rows(plan) * dims->heads * dims->head_dim),
                device == 0 ? 4e-3 : 1.2e-2, "attention, 8 bits");
    world_close(w);
}

TEST(cuda_attention, int8)
{
    const mix_plan cuts = {3, {90, 5, 67}, {{40, 1, 30}, {1}, {64, 3}}, 0};
    const mix_plan few = {2, {70, 5}, {{2}, {1}}, 0};
    world w;
    run_int8(&w, &small_dims, &cuts, 0);
    run_int8(&w, &odd_dims, &cuts, devices() - 1);
    CHECK(w.seen[QW_ATTENTION_GENERAL] > 0);
    if (devices() < 2)
        return;
    run_int8(&w, &small_dims, &cuts, 1);
    CHECK(w.seen[QW_ATTENTION_MATRIX_WIDE] > 0);
    run_int8(&w, &small_dims, &few, 1);
    CHECK(w.seen[QW_ATTENTION_MATRIX] > 0);
}

TEST(cuda_attention, int8_true_head_size)
{
    const mix_plan plan = {2, {66, 4}, {{65, 1}, {3, 1}}, 0};
    world w;
    for (int32_t device = 0; device < devices(); device++)
        run_int8(&w, &true_dims, &plan, device);
}

/* A token whose K or V is no number makes NaN of every row that sees it, and of no other. */
TEST(cuda_attention, int8_broken_rows)
{
    const mix_plan plan = {2, {40, 40}, {{40}, {40}}, 0};
    for (int32_t device = 0; device < devices(); device++) {
        world w;
        world_open(&w, &small_dims, &plan, device, QW_I8, (pair_options){0});
        const int64_t keys = small_dims.kv_heads * small_dims.head_dim, queries = 4 * small_dims.head_dim;
        w.v[30 * keys + 5] = NAN;                    /* of the first sequence and KV head */
        w.k[(40 + 20) * keys + keys - 1] = INFINITY; /* of the second sequence and KV head */
        mix_run(&plan, world_step, &w);
        check_cache(&w);
        for (int64_t row = 0; row < 80; row++)
            for (int64_t i = 0; i < queries; i++) {
                const int64_t head = i / small_dims.head_dim / 2;
                const int broken = row < 40 ? row >= 30 && head == 0 : row >= 60 && head == 1;
                CHECK(isnan(w.o[row * queries + i]) == (broken != 0));
                CHECK(isnan(w.judge_o[row * queries + i]) == (broken != 0));
            }
        world_close(&w);
    }
}

/* The same where it lies in another partition than the row's own. */
TEST(cuda_attention, broken_rows_pass_the_merge)
{
    const mix_plan plan = {1, {620}, {{610, 10}}, 0};
    const int64_t queries = small_dims.heads * small_dims.head_dim;
    for (int32_t device = 0; device < devices(); device++) {
        world w;
        world_open(&w, &small_dims, &plan, device, QW_BF16, (pair_options){0});
        w.attend_from = 610;
        w.k[10 * small_dims.kv_heads * small_dims.head_dim + 3] = NAN; /* of the first KV head */
        mix_run(&plan, world_step_alone, &w);
        CHECK(w.most_partitions > 1);
        for (int64_t row = 610; row < 620; row++)
            for (int64_t i = 0; i < queries; i++)
                CHECK(isnan(w.o[row * queries + i]) == (i < queries / 2));
        world_close(&w);
    }
}

/* ---- refused launches ---------------------------------------------------------------------------------- */

static void count_line(void *user, int32_t level, const char *line)
{
    CHECK_INT(level, QWEN36_LOG_WARNING);
    CHECK_MSG(strstr(line, "attention is out of use") != NULL, "%s", line);
    (*(int *)user)++;
}

/* The n-th attention of a run finds its launch refused. */
typedef struct refusal {
    world w;
    int32_t at, steps;
} refusal;

static void step_refused(void *test, const qw_batch *batch, const mix_row *row)
{
    refusal *r = test;
    r->w.attend_from = INT32_MAX; /* the preparation alone, which is not refused */
    world_step(&r->w, batch, row);
    r->w.attend_from = 0;
    packed_batch packed;
    pack_batch(&packed, batch);
    simt_refuse_launch(r->steps++ == r->at ? 2 : 0); /* behind the preparation */
    world_run_step(&r->w, 0, &packed.batch, row);
    simt_refuse_launch(0);
    packed_free(&packed);
}

static uint32_t run_refused(const mix_plan *plan, int32_t at, const qw_dims *dims)
{
    int lines = 0;
    const qw_log log = {count_line, &lines};
    refusal r = {.at = at};
    world_open(&r.w, dims, plan, 1, QW_BF16, (pair_options){.log = &log});
    mix_run(plan, step_refused, &r);
    check_close(r.w.o, r.w.judge_o, (size_t)(mix_rows(plan) * dims->heads * dims->head_dim), bound_of(&r.w),
                "attention after a refusal");
    CHECK_INT(lines, 1);
    CHECK_INT((int64_t)qw_cuda_refusals(&r.w.p.cuda), 1);
    const uint32_t disabled = qw_cuda_disabled(&r.w.p.cuda);
    world_close(&r.w);
    return disabled;
}

/* The general row takes the tiles of the wide row in several blocks, also where partitions are merged. */
TEST(cuda_attention, refused_launch_falls_back)
{
    NEEDS_PLANTING();
    if (devices() < 2)
        return;
    const mix_plan wide = {2, {130, 5}, {{100, 1, 20}, {2}}, 0}, narrow = {2, {9, 5}, {{2}, {1}}, 0};
    const mix_plan long_one = {2, {620, 30}, {{600, 12, 1}, {22, 6, 1}}, 0};
    CHECK_INT(run_refused(&wide, 0, &small_dims), qw_plan_bit(QW_PLAN_ATTENTION, QW_ATTENTION_MATRIX_WIDE));
    CHECK_INT(run_refused(&narrow, 2, &small_dims), qw_plan_bit(QW_PLAN_ATTENTION, QW_ATTENTION_MATRIX));
    CHECK_INT(run_refused(&long_one, 1, &small_dims),
              qw_plan_bit(QW_PLAN_ATTENTION, QW_ATTENTION_MATRIX_WIDE));
}

/* A device may be told to use what every device can run. */
TEST(cuda_attention, general_tier)
{
    const mix_plan plan = {2, {70, 5}, {{60, 10}, {1}}, 0};
    for (int32_t device = 0; device < devices(); device++) {
        world w;
        world_open(&w, &small_dims, &plan, device, QW_F32,
                   (pair_options){.device_tier = QWEN36_DEVICE_TIER_GENERAL});
        mix_run(&plan, world_step, &w);
        check_close(w.o, w.judge_o, (size_t)(75 * 4 * 32), 5e-6, "the general tier");
        CHECK_INT(qw_cuda_disabled(&w.p.cuda), qw_plan_special_rows());
        world_close(&w);
    }
}
