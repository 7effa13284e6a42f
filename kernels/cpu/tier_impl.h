/* What every tier_<tier>.c includes after choosing its tier and naming its table QW_TIER_TABLE: the vector
 * layer, the inner kernels of all ops, and the table itself. A new op adds its header and its lines. */
#include "kernels/cpu/kernels.h"
#include "kernels/cpu/simd.h"

#include "kernels/cpu/attention_impl.h"
#include "kernels/cpu/attn_prepare_impl.h"
#include "kernels/cpu/conv_impl.h"
#include "kernels/cpu/delta_impl.h"
#include "kernels/cpu/math_impl.h"
#include "kernels/cpu/matrix_impl.h"
#include "kernels/cpu/norm_impl.h"
#include "kernels/cpu/route_impl.h"
#include "kernels/cpu/sample_impl.h"

const qw_cpu_kernels QW_TIER_TABLE = {
    .tier = QW_TIER,
    .dot = {[QW_F32] = dot_f32, [QW_BF16] = dot_bf16, [QW_F16] = dot_f16},
    .widen = {[QW_F32] = widen_f32, [QW_BF16] = widen_bf16, [QW_F16] = widen_f16},
    .narrow_bf16 = narrow_bf16,
    .silu_mul = silu_mul,
    .combine = combine,
    .gate_rows = gate_rows,

    .row_peaks = row_peaks,
    .row_mask = row_mask,
    .row_weights = row_weights,
    .row_log_sum = row_log_sum,

    .norm_row = norm_row,
    .gated_norm_head = gated_norm_head,
    .rope_table = rope_table,
    .rope_head = rope_head,
    .store_cache = store_cache,
    .store_cache_i8 = store_cache_i8,
    .attn_scale = attn_scale,
    .attn_span = {[QW_F32] = attn_span_f32, [QW_BF16] = attn_span_bf16, [QW_I8] = attn_span_i8},
    .attn_merge = attn_merge,
    .attn_finish = attn_finish,
    .conv_rows = conv_rows,
    .conv_store = conv_store,
    .delta_head = delta_head,
    .route_row = route_row,
    .math = math_map,
};
