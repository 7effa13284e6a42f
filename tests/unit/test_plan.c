/* Plans for devices that nobody has at hand: which row of each table serves, and that its cut fits the
 * device. */
#include "lib/backend.h"
#include "lib/plan/plan.h"
#include "tests/harness.h"

static const qw_device_profile h200 = {.capability = 90,
                                       .multiprocessors = 132,
                                       .warp_width = 32,
                                       .matrix_bf16 = 1,
                                       .async_copy = 1,
                                       .shared_bytes = 232448,
                                       .l2_bytes = 50 << 20,
                                       .bandwidth = 4800000000000};
static const qw_device_profile rtx5090 = {.capability = 120,
                                          .multiprocessors = 170,
                                          .warp_width = 32,
                                          .matrix_bf16 = 1,
                                          .async_copy = 1,
                                          .shared_bytes = 101376,
                                          .l2_bytes = 96 << 20,
                                          .bandwidth = 1792000000000};
static const qw_device_profile a100 = {.capability = 80,
                                       .multiprocessors = 108,
                                       .warp_width = 32,
                                       .matrix_bf16 = 1,
                                       .async_copy = 1,
                                       .shared_bytes = 166912,
                                       .l2_bytes = 40 << 20,
                                       .bandwidth = 1555000000000};
static const qw_device_profile t4 = {.capability = 75,
                                     .multiprocessors = 40,
                                     .warp_width = 32,
                                     .shared_bytes = 65536,
                                     .l2_bytes = 4 << 20,
                                     .bandwidth = 320000000000};
/* 16 multiprocessors, warps of 64 lanes, 48 KiB, neither BF16 units nor asynchronous copies. */
static const qw_device_profile plain = {.capability = 70,
                                        .multiprocessors = 16,
                                        .warp_width = 64,
                                        .shared_bytes = 49152,
                                        .l2_bytes = 4 << 20,
                                        .bandwidth = 900000000000};
static const qw_device_profile *const devices[] = {&h200, &rtx5090, &a100, &t4, &plain};
static const int32_t has_matrix[] = {1, 1, 1, 0, 0};

TEST(plan, products)
{
    for (size_t d = 0; d < QW_COUNT_OF(devices); d++) {
        const int32_t many = has_matrix[d] ? QW_PRODUCT_MATRIX : QW_PRODUCT_TILED;
        const struct {
            qw_product_shape shape;
            int32_t row;
        } cases[] = {
            {{1, 2048, 8192, QW_BF16, 1, 1, 0}, QW_PRODUCT_FEW},
            {{8, 2048, 8192, QW_BF16, 1, 1, 0}, QW_PRODUCT_FEW},
            {{9, 2048, 8192, QW_BF16, 1, 1, 0}, many},
            {{2048, 5120, 17408, QW_BF16, 1, 0, 0}, many},
            {{64, 2048, 64, QW_F32, 1, 1, 0}, QW_PRODUCT_TILED},
            {{64, 2048, 64, QW_F16, 1, 1, 0}, QW_PRODUCT_TILED},
            {{64, 2044, 64, QW_BF16, 1, 1, 0}, QW_PRODUCT_TILED},
            {{64, 2048, 64, QW_BF16, 0, 1, 0}, QW_PRODUCT_TILED},
            {{1, 2048, 8192, QW_BF16, 1, 1, 1}, many},
            {{1, 2048, 8192, QW_F16, 1, 1, 1}, QW_PRODUCT_TILED},
        };
        for (size_t i = 0; i < QW_COUNT_OF(cases); i++) {
            const int32_t row = qw_plan_product(devices[d], &cases[i].shape);
            CHECK_MSG(row == cases[i].row, "device %zu case %zu: %s", d, i, qw_plan_product_name(row));
            CHECK(qw_plan_product_shared(row, 1) <= devices[d]->shared_bytes);
        }
    }
}

/* Where a library is at hand it takes plain products of many rows in its formats, and nothing else. */
TEST(plan, products_by_a_library)
{
    for (size_t d = 0; d < QW_COUNT_OF(devices); d++) {
        qw_device_profile with = *devices[d];
        with.library = 1;
        const struct {
            qw_product_shape shape;
            int32_t library;
        } cases[] = {
            {{9, 2048, 8192, QW_BF16, 1, 1, 0}, 1},     {{2048, 5120, 17408, QW_F16, 1, 1, 0}, 1},
            {{8, 2048, 8192, QW_BF16, 1, 1, 0}, 0},     {{64, 2048, 64, QW_F32, 1, 1, 0}, 0},
            {{64, 2044, 64, QW_BF16, 1, 1, 0}, 0},      {{64, 2048, 64, QW_BF16, 0, 1, 0}, 0},
            {{2048, 5120, 17408, QW_BF16, 1, 0, 0}, 0}, {{2048, 5120, 17408, QW_BF16, 1, 1, 1}, 0},
        };
        for (size_t i = 0; i < QW_COUNT_OF(cases); i++) {
            const int32_t without = qw_plan_product(devices[d], &cases[i].shape);
            CHECK(without != QW_PRODUCT_LIBRARY);
            CHECK_INT(qw_plan_product(&with, &cases[i].shape),
                      cases[i].library ? QW_PRODUCT_LIBRARY : without);
        }
    }
}

