#include "lib/text/tokenizer.h"

#include "lib/os/process.h"
#include "lib/text/normalize.h"
#include "lib/text/utf8.h"

#include <string.h>

bool qw_tokenizer_is_ours(const qwen36_tokenizer *t)
{
    return t->process == qw_process_id();
}

qwen36_status qw_tokenizer_fail_forked(qwen36_error *error)
{
    return qw_fail(error, QWEN36_ERROR_FORKED, "the tokenizer was loaded by a parent process");
}

int32_t qw_tokenizer_size(const qwen36_tokenizer *t)
{
    return (int32_t)t->vocabulary.size;
}

/* --- Encoding ------------------------------------------------------------------------------------- */

/* One call of encode: where the ids go, and memory that is reused from stretch to stretch. */
typedef struct encoder {
    const qwen36_tokenizer *tokenizer;
    bool keep;     /* false: count only */
    uint32_t *ids; /* [capacity], [count] of them are there */
    size_t capacity, count;
    uint32_t *piece; /* ids of the piece at work when they are only counted */
    size_t piece_capacity;
    char *repaired;
    size_t repaired_capacity;
    qw_nfc nfc;
    qw_bpe bpe;
    qw_regex_match *match;
    qwen36_error *error;
} encoder;

static qwen36_status fail_memory(const encoder *e, size_t length)
{
    return qw_fail_memory(e->error, length);
}

/* Room for `extra` ids behind those that are there; NULL: out of memory. */
static uint32_t *reserve(encoder *e, size_t extra)
{
    const qw_allocator *allocator = &e->tokenizer->allocator;
    uint32_t **array = e->keep ? &e->ids : &e->piece;
    size_t *capacity = e->keep ? &e->capacity : &e->piece_capacity;
    size_t used = e->keep ? e->count : 0;
    void *memory = *array;
    if (!qw_grow(allocator, &memory, capacity, QW_MAX(used + extra, 256), sizeof **array))
        return NULL;
    *array = memory;
    return *array + used;
}

static qwen36_status encode_piece(encoder *e, const char *text, size_t length)
{
    const qwen36_tokenizer *t = e->tokenizer;
    uint32_t *ids = reserve(e, length);
    if (ids == NULL)
        return fail_memory(e, length);
    int32_t whole = length <= t->vocabulary.longest ? qw_vocabulary_find(&t->vocabulary, text, length) : -1;
    unsigned char verdict =
        whole < 0 ? QW_VERDICT_OTHERS : atomic_load_explicit(&t->verdicts[whole], memory_order_relaxed);
    if (verdict == QW_VERDICT_ITSELF) {
        ids[0] = (uint32_t)whole;
        e->count++;
        return QWEN36_OK;
    }
    size_t count = qw_bpe_encode(&e->bpe, text, length, ids);
    if (count == SIZE_MAX)
        return fail_memory(e, length);
    if (verdict == QW_VERDICT_UNKNOWN) {
        verdict = count == 1 && ids[0] == (uint32_t)whole ? QW_VERDICT_ITSELF : QW_VERDICT_OTHERS;
        atomic_store_explicit(&t->verdicts[whole], verdict, memory_order_relaxed);
    }
    e->count += count;
    return QWEN36_OK;
}

static qwen36_status encode_by_scanner(encoder *e, const char *text, size_t length)
{
    const qw_pretokenizer *p = &e->tokenizer->pretokenizer;
    qwen36_status status = QWEN36_OK;
    for (size_t at = 0, end; at < length && status == QWEN36_OK; at = end) {
        end = qw_pretokenizer_scan(p->unicode, p->pattern, text, length, at);
        status = encode_piece(e, text + at, end - at);
    }
    return status;
}

/* What lies between two matches is a piece too. */
static qwen36_status encode_by_regex(encoder *e, const char *text, size_t length)
{
    const qw_regex *regex = e->tokenizer->pretokenizer.regex;
    qwen36_status status = QWEN36_OK;
    size_t done = 0, at = 0, begin, end;
    if (e->match == NULL && (e->match = qw_regex_match_create(regex)) == NULL)
        return fail_memory(e, length);
    while (done < length && status == QWEN36_OK) {
        if ((status = qw_regex_find(regex, e->match, text, length, at, &begin, &end, e->error)) != QWEN36_OK)
            break;
        if (begin == end && begin < length) { /* an empty match: look on behind the next character */
            size_t size;
            (void)qw_utf8_next(text + begin, &size);
            at = begin + size;
            continue;
        }
        if (begin > done)
            status = encode_piece(e, text + done, begin - done);
        if (end > begin && status == QWEN36_OK)
            status = encode_piece(e, text + begin, end - begin);
        done = at = end;
    }
    return status;
}

/* Text without added tokens. */
static qwen36_status encode_stretch(encoder *e, const char *text, size_t length)
{
    const qwen36_tokenizer *t = e->tokenizer;
    if (qw_utf8_valid_prefix(text, length) < length) {
        void *memory = e->repaired;
        if (length > SIZE_MAX / 4 ||
            !qw_grow(&t->allocator, &memory, &e->repaired_capacity, length * QW_UTF8_REPLACEMENT_SIZE, 1))
            return fail_memory(e, length);
        e->repaired = memory;
        length = qw_utf8_repair(text, length, e->repaired, NULL);
        text = e->repaired;
    }
    if (t->nfc && !qw_nfc_normalize(&e->nfc, &text, &length))
        return fail_memory(e, length);
    if (t->pretokenizer.pattern == QW_PATTERN_OTHER)
        return encode_by_regex(e, text, length);
    return encode_by_scanner(e, text, length);
}

