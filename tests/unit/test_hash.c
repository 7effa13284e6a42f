/* The wrapper of xxHash: known values, pieces against the whole, chains. */
#include "lib/base/hash.h"
#include "tests/harness.h"

enum { LONGEST = 3000 };

static void fill(unsigned char *bytes, size_t length)
{
    for (size_t i = 0; i < length; i++)
        bytes[i] = (unsigned char)(i * 167 + (i >> 8));
}

/* The values are part of a file format. They are those of the library that xxHash itself makes. */
TEST(hash, values)
{
    const qw_hash128 empty = qw_hash_bytes(NULL, 0);
    CHECK(empty.high == 0x99aa06d3014798d8u && empty.low == 0x6001c324468d497fu);
    const qw_hash128 abc = qw_hash_bytes("abc", 3);
    CHECK_MSG(abc.high == 0x06b05ab6733a6185u && abc.low == 0x78af5f94892f3950u, "%llx %llx",
              (unsigned long long)abc.high, (unsigned long long)abc.low);
    unsigned char canonical[QW_HASH_BYTES];
    qw_hash_canonical(abc, canonical);
    CHECK(canonical[0] == 0x06 && canonical[7] == 0x85 && canonical[8] == 0x78 && canonical[15] == 0x50);
}

/* Every length around the hash's inner borders, cut in two and in pieces of seven. */
TEST(hash, pieces)
{
    unsigned char bytes[LONGEST];
    const uint64_t seeds[] = {0, 1, UINT64_MAX};
    fill(bytes, sizeof bytes);
    for (size_t length = 0; length <= sizeof bytes; length += length < 600 ? 1 : 97)
        for (size_t s = 0; s < QW_COUNT_OF(seeds); s++) {
            const qw_hash128 whole = qw_hash_seeded(bytes, length, seeds[s]);
            qw_hash_state state;
            qw_hash_begin(&state, seeds[s]);
            qw_hash_add(&state, bytes, length / 3);
            qw_hash_add(&state, bytes + length / 3, length - length / 3);
            CHECK(qw_hash_equal(qw_hash_end(&state), whole));
            qw_hash_begin(&state, seeds[s]);
            for (size_t at = 0; at < length; at += 7)
                qw_hash_add(&state, bytes + at, QW_MIN(7, length - at));
            qw_hash_add(&state, NULL, 0);
            CHECK(qw_hash_equal(qw_hash_end(&state), whole));
            CHECK(qw_hash_equal(qw_hash_end(&state), whole));
        }
    CHECK(qw_hash_equal(qw_hash_seeded(bytes, LONGEST, 0), qw_hash_bytes(bytes, LONGEST)));
    CHECK(!qw_hash_equal(qw_hash_seeded(bytes, LONGEST, 1), qw_hash_bytes(bytes, LONGEST)));
}

TEST(hash, chain)
{
    unsigned char joined[QW_HASH_BYTES + 5] = {0};
    const qw_hash128 a = qw_hash_bytes("a", 1), b = qw_hash_bytes("b", 1);
    qw_hash_canonical(a, joined);
    memcpy(joined + QW_HASH_BYTES, "tail!", 5);
    CHECK(qw_hash_equal(qw_hash_chain(a, "tail!", 5), qw_hash_bytes(joined, sizeof joined)));
    CHECK(!qw_hash_equal(qw_hash_chain(a, "tail!", 5), qw_hash_chain(b, "tail!", 5)));
    CHECK(!qw_hash_equal(qw_hash_chain(a, "tail!", 5), qw_hash_chain(a, "tail?", 5)));
    CHECK(qw_hash_equal(qw_hash_chain(a, NULL, 0), qw_hash_bytes(joined, QW_HASH_BYTES)));
}
