/* Who takes how many rows of a step, and who waits how long: by the scheduler alone, on timelines that nobody
 * computes; and with a model, what sessions that begin alike compute together. */
#include "lib/api/api.h"
#include "tests/harness.h"
#include "tests/unit/checkpoint.h"
#include "tests/unit/row_judge.h"

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
enum { TICKS = 300, CROWD = 100 };
#else
enum { TICKS = 10000, CROWD = 1000 };
#endif

enum { OVERDUE = 8 }; /* as in lib/session/schedule.c */

static uint64_t random_state = 1;

static int32_t draw(int32_t below)
{
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return (int32_t)((random_state >> 33) % (uint64_t)below);
}

static qwen36_model_options options_for(int32_t sessions, int32_t context, int32_t rows)
{
    qwen36_model_options options = test_model_options();
    options.max_sessions = sessions;
    options.context_length = context;
    options.max_batch_tokens = rows;
    return options;
}

static qwen36_model *open_model(int32_t sessions, int32_t context, int32_t rows)
{
    qwen36_model_options options = options_for(sessions, context, rows);
    return test_model(test_checkpoint("dense_untied"), &options);
}

/* ---- the scheduler alone ------------------------------------------------------------------------------- */

typedef struct table {
    qwen36_model *model;
    int32_t count;
    qwen36_session **session;
    int32_t *waited; /* steps in a row that gave it nothing */
} table;

static table lay(int32_t count, int32_t context, int32_t rows)
{
    qwen36_model_options options = options_for(count, context, rows);
    options.prefix_reuse = 0;
    options.cache_bytes = 1 << 20;
    table t = {test_model(test_checkpoint("dense_untied"), &options), count, NULL, NULL};
    t.session = calloc((size_t)count, sizeof *t.session);
    t.waited = calloc((size_t)count, sizeof *t.waited);
    for (int32_t i = 0; i < count; i++)
        t.session[i] = test_session(t.model);
    return t;
}

static void clear(table *t)
{
    for (int32_t i = 0; i < t->count; i++) {
        t->session[i]->computed = t->session[i]->length = 0;
        qwen36_session_destroy(t->session[i]);
    }
    qwen36_model_release(t->model);
    free(t->session);
    free(t->waited);
}

/* `pending` tokens of a timeline, behind `computed` ones. */
static void put(const table *t, int32_t i, int32_t computed, int32_t pending)
{
    t->session[i]->computed = computed;
    t->session[i]->length = computed + pending;
}

static void schedule(const table *t, int32_t budget)
{
    int32_t rows = 0;
    int64_t entries = 0;
    for (int32_t i = 0; i < t->count; i++)
        t->session[i]->step = (qw_step_part){.new_slot = -1, .new_row = -1, .shared_block = -1};
    qw_schedule(t->model, t->session, (size_t)t->count, budget);
    for (int32_t i = 0; i < t->count; i++) {
        const qwen36_session *s = t->session[i];
        CHECK(s->step.rows >= 0 && s->step.rows <= s->length - s->computed);
        rows += s->step.rows;
        entries += s->step.rows > 0 ? (s->computed + s->step.rows + 63) / 64 : 0;
    }
    CHECK(rows <= budget && entries <= t->model->batch.limits.blocks);
}

static void check_rows(const table *t, const int32_t *expected)
{
    for (int32_t i = 0; i < t->count; i++)
        CHECK_MSG(t->session[i]->step.rows == expected[i], "session %d has %d rows, expected %d", i,
                  t->session[i]->step.rows, expected[i]);
}

#define CHECK_ROWS(table_, ...) check_rows(table_, (const int32_t[]){__VA_ARGS__})

