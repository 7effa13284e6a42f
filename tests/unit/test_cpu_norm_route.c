/* norm, gated_norm and route of the CPU backend: against the reference backend, row by row alone and
 * together, for every tier; odd widths, all weight formats, ties, and numbers that are not finite. */
#include "tests/mixing.h"

enum { ROWS = 9 };

static const int64_t widths[] = {1, 2, 15, 16, 17, 64, 100, 129, 2048};

static bool open_tier(int32_t tier, int32_t threads, qw_backend *backend)
{
    static const qw_dims dims = {.heads = 1, .kv_heads = 1, .head_dim = 1};
    return mix_open(&dims, tier, threads, QW_F32, ROWS, backend);
}

/* ---- norms ------------------------------------------------------------------------------------------- */

typedef struct norm_case {
    int64_t rows, width;
    int32_t dtype; /* of the weight */
    float *x, *add, *weight, *y;
    uint16_t *half; /* the weight in BF16 or F16 */
} norm_case;

static norm_case norm_open(int64_t width, int32_t dtype)
{
    const size_t count = (size_t)(ROWS * width), w = (size_t)width;
    norm_case n = {ROWS, width, dtype, NULL, NULL, NULL, NULL, NULL};
    n.x = mix_random(count, 1);
    n.add = mix_random(count, 2);
    n.weight = mix_random(w, 3);
    n.y = calloc(count, sizeof(float));
    n.half = malloc(w * sizeof *n.half);
    for (size_t i = 0; i < w; i++) /* some finite pattern of either format */
        n.half[i] = (uint16_t)((dtype == QW_BF16 ? 0x3e00 : 0x3200) + i % 512 + (i % 3 == 0 ? 0x8000 : 0));
    return n;
}

static void norm_close(norm_case *n)
{
    free(n->x);
    free(n->add);
    free(n->weight);
    free(n->y);
    free(n->half);
}

static void run_norm(qw_backend *backend, const norm_case *n, float *x, float *y, int64_t first, int64_t rows)
{
    qw_buffer b[4];
    const int64_t at = first * n->width;
    const qw_norm_args args = {.x = test_view(&b[0], x + at, rows, n->width),
                               .add = test_view(&b[1], n->add + at, rows, n->width),
                               .weight = test_view_of(&b[2], n->dtype == QW_F32 ? (void *)n->weight : n->half,
                                                      n->dtype, 0, n->width),
                               .y = test_view(&b[3], y + at, rows, n->width),
                               .eps = 1e-6f};
    CHECK_INT(backend->ops->norm(backend, &args), QWEN36_OK);
}

static void run_gated(qw_backend *backend, const norm_case *n, float *y, int64_t first, int64_t rows)
{
    qw_buffer b[4];
    const int64_t at = first * n->width;
    const qw_gated_norm_args args = {
        .o = test_view(&b[0], n->x + at, rows, n->width),
        .z = test_view(&b[1], n->add + at, rows, n->width),
        .weight =
            test_view_of(&b[2], n->dtype == QW_F32 ? (void *)n->weight : n->half, n->dtype, 0, n->width),
        .y = test_view(&b[3], y + at, rows, n->width),
        .eps = 1e-6f};
    CHECK_INT(backend->ops->gated_norm(backend, &args), QWEN36_OK);
}

