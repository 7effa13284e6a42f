#include "lib/text/chat_number.h"

#include <string.h>

/* --- Whole numbers of up to 4096 bits ------------------------------------------------------------- */

#define WORDS 128

typedef struct big {
    uint32_t word[WORDS]; /* [count], the lowest first; the highest is not zero */
    size_t count;
} big;

static void set(big *a, uint64_t value)
{
    a->word[0] = (uint32_t)value;
    a->word[1] = (uint32_t)(value >> 32);
    a->count = a->word[1] != 0 ? 2 : a->word[0] != 0;
}

/* a = a x factor + carry */
static void multiply_add(big *a, uint32_t factor, uint32_t carry)
{
    uint64_t sum = carry;
    for (size_t i = 0; i < a->count; i++) {
        sum += (uint64_t)a->word[i] * factor;
        a->word[i] = (uint32_t)sum;
        sum >>= 32;
    }
    if (sum != 0)
        a->word[a->count++] = (uint32_t)sum;
}

static void multiply_power_of_ten(big *a, int exponent)
{
    for (; exponent >= 9; exponent -= 9)
        multiply_add(a, 1000000000u, 0);
    for (; exponent > 0; exponent--)
        multiply_add(a, 10, 0);
}

static void shift_left(big *a, int bits)
{
    size_t words = (size_t)bits / 32;
    if (a->count == 0)
        return;
    memmove(a->word + words, a->word, a->count * sizeof *a->word);
    memset(a->word, 0, words * sizeof *a->word);
    a->count += words;
    if (bits % 32 != 0)
        multiply_add(a, (uint32_t)1 << bits % 32, 0);
}

static int bit_length(const big *a)
{
    return a->count == 0 ? 0 : (int)a->count * 32 - __builtin_clz(a->word[a->count - 1]);
}

static int compare(const big *a, const big *b)
{
    if (a->count != b->count)
        return a->count < b->count ? -1 : 1;
    for (size_t i = a->count; i-- > 0;)
        if (a->word[i] != b->word[i])
            return a->word[i] < b->word[i] ? -1 : 1;
    return 0;
}

/* a = a - b, a >= b */
static void subtract(big *a, const big *b)
{
    int64_t borrow = 0;
    for (size_t i = 0; i < a->count; i++) {
        int64_t difference = (int64_t)a->word[i] - (i < b->count ? b->word[i] : 0) + borrow;
        a->word[i] = (uint32_t)difference;
        borrow = difference < 0 ? -1 : 0;
    }
    while (a->count > 0 && a->word[a->count - 1] == 0)
        a->count--;
}

/* a = a + b x 2^bits, where b x 2^bits does not fill all words. */
static void add_shifted(big *a, const big *b, int bits)
{
    big c = *b;
    shift_left(&c, bits);
    uint64_t sum = 0;
    size_t count = QW_MAX(a->count, c.count);
    for (size_t i = 0; i < count; i++) {
        sum += (uint64_t)(i < a->count ? a->word[i] : 0) + (i < c.count ? c.word[i] : 0);
        a->word[i] = (uint32_t)sum;
        sum >>= 32;
    }
    a->count = count;
    if (sum != 0)
        a->word[a->count++] = (uint32_t)sum;
}

/* --- Digits to double ----------------------------------------------------------------------------- */

/* 0.DIGITS x 10^point, no zero at either end of the digits; count 0 is zero. More than 768 digits never
 * decide between two doubles, but that there are more may: the last digit here is then a 1. */
#define DIGITS_MAX 770
typedef struct decimal {
    unsigned char digit[DIGITS_MAX]; /* [count] values 0 .. 9 */
    size_t count;
    int64_t point;
} decimal;

/* A magnitude beyond which every number overflows or is zero; keeps the sums small. */
#define EXPONENT_LIMIT 100000

static int64_t read_exponent(const char *text, const char *end)
{
    int64_t exponent = 0;
    bool negative = text < end && *text == '-';
    for (text += text < end && (*text == '-' || *text == '+'); text < end; text++)
        exponent = QW_MIN(exponent * 10 + (*text - '0'), EXPONENT_LIMIT);
    return negative ? -exponent : exponent;
}

