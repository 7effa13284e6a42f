/* A step: schedule rows, reserve blocks and slots, forward, logits, commit. Before commit nothing that a
 * session stands on is changed, so every failure is a roll-back. */
#include "lib/session/step.h"

#include "lib/os/process.h"

typedef struct step {
    qwen36_model *model;
    qwen36_session *const *sessions;
    size_t count;
    qw_batch batch;
    qw_fp_environment caller; /* floating-point environment of the caller, for callbacks */
    int32_t copies;           /* of the model's `copies` */
    int32_t saves;            /* of the model's `saves` */
    int32_t committed;        /* sessions that went on */
    int32_t used_blocks;      /* of the pool, at the end */
    bool changed;             /* the backend computes otherwise from now on */
    uint64_t began, reserved, computed, finished; /* nanoseconds of the clock */
} step;

/* ---- begin ------------------------------------------------------------------------------------------- */

static void begin_parts(step *st)
{
    for (size_t i = 0; i < st->count; i++) {
        qwen36_session *s = st->sessions[i];
        s->step = (qw_step_part){.new_slot = -1, .new_row = -1, .shared_block = -1};
        if (atomic_load_explicit(&s->interrupted, memory_order_relaxed) != 0) {
            atomic_store_explicit(&s->interrupted, 0, memory_order_relaxed);
            s->step.status = QWEN36_INTERRUPTED;
        }
    }
}

/* ---- reserve and release ----------------------------------------------------------------------------- */

static void release_part(qwen36_session *s)
{
    qw_cache *cache = &s->model->cache;
    for (; s->step.new_blocks > 0; s->step.new_blocks--)
        qw_cache_drop_block(cache, s->blocks[--s->block_count]);
    if (s->step.shared_block >= 0) {
        qw_cache_drop_block(cache, s->blocks[s->block_count - 1]);
        s->blocks[s->block_count - 1] = s->step.shared_block;
    }
    for (int32_t i = 0; i < s->step.saves; i++)
        qw_cache_drop_slot(cache, s->model->saves[s->step.save_begin + i].slot);
    qw_cache_drop_slot(cache, s->step.new_slot);
    qw_index_pool_release(&cache->rows, s->step.new_row);
    s->step = (qw_step_part){.new_slot = -1, .new_row = -1, .shared_block = -1, .status = s->step.status};
}

/* The rows begin inside a block that others hold too: a copy of it takes its place in the table. */
static bool reserve_private(step *st, qwen36_session *s)
{
    qw_cache *cache = &s->model->cache;
    int32_t at = s->computed / QW_KV_BLOCK;
    if (s->computed % QW_KV_BLOCK == 0 || cache->blocks.count[s->blocks[at]] == 1)
        return true;
    int32_t block = qw_cache_take_block(cache);
    if (block < 0)
        return false;
    uint64_t bytes = cache->plan.block_bytes;
    st->model->copies[st->copies++] =
        (qw_copy){(uint64_t)s->blocks[at] * bytes, (uint64_t)block * bytes, bytes};
    s->step.shared_block = s->blocks[at];
    s->blocks[at] = block;
    return true;
}

static bool reserve_blocks(qwen36_session *s)
{
    int32_t blocks = (s->computed + s->step.rows + QW_KV_BLOCK - 1) / QW_KV_BLOCK;
    while (s->block_count < blocks) {
        int32_t block = qw_cache_take_block(&s->model->cache);
        if (block < 0)
            return false;
        s->blocks[s->block_count++] = block;
        s->step.new_blocks++;
    }
    return true;
}

static qwen36_status reserve_part(step *st, qwen36_session *s)
{
    qw_cache *cache = &s->model->cache;
    s->step.new_slot = qw_cache_take_slot(cache);
    if ((s->wants[s->computed + s->step.rows - 1] & QW_WANT_LAST) != 0)
        s->step.new_row = qw_cache_take_row(cache);
    if (s->step.new_slot >= 0 && reserve_private(st, s) && reserve_blocks(s))
        return QWEN36_OK;
    if (s->step.shared_block >= 0)
        st->copies--;
    release_part(s);
    return QWEN36_ERROR_CACHE_FULL;
}

