/* The operations sample and logprob of every tier of this machine, against the reference backend (full
 * sort, double) and against exact distributions. */
#include "kernels/reference/reference.h"
#include "tests/harness.h"
#include "tests/sample_rows.h"
#include "tests/views.h"

enum { MAX_ROWS = 64 };

static const int32_t tiers[] = {QWEN36_CPU_PORTABLE, QWEN36_CPU_AVX2, QWEN36_CPU_AVX512};

static qw_dims dims_of(int32_t vocab)
{
    return (qw_dims){.vocab_size = vocab,
                     .hidden = 16,
                     .layers = 2,
                     .heads = 2,
                     .kv_heads = 1,
                     .head_dim = 16,
                     .rotary_dim = 8,
                     .lin_k_heads = 1,
                     .lin_v_heads = 2,
                     .lin_k_dim = 16,
                     .lin_v_dim = 16,
                     .conv_width = 4,
                     .is_moe = 1,
                     .intermediate = 16,
                     .experts = 4,
                     .top_k = 2,
                     .expert_size = 16,
                     .shared_size = 16};
}

/* A backend for one vocabulary; `tier` 0 is the reference. */
typedef struct bench_backend {
    qw_dims dims;
    qw_allocator allocator;
    qw_backend backend;
} bench_backend;

static bool open_backend(bench_backend *b, int32_t tier, int32_t vocab, int32_t threads)
{
    b->dims = dims_of(vocab);
    b->allocator = qw_allocator_default();
    const qw_backend_config config = {.allocator = &b->allocator,
                                      .dims = &b->dims,
                                      .numerics = QWEN36_NUMERICS_REFERENCE,
                                      .kv_dtype = QW_F32,
                                      .cpu_tier = tier,
                                      .threads = threads,
                                      .max_rows = 4,
                                      .max_segments = 1,
                                      .max_head_rows = MAX_ROWS,
                                      .max_context = 64};
    if (tier == 0)
        return qw_reference_backend_open(&config, &b->backend, NULL) == QWEN36_OK;
    return qw_cpu_backend_open(&config, &b->backend, NULL) == QWEN36_OK;
}

static void close_backend(bench_backend *b)
{
    b->backend.ops->destroy(&b->backend);
}

static void sample(bench_backend *b, float *logits, int32_t live, qw_sample_row *rows, int32_t count)
{
    qw_buffer buffer;
    qw_sample_args args = {test_view(&buffer, logits, MAX_ROWS, b->dims.vocab_size), live, count, rows};
    CHECK_INT(b->backend.ops->sample(&b->backend, &args), QWEN36_OK);
}

/* A token may differ where a draw or a cut falls on the rounding of a probability. */
static int compare_random_rows(int32_t tier, int32_t vocab, int rounds)
{
    static float logits[MAX_ROWS * 8192];
    static row_data data, expected_data;
    bench_backend fast, reference;
    if (!open_backend(&fast, tier, vocab, 1))
        return 0;
    CHECK(open_backend(&reference, 0, vocab, 1));
    random_source r = {(uint64_t)vocab, 0};
    int different = 0;
    for (int round = 0; round < rounds; round++) {
        const int32_t live = below(&r, 2) ? vocab : 1 + below(&r, vocab);
        qw_sample_row row, expected;
        random_logits(&r, logits, live);
        for (int32_t i = live; i < vocab; i++)
            logits[i] = FLT_MAX; /* padding is not looked at */
        random_row(&r, vocab, &row, &data);
        expected = row;
        expected.top_token = expected_data.top_token;
        expected.top_logprob = expected_data.top_logprob;
        sample(&fast, logits, live, &row, 1);
        sample(&reference, logits, live, &expected, 1);
        CHECK_INT(row.status, expected.status);
        if (row.token != expected.token)
            different++;
        else if (row.status == QWEN36_OK)
            check_logprobs(&row, &expected);
        CHECK(row.token < live && (row.token >= 0) == (row.status == QWEN36_OK));
    }
    close_backend(&fast);
    close_backend(&reference);
    return different;
}

