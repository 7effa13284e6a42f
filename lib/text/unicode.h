/* What the pre-tokenizer and the normaliser ask about a code point, in one byte: its class (letter, mark,
 * number, white space, line break or none of these) and whether NFC has to look closer.
 *
 * The table is made at load from utf8proc, so that the two agree on one version of Unicode. It covers the
 * first two planes; beyond them almost everything is a letter, and utf8proc is asked.
 */
#ifndef QW_TEXT_UNICODE_H
#define QW_TEXT_UNICODE_H

#include "lib/base/base.h"

enum {
    QW_CLASS_OTHER = 0,
    QW_CLASS_LETTER = 1,  /* \p{L} */
    QW_CLASS_MARK = 2,    /* \p{M} */
    QW_CLASS_NUMBER = 3,  /* \p{N} */
    QW_CLASS_SPACE = 4,   /* \s but for the next */
    QW_CLASS_NEWLINE = 5, /* CR and LF */
    QW_CLASS_BITS = 7
};

/* Two flags beside the class. Neither: a starter that NFC leaves alone and that joins nothing before it. */
#define QW_NFC_ORDERED 0x08  /* combining class above 0: fine unless it follows a higher one */
#define QW_NFC_UNSTABLE 0x10 /* may change, or join what stands before it */

#define QW_UNICODE_TABLE_SIZE 0x20000

typedef struct qw_unicode {
    unsigned char of[QW_UNICODE_TABLE_SIZE];
} qw_unicode;

void qw_unicode_build(qw_unicode *table);
unsigned char qw_unicode_beyond(int32_t code);

static inline unsigned char qw_unicode_get(const qw_unicode *table, int32_t code)
{
    return code < QW_UNICODE_TABLE_SIZE ? table->of[code] : qw_unicode_beyond(code);
}

/* Codes of a full canonical decomposition: at most 4 today. */
#define QW_DECOMPOSITION_MAX 8

/* The full canonical decomposition of a code point; returns its length. */
size_t qw_unicode_decompose(int32_t code, int32_t out[QW_DECOMPOSITION_MAX]);
unsigned char qw_unicode_combining_class(int32_t code);
/* Composes a decomposed, ordered sequence in place; returns the new length. */
size_t qw_unicode_compose(int32_t *codes, size_t count);

#endif
