#include "tests/simt/shim_kernels.h"

#include "kernels/cuda/runtime.h"

template <typename... P>
static int32_t run(void (*kernel)(P...), unsigned blocks, unsigned threads, size_t bytes,
                   typename qw_same<P>::type... arguments)
{
    return qw_launch({}, kernel, dim3(blocks), threads, bytes, arguments...) == QWEN36_OK;
}

/* ---- right ones -------------------------------------------------------------------------------------- */

enum { REVERSED = 96 };

static QW_KERNEL reverse(const int32_t *in, int32_t *out, int32_t count)
{
    qw_shared_arena arena;
    const qw_shared<int32_t> line = arena.take<int32_t>(REVERSED);
    const int t = static_cast<int>(threadIdx.x), begin = static_cast<int>(blockIdx.x) * REVERSED;
    if (begin + t < count)
        line[t] = in[begin + t];
    qw_block_sync();
    const int last = (count - begin < REVERSED ? count - begin : REVERSED) - 1;
    if (t <= last)
        out[begin + t] = line[last - t];
}

int32_t shim_reverse(const int32_t *in, int32_t *out, int32_t count)
{
    return run(reverse, static_cast<unsigned>((count + REVERSED - 1) / REVERSED), REVERSED, REVERSED * 4, in,
               out, count);
}

static QW_KERNEL warp_sum(const float *in, float *out)
{
    float sum = in[threadIdx.x];
    for (int by = QW_WARP / 2; by > 0; by /= 2)
        sum += qw_shuffle_down(QW_ALL_LANES, sum, by);
    if (threadIdx.x % QW_WARP == 0)
        out[threadIdx.x / QW_WARP] = sum;
}

int32_t shim_warp_sum(const float *in, float *out, int32_t count)
{
    return run(warp_sum, 1, static_cast<unsigned>(count), 0, in, out);
}

static QW_KERNEL shuffles(int32_t *out)
{
    const int t = static_cast<int>(threadIdx.x), threads = static_cast<int>(blockDim.x);
    out[t] = qw_shuffle(QW_ALL_LANES, t, 3);
    out[threads + t] = qw_shuffle_up(QW_ALL_LANES, t, 2);
    out[2 * threads + t] = qw_shuffle_down(QW_ALL_LANES, t, 5);
    out[3 * threads + t] =
        static_cast<int32_t>(qw_shuffle_xor(QW_ALL_LANES, static_cast<int64_t>(t) << 33, 9) >> 33);
}

int32_t shim_shuffles(int32_t *out)
{
    return run(shuffles, 1, 2 * QW_WARP, 0, out);
}

static QW_KERNEL votes(int32_t *out)
{
    const int t = static_cast<int>(threadIdx.x), lane = t % QW_WARP;
    const bool full = qw_active_lanes() == QW_ALL_LANES;
    const qw_lanes odd = qw_ballot(QW_ALL_LANES, lane % 2);
    const bool any = qw_any(QW_ALL_LANES, t == 5), all = qw_all(QW_ALL_LANES, t < QW_WARP);
    qw_lanes part = 0;
    if (lane >= 4 && lane < 8)
        part = qw_ballot(qw_lanes{0xF0}, lane != 6);
    const int some = qw_block_sync_or(t == 1), every = qw_block_sync_and(t >= 0),
              few = qw_block_sync_count(t < 7);
    if (t == 4) {
        const int32_t results[] = {
            odd == QW_ALL_LANES / 3 * 2, any, all, static_cast<int32_t>(part), some, every, few, full};
        for (int i = 0; i < 8; i++)
            out[i] = results[i];
    }
}

int32_t shim_votes(int32_t *out)
{
    return run(votes, 1, 2 * QW_WARP, 0, out);
}

static QW_KERNEL atomics(int32_t *out)
{
    QW_SHARED(int32_t, sums, 2);
    const int t = static_cast<int>(threadIdx.x);
    if (t < 2)
        sums[t] = 0;
    qw_block_sync();
    sums.atomic_add(0, t);
    sums.atomic_max(1, t);
    qw_atomic_add(&out[2], 1);
    qw_atomic_cas(&out[3], 0, t + 1);
    qw_block_sync();
    if (t < 2)
        out[t] = sums[t];
}

