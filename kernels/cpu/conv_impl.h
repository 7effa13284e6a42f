/* Depthwise causal convolution with SiLU. One call owns a range of channels of one segment; channels lie in
 * lanes, taps are added oldest first. The weights of the range are transposed once into [width][channels]. */
#ifndef QW_CPU_CONV_IMPL_H
#define QW_CPU_CONV_IMPL_H

#include "kernels/cpu/kernels.h"
#include "kernels/cpu/load_impl.h"
#include "kernels/cpu/math_impl.h"
#include "kernels/cpu/unroll.h"

/* taps[j][channel] = weight[channel][j], 16 channels at a time. */
QW_INLINE void conv_transpose(const qw_conv_range *range, float *taps, const int64_t width)
{
    float flat[VF_LANES * QW_CONV_WIDTH];
    for (int64_t ch = 0; ch < range->channels; ch += VF_LANES) {
        const int64_t channels = range->channels - ch < VF_LANES ? range->channels - ch : VF_LANES;
        const int64_t count = channels * width;
        for (int64_t i = 0; i < count; i += VF_LANES)
            store_lanes(flat + i, load_as(range->weight, range->weight_dtype, ch * width + i, count - i),
                        count - i);
        for (int64_t c = 0; c < channels; c++)
            for (int64_t j = 0; j < width; j++)
                taps[j * QW_CONV_CHANNELS + ch + c] = flat[c * width + j];
    }
}

/* The input `back` rows before row `row`: of the segment, of the state, or zeros. */
static inline const float *conv_input(const qw_conv_range *range, int64_t row, int64_t back)
{
    static const float zeros[QW_CONV_CHANNELS];
    const int64_t at = row - back;
    if (at >= 0)
        return range->u + at * range->u_stride;
    return range->before == NULL ? zeros : range->before + (at + range->width - 1) * range->before_stride;
}

/* c = silu(sum over taps) for the n channels from ch on. */
QW_INLINE void conv_vector(const float *const *input, const float *taps, int64_t ch, int64_t n, float *c,
                           const int64_t width)
{
    vf sum = vf_mul(load_lanes(taps + ch, n), load_lanes(input[0] + ch, n));
    for (int64_t j = 1; j < width; j++)
        sum = vf_fma(load_lanes(taps + j * QW_CONV_CHANNELS + ch, n), load_lanes(input[j] + ch, n), sum);
    store_lanes(c + ch, vf_silu(sum), n);
}

QW_INLINE void conv_rows_of(const qw_conv_range *range, float *taps, const int64_t width)
{
    const float *input[QW_CONV_WIDTH];
    conv_transpose(range, taps, width);
    for (int64_t row = 0; row < range->rows; row++) {
        float *c = range->c + row * range->c_stride;
        for (int64_t j = 0; j < width; j++)
            input[j] = conv_input(range, row, width - 1 - j);
        int64_t ch = 0;
        for (; ch + VF_LANES <= range->channels; ch += VF_LANES)
            conv_vector(input, taps, ch, VF_LANES, c, width);
        if (ch < range->channels)
            conv_vector(input, taps, ch, range->channels - ch, c, width);
    }
}

/* taps: width x QW_CONV_CHANNELS floats of workspace. Width 4, that of every published model, is compiled for
 * itself. */
static void conv_rows(const qw_conv_range *range, float *taps)
{
    if (range->width == 4)
        conv_rows_of(range, taps, 4);
    else
        conv_rows_of(range, taps, range->width);
}

/* The width - 1 inputs up to and with `row`, oldest first, into a state. */
static void conv_store(const qw_conv_range *range, int64_t row, float *state)
{
    for (int64_t j = 0; j + 1 < range->width; j++) {
        const float *input = conv_input(range, row, range->width - 2 - j);
        float *to = state + j * range->before_stride;
        for (int64_t ch = 0; ch < range->channels; ch += VF_LANES)
            store_lanes(to + ch, load_lanes(input + ch, range->channels - ch), range->channels - ch);
    }
}

#endif
