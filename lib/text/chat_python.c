#include "lib/text/chat_python.h"

#include "lib/text/chat_number.h"
#include "lib/text/utf8.h"

#include <string.h>
#include <utf8proc.h>

static void add_text(qw_chat_text *out, const char *text)
{
    qw_chat_text_add(out, text, strlen(text));
}

/* "-0" is the whole number 0. */
static void add_int(qw_chat_text *out, qw_json_span number)
{
    if (number.length == 2 && memcmp(number.text, "-0", 2) == 0)
        add_text(out, "0");
    else
        qw_chat_text_add(out, number.text, number.length);
}

/* ---- json.dumps ------------------------------------------------------------------------------------ */

static void dump_float(qw_chat_text *out, qw_json_span number)
{
    char digits[QW_FLOAT_REPR_SIZE];
    size_t length = qw_float_repr(number.text, number.length, digits);
    if (digits[length - 1] == 'f')
        add_text(out, digits[0] == '-' ? "-Infinity" : "Infinity");
    else
        qw_chat_text_add(out, digits, length);
}

/* The escape of a character that needs one; returns its length. */
static size_t escape_json(unsigned char c, char out[6])
{
    static const char hex[] = "0123456789abcdef", plain[] = "\"\\\b\f\n\r\t", names[] = "\"\\bfnrt";
    const char *found = c != 0 ? strchr(plain, c) : NULL;
    out[0] = '\\';
    if (found != NULL) {
        out[1] = names[found - plain];
        return 2;
    }
    memcpy(out + 1, "u00", 3);
    out[4] = hex[c >> 4];
    out[5] = hex[c & 15];
    return 6;
}

static void dump_str(qw_chat_text *out, qw_json_span text)
{
    size_t done = 0;
    char escape[6];
    add_text(out, "\"");
    for (size_t i = 0; i < text.length; i++) {
        unsigned char c = (unsigned char)text.text[i];
        if (c >= 0x20 && c != '"' && c != '\\')
            continue;
        qw_chat_text_add(out, text.text + done, i - done);
        qw_chat_text_add(out, escape, escape_json(c, escape));
        done = i + 1;
    }
    qw_chat_text_add(out, text.text + done, text.length - done);
    add_text(out, "\"");
}

static void dump_container(qw_chat_text *out, const qw_value *value)
{
    bool dict = value->kind == QW_VALUE_DICT;
    add_text(out, dict ? "{" : "[");
    for (const qw_value *child = value->first; child != NULL; child = child->next) {
        if (child != value->first)
            add_text(out, ", ");
        if (dict) {
            dump_str(out, child->key);
            add_text(out, ": ");
        }
        qw_python_dumps(out, child);
    }
    add_text(out, dict ? "}" : "]");
}

void qw_python_dumps(qw_chat_text *out, const qw_value *value)
{
    switch (value->kind) {
    case QW_VALUE_NONE:
        add_text(out, "null");
        break;
    case QW_VALUE_BOOL:
        add_text(out, value->truth ? "true" : "false");
        break;
    case QW_VALUE_INT:
        add_int(out, value->text);
        break;
    case QW_VALUE_FLOAT:
        dump_float(out, value->text);
        break;
    case QW_VALUE_STR:
        dump_str(out, value->text);
        break;
    default:
        dump_container(out, value);
    }
}

/* ---- str and repr ----------------------------------------------------------------------------------- */

/* str.isprintable() of one character. */
static bool is_printable(int32_t code)
{
    switch (utf8proc_category(code)) {
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
        return false;
    case UTF8PROC_CATEGORY_ZS:
        return code == ' ';
    default:
        return true;
    }
}

/* \n, \x7f, \u2028 or \U000e0001; returns the length. */
static size_t escape_repr(int32_t code, char out[10])
{
    static const char hex[] = "0123456789abcdef";
    const char *name = code == '\n' ? "n" : code == '\r' ? "r" : code == '\t' ? "t" : NULL;
    size_t digits = code < 0x100 ? 2 : code < 0x10000 ? 4 : 8;
    out[0] = '\\';
    out[1] = name != NULL ? *name : digits == 2 ? 'x' : digits == 4 ? 'u' : 'U';
    if (name != NULL)
        return 2;
    for (size_t i = 0; i < digits; i++)
        out[2 + i] = hex[(uint32_t)code >> 4 * (digits - 1 - i) & 15];
    return 2 + digits;
}

static void repr_str(qw_chat_text *out, qw_json_span text)
{
    bool single = memchr(text.text, '\'', text.length) != NULL;
    const char quote = single && memchr(text.text, '"', text.length) == NULL ? '"' : '\'';
    char escape[10];
    qw_chat_text_add(out, &quote, 1);
    for (size_t at = 0, size; at < text.length; at += size) {
        int32_t code = qw_utf8_next(text.text + at, &size);
        if (code == quote || code == '\\')
            add_text(out, "\\");
        if (is_printable(code))
            qw_chat_text_add(out, text.text + at, size);
        else
            qw_chat_text_add(out, escape, escape_repr(code, escape));
    }
    qw_chat_text_add(out, &quote, 1);
}

static void repr(qw_chat_text *out, const qw_value *value);

static void repr_container(qw_chat_text *out, const qw_value *value)
{
    bool dict = value->kind == QW_VALUE_DICT;
    add_text(out, dict ? "{" : "[");
    for (const qw_value *child = value->first; child != NULL; child = child->next) {
        if (child != value->first)
            add_text(out, ", ");
        if (dict) {
            repr_str(out, child->key);
            add_text(out, ": ");
        }
        repr(out, child);
    }
    add_text(out, dict ? "}" : "]");
}

static void repr(qw_chat_text *out, const qw_value *value)
{
    char digits[QW_FLOAT_REPR_SIZE];
    switch (value->kind) {
    case QW_VALUE_NONE:
        add_text(out, "None");
        break;
    case QW_VALUE_BOOL:
        add_text(out, value->truth ? "True" : "False");
        break;
    case QW_VALUE_INT:
        add_int(out, value->text);
        break;
    case QW_VALUE_FLOAT:
        qw_chat_text_add(out, digits, qw_float_repr(value->text.text, value->text.length, digits));
        break;
    case QW_VALUE_STR:
        repr_str(out, value->text);
        break;
    default:
        repr_container(out, value);
    }
}

void qw_python_str(qw_chat_text *out, const qw_value *value)
{
    if (value->kind == QW_VALUE_STR)
        qw_chat_text_add(out, value->text.text, value->text.length);
    else
        repr(out, value);
}

/* ---- strip -------------------------------------------------------------------------------------------- */

static bool is_space(int32_t c)
{
    return (c >= 0x09 && c <= 0x0d) || (c >= 0x1c && c <= 0x20) || c == 0x85 || c == 0xa0 || c == 0x1680 ||
           (c >= 0x2000 && c <= 0x200a) || c == 0x2028 || c == 0x2029 || c == 0x202f || c == 0x205f ||
           c == 0x3000;
}

qw_chat_slice qw_python_strip(qw_chat_slice slice)
{
    const char *bytes = slice.text->bytes;
    size_t size;
    while (slice.begin < slice.end && is_space(qw_utf8_next(bytes + slice.begin, &size)))
        slice.begin += size;
    while (slice.begin < slice.end) {
        size_t at = slice.end - 1;
        while (at > slice.begin && (bytes[at] & 0xc0) == 0x80)
            at--;
        if (!is_space(qw_utf8_next(bytes + at, &size)))
            break;
        slice.end = at;
    }
    return slice;
}
