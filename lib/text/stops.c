#include "lib/text/stops.h"

#include "lib/text/utf8.h"

#include <string.h>

static size_t stop_length(const qw_stops *s, int32_t index)
{
    return s->offset[index + 1] - s->offset[index];
}

static const char *stop_text(const qw_stops *s, int32_t index)
{
    return s->bytes + s->offset[index];
}

static qwen36_status check_stop(const char *text, size_t length, size_t index, qwen36_error *error)
{
    if (text == NULL || length == 0 || length > QW_STOP_BYTES_MAX)
        return qw_fail(error, QWEN36_ERROR_ARGUMENT, "stop string %zu has %zu bytes, outside 1..%d", index,
                       text == NULL ? (size_t)0 : length, QW_STOP_BYTES_MAX);
    if (qw_utf8_valid_prefix(text, length) != length)
        return qw_fail(error, QWEN36_ERROR_ARGUMENT, "stop string %zu is not UTF-8", index);
    return QWEN36_OK;
}

static qwen36_status measure(qw_stops *s, const char *const *texts, const size_t *lengths, size_t count,
                             qwen36_error *error)
{
    for (size_t i = 0; i < count; i++) {
        size_t length = lengths != NULL ? lengths[i] : texts[i] != NULL ? strlen(texts[i]) : 0;
        qwen36_status status = check_stop(texts[i], length, i, error);
        if (status != QWEN36_OK)
            return status;
        s->offset[i + 1] = s->offset[i] + length;
        s->longest = QW_MAX(s->longest, length);
    }
    s->count = (int32_t)count;
    return QWEN36_OK;
}

qwen36_status qw_stops_create(qw_stops *s, const qw_allocator *a, const char *const *texts,
                              const size_t *lengths, size_t count, qwen36_error *error)
{
    *s = (qw_stops){.matched = -1};
    if (count > QW_STOPS_MAX)
        return qw_fail(error, QWEN36_ERROR_ARGUMENT, "%zu stop strings, more than %d", count, QW_STOPS_MAX);
    if (count == 0)
        return QWEN36_OK;
    if (texts == NULL)
        return qw_fail(error, QWEN36_ERROR_ARGUMENT, "the stop strings are NULL");
    qwen36_status status = measure(s, texts, lengths, count, error);
    if (status != QWEN36_OK)
        return status;
    s->bytes = qw_alloc_raw(a, s->offset[count], 1);
    if (s->bytes == NULL)
        return qw_fail_memory(error, s->offset[count]);
    for (size_t i = 0; i < count; i++)
        memcpy(s->bytes + s->offset[i], texts[i], s->offset[i + 1] - s->offset[i]);
    return QWEN36_OK;
}

void qw_stops_destroy(qw_stops *s, const qw_allocator *a)
{
    qw_free(a, s->bytes);
    qw_free(a, s->text);
    *s = (qw_stops){.matched = -1};
}

/* Where the stop's first occurrence in the text begins; `length` if there is none. */
static size_t find(const qw_stops *s, int32_t index, size_t length)
{
    size_t size = stop_length(s, index);
    for (size_t at = 0; at + size <= length; at++)
        if (s->text[at] == *stop_text(s, index) && memcmp(s->text + at, stop_text(s, index), size) == 0)
            return at;
    return length;
}

/* Sets `matched`; returns where the match begins, or `length`. */
static size_t match(qw_stops *s, size_t length)
{
    size_t begin = length, end = SIZE_MAX;
    for (int32_t i = 0; i < s->count; i++) {
        size_t at = find(s, i, length);
        if (at == length)
            continue;
        size_t at_end = at + stop_length(s, i);
        if (at_end < end || (at_end == end && at < begin)) {
            begin = at;
            end = at_end;
            s->matched = i;
        }
    }
    return begin;
}

/* Whether the last `size` bytes are how some stop begins. */
static bool begins_stop(const qw_stops *s, size_t length, size_t size)
{
    for (int32_t i = 0; i < s->count; i++)
        if (size < stop_length(s, i) && memcmp(s->text + length - size, stop_text(s, i), size) == 0)
            return true;
    return false;
}

static size_t longest_beginning(const qw_stops *s, size_t length)
{
    size_t size = QW_MIN(s->longest - 1, length);
    while (size > 0 && !begins_stop(s, length, size))
        size--;
    return size;
}

/* The buffer holds two texts: what is scanned, and behind it what was given out. */
static bool reserve(qw_stops *s, const qw_allocator *a, size_t length)
{
    void *memory = s->text;
    if (length > SIZE_MAX / 8 || !qw_grow(a, &memory, &s->capacity, 2 * length + s->longest + 2, 1))
        return false;
    s->text = memory;
    return true;
}

static void give_out(qw_stops *s, size_t length, size_t shown, size_t held, const char **out,
                     size_t *out_length)
{
    char *copy = s->text + length;
    memcpy(copy, s->text, shown);
    copy[shown] = '\0';
    memmove(s->text, s->text + length - held, held);
    s->held = held;
    *out = copy;
    *out_length = shown;
}

bool qw_stops_push(qw_stops *s, const qw_allocator *a, const char *text, size_t length, const char **out,
                   size_t *out_length)
{
    bool stopped = s->matched >= 0 && !s->ended;
    if (s->count > 0 && !stopped && !reserve(s, a, s->held + length))
        return false;
    if (s->ended)
        s->matched = -1;
    s->ended = false;
    if (s->count == 0 || s->matched >= 0) {
        *out = s->count == 0 ? text : "";
        *out_length = s->count == 0 ? length : 0;
        return true;
    }
    memcpy(s->text + s->held, text, length);
    length += s->held;
    size_t shown = match(s, length), held = 0;
    if (s->matched < 0) {
        held = longest_beginning(s, length);
        shown = length - held;
    }
    give_out(s, length, shown, held, out, out_length);
    return true;
}

void qw_stops_finish(qw_stops *s, const char **out, size_t *out_length)
{
    *out = "";
    *out_length = s->held;
    if (s->held > 0) {
        s->text[s->held] = '\0';
        *out = s->text;
    }
    s->held = 0;
    s->ended = true;
}
