#include "lib/text/decoder.h"

#include "lib/api/api.h"

static const qwen36_decoder_options defaults = {.struct_size = sizeof defaults,
                                                .flags = QWEN36_DECODE_SKIP_SPECIAL};

void qwen36_decoder_options_init(qwen36_decoder_options *options, size_t size)
{
    qw_defaults_write(options, size, &defaults, sizeof defaults);
}

qwen36_status qwen36_decoder_create(const qwen36_tokenizer *tokenizer, const qwen36_decoder_options *options,
                                    qwen36_decoder **decoder, qwen36_error *error)
{
    qwen36_decoder_options own = defaults;
    qwen36_status status = QWEN36_OK;
    qw_error_clear(error);
    if (decoder == NULL)
        return qw_fail(error, QWEN36_ERROR_ARGUMENT, "the place for the decoder is NULL");
    *decoder = NULL;
    if (tokenizer == NULL)
        return qw_fail(error, QWEN36_ERROR_ARGUMENT, "the tokenizer is NULL");
    if (!qw_tokenizer_is_ours(tokenizer))
        return qw_tokenizer_fail_forked(error);
    if (options != NULL)
        status = qw_options_adopt(&own, sizeof own, options,
                                  QW_SIZE_THROUGH(qwen36_decoder_options, stop_count), error);
    if (status != QWEN36_OK)
        return status;
    if ((own.flags & ~QWEN36_DECODE_SKIP_SPECIAL) != 0)
        return qw_fail(error, QWEN36_ERROR_ARGUMENT, "flags 0x%x are unknown", own.flags);
    return qw_decoder_create(tokenizer, &own, decoder, error);
}

void qwen36_decoder_destroy(qwen36_decoder *decoder)
{
    qw_decoder_destroy(decoder);
}

/* Clears the error; NULLs, or a decoder of a parent process. */
static qwen36_status enter(const qwen36_decoder *decoder, const char **text, const size_t *length,
                           qwen36_error *error)
{
    qw_error_clear(error);
    if (decoder == NULL || text == NULL || length == NULL)
        return qw_fail(error, QWEN36_ERROR_ARGUMENT, "%s is NULL",
                       decoder == NULL ? "the decoder"
                       : text == NULL  ? "the place for the text"
                                       : "the place for the length");
    return qw_tokenizer_is_ours(decoder->tokenizer) ? QWEN36_OK : qw_tokenizer_fail_forked(error);
}

qwen36_status qwen36_decoder_push(qwen36_decoder *decoder, int32_t token, const char **text, size_t *length,
                                  qwen36_error *error)
{
    qwen36_status status = enter(decoder, text, length, error);
    return status != QWEN36_OK ? status : qw_decoder_push(decoder, token, text, length, error);
}

qwen36_status qwen36_decoder_finish(qwen36_decoder *decoder, const char **text, size_t *length,
                                    qwen36_error *error)
{
    qwen36_status status = enter(decoder, text, length, error);
    return status != QWEN36_OK ? status : qw_decoder_finish(decoder, text, length, error);
}

int32_t qwen36_decoder_stopped(const qwen36_decoder *decoder)
{
    return decoder == NULL ? -1 : decoder->stops.matched;
}
