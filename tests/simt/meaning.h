/* What warp collectives compute, for the checked and the unchecked machine alike. */
#ifndef QW_TESTS_SIMT_MEANING_H
#define QW_TESTS_SIMT_MEANING_H

#include "tests/simt/simt.h"

#include <cstring>

namespace simt
{

/* Which lane of its segment (a power of two of lanes) a lane reads; itself where that lies outside. */
inline unsigned source_lane(collective_kind kind, unsigned lane, uint32_t parameter, unsigned segment)
{
    const unsigned at = lane % segment, begin = lane - at;
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

/* The operands of m16n8k16 as the lanes hold them, word by word: d[4] a[4] b[2]. */
enum { MATRIX_LANES = 32, MATRIX_D = 0, MATRIX_A = 4, MATRIX_B = 8, MATRIX_WORDS = 10 };
struct matrix_operands {
    uint32_t word[MATRIX_WORDS][MATRIX_LANES];
};
/* d += a b; an element is summed in the order of k. */
void multiply(matrix_operands *m, bool bf16);

/* The pair that a lane gets of an 8 x 8 matrix of 16-bit elements, whose rows lie at these addresses. */
inline uint32_t matrix_pair(const uint64_t rows[8], unsigned lane, bool transposed)
{
    const unsigned g = lane / 4, t = lane % 4 * 2;
    auto element = [=](unsigned row, unsigned column) {
        uint16_t value;
        memcpy(&value, reinterpret_cast<const uint16_t *>(static_cast<uintptr_t>(rows[row])) + column, 2);
        return uint32_t{value};
    };
    return transposed ? element(t, g) | element(t + 1, g) << 16 : element(g, t) | element(g, t + 1) << 16;
}

} // namespace simt

#endif