TEST(schedule, decodes_first_then_equal_shares)
{
    table t = lay(5, 4096, 512);
    put(&t, 0, 0, 1000), put(&t, 1, 500, 1), put(&t, 2, 0, 1000), put(&t, 3, 7, 1), put(&t, 4, 0, 0);
    schedule(&t, 512);
    CHECK_ROWS(&t, 256, 1, 192, 1, 0); /* 510 rows are left for two, in blocks of 64 */
    schedule(&t, 100);
    CHECK_ROWS(&t, 64, 1, 34, 1, 0);
    schedule(&t, 2);
    CHECK_ROWS(&t, 0, 1, 0, 1, 0);
    schedule(&t, 1);
    CHECK_ROWS(&t, 0, 1, 0, 0, 0);
    clear(&t);
}

TEST(schedule, what_one_leaves_goes_to_the_others)
{
    table t = lay(3, 4096, 512);
    put(&t, 0, 0, 30), put(&t, 1, 0, 1000), put(&t, 2, 0, 1000);
    schedule(&t, 512);
    CHECK_ROWS(&t, 30, 320, 128);
    put(&t, 2, 0, 0);
    schedule(&t, 512);
    CHECK_ROWS(&t, 30, 448, 0);
    put(&t, 0, 0, 0);
    schedule(&t, 512);
    CHECK_ROWS(&t, 0, 512, 0);
    clear(&t);
}

TEST(schedule, prompts_are_cut_at_blocks)
{
    static const struct {
        int32_t computed, pending, budget, rows;
    } cases[] = {
        {0, 1000, 200, 192}, {0, 1000, 64, 64},  {0, 1000, 63, 63},    {0, 100, 100, 100}, {0, 100, 99, 64},
        {10, 1000, 64, 54},  {10, 1000, 53, 53}, {10, 1000, 200, 182}, {63, 1000, 1, 1},   {63, 1000, 2, 1},
        {64, 1000, 2, 2},    {10, 2, 1, 1},      {10, 2, 5, 2},
    };
    table t = lay(1, 4096, 512);
    for (size_t i = 0; i < QW_COUNT_OF(cases); i++) {
        put(&t, 0, cases[i].computed, cases[i].pending);
        schedule(&t, cases[i].budget);
        CHECK_INT(t.session[0]->step.rows, cases[i].rows);
    }
    clear(&t);
}

/* ---- the bound of waiting ------------------------------------------------------------------------------ */

typedef struct load {
    int32_t sessions, budget, decoders; /* the first so many decode, the others read prompts ... */
    int32_t longest;                    /* ... of up to so many tokens */
} load;

/* A session always has something pending. */
static void refill(const table *t, const load *l, int32_t i)
{
    qwen36_session *s = t->session[i];
    if (s->computed < s->length)
        return;
    if (i < l->decoders)
        put(t, i, s->length < 4000 ? s->length : 0, 1);
    else
        put(t, i, 0, draw(3) == 0 ? 1 + draw(l->longest) : l->longest);
}

static int32_t tick(table *t, int32_t budget)
{
    int32_t longest = 0, rows = 0;
    schedule(t, budget);
    for (int32_t i = 0; i < t->count; i++) {
        qwen36_session *s = t->session[i];
        t->waited[i] = s->step.rows > 0 ? 0 : t->waited[i] + 1;
        longest = QW_MAX(longest, t->waited[i]);
        rows += s->step.rows;
        s->computed += s->step.rows;
    }
    CHECK(rows > 0);
    return longest;
}

static void run_load(const load *l)
{
    table t = lay(l->sessions, 4096, QW_MAX(l->budget, 512));
    int32_t bound = OVERDUE + (64 * l->sessions + l->budget - 1) / l->budget;
    for (int32_t n = 0; n < TICKS; n++) {
        for (int32_t i = 0; i < t.count; i++)
            refill(&t, l, i);
        int32_t waited = tick(&t, l->budget);
        CHECK_MSG(waited <= bound, "%d sessions, %d rows: somebody waited %d steps", l->sessions, l->budget,
                  waited);
    }
    clear(&t);
}

