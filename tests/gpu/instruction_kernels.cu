#include "tests/gpu/instructions.h"

#include "kernels/cuda/common.h"
#include "kernels/cuda/runtime.h"

static_assert(QW_WARP == 32, "matrix instructions are of warps of 32");

/* Threads of blocks of several warps, of one warp, and of grids over many words. */
enum { BLOCK = 3 * QW_WARP, GRID_THREADS = 256, HALVES = 1 << 16, MANY = 1 << 15 };

static QW_DEVICE int everywhere()
{
    return static_cast<int>(blockIdx.x) * qw_threads() + qw_thread();
}

static QW_DEVICE uint32_t as_bits(int value)
{
    return static_cast<uint32_t>(value);
}

/* ---- barriers and votes ---------------------------------------------------------------------------------
 */

/* Each vote over predicates that hold nearly never, often and nearly always; the rounds must not mix. */
static QW_KERNEL block_votes(const uint32_t *in, uint32_t *out)
{
    const int t = qw_thread();
    for (int round = 0; round < 8; round++) {
        const uint32_t word = in[round * BLOCK + t];
        const bool seldom = word % 128 == 0, often = word % 3 != 0, mostly = word % 100 != 7;
        uint32_t *to = out + (round * BLOCK + t) * 4;
        to[0] = qw_block_sync_or(seldom) != 0;
        to[1] = qw_block_sync_and(mostly) != 0;
        to[2] = as_bits(qw_block_sync_count(often));
        to[3] = qw_block_sync_and(round % 2 == 0) != 0;
    }
}

static QW_KERNEL block_barriers(const uint32_t *in, uint32_t *out)
{
    QW_SHARED(uint32_t, line, BLOCK);
    const int t = qw_thread();
    uint32_t value = in[t];
    for (int round = 1; round <= 20; round++) {
        line[t] = value;
        qw_block_sync();
        value += line[(t + round * 7) % BLOCK] * as_bits(round);
        qw_block_sync();
    }
    out[t] = value;
}

static QW_KERNEL warp_barriers(const uint32_t *in, uint32_t *out)
{
    QW_SHARED(uint32_t, line, BLOCK);
    const int t = qw_thread(), begin = t - qw_lane();
    uint32_t value = in[t];
    for (int round = 1; round <= 20; round++) {
        line[t] = value;
        qw_warp_sync();
        value += line[begin + (qw_lane() + round * 7) % QW_WARP] * as_bits(round);
        qw_warp_sync();
    }
    out[t] = value;
}

static QW_KERNEL warp_votes(const uint32_t *in, uint32_t *out)
{
    const int t = qw_thread(), lane = qw_lane();
    for (int round = 0; round < 8; round++) {
        const uint32_t word = in[round * BLOCK + t];
        uint32_t *to = out + (round * BLOCK + t) * 6;
        to[0] = qw_ballot(QW_ALL_LANES, word % 2);
        to[1] = qw_any(QW_ALL_LANES, word % 64 == 0);
        to[2] = qw_all(QW_ALL_LANES, word % 64 != 0);
        to[3] = as_bits(qw_count_lanes(word));
        to[4] = qw_active_lanes();
        to[5] = 0;
        if (lane >= 5 && lane < 21)
            to[5] = qw_ballot(qw_lanes{0x1FFFE0}, word % 3 == 0);
        qw_block_sync(); /* the next round wants all lanes again */
    }
}

/* ---- shuffles -------------------------------------------------------------------------------------------
 */

/* Of every distance, and from a lane that each lane chooses by itself. */
template <typename T, typename F> static QW_DEVICE void shuffle_all(const uint32_t *in, F put, T value)
{
    for (int by = 0; by < QW_WARP; by++) {
        put(by * 4 + 0, qw_shuffle(QW_ALL_LANES, value, by));
        put(by * 4 + 1, qw_shuffle_up(QW_ALL_LANES, value, by));
        put(by * 4 + 2, qw_shuffle_down(QW_ALL_LANES, value, by));
        put(by * 4 + 3, qw_shuffle_xor(QW_ALL_LANES, value, by));
    }
    put(QW_WARP * 4, qw_shuffle(QW_ALL_LANES, value, static_cast<int>(in[BLOCK + qw_thread()] % QW_WARP)));
}

enum { SHUFFLED = QW_WARP * 4 + 1 };

