#include "lib/model/model.h"

#include "lib/model/identity.h"
#include "lib/os/process.h"
#include "lib/session/disk.h"
#include "lib/text/tokenizer.h"

/* ---- sizes that follow from the options ------------------------------------------------------------- */

typedef struct sizes {
    int32_t numerics, kv_dtype, context, max_sessions, max_rows, max_segments, max_head_rows;
    qw_batch_limits batch;
    qw_cache_plan cache;
} sizes;

static int32_t choose_kv_dtype(const qwen36_model_options *o)
{
    if (o->kv_dtype == QWEN36_KV_F32)
        return QW_F32;
    if (o->kv_dtype == QWEN36_KV_BF16)
        return QW_BF16;
    if (o->kv_dtype == QWEN36_KV_I8)
        return QW_I8;
    return o->numerics == QWEN36_NUMERICS_REFERENCE ? QW_F32 : QW_BF16;
}

/* Sessions may share blocks, so the tables of a step can be longer together than the pool; the scheduler
 * keeps them within this. One whole context always fits. */
static int64_t max_table_entries(const sizes *s)
{
    const int64_t generous = 1 << 22;
    int64_t context = (s->context + QW_KV_BLOCK - 1) / QW_KV_BLOCK, most = s->max_segments * context;
    return QW_MIN(most, QW_MAX(s->cache.blocks + context, generous));
}

static qw_batch_limits batch_limits(const sizes *s)
{
    return (qw_batch_limits){.rows = s->max_rows,
                             .segments = s->max_segments,
                             .writes = s->max_segments + QW_MAX_SAVES,
                             .blocks = max_table_entries(s)};
}

static uint64_t saturating_sum(const uint64_t *values, int32_t count)
{
    uint64_t sum = 0;
    for (int32_t i = 0; i < count; i++)
        if (!qw_add(sum, values[i], &sum))
            return UINT64_MAX;
    return sum;
}

/* Every buffer that will be created, and the weights. */
static uint64_t device_bytes(const qw_dims *dims, const sizes *s, uint64_t weight_bytes)
{
    const uint64_t all[] = {qw_network_device_bytes(dims, weight_bytes),
                            qw_workspace_bytes(dims, s->max_rows),
                            qw_batch_bytes(&s->batch),
                            s->cache.kv_bytes,
                            s->cache.state_bytes,
                            s->cache.logits_bytes,
                            8 * (uint64_t)QW_BUFFER_ALIGNMENT};
    return saturating_sum(all, QW_COUNT_OF(all));
}

static qw_backend_config backend_config(const qw_allocator *allocator, const qw_log *log, const qw_dims *dims,
                                        const qwen36_model_options *o, uint64_t weight_bytes, const sizes *s)
{
    return (qw_backend_config){.allocator = allocator,
                               .log = log,
                               .dims = dims,
                               .numerics = s->numerics,
                               .kv_dtype = s->kv_dtype,
                               .cpu_tier = o->cpu_tier,
                               .threads = o->threads,
                               .max_rows = s->max_rows,
                               .max_segments = s->max_segments,
                               .max_head_rows = s->max_head_rows,
                               .max_context = s->context,
                               .device = o->device,
                               .device_tier = o->device_tier,
                               .batch_invariant = o->batch_invariant,
                               .device_bytes = device_bytes(dims, s, weight_bytes)};
}

/* What a device holds beside KV blocks and states. */
static qwen36_status beside_cache(const qw_dims *dims, const qwen36_model_options *o, uint64_t weight_bytes,
                                  const qw_cache_request *request, const sizes *s, uint64_t *bytes,
                                  qwen36_error *error)
{
    sizes rest = *s;
    qwen36_status status = qw_cache_plan_make(dims, request, &rest.cache, error);
    if (status != QWEN36_OK)
        return status;
    rest.batch = batch_limits(&rest);
    rest.cache.kv_bytes = rest.cache.state_bytes = 0;
    const qw_backend_config config = backend_config(NULL, NULL, dims, o, weight_bytes, &rest);
    const uint64_t parts[] = {config.device_bytes, qw_backend_scratch_bytes(&config)};
    *bytes = saturating_sum(parts, QW_COUNT_OF(parts));
    return status;
}