int32_t shim_atomics(int32_t *out)
{
    return run(atomics, 1, 100, 0, out);
}

static QW_KERNEL vectors(const float *in, float *out, int32_t count)
{
    qw_shared_arena arena;
    const qw_shared<float> line = arena.take<float>(count);
    const int t = static_cast<int>(threadIdx.x);
    line.store(4 * t, qw_load_constant(reinterpret_cast<const float4 *>(in) + t));
    qw_block_sync();
    const float2 pair = line.load<float2>(count - 2 - 2 * t);
    out[2 * t] = pair.x + static_cast<float>(line[0]);
    out[2 * t + 1] = pair.y;
}

int32_t shim_vectors(const float *in, float *out, int32_t count)
{
    return run(vectors, 1, static_cast<unsigned>(count / 4), static_cast<size_t>(count) * 4, in, out, count);
}

static QW_KERNEL spin(int32_t rounds, int32_t *out)
{
    QW_SHARED(int32_t, turn, 1);
    for (int i = 0; i < rounds; i++) {
        if (static_cast<int>(threadIdx.x) == i % 256)
            turn[0] = i;
        qw_block_sync();
    }
    if (threadIdx.x == 0)
        out[0] = turn[0];
}

int32_t shim_spin(int32_t rounds, int32_t *out)
{
    return run(spin, 1, 256, 0, rounds, out);
}

/* ---- matrix instructions ------------------------------------------------------------------------------ */

static QW_DEVICE uint32_t pair(uint16_t low, uint16_t high)
{
    return low | static_cast<uint32_t>(high) << 16;
}

static QW_DEVICE void add_tile(float *d, const float (&part)[4])
{
    const int g = qw_lane() / 4, t = qw_lane() % 4;
    d[g * 8 + 2 * t] += part[0];
    d[g * 8 + 2 * t + 1] += part[1];
    d[(g + 8) * 8 + 2 * t] += part[2];
    d[(g + 8) * 8 + 2 * t + 1] += part[3];
}

static QW_KERNEL matrix(int32_t which, int32_t half, const uint16_t *a, const uint16_t *b, float *d)
{
    const int g = qw_lane() / 4, t = qw_lane() % 4;
    uint32_t x[4], y[2];
    for (int i = 0; i < 4; i++) {
        const uint16_t *at = &a[(g + i % 2 * 8) * 16 + 2 * t + i / 2 * 8];
        x[i] = pair(at[0], at[1]);
    }
    for (int i = 0; i < 2; i++) {
        const uint16_t *at = &b[(2 * t + i * 8) * 8 + g];
        y[i] = pair(at[0], at[8]);
    }
    float sum[4] = {};
    if (which == 0 && half == 0)
        qw_matrix_bf16(sum, x, y);
    else if (which == 0)
        qw_matrix_f16(sum, x, y);
    else if (half == 0)
        qw_portable_matrix<qw_bf16>(sum, x, y);
    else
        qw_portable_matrix<qw_f16>(sum, x, y);
    add_tile(d, sum);
}

int32_t shim_matrix(int32_t which, int32_t half, const uint16_t *a, const uint16_t *b, float *d)
{
    return run(matrix, 1, 32, 0, which, half, a, b, d);
}

