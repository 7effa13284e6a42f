/* The judge of the tokenizer: each stage written in the plainest way. NFC by utf8proc over the whole text,
 * pieces by PCRE2, merges by looking at all pairs of the fixture's list. */
#ifndef QW_TESTS_TOKENIZER_JUDGE_H
#define QW_TESTS_TOKENIZER_JUDGE_H

#include "lib/text/tokenizer.h"

/* Ends of the pieces of a well-formed text; returns their number. */
size_t judge_pieces(const char *pattern, const char *text, size_t length, size_t *ends);
/* NFC; memory of malloc. */
char *judge_nfc(const char *text, size_t length, size_t *out_length);
/* Ids of one piece under fixture_merges; returns their number. */
size_t judge_merge(const char *text, size_t length, int32_t *ids);
/* The whole for a well-formed text without added tokens. */
size_t judge_encode(const char *pattern, const char *text, size_t length, int32_t *ids);

#endif
