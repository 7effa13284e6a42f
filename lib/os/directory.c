#include "lib/os/directory.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static int64_t nanoseconds(struct timespec time)
{
    return (int64_t)time.tv_sec * 1000000000 + time.tv_nsec;
}

static DIR *open_directory(const char *path)
{
    int descriptor = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *directory = descriptor >= 0 ? fdopendir(descriptor) : NULL;
    if (directory == NULL && descriptor >= 0)
        close(descriptor);
    return directory;
}

qwen36_status qw_directory_visit(const char *path, void (*visit)(void *user, const qw_directory_entry *entry),
                                 void *user, qwen36_error *error)
{
    DIR *directory = open_directory(path);
    if (directory == NULL)
        return qw_fail(error, errno == ENOENT ? QWEN36_ERROR_FILE_NOT_FOUND : QWEN36_ERROR_FILE_READ,
                       "%s: no directory that can be read (errno %d)", path, errno);
    for (struct dirent *item; (item = readdir(directory)) != NULL;) {
        struct stat status;
        if (fstatat(dirfd(directory), item->d_name, &status, AT_SYMLINK_NOFOLLOW) != 0 ||
            !S_ISREG(status.st_mode))
            continue;
        qw_directory_entry entry = {item->d_name, (uint64_t)status.st_size, nanoseconds(status.st_atim),
                                    nanoseconds(status.st_mtim)};
        visit(user, &entry);
    }
    closedir(directory);
    return QWEN36_OK;
}

bool qw_path_is_file(const char *path)
{
    struct stat status;
    return stat(path, &status) == 0 && S_ISREG(status.st_mode);
}

void qw_path_remove(const char *path)
{
    unlink(path);
}

void qw_path_touch(const char *path)
{
    const struct timespec times[2] = {{0, UTIME_NOW}, {0, UTIME_OMIT}};
    utimensat(AT_FDCWD, path, times, 0);
}

int64_t qw_time_now(void)
{
    struct timespec now = {0, 0};
    clock_gettime(CLOCK_REALTIME, &now);
    return nanoseconds(now);
}
