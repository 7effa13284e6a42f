/* Scoring: one log-prob per given token, without keeping a logits matrix. */
#include "lib/session/session.h"

/* The first given token is scored by the logits that already stand there, if they do. */
static qwen36_status score_first(qwen36_session *s, int32_t token, float *logprob)
{
    qwen36_model *m = s->model;
    int32_t row = s->row, status = QWEN36_OK;
    qw_logprob_args args = {m->cache.logits_view, 1, &row, &token, logprob, &status};
    qwen36_status result = qw_model_take_turn(m, NULL);
    if (result != QWEN36_OK)
        return result;
    qw_fp_environment caller = qw_fp_enter();
    result = qw_model_note(m, m->backend.ops->logprob(&m->backend, &args));
    qw_fp_leave(caller);
    qw_model_give_turn(m);
    return result == QWEN36_OK ? status : result;
}

/* Decides who scores the token at `begin`: nothing (an empty timeline), the present logits, or the row of the
 * token before it, which is computed now. */
static qwen36_status prepare_first(qwen36_session *s, int32_t begin, int32_t token, float *logprob)
{
    *logprob = 0;
    if (begin == 0)
        return QWEN36_OK;
    if (begin == s->computed && s->row >= 0)
        return score_first(s, token, logprob);
    if (begin == s->computed)
        qw_session_rewind(s, (size_t)(begin - 1), NULL);
    s->length = begin;
    s->wants[begin - 1] |= QW_WANT_SCORE;
    return QWEN36_OK;
}

static qwen36_status run(qwen36_session *s, qwen36_error *error)
{
    qwen36_status status = QWEN36_OK;
    do {
        qwen36_session *one = s;
        status = qw_step(&one, 1, s->model->max_rows, error);
    } while (status == QWEN36_PENDING);
    return status;
}

/* What was not computed is removed again; its wants must not survive. With nothing left of it, the output
 * goes on where it began before. */
static void remove_rest(qwen36_session *s, int32_t begin, int32_t output_begin)
{
    s->length = QW_MAX(QW_MIN(s->length, s->computed), begin);
    for (int32_t i = s->computed; i < s->length; i++)
        s->wants[i] &= (uint8_t)~QW_WANT_SCORE;
    s->output_begin = s->length == begin ? output_begin : s->length;
}

qwen36_status qw_session_score(qwen36_session *s, const int32_t *tokens, size_t count, float *logprobs,
                               qwen36_error *error)
{
    int32_t begin = s->length, output_begin = s->output_begin;
    if (count == 0)
        return run(s, error);
    qwen36_status status = qw_session_append(s, tokens, count, QWEN36_LOGITS_LAST, error);
    if (status != QWEN36_OK)
        return status;
    int32_t end = s->length;
    s->length = begin;
    status = prepare_first(s, begin, tokens[0], &logprobs[0]);
    if (status != QWEN36_OK) {
        s->output_begin = output_begin;
        return qw_fail(error, status,
                       status == QWEN36_ERROR_NON_FINITE ? "the logits before the first token are not finite"
                                                         : "the first token could not be scored");
    }
    s->length = end;
    for (int32_t i = begin; i + 1 < end; i++)
        s->wants[i] |= QW_WANT_SCORE;
    s->scores = logprobs;
    s->score_begin = begin;
    status = run(s, error);
    s->scores = NULL;
    if (status != QWEN36_OK)
        remove_rest(s, begin, output_begin);
    return status;
}
