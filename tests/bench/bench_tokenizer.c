/* The tokenizer: time and memory of loading, speed of encoding and decoding on one thread.
 *
 *     bench_tokenizer [DIRECTORY [FILE]]
 *
 * DIRECTORY holds tokenizer.json (default $QWEN36_TOKENIZER_DIR, else build/assets/tokenizer; absent: nothing
 * is measured). Texts of 10 MB are made of the vocabulary's words, frequent ones more often: ASCII words with
 * some symbols, Chinese, other scripts, and a mixture of these; the mixture is written to FILE, for
 * tests/bench/tokenizer_ratio.py. Each figure is the best of some runs in CPU time. */
#include "qwen36.h"

#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { TRIES = 5, TEXT_SIZE = 10000000, PASSAGE = 4000 };

static double cpu_seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static double uniform(uint64_t *state)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (double)(*state >> 11) / 9007199254740992.0;
}

static void fail(const char *what)
{
    fprintf(stderr, "bench_tokenizer: %s\n", what);
    exit(1);
}

/* ---- texts --------------------------------------------------------------------------------------------- */

typedef enum script { ASCII, CHINESE, OTHER, SCRIPTS } script;
static const char *const script_names[] = {"ASCII", "Chinese", "other scripts", "mixture"};

typedef struct words {
    int32_t *ids; /* in order of frequency, nearly: so are the ids of the vocabulary */
    size_t count;
} words;

/* Whether a token's bytes are whole characters. */
static bool is_whole(const unsigned char *b, size_t n)
{
    size_t at = 0;
    while (at < n && (b[at] & 0xc0) != 0x80) {
        size_t size = b[at] < 0x80 ? 1 : b[at] < 0xe0 ? 2 : b[at] < 0xf0 ? 3 : 4;
        for (size_t i = 1; i < size; i++)
            if (at + i >= n || (b[at + i] & 0xc0) != 0x80)
                return false;
        at += size;
    }
    return at == n;
}

static bool is_ascii_word(const unsigned char *b, size_t n)
{
    for (size_t i = 1; i < n; i++)
        if ((b[i] | 0x20) < 'a' || (b[i] | 0x20) > 'z')
            return false;
    return n > 1 && b[0] == ' ';
}

static bool is_chinese(const unsigned char *b, size_t n)
{
    for (size_t i = 0; i + 2 < n; i += 3)
        if (b[i] < 0xe4 || b[i] > 0xe9)
            return false;
    return n >= 3 && n % 3 == 0;
}

/* The kind of text that a token belongs to; SCRIPTS: none. */
static script kind_of(const unsigned char *b, size_t n)
{
    if (is_ascii_word(b, n))
        return ASCII;
    if (is_chinese(b, n))
        return CHINESE;
    return n > 3 && b[0] == ' ' && b[1] >= 0xc3 && is_whole(b, n) ? OTHER : SCRIPTS;
}

static void sort_words(const qwen36_tokenizer *t, words lists[SCRIPTS])
{
    int32_t size = qwen36_tokenizer_size(t);
    for (int i = 0; i < SCRIPTS; i++) {
        lists[i] = (words){malloc((size_t)size * sizeof(int32_t)), 0};
        if (lists[i].ids == NULL)
            fail("out of memory");
    }
    for (int32_t id = 0; id < size; id++) {
        size_t n = 0;
        const char *bytes = qwen36_tokenizer_bytes(t, id, &n);
        script kind = bytes == NULL || n == 0 ? SCRIPTS : kind_of((const unsigned char *)bytes, n);
        if (kind != SCRIPTS && !qwen36_tokenizer_is_special(t, id))
            lists[kind].ids[lists[kind].count++] = id;
    }
}

/* What may stand between words. */
static const char *pause_of(script kind, uint64_t *state)
{
    static const char *const ascii[] = {".\n", ",", "(x);\n    ", " == 0", " 2026", "'s", "_", ".\n\n"};
    static const char *const chinese[] = {"\xe3\x80\x82", "\xef\xbc\x8c", "\xe3\x80\x82\n", "\xe3\x80\x81"};
    if (uniform(state) > 0.15)
        return "";
    return kind == CHINESE ? chinese[(size_t)(uniform(state) * 4)] : ascii[(size_t)(uniform(state) * 8)];
}

/* Words until `room` is full, the word of rank r about as often as 1/r says. */
static size_t write_words(const qwen36_tokenizer *t, const words *list, script kind, uint64_t *state,
                          char *out, size_t room)
{
    size_t length = 0;
    while (list->count > 0) {
        size_t n = 0, rank = (size_t)(exp(log((double)list->count) * uniform(state)) - 1);
        const char *bytes = qwen36_tokenizer_bytes(t, list->ids[rank], &n);
        const char *pause = pause_of(kind, state);
        if (length + n + strlen(pause) >= room)
            break;
        memcpy(out + length, bytes, n);
        strcpy(out + length + n, pause);
        length += n + strlen(pause);
    }
    return length;
}

