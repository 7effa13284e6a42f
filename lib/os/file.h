/* Files: read whole, read a range, map a range. Every failure is a status with the path in its text; signals
 * do not disturb a read; descriptors are close-on-exec. */
#ifndef QW_OS_FILE_H
#define QW_OS_FILE_H

#include "lib/base/base.h"

/* What tells that a file is still the same. */
typedef struct qw_file_stamp {
    uint64_t size;
    int64_t seconds, nanoseconds; /* last modification */
    uint64_t device, inode;
} qw_file_stamp;

typedef struct qw_file {
    int descriptor;
    qw_file_stamp stamp; /* at opening */
} qw_file;

/* Regular files only; symbolic links are followed. FILE_NOT_FOUND or FILE_READ. */
qwen36_status qw_file_open(const char *path, qw_file *file, qwen36_error *error);
void qw_file_close(qw_file *file);

/* FILE_CHANGED if size, time or identity now differ from `stamp`. */
qwen36_status qw_file_check(const qw_file *file, const char *path, const qw_file_stamp *stamp,
                            qwen36_error *error);

/* Exactly `size` bytes from `offset`; FILE_CHANGED when the file ends before. */
qwen36_status qw_file_read(const qw_file *file, const char *path, uint64_t offset, void *memory, size_t size,
                           qwen36_error *error);

/* The whole file, NUL-terminated (for qw_free); FILE_READ when it is larger than `limit`. */
qwen36_status qw_file_read_all(const qw_allocator *allocator, const char *path, size_t limit, char **text,
                               size_t *size, qwen36_error *error);

/* Maps a range privately and read-only; `offset` is a multiple of the page size. */
qwen36_status qw_file_map(const qw_file *file, const char *path, uint64_t offset, size_t size,
                          const void **memory, qwen36_error *error);
void qw_file_unmap(const void *memory, size_t size);

bool qw_directory_exists(const char *path);

size_t qw_page_size(void);

#endif
