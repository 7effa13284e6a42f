/* Elementary functions of our own, so that no C library can change a bit of a result: exp, log, log1p,
 * sigmoid, SiLU, softplus on 16 lanes, sine and cosine of one angle. Included by each tier.
 *
 * A lane's result depends on that lane's input alone, and math_f(x) is lane 0 of vf_f(x). NaN gives NaN;
 * results may be subnormal. Errors, in units of the last place: exp and log 1.0, log1p 1.5, sigmoid,
 * softplus and (down to x = -87) silu 3; sine and cosine 0.51 at any finite angle. The tests measure them:
 * tests/unit/test_cpu_math.c.
 */
#ifndef QW_CPU_MATH_IMPL_H
#define QW_CPU_MATH_IMPL_H

#include "kernels/cpu/load_impl.h"
#include "kernels/cpu/mixer.h"

#define MATH_INFINITY __builtin_inff()

/* x * 2^n for |x| near 1 and integers -252 <= n <= 252: in two steps, so that the last one alone rounds. */
static inline vf vf_scale(vf x, vi n)
{
    vi half = vi_sar(n, 1);
    vi rest = vi_sub(n, half);
    const vi bias = vi_set1(127);
    x = vf_mul(x, vi_float(vi_shl(vi_add(half, bias), 23)));
    return vf_mul(x, vi_float(vi_shl(vi_add(rest, bias), 23)));
}

/* e^x = 2^n * e^r, n = round(x / ln 2), |r| <= ln 2 / 2; e^r = 1 + r + r^2 P(r), P minimax of degree 4.
 * ln 2 in two parts: n times the first is exact. The clamp keeps NaN, and at its ends the scaling itself
 * overflows to infinity or rounds to zero. */
static inline vf vf_exp(vf x)
{
    x = vf_max(vf_set1(-104.0f), vf_min(vf_set1(89.0f), x));
    vf n = vf_round(vf_mul(x, vf_set1(0x1.715476p+0f)));
    vf r = vf_sub(x, vf_mul(n, vf_set1(0x1.62e4p-1f)));
    r = vf_sub(r, vf_mul(n, vf_set1(0x1.7f7d1cp-20f)));
    vf p = vf_set1(0x1.6a2288p-10f);
    p = vf_fma(p, r, vf_set1(0x1.123b02p-7f));
    p = vf_fma(p, r, vf_set1(0x1.5558f8p-5f));
    p = vf_fma(p, r, vf_set1(0x1.55549p-3f));
    p = vf_fma(p, r, vf_set1(0x1.fffffcp-2f));
    vf y = vf_add(vf_fma(p, vf_mul(r, r), r), vf_set1(1.0f));
    return vf_scale(y, vf_to_vi(n));
}

/* The polynomial part of log(1 + f), sqrt(1/2) <= 1 + f < sqrt(2): f^3 Q(f), Q minimax of degree 8. */
static inline vf vf_log_tail(vf f, vf square)
{
    vf q = vf_set1(0.06747713f);
    q = vf_fma(q, f, vf_set1(-0.11676184f));
    q = vf_fma(q, f, vf_set1(0.118879534f));
    q = vf_fma(q, f, vf_set1(-0.12405489f));
    q = vf_fma(q, f, vf_set1(0.14219572f));
    q = vf_fma(q, f, vf_set1(-0.16668002f));
    q = vf_fma(q, f, vf_set1(0.20002118f));
    q = vf_fma(q, f, vf_set1(-0.2500001f));
    q = vf_fma(q, f, vf_set1(0.33333313f));
    return vf_mul(vf_mul(q, f), square);
}

