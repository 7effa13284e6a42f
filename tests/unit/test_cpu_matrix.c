/* The matrix ops of the CPU backend (embed, linear, mlp, experts, head), for every tier that this processor
 * has: against float64 with an error bound, and bit by bit against themselves under other batches, other
 * numbers of threads and other neighbours. Weights end at an inaccessible page, at odd addresses. */
#define _GNU_SOURCE
#include "lib/backend.h"
#include "lib/weights/dtype.h"
#include "tests/harness.h"

#include <math.h>
#include <sys/mman.h>
#include <unistd.h>

/* ---- material ------------------------------------------------------------------------------------------ */

static uint64_t random_state = 1;

static double random_unit(void)
{
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return (double)(random_state >> 11) / 9007199254740992.0 - 0.5;
}

static float from_bf16(uint16_t bits)
{
    uint32_t wide = (uint32_t)bits << 16;
    float value;
    memcpy(&value, &wide, sizeof value);
    return value;
}

static uint16_t to_bf16(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

static double from_f16(uint16_t bits)
{
    const int exponent = bits >> 10 & 31, mantissa = bits & 1023;
    const double magnitude = exponent == 0 ? ldexp(mantissa, -24) : ldexp(1024 + mantissa, exponent - 25);
    return bits & 0x8000 ? -magnitude : magnitude;
}

/* Memory of whole pages with a forbidden one behind: `bytes` end exactly there. */
typedef struct guarded {
    char *map, *data;
    size_t size;
} guarded;

static guarded guarded_create(size_t bytes)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    guarded g = {.size = (bytes + page - 1) / page * page + page};
    g.map = mmap(NULL, g.size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(g.map != MAP_FAILED);
    CHECK(mprotect(g.map + g.size - page, page, PROT_NONE) == 0);
    g.data = g.map + g.size - page - bytes;
    return g;
}

/* A weight matrix in a given format, its values in float64, and its view. */
typedef struct matrix {
    guarded memory;
    qw_buffer buffer;
    qw_view view;
    double *value;
} matrix;

static matrix matrix_create(int32_t dtype, int64_t rows, int64_t columns)
{
    const int64_t size = qw_dtype_size(dtype), count = rows * columns;
    matrix m = {.memory = guarded_create((size_t)(count * size))};
    m.value = malloc((size_t)count * sizeof *m.value);
    const float scale = 2.0f / sqrtf((float)columns);
    for (int64_t i = 0; i < count; i++) {
        const float value = scale * (float)random_unit();
        uint16_t half = to_bf16(value);
        if (dtype == QW_F16) /* any finite pattern with a small exponent, subnormals included */
            half = (uint16_t)((int)(random_unit() * 65536) & 0xafff);
        m.value[i] = dtype == QW_F32 ? value : dtype == QW_BF16 ? from_bf16(half) : from_f16(half);
        memcpy(m.memory.data + i * size, dtype == QW_F32 ? (const void *)&value : &half, (size_t)size);
    }
    m.buffer = (qw_buffer){m.memory.data, (uint64_t)(count * size), QW_SPACE_HOST, 0};
    m.view = (qw_view){NULL, 0, dtype, 2, {rows, columns, 1}, {columns, 1, 1}};
    return m;
}

/* The view of a matrix that has come to rest in memory. */
static qw_view matrix_view(const matrix *m)
{
    qw_view view = m->view;
    view.buffer = &m->buffer;
    return view;
}

static void matrix_destroy(matrix *m)
{
    munmap(m->memory.map, m->memory.size);
    free(m->value);
}

/* Float32 or int32 rows with a stride of their own; the gaps are NaN and must stay untouched. */
typedef struct rows {
    float *data;
    qw_buffer buffer;
    int64_t count, width, stride;
    int32_t dtype;
} rows;

static rows rows_create(int64_t count, int64_t width)
{
    rows r = {.count = count, .width = width, .stride = width + 3, .dtype = QW_F32};
    r.data = malloc((size_t)(count * r.stride) * sizeof *r.data);
    for (int64_t i = 0; i < count * r.stride; i++)
        r.data[i] = i % r.stride < width ? (float)random_unit() * 2.0f : NAN;
    r.buffer = (qw_buffer){r.data, (uint64_t)(count * r.stride) * 4, QW_SPACE_HOST, 0};
    return r;
}

static qw_view rows_view(const rows *r, int64_t first, int64_t count)
{
    return (qw_view){&r->buffer, first * r->stride * 4, r->dtype, 2, {count, r->width, 1}, {r->stride, 1, 1}};
}

static void rows_poison(const rows *r)
{
    for (int64_t i = 0; i < r->count * r->stride; i++)
        r->data[i] = NAN;
}

static void rows_check_gaps(const rows *r)
{
    for (int64_t i = 0; i < r->count * r->stride; i++)
        CHECK(i % r->stride < r->width || isnan(r->data[i]));
}

static void rows_destroy(rows *r)
{
    free(r->data);
}

static const float *row_of(const rows *r, int64_t i)
{
    return r->data + i * r->stride;
}

/* ---- backends ------------------------------------------------------------------------------------------ */

typedef struct setting {
    int32_t tier, numerics;
} setting;

static const setting settings[] = {
    {QWEN36_CPU_PORTABLE, QWEN36_NUMERICS_REFERENCE}, {QWEN36_CPU_AVX2, QWEN36_NUMERICS_REFERENCE},
    {QWEN36_CPU_AVX512, QWEN36_NUMERICS_REFERENCE},   {QWEN36_CPU_PORTABLE, QWEN36_NUMERICS_FAST},
    {QWEN36_CPU_AVX2, QWEN36_NUMERICS_FAST},          {QWEN36_CPU_AVX512, QWEN36_NUMERICS_FAST},
};
static const int32_t dtypes[] = {QW_F32, QW_BF16, QW_F16};

static qw_allocator allocator;

/* False when the processor lacks the tier. */
static bool open_backend(setting s, const qw_dims *dims, int32_t max_rows, int32_t threads, qw_backend *out)
{
    allocator = qw_allocator_default();
    const qw_backend_config config = {.allocator = &allocator,
                                      .dims = dims,
                                      .numerics = s.numerics,
                                      .kv_dtype = QW_F32,
                                      .cpu_tier = s.tier,
                                      .threads = threads,
                                      .max_rows = max_rows,
                                      .max_segments = 4,
                                      .max_head_rows = max_rows,
                                      .max_context = 256};
    qwen36_error error = QWEN36_ERROR_INIT;
    const qwen36_status status = qw_cpu_backend_open(&config, out, &error);
    if (status == QWEN36_ERROR_ARGUMENT)
        return false;
    CHECK_MSG(status == QWEN36_OK, "%s", error.message);
    CHECK_INT(out->scratch_bytes, qw_cpu_backend_scratch_bytes(&config));
    return true;
}

/* Dimensions that satisfy every op's scratch; those under test are set by the caller. */
static qw_dims small_dims(int32_t hidden)
{
    qw_dims d = {0};
    d.vocab_size = 100;
    d.hidden = hidden;
    d.heads = d.kv_heads = d.lin_k_heads = d.lin_v_heads = 1;
    d.head_dim = d.rotary_dim = d.lin_k_dim = d.lin_v_dim = 16;
    d.conv_width = 4;
    d.layers = 1;
    return d;
}

/* Whether products with these weights round x to BF16, as the backend's name tells. */
static bool rounds_x(const qw_backend *backend, int32_t dtype)
{
    return dtype == QW_BF16 && strstr(backend->name, "-bf16") != NULL;
}

/* ---- comparison ---------------------------------------------------------------------------------------- */

/* y against w x in float64. Any order of additions in float32 stays within (k + 2) rounding errors of the
 * sum of magnitudes. */
static void check_products(const qw_backend *backend, const matrix *w, const rows *x, const rows *y,
                           int64_t count)
{
    const int64_t n = w->view.shape[0], k = w->view.shape[1];
    const bool rounded = rounds_x(backend, w->view.dtype);
    for (int64_t r = 0; r < count; r++) {
        for (int64_t c = 0; c < n; c++) {
            double sum = 0, magnitude = 0;
            for (int64_t i = 0; i < k; i++) {
                const float value = row_of(x, r)[i];
                const double term = w->value[c * k + i] * (rounded ? from_bf16(to_bf16(value)) : value);
                sum += term;
                magnitude += fabs(term);
            }
            const double error = fabs(sum - row_of(y, r)[c]);
            CHECK_MSG(error <= magnitude * (double)(k + 2) * 6e-8 + 1e-30, "%s dtype %d n %d k %d row %d: %g",
                      backend->name, w->view.dtype, (int)n, (int)k, (int)r, error);
        }
    }
}

static void check_same(const rows *a, int64_t i, const rows *b, int64_t j, const char *what)
{
    for (int64_t c = 0; c < a->width; c++)
        CHECK_MSG(memcmp(row_of(a, i) + c, row_of(b, j) + c, 4) == 0, "%s: row %d column %d: %a %a", what,
                  (int)i, (int)c, (double)row_of(a, i)[c], (double)row_of(b, j)[c]);
}

/* ---- linear -------------------------------------------------------------------------------------------- */

static const int32_t row_counts[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 33, 64, 65, 97, 193};
enum { MOST_ROWS = 193 };

/* The expected rows are those of the whole batch with one thread. */
static void linear_case(setting s, int32_t dtype, int32_t n, int32_t k)
{
    const qw_dims dims = small_dims(k);
    qw_backend backend;
    if (!open_backend(s, &dims, MOST_ROWS, 1, &backend))
        return;
    matrix w[2] = {matrix_create(dtype, n, k), matrix_create(QW_F32, 3, k)};
    rows x = rows_create(MOST_ROWS, k), all = rows_create(MOST_ROWS, n), part = rows_create(MOST_ROWS, n);
    rows other = rows_create(MOST_ROWS, 3);
    qw_linear_args args = {.x = rows_view(&x, 0, MOST_ROWS),
                           .parts = 2,
                           .w = {matrix_view(&w[0]), matrix_view(&w[1])},
                           .y = {rows_view(&all, 0, MOST_ROWS), rows_view(&other, 0, MOST_ROWS)}};
    rows_poison(&all);
    CHECK_INT(backend.ops->linear(&backend, &args), QWEN36_OK);
    check_products(&backend, &w[0], &x, &all, 40);
    check_products(&backend, &w[1], &x, &other, 9);
    rows_check_gaps(&all);
    backend.ops->destroy(&backend);

    for (int32_t threads = 1; threads <= 3; threads++) {
        CHECK(open_backend(s, &dims, MOST_ROWS, threads, &backend));
        for (size_t i = 0; i < QW_COUNT_OF(row_counts); i++) {
            const int32_t count = row_counts[i], first = MOST_ROWS - count;
            args.parts = 1;
            args.x = rows_view(&x, first, count);
            args.y[0] = rows_view(&part, 0, count);
            rows_poison(&part);
            CHECK_INT(backend.ops->linear(&backend, &args), QWEN36_OK);
            for (int32_t r = 0; r < count; r++)
                check_same(&part, r, &all, first + r, backend.name);
        }
        backend.ops->destroy(&backend);
    }
    matrix_destroy(&w[0]);
    matrix_destroy(&w[1]);
    rows_destroy(&x);
    rows_destroy(&all);
    rows_destroy(&part);
    rows_destroy(&other);
}

TEST(cpu_matrix, linear)
{
    static const int32_t shapes[][2] = {{1, 1},   {4, 16},  {8, 32},   {7, 60},   {37, 33},
                                        {64, 64}, {13, 95}, {130, 47}, {40, 300}, {257, 17}};
    for (size_t s = 0; s < QW_COUNT_OF(settings); s++)
        for (size_t d = 0; d < QW_COUNT_OF(dtypes); d++)
            for (size_t i = 0; i < QW_COUNT_OF(shapes); i++)
                linear_case(settings[s], dtypes[d], shapes[i][0], shapes[i][1]);
}

/* ---- mlp ----------------------------------------------------------------------------------------------- */

typedef struct mlp_weights {
    matrix gate, up, down;
} mlp_weights;

static mlp_weights mlp_create(int32_t dtype, int32_t hidden, int32_t width)
{
    return (mlp_weights){matrix_create(dtype, width, hidden), matrix_create(dtype, width, hidden),
                         matrix_create(dtype, hidden, width)};
}

static void mlp_destroy(mlp_weights *w)
{
    matrix_destroy(&w->gate);
    matrix_destroy(&w->up);
    matrix_destroy(&w->down);
}

static double dot(const double *w, const float *x, int64_t k, bool rounded)
{
    double sum = 0;
    for (int64_t i = 0; i < k; i++)
        sum += w[i] * (rounded ? from_bf16(to_bf16(x[i])) : x[i]);
    return sum;
}

/* m = mlp(x) in float64 and, per column, a bound of what float32 (and a hidden layer in BF16) may change. */
static void mlp_expected(const mlp_weights *w, const float *x, bool rounded, double *m, double *bound)
{
    const int64_t width = w->gate.view.shape[0], hidden = w->gate.view.shape[1];
    double *h = malloc((size_t)width * sizeof *h);
    for (int64_t i = 0; i < width; i++) {
        const double g = dot(w->gate.value + i * hidden, x, hidden, rounded);
        h[i] = g / (1 + exp(-g)) * dot(w->up.value + i * hidden, x, hidden, rounded);
    }
    for (int64_t c = 0; c < hidden; c++) {
        m[c] = bound[c] = 0;
        for (int64_t i = 0; i < width; i++) {
            m[c] += w->down.value[c * width + i] * h[i];
            bound[c] += fabs(w->down.value[c * width + i]) * (fabs(h[i]) + 1e-3);
        }
        bound[c] *= rounded ? 0.005 : 1e-5;
    }
    free(h);
}

static void mlp_case(setting s, int32_t dtype, int32_t hidden, int32_t width)
{
    enum { ROWS = 101 };
    qw_dims dims = small_dims(hidden);
    dims.intermediate = width;
    qw_backend backend;
    if (!open_backend(s, &dims, ROWS, 1, &backend))
        return;
    mlp_weights w = mlp_create(dtype, hidden, width);
    matrix gate = matrix_create(dtype, 1, hidden);
    rows x = rows_create(ROWS, hidden), y = rows_create(ROWS, hidden), before = rows_create(ROWS, hidden);
    rows gated = rows_create(ROWS, hidden), part = rows_create(ROWS, hidden);
    memcpy(gated.data, before.data, (size_t)(ROWS * before.stride) * sizeof *before.data);
    qw_mlp_args args = {.x = rows_view(&x, 0, ROWS),
                        .gate = matrix_view(&w.gate),
                        .up = matrix_view(&w.up),
                        .down = matrix_view(&w.down),
                        .y = rows_view(&y, 0, ROWS)};
    CHECK_INT(backend.ops->mlp(&backend, &args), QWEN36_OK);
    args.row_gate = matrix_view(&gate);
    args.accumulate = 1;
    args.y = rows_view(&gated, 0, ROWS);
    CHECK_INT(backend.ops->mlp(&backend, &args), QWEN36_OK);
    rows_check_gaps(&gated);
    double *m = malloc((size_t)hidden * sizeof *m), *bound = malloc((size_t)hidden * sizeof *bound);
    for (int64_t r = 0; r < 12; r++) {
        mlp_expected(&w, row_of(&x, r), rounds_x(&backend, dtype), m, bound);
        const double g = dot(gate.value, row_of(&x, r), hidden, rounds_x(&backend, dtype));
        for (int64_t c = 0; c < hidden; c++) {
            CHECK_MSG(fabs(row_of(&y, r)[c] - m[c]) <= bound[c], "%s: %g, not %g", backend.name,
                      (double)row_of(&y, r)[c], m[c]);
            const double sum = row_of(&before, r)[c] + m[c] / (1 + exp(-g));
            CHECK(fabs(row_of(&gated, r)[c] - sum) <= bound[c] + fabs(sum) * 1e-6);
        }
    }
    backend.ops->destroy(&backend);
    static const int32_t counts[] = {1, 2, 5, 7, 96, 97};
    for (int32_t threads = 1; threads <= 3; threads++) {
        CHECK(open_backend(s, &dims, ROWS, threads, &backend));
        for (size_t i = 0; i < QW_COUNT_OF(counts); i++) {
            const int32_t count = counts[i], first = ROWS - count;
            memcpy(part.data, row_of(&before, first), (size_t)(count * before.stride) * sizeof *part.data);
            args.x = rows_view(&x, first, count);
            args.y = rows_view(&part, 0, count);
            CHECK_INT(backend.ops->mlp(&backend, &args), QWEN36_OK);
            for (int32_t r = 0; r < count; r++)
                check_same(&part, r, &gated, first + r, backend.name);
        }
        backend.ops->destroy(&backend);
    }
    free(m);
    free(bound);
    mlp_destroy(&w);
    matrix_destroy(&gate);
    rows_destroy(&x);
    rows_destroy(&y);
    rows_destroy(&before);
    rows_destroy(&gated);
    rows_destroy(&part);
}

TEST(cpu_matrix, mlp)
{
    static const int32_t shapes[][2] = {{60, 17}, {64, 128}, {33, 300}, {1, 1}};
    for (size_t s = 0; s < QW_COUNT_OF(settings); s++)
        for (size_t d = 0; d < QW_COUNT_OF(dtypes); d++)
            for (size_t i = 0; i < QW_COUNT_OF(shapes); i++)
                mlp_case(settings[s], dtypes[d], shapes[i][0], shapes[i][1]);
}

/* ---- experts ------------------------------------------------------------------------------------------- */

enum { EXPERTS = 6, CHOICES = 3, EXPERT_ROWS = 130 };

/* Rows choose at random; to skew them, the first choice of most is expert 4, and nobody takes expert 1. */
static void choose(rows *ids, rows *weights)
{
    ids->dtype = QW_I32;
    for (int64_t r = 0; r < EXPERT_ROWS; r++) {
        int32_t *chosen = (int32_t *)(void *)(ids->data + r * ids->stride);
        for (int32_t c = 0; c < CHOICES; c++) {
            bool again = true;
            while (again) {
                chosen[c] = c == 0 && r % 10 != 0 ? 4 : (int32_t)((random_unit() + 0.5) * EXPERTS);
                again = chosen[c] == 1;
                for (int32_t before = 0; before < c; before++)
                    again = again || chosen[before] == chosen[c];
            }
            weights->data[r * weights->stride + c] = (float)(random_unit() + 0.6);
        }
    }
}

/* The experts' sum against the mlp op, which has its own test; then the same bits in any company. */
static void experts_case(setting s, int32_t dtype, int32_t hidden, int32_t width)
{
    qw_dims dims = small_dims(hidden);
    dims.intermediate = dims.expert_size = width;
    dims.experts = EXPERTS;
    dims.top_k = CHOICES;
    qw_backend backend;
    if (!open_backend(s, &dims, EXPERT_ROWS, 1, &backend))
        return;
    mlp_weights w[EXPERTS];
    qw_expert_view expert[EXPERTS];
    rows of_expert[EXPERTS];
    rows x = rows_create(EXPERT_ROWS, hidden), all = rows_create(EXPERT_ROWS, hidden);
    rows part = rows_create(EXPERT_ROWS, hidden);
    rows ids = rows_create(EXPERT_ROWS, CHOICES), weights = rows_create(EXPERT_ROWS, CHOICES);
    choose(&ids, &weights);
    for (int32_t e = 0; e < EXPERTS; e++) {
        w[e] = mlp_create(e == 2 ? QW_F32 : dtype, hidden, width);
        of_expert[e] = rows_create(EXPERT_ROWS, hidden);
    }
    for (int32_t e = 0; e < EXPERTS; e++) {
        expert[e] = (qw_expert_view){matrix_view(&w[e].gate), matrix_view(&w[e].up), matrix_view(&w[e].down)};
        const qw_mlp_args args = {.x = rows_view(&x, 0, EXPERT_ROWS),
                                  .gate = expert[e].gate,
                                  .up = expert[e].up,
                                  .down = expert[e].down,
                                  .y = rows_view(&of_expert[e], 0, EXPERT_ROWS)};
        CHECK_INT(backend.ops->mlp(&backend, &args), QWEN36_OK);
    }
    qw_experts_args args = {.x = rows_view(&x, 0, EXPERT_ROWS),
                            .ids = rows_view(&ids, 0, EXPERT_ROWS),
                            .weights = rows_view(&weights, 0, EXPERT_ROWS),
                            .experts = EXPERTS,
                            .expert = expert,
                            .y = rows_view(&all, 0, EXPERT_ROWS)};
    rows_poison(&all);
    CHECK_INT(backend.ops->experts(&backend, &args), QWEN36_OK);
    rows_check_gaps(&all);
    for (int64_t r = 0; r < EXPERT_ROWS; r++) {
        for (int64_t c = 0; c < hidden; c++) {
            double sum = 0, magnitude = 0;
            for (int32_t j = 0; j < CHOICES; j++) {
                int32_t e;
                memcpy(&e, row_of(&ids, r) + j, sizeof e);
                sum += (double)row_of(&weights, r)[j] * row_of(&of_expert[e], r)[c];
                magnitude += fabs((double)row_of(&weights, r)[j] * row_of(&of_expert[e], r)[c]);
            }
            CHECK_MSG(fabs(row_of(&all, r)[c] - sum) <= magnitude * 5e-7, "%s row %d: %g, not %g",
                      backend.name, (int)r, (double)row_of(&all, r)[c], sum);
        }
    }
    backend.ops->destroy(&backend);
    static const int32_t counts[] = {1, 2, 7, 64, 129};
    for (int32_t threads = 1; threads <= 3; threads++) {
        CHECK(open_backend(s, &dims, EXPERT_ROWS, threads, &backend));
        for (size_t i = 0; i < QW_COUNT_OF(counts); i++) {
            const int32_t count = counts[i], first = EXPERT_ROWS - count;
            args.x = rows_view(&x, first, count);
            args.ids = rows_view(&ids, first, count);
            args.weights = rows_view(&weights, first, count);
            args.y = rows_view(&part, 0, count);
            rows_poison(&part);
            CHECK_INT(backend.ops->experts(&backend, &args), QWEN36_OK);
            for (int32_t r = 0; r < count; r++)
                check_same(&part, r, &all, first + r, backend.name);
        }
        backend.ops->destroy(&backend);
    }
    for (int32_t e = 0; e < EXPERTS; e++) {
        mlp_destroy(&w[e]);
        rows_destroy(&of_expert[e]);
    }
    rows_destroy(&x);
    rows_destroy(&all);
    rows_destroy(&part);
    rows_destroy(&ids);
    rows_destroy(&weights);
}

TEST(cpu_matrix, experts)
{
    static const int32_t shapes[][2] = {{60, 17}, {64, 32}, {530, 40}};
    for (size_t s = 0; s < QW_COUNT_OF(settings); s++)
        for (size_t d = 0; d < QW_COUNT_OF(dtypes); d++)
            for (size_t i = 0; i < QW_COUNT_OF(shapes); i++)
                experts_case(settings[s], dtypes[d], shapes[i][0], shapes[i][1]);
}

/* ---- more rows than an op takes at a time -------------------------------------------------------------- */

TEST(cpu_matrix, slabs)
{
    enum { MANY = 2100, HIDDEN = 24, WIDTH = 20 };
    qw_dims dims = small_dims(HIDDEN);
    dims.intermediate = dims.expert_size = WIDTH;
    dims.experts = 2;
    dims.top_k = 1;
    mlp_weights w[2] = {mlp_create(QW_BF16, HIDDEN, WIDTH), mlp_create(QW_BF16, HIDDEN, WIDTH)};
    qw_expert_view expert[2];
    for (int32_t e = 0; e < 2; e++)
        expert[e] = (qw_expert_view){matrix_view(&w[e].gate), matrix_view(&w[e].up), matrix_view(&w[e].down)};
    rows x = rows_create(MANY, HIDDEN), y = rows_create(MANY, HIDDEN), one = rows_create(1, HIDDEN);
    rows ids = rows_create(MANY, 1), weights = rows_create(MANY, 1);
    ids.dtype = QW_I32;
    for (int32_t r = 0; r < MANY; r++) {
        const int32_t e = r % 3 == 0;
        memcpy(ids.data + r * ids.stride, &e, sizeof e);
        weights.data[r * weights.stride] = 1.0f;
    }
    qw_backend backend;
    CHECK(open_backend((setting){QWEN36_CPU_AUTO, QWEN36_NUMERICS_FAST}, &dims, MANY, 2, &backend));
    const qw_experts_args args = {.x = rows_view(&x, 0, MANY),
                                  .ids = rows_view(&ids, 0, MANY),
                                  .weights = rows_view(&weights, 0, MANY),
                                  .experts = 2,
                                  .expert = expert,
                                  .y = rows_view(&y, 0, MANY)};
    CHECK_INT(backend.ops->experts(&backend, &args), QWEN36_OK);
    static const int32_t samples[] = {0, 1, 1023, 1024, 1025, 2047, 2048, 2099};
    for (size_t i = 0; i < QW_COUNT_OF(samples); i++) {
        const qw_expert_view *e = &expert[samples[i] % 3 == 0];
        const qw_mlp_args single = {.x = rows_view(&x, samples[i], 1),
                                    .gate = e->gate,
                                    .up = e->up,
                                    .down = e->down,
                                    .y = rows_view(&one, 0, 1)};
        CHECK_INT(backend.ops->mlp(&backend, &single), QWEN36_OK);
        check_same(&one, 0, &y, samples[i], "slab");
    }
    const qw_mlp_args whole = {
        .x = args.x, .gate = expert[0].gate, .up = expert[0].up, .down = expert[0].down, .y = args.y};
    CHECK_INT(backend.ops->mlp(&backend, &whole), QWEN36_OK);
    qw_linear_args linear = {.x = rows_view(&x, 0, MANY), .parts = 1, .w = {expert[0].gate}};
    rows g = rows_create(MANY, WIDTH), g_one = rows_create(1, WIDTH);
    linear.y[0] = rows_view(&g, 0, MANY);
    CHECK_INT(backend.ops->linear(&backend, &linear), QWEN36_OK);
    for (size_t i = 0; i < QW_COUNT_OF(samples); i++) {
        linear.x = rows_view(&x, samples[i], 1);
        linear.y[0] = rows_view(&g_one, 0, 1);
        CHECK_INT(backend.ops->linear(&backend, &linear), QWEN36_OK);
        check_same(&g_one, 0, &g, samples[i], "slab");
    }
    backend.ops->destroy(&backend);
    mlp_destroy(&w[0]);
    mlp_destroy(&w[1]);
    rows_destroy(&x);
    rows_destroy(&y);
    rows_destroy(&one);
    rows_destroy(&ids);
    rows_destroy(&weights);
    rows_destroy(&g);
    rows_destroy(&g_one);
}

/* ---- embed and head ------------------------------------------------------------------------------------ */

static void ends_case(setting s, int32_t dtype, int32_t hidden)
{
    enum { VOCABULARY = 151, LIVE = 133, ROWS = 40, COUNT = 7 };
    const qw_dims dims = small_dims(hidden);
    qw_backend backend;
    if (!open_backend(s, &dims, ROWS, 2, &backend))
        return;
    matrix table = matrix_create(dtype, VOCABULARY, hidden);
    rows x = rows_create(ROWS, hidden), all = rows_create(ROWS, VOCABULARY),
         logits = rows_create(ROWS, VOCABULARY);
    int32_t ids[ROWS];
    for (int32_t r = 0; r < ROWS; r++)
        ids[r] = r * 37 % VOCABULARY;
    const qw_batch batch = {.rows = ROWS, .ids = ids};
    const qw_embed_args embed = {&batch, matrix_view(&table), rows_view(&x, 0, ROWS)};
    CHECK_INT(backend.ops->embed(&backend, &embed), QWEN36_OK);
    rows_check_gaps(&x);
    for (int32_t r = 0; r < ROWS; r++)
        for (int32_t c = 0; c < hidden; c++)
            CHECK(row_of(&x, r)[c] == (float)table.value[ids[r] * hidden + c]);

    const qw_linear_args linear = {
        .x = rows_view(&x, 0, ROWS), .parts = 1, .w = {matrix_view(&table)}, .y = {rows_view(&all, 0, ROWS)}};
    CHECK_INT(backend.ops->linear(&backend, &linear), QWEN36_OK);
    static const int32_t in_row[COUNT] = {3, 39, 0, 17, 18, 39, 5}, out_row[COUNT] = {6, 0, 30, 2, 3, 1, 39};
    for (int32_t count = 1; count <= COUNT; count += 3) {
        qw_head_args head = {.x = rows_view(&x, 0, ROWS),
                             .w = matrix_view(&table),
                             .count = count,
                             .in_row = in_row,
                             .out_row = out_row,
                             .live = LIVE,
                             .logits = rows_view(&logits, 0, ROWS)};
        rows_poison(&logits);
        CHECK_INT(backend.ops->head(&backend, &head), QWEN36_OK);
        rows_check_gaps(&logits);
        for (int32_t i = 0; i < count; i++) {
            CHECK(memcmp(row_of(&logits, out_row[i]), row_of(&all, in_row[i]), LIVE * sizeof(float)) == 0);
            for (int32_t c = LIVE; c < VOCABULARY; c++)
                CHECK(row_of(&logits, out_row[i])[c] == -INFINITY);
        }
    }
    backend.ops->destroy(&backend);
    matrix_destroy(&table);
    rows_destroy(&x);
    rows_destroy(&all);
    rows_destroy(&logits);
}

TEST(cpu_matrix, embed_and_head)
{
    for (size_t s = 0; s < QW_COUNT_OF(settings); s++)
        for (size_t d = 0; d < QW_COUNT_OF(dtypes); d++) {
            ends_case(settings[s], dtypes[d], 60);
            ends_case(settings[s], dtypes[d], 65);
        }
}

/* ---- opening ------------------------------------------------------------------------------------------- */

TEST(cpu_matrix, open_tiers)
{
    const qw_dims dims = small_dims(32);
    qw_backend backend;
    CHECK(open_backend((setting){QWEN36_CPU_PORTABLE, QWEN36_NUMERICS_FAST}, &dims, 4, 1, &backend));
    CHECK_INT(backend.cpu_tier, QWEN36_CPU_PORTABLE);
    CHECK_TEXT(backend.name, "cpu/portable/fast");
    backend.ops->destroy(&backend);
    CHECK(!open_backend((setting){99, QWEN36_NUMERICS_FAST}, &dims, 4, 1, &backend));
    CHECK(backend.ops == NULL && backend.self == NULL);
}

/* Every allocation of opening fails once; nothing stays behind. */
TEST(cpu_matrix, open_without_memory)
{
    const qw_dims dims = small_dims(32);
    for (long k = 1;; k++) {
        test_allocator counting = {.fail_at = k};
        const qw_allocator hooks = {test_allocate, test_release, &counting};
        const qw_backend_config config = {.allocator = &hooks,
                                          .dims = &dims,
                                          .numerics = QWEN36_NUMERICS_FAST,
                                          .kv_dtype = QW_F32,
                                          .threads = 2,
                                          .max_rows = 8,
                                          .max_segments = 2,
                                          .max_head_rows = 2,
                                          .max_context = 64};
        qw_backend backend;
        const qwen36_status status = qw_cpu_backend_open(&config, &backend, NULL);
        if (status == QWEN36_OK)
            backend.ops->destroy(&backend);
        CHECK_INT(counting.outstanding, 0);
        if (status == QWEN36_OK)
            break;
        CHECK_INT(status, QWEN36_ERROR_OUT_OF_MEMORY);
    }
}
