#include "lib/sample/sampler.h"

#include "lib/sample/random.h"

#include <float.h>
#include <string.h>

/* ---- options --------------------------------------------------------------------------------------- */

qwen36_sampling qw_sampling_plain(void)
{
    return (qwen36_sampling){
        .struct_size = sizeof(qwen36_sampling), .top_p = 1.0F, .repetition_penalty = 1.0F, .logprobs = -1};
}

/* False for a NaN. */
static bool within(float x, float low, float high)
{
    return x >= low && x <= high;
}

qwen36_status qw_sampling_check(const qwen36_sampling *s, qwen36_error *error)
{
    const struct {
        bool good;
        const char *text;
    } rules[] = {
        {s->top_k >= 0, "top_k must be at least 0"},
        {within(s->temperature, 0.0F, FLT_MAX), "temperature must be finite and at least 0"},
        {within(s->top_p, FLT_TRUE_MIN, 1.0F), "top_p must be in (0, 1]"},
        {within(s->min_p, 0.0F, 1.0F), "min_p must be in [0, 1]"},
        {within(s->repetition_penalty, FLT_TRUE_MIN, FLT_MAX),
         "repetition_penalty must be finite and above 0"},
        {within(s->presence_penalty, -FLT_MAX, FLT_MAX), "presence_penalty must be finite"},
        {within(s->frequency_penalty, -FLT_MAX, FLT_MAX), "frequency_penalty must be finite"},
        {s->logprobs >= -1 && s->logprobs <= QWEN36_LOGPROBS_MAX, "logprobs must be in [-1, 20]"},
        {s->reserved == 0, "reserved must be 0"},
    };
    for (size_t i = 0; i < QW_COUNT_OF(rules); i++)
        if (!rules[i].good)
            return qw_fail(error, QWEN36_ERROR_ARGUMENT, "%s", rules[i].text);
    return QWEN36_OK;
}

qwen36_status qw_sampler_set_options(qw_sampler *sampler, const qwen36_sampling *options, qwen36_error *error)
{
    qwen36_status status = qw_sampling_check(options, error);
    if (status == QWEN36_OK)
        sampler->options = *options;
    return status;
}

/* ---- life ------------------------------------------------------------------------------------------- */

qwen36_status qw_sampler_init(qw_sampler *sampler, const qw_allocator *allocator, int32_t vocab_size,
                              const qwen36_sampling *defaults)
{
    memset(sampler, 0, sizeof *sampler);
    sampler->options = *defaults;
    sampler->vocab_size = vocab_size;
    sampler->bitmask_words = ((size_t)vocab_size + 31) / 32;
    sampler->bitmask = qw_alloc(allocator, sampler->bitmask_words, sizeof *sampler->bitmask);
    return sampler->bitmask != NULL ? QWEN36_OK : QWEN36_ERROR_OUT_OF_MEMORY;
}

void qw_sampler_destroy(qw_sampler *sampler, const qw_allocator *allocator)
{
    qw_free(allocator, sampler->bitmask);
    qw_free(allocator, sampler->bias_token);
    qw_free(allocator, sampler->bias);
    memset(sampler, 0, sizeof *sampler);
}

/* ---- bias and bitmask -------------------------------------------------------------------------------- */

/* -infinity to FLT_MAX; false for a NaN. */
static bool bias_allowed(float bias)
{
    return bias <= FLT_MAX;
}

/* Each token in range and once. */
static qwen36_status check_bias(const qw_sampler *sampler, const int32_t *tokens, const float *bias,
                                size_t count, uint32_t *seen, qwen36_error *error)
{
    for (size_t i = 0; i < count; i++) {
        const int32_t t = tokens[i];
        if (t < 0 || t >= sampler->vocab_size)
            return qw_fail(error, QWEN36_ERROR_TOKEN_ID, "bias: token %d is not in 0..%d", (int)t,
                           (int)sampler->vocab_size - 1);
        if (!bias_allowed(bias[i]))
            return qw_fail(error, QWEN36_ERROR_ARGUMENT, "bias of token %d must be finite or -infinity",
                           (int)t);
        if (((seen[t / 32] >> (t % 32)) & 1) != 0)
            return qw_fail(error, QWEN36_ERROR_ARGUMENT, "bias: token %d appears twice", (int)t);
        seen[t / 32] |= 1U << (t % 32);
    }
    return QWEN36_OK;
}

