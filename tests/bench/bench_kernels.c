/* The matrix ops at the dimensions of the 35B mixture of experts, beside the limits of the machine: few rows
 * against read bandwidth, many rows against the arithmetic rate. Each figure is the best of some runs; the
 * limits are measured before and after each op, because a shared machine changes its mind.
 *
 *     bench_kernels [threads [ops]]      ops: letters of linear, mlp, experts, head
 */
#include "kernels/cpu/cpu.h"
#include "lib/os/process.h"
#include "lib/os/threads.h"
#include "tests/bench/machine.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { HIDDEN = 2048, EXPERTS = 256, TOP_K = 8, WIDTH = 512, VOCABULARY = 248320, PROJECTION = 8192 };
enum { MOST_ROWS = 512, TRIES = 5, LAYER_COPIES = 4 };
/* Weights: several copies of each matrix, so that no cache holds what the next run reads. */
static const uint64_t expert_bytes = (uint64_t)EXPERTS * 3 * HIDDEN * WIDTH * 2;
static const uint64_t projection_bytes = (uint64_t)PROJECTION * HIDDEN * 2;

typedef struct bench {
    machine *machine;
    qw_allocator allocator;
    qw_dims dims;
    qw_buffer weights, x, y, ids, router;
    qw_expert_view expert[EXPERTS];
    qw_backend backend;
} bench;

static qw_view matrix(const qw_buffer *buffer, uint64_t offset, int32_t dtype, int64_t rows, int64_t columns)
{
    return (qw_view){buffer, (int64_t)offset, dtype, 2, {rows, columns, 1}, {columns, 1, 1}};
}

static void fill(bench *b, qw_buffer *buffer, uint64_t bytes)
{
    *buffer = (qw_buffer){qw_alloc_raw(&b->allocator, bytes, 1), bytes, QW_SPACE_HOST, 1};
    if (buffer->base == NULL) {
        fprintf(stderr, "out of memory: %llu bytes\n", (unsigned long long)bytes);
        exit(1);
    }
}

/* BF16 values of magnitude 1/64 to 1/32; read as float32 they are small too. */
static void fill_weights(bench *b)
{
    const uint64_t bytes = (uint64_t)VOCABULARY * HIDDEN * 2;
    fill(b, &b->weights, bytes > expert_bytes ? bytes : expert_bytes);
    uint16_t *weight = b->weights.base;
    uint32_t state = 1;
    for (uint64_t i = 0; i < b->weights.bytes / 2; i++) {
        state = state * 1664525u + 1013904223u;
        weight[i] = (uint16_t)(0x3c80 | (state >> 16 & 0x807f));
    }
}

static void fill_rows(bench *b)
{
    fill(b, &b->x, (uint64_t)MOST_ROWS * PROJECTION * 4);
    fill(b, &b->y,
         (uint64_t)MOST_ROWS * PROJECTION * 4 > (uint64_t)VOCABULARY * 4
             ? (uint64_t)MOST_ROWS * PROJECTION * 4
             : (uint64_t)VOCABULARY * 4);
    fill(b, &b->ids, (uint64_t)MOST_ROWS * TOP_K * 4);
    fill(b, &b->router, (uint64_t)MOST_ROWS * TOP_K * 4);
    float *x = b->x.base, *weight = b->router.base;
    int32_t *ids = b->ids.base;
    for (int64_t i = 0; i < (int64_t)MOST_ROWS * PROJECTION; i++)
        x[i] = (float)(i % 17 - 8) * 0.1f;
    for (int64_t r = 0; r < MOST_ROWS; r++) {
        for (int64_t j = 0; j < TOP_K; j++) {
            ids[r * TOP_K + j] = (int32_t)((r * 7 + j * 37 + r * r * 11) % EXPERTS);
            weight[r * TOP_K + j] = 0.125f;
        }
    }
}

static void set_experts(bench *b)
{
    const uint64_t part = (uint64_t)HIDDEN * WIDTH * 2;
    for (uint64_t e = 0; e < EXPERTS; e++)
        b->expert[e] = (qw_expert_view){matrix(&b->weights, (3 * e) * part, QW_BF16, WIDTH, HIDDEN),
                                        matrix(&b->weights, (3 * e + 1) * part, QW_BF16, WIDTH, HIDDEN),
                                        matrix(&b->weights, (3 * e + 2) * part, QW_BF16, HIDDEN, WIDTH)};
}

