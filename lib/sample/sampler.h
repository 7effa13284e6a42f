/* The sampler of a session: its options, its biases and bitmask, and what the last sample recorded.
 *
 * The session owns it; the memory for the bitmask is taken once, that of the biases when they are set,
 * nothing while sampling. The bridge to the backend: qw_sampler_fill_row describes the next draw, and
 * qw_sampler_take keeps the log-probabilities of the row when it has been drawn.
 */
#ifndef QW_SAMPLE_SAMPLER_H
#define QW_SAMPLE_SAMPLER_H

#include "lib/backend.h"
#include "lib/base/base.h"

typedef struct qw_sampler {
    qwen36_sampling options;
    int32_t vocab_size;

    int32_t *bias_token; /* [bias_count] */
    float *bias;         /* [bias_count] */
    size_t bias_count, bias_capacity;
    uint32_t *bitmask; /* [bitmask_words] */
    size_t bitmask_words;
    bool has_bitmask;

    /* Of the last sample. The row under way writes top_token and top_logprob; top_count becomes valid
     * with qw_sampler_take. */
    bool has_logprob;
    float logprob;
    int32_t top_count;
    int32_t top_token[QWEN36_LOGPROBS_MAX];
    float top_logprob[QWEN36_LOGPROBS_MAX];
} qw_sampler;

/* Greedy sampling with everything else off: what stands where a model gives no defaults. */
qwen36_sampling qw_sampling_plain(void);

/* QWEN36_ERROR_ARGUMENT naming the first field outside its range. */
qwen36_status qw_sampling_check(const qwen36_sampling *sampling, qwen36_error *error);

/* On failure nothing stays allocated. Destroy accepts a zeroed sampler. */
qwen36_status qw_sampler_init(qw_sampler *sampler, const qw_allocator *allocator, int32_t vocab_size,
                              const qwen36_sampling *defaults);
void qw_sampler_destroy(qw_sampler *sampler, const qw_allocator *allocator);

/* Everything of `from`, into an initialised sampler of the same model; OUT_OF_MEMORY. */
qwen36_status qw_sampler_copy(qw_sampler *sampler, const qw_sampler *from, const qw_allocator *allocator);

/* Checks, then replaces; on failure the sampler is unchanged. */
qwen36_status qw_sampler_set_options(qw_sampler *sampler, const qwen36_sampling *options,
                                     qwen36_error *error);
qwen36_status qw_sampler_set_bias(qw_sampler *sampler, const qw_allocator *allocator, const int32_t *tokens,
                                  const float *bias, size_t count, qwen36_error *error);
qwen36_status qw_sampler_set_bitmask(qw_sampler *sampler, const uint32_t *words, size_t count,
                                     qwen36_error *error);

/* Forgets the log-probabilities of the last sample. */
void qw_sampler_forget(qw_sampler *sampler);

/* The draw of the token at index `count` of the timeline tokens[0..count), of which the output begins at
 * output_begin. The row borrows everything it points to. */
void qw_sampler_fill_row(qw_sampler *sampler, const int32_t *tokens, int64_t count, int64_t output_begin,
                         int32_t logits_row, qw_sample_row *row);

/* After the backend has drawn the row. */
void qw_sampler_take(qw_sampler *sampler, const qw_sample_row *row);

#endif
