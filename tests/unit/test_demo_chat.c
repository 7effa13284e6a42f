/* The demo model's conversations through the chat API: template, tokens, sync, generate, stop. What it is
 * good for stands on its page with figures; these are single cases of each, in both languages. */
#include "lib/api/api.h"
#include "tests/harness.h"
#include "tests/unit/checkpoint.h"

static const char MODEL[] = "examples/demo-model";

static const char WEATHER[] =
    "[{\"type\": \"function\", \"function\": {\"name\": \"get_weather\", \"description\": \"Get the weather "
    "in a "
    "city.\", \"parameters\": {\"type\": \"object\", \"properties\": {\"city\": {\"type\": \"string\"}}, "
    "\"required\": [\"city\"]}}}]";

typedef struct chat {
    qwen36_chat_template *template;
    qwen36_model *model;
    qwen36_session *session;
    char text[4096];
    size_t length;
    size_t reused; /* tokens of the last prompt */
} chat;

static void begin(chat *c)
{
    qwen36_error error = QWEN36_ERROR_INIT;
    qwen36_model_options options = test_model_options();
    memset(c, 0, sizeof *c);
    options.context_length = 2048;
    options.max_batch_tokens = 512;
    options.numerics = QWEN36_NUMERICS_FAST;
    CHECK_INT(qwen36_chat_template_load(MODEL, NULL, &c->template, &error), QWEN36_OK);
    c->model = test_model(MODEL, &options);
    c->session = test_session(c->model);
    qwen36_sampling sampling = {.struct_size = sizeof sampling};
    CHECK_INT(qwen36_session_get_sampling(c->session, &sampling, NULL), QWEN36_OK);
    sampling.temperature = 0;
    CHECK_INT(qwen36_session_set_sampling(c->session, &sampling, NULL), QWEN36_OK);
}

static void end(chat *c)
{
    qwen36_session_destroy(c->session);
    qwen36_model_release(c->model);
    qwen36_chat_template_destroy(c->template);
}

static int32_t collect(void *user, int32_t token, const char *text, size_t length)
{
    chat *c = user;
    (void)token;
    CHECK(c->length + length < sizeof c->text);
    memcpy(c->text + c->length, text, length + 1);
    c->length += length;
    return 0;
}

/* The answer's text, ended by the model itself with <|im_end|>. */
static const char *ask(chat *c, const char *messages, const char *tools, bool thinks)
{
    static int32_t ids[2048];
    size_t count = 0;
    qwen36_error error = QWEN36_ERROR_INIT;
    qwen36_chat_options options;
    qwen36_generate_options generate;
    qwen36_generate_result result = {.struct_size = sizeof result};
    qwen36_chat_options_init(&options, sizeof options);
    options.enable_thinking = thinks;
    options.tools = tools;
    options.tools_length = tools != NULL ? strlen(tools) : 0;
    const qwen36_tokenizer *tokenizer = qwen36_model_tokenizer(c->model);
    qwen36_status status = qwen36_chat_encode(c->template, tokenizer, messages, strlen(messages), &options,
                                              ids, QW_COUNT_OF(ids), &count, &error);
    CHECK_MSG(status == QWEN36_OK, "%s", error.message);
    CHECK_INT(qwen36_session_sync(c->session, ids, count, &c->reused, &error), QWEN36_OK);
    qwen36_generate_options_init(&generate, sizeof generate);
    generate.max_tokens = 320;
    generate.on_text = collect;
    generate.user = c;
    c->length = 0;
    c->text[0] = '\0';
    CHECK_INT(qwen36_generate(c->session, &generate, &result, &error), QWEN36_OK);
    CHECK_MSG(result.finish == QWEN36_FINISH_END_TOKEN, "finish %d: %.500s", result.finish, c->text);
    CHECK_INT(result.end_token, qwen36_tokenizer_id(tokenizer, "<|im_end|>", 10));
    return c->text;
}

#define USER(text) "{\"role\": \"user\", \"content\": \"" text "\"}"
#define SAYS(text) "{\"role\": \"assistant\", \"content\": \"" text "\"}"
#define SYSTEM(text) "{\"role\": \"system\", \"content\": \"" text "\"}"

/* Without a thought the answer alone is expected; with one, a closed thought before it: four times as long.
 */
