/* The dimensions of a model: plain numbers out of config.json, checked once so that nobody need check them
 * again. Products of any two or three of them that the tensors need fit int64_t.
 *
 *   V vocab_size   H hidden   L layers   nh, nkv heads, kv_heads   hd head_dim   nk, nv lin_k_heads,
 * lin_v_heads dk, dv lin_k_dim, lin_v_dim   I intermediate   E experts   Im expert_size   S shared_size
 */
#ifndef QW_DIMS_H
#define QW_DIMS_H

#include "lib/base/base.h"

enum { QW_MAX_LAYERS = 256, QW_MAX_EXPERTS = 4096, QW_MAX_TOP_K = 64 };
enum { QW_LAYER_LINEAR = 0, QW_LAYER_FULL = 1 };
enum { QW_ROPE_DEFAULT = 0, QW_ROPE_YARN = 1 };
enum { QW_AXIS_T = 0, QW_AXIS_H = 1, QW_AXIS_W = 2 };

typedef struct qw_dims {
    int32_t vocab_size; /* rows of the embedding, padding included */
    int32_t hidden;
    int32_t layers;
    int32_t heads;
    int32_t kv_heads;
    int32_t head_dim;
    int32_t rotary_dim; /* even, <= head_dim */
    int32_t lin_k_heads;
    int32_t lin_v_heads; /* a multiple of lin_k_heads */
    int32_t lin_k_dim;
    int32_t lin_v_dim;
    int32_t conv_width;
    int32_t is_moe;
    int32_t intermediate; /* dense, else 0 */
    int32_t experts;      /* MoE, else 0; so are the next three */
    int32_t top_k;
    int32_t expert_size;
    int32_t shared_size;
    int32_t tied_head;
    int32_t max_positions; /* positions are 0 .. max_positions - 1; see qw_dims_check */
    int32_t bos_token;     /* -1: none */
    int32_t pad_token;     /* -1: none */
    float norm_eps;

    int32_t rope_kind;
    double rope_theta;
    double yarn_factor;
    double yarn_beta_fast;
    double yarn_beta_slow;
    double yarn_attention_factor; /* as given; 0: derived from the factor */
    double yarn_mscale;           /* both given: their quotient replaces the derived attention factor */
    double yarn_mscale_all_dim;
    int32_t yarn_truncate; /* 1: the ramp begins and ends at whole dimensions */
    int32_t original_max_positions;
    int32_t mrope_section[3]; /* T, H, W; the sum is rotary_dim / 2 */

    int32_t linear_layers; /* how many of each kind */
    int32_t full_layers;
    uint8_t layer_kind[QW_MAX_LAYERS];
    uint8_t layer_index[QW_MAX_LAYERS]; /* of each layer among its kind */
} qw_dims;

/* Channels of the convolution: q, k and v of a linear layer. */
static inline int32_t qw_dims_conv_channels(const qw_dims *d)
{
    return 2 * d->lin_k_heads * d->lin_k_dim + d->lin_v_heads * d->lin_v_dim;
}

/* Sets layer kinds so that every interval-th layer has full attention. */
void qw_dims_alternate(qw_dims *dims, int32_t interval);

/* Checks ranges, divisibility and products, counts the layers of each kind and sets max_positions: with YaRN
 * it becomes original_max_positions x factor, the range that the scaling was declared for, whatever
 * max_position_embeddings says. QWEN36_ERROR_CONFIG naming `file` and the values. */
qwen36_status qw_dims_check(qw_dims *dims, const char *file, qwen36_error *error);

/* The rotation: for each j < rotary_dim / 2 the inverse frequency and the axis whose position it turns by
 * (interleaved MRoPE), and the factor on cosine and sine (1 without YaRN). Bit-identical on every machine:
 * float32 steps as in the reference implementation, with a correctly rounded power of our own. */
void qw_dims_rope_table(const qw_dims *dims, float *inv_freq, uint8_t *axis, float *scale);

#endif
