/* The model: what is loaded once and shared by its sessions.
 *
 * Owns the weights, the backend and its memory, the cache pools and the tokenizer. Two guards:
 *   lock  short critical sections: pools, session count, the turn flag
 *   turn  one step or sample at a time; taken for long, and no lock is held meanwhile, so callbacks run free
 */
#ifndef QW_MODEL_MODEL_H
#define QW_MODEL_MODEL_H

#include "lib/base/hash.h"
#include "lib/model/forward.h"
#include "lib/os/threads.h"
#include "lib/session/batch.h"

#include <stdatomic.h>

/* A state on the way through a chunk that becomes a snapshot when the step commits. */
typedef struct qw_state_save {
    int32_t position, slot;
} qw_state_save;

enum { QW_MAX_SAVES = 64 }; /* of one step */

/* What qwen36_stats reports of a model; under its lock. */
typedef struct qw_model_counters {
    uint64_t steps, computed, reused, sampled, copies;
    uint64_t disk_hits, disk_writes, disk_refusals;
    double schedule_seconds, compute_seconds, commit_seconds, sample_seconds;
} qw_model_counters;

/* The disk tier: lib/session/disk.h. */
typedef struct qw_disk {
    char *directory;  /* NULL: there is none */
    uint64_t limit;   /* bytes */
    uint64_t flushes; /* so far */
} qw_disk;

struct qwen36_model {
    qw_allocator allocator;
    qw_log log;
    int64_t process; /* that loaded it */
    _Atomic int32_t references;

    qw_dims dims;
    qw_generation generation;
    qwen36_tokenizer *tokenizer; /* NULL: none */
    int32_t live;                /* vocabulary rows with a token */
    uint64_t parameters, weight_bytes;

    int32_t numerics, context, max_sessions, max_rows, max_segments; /* the options in force */

    qw_weights weights;
    qw_backend backend;
    bool backend_open;
    _Atomic int32_t device_lost; /* 1: every call says so */
    uint32_t revision;           /* of the backend, when it was last asked */
    qw_hash128 fingerprint;      /* of the weights (identity.h) */
    qw_trace *trace;             /* NULL: none */
    qw_network network;
    qw_workspace work;
    qw_cache cache;
    qw_batch_builder batch;
    qw_sample_row *sample_rows; /* [max_sessions] */
    uint64_t *order;            /* [max_sessions]: sessions of a step by urgency */
    qw_copy *copies;            /* [max_segments]: blocks that a step copies before it writes */
    qw_state_save saves[QW_MAX_SAVES];
    int32_t *head_rows; /* [2][max_head_rows]: in and out rows of a head call */
    int32_t max_head_rows;

    qw_mutex lock;
    qw_cond turn_free;
    bool guards_open;
    uint64_t next_ticket, serving; /* turns go in the order of asking */
    bool turn_taken;
    qw_thread turn_owner; /* while it is taken */
    int32_t session_count;
    qwen36_session *sessions; /* all of them */
    qw_model_counters counters;
    qw_disk disk;
    int32_t turn_token, user_token; /* <|im_start|>, and the word behind it in a user's turn; -1: unknown */
};

/* How the backend is opened: qw_backend_open, or another one in tests. */
typedef qwen36_status (*qw_backend_opener)(const qw_backend_config *config, qw_backend *out,
                                           qwen36_error *error);

/* Options must have been adopted and checked (lib/api/options.h). */
qwen36_status qw_model_open(const char *directory, const qwen36_model_options *options,
                            qw_backend_opener open_backend, qwen36_model **model, qwen36_error *error);
void qw_model_close(qwen36_model *model);

qwen36_status qw_model_estimate(const char *directory, const qwen36_model_options *options,
                                qwen36_memory_estimate *estimate, qwen36_error *error);
void qw_model_describe(const qwen36_model *model, qwen36_model_info *info);

/* Looks at the status of an operation of the backend: remembers a lost device. Returns it. */
qwen36_status qw_model_note(qwen36_model *model, qwen36_status status);
/* After a step, under the lock: whether another kernel serves from now on. What it computes must not be mixed
 * with what is shared so far, so prefixes begun before are found no longer. */
bool qw_model_follow_backend(qwen36_model *model);
/* Waits for the turn; QWEN36_ERROR_BUSY when this very thread holds it (a call out of a callback). */
qwen36_status qw_model_take_turn(qwen36_model *model, qwen36_error *error);
void qw_model_give_turn(qwen36_model *model);
/* Whether this thread holds the turn. */
bool qw_model_has_turn(qwen36_model *model);

#endif
