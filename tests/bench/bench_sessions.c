/* Many sessions on one model of true dimensions: decoding together, prompts that arrive while others decode,
 * prompts whose beginning is known, and the moves that compute nothing: fork, rewind, standing on a snapshot
 * again.
 *
 *   bench_sessions [--like 35B-A3B] [--layers 4] [--threads N] [--quick] [--json FILE]
 *
 * Checkpoints as in bench_model; the moves are also timed on all layers, whose weights are zeros, because
 * what they would have to copy is the state of all layers. */
#include "lib/os/process.h"
#include "tests/bench/model.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_SESSIONS = 256, BLOCK = QW_KV_BLOCK };

typedef struct settings {
    const char *like, *json;
    int32_t layers, threads, quick;
    int32_t sessions, context; /* the most of each */
} settings;

static settings parse(int argc, char **argv)
{
    settings s = {"35B-A3B", "build/bench_sessions.json", 4, qw_processor_count(), 0, 0, 0};
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
        else
            bench_give_up("unknown option");
    }
    s.sessions = s.quick ? 64 : MOST_SESSIONS;
    s.context = s.quick ? 2048 : 8192;
    return s;
}

static qwen36_model *load(const char *directory, const settings *s, int32_t access, int32_t sessions,
                          int32_t context)
{
    qwen36_error error = QWEN36_ERROR_INIT;
    qwen36_model *model = NULL;
    qwen36_model_options options;
    qwen36_model_options_init(&options, sizeof options);
    options.threads = s->threads;
    options.weights_access = access;
    options.context_length = context;
    options.max_sessions = sessions;
    bench_check(qwen36_model_load(directory, &options, &model, &error), &error);
    return model;
}

static qwen36_session *create(qwen36_model *model, uint64_t stream)
{
    qwen36_error error = QWEN36_ERROR_INIT;
    qwen36_session *session = NULL;
    qwen36_sampling sampling;
    bench_check(qwen36_session_create(model, NULL, &session, &error), &error);
    bench_check(qwen36_sampling_init(model, &sampling, sizeof sampling), &error);
    sampling.temperature = 1;
    sampling.stream = stream;
    bench_check(qwen36_session_set_sampling(session, &sampling, &error), &error);
    return session;
}

static void append(qwen36_session *session, const int32_t *tokens, int32_t count)
{
    qwen36_error error = QWEN36_ERROR_INIT;
    bench_check(qwen36_session_append(session, tokens, (size_t)count, QWEN36_LOGITS_LAST, &error), &error);
}

/* ---- decoding together --------------------------------------------------------------------------------- */

/* A fork with another draw and KV of its own, as if it had computed its timeline itself: reading it costs
 * what reading any other session's does. */
static qwen36_session *twin_of(qwen36_session *session, uint64_t stream)
{
    qwen36_error error = QWEN36_ERROR_INIT;
    qwen36_session *twin = NULL;
    bench_check(qwen36_session_fork(session, NULL, &twin, &error), &error);
    qw_cache *cache = &session->model->cache;
    for (int32_t i = twin->block_count - 1; i >= 0; i--) {
        int32_t block = qw_cache_take_block(cache), shared = twin->blocks[i];
        if (block < 0)
            bench_give_up("no KV block is free");
        memcpy((char *)cache->kv.base + (uint64_t)block * cache->plan.block_bytes,
               (const char *)cache->kv.base + (uint64_t)shared * cache->plan.block_bytes,
               cache->plan.block_bytes);
        qw_cache_drop_block(cache, shared);
        twin->blocks[i] = block;
    }
    twin->indexed = 0;
    twin->space = twin->sampler.options.stream = stream;
    return twin;
}

static void decode(qwen36_session **sessions, size_t count)
{
    int32_t tokens[MOST_SESSIONS];
    qwen36_error error = QWEN36_ERROR_INIT;
    bench_check(qwen36_sample(sessions, count, tokens, NULL, &error), &error);
    bench_check(qwen36_step(sessions, count, NULL, NULL, &error), &error);
}

/* The best of some iterations. */
static double decode_seconds(qwen36_session **sessions, size_t count, int32_t iterations)
{
    double best = 1e9;
    for (int32_t i = 0; i < iterations; i++) {
        double begin = qw_clock_seconds();
        decode(sessions, count);
        best = QW_MIN(best, qw_clock_seconds() - begin);
    }
    return best;
}