TEST(schedule, nobody_waits_longer_than_promised)
{
    static const load loads[] = {
        {4, 64, 2, 1000},    {4, 1, 2, 1000},      {10, 100, 8, 4000}, {10, 7, 8, 4000},
        {10, 512, 0, 4000},  {40, 64, 39, 4000},   {40, 16, 20, 200},  {40, 200, 0, 70},
        {40, 512, 39, 64},   {200, 16, 190, 4000}, {200, 16, 0, 4000}, {200, 128, 128, 65},
        {200, 1, 100, 4000}, {40, 63, 0, 63},      {40, 65, 30, 65},   {200, 201, 199, 10},
    };
    for (size_t i = 0; i < QW_COUNT_OF(loads); i++)
        run_load(&loads[i]);
}

/* Sessions come and go: whoever asks in every step is served, also those that ask for little. */
TEST(schedule, a_stream_of_newcomers_starves_nobody)
{
    enum { OLD = 3, ALL = 20 };
    table t = lay(ALL, 4096, 512);
    int32_t served[OLD] = {0};
    put(&t, 0, 0, 4000), put(&t, 1, 100, 1), put(&t, 2, 0, 2);
    for (int32_t n = 0; n < TICKS; n++) {
        for (int32_t i = OLD; i < ALL; i++) {
            put(&t, i, n % 2 == 0 ? 0 : 64, n % 2 == 0 ? 1 : 4000);
            t.session[i]->waited = 0;
        }
        schedule(&t, 5);
        for (int32_t i = 0; i < OLD; i++)
            served[i] += t.session[i]->step.rows > 0;
    }
    for (int32_t i = 0; i < OLD; i++)
        CHECK_MSG(served[i] >= TICKS / (OVERDUE + 1), "session %d was served %d times", i, served[i]);
    clear(&t);
}

/* The block tables of a step have a limit of their own; nobody is shut out by it. */
TEST(schedule, tables_have_a_limit)
{
    table t = lay(6, 1024, 512);
    t.model->batch.limits.blocks = 16; /* one whole context */
    put(&t, 0, 0, 1024), put(&t, 1, 1000, 1), put(&t, 2, 960, 64), put(&t, 3, 0, 100), put(&t, 4, 128, 2);
    put(&t, 5, 1023, 1);
    schedule(&t, 512);
    CHECK_ROWS(&t, 0, 1, 0, 0, 0, 0);
    for (int32_t n = 0; n < TICKS; n++) {
        int32_t waited = tick(&t, 512);
        CHECK_MSG(waited <= OVERDUE + t.count, "somebody waited %d steps", waited);
        for (int32_t i = 0; i < t.count; i++)
            if (t.session[i]->computed == t.session[i]->length)
                put(&t, i, draw(1000), 1 + draw(24));
    }
    clear(&t);
}

/* ---- prompts that begin alike -------------------------------------------------------------------------- */

enum { CONTEXT = 448 };

/* The first `common` tokens are those of every list, the others `name`'s own. */
static void make_list(int32_t *tokens, int32_t count, int32_t common, int32_t name)
{
    for (int32_t i = 0; i < count; i++)
        tokens[i] = (i < common ? 7 * i + i * i % 13 : 5 * i + 31 * name + 3) % 512;
}

static qwen36_session *reader(qwen36_model *model, int32_t count, int32_t common, int32_t name)
{
    int32_t tokens[CONTEXT];
    qwen36_session *session = test_session(model);
    make_list(tokens, count, common, name);
    CHECK_INT(qwen36_session_append(session, tokens, (size_t)count, QWEN36_LOGITS_LAST, NULL), QWEN36_OK);
    return session;
}

static void step_until_done(qwen36_session **all, size_t count, int32_t budget)
{
    qwen36_step_options options = {sizeof options, budget};
    qwen36_status status;
    do {
        status = qwen36_step(all, count, &options, NULL, NULL);
    } while (status == QWEN36_PENDING || status == QWEN36_INTERRUPTED);
    CHECK_INT(status, QWEN36_OK);
}

