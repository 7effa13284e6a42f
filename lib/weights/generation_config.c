#include "lib/weights/generation_config.h"

#include "lib/weights/fields.h"

/* The values of a field that is absent are those that transformers assumes. */
void qw_generation_init(qw_generation *g)
{
    *g = (qw_generation){
        .top_k = 50,
        .temperature = 1.0f,
        .top_p = 1.0f,
        .repetition_penalty = 1.0f,
        .bos_token = -1,
        .pad_token = -1,
    };
}

static void read_token(qw_fields *f, const char *key, int32_t vocab_size, int32_t *out)
{
    int32_t token = -1;
    if (qw_fields_find(f, key) == NULL)
        return;
    qw_fields_int(f, key, &token);
    if (token < 0 || token >= vocab_size)
        qw_fields_fail(f, QWEN36_ERROR_CONFIG, key, "a token id below vocab_size");
    else
        *out = token;
}

/* eos_token_id: one id or a list. */
static void read_end_tokens(qw_fields *f, int32_t vocab_size, qw_generation *g)
{
    const char *key = "eos_token_id";
    const cJSON *item = qw_fields_find(f, key);
    if (item == NULL)
        return;
    g->end_count = 0;
    if (!cJSON_IsArray(item)) {
        read_token(f, key, vocab_size, &g->end_tokens[0]);
        g->end_count = 1;
        return;
    }
    for (const cJSON *element = item->child; element != NULL; element = element->next) {
        int64_t token = 0;
        if (g->end_count == QW_MAX_END_TOKENS ||
            !qw_json_int64(element, 0, (int64_t)vocab_size - 1, &token)) {
            qw_fields_fail(f, QWEN36_ERROR_CONFIG, key, "at most 16 token ids below vocab_size");
            return;
        }
        g->end_tokens[g->end_count++] = (int32_t)token;
    }
}

static void read_tokens(qw_fields *f, int32_t vocab_size, qw_generation *g)
{
    read_token(f, "bos_token_id", vocab_size, &g->bos_token);
    read_token(f, "pad_token_id", vocab_size, &g->pad_token);
    read_end_tokens(f, vocab_size, g);
}

qwen36_status qw_generation_read_tokens(const cJSON *object, const char *file, int32_t vocab_size,
                                        qw_generation *generation, qwen36_error *error)
{
    qw_fields f = {object, file, error, QWEN36_OK};
    read_tokens(&f, vocab_size, generation);
    return f.status;
}

static void read_float(qw_fields *f, const char *key, double min, double max, const char *range, float *out)
{
    double value = *out;
    qw_fields_double(f, key, &value);
    if (!(value >= min && value <= max))
        qw_fields_fail(f, QWEN36_ERROR_CONFIG, key, range);
    else
        *out = (float)value;
}

static void read_sampling(qw_fields *f, qw_generation *g)
{
    qw_fields_bool(f, "do_sample", &g->do_sample);
    qw_fields_int(f, "top_k", &g->top_k);
    if (g->top_k < 0)
        qw_fields_fail(f, QWEN36_ERROR_CONFIG, "top_k", "0 or more");
    read_float(f, "temperature", 0.0, 1e6, "a number of 0 to 10^6", &g->temperature);
    read_float(f, "top_p", 1e-30, 1.0, "a number above 0, at most 1", &g->top_p);
    read_float(f, "min_p", 0.0, 1.0, "a number of 0 to 1", &g->min_p);
    read_float(f, "repetition_penalty", 1e-6, 1e6, "a number of 10^-6 to 10^6", &g->repetition_penalty);
    read_float(f, "presence_penalty", -1e6, 1e6, "a number of -10^6 to 10^6", &g->presence_penalty);
    read_float(f, "frequency_penalty", -1e6, 1e6, "a number of -10^6 to 10^6", &g->frequency_penalty);
}

qwen36_status qw_generation_parse(const char *text, size_t length, const char *file, int32_t vocab_size,
                                  qw_generation *generation, qwen36_error *error)
{
    cJSON *root = qw_json_parse(text, length, file, error);
    qw_fields f = {root, file, error, QWEN36_OK};
    qw_generation read = *generation;
    if (root == NULL)
        return error->status;
    if (!cJSON_IsObject(root))
        f.status = qw_fail(error, QWEN36_ERROR_CONFIG, "%s: expected an object", file);
    read_tokens(&f, vocab_size, &read);
    read_sampling(&f, &read);
    if (f.status == QWEN36_OK)
        *generation = read;
    qw_json_delete(root);
    return f.status;
}
