/* attn_prepare: norm and rotation of queries and keys, K and V into the cache. An item owns a row. */
#include "kernels/cpu/cpu.h"

#include <string.h>

typedef struct prepare_task {
    const qw_attn_prepare_args *args;
    const qw_cpu *cpu;
    float *scratch; /* per worker `stride` floats: cosine, sine, one head */
    int64_t stride;
} prepare_task;

/* One head's K (kind 0) or V (kind 1) of a row into the cache, where kv_index says. */
static void store_head(const prepare_task *task, const float *from, int32_t index, int64_t kind, int64_t head)
{
    const qw_kv_view *cache = &task->args->cache;
    const int64_t hd = task->cpu->dims->head_dim, nkv = task->cpu->dims->kv_heads;
    const int64_t token = index % QW_KV_BLOCK;
    const int64_t element = ((kind * nkv + head) * QW_KV_BLOCK + token) * hd;
    char *block =
        (char *)cache->buffer->base + cache->layer_offset + index / QW_KV_BLOCK * cache->block_stride;
    char *to = block + element * qw_dtype_size(cache->dtype);
    if (cache->dtype != QW_I8) {
        task->cpu->kernels->store_cache(from, to, cache->dtype, hd);
        return;
    }
    const float scale = task->cpu->kernels->store_cache_i8(from, to, hd);
    memcpy(block + qw_kv_scale_offset(nkv, hd, kind, head, token), &scale, sizeof scale);
}

static void prepare_keys(const prepare_task *task, qw_rope_head *head, int64_t row, float *key)
{
    const qw_attn_prepare_args *a = task->args;
    const qw_dims *dims = task->cpu->dims;
    const int32_t index = a->batch->kv_index[row];
    head->weight = qw_view_data(&a->k_norm);
    head->weight_dtype = a->k_norm.dtype;
    for (int64_t h = 0; h < dims->kv_heads; h++) {
        task->cpu->kernels->rope_head(head, qw_view_row(&a->k, row) + h * dims->head_dim, key);
        store_head(task, key, index, 0, h);
        store_head(task, qw_view_row(&a->v, row) + h * dims->head_dim, index, 1, h);
    }
}

static void prepare_row(void *argument, int64_t row, int32_t worker)
{
    const prepare_task *task = argument;
    const qw_attn_prepare_args *a = task->args;
    const qw_dims *dims = task->cpu->dims;
    const int64_t half = dims->rotary_dim / 2, hd = dims->head_dim, rows = a->batch->rows;
    float *cosine = task->scratch + worker * task->stride, *sine = cosine + half;
    const int32_t *p = a->batch->positions + row;
    const qw_rope_row rope = {{p[0], p[rows], p[2 * rows]}, a->inv_freq, a->axis, a->rope_scale, half};
    task->cpu->kernels->rope_table(&rope, cosine, sine);
    qw_rope_head head = {qw_view_data(&a->q_norm), a->q_norm.dtype, a->eps, cosine, sine, half, hd};
    for (int64_t h = 0; h < dims->heads; h++)
        task->cpu->kernels->rope_head(&head, qw_view_row(&a->qg, row) + 2 * h * hd,
                                      qw_view_row(&a->q, row) + h * hd);
    prepare_keys(task, &head, row, sine + half);
}

static int64_t worker_floats(const qw_dims *dims)
{
    return (int64_t)qw_scratch_round((uint64_t)(dims->rotary_dim + dims->head_dim) * 4) / 4;
}

uint64_t qw_cpu_attn_prepare_scratch_bytes(const qw_backend_config *config)
{
    return (uint64_t)config->threads * (uint64_t)worker_floats(config->dims) * 4;
}

qwen36_status qw_cpu_attn_prepare(qw_backend *backend, const qw_attn_prepare_args *args)
{
    qw_cpu *cpu = qw_cpu_of(backend);
    qw_scratch scratch = qw_scratch_begin(cpu);
    prepare_task task = {args, cpu, NULL, worker_floats(cpu->dims)};
    task.scratch = qw_scratch_take(&scratch, qw_cpu_attn_prepare_scratch_bytes(&cpu->config));
    if (task.scratch == NULL)
        return QWEN36_ERROR_INTERNAL;
    qw_pool_run(cpu->pool, prepare_row, &task, args->batch->rows);
    return QWEN36_OK;
}
