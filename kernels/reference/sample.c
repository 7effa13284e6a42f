/* Sampling by definition: modify the logits, sort all tokens, cut the list, draw. */
#include "kernels/reference/internal.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>

/* ---- the unmodified distribution ---- */

/* log softmax(x) = (x - largest) - log_sum, in this order: both parts of a huge row matter. */
typedef struct normaliser {
    double largest, log_sum;
} normaliser;

static double log_softmax(const normaliser *n, float logit)
{
    return ((double)logit - n->largest) - n->log_sum;
}

/* The status of the row. */
static qwen36_status normalise(const float *logits, int64_t count, normaliser *out)
{
    double largest = -(double)INFINITY, sum = 0;
    for (int64_t i = 0; i < count; i++) {
        if (!(logits[i] < INFINITY))
            return QWEN36_ERROR_NON_FINITE;
        largest = fmax(largest, (double)logits[i]);
    }
    if (isinf(largest))
        return QWEN36_ERROR_NON_FINITE;
    for (int64_t i = 0; i < count; i++)
        sum += exp((double)logits[i] - largest);
    *out = (normaliser){largest, log(sum)};
    return QWEN36_OK;
}

qwen36_status qw_ref_logprob(qw_backend *backend, const qw_logprob_args *args)
{
    (void)backend;
    for (int32_t i = 0; i < args->count; i++) {
        const float *logits = qw_ref_row(&args->logits, args->row[i]);
        normaliser n;
        args->logprob[i] = 0;
        args->status[i] = normalise(logits, args->logits.shape[1], &n);
        if (args->status[i] == QWEN36_OK)
            args->logprob[i] = (float)log_softmax(&n, logits[args->token[i]]);
    }
    return QWEN36_OK;
}

/* ---- the modified logits ---- */

static bool allowed(const qw_sample_row *row, int32_t token)
{
    return row->bitmask == NULL || ((row->bitmask[token / 32] >> (token % 32)) & 1) != 0;
}

/* Overflow upwards ends at the largest finite number, so that a sum of finite parts is never +infinity. */
static float capped(float x)
{
    return x < FLT_MAX ? x : FLT_MAX;
}

static float with_repetition(const qw_sample_row *row, float logit)
{
    return capped(logit > 0 ? logit / row->repetition : logit * row->repetition);
}

/* logit - presence - frequency * occurrences, each step in float32 */
static float with_occurrences(const qw_sample_row *row, float logit, int32_t occurrences)
{
    logit = capped(logit - row->presence);
    return isinf(logit) ? logit : capped(logit - row->frequency * (float)occurrences);
}

/* Counts tokens[begin..]; a forbidden token (-infinity) stays so. */
static void penalise(qw_reference *self, const qw_sample_row *row, int64_t begin, bool output)
{
    for (int64_t i = begin; i < row->token_count; i++)
        self->seen[row->tokens[i]]++;
    for (int64_t i = begin; i < row->token_count; i++) {
        int32_t id = row->tokens[i];
        float *logit = &self->tokens[id].logit;
        if (self->seen[id] > 0 && !isinf(*logit))
            *logit = output ? with_occurrences(row, *logit, self->seen[id]) : with_repetition(row, *logit);
        self->seen[id] = 0;
    }
}

static void modify(qw_reference *self, const qw_sample_row *row, const float *logits, int32_t live)
{
    for (int32_t t = 0; t < self->dims.vocab_size; t++)
        self->tokens[t] = (qw_ref_token){t < live && allowed(row, t) ? logits[t] : -INFINITY, t, 0};
    for (int32_t i = 0; i < row->biases; i++) {
        float *logit = &self->tokens[row->bias_token[i]].logit;
        *logit = isinf(*logit) ? *logit : capped(*logit + row->bias[i]);
    }
    if (row->repetition != 1)
        penalise(self, row, 0, false);
    if (row->presence != 0 || row->frequency != 0)
        penalise(self, row, row->output_begin, true);
}

/* ---- cutting the list ---- */

/* Descending logit, ties by ascending id. */
static int by_logit(const void *a, const void *b)
{
    const qw_ref_token *x = a, *y = b;
    if (x->logit != y->logit)
        return x->logit > y->logit ? -1 : 1;
    return x->id < y->id ? -1 : 1;
}

