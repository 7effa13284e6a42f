/* model.safetensors.index.json: which shard holds which tensor. Shard names are plain file names: the index
 * comes with the checkpoint and may not point out of its directory. */
#ifndef QW_INDEX_H
#define QW_INDEX_H

#include "lib/base/json.h"
#include "lib/base/names.h"

typedef struct qw_index {
    const qw_allocator *allocator;
    cJSON *tree; /* all names point into it */
    const cJSON *weight_map;
    qw_names tensors; /* tensor → shard number, with QW_INDEX_SEEN once its shard was found to hold it */
    qw_names shards;  /* file → shard number */
    const char **files;
    size_t file_count, file_capacity;
} qw_index;

#define QW_INDEX_SEEN 0x80000000u

/* `error` is not NULL and holds no error yet. Release the index in any case. */
qwen36_status qw_index_parse(const qw_allocator *allocator, const char *text, size_t length, const char *file,
                             qw_index *index, qwen36_error *error);
void qw_index_release(qw_index *index);

#endif
