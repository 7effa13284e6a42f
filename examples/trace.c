/* Where the time goes: continues a text and writes what every step, phase, layer and operation took, as JSON
 * for a trace viewer (chrome://tracing, Perfetto). */
#include "common.h"

#include <getopt.h>
#include <inttypes.h>

static const char PROGRAM[] = "trace";

static const char HELP[] =
    "usage: trace -m DIRECTORY -o FILE [options]\n"
    "Runs a prompt and some decode steps of the model in DIRECTORY, and writes their times to FILE in "
    "Chrome's\n"
    "trace format, for chrome://tracing or ui.perfetto.dev. A table of the operations goes to standard "
    "output.\n"
    "  -m, --model DIR       the model directory, as published\n"
    "  -o, --output FILE     where the trace goes\n"
    "  -p, --prompt TEXT     the prompt (default: some sentences)\n"
    "      --tokens N        a prompt of N tokens without a meaning instead, which needs no tokenizer\n"
    "  -n, --steps N         decode steps (default 8)\n"
    "      --budget N        rows of one step (default 512)\n"
    "      --threads N       (default: the processors this process may use)\n"
    "      --numerics NAME   reference or fast (default fast)\n";

typedef struct arguments {
    const char *directory, *output, *prompt;
    int32_t tokens, steps;
    qwen36_model_options model;
} arguments;

enum { TOKENS = 256, BUDGET, THREADS, NUMERICS, HELP_OPTION };

static void take(arguments *a, int option, const char *value)
{
    switch (option) {
    case 'm':
        a->directory = value;
        break;
    case 'o':
        a->output = value;
        break;
    case 'p':
        a->prompt = value;
        break;
    case 'n':
        a->steps = (int32_t)parse_integer(PROGRAM, "-n", value, 0, 100000);
        break;
    case TOKENS:
        a->tokens = (int32_t)parse_integer(PROGRAM, "--tokens", value, 1, 1000000);
        break;
    case BUDGET:
        a->model.max_batch_tokens = (int32_t)parse_integer(PROGRAM, "--budget", value, 1, 65536);
        break;
    case THREADS:
        a->model.threads = (int32_t)parse_integer(PROGRAM, "--threads", value, 1, 1024);
        break;
    case NUMERICS:
        a->model.numerics = parse_numerics(PROGRAM, value);
        break;
    case HELP_OPTION:
        fputs(HELP, stdout);
        exit(0);
    default:
        usage_error(PROGRAM, "unknown option or missing value", "");
    }
}

static arguments parse(int argc, char **argv)
{
    static const struct option options[] = {
        {"model", 1, NULL, 'm'},        {"output", 1, NULL, 'o'},
        {"prompt", 1, NULL, 'p'},       {"tokens", 1, NULL, TOKENS},
        {"steps", 1, NULL, 'n'},        {"budget", 1, NULL, BUDGET},
        {"threads", 1, NULL, THREADS},  {"numerics", 1, NULL, NUMERICS},
        {"help", 0, NULL, HELP_OPTION}, {NULL, 0, NULL, 0},
    };
    arguments a = {.steps = 8,
                   .prompt =
                       "A clock that nobody looks at still goes. It counts what passes in its room, the "
                       "steps and the pauses, and never asks what they were for."};
    int option;
    qwen36_model_options_init(&a.model, sizeof a.model);
    a.model.max_sessions = 1;
    while ((option = getopt_long(argc, argv, "m:o:p:n:", options, NULL)) != -1)
        take(&a, option, optarg);
    if (optind < argc)
        usage_error(PROGRAM, "unexpected argument", argv[optind]);
    if (a.directory == NULL)
        usage_error(PROGRAM, "a model is missing (-m DIRECTORY)", "");
    if (a.output == NULL)
        usage_error(PROGRAM, "a file is missing (-o FILE)", "");
    return a;
}

/* ---- what the library reports ----------------------------------------------------------------------- */

typedef struct event {
    const char *category, *name; /* static in the library */
    int32_t layer, rows;
    uint64_t begin, duration;
} event;

typedef struct recording {
    event *events;
    size_t count, capacity;
} recording;

/* Only what is cheap: this runs inside the step. */
static void record(void *user, const char *category, const char *name, int32_t layer, int32_t rows,
                   uint64_t begin, uint64_t duration)
{
    recording *r = user;
    if (r->count == r->capacity) {
        r->capacity = 2 * r->capacity + 1024;
        r->events = realloc(r->events, r->capacity * sizeof *r->events);
        if (r->events == NULL)
            fail_text(PROGRAM, "out of memory");
    }
    r->events[r->count++] = (event){category, name, layer, rows, begin, duration};
}

static int by_begin(const void *a, const void *b)
{
    const event *x = a, *y = b;
    if (x->begin != y->begin)
        return x->begin < y->begin ? -1 : 1;
    return (x->duration < y->duration) - (x->duration > y->duration);
}

