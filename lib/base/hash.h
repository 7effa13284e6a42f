/* 128-bit hashes of content: XXH3, whose values are the same on every machine. Fast, and sure against
 * accidents; whoever wants two inputs with one hash can make them, so nothing may rest on a hash against
 * malice.
 *
 * Nothing here allocates: the state of a hash over pieces lies where the caller puts it. */
#ifndef QW_HASH_H
#define QW_HASH_H

#include "lib/base/base.h"

#define QW_HASH_BYTES 16

typedef struct qw_hash128 {
    uint64_t low, high;
} qw_hash128;

qw_hash128 qw_hash_bytes(const void *bytes, size_t length);
qw_hash128 qw_hash_seeded(const void *bytes, size_t length, uint64_t seed);

/* The hash of `parent` followed by the bytes: a chain names content together with all that stood before it.
 */
qw_hash128 qw_hash_chain(qw_hash128 parent, const void *bytes, size_t length);

static inline bool qw_hash_equal(qw_hash128 a, qw_hash128 b)
{
    return a.low == b.low && a.high == b.high;
}

/* The form for files: the high half first, most significant byte first. */
void qw_hash_canonical(qw_hash128 hash, unsigned char out[QW_HASH_BYTES]);

/* Over pieces: begin, add ..., end gives what qw_hash_seeded gives for all of them at once (seed 0:
 * qw_hash_bytes). `end` changes nothing, so more may be added behind it. */
typedef struct qw_hash_state {
    _Alignas(64) unsigned char opaque[576];
} qw_hash_state;
void qw_hash_begin(qw_hash_state *state, uint64_t seed);
void qw_hash_add(qw_hash_state *state, const void *bytes, size_t length);
qw_hash128 qw_hash_end(const qw_hash_state *state);

#endif
