/* conv and delta of the CPU backend: against the reference backend with a bound, and bit by bit against
 * themselves under other cuts, batches and numbers of threads, states and snapshots included, for every tier.
 * Unused state slots hold NaN. And the chunked form of the delta rule against the recurrence. */
#include "tests/mixing.h"

/* Inputs of all sequences, and what came out. Row `offset[s] + t` is token t of sequence s. */
typedef struct world {
    qw_dims dims;
    int64_t channels, conv_state, delta_state; /* floats */
    const mix_plan *plan;
    int32_t offset[MIX_SEQUENCES];
    float *u, *a, *b, *weight, *a_log, *dt_bias;
    int32_t chunked; /* the delta rule of the reference backend in its chunked form */
    qw_backend backend;
    float *in_u, *in_a, *in_b, *c; /* of a step */
} world;

/* One run: outputs of all rows, and all state slots, each [conv state][delta state]. */
typedef struct outcome {
    float *c, *o, *states;
} outcome;

typedef struct run_context {
    world *w;
    outcome *out;
} run_context;

static const qw_dims small_dims = {.heads = 1,
                                   .kv_heads = 1,
                                   .head_dim = 1,
                                   .lin_k_heads = 2,
                                   .lin_v_heads = 4,
                                   .lin_k_dim = 16,
                                   .lin_v_dim = 16,
                                   .conv_width = 4};
static const qw_dims odd_dims = {.heads = 1,
                                 .kv_heads = 1,
                                 .head_dim = 1,
                                 .lin_k_heads = 1,
                                 .lin_v_heads = 3,
                                 .lin_k_dim = 10,
                                 .lin_v_dim = 23,
                                 .conv_width = 5};
static const qw_dims wide_dims = {.heads = 1,
                                  .kv_heads = 1,
                                  .head_dim = 1,
                                  .lin_k_heads = 3,
                                  .lin_v_heads = 3,
                                  .lin_k_dim = 33,
                                  .lin_v_dim = 150,
                                  .conv_width = 2};
static const qw_dims true_dims = {.heads = 1,
                                  .kv_heads = 1,
                                  .head_dim = 1,
                                  .lin_k_heads = 4,
                                  .lin_v_heads = 8,
                                  .lin_k_dim = 128,
                                  .lin_v_dim = 128,
                                  .conv_width = 4};

static void world_open(world *w, const qw_dims *dims, const mix_plan *plan, uint64_t seed)
{
    const size_t rows = (size_t)mix_rows(plan), nv = (size_t)dims->lin_v_heads;
    *w = (world){.dims = *dims, .plan = plan, .channels = qw_dims_conv_channels(dims)};
    w->conv_state = (dims->conv_width - 1) * w->channels;
    w->delta_state = (int64_t)dims->lin_v_heads * dims->lin_k_dim * dims->lin_v_dim;
    for (int32_t s = 1; s < plan->sequences; s++)
        w->offset[s] = w->offset[s - 1] + plan->length[s - 1];
    w->u = mix_random(rows * (size_t)w->channels, seed);
    w->a = mix_random(rows * nv, seed + 1);
    w->b = mix_random(rows * nv, seed + 2);
    w->weight = mix_random((size_t)(w->channels * dims->conv_width), seed + 3);
    w->a_log = mix_random(nv, seed + 4);
    w->dt_bias = mix_random(nv, seed + 5);
    for (size_t i = 0; i < nv; i++) /* slow and fast decay */
        w->a_log[i] = 3.0f * w->a_log[i] - 1.0f;
    w->in_u = malloc(rows * (size_t)w->channels * sizeof(float));
    w->c = malloc(rows * (size_t)w->channels * sizeof(float));
    w->in_a = malloc(rows * nv * sizeof(float));
    w->in_b = malloc(rows * nv * sizeof(float));
}

static void world_close(world *w)
{
    float *all[] = {w->u, w->a, w->b, w->weight, w->a_log, w->dt_bias, w->in_u, w->c, w->in_a, w->in_b};
    for (size_t i = 0; i < QW_COUNT_OF(all); i++)
        free(all[i]);
}

static void copy_row(float *to, int64_t to_row, const float *from, int64_t from_row, int64_t width)
{
    memcpy(to + to_row * width, from + from_row * width, (size_t)width * sizeof(float));
}