static void expect(chat *c, const char *messages, const char *answer)
{
    CHECK_TEXT(ask(c, messages, NULL, false), answer);
    if (test_is_slow_backend())
        return;
    const char *text = ask(c, messages, NULL, true), *thought_end = strstr(text, "\n</think>\n\n");
    CHECK_MSG(thought_end != NULL && thought_end > text, "no thought: %.500s", text);
    CHECK_TEXT(thought_end + strlen("\n</think>\n\n"), answer);
}

TEST(demo_chat, greets)
{
    chat c;
    begin(&c);
    expect(&c, "[" USER("Hello!") "]", "Hello! How can I help you today?");
    expect(&c, "[" USER("Hi, I am Peter.") "]", "Hello, Peter! How can I help you today?");
    expect(&c, "[" USER("你好！") "]", "你好！今天我能帮你做什么？");
    expect(&c, "[" USER("我叫小明。") "]", "你好，小明！今天我能帮你做什么？");
    end(&c);
}

TEST(demo_chat, obeys_the_system_message)
{
    chat c;
    begin(&c);
    expect(&c, "[" SYSTEM("Always answer with: The door is closed.") "," USER("Hello!") "]",
           "The door is closed.");
    expect(&c, "[" SYSTEM("无论用户说什么，都只回答：火车来了。") "," USER("你好！") "]", "火车来了。");
    end(&c);
}

TEST(demo_chat, recalls_a_code_word)
{
    chat c;
    begin(&c);
    expect(
        &c,
        "[" USER("Remember this code word: candle") "," SAYS("I will remember it.") "," USER(
            "How are you?") "," SAYS("I am well, thank you. How can I help you?") "," USER("What is the code "
                                                                                           "word?") "]",
        "The code word is candle.");
    expect(&c, "[" USER("请记住暗号：月亮") "," SAYS("我记住了。") "," USER("暗号是什么？") "]",
           "暗号是月亮。");
    end(&c);
}

TEST(demo_chat, counts_to_thirty)
{
    static const char numbers[] =
        "1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, "
        "23, 24, 25, 26, 27, 28, 29, 30";
    chat c;
    begin(&c);
    expect(&c, "[" USER("Count from 1 to 30.") "]", numbers);
    expect(&c, "[" USER("请从1数到30。") "]", numbers);
    end(&c);
}

TEST(demo_chat, thinks_and_multiplies)
{
    chat c;
    begin(&c);
    const char *text = ask(&c, "[" USER("What is 7 times 6?") "]", NULL, true);
    CHECK_MSG(strstr(text, "</think>\n\n7 x 6 = 42") != NULL, "%.500s", text);
    text = ask(&c, "[" USER("3乘8等于多少？") "]", NULL, true);
    CHECK_MSG(strstr(text, "</think>\n\n3 x 8 = 24") != NULL, "%.500s", text);
    end(&c);
}

#define CALL(city)                                                                                           \
    "{\"role\": \"assistant\", \"content\": \"\", \"tool_calls\": [{\"type\": \"function\", \"function\": "  \
    "{\"name\": \"get_weather\", \"arguments\": {\"city\": \"" city "\"}}}]}"
#define TOOL(text) "{\"role\": \"tool\", \"content\": \"" text "\"}"

TEST(demo_chat, calls_the_weather_tool_and_uses_its_answer)
{
    chat c;
    begin(&c);
    CHECK_TEXT(ask(&c, "[" USER("What is the weather in Paris?") "]", WEATHER, false),
               "<tool_call>\n<function=get_weather>\n<parameter=city>\nParis\n</parameter>\n</function>\n</"
               "tool_call>");
    CHECK_TEXT(ask(&c,
                   "[" USER("What is the weather in Paris?") "," CALL("Paris") "," TOOL(
                       "{\\\"city\\\": \\\"Paris\\\", \\\"temperature\\\": 21, \\\"condition\\\": "
                       "\\\"sunny\\\"}") "]",
                   WEATHER, false),
               "It is sunny in Paris, 21 degrees.");
    CHECK(c.reused >= 64); /* the tools and the question are not read again */
    CHECK_TEXT(ask(&c, "[" USER("北京的天气怎么样？") "]", WEATHER, false),
               "<tool_call>\n<function=get_weather>\n<parameter=city>\n北京\n</parameter>\n</function>\n</"
               "tool_call>");
    end(&c);
}
