#include "lib/weights/index.h"

#include <string.h>

#define FILE_NAME_MAX 255

static bool is_plain_name(const char *name)
{
    size_t length = strlen(name);
    return length > 0 && length <= FILE_NAME_MAX && strchr(name, '/') == NULL && strcmp(name, ".") != 0 &&
           strcmp(name, "..") != 0;
}

static bool add_file(qw_index *index, const char *name, uint32_t *shard)
{
    const size_t length = strlen(name);
    const qw_name *known = qw_names_find(&index->shards, name, length);
    if (known != NULL) {
        *shard = known->value;
        return true;
    }
    void *files = index->files;
    bool grown =
        qw_grow(index->allocator, &files, &index->file_capacity, index->file_count + 1, sizeof *index->files);
    index->files = files;
    *shard = (uint32_t)index->file_count;
    if (!grown || qw_names_add(&index->shards, name, length, *shard) != QW_NAMES_ADDED)
        return false;
    index->files[index->file_count++] = name;
    return true;
}

static qwen36_status add_tensor(qw_index *index, const cJSON *item, const char *file, qwen36_error *error)
{
    const char *shard_file = qw_json_string(item);
    uint32_t shard = 0;
    if (shard_file == NULL || !is_plain_name(shard_file))
        return qw_fail(error, QWEN36_ERROR_INDEX_MISMATCH,
                       "%s: tensor %.200s is in \"%.100s\", expected the plain name of a file", file,
                       item->string, shard_file != NULL ? shard_file : "(no string)");
    if (!add_file(index, shard_file, &shard) ||
        qw_names_add(&index->tensors, item->string, strlen(item->string), shard) != QW_NAMES_ADDED)
        return qw_fail(error, QWEN36_ERROR_OUT_OF_MEMORY, "%s: out of memory for its table of tensors", file);
    return QWEN36_OK;
}

qwen36_status qw_index_parse(const qw_allocator *allocator, const char *text, size_t length, const char *file,
                             qw_index *index, qwen36_error *error)
{
    *index = (qw_index){.allocator = allocator};
    index->tensors.allocator = index->shards.allocator = allocator;
    index->tree = qw_json_parse(text, length, file, error);
    if (index->tree == NULL)
        return error->status;
    index->weight_map = qw_json_member(index->tree, "weight_map");
    if (!cJSON_IsObject(index->weight_map) || index->weight_map->child == NULL)
        return qw_fail(error, QWEN36_ERROR_INDEX_MISMATCH, "%s: weight_map: expected an object with members",
                       file);
    const size_t count = (size_t)cJSON_GetArraySize(index->weight_map);
    if (!qw_names_reserve(&index->tensors, count))
        return qw_fail_memory(error, count * 2 * sizeof(qw_name));
    for (const cJSON *item = index->weight_map->child; item != NULL; item = item->next) {
        qwen36_status status = add_tensor(index, item, file, error);
        if (status != QWEN36_OK)
            return status;
    }
    return QWEN36_OK;
}

void qw_index_release(qw_index *index)
{
    qw_names_release(&index->tensors);
    qw_names_release(&index->shards);
    qw_free(index->allocator, index->files);
    qw_json_delete(index->tree);
    *index = (qw_index){.allocator = index->allocator};
}