static void check_logits(row_judge *judge, qwen36_session **all, size_t count)
{
    int32_t tokens[CONTEXT];
    const float *logits = NULL;
    for (size_t i = 0; i < count; i++) {
        size_t length = qwen36_session_length(all[i]);
        CHECK_INT(qwen36_session_tokens(all[i], 0, length, tokens, NULL), QWEN36_OK);
        CHECK_INT(qwen36_session_logits(all[i], &logits, NULL, NULL), QWEN36_OK);
        CHECK_MSG(row_judge_agrees(judge, tokens, (int32_t)length, logits), "session %zu", i);
    }
}

static void open_judge(row_judge *judge)
{
    qwen36_model_options options = options_for(1, CONTEXT, CONTEXT);
    row_judge_open(judge, test_checkpoint("dense_untied"), &options);
}

static void destroy_all(qwen36_session **all, size_t count)
{
    for (size_t i = 0; i < count; i++)
        qwen36_session_destroy(all[i]);
}

static const int32_t budgets[] = {448, 1, 10, 64, 63, 200, 128};

/* 200 tokens in common: 192 of them are computed by one of the two. */
TEST(schedule, two_that_begin_alike_compute_it_once)
{
    row_judge judge;
    open_judge(&judge);
    for (size_t i = 0; i < QW_COUNT_OF(budgets); i += test_stride()) {
        qwen36_model *model = open_model(2, CONTEXT, CONTEXT);
        qwen36_session *all[2] = {reader(model, 210, 200, 0), reader(model, 230, 200, 1)};
        step_until_done(all, 2, budgets[i]);
        CHECK_MSG(model->counters.computed == 210 + 230 - 192, "budget %d: %d", budgets[i],
                  (int)model->counters.computed);
        check_logits(&judge, all, 2);
        CHECK(qw_sessions_check(model));
        destroy_all(all, 2);
        qwen36_model_release(model);
    }
    row_judge_close(&judge);
}

/* The last token is computed in any case, for its logits, also where everything is known. */
TEST(schedule, a_whole_prompt_is_never_skipped)
{
    row_judge judge;
    open_judge(&judge);
    qwen36_model *model = open_model(3, CONTEXT, CONTEXT);
    qwen36_session *all[3] = {reader(model, 256, 256, 0), reader(model, 256, 256, 0),
                              reader(model, 256, 256, 0)};
    test_compute(all[0]);
    step_until_done(all + 1, 2, CONTEXT);
    CHECK_INT(model->counters.computed, 256 + 2 * (256 - 192)); /* snapshots at 192 and 256 */
    check_logits(&judge, all, 3);
    CHECK(qw_sessions_check(model));
    destroy_all(all, 3);
    qwen36_model_release(model);
    row_judge_close(&judge);
}

/* Two depart at 200, the third at 130. */
TEST(schedule, three_that_begin_alike)
{
    row_judge judge;
    open_judge(&judge);
    for (size_t i = 0; i < QW_COUNT_OF(budgets); i += test_stride())
        for (int32_t order = 0; order < 3; order++) {
            qwen36_model *model = open_model(3, CONTEXT, CONTEXT);
            qwen36_session *all[3];
            all[order] = reader(model, 220, 130, 2);
            all[(order + 1) % 3] = reader(model, 210, 200, 0);
            all[(order + 2) % 3] = reader(model, 230, 200, 1);
            step_until_done(all, 3, budgets[i]);
            CHECK_MSG(model->counters.computed == 210 + 230 - 192 + 220 - 128, "budget %d, order %d: %d",
                      budgets[i], order, (int)model->counters.computed);
            check_logits(&judge, all, 3);
            destroy_all(all, 3);
            qwen36_model_release(model);
        }
    row_judge_close(&judge);
}

