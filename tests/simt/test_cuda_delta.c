/* Convolution and delta rule over sequences in steps, cut and batched in different ways, with snapshots of
 * states: outputs and all states against the reference. Unused state slots hold NaN in both. */
#include "tests/simt/batches.h"

typedef struct world {
    pair p;
    int64_t channels, conv_state, delta_state; /* floats */
    const mix_plan *plan;
    int32_t offset[MIX_SEQUENCES], weight_dtype;
    float *u, *a, *b;
    void *weight, *a_log, *dt_bias;
    float *c, *o, *states;                   /* what the kernels gave */
    float *judge_c, *judge_o, *judge_states; /* what the reference gave */
} world;

static void world_open(world *w, const qw_dims *dims, const mix_plan *plan, int32_t dtype)
{
    const size_t rows = (size_t)mix_rows(plan), nv = (size_t)dims->lin_v_heads;
    *w = (world){.plan = plan, .channels = qw_dims_conv_channels(dims), .weight_dtype = dtype};
    pair_open(&w->p, dims, 0, mix_rows(plan), mix_rows(plan) + 1, QW_F32);
    w->conv_state = (dims->conv_width - 1) * w->channels;
    w->delta_state = (int64_t)dims->lin_v_heads * dims->lin_k_dim * dims->lin_v_dim;
    for (int32_t s = 1; s < plan->sequences; s++)
        w->offset[s] = w->offset[s - 1] + plan->length[s - 1];
    w->u = floats(rows * (size_t)w->channels, 1);
    w->a = floats(rows * nv, 2);
    w->b = floats(rows * nv, 3);
    w->weight = numbers(dtype, (size_t)(w->channels * dims->conv_width), 4, 0);
    w->a_log = numbers(dtype, nv, 5, 0);
    w->dt_bias = numbers(QW_F32, nv, 6, 0);
    const size_t states = (size_t)(mix_slots(plan) * (w->conv_state + w->delta_state));
    float **out[] = {&w->c, &w->o, &w->states, &w->judge_c, &w->judge_o, &w->judge_states};
    const size_t sizes[] = {rows * (size_t)w->channels, rows * nv * (size_t)dims->lin_v_dim, states};
    for (int i = 0; i < 6; i++)
        *out[i] = blank(sizes[i % 3]);
}

static void world_close(world *w)
{
    void *all[] = {w->u, w->a, w->b,      w->weight,  w->a_log,   w->dt_bias,
                   w->c, w->o, w->states, w->judge_c, w->judge_o, w->judge_states};
    for (size_t i = 0; i < QW_COUNT_OF(all); i++)
        drop(all[i]);
    pair_close(&w->p);
}

static void copy_row(float *to, int64_t to_row, const float *from, int64_t from_row, int64_t width)
{
    memcpy(to + to_row * width, from + from_row * width, (size_t)width * 4);
}

