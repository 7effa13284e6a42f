#include "lib/text/utf8.h"
#include "tests/harness.h"

/* What Python's bytes.decode(errors="replace") makes of these; R stands for U+FFFD. */
static const struct {
    const char *in, *out;
} replacements[] = {{"", ""},
                    {"plain ascii text", "plain ascii text"},
                    {"\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80", "\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80"},
                    {"\x80", "R"},
                    {"\xbf\xbf", "RR"},
                    {"\xc0\x80", "RR"},
                    {"\xc1\xbf", "RR"},
                    {"\xc3", "R"},
                    {"\xc3(", "R("},
                    {"\xe2\x82", "R"},
                    {"\xe2\x82x", "Rx"},
                    {"\xe2(\xa1", "R(R"},
                    {"\xe0\x80\x80", "RRR"},
                    {"\xe0\x9f\xbf", "RRR"},
                    {"\xe0\xa0", "R"},
                    {"\xed\xa0\x80", "RRR"},
                    {"\xed\x9f\xbf", "\xed\x9f\xbf"},
                    {"\xee\x80\x80", "\xee\x80\x80"},
                    {"\xf0\x80\x80\x80", "RRRR"},
                    {"\xf0\x8f\xbf\xbf", "RRRR"},
                    {"\xf0\x90\x80", "R"},
                    {"\xf0\x90\x80!", "R!"},
                    {"\xf0\x9f\x98", "R"},
                    {"\xf0\x9f\x98\xf0\x9f\x98\x80", "R\xf0\x9f\x98\x80"},
                    {"\xf4\x8f\xbf\xbf", "\xf4\x8f\xbf\xbf"},
                    {"\xf4\x90\x80\x80", "RRRR"},
                    {"\xf5\x80\x80\x80", "RRRR"},
                    {"\xf8\x88\x80\x80\x80", "RRRRR"},
                    {"\xff\xfe", "RR"},
                    {"a\xffz0123456789\xe2\x82\xacz\xe2\x82", "aRz0123456789\xe2\x82\xaczR"}};

static size_t spell(const char *text, char *out)
{
    char *o = out;
    for (; *text != '\0'; text++) {
        if (*text == 'R')
            o = stpcpy(o, QW_UTF8_REPLACEMENT);
        else
            *o++ = *text;
    }
    return (size_t)(o - out);
}

TEST(utf8, replaces_as_python_does)
{
    for (size_t i = 0; i < QW_COUNT_OF(replacements); i++) {
        char expected[256], got[256];
        size_t length = strlen(replacements[i].in), wanted = spell(replacements[i].out, expected);
        size_t n = qw_utf8_repair(replacements[i].in, length, got, NULL);
        CHECK_MSG(n == wanted && memcmp(got, expected, n) == 0, "case %zu", i);
        bool valid = strchr(replacements[i].out, 'R') == NULL;
        CHECK((qw_utf8_valid_prefix(replacements[i].in, length) == length) == valid);
    }
}

TEST(utf8, holds_back_a_truncated_end)
{
    static const struct {
        const char *in;
        size_t written, held;
    } cases[] = {{"a\xc3", 1, 1},        {"a\xe2\x82", 1, 2}, {"a\xf0\x9f\x98", 1, 3},
                 {"\xf0", 0, 1},         {"a\x80", 4, 0},     {"\xe0\x80", 6, 0},
                 {"\xed\xa0", 6, 0},     {"\xf4\x90", 6, 0},  {"\xe2\x82\xac", 3, 0},
                 {"\xff\xe2\x82", 3, 2}, {"", 0, 0},          {"\xc3\xc3", 3, 1}};
    for (size_t i = 0; i < QW_COUNT_OF(cases); i++) {
        char out[64];
        size_t held = 9;
        size_t n = qw_utf8_repair(cases[i].in, strlen(cases[i].in), out, &held);
        CHECK_MSG(n == cases[i].written && held == cases[i].held, "case %zu: %zu %zu", i, n, held);
    }
}

TEST(utf8, every_code_point_comes_back)
{
    for (int32_t code = 0; code < 0x110000; code++) {
        char text[QW_UTF8_CODE_SIZE];
        size_t size = qw_utf8_write(code, text), read = 0, next = 0;
        if (code >= 0xd800 && code < 0xe000) {
            CHECK(qw_utf8_read(text, size, &read) == QW_UTF8_INVALID && read == 1);
            continue;
        }
        CHECK_INT(qw_utf8_read(text, size, &read), code);
        CHECK_INT(qw_utf8_next(text, &next), code);
        CHECK(read == size && next == size);
        for (size_t cut = 1; cut < size; cut++)
            CHECK(qw_utf8_read(text, cut, &read) == QW_UTF8_TRUNCATED && read == cut);
    }
}

/* All sequences of three bytes from a set that has one member on each side of every boundary. */
TEST(utf8, repaired_text_is_valid)
{
    static const unsigned char set[] = {0x00, 0x41, 0x7f, 0x80, 0x8f, 0x90, 0x9f, 0xa0, 0xbf,
                                        0xc0, 0xc1, 0xc2, 0xdf, 0xe0, 0xe1, 0xec, 0xed, 0xee,
                                        0xef, 0xf0, 0xf1, 0xf3, 0xf4, 0xf5, 0xf7, 0xf8, 0xff};
    size_t n = sizeof set;
    for (size_t i = 0; i < n * n * n * n; i++) {
        const char text[4] = {(char)set[i % n], (char)set[i / n % n], (char)set[i / n / n % n],
                              (char)set[i / n / n / n]};
        char out[12], again[36];
        size_t length = qw_utf8_repair(text, 4, out, NULL);
        CHECK(qw_utf8_valid_prefix(out, length) == length);
        CHECK(qw_utf8_repair(out, length, again, NULL) == length && memcmp(out, again, length) == 0);
        size_t good = qw_utf8_valid_prefix(text, 4);
        CHECK(good <= length && memcmp(text, out, good) == 0);
        CHECK((good == 4) == (length == 4 && memcmp(text, out, 4) == 0));
    }
}