/* The one that waits goes on by itself, from where the other was stopped. */
TEST(schedule, the_leader_is_stopped_midway)
{
    row_judge judge;
    open_judge(&judge);
    for (int32_t destroyed = 0; destroyed < 2; destroyed++) {
        qwen36_model *model = open_model(2, CONTEXT, CONTEXT);
        qwen36_session *all[2] = {reader(model, 210, 200, 0), reader(model, 230, 200, 1)};
        qwen36_step_options options = {sizeof options, 64};
        CHECK_INT(qwen36_step(all, 2, &options, NULL, NULL), QWEN36_PENDING);
        CHECK_INT(qwen36_session_computed(all[0]), 64);
        CHECK_INT(qwen36_session_computed(all[1]), 0);
        if (destroyed != 0) {
            qwen36_session_destroy(all[0]);
            step_until_done(all + 1, 1, 64);
            CHECK_INT(model->counters.computed, 230);
            check_logits(&judge, all + 1, 1);
        } else {
            qwen36_session_interrupt(all[0]);
            CHECK_INT(qwen36_step(all, 2, &options, NULL, NULL), QWEN36_PENDING);
            CHECK_INT(qwen36_session_computed(all[0]), 64);
            CHECK_INT(qwen36_session_computed(all[1]), 128);
            step_until_done(all, 2, 64);
            CHECK_INT(model->counters.computed, 210 + 230 - 192);
            check_logits(&judge, all, 2);
            qwen36_session_destroy(all[0]);
        }
        qwen36_session_destroy(all[1]);
        CHECK(qw_sessions_check(model));
        qwen36_model_release(model);
    }
    row_judge_close(&judge);
}

static void count_rows(void *user, qwen36_session *session, int32_t position, const float *logits,
                       int32_t vocab_size)
{
    int32_t *next = user;
    (void)session;
    (void)logits;
    (void)vocab_size;
    CHECK_INT(position, *next);
    (*next)++;
}

/* Rows that somebody waits for are computed, whoever has computed the same tokens. */
TEST(schedule, wanted_rows_are_never_skipped)
{
    int32_t rows[2] = {0, 0}, tokens[CONTEXT];
    qwen36_model *model = open_model(3, CONTEXT, CONTEXT);
    qwen36_session *all[3] = {reader(model, 230, 200, 0)};
    qwen36_session_options options = {.struct_size = sizeof options, .context_length = CONTEXT};
    options.on_logits = count_rows;
    make_list(tokens, 230, 200, 1);
    for (int32_t i = 0; i < 2; i++) {
        options.user = &rows[i];
        CHECK_INT(qwen36_session_create(model, &options, &all[i + 1], NULL), QWEN36_OK);
    }
    CHECK_INT(qwen36_session_append(all[1], tokens, 230, QWEN36_LOGITS_ALL, NULL), QWEN36_OK);
    CHECK_INT(qwen36_session_append(all[2], tokens, 70, QWEN36_LOGITS_ALL, NULL), QWEN36_OK);
    CHECK_INT(qwen36_session_append(all[2], tokens + 70, 160, QWEN36_LOGITS_LAST, NULL), QWEN36_OK);
    step_until_done(all, 3, 128);
    CHECK_INT(rows[0], 230);
    CHECK_INT(rows[1], 70);
    destroy_all(all, 3);
    CHECK(qw_sessions_check(model));
    qwen36_model_release(model);
}

/* What is appended to a session is looked for, also when it was asked for something else before. */
TEST(schedule, appended_tokens_are_looked_for)
{
    int32_t tokens[CONTEXT];
    qwen36_model *model = open_model(2, CONTEXT, CONTEXT);
    qwen36_session *first = reader(model, 210, 200, 0), *second = reader(model, 210, 200, 0);
    test_compute(first);
    test_compute(second);
    CHECK_INT(qwen36_session_reset(second, NULL), QWEN36_OK);
    make_list(tokens, 230, 200, 1);
    uint64_t computed = model->counters.computed;
    CHECK_INT(qwen36_session_append(second, tokens, 230, QWEN36_LOGITS_LAST, NULL), QWEN36_OK);
    test_compute(second);
    CHECK_INT(model->counters.computed - computed, 230 - 192);
    qwen36_session_destroy(first);
    qwen36_session_destroy(second);
    qwen36_model_release(model);
}

