#include "lib/session/archive.h"
#include "lib/base/hash.h"
#include "lib/os/new_file.h"

#include <string.h>

/* As they lie in the file. */
typedef struct header {
    char magic[8];
    uint32_t version;
    uint32_t count;
    uint64_t bytes;
} header;

typedef struct entry {
    uint32_t tag;
    uint32_t reserved;
    uint64_t offset;
    uint64_t bytes;
    unsigned char checksum[QW_HASH_BYTES];
} entry;

_Static_assert(sizeof(header) == 24 && sizeof(entry) == 40, "the structs have no holes");

static const char magic[8] = {'Q', 'W', '3', '6', 'S', 'N', 'A', 'P'};
static const unsigned char zeros[QW_ALIGNMENT];

/* Header, table and their checksum. */
static uint64_t front_bytes(uint32_t count)
{
    return sizeof(header) + (uint64_t)count * sizeof(entry) + QW_HASH_BYTES;
}

/* Where a section begins when all before it ends at `end`; false when it does not end within 63 bits. */
static bool place_section(uint64_t end, uint64_t bytes, uint64_t *offset, uint64_t *next)
{
    *offset = (end + QW_ALIGNMENT - 1) / QW_ALIGNMENT * QW_ALIGNMENT;
    return qw_add(*offset, bytes, next) && *next <= INT64_MAX;
}

bool qw_archive_bytes(const qw_archive_section *sections, uint32_t count, uint64_t *bytes)
{
    uint64_t end = front_bytes(count), offset = 0;
    if (count > QW_ARCHIVE_SECTIONS_MAX)
        return false;
    for (uint32_t i = 0; i < count; i++)
        if (!place_section(end, sections[i].bytes, &offset, &end))
            return false;
    *bytes = end;
    return true;
}

static const entry *find_tag(const entry *entries, uint32_t count, uint32_t tag)
{
    for (uint32_t i = 0; i < count; i++)
        if (entries[i].tag == tag)
            return &entries[i];
    return NULL;
}

static bool is_checksum(qw_hash128 hash, const unsigned char expected[QW_HASH_BYTES])
{
    unsigned char canonical[QW_HASH_BYTES];
    qw_hash_canonical(hash, canonical);
    return memcmp(canonical, expected, sizeof canonical) == 0;
}

/* "NAME: section TAG: REASON" */
static qwen36_status fail_section(qwen36_error *error, qwen36_status status, const char *name, uint32_t tag,
                                  const char *reason)
{
    char text[4];
    memcpy(text, &tag, sizeof text);
    return qw_fail(error, status, "%s: section %.4s: %s", name, text, reason);
}

/* --- Writing -------------------------------------------------------------------------------------- */

typedef struct writer {
    const qw_archive_content *content;
    const char *name;
    uint64_t bytes;
    unsigned char *front;    /* header, table, checksum */
    unsigned char *memory;   /* where all of it goes, or NULL ... */
    const qw_new_file *file; /* ... for a file, ... */
    unsigned char *piece;    /* ... through this buffer */
    qwen36_error *error;
} writer;

static qwen36_status put(const writer *w, uint64_t offset, const void *from, uint64_t bytes)
{
    if (w->memory == NULL)
        return qw_new_file_write(w->file, offset, from, bytes, w->error);
    if (from != w->memory + offset)
        memcpy(w->memory + offset, from, bytes);
    return QWEN36_OK;
}

static qwen36_status write_section(const writer *w, entry *e)
{
    qw_hash_state hash;
    qw_hash_begin(&hash, 0);
    for (uint64_t at = 0; at < e->bytes;) {
        const uint64_t bytes = QW_MIN(e->bytes - at, QW_ARCHIVE_PIECE);
        unsigned char *piece = w->memory != NULL ? w->memory + e->offset + at : w->piece;
        qwen36_status status = w->content->read(w->content->user, e->tag, at, piece, bytes);
        if (status != QWEN36_OK)
            return fail_section(w->error, status, w->name, e->tag, "its content could not be had");
        qw_hash_add(&hash, piece, bytes);
        status = put(w, e->offset + at, piece, bytes);
        if (status != QWEN36_OK)
            return status;
        at += bytes;
    }
    qw_hash_canonical(qw_hash_end(&hash), e->checksum);
    return QWEN36_OK;
}

