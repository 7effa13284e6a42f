/* The reference backend against numbers worked out elsewhere: by hand, or from the published formulas. */
#include "kernels/reference/reference.h"
#include "tests/harness.h"
#include "tests/views.h"

#include <math.h>

static qw_backend open_reference(const qw_dims *dims)
{
    qw_allocator allocator = qw_allocator_default();
    qw_backend_config config = {.allocator = &allocator, .dims = dims, .threads = 1, .max_context = 256};
    qw_backend backend;
    CHECK_INT(qw_reference_backend_open(&config, &backend, NULL), QWEN36_OK);
    return backend;
}

static void check_near(const float *actual, const double *expected, size_t count, double bound)
{
    for (size_t i = 0; i < count; i++)
        CHECK_MSG(fabs((double)actual[i] - expected[i]) <= bound, "[%zu] is %.9g, expected %.9g", i,
                  (double)actual[i], expected[i]);
}

#define CHECK_NEAR(actual, bound, ...)                                                                       \
    do {                                                                                                     \
        const double expected_[] = {__VA_ARGS__};                                                            \
        check_near(actual, expected_, QW_COUNT_OF(expected_), bound);                                        \
    } while (0)

TEST(reference, embed_widens)
{
    const qw_dims dims = {.vocab_size = 3, .hidden = 2};
    qw_backend backend = open_reference(&dims);
    uint16_t bf16[] = {0x3F80, 0xC000, 0x3E80, 0x7F80, 0x0001, 0x8000}; /* 1 -2 0.25 inf 2^-133 -0 */
    uint16_t f16[] = {0x3C00, 0xC000, 0x3555, 0x7C00, 0x0001, 0x8000};  /* 1 -2 0.33325 inf 2^-24 -0 */
    float x[4];
    int32_t ids[] = {2, 0};
    const qw_batch batch = {.rows = 2, .ids = ids};
    qw_buffer b[2];
    qw_embed_args args = {&batch, test_view_of(&b[0], bf16, QW_BF16, 3, 2), test_view(&b[1], x, 2, 2)};
    CHECK_INT(backend.ops->embed(&backend, &args), QWEN36_OK);
    CHECK_NEAR(x, 0, ldexp(1, -133), 0, 1, -2);
    args.table = test_view_of(&b[0], f16, QW_F16, 3, 2);
    CHECK_INT(backend.ops->embed(&backend, &args), QWEN36_OK);
    CHECK_NEAR(x, 0, ldexp(1, -24), 0, 1, -2);
    ids[0] = 1;
    args.table.offset = 2;
    CHECK_INT(backend.ops->embed(&backend, &args), QWEN36_OK);
    CHECK(isinf(x[0]));
    CHECK_NEAR(x + 1, 0, ldexp(1, -24), -2, 0.333251953125);
    backend.ops->destroy(&backend);
}

TEST(reference, norm_adds_then_scales)
{
    const qw_dims dims = {.hidden = 2};
    qw_backend backend = open_reference(&dims);
    float x[] = {1, 2}, add[] = {2, 2}, weight[] = {0, 1}, y[2];
    qw_buffer b[4];
    qw_norm_args args = {test_view(&b[0], x, 1, 2), test_view(&b[1], add, 1, 2),
                         test_view(&b[2], weight, 0, 2), test_view(&b[3], y, 1, 2), 1e-6F};
    CHECK_INT(backend.ops->norm(&backend, &args), QWEN36_OK);
    CHECK_NEAR(x, 0, 3, 4);
    CHECK_NEAR(y, 1e-6, 3 / sqrt(12.5), 2 * 4 / sqrt(12.5));
    args.y = (qw_view){0};
    CHECK_INT(backend.ops->norm(&backend, &args), QWEN36_OK);
    CHECK_NEAR(x, 0, 5, 6);
    backend.ops->destroy(&backend);
}

