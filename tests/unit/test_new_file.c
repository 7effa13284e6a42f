/* Files that appear whole or not at all, by themselves and under an archive: every failure leaves what was
 * there, and nothing else. */
#include "lib/os/new_file.h"
#include "lib/session/archive.h"
#include "tests/harness.h"

#include <dirent.h>
#include <pthread.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

static char path[512];

static const char *path_in(const char *directory, const char *name)
{
    snprintf(path, sizeof path, "%s/%s", directory, name);
    return path;
}

static int entries_of(const char *directory)
{
    int count = 0;
    DIR *list = opendir(directory);
    CHECK(list != NULL);
    while (readdir(list) != NULL)
        count++;
    closedir(list);
    return count - 2;
}

/* Holds exactly this text, and is alone in its directory. */
static void check_untouched(const char *directory, const char *name, const char *text)
{
    char *file = test_read_file(path_in(directory, name), NULL);
    CHECK(file != NULL);
    CHECK_TEXT(file, text);
    CHECK_INT(entries_of(directory), 1);
    free(file);
}

static qwen36_status write_text(const char *to, const char *text, qwen36_error *error)
{
    const qw_allocator allocator = qw_allocator_default();
    qw_new_file file;
    *error = (qwen36_error)QWEN36_ERROR_INIT;
    qwen36_status status = qw_new_file_create(&allocator, to, &file, error);
    if (status != QWEN36_OK)
        return status;
    status = qw_new_file_write(&file, 0, text, strlen(text), error);
    if (status == QWEN36_OK)
        status = qw_new_file_commit(&file, error);
    qw_new_file_close(&file);
    return status;
}

#define REFUSED(to, reason)                                                                                  \
    do {                                                                                                     \
        qwen36_error error_;                                                                                 \
        CHECK_INT(write_text(to, "new", &error_), QWEN36_ERROR_FILE_WRITE);                                  \
        CHECK_MSG(strstr(error_.message, to) == error_.message && strstr(error_.message, reason) != NULL,    \
                  "\"%s\" lacks \"%s\"", error_.message, reason);                                            \
    } while (0)

TEST(new_file, appears_on_commit)
{
    const qw_allocator allocator = qw_allocator_default();
    const char *directory = test_directory();
    qwen36_error error = QWEN36_ERROR_INIT;
    qw_new_file file;
    struct stat info;
    test_write_file(path_in(directory, "f"), "old text", 8);
    CHECK_INT(qw_new_file_create(&allocator, path_in(directory, "f"), &file, &error), QWEN36_OK);
    CHECK_INT(qw_new_file_write(&file, 2, "cd", 2, &error), QWEN36_OK);
    CHECK_INT(qw_new_file_write(&file, 0, "ab", 2, &error), QWEN36_OK);
    CHECK_INT(qw_new_file_write(&file, 4, NULL, 0, &error), QWEN36_OK);
    CHECK_INT(entries_of(directory), 2);
    CHECK_INT(qw_new_file_commit(&file, &error), QWEN36_OK);
    qw_new_file_close(&file);
    check_untouched(directory, "f", "abcd");
    CHECK(stat(path, &info) == 0 && (info.st_mode & 07777) == 0600);
}

TEST(new_file, goes_without_commit)
{
    const qw_allocator allocator = qw_allocator_default();
    const char *directory = test_directory();
    qw_new_file file;
    test_write_file(path_in(directory, "f"), "old text", 8);
    CHECK_INT(qw_new_file_create(&allocator, path_in(directory, "f"), &file, NULL), QWEN36_OK);
    CHECK_INT(qw_new_file_write(&file, 0, "abcd", 4, NULL), QWEN36_OK);
    qw_new_file_close(&file);
    qw_new_file_close(&file);
    check_untouched(directory, "f", "old text");
}