/* Checksums are known when the content has gone by, so the front is written last. */
static qwen36_status write_all(const writer *w)
{
    const uint32_t count = w->content->count;
    const uint64_t checked = front_bytes(count) - QW_HASH_BYTES;
    entry *entries = (entry *)(void *)(w->front + sizeof(header));
    uint64_t end = front_bytes(count);
    header head = {.version = QW_ARCHIVE_VERSION, .count = count, .bytes = w->bytes};
    for (uint32_t i = 0; i < count; i++) {
        entry *e = &entries[i];
        const uint64_t before = end;
        *e = (entry){.tag = w->content->sections[i].tag, .bytes = w->content->sections[i].bytes};
        if (find_tag(entries, i, e->tag) != NULL)
            return fail_section(w->error, QWEN36_ERROR_INTERNAL, w->name, e->tag, "stands twice");
        place_section(before, e->bytes, &e->offset, &end);
        qwen36_status status = put(w, before, zeros, e->offset - before);
        if (status == QWEN36_OK)
            status = write_section(w, e);
        if (status != QWEN36_OK)
            return status;
    }
    memcpy(head.magic, magic, sizeof magic);
    memcpy(w->front, &head, sizeof head);
    qw_hash_canonical(qw_hash_bytes(w->front, checked), w->front + checked);
    return put(w, 0, w->front, checked + QW_HASH_BYTES);
}

static qwen36_status measure(const qw_archive_content *content, const char *name, uint64_t *bytes,
                             qwen36_error *error)
{
    if (qw_archive_bytes(content->sections, content->count, bytes))
        return QWEN36_OK;
    return qw_fail(error, QWEN36_ERROR_INTERNAL, "%s: %u sections, or their sizes, are too much", name,
                   content->count);
}

/* No more than the largest section needs. */
static uint64_t piece_bytes(uint64_t largest)
{
    return QW_MAX(QW_MIN(largest, QW_ARCHIVE_PIECE), QW_ALIGNMENT);
}

qwen36_status qw_archive_write_file(const qw_allocator *allocator, const qw_archive_content *content,
                                    const char *path, qwen36_error *error)
{
    writer w = {.content = content, .name = path, .error = error};
    uint64_t largest = 0;
    qw_new_file file;
    qwen36_status status = measure(content, path, &w.bytes, error);
    if (status != QWEN36_OK)
        return status;
    for (uint32_t i = 0; i < content->count; i++)
        largest = QW_MAX(largest, content->sections[i].bytes);
    const uint64_t front = front_bytes(content->count), piece = piece_bytes(largest);
    w.front = qw_alloc(allocator, 1, front);
    w.piece = qw_alloc_raw(allocator, 1, piece);
    if (w.front == NULL || w.piece == NULL) {
        status = qw_fail_memory(error, front + piece);
        goto out;
    }
    status = qw_new_file_create(allocator, path, &file, error);
    if (status != QWEN36_OK)
        goto out;
    w.file = &file;
    status = write_all(&w);
    if (status == QWEN36_OK)
        status = qw_new_file_commit(&file, error);
    qw_new_file_close(&file);
out:
    qw_free(allocator, w.front);
    qw_free(allocator, w.piece);
    return status;
}

qwen36_status qw_archive_write_memory(const qw_allocator *allocator, const qw_archive_content *content,
                                      void *memory, uint64_t capacity, uint64_t *bytes, qwen36_error *error)
{
    writer w = {.content = content, .name = "snapshot", .memory = memory, .error = error};
    qwen36_status status = measure(content, w.name, &w.bytes, error);
    if (status != QWEN36_OK)
        return status;
    *bytes = w.bytes;
    if (capacity < w.bytes)
        return qw_fail(error, QWEN36_ERROR_BUFFER_TOO_SMALL, "a snapshot of %llu bytes, the buffer has %llu",
                       (unsigned long long)w.bytes, (unsigned long long)capacity);
    w.front = qw_alloc(allocator, 1, front_bytes(content->count));
    status = w.front != NULL ? write_all(&w) : qw_fail_memory(error, front_bytes(content->count));
    qw_free(allocator, w.front);
    return status;
}

/* --- Reading: header and table -------------------------------------------------------------------- */

static const entry *entries_of(const qw_archive *a)
{
    return (const entry *)(const void *)a->table;
}

static qwen36_status read_into(const qw_archive *a, uint64_t offset, void *to, uint64_t bytes,
                               qwen36_error *error)
{
    if (a->memory == NULL)
        return qw_file_read(&a->file, a->name, offset, to, bytes, error);
    memcpy(to, a->memory + offset, bytes);
    return QWEN36_OK;
}

