#include "lib/session/snapshot.h"

#include "lib/model/identity.h"
#include "lib/session/archive.h"

#include <string.h>

/* ---- what the sections hold --------------------------------------------------------------------------- */

enum {
    TAG_INFO = QW_ARCHIVE_TAG('I', 'N', 'F', 'O'),
    TAG_TOKENS = QW_ARCHIVE_TAG('T', 'O', 'K', 'N'),
    TAG_WANTS = QW_ARCHIVE_TAG('W', 'A', 'N', 'T'),
    TAG_KV = QW_ARCHIVE_TAG('K', 'V', ' ', ' '),
    TAG_STATE = QW_ARCHIVE_TAG('S', 'T', 'A', 'T'),
    TAG_LOGITS = QW_ARCHIVE_TAG('L', 'O', 'G', 'T'),
    TAG_SAMPLER = QW_ARCHIVE_TAG('S', 'A', 'M', 'P'),
    TAG_BITMASK = QW_ARCHIVE_TAG('M', 'A', 'S', 'K'),
    TAG_BIAS_TOKENS = QW_ARCHIVE_TAG('B', 'T', 'O', 'K'),
    TAG_BIAS = QW_ARCHIVE_TAG('B', 'I', 'A', 'S'),
    SECTIONS = 10
};

typedef struct info {
    unsigned char fingerprint[QW_HASH_BYTES];
    char numerics[QW_NUMERICS_ID];
    int32_t vocab_size, length, computed, output_begin;
    int32_t has_logits, has_bitmask;
    int32_t bias_count, reserved;
    uint64_t block_bytes, state_bytes;
    uint64_t space; /* of the prefixes; a restored session may choose another one */
} info;

typedef struct sampler_record {
    int32_t top_k, logprobs;
    float temperature, top_p, min_p, repetition, presence, frequency;
    uint64_t seed, stream;
    int32_t has_logprob, top_count;
    float logprob;
    int32_t top_token[QWEN36_LOGPROBS_MAX];
    float top_logprob[QWEN36_LOGPROBS_MAX];
    int32_t reserved;
} sampler_record;

/* The states of a slot without the padding between them: per linear layer recurrent, then convolution. */
static uint64_t recurrent_bytes(const qw_dims *d)
{
    return (uint64_t)d->lin_v_heads * (uint64_t)d->lin_k_dim * (uint64_t)d->lin_v_dim * sizeof(float);
}

static uint64_t layer_state_bytes(const qw_dims *d)
{
    return recurrent_bytes(d) +
           (uint64_t)qw_dims_conv_channels(d) * (uint64_t)(d->conv_width - 1) * sizeof(float);
}

static int32_t block_count(int32_t computed)
{
    return (computed + QW_KV_BLOCK - 1) / QW_KV_BLOCK;
}

static uint32_t list_sections(const qwen36_model *m, const info *i, qw_archive_section *s)
{
    uint64_t vocab = (uint64_t)i->vocab_size, biases = (uint64_t)i->bias_count;
    const qw_archive_section all[SECTIONS] = {
        {TAG_INFO, sizeof *i},
        {TAG_TOKENS, (uint64_t)i->length * sizeof(int32_t)},
        {TAG_WANTS, (uint64_t)i->length},
        {TAG_KV, (uint64_t)block_count(i->computed) * m->cache.plan.block_bytes},
        {TAG_STATE, i->computed > 0 ? (uint64_t)m->dims.linear_layers * layer_state_bytes(&m->dims) : 0},
        {TAG_LOGITS, i->has_logits != 0 ? vocab * sizeof(float) : 0},
        {TAG_SAMPLER, sizeof(sampler_record)},
        {TAG_BITMASK, i->has_bitmask != 0 ? (vocab + 31) / 32 * sizeof(uint32_t) : 0},
        {TAG_BIAS_TOKENS, biases * sizeof(int32_t)},
        {TAG_BIAS, biases * sizeof(float)},
    };
    memcpy(s, all, sizeof all);
    return SECTIONS;
}

/* ---- moving pieces between sections and the cache ------------------------------------------------------ */