static void delta_step(void *test, const qw_batch *batch, const mix_row *row)
{
    world *w = ((run_context *)test)->w;
    outcome *out = ((run_context *)test)->out;
    const int64_t nv = w->dims.lin_v_heads, values = nv * w->dims.lin_v_dim, rows = batch->rows;
    for (int64_t r = 0; r < rows; r++) {
        const int64_t from = w->offset[row[r].sequence] + row[r].token;
        copy_row(w->in_u, r, w->u, from, w->channels);
        copy_row(w->in_a, r, w->a, from, nv);
        copy_row(w->in_b, r, w->b, from, nv);
    }
    float *o = malloc((size_t)(rows * values) * sizeof(float));
    qw_buffer b[8], states = {out->states, 0, QW_SPACE_HOST, 0};
    const int64_t stride = (w->conv_state + w->delta_state) * 4;
    const qw_conv_args conv = {batch,
                               test_view(&b[0], w->in_u, rows, w->channels),
                               test_view(&b[1], w->weight, w->channels, w->dims.conv_width),
                               {&states, 0, stride},
                               test_view(&b[2], w->c, rows, w->channels)};
    CHECK_INT(w->backend.ops->conv(&w->backend, &conv), QWEN36_OK);
    const qw_delta_args delta = {.batch = batch,
                                 .c = conv.c,
                                 .a = test_view(&b[3], w->in_a, rows, nv),
                                 .b = test_view(&b[4], w->in_b, rows, nv),
                                 .a_log = test_view(&b[5], w->a_log, 0, nv),
                                 .dt_bias = test_view(&b[6], w->dt_bias, 0, nv),
                                 .state = {&states, w->conv_state * 4, stride},
                                 .o = test_view(&b[7], o, rows, values)};
    CHECK_INT(w->chunked ? qw_reference_delta_chunked(&w->backend, &delta)
                         : w->backend.ops->delta(&w->backend, &delta),
              QWEN36_OK);
    for (int64_t r = 0; r < rows; r++) {
        const int64_t to = w->offset[row[r].sequence] + row[r].token;
        copy_row(out->c, to, w->c, r, w->channels);
        copy_row(out->o, to, o, r, values);
    }
    free(o);
}

static void outcome_free(outcome *out)
{
    free(out->c);
    free(out->o);
    free(out->states);
}

/* False where the tier is missing; then there is nothing to free. */
static bool world_run(world *w, int32_t tier, int32_t threads, const mix_plan *plan, outcome *out)
{
    const size_t rows = (size_t)mix_rows(plan);
    const size_t values = rows * (size_t)(w->dims.lin_v_heads * w->dims.lin_v_dim);
    const size_t states = (size_t)(mix_slots(plan) * (w->conv_state + w->delta_state));
    *out = (outcome){0};
    w->plan = plan;
    if (!mix_open(&w->dims, tier, threads, QW_F32, mix_rows(plan), &w->backend))
        return false;
    out->c = malloc(rows * (size_t)w->channels * sizeof(float));
    out->o = malloc(values * sizeof(float));
    out->states = aligned_alloc(64, (states * sizeof(float) + 63) / 64 * 64); /* as a backend would */
    memset(out->c, 0xff, rows * (size_t)w->channels * sizeof(float));
    memset(out->o, 0xff, values * sizeof(float));
    memset(out->states, 0xff, states * sizeof(float));
    run_context context = {w, out};
    mix_run(plan, delta_step, &context);
    w->backend.ops->destroy(&w->backend);
    return true;
}

static bool same(const float *a, const float *b, int64_t count)
{
    return memcmp(a, b, (size_t)count * sizeof(float)) == 0;
}

/* Rows of one sequence, its snapshots and the state at its end, which lies in one of two slots. */
static void check_sequence(const world *w, const outcome *x, const mix_plan *px, int32_t sx, int64_t ox,
                           const outcome *y, const mix_plan *py, int32_t sy, int64_t oy)
{
    const int64_t values = w->dims.lin_v_heads * w->dims.lin_v_dim, rows = px->length[sx];
    const int64_t state = w->conv_state + w->delta_state;
    CHECK(same(x->c + ox * w->channels, y->c + oy * w->channels, rows * w->channels));
    CHECK(same(x->o + ox * values, y->o + oy * values, rows * values));
    for (int32_t i = 0; i < MIX_SNAPSHOTS && (i + 1) * px->snapshot_every <= rows; i++)
        CHECK_MSG(same(x->states + mix_snapshot(px, sx, i) * state,
                       y->states + mix_snapshot(py, sy, i) * state, state),
                  "snapshot %d", i);
    bool found = false;
    for (int32_t i = 0; i < 4; i++)
        found |= same(x->states + (2 * sx + i % 2) * state, y->states + (2 * sy + i / 2) * state, state) &&
                 !isnan(x->states[(2 * sx + i % 2) * state]);
    CHECK(found);
}