/* Everything that is allocated and read later is bounded by what is checked here. */
static qwen36_status check_header(const qw_archive *a, const header *head, qwen36_error *error)
{
    const unsigned long long have = a->bytes, said = head->bytes;
    if (memcmp(head->magic, magic, sizeof magic) != 0)
        return qw_fail(error, QWEN36_ERROR_SNAPSHOT, "%s: is not a snapshot", a->name);
    if (head->version != QW_ARCHIVE_VERSION)
        return qw_fail(error, QWEN36_ERROR_SNAPSHOT,
                       "%s: is a snapshot of format version %u, this library reads version %d", a->name,
                       head->version, QW_ARCHIVE_VERSION);
    if (head->bytes > a->bytes)
        return qw_fail(error, QWEN36_ERROR_SNAPSHOT, "%s: is cut short: %llu bytes of %llu", a->name, have,
                       said);
    if (head->bytes < a->bytes)
        return qw_fail(error, QWEN36_ERROR_SNAPSHOT, "%s: %llu bytes, its header says %llu", a->name, have,
                       said);
    if (head->count > QW_ARCHIVE_SECTIONS_MAX)
        return qw_fail(error, QWEN36_ERROR_SNAPSHOT, "%s: %u sections, at most %d are allowed", a->name,
                       head->count, QW_ARCHIVE_SECTIONS_MAX);
    if (front_bytes(head->count) > a->bytes)
        return qw_fail(error, QWEN36_ERROR_SNAPSHOT, "%s: a table of %u sections in %llu bytes", a->name,
                       head->count, have);
    return QWEN36_OK;
}

static qwen36_status check_front(const qw_archive *a, const header *head, qwen36_error *error)
{
    const size_t bytes = a->count * sizeof(entry);
    qw_hash_state hash;
    qw_hash_begin(&hash, 0);
    qw_hash_add(&hash, head, sizeof *head);
    qw_hash_add(&hash, a->table, bytes);
    if (!is_checksum(qw_hash_end(&hash), a->table + bytes))
        return qw_fail(error, QWEN36_ERROR_SNAPSHOT,
                       "%s: is damaged: its header and table lack their checksum", a->name);
    return QWEN36_OK;
}

/* The sections lie where a writer puts them, and fill the whole. */
static qwen36_status check_layout(const qw_archive *a, qwen36_error *error)
{
    const entry *entries = entries_of(a);
    uint64_t end = front_bytes(a->count), offset = 0;
    for (uint32_t i = 0; i < a->count; i++) {
        const entry *e = &entries[i];
        const char *reason = NULL;
        if (find_tag(entries, i, e->tag) != NULL)
            reason = "stands twice";
        else if (e->reserved != 0)
            reason = "a field that must be zero is not";
        else if (!place_section(end, e->bytes, &offset, &end) || end > a->bytes)
            reason = "its size goes beyond the end";
        else if (e->offset != offset)
            reason = "does not begin where the one before it ends";
        if (reason != NULL)
            return fail_section(error, QWEN36_ERROR_SNAPSHOT, a->name, e->tag, reason);
    }
    if (end != a->bytes)
        return qw_fail(error, QWEN36_ERROR_SNAPSHOT, "%s: its sections end at %llu, the whole has %llu bytes",
                       a->name, (unsigned long long)end, (unsigned long long)a->bytes);
    return QWEN36_OK;
}

/* FILE_CHANGED when the file is another than at its opening. */
static qwen36_status check_unchanged(const qw_archive *a, qwen36_error *error)
{
    return a->memory != NULL ? QWEN36_OK : qw_file_check(&a->file, a->name, &a->file.stamp, error);
}

static qwen36_status allocate_piece(qw_archive *a, qwen36_error *error)
{
    uint64_t largest = 0;
    if (a->memory != NULL)
        return QWEN36_OK;
    for (uint32_t i = 0; i < a->count; i++)
        largest = QW_MAX(largest, entries_of(a)[i].bytes);
    a->piece = qw_alloc_raw(a->allocator, 1, piece_bytes(largest));
    return a->piece != NULL ? QWEN36_OK : qw_fail_memory(error, piece_bytes(largest));
}

static qwen36_status read_front(qw_archive *a, qwen36_error *error)
{
    header head;
    if (a->bytes < front_bytes(0))
        return qw_fail(error, QWEN36_ERROR_SNAPSHOT, "%s: %llu bytes, too few for a snapshot", a->name,
                       (unsigned long long)a->bytes);
    qwen36_status status = read_into(a, 0, &head, sizeof head, error);
    if (status == QWEN36_OK)
        status = check_header(a, &head, error);
    if (status != QWEN36_OK)
        return status;
    const uint64_t bytes = front_bytes(head.count) - sizeof head;
    a->count = head.count;
    a->table = qw_alloc_raw(a->allocator, 1, bytes);
    if (a->table == NULL)
        return qw_fail_memory(error, bytes);
    status = read_into(a, sizeof head, a->table, bytes, error);
    if (status == QWEN36_OK)
        status = check_unchanged(a, error);
    if (status == QWEN36_OK)
        status = check_front(a, &head, error);
    if (status == QWEN36_OK)
        status = check_layout(a, error);
    return status == QWEN36_OK ? allocate_piece(a, error) : status;
}

