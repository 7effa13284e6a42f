/* A conversation in the terminal; with input from elsewhere, one that a script holds. */
#include "chat_options.h"
#include "chat_view.h"

#include <signal.h>
#include <sys/select.h>
#include <unistd.h>

static const char COMMANDS[] =
    "/reset              begins a new conversation\n"
    "/system TEXT        the system message becomes TEXT; without TEXT there is none\n"
    "/think on|off|hide  to think, not to think, to think unseen\n"
    "/help               this list\n"
    "/quit               ends the program\n"
    "Any other line is a message; one that begins with / wants a space before it.\n";

typedef struct chat {
    arguments a;
    qwen36_model *model;
    const qwen36_tokenizer *tokenizer;
    qwen36_chat_template *form;
    qwen36_session *session;
    char *tools; /* the text of --tools */
    cJSON *messages;
    view view;
    int interactive, interrupted;
    uint64_t answers, prompt_tokens, reused_tokens, output_tokens; /* sums */
    double prompt_seconds, output_seconds;
} chat;

/* ---- beginning ----------------------------------------------------------------------------------------- */

static void set_sampling(chat *c)
{
    qwen36_error error = QWEN36_ERROR_INIT;
    qwen36_sampling sampling;
    qwen36_sampling_init(c->model, &sampling, sizeof sampling);
    if (c->a.has_temperature)
        sampling.temperature = c->a.temperature;
    sampling.seed = c->a.seed;
    if (qwen36_session_set_sampling(c->session, &sampling, &error) != QWEN36_OK)
        usage_error(PROGRAM, error.message, "");
}

static void set_tools(chat *c)
{
    c->a.chat.tools = WEATHER_TOOL;
    c->a.chat.tools_length = strlen(WEATHER_TOOL);
    if (c->a.tools == NULL)
        return;
    FILE *file = fopen(c->a.tools, "rb");
    if (file == NULL) {
        fprintf(stderr, "%s: %s: %s\n", PROGRAM, c->a.tools, strerror(errno));
        exit(1);
    }
    c->tools = read_stream(PROGRAM, file, &c->a.chat.tools_length);
    c->a.chat.tools = c->tools;
    fclose(file);
}

/* The tokens of the conversation (free them); NULL: an error. */
static int32_t *prompt_tokens(const chat *c, size_t *count, qwen36_error *error)
{
    int32_t *ids = NULL;
    char *json = must(cJSON_PrintUnformatted(c->messages));
    qwen36_status status =
        qwen36_chat_encode(c->form, c->tokenizer, json, strlen(json), &c->a.chat, NULL, 0, count, error);
    if (status == QWEN36_ERROR_BUFFER_TOO_SMALL) {
        ids = must(malloc(*count * sizeof *ids));
        status = qwen36_chat_encode(c->form, c->tokenizer, json, strlen(json), &c->a.chat, ids, *count, count,
                                    error);
    }
    cJSON_free(json);
    if (status == QWEN36_OK)
        return ids;
    free(ids);
    return NULL;
}

/* An unknown template and malformed tools are found out before anyone types a word. */
static void try_template(chat *c)
{
    qwen36_error error = QWEN36_ERROR_INIT;
    size_t count = 0;
    add_message(c->messages, "user", "?");
    int32_t *ids = prompt_tokens(c, &count, &error);
    if (ids == NULL)
        fail(PROGRAM, &error);
    free(ids);
    forget(c->messages);
}

static void begin(chat *c)
{
    qwen36_error error = QWEN36_ERROR_INIT;
    const char *no_colour = getenv("NO_COLOR");
    check(PROGRAM, qwen36_chat_template_load(c->a.directory, NULL, &c->form, &error), &error);
    c->model = load_model(PROGRAM, c->a.directory, &c->a.model);
    c->tokenizer = tokenizer_of(PROGRAM, c->model);
    check(PROGRAM, qwen36_session_create(c->model, NULL, &c->session, &error), &error);
    set_sampling(c);
    if (c->a.weather || c->a.tools != NULL)
        set_tools(c);
    c->messages = must(cJSON_CreateArray());
    try_template(c);
    if (c->a.system != NULL) {
        char *given = must(strdup(c->a.system)), *system = readable(c->tokenizer, given, strlen(given));
        set_system(c->messages, system);
        free(system);
        free(given);
    }
    view_init(&c->view, c->tokenizer);
    c->interactive = isatty(STDIN_FILENO);
    c->view.colours = c->interactive && isatty(STDOUT_FILENO) && (no_colour == NULL || no_colour[0] == '\0');
}

/* ---- Ctrl-C ----------------------------------------------------------------------------------------- */

/* The session that a signal interrupts: the one call that a handler may make. */
static qwen36_session *volatile running;

static void on_signal(int number)
{
    (void)number;
    qwen36_session_interrupt(running);
}

/* At a terminal, signals are let in while an answer is made and while the prompt waits, so that none falls
 * between the two. In a script, they also end the reading of a line. */
