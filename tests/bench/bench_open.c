/* Opening checkpoints of very many tensors: time and peak memory of qw_checkpoint_open, with the experts'
 * matrices apart (125,492 tensors). Each case runs in a process of its own; the files are sparse.
 *
 * Bounds: 1.0 s and 192 MiB. */
#define _GNU_SOURCE
#include "lib/os/process.h"
#include "lib/weights/checkpoint.h"

#include "lib/model/weights.h"
#include "lib/weights/config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

enum { REPEATS = 5 };

static const char *const config =
    "{\"model_type\":\"qwen3_5_moe_text\",\"vocab_size\":64,\"hidden_size\":8,\"num_hidden_layers\":81,"
    "\"num_attention_heads\":2,\"num_key_value_heads\":1,\"head_dim\":8,\"num_experts\":512,"
    "\"num_experts_per_tok\":8,\"moe_intermediate_size\":4,\"shared_expert_intermediate_size\":4,"
    "\"linear_num_key_heads\":1,\"linear_num_value_heads\":1,\"linear_key_head_dim\":4,"
    "\"linear_value_head_dim\":4,\"rope_theta\":10000000,\"tie_word_embeddings\":false}";

typedef struct writer {
    const char *directory;
    FILE *shards[4];
    FILE *index;
    int shard_count;
    uint64_t offsets[4];
    long count, total;
} writer;

static qwen36_status count_entry(void *user, const qw_weight_spec *spec)
{
    (void)spec;
    ((writer *)user)->total++;
    return QWEN36_OK;
}

static qwen36_status write_entry(void *user, const qw_weight_spec *spec)
{
    writer *w = user;
    const long shard = w->count * w->shard_count / w->total;
    FILE *out = w->shards[shard];
    uint64_t bytes = 2;
    fprintf(out, "%s\"%s\":{\"dtype\":\"BF16\",\"shape\":[", w->offsets[shard] > 0 ? "," : "{", spec->name);
    for (int32_t i = 0; i < spec->rank; i++) {
        fprintf(out, "%s%lld", i > 0 ? "," : "", (long long)spec->shape[i]);
        bytes *= (uint64_t)spec->shape[i];
    }
    fprintf(out, "],\"data_offsets\":[%llu,%llu]}", (unsigned long long)w->offsets[shard],
            (unsigned long long)(w->offsets[shard] + bytes));
    fprintf(w->index, "%s\"%s\":\"model-%05ld-of-%05d.safetensors\"",
            w->count > 0 ? ",\n" : "{\"weight_map\":{", spec->name, shard + 1, w->shard_count);
    w->offsets[shard] += bytes;
    w->count++;
    return QWEN36_OK;
}

static void path_of(char path[512], const char *directory, const char *file)
{
    snprintf(path, 512, "%s/%s", directory, file);
}

/* A header of at least `least` bytes, and sparse data behind it. */
static void finish_shard(writer *w, int shard, const char *path, uint64_t least)
{
    FILE *out = w->shards[shard];
    fputc('}', out);
    uint64_t length = (uint64_t)ftell(out) - 8;
    for (; length < least || length % 8 != 0; length++)
        fputc(' ', out);
    rewind(out);
    fwrite(&length, 8, 1, out);
    if (fclose(out) != 0 || truncate(path, (off_t)(8 + length + w->offsets[shard])) != 0)
        exit(1);
}

static void write_checkpoint(const char *directory, int shards, uint64_t least)
{
    char path[512], file[64];
    qw_dims dims;
    qw_generation generation;
    qwen36_error error = QWEN36_ERROR_INIT;
    writer w = {.directory = directory, .shard_count = shards};
    path_of(path, directory, "config.json");
    FILE *out = fopen(path, "w");
    if (out == NULL || fputs(config, out) < 0 || fclose(out) != 0)
        exit(1);
    path_of(path, directory, shards > 1 ? "model.safetensors.index.json" : "unused.json");
    w.index = fopen(path, "w");
    for (int i = 0; i < shards; i++) {
        snprintf(file, sizeof file, shards > 1 ? "model-%05d-of-%05d.safetensors" : "model.safetensors",
                 i + 1, shards);
        path_of(path, directory, file);
        w.shards[i] = fopen(path, "w+");
        if (w.index == NULL || w.shards[i] == NULL || fwrite("........", 8, 1, w.shards[i]) != 1)
            exit(1);
    }
    qw_generation_init(&generation);
    if (qw_config_parse(config, strlen(config), "config.json", &dims, &generation, &error) != QWEN36_OK)
        exit(1);
    qw_weights_visit(&dims, "model.language_model.", false, count_entry, &w);
    qw_weights_visit(&dims, "model.language_model.", false, write_entry, &w);
    for (int i = 0; i < shards; i++) {
        snprintf(file, sizeof file, shards > 1 ? "model-%05d-of-%05d.safetensors" : "model.safetensors",
                 i + 1, shards);
        path_of(path, directory, file);
        finish_shard(&w, i, path, least);
    }
    fputs("}}", w.index);
    fclose(w.index);
}

static double seconds_of(const struct timeval *t)
{
    return (double)t->tv_sec + (double)t->tv_usec * 1e-6;
}

/* In the child: the best time of some, by the clock and of the processor (which other programs disturb less).
 */
static int measure(const char *name, const char *directory)
{
    const qw_allocator allocator = qw_allocator_default();
    double wall = 1e9, processor = 1e9;
    struct rusage before, after;
    size_t count = 0;
    for (int i = 0; i < REPEATS; i++) {
        qw_checkpoint *checkpoint = NULL;
        qwen36_error error = QWEN36_ERROR_INIT;
        getrusage(RUSAGE_SELF, &before);
        const double start = qw_clock_seconds();
        if (qw_checkpoint_open(&allocator, directory, &checkpoint, &error) != QWEN36_OK) {
            fprintf(stderr, "%s\n", error.message);
            return 1;
        }
        wall = QW_MIN(wall, qw_clock_seconds() - start);
        getrusage(RUSAGE_SELF, &after);
        processor = QW_MIN(processor, seconds_of(&after.ru_utime) + seconds_of(&after.ru_stime) -
                                          seconds_of(&before.ru_utime) - seconds_of(&before.ru_stime));
        count = checkpoint->tensors.count;
        qw_checkpoint_close(checkpoint);
    }
    printf("open  %-28s %7zu tensors  %6.3f s (%.3f s of the processor)  peak %4ld MiB%s\n", name, count,
           wall, processor, after.ru_maxrss / 1024,
           wall > 1.0 || after.ru_maxrss > 192 * 1024 ? "  over 1.0 s or 192 MiB" : "");
    return 0;
}

static int run(const char *name, int shards, uint64_t least)
{
    char directory[] = "/tmp/qwen36-bench-XXXXXX", command[600];
    if (mkdtemp(directory) == NULL)
        return 1;
    write_checkpoint(directory, shards, least);
    fflush(stdout);
    const pid_t child = fork();
    if (child == 0) {
        int outcome = measure(name, directory);
        fflush(stdout);
        _exit(outcome);
    }
    int status = 1;
    waitpid(child, &status, 0);
    snprintf(command, sizeof command, "rm -r %s", directory);
    return system(command) != 0 || status != 0;
}

int main(void)
{
    int failed = run("one file", 1, 0);
    failed |= run("three shards and an index", 3, 0);
    failed |= run("one file, header of 100 MB", 1, 100000000);
    return failed;
}
