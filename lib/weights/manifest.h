/* The check of a checkpoint's tensors against the list of lib/model/weights.c: every tensor that will be read
 * is there, in a format that can be read, with exactly its shape; and what every other tensor is. */
#ifndef QW_MANIFEST_H
#define QW_MANIFEST_H

#include "lib/weights/checkpoint.h"

/* Sets prefix, fused_experts, weight_bytes, parameters, role_count and each tensor's role. */
qwen36_status qw_manifest_check(qw_checkpoint *checkpoint, qwen36_error *error);

/* Where the checkpoint's list of tensors stands: the index, or the one file. */
const char *qw_manifest_source(const qw_checkpoint *checkpoint);

#endif
