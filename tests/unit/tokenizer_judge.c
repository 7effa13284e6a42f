#include "tests/unit/tokenizer_judge.h"

#include "tests/harness.h"
#include "tests/unit/tokenizer_fixture.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>
#include <utf8proc.h>

size_t judge_pieces(const char *pattern, const char *text, size_t length, size_t *ends)
{
    int reason = 0;
    size_t where = 0, count = 0, at = 0;
    /* PCRE2's \s holds U+180E, Unicode's white space does not. */
    pcre2_code *code = pcre2_compile((PCRE2_SPTR)pattern, PCRE2_ZERO_TERMINATED, PCRE2_UTF | PCRE2_UCP,
                                     &reason, &where, NULL);
    pcre2_match_data *match = pcre2_match_data_create(1, NULL);
    CHECK(code != NULL && match != NULL);
    while (at < length) {
        int result = pcre2_match(code, (PCRE2_SPTR)text, length, at, PCRE2_ANCHORED, match, NULL);
        CHECK_MSG(result > 0, "PCRE2 says %d at byte %zu", result, at);
        at = pcre2_get_ovector_pointer(match)[1];
        ends[count++] = at;
    }
    pcre2_match_data_free(match);
    pcre2_code_free(code);
    return count;
}

char *judge_nfc(const char *text, size_t length, size_t *out_length)
{
    utf8proc_uint8_t *out = NULL;
    utf8proc_ssize_t n = utf8proc_map((const utf8proc_uint8_t *)text, (utf8proc_ssize_t)length, &out,
                                      UTF8PROC_STABLE | UTF8PROC_COMPOSE);
    CHECK(n >= 0 && out != NULL);
    *out_length = (size_t)n;
    return (char *)out;
}

static bool is_pair(const fixture_merge *merge, const char *left, size_t a, const char *right, size_t b)
{
    return strlen(merge->left) == a && memcmp(merge->left, left, a) == 0 && strlen(merge->right) == b &&
           memcmp(merge->right, right, b) == 0;
}

size_t judge_merge(const char *text, size_t length, int32_t *ids)
{
    size_t begins[4097], count = length;
    CHECK(length < QW_COUNT_OF(begins));
    for (size_t i = 0; i <= length; i++)
        begins[i] = i;
    for (size_t i = 0; i < length; i++)
        ids[i] = (unsigned char)text[i];
    for (size_t rank = 0; rank < fixture_merge_count();) {
        size_t i = 0;
        while (i + 1 < count && !is_pair(&fixture_merges[rank], text + begins[i], begins[i + 1] - begins[i],
                                         text + begins[i + 1], begins[i + 2] - begins[i + 1]))
            i++;
        if (i + 1 >= count) {
            rank++;
            continue;
        }
        ids[i] = 256 + (int32_t)rank;
        memmove(begins + i + 1, begins + i + 2, (count - i - 1) * sizeof *begins);
        memmove(ids + i + 1, ids + i + 2, (count - i - 2) * sizeof *ids);
        count--;
        rank = 0; /* a merge may make a pair of lower rank */
    }
    return count;
}

size_t judge_encode(const char *pattern, const char *text, size_t length, int32_t *ids)
{
    size_t normal = 0, count = 0, begin = 0;
    char *composed = judge_nfc(text, length, &normal);
    size_t *ends = malloc((normal + 1) * sizeof *ends);
    CHECK(ends != NULL);
    size_t pieces = judge_pieces(pattern, composed, normal, ends);
    for (size_t i = 0; i < pieces; i++) {
        count += judge_merge(composed + begin, ends[i] - begin, ids + count);
        begin = ends[i];
    }
    free(ends);
    free(composed);
    return count;
}