/* Slots for states worth keeping that the rows pass; what cannot be had is not kept. */
static void reserve_saves(step *st, qwen36_session *s)
{
    qwen36_model *m = st->model;
    int32_t end = s->computed + s->step.rows;
    s->step.save_begin = st->saves;
    if (!m->cache.prefix.enabled)
        return;
    for (int32_t p = (s->computed / QW_KV_BLOCK + 1) * QW_KV_BLOCK; p < end; p += QW_KV_BLOCK) {
        if (!qw_session_keeps(s, p) || st->saves == QW_MAX_SAVES)
            continue;
        int32_t slot = qw_cache_take_slot(&m->cache);
        if (slot < 0)
            break;
        m->saves[st->saves++] = (qw_state_save){p, slot};
        s->step.saves++;
    }
}

static void reserve(step *st)
{
    qw_mutex_lock(&st->model->lock);
    for (size_t i = 0; i < st->count; i++) {
        qwen36_session *s = st->sessions[i];
        if (s->step.rows > 0)
            s->step.status = reserve_part(st, s);
    }
    for (size_t i = 0; i < st->count; i++)
        if (st->sessions[i]->step.rows > 0)
            reserve_saves(st, st->sessions[i]);
    qw_mutex_unlock(&st->model->lock);
}

static void add_part(step *st, qwen36_session *s)
{
    qw_state_write write[QW_MAX_SAVES + 1];
    for (int32_t i = 0; i < s->step.saves; i++) {
        const qw_state_save *save = &st->model->saves[s->step.save_begin + i];
        write[i] = (qw_state_write){save->position - s->computed - 1, save->slot};
    }
    write[s->step.saves] = (qw_state_write){s->step.rows - 1, s->step.new_slot};
    qw_batch_part part = {.tokens = s->tokens + s->computed,
                          .position = s->computed,
                          .count = s->step.rows,
                          .blocks = s->blocks,
                          .state_read = s->slot,
                          .write = write,
                          .writes = s->step.saves + 1};
    s->step.row_begin = qw_batch_add(&st->model->batch, &part);
}

static void build_batch(step *st)
{
    qw_batch_begin(&st->model->batch);
    for (size_t i = 0; i < st->count; i++)
        if (st->sessions[i]->step.rows > 0)
            add_part(st, st->sessions[i]);
    st->batch = qw_batch_finish(&st->model->batch);
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
    return (qw_forward_context){&m->dims, &m->network,     &m->cache, &m->work, &m->backend,
                                m->live,  all_interrupted, st,        m->trace};
}

/* The logits that stay: one head call for the last rows of all sessions, so that the head's weights are read
 * once. */
static qwen36_status keep_logits(step *st, const qw_forward_context *f)
{
    int32_t count = 0, *in = st->model->head_rows, *out = in + st->model->max_head_rows;
    for (size_t i = 0; i < st->count; i++) {
        const qwen36_session *s = st->sessions[i];
        if (s->step.new_row < 0)
            continue;
        in[count] = s->step.row_begin + s->step.rows - 1;
        out[count++] = s->step.new_row;
    }
    return count == 0 ? QWEN36_OK : qw_forward_head(f, st->batch.rows, count, in, out);
}

static qwen36_status forward(step *st, const qw_forward_context *f)
{
    const qw_ops *ops = f->backend->ops;
    qw_copy_args copy = {&st->model->cache.kv, st->copies, st->model->copies};
    uint64_t begin = qw_trace_clock(f->trace);
    qwen36_status status = ops->step_begin(f->backend, &st->batch);
    if (status == QWEN36_OK && st->copies > 0)
        status = ops->copy(f->backend, &copy);
    if (status == QWEN36_OK)
        status = qw_forward(f, &st->batch);
    qw_trace_report(f->trace, "phase", "forward", begin, qw_trace_clock(f->trace));
    return status;
}

/* The step ends here in any case; `status` is how far it came. A device that is found lost at the end matters
 * more than why the rows stopped before. */
static qwen36_status head(step *st, const qw_forward_context *f, qwen36_status status)
{
    uint64_t begin = qw_trace_clock(f->trace);
    if (status == QWEN36_OK)
        status = keep_logits(st, f);
    for (size_t i = 0; i < st->count && status == QWEN36_OK; i++)
        if (st->sessions[i]->step.rows > 0 && !interrupted(st->sessions[i]))
            status = qw_deliver_rows(f, st->sessions[i], st->batch.rows, st->caller);
    qwen36_status end = f->backend->ops->step_end(f->backend);
    qw_trace_report(f->trace, "phase", "head", begin, qw_trace_clock(f->trace));
    return status == QWEN36_OK || end == QWEN36_ERROR_DEVICE_LOST ? end : status;
}

