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

qwen36_status qw_decoder_create(const qwen36_tokenizer *tokenizer, const qwen36_decoder_options *options,
                                qwen36_decoder **out, qwen36_error *error)
{
    const qw_allocator *a = &tokenizer->allocator;
    qwen36_decoder *d = qw_alloc(a, 1, sizeof *d);
    *out = NULL;
    if (d == NULL)
        return qw_fail_memory(error, sizeof *d);
    *d = (qwen36_decoder){.tokenizer = tokenizer, .flags = options->flags};
    qwen36_status status =
        qw_stops_create(&d->stops, a, options->stops, options->stop_lengths, options->stop_count, error);
    if (status == QWEN36_OK && !reserve(d, 32))
        status = qw_fail_memory(error, 32);
    if (status != QWEN36_OK) {
        qw_decoder_destroy(d);
        return status;
    }
    *out = d;
    return QWEN36_OK;
}

void qw_decoder_destroy(qwen36_decoder *d)
{
    if (d == NULL)
        return;
    const qw_allocator *a = &d->tokenizer->allocator;
    qw_stops_destroy(&d->stops, a);
    qw_free(a, d->text);
    qw_free(a, d);
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
    size_t raw = d->held + n, held = 0;
    char *source = d->text + raw * QW_UTF8_REPLACEMENT_SIZE + 1;
    memcpy(source, d->tail, d->held);
    memcpy(source + d->held, bytes, n);
    size_t whole = qw_utf8_repair(source, raw, d->text, &held);
    d->text[whole] = '\0';
    if (!qw_stops_push(&d->stops, &d->tokenizer->allocator, d->text, whole, text, length))
        return qw_fail_memory(error, whole);
    memcpy(d->tail, source + raw - held, held);
    d->held = held;
    return QWEN36_OK;
}

/* A character that never came whole is a U+FFFD, which may yet complete a stop; what the stops held back
 * follows. */
qwen36_status qw_decoder_finish(qwen36_decoder *d, const char **text, size_t *length, qwen36_error *error)
{
    const char *shown = "", *rest;
    size_t shown_length = 0, rest_length;
    if (!reserve(d, d->stops.held))
        return qw_fail_memory(error, d->stops.held);
    if (d->held > 0 && !qw_stops_push(&d->stops, &d->tokenizer->allocator, QW_UTF8_REPLACEMENT,
                                      QW_UTF8_REPLACEMENT_SIZE, &shown, &shown_length))
        return qw_fail_memory(error, QW_UTF8_REPLACEMENT_SIZE);
    memcpy(d->text, shown, shown_length);
    qw_stops_finish(&d->stops, &rest, &rest_length);
    memcpy(d->text + shown_length, rest, rest_length);
    d->text[shown_length + rest_length] = '\0';
    d->held = 0;
    *text = d->text;
    *length = shown_length + rest_length;
    return QWEN36_OK;
}
