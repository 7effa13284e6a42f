/* Times of steps, phases, layers and operations, for the caller's trace function.
 *
 * A traced model's backend is a wrapper whose operations time those within, so an untraced one pays nothing
 * for them. Phases and layers are reported where they are: step.c, sample.c, forward.c. All calls are made by
 * the thread that has the model's turn, and accept NULL: the model is not traced.
 */
#ifndef QW_MODEL_TRACE_H
#define QW_MODEL_TRACE_H

#include "lib/backend.h"

typedef struct qw_trace {
    qwen36_trace_fn function;
    void *user;
    qw_backend inner; /* the backend that is wrapped */
    int32_t layer;    /* that runs; -1 */
    int32_t rows;     /* of the step, sessions of the sample that runs */
} qw_trace;

/* Makes `backend` a wrapper, and what it was its inner one; destroy ends both. */
void qw_trace_wrap(qw_trace *trace, qwen36_trace_fn function, void *user, qw_backend *backend);

/* The clock, 0 when nothing is traced. */
uint64_t qw_trace_clock(const qw_trace *trace);
void qw_trace_set_rows(qw_trace *trace, int32_t rows);
void qw_trace_set_layer(qw_trace *trace, int32_t layer);
/* Reports what took from `begin` to `end`. Category and name are static texts. */
void qw_trace_report(const qw_trace *trace, const char *category, const char *name, uint64_t begin,
                     uint64_t end);

#endif
