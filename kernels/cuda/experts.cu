/* The routed experts. A pair is a (row, choice) of the router. Two ways (lib/plan decides):
 *
 *   direct         for few rows, nothing is sorted: hidden[pair] = silu(gate x) * (up x) by the pair's
 * expert, then y[row] = sum over choices, in the router's order, of weight * (down hidden[pair]) tiled,
 * matrix  sort_pairs counts, scans and places the pairs by expert; products over each expert's slots
 *                  (product.h, grouped) fill hidden and out; combine gathers y[row] = sum of weight *
 * out[slot]
 *
 * The host never waits: it launches as many blocks of rows as there can be, and those beyond the list return.
 * In which order the pairs of one expert are placed is not fixed, and no value depends on it. */
#include "kernels/cuda/product.h"

enum { SORT_THREADS = 256 };

/* ---- tables of weights ------------------------------------------------------------------------------ */

qwen36_status qw_cuda_experts_open(qw_cuda *cuda)
{
    qw_expert_tables *t = &cuda->experts;
    const uint64_t one = static_cast<uint64_t>(cuda->dims.experts) * sizeof(qw_expert_pointers);
    if (cuda->dims.experts == 0)
        return QWEN36_OK;
    t->most = QW_MAX(1, cuda->dims.layers);
    void *host, *device;
    qwen36_status status = qw_runtime_allocate(QW_SPACE_HOST, one * static_cast<uint64_t>(t->most), &host);
    if (status != QWEN36_OK)
        return status;
    t->host = static_cast<qw_expert_pointers *>(host);
    status = qw_runtime_allocate(QW_SPACE_DEVICE, one * static_cast<uint64_t>(t->most), &device);
    t->device = static_cast<qw_expert_pointers *>(device);
    return status;
}

void qw_cuda_experts_close(qw_cuda *cuda)
{
    qw_runtime_free(QW_SPACE_HOST, cuda->experts.host);
    qw_runtime_free(QW_SPACE_DEVICE, cuda->experts.device);
}

static qw_expert_pointers pointers_of(const qw_expert_view *e)
{
    return {qw_data<const void>(e->gate), qw_data<const void>(e->up), qw_data<const void>(e->down)};
}

static bool matches(const qw_expert_pointers *known, const qw_expert_view *expert, int32_t experts)
{
    for (int32_t e = 0; e < experts; e++) {
        const qw_expert_pointers p = pointers_of(&expert[e]);
        if (known[e].gate != p.gate || known[e].up != p.up || known[e].down != p.down)
            return false;
    }
    return true;
}

/* The device's table of these views. */
static qwen36_status find_table(qw_cuda *cuda, const qw_experts_args *args, const qw_expert_pointers **out)
{
    qw_expert_tables *t = &cuda->experts;
    const int32_t experts = args->experts;
    for (int32_t i = 0; i < t->used; i++) {
        *out = t->device + int64_t{i} * experts;
        if (matches(t->host + int64_t{i} * experts, args->expert, experts))
            return QWEN36_OK;
    }
    int32_t at = t->used;
    if (at == t->most) { /* an upload of the one that goes may be under way */
        const qwen36_status status = qw_runtime_wait(cuda->stream);
        if (status != QWEN36_OK)
            return status;
        at = t->next;
        t->next = (t->next + 1) % t->most;
    }
    qw_expert_pointers *host = t->host + int64_t{at} * experts, *device = t->device + int64_t{at} * experts;
    for (int32_t e = 0; e < experts; e++)
        host[e] = pointers_of(&args->expert[e]);
    t->used = QW_MAX(t->used, at + 1);
    *out = device;
    return qw_runtime_upload(cuda->stream, device, host, static_cast<uint64_t>(experts) * sizeof *host);
}

/* All experts have the same types and strides, and whether all begin at multiples of 16 bytes. */
static bool uniform(const qw_experts_args *args, bool *aligned)
{
    const qw_expert_view *first = args->expert;
    const int32_t dtype = first->gate.dtype, size = qw_dtype_size(dtype);
    uintptr_t bits = static_cast<uintptr_t>(first->gate.stride[0] * size | first->down.stride[0] * size);
    for (int32_t i = 0; i < args->experts; i++) {
        const qw_expert_view *e = &args->expert[i];
        if (e->gate.dtype != dtype || e->up.dtype != dtype || e->down.dtype != dtype ||
            e->gate.stride[0] != first->gate.stride[0] || e->up.stride[0] != first->gate.stride[0] ||
            e->down.stride[0] != first->down.stride[0])
            return false;
        const qw_expert_pointers p = pointers_of(e);
        bits |= reinterpret_cast<uintptr_t>(p.gate) | reinterpret_cast<uintptr_t>(p.up) |
                reinterpret_cast<uintptr_t>(p.down);
    }
    *aligned = bits % 16 == 0;
    return true;
}