/* One step of one backend: conv, then delta on its output. */
static void run_step(world *w, int32_t judge, const qw_batch *batch, const mix_row *row)
{
    const qw_dims *d = &w->p.dims;
    const int64_t rows = batch->rows, nv = d->lin_v_heads, values = nv * d->lin_v_dim;
    const int64_t stride = (w->conv_state + w->delta_state) * 4;
    float *u = blank((size_t)(rows * w->channels)), *a = blank((size_t)(rows * nv)),
          *b = blank((size_t)(rows * nv));
    float *c = blank((size_t)(rows * w->channels)), *o = blank((size_t)(rows * values));
    for (int64_t r = 0; r < rows; r++) {
        const int64_t from = w->offset[row[r].sequence] + row[r].token;
        copy_row(u, r, w->u, from, w->channels);
        copy_row(a, r, w->a, from, nv);
        copy_row(b, r, w->b, from, nv);
    }
    qw_buffer k[9], states = {judge ? w->judge_states : w->states, 0, QW_SPACE_DEVICE, 0};
    const qw_conv_args conv = {batch,
                               test_view(&k[0], u, rows, w->channels),
                               test_view_of(&k[1], w->weight, w->weight_dtype, w->channels, d->conv_width),
                               {&states, 0, stride},
                               test_view(&k[2], c, rows, w->channels)};
    const qw_delta_args delta = {.batch = batch,
                                 .c = conv.c,
                                 .a = test_view(&k[3], a, rows, nv),
                                 .b = test_view(&k[4], b, rows, nv),
                                 .a_log = test_view_of(&k[5], w->a_log, w->weight_dtype, 0, nv),
                                 .dt_bias = test_view(&k[6], w->dt_bias, 0, nv),
                                 .state = {&states, w->conv_state * 4, stride},
                                 .o = test_view(&k[7], o, rows, values)};
    if (judge) {
        CHECK_INT(w->p.judge.ops->conv(&w->p.judge, &conv), QWEN36_OK);
        CHECK_INT(w->p.judge.ops->delta(&w->p.judge, &delta), QWEN36_OK);
    } else {
        CHECK_RAN(qw_cuda_step_begin(&w->p.cuda, batch));
        CHECK_RAN(qw_cuda_conv(&w->p.cuda, &conv));
        CHECK_RAN(qw_cuda_delta(&w->p.cuda, &delta));
        CHECK_RAN(qw_cuda_step_end(&w->p.cuda));
    }
    for (int64_t r = 0; r < rows; r++) {
        const int64_t to = w->offset[row[r].sequence] + row[r].token;
        copy_row(judge ? w->judge_c : w->c, to, c, r, w->channels);
        copy_row(judge ? w->judge_o : w->o, to, o, r, values);
    }
    drop(u), drop(a), drop(b), drop(c), drop(o);
}

static void step(void *test, const qw_batch *batch, const mix_row *row)
{
    packed_batch packed;
    pack_batch(&packed, batch);
    run_step(test, 0, &packed.batch, row);
    run_step(test, 1, &packed.batch, row);
    packed_free(&packed);
}

/* Equal within the bound, or NaN in both. */
static void check_same(const float *actual, const float *expected, size_t count, double bound,
                       const char *what)
{
    for (size_t i = 0; i < count; i++)
        CHECK_MSG((isnan(actual[i]) && isnan(expected[i])) ||
                      fabs((double)actual[i] - (double)expected[i]) <= bound,
                  "%s [%zu] is %g, expected %g", what, i, (double)actual[i], (double)expected[i]);
}

static void run(const qw_dims *dims, const mix_plan *plan, int32_t dtype)
{
    world w;
    world_open(&w, dims, plan, dtype);
    mix_run(plan, step, &w);
    const size_t rows = (size_t)mix_rows(plan);
    check_same(w.c, w.judge_c, rows * (size_t)w.channels, 2e-6, "conv");
    check_same(w.o, w.judge_o, rows * (size_t)(dims->lin_v_heads * dims->lin_v_dim), 2e-5, "delta");
    check_same(w.states, w.judge_states, (size_t)(mix_slots(plan) * (w.conv_state + w.delta_state)), 2e-5,
               "states");
    world_close(&w);
}

#define LINEAR(nk, nv, dk, dv, width)                                                                        \
    {                                                                                                        \
        .heads = 1, .kv_heads = 1, .head_dim = 1, .lin_k_heads = nk, .lin_v_heads = nv, .lin_k_dim = dk,     \
        .lin_v_dim = dv, .conv_width = width                                                                 \
    }
static const qw_dims small_dims = LINEAR(2, 4, 16, 16, 4);
static const qw_dims odd_dims = LINEAR(1, 3, 10, 23, 5);
static const qw_dims wide_dims = LINEAR(1, 1, 33, 70, 2);
static const qw_dims true_dims = LINEAR(1, 2, 128, 128, 4);

TEST(cuda_delta, token_by_token)
{
    const mix_plan plan = {3, {9, 1, 14}, {{1}, {1}, {3, 1, 7}}, 4};
    run(&small_dims, &plan, QW_F32);
    run(&odd_dims, &plan, QW_BF16);
    run(&wide_dims, &plan, QW_F16);
}

