#include "lib/base/hash.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

qw_hash128 qw_hash_chain(qw_hash128 parent, const void *bytes, size_t length)
{
    XXH128_hash_t h = XXH3_128bits_withSeed(bytes, length, parent.low ^ (parent.high * 0x9E3779B97F4A7C15u));
    return (qw_hash128){h.low64, h.high64};
}
