/* The router and the routed experts, direct and sorted, against the reference. */
#include "tests/simt/ops.h"

static void route_case(int32_t experts, int32_t k, int32_t rows, int32_t ties)
{
    const qw_dims dims = {.experts = experts, .top_k = k};
    const size_t count = (size_t)(experts * rows), chosen = (size_t)(k * rows);
    pair p;
    pair_open(&p, &dims, 0, rows, 64, QW_F32);
    float *logits = floats(count, 3), *weights = blank(chosen), *expected = blank(chosen);
    int32_t *ids = ints(chosen), *expected_ids = ints(chosen);
    for (size_t i = 0; i < count; i++)
        logits[i] = ties ? floorf(logits[i] * 3) : 5 * logits[i];
    qw_buffer b[5];
    qw_view id_view = test_view_of(&b[1], ids, QW_I32, rows, k);
    qw_route_args args = {test_view(&b[0], logits, rows, experts), id_view,
                          test_view(&b[2], weights, rows, k)};
    CHECK_RAN(qw_cuda_route(&p.cuda, &args));
    args.ids = test_view_of(&b[3], expected_ids, QW_I32, rows, k);
    args.weights = test_view(&b[4], expected, rows, k);
    p.judge.ops->route(&p.judge, &args);
    for (size_t i = 0; i < chosen; i++)
        CHECK_INT(ids[i], expected_ids[i]);
    /* A sum of exponentials: those of a device are within 2 units of the last place where the host's are
     * within 1, and leave 4 of them. The other bounds have room for that as they are. */
    check_close(weights, expected, chosen, simt_plants() ? 1e-6 : 1e-6 + 0x1p-21, "route");
    pair_close(&p);
    drop(logits), drop(weights), drop(expected), drop(ids), drop(expected_ids);
}

TEST(cuda_experts, route)
{
    route_case(8, 2, 3, 0);
    route_case(256, 8, 4, 0);
    route_case(256, 8, 4, 1);
    route_case(129, 64, 2, 1);
    route_case(5, 5, 2, 1);
}

/* A router that saw a NaN still names experts that exist, each once. */
TEST(cuda_experts, route_of_nan)
{
    const qw_dims dims = {.experts = 200, .top_k = 8};
    pair p;
    float *logits = blank(200), *weights = blank(8);
    int32_t *ids = ints(8);
    pair_open(&p, &dims, 0, 1, 64, QW_F32);
    for (int i = 0; i < 200; i++)
        logits[i] = i % 3 == 0 ? NAN : -INFINITY;
    qw_buffer b[3];
    const qw_route_args args = {test_view(&b[0], logits, 1, 200), test_view_of(&b[1], ids, QW_I32, 1, 8),
                                test_view(&b[2], weights, 1, 8)};
    CHECK_RAN(qw_cuda_route(&p.cuda, &args));
    for (int i = 0; i < 8; i++) {
        CHECK(ids[i] >= 0 && ids[i] < 200);
        for (int j = 0; j < i; j++)
            CHECK(ids[i] != ids[j]);
    }
    pair_close(&p);
    drop(logits), drop(weights), drop(ids);
}

typedef struct case_of {
    int32_t device, dtype, experts, k, rows, hidden, width, crowded, row; /* row: of the plan's table */
    double bound;
    int32_t refuse; /* the launch that is refused; 0: none */
    int32_t mixed;  /* 1: weights of every format and of two strides */
} case_of;

/* Weight m of expert e: in `memory`, which has 4 bytes for each element and for one more in each row. */
static qw_view expert_weight(const case_of *c, int32_t e, int32_t m, char *memory, const qw_buffer *buffer)
{
    const int64_t rows = m < 2 ? c->width : c->hidden, columns = m < 2 ? c->hidden : c->width;
    const int64_t each = 4 * (c->hidden + 1) * (c->width + 1), offset = (e * 3 + m) * each / 64 * 64 + 64;
    const int32_t dtype = c->mixed ? (e + m * (e % 2)) % 3 : c->dtype;
    const int64_t pad = c->mixed && (e + m) % 4 == 0, size = qw_dtype_size(dtype);
    char *from = numbers(dtype, (size_t)(rows * columns), (uint64_t)(7 + 3 * e + m), 0);
    for (int64_t r = 0; r < rows; r++)
        memcpy(memory + offset + r * (columns + pad) * size, from + r * columns * size,
               (size_t)(columns * size));
    drop(from);
    return (qw_view){buffer, offset, dtype, 2, {rows, columns}, {columns + pad, 1}};
}

