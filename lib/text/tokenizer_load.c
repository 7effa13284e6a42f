#include "lib/os/file.h"
#include "lib/text/tokenizer.h"

#include <stdio.h>
#include <string.h>

#define FILE_LIMIT ((size_t)256 << 20)

static char *join_path(const qw_allocator *allocator, const char *directory, const char *name)
{
    size_t size = strlen(directory) + strlen(name) + 2;
    char *path = qw_alloc(allocator, size, 1);
    if (path != NULL)
        snprintf(path, size, "%s/%s", directory, name);
    return path;
}

/* A file that is absent has a NULL text. The caller frees path and text. */
static qwen36_status read_file(const qw_allocator *allocator, const char *directory, const char *name,
                               char **path, char **text, size_t *length, qwen36_error *error)
{
    qwen36_error reason = QWEN36_ERROR_INIT;
    *path = join_path(allocator, directory, name);
    if (*path == NULL)
        return qw_fail_memory(error, strlen(directory));
    qwen36_status status = qw_file_read_all(allocator, *path, FILE_LIMIT, text, length, &reason);
    if (status == QWEN36_ERROR_FILE_NOT_FOUND)
        return QWEN36_OK;
    return status == QWEN36_OK ? status : qw_fail(error, status, "%s", reason.message);
}

qwen36_status qw_tokenizer_load(const qw_allocator *allocator, const char *directory, qwen36_tokenizer **out,
                                qwen36_error *error)
{
    static const char *const names[] = {"tokenizer.json", "tokenizer_config.json"};
    qw_tokenizer_source sources[2] = {{NULL, NULL, 0}, {NULL, NULL, 0}};
    char *paths[2] = {NULL, NULL}, *texts[2] = {NULL, NULL};
    qwen36_status status = QWEN36_OK;
    *out = NULL;
    for (int i = 0; i < 2 && status == QWEN36_OK; i++) {
        status = read_file(allocator, directory, names[i], &paths[i], &texts[i], &sources[i].length, error);
        sources[i].path = paths[i];
        sources[i].text = texts[i];
    }
    if (status == QWEN36_OK && texts[0] == NULL)
        status = qw_directory_exists(directory)
                     ? qw_fail(error, QWEN36_ERROR_NO_TOKENIZER, "%s does not exist", paths[0])
                     : qw_fail(error, QWEN36_ERROR_FILE_NOT_FOUND, "%s: no such directory", directory);
    if (status == QWEN36_OK)
        status = qw_tokenizer_parse(allocator, &sources[0], &sources[1], out, error);
    for (int i = 0; i < 2; i++) {
        qw_free(allocator, paths[i]);
        qw_free(allocator, texts[i]);
    }
    return status;
}
