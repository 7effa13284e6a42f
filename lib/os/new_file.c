#include "lib/os/new_file.h"
#include "lib/os/process.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define WRITE_MAX ((size_t)1 << 30) /* one call moves at most 2 GiB - 4 KiB on Linux */
#define NAME_ATTEMPTS 1000

/* strerror is neither thread-safe nor independent of the locale; these are what a caller can do something
 * about. */
static const char *reason_of(int code)
{
    switch (code) {
    case ENOSPC:
        return "no space is left";
    case EDQUOT:
        return "the disk quota is used up";
    case EFBIG:
        return "the file would be too large";
    case EACCES:
    case EPERM:
        return "permission denied";
    case EROFS:
        return "the file system is read-only";
    case ENOENT:
        return "the directory does not exist";
    case ENOTDIR:
        return "a part of the path is not a directory";
    case EISDIR:
        return "it is a directory";
    case ENAMETOOLONG:
        return "the name is too long";
    case EMFILE:
    case ENFILE:
        return "too many files are open";
    case EIO:
        return "input/output error";
    default:
        return "the system refused";
    }
}

static qwen36_status fail_errno(qwen36_error *error, const char *path, const char *what)
{
    int code = errno;
    return qw_fail(error, QWEN36_ERROR_FILE_WRITE, "%s: cannot %s: %s (errno %d)", path, what,
                   reason_of(code), code);
}

/* --- Creating ------------------------------------------------------------------------------------- */

static qwen36_status open_directory(const qw_allocator *allocator, qw_new_file *file, qwen36_error *error)
{
    const size_t length = (size_t)(file->name - file->path);
    char *directory = qw_copy_text(allocator, length > 0 ? file->path : ".", length > 0 ? length : 1);
    if (directory == NULL)
        return qw_fail_memory(error, length + 1);
    do
        file->directory = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    while (file->directory < 0 && errno == EINTR);
    qwen36_status status =
        file->directory < 0 ? fail_errno(error, file->path, "open its directory") : QWEN36_OK;
    qw_free(allocator, directory);
    return status;
}

/* A rename would put a file in the place of a device or a pipe. */
static qwen36_status check_target(const qw_new_file *file, qwen36_error *error)
{
    struct stat info;
    if (file->name[0] == '\0')
        return qw_fail(error, QWEN36_ERROR_FILE_WRITE, "%s: names no file", file->path);
    if (fstatat(file->directory, file->name, &info, 0) == 0 && !S_ISREG(info.st_mode))
        return qw_fail(error, QWEN36_ERROR_FILE_WRITE, "%s: is there, and is not a regular file", file->path);
    return QWEN36_OK;
}

/* A name of its own, whatever the length of the path's. The process and the clock make it unlikely to be
 * taken; O_EXCL makes sure. */
static qwen36_status create_temporary(qw_new_file *file, qwen36_error *error)
{
    struct timespec now = {0, 0};
    clock_gettime(CLOCK_REALTIME, &now);
    for (int attempt = 0; attempt < NAME_ATTEMPTS; attempt++) {
        snprintf(file->temporary, sizeof file->temporary, ".qwen36-%lld-%09ld-%d.tmp",
                 (long long)qw_process_id(), now.tv_nsec, attempt);
        do
            file->descriptor = openat(file->directory, file->temporary,
                                      O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOCTTY, S_IRUSR | S_IWUSR);
        while (file->descriptor < 0 && errno == EINTR);
        if (file->descriptor >= 0)
            return QWEN36_OK;
        if (errno != EEXIST)
            break;
    }
    file->temporary[0] = '\0';
    return fail_errno(error, file->path, "create a file in its directory");
}

qwen36_status qw_new_file_create(const qw_allocator *allocator, const char *path, qw_new_file *file,
                                 qwen36_error *error)
{
    const char *slash = strrchr(path, '/');
    *file = (qw_new_file){
        .path = path, .name = slash != NULL ? slash + 1 : path, .directory = -1, .descriptor = -1};
    qwen36_status status = open_directory(allocator, file, error);
    if (status == QWEN36_OK)
        status = check_target(file, error);
    if (status == QWEN36_OK)
        status = create_temporary(file, error);
    if (status != QWEN36_OK)
        qw_new_file_close(file);
    return status;
}

/* --- Writing -------------------------------------------------------------------------------------- */

/* A write beyond this limit raises a signal whose default is to end the process. */
static bool is_within_limit(uint64_t end)
{
    struct rlimit limit;
    return getrlimit(RLIMIT_FSIZE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY || end <= limit.rlim_cur;
}

qwen36_status qw_new_file_write(const qw_new_file *file, uint64_t offset, const void *memory, size_t size,
                                qwen36_error *error)
{
    const char *from = memory;
    uint64_t end = 0;
    if (!qw_add(offset, size, &end) || end > INT64_MAX || !is_within_limit(end)) {
        errno = EFBIG;
        return fail_errno(error, file->path, "write it");
    }
    while (size > 0) {
        ssize_t put = pwrite(file->descriptor, from, QW_MIN(size, WRITE_MAX), (off_t)offset);
        if (put < 0 && errno == EINTR)
            continue;
        if (put == 0)
            errno = EIO;
        if (put <= 0)
            return fail_errno(error, file->path, "write it");
        from += put;
        offset += (uint64_t)put;
        size -= (size_t)put;
    }
    return QWEN36_OK;
}

static bool synchronise(int descriptor)
{
    int result;
    do
        result = fsync(descriptor);
    while (result != 0 && errno == EINTR);
    return result == 0;
}

qwen36_status qw_new_file_commit(qw_new_file *file, qwen36_error *error)
{
    if (!synchronise(file->descriptor))
        return fail_errno(error, file->path, "bring it to the disk");
    int closed = close(file->descriptor);
    file->descriptor = -1;
    if (closed != 0 &&
        errno != EINTR) /* interrupted or not, the descriptor is gone, and the data is on the disk */
        return fail_errno(error, file->path, "close it");
    if (renameat(file->directory, file->temporary, file->directory, file->name) != 0)
        return fail_errno(error, file->path, "put it in its place");
    file->temporary[0] = '\0';
    if (!synchronise(file->directory) && errno != EINVAL) /* EINVAL: the file system has no such thing */
        return fail_errno(error, file->path, "make its name durable");
    return QWEN36_OK;
}

void qw_new_file_close(qw_new_file *file)
{
    if (file->descriptor >= 0)
        close(file->descriptor);
    if (file->temporary[0] != '\0')
        unlinkat(file->directory, file->temporary, 0);
    if (file->directory >= 0)
        close(file->directory);
    file->descriptor = file->directory = -1;
    file->temporary[0] = '\0';
}
