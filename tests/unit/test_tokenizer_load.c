/* Files of other kinds and broken ones: each is refused with one line that says what is wrong. */
#include "tests/harness.h"
#include "tests/unit/tokenizer_fixture.h"

#include <locale.h>

typedef struct variant {
    const char *from, *to; /* a replacement in the fixture's text */
    qwen36_status status;
    const char *says; /* part of the message */
} variant;

static const variant variants[] = {
    {"\"BPE\"", "\"WordPiece\"", QWEN36_ERROR_TOKENIZER, "model.type is \"WordPiece\", expected \"BPE\""},
    {"\"type\": \"BPE\",", "", QWEN36_ERROR_TOKENIZER, "model.type is missing"},
    {"\"dropout\": null", "\"dropout\": 0.1", QWEN36_ERROR_TOKENIZER, "model.dropout is a number"},
    {"\"unk_token\": null", "\"unk_token\": \"?\"", QWEN36_ERROR_TOKENIZER, "model.unk_token is \"?\""},
    {"prefix\": \"\"", "prefix\": \"#\"", QWEN36_ERROR_TOKENIZER, "continuing_subword_prefix is \"#\""},
    {"prefix\": \"\"", "prefix\": null", QWEN36_OK, ""},
    {"suffix\": \"\"", "suffix\": \"#\"", QWEN36_ERROR_TOKENIZER, "end_of_word_suffix"},
    {"\"fuse_unk\": false", "\"fuse_unk\": true", QWEN36_ERROR_TOKENIZER, "model.fuse_unk is true"},
    {"fallback\": false", "fallback\": true", QWEN36_ERROR_TOKENIZER, "model.byte_fallback is true"},
    {"merges\": false", "merges\": true", QWEN36_ERROR_TOKENIZER, "model.ignore_merges is true"},
    {"{\"type\": \"NFC\"}", "{\"type\": \"NFKC\"}", QWEN36_ERROR_TOKENIZER, "normalizer.type is \"NFKC\""},
    {"{\"type\": \"NFC\"}", "true", QWEN36_ERROR_TOKENIZER, "normalizer.type is missing"},
    {"\"Sequence\"", "\"Whitespace\"", QWEN36_ERROR_TOKENIZER, "pre_tokenizer.type"},
    {"\"Split\"", "\"Digits\"", QWEN36_ERROR_TOKENIZER, "pretokenizers[0].type"},
    {"\"Isolated\"", "\"Removed\"", QWEN36_ERROR_TOKENIZER, "behavior is \"Removed\""},
    {"\"invert\": false", "\"invert\": true", QWEN36_ERROR_TOKENIZER, "invert is true"},
    {"{\"Regex\"", "{\"String\"", QWEN36_ERROR_TOKENIZER, "pattern.Regex is missing"},
    {"\"add_prefix_space\": false", "\"add_prefix_space\": true", QWEN36_ERROR_TOKENIZER, "add_prefix_space"},
    {"\"use_regex\": false", "\"use\": false", QWEN36_ERROR_TOKENIZER,
     "use_regex is missing, expected false"},
    {"{\"type\": \"ByteLevel\"", "{\"type\": \"Metaspace\"", QWEN36_ERROR_TOKENIZER, "pretokenizers[1].type"},
    {"\"post_processor\": {\"type\": \"ByteLevel\"", "\"post_processor\": {\"type\": \"BertProcessing\"",
     QWEN36_ERROR_TOKENIZER, "post_processor.type is \"BertProcessing\""},
    {"\"decoder\": {\"type\": \"ByteLevel\"", "\"decoder\": {\"type\": \"WordPiece\"", QWEN36_ERROR_TOKENIZER,
     "decoder.type"},
    {"\"decoder\"", "\"decode\"", QWEN36_ERROR_TOKENIZER, "decoder.type is missing"},
    {"\"model\"", "\"modell\"", QWEN36_ERROR_TOKENIZER, "model.vocab is missing"},
    {"\"vocab\"", "\"words\"", QWEN36_ERROR_TOKENIZER, "model.vocab is missing"},
    {"\"merges\": [", "\"merge\": [", QWEN36_ERROR_TOKENIZER, "model.merges is missing"},
    {"\"a\": 97", "\"a\": -1", QWEN36_ERROR_TOKENIZER, "model.vocab: \"a\" is -1"},
    {"\"a\": 97", "\"a\": 1.5", QWEN36_ERROR_TOKENIZER, "\"a\" is 1.5"},
    {"\"a\": 97", "\"a\": 2097151", QWEN36_ERROR_TOKENIZER, "2097151"},
    {"\"a\": 97", "\"a\": 99999999999999999999", QWEN36_ERROR_TOKENIZER, "99999999999999999999"},
    {"\"a\": 97", "\"a\": [97]", QWEN36_ERROR_TOKENIZER, "expected an id"},
    {"\"a\": 97", "\"a\": 98", QWEN36_ERROR_TOKENIZER, "98"},
    {"\"a\": 97", "\"a\": 97, \"a\": 300", QWEN36_ERROR_TOKENIZER, "300"},
    {"\"a\": 97", "\"a\": 97, \"\\u0061\": 300", QWEN36_ERROR_TOKENIZER, "300"},
    {"\"a\": 97", "\"\\u0061\": 97", QWEN36_OK, ""},
    {"\"a\": 97", "\"a\": 97, \"\": 300", QWEN36_ERROR_TOKENIZER, "empty token"},
    {"\"a\": 97", "\"a\": 97, \"a b\": 300", QWEN36_OK, ""},
    {"\"a\": 97, ", "", QWEN36_ERROR_TOKENIZER, "no token for byte 97"},
    {"\"h e\"", "\"h  e\"", QWEN36_ERROR_TOKENIZER, "model.merges[0] is \"h  e\", expected two tokens"},
    {"\"h e\"", "\"he\"", QWEN36_ERROR_TOKENIZER, "model.merges[0]"},
    {"\"h e\"", "\" he\"", QWEN36_ERROR_TOKENIZER, "model.merges[0]"},
    {"\"h e\"", "\"h x\"", QWEN36_ERROR_TOKENIZER, "is not in model.vocab"},
    {"\"h e\"", "[\"h\", \"e\"]", QWEN36_OK, ""},
    {"\"h e\"", "[\"\\u0068\", \"\\u0065\"]", QWEN36_OK, ""},
    {"\"h e\"", "[\"h\"]", QWEN36_ERROR_TOKENIZER, "model.merges[0]"},
    {"\"h e\"", "[\"h\", \"e\", \"l\"]", QWEN36_ERROR_TOKENIZER, "model.merges[0]"},
    {"\"h e\"", "[\"h\", 5]", QWEN36_ERROR_TOKENIZER, "model.merges[0]"},
    {"\"h e\"", "[]", QWEN36_ERROR_TOKENIZER, "model.merges[0]"},
    {"\"h e\"", "{\"h\": \"e\"}", QWEN36_ERROR_TOKENIZER, "model.merges[0]"},
    {"\"h e\"", "17", QWEN36_ERROR_TOKENIZER, "model.merges[0]"},
    {"\"id\": 286", "\"id\": \"286\"", QWEN36_ERROR_TOKENIZER, "added_tokens[0].id"},
    {"\"id\": 286", "\"id\": 288", QWEN36_ERROR_TOKENIZER, "288"},
    {"\"id\": 286", "\"id\": 97", QWEN36_ERROR_TOKENIZER, "97"},
    {"<|end|>", "", QWEN36_ERROR_TOKENIZER, "added_tokens[0].content is \"\", expected a text"},
    {"\"lstrip\": false", "\"lstrip\": true", QWEN36_ERROR_TOKENIZER, "added_tokens[0].lstrip is true"},
    {"\"normalized\": false", "\"normalized\": true", QWEN36_ERROR_TOKENIZER, "normalized"},
    {"\"single_word\": false", "\"single_word\": true", QWEN36_ERROR_TOKENIZER, "single_word"},
    {"\"special\": true", "\"special\": 1", QWEN36_ERROR_TOKENIZER, "special is a number"},
    {"\"added_tokens\": [", "\"added_tokens\": 5, \"x\": [", QWEN36_ERROR_TOKENIZER,
     "added_tokens is no array"},
    {"\"added_tokens\": [", "\"added_tokens\": null, \"x\": [", QWEN36_OK, ""},
    {"\"version\": \"1.0\"", "\"version\": \"1.0\", \"version\": 2", QWEN36_ERROR_JSON, "stands twice"},
    {"]}}\n", "]}, \"model\": {}}", QWEN36_ERROR_JSON, "stands twice"},
    {"\"version\": \"1.0\"", "\"version\": \"1\t0\"", QWEN36_ERROR_JSON, "byte"},
    {"\"version\": \"1.0\"", "\"version\": \"\\ud800\"", QWEN36_ERROR_JSON, "surrogate"},
    {"\"version\": \"1.0\"", "\"version\": \"\xff\"", QWEN36_ERROR_JSON, "UTF-8"},
    {"\"version\": \"1.0\"", "\"version\": 01", QWEN36_ERROR_JSON, "zero"},
    {"]}}\n", "]}", QWEN36_ERROR_JSON, "tokenizer.json"},
    {"]}}\n", "]}}}", QWEN36_ERROR_JSON, "after"},
    {"]}}\n", ",]}}", QWEN36_ERROR_JSON, "value"},
    {"{\"version\"", "[{\"version\"", QWEN36_ERROR_JSON, "byte"},
};

