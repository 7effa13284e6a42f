/* Random operations on many sessions of a model with little memory, in two namespaces, some of them failing.
 *
 * The truth is a plain list of tokens per session with what is wanted of each. What the logits after a list
 * are says a judge, which reuses nothing and computes each list from its begin. After every operation all
 * invariants hold, and every row that a session has or delivers is the judge's. QWEN36_TEST_SEED chooses
 * other operations.
 */
#include "lib/api/api.h"
#include "tests/harness.h"
#include "tests/unit/checkpoint.h"
#include "tests/unit/interpose.h"
#include "tests/unit/row_judge.h"

#if defined(__SANITIZE_THREAD__) /* one thread: not the subject here */
enum { LONG_RUN = 200, SHORT_RUN = 100 };
#elif defined(__SANITIZE_ADDRESS__)
enum { LONG_RUN = 1000, SHORT_RUN = 300 };
#else
enum { LONG_RUN = 10000, SHORT_RUN = 5000 };
#endif

enum { SLOW_RUN = 200, SESSIONS = 64, CONTEXT = 200, ROWS = CONTEXT, TEMPLATES = 4 };
enum { NO, YES, UNKNOWN };

typedef struct truth {
    qwen36_session *session; /* NULL: nobody has this place */
    int32_t length, capacity;
    int32_t tokens[CONTEXT];
    uint8_t last[CONTEXT]; /* whether the logits after this token are to be kept */
    bool row[CONTEXT];     /* whether the callback waits for them */
    bool interrupted;
    uint64_t space;
    int32_t style; /* template that its tokens follow */
} truth;

static struct {
    uint64_t random;
    long number;    /* of the operation under way */
    int32_t places; /* sessions that may exist */
    test_allocator memory;
    qwen36_model *model;
    interposer between;
    int32_t vocab_size;
    int32_t templates[TEMPLATES][CONTEXT];
    truth all[SESSIONS];
    bool disturbs; /* callbacks interrupt sessions */

    row_judge judge;
    long full, reused, forks, restores, devices;
} w;

static int32_t draw(int32_t below)
{
    w.random = w.random * 6364136223846793005u + 1442695040888963407u;
    return (int32_t)((w.random >> 33) % (uint64_t)below);
}

static bool chance(int32_t one_in)
{
    return draw(one_in) == 0;
}

/* ---- the truth ----------------------------------------------------------------------------------------- */

static void check_row(const int32_t *tokens, int32_t count, const float *logits, const char *what)
{
    CHECK_MSG(row_judge_agrees(&w.judge, tokens, count, logits), "operation %ld: %s after %d tokens differ",
              w.number, what, count);
}

static int32_t computed(const truth *t)
{
    return (int32_t)qwen36_session_computed(t->session);
}

/* Also interrupts somebody now and then, and tries what is refused inside a step. */
static void hear(void *user, qwen36_session *session, int32_t position, const float *logits,
                 int32_t vocab_size)
{
    truth *t = user;
    (void)vocab_size;
    CHECK(t->session == session && position < t->length);
    CHECK_MSG(t->row[position], "operation %ld: row %d was not wanted", w.number, position);
    for (int32_t i = computed(t); i < position; i++)
        CHECK_MSG(!t->row[i], "operation %ld: row %d comes before row %d", w.number, position, i);
    t->row[position] = false;
    check_row(t->tokens, position + 1, logits, "delivered logits");
    truth *other = &w.all[draw(w.places)];
    if (w.disturbs && chance(40) && other->session != NULL) {
        qwen36_session *fork = NULL;
        CHECK_INT(qwen36_session_fork(other->session, NULL, &fork, NULL), QWEN36_ERROR_BUSY);
        CHECK_INT(qwen36_session_rewind(other->session, 0, NULL), QWEN36_ERROR_BUSY);
        qwen36_session_interrupt(other->session);
        other->interrupted = true;
    }
}