static QW_KERNEL shuffle_words(const uint32_t *in, uint32_t *out)
{
    uint32_t *to = out + qw_thread() * SHUFFLED;
    shuffle_all(
        in, [=](int i, uint32_t value) { to[i] = value; }, in[qw_thread()]);
}

static QW_KERNEL shuffle_floats(const uint32_t *in, uint32_t *out)
{
    uint32_t *to = out + qw_thread() * SHUFFLED;
    shuffle_all(
        in, [=](int i, float value) { to[i] = qw_float_bits(value); }, qw_bits_float(in[qw_thread()]));
}

static QW_KERNEL shuffle_long_words(const uint32_t *in, uint32_t *out)
{
    uint32_t *to = out + qw_thread() * SHUFFLED * 2;
    auto put = [=](int i, uint64_t value) {
        to[2 * i] = static_cast<uint32_t>(value);
        to[2 * i + 1] = static_cast<uint32_t>(value >> 32);
    };
    shuffle_all(in, put, in[qw_thread()] | uint64_t{in[2 * BLOCK + qw_thread()]} << 32);
}

/* Half of the lanes among themselves. */
static QW_KERNEL shuffle_part(const uint32_t *in, uint32_t *out)
{
    const int t = qw_thread(), lane = qw_lane();
    out[t] = 0;
    if (lane < 16)
        out[t] = qw_shuffle(qw_lanes{0xFFFF}, in[t], static_cast<int>(in[BLOCK + t] % 16)) +
                 qw_shuffle_xor(qw_lanes{0xFFFF}, in[t], 5);
}

/* ---- sums -----------------------------------------------------------------------------------------------
 */

static QW_KERNEL sums(const uint32_t *in, uint32_t *out)
{
    const int t = qw_thread();
    const float value = qw_bits_float(in[t]);
    uint32_t *to = out + t * 8;
    to[0] = qw_float_bits(qw_warp_sum(value));
    to[1] = qw_float_bits(qw_warp_max(value));
    to[2] = qw_float_bits(qw_block_sum(value));
    to[3] = qw_float_bits(qw_block_max(value));
    to[4] = as_bits(qw_warp_sum(static_cast<int>(in[t] % 1000)));
    to[5] = as_bits(qw_block_sum(static_cast<int>(in[t] % 1000)));
    const int64_t total = qw_block_sum(static_cast<int64_t>(in[t]) << 20);
    to[6] = static_cast<uint32_t>(total);
    to[7] = static_cast<uint32_t>(total >> 32);
}

/* ---- atomics --------------------------------------------------------------------------------------------
 */

/* What may differ with the order of threads is left out: of old values, only whether each came once. */
static QW_KERNEL atomics_global(const uint32_t *in, uint32_t *out)
{
    int32_t *sum = reinterpret_cast<int32_t *>(out), *most = sum + 1, *first = sum + 2, *seen = sum + 8;
    const int t = qw_thread();
    qw_atomic_add(sum, static_cast<int32_t>(in[everywhere()] % 1000));
    qw_atomic_max(most, static_cast<int32_t>(in[everywhere()]));
    if (qw_atomic_cas(first, 0, 7) == 0)
        qw_atomic_add(sum + 3, 1); /* once in all */
    qw_atomic_add(&seen[qw_atomic_add(sum + 4, 1)], 1);
    out[8 + 4 * BLOCK + everywhere()] = as_bits(qw_atomic_cas(&sum[8 + 8 * BLOCK + everywhere()], 0, t)) + 1;
    qw_atomic_cas(&sum[8 + 8 * BLOCK + everywhere()], t % 2, 5);
}

static QW_KERNEL atomics_shared(const uint32_t *in, uint32_t *out)
{
    QW_SHARED(int32_t, sums, 4);
    QW_SHARED(uint32_t, seen, BLOCK);
    const int t = qw_thread();
    if (t < 4)
        sums[t] = 0;
    seen[t] = 0;
    qw_block_sync();
    sums.atomic_add(0, static_cast<int32_t>(in[t] % 1000));
    sums.atomic_max(1, static_cast<int32_t>(in[t] % 1000000));
    seen.atomic_add(sums.atomic_add(2, 1), 1);
    qw_block_sync();
    out[4 + t] = seen[t];
    if (t < 4)
        out[t] = as_bits(sums[t]);
}

