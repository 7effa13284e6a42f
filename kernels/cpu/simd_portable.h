/* The vector layer for any machine: four vectors of four lanes, in the generic vectors of GCC and clang
 * (SSE2 and NEON registers where there are some, scalars elsewhere). Contract: simd.h. */

typedef float f4 __attribute__((vector_size(16)));
typedef int32_t i4 __attribute__((vector_size(16)));
typedef uint32_t u4 __attribute__((vector_size(16)));
typedef uint16_t h4 __attribute__((vector_size(8)));
typedef int8_t b4 __attribute__((vector_size(4)));

typedef struct vf {
    f4 a, b, c, d; /* lanes 0..3, 4..7, 8..11, 12..15 */
} vf;
typedef struct vi {
    i4 a, b, c, d;
} vi;
typedef struct vm { /* all bits of a lane set, or none */
    i4 a, b, c, d;
} vm;

#define QW_BINARY(type, name, expression)                                                                    \
    static inline type name(type x, type y)                                                                  \
    {                                                                                                        \
        return (type){expression(x.a, y.a), expression(x.b, y.b), expression(x.c, y.c),                      \
                      expression(x.d, y.d)};                                                                 \
    }
#define QW_COMPARE(type, name, operation)                                                                    \
    static inline vm name(type x, type y)                                                                    \
    {                                                                                                        \
        return (vm){(i4)(x.a operation y.a), (i4)(x.b operation y.b), (i4)(x.c operation y.c),               \
                    (i4)(x.d operation y.d)};                                                                \
    }
#define QW_UNARY(from, to, name, expression)                                                                 \
    static inline to name(from x)                                                                            \
    {                                                                                                        \
        return (to){expression(x.a), expression(x.b), expression(x.c), expression(x.d)};                     \
    }

static inline i4 i4_select(i4 m, i4 x, i4 y)
{
    return (m & x) | (~m & y);
}
static inline f4 f4_select(i4 m, f4 x, f4 y)
{
    return (f4)i4_select(m, (i4)x, (i4)y);
}

static inline vf vf_set1(float a)
{
    f4 v = {a, a, a, a};
    return (vf){v, v, v, v};
}
static inline vf vf_zero(void)
{
    return vf_set1(0.0f);
}
static inline vi vi_set1(int32_t a)
{
    i4 v = {a, a, a, a};
    return (vi){v, v, v, v};
}

/* Part by part: a copy of the whole structure would pass through memory. */
static inline f4 f4_load(const void *p)
{
    f4 v;
    memcpy(&v, p, sizeof v);
    return v;
}
static inline vf vf_load(const void *p)
{
    const char *c = p;
    return (vf){f4_load(c), f4_load(c + 16), f4_load(c + 32), f4_load(c + 48)};
}
static inline vf vf_load_n(const void *p, int64_t n)
{
    float lanes[16] = {0};
    memcpy(lanes, p, (size_t)n * sizeof lanes[0]);
    return vf_load(lanes);
}
static inline void vf_store(void *p, vf x)
{
    char *c = p;
    memcpy(c, &x.a, sizeof x.a);
    memcpy(c + 16, &x.b, sizeof x.b);
    memcpy(c + 32, &x.c, sizeof x.c);
    memcpy(c + 48, &x.d, sizeof x.d);
}
static inline void vf_stream(float *p, vf a)
{
    vf_store(p, a);
}
static inline void vf_stream_end(void)
{
}
static inline void vf_store_n(void *p, vf a, int64_t n)
{
    float lanes[16];
    vf_store(lanes, a);
    memcpy(p, lanes, (size_t)n * sizeof lanes[0]);
}
static inline vi vi_load(const void *p)
{
    vf v = vf_load(p);
    return (vi){(i4)v.a, (i4)v.b, (i4)v.c, (i4)v.d};
}
static inline vi vi_load_n(const void *p, int64_t n)
{
    int32_t lanes[16] = {0};
    memcpy(lanes, p, (size_t)n * sizeof lanes[0]);
    return vi_load(lanes);
}
static inline void vi_store(void *p, vi x)
{
    vf_store(p, (vf){(f4)x.a, (f4)x.b, (f4)x.c, (f4)x.d});
}
static inline void vi_store_n(void *p, vi a, int64_t n)
{
    int32_t lanes[16];
    vi_store(lanes, a);
    memcpy(p, lanes, (size_t)n * sizeof lanes[0]);
}
static inline void vi_store_low16(void *p, vi a)
{
    h4 lanes[4] = {__builtin_convertvector((u4)a.a, h4), __builtin_convertvector((u4)a.b, h4),
                   __builtin_convertvector((u4)a.c, h4), __builtin_convertvector((u4)a.d, h4)};
    memcpy(p, lanes, sizeof lanes);
}
static inline void vi_store_low8(void *p, vi a)
{
    b4 lanes[4] = {__builtin_convertvector(a.a, b4), __builtin_convertvector(a.b, b4),
                   __builtin_convertvector(a.c, b4), __builtin_convertvector(a.d, b4)};
    memcpy(p, lanes, sizeof lanes);
}

