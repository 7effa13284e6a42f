/* Probes at load: a healthy device keeps its rows; one whose matrix instructions are wrong, or that refuses a
 * launch, loses the rows concerned, with a line in the log for each, and computes right afterwards; so it is
 * with a library of products. */
#include "tests/simt/ops.h"

static const qw_dims model_dims = {.hidden = 64, .heads = 8, .kv_heads = 2, .head_dim = 64, .rotary_dim = 16};
static const qw_dims other_dims = {.hidden = 64, .heads = 3, .kv_heads = 1, .head_dim = 32, .rotary_dim = 8};
static const qw_dims linear_dims = {.hidden = 64}; /* no attention at all */

static uint32_t library_row(void)
{
    return qw_plan_bit(QW_PLAN_PRODUCTS, QW_PRODUCT_LIBRARY);
}

static uint32_t matrix_rows(void)
{
    return qw_plan_special_rows() & ~library_row();
}

static void count_line(void *user, int32_t level, const char *line)
{
    CHECK_INT(level, QWEN36_LOG_WARNING);
    CHECK_MSG(strstr(line, "is out of use") != NULL, "%s", line);
    (*(int *)user)++;
}

/* A product of the model's after the probe: by the matrix row if that is in use. */
static void check_product(pair *p)
{
    enum { ROWS = 12, DEPTH = 64, COLUMNS = 20 };
    float *x = floats(ROWS * DEPTH, 1), *y = blank(ROWS * COLUMNS), *expected = blank(ROWS * COLUMNS);
    void *w = numbers(QW_BF16, COLUMNS * DEPTH, 2, 0);
    qw_buffer b[4];
    qw_linear_args args = {.x = test_view(&b[0], x, ROWS, DEPTH), .parts = 1};
    args.w[0] = test_view_of(&b[1], w, QW_BF16, COLUMNS, DEPTH);
    args.y[0] = test_view(&b[2], expected, ROWS, COLUMNS);
    p->judge.ops->linear(&p->judge, &args);
    args.y[0] = test_view(&b[3], y, ROWS, COLUMNS);
    CHECK_RAN(qw_cuda_linear(&p->cuda, &args));
    check_close(y, expected, ROWS * COLUMNS, 8e-3, "a product after the probe");
    drop(x), drop(y), drop(expected), drop(w);
}

/* Bits disabled; `lines` of the log. */
static uint32_t probe(const qw_dims *dims, int32_t device, int32_t kv_dtype, int64_t refuse, int *lines)
{
    const qw_log log = {count_line, lines};
    pair p;
    *lines = 0;
    pair_open_as(&p, dims, device, 16, 64, kv_dtype, (pair_options){.log = &log});
    const int64_t of_the_model = simt_memory_outstanding();
    simt_refuse_launch(refuse);
    CHECK_RAN(qw_cuda_probe(p.cuda.self));
    simt_refuse_launch(0);
    const uint32_t disabled = qw_cuda_disabled(&p.cuda);
    check_product(&p);
    CHECK_INT(simt_memory_outstanding(), of_the_model);
    pair_close(&p);
    return disabled;
}

TEST(cuda_probe, healthy)
{
    const int32_t types[] = {QW_F32, QW_BF16, QW_I8};
    const qw_dims *dims[] = {&model_dims, &other_dims, &linear_dims};
    int lines;
    for (int32_t device = 0; device < devices(); device++)
        for (int i = 0; i < 3; i++) {
            CHECK_INT(probe(dims[i], device, types[i], 0, &lines), profile_of(device).disabled);
            CHECK_INT(lines, 0);
        }
}

TEST(cuda_probe, wrong_instruction)
{
    int lines;
    NEEDS_PLANTING();
    if (devices() < 2)
        return;
    simt_spoil_matrix(1);
    CHECK_INT(probe(&model_dims, 1, QW_BF16, 0, &lines), matrix_rows());
    CHECK_INT(lines, 4);
    CHECK_INT(probe(&model_dims, 1, QW_I8, 0, &lines), matrix_rows());
    /* A cache of another type is read by the general row alone: nothing differs there. */
    CHECK_INT(probe(&model_dims, 1, QW_F32, 0, &lines), qw_plan_bit(QW_PLAN_PRODUCTS, QW_PRODUCT_MATRIX) |
                                                            qw_plan_bit(QW_PLAN_EXPERTS, QW_EXPERTS_MATRIX));
    CHECK_INT(lines, 2);
    simt_spoil_matrix(0);
}

/* Whichever launch of the probe is refused: at most the row that is tried then is lost. */
TEST(cuda_probe, refused_launch)
{
    int lines, losses = 0;
    uint32_t seen = 0;
    NEEDS_PLANTING();
    if (devices() < 2)
        return;
    for (int64_t n = 1; n <= 24; n++) {
        const uint32_t disabled = probe(&other_dims, 1, QW_BF16, n, &lines);
        CHECK((disabled & (disabled - 1)) == 0 && lines == (disabled != 0));
        losses += disabled != 0;
        seen |= disabled;
    }
    CHECK(losses > 10);
    CHECK_INT(seen, matrix_rows());
}

/* ---- the library of products --------------------------------------------------------------------------- */

TEST(cuda_probe, healthy_library)
{
    int lines;
    simt_library(1);
    for (int32_t device = 0; device < devices(); device++) {
        const int64_t before = simt_library_products();
        CHECK_INT(probe(&model_dims, device, QW_BF16, 0, &lines), profile_of(device).disabled);
        CHECK_INT(lines, 0);
        if (simt_plants()) /* of either format, and that behind the probe */
            CHECK_INT(simt_library_products() - before, 3);
    }
    simt_library(0);
}

/* Wrong in one format is out of use in both: the row is one. */
TEST(cuda_probe, wrong_library)
{
    const int32_t formats[] = {QW_BF16, QW_F16};
    int lines;
    NEEDS_PLANTING();
    simt_library(1);
    for (int32_t device = 0; device < devices(); device++)
        for (int i = 0; i < 2; i++) {
            simt_spoil_library(formats[i]);
            CHECK_INT(probe(&linear_dims, device, QW_F32, 0, &lines), library_row());
            CHECK_INT(lines, 1);
        }
    simt_spoil_library(-1);
    simt_library(0);
}

/* A refusal in the probe is one for good; one in a step is of that shape alone. */
TEST(cuda_probe, refused_library)
{
    int lines;
    NEEDS_PLANTING();
    simt_library(1);
    for (int32_t device = 0; device < devices(); device++)
        for (int64_t n = 1; n <= 3; n++) {
            simt_refuse_library(n);
            CHECK_INT(probe(&linear_dims, device, QW_F32, 0, &lines), n < 3 ? library_row() : 0);
            CHECK_INT(lines, n < 3);
        }
    simt_refuse_library(0);
    simt_library(0);
}
