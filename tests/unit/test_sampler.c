/* The generator of draws and the sampler of a session. */
#include "lib/sample/random.h"
#include "lib/sample/sampler.h"
#include "tests/harness.h"

#include <float.h>
#include <math.h>

/* ---- generator ---- */

/* The value that chi-square of `freedom` degrees exceeds with probability 1e-5 (Wilson and Hilferty). */
static double chi_square_limit(double freedom)
{
    const double v = 2 / (9 * freedom);
    return freedom * pow(1 - v + 4.265 * sqrt(v), 3);
}

static void check_flat(const int32_t *count, int cells, double draws, const char *what)
{
    double chi = 0;
    for (int i = 0; i < cells; i++)
        chi += (count[i] - draws / cells) * (count[i] - draws / cells) / (draws / cells);
    CHECK_MSG(chi < chi_square_limit(cells - 1), "%s: chi-square %g over %d cells", what, chi, cells);
}

/* Draw n of a walk along one of the three words. */
static double walk(int word, uint64_t fixed, uint64_t n)
{
    switch (word) {
    case 0:
        return qw_draw_uniform(n, fixed, fixed);
    case 1:
        return qw_draw_uniform(fixed, n, fixed);
    default:
        return qw_draw_uniform(fixed, fixed, n);
    }
}

TEST(random, known_answers)
{
    CHECK(qw_draw_bits(0, 0, 0) == UINT64_C(0x08AB4BEE5EBA071E));
    CHECK(qw_draw_bits(1, 2, 3) == UINT64_C(0x57B265A5F0B73966));
    CHECK(qw_draw_bits(UINT64_MAX, UINT64_C(1) << 63, 248320) == UINT64_C(0x9341EF03017AA6FA));
    CHECK(qw_draw_uniform(1, 2, 3) == (double)(UINT64_C(0x57B265A5F0B73966) >> 11) / 9007199254740992.0);
}

TEST(random, uniform_along_each_word)
{
    enum { CELLS = 256, DRAWS = 1 << 18 };
    static const uint64_t fixed[] = {0, 1, 12345, UINT64_MAX};
    for (int word = 0; word < 3; word++)
        for (size_t f = 0; f < QW_COUNT_OF(fixed); f++) {
            int32_t count[CELLS] = {0};
            double sum = 0;
            for (uint64_t n = 0; n < DRAWS; n++) {
                const double u = walk(word, fixed[f], n);
                CHECK(u >= 0 && u < 1);
                count[(int)(u * CELLS)]++;
                sum += u;
            }
            check_flat(count, CELLS, DRAWS, "values");
            CHECK(fabs(sum / DRAWS - 0.5) < 5 * sqrt(1.0 / 12 / DRAWS));
        }
}

/* Pairs of draws at distance 1, 2, 64 fall evenly on a grid, and are not correlated. */
TEST(random, neighbours_are_independent)
{
    enum { SIDE = 32, DRAWS = 1 << 18 };
    static const uint64_t distances[] = {1, 2, 64, UINT64_C(1) << 32};
    for (int word = 0; word < 3; word++)
        for (size_t d = 0; d < QW_COUNT_OF(distances); d++) {
            static int32_t count[SIDE * SIDE];
            double product = 0;
            memset(count, 0, sizeof count);
            for (uint64_t n = 0; n < DRAWS; n++) {
                const double u = walk(word, 3, n), v = walk(word, 3, n + distances[d]);
                count[(int)(u * SIDE) * SIDE + (int)(v * SIDE)]++;
                product += (u - 0.5) * (v - 0.5) * 12;
            }
            check_flat(count, SIDE * SIDE, DRAWS, "pairs");
            CHECK(fabs(product) < 5 * sqrt(DRAWS));
        }
}

