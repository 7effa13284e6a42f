#include "lib/weights/safetensors.h"

#include "lib/base/json.h"
#include "lib/base/names.h"
#include "lib/weights/dtype.h"

#include <string.h>

/* Bounds on the text that cJSON builds a tree of, which takes some twenty times the memory. */
#define ENTRY_MAX ((size_t)1 << 16)
#define METADATA_MAX ((size_t)4 << 20)

/* One file being read. */
typedef struct reader {
    qw_tensors *list;
    size_t first; /* the file's first tensor in the list */
    uint32_t shard;
    uint64_t data_offset; /* where the data begins in the file */
    uint64_t data_size;
    const char *file;
    qwen36_error *error;
    qw_names names;
    bool metadata_seen;
} reader;

static qwen36_status fail_memory(const reader *r)
{
    return qw_fail(r->error, QWEN36_ERROR_OUT_OF_MEMORY, "%s: out of memory for its table of tensors",
                   r->file);
}

/* "FILE: tensor NAME: REASON" */
static qwen36_status fail_tensor(const reader *r, qw_json_span name, const char *reason)
{
    return qw_fail(r->error, QWEN36_ERROR_SAFETENSORS, "%s: tensor %.*s: %s", r->file,
                   (int)QW_MIN(name.length, 200), name.text, reason);
}

qwen36_status qw_safetensors_header_length(const unsigned char bytes[8], uint64_t file_size, const char *file,
                                           size_t *length, qwen36_error *error)
{
    uint64_t n = 0;
    if (file_size < 8)
        return qw_fail(error, QWEN36_ERROR_SAFETENSORS, "%s: %llu bytes, too few for a header", file,
                       (unsigned long long)file_size);
    memcpy(&n, bytes, 8); /* little-endian, as the machine */
    if (n > QW_SAFETENSORS_HEADER_MAX)
        return qw_fail(error, QWEN36_ERROR_SAFETENSORS, "%s: a header of %llu bytes, at most %u are allowed",
                       file, (unsigned long long)n, QW_SAFETENSORS_HEADER_MAX);
    if (n > file_size - 8)
        return qw_fail(error, QWEN36_ERROR_SAFETENSORS, "%s: a header of %llu bytes in a file of %llu", file,
                       (unsigned long long)n, (unsigned long long)file_size);
    *length = (size_t)n;
    return QWEN36_OK;
}

static bool grow_items(qw_tensors *list)
{
    void *items = list->items;
    bool grown = qw_grow(list->allocator, &items, &list->capacity, list->count + 1, sizeof *list->items);
    list->items = items;
    return grown;
}

static bool grow_dims(qw_tensors *list)
{
    void *dims = list->dims;
    bool grown =
        qw_grow(list->allocator, &dims, &list->dims_capacity, list->dims_count + 1, sizeof *list->dims);
    list->dims = dims;
    return grown;
}

/* --- One member ----------------------------------------------------------------------------------- */

/* Names are compared unescaped. Unescaping never lengthens, so it is done in place. */
static qwen36_status unescape_name(const reader *r, qw_json_span *name)
{
    if (memchr(name->text, '\\', name->length) == NULL)
        return QWEN36_OK;
    cJSON *string = qw_json_tree(name->text - 1, name->length + 2); /* with its quotes */
    if (string == NULL)
        return fail_memory(r);
    union {
        const char *read;
        char *write;
    } in_header = {name->text};
    name->length = strlen(string->valuestring);
    memcpy(in_header.write, string->valuestring, name->length);
    qw_json_delete(string);
    return QWEN36_OK;
}