static void read_decimal(const char *text, const char *end, decimal *d)
{
    bool fraction = false, more = false;
    d->count = 0;
    d->point = 0;
    for (; text < end && (*text | 0x20) != 'e'; text++) {
        if (*text == '.') {
            fraction = true;
            continue;
        }
        if (d->count == 0 && *text == '0') {
            d->point -= fraction;
            continue;
        }
        d->point += !fraction;
        if (d->count < DIGITS_MAX - 1)
            d->digit[d->count++] = (unsigned char)(*text - '0');
        else
            more = more || *text != '0';
    }
    if (more)
        d->digit[d->count++] = 1;
    while (d->count > 0 && d->digit[d->count - 1] == 0)
        d->count--;
    if (text < end)
        d->point += read_exponent(text + 1, end);
}

/* a / b as 64 bits of quotient with the highest set, times 2^*exponent; *rest: something is left. */
static uint64_t divide(big *a, big *b, int *exponent, bool *rest)
{
    int difference = bit_length(a) - bit_length(b);
    uint64_t quotient = 0;
    shift_left(difference > 0 ? b : a, difference > 0 ? difference : -difference);
    *exponent = difference - 63;
    for (int i = 0; i < 64; i++) { /* a / b is in (1/2, 2) */
        bool bit = compare(a, b) >= 0;
        quotient = quotient << 1 | bit;
        if (bit)
            subtract(a, b);
        shift_left(a, 1);
    }
    *rest = a->count > 0;
    if (quotient >> 63 == 0) {
        quotient <<= 1;
        --*exponent;
    }
    return quotient;
}

/* The bits of the double nearest to quotient x 2^exponent (and a rest below), ties to even. */
static uint64_t round_to_double(uint64_t quotient, int exponent, bool rest)
{
    int high = exponent + 63; /* of the highest bit */
    int drop = high >= -1022 ? 11 : 11 + (-1022 - high);
    if (high > 1023)
        return (uint64_t)0x7ff << 52;
    if (drop > 64)
        return 0;
    uint64_t kept = drop == 64 ? 0 : quotient >> drop;
    uint64_t dropped = drop == 64 ? quotient : quotient & (((uint64_t)1 << drop) - 1);
    uint64_t half = (uint64_t)1 << (drop - 1);
    kept += dropped > half || (dropped == half && (rest || (kept & 1) != 0));
    /* A carry moves into the exponent by itself, up to infinity. */
    return high >= -1022 ? ((uint64_t)(high + 1022) << 52) + kept : kept;
}

static uint64_t to_double(const decimal *d)
{
    big numerator, denominator;
    int exponent = 0;
    bool rest = false;
    if (d->count == 0 || d->point < -330)
        return 0;
    if (d->point > 310)
        return (uint64_t)0x7ff << 52;
    set(&numerator, 0);
    for (size_t i = 0; i < d->count; i++)
        multiply_add(&numerator, 10, d->digit[i]);
    set(&denominator, 1);
    int power = (int)d->point - (int)d->count;
    multiply_power_of_ten(power >= 0 ? &numerator : &denominator, power >= 0 ? power : -power);
    uint64_t quotient = divide(&numerator, &denominator, &exponent, &rest);
    return round_to_double(quotient, exponent, rest);
}

/* --- Double to the fewest digits ------------------------------------------------------------------- */

/* value / scale is the number; half of the gap to the next double below is gap / scale, the one above it is
 * twice that where `wide`. A digit string between the two halves means this double; at them if `even`. */
typedef struct interval {
    big value, scale, gap;
    bool wide, even;
} interval;

static bool reaches_above(const interval *v, const big *value)
{
    big sum = *value;
    add_shifted(&sum, &v->gap, v->wide);
    int order = compare(&sum, &v->scale);
    return order > 0 || (order == 0 && v->even);
}

static void set_interval(interval *v, uint64_t fraction, int exponent, bool wide)
{
    set(&v->value, fraction);
    set(&v->scale, 1);
    set(&v->gap, 1);
    v->wide = wide;
    v->even = (fraction & 1) == 0;
    shift_left(&v->value, wide + 1);
    shift_left(&v->scale, wide + 1);
    shift_left(exponent >= 0 ? &v->value : &v->scale, exponent >= 0 ? exponent : -exponent);
    if (exponent >= 0)
        shift_left(&v->gap, exponent);
}

