/* The laws of docs/numerics.md: two ways of computing the same tokens agree as its table says. Every law is
 * checked on every tier of this machine, in both numerics settings, on small models of each kind. */
#include "lib/api/api.h"
#include "tests/harness.h"
#include "tests/unit/checkpoint.h"
#include "tests/unit/law_table.h"
#include "tests/unit/op_gate.h"

#include <math.h>
#include <pthread.h>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

enum { TOKENS = 160, DECODED = 6, ROWS = TOKENS + DECODED };

static const char *const NAMES[] = {"moe", "dense_tied", "odd"};

/* ---- the table ----------------------------------------------------------------------------------------- */

/* What reads the table and applies a bound must be able to say no. */
TEST(laws, table_is_read)
{
    static const char table[] =
        "x\n| cut: a | equal bits | 1e-6 / 2e-2 | equal bits |\n| odd: b | equal | 2 / 3 | 1 |\n"
        "| short: c | equal bits |\n";
    static const float row[] = {1, -8, 3}, near[] = {1.0625F, -8, 3}, far[] = {2, -8, 3},
                       none[] = {1, -8, NAN};
    double bound[2];
    CHECK(law_table_read(table, "cut", LAW_CPU, bound) && bound[0] == 0 && bound[1] == 0);
    CHECK(law_table_read(table, "cut", LAW_CUDA, bound) && bound[0] == 1e-6 && bound[1] == 2e-2);
    CHECK(law_table_read(table, "cut", LAW_CUDA_INVARIANT, bound) && bound[0] == 0 && bound[1] == 0);
    for (int column = 0; column < LAW_COLUMNS; column++) {
        CHECK(!law_table_read(table, "odd", column, bound));
        CHECK(!law_table_read(table, "none", column, bound));
    }
    CHECK(!law_table_read(table, "short", LAW_CUDA, bound));
    CHECK(law_rows_agree(row, row, 3, 0) && !law_rows_agree(near, row, 3, 0));
    CHECK(law_rows_agree(near, row, 3, 2e-2) && !law_rows_agree(far, row, 3, 2e-2));
    CHECK(!law_rows_agree(none, row, 3, 2e-2) && !law_rows_agree(row, none, 3, 2e-2));
}

/* ---- runs ---------------------------------------------------------------------------------------------- */

/* The rows of each step over the first TOKENS tokens; what they leave is one more. */
typedef struct cuts {
    int32_t count, rows[TOKENS];
} cuts;

