/* The scanner against PCRE2, the normaliser against utf8proc, the merges against the plainest way. */
#include "lib/text/normalize.h"
#include "lib/text/utf8.h"
#include "tests/harness.h"
#include "tests/unit/tokenizer_fixture.h"
#include "tests/unit/tokenizer_judge.h"

#include <utf8proc.h>

static qw_unicode unicode;

/* The pieces of a text with | between them. */
static void check_split(qw_pattern pattern, const char *text, const char *expected)
{
    char shown[512], *o = shown;
    size_t length = strlen(text);
    qw_unicode_build(&unicode);
    for (size_t at = 0, end; at < length; at = end) {
        end = qw_pretokenizer_scan(&unicode, pattern, text, length, at);
        o += sprintf(o, "%s%.*s", at == 0 ? "" : "|", (int)(end - at), text + at);
    }
    *o = '\0';
    CHECK_TEXT(shown, expected);
}

TEST(tokenizer_pieces, known_splits)
{
    static const char *const cases[][2] = {
        {"I'm  here, it'S 2026!\n\nok", "I|'m| | here|,| it|'S| |2|0|2|6|!\n\n|ok"},
        {"foo_bar(x);\r\n  y", "foo|_bar|(x|);\r\n| | y"},
        {"trail   ", "trail|   "},
        {"\t\tif x:\n\t\t\tpass", "\t|\tif| x|:\n|\t\t|\tpass"},
        {"'The", "'T|he"},
        {"a 'b'", "a| '|b|'"},
        {"\n \n x", "\n \n| x"},
        {"x\xc2\xa0y", "x|\xc2\xa0y"},
        {"1\xcc\x81", "1|\xcc\x81"},
        {"\xe0\xa4\xb9\xe0\xa4\xbf\xe0\xa4\xa8\xe0\xa5\x8d\xe0\xa4\xa6\xe0\xa5\x80",
         "\xe0\xa4\xb9\xe0\xa4\xbf\xe0\xa4\xa8\xe0\xa5\x8d\xe0\xa4\xa6\xe0\xa5\x80"},
        {"\xe6\x9d\xb1\xe4\xba\xac"
         "123",
         "\xe6\x9d\xb1\xe4\xba\xac|1|2|3"},
        {"don\xe2\x80\x99t", "don|\xe2\x80\x99t"},
        {"it'\xc5\xbfs", "it|'\xc5\xbf|s"},
        {"a\xe1\xa0\x8e b", "a|\xe1\xa0\x8e| b"},
        {"we'VE they'll 'x", "we|'VE| they|'ll| '|x"},
    };
    for (size_t i = 0; i < QW_COUNT_OF(cases); i++)
        check_split(QW_PATTERN_WORDS_MARKS, cases[i][0], cases[i][1]);
    check_split(QW_PATTERN_WORDS, cases[9][0],
                "\xe0\xa4\xb9|\xe0\xa4\xbf\xe0\xa4\xa8|\xe0\xa5\x8d\xe0\xa4\xa6|\xe0\xa5\x80");
}

TEST(tokenizer_pieces, the_known_expressions_are_recognised)
{
    CHECK(qw_pretokenizer_recognize(qw_pattern_words_marks, strlen(qw_pattern_words_marks)) ==
          QW_PATTERN_WORDS_MARKS);
    CHECK(qw_pretokenizer_recognize(qw_pattern_words, strlen(qw_pattern_words)) == QW_PATTERN_WORDS);
    CHECK(qw_pretokenizer_recognize(qw_pattern_words, 10) == QW_PATTERN_OTHER);
}

static bool has_180e(const char *text, size_t length)
{
    for (size_t i = 0; i + 2 < length; i++)
        if (memcmp(text + i, "\xe1\xa0\x8e", 3) == 0)
            return true;
    return false;
}

TEST(tokenizer_pieces, scanner_equals_pcre2)
{
    const char *const patterns[] = {qw_pattern_words_marks, qw_pattern_words};
    uint64_t state = 1;
    qw_unicode_build(&unicode);
    for (int round = 0; round < 6000; round++) {
        char text[300];
        size_t ends[300], length = fixture_random_text(&state, text, sizeof text), at = 0;
        qw_pattern pattern = round % 2 == 0 ? QW_PATTERN_WORDS_MARKS : QW_PATTERN_WORDS;
        if (has_180e(text, length))
            continue;
        size_t count = judge_pieces(patterns[round % 2], text, length, ends);
        for (size_t i = 0; i < count; i++) {
            at = qw_pretokenizer_scan(&unicode, pattern, text, length, at);
            CHECK_MSG(at == ends[i], "round %d, piece %zu ends at %zu, expected %zu: %.*s", round, i, at,
                      ends[i], (int)length, text);
        }
        CHECK(at == length);
    }
}

