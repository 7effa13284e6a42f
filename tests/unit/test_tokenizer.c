#include "tests/harness.h"
#include "tests/unit/tokenizer_fixture.h"

#include <pthread.h>

TEST(tokenizer, encodes)
{
    qwen36_tokenizer *t = fixture_tokenizer(NULL);
    CHECK_INT(qwen36_tokenizer_size(t), 256 + (int)fixture_merge_count() + 3);
    CHECK_TEXT(fixture_ids(t, "", 0, 0), "");
    CHECK_TEXT(fixture_ids(t, NULL, 0, 0), "");
    CHECK_TEXT(fixture_ids(t, "hello world", 11, 0), "259 264");
    CHECK_TEXT(fixture_ids(t, "abc", 3, 0), "276");
    CHECK_TEXT(fixture_ids(t, "aaaaa", 5, 0), "268 97");
    CHECK_TEXT(fixture_ids(t, "a\0b", 3, 0), "97 0 98");
    CHECK_TEXT(fixture_ids(t, "e\xcc\x81", 3, 0), "270"); /* composed to U+00E9 */
    CHECK_TEXT(fixture_ids(t, "x\xff", 2, 0), "120 239 191 189");
    CHECK_TEXT(fixture_ids(t, "\xe4\xbd\xa0", 3, 0), "272");
    qwen36_tokenizer_destroy(t);
}

TEST(tokenizer, without_normalizer)
{
    char *json = fixture_replace(fixture_json(NULL), "{\"type\": \"NFC\"}", "null");
    qwen36_tokenizer *t = NULL;
    CHECK_INT(fixture_load(json, NULL, NULL, &t, NULL), QWEN36_OK);
    CHECK_TEXT(fixture_ids(t, "e\xcc\x81", 3, 0), "280");
    qwen36_tokenizer_destroy(t);
    free(json);
}

TEST(tokenizer, parses_added_tokens_when_asked)
{
    qwen36_tokenizer *t = fixture_tokenizer(NULL);
    const uint32_t parse = QWEN36_ENCODE_PARSE_SPECIAL;
    CHECK_TEXT(fixture_ids(t, "a<|end|>b", 9, parse), "97 286 98");
    CHECK_TEXT(fixture_ids(t, "<|end|>>>", 9, parse), "287 62"); /* the longest */
    CHECK_TEXT(fixture_ids(t, "<think>", 7, parse), "288");
    CHECK_TEXT(fixture_ids(t, "<|end<|end|>", 12, parse), "60 124 101 110 100 286");
    CHECK_TEXT(fixture_ids(t, "<think>", 7, 0), "60 277 284 107 62");
    CHECK_TEXT(fixture_ids(t, "e<think>\xcc\x81", 10, parse), "101 288 279"); /* matched before NFC */
    CHECK_TEXT(fixture_ids(t, "\xf0\x9f<|end|>", 9, parse), "239 191 189 286");
    qwen36_tokenizer_destroy(t);
}

TEST(tokenizer, added_tokens_of_the_config)
{
    static const char config[] = "{\"model_max_length\": 10, \"added_tokens_decoder\": {"
                                 "\"286\": {\"content\": \"<|end|>\", \"special\": true},"
                                 "\"300\": {\"content\": \"<pad>\", \"special\": true}}}";
    char *json = fixture_json(NULL);
    qwen36_tokenizer *t = NULL;
    size_t length = 7;
    CHECK_INT(fixture_load(json, config, NULL, &t, NULL), QWEN36_OK);
    CHECK_INT(qwen36_tokenizer_size(t), 301);
    CHECK_INT(qwen36_tokenizer_id(t, "<pad>", 5), 300);
    CHECK_INT(qwen36_tokenizer_is_special(t, 300), 1);
    CHECK(qwen36_tokenizer_bytes(t, 299, &length) == NULL && length == 0); /* a hole */
    CHECK_TEXT(fixture_ids(t, "<pad>", 5, 1), "300");
    qwen36_tokenizer_destroy(t);
    free(json);
}

