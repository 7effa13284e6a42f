/* A backend between the model and another backend, for tests. It
 *   - traces the names of the operations in order,
 *   - poisons every output with NaN before the operation that must write it,
 *   - makes the n-th operation fail (counted from 1; step_begin and step_end count),
 *   - runs a judge (the reference backend) on the same arguments first, and compares the outputs.
 * Outputs are what an operation writes according to lib/backend.h: views, cache entries, state slots, host
 * results. All memory must be the host's.
 *
 *     interposer between;
 *     interpose(&between, &model->backend, &model->dims);
 *     between.fail_at = between.calls + 7;
 *     ...
 *     interpose_end(&between, &model->backend);
 */
#ifndef QW_TESTS_INTERPOSE_H
#define QW_TESTS_INTERPOSE_H

#include "lib/backend.h"

#include <stdbool.h>

/* Memory that an operation writes: rows of one dtype. */
typedef struct interpose_region {
    char *base;
    int64_t rows, columns, stride; /* stride in bytes */
    int32_t dtype;
    bool updated; /* read before it is written: not to be poisoned */
} interpose_region;

typedef struct interposer {
    qw_backend inner;
    qw_dims dims;

    long calls;        /* so far */
    long fail_at;      /* this call returns DEVICE, having done nothing but poison; 0: none */
    bool fail_forever; /* and so do all after it */
    bool poison;
    const char **trace; /* [trace_count]; collected while `tracing` */
    size_t trace_count, trace_capacity;
    bool tracing;

    qw_backend *judge; /* NULL: no comparison */
    double bound;      /* of max |a - b| / max |b| per row; 2^-7 where the output is BF16 */
    double worst;      /* seen so far, and where */
    const char *worst_name;
    long differences;  /* rows beyond the bound, and integers, tokens and statuses that differ */
    char message[256]; /* about the first of them */

    interpose_region *regions; /* of the operation under way */
    size_t region_count, region_capacity;
    char *saved, *judged; /* their contents, packed */
    size_t packed_capacity;
} interposer;

/* `backend` becomes the wrapper; nothing else is switched on. */
void interpose(interposer *self, qw_backend *backend, const qw_dims *dims);
/* Puts the wrapped backend back (unless it has been destroyed) and frees the interposer's memory. */
void interpose_end(interposer *self, qw_backend *backend);
/* Empties the trace. */
void interpose_forget(interposer *self);

#endif
