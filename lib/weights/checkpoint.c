#include "lib/weights/checkpoint.h"

#include "lib/weights/config.h"
#include "lib/weights/index.h"
#include "lib/weights/manifest.h"

#include <string.h>

/* More than any published file, and little enough for the tree that is made of it. */
#define CONFIG_MAX ((size_t)4 << 20)
#define INDEX_MAX ((size_t)32 << 20)

char *qw_checkpoint_path(const qw_checkpoint *c, const char *file)
{
    const size_t directory = strlen(c->directory), name = strlen(file);
    char *path = qw_alloc_raw(&c->allocator, directory + name + 2, 1);
    if (path == NULL)
        return NULL;
    memcpy(path, c->directory, directory);
    path[directory] = '/';
    memcpy(path + directory + 1, file, name + 1);
    return path;
}

const qw_tensor *qw_checkpoint_find(const qw_checkpoint *c, const char *name)
{
    const qw_name *found = qw_names_find(&c->names, name, strlen(name));
    return found != NULL ? &c->tensors.items[found->value] : NULL;
}

static qwen36_status read_file(const qw_checkpoint *c, const char *file, size_t limit, char **text,
                               size_t *length, qwen36_error *error)
{
    char *path = qw_checkpoint_path(c, file);
    if (path == NULL)
        return qw_fail_memory(error, strlen(file));
    qwen36_status status = qw_file_read_all(&c->allocator, path, limit, text, length, error);
    qw_free(&c->allocator, path);
    return status;
}

/* A file that may be absent: QWEN36_OK with *text NULL then. */
static qwen36_status read_optional(const qw_checkpoint *c, const char *file, size_t limit, char **text,
                                   size_t *length, qwen36_error *error)
{
    qwen36_status status = read_file(c, file, limit, text, length, error);
    if (status != QWEN36_ERROR_FILE_NOT_FOUND)
        return status;
    qw_error_clear(error);
    return QWEN36_OK;
}

/* --- Configuration -------------------------------------------------------------------------------- */

static qwen36_status open_config(qw_checkpoint *c, qwen36_error *error)
{
    char *text = NULL;
    size_t length = 0;
    qw_generation_init(&c->generation);
    qwen36_status status = read_file(c, QW_CONFIG_FILE, CONFIG_MAX, &text, &length, error);
    if (status == QWEN36_OK)
        status = qw_config_parse(text, length, QW_CONFIG_FILE, &c->dims, &c->generation, error);
    qw_free(&c->allocator, text);
    text = NULL;
    if (status == QWEN36_OK)
        status = read_optional(c, QW_GENERATION_FILE, CONFIG_MAX, &text, &length, error);
    if (status == QWEN36_OK && text != NULL)
        status =
            qw_generation_parse(text, length, QW_GENERATION_FILE, c->dims.vocab_size, &c->generation, error);
    qw_free(&c->allocator, text);
    c->dims.bos_token = c->generation.bos_token;
    c->dims.pad_token = c->generation.pad_token;
    return status;
}

/* --- Shards --------------------------------------------------------------------------------------- */

/* Reads the header into shard->header and the tensors into the table. */
static qwen36_status read_header(qw_checkpoint *c, uint32_t number, const qw_file *file, const char *path,
                                 qwen36_error *error)
{
    qw_shard *shard = &c->shards[number];
    unsigned char prefix[8] = {0};
    size_t length = 0;
    if (file->stamp.size >= sizeof prefix) {
        qwen36_status status = qw_file_read(file, path, 0, prefix, sizeof prefix, error);
        if (status != QWEN36_OK)
            return status;
    }
    qwen36_status status =
        qw_safetensors_header_length(prefix, file->stamp.size, shard->file, &length, error);
    if (status != QWEN36_OK)
        return status;
    shard->header = qw_alloc_raw(&c->allocator, length + 1, 1);
    if (shard->header == NULL)
        return qw_fail_memory(error, length);
    shard->header[length] = '\0';
    status = qw_file_read(file, path, sizeof prefix, shard->header, length, error);
    if (status == QWEN36_OK)
        status = qw_file_check(file, path, &file->stamp, error);
    if (status == QWEN36_OK)
        status = qw_safetensors_parse(&c->tensors, number, shard->header, length, file->stamp.size,
                                      shard->file, error);
    return status;
}

static qwen36_status open_shard(qw_checkpoint *c, uint32_t number, qwen36_error *error)
{
    qw_shard *shard = &c->shards[number];
    qw_file file = {.descriptor = -1};
    char *path = qw_checkpoint_path(c, shard->file);
    if (path == NULL)
        return qw_fail_memory(error, strlen(shard->file));
    qwen36_status status = qw_file_open(path, &file, error);
    if (status == QWEN36_ERROR_FILE_NOT_FOUND && c->indexed) {
        qw_error_clear(error);
        status =
            qw_fail(error, QWEN36_ERROR_MISSING_SHARD, "%s: not found, but %s names it", path, QW_INDEX_FILE);
    }
    if (status == QWEN36_OK) {
        shard->stamp = file.stamp;
        status = read_header(c, number, &file, path, error);
        qw_file_close(&file);
    }
    qw_free(&c->allocator, path);
    return status;
}

static qwen36_status set_shards(qw_checkpoint *c, const char *const *files, size_t count, qwen36_error *error)
{
    c->shards = qw_alloc(&c->allocator, count, sizeof *c->shards);
    if (c->shards == NULL)
        return qw_fail_memory(error, count * sizeof *c->shards);
    c->shard_count = count;
    for (size_t i = 0; i < count; i++) {
        c->shards[i].file = qw_copy_text(&c->allocator, files[i], strlen(files[i]));
        if (c->shards[i].file == NULL)
            return qw_fail_memory(error, strlen(files[i]) + 1);
    }
    return QWEN36_OK;
}

