#include "lib/text/utf8.h"

#include <string.h>

/* The lead bytes that need more than one continuation byte restrict the first one, against overlong forms,
 * surrogates and code points above U+10FFFF. */
static void second_byte_range(unsigned char lead, unsigned char *low, unsigned char *high)
{
    *low = lead == 0xe0 ? 0xa0 : lead == 0xf0 ? 0x90 : 0x80;
    *high = lead == 0xed ? 0x9f : lead == 0xf4 ? 0x8f : 0xbf;
}

int32_t qw_utf8_read(const char *text, size_t length, size_t *size)
{
    const unsigned char *s = (const unsigned char *)text;
    unsigned char lead = s[0], low, high;
    *size = 1;
    if (lead < 0x80)
        return lead;
    if (lead < 0xc2 || lead > 0xf4)
        return QW_UTF8_INVALID;
    size_t wanted = lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : 2;
    int32_t code = lead & (0x7f >> wanted);
    second_byte_range(lead, &low, &high);
    for (; *size < wanted; ++*size) {
        if (*size == length)
            return QW_UTF8_TRUNCATED;
        unsigned char c = s[*size];
        if (c < low || c > high)
            return QW_UTF8_INVALID;
        code = code << 6 | (c & 0x3f);
        low = 0x80;
        high = 0xbf;
    }
    return code;
}

size_t qw_utf8_valid_prefix(const char *text, size_t length)
{
    size_t at = 0, size;
    while (at < length) {
        if (length - at >= 8 && qw_utf8_ascii8(text + at)) {
            at += 8;
            continue;
        }
        if (qw_utf8_read(text + at, length - at, &size) < 0)
            break;
        at += size;
    }
    return at;
}

size_t qw_utf8_write(int32_t code, char *out)
{
    unsigned char *o = (unsigned char *)out;
    uint32_t c = (uint32_t)code;
    if (c < 0x80) {
        o[0] = (unsigned char)c;
        return 1;
    }
    size_t size = c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
    for (size_t i = size - 1; i > 0; i--, c >>= 6)
        o[i] = (unsigned char)(0x80 | (c & 0x3f));
    o[0] = (unsigned char)((0xf00u >> size) | c);
    return size;
}

size_t qw_utf8_repair(const char *text, size_t length, char *out, size_t *held)
{
    size_t at = 0, written = 0, size;
    if (held != NULL)
        *held = 0;
    while (at < length) {
        size_t good = qw_utf8_valid_prefix(text + at, length - at);
        memcpy(out + written, text + at, good);
        written += good;
        at += good;
        if (at == length)
            break;
        if (qw_utf8_read(text + at, length - at, &size) == QW_UTF8_TRUNCATED && held != NULL) {
            *held = size;
            break;
        }
        memcpy(out + written, QW_UTF8_REPLACEMENT, QW_UTF8_REPLACEMENT_SIZE);
        written += QW_UTF8_REPLACEMENT_SIZE;
        at += size;
    }
    return written;
}