/* Calls `move` for the parts of a section's [offset, offset + bytes) that lie together in a buffer. */
typedef qwen36_status (*move_fn)(qw_backend *, const qw_buffer *, uint64_t at, unsigned char *data,
                                 uint64_t bytes);

static qwen36_status read_part(qw_backend *b, const qw_buffer *buffer, uint64_t at, unsigned char *data,
                               uint64_t bytes)
{
    return b->ops->read(b, buffer, at, data, bytes);
}

static qwen36_status write_part(qw_backend *b, const qw_buffer *buffer, uint64_t at, unsigned char *data,
                                uint64_t bytes)
{
    return b->ops->write(b, buffer, at, data, bytes);
}

static qwen36_status move_kv(const qwen36_session *s, move_fn move, uint64_t offset, unsigned char *data,
                             uint64_t bytes)
{
    qw_cache *cache = &s->model->cache;
    uint64_t size = cache->plan.block_bytes;
    qwen36_status status = QWEN36_OK;
    for (uint64_t part; bytes > 0 && status == QWEN36_OK; offset += part, data += part, bytes -= part) {
        part = QW_MIN(size - offset % size, bytes);
        uint64_t at = (uint64_t)s->blocks[offset / size] * size + offset % size;
        status = move(&s->model->backend, &cache->kv, at, data, part);
    }
    return status;
}

static qwen36_status move_state(const qwen36_session *s, move_fn move, uint64_t offset, unsigned char *data,
                                uint64_t bytes)
{
    const qw_cache *cache = &s->model->cache;
    uint64_t recurrent = recurrent_bytes(&s->model->dims), layer = layer_state_bytes(&s->model->dims), part;
    qwen36_status status = QWEN36_OK;
    for (; bytes > 0 && status == QWEN36_OK; offset += part, data += part, bytes -= part) {
        uint64_t in_layer = offset % layer;
        bool is_conv = in_layer >= recurrent;
        qw_state_view view = is_conv ? qw_cache_conv(cache, (int32_t)(offset / layer))
                                     : qw_cache_recurrent(cache, (int32_t)(offset / layer));
        part = QW_MIN((is_conv ? layer : recurrent) - in_layer, bytes);
        uint64_t at =
            (uint64_t)(view.layer_offset + s->slot * view.slot_stride) + in_layer - (is_conv ? recurrent : 0);
        status = move(&s->model->backend, &cache->states, at, data, part);
    }
    return status;
}

static qwen36_status move_logits(const qwen36_session *s, move_fn move, uint64_t offset, unsigned char *data,
                                 uint64_t bytes)
{
    const qw_cache *cache = &s->model->cache;
    uint64_t row = (uint64_t)s->model->dims.vocab_size * sizeof(float);
    return move(&s->model->backend, &cache->logits, (uint64_t)s->row * row + offset, data, bytes);
}

/* ---- saving -------------------------------------------------------------------------------------------- */

typedef struct saver {
    const qwen36_session *session;
    info info;
    sampler_record sampler;
} saver;

static void describe(const qwen36_session *s, info *i)
{
    const qwen36_model *m = s->model;
    memset(i, 0, sizeof *i);
    qw_hash_canonical(m->fingerprint, i->fingerprint);
    qw_model_numerics_id(m, i->numerics);
    i->vocab_size = m->dims.vocab_size;
    i->length = s->length;
    i->computed = s->computed;
    i->output_begin = s->output_begin;
    i->has_logits = s->row >= 0;
    i->has_bitmask = s->sampler.has_bitmask;
    i->bias_count = (int32_t)s->sampler.bias_count;
    i->block_bytes = m->cache.plan.block_bytes;
    i->state_bytes = (uint64_t)m->dims.linear_layers * layer_state_bytes(&m->dims);
    i->space = s->space;
}