/* All rows at once against the reference, then each row alone against that. */
static void check_norm(int32_t tier, int32_t threads, int64_t width, int32_t dtype, bool gated)
{
    const size_t count = (size_t)(ROWS * width), bytes = count * sizeof(float);
    qw_backend fast, reference;
    norm_case n = norm_open(width, dtype);
    float *x[3] = {malloc(bytes), malloc(bytes), malloc(bytes)};
    float *y[3] = {malloc(bytes), malloc(bytes), malloc(bytes)};
    for (int i = 0; i < 3; i++)
        memcpy(x[i], n.x, bytes);
    if (open_tier(tier, threads, &fast)) {
        CHECK(open_tier(0, 1, &reference));
        for (int64_t r = 0; r < ROWS; r++)
            gated ? run_gated(&fast, &n, y[2], r, 1) : run_norm(&fast, &n, x[2], y[2], r, 1);
        gated ? run_gated(&fast, &n, y[1], 0, ROWS) : run_norm(&fast, &n, x[1], y[1], 0, ROWS);
        gated ? run_gated(&reference, &n, y[0], 0, ROWS) : run_norm(&reference, &n, x[0], y[0], 0, ROWS);
        CHECK(memcmp(x[1], x[0], bytes) == 0); /* one addition: no rounding to disagree about */
        CHECK(memcmp(x[1], x[2], bytes) == 0);
        CHECK(memcmp(y[1], y[2], bytes) == 0);
        CHECK_MSG(mix_distance(y[1], y[0], count) < 1e-6, "tier %d, width %d, dtype %d: %g", tier, (int)width,
                  dtype, mix_distance(y[1], y[0], count));
        fast.ops->destroy(&fast);
        reference.ops->destroy(&reference);
    }
    for (int i = 0; i < 3; i++) {
        free(x[i]);
        free(y[i]);
    }
    norm_close(&n);
}

TEST(cpu_norm, rows_of_every_width)
{
    for (int32_t tier = QWEN36_CPU_PORTABLE; tier <= QWEN36_CPU_AVX512; tier++)
        for (size_t i = 0; i < QW_COUNT_OF(widths); i++)
            for (int32_t dtype = QW_F32; dtype <= QW_F16; dtype++) {
                check_norm(tier, 1 + (int32_t)i % 3, widths[i], dtype, false);
                check_norm(tier, 1 + (int32_t)i % 3, widths[i], dtype, true);
            }
}

/* Without y only the residual is added; without add only the norm is formed. */
TEST(cpu_norm, optional_arguments)
{
    for (int32_t tier = QWEN36_CPU_PORTABLE; tier <= QWEN36_CPU_AVX512; tier++) {
        qw_backend backend;
        float x[] = {1, 2}, add[] = {2, 2}, weight[] = {0, 1}, y[] = {-1, -1};
        qw_buffer b[4];
        if (!open_tier(tier, 1, &backend))
            continue;
        qw_norm_args args = {
            .x = test_view(&b[0], x, 1, 2), .add = test_view(&b[1], add, 1, 2), .eps = 1e-6f};
        CHECK_INT(backend.ops->norm(&backend, &args), QWEN36_OK);
        CHECK(x[0] == 3 && x[1] == 4);
        args = (qw_norm_args){.x = args.x,
                              .weight = test_view(&b[2], weight, 0, 2),
                              .y = test_view(&b[3], y, 1, 2),
                              .eps = 1e-6f};
        CHECK_INT(backend.ops->norm(&backend, &args), QWEN36_OK);
        CHECK(x[0] == 3 && x[1] == 4);
        CHECK(fabs((double)y[0] - 3 / sqrt(12.5)) < 1e-6 && fabs((double)y[1] - 8 / sqrt(12.5)) < 1e-6);
        backend.ops->destroy(&backend);
    }
}

/* ---- route ------------------------------------------------------------------------------------------- */

static void run_route(qw_backend *backend, float *logits, int64_t rows, int64_t experts, int64_t k,
                      int32_t *ids, float *weights)
{
    qw_buffer b[3];
    const qw_route_args args = {test_view(&b[0], logits, rows, experts),
                                test_view_of(&b[1], ids, QW_I32, rows, k),
                                test_view(&b[2], weights, rows, k)};
    CHECK_INT(backend->ops->route(backend, &args), QWEN36_OK);
}

