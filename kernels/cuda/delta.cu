/* The gated delta rule, state and sums in float32. delta_scales prepares each row once; then, by the rows of
 * a segment:
 *
 *   few:  delta_steps, token by token: a thread holds a part of a column of S in registers
 *   many: delta_solve and delta_chunks (delta_chunked.h), in chunks of up to 64 rows
 *
 * Both kernels are launched over all segments, and each leaves those of the other alone. */
#include "kernels/cuda/delta_chunked.h"

/* ---- scales: q and k by 1 / norm, g and beta -------------------------------------------------------- */

enum { SCALE_THREADS = 128 };

static QW_DEVICE float inverse_norm(const float *x, int count)
{
    float squares = 0;
    for (int i = qw_lane(); i < count; i += QW_WARP)
        squares += x[i] * x[i];
    return 1.0F / sqrtf(qw_warp_sum(squares) + 1e-6F);
}

/* A block per row: a warp per key head, a thread per value head. */
template <typename L, typename D>
static QW_KERNEL delta_scales(delta_job j, const float *a, const float *b, int64_t a_stride, int64_t b_stride,
                              const L *a_log, const D *dt_bias)
{
    const int row = static_cast<int>(blockIdx.x);
    const float *c = j.c + row * j.c_stride;
    for (int h = qw_warp(); h < j.nk; h += SCALE_THREADS / QW_WARP) {
        const float q = inverse_norm(c + h * j.dk, j.dk), k = inverse_norm(c + (j.nk + h) * j.dk, j.dk);
        if (qw_lane() == 0)
            j.norm[row * j.nk + h] = float2{q / sqrtf(static_cast<float>(j.dk)), k};
    }
    for (int h = qw_thread(); h < j.nv; h += SCALE_THREADS) {
        const float x = a[row * a_stride + h] + qw_to_float(dt_bias[h]);
        j.gate[row * j.nv + h] =
            float2{-expf(qw_to_float(a_log[h])) * qw_softplus(x), qw_sigmoid(b[row * b_stride + h])};
    }
}

/* ---- token by token --------------------------------------------------------------------------------- */

enum { STEP_THREADS = 128, STEP_ROWS = 32 };

/* `parts` neighbouring lanes share a column of S: lane p holds rows p, p + parts, ... of it. */
static QW_DEVICE float sum_parts(float value, int parts)
{
    for (int mask = 1; mask < parts; mask *= 2)
        value += qw_shuffle_xor(QW_ALL_LANES, value, mask);
    return value;
}

/* Grid: column groups of each segment, value heads. */
static QW_KERNEL delta_steps(delta_job j, int32_t parts)
{
    const int columns = STEP_THREADS / parts, groups = (j.dv + columns - 1) / columns;
    const qw_segment s = j.segment[static_cast<int>(blockIdx.x) / groups];
    if (qw_delta_is_chunked(j, s))
        return;
    const int head = static_cast<int>(blockIdx.y), key_head = head / (j.nv / j.nk),
              part = qw_thread() % parts;
    const int column = static_cast<int>(blockIdx.x) % groups * columns + qw_thread() / parts;
    const bool live = column < j.dv;
    const int64_t begin = int64_t{head} * j.dk * j.dv + column;
    float state[STEP_ROWS];
    QW_UNROLL
    for (int i = 0; i < STEP_ROWS; i++) {
        const int e = i * parts + part;
        const bool stored = live && e < j.dk && s.state_read >= 0;
        state[i] = stored ? qw_slot(j.state, s.state_read)[begin + int64_t{e} * j.dv] : 0.0F;
    }
    int next = s.write_begin;
    for (int row = s.row_begin; row < s.row_begin + s.row_count; row++) {
        const float2 norm = j.norm[row * j.nk + key_head], gate = j.gate[row * j.nv + head];
        const float *q = j.c + row * j.c_stride + key_head * j.dk, *k = q + j.nk * j.dk;
        const float value = live ? j.c[row * j.c_stride + 2 * j.nk * j.dk + head * j.dv + column] : 0.0F;
        const float decay = expf(gate.x);
        float predicted = 0, read = 0;
        QW_UNROLL
        for (int i = 0; i < STEP_ROWS; i++) {
            const int e = i * parts + part;
            state[i] *= decay;
            predicted += e < j.dk ? state[i] * (k[e] * norm.y) : 0.0F;
        }
        const float change = gate.y * (value - sum_parts(predicted, parts));
        QW_UNROLL
        for (int i = 0; i < STEP_ROWS; i++) {
            const int e = i * parts + part;
            if (e < j.dk) {
                state[i] += k[e] * norm.y * change;
                read += state[i] * (q[e] * norm.x);
            }
        }
        read = sum_parts(read, parts);
        if (live && part == 0)
            j.o[row * j.o_stride + head * j.dv + column] = read;
        for (; next < s.write_begin + s.write_count && j.write[next].row == row; next++) {
            float *to = qw_slot(j.state, j.write[next].slot) + begin;
            QW_UNROLL
            for (int i = 0; i < STEP_ROWS; i++) {
                const int e = i * parts + part;
                if (live && e < j.dk)
                    to[int64_t{e} * j.dv] = state[i];
            }
        }
    }
}

