/* The timeline: what append, rewind and sync make of it. Nothing is computed here. */
#include "lib/session/disk.h"

#include <string.h>

/* Later blocks first: lib/session/prefix.h rests on this order. */
void qw_session_forget(qwen36_session *s)
{
    qwen36_model *m = s->model;
    qw_mutex_lock(&m->lock);
    while (s->block_count > 0)
        qw_cache_drop_block(&m->cache, s->blocks[--s->block_count]);
    qw_cache_drop_slot(&m->cache, s->slot);
    qw_index_pool_release(&m->cache.rows, s->row);
    qw_mutex_unlock(&m->lock);
    s->slot = s->row = s->passing = -1;
    s->computed = s->indexed = 0;
    s->seen = 0;
}

static qwen36_status check_tokens(const qwen36_session *s, const int32_t *tokens, size_t count, size_t room,
                                  qwen36_error *error)
{
    if (count > room)
        return qw_fail(error, QWEN36_ERROR_CONTEXT_FULL,
                       "%zu tokens do not fit: the session holds %d of at most %d", count,
                       s->capacity - (int32_t)room, s->capacity);
    for (size_t i = 0; i < count; i++)
        if (tokens[i] < 0 || tokens[i] >= s->model->dims.vocab_size)
            return qw_fail(error, QWEN36_ERROR_TOKEN_ID, "token %zu is %d, outside 0..%d", i, tokens[i],
                           s->model->dims.vocab_size - 1);
    return QWEN36_OK;
}

qwen36_status qw_session_append(qwen36_session *s, const int32_t *tokens, size_t count, int32_t logits,
                                qwen36_error *error)
{
    qwen36_status status = check_tokens(s, tokens, count, (size_t)(s->capacity - s->length), error);
    if (status != QWEN36_OK)
        return status;
    int32_t added = (int32_t)count;
    if (added > 0) {
        memcpy(s->tokens + s->length, tokens, count * sizeof *tokens);
        memset(s->wants + s->length, logits == QWEN36_LOGITS_ALL ? QW_WANT_ROW : 0, count);
        if (logits != QWEN36_LOGITS_NONE)
            s->wants[s->length + added - 1] |= QW_WANT_LAST;
    }
    s->length += added;
    s->output_begin = s->length;
    s->seen = 0;
    qw_session_mark_prompt(s, s->length - added);
    return QWEN36_OK;
}

/* The tokens from `computed` to `length` are pending, and of their logits only the last are wanted; rows are
 * not delivered a second time. */
static void want_last(qwen36_session *s)
{
    if (s->computed == s->length)
        return;
    memset(s->wants + s->computed, 0, (size_t)(s->length - s->computed));
    s->wants[s->length - 1] = QW_WANT_LAST;
}

/* Logits after `computed` were wanted, but it was reached by adopting a prefix, which brings none. */
static bool lacks_logits(const qwen36_session *s)
{
    return s->computed > 0 && s->row < 0 && (s->wants[s->computed - 1] & QW_WANT_LAST) != 0;
}

/* The recurrent state stands at `computed`, and else only where a snapshot was kept. */
qwen36_status qw_session_rewind(qwen36_session *s, size_t length, qwen36_error *error)
{
    if (length > (size_t)s->length)
        return qw_fail(error, QWEN36_ERROR_ARGUMENT, "cannot rewind to %zu: the timeline has %d tokens",
                       length, s->length);
    int32_t wanted = (int32_t)length;
    s->length = wanted;
    s->output_begin = QW_MIN(s->output_begin, wanted);
    if (wanted < s->computed || (wanted == s->computed && lacks_logits(s))) {
        if (!qw_session_adopt(s, s->tokens, wanted - 1, 0))
            qw_session_forget(s);
        want_last(s);
        qw_session_mark_prompt(s, s->computed);
    } else if (wanted > s->computed) {
        s->wants[wanted - 1] |= QW_WANT_LAST;
    }
    return QWEN36_OK;
}

static int32_t common_prefix(const qwen36_session *s, const int32_t *tokens, int32_t count)
{
    int32_t limit = QW_MIN(count, s->length), i = 0;
    while (i < limit && s->tokens[i] == tokens[i])
        i++;
    return i;
}

/* What is computed can be kept as a whole, or a known prefix of `tokens` takes its place. The last token's
 * logits are needed: unless they stand there, it is computed in any case. */
qwen36_status qw_session_sync(qwen36_session *s, const int32_t *tokens, size_t count, size_t *reused,
                              qwen36_error *error)
{
    qwen36_status status = check_tokens(s, tokens, count, (size_t)s->capacity, error);
    if (status != QWEN36_OK)
        return status;
    qwen36_model *m = s->model;
    int32_t wanted = (int32_t)count;
    bool keeps = common_prefix(s, tokens, wanted) >= s->computed &&
                 (wanted > s->computed || (wanted == s->computed && s->row >= 0));
    status = qw_disk_fetch(m, s->space, tokens, wanted - 1, keeps ? s->computed : 0);
    if (status != QWEN36_OK)
        return qw_fail(error, status, "a prefix could not be brought to the device");
    if (!qw_session_adopt(s, tokens, wanted - 1, keeps ? s->computed : 0) && !keeps)
        qw_session_forget(s);
    if (wanted > s->computed)
        memcpy(s->tokens + s->computed, tokens + s->computed,
               (size_t)(wanted - s->computed) * sizeof *tokens);
    s->length = wanted;
    s->output_begin = wanted;
    want_last(s);
    qw_session_mark_prompt(s, s->computed);
    qw_mutex_lock(&m->lock);
    m->counters.reused += (uint64_t)s->computed;
    qw_mutex_unlock(&m->lock);
    s->counters.reused += (uint64_t)s->computed;
    if (reused != NULL)
        *reused = (size_t)s->computed;
    return QWEN36_OK;
}