TEST(sample_op, equals_the_reference_on_random_rows)
{
    static const int32_t vocabs[] = {1, 2, 3, 15, 16, 17, 31, 127, 128, 129, 500, 1000, 4099, 8192};
    for (size_t t = 0; t < QW_COUNT_OF(tiers); t++) {
        int different = 0;
        for (size_t v = 0; v < QW_COUNT_OF(vocabs); v++)
            different += compare_random_rows(tiers[t], vocabs[v], vocabs[v] < 600 ? 1500 : 300);
        CHECK_MSG(different <= 15, "tier %d: %d tokens differ", (int)tiers[t], different);
    }
}

TEST(sample_op, rows_do_not_depend_on_each_other)
{
    enum { VOCAB = 1031 };
    static float logits[MAX_ROWS * VOCAB];
    static row_data data[MAX_ROWS], alone_data[MAX_ROWS];
    static qw_sample_row rows[MAX_ROWS], alone[MAX_ROWS];
    for (size_t t = 0; t < QW_COUNT_OF(tiers); t++)
        for (int32_t threads = 1; threads <= 96; threads += threads < 4 ? 1 : 92) {
            bench_backend many, single;
            if (!open_backend(&many, tiers[t], VOCAB, threads))
                continue;
            CHECK(open_backend(&single, tiers[t], VOCAB, 1));
            random_source r = {(uint64_t)threads, 0};
            for (int32_t i = 0; i < MAX_ROWS; i++) {
                random_logits(&r, logits + (int64_t)i * VOCAB, VOCAB);
                random_row(&r, VOCAB, &rows[i], &data[i]);
                rows[i].row = (i * 7) % MAX_ROWS;
                alone[i] = rows[i];
                alone[i].top_token = alone_data[i].top_token;
                alone[i].top_logprob = alone_data[i].top_logprob;
            }
            sample(&many, logits, VOCAB, rows, MAX_ROWS);
            for (int32_t i = MAX_ROWS - 1; i >= 0; i--) {
                const size_t size = (size_t)rows[i].top_count * sizeof(float);
                sample(&single, logits, VOCAB, &alone[i], 1);
                CHECK_INT(rows[i].status, alone[i].status);
                CHECK_INT(rows[i].token, alone[i].token);
                CHECK_INT(rows[i].top_count, alone[i].top_count);
                CHECK(memcmp(&rows[i].logprob, &alone[i].logprob, sizeof(float)) == 0);
                CHECK(memcmp(data[i].top_token, alone_data[i].top_token, size) == 0);
                CHECK(memcmp(data[i].top_logprob, alone_data[i].top_logprob, size) == 0);
            }
            close_backend(&many);
            close_backend(&single);
        }
}

/* ---- distributions ---- */

enum { SMALL = 40 };

/* The probabilities that the options leave, by definition: rank all tokens, keep a prefix. */
static void exact_distribution(const qw_sample_row *row, const float *logits, double *p)
{
    int order[SMALL];
    double total = 0, mass = 0;
    for (int i = 0; i < SMALL; i++) {
        int place = i;
        for (; place > 0 && logits[order[place - 1]] < logits[i]; place--)
            order[place] = order[place - 1];
        order[place] = i;
        p[i] = 0;
    }
    const int most = row->top_k > 0 ? QW_MIN(row->top_k, SMALL) : SMALL;
    for (int i = 0; i < most; i++)
        total += exp((double)logits[order[i]] / (double)row->temperature);
    const double best = exp((double)logits[order[0]] / (double)row->temperature) / total;
    for (int i = 0; i < most && mass < (double)row->top_p; i++) {
        const double share = exp((double)logits[order[i]] / (double)row->temperature) / total;
        mass += share;
        if (share >= (double)row->min_p * best)
            p[order[i]] = share;
    }
    total = 0;
    for (int i = 0; i < SMALL; i++)
        total += p[i];
    for (int i = 0; i < SMALL; i++)
        p[i] /= total;
}

/* The value that chi-square of `freedom` degrees exceeds with probability 1e-4 (Wilson and Hilferty). */
static double chi_square_limit(int freedom)
{
    const double v = 2.0 / (9 * freedom);
    return freedom * pow(1 - v + 3.72 * sqrt(v), 3);
}

static void check_counts(const double *p, const int *count, int draws)
{
    double chi = 0;
    int freedom = -1;
    for (int i = 0; i < SMALL; i++) {
        if (p[i] == 0) {
            CHECK_INT(count[i], 0);
            continue;
        }
        const double expected = p[i] * draws;
        chi += (count[i] - expected) * (count[i] - expected) / expected;
        freedom++;
    }
    if (freedom > 0)
        CHECK_MSG(chi < chi_square_limit(freedom), "chi-square %g with %d degrees", chi, freedom);
}