static const mix_plan prefill = {1, {300}, {{300}}, 31};
static const mix_plan cut_plans[] = {
    {1, {300}, {{1}}, 31},
    {1, {300}, {{1, 2, 3, 63, 64, 65}}, 31},
    {1, {300}, {{127, 128, 129}}, 31},
    {1, {300}, {{2, 1, 1, 3}}, 31},
    {1, {300}, {{16}}, 31},
    {1, {300}, {{299, 1}}, 31},
};

static void check_cuts(const qw_dims *dims, int32_t tier)
{
    world w;
    outcome whole, cut;
    world_open(&w, dims, &prefill, 7);
    if (world_run(&w, tier, 1, &prefill, &whole))
        for (size_t p = 0; p < QW_COUNT_OF(cut_plans); p++) {
            CHECK(world_run(&w, tier, 1 + (int32_t)p % 3, &cut_plans[p], &cut));
            check_sequence(&w, &whole, &prefill, 0, 0, &cut, &cut_plans[p], 0, 0);
            outcome_free(&cut);
        }
    outcome_free(&whole);
    world_close(&w);
}

TEST(cpu_delta, cuts)
{
    for (int32_t tier = QWEN36_CPU_PORTABLE; tier <= QWEN36_CPU_AVX512; tier++) {
        check_cuts(&small_dims, tier);
        check_cuts(&odd_dims, tier);
        check_cuts(&wide_dims, tier);
        check_cuts(&true_dims, tier);
    }
}

TEST(cpu_delta, batches)
{
    static const mix_plan together = {4, {90, 17, 130, 1}, {{64, 3}, {17}, {1, 30, 2}, {1}}, 8};
    world w;
    outcome all, single;
    world_open(&w, &odd_dims, &together, 11);
    for (int32_t tier = QWEN36_CPU_PORTABLE; tier <= QWEN36_CPU_AVX512; tier++)
        for (int32_t s = 0; s < together.sequences; s++) {
            const mix_plan alone = {1, {together.length[s]}, {{together.length[s]}}, 8};
            world solo = w;
            solo.u += w.offset[s] * w.channels;
            solo.a += w.offset[s] * w.dims.lin_v_heads;
            solo.b += w.offset[s] * w.dims.lin_v_heads;
            if (!world_run(&w, tier, 1 + s % 3, &together, &all))
                continue;
            CHECK(world_run(&solo, tier, 1, &alone, &single));
            check_sequence(&w, &all, &together, s, w.offset[s], &single, &alone, 0, 0);
            outcome_free(&all);
            outcome_free(&single);
        }
    world_close(&w);
}

/* max |a - b| / max |b|, over all rows, because an output may be small by cancellation; and over a state. */
static void check_close(const world *w, const outcome *x, const outcome *y, int32_t slot, double bound)
{
    const size_t rows = (size_t)mix_rows(w->plan), state = (size_t)(w->conv_state + w->delta_state);
    const size_t values = (size_t)(w->dims.lin_v_heads * w->dims.lin_v_dim), begin = (size_t)slot * state;
    const double c = mix_distance(x->c, y->c, rows * (size_t)w->channels);
    const double o = mix_distance(x->o, y->o, rows * values);
    const double s = mix_distance(x->states + begin, y->states + begin, state);
    CHECK_MSG(c <= 1e-6 && o <= bound && s <= bound, "conv %g, delta %g, state %g, bound %g", c, o, s, bound);
}

static void check_reference(const qw_dims *dims, double bound)
{
    const mix_plan plan = {1, {150}, {{150}}, 0};
    world w;
    outcome expected, actual;
    world_open(&w, dims, &plan, 5);
    CHECK(world_run(&w, 0, 1, &plan, &expected));
    for (int32_t tier = QWEN36_CPU_PORTABLE; tier <= QWEN36_CPU_AVX512; tier++)
        if (world_run(&w, tier, 2, &plan, &actual)) {
            check_close(&w, &actual, &expected, 0, bound);
            outcome_free(&actual);
        }
    outcome_free(&expected);
    world_close(&w);
}

