#include "lib/text/decoder.h"

#include "lib/text/utf8.h"

#include <string.h>

/* The text of one token, with the bytes held back, each of which may become a U+FFFD; what is repaired and
 * its source lie in one buffer. */
static bool reserve(qwen36_decoder *d, size_t length)
{
    void *memory = d->text;
    if (length > SIZE_MAX / 8 || !qw_grow(&d->tokenizer->allocator, &memory, &d->capacity,
                                          (length + sizeof d->tail) * (QW_UTF8_REPLACEMENT_SIZE + 1) + 1, 1))
        return false;
    d->text = memory;
    return true;
}

qwen36_status qw_decoder_create(const qwen36_tokenizer *tokenizer, uint32_t flags, qwen36_decoder **out,
                                qwen36_error *error)
{
    qwen36_decoder *d = qw_alloc(&tokenizer->allocator, 1, sizeof *d);
    *out = NULL;
    if (d == NULL)
        return qw_fail_memory(error, sizeof *d);
    *d = (qwen36_decoder){.tokenizer = tokenizer, .flags = flags};
    if (!reserve(d, 32)) {
        qw_decoder_destroy(d);
        return qw_fail_memory(error, 32);
    }
    *out = d;
    return QWEN36_OK;
}

void qw_decoder_destroy(qwen36_decoder *d)
{
    if (d == NULL)
        return;
    qw_free(&d->tokenizer->allocator, d->text);
    qw_free(&d->tokenizer->allocator, d);
}

qwen36_status qw_decoder_push(qwen36_decoder *d, int32_t token, const char **text, size_t *length,
                              qwen36_error *error)
{
    const char *bytes;
    size_t n;
    qwen36_status status = qw_tokenizer_text(d->tokenizer, token, d->flags, &bytes, &n, error);
    if (status != QWEN36_OK)
        return status;
    if (!reserve(d, n))
        return qw_fail_memory(error, n);
    size_t raw = d->held + n;
    char *source = d->text + raw * QW_UTF8_REPLACEMENT_SIZE + 1;
    memcpy(source, d->tail, d->held);
    memcpy(source + d->held, bytes, n);
    *length = qw_utf8_repair(source, raw, d->text, &d->held);
    memcpy(d->tail, source + raw - d->held, d->held);
    d->text[*length] = '\0';
    *text = d->text;
    return QWEN36_OK;
}

void qw_decoder_finish(qwen36_decoder *d, const char **text, size_t *length)
{
    *length = d->held > 0 ? QW_UTF8_REPLACEMENT_SIZE : 0;
    memcpy(d->text, QW_UTF8_REPLACEMENT, *length);
    d->text[*length] = '\0';
    d->held = 0;
    *text = d->text;
}
