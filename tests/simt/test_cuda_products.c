/* Operations on rows, and the matrix products: embed, norms, linear, mlp, head, against the reference. */
#include "tests/simt/ops.h"

static const int32_t weight_types[] = {QW_F32, QW_BF16, QW_F16};

/* BF16 activations have 8 bits: products of K of them drift by about sqrt(K) halves of 2^-8, relative to the
 * largest element far less. */
static double bound_of(int32_t device, int32_t dtype, int32_t rows)
{
    return device == 1 && dtype == QW_BF16 && rows > QW_PRODUCT_FEW_ROWS ? 8e-3 : 2e-6;
}

TEST(cuda_rows, embed)
{
    const qw_dims dims = {.vocab_size = 40, .hidden = 70};
    for (int t = 0; t < 3; t++) {
        pair p;
        const int32_t chosen[5] = {39, 0, 7, 7, 21};
        int32_t *ids = ints(5);
        memcpy(ids, chosen, sizeof chosen);
        pair_open(&p, &dims, 0, 5, 64, QW_F32);
        void *table = numbers(weight_types[t], 40 * 70, 1, 0);
        float *x = blank(5 * 70), *expected = blank(5 * 70);
        qw_buffer b[3], device = {ids, sizeof chosen, QW_SPACE_DEVICE, 0};
        const qw_batch batch = {
            .rows = 5, .ids = ids, .host = ids, .bytes = sizeof chosen, .device = &device};
        qw_embed_args args = {&batch, test_view_of(&b[0], table, weight_types[t], 40, 70),
                              test_view(&b[1], x, 5, 70)};
        CHECK_RAN(qw_cuda_embed(&p.cuda, &args));
        args.x = test_view(&b[2], expected, 5, 70);
        p.judge.ops->embed(&p.judge, &args);
        CHECK(memcmp(x, expected, 5 * 70 * 4) == 0);
        pair_close(&p);
        drop(table), drop(x), drop(expected), drop(ids);
    }
}

static void norm_case(int32_t width, int32_t rows, int32_t dtype, int32_t with_add, int32_t with_y)
{
    const qw_dims dims = {.hidden = width};
    const size_t count = (size_t)(width * rows);
    pair p;
    pair_open(&p, &dims, 0, rows, 64, QW_F32);
    float *x = floats(count, 1), *x2 = floats(count, 1), *add = floats(count, 2), *y = blank(count),
          *y2 = blank(count);
    void *weight = numbers(dtype, (size_t)width, 3, 0);
    qw_buffer b[6];
    qw_norm_args args = {.x = test_view(&b[0], x, rows, width), .eps = 1e-6F};
    if (with_add)
        args.add = test_view(&b[1], add, rows, width);
    if (with_y) {
        args.weight = test_view_of(&b[2], weight, dtype, 0, width);
        args.y = test_view(&b[3], y, rows, width);
    }
    CHECK_RAN(qw_cuda_norm(&p.cuda, &args));
    args.x = test_view(&b[4], x2, rows, width);
    if (with_y)
        args.y = test_view(&b[5], y2, rows, width);
    p.judge.ops->norm(&p.judge, &args);
    CHECK(memcmp(x, x2, count * 4) == 0);
    if (with_y)
        check_close(y, y2, count, 1e-6, "norm");
    pair_close(&p);
    drop(x), drop(x2), drop(add), drop(y), drop(y2), drop(weight);
}

TEST(cuda_rows, norm)
{
    norm_case(1, 1, QW_F32, 0, 1);
    norm_case(129, 3, QW_BF16, 1, 1);
    norm_case(513, 2, QW_F16, 0, 1);
    norm_case(300, 2, QW_F32, 1, 0);
}