/* ---- vectors --------------------------------------------------------------------------------------------
 */

static QW_KERNEL vectors(const uint32_t *in, uint32_t *out)
{
    qw_shared_arena arena;
    const qw_shared<float> floats = arena.take<float>(4 * BLOCK);
    const qw_shared<qw_bf16> halves = arena.take<qw_bf16>(8 * BLOCK);
    const int t = qw_thread(), other = BLOCK - 1 - t;
    const float4 f = qw_load_constant(reinterpret_cast<const float4 *>(in) + t);
    const uint4 u = qw_load_constant(reinterpret_cast<const uint4 *>(in) + BLOCK + t);
    const uint2 w = qw_load_constant(reinterpret_cast<const uint2 *>(in) + 4 * BLOCK + t);
    floats.store(4 * t, f);
    halves.store(8 * t, u);
    qw_block_sync();
    const float2 pair = floats.load<float2>(4 * other + 2);
    const float4 four = floats.at(4).load<float4>((4 * other) % (4 * BLOCK - 4));
    const uint2 two = halves.load<uint2>(8 * other + 4);
    const uint4 all = halves.load<uint4>(8 * other);
    const qw_bf16 one = halves[8 * other + 3];
    const uint32_t words[] = {qw_float_bits(pair.x),
                              qw_float_bits(pair.y),
                              qw_float_bits(four.x),
                              qw_float_bits(four.w),
                              two.x,
                              two.y,
                              all.x,
                              all.w,
                              one.bits,
                              w.x,
                              w.y,
                              halves.load<uint32_t>(8 * other + 6)};
    for (int i = 0; i < 12; i++)
        out[t * 12 + i] = words[i];
}

/* ---- number formats -------------------------------------------------------------------------------------
 */

static QW_KERNEL widen_f16(const uint32_t *, uint32_t *out)
{
    out[everywhere()] = qw_float_bits(qw_to_float(qw_f16{static_cast<uint16_t>(everywhere())}));
}

static QW_KERNEL widen_bf16(const uint32_t *, uint32_t *out)
{
    out[everywhere()] = qw_float_bits(qw_to_float(qw_bf16{static_cast<uint16_t>(everywhere())}));
}

static QW_KERNEL widen_int8(const uint32_t *, uint32_t *out)
{
    out[qw_thread()] = qw_float_bits(qw_to_float(static_cast<int8_t>(qw_thread() - 128)));
}

static QW_KERNEL narrow_f16(const uint32_t *in, uint32_t *out)
{
    out[everywhere()] = qw_to_f16(qw_bits_float(in[everywhere()])).bits;
}

static QW_KERNEL narrow_bf16(const uint32_t *in, uint32_t *out)
{
    out[everywhere()] = qw_to_bf16(qw_bits_float(in[everywhere()])).bits;
}

/* Every pair of upper halves with the lower halves at and beside the tie: all cases that there are. */
static QW_KERNEL narrow_bf16_ties(const uint32_t *, uint32_t *out)
{
    const uint32_t upper = as_bits(everywhere()) << 16;
    uint32_t *to = out + 2 * everywhere();
    to[0] = qw_pair_bf16(qw_bits_float(upper | 0x7FFF), qw_bits_float(upper | 0x8000));
    to[1] = qw_pair_bf16(qw_bits_float(upper | 0x8001), qw_bits_float(upper | 0xFFFF));
}

static QW_KERNEL pairs(const uint32_t *in, uint32_t *out)
{
    const uint32_t word = in[everywhere()];
    uint32_t *to = out + 4 * everywhere();
    to[0] = qw_float_bits(qw_pair_low<qw_bf16>(word));
    to[1] = qw_float_bits(qw_pair_high<qw_bf16>(word));
    to[2] = qw_float_bits(qw_pair_low<qw_f16>(word));
    to[3] = qw_float_bits(qw_pair_high<qw_f16>(word));
}

/* ---- arithmetic that results rest on --------------------------------------------------------------------
 */

/* The product is rounded before anything is added to it. */
static QW_KERNEL products(const uint32_t *in, uint32_t *out)
{
    const float a = qw_bits_float(in[everywhere()]), b = qw_bits_float(in[MANY + everywhere()]);
    const float product = qw_product_rounded(a, b);
    out[2 * everywhere()] = qw_float_bits(product);
    out[2 * everywhere() + 1] = qw_float_bits(product - a);
}