static size_t make_text(const qwen36_tokenizer *t, const words lists[SCRIPTS], script kind, char *out)
{
    uint64_t state = 36;
    size_t length = 0;
    while (length + PASSAGE < TEXT_SIZE) {
        double u = uniform(&state);
        script now = kind < SCRIPTS ? kind : u < 0.6 ? ASCII : u < 0.8 ? CHINESE : OTHER;
        size_t n = write_words(t, &lists[now], now, &state, out + length, PASSAGE);
        if (n == 0)
            break;
        length += n;
    }
    return length;
}

/* ---- measurements -------------------------------------------------------------------------------------- */

/* A figure of /proc/self/status in KiB. */
static long status_figure(const char *name)
{
    char line[256];
    long figure = 0;
    FILE *file = fopen("/proc/self/status", "r");
    while (file != NULL && fgets(line, sizeof line, file) != NULL)
        if (strncmp(line, name, strlen(name)) == 0)
            figure = atol(line + strlen(name) + 1);
    if (file != NULL)
        fclose(file);
    return figure;
}

static qwen36_tokenizer *measure_load(const char *directory)
{
    qwen36_tokenizer *t = NULL;
    qwen36_error error = QWEN36_ERROR_INIT;
    double best = INFINITY;
    long before = status_figure("VmRSS"), resident = 0, peak = 0;
    for (int i = 0; i < TRIES; i++) {
        qwen36_tokenizer_destroy(t);
        double start = cpu_seconds();
        if (qwen36_tokenizer_load(directory, NULL, &t, &error) != QWEN36_OK)
            fail(error.message);
        best = fmin(best, cpu_seconds() - start);
        if (i == 0) {
            resident = status_figure("VmRSS");
            peak = status_figure("VmHWM");
        }
    }
    printf("load            %8.3f s   resident %.1f MiB more, peak %.1f MiB more than before\n", best,
           (double)(resident - before) / 1024, (double)(peak - before) / 1024);
    return t;
}

static void measure_text(const qwen36_tokenizer *t, script kind, const char *text, size_t length)
{
    double encoding = INFINITY, decoding = INFINITY;
    size_t count = 0, back = 0;
    int32_t *ids = malloc(length * sizeof *ids);
    char *bytes = malloc(length);
    if (ids == NULL || bytes == NULL)
        fail("out of memory");
    for (int i = 0; i < TRIES; i++) {
        double start = cpu_seconds();
        if (qwen36_tokenizer_encode(t, text, length, 1, ids, length, &count, NULL) != QWEN36_OK)
            fail("encode failed");
        double middle = cpu_seconds();
        if (qwen36_tokenizer_decode(t, ids, count, 0, bytes, length, &back, NULL) != QWEN36_OK)
            fail("decode failed");
        encoding = fmin(encoding, middle - start);
        decoding = fmin(decoding, cpu_seconds() - middle);
    }
    printf("%-14s  %8.1f MB/s encoded, %8.1f MB/s decoded, %.2f bytes per token\n", script_names[kind],
           (double)length / 1e6 / encoding, (double)back / 1e6 / decoding, (double)length / (double)count);
    free(ids);
    free(bytes);
}

int main(int argc, char **argv)
{
    const char *directory = argc > 1 ? argv[1] : getenv("QWEN36_TOKENIZER_DIR");
    char path[4096];
    if (directory == NULL)
        directory = "build/assets/tokenizer";
    snprintf(path, sizeof path, "%s/tokenizer.json", directory);
    if (access(path, R_OK) != 0) {
        printf("tokenizer: %s is not here, nothing measured\n", path);
        return argc > 1;
    }
    qwen36_tokenizer *t = measure_load(directory);
    words lists[SCRIPTS];
    char *text = malloc(TEXT_SIZE);
    if (text == NULL)
        fail("out of memory");
    sort_words(t, lists);
    for (script kind = ASCII; kind <= SCRIPTS; kind++) {
        size_t length = make_text(t, lists, kind, text);
        measure_text(t, kind, text, length);
        FILE *file = kind == SCRIPTS && argc > 2 ? fopen(argv[2], "wb") : NULL;
        if (kind == SCRIPTS && argc > 2 &&
            (file == NULL || fwrite(text, 1, length, file) != length || fclose(file) != 0))
            fail("the text cannot be written");
    }
    for (int i = 0; i < SCRIPTS; i++)
        free(lists[i].ids);
    free(text);
    qwen36_tokenizer_destroy(t);
    return 0;
}