TEST(cuda_rows, gated_norm)
{
    const int32_t widths[] = {1, 16, 128, 150};
    for (int i = 0; i < 4; i++) {
        const int32_t heads = 3, rows = 4, columns = heads * widths[i];
        const qw_dims dims = {.lin_v_heads = heads, .lin_v_dim = widths[i]};
        const size_t count = (size_t)(rows * columns);
        pair p;
        pair_open(&p, &dims, 0, rows, 64, QW_F32);
        float *o = floats(count, 1), *z = floats(count, 2), *y = blank(count);
        void *weight = numbers(weight_types[i % 3], (size_t)widths[i], 3, 0);
        qw_buffer b[4];
        qw_gated_norm_args args = {test_view(&b[0], o, rows, columns), test_view(&b[1], z, rows, columns),
                                   test_view_of(&b[2], weight, weight_types[i % 3], 0, widths[i]),
                                   test_view(&b[3], y, rows, columns), 1e-6F};
        p.judge.ops->gated_norm(&p.judge, &args);
        args.y = args.o; /* in place */
        CHECK_RAN(qw_cuda_gated_norm(&p.cuda, &args));
        check_close(o, y, count, 1e-6, "gated_norm");
        pair_close(&p);
        drop(o), drop(z), drop(y), drop(weight);
    }
}

/* Two weights of different widths; `skew` puts the weights at addresses that are no multiples of 16. */
static void linear_case(int32_t device, int32_t dtype, int32_t rows, int32_t depth, int32_t columns,
                        size_t skew)
{
    const qw_dims dims = {.hidden = depth};
    pair p;
    pair_open(&p, &dims, device, rows, 64, QW_F32);
    const int32_t widths[2] = {columns, 3};
    float *x = floats((size_t)(rows * depth), 1), *y[2], *expected[2];
    void *w[2];
    qw_buffer b[8];
    qw_linear_args args = {.x = test_view(&b[0], x, rows, depth), .parts = 2};
    for (int i = 0; i < 2; i++) {
        w[i] = numbers(dtype, (size_t)(widths[i] * depth), (uint64_t)(5 + i), skew);
        y[i] = blank((size_t)(rows * widths[i]));
        expected[i] = blank((size_t)(rows * widths[i]));
        args.w[i] = test_view_of(&b[1 + i], w[i], dtype, widths[i], depth);
        args.y[i] = test_view(&b[3 + i], expected[i], rows, widths[i]);
    }
    p.judge.ops->linear(&p.judge, &args);
    for (int i = 0; i < 2; i++)
        args.y[i] = test_view(&b[5 + i], y[i], rows, widths[i]);
    CHECK_RAN(qw_cuda_linear(&p.cuda, &args));
    char what[96];
    snprintf(what, sizeof what, "linear device %d dtype %d rows %d depth %d columns %d", device, dtype, rows,
             depth, columns);
    for (int i = 0; i < 2; i++) {
        check_close(y[i], expected[i], (size_t)(rows * widths[i]), bound_of(device, dtype, rows), what);
        drop((char *)w[i] - skew * (size_t)qw_dtype_size(dtype));
        drop(y[i]), drop(expected[i]);
    }
    pair_close(&p);
    drop(x);
}

TEST(cuda_products, linear_few_rows)
{
    for (int32_t t = 0; t < 3; t++)
        for (int32_t rows = 1; rows <= 8; rows++)
            linear_case(0, weight_types[t], rows, 1 + 37 * rows + 8 * t, 21, (size_t)(rows % 2));
    linear_case(0, QW_BF16, 1, 512, 33, 0);
    linear_case(0, QW_BF16, 3, 1024, 9, 0);
}

TEST(cuda_products, linear_tiles)
{
    for (int32_t device = 0; device < devices(); device++)
        for (int32_t t = 0; t < 3; t++) {
            linear_case(device, weight_types[t], 9, 40, 17, 0);
            linear_case(device, weight_types[t], 64, 32, 64, 0);
            linear_case(device, weight_types[t], 65, 72, 130, 0);
            linear_case(device, weight_types[t], 33, 23, 66, 1); /* not aligned */
        }
}

