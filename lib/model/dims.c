#include "lib/model/dims.h"

#include <limits.h>

void qw_dims_alternate(qw_dims *dims, int32_t interval)
{
    for (int32_t i = 0; i < dims->layers; i++)
        dims->layer_kind[i] = (i + 1) % interval == 0 ? QW_LAYER_FULL : QW_LAYER_LINEAR;
}

/* --- Checks --------------------------------------------------------------------------------------- */

/* No published size comes near this, and two of them multiply without overflow in 64 bits. */
#define LARGEST (1 << 24)

static qwen36_status check_range(const char *name, int64_t value, int64_t min, int64_t max, const char *file,
                                 qwen36_error *error)
{
    if (value >= min && value <= max)
        return QWEN36_OK;
    return qw_fail(error, QWEN36_ERROR_CONFIG, "%s: %s is %lld, expected %lld to %lld", file, name,
                   (long long)value, (long long)min, (long long)max);
}

static qwen36_status check_ranges(const qw_dims *d, const char *file, qwen36_error *error)
{
    const struct {
        const char *name;
        int64_t value, min, max;
        bool applies;
    } ranges[] = {
        {"vocab_size", d->vocab_size, 1, LARGEST, true},
        {"hidden_size", d->hidden, 1, LARGEST, true},
        {"num_hidden_layers", d->layers, 1, QW_MAX_LAYERS, true},
        {"num_attention_heads", d->heads, 1, LARGEST, true},
        {"num_key_value_heads", d->kv_heads, 1, LARGEST, true},
        {"head_dim", d->head_dim, 1, LARGEST, true},
        {"linear_num_key_heads", d->lin_k_heads, 1, LARGEST, true},
        {"linear_num_value_heads", d->lin_v_heads, 1, LARGEST, true},
        {"linear_key_head_dim", d->lin_k_dim, 1, LARGEST, true},
        {"linear_value_head_dim", d->lin_v_dim, 1, LARGEST, true},
        {"linear_conv_kernel_dim", d->conv_width, 2, 64, true},
        {"max_position_embeddings", d->max_positions, 1, INT32_MAX, true},
        {"intermediate_size", d->intermediate, 1, LARGEST, !d->is_moe},
        {"num_experts", d->experts, 1, QW_MAX_EXPERTS, d->is_moe},
        {"num_experts_per_tok", d->top_k, 1, QW_MIN(d->experts, QW_MAX_TOP_K), d->is_moe},
        {"moe_intermediate_size", d->expert_size, 1, LARGEST, d->is_moe},
        {"shared_expert_intermediate_size", d->shared_size, 1, LARGEST, d->is_moe},
    };
    for (size_t i = 0; i < QW_COUNT_OF(ranges); i++) {
        qwen36_status status = ranges[i].applies ? check_range(ranges[i].name, ranges[i].value, ranges[i].min,
                                                               ranges[i].max, file, error)
                                                 : QWEN36_OK;
        if (status != QWEN36_OK)
            return status;
    }
    return QWEN36_OK;
}

/* Rows of every matrix fit int32_t, and its bytes (4 per element) int64_t. */
static qwen36_status check_products(const qw_dims *d, const char *file, qwen36_error *error)
{
    const uint64_t key = (uint64_t)d->lin_k_heads * (uint64_t)d->lin_k_dim;
    const uint64_t value = (uint64_t)d->lin_v_heads * (uint64_t)d->lin_v_dim;
    const struct {
        const char *names;
        uint64_t rows, times;
    } matrices[] = {
        {"num_attention_heads x head_dim", 2 * (uint64_t)d->heads * (uint64_t)d->head_dim, 1},
        {"the linear attention's heads x dims", 2 * key + value, 1},
        {"the linear attention's state", value * (uint64_t)d->lin_k_dim, 1},
        {"the experts' sizes", 2 * (uint64_t)d->expert_size, (uint64_t)d->experts},
    };
    for (size_t i = 0; i < QW_COUNT_OF(matrices); i++) {
        uint64_t bytes = 4 * (uint64_t)d->hidden; /* < 2^27 */
        bool fits = qw_mul(bytes, matrices[i].rows, &bytes) && qw_mul(bytes, matrices[i].times, &bytes);
        if (matrices[i].rows > INT32_MAX || !fits || bytes > INT64_MAX)
            return qw_fail(error, QWEN36_ERROR_CONFIG, "%s: %s multiply to more than can be addressed", file,
                           matrices[i].names);
    }
    return QWEN36_OK;
}

