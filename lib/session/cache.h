/* The memory that outlives a step: KV blocks, state slots and logits rows, each a buffer of the backend
 * with an index pool beside it.
 *
 *   KV      [block][full layer][K, V][nkv][64][hd] in kv_dtype: a block holds 64 tokens of all layers; with
 *           QW_I8 each layer's part ends with its scales (qw_kv_view)
 *   states  [slot][linear layer][ recurrent [nv][dk][dv] ‖ conv [width-1][C] ] float32
 *   logits  [row][V] float32: two rows per session (a step writes the one, commit makes it current),
 *           and behind them `tile` rows for logits that are consumed at once
 *
 * A state slot is immutable once a step has committed it: a step reads one slot and writes another, so a
 * failed step loses nothing. The pools are guarded by the model's lock.
 */
#ifndef QW_SESSION_CACHE_H
#define QW_SESSION_CACHE_H

#include "lib/backend.h"
#include "lib/session/index_pool.h"

enum { QW_LOGITS_TILE = 32 };

/* Sizes in bytes and counts, computed before anything is allocated. */
typedef struct qw_cache_plan {
    int32_t kv_dtype; /* QW_F32, QW_BF16 or QW_I8 */
    int32_t full_layers, linear_layers;
    int32_t blocks, slots, logit_rows; /* logit_rows without the tile */
    uint64_t kv_token_bytes, block_bytes;
    uint64_t recurrent_bytes, conv_bytes; /* of one layer */
    uint64_t slot_bytes;
    uint64_t kv_bytes, state_bytes, logits_bytes; /* of the whole */
} qw_cache_plan;

/* cache_bytes 0: what max_sessions x context needs. */
qwen36_status qw_cache_plan_make(const qw_dims *dims, int32_t kv_dtype, int32_t max_sessions, int32_t context,
                                 uint64_t cache_bytes, qw_cache_plan *plan, qwen36_error *error);

typedef struct qw_cache {
    qw_cache_plan plan;
    qw_buffer kv, states, logits;
    qw_index_pool blocks, slots, rows;
    qw_view logits_view; /* [logit_rows + tile, V] */
} qw_cache;

qwen36_status qw_cache_create(qw_cache *cache, const qw_allocator *a, const qw_cache_plan *plan,
                              int32_t vocab_size, qw_backend *backend);
void qw_cache_destroy(qw_cache *cache, const qw_allocator *a, qw_backend *backend);

/* Views of one layer, by its index within its kind. */
qw_kv_view qw_cache_kv(const qw_cache *cache, int32_t full_index);
qw_state_view qw_cache_recurrent(const qw_cache *cache, int32_t linear_index);
qw_state_view qw_cache_conv(const qw_cache *cache, int32_t linear_index);
/* A logits row on the host (host-memory backends). */
const float *qw_cache_logits(const qw_cache *cache, int32_t row);

#endif