/* Rounded as IEEE wants it, subnormal numbers kept. */
static QW_KERNEL divisions(const uint32_t *in, uint32_t *out)
{
    const float a = qw_bits_float(in[everywhere()]), b = qw_bits_float(in[MANY + everywhere()]);
    uint32_t *to = out + 4 * everywhere();
    to[0] = qw_float_bits(a / b);
    to[1] = qw_float_bits(sqrtf(fabsf(a)));
    to[2] = qw_float_bits(1.0F / sqrtf(fabsf(b)));
    to[3] = qw_float_bits(a + b);
}

static QW_KERNEL functions(const uint32_t *in, uint32_t *out)
{
    const float x = qw_bits_float(in[everywhere()]);
    uint32_t *to = out + 4 * everywhere();
    to[0] = qw_float_bits(expf(x));
    to[1] = qw_float_bits(log1pf(fabsf(x)));
    to[2] = qw_float_bits(sinf(x * 100.0F));
    to[3] = qw_float_bits(cosf(x * 100.0F));
}

/* ---- matrix instructions --------------------------------------------------------------------------------
 */

static QW_DEVICE uint32_t half_of(const uint32_t *words, int i)
{
    return words[i / 2] >> (i % 2 * 16) & 0xFFFF;
}

template <typename F> static QW_DEVICE void multiply(const uint32_t *in, uint32_t *out, F instruction_of)
{
    const int g = qw_lane() / 4, t = qw_lane() % 4;
    uint32_t a[4], b[2];
    float d[4];
    for (int i = 0; i < 4; i++) {
        a[i] = in[((g + i % 2 * 8) * 16 + 2 * t + i / 2 * 8) / 2];
        d[i] = qw_bits_float(in[MATRIX_D_AT + (g + i / 2 * 8) * 8 + 2 * t + i % 2]);
    }
    for (int i = 0; i < 2; i++)
        b[i] = half_of(in + MATRIX_B_AT, (2 * t + i * 8) * 8 + g) |
               half_of(in + MATRIX_B_AT, (2 * t + 1 + i * 8) * 8 + g) << 16;
    instruction_of(d, a, b);
    for (int i = 0; i < 4; i++)
        out[(g + i / 2 * 8) * 8 + 2 * t + i % 2] = qw_float_bits(d[i]);
}

/* The wrappers may be macros, so each kernel names its own. */
#define MATRIX_KERNEL(name, call)                                                                            \
    static QW_KERNEL name(const uint32_t *in, uint32_t *out)                                                 \
    {                                                                                                        \
        multiply(in, out,                                                                                    \
                 [](float(&d)[4], const uint32_t(&a)[4], const uint32_t(&b)[2]) { call(d, a, b); });         \
    }

MATRIX_KERNEL(matrix_bf16, qw_matrix_bf16)
MATRIX_KERNEL(matrix_f16, qw_matrix_f16)
MATRIX_KERNEL(portable_matrix_bf16, qw_portable_matrix<qw_bf16>)
MATRIX_KERNEL(portable_matrix_f16, qw_portable_matrix<qw_f16>)

/* Rows of 8 elements, 16 bytes, of which lanes name some in no order. */
enum { LINES = 64, LINE_PITCH = 24, LINE_BYTES = LINES * LINE_PITCH * 2 };

template <int WORDS, typename F>
static QW_DEVICE void load_matrices(const uint32_t *in, uint32_t *out, F instruction_of)
{
    qw_shared_arena arena;
    const qw_shared<qw_bf16> lines = arena.take<qw_bf16>(LINES * LINE_PITCH);
    for (int i = qw_lane(); i < LINES * 8; i += QW_WARP)
        lines[i / 8 * LINE_PITCH + i % 8] = qw_bf16{static_cast<uint16_t>(half_of(in, i))};
    qw_block_sync();
    uint32_t r[WORDS];
    instruction_of(r, lines, static_cast<int>(in[LINES * 4 + qw_lane()] % LINES) * LINE_PITCH);
    for (int i = 0; i < WORDS; i++)
        out[qw_lane() * WORDS + i] = r[i];
}

