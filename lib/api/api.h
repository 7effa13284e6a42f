/* What the exported functions share: adopting structs across versions, and the checks at the door. */
#ifndef QW_API_API_H
#define QW_API_API_H

#include "lib/session/session.h"

/* The size of a struct that ends with `field`: what the version that added the field had. */
#define QW_SIZE_THROUGH(type, field) (offsetof(type, field) + sizeof(((type *)0)->field))

/* Copies a caller's options struct (first member: uint32_t struct_size) over `known` bytes of ours. A shorter
 * struct leaves zeros ("as before"), but not shorter than `minimum`, what
 * version 0.1 had (QW_SIZE_THROUGH its last field); a longer one is
 * accepted if its tail is zero. */
qwen36_status qw_options_adopt(void *ours, size_t known, const void *given, size_t minimum,
                               qwen36_error *error);
/* Writes the first `size` bytes of defaults, struct_size included, and zeros beyond what is known. */
void qw_defaults_write(void *options, size_t size, const void *defaults, size_t known);
/* Whether a caller's output struct has a size that can be filled; fills it as far as both sides know it. */
qwen36_status qw_output_check(const void *output, size_t known, qwen36_error *error);
qwen36_status qw_output_write(void *output, const void *values, size_t known, qwen36_error *error);

/* Clears the error; NULL, an object of a parent process, a lost device; for a session also a call out of a
 * callback. */
qwen36_status qw_enter_model(const qwen36_model *model, qwen36_error *error);
qwen36_status qw_enter_session(const qwen36_session *session, qwen36_error *error);
/* A set of sessions for step or sample: one model, no session twice; marks them in_call. On failure none is
 * marked. */
qwen36_status qw_enter_sessions(qwen36_session *const *sessions, size_t count, qwen36_error *error);
void qw_leave_sessions(qwen36_session *const *sessions, size_t count);

qwen36_status qw_model_options_adopt(qwen36_model_options *ours, const qwen36_model_options *given,
                                     qwen36_error *error);
qwen36_status qw_session_options_adopt(const qwen36_model *model, const qwen36_session_options *given,
                                       qwen36_session_options *ours, qwen36_error *error);
/* The sampling options that generation_config.json asks for. */
qwen36_sampling qw_sampling_defaults(const qwen36_model *model);

#endif