static void experts_case(const case_of *c)
{
    const qw_dims dims = {.layers = 1,
                          .hidden = c->hidden,
                          .is_moe = 1,
                          .experts = c->experts,
                          .top_k = c->k,
                          .expert_size = c->width};
    const size_t count = (size_t)(c->rows * c->hidden), pairs = (size_t)(c->rows * c->k);
    const size_t bytes = (size_t)(4 * (c->hidden + 1) * (c->width + 1) * 3 * c->experts + 128);
    pair p;
    pair_open(&p, &dims, c->device, c->rows, 64, QW_F32);
    float *x = floats(count, 1), *weights = floats(pairs, 2), *y = blank(count), *expected = blank(count);
    char *w = array_of(bytes);
    int32_t *ids = ints(pairs);
    for (size_t i = 0; i < pairs; i++) { /* distinct within a row; crowded: all rows want the same few */
        const size_t row = i / (size_t)c->k, choice = i % (size_t)c->k;
        ids[i] = (int32_t)((choice * 3 + (c->crowded ? 1 : row * 5)) % (size_t)c->experts);
    }
    qw_buffer b[5], weight_buffer = {w, 0, QW_SPACE_DEVICE, 0};
    qw_expert_view *expert = calloc((size_t)c->experts, sizeof *expert);
    for (int32_t e = 0; e < c->experts; e++)
        for (int32_t m = 0; m < 3; m++)
            *(m == 0   ? &expert[e].gate
              : m == 1 ? &expert[e].up
                       : &expert[e].down) = expert_weight(c, e, m, w, &weight_buffer);
    qw_experts_args args = {.x = test_view(&b[0], x, c->rows, c->hidden),
                            .ids = test_view_of(&b[1], ids, QW_I32, c->rows, c->k),
                            .weights = test_view(&b[2], weights, c->rows, c->k),
                            .experts = c->experts,
                            .expert = expert,
                            .y = test_view(&b[3], expected, c->rows, c->hidden)};
    CHECK_INT(p.judge.ops->experts(&p.judge, &args), QWEN36_OK);
    args.y = test_view(&b[4], y, c->rows, c->hidden);
    const qw_device_profile profile = profile_of(c->device);
    const qw_experts_shape shape = {.rows = c->rows,
                                    .top_k = c->k,
                                    .experts = c->experts,
                                    .hidden = c->hidden,
                                    .width = c->width,
                                    .weight_dtype = c->dtype,
                                    .aligned = c->hidden % 8 == 0 && c->width % 8 == 0,
                                    .mixed = c->mixed};
    CHECK_INT(qw_plan_experts(&profile, &shape), c->row);
    simt_refuse_launch(c->refuse);
    for (int twice = 0; twice < 2; twice++) { /* the second time the table is known */
        CHECK_RAN(qw_cuda_experts(&p.cuda, &args));
        check_close(y, expected, count, c->bound, "experts");
    }
    CHECK_INT((int64_t)qw_cuda_refusals(&p.cuda), c->refuse > 0);
    pair_close(&p);
    drop(x), drop(weights), drop(y), drop(expected), drop(w), drop(ids), free(expert);
}

TEST(cuda_experts, direct)
{
    const case_of cases[] = {
        {0, QW_BF16, 8, 2, 1, 48, 40, 0, QW_EXPERTS_DIRECT, 3e-6, 0, 0},
        {0, QW_F32, 64, 4, 4, 33, 21, 0, QW_EXPERTS_DIRECT, 3e-6, 0, 0},
        {0, QW_F16, 16, 8, 1, 64, 32, 0, QW_EXPERTS_DIRECT, 3e-6, 0, 0},
    };
    for (size_t i = 0; i < QW_COUNT_OF(cases); i++)
        experts_case(&cases[i]);
}

TEST(cuda_experts, sorted)
{
    const case_of cases[] = {
        {0, QW_BF16, 8, 2, 5, 48, 40, 0, QW_EXPERTS_TILED, 3e-6, 0, 0},
        {0, QW_F32, 70, 3, 67, 33, 21, 0, QW_EXPERTS_TILED, 3e-6, 0, 0},
        {0, QW_F16, 9, 3, 70, 24, 16, 1, QW_EXPERTS_TILED, 3e-6, 0, 0},
        {1, QW_BF16, 8, 2, 5, 48, 40, 0, QW_EXPERTS_MATRIX, 1e-2, 0, 0},
        {1, QW_BF16, 70, 3, 67, 64, 72, 0, QW_EXPERTS_MATRIX, 1e-2, 0, 0},
        {1, QW_BF16, 9, 3, 130, 40, 16, 1, QW_EXPERTS_MATRIX, 1e-2, 0, 0},
        {1, QW_F32, 9, 3, 30, 40, 16, 1, QW_EXPERTS_TILED, 3e-6, 0, 0},
    };
    for (size_t i = 0; i < QW_COUNT_OF(cases); i++)
        if (cases[i].device < devices())
            experts_case(&cases[i]);
}

/* Each product of the matrix row may be refused: the general one takes its place, and that of the next. */
TEST(cuda_experts, refused_launch_falls_back)
{
    NEEDS_PLANTING();
    const case_of cases[] = {
        {1, QW_BF16, 8, 2, 20, 48, 40, 0, QW_EXPERTS_MATRIX, 3e-6, 2, 0},
        {1, QW_BF16, 8, 2, 20, 48, 40, 0, QW_EXPERTS_MATRIX, 1e-2, 3, 0},
    };
    for (size_t i = 0; i < QW_COUNT_OF(cases) && devices() == 2; i++)
        experts_case(&cases[i]);
}

/* Experts of one layer, and weights of one expert, in different formats and strides; also for a single row.
 */
TEST(cuda_experts, mixed_weights)
{
    const case_of cases[] = {
        {0, QW_BF16, 9, 3, 30, 40, 16, 0, QW_EXPERTS_TILED, 3e-6, 0, 1},
        {0, QW_BF16, 9, 4, 1, 33, 21, 0, QW_EXPERTS_TILED, 3e-6, 0, 1},
        {1, QW_BF16, 9, 3, 30, 40, 16, 1, QW_EXPERTS_TILED, 3e-6, 0, 1},
    };
    for (size_t i = 0; i < QW_COUNT_OF(cases); i++)
        if (cases[i].device < devices())
            experts_case(&cases[i]);
}