/* The tree of a member's value, with distinct keys. */
static qwen36_status parse_member(const reader *r, qw_json_span name, qw_json_span value, size_t limit,
                                  cJSON **tree)
{
    const char *key = NULL;
    if (value.length > limit)
        return fail_tensor(r, name, "its entry is too long");
    *tree = qw_json_tree(value.text, value.length);
    qw_json_unique unique = *tree == NULL ? QW_JSON_NO_MEMORY : qw_json_check_unique(*tree, &key);
    if (unique == QW_JSON_UNIQUE)
        return QWEN36_OK;
    qwen36_status status = unique == QW_JSON_DUPLICATE
                               ? fail_tensor(r, name, "a key stands twice in its entry")
                               : fail_memory(r);
    qw_json_delete(*tree);
    *tree = NULL;
    return status;
}

/* __metadata__: an object of strings. */
static qwen36_status read_metadata(reader *r, qw_json_span name, qw_json_span value)
{
    cJSON *tree = NULL;
    if (r->metadata_seen)
        return fail_tensor(r, name, "stands twice");
    r->metadata_seen = true;
    qwen36_status status = parse_member(r, name, value, METADATA_MAX, &tree);
    if (status != QWEN36_OK)
        return status;
    if (!cJSON_IsObject(tree))
        status = fail_tensor(r, name, "is not an object");
    for (const cJSON *item = tree->child; item != NULL && status == QWEN36_OK; item = item->next)
        if (!cJSON_IsString(item))
            status = fail_tensor(r, name, "holds a value that is not a string");
    qw_json_delete(tree);
    return status;
}

/* An array of integers, in the tree and, at the same place, in the text. */
static qwen36_status read_integers(reader *r, qw_json_span name, const cJSON *item, qw_json_span text,
                                   size_t *first, size_t *count)
{
    qw_tensors *list = r->list;
    qw_json_walk walk = {text.text};
    qw_json_span number;
    if (!cJSON_IsArray(item))
        return fail_tensor(r, name, "shape and data_offsets must be arrays");
    *first = list->dims_count;
    *count = 0;
    while (qw_json_next(&walk, NULL, &number)) {
        if (!grow_dims(list))
            return fail_memory(r);
        if (!qw_json_uint64(number, &list->dims[list->dims_count]))
            return fail_tensor(r, name, "shape and data_offsets must hold integers of 0 to 2^64 - 1");
        list->dims_count++;
        ++*count;
    }
    return QWEN36_OK;
}

static qwen36_status read_dtype(const reader *r, qw_json_span name, const cJSON *item, qw_tensor *tensor)
{
    const char *text = qw_json_string(item);
    int32_t dtype = text != NULL ? qw_dtype_parse(text) : -1;
    if (dtype < 0)
        return qw_fail(r->error, QWEN36_ERROR_SAFETENSORS, "%s: tensor %.*s: dtype \"%.40s\" is unknown",
                       r->file, (int)QW_MIN(name.length, 200), name.text,
                       text != NULL ? text : "(no string)");
    tensor->dtype = (int16_t)dtype;
    return QWEN36_OK;
}

/* The offsets stand behind the shape in `dims` for the moment; they are taken out again. */
static qwen36_status read_offsets(reader *r, qw_json_span name, const cJSON *item, qw_json_span text,
                                  qw_tensor *tensor)
{
    size_t first = 0, count = 0;
    qwen36_status status = read_integers(r, name, item, text, &first, &count);
    if (status != QWEN36_OK)
        return status;
    if (count != 2)
        return fail_tensor(r, name, "data_offsets must be two numbers");
    const uint64_t begin = r->list->dims[first], end = r->list->dims[first + 1];
    r->list->dims_count = first;
    if (begin > end || end > r->data_size)
        return qw_fail(r->error, QWEN36_ERROR_SAFETENSORS,
                       "%s: tensor %.*s: data_offsets [%llu, %llu] in %llu bytes of data", r->file,
                       (int)QW_MIN(name.length, 200), name.text, (unsigned long long)begin,
                       (unsigned long long)end, (unsigned long long)r->data_size);
    tensor->offset = r->data_offset + begin;
    tensor->bytes = end - begin;
    return QWEN36_OK;
}

/* dtype x shape against the data's length. The product is formed from left to right, as the format's own
 * reader does: a zero in front of dimensions that overflow is valid, behind them it is not. */