/* ---- an op in progress ------------------------------------------------------------------------------ */

struct experts_job {
    const float *x, *weights;
    const int32_t *ids;
    float *y;
    int64_t x_stride, weights_stride, ids_stride, y_stride, gate_stride, down_stride, hidden_stride;
    int32_t rows, k, experts, hidden_width, width; /* hidden_width H, width Im */
    int32_t aligned;
    const qw_expert_pointers *expert;
    float *hidden;      /* [pairs][Im] */
    float *out;         /* [pairs][H] by slot */
    int32_t *slot_row;  /* [pairs] */
    int32_t *pair_slot; /* [pairs] */
    qw_row_tile *tile;  /* [most_tiles] */
    int32_t *tiles;     /* [1] */
};

static int64_t most_tiles(int64_t pairs, int64_t experts)
{
    return pairs / QW_TILE_ROWS + QW_MIN(pairs, experts);
}

static uint64_t carve(unsigned char *base, int64_t pairs, int64_t experts, int64_t hidden, int64_t width,
                      experts_job *j)
{
    qw_cuda_scratch scratch = {base, 0};
    j->hidden_stride = (width + 3) / 4 * 4;
    j->hidden = scratch.take<float>(pairs * j->hidden_stride);
    j->out = scratch.take<float>(pairs * hidden);
    j->slot_row = scratch.take<int32_t>(pairs);
    j->pair_slot = scratch.take<int32_t>(pairs);
    j->tile = scratch.take<qw_row_tile>(most_tiles(pairs, experts));
    j->tiles = scratch.take<int32_t>(1);
    return scratch.used;
}

uint64_t qw_cuda_experts_scratch_bytes(const qw_backend_config *config)
{
    const qw_dims *d = config->dims;
    experts_job unused = {};
    return carve(nullptr, int64_t{config->max_rows} * d->top_k, d->experts, d->hidden, d->expert_size,
                 &unused);
}

/* ---- direct ----------------------------------------------------------------------------------------- */

/* A warp per (pair, column). */
template <typename W> static QW_KERNEL direct_hidden(experts_job j)
{
    const int column = static_cast<int>(blockIdx.x) * (qw_threads() / QW_WARP) + qw_warp();
    const int row = static_cast<int>(blockIdx.y) / j.k, choice = static_cast<int>(blockIdx.y) % j.k;
    if (column >= j.width)
        return;
    const qw_expert_pointers e = j.expert[j.ids[row * j.ids_stride + choice]];
    const float *const x[1] = {j.x + row * j.x_stride};
    float gate[1] = {}, up[1] = {};
    qw_dot_rows<W, 1>(gate, static_cast<const W *>(e.gate) + column * j.gate_stride, x, j.hidden_width,
                      j.aligned != 0);
    qw_dot_rows<W, 1>(up, static_cast<const W *>(e.up) + column * j.gate_stride, x, j.hidden_width,
                      j.aligned != 0);
    const float g = qw_warp_sum(gate[0]), u = qw_warp_sum(up[0]);
    if (qw_lane() == 0)
        j.hidden[blockIdx.y * j.hidden_stride + column] = qw_silu(g) * u;
}

/* A warp per (row, column): choices in the router's order. */
template <typename W> static QW_KERNEL direct_down(experts_job j)
{
    const int column = static_cast<int>(blockIdx.x) * (qw_threads() / QW_WARP) + qw_warp();
    const int row = static_cast<int>(blockIdx.y);
    if (column >= j.hidden_width)
        return;
    float total = 0;
    for (int choice = 0; choice < j.k; choice++) {
        const qw_expert_pointers e = j.expert[j.ids[row * j.ids_stride + choice]];
        const float *const h[1] = {j.hidden + (row * j.k + choice) * j.hidden_stride};
        float sum[1] = {};
        qw_dot_rows<W, 1>(sum, static_cast<const W *>(e.down) + column * j.down_stride, h, j.width,
                          j.aligned != 0);
        total += j.weights[row * j.weights_stride + choice] * qw_warp_sum(sum[0]);
    }
    if (qw_lane() == 0)
        j.y[row * j.y_stride + column] = total;
}