TEST(reference, gated_norm_per_head)
{
    const qw_dims dims = {.hidden = 2};
    qw_backend backend = open_reference(&dims);
    float o[] = {3, 4, 0, 0}, z[] = {1, -1, 5, 5}, weight[] = {1, 0.5F};
    qw_buffer b[3];
    qw_view view = test_view(&b[0], o, 1, 4);
    qw_gated_norm_args args = {view, test_view(&b[1], z, 1, 4), test_view(&b[2], weight, 0, 2), view, 1e-6F};
    CHECK_INT(backend.ops->gated_norm(&backend, &args), QWEN36_OK);
    const double s = 1 / (1 + exp(-1)), n = 1 / sqrt(12.5);
    CHECK_NEAR(o, 1e-6, 3 * n * s, -0.5 * 4 * n * (1 - s), 0, 0);
    backend.ops->destroy(&backend);
}

TEST(reference, linear_parts)
{
    const qw_dims dims = {.hidden = 3};
    qw_backend backend = open_reference(&dims);
    float x[] = {1, 2, 3, -1, 0, 1}, w0[] = {1, 1, 1, 0, 0, 2}, y0[4], y1[2];
    uint16_t w1[] = {0x3F80, 0x4000, 0xBF80}; /* 1 2 -1 */
    qw_buffer b[5];
    qw_linear_args args = {.x = test_view(&b[0], x, 2, 3), .parts = 2};
    args.w[0] = test_view(&b[1], w0, 2, 3);
    args.w[1] = test_view_of(&b[2], w1, QW_BF16, 1, 3);
    args.y[0] = test_view(&b[3], y0, 2, 2);
    args.y[1] = test_view(&b[4], y1, 2, 1);
    CHECK_INT(backend.ops->linear(&backend, &args), QWEN36_OK);
    CHECK_NEAR(y0, 0, 6, 6, 0, 2);
    CHECK_NEAR(y1, 0, 2, -2);
    backend.ops->destroy(&backend);
}

/* ---- attention ---- */

enum { HEADS = 2, HD = 8, ROTARY = 4 };

typedef struct attention_case {
    float qg[HEADS * 2 * HD], k[HD], v[HD], q_norm[HD], k_norm[HD], q[HEADS * HD], o[HEADS * HD];
    char cache[3 * 2 * QW_KV_BLOCK * HD * 4];
    float inv_freq[ROTARY / 2];
    uint8_t axis[ROTARY / 2];
    int32_t positions[3], kv_index[1], table[2];
    qw_segment segment;
    qw_batch batch;
    qw_buffer buffers[8];
    qw_attn_prepare_args prepare;
    qw_attention_args attention;
} attention_case;

static const qw_dims attention_dims = {.heads = HEADS, .kv_heads = 1, .head_dim = HD, .rotary_dim = ROTARY};

static void attention_setup(attention_case *c, int32_t dtype)
{
    memset(c, 0, sizeof *c);
    c->batch = (qw_batch){.rows = 1,
                          .segments = 1,
                          .blocks = 2,
                          .positions = c->positions,
                          .kv_index = c->kv_index,
                          .segment = &c->segment,
                          .block_table = c->table};
    c->segment.row_count = 1;
    c->table[0] = 2;
    c->table[1] = 0;
    c->buffers[7] = (qw_buffer){c->cache, sizeof c->cache, QW_SPACE_HOST, 0};
    const qw_kv_view cache = {&c->buffers[7], 0, 2 * QW_KV_BLOCK * qw_kv_row_bytes(dtype, HD), dtype};
    const qw_view qg = test_view(&c->buffers[0], c->qg, 1, HEADS * 2 * HD);
    const qw_view q = test_view(&c->buffers[1], c->q, 1, HEADS * HD);
    c->prepare = (qw_attn_prepare_args){&c->batch,
                                        qg,
                                        test_view(&c->buffers[2], c->k, 1, HD),
                                        test_view(&c->buffers[3], c->v, 1, HD),
                                        test_view(&c->buffers[4], c->q_norm, 0, HD),
                                        test_view(&c->buffers[5], c->k_norm, 0, HD),
                                        q,
                                        cache,
                                        c->inv_freq,
                                        c->axis,
                                        1,
                                        1e-6F};
    c->attention =
        (qw_attention_args){&c->batch, q, qg, cache, test_view(&c->buffers[6], c->o, 1, HEADS * HD)};
}

