#include "lib/text/regex.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>
#include <string.h>

/* Limits on what a pattern out of a file may cost. */
#define PATTERN_MAX 4096
#define NESTING_MAX 100
#define MATCH_LIMIT 50000000 /* steps of backtracking for one match */
#define DEPTH_LIMIT 50000000
#define HEAP_LIMIT_KIB (256 * 1024)

struct qw_regex {
    const qw_allocator *allocator;
    pcre2_general_context *general;
    pcre2_match_context *limits;
    pcre2_code *code;
};

struct qw_regex_match {
    const qw_allocator *allocator;
    pcre2_match_data *data;
};

static void *allocate(size_t size, void *user)
{
    return qw_alloc_raw(user, size, 1);
}

static void release(void *memory, void *user)
{
    qw_free(user, memory);
}

/* White space as Unicode defines it, for inside of a character class. PCRE2's own \s adds U+180E. */
static const char space_set[] = "\\x{9}-\\x{d}\\x{20}\\x{85}\\x{a0}\\x{1680}\\x{2000}-\\x{200a}"
                                "\\x{2028}\\x{2029}\\x{202f}\\x{205f}\\x{3000}";

#define UNSUPPORTED SIZE_MAX

/* What Oniguruma, for which patterns are written, reads in a class otherwise than PCRE2: sets within sets,
 * intersections, a bracket that comes first. */
static bool is_foreign(const char *at, const char *begin, const char *end)
{
    bool first = at == begin || (at == begin + 1 && *begin == '^');
    return *at == '[' || (*at == ']' && first) || (*at == '&' && at + 1 < end && at[1] == '&');
}

/* Copies the pattern with \s, and \S outside of classes, spelled out; returns the length. `out` has room
 * for 128 bytes for each of the pattern's. */
static size_t spell_out_space(const char *pattern, size_t length, char *out)
{
    const char *end = pattern + length, *class = NULL; /* where the class that we are in begins */
    char *o = out;
    for (const char *p = pattern; p < end; p++) {
        bool escape = *p == '\\' && p + 1 < end;
        if (escape && (p[1] == 's' || (p[1] == 'S' && class == NULL))) {
            const char *open = class != NULL ? "" : p[1] == 'S' ? "[^" : "[";
            o = stpcpy(stpcpy(stpcpy(o, open), space_set), class != NULL ? "" : "]");
            p++;
            continue;
        }
        if (class != NULL && is_foreign(p, class, end))
            return UNSUPPORTED;
        if (class == NULL && *p == '[')
            class = p + 1;
        else if (*p == ']')
            class = NULL;
        *o++ = *p;
        if (escape)
            *o++ = *++p;
    }
    return (size_t)(o - out);
}

static qwen36_status compile(qw_regex *r, const char *pattern, size_t length, const char *file,
                             qwen36_error *error)
{
    int code = 0;
    size_t where = 0;
    pcre2_compile_context *context = pcre2_compile_context_create(r->general);
    if (context == NULL)
        return qw_fail_memory(error, length);
    pcre2_set_parens_nest_limit(context, NESTING_MAX);
    r->code = pcre2_compile((PCRE2_SPTR)pattern, length,
                            PCRE2_UTF | PCRE2_UCP | PCRE2_NEVER_BACKSLASH_C | PCRE2_DOLLAR_ENDONLY, &code,
                            &where, context);
    pcre2_compile_context_free(context);
    if (r->code != NULL) {
        (void)pcre2_jit_compile(r->code, PCRE2_JIT_COMPLETE); /* refused: the interpreter does it */
        return QWEN36_OK;
    }
    if (code == PCRE2_ERROR_HEAP_FAILED)
        return qw_fail_memory(error, length);
    char reason[120] = "";
    (void)pcre2_get_error_message(code, (PCRE2_UCHAR *)reason, sizeof reason);
    return qw_fail(error, QWEN36_ERROR_TOKENIZER, "%s: pre_tokenizer: the regular expression: %s", file,
                   reason);
}