static qwen36_status check_size(const reader *r, qw_json_span name, const qw_tensor *tensor)
{
    uint64_t bits = 1;
    for (uint32_t i = 0; i < tensor->rank; i++)
        if (!qw_mul(bits, r->list->dims[tensor->dims_at + i], &bits))
            return fail_tensor(r, name, "its shape overflows 64 bits");
    if (!qw_mul(bits, (uint64_t)qw_dtype_bits(tensor->dtype), &bits))
        return fail_tensor(r, name, "its shape overflows 64 bits");
    if (bits % 8 != 0)
        return fail_tensor(r, name, "its elements do not fill whole bytes");
    if (bits / 8 != tensor->bytes)
        return qw_fail(r->error, QWEN36_ERROR_SAFETENSORS,
                       "%s: tensor %.*s: dtype and shape make %llu bytes, data_offsets %llu", r->file,
                       (int)QW_MIN(name.length, 200), name.text, (unsigned long long)(bits / 8),
                       (unsigned long long)tensor->bytes);
    return QWEN36_OK;
}

/* The tree says what each member is, the text gives the exact digits: both are walked together. Unknown
 * members are allowed. */
static qwen36_status read_fields(reader *r, qw_json_span name, const cJSON *tree, qw_json_span text,
                                 qw_tensor *tensor)
{
    enum { DTYPE = 1, SHAPE = 2, OFFSETS = 4 };
    qw_json_walk walk = {text.text};
    qw_json_span key, value;
    qwen36_status status = QWEN36_OK;
    size_t rank = 0;
    int seen = 0;
    for (const cJSON *item = tree->child; item != NULL && qw_json_next(&walk, &key, &value);
         item = item->next) {
        if (strcmp(item->string, "dtype") == 0) {
            seen |= DTYPE;
            status = read_dtype(r, name, item, tensor);
        } else if (strcmp(item->string, "shape") == 0) {
            seen |= SHAPE;
            status = read_integers(r, name, item, value, &tensor->dims_at, &rank);
            tensor->rank = (uint32_t)rank;
        } else if (strcmp(item->string, "data_offsets") == 0) {
            seen |= OFFSETS;
            status = read_offsets(r, name, item, value, tensor);
        }
        if (status != QWEN36_OK)
            return status;
    }
    return seen == (DTYPE | SHAPE | OFFSETS)
               ? check_size(r, name, tensor)
               : fail_tensor(r, name, "dtype, shape or data_offsets is missing");
}

static qwen36_status read_tensor(reader *r, qw_json_span name, qw_json_span value)
{
    cJSON *tree = NULL;
    qw_tensor tensor = {.name = name.text, .name_length = (uint32_t)name.length, .shard = r->shard};
    qwen36_status status = parse_member(r, name, value, ENTRY_MAX, &tree);
    if (status == QWEN36_OK)
        status = cJSON_IsObject(tree) ? read_fields(r, name, tree, value, &tensor)
                                      : fail_tensor(r, name, "its entry is not an object");
    qw_json_delete(tree);
    if (status != QWEN36_OK)
        return status;
    qw_tensors *list = r->list;
    qw_names_result added = qw_names_add(&r->names, name.text, name.length, 0);
    if (added == QW_NAMES_PRESENT)
        return fail_tensor(r, name, "stands twice");
    if (added != QW_NAMES_ADDED || list->count >= UINT32_MAX || !grow_items(list))
        return fail_memory(r);
    list->items[list->count++] = tensor;
    return QWEN36_OK;
}

static qwen36_status read_members(reader *r, const char *text)
{
    qw_json_walk walk = {text};
    qw_json_span name, value;
    while (qw_json_next(&walk, &name, &value)) {
        qwen36_status status = unescape_name(r, &name);
        if (status == QWEN36_OK)
            status = name.length == 12 && memcmp(name.text, "__metadata__", 12) == 0
                         ? read_metadata(r, name, value)
                         : read_tensor(r, name, value);
        if (status != QWEN36_OK)
            return status;
    }
    return QWEN36_OK;
}

