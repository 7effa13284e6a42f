/* Random rows for the sample operation, with every option on and off, and the comparison of what two backends
 * made of one: what the tests of all backends share. */
#ifndef QW_TESTS_SAMPLE_ROWS_H
#define QW_TESTS_SAMPLE_ROWS_H

#include "lib/backend.h"
#include "lib/sample/random.h"
#include "tests/harness.h"

#include <float.h>
#include <math.h>

enum { TOP = QWEN36_LOGPROBS_MAX };

/* Everything off: a plain draw. */
static inline qw_sample_row plain_row(void)
{
    return (qw_sample_row){.temperature = 1, .top_p = 1, .repetition = 1, .logprobs = -1};
}

typedef struct random_source {
    uint64_t seed, next;
} random_source;

static inline double uniform(random_source *r)
{
    return qw_draw_uniform(r->seed, 77, r->next++);
}

static inline int32_t below(random_source *r, int32_t n)
{
    return (int32_t)(uniform(r) * n);
}

static inline float normal(random_source *r)
{
    return (float)(sqrt(-2 * log(1 - uniform(r))) * cos(6.283185307179586 * uniform(r)));
}

static inline void random_logits(random_source *r, float *x, int32_t vocab)
{
    const int32_t kind = below(r, 6);
    const float scale = (float)exp(uniform(r) * 5 - 2);
    for (int32_t i = 0; i < vocab; i++) {
        x[i] = normal(r) * scale;
        if (kind == 1)
            x[i] = (float)(below(r, 4) - 2); /* many ties, zeros of either sign among them */
        if (kind == 2 && below(r, 4) != 0)
            x[i] = -INFINITY;
        if (kind == 3)
            x[i] = 1.5F;
        if (kind == 4 && below(r, 50) == 0)
            x[i] = below(r, 2) ? FLT_MAX : -FLT_MAX;
        if (kind == 1 && x[i] == 0 && below(r, 2))
            x[i] = -0.0F;
    }
    x[below(r, vocab)] = 0.5F; /* something finite */
}

/* What the pointers of a row point to. */
typedef struct row_data {
    int32_t tokens[300], bias_token[8], top_token[TOP];
    float bias[8], top_logprob[TOP];
    uint32_t bitmask[256];
} row_data;

static inline void random_penalties(random_source *r, int32_t vocab, qw_sample_row *row, row_data *data)
{
    row->tokens = data->tokens;
    row->token_count = below(r, 300);
    row->output_begin = row->token_count > 0 ? below(r, (int32_t)row->token_count + 1) : 0;
    const int32_t range = below(r, 2) ? vocab : QW_MIN(vocab, 20);
    for (int i = 0; i < 300; i++)
        data->tokens[i] = below(r, range);
    if (below(r, 2))
        row->repetition = (float)(0.5 + uniform(r));
    if (below(r, 2))
        row->presence = (float)(2 * uniform(r) - 1);
    if (below(r, 2))
        row->frequency = (float)(uniform(r) - 0.5);
}

static inline void random_bias(random_source *r, int32_t vocab, qw_sample_row *row, row_data *data)
{
    row->biases = QW_MIN(vocab, 1 + below(r, 8));
    row->bias_token = data->bias_token;
    row->bias = data->bias;
    for (int32_t i = 0; i < row->biases; i++) {
        data->bias_token[i] = i * (vocab / row->biases);
        data->bias[i] = below(r, 3) == 0 ? -INFINITY : 3 * normal(r);
    }
}

static inline void random_row(random_source *r, int32_t vocab, qw_sample_row *row, row_data *data)
{
    static const float temperatures[] = {0, 0.01F, 0.6F, 0.7F, 1, 1, 2, 50};
    static const float top_ps[] = {1, 1, 0.95F, 0.8F, 0.5F, 0.1F, 1e-6F, 0.999999F};
    static const float min_ps[] = {0, 0, 0, 0.05F, 0.5F, 1};
    const int32_t top_ks[] = {0, 0, 1, 2, 20, 20, 1 + below(r, vocab), vocab, INT32_MAX};
    *row = plain_row();
    row->temperature = temperatures[below(r, QW_COUNT_OF(temperatures))];
    row->top_p = top_ps[below(r, QW_COUNT_OF(top_ps))];
    row->min_p = min_ps[below(r, QW_COUNT_OF(min_ps))];
    row->top_k = top_ks[below(r, QW_COUNT_OF(top_ks))];
    row->uniform = uniform(r);
    row->logprobs = below(r, TOP + 2) - 1;
    row->top_token = data->top_token;
    row->top_logprob = data->top_logprob;
    if (below(r, 2))
        random_penalties(r, vocab, row, data);
    if (below(r, 3) == 0)
        random_bias(r, vocab, row, data);
    if (below(r, 3) == 0) {
        row->bitmask = data->bitmask;
        for (int i = 0; i < 256; i++)
            data->bitmask[i] = (uint32_t)(uniform(r) * 4294967296.0) | (below(r, 3) == 0 ? 0xFFFFFFFFU : 0);
    }
}

static inline void check_logprob(float actual, float expected)
{
    if (actual != expected) /* both may be -infinity */
        CHECK_MSG(fabs((double)actual - (double)expected) <= 2e-6 * (2 + fabs((double)expected)),
                  "%.9g, %.9g", (double)actual, (double)expected);
}

static inline void check_logprobs(const qw_sample_row *row, const qw_sample_row *expected)
{
    check_logprob(row->logprob, expected->logprob);
    CHECK_INT(row->top_count, expected->top_count);
    for (int32_t i = 0; i < row->top_count; i++) {
        CHECK_INT(row->top_token[i], expected->top_token[i]);
        check_logprob(row->top_logprob[i], expected->top_logprob[i]);
    }
}

#endif
