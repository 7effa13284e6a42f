/* Continues a text, streaming. */
#include "common.h"

#include <getopt.h>
#include <signal.h>

static const char PROGRAM[] = "generate";

static const char HELP[] =
    "usage: generate -m DIRECTORY -p TEXT [options]\n"
    "Continues TEXT with the model in DIRECTORY. Special tokens in TEXT (<|im_start|>) are read as such.\n"
    "  -m, --model DIR       the model directory, as published\n"
    "  -p, --prompt TEXT     the text to continue; '-' reads it from standard input\n"
    "  -n, --tokens N        tokens to generate at most (default 256)\n"
    "      --temp T          temperature, 0 is greedy (default: the model's)\n"
    "      --top-k K         0 off, 1 greedy (default: the model's)\n"
    "      --top-p P         (0, 1], 1 off (default: the model's)\n"
    "      --seed S          seed of the draws (default 0)\n"
    "      --context N       room for prompt and continuation together (default 4096)\n"
    "      --threads N       (default: the processors this process may use)\n"
    "      --numerics NAME   reference or fast (default fast)\n"
    "      --ignore-end      go on after an end token\n"
    "      --quiet           no rates on standard error\n"
    "Ctrl-C ends the generation; exit status 130.\n";

typedef struct arguments {
    const char *directory, *prompt;
    int32_t tokens, top_k, ignore_end, quiet;
    float temperature, top_p;
    int has_temperature, has_top_k, has_top_p;
    uint64_t seed;
    qwen36_model_options model;
} arguments;

enum { TEMPERATURE = 256, TOP_K, TOP_P, SEED, CONTEXT, THREADS, NUMERICS, IGNORE_END, QUIET, HELP_OPTION };

static void take_sampling(arguments *a, int option, const char *value)
{
    if (option == TEMPERATURE) {
        a->temperature = parse_number(PROGRAM, "--temp", value);
        a->has_temperature = 1;
    } else if (option == TOP_K) {
        a->top_k = (int32_t)parse_integer(PROGRAM, "--top-k", value, 0, INT32_MAX);
        a->has_top_k = 1;
    } else if (option == TOP_P) {
        a->top_p = parse_number(PROGRAM, "--top-p", value);
        a->has_top_p = 1;
    }
}

static void take(arguments *a, int option, const char *value)
{
    switch (option) {
    case 'm':
        a->directory = value;
        break;
    case 'p':
        a->prompt = value;
        break;
    case 'n':
        a->tokens = (int32_t)parse_integer(PROGRAM, "-n", value, 0, INT32_MAX);
        break;
    case SEED:
        a->seed = (uint64_t)parse_integer(PROGRAM, "--seed", value, 0, INT64_MAX);
        break;
    case CONTEXT:
        a->model.context_length = (int32_t)parse_integer(PROGRAM, "--context", value, 1, INT32_MAX / 2);
        break;
    case THREADS:
        a->model.threads = (int32_t)parse_integer(PROGRAM, "--threads", value, 1, 1024);
        break;
    case NUMERICS:
        a->model.numerics = parse_numerics(PROGRAM, value);
        break;
    case IGNORE_END:
        a->ignore_end = 1;
        break;
    case QUIET:
        a->quiet = 1;
        break;
    case HELP_OPTION:
        fputs(HELP, stdout);
        exit(0);
    case '?':
        usage_error(PROGRAM, "unknown option or missing value", "");
    default:
        take_sampling(a, option, value);
    }
}

static arguments parse(int argc, char **argv)
{
    static const struct option options[] = {
        {"model", 1, NULL, 'm'},        {"prompt", 1, NULL, 'p'},
        {"tokens", 1, NULL, 'n'},       {"temp", 1, NULL, TEMPERATURE},
        {"top-k", 1, NULL, TOP_K},      {"top-p", 1, NULL, TOP_P},
        {"seed", 1, NULL, SEED},        {"context", 1, NULL, CONTEXT},
        {"threads", 1, NULL, THREADS},  {"numerics", 1, NULL, NUMERICS},
        {"quiet", 0, NULL, QUIET},      {"ignore-end", 0, NULL, IGNORE_END},
        {"help", 0, NULL, HELP_OPTION}, {NULL, 0, NULL, 0},
    };
    arguments a = {.tokens = 256};
    int option;
    qwen36_model_options_init(&a.model, sizeof a.model);
    a.model.max_sessions = 1;
    while ((option = getopt_long(argc, argv, "m:p:n:", options, NULL)) != -1)
        take(&a, option, optarg);
    if (optind < argc)
        usage_error(PROGRAM, "unexpected argument", argv[optind]);
    if (a.directory == NULL)
        usage_error(PROGRAM, "a model is missing (-m DIRECTORY)", "");
    if (a.prompt == NULL)
        usage_error(PROGRAM, "a prompt is missing (-p TEXT)", "");
    return a;
}