static QW_KERNEL load_matrix(int32_t which, int32_t transposed, const uint16_t *a, const uint16_t *b,
                             float *d)
{
    qw_shared_arena arena;
    const qw_shared<qw_bf16> x = arena.take<qw_bf16>(16 * 24), y = arena.take<qw_bf16>(16 * 24);
    const int lane = qw_lane(), columns = transposed != 0 ? 8 : 16;
    for (int i = lane; i < 256; i += 32)
        x[i / 16 * 24 + i % 16] = qw_bf16{a[i]};
    for (int i = lane; i < 128; i += 32)
        y[i / columns * 24 + i % columns] = qw_bf16{b[i]};
    qw_block_sync();
    /* Matrices of a in the order of its pairs: rows 0-7, rows 8-15, then the same 8 columns on. */
    const int at_x = lane % 16 * 24 + lane / 16 * 8;
    const int at_y = transposed != 0 ? lane % 16 * 24 : lane % 8 * 24 + lane / 8 % 2 * 8;
    uint32_t r[4], s[2];
    if (which == 0) {
        qw_load_matrix_4(r, x, at_x);
        if (transposed != 0)
            qw_load_matrix_2_transposed(s, y, at_y);
        else
            qw_load_matrix_2(s, y, at_y);
    } else {
        qw_portable_load_matrix<4, false>(r, x, at_x);
        if (transposed != 0)
            qw_portable_load_matrix<2, true>(s, y, at_y);
        else
            qw_portable_load_matrix<2, false>(s, y, at_y);
    }
    float sum[4] = {};
    qw_matrix_bf16(sum, r, s);
    add_tile(d, sum);
}

int32_t shim_load_matrix(int32_t which, int32_t transposed, const uint16_t *a, const uint16_t *b, float *d)
{
    return run(load_matrix, 1, 32, 2 * 16 * 24 * 2, which, transposed, a, b, d);
}

static QW_KERNEL copies(const uint16_t *in, uint16_t *out)
{
    qw_shared_arena arena;
    const qw_shared<qw_bf16> line = arena.take<qw_bf16>(512);
    const int t = static_cast<int>(threadIdx.x);
    qw_copy_async_16(line, t * 8, in + t * 8, true);
    qw_copy_commit();
    qw_copy_async_16(line, 256 + t * 8, in + 256 + t * 8, t % 2 == 0);
    qw_copy_commit();
    qw_copy_wait<1>();
    qw_block_sync();
    for (int i = t; i < 256; i += 32)
        out[i] = static_cast<qw_bf16>(line[255 - i]).bits;
    qw_copy_wait<0>();
    qw_block_sync();
    for (int i = t; i < 256; i += 32)
        out[256 + i] = static_cast<qw_bf16>(line[511 - i]).bits;
}

int32_t shim_copies(const uint16_t *in, uint16_t *out)
{
    return run(copies, 1, 32, 1024, in, out);
}

/* ---- faults ------------------------------------------------------------------------------------------- */