/* Steele and White's algorithm, as Dragon4 is written today. */
static void shortest(uint64_t bits, decimal *d)
{
    interval v;
    int biased = (int)(bits >> 52 & 0x7ff);
    uint64_t fraction = bits & (((uint64_t)1 << 52) - 1);
    bool wide = fraction == 0 && biased > 1;
    fraction |= (uint64_t)(biased > 0) << 52;
    int exponent = QW_MAX(biased, 1) - 1075;
    int log2 = exponent + 63 - __builtin_clzll(fraction);
    int point = log2 * 30103 / 100000 - (log2 < 0) + 1; /* right, or one too small */
    set_interval(&v, fraction, exponent, wide);
    multiply_power_of_ten(&v.scale, point);
    multiply_power_of_ten(&v.value, -point);
    multiply_power_of_ten(&v.gap, -point);
    for (; reaches_above(&v, &v.value); point++)
        multiply_add(&v.scale, 10, 0);
    bool low = false, high = false;
    d->point = point;
    d->count = 0;
    while (!low && !high) {
        unsigned char digit = 0;
        multiply_add(&v.value, 10, 0);
        multiply_add(&v.gap, 10, 0);
        for (; compare(&v.value, &v.scale) >= 0; digit++)
            subtract(&v.value, &v.scale);
        int order = compare(&v.value, &v.gap);
        low = order < 0 || (order == 0 && v.even);
        high = reaches_above(&v, &v.value);
        if (high && low) {
            shift_left(&v.value, 1);
            order = compare(&v.value, &v.scale);
            high = order > 0 || (order == 0 && (digit & 1) != 0);
        }
        d->digit[d->count++] = (unsigned char)(digit + high);
    }
}

/* --- Writing ---------------------------------------------------------------------------------------- */

static char *write_digits(char *o, const decimal *d, size_t begin, size_t end)
{
    for (size_t i = begin; i < end; i++)
        *o++ = (char)('0' + (i < d->count ? d->digit[i] : 0));
    return o;
}

static char *write_exponent(char *o, int exponent)
{
    *o++ = 'e';
    *o++ = exponent < 0 ? '-' : '+';
    exponent = exponent < 0 ? -exponent : exponent;
    if (exponent >= 100)
        *o++ = (char)('0' + exponent / 100);
    *o++ = (char)('0' + exponent / 10 % 10);
    *o++ = (char)('0' + exponent % 10);
    return o;
}

/* Python writes 1e-05 and 1e+16, and everything between these with a point. */
static char *write_repr(char *o, const decimal *d)
{
    size_t point = d->point > 0 ? (size_t)d->point : 0;
    if (d->point <= -4 || d->point > 16) {
        o = write_digits(o, d, 0, 1);
        if (d->count > 1)
            *o++ = '.';
        return write_exponent(write_digits(o, d, 1, d->count), (int)d->point - 1);
    }
    if (point == 0)
        *o++ = '0';
    o = write_digits(o, d, 0, point);
    *o++ = '.';
    for (int64_t i = d->point; i < 0; i++)
        *o++ = '0';
    return write_digits(o, d, point, QW_MAX(d->count, point + 1));
}

size_t qw_float_repr(const char *text, size_t length, char *out)
{
    char *o = out;
    decimal d;
    const char *end = text + length;
    if (*text == '-')
        *o++ = *text++;
    read_decimal(text, end, &d);
    if (d.count == 0) {
        d.point = 1; /* 0.0 */
    } else if (d.count > 15 || d.point < -300 || d.point > 300) {
        uint64_t bits = to_double(&d);
        if (bits >> 52 == 0x7ff) {
            memcpy(o, "inf", 3);
            return (size_t)(o - out) + 3;
        }
        d.count = 0;
        d.point = 1;
        if (bits != 0)
            shortest(bits, &d);
    } /* else: up to 15 digits come back as they are */
    return (size_t)(write_repr(o, &d) - out);
}
