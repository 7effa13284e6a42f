/* Exported functions of section 7: the session. */
#include "lib/api/api.h"

#include "lib/os/process.h"

#include <string.h>

static qwen36_session_options session_defaults(const qwen36_model *model)
{
    return (qwen36_session_options){.struct_size = sizeof(qwen36_session_options),
                                    .context_length = model->context};
}

qwen36_status qwen36_session_options_init(const qwen36_model *model, qwen36_session_options *options,
                                          size_t size)
{
    qwen36_status status = qw_enter_model(model, NULL);
    if (status != QWEN36_OK || options == NULL)
        return status != QWEN36_OK ? status : QWEN36_ERROR_ARGUMENT;
    qwen36_session_options defaults = session_defaults(model);
    qw_defaults_write(options, size, &defaults, sizeof defaults);
    return QWEN36_OK;
}

qwen36_status qw_session_options_adopt(const qwen36_model *model, const qwen36_session_options *given,
                                       qwen36_session_options *ours, qwen36_error *error)
{
    *ours = session_defaults(model);
    if (given == NULL)
        return QWEN36_OK;
    qwen36_status status = qw_options_adopt(ours, sizeof *ours, given,
                                            QW_SIZE_THROUGH(qwen36_session_options, prefix_space), error);
    if (status == QWEN36_OK && (ours->context_length < 1 || ours->context_length > model->context))
        status = qw_fail(error, QWEN36_ERROR_ARGUMENT, "context_length is %d, outside 1..%d",
                         ours->context_length, model->context);
    return status;
}

static qwen36_status open_session(qwen36_model *model, const qwen36_session_options *options,
                                  qwen36_session **session, qwen36_error *error)
{
    qwen36_sampling sampling = qw_sampling_defaults(model);
    qwen36_status status = qw_session_open(model, options, &sampling, session, error);
    if (status == QWEN36_OK)
        qwen36_model_retain(model);
    return status;
}

qwen36_status qwen36_session_create(qwen36_model *model, const qwen36_session_options *options,
                                    qwen36_session **session, qwen36_error *error)
{
    qwen36_status status = qw_enter_model(model, error);
    if (session != NULL)
        *session = NULL;
    if (status != QWEN36_OK)
        return status;
    if (session == NULL)
        return qw_fail(error, QWEN36_ERROR_ARGUMENT, "the place for the session is NULL");
    if (qw_model_has_turn(model))
        return qw_fail(error, QWEN36_ERROR_BUSY, "called from a callback of a call on the same model");
    qwen36_session_options ours;
    status = qw_session_options_adopt(model, options, &ours, error);
    if (status == QWEN36_OK)
        status = open_session(model, &ours, session, error);
    return status;
}

/* In a child process nothing is freed; see qwen36_model_release. */
void qwen36_session_destroy(qwen36_session *session)
{
    if (session == NULL || session->process != qw_process_id() || session->in_call)
        return;
    qwen36_model *model = session->model;
    qw_session_close(session);
    qwen36_model_release(model);
}

static qwen36_status enter_with_tokens(qwen36_session *session, const int32_t *tokens, size_t count,
                                       qwen36_error *error)
{
    qwen36_status status = qw_enter_session(session, error);
    if (status == QWEN36_OK && tokens == NULL && count > 0)
        status = qw_fail(error, QWEN36_ERROR_ARGUMENT, "the tokens are NULL");
    return status;
}

qwen36_status qwen36_session_append(qwen36_session *session, const int32_t *tokens, size_t count,
                                    int32_t logits, qwen36_error *error)
{
    qwen36_status status = enter_with_tokens(session, tokens, count, error);
    if (status != QWEN36_OK)
        return status;
    if (logits < QWEN36_LOGITS_NONE || logits > QWEN36_LOGITS_ALL)
        return qw_fail(error, QWEN36_ERROR_ARGUMENT, "logits is %d, outside 0..2", logits);
    return qw_session_append(session, tokens, count, logits, error);
}

qwen36_status qwen36_session_sync(qwen36_session *session, const int32_t *tokens, size_t count,
                                  size_t *reused, qwen36_error *error)
{
    qwen36_status status = enter_with_tokens(session, tokens, count, error);
    return status == QWEN36_OK ? qw_session_sync(session, tokens, count, reused, error) : status;
}

qwen36_status qwen36_session_rewind(qwen36_session *session, size_t length, qwen36_error *error)
{
    qwen36_status status = qw_enter_session(session, error);
    return status == QWEN36_OK ? qw_session_rewind(session, length, error) : status;
}

