/* Allocation helpers and error texts. */
#include "lib/base/base.h"
#include "tests/harness.h"

TEST(base, error_texts_are_one_line_of_utf8)
{
    char name[700];
    qwen36_error error = QWEN36_ERROR_INIT;
    CHECK_INT(qw_fail(&error, QWEN36_ERROR_CONFIG, "a\nb\t%s\x7f", "\xff\xc3\xa9\xe4\xb8"),
              QWEN36_ERROR_CONFIG);
    CHECK_TEXT(error.message, "a?b??\xc3\xa9???");
    CHECK_INT(qw_fail(&error, QWEN36_ERROR_JSON, "later"), QWEN36_ERROR_JSON); /* the first one stays */
    CHECK_INT(error.status, QWEN36_ERROR_CONFIG);
    qw_error_clear(&error);
    for (size_t i = 0; i + 1 < sizeof name; i += 2)
        memcpy(name + i, "\xc3\xa9", 2); /* cut inside a character */
    name[sizeof name - 2] = '\0';
    qw_fail(&error, QWEN36_ERROR_JSON, "%s", name);
    CHECK_INT(strlen(error.message), sizeof error.message - 1);
    CHECK_INT(error.message[sizeof error.message - 2], '?');
}

TEST(base, sizes_that_do_not_fit_are_refused)
{
    qw_allocator a = qw_allocator_default();
    void *array = NULL;
    size_t capacity = 0;
    CHECK(qw_alloc(&a, SIZE_MAX, 2) == NULL);
    CHECK(qw_alloc(&a, SIZE_MAX / 2, 1) == NULL);
    CHECK(qw_copy_text(&a, "", SIZE_MAX) == NULL);
    CHECK(!qw_grow(&a, &array, &capacity, SIZE_MAX / 2, 16));
    CHECK(array == NULL && capacity == 0);
    CHECK(qw_grow(&a, &array, &capacity, 3, 4) && capacity >= 3);
    memset(array, 7, 12);
    CHECK(qw_grow(&a, &array, &capacity, 4, 4) && capacity >= 6);
    CHECK(((unsigned char *)array)[11] == 7 && ((unsigned char *)array)[12] == 0);
    CHECK((uintptr_t)array % QW_ALIGNMENT == 0);
    qw_free(&a, array);
    qw_free(&a, NULL);
}