TEST(sample_op, draws_follow_the_distribution)
{
    static const struct {
        float temperature, top_p, min_p;
        int32_t top_k;
    } settings[] = {{1, 1, 0, 0},          {0.7F, 1, 0, 0},     {2, 0.9F, 0, 0},
                    {1, 1, 0, 7},          {1, 0.95F, 0, 20},   {1.5F, 1, 0.2F, 0},
                    {1.5F, 0.7F, 0.1F, 0}, {3, 0.6F, 0.3F, 12}, {1, 0.95F, 0.3F, 39}};
    enum { DRAWS = 25600 };
    float logits[SMALL] = {0};
    random_source r = {5, 0};
    for (int i = 0; i < SMALL; i++)
        logits[i] = normal(&r);
    logits[30] = logits[3]; /* a tie */
    for (size_t t = 0; t < QW_COUNT_OF(tiers); t++) {
        bench_backend b;
        if (!open_backend(&b, tiers[t], SMALL, 2))
            continue;
        for (size_t s = 0; s < QW_COUNT_OF(settings); s++) {
            int count[SMALL] = {0};
            double p[SMALL];
            qw_sample_row rows[MAX_ROWS], row = plain_row();
            row.temperature = settings[s].temperature;
            row.top_p = settings[s].top_p;
            row.min_p = settings[s].min_p;
            row.top_k = settings[s].top_k;
            for (int d = 0; d < DRAWS; d += MAX_ROWS) {
                for (int i = 0; i < MAX_ROWS; i++) {
                    rows[i] = row;
                    rows[i].uniform = qw_draw_uniform(1, s, (uint64_t)(d + i));
                }
                sample(&b, logits, SMALL, rows, MAX_ROWS);
                for (int i = 0; i < MAX_ROWS; i++)
                    count[rows[i].token]++;
            }
            exact_distribution(&row, logits, p);
            check_counts(p, count, DRAWS);
        }
        close_backend(&b);
    }
}

/* ---- edges ---- */

/* Runs `check` on every backend of this machine, the reference too. */
static void on_every_backend(int32_t vocab, void (*check)(bench_backend *b))
{
    bench_backend b;
    CHECK(open_backend(&b, 0, vocab, 1));
    check(&b);
    close_backend(&b);
    for (size_t t = 0; t < QW_COUNT_OF(tiers); t++)
        if (open_backend(&b, tiers[t], vocab, 2)) {
            check(&b);
            close_backend(&b);
        }
}

static int32_t token_of(bench_backend *b, float *logits, qw_sample_row row)
{
    sample(b, logits, b->dims.vocab_size, &row, 1);
    CHECK_INT(row.status, QWEN36_OK);
    return row.token;
}

static int32_t status_of(bench_backend *b, float *logits, qw_sample_row row)
{
    sample(b, logits, b->dims.vocab_size, &row, 1);
    CHECK_INT(row.token, -1);
    return row.status;
}

static void check_ties(bench_backend *b)
{
    float logits[200];
    for (int i = 0; i < 200; i++)
        logits[i] = i == 150 || i == 151 || i == 199 ? 2.0F : 1.0F;
    qw_sample_row row = plain_row();
    row.uniform = 0.999999;
    row.temperature = 0;
    CHECK_INT(token_of(b, logits, row), 150);
    row.temperature = 1;
    row.top_k = 1;
    CHECK_INT(token_of(b, logits, row), 150);
    row.top_k = 2;
    CHECK_INT(token_of(b, logits, row), 151);
    row.top_k = 3;
    CHECK_INT(token_of(b, logits, row), 199);
    row.top_k = 5; /* and the first two of the others */
    row.uniform = 0.0;
    CHECK_INT(token_of(b, logits, row), 0);
    row.uniform = 0.15;
    CHECK_INT(token_of(b, logits, row), 1);
    row.top_k = 0;
    row.top_p = 0.01F;
    row.uniform = 0.999999;
    CHECK_INT(token_of(b, logits, row), 150); /* e^2 of 197 e + 3 e^2 is more than 0.01 */
    row.top_p = 0.02F;
    CHECK_INT(token_of(b, logits, row), 151);
    row.top_p = 1;
    row.min_p = 1;
    CHECK_INT(token_of(b, logits, row), 199);
    row.min_p = 0.3F; /* e^-1 is 0.368 */
    row.uniform = 0;
    CHECK_INT(token_of(b, logits, row), 0);
    row.min_p = 0.4F;
    CHECK_INT(token_of(b, logits, row), 150);
}

