#include "lib/plan/plan.h"

#include "lib/backend.h"

static int in_use(const qw_device_profile *profile, int32_t table, int32_t row)
{
    return (profile->disabled & qw_plan_bit(table, row)) == 0;
}

/* ---- matrix products -------------------------------------------------------------------------------- */

typedef struct product_row {
    const char *name;
    int (*accepts)(const qw_device_profile *, const qw_product_shape *);
    int64_t shared, shared_dual; /* bytes of a block */
} product_row;

static int few_rows(const qw_device_profile *profile, const qw_product_shape *s)
{
    (void)profile;
    return s->rows <= QW_PRODUCT_FEW_ROWS && !s->invariant;
}

/* A library takes x in the weight's format, and does no more than the product. */
static int library_product(const qw_device_profile *profile, const qw_product_shape *s)
{
    return profile->library && s->plain && !s->invariant &&
           (s->weight_dtype == QW_BF16 || s->weight_dtype == QW_F16) && s->aligned && s->depth % 8 == 0;
}

/* The instructions take BF16; an F16 weight would want activations in F16, whose range they may leave. Depth
 * is copied by 8 elements. */
static int matrix_fits(const qw_device_profile *profile, int32_t dtype, int32_t aligned, int64_t depth)
{
    return profile->matrix_bf16 && profile->async_copy && profile->warp_width == 32 && dtype == QW_BF16 &&
           aligned && depth % 8 == 0;
}

static int matrix_product(const qw_device_profile *profile, const qw_product_shape *s)
{
    return matrix_fits(profile, s->weight_dtype, s->aligned, s->depth);
}

static int any_product(const qw_device_profile *profile, const qw_product_shape *s)
{
    (void)profile;
    (void)s;
    return 1;
}

/* A stage: 64 rows of 40 BF16; two for x and for each weight. A tile: 16 lines of 68 float32. */
enum { STAGE_BYTES = 64 * 40 * 2, TILE_BYTES = 16 * 68 * 4 };

static const product_row product_rows[QW_PRODUCT_ROWS] = {
    [QW_PRODUCT_FEW] = {"few", few_rows, 0, 0},
    [QW_PRODUCT_LIBRARY] = {"library", library_product, 0, 0},
    [QW_PRODUCT_MATRIX] = {"matrix", matrix_product, 4 * STAGE_BYTES, 6 * STAGE_BYTES},
    [QW_PRODUCT_TILED] = {"tiled", any_product, 2 * TILE_BYTES, 3 * TILE_BYTES},
};

int32_t qw_plan_product(const qw_device_profile *profile, const qw_product_shape *shape)
{
    int32_t row = 0;
    while (row < QW_PRODUCT_ROWS - 1 &&
           (!in_use(profile, QW_PLAN_PRODUCTS, row) || !product_rows[row].accepts(profile, shape) ||
            product_rows[row].shared_dual > profile->shared_bytes))
        row++;
    return row;
}

int64_t qw_plan_product_shared(int32_t row, int32_t dual)
{
    return dual ? product_rows[row].shared_dual : product_rows[row].shared;
}

const char *qw_plan_product_name(int32_t row)
{
    return product_rows[row].name;
}

/* ---- experts ---------------------------------------------------------------------------------------- */

typedef struct experts_row {
    const char *name;
    int (*accepts)(const qw_device_profile *, const qw_experts_shape *);
} experts_row;

/* Sorting pays when an expert is met by several rows: as long as each choice is likely to be alone with its
 * expert, its weights are read once anyway. */
static int direct_experts(const qw_device_profile *profile, const qw_experts_shape *s)
{
    (void)profile;
    return !s->invariant && !s->mixed && (s->rows == 1 || s->rows * s->top_k * 4 <= s->experts);
}

static int matrix_experts(const qw_device_profile *profile, const qw_experts_shape *s)
{
    return matrix_fits(profile, s->weight_dtype, s->aligned, s->hidden) && !s->mixed && s->width % 8 == 0 &&
           6 * STAGE_BYTES <= profile->shared_bytes;
}

