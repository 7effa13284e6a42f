/* attention: tiles of rows x KV heads over the blocks of their context (attention_impl.h).
 *
 * With enough tiles for all workers an item is one tile and one KV head over its whole context. With few
 * (decode of a long context) an item is one span of it: spans leave partial results in scratch, a window of
 * spans at a time, and then each tile merges them in order. Both do the same additions in the same order. */
#include "kernels/cpu/cpu.h"

#include <string.h>

/* Rows of one segment that are computed together. */
typedef struct row_tile {
    int32_t row, rows;
    int32_t position; /* of the first row */
    int32_t table;
    int32_t before; /* rows of the tiles before this one */
    int32_t spans;
} row_tile;

typedef struct attention_shape {
    int64_t heads, kv_heads, group, hd, width;
    int64_t rows;    /* of a tile, at most */
    int64_t queries; /* of a tile and KV head, at most */
} attention_shape;

typedef struct attention_task {
    const qw_attention_args *args;
    const qw_cpu_kernels *kernels;
    attention_shape shape;
    row_tile *tile;
    int64_t tiles;
    char *workspace; /* per worker workspace_bytes */
    uint64_t workspace_bytes;
    qw_attn_partial partial; /* [window spans][rows of the batch x heads] */
    qw_attn_partial total;   /* [rows of the batch x heads] */
    int64_t slots;           /* rows of the batch x heads */
    int64_t first_span, window;
} attention_task;

enum {
    ITEMS_PER_THREAD = 4, /* fewer: the context is split */
    WINDOW = 2            /* spans of partial results, at the least */
};

static attention_shape shape_of(const qw_dims *dims)
{
    attention_shape s = {dims->heads, dims->kv_heads, dims->heads / dims->kv_heads, dims->head_dim, 0, 0, 0};
    s.width = (s.hd + 15) / 16 * 16;
    s.rows = QW_MAX(1, QW_ATTN_QUERIES / s.group);
    s.queries = s.rows * s.group;
    return s;
}

/* ---- working memory -------------------------------------------------------------------------------- */

static uint64_t partial_bytes(int64_t slots, int64_t width)
{
    return qw_scratch_round((uint64_t)slots * 4) * 2 + qw_scratch_round((uint64_t)(slots * width) * 4);
}

static qw_attn_partial take_partial(qw_scratch *scratch, int64_t slots, int64_t width)
{
    qw_attn_partial p;
    p.max = qw_scratch_take(scratch, (uint64_t)slots * 4);
    p.sum = qw_scratch_take(scratch, (uint64_t)slots * 4);
    p.acc = qw_scratch_take(scratch, (uint64_t)(slots * width) * 4);
    return p;
}

static qw_attn_partial partial_at(qw_attn_partial p, int64_t slot, int64_t width)
{
    return (qw_attn_partial){p.max + slot, p.sum + slot, p.acc + slot * width};
}

static uint64_t panel_bytes(const attention_shape *s)
{
    return (uint64_t)QW_MAX(QW_ATTN_KEYS * s->width, QW_ATTN_PANEL * QW_KV_BLOCK) * sizeof(float);
}

/* Queries, limits, scores, panel, and the results of a block, a span and the whole. */
static uint64_t workspace_bytes(const attention_shape *s)
{
    return qw_scratch_round((uint64_t)(s->queries * s->width) * 4) +
           qw_scratch_round((uint64_t)s->queries * 4) +
           qw_scratch_round((uint64_t)(s->queries * QW_KV_BLOCK) * 4) + qw_scratch_round(panel_bytes(s)) +
           3 * partial_bytes(s->queries, s->width);
}

static int64_t most_slots(const qw_backend_config *config, const attention_shape *s)
{
    return (int64_t)ITEMS_PER_THREAD * config->threads * s->queries;
}

static uint64_t tile_bytes(const qw_backend_config *config, const attention_shape *s)
{
    return ((uint64_t)config->max_rows / (uint64_t)s->rows + (uint64_t)config->max_segments) *
           sizeof(row_tile);
}

uint64_t qw_cpu_attention_scratch_bytes(const qw_backend_config *config)
{
    const attention_shape s = shape_of(config->dims);
    const int64_t slots = most_slots(config, &s);
    return qw_scratch_round(tile_bytes(config, &s)) + (uint64_t)config->threads * workspace_bytes(&s) +
           partial_bytes(slots, s.width) + partial_bytes(WINDOW * slots, s.width);
}

/* ---- one tile -------------------------------------------------------------------------------------- */

