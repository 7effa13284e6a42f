/* Perplexity of a model on a text. */
#include "common.h"

#include <getopt.h>
#include <math.h>

static const char PROGRAM[] = "perplexity";

static const char HELP[] =
    "usage: perplexity -m DIRECTORY [options] < TEXT\n"
    "Reads a text on standard input, cuts it into windows of the context length, and prints the number of\n"
    "tokens scored, the sum of their negative log-probabilities (nats), and the perplexity. The first token "
    "of\n"
    "a window is not scored: nothing predicts it.\n"
    "  -m, --model DIR       the model directory, as published\n"
    "  -c, --context N       tokens of a window (default 1024)\n"
    "      --threads N       (default: the processors this process may use)\n"
    "      --numerics NAME   reference or fast (default fast)\n";

enum { THREADS = 256, NUMERICS, HELP_OPTION };

static const char *parse(int argc, char **argv, qwen36_model_options *model)
{
    static const struct option options[] = {{"model", 1, NULL, 'm'},        {"context", 1, NULL, 'c'},
                                            {"threads", 1, NULL, THREADS},  {"numerics", 1, NULL, NUMERICS},
                                            {"help", 0, NULL, HELP_OPTION}, {NULL, 0, NULL, 0}};
    const char *directory = NULL;
    int option;
    while ((option = getopt_long(argc, argv, "m:c:", options, NULL)) != -1) {
        if (option == 'm')
            directory = optarg;
        else if (option == 'c')
            model->context_length = (int32_t)parse_integer(PROGRAM, "-c", optarg, 2, INT32_MAX / 2);
        else if (option == THREADS)
            model->threads = (int32_t)parse_integer(PROGRAM, "--threads", optarg, 1, 1024);
        else if (option == NUMERICS)
            model->numerics = parse_numerics(PROGRAM, optarg);
        else if (option == HELP_OPTION)
            exit(fputs(HELP, stdout) < 0);
        else
            usage_error(PROGRAM, "unknown option or missing value", "");
    }
    if (optind < argc)
        usage_error(PROGRAM, "unexpected argument", argv[optind]);
    if (directory == NULL)
        usage_error(PROGRAM, "a model is missing (-m DIRECTORY)", "");
    return directory;
}

/* Sum of the negative log-probabilities of one window but for its first token. */
static double score_window(qwen36_session *session, const int32_t *ids, size_t count, float *logprobs)
{
    qwen36_error error = QWEN36_ERROR_INIT;
    double sum = 0;
    check(PROGRAM, qwen36_session_reset(session, &error), &error);
    check(PROGRAM, qwen36_session_score(session, ids, count, logprobs, &error), &error);
    for (size_t i = 1; i < count; i++)
        sum -= (double)logprobs[i];
    return sum;
}

int main(int argc, char **argv)
{
    qwen36_error error = QWEN36_ERROR_INIT;
    qwen36_model_options options;
    qwen36_session *session = NULL;
    size_t length = 0, count = 0, scored = 0;
    double sum = 0;
    qwen36_model_options_init(&options, sizeof options);
    options.context_length = 1024;
    options.max_sessions = 1;
    const char *directory = parse(argc, argv, &options);
    qwen36_model *model = load_model(PROGRAM, directory, &options);
    char *text = read_stream(PROGRAM, stdin, &length);
    int32_t *ids = encode(PROGRAM, tokenizer_of(PROGRAM, model), text, length, 0, &count);
    check(PROGRAM, qwen36_session_create(model, NULL, &session, &error), &error);
    size_t window = qwen36_session_capacity(session);
    float *logprobs = malloc(window * sizeof *logprobs);
    if (logprobs == NULL)
        fail_text(PROGRAM, "out of memory");
    for (size_t at = 0; at + 1 < count; at += window) {
        size_t part = count - at < window ? count - at : window;
        sum += score_window(session, ids + at, part, logprobs);
        scored += part - 1;
    }
    if (scored == 0)
        fail_text(PROGRAM, "the text has fewer than two tokens");
    printf("tokens %zu nll %.6f perplexity %.6f\n", scored, sum, exp(sum / (double)scored));
    free(logprobs);
    free(ids);
    free(text);
    qwen36_session_destroy(session);
    qwen36_model_release(model);
    return 0;
}
