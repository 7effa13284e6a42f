/* A small tokenizer.json for tests: the 256 bytes (the id is the byte), the tokens of a few merges from 256
 * on, then the added tokens. Texts of variants are made by replacing parts of it. */
#ifndef QW_TESTS_TOKENIZER_FIXTURE_H
#define QW_TESTS_TOKENIZER_FIXTURE_H

#include "lib/text/tokenizer.h"

typedef struct fixture_merge {
    const char *left, *right; /* bytes */
} fixture_merge;

/* What fixture_json writes, in order of rank; ends with NULLs. The token of merge i has id 256 + i. */
extern const fixture_merge fixture_merges[];
size_t fixture_merge_count(void);

enum { FIXTURE_TEXT_MAX = 1 << 16 };

/* tokenizer.json with this splitting expression (NULL: that of Qwen3.5). Memory of malloc. */
char *fixture_json(const char *pattern);
/* A copy in which the first `from` is `to`; fails the test when it is not there. Frees `text`. */
char *fixture_replace(char *text, const char *from, const char *to);

/* Loads a text (and a tokenizer_config.json unless it is NULL) with the given hooks. */
qwen36_status fixture_load(const char *json, const char *config, const qwen36_allocator *hooks,
                           qwen36_tokenizer **out, qwen36_error *error);
/* Loads the fixture with a pattern; fails the test when that fails. */
qwen36_tokenizer *fixture_tokenizer(const char *pattern);

/* The ids of a text as "1 2 3", in a static buffer. */
const char *fixture_ids(const qwen36_tokenizer *tokenizer, const char *text, size_t length, uint32_t flags);

/* A pseudo-random number below `limit`. */
uint32_t fixture_random(uint64_t *state, uint32_t limit);
/* Up to `room` bytes of random well-formed text: letters, marks, spaces, digits, symbols of many scripts, of
 * code points that Unicode 14 assigns. Returns the length. */
size_t fixture_random_text(uint64_t *state, char *text, size_t room);

#endif