TEST(tokenizer_pieces, nfc_equals_utf8proc)
{
    const qw_allocator allocator = qw_allocator_default();
    qw_nfc nfc = {.allocator = &allocator, .unicode = &unicode};
    uint64_t state = 2;
    qw_unicode_build(&unicode);
    for (int round = 0; round < 20000; round++) {
        char text[200];
        size_t length = fixture_random_text(&state, text, sizeof text), wanted_length = 0;
        size_t got_length = length;
        const char *got = text;
        char *wanted = judge_nfc(text, length, &wanted_length);
        CHECK(qw_nfc_normalize(&nfc, &got, &got_length));
        CHECK_MSG(got_length == wanted_length && memcmp(got, wanted, got_length) == 0, "round %d: %.*s",
                  round, (int)length, text);
        free(wanted);
    }
    qw_nfc_release(&nfc);
}

/* Each code point alone, after a letter, and after a mark of the highest class. */
TEST(tokenizer_pieces, nfc_of_every_code_point)
{
    static const char *const before[] = {"", "a", "a\xcd\x9c"};
    const qw_allocator allocator = qw_allocator_default();
    qw_nfc nfc = {.allocator = &allocator, .unicode = &unicode};
    qw_unicode_build(&unicode);
    for (int32_t code = 1; code < 0x110000; code++) {
        if (code >= 0xd800 && code < 0xe000)
            continue;
        for (size_t i = 0; i < QW_COUNT_OF(before); i++) {
            char text[16];
            size_t length = strlen(before[i]), wanted_length = 0;
            memcpy(text, before[i], length);
            length += qw_utf8_write(code, text + length);
            const char *got = text;
            char *wanted = judge_nfc(text, length, &wanted_length);
            CHECK(qw_nfc_normalize(&nfc, &got, &length));
            CHECK_MSG(length == wanted_length && memcmp(got, wanted, length) == 0, "U+%04X after %zu",
                      (unsigned)code, i);
            free(wanted);
        }
    }
    qw_nfc_release(&nfc);
}

/* A long run of marks: the order is that of a stable sort. */
TEST(tokenizer_pieces, nfc_of_many_marks)
{
    const qw_allocator allocator = qw_allocator_default();
    qw_nfc nfc = {.allocator = &allocator, .unicode = &unicode};
    static const char *const marks[] = {"\xcc\x81", "\xcc\xa3", "\xcc\xb4", "\xcc\x95", "\xcd\x85"};
    char text[2000];
    size_t length = 1, wanted_length = 0;
    uint64_t state = 3;
    qw_unicode_build(&unicode);
    text[0] = 'q';
    while (length + 2 <= sizeof text) {
        memcpy(text + length, marks[fixture_random(&state, QW_COUNT_OF(marks))], 2);
        length += 2;
    }
    char *wanted = judge_nfc(text, length, &wanted_length);
    const char *got = text;
    CHECK(qw_nfc_normalize(&nfc, &got, &length));
    CHECK(length == wanted_length && memcmp(got, wanted, length) == 0);
    free(wanted);
    qw_nfc_release(&nfc);
}

/* Pieces of few kinds of bytes, short and long, so that many pairs compete. */
TEST(tokenizer_pieces, merges_equal_the_plain_way)
{
    qwen36_tokenizer *t = fixture_tokenizer(NULL);
    qw_bpe bpe = {.allocator = &t->allocator, .merges = &t->merges};
    uint64_t state = 4;
    for (int round = 0; round < 4000; round++) {
        static const char letters[] = "aaaabchello world\xc3\xa9\xcc\x81==  the";
        char text[300];
        int32_t wanted[300];
        uint32_t got[300];
        size_t length = 1 + fixture_random(&state, round % 4 == 0 ? 299 : 40);
        for (size_t i = 0; i < length; i++)
            text[i] = letters[fixture_random(&state, round % 2 == 0 ? 6 : sizeof letters - 1)];
        size_t count = judge_merge(text, length, wanted);
        CHECK_INT(qw_bpe_encode(&bpe, text, length, got), count);
        for (size_t i = 0; i < count; i++)
            CHECK_INT(got[i], wanted[i]);
    }
    qw_bpe_release(&bpe);
    qwen36_tokenizer_destroy(t);
}

