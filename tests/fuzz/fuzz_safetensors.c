/* A safetensors file of any bytes: refused, or its tensors fill the data without holes. */
#include "lib/weights/dtype.h"
#include "lib/weights/safetensors.h"

#include <stdlib.h>
#include <string.h>

static void check_tensors(const qw_tensors *list, uint64_t at, uint64_t end)
{
    for (size_t i = 0; i < list->count; i++) {
        const qw_tensor *t = &list->items[i];
        if (t->offset != at || t->dtype < 0 || t->dtype >= QW_DTYPE_COUNT ||
            t->dims_at + t->rank > list->dims_count)
            abort();
        at += t->bytes;
    }
    if (at != end)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const qw_allocator allocator = qw_allocator_default();
    qw_tensors list = {.allocator = &allocator};
    qwen36_error error = QWEN36_ERROR_INIT;
    unsigned char first[8] = {0};
    size_t length = 0;
    memcpy(first, data, QW_MIN(size, sizeof first));
    if (qw_safetensors_header_length(first, size, "fuzz", &length, &error) != QWEN36_OK)
        return 0;
    char *header = malloc(length > 0 ? length : 1); /* exact, so that the sanitizer sees a byte too far */
    if (header == NULL)
        return 0;
    memcpy(header, data + 8, length);
    qwen36_status status = qw_safetensors_parse(&list, 0, header, length, size, "fuzz", &error);
    if (status != error.status)
        abort();
    if (status == QWEN36_OK)
        check_tensors(&list, 8 + length, size);
    qw_tensors_release(&list);
    free(header);
    return 0;
}