/* Puts token `t` at the case's segment: its position in each axis and its place in the cache. */
static void attention_token(attention_case *c, int32_t t)
{
    c->segment.position = t;
    c->positions[0] = t;
    c->positions[1] = t + 1;
    c->positions[2] = t + 2;
    c->kv_index[0] = c->table[t / QW_KV_BLOCK] * QW_KV_BLOCK + t % QW_KV_BLOCK;
}

TEST(reference, prepare_norms_and_rotates)
{
    qw_backend backend = open_reference(&attention_dims);
    attention_case c;
    attention_setup(&c, QW_F32);
    for (int i = 0; i < HD; i++) {
        c.qg[i] = 2;           /* head 0: rms 2, so 1 after the norm */
        c.qg[2 * HD + i] = -3; /* head 1 */
        c.qg[HD + i] = 100;    /* a gate: not read here */
        c.k[i] = i < 4 ? 5 : -5;
        c.k_norm[i] = 1; /* doubles */
        c.v[i] = (float)i;
    }
    c.inv_freq[0] = 1;
    c.inv_freq[1] = 0.25F;
    c.axis[0] = 0;
    c.axis[1] = 2;
    c.prepare.rope_scale = 1.5F;
    attention_token(&c, 66);
    CHECK_INT(backend.ops->attn_prepare(&backend, &c.prepare), QWEN36_OK);
    const double c0 = 1.5 * cos(66), s0 = 1.5 * sin(66), c1 = 1.5 * cos(17), s1 = 1.5 * sin(17);
    CHECK_NEAR(c.q, 1e-6, c0 - s0, c1 - s1, c0 + s0, c1 + s1, 1, 1, 1, 1, -(c0 - s0), -(c1 - s1), -(c0 + s0),
               -(c1 + s1), -1, -1, -1, -1);
    const float *key = (const float *)c.cache + 2 * HD; /* block 0, token 2 */
    CHECK_NEAR(key, 1e-6, 2 * (c0 - s0), 2 * (c1 - s1), 2 * (c0 + s0), 2 * (c1 + s1), -2, -2, -2, -2);
    CHECK_NEAR(key + QW_KV_BLOCK * HD, 0, 0, 1, 2, 3, 4, 5, 6, 7);
    backend.ops->destroy(&backend);
}

/* Token t has key e_0 * log-weight and value t; the query picks dimension 0, so the softmax is known. */
TEST(reference, attention_weighs_values)
{
    static const int32_t formats[] = {QW_F32, QW_BF16, QW_I8};
    for (size_t f = 0; f < QW_COUNT_OF(formats); f++) {
        qw_backend backend = open_reference(&attention_dims);
        attention_case c;
        attention_setup(&c, formats[f]);
        double mass = 0, mean = 0;
        for (int32_t t = 0; t < 66; t++) {
            memset(c.k, 0, sizeof c.k);
            c.k[4 + t % 4] = 1; /* after the norm sqrt(8) there, outside the rotated dims */
            for (int d = 0; d < HD; d++)
                c.v[d] = (float)t;
            attention_token(&c, t);
            CHECK_INT(backend.ops->attn_prepare(&backend, &c.prepare), QWEN36_OK);
            const double weight = t % 4 == 1 ? exp(2 * 2.828125 / sqrt(8)) : 1;
            mass += weight;
            mean += weight * t;
        }
        memset(c.q, 0, sizeof c.q);
        c.q[5] = 2;
        c.q[HD + 5] = 2;
        for (int d = 0; d < HD; d++)
            c.qg[3 * HD + d] = 3; /* gate of head 1 */
        CHECK_INT(backend.ops->attention(&backend, &c.attention), QWEN36_OK);
        mean /= mass;
        CHECK_NEAR(c.o, 0.01, mean * 0.5, mean * 0.5);
        CHECK_NEAR(c.o + HD, 0.01, mean / (1 + exp(-3)), mean / (1 + exp(-3)));
        backend.ops->destroy(&backend);
    }
}

/* ---- linear attention ---- */

