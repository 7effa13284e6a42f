#include "lib/weights/fields.h"

const cJSON *qw_fields_find(const qw_fields *fields, const char *key)
{
    const cJSON *item = qw_json_member(fields->object, key);
    return cJSON_IsNull(item) ? NULL : item;
}

void qw_fields_fail(qw_fields *fields, qwen36_status status, const char *key, const char *expected)
{
    if (fields->status != QWEN36_OK)
        return;
    const cJSON *item = qw_fields_find(fields, key);
    const char *text = qw_json_string(item);
    int64_t integer = 0;
    bool on = false;
    if (text != NULL)
        fields->status = qw_fail(fields->error, status, "%s: %s is \"%.80s\", expected %s", fields->file, key,
                                 text, expected);
    else if (qw_json_int64(item, INT64_MIN, INT64_MAX, &integer))
        fields->status = qw_fail(fields->error, status, "%s: %s is %lld, expected %s", fields->file, key,
                                 (long long)integer, expected);
    else if (qw_json_bool(item, &on))
        fields->status = qw_fail(fields->error, status, "%s: %s is %s, expected %s", fields->file, key,
                                 on ? "true" : "false", expected);
    else
        fields->status = qw_fail(fields->error, status, "%s: %s: expected %s", fields->file, key, expected);
}

void qw_fields_int(qw_fields *fields, const char *key, int32_t *out)
{
    const cJSON *item = qw_fields_find(fields, key);
    int64_t value = 0;
    if (item == NULL)
        return;
    if (!qw_json_int64(item, INT32_MIN, INT32_MAX, &value))
        qw_fields_fail(fields, QWEN36_ERROR_CONFIG, key, "an integer of 32 bits");
    else
        *out = (int32_t)value;
}

void qw_fields_double(qw_fields *fields, const char *key, double *out)
{
    const cJSON *item = qw_fields_find(fields, key);
    if (item != NULL && !qw_json_double(item, out))
        qw_fields_fail(fields, QWEN36_ERROR_CONFIG, key, "a number");
}

void qw_fields_bool(qw_fields *fields, const char *key, int32_t *out)
{
    const cJSON *item = qw_fields_find(fields, key);
    bool value = false;
    if (item == NULL)
        return;
    if (!qw_json_bool(item, &value))
        qw_fields_fail(fields, QWEN36_ERROR_CONFIG, key, "true or false");
    else
        *out = value;
}

void qw_fields_text(qw_fields *fields, const char *key, const char **out)
{
    const cJSON *item = qw_fields_find(fields, key);
    if (item == NULL)
        return;
    if (qw_json_string(item) == NULL)
        qw_fields_fail(fields, QWEN36_ERROR_CONFIG, key, "a string");
    else
        *out = qw_json_string(item);
}
