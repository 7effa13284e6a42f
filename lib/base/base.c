#include "lib/base/base.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void *allocate_default(void *user, size_t size, size_t alignment)
{
    (void)user;
    void *memory = NULL;
    size_t usable = alignment < sizeof(void *) ? sizeof(void *) : alignment;
    return posix_memalign(&memory, usable, size) == 0 ? memory : NULL;
}

static void release_default(void *user, void *memory)
{
    (void)user;
    free(memory);
}

qw_allocator qw_allocator_default(void)
{
    return (qw_allocator){allocate_default, release_default, NULL};
}

qwen36_status qw_allocator_adopt(const qwen36_allocator *hooks, qw_allocator *out, qwen36_error *error)
{
    *out = qw_allocator_default();
    if (hooks == NULL)
        return QWEN36_OK;
    if (hooks->struct_size != sizeof *hooks)
        return qw_fail(error, QWEN36_ERROR_STRUCT_SIZE, "allocator struct_size is %u, expected %zu",
                       hooks->struct_size, sizeof *hooks);
    if (hooks->allocate == NULL || hooks->release == NULL)
        return qw_fail(error, QWEN36_ERROR_ARGUMENT, "an allocator needs both allocate and release");
    *out = (qw_allocator){hooks->allocate, hooks->release, hooks->user};
    return QWEN36_OK;
}

void *qw_alloc_raw(const qw_allocator *a, size_t count, size_t size)
{
    uint64_t bytes = 0;
    if (!qw_mul(count, size, &bytes) || bytes > PTRDIFF_MAX)
        return NULL;
    return a->allocate(a->user, bytes == 0 ? 1 : bytes, QW_ALIGNMENT);
}

void *qw_alloc(const qw_allocator *a, size_t count, size_t size)
{
    void *memory = qw_alloc_raw(a, count, size);
    if (memory != NULL)
        memset(memory, 0, count * size);
    return memory;
}

void qw_free(const qw_allocator *a, const void *memory)
{
    union {
        const void *read;
        void *write;
    } pointer = {memory};
    if (memory != NULL)
        a->release(a->user, pointer.write);
}

bool qw_grow(const qw_allocator *a, void **array, size_t *capacity, size_t need, size_t size)
{
    if (need <= *capacity)
        return true;
    size_t wanted = *capacity > SIZE_MAX / 2 ? need : QW_MAX(need, *capacity * 2);
    void *grown = qw_alloc_raw(a, wanted, size);
    if (grown == NULL)
        return false;
    if (*capacity > 0)
        memcpy(grown, *array, *capacity * size);
    memset((char *)grown + *capacity * size, 0, (wanted - *capacity) * size);
    qw_free(a, *array);
    *array = grown;
    *capacity = wanted;
    return true;
}

char *qw_copy_text(const qw_allocator *a, const char *text, size_t length)
{
    char *copy = length == SIZE_MAX ? NULL : qw_alloc_raw(a, length + 1, 1);
    if (copy == NULL)
        return NULL;
    if (length > 0)
        memcpy(copy, text, length);
    copy[length] = '\0';
    return copy;
}

/* Length of the UTF-8 sequence at `text`, 0 if it is none (cut off, or not UTF-8 at all). */
static size_t sequence_length(const unsigned char *text)
{
    size_t length = text[0] < 0x80 ? 1 : text[0] < 0xc2 ? 0 : text[0] < 0xe0 ? 2 : text[0] < 0xf0 ? 3 : 4;
    if (text[0] > 0xf4)
        return 0;
    for (size_t i = 1; i < length; i++)
        if ((text[i] & 0xc0) != 0x80)
            return 0;
    return length;
}

/* Names out of files may hold anything, and a long text is cut anywhere: what is left is one line of UTF-8.
 */
static void make_printable(char *text)
{
    while (*text != '\0') {
        size_t length = sequence_length((const unsigned char *)text);
        if (length == 0 || (unsigned char)*text < 0x20 || *text == 0x7f) {
            *text = '?';
            length = 1;
        }
        text += length;
    }
}

qwen36_status qw_fail(qwen36_error *error, qwen36_status status, const char *format, ...)
{
    if (error == NULL || error->struct_size < sizeof *error || error->status != QWEN36_OK)
        return status;
    va_list arguments;
    va_start(arguments, format);
    if (vsnprintf(error->message, sizeof error->message, format, arguments) < 0)
        error->message[0] = '\0';
    va_end(arguments);
    make_printable(error->message);
    error->status = status;
    return status;
}

void qw_error_clear(qwen36_error *error)
{
    if (error == NULL || error->struct_size < sizeof *error)
        return;
    error->status = QWEN36_OK;
    error->message[0] = '\0';
}

qwen36_status qw_fail_memory(qwen36_error *error, uint64_t bytes)
{
    return qw_fail(error, QWEN36_ERROR_OUT_OF_MEMORY, "out of memory: %llu bytes wanted",
                   (unsigned long long)bytes);
}

void qw_log_write(const qw_log *log, int32_t level, const char *format, ...)
{
    if (log == NULL || log->write == NULL)
        return;
    char line[512];
    va_list arguments;
    va_start(arguments, format);
    int length = vsnprintf(line, sizeof line, format, arguments);
    va_end(arguments);
    if (length < 0)
        return;
    make_printable(line);
    log->write(log->user, level, line);
}

uint64_t qw_hash(const void *bytes, size_t length)
{
    const unsigned char *b = bytes;
    uint64_t hash = 0xcbf29ce484222325u;
    for (size_t i = 0; i < length; i++)
        hash = (hash ^ b[i]) * 0x100000001b3u;
    return hash;
}