static int any_experts(const qw_device_profile *profile, const qw_experts_shape *s)
{
    (void)profile;
    (void)s;
    return 1;
}

static const experts_row experts_rows[QW_EXPERTS_ROWS] = {
    [QW_EXPERTS_DIRECT] = {"direct", direct_experts},
    [QW_EXPERTS_MATRIX] = {"matrix", matrix_experts},
    [QW_EXPERTS_TILED] = {"tiled", any_experts},
};

int32_t qw_plan_experts(const qw_device_profile *profile, const qw_experts_shape *shape)
{
    int32_t row = 0;
    while (row < QW_EXPERTS_ROWS - 1 &&
           (!in_use(profile, QW_PLAN_EXPERTS, row) || !experts_rows[row].accepts(profile, shape)))
        row++;
    return row;
}

const char *qw_plan_experts_name(int32_t row)
{
    return experts_rows[row].name;
}

/* ---- attention -------------------------------------------------------------------------------------- */

typedef struct attention_row {
    const char *name;
    int (*accepts)(const qw_device_profile *, const qw_attention_shape *);
    int32_t pairs;
} attention_row;

/* Caches whose elements are BF16 numbers (8-bit integers are), whole matrix instructions along the head, and
 * all query heads of a KV head in one block. */
static int matrix_attention(const qw_device_profile *profile, const qw_attention_shape *s, int32_t row,
                            int64_t pairs)
{
    return profile->matrix_bf16 && profile->async_copy && profile->warp_width == 32 &&
           (s->kv_dtype == QW_BF16 || s->kv_dtype == QW_I8) && s->head_dim % 32 == 0 && s->head_dim <= 256 &&
           s->heads / s->kv_heads <= pairs &&
           qw_plan_attention_shared(row, s->head_dim) <= profile->shared_bytes;
}

/* Wide blocks where a sequence has rows to fill them. */
static int wide_attention(const qw_device_profile *profile, const qw_attention_shape *s)
{
    return matrix_attention(profile, s, QW_ATTENTION_MATRIX_WIDE, QW_ATTENTION_WIDE_PAIRS) &&
           s->longest_rows * (s->heads / s->kv_heads) > QW_ATTENTION_PAIRS;
}

static int narrow_attention(const qw_device_profile *profile, const qw_attention_shape *s)
{
    return matrix_attention(profile, s, QW_ATTENTION_MATRIX, QW_ATTENTION_PAIRS);
}

static int any_attention(const qw_device_profile *profile, const qw_attention_shape *s)
{
    (void)profile;
    (void)s;
    return 1;
}

static const attention_row attention_rows[QW_ATTENTION_ROWS] = {
    [QW_ATTENTION_MATRIX_WIDE] = {"matrix-wide", wide_attention, QW_ATTENTION_WIDE_PAIRS},
    [QW_ATTENTION_MATRIX] = {"matrix", narrow_attention, QW_ATTENTION_PAIRS},
    [QW_ATTENTION_GENERAL] = {"general", any_attention, QW_ATTENTION_PAIRS},
};

/* General: queries, accumulators [16, hd], scores [16, 64], a tile of 64 x 33, three numbers a pair; all
 * float32. Matrix: queries [pairs, hd + 8], K and V [64, hd + 8], probabilities [pairs, 72] in BF16, scores
 * [pairs, 68] and three numbers a pair in float32. */
int64_t qw_plan_attention_shared(int32_t row, int64_t head_dim)
{
    const int64_t pairs = attention_rows[row].pairs;
    if (row == QW_ATTENTION_GENERAL)
        return 4 * (2 * pairs * head_dim + pairs * 64 + 64 * 33 + 3 * pairs) + 5 * 16;
    return 2 * ((pairs + 2 * 64) * (head_dim + 8) + pairs * 72) + 4 * (pairs * 68 + 3 * pairs) + 7 * 16;
}

int64_t qw_plan_attention_partial_bytes(int64_t head_dim)
{
    return (head_dim + 2) * 4;
}

static int64_t ceil_div(int64_t a, int64_t b)
{
    return (a + b - 1) / b;
}