/* log x = e ln 2 + log(1 + f), x = 2^e (1 + f); log(1 + f) = f - f^2/2 + f^3 Q(f), smallest terms first. */
static inline vf vf_log(vf x)
{
    vm small = vf_lt(x, vf_set1(0x1p-126f));
    vi bits = vf_bits(vf_select(small, vf_mul(x, vf_set1(0x1p23f)), x));
    vi e = vi_sar(vi_sub(bits, vi_set1(0x3f3504f3)), 23);
    vf f = vf_sub(vi_float(vi_sub(bits, vi_shl(e, 23))), vf_set1(1.0f));
    vf exponent = vi_to_vf(vi_select(small, vi_sub(e, vi_set1(23)), e));
    vf square = vf_mul(f, f);
    vf y = vf_fma(exponent, vf_set1(0x1.7f7d1cp-20f), vf_log_tail(f, square));
    y = vf_add(vf_sub(y, vf_mul(vf_set1(0.5f), square)), f);
    y = vf_fma(exponent, vf_set1(0x1.62e4p-1f), y);
    const vf zero = vf_zero(), infinity = vf_set1(MATH_INFINITY);
    vf special = vf_select(vf_lt(x, zero), vf_sub(infinity, infinity), x);
    special = vf_select(vf_eq(x, zero), vf_neg(infinity), special);
    return vf_select(vm_and(vf_lt(zero, x), vf_lt(x, infinity)), y, special);
}

/* log(1 + u): the rounding error of y = 1 + u comes back as a first-order term. */
static inline vf vf_log1p(vf u)
{
    const vf one = vf_set1(1.0f);
    vf y = vf_add(one, u);
    vf lost = vf_div(vf_sub(u, vf_sub(y, one)), y);
    vm plain = vm_and(vf_lt(vf_zero(), y), vf_lt(y, vf_set1(MATH_INFINITY)));
    return vf_add(vf_log(y), vf_select(plain, lost, vf_zero()));
}

/* top / (1 + e^-x), or, for x < 0, top e^x / (1 + e^x): nothing overflows. */
static inline vf vf_times_sigmoid(vf top, vf x)
{
    vf e = vf_exp(vf_neg(vf_abs(x)));
    top = vf_select(vf_lt(x, vf_zero()), vf_mul(top, e), top);
    return vf_div(top, vf_add(vf_set1(1.0f), e));
}

static inline vf vf_sigmoid(vf x)
{
    return vf_times_sigmoid(vf_set1(1.0f), x);
}

/* x sigmoid(x). -infinity gives NaN: what is not finite stays visible. */
static inline vf vf_silu(vf x)
{
    return vf_times_sigmoid(x, x);
}

/* log(1 + e^x) = max(x, 0) + log1p(e^-|x|); for x > 20 that is x. */
static inline vf vf_softplus(vf x)
{
    return vf_add(vf_max(x, vf_zero()), vf_log1p(vf_exp(vf_neg(vf_abs(x)))));
}

