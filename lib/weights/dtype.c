#include "lib/weights/dtype.h"

#include <string.h>

static const struct {
    const char *name;
    int32_t bits;
} dtypes[QW_DTYPE_COUNT] = {
    [QW_F32] = {"F32", 32},
    [QW_BF16] = {"BF16", 16},
    [QW_F16] = {"F16", 16},
    [QW_I32] = {"I32", 32},
    [QW_BOOL] = {"BOOL", 8},
    [QW_F4] = {"F4", 4},
    [QW_F6_E2M3] = {"F6_E2M3", 6},
    [QW_F6_E3M2] = {"F6_E3M2", 6},
    [QW_U8] = {"U8", 8},
    [QW_I8] = {"I8", 8},
    [QW_F8_E5M2] = {"F8_E5M2", 8},
    [QW_F8_E4M3] = {"F8_E4M3", 8},
    [QW_F8_E8M0] = {"F8_E8M0", 8},
    [QW_F8_E4M3FNUZ] = {"F8_E4M3FNUZ", 8},
    [QW_F8_E5M2FNUZ] = {"F8_E5M2FNUZ", 8},
    [QW_I16] = {"I16", 16},
    [QW_U16] = {"U16", 16},
    [QW_U32] = {"U32", 32},
    [QW_C64] = {"C64", 64},
    [QW_F64] = {"F64", 64},
    [QW_I64] = {"I64", 64},
    [QW_U64] = {"U64", 64},
};

const char *qw_dtype_name(int32_t dtype)
{
    return dtype >= 0 && dtype < QW_DTYPE_COUNT ? dtypes[dtype].name : "unknown";
}

int32_t qw_dtype_parse(const char *name)
{
    for (int32_t i = 0; i < QW_DTYPE_COUNT; i++)
        if (strcmp(dtypes[i].name, name) == 0)
            return i;
    return -1;
}

int32_t qw_dtype_bits(int32_t dtype)
{
    return dtypes[dtype].bits;
}