/* The session's tokens, counts and logits are as the truth says. */
static void check_truth(const truth *t)
{
    int32_t read[CONTEXT], done = computed(t);
    const float *logits = NULL;
    CHECK_MSG((int32_t)qwen36_session_length(t->session) == t->length && done <= t->length, "operation %ld",
              w.number);
    CHECK_INT(qwen36_session_tokens(t->session, 0, (size_t)t->length, read, NULL), QWEN36_OK);
    CHECK_MSG(memcmp(read, t->tokens, sizeof *read * (size_t)t->length) == 0, "operation %ld", w.number);
    for (int32_t i = 0; i < done; i++)
        CHECK_MSG(!t->row[i], "operation %ld: row %d was skipped", w.number, i);
    bool has = qwen36_session_logits(t->session, &logits, NULL, NULL) == QWEN36_OK;
    if (has)
        check_row(t->tokens, done, logits, "logits");
    if (done == t->length && done > 0 && t->last[done - 1] != UNKNOWN)
        CHECK_MSG(has == (t->last[done - 1] == YES), "operation %ld: %s logits after %d tokens", w.number,
                  has ? "unwanted" : "no", done);
}

static truth *free_place(void)
{
    int32_t from = draw(w.places);
    for (int32_t i = 0; i < w.places; i++)
        if (w.all[(from + i) % w.places].session == NULL)
            return &w.all[(from + i) % w.places];
    return NULL;
}

static truth *somebody(void)
{
    int32_t from = draw(w.places);
    for (int32_t i = 0; i < w.places; i++)
        if (w.all[(from + i) % w.places].session != NULL)
            return &w.all[(from + i) % w.places];
    return NULL;
}

/* Near the edges of blocks and near the end more often than elsewhere. */
static int32_t draw_length(int32_t most)
{
    int32_t edge = draw(4) * QW_KV_BLOCK + draw(5) - 2;
    if (chance(4))
        return most - draw(QW_MIN(most + 1, 20));
    return edge >= 0 && edge <= most && chance(2) ? edge : draw(most + 1);
}

/* The beginning of a template, and from some point on another one. */
static int32_t draw_list(int32_t *tokens, int32_t most)
{
    static const int32_t seams[] = {40, 64, 128, 150, CONTEXT, CONTEXT, CONTEXT, CONTEXT};
    int32_t count = draw_length(most), seam = seams[draw((int32_t)QW_COUNT_OF(seams))];
    int32_t first = draw(TEMPLATES), second = draw(TEMPLATES);
    for (int32_t i = 0; i < count; i++)
        tokens[i] = w.templates[i < seam ? first : second][i];
    return count;
}

/* ---- operations ---------------------------------------------------------------------------------------- */

static qwen36_session_options options_for(truth *t, int32_t capacity)
{
    return (qwen36_session_options){.struct_size = sizeof(qwen36_session_options),
                                    .context_length = capacity,
                                    .on_logits = hear,
                                    .user = t,
                                    .prefix_space = chance(4)};
}

/* A place for a session that is not to come about, when all are taken. */
static truth nowhere;

/* Greedy, so that timelines meet again. */
static void enter(truth *t, qwen36_session *session, const qwen36_session_options *options)
{
    const qwen36_sampling greedy = qw_sampling_plain();
    CHECK_INT(qwen36_session_set_sampling(session, &greedy, NULL), QWEN36_OK);
    *t = (truth){.session = session,
                 .capacity = options->context_length,
                 .space = options->prefix_space,
                 .style = draw(TEMPLATES)};
}

/* Creating fails when there is no place, or when memory fails. */
static void create_with(long fail_at)
{
    truth *t = free_place();
    qwen36_session *session = NULL;
    qwen36_session_options options =
        options_for(t != NULL ? t : &nowhere, chance(3) ? 1 + draw(CONTEXT) : CONTEXT);
    long outstanding = w.memory.outstanding;
    w.memory.fail_at = fail_at > 0 ? w.memory.allocations + fail_at : 0;
    qwen36_status status = qwen36_session_create(w.model, &options, &session, NULL);
    w.memory.fail_at = 0;
    if (status == QWEN36_OK) {
        CHECK(t != NULL);
        enter(t, session, &options);
        return;
    }
    CHECK(session == NULL && w.memory.outstanding == outstanding);
    CHECK(status == (t == NULL && fail_at == 0 ? QWEN36_ERROR_SESSIONS_FULL : status));
    CHECK((status == QWEN36_ERROR_SESSIONS_FULL && t == NULL) ||
          (status == QWEN36_ERROR_OUT_OF_MEMORY && fail_at > 0));
}

