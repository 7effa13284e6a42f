/* Unicode normalisation form C of well-formed UTF-8, only where the text needs it.
 *
 * A code point with neither NFC flag (lib/text/unicode.h) is a boundary: nothing before it depends on what
 * follows. Between two boundaries either all is in order, or that stretch alone is decomposed, put in
 * canonical order and composed. Each step is linear but for the order of marks, which is a counting sort.
 */
#ifndef QW_TEXT_NORMALIZE_H
#define QW_TEXT_NORMALIZE_H

#include "lib/text/unicode.h"

/* Memory of one call, reused from stretch to stretch; begins zeroed but for the allocator. */
typedef struct qw_nfc {
    const qw_allocator *allocator;
    const qw_unicode *unicode;
    char *text;
    size_t text_capacity;
    int32_t *codes, *sorted;
    size_t codes_capacity, sorted_capacity;
} qw_nfc;

/* *text and *length are replaced by the normalised text: the same memory when nothing changes, else memory
 * of `nfc`, valid until the next call. false: out of memory. */
bool qw_nfc_normalize(qw_nfc *nfc, const char **text, size_t *length);
void qw_nfc_release(qw_nfc *nfc);

#endif
