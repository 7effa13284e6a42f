#include "lib/session/session.h"

#include "lib/os/process.h"

#include <string.h>

/* ---- life ------------------------------------------------------------------------------------------- */

static qwen36_status allocate(qwen36_session *s, const qwen36_sampling *sampling, qwen36_error *error)
{
    const qw_allocator *a = &s->model->allocator;
    size_t capacity = (size_t)s->capacity, blocks = (capacity + QW_KV_BLOCK - 1) / QW_KV_BLOCK;
    s->tokens = qw_alloc(a, capacity, sizeof *s->tokens);
    s->wants = qw_alloc(a, capacity, sizeof *s->wants);
    s->blocks = qw_alloc(a, blocks, sizeof *s->blocks);
    if (s->tokens == NULL || s->wants == NULL || s->blocks == NULL)
        return qw_fail_memory(error, capacity * (sizeof *s->tokens + sizeof *s->wants));
    qwen36_status status = qw_sampler_init(&s->sampler, a, s->model->dims.vocab_size, sampling);
    return status == QWEN36_OK ? status : qw_fail_memory(error, (uint64_t)s->model->dims.vocab_size / 8);
}

/* Takes a place among max_sessions, and two logits rows with it. */
static qwen36_status enter_model(qwen36_session *s, qwen36_error *error)
{
    qwen36_model *m = s->model;
    qw_mutex_lock(&m->lock);
    bool full = m->session_count == m->max_sessions;
    if (!full) {
        m->session_count++;
        for (int i = 0; i < 2; i++)
            s->logits_row[i] = qw_index_pool_acquire(&m->cache.rows);
    }
    qw_mutex_unlock(&m->lock);
    if (full)
        return qw_fail(error, QWEN36_ERROR_SESSIONS_FULL, "%d sessions exist already (max_sessions)",
                       m->max_sessions);
    return QWEN36_OK;
}

static void free_memory(qwen36_session *s)
{
    const qw_allocator *a = &s->model->allocator;
    qw_sampler_destroy(&s->sampler, a);
    qw_free(a, s->blocks);
    qw_free(a, s->wants);
    qw_free(a, s->tokens);
    qw_free(a, s);
}

qwen36_status qw_session_open(qwen36_model *model, const qwen36_session_options *options,
                              const qwen36_sampling *sampling, qwen36_session **session, qwen36_error *error)
{
    qwen36_session *s = qw_alloc(&model->allocator, 1, sizeof *s);
    if (s == NULL)
        return qw_fail_memory(error, sizeof *s);
    s->model = model;
    s->process = model->process;
    s->capacity = options->context_length;
    s->on_logits = options->on_logits;
    s->user = options->user;
    s->slot = -1;
    atomic_init(&s->interrupted, 0);
    qwen36_status status = allocate(s, sampling, error);
    if (status == QWEN36_OK)
        status = enter_model(s, error);
    if (status != QWEN36_OK) {
        free_memory(s);
        return status;
    }
    *session = s;
    return QWEN36_OK;
}

void qw_session_close(qwen36_session *s)
{
    qwen36_model *m = s->model;
    qw_session_forget(s);
    qw_mutex_lock(&m->lock);
    for (int i = 0; i < 2; i++)
        qw_index_pool_release(&m->cache.rows, s->logits_row[i]);
    m->session_count--;
    qw_mutex_unlock(&m->lock);
    free_memory(s);
}

/* ---- the timeline -------------------------------------------------------------------------------------- */

void qw_session_forget(qwen36_session *s)
{
    qwen36_model *m = s->model;
    qw_mutex_lock(&m->lock);
    for (int32_t i = 0; i < s->block_count; i++)
        qw_index_pool_release(&m->cache.blocks, s->blocks[i]);
    qw_index_pool_release(&m->cache.slots, s->slot);
    qw_mutex_unlock(&m->lock);
    s->block_count = 0;
    s->slot = -1;
    s->computed = 0;
    s->has_logits = false;
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
    return QWEN36_OK;
}

/* Everything up to `length` is computed again, without delivering rows a second time. */
static void recompute(qwen36_session *s, int32_t length)
{
    qw_session_forget(s);
    s->length = length;
    memset(s->wants, 0, (size_t)length);
    if (length > 0)
        s->wants[length - 1] = QW_WANT_LAST;
}

qwen36_status qw_session_rewind(qwen36_session *s, size_t length, qwen36_error *error)
{
    if (length > (size_t)s->length)
        return qw_fail(error, QWEN36_ERROR_ARGUMENT, "cannot rewind to %zu: the timeline has %d tokens",
                       length, s->length);
    if ((int32_t)length < s->computed)
        recompute(s, (int32_t)length);
    s->length = (int32_t)length;
    if (s->length > s->computed)
        s->wants[s->length - 1] |= QW_WANT_LAST;
    s->output_begin = QW_MIN(s->output_begin, s->length);
    return QWEN36_OK;
}

static int32_t common_prefix(const qwen36_session *s, const int32_t *tokens, int32_t count)
{
    int32_t limit = QW_MIN(count, s->length), i = 0;
    while (i < limit && s->tokens[i] == tokens[i])
        i++;
    return i;
}

/* What is computed can be kept only as a whole: the recurrent state stands at `computed` and nowhere else. */
qwen36_status qw_session_sync(qwen36_session *s, const int32_t *tokens, size_t count, size_t *reused,
                              qwen36_error *error)
{
    qwen36_status status = check_tokens(s, tokens, count, (size_t)s->capacity, error);
    if (status != QWEN36_OK)
        return status;
    int32_t wanted = (int32_t)count;
    bool keeps = common_prefix(s, tokens, wanted) >= s->computed &&
                 (wanted > s->computed || (wanted == s->computed && s->has_logits));
    if (!keeps)
        qw_session_forget(s);
    int32_t pending = wanted - s->computed;
    if (pending > 0) {
        memcpy(s->tokens + s->computed, tokens + s->computed, (size_t)pending * sizeof *tokens);
        memset(s->wants + s->computed, 0, (size_t)pending);
        s->wants[wanted - 1] = QW_WANT_LAST;
    }
    s->length = wanted;
    s->output_begin = wanted;
    if (reused != NULL)
        *reused = (size_t)s->computed;
    return QWEN36_OK;
}