static void fork_with(long fail_at)
{
    truth *twin = somebody(), *t = free_place();
    if (twin == NULL)
        return;
    qwen36_session *session = NULL;
    qwen36_session_options options =
        options_for(t != NULL ? t : &nowhere, chance(3) ? 1 + draw(CONTEXT) : CONTEXT);
    long outstanding = w.memory.outstanding;
    w.memory.fail_at = fail_at > 0 ? w.memory.allocations + fail_at : 0;
    qwen36_status status = qwen36_session_fork(twin->session, &options, &session, NULL);
    w.memory.fail_at = 0;
    if (status != QWEN36_OK) {
        CHECK(session == NULL && w.memory.outstanding == outstanding);
        CHECK((status == QWEN36_ERROR_CONTEXT_FULL && options.context_length < twin->length) ||
              (status == QWEN36_ERROR_SESSIONS_FULL && t == NULL) ||
              (status == QWEN36_ERROR_OUT_OF_MEMORY && fail_at > 0));
        return;
    }
    CHECK(t != NULL && options.context_length >= twin->length);
    *t = *twin;
    t->session = session;
    t->capacity = options.context_length;
    t->interrupted = false;
    CHECK_INT(computed(t), computed(twin));
    check_truth(t);
    check_truth(twin);
    w.forks++;
}

/* Saved to memory and restored beside itself, perhaps with a byte that is wrong. */
static void restore_with(long fail_at)
{
    truth *twin = somebody(), *t = free_place();
    if (twin == NULL)
        return;
    size_t size = 0;
    qwen36_session *session = NULL;
    qwen36_session_options session_options = options_for(t != NULL ? t : &nowhere, CONTEXT);
    qwen36_restore_options options;
    qwen36_restore_options_init(&options, sizeof options);
    options.session = &session_options;
    CHECK_INT(qwen36_session_save_memory(twin->session, NULL, 0, &size, NULL), QWEN36_ERROR_BUFFER_TOO_SMALL);
    unsigned char *memory = malloc(size);
    CHECK_INT(qwen36_session_save_memory(twin->session, memory, size, &size, NULL), QWEN36_OK);
    bool damaged = chance(8);
    if (damaged)
        memory[(size_t)draw((int32_t)size)] ^= (unsigned char)(1 << draw(8));
    long outstanding = w.memory.outstanding;
    w.memory.fail_at = fail_at > 0 ? w.memory.allocations + fail_at : 0;
    qwen36_status status = qwen36_session_restore_memory(w.model, memory, size, &options, &session, NULL);
    w.memory.fail_at = 0;
    free(memory);
    CHECK((session != NULL) == (status == QWEN36_OK));
    if (status == QWEN36_OK) {
        CHECK(t != NULL && !damaged);
        uint64_t space = session_options.prefix_space;
        *t = *twin;
        t->session = session;
        t->capacity = CONTEXT;
        t->space = space;
        t->interrupted = false;
        CHECK_INT(computed(t), computed(twin));
        check_truth(t);
        w.restores++;
        return;
    }
    CHECK_INT(w.memory.outstanding, outstanding);
    CHECK((status == QWEN36_ERROR_SNAPSHOT && damaged) ||
          (status == QWEN36_ERROR_OUT_OF_MEMORY && fail_at > 0) ||
          (status == QWEN36_ERROR_SESSIONS_FULL && t == NULL) || status == QWEN36_ERROR_CACHE_FULL);
}

static void operation_restore(void)
{
    restore_with(0);
}

/* What is kept may go at any time; nobody notices but by time. */
static void operation_evict(void)
{
    CHECK_INT(qwen36_model_clear_cache(w.model, NULL), QWEN36_OK);
}

static void operation_create(void)
{
    create_with(0);
}

static void operation_fork(void)
{
    fork_with(0);
}

static void operation_failing_allocation(void)
{
    if (chance(3))
        create_with(1 + draw(6));
    else if (chance(2))
        fork_with(1 + draw(8));
    else
        restore_with(1 + draw(12));
}

static void destroy(truth *t)
{
    qwen36_session_destroy(t->session);
    t->session = NULL;
}

static void operation_destroy(void)
{
    truth *t = somebody();
    if (t != NULL)
        destroy(t);
}

