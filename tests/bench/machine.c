#include "tests/bench/machine.h"

#include "kernels/cpu/kernels.h"
#include "kernels/cpu/pool.h"
#include "lib/os/process.h"

#include <stdlib.h>
#include <string.h>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

enum { CHUNK = 1 << 18, RATE_ITEMS = 64, RATE_LOOPS = 20000, CHAINS = 16 };

struct machine {
    qw_allocator allocator;
    qw_pool *pool;
    char *memory;
    uint64_t bytes;
    volatile uint64_t sink; /* keeps what the loops compute alive */
};

typedef uint64_t read_fn(const char *from, int64_t bytes);
typedef float rate_fn(void);

typedef struct job {
    machine *m;
    read_fn *read;
    rate_fn *rate;
} job;

/* ---- the loops, by instruction set --------------------------------------------------------------------- */

static uint64_t read_portable(const char *from, int64_t bytes)
{
    uint64_t sum[8] = {0};
    for (int64_t i = 0; i < bytes; i += 64) {
        uint64_t word[8];
        memcpy(word, from + i, sizeof word);
        for (int j = 0; j < 8; j++)
            sum[j] ^= word[j];
    }
    return sum[0] ^ sum[1] ^ sum[2] ^ sum[3] ^ sum[4] ^ sum[5] ^ sum[6] ^ sum[7];
}

typedef float f4 __attribute__((vector_size(16)));

static float rate_portable(void)
{
    f4 sum[CHAINS];
    for (int c = 0; c < CHAINS; c++)
        sum[c] = (f4){(float)c, 1, 2, 3};
    const f4 factor = {0.5f, 0.5f, 0.5f, 0.5f};
    for (int i = 0; i < RATE_LOOPS; i++)
        for (int c = 0; c < CHAINS; c++)
            sum[c] = sum[c] * factor + factor;
    float total = 0;
    for (int c = 0; c < CHAINS; c++)
        total += sum[c][0];
    return total;
}

#if defined(QW_HAVE_AVX512BF16)
/* Four rows of 4096 bytes side by side, the next four being fetched meanwhile: how the products read. */
__attribute__((target("avx512f"))) static uint64_t read_avx512(const char *from, int64_t bytes)
{
    enum { ROW = 4096, ROWS = 4 };
    __m512i sum[ROWS];
    for (int r = 0; r < ROWS; r++)
        sum[r] = _mm512_setzero_si512();
    for (int64_t i = 0; i < bytes; i += ROWS * ROW) {
        for (int64_t j = i; j < i + ROW; j += 64) {
#pragma GCC unroll 4
            for (int r = 0; r < ROWS; r++) {
                __builtin_prefetch(from + j + (ROWS + r) * ROW, 0, 2);
                sum[r] = _mm512_xor_si512(sum[r], _mm512_loadu_si512(from + j + r * ROW));
            }
        }
    }
    uint64_t words[8];
    const __m512i low = _mm512_xor_si512(sum[0], sum[1]), high = _mm512_xor_si512(sum[2], sum[3]);
    _mm512_storeu_si512(words, _mm512_xor_si512(low, high));
    return words[0] ^ words[1] ^ words[2] ^ words[3] ^ words[4] ^ words[5] ^ words[6] ^ words[7];
}

__attribute__((target("avx512f"))) static float rate_avx512(void)
{
    __m512 sum[CHAINS];
    const __m512 factor = _mm512_set1_ps(0.5f);
    for (int c = 0; c < CHAINS; c++)
        sum[c] = _mm512_set1_ps((float)c);
    for (int i = 0; i < RATE_LOOPS; i++)
#pragma GCC unroll 16
        for (int c = 0; c < CHAINS; c++)
            sum[c] = _mm512_fmadd_ps(sum[c], factor, factor);
    float total = 0;
    for (int c = 0; c < CHAINS; c++)
        total += _mm512_reduce_add_ps(sum[c]);
    return total;
}

__attribute__((target("avx512f,avx512bf16"))) static float rate_bf16(void)
{
    __m512 sum[CHAINS];
    const __m512bh factor = _mm512_cvtne2ps_pbh(_mm512_set1_ps(0.5f), _mm512_set1_ps(0.25f));
    for (int c = 0; c < CHAINS; c++)
        sum[c] = _mm512_set1_ps((float)c);
    for (int i = 0; i < RATE_LOOPS; i++)
#pragma GCC unroll 16
        for (int c = 0; c < CHAINS; c++)
            sum[c] = _mm512_dpbf16_ps(sum[c], factor, factor);
    float total = 0;
    for (int c = 0; c < CHAINS; c++)
        total += _mm512_reduce_add_ps(sum[c]);
    return total;
}
#endif