/* Logits that nobody wanted are wanted after all: what is known is not computed for them again. */
TEST(schedule, forgotten_tokens_are_looked_for)
{
    int32_t tokens[CONTEXT];
    qwen36_generate_options options;
    qwen36_model *model = open_model(2, CONTEXT, CONTEXT);
    qwen36_session *first = reader(model, 210, 200, 0), *second = test_session(model);
    test_compute(first);
    make_list(tokens, 210, 200, 0);
    CHECK_INT(qwen36_session_append(second, tokens, 210, QWEN36_LOGITS_NONE, NULL), QWEN36_OK);
    test_compute(second);
    uint64_t computed = model->counters.computed;
    qwen36_generate_options_init(&options, sizeof options);
    options.max_tokens = 1;
    CHECK_INT(qwen36_generate(second, &options, NULL, NULL), QWEN36_OK);
    CHECK_INT(model->counters.computed - computed, 210 - 192 + 1); /* and the token drawn */
    qwen36_session_destroy(first);
    qwen36_session_destroy(second);
    qwen36_model_release(model);
}

/* The leader finds no memory, again and again; the one that would wait for it needs less and goes on. */
TEST(schedule, nobody_waits_for_one_that_fails)
{
    int32_t tokens[CONTEXT];
    qwen36_status statuses[2] = {QWEN36_PENDING, QWEN36_PENDING};
    qwen36_model_options options = options_for(3, CONTEXT, CONTEXT);
    qwen36_model *model = open_model(1, 64, 64);
    options.cache_bytes = 4 * model->cache.plan.block_bytes;
    qwen36_model_release(model);
    model = test_model(test_checkpoint("dense_untied"), &options);
    qwen36_session *leader = reader(model, 100, 400, 0), *fork = NULL;
    test_compute(leader);
    CHECK_INT(qwen36_session_fork(leader, NULL, &fork, NULL), QWEN36_OK);
    make_list(tokens, 400, 400, 0);
    CHECK_INT(qwen36_session_append(leader, tokens + 100, 300, QWEN36_LOGITS_LAST, NULL), QWEN36_OK);
    qwen36_session *all[2] = {leader, reader(model, 129, 400, 0)};
    for (int32_t i = 0; i < 20 && statuses[1] == QWEN36_PENDING; i++) {
        CHECK_INT(qwen36_step(all, 2, NULL, statuses, NULL), QWEN36_ERROR_CACHE_FULL);
        CHECK_INT(statuses[0], QWEN36_ERROR_CACHE_FULL);
    }
    CHECK_INT(statuses[1], QWEN36_OK);
    CHECK(qw_sessions_check(model));
    qwen36_session_destroy(fork);
    destroy_all(all, 2);
    qwen36_model_release(model);
}

/* Tokens whose logits were wanted, reached without computing them: going back there makes them pending. */
TEST(schedule, rewinding_to_an_adopted_prefix_brings_its_logits)
{
    int32_t tokens[CONTEXT];
    row_judge judge;
    open_judge(&judge);
    qwen36_model *model = open_model(2, CONTEXT, CONTEXT);
    qwen36_session *first = reader(model, 128, 200, 0), *second = reader(model, 128, 200, 0);
    test_compute(first);
    make_list(tokens, 220, 200, 0);
    CHECK_INT(qwen36_session_append(second, tokens + 128, 92, QWEN36_LOGITS_LAST, NULL), QWEN36_OK);
    qw_session_adopt_pending(second);
    CHECK_INT(qwen36_session_computed(second), 128);
    CHECK_INT(qwen36_session_rewind(second, 128, NULL), QWEN36_OK);
    test_compute(second);
    check_logits(&judge, &second, 1);
    qwen36_session_destroy(first);
    qwen36_session_destroy(second);
    CHECK(qw_sessions_check(model));
    qwen36_model_release(model);
    row_judge_close(&judge);
}

/* ---- crowds -------------------------------------------------------------------------------------------- */