static qwen36_status check_rope(const qw_dims *d, const char *file, qwen36_error *error)
{
    if (d->rotary_dim < 2 || d->rotary_dim % 2 != 0 || d->rotary_dim > d->head_dim)
        return qw_fail(error, QWEN36_ERROR_CONFIG,
                       "%s: head_dim x partial_rotary_factor is %d, expected an even number of 2 to %d", file,
                       d->rotary_dim, d->head_dim);
    const int32_t *section = d->mrope_section;
    if (section[0] < 0 || section[1] < 0 || section[2] < 0 ||
        (int64_t)section[0] + section[1] + section[2] != d->rotary_dim / 2)
        return qw_fail(error, QWEN36_ERROR_CONFIG,
                       "%s: mrope_section is [%d, %d, %d], expected a sum of %d (half the rotary dimension)",
                       file, section[0], section[1], section[2], d->rotary_dim / 2);
    if (!(d->rope_theta >= 1.1 && d->rope_theta <= 1e30))
        return qw_fail(error, QWEN36_ERROR_CONFIG, "%s: rope_theta is not in 1.1 to 10^30", file);
    return QWEN36_OK;
}

static qwen36_status check_yarn(qw_dims *d, const char *file, qwen36_error *error)
{
    if (!(d->yarn_factor >= 1.0 && d->yarn_factor <= 1048576.0))
        return qw_fail(error, QWEN36_ERROR_CONFIG, "%s: the yarn factor is not in 1 to 2^20", file);
    qwen36_status status =
        check_range("original_max_position_embeddings", d->original_max_positions, 1, INT32_MAX, file, error);
    if (status != QWEN36_OK)
        return status;
    if (!(d->yarn_beta_slow >= 1e-6 && d->yarn_beta_fast >= d->yarn_beta_slow && d->yarn_beta_fast <= 1e6))
        return qw_fail(error, QWEN36_ERROR_CONFIG,
                       "%s: beta_fast and beta_slow: expected 10^-6 <= beta_slow <= beta_fast <= 10^6", file);
    if (!(d->yarn_attention_factor >= 0.0 && d->yarn_attention_factor <= 1e6) ||
        !(d->yarn_mscale >= 0.0 && d->yarn_mscale <= 1e6) ||
        !(d->yarn_mscale_all_dim >= 0.0 && d->yarn_mscale_all_dim <= 1e6))
        return qw_fail(error, QWEN36_ERROR_CONFIG,
                       "%s: attention_factor, mscale or mscale_all_dim is not in 0 to 10^6", file);
    double limit = (double)d->original_max_positions * d->yarn_factor;
    d->max_positions = limit < (double)INT32_MAX ? (int32_t)limit : INT32_MAX;
    return QWEN36_OK;
}

static void count_layers(qw_dims *d)
{
    int32_t counts[2] = {0, 0};
    for (int32_t i = 0; i < d->layers; i++)
        d->layer_index[i] = (uint8_t)counts[d->layer_kind[i]]++;
    d->linear_layers = counts[QW_LAYER_LINEAR];
    d->full_layers = counts[QW_LAYER_FULL];
}

qwen36_status qw_dims_check(qw_dims *d, const char *file, qwen36_error *error)
{
    qwen36_status status = check_ranges(d, file, error);
    if (status == QWEN36_OK)
        status = check_products(d, file, error);
    if (status == QWEN36_OK)
        status = check_rope(d, file, error);
    if (status == QWEN36_OK && d->rope_kind == QW_ROPE_YARN)
        status = check_yarn(d, file, error);
    if (status != QWEN36_OK)
        return status;
    if (d->heads % d->kv_heads != 0)
        return qw_fail(error, QWEN36_ERROR_CONFIG,
                       "%s: num_attention_heads is %d, expected a multiple of num_key_value_heads %d", file,
                       d->heads, d->kv_heads);
    if (d->lin_v_heads % d->lin_k_heads != 0)
        return qw_fail(error, QWEN36_ERROR_CONFIG,
                       "%s: linear_num_value_heads is %d, expected a multiple of linear_num_key_heads %d",
                       file, d->lin_v_heads, d->lin_k_heads);
    if (!(d->norm_eps > 0.0f && d->norm_eps < 1.0f))
        return qw_fail(error, QWEN36_ERROR_CONFIG, "%s: rms_norm_eps is not between 0 and 1", file);
    count_layers(d);
    return QWEN36_OK;
}

/* --- The rotation --------------------------------------------------------------------------------- */

/* ln 2 in two parts; a small integer times the first is exact. */
static const double ln2_high = 0x1.62e42fee00000p-1, ln2_low = 0x1.a39ef35793c76p-33;

