/* Every instruction that kernels/cuda/device.h wraps, as a kernel of its own over words. The same source runs
 * on the SIMT machine and on a GPU; instructions.c makes the inputs, keeps the outputs, and compares. */
#ifndef QW_TESTS_GPU_INSTRUCTIONS_H
#define QW_TESTS_GPU_INSTRUCTIONS_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* What the input words are; see material.c. */
enum {
    OF_NOTHING,     /* the kernel counts by itself */
    OF_BITS,        /* random */
    OF_FLOATS,      /* float32 of every kind: any bits, subnormal, NaN, infinite, on and beside ties */
    OF_HALF_TIES,   /* the middles between neighbours in F16, and what lies beside them */
    OF_RANGE,       /* float32 in [-64, 64) */
    OF_WHOLE_BF16,  /* operands of a matrix instruction: small whole numbers, any sum of which is exact */
    OF_WHOLE_F16,   /* likewise */
    OF_MATRIX_BF16, /* of [-4, 4), */
    OF_MATRIX_F16,  /*   with infinities and NaN in one set of them */
};

/* How outputs are compared. */
enum {
    AS_WORDS,     /* equal bits */
    AS_FLOATS,    /* equal bits; a NaN is as good as another */
    AS_HALVES,    /* F16 in the low half of each word: likewise */
    AS_FUNCTIONS, /* float32 within 4 units of the last place: functions of two libraries */
    AS_SUMS,      /* d of a matrix instruction, see matrix_scale in instructions.c */
};

typedef struct instruction {
    const char *name;
    int32_t of, as;
    int32_t inputs, outputs; /* words */
    int32_t blocks, threads, shared_bytes;
    void (*kernel)(const uint32_t *in, uint32_t *out);
} instruction;

const instruction *instruction_table(int32_t *count);
/* 1: it ran. */
int32_t instruction_run(const instruction *i, const uint32_t *in, uint32_t *out);

/* Operands of a matrix instruction: a [16][16] and b [16][8] in halves of words, d [16][8] float32. */
enum { MATRIX_B_AT = 128, MATRIX_D_AT = 192, MATRIX_WORDS_IN = 320, MATRIX_WORDS_OUT = 128 };
/* The middles of OF_HALF_TIES: of 0x7C00 pairs of either sign, three words each. */
enum { HALF_TIES = 6 * 0x7C00 };

/* material.c */
void material_fill(uint32_t *words, int32_t of, int32_t count, uint32_t set);
float material_float(uint32_t bits);
/* The value of 16 bits in F16 or BF16. */
float material_half(uint32_t bits, int32_t bf16);

#ifdef __cplusplus
}
#endif

#endif