typedef struct run {
    int32_t vocab_size, rows;
    float *logits; /* [ROWS][vocab_size] */
    cuts cut;      /* as it was computed */
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

/* Nothing is known of the same tokens in other cuts, where these change bits. */
static void forget(qwen36_model *model)
{
    if (strcmp(qwen36_backend_name(), "cpu") != 0)
        CHECK_INT(qwen36_model_clear_cache(model, NULL), QWEN36_OK);
}

static qwen36_session *fresh_session(qwen36_model *model, run *r)
{
    forget(model);
    return collecting_session(model, r);
}

static void append(qwen36_session *session, const int32_t *tokens, size_t count)
{
    CHECK_INT(qwen36_session_append(session, tokens, count, QWEN36_LOGITS_ALL, NULL), QWEN36_OK);
}

/* The session stood at `before`. */
static void note_step(run *r, const qwen36_session *session, size_t before)
{
    const size_t after = qwen36_session_computed(session);
    if (after > before && after <= TOKENS)
        r->cut.rows[r->cut.count++] = (int32_t)(after - before);
}

/* Steps with a row budget until everything is computed. */
static void compute(qwen36_session *session, int32_t budget, run *r)
{
    qwen36_error error = QWEN36_ERROR_INIT;
    qwen36_step_options options = {sizeof options, budget};
    qwen36_status status;
    do {
        const size_t before = qwen36_session_computed(session);
        status = qwen36_step(&session, 1, &options, NULL, &error);
        note_step(r, session, before);
    } while (status == QWEN36_PENDING);
    CHECK_MSG(status == QWEN36_OK, "%s", error.message);
}

static void decode(qwen36_session *session, const int32_t *tokens, run *r)
{
    for (int32_t i = 0; i < DECODED; i++) {
        append(session, tokens + TOKENS + i, 1);
        compute(session, 1, r);
    }
}

static run run_plain(qwen36_model *model, const int32_t *tokens, int32_t budget)
{
    run r;
    qwen36_session *session = fresh_session(model, &r);
    append(session, tokens, TOKENS);
    compute(session, budget, &r);
    decode(session, tokens, &r);
    qwen36_session_destroy(session);
    return r;
}

static run run_cut(qwen36_model *model, const int32_t *tokens, const cuts *c)
{
    run r;
    int32_t at = 0;
    qwen36_session *session = fresh_session(model, &r);
    for (int32_t i = 0; at < TOKENS; at += i < c->count ? c->rows[i] : TOKENS - at, i++) {
        append(session, tokens + at, (size_t)(i < c->count ? c->rows[i] : TOKENS - at));
        compute(session, TOKENS, &r);
    }
    decode(session, tokens, &r);
    qwen36_session_destroy(session);
    return r;
}

/* ---- every model, tier and setting --------------------------------------------------------------------- */

typedef struct setting {
    const char *name;
    qwen36_model_options options;
    double bound, cut_bound; /* of the law under test, and of the law of cuts; 0: equal bits */
    test_golden golden;
    run expected; /* one prefill, one thread, alone */
} setting;

typedef void (*law)(const setting *s);

/* The largest deviation that a law with a bound has met, by numerics. */
static double worst[QWEN36_NUMERICS_FAST + 1];

static qwen36_model *open_model(const setting *s)
{
    return test_model(test_checkpoint(s->name), &s->options);
}

/* Rows from `from` on. Returns the largest deviation. */
static double compare(const setting *s, const run *a, const run *b, int32_t from, double bound,
                      const char *what)
{
    double most = 0;
    CHECK_INT(a->rows, ROWS);
    CHECK_INT(b->rows, ROWS);
    for (int32_t i = from; i < ROWS; i++) {
        const float *x = a->logits + (int64_t)i * a->vocab_size, *y = b->logits + (int64_t)i * a->vocab_size;
        const double d = bound > 0 ? test_deviation(x, y, a->vocab_size) : 0;
        CHECK_MSG(law_rows_agree(x, y, a->vocab_size, bound),
                  "%s tier %d numerics %d kv %d invariant %d: %s: row %d differs by %g, not %g", s->name,
                  s->options.cpu_tier, s->options.numerics, s->options.kv_dtype, s->options.batch_invariant,
                  what, i, test_deviation(x, y, a->vocab_size), bound);
        most = fmax(most, d);
    }
    return most;
}

/* As the law under test says. */
static void check_law(const setting *s, const run *a, const run *b, int32_t from, const char *what)
{
    double *most = &worst[s->options.numerics];
    *most = fmax(*most, compare(s, a, b, from, s->bound, what));
}

static void check_run(const setting *s, run r, const char *what)
{
    check_law(s, &r, &s->expected, 0, what);
    free(r.logits);
}

/* Against a session that is alone and cuts its tokens in the same way; where cuts change nothing, one prefill
 * is as good. */
static void check_like(const setting *s, run r, int32_t from, const char *what)
{
    if (s->cut_bound == 0) {
        check_law(s, &r, &s->expected, from, what);
    } else {
        qwen36_model *model = open_model(s);
        run alone = run_cut(model, s->golden.tokens, &r.cut);
        check_law(s, &r, &alone, from, what);
        compare(s, &alone, &s->expected, 0, s->cut_bound, "cut so");
        free(alone.logits);
        qwen36_model_release(model);
    }
    free(r.logits);
}

/* The cache in 8 bits is one more setting: FAST, on the model whose sizes are multiples of nothing. */
typedef struct kind {
    int32_t numerics, kv_dtype, batch_invariant;
} kind;

static const kind kinds[] = {
    {QWEN36_NUMERICS_REFERENCE, QWEN36_KV_AUTO, 0}, {QWEN36_NUMERICS_FAST, QWEN36_KV_AUTO, 0},
    {QWEN36_NUMERICS_FAST, QWEN36_KV_I8, 0},        {QWEN36_NUMERICS_REFERENCE, QWEN36_KV_AUTO, 1},
    {QWEN36_NUMERICS_FAST, QWEN36_KV_AUTO, 1},      {QWEN36_NUMERICS_FAST, QWEN36_KV_I8, 1},
};

/* Sanitizers look at the same code, ten times slower, and a pretended device is slower still: a part of the
 * combinations is enough for them. */
static bool is_chosen(size_t model, bool best_tier, const kind *k)
{
    if (k->batch_invariant != 0 && strcmp(qwen36_backend_name(), "cpu") == 0)
        return false; /* there nothing depends on the batch */
    if (k->kv_dtype == QWEN36_KV_I8 && (model != 2 || k->numerics != QWEN36_NUMERICS_FAST))
        return false;
    if (test_is_slow_backend())
        return k->kv_dtype == QWEN36_KV_I8 ? k->batch_invariant != 0 : model == 0;
#if defined(__SANITIZE_THREAD__)
    return model == 0 && best_tier && k->numerics == QWEN36_NUMERICS_REFERENCE;
#elif defined(__SANITIZE_ADDRESS__)
    return model != 1 && k->numerics == (model == 0 ? QWEN36_NUMERICS_REFERENCE : QWEN36_NUMERICS_FAST) &&
           (best_tier || model == 0);
#else
    (void)best_tier;
    return true;
#endif
}

static void with_setting(const char *name, const char *law_name, int32_t tier, const kind *k, law check)
{
    setting s = {.name = name, .options = test_model_options()};
    s.options.cpu_tier = tier;
    s.options.numerics = k->numerics;
    s.options.kv_dtype = k->kv_dtype;
    s.options.batch_invariant = k->batch_invariant;
    s.options.prefix_reuse = k->batch_invariant == 0; /* bits that others computed are the law of prefixes */
    s.bound = law_bound(law_name, &s.options);
    s.cut_bound = law_bound("cut", &s.options);
    s.golden = test_golden_load(name);
    qwen36_model *model = open_model(&s);
    s.expected = run_plain(model, s.golden.tokens, 320);
    qwen36_model_release(model);
    check(&s);
    free(s.expected.logits);
    test_golden_free(&s.golden);
}

/* A bound that nothing comes near says nothing. */
static void check_tightness(const char *name)
{
    bool tight = true;
    for (int32_t numerics = QWEN36_NUMERICS_REFERENCE; numerics <= QWEN36_NUMERICS_FAST; numerics++) {
        qwen36_model_options options = test_model_options();
        options.numerics = numerics;
        const double bound = law_bound(name, &options), most = worst[numerics];
        if (bound > 0)
            fprintf(stderr, "%s, numerics %d: deviates by at most %.3g of %g\n", name, numerics, most, bound);
        tight = tight && (most == 0 || 5 * most >= bound);
    }
    CHECK_MSG(tight, "the bounds of '%s' are far from what it meets", name);
}

static void with_settings(const char *name, law check)
{
    int32_t tiers[4], count = test_tiers(tiers);
    memset(worst, 0, sizeof worst);
    for (size_t n = 0; n < QW_COUNT_OF(NAMES); n++)
        for (int32_t t = 0; t < count; t++)
            for (size_t k = 0; k < QW_COUNT_OF(kinds); k++)
                if (is_chosen(n, t == count - 1, &kinds[k]))
                    with_setting(NAMES[n], name, tiers[t], &kinds[k], check);
    check_tightness(name);
}

/* ---- the laws ------------------------------------------------------------------------------------------ */

static void law_cut(const setting *s)
{
    static const int32_t budgets[] = {7, 1, 2, 64, 50, 63, 100, 65};
    qwen36_model *model = open_model(s);
    for (size_t i = 0; i < QW_COUNT_OF(budgets); i += test_stride())
        check_run(s, run_plain(model, s->golden.tokens, budgets[i]), "budget");
    cuts uneven = {0};
    for (int32_t at = 0, piece = 1; at + piece < TOKENS; at += piece, piece = piece * 3 % 41 + 1)
        uneven.rows[uneven.count++] = piece;
    check_run(s, run_cut(model, s->golden.tokens, &uneven), "uneven appends");
    qwen36_model_release(model);
}

TEST(laws, cut)
{
    with_settings("cut", law_cut);
}

static void law_blocks(const setting *s)
{
    static const cuts at[] = {{1, {64}}, {1, {128}}, {2, {64, 64}}};
    qwen36_model *model = open_model(s);
    for (size_t i = 0; i < QW_COUNT_OF(at); i += test_stride())
        check_run(s, run_cut(model, s->golden.tokens, &at[i]), "at multiples of a block");
    qwen36_model_release(model);
}

TEST(laws, blocks)
{
    with_settings("blocks", law_blocks);
}

enum { NEIGHBOURS = 15 };

static void feed_neighbours(qwen36_session **all, const setting *s, size_t place)
{
    for (size_t i = 0; i <= NEIGHBOURS; i++)
        if (i != place && qwen36_session_computed(all[i]) == qwen36_session_length(all[i]))
            CHECK_INT(
                qwen36_session_append(all[i], s->golden.tokens + i, 1 + i % 3, QWEN36_LOGITS_LAST, NULL),
                QWEN36_OK);
}

/* The session of interest stands at `place` among 15 others with other tokens, at other points. */
static run run_among(qwen36_model *model, const setting *s, size_t place)
{
    run r;
    qwen36_session *all[NEIGHBOURS + 1];
    for (size_t i = 0; i <= NEIGHBOURS; i++) {
        all[i] = i == place ? fresh_session(model, &r) : test_session(model);
        if (i != place)
            CHECK_INT(qwen36_session_append(all[i], s->golden.tokens + 11 * i + 1, 5 * i + 1,
                                            QWEN36_LOGITS_LAST, NULL),
                      QWEN36_OK);
    }
    append(all[place], s->golden.tokens, TOKENS);
    qwen36_step_options options = {sizeof options, 90};
    for (int32_t decoded = 0; r.rows < ROWS;) {
        const size_t before = qwen36_session_computed(all[place]);
        qwen36_status status = qwen36_step(all, NEIGHBOURS + 1, &options, NULL, NULL);
        CHECK(status == QWEN36_OK || status == QWEN36_PENDING);
        note_step(&r, all[place], before);
        bool ready = qwen36_session_computed(all[place]) == qwen36_session_length(all[place]);
        if (ready && decoded < DECODED)
            append(all[place], s->golden.tokens + TOKENS + decoded++, 1);
        feed_neighbours(all, s, place);
    }
    for (size_t i = 0; i <= NEIGHBOURS; i++)
        qwen36_session_destroy(all[i]);
    return r;
}

static void law_batch(const setting *s)
{
    static const size_t places[] = {0, 7, NEIGHBOURS};
    setting wide = *s;
    wide.options.max_sessions = NEIGHBOURS + 1;
    qwen36_model *model = open_model(&wide);
    for (size_t i = 0; i < QW_COUNT_OF(places); i += test_stride())
        check_like(s, run_among(model, s, places[i]), 0, "one of 16");
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
        check_like(s, run_plain(model, s->golden.tokens, 50), 0, "threads and cuts");
        qwen36_model_release(model);
    }
}

