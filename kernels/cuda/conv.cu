/* conv: c_t = silu(sum_j w[ch][j] u_{t - width + 1 + j}), and the last width - 1 inputs at each stored state.
 * A thread owns a channel of up to 64 rows; neighbouring threads read neighbouring channels. A slot is never
 * read and written in one step, so the two kernels need no order. */
#include "kernels/cuda/state.h"

enum { CONV_THREADS = 128 };

struct conv_args {
    const float *u;
    float *c;
    int64_t u_stride, c_stride, weight_stride;
    int32_t channels, width;
    qw_device_state state;
    const qw_segment *segment;
    const qw_state_write *write;
    int32_t segments;
};

/* Input `i` rows after the segment's first; what lies before it comes from the state read. */
static QW_DEVICE float conv_input(const conv_args &a, const qw_segment &s, int i, int channel)
{
    if (i >= 0)
        return a.u[(s.row_begin + i) * a.u_stride + channel];
    if (s.state_read < 0)
        return 0.0F;
    return qw_slot(a.state, s.state_read)[(a.width - 1 + i) * int64_t{a.channels} + channel];
}

template <typename W> static QW_KERNEL conv_rows(conv_args a, const W *weight, const qw_tile *tiles)
{
    const qw_tile tile = tiles[blockIdx.x];
    const qw_segment s = a.segment[tile.segment];
    const int channel = static_cast<int>(blockIdx.y) * CONV_THREADS + qw_thread();
    if (channel >= a.channels)
        return;
    for (int r = 0; r < tile.row_count; r++) {
        const int row = tile.row_begin + r, i = row - s.row_begin;
        float sum = 0;
        for (int j = 0; j < a.width; j++)
            sum += qw_to_float(weight[channel * a.weight_stride + j]) *
                   conv_input(a, s, i - a.width + 1 + j, channel);
        a.c[row * a.c_stride + channel] = qw_silu(sum);
    }
}

static QW_KERNEL store_inputs(conv_args a)
{
    const int w = static_cast<int>(blockIdx.x),
              channel = static_cast<int>(blockIdx.y) * CONV_THREADS + qw_thread();
    if (channel >= a.channels)
        return;
    int segment = 0; /* the last one that begins to write at w or before */
    for (int beyond = a.segments; beyond - segment > 1;) {
        const int middle = segment + (beyond - segment) / 2;
        if (a.segment[middle].write_begin <= w)
            segment = middle;
        else
            beyond = middle;
    }
    const qw_segment s = a.segment[segment];
    float *out = qw_slot(a.state, a.write[w].slot);
    const int first = a.write[w].row - s.row_begin - a.width + 2;
    for (int j = 0; j < a.width - 1; j++)
        out[j * int64_t{a.channels} + channel] = conv_input(a, s, first + j, channel);
}

qwen36_status qw_cuda_conv(qw_backend *backend, const qw_conv_args *args)
{
    const qw_cuda *cuda = qw_cuda_of(backend);
    const qw_batch *batch = args->batch;
    const conv_args a = {qw_data<const float>(args->u),
                         qw_data<float>(args->c),
                         args->u.stride[0],
                         args->c.stride[0],
                         args->weight.stride[0],
                         static_cast<int32_t>(args->u.shape[1]),
                         static_cast<int32_t>(args->weight.shape[args->weight.rank - 1]),
                         qw_state_on_device(args->state),
                         qw_on_device(batch, batch->segment),
                         qw_on_device(batch, batch->state_write),
                         batch->segments};
    /* Only x goes beyond 65535, and a step may have more chunks or states to store. */
    const unsigned columns = qw_blocks(a.channels, CONV_THREADS);
    const dim3 grid(static_cast<unsigned>(cuda->tables.chunks), columns);
    const qwen36_status status = qw_with_weight(args->weight.dtype, [=](auto type) {
        typedef typename decltype(type)::element W;
        return qw_launch(cuda->stream, conv_rows<W>, grid, CONV_THREADS, 0, a, qw_data<const W>(args->weight),
                         cuda->tables.chunk);
    });
    if (status != QWEN36_OK || batch->writes == 0)
        return status;
    return qw_launch(cuda->stream, store_inputs, dim3(static_cast<unsigned>(batch->writes), columns),
                     CONV_THREADS, 0, a);
}
