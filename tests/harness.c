#define _GNU_SOURCE
#include "tests/harness.h"

#include <ftw.h>
#include <setjmp.h>
#include <stdarg.h>
#include <sys/stat.h>
#include <unistd.h>

static char directory_names[16][64];
static size_t directory_count;
static bool remove_at_exit;

static int remove_entry(const char *path, const struct stat *info, int kind, struct FTW *walk)
{
    (void)info;
    (void)kind;
    (void)walk;
    return remove(path);
}

static void remove_directories(void)
{
    while (directory_count > 0)
        nftw(directory_names[--directory_count], remove_entry, 16, FTW_DEPTH | FTW_PHYS);
}

static void report(char *text, size_t room, const char *file, int line, const char *format, va_list arguments)
{
    int used = snprintf(text, room, "%s:%d: ", file, line);
    vsnprintf(text + used, room - (size_t)used, format, arguments);
}

#ifdef QW_TEST_INPROCESS
static test_case *first_test;
static jmp_buf test_end;
static char test_outcome[2048];
enum { PASSED, FAILED, SKIPPED, OUTCOMES };

void test_register(test_case *test)
{
    test->next = first_test;
    first_test = test;
}

void test_fail(const char *file, int line, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    report(test_outcome, sizeof test_outcome, file, line, format, arguments);
    va_end(arguments);
    longjmp(test_end, FAILED);
}

void test_skip(const char *reason)
{
    snprintf(test_outcome, sizeof test_outcome, "%s", reason);
    longjmp(test_end, SKIPPED);
}

static int run(const test_case *test)
{
    int outcome = setjmp(test_end);
    if (outcome == PASSED)
        test->body();
    remove_directories();
    return outcome;
}

/* Runs the tests whose "suite/name" contains argv[1], or all. */
int main(int argc, char **argv)
{
    static const char *const verdicts[OUTCOMES] = {"ok", "FAIL", "skip"};
    int counts[OUTCOMES] = {0, 0, 0};
    for (const test_case *test = first_test; test != NULL; test = test->next) {
        char name[256];
        snprintf(name, sizeof name, "%s/%s", test->suite, test->name);
        if (argc > 1 && strstr(name, argv[1]) == NULL)
            continue;
        fprintf(stderr, "%s: ", name); /* first, so that the name of a test that crashes is known */
        test_outcome[0] = '\0';
        int outcome = run(test);
        fprintf(stderr, "%s %s\n", verdicts[outcome], test_outcome);
        counts[outcome]++;
    }
    printf("%d passed, %d failed, %d skipped\n", counts[PASSED], counts[FAILED], counts[SKIPPED]);
    return counts[FAILED] > 0 || counts[PASSED] + counts[SKIPPED] == 0;
}
#else
void test_fail(const char *file, int line, const char *format, ...)
{
    char text[2048];
    va_list arguments;
    va_start(arguments, format);
    report(text, sizeof text, file, line, format, arguments);
    va_end(arguments);
    cr_assert_fail("%s", text);
    abort();
}

void test_skip(const char *reason)
{
    cr_skip_test("%s", reason);
    abort();
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

const char *test_directory(void)
{
    CHECK(directory_count < 16);
    char *name = directory_names[directory_count];
    snprintf(name, sizeof directory_names[0], "/tmp/qwen36-test-XXXXXX");
    CHECK(mkdtemp(name) != NULL);
    if (!remove_at_exit)
        remove_at_exit = atexit(remove_directories) == 0;
    directory_count++;
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
