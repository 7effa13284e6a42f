/* Whether a tokenizer.json is of the kind that this library runs: byte-level BPE, NFC or no normaliser, one
 * splitting expression. Whatever else a file may ask for is refused by name, never ignored. */
#ifndef QW_TEXT_TOKENIZER_KIND_H
#define QW_TEXT_TOKENIZER_KIND_H

#include "lib/base/json.h"

/* `tree` is the file without vocabulary and merges. On success *pattern is borrowed from the tree. */
qwen36_status qw_tokenizer_check_kind(const cJSON *tree, const char *file, bool *nfc, const char **pattern,
                                      qwen36_error *error);

/* One added token: an element of added_tokens, or a member of added_tokens_decoder. `where` names it. */
typedef struct qw_added_entry {
    const char *content;
    bool special;
} qw_added_entry;
qwen36_status qw_tokenizer_read_added(const cJSON *item, const char *file, const char *where,
                                      qw_added_entry *out, qwen36_error *error);

#endif
