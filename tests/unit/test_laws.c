/* The laws of docs/numerics.md: two ways of computing the same tokens agree as its table says. Every law is
 * checked on every tier of this machine, in both numerics settings, on small models of each kind. */
#include "lib/api/api.h"
#include "tests/harness.h"
#include "tests/unit/checkpoint.h"

#include <pthread.h>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

enum { TOKENS = 140, DECODED = 6, ROWS = TOKENS + DECODED };

static const char *const NAMES[] = {"moe", "dense_tied", "odd"};

/* ---- the table ----------------------------------------------------------------------------------------- */

/* The CPU cell of a law must be one that this test can check. */
static void require_equal_bits(const char *law)
{
    char start[64], cell[64] = "";
    char *text = test_read_file("docs/numerics.md", NULL);
    CHECK(text != NULL);
    snprintf(start, sizeof start, "\n| %s:", law);
    const char *row = strstr(text, start);
    CHECK_MSG(row != NULL, "docs/numerics.md has no law '%s'", law);
    CHECK(sscanf(strchr(row + 3, '|') + 1, " %63[^|]", cell) == 1);
    CHECK_TEXT(cell, "equal bits ");
    free(text);
}

/* ---- runs ---------------------------------------------------------------------------------------------- */

typedef struct run {
    int32_t vocab_size, rows;
    float *logits; /* [ROWS][vocab_size] */
} run;

static void collect(void *user, qwen36_session *session, int32_t position, const float *logits,
                    int32_t vocab_size)
{
    (void)session;
    run *r = user;
    if (r->logits == NULL)
        r->logits = malloc(sizeof(float) * ROWS * (size_t)vocab_size);
    CHECK_INT(position, r->rows);
    r->vocab_size = vocab_size;
    memcpy(r->logits + (int64_t)position * vocab_size, logits, sizeof(float) * (size_t)vocab_size);
    r->rows++;
}

static qwen36_session *collecting_session(qwen36_model *model, run *r)
{
    qwen36_session_options options;
    qwen36_session *session = NULL;
    *r = (run){0};
    CHECK_INT(qwen36_session_options_init(model, &options, sizeof options), QWEN36_OK);
    options.on_logits = collect;
    options.user = r;
    CHECK_INT(qwen36_session_create(model, &options, &session, NULL), QWEN36_OK);
    return session;
}

static void append(qwen36_session *session, const int32_t *tokens, size_t count)
{
    CHECK_INT(qwen36_session_append(session, tokens, count, QWEN36_LOGITS_ALL, NULL), QWEN36_OK);
}

/* Steps with a row budget until everything is computed. */
static void compute(qwen36_session *session, int32_t budget)
{
    qwen36_error error = QWEN36_ERROR_INIT;
    qwen36_step_options options = {sizeof options, budget};
    qwen36_status status;
    do {
        status = qwen36_step(&session, 1, &options, NULL, &error);
    } while (status == QWEN36_PENDING);
    CHECK_MSG(status == QWEN36_OK, "%s", error.message);
}

static void decode(qwen36_session *session, const int32_t *tokens)
{
    for (int32_t i = 0; i < DECODED; i++) {
        append(session, tokens + TOKENS + i, 1);
        compute(session, 1);
    }
}

static run run_plain(qwen36_model *model, const int32_t *tokens, int32_t budget)
{
    run r;
    qwen36_session *session = collecting_session(model, &r);
    append(session, tokens, TOKENS);
    compute(session, budget);
    decode(session, tokens);
    qwen36_session_destroy(session);
    return r;
}

static void check_same(const run *a, const run *b, const char *what)
{
    CHECK_INT(a->rows, ROWS);
    CHECK_INT(b->rows, ROWS);
    size_t row = sizeof(float) * (size_t)a->vocab_size;
    for (int32_t i = 0; i < ROWS; i++)
        CHECK_MSG(memcmp((const char *)a->logits + (size_t)i * row, (const char *)b->logits + (size_t)i * row,
                         row) == 0,
                  "%s: row %d differs", what, i);
}

/* ---- every model, tier and setting --------------------------------------------------------------------- */

typedef struct setting {
    const char *name;
    qwen36_model_options options;
    test_golden golden;
    run expected; /* one prefill, one thread, alone */
} setting;

