/* Depthwise causal convolution with SiLU. One call owns a range of channels of one segment; channels lie in
 * lanes, taps are added oldest first. The weights of the range are transposed once into [width][channels]. */
#ifndef QW_CPU_CONV_IMPL_H
#define QW_CPU_CONV_IMPL_H

#include "kernels/cpu/kernels.h"
#include "kernels/cpu/load_impl.h"
#include "kernels/cpu/math_impl.h"

static inline void conv_transpose(const qw_conv_range *range, float *taps)
{
    float lanes[VF_LANES];
    const int64_t width = range->width, count = range->channels * width;
    for (int64_t i = 0; i < count; i += VF_LANES) {
        const int64_t n = count - i < VF_LANES ? count - i : VF_LANES;
        vf_store(lanes, load_as(range->weight, range->weight_dtype, i, n));
        for (int64_t l = 0; l < n; l++)
            taps[(i + l) % width * QW_CONV_CHANNELS + (i + l) / width] = lanes[l];
    }
}

/* The inputs `back` rows before row `row`: of the segment, of the state, or NULL for zeros. */
static inline const float *conv_input(const qw_conv_range *range, int64_t row, int64_t back)
{
    const int64_t at = row - back;
    if (at >= 0)
        return range->u + at * range->u_stride;
    return range->before == NULL ? NULL : range->before + (at + range->width - 1) * range->before_stride;
}

static inline vf conv_lanes(const float *input, int64_t channel, int64_t n)
{
    return input == NULL ? vf_zero() : load_lanes(input + channel, n);
}

/* taps: width x QW_CONV_CHANNELS floats of workspace. */
static void conv_rows(const qw_conv_range *range, float *taps)
{
    const float *input[QW_CONV_WIDTH];
    conv_transpose(range, taps);
    for (int64_t row = 0; row < range->rows; row++) {
        for (int64_t j = 0; j < range->width; j++)
            input[j] = conv_input(range, row, range->width - 1 - j);
        for (int64_t ch = 0; ch < range->channels; ch += VF_LANES) {
            const int64_t n = range->channels - ch;
            vf sum = vf_mul(load_lanes(taps + ch, n), conv_lanes(input[0], ch, n));
            for (int64_t j = 1; j < range->width; j++)
                sum =
                    vf_fma(load_lanes(taps + j * QW_CONV_CHANNELS + ch, n), conv_lanes(input[j], ch, n), sum);
            store_lanes(range->c + row * range->c_stride + ch, vf_silu(sum), n);
        }
    }
}

/* The width - 1 inputs up to and with `row`, oldest first, into a state. */
static void conv_store(const qw_conv_range *range, int64_t row, float *state)
{
    for (int64_t j = 0; j + 1 < range->width; j++) {
        const float *input = conv_input(range, row, range->width - 2 - j);
        float *to = state + j * range->before_stride;
        for (int64_t ch = 0; ch < range->channels; ch += VF_LANES)
            store_lanes(to + ch, conv_lanes(input, ch, range->channels - ch), range->channels - ch);
    }
}

#endif
