/* The elementary functions of the CPU kernels, in every tier that this machine runs, against the C library
 * in double: errors in units of the last place, special values, lane independence. */
#include "kernels/cpu/kernels.h"
#include "tests/harness.h"

#include <math.h>

enum { SAMPLES = 1 << 16, TIERS = 3 };

static const int32_t all_tiers[TIERS] = {QWEN36_CPU_PORTABLE, QWEN36_CPU_AVX2, QWEN36_CPU_AVX512};

static double expected(int32_t function, double x)
{
    switch (function) {
    case QW_MATH_EXP:
        return exp(x);
    case QW_MATH_LOG:
        return log(x);
    case QW_MATH_LOG1P:
        return log1p(x);
    case QW_MATH_SIGMOID:
        return x < 0 ? exp(x) / (1 + exp(x)) : 1 / (1 + exp(-x));
    case QW_MATH_SILU:
        return x < 0 ? x * exp(x) / (1 + exp(x)) : x / (1 + exp(-x));
    case QW_MATH_SOFTPLUS:
        return fmax(x, 0) + log1p(exp(-fabs(x)));
    case QW_MATH_SINE:
        return sin(x);
    default:
        return cos(x);
    }
}

/* The distance from the exact value, in units of the last place of a float32 of its size. */
static double ulps(float actual, double exact)
{
    if (isnan(exact) || isnan(actual))
        return isnan(exact) && isnan(actual) ? 0 : HUGE_VAL;
    if ((float)exact == actual)
        return 0;
    if (isinf(actual) || isinf((float)exact))
        return HUGE_VAL;
    int exponent;
    frexp(exact, &exponent);
    return fabs((double)actual - exact) / ldexp(1, QW_MAX(exponent - 24, -149));
}

static float from_bits(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static double worst_error(const qw_cpu_kernels *kernels, int32_t function, const float *x, float *at)
{
    static float y[SAMPLES];
    double worst = 0;
    kernels->math(function, x, y, SAMPLES);
    for (int i = 0; i < SAMPLES; i++) {
        double error = ulps(y[i], expected(function, (double)x[i]));
        if (error > worst) {
            worst = error;
            *at = x[i];
        }
    }
    return worst;
}

static void check_samples(int32_t function, const float *x, double bound)
{
    for (int t = 0; t < TIERS; t++) {
        const qw_cpu_kernels *kernels = qw_cpu_kernels_choose(all_tiers[t]);
        float at = 0;
        double worst = kernels == NULL ? 0 : worst_error(kernels, function, x, &at);
        if (getenv("QW_TEST_VERBOSE") != NULL)
            printf("function %d tier %d: %.3f ulp at %a\n", function, all_tiers[t], worst, (double)at);
        CHECK_MSG(worst <= bound, "function %d, tier %d: %.3f ulp at %a", function, all_tiers[t], worst,
                  (double)at);
    }
}

static void check_range(int32_t function, double low, double high, double bound)
{
    static float x[SAMPLES];
    for (int i = 0; i < SAMPLES; i++)
        x[i] = (float)(low + (high - low) * i / (SAMPLES - 1));
    check_samples(function, x, bound);
}

/* Bit patterns `step` apart: all exponents, signs, subnormals, infinities and NaNs. */
static void check_patterns(int32_t function, uint32_t begin, uint32_t step, double bound)
{
    static float x[SAMPLES];
    for (int i = 0; i < SAMPLES; i++)
        x[i] = from_bits(begin + (uint32_t)i * step);
    check_samples(function, x, bound);
}

TEST(cpu_math, exp)
{
    check_range(QW_MATH_EXP, -104.5, 89.5, 1.0);
    check_range(QW_MATH_EXP, -1, 1, 1.0);
    check_patterns(QW_MATH_EXP, 12345, 65537, 1.0);
}

TEST(cpu_math, log)
{
    check_range(QW_MATH_LOG, 0.5, 2, 1.0);
    check_range(QW_MATH_LOG, 0, 1e6, 1.0);
    check_patterns(QW_MATH_LOG, 54321, 65537, 1.0);
    check_patterns(QW_MATH_LOG, 0, 129, 1.0); /* subnormals */
    check_patterns(QW_MATH_LOG, 0x3f800000 - SAMPLES / 2, 1, 1.0);
}

TEST(cpu_math, log1p)
{
    check_range(QW_MATH_LOG1P, 0, 1, 1.5);
    check_range(QW_MATH_LOG1P, -1, 100, 1.5);
    check_patterns(QW_MATH_LOG1P, 777, 65537, 1.5);
}

TEST(cpu_math, sigmoid_silu_softplus)
{
    const int32_t functions[] = {QW_MATH_SIGMOID, QW_MATH_SILU, QW_MATH_SOFTPLUS};
    for (size_t f = 0; f < QW_COUNT_OF(functions); f++) {
        check_range(functions[f], -20, 20, 3.0);
        check_range(functions[f], -87, 110, 3.0);
        check_patterns(functions[f], 1, 32771, 3.0); /* positive ones */
    }
    check_range(QW_MATH_SILU, -200, -87, 104 * 1.5); /* units of the least subnormal, times |x| */
    check_patterns(QW_MATH_SIGMOID, 99, 65537, 3.0);
    check_patterns(QW_MATH_SOFTPLUS, 99, 65537, 3.0);
}

TEST(cpu_math, sine_cosine)
{
    for (int32_t f = QW_MATH_SINE; f <= QW_MATH_COSINE; f++) {
        check_range(f, 0, 10, 0.51);
        check_range(f, -1.1e6, 1.1e6, 0.51);
        check_range(f, 4e6, 5e6, 0.51); /* the change of method at 2^22 */
        check_patterns(f, 4711, 65537, 0.51);
    }
}

/* Angles as the rotation forms them: position x frequency in float32. */
TEST(cpu_math, rotation_angles)
{
    static float x[SAMPLES];
    for (int i = 0; i < SAMPLES; i++)
        x[i] = (float)(i * 16 + i % 16) * (float)pow(1e7, -(i % 32) / 32.0);
    check_samples(QW_MATH_SINE, x, 0.51);
    check_samples(QW_MATH_COSINE, x, 0.51);
}

/* A number gives the same bits in every lane, whatever stands in the others. */
TEST(cpu_math, lanes_are_independent)
{
    enum { COUNT = 1000 };
    for (int t = 0; t < TIERS; t++) {
        const qw_cpu_kernels *kernels = qw_cpu_kernels_choose(all_tiers[t]);
        for (int32_t f = 0; kernels != NULL && f < QW_MATH_FUNCTIONS; f++) {
            float x[COUNT], y[COUNT];
            for (int i = 0; i < COUNT; i++)
                x[i] = i % 7 == 3 ? from_bits((uint32_t)i * 4300037u) : (float)(i - 500) * 0.173f;
            kernels->math(f, x, y, COUNT);
            for (int i = 0; i < COUNT; i++) {
                float alone;
                kernels->math(f, &x[i], &alone, 1);
                CHECK_MSG(memcmp(&alone, &y[i], sizeof alone) == 0, "function %d, tier %d, x %a", f,
                          all_tiers[t], (double)x[i]);
            }
        }
    }
}
