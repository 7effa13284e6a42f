/* Sampling over sessions: logits of each → its next token, appended as pending. */
#include "lib/session/session.h"

#include "lib/os/process.h"

static qwen36_status check_session(const qwen36_session *s)
{
    if (s->row < 0 || s->computed < s->length)
        return QWEN36_ERROR_NO_LOGITS;
    return s->length == s->capacity ? QWEN36_ERROR_CONTEXT_FULL : QWEN36_OK;
}

static int32_t collect(qwen36_model *m, qwen36_session *const *sessions, size_t count)
{
    int32_t rows = 0;
    for (size_t i = 0; i < count; i++) {
        qwen36_session *s = sessions[i];
        s->step.status = check_session(s);
        if (s->step.status == QWEN36_OK)
            qw_sampler_fill_row(&s->sampler, s->tokens, s->length, s->output_begin, s->row,
                                &m->sample_rows[rows++]);
    }
    return rows;
}

static void take(qwen36_session *s, const qw_sample_row *row, int32_t *token)
{
    s->step.status = row->status;
    if (row->status != QWEN36_OK)
        return;
    qw_sampler_take(&s->sampler, row);
    s->wants[s->length] = QW_WANT_LAST;
    s->tokens[s->length++] = row->token;
    s->counters.sampled++;
    s->model->counters.sampled++;
    *token = row->token;
}

static void describe_failure(qwen36_status status, qwen36_error *error)
{
    switch (status) {
    case QWEN36_ERROR_NO_LOGITS:
        qw_fail(error, status, "no logits stand at the end of the timeline: step first");
        break;
    case QWEN36_ERROR_CONTEXT_FULL:
        qw_fail(error, status, "the session's capacity is reached: no room for another token");
        break;
    case QWEN36_ERROR_NON_FINITE:
        qw_fail(error, status, "the logits are not finite");
        break;
    case QWEN36_ERROR_NO_CANDIDATE:
        qw_fail(error, status, "bitmask and bias leave no token to choose");
        break;
    default:
        if (status < 0)
            qw_fail(error, status, "sampling failed in the backend");
    }
}

static qwen36_status run(qwen36_model *m, int32_t rows)
{
    if (rows == 0)
        return QWEN36_OK;
    qw_sample_args args = {m->cache.logits_view, m->live, rows, m->sample_rows};
    return qw_model_note(m, m->backend.ops->sample(&m->backend, &args));
}

qwen36_status qw_sample(qwen36_session *const *sessions, size_t count, int32_t *tokens, qwen36_error *error)
{
    qwen36_model *m = sessions[0]->model;
    qwen36_status status = qw_model_take_turn(m, error);
    if (status != QWEN36_OK)
        return status;
    qw_fp_environment caller = qw_fp_enter();
    uint64_t began = qw_clock_nanoseconds();
    int32_t row = 0, rows = collect(m, sessions, count);
    qw_trace_set_rows(m->trace, rows);
    status = run(m, rows);
    uint64_t ended = qw_clock_nanoseconds();
    qw_trace_report(m->trace, "phase", "sample", began, ended);
    qw_trace_set_rows(m->trace, 0);
    qw_mutex_lock(&m->lock);
    m->counters.sample_seconds += 1e-9 * (double)(ended - began);
    for (size_t i = 0; i < count; i++) {
        tokens[i] = -1;
        if (sessions[i]->step.status != QWEN36_OK)
            continue;
        if (status == QWEN36_OK)
            take(sessions[i], &m->sample_rows[row++], &tokens[i]);
        else
            sessions[i]->step.status = status;
    }
    qw_mutex_unlock(&m->lock);
    status = qw_combine_status(sessions, count);
    describe_failure(status, error);
    qw_fp_leave(caller);
    qw_model_give_turn(m);
    return status;
}
