/* The container of snapshots: what is written comes back, whatever is damaged is refused. */
#include "lib/base/hash.h"
#include "lib/session/archive.h"
#include "tests/harness.h"

enum { A = QW_ARCHIVE_TAG('A', ' ', ' ', ' '), B = QW_ARCHIVE_TAG('B', '2', ' ', ' '), C = 0x01020304 };

/* A file's header and one entry of its table, by their offsets. */
enum { AT_VERSION = 8, AT_COUNT = 12, AT_BYTES = 16, TABLE = 24, ENTRY = 40 };
enum { IN_TAG = 0, IN_RESERVED = 4, IN_OFFSET = 8, IN_BYTES = 16, IN_CHECKSUM = 24 };

/* Content that follows from tag and offset, asked for in order; the k-th call may fail. */
typedef struct source {
    uint64_t next;
    uint32_t tag;
    long calls, fail_at;
    qwen36_error *error; /* receives a text of its own, or NULL */
} source;

static unsigned char byte_at(uint32_t tag, uint64_t offset)
{
    return (unsigned char)((offset * 0x9e3779b97f4a7c15u + tag) >> 40);
}

static qwen36_status read_source(void *user, uint32_t tag, uint64_t offset, void *out, uint64_t bytes)
{
    source *s = user;
    unsigned char *to = out;
    if (++s->calls == s->fail_at)
        return s->error != NULL ? qw_fail(s->error, QWEN36_ERROR_DEVICE, "the device is gone")
                                : QWEN36_ERROR_DEVICE;
    CHECK(bytes > 0 && bytes <= QW_ARCHIVE_PIECE);
    CHECK(offset == (tag == s->tag ? s->next : 0));
    s->tag = tag;
    s->next = offset + bytes;
    for (uint64_t i = 0; i < bytes; i++)
        to[i] = byte_at(tag, offset + i);
    return QWEN36_OK;
}

typedef struct sink {
    uint64_t next;
    uint64_t wrong; /* bytes that are not the source's */
    bool fail;
} sink;

static qwen36_status take_sink(void *user, uint32_t tag, uint64_t offset, const void *data, uint64_t bytes)
{
    sink *s = user;
    const unsigned char *from = data;
    if (s->fail)
        return QWEN36_ERROR_CANCELLED;
    CHECK(bytes > 0 && bytes <= QW_ARCHIVE_PIECE && offset == s->next);
    s->next += bytes;
    for (uint64_t i = 0; i < bytes; i++)
        s->wrong += from[i] != byte_at(tag, offset + i);
    return QWEN36_OK;
}

static qw_archive_content content_of(const qw_archive_section *sections, uint32_t count, source *from)
{
    return (qw_archive_content){sections, count, read_source, from};
}

/* An archive in memory (malloc, exactly its size). */
static unsigned char *make(const qw_archive_section *sections, uint32_t count, uint64_t *bytes)
{
    const qw_allocator allocator = qw_allocator_default();
    qwen36_error error = QWEN36_ERROR_INIT;
    source from = {0};
    const qw_archive_content content = content_of(sections, count, &from);
    uint64_t written = 0;
    CHECK(qw_archive_bytes(sections, count, bytes));
    unsigned char *memory = malloc(*bytes);
    CHECK(memory != NULL);
    memset(memory, 0xee, *bytes);
    qwen36_status status = qw_archive_write_memory(&allocator, &content, memory, *bytes, &written, &error);
    CHECK_MSG(status == QWEN36_OK, "%s", error.message);
    CHECK(written == *bytes);
    return memory;
}

/* Opens and verifies, and says what the first failure was. */
static qwen36_status judge(const void *memory, uint64_t bytes, qwen36_error *error)
{
    test_allocator state = {0, 0, 0, false};
    const qw_allocator allocator = {test_allocate, test_release, &state};
    qw_archive archive;
    *error = (qwen36_error)QWEN36_ERROR_INIT;
    qwen36_status status = qw_archive_open_memory(&allocator, memory, bytes, &archive, error);
    if (status == QWEN36_OK) {
        status = qw_archive_verify(&archive, error);
        qw_archive_close(&archive);
    }
    CHECK_INT(state.outstanding, 0);
    CHECK_INT(error->status, status);
    return status;
}