static void check_whole(const qwen36_tokenizer *t, const char *pattern, uint64_t seed)
{
    for (int round = 0; round < 1500; round++) {
        char text[300];
        int32_t wanted[900], got[900];
        size_t length = fixture_random_text(&seed, text, sizeof text), count = 0;
        if (has_180e(text, length))
            continue;
        size_t wanted_count = judge_encode(pattern, text, length, wanted);
        CHECK_INT(qwen36_tokenizer_encode(t, text, length, 0, got, 900, &count, NULL), QWEN36_OK);
        CHECK_MSG(count == wanted_count && memcmp(got, wanted, count * sizeof *got) == 0, "%.*s", (int)length,
                  text);
    }
}

TEST(tokenizer_pieces, encode_equals_the_judge)
{
    static const char other[] = "\\s?\\p{Lu}?\\p{Ll}+|\\p{N}{1,3}|[^\\s\\p{L}\\p{N}]+|\\p{L}|\\s+";
    const char *const patterns[] = {qw_pattern_words_marks, qw_pattern_words, other};
    for (size_t i = 0; i < QW_COUNT_OF(patterns); i++) {
        qwen36_tokenizer *t = fixture_tokenizer(patterns[i]);
        check_whole(t, patterns[i], 5 + i);
        qwen36_tokenizer_destroy(t);
    }
}

/* U+180E is no white space in Unicode, though PCRE2 has it in \s. */
TEST(tokenizer_pieces, white_space_of_other_expressions_is_unicodes)
{
    qwen36_tokenizer *t = fixture_tokenizer("\\S+|[\\s]+");
    int32_t ids[16];
    size_t count = 0;
    CHECK_INT(qwen36_tokenizer_encode(t, "a\xe1\xa0\x8e b", 6, 0, ids, 16, &count, NULL), QWEN36_OK);
    CHECK_INT(count, 6);
    size_t at = 0, begin, end;
    qw_regex_match *match = qw_regex_match_create(t->pretokenizer.regex);
    CHECK_INT(qw_regex_find(t->pretokenizer.regex, match, "a\xe1\xa0\x8e b", 6, at, &begin, &end, NULL),
              QWEN36_OK);
    CHECK(begin == 0 && end == 4);
    qw_regex_match_destroy(match);
    qwen36_tokenizer_destroy(t);
}

/* What no alternative matches is a piece too, and an empty match is none. */
TEST(tokenizer_pieces, gaps_and_empty_matches)
{
    qwen36_tokenizer *t = fixture_tokenizer("(?:he|x)*");
    CHECK_TEXT(fixture_ids(t, "hehe", 4, 0), "256 256");
    CHECK_TEXT(fixture_ids(t, "abchello", 8, 0), "276 256 257 111");
    CHECK_TEXT(fixture_ids(t, "\xc3\xa9", 2, 0), "270");
    qwen36_tokenizer_destroy(t);
}

/* One megabyte of one thing; a quadratic step would take minutes. */
TEST(tokenizer_pieces, a_megabyte_of_one_thing)
{
    static const char *const units[] = {"a",
                                        " ",
                                        "=",
                                        "\xcc\x81",
                                        "\xcc\x81\xcc\xa3",
                                        "\n",
                                        "1",
                                        "ab",
                                        "<|en",
                                        "\xff",
                                        "\xe1\x84\x92\xe1\x85\xa1\xe1\x86\xab",
                                        "he l'"};
    enum { SIZE = 1 << 20 };
    char *text = malloc(SIZE);
    int32_t *ids = malloc(3 * SIZE * sizeof *ids);
    qwen36_tokenizer *t = fixture_tokenizer(NULL), *other = fixture_tokenizer("\\s+|\\S+");
    CHECK(text != NULL && ids != NULL);
    for (size_t i = 0; i < QW_COUNT_OF(units); i++) {
        size_t unit = strlen(units[i]), length = SIZE / unit * unit, count = 0;
        for (size_t at = 0; at < length; at += unit)
            memcpy(text + at, units[i], unit);
        CHECK_INT(qwen36_tokenizer_encode(t, text, length, 1, ids, 3 * SIZE, &count, NULL), QWEN36_OK);
        if (i == 0)
            CHECK(count == SIZE / 4 && ids[0] == 268 && ids[count - 1] == 268);
        CHECK_INT(qwen36_tokenizer_encode(other, text, length, 1, ids, 3 * SIZE, &count, NULL), QWEN36_OK);
    }
    qwen36_tokenizer_destroy(t);
    qwen36_tokenizer_destroy(other);
    free(text);
    free(ids);
}
