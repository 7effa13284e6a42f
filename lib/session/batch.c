#include "lib/session/batch.h"

#include <string.h>

enum {
    SEGMENT_INTS = sizeof(qw_segment) / sizeof(int32_t),
    WRITE_INTS = sizeof(qw_state_write) / sizeof(int32_t)
};

/* ids, three positions and kv_index per row; one state write per segment. */
uint64_t qw_batch_bytes(int32_t max_rows, int32_t max_segments, int64_t max_blocks)
{
    return sizeof(int32_t) *
           ((uint64_t)max_rows * 5 +
            (uint64_t)max_segments * ((uint64_t)SEGMENT_INTS + (uint64_t)WRITE_INTS) + (uint64_t)max_blocks);
}

qwen36_status qw_batch_create(qw_batch_builder *b, const qw_allocator *a, int32_t max_rows,
                              int32_t max_segments, int64_t max_blocks)
{
    *b = (qw_batch_builder){.max_rows = max_rows, .max_segments = max_segments, .max_blocks = max_blocks};
    b->bytes = qw_batch_bytes(max_rows, max_segments, max_blocks);
    b->memory = qw_alloc(a, b->bytes, 1);
    if (b->memory == NULL)
        return QWEN36_ERROR_OUT_OF_MEMORY;
    b->buffer = (qw_buffer){b->memory, b->bytes, QW_SPACE_HOST, 0};
    b->segment = (qw_segment *)b->memory;
    b->write = (qw_state_write *)(b->segment + max_segments);
    b->ids = (int32_t *)(b->write + max_segments);
    b->positions = b->ids + max_rows;
    b->kv_index = b->positions + 3 * (int64_t)max_rows;
    b->block_table = b->kv_index + max_rows;
    return QWEN36_OK;
}

void qw_batch_destroy(qw_batch_builder *builder, const qw_allocator *a)
{
    qw_free(a, builder->memory);
    *builder = (qw_batch_builder){0};
}

void qw_batch_begin(qw_batch_builder *b)
{
    b->rows = b->segments = b->writes = b->blocks = 0;
}

/* Token ids and KV places of the rows; positions follow when all rows are known. */
static void add_rows(qw_batch_builder *b, const qw_batch_part *part)
{
    for (int32_t i = 0; i < part->count; i++) {
        int32_t token = part->position + i;
        b->ids[b->rows + i] = part->tokens[i];
        b->kv_index[b->rows + i] = part->blocks[token / QW_KV_BLOCK] * QW_KV_BLOCK + token % QW_KV_BLOCK;
    }
}

int32_t qw_batch_add(qw_batch_builder *b, const qw_batch_part *part)
{
    int32_t blocks = (part->position + part->count + QW_KV_BLOCK - 1) / QW_KV_BLOCK;
    int32_t row = b->rows;
    add_rows(b, part);
    memcpy(b->block_table + b->blocks, part->blocks, (size_t)blocks * sizeof *part->blocks);
    b->write[b->writes] = (qw_state_write){row + part->count - 1, part->state_write};
    b->segment[b->segments] = (qw_segment){.row_begin = row,
                                           .row_count = part->count,
                                           .position = part->position,
                                           .table = b->blocks,
                                           .state_read = part->state_read,
                                           .write_begin = b->writes,
                                           .write_count = 1};
    b->segments++;
    b->writes++;
    b->blocks += blocks;
    b->rows += part->count;
    return row;
}

/* Text: the three axes advance together. */
static void fill_positions(const qw_batch_builder *b)
{
    for (int32_t s = 0; s < b->segments; s++)
        for (int32_t i = 0; i < b->segment[s].row_count; i++)
            for (int32_t axis = 0; axis < 3; axis++)
                b->positions[(int64_t)axis * b->rows + b->segment[s].row_begin + i] =
                    b->segment[s].position + i;
}

qw_batch qw_batch_finish(const qw_batch_builder *b)
{
    fill_positions(b);
    return (qw_batch){.rows = b->rows,
                      .segments = b->segments,
                      .writes = b->writes,
                      .blocks = b->blocks,
                      .ids = b->ids,
                      .positions = b->positions,
                      .kv_index = b->kv_index,
                      .segment = b->segment,
                      .state_write = b->write,
                      .block_table = b->block_table,
                      .host = b->memory,
                      .bytes = b->bytes,
                      .device = &b->buffer};
}
