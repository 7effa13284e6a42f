/* attn_prepare and attention of the CPU backend: against the reference backend with a bound, and bit by bit
 * against themselves under other cuts, batches and numbers of threads, for every tier and cache format.
 * Unused places of the cache hold NaN, or 8-bit integers whose scale is NaN. */
#include "kernels/cpu/kernels.h"
#include "tests/mixing.h"

/* Inputs of all sequences, and what came out. Row `offset[s] + t` is token t of sequence s. */
typedef struct world {
    qw_dims dims;
    int32_t kv_dtype;
    const mix_plan *plan;
    int32_t offset[MIX_SEQUENCES];
    float *qg, *k, *v, *q_norm, *k_norm, inv_freq[64];
    uint8_t axis[64];
    /* of one run */
    qw_backend backend;
    char *cache;
    float *o, *in_qg, *in_k, *in_v, *q, *out; /* o: all rows; the others: of a step */
} world;

static const qw_dims small_dims = {.heads = 4, .kv_heads = 2, .head_dim = 32, .rotary_dim = 8};
static const qw_dims odd_dims = {.heads = 3, .kv_heads = 1, .head_dim = 18, .rotary_dim = 6};
static const qw_dims wide_dims = {.heads = 5, .kv_heads = 5, .head_dim = 80, .rotary_dim = 38};
static const qw_dims true_dims = {.heads = 16, .kv_heads = 2, .head_dim = 256, .rotary_dim = 64};

static int64_t block_bytes(const world *w)
{
    return (int64_t)2 * w->dims.kv_heads * QW_KV_BLOCK * qw_kv_row_bytes(w->kv_dtype, w->dims.head_dim);
}

static void world_open(world *w, const qw_dims *dims, const mix_plan *plan, uint64_t seed)
{
    const size_t rows = (size_t)mix_rows(plan), hd = (size_t)dims->head_dim;
    const size_t wide = rows * (size_t)dims->heads * 2 * hd, narrow = rows * (size_t)dims->kv_heads * hd;
    *w = (world){.dims = *dims, .plan = plan};
    for (int32_t s = 1; s < plan->sequences; s++)
        w->offset[s] = w->offset[s - 1] + plan->length[s - 1];
    w->qg = mix_random(wide, seed);
    w->k = mix_random(narrow, seed + 1);
    w->v = mix_random(narrow, seed + 2);
    w->q_norm = mix_random(hd, seed + 3);
    w->k_norm = mix_random(hd, seed + 4);
    for (size_t i = 0; i < hd; i++) /* sharp attention: scores of some tens */
        w->q_norm[i] = 2.0f + w->q_norm[i];
    for (int j = 0; j < dims->rotary_dim / 2; j++) {
        w->inv_freq[j] = (float)pow(1e4, -2.0 * j / dims->rotary_dim);
        w->axis[j] = (uint8_t)(j % 3);
    }
    w->in_qg = malloc(wide * sizeof(float));
    w->q = malloc(wide * sizeof(float));
    w->out = malloc(wide * sizeof(float));
    w->in_k = malloc(narrow * sizeof(float));
    w->in_v = malloc(narrow * sizeof(float));
}

static void world_close(world *w)
{
    float *all[] = {w->qg, w->k, w->v, w->q_norm, w->k_norm, w->in_qg, w->in_k, w->in_v, w->q, w->out};
    for (size_t i = 0; i < QW_COUNT_OF(all); i++)
        free(all[i]);
}

static void gather(const world *w, const qw_batch *batch, const mix_row *row)
{
    const size_t hd = (size_t)w->dims.head_dim, wide = (size_t)w->dims.heads * 2 * hd;
    const size_t narrow = (size_t)w->dims.kv_heads * hd;
    for (size_t r = 0; r < (size_t)batch->rows; r++) {
        const size_t from = (size_t)(w->offset[row[r].sequence] + row[r].token);
        memcpy(w->in_qg + r * wide, w->qg + from * wide, wide * sizeof(float));
        memcpy(w->in_k + r * narrow, w->k + from * narrow, narrow * sizeof(float));
        memcpy(w->in_v + r * narrow, w->v + from * narrow, narrow * sizeof(float));
    }
}

