/* attention: the row of the plan (step_begin chose it for the batch), and the merge of its partitions. */
#include "kernels/cuda/attention_general.h"
#include "kernels/cuda/attention_matrix.h"

enum { MERGE_THREADS = 128, PARTIAL_ROWS = 512 };

/* o = (sum_p e^(m_p - m) acc_p) / (sum_p e^(m_p - m) l_p) * sigmoid(gate), p ascending: a block per row and
 * head. */
static QW_KERNEL attention_merge(qw_attention a)
{
    const int row = static_cast<int>(blockIdx.x), head = static_cast<int>(blockIdx.y), hd = a.head_dim;
    const float *partial = a.partial + (int64_t{row} * a.heads + head) * a.partitions * (hd + 2);
    float largest = -QW_INFINITY, sum = 0;
    for (int p = 0; p < a.partitions; p++)
        if (partial[p * (hd + 2) + 1] > 0)
            largest = fmaxf(largest, partial[p * (hd + 2)]);
    for (int p = 0; p < a.partitions; p++)
        if (partial[p * (hd + 2) + 1] > 0)
            sum += expf(partial[p * (hd + 2)] - largest) * partial[p * (hd + 2) + 1];
    for (int d = qw_thread(); d < hd; d += MERGE_THREADS) {
        float value = 0;
        for (int p = 0; p < a.partitions; p++)
            if (partial[p * (hd + 2) + 1] > 0)
                value += expf(partial[p * (hd + 2)] - largest) * partial[p * (hd + 2) + 2 + d];
        const float gate = a.qg[row * a.qg_stride + head * 2 * hd + hd + d];
        a.o[row * a.o_stride + head * hd + d] = value / sum * qw_sigmoid(gate);
    }
}

uint64_t qw_cuda_attention_scratch_bytes(const qw_backend_config *config)
{
    return static_cast<uint64_t>(PARTIAL_ROWS) * static_cast<uint64_t>(config->dims->heads) *
           static_cast<uint64_t>(qw_plan_attention_partial_bytes(config->dims->head_dim));
}

static qw_attention describe(const qw_cuda *cuda, const qw_attention_args *args)
{
    const qw_dims *d = &cuda->dims;
    const qw_attention_plan *plan = &cuda->tables.attention;
    qw_attention a = {};
    a.q = qw_data<const float>(args->q);
    a.qg = qw_data<const float>(args->qg);
    a.o = qw_data<float>(args->o);
    a.partial = plan->partitions > 1 ? reinterpret_cast<float *>(cuda->scratch) : nullptr;
    a.q_stride = args->q.stride[0];
    a.qg_stride = args->qg.stride[0];
    a.o_stride = args->o.stride[0];
    a.cache = static_cast<const char *>(args->cache.buffer->base) + args->cache.layer_offset;
    a.block_stride = args->cache.block_stride;
    a.heads = d->heads;
    a.kv_heads = d->kv_heads;
    a.head_dim = d->head_dim;
    a.group = d->heads / d->kv_heads;
    a.block_heads = QW_MIN(a.group, QW_ATTENTION_PAIRS);
    a.partition = plan->partition;
    a.partitions = plan->partitions;
    a.scale = 1.0F / sqrtf(static_cast<float>(d->head_dim));
    a.segment = qw_on_device(args->batch, args->batch->segment);
    a.table = qw_on_device(args->batch, args->batch->block_table);
    a.tile = cuda->tables.attention_tile;
    return a;
}

static qwen36_status issue_general(const qw_cuda *cuda, const qw_attention &a, dim3 grid, int32_t kv_dtype)
{
    const size_t shared = static_cast<size_t>(qw_plan_attention_shared(QW_ATTENTION_GENERAL, a.head_dim));
    if (kv_dtype == QW_BF16)
        return qw_launch(cuda->stream, attention_general<qw_bf16>, grid, QW_GENERAL_THREADS, shared, a);
    return qw_launch(cuda->stream, attention_general<float>, grid, QW_GENERAL_THREADS, shared, a);
}

static qwen36_status issue_matrix(const qw_cuda *cuda, const qw_attention &a, dim3 grid, int32_t row)
{
#if QW_WARP_WIDTH == 32
    const size_t shared = static_cast<size_t>(qw_plan_attention_shared(row, a.head_dim));
    if (row == QW_ATTENTION_MATRIX_WIDE)
        return qw_launch(cuda->stream, attention_matrix<QW_ATTENTION_WIDE_PAIRS / 16>, grid,
                         QW_MATRIX_ATTENTION_THREADS, shared, a);
    return qw_launch(cuda->stream, attention_matrix<QW_ATTENTION_PAIRS / 16>, grid,
                     QW_MATRIX_ATTENTION_THREADS, shared, a);
#else
    (void)cuda, (void)a, (void)grid, (void)row;
    return QWEN36_ERROR_DEVICE;
#endif
}

qwen36_status qw_cuda_attention(qw_backend *backend, const qw_attention_args *args)
{
    const qw_cuda *cuda = qw_cuda_of(backend);
    const int32_t row = cuda->tables.attention.row;
    const qw_attention a = describe(cuda, args);
    const int32_t parts = (a.group + a.block_heads - 1) / a.block_heads;
    const dim3 grid(static_cast<unsigned>(cuda->tables.attention_tiles),
                    static_cast<unsigned>(a.kv_heads * parts), static_cast<unsigned>(a.partitions));
    const qwen36_status status = row == QW_ATTENTION_GENERAL ? issue_general(cuda, a, grid, args->cache.dtype)
                                                             : issue_matrix(cuda, a, grid, row);
    if (status != QWEN36_OK || a.partitions == 1)
        return status;
    return qw_launch(cuda->stream, attention_merge,
                     dim3(static_cast<unsigned>(args->batch->rows), static_cast<unsigned>(a.heads)),
                     MERGE_THREADS, 0, a);
}
