#include "lib/text/unicode.h"

#include <string.h>
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

/* By general category; what is not named is QW_CLASS_OTHER. */
static const unsigned char classes[] = {
    [UTF8PROC_CATEGORY_LU] = QW_CLASS_LETTER, [UTF8PROC_CATEGORY_LL] = QW_CLASS_LETTER,
    [UTF8PROC_CATEGORY_LT] = QW_CLASS_LETTER, [UTF8PROC_CATEGORY_LM] = QW_CLASS_LETTER,
    [UTF8PROC_CATEGORY_LO] = QW_CLASS_LETTER, [UTF8PROC_CATEGORY_MN] = QW_CLASS_MARK,
    [UTF8PROC_CATEGORY_MC] = QW_CLASS_MARK,   [UTF8PROC_CATEGORY_ME] = QW_CLASS_MARK,
    [UTF8PROC_CATEGORY_ND] = QW_CLASS_NUMBER, [UTF8PROC_CATEGORY_NL] = QW_CLASS_NUMBER,
    [UTF8PROC_CATEGORY_NO] = QW_CLASS_NUMBER, [UTF8PROC_CATEGORY_ZS] = QW_CLASS_SPACE,
    [UTF8PROC_CATEGORY_ZL] = QW_CLASS_SPACE,  [UTF8PROC_CATEGORY_ZP] = QW_CLASS_SPACE,
    [UTF8PROC_CATEGORY_CO] = QW_CLASS_OTHER};

static unsigned char class_of(int32_t code)
{
    if (code == '\n' || code == '\r')
        return QW_CLASS_NEWLINE;
    if ((code >= '\t' && code <= '\r') || code == 0x85)
        return QW_CLASS_SPACE;
    unsigned category = (unsigned)utf8proc_category(code);
    return category < QW_COUNT_OF(classes) ? classes[category] : QW_CLASS_OTHER;
}

/* Whether what the decomposition of a code point composes to is something else. */
static bool changes(int32_t code, int32_t parts[QW_DECOMPOSITION_MAX], size_t count)
{
    return qw_unicode_compose(parts, count) != 1 || parts[0] != code;
}

/* What stands second or later in a decomposition may join what is before it. That is a little more than
 * Unicode's NFC_Quick_Check=Maybe, which costs a look and changes nothing. */
static void mark_joining(qw_unicode *table, const int32_t *parts, size_t count)
{
    for (size_t i = 1; i < count; i++)
        if (parts[i] < QW_UNICODE_TABLE_SIZE)
            table->of[parts[i]] |= QW_NFC_UNSTABLE;
}

/* Class and flags; what the decomposition says about others goes to `table` unless it is NULL. */
static unsigned char look_up(int32_t code, qw_unicode *table)
{
    int32_t parts[QW_DECOMPOSITION_MAX];
    unsigned result = class_of(code);
    size_t count = qw_unicode_decompose(code, parts);
    if (qw_unicode_combining_class(code) > 0)
        result |= QW_NFC_ORDERED;
    if (count == 1 && parts[0] == code)
        return (unsigned char)result;
    if (table != NULL)
        mark_joining(table, parts, count);
    if (changes(code, parts, count))
        result |= QW_NFC_UNSTABLE;
    return (unsigned char)result;
}

unsigned char qw_unicode_beyond(int32_t code)
{
    return look_up(code, NULL);
}

void qw_unicode_build(qw_unicode *table)
{
    memset(table, 0, sizeof *table);
    for (int32_t code = 0; code < QW_UNICODE_TABLE_SIZE; code++)
        table->of[code] |= look_up(code, table);
}
