/* Strict JSON on top of cJSON.
 *
 * cJSON builds the tree, but it takes much that RFC 8259 forbids. So the text is checked first, by a scan
 * that allocates nothing: one value and nothing after it, UTF-8 without byte order mark, no raw control
 * characters, no lone surrogates, no NUL (also not as \u0000: C strings could not hold it), numbers as in
 * the grammar and at most 63 characters long, nesting at most 64 deep. Duplicate keys are found in the tree,
 * where escapes are gone.
 *
 * cJSON has one global, its error pointer: all parsing runs under one lock, and no hooks are set. It reads
 * numbers by strtod: the parsing thread has the C locale meanwhile.
 */
#ifndef QW_JSON_H
#define QW_JSON_H

#include "lib/base/base.h"

#include <cjson/cJSON.h>

#define QW_JSON_DEPTH_MAX 64
#define QW_JSON_NUMBER_MAX 63

/* The tree (free it by qw_json_delete), or NULL with the error set: QWEN36_ERROR_JSON naming `file`, the
 * byte and the reason, or QWEN36_ERROR_OUT_OF_MEMORY. `text` needs no terminator. Only `error` tells which:
 * a caller that wants the status passes one of its own, cleared. */
cJSON *qw_json_parse(const char *text, size_t length, const char *file, qwen36_error *error);
void qw_json_delete(cJSON *tree);

/* A member by its exact name; NULL if absent or if `object` is NULL or no object. Linear: for objects with
 * few members. */
const cJSON *qw_json_member(const cJSON *object, const char *name);

/* Typed values; false (and *out unchanged) for NULL, another type, or a value out of range. An integer may
 * be written 4.0; beyond 2^53 doubles have holes, so those are refused. Doubles are finite. */
bool qw_json_int64(const cJSON *item, int64_t min, int64_t max, int64_t *out);
bool qw_json_double(const cJSON *item, double *out);
bool qw_json_bool(const cJSON *item, bool *out);
const char *qw_json_string(const cJSON *item); /* NULL: not a string */

/* --- The parts, for texts too large for a tree ---------------------------------------------------- */

/* NULL if the text is strict JSON (duplicate keys apart), else the reason, and *where is the byte. */
const char *qw_json_check(const char *text, size_t length, size_t *where);
/* The same for a text that never becomes a tree of cJSON: \u0000 is allowed, and numbers have up to 4300
 * characters, as many as Python reads. */
#define QW_JSON_WIDE_NUMBER_MAX 4300
const char *qw_json_check_wide(const char *text, size_t length, size_t *where);
/* The tree of a text that qw_json_check accepted; NULL: out of memory. */
cJSON *qw_json_tree(const char *text, size_t length);

typedef enum qw_json_unique { QW_JSON_UNIQUE, QW_JSON_DUPLICATE, QW_JSON_NO_MEMORY } qw_json_unique;
/* Whether each object in the tree has distinct keys; *key is a duplicate one (borrowed from the tree). */
qw_json_unique qw_json_check_unique(const cJSON *tree, const char **key);

typedef struct qw_json_span {
    const char *text;
    size_t length;
} qw_json_span;

/* Where the value of a checked text begins, behind white space. */
static inline const char *qw_json_begin(const char *text)
{
    while (*text == ' ' || *text == '\t' || *text == '\r' || *text == '\n')
        text++;
    return text;
}

/* Walks over the members of an object, or the elements of an array, whose text was checked; starts at its
 * opening bracket. `key` (NULL for arrays) is the name as written, without its quotes. */
typedef struct qw_json_walk {
    const char *at;
} qw_json_walk;
bool qw_json_next(qw_json_walk *walk, qw_json_span *key, qw_json_span *value);

/* A number written as plain decimal digits that fits 64 bits: exact where a double is not. */
bool qw_json_uint64(qw_json_span value, uint64_t *out);

#endif
