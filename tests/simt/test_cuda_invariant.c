/* Batch-invariant mode: what a row gives is the same bits whatever rows stand beside it, how many, and in
 * which order; and in every mode: the same batch twice gives the same bits. Rows of the plans' tables with
 * and without matrix units. (Delta rule and sampling know no mode: test_cuda_delta, test_cuda_sample.) */
#include "tests/simt/attention_world.h"

/* ---- operations on rows -------------------------------------------------------------------------------- */

enum { ROWS = 70, HIDDEN = 40, WIDTH = 24, EXPERTS = 6, CHOICES = 2, VOCAB = 75 };

typedef struct material {
    pair p;
    int32_t dtype;
    float *x, *shares; /* [ROWS, HIDDEN], [ROWS, CHOICES] */
    int32_t ids[ROWS * CHOICES];
    void *w[3 * EXPERTS], *head;
} material;

/* y [rows, ...] of rows `row` of the material. */
typedef void operation(material *m, const int32_t *row, int32_t rows, float *y);

static void material_open(material *m, int32_t device, int32_t dtype, int32_t invariant)
{
    const qw_dims dims = {.layers = 1,
                          .hidden = HIDDEN,
                          .intermediate = WIDTH,
                          .is_moe = 1,
                          .experts = EXPERTS,
                          .top_k = CHOICES,
                          .expert_size = WIDTH,
                          .vocab_size = VOCAB};
    *m = (material){.dtype = dtype};
    pair_open_as(&m->p, &dims, device, ROWS, 64, QW_F32, (pair_options){.batch_invariant = invariant});
    m->x = floats(ROWS * HIDDEN, 1);
    m->shares = floats(ROWS * CHOICES, 2);
    for (int32_t i = 0; i < ROWS * CHOICES; i++) /* expert 0 is met by more rows than a tile has */
        m->ids[i] = i % CHOICES == 0 ? 0 : 1 + i / CHOICES % (EXPERTS - 1);
    for (int32_t i = 0; i < 3 * EXPERTS; i++)
        m->w[i] = numbers(dtype, HIDDEN * WIDTH, (uint64_t)(10 + i), 0);
    m->head = numbers(dtype, VOCAB * HIDDEN, 9, 0);
}

static void material_close(material *m)
{
    for (int32_t i = 0; i < 3 * EXPERTS; i++)
        drop(m->w[i]);
    drop(m->x), drop(m->shares), drop(m->head);
    pair_close(&m->p);
}

static float *pick(const float *from, const int32_t *row, int32_t rows, int32_t width)
{
    float *to = blank((size_t)(rows * width));
    for (int32_t r = 0; r < rows; r++)
        memcpy(to + r * width, from + row[r] * width, (size_t)width * 4);
    return to;
}

static void do_linear(material *m, const int32_t *row, int32_t rows, float *y)
{
    float *x = pick(m->x, row, rows, HIDDEN);
    qw_buffer b[3];
    qw_linear_args args = {.x = test_view(&b[0], x, rows, HIDDEN), .parts = 1};
    args.w[0] = test_view_of(&b[1], m->head, m->dtype, VOCAB, HIDDEN);
    args.y[0] = test_view(&b[2], y, rows, VOCAB);
    CHECK_RAN(qw_cuda_linear(&m->p.cuda, &args));
    drop(x);
}

static void do_mlp(material *m, const int32_t *row, int32_t rows, float *y)
{
    float *x = pick(m->x, row, rows, HIDDEN);
    qw_buffer b[6];
    const qw_mlp_args args = {.x = test_view(&b[0], x, rows, HIDDEN),
                              .gate = test_view_of(&b[1], m->w[0], m->dtype, WIDTH, HIDDEN),
                              .up = test_view_of(&b[2], m->w[1], m->dtype, WIDTH, HIDDEN),
                              .down = test_view_of(&b[3], m->w[2], m->dtype, HIDDEN, WIDTH),
                              .row_gate = test_view_of(&b[4], m->head, m->dtype, 1, HIDDEN),
                              .y = test_view(&b[5], y, rows, HIDDEN)};
    CHECK_RAN(qw_cuda_mlp(&m->p.cuda, &args));
    drop(x);
}

