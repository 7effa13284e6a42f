/* The tokenizer: what the files of a model directory say, in the form that encoding needs.
 *
 * lib/text/tokenizer_load.c reads the files, tokenizer_parse.c makes sense of them, tokenizer.c encodes and
 * decodes, decoder.c streams. Encoding goes added tokens -> repair and NFC -> pieces -> merges, one stretch
 * of text after the other; each stage is a file of its own. docs/tokenizer.md tells the whole.
 *
 * After loading nothing changes but `verdicts`, whose bytes are atomic and may be written twice with one
 * value: a tokenizer serves any number of threads.
 */
#ifndef QW_TEXT_TOKENIZER_H
#define QW_TEXT_TOKENIZER_H

#include "lib/text/added.h"
#include "lib/text/bpe.h"
#include "lib/text/pretokenize.h"
#include "lib/text/vocabulary.h"

#include <stdatomic.h>

/* What merging the bytes of an ordinary token gives. Some tokens cannot be reached by merges. */
enum { QW_VERDICT_UNKNOWN = 0, QW_VERDICT_ITSELF = 1, QW_VERDICT_OTHERS = 2 };

struct qwen36_tokenizer {
    qw_allocator allocator;
    int64_t process; /* that loaded it */
    qw_vocabulary vocabulary;
    qw_merges merges;
    qw_added added;
    atomic_uchar *verdicts; /* [size]: QW_VERDICT_* */
    bool nfc;
    qw_pretokenizer pretokenizer;
    qw_unicode unicode;
};

/* A file's text; NULL: there is no such file. */
typedef struct qw_tokenizer_source {
    const char *path; /* which error texts name */
    const char *text;
    size_t length;
} qw_tokenizer_source;

/* A tokenizer out of tokenizer.json and, if there is one, tokenizer_config.json. */
qwen36_status qw_tokenizer_parse(const qw_allocator *allocator, const qw_tokenizer_source *json,
                                 const qw_tokenizer_source *config, qwen36_tokenizer **out,
                                 qwen36_error *error);
/* Reads the files and parses them. QWEN36_ERROR_NO_TOKENIZER when the directory has no tokenizer.json. */
qwen36_status qw_tokenizer_load(const qw_allocator *allocator, const char *directory, qwen36_tokenizer **out,
                                qwen36_error *error);
void qw_tokenizer_destroy(qwen36_tokenizer *tokenizer);

int32_t qw_tokenizer_size(const qwen36_tokenizer *tokenizer);

/* False in a child process of the one that loaded the tokenizer. */
bool qw_tokenizer_is_ours(const qwen36_tokenizer *tokenizer);
qwen36_status qw_tokenizer_fail_forked(qwen36_error *error);

/* These are the exported functions without their checks of arguments. */
qwen36_status qw_tokenizer_encode(const qwen36_tokenizer *tokenizer, const char *text, size_t length,
                                  uint32_t flags, int32_t *ids, size_t capacity, size_t *count,
                                  qwen36_error *error);
/* A text in which added tokens are looked for only in some parts: a span ends where the next begins. What
 * lies between two added tokens is encoded as one, whatever spans it runs through. */
typedef struct qw_tokenizer_span {
    size_t end;
    bool special; /* added tokens that lie in this span count as such */
} qw_tokenizer_span;
qwen36_status qw_tokenizer_encode_spans(const qwen36_tokenizer *tokenizer, const char *text,
                                        const qw_tokenizer_span *spans, size_t span_count, int32_t *ids,
                                        size_t capacity, size_t *count, qwen36_error *error);
qwen36_status qw_tokenizer_decode(const qwen36_tokenizer *tokenizer, const int32_t *ids, size_t count,
                                  uint32_t flags, char *text, size_t capacity, size_t *length,
                                  qwen36_error *error);
/* The text of a token under the flags of decoding; QWEN36_ERROR_TOKEN_ID when it is not known. */
qwen36_status qw_tokenizer_text(const qwen36_tokenizer *tokenizer, int32_t id, uint32_t flags,
                                const char **text, size_t *length, qwen36_error *error);
const char *qw_tokenizer_bytes(const qwen36_tokenizer *tokenizer, int32_t id, size_t *length);
int32_t qw_tokenizer_id(const qwen36_tokenizer *tokenizer, const char *bytes, size_t length);
bool qw_tokenizer_is_special(const qwen36_tokenizer *tokenizer, int32_t id);

#endif