TEST(tokenizer, decodes)
{
    qwen36_tokenizer *t = fixture_tokenizer(NULL);
    const int32_t ids[] = {259, 286, 264, 288, 0xe4};
    char text[40];
    size_t length = 0;
    CHECK_INT(qwen36_tokenizer_decode(t, ids, 5, 0, text, sizeof text, &length, NULL), QWEN36_OK);
    CHECK(length == 26 && memcmp(text, "hello<|end|> world<think>\xe4", length) == 0);
    CHECK_INT(qwen36_tokenizer_decode(t, ids, 5, 1, text, sizeof text, &length, NULL), QWEN36_OK);
    CHECK(length == 19 && memcmp(text, "hello world<think>\xe4", length) == 0);
    CHECK_INT(qwen36_tokenizer_decode(t, NULL, 0, 0, NULL, 0, &length, NULL), QWEN36_OK);
    CHECK_INT(length, 0);
    qwen36_tokenizer_destroy(t);
}

TEST(tokenizer, every_token_is_found_by_its_bytes)
{
    qwen36_tokenizer *t = fixture_tokenizer(NULL);
    for (int32_t id = 0; id < qwen36_tokenizer_size(t); id++) {
        size_t length = 0;
        const char *bytes = qwen36_tokenizer_bytes(t, id, &length);
        CHECK(bytes != NULL && length > 0);
        CHECK_INT(qwen36_tokenizer_id(t, bytes, length), id);
        CHECK_INT(qwen36_tokenizer_is_special(t, id), id == 286 || id == 287);
    }
    CHECK_INT(qwen36_tokenizer_id(t, "", 0), -1);
    CHECK_INT(qwen36_tokenizer_id(t, "no such token", 13), -1);
    qwen36_tokenizer_destroy(t);
}

TEST(tokenizer, small_buffers)
{
    qwen36_tokenizer *t = fixture_tokenizer(NULL);
    qwen36_error error = QWEN36_ERROR_INIT;
    int32_t ids[3] = {-7, -7, -7};
    char text[8] = "#######";
    size_t count = 0;
    CHECK_INT(qwen36_tokenizer_encode(t, "hello world", 11, 0, NULL, 0, &count, &error),
              QWEN36_ERROR_BUFFER_TOO_SMALL);
    CHECK_INT(count, 2);
    CHECK_INT(qwen36_tokenizer_encode(t, "hello world", 11, 0, ids, 1, &count, &error),
              QWEN36_ERROR_BUFFER_TOO_SMALL);
    CHECK(count == 2 && ids[0] == -7 && error.status == QWEN36_ERROR_BUFFER_TOO_SMALL);
    CHECK_INT(qwen36_tokenizer_encode(t, "hello world", 11, 0, ids, 2, &count, &error), QWEN36_OK);
    CHECK(count == 2 && ids[0] == 259 && ids[2] == -7);
    CHECK_INT(qwen36_tokenizer_encode(t, "", 0, 0, NULL, 0, &count, &error), QWEN36_OK);
    CHECK(count == 0 && error.status == QWEN36_OK);
    CHECK_INT(qwen36_tokenizer_decode(t, ids, 2, 0, text, 7, &count, &error), QWEN36_ERROR_BUFFER_TOO_SMALL);
    CHECK(count == 11 && text[0] == '#');
    qwen36_tokenizer_destroy(t);
}

