/* The test harness: the same test bodies run under Criterion (the default; each test in a process of
 * its own) and, with QW_TEST_INPROCESS, in one process under a small runner, which the thread sanitizer
 * and qemu need.
 *
 *     TEST(suite, name) { CHECK(x == 1); CHECK_INT(count, 3); }
 *
 * A failed CHECK ends the test. SKIP says why a test cannot run here; with REQUIRE_ASSETS=1 in the
 * environment it fails instead. test_asset() finds material that does not lie in the tree: under
 * $QWEN36_ASSETS, else ../shared/assets.
 */
#ifndef QW_TESTS_HARNESS_H
#define QW_TESTS_HARNESS_H

#include <inttypes.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* End the running test. */
_Noreturn void test_fail(const char *file, int line, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
_Noreturn void test_skip(const char *reason);

#ifdef QW_TEST_INPROCESS
typedef struct test_case {
    const char *suite, *name;
    void (*body)(void);
    struct test_case *next;
} test_case;
void test_register(test_case *test);
#define TEST(suite_, name_)                                                                                  \
    static void test_body_##suite_##_##name_(void);                                                          \
    __attribute__((constructor)) static void test_add_##suite_##_##name_(void)                               \
    {                                                                                                        \
        static test_case self = {#suite_, #name_, test_body_##suite_##_##name_, NULL};                       \
        test_register(&self);                                                                                \
    }                                                                                                        \
    static void test_body_##suite_##_##name_(void)
#else
#include <criterion/criterion.h>
#define TEST(suite_, name_) Test(suite_, name_)
#endif

#define SKIP(reason)                                                                                         \
    do {                                                                                                     \
        const char *required_ = getenv("REQUIRE_ASSETS");                                                    \
        if (required_ != NULL && strcmp(required_, "1") == 0)                                                \
            test_fail(__FILE__, __LINE__, "may not be skipped: %s", reason);                                 \
        test_skip(reason);                                                                                   \
    } while (0)

#define CHECK(condition)                                                                                     \
    do {                                                                                                     \
        if (!(condition))                                                                                    \
            test_fail(__FILE__, __LINE__, "%s", #condition);                                                 \
    } while (0)

#define CHECK_MSG(condition, ...)                                                                            \
    do {                                                                                                     \
        if (!(condition)) {                                                                                  \
            char text_[1024];                                                                                \
            snprintf(text_, sizeof text_, __VA_ARGS__);                                                      \
            test_fail(__FILE__, __LINE__, "%s: %s", #condition, text_);                                      \
        }                                                                                                    \
    } while (0)

#define CHECK_INT(actual, expected)                                                                          \
    do {                                                                                                     \
        intmax_t actual_ = (intmax_t)(actual), expected_ = (intmax_t)(expected);                             \
        if (actual_ != expected_)                                                                            \
            test_fail(__FILE__, __LINE__, "%s is %" PRIdMAX ", expected %" PRIdMAX, #actual, actual_,        \
                      expected_);                                                                            \
    } while (0)

#define CHECK_TEXT(actual, expected)                                                                         \
    do {                                                                                                     \
        const char *actual_ = (actual), *expected_ = (expected);                                             \
        if (strcmp(actual_, expected_) != 0)                                                                 \
            test_fail(__FILE__, __LINE__, "%s is \"%s\", expected \"%s\"", #actual, actual_, expected_);     \
    } while (0)

/* Path of an asset, or NULL when it is absent. A static buffer, valid until the next call. */
const char *test_asset(const char *name);
/* A whole file (NUL-terminated, malloc), or NULL. */
char *test_read_file(const char *path, size_t *size);
/* Writes a file; fails the test when it cannot. */
void test_write_file(const char *path, const void *data, size_t size);
/* A fresh directory, removed when the test ends. The text stays valid until then. */
const char *test_directory(void);

/* An allocator whose k-th allocation (counted from 1) fails, and all later ones too if `forever`. It counts
 * what is outstanding, so a test can prove that nothing leaks. */
typedef struct test_allocator {
    long allocations; /* so far */
    long outstanding;
    long fail_at; /* 0: never */
    bool forever;
} test_allocator;
void *test_allocate(void *user, size_t size, size_t alignment);
void test_release(void *user, void *memory);

#endif
