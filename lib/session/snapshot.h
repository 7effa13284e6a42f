/* A session as an archive: tokens, KV, states, last logits, sampler; and back. docs/state.md describes the
 * sections. What an archive says is checked value by value before anything of it is used. */
#ifndef QW_SESSION_SNAPSHOT_H
#define QW_SESSION_SNAPSHOT_H

#include "lib/session/session.h"

/* To a file, which appears whole or not at all, or to memory: BUFFER_TOO_SMALL says in *bytes what is needed.
 */
qwen36_status qw_session_save_file(const qwen36_session *session, const char *path, qwen36_error *error);
qwen36_status qw_session_save_memory(const qwen36_session *session, void *memory, uint64_t capacity,
                                     uint64_t *bytes, qwen36_error *error);

/* Where a snapshot comes from: a file, or with path NULL memory. */
typedef struct qw_snapshot_source {
    const char *path;
    const void *memory;
    uint64_t bytes;
} qw_snapshot_source;

/* A new session. any_numerics: the arithmetic that made the state may be another one. SNAPSHOT: malformed;
 * SNAPSHOT_MISMATCH: whole, but not of this model or arithmetic. */
qwen36_status qw_session_restore(qwen36_model *model, const qw_snapshot_source *source,
                                 const qwen36_session_options *options, const qwen36_sampling *sampling,
                                 bool any_numerics, qwen36_session **session, qwen36_error *error);

/* The same files hold prefixes (disk.h): import makes the blocks nodes of the prefix index, with a snapshot
 * at the end, if the file is the state after exactly these tokens in this space. */
qwen36_status qw_snapshot_import_prefix(qwen36_model *model, const char *path, uint64_t space,
                                        const int32_t *tokens, int32_t count, qwen36_error *error);

typedef struct qw_snapshot_prefix {
    int32_t *tokens; /* [count * 64] */
    int32_t *blocks; /* [count] */
    int32_t count, slot;
} qw_snapshot_prefix;
qwen36_status qw_snapshot_export_prefix(qwen36_model *model, const char *path, uint64_t space,
                                        const qw_snapshot_prefix *prefix, qwen36_error *error);

#endif
