/* The routed experts. A pair is a (row, choice) of the router. Two ways (lib/plan decides):
 *
 *   direct: for few rows, nothing is sorted
 *     hidden[pair] = silu(gate x) * (up x) by the pair's expert
 *     y[row] = sum over choices, in the router's order, of weight * (down hidden[pair])
 *   matrix, tiled: sort_pairs counts, scans and places the pairs by expert, then
 *     products over each expert's slots (product.h, grouped) fill hidden and out
 *     combine gathers y[row] = sum of weight * out[slot]
 *
 * Weights of one layer may differ in format and stride: then gate and up are products of their own, a launch
 * for each format that occurs.
 *
 * The host never waits: it launches as many blocks of rows as there can be, and those beyond the list return.
 * In which order the pairs of one expert are placed is not fixed, and no value depends on it. */
#include "kernels/cuda/product.h"

#include <string.h>

enum { SORT_THREADS = 256 };

/* ---- tables of weights ------------------------------------------------------------------------------ */

/* One table per layer. */
uint64_t qw_cuda_expert_table_bytes(const qw_backend_config *config)
{
    const qw_dims *d = config->dims;
    return static_cast<uint64_t>(QW_MAX(1, d->layers)) * static_cast<uint64_t>(d->experts) *
           sizeof(qw_expert_weights);
}

qwen36_status qw_cuda_experts_open(qw_cuda *cuda)
{
    qw_expert_tables *t = &cuda->experts;
    const uint64_t bytes = qw_cuda_expert_table_bytes(&cuda->config);
    void *host;
    if (bytes == 0)
        return QWEN36_OK;
    t->most = QW_MAX(1, cuda->dims.layers);
    t->device = static_cast<qw_expert_weights *>(qw_cuda_take(cuda, bytes));
    const qwen36_status status = qw_runtime_allocate(QW_SPACE_HOST, bytes, &host);
    t->host = static_cast<qw_expert_weights *>(host);
    return status;
}

void qw_cuda_experts_close(qw_cuda *cuda)
{
    qw_runtime_free(QW_SPACE_HOST, cuda->experts.host);
}

static qw_expert_weight weight_of(const qw_view &view)
{
    return {qw_data<const void>(view), view.stride[0], view.dtype, 0};
}

static bool is_weight(const qw_expert_weight &known, const qw_view &view)
{
    return known.data == qw_data<const void>(view) && known.stride == view.stride[0] &&
           known.dtype == view.dtype;
}

static bool matches(const qw_expert_weights *known, const qw_expert_view *expert, int32_t experts)
{
    for (int32_t e = 0; e < experts; e++)
        if (!is_weight(known[e].gate, expert[e].gate) || !is_weight(known[e].up, expert[e].up) ||
            !is_weight(known[e].down, expert[e].down))
            return false;
    return true;
}

/* The device's table of these views. */
static qwen36_status find_table(qw_cuda *cuda, const qw_experts_args *args, const qw_expert_weights **out)
{
    qw_expert_tables *t = &cuda->experts;
    const int32_t experts = args->experts;
    for (int32_t i = 0; i < t->used; i++) {
        *out = t->device + int64_t{i} * experts;
        if (matches(t->host + int64_t{i} * experts, args->expert, experts))
            return QWEN36_OK;
    }
    int32_t at = t->used;
    qwen36_status status = QWEN36_OK;
    if (at == t->most) { /* an upload of the one that goes may be under way */
        status = qw_runtime_wait(cuda->stream);
        if (status != QWEN36_OK)
            return status;
        at = t->next;
        t->next = (t->next + 1) % t->most;
    }
    qw_expert_weights *host = t->host + int64_t{at} * experts, *device = t->device + int64_t{at} * experts;
    for (int32_t e = 0; e < experts; e++)
        host[e] = {weight_of(args->expert[e].gate), weight_of(args->expert[e].up),
                   weight_of(args->expert[e].down)};
    *out = device;
    status = qw_runtime_upload(cuda->stream, device, host, static_cast<uint64_t>(experts) * sizeof *host);
    if (status == QWEN36_OK)
        t->used = QW_MAX(t->used, at + 1);
    else
        memset(host, 0, static_cast<size_t>(experts) * sizeof *host); /* known to nobody */
    return status;
}