typedef void (*law)(const setting *s);

/* The cache in 8 bits is one more setting: FAST, on the model whose sizes are multiples of nothing.
 * Sanitizers look at the same code, ten times slower: a part of the combinations is enough for them. */
static bool is_chosen(size_t model, bool best_tier, int32_t numerics, int32_t kv_dtype)
{
    if (kv_dtype == QWEN36_KV_I8 && (model != 2 || numerics != QWEN36_NUMERICS_FAST))
        return false;
#if defined(__SANITIZE_THREAD__)
    return model == 0 && best_tier && numerics == QWEN36_NUMERICS_REFERENCE;
#elif defined(__SANITIZE_ADDRESS__)
    return model != 1 && numerics == (model == 0 ? QWEN36_NUMERICS_REFERENCE : QWEN36_NUMERICS_FAST) &&
           (best_tier || model == 0);
#else
    (void)best_tier;
    return true;
#endif
}

static void with_setting(const char *name, int32_t tier, int32_t numerics, int32_t kv_dtype, law check)
{
    setting s = {.name = name, .options = test_model_options()};
    s.options.cpu_tier = tier;
    s.options.numerics = numerics;
    s.options.kv_dtype = kv_dtype;
    s.golden = test_golden_load(name);
    qwen36_model *model = test_model(test_checkpoint(name), &s.options);
    s.expected = run_plain(model, s.golden.tokens, 320);
    qwen36_model_release(model);
    check(&s);
    free(s.expected.logits);
    test_golden_free(&s.golden);
}

static void with_settings(const char *name, law check)
{
    static const struct {
        int32_t numerics, kv_dtype;
    } kinds[] = {{QWEN36_NUMERICS_REFERENCE, QWEN36_KV_AUTO},
                 {QWEN36_NUMERICS_FAST, QWEN36_KV_AUTO},
                 {QWEN36_NUMERICS_FAST, QWEN36_KV_I8}};
    int32_t tiers[4], count = test_tiers(tiers);
    require_equal_bits(name);
    for (size_t n = 0; n < QW_COUNT_OF(NAMES); n++)
        for (int32_t t = 0; t < count; t++)
            for (size_t k = 0; k < QW_COUNT_OF(kinds); k++)
                if (is_chosen(n, t == count - 1, kinds[k].numerics, kinds[k].kv_dtype))
                    with_setting(NAMES[n], tiers[t], kinds[k].numerics, kinds[k].kv_dtype, check);
}

static qwen36_model *open_model(const setting *s)
{
    return test_model(test_checkpoint(s->name), &s->options);
}

static void check_run(const setting *s, run r, const char *what)
{
    char text[128];
    snprintf(text, sizeof text, "%s tier %d numerics %d kv %d: %s", s->name, s->options.cpu_tier,
             s->options.numerics, s->options.kv_dtype, what);
    check_same(&s->expected, &r, text);
    free(r.logits);
}

/* ---- the laws ------------------------------------------------------------------------------------------ */

static void law_cut(const setting *s)
{
    static const int32_t budgets[] = {1, 2, 7, 63, 64, 65, 100};
    qwen36_model *model = open_model(s);
    for (size_t i = 0; i < QW_COUNT_OF(budgets); i++)
        check_run(s, run_plain(model, s->golden.tokens, budgets[i]), "budget");
    run r;
    qwen36_session *session = collecting_session(model, &r);
    for (size_t at = 0, piece = 1; at < TOKENS; at += piece, piece = piece * 3 % 41 + 1) {
        if (piece > TOKENS - at)
            piece = TOKENS - at;
        append(session, s->golden.tokens + at, piece);
        compute(session, 320);
    }
    decode(session, s->golden.tokens);
    qwen36_session_destroy(session);
    check_run(s, r, "uneven appends");
    qwen36_model_release(model);
}

TEST(laws, cut)
{
    with_settings("cut", law_cut);
}

enum { NEIGHBOURS = 15 };

