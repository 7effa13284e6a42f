/* A step: schedule rows, reserve blocks and slots, forward, logits, commit. Before commit nothing that a
 * session stands on is changed, so every failure is a roll-back. */
#include "lib/session/step.h"

#include <string.h>

typedef struct step {
    qwen36_model *model;
    qwen36_session *const *sessions;
    size_t count;
    qw_batch batch;
    qw_fp_environment caller; /* floating-point environment of the caller, for callbacks */
    int32_t used_blocks;      /* of the pool, at the end */
} step;

/* ---- schedule: who takes how many rows --------------------------------------------------------------- */

static int32_t pending(const qwen36_session *s)
{
    return s->length - s->computed;
}

/* A cut inside a prompt falls on a block boundary where one is in reach. */
static int32_t cut(const qwen36_session *s, int32_t room)
{
    int32_t rows = pending(s);
    if (rows <= room)
        return rows;
    int32_t end = (s->computed + room) / QW_KV_BLOCK * QW_KV_BLOCK;
    return end > s->computed ? end - s->computed : room;
}

/* Sessions with one pending token first (they wait for every token), then the others in their order. */
static void schedule(step *st, int32_t budget)
{
    int32_t segments = st->model->max_segments;
    for (int pass = 0; pass < 2; pass++)
        for (size_t i = 0; i < st->count && budget > 0 && segments > 0; i++) {
            qwen36_session *s = st->sessions[i];
            bool decodes = pending(s) == 1;
            if (pending(s) == 0 || s->step.status != QWEN36_OK || decodes != (pass == 0))
                continue;
            s->step.rows = cut(s, budget);
            budget -= s->step.rows;
            segments--;
        }
}

static void begin_parts(step *st)
{
    for (size_t i = 0; i < st->count; i++) {
        qwen36_session *s = st->sessions[i];
        s->step = (qw_step_part){.new_slot = -1};
        if (atomic_load_explicit(&s->interrupted, memory_order_relaxed) != 0) {
            atomic_store_explicit(&s->interrupted, 0, memory_order_relaxed);
            s->step.status = QWEN36_INTERRUPTED;
        }
    }
}

/* ---- reserve and release ----------------------------------------------------------------------------- */

static void release_part(qwen36_session *s)
{
    qwen36_model *m = s->model;
    for (; s->step.new_blocks > 0; s->step.new_blocks--)
        qw_index_pool_release(&m->cache.blocks, s->blocks[--s->block_count]);
    qw_index_pool_release(&m->cache.slots, s->step.new_slot);
    s->step.new_slot = -1;
    s->step.rows = 0;
}

static qwen36_status reserve_part(qwen36_session *s)
{
    qwen36_model *m = s->model;
    int32_t blocks = (s->computed + s->step.rows + QW_KV_BLOCK - 1) / QW_KV_BLOCK;
    s->step.new_slot = qw_index_pool_acquire(&m->cache.slots);
    bool complete = s->step.new_slot >= 0;
    while (complete && s->block_count < blocks) {
        int32_t block = qw_index_pool_acquire(&m->cache.blocks);
        complete = block >= 0;
        if (complete) {
            s->blocks[s->block_count++] = block;
            s->step.new_blocks++;
        }
    }
    if (complete)
        return QWEN36_OK;
    release_part(s);
    return QWEN36_ERROR_CACHE_FULL;
}

static void reserve(step *st)
{
    qw_mutex_lock(&st->model->lock);
    for (size_t i = 0; i < st->count; i++) {
        qwen36_session *s = st->sessions[i];
        if (s->step.rows > 0)
            s->step.status = reserve_part(s);
    }
    qw_mutex_unlock(&st->model->lock);
}

static void build_batch(step *st)
{
    qw_batch_builder *builder = &st->model->batch;
    qw_batch_begin(builder);
    for (size_t i = 0; i < st->count; i++) {
        qwen36_session *s = st->sessions[i];
        if (s->step.rows == 0)
            continue;
        qw_batch_part part = {s->tokens + s->computed, s->computed, s->step.rows, s->blocks, s->slot,
                              s->step.new_slot};
        s->step.row_begin = qw_batch_add(builder, &part);
        s->step.keep_logits = (s->wants[s->computed + s->step.rows - 1] & QW_WANT_LAST) != 0;
    }
    st->batch = qw_batch_finish(builder);
}

/* ---- compute ------------------------------------------------------------------------------------------ */

static bool interrupted(qwen36_session *s)
{
    return atomic_load_explicit(&s->interrupted, memory_order_relaxed) != 0;
}

/* Nobody waits for the result any more. */
static bool all_interrupted(void *user)
{
    const step *st = user;
    for (size_t i = 0; i < st->count; i++)
        if (st->sessions[i]->step.rows > 0 && !interrupted(st->sessions[i]))
            return false;
    return true;
}

