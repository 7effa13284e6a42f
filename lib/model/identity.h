/* What a computed state depends on beside its tokens: which weights, and which arithmetic. */
#ifndef QW_MODEL_IDENTITY_H
#define QW_MODEL_IDENTITY_H

#include "lib/base/hash.h"
#include "lib/model/model.h"

/* To be raised whenever the bits of results change: then the golden digests of tests change too. */
enum { QW_NUMERICS_REVISION = 1, QW_NUMERICS_ID = 64 };

/* Backend, tier, numerics, KV format and revision, e.g. "cpu/avx512-bf16/fast kv=BF16 r1". */
void qw_model_numerics_id(const qwen36_model *model, char id[QW_NUMERICS_ID]);

/* What every hash of a prefix begins with: weights, arithmetic, and the format of files of prefixes. */
qw_hash128 qw_model_prefix_root(const qwen36_model *model);

/* Stands for the weights: dimensions, and of every tensor its shape, its dtype and two samples of its
 * content (of the experts three per layer). Reads little, so files of any size are told apart at once; it
 * finds exchanged files, not a forger. Made once, from the weights in host memory. */
qw_hash128 qw_model_fingerprint_make(const qwen36_model *model);

#endif