/* The context is cut while the blocks do not fill the device twice, into parts of at least 4 KV blocks, as
 * far as the room for partial results reaches. */
static int64_t partitions(const qw_device_profile *profile, const qw_attention_shape *s, int64_t rows_a_block)
{
    const int64_t kv_blocks = QW_MAX(1, ceil_div(s->longest, QW_KV_BLOCK));
    const int64_t tiles = QW_MAX(s->sequences, ceil_div(s->rows, rows_a_block)) * s->kv_heads;
    const int64_t wanted = ceil_div(2 * (int64_t)profile->multiprocessors, QW_MAX(1, tiles));
    const int64_t one = QW_MAX(1, s->rows) * s->heads * qw_plan_attention_partial_bytes(s->head_dim);
    return QW_MAX(1, QW_MIN(QW_MIN(wanted, kv_blocks / 4), s->partial_bytes / one));
}

int64_t qw_plan_attention_fixed(int64_t context)
{
    return QW_MAX(QW_ATTENTION_FIXED_PARTITION,
                  ceil_div(ceil_div(context, QW_KV_BLOCK), QW_ATTENTION_FIXED_PARTITIONS));
}

/* KV blocks of a partition. Invariant: a number that neither the batch nor its lengths change, counted from
 * the begin of the sequence, so that a row's parts and the order of their merge are its own. Which of the
 * matrix rows serves may follow the batch even so: both give a pair the same operations in the same order. */
static int64_t partition_blocks(const qw_device_profile *profile, const qw_attention_shape *s,
                                int64_t rows_a_block)
{
    if (s->invariant)
        return qw_plan_attention_fixed(s->context);
    return ceil_div(QW_MAX(1, ceil_div(s->longest, QW_KV_BLOCK)), partitions(profile, s, rows_a_block));
}

int32_t qw_plan_attention_rows(int32_t row, int64_t group)
{
    return (int32_t)QW_MAX(1, attention_rows[row].pairs / group);
}

qw_attention_plan qw_plan_attention(const qw_device_profile *profile, const qw_attention_shape *shape)
{
    qw_attention_plan plan = {0, 1, 1, 1};
    while (plan.row < QW_ATTENTION_ROWS - 1 && (!in_use(profile, QW_PLAN_ATTENTION, plan.row) ||
                                                !attention_rows[plan.row].accepts(profile, shape)))
        plan.row++;
    plan.rows = qw_plan_attention_rows(plan.row, shape->heads / shape->kv_heads);
    const int64_t blocks = QW_MAX(1, ceil_div(shape->longest, QW_KV_BLOCK));
    plan.partition = (int32_t)partition_blocks(profile, shape, plan.rows);
    plan.partitions = (int32_t)ceil_div(blocks, plan.partition);
    return plan;
}

const char *qw_plan_attention_name(int32_t row)
{
    return attention_rows[row].name;
}

/* ---- rows out of use -------------------------------------------------------------------------------- */

static const struct {
    int32_t table, row;
    const char *name;
} special_rows[] = {
    {QW_PLAN_PRODUCTS, QW_PRODUCT_LIBRARY, "the library of products"},
    {QW_PLAN_PRODUCTS, QW_PRODUCT_MATRIX, "matrix products"},
    {QW_PLAN_EXPERTS, QW_EXPERTS_MATRIX, "matrix experts"},
    {QW_PLAN_ATTENTION, QW_ATTENTION_MATRIX_WIDE, "matrix-wide attention"},
    {QW_PLAN_ATTENTION, QW_ATTENTION_MATRIX, "matrix attention"},
};

uint32_t qw_plan_special_rows(void)
{
    uint32_t rows = 0;
    for (size_t i = 0; i < QW_COUNT_OF(special_rows); i++)
        rows |= qw_plan_bit(special_rows[i].table, special_rows[i].row);
    return rows;
}

const char *qw_plan_bit_name(uint32_t bit)
{
    for (size_t i = 0; i < QW_COUNT_OF(special_rows); i++)
        if (qw_plan_bit(special_rows[i].table, special_rows[i].row) == bit)
            return special_rows[i].name;
    return "";
}