#define LOAD_KERNEL(name, words, call)                                                                       \
    static QW_KERNEL name(const uint32_t *in, uint32_t *out)                                                 \
    {                                                                                                        \
        load_matrices<words>(in, out, [](uint32_t(&r)[words], const qw_shared<qw_bf16> &lines, int i) {      \
            call(r, lines, i);                                                                               \
        });                                                                                                  \
    }

LOAD_KERNEL(load_2, 2, qw_load_matrix_2)
LOAD_KERNEL(load_4, 4, qw_load_matrix_4)
LOAD_KERNEL(load_2_transposed, 2, qw_load_matrix_2_transposed)
LOAD_KERNEL(load_4_transposed, 4, qw_load_matrix_4_transposed)
LOAD_KERNEL(portable_load_2, 2, (qw_portable_load_matrix<2, false>))
LOAD_KERNEL(portable_load_4, 4, (qw_portable_load_matrix<4, false>))
LOAD_KERNEL(portable_load_2_transposed, 2, (qw_portable_load_matrix<2, true>))
LOAD_KERNEL(portable_load_4_transposed, 4, (qw_portable_load_matrix<4, true>))

/* ---- copies ---------------------------------------------------------------------------------------------
 */

enum { COPY_GROUPS = 3, COPY_BYTES = COPY_GROUPS * BLOCK * 16 };

/* Three groups, each read as soon as it must have arrived; which copies are valid is random. */
static QW_KERNEL copies(const uint32_t *in, uint32_t *out)
{
    qw_shared_arena arena;
    const qw_shared<uint32_t> to = arena.take<uint32_t>(COPY_GROUPS * BLOCK * 4);
    const int t = qw_thread(), other = (t + QW_WARP + 1) % BLOCK;
    for (int group = 0; group < COPY_GROUPS; group++) {
        const int at = (group * BLOCK + t) * 4;
        qw_copy_async_16(to, at, in + at, in[at] % 3 != 0);
        qw_copy_commit();
    }
    auto show = [&](int group) {
        qw_block_sync();
        for (int i = 0; i < 4; i++)
            out[(group * BLOCK + t) * 4 + i] = to[(group * BLOCK + other) * 4 + i];
    };
    qw_copy_wait<2>();
    show(0);
    qw_copy_wait<1>();
    show(1);
    qw_copy_wait<0>();
    show(2);
}

static QW_KERNEL portable_copies(const uint32_t *in, uint32_t *out)
{
    qw_shared_arena arena;
    const qw_shared<uint32_t> to = arena.take<uint32_t>(COPY_GROUPS * BLOCK * 4);
    const int t = qw_thread();
    for (int at = 4 * t; at < COPY_GROUPS * BLOCK * 4; at += 4 * BLOCK)
        qw_portable_copy_16(to, at, in + at, in[at] % 3 != 0);
    qw_block_sync();
    for (int i = t; i < COPY_GROUPS * BLOCK * 4; i += BLOCK)
        out[i] = to[COPY_GROUPS * BLOCK * 4 - 1 - i];
}

/* ---- the table ------------------------------------------------------------------------------------------
 */

/* Of one block; of words, one a thread. */
#define ONE(name, of, as, inputs, outputs)                                                                   \
    {                                                                                                        \
#name, of, as, inputs, outputs, 1, BLOCK, 0, name                                                    \
    }
#define ALL(name, of, as, inputs, outputs, count)                                                            \
    {                                                                                                        \
#name, of, as, inputs, outputs, (count) / GRID_THREADS, GRID_THREADS, 0, name                        \
    }
/* Of one warp, and the shared memory of its lines. */
#define LINED(name, words)                                                                                   \
    {                                                                                                        \
#name, OF_BITS, AS_WORDS, LINES * 4 + 32, 32 * (words), 1, 32, LINE_BYTES, name                      \
    }
#define MATRIX(name, kernel, of, as)                                                                         \
    {                                                                                                        \
        name, of, as, MATRIX_WORDS_IN, MATRIX_WORDS_OUT, 1, 32, 0, kernel                                    \
    }
#define COPIES(name)                                                                                         \
    {                                                                                                        \
#name, OF_BITS, AS_WORDS, COPY_BYTES / 4, COPY_BYTES / 4, 1, BLOCK, COPY_BYTES, name                 \
    }