static int64_t query_row(const attention_shape *s, int64_t query)
{
    return query / s->group;
}

static int64_t query_head(const attention_shape *s, int64_t kv_head, int64_t query)
{
    return kv_head * s->group + query % s->group;
}

static void load_queries(const attention_task *task, const row_tile *rows, int64_t kv_head, int64_t queries,
                         float *q, int32_t *limit)
{
    const attention_shape *s = &task->shape;
    for (int64_t i = 0; i < queries; i++) {
        const float *from = qw_view_row(&task->args->q, rows->row + query_row(s, i));
        memcpy(q + i * s->width, from + query_head(s, kv_head, i) * s->hd, (size_t)s->hd * sizeof(float));
        memset(q + i * s->width + s->hd, 0, (size_t)(s->width - s->hd) * sizeof(float));
        limit[i] = rows->position + (int32_t)query_row(s, i) + 1;
    }
}

/* The tile in a worker's memory; *whole is where the merged result goes. */
static qw_attn_tile open_tile(const attention_task *task, const row_tile *rows, int64_t kv_head,
                              int32_t worker, qw_attn_partial *whole)
{
    const attention_shape *s = &task->shape;
    const qw_kv_view *cache = &task->args->cache;
    const int64_t head_bytes = QW_KV_BLOCK * s->hd * qw_dtype_size(cache->dtype);
    qw_scratch memory = {task->workspace + (uint64_t)worker * task->workspace_bytes, task->workspace_bytes};
    float *q = qw_scratch_take(&memory, (uint64_t)(s->queries * s->width) * 4);
    int32_t *limit = qw_scratch_take(&memory, (uint64_t)s->queries * 4);
    qw_attn_tile tile = {
        .q = q,
        .limit = limit,
        .queries = rows->rows * s->group,
        .hd = s->hd,
        .width = s->width,
        .scale = task->kernels->attn_scale(s->hd),
        .cache = (const char *)cache->buffer->base + cache->layer_offset + kv_head * head_bytes,
        .value_offset = s->kv_heads * head_bytes,
        .key_scales = qw_kv_scale_offset(s->kv_heads, s->hd, 0, kv_head, 0) - kv_head * head_bytes,
        .value_scales = qw_kv_scale_offset(s->kv_heads, s->hd, 1, kv_head, 0) - kv_head * head_bytes,
        .block_stride = cache->block_stride,
        .table = task->args->batch->block_table + rows->table,
        .scores = qw_scratch_take(&memory, (uint64_t)(s->queries * QW_KV_BLOCK) * 4),
        .panel = qw_scratch_take(&memory, panel_bytes(s)),
    };
    tile.block = take_partial(&memory, s->queries, s->width);
    tile.span = take_partial(&memory, s->queries, s->width);
    *whole = take_partial(&memory, s->queries, s->width);
    load_queries(task, rows, kv_head, tile.queries, q, limit);
    return tile;
}

static void finish_tile(const attention_task *task, const row_tile *rows, int64_t kv_head, int64_t queries,
                        qw_attn_partial whole)
{
    const attention_shape *s = &task->shape;
    for (int64_t i = 0; i < queries; i++) {
        const int64_t row = rows->row + query_row(s, i), head = query_head(s, kv_head, i);
        task->kernels->attn_finish(whole.acc + i * s->width, whole.sum[i],
                                   qw_view_row(&task->args->qg, row) + (2 * head + 1) * s->hd,
                                   qw_view_row(&task->args->o, row) + head * s->hd, s->hd);
    }
}

/* ---- items ------------------------------------------------------------------------------------------ */

static void whole_tile(void *argument, int64_t item, int32_t worker)
{
    const attention_task *task = argument;
    const row_tile *rows = &task->tile[item / task->shape.kv_heads];
    const int64_t kv_head = item % task->shape.kv_heads;
    qw_attn_partial whole;
    qw_attn_tile tile = open_tile(task, rows, kv_head, worker, &whole);
    const qw_attn_partial later = tile.span;
    for (int64_t span = 0; span < rows->spans; span++) {
        tile.span = span == 0 ? whole : later;
        task->kernels->attn_span[task->args->cache.dtype](&tile, span);
        if (span > 0)
            task->kernels->attn_merge(&tile, whole, later, span);
    }
    finish_tile(task, rows, kv_head, tile.queries, whole);
}

/* The first slot of a tile and KV head. */
static int64_t slot_of(const attention_task *task, const row_tile *rows, int64_t kv_head)
{
    return rows->before * task->shape.heads + kv_head * rows->rows * task->shape.group;
}