static void describe_sampler(const qw_sampler *s, sampler_record *r)
{
    const qwen36_sampling *o = &s->options;
    memset(r, 0, sizeof *r);
    *r = (sampler_record){.top_k = o->top_k,
                          .logprobs = o->logprobs,
                          .temperature = o->temperature,
                          .top_p = o->top_p,
                          .min_p = o->min_p,
                          .repetition = o->repetition_penalty,
                          .presence = o->presence_penalty,
                          .frequency = o->frequency_penalty,
                          .seed = o->seed,
                          .stream = o->stream,
                          .has_logprob = s->has_logprob,
                          .top_count = s->top_count,
                          .logprob = s->logprob};
    for (int32_t i = 0; i < s->top_count; i++) {
        r->top_token[i] = s->top_token[i];
        r->top_logprob[i] = s->top_logprob[i];
    }
}

static qwen36_status copy_out(const void *from, uint64_t offset, void *out, uint64_t bytes)
{
    memcpy(out, (const char *)from + offset, bytes);
    return QWEN36_OK;
}

/* Behind the last token a block holds what was there before: that goes nowhere. */
static qwen36_status save_kv(const qwen36_session *s, uint64_t offset, unsigned char *out, uint64_t bytes)
{
    const qw_cache_plan *plan = &s->model->cache.plan;
    qwen36_status status = move_kv(s, read_part, offset, out, bytes);
    uint64_t last = (uint64_t)(s->computed / QW_KV_BLOCK) * plan->block_bytes;
    if (status == QWEN36_OK && s->computed % QW_KV_BLOCK != 0 && offset + bytes > last) {
        uint64_t skip = offset < last ? last - offset : 0;
        qw_cache_blank(plan, &s->model->dims, offset + skip - last, out + skip, bytes - skip,
                       s->computed % QW_KV_BLOCK);
    }
    return status;
}

static qwen36_status save_piece(void *user, uint32_t tag, uint64_t offset, void *out, uint64_t bytes)
{
    const saver *self = user;
    const qwen36_session *s = self->session;
    switch (tag) {
    case TAG_INFO:
        return copy_out(&self->info, offset, out, bytes);
    case TAG_TOKENS:
        return copy_out(s->tokens, offset, out, bytes);
    case TAG_WANTS:
        return copy_out(s->wants, offset, out, bytes);
    case TAG_SAMPLER:
        return copy_out(&self->sampler, offset, out, bytes);
    case TAG_BITMASK:
        return copy_out(s->sampler.bitmask, offset, out, bytes);
    case TAG_BIAS_TOKENS:
        return copy_out(s->sampler.bias_token, offset, out, bytes);
    case TAG_BIAS:
        return copy_out(s->sampler.bias, offset, out, bytes);
    default:
        break;
    }
    qwen36_status status = qw_model_take_turn(s->model, NULL);
    if (status != QWEN36_OK)
        return status;
    status = tag == TAG_KV      ? save_kv(s, offset, out, bytes)
             : tag == TAG_STATE ? move_state(s, read_part, offset, out, bytes)
                                : move_logits(s, read_part, offset, out, bytes);
    qw_model_give_turn(s->model);
    return qw_model_note(s->model, status);
}

static qw_archive_content begin_save(const qwen36_session *s, saver *self, qw_archive_section *sections)
{
    self->session = s;
    describe(s, &self->info);
    describe_sampler(&s->sampler, &self->sampler);
    return (qw_archive_content){sections, list_sections(s->model, &self->info, sections), save_piece, self};
}

qwen36_status qw_session_save_file(const qwen36_session *s, const char *path, qwen36_error *error)
{
    saver self;
    qw_archive_section sections[SECTIONS];
    qw_archive_content content = begin_save(s, &self, sections);
    return qw_archive_write_file(&s->model->allocator, &content, path, error);
}

qwen36_status qw_session_save_memory(const qwen36_session *s, void *memory, uint64_t capacity,
                                     uint64_t *bytes, qwen36_error *error)
{
    saver self;
    qw_archive_section sections[SECTIONS];
    qw_archive_content content = begin_save(s, &self, sections);
    return qw_archive_write_memory(&s->model->allocator, &content, memory, capacity, bytes, error);
}

/* ---- restoring ----------------------------------------------------------------------------------------- */

