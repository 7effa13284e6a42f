/* The streaming decoder: tokens to text that is whole UTF-8 after every token, up to a stop string. */
#ifndef QW_TEXT_DECODER_H
#define QW_TEXT_DECODER_H

#include "lib/text/stops.h"
#include "lib/text/tokenizer.h"

struct qwen36_decoder {
    const qwen36_tokenizer *tokenizer;
    uint32_t flags; /* QWEN36_DECODE_* */
    size_t held;    /* bytes that begin a character, and wait for its end */
    char tail[4];
    char *text; /* what the last call gave out */
    size_t capacity;
    qw_stops stops;
};

qwen36_status qw_decoder_create(const qwen36_tokenizer *tokenizer, const qwen36_decoder_options *options,
                                qwen36_decoder **out, qwen36_error *error);
void qw_decoder_destroy(qwen36_decoder *decoder);
qwen36_status qw_decoder_push(qwen36_decoder *decoder, int32_t token, const char **text, size_t *length,
                              qwen36_error *error);
qwen36_status qw_decoder_finish(qwen36_decoder *decoder, const char **text, size_t *length,
                                qwen36_error *error);

#endif
