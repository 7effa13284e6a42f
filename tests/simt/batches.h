/* A batch of tests/mixing.h in one block of integers, as a step has it. */
#ifndef QW_TESTS_SIMT_BATCHES_H
#define QW_TESTS_SIMT_BATCHES_H

#include "tests/simt/ops.h"

typedef struct packed_batch {
    qw_batch batch;
    qw_buffer device;
    int32_t *block;
} packed_batch;

static inline int32_t *pack_array(int32_t **next, const void *from, size_t bytes)
{
    int32_t *at = *next;
    if (from != NULL)
        memcpy(at, from, bytes);
    *next += (bytes + 3) / 4;
    return at;
}

static inline void pack_batch(packed_batch *p, const qw_batch *from)
{
    const size_t rows = (size_t)from->rows, blocks = (size_t)from->blocks;
    const size_t segments = (size_t)from->segments * sizeof(qw_segment);
    const size_t writes = (size_t)from->writes * sizeof(qw_state_write);
    const size_t bytes = (5 * rows + blocks) * 4 + segments + writes;
    p->batch = *from;
    p->block = array_of(bytes);
    int32_t *next = p->block;
    p->batch.ids = pack_array(&next, from->ids, rows * 4);
    p->batch.positions = pack_array(&next, from->positions, 3 * rows * 4);
    p->batch.kv_index = pack_array(&next, from->kv_index, rows * 4);
    p->batch.segment = (const qw_segment *)pack_array(&next, from->segment, segments);
    p->batch.state_write = (const qw_state_write *)pack_array(&next, from->state_write, writes);
    p->batch.block_table = pack_array(&next, from->block_table, blocks * 4);
    p->batch.host = p->block;
    p->batch.bytes = bytes;
    p->device = (qw_buffer){p->block, bytes, QW_SPACE_DEVICE, 0};
    p->batch.device = &p->device;
}

static inline void packed_free(packed_batch *p)
{
    drop(p->block);
}

#endif
