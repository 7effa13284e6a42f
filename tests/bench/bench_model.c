/* The whole model on weights of true dimensions: load time, prefill and decode rates, peak memory, beside
 * what the machine reads and multiplies at best, measured in the same run. Of a device, what it reads is
 * taken from copies within its memory, and what it multiplies is not known.
 *
 *   bench_model [--like 35B-A3B] [--layers 4] [--threads N] [--numerics fast|reference] [--quick] [--json
 * FILE]
 *
 * The checkpoint (random, made by examples/make-model) is kept in build/checkpoints. Weights are read into
 * memory once, so that no page of them is missing while it counts. Every figure is the best of a few runs. */
#include "lib/os/process.h"
#include "tests/bench/machine.h"
#include "tests/bench/model.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

typedef struct settings {
    const char *like, *json;
    int32_t layers, threads, numerics, quick;
} settings;

typedef struct limits {
    double bandwidth, f32, bf16;
} limits;

typedef struct active {
    double bytes;    /* weights that one decoded token reads */
    double products; /* floating-point operations of one prefilled token, head excluded */
} active;

static settings parse(int argc, char **argv)
{
    settings s = {"35B-A3B", "build/bench_model.json", 4, qw_processor_count(), QWEN36_NUMERICS_FAST, 0};
    for (int i = 1; i < argc; i++) {
        const char *value = i + 1 < argc ? argv[i + 1] : "";
        if (strcmp(argv[i], "--quick") == 0) {
            s.quick = 1;
            continue;
        }
        i++;
        if (strcmp(argv[i - 1], "--like") == 0)
            s.like = value;
        else if (strcmp(argv[i - 1], "--json") == 0)
            s.json = value;
        else if (strcmp(argv[i - 1], "--layers") == 0)
            s.layers = atoi(value);
        else if (strcmp(argv[i - 1], "--threads") == 0)
            s.threads = atoi(value);
        else if (strcmp(argv[i - 1], "--numerics") == 0)
            s.numerics = strcmp(value, "reference") == 0 ? QWEN36_NUMERICS_REFERENCE : QWEN36_NUMERICS_FAST;
        else
            bench_give_up("unknown option");
    }
    return s;
}

/* ---- what a token costs -------------------------------------------------------------------------------- */

static double elements(const qw_view *view)
{
    double count = view->buffer == NULL ? 0 : 1;
    for (int32_t i = 0; i < view->rank; i++)
        count *= (double)view->shape[i];
    return count;
}

static double layer_elements(const qw_layer *l, int32_t top_k)
{
    const qw_view *all[] = {&l->in_qkv, &l->in_z, &l->in_b, &l->in_a, &l->out,  &l->q,      &l->k,
                            &l->v,      &l->o,    &l->gate, &l->up,   &l->down, &l->router, &l->shared_gate};
    double sum = 0;
    for (size_t i = 0; i < QW_COUNT_OF(all); i++)
        sum += elements(all[i]);
    if (l->experts != NULL)
        sum += top_k *
               (elements(&l->experts[0].gate) + elements(&l->experts[0].up) + elements(&l->experts[0].down));
    return sum;
}

static active count_active(const qwen36_model *m)
{
    double sum = 0, element = qw_dtype_size(m->network.head.dtype);
    for (int32_t i = 0; i < m->dims.layers; i++)
        sum += layer_elements(&m->network.layers[i], m->dims.top_k);
    double states = (double)m->cache.plan.slot_bytes * 2; /* read one slot, write another */
    return (active){(sum + elements(&m->network.head)) * element + states, 2 * sum};
}

/* ---- the limits of the machine ------------------------------------------------------------------------- */

/* Half of the KV cache, or of the states where there is none, copied over the other half before anyone uses
 * it: bytes that are read and written. */
