#include "lib/text/tokenizer_kind.h"

#include <stdio.h>
#include <string.h>

/* What a member must be. */
typedef enum wanted {
    WANT_NULL,     /* null or absent */
    WANT_EMPTY,    /* null, absent or "" */
    WANT_NOT_TRUE, /* false, null or absent */
    WANT_FALSE     /* false, and said so: absent means true */
} wanted;

static const char *const wanted_names[] = {"null", "empty", "false", "false"};

typedef struct rule {
    const char *key;
    wanted want;
} rule;

typedef struct check {
    const char *file;
    qwen36_error *error;
} check;

static bool is_absent(const cJSON *item)
{
    return item == NULL || cJSON_IsNull(item);
}

static bool obeys(const cJSON *item, wanted want)
{
    switch (want) {
    case WANT_NULL:
        return is_absent(item);
    case WANT_EMPTY:
        return is_absent(item) || (cJSON_IsString(item) && item->valuestring[0] == '\0');
    case WANT_NOT_TRUE:
        return is_absent(item) || cJSON_IsFalse(item);
    case WANT_FALSE:
        return cJSON_IsFalse(item);
    }
    return false;
}

/* A value in words. */
static const char *describe(const cJSON *item, char text[80])
{
    if (item == NULL)
        return "missing";
    if (cJSON_IsString(item)) {
        snprintf(text, 80, "\"%.60s\"", item->valuestring);
        return text;
    }
    return cJSON_IsNull(item)     ? "null"
           : cJSON_IsTrue(item)   ? "true"
           : cJSON_IsFalse(item)  ? "false"
           : cJSON_IsNumber(item) ? "a number"
           : cJSON_IsArray(item)  ? "an array"
                                  : "an object";
}

static qwen36_status refuse(const check *c, const char *where, const char *key, const cJSON *item,
                            const char *expected)
{
    char text[80];
    return qw_fail(c->error, QWEN36_ERROR_TOKENIZER, "%s: %s%s%s is %s, expected %s", c->file, where,
                   where[0] == '\0' ? "" : ".", key, describe(item, text), expected);
}

static qwen36_status check_rules(const check *c, const cJSON *object, const char *where, const rule *rules,
                                 size_t count)
{
    for (size_t i = 0; i < count; i++) {
        const cJSON *item = qw_json_member(object, rules[i].key);
        if (!obeys(item, rules[i].want))
            return refuse(c, where, rules[i].key, item, wanted_names[rules[i].want]);
    }
    return QWEN36_OK;
}

static qwen36_status check_word(const check *c, const cJSON *object, const char *where, const char *key,
                                const char *word)
{
    const cJSON *item = qw_json_member(object, key);
    char expected[80];
    if (cJSON_IsString(item) && strcmp(item->valuestring, word) == 0)
        return QWEN36_OK;
    snprintf(expected, sizeof expected, "\"%s\"", word);
    return refuse(c, where, key, item, expected);
}

static qwen36_status check_model(const check *c, const cJSON *tree)
{
    static const rule rules[] = {{"dropout", WANT_NULL},
                                 {"unk_token", WANT_NULL},
                                 {"continuing_subword_prefix", WANT_EMPTY},
                                 {"end_of_word_suffix", WANT_EMPTY},
                                 {"fuse_unk", WANT_NOT_TRUE},
                                 {"byte_fallback", WANT_NOT_TRUE},
                                 {"ignore_merges", WANT_NOT_TRUE}};
    const cJSON *model = qw_json_member(tree, "model");
    if (!cJSON_IsObject(model))
        return refuse(c, "", "model", model, "an object");
    qwen36_status status = check_word(c, model, "model", "type", "BPE");
    return status != QWEN36_OK ? status : check_rules(c, model, "model", rules, QW_COUNT_OF(rules));
}