static void mlp_case(int32_t device, int32_t dtype, int32_t rows, int32_t hidden, int32_t width,
                     int32_t gated, int32_t accumulate)
{
    const qw_dims dims = {.hidden = hidden, .intermediate = width};
    const size_t count = (size_t)(rows * hidden), size = (size_t)(hidden * width);
    pair p;
    pair_open(&p, &dims, device, rows, 64, QW_F32);
    float *x = floats(count, 1), *y = floats(count, 2), *expected = floats(count, 2);
    void *gate = numbers(dtype, size, 3, 0), *up = numbers(dtype, size, 4, 0),
         *down = numbers(dtype, size, 5, 0);
    void *row_gate = numbers(dtype, (size_t)hidden, 6, 0);
    qw_buffer b[7];
    qw_mlp_args args = {.x = test_view(&b[0], x, rows, hidden),
                        .gate = test_view_of(&b[1], gate, dtype, width, hidden),
                        .up = test_view_of(&b[2], up, dtype, width, hidden),
                        .down = test_view_of(&b[3], down, dtype, hidden, width),
                        .accumulate = accumulate,
                        .y = test_view(&b[4], expected, rows, hidden)};
    if (gated)
        args.row_gate = test_view_of(&b[5], row_gate, dtype, 1, hidden);
    p.judge.ops->mlp(&p.judge, &args);
    args.y = test_view(&b[6], y, rows, hidden);
    CHECK_RAN(qw_cuda_mlp(&p.cuda, &args));
    check_close(y, expected, count, 2 * bound_of(device, dtype, rows), "mlp");
    pair_close(&p);
    drop(x), drop(y), drop(expected), drop(gate), drop(up), drop(down), drop(row_gate);
}

TEST(cuda_products, mlp)
{
    for (int32_t device = 0; device < devices(); device++) {
        mlp_case(device, QW_BF16, 1, 48, 96, 1, 1);
        mlp_case(device, QW_BF16, 20, 72, 40, 1, 1);
        mlp_case(device, QW_BF16, 66, 64, 88, 0, 0);
        mlp_case(device, QW_F32, 11, 33, 27, 1, 0);
        mlp_case(device, QW_F16, 5, 40, 31, 0, 1);
    }
}

/* gate and up of one MLP in different formats, or `pad` elements further from row to row in up. */
static void mixed_mlp_case(int32_t device, int32_t gate_type, int32_t up_type, int32_t rows, int32_t pad)
{
    enum { HIDDEN = 48, WIDTH = 40 };
    const qw_dims dims = {.hidden = HIDDEN, .intermediate = WIDTH};
    const size_t count = (size_t)(rows * HIDDEN);
    pair p;
    pair_open(&p, &dims, device, rows, 64, QW_F32);
    float *x = floats(count, 1), *y = floats(count, 2), *expected = floats(count, 2);
    void *gate = numbers(gate_type, HIDDEN * WIDTH, 3, 0), *down = numbers(QW_BF16, HIDDEN * WIDTH, 5, 0);
    void *up = numbers(up_type, (size_t)((HIDDEN + pad) * WIDTH), 4, 0);
    qw_buffer b[7];
    qw_mlp_args args = {.x = test_view(&b[0], x, rows, HIDDEN),
                        .gate = test_view_of(&b[1], gate, gate_type, WIDTH, HIDDEN),
                        .up = test_view_of(&b[2], up, up_type, WIDTH, HIDDEN),
                        .down = test_view_of(&b[3], down, QW_BF16, HIDDEN, WIDTH),
                        .accumulate = 1,
                        .y = test_view(&b[4], expected, rows, HIDDEN)};
    args.up.stride[0] += pad;
    p.judge.ops->mlp(&p.judge, &args);
    args.y = test_view(&b[5], y, rows, HIDDEN);
    CHECK_RAN(qw_cuda_mlp(&p.cuda, &args));
    check_close(y, expected, count, device == 1 && rows > QW_PRODUCT_FEW_ROWS ? 1.6e-2 : 4e-6, "mixed mlp");
    pair_close(&p);
    drop(x), drop(y), drop(expected), drop(gate), drop(up), drop(down);
}