/* The session of interest stands at `place` among 15 others with other tokens, at other points. */
static run run_among(qwen36_model *model, const setting *s, size_t place)
{
    run r;
    qwen36_session *all[NEIGHBOURS + 1];
    for (size_t i = 0; i <= NEIGHBOURS; i++) {
        all[i] = i == place ? collecting_session(model, &r) : test_session(model);
        if (i != place)
            CHECK_INT(qwen36_session_append(all[i], s->golden.tokens + 11 * i + 1, 5 * i + 1,
                                            QWEN36_LOGITS_LAST, NULL),
                      QWEN36_OK);
    }
    append(all[place], s->golden.tokens, TOKENS);
    qwen36_step_options options = {sizeof options, 90};
    for (int32_t decoded = 0; r.rows < ROWS;) {
        qwen36_status status = qwen36_step(all, NEIGHBOURS + 1, &options, NULL, NULL);
        CHECK(status == QWEN36_OK || status == QWEN36_PENDING);
        bool ready = qwen36_session_computed(all[place]) == qwen36_session_length(all[place]);
        if (ready && decoded < DECODED)
            append(all[place], s->golden.tokens + TOKENS + decoded++, 1);
        for (size_t i = 0; i <= NEIGHBOURS; i++)
            if (i != place && qwen36_session_computed(all[i]) == qwen36_session_length(all[i]))
                CHECK_INT(
                    qwen36_session_append(all[i], s->golden.tokens + i, 1 + i % 3, QWEN36_LOGITS_LAST, NULL),
                    QWEN36_OK);
    }
    for (size_t i = 0; i <= NEIGHBOURS; i++)
        qwen36_session_destroy(all[i]);
    return r;
}

static void law_batch(const setting *s)
{
    setting wide = *s;
    wide.options.max_sessions = NEIGHBOURS + 1;
    qwen36_model *model = open_model(&wide);
    check_run(s, run_among(model, s, 0), "first of 16");
    check_run(s, run_among(model, s, 7), "eighth of 16");
    check_run(s, run_among(model, s, NEIGHBOURS), "last of 16");
    qwen36_model_release(model);
}

TEST(laws, batch)
{
    with_settings("batch", law_batch);
}

static void law_threads(const setting *s)
{
    for (int32_t threads = 2; threads <= 3; threads++) {
        setting many = *s;
        many.options.threads = threads;
        qwen36_model *model = open_model(&many);
        check_run(s, run_plain(model, s->golden.tokens, 320), "threads");
        check_run(s, run_plain(model, s->golden.tokens, 50), "threads and cuts");
        qwen36_model_release(model);
    }
}

TEST(laws, threads)
{
    with_settings("threads", law_threads);
}

/* Rewinds to `length` and reads the rest again; only the rows behind are delivered anew. */
static run run_rewound(qwen36_model *model, const setting *s, int32_t length)
{
    run r;
    qwen36_session *session = collecting_session(model, &r);
    append(session, s->golden.tokens, TOKENS);
    compute(session, 320);
    CHECK_INT(qwen36_session_append(session, s->golden.tokens + 3, 20, QWEN36_LOGITS_NONE, NULL), QWEN36_OK);
    compute(session, 320);
    CHECK_INT(qwen36_session_rewind(session, (size_t)length, NULL), QWEN36_OK);
    r.rows = length;
    append(session, s->golden.tokens + length, (size_t)(TOKENS - length));
    compute(session, 320);
    decode(session, s->golden.tokens);
    qwen36_session_destroy(session);
    return r;
}

static void law_rewind(const setting *s)
{
    static const int32_t lengths[] = {0, 1, 63, 64, 65, 128, 139};
    qwen36_model *model = open_model(s);
    for (size_t i = 0; i < QW_COUNT_OF(lengths); i++)
        check_run(s, run_rewound(model, s, lengths[i]), "rewind");
    qwen36_model_release(model);
}

TEST(laws, rewind)
{
    with_settings("rewind", law_rewind);
}

#if defined(__x86_64__)
static void law_environment(const setting *s)
{
    setting many = *s;
    many.options.threads = 2;
    unsigned before = _mm_getcsr(),
             hostile = before | 0xa040; /* flush to zero, denormals are zero, round down */
    _mm_setcsr(hostile);
    qwen36_model *model = open_model(&many);
    run r = run_plain(model, s->golden.tokens, 320);
    CHECK_INT(_mm_getcsr() & 0xffc0, hostile & 0xffc0);
    _mm_setcsr(before);
    check_run(s, r, "environment");
    qwen36_model_release(model);
}

