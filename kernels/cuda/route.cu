/* route: the k largest router logits of each row, and their softmax among themselves (which is what remains
 * of the softmax over all once it is renormalised). A block per row; k times the largest that was not yet
 * taken. */
#include "kernels/cuda/common.h"
#include "kernels/cuda/cuda.h"

enum { ROUTE_THREADS = 128, ROUTE_WARPS = ROUTE_THREADS / QW_WARP };

struct candidate {
    float value;
    int32_t id; /* -1: none */
};

/* The larger one; of equals, and where a NaN stands, the lower id. */
static QW_DEVICE candidate better(candidate a, candidate b)
{
    if (b.id < 0)
        return a;
    if (a.id < 0 || b.value > a.value)
        return b;
    return a.value > b.value || a.id < b.id ? a : b;
}

static QW_DEVICE candidate best_of_warp(candidate mine)
{
    for (int mask = QW_WARP / 2; mask > 0; mask /= 2) {
        const float value = qw_shuffle_xor(QW_ALL_LANES, mine.value, mask);
        const int32_t id = qw_shuffle_xor(QW_ALL_LANES, mine.id, mask);
        mine = better(mine, candidate{value, id});
    }
    return mine;
}

struct route_args {
    const float *logits;
    int32_t *ids;
    float *weights;
    int64_t logits_stride, ids_stride, weights_stride;
    int32_t experts, k;
};

/* Shared: logits [E], taken [E]; per warp its best. */
static QW_KERNEL route_rows(route_args a)
{
    qw_shared_arena arena;
    const qw_shared<float> logits = arena.take<float>(a.experts), chosen = arena.take<float>(QW_MAX_TOP_K);
    const qw_shared<int32_t> taken = arena.take<int32_t>(a.experts);
    QW_SHARED(float, best_value, ROUTE_WARPS);
    QW_SHARED(int32_t, best_id, ROUTE_WARPS);
    for (int e = qw_thread(); e < a.experts; e += ROUTE_THREADS) {
        logits[e] = a.logits[blockIdx.x * a.logits_stride + e];
        taken[e] = 0;
    }
    for (int j = 0; j < a.k; j++) {
        candidate mine = {0, -1};
        for (int e = qw_thread(); e < a.experts; e += ROUTE_THREADS) /* a thread's own elements */
            if (taken[e] == 0)
                mine = better(mine, candidate{logits[e], e});
        mine = best_of_warp(mine);
        if (qw_lane() == 0) {
            best_value[qw_warp()] = mine.value;
            best_id[qw_warp()] = mine.id;
        }
        qw_block_sync();
        for (int w = 0; w < ROUTE_WARPS; w++)
            mine = better(mine, candidate{best_value[w], best_id[w]});
        if (mine.id % ROUTE_THREADS == qw_thread())
            taken[mine.id] = 1;
        if (qw_thread() == 0) {
            chosen[j] = mine.value;
            a.ids[blockIdx.x * a.ids_stride + j] = mine.id;
        }
        qw_block_sync();
    }
    for (int j = qw_thread(); j < a.k; j += ROUTE_THREADS) {
        float sum = 0;
        for (int i = 0; i < a.k; i++)
            sum += expf(static_cast<float>(chosen[i]) - static_cast<float>(chosen[0]));
        a.weights[blockIdx.x * a.weights_stride + j] =
            expf(static_cast<float>(chosen[j]) - static_cast<float>(chosen[0])) / sum;
    }
}

qwen36_status qw_cuda_route(qw_backend *backend, const qw_route_args *args)
{
    const int32_t experts = static_cast<int32_t>(args->logits.shape[1]);
    const route_args a = {qw_data<const float>(args->logits),
                          qw_data<int32_t>(args->ids),
                          qw_data<float>(args->weights),
                          args->logits.stride[0],
                          args->ids.stride[0],
                          args->weights.stride[0],
                          experts,
                          static_cast<int32_t>(args->ids.shape[1])};
    const size_t shared = (static_cast<size_t>(experts) * 4 + 15) / 16 * 16 * 2 + QW_MAX_TOP_K * 4;
    return qw_launch(qw_cuda_of(backend)->stream, route_rows,
                     dim3(static_cast<unsigned>(args->logits.shape[0])), ROUTE_THREADS, shared, a);
}
