/* The SIMT machine itself: what its barriers, collectives and instructions do, and that each planted fault is
 * found with a text that names it. */
#include "tests/harness.h"
#include "tests/simt/shim_kernels.h"
#include "tests/simt/simt.h"

#include <math.h>
#include <time.h>

TEST(shim, blocks_and_barriers)
{
    int32_t in[200], out[200];
    for (int32_t i = 0; i < 200; i++)
        in[i] = i * i;
    CHECK(shim_reverse(in, out, 200));
    for (int32_t i = 0; i < 200; i++) {
        const int32_t begin = i / 96 * 96, last = begin + 96 < 200 ? begin + 95 : 199;
        CHECK_INT(out[i], in[begin + last - i]);
    }
}

TEST(shim, shuffles)
{
    const int32_t width = simt_warp_width(), threads = 2 * width;
    int32_t out[4 * 128];
    float in[128], sums[2];
    CHECK(shim_shuffles(out));
    for (int32_t t = 0; t < threads; t++) {
        const int32_t lane = t % width;
        CHECK_INT(out[t], t - lane + 3);
        CHECK_INT(out[threads + t], lane < 2 ? t : t - 2);
        CHECK_INT(out[2 * threads + t], lane + 5 < width ? t + 5 : t);
        CHECK_INT(out[3 * threads + t], t ^ 9);
    }
    for (int32_t t = 0; t < threads; t++)
        in[t] = (float)t;
    CHECK(shim_warp_sum(in, sums, threads));
    CHECK(sums[0] == (float)(width * (width - 1) / 2));
    CHECK(sums[1] == (float)(width * width + width * (width - 1) / 2));
}

TEST(shim, votes_and_atomics)
{
    const int32_t expected[8] = {1, 1, 1, 0xB0, 1, 1, 7, 1};
    int32_t out[8] = {0};
    CHECK(shim_votes(out));
    for (int i = 0; i < 8; i++)
        CHECK_INT(out[i], expected[i]);
    int32_t sums[4] = {0};
    CHECK(shim_atomics(sums));
    CHECK_INT(sums[0], 4950);
    CHECK_INT(sums[1], 99);
    CHECK_INT(sums[2], 100);
    CHECK(sums[3] >= 1 && sums[3] <= 100);
}

TEST(shim, vectors)
{
    _Alignas(16) float in[64];
    float out[32];
    for (int i = 0; i < 64; i++)
        in[i] = (float)(i + 1);
    CHECK(shim_vectors(in, out, 64));
    for (int t = 0; t < 16; t++) {
        CHECK(out[2 * t] == in[62 - 2 * t] + 1);
        CHECK(out[2 * t + 1] == in[63 - 2 * t]);
    }
}

/* Small whole numbers, exact in both formats: value n as BF16 or F16. */
static uint16_t whole(int32_t n, int32_t half)
{
    float x = (float)n;
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    if (n == 0)
        return 0;
    if (half == 0)
        return (uint16_t)(bits >> 16);
    return (uint16_t)((bits >> 16 & 0x8000) | (((bits >> 23 & 255) - 112) << 10) | (bits >> 13 & 1023));
}

static int32_t entry(int32_t i)
{
    return i * 7 % 11 - 5;
}

static void check_product(const float *d, int32_t salt)
{
    for (int32_t row = 0; row < 16; row++)
        for (int32_t column = 0; column < 8; column++) {
            int32_t sum = 1;
            for (int32_t k = 0; k < 16; k++)
                sum += entry(row * 16 + k) * entry(salt + k * 8 + column);
            CHECK_MSG(d[row * 8 + column] == (float)sum, "(%d, %d) is %g, expected %d", row, column,
                      (double)d[row * 8 + column], sum);
        }
}

TEST(shim, matrix_instructions)
{
    for (int32_t which = 0; which < 2 && simt_warp_width() == 32; which++)
        for (int32_t half = 0; half < 2; half++) {
            uint16_t a[256], b[128];
            float d[128];
            for (int32_t i = 0; i < 256; i++)
                a[i] = whole(entry(i), half);
            for (int32_t i = 0; i < 128; i++) {
                b[i] = whole(entry(100 + i), half);
                d[i] = 1;
            }
            CHECK_MSG(shim_matrix(which, half, a, b, d), "%s", simt_fault());
            check_product(d, 100);
        }
}