TEST(laws, environment)
{
    with_settings("environment", law_environment);
}
#endif

static void law_access(const setting *s)
{
    setting copied = *s;
    copied.options.weights_access = QWEN36_WEIGHTS_READ;
    qwen36_model *model = open_model(&copied);
    check_run(s, run_plain(model, s->golden.tokens, 320), "weights read");
    qwen36_model_release(model);
}

TEST(laws, access)
{
    with_settings("access", law_access);
}

/* Rows from `from` on; the others were not computed. */
static void check_tail(const setting *s, const run *r, int32_t from, const char *what)
{
    size_t row = sizeof(float) * (size_t)s->expected.vocab_size;
    CHECK_INT(r->rows, ROWS);
    for (int32_t i = from; i < ROWS; i++)
        CHECK_MSG(memcmp((const char *)s->expected.logits + (size_t)i * row,
                         (const char *)r->logits + (size_t)i * row, row) == 0,
                  "%s tier %d numerics %d: %s: row %d differs", s->name, s->options.cpu_tier,
                  s->options.numerics, what, i);
    free(r->logits);
}

static void continue_from(qwen36_session *session, const setting *s, run *r, int32_t at)
{
    r->rows = at;
    append(session, s->golden.tokens + at, (size_t)(TOKENS - at));
    compute(session, 320);
    decode(session, s->golden.tokens);
}

/* A stranger computes tokens that a later session begins with too. */
static void law_prefix(const setting *s)
{
    static const int32_t lengths[] = {65, 100, 128, 129, 139};
    qwen36_model *model = open_model(s);
    qwen36_session *first = test_session(model);
    CHECK_INT(qwen36_session_append(first, s->golden.tokens, 130, QWEN36_LOGITS_LAST, NULL), QWEN36_OK);
    compute(first, 320);
    qwen36_session_destroy(first);
    for (size_t i = 0; i < QW_COUNT_OF(lengths); i++) {
        run r;
        size_t reused = 0;
        qwen36_session *session = collecting_session(model, &r);
        CHECK_INT(qwen36_session_sync(session, s->golden.tokens, (size_t)lengths[i], &reused, NULL),
                  QWEN36_OK);
        CHECK_INT(reused, (lengths[i] - 1) / 64 * 64);
        compute(session, 320);
        continue_from(session, s, &r, lengths[i]);
        CHECK(qw_sessions_check(model));
        qwen36_session_destroy(session);
        check_tail(s, &r, lengths[i], "prefix");
    }
    qwen36_model_release(model);
}

TEST(laws, prefix)
{
    with_settings("prefix", law_prefix);
}

/* The session goes on elsewhere, in the same step or before; its fork continues as if alone. */
static void law_fork(const setting *s)
{
    static const int32_t lengths[] = {1, 63, 64, 65, 100, 128};
    qwen36_model *model = open_model(s);
    for (size_t i = 0; i < QW_COUNT_OF(lengths); i++) {
        run r, unused;
        qwen36_session *session = collecting_session(model, &unused), *fork = NULL;
        qwen36_session_options options;
        CHECK_INT(qwen36_session_options_init(model, &options, sizeof options), QWEN36_OK);
        options.on_logits = collect;
        options.user = &r;
        r = (run){0};
        append(session, s->golden.tokens, (size_t)lengths[i]);
        compute(session, 320);
        CHECK_INT(qwen36_session_fork(session, &options, &fork, NULL), QWEN36_OK);
        CHECK(qw_sessions_check(model));
        CHECK_INT(qwen36_session_append(session, s->golden.tokens + 7, 5, QWEN36_LOGITS_NONE, NULL),
                  QWEN36_OK);
        r.rows = lengths[i];
        append(fork, s->golden.tokens + lengths[i], 3);
        qwen36_session *both[2] = {session, fork};
        CHECK_INT(qwen36_step(both, 2, NULL, NULL, NULL), QWEN36_OK);
        CHECK(qw_sessions_check(model));
        qwen36_session_destroy(session);
        continue_from(fork, s, &r, lengths[i] + 3);
        CHECK(qw_sessions_check(model));
        qwen36_session_destroy(fork);
        free(unused.logits);
        check_tail(s, &r, lengths[i], "fork");
    }
    qwen36_model_release(model);
}

