/* A step of as many rows, and of as many sequences, as the options of a model allow: grids are cut so that
 * the device takes them. Against the reference. (Without the machine's checks, which would take minutes; not
 * on a GPU, for its arrays are the host's.) */
#include "tests/simt/ops.h"

enum { MOST = 65536 };

/* ---- one row of each of 65536 sequences -------------------------------------------------------------------
 */

enum { KEYS = 4, CHANNELS = 3 * KEYS, WIDTH = 4, CONV_STATE = (WIDTH - 1) * CHANNELS };
enum { SLOT = CONV_STATE + KEYS * KEYS };

typedef struct sequences {
    int32_t *block;
    qw_batch batch;
    qw_buffer device;
} sequences;

/* Sequence i has a state in slot 2 i if it is even, and leaves one in 2 i + 1. */
static void make_sequences(sequences *s)
{
    const size_t ints = (size_t)MOST * (sizeof(qw_segment) + sizeof(qw_state_write)) / 4;
    s->block = calloc(ints, 4);
    CHECK(s->block != NULL);
    qw_segment *segment = (qw_segment *)s->block;
    qw_state_write *write = (qw_state_write *)(segment + MOST);
    for (int32_t i = 0; i < MOST; i++) {
        segment[i] = (qw_segment){i, 1, 1, 0, i % 2 == 0 ? 2 * i : -1, i, 1, 0};
        write[i] = (qw_state_write){i, 2 * i + 1};
    }
    s->device = (qw_buffer){s->block, ints * 4, QW_SPACE_DEVICE, 0};
    s->batch = (qw_batch){.rows = MOST,
                          .segments = MOST,
                          .writes = MOST,
                          .segment = segment,
                          .state_write = write,
                          .host = s->block,
                          .bytes = ints * 4,
                          .device = &s->device};
}

static float *make_states(void)
{
    float *states = floats((size_t)2 * MOST * SLOT, 9);
    for (int32_t i = 0; i < MOST; i++)
        for (int32_t j = 0; j < SLOT; j++)
            states[((int64_t)2 * i + 1) * SLOT + j] = NAN;
    return states;
}

static void run_sequences(pair *p, const sequences *s, float *inputs, float *states, float *c, float *o,
                          bool judge)
{
    qw_buffer k[8], slots = {states, 0, QW_SPACE_DEVICE, 0};
    const qw_conv_args conv = {&s->batch,
                               test_view(&k[0], inputs, MOST, CHANNELS),
                               test_view(&k[1], inputs, CHANNELS, WIDTH),
                               {&slots, 0, SLOT * 4},
                               test_view(&k[2], c, MOST, CHANNELS)};
    const qw_delta_args delta = {.batch = &s->batch,
                                 .c = conv.c,
                                 .a = test_view(&k[3], inputs, MOST, 1),
                                 .b = test_view(&k[4], inputs + MOST, MOST, 1),
                                 .a_log = test_view(&k[5], inputs, 0, 1),
                                 .dt_bias = test_view(&k[6], inputs + 1, 0, 1),
                                 .state = {&slots, CONV_STATE * 4, SLOT * 4},
                                 .o = test_view(&k[7], o, MOST, KEYS)};
    if (judge) {
        CHECK_INT(p->judge.ops->conv(&p->judge, &conv), QWEN36_OK);
        CHECK_INT(p->judge.ops->delta(&p->judge, &delta), QWEN36_OK);
        return;
    }
    CHECK_RAN(qw_cuda_step_begin(&p->cuda, &s->batch));
    CHECK_RAN(qw_cuda_conv(&p->cuda, &conv));
    CHECK_RAN(qw_cuda_delta(&p->cuda, &delta));
    CHECK_RAN(qw_cuda_step_end(&p->cuda));
}

TEST(cuda_many_rows, sequences)
{
    NEEDS_PLANTING();
    if (simt_checks() != 0)
        return;
    const qw_dims dims = {.lin_k_heads = 1,
                          .lin_v_heads = 1,
                          .lin_k_dim = KEYS,
                          .lin_v_dim = KEYS,
                          .conv_width = WIDTH,
                          .heads = 1,
                          .kv_heads = 1,
                          .head_dim = 32};
    pair p;
    sequences s;
    float *c[2], *o[2], *states[2], *inputs = floats((size_t)MOST * CHANNELS, 1);
    pair_open(&p, &dims, 0, MOST, 64, QW_F32);
    make_sequences(&s);
    for (int judge = 0; judge < 2; judge++) {
        c[judge] = blank((size_t)MOST * CHANNELS);
        o[judge] = blank((size_t)MOST * KEYS);
        states[judge] = make_states();
        run_sequences(&p, &s, inputs, states[judge], c[judge], o[judge], judge != 0);
    }
    check_close(c[0], c[1], (size_t)MOST * CHANNELS, 1e-5, "convolution");
    check_close(o[0], o[1], (size_t)MOST * KEYS, 1e-4, "delta rule");
    check_close(states[0], states[1], (size_t)2 * MOST * SLOT, 1e-4, "states");
    for (int judge = 0; judge < 2; judge++)
        free(c[judge]), free(o[judge]), free(states[judge]);
    free(inputs);
    free(s.block);
    pair_close(&p);
}

/* ---- 65536 rows through the experts -----------------------------------------------------------------------
 */

TEST(cuda_many_rows, experts)
{
    NEEDS_PLANTING();
    enum { EXPERTS = 2, HIDDEN = 4 };
    if (simt_checks() != 0)
        return;
    const qw_dims dims = {
        .hidden = HIDDEN, .layers = 1, .experts = EXPERTS, .top_k = 1, .expert_size = HIDDEN};
    pair p;
    pair_open(&p, &dims, 0, MOST, 64, QW_F32);
    float *x = floats((size_t)MOST * HIDDEN, 1), *share = floats(MOST, 2),
          *w = floats(6 * HIDDEN * HIDDEN, 3);
    float *y = blank((size_t)MOST * HIDDEN), *expected = blank((size_t)MOST * HIDDEN);
    int32_t *ids = calloc(MOST, 4);
    CHECK(ids != NULL);
    for (int32_t i = 0; i < MOST; i++)
        ids[i] = i % 3 != 0;
    qw_buffer b[5], of[3 * EXPERTS];
    qw_expert_view expert[EXPERTS];
    for (int32_t e = 0; e < EXPERTS; e++) {
        qw_view *part[] = {&expert[e].gate, &expert[e].up, &expert[e].down};
        for (int32_t i = 0; i < 3; i++)
            *part[i] = test_view(&of[3 * e + i], w + (3 * e + i) * HIDDEN * HIDDEN, HIDDEN, HIDDEN);
    }
    qw_experts_args args = {test_view(&b[0], x, MOST, HIDDEN),
                            test_view_of(&b[1], ids, QW_I32, MOST, 1),
                            test_view(&b[2], share, MOST, 1),
                            EXPERTS,
                            expert,
                            test_view(&b[3], y, MOST, HIDDEN)};
    CHECK_RAN(qw_cuda_experts(&p.cuda, &args));
    args.y = test_view(&b[4], expected, MOST, HIDDEN);
    CHECK_INT(p.judge.ops->experts(&p.judge, &args), QWEN36_OK);
    check_close(y, expected, (size_t)MOST * HIDDEN, 1e-5, "experts");
    free(x), free(share), free(w), free(y), free(expected), free(ids);
    pair_close(&p);
}
