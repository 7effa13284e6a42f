/* The mixers at the dimensions of the 35B mixture of experts, beside the limits of the machine: one row
 * (decode) against read bandwidth, a step of 512 rows (prefill) against the arithmetic rate. Each figure is
 * the best of some runs; the limits are measured before and after each case, because a shared machine changes
 * its mind.
 *
 *     bench_attention [threads] [letters of cases: a attention, d delta, c conv] [most context] [tier]
 */
#include "kernels/cpu/cpu.h"
#include "lib/os/process.h"
#include "lib/os/threads.h"
#include "tests/bench/machine.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { STEP_ROWS = 512, TRIES = 7, CONTEXT = 32768, STATES = 48, CHANNELS = 8192 };
static const uint64_t pool_bytes = (uint64_t)256 << 20;

static const qw_dims dims = {.hidden = 2048,
                             .heads = 16,
                             .kv_heads = 2,
                             .head_dim = 256,
                             .rotary_dim = 64,
                             .lin_k_heads = 16,
                             .lin_v_heads = 32,
                             .lin_k_dim = 128,
                             .lin_v_dim = 128,
                             .conv_width = 4,
                             .vocab_size = 1};

typedef struct bench {
    machine *machine;
    qw_allocator allocator;
    qw_buffer pool; /* KV blocks or states */
    qw_buffer in, out, weight;
    int32_t table[CONTEXT / QW_KV_BLOCK];
    qw_segment segment;
    qw_state_write write;
    qw_batch batch;
    qw_backend backend;
    int32_t kv_dtype, threads;
} bench;

/* One measured case. */
typedef struct subject {
    char name[64];
    qwen36_status (*run)(bench *b, const struct subject *s, int32_t try);
    int32_t rows, context;
    double bytes, operations;
} subject;

static qw_view matrix(const qw_buffer *buffer, int64_t rows, int64_t columns)
{
    return (qw_view){buffer, 0, QW_F32, 2, {rows, columns, 1}, {columns, 1, 1}};
}

static void fill(bench *b, qw_buffer *buffer, uint64_t bytes)
{
    *buffer = (qw_buffer){qw_alloc_raw(&b->allocator, bytes, 1), bytes, QW_SPACE_HOST, 1};
    if (buffer->base == NULL) {
        fprintf(stderr, "out of memory: %llu bytes\n", (unsigned long long)bytes);
        exit(1);
    }
    uint16_t *half = buffer->base; /* small numbers, whether read as BF16 or as float32 */
    uint32_t state = 1;
    for (uint64_t i = 0; i < bytes / 2; i++) {
        state = state * 1664525u + 1013904223u;
        half[i] = (uint16_t)(0x3c80 | (state >> 16 & 0x807f));
    }
}

/* One segment of `rows` rows that ends at `context` tokens. */
static void set_batch(bench *b, int32_t rows, int32_t context, int32_t try)
{
    b->segment = (qw_segment){
        .row_count = rows, .position = context - rows, .state_read = 2 * try % STATES, .write_count = 1};
    b->write = (qw_state_write){rows - 1, (2 * try + 1) % STATES};
    b->batch = (qw_batch){.rows = rows,
                          .segments = 1,
                          .writes = 1,
                          .segment = &b->segment,
                          .state_write = &b->write,
                          .block_table = b->table};
}

/* ---- cases --------------------------------------------------------------------------------------------- */

static int64_t block_bytes(const bench *b)
{
    return 2 * dims.kv_heads * QW_KV_BLOCK * qw_kv_row_bytes(b->kv_dtype, dims.head_dim);
}

/* Each try begins elsewhere in the pool, so that no cache holds what it reads. */
static qwen36_status run_attention(bench *b, const subject *s, int32_t try)
{
    const int32_t blocks = (int32_t)((int64_t)pool_bytes / block_bytes(b));
    const int32_t used = s->context / QW_KV_BLOCK;
    for (int32_t i = 0; i < used; i++)
        b->table[i] = (try * (blocks / 3) + i) % blocks;
    set_batch(b, s->rows, s->context, try);
    const int64_t width = dims.heads * dims.head_dim;
    const qw_attention_args args = {&b->batch,
                                    matrix(&b->in, s->rows, width),
                                    matrix(&b->in, s->rows, 2 * width),
                                    {&b->pool, 0, block_bytes(b), b->kv_dtype},
                                    matrix(&b->out, s->rows, width)};
    return b->backend.ops->attention(&b->backend, &args);
}

