/* A published model directory, opened: configuration, generation defaults, and the table of its tensors, all
 * checked; no weight is mapped yet (lib/model/weights.h does that). The files are closed again; their stamps
 * are kept, so that a change before or while mapping is noticed.
 */
#ifndef QW_CHECKPOINT_H
#define QW_CHECKPOINT_H

#include "lib/base/names.h"
#include "lib/model/dims.h"
#include "lib/os/file.h"
#include "lib/weights/generation_config.h"
#include "lib/weights/safetensors.h"

#define QW_CONFIG_FILE "config.json"
#define QW_GENERATION_FILE "generation_config.json"
#define QW_INDEX_FILE "model.safetensors.index.json"
#define QW_SINGLE_FILE "model.safetensors"

typedef struct qw_shard {
    char *file;   /* its name in the directory */
    char *header; /* tensor names point into it */
    qw_file_stamp stamp;
} qw_shard;

typedef struct qw_checkpoint {
    qw_allocator allocator;
    char *directory;
    qw_dims dims;
    qw_generation generation;

    bool indexed; /* shards named by an index, or the one file */
    qw_shard *shards;
    size_t shard_count;
    qw_tensors tensors;
    qw_names names; /* name → index in tensors */

    /* The layout that the manifest check found. */
    const char *prefix;    /* "model.language_model." or "model." */
    bool fused_experts;    /* one 3-D tensor per layer, or three matrices per expert */
    uint64_t weight_bytes; /* of the bound tensors */
    uint64_t parameters;   /* their elements; a tied head counts once */
    uint32_t role_count[QW_ROLE_COUNT];
} qw_checkpoint;

/* On failure *checkpoint is NULL. */
qwen36_status qw_checkpoint_open(const qw_allocator *allocator, const char *directory,
                                 qw_checkpoint **checkpoint, qwen36_error *error);
/* NULL is fine. Bound weights do not depend on it. */
void qw_checkpoint_close(qw_checkpoint *checkpoint);

/* NULL: no such tensor. */
const qw_tensor *qw_checkpoint_find(const qw_checkpoint *checkpoint, const char *name);

/* The path of a file in the directory, for qw_free; NULL: out of memory. */
char *qw_checkpoint_path(const qw_checkpoint *checkpoint, const char *file);

#endif
