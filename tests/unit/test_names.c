/* The table of names: what was added is found, what was not is not, and it grows. */
#include "lib/base/names.h"
#include "tests/harness.h"

TEST(names, add_and_find)
{
    enum { COUNT = 5000 };
    test_allocator state = {0};
    const qw_allocator allocator = {test_allocate, test_release, &state};
    qw_names names = {.allocator = &allocator};
    char(*texts)[16] = malloc(COUNT * sizeof *texts);
    CHECK(texts != NULL && qw_names_find(&names, "x", 1) == NULL);
    for (uint32_t i = 0; i < COUNT; i++) {
        const size_t length = (size_t)snprintf(texts[i], sizeof texts[i], "n%u", i);
        CHECK_INT(qw_names_add(&names, texts[i], length, i), QW_NAMES_ADDED);
        CHECK_INT(qw_names_add(&names, texts[i], length, 0), QW_NAMES_PRESENT);
    }
    CHECK(names.count == COUNT && names.capacity >= 2 * COUNT);
    for (uint32_t i = 0; i < COUNT; i++)
        CHECK_INT(qw_names_find(&names, texts[i], strlen(texts[i]))->value, i);
    CHECK(qw_names_find(&names, "n5000", 5) == NULL && qw_names_find(&names, "n", 1) == NULL);
    CHECK_INT(qw_names_add(&names, "", 0, 7), QW_NAMES_ADDED);
    CHECK_INT(qw_names_find(&names, "", 0)->value, 7);
    qw_names_release(&names);
    CHECK_INT(state.outstanding, 0);
    free(texts);
}

/* Names may hold any byte, and a failed addition changes nothing. */
TEST(names, no_memory)
{
    test_allocator state = {.fail_at = 2};
    const qw_allocator allocator = {test_allocate, test_release, &state};
    qw_names names = {.allocator = &allocator};
    static const char bytes[] = "\0\1\2\3\4\5\6\7\10";
    for (uint32_t i = 0; i < 8; i++)
        CHECK_INT(qw_names_add(&names, bytes + i, 1, i), QW_NAMES_ADDED);
    CHECK_INT(qw_names_add(&names, bytes + 8, 1, 8), QW_NAMES_NO_MEMORY);
    CHECK(names.count == 8 && qw_names_find(&names, "\0", 1)->value == 0);
    CHECK_INT(qw_names_add(&names, bytes + 8, 1, 8), QW_NAMES_ADDED);
    CHECK(!qw_names_reserve(&names, SIZE_MAX / 4));
    qw_names_release(&names);
    CHECK_INT(state.outstanding, 0);
}
