/* The reference backend: every operation of lib/backend.h in the plainest C, one thread, each element
 * summed in double and rounded to float32 once. Tests judge the other backends by it; no released
 * library holds it, so it may use the C library's mathematics.
 */
#ifndef QW_REFERENCE_H
#define QW_REFERENCE_H

#include "lib/backend.h"

qwen36_status qw_reference_backend_open(const qw_backend_config *config, qw_backend *out,
                                        qwen36_error *error);

/* The delta rule in its chunked form, which suits matrix units: what the delta of a reference backend
 * computes, up to rounding. Unlike an op it allocates. */
qwen36_status qw_reference_delta_chunked(qw_backend *backend, const qw_delta_args *args);

#endif
