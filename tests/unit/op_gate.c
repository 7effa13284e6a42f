#include "tests/unit/op_gate.h"

#include <string.h>

op_gate_state op_gate;

static qwen36_status pass_gate(void)
{
    op_gate.count++;
    if (op_gate.count != op_gate.at)
        return QWEN36_OK;
    if (op_gate.interrupt == NULL)
        return QWEN36_ERROR_DEVICE;
    qwen36_session_interrupt(op_gate.interrupt);
    return QWEN36_OK;
}

#define GATED(op, arguments)                                                                                 \
    static qwen36_status gated_##op(qw_backend *backend, arguments args)                                     \
    {                                                                                                        \
        qwen36_status status = pass_gate();                                                                  \
        return status == QWEN36_OK ? op_gate.inner->op(backend, args) : status;                              \
    }
GATED(step_begin, const qw_batch *)
GATED(copy, const qw_copy_args *)
GATED(embed, const qw_embed_args *)
GATED(norm, const qw_norm_args *)
GATED(linear, const qw_linear_args *)
GATED(attn_prepare, const qw_attn_prepare_args *)
GATED(attention, const qw_attention_args *)
GATED(conv, const qw_conv_args *)
GATED(delta, const qw_delta_args *)
GATED(gated_norm, const qw_gated_norm_args *)
GATED(route, const qw_route_args *)
GATED(experts, const qw_experts_args *)
GATED(mlp, const qw_mlp_args *)
GATED(head, const qw_head_args *)
GATED(logprob, const qw_logprob_args *)
GATED(sample, qw_sample_args *)

static qwen36_status gated_step_end(qw_backend *backend)
{
    qwen36_status status = op_gate.inner->step_end(backend);
    return status == QWEN36_OK ? pass_gate() : status;
}

qwen36_status op_gate_open(const qw_backend_config *config, qw_backend *out, qwen36_error *error)
{
    qwen36_status status = qw_backend_open(config, out, error);
    if (status != QWEN36_OK)
        return status;
    memset(&op_gate, 0, sizeof op_gate);
    op_gate.inner = out->ops;
    op_gate.ops = *out->ops;
#define GATE(op) op_gate.ops.op = gated_##op
    GATE(step_begin), GATE(step_end), GATE(copy), GATE(embed), GATE(norm), GATE(linear), GATE(attn_prepare);
    GATE(attention), GATE(conv), GATE(delta), GATE(gated_norm), GATE(route), GATE(experts), GATE(mlp);
    GATE(head), GATE(logprob), GATE(sample);
    out->ops = &op_gate.ops;
    return status;
}