/* The longest name, and a path without a directory. */
TEST(new_file, names)
{
    const char *directory = test_directory();
    char name[257], before[4096];
    qwen36_error error;
    memset(name, 'n', 256);
    name[255] = '\0';
    CHECK_INT(write_text(path_in(directory, name), "long", &error), QWEN36_OK);
    check_untouched(directory, name, "long");
    CHECK(remove(path) == 0);
    name[255] = 'n';
    name[256] = '\0';
    REFUSED(path_in(directory, name), "the name is too long");
    CHECK_INT(entries_of(directory), 0);
    CHECK(getcwd(before, sizeof before) != NULL && chdir(directory) == 0);
    qwen36_status status = write_text("plain", "here", &error);
    CHECK_INT(chdir(before), 0);
    CHECK_MSG(status == QWEN36_OK, "%s", error.message);
    check_untouched(directory, "plain", "here");
}

TEST(new_file, not_a_file)
{
    const char *directory = test_directory();
    char target[512];
    CHECK(mkdir(path_in(directory, "folder"), 0700) == 0);
    REFUSED(path, "is there, and is not a regular file");
    REFUSED(path_in(directory, "folder/"), "names no file");
    REFUSED(path_in(directory, "none/f"), "the directory does not exist");
    CHECK(mkfifo(path_in(directory, "pipe"), 0600) == 0);
    REFUSED(path, "is there, and is not a regular file");
    REFUSED(path_in(directory, "pipe/f"), "a part of the path is not a directory");
    REFUSED("/dev/null", "/dev/null: is there, and is not a regular file");
    CHECK_INT(entries_of(directory), 2);
    snprintf(target, sizeof target, "%s", path_in(directory, "pipe"));
    CHECK(symlink(target, path_in(directory, "link")) == 0);
    REFUSED(path, "is there, and is not a regular file");
}

/* The link is replaced, what it named is not. */
TEST(new_file, symbolic_link)
{
    const char *directory = test_directory(), *other = test_directory();
    char target[512];
    qwen36_error error;
    snprintf(target, sizeof target, "%s", path_in(other, "target"));
    test_write_file(target, "old text", 8);
    CHECK(symlink(target, path_in(directory, "link")) == 0);
    CHECK_INT(write_text(path, "new", &error), QWEN36_OK);
    check_untouched(other, "target", "old text");
    check_untouched(directory, "link", "new");
}

TEST(new_file, directory_without_rights)
{
    const char *directory = test_directory();
    char file[512];
    const bool root = geteuid() == 0;
    qwen36_error error;
    snprintf(file, sizeof file, "%s", path_in(directory, "f"));
    test_write_file(file, "old text", 8);
    CHECK_INT(chmod(directory, 0555), 0);
    if (root)
        CHECK_INT(seteuid(65534), 0);
    qwen36_status status = write_text(file, "new", &error);
    if (root)
        CHECK_INT(seteuid(0), 0);
    CHECK_INT(chmod(directory, 0755), 0);
    CHECK_INT(status, QWEN36_ERROR_FILE_WRITE);
    CHECK(strstr(error.message, "permission denied") != NULL);
    check_untouched(directory, "f", "old text");
}

/* --- Under an archive ----------------------------------------------------------------------------- */

enum { TAG = 7, BYTES = 3 * (int)QW_ARCHIVE_PIECE + 100 };

typedef struct source {
    int calls, fail_at;
    unsigned char fill;
} source;

static qwen36_status read_source(void *user, uint32_t tag, uint64_t offset, void *out, uint64_t bytes)
{
    source *s = user;
    (void)tag;
    (void)offset;
    if (++s->calls == s->fail_at)
        return QWEN36_ERROR_DEVICE;
    memset(out, s->fill, bytes);
    return QWEN36_OK;
}

static qwen36_status write_archive(source *from, const char *to, qwen36_error *error)
{
    const qw_allocator allocator = qw_allocator_default();
    const qw_archive_section section = {TAG, BYTES};
    const qw_archive_content content = {&section, 1, read_source, from};
    *error = (qwen36_error)QWEN36_ERROR_INIT;
    return qw_archive_write_file(&allocator, &content, to, error);
}

TEST(new_file, archive_of_failing_content)
{
    const char *directory = test_directory();
    qwen36_error error;
    test_write_file(path_in(directory, "f"), "old text", 8);
    for (int k = 1; k <= 4; k++) {
        source from = {.fail_at = k};
        CHECK_INT(write_archive(&from, path_in(directory, "f"), &error), QWEN36_ERROR_DEVICE);
        CHECK_INT(error.status, QWEN36_ERROR_DEVICE);
        check_untouched(directory, "f", "old text");
    }
}