TEST(cuda_products, mlp_of_mixed_weights)
{
    for (int32_t device = 0; device < devices(); device++) {
        mixed_mlp_case(device, QW_BF16, QW_F32, 3, 0);
        mixed_mlp_case(device, QW_F16, QW_BF16, 20, 0);
        mixed_mlp_case(device, QW_BF16, QW_BF16, 20, 8);
        mixed_mlp_case(device, QW_BF16, QW_BF16, 2, 3);
    }
}

static void head_case(int32_t device, int32_t count, int32_t live)
{
    enum { ROWS = 20, DEPTH = 64, VOCAB = 150 };
    const qw_dims dims = {.hidden = DEPTH, .vocab_size = VOCAB};
    pair p;
    pair_open(&p, &dims, device, ROWS, 64, QW_F32);
    float *x = floats(ROWS * DEPTH, 1), *y = floats(ROWS * VOCAB, 2), *expected = floats(ROWS * VOCAB, 2);
    void *w = numbers(QW_BF16, VOCAB * DEPTH, 3, 0);
    int32_t in[ROWS], out[ROWS];
    for (int32_t i = 0; i < count; i++) {
        in[i] = (i * 7 + 3) % ROWS;
        out[i] = ROWS - 1 - i;
    }
    qw_buffer b[4];
    qw_head_args args = {test_view(&b[0], x, ROWS, DEPTH),
                         test_view_of(&b[1], w, QW_BF16, VOCAB, DEPTH),
                         count,
                         in,
                         out,
                         live,
                         test_view(&b[2], expected, ROWS, VOCAB)};
    p.judge.ops->head(&p.judge, &args);
    args.logits = test_view(&b[3], y, ROWS, VOCAB);
    CHECK_RAN(qw_cuda_head(&p.cuda, &args));
    for (int32_t r = 0; r < ROWS; r++) {
        check_close(y + r * VOCAB, expected + r * VOCAB, (size_t)live, bound_of(device, QW_BF16, count),
                    "head");
        for (int32_t v = live; v < VOCAB && r >= ROWS - count; v++)
            CHECK(isinf(y[r * VOCAB + v]) && y[r * VOCAB + v] < 0);
        if (r < ROWS - count)
            CHECK(memcmp(y + r * VOCAB, expected + r * VOCAB, VOCAB * 4) == 0);
    }
    pair_close(&p);
    drop(x), drop(y), drop(expected), drop(w);
}

TEST(cuda_products, head)
{
    for (int32_t device = 0; device < devices(); device++) {
        head_case(device, 1, 150);
        head_case(device, 5, 143);
        head_case(device, 17, 101);
    }
}

/* A refused launch of the matrix row falls back to the general one in the same call. */
TEST(cuda_products, refused_launch_falls_back)
{
    NEEDS_PLANTING();
    if (devices() < 2)
        return;
    enum { ROWS = 16, DEPTH = 64, COLUMNS = 64 };
    const qw_dims dims = {.hidden = DEPTH};
    pair p;
    pair_open(&p, &dims, 1, ROWS, 64, QW_F32);
    float *x = floats(ROWS * DEPTH, 1), *y = blank(ROWS * COLUMNS), *expected = blank(ROWS * COLUMNS);
    void *w = numbers(QW_BF16, COLUMNS * DEPTH, 2, 0);
    qw_buffer b[4];
    qw_linear_args args = {.x = test_view(&b[0], x, ROWS, DEPTH), .parts = 1};
    args.w[0] = test_view_of(&b[1], w, QW_BF16, COLUMNS, DEPTH);
    args.y[0] = test_view(&b[2], expected, ROWS, COLUMNS);
    p.judge.ops->linear(&p.judge, &args);
    args.y[0] = test_view(&b[3], y, ROWS, COLUMNS);
    simt_refuse_launch(1);
    for (int twice = 0; twice < 2; twice++) { /* the second time it is not tried */
        CHECK_RAN(qw_cuda_linear(&p.cuda, &args));
        check_close(y, expected, ROWS * COLUMNS, 2e-6, "the general row");
        CHECK_INT((int64_t)qw_cuda_refusals(&p.cuda), 1);
        CHECK_INT(qw_cuda_disabled(&p.cuda), qw_plan_bit(QW_PLAN_PRODUCTS, QW_PRODUCT_MATRIX));
    }
    pair_close(&p);
    drop(x), drop(y), drop(expected), drop(w);
}