TEST(plan, experts)
{
    for (size_t d = 0; d < QW_COUNT_OF(devices); d++) {
        qw_experts_shape shape = {1, 8, 256, 2048, 512, QW_BF16, 1, 0, 0};
        CHECK_TEXT(qw_plan_experts_name(qw_plan_experts(devices[d], &shape)), "direct");
        shape.rows = 8; /* 64 choices among 256 experts */
        CHECK_INT(qw_plan_experts(devices[d], &shape), QW_EXPERTS_DIRECT);
        shape.rows = 9;
        CHECK_INT(qw_plan_experts(devices[d], &shape), has_matrix[d] ? QW_EXPERTS_MATRIX : QW_EXPERTS_TILED);
        shape.rows = 1;
        shape.invariant = 1;
        CHECK_INT(qw_plan_experts(devices[d], &shape), has_matrix[d] ? QW_EXPERTS_MATRIX : QW_EXPERTS_TILED);
        shape.invariant = 0;
        shape.mixed = 1;
        CHECK_INT(qw_plan_experts(devices[d], &shape), QW_EXPERTS_TILED);
        shape.rows = 9;
        shape.mixed = 0;
        shape.weight_dtype = QW_F32;
        CHECK_INT(qw_plan_experts(devices[d], &shape), QW_EXPERTS_TILED);
    }
}

/* The 35B mixture of experts: 16 query heads, 2 KV heads of 256. */
static qw_attention_shape attention_shape(int64_t sequences, int64_t rows, int64_t longest)
{
    return (qw_attention_shape){.rows = sequences * rows,
                                .sequences = sequences,
                                .longest_rows = rows,
                                .longest = longest,
                                .heads = 16,
                                .kv_heads = 2,
                                .head_dim = 256,
                                .partial_bytes = 512 * 16 * qw_plan_attention_partial_bytes(256),
                                .kv_dtype = QW_BF16};
}

TEST(plan, attention_rows)
{
    /* 48 KiB hold the general row at a head size of 256; 99 KiB the narrow matrix row, not the wide one. */
    const int32_t decode[] = {QW_ATTENTION_MATRIX, QW_ATTENTION_MATRIX, QW_ATTENTION_MATRIX,
                              QW_ATTENTION_GENERAL, QW_ATTENTION_GENERAL};
    const int32_t prefill[] = {QW_ATTENTION_MATRIX_WIDE, QW_ATTENTION_MATRIX, QW_ATTENTION_MATRIX_WIDE,
                               QW_ATTENTION_GENERAL, QW_ATTENTION_GENERAL};
    for (size_t d = 0; d < QW_COUNT_OF(devices); d++) {
        const qw_attention_shape one = attention_shape(4, 1, 1000), many = attention_shape(1, 512, 512);
        const qw_attention_plan a = qw_plan_attention(devices[d], &one),
                                b = qw_plan_attention(devices[d], &many);
        CHECK_MSG(a.row == decode[d], "device %zu decodes by %s", d, qw_plan_attention_name(a.row));
        CHECK_MSG(b.row == prefill[d], "device %zu prefills by %s", d, qw_plan_attention_name(b.row));
        CHECK(qw_plan_attention_shared(a.row, 256) <= devices[d]->shared_bytes);
        CHECK(qw_plan_attention_shared(b.row, 256) <= devices[d]->shared_bytes);
        qw_attention_shape wide_cache = one;
        wide_cache.kv_dtype = QW_F32;
        CHECK_INT(qw_plan_attention(devices[d], &wide_cache).row, QW_ATTENTION_GENERAL);
        qw_attention_shape small_cache = one;
        small_cache.kv_dtype = QW_I8;
        CHECK_INT(qw_plan_attention(devices[d], &small_cache).row, decode[d]);
    }
}

