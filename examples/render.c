/* Writes the prompt of a chat request, as text or as tokens. */
#include "common.h"

#include <getopt.h>

static const char PROGRAM[] = "render";

static const char HELP[] =
    "usage: render -m DIRECTORY | --template FILE [options] <REQUEST\n"
    "Reads one request from standard input and writes the prompt that the chat template makes of it.\n"
    "The request is a JSON object of what the template sees: messages, tools, add_generation_prompt,\n"
    "enable_thinking, preserve_thinking, add_vision_id, reasoning_effort. What is absent is undefined to "
    "the\n"
    "template; without add_generation_prompt, say, the prompt ends with the last message.\n"
    "  -m, --model DIR       a model directory; its template is used\n"
    "      --template FILE   a template by itself\n"
    "      --allow-nearest   render an unknown template as the known one that is nearest\n"
    "      --tokens          write token ids, one a line (with -m)\n"
    "      --parse-special   with --tokens: <|im_end|> inside a message is that token, not text\n"
    "A template's error goes to standard error; exit status 1.\n";

typedef struct arguments {
    const char *directory, *file;
    int tokens;
    qwen36_chat_options chat;
} arguments;

/* ---- the request: its members as they are written ------------------------------------------------------ */

typedef struct span {
    const char *text;
    size_t length;
} span;

static const char *skip_space(const char *at)
{
    return at + strspn(at, " \t\r\n");
}

/* Behind a JSON value; NULL when the text ends within it. The library judges what the values hold. */
static const char *skip_value(const char *at)
{
    int depth = 0;
    do {
        if (*at == '"') {
            for (at++; *at != '"'; at++) {
                at += *at == '\\';
                if (*at == '\0')
                    return NULL;
            }
            at++;
        } else if (*at == '\0') {
            return NULL;
        } else {
            depth += (*at == '{' || *at == '[') - (*at == '}' || *at == ']');
            at++;
        }
    } while (depth > 0 || strchr(",:]} \t\r\n", *at) == NULL);
    return at;
}

/* The next member of an object: *at is behind its opening brace or behind the member before. 0: none. */
static int next_member(const char **at, span *name, span *value)
{
    const char *begin = skip_space(*at), *end;
    if (*begin == ',')
        begin = skip_space(begin + 1);
    if (*begin == '}')
        return 0;
    if (*begin != '"' || (end = skip_value(begin)) == NULL)
        fail_text(PROGRAM, "the request is no JSON object");
    *name = (span){begin + 1, (size_t)(end - begin) - 2};
    begin = skip_space(end);
    if (*begin != ':' || *(begin = skip_space(begin + 1)) == '\0' || (end = skip_value(begin)) == NULL)
        fail_text(PROGRAM, "the request is no JSON object");
    *value = (span){begin, (size_t)(end - begin)};
    *at = end;
    return 1;
}

static int is(span text, const char *word)
{
    return text.length == strlen(word) && memcmp(text.text, word, text.length) == 0;
}

/* What jinja takes for true. */
static int32_t truth(span value)
{
    return !is(value, "false") && !is(value, "null") && !is(value, "0") && !is(value, "\"\"") &&
           !is(value, "[]") && !is(value, "{}");
}

static const char *copy_string(span value)
{
    if (value.length < 2 || value.text[0] != '"')
        return NULL;
    char *copy = malloc(value.length);
    if (copy == NULL)
        fail_text(PROGRAM, "out of memory");
    memcpy(copy, value.text + 1, value.length - 2);
    copy[value.length - 2] = '\0';
    return copy;
}

/* The templates ask whether enable_thinking is true, or whether it is false; and whether preserve_thinking is
 * true. */
static span read_request(const char *text, qwen36_chat_options *o)
{
    span messages = {"null", 4}, name, value;
    const char *at = skip_space(text);
    if (*at++ != '{')
        fail_text(PROGRAM, "the request is no JSON object");
    o->add_generation_prompt = 0;
    while (next_member(&at, &name, &value)) {
        if (is(name, "messages"))
            messages = value;
        else if (is(name, "tools"))
            o->tools = value.text, o->tools_length = value.length;
        else if (is(name, "add_generation_prompt"))
            o->add_generation_prompt = truth(value);
        else if (is(name, "add_vision_id"))
            o->add_vision_id = truth(value);
        else if (is(name, "enable_thinking"))
            o->enable_thinking = is(value, "true") ? 1 : is(value, "false") ? 0 : -1;
        else if (is(name, "preserve_thinking"))
            o->preserve_thinking = is(value, "true");
        else if (is(name, "reasoning_effort"))
            o->reasoning_effort = copy_string(value);
    }
    return messages;
}

/* ---- the prompt ---------------------------------------------------------------------------------------- */

