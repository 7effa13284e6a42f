#include "tests/bench/model.h"

#include "lib/os/process.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

void bench_give_up(const char *what)
{
    fprintf(stderr, "benchmark: %s\n", what);
    exit(1);
}

void bench_check(qwen36_status status, const qwen36_error *error)
{
    if (status < 0)
        bench_give_up(error->message);
}

const char *bench_checkpoint(const char *like, int32_t layers)
{
    static char directory[256];
    char command[640], what[32] = "--sparse";
    if (layers > 0)
        snprintf(what, sizeof what, "--layers %d", layers);
    snprintf(directory, sizeof directory, "build/checkpoints/bench-%s-%d", like, layers);
    snprintf(command, sizeof command,
             "mkdir -p build/checkpoints && " QW_BENCH_EXAMPLES "/make-model --like %s %s -o %s", like, what,
             directory);
    if (access(directory, R_OK) != 0 && system(command) != 0)
        bench_give_up(command);
    return directory;
}

void bench_random_tokens(int32_t *tokens, int32_t count, int32_t vocab_size, uint32_t seed)
{
    for (int32_t i = 0; i < count; i++) {
        seed = seed * 1664525u + 1013904223u;
        tokens[i] = (int32_t)(seed >> 8) % vocab_size;
    }
}

double bench_compute(qwen36_session *session)
{
    qwen36_error error = QWEN36_ERROR_INIT;
    qwen36_status status;
    double begin = qw_clock_seconds();
    do {
        status = qwen36_step(&session, 1, NULL, NULL, &error);
        bench_check(status, &error);
    } while (status == QWEN36_PENDING);
    return qw_clock_seconds() - begin;
}