#define MATH_SCALAR(name)                                                                                    \
    static inline float math_##name(float x)                                                                 \
    {                                                                                                        \
        float lanes[VF_LANES];                                                                               \
        vf_store(lanes, vf_##name(vf_set1(x)));                                                              \
        return lanes[0];                                                                                     \
    }
MATH_SCALAR(exp)
MATH_SCALAR(log)
MATH_SCALAR(log1p)
MATH_SCALAR(sigmoid)
MATH_SCALAR(silu)
MATH_SCALAR(softplus)
#undef MATH_SCALAR

/* An angle less the nearest multiple of pi/2, which it counts modulo 4. */
typedef struct math_angle {
    double rest; /* |rest| <= pi/4, a little more at the edge */
    int32_t quadrant;
} math_angle;

/* |x| < 2^22: pi/2 in three parts; a count of up to 22 bits times the first two (30 bits each) is exact. */
static inline math_angle math_reduce(double x)
{
    const double magic = 0x1.8p52; /* adding it rounds to an integer, found in the low bits */
    double shifted = x * 0x1.45f306dc9c883p-1 + magic;
    double n = shifted - magic;
    int64_t bits;
    memcpy(&bits, &shifted, sizeof bits);
    double rest = ((x - n * 0x1.921fb54p+0) - n * 0x1.10b46118p-30) - n * 0x1.313198a2e037p-61;
    return (math_angle){rest, (int32_t)(bits & 3)};
}

/* Any finite |x| >= 2^22: x = m 2^e with a 24-bit m. Of 2/pi only the 128 bits matter that begin where m 2^e
 * times a bit is no longer a multiple of 4. */
static inline math_angle math_reduce_large(float x)
{
    static const uint64_t two_over_pi[6] = {0,
                                            0xa2f9836e4e441529,
                                            0xfc2757d1f534ddc0,
                                            0xdb6295993c439041,
                                            0xfe5163abdebbc561,
                                            0xb7246e3a424dd2e0};
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    uint64_t m = (bits & 0x7fffff) | 0x800000;
    uint32_t start = ((bits >> 23) & 0xff) - 150 + 62; /* of the window; two_over_pi[1] begins at bit 64 */
    const uint64_t *word = two_over_pi + start / 64;
    uint32_t shift = start % 64;
    uint64_t high = word[0] << shift, low = word[1] << shift;
    if (shift != 0) {
        high |= word[1] >> (64 - shift);
        low |= word[2] >> (64 - shift);
    }
    uint64_t low_product = m * low;
    uint64_t carry = ((low >> 32) * m + (((low & 0xffffffff) * m) >> 32)) >> 32;
    uint64_t product = m * high + carry; /* in units of 2^-62 quarter turns, modulo 4 */
    uint64_t quadrant = (product + (UINT64_C(1) << 61)) >> 62;
    int64_t part = (int64_t)(product - (quadrant << 62));
    double rest = (double)part * 0x1p-62 + (double)low_product * 0x1p-126;
    rest *= 0x1.921fb54442d18p+0;
    if (bits >> 31)
        return (math_angle){-rest, (int32_t)((4 - quadrant) & 3)};
    return (math_angle){rest, (int32_t)(quadrant & 3)};
}

/* Sine and cosine of x radians, in double and rounded once at the end. */
static inline void math_sincos(float x, float *sine, float *cosine)
{
    if (!(x - x == 0.0f)) { /* infinity or NaN */
        *sine = *cosine = x - x;
        return;
    }
    math_angle a = x < 0x1p22f && x > -0x1p22f ? math_reduce((double)x) : math_reduce_large(x);
    double z = a.rest * a.rest;
    double s = -2.4761131977242787e-08;
    s = s * z + 2.7555350858211034e-06;
    s = s * z - 0.00019841263792140114;
    s = s * z + 0.008333333325219034;
    s = s * z - 0.16666666666631325;
    s = a.rest + a.rest * (z * s);
    double c = 2.064727936557452e-09;
    c = c * z - 2.7555560101790177e-07;
    c = c * z + 2.4801580933574305e-05;
    c = c * z - 0.0013888888878189343;
    c = c * z + 0.04166666666660162;
    c = 1.0 - (0.5 * z - z * z * c);
    double of_sine = a.quadrant & 1 ? c : s, of_cosine = a.quadrant & 1 ? s : c;
    *sine = (float)(a.quadrant & 2 ? -of_sine : of_sine);
    *cosine = (float)((a.quadrant + 1) & 2 ? -of_cosine : of_cosine);
}

/* f(x), 16 lanes; sine and cosine have a scalar form only. */
static inline vf math_apply(int32_t function, vf x)
{
    switch (function) {
    case QW_MATH_EXP:
        return vf_exp(x);
    case QW_MATH_LOG:
        return vf_log(x);
    case QW_MATH_LOG1P:
        return vf_log1p(x);
    case QW_MATH_SIGMOID:
        return vf_sigmoid(x);
    case QW_MATH_SILU:
        return vf_silu(x);
    default:
        return vf_softplus(x);
    }
}

/* y[i] = f(x[i]), so that the tests see the functions of every tier. */
static void math_map(int32_t function, const float *x, float *y, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        float sine, cosine;
        if (function == QW_MATH_SINE || function == QW_MATH_COSINE) {
            math_sincos(x[i], &sine, &cosine);
            y[i] = function == QW_MATH_SINE ? sine : cosine;
        } else if (i % VF_LANES == 0) {
            store_lanes(y + i, math_apply(function, load_lanes(x + i, n - i)), n - i);
        }
    }
}

#endif
