#include "lib/text/vocabulary.h"

#include <string.h>

void qw_vocabulary_release(qw_vocabulary *v, const qw_allocator *allocator)
{
    qw_free(allocator, v->arena);
    qw_free(allocator, v->begins);
    qw_free(allocator, v->flags);
    qw_free(allocator, v->slots);
}

/* Tokens are a few bytes long: eight at a time, then the rest. */
static uint64_t hash_of(const char *bytes, size_t length)
{
    const uint64_t factor = 0x9e3779b97f4a7c15u;
    uint64_t hash = length * factor, word;
    for (; length >= sizeof word; bytes += sizeof word, length -= sizeof word) {
        memcpy(&word, bytes, sizeof word);
        hash = (hash ^ word) * factor;
        hash ^= hash >> 29;
    }
    word = 0;
    for (size_t i = 0; i < length; i++)
        word = word << 8 | (unsigned char)bytes[i];
    return (hash ^ word) * factor;
}

#define SLOT_ID (QW_VOCABULARY_ID_LIMIT) /* the bits of a slot that hold id + 1 */

static bool is_token(const qw_vocabulary *v, uint32_t id, const char *bytes, size_t length)
{
    size_t own;
    const char *text = qw_vocabulary_bytes(v, id, &own);
    return own == length && memcmp(text, bytes, length) == 0;
}

/* The slot of the token with these bytes, or the free one where it would stand; *tag are the bits of the
 * hash that a slot keeps, so that few others need a look at their bytes. */
static uint32_t *slot_of(const qw_vocabulary *v, const char *bytes, size_t length, uint32_t *tag)
{
    uint64_t hash = hash_of(bytes, length);
    uint32_t at = (uint32_t)(hash >> 32) & v->mask, slot;
    *tag = (uint32_t)hash & ~SLOT_ID;
    while ((slot = v->slots[at]) != 0) {
        if ((slot & ~SLOT_ID) == *tag && is_token(v, (slot & SLOT_ID) - 1, bytes, length))
            break;
        at = (at + 1) & v->mask;
    }
    return &v->slots[at];
}

int32_t qw_vocabulary_find(const qw_vocabulary *v, const char *bytes, size_t length)
{
    uint32_t tag;
    return (int32_t)(*slot_of(v, bytes, length, &tag) & SLOT_ID) - 1;
}

char *qw_vocabulary_reserve(qw_vocabulary_draft *draft, size_t length)
{
    void *memory = draft->bytes;
    size_t need = draft->used + length + 1;
    if (need > UINT32_MAX || !qw_grow(draft->allocator, &memory, &draft->capacity, need, 1))
        return NULL;
    draft->bytes = memory;
    return draft->bytes + draft->used;
}

bool qw_vocabulary_put(qw_vocabulary_draft *draft, uint32_t id, size_t length, unsigned char flags)
{
    void *memory = draft->items;
    if (!qw_grow(draft->allocator, &memory, &draft->items_capacity, QW_MAX(draft->count + 1, 64),
                 sizeof *draft->items))
        return false;
    draft->items = memory;
    draft->items[draft->count++] =
        (qw_vocabulary_item){id, (uint32_t)draft->used, (uint32_t)length, flags | QW_TOKEN_KNOWN};
    draft->used += length;
    draft->size = QW_MAX(draft->size, id + 1);
    return true;
}

void qw_vocabulary_draft_release(qw_vocabulary_draft *draft)
{
    qw_free(draft->allocator, draft->bytes);
    qw_free(draft->allocator, draft->items);
}

/* Sets flags and lengths (in begins[id + 1]); false at an id with two tokens. */
static bool assign_ids(const qw_vocabulary_draft *draft, qw_vocabulary *v, uint32_t *first, uint32_t *clash)
{
    for (size_t i = 0; i < draft->count; i++) {
        const qw_vocabulary_item *item = &draft->items[i];
        if (v->flags[item->id] == 0) {
            first[item->id] = item->begin;
            v->begins[item->id + 1] = item->length;
        } else if ((v->flags[item->id] & item->flags & (QW_TOKEN_ORDINARY | QW_TOKEN_ADDED)) != 0 ||
                   v->begins[item->id + 1] != item->length ||
                   memcmp(draft->bytes + first[item->id], draft->bytes + item->begin, item->length) != 0) {
            *clash = item->id;
            return false;
        }
        v->flags[item->id] |= item->flags;
    }
    return true;
}

static bool fill_table(qw_vocabulary *v, uint32_t *clash)
{
    for (uint32_t id = 0; id < v->size; id++) {
        size_t length;
        uint32_t tag;
        const char *bytes = qw_vocabulary_bytes(v, id, &length);
        if ((v->flags[id] & QW_TOKEN_ORDINARY) == 0)
            continue;
        uint32_t *slot = slot_of(v, bytes, length, &tag);
        if (*slot != 0) {
            *clash = id;
            return false;
        }
        *slot = tag | (id + 1);
        v->longest = QW_MAX(v->longest, (uint32_t)length);
    }
    return true;
}

static bool allocate_tables(qw_vocabulary *v, const qw_vocabulary_draft *draft)
{
    size_t slots = 2;
    while (slots < draft->count * 2)
        slots *= 2;
    v->size = draft->size;
    v->mask = (uint32_t)slots - 1;
    v->arena = qw_alloc_raw(draft->allocator, draft->used + 1, 1);
    v->begins = qw_alloc(draft->allocator, (size_t)v->size + 1, sizeof *v->begins);
    v->flags = qw_alloc(draft->allocator, v->size, 1);
    v->slots = qw_alloc(draft->allocator, slots, sizeof *v->slots);
    return v->arena != NULL && v->begins != NULL && v->flags != NULL && v->slots != NULL;
}

qwen36_status qw_vocabulary_finish(const qw_vocabulary_draft *draft, qw_vocabulary *v, uint32_t *clash)
{
    uint32_t *first = qw_alloc(draft->allocator, draft->size, sizeof *first); /* by id: where in the draft */
    qwen36_status status = QWEN36_ERROR_OUT_OF_MEMORY;
    *v = (qw_vocabulary){0};
    if (first == NULL || !allocate_tables(v, draft))
        goto out;
    status = QWEN36_ERROR_TOKENIZER;
    if (!assign_ids(draft, v, first, clash))
        goto out;
    for (uint32_t id = 0; id < v->size; id++) {
        uint32_t length = v->begins[id + 1];
        v->begins[id + 1] = v->begins[id] + length;
        if (length > 0)
            memcpy(v->arena + v->begins[id], draft->bytes + first[id], length);
    }
    status = fill_table(v, clash) ? QWEN36_OK : QWEN36_ERROR_TOKENIZER;
out:
    qw_free(draft->allocator, first);
    return status;
}
