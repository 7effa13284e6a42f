/* attention: the row of the plan (step_begin chose it for the batch), and the merge of its partitions. When a
 * launch of a matrix row is refused, the general one serves in the same call: it takes the same tiles in more
 * blocks. */
#include "kernels/cuda/attention_general.h"
#include "kernels/cuda/attention_matrix.h"

enum { MERGE_THREADS = 128, PARTIAL_ROWS = 512, FIXED_PARTIAL_ROWS = 2048 };

/* o = (sum_p e^(m_p - m) acc_p) / (sum_p e^(m_p - m) l_p) * sigmoid(gate), p ascending: a block per row and
 * head. A partition's l is 0 or at least 1, or NaN, which must stay one. */
static QW_KERNEL attention_merge(qw_attention a)
{
    const int row = a.partial_begin + static_cast<int>(blockIdx.x), head = static_cast<int>(blockIdx.y);
    const int hd = a.head_dim;
    const float *partial = a.partial + (int64_t{blockIdx.x} * a.heads + head) * a.partitions * (hd + 2);
    float largest = -QW_INFINITY, sum = 0;
    for (int p = 0; p < a.partitions; p++)
        if (partial[p * (hd + 2) + 1] != 0)
            largest = fmaxf(largest, partial[p * (hd + 2)]);
    for (int p = 0; p < a.partitions; p++)
        if (partial[p * (hd + 2) + 1] != 0)
            sum += expf(partial[p * (hd + 2)] - largest) * partial[p * (hd + 2) + 1];
    for (int d = qw_thread(); d < hd; d += MERGE_THREADS) {
        float value = 0;
        for (int p = 0; p < a.partitions; p++)
            if (partial[p * (hd + 2) + 1] != 0)
                value += expf(partial[p * (hd + 2)] - largest) * partial[p * (hd + 2) + 2 + d];
        const float gate = a.qg[row * a.qg_stride + head * 2 * hd + hd + d];
        a.o[row * a.o_stride + head * hd + d] = value / sum * qw_sigmoid(gate);
    }
}

/* Partial results (of a row, all heads) that there is room for. Invariant: at least those of one tile. */
static int64_t partial_rows(const qw_backend_config *config)
{
    if (config->batch_invariant == 0)
        return PARTIAL_ROWS;
    const int32_t group = config->dims->heads / QW_MAX(1, config->dims->kv_heads);
    return QW_MAX(int32_t{FIXED_PARTIAL_ROWS},
                  QW_ATTENTION_FIXED_PARTITIONS *
                      qw_plan_attention_rows(QW_ATTENTION_MATRIX_WIDE, QW_MAX(1, group)));
}

uint64_t qw_cuda_attention_scratch_bytes(const qw_backend_config *config)
{
    return static_cast<uint64_t>(partial_rows(config)) * static_cast<uint64_t>(config->dims->heads) *
           static_cast<uint64_t>(qw_plan_attention_partial_bytes(config->dims->head_dim));
}

static qw_attention describe(const qw_cuda *cuda, const qw_attention_args *args)
{
    const qw_dims *d = &cuda->dims;
    qw_attention a = {};
    a.q = qw_data<const float>(args->q);
    a.qg = qw_data<const float>(args->qg);
    a.o = qw_data<float>(args->o);
    a.q_stride = args->q.stride[0];
    a.qg_stride = args->qg.stride[0];
    a.o_stride = args->o.stride[0];
    a.cache = qw_cache_on_device(args->cache, *d);
    a.heads = d->heads;
    a.kv_heads = d->kv_heads;
    a.head_dim = d->head_dim;
    a.group = d->heads / d->kv_heads;
    a.block_heads = QW_MIN(a.group, QW_ATTENTION_PAIRS);
    a.partition = cuda->tables.attention.partition;
    a.scale = 1.0F / sqrtf(static_cast<float>(d->head_dim));
    a.segment = qw_on_device(args->batch, args->batch->segment);
    a.table = qw_on_device(args->batch, args->batch->block_table);
    return a;
}

/* ---- spans: the tiles of one launch ------------------------------------------------------------------ */

struct span {
    int32_t begin, tiles;
    int32_t row_begin, rows;
    int32_t partitions; /* that the longest context of them has */
};

/* From tile `begin` on, as many as there is room for partial results of. A plan that is not invariant has cut
 * the context so that all have. */
static span next_span(const qw_cuda *cuda, const qw_batch *batch, int32_t begin)
{
    const qw_tile *tile = cuda->staging; /* the host's copy stays as it is until the next step */
    const int64_t room = partial_rows(&cuda->config);
    span s = {begin, 0, tile[begin].row_begin, 0, 1};
    for (int32_t i = begin; i < cuda->tables.attention_tiles; i++) {
        const qw_segment *segment = &batch->segment[tile[i].segment];
        const int32_t tokens = segment->position + tile[i].row_begin - segment->row_begin + tile[i].row_count;
        const int32_t own = (tokens + QW_KV_BLOCK * cuda->tables.attention.partition - 1) /
                            (QW_KV_BLOCK * cuda->tables.attention.partition);
        const int32_t partitions = QW_MAX(s.partitions, own), rows = s.rows + tile[i].row_count;
        if (s.tiles > 0 && partitions > 1 && int64_t{rows} * partitions > room)
            break;
        s.tiles++;
        s.rows = rows;
        s.partitions = partitions;
    }
    return s;
}