static void operation_append(void)
{
    truth *t = somebody();
    int32_t tokens[CONTEXT + 1], count = chance(2) ? draw(8) : draw(140), logits = draw(3);
    if (t == NULL)
        return;
    if (chance(10))
        t->style = draw(TEMPLATES);
    if (chance(4)) /* to an edge */
        count = (1 + draw(2)) * QW_KV_BLOCK - t->length % QW_KV_BLOCK;
    for (int32_t i = 0; i < count; i++)
        tokens[i] = w.templates[t->style][(t->length + i) % CONTEXT];
    bool bad = count > 0 && chance(40);
    if (bad)
        tokens[draw(count)] = chance(2) ? -1 : w.vocab_size;
    qwen36_status status = qwen36_session_append(t->session, tokens, (size_t)count, logits, NULL);
    if (t->length + count > t->capacity) {
        CHECK_INT(status, QWEN36_ERROR_CONTEXT_FULL);
    } else if (bad) {
        CHECK_INT(status, QWEN36_ERROR_TOKEN_ID);
    } else {
        CHECK_INT(status, QWEN36_OK);
        for (int32_t i = t->length; i < t->length + count; i++) {
            t->tokens[i] = tokens[i - t->length];
            t->row[i] = logits == QWEN36_LOGITS_ALL;
            t->last[i] = logits != QWEN36_LOGITS_NONE && i + 1 == t->length + count ? YES : NO;
        }
        t->length += count;
    }
    check_truth(t);
}

/* Tokens that became pending again: only the last one's logits are wanted. */
static void want_last(truth *t, int32_t from)
{
    for (int32_t i = from; i < t->length; i++) {
        t->row[i] = false;
        t->last[i] = i + 1 == t->length ? YES : NO;
    }
}

static void operation_sync(void)
{
    truth *t = somebody();
    int32_t tokens[CONTEXT];
    size_t reused = 0;
    if (t == NULL)
        return;
    int32_t count = draw_list(tokens, CONTEXT), before = computed(t), same = 0;
    while (same < count && same < t->length && tokens[same] == t->tokens[same])
        same++;
    qwen36_status status = qwen36_session_sync(t->session, tokens, (size_t)count, &reused, NULL);
    CHECK_INT(status, count > t->capacity ? QWEN36_ERROR_CONTEXT_FULL : QWEN36_OK);
    if (status == QWEN36_OK) {
        CHECK_INT(reused, computed(t));
        CHECK((int32_t)reused >= (same >= before && count > before ? before : 0));
        CHECK((int32_t)reused == before || (int32_t)reused % QW_KV_BLOCK == 0);
        w.reused += (long)reused;
        t->length = count;
        memcpy(t->tokens, tokens, (size_t)count * sizeof *tokens);
        memset(t->row, 0, sizeof t->row);
        memset(t->last, UNKNOWN, sizeof t->last);
        want_last(t, (int32_t)reused);
        if (count > 0)
            t->last[count - 1] = YES;
    }
    check_truth(t);
}

static void operation_rewind(void)
{
    truth *t = somebody();
    if (t == NULL)
        return;
    int32_t wanted = draw_length(t->length), before = computed(t);
    if (chance(4) && before <= t->length)
        wanted = before;
    if (chance(20)) {
        CHECK_INT(qwen36_session_rewind(t->session, (size_t)t->length + 1, NULL), QWEN36_ERROR_ARGUMENT);
        return;
    }
    CHECK_INT(qwen36_session_rewind(t->session, (size_t)wanted, NULL), QWEN36_OK);
    t->length = wanted;
    CHECK(computed(t) <= wanted && (wanted < before || computed(t) <= before));
    if (computed(t) < before)
        want_last(t, computed(t));
    else if (wanted > before)
        t->last[wanted - 1] = YES;
    check_truth(t);
}

static void operation_reset(void)
{
    truth *t = somebody();
    if (t == NULL)
        return;
    CHECK_INT(qwen36_session_reset(t->session, NULL), QWEN36_OK);
    t->length = 0;
    check_truth(t);
}

static void operation_interrupt(void)
{
    truth *t = somebody();
    if (t == NULL)
        return;
    qwen36_session_interrupt(t->session);
    t->interrupted = true;
}

/* ---- steps --------------------------------------------------------------------------------------------- */

typedef struct group {
    size_t count;
    truth *of[SESSIONS];
    qwen36_session *session[SESSIONS];
    qwen36_status status[SESSIONS];
    int32_t before[SESSIONS];
} group;