TEST(laws, fork)
{
    with_settings("fork", law_fork);
}

/* Saved at some point and restored in another process's model (another instance, here). */
static void law_restore(const setting *s)
{
    static const int32_t lengths[] = {1, 64, 65, 100, 128};
    qwen36_model *model = open_model(s), *other = open_model(s);
    for (size_t i = 0; i < QW_COUNT_OF(lengths); i++) {
        run unused, r = {0};
        size_t size = 0;
        qwen36_error error = QWEN36_ERROR_INIT;
        qwen36_restore_options options;
        qwen36_session_options session_options;
        qwen36_session *session = collecting_session(model, &unused), *restored = NULL;
        append(session, s->golden.tokens, (size_t)lengths[i]);
        compute(session, 320);
        append(session, s->golden.tokens + lengths[i], 2); /* pending */
        CHECK_INT(qwen36_session_save_memory(session, NULL, 0, &size, NULL), QWEN36_ERROR_BUFFER_TOO_SMALL);
        char *memory = malloc(size);
        CHECK_INT(qwen36_session_save_memory(session, memory, size, &size, &error), QWEN36_OK);
        qwen36_session_destroy(session);
        CHECK_INT(qwen36_session_options_init(other, &session_options, sizeof session_options), QWEN36_OK);
        session_options.on_logits = collect;
        session_options.user = &r;
        qwen36_restore_options_init(&options, sizeof options);
        options.session = &session_options;
        qwen36_status status =
            qwen36_session_restore_memory(other, memory, size, &options, &restored, &error);
        CHECK_MSG(status == QWEN36_OK, "%s", error.message);
        CHECK(qw_sessions_check(other));
        r.rows = lengths[i];
        compute(restored, 320);
        continue_from(restored, s, &r, lengths[i] + 2);
        CHECK(qw_sessions_check(other));
        qwen36_session_destroy(restored);
        free(unused.logits);
        free(memory);
        check_tail(s, &r, lengths[i], "restore");
    }
    qwen36_model_release(model);
    qwen36_model_release(other);
}

TEST(laws, restore)
{
    with_settings("restore", law_restore);
}

/* ---- failing and interrupted operations ---------------------------------------------------------------- */

/* Counts every op of the table and does something at the n-th. */
static struct {
    qw_ops ops;
    const qw_ops *inner;
    int32_t count, at;         /* at 0: never */
    qwen36_session *interrupt; /* NULL: fail instead */
} gate;

static qwen36_status pass_gate(void)
{
    gate.count++;
    if (gate.count != gate.at)
        return QWEN36_OK;
    if (gate.interrupt == NULL)
        return QWEN36_ERROR_DEVICE;
    qwen36_session_interrupt(gate.interrupt);
    return QWEN36_OK;
}

#define GATED(op, arguments)                                                                                 \
    static qwen36_status gated_##op(qw_backend *backend, arguments args)                                     \
    {                                                                                                        \
        qwen36_status status = pass_gate();                                                                  \
        return status == QWEN36_OK ? gate.inner->op(backend, args) : status;                                 \
    }
GATED(step_begin, const qw_batch *)
GATED(copy, const qw_copy_args *)
GATED(embed, const qw_embed_args *)
GATED(norm, const qw_norm_args *)
GATED(linear, const qw_linear_args *)
GATED(attn_prepare, const qw_attn_prepare_args *)
GATED(attention, const qw_attention_args *)
GATED(conv, const qw_conv_args *)
GATED(delta, const qw_delta_args *)
GATED(gated_norm, const qw_gated_norm_args *)
GATED(route, const qw_route_args *)
GATED(experts, const qw_experts_args *)
GATED(mlp, const qw_mlp_args *)
GATED(head, const qw_head_args *)
GATED(logprob, const qw_logprob_args *)
GATED(sample, qw_sample_args *)

static qwen36_status gated_step_end(qw_backend *backend)
{
    qwen36_status status = gate.inner->step_end(backend);
    return status == QWEN36_OK ? pass_gate() : status;
}