/* What the experts' weights have in common. */
struct expert_formats {
    uint32_t seen[QW_PARTS]; /* bit d: a weight of dtype d is among those of the part */
    bool mixed;              /* not all of one format, or a part not of one stride, or gate and up of two */
    bool aligned;            /* all rows begin at multiples of 16 bytes */
};

static expert_formats formats_of(const qw_experts_args *args)
{
    const qw_expert_view *first = args->expert;
    expert_formats f = {};
    uintptr_t bits = 0;
    for (int32_t i = 0; i < args->experts; i++) {
        const qw_view *part[QW_PARTS] = {&args->expert[i].gate, &args->expert[i].up, &args->expert[i].down};
        for (int32_t p = 0; p < QW_PARTS; p++) {
            const qw_view *like = p == QW_PART_DOWN ? &first->down : &first->gate;
            f.seen[p] |= uint32_t{1} << part[p]->dtype;
            f.mixed = f.mixed || part[p]->dtype != first->gate.dtype || part[p]->stride[0] != like->stride[0];
            bits |= reinterpret_cast<uintptr_t>(qw_data<const void>(*part[p])) |
                    static_cast<uintptr_t>(part[p]->stride[0] * qw_dtype_size(part[p]->dtype));
        }
    }
    f.aligned = bits % 16 == 0;
    return f;
}

/* ---- an op in progress ------------------------------------------------------------------------------ */

