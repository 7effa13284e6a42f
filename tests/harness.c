#define _GNU_SOURCE
#include "tests/harness.h"

#include <ftw.h>
#include <setjmp.h>
#include <stdarg.h>
#include <sys/stat.h>
#include <unistd.h>

#ifdef QW_TEST_INPROCESS
static test_case *first_test;
static jmp_buf test_end;

void test_register(test_case *test)
{
    test->next = first_test;
    first_test = test;
}

void test_fail(const char *file, int line, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    fprintf(stderr, "FAIL %s:%d: ", file, line);
    vfprintf(stderr, format, arguments);
    fputc('\n', stderr);
    va_end(arguments);
    longjmp(test_end, 1);
}

void test_skip(const char *reason)
{
    fprintf(stderr, "SKIP %s\n", reason);
    longjmp(test_end, 2);
}

/* Runs the tests whose "suite/name" contains argv[1], or all. */
int main(int argc, char **argv)
{
    int counts[3] = {0, 0, 0};
    for (test_case *test = first_test; test != NULL; test = test->next) {
        char name[256];
        snprintf(name, sizeof name, "%s/%s", test->suite, test->name);
        if (argc > 1 && strstr(name, argv[1]) == NULL)
            continue;
        fprintf(stderr, "RUN  %s\n", name);
        int outcome = setjmp(test_end);
        if (outcome == 0)
            test->body();
        counts[outcome]++;
    }
    printf("%d passed, %d failed, %d skipped\n", counts[0], counts[1], counts[2]);
    return counts[1] > 0 || counts[0] + counts[2] == 0;
}
#endif

const char *test_asset(const char *name)
{
    static char path[4096];
    const char *root = getenv("QWEN36_ASSETS");
    snprintf(path, sizeof path, "%s/%s", root != NULL ? root : "../shared/assets", name);
    return access(path, R_OK) == 0 ? path : NULL;
}

char *test_read_file(const char *path, size_t *size)
{
    FILE *file = fopen(path, "rb");
    if (file == NULL)
        return NULL;
    fseek(file, 0, SEEK_END);
    long length = ftell(file);
    rewind(file);
    char *data = length < 0 ? NULL : malloc((size_t)length + 1);
    if (data != NULL && fread(data, 1, (size_t)length, file) == (size_t)length) {
        data[length] = '\0';
        if (size != NULL)
            *size = (size_t)length;
    } else {
        free(data);
        data = NULL;
    }
    fclose(file);
    return data;
}

void test_write_file(const char *path, const void *data, size_t size)
{
    FILE *file = fopen(path, "wb");
    CHECK_MSG(file != NULL, "%s", path);
    CHECK_MSG(fwrite(data, 1, size, file) == size, "%s", path);
    CHECK_MSG(fclose(file) == 0, "%s", path);
}

static char directory_names[16][64];
static size_t directory_count;

static int remove_entry(const char *path, const struct stat *info, int kind, struct FTW *walk)
{
    (void)info;
    (void)kind;
    (void)walk;
    return remove(path);
}

static void remove_directories(void)
{
    for (size_t i = 0; i < directory_count; i++)
        nftw(directory_names[i], remove_entry, 16, FTW_DEPTH | FTW_PHYS);
}

const char *test_directory(void)
{
    CHECK(directory_count < 16);
    char *name = directory_names[directory_count];
    snprintf(name, sizeof directory_names[0], "/tmp/qwen36-test-XXXXXX");
    CHECK(mkdtemp(name) != NULL);
    if (directory_count++ == 0)
        atexit(remove_directories);
    return name;
}

void *test_allocate(void *user, size_t size, size_t alignment)
{
    test_allocator *state = user;
    long number = __atomic_add_fetch(&state->allocations, 1, __ATOMIC_RELAXED);
    if (state->fail_at > 0 && (number == state->fail_at || (state->forever && number > state->fail_at)))
        return NULL;
    void *memory = NULL;
    if (posix_memalign(&memory, alignment < sizeof(void *) ? sizeof(void *) : alignment, size) != 0)
        return NULL;
    memset(memory, 0xa5, size); /* what the library does not write itself must not look like zero */
    __atomic_add_fetch(&state->outstanding, 1, __ATOMIC_RELAXED);
    return memory;
}

void test_release(void *user, void *memory)
{
    test_allocator *state = user;
    __atomic_sub_fetch(&state->outstanding, 1, __ATOMIC_RELAXED);
    free(memory);
}