/* Of the process's memory; of a device's, of what is free there beside all else. */
static qwen36_status share_of_memory(const qw_dims *dims, const qwen36_model_options *o,
                                     uint64_t weight_bytes, const sizes *s, qw_cache_request *request,
                                     qwen36_error *error)
{
    uint64_t whole, rest = 0;
    request->cache_bytes = 0;
    qwen36_status status = qw_backend_free_bytes(o->device, &whole, error);
    if (status == QWEN36_OK && whole > 0)
        status = beside_cache(dims, o, weight_bytes, request, s, &rest, error);
    if (status != QWEN36_OK)
        return status;
    whole = whole == 0 ? qw_memory_bytes() : whole - QW_MIN(whole, rest);
    request->memory_bytes = QW_MAX(1, (uint64_t)((double)whole * (double)o->memory_share));
    return status;
}

static qwen36_status make_sizes(const qw_dims *dims, const qwen36_model_options *o, uint64_t weight_bytes,
                                sizes *s, qwen36_error *error)
{
    *s = (sizes){.numerics = o->numerics,
                 .kv_dtype = choose_kv_dtype(o),
                 .context = QW_MIN(o->context_length, dims->max_positions),
                 .max_sessions = o->max_sessions,
                 .max_rows = o->max_batch_tokens};
    s->max_segments = QW_MIN(s->max_sessions, s->max_rows);
    s->max_head_rows = QW_MAX(s->max_sessions, QW_LOGITS_TILE);
    qw_cache_request request = {s->kv_dtype,
                                s->max_sessions,
                                s->context,
                                o->cache_bytes,
                                o->prefix_reuse != 0 ? o->snapshot_bytes : 0,
                                0};
    qwen36_status status = QWEN36_OK;
    if (o->memory_share > 0)
        status = share_of_memory(dims, o, weight_bytes, s, &request, error);
    if (status == QWEN36_OK)
        status = qw_cache_plan_make(dims, &request, &s->cache, error);
    s->batch = batch_limits(s);
    return status;
}

/* ---- loading, in the order of what depends on what --------------------------------------------------- */

static qwen36_status open_guards(qwen36_model *m, qwen36_error *error)
{
    if (qw_mutex_init(&m->lock) != QWEN36_OK)
        return qw_fail(error, QWEN36_ERROR_SYSTEM, "the system gave no lock");
    if (qw_cond_init(&m->turn_free) != QWEN36_OK) {
        qw_mutex_destroy(&m->lock);
        return qw_fail(error, QWEN36_ERROR_SYSTEM, "the system gave no condition variable");
    }
    m->guards_open = true;
    return QWEN36_OK;
}

static qwen36_status load_tokenizer(qwen36_model *m, const char *directory, qwen36_error *error)
{
    qwen36_error inner = QWEN36_ERROR_INIT;
    qwen36_status status = qw_tokenizer_load(&m->allocator, directory, &m->tokenizer, &inner);
    m->live = m->dims.vocab_size;
    if (status == QWEN36_ERROR_NO_TOKENIZER) {
        qw_log_write(&m->log, QWEN36_LOG_INFO, "%s has no tokenizer: token ids only", directory);
        return QWEN36_OK;
    }
    if (status != QWEN36_OK)
        return qw_fail(error, status, "%s", inner.message);
    m->live = qw_tokenizer_size(m->tokenizer);
    if (m->live > m->dims.vocab_size)
        return qw_fail(error, QWEN36_ERROR_TOKENIZER,
                       "the tokenizer has ids up to %d, but the embedding has only %d rows", m->live - 1,
                       m->dims.vocab_size);
    return QWEN36_OK;
}

