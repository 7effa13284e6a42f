/* Checkpoints and golden data for tests of the whole model.
 *
 * A checkpoint is made by examples/make-model from a config in tests/golden/configs when it is first asked
 * for, into build/checkpoints, and found there afterwards.
 */
#ifndef QW_TESTS_CHECKPOINT_H
#define QW_TESTS_CHECKPOINT_H

#include "lib/model/model.h"

/* Directory of the checkpoint of tests/golden/configs/NAME.json, made with make-model's default dtype and the
 * golden seed. Static buffer, valid until the next call. */
const char *test_checkpoint(const char *name);
/* The same with other make-model options, e.g. "--dtype f16"; `variant` names the directory. */
const char *test_checkpoint_variant(const char *name, const char *variant, const char *options);

typedef struct test_golden {
    void *memory;
    int32_t count, vocab_size, layers, hidden, positions;
    const int32_t *tokens;   /* [count] */
    const float *logits;     /* [count][vocab_size] */
    const float *layer_rows; /* [layers][positions][hidden] */
    const int32_t *position; /* [positions] */
} test_golden;
test_golden test_golden_load(const char *name);
void test_golden_free(test_golden *golden);

/* max |a - b| / max |b| over a row. */
double test_deviation(const float *a, const float *b, int64_t count);

/* Defaults for tests: reference numerics, small context, one thread. */
qwen36_model_options test_model_options(void);
/* Loads or fails the test with the error's text. */
qwen36_model *test_model(const char *directory, const qwen36_model_options *options);
qwen36_session *test_session(qwen36_model *model);
/* Steps until nothing is pending; fails the test on an error. */
void test_compute(qwen36_session *session);

/* The tiers that this machine can run, as QWEN36_CPU_*; returns their number (at most 4). A device has one.
 */
int32_t test_tiers(int32_t tiers[4]);

/* Whether a step takes a hundred times as long as elsewhere, because the SIMT machine pretends the device.
 * Tests then run fewer of the same cases: each test_stride()-th, which is each one elsewhere. */
bool test_is_slow_backend(void);
size_t test_stride(void);

#endif