static void check_route(qw_backend *backend, int64_t experts, int64_t k)
{
    enum { MOST = ROWS * 64 };
    int32_t ids[MOST], expected_ids[MOST], alone_ids[64];
    float weights[MOST], expected[MOST], alone[64];
    float *logits = mix_random((size_t)(ROWS * experts), (uint64_t)(experts * 7 + k));
    for (int64_t i = 0; i < ROWS * experts; i++)
        logits[i] *= 8;
    qw_backend reference;
    CHECK(open_tier(0, 1, &reference));
    run_route(&reference, logits, ROWS, experts, k, expected_ids, expected);
    reference.ops->destroy(&reference);
    run_route(backend, logits, ROWS, experts, k, ids, weights);
    CHECK(memcmp(ids, expected_ids, (size_t)(ROWS * k) * sizeof *ids) == 0);
    CHECK(mix_distance(weights, expected, (size_t)(ROWS * k)) < 1e-6);
    for (int64_t r = 0; r < ROWS; r++) {
        run_route(backend, logits + r * experts, 1, experts, k, alone_ids, alone);
        CHECK(memcmp(ids + r * k, alone_ids, (size_t)k * sizeof *ids) == 0);
        CHECK(memcmp(weights + r * k, alone, (size_t)k * sizeof *alone) == 0);
    }
    free(logits);
}

TEST(cpu_route, against_reference)
{
    static const int64_t shapes[][2] = {{1, 1},  {8, 2},   {8, 8},    {17, 3},
                                        {60, 4}, {256, 8}, {512, 10}, {300, 40}};
    for (int32_t tier = QWEN36_CPU_PORTABLE; tier <= QWEN36_CPU_AVX512; tier++) {
        qw_backend backend;
        if (!open_tier(tier, 2, &backend))
            continue;
        for (size_t i = 0; i < QW_COUNT_OF(shapes); i++)
            check_route(&backend, shapes[i][0], shapes[i][1]);
        backend.ops->destroy(&backend);
    }
}

static void check_ties(qw_backend *backend)
{
    float logits[40], weights[4];
    int32_t ids[4];
    for (int i = 0; i < 40; i++)
        logits[i] = i == 37 ? 1.0f : i % 2 == 0 ? 0.5f : -0.5f;
    run_route(backend, logits, 1, 40, 4, ids, weights);
    CHECK(ids[0] == 37 && ids[1] == 0 && ids[2] == 2 && ids[3] == 4);
    CHECK(weights[1] == weights[2] && weights[2] == weights[3] && weights[0] > weights[1]);
    for (int i = 0; i < 40; i++)
        logits[i] = -3.0e38f; /* their exponentials vanish, unless the largest is taken out first */
    run_route(backend, logits, 1, 40, 4, ids, weights);
    CHECK(ids[0] == 0 && ids[3] == 3 && weights[0] == 0.25f && weights[3] == 0.25f);
}

/* A bad logit makes every weight NaN; the ids stay distinct experts. */
static void check_poison(qw_backend *backend, float bad, int at)
{
    float logits[40], weights[4];
    int32_t ids[4];
    for (int i = 0; i < 40; i++)
        logits[i] = (float)i;
    logits[at] = bad;
    run_route(backend, logits, 1, 40, 4, ids, weights);
    for (int i = 0; i < 4; i++) {
        CHECK(isnan(weights[i]) && ids[i] >= 0 && ids[i] < 40);
        for (int j = 0; j < i; j++)
            CHECK(ids[i] != ids[j]);
    }
}

TEST(cpu_route, ties_and_poison)
{
    for (int32_t tier = QWEN36_CPU_PORTABLE; tier <= QWEN36_CPU_AVX512; tier++) {
        qw_backend backend;
        if (!open_tier(tier, 1, &backend))
            continue;
        check_ties(&backend);
        for (int at = 0; at < 40; at += 13) {
            check_poison(&backend, NAN, at);
            check_poison(&backend, INFINITY, at);
        }
        backend.ops->destroy(&backend);
    }
}
