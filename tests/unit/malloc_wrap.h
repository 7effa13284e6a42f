/* For tests linked with --wrap=malloc, calloc, realloc: counts what the test's own program calls directly,
 * and lets the k-th allocation of cJSON fail, which calls malloc inside its own library and so goes through
 * its hooks. Included once per program. */
#ifndef QW_TESTS_MALLOC_WRAP_H
#define QW_TESTS_MALLOC_WRAP_H

#include "tests/harness.h"

void *__real_malloc(size_t size);
void *__real_calloc(size_t count, size_t size);
void *__real_realloc(void *memory, size_t size);
void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t count, size_t size);
void *__wrap_realloc(void *memory, size_t size);

static bool counting;
static long direct_calls;

void *__wrap_malloc(size_t size)
{
    direct_calls += counting;
    return __real_malloc(size);
}

void *__wrap_calloc(size_t count, size_t size)
{
    direct_calls += counting;
    return __real_calloc(count, size);
}

void *__wrap_realloc(void *memory, size_t size)
{
    direct_calls += counting;
    return __real_realloc(memory, size);
}

static struct {
    long calls, fail_at;
} parser;

static void *parser_malloc(size_t size)
{
    return ++parser.calls == parser.fail_at ? NULL : __real_malloc(size);
}

#endif