/* ---- one op -------------------------------------------------------------------------------------------- */

enum { LINEAR, SHARED, ROUTED, HEAD };

static void run_op(bench *b, int32_t op, int64_t rows, uint64_t try)
{
    const qw_view x = matrix(&b->x, 0, QW_F32, rows, HIDDEN), y = matrix(&b->y, 0, QW_F32, rows, HIDDEN);
    const uint64_t offset = try % LAYER_COPIES * (b->weights.bytes / LAYER_COPIES / 64 * 64);
    if (op == LINEAR) {
        qw_linear_args args = {.x = x, .parts = 1};
        args.w[0] = matrix(&b->weights, offset, QW_BF16, PROJECTION, HIDDEN);
        args.y[0] = matrix(&b->y, 0, QW_F32, rows, PROJECTION);
        b->backend.ops->linear(&b->backend, &args);
    } else if (op == SHARED) {
        qw_mlp_args args = {.x = x, .y = y};
        args.gate = matrix(&b->weights, offset, QW_BF16, WIDTH, HIDDEN);
        args.up = matrix(&b->weights, offset + (uint64_t)WIDTH * HIDDEN * 2, QW_BF16, WIDTH, HIDDEN);
        args.down = matrix(&b->weights, offset + (uint64_t)WIDTH * HIDDEN * 4, QW_BF16, HIDDEN, WIDTH);
        b->backend.ops->mlp(&b->backend, &args);
    } else if (op == ROUTED) {
        const int64_t first = rows == 1 ? (int64_t)(try * 64) : 0; /* always TOP_K experts */
        const qw_experts_args args = {.x = x,
                                      .ids =
                                          matrix(&b->ids, (uint64_t)first * TOP_K * 4, QW_I32, rows, TOP_K),
                                      .weights = matrix(&b->router, 0, QW_F32, rows, TOP_K),
                                      .experts = EXPERTS,
                                      .expert = b->expert,
                                      .y = y};
        b->backend.ops->experts(&b->backend, &args);
    } else {
        const int32_t row = 0;
        const qw_head_args args = {.x = x,
                                   .w = matrix(&b->weights, 0, QW_BF16, VOCABULARY, HIDDEN),
                                   .count = 1,
                                   .in_row = &row,
                                   .out_row = &row,
                                   .live = VOCABULARY,
                                   .logits = matrix(&b->y, 0, QW_F32, 1, VOCABULARY)};
        b->backend.ops->head(&b->backend, &args);
    }
}

/* Weight bytes that an op must read, and its arithmetic operations. */
static void cost(const bench *b, int32_t op, int64_t rows, double *bytes, double *operations)
{
    const double mlp = 3.0 * HIDDEN * WIDTH;
    if (op == LINEAR) {
        *bytes = (double)projection_bytes;
        *operations = 2.0 * PROJECTION * HIDDEN * (double)rows;
    } else if (op == SHARED) {
        *bytes = mlp * 2;
        *operations = 2 * mlp * (double)rows;
    } else if (op == ROUTED) {
        bool used[EXPERTS] = {false};
        int32_t count = 0;
        for (int64_t i = 0; i < rows * TOP_K; i++) {
            bool *flag = &used[((const int32_t *)b->ids.base)[i]];
            count += !*flag;
            *flag = true;
        }
        *bytes = mlp * 2 * count;
        *operations = 2 * mlp * TOP_K * (double)rows;
    } else {
        *bytes = (double)VOCABULARY * HIDDEN * 2;
        *operations = 2.0 * VOCABULARY * HIDDEN;
    }
}

