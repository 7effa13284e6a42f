/* The memory that outlives a step: KV blocks, state slots and logits rows, each a buffer of the backend
 * with an index pool beside it, and the index of what can be found again by its tokens.
 *
 *   KV      [block][full layer][K, V][nkv][64][hd] in kv_dtype: a block holds 64 tokens of all layers; with
 *           QW_I8 each layer's part ends with its scales (qw_kv_view)
 *   states  [slot][linear layer][ recurrent [nv][dk][dv] ‖ conv [width-1][C] ] float32
 *   logits  [row][V] float32, and behind them `tile` rows for logits that are consumed at once
 *
 * Slots and logits rows are immutable once a step has committed them: a step reads one and writes another,
 * so a failed step loses nothing, and sharing needs no copy. Of either, a session holds one, and one more
 * while it steps. A block is written only by its one holder (step.c copies a shared one first).
 *
 * take gives a free one, if need be by evicting what the prefix index has not used for longest; hold adds a
 * holder; drop (-1 is ignored) takes one away. All calls are under the model's lock, those that read the
 * device with the model's turn.
 */
#ifndef QW_SESSION_CACHE_H
#define QW_SESSION_CACHE_H

#include "lib/backend.h"
#include "lib/session/prefix.h"

enum { QW_LOGITS_TILE = 32 };

/* Sizes in bytes and counts, computed before anything is allocated. */
typedef struct qw_cache_plan {
    int32_t kv_dtype; /* QW_F32, QW_BF16 or QW_I8 */
    int32_t full_layers, linear_layers;
    int32_t blocks, slots, logit_rows; /* logit_rows without the tile */
    int32_t snapshots;                 /* slots beyond those that sessions can need */
    uint64_t kv_token_bytes, block_bytes;
    uint64_t recurrent_bytes, conv_bytes; /* of one layer */
    uint64_t slot_bytes;
    uint64_t kv_bytes, state_bytes, logits_bytes; /* of the whole */
} qw_cache_plan;

typedef struct qw_cache_request {
    int32_t kv_dtype, max_sessions, context;
    uint64_t cache_bytes;    /* for KV blocks; 0: what max_sessions x context needs */
    uint64_t snapshot_bytes; /* QWEN36_BYTES_AUTO: some; 0: none, and no prefix is found again */
    uint64_t
        memory_bytes; /* not 0: blocks, states and snapshots together take this, instead of cache_bytes */
} qw_cache_request;

qwen36_status qw_cache_plan_make(const qw_dims *dims, const qw_cache_request *request, qw_cache_plan *plan,
                                 qwen36_error *error);

typedef struct qw_host_row {
    float *logits; /* [V]; NULL: nobody looked yet */
    bool current;
} qw_host_row;

typedef struct qw_cache {
    qw_cache_plan plan;
    qw_buffer kv, states, logits;
    qw_index_pool blocks, slots, rows;
    qw_prefix prefix;
    qw_view logits_view; /* [logit_rows + tile, V] */

    /* Only where the backend's memory is not the host's: a row on its way to a callback, and copies of the
     * rows that somebody looked at. */
    float *passing;        /* [V] */
    qw_host_row *host_row; /* [logit_rows] */
} qw_cache;

qwen36_status qw_cache_create(qw_cache *cache, const qw_allocator *a, const qw_cache_plan *plan,
                              int32_t vocab_size, qw_backend *backend);
void qw_cache_destroy(qw_cache *cache, const qw_allocator *a, qw_backend *backend);

int32_t qw_cache_take_block(qw_cache *cache);
void qw_cache_hold_block(qw_cache *cache, int32_t block);
void qw_cache_drop_block(qw_cache *cache, int32_t block);
int32_t qw_cache_take_slot(qw_cache *cache);
void qw_cache_drop_slot(qw_cache *cache, int32_t slot);

/* Views of one layer, by its index within its kind. */
qw_kv_view qw_cache_kv(const qw_cache *cache, int32_t full_index);
qw_state_view qw_cache_recurrent(const qw_cache *cache, int32_t linear_index);
qw_state_view qw_cache_conv(const qw_cache *cache, int32_t linear_index);
/* Zeroes, in data = bytes [offset, offset + bytes) of a block, what belongs to its tokens from `tokens` on.
 */
void qw_cache_blank(const qw_cache_plan *plan, const qw_dims *dims, uint64_t offset, unsigned char *data,
                    uint64_t bytes, int32_t tokens);
int32_t qw_cache_take_row(qw_cache *cache);
/* A logits row as the host sees it, for a callback within a step: valid until the next call, allocates
 * nothing.
 */
qwen36_status qw_cache_pass_row(const qw_cache *cache, qw_backend *backend, int32_t row,
                                const float **logits);
/* The same between steps: valid until the row is taken anew; allocates when a row is first looked at. */
qwen36_status qw_cache_show_row(qw_cache *cache, const qw_allocator *a, qw_backend *backend, int32_t row,
                                const float **logits);

#endif