template <typename W> static qwen36_status run_direct(qw_stream stream, const experts_job &j)
{
    const dim3 first(qw_blocks(j.width, QW_FEW_THREADS / QW_WARP), static_cast<unsigned>(j.rows * j.k));
    const dim3 second(qw_blocks(j.hidden_width, QW_FEW_THREADS / QW_WARP), static_cast<unsigned>(j.rows));
    const qwen36_status status = qw_launch(stream, direct_hidden<W>, first, QW_FEW_THREADS, 0, j);
    return status != QWEN36_OK ? status : qw_launch(stream, direct_down<W>, second, QW_FEW_THREADS, 0, j);
}

/* ---- sorted ----------------------------------------------------------------------------------------- */

/* The inclusive sum over the lanes up to this one. */
static QW_DEVICE int scan_warp(int value)
{
    for (int by = 1; by < QW_WARP; by *= 2) {
        const int other = qw_shuffle_up(QW_ALL_LANES, value, by);
        value += qw_lane() >= by ? other : 0;
    }
    return value;
}

/* By one warp: count[e] becomes the first slot of expert e, and its tiles of up to 64 slots go on the list.
 */
static QW_DEVICE void scan_experts(const experts_job &j, qw_shared<int32_t> count)
{
    int slots = 0, tiles = 0;
    for (int base = 0; base < j.experts; base += QW_WARP) {
        const int e = base + qw_lane();
        const int mine = e < j.experts ? static_cast<int>(count[e]) : 0,
                  my_tiles = (mine + QW_TILE_ROWS - 1) / QW_TILE_ROWS;
        const int slots_end = slots + scan_warp(mine), tiles_end = tiles + scan_warp(my_tiles);
        if (e < j.experts)
            count[e] = slots_end - mine;
        for (int i = 0; i < my_tiles; i++) {
            const int left = mine - i * QW_TILE_ROWS;
            j.tile[tiles_end - my_tiles + i] = {e, slots_end - left,
                                                left < QW_TILE_ROWS ? left : int{QW_TILE_ROWS}};
        }
        slots = qw_shuffle(QW_ALL_LANES, slots_end, QW_WARP - 1);
        tiles = qw_shuffle(QW_ALL_LANES, tiles_end, QW_WARP - 1);
    }
    if (qw_lane() == 0)
        *j.tiles = tiles;
}

/* One block. Shared: a counter per expert, then the next free slot of each. */
static QW_KERNEL sort_pairs(experts_job j)
{
    qw_shared_arena arena;
    const qw_shared<int32_t> count = arena.take<int32_t>(j.experts);
    const int pairs = j.rows * j.k;
    for (int e = qw_thread(); e < j.experts; e += SORT_THREADS)
        count[e] = 0;
    qw_block_sync();
    for (int p = qw_thread(); p < pairs; p += SORT_THREADS)
        count.atomic_add(j.ids[p / j.k * j.ids_stride + p % j.k], 1);
    qw_block_sync();
    if (qw_warp() == 0)
        scan_experts(j, count);
    qw_block_sync();
    for (int p = qw_thread(); p < pairs; p += SORT_THREADS) {
        const int slot = count.atomic_add(j.ids[p / j.k * j.ids_stride + p % j.k], 1);
        j.slot_row[slot] = p / j.k;
        j.pair_slot[p] = slot;
    }
}

static QW_KERNEL combine(experts_job j)
{
    const int row = static_cast<int>(blockIdx.y),
              column = static_cast<int>(blockIdx.x) * SORT_THREADS + qw_thread();
    if (column >= j.hidden_width)
        return;
    float sum = 0;
    for (int c = 0; c < j.k; c++)
        sum += j.weights[row * j.weights_stride + c] *
               j.out[int64_t{j.pair_slot[row * j.k + c]} * j.hidden_width + column];
    j.y[row * j.y_stride + column] = sum;
}

