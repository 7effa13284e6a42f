/* Small checkpoints for tests: a configuration gives the list of tensors, a test spoils what it wants to see
 * refused, and the files are written. Byte i of a tensor's data is fixture_byte(its name, i). */
#ifndef QW_TESTS_CHECKPOINT_FIXTURE_H
#define QW_TESTS_CHECKPOINT_FIXTURE_H

#include "lib/base/base.h"
#include "tests/harness.h"

typedef struct fixture_tensor {
    char name[160];
    char dtype[16];
    int32_t rank;
    int64_t shape[5];
    int32_t shard; /* the one that holds it */
    int32_t named; /* the one that the index names; -1: the index does not list it */
} fixture_tensor;

typedef struct fixture {
    char directory[256];
    fixture_tensor *items;
    size_t count, capacity;
    int32_t shards; /* 0: one model.safetensors without an index */
    int32_t pad;    /* spaces after the header: moves the data to odd offsets */
} fixture;

/* A dense and a MoE configuration: 4 layers, sizes all different. */
extern const char *const fixture_dense, *const fixture_moe;

/* The tensors of `config` (BF16, in one file), config.json in a fresh directory. */
void fixture_begin(fixture *f, const char *config, const char *prefix, bool fused_experts);
fixture_tensor *fixture_find(fixture *f, const char *name);
fixture_tensor *fixture_add(fixture *f, const char *name, const char *dtype, int32_t rank,
                            const int64_t *shape);
void fixture_remove(fixture *f, const char *name);
/* Spreads the tensors over shards, one after the other in turn. */
void fixture_spread(fixture *f, int32_t shards);
/* Writes the files; shard number i is fixture_shard_name(i). */
void fixture_write(fixture *f);
void fixture_end(fixture *f);

const char *fixture_shard_name(int32_t shard);
uint8_t fixture_byte(const char *name, size_t index);
/* Writes `text` as `file` into the directory. */
void fixture_put(const fixture *f, const char *file, const char *text);
/* `text` with the first `from` replaced by `to` (static buffer); the test fails if it is not there. */
const char *fixture_config_with(const char *text, const char *from, const char *to);

/* Opens the directory and checks that it fails so: the status, and every part (up to NULL) in the text. */
#define CHECK_REFUSED(fixture_, status_, ...)                                                                \
    do {                                                                                                     \
        const char *parts_[] = {__VA_ARGS__, NULL};                                                          \
        fixture_check_refused((fixture_)->directory, status_, parts_, __LINE__);                             \
    } while (0)
void fixture_check_refused(const char *directory, qwen36_status status, const char *const *parts, int line);

#endif
