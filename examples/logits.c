/* Logits of every position of a list of token ids. */
#include "common.h"

#include <getopt.h>

static const char PROGRAM[] = "logits";

static const char HELP[] =
    "usage: logits -m DIRECTORY --ids 1,2,3 [options] > FILE\n"
    "Computes the tokens and writes the logits after each of them to standard output: float32,\n"
    "little-endian, [n][vocab_size], padding rows -infinity.\n"
    "  -m, --model DIR       the model directory, as published\n"
    "      --ids LIST        token ids, separated by commas; '-' reads them from standard input\n"
    "      --threads N       (default: the processors this process may use)\n"
    "      --budget N        tokens computed in one step at most (default 512)\n"
    "      --numerics NAME   reference or fast (default fast)\n";

enum { IDS = 256, THREADS, BUDGET, NUMERICS, HELP_OPTION };

typedef struct arguments {
    const char *directory, *ids;
    qwen36_model_options model;
} arguments;

static void take(arguments *a, int option, const char *value)
{
    if (option == 'm')
        a->directory = value;
    else if (option == IDS)
        a->ids = value;
    else if (option == THREADS)
        a->model.threads = (int32_t)parse_integer(PROGRAM, "--threads", value, 1, 1024);
    else if (option == BUDGET)
        a->model.max_batch_tokens = (int32_t)parse_integer(PROGRAM, "--budget", value, 1, 65536);
    else if (option == NUMERICS)
        a->model.numerics = parse_numerics(PROGRAM, value);
    else if (option == HELP_OPTION)
        exit(fputs(HELP, stdout) < 0);
    else
        usage_error(PROGRAM, "unknown option or missing value", "");
}

static arguments parse(int argc, char **argv)
{
    static const struct option options[] = {
        {"model", 1, NULL, 'm'},     {"ids", 1, NULL, IDS},           {"threads", 1, NULL, THREADS},
        {"budget", 1, NULL, BUDGET}, {"numerics", 1, NULL, NUMERICS}, {"help", 0, NULL, HELP_OPTION},
        {NULL, 0, NULL, 0}};
    arguments a = {0};
    int option;
    qwen36_model_options_init(&a.model, sizeof a.model);
    a.model.max_sessions = 1;
    while ((option = getopt_long(argc, argv, "m:", options, NULL)) != -1)
        take(&a, option, optarg);
    if (optind < argc)
        usage_error(PROGRAM, "unexpected argument", argv[optind]);
    if (a.directory == NULL)
        usage_error(PROGRAM, "a model is missing (-m DIRECTORY)", "");
    if (a.ids == NULL)
        usage_error(PROGRAM, "token ids are missing (--ids 1,2,3)", "");
    return a;
}

/* Ids out of "1,2,3" (also separated by white space) into an array as long as the text. */
static size_t parse_ids(char *text, int32_t *ids)
{
    size_t count = 0;
    for (char *word = strtok(text, ", \t\r\n"); word != NULL; word = strtok(NULL, ", \t\r\n"))
        ids[count++] = (int32_t)parse_integer(PROGRAM, "--ids", word, 0, INT32_MAX);
    if (count == 0)
        usage_error(PROGRAM, "no token ids in --ids", "");
    return count;
}

static void write_row(void *user, qwen36_session *session, int32_t position, const float *logits,
                      int32_t vocab_size)
{
    (void)session;
    (void)position;
    int *failed = user;
    if (fwrite(logits, sizeof *logits, (size_t)vocab_size, stdout) != (size_t)vocab_size)
        *failed = 1;
}

int main(int argc, char **argv)
{
    qwen36_error error = QWEN36_ERROR_INIT;
    qwen36_session_options options;
    qwen36_session *session = NULL;
    qwen36_status status;
    int failed = 0;
    size_t length = 0;
    arguments a = parse(argc, argv);
    char *text = strcmp(a.ids, "-") == 0 ? read_stream(PROGRAM, stdin, &length) : strdup(a.ids);
    int32_t *ids = text == NULL ? NULL : malloc((strlen(text) + 1) * sizeof *ids);
    if (ids == NULL)
        fail_text(PROGRAM, "out of memory");
    size_t count = parse_ids(text, ids);
    if (count > (size_t)a.model.context_length)
        a.model.context_length = (int32_t)count;
    qwen36_model *model = load_model(PROGRAM, a.directory, &a.model);
    qwen36_session_options_init(model, &options, sizeof options);
    options.on_logits = write_row;
    options.user = &failed;
    check(PROGRAM, qwen36_session_create(model, &options, &session, &error), &error);
    check(PROGRAM, qwen36_session_append(session, ids, count, QWEN36_LOGITS_ALL, &error), &error);
    do {
        status = qwen36_step(&session, 1, NULL, NULL, &error);
        check(PROGRAM, status, &error);
    } while (status == QWEN36_PENDING && !failed);
    if (failed || fflush(stdout) != 0)
        fail_text(PROGRAM, "cannot write to standard output");
    free(ids);
    free(text);
    qwen36_session_destroy(session);
    qwen36_model_release(model);
    return 0;
}