/* The words do not stand in for each other: (a, b, c) in other orders is another draw. */
TEST(random, words_are_not_interchangeable)
{
    enum { SIDE = 32, DRAWS = 1 << 17 };
    static int32_t count[3][SIDE * SIDE];
    for (uint64_t n = 0; n < DRAWS; n++) {
        const uint64_t a = n, b = n * 3 + 1, c = n * 7 + 5;
        const int u = (int)(qw_draw_uniform(a, b, c) * SIDE);
        count[0][u * SIDE + (int)(qw_draw_uniform(b, a, c) * SIDE)]++;
        count[1][u * SIDE + (int)(qw_draw_uniform(a, c, b) * SIDE)]++;
        count[2][u * SIDE + (int)(qw_draw_uniform(c, b, a) * SIDE)]++;
    }
    for (int i = 0; i < 3; i++)
        check_flat(count[i], SIDE * SIDE, DRAWS, "exchanged words");
}

/* Flipping any input bit flips each output bit half of the time. */
TEST(random, every_bit_matters)
{
    enum { TRIALS = 2048 };
    for (int bit = 0; bit < 192; bit++) {
        int32_t flips[64] = {0};
        for (uint64_t n = 0; n < TRIALS; n++) {
            uint64_t word[3] = {n, n / 7, n * 31};
            const uint64_t before = qw_draw_bits(word[0], word[1], word[2]);
            word[bit / 64] ^= UINT64_C(1) << (bit % 64);
            const uint64_t change = before ^ qw_draw_bits(word[0], word[1], word[2]);
            for (int i = 0; i < 64; i++)
                flips[i] += (int32_t)((change >> i) & 1);
        }
        for (int i = 0; i < 64; i++) /* 6 standard deviations */
            CHECK_MSG(abs(flips[i] - TRIALS / 2) < 6 * 23, "input bit %d, output bit %d: %d", bit, i,
                      flips[i]);
    }
}

/* ---- options ---- */

static void check_refused(const qwen36_sampling *sampling, const char *text)
{
    qwen36_error error = QWEN36_ERROR_INIT;
    CHECK_INT(qw_sampling_check(sampling, &error), QWEN36_ERROR_ARGUMENT);
    CHECK_TEXT(error.message, text);
}

TEST(sampler, ranges_of_options)
{
    qwen36_sampling s = qw_sampling_plain();
    CHECK_INT(qw_sampling_check(&s, NULL), QWEN36_OK);
    const struct {
        float *field;
        float good[3], bad[4];
        const char *text;
    } rules[] = {
        {&s.temperature,
         {0, 1, FLT_MAX},
         {-1, NAN, INFINITY, -FLT_TRUE_MIN},
         "temperature must be finite and at least 0"},
        {&s.top_p, {1, 0.5F, FLT_TRUE_MIN}, {0, NAN, 1.0001F, -0.5F}, "top_p must be in (0, 1]"},
        {&s.min_p, {0, 0.5F, 1}, {-0.1F, NAN, 1.0001F, INFINITY}, "min_p must be in [0, 1]"},
        {&s.repetition_penalty,
         {1, 0.5F, FLT_MAX},
         {0, NAN, -1, INFINITY},
         "repetition_penalty must be finite and above 0"},
        {&s.presence_penalty, {0, -2, 2}, {NAN, NAN, -INFINITY, INFINITY}, "presence_penalty must be finite"},
        {&s.frequency_penalty,
         {0, -2, 2},
         {NAN, NAN, -INFINITY, INFINITY},
         "frequency_penalty must be finite"},
    };
    for (size_t i = 0; i < QW_COUNT_OF(rules); i++) {
        for (int j = 0; j < 4; j++) {
            *rules[i].field = rules[i].bad[j];
            check_refused(&s, rules[i].text);
        }
        for (int j = 2; j >= 0; j--) {
            *rules[i].field = rules[i].good[j];
            CHECK_INT(qw_sampling_check(&s, NULL), QWEN36_OK);
        }
    }
    s.top_k = -1;
    check_refused(&s, "top_k must be at least 0");
    s.top_k = INT32_MAX;
    s.logprobs = 21;
    check_refused(&s, "logprobs must be in [-1, 20]");
    s.logprobs = -2;
    check_refused(&s, "logprobs must be in [-1, 20]");
    s.logprobs = 20;
    s.reserved = 1;
    check_refused(&s, "reserved must be 0");
}

/* ---- the sampler ---- */

enum { VOCAB = 100 };

typedef struct sampler_case {
    test_allocator hooks;
    qw_allocator allocator;
    qw_sampler sampler;
} sampler_case;