TEST(tokenizer_load, variants)
{
    for (size_t i = 0; i < QW_COUNT_OF(variants); i++) {
        const variant *v = &variants[i];
        qwen36_tokenizer *t = NULL;
        qwen36_error error = QWEN36_ERROR_INIT;
        test_allocator memory = {0};
        const qwen36_allocator hooks = {sizeof hooks, 0, test_allocate, test_release, &memory};
        char *json = fixture_replace(fixture_json(NULL), v->from, v->to);
        qwen36_status status = fixture_load(json, NULL, &hooks, &t, &error);
        CHECK_MSG(status == v->status && error.status == status, "%s -> %s: %d, %s", v->from, v->to, status,
                  error.message);
        CHECK_MSG(strstr(error.message, v->says) != NULL, "%s -> %s: %s", v->from, v->to, error.message);
        CHECK(status == QWEN36_OK || (t == NULL && strstr(error.message, "tokenizer.json") != NULL));
        if (status == QWEN36_OK && strstr(json, "\"added_tokens\": null") == NULL)
            CHECK_TEXT(fixture_ids(t, "hello a<|end|>", 14, 1), "259 32 97 286");
        qwen36_tokenizer_destroy(t);
        CHECK_INT(memory.outstanding, 0);
        free(json);
    }
}