typedef struct restorer {
    qwen36_session *session;
    info info;
    sampler_record sampler;
    unsigned char *piece; /* a writable copy of what is moved into the cache */
    int32_t *bias_token;
    float *bias;
} restorer;

static qwen36_status copy_in(void *to, uint64_t offset, const void *data, uint64_t bytes)
{
    memcpy((char *)to + offset, data, bytes);
    return QWEN36_OK;
}

static qwen36_status restore_cached(restorer *self, uint32_t tag, uint64_t offset, const void *data,
                                    uint64_t bytes)
{
    qwen36_session *s = self->session;
    qwen36_status status = qw_model_take_turn(s->model, NULL);
    if (status != QWEN36_OK)
        return status;
    memcpy(self->piece, data, bytes);
    status = tag == TAG_KV      ? move_kv(s, write_part, offset, self->piece, bytes)
             : tag == TAG_STATE ? move_state(s, write_part, offset, self->piece, bytes)
                                : move_logits(s, write_part, offset, self->piece, bytes);
    qw_model_give_turn(s->model);
    return qw_model_note(s->model, status);
}

static qwen36_status restore_piece(void *user, uint32_t tag, uint64_t offset, const void *data,
                                   uint64_t bytes)
{
    restorer *self = user;
    qwen36_session *s = self->session;
    switch (tag) {
    case TAG_INFO:
        return copy_in(&self->info, offset, data, bytes);
    case TAG_SAMPLER:
        return copy_in(&self->sampler, offset, data, bytes);
    case TAG_TOKENS:
        return copy_in(s->tokens, offset, data, bytes);
    case TAG_WANTS:
        return copy_in(s->wants, offset, data, bytes);
    case TAG_BITMASK:
        return copy_in(s->sampler.bitmask, offset, data, bytes);
    case TAG_BIAS_TOKENS:
        return copy_in(self->bias_token, offset, data, bytes);
    case TAG_BIAS:
        return copy_in(self->bias, offset, data, bytes);
    default:
        return restore_cached(self, tag, offset, data, bytes);
    }
}

static qwen36_status malformed(qwen36_error *error, const char *what)
{
    return qw_fail(error, QWEN36_ERROR_SNAPSHOT, "the snapshot is malformed: %s", what);
}

static qwen36_status check_origin(const qwen36_model *m, const info *i, bool any_numerics,
                                  qwen36_error *error)
{
    unsigned char fingerprint[QW_HASH_BYTES];
    char numerics[QW_NUMERICS_ID];
    qw_hash_canonical(m->fingerprint, fingerprint);
    qw_model_numerics_id(m, numerics);
    if (memchr(i->numerics, '\0', sizeof i->numerics) == NULL)
        return malformed(error, "its numerics id does not end");
    if (memcmp(fingerprint, i->fingerprint, sizeof fingerprint) != 0)
        return qw_fail(error, QWEN36_ERROR_SNAPSHOT_MISMATCH, "the snapshot is of another model");
    if (strcmp(numerics, i->numerics) != 0 && !any_numerics)
        return qw_fail(error, QWEN36_ERROR_SNAPSHOT_MISMATCH,
                       "the snapshot was computed by %s, this model by %s", i->numerics, numerics);
    if (i->block_bytes != m->cache.plan.block_bytes)
        return qw_fail(error, QWEN36_ERROR_SNAPSHOT_MISMATCH,
                       "the snapshot's KV has another format: %s, here %s", i->numerics, numerics);
    return QWEN36_OK;
}

static qwen36_status check_info(const qwen36_model *m, const info *i, qwen36_error *error)
{
    if (i->vocab_size != m->dims.vocab_size ||
        i->state_bytes != (uint64_t)m->dims.linear_layers * layer_state_bytes(&m->dims))
        return malformed(error, "its sizes are not those of the model");
    if (i->length < 0 || i->computed < 0 || i->computed > i->length || i->output_begin < 0 ||
        i->output_begin > i->length)
        return malformed(error, "its timeline");
    if (i->has_logits < 0 || i->has_logits > (i->computed > 0) || i->has_bitmask < 0 || i->has_bitmask > 1 ||
        i->bias_count < 0 || i->bias_count > i->vocab_size || i->reserved != 0)
        return malformed(error, "its counts");
    return QWEN36_OK;
}