/* By these a prompt's turns are found, where a snapshot is worth most. */
static void find_turn_tokens(qwen36_model *m)
{
    m->turn_token = m->user_token = -1;
    if (m->tokenizer == NULL)
        return;
    m->turn_token = qwen36_tokenizer_id(m->tokenizer, "<|im_start|>", 12);
    m->user_token = qwen36_tokenizer_id(m->tokenizer, "user", 4);
}

/* What the files say of the model, without its weights. */
static qwen36_status load_facts(qwen36_model *m, const char *directory, const qw_checkpoint *checkpoint,
                                qwen36_error *error)
{
    m->dims = checkpoint->dims;
    m->generation = checkpoint->generation;
    m->parameters = checkpoint->parameters;
    m->weight_bytes = qw_weights_bytes(checkpoint);
    if (checkpoint->role_count[QW_ROLE_OTHER] > 0)
        qw_log_write(&m->log, QWEN36_LOG_WARNING, "%s: %u tensors of no known purpose are left unread",
                     directory, checkpoint->role_count[QW_ROLE_OTHER]);
    qwen36_status status = load_tokenizer(m, directory, error);
    find_turn_tokens(m);
    return status;
}

/* Progress is of what takes longer: binding, or the way to a device. */
static qwen36_status load_weights(qwen36_model *m, const qw_checkpoint *checkpoint,
                                  const qwen36_model_options *o, qwen36_error *error)
{
    const bool on_device = m->backend.space == QW_SPACE_DEVICE;
    qw_import_progress progress = {on_device ? o->progress : NULL, o->progress_user, m->weight_bytes};
    qwen36_status status =
        qw_weights_bind(&m->allocator, checkpoint, o->weights_access, on_device ? NULL : o->progress,
                        o->progress_user, &m->weights, error);
    if (status != QWEN36_OK)
        return status;
    m->fingerprint = qw_model_fingerprint_make(m);
    status =
        qw_network_create(&m->network, &m->allocator, &m->dims, &m->weights, &progress, &m->backend, error);
    if (status == QWEN36_OK && on_device)
        qw_weights_release(&m->weights); /* the device has its own */
    return status;
}

static qwen36_status create_step_memory(qwen36_model *m, const sizes *s, qwen36_error *error)
{
    qwen36_status status = qw_workspace_create(&m->work, &m->dims, s->max_rows, &m->backend);
    if (status == QWEN36_OK)
        status = qw_cache_create(&m->cache, &m->allocator, &s->cache, m->dims.vocab_size, &m->backend);
    if (status == QWEN36_OK)
        status = qw_batch_create(&m->batch, &s->batch, &m->backend);
    m->cache.prefix.root = qw_model_prefix_root(m);
    if (status != QWEN36_OK)
        return qw_fail(error, status, "no memory for cache and workspace: %llu bytes of KV, %llu of states",
                       (unsigned long long)s->cache.kv_bytes, (unsigned long long)s->cache.state_bytes);
    m->sample_rows = qw_alloc(&m->allocator, (size_t)s->max_sessions, sizeof *m->sample_rows);
    m->head_rows = qw_alloc(&m->allocator, 2 * (size_t)s->max_head_rows, sizeof *m->head_rows);
    m->order = qw_alloc(&m->allocator, (size_t)s->max_sessions, sizeof *m->order);
    m->copies = qw_alloc(&m->allocator, (size_t)s->max_segments, sizeof *m->copies);
    if (m->sample_rows == NULL || m->head_rows == NULL || m->order == NULL || m->copies == NULL)
        return qw_fail_memory(error, (uint64_t)s->max_sessions * sizeof *m->sample_rows);
    return QWEN36_OK;
}

