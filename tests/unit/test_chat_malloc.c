/* Every allocation of the chat calls fails once: each gives OUT_OF_MEMORY, nothing leaks, and what was made
 * before goes on. */
#include "lib/api/api.h"
#include "tests/harness.h"
#include "tests/unit/malloc_wrap.h"

#include <cjson/cJSON.h>

static test_allocator state;
static const qwen36_allocator HOOKS = {sizeof HOOKS, 0, test_allocate, test_release, &state};

/* ---- the calls ----------------------------------------------------------------------------------------- */

/* A directory whose template stands in tokenizer_config.json. */
static const char *directory_with_template(void)
{
    static char path[512];
    static const char config[] =
        "{\"chat_template\": [{\"name\": \"default\", \"template\": \"preserve_thinking\"}]}";
    const char *directory = test_directory();
    snprintf(path, sizeof path, "%s/tokenizer_config.json", directory);
    test_write_file(path, config, sizeof config - 1);
    return directory;
}

static const char *const TEMPLATES[] = {"args_value is mapping", "preserve_thinking", "reasoning_effort"};
static const char TOOLS[] =
    "[{\"type\": \"function\", \"function\": {\"name\": \"f\\n\", \"parameters\": {}}}]";

/* A request that takes every kind of memory: escapes, many members, arguments as a text, a long content. */
static const char *request(void)
{
    static char text[1 << 16];
    if (text[0] != '\0')
        return text;
    char *o = text;
    o += sprintf(o,
                 "[{\"role\": \"system\", \"content\": \"s\"}, {\"role\": \"user\", \"content\": [{\"text\": "
                 "\"a\\n\"}, {\"type\": \"image\"}, {\"type\": \"text\", \"text\": [1.5, \"\\u2028\"]}]}, "
                 "{\"role\": \"assistant\", \"content\": \"<think>x</think>");
    for (int i = 0; i < 3000; i++)
        o += sprintf(o, "word ");
    o += sprintf(o, "\", \"tool_calls\": [{\"name\": \"f\", \"arguments\": {\"k\": 0");
    for (int i = 0; i < 30; i++)
        o += sprintf(o, ", \"k%d\": [%d, \"\\\"\"]", i % 20, i);
    sprintf(
        o,
        "}}, {\"function\": {\"name\": \"g\", \"arguments\": \"{\\\"a\\\": \\\"b\\\\n\\\"}\"}}]}, {\"role\": "
        "\"assistant\", \"reasoning_content\": \"r\"}, {\"role\": \"tool\", \"content\": \"t\"}]");
    return text;
}

static qwen36_chat_options options_of(void)
{
    qwen36_chat_options options;
    qwen36_chat_options_init(&options, sizeof options);
    options.allow_nearest = 1;
    options.tools = TOOLS;
    options.tools_length = sizeof TOOLS - 1;
    return options;
}

/* Whether the call that made `status` lacked memory, which it must have if the k-th allocation came to pass.
 */
static bool failed_at(long k, qwen36_status status, const qwen36_error *error, long base)
{
    CHECK_MSG(status == QWEN36_OK || status == QWEN36_ERROR_OUT_OF_MEMORY, "allocation %ld: %s: %s", k,
              qwen36_status_name(status), error->message);
    CHECK_INT(error->status, status);
    CHECK_MSG(state.outstanding == base, "%ld allocations leak after the %ldth failed",
              state.outstanding - base, k);
    CHECK_MSG((status != QWEN36_OK) == (state.allocations >= k), "allocation %ld failed unnoticed", k);
    return status != QWEN36_OK;
}

