/* What the tests of the CUDA backend through the public API share: models on the pretended devices of
 * tests/simt, an allocator that counts the host's bytes, and the check that nothing is left. */
#ifndef QW_TESTS_CUDA_DEVICE_H
#define QW_TESTS_CUDA_DEVICE_H

#include "tests/harness.h"
#include "tests/simt/simt.h"
#include "tests/simt/simt_memory.h"
#include "tests/unit/checkpoint.h"

#include <stdatomic.h>

/* What the library holds through device_hooks. */
typedef struct device_host {
    _Atomic int64_t pieces, bytes, most_bytes;
    _Atomic int32_t strays; /* calls that found another device current than `expected` */
    int32_t expected;       /* -1: any */
} device_host;
extern device_host device_host_memory;
extern const qwen36_allocator device_hooks;

/* Both devices well, device 0 current, nothing planted. Each test begins with it. */
void device_begin(void);
/* No memory of the devices or of the host is left, none was damaged, no kernel had a fault. */
void device_check_nothing_left(void);

/* FAST numerics, short context, the counting allocator. */
qwen36_model_options device_options(void);
/* `count` tokens from `begin` of one fixed text. */
enum { DEVICE_TEXT = 1024 };
const int32_t *device_tokens(size_t begin);
/* Appends them with the last one's logits wanted. */
void device_append(qwen36_session *session, size_t begin, size_t count);
/* The logits at the end, malloc. */
float *device_logits(const qwen36_session *session);
/* The prefill of `count` tokens by a fresh session. */
qwen36_session *device_prefilled(qwen36_model *model, size_t count);
int32_t device_vocabulary(const qwen36_model *model);

#endif