static void one_span(void *argument, int64_t item, int32_t worker)
{
    const attention_task *task = argument;
    const int64_t kv_head = item % task->shape.kv_heads, pair = item / task->shape.kv_heads;
    const row_tile *rows = &task->tile[pair % task->tiles];
    const int64_t at = pair / task->tiles, span = task->first_span + at;
    if (span >= rows->spans)
        return;
    qw_attn_partial unused;
    qw_attn_tile tile = open_tile(task, rows, kv_head, worker, &unused);
    tile.span = partial_at(task->partial, at * task->slots + slot_of(task, rows, kv_head), tile.width);
    task->kernels->attn_span[task->args->cache.dtype](&tile, span);
}

static void merge_spans(void *argument, int64_t item, int32_t worker)
{
    const attention_task *task = argument;
    const row_tile *rows = &task->tile[item / task->shape.kv_heads];
    const int64_t kv_head = item % task->shape.kv_heads, slot = slot_of(task, rows, kv_head);
    const int64_t end = QW_MIN(task->first_span + task->window, rows->spans);
    qw_attn_partial unused;
    const qw_attn_tile tile = open_tile(task, rows, kv_head, worker, &unused);
    const qw_attn_partial whole = partial_at(task->total, slot, tile.width);
    for (int64_t span = task->first_span; span < end; span++)
        task->kernels->attn_merge(
            &tile, whole,
            partial_at(task->partial, (span - task->first_span) * task->slots + slot, tile.width), span);
    if (task->first_span < rows->spans && end == rows->spans)
        finish_tile(task, rows, kv_head, tile.queries, whole);
}

/* ---- the op ----------------------------------------------------------------------------------------- */

/* Cuts the segments into tiles; returns the spans of the longest context. */
static int32_t cut_tiles(attention_task *task, const qw_batch *batch)
{
    const int32_t step = (int32_t)task->shape.rows;
    int32_t most = 0, before = 0;
    for (int32_t i = 0; i < batch->segments; i++) {
        const qw_segment *segment = &batch->segment[i];
        for (int32_t row = 0; row < segment->row_count; row += step) {
            row_tile *tile = &task->tile[task->tiles++];
            tile->row = segment->row_begin + row;
            tile->rows = QW_MIN(step, segment->row_count - row);
            tile->position = segment->position + row;
            tile->table = segment->table;
            tile->before = before;
            tile->spans = (tile->position + tile->rows - 1) / (QW_ATTN_SPAN * QW_KV_BLOCK) + 1;
            before += tile->rows;
            most = QW_MAX(most, tile->spans);
        }
    }
    task->slots = before * task->shape.heads;
    return most;
}

static void run_split(qw_pool *pool, attention_task *task, int64_t spans, int64_t slots)
{
    const int64_t pairs = task->tiles * task->shape.kv_heads;
    const int64_t most = slots / task->slots, windows = (spans + most - 1) / most;
    task->window = (spans + windows - 1) / windows;
    for (task->first_span = 0; task->first_span < spans; task->first_span += task->window) {
        qw_pool_run(pool, one_span, task, pairs * QW_MIN(task->window, spans - task->first_span));
        qw_pool_run(pool, merge_spans, task, pairs);
    }
}

qwen36_status qw_cpu_attention(qw_backend *backend, const qw_attention_args *args)
{
    qw_cpu *cpu = qw_cpu_of(backend);
    qw_scratch scratch = qw_scratch_begin(cpu);
    attention_task task = {.args = args, .kernels = cpu->kernels, .shape = shape_of(cpu->dims)};
    const attention_shape *s = &task.shape;
    const int64_t threads = cpu->config.threads, slots = most_slots(&cpu->config, s);
    task.workspace_bytes = workspace_bytes(s);
    task.tile = qw_scratch_take(&scratch, tile_bytes(&cpu->config, s));
    task.workspace = qw_scratch_take(&scratch, (uint64_t)threads * task.workspace_bytes);
    task.total = take_partial(&scratch, slots, s->width);
    task.partial = take_partial(&scratch, WINDOW * slots, s->width);
    if (task.partial.acc == NULL)
        return QWEN36_ERROR_INTERNAL;
    const int64_t spans = cut_tiles(&task, args->batch);
    if (spans > 1 && threads > 1 && task.tiles * s->kv_heads < ITEMS_PER_THREAD * threads)
        run_split(cpu->pool, &task, spans, WINDOW * slots);
    else
        qw_pool_run(cpu->pool, whole_tile, &task, task.tiles * s->kv_heads);
    return QWEN36_OK;
}