static qwen36_status check_sections(const qwen36_model *m, const qw_archive *archive, const info *i,
                                    qwen36_error *error)
{
    qw_archive_section expected[SECTIONS];
    uint32_t count = list_sections(m, i, expected);
    for (uint32_t n = 0; n < count; n++) {
        uint64_t bytes = 0;
        if (!qw_archive_find(archive, expected[n].tag, &bytes) || bytes != expected[n].bytes)
            return malformed(error, "a section is missing or has another size");
    }
    return QWEN36_OK;
}

/* The numbers in it are those of a session: every later use rests on that. */
static qwen36_status check_timeline(const qwen36_session *s, qwen36_error *error)
{
    for (int32_t i = 0; i < s->length; i++) {
        if (s->tokens[i] < 0 || s->tokens[i] >= s->model->dims.vocab_size)
            return malformed(error, "a token id is outside the vocabulary");
        if ((s->wants[i] & ~(QW_WANT_LAST | QW_WANT_ROW)) != 0)
            return malformed(error, "a wish for logits");
    }
    return QWEN36_OK;
}

static qwen36_status adopt_sampler(restorer *self, qwen36_error *error)
{
    qw_sampler *to = &self->session->sampler;
    const sampler_record *r = &self->sampler;
    qwen36_sampling options = {.struct_size = sizeof options,
                               .top_k = r->top_k,
                               .temperature = r->temperature,
                               .top_p = r->top_p,
                               .min_p = r->min_p,
                               .repetition_penalty = r->repetition,
                               .presence_penalty = r->presence,
                               .frequency_penalty = r->frequency,
                               .logprobs = r->logprobs,
                               .seed = r->seed,
                               .stream = r->stream};
    const qw_allocator *a = &self->session->model->allocator;
    if (qw_sampler_set_options(to, &options, NULL) != QWEN36_OK)
        return malformed(error, "its sampling options");
    qwen36_status status =
        qw_sampler_set_bias(to, a, self->bias_token, self->bias, (size_t)self->info.bias_count, NULL);
    if (status != QWEN36_OK)
        return status == QWEN36_ERROR_OUT_OF_MEMORY ? qw_fail_memory(error, 0)
                                                    : malformed(error, "its biases");
    if (r->has_logprob < 0 || r->has_logprob > 1 || r->top_count < 0 || r->top_count > QWEN36_LOGPROBS_MAX)
        return malformed(error, "its log-probabilities");
    to->has_bitmask = self->info.has_bitmask != 0;
    to->has_logprob = r->has_logprob != 0;
    to->logprob = r->logprob;
    to->top_count = r->top_count;
    memcpy(to->top_token, r->top_token, sizeof to->top_token);
    memcpy(to->top_logprob, r->top_logprob, sizeof to->top_logprob);
    return QWEN36_OK;
}

/* Places in the cache for everything that was computed. */
static qwen36_status reserve(qwen36_session *s, const info *i, qwen36_error *error)
{
    qwen36_model *m = s->model;
    int32_t blocks = block_count(i->computed);
    qw_mutex_lock(&m->lock);
    bool complete = true;
    while (complete && s->block_count < blocks) {
        int32_t block = qw_cache_take_block(&m->cache);
        complete = block >= 0;
        if (complete)
            s->blocks[s->block_count++] = block;
    }
    if (complete && i->computed > 0)
        complete = (s->slot = qw_cache_take_slot(&m->cache)) >= 0;
    if (complete && i->has_logits != 0)
        complete = (s->row = qw_cache_take_row(&m->cache)) >= 0;
    qw_mutex_unlock(&m->lock);
    if (!complete)
        return qw_fail(error, QWEN36_ERROR_CACHE_FULL, "%d KV blocks and a state slot are not free", blocks);
    return QWEN36_OK;
}