TEST(sample_op, ties_go_to_the_lowest_id)
{
    on_every_backend(200, check_ties);
}

static void check_uniform_row(bench_backend *b)
{
    float logits[10] = {0};
    qw_sample_row row = plain_row();
    for (int i = 0; i < 10; i++) {
        row.uniform = i / 10.0 + 1e-9;
        CHECK_INT(token_of(b, logits, row), i);
    }
    row.top_p = 0.5F; /* exactly five */
    row.uniform = 0.999999;
    CHECK_INT(token_of(b, logits, row), 4);
    row.top_p = 0.500001F;
    CHECK_INT(token_of(b, logits, row), 5);
    row.top_p = FLT_TRUE_MIN;
    CHECK_INT(token_of(b, logits, row), 0);
    row.top_p = 1;
    row.uniform = 1 - 0x1p-53;
    CHECK_INT(token_of(b, logits, row), 9);
    row.temperature = FLT_TRUE_MIN;
    logits[3] = 1e-30F;
    CHECK_INT(token_of(b, logits, row), 3);
    row.temperature = FLT_MAX;
    logits[3] = 100;
    row.uniform = 0.95;
    CHECK_INT(token_of(b, logits, row), 9);
}

TEST(sample_op, equal_logits_and_extreme_options)
{
    on_every_backend(10, check_uniform_row);
}

static void check_modifications(bench_backend *b)
{
    float logits[70] = {0};
    const int32_t timeline[] = {5, 6, 5, 5, 6, 7};
    qw_sample_row row = plain_row();
    row.temperature = 0;
    row.tokens = timeline;
    row.token_count = 6;
    row.output_begin = 4;
    for (int i = 0; i < 70; i++)
        logits[i] = -10;
    logits[5] = 6;
    logits[6] = 5;
    logits[7] = 4;
    logits[8] = 3;
    logits[9] = -1;
    row.repetition = 3; /* 5: 2, 6: 1.67, 7: 1.33 */
    CHECK_INT(token_of(b, logits, row), 8);
    row.repetition = 1.25F; /* 4.8, 4, 3.2: not once per occurrence */
    CHECK_INT(token_of(b, logits, row), 5);
    row.repetition = 1;
    row.presence = 2.5F; /* 6: 2.5, 7: 1.5; 5 is not in the output */
    CHECK_INT(token_of(b, logits, row), 5);
    row.output_begin = 2; /* 5, 5, 6, 7: 5 is 3.5 once, 3 with twice 0.25 */
    row.presence = 2.5F;
    CHECK_INT(token_of(b, logits, row), 5);
    row.frequency = 0.26F; /* 5: 2.98 */
    CHECK_INT(token_of(b, logits, row), 8);
    row = plain_row();
    row.temperature = 0;
    row.tokens = timeline;
    row.token_count = 6;
    row.repetition = 0.1F; /* negative logits are multiplied: closer to zero */
    logits[5] = logits[6] = logits[7] = -9;
    logits[8] = -1;
    CHECK_INT(token_of(b, logits, row), 5); /* -0.9 */

    const int32_t bias_token[] = {69, 8};
    const float bias[] = {20, -INFINITY};
    row.biases = 2;
    row.bias_token = bias_token;
    row.bias = bias;
    CHECK_INT(token_of(b, logits, row), 69);
    const uint32_t bitmask[] = {1U << 8 | 1U << 9, 0, 0xFFFFFFDFU}; /* not 69 */
    row.bitmask = bitmask;
    CHECK_INT(token_of(b, logits, row), 9);
}

TEST(sample_op, penalties_bias_and_bitmask)
{
    on_every_backend(70, check_modifications);
}