qwen36_status qwen36_session_fork(const qwen36_session *session, const qwen36_session_options *options,
                                  qwen36_session **fork, qwen36_error *error)
{
    qwen36_status status = qw_enter_session(session, error);
    if (fork != NULL)
        *fork = NULL;
    if (status != QWEN36_OK)
        return status;
    if (fork == NULL)
        return qw_fail(error, QWEN36_ERROR_ARGUMENT, "the place for the fork is NULL");
    qwen36_session_options ours = {.struct_size = sizeof ours,
                                   .context_length = session->capacity,
                                   .on_logits = session->on_logits,
                                   .user = session->user};
    if (options != NULL)
        status = qw_session_options_adopt(session->model, options, &ours, error);
    if (status == QWEN36_OK)
        status = qw_session_fork(session, &ours, fork, error);
    if (status == QWEN36_OK)
        qwen36_model_retain(session->model);
    return status;
}

qwen36_status qwen36_session_reset(qwen36_session *session, qwen36_error *error)
{
    return qwen36_session_rewind(session, 0, error);
}

size_t qwen36_session_length(const qwen36_session *session)
{
    return session == NULL ? 0 : (size_t)session->length;
}

size_t qwen36_session_computed(const qwen36_session *session)
{
    return session == NULL ? 0 : (size_t)session->computed;
}

size_t qwen36_session_capacity(const qwen36_session *session)
{
    return session == NULL ? 0 : (size_t)session->capacity;
}

qwen36_status qwen36_session_tokens(const qwen36_session *session, size_t begin, size_t count,
                                    int32_t *tokens, qwen36_error *error)
{
    qwen36_status status = qw_enter_session(session, error);
    if (status != QWEN36_OK)
        return status;
    if (tokens == NULL && count > 0)
        return qw_fail(error, QWEN36_ERROR_ARGUMENT, "the place for the tokens is NULL");
    size_t length = (size_t)session->length;
    if (begin > length || count > length - begin)
        return qw_fail(error, QWEN36_ERROR_ARGUMENT, "tokens %zu..%zu are outside a timeline of %zu", begin,
                       begin + count, length);
    if (count > 0)
        memcpy(tokens, session->tokens + begin, count * sizeof *tokens);
    return QWEN36_OK;
}

void qwen36_session_interrupt(qwen36_session *session)
{
    if (session != NULL)
        atomic_store_explicit(&session->interrupted, 1, memory_order_relaxed);
}

/* From a device they are brought between steps. */
static qwen36_status show_logits(qwen36_model *m, int32_t row, const float **logits, qwen36_error *error)
{
    const bool on_device = m->backend.space == QW_SPACE_DEVICE;
    qwen36_status status = on_device ? qw_model_take_turn(m, error) : QWEN36_OK;
    if (status != QWEN36_OK)
        return status;
    status = qw_cache_show_row(&m->cache, &m->allocator, &m->backend, row, logits);
    if (on_device)
        qw_model_give_turn(m);
    if (status == QWEN36_OK)
        return status;
    *logits = NULL;
    return qw_fail(error, qw_model_note(m, status), "the logits could not be brought to the host");
}

qwen36_status qwen36_session_logits(const qwen36_session *session, const float **logits, int32_t *vocab_size,
                                    qwen36_error *error)
{
    qwen36_status status = qw_enter_session(session, error);
    if (status != QWEN36_OK)
        return status;
    if (logits == NULL)
        return qw_fail(error, QWEN36_ERROR_ARGUMENT, "the place for the logits is NULL");
    *logits = NULL;
    if (session->row < 0)
        return qw_fail(error, QWEN36_ERROR_NO_LOGITS, "no logits stand after the %d computed tokens",
                       session->computed);
    qwen36_model *m = session->model;
    if (vocab_size != NULL)
        *vocab_size = m->dims.vocab_size;
    return show_logits(m, session->row, logits, error);
}

qwen36_status qwen36_session_score(qwen36_session *session, const int32_t *tokens, size_t count,
                                   float *logprobs, qwen36_error *error)
{
    qwen36_status status = enter_with_tokens(session, tokens, count, error);
    if (status != QWEN36_OK)
        return status;
    if (logprobs == NULL && count > 0)
        return qw_fail(error, QWEN36_ERROR_ARGUMENT, "the place for the log-probs is NULL");
    session->in_call = true;
    status = qw_session_score(session, tokens, count, logprobs, error);
    session->in_call = false;
    return status;
}
