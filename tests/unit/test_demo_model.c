/* The demo model on real text, against transformers in float32: perplexity of held-out documents to four
 * digits, and greedy continuations token by token. */
#include "tests/harness.h"
#include "tests/unit/checkpoint.h"

#include <cjson/cJSON.h>
#include <math.h>

static const char MODEL[] = "examples/demo-model";

static cJSON *load_reference(void)
{
    char *text = test_read_file("tests/golden/demo/reference.json", NULL);
    CHECK(text != NULL);
    cJSON *reference = cJSON_Parse(text);
    free(text);
    CHECK(reference != NULL);
    return reference;
}

static qwen36_model *load_demo(int32_t numerics, int32_t kv_dtype)
{
    qwen36_model_options options = test_model_options();
    options.numerics = numerics;
    options.kv_dtype = kv_dtype;
    options.context_length = 1024;
    options.max_batch_tokens = 512;
    return test_model(MODEL, &options);
}

static size_t read_ids(const cJSON *object, const char *name, int32_t *ids, size_t capacity)
{
    const cJSON *array = cJSON_GetObjectItemCaseSensitive(object, name), *item;
    size_t count = 0;
    cJSON_ArrayForEach(item, array)
    {
        CHECK(count < capacity);
        ids[count++] = item->valueint;
    }
    return count;
}

/* Sum of the negative log-probs of all tokens but the first. */
static double score(qwen36_model *model, const int32_t *ids, size_t count)
{
    static float logprobs[1024];
    qwen36_error error = QWEN36_ERROR_INIT;
    qwen36_session *session = test_session(model);
    double sum = 0;
    qwen36_status status = qwen36_session_score(session, ids, count, logprobs, &error);
    CHECK_MSG(status == QWEN36_OK, "%s", error.message);
    for (size_t i = 1; i < count; i++)
        sum -= (double)logprobs[i];
    qwen36_session_destroy(session);
    return sum;
}

TEST(demo_model, perplexity)
{
    static int32_t ids[1024];
    cJSON *reference = load_reference();
    qwen36_model *model = load_demo(QWEN36_NUMERICS_REFERENCE, QWEN36_KV_AUTO);
    const cJSON *document, *documents = cJSON_GetObjectItemCaseSensitive(reference, "documents");
    double sum = 0, predicted = 0;
    size_t number = 0;
    cJSON_ArrayForEach(document, documents)
    {
        if (number++ % test_stride() != 0)
            continue;
        size_t count = read_ids(document, "ids", ids, 1024);
        double expected = cJSON_GetObjectItemCaseSensitive(document, "nll_without_padding")->valuedouble;
        double nll = score(model, ids, count), limit = 1e-5 * (double)(count - 1);
        CHECK_MSG(fabs(nll - expected) < limit, "nll %.6f, expected %.6f", nll, expected);
        sum += nll;
        predicted += (double)(count - 1);
    }
    double expected = cJSON_GetObjectItemCaseSensitive(cJSON_GetObjectItemCaseSensitive(reference, "total"),
                                                       "perplexity_without_padding")
                          ->valuedouble;
    double perplexity = exp(sum / predicted);
    CHECK_MSG(test_stride() > 1 || fabs(perplexity / expected - 1) < 5e-5, "perplexity %.6f, expected %.6f",
              perplexity, expected); /* of all documents */
    qwen36_model_release(model);
    cJSON_Delete(reference);
}

TEST(demo_model, greedy_continuations)
{
    cJSON *reference = load_reference();
    qwen36_model *model = load_demo(QWEN36_NUMERICS_REFERENCE, QWEN36_KV_AUTO);
    const cJSON *entry, *entries = cJSON_GetObjectItemCaseSensitive(reference, "continuations");
    int32_t prompts = 0;
    cJSON_ArrayForEach(entry, entries)
    {
        if (prompts++ % (int32_t)test_stride() != 0)
            continue;
        int32_t prompt[256], ids[256], token;
        const char *text = cJSON_GetObjectItemCaseSensitive(entry, "prompt")->valuestring;
        size_t prompt_count = read_ids(entry, "prompt_ids", prompt, 256), encoded = 0;
        size_t count = read_ids(entry, "ids", ids, 256);
        int32_t mine[256];
        CHECK_INT(qwen36_tokenizer_encode(qwen36_model_tokenizer(model), text, strlen(text), 0, mine, 256,
                                          &encoded, NULL),
                  QWEN36_OK);
        CHECK_INT(encoded, prompt_count);
        CHECK(memcmp(mine, prompt, encoded * sizeof *mine) == 0);
        qwen36_session *session = test_session(model);
        qwen36_sampling greedy;
        CHECK_INT(qwen36_sampling_init(model, &greedy, sizeof greedy), QWEN36_OK);
        greedy.temperature = 0;
        CHECK_INT(qwen36_session_set_sampling(session, &greedy, NULL), QWEN36_OK);
        CHECK_INT(qwen36_session_append(session, prompt, prompt_count, QWEN36_LOGITS_LAST, NULL), QWEN36_OK);
        CHECK(count >= 32);
        for (size_t i = 0; i < count; i++) {
            test_compute(session);
            CHECK_INT(qwen36_sample(&session, 1, &token, NULL, NULL), QWEN36_OK);
            CHECK_MSG(token == ids[i], "'%s': token %zu is %d, expected %d", text, i, token, ids[i]);
        }
        qwen36_session_destroy(session);
    }
    CHECK(prompts >= 5);
    qwen36_model_release(model);
    cJSON_Delete(reference);
}

/* Full-vocabulary KL divergence between settings, over held-out documents. */
typedef struct rows {
    float *logits;
    int32_t count, vocab_size;
} rows;