static qwen36_status compute(step *st)
{
    qw_forward_context f = forward_context(st);
    return head(st, &f, forward(st, &f));
}

/* ---- commit ------------------------------------------------------------------------------------------- */

/* From here on the session stands behind the new rows. */
static void commit_part(step *st, qwen36_session *s)
{
    qw_cache *cache = &s->model->cache;
    qw_cache_drop_slot(cache, s->slot);
    qw_index_pool_release(&cache->rows, s->row);
    qw_cache_drop_block(cache, s->step.shared_block);
    s->slot = s->step.new_slot;
    s->row = s->step.new_row;
    s->computed += s->step.rows;
    s->stalled = false;
    qw_session_index(s);
    s->step.status = s->computed < s->length ? QWEN36_PENDING : QWEN36_OK;
    st->committed++;
    s->counters.steps++;
    s->counters.computed += (uint64_t)s->step.rows;
    s->counters.copies += s->step.shared_block >= 0;
    st->model->counters.computed += (uint64_t)s->step.rows;
    st->model->counters.copies += s->step.shared_block >= 0;
}

static double seconds(uint64_t begin, uint64_t end)
{
    return 1e-9 * (double)(end - begin);
}

static void count_step(step *st)
{
    st->finished = qw_clock_nanoseconds();
    qw_model_counters *c = &st->model->counters;
    c->steps += st->committed > 0;
    c->schedule_seconds += seconds(st->began, st->reserved);
    c->compute_seconds += seconds(st->reserved, st->computed);
    c->commit_seconds += seconds(st->computed, st->finished);
}

static void finish(step *st, qwen36_status status)
{
    qw_mutex_lock(&st->model->lock);
    for (size_t i = 0; i < st->count; i++) {
        qwen36_session *s = st->sessions[i];
        if (s->step.rows == 0) {
            if (s->step.status == QWEN36_OK && s->computed < s->length)
                s->step.status = QWEN36_PENDING;
        } else if (interrupted(s) && status != QWEN36_ERROR_DEVICE_LOST) {
            atomic_store_explicit(&s->interrupted, 0, memory_order_relaxed);
            release_part(s);
            s->step.status = QWEN36_INTERRUPTED;
        } else if (status != QWEN36_OK) {
            release_part(s);
            s->step.status = status;
        } else {
            commit_part(st, s);
        }
        s->stalled = s->stalled || s->step.status == QWEN36_ERROR_CACHE_FULL;
    }
    st->changed = qw_model_follow_backend(st->model);
    st->used_blocks =
        st->model->cache.blocks.capacity - st->model->cache.blocks.free_count - st->model->cache.prefix.idle;
    count_step(st);
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
    qw_trace *trace = st.model->trace;
    qwen36_status status = qw_model_take_turn(st.model, error);
    if (status != QWEN36_OK)
        return status;
    st.caller = qw_fp_enter();
    st.began = qw_clock_nanoseconds();
    begin_parts(&st);
    qw_schedule(st.model, sessions, count, budget);
    reserve(&st);
    build_batch(&st);
    st.reserved = qw_clock_nanoseconds();
    qw_trace_set_rows(trace, st.batch.rows);
    qw_trace_report(trace, "phase", "schedule", st.began, st.reserved);
    if (st.batch.rows > 0)
        status = qw_model_note(st.model, compute(&st));
    st.computed = qw_clock_nanoseconds();
    finish(&st, status);
    qw_trace_report(trace, "phase", "commit", st.computed, st.finished);
    qw_trace_report(trace, "step", "step", st.began, st.finished);
    qw_trace_set_rows(trace, 0);
    if (st.changed)
        qw_log_write(&st.model->log, QWEN36_LOG_WARNING,
                     "the backend computes as %s from now on: shared prefixes are forgotten",
                     st.model->backend.name);
    status = qw_combine_status(sessions, count);
    describe_failure(&st, status, error);
    qw_fp_leave(st.caller);
    qw_model_give_turn(st.model);
    return status;
}
