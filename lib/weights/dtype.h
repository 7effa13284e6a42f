/* Number formats: those a weight may have, and all that a safetensors header may name. */
#ifndef QW_DTYPE_H
#define QW_DTYPE_H

#include <stdbool.h>
#include <stdint.h>

enum {
    QW_F32 = 0,
    QW_BF16 = 1,
    QW_F16 = 2,
    QW_I32 = 3,
    /* These can be read over, but no weight is stored in them. */
    QW_BOOL,
    QW_F4,
    QW_F6_E2M3,
    QW_F6_E3M2,
    QW_U8,
    QW_I8,
    QW_F8_E5M2,
    QW_F8_E4M3,
    QW_F8_E8M0,
    QW_F8_E4M3FNUZ,
    QW_F8_E5M2FNUZ,
    QW_I16,
    QW_U16,
    QW_U32,
    QW_C64,
    QW_F64,
    QW_I64,
    QW_U64,
    QW_DTYPE_COUNT
};

/* "BF16"; static. */
const char *qw_dtype_name(int32_t dtype);
/* By the exact name that safetensors uses; -1: unknown. */
int32_t qw_dtype_parse(const char *name);
/* Bits per element: 4 and 6 occur. */
int32_t qw_dtype_bits(int32_t dtype);
/* Bytes per element of the formats that a weight or the KV cache may have. */
static inline int32_t qw_dtype_size(int32_t dtype)
{
    return dtype == QW_F32 || dtype == QW_I32 ? 4 : dtype == QW_I8 ? 1 : 2;
}
static inline bool qw_dtype_is_weight(int32_t dtype)
{
    return dtype == QW_F32 || dtype == QW_BF16 || dtype == QW_F16;
}

#endif