TEST(reference, conv_continues_from_its_state)
{
    const qw_dims dims = {.conv_width = 3};
    qw_backend backend = open_reference(&dims);
    float u[] = {1, 10, 2, 20, 3, 30, 4, 40}, w[] = {1, 0, 2, 0, 1, 0}, whole[8], parts[8], states[3][4];
    memset(states, 0, sizeof states);
    const qw_state_write writes[] = {{1, 0}, {0, 1}, {2, 2}};
    qw_segment segment = {.row_count = 4, .state_read = -1};
    qw_batch batch = {.rows = 4, .segments = 1, .segment = &segment, .state_write = writes};
    qw_buffer b[4];
    b[3] = (qw_buffer){states, sizeof states, QW_SPACE_HOST, 0};
    const qw_state_view state = {&b[3], 0, sizeof states[0]};
    qw_conv_args args = {&batch, test_view(&b[0], u, 4, 2), test_view(&b[1], w, 2, 3), state,
                         test_view(&b[2], whole, 4, 2)};
    CHECK_INT(backend.ops->conv(&backend, &args), QWEN36_OK);
    const double sums[] = {2, 0, 4, 10, 6 + 1, 20, 8 + 2, 30};
    for (int i = 0; i < 8; i++)
        CHECK_NEAR(&whole[i], 1e-6, sums[i] / (1 + exp(-sums[i])));

    segment.row_count = 2; /* writes slot 0 after row 1 */
    segment.write_count = 1;
    batch.rows = 2;
    args.c = test_view(&b[2], parts, 4, 2);
    CHECK_INT(backend.ops->conv(&backend, &args), QWEN36_OK);
    CHECK_NEAR(states[0], 0, 1, 10, 2, 20);
    segment =
        (qw_segment){.row_begin = 0, .row_count = 2, .state_read = 0, .write_begin = 1, .write_count = 1};
    args.u.offset = args.c.offset = 4 * sizeof(float);
    CHECK_INT(backend.ops->conv(&backend, &args), QWEN36_OK);
    CHECK_NEAR(states[1], 0, 2, 20, 3, 30);
    CHECK(memcmp(whole, parts, sizeof whole) == 0);
    backend.ops->destroy(&backend);
}

/* The worked example: dk = dv = 2, one head, eps 1e-6, scale 1 / sqrt(2), A_log 0.7, dt_bias -0.2. */
static float toy_rows[3][6] = {
    {1, 0.5F, 0.6F, -0.8F, 1, 2}, {0.2F, -1, 1, 1, -1, 0.5F}, {0.3F, 0.7F, 0.1F, 0.4F, 0.25F, -0.75F}};
static float toy_a[] = {0.1F, -0.3F, 0.5F}, toy_b[] = {0.2F, -0.4F, 1}, toy_a_log[] = {0.7F},
             toy_dt_bias[] = {-0.2F};

TEST(reference, delta_matches_the_worked_example)
{
    const qw_dims dims = {.lin_k_heads = 1, .lin_v_heads = 1, .lin_k_dim = 2, .lin_v_dim = 2};
    qw_backend backend = open_reference(&dims);
    float o[6], states[3][4];
    const qw_state_write writes[] = {{1, 0}, {2, 1}, {2, 2}};
    qw_segment segment = {.row_count = 3, .state_read = -1, .write_count = 2};
    const qw_batch batch = {.rows = 3, .segments = 1, .segment = &segment, .state_write = writes};
    qw_buffer b[7];
    b[6] = (qw_buffer){states, sizeof states, QW_SPACE_HOST, 0};
    qw_delta_args args = {.batch = &batch,
                          .c = test_view(&b[0], toy_rows[0], 3, 6),
                          .a = test_view(&b[1], toy_a, 3, 1),
                          .b = test_view(&b[2], toy_b, 3, 1),
                          .a_log = test_view(&b[3], toy_a_log, 0, 1),
                          .dt_bias = test_view(&b[4], toy_dt_bias, 0, 1),
                          .state = {&b[6], 0, sizeof states[0]},
                          .o = test_view(&b[5], o, 3, 2)};
    CHECK_INT(backend.ops->delta(&backend, &args), QWEN36_OK);
    CHECK_NEAR(o, 2e-7, 0.069549048, 0.139098096, 0.287709676, 0.181900515, 0.111156133, -0.376299681);
    CHECK_NEAR(states[1], 2e-7, 0.032615467, -0.056729103, 0.157048974, -0.554669683);

    float last[2] = {o[4], o[5]}; /* the same from the state after row 1 */
    segment =
        (qw_segment){.row_begin = 2, .row_count = 1, .state_read = 0, .write_begin = 2, .write_count = 1};
    CHECK_INT(backend.ops->delta(&backend, &args), QWEN36_OK);
    CHECK(memcmp(last, o + 4, sizeof last) == 0);
    CHECK(memcmp(states[1], states[2], sizeof states[1]) == 0);
    backend.ops->destroy(&backend);
}

