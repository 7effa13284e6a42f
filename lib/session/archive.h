/* The container of a snapshot file: tagged sections of bytes under checksums. What the sections mean is not
 * known here.
 *
 *   header    8 bytes magic, u32 format version, u32 number of sections, u64 bytes of the whole
 *   table     per section: u32 tag, u32 zero, u64 offset, u64 bytes, checksum of its content
 *   checksum  of header and table; all are XXH3-128 in canonical form
 *   content   of the sections in the order of the table, each begun at a multiple of 64, zeros between
 *
 * Little-endian. Offsets follow from the sizes, so sections have one layout and an archive has one form:
 * every byte of it is checked, and nothing may stand behind it. Checksums find accidents, not malice.
 */
#ifndef QW_ARCHIVE_H
#define QW_ARCHIVE_H

#include "lib/base/base.h"
#include "lib/os/file.h"

#define QW_ARCHIVE_VERSION 1
#define QW_ARCHIVE_SECTIONS_MAX 1024
#define QW_ARCHIVE_PIECE ((uint64_t)1 << 20) /* callbacks see at most so many bytes at a time */

/* A tag of four characters, as error texts show it. */
#define QW_ARCHIVE_TAG(a, b, c, d)                                                                           \
    ((uint32_t)(a) | (uint32_t)(b) << 8 | (uint32_t)(c) << 16 | (uint32_t)(d) << 24)

typedef struct qw_archive_section {
    uint32_t tag; /* each once */
    uint64_t bytes;
} qw_archive_section;

/* The size of an archive with these sections; false: too many of them, or more than a file can hold. */
bool qw_archive_bytes(const qw_archive_section *sections, uint32_t count, uint64_t *bytes);

/* --- Writing --------------------------------------------------------------------------------------
 * A callback's status that is not OK ends the work and is returned; its text, too, if the callback wrote one
 * into the same `error`. */

/* Fills `out` with the section's bytes from `offset` on. Pieces of a section come in order, sections in
 * theirs. */
typedef qwen36_status (*qw_archive_read_fn)(void *user, uint32_t tag, uint64_t offset, void *out,
                                            uint64_t bytes);

typedef struct qw_archive_content {
    const qw_archive_section *sections;
    uint32_t count;
    qw_archive_read_fn read;
    void *user;
} qw_archive_content;

/* The file appears whole, mode 0600, or what stood under its path stays: lib/os/new_file.h. */
qwen36_status qw_archive_write_file(const qw_allocator *allocator, const qw_archive_content *content,
                                    const char *path, qwen36_error *error);

/* Into the caller's memory; `read` fills it in place. BUFFER_TOO_SMALL: nothing was written. `bytes` is what
 * qw_archive_bytes gives. After another failure the memory holds no archive. */
qwen36_status qw_archive_write_memory(const qw_allocator *allocator, const qw_archive_content *content,
                                      void *memory, uint64_t capacity, uint64_t *bytes, qwen36_error *error);

/* --- Reading --------------------------------------------------------------------------------------
 * Failures of content are SNAPSHOT, those of the file FILE_NOT_FOUND, FILE_READ and FILE_CHANGED. */

typedef struct qw_archive {
    const qw_allocator *allocator;
    const char *name;            /* in error texts; borrowed */
    const unsigned char *memory; /* borrowed; NULL: `file` is read */
    qw_file file;
    uint64_t bytes;
    unsigned char *table;
    uint32_t count;
    unsigned char *piece; /* what was last read from the file */
} qw_archive;

/* Header and table are checked in full, against the size of the whole before anything is allocated. The
 * allocator, the path and the memory stay until qw_archive_close; the memory does not change. After a failure
 * there is nothing to close. */
qwen36_status qw_archive_open_file(const qw_allocator *allocator, const char *path, qw_archive *archive,
                                   qwen36_error *error);
qwen36_status qw_archive_open_memory(const qw_allocator *allocator, const void *memory, uint64_t bytes,
                                     qw_archive *archive, qwen36_error *error);
void qw_archive_close(qw_archive *archive);

bool qw_archive_find(const qw_archive *archive, uint32_t tag, uint64_t *bytes);

/* Reads everything and compares all checksums, and the zeros between sections. */
qwen36_status qw_archive_verify(qw_archive *archive, qwen36_error *error);

/* Takes the section's bytes from `offset` on, valid during the call. Out of a file they are aligned to 64. */
typedef qwen36_status (*qw_archive_take_fn)(void *user, uint32_t tag, uint64_t offset, const void *data,
                                            uint64_t bytes);

/* Streams a section. Its checksum is compared at its end, so what `take` was given counts only after OK; who
 * cannot take it back verifies first. */
qwen36_status qw_archive_load(qw_archive *archive, uint32_t tag, qw_archive_take_fn take, void *user,
                              qwen36_error *error);

#endif
