/* A hash table from names to 32-bit values, built at load. Names are borrowed: the caller keeps the bytes
 * alive and unchanged. Open addressing, at most half full, so a failed look-up ends early. */
#ifndef QW_NAMES_H
#define QW_NAMES_H

#include "lib/base/base.h"

typedef struct qw_name {
    uint64_t hash;
    const char *text; /* NULL: a free slot */
    uint32_t length;
    uint32_t value;
} qw_name;

typedef struct qw_names {
    const qw_allocator *allocator;
    qw_name *slots;
    size_t capacity; /* a power of two, or 0 */
    size_t count;
} qw_names;

typedef enum qw_names_result {
    QW_NAMES_ADDED,
    QW_NAMES_PRESENT, /* nothing changed */
    QW_NAMES_NO_MEMORY
} qw_names_result;

/* Room for `count` names at once, so that adding those cannot fail. */
bool qw_names_reserve(qw_names *names, size_t count);
qw_names_result qw_names_add(qw_names *names, const char *text, size_t length, uint32_t value);
/* NULL: not there. The pointer holds until the next addition. */
qw_name *qw_names_find(const qw_names *names, const char *text, size_t length);
void qw_names_release(qw_names *names);

#endif