/* From here on whatever the model asks of its backend is timed. */
static qwen36_status open_trace(qwen36_model *m, const qwen36_model_options *o, qwen36_error *error)
{
    if (o->trace == NULL)
        return QWEN36_OK;
    m->trace = qw_alloc(&m->allocator, 1, sizeof *m->trace);
    if (m->trace == NULL)
        return qw_fail_memory(error, sizeof *m->trace);
    qw_trace_wrap(m->trace, o->trace, o->trace_user, &m->backend);
    return QWEN36_OK;
}

static qwen36_status open_backend(qwen36_model *m, const qwen36_model_options *o, const sizes *s,
                                  qw_backend_opener opener, qwen36_error *error)
{
    qw_backend_config config = backend_config(&m->allocator, &m->log, &m->dims, o, m->weight_bytes, s);
    qwen36_status status = opener(&config, &m->backend, error);
    if (status != QWEN36_OK)
        return qw_fail(error, status, "the backend could not be opened");
    m->backend_open = true;
    return open_trace(m, o, error);
}

static void adopt_sizes(qwen36_model *m, const sizes *s)
{
    m->numerics = s->numerics;
    m->context = s->context;
    m->max_sessions = s->max_sessions;
    m->max_rows = s->max_rows;
    m->max_segments = s->max_segments;
    m->max_head_rows = s->max_head_rows;
}

static qwen36_status load_from(qwen36_model *m, const char *directory, const qw_checkpoint *checkpoint,
                               const qwen36_model_options *o, qw_backend_opener opener, qwen36_error *error)
{
    sizes s;
    qwen36_status status = load_facts(m, directory, checkpoint, error);
    if (status == QWEN36_OK)
        status = make_sizes(&m->dims, o, m->weight_bytes, &s, error);
    if (status != QWEN36_OK)
        return status;
    adopt_sizes(m, &s);
    status = open_backend(m, o, &s, opener, error);
    if (status == QWEN36_OK)
        status = load_weights(m, checkpoint, o, error);
    return status == QWEN36_OK ? create_step_memory(m, &s, error) : status;
}

static qwen36_status load(qwen36_model *m, const char *directory, const qwen36_model_options *o,
                          qw_backend_opener opener, qwen36_error *error)
{
    qw_checkpoint *checkpoint = NULL;
    qwen36_status status = open_guards(m, error);
    if (status == QWEN36_OK)
        status = qw_checkpoint_open(&m->allocator, directory, &checkpoint, error);
    if (status != QWEN36_OK)
        return status;
    status = load_from(m, directory, checkpoint, o, opener, error);
    qw_checkpoint_close(checkpoint);
    if (status == QWEN36_OK && o->prefix_directory != NULL)
        status = qw_disk_open(m, o->prefix_directory, o->prefix_directory_bytes, error);
    if (status == QWEN36_OK)
        qw_log_write(&m->log, QWEN36_LOG_INFO, "loaded %s: %llu parameters, backend %s, %d threads",
                     directory, (unsigned long long)m->parameters, m->backend.name, m->backend.threads);
    return status;
}

qwen36_status qw_model_open(const char *directory, const qwen36_model_options *options,
                            qw_backend_opener open_with, qwen36_model **model, qwen36_error *error)
{
    qw_allocator allocator;
    qwen36_status status = qw_allocator_adopt(options->allocator, &allocator, error);
    if (status != QWEN36_OK)
        return status;
    qwen36_model *m = qw_alloc(&allocator, 1, sizeof *m);
    if (m == NULL)
        return qw_fail_memory(error, sizeof *m);
    m->allocator = allocator;
    m->log = (qw_log){options->log, options->log_user};
    m->process = qw_process_id();
    atomic_init(&m->references, 1);
    qw_fp_environment caller = qw_fp_enter(); /* numbers out of files and the rope table are rounded here */
    status = load(m, directory, options, open_with, error);
    qw_fp_leave(caller);
    if (status != QWEN36_OK) {
        qw_model_close(m);
        return status;
    }
    *model = m;
    return QWEN36_OK;
}