static void attention_step(void *test, const qw_batch *batch, const mix_row *row)
{
    world *w = test;
    const int64_t hd = w->dims.head_dim, queries = w->dims.heads * hd, keys = w->dims.kv_heads * hd;
    const int64_t rows = batch->rows;
    qw_buffer b[8], cache = {w->cache, (uint64_t)(mix_blocks(w->plan, w->plan->sequences) * block_bytes(w)),
                             QW_SPACE_HOST, 0};
    gather(w, batch, row);
    const qw_attn_prepare_args prepare = {.batch = batch,
                                          .qg = test_view(&b[0], w->in_qg, rows, 2 * queries),
                                          .k = test_view(&b[1], w->in_k, rows, keys),
                                          .v = test_view(&b[2], w->in_v, rows, keys),
                                          .q_norm = test_view(&b[3], w->q_norm, 0, hd),
                                          .k_norm = test_view(&b[4], w->k_norm, 0, hd),
                                          .q = test_view(&b[5], w->q, rows, queries),
                                          .cache = {&cache, 0, block_bytes(w), w->kv_dtype},
                                          .inv_freq = w->inv_freq,
                                          .axis = w->axis,
                                          .rope_scale = 1.1f,
                                          .eps = 1e-6f};
    CHECK_INT(w->backend.ops->attn_prepare(&w->backend, &prepare), QWEN36_OK);
    const qw_attention_args attention = {batch, prepare.q, prepare.qg, prepare.cache,
                                         test_view(&b[6], w->out, rows, queries)};
    CHECK_INT(w->backend.ops->attention(&w->backend, &attention), QWEN36_OK);
    for (int64_t r = 0; r < rows; r++)
        memcpy(w->o + (w->offset[row[r].sequence] + row[r].token) * queries, w->out + r * queries,
               (size_t)queries * sizeof(float));
}

/* Outputs of all rows (malloc), or NULL where the tier is missing. */
static float *world_run(world *w, int32_t tier, int32_t threads, int32_t kv_dtype, const mix_plan *plan)
{
    const size_t outputs = (size_t)(mix_rows(plan) * w->dims.heads * w->dims.head_dim);
    w->kv_dtype = kv_dtype;
    w->plan = plan;
    if (!mix_open(&w->dims, tier, threads, kv_dtype, mix_rows(plan), &w->backend))
        return NULL;
    const size_t bytes = (size_t)(mix_blocks(plan, plan->sequences) * block_bytes(w));
    w->cache = malloc(bytes);
    memset(w->cache, 0xff, bytes); /* NaN in the float formats, and as a scale */
    w->o = malloc(outputs * sizeof(float));
    memset(w->o, 0xff, outputs * sizeof(float));
    mix_run(plan, attention_step, w);
    w->backend.ops->destroy(&w->backend);
    free(w->cache);
    return w->o;
}

static const mix_plan prefill = {1, {530}, {{530}}, 0};
static const mix_plan cut_plans[] = {
    {1, {530}, {{1}}, 0},      {1, {530}, {{1, 2, 3, 63, 64, 65, 127, 128, 129}}, 0},
    {1, {530}, {{63}}, 0},     {1, {530}, {{64}}, 0},
    {1, {530}, {{65, 1}}, 0},  {1, {530}, {{257, 256, 17}}, 0},
    {1, {530}, {{529, 1}}, 0},
};

static void check_same(const float *a, const float *b, const qw_dims *dims, int64_t rows)
{
    const int64_t width = (int64_t)dims->heads * dims->head_dim;
    for (int64_t r = 0; r < rows; r++)
        CHECK_MSG(memcmp(a + r * width, b + r * width, (size_t)width * sizeof(float)) == 0, "row %d differs",
                  (int)r);
}

