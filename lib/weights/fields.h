/* Reading the members of a configuration object one by one: the first failure sticks, so a caller reads all
 * fields and looks at the status once. A member that is absent or null leaves its destination alone. */
#ifndef QW_FIELDS_H
#define QW_FIELDS_H

#include "lib/base/json.h"

typedef struct qw_fields {
    const cJSON *object; /* NULL or another type: has no members */
    const char *file;
    qwen36_error *error;
    qwen36_status status;
} qw_fields;

/* NULL: absent or null. */
const cJSON *qw_fields_find(const qw_fields *fields, const char *key);
void qw_fields_int(qw_fields *fields, const char *key, int32_t *out);
void qw_fields_double(qw_fields *fields, const char *key, double *out);
void qw_fields_bool(qw_fields *fields, const char *key, int32_t *out);
/* Borrowed from the tree. */
void qw_fields_text(qw_fields *fields, const char *key, const char **out);
/* Records a failure of the caller's own: "FILE: KEY ...". */
void qw_fields_fail(qw_fields *fields, qwen36_status status, const char *key, const char *expected);

#endif