#define QW_ADD(x, y) ((x) + (y))
#define QW_SUB(x, y) ((x) - (y))
#define QW_MUL(x, y) ((x) * (y))
#define QW_DIV(x, y) ((x) / (y))
#define QW_AND(x, y) ((x) & (y))
#define QW_OR(x, y) ((x) | (y))
#define QW_XOR(x, y) ((x) ^ (y))
#define QW_MAX4(x, y) f4_select((i4)((x) > (y)), x, y)
#define QW_MIN4(x, y) f4_select((i4)((x) < (y)), x, y)
#define QW_WRAP_ADD(x, y) ((i4)((u4)(x) + (u4)(y)))
#define QW_WRAP_SUB(x, y) ((i4)((u4)(x) - (u4)(y)))
QW_BINARY(vf, vf_add, QW_ADD)
QW_BINARY(vf, vf_sub, QW_SUB)
QW_BINARY(vf, vf_mul, QW_MUL)
QW_BINARY(vf, vf_div, QW_DIV)
QW_BINARY(vf, vf_max, QW_MAX4)
QW_BINARY(vf, vf_min, QW_MIN4)
QW_BINARY(vi, vi_add, QW_WRAP_ADD)
QW_BINARY(vi, vi_sub, QW_WRAP_SUB)
QW_BINARY(vi, vi_and, QW_AND)
QW_BINARY(vi, vi_or, QW_OR)
QW_BINARY(vi, vi_xor, QW_XOR)
QW_BINARY(vm, vm_and, QW_AND)
QW_BINARY(vm, vm_or, QW_OR)
QW_COMPARE(vf, vf_lt, <)
QW_COMPARE(vf, vf_le, <=)
QW_COMPARE(vf, vf_eq, ==)
QW_COMPARE(vi, vi_eq, ==)
QW_COMPARE(vi, vi_gt, >)

#define QW_BITS(x) ((i4)(x))
#define QW_FLOAT(x) ((f4)(x))
#define QW_NOT(x) (~(x))
#define QW_NAN(x) ((i4)((x) != (x)))
#define QW_CONVERT(x) __builtin_convertvector(x, f4)
QW_UNARY(vf, vi, vf_bits, QW_BITS)
QW_UNARY(vi, vf, vi_float, QW_FLOAT)
QW_UNARY(vm, vm, vm_not, QW_NOT)
QW_UNARY(vf, vm, vf_is_nan, QW_NAN)
QW_UNARY(vi, vf, vi_to_vf, QW_CONVERT)

static inline vf vf_fma(vf x, vf y, vf z)
{
    return vf_add(vf_mul(x, y), z);
}

static inline f4 f4_sqrt(f4 x)
{
    f4 y = {__builtin_sqrtf(x[0]), __builtin_sqrtf(x[1]), __builtin_sqrtf(x[2]), __builtin_sqrtf(x[3])};
    return y;
}
QW_UNARY(vf, vf, vf_sqrt, f4_sqrt)

