/* Time per row of sample and logprob at the vocabulary of the published models, on one thread.
 * Processor time, so that other work on the machine does not count. usage: bench_sample [tier 0..3] */
#include "lib/backend.h"
#include "lib/sample/random.h"
#include "tests/views.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { VOCAB = 248320, LIVE = 248077, ROWS = 4, ROUNDS = 60, HISTORY = 4096 };

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec * 1e-3;
}

static int ascending(const void *a, const void *b)
{
    const double *x = a, *y = b;
    return (*x > *y) - (*x < *y);
}

typedef struct bench {
    qw_backend backend;
    qw_buffer buffer;
    qw_view logits;
    int32_t tokens[HISTORY];
    uint32_t bitmask[VOCAB / 32];
    int32_t top_token[QWEN36_LOGPROBS_MAX];
    float top_logprob[QWEN36_LOGPROBS_MAX];
} bench;

/* A few likely tokens over a broad base, roughly what a language model gives. */
static void fill(bench *b, float *logits)
{
    for (int64_t i = 0; i < (int64_t)ROWS * VOCAB; i++) {
        const double u = qw_draw_uniform(1, 2, (uint64_t)i), v = qw_draw_uniform(1, 3, (uint64_t)i);
        const double normal = sqrt(-2 * log(1 - u)) * cos(6.283185307179586 * v);
        logits[i] = i % VOCAB >= LIVE ? -INFINITY : (float)(2.5 * normal + (i % 20011 == 0 ? 12 : 0));
    }
    for (int i = 0; i < HISTORY; i++)
        b->tokens[i] = (int32_t)(qw_draw_bits(4, 5, (uint64_t)i) % LIVE);
    for (int i = 0; i < VOCAB / 32; i++)
        b->bitmask[i] = (uint32_t)qw_draw_bits(6, 7, (uint64_t)i);
}

static void report(const char *name, double *times)
{
    qsort(times, ROUNDS, sizeof *times, ascending);
    printf("  %-44s %9.1f %9.1f\n", name, times[ROUNDS / 2], times[0]);
}

static void bench_row(bench *b, const char *name, qw_sample_row row)
{
    double times[ROUNDS];
    row.tokens = b->tokens;
    row.top_token = b->top_token;
    row.top_logprob = b->top_logprob;
    for (int i = 0; i < ROUNDS; i++) {
        qw_sample_args args = {b->logits, LIVE, 1, &row};
        row.row = i % ROWS;
        row.uniform = qw_draw_uniform(8, 9, (uint64_t)i);
        const double begin = now();
        if (b->backend.ops->sample(&b->backend, &args) != QWEN36_OK || row.status != QWEN36_OK)
            exit(1);
        times[i] = now() - begin;
    }
    report(name, times);
}

static void bench_logprob(bench *b)
{
    double times[ROUNDS];
    for (int i = 0; i < ROUNDS; i++) {
        const int32_t row = i % ROWS, token = 5;
        float logprob;
        int32_t status;
        const qw_logprob_args args = {b->logits, 1, &row, &token, &logprob, &status};
        const double begin = now();
        if (b->backend.ops->logprob(&b->backend, &args) != QWEN36_OK || status != QWEN36_OK)
            exit(1);
        times[i] = now() - begin;
    }
    report("logprob", times);
}

static void run(bench *b)
{
    qw_sample_row plain = {.temperature = 1, .top_p = 1, .repetition = 1, .logprobs = -1}, row = plain;
    printf("%s, V = %d, microseconds per row\n  %-44s %9s %9s\n", b->backend.name, VOCAB, "", "median",
           "best");
    row.temperature = 0;
    bench_row(b, "greedy", row);
    row = plain;
    row.top_k = 20;
    row.top_p = 0.95F;
    bench_row(b, "top_k 20, top_p 0.95", row);
    row.presence = 1.5F;
    row.token_count = HISTORY;
    bench_row(b, "top_k 20, top_p 0.95, presence over 4096", row);
    row.presence = 0;
    row.repetition = 1.1F;
    bench_row(b, "top_k 20, top_p 0.95, repetition over 4096", row);
    row.repetition = 1;
    row.bitmask = b->bitmask;
    bench_row(b, "top_k 20, top_p 0.95, bitmask", row);
    row.bitmask = NULL;
    row.logprobs = 20;
    bench_row(b, "top_k 20, top_p 0.95, 20 log-probs", row);
    row = plain;
    row.top_k = 5000;
    bench_row(b, "top_k 5000", row);
    row.top_k = 0;
    bench_row(b, "temperature 1, nothing cut", row);
    row.top_p = 0.95F;
    bench_row(b, "top_p 0.95", row);
    row.temperature = 100;
    bench_row(b, "top_p 0.95, nearly flat", row);
    row = plain;
    row.min_p = 0.05F;
    bench_row(b, "min_p 0.05", row);
    bench_logprob(b);
}

int main(int count, char **arguments)
{
    static bench b;
    const qw_dims dims = {.vocab_size = VOCAB,
                          .hidden = 16,
                          .layers = 1,
                          .heads = 2,
                          .kv_heads = 1,
                          .head_dim = 16,
                          .rotary_dim = 8,
                          .lin_k_heads = 1,
                          .lin_v_heads = 1,
                          .lin_k_dim = 16,
                          .lin_v_dim = 16,
                          .conv_width = 4,
                          .intermediate = 16};
    const qw_allocator allocator = qw_allocator_default();
    const qw_backend_config config = {.allocator = &allocator,
                                      .dims = &dims,
                                      .numerics = QWEN36_NUMERICS_REFERENCE,
                                      .cpu_tier = count > 1 ? atoi(arguments[1]) : QWEN36_CPU_AUTO,
                                      .threads = 1,
                                      .max_rows = 1,
                                      .max_segments = 1,
                                      .max_head_rows = 1,
                                      .max_context = 64};
    float *logits = qw_alloc_raw(&allocator, (size_t)ROWS * VOCAB, sizeof *logits);
    if (logits == NULL || qw_cpu_backend_open(&config, &b.backend, NULL) != QWEN36_OK)
        return 1;
    b.logits = test_view(&b.buffer, logits, ROWS, VOCAB);
    fill(&b, logits);
    run(&b);
    b.backend.ops->destroy(&b.backend);
    qw_free(&allocator, logits);
    return 0;
}