/* Partitions cover the context, are never empty by plan, fit the room, and follow the device's size. */
TEST(plan, attention_partitions)
{
    for (size_t d = 0; d < QW_COUNT_OF(devices); d++)
        for (int64_t sequences = 1; sequences <= 64; sequences *= 4)
            for (int64_t longest = 1; longest <= 262144; longest += longest / 3 + 1) {
                const qw_attention_shape shape = attention_shape(sequences, 1, longest);
                const qw_attention_plan plan = qw_plan_attention(devices[d], &shape);
                const int64_t blocks = (longest + QW_KV_BLOCK - 1) / QW_KV_BLOCK;
                CHECK((int64_t)plan.partition * plan.partitions >= blocks);
                CHECK((int64_t)plan.partition * (plan.partitions - 1) < blocks);
                CHECK(shape.rows * 16 * plan.partitions * qw_plan_attention_partial_bytes(256) <=
                          shape.partial_bytes ||
                      plan.partitions == 1);
                CHECK(plan.rows >= 1);
                if (longest <= 4 * QW_KV_BLOCK)
                    CHECK_INT(plan.partitions, 1);
            }
    const qw_attention_shape one = attention_shape(1, 1, 32768), crowd = attention_shape(64, 1, 32768);
    CHECK(qw_plan_attention(&h200, &one).partitions > qw_plan_attention(&plain, &one).partitions);
    CHECK(qw_plan_attention(&h200, &one).partitions > 64);
    CHECK(qw_plan_attention(&plain, &crowd).partitions == 1);
}

/* Rows out of use are passed over; the last of each table stays. */
TEST(plan, disabled_rows)
{
    qw_device_profile device = h200;
    const qw_product_shape product = {
        .rows = 64, .depth = 2048, .columns = 64, .weight_dtype = QW_BF16, .aligned = 1};
    const qw_product_shape alone = {
        .rows = 64, .depth = 2048, .columns = 64, .weight_dtype = QW_BF16, .aligned = 1, .plain = 1};
    const qw_experts_shape experts = {64, 8, 256, 2048, 512, QW_BF16, 1, 0, 0};
    const qw_attention_shape many = attention_shape(1, 512, 512);
    device.disabled = qw_plan_bit(QW_PLAN_ATTENTION, QW_ATTENTION_MATRIX_WIDE);
    CHECK_INT(qw_plan_attention(&device, &many).row, QW_ATTENTION_MATRIX);
    CHECK_INT(qw_plan_product(&device, &product), QW_PRODUCT_MATRIX);
    device.disabled = qw_plan_special_rows();
    CHECK_INT(qw_plan_attention(&device, &many).row, QW_ATTENTION_GENERAL);
    CHECK_INT(qw_plan_product(&device, &product), QW_PRODUCT_TILED);
    device.library = 1;
    CHECK_INT(qw_plan_product(&device, &alone), QW_PRODUCT_TILED);
    device.disabled = 0;
    CHECK_INT(qw_plan_product(&device, &alone), QW_PRODUCT_LIBRARY);
    device.disabled = qw_plan_special_rows();
    CHECK_INT(qw_plan_experts(&device, &experts), QW_EXPERTS_TILED);
    device.disabled = UINT32_MAX;
    CHECK_INT(qw_plan_attention(&device, &many).row, QW_ATTENTION_GENERAL);
    CHECK_TEXT(qw_plan_bit_name(qw_plan_bit(QW_PLAN_ATTENTION, QW_ATTENTION_MATRIX)), "matrix attention");
    CHECK_TEXT(qw_plan_bit_name(qw_plan_bit(QW_PLAN_PRODUCTS, QW_PRODUCT_LIBRARY)),
               "the library of products");
    CHECK_TEXT(qw_plan_bit_name(qw_plan_bit(QW_PLAN_PRODUCTS, QW_PRODUCT_FEW)), "");
}

/* An invariant plan cuts the context at places that follow from the configuration alone. */
TEST(plan, invariant_attention)
{
    for (size_t d = 0; d < QW_COUNT_OF(devices); d++)
        for (int64_t sequences = 1; sequences <= 64; sequences *= 4)
            for (int64_t longest = 1; longest <= 262144; longest += longest / 3 + 1) {
                qw_attention_shape shape = attention_shape(sequences, 1, longest);
                shape.invariant = 1;
                shape.context = 262144;
                CHECK_INT(qw_plan_attention(devices[d], &shape).partition, 262144 / 64 / 64);
                shape.context = 16384;
                const qw_attention_plan plan = qw_plan_attention(devices[d], &shape);
                CHECK_INT(plan.partition, QW_ATTENTION_FIXED_PARTITION);
                CHECK_INT(plan.partitions, (longest + 511) / 512);
            }
}