static qwen36_status encode_added(encoder *e, int32_t id)
{
    uint32_t *place = reserve(e, 1);
    if (place == NULL)
        return fail_memory(e, sizeof *place);
    *place = (uint32_t)id;
    e->count++;
    return QWEN36_OK;
}

static qwen36_status encode_text(encoder *e, const char *text, const qw_tokenizer_span *spans, size_t count)
{
    qwen36_status status = QWEN36_OK;
    size_t done = 0, at = 0;
    for (size_t i = 0; i < count; i++, at = spans[i - 1].end) {
        while (spans[i].special && at < spans[i].end && status == QWEN36_OK) {
            qw_added_match match = qw_added_find(&e->tokenizer->added, text, spans[i].end, at);
            if (match.length == 0)
                break;
            if (match.begin > done)
                status = encode_stretch(e, text + done, match.begin - done);
            if (status == QWEN36_OK)
                status = encode_added(e, match.id);
            done = at = match.begin + match.length;
        }
    }
    if (at > done && status == QWEN36_OK)
        status = encode_stretch(e, text + done, at - done);
    return status;
}

static void release_encoder(encoder *e)
{
    const qw_allocator *allocator = &e->tokenizer->allocator;
    qw_free(allocator, e->ids);
    qw_free(allocator, e->piece);
    qw_free(allocator, e->repaired);
    qw_nfc_release(&e->nfc);
    qw_bpe_release(&e->bpe);
    qw_regex_match_destroy(e->match);
}

qwen36_status qw_tokenizer_encode_spans(const qwen36_tokenizer *t, const char *text,
                                        const qw_tokenizer_span *spans, size_t span_count, int32_t *ids,
                                        size_t capacity, size_t *count, qwen36_error *error)
{
    encoder e = {.tokenizer = t,
                 .keep = capacity > 0,
                 .nfc = {.allocator = &t->allocator, .unicode = &t->unicode},
                 .bpe = {.allocator = &t->allocator, .merges = &t->merges},
                 .error = error};
    qwen36_status status = encode_text(&e, text, spans, span_count);
    if (status == QWEN36_OK) {
        *count = e.count;
        if (e.count > capacity)
            status = qw_fail(error, QWEN36_ERROR_BUFFER_TOO_SMALL, "room for %zu token ids, %zu are needed",
                             capacity, e.count);
        else if (e.count > 0)
            memcpy(ids, e.ids, e.count * sizeof *ids);
    }
    release_encoder(&e);
    return status;
}

qwen36_status qw_tokenizer_encode(const qwen36_tokenizer *t, const char *text, size_t length, uint32_t flags,
                                  int32_t *ids, size_t capacity, size_t *count, qwen36_error *error)
{
    const qw_tokenizer_span whole = {length, (flags & QWEN36_ENCODE_PARSE_SPECIAL) != 0};
    return qw_tokenizer_encode_spans(t, text, &whole, 1, ids, capacity, count, error);
}

/* --- Tokens and decoding -------------------------------------------------------------------------- */

static unsigned char flags_of(const qwen36_tokenizer *t, int32_t id)
{
    return id >= 0 && (uint32_t)id < t->vocabulary.size ? t->vocabulary.flags[id] : 0;
}

const char *qw_tokenizer_bytes(const qwen36_tokenizer *t, int32_t id, size_t *length)
{
    *length = 0;
    return flags_of(t, id) == 0 ? NULL : qw_vocabulary_bytes(&t->vocabulary, (uint32_t)id, length);
}

int32_t qw_tokenizer_id(const qwen36_tokenizer *t, const char *bytes, size_t length)
{
    int32_t id = qw_added_id(&t->added, bytes, length);
    return id >= 0 ? id : qw_vocabulary_find(&t->vocabulary, bytes, length);
}

bool qw_tokenizer_is_special(const qwen36_tokenizer *t, int32_t id)
{
    return (flags_of(t, id) & QW_TOKEN_SPECIAL) != 0;
}

qwen36_status qw_tokenizer_text(const qwen36_tokenizer *t, int32_t id, uint32_t flags, const char **text,
                                size_t *length, qwen36_error *error)
{
    *text = qw_tokenizer_bytes(t, id, length);
    if (*text == NULL)
        return qw_fail(error, QWEN36_ERROR_TOKEN_ID, "token id %d is outside the tokenizer (0 .. %d)", id,
                       qw_tokenizer_size(t) - 1);
    if ((flags & QWEN36_DECODE_SKIP_SPECIAL) != 0 && qw_tokenizer_is_special(t, id))
        *length = 0;
    return QWEN36_OK;
}

qwen36_status qw_tokenizer_decode(const qwen36_tokenizer *t, const int32_t *ids, size_t count, uint32_t flags,
                                  char *text, size_t capacity, size_t *length, qwen36_error *error)
{
    const char *bytes;
    size_t n, total = 0;
    for (size_t i = 0; i < count; i++, total += n) {
        qwen36_status status = qw_tokenizer_text(t, ids[i], flags, &bytes, &n, error);
        if (status != QWEN36_OK)
            return status;
        if (n > SIZE_MAX - total)
            return qw_fail(error, QWEN36_ERROR_OUT_OF_MEMORY, "the text's size does not fit");
    }
    *length = total;
    if (total > capacity)
        return qw_fail(error, QWEN36_ERROR_BUFFER_TOO_SMALL, "room for %zu bytes of text, %zu are needed",
                       capacity, total);
    for (size_t i = 0, at = 0; i < count; i++, at += n) {
        (void)qw_tokenizer_text(t, ids[i], flags, &bytes, &n, NULL);
        if (n > 0)
            memcpy(text + at, bytes, n);
    }
    return QWEN36_OK;
}
