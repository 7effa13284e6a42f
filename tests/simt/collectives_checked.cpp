/* What the lanes of a warp take away from a collective, when all have come. */
#include "tests/simt/checked.h"
#include "tests/simt/meaning.h"

#include <cstring>

namespace simt
{

/* ---- shuffles and votes ---- */

/* Words: value (two words), offset or source. The segment's width is in `argument`. */
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

/* ---- matrix instructions: words d[4] a[4] b[2] ---- */

static void complete_matrix(thread *lanes, bool bf16)
{
    static_assert(int{COLLECTIVE_WORDS} == int{MATRIX_WORDS}, "a lane brings its operands");
    matrix_operands m;
    for (int word = 0; word < MATRIX_WORDS; word++)
        for (int lane = 0; lane < MATRIX_LANES; lane++)
            m.word[word][lane] = lanes[lane].met.words[word];
    multiply(&m, bf16);
    for (int word = MATRIX_D; word < MATRIX_A; word++)
        for (int lane = 0; lane < MATRIX_LANES; lane++)
            lanes[lane].met.words[word] = m.word[word][lane];
}

/* ---- matrices out of shared memory: word 0 is the offset of a row ---- */

static uint64_t matrix_row(const thread *lane)
{
    const uint32_t offset = lane->met.words[0];
    if (offset % 16 != 0)
        fail("a matrix row at byte %u of shared memory is not aligned to 16", offset);
    shared_access(offset, 16, READ);
    return reinterpret_cast<uintptr_t>(shared_memory() + offset);
}

static void complete_load_matrix(thread *lanes, int matrices, bool transposed)
{
    uint64_t rows[MATRIX_LANES];
    for (int row = 0; row < matrices * 8; row++)
        rows[row] = matrix_row(&lanes[row]);
    for (unsigned lane = 0; lane < MATRIX_LANES; lane++)
        for (int i = 0; i < matrices; i++)
            lanes[lane].met.words[i] = matrix_pair(&rows[i * 8], lane, transposed);
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
