/* Cutting text into the pieces that byte-pair encoding works on, by the regular expression of the tokenizer
 * file.
 *
 * The two expressions that Qwen models carry are recognised by their text and run by a scanner written by
 * hand; any other one is compiled by PCRE2. The two ways give the same pieces: tests compare them.
 */
#ifndef QW_TEXT_PRETOKENIZE_H
#define QW_TEXT_PRETOKENIZE_H

#include "lib/text/regex.h"
#include "lib/text/unicode.h"

typedef enum qw_pattern {
    QW_PATTERN_WORDS_MARKS, /* Qwen3.5 and later: combining marks are part of words */
    QW_PATTERN_WORDS,       /* Qwen2 and Qwen3: they are not */
    QW_PATTERN_OTHER
} qw_pattern;

extern const char qw_pattern_words_marks[], qw_pattern_words[];

typedef struct qw_pretokenizer {
    const qw_unicode *unicode;
    qw_pattern pattern;
    qw_regex *regex; /* QW_PATTERN_OTHER only */
} qw_pretokenizer;

qw_pattern qw_pretokenizer_recognize(const char *pattern, size_t length);

/* End of the piece that begins at `at` < length of well-formed text, by the scanner. */
size_t qw_pretokenizer_scan(const qw_unicode *unicode, qw_pattern pattern, const char *text, size_t length,
                            size_t at);

#endif