/* --- One file, or an index ------------------------------------------------------------------------ */

static qwen36_status open_single(qw_checkpoint *c, qwen36_error *error)
{
    const char *file = QW_SINGLE_FILE;
    qwen36_status status = set_shards(c, &file, 1, error);
    if (status == QWEN36_OK)
        status = open_shard(c, 0, error);
    if (status != QWEN36_ERROR_FILE_NOT_FOUND)
        return status;
    qw_error_clear(error);
    return qw_fail(error, QWEN36_ERROR_FILE_NOT_FOUND, "%s: holds neither %s nor %s", c->directory,
                   QW_INDEX_FILE, QW_SINGLE_FILE);
}

/* Of the tensors that shard `number` added to the table, keeps those that the index places there. */
static void keep_indexed(qw_checkpoint *c, const qw_index *index, uint32_t number, size_t first)
{
    size_t kept = first;
    for (size_t i = first; i < c->tensors.count; i++) {
        const qw_tensor *t = &c->tensors.items[i];
        qw_name *entry = qw_names_find(&index->tensors, t->name, t->name_length);
        if (entry == NULL || entry->value != number)
            continue;
        entry->value |= QW_INDEX_SEEN;
        c->tensors.items[kept++] = *t;
    }
    c->tensors.count = kept;
}

static qwen36_status check_all_seen(const qw_index *index, qwen36_error *error)
{
    for (const cJSON *item = index->weight_map->child; item != NULL; item = item->next) {
        const qw_name *entry = qw_names_find(&index->tensors, item->string, strlen(item->string));
        if (entry == NULL || (entry->value & QW_INDEX_SEEN) == 0)
            return qw_fail(error, QWEN36_ERROR_INDEX_MISMATCH,
                           "%.100s: lacks the tensor %.200s, which %s places there", item->valuestring,
                           item->string, QW_INDEX_FILE);
    }
    return QWEN36_OK;
}

static qwen36_status open_indexed(qw_checkpoint *c, const char *text, size_t length, qwen36_error *error)
{
    qw_index index;
    qwen36_status status = qw_index_parse(&c->allocator, text, length, QW_INDEX_FILE, &index, error);
    c->indexed = true;
    if (status == QWEN36_OK)
        status = set_shards(c, index.files, index.file_count, error);
    for (uint32_t i = 0; i < c->shard_count && status == QWEN36_OK; i++) {
        const size_t first = c->tensors.count;
        status = open_shard(c, i, error);
        if (status == QWEN36_OK)
            keep_indexed(c, &index, i, first);
    }
    if (status == QWEN36_OK)
        status = check_all_seen(&index, error);
    qw_index_release(&index);
    return status;
}

/* The index is preferred: it says where each tensor is, whatever else lies in the directory. */
static qwen36_status open_tensors(qw_checkpoint *c, qwen36_error *error)
{
    char *text = NULL;
    size_t length = 0;
    qwen36_status status = read_optional(c, QW_INDEX_FILE, INDEX_MAX, &text, &length, error);
    if (status != QWEN36_OK)
        return status;
    status = text != NULL ? open_indexed(c, text, length, error) : open_single(c, error);
    qw_free(&c->allocator, text);
    if (status != QWEN36_OK)
        return status;
    if (!qw_names_reserve(&c->names, c->tensors.count))
        return qw_fail_memory(error, c->tensors.count * 2 * sizeof(qw_name));
    for (size_t i = 0; i < c->tensors.count; i++)
        qw_names_add(&c->names, c->tensors.items[i].name, c->tensors.items[i].name_length, (uint32_t)i);
    return QWEN36_OK;
}

/* --- All together --------------------------------------------------------------------------------- */

static qwen36_status open_all(qw_checkpoint *c, const char *directory, qwen36_error *error)
{
    c->directory = qw_copy_text(&c->allocator, directory, strlen(directory));
    if (c->directory == NULL)
        return qw_fail_memory(error, strlen(directory) + 1);
    qwen36_status status = open_config(c, error);
    if (status == QWEN36_OK)
        status = open_tensors(c, error);
    return status == QWEN36_OK ? qw_manifest_check(c, error) : status;
}

qwen36_status qw_checkpoint_open(const qw_allocator *allocator, const char *directory,
                                 qw_checkpoint **checkpoint, qwen36_error *error)
{
    qwen36_error own = QWEN36_ERROR_INIT; /* the caller may not want the text; the steps below rely on one */
    *checkpoint = NULL;
    qw_checkpoint *c = qw_alloc(allocator, 1, sizeof *c);
    if (c == NULL)
        return qw_fail_memory(error, sizeof *c);
    c->allocator = *allocator;
    c->tensors.allocator = c->names.allocator = &c->allocator;
    qwen36_status status = open_all(c, directory, &own);
    if (status != QWEN36_OK) {
        qw_checkpoint_close(c);
        return qw_fail(error, status, "%s", own.message);
    }
    *checkpoint = c;
    return QWEN36_OK;
}

void qw_checkpoint_close(qw_checkpoint *c)
{
    if (c == NULL)
        return;
    for (size_t i = 0; i < c->shard_count; i++) {
        qw_free(&c->allocator, c->shards[i].file);
        qw_free(&c->allocator, c->shards[i].header);
    }
    qw_free(&c->allocator, c->shards);
    qw_tensors_release(&c->tensors);
    qw_names_release(&c->names);
    qw_free(&c->allocator, c->directory);
    const qw_allocator allocator = c->allocator;
    qw_free(&allocator, c);
}
