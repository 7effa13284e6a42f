/* The disk tier: prefixes that outlive the process, as snapshot files in a directory.
 *
 * A file is named by the content hash of its prefix, whose root mixes the model's fingerprint, the numerics
 * id, the archive's version and the namespace: a changed model or arithmetic looks for other names. What a
 * file says is checked besides: checksums, origin, namespace, and the tokens themselves. A file that does not
 * stand up is removed, and counts as a miss. Files appear whole, and a reader holds its file open, so several
 * processes may share a directory; least recently used files go first when it outgrows its limit.
 *
 * Files are written by flush and when the model is closed, read by sync; never in a step.
 */
#ifndef QW_SESSION_DISK_H
#define QW_SESSION_DISK_H

#include "lib/session/session.h"

/* Whether the directory can be used; sets the root of the prefix index. limit: bytes. */
qwen36_status qw_disk_open(qwen36_model *model, const char *directory, uint64_t limit, qwen36_error *error);
void qw_disk_close(qwen36_model *model);

/* Brings the longest prefix of tokens[0, count) that is on the disk, and is longer than what the index knows
 * and than `beyond` tokens, into the index. Failure is a miss, unless the device is lost:
 * QWEN36_ERROR_DEVICE_LOST. */
qwen36_status qw_disk_fetch(qwen36_model *model, uint64_t space, const int32_t *tokens, int32_t count,
                            int32_t beyond);

/* Writes every snapshot of the index that is not there yet, the most recently used first, as far as the limit
 * allows, and removes what is beyond it. The first failure's status; the rest is tried all the same. */
qwen36_status qw_disk_flush(qwen36_model *model, qwen36_error *error);

#endif
