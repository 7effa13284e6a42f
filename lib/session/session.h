/* A session: one timeline of tokens, and what the model remembers of its computed part.
 *
 *   tokens   0 ............ computed ............ length ........ capacity
 *            in KV + state   pending (wants[i] says which logits)
 *
 * Owns its arrays; holds references on KV blocks, one state slot and one logits row of the model's pools, all
 * of which others may hold too. `computed`, slot, row and blocks change together, in commit (step.c) and in
 * adopt (prefix_use.c), and only there. docs/state.md has the invariants.
 */
#ifndef QW_SESSION_SESSION_H
#define QW_SESSION_SESSION_H

#include "lib/model/model.h"
#include "lib/sample/sampler.h"

/* What is wanted of the logits after a token; bits. */
enum { QW_WANT_LAST = 1, QW_WANT_ROW = 2, QW_WANT_SCORE = 4 };

/* Positions, all multiples of 64, at which a snapshot is worth its memory. */
enum {
    QW_MARK_END,        /* the last one of the prompt */
    QW_MARK_BEFORE_END, /* the last one with a token behind it */
    QW_MARK_USER,       /* before the last user turn */
    QW_MARK_FIRST_TURN, /* before the first turn that is not the timeline's begin */
    QW_MARK_SIBLING,    /* where a waiting session departs */
    QW_MARKS
};

/* A session's part in the step that runs; meaningless outside. */
typedef struct qw_step_part {
    int32_t rows;              /* 0: takes no part */
    int32_t row_begin;         /* first row in the batch */
    int32_t new_slot;          /* state slot that the step writes */
    int32_t new_row;           /* logits row that it writes; -1: none is wanted */
    int32_t new_blocks;        /* taken at the end of the table */
    int32_t shared_block;      /* what a private copy replaced in the table; -1 */
    int32_t save_begin, saves; /* of the model's `saves`: states to keep on the way */
    bool deferred;             /* a neighbour computes what it needs */
    qwen36_status status;
} qw_step_part;

/* What qwen36_stats reports of a session. */
typedef struct qw_session_counters {
    uint64_t steps, computed, reused, sampled, copies;
} qw_session_counters;

struct qwen36_session {
    qwen36_model *model;
    int64_t process;
    qwen36_session *previous, *next; /* sessions of the model, under its lock */
    int32_t capacity, length, computed;
    int32_t *tokens; /* [capacity] */
    uint8_t *wants;  /* [capacity] */
    int32_t *blocks; /* [ceil(capacity / 64)]: KV block of each 64 tokens */
    int32_t block_count;
    int32_t indexed; /* leading blocks that are nodes of the prefix index */
    int32_t slot;    /* state after `computed` tokens; -1: the zero state */
    int32_t row;     /* logits after `computed` tokens; -1: they were not wanted */
    uint64_t space;  /* namespace of its prefixes */
    int32_t passing; /* node that carries this session's passing snapshot; -1 */
    int32_t marks[QW_MARKS];
    uint64_t seen;        /* version of the prefix index when it was last asked */
    int32_t waited;       /* steps in a row that gave it nothing */
    bool stalled;         /* found no memory, and has not gone on since: nobody waits for it */
    int32_t output_begin; /* tokens sampled since the last append or sync */
    qw_sampler sampler;
    qwen36_logits_fn on_logits;
    void *user;
    float *scores; /* while qw_session_score runs: receives the log-prob of token score_begin + i */
    int32_t score_begin;
    _Atomic int32_t interrupted;
    bool in_call; /* part of a running step, sample, score or generate */
    qw_step_part step;
    qw_session_counters counters;
};

qwen36_status qw_session_open(qwen36_model *model, const qwen36_session_options *options,
                              const qwen36_sampling *sampling, qwen36_session **session, qwen36_error *error);
void qw_session_close(qwen36_session *session);
/* A second session at the same point: it shares blocks, slot and logits row until either goes on. `options`
 * as for open; the sampling options are those of `session`. */
qwen36_status qw_session_fork(const qwen36_session *session, const qwen36_session_options *options,
                              qwen36_session **fork, qwen36_error *error);

qwen36_status qw_session_append(qwen36_session *s, const int32_t *tokens, size_t count, int32_t logits,
                                qwen36_error *error);
qwen36_status qw_session_sync(qwen36_session *s, const int32_t *tokens, size_t count, size_t *reused,
                              qwen36_error *error);
qwen36_status qw_session_rewind(qwen36_session *s, size_t length, qwen36_error *error);
/* Forgets what was computed; the tokens become pending. */
void qw_session_forget(qwen36_session *s);

/* Between the timeline and the prefix index (prefix_use.c). */

/* Stands on the longest known prefix of tokens[0, count) instead of on what was computed, if it is longer
 * than `beyond` tokens. Returns whether it does; `computed` then says how long it is. */
bool qw_session_adopt(qwen36_session *s, const int32_t *tokens, int32_t count, int32_t beyond);
/* The same for what is pending, from where it stands; called in every step, cheap when nothing is new. */
void qw_session_adopt_pending(qwen36_session *s);
/* Tokens that an adoption may skip: neither the last one, nor one whose logits somebody waits for. */
int32_t qw_session_skippable(const qwen36_session *s);
/* Sets the marks of a prompt that ends at `length`; tokens from `from` on are new. */
void qw_session_mark_prompt(qwen36_session *s, int32_t from);
/* Whether the state after `position` tokens is worth keeping. */
bool qw_session_keeps(const qwen36_session *s, int32_t position);
/* After a commit, under the model's lock: completed blocks become nodes, states become snapshots. */
void qw_session_index(qwen36_session *s);
qwen36_status qw_session_score(qwen36_session *s, const int32_t *tokens, size_t count, float *logprobs,
                               qwen36_error *error);

/* Gives rows to sessions (schedule.c): fills step.rows of each. Nobody waits for ever: see docs/sessions.md.
 */
void qw_schedule(qwen36_model *model, qwen36_session *const *sessions, size_t count, int32_t budget);

/* One iteration over sessions of one model, all checked by the caller; results in s->step.status. */
qwen36_status qw_step(qwen36_session *const *sessions, size_t count, int32_t budget, qwen36_error *error);
qwen36_status qw_sample(qwen36_session *const *sessions, size_t count, int32_t *tokens, qwen36_error *error);
/* What is to be watched (stats.c); taking the model's lock. */
void qw_model_watch(qwen36_model *model, qwen36_stats *stats);
void qw_session_watch(const qwen36_session *session, qwen36_stats *stats);
/* Whether every block, slot and row has exactly the holders that it counts, and the prefix index is sound:
 * for tests, after every operation. Takes the model's lock. */
bool qw_sessions_check(qwen36_model *model);
/* A session's outcome as the whole call's: the first error, else PENDING, else INTERRUPTED, else OK. */
qwen36_status qw_combine_status(qwen36_session *const *sessions, size_t count);

#endif
