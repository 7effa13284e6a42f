#include "lib/text/pretokenize.h"

#include "lib/text/utf8.h"

#include <string.h>

const char qw_pattern_words_marks[] =
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?[\\p{L}\\p{M}]+|\\p{N}"
    "| ?[^\\s\\p{L}\\p{M}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+";
const char qw_pattern_words[] = "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}"
                                "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+";

static bool is_text(const char *pattern, size_t length, const char *known)
{
    return strlen(known) == length && memcmp(pattern, known, length) == 0;
}

qw_pattern qw_pretokenizer_recognize(const char *pattern, size_t length)
{
    if (is_text(pattern, length, qw_pattern_words_marks))
        return QW_PATTERN_WORDS_MARKS;
    if (is_text(pattern, length, qw_pattern_words))
        return QW_PATTERN_WORDS;
    return QW_PATTERN_OTHER;
}

/* The text being scanned, and sets of classes as masks. */
typedef struct scan {
    const qw_unicode *unicode;
    const char *text;
    size_t length;
    unsigned word;        /* what words consist of */
    unsigned punctuation; /* what is neither word, number nor space */
} scan;

#define SET(class) (1u << (QW_CLASS_##class))
#define SET_BLANK (SET(SPACE) | SET(NEWLINE))
/* What may stand before a word and belong to it: anything but line breaks, letters and numbers. */
#define SET_LEAD (SET(OTHER) | SET(MARK) | SET(SPACE))

/* The class at `at`, as a set of one, and where the next code point begins. */
static inline unsigned class_at(const scan *s, size_t at, size_t *next)
{
    size_t size;
    int32_t code = qw_utf8_next(s->text + at, &size);
    *next = at + size;
    return 1u << (qw_unicode_get(s->unicode, code) & QW_CLASS_BITS);
}

/* The end of the run of classes in `set` from `at` on. */
static inline size_t run_end(const scan *s, unsigned set, size_t at)
{
    size_t next;
    while (at < s->length && (class_at(s, at, &next) & set) != 0)
        at = next;
    return at;
}

/* After an apostrophe at `at`: the end of 's 't 're 've 'm 'll 'd in either case, or 0. The long s (U+017F)
 * is an s to a caseless comparison. */
static size_t contraction_end(const scan *s, size_t at)
{
    const char *p = s->text + at + 1;
    size_t left = s->length - at - 1;
    if (left >= 2 && memcmp(p, "\xc5\xbf", 2) == 0)
        return at + 3;
    if (left < 1 || (p[0] & 0x80) != 0)
        return 0;
    int first = p[0] | 0x20, second = left >= 2 ? p[1] | 0x20 : 0;
    if (first == 's' || first == 't' || first == 'm' || first == 'd')
        return at + 2;
    if (((first == 'r' || first == 'v') && second == 'e') || (first == 'l' && second == 'l'))
        return at + 3;
    return 0;
}

/* White space from `at` on: up to its last line break if it has one; else all but the last character, which
 * goes with the word to come; all of it at the end of the text or if it is one character. */
static size_t blank_end(const scan *s, size_t at)
{
    size_t end = at, next = at, after_break = 0, last = at;
    unsigned class;
    while (end < s->length && ((class = class_at(s, end, &next)) & SET_BLANK) != 0) {
        if (class == SET(NEWLINE))
            after_break = next;
        last = end;
        end = next;
    }
    if (after_break > 0)
        return after_break;
    return end == s->length || last == at ? end : last;
}

size_t qw_pretokenizer_scan(const qw_unicode *unicode, qw_pattern pattern, const char *text, size_t length,
                            size_t at)
{
    bool marks = pattern == QW_PATTERN_WORDS_MARKS;
    const scan s = {unicode, text, length, marks ? SET(LETTER) | SET(MARK) : SET(LETTER),
                    marks ? SET(OTHER) : SET(OTHER) | SET(MARK)};
    size_t second, third;
    if (text[at] == '\'') {
        size_t end = contraction_end(&s, at);
        if (end > 0)
            return end;
    }
    unsigned class = class_at(&s, at, &second);
    if ((class & s.word) != 0)
        return run_end(&s, s.word, second);
    unsigned following = second < length ? class_at(&s, second, &third) : 0;
    if ((class & SET_LEAD) != 0 && (following & s.word) != 0)
        return run_end(&s, s.word, third);
    if (class == SET(NUMBER))
        return second;
    if ((class & s.punctuation) != 0 || (text[at] == ' ' && (following & s.punctuation) != 0))
        return run_end(&s, SET(NEWLINE), run_end(&s, s.punctuation, second));
    return blank_end(&s, at);
}