static void measure(bench *b, int32_t op, int64_t rows)
{
    static const char *const names[] = {"linear 2048x8192", "mlp 2048x512", "experts 8 of 256",
                                        "head 248320"};
    double best = 1e30, bytes, operations;
    double bandwidth = machine_read_bandwidth(b->machine, 2);
    const bool bf16 = strstr(b->backend.name, "-bf16") != NULL;
    double peak = bf16 ? machine_bf16_rate(b->machine, 2) : machine_f32_rate(b->machine, 2);
    double spent = 0;
    for (uint64_t i = 0; i < TRIES && spent < 2; i++) {
        const double begin = qw_clock_seconds();
        run_op(b, op, rows, i);
        const double seconds = qw_clock_seconds() - begin;
        best = seconds < best ? seconds : best;
        spent += seconds;
    }
    const double bandwidth_after = machine_read_bandwidth(b->machine, 2);
    const double peak_after = bf16 ? machine_bf16_rate(b->machine, 2) : machine_f32_rate(b->machine, 2);
    bandwidth = bandwidth_after > bandwidth ? bandwidth_after : bandwidth;
    peak = peak_after > peak ? peak_after : peak;
    cost(b, op, rows, &bytes, &operations);
    printf("%-22s %-17s %4d rows %9.3f ms %7.2f GB/s (%3.0f %% of %5.1f) %7.1f GFLOP/s (%3.0f %% of %3.0f)\n",
           b->backend.name, names[op], (int)rows, best * 1e3, bytes / best * 1e-9,
           100 * bytes / best / bandwidth, bandwidth * 1e-9, operations / best * 1e-9,
           100 * operations / best / peak, peak * 1e-9);
    fflush(stdout);
}

/* ---- all of them --------------------------------------------------------------------------------------- */

static void measure_backend(bench *b, int32_t tier, int32_t numerics, int32_t threads, const char *only)
{
    const qw_backend_config config = {.allocator = &b->allocator,
                                      .dims = &b->dims,
                                      .numerics = numerics,
                                      .kv_dtype = QW_BF16,
                                      .cpu_tier = tier,
                                      .threads = threads,
                                      .max_rows = MOST_ROWS,
                                      .max_segments = 1,
                                      .max_head_rows = 1,
                                      .max_context = 1024};
    if (qw_cpu_backend_open(&config, &b->backend, NULL) != QWEN36_OK)
        return;
    static const int32_t rows[] = {1, 8, 64, 512};
    const size_t counts = tier == QWEN36_CPU_PORTABLE ? 3 : QW_COUNT_OF(rows); /* patience */
    for (int32_t op = LINEAR; op <= ROUTED; op++)
        for (size_t i = 0; i < counts; i++)
            if (only == NULL || strchr(only, "lmeh"[op]) != NULL)
                measure(b, op, rows[i]);
    if (only == NULL || strchr(only, 'h') != NULL)
        measure(b, HEAD, 1);
    b->backend.ops->destroy(&b->backend);
}

int main(int count, char **arguments)
{
    const int32_t threads = count > 1 ? atoi(arguments[1]) : qw_processor_count();
    const char *only = count > 2 ? arguments[2] : NULL; /* letters of ops */
    bench *b = calloc(1, sizeof *b);
    if (b == NULL)
        return 1;
    b->allocator = qw_allocator_default();
    b->machine = machine_create(threads, (uint64_t)512 << 20);
    if (b->machine == NULL)
        return 1;
    b->dims = (qw_dims){.vocab_size = VOCABULARY,
                        .hidden = HIDDEN,
                        .layers = 4,
                        .heads = 16,
                        .kv_heads = 2,
                        .head_dim = 256,
                        .rotary_dim = 64,
                        .lin_k_heads = 16,
                        .lin_v_heads = 32,
                        .lin_k_dim = 128,
                        .lin_v_dim = 128,
                        .conv_width = 4,
                        .is_moe = 1,
                        .experts = EXPERTS,
                        .top_k = TOP_K,
                        .expert_size = WIDTH,
                        .shared_size = WIDTH};
    fill_weights(b);
    fill_rows(b);
    set_experts(b);
    measure_backend(b, QWEN36_CPU_AUTO, QWEN36_NUMERICS_FAST, threads, only);
    measure_backend(b, QWEN36_CPU_AVX512, QWEN36_NUMERICS_REFERENCE, threads, only);
    measure_backend(b, QWEN36_CPU_AVX2, QWEN36_NUMERICS_REFERENCE, threads, only);
    measure_backend(b, QWEN36_CPU_PORTABLE, QWEN36_NUMERICS_REFERENCE, threads, only);
    machine_destroy(b->machine);
    qw_free(&b->allocator, b->weights.base);
    qw_free(&b->allocator, b->x.base);
    qw_free(&b->allocator, b->y.base);
    qw_free(&b->allocator, b->ids.base);
    qw_free(&b->allocator, b->router.base);
    free(b);
    return 0;
}