static void check_failures(bench_backend *b)
{
    const float bad[] = {NAN, -NAN, INFINITY};
    static const int places[] = {0, 17, 150, 299};
    float logits[300] = {0};
    qw_sample_row row = plain_row();
    for (size_t k = 0; k < QW_COUNT_OF(bad); k++)
        for (size_t p = 0; p < QW_COUNT_OF(places); p++)
            for (int greedy = 0; greedy < 2; greedy++) {
                logits[places[p]] = bad[k];
                row.temperature = (float)greedy;
                CHECK_INT(status_of(b, logits, row), QWEN36_ERROR_NON_FINITE);
                logits[places[p]] = 0;
            }
    uint32_t bitmask[10] = {0};
    row.bitmask = bitmask;
    CHECK_INT(status_of(b, logits, row), QWEN36_ERROR_NO_CANDIDATE);
    bitmask[9] = 1U << 11;
    CHECK_INT(token_of(b, logits, row), 299);
    const int32_t token = 299;
    const float forbid = -INFINITY;
    row.biases = 1;
    row.bias_token = &token;
    row.bias = &forbid;
    CHECK_INT(status_of(b, logits, row), QWEN36_ERROR_NO_CANDIDATE);
    row = plain_row();
    for (int i = 0; i < 300; i++)
        logits[i] = -INFINITY;
    CHECK_INT(status_of(b, logits, row), QWEN36_ERROR_NON_FINITE);
    logits[200] = -FLT_MAX;
    CHECK_INT(token_of(b, logits, row), 200);
}

TEST(sample_op, failures_are_statuses)
{
    on_every_backend(300, check_failures);
}

static void check_top_list(bench_backend *b)
{
    float logits[300], top_logprob[TOP];
    int32_t top_token[TOP];
    for (int i = 0; i < 300; i++)
        logits[i] = -INFINITY;
    logits[7] = 1;
    logits[250] = 2;
    logits[251] = 1;
    qw_sample_row row = plain_row();
    row.temperature = 0;
    row.logprobs = 2;
    row.top_token = top_token;
    row.top_logprob = top_logprob;
    CHECK_INT(token_of(b, logits, row), 250);
    sample(b, logits, 300, &row, 1);
    CHECK_INT(row.top_count, 2);
    CHECK_INT(top_token[0], 250);
    CHECK_INT(top_token[1], 7);
    CHECK(fabs((double)row.logprob + log1p(2 * exp(-1))) < 1e-6);
    CHECK(fabs((double)top_logprob[1] + 1 + log1p(2 * exp(-1))) < 1e-6);
    row.logprobs = TOP; /* only tokens that can occur */
    sample(b, logits, 300, &row, 1);
    CHECK_INT(row.top_count, 3);
    CHECK_INT(top_token[2], 251);
}

TEST(sample_op, top_log_probabilities)
{
    on_every_backend(300, check_top_list);
}

static void check_logprob_op(bench_backend *b)
{
    static float logits[MAX_ROWS * 1000];
    random_source r = {3, 0};
    int32_t row[MAX_ROWS], token[MAX_ROWS], status[MAX_ROWS];
    float logprob[MAX_ROWS];
    for (int i = 0; i < MAX_ROWS; i++) {
        for (int v = 0; v < 1000; v++)
            logits[i * 1000 + v] = v < 990 ? 4 * normal(&r) : -INFINITY;
        row[i] = MAX_ROWS - 1 - i;
        token[i] = below(&r, 990);
    }
    logits[5 * 1000 + 77] = NAN;
    qw_buffer buffer;
    const qw_logprob_args args = {
        test_view(&buffer, logits, MAX_ROWS, 1000), MAX_ROWS, row, token, logprob, status};
    CHECK_INT(b->backend.ops->logprob(&b->backend, &args), QWEN36_OK);
    for (int i = 0; i < MAX_ROWS; i++) {
        const float *x = logits + row[i] * 1000;
        double sum = 0;
        for (int v = 0; v < 990; v++)
            sum += exp((double)x[v]);
        CHECK_INT(status[i], row[i] == 5 ? QWEN36_ERROR_NON_FINITE : QWEN36_OK);
        if (row[i] != 5)
            CHECK(fabs((double)logprob[i] - ((double)x[token[i]] - log(sum))) < 1e-5);
    }
}

TEST(sample_op, log_probability_of_given_tokens)
{
    on_every_backend(1000, check_logprob_op);
}