/* Every cut gives the bits of one prefill, with 1, 2 and 3 threads. */
static void check_cuts(const qw_dims *dims, int32_t tier, int32_t kv_dtype)
{
    world w;
    world_open(&w, dims, &prefill, 7);
    float *whole = world_run(&w, tier, 1, kv_dtype, &prefill);
    for (size_t p = 0; whole != NULL && p < QW_COUNT_OF(cut_plans); p++) {
        float *cut = world_run(&w, tier, 1 + (int32_t)p % 3, kv_dtype, &cut_plans[p]);
        check_same(whole, cut, dims, 530);
        free(cut);
    }
    free(whole);
    world_close(&w);
}

TEST(cpu_attention, cuts_portable)
{
    check_cuts(&small_dims, QWEN36_CPU_PORTABLE, QW_F32);
    check_cuts(&odd_dims, QWEN36_CPU_PORTABLE, QW_BF16);
    check_cuts(&odd_dims, QWEN36_CPU_PORTABLE, QW_I8);
}

TEST(cpu_attention, cuts_avx2)
{
    check_cuts(&small_dims, QWEN36_CPU_AVX2, QW_BF16);
    check_cuts(&odd_dims, QWEN36_CPU_AVX2, QW_F32);
    check_cuts(&wide_dims, QWEN36_CPU_AVX2, QW_F32);
    check_cuts(&odd_dims, QWEN36_CPU_AVX2, QW_I8);
}

TEST(cpu_attention, cuts_avx512)
{
    check_cuts(&small_dims, QWEN36_CPU_AVX512, QW_F32);
    check_cuts(&odd_dims, QWEN36_CPU_AVX512, QW_BF16);
    check_cuts(&wide_dims, QWEN36_CPU_AVX512, QW_BF16);
    check_cuts(&odd_dims, QWEN36_CPU_AVX512, QW_I8);
    check_cuts(&wide_dims, QWEN36_CPU_AVX512, QW_I8);
}

/* Four sequences in one batch, each cut in its own way, against the same ones alone. */
static void check_batch(int32_t tier, int32_t threads, int32_t kv_dtype)
{
    static const mix_plan together = {4, {200, 65, 330, 1}, {{64, 3}, {65}, {1, 90, 2}, {1}}, 0};
    static const mix_plan long_cuts = {4, {200, 65, 330, 1}, {{200}, {33, 1}, {200, 30}, {1}}, 0};
    world w;
    world_open(&w, &small_dims, &together, 11);
    float *one = world_run(&w, tier, threads, kv_dtype, &together);
    float *other = one == NULL ? NULL : world_run(&w, tier, 1, kv_dtype, &long_cuts);
    for (int32_t s = 0; one != NULL && s < together.sequences; s++) {
        const int64_t width = w.dims.heads * w.dims.head_dim, narrow = w.dims.kv_heads * w.dims.head_dim;
        const mix_plan alone = {1, {together.length[s]}, {{together.length[s]}}, 0};
        world solo = w;
        solo.qg += w.offset[s] * 2 * width;
        solo.k += w.offset[s] * narrow;
        solo.v += w.offset[s] * narrow;
        float *single = world_run(&solo, tier, 1, kv_dtype, &alone);
        check_same(single, one + w.offset[s] * width, &w.dims, together.length[s]);
        check_same(single, other + w.offset[s] * width, &w.dims, together.length[s]);
        free(single);
    }
    free(one);
    free(other);
    world_close(&w);
}

TEST(cpu_attention, batches)
{
    static const int32_t formats[] = {QW_F32, QW_BF16, QW_I8};
    for (int32_t tier = QWEN36_CPU_PORTABLE; tier <= QWEN36_CPU_AVX512; tier++)
        for (int32_t threads = 1; threads <= 3; threads++)
            check_batch(tier, threads, formats[threads - 1]);
}