TEST(cpu_delta, reference)
{
    check_reference(&small_dims, 1e-5);
    check_reference(&odd_dims, 1e-5);
    check_reference(&wide_dims, 1e-5);
    check_reference(&true_dims, 1e-5);
}

/* The chunked form, from the zero state and continuing from a state: all lengths up to two chunks and one,
 * begun at a multiple of 64 or not. */
TEST(cpu_delta, chunked_form)
{
    for (int32_t length = 1; length <= 2 * QW_KV_BLOCK + 1; length++) {
        const mix_plan plan = {1, {length + 70}, {{length % 3 == 0 ? 64 : 1 + length % 70, length + 69}}, 0};
        world w;
        outcome expected, actual;
        world_open(&w, &odd_dims, &plan, (uint64_t)length);
        CHECK(world_run(&w, 0, 1, &plan, &expected));
        w.chunked = 1;
        CHECK(world_run(&w, 0, 1, &plan, &actual));
        check_close(&w, &actual, &expected, 1, 2e-6);
        outcome_free(&actual);
        outcome_free(&expected);
        world_close(&w);
    }
}

/* Numbers worked out in float64 from the published formulas. */
static void check_toy(qw_backend *backend, bool chunked)
{
    static float c[] = {1, 0.5f, 0.6f, -0.8f, 1,    2,    0.2f, -1,    1,
                        1, -1,   0.5f, 0.3f,  0.7f, 0.1f, 0.4f, 0.25f, -0.75f};
    static float a[] = {0.1f, -0.3f, 0.5f}, beta[] = {0.2f, -0.4f, 1}, a_log[] = {0.7f}, dt_bias[] = {-0.2f};
    const double o_expected[] = {0.069549048, 0.139098096, 0.287709676,
                                 0.181900515, 0.111156133, -0.376299681};
    const double s_expected[] = {0.032615467, -0.056729103, 0.157048974, -0.554669683};
    float o[6], state[4];
    const qw_segment segment = {.row_count = 3, .state_read = -1, .write_count = 1};
    const qw_state_write write = {2, 0};
    const qw_batch batch = {
        .rows = 3, .segments = 1, .writes = 1, .segment = &segment, .state_write = &write};
    qw_buffer b[6], s = {state, sizeof state, QW_SPACE_HOST, 0};
    const qw_delta_args args = {.batch = &batch,
                                .c = test_view(&b[0], c, 3, 6),
                                .a = test_view(&b[1], a, 3, 1),
                                .b = test_view(&b[2], beta, 3, 1),
                                .a_log = test_view(&b[3], a_log, 0, 1),
                                .dt_bias = test_view(&b[4], dt_bias, 0, 1),
                                .state = {&s, 0, sizeof state},
                                .o = test_view(&b[5], o, 3, 2)};
    CHECK_INT(chunked ? qw_reference_delta_chunked(backend, &args) : backend->ops->delta(backend, &args),
              QWEN36_OK);
    for (int i = 0; i < 6; i++)
        CHECK_MSG(fabs((double)o[i] - o_expected[i]) < 2e-7, "o[%d] = %.9g", i, (double)o[i]);
    for (int i = 0; i < 4; i++)
        CHECK_MSG(fabs((double)state[i] - s_expected[i]) < 2e-7, "state[%d] = %.9g", i, (double)state[i]);
}

TEST(cpu_delta, published_numbers)
{
    const qw_dims dims = {.heads = 1,
                          .kv_heads = 1,
                          .head_dim = 1,
                          .lin_k_heads = 1,
                          .lin_v_heads = 1,
                          .lin_k_dim = 2,
                          .lin_v_dim = 2,
                          .conv_width = 4};
    for (int32_t tier = 0; tier <= QWEN36_CPU_AVX512; tier++) {
        qw_backend backend;
        if (!mix_open(&dims, tier, 1, QW_F32, 8, &backend))
            continue;
        check_toy(&backend, false);
        if (tier == 0)
            check_toy(&backend, true);
        backend.ops->destroy(&backend);
    }
}