static void check_sections(qw_archive *archive, const qw_archive_section *sections, uint32_t count)
{
    qwen36_error error = QWEN36_ERROR_INIT;
    qwen36_status status = qw_archive_verify(archive, &error);
    CHECK_MSG(status == QWEN36_OK, "%s", error.message);
    for (uint32_t i = 0; i < count; i++) {
        sink to = {0};
        uint64_t bytes = 1;
        CHECK(qw_archive_find(archive, sections[i].tag, &bytes) && bytes == sections[i].bytes);
        CHECK_INT(qw_archive_load(archive, sections[i].tag, take_sink, &to, &error), QWEN36_OK);
        CHECK(to.next == bytes && to.wrong == 0);
    }
}

/* In the test's directory, which lasts as long as the test. */
static const char *path_in(const char *directory, const char *name)
{
    static char path[4][256];
    static int next;
    char *text = path[next++ % 4];
    snprintf(text, sizeof path[0], "%s/%s", directory, name);
    return text;
}

static qwen36_status write_file(const char *path, const qw_archive_section *sections, uint32_t count,
                                qwen36_error *error)
{
    const qw_allocator allocator = qw_allocator_default();
    source from = {0};
    const qw_archive_content content = content_of(sections, count, &from);
    *error = (qwen36_error)QWEN36_ERROR_INIT;
    return qw_archive_write_file(&allocator, &content, path, error);
}

/* --- Round trips ---------------------------------------------------------------------------------- */

static void round_trip(const qw_archive_section *sections, uint32_t count)
{
    const qw_allocator allocator = qw_allocator_default();
    const char *path = path_in(test_directory(), "snapshot");
    uint64_t bytes = 0;
    size_t size = 0;
    qw_archive archive;
    qwen36_error error;
    unsigned char *memory = make(sections, count, &bytes);
    qwen36_status status = write_file(path, sections, count, &error);
    CHECK_MSG(status == QWEN36_OK, "%s", error.message);
    char *file = test_read_file(path, &size);
    CHECK(file != NULL && size == bytes && memcmp(file, memory, bytes) == 0);
    CHECK_INT(qw_archive_open_memory(&allocator, memory, bytes, &archive, &error), QWEN36_OK);
    check_sections(&archive, sections, count);
    qw_archive_close(&archive);
    CHECK_INT(qw_archive_open_file(&allocator, path, &archive, &error), QWEN36_OK);
    check_sections(&archive, sections, count);
    qw_archive_close(&archive);
    free(file);
    free(memory);
}

TEST(archive, no_section)
{
    round_trip(NULL, 0);
}

TEST(archive, small_sections)
{
    const qw_archive_section empty = {A, 0}, one = {A, 1};
    const qw_archive_section some[] = {{A, 0}, {B, 63}, {C, 0}, {0, 64}, {UINT32_MAX, 65}, {1, 0}};
    round_trip(&empty, 1);
    round_trip(&one, 1);
    round_trip(some, QW_COUNT_OF(some));
}

/* More than a piece, exactly one and two pieces, and a byte on each side. */
TEST(archive, large_sections)
{
    const qw_archive_section sections[] = {{A, QW_ARCHIVE_PIECE},         {B, 2 * QW_ARCHIVE_PIECE},
                                           {C, QW_ARCHIVE_PIECE - 1},     {1, QW_ARCHIVE_PIECE + 1},
                                           {2, 2 * QW_ARCHIVE_PIECE + 7}, {3, 5}};
    round_trip(sections, QW_COUNT_OF(sections));
}

TEST(archive, as_many_as_are_allowed)
{
    qw_archive_section sections[QW_ARCHIVE_SECTIONS_MAX];
    for (uint32_t i = 0; i < QW_ARCHIVE_SECTIONS_MAX; i++)
        sections[i] = (qw_archive_section){i * 7, i % 131};
    round_trip(sections, QW_ARCHIVE_SECTIONS_MAX);
}

/* The format itself: the file in the tree was written by version 1 and stays readable. */
TEST(archive, format_of_version_1)
{
    const qw_archive_section sections[] = {{A, 3}, {B, 0}, {C, 100}};
    uint64_t bytes = 0;
    size_t size = 0;
    unsigned char *memory = make(sections, QW_COUNT_OF(sections), &bytes);
    char *file = test_read_file("tests/fuzz/fuzz_archive.corpus/three", &size);
    CHECK(file != NULL && size == bytes && memcmp(file, memory, bytes) == 0);
    free(file);
    free(memory);
}

