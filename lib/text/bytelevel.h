/* The strings of a byte-level vocabulary: JSON strings in which every character stands for one byte.
 * Printable Latin-1 stands for itself, the other 68 bytes for U+0100 .. U+0143 in order. */
#ifndef QW_TEXT_BYTELEVEL_H
#define QW_TEXT_BYTELEVEL_H

#include "lib/base/json.h"

#define QW_BYTELEVEL_CODES 0x144

typedef struct qw_bytelevel {
    int16_t byte_of[QW_BYTELEVEL_CODES]; /* -1: no byte */
} qw_bytelevel;

void qw_bytelevel_init(qw_bytelevel *map);

/* Writes the characters of a checked JSON string, given with its quotes or as a key without them, as UTF-8;
 * returns the length, at most that of the string. */
size_t qw_json_unescape(qw_json_span string, char *out);

/* Characters to bytes, in place; returns the number of bytes. A text with a character that stands for no
 * byte is left as it is. */
size_t qw_bytelevel_decode(const qw_bytelevel *map, char *text, size_t length);

#endif