/* What is known is written first; a failure has nobody left to hear of it but the log. */
static void close_disk(qwen36_model *m)
{
    qwen36_error error = QWEN36_ERROR_INIT;
    if (m->disk.directory != NULL && qw_disk_flush(m, &error) != QWEN36_OK)
        qw_log_write(&m->log, QWEN36_LOG_WARNING, "prefixes were not written: %s", error.message);
    qw_disk_close(m);
}

void qw_model_close(qwen36_model *m)
{
    qw_allocator allocator = m->allocator;
    close_disk(m);
    qw_free(&allocator, m->copies);
    qw_free(&allocator, m->order);
    qw_free(&allocator, m->head_rows);
    qw_free(&allocator, m->sample_rows);
    if (m->backend_open) {
        qw_batch_destroy(&m->batch, &m->backend);
        qw_cache_destroy(&m->cache, &allocator, &m->backend);
        qw_workspace_destroy(&m->work, &m->backend);
        qw_network_destroy(&m->network, &allocator, &m->backend);
        m->backend.ops->destroy(&m->backend);
    }
    qw_free(&allocator, m->trace);
    qw_weights_release(&m->weights);
    qw_tokenizer_destroy(m->tokenizer);
    if (m->guards_open) {
        qw_cond_destroy(&m->turn_free);
        qw_mutex_destroy(&m->lock);
    }
    qw_free(&allocator, m);
}

/* ---- facts --------------------------------------------------------------------------------------------- */

static uint64_t session_bytes(const sizes *s)
{
    uint64_t timeline = (uint64_t)s->context * 5 + (uint64_t)s->context / QW_KV_BLOCK * 4;
    return s->cache.logits_bytes + (uint64_t)s->max_sessions * timeline +
           (s->cache.snapshots > 0 ? qw_prefix_bytes(s->cache.blocks) : 0);
}

qwen36_status qw_model_estimate(const char *directory, const qwen36_model_options *o,
                                qwen36_memory_estimate *e, qwen36_error *error)
{
    qw_allocator allocator;
    qw_checkpoint *checkpoint = NULL;
    sizes s;
    qwen36_status status = qw_allocator_adopt(o->allocator, &allocator, error);
    if (status == QWEN36_OK)
        status = qw_checkpoint_open(&allocator, directory, &checkpoint, error);
    if (status != QWEN36_OK)
        return status;
    const qw_dims *dims = &checkpoint->dims;
    const uint64_t weight_bytes = qw_weights_bytes(checkpoint);
    status = make_sizes(dims, o, weight_bytes, &s, error);
    if (status == QWEN36_OK) {
        qw_log log = {0};
        qw_backend_config config = backend_config(&allocator, &log, dims, o, weight_bytes, &s);
        uint64_t work[3] = {qw_workspace_bytes(dims, s.max_rows), qw_batch_bytes(&s.batch),
                            qw_backend_scratch_bytes(&config)};
        e->weight_bytes = weight_bytes;
        e->cache_bytes = s.cache.kv_bytes;
        e->state_bytes = s.cache.state_bytes;
        e->workspace_bytes = saturating_sum(work, 3);
        e->session_bytes = session_bytes(&s);
        uint64_t all[5] = {e->weight_bytes, e->cache_bytes, e->state_bytes, e->workspace_bytes,
                           e->session_bytes};
        e->total_bytes = saturating_sum(all, 5);
    }
    qw_checkpoint_close(checkpoint);
    return status;
}

