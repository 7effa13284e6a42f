/* Byte-pair encoding of one piece of text: the pair of neighbours with the lowest rank is merged, the
 * leftmost of equals first, until no pair is in the table.
 *
 * The table of merges holds (left id, right id, rank) in one word per merge, so that a look-up touches one
 * cache line; the id that a merge gives is found by its rank.
 */
#ifndef QW_TEXT_BPE_H
#define QW_TEXT_BPE_H

#include "lib/base/base.h"

/* Ids and ranks have 21 bits in a slot. */
#define QW_BPE_BITS 21
#define QW_BPE_ID_LIMIT ((uint32_t)1 << QW_BPE_BITS)
#define QW_BPE_NO_RANK UINT32_MAX

typedef struct qw_merges {
    uint64_t *slots; /* left << 42 | right << 21 | rank; all ones: free */
    unsigned shift;  /* 64 - log2 of the number of slots, which is at least twice the number of merges */
    uint32_t *ids;   /* [count], by rank */
    uint32_t count;
} qw_merges;

/* Room for `count` < QW_BPE_ID_LIMIT merges; false: out of memory. */
bool qw_merges_create(qw_merges *merges, const qw_allocator *allocator, uint32_t count);
void qw_merges_release(qw_merges *merges, const qw_allocator *allocator);
/* Adds the merge with the next rank. Of equal pairs the later one counts. */
void qw_merges_add(qw_merges *merges, uint32_t left, uint32_t right, uint32_t id);

static inline uint32_t qw_merges_rank(const qw_merges *merges, uint32_t left, uint32_t right)
{
    uint64_t key = (uint64_t)left << QW_BPE_BITS | right;
    size_t mask = ((size_t)1 << (64 - merges->shift)) - 1;
    size_t at = (size_t)(key * 0x9e3779b97f4a7c15u >> merges->shift);
    for (;; at = (at + 1) & mask) {
        uint64_t slot = merges->slots[at];
        if (slot >> QW_BPE_BITS == key)
            return (uint32_t)slot & (QW_BPE_ID_LIMIT - 1);
        if (slot == UINT64_MAX)
            return QW_BPE_NO_RANK;
    }
}

/* Memory of one call, reused from piece to piece; begins zeroed but for the allocator. */
typedef struct qw_bpe {
    const qw_allocator *allocator;
    const qw_merges *merges;
    void *memory;
    size_t capacity;
} qw_bpe;

/* Merges ids[0 .. count) in place; returns the new count, or SIZE_MAX when out of memory. */
size_t qw_bpe_merge(qw_bpe *bpe, uint32_t *ids, size_t count);
void qw_bpe_release(qw_bpe *bpe);

#endif