static qw_forward_context forward_context(step *st)
{
    qwen36_model *m = st->model;
    return (qw_forward_context){&m->dims,    &m->network, &m->cache,       &m->work,
                                &m->backend, m->live,     all_interrupted, st};
}

/* The logits that stay: one head call for the last rows of all sessions, so that the head's weights are read
 * once. They go to the row that is not current. */
static qwen36_status keep_logits(step *st, const qw_forward_context *f)
{
    int32_t count = 0, *in = st->model->head_rows, *out = in + st->model->max_head_rows;
    for (size_t i = 0; i < st->count; i++) {
        const qwen36_session *s = st->sessions[i];
        if (s->step.rows == 0 || !s->step.keep_logits)
            continue;
        in[count] = s->step.row_begin + s->step.rows - 1;
        out[count++] = s->logits_row[1 - s->current];
    }
    return count == 0 ? QWEN36_OK : qw_forward_head(f, st->batch.rows, count, in, out);
}

static qwen36_status compute(step *st)
{
    qw_backend *backend = &st->model->backend;
    qw_forward_context f = forward_context(st);
    qwen36_status status = backend->ops->step_begin(backend, &st->batch);
    if (status == QWEN36_OK)
        status = qw_forward(&f, &st->batch);
    if (status == QWEN36_OK)
        status = keep_logits(st, &f);
    for (size_t i = 0; i < st->count && status == QWEN36_OK; i++)
        if (st->sessions[i]->step.rows > 0 && !interrupted(st->sessions[i]))
            status = qw_deliver_rows(&f, st->sessions[i], st->batch.rows, st->caller);
    qwen36_status end = backend->ops->step_end(backend);
    return status == QWEN36_OK ? end : status;
}

/* ---- commit ------------------------------------------------------------------------------------------- */

static void commit_part(qwen36_session *s)
{
    qw_index_pool_release(&s->model->cache.slots, s->slot);
    s->slot = s->step.new_slot;
    s->computed += s->step.rows;
    s->has_logits = s->step.keep_logits;
    if (s->step.keep_logits)
        s->current = 1 - s->current;
    s->step.status = s->computed < s->length ? QWEN36_PENDING : QWEN36_OK;
}

static void finish(step *st, qwen36_status status)
{
    qw_mutex_lock(&st->model->lock);
    for (size_t i = 0; i < st->count; i++) {
        qwen36_session *s = st->sessions[i];
        if (s->step.rows == 0) {
            if (s->step.status == QWEN36_OK && pending(s) > 0)
                s->step.status = QWEN36_PENDING;
        } else if (interrupted(s)) {
            atomic_store_explicit(&s->interrupted, 0, memory_order_relaxed);
            release_part(s);
            s->step.status = QWEN36_INTERRUPTED;
        } else if (status != QWEN36_OK) {
            release_part(s);
            s->step.status = status;
        } else {
            commit_part(s);
        }
    }
    st->used_blocks = st->model->cache.blocks.capacity - st->model->cache.blocks.free_count;
    qw_mutex_unlock(&st->model->lock);
}

qwen36_status qw_combine_status(qwen36_session *const *sessions, size_t count)
{
    qwen36_status combined = QWEN36_OK;
    for (size_t i = 0; i < count; i++) {
        qwen36_status status = sessions[i]->step.status;
        if (status < 0)
            return status;
        if (status == QWEN36_PENDING || (status == QWEN36_INTERRUPTED && combined == QWEN36_OK))
            combined = status;
    }
    return combined;
}

static void describe_failure(const step *st, qwen36_status status, qwen36_error *error)
{
    if (status == QWEN36_ERROR_CACHE_FULL)
        qw_fail(error, status, "no KV block or state slot is free: %d of %d blocks are in use",
                st->used_blocks, st->model->cache.blocks.capacity);
    else if (status == QWEN36_ERROR_NON_FINITE)
        qw_fail(error, status, "the logits of a row to be scored are not finite");
    else if (status < 0)
        qw_fail(error, status, "the step failed in the backend (%s)", st->model->backend.name);
}

qwen36_status qw_step(qwen36_session *const *sessions, size_t count, int32_t budget, qwen36_error *error)
{
    step st = {.model = sessions[0]->model, .sessions = sessions, .count = count};
    qwen36_status status = qw_model_take_turn(st.model, error);
    if (status != QWEN36_OK)
        return status;
    st.caller = qw_fp_enter();
    begin_parts(&st);
    schedule(&st, budget);
    reserve(&st);
    build_batch(&st);
    if (st.batch.rows > 0)
        status = compute(&st);
    finish(&st, status);
    status = qw_combine_status(sessions, count);
    describe_failure(&st, status, error);
    qw_fp_leave(st.caller);
    qw_model_give_turn(st.model);
    return status;
}
