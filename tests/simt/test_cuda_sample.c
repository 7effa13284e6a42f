/* sample and logprob against the reference: random rows with every option, several in one call, other
 * vocabularies than multiples of anything, the edges of the draw, failures. */
#include "tests/sample_rows.h"
#include "tests/simt/ops.h"

enum { ROWS = 40 };

static void open_vocab(pair *p, int32_t vocab)
{
    const qw_dims dims = {.vocab_size = vocab, .hidden = 4};
    pair_open(p, &dims, 0, ROWS, 300, QW_F32);
}

static void sample_both(pair *p, float *logits, int32_t live, qw_sample_row *rows, qw_sample_row *expected,
                        int32_t count)
{
    qw_buffer buffer;
    qw_sample_args args = {test_view(&buffer, logits, ROWS, p->dims.vocab_size), live, count, rows};
    CHECK_RAN(qw_cuda_sample(&p->cuda, &args));
    args.row = expected;
    CHECK_INT(p->judge.ops->sample(&p->judge, &args), QWEN36_OK);
}

/* How many tokens differ: a draw or a cut may fall on the rounding of a probability. */
static int compare_random_rows(int32_t vocab, int rounds)
{
    float *logits = blank((size_t)(ROWS * vocab));
    static row_data data, expected_data;
    pair p;
    open_vocab(&p, vocab);
    random_source r = {(uint64_t)vocab, 0};
    int different = 0;
    for (int round = 0; round < rounds; round++) {
        const int32_t live = below(&r, 2) ? vocab : 1 + below(&r, vocab);
        qw_sample_row row, expected;
        random_logits(&r, logits, live);
        for (int32_t i = live; i < vocab; i++)
            logits[i] = FLT_MAX;
        random_row(&r, vocab, &row, &data);
        expected = row;
        expected.top_token = expected_data.top_token;
        expected.top_logprob = expected_data.top_logprob;
        sample_both(&p, logits, live, &row, &expected, 1);
        CHECK_INT(row.status, expected.status);
        different += row.token != expected.token;
        if (row.status == QWEN36_OK && row.token == expected.token)
            check_logprobs(&row, &expected);
        CHECK(row.token < live && (row.token >= 0) == (row.status == QWEN36_OK));
    }
    pair_close(&p);
    drop(logits);
    return different;
}

TEST(cuda_sample, equals_the_reference_on_random_rows)
{
    CHECK(compare_random_rows(1, 10) == 0);
    CHECK(compare_random_rows(33, 60) <= 1);
    CHECK(compare_random_rows(700, 60) <= 1);
    CHECK(compare_random_rows(2083, 40) <= 1);
}

/* More rows than a launch takes, with and without modifications, in any order of logits rows. */
TEST(cuda_sample, many_rows)
{
    enum { VOCAB = 70 };
    static row_data data[ROWS], expected_data[ROWS];
    qw_sample_row rows[ROWS], expected[ROWS];
    float *logits = blank(ROWS * VOCAB);
    pair p;
    open_vocab(&p, VOCAB);
    random_source r = {5, 0};
    for (int32_t i = 0; i < ROWS; i++) {
        random_logits(&r, logits + i * VOCAB, VOCAB);
        random_row(&r, VOCAB, &rows[i], &data[i]);
        rows[i].row = ROWS - 1 - i;
        expected[i] = rows[i];
        expected[i].top_token = expected_data[i].top_token;
        expected[i].top_logprob = expected_data[i].top_logprob;
    }
    sample_both(&p, logits, VOCAB, rows, expected, ROWS);
    for (int32_t i = 0; i < ROWS; i++) {
        CHECK_INT(rows[i].status, expected[i].status);
        CHECK_INT(rows[i].token, expected[i].token);
    }
    pair_close(&p);
    drop(logits);
}

