/* Between step.c and deliver.c: logits that are consumed during the step. */
#ifndef QW_SESSION_STEP_H
#define QW_SESSION_STEP_H

#include "lib/session/session.h"

/* Rows that a callback (QW_WANT_ROW) or a score (QW_WANT_SCORE) waits for, in order of position, a tile of
 * logits at a time. What was delivered is no longer wanted, so a repeated step does not repeat it. The
 * callback runs in the caller's floating-point environment. */
qwen36_status qw_deliver_rows(const qw_forward_context *f, qwen36_session *s, int32_t batch_rows,
                              qw_fp_environment caller);

#endif
