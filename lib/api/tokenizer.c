#include "lib/text/tokenizer.h"

#include <string.h>

/* Clears the error; a NULL tokenizer, or one of a parent process. */
static qwen36_status enter(const qwen36_tokenizer *tokenizer, qwen36_error *error)
{
    qw_error_clear(error);
    if (tokenizer == NULL)
        return qw_fail(error, QWEN36_ERROR_ARGUMENT, "the tokenizer is NULL");
    return qw_tokenizer_is_ours(tokenizer) ? QWEN36_OK : qw_tokenizer_fail_forked(error);
}

/* For calls without a status: in a child process they find nothing. */
static bool may_look(const qwen36_tokenizer *tokenizer)
{
    return tokenizer != NULL && qw_tokenizer_is_ours(tokenizer);
}

qwen36_status qwen36_tokenizer_load(const char *directory, const qwen36_allocator *allocator,
                                    qwen36_tokenizer **tokenizer, qwen36_error *error)
{
    qw_allocator own;
    qw_error_clear(error);
    if (tokenizer == NULL)
        return qw_fail(error, QWEN36_ERROR_ARGUMENT, "the place for the tokenizer is NULL");
    *tokenizer = NULL;
    if (directory == NULL)
        return qw_fail(error, QWEN36_ERROR_ARGUMENT, "the directory is NULL");
    qwen36_status status = qw_allocator_adopt(allocator, &own, error);
    return status != QWEN36_OK ? status : qw_tokenizer_load(&own, directory, tokenizer, error);
}

void qwen36_tokenizer_destroy(qwen36_tokenizer *tokenizer)
{
    qw_tokenizer_destroy(tokenizer);
}

int32_t qwen36_tokenizer_size(const qwen36_tokenizer *tokenizer)
{
    return may_look(tokenizer) ? qw_tokenizer_size(tokenizer) : 0;
}

qwen36_status qwen36_tokenizer_encode(const qwen36_tokenizer *tokenizer, const char *text, size_t length,
                                      uint32_t flags, int32_t *ids, size_t capacity, size_t *count,
                                      qwen36_error *error)
{
    qwen36_status status = enter(tokenizer, error);
    if (status != QWEN36_OK)
        return status;
    if ((text == NULL && length > 0) || (ids == NULL && capacity > 0) || count == NULL)
        return qw_fail(error, QWEN36_ERROR_ARGUMENT, "%s is NULL",
                       count == NULL             ? "the place for the count"
                       : ids == NULL && capacity ? "the place for the ids"
                                                 : "the text");
    if ((flags & ~QWEN36_ENCODE_PARSE_SPECIAL) != 0)
        return qw_fail(error, QWEN36_ERROR_ARGUMENT, "flags 0x%x are unknown", flags);
    return qw_tokenizer_encode(tokenizer, text, length, flags, ids, capacity, count, error);
}

qwen36_status qwen36_tokenizer_decode(const qwen36_tokenizer *tokenizer, const int32_t *ids, size_t count,
                                      uint32_t flags, char *text, size_t capacity, size_t *length,
                                      qwen36_error *error)
{
    qwen36_status status = enter(tokenizer, error);
    if (status != QWEN36_OK)
        return status;
    if ((ids == NULL && count > 0) || (text == NULL && capacity > 0) || length == NULL)
        return qw_fail(error, QWEN36_ERROR_ARGUMENT, "%s is NULL",
                       length == NULL             ? "the place for the length"
                       : text == NULL && capacity ? "the place for the text"
                                                  : "the array of ids");
    if ((flags & ~QWEN36_DECODE_SKIP_SPECIAL) != 0)
        return qw_fail(error, QWEN36_ERROR_ARGUMENT, "flags 0x%x are unknown", flags);
    return qw_tokenizer_decode(tokenizer, ids, count, flags, text, capacity, length, error);
}

const char *qwen36_tokenizer_bytes(const qwen36_tokenizer *tokenizer, int32_t id, size_t *length)
{
    size_t own = 0;
    const char *bytes = may_look(tokenizer) ? qw_tokenizer_bytes(tokenizer, id, &own) : NULL;
    if (length != NULL)
        *length = own;
    return bytes;
}

int32_t qwen36_tokenizer_id(const qwen36_tokenizer *tokenizer, const char *bytes, size_t length)
{
    return may_look(tokenizer) && bytes != NULL ? qw_tokenizer_id(tokenizer, bytes, length) : -1;
}

int32_t qwen36_tokenizer_is_special(const qwen36_tokenizer *tokenizer, int32_t id)
{
    return may_look(tokenizer) && qw_tokenizer_is_special(tokenizer, id);
}
