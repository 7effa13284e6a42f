/* A small tokenizer.json for fuzzers, whose first 256 ids are the bytes. */
#ifndef QW_TESTS_TOKENIZER_FILE_H
#define QW_TESTS_TOKENIZER_FILE_H

#include "lib/text/bytelevel.h"
#include "lib/text/utf8.h"

#include <stdio.h>
#include <string.h>

#define TOKENIZER_FILE_MIDDLE                                                                                \
    "\"normalizer\":{\"type\":\"NFC\"},\"decoder\":{\"type\":\"ByteLevel\"},"                                \
    "\"pre_tokenizer\":{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"Split\",\"behavior\":"          \
    "\"Isolated\",\"pattern\":{\"Regex\":\"\\\\s?\\\\p{L}+|[^\\\\s\\\\p{L}]+|\\\\s+\"}},"                    \
    "{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"use_regex\":false}]},"

/* Writes it; returns its length. `settings` is all of it up to the last of the tokens behind the bytes. */
static inline size_t tokenizer_file(const char *settings, char *out)
{
    qw_bytelevel map;
    char *o = stpcpy(out, settings);
    qw_bytelevel_init(&map);
    for (int32_t code = 0; code < QW_BYTELEVEL_CODES; code++) {
        if (map.byte_of[code] < 0)
            continue;
        o = stpcpy(o, code == '"' || code == '\\' ? ",\"\\" : ",\"");
        o += qw_utf8_write(code, o);
        o += sprintf(o, "\":%d", map.byte_of[code]);
    }
    o = stpcpy(o, "}}}");
    return (size_t)(o - out);
}

#endif
