#include "tests/simt/meaning.h"

#include "kernels/cuda/device.h"

namespace simt
{

static int exchanged; /* simt_spoil_matrix */

/* a [16][16] and b [16][8], from pairs of k. */
template <typename T> static void unpack(const matrix_operands &m, float (&a)[16][16], float (&b)[16][8])
{
    for (int word = 0; word < 4; word++)
        for (int g = 0; g < 8; g++)
            for (int t = 0; t < 4; t++) {
                float *to = &a[g + word % 2 * 8][2 * t + word / 2 * 8];
                to[0] = qw_pair_low<T>(m.word[MATRIX_A + word][g * 4 + t]);
                to[1] = qw_pair_high<T>(m.word[MATRIX_A + word][g * 4 + t]);
            }
    for (int word = 0; word < 2; word++)
        for (int t = 0; t < 4; t++)
            for (int g = 0; g < 8; g++) {
                b[2 * t + word * 8][g ^ exchanged] = qw_pair_low<T>(m.word[MATRIX_B + word][g * 4 + t]);
                b[2 * t + word * 8 + 1][g ^ exchanged] = qw_pair_high<T>(m.word[MATRIX_B + word][g * 4 + t]);
            }
}

template <typename T> static void multiply_as(matrix_operands *m)
{
    float a[16][16], b[16][8];
    unpack<T>(*m, a, b);
    for (int row = 0; row < 16; row++) {
        const int first = MATRIX_D + row / 8 * 2;
        uint32_t *left = &m->word[first][row % 8 * 4], *right = &m->word[first + 1][row % 8 * 4];
        float sum[8];
        for (int column = 0; column < 8; column++)
            sum[column] = qw_bits_float(column % 2 == 0 ? left[column / 2] : right[column / 2]);
        for (int k = 0; k < 16; k++)
            for (int column = 0; column < 8; column++)
                sum[column] += a[row][k] * b[k][column];
        for (int column = 0; column < 8; column++)
            (column % 2 == 0 ? left : right)[column / 2] = qw_float_bits(sum[column]);
    }
}

void multiply(matrix_operands *m, bool bf16)
{
    if (bf16)
        multiply_as<qw_bf16>(m);
    else
        multiply_as<qw_f16>(m);
}

} // namespace simt

void simt_spoil_matrix(int32_t on)
{
    simt::exchanged = on != 0;
}