qwen36_status qw_archive_open_file(const qw_allocator *allocator, const char *path, qw_archive *archive,
                                   qwen36_error *error)
{
    *archive = (qw_archive){.allocator = allocator, .name = path, .file = {.descriptor = -1}};
    qwen36_status status = qw_file_open(path, &archive->file, error);
    if (status != QWEN36_OK)
        return status;
    archive->bytes = archive->file.stamp.size;
    status = read_front(archive, error);
    if (status != QWEN36_OK)
        qw_archive_close(archive);
    return status;
}

qwen36_status qw_archive_open_memory(const qw_allocator *allocator, const void *memory, uint64_t bytes,
                                     qw_archive *archive, qwen36_error *error)
{
    *archive = (qw_archive){.allocator = allocator,
                            .name = "snapshot",
                            .memory = memory,
                            .file = {.descriptor = -1},
                            .bytes = bytes};
    qwen36_status status = read_front(archive, error);
    if (status != QWEN36_OK)
        qw_archive_close(archive);
    return status;
}

void qw_archive_close(qw_archive *archive)
{
    qw_free(archive->allocator, archive->table);
    qw_free(archive->allocator, archive->piece);
    qw_file_close(&archive->file);
    archive->table = archive->piece = NULL;
    archive->count = 0;
}

/* --- Reading: sections ---------------------------------------------------------------------------- */

bool qw_archive_find(const qw_archive *archive, uint32_t tag, uint64_t *bytes)
{
    const entry *e = find_tag(entries_of(archive), archive->count, tag);
    if (e != NULL)
        *bytes = e->bytes;
    return e != NULL;
}

/* At most a piece of the archive: in the caller's memory, or read into ours. */
static qwen36_status fetch(const qw_archive *a, uint64_t offset, uint64_t bytes, const unsigned char **data,
                           qwen36_error *error)
{
    *data = a->memory != NULL ? a->memory + offset : a->piece;
    return a->memory != NULL ? QWEN36_OK : qw_file_read(&a->file, a->name, offset, a->piece, bytes, error);
}

/* `take` may be NULL. */
static qwen36_status stream_section(const qw_archive *a, const entry *e, qw_archive_take_fn take, void *user,
                                    qwen36_error *error)
{
    qw_hash_state hash;
    qw_hash_begin(&hash, 0);
    for (uint64_t at = 0; at < e->bytes;) {
        const uint64_t bytes = QW_MIN(e->bytes - at, QW_ARCHIVE_PIECE);
        const unsigned char *data = NULL;
        qwen36_status status = fetch(a, e->offset + at, bytes, &data, error);
        if (status != QWEN36_OK)
            return status;
        qw_hash_add(&hash, data, bytes);
        status = take != NULL ? take(user, e->tag, at, data, bytes) : QWEN36_OK;
        if (status != QWEN36_OK)
            return fail_section(error, status, a->name, e->tag, "its content could not be taken");
        at += bytes;
    }
    if (!is_checksum(qw_hash_end(&hash), e->checksum))
        return fail_section(error, QWEN36_ERROR_SNAPSHOT, a->name, e->tag,
                            "is damaged: it lacks its checksum");
    return QWEN36_OK;
}

qwen36_status qw_archive_verify(qw_archive *archive, qwen36_error *error)
{
    uint64_t end = front_bytes(archive->count);
    for (uint32_t i = 0; i < archive->count; i++) {
        const entry *e = &entries_of(archive)[i];
        const unsigned char *data = NULL;
        qwen36_status status = fetch(archive, end, e->offset - end, &data, error);
        if (status != QWEN36_OK)
            return status;
        if (memcmp(data, zeros, e->offset - end) != 0)
            return fail_section(error, QWEN36_ERROR_SNAPSHOT, archive->name, e->tag,
                                "is damaged: the bytes before it are not zero");
        status = stream_section(archive, e, NULL, NULL, error);
        if (status != QWEN36_OK)
            return status;
        end = e->offset + e->bytes;
    }
    return check_unchanged(archive, error);
}

qwen36_status qw_archive_load(qw_archive *archive, uint32_t tag, qw_archive_take_fn take, void *user,
                              qwen36_error *error)
{
    const entry *e = find_tag(entries_of(archive), archive->count, tag);
    if (e == NULL)
        return fail_section(error, QWEN36_ERROR_SNAPSHOT, archive->name, tag, "is missing");
    qwen36_status status = stream_section(archive, e, take, user, error);
    return status == QWEN36_OK ? check_unchanged(archive, error) : status;
}