static void write_text(const qwen36_chat_template *chat, span messages, const qwen36_chat_options *options)
{
    qwen36_error error = QWEN36_ERROR_INIT;
    size_t length = 0;
    qwen36_status status =
        qwen36_chat_render(chat, messages.text, messages.length, options, NULL, 0, &length, &error);
    if (status != QWEN36_ERROR_BUFFER_TOO_SMALL)
        check(PROGRAM, status, &error);
    char *text = malloc(length + 1);
    if (text == NULL)
        fail_text(PROGRAM, "out of memory");
    check(PROGRAM,
          qwen36_chat_render(chat, messages.text, messages.length, options, text, length, &length, &error),
          &error);
    fwrite(text, 1, length, stdout);
    free(text);
}

static void write_tokens(const qwen36_chat_template *chat, const char *directory, span messages,
                         const qwen36_chat_options *options)
{
    qwen36_error error = QWEN36_ERROR_INIT;
    qwen36_tokenizer *tokenizer = NULL;
    size_t count = 0;
    check(PROGRAM, qwen36_tokenizer_load(directory, NULL, &tokenizer, &error), &error);
    qwen36_status status =
        qwen36_chat_encode(chat, tokenizer, messages.text, messages.length, options, NULL, 0, &count, &error);
    if (status != QWEN36_ERROR_BUFFER_TOO_SMALL)
        check(PROGRAM, status, &error);
    int32_t *ids = malloc((count + 1) * sizeof *ids);
    if (ids == NULL)
        fail_text(PROGRAM, "out of memory");
    check(PROGRAM,
          qwen36_chat_encode(chat, tokenizer, messages.text, messages.length, options, ids, count, &count,
                             &error),
          &error);
    for (size_t i = 0; i < count; i++)
        printf("%d\n", ids[i]);
    free(ids);
    qwen36_tokenizer_destroy(tokenizer);
}

static qwen36_chat_template *load_template(const arguments *a)
{
    qwen36_error error = QWEN36_ERROR_INIT;
    qwen36_chat_template *chat = NULL;
    if (a->file == NULL) {
        check(PROGRAM, qwen36_chat_template_load(a->directory, NULL, &chat, &error), &error);
        return chat;
    }
    FILE *file = fopen(a->file, "rb");
    if (file == NULL)
        fail_text(PROGRAM, strerror(errno));
    size_t length = 0;
    char *text = read_stream(PROGRAM, file, &length);
    fclose(file);
    check(PROGRAM, qwen36_chat_template_parse(text, length, NULL, &chat, &error), &error);
    free(text);
    return chat;
}

static arguments parse(int argc, char **argv)
{
    enum { TEMPLATE = 256, ALLOW_NEAREST, TOKENS, PARSE_SPECIAL, HELP_OPTION };
    static const struct option options[] = {
        {"model", 1, NULL, 'm'},
        {"template", 1, NULL, TEMPLATE},
        {"allow-nearest", 0, NULL, ALLOW_NEAREST},
        {"tokens", 0, NULL, TOKENS},
        {"parse-special", 0, NULL, PARSE_SPECIAL},
        {"help", 0, NULL, HELP_OPTION},
        {NULL, 0, NULL, 0},
    };
    arguments a = {0};
    int option;
    qwen36_chat_options_init(&a.chat, sizeof a.chat);
    while ((option = getopt_long(argc, argv, "m:", options, NULL)) != -1) {
        if (option == '?')
            usage_error(PROGRAM, "unknown option or missing value", "");
        if (option == HELP_OPTION) {
            fputs(HELP, stdout);
            exit(0);
        }
        a.directory = option == 'm' ? optarg : a.directory;
        a.file = option == TEMPLATE ? optarg : a.file;
        a.tokens = a.tokens || option == TOKENS;
        a.chat.allow_nearest |= option == ALLOW_NEAREST;
        a.chat.parse_special_in_content |= option == PARSE_SPECIAL;
    }
    if (optind < argc)
        usage_error(PROGRAM, "unexpected argument", argv[optind]);
    if (a.directory == NULL && (a.file == NULL || a.tokens))
        usage_error(PROGRAM,
                    a.tokens ? "--tokens wants a model (-m DIRECTORY)"
                             : "a template is missing (-m DIRECTORY or --template FILE)",
                    "");
    return a;
}

int main(int argc, char **argv)
{
    arguments a = parse(argc, argv);
    size_t length = 0;
    qwen36_chat_template *chat = load_template(&a);
    char *request = read_stream(PROGRAM, stdin, &length);
    if (strlen(request) != length)
        fail_text(PROGRAM, "the request is no JSON object");
    span messages = read_request(request, &a.chat);
    if (a.tokens)
        write_tokens(chat, a.directory, messages, &a.chat);
    else
        write_text(chat, messages, &a.chat);
    free(request);
    qwen36_chat_template_destroy(chat);
    return fflush(stdout) == 0 ? 0 : 1;
}