static void describe_dims(const qw_dims *d, qwen36_model_info *info)
{
    info->is_moe = d->is_moe;
    info->vocab_size = d->vocab_size;
    info->bitmask_words = (d->vocab_size - 1) / 32 + 1;
    info->hidden_size = d->hidden;
    info->layers = d->layers;
    info->attention_layers = d->full_layers;
    info->heads = d->heads;
    info->kv_heads = d->kv_heads;
    info->head_dim = d->head_dim;
    info->linear_key_heads = d->lin_k_heads;
    info->linear_value_heads = d->lin_v_heads;
    info->linear_key_dim = d->lin_k_dim;
    info->linear_value_dim = d->lin_v_dim;
    info->intermediate_size = d->intermediate;
    info->experts = d->experts;
    info->experts_per_token = d->top_k;
    info->expert_size = d->expert_size;
    info->shared_expert_size = d->shared_size;
    info->tied_head = d->tied_head;
    info->max_positions = d->max_positions;
}

static int32_t describe_kv_dtype(int32_t dtype)
{
    return dtype == QW_I8 ? QWEN36_KV_I8 : dtype == QW_BF16 ? QWEN36_KV_BF16 : QWEN36_KV_F32;
}

void qw_model_describe(const qwen36_model *m, qwen36_model_info *info)
{
    describe_dims(&m->dims, info);
    info->token_count = m->live;
    info->context_length = m->context;
    info->max_sessions = m->max_sessions;
    info->max_batch_tokens = m->max_rows;
    info->threads = m->backend.threads;
    info->numerics = m->numerics;
    info->kv_dtype = describe_kv_dtype(m->cache.plan.kv_dtype);
    info->cpu_tier = m->backend.cpu_tier;
    info->kv_block_tokens = QW_KV_BLOCK;
    info->kv_blocks = m->cache.plan.blocks;
    info->snapshots = m->cache.plan.snapshots;
    info->bos_token = m->generation.bos_token;
    info->pad_token = m->generation.pad_token;
    info->parameters = m->parameters;
    info->weight_bytes = m->weight_bytes;
    info->kv_token_bytes = m->cache.plan.kv_token_bytes;
    info->state_bytes = m->cache.plan.slot_bytes;
}

/* ---- the device ---------------------------------------------------------------------------------------- */

qwen36_status qw_model_note(qwen36_model *m, qwen36_status status)
{
    if (status == QWEN36_ERROR_DEVICE_LOST)
        atomic_store_explicit(&m->device_lost, 1, memory_order_relaxed);
    return status;
}

bool qw_model_follow_backend(qwen36_model *m)
{
    if (m->revision == m->backend.revision)
        return false;
    m->revision = m->backend.revision;
    qw_prefix_clear(&m->cache.prefix);
    m->cache.prefix.root = qw_model_prefix_root(m);
    return true;
}

/* ---- the turn ------------------------------------------------------------------------------------------ */

static bool has_turn(const qwen36_model *m)
{
    return m->turn_taken && qw_thread_is_current(m->turn_owner);
}

bool qw_model_has_turn(qwen36_model *m)
{
    qw_mutex_lock(&m->lock);
    bool mine = has_turn(m);
    qw_mutex_unlock(&m->lock);
    return mine;
}

/* By tickets: a thread that steps in a loop must not overtake those that wait. */
qwen36_status qw_model_take_turn(qwen36_model *m, qwen36_error *error)
{
    qw_mutex_lock(&m->lock);
    bool mine = has_turn(m);
    uint64_t ticket = m->next_ticket;
    if (!mine) {
        m->next_ticket++;
        while (m->serving != ticket)
            qw_cond_wait(&m->turn_free, &m->lock);
        m->turn_taken = true;
        m->turn_owner = qw_thread_current();
    }
    qw_mutex_unlock(&m->lock);
    if (mine)
        return qw_fail(error, QWEN36_ERROR_BUSY, "called from a callback of a call on the same model");
    return QWEN36_OK;
}

void qw_model_give_turn(qwen36_model *m)
{
    qw_mutex_lock(&m->lock);
    m->turn_taken = false;
    m->serving++;
    qw_cond_broadcast(&m->turn_free);
    qw_mutex_unlock(&m->lock);
}