/* Value heads 0 and 1 use key head 0, heads 2 and 3 key head 1: the same value reads the same. */
TEST(reference, delta_groups_value_heads)
{
    const qw_dims dims = {.lin_k_heads = 2, .lin_v_heads = 4, .lin_k_dim = 2, .lin_v_dim = 1};
    qw_backend backend = open_reference(&dims);
    float c[] = {1, 0, 0, 1, 1, 0, 1, 1, 3, 3, 3, 3}, a[4] = {0}, gate[4] = {0}, zero[4] = {0}, o[4];
    qw_segment segment = {.row_count = 1, .state_read = -1};
    const qw_batch batch = {.rows = 1, .segments = 1, .segment = &segment};
    qw_buffer b[6];
    qw_delta_args args = {.batch = &batch,
                          .c = test_view(&b[0], c, 1, 12),
                          .a = test_view(&b[1], a, 1, 4),
                          .b = test_view(&b[2], gate, 1, 4),
                          .a_log = test_view(&b[3], zero, 0, 4),
                          .dt_bias = test_view(&b[4], zero, 0, 4),
                          .o = test_view(&b[5], o, 1, 4)};
    CHECK_INT(backend.ops->delta(&backend, &args), QWEN36_OK);
    const double one = 1.5 / sqrt(2), two = 1.5 / 2; /* beta v (q k) */
    CHECK_NEAR(o, 1e-5, one, one, two, two);
    backend.ops->destroy(&backend);
}

/* ---- MLP, router, experts, head ---- */

static double silu(double x)
{
    return x / (1 + exp(-x));
}

TEST(reference, mlp_gated_and_accumulated)
{
    const qw_dims dims = {.hidden = 2, .intermediate = 1};
    qw_backend backend = open_reference(&dims);
    float x[] = {1, 2}, gate[] = {1, 1}, up[] = {0, 1}, down[] = {1, -1}, row_gate[] = {-1, 0.5F},
          y[] = {10, 20};
    qw_buffer b[6];
    qw_mlp_args args = {.x = test_view(&b[0], x, 1, 2),
                        .gate = test_view(&b[1], gate, 1, 2),
                        .up = test_view(&b[2], up, 1, 2),
                        .down = test_view(&b[3], down, 2, 1),
                        .row_gate = test_view(&b[4], row_gate, 1, 2),
                        .accumulate = 1,
                        .y = test_view(&b[5], y, 1, 2)};
    CHECK_INT(backend.ops->mlp(&backend, &args), QWEN36_OK);
    CHECK_NEAR(y, 1e-5, 10 + silu(3), 20 - silu(3));
    args.row_gate = (qw_view){0};
    args.accumulate = 0;
    CHECK_INT(backend.ops->mlp(&backend, &args), QWEN36_OK);
    CHECK_NEAR(y, 1e-5, 2 * silu(3), -2 * silu(3));
    backend.ops->destroy(&backend);
}

