#include "lib/text/bpe.h"

#include <string.h>

/* --- The table of merges -------------------------------------------------------------------------- */

#define FILTER_BITS 3 /* log2 of the filter's bits for one slot */
#define BYTE_PAIRS 65536

static inline uint64_t key_of(uint32_t left, uint32_t right)
{
    return (uint64_t)left << QW_BPE_BITS | right;
}

static inline uint64_t hash_of(uint64_t key)
{
    return key * 0x9e3779b97f4a7c15u;
}

static inline size_t mask_of(const qw_merges *merges)
{
    return ((size_t)1 << (64 - merges->shift)) - 1;
}

bool qw_merges_create(qw_merges *merges, const qw_allocator *allocator, uint32_t count)
{
    unsigned bits = 64 / 8; /* the filter has whole words */
    while (((uint64_t)1 << bits) < (uint64_t)count * 2)
        bits++;
    size_t size = (size_t)1 << bits;
    merges->shift = 64 - bits;
    merges->slots = qw_alloc_raw(allocator, size, sizeof *merges->slots);
    merges->filter = qw_alloc(allocator, (size << FILTER_BITS) / 64, sizeof *merges->filter);
    merges->ids = qw_alloc(allocator, count, sizeof *merges->ids);
    merges->byte_ranks = qw_alloc(allocator, BYTE_PAIRS, sizeof *merges->byte_ranks);
    if (merges->slots == NULL || merges->filter == NULL || merges->ids == NULL || merges->byte_ranks == NULL)
        return false;
    memset(merges->slots, 0xff, size * sizeof *merges->slots);
    return true;
}

void qw_merges_add(qw_merges *merges, uint32_t left, uint32_t right, uint32_t id)
{
    uint64_t key = key_of(left, right), hash = hash_of(key);
    size_t bit = (size_t)(hash >> (merges->shift - FILTER_BITS)), at = (size_t)(hash >> merges->shift);
    while (merges->slots[at] != UINT64_MAX && merges->slots[at] >> QW_BPE_BITS != key)
        at = (at + 1) & mask_of(merges);
    merges->slots[at] = key << QW_BPE_BITS | merges->count;
    merges->filter[bit / 64] |= (uint64_t)1 << bit % 64;
    merges->ids[merges->count++] = id;
}

void qw_merges_finish(qw_merges *merges)
{
    for (uint32_t i = 0; i < BYTE_PAIRS; i++)
        merges->byte_ranks[i] = qw_merges_rank(merges, merges->byte_ids[i / 256], merges->byte_ids[i % 256]);
}

void qw_merges_release(qw_merges *merges, const qw_allocator *allocator)
{
    qw_free(allocator, merges->slots);
    qw_free(allocator, merges->filter);
    qw_free(allocator, merges->ids);
    qw_free(allocator, merges->byte_ranks);
}

static inline uint32_t rank_of(const qw_merges *merges, uint32_t left, uint32_t right)
{
    uint64_t key = key_of(left, right), hash = hash_of(key);
    size_t bit = (size_t)(hash >> (merges->shift - FILTER_BITS)), at = (size_t)(hash >> merges->shift);
    if ((merges->filter[bit / 64] >> bit % 64 & 1) == 0)
        return QW_BPE_NO_RANK;
    for (;; at = (at + 1) & mask_of(merges)) {
        uint64_t slot = merges->slots[at];
        if (slot >> QW_BPE_BITS == key)
            return (uint32_t)slot & (QW_BPE_ID_LIMIT - 1);
        if (slot == UINT64_MAX)
            return QW_BPE_NO_RANK;
    }
}

uint32_t qw_merges_rank(const qw_merges *merges, uint32_t left, uint32_t right)
{
    return rank_of(merges, left, right);
}

/* The rank of two neighbouring bytes. */
static inline uint32_t byte_rank(const qw_merges *merges, const char *text)
{
    return merges->byte_ranks[(unsigned char)text[0] << 8 | (unsigned char)text[1]];
}

/* --- Short pieces: look at all pairs for every merge ---------------------------------------------- */

/* Up to this many bytes that is faster than a queue. */
#define SHORT_MAX 24

static size_t merge_short(const qw_merges *merges, const char *text, uint32_t *ids, size_t count)
{
    uint32_t ranks[SHORT_MAX]; /* of the pair (i, i + 1) */
    for (size_t i = 0; i + 1 < count; i++)
        ranks[i] = byte_rank(merges, text + i);
    while (count > 1) {
        size_t best = 0;
        for (size_t i = 1; i + 1 < count; i++)
            if (ranks[i] < ranks[best])
                best = i;
        if (ranks[best] == QW_BPE_NO_RANK)
            break;
        ids[best] = merges->ids[ranks[best]];
        count--;
        for (size_t i = best + 1; i < count; i++)
            ids[i] = ids[i + 1];
        for (size_t i = best; i + 1 < count; i++)
            ranks[i] = ranks[i + 1];
        if (best + 1 < count)
            ranks[best] = rank_of(merges, ids[best], ids[best + 1]);
        if (best > 0)
            ranks[best - 1] = rank_of(merges, ids[best - 1], ids[best]);
    }
    return count;
}

