/* A gate before the operations of the library's backend, for tests: it counts them, and at the n-th the
 * backend fails or a session is interrupted.
 */
#ifndef QW_TESTS_OP_GATE_H
#define QW_TESTS_OP_GATE_H

#include "lib/backend.h"
#include "qwen36.h"

typedef struct op_gate_state {
    qw_ops ops;
    const qw_ops *inner;
    int32_t count, at;         /* at 0: never */
    qwen36_session *interrupt; /* NULL: fail instead */
} op_gate_state;
extern op_gate_state op_gate;

/* For qw_model_open. One model at a time has a gate. */
qwen36_status op_gate_open(const qw_backend_config *config, qw_backend *out, qwen36_error *error);

#endif