/* A row gives the same alone, beside others, and twice. */
TEST(cuda_sample, alone_and_beside_others)
{
    enum { VOCAB = 333 };
    static row_data data[ROWS], alone_data;
    qw_sample_row rows[ROWS];
    float *logits = blank(ROWS * VOCAB);
    pair p;
    open_vocab(&p, VOCAB);
    random_source r = {8, 0};
    for (int32_t i = 0; i < ROWS; i++) {
        random_logits(&r, logits + i * VOCAB, VOCAB);
        random_row(&r, VOCAB, &rows[i], &data[i]);
        rows[i].row = i;
    }
    qw_buffer buffer;
    qw_sample_args args = {test_view(&buffer, logits, ROWS, VOCAB), VOCAB, ROWS, rows};
    CHECK_RAN(qw_cuda_sample(&p.cuda, &args));
    for (int32_t i = ROWS - 1; i >= 0; i -= 3) {
        qw_sample_row row = rows[i];
        row.top_token = alone_data.top_token;
        row.top_logprob = alone_data.top_logprob;
        args.row = &row;
        args.count = 1;
        CHECK_RAN(qw_cuda_sample(&p.cuda, &args));
        CHECK(row.token == rows[i].token && row.status == rows[i].status &&
              row.top_count == rows[i].top_count);
        CHECK(memcmp(&row.logprob, &rows[i].logprob, 4) == 0);
        for (int32_t t = 0; t < row.top_count; t++)
            CHECK(row.top_token[t] == rows[i].top_token[t] &&
                  memcmp(&row.top_logprob[t], &rows[i].top_logprob[t], 4) == 0);
    }
    pair_close(&p);
    drop(logits);
}

/* Equal weights: the draw is floor(u V), exactly, also at both ends. */
TEST(cuda_sample, draws_walk_ascending_ids)
{
    enum { VOCAB = 1000 };
    float *logits = blank(ROWS * VOCAB);
    pair p;
    open_vocab(&p, VOCAB);
    for (int32_t i = 0; i < VOCAB; i++)
        logits[i] = 0;
    qw_buffer buffer;
    const double draws[] = {0, 0.0005, 0.25, 0.4999999, 0.5, 0.7770001, 0.9995, 1 - 1e-16};
    for (size_t i = 0; i < QW_COUNT_OF(draws); i++) {
        qw_sample_row row = plain_row();
        row.uniform = draws[i];
        qw_sample_args args = {test_view(&buffer, logits, ROWS, VOCAB), VOCAB, 1, &row};
        CHECK_RAN(qw_cuda_sample(&p.cuda, &args));
        CHECK_INT(row.token, QW_MIN(VOCAB - 1, (int32_t)(draws[i] * VOCAB)));
    }
    pair_close(&p);
    drop(logits);
}

TEST(cuda_sample, log_probability_of_given_tokens)
{
    enum { VOCAB = 517 };
    float *logits = blank(ROWS * VOCAB), logprob[4], expected[4];
    int32_t row[4] = {3, 0, 7, 39}, token[4] = {0, 516, 100, 5}, status[4], expected_status[4];
    pair p;
    open_vocab(&p, VOCAB);
    random_source r = {9, 0};
    for (int32_t i = 0; i < ROWS; i++)
        random_logits(&r, logits + i * VOCAB, VOCAB);
    logits[7 * VOCAB + 9] = NAN;
    qw_buffer buffer;
    qw_logprob_args args = {test_view(&buffer, logits, ROWS, VOCAB), 4, row, token, logprob, status};
    CHECK_RAN(qw_cuda_logprob(&p.cuda, &args));
    args.logprob = expected;
    args.status = expected_status;
    p.judge.ops->logprob(&p.judge, &args);
    for (int i = 0; i < 4; i++) {
        CHECK_INT(status[i], expected_status[i]);
        check_logprob(logprob[i], expected[i]);
    }
    pair_close(&p);
    drop(logits);
}

TEST(cuda_sample, failures_are_statuses)
{
    enum { VOCAB = 50 };
    float *logits = blank(4 * VOCAB);
    const uint32_t nothing[2] = {0, 0};
    pair p;
    open_vocab(&p, VOCAB);
    for (int i = 0; i < 4 * VOCAB; i++)
        logits[i] = i < 3 * VOCAB ? 1.0F : -INFINITY;
    logits[10] = NAN;
    logits[VOCAB + 20] = INFINITY;
    qw_sample_row rows[4];
    for (int32_t i = 0; i < 4; i++) {
        rows[i] = plain_row();
        rows[i].row = i;
    }
    rows[2].bitmask = nothing;
    qw_buffer buffer;
    qw_sample_args args = {test_view(&buffer, logits, 4, VOCAB), VOCAB, 4, rows};
    CHECK_RAN(qw_cuda_sample(&p.cuda, &args));
    CHECK_INT(rows[0].status, QWEN36_ERROR_NON_FINITE);
    CHECK_INT(rows[1].status, QWEN36_ERROR_NON_FINITE);
    CHECK_INT(rows[2].status, QWEN36_ERROR_NO_CANDIDATE);
    CHECK_INT(rows[3].status, QWEN36_ERROR_NON_FINITE);
    pair_close(&p);
    drop(logits);
}
