#include "lib/text/added.h"

/* The child of `node` for a byte, or 0. */
static uint32_t child_of(const qw_added *added, uint32_t node, unsigned char byte)
{
    uint32_t child = added->nodes[node].child;
    while (child != 0 && added->nodes[child].byte != byte)
        child = added->nodes[child].sibling;
    return child;
}

bool qw_added_add(qw_added *added, const qw_allocator *allocator, const char *text, size_t length, int32_t id)
{
    void *memory = added->nodes;
    size_t need = added->count + length + 1;
    if (need > UINT32_MAX || !qw_grow(allocator, &memory, &added->capacity, need, sizeof *added->nodes))
        return false;
    added->nodes = memory;
    if (added->count == 0)
        added->nodes[added->count++].id = -1;
    uint32_t node = 0;
    for (size_t i = 0; i < length; i++) {
        unsigned char byte = (unsigned char)text[i];
        uint32_t child = child_of(added, node, byte);
        if (child == 0) {
            child = (uint32_t)added->count++;
            added->nodes[child] = (qw_added_node){0, added->nodes[node].child, -1, byte};
            added->nodes[node].child = child;
        }
        node = child;
    }
    added->nodes[node].id = id;
    added->starts[(unsigned char)text[0]] = true;
    return true;
}

void qw_added_release(qw_added *added, const qw_allocator *allocator)
{
    qw_free(allocator, added->nodes);
}

static qw_added_match longest_at(const qw_added *added, const char *text, size_t length, size_t at)
{
    qw_added_match match = {at, 0, -1};
    uint32_t node = 0;
    for (size_t i = at; i < length; i++) {
        node = child_of(added, node, (unsigned char)text[i]);
        if (node == 0)
            break;
        if (added->nodes[node].id >= 0)
            match = (qw_added_match){at, i + 1 - at, added->nodes[node].id};
    }
    return match;
}

qw_added_match qw_added_find(const qw_added *added, const char *text, size_t length, size_t at)
{
    for (; at < length; at++) {
        if (!added->starts[(unsigned char)text[at]])
            continue;
        qw_added_match match = longest_at(added, text, length, at);
        if (match.length > 0)
            return match;
    }
    return (qw_added_match){length, 0, -1};
}

int32_t qw_added_id(const qw_added *added, const char *text, size_t length)
{
    uint32_t node = 0;
    if (added->count == 0 || length == 0)
        return -1;
    for (size_t i = 0; i < length; i++)
        if ((node = child_of(added, node, (unsigned char)text[i])) == 0)
            return -1;
    return added->nodes[node].id;
}