static void report_throughput(FILE *json, qwen36_model *model, const settings *s, const int32_t *tokens,
                              int32_t context)
{
    static qwen36_session *sessions[MOST_SESSIONS];
    double alone = 0;
    int32_t made = 1;
    sessions[0] = create(model, 1);
    append(sessions[0], tokens, context);
    bench_compute(sessions[0]);
    for (int32_t count = 1; count <= s->sessions; count *= 4) {
        for (; made < count; made++)
            sessions[made] = twin_of(sessions[0], 1 + (uint64_t)made);
        double rate = count / decode_seconds(sessions, (size_t)count, count > 16 ? 3 : 6);
        alone = count == 1 ? rate : alone;
        printf("decode %3d sessions at %4d  %9.2f tok/s   %6.2f x one session\n", count, context, rate,
               rate / alone);
        fprintf(json, "  \"decode_%d_at_%d\": %.3f,\n", count, context, rate);
    }
    for (int32_t i = 0; i < made; i++)
        qwen36_session_destroy(sessions[i]);
    qwen36_model_clear_cache(model, NULL);
}

/* ---- a mixed load ----------------------------------------------------------------------------------- */

enum { SLOTS = 8, MOST_TIMES = 8192 };

typedef struct times {
    int32_t count;
    double value[MOST_TIMES];
} times;

static int compare(const void *a, const void *b)
{
    const double *x = a, *y = b;
    return (*x > *y) - (*x < *y);
}

static void keep(times *t, double seconds)
{
    if (t->count < MOST_TIMES)
        t->value[t->count++] = seconds;
}

/* The smallest value that at least `share` of all do not exceed. */
static double percentile(times *t, double share)
{
    qsort(t->value, (size_t)t->count, sizeof t->value[0], compare);
    int32_t rank = (int32_t)(share * t->count + 0.999999);
    return t->count == 0 ? 0 : t->value[QW_MAX(rank, 1) - 1];
}

/* A place of the load: a prompt arrives, is computed and continued, and the next one arrives at once. */
typedef struct place {
    qwen36_session *session;
    double arrived, last; /* of the prompt; of the last token, 0: none yet */
    int32_t left;         /* tokens to sample */
} place;

typedef struct load_run {
    const int32_t *tokens;
    int32_t prompt, outputs, requests; /* requests: still to arrive */
    int32_t sampled;
    place places[SLOTS];
    times first, between;
} load_run;

/* Prompts differ from the first token on, and their continuations in length, so that they end at different
 * times. */
static void arrive(load_run *r, place *p)
{
    qwen36_error error = QWEN36_ERROR_INIT;
    r->requests--;
    bench_check(qwen36_session_reset(p->session, &error), &error);
    append(p->session, r->tokens + 37 * r->requests, r->prompt);
    p->left = r->outputs / 2 + 13 * r->requests % r->outputs;
    p->arrived = qw_clock_seconds();
    p->last = 0;
}

static void take_token(load_run *r, place *p, double now)
{
    if (p->last > 0)
        keep(&r->between, now - p->last);
    else
        keep(&r->first, now - p->arrived);
    p->last = now;
    p->left--;
    r->sampled++;
}

/* One iteration over those that have something to do; false when nothing has. */
static bool serve(load_run *r, qwen36_step_options *options)
{
    qwen36_session *active[SLOTS], *ready[SLOTS];
    place *of_active[SLOTS], *of_ready[SLOTS];
    qwen36_status statuses[SLOTS];
    int32_t tokens[SLOTS];
    size_t count = 0, samples = 0;
    qwen36_error error = QWEN36_ERROR_INIT;
    for (int32_t i = 0; i < SLOTS; i++) {
        place *p = &r->places[i];
        if (p->left == 0 && r->requests > 0)
            arrive(r, p);
        if (p->left == 0)
            continue;
        of_active[count] = p;
        active[count++] = p->session;
    }
    if (count == 0)
        return false;
    bench_check(qwen36_step(active, count, options, statuses, &error), &error);
    for (size_t i = 0; i < count; i++) {
        if (statuses[i] != QWEN36_OK)
            continue;
        of_ready[samples] = of_active[i];
        ready[samples++] = active[i];
    }
    if (samples > 0)
        bench_check(qwen36_sample(ready, samples, tokens, NULL, &error), &error);
    double now = qw_clock_seconds();
    for (size_t i = 0; i < samples; i++)
        take_token(r, of_ready[i], now);
    return true;
}