TEST(archive, sizes)
{
    const qw_archive_section sections[] = {{A, INT64_MAX - 127}, {B, 0}};
    const qw_archive_section most[] = {{A, INT64_MAX - 128}}, more[] = {{A, INT64_MAX}};
    const qw_archive_section huge[] = {{A, UINT64_MAX}, {B, UINT64_MAX - 127}};
    const qw_allocator allocator = qw_allocator_default();
    const qw_archive_content content = {huge, 1, read_source, NULL};
    uint64_t bytes = 0;
    CHECK(qw_archive_bytes(NULL, 0, &bytes) && bytes == 40);
    CHECK(qw_archive_bytes(most, 1, &bytes) && bytes == INT64_MAX);
    CHECK(!qw_archive_bytes(sections, 1, &bytes) && !qw_archive_bytes(sections, 2, &bytes));
    CHECK(!qw_archive_bytes(more, 1, &bytes) && !qw_archive_bytes(huge, 1, &bytes));
    CHECK(!qw_archive_bytes(huge, 2, &bytes) && !qw_archive_bytes(huge + 1, 1, &bytes));
    CHECK(!qw_archive_bytes(NULL, QW_ARCHIVE_SECTIONS_MAX + 1, &bytes));
    CHECK(!qw_archive_bytes(NULL, UINT32_MAX, &bytes));
    CHECK_INT(qw_archive_write_memory(&allocator, &content, NULL, 0, &bytes, NULL), QWEN36_ERROR_INTERNAL);
    CHECK_INT(qw_archive_write_file(&allocator, &content, "x", NULL), QWEN36_ERROR_INTERNAL);
}

TEST(archive, memory_too_small)
{
    const qw_archive_section section = {A, 10};
    const qw_allocator allocator = qw_allocator_default();
    source from = {0};
    const qw_archive_content content = content_of(&section, 1, &from);
    unsigned char memory[200];
    uint64_t need = 0, bytes = 0;
    memset(memory, 0x5a, sizeof memory);
    CHECK(qw_archive_bytes(&section, 1, &need));
    CHECK_INT(qw_archive_write_memory(&allocator, &content, memory, need - 1, &bytes, NULL),
              QWEN36_ERROR_BUFFER_TOO_SMALL);
    CHECK(bytes == need && from.calls == 0);
    for (size_t i = 0; i < sizeof memory; i++)
        CHECK(memory[i] == 0x5a);
    CHECK_INT(qw_archive_write_memory(&allocator, &content, memory, need, &bytes, NULL), QWEN36_OK);
    CHECK(memory[need] == 0x5a);
}

/* --- Damage --------------------------------------------------------------------------------------- */

static const qw_archive_section small[] = {{A, 3}, {B, 0}, {C, 70}};

TEST(archive, every_bit)
{
    uint64_t bytes = 0;
    qwen36_error error;
    unsigned char *memory = make(small, QW_COUNT_OF(small), &bytes);
    CHECK_INT(judge(memory, bytes, &error), QWEN36_OK);
    for (uint64_t bit = 0; bit < 8 * bytes; bit++) {
        memory[bit / 8] ^= (unsigned char)(1u << bit % 8);
        CHECK_MSG(judge(memory, bytes, &error) == QWEN36_ERROR_SNAPSHOT, "bit %d", (int)bit);
        memory[bit / 8] ^= (unsigned char)(1u << bit % 8);
    }
    CHECK_INT(judge(memory, bytes, &error), QWEN36_OK);
    free(memory);
}

/* Copies of their exact size, so that the address sanitizer sees a byte too far. */
TEST(archive, every_length)
{
    uint64_t bytes = 0;
    qwen36_error error;
    unsigned char *memory = make(small, QW_COUNT_OF(small), &bytes);
    for (uint64_t length = 0; length <= bytes + 70; length++) {
        unsigned char *cut = calloc(1, length > 0 ? length : 1);
        CHECK(cut != NULL);
        memcpy(cut, memory, QW_MIN(length, bytes));
        CHECK_MSG(judge(cut, length, &error) == (length == bytes ? QWEN36_OK : QWEN36_ERROR_SNAPSHOT),
                  "%d bytes", (int)length);
        free(cut);
    }
    free(memory);
}

