#include "lib/text/normalize.h"

#include "lib/text/utf8.h"

#include <string.h>

/* Below this many marks in a row, insertion sort is the faster one. */
#define INSERTION_MAX 32

typedef struct stretch {
    size_t begin, end;
} stretch;

/* The end of the stretch of flagged code points that `at` lies in. */
static size_t next_boundary(const qw_nfc *nfc, const char *text, size_t length, size_t at)
{
    while (at < length) {
        size_t size;
        int32_t code = qw_utf8_next(text + at, &size);
        if ((qw_unicode_get(nfc->unicode, code) & (QW_NFC_ORDERED | QW_NFC_UNSTABLE)) == 0)
            break;
        at += size;
    }
    return at;
}

/* The first stretch from `at`, a boundary, on that may not be in form C; begin = length when there is none.
 */
static stretch find_stretch(const qw_nfc *nfc, const char *text, size_t length, size_t at)
{
    size_t boundary = at;
    unsigned char before = 0; /* combining class */
    while (at < length) {
        if (length - at >= 8 && qw_utf8_ascii8(text + at)) {
            at += 8;
            boundary = at - 1;
            before = 0;
            continue;
        }
        size_t size;
        int32_t code = qw_utf8_next(text + at, &size);
        unsigned char flags = qw_unicode_get(nfc->unicode, code) & (QW_NFC_ORDERED | QW_NFC_UNSTABLE);
        if (flags == 0) {
            boundary = at;
            before = 0;
        } else {
            unsigned char now = flags & QW_NFC_ORDERED ? qw_unicode_combining_class(code) : 0;
            if ((flags & QW_NFC_UNSTABLE) != 0 || now < before)
                return (stretch){boundary, next_boundary(nfc, text, length, at)};
            before = now;
        }
        at += size;
    }
    return (stretch){length, length};
}

static void sort_few(int32_t *codes, size_t count)
{
    for (size_t i = 1; i < count; i++) {
        int32_t code = codes[i];
        unsigned char class = qw_unicode_combining_class(code);
        size_t j = i;
        for (; j > 0 && qw_unicode_combining_class(codes[j - 1]) > class; j--)
            codes[j] = codes[j - 1];
        codes[j] = code;
    }
}

static bool sort_many(qw_nfc *nfc, int32_t *codes, size_t count)
{
    void *memory = nfc->sorted;
    if (!qw_grow(nfc->allocator, &memory, &nfc->sorted_capacity, count, sizeof *codes))
        return false;
    nfc->sorted = memory;
    size_t first[257] = {0};
    for (size_t i = 0; i < count; i++)
        first[qw_unicode_combining_class(codes[i]) + 1]++;
    for (size_t class = 0; class < 256; class ++)
        first[class + 1] += first[class];
    for (size_t i = 0; i < count; i++)
        nfc->sorted[first[qw_unicode_combining_class(codes[i])]++] = codes[i];
    memcpy(codes, nfc->sorted, count * sizeof *codes);
    return true;
}

/* Canonical order: marks (class > 0) in a row are sorted by class, stably. */
static bool sort_marks(qw_nfc *nfc, int32_t *codes, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        size_t begin = i;
        while (i < count && qw_unicode_combining_class(codes[i]) > 0)
            i++;
        if (i - begin > INSERTION_MAX) {
            if (!sort_many(nfc, codes + begin, i - begin))
                return false;
        } else {
            sort_few(codes + begin, i - begin);
        }
    }
    return true;
}

static bool reserve_text(qw_nfc *nfc, size_t need)
{
    void *memory = nfc->text;
    bool done = qw_grow(nfc->allocator, &memory, &nfc->text_capacity, need, 1);
    nfc->text = memory;
    return done;
}

/* Appends the stretch in form C to nfc->text, which holds *written bytes. */
static bool append_composed(qw_nfc *nfc, const char *text, size_t length, size_t *written)
{
    size_t count = 0;
    for (size_t at = 0, size; at < length; at += size) {
        int32_t parts[QW_DECOMPOSITION_MAX];
        size_t n = qw_unicode_decompose(qw_utf8_next(text + at, &size), parts);
        void *memory = nfc->codes;
        if (!qw_grow(nfc->allocator, &memory, &nfc->codes_capacity, QW_MAX(count + n, 64), sizeof *parts))
            return false;
        nfc->codes = memory;
        memcpy(nfc->codes + count, parts, n * sizeof *parts);
        count += n;
    }
    if (!sort_marks(nfc, nfc->codes, count))
        return false;
    count = qw_unicode_compose(nfc->codes, count);
    if (!reserve_text(nfc, *written + count * QW_UTF8_CODE_SIZE))
        return false;
    for (size_t i = 0; i < count; i++)
        *written += qw_utf8_write(nfc->codes[i], nfc->text + *written);
    return true;
}

static bool append_copy(qw_nfc *nfc, const char *text, size_t length, size_t *written)
{
    if (length == 0)
        return true;
    if (!reserve_text(nfc, *written + length))
        return false;
    memcpy(nfc->text + *written, text, length);
    *written += length;
    return true;
}

bool qw_nfc_normalize(qw_nfc *nfc, const char **text, size_t *length)
{
    size_t at = 0, written = 0;
    stretch next = find_stretch(nfc, *text, *length, 0);
    if (next.begin == *length || !reserve_text(nfc, *length))
        return next.begin == *length;
    while (next.begin < *length) {
        if (!append_copy(nfc, *text + at, next.begin - at, &written) ||
            !append_composed(nfc, *text + next.begin, next.end - next.begin, &written))
            return false;
        at = next.end;
        next = find_stretch(nfc, *text, *length, at);
    }
    if (!append_copy(nfc, *text + at, *length - at, &written))
        return false;
    *text = nfc->text;
    *length = written;
    return true;
}

void qw_nfc_release(qw_nfc *nfc)
{
    qw_free(nfc->allocator, nfc->text);
    qw_free(nfc->allocator, nfc->codes);
    qw_free(nfc->allocator, nfc->sorted);
}
