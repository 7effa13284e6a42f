/* Words for the compiler: a loop of constant length that must vanish, a function that must. */
#ifndef QW_CPU_UNROLL_H
#define QW_CPU_UNROLL_H

#if defined(__clang__)
#define QW_UNROLL _Pragma("unroll")
/* A loop that has nothing to do for some constant cannot be unrolled, and clang warns of it. */
#pragma clang diagnostic ignored "-Wpass-failed"
#else
#define QW_UNROLL _Pragma("GCC unroll 8")
#endif
#define QW_INLINE static inline __attribute__((always_inline))

#endif
