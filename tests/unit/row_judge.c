#include "tests/unit/row_judge.h"
#include "tests/harness.h"
#include "tests/unit/checkpoint.h"
#include "tests/unit/law_table.h"

#include <math.h>

enum { PLACES = 1 << 17 };

void row_judge_open(row_judge *judge, const char *directory, const qwen36_model_options *options)
{
    qwen36_model_options ours = *options;
    ours.max_sessions = 1;
    ours.max_batch_tokens = options->context_length;
    ours.prefix_reuse = 0;
    ours.cache_bytes = 0;
    *judge = (row_judge){.model = test_model(directory, &ours), .context = options->context_length};
    judge->vocab_size = judge->model->dims.vocab_size;
    judge->list = calloc(PLACES, sizeof *judge->list);
    judge->row = calloc(PLACES, sizeof *judge->row);
    judge->logits = calloc(PLACES, sizeof *judge->logits);
    judge->bound = law_bound("cut", options);
    CHECK(judge->list != NULL && judge->row != NULL && judge->logits != NULL);
}

void row_judge_close(row_judge *judge)
{
    qwen36_model_release(judge->model);
    for (int32_t i = 0; i < PLACES; i++)
        free(judge->logits[i]);
    free(judge->logits);
    free(judge->list);
    free(judge->row);
    *judge = (row_judge){0};
}

static qw_hash128 hash_list(const int32_t *tokens, int32_t count)
{
    return qw_hash_chain((qw_hash128){1, 1}, tokens, (size_t)count * sizeof *tokens);
}

static qw_hash128 hash_row(const row_judge *judge, const float *logits)
{
    return qw_hash_chain((qw_hash128){2, 2}, logits, (size_t)judge->vocab_size * sizeof *logits);
}

static bool equal(qw_hash128 a, qw_hash128 b)
{
    return a.low == b.low && a.high == b.high;
}

static bool is_free(qw_hash128 hash)
{
    return equal(hash, (qw_hash128){0, 0});
}

/* Where the list is, or would be. */
static int32_t place_of(const row_judge *judge, qw_hash128 list)
{
    int32_t at = (int32_t)(list.low % PLACES);
    while (!is_free(judge->list[at]) && !equal(judge->list[at], list))
        at = (at + 1) % PLACES;
    return at;
}

typedef struct lesson {
    row_judge *judge;
    const int32_t *tokens;
} lesson;

static void remember(void *user, qwen36_session *session, int32_t position, const float *logits,
                     int32_t vocab_size)
{
    const lesson *l = user;
    (void)session;
    qw_hash128 list = hash_list(l->tokens, position + 1);
    int32_t at = place_of(l->judge, list);
    CHECK(l->judge->known < PLACES / 4 * 3);
    l->judge->known += is_free(l->judge->list[at]);
    l->judge->list[at] = list;
    l->judge->row[at] = hash_row(l->judge, logits);
    if (l->judge->bound > 0 && l->judge->logits[at] == NULL) {
        const size_t bytes = (size_t)vocab_size * sizeof *logits;
        l->judge->logits[at] = malloc(bytes);
        CHECK(l->judge->logits[at] != NULL);
        memcpy(l->judge->logits[at], logits, bytes);
    }
}

static qwen36_session *compute(row_judge *judge, const int32_t *tokens, int32_t count)
{
    lesson l = {judge, tokens};
    qwen36_session *session = NULL;
    qwen36_session_options options = {.struct_size = sizeof options, .context_length = judge->context};
    options.on_logits = remember;
    options.user = &l;
    CHECK_INT(qwen36_session_create(judge->model, &options, &session, NULL), QWEN36_OK);
    CHECK_INT(qwen36_session_append(session, tokens, (size_t)count, QWEN36_LOGITS_ALL, NULL), QWEN36_OK);
    CHECK_INT(qwen36_step(&session, 1, NULL, NULL, NULL), QWEN36_OK);
    judge->computed++;
    return session;
}

bool row_judge_agrees(row_judge *judge, const int32_t *tokens, int32_t count, const float *logits)
{
    qw_hash128 list = hash_list(tokens, count);
    if (is_free(judge->list[place_of(judge, list)]))
        qwen36_session_destroy(compute(judge, tokens, count));
    const int32_t at = place_of(judge, list);
    if (judge->bound > 0)
        return law_rows_agree(logits, judge->logits[at], judge->vocab_size, judge->bound);
    return equal(judge->row[at], hash_row(judge, logits));
}

/* A score is a logit less the logarithm of a sum, and either may be off by the bound of the largest logit.
 * Largest logits are not at hand here; scores that say anything are as large. */
static bool scores_agree(const float *a, const float *b, int32_t count, double bound)
{
    double scale = 1;
    for (int32_t i = 0; i < count; i++)
        scale = fmax(scale, fabs((double)b[i]));
    for (int32_t i = 0; i < count; i++)
        if (!(fabs((double)a[i] - (double)b[i]) <= 2 * bound * scale))
            return false;
    return true;
}

bool row_judge_agrees_on_scores(row_judge *judge, const int32_t *tokens, int32_t begin, int32_t count,
                                const float *scores)
{
    const size_t bytes = (size_t)(count - begin) * sizeof *scores;
    float *expected = malloc(bytes);
    qwen36_session *session = compute(judge, tokens, begin);
    CHECK_INT(qwen36_session_score(session, tokens + begin, (size_t)(count - begin), expected, NULL),
              QWEN36_OK);
    qwen36_session_destroy(session);
    const bool agrees = judge->bound > 0 ? scores_agree(scores, expected, count - begin, judge->bound)
                                         : memcmp(scores, expected, bytes) == 0;
    free(expected);
    return agrees;
}
