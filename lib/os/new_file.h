/* A file that appears whole or not at all: it is written under a temporary name in the directory of its path,
 * brought to the disk, and renamed over the path. Until then, and after every failure, what stood there
 * stands there still.
 *
 * Every failure is FILE_WRITE with the path and the system's reason in its text, but for memory. */
#ifndef QW_OS_NEW_FILE_H
#define QW_OS_NEW_FILE_H

#include "lib/base/base.h"

typedef struct qw_new_file {
    const char *path; /* borrowed */
    const char *name; /* its last part */
    int directory;    /* descriptors; -1: none */
    int descriptor;
    char temporary[64]; /* name in the directory; empty: not there */
} qw_new_file;

/* Mode 0600. A path that is there already must be a regular file, or a symbolic link to one; the link itself
 * is what will be replaced. */
qwen36_status qw_new_file_create(const qw_allocator *allocator, const char *path, qw_new_file *file,
                                 qwen36_error *error);

/* Exactly `size` bytes at `offset`; what is never written before the end of the file is zero. A write beyond
 * the process's limit of file sizes fails and raises no signal. */
qwen36_status qw_new_file_write(const qw_new_file *file, uint64_t offset, const void *memory, size_t size,
                                qwen36_error *error);

/* The file stands under its path, on the disk. Only when the very last step fails, making the new name
 * durable, is the path replaced in spite of the failure. */
qwen36_status qw_new_file_commit(qw_new_file *file, qwen36_error *error);

/* Ends in any state: what was not committed is removed. */
void qw_new_file_close(qw_new_file *file);

#endif