static void mask_signals(const chat *c, int how)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGINT);
    if (c->interactive)
        pthread_sigmask(how, &set, NULL);
}

static void catch_signals(const chat *c)
{
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = c->interactive ? SA_RESTART : 0};
    sigemptyset(&action.sa_mask);
    running = c->session;
    mask_signals(c, SIG_BLOCK);
    sigaction(SIGINT, &action, NULL);
}

/* Waits for a line at the prompt; 0: a signal came first. */
static int wait_for_line(void)
{
    sigset_t none;
    fd_set input;
    sigemptyset(&none);
    FD_ZERO(&input);
    FD_SET(STDIN_FILENO, &input);
    return pselect(STDIN_FILENO + 1, &input, NULL, NULL, NULL, &none) > 0;
}

/* ---- an answer ----------------------------------------------------------------------------------------- */

static void note(const chat *c, const char *what)
{
    if (!c->a.quiet)
        fprintf(stderr, "[%s]\n", what);
}

/* Says what went wrong. Someone at a terminal can do something about it; a script ends. */
static void complain(const chat *c, const char *what, const char *detail, const char *advice)
{
    fprintf(stderr, "%s: %s%s%s\n", PROGRAM, what, detail, advice);
    if (!c->interactive)
        exit(1);
}

static void complain_about(const chat *c, qwen36_status status, const char *detail)
{
    if (status == QWEN36_ERROR_CONTEXT_FULL)
        complain(c, "the context is full (", detail,
                 "): /reset begins a new conversation, --context gives more room");
    else if (status == QWEN36_ERROR_CACHE_FULL)
        complain(c, "the cache is full (", detail,
                 "): /reset begins a new conversation, --cache-bytes gives more room");
    else
        complain(c, detail, "", "");
}

static void add_up(chat *c, const qwen36_generate_result *r, size_t reused)
{
    c->answers++;
    c->prompt_tokens += r->prompt_tokens;
    c->reused_tokens += reused;
    c->output_tokens += r->output_tokens;
    c->prompt_seconds += r->prompt_seconds;
    c->output_seconds += r->output_seconds;
}

/* How an answer ended, when that was not by itself. */
static void explain(const chat *c, const qwen36_generate_result *r, qwen36_status status,
                    const qwen36_error *error)
{
    char detail[80];
    if (r->finish == QWEN36_FINISH_LENGTH) {
        snprintf(detail, sizeof detail, "stopped after %d tokens", c->a.tokens);
        note(c, detail);
    } else if (r->finish == QWEN36_FINISH_INTERRUPTED) {
        note(c, "interrupted");
        if (!c->interactive)
            exit(130);
    } else if (r->finish == QWEN36_FINISH_CONTEXT_FULL) {
        snprintf(detail, sizeof detail, "it holds %zu tokens", qwen36_session_capacity(c->session));
        complain_about(c, QWEN36_ERROR_CONTEXT_FULL, detail);
    } else if (r->finish == QWEN36_FINISH_CALLBACK) {
        fail_text(PROGRAM, "the answer cannot be written");
    } else if (r->finish == QWEN36_FINISH_ERROR) {
        complain_about(c, status, error->message);
    }
}

/* Makes the session's timeline the conversation. 0: it cannot be. */
static int prepare(chat *c, size_t *reused)
{
    qwen36_error error = QWEN36_ERROR_INIT;
    size_t count = 0;
    int32_t *ids = prompt_tokens(c, &count, &error);
    if (ids != NULL && qwen36_session_sync(c->session, ids, count, reused, &error) == QWEN36_OK) {
        view_begin(&c->view, ends_in_thought(&c->view, ids, count), c->a.hidden);
        free(ids);
        return 1;
    }
    free(ids);
    take_back(c->messages);
    complain_about(c, error.status, error.message);
    return 0;
}

/* One answer to what the messages say. What was said stays, also when it was cut short; where nothing was,
 * the question is taken back. Returns the calls of tools in it, or NULL. */
static const cJSON *answer(chat *c)
{
    qwen36_error error = QWEN36_ERROR_INIT;
    qwen36_generate_options options;
    qwen36_generate_result result = {.struct_size = sizeof result};
    const cJSON *calls = NULL;
    size_t reused = 0;
    if (!prepare(c, &reused))
        return NULL;
    qwen36_generate_options_init(&options, sizeof options);
    options.max_tokens = c->a.tokens;
    options.on_text = view_text;
    options.user = &c->view;
    qwen36_status status = qwen36_generate(c->session, &options, &result, &error);
    view_end(&c->view);
    add_up(c, &result, reused);
    if (result.output_tokens > 0)
        calls = add_answer(c->messages, &c->view.thought, &c->view.said, c->a.chat.tools != NULL);
    else
        take_back(c->messages);
    explain(c, &result, status, &error);
    return result.finish == QWEN36_FINISH_END_TOKEN ? calls : NULL;
}

