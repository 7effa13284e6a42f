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

/* Under the model's lock. */
static void share(qwen36_session *s, const qwen36_session *twin)
{
    qw_cache *cache = &s->model->cache;
    for (int32_t i = 0; i < twin->block_count; i++)
        qw_cache_hold_block(cache, s->blocks[i] = twin->blocks[i]);
    if (twin->slot >= 0)
        qw_index_pool_retain(&cache->slots, twin->slot);
    if (twin->row >= 0)
        qw_index_pool_retain(&cache->rows, twin->row);
    s->block_count = twin->block_count;
    s->indexed = twin->indexed;
    s->computed = twin->computed;
    s->slot = twin->slot;
    s->row = twin->row;
}

/* Takes a place among max_sessions; a fork takes its share of what `twin` stands on with it. */
static qwen36_status enter_model(qwen36_session *s, const qwen36_session *twin, qwen36_error *error)
{
    qwen36_model *m = s->model;
    qw_mutex_lock(&m->lock);
    bool full = m->session_count == m->max_sessions;
    if (!full) {
        m->session_count++;
        s->next = m->sessions;
        if (s->next != NULL)
            s->next->previous = s;
        m->sessions = s;
        if (twin != NULL)
            share(s, twin);
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

/* A session that stands nowhere yet. */
static qwen36_status create(qwen36_model *model, const qwen36_session_options *options,
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
    s->space = options->prefix_space;
    s->slot = s->row = s->passing = -1;
    atomic_init(&s->interrupted, 0);
    qwen36_status status = allocate(s, sampling, error);
    if (status != QWEN36_OK)
        free_memory(s);
    else
        *session = s;
    return status;
}

qwen36_status qw_session_open(qwen36_model *model, const qwen36_session_options *options,
                              const qwen36_sampling *sampling, qwen36_session **session, qwen36_error *error)
{
    qwen36_session *s = NULL;
    qwen36_status status = create(model, options, sampling, &s, error);
    if (status != QWEN36_OK)
        return status;
    status = enter_model(s, NULL, error);
    if (status != QWEN36_OK) {
        free_memory(s);
        return status;
    }
    *session = s;
    return QWEN36_OK;
}

qwen36_status qw_session_fork(const qwen36_session *twin, const qwen36_session_options *options,
                              qwen36_session **fork, qwen36_error *error)
{
    qwen36_session *s = NULL;
    qwen36_model *m = twin->model;
    if (options->context_length < twin->length)
        return qw_fail(error, QWEN36_ERROR_CONTEXT_FULL, "%d tokens do not fit into a context_length of %d",
                       twin->length, options->context_length);
    qwen36_status status = create(m, options, &twin->sampler.options, &s, error);
    if (status != QWEN36_OK)
        return status;
    memcpy(s->tokens, twin->tokens, (size_t)twin->length * sizeof *s->tokens);
    memcpy(s->wants, twin->wants, (size_t)twin->length * sizeof *s->wants);
    memcpy(s->marks, twin->marks, sizeof s->marks);
    s->space = twin->space;
    s->length = twin->length;
    s->output_begin = twin->output_begin;
    if (qw_sampler_copy(&s->sampler, &twin->sampler, &m->allocator) != QWEN36_OK)
        status = qw_fail_memory(error, twin->sampler.bias_count * sizeof *twin->sampler.bias);
    else
        status = enter_model(s, twin, error);
    if (status != QWEN36_OK) {
        free_memory(s);
        return status;
    }
    *fork = s;
    return QWEN36_OK;
}

void qw_session_close(qwen36_session *s)
{
    qwen36_model *m = s->model;
    qw_session_forget(s);
    qw_mutex_lock(&m->lock);
    if (s->previous != NULL)
        s->previous->next = s->next;
    else
        m->sessions = s->next;
    if (s->next != NULL)
        s->next->previous = s->previous;
    m->session_count--;
    qw_mutex_unlock(&m->lock);
    free_memory(s);
}