/* ---- products by a library ---- */

enum { LIBRARY_ROWS = 13, LIBRARY_DEPTH = 72, LIBRARY_PARTS = 3 };
static const int32_t library_widths[LIBRARY_PARTS] = {1030, 3, 5};

typedef struct library_run {
    pair p;
    float *x, *y[LIBRARY_PARTS], *expected[LIBRARY_PARTS];
    void *w[LIBRARY_PARTS];
    qw_buffer b[1 + 3 * LIBRARY_PARTS];
    qw_linear_args args;
} library_run;

/* Rows of every magnitude; weights of `dtype`, the last one float32, which the library does not take. What is
 * expected is of the reference. */
static void library_begin(library_run *run, int32_t dtype)
{
    const float least = dtype == QW_F16 ? 1e-40F : 1e-30F; /* BF16 has no bits to spare below 1e-38 */
    const float magnitude[LIBRARY_ROWS] = {1,        1e6F,     1e-6F, 0, 1e36F, 1e-36F, least,
                                           65520.0F, 32768.0F, 3e-8F, 7, 1e9F,  0.1F};
    const qw_dims dims = {.hidden = LIBRARY_DEPTH};
    simt_library(1);
    pair_open(&run->p, &dims, 0, LIBRARY_ROWS, 64, QW_F32);
    simt_library(0);
    if (!simt_has_library(&run->p.cuda)) {
        pair_close(&run->p);
        test_skip("there is no library of products");
    }
    run->x = floats(LIBRARY_ROWS * LIBRARY_DEPTH, 1);
    for (int32_t i = 0; i < LIBRARY_ROWS * LIBRARY_DEPTH; i++)
        run->x[i] *= magnitude[i / LIBRARY_DEPTH];
    run->args = (qw_linear_args){.x = test_view(&run->b[0], run->x, LIBRARY_ROWS, LIBRARY_DEPTH),
                                 .parts = LIBRARY_PARTS};
    for (int32_t i = 0; i < LIBRARY_PARTS; i++) {
        const int32_t type = i == LIBRARY_PARTS - 1 ? QW_F32 : dtype, width = library_widths[i];
        run->w[i] = numbers(type, (size_t)(width * LIBRARY_DEPTH), (uint64_t)(5 + i), 0);
        run->y[i] = blank((size_t)(LIBRARY_ROWS * width));
        run->expected[i] = blank((size_t)(LIBRARY_ROWS * width));
        run->args.w[i] = test_view_of(&run->b[1 + 3 * i], run->w[i], type, width, LIBRARY_DEPTH);
        run->args.y[i] = test_view(&run->b[2 + 3 * i], run->expected[i], LIBRARY_ROWS, width);
    }
    run->p.judge.ops->linear(&run->p.judge, &run->args);
    for (int32_t i = 0; i < LIBRARY_PARTS; i++)
        run->args.y[i] = test_view(&run->b[3 + 3 * i], run->y[i], LIBRARY_ROWS, library_widths[i]);
}

static void library_end(library_run *run)
{
    pair_close(&run->p);
    drop(run->x);
    for (int32_t i = 0; i < LIBRARY_PARTS; i++)
        drop(run->w[i]), drop(run->y[i]), drop(run->expected[i]);
}

/* Each row by its own largest element. */
static void check_part(const library_run *run, int32_t part, double bound)
{
    const int32_t width = library_widths[part];
    for (int32_t r = 0; r < LIBRARY_ROWS; r++)
        check_close(run->y[part] + r * width, run->expected[part] + r * width, (size_t)width, bound,
                    "a product of the library");
}