/* Natural logarithm, to about 2^-52 relative, in IEEE operations only: the C library's may differ between
 * versions, and the bits of a model's output may not. x is finite and positive. */
static double natural_log(double x)
{
    int32_t k = 0;
    for (; x > 1.4142135623730951; k++)
        x *= 0.5;
    for (; x < 0.7071067811865476; k--)
        x *= 2.0;
    double t = (x - 1.0) / (x + 1.0), square = t * t, sum = 0.0; /* ln x = 2 (t + t^3/3 + ...) */
    for (int32_t n = 27; n >= 3; n -= 2)
        sum = (sum + 1.0 / n) * square;
    return k * ln2_high + (2.0 * t + (2.0 * t * sum + k * ln2_low));
}

/* e^y, likewise. |y| < 700. */
static double exponential(double y)
{
    double wanted = y * 1.4426950408889634;
    int32_t k = (int32_t)(wanted < 0 ? wanted - 0.5 : wanted + 0.5);
    double r = (y - k * ln2_high) - k * ln2_low, sum = 1.0; /* |r| < 0.35 */
    for (int32_t n = 18; n >= 1; n--)
        sum = 1.0 + sum * r / n;
    for (; k > 0; k--)
        sum *= 2.0;
    for (; k < 0; k++)
        sum *= 0.5;
    return sum;
}

static double floor_of(double x)
{
    double whole = (double)(int64_t)x;
    return whole > x ? whole - 1.0 : whole;
}

/* The dimension that turns `rotations` times over the original context. */
static double yarn_dimension(const qw_dims *d, double rotations)
{
    const double two_pi = 6.283185307179586;
    return d->rotary_dim * natural_log(d->original_max_positions / (rotations * two_pi)) /
           (2.0 * natural_log(d->rope_theta));
}

/* From the dimension *low on frequencies begin to be divided by the factor, from *high on they wholly are. */
static void yarn_ramp(const qw_dims *d, double *low, double *high)
{
    *low = yarn_dimension(d, d->yarn_beta_fast);
    *high = yarn_dimension(d, d->yarn_beta_slow);
    if (d->yarn_truncate) {
        *low = floor_of(*low);
        *high = -floor_of(-*high);
    }
    *low = QW_MAX(*low, 0.0);
    *high = QW_MIN(*high, d->rotary_dim - 1.0);
    if (*low == *high)
        *high += 0.001;
}

static double yarn_mscale(const qw_dims *d, double weight)
{
    return d->yarn_factor <= 1.0 ? 1.0 : 0.1 * weight * natural_log(d->yarn_factor) + 1.0;
}

static double yarn_attention_factor(const qw_dims *d)
{
    if (d->yarn_attention_factor > 0.0)
        return d->yarn_attention_factor;
    if (d->yarn_mscale != 0.0 && d->yarn_mscale_all_dim != 0.0)
        return yarn_mscale(d, d->yarn_mscale) / yarn_mscale(d, d->yarn_mscale_all_dim);
    return yarn_mscale(d, 1.0);
}

/* Interleaved MRoPE: T H W T H W ..., where H and W end after their sections and T fills the rest. */
static uint8_t axis_of(const qw_dims *d, int32_t j)
{
    int32_t axis = j % 3;
    return (uint8_t)(axis != QW_AXIS_T && j < 3 * (int64_t)d->mrope_section[axis] ? axis : QW_AXIS_T);
}

void qw_dims_rope_table(const qw_dims *d, float *inv_freq, uint8_t *axis, float *scale)
{
    const bool yarn = d->rope_kind == QW_ROPE_YARN;
    const double log_theta = natural_log((double)(float)d->rope_theta);
    double low = 0.0, high = 1.0;
    if (yarn)
        yarn_ramp(d, &low, &high);
    *scale = yarn ? (float)yarn_attention_factor(d) : 1.0f;
    for (int32_t j = 0; j < d->rotary_dim / 2; j++) {
        const float exponent = (float)(2 * j) / (float)d->rotary_dim;
        const float period = (float)exponential(log_theta * (double)exponent);
        axis[j] = axis_of(d, j);
        inv_freq[j] = 1.0f / period;
        if (yarn) {
            const float ramp = ((float)j - (float)low) / (float)(high - low);
            const float keep = 1.0f - QW_MIN(QW_MAX(ramp, 0.0f), 1.0f);
            const float divided = 1.0f / ((float)d->yarn_factor * period);
            inv_freq[j] = divided * (1.0f - keep) + inv_freq[j] * keep;
        }
    }
}
