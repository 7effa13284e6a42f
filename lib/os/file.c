#include "lib/os/file.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define READ_MAX ((size_t)1 << 30) /* one call moves at most 2 GiB - 4 KiB on Linux */

/* strerror is neither thread-safe nor independent of the locale; the number is. */
static qwen36_status fail_errno(qwen36_error *error, const char *path, const char *what)
{
    int code = errno;
    return qw_fail(error, QWEN36_ERROR_FILE_READ, "%s: cannot %s (errno %d)", path, what, code);
}

static qwen36_status stamp_of(int descriptor, const char *path, qw_file_stamp *stamp, qwen36_error *error)
{
    struct stat info;
    if (fstat(descriptor, &info) != 0)
        return fail_errno(error, path, "read its attributes");
    if (!S_ISREG(info.st_mode))
        return qw_fail(error, QWEN36_ERROR_FILE_READ, "%s: is not a regular file", path);
    *stamp = (qw_file_stamp){(uint64_t)info.st_size, info.st_mtim.tv_sec, info.st_mtim.tv_nsec,
                             (uint64_t)info.st_dev, (uint64_t)info.st_ino};
    return QWEN36_OK;
}

qwen36_status qw_file_open(const char *path, qw_file *file, qwen36_error *error)
{
    do /* non-blocking: opening a FIFO must not wait for its writer */
        file->descriptor = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    while (file->descriptor < 0 && errno == EINTR);
    if (file->descriptor < 0 && (errno == ENOENT || errno == ENOTDIR))
        return qw_fail(error, QWEN36_ERROR_FILE_NOT_FOUND, "%s: not found", path);
    if (file->descriptor < 0)
        return fail_errno(error, path, "open it");
    qwen36_status status = stamp_of(file->descriptor, path, &file->stamp, error);
    if (status != QWEN36_OK)
        qw_file_close(file);
    return status;
}

void qw_file_close(qw_file *file)
{
    if (file->descriptor >= 0)
        close(file->descriptor);
    file->descriptor = -1;
}

qwen36_status qw_file_check(const qw_file *file, const char *path, const qw_file_stamp *stamp,
                            qwen36_error *error)
{
    qw_file_stamp now = {0};
    qwen36_status status = stamp_of(file->descriptor, path, &now, error);
    if (status != QWEN36_OK)
        return status;
    if (now.size != stamp->size)
        return qw_fail(error, QWEN36_ERROR_FILE_CHANGED, "%s: changed while loading: %llu bytes, before %llu",
                       path, (unsigned long long)now.size, (unsigned long long)stamp->size);
    if (now.seconds != stamp->seconds || now.nanoseconds != stamp->nanoseconds ||
        now.device != stamp->device || now.inode != stamp->inode)
        return qw_fail(error, QWEN36_ERROR_FILE_CHANGED, "%s: changed while loading", path);
    return QWEN36_OK;
}

qwen36_status qw_file_read(const qw_file *file, const char *path, uint64_t offset, void *memory, size_t size,
                           qwen36_error *error)
{
    char *to = memory;
    while (size > 0) {
        ssize_t got = pread(file->descriptor, to, QW_MIN(size, READ_MAX), (off_t)offset);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return fail_errno(error, path, "read it");
        if (got == 0)
            return qw_fail(error, QWEN36_ERROR_FILE_CHANGED,
                           "%s: ends at byte %llu, %zu bytes before what was there", path,
                           (unsigned long long)offset, size);
        to += got;
        offset += (uint64_t)got;
        size -= (size_t)got;
    }
    return QWEN36_OK;
}

qwen36_status qw_file_read_all(const qw_allocator *allocator, const char *path, size_t limit, char **text,
                               size_t *size, qwen36_error *error)
{
    qw_file file = {.descriptor = -1};
    char *buffer = NULL;
    qwen36_status status = qw_file_open(path, &file, error);
    if (status != QWEN36_OK)
        return status;
    const uint64_t length = file.stamp.size;
    if (length > limit) {
        status = qw_fail(error, QWEN36_ERROR_FILE_READ, "%s: %llu bytes, at most %zu are read", path,
                         (unsigned long long)length, limit);
        goto out;
    }
    buffer = qw_alloc_raw(allocator, length + 1, 1);
    if (buffer == NULL) {
        status = qw_fail_memory(error, length + 1);
        goto out;
    }
    status = qw_file_read(&file, path, 0, buffer, length, error);
    if (status == QWEN36_OK)
        status = qw_file_check(&file, path, &file.stamp, error);
    if (status != QWEN36_OK)
        goto out;
    buffer[length] = '\0';
    *text = buffer;
    *size = length;
    buffer = NULL;
out:
    qw_free(allocator, buffer);
    qw_file_close(&file);
    return status;
}

qwen36_status qw_file_map(const qw_file *file, const char *path, uint64_t offset, size_t size,
                          const void **memory, qwen36_error *error)
{
    void *mapped = mmap(NULL, size, PROT_READ, MAP_PRIVATE, file->descriptor, (off_t)offset);
    if (mapped == MAP_FAILED)
        return fail_errno(error, path, "map it");
    *memory = mapped;
    return QWEN36_OK;
}

void qw_file_unmap(const void *memory, size_t size)
{
    union {
        const void *read;
        void *write;
    } pointer = {memory};
    munmap(pointer.write, size);
}

bool qw_directory_exists(const char *path)
{
    struct stat info;
    return stat(path, &info) == 0 && S_ISDIR(info.st_mode);
}

size_t qw_page_size(void)
{
    long size = sysconf(_SC_PAGESIZE);
    return size > 0 ? (size_t)size : 4096;
}