TEST(cuda_delta, chunks)
{
    const mix_plan whole = {1, {200}, {{200}}, 0};
    const mix_plan cuts = {2, {150, 70}, {{40, 24, 64, 22}, {63, 7}}, 25};
    const mix_plan mixed = {3, {129, 20, 66}, {{100, 1, 28}, {1, 19}, {65, 1}}, 0};
    run(&small_dims, &whole, QW_F32);
    run(&small_dims, &cuts, QW_BF16);
    run(&odd_dims, &cuts, QW_F32);
    run(&wide_dims, &mixed, QW_F32);
}

TEST(cuda_delta, true_head_size)
{
    const mix_plan plan = {2, {80, 3}, {{80}, {1, 2}}, 0};
    run(&true_dims, &plan, QW_BF16);
}

TEST(cuda_delta, all_lengths)
{
    for (int32_t length = 1; length <= 129; length += length < 15 || (length > 62 && length < 67) ? 1 : 7) {
        const mix_plan plan = {1, {length}, {{length}}, 0};
        run(&odd_dims, &plan, QW_F32);
    }
}

static void step_alone(void *test, const qw_batch *batch, const mix_row *row)
{
    packed_batch packed;
    pack_batch(&packed, batch);
    run_step(test, 0, &packed.batch, row);
    packed_free(&packed);
}

/* The convolution's and the delta rule's outputs [length, channels + values] of the sequence that `which` is,
 * whose inputs are the same wherever it stands, and its last state. */
static float *outputs_of(const mix_plan *plan, int32_t which)
{
    const int64_t values = small_dims.lin_v_heads * small_dims.lin_v_dim, nv = small_dims.lin_v_heads;
    world w;
    world_open(&w, &small_dims, plan, QW_F32);
    const int64_t begin = w.offset[which], length = plan->length[which], state = w.conv_state + w.delta_state;
    mix_fill(w.u + begin * w.channels, (size_t)(length * w.channels), 91);
    mix_fill(w.a + begin * nv, (size_t)(length * nv), 92);
    mix_fill(w.b + begin * nv, (size_t)(length * nv), 93);
    mix_run(plan, step_alone, &w);
    float *out = blank((size_t)(length * (w.channels + values) + state));
    memcpy(out, w.c + begin * w.channels, (size_t)(length * w.channels) * 4);
    memcpy(out + length * w.channels, w.o + begin * values, (size_t)(length * values) * 4);
    memcpy(out + length * (w.channels + values), w.states + 2 * which * state, (size_t)state * 4);
    world_close(&w);
    return out;
}

static void check_equal_runs(const mix_plan *one, int32_t which, const mix_plan *other, int32_t other_which)
{
    const int64_t width = qw_dims_conv_channels(&small_dims) + small_dims.lin_v_heads * small_dims.lin_v_dim;
    const int64_t state = (small_dims.conv_width - 1) * qw_dims_conv_channels(&small_dims) + 4 * 16 * 16;
    float *a = outputs_of(one, which), *b = outputs_of(other, other_which);
    CHECK(memcmp(a, b, (size_t)(one->length[which] * width + state) * 4) == 0);
    drop(a), drop(b);
}

/* A prompt cut at multiples of 64 has the same bits as in one piece. */
TEST(cuda_delta, cuts_at_chunks_change_nothing)
{
    const mix_plan one = {1, {180}, {{180}}, 0}, cut = {1, {180}, {{64, 64, 52}}, 0};
    check_equal_runs(&one, 0, &cut, 0);
}

/* A segment's result follows from its own rows, its own cut and its state: alone, beside others, twice. */
TEST(cuda_delta, alone_and_beside_others)
{
    const mix_plan alone = {1, {110}, {{70, 1, 20, 3, 16}}, 0};
    const mix_plan first = {3, {110, 9, 130}, {{70, 1, 20, 3, 16}, {1}, {40, 90}}, 0};
    const mix_plan last = {3, {90, 15, 110}, {{20, 2}, {15}, {70, 1, 20, 3, 16}}, 0};
    check_equal_runs(&alone, 0, &alone, 0);
    check_equal_runs(&alone, 0, &first, 0);
    check_equal_runs(&alone, 0, &last, 2);
}