static int by_id(const void *a, const void *b)
{
    return ((const qw_ref_token *)a)->id < ((const qw_ref_token *)b)->id ? -1 : 1;
}

/* The smallest count of leading tokens whose weight is at least top_p of the weight of all. */
static int32_t cut_top_p(const qw_ref_token *tokens, int32_t count, double top_p)
{
    double total = 0, mass = 0;
    for (int32_t i = 0; i < count; i++)
        total += tokens[i].weight;
    for (int32_t i = 0; i < count; i++) {
        mass += tokens[i].weight;
        if (mass >= top_p * total)
            return i + 1;
    }
    return count;
}

/* Sorts, and returns how many tokens are left by top_k, top_p and min_p. */
static int32_t cut(qw_reference *self, const qw_sample_row *row)
{
    qw_ref_token *tokens = self->tokens;
    int32_t count = self->dims.vocab_size;
    qsort(tokens, (size_t)count, sizeof *tokens, by_logit);
    if (row->temperature == 0 || row->top_k == 1)
        return 1;
    if (row->top_k > 0)
        count = QW_MIN(count, row->top_k);
    for (int32_t i = 0; i < count; i++)
        tokens[i].weight =
            exp(((double)tokens[i].logit - (double)tokens[0].logit) / (double)row->temperature);
    if (row->top_p < 1)
        count = cut_top_p(tokens, count, (double)row->top_p);
    while (tokens[count - 1].weight < (double)row->min_p)
        count--;
    return count;
}

/* The first token, in ascending id, at which the cumulative weight exceeds uniform * total. */
static int32_t draw(qw_ref_token *tokens, int32_t count, double uniform)
{
    double total = 0, mass = 0;
    qsort(tokens, (size_t)count, sizeof *tokens, by_id);
    for (int32_t i = 0; i < count; i++)
        total += tokens[i].weight;
    int32_t last = tokens[0].id;
    for (int32_t i = 0; i < count; i++) {
        mass += tokens[i].weight;
        if (tokens[i].weight > 0)
            last = tokens[i].id;
        if (mass > uniform * total)
            break;
    }
    return last;
}

/* ---- the operation ---- */

static void largest_logprobs(qw_reference *self, qw_sample_row *row, const float *logits, int32_t live,
                             const normaliser *n)
{
    for (int32_t t = 0; t < self->dims.vocab_size; t++)
        self->tokens[t] = (qw_ref_token){t < live ? logits[t] : -INFINITY, t, 0};
    qsort(self->tokens, (size_t)self->dims.vocab_size, sizeof *self->tokens, by_logit);
    const int32_t most = QW_MIN(row->logprobs, self->dims.vocab_size);
    for (int32_t i = 0; i < most && !isinf(self->tokens[i].logit); i++) {
        row->top_token[i] = self->tokens[i].id;
        row->top_logprob[i] = (float)log_softmax(n, self->tokens[i].logit);
        row->top_count = i + 1;
    }
}

static void sample_row(qw_reference *self, qw_sample_row *row, const float *logits, int32_t live)
{
    normaliser n;
    row->token = -1;
    row->logprob = 0;
    row->top_count = 0;
    row->status = normalise(logits, live, &n);
    if (row->status != QWEN36_OK)
        return;
    modify(self, row, logits, live);
    int32_t count = cut(self, row);
    if (isinf(self->tokens[0].logit)) {
        row->status = QWEN36_ERROR_NO_CANDIDATE;
        return;
    }
    row->token = count == 1 ? self->tokens[0].id : draw(self->tokens, count, row->uniform);
    if (row->logprobs < 0)
        return;
    row->logprob = (float)log_softmax(&n, logits[row->token]);
    if (row->logprobs > 0)
        largest_logprobs(self, row, logits, live, &n);
}

qwen36_status qw_ref_sample(qw_backend *backend, qw_sample_args *args)
{
    for (int32_t i = 0; i < args->count; i++)
        sample_row(qw_ref_self(backend), &args->row[i], qw_ref_row(&args->logits, args->row[i].row),
                   args->live);
    return QWEN36_OK;
}