/* Many spans, so few tiles that the context is split, and so many rows that it passes in windows. */
TEST(cpu_attention, windows_of_spans)
{
    static const mix_plan whole = {1, {2600}, {{2600}}, 0};
    static const mix_plan split = {1, {2600}, {{2400, 96, 5, 1}}, 0};
    world w;
    world_open(&w, &small_dims, &whole, 3);
    for (int32_t tier = QWEN36_CPU_PORTABLE; tier <= QWEN36_CPU_AVX512; tier++) {
        const int32_t kv_dtype = tier == QWEN36_CPU_AVX2 ? QW_I8 : QW_F32;
        float *a = world_run(&w, tier, 1, kv_dtype, &whole);
        float *b = a == NULL ? NULL : world_run(&w, tier, 2, kv_dtype, &split);
        if (a != NULL)
            check_same(a, b, &w.dims, 2600);
        free(a);
        free(b);
    }
    world_close(&w);
}

static void check_reference(const qw_dims *dims, int32_t length, int32_t kv_dtype, double bound)
{
    const mix_plan plan = {1, {length}, {{length}}, 0};
    world w;
    world_open(&w, dims, &plan, 5);
    float *expected = world_run(&w, 0, 1, kv_dtype, &plan);
    for (int32_t tier = QWEN36_CPU_PORTABLE; tier <= QWEN36_CPU_AVX512; tier++) {
        float *actual = world_run(&w, tier, 2, kv_dtype, &plan);
        const int64_t width = (int64_t)dims->heads * dims->head_dim;
        for (int64_t r = 0; actual != NULL && r < length; r++) {
            double distance = mix_distance(actual + r * width, expected + r * width, (size_t)width);
            CHECK_MSG(distance <= bound, "tier %d, row %d: %g", tier, (int)r, distance);
        }
        free(actual);
    }
    free(expected);
    world_close(&w);
}

TEST(cpu_attention, reference_small)
{
    check_reference(&small_dims, 300, QW_F32, 2e-5);
    check_reference(&odd_dims, 130, QW_F32, 2e-5);
    check_reference(&wide_dims, 70, QW_F32, 2e-5);
}

/* In BF16 a key may round the other way where two evaluations differ in the last place. */
TEST(cpu_attention, reference_bf16)
{
    check_reference(&small_dims, 130, QW_BF16, 2e-2);
    check_reference(&odd_dims, 130, QW_BF16, 2e-2);
}

/* So it may among 8-bit integers. */
TEST(cpu_attention, reference_i8)
{
    static const int32_t lengths[] = {1, 63, 64, 65, 130};
    for (size_t i = 0; i < QW_COUNT_OF(lengths); i++) {
        check_reference(&small_dims, lengths[i], QW_I8, 2e-2);
        check_reference(&odd_dims, lengths[i], QW_I8, 2e-2);
        check_reference(&wide_dims, lengths[i], QW_I8, 2e-2);
    }
}

TEST(cpu_attention, reference_true_sizes)
{
    check_reference(&true_dims, 90, QW_F32, 5e-5);
    check_reference(&true_dims, 90, QW_I8, 2e-2);
}

/* ---- 8-bit rows ---------------------------------------------------------------------------------------- */

/* n floats through every tier: the scale, the elements, and nothing behind them. */
static void check_row(const float *x, int64_t n, float scale, const int8_t *expected)
{
    for (int32_t tier = QWEN36_CPU_PORTABLE; tier <= QWEN36_CPU_AVX512; tier++) {
        const qw_cpu_kernels *kernels = qw_cpu_kernels_choose(tier);
        int8_t row[64];
        memset(row, 99, sizeof row);
        if (kernels == NULL)
            continue;
        const float found = kernels->store_cache_i8(x, row, n);
        CHECK_MSG(memcmp(&found, &scale, sizeof scale) == 0 || (isnan(found) && isnan(scale)),
                  "tier %d: scale %g, expected %g", tier, (double)found, (double)scale);
        for (int64_t i = 0; i < n; i++)
            CHECK_MSG(row[i] == expected[i], "tier %d: element %d is %d, expected %d", tier, (int)i, row[i],
                      expected[i]);
        CHECK_INT(row[n], 99);
    }
}

