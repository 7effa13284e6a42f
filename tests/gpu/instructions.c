/* Compares the instructions of two machines: one keeps what each gave for inputs that are the same
 * everywhere, the other runs them too.
 *
 *   instructions keep FILE      runs all, and writes the records
 *   instructions compare FILE   runs all, and compares; a record is a test
 *   instructions doubt FILE     spoils a bit of each record of the file: the comparison must find it
 */
#include "tests/gpu/instructions.h"
#include "tests/simt/simt.h"
#include "tests/simt/simt_memory.h"

#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SETS = 3, SUMMANDS = 17 };

/* What a file has before the words of a record. */
typedef struct head {
    char name[40];
    uint32_t set, count;
} head;

typedef struct record {
    head is;
    int32_t as;
    uint32_t *words; /* what the instruction gave */
    float *scale;    /* AS_SUMS: the sum of magnitudes that make an element */
} record;

static _Noreturn void give_up(const char *what, const char *which)
{
    fprintf(stderr, "%s %s\n", what, which);
    exit(1);
}

static void *memory(size_t bytes)
{
    void *array = calloc(1, bytes > 0 ? bytes : 1);
    if (array == NULL)
        give_up("no memory for", "records");
    return array;
}

/* ---- running ------------------------------------------------------------------------------------------- */

/* |d| + sum |a| |b|, infinite or NaN where a summand is. */
static float *matrix_scale(const uint32_t *in, int32_t of)
{
    float *scale = memory(MATRIX_WORDS_OUT * sizeof *scale);
    for (int32_t i = 0; i < MATRIX_WORDS_OUT; i++) {
        scale[i] = fabsf(material_float(in[MATRIX_D_AT + i]));
        for (int32_t k = 0; k < 16; k++) {
            const int32_t at = i / 8 * 16 + k, other = k * 8 + i % 8, bf16 = of == OF_MATRIX_BF16;
            const float a = material_half(in[at / 2] >> at % 2 * 16 & 0xFFFF, bf16);
            const float b = material_half(in[MATRIX_B_AT + other / 2] >> other % 2 * 16 & 0xFFFF, bf16);
            scale[i] += fabsf(a * b);
        }
    }
    return scale;
}

static record run(const instruction *i, uint32_t set)
{
    const size_t inputs = (size_t)(i->inputs > 0 ? i->inputs : 1) * 4, outputs = (size_t)i->outputs * 4;
    uint32_t *in = simt_array_create(inputs), *out = simt_array_create(outputs);
    record r = {.as = i->as, .words = memory(outputs)};
    if (in == NULL || out == NULL)
        give_up("no memory for", i->name);
    snprintf(r.is.name, sizeof r.is.name, "%s", i->name);
    r.is.set = set;
    r.is.count = (uint32_t)i->outputs;
    memset(out, 0, outputs);
    material_fill(in, i->of, i->inputs, set);
    if (!instruction_run(i, in, out) || simt_fault()[0] != 0) {
        fprintf(stderr, "%s does not run: %s\n", i->name, simt_fault());
        exit(1);
    }
    memcpy(r.words, out, outputs);
    if (i->as == AS_SUMS)
        r.scale = matrix_scale(in, i->of);
    simt_array_destroy(in);
    simt_array_destroy(out);
    return r;
}

static void release(record *r)
{
    free(r->words);
    free(r->scale);
}

/* Inputs that are all that there are need no second set. */
static uint32_t sets_of(const instruction *i)
{
    return i->of == OF_NOTHING || i->of == OF_HALF_TIES ? 1 : SETS;
}

/* ---- comparing ----------------------------------------------------------------------------------------- */

static bool is_nan_half(uint32_t bits)
{
    return (bits & 0x7FFF) > 0x7C00;
}

/* Of a matrix instruction only this is told: products are exact, and are added in an order of its own, with
 * at least the bits of float32. Summands aligned to the largest and cut at its last place, instead of rounded
 * sums, lose up to 2^-23 of it each; the plain sums of the other machine half as much. */
static bool same_sum(float a, float b, float scale)
{
    if (!isfinite(scale))
        return (isnan(a) && isnan(b)) || a == b;
    return fabsf(a - b) <= 1.5F * SUMMANDS * 0x1p-23F * scale;
}