/* ---- launches ---------------------------------------------------------------------------------------- */

static qwen36_status launch_general(const qw_cuda *cuda, const qw_attention &a, dim3 grid, int32_t kv_dtype)
{
    const size_t shared = static_cast<size_t>(qw_plan_attention_shared(QW_ATTENTION_GENERAL, a.head_dim));
    switch (kv_dtype) {
    case QW_BF16:
        return qw_launch(cuda->stream, attention_general<qw_bf16>, grid, QW_GENERAL_THREADS, shared, a);
    case QW_I8:
        return qw_launch(cuda->stream, attention_general<int8_t>, grid, QW_GENERAL_THREADS, shared, a);
    default:
        return qw_launch(cuda->stream, attention_general<float>, grid, QW_GENERAL_THREADS, shared, a);
    }
}

#if QW_WARP_WIDTH == 32

template <typename C>
static qwen36_status launch_matrix(const qw_cuda *cuda, const qw_attention &a, dim3 grid, int32_t row)
{
    const size_t shared = static_cast<size_t>(qw_plan_attention_shared(row, a.head_dim));
    if (row == QW_ATTENTION_MATRIX_WIDE)
        return qw_launch(cuda->stream, attention_matrix<C, QW_ATTENTION_WIDE_PAIRS / 16>, grid,
                         QW_MATRIX_ATTENTION_THREADS, shared, a);
    return qw_launch(cuda->stream, attention_matrix<C, QW_ATTENTION_PAIRS / 16>, grid,
                     QW_MATRIX_ATTENTION_THREADS, shared, a);
}

#else

template <typename C> static qwen36_status launch_matrix(const qw_cuda *, const qw_attention &, dim3, int32_t)
{
    return QWEN36_ERROR_DEVICE;
}

#endif

/* A row of the table on a span whose tiles were cut for the plan's row. */
static qwen36_status launch_row(const qw_cuda *cuda, qw_attention a, const span &s, int32_t row,
                                int32_t kv_dtype)
{
    const int32_t parts = (a.group + a.block_heads - 1) / a.block_heads;
    a.block_rows = qw_plan_attention_rows(row, a.group);
    a.tile_parts = (cuda->tables.attention.rows + a.block_rows - 1) / a.block_rows;
    const dim3 grid(static_cast<unsigned>(s.tiles * a.tile_parts), static_cast<unsigned>(a.kv_heads * parts),
                    static_cast<unsigned>(s.partitions));
    if (row == QW_ATTENTION_GENERAL)
        return launch_general(cuda, a, grid, kv_dtype);
    return kv_dtype == QW_I8 ? launch_matrix<int8_t>(cuda, a, grid, row)
                             : launch_matrix<qw_bf16>(cuda, a, grid, row);
}

static qwen36_status issue_span(qw_cuda *cuda, qw_attention a, const span &s, int32_t kv_dtype)
{
    const int32_t row = cuda->tables.attention.row;
    const uint32_t bit = qw_plan_bit(QW_PLAN_ATTENTION, row);
    if (s.partitions > 1 && int64_t{s.rows} * s.partitions > partial_rows(&cuda->config))
        return QWEN36_ERROR_INTERNAL;
    a.tile = cuda->tables.attention_tile + s.begin;
    a.partial = s.partitions > 1 ? reinterpret_cast<float *>(cuda->scratch) : nullptr;
    a.partial_begin = s.row_begin;
    a.partitions = s.partitions;
    qwen36_status status = QWEN36_ERROR_DEVICE;
    if (row != QW_ATTENTION_GENERAL && (cuda->profile.disabled & bit) == 0) {
        status = launch_row(cuda, a, s, row, kv_dtype);
        if (status == QWEN36_ERROR_DEVICE)
            qw_cuda_refused(cuda, bit);
    }
    if (status == QWEN36_ERROR_DEVICE)
        status = launch_row(cuda, a, s, QW_ATTENTION_GENERAL, kv_dtype);
    if (status != QWEN36_OK || s.partitions == 1)
        return status;
    return qw_launch(cuda->stream, attention_merge,
                     dim3(static_cast<unsigned>(s.rows), static_cast<unsigned>(a.heads)), MERGE_THREADS, 0,
                     a);
}

qwen36_status qw_cuda_attention(qw_backend *backend, const qw_attention_args *args)
{
    qw_cuda *cuda = qw_cuda_of(backend);
    const qw_attention a = describe(cuda, args);
    qwen36_status status = QWEN36_OK;
    for (int32_t begin = 0; begin < cuda->tables.attention_tiles && status == QWEN36_OK;) {
        const span s = next_span(cuda, args->batch, begin);
        status = issue_span(cuda, a, s, args->cache.dtype);
        begin += s.tiles;
    }
    return status;
}
