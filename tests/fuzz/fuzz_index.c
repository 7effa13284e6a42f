/* An index of any bytes: refused, or all its shards are plain names. */
#include "lib/weights/index.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const qw_allocator allocator = qw_allocator_default();
    qwen36_error error = QWEN36_ERROR_INIT;
    qw_index index;
    qwen36_status status = qw_index_parse(&allocator, (const char *)data, size, "fuzz", &index, &error);
    if (status != error.status || (status == QWEN36_OK && index.file_count == 0))
        abort();
    for (size_t i = 0; status == QWEN36_OK && i < index.file_count; i++)
        if (strchr(index.files[i], '/') != NULL || strcmp(index.files[i], "..") == 0)
            abort();
    qw_index_release(&index);
    return 0;
}
