/* UTF-8: reading with the rules of Python's errors="replace", and writing.
 *
 * An invalid sequence is replaced by U+FFFD once for each maximal part: the longest prefix of a well-formed
 * sequence, or else one byte.
 */
#ifndef QW_TEXT_UTF8_H
#define QW_TEXT_UTF8_H

#include "lib/base/base.h"

/* What qw_utf8_read returns instead of a code point. */
enum {
    QW_UTF8_INVALID = -1,  /* a maximal part that nothing can complete */
    QW_UTF8_TRUNCATED = -2 /* the text ends within what may still become a character */
};

#define QW_UTF8_REPLACEMENT "\xef\xbf\xbd"
#define QW_UTF8_REPLACEMENT_SIZE 3
#define QW_UTF8_CODE_SIZE 4 /* bytes of the longest sequence */

/* The code point at text[0 .. length), length >= 1, and the size of its sequence, or of the maximal part. */
int32_t qw_utf8_read(const char *text, size_t length, size_t *size);

/* Length of the longest prefix that is well-formed. */
size_t qw_utf8_valid_prefix(const char *text, size_t length);

/* Writes a code point; returns 1 .. 4. */
size_t qw_utf8_write(int32_t code, char *out);

/* Copies `text`, replacing what is invalid; `out` has room for 3 x length bytes. Returns the length. When
 * `held` is not NULL a truncated end is not replaced but left out, and *held is its size (0 .. 3). */
size_t qw_utf8_repair(const char *text, size_t length, char *out, size_t *held);

/* The code point at `text` and the size of its sequence, for well-formed text. */
static inline int32_t qw_utf8_next(const char *text, size_t *size)
{
    const unsigned char *s = (const unsigned char *)text;
    if (s[0] < 0x80) {
        *size = 1;
        return s[0];
    }
    if (s[0] < 0xe0) {
        *size = 2;
        return (s[0] & 0x1f) << 6 | (s[1] & 0x3f);
    }
    if (s[0] < 0xf0) {
        *size = 3;
        return (s[0] & 0x0f) << 12 | (s[1] & 0x3f) << 6 | (s[2] & 0x3f);
    }
    *size = 4;
    return (s[0] & 0x07) << 18 | (s[1] & 0x3f) << 12 | (s[2] & 0x3f) << 6 | (s[3] & 0x3f);
}

/* Whether the eight bytes at `text` are all ASCII. */
static inline bool qw_utf8_ascii8(const char *text)
{
    uint64_t word;
    __builtin_memcpy(&word, text, sizeof word);
    return (word & 0x8080808080808080u) == 0;
}

#endif
