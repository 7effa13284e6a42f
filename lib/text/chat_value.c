#include "lib/text/chat_value.h"

#include "lib/base/names.h"
#include "lib/text/bytelevel.h"
#include "lib/text/utf8.h"

#include <string.h>

/* --- Memory ---------------------------------------------------------------------------------------- */

#define CHUNK_SIZE ((size_t)16 << 10)

typedef struct qw_value_chunk {
    struct qw_value_chunk *next;
    size_t used, size;
    _Alignas(16) char bytes[];
} chunk;

static void *take(qw_values *values, size_t size)
{
    chunk *c = values->chunks;
    size = (size + 15) & ~(size_t)15;
    if (c == NULL || c->size - c->used < size) {
        size_t room = QW_MAX(size, CHUNK_SIZE);
        c = qw_alloc_raw(values->allocator, sizeof *c + room, 1);
        if (c == NULL)
            return NULL;
        *c = (chunk){values->chunks, 0, room};
        values->chunks = c;
    }
    void *memory = c->bytes + c->used;
    c->used += size;
    return memory;
}

void qw_values_release(qw_values *values)
{
    while (values->chunks != NULL) {
        chunk *next = values->chunks->next;
        qw_free(values->allocator, values->chunks);
        values->chunks = next;
    }
}

/* --- Reading checked text --------------------------------------------------------------------------- */

typedef struct reader {
    qw_values *values;
    const char *at, *end;
} reader;

static void skip_space(reader *r)
{
    while (r->at < r->end && (*r->at == ' ' || *r->at == '\n' || *r->at == '\r' || *r->at == '\t'))
        r->at++;
}

static bool read_string(reader *r, qw_json_span *out)
{
    const char *begin = ++r->at;
    bool escapes = false;
    for (; *r->at != '"'; r->at++) {
        escapes = escapes || *r->at == '\\';
        r->at += *r->at == '\\';
    }
    *out = (qw_json_span){begin, (size_t)(r->at - begin)};
    r->at++;
    if (!escapes)
        return true;
    /* With its quotes, so that a quote of its own is not taken for one. */
    char *copy = take(r->values, out->length);
    if (copy == NULL)
        return false;
    out->length = qw_json_unescape((qw_json_span){begin - 1, out->length + 2}, copy);
    out->text = copy;
    return true;
}

static void read_number(reader *r, qw_value *value)
{
    const char *begin = r->at;
    value->kind = QW_VALUE_INT;
    for (; r->at < r->end && strchr(",]} \n\r\t", *r->at) == NULL; r->at++)
        if (*r->at == '.' || (*r->at | 0x20) == 'e')
            value->kind = QW_VALUE_FLOAT;
    value->text = (qw_json_span){begin, (size_t)(r->at - begin)};
}

static bool read_value(reader *r, qw_value *value);

/* Gives the earlier of two members with one key the later value, and removes the later one. */
static void replace(qw_value *dict, qw_value *earlier, qw_value *later)
{
    earlier->kind = later->kind;
    earlier->truth = later->truth;
    earlier->text = later->text;
    earlier->first = later->first;
    earlier->last = later->last;
    earlier->count = later->count;
    later->previous->next = later->next;
    if (later->next != NULL)
        later->next->previous = later->previous;
    else
        dict->last = later->previous;
    dict->count--;
}

static bool same_key(const qw_value *a, const qw_value *b)
{
    return a->key.length == b->key.length && memcmp(a->key.text, b->key.text, a->key.length) == 0;
}

static void unite_few(qw_value *dict)
{
    for (qw_value *member = dict->first; member != NULL; member = member->next)
        for (qw_value *earlier = dict->first; earlier != member; earlier = earlier->next)
            if (same_key(earlier, member)) {
                replace(dict, earlier, member);
                break;
            }
}

static bool unite_many(const qw_allocator *allocator, qw_value *dict)
{
    qw_names names = {allocator, NULL, 0, 0};
    qw_value **members = qw_alloc_raw(allocator, dict->count, sizeof *members);
    bool done = members != NULL && dict->count <= UINT32_MAX && qw_names_reserve(&names, dict->count);
    uint32_t index = 0;
    for (qw_value *member = dict->first; done && member != NULL; member = member->next) {
        const qw_name *known = qw_names_find(&names, member->key.text, member->key.length);
        if (known != NULL) {
            replace(dict, members[known->value], member);
            continue;
        }
        members[index] = member;
        (void)qw_names_add(&names, member->key.text, member->key.length, index++);
    }
    qw_names_release(&names);
    qw_free(allocator, members);
    return done;
}