static void open_case(sampler_case *c)
{
    *c = (sampler_case){0};
    c->allocator = (qw_allocator){test_allocate, test_release, &c->hooks};
    const qwen36_sampling plain = qw_sampling_plain();
    CHECK_INT(qw_sampler_init(&c->sampler, &c->allocator, VOCAB, &plain), QWEN36_OK);
}

static void close_case(sampler_case *c)
{
    qw_sampler_destroy(&c->sampler, &c->allocator);
    CHECK_INT(c->hooks.outstanding, 0);
}

static qw_sample_row row_of(sampler_case *c)
{
    static const int32_t tokens[] = {4, 5, 6};
    qw_sample_row row;
    qw_sampler_fill_row(&c->sampler, tokens, 3, 2, 9, &row);
    CHECK(row.tokens == tokens && row.token_count == 3 && row.output_begin == 2 && row.row == 9);
    return row;
}

TEST(sampler, a_row_carries_the_options)
{
    sampler_case c;
    open_case(&c);
    const qwen36_sampling options = {sizeof options, 7, 0.5F, 0.9F, 0.1F, 1.5F, 0.25F, -0.75F, 3, 0, 11, 13};
    CHECK_INT(qw_sampler_set_options(&c.sampler, &options, NULL), QWEN36_OK);
    qw_sample_row row = row_of(&c);
    CHECK(row.top_k == 7 && row.temperature == 0.5F && row.top_p == 0.9F && row.min_p == 0.1F);
    CHECK(row.repetition == 1.5F && row.presence == 0.25F && row.frequency == -0.75F && row.logprobs == 3);
    CHECK(row.uniform == qw_draw_uniform(11, 13, 3));
    CHECK(row.bitmask == NULL && row.biases == 0);

    qwen36_sampling bad = options;
    bad.top_p = 0;
    CHECK_INT(qw_sampler_set_options(&c.sampler, &bad, NULL), QWEN36_ERROR_ARGUMENT);
    CHECK(row_of(&c).top_p == 0.9F);
    close_case(&c);
}

TEST(sampler, biases_are_copied_and_replaced)
{
    sampler_case c;
    open_case(&c);
    int32_t tokens[] = {0, 99, 50};
    float bias[] = {1, -INFINITY, FLT_MAX};
    CHECK_INT(qw_sampler_set_bias(&c.sampler, &c.allocator, tokens, bias, 3, NULL), QWEN36_OK);
    tokens[0] = 7;
    bias[0] = 7;
    qw_sample_row row = row_of(&c);
    CHECK_INT(row.biases, 3);
    CHECK(row.bias_token[0] == 0 && row.bias[0] == 1 && row.bias_token[1] == 99 && isinf(row.bias[1]));

    const struct {
        int32_t token;
        float bias;
        qwen36_status status;
        const char *text;
    } bad[] = {{-1, 0, QWEN36_ERROR_TOKEN_ID, "bias: token -1 is not in 0..99"},
               {100, 0, QWEN36_ERROR_TOKEN_ID, "bias: token 100 is not in 0..99"},
               {99, 0, QWEN36_ERROR_ARGUMENT, "bias: token 99 appears twice"},
               {7, NAN, QWEN36_ERROR_ARGUMENT, "bias of token 7 must be finite or -infinity"},
               {7, INFINITY, QWEN36_ERROR_ARGUMENT, "bias of token 7 must be finite or -infinity"}};
    for (size_t i = 0; i < QW_COUNT_OF(bad); i++) {
        qwen36_error error = QWEN36_ERROR_INIT;
        tokens[0] = bad[i].token;
        bias[0] = bad[i].bias;
        const int32_t two[] = {tokens[1], tokens[0]};
        const float values[] = {bias[1], bias[0]};
        CHECK_INT(qw_sampler_set_bias(&c.sampler, &c.allocator, two, values, 2, &error), bad[i].status);
        CHECK_TEXT(error.message, bad[i].text);
    }
    row = row_of(&c);
    CHECK(row.biases == 3 && row.bias[0] == 1); /* unchanged */
    CHECK_INT(qw_sampler_set_bias(&c.sampler, &c.allocator, NULL, NULL, 0, NULL), QWEN36_OK);
    CHECK_INT(row_of(&c).biases, 0);
    CHECK_INT(qw_sampler_set_bias(&c.sampler, &c.allocator, NULL, bias, 1, NULL), QWEN36_ERROR_ARGUMENT);
    close_case(&c);
}

