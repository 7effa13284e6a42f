#include "lib/base/names.h"

#include <string.h>

static uint64_t mix(uint64_t h)
{
    h = (h ^ (h >> 32)) * 0x9e3779b97f4a7c15u;
    return h ^ (h >> 29);
}

/* Eight bytes a step: names are some sixty bytes long, and each is looked up several times. */
static uint64_t hash_of(const char *text, size_t length)
{
    uint64_t h = length, word = 0;
    for (; length > sizeof word; text += sizeof word, length -= sizeof word) {
        memcpy(&word, text, sizeof word);
        h = mix(h ^ word);
    }
    word = 0;
    memcpy(&word, text, length);
    return mix(mix(h ^ word));
}

static qw_name *slot_of(const qw_names *names, uint64_t hash, const char *text, size_t length)
{
    size_t mask = names->capacity - 1;
    for (size_t i = hash & mask;; i = (i + 1) & mask) {
        qw_name *slot = &names->slots[i];
        if (slot->text == NULL)
            return slot;
        if (slot->hash == hash && slot->length == length && memcmp(slot->text, text, length) == 0)
            return slot;
    }
}

static bool rehash(qw_names *names, size_t capacity)
{
    qw_names larger = {names->allocator, NULL, capacity, names->count};
    larger.slots = qw_alloc(names->allocator, capacity, sizeof *larger.slots);
    if (larger.slots == NULL)
        return false;
    for (size_t i = 0; i < names->capacity; i++) {
        const qw_name *old = &names->slots[i];
        if (old->text != NULL)
            *slot_of(&larger, old->hash, old->text, old->length) = *old;
    }
    qw_free(names->allocator, names->slots);
    *names = larger;
    return true;
}

bool qw_names_reserve(qw_names *names, size_t count)
{
    if (count > SIZE_MAX / 8)
        return false;
    size_t capacity = QW_MAX(names->capacity, 16);
    while (capacity < count * 2)
        capacity *= 2;
    return capacity == names->capacity || rehash(names, capacity);
}

qw_names_result qw_names_add(qw_names *names, const char *text, size_t length, uint32_t value)
{
    if (length > UINT32_MAX || !qw_names_reserve(names, names->count + 1))
        return QW_NAMES_NO_MEMORY;
    uint64_t hash = hash_of(text, length);
    qw_name *slot = slot_of(names, hash, text, length);
    if (slot->text != NULL)
        return QW_NAMES_PRESENT;
    *slot = (qw_name){hash, text, (uint32_t)length, value};
    names->count++;
    return QW_NAMES_ADDED;
}

qw_name *qw_names_find(const qw_names *names, const char *text, size_t length)
{
    if (names->count == 0)
        return NULL;
    qw_name *slot = slot_of(names, hash_of(text, length), text, length);
    return slot->text == NULL ? NULL : slot;
}

void qw_names_release(qw_names *names)
{
    qw_free(names->allocator, names->slots);
    names->slots = NULL;
    names->capacity = names->count = 0;
}