TEST(reference, route_and_experts)
{
    const qw_dims dims = {.hidden = 1, .experts = 4, .top_k = 3, .expert_size = 1};
    qw_backend backend = open_reference(&dims);
    float logits[] = {1, 2, 2, 0}, weights[3], x[] = {1}, y[1], scale[] = {1, 2, 4, 8}, one[] = {1};
    int32_t ids[3];
    qw_buffer b[9];
    const qw_view ids_view = test_view_of(&b[1], ids, QW_I32, 1, 3),
                  weights_view = test_view(&b[2], weights, 1, 3);
    qw_route_args route = {test_view(&b[0], logits, 1, 4), ids_view, weights_view};
    CHECK_INT(backend.ops->route(&backend, &route), QWEN36_OK);
    CHECK_INT(ids[0], 1);
    CHECK_INT(ids[1], 2);
    CHECK_INT(ids[2], 0);
    const double rest = exp(-1), sum = 2 + rest;
    CHECK_NEAR(weights, 1e-6, 1 / sum, 1 / sum, rest / sum);

    qw_expert_view experts[4];
    for (int e = 0; e < 4; e++)
        experts[e] = (qw_expert_view){test_view(&b[3], one, 1, 1), test_view(&b[3], one, 1, 1),
                                      test_view(&b[4 + e], scale + e, 1, 1)};
    qw_experts_args args = {test_view(&b[8], x, 1, 1), ids_view, weights_view, 4, experts, {0}};
    qw_buffer out;
    args.y = test_view(&out, y, 1, 1);
    CHECK_INT(backend.ops->experts(&backend, &args), QWEN36_OK);
    CHECK_NEAR(y, 1e-5, silu(1) * (2 + 4 + rest) / sum);
    backend.ops->destroy(&backend);
}

TEST(reference, head_picks_rows_and_masks_padding)
{
    const qw_dims dims = {.hidden = 1, .vocab_size = 3};
    qw_backend backend = open_reference(&dims);
    float x[] = {1, 2, 3}, w[] = {1, -1, 7}, logits[9] = {0};
    const int32_t in_row[] = {2, 0}, out_row[] = {0, 2};
    qw_buffer b[3];
    qw_head_args args = {test_view(&b[0], x, 3, 1),     test_view(&b[1], w, 3, 1), 2, in_row, out_row, 2,
                         test_view(&b[2], logits, 3, 3)};
    CHECK_INT(backend.ops->head(&backend, &args), QWEN36_OK);
    CHECK_NEAR(logits, 0, 3, -3);
    CHECK_NEAR(logits + 3, 0, 0, 0, 0);
    CHECK_NEAR(logits + 6, 0, 1, -1);
    CHECK(isinf(logits[2]) && logits[2] < 0 && isinf(logits[8]) && logits[8] < 0);

    const int32_t rows[] = {0, 0, 0}, tokens[] = {0, 1, 2};
    int32_t status[3];
    float logprob[3];
    const qw_logprob_args score = {args.logits, 3, rows, tokens, logprob, status};
    CHECK_INT(backend.ops->logprob(&backend, &score), QWEN36_OK);
    CHECK_NEAR(logprob, 1e-6, -log1p(exp(-6)), -6 - log1p(exp(-6)));
    CHECK(isinf(logprob[2]));
    logits[1] = NAN;
    CHECK_INT(backend.ops->logprob(&backend, &score), QWEN36_OK);
    CHECK_INT(status[0], QWEN36_ERROR_NON_FINITE);
    backend.ops->destroy(&backend);
}

TEST(reference, opening_out_of_memory_leaks_nothing)
{
    const qw_dims dims = {.vocab_size = 3, .hidden = 2};
    for (long fail = 1; fail < 20; fail++) {
        test_allocator hooks = {.fail_at = fail};
        qw_allocator allocator = {test_allocate, test_release, &hooks};
        qw_backend_config config = {.allocator = &allocator, .dims = &dims, .threads = 1, .max_context = 8};
        qw_backend backend;
        qwen36_status status = qw_reference_backend_open(&config, &backend, NULL);
        if (status == QWEN36_OK)
            backend.ops->destroy(&backend);
        CHECK_INT(status, fail <= hooks.allocations ? QWEN36_ERROR_OUT_OF_MEMORY : QWEN36_OK);
        CHECK_INT(hooks.outstanding, 0);
    }
}
