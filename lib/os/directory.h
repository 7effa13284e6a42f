/* The files of a directory, and what may be done to them. */
#ifndef QW_OS_DIRECTORY_H
#define QW_OS_DIRECTORY_H

#include "lib/base/base.h"

typedef struct qw_directory_entry {
    const char *name; /* valid during the call */
    uint64_t size;
    int64_t used, changed; /* last access and modification, nanoseconds since 1970 */
} qw_directory_entry;

/* Calls `visit` for every regular file; FILE_NOT_FOUND or FILE_READ. */
qwen36_status qw_directory_visit(const char *path, void (*visit)(void *user, const qw_directory_entry *entry),
                                 void *user, qwen36_error *error);

bool qw_path_is_file(const char *path);
/* Missing files are no failure: another process may have been faster. */
void qw_path_remove(const char *path);
/* Notes that a file is used now, in its access time; its modification time stays. */
void qw_path_touch(const char *path);
/* Nanoseconds since 1970. */
int64_t qw_time_now(void);

#endif