/* Adding 1.5 * 2^23 leaves no fraction bits: the addition rounds to nearest even. */
static inline vf vf_round(vf x)
{
    const vf magic = vf_set1(12582912.0f);
    return vf_sub(vf_add(x, magic), magic);
}
static inline vi vf_to_vi(vf x)
{
    const vf magic = vf_set1(12582912.0f);
    return vi_sub(vf_bits(vf_add(x, magic)), vf_bits(magic));
}

static inline float vf_sum(vf x)
{
    f4 four = (x.a + x.c) + (x.b + x.d);
    return (four[0] + four[2]) + (four[1] + four[3]);
}
static inline void vf_sum4(vf a, vf b, vf c, vf d, float *out)
{
    out[0] = vf_sum(a);
    out[1] = vf_sum(b);
    out[2] = vf_sum(c);
    out[3] = vf_sum(d);
}
static inline float vf_hmax(vf x)
{
    f4 ac = QW_MAX4(x.a, x.c), bd = QW_MAX4(x.b, x.d);
    f4 four = QW_MAX4(ac, bd);
    float even = four[0] > four[2] ? four[0] : four[2];
    float odd = four[1] > four[3] ? four[1] : four[3];
    return even > odd ? even : odd;
}

static inline vf vf_select(vm m, vf x, vf y)
{
    return (vf){f4_select(m.a, x.a, y.a), f4_select(m.b, x.b, y.b), f4_select(m.c, x.c, y.c),
                f4_select(m.d, x.d, y.d)};
}
static inline vi vi_select(vm m, vi x, vi y)
{
    return (vi){i4_select(m.a, x.a, y.a), i4_select(m.b, x.b, y.b), i4_select(m.c, x.c, y.c),
                i4_select(m.d, x.d, y.d)};
}
static inline vm vm_first(int64_t n)
{
    const vi lane = {{0, 1, 2, 3}, {4, 5, 6, 7}, {8, 9, 10, 11}, {12, 13, 14, 15}};
    return vi_gt(vi_set1((int32_t)n), lane);
}
static inline int vm_any(vm x)
{
    i4 all = x.a | x.b | x.c | x.d;
    return (all[0] | all[1] | all[2] | all[3]) != 0;
}

static inline vi vi_shl(vi x, int n)
{
    return (vi){(i4)((u4)x.a << n), (i4)((u4)x.b << n), (i4)((u4)x.c << n), (i4)((u4)x.d << n)};
}
static inline vi vi_shr(vi x, int n)
{
    return (vi){(i4)((u4)x.a >> n), (i4)((u4)x.b >> n), (i4)((u4)x.c >> n), (i4)((u4)x.d >> n)};
}
static inline vi vi_sar(vi x, int n)
{
    return (vi){x.a >> n, x.b >> n, x.c >> n, x.d >> n};
}