/* Answers the calls of tools in the program's name. */
static void answer_calls(chat *c, const cJSON *calls)
{
    buffer result = {0};
    const cJSON *call;
    cJSON_ArrayForEach(call, calls)
    {
        call_weather(&result, call);
        printf(c->view.colours ? "\033[36m%s\033[0m\n\n" : "%s\n\n", result.bytes);
        add_message(c->messages, "tool", result.bytes);
    }
    free(result.bytes);
}

static void take_turn(chat *c, const char *question)
{
    enum { MOST_CALLS = 4 };
    const cJSON *calls;
    add_message(c->messages, "user", question);
    mask_signals(c, SIG_UNBLOCK);
    for (int i = 0; (calls = answer(c)) != NULL && c->a.weather; i++) {
        if (i == MOST_CALLS) {
            note(c, "the model calls again and again: no more answers");
            break;
        }
        answer_calls(c, calls);
    }
    mask_signals(c, SIG_BLOCK);
}

/* ---- the conversation ---------------------------------------------------------------------------------- */

/* What stands behind the word of a command; NULL: it is another command. */
static const char *command(const char *line, const char *word)
{
    size_t length = strlen(word);
    if (strncmp(line, word, length) != 0 || (line[length] != '\0' && line[length] != ' '))
        return NULL;
    return line + length + strspn(line + length, " ");
}

/* 0: the end. */
static int obey(chat *c, const char *line)
{
    const char *rest;
    if (command(line, "/quit") != NULL)
        return 0;
    if (command(line, "/reset") != NULL) {
        forget(c->messages);
        qwen36_session_reset(c->session, NULL);
    } else if ((rest = command(line, "/system")) != NULL) {
        set_system(c->messages, rest);
    } else if ((rest = command(line, "/think")) != NULL) {
        if (!set_thinking(&c->a, rest))
            complain(c, "/think wants on, off or hide", "", "");
    } else if (command(line, "/help") != NULL) {
        fputs(COMMANDS, stdout);
    } else {
        complain(c, "unknown command: ", line, " (/help lists them; a message may begin with a space)");
    }
    return 1;
}

/* The next line without its end, as readable text (free it); NULL: there is none. A line comes from a
 * terminal with its echo; that of a script is written as if it did. */
static char *next_line(chat *c)
{
    char *line = NULL, *message = NULL;
    size_t capacity = 0;
    if (c->interactive)
        fputs(c->view.colours ? "\033[1m>\033[0m " : "> ", stdout);
    fflush(stdout);
    c->interrupted = c->interactive && !wait_for_line();
    ssize_t length = c->interrupted ? -1 : getline(&line, &capacity, stdin);
    c->interrupted |= length < 0 && ferror(stdin) && errno == EINTR;
    if (length >= 0) {
        while (length > 0 && (line[length - 1] == '\n' || line[length - 1] == '\r'))
            length--;
        message = readable(c->tokenizer, line, (size_t)length);
    }
    free(line);
    if (message != NULL && !c->interactive && !is_blank(message))
        printf("> %s\n", message);
    return message;
}

static void report(const chat *c)
{
    double prompt = c->prompt_seconds > 0 ? (double)c->prompt_tokens / c->prompt_seconds : 0;
    /* the first token of an answer comes with the prompt */
    double more = c->output_tokens > c->answers ? (double)(c->output_tokens - c->answers) : 0;
    double output = c->output_seconds > 0 ? more / c->output_seconds : 0;
    fprintf(stderr, "[prompt: %llu tokens at %.1f/s, reused: %llu, output: %llu tokens at %.1f/s]\n",
            (unsigned long long)c->prompt_tokens, prompt, (unsigned long long)c->reused_tokens,
            (unsigned long long)c->output_tokens, output);
}

static void end(chat *c)
{
    cJSON_Delete(c->messages);
    free(c->view.thought.bytes);
    free(c->view.said.bytes);
    free(c->tools);
    qwen36_session_destroy(c->session);
    qwen36_chat_template_destroy(c->form);
    qwen36_model_release(c->model);
}

int main(int argc, char **argv)
{
    chat c = {0};
    char *line;
    int more = 1;
    parse(&c.a, argc, argv);
    begin(&c);
    catch_signals(&c);
    if (c.interactive)
        printf("%s, template %s. /help lists commands, Ctrl-C stops an answer, Ctrl-D ends.\n\n",
               c.a.directory, qwen36_chat_template_name(c.form));
    while (more && (line = next_line(&c)) != NULL) {
        if (line[0] == '/')
            more = obey(&c, line);
        else if (!is_blank(line))
            take_turn(&c, line);
        free(line);
    }
    if (c.interactive && more)
        putchar('\n');
    if (fflush(stdout) != 0)
        fail_text(PROGRAM, "the answer cannot be written");
    if (!c.a.quiet && c.answers > 0)
        report(&c);
    end(&c);
    return c.interrupted ? 130 : 0;
}
