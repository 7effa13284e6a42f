/* The generator of the draws: a function of three numbers, without state, so that rewinding a session
 * redraws the same token and no other session can disturb it. docs/sampling.md says how it is made. */
#ifndef QW_SAMPLE_RANDOM_H
#define QW_SAMPLE_RANDOM_H

#include <stdint.h>

/* 64 well-mixed bits of (seed, stream, position). */
uint64_t qw_draw_bits(uint64_t seed, uint64_t stream, uint64_t position);

/* Uniform in [0, 1): a multiple of 2^-53. */
double qw_draw_uniform(uint64_t seed, uint64_t stream, uint64_t position);

#endif
