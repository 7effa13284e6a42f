/* JSON of a chat request as the values that a template sees in Python: members in order, the last of equal
 * keys winning at the place of the first; whole numbers as they are written; strings with any character.
 *
 * The text is checked by the strict scan of lib/base/json.h, then read in one pass into an arena. Strings
 * without escapes and numbers point into the text, which must outlive the values.
 */
#ifndef QW_TEXT_CHAT_VALUE_H
#define QW_TEXT_CHAT_VALUE_H

#include "lib/base/json.h"

typedef enum qw_value_kind {
    QW_VALUE_NONE,
    QW_VALUE_BOOL,
    QW_VALUE_INT,
    QW_VALUE_FLOAT,
    QW_VALUE_STR,
    QW_VALUE_LIST,
    QW_VALUE_DICT
} qw_value_kind;

/* A NULL pointer to a value is jinja's undefined. */
typedef struct qw_value {
    qw_value_kind kind;
    bool truth;        /* BOOL */
    qw_json_span text; /* STR: its characters; INT, FLOAT: as written */
    qw_json_span key;  /* of a member of a DICT */
    struct qw_value *next, *previous;
    struct qw_value *first, *last; /* LIST, DICT */
    size_t count;                  /* LIST, DICT: children */
} qw_value;

/* Owns all values of a call. Begins zeroed but for the allocator. */
typedef struct qw_values {
    const qw_allocator *allocator;
    struct qw_value_chunk *chunks;
} qw_values;

void qw_values_release(qw_values *values);

/* The value of a text; `name` says in errors what it is. QWEN36_ERROR_CHAT_MESSAGES when it is no strict JSON
 * or nested more than QW_JSON_DEPTH_MAX deep. */
qwen36_status qw_value_parse(qw_values *values, const char *text, size_t length, const char *name,
                             const qw_value **out, qwen36_error *error);

/* A member of a DICT; NULL: undefined (also in any other value, as jinja finds no such attribute there). */
const qw_value *qw_value_get(const qw_value *value, const char *key);
bool qw_value_is(const qw_value *value, qw_value_kind kind);
/* Whether it is a STR of exactly this text. */
bool qw_value_equals(const qw_value *value, const char *text);
/* Python's bool(). */
bool qw_value_truth(const qw_value *value);
/* Python's name of the type: "NoneType", "str" ... */
const char *qw_value_type(const qw_value *value);

/* Walks over the elements of a LIST, or over the characters of a STR: starts with `at` NULL; NULL is the end.
 * A character lives in the walk until the next step. */
typedef struct qw_value_walk {
    const qw_value *container, *at;
    size_t offset;
    qw_value character;
} qw_value_walk;
const qw_value *qw_value_next(qw_value_walk *walk);

#endif