TEST(laws, threads)
{
    with_settings("threads", law_threads);
}

/* Rewinds to `length` and reads the rest again, in two pieces; only the rows behind are delivered anew. */
static run run_rewound(qwen36_model *model, const setting *s, int32_t length)
{
    run r;
    qwen36_session *session = fresh_session(model, &r);
    append(session, s->golden.tokens, TOKENS);
    compute(session, 320, &r);
    CHECK_INT(qwen36_session_append(session, s->golden.tokens + 3, 20, QWEN36_LOGITS_NONE, NULL), QWEN36_OK);
    compute(session, 320, &r);
    CHECK_INT(qwen36_session_rewind(session, (size_t)length, NULL), QWEN36_OK);
    const int32_t kept = (int32_t)qwen36_session_computed(session);
    r.cut = (cuts){kept > 0, {kept}};
    r.rows = length;
    append(session, s->golden.tokens + length, 2);
    compute(session, 320, &r);
    append(session, s->golden.tokens + length + 2, (size_t)(TOKENS - length - 2));
    compute(session, 320, &r);
    decode(session, s->golden.tokens, &r);
    qwen36_session_destroy(session);
    return r;
}

static void law_rewind(const setting *s)
{
    static const int32_t lengths[] = {0, 1, 63, 64, 65, 128, 139};
    qwen36_model *model = open_model(s);
    for (size_t i = 0; i < QW_COUNT_OF(lengths); i += test_stride())
        check_like(s, run_rewound(model, s, lengths[i]), lengths[i], "rewind");
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

static void continue_from(qwen36_session *session, const setting *s, run *r, int32_t at)
{
    r->rows = at;
    append(session, s->golden.tokens + at, (size_t)(TOKENS - at));
    compute(session, 320, r);
    decode(session, s->golden.tokens, r);
}

/* A stranger computes tokens that a later session begins with too. */
static void law_prefix(const setting *s)
{
    static const int32_t lengths[] = {65, 100, 128, 129, 139};
    setting sharing = *s;
    sharing.options.prefix_reuse = 1;
    qwen36_model *model = open_model(&sharing);
    qwen36_session *first = test_session(model);
    CHECK_INT(qwen36_session_append(first, s->golden.tokens, 130, QWEN36_LOGITS_LAST, NULL), QWEN36_OK);
    test_compute(first);
    qwen36_session_destroy(first);
    for (size_t i = 0; i < QW_COUNT_OF(lengths); i += test_stride()) {
        run r;
        size_t reused = 0;
        qwen36_session *session = collecting_session(model, &r);
        CHECK_INT(qwen36_session_sync(session, s->golden.tokens, (size_t)lengths[i], &reused, NULL),
                  QWEN36_OK);
        CHECK_INT(reused, (lengths[i] - 1) / 64 * 64);
        r.cut = (cuts){1, {(int32_t)reused}};
        compute(session, 320, &r);
        continue_from(session, s, &r, lengths[i]);
        CHECK(qw_sessions_check(model));
        qwen36_session_destroy(session);
        check_like(s, r, lengths[i], "prefix");
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
    for (size_t i = 0; i < QW_COUNT_OF(lengths); i += test_stride()) {
        run r, unused;
        qwen36_session *session = fresh_session(model, &unused), *fork = NULL;
        qwen36_session_options options;
        CHECK_INT(qwen36_session_options_init(model, &options, sizeof options), QWEN36_OK);
        options.on_logits = collect;
        options.user = &r;
        r = (run){0};
        append(session, s->golden.tokens, (size_t)lengths[i]);
        compute(session, 320, &r);
        CHECK_INT(qwen36_session_fork(session, &options, &fork, NULL), QWEN36_OK);
        CHECK(qw_sessions_check(model));
        CHECK_INT(qwen36_session_append(session, s->golden.tokens + 7, 9, QWEN36_LOGITS_NONE, NULL),
                  QWEN36_OK);
        r.rows = lengths[i];
        append(fork, s->golden.tokens + lengths[i], 3);
        qwen36_session *both[2] = {session, fork};
        CHECK_INT(qwen36_step(both, 2, NULL, NULL, NULL), QWEN36_OK);
        note_step(&r, fork, (size_t)lengths[i]);
        CHECK(qw_sessions_check(model));
        qwen36_session_destroy(session);
        continue_from(fork, s, &r, lengths[i] + 3);
        CHECK(qw_sessions_check(model));
        qwen36_session_destroy(fork);
        free(unused.logits);
        check_like(s, r, lengths[i], "fork");
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
    for (size_t i = 0; i < QW_COUNT_OF(lengths); i += test_stride()) {
        run unused, r = {0};
        size_t size = 0;
        qwen36_error error = QWEN36_ERROR_INIT;
        qwen36_restore_options options;
        qwen36_session_options session_options;
        qwen36_session *session = fresh_session(model, &unused), *restored = NULL;
        append(session, s->golden.tokens, (size_t)lengths[i]);
        compute(session, 320, &r);
        append(session, s->golden.tokens + lengths[i], 2); /* pending */
        CHECK_INT(qwen36_session_save_memory(session, NULL, 0, &size, NULL), QWEN36_ERROR_BUFFER_TOO_SMALL);
        char *memory = malloc(size);
        CHECK_INT(qwen36_session_save_memory(session, memory, size, &size, &error), QWEN36_OK);
        qwen36_session_destroy(session);
        forget(other);
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
        compute(restored, 320, &r);
        continue_from(restored, s, &r, lengths[i] + 2);
        CHECK(qw_sessions_check(other));
        qwen36_session_destroy(restored);
        free(unused.logits);
        free(memory);
        check_like(s, r, lengths[i], "restore");
    }
    qwen36_model_release(model);
    qwen36_model_release(other);
}

TEST(laws, restore)
{
    with_settings("restore", law_restore);
}

/* ---- failing and interrupted operations ---------------------------------------------------------------- */

static void check_disturbed_step(qwen36_session *session, qwen36_session *other, qwen36_status status,
                                 size_t computed, bool interrupt)
{
    CHECK_INT(status, interrupt ? QWEN36_INTERRUPTED : QWEN36_ERROR_DEVICE);
    CHECK_INT(qwen36_session_computed(session), computed);
    CHECK_INT(qwen36_session_computed(other), interrupt ? 9 : 0);
    CHECK(qw_sessions_check(session->model));
}

/* A prefill in two steps and decodes, beside another session, where the n-th op of the second prefill step or
 * of the second decode step goes wrong; 0: none does. Returns whether that step has so many ops. */
static bool run_disturbed(const setting *s, qwen36_model *model, int32_t n, bool interrupt, bool in_decode,
                          run *r)
{
    qwen36_error error = QWEN36_ERROR_INIT;
    qwen36_session *session = fresh_session(model, r), *other = test_session(model);
    qwen36_session *both[2] = {session, other};
    append(session, s->golden.tokens, 70);
    compute(session, 320, r);
    append(session, s->golden.tokens + 70, TOKENS - 70);
    if (in_decode) {
        compute(session, 320, r);
        append(session, s->golden.tokens + TOKENS, 1);
    }
    CHECK_INT(qwen36_session_append(other, s->golden.tokens + 5, 9, QWEN36_LOGITS_LAST, NULL), QWEN36_OK);
    size_t computed = qwen36_session_computed(session);
    op_gate.count = 0;
    op_gate.at = n;
    op_gate.interrupt = interrupt ? session : NULL;
    qwen36_status status = qwen36_step(both, 2, NULL, NULL, &error);
    bool reached = op_gate.count >= n;
    op_gate.at = 0;
    if (reached && n > 0)
        check_disturbed_step(session, other, status, computed, interrupt);
    status = qwen36_step(both, 2, NULL, NULL, &error);
    CHECK_MSG(status == QWEN36_OK, "op %d: %s", n, error.message);
    for (int32_t i = in_decode; i < DECODED; i++) {
        append(session, s->golden.tokens + TOKENS + i, 1);
        compute(session, 1, r);
    }
    r->cut = (cuts){1, {70}};
    qwen36_session_destroy(session);
    qwen36_session_destroy(other);
    return reached;
}

/* Every op, where that costs little. */
static int32_t stride(void)
{
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
    return 5;
#else
    return test_is_slow_backend() ? 17 : 1;
#endif
}

static void disturb_step(const setting *s, qwen36_model *model, bool interrupt, bool in_decode)
{
    run undisturbed, r;
    int32_t n = 1;
    run_disturbed(s, model, 0, interrupt, in_decode, &undisturbed);
    for (bool reached = true; reached; n += stride()) {
        reached = run_disturbed(s, model, n, interrupt, in_decode, &r);
        check_law(s, &r, &undisturbed, 0, interrupt ? "interrupted" : "failed op");
        free(r.logits);
    }
    CHECK_MSG(n > 40, "only %d ops", n); /* of eight layers */
    compare(s, &undisturbed, &s->expected, 0, law_bound("cut", &s->options), "undisturbed");
    free(undisturbed.logits);
}

static void disturb(const setting *s, bool interrupt)
{
    if (s->options.numerics != QWEN36_NUMERICS_REFERENCE && s->bound == 0)
        return; /* the same code; the kernels are not the subject here */
    qwen36_error error = QWEN36_ERROR_INIT;
    qwen36_model *model = NULL;
    qwen36_status status = qw_model_open(test_checkpoint(s->name), &s->options, op_gate_open, &model, &error);
    CHECK_MSG(status == QWEN36_OK, "%s", error.message);
    disturb_step(s, model, interrupt, false);
    disturb_step(s, model, interrupt, true);
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

/* A token, whose step fails at the n-th op first, n being one more for each token; without `fails` the same
 * tokens. */
static run run_failing_decode(const setting *s, qwen36_model *model, bool fails)
{
    run r;
    qwen36_session *session = fresh_session(model, &r);
    append(session, s->golden.tokens, ROWS - 130);
    compute(session, 320, &r);
    for (int32_t n = 1; r.rows < ROWS; n++) {
        append(session, s->golden.tokens + r.rows, 1);
        op_gate.count = 0;
        op_gate.at = fails ? n : 0;
        op_gate.interrupt = NULL;
        const qwen36_status status = qwen36_step(&session, 1, NULL, NULL, NULL);
        CHECK_INT(status, fails && op_gate.count >= n ? QWEN36_ERROR_DEVICE : QWEN36_OK);
        op_gate.at = 0;
        compute(session, 1, &r);
    }
    CHECK(!fails || op_gate.count < 130); /* each of them has failed */
    qwen36_session_destroy(session);
    return r;
}

TEST(laws, every_op_of_decode_fails)
{
    setting s = {.name = "moe", .options = test_model_options()};
    qwen36_model *model = NULL;
    s.golden = test_golden_load(s.name);
    s.bound = law_bound("failure", &s.options);
    CHECK_INT(qw_model_open(test_checkpoint(s.name), &s.options, op_gate_open, &model, NULL), QWEN36_OK);
    run expected = run_failing_decode(&s, model, false), r = run_failing_decode(&s, model, true);
    check_law(&s, &r, &expected, 0, "every op");
    free(expected.logits);
    free(r.logits);
    qwen36_model_release(model);
    test_golden_free(&s.golden);
}