/* The same of a file, where a damaged section is also found by loading it. */
TEST(archive, damaged_file)
{
    const qw_allocator allocator = qw_allocator_default();
    const char *path = path_in(test_directory(), "snapshot");
    uint64_t bytes = 0;
    qw_archive archive;
    qwen36_error error = QWEN36_ERROR_INIT;
    sink to = {0};
    unsigned char *memory = make(small, QW_COUNT_OF(small), &bytes);
    memory[bytes - 1] ^= 4;
    test_write_file(path, memory, bytes);
    CHECK_INT(qw_archive_open_file(&allocator, path, &archive, &error), QWEN36_OK);
    CHECK_INT(qw_archive_load(&archive, A, take_sink, &to, &error), QWEN36_OK);
    to = (sink){0};
    CHECK_INT(qw_archive_load(&archive, C, take_sink, &to, &error), QWEN36_ERROR_SNAPSHOT);
    CHECK(strstr(error.message, path) == error.message && strstr(error.message, "is damaged") != NULL);
    CHECK_INT(qw_archive_verify(&archive, NULL), QWEN36_ERROR_SNAPSHOT);
    qw_archive_close(&archive);
    test_write_file(path, memory, bytes - 1);
    CHECK_INT(qw_archive_open_file(&allocator, path, &archive, NULL), QWEN36_ERROR_SNAPSHOT);
    CHECK_INT(qw_archive_open_file(&allocator, path_in(test_directory(), "none"), &archive, NULL),
              QWEN36_ERROR_FILE_NOT_FOUND);
    free(memory);
}

/* Who writes into an open archive is noticed, also where the bytes are good again. */
TEST(archive, changed_file)
{
    const qw_allocator allocator = qw_allocator_default();
    const char *path = path_in(test_directory(), "snapshot");
    uint64_t bytes = 0;
    qw_archive archive;
    unsigned char *memory = make(small, QW_COUNT_OF(small), &bytes);
    test_write_file(path, memory, bytes);
    CHECK_INT(qw_archive_open_file(&allocator, path, &archive, NULL), QWEN36_OK);
    test_write_file(path, memory, bytes - 1);
    CHECK_INT(qw_archive_verify(&archive, NULL), QWEN36_ERROR_FILE_CHANGED);
    test_write_file(path, memory, bytes);
    archive.file.stamp.nanoseconds ^= 1; /* the clock of some file systems is coarse */
    sink to = {0};
    CHECK_INT(qw_archive_verify(&archive, NULL), QWEN36_ERROR_FILE_CHANGED);
    CHECK_INT(qw_archive_load(&archive, A, take_sink, &to, NULL), QWEN36_ERROR_FILE_CHANGED);
    qw_archive_close(&archive);
    free(memory);
}

/* --- Forged headers and tables, under a right checksum --------------------------------------------- */

static void store(unsigned char *memory, uint64_t at, uint64_t value, size_t bytes)
{
    memcpy(memory + at, &value, bytes);
}

/* Changes one field and restores the checksum of the front as long as the table lies in the memory. */
static qwen36_status forge(uint64_t at, uint64_t value, size_t field, qwen36_error *error)
{
    uint64_t bytes = 0;
    uint32_t count = 0;
    unsigned char *memory = make(small, QW_COUNT_OF(small), &bytes);
    store(memory, at, value, field);
    memcpy(&count, memory + AT_COUNT, 4);
    const uint64_t checked = TABLE + (uint64_t)ENTRY * count;
    if (checked + QW_HASH_BYTES <= bytes)
        qw_hash_canonical(qw_hash_bytes(memory, checked), memory + checked);
    qwen36_status status = judge(memory, bytes, error);
    free(memory);
    return status;
}

#define REFUSED(at, value, field, reason)                                                                    \
    do {                                                                                                     \
        qwen36_error error_;                                                                                 \
        CHECK_INT(forge(at, value, field, &error_), QWEN36_ERROR_SNAPSHOT);                                  \
        CHECK_MSG(strstr(error_.message, reason) != NULL, "\"%s\" lacks \"%s\"", error_.message, reason);    \
    } while (0)