static void set_sampling(const arguments *a, const qwen36_model *model, qwen36_session *session)
{
    qwen36_error error = QWEN36_ERROR_INIT;
    qwen36_sampling sampling;
    qwen36_sampling_init(model, &sampling, sizeof sampling);
    if (a->has_temperature)
        sampling.temperature = a->temperature;
    if (a->has_top_k)
        sampling.top_k = a->top_k;
    if (a->has_top_p)
        sampling.top_p = a->top_p;
    sampling.seed = a->seed;
    if (qwen36_session_set_sampling(session, &sampling, &error) != QWEN36_OK)
        usage_error(PROGRAM, error.message, "");
}

static int32_t print(void *user, int32_t token, const char *text, size_t length)
{
    (void)user;
    (void)token;
    return fwrite(text, 1, length, stdout) != length || fflush(stdout) != 0;
}

static void append_prompt(const arguments *a, const qwen36_model *model, qwen36_session *session)
{
    qwen36_error error = QWEN36_ERROR_INIT;
    size_t length = 0, count = 0;
    char *input = strcmp(a->prompt, "-") == 0 ? read_stream(PROGRAM, stdin, &length) : NULL;
    const char *prompt = input != NULL ? input : a->prompt;
    int32_t *ids = encode(PROGRAM, tokenizer_of(PROGRAM, model), prompt,
                          input != NULL ? length : strlen(prompt), QWEN36_ENCODE_PARSE_SPECIAL, &count);
    if (count == 0)
        usage_error(PROGRAM, "the prompt is empty", "");
    check(PROGRAM, qwen36_session_append(session, ids, count, QWEN36_LOGITS_LAST, &error), &error);
    fwrite(prompt, 1, input != NULL ? length : strlen(prompt), stdout);
    fflush(stdout);
    free(ids);
    free(input);
}

static void report(const qwen36_generate_result *r)
{
    static const char *const finishes[] = {
        "", "end token", "length", "context full", "output closed", "interrupted", "error"};
    double prompt = r->prompt_seconds > 0 ? (double)r->prompt_tokens / r->prompt_seconds : 0;
    double output = r->output_seconds > 0 ? (double)(r->output_tokens - 1) / r->output_seconds : 0;
    fprintf(stderr, "[%llu prompt tokens at %.1f/s, %llu tokens at %.1f/s, ended by: %s]\n",
            (unsigned long long)r->prompt_tokens, prompt, (unsigned long long)r->output_tokens,
            r->output_tokens > 1 ? output : 0, finishes[r->finish]);
}

/* The only call that a signal handler may make. */
static qwen36_session *volatile running;

static void on_signal(int number)
{
    (void)number;
    qwen36_session_interrupt(running);
}

int main(int argc, char **argv)
{
    qwen36_error error = QWEN36_ERROR_INIT;
    qwen36_session *session = NULL;
    arguments a = parse(argc, argv);
    qwen36_model *model = load_model(PROGRAM, a.directory, &a.model);
    check(PROGRAM, qwen36_session_create(model, NULL, &session, &error), &error);
    set_sampling(&a, model, session);
    append_prompt(&a, model, session);

    qwen36_generate_options options;
    qwen36_generate_result result = {.struct_size = sizeof result};
    qwen36_generate_options_init(&options, sizeof options);
    options.max_tokens = a.tokens;
    options.ignore_end_tokens = a.ignore_end;
    options.on_text = print;
    running = session;
    signal(SIGINT, on_signal);
    qwen36_status status = qwen36_generate(session, &options, &result, &error);
    signal(SIGINT, SIG_DFL);
    putchar('\n');
    fflush(stdout);
    check(PROGRAM, status, &error);
    if (!a.quiet)
        report(&result);
    qwen36_session_destroy(session);
    qwen36_model_release(model);
    return status == QWEN36_INTERRUPTED ? 130 : 0;
}