TEST(sampler, a_bitmask_holds_until_replaced)
{
    sampler_case c;
    open_case(&c);
    uint32_t words[4] = {1, 2, 3, 4};
    qwen36_error error = QWEN36_ERROR_INIT;
    CHECK_INT(qw_sampler_set_bitmask(&c.sampler, words, 4, NULL), QWEN36_OK);
    words[0] = 9;
    const long allocations = c.hooks.allocations;
    CHECK(row_of(&c).bitmask[0] == 1 && row_of(&c).bitmask[3] == 4);
    CHECK_INT(qw_sampler_set_bitmask(&c.sampler, words, 3, &error), QWEN36_ERROR_ARGUMENT);
    CHECK_TEXT(error.message, "bitmask: 3 words, expected 4");
    CHECK_INT(qw_sampler_set_bitmask(&c.sampler, NULL, 4, NULL), QWEN36_ERROR_ARGUMENT);
    CHECK(row_of(&c).bitmask[0] == 1);
    CHECK_INT(qw_sampler_set_bitmask(&c.sampler, words, 4, NULL), QWEN36_OK);
    CHECK(row_of(&c).bitmask[0] == 9);
    CHECK_INT(qw_sampler_set_bitmask(&c.sampler, NULL, 0, NULL), QWEN36_OK);
    CHECK(row_of(&c).bitmask == NULL);
    CHECK_INT(c.hooks.allocations, allocations);
    close_case(&c);
}

TEST(sampler, keeps_what_the_last_row_recorded)
{
    sampler_case c;
    open_case(&c);
    c.sampler.options.logprobs = 2;
    qw_sample_row row = row_of(&c);
    row.status = QWEN36_OK;
    row.logprob = -0.5F;
    row.top_count = 2;
    row.top_token[1] = 42;
    qw_sampler_take(&c.sampler, &row);
    CHECK(c.sampler.has_logprob && c.sampler.logprob == -0.5F && c.sampler.top_count == 2);
    CHECK_INT(c.sampler.top_token[1], 42);
    row.status = QWEN36_ERROR_NON_FINITE;
    qw_sampler_take(&c.sampler, &row);
    CHECK(!c.sampler.has_logprob && c.sampler.top_count == 0);
    row.status = QWEN36_OK;
    row.logprobs = -1;
    qw_sampler_take(&c.sampler, &row);
    CHECK(!c.sampler.has_logprob);
    close_case(&c);
}

TEST(sampler, failing_allocations_leave_it_as_it_was)
{
    const int32_t tokens[] = {1, 2};
    const float bias[] = {1, 2};
    const qwen36_sampling plain = qw_sampling_plain();
    test_allocator hooks = {.fail_at = 1};
    qw_allocator allocator = {test_allocate, test_release, &hooks};
    qw_sampler sampler;
    CHECK_INT(qw_sampler_init(&sampler, &allocator, VOCAB, &plain), QWEN36_ERROR_OUT_OF_MEMORY);
    CHECK_INT(hooks.outstanding, 0);
    for (int fail = 1; fail <= 3; fail++) {
        sampler_case c;
        open_case(&c);
        CHECK_INT(qw_sampler_set_bias(&c.sampler, &c.allocator, tokens, bias, 1, NULL), QWEN36_OK);
        c.hooks.fail_at = c.hooks.allocations + fail;
        CHECK_INT(qw_sampler_set_bias(&c.sampler, &c.allocator, tokens, bias, 2, NULL),
                  QWEN36_ERROR_OUT_OF_MEMORY);
        CHECK_INT(row_of(&c).biases, 1);
        CHECK_INT(qw_sampler_set_bias(&c.sampler, &c.allocator, tokens, bias, 2, NULL), QWEN36_OK);
        CHECK_INT(row_of(&c).biases, 2);
        close_case(&c);
    }
}