static qwen36_status load_sections(restorer *self, qw_archive *archive, const uint32_t *tags, size_t count,
                                   qwen36_error *error)
{
    const qw_allocator *a = &self->session->model->allocator;
    self->piece = qw_alloc_raw(a, QW_ARCHIVE_PIECE, 1);
    qwen36_status status = self->piece != NULL ? QWEN36_OK : qw_fail_memory(error, QW_ARCHIVE_PIECE);
    for (size_t i = 0; i < count && status == QWEN36_OK; i++)
        status = qw_archive_load(archive, tags[i], restore_piece, self, error);
    qw_free(a, self->piece);
    if (status != QWEN36_OK)
        return status;
    self->session->length = self->info.length;
    return check_timeline(self->session, error);
}

static qwen36_status load_state(restorer *self, qw_archive *archive, qwen36_error *error)
{
    static const uint32_t tags[] = {TAG_TOKENS, TAG_WANTS, TAG_KV, TAG_STATE, TAG_LOGITS};
    return load_sections(self, archive, tags, QW_COUNT_OF(tags), error);
}

static qwen36_status load_sampler(restorer *self, qw_archive *archive, qwen36_error *error)
{
    static const uint32_t tags[] = {TAG_SAMPLER, TAG_BITMASK, TAG_BIAS_TOKENS, TAG_BIAS};
    const qw_allocator *a = &self->session->model->allocator;
    self->bias_token = qw_alloc(a, (size_t)self->info.bias_count, sizeof *self->bias_token);
    self->bias = qw_alloc(a, (size_t)self->info.bias_count, sizeof *self->bias);
    qwen36_status status = QWEN36_OK;
    if (self->bias_token == NULL || self->bias == NULL)
        status = qw_fail_memory(error, (uint64_t)self->info.bias_count * sizeof *self->bias);
    if (status == QWEN36_OK)
        status = load_sections(self, archive, tags, QW_COUNT_OF(tags), error);
    if (status == QWEN36_OK)
        status = adopt_sampler(self, error);
    qw_free(a, self->bias);
    qw_free(a, self->bias_token);
    return status;
}

static void stand(qwen36_session *s, const info *i)
{
    qw_mutex_lock(&s->model->lock);
    s->computed = i->computed;
    s->output_begin = i->output_begin;
    qw_session_mark_prompt(s, s->computed);
    qw_session_index(s);
    qw_mutex_unlock(&s->model->lock);
}

/* Checks the whole archive, then what it says of itself. */
static qwen36_status begin_restore(const qwen36_model *m, restorer *self, qw_archive *archive,
                                   bool any_numerics, qwen36_error *error)
{
    uint64_t bytes = 0;
    qwen36_status status = qw_archive_verify(archive, error);
    if (status == QWEN36_OK && (!qw_archive_find(archive, TAG_INFO, &bytes) || bytes != sizeof self->info))
        status = malformed(error, "it has no description");
    if (status == QWEN36_OK)
        status = qw_archive_load(archive, TAG_INFO, restore_piece, self, error);
    if (status == QWEN36_OK)
        status = check_origin(m, &self->info, any_numerics, error);
    if (status == QWEN36_OK)
        status = check_info(m, &self->info, error);
    return status == QWEN36_OK ? check_sections(m, archive, &self->info, error) : status;
}

static qwen36_status restore_from(qwen36_model *m, qw_archive *archive, const qwen36_session_options *options,
                                  const qwen36_sampling *sampling, bool any_numerics,
                                  qwen36_session **session, qwen36_error *error)
{
    restorer self = {0};
    qwen36_status status = begin_restore(m, &self, archive, any_numerics, error);
    if (status == QWEN36_OK && self.info.length > options->context_length)
        status = qw_fail(error, QWEN36_ERROR_CONTEXT_FULL, "%d tokens do not fit into a context_length of %d",
                         self.info.length, options->context_length);
    if (status == QWEN36_OK)
        status = qw_session_open(m, options, sampling, &self.session, error);
    if (status != QWEN36_OK)
        return status;
    status = reserve(self.session, &self.info, error);
    if (status == QWEN36_OK)
        status = load_state(&self, archive, error);
    if (status == QWEN36_OK)
        status = load_sampler(&self, archive, error);
    if (status != QWEN36_OK) {
        qw_session_close(self.session);
        return status;
    }
    stand(self.session, &self.info);
    *session = self.session;
    return QWEN36_OK;
}