TEST(tokenizer, wrong_calls)
{
    qwen36_tokenizer *t = fixture_tokenizer(NULL), *none = t;
    qwen36_error error = QWEN36_ERROR_INIT;
    const qwen36_allocator empty = {.struct_size = sizeof empty};
    int32_t ids[4] = {1, 2, 3, 99999};
    char text[64];
    size_t n = 0;
    CHECK_INT(qwen36_tokenizer_load(NULL, NULL, &none, &error), QWEN36_ERROR_ARGUMENT);
    CHECK(none == NULL);
    CHECK_INT(qwen36_tokenizer_load("x", NULL, NULL, &error), QWEN36_ERROR_ARGUMENT);
    CHECK_INT(qwen36_tokenizer_load("x", &empty, &none, &error), QWEN36_ERROR_ARGUMENT);
    CHECK_INT(qwen36_tokenizer_load(test_directory(), NULL, &none, &error), QWEN36_ERROR_NO_TOKENIZER);
    CHECK(strstr(error.message, "tokenizer.json") != NULL);
    CHECK_INT(qwen36_tokenizer_encode(NULL, "a", 1, 0, ids, 4, &n, &error), QWEN36_ERROR_ARGUMENT);
    CHECK_INT(qwen36_tokenizer_encode(t, NULL, 1, 0, ids, 4, &n, &error), QWEN36_ERROR_ARGUMENT);
    CHECK_INT(qwen36_tokenizer_encode(t, "a", 1, 0, NULL, 4, &n, &error), QWEN36_ERROR_ARGUMENT);
    CHECK_INT(qwen36_tokenizer_encode(t, "a", 1, 0, ids, 4, NULL, &error), QWEN36_ERROR_ARGUMENT);
    CHECK_INT(qwen36_tokenizer_encode(t, "a", 1, 2, ids, 4, &n, &error), QWEN36_ERROR_ARGUMENT);
    CHECK_INT(qwen36_tokenizer_decode(NULL, ids, 3, 0, text, 64, &n, &error), QWEN36_ERROR_ARGUMENT);
    CHECK_INT(qwen36_tokenizer_decode(t, NULL, 3, 0, text, 64, &n, &error), QWEN36_ERROR_ARGUMENT);
    CHECK_INT(qwen36_tokenizer_decode(t, ids, 3, 0, NULL, 64, &n, &error), QWEN36_ERROR_ARGUMENT);
    CHECK_INT(qwen36_tokenizer_decode(t, ids, 3, 0, text, 64, NULL, &error), QWEN36_ERROR_ARGUMENT);
    CHECK_INT(qwen36_tokenizer_decode(t, ids, 3, 8, text, 64, &n, &error), QWEN36_ERROR_ARGUMENT);
    CHECK_INT(qwen36_tokenizer_decode(t, ids, 4, 0, text, 64, &n, &error), QWEN36_ERROR_TOKEN_ID);
    CHECK(strstr(error.message, "99999") != NULL);
    CHECK(qwen36_tokenizer_bytes(NULL, 1, &n) == NULL && qwen36_tokenizer_bytes(t, -1, NULL) == NULL);
    CHECK_INT(qwen36_tokenizer_id(t, NULL, 3), -1);
    CHECK(qwen36_tokenizer_size(NULL) == 0 && qwen36_tokenizer_is_special(t, -1) == 0);
    qwen36_tokenizer_destroy(NULL);
    qwen36_tokenizer_destroy(t);
}

static void *encode_often(void *user)
{
    const qwen36_tokenizer *t = user;
    static const char text[] = "hello world the abc aaaa ing hello\n\n== you're 123 e\xcc\x81";
    int32_t first[64], ids[64];
    size_t n = 0, count = 0;
    if (qwen36_tokenizer_encode(t, text, sizeof text - 1, 1, first, 64, &n, NULL) != QWEN36_OK)
        return user;
    for (int i = 0; i < 500; i++)
        if (qwen36_tokenizer_encode(t, text, sizeof text - 1, 1, ids, 64, &count, NULL) != QWEN36_OK ||
            count != n || memcmp(ids, first, n * sizeof *ids) != 0)
            return user;
    return NULL;
}

TEST(tokenizer, many_threads)
{
    qwen36_tokenizer *t = fixture_tokenizer(NULL);
    pthread_t threads[4];
    for (size_t i = 0; i < QW_COUNT_OF(threads); i++)
        CHECK_INT(pthread_create(&threads[i], NULL, encode_often, t), 0);
    for (size_t i = 0; i < QW_COUNT_OF(threads); i++) {
        void *wrong = NULL;
        CHECK_INT(pthread_join(threads[i], &wrong), 0);
        CHECK(wrong == NULL);
    }
    qwen36_tokenizer_destroy(t);
}