static double device_bandwidth(qwen36_model *m, int32_t tries)
{
    const qw_buffer *buffer = m->cache.kv.bytes > m->cache.states.bytes ? &m->cache.kv : &m->cache.states;
    const uint64_t half = buffer->bytes / 2 / QW_BUFFER_ALIGNMENT * QW_BUFFER_ALIGNMENT;
    const qw_copy copy = {.from = 0, .to = half, .bytes = half};
    const qw_copy_args args = {buffer, 1, &copy};
    double best = 1e30;
    for (int32_t i = 0; i <= tries; i++) { /* the first one warms up */
        const double begin = qw_clock_seconds();
        if (m->backend.ops->copy(&m->backend, &args) != QWEN36_OK ||
            m->backend.ops->step_end(&m->backend) != QWEN36_OK)
            bench_give_up("the device does not copy");
        const double seconds = qw_clock_seconds() - begin;
        best = i > 0 && seconds < best ? seconds : best;
    }
    return 2 * (double)half / best;
}

static limits measure_limits(qwen36_model *m, int32_t threads)
{
    limits l = {0};
    if (m->backend.space == QW_SPACE_DEVICE) {
        l.bandwidth = device_bandwidth(m, 8);
        return l;
    }
    machine *peak = machine_create(threads, (uint64_t)256 << 20);
    if (peak == NULL)
        bench_give_up("no memory");
    l = (limits){machine_read_bandwidth(peak, 8), machine_f32_rate(peak, 8), machine_bf16_rate(peak, 8)};
    machine_destroy(peak);
    return l;
}

/* ---- measurements -------------------------------------------------------------------------------------- */

static double prefill_seconds(qwen36_session *session, const int32_t *tokens, int32_t count)
{
    qwen36_error error = QWEN36_ERROR_INIT;
    bench_check(qwen36_session_reset(session, &error), &error);
    bench_check(qwen36_session_append(session, tokens, (size_t)count, QWEN36_LOGITS_LAST, &error), &error);
    return bench_compute(session);
}

static void decode(qwen36_session **sessions, size_t count)
{
    int32_t tokens[64];
    qwen36_error error = QWEN36_ERROR_INIT;
    bench_check(qwen36_sample(sessions, count, tokens, NULL, &error), &error);
    bench_check(qwen36_step(sessions, count, NULL, NULL, &error), &error);
}

/* Seconds per iteration of `count` sessions, the best of some. */
static double decode_seconds(qwen36_session **sessions, size_t count, int32_t iterations)
{
    double best = 1e9;
    for (int32_t i = 0; i < iterations; i++) {
        double begin = qw_clock_seconds();
        decode(sessions, count);
        double seconds = qw_clock_seconds() - begin;
        best = seconds < best ? seconds : best;
    }
    return best;
}

static void report_prefill(FILE *json, qwen36_model *m, const int32_t *tokens, const settings *s,
                           const limits *l, const active *a)
{
    static const int32_t lengths[] = {128, 512, 2048, 8192};
    qwen36_error error = QWEN36_ERROR_INIT;
    qwen36_session *session = NULL;
    double limit = s->numerics == QWEN36_NUMERICS_FAST && l->bf16 > 0 ? l->bf16 : l->f32;
    bench_check(qwen36_session_create(m, NULL, &session, &error), &error);
    for (size_t i = 0; i < (s->quick ? 2 : QW_COUNT_OF(lengths)); i++) {
        double best = 1e9;
        for (int32_t run = 0; run < (lengths[i] > 2048 ? 1 : 3); run++) {
            double seconds = prefill_seconds(session, tokens, lengths[i]);
            best = seconds < best ? seconds : best;
        }
        double rate = lengths[i] / best, products = rate * a->products;
        printf("prefill %5d   %9.1f tok/s   ", lengths[i], rate);
        if (limit > 0)
            printf("%5.1f %% of the multiplication rate\n", 100 * products / limit);
        else
            printf("%5.0f GFLOP/s\n", products / 1e9);
        fprintf(json, "  \"prefill_%d\": %.3f,\n", lengths[i], rate);
    }
    qwen36_session_destroy(session);
}

static void report_decode(FILE *json, qwen36_model *m, const int32_t *tokens, const settings *s,
                          const limits *l, const active *a)
{
    static const int32_t contexts[] = {0, 2048, 8192};
    qwen36_error error = QWEN36_ERROR_INIT;
    qwen36_session *session = NULL;
    bench_check(qwen36_session_create(m, NULL, &session, &error), &error);
    for (size_t i = 0; i < (s->quick ? 1 : QW_COUNT_OF(contexts)); i++) {
        prefill_seconds(session, tokens, contexts[i] == 0 ? 1 : contexts[i]);
        double seconds = decode_seconds(&session, 1, 24);
        double bytes = a->bytes + (double)m->cache.plan.kv_token_bytes * contexts[i];
        printf("decode at %5d %9.2f tok/s   %5.1f %% of the read bandwidth\n", contexts[i], 1 / seconds,
               100 * bytes / seconds / l->bandwidth);
        fprintf(json, "  \"decode_at_%d\": %.3f,\n", contexts[i], 1 / seconds);
    }
    qwen36_session_destroy(session);
}

