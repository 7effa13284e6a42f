/* What an architecture may lack, in terms of what every one has: the number formats by their bits, and the
 * matrix and copy instructions of 32-lane warps by shuffles and plain loads. Included by device.h alone. */
#ifndef QW_CUDA_DEVICE_PORTABLE_H
#define QW_CUDA_DEVICE_PORTABLE_H

/* ---- number formats ---------------------------------------------------------------------------------- */

QW_DEVICE float qw_to_float(float x)
{
    return x;
}

QW_DEVICE float qw_to_float(int8_t x)
{
    return static_cast<float>(x);
}

QW_DEVICE float qw_to_float(qw_bf16 x)
{
    return qw_bits_float(static_cast<uint32_t>(x.bits) << 16);
}

/* Round to nearest, ties to even; a NaN stays one. */
QW_DEVICE qw_bf16 qw_to_bf16(float x)
{
    const uint32_t bits = qw_float_bits(x);
    if (x != x)
        return qw_bf16{static_cast<uint16_t>(bits >> 16 | 64)};
    return qw_bf16{static_cast<uint16_t>((bits + 0x7FFF + (bits >> 16 & 1)) >> 16)};
}

/* Two elements in a word, the first in the low half. */
QW_DEVICE uint32_t qw_pair_bf16(float low, float high)
{
    return qw_to_bf16(low).bits | static_cast<uint32_t>(qw_to_bf16(high).bits) << 16;
}

template <typename T> QW_DEVICE float qw_pair_low(uint32_t pair)
{
    return qw_to_float(T{static_cast<uint16_t>(pair & 0xFFFF)});
}

template <typename T> QW_DEVICE float qw_pair_high(uint32_t pair)
{
    return qw_to_float(T{static_cast<uint16_t>(pair >> 16)});
}

/* ---- matrix instructions of warps of 32 -------------------------------------------------------------- */

QW_DEVICE int qw_lane()
{
    return static_cast<int>(threadIdx.x % QW_WARP);
}

/* The product that qw_matrix_bf16 and qw_matrix_f16 describe: for four columns pairs of k at a time, a lane
 * fetches its two rows of a and its two columns of b from the lanes that hold them. */
template <typename T>
QW_DEVICE void qw_portable_matrix(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2])
{
    const int g = qw_lane() / 4, t = qw_lane() % 4;
    for (int half = 0; half < 2; half++)
        for (int quad = 0; quad < 4; quad++) {
            const uint32_t top = qw_shuffle(QW_ALL_LANES, a[2 * half], g * 4 + quad);
            const uint32_t bottom = qw_shuffle(QW_ALL_LANES, a[2 * half + 1], g * 4 + quad);
            const uint32_t left = qw_shuffle(QW_ALL_LANES, b[half], (2 * t) * 4 + quad);
            const uint32_t right = qw_shuffle(QW_ALL_LANES, b[half], (2 * t + 1) * 4 + quad);
            d[0] += qw_pair_low<T>(top) * qw_pair_low<T>(left);
            d[0] += qw_pair_high<T>(top) * qw_pair_high<T>(left);
            d[1] += qw_pair_low<T>(top) * qw_pair_low<T>(right);
            d[1] += qw_pair_high<T>(top) * qw_pair_high<T>(right);
            d[2] += qw_pair_low<T>(bottom) * qw_pair_low<T>(left);
            d[2] += qw_pair_high<T>(bottom) * qw_pair_high<T>(left);
            d[3] += qw_pair_low<T>(bottom) * qw_pair_low<T>(right);
            d[3] += qw_pair_high<T>(bottom) * qw_pair_high<T>(right);
        }
}

/* Lane l names row l % 8 of matrix l / 8, and gets of each matrix the pair at row l / 4, column 2 (l % 4): of
 * the transposed matrix the elements at rows 2 (l % 4) and one on, column l / 4. */
template <int MATRICES, bool TRANSPOSED, typename T>
QW_DEVICE void qw_portable_load_matrix(uint32_t (&r)[MATRICES], qw_shared<T> view, int i)
{
    const int g = qw_lane() / 4, t = qw_lane() % 4;
    for (int m = 0; m < MATRICES; m++) {
        const int first = qw_shuffle(QW_ALL_LANES, i, m * 8 + (TRANSPOSED ? 2 * t : g));
        const int second = qw_shuffle(QW_ALL_LANES, i, m * 8 + (TRANSPOSED ? 2 * t + 1 : g));
        const T low = view[first + (TRANSPOSED ? g : 2 * t)];
        const T high = view[second + (TRANSPOSED ? g : 2 * t + 1)];
        r[m] = low.bits | static_cast<uint32_t>(high.bits) << 16;
    }
}

template <typename T> QW_DEVICE void qw_portable_copy_16(qw_shared<T> to, int i, const void *from, bool valid)
{
    const uint4 zero = {0, 0, 0, 0};
    to.store(i, valid ? *static_cast<const uint4 *>(from) : zero);
}

#endif