/* PCRE2 lets a pattern begin with verbs that change how it works. */
static bool is_plain(const char *pattern, size_t length)
{
    return length > 0 && length <= PATTERN_MAX && memchr(pattern, '\0', length) == NULL &&
           (length < 2 || memcmp(pattern, "(*", 2) != 0);
}

static qwen36_status fail_unsupported(const char *file, qwen36_error *error)
{
    return qw_fail(error, QWEN36_ERROR_TOKENIZER,
                   "%s: pre_tokenizer: the regular expression uses what is not supported", file);
}

qwen36_status qw_regex_create(const qw_allocator *allocator, const char *pattern, size_t length,
                              const char *file, qw_regex **out, qwen36_error *error)
{
    union {
        const qw_allocator *read;
        void *user;
    } hooks = {allocator};
    qwen36_status status = QWEN36_OK;
    *out = NULL;
    if (!is_plain(pattern, length))
        return fail_unsupported(file, error);
    qw_regex *r = qw_alloc(allocator, 1, sizeof *r);
    char *spelled = qw_alloc_raw(allocator, length, 128);
    if (r != NULL)
        r->allocator = allocator;
    if (r == NULL || spelled == NULL) {
        status = qw_fail_memory(error, length * 128);
        goto out;
    }
    r->general = pcre2_general_context_create(allocate, release, hooks.user);
    r->limits = r->general == NULL ? NULL : pcre2_match_context_create(r->general);
    if (r->limits == NULL) {
        status = qw_fail_memory(error, sizeof *r);
        goto out;
    }
    pcre2_set_match_limit(r->limits, MATCH_LIMIT);
    pcre2_set_depth_limit(r->limits, DEPTH_LIMIT);
    pcre2_set_heap_limit(r->limits, HEAP_LIMIT_KIB);
    size_t spelled_length = spell_out_space(pattern, length, spelled);
    status = spelled_length == UNSUPPORTED ? fail_unsupported(file, error)
                                           : compile(r, spelled, spelled_length, file, error);
out:
    qw_free(allocator, spelled);
    if (status != QWEN36_OK) {
        qw_regex_destroy(r);
        r = NULL;
    }
    *out = r;
    return status;
}

void qw_regex_destroy(qw_regex *r)
{
    if (r == NULL)
        return;
    pcre2_code_free(r->code);
    pcre2_match_context_free(r->limits);
    pcre2_general_context_free(r->general);
    qw_free(r->allocator, r);
}

qw_regex_match *qw_regex_match_create(const qw_regex *r)
{
    qw_regex_match *m = qw_alloc(r->allocator, 1, sizeof *m);
    if (m == NULL)
        return NULL;
    m->allocator = r->allocator;
    m->data = pcre2_match_data_create(1, r->general);
    if (m->data == NULL) {
        qw_free(r->allocator, m);
        return NULL;
    }
    return m;
}

void qw_regex_match_destroy(qw_regex_match *m)
{
    if (m == NULL)
        return;
    pcre2_match_data_free(m->data);
    qw_free(m->allocator, m);
}

qwen36_status qw_regex_find(const qw_regex *r, qw_regex_match *m, const char *text, size_t length, size_t at,
                            size_t *begin, size_t *end, qwen36_error *error)
{
    PCRE2_SPTR subject = (PCRE2_SPTR)text;
    int result = pcre2_match(r->code, subject, length, at, PCRE2_NO_UTF_CHECK, m->data, r->limits);
    if (result == PCRE2_ERROR_JIT_STACKLIMIT)
        result =
            pcre2_match(r->code, subject, length, at, PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT, m->data, r->limits);
    *begin = *end = length;
    if (result == PCRE2_ERROR_NOMATCH)
        return QWEN36_OK;
    if (result == PCRE2_ERROR_NOMEMORY)
        return qw_fail_memory(error, length);
    const size_t *ends = pcre2_get_ovector_pointer(m->data);
    /* \K in a lookahead could set the begin behind the end. */
    if (result < 0 || ends[0] < at || ends[1] < ends[0])
        return qw_fail(error, QWEN36_ERROR_TOKENIZER, "the regular expression fails at byte %zu of the text",
                       at);
    *begin = ends[0];
    *end = ends[1];
    return QWEN36_OK;
}