static qwen36_status open_gated(const qw_backend_config *config, qw_backend *out, qwen36_error *error)
{
    qwen36_status status = qw_cpu_backend_open(config, out, error);
    if (status != QWEN36_OK)
        return status;
    memset(&gate, 0, sizeof gate);
    gate.inner = out->ops;
    gate.ops = *out->ops;
#define GATE(op) gate.ops.op = gated_##op
    GATE(step_begin), GATE(step_end), GATE(copy), GATE(embed), GATE(norm), GATE(linear), GATE(attn_prepare);
    GATE(attention), GATE(conv), GATE(delta), GATE(gated_norm), GATE(route), GATE(experts), GATE(mlp);
    GATE(head), GATE(logprob), GATE(sample);
    out->ops = &gate.ops;
    return status;
}

/* A prefill in two steps and decodes, where the n-th op of the second prefill step or of the second decode
 * step goes wrong. Returns false when n is beyond the ops of that step. */
static bool run_disturbed(const setting *s, qwen36_model *model, int32_t n, bool interrupt, bool in_decode)
{
    run r;
    qwen36_error error = QWEN36_ERROR_INIT;
    qwen36_session *session = collecting_session(model, &r), *other = test_session(model);
    qwen36_session *both[2] = {session, other};
    append(session, s->golden.tokens, 70);
    compute(session, 320);
    append(session, s->golden.tokens + 70, TOKENS - 70);
    if (in_decode) {
        compute(session, 320);
        append(session, s->golden.tokens + TOKENS, 1);
    }
    CHECK_INT(qwen36_session_append(other, s->golden.tokens + 5, 9, QWEN36_LOGITS_LAST, NULL), QWEN36_OK);
    size_t computed = qwen36_session_computed(session);
    gate.count = 0;
    gate.at = n;
    gate.interrupt = interrupt ? session : NULL;
    qwen36_status status = qwen36_step(both, 2, NULL, NULL, &error);
    bool reached = gate.count >= n;
    gate.at = 0;
    if (reached) {
        CHECK_INT(status, interrupt ? QWEN36_INTERRUPTED : QWEN36_ERROR_DEVICE);
        CHECK_INT(qwen36_session_computed(session), computed);
        CHECK_INT(qwen36_session_computed(other), interrupt ? 9 : 0);
        CHECK(qw_index_pool_check(&model->cache.slots) && qw_index_pool_check(&model->cache.blocks));
    }
    status = qwen36_step(both, 2, NULL, NULL, &error);
    CHECK_MSG(status == QWEN36_OK, "op %d: %s", n, error.message);
    for (int32_t i = in_decode; i < DECODED; i++) {
        append(session, s->golden.tokens + TOKENS + i, 1);
        compute(session, 1);
    }
    qwen36_session_destroy(session);
    qwen36_session_destroy(other);
    check_run(s, r, interrupt ? "interrupted" : "failed op");
    return reached;
}

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
enum { STRIDE = 5 };
#else
enum { STRIDE = 1 }; /* every op */
#endif

static void disturb(const setting *s, bool interrupt)
{
    if (s->options.numerics != QWEN36_NUMERICS_REFERENCE)
        return; /* the same code; the tiers' kernels are not the subject here */
    qwen36_error error = QWEN36_ERROR_INIT;
    qwen36_model *model = NULL;
    qwen36_status status = qw_model_open(test_checkpoint(s->name), &s->options, open_gated, &model, &error);
    CHECK_MSG(status == QWEN36_OK, "%s", error.message);
    for (int in_decode = 0; in_decode < 2; in_decode++) {
        int32_t n = 1;
        while (run_disturbed(s, model, n, interrupt, in_decode != 0))
            n += STRIDE;
        CHECK_MSG(n > 40, "only %d ops", n); /* of eight layers */
    }
    qwen36_model_release(model);
}

static void law_failure(const setting *s)
{
    disturb(s, false);
}

static void law_interrupt(const setting *s)
{
    disturb(s, true);
}

TEST(laws, failure)
{
    with_settings("failure", law_failure);
}

TEST(laws, interrupt)
{
    with_settings("interrupt", law_interrupt);
}
