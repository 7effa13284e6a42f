/* Byte-pair encoding of one piece of text: the pair of neighbours with the lowest rank is merged, the
 * leftmost of equals first, until no pair is in the table.
 *
 * The time goes into looking pairs up, so there are three tables: pairs of bytes, with which every piece
 * begins, have one of their own; a filter of one bit per hash answers for most pairs that are no merge, and
 * fits the cache; the table of merges holds (left id, right id, rank) in one word each, so that a look-up
 * touches one cache line. The id that a merge gives is found by its rank.
 */
#ifndef QW_TEXT_BPE_H
#define QW_TEXT_BPE_H

#include "lib/base/base.h"

/* Ids and ranks have 21 bits in a slot. */
#define QW_BPE_BITS 21
#define QW_BPE_ID_LIMIT ((uint32_t)1 << QW_BPE_BITS)
#define QW_BPE_NO_RANK UINT32_MAX

typedef struct qw_merges {
    uint64_t *slots;  /* left << 42 | right << 21 | rank; all ones: free */
    uint64_t *filter; /* 8 bits for every slot */
    unsigned shift;   /* 64 - log2 of the number of slots, which is at least twice the number of merges */
    uint32_t *ids;    /* [count], by rank */
    uint32_t count;
    uint32_t *byte_ranks;   /* [256][256] */
    uint32_t byte_ids[256]; /* the token of each byte */
} qw_merges;

/* Room for `count` < QW_BPE_ID_LIMIT merges; false: out of memory. Begin with byte_ids set and the rest
 * zero, add the merges, then finish. */
bool qw_merges_create(qw_merges *merges, const qw_allocator *allocator, uint32_t count);
/* Adds the merge with the next rank. Of equal pairs the later one counts. */
void qw_merges_add(qw_merges *merges, uint32_t left, uint32_t right, uint32_t id);
void qw_merges_finish(qw_merges *merges);
void qw_merges_release(qw_merges *merges, const qw_allocator *allocator);

/* The rank of a pair, or QW_BPE_NO_RANK. */
uint32_t qw_merges_rank(const qw_merges *merges, uint32_t left, uint32_t right);

/* Memory of one call, reused from piece to piece; begins zeroed but for the first two. */
typedef struct qw_bpe {
    const qw_allocator *allocator;
    const qw_merges *merges;
    void *memory;
    size_t capacity;
} qw_bpe;

/* Encodes `length` >= 1 bytes; `ids` has room for as many. Returns the number of ids, or SIZE_MAX when out
 * of memory. */
size_t qw_bpe_encode(qw_bpe *bpe, const char *text, size_t length, uint32_t *ids);
void qw_bpe_release(qw_bpe *bpe);

#endif
