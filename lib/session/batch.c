#include "lib/session/batch.h"

#include <string.h>

enum {
    SEGMENT_INTS = sizeof(qw_segment) / sizeof(int32_t),
    WRITE_INTS = sizeof(qw_state_write) / sizeof(int32_t)
};

/* ids, three positions and kv_index per row. */
uint64_t qw_batch_bytes(const qw_batch_limits *l)
{
    return sizeof(int32_t) * ((uint64_t)l->rows * 5 + (uint64_t)l->segments * SEGMENT_INTS +
                              (uint64_t)l->writes * WRITE_INTS + (uint64_t)l->blocks);
}

qwen36_status qw_batch_create(qw_batch_builder *b, const qw_batch_limits *limits, qw_backend *backend)
{
    const uint64_t bytes = qw_batch_bytes(limits);
    *b = (qw_batch_builder){.limits = *limits};
    qwen36_status status = backend->ops->buffer_create(backend, bytes, QW_SPACE_HOST, &b->host);
    if (status != QWEN36_OK)
        return status;
    b->device = b->host;
    b->device.owned = 0;
    if (backend->space == QW_SPACE_DEVICE)
        status = backend->ops->buffer_create(backend, bytes, QW_SPACE_DEVICE, &b->device);
    if (status != QWEN36_OK) {
        b->device = b->host;
        b->device.owned = 0;
        qw_batch_destroy(b, backend);
        return status;
    }
    b->segment = (qw_segment *)b->host.base;
    b->write = (qw_state_write *)(b->segment + limits->segments);
    b->ids = (int32_t *)(b->write + limits->writes);
    b->positions = b->ids + limits->rows;
    b->kv_index = b->positions + 3 * (int64_t)limits->rows;
    b->block_table = b->kv_index + limits->rows;
    return QWEN36_OK;
}

void qw_batch_destroy(qw_batch_builder *b, qw_backend *backend)
{
    if (b->device.owned != 0)
        backend->ops->buffer_destroy(backend, &b->device);
    if (b->host.base != NULL)
        backend->ops->buffer_destroy(backend, &b->host);
    *b = (qw_batch_builder){0};
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
    for (int32_t i = 0; i < part->writes; i++)
        b->write[b->writes + i] = (qw_state_write){row + part->write[i].row, part->write[i].slot};
    b->segment[b->segments] = (qw_segment){.row_begin = row,
                                           .row_count = part->count,
                                           .position = part->position,
                                           .table = b->blocks,
                                           .state_read = part->state_read,
                                           .write_begin = b->writes,
                                           .write_count = part->writes};
    b->segments++;
    b->writes += part->writes;
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
                      .host = b->host.base,
                      .bytes =
                          (uint64_t)((const char *)(b->block_table + b->blocks) - (const char *)b->host.base),
                      .device = &b->device};
}
