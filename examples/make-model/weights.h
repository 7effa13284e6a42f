/*
 * The integer weight generator of make-model.
 *
 * A weight is ((n >> shift) + offset) * 2^-s, where n is a signed byte of a counter-based stream that
 * depends on (seed, tensor name, element index) alone; shift, offset and s follow from the name and the
 * shape. It is exact in BF16, F16 and F32. tests/golden/weights.py computes the same bytes, and
 * tests/golden/README.md is the definition.
 */
#ifndef MAKE_MODEL_WEIGHTS_H
#define MAKE_MODEL_WEIGHTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

enum dtype { BF16, F16, F32 };

static const struct {
    const char *option, *config_name, *tensor_name;
    size_t size;
} dtypes[] = {
    [BF16] = {"bf16", "bfloat16", "BF16", 2},
    [F16] = {"f16", "float16", "F16", 2},
    [F32] = {"f32", "float32", "F32", 4},
};

static uint64_t fnv1a64(const char *text)
{
    uint64_t h = UINT64_C(0xCBF29CE484222325);
    for (; *text; text++)
        h = (h ^ (unsigned char)*text) * UINT64_C(0x100000001B3);
    return h;
}

static uint64_t stream_key(const char *name, uint64_t seed)
{
    return fnv1a64(name) ^ (seed * UINT64_C(0xD1342543DE82EF95));
}

/* Eight elements of a stream, the first in the lowest byte. */
static uint64_t stream_word(uint64_t key, uint64_t index)
{
    uint64_t z = key + index * UINT64_C(0x9E3779B97F4A7C15);
    z = (z ^ (z >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94D049BB133111EB);
    return z ^ (z >> 31);
}

static void stream_bytes(unsigned char *out, uint64_t key, uint64_t first, size_t count)
{
    for (; count && first % 8; first++, count--)
        *out++ = (unsigned char)(stream_word(key, first / 8) >> (8 * (first % 8)));
    for (; count >= 8; first += 8, count -= 8, out += 8) {
        uint64_t w = stream_word(key, first / 8);
        for (int j = 0; j < 8; j++)
            out[j] = (unsigned char)(w >> (8 * j));
    }
    for (; count; first++, count--)
        *out++ = (unsigned char)(stream_word(key, first / 8) >> (8 * (first % 8)));
}

/* The s for which 74 * 2^-s (74 is the deviation of a random byte) is nearest to fan_in^-1/2 in
 * the logarithm: floor(log2(2 * 74^2 * fan_in) / 2). */
static int linear_exponent(int64_t fan_in)
{
    uint64_t x = UINT64_C(2) * 74 * 74 * (uint64_t)fan_in;
    int log2 = -1;
    for (; x; x >>= 1)
        log2++;
    return log2 / 2;
}

/* An element is ((n >> shift) + offset) * 2^-s. */
struct rule {
    int shift, offset, s;
};

static bool ends_with(const char *text, const char *end)
{
    size_t n = strlen(text), m = strlen(end);
    return n >= m && strcmp(text + n - m, end) == 0;
}

/* Names decide before shapes: `fan_in` is the last of `dims` dimensions. */
static struct rule rule_of(const char *name, int dims, int64_t fan_in, bool tied)
{
    static const struct {
        const char *end;
        struct rule rule;
    } named[] = {
        {".A_log", {0, -64, 5}},       {".dt_bias", {0, 0, 6}},
        {".conv1d.weight", {0, 0, 7}}, {".linear_attn.norm.weight", {3, 128, 7}},
        {".q_norm.weight", {0, 0, 9}}, {".k_norm.weight", {0, 0, 9}},
    };
    for (size_t i = 0; i < sizeof named / sizeof *named; i++)
        if (ends_with(name, named[i].end))
            return named[i].rule;
    struct rule rule = {0, 0, dims == 1 ? 10 : linear_exponent(fan_in)};
    if (ends_with(name, ".embed_tokens.weight"))
        rule.s = tied ? rule.s - 1 : 7;
    else if (strcmp(name, "lm_head.weight") == 0 || ends_with(name, ".mlp.gate.weight"))
        rule.s--;
    return rule;
}

/* The F16 bits of m * 2^-s, |m| < 256 and s <= 24. */
static uint32_t half_bits(int m, int s)
{
    uint32_t sign = m < 0 ? 0x8000u : 0u, u = (uint32_t)(m < 0 ? -m : m);
    int e = 7;
    while (e > 0 && !(u >> e))
        e--;
    if (!u || e - s < -14)
        return sign | u << (24 - s);
    return (sign + ((uint32_t)(e - s + 15) << 10)) | ((u << (10 - e)) & 0x3FFu);
}

static uint32_t element_bits(int m, int s, enum dtype dtype)
{
    if (dtype == F16)
        return half_bits(m, s);
    float value = (float)m / (float)(UINT32_C(1) << s);
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return dtype == BF16 ? bits >> 16 : bits;
}

/* table[n & 255] holds the little-endian bytes of the element that the signed byte n stands for. */
static void fill_table(unsigned char table[256][4], struct rule rule, enum dtype dtype)
{
    for (int b = 0; b < 256; b++) {
        int n = b < 128 ? b : b - 256;
        int shifted = (n + 128) / (1 << rule.shift) - 128 / (1 << rule.shift);
        uint32_t bits = element_bits(shifted + rule.offset, rule.s, dtype);
        for (int j = 0; j < 4; j++)
            table[b][j] = (unsigned char)(bits >> (8 * j));
    }
}

static void widen(unsigned char *out, const unsigned char *bytes, size_t count, unsigned char table[256][4],
                  size_t size)
{
    if (size == 2) {
        for (size_t i = 0; i < count; i++)
            memcpy(out + 2 * i, table[bytes[i]], 2);
    } else {
        for (size_t i = 0; i < count; i++)
            memcpy(out + 4 * i, table[bytes[i]], 4);
    }
}

#endif