/* --- The whole ------------------------------------------------------------------------------------ */

static bool is_before(const qw_tensor *a, const qw_tensor *b)
{
    return a->offset != b->offset ? a->offset < b->offset : a->bytes < b->bytes;
}

static void sift_down(qw_tensor *items, size_t root, size_t count)
{
    for (size_t child; (child = 2 * root + 1) < count; root = child) {
        if (child + 1 < count && is_before(&items[child], &items[child + 1]))
            child++;
        if (!is_before(&items[root], &items[child]))
            return;
        qw_tensor swap = items[root];
        items[root] = items[child];
        items[child] = swap;
    }
}

/* Heap sort: no memory, and no input makes it slow. Files are mostly in order already. */
static void sort_by_offset(qw_tensor *items, size_t count)
{
    size_t sorted = 1;
    while (sorted < count && !is_before(&items[sorted], &items[sorted - 1]))
        sorted++;
    if (sorted >= count)
        return;
    for (size_t root = count / 2; root-- > 0;)
        sift_down(items, root, count);
    for (size_t last = count - 1; last > 0; last--) {
        qw_tensor swap = items[0];
        items[0] = items[last];
        items[last] = swap;
        sift_down(items, 0, last);
    }
}

/* The data holds the tensors one after the other, without holes or overlaps, and nothing else. */
static qwen36_status check_layout(const reader *r)
{
    uint64_t at = r->data_offset;
    for (size_t i = r->first; i < r->list->count; i++) {
        const qw_tensor *t = &r->list->items[i];
        if (t->offset != at)
            return qw_fail(r->error, QWEN36_ERROR_SAFETENSORS,
                           "%s: tensor %.*s: its data begins at %llu, the one before it ends at %llu",
                           r->file, (int)QW_MIN(t->name_length, 200), t->name,
                           (unsigned long long)(t->offset - r->data_offset),
                           (unsigned long long)(at - r->data_offset));
        at += t->bytes;
    }
    if (at != r->data_offset + r->data_size)
        return qw_fail(r->error, QWEN36_ERROR_SAFETENSORS, "%s: %llu bytes of data, its tensors take %llu",
                       r->file, (unsigned long long)r->data_size, (unsigned long long)(at - r->data_offset));
    return QWEN36_OK;
}

qwen36_status qw_safetensors_parse(qw_tensors *list, uint32_t shard, char *header, size_t length,
                                   uint64_t file_size, const char *file, qwen36_error *error)
{
    reader r = {.list = list,
                .first = list->count,
                .shard = shard,
                .data_offset = 8 + (uint64_t)length,
                .data_size = file_size - 8 - length,
                .file = file,
                .error = error,
                .names = {list->allocator, NULL, 0, 0}};
    size_t where = 0;
    const char *reason = qw_json_check(header, length, &where);
    if (reason != NULL)
        return qw_fail(error, QWEN36_ERROR_SAFETENSORS, "%s: header, byte %zu: %s", file, where, reason);
    const char *start = qw_json_begin(header); /* the reader accepts space, the text forbids it */
    if (*start != '{')
        return qw_fail(error, QWEN36_ERROR_SAFETENSORS, "%s: the header is not an object", file);
    /* A guess at the number of tensors, so that the table rarely grows: an entry has some 150 bytes. */
    qwen36_status status =
        qw_names_reserve(&r.names, length / 256) ? read_members(&r, start) : fail_memory(&r);
    qw_names_release(&r.names);
    if (status != QWEN36_OK)
        return status;
    if (list->count > r.first)
        sort_by_offset(list->items + r.first, list->count - r.first);
    return check_layout(&r);
}

void qw_tensors_release(qw_tensors *list)
{
    qw_free(list->allocator, list->items);
    qw_free(list->allocator, list->dims);
    *list = (qw_tensors){.allocator = list->allocator};
}