static const struct {
    const char *config;
    qwen36_status status;
    const char *says;
} configs[] = {
    {"{}", QWEN36_OK, ""},
    {"{\"added_tokens_decoder\": {}}", QWEN36_OK, ""},
    {"[]", QWEN36_ERROR_TOKENIZER, "the file is no object"},
    {"{", QWEN36_ERROR_JSON, "tokenizer_config.json"},
    {"{\"added_tokens_decoder\": []}", QWEN36_ERROR_TOKENIZER, "added_tokens_decoder is no object"},
    {"{\"added_tokens_decoder\": {\"x\": {\"content\": \"y\"}}}", QWEN36_ERROR_TOKENIZER, "is no id"},
    {"{\"added_tokens_decoder\": {\"-1\": {\"content\": \"y\"}}}", QWEN36_ERROR_TOKENIZER, "is no id"},
    {"{\"added_tokens_decoder\": {\"4000000\": {\"content\": \"y\"}}}", QWEN36_ERROR_TOKENIZER, "is no id"},
    {"{\"added_tokens_decoder\": {\"300\": 5}}", QWEN36_ERROR_TOKENIZER, "content is missing"},
    {"{\"added_tokens_decoder\": {\"300\": {\"content\": \"<think>\"}}}", QWEN36_ERROR_TOKENIZER, "already"},
    {"{\"added_tokens_decoder\": {\"286\": {\"content\": \"<other>\"}}}", QWEN36_ERROR_TOKENIZER, "286"},
    {"{\"added_tokens_decoder\": {\"300\": {\"content\": \"y\", \"rstrip\": true}}}", QWEN36_ERROR_TOKENIZER,
     "rstrip is true"},
};

TEST(tokenizer_load, configs)
{
    char *json = fixture_json(NULL);
    for (size_t i = 0; i < QW_COUNT_OF(configs); i++) {
        qwen36_tokenizer *t = NULL;
        qwen36_error error = QWEN36_ERROR_INIT;
        qwen36_status status = fixture_load(json, configs[i].config, NULL, &t, &error);
        CHECK_MSG(status == configs[i].status && strstr(error.message, configs[i].says) != NULL, "%s: %d, %s",
                  configs[i].config, status, error.message);
        qwen36_tokenizer_destroy(t);
    }
    free(json);
}

/* An added token may have the bytes of an ordinary one under another id only where the two differ as texts.
 */