static void report_batch(FILE *json, qwen36_model *m, const int32_t *tokens)
{
    qwen36_error error = QWEN36_ERROR_INIT;
    qwen36_session *sessions[16];
    for (int32_t i = 0; i < 16; i++) {
        bench_check(qwen36_session_create(m, NULL, &sessions[i], &error), &error);
        prefill_seconds(sessions[i], tokens + 7 * i, 16);
    }
    for (size_t batch = 4; batch <= 16; batch *= 4) {
        double seconds = decode_seconds(sessions, batch, 6);
        printf("decode batch %2zu %8.2f tok/s\n", batch, (double)batch / seconds);
        fprintf(json, "  \"decode_batch_%zu\": %.3f,\n", batch, (double)batch / seconds);
    }
    for (int32_t i = 0; i < 16; i++)
        qwen36_session_destroy(sessions[i]);
}

static qwen36_model *load(const char *directory, const settings *s, int32_t access)
{
    qwen36_error error = QWEN36_ERROR_INIT;
    qwen36_model *model = NULL;
    qwen36_model_options options;
    qwen36_model_options_init(&options, sizeof options);
    options.numerics = s->numerics;
    options.threads = s->threads;
    options.weights_access = access;
    options.context_length = 8192 + 64;
    options.max_sessions = 16;
    options.prefix_reuse = 0; /* every run computes what the one before computed */
    options.cache_bytes = (uint64_t)1 << 30;
    bench_check(qwen36_model_load(directory, &options, &model, &error), &error);
    return model;
}

int main(int argc, char **argv)
{
    static int32_t tokens[8192 + 256];
    settings s = parse(argc, argv);
    const char *directory = bench_checkpoint(s.like, s.layers);
    FILE *json = fopen(s.json, "w");
    if (json == NULL)
        bench_give_up("the JSON file cannot be written");
    double begin = qw_clock_seconds();
    qwen36_model *model = load(directory, &s, QWEN36_WEIGHTS_MAP);
    double mapped = qw_clock_seconds() - begin;
    qwen36_model_release(model);
    model = load(directory, &s, QWEN36_WEIGHTS_READ);
    bench_random_tokens(tokens, (int32_t)QW_COUNT_OF(tokens), model->dims.vocab_size, 1);

    limits l = measure_limits(model, s.threads);
    active a = count_active(model);
    printf("%s, %d layers, %s, %d threads\n", s.like, s.layers, model->backend.name, s.threads);
    printf("machine: reads %.1f GB/s, float32 %.0f GFLOP/s, BF16 %.0f GFLOP/s (0: not known)\n",
           l.bandwidth / 1e9, l.f32 / 1e9, l.bf16 / 1e9);
    printf("a token reads %.2f GB and takes %.2f GFLOP\n", a.bytes / 1e9, a.products / 1e9);
    printf("load (mapped)   %8.3f s\n", mapped);
    fprintf(json, "{\n  \"model\": \"%s\", \"layers\": %d, \"backend\": \"%s\", \"threads\": %d,\n", s.like,
            s.layers, model->backend.name, s.threads);
    fprintf(json, "  \"bandwidth\": %.0f, \"f32\": %.0f, \"bf16\": %.0f, \"load_mapped\": %.4f,\n",
            l.bandwidth, l.f32, l.bf16, mapped);
    report_prefill(json, model, tokens, &s, &l, &a);
    report_decode(json, model, tokens, &s, &l, &a);
    report_batch(json, model, tokens);
    qwen36_model_release(model);
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    printf("peak memory     %8.1f MiB (weights read into memory)\n", (double)usage.ru_maxrss / 1024);
    fprintf(json, "  \"peak_memory_kib\": %ld\n}\n", usage.ru_maxrss);
    fclose(json);
    return 0;
}