/* Runs one of the following bodies: a fault needs no arguments. */
#define FAULT(name, blocks, threads, bytes)                                                                  \
    static QW_KERNEL name##_kernel();                                                                        \
    int32_t shim_##name(void)                                                                                \
    {                                                                                                        \
        return run(name##_kernel, blocks, threads, bytes);                                                   \
    }                                                                                                        \
    static QW_KERNEL name##_kernel()

#define SELF static_cast<int>(threadIdx.x)

FAULT(fault_beyond, 1, 16, 64)
{
    qw_shared_arena arena;
    const qw_shared<float> line = arena.take<float>(16);
    line[SELF + (SELF == 15)] = 0.0F;
}

FAULT(fault_launch_bytes, 1, 32, 64)
{
    qw_shared_arena arena;
    arena.take<float>(8);
    arena.take<float>(9);
}

FAULT(fault_uninitialised, 1, 64, 0)
{
    QW_SHARED(float, line, 64);
    if (SELF != 40)
        line[SELF] = 1.0F;
    qw_block_sync();
    volatile float x = line[63 - SELF];
    (void)x;
}

FAULT(fault_uninitialised_in_next_block, 2, 32, 0)
{
    QW_SHARED(float, line, 32);
    if (blockIdx.x == 0)
        line[SELF] = 1.0F;
    qw_block_sync();
    volatile float x = line[SELF];
    (void)x;
}

FAULT(fault_early_exit, 1, 64, 0)
{
    if (SELF == 63)
        return;
    qw_block_sync();
}

FAULT(fault_two_barriers, 1, 64, 0)
{
    if (SELF < 32)
        qw_block_sync();
    else
        qw_block_sync();
}

FAULT(fault_absent_lane, 1, QW_WARP, 0)
{
    if (SELF != 7)
        qw_shuffle_xor(QW_ALL_LANES, SELF, 1);
}

FAULT(fault_lane_at_barrier, 1, QW_WARP, 0)
{
    if (SELF == 7)
        qw_block_sync();
    else
        qw_warp_sync();
}

FAULT(fault_reads_outsider, 1, QW_WARP, 0)
{
    if (SELF < 4)
        qw_shuffle(qw_lanes{0xF}, SELF, SELF + 1);
}

FAULT(fault_race_write, 1, 64, 0)
{
    QW_SHARED(float, line, 64);
    line[SELF == 50 ? 2 : SELF] = 0.0F;
}

FAULT(fault_race_read, 1, 64, 0)
{
    QW_SHARED(int32_t, line, 64);
    line[SELF] = 0;
    qw_block_sync();
    line[SELF] = SELF;
    volatile int32_t x = line[SELF ^ 32];
    (void)x;
}

FAULT(fault_race_after_read, 1, 64, 0)
{
    QW_SHARED(int32_t, line, 64);
    line[SELF] = SELF;
    qw_block_sync();
    const int32_t x = line[63 - SELF];
    line[SELF] = x;
}

FAULT(fault_race_in_warp, 1, QW_WARP, 0)
{
    QW_SHARED(int32_t, line, QW_WARP);
    line[SELF] = 0;
    qw_block_sync();
    line[SELF] = SELF;
    volatile int32_t x = line[SELF ^ 1];
    (void)x;
}

FAULT(right_warp_barrier, 1, 2 * QW_WARP, 0)
{
    QW_SHARED(int32_t, line, 2 * QW_WARP);
    line[SELF] = SELF;
    qw_warp_sync();
    const int32_t x = line[SELF ^ 1];
    qw_warp_sync();
    line[SELF] = x;
}

FAULT(fault_race_across_warps, 1, 2 * QW_WARP, 0)
{
    QW_SHARED(int32_t, line, 2 * QW_WARP);
    line[SELF] = 0;
    qw_block_sync();
    line[SELF] = SELF;
    qw_warp_sync();
    volatile int32_t x = line[SELF ^ QW_WARP];
    (void)x;
}

FAULT(fault_race_static, 1, 32, 0)
{
    QW_SHARED(qw_bf16, line, 2);
    line[SELF % 2] = qw_bf16{1};
}

FAULT(fault_race_atomic, 1, 32, 0)
{
    QW_SHARED(int32_t, sum, 1);
    if (SELF == 0)
        sum[0] = 0;
    qw_block_sync();
    sum.atomic_add(0, 1);
    volatile int32_t x = sum[0];
    (void)x;
}

QW_CONSTANT uint4 copied[64] = {{1, 2, 3, 4}};

FAULT(fault_copy_without_wait, 1, 32, 512)
{
    qw_shared_arena arena;
    const qw_shared<qw_bf16> line = arena.take<qw_bf16>(256);
    qw_copy_async_16(line, SELF * 8, copied + SELF, true);
    qw_copy_commit();
    qw_block_sync();
    const qw_bf16 x = line[SELF];
    (void)x;
}

FAULT(fault_copy_without_barrier, 1, 32, 512)
{
    qw_shared_arena arena;
    const qw_shared<qw_bf16> line = arena.take<qw_bf16>(256);
    qw_copy_async_16(line, SELF * 8, copied + SELF, true);
    qw_copy_commit();
    qw_copy_wait<0>();
    const qw_bf16 x = line[(SELF * 8 + 8) % 256];
    (void)x;
}

FAULT(fault_copy_over_readers, 1, 32, 512)
{
    qw_shared_arena arena;
    const qw_shared<qw_bf16> line = arena.take<qw_bf16>(256);
    for (int i = 0; i < 8; i++)
        line[SELF * 8 + i] = qw_bf16{0};
    qw_block_sync();
    const qw_bf16 x = line[(SELF * 8 + 8) % 256];
    (void)x;
    qw_copy_async_16(line, SELF * 8, copied + SELF, true);
    qw_copy_commit();
    qw_copy_wait<0>();
}

FAULT(fault_alignment, 1, 32, 512)
{
    qw_shared_arena arena;
    const qw_shared<float> line = arena.take<float>(128);
    line.store(4 * SELF - (SELF == 3), float2{0, 0});
}