/* ---- the operation ---------------------------------------------------------------------------------- */

static uint64_t carve(unsigned char *base, int64_t rows, const qw_dims *d, delta_job *j)
{
    qw_cuda_scratch scratch = {base, 0};
    const int64_t heads = rows * d->lin_v_heads;
    j->norm = scratch.take<float2>(rows * d->lin_k_heads);
    j->gate = scratch.take<float2>(heads);
    j->u = scratch.take<float>(heads * d->lin_v_dim);
    j->w = scratch.take<float>(heads * d->lin_k_dim);
    j->p = scratch.take<float>(heads * QW_DELTA_CHUNK);
    return scratch.used;
}

uint64_t qw_cuda_delta_scratch_bytes(const qw_backend_config *config)
{
    delta_job unused = {};
    return carve(nullptr, config->max_rows, config->dims, &unused);
}

static qwen36_status describe(const qw_cuda *cuda, const qw_delta_args *args, delta_job *j)
{
    const qw_dims *d = &cuda->dims;
    j->c = qw_data<const float>(args->c);
    j->o = qw_data<float>(args->o);
    j->c_stride = args->c.stride[0];
    j->o_stride = args->o.stride[0];
    j->nk = d->lin_k_heads;
    j->nv = d->lin_v_heads;
    j->dk = d->lin_k_dim;
    j->dv = d->lin_v_dim;
    j->state = qw_state_on_device(args->state);
    j->segment = qw_on_device(args->batch, args->batch->segment);
    j->write = qw_on_device(args->batch, args->batch->state_write);
    const bool fits = qw_delta_chunks_shared(d->lin_k_dim) <= cuda->profile.shared_bytes;
    j->chunked_from = fits ? int32_t{QW_DELTA_CHUNKED_FROM} : INT32_MAX;
    const uint64_t bytes = carve(cuda->scratch, args->batch->rows, d, j);
    return bytes > cuda->scratch_bytes || d->lin_k_dim > STEP_ROWS * QW_WARP ? QWEN36_ERROR_INTERNAL
                                                                             : QWEN36_OK;
}

static qwen36_status issue_scales(const qw_cuda *cuda, const qw_delta_args *args, const delta_job &j)
{
    const dim3 grid(static_cast<unsigned>(args->batch->rows));
    return qw_with_weight(args->a_log.dtype, [=](auto log_type) {
        typedef typename decltype(log_type)::element L;
        return qw_with_weight(args->dt_bias.dtype, [=](auto bias_type) {
            typedef typename decltype(bias_type)::element D;
            return qw_launch(cuda->stream, delta_scales<L, D>, grid, SCALE_THREADS, 0, j,
                             qw_data<const float>(args->a), qw_data<const float>(args->b), args->a.stride[0],
                             args->b.stride[0], qw_data<const L>(args->a_log),
                             qw_data<const D>(args->dt_bias));
        });
    });
}

/* Of the dimensions of a grid only x goes beyond 65535, and a step may have 65536 segments. */
static dim3 grid_of(const qw_batch *batch, const delta_job &j, int32_t columns)
{
    return dim3(qw_blocks(j.dv, columns) * static_cast<unsigned>(batch->segments),
                static_cast<unsigned>(j.nv));
}

static qwen36_status issue_steps(const qw_cuda *cuda, const qw_batch *batch, const delta_job &j)
{
    int32_t parts = 1;
    while (parts * STEP_ROWS < j.dk)
        parts *= 2;
    return qw_launch(cuda->stream, delta_steps, grid_of(batch, j, STEP_THREADS / parts), STEP_THREADS, 0, j,
                     parts);
}

static qwen36_status issue_chunks(const qw_cuda *cuda, const qw_batch *batch, const delta_job &j)
{
    const dim3 first(static_cast<unsigned>(cuda->tables.chunks), static_cast<unsigned>(j.nv));
    const qwen36_status status =
        qw_launch(cuda->stream, delta_solve, first, QW_DELTA_THREADS,
                  static_cast<size_t>(qw_delta_solve_shared()), j, cuda->tables.chunk);
    if (status != QWEN36_OK)
        return status;
    return qw_launch(cuda->stream, delta_chunks, grid_of(batch, j, QW_DELTA_COLUMNS), QW_DELTA_THREADS,
                     static_cast<size_t>(qw_delta_chunks_shared(j.dk)), j);
}

qwen36_status qw_cuda_delta(qw_backend *backend, const qw_delta_args *args)
{
    const qw_cuda *cuda = qw_cuda_of(backend);
    const qw_batch *batch = args->batch;
    delta_job j = {};
    bool few = false, many = false;
    qwen36_status status = describe(cuda, args, &j);
    for (int32_t s = 0; s < batch->segments; s++) {
        const bool chunked = batch->segment[s].row_count >= j.chunked_from;
        few = few || !chunked;
        many = many || chunked;
    }
    if (status == QWEN36_OK)
        status = issue_scales(cuda, args, j);
    if (status == QWEN36_OK && few)
        status = issue_steps(cuda, batch, j);
    if (status == QWEN36_OK && many)
        status = issue_chunks(cuda, batch, j);
    return status;
}