struct experts_job {
    const float *x, *weights;
    const int32_t *ids;
    float *y;
    int64_t x_stride, weights_stride, ids_stride, y_stride, hidden_stride;
    int32_t rows, k, experts, hidden_width, width; /* hidden_width H, width Im */
    int32_t aligned, mixed;
    uint32_t seen[QW_PARTS]; /* expert_formats */
    const qw_expert_weights *expert;
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
    const qw_expert_weights &e = j.expert[j.ids[row * j.ids_stride + choice]];
    const float *const x[1] = {j.x + row * j.x_stride};
    float gate[1] = {}, up[1] = {};
    qw_dot_rows<W, 1>(gate, static_cast<const W *>(e.gate.data) + column * e.gate.stride, x, j.hidden_width,
                      j.aligned != 0);
    qw_dot_rows<W, 1>(up, static_cast<const W *>(e.up.data) + column * e.up.stride, x, j.hidden_width,
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
        const qw_expert_weight down = j.expert[j.ids[row * j.ids_stride + choice]].down;
        const float *const h[1] = {j.hidden + (row * j.k + choice) * j.hidden_stride};
        float sum[1] = {};
        qw_dot_rows<W, 1>(sum, static_cast<const W *>(down.data) + column * down.stride, h, j.width,
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
    const int row = static_cast<int>(blockIdx.x),
              column = static_cast<int>(blockIdx.y) * SORT_THREADS + qw_thread();
    if (column >= j.hidden_width)
        return;
    float sum = 0;
    for (int c = 0; c < j.k; c++)
        sum += j.weights[row * j.weights_stride + c] *
               j.out[int64_t{j.pair_slot[row * j.k + c]} * j.hidden_width + column];
    j.y[row * j.y_stride + column] = sum;
}

/* The products of one part of all experts, or of gate and up at once: a launch for each format. */
template <bool DUAL>
static qwen36_status run_part(qw_cuda *cuda, int32_t row, const experts_job &j, const qw_product &p,
                              int32_t part)
{
    const unsigned tiles = static_cast<unsigned>(most_tiles(int64_t{j.rows} * j.k, j.experts));
    qwen36_status status = QWEN36_OK;
    for (int32_t dtype = 0; dtype < QW_DTYPE_COUNT && status == QWEN36_OK; dtype++) {
        if ((j.seen[part] >> dtype & 1) == 0)
            continue;
        const qw_groups groups = {j.tile, j.tiles, j.expert, part, dtype};
        status = qw_with_weight(dtype, [=](auto type) {
            typedef typename decltype(type)::element W;
            return qw_launch_many<W, DUAL>(cuda, row == QW_EXPERTS_MATRIX,
                                           qw_plan_bit(QW_PLAN_EXPERTS, QW_EXPERTS_MATRIX), p, groups, tiles,
                                           static_cast<const W *>(nullptr), static_cast<const W *>(nullptr));
        });
    }
    return status;
}

/* hidden = silu(x gate^T) * (x up^T), by slots. */
static qwen36_status run_hidden(qw_cuda *cuda, int32_t row, const experts_job &j)
{
    qw_product p = {};
    p.x = j.x;
    p.y = j.hidden;
    p.x_row = j.slot_row;
    p.x_stride = j.x_stride;
    p.y_stride = j.hidden_stride;
    p.depth = j.hidden_width;
    p.columns = j.width;
    if (!j.mixed)
        return run_part<true>(cuda, row, j, p, QW_PART_GATE);
    const qwen36_status status = run_part<false>(cuda, row, j, p, QW_PART_GATE);
    p.update = QW_UPDATE_GATE;
    return status != QWEN36_OK ? status : run_part<false>(cuda, row, j, p, QW_PART_UP);
}

static qwen36_status run_down(qw_cuda *cuda, int32_t row, const experts_job &j)
{
    qw_product p = {};
    p.x = j.hidden;
    p.y = j.out;
    p.x_stride = j.hidden_stride;
    p.y_stride = j.hidden_width;
    p.depth = j.width;
    p.columns = j.hidden_width;
    return run_part<false>(cuda, row, j, p, QW_PART_DOWN);
}

static qwen36_status run_sorted(qw_cuda *cuda, int32_t row, const experts_job &j)
{
    const size_t counters = static_cast<size_t>(j.experts) * 4 + 16;
    qwen36_status status = qw_launch(cuda->stream, sort_pairs, dim3(1), SORT_THREADS, counters, j);
    if (status == QWEN36_OK)
        status = run_hidden(cuda, row, j);
    if (status == QWEN36_OK)
        status = run_down(cuda, row, j);
    const dim3 grid(static_cast<unsigned>(j.rows), qw_blocks(j.hidden_width, SORT_THREADS));
    return status != QWEN36_OK ? status : qw_launch(cuda->stream, combine, grid, SORT_THREADS, 0, j);
}

/* ---- the operation ---------------------------------------------------------------------------------- */

static qwen36_status describe(qw_cuda *cuda, const qw_experts_args *args, experts_job *j)
{
    const qw_view *gate = &args->expert[0].gate;
    if (args->experts != cuda->dims.experts)
        return QWEN36_ERROR_INTERNAL;
    const expert_formats formats = formats_of(args);
    memcpy(j->seen, formats.seen, sizeof j->seen);
    j->mixed = formats.mixed;
    j->x = qw_data<const float>(args->x);
    j->weights = qw_data<const float>(args->weights);
    j->ids = qw_data<const int32_t>(args->ids);
    j->y = qw_data<float>(args->y);
    j->x_stride = args->x.stride[0];
    j->weights_stride = args->weights.stride[0];
    j->ids_stride = args->ids.stride[0];
    j->y_stride = args->y.stride[0];
    j->rows = static_cast<int32_t>(args->x.shape[0]);
    j->k = static_cast<int32_t>(args->ids.shape[1]);
    j->experts = args->experts;
    j->hidden_width = static_cast<int32_t>(gate->shape[1]);
    j->width = static_cast<int32_t>(gate->shape[0]);
    j->aligned = formats.aligned && reinterpret_cast<uintptr_t>(j->x) % 16 == 0 && j->x_stride % 4 == 0;
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
    const qw_experts_shape shape = {j.rows,  j.k,   j.experts, j.hidden_width,
                                    j.width, dtype, j.aligned, cuda->config.batch_invariant,
                                    j.mixed};
    const int32_t row = qw_plan_experts(&cuda->profile, &shape);
    if (row != QW_EXPERTS_DIRECT)
        return run_sorted(cuda, row, j);
    return qw_with_weight(dtype, [=](auto type) {
        typedef typename decltype(type)::element W;
        return run_direct<W>(cuda->stream, j);
    });
}
