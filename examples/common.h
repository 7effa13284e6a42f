/* What the examples share: reading arguments, loading a model, failing with one line. */
#ifndef EXAMPLES_COMMON_H
#define EXAMPLES_COMMON_H

#include <qwen36.h>

#include <errno.h>
#include <locale.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Wrong use: what is wrong, and where to read more; exit status 2. */
_Noreturn static inline void usage_error(const char *program, const char *what, const char *value)
{
    fprintf(stderr, "%s: %s%s%s\nTry '%s --help'.\n", program, what, value[0] != '\0' ? ": " : "", value,
            program);
    exit(2);
}

/* A failing call: its text; exit status 1. */
_Noreturn static inline void fail(const char *program, const qwen36_error *error)
{
    fprintf(stderr, "%s: %s\n", program, error->message);
    exit(1);
}

_Noreturn static inline void fail_text(const char *program, const char *text)
{
    fprintf(stderr, "%s: %s\n", program, text);
    exit(1);
}

static inline void check(const char *program, qwen36_status status, const qwen36_error *error)
{
    if (status < 0)
        fail(program, error);
}

static inline long long parse_integer(const char *program, const char *option, const char *text,
                                      long long lowest, long long highest)
{
    char *end = NULL, what[64];
    errno = 0;
    long long value = strtoll(text, &end, 10);
    if (end == text || *end != '\0' || errno != 0 || value < lowest || value > highest) {
        snprintf(what, sizeof what, "%s wants an integer in %lld..%lld", option, lowest, highest);
        usage_error(program, what, text);
    }
    return value;
}

static inline float parse_number(const char *program, const char *option, const char *text)
{
    char *end = NULL, what[64];
    float value = strtof(text, &end);
    if (end == text || *end != '\0') {
        snprintf(what, sizeof what, "%s wants a number", option);
        usage_error(program, what, text);
    }
    return value;
}

static inline int32_t parse_numerics(const char *program, const char *text)
{
    if (strcmp(text, "reference") == 0)
        return QWEN36_NUMERICS_REFERENCE;
    if (strcmp(text, "fast") == 0)
        return QWEN36_NUMERICS_FAST;
    usage_error(program, "--numerics is 'reference' or 'fast'", text);
}

static inline qwen36_model *load_model(const char *program, const char *directory,
                                       const qwen36_model_options *options)
{
    qwen36_error error = QWEN36_ERROR_INIT;
    qwen36_model *model = NULL;
    check(program, qwen36_model_load(directory, options, &model, &error), &error);
    return model;
}

static inline const qwen36_tokenizer *tokenizer_of(const char *program, const qwen36_model *model)
{
    const qwen36_tokenizer *tokenizer = qwen36_model_tokenizer(model);
    if (tokenizer == NULL)
        fail_text(program, "the model directory has no tokenizer.json");
    return tokenizer;
}

/* The ids of a text (malloc). */
static inline int32_t *encode(const char *program, const qwen36_tokenizer *tokenizer, const char *text,
                              size_t length, uint32_t flags, size_t *count)
{
    qwen36_error error = QWEN36_ERROR_INIT;
    qwen36_status status = qwen36_tokenizer_encode(tokenizer, text, length, flags, NULL, 0, count, &error);
    if (status != QWEN36_OK && status != QWEN36_ERROR_BUFFER_TOO_SMALL)
        fail(program, &error);
    size_t capacity = *count;
    int32_t *ids = malloc((capacity + 1) * sizeof *ids);
    if (ids == NULL)
        fail_text(program, "out of memory");
    check(program, qwen36_tokenizer_encode(tokenizer, text, length, flags, ids, capacity, count, &error),
          &error);
    return ids;
}

/* A whole stream (malloc, NUL-terminated). */
static inline char *read_stream(const char *program, FILE *stream, size_t *length)
{
    size_t capacity = 1 << 16, used = 0, got = 0;
    char *text = malloc(capacity + 1);
    while (text != NULL && (got = fread(text + used, 1, capacity - used, stream)) > 0) {
        used += got;
        if (used == capacity)
            text = realloc(text, (capacity *= 2) + 1);
    }
    if (text == NULL)
        fail_text(program, "out of memory");
    if (ferror(stream))
        fail_text(program, strerror(errno));
    text[used] = '\0';
    *length = used;
    return text;
}

#endif
