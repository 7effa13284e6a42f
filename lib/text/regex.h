/* A pre-tokenizer's regular expression, run by PCRE2: compiled to machine code where that is allowed, else
 * interpreted. All its memory comes from the allocator. */
#ifndef QW_TEXT_REGEX_H
#define QW_TEXT_REGEX_H

#include "lib/base/base.h"

typedef struct qw_regex qw_regex;

/* `allocator` must outlive the result. QWEN36_ERROR_TOKENIZER names `file` and PCRE2's reason. */
qwen36_status qw_regex_create(const qw_allocator *allocator, const char *pattern, size_t length,
                              const char *file, qw_regex **out, qwen36_error *error);
void qw_regex_destroy(qw_regex *regex);

/* The state of one caller's matching. */
typedef struct qw_regex_match qw_regex_match;
qw_regex_match *qw_regex_match_create(const qw_regex *regex); /* NULL: out of memory */
void qw_regex_match_destroy(qw_regex_match *match);

/* The first match in well-formed text at or after `at`; *begin = *end = length when there is none. Fails
 * when PCRE2 gives up: QWEN36_ERROR_OUT_OF_MEMORY, or QWEN36_ERROR_TOKENIZER at the limits on its work. */
qwen36_status qw_regex_find(const qw_regex *regex, qw_regex_match *match, const char *text, size_t length,
                            size_t at, size_t *begin, size_t *end, qwen36_error *error);

#endif