static void draw_group(group *g)
{
    int32_t one_in = chance(2) ? 1 + draw(6) : w.places / 2, from = draw(w.places);
    g->count = 0;
    for (int32_t i = 0; i < w.places; i++) {
        truth *t = &w.all[(from + i) % w.places];
        if (t->session == NULL || !chance(one_in))
            continue;
        g->of[g->count] = t;
        g->session[g->count++] = t->session;
    }
}

static qwen36_status combined(const group *g)
{
    bool pending = false, interrupted = false;
    for (size_t i = 0; i < g->count; i++) {
        if (g->status[i] < 0)
            return g->status[i];
        pending = pending || g->status[i] == QWEN36_PENDING;
        interrupted = interrupted || g->status[i] == QWEN36_INTERRUPTED;
    }
    return pending ? QWEN36_PENDING : interrupted ? QWEN36_INTERRUPTED : QWEN36_OK;
}

/* What failed stands where it stood, or on a known prefix that it found before it failed. */
static void check_unmoved(const group *g, size_t i)
{
    int32_t after = computed(g->of[i]);
    CHECK_MSG(after == g->before[i] || (after > g->before[i] && after % QW_KV_BLOCK == 0),
              "operation %ld: %d to %d", w.number, g->before[i], after);
}

static void check_member(const group *g, size_t i, bool device_fails)
{
    truth *t = g->of[i];
    int32_t after = computed(t);
    CHECK_MSG(after >= g->before[i], "operation %ld: computed went from %d to %d", w.number, g->before[i],
              after);
    switch (g->status[i]) {
    case QWEN36_OK:
        CHECK_MSG(after == t->length, "operation %ld: %d of %d", w.number, after, t->length);
        break;
    case QWEN36_PENDING:
        CHECK_MSG(after < t->length, "operation %ld", w.number);
        break;
    case QWEN36_INTERRUPTED:
        CHECK_MSG(t->interrupted, "operation %ld", w.number);
        check_unmoved(g, i);
        break;
    case QWEN36_ERROR_CACHE_FULL:
        w.full++;
        check_unmoved(g, i);
        break;
    case QWEN36_ERROR_DEVICE:
        CHECK_MSG(device_fails, "operation %ld", w.number);
        w.devices++;
        check_unmoved(g, i);
        break;
    default:
        CHECK_MSG(false, "operation %ld: status %d", w.number, g->status[i]);
    }
    t->interrupted = atomic_load(&t->session->interrupted) != 0;
    check_truth(t);
}

static void step(group *g, bool device_fails)
{
    static const int32_t budgets[] = {1, 2, 7, 63, 64, 65, 100, 128, ROWS, ROWS, ROWS};
    qwen36_step_options options = {sizeof options, budgets[draw((int32_t)QW_COUNT_OF(budgets))]};
    bool waits = false, went_on = false, disturbed = false;
    for (size_t i = 0; i < g->count; i++) {
        g->before[i] = computed(g->of[i]);
        waits = waits || g->before[i] < g->of[i]->length;
    }
    w.disturbs = chance(3);
    qwen36_status status = qwen36_step(g->session, g->count, &options, g->status, NULL);
    w.disturbs = false;
    CHECK_INT(status, combined(g));
    for (size_t i = 0; i < g->count; i++) {
        check_member(g, i, device_fails);
        disturbed = disturbed || g->status[i] < 0 || g->status[i] == QWEN36_INTERRUPTED;
        went_on = went_on || computed(g->of[i]) > g->before[i];
    }
    CHECK_MSG(!waits || went_on || disturbed, "operation %ld: a step without progress", w.number);
}

/* The one that found no memory goes on as soon as enough of the others are gone. */
static void make_room_for(truth *t)
{
    group alone = {.count = 1, .of = {t}, .session = {t->session}};
    do {
        truth *victim = somebody();
        for (int32_t i = 0; i < 100 && victim == t; i++)
            victim = somebody();
        if (victim != t)
            destroy(victim);
        step(&alone, false);
        CHECK_MSG(alone.status[0] != QWEN36_ERROR_CACHE_FULL || w.model->session_count > 1,
                  "operation %ld: no memory for a session that is alone", w.number);
    } while (alone.status[0] == QWEN36_ERROR_CACHE_FULL);
}