TEST(archive, forged_header)
{
    REFUSED(0, 'X', 1, "snapshot: is not a snapshot");
    REFUSED(AT_VERSION, 2, 4, "is a snapshot of format version 2, this library reads version 1");
    REFUSED(AT_VERSION, 0, 4, "format version 0");
    REFUSED(AT_COUNT, 2, 4, "section A   : does not begin where");
    REFUSED(AT_COUNT, 0, 4, "its sections end at 40, the whole has 326 bytes");
    REFUSED(AT_COUNT, 1000, 4, "a table of 1000 sections in");
    REFUSED(AT_COUNT, 1025, 4, "1025 sections, at most 1024 are allowed");
    REFUSED(AT_COUNT, UINT32_MAX, 4, "4294967295 sections, at most 1024");
    REFUSED(AT_BYTES, 327, 8, "is cut short: 326 bytes of 327");
    REFUSED(AT_BYTES, 325, 8, "326 bytes, its header says 325");
    REFUSED(AT_BYTES, UINT64_MAX, 8, "is cut short: ");
}

TEST(archive, forged_table)
{
    const uint64_t a = TABLE, b = TABLE + ENTRY, c = TABLE + 2 * ENTRY;
    REFUSED(b + IN_TAG, A, 4, "section A   : stands twice");
    REFUSED(b + IN_RESERVED, 1, 4, "section B2  : a field that must be zero is not");
    REFUSED(a + IN_OFFSET, 0, 8, "section A   : does not begin where");
    REFUSED(a + IN_OFFSET, UINT64_MAX - 1, 8, "does not begin where");
    REFUSED(b + IN_OFFSET, 192, 8, "section B2  : does not begin where");
    REFUSED(c + IN_OFFSET, 320, 8, "does not begin where");
    REFUSED(a + IN_BYTES, 2, 8, "is damaged: it lacks its checksum");
    REFUSED(a + IN_BYTES, 65, 8, "section B2  : does not begin where");
    REFUSED(a + IN_BYTES, UINT64_MAX, 8, "its size goes beyond the end");
    REFUSED(a + IN_BYTES, UINT64_MAX - 191, 8, "its size goes beyond the end");
    REFUSED(b + IN_BYTES, INT64_MAX, 8, "its size goes beyond the end");
    REFUSED(c + IN_BYTES, 71, 8, "its size goes beyond the end");
    REFUSED(c + IN_BYTES, 69, 8, "its sections end at");
    REFUSED(c + IN_CHECKSUM, 0, 8, "is damaged: it lacks its checksum");
    REFUSED(192 + 10, 1, 1, "section B2  : is damaged: the bytes before it are not zero");
}

TEST(archive, other_files)
{
    qwen36_error error;
    const char text[] = "{\"model_type\": \"qwen3_5\", \"and\": \"more than the header of a snapshot has\"}";
    CHECK_INT(judge(text, sizeof text, &error), QWEN36_ERROR_SNAPSHOT);
    CHECK_TEXT(error.message, "snapshot: is not a snapshot");
    CHECK_INT(judge(text, 39, &error), QWEN36_ERROR_SNAPSHOT);
    CHECK_TEXT(error.message, "snapshot: 39 bytes, too few for a snapshot");
    CHECK_INT(judge(NULL, 0, &error), QWEN36_ERROR_SNAPSHOT);
}

/* --- Callbacks and memory ------------------------------------------------------------------------- */

TEST(archive, missing_section)
{
    const qw_allocator allocator = qw_allocator_default();
    uint64_t bytes = 0, found = 99;
    qw_archive archive;
    qwen36_error error = QWEN36_ERROR_INIT;
    sink to = {0};
    unsigned char *memory = make(small, QW_COUNT_OF(small), &bytes);
    CHECK_INT(qw_archive_open_memory(&allocator, memory, bytes, &archive, &error), QWEN36_OK);
    CHECK(!qw_archive_find(&archive, QW_ARCHIVE_TAG('N', 'O', 'N', 'E'), &found) && found == 99);
    CHECK_INT(qw_archive_load(&archive, QW_ARCHIVE_TAG('N', 'O', 'N', 'E'), take_sink, &to, &error),
              QWEN36_ERROR_SNAPSHOT);
    CHECK_TEXT(error.message, "snapshot: section NONE: is missing");
    qw_archive_close(&archive);
    free(memory);
}

