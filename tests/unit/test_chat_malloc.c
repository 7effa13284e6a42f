/* Every allocation of the chat calls fails once: each gives OUT_OF_MEMORY, nothing leaks, and what was made
 * before goes on. */
#include "lib/api/api.h"
#include "tests/harness.h"
#include "tests/unit/malloc_wrap.h"
#include "tests/unit/tokenizer_fixture.h"

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

/* A directory whose template is a file of its own. */
static const char *directory_with_file(void)
{
    static char path[512];
    static const char text[] = "preserve_thinking";
    const char *directory = test_directory();
    snprintf(path, sizeof path, "%s/chat_template.jinja", directory);
    test_write_file(path, text, sizeof text - 1);
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

/* The k-th allocation of making a template fails; NULL for the directory: from a text. */
static bool make_failing(const char *directory, long k, bool forever)
{
    qwen36_error error = QWEN36_ERROR_INIT;
    qwen36_chat_template *chat = NULL;
    state = (test_allocator){.fail_at = k, .forever = forever};
    counting = directory == NULL; /* reading a directory, cJSON allocates by its own malloc */
    qwen36_status status = directory == NULL ? qwen36_chat_template_parse("x", 1, &HOOKS, &chat, &error)
                                             : qwen36_chat_template_load(directory, &HOOKS, &chat, &error);
    counting = false;
    CHECK((status == QWEN36_OK) == (chat != NULL));
    qwen36_chat_template_destroy(chat);
    return failed_at(k, status, &error, 0);
}

TEST(chat_malloc, making)
{
    const char *directories[] = {NULL, directory_with_template(), directory_with_file()};
    for (size_t i = 0; i < 2 * QW_COUNT_OF(directories); i++) {
        long k = 1;
        while (make_failing(directories[i / 2], k, i % 2 == 1))
            k++;
        CHECK_MSG(k > 1, "%ld allocations only", k - 1);
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

/* One rendering, or with a tokenizer one encoding, whose k-th allocation fails. Only what the hooks give is
 * taken: the parser of files has no part in it. */
static bool use_failing(const qwen36_chat_template *chat, const qwen36_tokenizer *tokenizer, long k,
                        bool forever, size_t *count)
{
    static char text[1 << 17];
    static int32_t ids[1 << 16];
    qwen36_chat_options options = options_of();
    const char *messages = request();
    qwen36_error error = QWEN36_ERROR_INIT;
    long base = state.outstanding;
    state.allocations = 0;
    state.fail_at = k;
    state.forever = forever;
    *count = 0;
    counting = true;
    qwen36_status status =
        tokenizer == NULL
            ? qwen36_chat_render(chat, messages, strlen(messages), &options, text, sizeof text, count, &error)
            : qwen36_chat_encode(chat, tokenizer, messages, strlen(messages), &options, ids, QW_COUNT_OF(ids),
                                 count, &error);
    counting = false;
    state.fail_at = 0;
    bool failed = failed_at(k, status, &error, base);
    CHECK(failed == (*count == 0));
    return failed;
}

/* Each allocation of each template. */
static void use_each(const qwen36_tokenizer *tokenizer)
{
    cJSON_Hooks hooks = {parser_malloc, free};
    cJSON_InitHooks(&hooks);
    parser.calls = direct_calls = 0;
    parser.fail_at = 0;
    long base = state.outstanding;
    for (size_t i = 0; i < 2 * QW_COUNT_OF(TEMPLATES); i++) {
        const char *template = TEMPLATES[i / 2];
        qwen36_chat_template *chat = NULL;
        size_t count = 0;
        long k = 1;
        CHECK_INT(qwen36_chat_template_parse(template, strlen(template), &HOOKS, &chat, NULL), QWEN36_OK);
        while (use_failing(chat, tokenizer, k, i % 2 == 1, &count))
            k++;
        CHECK_MSG(k > 12 && count > 3000, "%ld allocations, %zu of output only", k - 1, count);
        qwen36_chat_template_destroy(chat);
        CHECK_INT(state.outstanding, base);
    }
    cJSON_InitHooks(NULL);
    CHECK(direct_calls == 0 && parser.calls == 0);
}

TEST(chat_malloc, rendering)
{
    state = (test_allocator){0};
    use_each(NULL);
}

TEST(chat_malloc, encoding)
{
    qwen36_tokenizer *tokenizer = NULL;
    state = (test_allocator){0};
    CHECK_INT(qwen36_tokenizer_load("examples/demo-model", &HOOKS, &tokenizer, NULL), QWEN36_OK);
    use_each(tokenizer);
    qwen36_tokenizer_destroy(tokenizer);
    CHECK_INT(state.outstanding, 0);
}

/* A splitting expression that the library leaves to PCRE2, which allocates too. */
TEST(chat_malloc, encoding_by_a_regular_expression)
{
    qwen36_tokenizer *tokenizer = NULL;
    state = (test_allocator){0};
    char *json = fixture_json("\\s?\\p{L}+|\\p{N}{1,3}|[^\\s\\p{L}\\p{N}]+|\\s+");
    CHECK_INT(fixture_load(json, NULL, &HOOKS, &tokenizer, NULL), QWEN36_OK);
    free(json);
    use_each(tokenizer);
    qwen36_tokenizer_destroy(tokenizer);
    CHECK_INT(state.outstanding, 0);
}