static bool same(const record *r, uint32_t i, uint32_t expected)
{
    const uint32_t word = r->words[i];
    const float a = material_float(word), b = material_float(expected);
    switch (r->as) {
    case AS_FLOATS:
        return word == expected || (isnan(a) && isnan(b));
    case AS_HALVES:
        return word == expected ||
               (is_nan_half(word) && is_nan_half(expected) && (word | expected) < 0x10000);
    case AS_FUNCTIONS:
        return word == expected || fabsf(a - b) <= 4 * 0x1p-23F * fabsf(b);
    case AS_SUMS:
        return same_sum(a, b, r->scale[i]);
    default:
        return word == expected;
    }
}

/* Words that differ; the first of them is told when `tell`. */
static uint32_t differences(const record *r, const uint32_t *expected, bool tell)
{
    uint32_t different = 0;
    for (uint32_t i = 0; i < r->is.count; i++) {
        if (same(r, i, expected[i]))
            continue;
        if (different++ == 0 && tell)
            printf("%s, set %u: word %u is %08x (%g), expected %08x (%g)\n", r->is.name, r->is.set, i,
                   r->words[i], (double)material_float(r->words[i]), expected[i],
                   (double)material_float(expected[i]));
    }
    if (different > 1 && tell)
        printf("%s, set %u: %u of %u words differ\n", r->is.name, r->is.set, different, r->is.count);
    return different;
}

/* The record that must come next in the file; its words. */
static uint32_t *read_next(FILE *file, const record *r)
{
    head found;
    uint32_t *words = memory(r->is.count * sizeof *words);
    if (fread(&found, sizeof found, 1, file) != 1 || memcmp(&found, &r->is, sizeof found) != 0 ||
        fread(words, sizeof *words, found.count, file) != found.count)
        give_up("the file is of another version: it lacks", r->is.name);
    return words;
}

/* Spoils one bit where that must not be: the last of words and of numbers, the fifth of what has a bound in
 * last places, the one before the exponent of the largest sum. False: no word can be spoilt. */
static bool spoil(const record *r, uint32_t *words)
{
    uint32_t at = r->is.count;
    for (uint32_t i = 0; i < r->is.count; i++) {
        const float value = material_float(words[i]);
        if (r->as == AS_WORDS || (r->as == AS_HALVES && !is_nan_half(words[i])) ||
            (r->as != AS_HALVES && isfinite(value) && (r->as != AS_SUMS || isfinite(r->scale[i]))))
            if (at == r->is.count || (r->as == AS_SUMS && fabsf(value) > fabsf(material_float(words[at]))))
                at = i;
    }
    if (at == r->is.count)
        return false;
    words[at] ^= r->as == AS_SUMS ? 1U << 22 : r->as == AS_FUNCTIONS ? 1U << 4 : 1U;
    return true;
}

static bool passes(FILE *file, const record *r, const char *mode)
{
    if (strcmp(mode, "keep") == 0) {
        if (fwrite(&r->is, sizeof r->is, 1, file) != 1 ||
            fwrite(r->words, sizeof *r->words, r->is.count, file) != r->is.count)
            give_up("cannot write", r->is.name);
        return true;
    }
    uint32_t *expected = read_next(file, r);
    bool passed = false;
    if (strcmp(mode, "compare") == 0)
        passed = differences(r, expected, true) == 0;
    else if (spoil(r, expected))
        passed = differences(r, expected, false) == 1;
    if (!passed && strcmp(mode, "doubt") == 0)
        printf("%s, set %u: a spoilt bit is not found\n", r->is.name, r->is.set);
    free(expected);
    return passed;
}

int main(int argc, char **argv)
{
    const char *mode = argc == 3 ? argv[1] : "";
    const bool keep = strcmp(mode, "keep") == 0;
    if (!keep && strcmp(mode, "compare") != 0 && strcmp(mode, "doubt") != 0)
        give_up("usage: instructions", "keep|compare|doubt FILE");
    FILE *file = fopen(argv[2], keep ? "wb" : "rb");
    int32_t count, passed = 0, failed = 0;
    const instruction *table = instruction_table(&count);
    if (file == NULL)
        give_up("cannot open", argv[2]);
    for (int32_t i = 0; i < count; i++)
        for (uint32_t set = 0; set < sets_of(&table[i]); set++) {
            record r = run(&table[i], set);
            *(passes(file, &r, mode) ? &passed : &failed) += 1;
            release(&r);
        }
    if ((!keep && fgetc(file) != EOF) || fclose(file) != 0)
        give_up("the file holds more than there is, or cannot be written:", argv[2]);
    printf("%d passed, %d failed\n", passed, failed);
    return failed > 0;
}
