/* A text under construction in which each byte is known as the template's or as content.
 *
 * Memory that is wanting is remembered in `failed`: whoever made the text asks once, at the end.
 */
#ifndef QW_TEXT_CHAT_TEXT_H
#define QW_TEXT_CHAT_TEXT_H

#include "lib/text/tokenizer.h"

/* Begins zeroed but for the allocator. The spans say where the template speaks: there `special` is set. */
typedef struct qw_chat_text {
    const qw_allocator *allocator;
    char *bytes; /* [length] */
    size_t length, capacity;
    qw_tokenizer_span *spans; /* [span_count], one ends where the next begins, the last at `length` */
    size_t span_count, span_capacity;
    bool failed;
} qw_chat_text;

/* A part of such a text. */
typedef struct qw_chat_slice {
    const qw_chat_text *text;
    size_t begin, end;
} qw_chat_slice;

void qw_chat_text_clear(qw_chat_text *text);
void qw_chat_text_release(qw_chat_text *text);

/* Appends words of the template. */
void qw_chat_text_say(qw_chat_text *text, const char *words);
/* Appends content. */
void qw_chat_text_add(qw_chat_text *text, const char *bytes, size_t length);
/* Appends a part of another text; what is content there is content here. */
void qw_chat_text_add_slice(qw_chat_text *text, qw_chat_slice slice);

#endif