static void do_head(material *m, const int32_t *row, int32_t rows, float *y)
{
    int32_t out[ROWS];
    for (int32_t r = 0; r < rows; r++)
        out[r] = r;
    qw_buffer b[3];
    const qw_head_args args = {.x = test_view(&b[0], m->x, ROWS, HIDDEN),
                               .w = test_view_of(&b[1], m->head, m->dtype, VOCAB, HIDDEN),
                               .count = rows,
                               .in_row = row,
                               .out_row = out,
                               .live = VOCAB - 3,
                               .logits = test_view(&b[2], y, rows, VOCAB)};
    CHECK_RAN(qw_cuda_head(&m->p.cuda, &args));
}

static void do_experts(material *m, const int32_t *row, int32_t rows, float *y)
{
    float *x = pick(m->x, row, rows, HIDDEN), *shares = pick(m->shares, row, rows, CHOICES);
    int32_t *ids = ints((size_t)(rows * CHOICES));
    for (int32_t i = 0; i < rows * CHOICES; i++)
        ids[i] = m->ids[row[i / CHOICES] * CHOICES + i % CHOICES];
    qw_buffer b[4 + 3 * EXPERTS];
    qw_expert_view expert[EXPERTS];
    for (int32_t e = 0; e < EXPERTS; e++) {
        qw_buffer *own = b + 4 + 3 * e;
        expert[e].gate = test_view_of(&own[0], m->w[3 * e], m->dtype, WIDTH, HIDDEN);
        expert[e].up = test_view_of(&own[1], m->w[3 * e + 1], m->dtype, WIDTH, HIDDEN);
        expert[e].down = test_view_of(&own[2], m->w[3 * e + 2], m->dtype, HIDDEN, WIDTH);
    }
    const qw_experts_args args = {.x = test_view(&b[0], x, rows, HIDDEN),
                                  .ids = test_view_of(&b[1], ids, QW_I32, rows, CHOICES),
                                  .weights = test_view(&b[2], shares, rows, CHOICES),
                                  .experts = EXPERTS,
                                  .expert = expert,
                                  .y = test_view(&b[3], y, rows, HIDDEN)};
    CHECK_RAN(qw_cuda_experts(&m->p.cuda, &args));
    drop(x), drop(shares), drop(ids);
}

static const struct {
    const char *name;
    operation *run;
    int32_t width;
} operations[] = {{"linear", do_linear, VOCAB},
                  {"mlp", do_mlp, HIDDEN},
                  {"head", do_head, VOCAB},
                  {"experts", do_experts, HIDDEN}};

/* Rows first, first + step, ... of the material: the same bits as in `all`. */
static void check_rows(material *m, size_t op, const float *all, int32_t first, int32_t step, int32_t rows)
{
    const int32_t width = operations[op].width;
    int32_t row[ROWS];
    float *y = blank((size_t)(rows * width));
    for (int32_t r = 0; r < rows; r++)
        row[r] = first + r * step;
    operations[op].run(m, row, rows, y);
    for (int32_t r = 0; r < rows; r++)
        CHECK_MSG(memcmp(y + r * width, all + row[r] * width, (size_t)width * 4) == 0,
                  "%s, dtype %d: row %d of %d, %d by %d", operations[op].name, m->dtype, r, rows, first,
                  step);
    drop(y);
}

static float *run_all(material *m, size_t op)
{
    int32_t row[ROWS];
    float *y = blank((size_t)(ROWS * operations[op].width));
    for (int32_t r = 0; r < ROWS; r++)
        row[r] = r;
    operations[op].run(m, row, ROWS, y);
    return y;
}

TEST(cuda_invariant, rows_alone_and_beside_others)
{
    for (int32_t device = 0; device < devices(); device++)
        for (int32_t dtype = QW_F32; dtype <= QW_F16; dtype++) {
            material m;
            material_open(&m, device, dtype, 1);
            for (size_t op = 0; op < QW_COUNT_OF(operations); op++) {
                float *all = run_all(&m, op);
                check_rows(&m, op, all, 0, 1, 1);
                check_rows(&m, op, all, 33, 1, 1);
                check_rows(&m, op, all, 69, -1, 8);
                check_rows(&m, op, all, 1, 7, 9);
                check_rows(&m, op, all, 69, -1, 66);
                drop(all);
            }
            material_close(&m);
        }
}