TEST(tokenizer_load, added_tokens_beside_ordinary_ones)
{
    qwen36_tokenizer *t = NULL;
    char *json = fixture_replace(fixture_json(NULL), "<think>", " w");
    CHECK_INT(fixture_load(json, NULL, NULL, &t, NULL), QWEN36_OK);
    CHECK_INT(qwen36_tokenizer_id(t, " w", 2), 288);
    CHECK_TEXT(fixture_ids(t, "a world", 7, 1), "97 288 261 263");
    CHECK_TEXT(fixture_ids(t, "a world", 7, 0), "97 264");
    qwen36_tokenizer_destroy(t);
    free(json);
    json = fixture_replace(fixture_json(NULL), "\"id\": 288, \"content\": \"<think>\"",
                           "\"id\": 259, \"content\": \"hello\"");
    CHECK_INT(fixture_load(json, NULL, NULL, &t, NULL), QWEN36_OK);
    CHECK_TEXT(fixture_ids(t, "xhello", 6, 1), "120 259");
    qwen36_tokenizer_destroy(t);
    free(json);
    qwen36_error error = QWEN36_ERROR_INIT;
    json = fixture_replace(fixture_json(NULL), "<think>", "hello");
    CHECK_INT(fixture_load(json, NULL, NULL, &t, &error), QWEN36_ERROR_TOKENIZER);
    CHECK(strstr(error.message, "\"hello\"") != NULL && strstr(error.message, "259") != NULL);
    free(json);
}

TEST(tokenizer_load, expressions)
{
    static const struct {
        const char *pattern;
        bool good;
    } cases[] = {{"\\s+|\\S+", true},
                 {"[a-z]+|.", true},
                 {"(", false},
                 {"[a", false},
                 {"", false},
                 {"(*UTF)a", false},
                 {"\\C", false},
                 {"[a[b]]", false},
                 {"[]a]", false},
                 {"[a&&b]", false},
                 {"[\\]\\[]+", true},
                 {"\\p{Foo}", false},
                 {"(?:(?:a+)+)+b|.", true},
                 {"[^\\S\\n]+|.", true},
                 {"a\\", false}};
    for (size_t i = 0; i < QW_COUNT_OF(cases); i++) {
        qwen36_tokenizer *t = NULL;
        qwen36_error error = QWEN36_ERROR_INIT;
        char *json = fixture_json(cases[i].pattern);
        qwen36_status status = fixture_load(json, NULL, NULL, &t, &error);
        CHECK_MSG(status == (cases[i].good ? QWEN36_OK : QWEN36_ERROR_TOKENIZER), "%s: %s", cases[i].pattern,
                  error.message);
        CHECK(cases[i].good || strstr(error.message, "regular expression") != NULL);
        qwen36_tokenizer_destroy(t);
        free(json);
    }
}

/* An expression that backtracks without end is stopped, and the tokenizer lives on. */
TEST(tokenizer_load, an_expression_that_explodes)
{
    qwen36_tokenizer *t = fixture_tokenizer("(?:a|aa)+$|b");
    qwen36_error error = QWEN36_ERROR_INIT;
    char text[200];
    int32_t ids[200];
    size_t count = 0;
    memset(text, 'a', sizeof text);
    text[199] = 'c';
    CHECK_INT(qwen36_tokenizer_encode(t, text, 200, 0, ids, 200, &count, &error), QWEN36_ERROR_TOKENIZER);
    CHECK(strstr(error.message, "regular expression") != NULL);
    CHECK_TEXT(fixture_ids(t, "aaa", 3, 0), "269");
    qwen36_tokenizer_destroy(t);
}

TEST(tokenizer_load, unreadable_files)
{
    const char *directory = test_directory();
    char path[512];
    qwen36_tokenizer *t = NULL;
    qwen36_error error = QWEN36_ERROR_INIT;
    snprintf(path, sizeof path, "%s/absent", directory);
    CHECK_INT(qwen36_tokenizer_load(path, NULL, &t, &error), QWEN36_ERROR_FILE_NOT_FOUND);
    CHECK_INT(qwen36_tokenizer_load(directory, NULL, &t, &error), QWEN36_ERROR_NO_TOKENIZER);
    snprintf(path, sizeof path, "%s/tokenizer.json", directory);
    test_write_file(path, "", 0);
    CHECK_INT(qwen36_tokenizer_load(directory, NULL, &t, &error), QWEN36_ERROR_JSON);
    test_write_file(path, "3", 1);
    CHECK_INT(qwen36_tokenizer_load(directory, NULL, &t, &error), QWEN36_ERROR_TOKENIZER);
    test_write_file(path, " \n{}", 4);
    CHECK_INT(qwen36_tokenizer_load(directory, NULL, &t, &error), QWEN36_ERROR_TOKENIZER);
}

TEST(tokenizer_load, decimal_comma)
{
    if (setlocale(LC_ALL, "de_DE.UTF-8") == NULL && setlocale(LC_ALL, "fr_FR.UTF-8") == NULL)
        SKIP("no locale with a decimal comma is installed");
    qwen36_tokenizer *t = fixture_tokenizer(NULL);
    CHECK_TEXT(fixture_ids(t, "hello \xc3\xa9", 8, 0), "259 32 270");
    qwen36_tokenizer_destroy(t);
    setlocale(LC_ALL, "C");
}
