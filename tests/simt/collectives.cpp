/* What warp collectives compute, from the words of all lanes at once. */
#include "tests/simt/internal.h"

#include <cmath>
#include <cstring>

namespace simt
{

static float as_float(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static uint32_t as_bits(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static float half_value(uint32_t half)
{
    const int exponent = static_cast<int>(half >> 10 & 31), mantissa = static_cast<int>(half & 1023);
    float magnitude;
    if (exponent == 31)
        magnitude = mantissa != 0 ? NAN : INFINITY;
    else if (exponent == 0)
        magnitude = std::ldexp(static_cast<float>(mantissa), -24);
    else
        magnitude = std::ldexp(static_cast<float>(1024 + mantissa), exponent - 25);
    return (half & 0x8000) != 0 ? -magnitude : magnitude;
}

/* Element `half` (0 low, 1 high) of a pair. */
static float pair_value(uint32_t pair, int half, bool bf16)
{
    const uint32_t bits = half != 0 ? pair >> 16 : pair & 0xFFFF;
    return bf16 ? as_float(bits << 16) : half_value(bits);
}

/* ---- shuffles and votes ---- */

/* Which lane of its segment of argument-many lanes a lane reads; itself where that lies outside. Words: value
 * (two words), offset or source. The segment's width is in `argument`. */
static unsigned source_lane(collective_kind kind, unsigned lane, uint32_t parameter, unsigned segment)
{
    const unsigned begin = lane / segment * segment, at = lane - begin;
    switch (kind) {
    case SHUFFLE:
        return begin + parameter % segment;
    case SHUFFLE_UP:
        return at >= parameter ? lane - parameter : lane;
    case SHUFFLE_DOWN:
        return at + parameter < segment ? lane + parameter : lane;
    default:
        return (at ^ parameter) < segment ? begin + (at ^ parameter) : lane;
    }
}

static void complete_shuffle(thread *lanes, unsigned width, uint64_t mask)
{
    uint32_t values[WARP][2] = {};
    for (unsigned l = 0; l < width; l++)
        memcpy(values[l], lanes[l].met.words, sizeof values[l]);
    for (unsigned l = 0; l < width; l++) {
        if ((mask >> l & 1) == 0)
            continue;
        collective *c = &lanes[l].met;
        const unsigned from = source_lane(c->kind, l, c->words[2], c->argument);
        if (from >= width || (mask >> from & 1) == 0)
            fail("lane %u reads lane %u at %s:%d, which takes no part", l, from, c->where.file,
                 c->where.line);
        memcpy(c->words, values[from], sizeof values[from]);
    }
}

static void complete_ballot(thread *lanes, unsigned width, uint64_t mask)
{
    uint64_t votes = 0;
    for (unsigned l = 0; l < width; l++)
        if ((mask >> l & 1) != 0 && lanes[l].met.words[0] != 0)
            votes |= uint64_t{1} << l;
    for (unsigned l = 0; l < width; l++)
        if ((mask >> l & 1) != 0)
            memcpy(lanes[l].met.words, &votes, sizeof votes);
}

/* ---- matrix instructions: m16n8k16, words d[4] a[4] b[2] ---- */

static float a_element(const thread *lanes, int row, int k, bool bf16)
{
    const int lane = row % 8 * 4 + k % 8 / 2, word = row / 8 + k / 8 * 2;
    return pair_value(lanes[lane].met.words[4 + word], k % 2, bf16);
}

static float b_element(const thread *lanes, int k, int column, bool bf16)
{
    const int lane = column * 4 + k % 8 / 2;
    return pair_value(lanes[lane].met.words[8 + k / 8], k % 2, bf16);
}

static bool spoiled; /* simt_spoil_matrix */

static void complete_matrix(thread *lanes, bool bf16)
{
    float a[16][16], b[16][8];
    for (int k = 0; k < 16; k++) {
        for (int row = 0; row < 16; row++)
            a[row][k] = a_element(lanes, row, k, bf16);
        for (int column = 0; column < 8; column++)
            b[k][column] = b_element(lanes, k, column, bf16);
    }
    for (int lane = 0; lane < 32; lane++)
        for (int i = 0; i < 4; i++) {
            const int row = lane / 4 + i / 2 * 8, column = (lane % 4 * 2 + i % 2) ^ int { spoiled };
            float sum = as_float(lanes[lane].met.words[i]);
            for (int k = 0; k < 16; k++)
                sum += a[row][k] * b[k][column];
            lanes[lane].met.words[i] = as_bits(sum);
        }
}

/* ---- matrices of 8 x 8 pairs-of-bytes out of shared memory: word 0 is the offset of a row ---- */

static void read_matrix(const thread *lanes, int matrix, uint16_t out[8][8])
{
    for (int row = 0; row < 8; row++) {
        const uint32_t offset = lanes[matrix * 8 + row].met.words[0];
        if (offset % 16 != 0)
            fail("a matrix row at byte %u of shared memory is not aligned to 16", offset);
        shared_access(offset, 16, READ);
        memcpy(out[row], shared_memory() + offset, 16);
    }
}

static void complete_load_matrix(thread *lanes, int matrices, bool transposed)
{
    uint16_t m[4][8][8];
    for (int i = 0; i < matrices; i++)
        read_matrix(lanes, i, m[i]);
    for (int lane = 0; lane < 32; lane++)
        for (int i = 0; i < matrices; i++) {
            const int row = lane / 4, column = lane % 4 * 2;
            const uint32_t low = transposed ? m[i][column][row] : m[i][row][column];
            const uint32_t high = transposed ? m[i][column + 1][row] : m[i][row][column + 1];
            lanes[lane].met.words[i] = low | high << 16;
        }
}

static void require_matrix_warp(unsigned width, uint64_t mask, site where)
{
    if (WARP != 32 || width != 32 || mask != 0xFFFFFFFF)
        fail("a matrix instruction at %s:%d needs a full warp of 32 lanes", where.file, where.line);
}

void complete_collective(thread *lanes, unsigned width)
{
    const collective *c = &current.running->met;
    const collective_kind kind = c->kind;
    if (kind >= MATRIX_BF16)
        require_matrix_warp(width, c->mask, c->where);
    switch (kind) {
    case WARP_BARRIER:
        return;
    case BALLOT:
        return complete_ballot(lanes, width, c->mask);
    case MATRIX_BF16:
    case MATRIX_F16:
        return complete_matrix(lanes, kind == MATRIX_BF16);
    case LOAD_MATRIX_2:
    case LOAD_MATRIX_4:
        return complete_load_matrix(lanes, kind == LOAD_MATRIX_4 ? 4 : 2, false);
    case LOAD_MATRIX_2_TRANSPOSED:
    case LOAD_MATRIX_4_TRANSPOSED:
        return complete_load_matrix(lanes, kind == LOAD_MATRIX_4_TRANSPOSED ? 4 : 2, true);
    default:
        return complete_shuffle(lanes, width, c->mask);
    }
}

} // namespace simt

void simt_spoil_matrix(int32_t on)
{
    simt::spoiled = on != 0;
}