static qwen36_status check_split(const check *c, const cJSON *split, const char **pattern)
{
    static const char where[] = "pre_tokenizer.pretokenizers[0]";
    static const rule rules[] = {{"invert", WANT_NOT_TRUE}};
    const cJSON *expression = qw_json_member(qw_json_member(split, "pattern"), "Regex");
    qwen36_status status = check_word(c, split, where, "type", "Split");
    if (status == QWEN36_OK)
        status = check_word(c, split, where, "behavior", "Isolated");
    if (status == QWEN36_OK)
        status = check_rules(c, split, where, rules, QW_COUNT_OF(rules));
    if (status == QWEN36_OK && !cJSON_IsString(expression))
        status = refuse(c, where, "pattern.Regex", expression, "a string");
    if (status == QWEN36_OK)
        *pattern = expression->valuestring;
    return status;
}

static qwen36_status check_pre_tokenizer(const check *c, const cJSON *tree, const char **pattern)
{
    static const rule rules[] = {{"add_prefix_space", WANT_FALSE}, {"use_regex", WANT_FALSE}};
    static const char where[] = "pre_tokenizer.pretokenizers[1]";
    const cJSON *sequence = qw_json_member(tree, "pre_tokenizer");
    const cJSON *steps = qw_json_member(sequence, "pretokenizers");
    qwen36_status status = check_word(c, sequence, "pre_tokenizer", "type", "Sequence");
    if (status != QWEN36_OK)
        return status;
    if (!cJSON_IsArray(steps) || cJSON_GetArraySize(steps) != 2)
        return refuse(c, "pre_tokenizer", "pretokenizers", steps, "an array of Split and ByteLevel");
    status = check_split(c, cJSON_GetArrayItem(steps, 0), pattern);
    const cJSON *bytes = cJSON_GetArrayItem(steps, 1);
    if (status == QWEN36_OK)
        status = check_word(c, bytes, where, "type", "ByteLevel");
    return status != QWEN36_OK ? status : check_rules(c, bytes, where, rules, QW_COUNT_OF(rules));
}

qwen36_status qw_tokenizer_check_kind(const cJSON *tree, const char *file, bool *nfc, const char **pattern,
                                      qwen36_error *error)
{
    const check c = {file, error};
    const cJSON *normalizer = qw_json_member(tree, "normalizer");
    const cJSON *post = qw_json_member(tree, "post_processor");
    qwen36_status status = check_model(&c, tree);
    *nfc = !is_absent(normalizer);
    if (status == QWEN36_OK && *nfc)
        status = check_word(&c, normalizer, "normalizer", "type", "NFC");
    if (status == QWEN36_OK)
        status = check_pre_tokenizer(&c, tree, pattern);
    if (status == QWEN36_OK && !is_absent(post))
        status = check_word(&c, post, "post_processor", "type", "ByteLevel");
    if (status == QWEN36_OK)
        status = check_word(&c, qw_json_member(tree, "decoder"), "decoder", "type", "ByteLevel");
    return status;
}

qwen36_status qw_tokenizer_read_added(const cJSON *item, const char *file, const char *where,
                                      qw_added_entry *out, qwen36_error *error)
{
    static const rule rules[] = {{"single_word", WANT_NOT_TRUE},
                                 {"lstrip", WANT_NOT_TRUE},
                                 {"rstrip", WANT_NOT_TRUE},
                                 {"normalized", WANT_NOT_TRUE}};
    const check c = {file, error};
    const cJSON *content = qw_json_member(item, "content"), *special = qw_json_member(item, "special");
    if (!cJSON_IsString(content) || content->valuestring[0] == '\0')
        return refuse(&c, where, "content", content, "a text");
    if (!cJSON_IsBool(special) && !is_absent(special))
        return refuse(&c, where, "special", special, "true or false");
    *out = (qw_added_entry){content->valuestring, cJSON_IsTrue(special)};
    return check_rules(&c, item, where, rules, QW_COUNT_OF(rules));
}