TEST(archive, take_fails)
{
    const qw_allocator allocator = qw_allocator_default();
    uint64_t bytes = 0;
    qw_archive archive;
    qwen36_error error = QWEN36_ERROR_INIT;
    sink to = {.fail = true};
    unsigned char *memory = make(small, QW_COUNT_OF(small), &bytes);
    CHECK_INT(qw_archive_open_memory(&allocator, memory, bytes, &archive, &error), QWEN36_OK);
    CHECK_INT(qw_archive_load(&archive, A, take_sink, &to, &error), QWEN36_ERROR_CANCELLED);
    CHECK_TEXT(error.message, "snapshot: section A   : its content could not be taken");
    to = (sink){0};
    CHECK_INT(qw_archive_load(&archive, A, take_sink, &to, NULL), QWEN36_OK);
    qw_archive_close(&archive);
    free(memory);
}

TEST(archive, section_twice)
{
    const qw_archive_section twice[] = {{A, 1}, {A, 2}};
    const qw_allocator allocator = qw_allocator_default();
    source from = {0};
    const qw_archive_content content = content_of(twice, 2, &from);
    unsigned char memory[512];
    uint64_t bytes = 0;
    CHECK_INT(qw_archive_write_memory(&allocator, &content, memory, sizeof memory, &bytes, NULL),
              QWEN36_ERROR_INTERNAL);
}

/* The callback's own text wins over the container's. */
TEST(archive, read_fails_into_memory)
{
    const qw_allocator allocator = qw_allocator_default();
    qwen36_error error = QWEN36_ERROR_INIT;
    unsigned char memory[512];
    uint64_t bytes = 0;
    source silent = {.fail_at = 2}, speaking = {.fail_at = 1, .error = &error};
    qw_archive_content content = content_of(small, QW_COUNT_OF(small), &silent);
    CHECK_INT(qw_archive_write_memory(&allocator, &content, memory, sizeof memory, &bytes, &error),
              QWEN36_ERROR_DEVICE);
    CHECK(strstr(error.message, "its content could not be had") != NULL);
    error = (qwen36_error)QWEN36_ERROR_INIT;
    content = content_of(small, QW_COUNT_OF(small), &speaking);
    CHECK_INT(qw_archive_write_memory(&allocator, &content, memory, sizeof memory, &bytes, &error),
              QWEN36_ERROR_DEVICE);
    CHECK_TEXT(error.message, "the device is gone");
}

static qwen36_status allocating_round_trip(const qw_allocator *allocator, const char *path,
                                           qwen36_error *error)
{
    unsigned char memory[512];
    uint64_t bytes = 0;
    qw_archive archive;
    source from = {0}, again = {0};
    const qw_archive_content content = content_of(small, QW_COUNT_OF(small), &from);
    const qw_archive_content file = content_of(small, QW_COUNT_OF(small), &again);
    qwen36_status status = qw_archive_write_memory(allocator, &content, memory, sizeof memory, &bytes, error);
    if (status == QWEN36_OK)
        status = qw_archive_write_file(allocator, &file, path, error);
    if (status == QWEN36_OK)
        status = qw_archive_open_memory(allocator, memory, bytes, &archive, error);
    if (status != QWEN36_OK)
        return status;
    qw_archive_close(&archive);
    status = qw_archive_open_file(allocator, path, &archive, error);
    if (status == QWEN36_OK)
        qw_archive_close(&archive);
    return status;
}

TEST(archive, every_allocation_fails)
{
    const char *path = path_in(test_directory(), "snapshot");
    qwen36_status status = QWEN36_ERROR_OUT_OF_MEMORY;
    long k = 0;
    while (status != QWEN36_OK) {
        test_allocator state = {.fail_at = ++k};
        const qw_allocator allocator = {test_allocate, test_release, &state};
        qwen36_error error = QWEN36_ERROR_INIT;
        status = allocating_round_trip(&allocator, path, &error);
        CHECK_INT(state.outstanding, 0);
        CHECK_INT(error.status, status);
        CHECK(status == QWEN36_OK || status == QWEN36_ERROR_OUT_OF_MEMORY);
    }
    CHECK_INT(k, 8); /* front; front, piece, directory; table; table, piece */
}