static void operation_step(void)
{
    group g;
    draw_group(&g);
    if (g.count == 0)
        return;
    step(&g, false);
    for (size_t i = 0; i < g.count; i++)
        if (g.status[i] == QWEN36_ERROR_CACHE_FULL) {
            if (chance(4))
                make_room_for(g.of[i]);
            break;
        }
}

/* Repeated, the same step succeeds. */
static void operation_failing_step(void)
{
    group g;
    draw_group(&g);
    if (g.count == 0)
        return;
    w.between.fail_at = w.between.calls + 1 + draw(50);
    step(&g, true);
    w.between.fail_at = 0;
    step(&g, false);
}

static int32_t most_likely(const truth *t)
{
    const float *logits = NULL;
    int32_t best = 0;
    if (qwen36_session_logits(t->session, &logits, NULL, NULL) != QWEN36_OK)
        return -1;
    for (int32_t v = 1; v < w.vocab_size; v++)
        if (logits[v] > logits[best])
            best = v;
    return best;
}

static void operation_sample(void)
{
    group g;
    int32_t tokens[SESSIONS];
    draw_group(&g);
    if (g.count == 0)
        return;
    CHECK_INT(qwen36_sample(g.session, g.count, tokens, g.status, NULL), combined(&g));
    for (size_t i = 0; i < g.count; i++) {
        truth *t = g.of[i];
        int32_t best = most_likely(t);
        qwen36_status expected = best < 0 || computed(t) < t->length ? QWEN36_ERROR_NO_LOGITS
                                 : t->length == t->capacity          ? QWEN36_ERROR_CONTEXT_FULL
                                                                     : QWEN36_OK;
        CHECK_INT(g.status[i], expected);
        CHECK_INT(tokens[i], expected == QWEN36_OK ? best : -1);
        if (expected == QWEN36_OK) {
            t->row[t->length] = false;
            t->last[t->length] = YES;
            t->tokens[t->length++] = best;
        }
        check_truth(t);
    }
}

static void check_scores(const truth *t, int32_t begin, const float *scores)
{
    CHECK_MSG(row_judge_agrees_on_scores(&w.judge, t->tokens, begin, t->length, scores),
              "operation %ld: scores differ", w.number);
}

static void operation_score(void)
{
    truth *t = somebody();
    int32_t tokens[CONTEXT], count = 1 + draw(80);
    float scores[CONTEXT];
    if (t == NULL)
        return;
    int32_t begin = t->length;
    for (int32_t i = 0; i < count; i++)
        tokens[i] = w.templates[t->style][(begin + i) % CONTEXT];
    if (begin + count <= t->capacity) {
        memcpy(t->tokens + begin, tokens, (size_t)count * sizeof *tokens);
        memset(t->row + begin, 0, (size_t)count);
        t->length += count;
    }
    qwen36_status status = qwen36_session_score(t->session, tokens, (size_t)count, scores, NULL);
    CHECK(status == QWEN36_OK || (status == QWEN36_ERROR_CONTEXT_FULL && begin + count > t->capacity) ||
          (status == QWEN36_INTERRUPTED && t->interrupted) || status == QWEN36_ERROR_CACHE_FULL);
    if (status != QWEN36_ERROR_CONTEXT_FULL) {
        t->length = (int32_t)qwen36_session_length(t->session);
        CHECK(t->length >= begin);
        memset(t->last, UNKNOWN, sizeof t->last);
        t->interrupted = atomic_load(&t->session->interrupted) != 0;
    }
    if (status == QWEN36_OK)
        check_scores(t, begin, scores);
    check_truth(t);
}

static const struct {
    const char *name;
    int32_t weight;
    void (*run)(void);
} operations[] = {
    {"create", 10, operation_create},
    {"append", 20, operation_append},
    {"sync", 25, operation_sync},
    {"step", 50, operation_step},
    {"sample", 12, operation_sample},
    {"score", 3, operation_score},
    {"fork", 10, operation_fork},
    {"save and restore", 4, operation_restore},
    {"evict", 1, operation_evict},
    {"rewind", 10, operation_rewind},
    {"reset", 2, operation_reset},
    {"destroy", 9, operation_destroy},
    {"interrupt", 3, operation_interrupt},
    {"failing step", 5, operation_failing_step},
    {"failing allocation", 3, operation_failing_allocation},
};