static qwen36_status run_delta(bench *b, const subject *s, int32_t try)
{
    const int64_t nv = dims.lin_v_heads, slot = nv * dims.lin_k_dim * dims.lin_v_dim * 4;
    set_batch(b, s->rows, s->rows, try);
    qw_view vector = matrix(&b->weight, 1, nv);
    const qw_delta_args args = {.batch = &b->batch,
                                .c = matrix(&b->in, s->rows, CHANNELS),
                                .a = matrix(&b->weight, s->rows, nv),
                                .b = matrix(&b->weight, s->rows, nv),
                                .a_log = vector,
                                .dt_bias = vector,
                                .state = {&b->pool, 0, slot},
                                .o = matrix(&b->out, s->rows, nv * dims.lin_v_dim)};
    return b->backend.ops->delta(&b->backend, &args);
}

static qwen36_status run_conv(bench *b, const subject *s, int32_t try)
{
    set_batch(b, s->rows, s->rows, try);
    const qw_conv_args args = {&b->batch,
                               matrix(&b->in, s->rows, CHANNELS),
                               matrix(&b->weight, CHANNELS, 4),
                               {&b->pool, 0, 3 * CHANNELS * 4},
                               matrix(&b->out, s->rows, CHANNELS)};
    return b->backend.ops->conv(&b->backend, &args);
}

static void measure(bench *b, const subject *s)
{
    double best = 1e30;
    double bandwidth = machine_read_bandwidth(b->machine, 2), peak = machine_f32_rate(b->machine, 2);
    for (int32_t i = 0; i < TRIES; i++) {
        const double begin = qw_clock_seconds();
        if (s->run(b, s, i) != QWEN36_OK)
            exit(1);
        best = QW_MIN(best, qw_clock_seconds() - begin);
    }
    const double bandwidth_after = machine_read_bandwidth(b->machine, 2);
    const double peak_after = machine_f32_rate(b->machine, 2);
    bandwidth = QW_MAX(bandwidth, bandwidth_after);
    peak = QW_MAX(peak, peak_after);
    printf("%-20s %-30s %9.3f ms %7.2f GB/s (%3.0f %% of %5.1f) %7.1f GFLOP/s (%3.0f %% of %3.0f)\n",
           b->backend.name, s->name, best * 1e3, s->bytes / best * 1e-9, 100 * s->bytes / best / bandwidth,
           bandwidth * 1e-9, s->operations / best * 1e-9, 100 * s->operations / best / peak, peak * 1e-9);
    fflush(stdout);
}

static void measure_attention(bench *b, int32_t rows, int32_t context)
{
    subject s = {.run = run_attention, .rows = rows, .context = context};
    const double seen = (double)rows * (context - (rows - 1) / 2.0);
    const char *format = b->kv_dtype == QW_F32 ? "f32" : b->kv_dtype == QW_BF16 ? "bf16" : "i8";
    snprintf(s.name, sizeof s.name, "attention %s %d row%s at %d", format, rows, rows > 1 ? "s" : "",
             context);
    s.bytes = (double)context / QW_KV_BLOCK * (double)block_bytes(b);
    s.operations = seen * dims.heads * dims.head_dim * 4;
    measure(b, &s);
}

static void measure_delta(bench *b, int32_t rows)
{
    subject s = {.run = run_delta, .rows = rows};
    const double state = (double)dims.lin_v_heads * dims.lin_k_dim * dims.lin_v_dim;
    snprintf(s.name, sizeof s.name, "delta %d row%s", rows, rows > 1 ? "s" : "");
    s.bytes = 2 * state * 4;
    s.operations = 7 * state * rows; /* decay, and multiply-adds for r, the update and o */
    measure(b, &s);
}