static void print_times(FILE *json, const char *name, int32_t budget, times *t)
{
    double p50 = percentile(t, 0.5), p95 = percentile(t, 0.95), p99 = percentile(t, 0.99);
    printf("  %-22s p50 %8.3f s   p95 %8.3f s   p99 %8.3f s   of %d\n", name, p50, p95, p99, t->count);
    fprintf(json, "  \"%s_%d\": {\"p50\": %.5f, \"p95\": %.5f, \"p99\": %.5f},\n", name, budget, p50, p95,
            p99);
}

static void report_load(FILE *json, qwen36_model *model, const settings *s, const int32_t *tokens,
                        int32_t budget)
{
    static load_run r;
    qwen36_step_options options = {sizeof options, budget};
    r = (load_run){
        .tokens = tokens, .prompt = s->quick ? 192 : 1024, .outputs = s->quick ? 24 : 64, .requests = 24};
    int32_t requests = r.requests;
    for (int32_t i = 0; i < SLOTS; i++)
        r.places[i].session = create(model, (uint64_t)i);
    double begin = qw_clock_seconds();
    while (serve(&r, &options))
        ;
    double seconds = qw_clock_seconds() - begin;
    printf(
        "%d prompts of %d tokens at %d places, %d rows a step: %.2f tokens sampled, %.1f computed a second\n",
        requests, r.prompt, SLOTS, budget, r.sampled / seconds,
        (r.sampled + (double)requests * r.prompt) / seconds);
    fprintf(json, "  \"load_tokens_per_second_%d\": %.3f,\n", budget, r.sampled / seconds);
    print_times(json, "time_to_first_token", budget, &r.first);
    print_times(json, "time_between_tokens", budget, &r.between);
    for (int32_t i = 0; i < SLOTS; i++)
        qwen36_session_destroy(r.places[i].session);
    qwen36_model_clear_cache(model, NULL);
}

/* ---- a known prefix --------------------------------------------------------------------------------- */

/* From the tokens to the first sampled one. */
static double first_token_seconds(qwen36_session *session, const int32_t *tokens, size_t count,
                                  size_t *reused)
{
    int32_t token;
    qwen36_error error = QWEN36_ERROR_INIT;
    double begin = qw_clock_seconds();
    bench_check(qwen36_session_sync(session, tokens, count, reused, &error), &error);
    bench_compute(session);
    bench_check(qwen36_sample(&session, 1, &token, NULL, &error), &error);
    return qw_clock_seconds() - begin;
}

/* The same beginning, then 32 tokens of each one's own. */
static void report_warm(FILE *json, qwen36_model *model, const settings *s, int32_t *tokens)
{
    size_t reused = 0, count = (size_t)s->context + 32;
    double warm = 1e9;
    qwen36_session *first = create(model, 1), *second = create(model, 2);
    double cold = first_token_seconds(first, tokens, count, &reused);
    for (int32_t run = 0; run < 4; run++) {
        bench_random_tokens(tokens + s->context, 32, model->dims.vocab_size, 77 + (uint32_t)run);
        double seconds = first_token_seconds(second, tokens, count, &reused);
        if (reused != (size_t)s->context)
            bench_give_up("the prefix was not found");
        warm = QW_MIN(warm, seconds);
    }
    printf("first token behind %d tokens   cold %.3f s   warm %.4f s   %.2f %%\n", s->context, cold, warm,
           100 * warm / cold);
    fprintf(json, "  \"first_token_cold_at_%d\": %.5f, \"first_token_warm_at_%d\": %.5f,\n", s->context, cold,
            s->context, warm);
    qwen36_session_destroy(first);
    qwen36_session_destroy(second);
    qwen36_model_clear_cache(model, NULL);
}

/* ---- moves ------------------------------------------------------------------------------------------ */

enum { MOVES = 200 };

static double fork_seconds(qwen36_session *session)
{
    qwen36_error error = QWEN36_ERROR_INIT;
    times t = {0};
    for (int32_t i = 0; i < MOVES; i++) {
        qwen36_session *fork = NULL;
        double begin = qw_clock_seconds();
        bench_check(qwen36_session_fork(session, NULL, &fork, &error), &error);
        keep(&t, qw_clock_seconds() - begin);
        qwen36_session_destroy(fork);
    }
    return percentile(&t, 0.5);
}