TEST(cpu_attention, i8_rows_round_to_nearest_even)
{
    const float x[18] = {254, -254, 1,  -1,  3,      -3,     5,  0.9f, 1.1f,
                         0,   -0.f, 99, 101, 253.1f, 252.9f, -5, 7,    254};
    const int8_t expected[18] = {127, -127, 0, 0, 2, -2, 2, 0, 1, 0, 0, 50, 50, 127, 126, -2, 4, 127};
    check_row(x, 18, 2, expected);
    check_row(x, 17, 2, expected);
    check_row(x, 3, 2, expected);
}

TEST(cpu_attention, i8_rows_of_zeros_and_of_little)
{
    float x[33] = {0};
    int8_t expected[33] = {0};
    check_row(x, 33, 0, expected);
    x[32] = 0x1p-149f; /* its scale would be less than the least number: it is zero */
    check_row(x, 33, 0, expected);
    x[32] = -0x1p-142f; /* 128 times the least number: the scale is that number */
    expected[32] = -127;
    check_row(x, 33, 0x1p-149f, expected);
}

TEST(cpu_attention, i8_rows_that_are_not_finite)
{
    const float bad[] = {NAN, -NAN, INFINITY, -INFINITY};
    const int8_t expected[33] = {0};
    for (size_t i = 0; i < QW_COUNT_OF(bad); i++)
        for (int at = 0; at < 33; at += 8) {
            float x[33];
            mix_fill(x, 33, 1);
            x[at] = bad[i];
            check_row(x, 33, NAN, expected);
        }
}

/* What is not finite in K or V of a token is NaN in all rows that see the token, by its head, and in no
 * other. */
static void check_spoilt(const world *w, const float *clean, const float *spoilt, int32_t length,
                         int32_t token)
{
    const int64_t hd = w->dims.head_dim, group = w->dims.heads / w->dims.kv_heads;
    for (int64_t t = 0; t < length; t++)
        for (int64_t h = 0; h < w->dims.heads; h++) {
            const int64_t at = (t * w->dims.heads + h) * hd;
            if (t < token || h / group != 1) {
                CHECK(memcmp(clean + at, spoilt + at, (size_t)hd * sizeof(float)) == 0);
                continue;
            }
            for (int64_t d = 0; d < hd; d++)
                CHECK_MSG(isnan(spoilt[at + d]) && !isnan(clean[at + d]), "row %d, head %d", (int)t, (int)h);
        }
}

TEST(cpu_attention, i8_keeps_what_is_not_finite)
{
    enum { LENGTH = 150, TOKEN = 70 };
    const mix_plan plan = {1, {LENGTH}, {{100, 1}}, 0};
    const float bad[] = {NAN, INFINITY, -INFINITY};
    world w;
    world_open(&w, &small_dims, &plan, 9);
    const int64_t place = (TOKEN * w.dims.kv_heads + 1) * w.dims.head_dim + 3;
    for (int32_t tier = 0; tier <= QWEN36_CPU_AVX512; tier++) {
        float *clean = world_run(&w, tier, 2, QW_I8, &plan);
        for (size_t i = 0; clean != NULL && i < 2 * QW_COUNT_OF(bad); i++) {
            float *element = (i % 2 == 0 ? w.k : w.v) + place;
            const float good = *element;
            *element = bad[i / 2];
            float *spoilt = world_run(&w, tier, 2, QW_I8, &plan);
            *element = good;
            check_spoilt(&w, clean, spoilt, LENGTH, TOKEN);
            free(spoilt);
        }
        free(clean);
    }
    world_close(&w);
}
