/* Version, features and status names. */
#include "lib/backend.h"

#define TEXT(x) #x
#define VERSION(major, minor, patch) TEXT(major) "." TEXT(minor) "." TEXT(patch)

_Static_assert(QWEN36_VERSION_NUMBER ==
                   QWEN36_VERSION_MAJOR * 10000 + QWEN36_VERSION_MINOR * 100 + QWEN36_VERSION_PATCH,
               "the version number follows from its parts");

int32_t qwen36_version_number(void)
{
    return QWEN36_VERSION_NUMBER;
}

const char *qwen36_version_string(void)
{
    return VERSION(QWEN36_VERSION_MAJOR, QWEN36_VERSION_MINOR, QWEN36_VERSION_PATCH);
}

const char *qwen36_backend_name(void)
{
    return qw_backend_name();
}

uint64_t qwen36_features(void)
{
    return QWEN36_FEATURE_MOE | QWEN36_FEATURE_DENSE | QWEN36_FEATURE_YARN | QWEN36_FEATURE_BF16_KV |
           QWEN36_FEATURE_I8_KV;
}

#define STATUS_NAMES(X)                                                                                      \
    X(QWEN36_OK, "OK")                                                                                       \
    X(QWEN36_PENDING, "PENDING")                                                                             \
    X(QWEN36_INTERRUPTED, "INTERRUPTED")                                                                     \
    X(QWEN36_ERROR_ARGUMENT, "ARGUMENT")                                                                     \
    X(QWEN36_ERROR_STRUCT_SIZE, "STRUCT_SIZE")                                                               \
    X(QWEN36_ERROR_OUT_OF_MEMORY, "OUT_OF_MEMORY")                                                           \
    X(QWEN36_ERROR_BUFFER_TOO_SMALL, "BUFFER_TOO_SMALL")                                                     \
    X(QWEN36_ERROR_BUSY, "BUSY")                                                                             \
    X(QWEN36_ERROR_FORKED, "FORKED")                                                                         \
    X(QWEN36_ERROR_CANCELLED, "CANCELLED")                                                                   \
    X(QWEN36_ERROR_INTERNAL, "INTERNAL")                                                                     \
    X(QWEN36_ERROR_SYSTEM, "SYSTEM")                                                                         \
    X(QWEN36_ERROR_FILE_NOT_FOUND, "FILE_NOT_FOUND")                                                         \
    X(QWEN36_ERROR_FILE_READ, "FILE_READ")                                                                   \
    X(QWEN36_ERROR_FILE_CHANGED, "FILE_CHANGED")                                                             \
    X(QWEN36_ERROR_JSON, "JSON")                                                                             \
    X(QWEN36_ERROR_CONFIG, "CONFIG")                                                                         \
    X(QWEN36_ERROR_ARCHITECTURE, "ARCHITECTURE")                                                             \
    X(QWEN36_ERROR_ROPE_TYPE, "ROPE_TYPE")                                                                   \
    X(QWEN36_ERROR_QUANTIZATION, "QUANTIZATION")                                                             \
    X(QWEN36_ERROR_SAFETENSORS, "SAFETENSORS")                                                               \
    X(QWEN36_ERROR_MISSING_SHARD, "MISSING_SHARD")                                                           \
    X(QWEN36_ERROR_INDEX_MISMATCH, "INDEX_MISMATCH")                                                         \
    X(QWEN36_ERROR_MISSING_TENSOR, "MISSING_TENSOR")                                                         \
    X(QWEN36_ERROR_TENSOR_SHAPE, "TENSOR_SHAPE")                                                             \
    X(QWEN36_ERROR_TENSOR_DTYPE, "TENSOR_DTYPE")                                                             \
    X(QWEN36_ERROR_TIED_HEAD, "TIED_HEAD")                                                                   \
    X(QWEN36_ERROR_TOKENIZER, "TOKENIZER")                                                                   \
    X(QWEN36_ERROR_NO_TOKENIZER, "NO_TOKENIZER")                                                             \
    X(QWEN36_ERROR_CHAT_TEMPLATE, "CHAT_TEMPLATE")                                                           \
    X(QWEN36_ERROR_CHAT_MESSAGES, "CHAT_MESSAGES")                                                           \
    X(QWEN36_ERROR_FILE_WRITE, "FILE_WRITE")                                                                 \
    X(QWEN36_ERROR_SNAPSHOT, "SNAPSHOT")                                                                     \
    X(QWEN36_ERROR_SNAPSHOT_MISMATCH, "SNAPSHOT_MISMATCH")                                                   \
    X(QWEN36_ERROR_TOKEN_ID, "TOKEN_ID")                                                                     \
    X(QWEN36_ERROR_CONTEXT_FULL, "CONTEXT_FULL")                                                             \
    X(QWEN36_ERROR_CACHE_FULL, "CACHE_FULL")                                                                 \
    X(QWEN36_ERROR_SESSIONS_FULL, "SESSIONS_FULL")                                                           \
    X(QWEN36_ERROR_NO_LOGITS, "NO_LOGITS")                                                                   \
    X(QWEN36_ERROR_NON_FINITE, "NON_FINITE")                                                                 \
    X(QWEN36_ERROR_NO_CANDIDATE, "NO_CANDIDATE")                                                             \
    X(QWEN36_ERROR_DEVICE, "DEVICE")                                                                         \
    X(QWEN36_ERROR_DEVICE_LOST, "DEVICE_LOST")

const char *qwen36_status_name(qwen36_status status)
{
    switch (status) {
#define CASE(code, name)                                                                                     \
    case code:                                                                                               \
        return name;
        STATUS_NAMES(CASE)
#undef CASE
    default:
        return "UNKNOWN";
    }
}
