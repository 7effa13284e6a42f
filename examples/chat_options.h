/* The command line of chat.c. */
#ifndef EXAMPLES_CHAT_OPTIONS_H
#define EXAMPLES_CHAT_OPTIONS_H

#include "common.h"

#include <getopt.h>

static const char PROGRAM[] = "chat";

static const char HELP[] =
    "usage: chat -m DIRECTORY [options]\n"
    "Holds a conversation with the model in DIRECTORY. On a terminal, Ctrl-C stops an answer, and ends the\n"
    "program at the prompt, as Ctrl-D does. Otherwise every line of standard input is a message.\n"
    "  -m, --model DIR       the model directory, as published\n"
    "  -s, --system TEXT     a system message\n"
    "  -n, --tokens N        tokens of an answer at most, thought included (default 1024)\n"
    "      --think HOW       on: to think; off: not to; hide: to think unseen (default: as the template "
    "does)\n"
    "      --preserve-thinking\n"
    "                        older answers keep their thoughts, if the template can do that: a turn then "
    "goes\n"
    "                        on from what is computed already, but thoughts fill the context\n"
    "      --temp T          temperature, 0 is greedy (default: the model's)\n"
    "      --greedy          the same as --temp 0\n"
    "      --seed S          seed of the draws (default 0)\n"
    "      --weather         offers the model a tool that says the weather in a city (it makes it up)\n"
    "      --tools FILE      offers tools described in JSON; their calls are shown, nobody answers them\n"
    "      --context N       room for the conversation, in tokens (default 4096)\n"
    "      --cache-bytes N   memory for keys and values (default: what the context needs)\n"
    "      --threads N       (default: the processors this process may use)\n"
    "      --numerics NAME   reference or fast (default fast)\n"
    "      --allow-nearest   takes the known chat template that is nearest to an unknown one\n"
    "      --quiet           no notes and no rates on standard error\n"
    "Colours are for terminals; the environment variable NO_COLOR turns them off.\n";

typedef struct arguments {
    const char *directory, *system, *tools;
    int32_t tokens, weather, quiet, has_temperature;
    int32_t hidden; /* thoughts are not shown */
    float temperature;
    uint64_t seed;
    qwen36_model_options model;
    qwen36_chat_options chat;
} arguments;

enum {
    THINK = 256,
    PRESERVE_THINKING,
    TEMPERATURE,
    GREEDY,
    SEED,
    WEATHER,
    TOOLS,
    CONTEXT,
    CACHE_BYTES,
    THREADS,
    NUMERICS,
    ALLOW_NEAREST,
    QUIET,
    HELP_OPTION
};

static inline int set_thinking(arguments *a, const char *how)
{
    int off = strcmp(how, "off") == 0, hide = strcmp(how, "hide") == 0;
    if (!off && !hide && strcmp(how, "on") != 0)
        return 0;
    a->chat.enable_thinking = !off;
    a->hidden = hide;
    return 1;
}

static inline void take_number(arguments *a, int option, const char *value)
{
    if (option == 'n') {
        a->tokens = (int32_t)parse_integer(PROGRAM, "-n", value, 1, INT32_MAX);
    } else if (option == TEMPERATURE) {
        a->temperature = parse_number(PROGRAM, "--temp", value);
        a->has_temperature = 1;
    } else if (option == SEED) {
        a->seed = (uint64_t)parse_integer(PROGRAM, "--seed", value, 0, INT64_MAX);
    } else if (option == CONTEXT) {
        a->model.context_length = (int32_t)parse_integer(PROGRAM, "--context", value, 1, INT32_MAX / 2);
    } else if (option == CACHE_BYTES) {
        a->model.cache_bytes = (uint64_t)parse_integer(PROGRAM, "--cache-bytes", value, 1, INT64_MAX);
    } else if (option == THREADS) {
        a->model.threads = (int32_t)parse_integer(PROGRAM, "--threads", value, 1, 1024);
    }
}

static inline void take(arguments *a, int option, const char *value)
{
    switch (option) {
    case 'm':
        a->directory = value;
        break;
    case 's':
        a->system = value;
        break;
    case THINK:
        if (!set_thinking(a, value))
            usage_error(PROGRAM, "--think is 'on', 'off' or 'hide'", value);
        break;
    case PRESERVE_THINKING:
        a->chat.preserve_thinking = 1;
        break;
    case GREEDY:
        a->temperature = 0;
        a->has_temperature = 1;
        break;
    case WEATHER:
        a->weather = 1;
        break;
    case TOOLS:
        a->tools = value;
        break;
    case NUMERICS:
        a->model.numerics = parse_numerics(PROGRAM, value);
        break;
    case ALLOW_NEAREST:
        a->chat.allow_nearest = 1;
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
        take_number(a, option, value);
    }
}

static inline void parse(arguments *a, int argc, char **argv)
{
    static const struct option options[] = {
        {"model", 1, NULL, 'm'},
        {"system", 1, NULL, 's'},
        {"tokens", 1, NULL, 'n'},
        {"think", 1, NULL, THINK},
        {"preserve-thinking", 0, NULL, PRESERVE_THINKING},
        {"temp", 1, NULL, TEMPERATURE},
        {"greedy", 0, NULL, GREEDY},
        {"seed", 1, NULL, SEED},
        {"weather", 0, NULL, WEATHER},
        {"tools", 1, NULL, TOOLS},
        {"context", 1, NULL, CONTEXT},
        {"cache-bytes", 1, NULL, CACHE_BYTES},
        {"threads", 1, NULL, THREADS},
        {"numerics", 1, NULL, NUMERICS},
        {"allow-nearest", 0, NULL, ALLOW_NEAREST},
        {"quiet", 0, NULL, QUIET},
        {"help", 0, NULL, HELP_OPTION},
        {NULL, 0, NULL, 0},
    };
    int option;
    a->tokens = 1024;
    qwen36_model_options_init(&a->model, sizeof a->model);
    qwen36_chat_options_init(&a->chat, sizeof a->chat);
    a->model.max_sessions = 1;
    while ((option = getopt_long(argc, argv, "m:s:n:", options, NULL)) != -1)
        take(a, option, optarg);
    if (optind < argc)
        usage_error(PROGRAM, "unexpected argument", argv[optind]);
    if (a->directory == NULL)
        usage_error(PROGRAM, "a model is missing (-m DIRECTORY)", "");
    if (a->weather && a->tools != NULL)
        usage_error(PROGRAM, "--weather and --tools exclude each other", "");
}

#endif