#if defined(QW_HAVE_AVX2)
__attribute__((target("avx2,fma"))) static float rate_avx2(void)
{
    __m256 sum[CHAINS - 2];
    const __m256 factor = _mm256_set1_ps(0.5f);
    for (int c = 0; c < CHAINS - 2; c++)
        sum[c] = _mm256_set1_ps((float)c);
    for (int i = 0; i < RATE_LOOPS; i++)
#pragma GCC unroll 16
        for (int c = 0; c < CHAINS - 2; c++)
            sum[c] = _mm256_fmadd_ps(sum[c], factor, factor);
    float total = 0;
    for (int c = 0; c < CHAINS - 2; c++)
        total += _mm256_cvtss_f32(sum[c]);
    return total;
}
#endif

/* ---- measuring ----------------------------------------------------------------------------------------- */

static void read_item(void *argument, int64_t item, int32_t worker)
{
    (void)worker;
    const job *j = argument;
    j->m->sink = j->read(j->m->memory + item * CHUNK, CHUNK);
}

static void rate_item(void *argument, int64_t item, int32_t worker)
{
    (void)item;
    (void)worker;
    const job *j = argument;
    j->m->sink = (uint64_t)j->rate();
}

static double best_seconds(machine *m, qw_pool_task *task, job *j, int64_t items, int32_t tries)
{
    double best = 1e30;
    for (int32_t i = 0; i < tries; i++) {
        const double begin = qw_clock_seconds();
        qw_pool_run(m->pool, task, j, items);
        const double seconds = qw_clock_seconds() - begin;
        best = seconds < best ? seconds : best;
    }
    return best;
}

static double rate(machine *m, rate_fn *loop, double operations, int32_t tries)
{
    job j = {m, NULL, loop};
    return operations * RATE_LOOPS * RATE_ITEMS / best_seconds(m, rate_item, &j, RATE_ITEMS, tries);
}

double machine_read_bandwidth(machine *m, int32_t tries)
{
    job j = {m, read_portable, NULL};
    const int64_t chunks = (int64_t)(m->bytes / CHUNK);
    double seconds = best_seconds(m, read_item, &j, chunks, tries);
#if defined(QW_HAVE_AVX512BF16)
    if (qw_cpu_kernels_choose(QWEN36_CPU_AVX512) != NULL) {
        j.read = read_avx512;
        const double other = best_seconds(m, read_item, &j, chunks, tries);
        seconds = other < seconds ? other : seconds;
    }
#endif
    return (double)(chunks * CHUNK) / seconds;
}

double machine_f32_rate(machine *m, int32_t tries)
{
#if defined(QW_HAVE_AVX512BF16)
    if (qw_cpu_kernels_choose(QWEN36_CPU_AVX512) != NULL)
        return rate(m, rate_avx512, CHAINS * 16 * 2, tries);
#endif
#if defined(QW_HAVE_AVX2)
    if (qw_cpu_kernels_choose(QWEN36_CPU_AVX2) != NULL)
        return rate(m, rate_avx2, (CHAINS - 2) * 8 * 2, tries);
#endif
    return rate(m, rate_portable, CHAINS * 4 * 2, tries);
}

double machine_bf16_rate(machine *m, int32_t tries)
{
#if defined(QW_HAVE_AVX512BF16)
    if (qw_cpu_has_bf16_dot())
        return rate(m, rate_bf16, CHAINS * 32 * 2, tries);
#endif
    (void)m;
    (void)tries;
    return 0;
}

/* ---- life ---------------------------------------------------------------------------------------------- */

machine *machine_create(int32_t threads, uint64_t bytes)
{
    machine *m = calloc(1, sizeof *m);
    if (m == NULL)
        return NULL;
    m->allocator = qw_allocator_default();
    m->bytes = bytes;
    m->memory = qw_alloc_raw(&m->allocator, bytes, 1);
    if (m->memory == NULL || qw_pool_create(&m->allocator, threads, &m->pool, NULL) != QWEN36_OK) {
        machine_destroy(m);
        return NULL;
    }
    for (uint64_t i = 0; i < bytes; i += 64)
        memcpy(m->memory + i, &i, sizeof i);
    return m;
}

void machine_destroy(machine *m)
{
    if (m == NULL)
        return;
    qw_pool_destroy(m->pool);
    qw_free(&m->allocator, m->memory);
    free(m);
}
