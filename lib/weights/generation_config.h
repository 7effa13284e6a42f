/* generation_config.json: how the publisher means the model to be sampled. */
#ifndef QW_GENERATION_CONFIG_H
#define QW_GENERATION_CONFIG_H

#include "lib/base/base.h"
#include "lib/base/json.h"

enum { QW_MAX_END_TOKENS = 16 };

typedef struct qw_generation {
    int32_t do_sample; /* 0: greedy, whatever the temperature */
    int32_t top_k;     /* 0: off */
    float temperature;
    float top_p;
    float min_p;
    float repetition_penalty;
    float presence_penalty;
    float frequency_penalty;
    int32_t bos_token; /* -1: none */
    int32_t pad_token; /* -1: none */
    int32_t end_count;
    int32_t end_tokens[QW_MAX_END_TOKENS];
} qw_generation;

/* Greedy, no tokens: what holds when no file says otherwise. */
void qw_generation_init(qw_generation *generation);
/* Overwrites what the text gives (null counts as absent). Token ids must be below vocab_size.
 * `error` is not NULL and holds no error yet. */
qwen36_status qw_generation_parse(const char *text, size_t length, const char *file, int32_t vocab_size,
                                  qw_generation *generation, qwen36_error *error);
/* The tokens that config.json itself gives, as far as `object` has them. */
qwen36_status qw_generation_read_tokens(const cJSON *object, const char *file, int32_t vocab_size,
                                        qw_generation *generation, qwen36_error *error);

#endif
