/* What every tier_<tier>.c includes after choosing its tier and naming its table QW_TIER_TABLE: the vector
 * layer, the inner kernels of all ops, and the table itself. A new op adds its header and its lines. */
#include "kernels/cpu/kernels.h"
#include "kernels/cpu/simd.h"

#include "kernels/cpu/matrix_impl.h"

const qw_cpu_kernels QW_TIER_TABLE = {
    .tier = QW_TIER,
    .dot = {[QW_F32] = dot_f32, [QW_BF16] = dot_bf16, [QW_F16] = dot_f16},
    .widen = {[QW_F32] = widen_f32, [QW_BF16] = widen_bf16, [QW_F16] = widen_f16},
    .narrow_bf16 = narrow_bf16,
    .silu_mul = silu_mul,
    .combine = combine,
    .gate_rows = gate_rows,
};