static void measure_conv(bench *b, int32_t rows)
{
    subject s = {.run = run_conv, .rows = rows};
    snprintf(s.name, sizeof s.name, "conv %d row%s", rows, rows > 1 ? "s" : "");
    s.bytes = (double)CHANNELS * 4 * (2 * rows + 6 + 4);
    s.operations = (double)CHANNELS * 8 * rows;
    measure(b, &s);
}

/* ---- all of them --------------------------------------------------------------------------------------- */

static void measure_cases(bench *b, const char *only, int32_t most)
{
    static const int32_t prefill[] = {512, 2048, 8192}, decode[] = {2048, 8192, 32768}, rows[] = {1, 16, 512};
    if (only == NULL || strchr(only, 'a') != NULL)
        for (size_t i = 0; i < QW_COUNT_OF(decode); i++) {
            if (decode[i] <= most)
                measure_attention(b, 1, decode[i]);
            if (prefill[i] <= most)
                measure_attention(b, STEP_ROWS, prefill[i]);
        }
    for (size_t i = 0; i < QW_COUNT_OF(rows); i++) {
        if (b->kv_dtype == QW_F32 && (only == NULL || strchr(only, 'd') != NULL))
            measure_delta(b, rows[i]);
        if (b->kv_dtype == QW_F32 && (only == NULL || strchr(only, 'c') != NULL))
            measure_conv(b, rows[i]);
    }
}

static void measure_backend(bench *b, int32_t tier, int32_t kv_dtype, const char *only, int32_t most)
{
    const qw_backend_config config = {.allocator = &b->allocator,
                                      .dims = &dims,
                                      .numerics = QWEN36_NUMERICS_REFERENCE,
                                      .kv_dtype = kv_dtype,
                                      .cpu_tier = tier,
                                      .threads = b->threads,
                                      .max_rows = STEP_ROWS,
                                      .max_segments = 1,
                                      .max_head_rows = 1,
                                      .max_context = CONTEXT};
    if (qw_cpu_backend_open(&config, &b->backend, NULL) != QWEN36_OK)
        return;
    b->kv_dtype = kv_dtype;
    measure_cases(b, only, most);
    b->backend.ops->destroy(&b->backend);
}

int main(int count, char **arguments)
{
    const char *only = count > 2 ? arguments[2] : NULL;
    const int32_t most = count > 3 ? atoi(arguments[3]) : CONTEXT, tier = count > 4 ? atoi(arguments[4]) : 0;
    bench *b = calloc(1, sizeof *b);
    if (b == NULL)
        return 1;
    b->threads = count > 1 ? atoi(arguments[1]) : qw_processor_count();
    b->allocator = qw_allocator_default();
    b->machine = machine_create(b->threads, (uint64_t)256 << 20);
    if (b->machine == NULL)
        return 1;
    fill(b, &b->pool, pool_bytes);
    fill(b, &b->in, (uint64_t)STEP_ROWS * CHANNELS * 4);
    fill(b, &b->out, (uint64_t)STEP_ROWS * CHANNELS * 4);
    fill(b, &b->weight, (uint64_t)CHANNELS * 4 * 4);
    static const int32_t tiers[] = {QWEN36_CPU_AVX512, QWEN36_CPU_AVX2, QWEN36_CPU_PORTABLE};
    for (size_t i = 0; i < QW_COUNT_OF(tiers); i++) {
        if (tier != 0 && tier != tiers[i])
            continue;
        measure_backend(b, tiers[i], QW_F32, only, most);
        measure_backend(b, tiers[i], QW_BF16, only, most);
        measure_backend(b, tiers[i], QW_I8, only, most);
    }
    machine_destroy(b->machine);
    qw_free(&b->allocator, b->pool.base);
    qw_free(&b->allocator, b->in.base);
    qw_free(&b->allocator, b->out.base);
    qw_free(&b->allocator, b->weight.base);
    free(b);
    return 0;
}