template <typename W, bool DUAL>
static qwen36_status run_product(qw_stream stream, int32_t row, const qw_product &p, const qw_groups &groups,
                                 unsigned tiles)
{
    qwen36_status status = QWEN36_ERROR_DEVICE;
    if (row == QW_EXPERTS_MATRIX)
        status = qw_launch_matrix<DUAL>(stream, p, groups, tiles, nullptr, nullptr);
    if (status == QWEN36_ERROR_DEVICE)
        status = qw_launch_tiles<W, DUAL>(stream, QW_PRODUCT_TILED, p, groups, tiles, nullptr, nullptr);
    return status;
}

template <typename W> static qwen36_status run_sorted(qw_stream stream, int32_t row, const experts_job &j)
{
    const int64_t pairs = int64_t{j.rows} * j.k;
    const unsigned tiles = static_cast<unsigned>(most_tiles(pairs, j.experts));
    qw_groups groups = {j.tile, j.tiles, j.expert, 0};
    qw_product p = {};
    p.x = j.x;
    p.y = j.hidden;
    p.x_row = j.slot_row;
    p.x_stride = j.x_stride;
    p.y_stride = j.hidden_stride;
    p.w_stride = j.gate_stride;
    p.depth = j.hidden_width;
    p.columns = j.width;
    qwen36_status status =
        qw_launch(stream, sort_pairs, dim3(1), SORT_THREADS, static_cast<size_t>(j.experts) * 4 + 16, j);
    if (status == QWEN36_OK)
        status = run_product<W, true>(stream, row, p, groups, tiles);
    groups.down = 1;
    p.x = j.hidden;
    p.y = j.out;
    p.x_row = nullptr;
    p.x_stride = j.hidden_stride;
    p.y_stride = j.hidden_width;
    p.w_stride = j.down_stride;
    p.depth = j.width;
    p.columns = j.hidden_width;
    if (status == QWEN36_OK)
        status = run_product<W, false>(stream, row, p, groups, tiles);
    const dim3 grid(qw_blocks(j.hidden_width, SORT_THREADS), static_cast<unsigned>(j.rows));
    return status != QWEN36_OK ? status : qw_launch(stream, combine, grid, SORT_THREADS, 0, j);
}

/* ---- the operation ---------------------------------------------------------------------------------- */

static qwen36_status describe(qw_cuda *cuda, const qw_experts_args *args, experts_job *j)
{
    const qw_view *gate = &args->expert[0].gate;
    bool aligned;
    if (args->experts != cuda->dims.experts || !uniform(args, &aligned))
        return QWEN36_ERROR_INTERNAL;
    j->x = qw_data<const float>(args->x);
    j->weights = qw_data<const float>(args->weights);
    j->ids = qw_data<const int32_t>(args->ids);
    j->y = qw_data<float>(args->y);
    j->x_stride = args->x.stride[0];
    j->weights_stride = args->weights.stride[0];
    j->ids_stride = args->ids.stride[0];
    j->y_stride = args->y.stride[0];
    j->gate_stride = gate->stride[0];
    j->down_stride = args->expert[0].down.stride[0];
    j->rows = static_cast<int32_t>(args->x.shape[0]);
    j->k = static_cast<int32_t>(args->ids.shape[1]);
    j->experts = args->experts;
    j->hidden_width = static_cast<int32_t>(gate->shape[1]);
    j->width = static_cast<int32_t>(gate->shape[0]);
    j->aligned = aligned && reinterpret_cast<uintptr_t>(j->x) % 16 == 0 && j->x_stride % 4 == 0;
    const int64_t pairs = int64_t{j->rows} * j->k;
    if (carve(cuda->scratch, pairs, j->experts, j->hidden_width, j->width, j) > cuda->scratch_bytes)
        return QWEN36_ERROR_INTERNAL;
    return find_table(cuda, args, &j->expert);
}

qwen36_status qw_cuda_experts(qw_backend *backend, const qw_experts_args *args)
{
    qw_cuda *cuda = qw_cuda_of(backend);
    experts_job j = {};
    const qwen36_status status = describe(cuda, args, &j);
    if (status != QWEN36_OK)
        return status;
    const int32_t dtype = args->expert[0].gate.dtype;
    const qw_experts_shape shape = {j.rows, j.k, j.experts, j.hidden_width, j.width, dtype, j.aligned};
    const int32_t row = qw_plan_experts(&cuda->profile, &shape);
    return qw_with_weight(dtype, [=](auto type) {
        typedef typename decltype(type)::element W;
        return row == QW_EXPERTS_DIRECT ? run_direct<W>(cuda->stream, j)
                                        : run_sorted<W>(cuda->stream, row, j);
    });
}
