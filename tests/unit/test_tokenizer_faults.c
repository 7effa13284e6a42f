/* Every allocation of every call fails once, and from there on: ours through the hooks, cJSON's through its
 * own (this program is their owner, as a host would be). Each time: out of memory, nothing is left, and what
 * was there goes on. PCRE2 allocates through our hooks; utf8proc does not allocate. */
#include "lib/base/json.h"
#include "tests/harness.h"
#include "tests/unit/tokenizer_fixture.h"

static test_allocator ours, parser;
static const qwen36_allocator hooks = {sizeof hooks, 0, test_allocate, test_release, &ours};

static void *parser_malloc(size_t size)
{
    return test_allocate(&parser, size, 16);
}

static void parser_free(void *memory)
{
    if (memory != NULL)
        test_release(&parser, memory);
}

static void check_failure(long k, qwen36_status status, const qwen36_error *error)
{
    CHECK_MSG(status == QWEN36_ERROR_OUT_OF_MEMORY && error->status == status, "allocation %ld: %d %s", k,
              status, error->message);
    CHECK(strstr(error->message, "memory") != NULL);
}

static const char other[] = "\\s?\\p{L}+|\\p{N}{1,3}|[^\\s\\p{L}\\p{N}]+|\\s+";

static void fail_loading(const char *pattern, test_allocator *failing, bool forever)
{
    static const char config[] = "{\"added_tokens_decoder\": {\"300\": {\"content\": \"<pad>\"}}}";
    char *json = fixture_json(pattern);
    for (long k = 1;; k++) {
        qwen36_tokenizer *t = NULL;
        qwen36_error error = QWEN36_ERROR_INIT;
        ours = parser = (test_allocator){0};
        failing->fail_at = k;
        failing->forever = forever;
        qwen36_status status = fixture_load(json, config, &hooks, &t, &error);
        bool failed = failing->allocations >= k;
        failing->fail_at = 0;
        CHECK_MSG((t != NULL) == (status == QWEN36_OK), "allocation %ld", k);
        qwen36_tokenizer_destroy(t);
        CHECK_INT(ours.outstanding, 0);
        CHECK_INT(parser.outstanding, 0);
        if (!failed) {
            CHECK_INT(status, QWEN36_OK);
            CHECK(k > 10);
            break;
        }
        if (status != QWEN36_OK) /* compiling to machine code may fail: the interpreter does it then */
            check_failure(k, status, &error);
        else
            CHECK(pattern == other && failing == &ours);
    }
    free(json);
}

TEST(tokenizer_faults, loading)
{
    cJSON_Hooks own = {parser_malloc, parser_free};
    cJSON_InitHooks(&own);
    for (int i = 0; i < 8; i++)
        fail_loading(i & 1 ? other : NULL, i & 2 ? &parser : &ours, (i & 4) != 0);
    cJSON_InitHooks(NULL);
}

/* Text for every stage: invalid bytes, marks out of order, a long piece, many ids, added tokens. */
static size_t make_text(char *text, size_t room)
{
    size_t length = 0;
    static const char head[] = "hello\xff world q\xcc\x81\xcc\xa3 <|end|> e\xcc\x81 ";
    memcpy(text, head, sizeof head - 1);
    length = sizeof head - 1;
    while (length + 3 < room) {
        static const char *const units[] = {"he", "12 ", "\xcc\xa3", "=="};
        const char *unit = units[length / (room / 4) % 4];
        memcpy(text + length, unit, strlen(unit));
        length += strlen(unit);
    }
    return length;
}

static void fail_encoding(const char *pattern, size_t room, bool forever)
{
    static char text[4096];
    static int32_t ids[3 * sizeof text], wanted[3 * sizeof text];
    size_t length = make_text(text, sizeof text), count = 0, wanted_count = 0;
    char *json = fixture_json(pattern);
    qwen36_tokenizer *t = NULL;
    ours = (test_allocator){0};
    CHECK_INT(fixture_load(json, NULL, &hooks, &t, NULL), QWEN36_OK);
    CHECK_INT(qwen36_tokenizer_encode(t, text, length, 1, wanted, QW_COUNT_OF(wanted), &wanted_count, NULL),
              QWEN36_OK);
    long before = ours.outstanding;
    for (long k = 1;; k++) {
        qwen36_error error = QWEN36_ERROR_INIT;
        ours.allocations = 0;
        ours.fail_at = k;
        ours.forever = forever;
        qwen36_status status = qwen36_tokenizer_encode(t, text, length, 1, ids, room, &count, &error);
        bool failed = ours.allocations >= k;
        ours.fail_at = 0;
        CHECK_INT(ours.outstanding, before);
        if (!failed) {
            CHECK_INT(status, room >= wanted_count ? QWEN36_OK : QWEN36_ERROR_BUFFER_TOO_SMALL);
            CHECK(k > 5 && count == wanted_count);
            CHECK(room == 0 || memcmp(ids, wanted, count * sizeof *ids) == 0);
            break;
        }
        check_failure(k, status, &error);
    }
    qwen36_tokenizer_destroy(t);
    CHECK_INT(ours.outstanding, 0);
    free(json);
}

TEST(tokenizer_faults, encoding)
{
    for (int i = 0; i < 8; i++)
        fail_encoding(i & 1 ? other : NULL, i & 2 ? 0 : 12288, (i & 4) != 0);
}

TEST(tokenizer_faults, streaming)
{
    qwen36_tokenizer *t = NULL;
    qwen36_error error = QWEN36_ERROR_INIT;
    char long_token[4096], *json;
    const char *text = NULL;
    size_t length = 0;
    memset(long_token, 'y', sizeof long_token);
    long_token[sizeof long_token - 1] = '\0';
    json = fixture_replace(fixture_json(NULL), "<think>", long_token);
    ours = (test_allocator){0};
    CHECK_INT(fixture_load(json, NULL, &hooks, &t, NULL), QWEN36_OK);
    for (long k = 1; k <= 3; k++) {
        qwen36_decoder *d = NULL;
        ours.allocations = 0;
        ours.fail_at = k;
        qwen36_status status = qwen36_decoder_create(t, NULL, &d, &error);
        ours.fail_at = 0;
        CHECK_INT(status, k <= 2 ? QWEN36_ERROR_OUT_OF_MEMORY : QWEN36_OK);
        CHECK((d != NULL) == (status == QWEN36_OK));
        if (d == NULL)
            continue;
        CHECK_INT(qwen36_decoder_push(d, 0xc3, &text, &length, &error), QWEN36_OK);
        ours.allocations = 0;
        ours.fail_at = 1;
        CHECK_INT(qwen36_decoder_push(d, 288, &text, &length, &error), QWEN36_ERROR_OUT_OF_MEMORY);
        CHECK_INT(qwen36_decoder_push(d, 0xa9, &text, &length, &error), QWEN36_OK);
        CHECK_TEXT(text, "\xc3\xa9"); /* the decoder stood where it stood */
        CHECK_INT(qwen36_decoder_push(d, 288, &text, &length, &error), QWEN36_OK);
        CHECK_INT(length, sizeof long_token - 1);
        qwen36_decoder_destroy(d);
    }
    qwen36_tokenizer_destroy(t);
    CHECK_INT(ours.outstanding, 0);
    free(json);
}