TEST(cuda_invariant, twice_in_default_mode)
{
    for (int32_t device = 0; device < devices(); device++) {
        material m;
        material_open(&m, device, QW_BF16, 0);
        for (size_t op = 0; op < QW_COUNT_OF(operations); op++) {
            float *all = run_all(&m, op), *one = blank((size_t)operations[op].width);
            const int32_t row = 5;
            check_rows(&m, op, all, 0, 1, ROWS);
            operations[op].run(&m, &row, 1, one); /* a row of the table for few rows */
            float *again = blank((size_t)operations[op].width);
            operations[op].run(&m, &row, 1, again);
            CHECK(memcmp(one, again, (size_t)operations[op].width * 4) == 0);
            drop(all), drop(one), drop(again);
        }
        material_close(&m);
    }
}

/* ---- attention ----------------------------------------------------------------------------------------- */

static const qw_dims head_dims = {.heads = 2, .kv_heads = 1, .head_dim = 32, .rotary_dim = 8};

/* The outputs [length, 64] of the sequence that `which` is, whose inputs are the same wherever it stands.
 * Rows of tokens before `from` only reach the cache. */
static float *attend(const mix_plan *plan, int32_t which, int32_t from, int32_t device, int32_t kv_dtype,
                     int32_t invariant)
{
    const int64_t queries = head_dims.heads * head_dims.head_dim, keys = head_dims.head_dim;
    world w;
    world_open(&w, &head_dims, plan, device, kv_dtype, (pair_options){.batch_invariant = invariant});
    const int64_t begin = w.offset[which], length = plan->length[which];
    w.attend_from = from;
    mix_fill(w.qg + begin * 2 * queries, (size_t)(length * 2 * queries), 91);
    mix_fill(w.k + begin * keys, (size_t)(length * keys), 92);
    mix_fill(w.v + begin * keys, (size_t)(length * keys), 93);
    mix_run(plan, world_step_alone, &w);
    float *o = blank((size_t)(length * queries));
    memcpy(o, w.o + begin * queries, (size_t)(length * queries) * 4);
    world_close(&w);
    return o;
}

static void check_outputs(const float *a, const float *b, int32_t from, int32_t to, const char *what)
{
    const int64_t queries = head_dims.heads * head_dims.head_dim;
    for (int64_t i = from * queries; i < to * queries; i++)
        CHECK(!isnan(a[i]));
    CHECK_MSG(memcmp(a + from * queries, b + from * queries, (size_t)((to - from) * queries) * 4) == 0, "%s",
              what);
}

/* A context of two partitions, its last rows at once or one by one, alone, beside shorter and beside longer
 * ones. */
TEST(cuda_invariant, attention)
{
    enum { FROM = 535, LENGTH = 556 };
    const mix_plan alone = {1, {LENGTH}, {{FROM, 21}}, 0};
    const mix_plan shorter = {3, {5, 30, LENGTH}, {{2, 1}, {1, 20}, {FROM, 1, 20}}, 0};
    const mix_plan longer = {2, {LENGTH, 570}, {{FROM, 20, 1}, {530, 3, 30}}, 0};
    const int32_t types[] = {QW_F32, QW_BF16, QW_I8};
    for (int32_t device = 0; device < devices(); device++)
        for (int t = device; t < 3; t++) {
            float *a = attend(&alone, 0, FROM, device, types[t], 1);
            float *b = attend(&shorter, 2, FROM, device, types[t], 1);
            float *c = attend(&longer, 0, FROM, device, types[t], 1);
            check_outputs(a, b, FROM, LENGTH, "beside shorter ones");
            check_outputs(a, c, FROM, LENGTH, "beside a longer one");
            drop(a), drop(b), drop(c);
        }
}

