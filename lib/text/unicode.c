#include "lib/text/unicode.h"

#include <utf8proc.h>

size_t qw_unicode_decompose(int32_t code, int32_t out[QW_DECOMPOSITION_MAX])
{
    int boundary = 0;
    utf8proc_ssize_t n =
        utf8proc_decompose_char(code, out, QW_DECOMPOSITION_MAX, UTF8PROC_DECOMPOSE, &boundary);
    if (n >= 1 && n <= QW_DECOMPOSITION_MAX)
        return (size_t)n;
    out[0] = code;
    return 1;
}

unsigned char qw_unicode_combining_class(int32_t code)
{
    return (unsigned char)utf8proc_get_property(code)->combining_class;
}

size_t qw_unicode_compose(int32_t *codes, size_t count)
{
    /* STABLE honours the composition exclusions, as NFC does. */
    utf8proc_ssize_t n =
        utf8proc_normalize_utf32(codes, (utf8proc_ssize_t)count, UTF8PROC_COMPOSE | UTF8PROC_STABLE);
    return n < 0 ? count : (size_t)n;
}

static unsigned char class_of(int32_t code)
{
    if (code == '\n' || code == '\r')
        return QW_CLASS_NEWLINE;
    if ((code >= '\t' && code <= '\r') || code == 0x85)
        return QW_CLASS_SPACE;
    switch (utf8proc_category(code)) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
        return QW_CLASS_LETTER;
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_MC:
    case UTF8PROC_CATEGORY_ME:
        return QW_CLASS_MARK;
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_NO:
        return QW_CLASS_NUMBER;
    case UTF8PROC_CATEGORY_ZS:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
        return QW_CLASS_SPACE;
    default:
        return QW_CLASS_OTHER;
    }
}

/* The flag of a code point by itself: what its decomposition composes to is not it. */
static unsigned char changes(int32_t code, int32_t parts[QW_DECOMPOSITION_MAX], size_t count)
{
    if (count == 1 && parts[0] == code)
        return 0;
    return qw_unicode_compose(parts, count) == 1 && parts[0] == code ? 0 : QW_NFC_UNSTABLE;
}

unsigned char qw_unicode_beyond(int32_t code)
{
    int32_t parts[QW_DECOMPOSITION_MAX];
    size_t count = qw_unicode_decompose(code, parts);
    unsigned char ordered = qw_unicode_combining_class(code) > 0 ? QW_NFC_ORDERED : 0;
    return class_of(code) | ordered | changes(code, parts, count);
}

/* What stands second or later in a decomposition may join what is before it. That is a little more than
 * Unicode's NFC_Quick_Check=Maybe, which costs a look and changes nothing. */
static void mark_joining(qw_unicode *table, const int32_t *parts, size_t count)
{
    for (size_t i = 1; i < count; i++)
        if (parts[i] < QW_UNICODE_TABLE_SIZE)
            table->of[parts[i]] |= QW_NFC_UNSTABLE;
}

void qw_unicode_build(qw_unicode *table)
{
    int32_t parts[QW_DECOMPOSITION_MAX];
    for (int32_t code = 0; code < QW_UNICODE_TABLE_SIZE; code++)
        table->of[code] = 0;
    for (int32_t code = 0; code < QW_UNICODE_TABLE_SIZE; code++) {
        size_t count = qw_unicode_decompose(code, parts);
        mark_joining(table, parts, count);
        table->of[code] |= class_of(code) | changes(code, parts, count);
        if (qw_unicode_combining_class(code) > 0)
            table->of[code] |= QW_NFC_ORDERED;
    }
}