/* The recursion is bounded by the depth that the check allows. */
static bool read_container(reader *r, qw_value *value)
{
    bool dict = *r->at == '{';
    value->kind = dict ? QW_VALUE_DICT : QW_VALUE_LIST;
    for (;;) {
        r->at++; /* the bracket, or a comma */
        skip_space(r);
        if (*r->at == '}' || *r->at == ']')
            break;
        qw_value *child = take(r->values, sizeof *child);
        if (child == NULL)
            return false;
        *child = (qw_value){.previous = value->last};
        if (dict && !read_string(r, &child->key))
            return false;
        if (dict) {
            skip_space(r);
            r->at++; /* the colon */
        }
        if (!read_value(r, child))
            return false;
        if (value->last != NULL)
            value->last->next = child;
        else
            value->first = child;
        value->last = child;
        value->count++;
        skip_space(r);
        if (*r->at != ',')
            break;
    }
    r->at++;
    if (dict && value->count > 16)
        return unite_many(r->values->allocator, value);
    if (dict)
        unite_few(value);
    return true;
}

static bool read_value(reader *r, qw_value *value)
{
    skip_space(r);
    switch (*r->at) {
    case '{':
    case '[':
        return read_container(r, value);
    case '"':
        value->kind = QW_VALUE_STR;
        return read_string(r, &value->text);
    case 'n':
        value->kind = QW_VALUE_NONE;
        r->at += strlen("null");
        return true;
    case 't':
    case 'f':
        value->kind = QW_VALUE_BOOL;
        value->truth = *r->at == 't';
        r->at += value->truth ? strlen("true") : strlen("false");
        return true;
    default:
        read_number(r, value);
        return true;
    }
}

qwen36_status qw_value_parse(qw_values *values, const char *text, size_t length, const char *name,
                             const qw_value **out, qwen36_error *error)
{
    size_t where = 0;
    const char *reason = qw_json_check_wide(text, length, &where);
    if (reason != NULL)
        return qw_fail(error, QWEN36_ERROR_CHAT_MESSAGES, "%s: byte %zu: %s", name, where, reason);
    reader r = {values, text, text + length};
    qw_value *root = take(values, sizeof *root);
    if (root != NULL)
        *root = (qw_value){.kind = QW_VALUE_NONE};
    if (root == NULL || !read_value(&r, root))
        return qw_fail_memory(error, length);
    *out = root;
    return QWEN36_OK;
}

/* --- Looking ----------------------------------------------------------------------------------------- */

const qw_value *qw_value_get(const qw_value *value, const char *key)
{
    size_t length = strlen(key);
    if (!qw_value_is(value, QW_VALUE_DICT))
        return NULL;
    for (const qw_value *member = value->first; member != NULL; member = member->next)
        if (member->key.length == length && memcmp(member->key.text, key, length) == 0)
            return member;
    return NULL;
}

bool qw_value_is(const qw_value *value, qw_value_kind kind)
{
    return value != NULL && value->kind == kind;
}

bool qw_value_equals(const qw_value *value, const char *text)
{
    return qw_value_is(value, QW_VALUE_STR) && value->text.length == strlen(text) &&
           memcmp(value->text.text, text, value->text.length) == 0;
}

/* A number is true unless it is zero: unless its digits before the exponent all are. (A float that is too
 * small for a double is false in Python; none of the templates asks.) */
static bool is_zero(qw_json_span number)
{
    for (size_t i = 0; i < number.length && (number.text[i] | 0x20) != 'e'; i++)
        if (number.text[i] >= '1' && number.text[i] <= '9')
            return false;
    return true;
}

bool qw_value_truth(const qw_value *value)
{
    if (value == NULL)
        return false;
    switch (value->kind) {
    case QW_VALUE_BOOL:
        return value->truth;
    case QW_VALUE_INT:
    case QW_VALUE_FLOAT:
        return !is_zero(value->text);
    case QW_VALUE_STR:
        return value->text.length > 0;
    case QW_VALUE_LIST:
    case QW_VALUE_DICT:
        return value->count > 0;
    default:
        return false;
    }
}

const char *qw_value_type(const qw_value *value)
{
    static const char *const names[] = {"NoneType", "bool", "int", "float", "str", "list", "dict"};
    return names[value->kind];
}

const qw_value *qw_value_next(qw_value_walk *walk)
{
    const qw_value *container = walk->container;
    if (container->kind != QW_VALUE_STR)
        return walk->at = walk->at == NULL ? container->first : walk->at->next;
    if (walk->offset == container->text.length)
        return NULL;
    size_t size;
    const char *text = container->text.text + walk->offset;
    (void)qw_utf8_next(text, &size);
    walk->offset += size;
    walk->character = (qw_value){.kind = QW_VALUE_STR, .text = {text, size}};
    return walk->at = &walk->character;
}