qwen36_status qw_session_restore(qwen36_model *m, const qw_snapshot_source *source,
                                 const qwen36_session_options *options, const qwen36_sampling *sampling,
                                 bool any_numerics, qwen36_session **session, qwen36_error *error)
{
    qw_archive archive;
    qwen36_status status =
        source->path != NULL
            ? qw_archive_open_file(&m->allocator, source->path, &archive, error)
            : qw_archive_open_memory(&m->allocator, source->memory, source->bytes, &archive, error);
    if (status != QWEN36_OK)
        return status;
    status = restore_from(m, &archive, options, sampling, any_numerics, session, error);
    qw_archive_close(&archive);
    return status;
}

/* ---- prefixes ------------------------------------------------------------------------------------------ */

static qwen36_status import_prefix(restorer *self, qw_archive *archive, qwen36_error *error)
{
    qwen36_session *s = self->session;
    const info *i = &self->info;
    qwen36_status status = begin_restore(s->model, self, archive, false, error);
    if (status != QWEN36_OK)
        return status;
    if (i->length != s->capacity || i->computed != i->length || i->space != s->space || i->has_logits != 0)
        return malformed(error, "it is not the prefix that its name says");
    status = reserve(s, i, error);
    return status == QWEN36_OK ? load_state(self, archive, error) : status;
}

/* Into a session that nobody else sees, out of which the blocks go to the index. */
qwen36_status qw_snapshot_import_prefix(qwen36_model *m, const char *path, uint64_t space,
                                        const int32_t *tokens, int32_t count, qwen36_error *error)
{
    qw_archive archive;
    qwen36_session s = {.model = m, .capacity = count, .space = space, .slot = -1, .row = -1, .passing = -1};
    restorer self = {.session = &s};
    size_t length = (size_t)count;
    qwen36_status status = qw_archive_open_file(&m->allocator, path, &archive, error);
    if (status != QWEN36_OK)
        return status;
    s.tokens = qw_alloc(&m->allocator, length, sizeof *s.tokens);
    s.wants = qw_alloc(&m->allocator, length, sizeof *s.wants);
    s.blocks = qw_alloc(&m->allocator, (size_t)block_count(count), sizeof *s.blocks);
    if (s.tokens == NULL || s.wants == NULL || s.blocks == NULL)
        status = qw_fail_memory(error, length * sizeof *s.tokens);
    if (status == QWEN36_OK)
        status = import_prefix(&self, &archive, error);
    if (status == QWEN36_OK && memcmp(s.tokens, tokens, length * sizeof *tokens) != 0)
        status = malformed(error, "its tokens are others than its name says");
    if (status == QWEN36_OK)
        stand(&s, &self.info);
    qw_session_forget(&s);
    qw_free(&m->allocator, s.blocks);
    qw_free(&m->allocator, s.wants);
    qw_free(&m->allocator, s.tokens);
    qw_archive_close(&archive);
    return status;
}

/* A session that stands on the node, for the time of writing; the caller holds its blocks and its slot. */
qwen36_status qw_snapshot_export_prefix(qwen36_model *m, const char *path, uint64_t space,
                                        const qw_snapshot_prefix *prefix, qwen36_error *error)
{
    int32_t length = prefix->count * QW_KV_BLOCK;
    qwen36_session s = {.model = m,
                        .capacity = length,
                        .length = length,
                        .computed = length,
                        .space = space,
                        .tokens = prefix->tokens,
                        .blocks = prefix->blocks,
                        .block_count = prefix->count,
                        .slot = prefix->slot,
                        .row = -1,
                        .output_begin = length};
    s.wants = qw_alloc(&m->allocator, (size_t)length, sizeof *s.wants);
    if (s.wants == NULL)
        return qw_fail_memory(error, (uint64_t)length);
    qwen36_status status = qw_session_save_file(&s, path, error);
    qw_free(&m->allocator, s.wants);
    return status;
}