TEST(chat_malloc, making)
{
    const char *directory = directory_with_template();
    for (int from_text = 0; from_text <= 1; from_text++) {
        bool failed = true;
        for (long k = 1; failed; k++) {
            qwen36_error error = QWEN36_ERROR_INIT;
            qwen36_chat_template *chat = NULL;
            state = (test_allocator){.fail_at = k};
            counting = from_text; /* reading a directory, cJSON allocates by its own malloc */
            qwen36_status status = from_text ? qwen36_chat_template_parse("x", 1, &HOOKS, &chat, &error)
                                             : qwen36_chat_template_load(directory, &HOOKS, &chat, &error);
            counting = false;
            CHECK((status == QWEN36_OK) == (chat != NULL));
            qwen36_chat_template_destroy(chat);
            failed = failed_at(k, status, &error, 0);
        }
    }
    CHECK_INT(direct_calls, 0);
}

TEST(chat_malloc, parser_of_the_configuration)
{
    const char *directory = directory_with_template();
    cJSON_Hooks hooks = {parser_malloc, free};
    bool reached = true;
    cJSON_InitHooks(&hooks);
    for (long k = 1; reached; k++) {
        qwen36_error error = QWEN36_ERROR_INIT;
        qwen36_chat_template *chat = NULL;
        state = (test_allocator){0};
        parser.calls = 0;
        parser.fail_at = k;
        qwen36_status status = qwen36_chat_template_load(directory, &HOOKS, &chat, &error);
        reached = parser.calls >= k;
        CHECK_MSG(reached == (status == QWEN36_ERROR_OUT_OF_MEMORY), "allocation %ld of the parser: %s: %s",
                  k, qwen36_status_name(status), error.message);
        qwen36_chat_template_destroy(chat);
        CHECK_INT(state.outstanding, 0);
    }
    cJSON_InitHooks(NULL);
    CHECK(parser.calls > 5);
}

TEST(chat_malloc, rendering)
{
    qwen36_chat_options options = options_of();
    const char *messages = request();
    for (size_t i = 0; i < QW_COUNT_OF(TEMPLATES); i++) {
        static char text[1 << 17];
        qwen36_chat_template *chat = NULL;
        size_t length = 0;
        bool failed = true;
        long k = 1;
        state = (test_allocator){0};
        CHECK_INT(qwen36_chat_template_parse(TEMPLATES[i], strlen(TEMPLATES[i]), &HOOKS, &chat, NULL),
                  QWEN36_OK);
        direct_calls = 0;
        for (; failed; k++) {
            qwen36_error error = QWEN36_ERROR_INIT;
            state.allocations = 0;
            state.fail_at = k;
            length = 0;
            counting = true;
            qwen36_status status = qwen36_chat_render(chat, messages, strlen(messages), &options, text,
                                                      sizeof text, &length, &error);
            counting = false;
            failed = failed_at(k, status, &error, 1);
            CHECK(failed == (length == 0));
        }
        CHECK_MSG(k > 12, "%ld allocations only", k);
        CHECK_INT(direct_calls, 0);
        qwen36_chat_template_destroy(chat);
        CHECK_INT(state.outstanding, 0);
    }
}

TEST(chat_malloc, encoding)
{
    static int32_t ids[1 << 16];
    qwen36_chat_options options = options_of();
    const char *messages = request();
    qwen36_tokenizer *tokenizer = NULL;
    qwen36_chat_template *chat = NULL;
    size_t count = 0;
    bool failed = true;
    state = (test_allocator){0};
    CHECK_INT(qwen36_tokenizer_load("examples/demo-model", &HOOKS, &tokenizer, NULL), QWEN36_OK);
    CHECK_INT(qwen36_chat_template_parse("preserve_thinking", 17, &HOOKS, &chat, NULL), QWEN36_OK);
    long base = state.outstanding;
    for (long k = 1; failed; k++) {
        qwen36_error error = QWEN36_ERROR_INIT;
        state.allocations = 0;
        state.fail_at = k;
        qwen36_status status = qwen36_chat_encode(chat, tokenizer, messages, strlen(messages), &options, ids,
                                                  QW_COUNT_OF(ids), &count, &error);
        failed = failed_at(k, status, &error, base);
    }
    CHECK(count > 3000);
    qwen36_chat_template_destroy(chat);
    qwen36_tokenizer_destroy(tokenizer);
    CHECK_INT(state.outstanding, 0);
}
