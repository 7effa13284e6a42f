/* A session: one timeline of tokens, and what the model remembers of its computed part.
 *
 *   tokens   0 ............ computed ............ length ........ capacity
 *            in KV + state   pending (wants[i] says which logits)
 *
 * Owns its arrays, holds references on KV blocks, one state slot and two logits rows of the model's pools.
 * `computed`, the state slot and the current logits row change together, in commit, and only there.
 */
#ifndef QW_SESSION_SESSION_H
#define QW_SESSION_SESSION_H

#include "lib/model/model.h"
#include "lib/sample/sampler.h"

/* What is wanted of the logits after a token; bits. */
enum { QW_WANT_LAST = 1, QW_WANT_ROW = 2, QW_WANT_SCORE = 4 };

/* A session's part in the step that runs; meaningless outside. */
typedef struct qw_step_part {
    int32_t rows;      /* 0: takes no part */
    int32_t row_begin; /* first row in the batch */
    int32_t new_slot;  /* state slot that the step writes */
    int32_t new_blocks;
    bool keep_logits; /* the last row's logits go to the session's free logits row */
    qwen36_status status;
} qw_step_part;

struct qwen36_session {
    qwen36_model *model;
    int64_t process;
    int32_t capacity, length, computed;
    int32_t *tokens; /* [capacity] */
    uint8_t *wants;  /* [capacity] */
    int32_t *blocks; /* [ceil(capacity / 64)]: KV block of each 64 tokens */
    int32_t block_count;
    int32_t slot; /* state after `computed` tokens; -1: the zero state */
    int32_t logits_row[2];
    int32_t current; /* which of the two holds the logits after `computed` */
    bool has_logits;
    int32_t output_begin; /* tokens sampled since the last append or sync */
    qw_sampler sampler;
    qwen36_logits_fn on_logits;
    void *user;
    float *scores; /* while qw_session_score runs: receives the log-prob of token score_begin + i */
    int32_t score_begin;
    _Atomic int32_t interrupted;
    bool in_call; /* part of a running step, sample, score or generate */
    qw_step_part step;
};

qwen36_status qw_session_open(qwen36_model *model, const qwen36_session_options *options,
                              const qwen36_sampling *sampling, qwen36_session **session, qwen36_error *error);
void qw_session_close(qwen36_session *session);

qwen36_status qw_session_append(qwen36_session *s, const int32_t *tokens, size_t count, int32_t logits,
                                qwen36_error *error);
qwen36_status qw_session_sync(qwen36_session *s, const int32_t *tokens, size_t count, size_t *reused,
                              qwen36_error *error);
qwen36_status qw_session_rewind(qwen36_session *s, size_t length, qwen36_error *error);
/* Forgets what was computed; the tokens become pending. */
void qw_session_forget(qwen36_session *s);
qwen36_status qw_session_score(qwen36_session *s, const int32_t *tokens, size_t count, float *logprobs,
                               qwen36_error *error);

/* One iteration over sessions of one model, all checked by the caller; results in s->step.status. */
qwen36_status qw_step(qwen36_session *const *sessions, size_t count, int32_t budget, qwen36_error *error);
qwen36_status qw_sample(qwen36_session *const *sessions, size_t count, int32_t *tokens, qwen36_error *error);
/* A session's outcome as the whole call's: the first error, else PENDING, else INTERRUPTED, else OK. */
qwen36_status qw_combine_status(qwen36_session *const *sessions, size_t count);

#endif
