/* What benchmarks of whole models share: checkpoints of true dimensions, prompts, and giving up. */
#ifndef QW_BENCH_MODEL_H
#define QW_BENCH_MODEL_H

#include "lib/api/api.h"

/* Writes one line and ends the benchmark. */
_Noreturn void bench_give_up(const char *what);
void bench_check(qwen36_status status, const qwen36_error *error);

/* The directory build/checkpoints/bench-LIKE-LAYERS of random weights, made by examples/make-model when it is
 * not there; layers 0: all of them, and no data, so that every weight is zero. Static until the next call. */
const char *bench_checkpoint(const char *like, int32_t layers);

void bench_random_tokens(int32_t *tokens, int32_t count, int32_t vocab_size, uint32_t seed);

/* Steps until nothing is pending; the seconds that took. */
double bench_compute(qwen36_session *session);

#endif
