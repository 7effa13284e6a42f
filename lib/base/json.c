#include "lib/base/json.h"

#include "lib/base/names.h"

#include <locale.h>
#include <math.h>
#include <pthread.h>
#include <string.h>

/* --- The strict scan ------------------------------------------------------------------------------ */

typedef struct scan {
    const unsigned char *start, *at, *end;
    const char *reason; /* the first violation */
    int depth;
    bool wide;
} scan;

static bool refuse(scan *s, const char *reason)
{
    if (s->reason == NULL)
        s->reason = reason;
    return false;
}

static void skip_space(scan *s)
{
    while (s->at < s->end && (*s->at == ' ' || *s->at == '\n' || *s->at == '\r' || *s->at == '\t'))
        s->at++;
}

static bool is_digit(unsigned char c)
{
    return c >= '0' && c <= '9';
}

/* The next four characters as a hexadecimal number, or -1. */
static int32_t scan_hex(scan *s)
{
    int32_t value = 0;
    if (s->end - s->at < 4)
        return -1;
    for (int i = 0; i < 4; i++) {
        unsigned char c = s->at[i], letter = c | 0x20;
        if (is_digit(c))
            value = value * 16 + (c - '0');
        else if (letter >= 'a' && letter <= 'f')
            value = value * 16 + (letter - 'a' + 10);
        else
            return -1;
    }
    s->at += 4;
    return value;
}

/* After "\u": one escape, or the pair of a surrogate pair. */
static bool scan_unicode_escape(scan *s)
{
    int32_t code = scan_hex(s);
    if (code < 0)
        return refuse(s, "four hexadecimal digits expected");
    if (code == 0 && !s->wide)
        return refuse(s, "a NUL character in a string");
    if (code < 0xd800 || code > 0xdfff)
        return true;
    if (code > 0xdbff || s->end - s->at < 6 || s->at[0] != '\\' || s->at[1] != 'u')
        return refuse(s, "a lone surrogate");
    s->at += 2;
    code = scan_hex(s);
    return (code >= 0xdc00 && code <= 0xdfff) || refuse(s, "a lone surrogate");
}

static bool scan_escape(scan *s)
{
    s->at++; /* the backslash */
    if (s->at == s->end)
        return refuse(s, "the text ends inside a string");
    unsigned char c = *s->at;
    if (c == '\0' || strchr("\"\\/bfnrtu", c) == NULL)
        return refuse(s, "an unknown escape");
    s->at++;
    return c != 'u' || scan_unicode_escape(s);
}

/* One well-formed sequence of two to four bytes: no overlong forms, no surrogates, none above U+10FFFF. */
static bool scan_utf8(scan *s)
{
    const unsigned char *p = s->at;
    unsigned char lead = p[0], low = 0x80, high = 0xbf;
    int more = lead >= 0xf0 ? 3 : lead >= 0xe0 ? 2 : 1;
    if (lead < 0xc2 || lead > 0xf4 || s->end - p <= more)
        return refuse(s, "invalid UTF-8");
    if (lead == 0xe0)
        low = 0xa0;
    else if (lead == 0xed)
        high = 0x9f;
    else if (lead == 0xf0)
        low = 0x90;
    else if (lead == 0xf4)
        high = 0x8f;
    if (p[1] < low || p[1] > high)
        return refuse(s, "invalid UTF-8");
    for (int i = 2; i <= more; i++)
        if (p[i] < 0x80 || p[i] > 0xbf)
            return refuse(s, "invalid UTF-8");
    s->at += more + 1;
    return true;
}

static bool scan_string(scan *s)
{
    s->at++; /* the opening quote */
    while (s->at < s->end) {
        unsigned char c = *s->at;
        if (c == '"') {
            s->at++;
            return true;
        }
        if (c < 0x20)
            return refuse(s, "a raw control character in a string");
        if (c == '\\') {
            if (!scan_escape(s))
                return false;
        } else if (c < 0x80) {
            s->at++;
        } else if (!scan_utf8(s)) {
            return false;
        }
    }
    return refuse(s, "the text ends inside a string");
}

static bool scan_digits(scan *s)
{
    if (s->at == s->end || !is_digit(*s->at))
        return refuse(s, "a digit expected");
    while (s->at < s->end && is_digit(*s->at))
        s->at++;
    return true;
}

static bool scan_number(scan *s)
{
    const unsigned char *first = s->at;
    if (*s->at == '-')
        s->at++;
    bool zero = s->at < s->end && *s->at == '0';
    if (zero)
        s->at++;
    else if (!scan_digits(s))
        return false;
    if (zero && s->at < s->end && is_digit(*s->at))
        return refuse(s, "a number with a leading zero");
    if (s->at < s->end && *s->at == '.') {
        s->at++;
        if (!scan_digits(s))
            return false;
    }
    if (s->at < s->end && (*s->at | 0x20) == 'e') {
        s->at++;
        if (s->at < s->end && (*s->at == '+' || *s->at == '-'))
            s->at++;
        if (!scan_digits(s))
            return false;
    }
    if (s->wide)
        return s->at - first <= QW_JSON_WIDE_NUMBER_MAX || refuse(s, "a number of more than 4300 characters");
    return s->at - first <= QW_JSON_NUMBER_MAX || refuse(s, "a number of more than 63 characters");
}

