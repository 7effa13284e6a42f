/* Content hashes: XXH3 of 128 bits, chained. */
#ifndef QW_BASE_HASH_H
#define QW_BASE_HASH_H

#include <stddef.h>
#include <stdint.h>

typedef struct qw_hash128 {
    uint64_t low, high;
} qw_hash128;

qw_hash128 qw_hash_chain(qw_hash128 parent, const void *bytes, size_t length);

#endif
