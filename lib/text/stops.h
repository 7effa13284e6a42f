/* Stop strings over a stream of text: what comes in goes out again, up to the first stop.
 *
 * Only what could still become a stop is held back. The stop that ends first wins, of those that end
 * together the one that begins first; so the outcome does not depend on how the text is cut.
 */
#ifndef QW_TEXT_STOPS_H
#define QW_TEXT_STOPS_H

#include "lib/base/base.h"

enum { QW_STOPS_MAX = 64, QW_STOP_BYTES_MAX = 1024 };

typedef struct qw_stops {
    int32_t count;
    char *bytes;                     /* the stops, one behind the other */
    size_t offset[QW_STOPS_MAX + 1]; /* of each; the end of the last */
    size_t longest;
    char *text; /* held-back text, and behind it what was pushed last */
    size_t capacity, held;
    int32_t matched; /* index of the stop that was found, -1: none yet */
    bool ended;      /* the next push begins a new text */
} qw_stops;

/* Copies the stops: `count` texts of lengths[i] bytes, or NUL-terminated when lengths is NULL. Each must be
 * UTF-8 of 1 to 1024 bytes, at most 64 of them: QWEN36_ERROR_ARGUMENT otherwise. count 0 gives an empty one.
 */
qwen36_status qw_stops_create(qw_stops *stops, const qw_allocator *a, const char *const *texts,
                              const size_t *lengths, size_t count, qwen36_error *error);
void qw_stops_destroy(qw_stops *stops, const qw_allocator *a);

/* Adds whole characters, NUL-terminated too. *out, NUL-terminated and valid until the next call, is what may
 * be shown now. After a match nothing more comes out. false: out of memory, nothing changed. */
bool qw_stops_push(qw_stops *stops, const qw_allocator *a, const char *text, size_t length, const char **out,
                   size_t *out_length);
/* The end of the text: what was held back. `matched` stays until the next push, which begins a new text. */
void qw_stops_finish(qw_stops *stops, const char **out, size_t *out_length);

#endif