TEST(cuda_products, library)
{
    const struct {
        int32_t dtype;
        double bound;
    } cases[] = {{QW_BF16, 8e-3}, {QW_F16, 1e-3}};
    for (size_t i = 0; i < QW_COUNT_OF(cases); i++) {
        library_run run;
        const int64_t before = simt_library_products();
        library_begin(&run, cases[i].dtype);
        CHECK_RAN(qw_cuda_linear(&run.p.cuda, &run.args));
        if (simt_plants())
            CHECK_INT(simt_library_products() - before, 2);
        else /* cuBLASLt may have no way for 3 columns, but must have one for the many */
            CHECK(qw_cuda_refusals(&run.p.cuda) <= 1);
        check_part(&run, 0, cases[i].bound);
        check_part(&run, 1, cases[i].bound);
        check_part(&run, 2, 2e-5);
        library_end(&run);
    }
}

/* What is not finite stays in its row, and is not finite in it. */
TEST(cuda_products, library_and_infinities)
{
    library_run run;
    library_begin(&run, QW_F16);
    run.x[1 * LIBRARY_DEPTH + 5] = INFINITY;
    run.x[4 * LIBRARY_DEPTH + 70] = NAN;
    CHECK_RAN(qw_cuda_linear(&run.p.cuda, &run.args));
    for (int32_t r = 0; r < LIBRARY_ROWS; r++) {
        const float *row = run.y[0] + r * library_widths[0];
        if (r == 1 || r == 4)
            CHECK(!isfinite(row[0]) && !isfinite(row[1029]));
        else
            check_close(row, run.expected[0] + r * library_widths[0], (size_t)library_widths[0], 1e-3,
                        "a finite row");
    }
    library_end(&run);
}

/* A product that the library refuses is made by a row of our own in the same call, the next one is not. */
/* What it had begun with and cannot go on with is another matter: it is out of use from then on. */
TEST(cuda_products, broken_library_is_out_of_use)
{
    NEEDS_PLANTING();
    library_run run;
    const int64_t before = simt_library_products();
    library_begin(&run, QW_BF16);
    simt_break_library(1);
    CHECK_RAN(qw_cuda_linear(&run.p.cuda, &run.args));
    CHECK_INT(simt_library_products() - before, 0);
    CHECK_INT((int64_t)qw_cuda_refusals(&run.p.cuda), 1);
    CHECK_INT(qw_cuda_disabled(&run.p.cuda), qw_plan_bit(QW_PLAN_PRODUCTS, QW_PRODUCT_LIBRARY));
    check_part(&run, 0, 8e-3);
    check_part(&run, 1, 8e-3);
    library_end(&run);
}

TEST(cuda_products, refused_library_falls_back)
{
    NEEDS_PLANTING();
    library_run run;
    const int64_t before = simt_library_products();
    library_begin(&run, QW_F16);
    simt_refuse_library(1);
    CHECK_RAN(qw_cuda_linear(&run.p.cuda, &run.args));
    CHECK_INT(simt_library_products() - before, 1);
    CHECK_INT((int64_t)qw_cuda_refusals(&run.p.cuda), 1);
    CHECK_INT(qw_cuda_disabled(&run.p.cuda), 0); /* another shape may do */
    check_part(&run, 0, 2e-5);                   /* the least row has few bits in float32 too */
    check_part(&run, 1, 1e-3);
    library_end(&run);
}

/* A lost device is not taken for a refusal, wherever it is found. */
TEST(cuda_products, lost_device_is_told)
{
    NEEDS_PLANTING();
    library_run run;
    library_begin(&run, QW_F16);
    for (int64_t n = 1; n <= 6; n++) { /* x narrowed; two products, each scaled; the last part */
        simt_lose_device(n);
        CHECK_INT(qw_cuda_linear(&run.p.cuda, &run.args), QWEN36_ERROR_DEVICE_LOST);
        simt_revive_device();
    }
    CHECK_RAN(qw_cuda_linear(&run.p.cuda, &run.args));
    library_end(&run);
}
