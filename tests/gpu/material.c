/* Inputs of instructions: the same words on every machine. */
#include "tests/gpu/instructions.h"

#include <math.h>
#include <stddef.h>
#include <string.h>

/* Well mixed from a counter, so that a word does not depend on how many were asked for. */
static uint32_t random_word(uint32_t set, uint32_t index)
{
    uint64_t x = ((uint64_t)set << 32 | index) * 0x9E3779B97F4A7C15u + 0xD1B54A32D192ED03u;
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9u;
    x = (x ^ x >> 27) * 0x94D049BB133111EBu;
    return (uint32_t)(x >> 32);
}

float material_float(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static uint32_t bits_of(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

float material_half(uint32_t bits, int32_t bf16)
{
    const int32_t exponent = (int32_t)(bits >> 10 & 31), mantissa = (int32_t)(bits & 1023);
    if (bf16)
        return material_float(bits << 16);
    const float sign = bits & 0x8000 ? -1.0F : 1.0F;
    if (exponent == 31)
        return mantissa != 0 ? NAN : sign * INFINITY;
    return sign *
           (exponent == 0 ? ldexpf((float)mantissa, -24) : ldexpf((float)(mantissa + 1024), exponent - 25));
}

/* ---- float32 of every kind ----------------------------------------------------------------------------- */

static const uint32_t edges[] = {
    0,          0x80000000, 1,          0x80000001, 0x007FFFFF, 0x00800000, 0x7F7FFFFF,
    0xFF7FFFFF, 0x7F800000, 0xFF800000, 0x7FC00000, 0xFFC00000, 0x7F800001, 0x7FFFFFFF,
    0x3F800000, 0xBF800000, 0x477FE000, 0x477FEFFF, 0x477FF000, 0x477FF001, 0x33000000,
    0x33000001, 0x33800000, 0x387FC000, 0x38800000, 0x7F7F8000, 0x7F7F7FFF,
};

static uint32_t any_float(uint32_t set, uint32_t i)
{
    const uint32_t word = random_word(set, 2 * i), other = random_word(set, 2 * i + 1);
    switch (word % 8) {
    case 0: /* subnormal */
        return other & 0x807FFFFF;
    case 1:
        return edges[other % (sizeof edges / sizeof edges[0])];
    case 2: /* in the middle of two of BF16 */
        return (other & 0xFFFF0000) | 0x8000;
    case 3: /* about where F16 begins and ends */
        return (other & 0x807FFFFF) | (100 + word / 8 % 45) << 23;
    case 4: /* in the middle of two of F16, its subnormal ones apart */
        return (other & 0x807FE000) | (113 + word / 8 % 30) << 23 | 0x1000;
    case 5: /* numbers as they are usual */
        return (other & 0x807FFFFF) | (117 + word / 8 % 20) << 23;
    default:
        return other;
    }
}

/* The middle of two neighbours in F16 is a float32, and so is what lies beside it. */
static void half_ties(uint32_t *words)
{
    for (uint32_t i = 0; i < 0x7C00; i++) {
        const float below = material_half(i, 0), above = i == 0x7BFF ? 65536.0F : material_half(i + 1, 0);
        const uint32_t middle = bits_of((below + above) / 2);
        for (uint32_t k = 0; k < 6; k++)
            words[6 * i + k] = (middle - 1 + k % 3) | (k < 3 ? 0 : 0x80000000);
    }
}

static uint32_t in_range(uint32_t set, uint32_t i)
{
    return bits_of(((float)(random_word(set, i) >> 8) / 8388608.0F - 1.0F) * 64.0F);
}

/* ---- operands of matrix instructions ------------------------------------------------------------------- */

/* A number of at most 11 bits, as F16 or, cut to 8 bits, as BF16. */
static uint32_t as_half(float value, int32_t bf16)
{
    const uint32_t bits = bits_of(value);
    if (bf16 || value == 0)
        return bits >> 16;
    return (bits >> 16 & 0x8000) | ((bits >> 13 & 0x3FFFF) - (112 << 10));
}

/* `special`: infinities and NaN, one in 64; else what is subnormal, one in 16. */
static uint32_t operand(uint32_t word, int32_t of, int32_t special)
{
    const int32_t bf16 = of == OF_WHOLE_BF16 || of == OF_MATRIX_BF16;
    const uint32_t infinity = bf16 ? 0x7F80 : 0x7C00;
    if (of == OF_WHOLE_BF16 || of == OF_WHOLE_F16)
        return as_half((float)(int32_t)(word % 31) - 15, bf16);
    if (special && (word >> 24) % 64 == 0)
        return infinity | (word & 0x8000) | (word >> 20 & 1);
    if (!special && (word >> 24) % 16 == 0)
        return word & (bf16 ? 0x807F : 0x83FF);
    return as_half((float)((int32_t)(word % 4096) - 2048) / 512.0F, bf16);
}

static void matrix_operands(uint32_t *words, int32_t of, uint32_t set)
{
    const int32_t whole = of == OF_WHOLE_BF16 || of == OF_WHOLE_F16, special = set == 2;
    for (uint32_t i = 0; i < MATRIX_D_AT; i++)
        words[i] = operand(random_word(set, 2 * i), of, special) |
                   operand(random_word(set, 2 * i + 1), of, special) << 16;
    for (uint32_t i = MATRIX_D_AT; i < MATRIX_WORDS_IN; i++)
        words[i] =
            whole ? bits_of((float)(int32_t)(random_word(set, 2 * i) % 2001) - 1000) : in_range(set, 2 * i);
}

void material_fill(uint32_t *words, int32_t of, int32_t count, uint32_t set)
{
    if (of == OF_HALF_TIES)
        half_ties(words);
    if (of >= OF_WHOLE_BF16)
        matrix_operands(words, of, set);
    for (uint32_t i = 0; i < (uint32_t)count; i++)
        if (of == OF_BITS)
            words[i] = random_word(set, i);
        else if (of == OF_FLOATS)
            words[i] = any_float(set, i);
        else if (of == OF_RANGE)
            words[i] = in_range(set, i);
}
