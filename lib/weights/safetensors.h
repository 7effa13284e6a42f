/* The header of a safetensors file: 8 bytes of length, JSON, then the data without holes.
 *
 * The text is checked by the strict scan of lib/base/json.h and cut into its members; cJSON parses each
 * member's value, and integers are read from the text, exact to 64 bits. Names point into the header, which
 * the caller keeps. docs/loading.md has the rules.
 */
#ifndef QW_SAFETENSORS_H
#define QW_SAFETENSORS_H

#include "lib/base/base.h"

#define QW_SAFETENSORS_HEADER_MAX 100000000u

/* What a tensor is to this library. */
enum { QW_ROLE_OTHER = 0, QW_ROLE_BOUND = 1, QW_ROLE_MTP = 2, QW_ROLE_VISION = 3, QW_ROLE_COUNT = 4 };

typedef struct qw_tensor {
    const char *name; /* not terminated; in the header */
    uint32_t name_length;
    uint32_t shard;
    uint64_t offset; /* in its file */
    uint64_t bytes;
    uint32_t rank;
    int16_t dtype;
    int16_t role;
    size_t dims_at; /* its shape: dims[dims_at .. dims_at + rank - 1] of the list */
} qw_tensor;

typedef struct qw_tensors {
    const qw_allocator *allocator;
    qw_tensor *items;
    size_t count, capacity;
    uint64_t *dims;
    size_t dims_count, dims_capacity;
} qw_tensors;

/* Appends the tensors of one file, in the order of their data. `header` (length bytes after the 8) is
 * changed: names with escapes are unescaped in place. On failure the list may hold some of them. */
qwen36_status qw_safetensors_parse(qw_tensors *list, uint32_t shard, char *header, size_t length,
                                   uint64_t file_size, const char *file, qwen36_error *error);

/* The first 8 bytes: the header's length, checked against the format's limit and the file's size. */
qwen36_status qw_safetensors_header_length(const unsigned char bytes[8], uint64_t file_size, const char *file,
                                           size_t *length, qwen36_error *error);

void qw_tensors_release(qw_tensors *list);

#endif