static qwen36_status copy_bias(qw_sampler *sampler, const qw_allocator *allocator, const int32_t *tokens,
                               const float *bias, size_t count, qwen36_error *error)
{
    if (count > sampler->bias_capacity) {
        int32_t *new_tokens = qw_alloc(allocator, count, sizeof *new_tokens);
        float *new_bias = qw_alloc(allocator, count, sizeof *new_bias);
        if (new_tokens == NULL || new_bias == NULL) {
            qw_free(allocator, new_tokens);
            qw_free(allocator, new_bias);
            return qw_fail_memory(error, count * (sizeof *new_tokens + sizeof *new_bias));
        }
        qw_free(allocator, sampler->bias_token);
        qw_free(allocator, sampler->bias);
        sampler->bias_token = new_tokens;
        sampler->bias = new_bias;
        sampler->bias_capacity = count;
    }
    if (count > 0) {
        memcpy(sampler->bias_token, tokens, count * sizeof *tokens);
        memcpy(sampler->bias, bias, count * sizeof *bias);
    }
    sampler->bias_count = count;
    return QWEN36_OK;
}

qwen36_status qw_sampler_set_bias(qw_sampler *sampler, const qw_allocator *allocator, const int32_t *tokens,
                                  const float *bias, size_t count, qwen36_error *error)
{
    if (count > 0 && (tokens == NULL || bias == NULL))
        return qw_fail(error, QWEN36_ERROR_ARGUMENT, "bias: NULL with count %zu", count);
    uint32_t *seen = qw_alloc(allocator, sampler->bitmask_words, sizeof *seen);
    if (seen == NULL)
        return qw_fail_memory(error, sampler->bitmask_words * sizeof *seen);
    qwen36_status status = check_bias(sampler, tokens, bias, count, seen, error);
    qw_free(allocator, seen);
    if (status != QWEN36_OK)
        return status;
    return copy_bias(sampler, allocator, tokens, bias, count, error);
}

qwen36_status qw_sampler_copy(qw_sampler *sampler, const qw_sampler *from, const qw_allocator *allocator)
{
    qwen36_status status =
        copy_bias(sampler, allocator, from->bias_token, from->bias, from->bias_count, NULL);
    if (status != QWEN36_OK)
        return status;
    sampler->options = from->options;
    memcpy(sampler->bitmask, from->bitmask, from->bitmask_words * sizeof *from->bitmask);
    sampler->has_bitmask = from->has_bitmask;
    sampler->has_logprob = from->has_logprob;
    sampler->logprob = from->logprob;
    sampler->top_count = from->top_count;
    memcpy(sampler->top_token, from->top_token, sizeof sampler->top_token);
    memcpy(sampler->top_logprob, from->top_logprob, sizeof sampler->top_logprob);
    return QWEN36_OK;
}

qwen36_status qw_sampler_set_bitmask(qw_sampler *sampler, const uint32_t *words, size_t count,
                                     qwen36_error *error)
{
    if (words == NULL && count == 0) {
        sampler->has_bitmask = false;
        return QWEN36_OK;
    }
    if (words == NULL || count != sampler->bitmask_words)
        return qw_fail(error, QWEN36_ERROR_ARGUMENT, "bitmask: %zu words, expected %zu", count,
                       sampler->bitmask_words);
    memcpy(sampler->bitmask, words, count * sizeof *words);
    sampler->has_bitmask = true;
    return QWEN36_OK;
}

/* ---- rows -------------------------------------------------------------------------------------------- */

void qw_sampler_forget(qw_sampler *sampler)
{
    sampler->has_logprob = false;
    sampler->top_count = 0;
}

void qw_sampler_fill_row(qw_sampler *sampler, const int32_t *tokens, int64_t count, int64_t output_begin,
                         int32_t logits_row, qw_sample_row *row)
{
    const qwen36_sampling *o = &sampler->options;
    *row = (qw_sample_row){.row = logits_row,
                           .top_k = o->top_k,
                           .temperature = o->temperature,
                           .top_p = o->top_p,
                           .min_p = o->min_p,
                           .repetition = o->repetition_penalty,
                           .presence = o->presence_penalty,
                           .frequency = o->frequency_penalty,
                           .logprobs = o->logprobs,
                           .biases = (int32_t)sampler->bias_count,
                           .uniform = qw_draw_uniform(o->seed, o->stream, (uint64_t)count),
                           .tokens = tokens,
                           .token_count = count,
                           .output_begin = output_begin,
                           .bitmask = sampler->has_bitmask ? sampler->bitmask : NULL,
                           .bias_token = sampler->bias_token,
                           .bias = sampler->bias,
                           .token = -1,
                           .top_token = sampler->top_token,
                           .top_logprob = sampler->top_logprob};
}

void qw_sampler_take(qw_sampler *sampler, const qw_sample_row *row)
{
    qw_sampler_forget(sampler);
    if (row->status != QWEN36_OK || row->logprobs < 0)
        return;
    sampler->has_logprob = true;
    sampler->logprob = row->logprob;
    sampler->top_count = row->top_count;
}