/* --- Long pieces: a queue of pairs ---------------------------------------------------------------- */

/* The piece as a linked list over its first positions; a position dies when it is merged into its left
 * neighbour. The heap holds rank << 32 | position, least first, and may hold stale entries: one is alive if
 * the pair at its position still has that rank. A position's pairs only grow, so no rank comes back. */
typedef struct list {
    const qw_merges *merges;
    uint32_t *ids, *ranks, *next, *before;
    uint64_t *heap;
    size_t size; /* of the heap */
} list;

#define NOWHERE UINT32_MAX

static void sink(list *l, size_t at)
{
    uint64_t item = l->heap[at];
    for (;;) {
        size_t child = 2 * at + 1;
        if (child >= l->size)
            break;
        if (child + 1 < l->size && l->heap[child + 1] < l->heap[child])
            child++;
        if (l->heap[child] >= item)
            break;
        l->heap[at] = l->heap[child];
        at = child;
    }
    l->heap[at] = item;
}

static uint64_t pop(list *l)
{
    uint64_t first = l->heap[0];
    l->heap[0] = l->heap[--l->size];
    if (l->size > 0)
        sink(l, 0);
    return first;
}

static void push(list *l, uint32_t rank, uint32_t position)
{
    uint64_t item = (uint64_t)rank << 32 | position;
    size_t at = l->size++;
    while (at > 0 && l->heap[(at - 1) / 2] > item) {
        l->heap[at] = l->heap[(at - 1) / 2];
        at = (at - 1) / 2;
    }
    l->heap[at] = item;
}

/* Looks the pair at `position` up again, after one of its parts has changed. */
static void renew(list *l, uint32_t position)
{
    uint32_t right = l->next[position];
    uint32_t rank = right == NOWHERE ? QW_BPE_NO_RANK : rank_of(l->merges, l->ids[position], l->ids[right]);
    l->ranks[position] = rank;
    if (rank != QW_BPE_NO_RANK)
        push(l, rank, position);
}

static void start(list *l, const char *text, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        bool last = i + 1 == count;
        l->before[i] = i == 0 ? NOWHERE : i - 1;
        l->next[i] = last ? NOWHERE : i + 1;
        l->ranks[i] = last ? QW_BPE_NO_RANK : byte_rank(l->merges, text + i);
        if (l->ranks[i] != QW_BPE_NO_RANK)
            l->heap[l->size++] = (uint64_t)l->ranks[i] << 32 | i;
    }
    for (size_t i = l->size / 2; i-- > 0;)
        sink(l, i);
}

static void merge_at(list *l, uint32_t at)
{
    uint32_t right = l->next[at];
    l->ids[at] = l->merges->ids[l->ranks[at]];
    l->ranks[right] = QW_BPE_NO_RANK;
    l->next[at] = l->next[right];
    if (l->next[at] != NOWHERE)
        l->before[l->next[at]] = at;
    renew(l, at);
    if (l->before[at] != NOWHERE)
        renew(l, l->before[at]);
}

/* Each merge takes one entry from the heap and adds at most two, so it holds at most 2 x count. */
#define BYTES_PER_POSITION (2 * sizeof(uint64_t) + 3 * sizeof(uint32_t))

static size_t merge_long(qw_bpe *bpe, const char *text, uint32_t *ids, size_t count)
{
    if (count >= NOWHERE || !qw_grow(bpe->allocator, &bpe->memory, &bpe->capacity, count, BYTES_PER_POSITION))
        return SIZE_MAX;
    uint64_t *heap = bpe->memory;
    uint32_t *words = (uint32_t *)(heap + 2 * count);
    list l = {bpe->merges, ids, words, words + count, words + 2 * count, heap, 0};
    start(&l, text, (uint32_t)count);
    while (l.size > 0) {
        uint64_t item = pop(&l);
        uint32_t position = (uint32_t)item;
        if (l.ranks[position] == (uint32_t)(item >> 32))
            merge_at(&l, position);
    }
    size_t kept = 0;
    for (uint32_t i = 0; i != NOWHERE; i = l.next[i])
        ids[kept++] = ids[i];
    return kept;
}

size_t qw_bpe_encode(qw_bpe *bpe, const char *text, size_t length, uint32_t *ids)
{
    for (size_t i = 0; i < length; i++)
        ids[i] = bpe->merges->byte_ids[(unsigned char)text[i]];
    return length <= SHORT_MAX ? merge_short(bpe->merges, text, ids, length)
                               : merge_long(bpe, text, ids, length);
}

void qw_bpe_release(qw_bpe *bpe)
{
    qw_free(bpe->allocator, bpe->memory);
}