static void run_crowd(row_judge *judge, int32_t count)
{
    qwen36_model_options options = options_for(count, 128, 256);
    options.cache_bytes = ((uint64_t)count + 10) * judge->model->cache.plan.block_bytes;
    qwen36_model *model = test_model(test_checkpoint("dense_untied"), &options);
    qwen36_session **all = calloc((size_t)count, sizeof(qwen36_session *));
    uint64_t expected = 64;
    for (int32_t i = 0; i < count; i++) {
        all[i] = reader(model, 70 + i % 7, 66, i % 10);
        expected += (uint64_t)(70 + i % 7 - 64);
    }
    step_until_done(all, (size_t)count, 256);
    CHECK_INT(model->counters.computed, expected);
    check_logits(judge, all, (size_t)count);
    CHECK(qw_sessions_check(model));
    destroy_all(all, (size_t)count);
    qwen36_model_release(model);
    free(all);
}

TEST(schedule, crowds)
{
    row_judge judge;
    open_judge(&judge);
    run_crowd(&judge, CROWD / 4 + 6);
    if (!test_is_slow_backend())
        run_crowd(&judge, CROWD);
    row_judge_close(&judge);
}

enum { MIXED = 6 };

/* Prompts and decoding sessions in the order of `permutation`; small budgets, so that the order matters. */
static void run_permuted(row_judge *judge, const int32_t *permutation, int32_t budget)
{
    qwen36_model *model = open_model(MIXED, CONTEXT, CONTEXT);
    qwen36_session *all[MIXED];
    for (int32_t i = 0; i < MIXED; i++)
        all[permutation[i]] = reader(model, 40 + 60 * i, i % 2 == 0 ? 130 : 70, i);
    step_until_done(all, MIXED, budget);
    check_logits(judge, all, MIXED);
    for (int32_t round = 0; round < 3; round++) {
        int32_t tokens[MIXED];
        CHECK_INT(qwen36_sample(all, MIXED, tokens, NULL, NULL), QWEN36_OK);
        step_until_done(all, MIXED, budget);
        check_logits(judge, all, MIXED);
    }
    destroy_all(all, MIXED);
    qwen36_model_release(model);
}

TEST(schedule, the_order_of_the_array_changes_no_logits)
{
    static const int32_t orders[][MIXED] = {
        {0, 1, 2, 3, 4, 5}, {5, 4, 3, 2, 1, 0}, {3, 0, 5, 1, 4, 2}, {2, 4, 1, 5, 0, 3}};
    row_judge judge;
    open_judge(&judge);
    const int32_t stride = (int32_t)test_stride();
    for (size_t i = 0; i < QW_COUNT_OF(orders); i += test_stride())
        for (int32_t budget = 5 * stride; budget <= 448; budget *= 4 * stride)
            run_permuted(&judge, orders[i], budget);
    row_judge_close(&judge);
}

TEST(schedule, equal_prompts_have_equal_answers)
{
    enum { EQUAL = 12, DRAWN = 20 };
    qwen36_model *model = open_model(EQUAL, CONTEXT, CONTEXT);
    const qwen36_sampling greedy = qw_sampling_plain();
    qwen36_session *all[EQUAL];
    int32_t tokens[EQUAL];
    for (int32_t i = 0; i < EQUAL; i++) {
        all[i] = reader(model, 190, 200, 0);
        CHECK_INT(qwen36_session_set_sampling(all[i], &greedy, NULL), QWEN36_OK);
    }
    for (int32_t n = 0; n < DRAWN; n++) {
        step_until_done(all, EQUAL, 7 * (int32_t)test_stride());
        CHECK_INT(qwen36_sample(all, EQUAL, tokens, NULL, NULL), QWEN36_OK);
        for (int32_t i = 1; i < EQUAL; i++)
            CHECK_INT(tokens[i], tokens[0]);
    }
    CHECK(model->counters.computed < 190 + EQUAL * (190 - 128 + DRAWN));
    destroy_all(all, EQUAL);
    CHECK(qw_sessions_check(model));
    qwen36_model_release(model);
}
