#include "lib/text/chat_text.h"

#include <string.h>

void qw_chat_text_clear(qw_chat_text *text)
{
    text->length = 0;
    text->span_count = 0;
}

void qw_chat_text_release(qw_chat_text *text)
{
    qw_free(text->allocator, text->bytes);
    qw_free(text->allocator, text->spans);
}

static bool reserve(qw_chat_text *text, size_t length)
{
    void *bytes = text->bytes, *spans = text->spans;
    text->failed = text->failed || length > SIZE_MAX / 2 - text->length ||
                   !qw_grow(text->allocator, &bytes, &text->capacity, QW_MAX(text->length + length, 1024), 1);
    text->bytes = bytes;
    text->failed = text->failed || !qw_grow(text->allocator, &spans, &text->span_capacity,
                                            QW_MAX(text->span_count + 1, 32), sizeof *text->spans);
    text->spans = spans;
    return !text->failed;
}

static void append(qw_chat_text *text, const char *bytes, size_t length, bool special)
{
    if (length == 0 || !reserve(text, length))
        return;
    memcpy(text->bytes + text->length, bytes, length);
    text->length += length;
    if (text->span_count == 0 || text->spans[text->span_count - 1].special != special)
        text->spans[text->span_count++].special = special;
    text->spans[text->span_count - 1].end = text->length;
}

void qw_chat_text_say(qw_chat_text *text, const char *words)
{
    append(text, words, strlen(words), true);
}

void qw_chat_text_add(qw_chat_text *text, const char *bytes, size_t length)
{
    append(text, bytes, length, false);
}

void qw_chat_text_add_slice(qw_chat_text *text, qw_chat_slice slice)
{
    size_t at = slice.begin;
    for (size_t i = 0; i < slice.text->span_count && at < slice.end; i++) {
        qw_tokenizer_span span = slice.text->spans[i];
        if (span.end <= at)
            continue;
        size_t end = QW_MIN(span.end, slice.end);
        append(text, slice.text->bytes + at, end - at, span.special);
        at = end;
    }
}
