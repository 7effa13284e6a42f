/* Builds the rows of a step in one block of int32 memory that was sized at load. */
#ifndef QW_SESSION_BATCH_H
#define QW_SESSION_BATCH_H

#include "lib/backend.h"

typedef struct qw_batch_limits {
    int32_t rows, segments, writes;
    int64_t blocks; /* entries of all block tables together */
} qw_batch_limits;

typedef struct qw_batch_builder {
    qw_batch_limits limits;
    qw_buffer host, device; /* of equal size; `device` is `host` where the backend's memory is the host's */
    int32_t *ids, *positions, *kv_index, *block_table;
    qw_segment *segment;
    qw_state_write *write;
    int32_t rows, segments, writes, blocks; /* so far */
} qw_batch_builder;

uint64_t qw_batch_bytes(const qw_batch_limits *limits);
qwen36_status qw_batch_create(qw_batch_builder *builder, const qw_batch_limits *limits, qw_backend *backend);
void qw_batch_destroy(qw_batch_builder *builder, qw_backend *backend);

/* One sequence's next rows: tokens [position, position + count) of it. */
typedef struct qw_batch_part {
    const int32_t *tokens; /* [count] */
    int32_t position, count;
    const int32_t *blocks; /* block table of the sequence, through its last row */
    int32_t state_read;
    const qw_state_write *write; /* [writes]: rows count from the part's first; the last is its last row */
    int32_t writes;
} qw_batch_part;

void qw_batch_begin(qw_batch_builder *builder);
/* Returns the first row of the part. The caller keeps within the limits given at create. */
int32_t qw_batch_add(qw_batch_builder *builder, const qw_batch_part *part);
qw_batch qw_batch_finish(const qw_batch_builder *builder);

#endif