static bool scan_word(scan *s, const char *word)
{
    size_t length = strlen(word);
    if ((size_t)(s->end - s->at) < length || memcmp(s->at, word, length) != 0)
        return refuse(s, "a value expected");
    s->at += length;
    return true;
}

static bool scan_value(scan *s);

static bool scan_member(scan *s)
{
    if (s->at == s->end || *s->at != '"')
        return refuse(s, "a member name expected");
    if (!scan_string(s))
        return false;
    skip_space(s);
    if (s->at == s->end || *s->at != ':')
        return refuse(s, "a colon expected");
    s->at++;
    return scan_value(s);
}

/* The recursion is bounded by QW_JSON_DEPTH_MAX. */
static bool scan_container(scan *s)
{
    bool object = *s->at == '{';
    unsigned char close = object ? '}' : ']';
    if (++s->depth > QW_JSON_DEPTH_MAX)
        return refuse(s, "nested more than 64 deep");
    s->at++;
    skip_space(s);
    if (s->at < s->end && *s->at == close) {
        s->at++;
        s->depth--;
        return true;
    }
    for (;;) {
        skip_space(s);
        if (!(object ? scan_member(s) : scan_value(s)))
            return false;
        skip_space(s);
        if (s->at == s->end || (*s->at != ',' && *s->at != close))
            return refuse(s, object ? "a comma or } expected" : "a comma or ] expected");
        if (*s->at++ == close)
            break;
    }
    s->depth--;
    return true;
}

static bool scan_value(scan *s)
{
    skip_space(s);
    if (s->at == s->end)
        return refuse(s, "the text ends where a value is expected");
    switch (*s->at) {
    case '{':
    case '[':
        return scan_container(s);
    case '"':
        return scan_string(s);
    case 't':
        return scan_word(s, "true");
    case 'f':
        return scan_word(s, "false");
    case 'n':
        return scan_word(s, "null");
    default:
        if (*s->at == '-' || is_digit(*s->at))
            return scan_number(s);
        return refuse(s, "a value expected");
    }
}

static const char *check(const char *text, size_t length, bool wide, size_t *where)
{
    const unsigned char *start = (const unsigned char *)text;
    scan s = {start, start, start + length, NULL, 0, wide};
    if (length >= 3 && memcmp(text, "\xef\xbb\xbf", 3) == 0) {
        refuse(&s, "a byte order mark");
    } else if (scan_value(&s)) {
        skip_space(&s);
        if (s.at < s.end)
            refuse(&s, "text after the value");
    }
    if (where != NULL)
        *where = (size_t)(s.at - s.start);
    return s.reason;
}

const char *qw_json_check(const char *text, size_t length, size_t *where)
{
    return check(text, length, false, where);
}

const char *qw_json_check_wide(const char *text, size_t length, size_t *where)
{
    return check(text, length, true, where);
}

/* --- The tree ------------------------------------------------------------------------------------- */

/* Guards cJSON's global error pointer. */
static pthread_mutex_t parser_lock = PTHREAD_MUTEX_INITIALIZER;

cJSON *qw_json_tree(const char *text, size_t length)
{
    locale_t plain = newlocale(LC_ALL_MASK, "C", (locale_t)0);
    if (plain == (locale_t)0)
        return NULL;
    locale_t before = uselocale(plain);
    pthread_mutex_lock(&parser_lock);
    cJSON *tree = cJSON_ParseWithLengthOpts(text, length, NULL, 0);
    pthread_mutex_unlock(&parser_lock);
    uselocale(before);
    freelocale(plain);
    return tree;
}

void qw_json_delete(cJSON *tree)
{
    cJSON_Delete(tree);
}

/* The table of names lives as long as the check, and where the tree lives: with cJSON's malloc. */
static void *allocate_like_cjson(void *user, size_t size, size_t alignment)
{
    (void)user;
    (void)alignment; /* more than malloc's is a matter of speed alone */
    return cJSON_malloc(size);
}

static void release_like_cjson(void *user, void *memory)
{
    (void)user;
    cJSON_free(memory);
}

static qw_json_unique check_few(const cJSON *object, const char **key)
{
    for (const cJSON *a = object->child; a != NULL; a = a->next)
        for (const cJSON *b = object->child; b != a; b = b->next)
            if (strcmp(a->string, b->string) == 0) {
                *key = a->string;
                return QW_JSON_DUPLICATE;
            }
    return QW_JSON_UNIQUE;
}

static qw_json_unique check_many(const cJSON *object, size_t count, const char **key)
{
    const qw_allocator allocator = {allocate_like_cjson, release_like_cjson, NULL};
    qw_names names = {&allocator, NULL, 0, 0};
    qw_json_unique result = QW_JSON_UNIQUE;
    if (!qw_names_reserve(&names, count))
        return QW_JSON_NO_MEMORY;
    for (const cJSON *member = object->child; member != NULL && result == QW_JSON_UNIQUE;
         member = member->next)
        if (qw_names_add(&names, member->string, strlen(member->string), 0) == QW_NAMES_PRESENT) {
            *key = member->string;
            result = QW_JSON_DUPLICATE;
        }
    qw_names_release(&names);
    return result;
}

