#include "lib/sample/random.h"

/* A bijection of 64-bit words in which every input bit changes every output bit with probability near 1/2:
 * the finaliser of splitmix64 (variant 13 of Stafford's search). */
static uint64_t mix(uint64_t x)
{
    x = (x ^ (x >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94D049BB133111EB);
    return x ^ (x >> 31);
}

/* Absorbs one word into a state. The odd constants (fractions of pi) differ per word, so that exchanging
 * two words gives another result, and all zeros is no fixed point. */
static uint64_t absorb(uint64_t state, uint64_t word, uint64_t constant)
{
    return mix(state ^ mix(word + constant)) + constant;
}

/* For two of the words fixed, the result is a bijection of the third: two positions of one stream never
 * give the same 64 bits. */
uint64_t qw_draw_bits(uint64_t seed, uint64_t stream, uint64_t position)
{
    uint64_t state = absorb(0, seed, UINT64_C(0x243F6A8885A308D3));
    state = absorb(state, stream, UINT64_C(0x13198A2E03707345));
    state = absorb(state, position, UINT64_C(0xA4093822299F31D1));
    return mix(state);
}

double qw_draw_uniform(uint64_t seed, uint64_t stream, uint64_t position)
{
    return (double)(qw_draw_bits(seed, stream, position) >> 11) * 0x1p-53;
}
