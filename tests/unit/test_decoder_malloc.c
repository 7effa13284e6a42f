/* Every allocation of a decoder with stop strings fails once, and from there on until the call is repeated:
 * each failing call says OUT_OF_MEMORY and leaves the decoder as it was, so that repeating it goes on as if
 * nothing had happened. */
#include "tests/harness.h"
#include "tests/unit/malloc_wrap.h"
#include "tests/unit/tokenizer_fixture.h"

#include <cjson/cJSON.h>

static test_allocator state;
static const qwen36_allocator HOOKS = {sizeof HOOKS, 0, test_allocate, test_release, &state};

enum { FINISH = -1 };

/* Texts of growing tokens, such as end within a character, and are held back for a stop or end at one. */
static const int32_t SCRIPT[] = {'S', 'O', FINISH, 288,  'a',  0xe2,   259, 284,    0x82,  288,
                                 '<', 's', 'x',    0xf0, 0x9f, FINISH, 'b', '<',    's',   FINISH,
                                 259, 288, 'S',    'T',  'O',  0xc3,   'P', FINISH, FINISH};
static const char *const STOPS[] = {"STO\xef\xbf\xbdP", "<stop>", "SO"};
static const char *const LATER[] = {"STO\xef\xbf\xbd"};

typedef struct outcome {
    char text[1 << 15];
    size_t length;
    int32_t stopped;
    long failures;
} outcome;

/* A tokenizer whose token <think> is long, so that the decoder has to grow. */
static qwen36_tokenizer *long_tokenizer(void)
{
    static char content[4096];
    qwen36_tokenizer *t = NULL;
    memset(content, 'y', sizeof content - 1);
    char *json = fixture_replace(fixture_json(NULL), "<think>", content);
    CHECK_INT(fixture_load(json, NULL, &HOOKS, &t, NULL), QWEN36_OK);
    free(json);
    return t;
}

static qwen36_status apply(qwen36_decoder *d, int32_t token, const char **text, size_t *length,
                           qwen36_error *error)
{
    counting = true;
    qwen36_status status = token == FINISH ? qwen36_decoder_finish(d, text, length, error)
                                           : qwen36_decoder_push(d, token, text, length, error);
    counting = false;
    return status;
}

/* A call that lacked memory; the next one has it. */
static void expect_failure(qwen36_status status, const qwen36_error *error, outcome *o)
{
    CHECK_INT(status, QWEN36_ERROR_OUT_OF_MEMORY);
    CHECK_INT(error->status, status);
    CHECK(strstr(error->message, "memory") != NULL);
    state.fail_at = 0;
    o->failures++;
}

static qwen36_decoder *create(const qwen36_tokenizer *t, const qwen36_decoder_options *options, outcome *o)
{
    qwen36_decoder *d = NULL;
    qwen36_error error = QWEN36_ERROR_INIT;
    long base = state.outstanding;
    counting = true;
    qwen36_status status = qwen36_decoder_create(t, options, &d, &error);
    counting = false;
    if (status != QWEN36_OK) {
        expect_failure(status, &error, o);
        CHECK(d == NULL && state.outstanding == base);
        CHECK_INT(qwen36_decoder_create(t, options, &d, &error), QWEN36_OK);
    }
    return d;
}

/* The script through a new decoder, whose k-th allocation fails (0: none). */
static void run(const qwen36_tokenizer *t, const char *const *stops, size_t count, long k, bool forever,
                outcome *o)
{
    qwen36_decoder_options options;
    qwen36_decoder_options_init(&options, sizeof options);
    options.stops = stops;
    options.stop_count = count;
    *o = (outcome){.length = 0};
    state.allocations = 0;
    state.fail_at = k;
    state.forever = forever;
    qwen36_decoder *d = create(t, &options, o);
    for (size_t i = 0; i < QW_COUNT_OF(SCRIPT); i++) {
        qwen36_error error = QWEN36_ERROR_INIT;
        const char *text = NULL;
        size_t length = 0;
        int32_t stopped = qwen36_decoder_stopped(d);
        qwen36_status status = apply(d, SCRIPT[i], &text, &length, &error);
        if (status != QWEN36_OK) {
            expect_failure(status, &error, o);
            CHECK_INT(qwen36_decoder_stopped(d), stopped);
            CHECK_INT(apply(d, SCRIPT[i], &text, &length, &error), QWEN36_OK);
        }
        CHECK(strlen(text) == length && o->length + length < sizeof o->text);
        memcpy(o->text + o->length, text, length);
        o->length += length;
    }
    o->stopped = qwen36_decoder_stopped(d);
    qwen36_decoder_destroy(d);
}

static void fail_each(const qwen36_tokenizer *t, const char *const *stops, size_t count, int32_t stopped)
{
    static outcome expected, got;
    long base = state.outstanding, least = count > 0 ? 5 : 3;
    run(t, stops, count, 0, false, &expected);
    CHECK_INT(expected.stopped, stopped);
    CHECK(expected.length > 4095);
    for (int forever = 0; forever <= 1; forever++) {
        long k = 0;
        do {
            run(t, stops, count, ++k, forever != 0, &got);
            CHECK_INT(got.failures, state.fail_at == 0);
            CHECK_INT(got.stopped, stopped);
            CHECK(got.length == expected.length && memcmp(got.text, expected.text, got.length) == 0);
            CHECK_INT(state.outstanding, base);
        } while (got.failures > 0);
        CHECK_MSG(k > least, "%ld allocations only", k - 1);
    }
    CHECK_INT(direct_calls, 0);
}

TEST(decoder_malloc, streaming)
{
    state = (test_allocator){0};
    qwen36_tokenizer *t = long_tokenizer();
    cJSON_Hooks hooks = {parser_malloc, free};
    cJSON_InitHooks(&hooks);
    parser.calls = 0;
    fail_each(t, NULL, 0, -1);
    fail_each(t, STOPS, QW_COUNT_OF(STOPS), 0);
    fail_each(t, LATER, QW_COUNT_OF(LATER), 0);
    cJSON_InitHooks(NULL);
    CHECK_INT(parser.calls, 0);
    qwen36_tokenizer_destroy(t);
    CHECK_INT(state.outstanding, 0);
}