/* The disk is full at every place. The signal of this limit is not ignored here: it must not be raised. */
TEST(new_file, archive_without_space)
{
    const char *directory = test_directory();
    struct rlimit before;
    qwen36_error error;
    const rlim_t limits[] = {0, 100, 128, QW_ARCHIVE_PIECE, QW_ARCHIVE_PIECE + 128, BYTES, BYTES + 127};
    test_write_file(path_in(directory, "f"), "old text", 8);
    CHECK_INT(getrlimit(RLIMIT_FSIZE, &before), 0);
    for (size_t i = 0; i < QW_COUNT_OF(limits); i++) {
        const struct rlimit small = {limits[i], before.rlim_max};
        source from = {0};
        CHECK_INT(setrlimit(RLIMIT_FSIZE, &small), 0);
        qwen36_status status = write_archive(&from, path_in(directory, "f"), &error);
        CHECK_INT(setrlimit(RLIMIT_FSIZE, &before), 0);
        CHECK_INT(status, QWEN36_ERROR_FILE_WRITE);
        CHECK(strstr(error.message, "cannot write it: the file would be too large") != NULL);
        check_untouched(directory, "f", "old text");
    }
    const struct rlimit enough = {BYTES + 128, before.rlim_max};
    source from = {0};
    CHECK_INT(setrlimit(RLIMIT_FSIZE, &enough), 0);
    qwen36_status status = write_archive(&from, path_in(directory, "f"), &error);
    CHECK_INT(setrlimit(RLIMIT_FSIZE, &before), 0);
    CHECK_MSG(status == QWEN36_OK, "%s", error.message);
}

enum { WRITERS = 3, ROUNDS = 5 };

typedef struct rival {
    const char *to;
    unsigned char fill;
    int failures;
} rival;

static void *write_again_and_again(void *user)
{
    rival *r = user;
    for (int i = 0; i < ROUNDS; i++) {
        source from = {.fill = r->fill};
        qwen36_error error;
        r->failures += write_archive(&from, r->to, &error) != QWEN36_OK;
    }
    return NULL;
}

static qwen36_status take_one_fill(void *user, uint32_t tag, uint64_t offset, const void *data,
                                   uint64_t bytes)
{
    const unsigned char *from = data;
    unsigned char *fill = user;
    (void)tag;
    if (offset == 0)
        *fill = from[0];
    for (uint64_t i = 0; i < bytes; i++)
        if (from[i] != *fill)
            return QWEN36_ERROR_INTERNAL;
    return QWEN36_OK;
}

/* One whole archive of one writer. */
static void check_whole(const char *from)
{
    const qw_allocator allocator = qw_allocator_default();
    qw_archive archive;
    unsigned char fill = 0;
    qwen36_error error = QWEN36_ERROR_INIT;
    qwen36_status status = qw_archive_open_file(&allocator, from, &archive, &error);
    CHECK_MSG(status == QWEN36_OK, "%s", error.message);
    status = qw_archive_load(&archive, TAG, take_one_fill, &fill, &error);
    qw_archive_close(&archive);
    CHECK_MSG(status == QWEN36_OK, "%s", error.message);
    CHECK(fill >= 1 && fill <= WRITERS);
}

/* All to one path, which always names a whole archive. */
TEST(new_file, archives_at_once)
{
    const char *directory = test_directory();
    pthread_t threads[WRITERS];
    rival rivals[WRITERS];
    source first = {.fill = 1};
    qwen36_error error;
    path_in(directory, "f");
    CHECK_INT(write_archive(&first, path, &error), QWEN36_OK);
    for (int i = 0; i < WRITERS; i++) {
        rivals[i] = (rival){path, (unsigned char)(i + 1), 0};
        CHECK_INT(pthread_create(&threads[i], NULL, write_again_and_again, &rivals[i]), 0);
    }
    for (int i = 0; i < 2 * ROUNDS; i++)
        check_whole(path);
    for (int i = 0; i < WRITERS; i++) {
        CHECK_INT(pthread_join(threads[i], NULL), 0);
        CHECK_INT(rivals[i].failures, 0);
    }
    check_whole(path);
    CHECK_INT(entries_of(directory), 1);
}