/* The recursion is bounded by the depth that qw_json_check allows. */
qw_json_unique qw_json_check_unique(const cJSON *tree, const char **key)
{
    qw_json_unique result = QW_JSON_UNIQUE;
    size_t count = 0;
    for (const cJSON *child = tree->child; child != NULL; child = child->next) {
        count++;
        if (child->child != NULL && (result = qw_json_check_unique(child, key)) != QW_JSON_UNIQUE)
            return result;
    }
    if (!cJSON_IsObject(tree))
        return QW_JSON_UNIQUE;
    return count <= 16 ? check_few(tree, key) : check_many(tree, count, key);
}

cJSON *qw_json_parse(const char *text, size_t length, const char *file, qwen36_error *error)
{
    size_t where = 0;
    const char *reason = qw_json_check(text, length, &where), *key = NULL;
    if (reason != NULL) {
        qw_fail(error, QWEN36_ERROR_JSON, "%s: byte %zu: %s", file, where, reason);
        return NULL;
    }
    cJSON *tree = qw_json_tree(text, length);
    qw_json_unique unique = tree == NULL ? QW_JSON_NO_MEMORY : qw_json_check_unique(tree, &key);
    if (unique == QW_JSON_UNIQUE)
        return tree;
    if (unique == QW_JSON_DUPLICATE)
        qw_fail(error, QWEN36_ERROR_JSON, "%s: the key \"%.100s\" stands twice in one object", file, key);
    else
        qw_fail(error, QWEN36_ERROR_OUT_OF_MEMORY, "%s: out of memory for %zu bytes of JSON", file, length);
    qw_json_delete(tree);
    return NULL;
}

/* --- Values --------------------------------------------------------------------------------------- */

const cJSON *qw_json_member(const cJSON *object, const char *name)
{
    return cJSON_IsObject(object) ? cJSON_GetObjectItemCaseSensitive(object, name) : NULL;
}

bool qw_json_double(const cJSON *item, double *out)
{
    if (!cJSON_IsNumber(item) || !isfinite(item->valuedouble))
        return false;
    *out = item->valuedouble;
    return true;
}

bool qw_json_int64(const cJSON *item, int64_t min, int64_t max, int64_t *out)
{
    const double limit = 9007199254740992.0; /* 2^53 */
    double value = 0;
    if (!qw_json_double(item, &value) || value < -limit || value > limit)
        return false;
    int64_t integer = (int64_t)value;
    if ((double)integer != value || integer < min || integer > max)
        return false;
    *out = integer;
    return true;
}

bool qw_json_bool(const cJSON *item, bool *out)
{
    if (!cJSON_IsBool(item))
        return false;
    *out = cJSON_IsTrue(item);
    return true;
}

const char *qw_json_string(const cJSON *item)
{
    return cJSON_IsString(item) ? item->valuestring : NULL;
}

/* --- Walking checked text ------------------------------------------------------------------------- */

static const char *after_space(const char *p)
{
    while (*p == ' ' || *p == '\n' || *p == '\r' || *p == '\t')
        p++;
    return p;
}

static const char *after_string(const char *p)
{
    for (p++; *p != '"'; p++)
        if (*p == '\\')
            p++;
    return p + 1;
}

/* Brackets need no matching kinds here, and a bare word or number ends at a delimiter. */
static const char *after_value(const char *p)
{
    int depth = 0;
    do {
        if (*p == '"') {
            p = after_string(p);
        } else if (*p == '{' || *p == '[') {
            depth++;
            p++;
        } else if (*p == '}' || *p == ']') {
            depth--;
            p++;
        } else if (depth > 0) {
            p++;
        } else {
            while (strchr(",]} \n\r\t", *p) == NULL)
                p++;
        }
    } while (depth > 0);
    return p;
}

bool qw_json_next(qw_json_walk *walk, qw_json_span *key, qw_json_span *value)
{
    const char *p = after_space(walk->at);
    if (*p == '{' || *p == '[' || *p == ',')
        p = after_space(p + 1);
    if (*p == '}' || *p == ']')
        return false;
    if (key != NULL) {
        const char *end = after_string(p);
        *key = (qw_json_span){p + 1, (size_t)(end - p) - 2};
        p = after_space(after_space(end) + 1); /* the colon */
    }
    value->text = p;
    p = after_value(p);
    value->length = (size_t)(p - value->text);
    walk->at = p;
    return true;
}

bool qw_json_uint64(qw_json_span value, uint64_t *out)
{
    uint64_t result = 0;
    if (value.length == 0)
        return false;
    for (size_t i = 0; i < value.length; i++) {
        unsigned char c = (unsigned char)value.text[i];
        if (!is_digit(c) || !qw_mul(result, 10, &result) || !qw_add(result, c - '0', &result))
            return false;
    }
    *out = result;
    return true;
}