static const instruction table[] = {
    ONE(block_votes, OF_BITS, AS_WORDS, 8 * BLOCK, 32 * BLOCK),
    ONE(block_barriers, OF_BITS, AS_WORDS, BLOCK, BLOCK),
    ONE(warp_barriers, OF_BITS, AS_WORDS, BLOCK, BLOCK),
    ONE(warp_votes, OF_BITS, AS_WORDS, 8 * BLOCK, 48 * BLOCK),
    ONE(shuffle_words, OF_BITS, AS_WORDS, 2 * BLOCK, SHUFFLED *BLOCK),
    ONE(shuffle_floats, OF_FLOATS, AS_WORDS, 2 * BLOCK, SHUFFLED *BLOCK),
    ONE(shuffle_long_words, OF_BITS, AS_WORDS, 3 * BLOCK, 2 * SHUFFLED * BLOCK),
    ONE(shuffle_part, OF_BITS, AS_WORDS, 2 * BLOCK, BLOCK),
    ONE(sums, OF_RANGE, AS_WORDS, BLOCK, 8 * BLOCK),
    {"atomics_global", OF_BITS, AS_WORDS, 4 * BLOCK, 8 + 12 * BLOCK, 4, BLOCK, 0, atomics_global},
    ONE(atomics_shared, OF_BITS, AS_WORDS, BLOCK, 4 + BLOCK),
    {"vectors", OF_BITS, AS_WORDS, 10 * BLOCK, 12 * BLOCK, 1, BLOCK, 32 * BLOCK, vectors},
    ALL(widen_f16, OF_NOTHING, AS_FLOATS, 0, HALVES, HALVES),
    ALL(widen_bf16, OF_NOTHING, AS_WORDS, 0, HALVES, HALVES),
    ALL(widen_int8, OF_NOTHING, AS_WORDS, 0, 256, 256),
    ALL(narrow_f16, OF_FLOATS, AS_HALVES, MANY, MANY, MANY),
    {"narrow_f16_ties", OF_HALF_TIES, AS_HALVES, HALF_TIES, HALF_TIES, HALF_TIES / GRID_THREADS, GRID_THREADS,
     0, narrow_f16},
    ALL(narrow_bf16, OF_FLOATS, AS_WORDS, MANY, MANY, MANY),
    ALL(narrow_bf16_ties, OF_NOTHING, AS_WORDS, 0, 2 * HALVES, HALVES),
    ALL(pairs, OF_BITS, AS_FLOATS, MANY, 4 * MANY, MANY),
    ALL(products, OF_FLOATS, AS_FLOATS, 2 * MANY, 2 * MANY, MANY),
    ALL(divisions, OF_FLOATS, AS_FLOATS, 2 * MANY, 4 * MANY, MANY),
    ALL(functions, OF_RANGE, AS_FUNCTIONS, MANY, 4 * MANY, MANY),
    MATRIX("matrix_bf16_whole", matrix_bf16, OF_WHOLE_BF16, AS_WORDS),
    MATRIX("matrix_f16_whole", matrix_f16, OF_WHOLE_F16, AS_WORDS),
    MATRIX("matrix_bf16", matrix_bf16, OF_MATRIX_BF16, AS_SUMS),
    MATRIX("matrix_f16", matrix_f16, OF_MATRIX_F16, AS_SUMS),
    MATRIX("portable_matrix_bf16", portable_matrix_bf16, OF_MATRIX_BF16, AS_FLOATS),
    MATRIX("portable_matrix_f16", portable_matrix_f16, OF_MATRIX_F16, AS_FLOATS),
    LINED(load_2, 2),
    LINED(load_4, 4),
    LINED(load_2_transposed, 2),
    LINED(load_4_transposed, 4),
    LINED(portable_load_2, 2),
    LINED(portable_load_4, 4),
    LINED(portable_load_2_transposed, 2),
    LINED(portable_load_4_transposed, 4),
    COPIES(copies),
    COPIES(portable_copies),
};
static_assert(HALF_TIES % GRID_THREADS == 0, "whole blocks of middles");

const instruction *instruction_table(int32_t *count)
{
    *count = static_cast<int32_t>(sizeof table / sizeof table[0]);
    return table;
}

int32_t instruction_run(const instruction *i, const uint32_t *in, uint32_t *out)
{
    return qw_launch({}, i->kernel, dim3(static_cast<unsigned>(i->blocks)), static_cast<unsigned>(i->threads),
                     static_cast<size_t>(i->shared_bytes), in, out) == QWEN36_OK;
}
