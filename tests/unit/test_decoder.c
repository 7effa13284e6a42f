#include "lib/text/decoder.h"
#include "lib/text/utf8.h"
#include "tests/harness.h"
#include "tests/unit/tokenizer_fixture.h"

#include <sys/wait.h>
#include <unistd.h>

static qwen36_decoder *create(const qwen36_tokenizer *t, uint32_t flags)
{
    qwen36_decoder_options options;
    qwen36_decoder *decoder = NULL;
    qwen36_decoder_options_init(&options, sizeof options);
    CHECK(options.struct_size == sizeof options && options.flags == QWEN36_DECODE_SKIP_SPECIAL);
    options.flags = flags;
    CHECK_INT(qwen36_decoder_create(t, &options, &decoder, NULL), QWEN36_OK);
    return decoder;
}

/* Pushes and compares the text of this one token. */
static void push(qwen36_decoder *decoder, int32_t token, const char *expected)
{
    const char *text = NULL;
    size_t length = 99;
    qwen36_error error = QWEN36_ERROR_INIT;
    CHECK_INT(qwen36_decoder_push(decoder, token, &text, &length, &error), QWEN36_OK);
    CHECK_TEXT(text, expected);
    CHECK_INT(length, strlen(expected));
}

static void finish(qwen36_decoder *decoder, const char *expected)
{
    const char *text = NULL;
    size_t length = 99;
    CHECK_INT(qwen36_decoder_finish(decoder, &text, &length, NULL), QWEN36_OK);
    CHECK_TEXT(text, expected);
    CHECK_INT(length, strlen(expected));
}

TEST(decoder, a_character_comes_out_whole)
{
    qwen36_tokenizer *t = fixture_tokenizer(NULL);
    qwen36_decoder *d = create(t, 0);
    push(d, 'a', "a");
    push(d, 0xf0, "");
    push(d, 0x9f, "");
    push(d, 0x98, "");
    push(d, 0x80, "\xf0\x9f\x98\x80");
    push(d, 271, ""); /* e4 bd */
    push(d, 0xa0, "\xe4\xbd\xa0");
    push(d, 0xc3, "");
    push(d, 259, "\xef\xbf\xbdhello");
    push(d, 0x80, "\xef\xbf\xbd");
    push(d, 0xe2, "");
    push(d, 0x82, "");
    push(d, 0xe2, "\xef\xbf\xbd");
    finish(d, "\xef\xbf\xbd");
    finish(d, "");
    push(d, 0xac, "\xef\xbf\xbd"); /* as new */
    qwen36_decoder_destroy(d);
    qwen36_tokenizer_destroy(t);
}

TEST(decoder, special_tokens)
{
    qwen36_tokenizer *t = fixture_tokenizer(NULL);
    int32_t end = qwen36_tokenizer_id(t, "<|end|>", 7), think = qwen36_tokenizer_id(t, "<think>", 7);
    qwen36_decoder *skip = create(t, QWEN36_DECODE_SKIP_SPECIAL), *keep = create(t, 0), *plain = NULL;
    push(skip, 0xc3, "");
    push(skip, end, "");
    push(skip, 0xa9, "\xc3\xa9"); /* the character goes on behind what gives no text */
    push(skip, think, "<think>");
    push(keep, 0xc3, "");
    push(keep, end, "\xef\xbf\xbd<|end|>");
    CHECK_INT(qwen36_decoder_create(t, NULL, &plain, NULL), QWEN36_OK);
    push(plain, end, "");
    qwen36_decoder_destroy(skip);
    qwen36_decoder_destroy(keep);
    qwen36_decoder_destroy(plain);
    qwen36_tokenizer_destroy(t);
}

/* The texts together are the decoded bytes repaired, whatever the tokens. */
TEST(decoder, equals_decoding_at_once)
{
    qwen36_tokenizer *t = fixture_tokenizer(NULL);
    qwen36_decoder *d = create(t, 0);
    uint64_t state = 6;
    for (int round = 0; round < 3000; round++) {
        int32_t ids[12];
        char bytes[256], wanted[768], got[768];
        size_t count = 1 + fixture_random(&state, 12), length = 0, got_length = 0;
        for (size_t i = 0; i < count; i++)
            ids[i] = (int32_t)(round % 2 == 0 ? fixture_random(&state, (uint32_t)qwen36_tokenizer_size(t))
                                              : 0x80 + fixture_random(&state, 0x80));
        CHECK_INT(qwen36_tokenizer_decode(t, ids, count, 0, bytes, sizeof bytes, &length, NULL), QWEN36_OK);
        size_t wanted_length = qw_utf8_repair(bytes, length, wanted, NULL), n = 0;
        for (size_t i = 0; i <= count; i++) {
            const char *text = NULL;
            qwen36_status status = i < count ? qwen36_decoder_push(d, ids[i], &text, &n, NULL)
                                             : qwen36_decoder_finish(d, &text, &n, NULL);
            CHECK_INT(status, QWEN36_OK);
            CHECK(qw_utf8_valid_prefix(text, n) == n && text[n] == '\0');
            memcpy(got + got_length, text, n);
            got_length += n;
        }
        CHECK(got_length == wanted_length && memcmp(got, wanted, got_length) == 0);
    }
    qwen36_decoder_destroy(d);
    qwen36_tokenizer_destroy(t);
}