TEST(cuda_invariant, attention_of_short_contexts)
{
    const mix_plan alone = {1, {70}, {{70}}, 0}, one_by_one = {1, {70}, {{1}}, 0};
    const mix_plan mixed = {3, {20, 70, 66}, {{20}, {30, 1, 9}, {60, 1}}, 0};
    for (int32_t device = 0; device < devices(); device++) {
        float *a = attend(&alone, 0, 0, device, QW_BF16, 1),
              *b = attend(&one_by_one, 0, 0, device, QW_BF16, 1);
        float *c = attend(&mixed, 1, 0, device, QW_BF16, 1), *d = attend(&alone, 0, 0, device, QW_BF16, 0);
        float *e = attend(&alone, 0, 0, device, QW_BF16, 0);
        check_outputs(a, b, 0, 70, "one by one");
        check_outputs(a, c, 0, 70, "mixed");
        check_outputs(d, e, 0, 70, "twice in default mode");
        drop(a), drop(b), drop(c), drop(d), drop(e);
    }
}

/* ---- more partial results than there is room for ---------------------------------------------------------
 */

typedef struct crowd {
    pair p;
    float *q, *qg;
    char *cache;
    int32_t kv_dtype, position;
} crowd;

/* Rows begin .. begin + rows of one sequence, all of whose KV blocks are the same one. */
static float *attend_rows(crowd *c, int32_t begin, int32_t rows)
{
    enum { HD = 32, QUERIES = 2 * HD };
    const int32_t blocks = (c->position + begin + rows + QW_KV_BLOCK - 1) / QW_KV_BLOCK;
    int32_t *table = calloc((size_t)blocks, 4);
    const qw_segment segment = {.row_count = rows, .position = c->position + begin};
    const qw_batch batch = {
        .rows = rows, .segments = 1, .blocks = blocks, .segment = &segment, .block_table = table};
    packed_batch packed;
    pack_batch(&packed, &batch);
    float *o = blank((size_t)(rows * QUERIES));
    qw_buffer b[3], cache = {c->cache, 0, QW_SPACE_DEVICE, 0};
    const qw_attention_args args = {.batch = &packed.batch,
                                    .q = test_view(&b[0], c->q + begin * QUERIES, rows, QUERIES),
                                    .qg = test_view(&b[1], c->qg + begin * 2 * QUERIES, rows, 2 * QUERIES),
                                    .cache = {&cache, 0, 2 * QW_KV_BLOCK * HD * 2, c->kv_dtype},
                                    .o = test_view(&b[2], o, rows, QUERIES)};
    CHECK_RAN(qw_cuda_step_begin(&c->p.cuda, &packed.batch));
    CHECK_RAN(qw_cuda_attention(&c->p.cuda, &args));
    packed_free(&packed);
    free(table);
    return o;
}

TEST(cuda_invariant, attention_in_several_launches)
{
    enum { MANY = 120, HD = 32, QUERIES = 2 * HD };
    const qw_dims dims = {.heads = 2, .kv_heads = 1, .head_dim = HD};
    for (int32_t device = 0; device < devices(); device++) {
        crowd c = {.kv_dtype = QW_BF16, .position = 8800};
        pair_open_as(&c.p, &dims, device, MANY, 9000, QW_BF16, (pair_options){.batch_invariant = 1});
        c.q = floats(MANY * QUERIES, 1);
        c.qg = floats(MANY * 2 * QUERIES, 2);
        c.cache = numbers(QW_BF16, 2 * QW_KV_BLOCK * HD, 3, 0);
        const uint64_t before = simt_launches();
        float *all = attend_rows(&c, 0, MANY);
        if (simt_plants())                        /* and counts */
            CHECK(simt_launches() - before == 4); /* twice: the row of the table, the merge */
        const int32_t some[] = {0, 61, MANY - 1};
        for (int i = 0; i < 3; i++) {
            float *one = attend_rows(&c, some[i], 1);
            CHECK(memcmp(one, all + some[i] * QUERIES, QUERIES * 4) == 0);
            drop(one);
        }
        drop(all), drop(c.q), drop(c.qg), drop(c.cache);
        pair_close(&c.p);
    }
}