static inline i4 i4_load_low16(const void *p)
{
    h4 half;
    memcpy(&half, p, sizeof half);
    return (i4) __builtin_convertvector(half, u4);
}
static inline vi vi_load_low16(const void *p)
{
    const char *c = p;
    return (vi){i4_load_low16(c), i4_load_low16(c + 8), i4_load_low16(c + 16), i4_load_low16(c + 24)};
}
#if defined(__has_builtin)
#if __has_builtin(__builtin_shufflevector)
#define QW_INTERLEAVE 1
#endif
#endif
#if defined(QW_INTERLEAVE)
/* A BF16 number is the upper half of a float32: interleaved with zeros they are whole. */
typedef uint16_t h8 __attribute__((vector_size(16)));
static inline vf vf_load_bf16(const void *p)
{
    const h8 zero = {0};
    h8 low, high;
    memcpy(&low, p, sizeof low);
    memcpy(&high, (const char *)p + sizeof low, sizeof high);
    return (vf){(f4)__builtin_shufflevector(zero, low, 0, 8, 1, 9, 2, 10, 3, 11),
                (f4)__builtin_shufflevector(zero, low, 4, 12, 5, 13, 6, 14, 7, 15),
                (f4)__builtin_shufflevector(zero, high, 0, 8, 1, 9, 2, 10, 3, 11),
                (f4)__builtin_shufflevector(zero, high, 4, 12, 5, 13, 6, 14, 7, 15)};
}
/* An integer of 8 bits, moved to the top of 32 by interleaving with zeros and shifted back, has its sign. */
typedef int8_t b16 __attribute__((vector_size(16)));
static inline f4 f4_of_top_bytes(h8 x)
{
    return __builtin_convertvector((i4)x >> 24, f4);
}
static inline vf vf_load_i8(const void *p)
{
    const b16 none = {0};
    const h8 zero = {0};
    b16 x;
    memcpy(&x, p, sizeof x);
    const h8 low =
        (h8)__builtin_shufflevector(none, x, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
    const h8 high =
        (h8)__builtin_shufflevector(none, x, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31);
    return (vf){f4_of_top_bytes((h8)__builtin_shufflevector(zero, low, 0, 8, 1, 9, 2, 10, 3, 11)),
                f4_of_top_bytes((h8)__builtin_shufflevector(zero, low, 4, 12, 5, 13, 6, 14, 7, 15)),
                f4_of_top_bytes((h8)__builtin_shufflevector(zero, high, 0, 8, 1, 9, 2, 10, 3, 11)),
                f4_of_top_bytes((h8)__builtin_shufflevector(zero, high, 4, 12, 5, 13, 6, 14, 7, 15))};
}
#undef QW_INTERLEAVE
#else
static inline vf vf_load_bf16(const void *p)
{
    return vi_float(vi_shl(vi_load_low16(p), 16));
}
static inline f4 f4_load_i8(const void *p)
{
    b4 lanes;
    memcpy(&lanes, p, sizeof lanes);
    return __builtin_convertvector(lanes, f4);
}
static inline vf vf_load_i8(const void *p)
{
    const char *c = p;
    return (vf){f4_load_i8(c), f4_load_i8(c + 4), f4_load_i8(c + 8), f4_load_i8(c + 12)};
}
#endif
/* Exponent and mantissa, moved into place, read as a float32 that is 2^112 too small, subnormals included;
 * infinity and NaN get the float32 exponent by force. */
static inline vf vf_load_f16(const void *p)
{
    vi half = vi_load_low16(p);
    vi magnitude = vi_and(half, vi_set1(0x7fff));
    vi special = vi_select(vi_gt(magnitude, vi_set1(0x7bff)), vi_set1(0x7f800000), vi_set1(0));
    vf scaled = vf_mul(vi_float(vi_shl(magnitude, 13)), vi_float(vi_set1(0x77800000)));
    vi sign = vi_shl(vi_and(half, vi_set1(0x8000)), 16);
    return vi_float(vi_or(vi_or(vf_bits(scaled), special), sign));
}
static inline vf vf_load_bf16_n(const void *p, int64_t n)
{
    uint16_t lanes[16] = {0};
    memcpy(lanes, p, (size_t)n * sizeof lanes[0]);
    return vf_load_bf16(lanes);
}
static inline vf vf_load_f16_n(const void *p, int64_t n)
{
    uint16_t lanes[16] = {0};
    memcpy(lanes, p, (size_t)n * sizeof lanes[0]);
    return vf_load_f16(lanes);
}
static inline vf vf_load_i8_n(const void *p, int64_t n)
{
    int8_t lanes[16] = {0};
    memcpy(lanes, p, (size_t)n);
    return vf_load_i8(lanes);
}

#undef QW_BINARY
#undef QW_COMPARE
#undef QW_UNARY
#undef QW_ADD
#undef QW_SUB
#undef QW_MUL
#undef QW_DIV
#undef QW_AND
#undef QW_OR
#undef QW_XOR
#undef QW_WRAP_ADD
#undef QW_WRAP_SUB
#undef QW_BITS
#undef QW_FLOAT
#undef QW_NOT
#undef QW_NAN
#undef QW_CONVERT
#undef QW_MIN4