TEST(decoder, wrong_calls)
{
    qwen36_tokenizer *t = fixture_tokenizer(NULL);
    qwen36_decoder *d = create(t, 0), *none = d;
    qwen36_decoder_options options = {.struct_size = sizeof options, .flags = 4};
    qwen36_error error = QWEN36_ERROR_INIT;
    const char *text = NULL;
    size_t length = 0;
    CHECK_INT(qwen36_decoder_create(t, NULL, NULL, &error), QWEN36_ERROR_ARGUMENT);
    CHECK_INT(qwen36_decoder_create(t, &options, &none, &error), QWEN36_ERROR_ARGUMENT);
    CHECK(none == NULL && error.status == QWEN36_ERROR_ARGUMENT);
    options.struct_size = 2;
    CHECK_INT(qwen36_decoder_create(t, &options, &none, &error), QWEN36_ERROR_STRUCT_SIZE);
    CHECK_INT(qwen36_decoder_create(NULL, NULL, &none, &error), QWEN36_ERROR_ARGUMENT);
    CHECK_INT(qwen36_decoder_push(NULL, 1, &text, &length, &error), QWEN36_ERROR_ARGUMENT);
    CHECK_INT(qwen36_decoder_push(d, 1, NULL, &length, &error), QWEN36_ERROR_ARGUMENT);
    CHECK_INT(qwen36_decoder_push(d, 1, &text, NULL, &error), QWEN36_ERROR_ARGUMENT);
    CHECK_INT(qwen36_decoder_finish(NULL, &text, &length, &error), QWEN36_ERROR_ARGUMENT);
    push(d, 0xc3, "");
    CHECK_INT(qwen36_decoder_push(d, -1, &text, &length, &error), QWEN36_ERROR_TOKEN_ID);
    CHECK_INT(qwen36_decoder_push(d, qwen36_tokenizer_size(t), &text, &length, &error),
              QWEN36_ERROR_TOKEN_ID);
    push(d, 0xa9, "\xc3\xa9"); /* the decoder stands where it stood */
    CHECK_INT(qwen36_decoder_push(d, 'x', &text, &length, &error), QWEN36_OK);
    CHECK(error.status == QWEN36_OK && error.message[0] == '\0');
    qwen36_decoder_destroy(d);
    qwen36_decoder_destroy(NULL);
    qwen36_tokenizer_destroy(t);
}

/* Statuses of all calls in a child; its exit status is the number of those that are wrong. */
static int forked_statuses(qwen36_tokenizer *t, qwen36_decoder *d)
{
    const char *text = NULL;
    int32_t id = 'a';
    size_t n = 0;
    char buffer[8];
    qwen36_decoder *made = NULL;
    int wrong = 0;
    wrong += qwen36_decoder_push(d, 1, &text, &n, NULL) != QWEN36_ERROR_FORKED;
    wrong += qwen36_decoder_finish(d, &text, &n, NULL) != QWEN36_ERROR_FORKED;
    wrong += qwen36_decoder_create(t, NULL, &made, NULL) != QWEN36_ERROR_FORKED;
    wrong += qwen36_tokenizer_encode(t, "a", 1, 0, &id, 1, &n, NULL) != QWEN36_ERROR_FORKED;
    wrong += qwen36_tokenizer_decode(t, &id, 1, 0, buffer, 8, &n, NULL) != QWEN36_ERROR_FORKED;
    wrong += qwen36_tokenizer_bytes(t, 'a', &n) != NULL || n != 0;
    wrong += qwen36_tokenizer_id(t, "a", 1) != -1;
    wrong += qwen36_tokenizer_size(t) != 0;
    qwen36_decoder_destroy(d);
    qwen36_tokenizer_destroy(t);
    return wrong;
}

TEST(decoder, in_a_child_process)
{
    qwen36_tokenizer *t = fixture_tokenizer(NULL);
    qwen36_decoder *d = create(t, 0);
    int status = 0;
    fflush(NULL);
    pid_t child = fork();
    if (child == 0)
        _exit(forked_statuses(t, d));
    CHECK(child > 0 && waitpid(child, &status, 0) == child);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    push(d, 'a', "a");
    qwen36_decoder_destroy(d);
    qwen36_tokenizer_destroy(t);
}
