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

/* ---- backends ------------------------------------------------------------------------------------------- */

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

/* ---- comparison ----------------------------------------------------------------------------------------- */

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
        CHECK_MSG(memcmp(row_of(a, i) + c, row_of(b, j) + c, 4) == 0, "%s: row %d column %d: %a %a", what, (int)i,
                  (int)c, (double)row_of(a, i)[c], (double)row_of(b, j)[c]);
}

/* ---- linear --------------------------------------------------------------------------------------------- */

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