/* From the end to a snapshot in the middle, and back to the end. */
static void move_seconds(qwen36_session *session, const int32_t *tokens, int32_t length, double *back,
                         double *again)
{
    qwen36_error error = QWEN36_ERROR_INIT;
    times backs = {0}, agains = {0};
    size_t middle = (size_t)length / 2, reused = 0;
    for (int32_t i = 0; i < MOVES; i++) {
        double begin = qw_clock_seconds();
        bench_check(qwen36_session_rewind(session, middle + 1, &error), &error);
        double between = qw_clock_seconds();
        if (qwen36_session_computed(session) != middle)
            bench_give_up("there is no snapshot in the middle");
        bench_check(qwen36_session_sync(session, tokens, (size_t)length + 1, &reused, &error), &error);
        keep(&backs, between - begin);
        keep(&agains, qw_clock_seconds() - between);
        if (reused != (size_t)length)
            bench_give_up("there is no snapshot at the end");
    }
    *back = percentile(&backs, 0.5);
    *again = percentile(&agains, 0.5);
}

/* What standing on a snapshot would cost if its state were copied. */
static double copy_seconds(const qwen36_model *model)
{
    uint64_t bytes = model->cache.plan.slot_bytes;
    char *states = model->cache.states.base;
    double best = 1e9;
    for (int32_t i = 0; i < 8; i++) {
        double begin = qw_clock_seconds();
        memcpy(states + bytes, states, bytes);
        best = QW_MIN(best, qw_clock_seconds() - begin);
    }
    return best;
}

static void report_moves(FILE *json, qwen36_model *model, const int32_t *tokens, int32_t length)
{
    double back = 0, again = 0, state = (double)model->cache.plan.slot_bytes / (1 << 20);
    qwen36_session *session = create(model, 1);
    append(session, tokens, length + 1);
    bench_compute(session);
    double fork = fork_seconds(session);
    move_seconds(session, tokens, length, &back, &again);
    qwen36_session_destroy(session);
    double copy = copy_seconds(model); /* nobody stands on a state any more */
    printf("state of %.1f MiB, %d tokens   fork %.1f us   rewind %.1f us   stand again %.1f us   "
           "(copying the state: %.0f us)\n",
           state, length, fork * 1e6, back * 1e6, again * 1e6, copy * 1e6);
    fprintf(json,
            "  \"moves_%.0f_mib\": {\"fork\": %.8f, \"rewind\": %.8f, \"stand\": %.8f, \"copy\": %.8f},\n",
            state, fork, back, again, copy);
    qwen36_model_clear_cache(model, NULL);
}

/* All layers; the weights are zeros, so that this measures moves and nothing else. */
static void report_whole_state(FILE *json, const settings *s, const int32_t *tokens)
{
    qwen36_model *model = load(bench_checkpoint(s->like, 0), s, QWEN36_WEIGHTS_MAP, 2, 256 + BLOCK);
    report_moves(json, model, tokens, 256);
    qwen36_model_release(model);
}

int main(int argc, char **argv)
{
    static int32_t tokens[16384];
    settings s = parse(argc, argv);
    const char *directory = bench_checkpoint(s.like, s.layers);
    FILE *json = fopen(s.json, "w");
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (json == NULL)
        bench_give_up("the JSON file cannot be written");
    qwen36_model *model = load(directory, &s, QWEN36_WEIGHTS_READ, s.sessions, s.context + BLOCK);
    bench_random_tokens(tokens, (int32_t)QW_COUNT_OF(tokens), model->dims.vocab_size, 1);
    printf("%s, %d layers, %s, %d threads\n", s.like, s.layers, model->backend.name, s.threads);
    fprintf(json, "{\n  \"model\": \"%s\", \"layers\": %d, \"backend\": \"%s\", \"threads\": %d,\n", s.like,
            s.layers, model->backend.name, s.threads);
    report_throughput(json, model, &s, tokens, 1024);
    if (!s.quick)
        report_throughput(json, model, &s, tokens, 8192);
    report_load(json, model, &s, tokens, 64);
    report_load(json, model, &s, tokens, 512);
    report_warm(json, model, &s, tokens);
    report_moves(json, model, tokens, s.context);
    qwen36_model_release(model);
    report_whole_state(json, &s, tokens);
    fprintf(json, "  \"moves\": %d\n}\n", MOVES);
    fclose(json);
    return 0;
}
