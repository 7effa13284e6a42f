#include "lib/session/step.h"

/* Rows of one session whose logits are formed together. */
typedef struct tile {
    int32_t count;
    int32_t position[QW_LOGITS_TILE];
    int32_t in[QW_LOGITS_TILE], out[QW_LOGITS_TILE];
} tile;

static int32_t collect(const qw_forward_context *f, const qwen36_session *s, int32_t from, tile *t)
{
    int32_t end = s->computed + s->step.rows, position = from;
    t->count = 0;
    for (; position < end && t->count < QW_LOGITS_TILE; position++) {
        if ((s->wants[position] & (QW_WANT_ROW | QW_WANT_SCORE)) == 0)
            continue;
        t->position[t->count] = position;
        t->in[t->count] = s->step.row_begin + position - s->computed;
        t->out[t->count] = f->cache->plan.logit_rows + t->count;
        t->count++;
    }
    return position;
}

/* The row at position p scores token p + 1. */
static qwen36_status score_tile(const qw_forward_context *f, qwen36_session *s, const tile *t)
{
    int32_t rows[QW_LOGITS_TILE], tokens[QW_LOGITS_TILE], at[QW_LOGITS_TILE], row_status[QW_LOGITS_TILE];
    float logprobs[QW_LOGITS_TILE];
    int32_t count = 0;
    for (int32_t i = 0; i < t->count; i++) {
        if ((s->wants[t->position[i]] & QW_WANT_SCORE) == 0)
            continue;
        at[count] = t->position[i];
        rows[count] = t->out[i];
        tokens[count++] = s->tokens[t->position[i] + 1];
    }
    if (count == 0)
        return QWEN36_OK;
    qw_logprob_args args = {f->cache->logits_view, count, rows, tokens, logprobs, row_status};
    qwen36_status status = f->backend->ops->logprob(f->backend, &args);
    for (int32_t i = 0; i < count && status == QWEN36_OK; i++) {
        status = row_status[i];
        s->scores[at[i] + 1 - s->score_begin] = logprobs[i];
        s->wants[at[i]] &= (uint8_t)~QW_WANT_SCORE;
    }
    return status;
}

static qwen36_status call_back(const qw_forward_context *f, qwen36_session *s, const tile *t,
                               qw_fp_environment caller)
{
    for (int32_t i = 0; i < t->count; i++) {
        if ((s->wants[t->position[i]] & QW_WANT_ROW) == 0)
            continue;
        const float *logits = NULL;
        qwen36_status status = QWEN36_OK;
        if (s->on_logits != NULL)
            status = qw_cache_pass_row(f->cache, f->backend, t->out[i], &logits);
        if (status != QWEN36_OK)
            return status; /* the row is still wanted when the step is repeated */
        s->wants[t->position[i]] &= (uint8_t)~QW_WANT_ROW;
        if (logits == NULL)
            continue;
        qw_fp_leave(caller);
        s->on_logits(s->user, s, t->position[i], logits, f->dims->vocab_size);
        qw_fp_enter();
    }
    return QWEN36_OK;
}

qwen36_status qw_deliver_rows(const qw_forward_context *f, qwen36_session *s, int32_t batch_rows,
                              qw_fp_environment caller)
{
    int32_t end = s->computed + s->step.rows;
    tile t;
    for (int32_t position = s->computed; position < end;) {
        position = collect(f, s, position, &t);
        if (t.count == 0)
            break;
        qwen36_status status = qw_forward_head(f, batch_rows, t.count, t.in, t.out);
        if (status == QWEN36_OK)
            status = score_tile(f, s, &t);
        if (status == QWEN36_OK)
            status = call_back(f, s, &t, caller);
        if (status != QWEN36_OK)
            return status;
    }
    return QWEN36_OK;
}
