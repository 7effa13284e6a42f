/* The bytes of every token, and the way back from bytes to an id.
 *
 * The bytes lie in one arena in order of the ids. While the files are read, tokens arrive in any order: they
 * are collected first (qw_vocabulary_put) and laid out at the end (qw_vocabulary_finish).
 */
#ifndef QW_TEXT_VOCABULARY_H
#define QW_TEXT_VOCABULARY_H

#include "lib/base/base.h"

enum {
    QW_TOKEN_KNOWN = 1,   /* the id has a token */
    QW_TOKEN_ADDED = 2,   /* it is an added token */
    QW_TOKEN_SPECIAL = 4, /* left out by QWEN36_DECODE_SKIP_SPECIAL */
    QW_TOKEN_ORDINARY = 8 /* it stands in the vocabulary that merges work on */
};

/* Ids are below this. */
#define QW_VOCABULARY_ID_LIMIT (((uint32_t)1 << 21) - 1)

typedef struct qw_vocabulary {
    uint32_t size;    /* highest id + 1 */
    uint32_t longest; /* bytes of the longest ordinary token */
    char *arena;
    uint32_t *begins;     /* [size + 1]: where a token's bytes begin in the arena */
    unsigned char *flags; /* [size]: QW_TOKEN_* */
    uint32_t *slots;      /* hash table of the ordinary tokens: 11 bits of the hash, id + 1; 0: free */
    uint32_t mask;
} qw_vocabulary;

void qw_vocabulary_release(qw_vocabulary *vocabulary, const qw_allocator *allocator);

static inline const char *qw_vocabulary_bytes(const qw_vocabulary *v, uint32_t id, size_t *length)
{
    *length = v->begins[id + 1] - v->begins[id];
    return v->arena + v->begins[id];
}

/* The ordinary token with exactly these bytes, or -1. */
int32_t qw_vocabulary_find(const qw_vocabulary *vocabulary, const char *bytes, size_t length);

/* --- Making one ------------------------------------------------------------------------------------ */

typedef struct qw_vocabulary_item {
    uint32_t id, begin, length;
    unsigned char flags;
} qw_vocabulary_item;

/* Begins zeroed but for the allocator. */
typedef struct qw_vocabulary_draft {
    const qw_allocator *allocator;
    char *bytes;
    size_t used, capacity;
    qw_vocabulary_item *items;
    size_t count, items_capacity;
    uint32_t size; /* highest id + 1 */
} qw_vocabulary_draft;

/* Room for `length` more bytes at bytes + used; NULL: out of memory. */
char *qw_vocabulary_reserve(qw_vocabulary_draft *draft, size_t length);
/* Adds the token whose `length` bytes stand at bytes + used. false: out of memory. */
bool qw_vocabulary_put(qw_vocabulary_draft *draft, uint32_t id, size_t length, unsigned char flags);
void qw_vocabulary_draft_release(qw_vocabulary_draft *draft);

/* Lays the tokens out. When two have one id, or two ordinary ones have the same bytes, *clash is the id of
 * the later one and the status is QWEN36_ERROR_TOKENIZER; an id may be both ordinary and added if the bytes
 * are the same. The caller releases `out` in any case. */
qwen36_status qw_vocabulary_finish(const qw_vocabulary_draft *draft, qw_vocabulary *out, uint32_t *clash);

#endif
