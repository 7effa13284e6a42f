/* Elements of views in each storage format, and functions of one number. */
#include "kernels/reference/internal.h"

#include <math.h>
#include <string.h>

static float from_bits(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static float from_half(uint16_t half)
{
    int exponent = (half >> 10) & 31, mantissa = half & 1023;
    double magnitude;
    if (exponent == 31)
        magnitude = mantissa != 0 ? (double)NAN : (double)INFINITY;
    else if (exponent == 0)
        magnitude = ldexp(mantissa, -24);
    else
        magnitude = ldexp(1024 + mantissa, exponent - 25);
    return (float)((half & 0x8000) != 0 ? -magnitude : magnitude);
}

/* Round to nearest, ties to even; a NaN stays one. */
static uint16_t to_bfloat16(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    if (value != value)
        return (uint16_t)((bits >> 16) | 64);
    return (uint16_t)((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16);
}

float qw_ref_load(const void *base, int32_t dtype, int64_t index)
{
    switch (dtype) {
    case QW_BF16:
        return from_bits((uint32_t)((const uint16_t *)base)[index] << 16);
    case QW_F16:
        return from_half(((const uint16_t *)base)[index]);
    case QW_I8:
        return ((const int8_t *)base)[index];
    default:
        return ((const float *)base)[index];
    }
}

void qw_ref_store(void *base, int32_t dtype, int64_t index, float value)
{
    if (dtype == QW_BF16)
        ((uint16_t *)base)[index] = to_bfloat16(value);
    else if (dtype == QW_I8)
        ((int8_t *)base)[index] = (int8_t)rintf(fmaxf(-127, fminf(127, value)));
    else
        ((float *)base)[index] = value;
}

static int64_t row_begin(const qw_view *view, int64_t row)
{
    return view->rank >= 2 ? row * view->stride[0] : 0;
}

float qw_ref_get(const qw_view *view, int64_t row, int64_t column)
{
    return qw_ref_load(qw_view_data(view), view->dtype, row_begin(view, row) + column);
}

float *qw_ref_row(const qw_view *view, int64_t row)
{
    return (float *)qw_view_data(view) + row_begin(view, row);
}

int32_t *qw_ref_row_int(const qw_view *view, int64_t row)
{
    return (int32_t *)qw_view_data(view) + row_begin(view, row);
}

double qw_ref_dot(const qw_view *matrix, int64_t row, const float *x, int64_t count)
{
    double sum = 0;
    for (int64_t i = 0; i < count; i++)
        sum += (double)qw_ref_get(matrix, row, i) * (double)x[i];
    return sum;
}

double qw_ref_sigmoid(double x)
{
    return 1 / (1 + exp(-x));
}

double qw_ref_silu(double x)
{
    return x * qw_ref_sigmoid(x);
}

double qw_ref_softplus(double x)
{
    return x > 20 ? x : log1p(exp(x));
}