/* One event a line. A viewer nests events of one thread by their times. */
static void write_trace(const recording *r, const char *path)
{
    FILE *file = fopen(path, "w");
    if (file == NULL)
        fail_text(PROGRAM, strerror(errno));
    qsort(r->events, r->count, sizeof *r->events, by_begin);
    fprintf(file, "{\"displayTimeUnit\": \"ns\", \"traceEvents\": [\n");
    for (size_t i = 0; i < r->count; i++) {
        const event *e = &r->events[i];
        uint64_t at = e->begin - r->events[0].begin;
        fprintf(file,
                "{\"name\": \"%s\", \"cat\": \"%s\", \"ph\": \"X\", \"ts\": %" PRIu64
                ".%03d, \"dur\": %" PRIu64
                ".%03d, \"pid\": 1, \"tid\": 1, \"args\": {\"layer\": %d, \"rows\": %d}}%s\n",
                e->name, e->category, at / 1000, (int)(at % 1000), e->duration / 1000,
                (int)(e->duration % 1000), e->layer, e->rows, i + 1 < r->count ? "," : "");
    }
    fprintf(file, "]}\n");
    if (ferror(file) || fclose(file) != 0)
        fail_text(PROGRAM, "the trace could not be written");
}

/* ---- the table -------------------------------------------------------------------------------------- */

typedef struct line {
    const char *name;
    uint64_t calls, nanoseconds;
} line;

enum { LINES = 32 };

static int by_time(const void *a, const void *b)
{
    const line *x = a, *y = b;
    return (x->nanoseconds < y->nanoseconds) - (x->nanoseconds > y->nanoseconds);
}

static int sum_up(const recording *r, line lines[LINES], uint64_t *all)
{
    int count = 0;
    for (size_t i = 0; i < r->count; i++) {
        const event *e = &r->events[i];
        int at = 0;
        if (strcmp(e->category, "op") != 0)
            continue;
        while (at < count && strcmp(lines[at].name, e->name) != 0)
            at++;
        if (at == LINES)
            continue;
        if (at == count)
            lines[count++] = (line){e->name, 0, 0};
        lines[at].calls++;
        lines[at].nanoseconds += e->duration;
        *all += e->duration;
    }
    return count;
}

static void print_table(const recording *r)
{
    line lines[LINES];
    uint64_t all = 0;
    int count = sum_up(r, lines, &all);
    qsort(lines, (size_t)count, sizeof *lines, by_time);
    printf("%-14s %8s %12s %7s\n", "operation", "calls", "ms", "share");
    for (int i = 0; i < count; i++)
        printf("%-14s %8" PRIu64 " %12.3f %6.1f %%\n", lines[i].name, lines[i].calls,
               (double)lines[i].nanoseconds * 1e-6, 100 * (double)lines[i].nanoseconds / (double)all);
}

/* ---- the run ---------------------------------------------------------------------------------------- */

static void append_prompt(const arguments *a, const qwen36_model *model, qwen36_session *session)
{
    qwen36_error error = QWEN36_ERROR_INIT;
    size_t count = (size_t)a->tokens;
    int32_t *ids = NULL;
    if (a->tokens == 0) {
        ids = encode(PROGRAM, tokenizer_of(PROGRAM, model), a->prompt, strlen(a->prompt),
                     QWEN36_ENCODE_PARSE_SPECIAL, &count);
    } else {
        qwen36_model_info info = {.struct_size = sizeof info};
        check(PROGRAM, qwen36_model_get_info(model, &info, &error), &error);
        ids = malloc(count * sizeof *ids);
        for (size_t i = 0; i < count && ids != NULL; i++)
            ids[i] = (int32_t)(i * 7919 % (size_t)info.token_count);
    }
    if (ids == NULL)
        fail_text(PROGRAM, "out of memory");
    check(PROGRAM, qwen36_session_append(session, ids, count, QWEN36_LOGITS_LAST, &error), &error);
    free(ids);
}

static void run(const arguments *a, qwen36_model *model)
{
    qwen36_error error = QWEN36_ERROR_INIT;
    qwen36_session *session = NULL;
    qwen36_status status;
    check(PROGRAM, qwen36_session_create(model, NULL, &session, &error), &error);
    append_prompt(a, model, session);
    for (int32_t i = 0; i <= a->steps; i++) {
        int32_t token;
        do {
            status = qwen36_step(&session, 1, NULL, NULL, &error);
            check(PROGRAM, status, &error);
        } while (status == QWEN36_PENDING);
        if (i < a->steps)
            check(PROGRAM, qwen36_sample(&session, 1, &token, NULL, &error), &error);
    }
    qwen36_session_destroy(session);
}

int main(int argc, char **argv)
{
    recording r = {NULL, 0, 0};
    arguments a = parse(argc, argv);
    a.model.trace = record;
    a.model.trace_user = &r;
    if (a.tokens + a.steps > a.model.context_length)
        a.model.context_length = a.tokens + a.steps;
    qwen36_model *model = load_model(PROGRAM, a.directory, &a.model);
    run(&a, model);
    qwen36_model_release(model);
    write_trace(&r, a.output);
    print_table(&r);
    free(r.events);
    return 0;
}