TEST(shim, matrices_from_shared_memory)
{
    for (int32_t which = 0; which < 2 && simt_warp_width() == 32; which++)
        for (int32_t transposed = 0; transposed < 2; transposed++) {
            uint16_t a[256], b[128];
            float d[128];
            for (int32_t i = 0; i < 256; i++)
                a[i] = whole(entry(i), 0);
            for (int32_t k = 0; k < 16; k++)
                for (int32_t n = 0; n < 8; n++)
                    b[transposed ? k * 8 + n : n * 16 + k] = whole(entry(9 + k * 8 + n), 0);
            for (int32_t i = 0; i < 128; i++)
                d[i] = 1;
            CHECK_MSG(shim_load_matrix(which, transposed, a, b, d), "%s", simt_fault());
            check_product(d, 9);
        }
}

TEST(shim, asynchronous_copies)
{
    _Alignas(16) uint16_t in[512];
    uint16_t out[512];
    for (int i = 0; i < 512; i++)
        in[i] = (uint16_t)(i + 1);
    CHECK_MSG(shim_copies(in, out), "%s", simt_fault());
    for (int i = 0; i < 256; i++) {
        CHECK_INT(out[i], in[255 - i]);
        CHECK_INT(out[256 + i], (255 - i) / 8 % 2 == 0 ? in[511 - i] : 0);
    }
}

TEST(shim, finds_planted_faults)
{
    const struct {
        int32_t (*run)(void);
        const char *text;
        int32_t stuck; /* nobody can go on: the unchecked machine sees this, and nothing else */
    } faults[] = {
        {shim_fault_beyond, "element 16 lies beyond a shared array of 16", 0},
        {shim_fault_launch_bytes, "takes 80 bytes of shared memory, 64 were asked for", 0},
        {shim_fault_uninitialised, "nobody has written", 0},
        {shim_fault_uninitialised_in_next_block, "block (1,0,0)", 0},
        {shim_fault_early_exit, "threads wait at a block barrier", 1},
        {shim_fault_two_barriers, "at another one", 0},
        {shim_fault_absent_lane, "needs lane 7", 1},
        {shim_fault_lane_at_barrier, "which waits at the block barrier", 1},
        {shim_fault_reads_outsider, "lane 3 reads lane 4", 0},
        {shim_fault_race_write, "race: a write", 0},
        {shim_fault_race_read, "race", 0},
        {shim_fault_race_after_read, "race", 0},
        {shim_fault_race_in_warp, "race", 0},
        {shim_fault_race_across_warps, "race", 0},
        {shim_fault_race_static, "race", 0},
        {shim_fault_race_atomic, "race", 0},
        {shim_fault_copy_without_wait, "nobody has written", 0},
        {shim_fault_copy_without_barrier, "shared memory, which", 0},
        {shim_fault_copy_over_readers, "shared memory, which", 0},
        {shim_fault_alignment, "is not aligned", 0},
    };
    CHECK_TEXT(simt_fault(), "");
    for (size_t i = 0; i < sizeof faults / sizeof faults[0]; i++) {
        if (!simt_checks() && !faults[i].stuck)
            continue;
        const char *text = simt_checks() ? faults[i].text : "for ever";
        const int32_t ran = faults[i].run();
        CHECK_MSG(!ran && strstr(simt_fault(), text) != NULL, "expected \"%s\", the fault is \"%s\"", text,
                  simt_fault());
        simt_clear_fault();
        CHECK_MSG(shim_right_warp_barrier(), "%s", simt_fault());
    }
}

TEST(shim, launches_can_be_refused)
{
    int32_t in[1] = {1}, out[1];
    simt_refuse_launch(2);
    CHECK(shim_reverse(in, out, 1));
    CHECK(!shim_reverse(in, out, 1));
    CHECK_TEXT(simt_fault(), "");
    CHECK(shim_reverse(in, out, 1));
}

TEST(shim, switches_are_counted)
{
    int32_t out = 0;
    const uint64_t before = simt_switches();
    CHECK(shim_spin(1000, &out));
    CHECK_INT(out, 999);
    CHECK(simt_switches() - before >= 255 * 1000);
}