static void keep_row(void *user, qwen36_session *session, int32_t position, const float *logits,
                     int32_t vocab_size)
{
    (void)session;
    rows *r = user;
    if (r->logits == NULL)
        r->logits = malloc(sizeof(float) * 1024 * (size_t)vocab_size);
    r->vocab_size = vocab_size;
    memcpy(r->logits + (int64_t)position * vocab_size, logits, sizeof(float) * (size_t)vocab_size);
    r->count++;
}

static rows all_logits(int32_t numerics, int32_t kv_dtype, const int32_t *ids, size_t count)
{
    rows r = {0};
    qwen36_model *model = load_demo(numerics, kv_dtype);
    qwen36_session_options options;
    qwen36_session *session = NULL;
    CHECK_INT(qwen36_session_options_init(model, &options, sizeof options), QWEN36_OK);
    options.on_logits = keep_row;
    options.user = &r;
    CHECK_INT(qwen36_session_create(model, &options, &session, NULL), QWEN36_OK);
    CHECK_INT(qwen36_session_append(session, ids, count, QWEN36_LOGITS_ALL, NULL), QWEN36_OK);
    test_compute(session);
    qwen36_session_destroy(session);
    qwen36_model_release(model);
    return r;
}

static double log_sum(const float *logits, int32_t count)
{
    double largest = -INFINITY, sum = 0;
    for (int32_t i = 0; i < count; i++)
        largest = fmax(largest, (double)logits[i]);
    for (int32_t i = 0; i < count; i++)
        sum += exp((double)logits[i] - largest);
    return largest + log(sum);
}

static double divergence(const float *p, const float *q, int32_t count)
{
    double log_p = log_sum(p, count), log_q = log_sum(q, count), sum = 0;
    for (int32_t i = 0; i < count; i++)
        if (p[i] > -INFINITY)
            sum += exp((double)p[i] - log_p) * (((double)p[i] - log_p) - ((double)q[i] - log_q));
    return sum;
}

TEST(demo_model, fast_numerics_stay_close)
{
    static int32_t ids[1024];
    cJSON *reference = load_reference();
    const cJSON *documents = cJSON_GetObjectItemCaseSensitive(reference, "documents");
    size_t count = read_ids(cJSON_GetArrayItem(documents, 0), "ids", ids, 1024);
    rows exact = all_logits(QWEN36_NUMERICS_REFERENCE, QWEN36_KV_AUTO, ids, count);
    rows fast = all_logits(QWEN36_NUMERICS_FAST, QWEN36_KV_AUTO, ids, count);
    double sum = 0;
    for (int32_t i = 0; i < exact.count; i++)
        sum += divergence(exact.logits + (int64_t)i * exact.vocab_size,
                          fast.logits + (int64_t)i * fast.vocab_size, exact.vocab_size);
    double mean = sum / exact.count;
    fprintf(stderr, "mean KL of fast numerics: %.3g nats\n", mean);
    CHECK_MSG(mean >= 0 && mean < 1e-3, "mean KL %.6f", mean);
    free(exact.logits);
    free(fast.logits);
    cJSON_Delete(reference);
}

static double entropy(const float *p, int32_t count)
{
    double log_p = log_sum(p, count), sum = 0;
    for (int32_t i = 0; i < count; i++)
        if (p[i] > -INFINITY)
            sum -= exp((double)p[i] - log_p) * ((double)p[i] - log_p);
    return sum;
}

/* Divergences of rows in which the model is undecided: elsewhere a small one says little. */
typedef struct divergences {
    double of[8192];
    size_t count;
} divergences;

static void compare_caches(int32_t numerics, const int32_t *ids, size_t count, divergences *all)
{
    rows exact = all_logits(numerics, QWEN36_KV_F32, ids, count);
    rows small = all_logits(numerics, QWEN36_KV_I8, ids, count);
    for (int32_t i = 0; i < exact.count; i++) {
        const float *p = exact.logits + (int64_t)i * exact.vocab_size;
        const float *q = small.logits + (int64_t)i * exact.vocab_size;
        CHECK(all->count < QW_COUNT_OF(all->of));
        if (entropy(p, exact.vocab_size) >= 1)
            all->of[all->count++] = divergence(p, q, exact.vocab_size);
    }
    free(exact.logits);
    free(small.logits);
}

static int ascending(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

TEST(demo_model, cache_of_8_bits_stays_close)
{
    static int32_t ids[1024];
    static divergences all;
    cJSON *reference = load_reference();
    const cJSON *document, *documents = cJSON_GetObjectItemCaseSensitive(reference, "documents");
    for (int32_t numerics = QWEN36_NUMERICS_REFERENCE; numerics <= QWEN36_NUMERICS_FAST; numerics++) {
        double sum = 0;
        size_t number = 0;
        all.count = 0;
        cJSON_ArrayForEach(document, documents)
        {
            if (number++ % test_stride() != 0)
                continue;
            const size_t count = read_ids(document, "ids", ids, 1024);
            compare_caches(numerics, ids, count, &all);
        }
        CHECK(all.count > 1000);
        qsort(all.of, all.count, sizeof all.of[0], ascending);
        for (size_t i = 0; i < all.count; i++)
            sum += all.of[i];
        const double mean = sum / (double)all.count;
        fprintf(stderr, "KL of the cache in 8 bits, numerics %d, %zu rows: mean %.3g, p99 %.3g nats\n",
                numerics, all.count, mean, all.of[all.count * 99 / 100]);
        CHECK_MSG(mean > 0 && mean <= 0.002, "mean KL %.6f", mean);
    }
    cJSON_Delete(reference);
}
