/* The only file that sees xxHash, compiled in from its header: no library is linked for it. */
#include "lib/base/hash.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

_Static_assert(sizeof(qw_hash_state) == sizeof(XXH3_state_t) &&
                   _Alignof(qw_hash_state) >= _Alignof(XXH3_state_t),
               "the state of xxHash fits");

static qw_hash128 from_xxh(XXH128_hash_t hash)
{
    return (qw_hash128){hash.low64, hash.high64};
}

/* The opaque bytes are touched by xxHash alone. */
static XXH3_state_t *xxh_state(qw_hash_state *state)
{
    return (XXH3_state_t *)(void *)state->opaque;
}

qw_hash128 qw_hash_bytes(const void *bytes, size_t length)
{
    return from_xxh(XXH3_128bits(bytes, length));
}

qw_hash128 qw_hash_seeded(const void *bytes, size_t length, uint64_t seed)
{
    return from_xxh(XXH3_128bits_withSeed(bytes, length, seed));
}

qw_hash128 qw_hash_chain(qw_hash128 parent, const void *bytes, size_t length)
{
    unsigned char before[QW_HASH_BYTES];
    qw_hash_state state;
    qw_hash_canonical(parent, before);
    qw_hash_begin(&state, 0);
    qw_hash_add(&state, before, sizeof before);
    qw_hash_add(&state, bytes, length);
    return qw_hash_end(&state);
}

void qw_hash_canonical(qw_hash128 hash, unsigned char out[QW_HASH_BYTES])
{
    for (int i = 0; i < 8; i++) {
        out[i] = (unsigned char)(hash.high >> (56 - 8 * i));
        out[8 + i] = (unsigned char)(hash.low >> (56 - 8 * i));
    }
}

void qw_hash_begin(qw_hash_state *state, uint64_t seed)
{
    XXH3_INITSTATE(xxh_state(state)); /* a reset looks at the seed that was there before */
    XXH3_128bits_reset_withSeed(xxh_state(state), seed);
}

void qw_hash_add(qw_hash_state *state, const void *bytes, size_t length)
{
    if (length > 0) /* NULL is allowed then */
        XXH3_128bits_update(xxh_state(state), bytes, length);
}

qw_hash128 qw_hash_end(const qw_hash_state *state)
{
    return from_xxh(XXH3_128bits_digest((const XXH3_state_t *)(const void *)state->opaque));
}
