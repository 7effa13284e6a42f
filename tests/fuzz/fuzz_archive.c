/* An archive of any bytes: refused, or exactly what the writer makes of its sections. Random bytes never have
 * the right checksums, so every input is also tried with those of its header and sections put right. */
#include "lib/base/hash.h"
#include "lib/session/archive.h"

#include <stdlib.h>
#include <string.h>

enum { HEADER = 24, ENTRY = 40, AT_COUNT = 12, IN_OFFSET = 8, IN_BYTES = 16, IN_CHECKSUM = 24 };

static uint64_t load64(const uint8_t *from)
{
    uint64_t value = 0;
    memcpy(&value, from, sizeof value);
    return value;
}

static uint32_t load32(const uint8_t *from)
{
    uint32_t value = 0;
    memcpy(&value, from, sizeof value);
    return value;
}

/* As far as the table and the sections lie in the data. */
static void put_right(uint8_t *data, size_t size)
{
    const uint32_t count = size >= HEADER ? load32(data + AT_COUNT) : UINT32_MAX;
    const uint64_t checked = HEADER + (uint64_t)count * ENTRY;
    if (checked + QW_HASH_BYTES > size)
        return;
    for (uint32_t i = 0; i < count; i++) {
        uint8_t *entry = data + HEADER + (size_t)i * ENTRY;
        const uint64_t offset = load64(entry + IN_OFFSET), bytes = load64(entry + IN_BYTES);
        if (offset <= size && bytes <= size - offset)
            qw_hash_canonical(qw_hash_bytes(data + offset, bytes), entry + IN_CHECKSUM);
    }
    qw_hash_canonical(qw_hash_bytes(data, checked), data + checked);
}

/* The sections of the input, by its own table: what is read back for the second archive. */
typedef struct original {
    const uint8_t *data;
    uint32_t count;
    uint64_t taken;
} original;

static const uint8_t *section_of(const original *from, uint32_t tag)
{
    for (uint32_t i = 0; i < from->count; i++) {
        const uint8_t *entry = from->data + HEADER + (size_t)i * ENTRY;
        if (load32(entry) == tag)
            return from->data + load64(entry + IN_OFFSET);
    }
    abort();
}

static qwen36_status read_section(void *user, uint32_t tag, uint64_t offset, void *out, uint64_t bytes)
{
    memcpy(out, section_of(user, tag) + offset, bytes);
    return QWEN36_OK;
}

static qwen36_status take_section(void *user, uint32_t tag, uint64_t offset, const void *data, uint64_t bytes)
{
    original *from = user;
    if (memcmp(data, section_of(from, tag) + offset, bytes) != 0 || offset != from->taken)
        abort();
    from->taken += bytes;
    return QWEN36_OK;
}

static void check_equal(qw_archive *archive, const uint8_t *data, size_t size)
{
    original from = {data, load32(data + AT_COUNT), 0};
    qw_archive_section *sections = calloc(from.count + 1, sizeof *sections);
    uint8_t *again = malloc(size);
    uint64_t bytes = 0;
    if (sections == NULL || again == NULL)
        abort();
    for (uint32_t i = 0; i < from.count; i++) {
        sections[i].tag = load32(data + HEADER + (size_t)i * ENTRY);
        if (!qw_archive_find(archive, sections[i].tag, &sections[i].bytes))
            abort();
        from.taken = 0;
        if (qw_archive_load(archive, sections[i].tag, take_section, &from, NULL) != QWEN36_OK ||
            from.taken != sections[i].bytes)
            abort();
    }
    const qw_archive_content content = {sections, from.count, read_section, &from};
    if (qw_archive_write_memory(archive->allocator, &content, again, size, &bytes, NULL) != QWEN36_OK ||
        bytes != size || memcmp(again, data, size) != 0)
        abort();
    free(again);
    free(sections);
}

static void judge(const uint8_t *data, size_t size)
{
    const qw_allocator allocator = qw_allocator_default();
    qwen36_error error = QWEN36_ERROR_INIT;
    qw_archive archive;
    qwen36_status status = qw_archive_open_memory(&allocator, data, size, &archive, &error);
    if (status == QWEN36_OK) {
        status = qw_archive_verify(&archive, &error);
        if (status == QWEN36_OK)
            check_equal(&archive, data, size);
        qw_archive_close(&archive);
    }
    if (status != error.status || (status != QWEN36_OK && status != QWEN36_ERROR_SNAPSHOT))
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    uint8_t *copy = malloc(size > 0 ? size : 1); /* exact, so that the sanitizer sees a byte too far */
    if (copy == NULL)
        return 0;
    if (size > 0)
        memcpy(copy, data, size);
    judge(copy, size);
    put_right(copy, size);
    judge(copy, size);
    free(copy);
    return 0;
}
