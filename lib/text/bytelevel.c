#include "lib/text/bytelevel.h"

#include "lib/text/utf8.h"

#include <string.h>

static bool stands_for_itself(int byte)
{
    return (byte >= '!' && byte <= '~') || (byte >= 0xa1 && byte <= 0xac) || byte >= 0xae;
}

void qw_bytelevel_init(qw_bytelevel *map)
{
    int16_t next = 0x100;
    for (size_t i = 0; i < QW_BYTELEVEL_CODES; i++)
        map->byte_of[i] = -1;
    for (int16_t byte = 0; byte < 0x100; byte++)
        map->byte_of[stands_for_itself(byte) ? byte : next++] = byte;
}

static int32_t hex4(const char *p)
{
    int32_t value = 0;
    for (int i = 0; i < 4; i++)
        value = value * 16 + (p[i] <= '9' ? p[i] - '0' : (p[i] | 0x20) - 'a' + 10);
    return value;
}

/* The code point of the escape at `p`, behind its backslash; *p is moved behind it. */
static int32_t read_escape(const char **p)
{
    static const char names[] = "bfnrt", codes[] = "\b\f\n\r\t";
    char c = *(*p)++;
    if (c != 'u') {
        const char *name = strchr(names, c);
        return name != NULL ? codes[name - names] : c;
    }
    int32_t code = hex4(*p);
    *p += 4;
    if (code >= 0xd800 && code <= 0xdbff) {
        code = 0x10000 + ((code & 0x3ff) << 10 | (hex4(*p + 2) & 0x3ff));
        *p += 6;
    }
    return code;
}

size_t qw_json_unescape(qw_json_span string, char *out)
{
    const char *p = string.text, *end = p + string.length;
    char *o = out;
    if (string.length >= 2 && *p == '"') {
        p++;
        end--;
    }
    while (p < end) {
        if (*p != '\\') {
            *o++ = *p++;
            continue;
        }
        p++;
        o += qw_utf8_write(read_escape(&p), o);
    }
    return (size_t)(o - out);
}

size_t qw_bytelevel_decode(const qw_bytelevel *map, char *text, size_t length)
{
    size_t written = 0, size;
    for (size_t at = 0; at < length; at += size) {
        int32_t code = qw_utf8_next(text + at, &size);
        if (code >= QW_BYTELEVEL_CODES || map->byte_of[code] < 0)
            return length;
    }
    for (size_t at = 0; at < length; at += size)
        text[written++] = (char)map->byte_of[qw_utf8_next(text + at, &size)];
    return written;
}
