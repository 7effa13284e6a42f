/* Exported functions of section 9: sampling options of a session. */
#include "lib/api/api.h"

#include <string.h>

qwen36_sampling qw_sampling_defaults(const qwen36_model *model)
{
    const qw_generation *g = &model->generation;
    return (qwen36_sampling){.struct_size = sizeof(qwen36_sampling),
                             .top_k = g->top_k,
                             .temperature = g->do_sample ? g->temperature : 0,
                             .top_p = g->top_p,
                             .min_p = g->min_p,
                             .repetition_penalty = g->repetition_penalty,
                             .presence_penalty = g->presence_penalty,
                             .frequency_penalty = g->frequency_penalty,
                             .logprobs = -1};
}

qwen36_status qwen36_sampling_init(const qwen36_model *model, qwen36_sampling *sampling, size_t size)
{
    qwen36_status status = qw_enter_model(model, NULL);
    if (status != QWEN36_OK || sampling == NULL)
        return status != QWEN36_OK ? status : QWEN36_ERROR_ARGUMENT;
    qwen36_sampling defaults = qw_sampling_defaults(model);
    qw_defaults_write(sampling, size, &defaults, sizeof defaults);
    return QWEN36_OK;
}

qwen36_status qwen36_session_set_sampling(qwen36_session *session, const qwen36_sampling *sampling,
                                          qwen36_error *error)
{
    qwen36_status status = qw_enter_session(session, error);
    if (status != QWEN36_OK)
        return status;
    if (sampling == NULL)
        return qw_fail(error, QWEN36_ERROR_ARGUMENT, "the sampling options are NULL");
    qwen36_sampling ours;
    status = qw_options_adopt(&ours, sizeof ours, sampling, QW_SIZE_THROUGH(qwen36_sampling, stream), error);
    ours.struct_size = sizeof ours;
    return status == QWEN36_OK ? qw_sampler_set_options(&session->sampler, &ours, error) : status;
}

qwen36_status qwen36_session_get_sampling(const qwen36_session *session, qwen36_sampling *sampling,
                                          qwen36_error *error)
{
    qwen36_status status = qw_enter_session(session, error);
    if (status != QWEN36_OK)
        return status;
    if (sampling == NULL)
        return qw_fail(error, QWEN36_ERROR_ARGUMENT, "the place for the sampling options is NULL");
    return qw_output_write(sampling, &session->sampler.options, sizeof session->sampler.options, error);
}

qwen36_status qwen36_session_set_bias(qwen36_session *session, const int32_t *tokens, const float *bias,
                                      size_t count, qwen36_error *error)
{
    qwen36_status status = qw_enter_session(session, error);
    if (status != QWEN36_OK)
        return status;
    if (count > 0 && (tokens == NULL || bias == NULL))
        return qw_fail(error, QWEN36_ERROR_ARGUMENT, "the tokens or their biases are NULL");
    return qw_sampler_set_bias(&session->sampler, &session->model->allocator, tokens, bias, count, error);
}

qwen36_status qwen36_session_set_bitmask(qwen36_session *session, const uint32_t *words, size_t count,
                                         qwen36_error *error)
{
    qwen36_status status = qw_enter_session(session, error);
    return status == QWEN36_OK ? qw_sampler_set_bitmask(&session->sampler, words, count, error) : status;
}

qwen36_status qwen36_session_logprobs(const qwen36_session *session, float *chosen, int32_t *tokens,
                                      float *values, size_t capacity, size_t *count, qwen36_error *error)
{
    qwen36_status status = qw_enter_session(session, error);
    if (status != QWEN36_OK)
        return status;
    const qw_sampler *sampler = &session->sampler;
    if (count == NULL || (capacity > 0 && (tokens == NULL || values == NULL)))
        return qw_fail(error, QWEN36_ERROR_ARGUMENT, "the place for the log-probs or their count is NULL");
    if (!sampler->has_logprob)
        return qw_fail(error, QWEN36_ERROR_NO_LOGITS, "the last sample recorded no log-probs");
    *count = (size_t)sampler->top_count;
    if (*count > capacity)
        return qw_fail(error, QWEN36_ERROR_BUFFER_TOO_SMALL, "%zu log-probs do not fit into %zu", *count,
                       capacity);
    if (chosen != NULL)
        *chosen = sampler->logprob;
    if (*count > 0) {
        memcpy(tokens, sampler->top_token, *count * sizeof *tokens);
        memcpy(values, sampler->top_logprob, *count * sizeof *values);
    }
    return QWEN36_OK;
}