static const char *operate(void)
{
    int32_t sum = 0, i = 0;
    for (size_t k = 0; k < QW_COUNT_OF(operations); k++)
        sum += operations[k].weight;
    int32_t at = draw(sum);
    while (at >= operations[i].weight)
        at -= operations[i++].weight;
    operations[i].run();
    return operations[i].name;
}

/* ---- the world ----------------------------------------------------------------------------------------- */

typedef struct setting {
    int32_t reuse, places, blocks, snapshots;
    long operations;
} setting;

static void load_models(const setting *kind)
{
    const qwen36_allocator hooks = {sizeof hooks, 0, test_allocate, test_release, &w.memory};
    const char *directory = test_checkpoint("dense_untied");
    qwen36_model_options options = test_model_options();
    options.context_length = CONTEXT;
    row_judge_open(&w.judge, directory, &options);
    w.vocab_size = w.judge.vocab_size;
    options.max_batch_tokens = ROWS;
    options.max_sessions = kind->places;
    options.prefix_reuse = kind->reuse;
    options.cache_bytes = (uint64_t)kind->blocks * w.judge.model->cache.plan.block_bytes;
    options.snapshot_bytes = (uint64_t)kind->snapshots * w.judge.model->cache.plan.slot_bytes;
    options.allocator = &hooks;
    w.model = test_model(directory, &options);
    CHECK_INT(w.model->cache.blocks.capacity, kind->blocks);
    interpose(&w.between, &w.model->backend, &w.model->dims);
    w.between.poison = true;
}

static void begin_world(const setting *kind)
{
    const char *seed = getenv("QWEN36_TEST_SEED");
    memset(&w, 0, sizeof w);
    w.random = seed != NULL ? strtoull(seed, NULL, 10) : 1;
    w.places = kind->places;
    load_models(kind);
    for (int32_t t = 0; t < TEMPLATES; t++) /* in pairs that begin alike */
        for (int32_t i = 0; i < CONTEXT; i++)
            w.templates[t][i] = t % 2 == 1 && i < 140 ? w.templates[t - 1][i] : draw(w.vocab_size);
}

static void end_world(void)
{
    qw_cache *cache = &w.model->cache;
    for (int32_t i = 0; i < w.places; i++)
        if (w.all[i].session != NULL)
            destroy(&w.all[i]);
    CHECK(qw_sessions_check(w.model));
    CHECK_INT(w.model->session_count, 0);
    qw_prefix_clear(&cache->prefix);
    CHECK(qw_sessions_check(w.model));
    CHECK_INT(cache->blocks.free_count, cache->blocks.capacity);
    CHECK_INT(cache->slots.free_count, cache->slots.capacity);
    CHECK_INT(cache->rows.free_count, cache->rows.capacity);
    interpose_end(&w.between, &w.model->backend);
    qwen36_model_release(w.model);
    row_judge_close(&w.judge);
    CHECK_INT(w.memory.outstanding, 0);
}

/* A pretended device gets through some hundreds. */
static long run_length(const setting *kind)
{
    return test_is_slow_backend() ? QW_MIN(kind->operations, SLOW_RUN) : kind->operations;
}

static void run_world(const setting *kind)
{
    const long length = run_length(kind);
    begin_world(kind);
    for (w.number = 1; w.number <= length; w.number++) {
        const char *name = operate();
        CHECK_MSG(qw_sessions_check(w.model), "operation %ld: %s", w.number, name);
    }
    const qw_prefix *prefix = &w.model->cache.prefix;
    if (length >= 1000) { /* it has met what it is for */
        CHECK(w.forks > 0 && w.restores > 0 && w.devices > 0 && w.judge.computed > 0 &&
              w.model->counters.copies > 0);
        CHECK(kind->blocks > 4 * kind->places || w.full > 0);
        CHECK(kind->reuse == 0 || w.reused > 0);
        CHECK(kind->reuse == 0 || prefix->block_evictions > 0 || prefix->snapshot_evictions > 0);
    }
    end_world();
}

TEST(random, many_sessions_with_few_blocks)
{
    run_world(&(setting){1, SESSIONS, 48, 6, LONG_RUN});
}

TEST(random, few_sessions_with_few_snapshots)
{
    run_world(&(setting){1, 8, 60, 2, SHORT_RUN});
}

TEST(random, a_model_that_keeps_nothing)
{
    run_world(&(setting){0, SESSIONS, 48, 0, SHORT_RUN});
}
